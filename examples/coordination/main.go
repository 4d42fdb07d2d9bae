// Command coordination makes two directories contend for one Terraform state,
// under the eyes of whoever runs it, and writes down what happened.
//
//	go run ./examples/coordination --terraform /abs/terraform --out evidence.json [--backend local|kl]
//
// It exits with 0 when every claim held, 1 when one did not or the experiment
// failed, 3 for wrong usage. README.md tells what there is to see.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"kl/scripts/rig"
)

func main() {
	os.Exit(Main(os.Args, os.Stdout, os.Stderr))
}

// Main runs the program with the arguments as a process gets them, and returns
// its exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) > 1 && args[1] == holdVerb {
		if err := hold(ctx, args[2:]); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	o := options{stdout: stdout}
	f := flag.NewFlagSet("coordination", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.terraform, "terraform", "", "path of the client; else KL_TERRAFORM, terraform or tofu on the PATH")
	f.StringVar(&o.out, "out", "", "file for the evidence, as JSON")
	f.StringVar(&o.backend, "backend", "", "local or kl; both when left out")
	f.DurationVar(&o.deadline, "deadline", 5*time.Minute, "longest time for each backend")
	if err := f.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 3
	}
	if err := o.validate(f.Args()); err != nil {
		fmt.Fprintln(stderr, err)
		return 3
	}
	e, err := experiment(ctx, o)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if !e.OK {
		fmt.Fprintln(stderr, "a claim did not hold")
		return 1
	}
	return 0
}

type options struct {
	terraform, out, backend string
	deadline                time.Duration
	stdout                  io.Writer
}

// validate finds the client and names all that is wrong.
func (o *options) validate(rest []string) error {
	var wrong []error
	if len(rest) > 0 {
		wrong = append(wrong, fmt.Errorf("%q is no flag", rest[0]))
	}
	if o.backend != "" && o.backend != local && o.backend != kl {
		wrong = append(wrong, fmt.Errorf("--backend is local or kl, not %q", o.backend))
	}
	if o.deadline <= 0 {
		wrong = append(wrong, errors.New("--deadline is a time above zero, such as 5m"))
	}
	if err := rig.Writable(o.out); err != nil {
		wrong = append(wrong, err)
	}
	bin, err := rig.FindTerraform(o.terraform)
	if err != nil {
		wrong = append(wrong, err)
	}
	o.terraform = bin
	return errors.Join(wrong...)
}

// experiment runs the backends that are asked for and writes the evidence, also
// of an experiment that broke off.
func experiment(ctx context.Context, o options) (e evidence, err error) {
	dir, err := os.MkdirTemp("", "coordination-")
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	e = evidence{Format: evidenceFormat, StartedAt: time.Now().UTC(), OK: true, Runs: []*run{}}
	e.Terraform.Path = o.terraform
	if e.Terraform.Version, err = rig.TerraformVersion(ctx, o.terraform, dir); err != nil {
		return e, err
	}
	for _, backend := range []string{local, kl} {
		if o.backend == "" || o.backend == backend {
			r, failure := contend(ctx, o, backend, dir)
			e.Runs = append(e.Runs, r)
			e.OK = e.OK && failure == nil && r.OK
			err = errors.Join(err, failure)
		}
	}
	e.EndedAt = time.Now().UTC()
	if err == nil {
		err = e.fits()
	}
	if o.out != "" {
		err = errors.Join(err, rig.WriteJSON(o.out, e))
	}
	return e, err
}
