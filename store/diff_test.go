package store_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

func (f *fixture) diff(name string, q store.DiffQuery) wire.Diff {
	f.tb.Helper()
	d, err := f.s.Diff(context.Background(), f.actor, f.ref(name), q)
	if err != nil {
		f.tb.Fatalf("%+v: %v", q, err)
	}
	return d
}

// What a diff says, done to the one version, makes the other, in random
// histories and however states are cut.
func TestDiffApplied(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := newFixture(t, store.Options{ChunkTarget: []int{0, 200, 1000}[seed%3]})
			p := newPast(seed)
			for range 14 {
				p.write(f, "s")
			}
			for range 30 {
				a, b := p.rng.IntN(len(p.versions)), p.rng.IntN(len(p.versions))
				d := f.diff("s", store.DiffQuery{From: fmt.Sprint(a + 1), To: fmt.Sprint(b + 1), Reveal: true})
				if d.Truncated || d.From != uint64(a+1) || d.To != uint64(b+1) {
					t.Fatalf("%+v", d)
				}
				got, want := p.versions[a].forms(t), p.versions[b].forms(t)
				apply(t, d, got, want)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("from %d to %d: applied it gives\n%v\nwant\n%v\nby\n%+v", a+1, b+1, got, want, d)
				}
				outs := maps.Clone(p.versions[a].outs)
				for _, v := range d.Outputs {
					outs[v.Path] = strings.Trim(string(v.After), `"`)
				}
				for k := range outs {
					if _, there := p.versions[b].outs[k]; !there {
						delete(outs, k)
					}
				}
				if !maps.Equal(outs, p.versions[b].outs) {
					t.Fatalf("from %d to %d: outputs %v, want %v, by %+v", a+1, b+1, outs, p.versions[b].outs, d.Outputs)
				}
				moves(t, p, a, b, d)
			}
		})
	}
}

// moves verifies that exactly the objects which are at another address are told
// to have moved.
func moves(t *testing.T, p *past, a, b int, d wire.Diff) {
	t.Helper()
	at := map[string]string{}
	for address, i := range p.versions[a].inst {
		at[i.id] = address
	}
	want := map[string]string{}
	for address, i := range p.versions[b].inst {
		from, there := at[i.id]
		_, taken := p.versions[b].inst[from]
		_, was := p.versions[a].inst[address]
		if there && from != address && !taken && !was {
			want[address] = from
		}
	}
	got := map[string]string{}
	for _, i := range d.Moved {
		got[i.Address] = i.From
	}
	if !maps.Equal(got, want) {
		t.Fatalf("from %d to %d moved are %v, want %v", a+1, b+1, got, want)
	}
}

func TestDiffMasksSecrets(t *testing.T) {
	f := newFixture(t, store.Options{})
	p := newPast(1)
	p.write(f, "s")
	sensitive, diffs := 0, 0
	for range 12 {
		p.write(f, "s")
		masked := f.diff("s", store.DiffQuery{From: "@1", To: "head"})
		plain := f.diff("s", store.DiffQuery{From: "@1", To: "head", Reveal: true})
		diffs++
		if text := fmt.Sprintf("%s %+v", values(masked), masked); strings.Contains(text, "hush") {
			t.Fatalf("a secret in %s", text)
		}
		for i, item := range masked.Changed {
			for k, v := range item.Attributes {
				if v.Path != "secret" {
					continue
				}
				sensitive++
				if r := plain.Changed[i].Attributes[k]; !v.Sensitive || !r.Sensitive || !strings.Contains(string(r.Before), "hush") {
					t.Errorf("%s: %+v, revealed %+v", item.Address, v, r)
				}
			}
		}
	}
	if sensitive == 0 {
		t.Error("no secret has changed")
	}
	events, err := f.s.Events(context.Background(), store.EventFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range events.Items {
		if e.Kind == "diff_revealed" {
			told++
		}
	}
	if told != diffs {
		t.Errorf("the audit trail tells of %d diffs that showed secrets, want %d", told, diffs)
	}
}

// values are all values of a diff.
func values(d wire.Diff) (all string) {
	for _, i := range slices.Concat(d.Changed, d.Moved, d.Added, d.Removed) {
		for _, v := range slices.Concat(i.Attributes, i.Members) {
			all += string(v.Before) + string(v.After)
		}
	}
	return all
}

func TestDiffOfOneAddress(t *testing.T) {
	f := newFixture(t, store.Options{})
	st := kltest.NewState(0, 1)
	for _, a := range []string{"aws_instance.a[0]", "aws_instance.a[1]", "aws_instance.ab", `module.m["x"].aws_instance.a`, `module.m["y"].aws_instance.a`, "module.mm.aws_instance.a"} {
		st.Add(a)
	}
	if _, err := f.write("s", "", st.Bytes()); err != nil {
		t.Fatal(err)
	}
	for _, a := range st.Addresses() {
		st.Update(a)
	}
	st.SetSerial(2)
	if _, err := f.write("s", "", st.Bytes()); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string][]string{
		"":                             st.Addresses(),
		"aws_instance.a[0]":            {"aws_instance.a[0]"},
		"aws_instance.a":               {"aws_instance.a[0]", "aws_instance.a[1]"},
		"aws_instance.ab":              {"aws_instance.ab"},
		`module.m["x"]`:                {`module.m["x"].aws_instance.a`},
		"module.m":                     {`module.m["x"].aws_instance.a`, `module.m["y"].aws_instance.a`},
		"module.mm":                    {"module.mm.aws_instance.a"},
		`module.m["y"].aws_instance.a`: {`module.m["y"].aws_instance.a`},
		"aws_instance.c":               nil,
	} {
		d := f.diff("s", store.DiffQuery{From: "@1", To: "head", Address: address})
		var got []string
		for _, i := range d.Changed {
			got = append(got, i.Address)
		}
		slices.Sort(want)
		if !slices.Equal(got, want) || d.Counts.Changed != len(want) {
			t.Errorf("%s: changed are %q, want %q", address, got, want)
		}
	}
	for _, q := range []store.DiffQuery{{From: "1", To: "2", Address: "nonsense"}, {From: "1", To: "2", Address: "a b.c"}, {From: "x y", To: "2"}, {From: "1", To: "@x"}} {
		if _, err := f.s.Diff(context.Background(), f.actor, f.ref("s"), q); !fault.Is(err, fault.ParameterInvalid) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	for _, q := range []store.DiffQuery{{From: "1", To: "3"}, {From: "@9", To: "head"}, {From: "none", To: "head"}} {
		if _, err := f.s.Diff(context.Background(), f.actor, f.ref("s"), q); !fault.Is(err, fault.NotFound) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// Between versions that can be looked into lies one that cannot.
func TestDiffAcrossAnOpaqueVersion(t *testing.T) {
	f := newFixture(t, store.Options{ChunkTarget: 500})
	st := kltest.NewState(20, 1)
	write := func(b []byte) {
		t.Helper()
		if _, err := f.write("s", "", b); err != nil {
			t.Fatal(err)
		}
	}
	write(st.Bytes())
	write(fmt.Appendf(nil, `{"serial":2,"lineage":%q,"meta":{},"encrypted_data":"eA==","encryption_version":"v0"}`, st.Lineage()))
	st.SetSerial(2)
	touched := st.Mutate(1)
	write(st.Bytes())
	d := f.diff("s", store.DiffQuery{From: "1", To: "3"})
	if d.Counts != (wire.DiffCounts{Changed: 1, Outputs: d.Counts.Outputs}) || d.Changed[0].Address != touched[0] || len(d.Changed[0].Attributes) == 0 {
		t.Errorf("%+v, want a change of %q", d, touched)
	}
	for _, q := range []store.DiffQuery{{From: "1", To: "2"}, {From: "2", To: "3"}} {
		if _, err := f.s.Diff(context.Background(), f.actor, f.ref("s"), q); !fault.Is(err, fault.StateOpaque) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestDiffIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a large state")
	}
	f := newFixture(t, store.Options{})
	p := newPast(1)
	for i := range 1500 {
		p.inst[fmt.Sprintf("thing.r%d", i)] = thing{id: fmt.Sprint(i), v: 1}
	}
	p.serial = 1
	for range 2 {
		body := p.render(p.serial)
		if _, err := f.write("s", "", body); err != nil {
			t.Fatal(err)
		}
		p.serial++
		for a, i := range p.inst {
			i.v = 2
			p.inst[a] = i
		}
	}
	d := f.diff("s", store.DiffQuery{From: "1", To: "2"})
	if d.Counts.Changed != 1500 || len(d.Changed) != 1000 || !d.Truncated {
		t.Errorf("%d counted, %d listed, truncated %v", d.Counts.Changed, len(d.Changed), d.Truncated)
	}
	if d := f.diff("s", store.DiffQuery{From: "1", To: "2", Address: "thing.r77"}); len(d.Changed) != 1 || d.Truncated {
		t.Errorf("of one address %+v", d)
	}
}
