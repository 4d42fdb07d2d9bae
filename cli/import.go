package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/terraform"
)

// maxImport bounds the states of one import.
const maxImport = 10000

// importOptions are the flags of kl import.
type importOptions struct {
	pull, yes, dry bool
	terraform      string
	push           pushOptions
}

func (a *app) importCmd() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import [NAME=]PATH…",
		Short: "Bring many states in, from files or from directories with other backends",
		Long: `Bring many states in, byte for byte, with the lineage and serial that they have. What
would be done is shown first and done after a yes, or with --yes.

A PATH is a state file, or a directory in which all files *.tfstate are taken, such as
kl export has written. With --pull a PATH is a Terraform directory: its state is read with
terraform state pull from whatever backend it has now.

A state is named as its file, without .tfstate; terraform.tfstate, and with --pull every
state, is named as its directory. NAME=PATH names it otherwise.

A state that exists is written to only if the file continues it: the same lineage and a
higher serial. States that exported files call deleted, and directories that have no state
yet, are left out. One that fails does not stop the others; the exit code is that of the
first that failed.`,
		Example: `  kl import old-states --dry-run
  kl import network=net/terraform.tfstate app.tfstate --yes
  kl import --pull stacks/*`,
		Args: between(1, maxImport),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			found, err := a.gather(cmd, args, o)
			if err != nil {
				return err
			}
			return a.importAll(cmd, t, found, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.pull, "pull", false, "paths are Terraform directories: run terraform state pull in each")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.BoolVar(&o.dry, "dry-run", false, "show what would be done, and do nothing")
	f.StringVar(&o.terraform, "terraform-bin", "", "the program that --pull runs; without it KL_TERRAFORM, terraform or tofu")
	f.DurationVar(&o.push.wait, "lock-timeout", 0, "wait that long for each lock, such as 5m")
	return a.online(cmd)
}

// importing is one state on its way in.
type importing struct {
	Name    string `json:"name"`
	From    string `json:"from"`
	Serial  uint64 `json:"serial"`
	Lineage string `json:"lineage"`
	Bytes   int    `json:"bytes"`
	// Action is create, update, unchanged, or refused when it cannot be done;
	// afterwards created, updated, unchanged or failed.
	Action  string `json:"action"`
	Version uint64 `json:"version,omitempty"`
	Problem string `json:"problem,omitempty"`

	doc  document
	file bool // From is one
	err  error
}

// gather reads what is to be imported.
func (a *app) gather(cmd *cobra.Command, args []string, o importOptions) ([]*importing, error) {
	bin := ""
	if o.pull {
		var err error
		if bin, err = terraform.Find(o.terraform, a.env.Getenv); err != nil {
			return nil, err
		}
	}
	var all []*importing
	for _, arg := range args {
		name, path, named := strings.Cut(arg, "=")
		if !named || !stateName.MatchString(name) {
			name, path = "", arg
		}
		fi, err := os.Stat(path)
		if err != nil {
			return nil, fault.Wrap(fault.ParameterInvalid, err, "%s cannot be read", path).WithNext("name files or directories that are there")
		}
		switch {
		case o.pull && !fi.IsDir():
			return nil, usage(cmd, "%s is not a directory, and --pull reads from directories", path)
		case o.pull:
			im, err := a.pull(cmd.Context(), bin, path)
			if err != nil {
				return nil, err
			}
			if im != nil {
				all = append(all, im.named(name))
			}
		case fi.IsDir() && name != "":
			return nil, usage(cmd, "%s is a directory, and all of its states cannot be named %s", path, name).WithNext("name its files one by one, as NAME=FILE")
		case fi.IsDir():
			more, err := a.walk(path)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		default:
			im, err := a.fromFile(path)
			if err != nil {
				return nil, err
			}
			all = append(all, im.named(name))
		}
		if len(all) > maxImport {
			return nil, usage(cmd, "there are more than %d states", maxImport).WithNext("import them in several runs")
		}
	}
	return all, distinct(cmd, all)
}

// distinct makes sure that every state has a name, and one of its own.
func distinct(cmd *cobra.Command, all []*importing) error {
	if len(all) == 0 {
		return usage(cmd, "there is no state in it").WithNext("name state files *.tfstate or directories with such, or Terraform directories with --pull")
	}
	from := map[string]string{}
	for _, im := range all {
		if !stateName.MatchString(im.Name) {
			return usage(cmd, "%s would be named %q, which no state can be", im.From, im.Name).WithNext("name it: kl import %s", quoted("NAME="+im.From))
		}
		if other, twice := from[im.Name]; twice {
			return usage(cmd, "%s and %s would both be named %s", other, im.From, im.Name).WithNext("name one of them otherwise: kl import %s", quoted("NAME="+im.From))
		}
		from[im.Name] = im.From
	}
	return nil
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("=-_./:@%+,", r) && !('a' <= r && r <= 'z') && !('A' <= r && r <= 'Z') && !('0' <= r && r <= '9')
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func (im *importing) named(name string) *importing {
	if name != "" {
		im.Name = name
	}
	return im
}

// walk takes the state files below a directory.
func (a *app) walk(dir string) (all []*importing, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fault.Wrap(fault.ParameterInvalid, err, "%s cannot be read", path).WithNext("check its permissions")
		case d.IsDir() && path != dir && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir // .terraform has no states, but files that are named so
		case d.IsDir() || !d.Type().IsRegular() || !strings.HasSuffix(d.Name(), ".tfstate"):
			return nil
		case len(all) == maxImport:
			return fs.SkipAll
		}
		if deletedExport(path) {
			a.note("%s is left out: the state was in the trash", path)
			return nil
		}
		im, err := a.fromFile(path)
		if err == nil {
			all = append(all, im)
		}
		return err
	})
	return all, err
}

// deletedExport reports whether kl export has written beside a file that its
// state was in the trash.
func deletedExport(path string) bool {
	f, err := os.Open(strings.TrimSuffix(path, ".tfstate") + ".json")
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var e exported
	return json.NewDecoder(f).Decode(&e) == nil && e.Lifecycle == "deleted"
}

func (a *app) fromFile(path string) (*importing, error) {
	d, err := a.readDocument(path)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(path), ".tfstate")
	if name == "terraform" || name == "errored" {
		if name, err = directoryName(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	im := newImporting(name, path, d)
	im.file, im.doc.bytes = true, nil // read again when it is sent: all together may be much
	return im, nil
}

func newImporting(name, from string, d document) *importing {
	return &importing{Name: name, From: from, Serial: d.serial, Lineage: d.lineage, Bytes: len(d.bytes), doc: d}
}

func directoryName(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("name of %s: %w", dir, err)
	}
	return filepath.Base(abs), nil
}

// pull reads the state of a Terraform directory from its backend; nil when it
// has none.
func (a *app) pull(ctx context.Context, bin, dir string) (*importing, error) {
	c := terraform.Command{Path: bin, Dir: dir, Stderr: a.env.Stderr}
	out, code, err := c.Output(ctx, "state", "pull")
	switch {
	case err != nil:
		return nil, err
	case code != 0:
		return nil, fault.New(fault.ParameterInvalid, "%s state pull failed in %s with exit code %d", filepath.Base(bin), dir, code).
			WithNext("see above what it says; run terraform init in %s if it is not initialised", dir)
	case len(bytes.TrimSpace(out)) == 0:
		a.note("%s is left out: it has no state yet", dir)
		return nil, nil
	}
	d, err := parseDocument(dir, out)
	if err != nil {
		return nil, err
	}
	name, err := directoryName(dir)
	return newImporting(name, dir, d), err
}

// importAll shows what would be done, asks, and does it.
func (a *app) importAll(cmd *cobra.Command, t *target, all []*importing, o importOptions) error {
	ctx := cmd.Context()
	if _, err := t.dataRef(ctx); err != nil { // what all of them need
		return err
	}
	todo := 0
	for _, im := range all {
		if err := im.preview(ctx, t); err != nil {
			return err
		}
		if im.Action == "create" || im.Action == "update" {
			todo++
		}
	}
	if o.dry {
		return errors.Join(a.printImport(all), firstFailure(all))
	}
	if todo > 0 && !o.yes {
		rows := importRows(all)
		for _, r := range rows {
			a.note("%s", strings.Join(r, "  "))
		}
		if err := a.confirm(cmd, fmt.Sprintf("Write %s to %s?", plural(int64(todo), "state", "states"), t.environment)); err != nil {
			return err
		}
	}
	step, done := a.progress("importing")
	for i, im := range all {
		if im.Action == "create" || im.Action == "update" {
			im.store(ctx, a, t, o.push)
		}
		if err := ctx.Err(); err != nil {
			done()
			return errors.Join(a.printImport(all), err)
		}
		step(i+1, len(all))
	}
	done()
	return errors.Join(a.printImport(all), firstFailure(all))
}

// preview finds out what importing the state would be. The error is one that
// concerns all.
func (im *importing) preview(ctx context.Context, t *target) error {
	one := *t
	one.state = im.Name
	st, err := t.State(ctx, t.environment, im.Name)
	there := err == nil
	if there && st.Lifecycle == "deleted" {
		im.refuse(fault.New(fault.StateDeleted, "the state %s is in the trash", im.Name).
			WithNext("bring it back with: kl state restore %s; or import to another name", im.Name))
		return nil
	}
	head, err := one.compare(ctx, im.doc)
	switch {
	case err != nil && (fault.ClassOf(err) == fault.Conflict || fault.ClassOf(err) == fault.Lifecycle):
		im.refuse(err)
	case err != nil:
		return err
	case head != nil:
		im.Action, im.Version = "unchanged", head.Version
	case there && st.Lifecycle != "active":
		im.refuse(fault.New(fault.StateArchived, "the state %s is %s", im.Name, st.Lifecycle).WithNext("kl state restore %s", im.Name))
	case there && st.Version > 0:
		im.Action = "update"
	default:
		im.Action = "create"
	}
	return nil
}

func (im *importing) refuse(why error) {
	im.Action, im.Problem, im.err = "refused", fault.Of(why).Detail, why
}

// store writes the state, as kl state push does.
func (im *importing) store(ctx context.Context, a *app, t *target, how pushOptions) {
	one := *t
	one.state = im.Name
	doc, err := im.doc, error(nil)
	if im.file {
		if doc, err = a.readDocument(im.From); err == nil && doc.sum != im.doc.sum {
			err = fault.New(fault.ParameterInvalid, "%s has changed since it was looked at", im.From).WithNext("import it again")
		}
	}
	var p pushed
	if err == nil {
		p, err = a.push(ctx, &one, doc, how)
	}
	if err != nil {
		im.Action, im.err, im.Problem = "failed", err, err.Error()
		if f := fault.Of(err); f != nil {
			im.Problem = f.Detail
		}
		return
	}
	im.Action += "d"
	im.Version = p.Version
	if p.Unchanged {
		im.Action = "unchanged"
	}
}

// firstFailure is what the exit code comes from.
func firstFailure(all []*importing) error {
	var first *importing
	n := 0
	for _, im := range all {
		if im.err == nil {
			continue
		}
		if n++; first == nil {
			first = im
		}
	}
	switch {
	case n == 0:
		return nil
	case n == 1 || fault.Of(first.err) == nil:
		return first.err
	}
	f := *fault.Of(first.err)
	f.Detail = fmt.Sprintf("%d of %d states were not imported; the first: %s", n, len(all), f.Detail)
	return &f
}

func importRows(all []*importing) [][]string {
	rows := [][]string{{"STATE", "ACTION", "SERIAL", "BYTES", "FROM", "PROBLEM"}}
	for _, im := range all {
		rows = append(rows, []string{im.Name, im.Action, fmt.Sprint(im.Serial), amount(int64(im.Bytes)), im.From, im.Problem})
	}
	return rows
}

func (a *app) printImport(all []*importing) error {
	if a.asJSON {
		return a.printJSON(map[string]any{"items": all})
	}
	return a.printTable(importRows(all))
}
