package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kl/fault"
	"kl/terraform"
	"kl/wire"
)

// specKind and specFormat say what a spec file is.
const (
	specKind   = "kl-plan"
	specFormat = 1
)

// maxSpec bounds the reading of a spec file.
const maxSpec = 64 << 20

// spec is a plan of a part, with all that is needed to apply it later: what it
// may do, what it was made of, and where.
type spec struct {
	Kind        string    `json:"kind"`
	Format      int       `json:"format"`
	CreatedAt   time.Time `json:"created_at"`
	Server      string    `json:"server"`
	Environment string    `json:"env_public_id"`
	State       string    `json:"state"`
	BaseVersion uint64    `json:"base_version"` // that the plan was made on, 0 for a state without one
	BaseSerial  uint64    `json:"base_serial"`
	// Configuration is the SHA-256 of what terraform loaded; "" when it cannot be
	// told.
	Configuration string   `json:"configuration_sha256"`
	Tool          string   `json:"tool"` // the client that planned
	KL            string   `json:"kl_version"`
	Files         []string `json:"files"` // as named with -f
	Scope         []string `json:"scope"` // addresses that the plan is about; none: everything
	Args          []string `json:"terraform_args"`
	terraform.Plan
	Quota *wire.QuotaCheck `json:"quota"`
}

// spec describes the plan that was made.
func (r *inRun) spec(s *scopeFlags) *spec {
	out := &spec{
		Kind: specKind, Format: specFormat, CreatedAt: r.app.env.Now().UTC().Truncate(time.Second),
		Server: r.as.Base(), Environment: r.target.environment, State: r.target.state,
		BaseVersion: r.run.BaseVersion, BaseSerial: r.run.Serial, Configuration: r.planned.Digest, Tool: r.tool, KL: build().Version,
		Files: append([]string{}, s.files...), Scope: []string{}, Args: append([]string{}, join(r.opts)...), Plan: *r.planned, Quota: r.verdict.Quota,
	}
	for _, t := range r.scope.Targets {
		out.Scope = append(out.Scope, t.String())
	}
	return out
}

// write puts the spec into a file that is the user's alone: values of -var may
// be secrets.
func (s *spec) write(file string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the spec: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".kl-plan-")
	if err == nil {
		_, err = tmp.Write(append(b, '\n'))
		if err2 := tmp.Close(); err == nil {
			err = err2
		}
		if err == nil {
			err = os.Rename(tmp.Name(), file)
		}
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}
	if err != nil {
		return fault.Wrap(fault.ParameterInvalid, err, "the spec cannot be written to %s", file).WithNext("check -o")
	}
	return nil
}

// readSpec reads what write has written.
func readSpec(file string) (*spec, error) {
	bad := func(format string, args ...any) *fault.Error {
		return fault.New(fault.ParameterInvalid, "%s "+format, append([]any{file}, args...)...).WithNext("make it with: kl plan -o %s", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the spec %s cannot be read", file).WithNext("make it with: kl plan -o %s", file)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxSpec+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the spec %s cannot be read", file)
	case len(b) > maxSpec:
		return nil, bad("is over %s long", amount(maxSpec))
	case bytes.HasPrefix(b, []byte("PK")):
		return nil, bad("is a plan of terraform's, not a spec").WithNext("apply it with: kl apply %s, without --orchestrated", file)
	}
	s := &spec{}
	if err := json.Unmarshal(b, s); err != nil || s.Kind != specKind {
		return nil, bad("is not the spec of a plan")
	}
	if s.Format != specFormat {
		return nil, bad("has format %d, and this kl knows %d", s.Format, specFormat)
	}
	return s, nil
}

// applies refuses a spec that is of another state.
func (s *spec) applies(t *target, base string) error {
	if s.Environment == t.environment && s.State == t.state && sameServer(s.Server, base) {
		return nil
	}
	return fault.New(fault.ParameterInvalid, "the spec is for the state %s of %s on %s, and here it is %s of %s on %s", s.State, s.Environment, s.Server, t.state, t.environment, base).
		WithNext("run this in the directory that it was made in, or plan again: kl plan -o FILE")
}

// permits refuses a plan that does what the spec does not say, or is made of
// something else. A plan that does less is fine: the rest is done already.
func (s *spec) permits(p *terraform.Plan) error {
	if s.Configuration != "" && p.Digest != "" && s.Configuration != p.Digest {
		return fault.New(fault.ParameterInvalid, "the configuration is not what it was when the spec was made").
			WithNext("look at it again and make another: kl plan -o FILE")
	}
	var more []terraform.Change
	for _, c := range p.Changes {
		if c.Action != terraform.Refresh && !slices.Contains(s.Changes, c) {
			more = append(more, c)
		}
	}
	if len(more) > 0 {
		return fault.New(fault.OverlapConflict, "the state has changed since the spec was made: the plan would now %s as well", changeNames(more)).
			WithNext("look at it again and make another: kl plan -o FILE")
	}
	return nil
}

// summary tells people what the plan is about and what it would reserve.
func (r *inRun) summary() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "\nIn the state %s, on %s:\n", r.target.state, onVersion(r.run))
	for _, c := range r.planned.Changes {
		far := ""
		if !r.scope.Contains(c.Scope()) {
			far = "  (outside what was named; it is depended on)"
		}
		_, _ = fmt.Fprintf(&b, "  %s%s\n", c, far)
	}
	switch {
	case len(r.planned.Changes) == 0 && r.planned.Outputs > 0:
		_, _ = fmt.Fprintf(&b, "  only outputs change\n")
	case len(r.planned.Changes) == 0:
		_, _ = fmt.Fprintf(&b, "  nothing to do\n")
	default:
		_, _ = fmt.Fprintf(&b, "An apply reserves %s for itself, and relies on %s\n",
			plural(int64(len(r.planned.Write)), "address", "addresses"), someOf(r.planned.Read))
	}
	return b.String()
}

// someOf lists addresses for people, at most ten.
func someOf(list []string) string {
	if len(list) == 0 {
		return "nothing else"
	}
	text := strings.Join(list[:min(len(list), 10)], ", ")
	if more := len(list) - 10; more > 0 {
		text += " and " + plural(int64(more), "other", "others")
	}
	return text
}
