package merge_test

import (
	"errors"
	"strings"
	"testing"

	"kl/merge"
	"kl/tfstate"
)

func TestRefused(t *testing.T) {
	good := doc("5", resources(resource("a", instance("0", "1"), instance("1", "1"))))
	for name, c := range map[string]struct{ head, ours, want string }{
		"ours is cut off":      {good, good[:len(good)-3], "the new state cannot be read"},
		"ours ends too early":  {good, good[:strings.Index(good, `,{"index_key":1`)+1], "does not end where an element begins"},
		"head is no state":     {`{"version":3}`, good, "the head cannot be read"},
		"head has no serial":   {`{"version":4}`, good, "the head's serial was not found"},
		"ours names late":      {good, doc("6", resources(`{"instances":[],"mode":"managed","type":"t","name":"a"}`)), tfstate.ErrReordered.Error()},
		"head names late":      {doc("6", resources(`{"mode":"managed","type":"t","name":"a","instances":[],"module":"m"}`)), good, tfstate.ErrReordered.Error()},
		"ours is ambiguous":    {good, doc("6", resources(), resources()), tfstate.ErrAmbiguous.Error()},
		"a resource twice":     {good, doc("6", resources(resource("a"), resource("a"))), "the new state has two objects for t.a"},
		"an instance twice":    {good, doc("6", resources(resource("a", instance("0", "1"), instance("0", "2")))), "the new state has t.a[0] twice"},
		"an output twice":      {doc("6", outputs(output("x", "1"), output("x", "1"))), doc("6", outputs()), "the head has x twice"},
		"a new instance twice": {doc("5", resources()), doc("6", resources(resource("a", instance("0", "1"), instance("0", "2")))), "t.a[0] twice"},
		"one of many twice": {
			good, doc("6", outputs(output("1", "1"), output("2", "1"), output("3", "1"), output("4", "1"), output("5", "1"), output("6", "1"), output("7", "1"), output("8", "1"), output("9", "1"), output("1", "1"))),
			"the new state has 1 twice",
		},
		"provider behind the instances": {
			doc("5", resources(`{"mode":"managed","type":"t","name":"a","instances":[`+instance("", "1")+`],"provider":"p"}`)),
			doc("6", resources(resource("a", instance("", "2")))), `"provider" before its instances, the head behind them`,
		},
		"provider of ours behind the instances": {
			doc("5", resources(resource("a", instance("", "1")))),
			doc("6", resources(`{"mode":"managed","type":"t","name":"a","instances":[`+instance("", "2")+`],"prov\u0069der":"p"}`)), `"provider" before its instances, the new state behind them`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			head, ours := []byte(c.head), []byte(c.ours)
			got, err := merge.Build(head, ours, whole(head, ours), func(merge.Element) bool { return true }, merge.Options{Serial: 9})
			if !errors.Is(err, merge.ErrCannot) || !strings.Contains(err.Error(), c.want) || got != nil {
				t.Errorf("got %s, %v; want it to say %q", got, err, c.want)
			}
		})
	}
}

// TestBadStretches gives stretches that do not keep what Stretch asks for.
func TestBadStretches(t *testing.T) {
	head := []byte(doc("5", outputs(output("x", "1")), resources(resource("a", instance("0", "1"), instance("1", "1"), instance("2", "1")))))
	hc := cuts(head)
	one, two := hc[len(hc)-2], hc[len(hc)-1] // the second and third instance
	n := len(head)
	for name, st := range map[string][]merge.Stretch{
		"backwards":                    {{HeadStart: two.start, HeadEnd: one.start, OursStart: two.start, OursEnd: one.start, Ctx: two.ctx}},
		"beyond the end":               {{HeadEnd: n + 1, OursEnd: n}},
		"overlap":                      {{HeadEnd: two.start, OursEnd: two.start}, {one.start, n, one.start, n, one.ctx}},
		"unequal before":               {{one.start, n, two.start, n, one.ctx}},
		"unequal behind":               {{HeadEnd: one.start, OursEnd: two.start}},
		"only one reaches the end":     {{HeadEnd: n, OursEnd: two.start}},
		"ends within an element":       {{HeadEnd: one.start + 3, OursEnd: one.start + 3}},
		"starts within an element":     {{one.start + 3, n, one.start + 3, n, one.ctx}},
		"starts anew":                  {{one.start, n, one.start, n, tfstate.Context{}}},
		"starts at the very start":     {{0, n, 0, n, one.ctx}},
		"first where there is a comma": {{one.start, n, one.start, n, tfstate.Context{Kind: tfstate.CutInstance, First: true, Top: one.ctx.Top, Res: one.ctx.Res, Resource: one.ctx.Resource}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := merge.Build(head, head, st, func(merge.Element) bool { return true }, merge.Options{Serial: 9})
			if !errors.Is(err, merge.ErrCannot) || got != nil {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
	ends := []merge.Stretch{{HeadEnd: one.start, OursEnd: one.start}}
	if _, err := merge.Build(head, head, ends, nil, merge.Options{Serial: 9}); err != nil {
		t.Errorf("equal documents: %v", err)
	}
	other := []byte(strings.Replace(string(head), `"name":"a"`, `"name":"b"`, 1))
	if _, err := merge.Build(head, other, ends, func(merge.Element) bool { return false }, merge.Options{Serial: 9}); !errors.Is(err, merge.ErrCannot) {
		t.Errorf("a stretch that ends in two resources: %v", err)
	}
}

// TestMembersOutsideOfStretches looks for the serial and the version where no stretch has them: the only one is empty,
// before the second of two instances.
func TestMembersOutsideOfStretches(t *testing.T) {
	rs := resources(resource("a", instance("0", "1"), instance("1", "1")))
	for name, c := range map[string]struct {
		head    string
		version string
		want    string // of the error; nothing for none
	}{
		"as Terraform writes":     {doc("5", outputs(output("x", "1")), rs), "2", ""},
		"behind the outputs":      {`{"version":4,"outputs":{"x":{}},"terraform_version":"1","serial":5,` + rs + `}`, "2", ""},
		"behind all":              {`{"version":4,` + rs + `,"terraform_version":"1","serial":5}`, "2", ""},
		"no version":              {`{"version":4,"serial":5,` + rs + `}`, "2", "terraform_version was not found"},
		"no version, none wanted": {`{"version":4,"serial":5,` + rs + `}`, "", ""},
		"far behind":              {`{"version":4,` + rs + `,"x":"` + strings.Repeat("x", 1<<20) + `","serial":5}`, "", "serial was not found"},
		"cut off by the limit":    {`{"version":4,` + rs + `,"x":"` + strings.Repeat("x", 1<<20-300) + `","serial":` + strings.Repeat(" ", 400) + `5}`, "", "serial was not found"},
	} {
		t.Run(name, func(t *testing.T) {
			head := []byte(c.head)
			var st []merge.Stretch
			for _, at := range cuts(head) {
				if strings.HasPrefix(c.head[at.start:], `{"index_key":1,`) {
					st = []merge.Stretch{{at.start, at.start, at.start, at.start, at.ctx}}
				}
			}
			got, err := merge.Build(head, head, st, nil, merge.Options{Serial: 9, TerraformVersion: c.version})
			if c.want != "" {
				if !errors.Is(err, merge.ErrCannot) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want it to say %q", err, c.want)
				}
				return
			}
			if err != nil || len(st) == 0 {
				t.Fatal(err, st)
			}
			info, err := tfstate.Sniff(got)
			if err != nil || info.Serial != 9 || c.version != "" && info.TerraformVersion != c.version {
				t.Errorf("got serial %d, version %q, %v", info.Serial, info.TerraformVersion, err)
			}
		})
	}
}
