package terraform

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
)

// maxPlanPart bounds what is read of one file in a plan. The state is the
// largest of them.
const maxPlanPart = 2 << 30

// openedPlan is what a saved plan holds beside the plan: a snapshot of the
// configuration and the refreshed state. The layout is in Terraform's
// internal/plans/planfile and internal/configs/configload/loader_snapshot.go.
type openedPlan struct {
	state []byte
	files map[string][]byte // of the configuration, by path in the plan
}

// openPlan reads a saved plan; nil when it is not a ZIP file with what is
// expected in it.
func openPlan(planFile []byte) *openedPlan {
	z, err := zip.NewReader(bytes.NewReader(planFile), int64(len(planFile)))
	if err != nil {
		return nil
	}
	p := &openedPlan{files: map[string][]byte{}}
	for _, f := range z.File {
		if f.Name != "tfstate" && f.Name != ".terraform.lock.hcl" && !strings.HasPrefix(f.Name, "tfconfig/") {
			continue
		}
		b, err := readPart(f)
		if err != nil {
			return nil
		}
		if f.Name == "tfstate" {
			p.state = b
		} else {
			p.files[f.Name] = b
		}
	}
	if p.state == nil || len(p.files) == 0 {
		return nil
	}
	return p
}

func readPart(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(io.LimitReader(r, maxPlanPart+1))
	if err == nil && len(b) > maxPlanPart {
		err = fmt.Errorf("%s is over %d bytes", f.Name, int64(maxPlanPart))
	}
	return b, err
}

const modulesFile = "tfconfig/modules.json"

// digest is the SHA-256 of the configuration. The list of modules is left out:
// it tells in which directory they lay.
func (p *openedPlan) digest() string {
	names := []string{}
	for n := range p.files {
		if n != modulesFile {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	h := sha256.New()
	for _, n := range names {
		sum := sha256.Sum256(p.files[n])
		_, _ = fmt.Fprintf(h, "%d %s %x\n", len(n), n, sum) // a hash takes all
	}
	return hex.EncodeToString(h.Sum(nil))
}

var localsSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "locals"}}}

// locals lists what each local of the configuration refers to, as references
// wants it. The files of module a.b, called from the root as module.a, are in
// tfconfig/m-a.b. A file that cannot be read leaves its locals out.
func (p *openedPlan) locals() map[string][]string {
	out := map[string][]string{}
	parser := hclparse.NewParser()
	for name, text := range p.files {
		key, ok := strings.CutPrefix(path.Dir(name), "tfconfig/m-")
		if !ok {
			continue
		}
		module := ""
		for step := range strings.SplitSeq(key, ".") {
			if step != "" {
				module = join(module, "module."+step)
			}
		}
		f, diags := parseBytes(parser, text, name)
		if diags.HasErrors() {
			continue
		}
		content, _, _ := f.Body.PartialContent(localsSchema)
		for _, b := range content.Blocks {
			attrs, _ := b.Body.JustAttributes()
			for _, a := range attrs {
				at := module + " local." + a.Name
				out[at] = append(out[at], []string{}...)
				for _, v := range a.Expr.Variables() {
					out[at] = append(out[at], traversalText(v))
				}
			}
		}
	}
	return out
}

func parseBytes(p *hclparse.Parser, text []byte, name string) (*hcl.File, hcl.Diagnostics) {
	if strings.HasSuffix(name, ".json") {
		return p.ParseJSON(text, name)
	}
	return p.ParseHCL(text, name)
}

// traversalText writes a reference without its keys.
func traversalText(tr hcl.Traversal) string {
	var parts []string
	for _, s := range tr {
		switch s := s.(type) {
		case hcl.TraverseRoot:
			parts = append(parts, s.Name)
		case hcl.TraverseAttr:
			parts = append(parts, s.Name)
		}
	}
	return strings.Join(parts, ".")
}
