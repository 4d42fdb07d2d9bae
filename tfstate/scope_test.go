package tfstate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kl/tfstate"
)

func scope(t rapid.TB, a string) tfstate.Scope {
	t.Helper()
	s, err := tfstate.ParseScope(a)
	if err != nil {
		t.Fatalf("ParseScope(%q): %v", a, err)
	}
	return s
}

func TestParseScope(t *testing.T) {
	for in, want := range map[string]string{
		"aws_x.y":                               "",
		"aws_x.y[0]":                            "",
		`aws_x.y["0"]`:                          "",
		`aws_x.y["a.b[\"c\"]"]`:                 "",
		"data.aws_x.y":                          "",
		"module.a":                              "",
		`module.a["k"].module.b[1].aws_x.y`:     "",
		`module.a["${x} \n é"].data.aws_x.y[2]`: `module.a["$${x} \n é"].data.aws_x.y[2]`,
		"aws_x.y (deposed object 0a1b2c3d)":     "aws_x.y",
		"aws_x.y[1] (deposed object 0a1b2c3d)":  "aws_x.y[1]",
	} {
		if got := scope(t, in).String(); got != cmpOr(want, in) {
			t.Errorf("ParseScope(%q) prints %q", in, got)
		}
	}
	for _, bad := range []string{
		"", "aws_x", "module", "module.", "module.a.", "module.a.aws_x", "aws_x.y.z", "data.aws_x", "aws_x.y[", "aws_x.y[]", "aws_x.y[01]", "aws_x.y[a]",
		`aws_x.y["a]`, `aws_x.y["a"`, `aws_x.y["\q"]`, `aws_x.y["\u00"]`, "aws_x.y[0][1]", " aws_x.y", "aws_x.y ", "aws_x.y)", "module.a[0]aws_x.y", ".aws_x.y",
	} {
		if s, err := tfstate.ParseScope(bad); err == nil {
			t.Errorf("ParseScope(%q) gives %q", bad, s)
		}
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func TestScopeRelations(t *testing.T) {
	for _, c := range []struct {
		a, b              string
		covers, back, lap bool
	}{
		{"aws_x.y", "aws_x.y", true, true, true},
		{"aws_x.y", `aws_x.y["k"]`, true, false, true},
		{"aws_x.y[0]", `aws_x.y["0"]`, false, false, false},
		{"aws_x.y", "aws_x.yy", false, false, false},
		{"aws_x.y", "data.aws_x.y", false, false, false},
		{"module.a", `module.a["k"].aws_x.y[0]`, true, false, true},
		{`module.a["k"]`, `module.a["j"].aws_x.y`, false, false, false},
		{"module.a", "module.ab.aws_x.y", false, false, false},
		{"module.a.aws_x.y", `module.a["k"].aws_x.y[0]`, true, false, true},
		{"module.a[0].aws_x.y", "module.a.aws_x.y[1]", false, false, true},
		{"module.a.module.b", "module.a", false, true, true},
		{"module.a", "aws_x.y", false, false, false},
	} {
		a, b := scope(t, c.a), scope(t, c.b)
		if got := [3]bool{a.Covers(b), b.Covers(a), a.Overlaps(b)}; got != [3]bool{c.covers, c.back, c.lap} || a.Overlaps(b) != b.Overlaps(a) {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

func drawScope(t *rapid.T) string {
	key := func() string {
		return rapid.SampledFrom([]string{"", "", "[0]", "[1]", `["0"]`, `["k"]`}).Draw(t, "key")
	}
	var b strings.Builder
	n := rapid.IntRange(0, 2).Draw(t, "modules")
	for i := range n {
		fmt.Fprintf(&b, "module.%s%s.", rapid.SampledFrom([]string{"a", "b"}).Draw(t, fmt.Sprint("module", i)), key())
	}
	if n > 0 && rapid.IntRange(0, 2).Draw(t, "whole") == 0 {
		return strings.TrimSuffix(b.String(), ".")
	}
	b.WriteString(rapid.SampledFrom([]string{"t.x", "t.y", "data.t.x"}).Draw(t, "resource") + key())
	return b.String()
}

// TestScopes compares the search with asking each scope.
func TestScopes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.Custom(drawScope), 0, 12).Draw(t, "set")
		set, err := tfstate.ParseScopes(texts)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(texts)
		slices.Sort(want)
		if got := set.Addresses(); !slices.Equal(got, slices.Compact(want)) {
			t.Fatalf("addresses %q of %q", got, texts)
		}
		o := scope(t, drawScope(t))
		covered, overlaps := false, false
		for _, a := range texts {
			s := scope(t, a)
			covered = covered || s.Covers(o)
			overlaps = overlaps || s.Overlaps(o)
			if s.Covers(o) && !s.Overlaps(o) {
				t.Fatalf("%s covers %s and does not overlap", s, o)
			}
		}
		if set.Cover(o) != covered || set.Overlap(o) != overlaps {
			t.Fatalf("%q and %s: covers %v, overlaps %v; want %v, %v", texts, o, set.Cover(o), set.Overlap(o), covered, overlaps)
		}
	})
}

func FuzzParseScope(f *testing.F) {
	f.Add(`module.a["k\n$${"].data.aws_x.y[12] (deposed object 0a1b2c3d)`)
	f.Add("aws_x.y")
	f.Fuzz(func(t *testing.T, in string) {
		s, err := tfstate.ParseScope(in)
		if err != nil {
			return
		}
		again, err := tfstate.ParseScope(s.String())
		if err != nil || again.String() != s.String() || !s.Covers(again) || !again.Covers(s) {
			t.Fatalf("%q prints %q, which is read as %q (%v)", in, s, again, err)
		}
	})
}
