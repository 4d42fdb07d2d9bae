package main

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport is the import order of the project, written out: a package of ours
// and the packages of ours that its production files may name. ARCHITECTURE.md
// says why the order is what it is. A package that is missing here fails the
// test, so a new one has to be given its place.
var mayImport = map[string][]string{
	"":          {"cli"},
	"cli":       {"server", "client", "terraform", "store", "auth", "tfstate", "fault", "wire"},
	"server":    {"query", "store", "merge", "quota", "auth", "tfstate", "fault", "wire", "web"},
	"client":    {"fault", "wire"},
	"terraform": {"tfstate", "fault"},
	"query":     {"store", "auth", "tfstate", "fault", "wire"},
	"store":     {"merge", "quota", "auth", "tfstate", "fault", "wire"},
	"merge":     {"tfstate", "fault"},
	"quota":     {"tfstate", "fault"},
	"auth":      {"fault"},
	"tfstate":   {"fault"},
	"fault":     {},
	"wire":      {},
	"web":       {},
	"kltest":    {"server", "client", "store", "auth", "tfstate", "fault", "wire", "scripts/rig"},
	"e2e":       {}, // tests only

	// programs around the product use it as others do: by its binary and its API
	"scripts/rig":           {"client", "wire"},
	"scripts/audit":         {"scripts/rig", "client", "fault", "wire"},
	"examples/coordination": {"scripts/rig", "client", "fault", "wire"},
}

// testOnly packages are imported by tests and by nothing else.
var testOnly = []string{"kltest", "e2e"}

// reserved names the packages that may import a module of others; modules not
// named here are free to all.
var reserved = map[string][]string{
	"go.etcd.io/bbolt":                    {"store"},
	"github.com/klauspost/compress":       {"store"},
	"github.com/labstack/echo":            {"server"},
	"github.com/prometheus/client_golang": {"server"},
	"github.com/rs/zerolog":               {"server", "cli", "kltest"},
	"github.com/spf13/cobra":              {"cli"},
	"github.com/BurntSushi/toml":          {"cli"},
	"github.com/hashicorp/hcl":            {"terraform"},
}

// TestImportOrder reads the imports of every file and compares them with the
// tables above.
func TestImportOrder(t *testing.T) {
	for _, file := range goFiles(t) {
		pkg := packageOf(file)
		isTest := strings.HasSuffix(file, "_test.go")
		allowed, known := mayImport[pkg]
		if !known {
			t.Errorf("%s: package %q has no place in the import order: add it to mayImport", file, pkg)
			continue
		}
		for _, path := range importsOf(t, file) {
			if own, ok := strings.CutPrefix(path, "kl/"); ok {
				switch {
				case isTest && testMayImport(pkg, own):
				case !isTest && slices.Contains(testOnly, own):
					t.Errorf("%s imports kl/%s, which is for tests only", file, own)
				case !slices.Contains(allowed, own):
					t.Errorf("%s imports kl/%s; package %q may import only %v", file, own, pkg, allowed)
				}
				continue
			}
			for module, users := range reserved {
				if (path == module || strings.HasPrefix(path, module+"/")) && !slices.Contains(users, pkg) {
					t.Errorf("%s imports %s, which only %v may", file, path, users)
				}
			}
		}
	}
}

// testMayImport reports whether a test file of pkg may import own: its own
// package from outside, what the package itself may import, and a real server
// with what it takes to ask it.
func testMayImport(pkg, own string) bool {
	if own == pkg || pkg == "e2e" || pkg == "" || slices.Contains(mayImport[pkg], own) {
		return true
	}
	return slices.Contains(testOnly, own) || slices.Contains(mayImport["kltest"], own)
}

// TestImportOrderHasNoCycle keeps the table itself honest.
func TestImportOrderHasNoCycle(t *testing.T) {
	for pkg := range mayImport {
		if cyclic(pkg, nil) {
			t.Errorf("mayImport lets %q import itself", pkg)
		}
	}
}

func cyclic(pkg string, path []string) bool {
	if slices.Contains(path, pkg) {
		return true
	}
	return slices.ContainsFunc(mayImport[pkg], func(next string) bool { return cyclic(next, append(path, pkg)) })
}

// TestFileSize keeps production files readable in one sitting.
func TestFileSize(t *testing.T) {
	const most = 550
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		if n := bytes.Count(read(t, file), []byte("\n")); n > most {
			t.Errorf("%s has %d lines; split it by noun (most: %d)", file, n, most)
		}
	}
}

var backquoted = regexp.MustCompile("`([^`\n]+)`")

// TestArchitecturePage checks what ARCHITECTURE.md points to: files and
// folders exist, package members are declared, and it stays one short read.
func TestArchitecturePage(t *testing.T) {
	const page, most = "ARCHITECTURE.md", 150
	text := read(t, page)
	if n := bytes.Count(text, []byte("\n")); n > most {
		t.Errorf("%s has %d lines, more than %d", page, n, most)
	}
	declared := declarations(t)
	for _, match := range backquoted.FindAllSubmatch(text, -1) {
		name := string(match[1])
		if looksLikePath(name) {
			if _, err := os.Stat(filepath.FromSlash(name)); err != nil {
				t.Errorf("%s names %s: %v", page, name, err)
			}
			continue
		}
		pkg, member, ok := strings.Cut(strings.TrimSuffix(name, "()"), ".")
		if names := declared[pkg]; ok && names != nil && ast.IsExported(member) {
			last := member[strings.LastIndexByte(member, '.')+1:]
			if !names[last] {
				t.Errorf("%s names %s, which package %s does not declare", page, name, pkg)
			}
		}
	}
}

var pathShape = regexp.MustCompile(`^\.?[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)*/?$`)

// looksLikePath reports whether a backquoted word is meant as a path of this
// checkout: a folder with its slash, or a file with an ending we use.
func looksLikePath(name string) bool {
	if !pathShape.MatchString(name) {
		return false
	}
	switch filepath.Ext(name) {
	case ".go", ".md", ".sh", ".tf", ".yml", ".toml", ".txtar":
		return true
	}
	return strings.HasSuffix(name, "/")
}

// TestContributingNamesDependencies demands the one line for every direct
// dependency that says why it is there.
func TestContributingNamesDependencies(t *testing.T) {
	text := read(t, "CONTRIBUTING.md")
	lines := bufio.NewScanner(bytes.NewReader(read(t, "go.mod")))
	for lines.Scan() {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(fields) != 2 || !strings.Contains(fields[0], ".") || !strings.HasPrefix(fields[1], "v") {
			continue // the header, a brace, or an "// indirect" requirement
		}
		if !bytes.Contains(text, []byte(fields[0])) {
			t.Errorf("CONTRIBUTING.md does not say why %s is needed", fields[0])
		}
	}
}

// declarations maps each package of ours to the names it declares: at top
// level, and as methods.
func declarations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		names := all[f.Name.Name]
		if names == nil {
			names = map[string]bool{}
			all[f.Name.Name] = names
		}
		for _, decl := range f.Decls {
			maps.Copy(names, namesOf(decl))
		}
	}
	return all
}

func namesOf(decl ast.Decl) map[string]bool {
	names := map[string]bool{}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		names[d.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names[s.Name.Name] = true
				if st, ok := s.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						for _, n := range field.Names {
							names[n.Name] = true
						}
					}
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names[n.Name] = true
				}
			}
		}
	}
	return names
}

// goFiles lists the Go files of this module, by their slash paths.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := path != "." && strings.HasPrefix(d.Name(), ".")
			_, otherModule := os.Stat(filepath.Join(path, "go.mod"))
			if hidden || d.Name() == "testdata" || path != "." && otherModule == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, ".go") {
			files = append(files, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func packageOf(file string) string {
	if i := strings.LastIndexByte(file, '/'); i >= 0 {
		return file[:i]
	}
	return ""
}

func importsOf(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	paths := make([]string, len(f.Imports))
	for i, spec := range f.Imports {
		if paths[i], err = strconv.Unquote(spec.Path.Value); err != nil {
			t.Fatalf("%s: import %s: %v", file, spec.Path.Value, err)
		}
	}
	return paths
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
