package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/terraform"
)

// scopeFlags say which part of a configuration a plan is about.
type scopeFlags struct{ files, targets []string }

func (s *scopeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&s.files, "file", "f", nil, "only what this file declares; may be given several times")
	cmd.Flags().StringArrayVar(&s.targets, "target", nil, "only this resource or module, by its address; may be given several times")
}

func (s *scopeFlags) any() bool { return len(s.files)+len(s.targets) > 0 }

// takeTargets makes terraform's own -target options part of the scope, so that
// what is known of the scope is all of it.
func (s *scopeFlags) takeTargets(opts []option) []option {
	return slices.DeleteFunc(slices.Clone(opts), func(o option) bool {
		if o.name == "target" {
			s.targets = append(s.targets, o.value)
		}
		return o.name == "target"
	})
}

// resolve finds the scope and tells where it differs from what was named.
func (s *scopeFlags) resolve(a *app, tofu bool) (*terraform.Scope, error) {
	scope, err := terraform.ScopeOf(a.env.Dir, s.files, s.targets, tofu)
	if err != nil {
		return nil, err
	}
	for _, n := range scope.Notes {
		a.note("note: %s", n)
	}
	return scope, nil
}

// targetArgs are the scope as terraform takes it.
func targetArgs(s *terraform.Scope) (args []string) {
	for _, t := range s.Targets {
		args = append(args, "-target="+t.String())
	}
	return args
}

// scoped is the scope of a plain apply of a part.
func (r *tfRun) scoped(ctx context.Context, s *scopeFlags) (*terraform.Scope, error) {
	tool, err := r.version(ctx)
	if err != nil {
		return nil, err
	}
	return s.resolve(r.app, isTofu(tool))
}

// nothingOutside refuses the plan that was judged last when it destroys what
// lies outside its scope.
func (r *tfRun) nothingOutside(scope *terraform.Scope) error {
	p, err := terraform.ReadPlan(r.shown, nil, nil)
	if err != nil {
		return err
	}
	return outsideErr(outside(scope, p))
}

// version is the client's name and version, as it tells them.
func (r *tfRun) version(ctx context.Context) (string, error) {
	c := r.command
	c.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1")
	b, code, err := c.Output(ctx, "version")
	if err == nil && code != 0 {
		err = fault.New(fault.ParameterInvalid, "%s version ends with exit code %d", c.Path, code).WithNext("check --terraform-bin (KL_TERRAFORM)")
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return strings.TrimSpace(string(line)), err
}

func isTofu(tool string) bool { return strings.HasPrefix(tool, "OpenTofu") }

// outside are the destructions of a plan that lie outside its scope: terraform
// takes in what the targets depend on.
func outside(s *terraform.Scope, p *terraform.Plan) (out []terraform.Change) {
	for _, c := range p.Changes {
		if c.Destroys() && !s.Contains(c.Scope()) {
			out = append(out, c)
		}
	}
	return out
}

func outsideErr(out []terraform.Change) error {
	if len(out) == 0 {
		return nil
	}
	names := changeNames(out)
	return fault.New(fault.ParameterInvalid, "the plan would %s, which lies outside what was named: terraform takes in what that depends on", names).
		WithNext("if that is meant, name it too: --target '%s'", out[0].Scope())
}

// changeNames tells changes in a phrase, at most ten of them.
func changeNames(list []terraform.Change) string {
	var names []string
	for _, c := range list[:min(len(list), 10)] {
		names = append(names, c.String())
	}
	text := strings.Join(names, ", ")
	if more := len(list) - len(names); more > 0 {
		text += " and " + plural(int64(more), "other", "others")
	}
	return text
}

// isSpec reports whether a file that was named with -f is the spec of a plan
// and no part of a configuration.
func isSpec(file string) bool {
	return strings.HasSuffix(file, ".json") && !strings.HasSuffix(file, ".tf.json") && !strings.HasSuffix(file, ".tofu.json") && filepath.Base(file) != ".json"
}
