package query_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"kl/kltest"
	"kl/query"
	"kl/store"
	"kl/wire"
)

// TestRecordTablesEqualAPI compares the tables of records with what the API
// lists of the same things.
func TestRecordTablesEqualAPI(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, query.Limits{})
	env, robot := f.boot.EnvPublicID, store.Actor{Principal: f.robot}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := kltest.NewState(8, 3)
	for i := range 140 { // more than one batch
		f.write("app", s.Bytes())
		if i < 139 {
			s.SetSerial(s.Serial() + 1)
		}
	}
	f.write("runs", kltest.NewState(8, 4).Bytes())
	app, runs := store.Ref{Environment: env, Name: "app"}, store.Ref{Environment: env, Name: "runs"}
	_, err := f.store.SetTag(ctx, robot, app, "good", "7")
	must(err)
	must(f.store.Lock(ctx, store.LockRequest{Ref: app, Actor: robot, Info: wire.LockInfo{ID: "l1", Operation: wire.OperationApply, Who: "ana@laptop"}}))
	foreign := kltest.NewState(3, 9).Bytes()
	b, err := f.store.ReadBody(ctx, bytes.NewReader(foreign), int64(len(foreign)), 1<<20)
	must(err)
	defer b.Release()
	if _, err := f.store.Write(ctx, store.WriteRequest{Ref: app, Actor: robot, LockID: "l1", Body: b}); err == nil {
		t.Fatal("a foreign lineage is accepted")
	}
	run, err := f.store.StartRun(ctx, robot, runs, wire.RunRequest{Actor: "ana", Reason: "why not"})
	must(err)
	_, err = f.store.Reserve(ctx, store.ReserveRequest{Ref: runs, Actor: robot, Run: run.ID, Want: wire.ReserveRequest{WriteSet: []string{"module.a"}, ReadSet: []string{"aws_vpc.main"}}})
	must(err)
	ended, err := f.store.StartRun(ctx, robot, runs, wire.RunRequest{})
	must(err)
	_, err = f.store.FinishRun(ctx, robot, runs, ended.ID, wire.RunEnd{})
	must(err)

	at := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }
	var versions, states, refused, sessions, events, want []string
	for cursor := ""; ; {
		l, err := f.store.Versions(ctx, app, cursor, 100)
		must(err)
		for _, v := range l.Items {
			tags, _ := json.Marshal(v.Tags)
			versions = append(versions, fmt.Sprintf("%d|%d|%s|%s|%s|%d|%d|%d|%s|%s", v.Version, v.Serial, v.Lineage, at(v.CreatedAt), v.Source, v.ResourceCount, v.Added, v.Bytes, v.SHA256, tags))
		}
		if cursor = l.Next; cursor == "" {
			break
		}
	}
	l, err := f.store.States(ctx, env, "", 100)
	must(err)
	for _, st := range l.Items {
		states = append(states, fmt.Sprintf("%s|%s|%d|%d|%d|%d|%d|%s|%s", st.Name, st.Lifecycle, st.Version, st.ResourceCount, st.InstanceCount, st.Bytes, st.VersionCount, st.LockMode, at(st.UpdatedAt)))
	}
	rs, err := f.store.RefusedList(ctx, app)
	must(err)
	for _, r := range rs {
		refused = append(refused, fmt.Sprintf("%s|%s|%s|%s|%d|%s|%d", r.ID, r.Status, r.Code, r.Detail, r.Serial, r.LockID, r.Bytes))
	}
	lock, err := f.store.LockState(ctx, app)
	must(err)
	for _, h := range lock.Holders {
		sessions = append(sessions, fmt.Sprintf("%s|%s|%s|%s|%s|%d", h.ID, h.Operation, h.Who, h.Principal, at(h.Since), h.BaseVersion))
	}
	list, err := f.store.Runs(ctx, runs, false)
	must(err)
	for _, r := range list {
		want = append(want, fmt.Sprintf("%s|%s|%s|%s|%d", r.ID, r.Status, r.Actor, at(r.CreatedAt), r.BaseVersion))
	}
	for cursor := uint64(0); ; {
		l, err := f.store.Events(ctx, store.EventFilter{After: cursor, Limit: 1000})
		must(err)
		for _, e := range l.Items {
			events = append(events, fmt.Sprintf("%d|%s|%s|%d", e.ID, at(e.Time), e.Kind, e.Version))
			cursor = e.ID
		}
		if l.Next == "" {
			break
		}
	}
	for sql, want := range map[string][]string{
		"SELECT version, serial, lineage, created_at, source, resource_count, added, bytes, sha256, tags FROM versions WHERE state = 'app'":        versions,
		"SELECT state, lifecycle, version, resource_count, instance_count, bytes, version_count, lock_mode, updated_at FROM states ORDER BY state": states,
		"SELECT id, status, code, detail, serial, lock_id, bytes FROM refused_writes":                                                              refused,
		"SELECT lock_id, operation, who, principal, since, base_version FROM sessions WHERE state = 'app'":                                         sessions,
		"SELECT run_id, status, actor, created_at, base_version FROM runs ORDER BY created_at DESC, run_id":                                        want,
		"SELECT id, time, kind, version FROM events":                                                                                               events,
		"SELECT run_id, mode, address FROM reservations ORDER BY mode":                                                                             {run.ID + "|read|aws_vpc.main", run.ID + "|write|module.a"},
		"SELECT environment, slug, workspace FROM environments":                                                                                    {env + "|default|" + f.boot.WorkspaceID},
		"SELECT workspace, kind, status FROM workspaces":                                                                                           {f.boot.WorkspaceID + "|personal|active"},
		"SELECT version FROM versions WHERE version = 7":                                                                                           {"7"},
	} {
		a, err := f.try(f.as(f.operator()), query.Request{SQL: sql})
		must(err)
		got := a.lines()
		if len(want) == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s\ngot  %q\nwant %q", sql, got, want)
		}
	}
}

// TestReadingIsNotPruned: versions go while somebody reads them, and stay until
// they are read.
func TestReadingIsNotPruned(t *testing.T) {
	f := newFixture(t, query.Limits{})
	s := kltest.NewState(50, 3)
	for range 20 {
		f.write("app", s.Bytes())
		s.Mutate(3)
	}
	keep := int64(1)
	op := store.Actor{Principal: f.operator()}
	if _, err := f.store.PatchEnvironment(t.Context(), op, f.boot.EnvPublicID, wire.EnvironmentPatch{KeepLast: &keep}); err != nil {
		t.Fatal(err)
	}
	pruned := make(chan error, 1)
	begun := false
	r := &slow{}
	r.inside = func() error {
		if !begun {
			begun = true
			go func() {
				_, err := f.store.Prune(t.Context(), op, f.boot.EnvPublicID, wire.PruneRequest{})
				pruned <- err
			}()
		}
		return nil
	}
	sql := "SELECT i.version, i.address FROM versions v JOIN instances i ON i.state = v.state AND i.version = v.version"
	if _, err := f.engine.Run(t.Context(), f.as(f.robot), query.Request{SQL: sql, Limit: 5000}, r); err != nil {
		t.Fatal(err)
	}
	seen := map[any]bool{}
	for _, row := range r.rows {
		seen[row[0]] = true
	}
	if len(seen) != 20 {
		t.Errorf("of 20 versions %d were read", len(seen))
	}
	if err := <-pruned; err != nil {
		t.Fatal(err)
	}
	if got := f.ask("SELECT count(*) FROM versions").lines()[0]; got != "1" {
		t.Errorf("afterwards there are %s versions", got)
	}
}
