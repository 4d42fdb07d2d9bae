package merge_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/merge"
)

// doc is a compact state; members come behind serial and lineage.
func doc(serial string, members ...string) string {
	return `{"version":4,"terraform_version":"1.9.0","serial":` + serial + `,"lineage":"l",` + strings.Join(members, ",") + `}`
}

func resources(rs ...string) string { return `"resources":[` + strings.Join(rs, ",") + `]` }

// resource is t.NAME of provider p.
func resource(name string, instances ...string) string { return resourceOf("p", name, instances...) }

func resourceOf(provider, name string, instances ...string) string {
	return `{"mode":"managed","type":"t","name":"` + name + `","provider":"` + provider + `","instances":[` + strings.Join(instances, ",") + `]}`
}

// instance has a key as JSON, none when it is empty.
func instance(key, value string) string {
	if key != "" {
		key = `"index_key":` + key + `,`
	}
	return `{` + key + `"schema_version":0,"attributes":{"v":` + value + `,"e":[]}}`
}

func deposed(key, value string) string {
	return `{"deposed":"` + key + `","schema_version":0,"attributes":{"v":` + value + `}}`
}

func outputs(os ...string) string { return `"outputs":{` + strings.Join(os, ",") + `}` }

func output(name, value string) string {
	return `"` + name + `":{"value":` + value + `,"type":"string"}`
}

func checks(cs ...string) string { return `"check_results":[` + strings.Join(cs, ",") + `]` }

func check(name, status string) string {
	return `{"object_kind":"var","config_addr":"var.` + name + `","status":"` + status + `","objects":null}`
}

// cases are merges of compact documents. What take names (class letter and address) becomes as ours has it. The serial
// becomes 9.
var cases = map[string]struct {
	head, ours string
	take       string
	want       string
}{
	"nothing": {
		doc("5", resources(resource("a", instance("", "1")))), doc("6", resources(resource("a", instance("", "2")))), "",
		doc("9", resources(resource("a", instance("", "1")))),
	},
	"replace": {
		doc("5", resources(resource("a", instance("0", "1"), instance("1", "1"), instance("2", "1")))),
		doc("6", resources(resource("a", instance("0", "2"), instance("1", "2"), instance("2", "2")))), "i t.a[1]",
		doc("9", resources(resource("a", instance("0", "1"), instance("1", "2"), instance("2", "1")))),
	},
	"numbers and escapes stay as they are written": {
		doc("5", resources(resource("a", instance("0", "1.0"), instance("1", `"a\/\u00e9<"`)))),
		doc("6", resources(resource("a", instance("0", "9007199254740993.10E+2"), instance("1", `"b\/\u00E9\u003c"`)))), "i t.a[0], i t.a[1]",
		doc("9", resources(resource("a", instance("0", "9007199254740993.10E+2"), instance("1", `"b\/\u00E9\u003c"`)))),
	},
	"insert in order of keys": {
		doc("5", resources(resource("a", instance("2", "1"), instance(`"b"`, "1")))),
		doc("6", resources(resource("a", instance("", "2"), deposed("d", "2"), instance("-1", "2"), instance("10", "2"), instance(`"a"`, "2"), instance(`"c"`, "2")))),
		`i t.a, i t.a (deposed object d), i t.a[-1], i t.a[10], i t.a["a"], i t.a["c"]`,
		doc("9", resources(resource("a", instance("", "2"), deposed("d", "2"), instance("-1", "2"), instance("2", "1"), instance("10", "2"), instance(`"a"`, "2"), instance(`"b"`, "1"), instance(`"c"`, "2")))),
	},
	"insert into empty instances": {
		doc("5", resources(resource("a"))), doc("6", resources(resource("a", instance("0", "2"), instance("1", "2")))), "i t.a[0], i t.a[1]",
		doc("9", resources(resource("a", instance("0", "2"), instance("1", "2")))),
	},
	"insert into null instances": {
		doc("5", resources(strings.Replace(resource("a"), "[]", "null", 1), resource("b", instance("", "1")))),
		doc("6", resources(resource("a", instance("0", "2"), instance("1", "2")), resource("b", instance("", "1")))), "i t.a[1]",
		doc("9", resources(resource("a", instance("1", "2")), resource("b", instance("", "1")))),
	},
	"insert where there are no instances": {
		doc("5", resources(strings.Replace(resource("a"), `,"instances":[]`, "", 1))), doc("6", resources(resource("a", instance("0", "2")))), "i t.a[0]",
		doc("9", resources(resource("a", instance("0", "2")))),
	},
	"delete the first": {
		doc("5", resources(resource("a", instance("0", "1"), instance("1", "1"), instance("2", "1")))),
		doc("6", resources(resource("a", instance("1", "1"), instance("2", "1")))), "i t.a[0]",
		doc("9", resources(resource("a", instance("1", "1"), instance("2", "1")))),
	},
	"delete the middle": {
		doc("5", resources(resource("a", instance("0", "1"), instance("1", "1"), instance("2", "1")))),
		doc("6", resources(resource("a", instance("0", "1"), instance("2", "1")))), "i t.a[1]",
		doc("9", resources(resource("a", instance("0", "1"), instance("2", "1")))),
	},
	"delete the last": {
		doc("5", resources(resource("a", instance("0", "1"), instance("1", "1"), instance("2", "1")))),
		doc("6", resources(resource("a", instance("0", "1"), instance("1", "1")))), "i t.a[2]",
		doc("9", resources(resource("a", instance("0", "1"), instance("1", "1")))),
	},
	"delete runs": {
		doc("5", resources(resource("a", instance("0", "1"), instance("1", "1"), instance("2", "1"), instance("3", "1"), instance("4", "1"), instance("5", "1")))),
		doc("6", resources(resource("a", instance("2", "1")))), "i t.a[0], i t.a[1], i t.a[3], i t.a[4]",
		doc("9", resources(resource("a", instance("2", "1"), instance("5", "1")))),
	},
	"delete and insert at one place": {
		doc("5", resources(resource("a", instance("1", "1"), instance("3", "1")))),
		doc("6", resources(resource("a", instance("0", "2"), instance("2", "2"), instance("4", "2")))), "i t.a[0], i t.a[1], i t.a[2], i t.a[3], i t.a[4]",
		doc("9", resources(resource("a", instance("0", "2"), instance("2", "2"), instance("4", "2")))),
	},
	"drop the first resource": {
		doc("5", resources(resource("a", instance("0", "1"), instance("1", "1")), resource("b", instance("", "1")))),
		doc("6", resources(resource("b", instance("", "1")))), "i t.a[0], i t.a[1]",
		doc("9", resources(resource("b", instance("", "1")))),
	},
	"drop the middle and the last resource": {
		doc("5", resources(resource("a", instance("", "1")), resource("b", instance("", "1")), resource("c", instance("", "1")), resource("d", instance("", "1")))),
		doc("6", resources(resource("a", instance("", "1")), resource("c", instance("", "1")))), "i t.b, i t.d",
		doc("9", resources(resource("a", instance("", "1")), resource("c", instance("", "1")))),
	},
	"drop the only resource": {
		doc("5", resources(resource("a", instance("", "1")))), doc("6", resources()), "i t.a",
		doc("9", resources()),
	},
	"drop a resource that ours keeps without instances": {
		doc("5", resources(resource("a", instance("", "1")))), doc("6", resources(resource("a"))), "i t.a",
		doc("9", resources()),
	},
	"a resource without instances stays": {
		doc("5", resources(resource("a"), resource("b", instance("", "1")))), doc("6", resources()), "i t.b",
		doc("9", resources(resource("a"))),
	},
	"a resource that only ours has without instances is not brought in": {
		doc("5", resources()), doc("6", resources(resource("a"))), "i t.a",
		doc("9", resources()),
	},
	"keep one of a resource that ours does not have": {
		doc("5", resources(resource("a", instance("0", "1"), instance("1", "1")))), doc("6", resources()), "i t.a[0]",
		doc("9", resources(resource("a", instance("1", "1")))),
	},
	"new resources": {
		doc("5", resources(resource("b", instance("", "1")), resource("e", instance("", "1")))),
		doc("6", resources(resource("a", instance("", "2")), resource("c", instance("0", "2"), instance("1", "2"), instance("2", "2")), resource("d", instance("", "2")), resource("f", instance("", "2")))),
		"i t.a, i t.c[0], i t.c[2], i t.f",
		doc("9", resources(resource("a", instance("", "2")), resource("b", instance("", "1")), resource("c", instance("0", "2"), instance("2", "2")), resource("e", instance("", "1")), resource("f", instance("", "2")))),
	},
	"into empty resources": {
		doc("5", resources()), doc("6", resources(resource("a", instance("", "2")), resource("b", instance("", "2")))), "i t.a, i t.b",
		doc("9", resources(resource("a", instance("", "2")), resource("b", instance("", "2")))),
	},
	"into null resources": {
		doc("5", `"resources":null`, checks()), doc("6", resources(resource("a", instance("", "2")), resource("b", instance("", "2"))), checks()), "i t.b",
		doc("9", resources(resource("b", instance("", "2"))), checks()),
	},
	"into a state without resources": {
		doc("5", outputs()), doc("6", outputs(), resources(resource("a", instance("", "2")))), "i t.a",
		doc("9", outputs(), resources(resource("a", instance("", "2")))),
	},
	"one goes and one comes": {
		doc("5", resources(resource("a", instance("", "1")))), doc("6", resources(resource("b", instance("", "2")))), "i t.a, i t.b",
		doc("9", resources(resource("b", instance("", "2")))),
	},
	"provider of ours": {
		doc("5", resources(resourceOf("p", "a", instance("0", "1"), instance("1", "1")))),
		doc("6", resources(resourceOf("q", "a", instance("0", "1"), instance("1", "1")))), "i t.a[0], i t.a[1]",
		doc("9", resources(resourceOf("q", "a", instance("0", "1"), instance("1", "1")))),
	},
	"provider of the head beside an addition of ours": {
		doc("5", resources(resourceOf("q", "a", instance("0", "1")))),
		doc("6", resources(resourceOf("p", "a", instance("0", "1"), instance("1", "2")))), "i t.a[1]",
		doc("9", resources(resourceOf("q", "a", instance("0", "1"), instance("1", "2")))),
	},
	"provider of the head after a deletion by ours": {
		doc("5", resources(resourceOf("q", "a", instance("0", "1"), instance("1", "1")))),
		doc("6", resources(resourceOf("p", "a", instance("0", "1")))), "i t.a[1]",
		doc("9", resources(resourceOf("q", "a", instance("0", "1")))),
	},
	"provider of ours beside an addition of the head": {
		doc("5", resources(resourceOf("p", "a", instance("0", "1"), instance("1", "1")))),
		doc("6", resources(resourceOf("q", "a", instance("0", "1")))), "i t.a[0]",
		doc("9", resources(resourceOf("q", "a", instance("0", "1"), instance("1", "1")))),
	},
	"provider where nothing is common": {
		doc("5", resources(resourceOf("p", "a", instance("0", "1")))),
		doc("6", resources(resourceOf("q", "a", instance("1", "2")))), "i t.a[1]",
		doc("9", resources(resourceOf("q", "a", instance("0", "1"), instance("1", "2")))),
	},
	"members behind the instances stay": {
		doc("5", resources(`{"mode":"managed","type":"t","name":"a","instances":[`+instance("", "1")+`],"later":[1]}`)),
		doc("6", resources(`{"mode":"managed","type":"t","name":"a","provider":"q","instances":[`+instance("", "2")+`],"later":[2]}`)), "i t.a",
		doc("9", resources(`{"mode":"managed","type":"t","name":"a","provider":"q","instances":[`+instance("", "2")+`],"later":[1]}`)),
	},
	"out of order": {
		doc("5", resources(resource("c", instance("2", "1"), instance("0", "1")), resource("a", instance("", "1")))),
		doc("6", resources(resource("c", instance("2", "1"), instance("7", "2"), instance("0", "1")), resource("x", instance("", "2")), resource("a", instance("", "2")))), "i t.c[7], i t.x, i t.a",
		doc("9", resources(resource("c", instance("2", "1"), instance("7", "2"), instance("0", "1")), resource("x", instance("", "2")), resource("a", instance("", "2")))),
	},
	"another order": {
		doc("5", resources(resource("c", instance("0", "1")), resource("a", instance("0", "1")))),
		doc("6", resources(resource("a", instance("0", "2"), instance("1", "2")), resource("c", instance("0", "2"), instance("1", "2")))), "i t.c[0], i t.c[1], i t.a[1]",
		doc("9", resources(resource("c", instance("0", "2"), instance("1", "2")), resource("a", instance("0", "1"), instance("1", "2")))),
	},
	"outputs": {
		doc("5", outputs(output("b", "1"), output("d", "1"), output("e", "1"))),
		doc("6", outputs(output("a", "2"), output("b", "2"), output("c", "2"), output("d", "2"), output("f", "2"))), "o a, o b, o c, o e, o f",
		doc("9", outputs(output("a", "2"), output("b", "2"), output("c", "2"), output("d", "1"), output("f", "2"))),
	},
	"outputs go":          {doc("5", outputs(output("a", "1"), output("b", "1"))), doc("6", outputs()), "o a, o b", doc("9", outputs())},
	"outputs go to null":  {doc("5", outputs(output("a", "1"))), doc("6", `"outputs":null`), "o a", doc("9", outputs())},
	"outputs come":        {doc("5", outputs()), doc("6", outputs(output("a", "2"), output("b", "2"))), "o a, o b", doc("9", outputs(output("a", "2"), output("b", "2")))},
	"outputs out of null": {doc("5", `"outputs":null`), doc("6", outputs(output("a", "2"))), "o a", doc("9", outputs(output("a", "2")))},
	"output with another writing of its name": {
		doc("5", outputs(output(`\u0061`, "1"))), doc("6", outputs(output("a", "2"))), "o a", doc("9", outputs(output("a", "2"))),
	},
	"checks": {
		doc("5", checks(check("b", "pass"), check("a", "pass"))), doc("6", checks(check("c", "fail"), check("b", "fail"), check("d", "fail"))), "c var.a, c var.b, c var.c, c var.d",
		doc("9", checks(check("c", "fail"), check("b", "fail"), check("d", "fail"))),
	},
	"checks go":                  {doc("5", checks(check("a", "pass"))), doc("6", `"check_results":null`), "c var.a", doc("9", `"check_results":null`)},
	"checks go away":             {doc("5", outputs(), checks(check("a", "pass"))), doc("6", outputs()), "c var.a", doc("9", outputs(), `"check_results":null`)},
	"checks go, brackets stay":   {doc("5", checks(check("a", "pass"))), doc("6", checks()), "c var.a", doc("9", checks())},
	"one check stays":            {doc("5", checks(check("a", "pass"), check("b", "pass"))), doc("6", `"check_results":null`), "c var.a", doc("9", checks(check("b", "pass")))},
	"checks come":                {doc("5", `"check_results":null`), doc("6", checks(check("a", "pass"), check("b", "pass"))), "c var.a, c var.b", doc("9", checks(check("a", "pass"), check("b", "pass")))},
	"checks of a newer writer":   {doc("5", resources()), doc("6", resources(), checks(check("a", "pass"))), "c var.a", doc("9", resources(), checks(check("a", "pass")))},
	"checks nobody asked for":    {doc("5", `"check_results":null`), doc("6", checks()), "", doc("9", `"check_results":null`)},
	"outputs and resources come": {doc("5", `"x":[{}]`), doc("6", resources(resource("a", instance("", "2"))), outputs(output("a", "2"))), "i t.a, o a", doc("9", `"x":[{}]`, outputs(output("a", "2")), resources(resource("a", instance("", "2"))))},
	"unknown members stay": {
		doc("5", `"x":{"a":[1.0,"]"]}`, resources(resource("a", instance("", "1"))), `"y":null`), doc("6", `"z":1`, resources(resource("a", instance("", "2")))), "i t.a",
		doc("9", `"x":{"a":[1.0,"]"]}`, resources(resource("a", instance("", "2"))), `"y":null`),
	},
	"serial is null": {
		`{"version":4,"serial":null,"lineage":"l"}`, `{"version":4,"serial":2,"lineage":"l"}`, "", `{"version":4,"serial":9,"lineage":"l"}`,
	},
	"members in another order and writing": {
		`{"resources":[` + resource("a", instance("", "1")) + `],"check_results":null,"lineage":"l","S\u0065rial":5,"version":4}`,
		doc("6", resources(resource("a", instance("", "2"))), checks(check("a", "fail"))), "i t.a, c var.a",
		`{"resources":[` + resource("a", instance("", "2")) + `],"check_results":[` + check("a", "fail") + `],"lineage":"l","S\u0065rial":9,"version":4}`,
	},
}

// picks says whether a list such as "i t.a[0], o x" names the element.
func picks(list string, e merge.Element) bool {
	letter := [...]string{"i ", "o ", "c "}[e.Class]
	return slices.Contains(strings.Split(list, ", "), letter+e.Address)
}

func TestBuild(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			take := func(e merge.Element) bool { return picks(c.take, e) }
			for _, layHead := range [...]string{"compact", "indented", "tabs"} {
				for _, layOurs := range [...]string{"compact", "indented", "loose"} {
					lay := genLayouts[layHead]
					head, ours, want := lay([]byte(c.head)), genLayouts[layOurs]([]byte(c.ours)), lay([]byte(c.want))
					try := func(st []merge.Stretch) {
						t.Helper()
						got, err := merge.Build(head, ours, st, take, merge.Options{Serial: 9})
						if err != nil {
							t.Fatalf("%s head, %s ours, %+v: %v", layHead, layOurs, st, err)
						}
						if layOurs == "loose" && layHead == "compact" {
							got, want = []byte(compact(string(got))), []byte(compact(string(want))) // loose may look compact at its start
						}
						if diff := cmp.Diff(string(want), string(got)); diff != "" {
							t.Fatalf("%s head, %s ours, %+v (-want +got):\n%s", layHead, layOurs, st, diff)
						}
					}
					try(whole(head, ours))
					r := rand.New(rand.NewPCG(3, 3))
					for range 20 {
						try(stretches(head, ours, r))
					}
				}
			}
		})
	}
}

// TestVersion checks what becomes of terraform_version.
func TestVersion(t *testing.T) {
	for name, c := range map[string]struct{ head, version, want string }{
		"replaced": {`{"version":4,"terraform_version":"1.0","serial":1}`, `2<"`, `{"version":4,"terraform_version":"2\u003c\"","serial":9}`},
		"kept":     {`{"version":4,"terraform_version":"1.0","serial":1}`, "", `{"version":4,"terraform_version":"1.0","serial":9}`},
		"null":     {`{"version":4,"terraform_version":null,"serial":1}`, "2", `{"version":4,"terraform_version":"2","serial":9}`},
		"absent":   {`{"version":4,"serial":1}`, "2", `{"version":4,"serial":9,"terraform_version":"2"}`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, lay := range genLayouts {
				head := lay([]byte(c.head))
				got, err := merge.Build(head, head, whole(head, head), nil, merge.Options{Serial: 9, TerraformVersion: c.version})
				if err != nil || compact(string(got)) != c.want {
					t.Errorf("got %s, %v, want %s", got, err, c.want)
				}
			}
		})
	}
}

// TestBorders merges with stretches as small as can be.
func TestBorders(t *testing.T) {
	list := func(values string) string {
		var all []string
		for i, v := range values {
			if v != ' ' {
				all = append(all, instance(string(rune('0'+i)), string(v)))
			}
		}
		return resource("m", all...)
	}
	before, after := resource("a", instance("", "1")), resource("z", instance("", "1"))
	for name, c := range map[string]struct {
		head, ours, take, want string // a digit for each instance, a blank where there is none
		headSize, oursSize     int    // of the stretch, in instances
	}{
		"one replaced in the middle":    {"11111", "11211", "2", "11211", 1, 1},
		"one not replaced":              {"11111", "11211", "", "11111", 1, 1},
		"nothing on the head's side":    {"11 11", "11211", "2", "11211", 0, 1},
		"nothing on ours":               {"11111", "11 11", "2", "11 11", 1, 0},
		"nothing on ours, kept":         {"11111", "11 11", "", "11111", 1, 0},
		"several come":                  {"1   1", "12221", "123", "12221", 0, 3},
		"some of several come":          {"1   1", "12221", "13", "12 21", 0, 3},
		"several go":                    {"11111", "1   1", "123", "1   1", 3, 0},
		"some of several go":            {"11111", "1   1", "12", "1  11", 3, 0},
		"the last but one go":           {"11111", "1   1", "23", "11  1", 3, 0},
		"comings and goings":            {"1 1 1", "12 21", "123", "12 21", 1, 2},
		"comings on both sides":         {"1 1 1", "12 21", "13", "12121", 1, 2},
		"goings with something between": {"11111", "1 2 1", "123", "1 2 1", 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for layout, lay := range genLayouts {
				make := func(serial, values string) []byte {
					return lay([]byte(doc(serial, resources(before, list(values), after))))
				}
				head, ours := make("5", c.head), make("5", c.ours)
				st := tight(t, head, ours)
				if layout == "compact" {
					one := len(instance("0", "1")) + 1
					if h, o := st[0].HeadEnd-st[0].HeadStart, st[0].OursEnd-st[0].OursStart; h != c.headSize*one || o != c.oursSize*one {
						t.Fatalf("the stretch has %d and %d bytes, want %d and %d instances of %d", h, o, c.headSize, c.oursSize, one)
					}
				}
				got, err := merge.Build(head, ours, st, func(e merge.Element) bool {
					n := strings.TrimSuffix(strings.TrimPrefix(e.Address, "t.m["), "]")
					return strings.Contains(c.take, n)
				}, merge.Options{Serial: 9})
				if err != nil {
					t.Fatal(err)
				}
				want := make("9", c.want)
				if layout == "loose" {
					got, want = []byte(compact(string(got))), []byte(compact(string(want)))
				}
				if diff := cmp.Diff(string(want), string(got)); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", layout, diff)
				}
			}
		})
	}
}

// tight returns the one stretch between the parts that are equal at the start and at the end.
func tight(t *testing.T, head, ours []byte) []merge.Stretch {
	t.Helper()
	hc, oc := cuts(head), cuts(ours)
	i := 0
	for i+1 < len(hc) && i+1 < len(oc) && string(head[:hc[i+1].start]) == string(ours[:oc[i+1].start]) && hc[i+1].ctx == oc[i+1].ctx {
		i++
	}
	k := 1
	for k <= len(hc)-i && k <= len(oc)-i && string(head[hc[len(hc)-k].start:]) == string(ours[oc[len(oc)-k].start:]) && hc[len(hc)-k].ctx == oc[len(oc)-k].ctx {
		k++
	}
	if i == 0 || k == 1 {
		t.Fatal("the documents have no equal parts")
	}
	k--
	return []merge.Stretch{{
		HeadStart: hc[i].start, HeadEnd: hc[len(hc)-k].start, OursStart: oc[i].start, OursEnd: oc[len(oc)-k].start, Ctx: hc[i].ctx,
	}}
}
