package terraform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"kl/fault"
	"kl/tfstate"
)

// Scope is the part of a configuration that a plan is to be about.
type Scope struct {
	// Targets are what Terraform's -target takes, sorted. None means the whole
	// configuration.
	Targets []tfstate.Scope
	// Notes tell, each in a sentence, where the scope is wider than the files
	// that were named, and what in these files is not part of it.
	Notes []string
}

// Contains reports whether an address lies in the scope.
func (s *Scope) Contains(a tfstate.Scope) bool {
	return len(s.Targets) == 0 || slices.ContainsFunc(s.Targets, func(t tfstate.Scope) bool { return t.Covers(a) })
}

// ScopeOf finds what the named files of the configuration in dir declare, and
// adds the targets, which are addresses. Resources, data sources and module
// calls count whole; of moved blocks both addresses do, of removed and import
// blocks the one they name. A file of a local module stands for the calls in
// dir that lead to it. tofu tells whose files are meant where the two differ.
// Files are relative to the directory the process runs in.
//
// Locals, variables, outputs and providers cannot be applied on their own. A
// scope of nothing else, and whatever cannot be told from the files alone, is
// refused with parameter_invalid.
func ScopeOf(dir string, files, targets []string, tofu bool) (*Scope, error) {
	r := &scopeReader{dir: dir, tofu: tofu, parser: hclparse.NewParser(), found: map[string]tfstate.Scope{}}
	for _, t := range targets {
		a, err := parseAddress(t)
		if err != nil {
			return nil, err
		}
		r.add(a)
	}
	if len(files) > 0 || len(targets) > 0 {
		if err := r.read(files); err != nil {
			return nil, err
		}
	}
	s := &Scope{Notes: r.notes}
	for _, a := range r.found {
		s.Targets = append(s.Targets, a)
	}
	slices.SortFunc(s.Targets, func(a, b tfstate.Scope) int { return strings.Compare(a.String(), b.String()) })
	if len(s.Targets) == 0 && len(files) > 0 {
		return nil, fault.New(fault.ParameterInvalid, "%s declares nothing that can be applied on its own: only %s",
			strings.Join(files, ", "), r.beside()).
			WithNext("name with -f the files whose resources use it, or addresses with --target, or leave -f out to plan everything")
	}
	return s, nil
}

// blocks that a file of a configuration may have. Terraform's own list is in
// its internal/configs/parser_config.go; action blocks are there since 1.14.
var fileSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "resource", LabelNames: []string{"type", "name"}},
	{Type: "data", LabelNames: []string{"type", "name"}},
	{Type: "ephemeral", LabelNames: []string{"type", "name"}},
	{Type: "action", LabelNames: []string{"type", "name"}},
	{Type: "module", LabelNames: []string{"name"}},
	{Type: "moved"},
	{Type: "removed"},
	{Type: "import"},
	{Type: "terraform"},
	{Type: "locals"},
	{Type: "provider", LabelNames: []string{"name"}},
	{Type: "variable", LabelNames: []string{"name"}},
	{Type: "output", LabelNames: []string{"name"}},
	{Type: "check", LabelNames: []string{"name"}},
}}

type scopeReader struct {
	dir    string
	tofu   bool
	parser *hclparse.Parser
	found  map[string]tfstate.Scope
	notes  []string
	others []string // kinds of blocks in the named files that have no address
}

// move is a moved block.
type move struct {
	from, to tfstate.Scope
	place    string
}

func (r *scopeReader) add(a tfstate.Scope) { r.found[a.String()] = a }

func (r *scopeReader) addText(text string) error {
	a, err := parseAddress(text)
	if err == nil {
		r.add(a)
	}
	return err
}

func (r *scopeReader) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func (r *scopeReader) beside() string {
	if len(r.others) == 0 {
		return "comments"
	}
	slices.Sort(r.others)
	return strings.Join(slices.Compact(r.others), ", ") + " blocks"
}

func (r *scopeReader) read(files []string) error {
	names, err := configFiles(r.dir, r.tofu)
	if err != nil {
		return err
	}
	var root []*hcl.Block
	for _, name := range names {
		blocks, err := r.blocks(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		root = append(root, blocks...)
	}
	for _, file := range files {
		if err := r.file(file, names, root); err != nil {
			return err
		}
	}
	return r.withMoves(root)
}

// blocks reads one file.
func (r *scopeReader) blocks(path string) ([]*hcl.Block, error) {
	f, diags := parse(r.parser, path)
	if !diags.HasErrors() {
		var content *hcl.BodyContent
		content, diags = f.Body.Content(fileSchema)
		diags = append(diags, labels(content)...)
		if !diags.HasErrors() {
			return content.Blocks, nil
		}
	}
	line, what := firstError(diags)
	return nil, fault.New(fault.ParameterInvalid, "%s cannot be read for what it declares: %s", place(path, line), what).
		WithNext("correct the file (terraform validate), or name addresses with --target instead of files")
}

// labels finds labels that Terraform takes for no name.
func labels(content *hcl.BodyContent) (diags hcl.Diagnostics) {
	for _, b := range content.Blocks {
		if i := slices.IndexFunc(b.Labels, func(l string) bool { return !hclsyntax.ValidIdentifier(l) }); i >= 0 {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: fmt.Sprintf("%q is no name", b.Labels[i]), Subject: &b.DefRange})
		}
	}
	return diags
}

// file adds what one named file declares.
func (r *scopeReader) file(file string, names []string, root []*hcl.Block) error {
	info, err := os.Stat(file)
	if err != nil {
		reason := err
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
			reason = pe.Err
		}
		return fault.New(fault.ParameterInvalid, "%s cannot be read: %s", file, reason).
			WithNext("name a file of the configuration, relative to the directory you are in")
	}
	switch i := slices.IndexFunc(names, func(n string) bool { return sameFile(info, filepath.Join(r.dir, n)) }); {
	case info.IsDir():
		return fault.New(fault.ParameterInvalid, "%s is a directory", file).WithNext("name its files: -f %s", filepath.Join(file, "main.tf"))
	case i >= 0:
		blocks, err := r.blocks(filepath.Join(r.dir, names[i]))
		if err != nil {
			return err
		}
		return r.declared(file, blocks)
	case r.inRoot(file):
		return fault.New(fault.ParameterInvalid, "%s is not a file that is loaded as configuration", file).
			WithNext("name files that end in .tf or .tf.json")
	}
	return r.moduleFile(file, root)
}

func (r *scopeReader) inRoot(file string) bool {
	info, err := os.Stat(filepath.Dir(file))
	return err == nil && sameFile(info, r.dir)
}

// declared adds what the blocks of one file declare.
func (r *scopeReader) declared(file string, blocks []*hcl.Block) error {
	before := len(r.found)
	var others []string
	for _, b := range blocks {
		var err error
		switch b.Type {
		case "resource":
			err = r.addText(b.Labels[0] + "." + b.Labels[1])
		case "data":
			err = r.addText("data." + b.Labels[0] + "." + b.Labels[1])
		case "module":
			err = r.addText("module." + b.Labels[0])
		case "moved":
			var m move
			if m, err = r.move(b); err == nil {
				r.add(m.from)
				r.add(m.to)
			}
		case "removed":
			err = r.removed(b)
		case "import":
			err = r.imported(b)
		default:
			others = append(others, b.Type)
		}
		if err != nil {
			return err
		}
	}
	if len(r.found) > before {
		acting := slices.DeleteFunc(slices.Clone(others), func(kind string) bool {
			return kind != "locals" && kind != "variable" && kind != "provider"
		})
		slices.Sort(acting)
		if acting = slices.Compact(acting); len(acting) > 0 {
			r.note("%s also has %s blocks; resources of other files that use them are not part of this plan", file, strings.Join(acting, ", "))
		}
	}
	r.others = append(r.others, others...)
	return nil
}

func (r *scopeReader) move(b *hcl.Block) (move, error) {
	from, _, err := r.address(b, "from")
	if err != nil {
		return move{}, err
	}
	to, _, err := r.address(b, "to")
	return move{from, to, blockPlace(b)}, err
}

// removed adds what a removed block names. It has no keys, so that in a module
// it stands for the resources of all the module's instances, which -target can
// only take together with the module.
func (r *scopeReader) removed(b *hcl.Block) error {
	a, _, err := r.address(b, "from")
	if err != nil {
		return err
	}
	if _, inside := a.Parent(); inside {
		r.note("%s removes %s; all of %s is part of this plan, because Terraform cannot target part of each of its instances", blockPlace(b), a, a.Top())
		a = a.Top()
	}
	r.add(a)
	return nil
}

func (r *scopeReader) imported(b *hcl.Block) error {
	a, exact, err := r.address(b, "to")
	if err != nil {
		return err
	}
	if !exact {
		r.note("%s imports into a key that is computed; all of %s is part of this plan", blockPlace(b), a)
	}
	r.add(a)
	return nil
}

// address reads the attribute of a block that is an address. exact is false
// when the address goes on with something that only Terraform can compute.
func (r *scopeReader) address(b *hcl.Block, name string) (a tfstate.Scope, exact bool, err error) {
	content, _, diags := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: name, Required: true}}})
	if !diags.HasErrors() {
		tr, exact := traversalOf(content.Attributes[name].Expr)
		if a, rest, ok := addressOf(tr); ok && len(rest) == 0 {
			return a, exact, nil
		}
	}
	return a, false, fault.New(fault.ParameterInvalid, "%s: the address in %q of this %s block cannot be told from the file", blockPlace(b), name, b.Type).
		WithNext("correct it (terraform validate), or name addresses with --target instead of files")
}

// traversalOf is the traversal that e is, or begins with.
func traversalOf(e hcl.Expression) (tr hcl.Traversal, exact bool) {
	if tr, diags := hcl.AbsTraversalForExpr(e); !diags.HasErrors() {
		return tr, true
	}
	// in JSON it is a string, which need not be a traversal
	if s, ok := literal(e); ok {
		inner, diags := hclsyntax.ParseExpression([]byte(s), "", hcl.InitialPos)
		if diags.HasErrors() {
			return nil, false
		}
		e = inner
	}
	for {
		switch x := e.(type) {
		case *hclsyntax.IndexExpr:
			e = x.Collection
		case *hclsyntax.RelativeTraversalExpr:
			e = x.Source
		case *hclsyntax.ScopeTraversalExpr:
			return x.Traversal, false
		default:
			return nil, false
		}
	}
}

// withMoves adds the other end of each moved block whose one end is in the
// scope: Terraform refuses targets that cover half of a move.
func (r *scopeReader) withMoves(root []*hcl.Block) error {
	var moves []move
	for _, b := range root {
		if b.Type != "moved" {
			continue
		}
		m, err := r.move(b)
		if err != nil {
			return err
		}
		moves = append(moves, m)
	}
	for more := true; more; {
		more = false
		for _, m := range moves {
			for _, end := range [][2]tfstate.Scope{{m.from, m.to}, {m.to, m.from}} {
				if r.touches(end[0]) && !r.contains(end[1]) {
					r.note("%s moves %s to %s; both are part of this plan", m.place, m.from, m.to)
					r.add(end[1])
					more = true
				}
			}
		}
	}
	return nil
}

func (r *scopeReader) contains(a tfstate.Scope) bool {
	for _, t := range r.found {
		if t.Covers(a) {
			return true
		}
	}
	return false
}

// touches reports whether a and the scope have something in common.
func (r *scopeReader) touches(a tfstate.Scope) bool {
	for _, t := range r.found {
		if t.Overlaps(a) {
			return true
		}
	}
	return false
}

func blockPlace(b *hcl.Block) string { return place(b.DefRange.Filename, b.DefRange.Start.Line) }

func sameFile(info fs.FileInfo, path string) bool {
	other, err := os.Stat(path)
	return err == nil && os.SameFile(info, other)
}
