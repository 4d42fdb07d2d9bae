package query

import (
	"encoding/json"
	"io"

	"kl/auth"
	"kl/store"
	"kl/wire"
)

// tables, in the order in which they are documented.
var tables = []*Table{
	workspaceTable, environmentTable, stateTable, versionTable,
	resourceTable, instanceTable, attributeTable, dependencyTable, outputTable,
	changeTable, sessionTable, runTable, reservationTable, refusedTable, eventTable,
}

var byName = func() map[string]*Table {
	m := map[string]*Table{}
	for _, t := range tables {
		m[t.Name] = t
	}
	return m
}()

var workspaceTable = table(Table{Name: "workspaces", About: "tenants"}, []col[wire.Workspace]{
	find(text("workspace", "id", func(w *wire.Workspace) string { return w.WorkspaceID })),
	text("name", "for people", func(w *wire.Workspace) string { return w.Name }),
	text("kind", "personal or organization", func(w *wire.Workspace) string { return w.Kind }),
	text("status", "active or suspended", func(w *wire.Workspace) string { return w.Status }),
	orNull("suspended_reason", "NULL when it is active", func(w *wire.Workspace) string { return w.SuspendedReason }),
	value("created_at", "TEXT", "time", func(w *wire.Workspace) any { return w.CreatedAt }),
}, func(s *statement, f filter) (pull[wire.Workspace], error) {
	return &listed[wire.Workspace]{s.moment.Workspaces, func(w *wire.Workspace) bool { return f.matches("workspace", w.WorkspaceID) }}, nil
})

var environmentTable = table(Table{Name: "environments", About: "environments whose states may be read"}, []col[store.MomentEnvironment]{
	find(text("environment", "public id", func(e *store.MomentEnvironment) string { return e.EnvPublicID })),
	text("slug", "name within the workspace", func(e *store.MomentEnvironment) string { return e.Slug }),
	text("workspace", "id of its workspace", func(e *store.MomentEnvironment) string { return e.WorkspaceID }),
	text("role", "your own there: write, plan or read", func(e *store.MomentEnvironment) string { return string(e.Role) }),
	text("lock_mode", "exclusive or optimistic", func(e *store.MomentEnvironment) string { return e.LockMode }),
	value("state_hard_limit", "INTEGER", "managed instances in a state, 0 for no limit", func(e *store.MomentEnvironment) any { return e.StateHardLimit }),
	value("environment_hard_limit", "INTEGER", "managed instances in all its states, 0 for no limit", func(e *store.MomentEnvironment) any { return e.EnvironmentHardLimit }),
	value("created_at", "TEXT", "time", func(e *store.MomentEnvironment) any { return e.CreatedAt }),
}, func(s *statement, f filter) (pull[store.MomentEnvironment], error) {
	return &listed[store.MomentEnvironment]{s.moment.Environments, func(e *store.MomentEnvironment) bool {
		return e.Role.Allows(auth.ReadState) && f.matches("environment", e.EnvPublicID)
	}}, nil
})

// stateColumns say which state a row is about.
func stateColumns[R any](of func(r *R) *store.MomentState) []col[R] {
	return []col[R]{
		find(text("environment", "public id", func(r *R) string { return of(r).Environment })),
		find(text("state", "name of the state", func(r *R) string { return of(r).Name })),
	}
}

// states are those that a filter asks for and that keep lets pass.
func (s *statement) states(f filter, keep func(st *store.MomentState) bool) []*store.MomentState {
	var out []*store.MomentState
	for _, st := range s.moment.States {
		if f.matches("environment", st.Environment) && f.matches("state", st.Name) && keep(st) {
			out = append(out, st)
		}
	}
	return out
}

type stateRow = *store.MomentState

var stateTable = table(Table{Name: "states", About: "states, those in the trash too"}, append(stateColumns(func(r *stateRow) *store.MomentState { return *r }), []col[stateRow]{
	text("workspace", "id of its workspace", func(r *stateRow) string { return (*r).Workspace }),
	text("lifecycle", "active, archived or deleted", func(r *stateRow) string { return (*r).Lifecycle }),
	value("version", "INTEGER", "number of the newest version, 0 before the first", func(r *stateRow) any { return (*r).Version }),
	value("serial", "INTEGER", "of the newest version", func(r *stateRow) any { return (*r).Serial }),
	text("lineage", "of the newest version", func(r *stateRow) string { return (*r).Lineage }),
	value("resource_count", "INTEGER", "managed instances, without deposed ones", func(r *stateRow) any { return (*r).ResourceCount }),
	value("instance_count", "INTEGER", "all instances, data sources and deposed ones too", func(r *stateRow) any { return (*r).InstanceCount }),
	value("output_count", "INTEGER", "root outputs", func(r *stateRow) any { return (*r).Outputs }),
	value("bytes", "INTEGER", "of the newest version", func(r *stateRow) any { return (*r).Bytes }),
	value("stored_bytes", "INTEGER", "of all kept versions in the data file", func(r *stateRow) any { return (*r).StoredBytes }),
	value("version_count", "INTEGER", "versions kept", func(r *stateRow) any { return (*r).VersionCount }),
	text("lock_mode", "exclusive or optimistic", func(r *stateRow) string { return (*r).LockMode }),
	value("opaque", "INTEGER", "1 when it cannot be looked into: encrypted, or of another format", func(r *stateRow) any { return (*r).Opaque }),
	value("created_at", "TEXT", "time", func(r *stateRow) any { return (*r).CreatedAt }),
	value("updated_at", "TEXT", "time of the newest version", func(r *stateRow) any { return (*r).UpdatedAt }),
}...), func(s *statement, f filter) (pull[stateRow], error) {
	return &listed[stateRow]{s.states(f, mayRead), func(*stateRow) bool { return true }}, nil
})

// versionRow is a version of a state.
type versionRow struct {
	state *store.MomentState
	wire.Version
}

var versionTable = table(Table{Name: "versions", About: "versions that are kept, the newest of a state first", parts: store.PartTags}, append(stateColumns(func(r *versionRow) *store.MomentState { return r.state }), []col[versionRow]{
	find(value("version", "INTEGER", "number", func(r *versionRow) any { return r.Version.Version })),
	value("head", "INTEGER", "1 for the newest", func(r *versionRow) any { return r.Version.Version == r.state.Version }),
	value("serial", "INTEGER", "as Terraform counts", func(r *versionRow) any { return r.Serial }),
	text("lineage", "as Terraform made it", func(r *versionRow) string { return r.Lineage }),
	text("terraform_version", "that wrote it", func(r *versionRow) string { return r.TerraformVersion }),
	value("created_at", "TEXT", "time", func(r *versionRow) any { return r.CreatedAt }),
	text("principal", "whose credentials wrote it", func(r *versionRow) string { return r.Principal }),
	orNull("who", "user and machine, as the lock tells", func(r *versionRow) string { return r.Who }),
	orNull("lock_id", "of the lock under which it was written", func(r *versionRow) string { return r.LockID }),
	orNull("run_id", "of the run that wrote it", func(r *versionRow) string { return r.RunID }),
	text("source", "write, merge, rollback, recover or push", func(r *versionRow) string { return r.Source }),
	value("resource_count", "INTEGER", "managed instances", func(r *versionRow) any { return r.ResourceCount }),
	value("added", "INTEGER", "instances against the version before, -1 when not known", func(r *versionRow) any { return r.Added }),
	value("changed", "INTEGER", "likewise", func(r *versionRow) any { return r.Changed }),
	value("removed", "INTEGER", "likewise", func(r *versionRow) any { return r.Removed }),
	value("bytes", "INTEGER", "of the document", func(r *versionRow) any { return r.Bytes }),
	value("stored_bytes", "INTEGER", "that it added to the data file", func(r *versionRow) any { return r.StoredBytes }),
	text("sha256", "of the document", func(r *versionRow) string { return r.SHA256 }),
	value("opaque", "INTEGER", "1 when it cannot be looked into", func(r *versionRow) any { return r.Opaque }),
	value("tags", "JSON", "array of its tags", func(r *versionRow) any { return asJSON(r.Tags) }),
}...), func(s *statement, f filter) (pull[versionRow], error) {
	return &versions{s: s, states: s.states(f, mayRead), only: f.version}, nil
})

// versions walks over the versions of states.
type versions struct {
	s      *statement
	states []*store.MomentState
	only   uint64 // this one, 0 for all
	state  *store.MomentState
	batch  []wire.Version
	next   uint64 // where the state's go on, 0 at its end
}

func (v *versions) pull(into *versionRow) error {
	for len(v.batch) == 0 {
		if err := v.s.budget.Err(); err != nil {
			return err
		}
		if err := v.more(); err != nil {
			return err
		}
	}
	*into = versionRow{v.state, v.batch[0]}
	v.batch = v.batch[1:]
	return nil
}

// more reads on.
func (v *versions) more() (err error) {
	if v.next != 0 {
		v.batch, v.next, err = v.s.moment.Versions(v.state, v.next)
		return err
	}
	if len(v.states) == 0 {
		return io.EOF
	}
	v.state, v.states = v.states[0], v.states[1:]
	if v.only == 0 {
		if v.state.Version > 0 {
			v.batch, v.next, err = v.s.moment.Versions(v.state, 0)
		}
		return err
	}
	one, found, err := v.s.moment.Version(v.state, v.only)
	if found {
		v.batch = []wire.Version{one}
	}
	return err
}

func (v *versions) close() {}

// changeRow is one line of what a version changed.
type changeRow struct {
	versionRow
	store.Change
}

var changeTable = table(Table{Name: "changes", About: "what each version changed against the one before; the first added all that it held"}, append(stateColumns(func(r *changeRow) *store.MomentState { return r.state }), []col[changeRow]{
	find(value("version", "INTEGER", "that changed it", func(r *changeRow) any { return r.versionRow.Version.Version })),
	text("kind", "instance, output or check", func(r *changeRow) string { return r.Kind }),
	text("address", "of the instance, or the output's name", func(r *changeRow) string { return r.Address }),
	text("change", "added, changed or removed", func(r *changeRow) string { return r.Change.Change }),
	value("serial", "INTEGER", "of the version", func(r *changeRow) any { return r.Serial }),
	value("created_at", "TEXT", "time of the version", func(r *changeRow) any { return r.CreatedAt }),
	text("principal", "whose credentials wrote it", func(r *changeRow) string { return r.Principal }),
	orNull("who", "user and machine, as the lock tells", func(r *changeRow) string { return r.Who }),
	orNull("run_id", "of the run that wrote it", func(r *changeRow) string { return r.RunID }),
	text("source", "write, merge, rollback, recover or push", func(r *changeRow) string { return r.Source }),
}...), func(s *statement, f filter) (pull[changeRow], error) {
	return &changes{versions: versions{s: s, states: s.states(f, mayRead), only: f.version}}, nil
})

// changes walks over the change lists of versions.
type changes struct {
	versions versions
	row      versionRow
	list     []store.Change
}

func (c *changes) pull(into *changeRow) (err error) {
	for len(c.list) == 0 {
		if err := c.versions.pull(&c.row); err != nil {
			return err
		}
		if c.list, err = c.versions.s.moment.Changes(c.row.state, c.row.Version.Version); err != nil {
			return err
		}
	}
	*into = changeRow{c.row, c.list[0]}
	c.list = c.list[1:]
	return nil
}

func (c *changes) close() {}

var sessionTable = table(Table{Name: "sessions", About: "locks that are held", parts: store.PartSessions}, append(stateColumns(func(r *store.MomentSession) *store.MomentState { return r.State }), []col[store.MomentSession]{
	text("lock_id", "of the lock", func(r *store.MomentSession) string { return r.Holder.ID }),
	text("operation", "as Terraform names it", func(r *store.MomentSession) string { return r.Holder.Operation }),
	text("who", "user and machine", func(r *store.MomentSession) string { return r.Holder.Who }),
	text("principal", "whose credentials took it", func(r *store.MomentSession) string { return r.Holder.Principal }),
	value("since", "TEXT", "time", func(r *store.MomentSession) any { return r.Holder.Since }),
	value("last_activity", "TEXT", "time of its last request", func(r *store.MomentSession) any { return r.Holder.LastActivity }),
	value("checkpoints", "INTEGER", "writes accepted so far", func(r *store.MomentSession) any { return r.Holder.Checkpoints }),
	value("base_version", "INTEGER", "version that it has seen last", func(r *store.MomentSession) any { return r.Holder.BaseVersion }),
	value("stale", "INTEGER", "1 when it was idle for long", func(r *store.MomentSession) any { return r.Holder.Stale }),
}...), func(s *statement, f filter) (pull[store.MomentSession], error) {
	return &listed[store.MomentSession]{s.moment.Sessions, func(r *store.MomentSession) bool { return f.state(r.State) }}, nil
})

// state reports whether the filter lets a state's rows pass.
func (f filter) state(st *store.MomentState) bool {
	return f.matches("environment", st.Environment) && f.matches("state", st.Name)
}

var refusedTable = table(Table{Name: "refused_writes", About: "writes that were refused and kept", parts: store.PartRefused}, append(stateColumns(func(r *store.MomentRefused) *store.MomentState { return r.State }), []col[store.MomentRefused]{
	text("id", "for kl recover", func(r *store.MomentRefused) string { return r.Refused.ID }),
	text("status", "open, merged, discarded or superseded", func(r *store.MomentRefused) string { return r.Refused.Status }),
	value("created_at", "TEXT", "time", func(r *store.MomentRefused) any { return r.Refused.CreatedAt }),
	text("class", "of the refusal", func(r *store.MomentRefused) string { return r.Refused.Class }),
	text("code", "of the refusal", func(r *store.MomentRefused) string { return r.Refused.Code }),
	text("detail", "why it was refused, in a sentence", func(r *store.MomentRefused) string { return r.Refused.Detail }),
	text("principal", "whose credentials sent it", func(r *store.MomentRefused) string { return r.Refused.Principal }),
	value("serial", "INTEGER", "that it was sent with", func(r *store.MomentRefused) any { return r.Refused.Serial }),
	text("lineage", "that it was sent with", func(r *store.MomentRefused) string { return r.Refused.Lineage }),
	orNull("lock_id", "that it was sent with", func(r *store.MomentRefused) string { return r.Refused.LockID }),
	value("base_version", "INTEGER", "newest version when it was refused", func(r *store.MomentRefused) any { return r.Refused.BaseVersion }),
	value("bytes", "INTEGER", "of the document", func(r *store.MomentRefused) any { return r.Refused.Bytes }),
	value("addresses", "JSON", "array of the addresses in conflict", func(r *store.MomentRefused) any { return asJSON(r.Refused.ConflictingAddresses) }),
	value("holds", "INTEGER", "1 when it holds back the principal's next apply while it is open", func(r *store.MomentRefused) any { return r.Refused.Holds }),
	text("request_id", "for kl why", func(r *store.MomentRefused) string { return r.Refused.RequestID }),
}...), func(s *statement, f filter) (pull[store.MomentRefused], error) {
	return &listed[store.MomentRefused]{s.moment.Refused, func(r *store.MomentRefused) bool { return f.state(r.State) }}, nil
})

var eventTable = table(Table{Name: "events", About: "the audit trail of the workspaces that you manage", needs: needsEvents, parts: store.PartEvents}, []col[wire.Event]{
	value("id", "INTEGER", "number, in order of time", func(e *wire.Event) any { return e.ID }),
	value("time", "TEXT", "time", func(e *wire.Event) any { return e.Time }),
	text("kind", "what happened", func(e *wire.Event) string { return e.Kind }),
	orNull("class", "of a refusal", func(e *wire.Event) string { return e.Class }),
	orNull("code", "of a refusal", func(e *wire.Event) string { return e.Code }),
	orNull("principal", "who did it", func(e *wire.Event) string { return e.Principal }),
	orNull("workspace", "id", func(e *wire.Event) string { return e.Workspace }),
	orNull("environment", "public id", func(e *wire.Event) string { return e.Environment }),
	orNull("state", "name of the state", func(e *wire.Event) string { return e.State }),
	value("version", "INTEGER", "of the state, 0 for none", func(e *wire.Event) any { return e.Version }),
	value("serial", "INTEGER", "of the state", func(e *wire.Event) any { return e.Serial }),
	orNull("request_id", "for kl why", func(e *wire.Event) string { return e.RequestID }),
	value("detail", "JSON", "object with what else is known", func(e *wire.Event) any { return asJSON(e.Detail) }),
}, func(s *statement, _ filter) (pull[wire.Event], error) { return &events{s: s}, nil })

// events walks over the audit trail.
type events struct {
	s     *statement
	batch []wire.Event
	next  uint64
	begun bool
}

func (e *events) pull(into *wire.Event) (err error) {
	for len(e.batch) == 0 {
		if e.begun && e.next == 0 {
			return io.EOF
		}
		if err := e.s.budget.Err(); err != nil {
			return err
		}
		e.begun = true
		if e.batch, e.next, err = e.s.moment.Events(e.next); err != nil {
			return err
		}
	}
	*into, e.batch = e.batch[0], e.batch[1:]
	return nil
}

func (e *events) close() {}

// asJSON writes a value as the API does.
func asJSON(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // it came out of a JSON record
	}
	return string(b)
}
