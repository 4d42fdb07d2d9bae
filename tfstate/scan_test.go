package tfstate_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"kl/kltest"
	"kl/tfstate"
)

const sample = `{
  "version": 4,
  "terraform_version": "1.11.4",
  "serial": 7,
  "lineage": "9c7a5f2e-0000-4000-8000-000000000001",
  "outputs": {
    "plain": {"value": "x", "type": "string"},
    "es\u0063aped": {"value": [1, 2], "type": ["tuple", ["number", "number"]], "sensitive": true}
  },
  "resources": [
    {
      "mode": "managed", "type": "aws_vpc", "name": "main", "provider": "p",
      "instances": [{"schema_version": 1, "attributes": {"id": "vpc-1"}, "dependencies": []}]
    },
    {
      "module": "module.net[\"a.b\"].module.sub[0]",
      "mode": "data", "type": "aws_ami", "name": "base", "provider": "p",
      "instances": [
        {"index_key": 0, "attributes": {}},
        {"index_key": "a\"$%{b}${c}\u00e9\u0001\ud83d\ude00", "attributes": {}},
        {"deposed": "01234567", "index_key": "x", "attributes": {}}
      ]
    },
    {"mode": "managed", "type": "t", "name": "none", "provider": "p", "instances": []},
    {"mode": "managed", "type": "t", "name": "nil", "instances": null},
    {"mode": "managed", "type": "t", "name": "absent"}
  ],
  "check_results": [
    {"object_kind": "var", "config_addr": "var.a", "status": "pass", "objects": null}
  ]
}
`

// scanAll returns copies of all tokens, and the error that ended the scan unless it is io.EOF.
func scanAll(s *tfstate.Scanner) ([]tfstate.Token, error) {
	var all []tfstate.Token
	for {
		t, err := s.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, *t)
	}
}

func describe(t *tfstate.Token) string {
	switch t.Kind {
	case tfstate.CutOutput:
		return "output " + t.Name
	case tfstate.CutResource:
		return "resource " + t.Resource.Address()
	case tfstate.CutInstance:
		return "instance " + t.Inst.Address()
	}
	return "check"
}

func TestScan(t *testing.T) {
	s := tfstate.NewScanner([]byte(sample), tfstate.Options{})
	tokens, err := scanAll(s)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range tokens {
		got = append(got, describe(&tokens[i]))
	}
	want := []string{
		"output plain",
		"output escaped",
		"resource aws_vpc.main",
		"instance aws_vpc.main",
		`resource module.net["a.b"].module.sub[0].data.aws_ami.base`,
		`instance module.net["a.b"].module.sub[0].data.aws_ami.base[0]`,
		`instance module.net["a.b"].module.sub[0].data.aws_ami.base["a\"$%%{b}$${c}é\u0001😀"]`,
		`instance module.net["a.b"].module.sub[0].data.aws_ami.base["x"] (deposed object 01234567)`,
		"resource t.none",
		"resource t.nil",
		"resource t.absent",
		"check",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
	h := s.Head()
	if h.Version != 4 || h.Serial != 7 || h.Lineage != "9c7a5f2e-0000-4000-8000-000000000001" || h.TerraformVersion != "1.11.4" {
		t.Errorf("head = %+v", h)
	}
	if got := sample[h.SerialStart:h.SerialEnd]; got != "7" {
		t.Errorf("serial's span holds %q", got)
	}
	if !s.Done() || s.Offset() != len(sample) {
		t.Errorf("Done = %v, Offset = %d of %d", s.Done(), s.Offset(), len(sample))
	}
}

// TestScanAllocatesOnlyStrings holds a scan to one string for each name and key that differs from the one before.
func TestScanAllocatesOnlyStrings(t *testing.T) {
	state := kltest.NewState(1000, 1)
	doc := state.Bytes()
	tokens, err := scanAll(tfstate.NewScanner(doc, tfstate.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	s := tfstate.NewScanner(nil, tfstate.Options{})
	got := testing.AllocsPerRun(5, func() {
		s.Reset(doc, 0, tfstate.Context{})
		for {
			if _, err := s.Next(); err != nil {
				break
			}
		}
	})
	if int(got) > len(tokens) {
		t.Errorf("%.0f allocations for %d elements", got, len(tokens))
	}
}
