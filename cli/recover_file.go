package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/wire"
)

// fileOptions are the flags of kl recover --file.
type fileOptions struct {
	name  string
	yes   bool
	merge mergeFlags
}

// recoverFile brings a file such as errored.tfstate into the state: it finds
// the refused write that it is, or makes it one, shows what a merge would do,
// and merges after a confirmation.
func (a *app) recoverFile(cmd *cobra.Command, f fileOptions) error {
	ctx := cmd.Context()
	q, err := f.merge.request(cmd)
	if err != nil {
		return err
	}
	doc, err := a.readDocument(f.name)
	if err != nil {
		return err
	}
	t, err := a.forState(ctx, "")
	if err != nil {
		return err
	}
	if doc.sealed {
		return fault.New(fault.BodyInvalid, "%s is encrypted: the server cannot look into it, so it can merge nothing of it", doc.name).
			WithNext("if nobody else has written since, it can replace the state as a whole: kl state push %s %s", t.state, f.name)
	}
	r, err := a.refusedOf(ctx, t, doc)
	if err != nil {
		return err
	}
	if r.Status != "open" {
		if a.asJSON {
			return a.printJSON(wire.MergeResult{ID: r.ID, Status: r.Status, Added: []string{}, Changed: []string{}, Removed: []string{}, Overlapping: []wire.Overlap{}, Newer: []string{}})
		}
		return a.printf("%s is the refused write %s, which is %s already: nothing is left to do\n", doc.name, r.ID, r.Status)
	}
	q.DryRun = true
	preview, err := t.MergeRefused(ctx, t.environment, t.state, r.ID, q)
	if err != nil {
		return err
	}
	if f.merge.dryRun {
		return a.printMerge(t.state, preview)
	}
	if !a.asJSON {
		if err := a.printf("%s", mergeText(t.state, preview)); err != nil {
			return err
		}
	}
	if undecided(preview) {
		first := preview.Overlapping[slices.IndexFunc(preview.Overlapping, func(o wire.Overlap) bool { return o.Side == "" })]
		code, why := fault.OverlapConflict, fmt.Sprintf("both %s and the state have changed %s", doc.name, first.Address)
		if first.DependsOn != "" {
			code, why = fault.DependencyConflict, first.Address+" "+clash(first)
		}
		return fault.New(code, "nothing was merged: %s", why).
			WithNext("choose a side: kl recover --file %s --state %s --take disjoint|mine|theirs", f.name, t.state)
	}
	if !f.yes {
		if err := a.confirm(cmd, fmt.Sprintf("Merge it into %s?", t.state)); err != nil {
			return err
		}
	}
	q.DryRun = false
	done, err := t.MergeRefused(ctx, t.environment, t.state, r.ID, q)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(done)
	}
	if done.Version == 0 {
		return a.printf("%s is settled: %s has all of it already\n", r.ID, t.state)
	}
	for _, w := range done.QuotaWarnings {
		a.note("warning: %s", w)
	}
	return a.printf("merged into %s: version %d, serial %d; now plan again\n", t.state, done.Version, done.Serial)
}

// refusedOf finds the refused write that a file is, or brings the file in as
// one.
func (a *app) refusedOf(ctx context.Context, t *target, d document) (wire.Refused, error) {
	var settled *wire.Refused
	var similar []wire.Refused
	digest := sha256.Sum256(d.bytes)
	for r, err := range t.RefusedList(ctx, t.environment, t.state) {
		if fault.Is(err, fault.NotFound) {
			break // the state was never written
		}
		if err != nil {
			return r, err
		}
		switch same := r.SHA256 == hex.EncodeToString(digest[:]); {
		case same && r.Status == "open":
			return a.isRefused(d, r), nil
		case same && r.Status == "merged":
			settled = &r
		case r.Status == "open" && r.Lineage == d.lineage && (r.Serial == d.serial || r.Serial+1 == d.serial):
			// OpenTofu writes errored.tfstate with the serial after the one
			// that was refused
			similar = append(similar, r)
		}
	}
	if settled != nil {
		return *settled, nil
	}
	want := withoutSerial(d.bytes)
	for _, r := range similar {
		b, err := t.RefusedBody(ctx, t.environment, t.state, r.ID)
		if err != nil {
			return r, err
		}
		body, err := io.ReadAll(b)
		_ = b.Close()
		if err != nil {
			return r, err
		}
		if want != "" && withoutSerial(body) == want {
			return a.isRefused(d, r), nil
		}
	}
	r, err := t.AddRefused(ctx, t.environment, t.state, d.bytes)
	if err == nil && !a.asJSON {
		a.note("the server had not heard of %s; it is kept as %s now", d.name, r.ID)
	}
	return r, err
}

func (a *app) isRefused(d document, r wire.Refused) wire.Refused {
	if !a.asJSON {
		a.note("%s is kept as %s since %s: %s", d.name, r.ID, when(r.CreatedAt), r.Detail)
	}
	return r
}

// withoutSerial is the content of a state but for its serial and its white
// space, the same text for the same content; "" for what is none. Numbers stay
// as they are written.
func withoutSerial(b []byte) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(b, &members) != nil {
		return ""
	}
	delete(members, "serial")
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	var out bytes.Buffer
	for _, name := range names {
		out.WriteString(name + ":")
		if json.Compact(&out, members[name]) != nil {
			return ""
		}
	}
	return out.String()
}

// confirm asks on the terminal; where there is none, and for any answer but
// yes, it fails.
func (a *app) confirm(cmd *cobra.Command, question string) error {
	in, ok := a.env.Stdin.(*os.File)
	if !ok || !terminal(in) {
		return usage(cmd, "nothing was changed: there is no terminal to ask on").WithNext("add --yes")
	}
	_, _ = fmt.Fprintf(a.env.Stderr, "%s Only \"yes\" does it: ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if strings.TrimSpace(line) == "yes" && err == nil {
		return nil
	}
	return fault.New(fault.ParameterInvalid, "nothing was changed").WithNext("run it again and answer yes")
}
