package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kl/fault"
	"kl/store"
	"kl/wire"
)

// holding is a document with n managed instances, and one data source.
func holding(n int) document {
	d := document{map[string]instance{`data.a.d["k"]`: {value: "x"}}, map[string]string{}}
	for i := range n {
		d.inst[fmt.Sprintf(`a.r%02d["k%d"]`, i/4, i%4)] = instance{value: "v"}
	}
	return d
}

// writer writes documents of growing serials to one state.
type writer struct {
	f      *fixture
	name   string
	serial uint64
}

func (w *writer) put(d document) (store.Written, error) {
	w.serial++
	return w.f.write(w.name, "", d.render(w.serial, false))
}

// must puts a document that has to be accepted.
func (w *writer) must(what string, d document) store.Written {
	w.f.tb.Helper()
	got, err := w.put(d)
	if err != nil {
		w.f.tb.Fatalf("%s: %v", what, err)
	}
	return got
}

// refused puts a document that has to be refused, and returns the refusal.
func (w *writer) refused(what string, d document, code fault.Code) *fault.Error {
	w.f.tb.Helper()
	_, err := w.put(d)
	w.serial-- // its serial is not used up
	if !fault.Is(err, code) {
		w.f.tb.Fatalf("%s: got %v, want %s", what, err, code)
	}
	return fault.Of(err)
}

func (f *fixture) limit(p wire.LimitsPatch) { f.patch(wire.EnvironmentPatch{LimitsPatch: p}) }

func (f *fixture) quota(name string) wire.Quota {
	f.tb.Helper()
	q, err := f.s.Quota(context.Background(), f.ref(name))
	if err != nil {
		f.tb.Fatal(err)
	}
	return q
}

func wantDetails(t *testing.T, f *fault.Error, want map[string]any) {
	t.Helper()
	for k, v := range want {
		if fmt.Sprint(f.Details[k]) != fmt.Sprint(v) {
			t.Errorf("%s: member %s is %v, want %v", f.Detail, k, f.Details[k], v)
		}
	}
}

func TestStateQuota(t *testing.T) {
	f := newFixture(t, store.Options{})
	f.limit(wire.LimitsPatch{StateSoftLimit: ptr(int64(3)), StateHardLimit: ptr(int64(5))})
	w := &writer{f: f, name: "s"}
	w.must("below all", holding(3))
	if got := w.must("above soft", holding(4)); len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "the state s has 4 resource instances, above the soft limit of 3") {
		t.Errorf("warnings: %q", got.Warnings)
	}
	w.must("at the limit", holding(5))
	refusal := w.refused("one above", holding(6), fault.StateQuota)
	wantDetails(t, refusal, map[string]any{"dimension": "state", "current_count": 5, "resulting_count": 6, "soft_limit": 3, "hard_limit": 5})
	id := refusedOf(t, refusal)
	if r, err := f.s.Refused(context.Background(), f.ref("s"), id); err != nil || r.Class != "quota" || r.Status != "open" {
		t.Errorf("kept as %+v, %v", r, err)
	}
	if n := len(f.events("quota_soft_exceeded")); n != 2 {
		t.Errorf("%d events of soft limits, want one for each write that grew above it", n)
	}

	if e := f.events("environment_changed"); len(e) != 1 || e[0].Detail["state_hard_limit"] != 5.0 || len(e[0].Detail) != 2 {
		t.Errorf("the audit trail has the limits as %+v", e)
	}

	// a limit that is lowered below what is there lets everything through that
	// does not grow
	f.limit(wire.LimitsPatch{StateHardLimit: ptr(int64(2))})
	same := holding(5)
	same.inst[`a.r00["k0"]`] = instance{value: "changed"}
	if got := w.must("no growth above the limit", same); len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "above the hard limit of 2") {
		t.Errorf("warnings: %q", got.Warnings)
	}
	w.must("shrinking above the limit", holding(4))
	_ = w.refused("growing again", holding(5), fault.StateQuota)
	w.must("destroy", holding(0))
	if n := len(f.events("quota_soft_exceeded")); n != 2 {
		t.Errorf("%d events, and nothing has grown above a limit since", n)
	}

	// what is kept can be merged once there is room
	w.must("at the limit again", holding(2))
	by := f.actor
	dry := wire.MergeRequest{DryRun: true, Take: &wire.Take{All: wire.TakeMine}}
	if told, err := f.s.MergeRefused(context.Background(), by, f.ref("s"), id, dry); err != nil || !strings.Contains(told.Refusal, "above the hard limit") {
		t.Errorf("a dry run foretells %q, %v", told.Refusal, err)
	}
	if _, err := f.s.MergeRefused(context.Background(), by, f.ref("s"), id, wire.MergeRequest{Take: &wire.Take{All: wire.TakeMine}}); !fault.Is(err, fault.StateQuota) {
		t.Errorf("merge of the refused write without room: %v", err)
	}
	f.limit(wire.LimitsPatch{StateHardLimit: ptr(int64(0)), StateSoftLimit: ptr(int64(1))})
	if told, err := f.s.MergeRefused(context.Background(), by, f.ref("s"), id, dry); err != nil || told.Refusal != "" {
		t.Errorf("a dry run foretells %q, %v", told.Refusal, err)
	}
	out, err := f.s.MergeRefused(context.Background(), by, f.ref("s"), id, wire.MergeRequest{Take: &wire.Take{All: wire.TakeMine}})
	if err != nil || out.Status != "merged" || len(out.QuotaWarnings) != 1 {
		t.Errorf("merge with room: %+v, %v", out, err)
	}
}

func TestEnvironmentQuota(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, store.Options{})
	f.limit(wire.LimitsPatch{EnvironmentSoftLimit: ptr(int64(8)), EnvironmentHardLimit: ptr(int64(10))})
	a, b, c := &writer{f: f, name: "a"}, &writer{f: f, name: "b"}, &writer{f: f, name: "c"}
	a.must("a", holding(4))
	b.must("b", holding(4))
	if got := c.must("c meets the limit", holding(2)); len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "the environment default has 10 resource instances, above the soft limit of 8 (the hard limit is 10)") {
		t.Errorf("warnings: %q", got.Warnings)
	}
	refusal := c.refused("one above in all", holding(3), fault.EnvironmentQuota)
	wantDetails(t, refusal, map[string]any{"dimension": "environment", "current_count": 10, "resulting_count": 11, "hard_limit": 10, "soft_limit": 8})
	c.must("no growth", holding(2))

	// archived states and those in the trash make room, and come back only when
	// there is some
	if _, err := f.s.Archive(ctx, f.actor, f.ref("a")); err != nil {
		t.Fatal(err)
	}
	c.must("in the room of an archived state", holding(5))
	_, err := f.s.Restore(ctx, f.actor, f.ref("a"))
	wantCode(t, "restore without room", err, fault.EnvironmentQuota)
	wantDetails(t, fault.Of(err), map[string]any{"current_count": 9, "resulting_count": 13})
	if err := f.s.Delete(ctx, f.actor, f.ref("b"), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Restore(ctx, f.actor, f.ref("a")); err != nil {
		t.Errorf("restore with room: %v", err)
	}
	if got := f.quota("c").Environment.Current; got != 9 {
		t.Errorf("the environment counts %d, want 9", got)
	}
	if err := f.s.Purge(ctx, f.actor, f.ref("b")); err != nil {
		t.Fatal(err)
	}
	if got := f.quota("new").Environment.Current; got != 9 {
		t.Errorf("after a purge the environment counts %d, want 9", got)
	}

	// a state without instances comes back to a full environment
	f.limit(wire.LimitsPatch{EnvironmentHardLimit: ptr(int64(1))})
	empty := &writer{f: f, name: "empty"}
	empty.must("empty", holding(0))
	if _, err := f.s.Archive(ctx, f.actor, f.ref("empty")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Restore(ctx, f.actor, f.ref("empty")); err != nil {
		t.Errorf("restore of what counts nothing: %v", err)
	}
}

// Two sessions that share a state are judged by what both have built together.
func TestQuotaOfMergedResult(t *testing.T) {
	f := newFixture(t, store.Options{})
	f.patch(wire.EnvironmentPatch{LockMode: ptr("optimistic"), LimitsPatch: wire.LimitsPatch{StateHardLimit: ptr(int64(10))}})
	w := &writer{f: f, name: "s"}
	w.must("first", holding(4))
	for _, id := range []string{"l1", "l2"} {
		if err := f.lock("s", id, wire.OperationApply); err != nil {
			t.Fatal(err)
		}
	}
	plus := func(session string, n int) document {
		d := holding(4)
		for i := range n {
			d.inst[fmt.Sprintf(`a.%s["n%d"]`, session, i)] = instance{value: "v"}
		}
		return d
	}
	if _, err := f.write("s", "l1", plus("x", 3).render(2, false)); err != nil {
		t.Fatal(err)
	}
	_, err := f.write("s", "l2", plus("y", 4).render(2, false)) // 8 alone, 11 with the others'
	wantCode(t, "the merged result is one above", err, fault.StateQuota)
	wantDetails(t, fault.Of(err), map[string]any{"current_count": 7, "resulting_count": 11})
	got, err := f.write("s", "l2", plus("y", 3).render(3, false))
	if err != nil || !got.Merged {
		t.Errorf("the merged result meets the limit: %+v, %v", got, err)
	}
	if n := f.quota("s").State.Current; n != 10 {
		t.Errorf("the state counts %d", n)
	}
}

func TestByteQuotas(t *testing.T) {
	f := newFixture(t, store.Options{})
	w := &writer{f: f, name: "s"}
	w.must("first", holding(4))
	q := f.quota("s")
	f.limit(wire.LimitsPatch{StateBytesHardLimit: ptr(q.Bytes.Current)})
	wantDetails(t, w.refused("larger", holding(5), fault.BytesQuota), map[string]any{"dimension": "bytes", "hard_limit": q.Bytes.Current, "current_count": q.Bytes.Current})
	for delta, want := range map[int64]int{1: 1, 0: 0} {
		if got, err := f.s.CheckQuota(context.Background(), f.ref("s"), delta, delta); err != nil || got.Status != "ok" || len(got.Warnings) != want {
			t.Errorf("a check of %+d without room for a byte: %q, %s, %v", delta, got.Warnings, got.Status, err)
		}
	}
	w.must("the same size", holding(4))
	f.limit(wire.LimitsPatch{StateBytesHardLimit: ptr(int64(1))})
	fewer := holding(3)
	fewer.inst[`a.r00["k0"]`] = instance{value: strings.Repeat("x", 4000)}
	w.must("fewer instances in more bytes", fewer)

	f.limit(wire.LimitsPatch{StateBytesHardLimit: ptr(int64(0)), HistoryBytesHardLimit: ptr(int64(1)), HistoryBytesSoftLimit: ptr(int64(1))})
	more := holding(4)
	more.inst[`a.r00["k0"]`] = instance{value: strings.Repeat("x", 5000)}
	wantDetails(t, w.refused("more history", more, fault.BytesQuota), map[string]any{"dimension": "bytes", "bytes_of": "history"})
	if got := w.must("destroy", holding(0)); len(got.Warnings) != 1 {
		t.Errorf("warnings: %q", got.Warnings)
	}
}

func TestOwnLimits(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, store.Options{})
	f.limit(wire.LimitsPatch{StateSoftLimit: ptr(int64(2)), StateHardLimit: ptr(int64(3))})
	w := &writer{f: f, name: "s"}
	w.must("first", holding(3))
	set := func(l wire.StateLimits) wire.State {
		t.Helper()
		st, err := f.s.PatchState(ctx, f.actor, f.ref("s"), wire.StatePatch{Quota: &l})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if st := set(wire.StateLimits{HardLimit: ptr(int64(4))}); st.Quota == nil || *st.Quota.HardLimit != 4 || st.Quota.SoftLimit != nil {
		t.Errorf("own limits: %+v", st.Quota)
	}
	w.must("within its own", holding(4))
	_ = w.refused("above its own", holding(5), fault.StateQuota)
	set(wire.StateLimits{HardLimit: ptr(int64(0)), SoftLimit: ptr(int64(0))})
	if got := w.must("no limit of its own", holding(9)); len(got.Warnings) != 0 {
		t.Errorf("warnings: %q", got.Warnings)
	}
	other := &writer{f: f, name: "other"}
	_ = other.refused("the others' limit", holding(4), fault.StateQuota)
	if st := set(wire.StateLimits{HardLimit: ptr(int64(wire.InheritLimit)), SoftLimit: ptr(int64(wire.InheritLimit))}); st.Quota != nil {
		t.Errorf("inherits all again: %+v", st.Quota)
	}
	_ = w.refused("the environment's again", holding(10), fault.StateQuota)
	_, err := f.s.PatchState(ctx, f.actor, f.ref("s"), wire.StatePatch{Quota: &wire.StateLimits{BytesHardLimit: ptr(int64(-2))}})
	wantCode(t, "a negative limit", err, fault.ParameterInvalid)
	_, err = f.s.PatchEnvironment(ctx, f.actor, f.env, wire.EnvironmentPatch{LimitsPatch: wire.LimitsPatch{StateHardLimit: ptr(int64(-1))}})
	wantCode(t, "a negative limit of the environment", err, fault.ParameterInvalid)
}

func TestCheckQuota(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, store.Options{})
	f.limit(wire.LimitsPatch{StateSoftLimit: ptr(int64(5)), StateHardLimit: ptr(int64(8)), EnvironmentHardLimit: ptr(int64(12))})
	w := &writer{f: f, name: "s"}
	w.must("s", holding(4))
	(&writer{f: f, name: "other"}).must("other", holding(6))
	for _, c := range []struct {
		name         string
		delta, peak  int64
		status       string
		state, env   string
		projected    int64
		warnings     int
		refusalNames string
	}{
		{"s", 1, 1, "ok", "ok", "ok", 5, 0, ""},
		{"s", 2, 2, "soft", "soft", "ok", 6, 1, ""},
		{"s", 3, 3, "hard", "soft", "hard", 7, 1, "the environment default"},
		{"s", 5, 5, "hard", "hard", "hard", 9, 0, "the state s"},
		{"s", -4, -4, "ok", "ok", "ok", 0, 0, ""},
		{"s", 0, 3, "ok", "ok", "ok", 4, 1, ""}, // the environment, for a moment
		{"new", 2, 2, "ok", "ok", "ok", 2, 0, ""},
		{"new", 3, 3, "hard", "ok", "hard", 3, 0, "the environment default"},
	} {
		got, err := f.s.CheckQuota(ctx, f.ref(c.name), c.delta, c.peak)
		if err != nil || got.Status != c.status || got.State.Status != c.state || got.Environment.Status != c.env || got.Projected != c.projected ||
			got.Delta != c.delta || len(got.Warnings) != c.warnings || !strings.HasPrefix(got.Refusal, c.refusalNames) || (got.Refusal == "") != (c.status != "hard") {
			t.Errorf("%s by %d: got %+v, %v", c.name, c.delta, got, err)
		}
	}
	q := f.quota("s")
	if q.State.Current != 4 || *q.State.RemainingSoft != 1 || *q.State.RemainingHard != 4 || q.Environment.Current != 10 || q.Environment.RemainingSoft != nil || *q.Environment.RemainingHard != 2 {
		t.Errorf("quota: %+v", q)
	}
	if _, err := f.s.Archive(ctx, f.actor, f.ref("s")); err != nil {
		t.Fatal(err)
	}
	_, err := f.s.CheckQuota(ctx, f.ref("s"), 1, 1)
	wantCode(t, "check of an archived state", err, fault.StateArchived)
	_, err = f.s.Quota(ctx, f.ref("no/name"))
	wantCode(t, "no name of a state", err, fault.StateNameInvalid)
	_, err = f.s.Quota(ctx, store.Ref{Environment: "env_aaaaaaaaaaaa", Name: "s"})
	wantCode(t, "no environment", err, fault.UnknownEnvironment)
}

func TestForecast(t *testing.T) {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	now := start
	f := newFixture(t, store.Options{Now: func() time.Time { return now }})
	f.limit(wire.LimitsPatch{StateHardLimit: ptr(int64(100)), EnvironmentHardLimit: ptr(int64(100))})
	w := &writer{f: f, name: "s"}
	for day := range 61 { // 10, and one more each day
		now = start.AddDate(0, 0, day)
		w.must("day", holding(10+day))
	}
	fc := f.quota("s").State.Forecast
	if fc == nil || fc.Growth != 30 || fc.PerDay != 1 || !fc.HardAt.Equal(now.AddDate(0, 0, 30)) || !fc.SoftAt.IsZero() {
		t.Errorf("of 70, one a day: %+v", fc)
	}
	if f.quota("none").State.Forecast != nil {
		t.Error("a forecast for a state that does not exist")
	}
	now = now.AddDate(0, 0, 6)
	young := &writer{f: f, name: "young"}
	young.must("young", holding(6))
	q := f.quota("young")
	if !q.State.Forecast.TooShort {
		t.Errorf("of a state that is new: %+v", q.State.Forecast)
	}
	if e := q.Environment.Forecast; e.Growth != 30 || e.PerDay != 1 || !e.HardAt.Equal(now.AddDate(0, 0, 24)) {
		t.Errorf("of 76 in all, 46 thirty days ago: %+v", e)
	}
}

// A run that replaces instances by ones of another key is told so when the
// moment with both is too much.
func TestQuotaTellsOfReplacing(t *testing.T) {
	f := newFixture(t, store.Options{})
	f.limit(wire.LimitsPatch{StateHardLimit: ptr(int64(4))})
	w := &writer{f: f, name: "s"}
	w.must("first", holding(4))
	if err := f.lock("s", "l1", wire.OperationApply); err != nil {
		t.Fatal(err)
	}
	d := holding(4)
	delete(d.inst, `a.r00["k0"]`)
	if _, err := f.write("s", "l1", d.render(2, false)); err != nil {
		t.Fatal(err)
	}
	d.inst[`a.r00["x0"]`], d.inst[`a.r00["x1"]`] = instance{value: "v"}, instance{value: "v"}
	_, err := f.write("s", "l1", d.render(3, false))
	wantCode(t, "both", err, fault.StateQuota)
	wantDetails(t, fault.Of(err), map[string]any{"replacing": []string{"a.r00"}})
	if e := fault.Of(err); !strings.Contains(e.Detail, "creates and deletes instances of a.r00") || !strings.Contains(e.Next, "destroy first what goes, with -target") {
		t.Errorf("the refusal says: %s; %s", e.Detail, e.Next)
	}
	if err := f.unlock("s", "l1"); err != nil {
		t.Fatal(err)
	}
	w.serial = 2
	if e := w.refused("growth only", holding(9), fault.StateQuota); e.Details["replacing"] != nil {
		t.Errorf("growth is taken for a replacement: %v", e)
	}
}

// However writes, merges, lifecycles and limits follow each other, the file
// counts what its states hold, nothing that grows goes above a hard limit, and
// what does not grow is never refused for one.
func TestQuotaOfAnySequence(t *testing.T) {
	tb := t
	rapid.Check(t, func(t *rapid.T) {
		f := newFixture(tb, store.Options{})
		defer f.finish()
		ctx := context.Background()
		f.patch(wire.EnvironmentPatch{LockMode: ptr("optimistic"), RecoveryHold: ptr(false)})
		names := []string{"a", "b", "c"}
		serial, have, life := map[string]uint64{}, map[string]document{}, map[string]string{}
		versions := map[string][]document{} // the n-th is version n+1
		for _, name := range names {
			have[name] = holding(0)
		}
		var hard, envHard int64
		total := func() (n int64) {
			for _, name := range names {
				if life[name] == "active" {
					n += managed(have[name])
				}
			}
			return n
		}
		judge := func(what, name string, result document, err error) bool {
			was, is := managed(have[name]), managed(result)
			over := is > was && (hard > 0 && is > hard || envHard > 0 && total()-was+is > envHard)
			if refused := fault.ClassOf(err) == fault.Quota; refused != over {
				t.Fatalf("%s: %d → %d of %d with %d in all of %d: %v", what, was, is, hard, total(), envHard, err)
			}
			if err != nil && !over {
				t.Fatalf("%s: %v", what, err)
			}
			return err == nil
		}
		stored := func(name string, d document, n uint64) {
			have[name], serial[name], versions[name] = d, n, append(versions[name], d)
		}
		change := func(d document) document {
			d = d.clone()
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				a := fmt.Sprintf(`a.r%02d["k%d"]`, rapid.IntRange(0, 2).Draw(t, "resource"), rapid.IntRange(0, 3).Draw(t, "key"))
				if rapid.IntRange(0, 3).Draw(t, "data") == 0 {
					a = "data." + a
				}
				if delete(d.inst, a); rapid.Bool().Draw(t, "there") {
					d.inst[a] = instance{value: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")}
				}
			}
			return d
		}
		do := map[string]func(){
			"limits": func() {
				hard, envHard = rapid.Int64Range(0, 9).Draw(t, "hard"), rapid.Int64Range(0, 20).Draw(t, "env")
				f.limit(wire.LimitsPatch{StateHardLimit: &hard, EnvironmentHardLimit: &envHard})
			},
			"write": func() {
				name := rapid.SampledFrom(names).Draw(t, "state")
				if life[name] == "archived" || life[name] == "deleted" {
					return
				}
				d := change(have[name])
				w, err := f.write(name, "", d.render(serial[name]+1, false))
				if judge("write", name, d, err) {
					stored(name, d, w.Serial)
					life[name] = "active"
				}
			},
			"merge": func() {
				// one session writes beside another, which then writes what it has read
				name := rapid.SampledFrom(names).Draw(t, "state")
				if life[name] != "active" {
					return
				}
				base := have[name]
				for _, id := range []string{"l1", "l2"} {
					if err := f.lock(name, id, wire.OperationApply); err != nil {
						t.Fatal(err)
					}
				}
				read := serial[name]
				ours, theirs := change(base), change(base)
				if _, err := f.write(name, "l1", theirs.render(read+1, false)); judge("write of the first", name, theirs, err) {
					stored(name, theirs, read+1)
				}
				merged, conflicts, code := merge3(base, have[name], ours)
				w, err := f.write(name, "l2", ours.render(read+1, false))
				switch {
				case len(conflicts) > 0 && !fault.Is(err, code):
					t.Fatalf("merge: %v, want %s of %v", err, code, conflicts)
				case len(conflicts) == 0 && judge("merge", name, merged, err):
					stored(name, merged, w.Serial)
				}
				for _, id := range []string{"l1", "l2"} {
					if err := f.unlock(name, id); err != nil {
						t.Fatal(err)
					}
				}
			},
			"roll back": func() {
				name := rapid.SampledFrom(names).Draw(t, "state")
				if life[name] != "active" {
					return
				}
				n := rapid.IntRange(1, len(versions[name])).Draw(t, "version")
				then := versions[name][n-1]
				out, err := f.s.Rollback(ctx, f.actor, f.ref(name), wire.RollbackRequest{To: wire.VersionRef(fmt.Sprint(n))})
				if judge("roll back", name, then, err) && !out.Unchanged {
					stored(name, then, out.Serial)
				}
			},
			"away": func() {
				name := rapid.SampledFrom(names).Draw(t, "state")
				if life[name] != "active" {
					return
				}
				var err error
				if life[name] = rapid.SampledFrom([]string{"archived", "deleted"}).Draw(t, "where"); life[name] == "deleted" {
					err = f.s.Delete(ctx, f.actor, f.ref(name), "")
				} else {
					_, err = f.s.Archive(ctx, f.actor, f.ref(name))
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			"back": func() {
				name := rapid.SampledFrom(names).Draw(t, "state")
				if life[name] != "archived" && life[name] != "deleted" {
					return
				}
				n := managed(have[name])
				over := n > 0 && envHard > 0 && total()+n > envHard
				_, err := f.s.Restore(ctx, f.actor, f.ref(name))
				switch {
				case over && fault.Is(err, fault.EnvironmentQuota):
				case over || err != nil:
					t.Fatalf("restore of %d to %d of %d: %v", n, total(), envHard, err)
				default:
					life[name] = "active"
				}
			},
			"purge": func() {
				name := rapid.SampledFrom(names).Draw(t, "state")
				if life[name] != "deleted" {
					return
				}
				if err := f.s.Purge(ctx, f.actor, f.ref(name)); err != nil {
					t.Fatal(err)
				}
				have[name] = holding(0)
				delete(life, name)
				delete(serial, name)
				delete(versions, name)
			},
		}
		verbs := slices.Sorted(maps.Keys(do))
		// few steps: each is a commit or more, that waits for the disk
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			do[rapid.SampledFrom(append(verbs, "write", "write", "merge", "roll back")).Draw(t, "verb")]()
			for _, name := range names {
				q := f.quota(name)
				if q.State.Current != managed(have[name]) || q.Environment.Current != total() {
					t.Fatalf("%s counts %d, in all %d; want %d and %d", name, q.State.Current, q.Environment.Current, managed(have[name]), total())
				}
			}
		}
	})
}

// managed counts what a quota counts.
func managed(d document) int64 {
	return int64(len(slices.DeleteFunc(slices.Collect(maps.Keys(d.inst)), func(a string) bool { return strings.HasPrefix(a, "data.") })))
}
