// Command audit checks that the execution plane of a kl server behaves: it drives
// the real terraform, and kl, through the situations that people meet, and
// writes down for each what was done, what was shown and what it thinks of it.
//
//	go run ./scripts/audit [--address URL --token T] [--terraform PATH]
//	    [--out audit.md] [--json audit.json] [--only 5A,6B]
//
// Without an address it starts a kl of its own on a temporary file. It exits with
// 0 when no scenario failed, 1 when one did, 3 for wrong usage. docs/audit.md
// tells more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"kl/scripts/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Main runs the program and returns its exit code.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := options{stderr: stderr}
	f := flag.NewFlagSet("audit", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.address, "address", os.Getenv("KL_ADDRESS"), "a running server (KL_ADDRESS); left out, one is started on a temporary file")
	f.StringVar(&o.token, "token", "", "the operator's control token of that server (KL_TOKEN)")
	f.StringVar(&o.terraform, "terraform", "", "path of the client; else KL_TERRAFORM, terraform or tofu on the PATH")
	f.StringVar(&o.out, "out", "", "file for the report, as Markdown; left out, it goes to stdout")
	f.StringVar(&o.json, "json", "", "file for the report as JSON")
	f.StringVar(&o.only, "only", "", "ids of the scenarios to run, such as 5A,6B; left out, all")
	f.DurationVar(&o.deadline, "deadline", 20*time.Minute, "longest time for all of it")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 3
	}
	if err := o.validate(f.Args()); err != nil {
		fmt.Fprintln(stderr, err)
		return 3
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.deadline, fmt.Errorf("the deadline of %s is over", o.deadline))
	defer cancel()
	rep, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	if rep == nil {
		return 1
	}
	if err := rep.write(o, stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if err != nil || rep.Counts[fail] > 0 {
		return 1
	}
	return 0
}

type options struct {
	address, token, terraform string
	out, json, only           string
	deadline                  time.Duration
	wanted                    []string // ids; empty means all
	stderr                    io.Writer
}

// validate completes the options and names all that is wrong.
func (o *options) validate(rest []string) error {
	var wrong []error
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if len(rest) > 0 {
		bad("%q is no flag", rest[0])
	}
	if o.token == "" { // not as the flag's default, which help prints
		o.token = os.Getenv("KL_TOKEN")
	}
	if o.address != "" && o.token == "" {
		bad("--address needs --token (KL_TOKEN): the operator's control token")
	}
	if o.deadline <= 0 {
		bad("--deadline is a time above zero, such as 20m")
	}
	if o.only != "" {
		for id := range strings.SplitSeq(o.only, ",") {
			id = strings.ToUpper(strings.TrimSpace(id))
			if !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.id == id }) {
				bad("--only: there is no scenario %q; there are %s", id, strings.Join(ids(), ", "))
			}
			o.wanted = append(o.wanted, id)
		}
	}
	if err := rig.Writable(o.out, o.json); err != nil {
		wrong = append(wrong, err)
	}
	bin, err := rig.FindTerraform(o.terraform)
	if err != nil {
		wrong = append(wrong, err)
	}
	o.terraform = bin
	return errors.Join(wrong...)
}
