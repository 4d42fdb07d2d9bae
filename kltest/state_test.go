package kltest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/kltest"
	"kl/tfstate"
)

func addressesOf(t *testing.T, doc []byte) (all []string, head tfstate.Head) {
	t.Helper()
	s := tfstate.NewScanner(doc, tfstate.Options{})
	for {
		tok, err := s.Next()
		if errors.Is(err, io.EOF) {
			return all, s.Head()
		}
		if err != nil {
			t.Fatal(err)
		}
		if tok.Kind == tfstate.CutInstance {
			all = append(all, tok.Inst.Address())
		}
	}
}

func TestStateIsWhatItSays(t *testing.T) {
	for _, n := range []int{0, 1, 10, 1000} {
		s := kltest.NewState(n, 1)
		doc := s.Bytes()
		got, head := addressesOf(t, doc)
		if s.Len() != n || len(got) != n {
			t.Errorf("%d instances: Len = %d, scan finds %d", n, s.Len(), len(got))
		}
		if diff := cmp.Diff(s.Addresses(), got); diff != "" && n > 0 {
			t.Errorf("%d instances: addresses (-want +got):\n%s", n, diff)
		}
		unique := slices.Clone(got)
		slices.Sort(unique)
		if len(slices.Compact(unique)) != n {
			t.Errorf("%d instances: an address occurs twice", n)
		}
		if head.Serial != s.Serial() || head.Lineage != s.Lineage() {
			t.Errorf("%d instances: head = %+v", n, head)
		}
		if n == 1000 {
			if per := len(doc) / n; per < 1500 || per > 2500 {
				t.Errorf("an instance takes %d bytes", per)
			}
		}
	}
}

func TestStateLayout(t *testing.T) {
	s := kltest.NewState(100, 2)
	var want bytes.Buffer
	if err := json.Indent(&want, s.Compact(), "", "  "); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(s.Bytes())); diff != "" {
		t.Errorf("not laid out as encoding/json does it (-want +got):\n%s", diff)
	}
}

func TestStateIsDeterministic(t *testing.T) {
	play := func(seed uint64) []byte {
		s := kltest.NewState(200, seed)
		s.Mutate(10)
		s.Delete(5)
		s.Clone().Mutate(3)
		s.Mutate(2)
		return s.Bytes()
	}
	if !bytes.Equal(play(3), play(3)) {
		t.Error("the same seed gave other bytes")
	}
	if bytes.Equal(play(3), play(4)) {
		t.Error("another seed gave the same bytes")
	}
}

func TestStateChanges(t *testing.T) {
	s := kltest.NewState(50, 5)
	before := s.Addresses()
	if touched := s.Mutate(10); len(touched) != 10 {
		t.Errorf("Mutate touched %v", touched)
	}
	if s.Len() != 53 || s.Serial() != 2 {
		t.Errorf("after Mutate: %d instances, serial %d", s.Len(), s.Serial())
	}
	if gone := s.Delete(4); len(gone) != 4 || s.Len() != 49 || s.Serial() != 3 {
		t.Errorf("after Delete: %v, %d instances, serial %d", gone, s.Len(), s.Serial())
	}
	for _, a := range []string{
		"aws_instance.web", `module.a["x.y"].module.b[0].aws_instance.web["k\"]"]`, "module.m.data.aws_ami.base[3]", "data.x.y",
	} {
		s.Add(a)
		if got, _ := addressesOf(t, s.Bytes()); !slices.Contains(got, a) {
			t.Errorf("Add(%s) gave %v", a, got)
		}
		old := s.Bytes()
		s.Update(a)
		if bytes.Equal(old, s.Bytes()) {
			t.Errorf("Update(%s) changed nothing", a)
		}
		c := s.Clone()
		c.Remove(a)
		if got := c.Addresses(); slices.Contains(got, a) || !slices.Contains(s.Addresses(), a) {
			t.Errorf("Remove(%s) left %v", a, got)
		}
	}
	if len(before) != 50 {
		t.Errorf("the addresses told before changed: %d", len(before))
	}
}
