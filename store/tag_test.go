package store_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/store"
)

// versions writes a state so many times and returns the bytes of each version.
func (f *fixture) versions(name string, n int) [][]byte {
	f.tb.Helper()
	st := kltest.NewState(10, 1)
	var all [][]byte
	for range n {
		all = append(all, st.Bytes())
		if _, err := f.write(name, "", st.Bytes()); err != nil {
			f.tb.Fatal(err)
		}
		st.Mutate(2)
	}
	return all
}

func TestTagsAreReferences(t *testing.T) {
	f := newFixture(t, store.Options{})
	ctx, ref := context.Background(), f.ref("s")
	bodies := f.versions("s", 4)
	set := func(tag, version string, want uint64) {
		t.Helper()
		got, err := f.s.SetTag(ctx, f.actor, ref, tag, version)
		if err != nil || got.Version != want || got.Tag != tag || got.Serial != want {
			t.Fatalf("tag %s at %s: %+v, %v; want version %d", tag, version, got, err, want)
		}
		if want > 0 && !bytes.Equal(f.get("s", tag), bodies[want-1]) {
			t.Fatalf("the tag %s leads to other bytes than version %d", tag, want)
		}
	}
	set("first", "1", 1)
	set("last", "head", 4)
	set("back", "@1", 3)
	set("by-serial", "serial:2", 2)
	set("again", "back", 3)
	set("back", "2", 2) // moves
	set("again", "again", 3)

	listed, err := f.s.Versions(ctx, ref, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64][]string{4: {"last"}, 3: {"again"}, 2: {"back", "by-serial"}, 1: {"first"}}
	for _, v := range listed.Items {
		if !slices.Equal(v.Tags, want[v.Version]) {
			t.Errorf("version %d has the tags %q, want %q", v.Version, v.Tags, want[v.Version])
		}
	}
	if err := f.s.UnsetTag(ctx, f.actor, ref, "first"); err != nil {
		t.Fatal(err)
	}
	if err := f.s.UnsetTag(ctx, f.actor, ref, "first"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a tag removed twice: %v", err)
	}
	if _, err := f.s.Version(ctx, ref, "first"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a tag that is gone: %v", err)
	}
	tags, err := f.s.Tags(ctx, ref)
	var names []string
	for _, g := range tags {
		names = append(names, g.Tag)
	}
	if err != nil || !slices.Equal(names, []string{"again", "back", "by-serial", "last"}) {
		t.Errorf("listed are %q, %v", names, err)
	}
}

// What could be read as another kind of reference, or is no name at all, cannot
// be a tag.
func TestTagNames(t *testing.T) {
	f := newFixture(t, store.Options{})
	ctx, ref := context.Background(), f.ref("s")
	f.versions("s", 1)
	for _, tag := range []string{"", "1", "007", "1a", "@1", "serial:1", "head", "HEAD", "a b", "a/b", "ä", "-a", ".", "a\x00", "a\n", strings.Repeat("a", 65)} {
		if _, err := f.s.SetTag(ctx, f.actor, ref, tag, "1"); !fault.Is(err, fault.ParameterInvalid) {
			t.Errorf("tag %q: %v", tag, err)
		}
		if err := f.s.UnsetTag(ctx, f.actor, ref, tag); !fault.Is(err, fault.ParameterInvalid) {
			t.Errorf("removing tag %q: %v", tag, err)
		}
	}
	for _, tag := range []string{"a", "v1.2", "before_upgrade-2", strings.Repeat("a", 64)} {
		if _, err := f.s.SetTag(ctx, f.actor, ref, tag, "1"); err != nil {
			t.Errorf("tag %q: %v", tag, err)
		}
	}
	var all sync.WaitGroup
	for k := range 32 { // at the same time they share transactions
		all.Go(func() {
			for i := k; i < 996; i += 32 {
				if _, err := f.s.SetTag(ctx, f.actor, ref, fmt.Sprintf("t%d", i), "1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if _, err := f.s.SetTag(ctx, f.actor, ref, "onemore", "1"); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("tag number 1001: %v", err)
	}
	if _, err := f.s.SetTag(ctx, f.actor, ref, "a", "head"); err != nil {
		t.Errorf("moving one of 1000 tags: %v", err)
	}
}

func TestTagsKeepToTheLifecycle(t *testing.T) {
	f := newFixture(t, store.Options{})
	ctx, ref := context.Background(), f.ref("s")
	if _, err := f.s.SetTag(ctx, f.actor, ref, "a", "head"); !fault.Is(err, fault.NotFound) {
		t.Errorf("tag of a state that was never written: %v", err)
	}
	f.versions("s", 2)
	if _, err := f.s.SetTag(ctx, f.actor, ref, "a", "9"); !fault.Is(err, fault.NotFound) {
		t.Errorf("tag of a version that is not there: %v", err)
	}
	if _, err := f.s.SetTag(ctx, f.actor, ref, "a", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Archive(ctx, f.actor, ref); err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.SetTag(ctx, f.actor, ref, "b", "1"); !fault.Is(err, fault.StateArchived) {
		t.Errorf("tag of an archived state: %v", err)
	}
	if err := f.s.UnsetTag(ctx, f.actor, ref, "a"); !fault.Is(err, fault.StateArchived) {
		t.Errorf("removing a tag of an archived state: %v", err)
	}
}
