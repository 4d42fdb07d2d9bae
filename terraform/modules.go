package terraform

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"kl/fault"
)

var moduleSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}}}

// moduleFile adds the calls in the root configuration that lead to the module a
// file belongs to.
func (r *scopeReader) moduleFile(file string, root []*hcl.Block) error {
	info, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return fault.Wrap(fault.ParameterInvalid, err, "the directory of %s cannot be read", file)
	}
	found := false
	for _, b := range root {
		if b.Type == "module" && r.leadsTo(r.dir, b, info, map[string]bool{}) {
			call := "module." + b.Labels[0]
			if err := r.addText(call); err != nil {
				return err
			}
			r.note("%s belongs to a module: all of %s is part of this plan", file, call)
			found = true
		}
	}
	if !found {
		return fault.New(fault.ParameterInvalid, "%s belongs neither to the configuration in %s nor to a local module that it calls", file, r.dir).
			WithNext("run this in the directory of the configuration, and name its files")
	}
	return nil
}

// leadsTo reports whether a module call in dir loads, itself or through other
// local modules, the directory target. What cannot be read leads nowhere:
// Terraform will say so. seen holds the directories that were looked into.
func (r *scopeReader) leadsTo(dir string, call *hcl.Block, target fs.FileInfo, seen map[string]bool) bool {
	content, _, _ := call.Body.PartialContent(moduleSchema)
	if content == nil || content.Attributes["source"] == nil {
		return false
	}
	source, ok := literal(content.Attributes["source"].Expr)
	if !ok || (!strings.HasPrefix(source, "./") && !strings.HasPrefix(source, "../")) {
		return false
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(dir, source))
	if err != nil || seen[dir] {
		return false
	}
	seen[dir] = true
	if sameFile(target, dir) {
		return true
	}
	names, err := configFiles(dir, r.tofu)
	if err != nil {
		return false
	}
	for _, name := range names {
		blocks, err := r.blocks(filepath.Join(dir, name))
		if err != nil {
			return false
		}
		for _, b := range blocks {
			if b.Type == "module" && r.leadsTo(dir, b, target, seen) {
				return true
			}
		}
	}
	return false
}
