// Package cli is the command line of kl: flags in, a call, the answer out.
//
// Standard output carries the answer and nothing else; everything else goes to
// standard error. A failure is printed there as a sentence, the next step, and
// the id of the refused request; its class decides the exit code. There is one
// file for each group of commands.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"kl/client"
	"kl/fault"
)

// Env is what a run of the command line takes from its surroundings.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
	Now    func() time.Time
	Dir    string // the directory whose Terraform configuration counts
}

// OS is the process's own surroundings.
func OS() Env {
	return Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Now: time.Now, Dir: "."}
}

// Main runs the command line and returns its exit code. SIGINT and SIGTERM
// end what is running in an orderly way.
func Main(args []string, env Env) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// a second Ctrl-C ends the process at once
	context.AfterFunc(ctx, stop)
	return run(ctx, args, env)
}

// app is one run of the command line.
type app struct {
	env    Env
	config *config // nil until bind
	flags  targetFlags
	file   string // --config
	asJSON bool
	// fromEnv holds the flags whose value came from a KL_ variable.
	fromEnv map[string]bool
}

func run(ctx context.Context, args []string, env Env) int {
	a := &app{env: env, fromEnv: map[string]bool{}}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if code, ok := silent(err); ok {
		return code
	}
	if err != nil {
		// --json may stand behind a flag that is not understood
		a.asJSON = a.asJSON || slices.Contains(args, "--json")
		a.report(err)
	}
	return ExitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kl",
		Short: "Terraform and OpenTofu state from one program and one file",
		Long: `kl serves Terraform and OpenTofu state over HTTP from a single file, and looks
after it: every version is kept, locks survive restarts, refused writes are not lost.

Start with "kl serve": it creates the file and prints a backend block to paste.
The other commands talk to a running server. They find it, and the state, in
the flags, in KL_ variables, in TF_HTTP_ variables, in the Terraform
directory they run in, and in ~/.config/kl/config.toml, in this order.`,
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.DisableFlagParsing {
				return nil // it parses its flags itself, and binds them then
			}
			return a.bind(cmd)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return noCommand(cmd, args)
		},
	}
	root.SetIn(a.env.Stdin)
	root.SetOut(a.env.Stdout)
	root.SetErr(a.env.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd, "%s", err)
	})
	root.PersistentFlags().StringVar(&a.file, "config", "", "configuration file (default ~/.config/kl/config.toml)")
	root.PersistentFlags().BoolVar(&a.asJSON, "json", false, "print the answer, and a failure, as JSON")
	root.AddCommand(
		a.serveCmd(), a.initCmd(), a.checkCmd(), a.versionCmd(),
		a.pruneCmd(), a.backupCmd(), a.restoreCmd(), a.compactCmd(), a.exportCmd(), a.importCmd(),
		a.backendCmd(), a.stateCmd(), a.lockCmd(), a.historyCmd(), a.recoverCmd(),
		a.diffCmd(), a.rollbackCmd(), a.tagCmd(), a.whyCmd(), a.eventsCmd(), a.doctorCmd(), a.envCmd(), a.tokenCmd(), a.loginCmd(), a.whoamiCmd(),
		a.workspaceCmd(), a.userCmd(), a.memberCmd(), a.patCmd(), a.grantCmd(),
		a.quotaCmd(), a.planCmd(), a.applyCmd(), a.runsCmd(),
		a.queryCmd(), a.graphCmd(),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetUsageTemplate(root.UsageTemplate() + "\n" + exitHelp())
	describe(root)
	return root
}

// group makes a command that only has commands below it.
func group(use, short string, cmds ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: noCommand}
	g.AddCommand(cmds...)
	return g
}

func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage(cmd, "%s needs a command", cmd.CommandPath())
	}
	e := usage(cmd, "%s has no command %q", cmd.CommandPath(), args[0])
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		best := s[0]
		for _, name := range s {
			if strings.HasPrefix(name, args[0]) {
				best = name
				break
			}
		}
		e = e.WithNext("perhaps: %s %s", cmd.CommandPath(), best)
	}
	return e
}

// usage makes the failure of a command line that is not understood.
func usage(cmd *cobra.Command, format string, args ...any) *fault.Error {
	return fault.New(fault.ParameterInvalid, format, args...).WithNext("%s --help", cmd.CommandPath())
}

// between wants that many arguments.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage(cmd, "%s: an argument is missing (usage: %s)", cmd.CommandPath(), cmd.UseLine())
		case len(args) > most:
			return usage(cmd, "%s: %q is one argument too many (usage: %s)", cmd.CommandPath(), args[most], cmd.UseLine())
		}
		return nil
	}
}

// report prints a failure to standard error.
func (a *app) report(err error) {
	e := fault.Of(err)
	if e == nil {
		// no fault: a canceled run, or a local failure such as a closed pipe
		e = fault.New(fault.Internal, "%s", err)
		e.Next = ""
		if errors.Is(err, context.Canceled) {
			e.Detail = "interrupted"
		}
	}
	if a.asJSON {
		a.reportJSON(e, ExitCode(err))
		return
	}
	// what led to a refusal is the server's log's; what led to a failure here
	// is known nowhere else
	sentence := e.Detail
	if e.Err != nil {
		sentence = e.Error()
	}
	_, _ = fmt.Fprintf(a.env.Stderr, "kl: %s\n", clean(sentence))
	if e.Next != "" {
		_, _ = fmt.Fprintf(a.env.Stderr, "next: %s\n", clean(e.Next))
	}
	if id := client.RequestID(e); id != "" {
		_, _ = fmt.Fprintf(a.env.Stderr, "request: %s\n", clean(id))
	}
}

func (a *app) reportJSON(e *fault.Error, exit int) {
	m := map[string]any{}
	maps.Copy(m, e.Details)
	m["code"], m["class"], m["detail"], m["next_step"], m["exit_code"] = client.Code(e), e.Class(), e.Detail, e.Next, exit
	if e.Err != nil {
		m["detail"] = e.Error()
	}
	if _, ok := m["request_id"]; !ok {
		m["request_id"] = ""
	}
	enc := json.NewEncoder(a.env.Stderr)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(m)
}

// note tells something that is neither the answer nor a failure.
func (a *app) note(format string, args ...any) {
	_, _ = fmt.Fprintf(a.env.Stderr, "%s\n", clean(fmt.Sprintf(format, args...)))
}

// terminal reports whether people look at w.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// clean takes control characters out of text that others have chosen, such as
// the Who of a lock, before it reaches a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (r < ' ' || (r >= 0x7f && r < 0xa0)) {
			return '\uFFFD'
		}
		return r
	}, s)
}
