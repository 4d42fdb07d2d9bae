package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/fault"
	"kl/terraform"
	"kl/wire"
)

// explainTime bounds the questions that are asked after the client has failed,
// also when the user has interrupted it.
const explainTime = 10 * time.Second

// passing makes a command that hands to terraform what is not its own: flags of
// kl begin with two dashes (or are one letter), those of terraform with one.
func (a *app) passing(cmd *cobra.Command, run func(cmd *cobra.Command, theirs []string) error) *cobra.Command {
	cmd.DisableFlagParsing = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ours, theirs := splitArgs(cmd, args)
		cmd.DisableFlagParsing = false // from here on flags are parsed as ever
		if err := cmd.ParseFlags(ours); err != nil {
			return usage(cmd, "%s", err)
		}
		help, err := cmd.Flags().GetBool("help")
		if _, theirHelp := take(optionsOf(theirs), "help"); help || theirHelp.on() || err != nil {
			return errors.Join(err, cmd.Help())
		}
		if err := a.bind(cmd); err != nil {
			return err
		}
		return run(cmd, theirs)
	}
	return cmd
}

// splitArgs parts the command's own flags from what is for terraform.
func splitArgs(cmd *cobra.Command, args []string) (ours, theirs []string) {
	cmd.InheritedFlags() // makes them known to Flags
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return ours, append(theirs, args[i+1:]...)
		}
		name, _, valued := strings.Cut(arg, "=")
		f := cmd.Flags().Lookup(strings.TrimPrefix(name, "--"))
		switch {
		case strings.HasPrefix(name, "--"):
		case len(name) == 2 && name[0] == '-':
			f = cmd.Flags().ShorthandLookup(name[1:])
		default:
			f = nil
		}
		if f == nil {
			theirs = append(theirs, arg)
			continue
		}
		ours = append(ours, arg)
		if !valued && f.NoOptDefVal == "" && i+1 < len(args) {
			i++
			ours = append(ours, args[i])
		}
	}
	return ours, theirs
}

// switches are terraform's options that take no value as an argument of its
// own. The list is that of plan, apply and destroy in Terraform 1.15 and
// OpenTofu 1.12.
var switches = []string{
	"allow-deferral", "auto-approve", "compact-warnings", "concise", "deprecation", "destroy", "detailed-exitcode", "help", "input", "json", "lock", "no-color", "refresh", "refresh-only", "show-sensitive",
}

// option is one option among terraform's arguments, or its operand.
type option struct {
	name  string   // without dashes; "" for an operand, such as a saved plan
	value string   // "" when it has none
	args  []string // as they came
}

// optionsOf parts terraform's arguments.
func optionsOf(args []string) []option {
	var out []option
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") || args[i] == "-" {
			out = append(out, option{value: args[i], args: args[i : i+1]})
			continue
		}
		name, value, valued := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		o := option{name: name, value: value, args: args[i : i+1]}
		if !valued && !slices.Contains(switches, name) && i+1 < len(args) {
			o.value, o.args = args[i+1], args[i:i+2]
			i++
		}
		out = append(out, o)
	}
	return out
}

// take removes the options of these names and returns the last one's value.
func take(opts []option, names ...string) (rest []option, last *option) {
	for _, o := range opts {
		if slices.Contains(names, o.name) {
			last = &o
			continue
		}
		rest = append(rest, o)
	}
	return rest, last
}

// takeOperand removes the operand, nil when there is none. Terraform takes one.
func takeOperand(cmd *cobra.Command, opts []option) (rest []option, operand *option, err error) {
	for _, o := range opts {
		if o.name == "" && operand != nil {
			return nil, nil, usage(cmd, "%s takes one PLAN, and %q is a second one", cmd.CommandPath(), o.value)
		}
		if o.name == "" {
			operand = &o
			continue
		}
		rest = append(rest, o)
	}
	return rest, operand, nil
}

// on reports whether a switch was given and not turned off.
func (o *option) on() bool { return o != nil && o.value != "false" && o.value != "0" }

// join puts options together again.
func join(opts []option) (args []string) {
	for _, o := range opts {
		args = append(args, o.args...)
	}
	return args
}

// tfRun is one run of kl plan or kl apply: the client, the state that it works
// on, and how to tell why the server refused it.
type tfRun struct {
	app     *app
	command terraform.Command
	input   *terraform.Input
	opts    []option // terraform's arguments that are left
	target  *target  // nil when trouble is set
	trouble error    // why the state or its server is not known
	before  string   // id of the last refused request before the run
	// refused asks for the newest refusal that the client can have met.
	refused func(context.Context) (wire.Request, error)
	tmp     string // a directory for the plan, which holds secrets
	shown   []byte // JSON of the plan that was judged last
	// values says that -var and -var-file go with the apply of the plan that was
	// judged last.
	values bool
	close  func()
	// confirms says that a question will follow the plan. What comes through a
	// pipe is its answer: a client takes more of a pipe than it needs, and the
	// rest is lost.
	confirms bool
}

// terraformFlags are the flags of commands that run the client.
type terraformFlags struct{ bin string }

func (f *terraformFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.bin, "terraform-bin", "", "the client to run; without it KL_TERRAFORM, terraform, or tofu")
}

// newRun finds the client and the state. That the state is not found is noted,
// and no failure yet. The caller must call close.
func (a *app) newRun(ctx context.Context, f terraformFlags, theirs []string) (*tfRun, error) {
	bin, err := terraform.Find(f.bin, a.env.Getenv)
	if err != nil {
		return nil, err
	}
	r := &tfRun{app: a, input: terraform.NewInput(a.env.Stdin), opts: optionsOf(theirs)}
	var chdir *option
	if r.opts, chdir = take(r.opts, "chdir"); chdir != nil {
		r.command.Chdir = chdir.value
		if !filepath.IsAbs(chdir.value) {
			chdir.value = filepath.Join(a.env.Dir, chdir.value)
		}
		a.env.Dir = chdir.value // where the backend is looked for
	} else {
		r.command.Dir = a.env.Dir
	}
	if r.tmp, err = os.MkdirTemp("", "kl-"); err != nil { // mode 0700
		return nil, fmt.Errorf("make a directory for the plan: %w", err)
	}
	interrupts := make(chan os.Signal, 3)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	r.close = func() {
		signal.Stop(interrupts)
		_ = os.RemoveAll(r.tmp) // nothing that could be done about it
	}
	r.command.Path, r.command.Interrupts = bin, interrupts
	r.command.Keyboard = terminalOf(a.env.Stdin)
	r.command.Terminal = r.command.Keyboard != nil || terminal(a.env.Stdout) || terminal(a.env.Stderr)
	r.command.Stdout, r.command.Stderr = a.env.Stdout, a.env.Stderr
	if a.asJSON {
		r.command.Stdout = a.env.Stderr // standard output has the answer and nothing else
	}
	r.find(ctx)
	return r, nil
}

// find looks for the state and its server.
func (r *tfRun) find(ctx context.Context) {
	t, err := r.app.forState(ctx, "")
	if err == nil {
		var last wire.Request
		if last, err = t.lastRequest(ctx); fault.Is(err, fault.NotFound) {
			err = nil
		}
		r.before = last.RequestID
	}
	if err != nil {
		r.trouble = err
		return
	}
	r.target, r.refused = t, t.lastRequest
}

// terminalOf is r where that is a terminal, else nil.
func terminalOf(r io.Reader) *os.File {
	if f, ok := r.(*os.File); ok && terminal(f) {
		return f
	}
	return nil
}

// asks reports whether terraform may ask for what it misses.
func (r *tfRun) asks() bool {
	_, input := take(r.opts, "input")
	if input == nil {
		// "any value other than an empty string, 0 or false" lets it ask (Terraform's CLI documentation of TF_INPUT)
		set := r.app.env.Getenv("TF_INPUT")
		return set != "0" && set != "false"
	}
	return input.on()
}

// run runs the client. When it fails the error says why, as far as the server
// knows; exit codes above 1 are the client's answers and no failures.
func (r *tfRun) run(ctx context.Context, c terraform.Command, args ...string) (int, error) {
	code, err := c.Run(ctx, args...)
	if err == nil && code == 1 {
		err = r.explain(ctx, args[0])
	}
	return code, err
}

// explain finds out why the client failed.
func (r *tfRun) explain(ctx context.Context, verb string) error {
	failed := fmt.Errorf("%s %s failed", filepath.Base(r.command.Path), verb)
	if r.target == nil {
		if class := fault.ClassOf(r.trouble); class == fault.Auth || class == fault.Scope || class == fault.Unavailable {
			return r.trouble
		}
		return failed
	}
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
	defer cancel()
	last, err := r.refused(asked)
	switch class := fault.ClassOf(err); {
	case class == fault.Auth, class == fault.Scope, class == fault.Unavailable:
		return err
	case err == nil && fault.Code(last.Code) == fault.NotFound: // how a state that was never written is read
	case err == nil && last.RequestID != r.before && last.Environment == r.target.environment && last.State == r.target.state:
		r.before = last.RequestID
		return refusalOf(last)
	}
	return cmp.Or(ctx.Err(), failed)
}

// refusalOf is a refusal as the server remembers it.
func refusalOf(last wire.Request) error {
	p := wire.Problem{Code: last.Code, Class: last.Class, Status: last.Status, Detail: last.Detail, NextStep: last.NextStep, RequestID: last.RequestID, Extra: maps.Clone(last.Members)}
	return client.FromProblem(p)
}

// hiding passes on what is written to it but for lines about a file that is
// gone before anybody could use it. Text without a line end, such as a question,
// is passed on at once.
type hiding struct {
	w    io.Writer
	path string
}

// Write passes b on.
func (h hiding) Write(b []byte) (int, error) {
	var out []byte
	for line := range bytes.Lines(b) {
		if !bytes.Contains(line, []byte(h.path)) && !bytes.Contains(line, []byte("To perform exactly these actions, run the following command")) {
			out = append(out, line...)
		}
	}
	if _, err := h.w.Write(out); err != nil {
		return 0, fmt.Errorf("pass on the client's output: %w", err)
	}
	return len(b), nil
}

// confirm asks as terraform does; only yes is an agreement.
func (r *tfRun) confirm(ctx context.Context, question string) error {
	if !r.asks() {
		return fault.New(fault.ParameterInvalid, "nothing was applied: input is turned off (-input=false or TF_INPUT), so there is no way to ask").WithNext("add --yes (or -auto-approve)")
	}
	_, _ = fmt.Fprintf(r.app.env.Stderr, "\n%s\n  Only \"yes\" will be accepted.\n\n  Enter a value: ", question)
	line, err := r.input.Line(ctx)
	_, _ = fmt.Fprintln(r.app.env.Stderr)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case err == nil && strings.TrimSpace(line) == "yes":
		return nil
	}
	return fault.New(fault.ParameterInvalid, "nothing was applied: the answer was not yes").WithNext("run it again and answer yes, or add --yes")
}
