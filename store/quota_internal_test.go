package store

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// A file from before there were totals gets one with the next write, and Check
// finds a total that is wrong.
func TestTotals(t *testing.T) {
	ctx := context.Background()
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "kl.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	b, err := s.Bootstrap(ctx)
	if err != nil {
		t.Fatal(err)
	}
	env := b.EnvPublicID
	change := func(f func(tx *bbolt.Tx) error) {
		t.Helper()
		if err := s.commit.do(ctx, 0, func(tx *bbolt.Tx) error { return broken(f(tx)) }); err != nil {
			t.Fatal(err)
		}
	}
	total := func() (n int64) {
		t.Helper()
		err := s.view(func(tx *bbolt.Tx) error {
			e, _, err := getRec[environmentRec](tx, bEnvironment, []byte(env))
			if err == nil {
				n, err = totalOf(tx, e)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	setTotal := func(n *int64) {
		t.Helper()
		change(func(tx *bbolt.Tx) error {
			e, _, err := getRec[environmentRec](tx, bEnvironment, []byte(env))
			if err != nil {
				return err
			}
			e.Total = n
			return putRec(tx, bEnvironment, []byte(env), e)
		})
	}
	add := func(name, lifecycle string, managed int64) {
		t.Helper()
		change(func(tx *bbolt.Tx) error {
			r := s.newState(Ref{env, name})
			r.Lifecycle, r.Managed = lifecycle, managed
			sid, err := s.createState(tx, Ref{env, name}, Actor{})
			if err != nil {
				return err
			}
			if err := putRec(tx, bState, u64(sid), r); err != nil {
				return err
			}
			return s.addTotal(tx, env, r.counted())
		})
	}
	add("a", lifecycleActive, 3)
	setTotal(nil)
	if got := total(); got != 3 {
		t.Errorf("without a total %d are counted, want 3", got)
	}
	add("b", lifecycleArchived, 100)
	add("c", lifecycleActive, 4)
	if got := total(); got != 7 {
		t.Errorf("the next write counts %d, want 7", got)
	}
	wrong := func() bool {
		t.Helper()
		r, err := s.Check(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(r.Problems, func(p string) bool { return strings.Contains(p, "managed instances, and its active states have 7") })
	}
	if wrong() {
		t.Error("Check finds fault with a right total")
	}
	eight := int64(8)
	if setTotal(&eight); !wrong() {
		t.Error("Check finds nothing wrong with a total that is")
	}
}
