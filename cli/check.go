package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/store"
)

func (a *app) checkCmd() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify a data file while no server has it open",
		Long: `Verify a data file while no server has it open: its structure, the digest of every
version, and everything else that must hold in it. The file is only read. The exit
code is 1 when something is wrong; the states that are whole are named all the same.`,
		Example: "  kl check --data kl.db",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			s, err := store.Open(store.Options{Path: data, ReadOnly: true, Now: a.env.Now})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			progress, done := a.progress("checking")
			r, err := s.Check(cmd.Context(), progress)
			done()
			if err != nil {
				return err
			}
			return a.printCheck(data, r)
		},
	}
	cmd.Flags().StringVar(&data, "data", defaultData, "data file to check")
	return cmd
}

func (a *app) printCheck(path string, r store.CheckReport) error {
	var err error
	if a.asJSON {
		for _, list := range []*[]string{&r.Problems, &r.Whole, &r.Damaged} {
			if *list == nil {
				*list = []string{}
			}
		}
		err = a.printJSON(r)
	} else {
		var b strings.Builder
		for _, p := range r.Problems {
			fmt.Fprintf(&b, "problem: %s\n", p)
		}
		for _, s := range r.Whole {
			fmt.Fprintf(&b, "whole: %s\n", s)
		}
		for _, s := range r.Damaged {
			fmt.Fprintf(&b, "damaged: %s\n", s)
		}
		verdict := "all is well"
		if len(r.Problems) > 0 {
			verdict = plural(int64(len(r.Problems)), "problem", "problems")
		}
		fmt.Fprintf(&b, "%s: %s in %s, %s, %s\n", path, verdict,
			plural(int64(r.States), "state", "states"), plural(int64(r.Versions), "version", "versions"), amount(r.Bytes))
		err = a.printf("%s", b.String())
	}
	if err != nil || len(r.Problems) == 0 {
		return err
	}
	return fault.New(fault.Internal, "%s has %s", path, plural(int64(len(r.Problems)), "problem", "problems")).
		WithNext("keep a copy of the file; restore a backup, or take over the states that are whole")
}

// progress draws a bar on standard error when people look at it. done takes it
// away again.
func (a *app) progress(what string) (step func(done, total int), done func()) {
	if !terminal(a.env.Stderr) {
		return func(int, int) {}, func() {}
	}
	const width = 40
	last := -1
	step = func(done, total int) {
		if total <= 0 || done*width/total == last {
			return
		}
		last = min(done*width/total, width)
		_, _ = fmt.Fprintf(a.env.Stderr, "\r%s [%s%s] %d%%", what, strings.Repeat("#", last), strings.Repeat(".", width-last), done*100/total)
	}
	return step, func() { _, _ = fmt.Fprint(a.env.Stderr, "\r\x1b[K") }
}
