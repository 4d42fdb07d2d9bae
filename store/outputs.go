package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"kl/fault"
	"kl/tfstate"
)

// Outputs opens the newest version of a state without its resources: a state
// with the same serial and lineage that holds nothing but outputs, sensitive
// ones only if asked for. SHA256 and Bytes are those of that document. Codes:
// those of Head, and role_too_low for a state that cannot be looked into.
func (s *Store) Outputs(ctx context.Context, ref Ref, sensitive bool) (*Snapshot, error) {
	snap, err := s.Head(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer snap.Close()
	if snap.Opaque {
		return nil, fault.New(fault.RoleTooLow, "the state %s is encrypted or of another format, so that outputs cannot be told from the rest; the role outputs does not read whole states", ref.Name).
			WithNext("use a token with the role read")
	}
	whole := &gather{ctx: ctx, s: s, size: int(snap.Bytes)}
	defer whole.release()
	if _, err := snap.WriteTo(whole); err != nil {
		return nil, err
	}
	doc, err := outputsOnly(whole.b, sensitive)
	if err != nil {
		return nil, fmt.Errorf("outputs of the state %s: %w", ref.Name, err)
	}
	sum := sha256.Sum256(doc)
	out := &Snapshot{Version: snap.Version, write: func(w io.Writer) error { _, err := w.Write(doc); return err }}
	out.SHA256, out.Bytes = hex.EncodeToString(sum[:]), int64(len(doc))
	return out, nil
}

// gather takes what a snapshot writes: as it is when it comes in one piece,
// which then is good until the snapshot is closed, and else a copy, which counts
// among the bodies in flight.
type gather struct {
	ctx  context.Context
	s    *Store
	size int
	held int64
	b    []byte
}

func (g *gather) Write(p []byte) (int, error) {
	if g.b == nil && len(p) == g.size {
		g.b = p
		return len(p), nil
	}
	if g.b == nil {
		held := min(int64(g.size), g.s.opt.BodyBytes)
		if err := g.s.flight.Acquire(g.ctx, held); err != nil {
			return 0, err
		}
		g.held, g.b = held, make([]byte, 0, g.size)
	}
	g.b = append(g.b, p...)
	return len(p), nil
}

func (g *gather) release() { g.s.flight.Release(g.held) }

// outputsOnly makes the document out of a whole one. Values stay as they are
// written.
func outputsOnly(b []byte, sensitive bool) ([]byte, error) {
	const all = tfstate.TopVersion | tfstate.TopSerial | tfstate.TopLineage | tfstate.TopTerraformVersion | tfstate.TopOutputs
	sc := tfstate.NewScanner(b, tfstate.Options{Reordered: true})
	var outputs bytes.Buffer
	for {
		t, err := sc.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if t.Kind != tfstate.CutOutput {
			if sc.Head().Seen&all == all {
				break // clients write outputs before resources
			}
			continue
		}
		if hidden, err := sensitiveOutput(b[t.Value:t.End]); err != nil {
			return nil, err
		} else if hidden && !sensitive {
			continue
		}
		if outputs.Len() > 0 {
			outputs.WriteByte(',')
		}
		outputs.WriteString("\n    ")
		outputs.Write(t.Raw())
	}
	h := sc.Head()
	version, err := json.Marshal(h.TerraformVersion)
	if err != nil {
		return nil, err
	}
	lineage, err := json.Marshal(h.Lineage)
	if err != nil {
		return nil, err
	}
	if outputs.Len() > 0 {
		outputs.WriteString("\n  ")
	}
	return fmt.Appendf(nil, "{\n  \"version\": 4,\n  \"terraform_version\": %s,\n  \"serial\": %d,\n  \"lineage\": %s,\n  \"outputs\": {%s},\n  \"resources\": [],\n  \"check_results\": null\n}\n",
		version, h.Serial, lineage, outputs.Bytes()), nil
}

// sensitiveOutput reports whether an output is to be hidden. Readers of JSON
// differ on members that occur twice or in other case: any of them counts.
func sensitiveOutput(raw []byte) (bool, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return true, err // no output as clients write them
	}
	hidden := false
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return true, err
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return true, err
		}
		if n, ok := name.(string); ok && strings.EqualFold(n, "sensitive") && string(v) != "false" && string(v) != "null" {
			hidden = true
		}
	}
	return hidden, nil
}
