package terraform

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"

	"kl/fault"
)

var (
	rootSchema      = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "terraform"}}}
	terraformSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "backend", LabelNames: []string{"type"}}, {Type: "cloud"},
	}}
	httpSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{
		{Name: "address"}, {Name: "username"}, {Name: "password"},
	}}
)

// FromConfiguration reads the backend block of the configuration in dir; nil
// when there is none. As in Terraform, override files win over the others, and
// OpenTofu's main.tofu over main.tf. Values that are no literals are named in
// Expressions. The code of a failure is parameter_invalid, with file and line.
func FromConfiguration(dir string) (*Backend, error) {
	files, err := configFiles(dir, true)
	if err != nil {
		return nil, err
	}
	var found *Backend
	p := hclparse.NewParser()
	for _, name := range files {
		b, err := backendOf(p, dir, name)
		if err != nil {
			return nil, err
		}
		if b != nil {
			found = b
		}
	}
	return found, nil
}

// configFiles lists what Terraform, or OpenTofu, would load from dir, the
// overriding files last. Only OpenTofu reads main.tofu, and then no main.tf.
func configFiles(dir string, tofu bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the directory %s cannot be read", dir).
			WithNext("name the state with --address")
	}
	names := map[string]bool{}
	for _, e := range entries {
		n := e.Name()
		if e.IsDir() || strings.HasPrefix(n, ".") || strings.HasSuffix(n, "~") || (strings.HasPrefix(n, "#") && strings.HasSuffix(n, "#")) {
			continue
		}
		names[n] = true
	}
	var plain, override []string
	for n := range names {
		stem, ext := splitExt(n)
		if ext == "" || (!tofu && strings.HasPrefix(ext, ".tofu")) {
			continue
		}
		if rest, ok := strings.CutPrefix(ext, ".tf"); ok && tofu && names[stem+".tofu"+rest] {
			continue
		}
		if stem == "override" || strings.HasSuffix(stem, "_override") {
			override = append(override, n)
		} else {
			plain = append(plain, n)
		}
	}
	slices.Sort(plain)
	slices.Sort(override)
	return append(plain, override...), nil
}

func splitExt(name string) (stem, ext string) {
	for _, e := range []string{".tf", ".tf.json", ".tofu", ".tofu.json"} {
		if s, ok := strings.CutSuffix(name, e); ok && s != "" {
			return s, e
		}
	}
	return name, ""
}

func backendOf(p *hclparse.Parser, dir, name string) (*Backend, error) {
	f, diags := parse(p, filepath.Join(dir, name))
	if diags.HasErrors() {
		return nil, invalid(name, diags)
	}
	root, _, diags := f.Body.PartialContent(rootSchema)
	if diags.HasErrors() {
		return nil, invalid(name, diags)
	}
	var found *Backend
	for _, tf := range root.Blocks {
		content, _, diags := tf.Body.PartialContent(terraformSchema)
		if diags.HasErrors() {
			return nil, invalid(name, diags)
		}
		for _, blk := range content.Blocks {
			b, err := readBlock(name, blk)
			if err != nil {
				return nil, err
			}
			found = b
		}
	}
	return found, nil
}

func parse(p *hclparse.Parser, path string) (*hcl.File, hcl.Diagnostics) {
	if strings.HasSuffix(path, ".json") {
		return p.ParseJSONFile(path)
	}
	return p.ParseHCLFile(path)
}

func readBlock(name string, blk *hcl.Block) (*Backend, error) {
	b := &Backend{Source: place(name, blk.DefRange.Start.Line), Type: blk.Type}
	if blk.Type == "backend" {
		b.Type = blk.Labels[0]
	}
	if b.Type != "http" {
		return b, nil
	}
	content, _, diags := blk.Body.PartialContent(httpSchema)
	if diags.HasErrors() {
		return nil, invalid(name, diags)
	}
	for _, set := range []struct {
		name string
		to   *string
	}{{"address", &b.Address}, {"username", &b.Username}, {"password", &b.Password}} {
		attr := content.Attributes[set.name]
		if attr == nil {
			continue
		}
		s, ok := literal(attr.Expr)
		if !ok {
			b.Expressions = append(b.Expressions, set.name+" ("+place(name, attr.Range.Start.Line)+")")
			continue
		}
		*set.to = s
	}
	return b, nil
}

// literal evaluates without variables and functions, so only what is written
// out has a value.
func literal(e hcl.Expression) (string, bool) {
	v, diags := e.Value(nil)
	switch {
	case diags.HasErrors() || !v.IsWhollyKnown():
		return "", false
	case v.IsNull():
		return "", true
	case v.Type() != cty.String:
		return "", false
	}
	return v.AsString(), true
}

func invalid(name string, diags hcl.Diagnostics) error {
	line, what := firstError(diags)
	return fault.New(fault.ParameterInvalid, "%s cannot be read for its backend block: %s", place(name, line), what).
		WithNext("correct the file (terraform validate), or name the state with --address")
}

// firstError is where and what the first error among diags is.
func firstError(diags hcl.Diagnostics) (line int, what string) {
	what = "is not valid"
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		what = d.Summary
		if d.Subject != nil {
			line = d.Subject.Start.Line
		}
		break
	}
	return line, what
}
