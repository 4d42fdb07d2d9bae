package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// Reader is who reads a Moment, and how much of the file they ask about.
type Reader struct {
	Actor
	Workspace   string // user name of Basic credentials, "" for none: nothing outside is read
	Environment string // only this one, "" for all that the reader may read
}

// Parts are the records that a Moment copies besides accounts and states.
type Parts uint8

// The parts of a Moment.
const (
	PartTags Parts = 1 << iota
	PartSessions
	PartRefused
	PartRuns
	PartEvents
)

// Moment is what a principal may read of the file, all of it as it was at one
// moment, although no transaction stays open: records that change were copied,
// and of the rest, which only grows, it is known how far it reached. Versions
// that it knows are not pruned before Close. It is not safe for concurrent use.
type Moment struct {
	At           time.Time
	Workspaces   []wire.Workspace
	Environments []MomentEnvironment // in which states or outputs may be read
	States       []*MomentState
	Sessions     []MomentSession
	Refused      []MomentRefused
	Runs         []MomentRun
	Reservations []MomentReservation

	s         *Store
	reader    Reader
	managed   map[string]bool // workspaces whose audit trail may be read
	lastEvent uint64
	tags      map[uint64]map[uint64][]string
	revealed  map[string]bool // environments of which the trail says that secrets were shown
	close     sync.Once
}

// MomentEnvironment is an environment with the reader's role there.
type MomentEnvironment struct {
	wire.Environment
	Role auth.Role
}

// MomentState is a state as its record was, also one in the trash.
type MomentState struct {
	wire.State
	Workspace   string
	Environment string
	Role        auth.Role // the reader's
	CreatedAt   time.Time
	StoredBytes int64
	Outputs     int64

	sid uint64
}

// MomentSession is an open session of a state.
type MomentSession struct {
	State  *MomentState
	Holder wire.Holder
}

// MomentRefused is a refused write of a state.
type MomentRefused struct {
	State   *MomentState
	Refused wire.Refused
}

// Moment copies what the reader may read, now. It must be closed. Codes, when
// an environment is named: those of Authorize; and role_too_low when there is
// nothing at all that the reader may read.
func (s *Store) Moment(ctx context.Context, r Reader, parts Parts) (*Moment, error) {
	m := &Moment{s: s, reader: r, At: s.now(), managed: map[string]bool{}, tags: map[uint64]map[uint64][]string{}, revealed: map[string]bool{}}
	if r.Environment != "" {
		if _, err := s.Authorize(ctx, r.Principal, r.Workspace, r.Environment, auth.ReadOutputs); err != nil {
			return nil, err
		}
	}
	if parts&PartEvents != 0 {
		if err := s.noted(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.reading.holdAll(ctx); err != nil {
		return nil, err
	}
	err := s.view(func(tx *bbolt.Tx) error {
		m.lastEvent = tx.Bucket(bEvent).Sequence()
		if err := m.accounts(tx); err != nil {
			return err
		}
		for i := range m.Environments {
			if err := m.states(tx, &m.Environments[i]); err != nil {
				return err
			}
		}
		return m.records(tx, parts)
	})
	if err == nil && len(m.Environments) == 0 && len(m.Workspaces) == 0 {
		err = fault.New(fault.RoleTooLow, "%s may read no states anywhere", r.Display()).
			WithNext("ask an admin of the workspace: kl grant add %s --env ENV --role read", r.Display())
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close lets go of the versions.
func (m *Moment) Close() { m.close.Do(m.s.reading.releaseAll) }

// accounts copies workspaces and environments, by the rule that each request
// to them is judged by.
func (m *Moment) accounts(tx *bbolt.Tx) error {
	p, inside := m.reader.Principal, map[string]bool{}
	only := m.reader.Environment
	if only == "" {
		only = p.Environment // an automation token knows no other
	}
	err := eachRec(tx, bEnvironment, []byte(only), func(_ []byte, e *environmentRec) (bool, error) {
		f := auth.Facts{PathWorkspace: m.reader.Workspace, Environment: e.EnvPublicID}
		if p.Kind == auth.Automation {
			f.Workspace = e.WorkspaceID
		} else if err := m.s.facts(tx, p, &f); err != nil {
			return false, err
		}
		role, code := auth.Decide(p, f, auth.ReadOutputs)
		if code == "" {
			m.Environments = append(m.Environments, MomentEnvironment{e.Environment, role})
			inside[e.WorkspaceID] = inside[e.WorkspaceID] || role.Allows(auth.ReadState)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return eachRec(tx, bWorkspace, nil, func(k []byte, w *workspaceRec) (bool, error) {
		role, err := roleIn(tx, p, string(k))
		if err != nil {
			return false, err
		}
		m.managed[w.WorkspaceID] = role.AtLeast(auth.Admin)
		if inside[w.WorkspaceID] || role != "" && m.reader.Environment == "" {
			m.Workspaces = append(m.Workspaces, w.Workspace)
		}
		return true, nil
	})
}

// states copies the records of an environment's states.
func (m *Moment) states(tx *bbolt.Tx, env *MomentEnvironment) error {
	prefix := pair(env.EnvPublicID, "")
	return eachKV(tx, bName, prefix, func(k, v []byte) (bool, error) {
		sid, err := sidOf(v)
		if err != nil {
			return false, err
		}
		r, ok, err := getRec[stateRec](tx, bState, v)
		if err != nil || !ok {
			return err == nil, err
		}
		mode := r.LockMode
		if mode == "" {
			mode = env.LockMode
		}
		m.States = append(m.States, &MomentState{
			State: wire.State{
				Name: r.Name, Lifecycle: r.Lifecycle, Lineage: r.Lineage, Serial: r.Serial, Version: r.Head, ResourceCount: r.Managed,
				InstanceCount: r.Instances, Bytes: r.Bytes, LockMode: mode, Opaque: r.Opaque, UpdatedAt: r.UpdatedAt, VersionCount: r.Versions,
			},
			Workspace: env.WorkspaceID, Environment: env.EnvPublicID, Role: env.Role, CreatedAt: r.CreatedAt, StoredBytes: r.StoredBytes, Outputs: r.Outputs, sid: sid,
		})
		return true, nil
	})
}

// records copies what hangs on states and may change.
func (m *Moment) records(tx *bbolt.Tx, parts Parts) error {
	for _, st := range m.States {
		if !st.Role.Allows(auth.ReadState) {
			continue
		}
		if parts&PartTags != 0 {
			tags, err := tagsOf(tx, st.sid)
			if err != nil {
				return err
			}
			m.tags[st.sid] = tags
		}
		if parts&PartSessions != 0 {
			err := eachRec(tx, bSession, u64(st.sid), func(_ []byte, h *sessionRec) (bool, error) {
				m.Sessions = append(m.Sessions, MomentSession{st, wire.Holder{
					LockInfo: h.Info, Principal: h.Principal, Since: h.Since, LastActivity: h.LastActivity, Checkpoints: h.Checkpoints,
					BaseVersion: h.BaseVersion, Stale: h.stale(m.At),
				}})
				return true, nil
			})
			if err != nil {
				return err
			}
		}
		if parts&PartRefused != 0 {
			err := eachRec(tx, bRefused, u64(st.sid), func(_ []byte, r *refusedRec) (bool, error) {
				m.Refused = append(m.Refused, MomentRefused{st, r.Refused})
				return true, nil
			})
			if err != nil {
				return err
			}
		}
		if parts&PartRuns != 0 {
			if err := m.runs(tx, st); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReadsStates reports whether there is an environment whose states the reader
// may read, and not only their outputs.
func (m *Moment) ReadsStates() bool {
	for i := range m.Environments {
		if m.Environments[i].Role.Allows(auth.ReadState) {
			return true
		}
	}
	return false
}

// ReadsEvents reports whether the reader may read the audit trail of any
// workspace.
func (m *Moment) ReadsEvents() bool {
	for _, ok := range m.managed {
		if ok {
			return true
		}
	}
	return m.reader.Operator
}

// momentBatch is how many records one read transaction decodes.
const momentBatch = 128

// Versions returns some versions of a state, the newest first, from version
// from on (0: from the newest), and where to go on; next 0 is the end.
func (m *Moment) Versions(st *MomentState, from uint64) (out []wire.Version, next uint64, err error) {
	if from == 0 {
		from = st.Version
	}
	err = m.view(st, func(tx *bbolt.Tx) error {
		for next = from; next != 0 && len(out) < momentBatch; {
			v, err := getVersion(tx, st.sid, next)
			if err != nil {
				return err
			}
			w := v.wire()
			w.Tags = append(w.Tags, m.tags[st.sid][v.Version]...)
			out = append(out, w)
			next = v.Previous
		}
		return nil
	})
	return out, next, err
}

// Version returns one version of a state; false when it has none of that
// number.
func (m *Moment) Version(st *MomentState, n uint64) (out wire.Version, found bool, err error) {
	err = m.view(st, func(tx *bbolt.Tx) error {
		if n == 0 || n > st.Version || !has(tx, bVersion, key(st.sid, n)) {
			return nil
		}
		v, err := getVersion(tx, st.sid, n)
		if err != nil {
			return err
		}
		out, found = v.wire(), true
		out.Tags = append(out.Tags, m.tags[st.sid][n]...)
		return nil
	})
	return out, found, err
}

// Resolve finds a state of the only environment that is read, and the version
// of it that a reference names. Codes: not_found, parameter_invalid, also for
// a version that cannot be looked into.
func (m *Moment) Resolve(state, version string) (*MomentState, uint64, error) {
	i := slices.IndexFunc(m.States, func(st *MomentState) bool { return st.Name == state })
	if i < 0 || m.States[i].Version == 0 {
		return nil, 0, noState(Ref{m.reader.Environment, state})
	}
	st, n := m.States[i], uint64(0)
	err := m.view(st, func(tx *bbolt.Tx) error {
		rec, ok, err := getRec[stateRec](tx, bState, u64(st.sid))
		if err != nil || !ok {
			return cmp.Or(err, purgedMeanwhile(st))
		}
		if n, err = resolve(tx, st.sid, rec, version); err != nil {
			return err
		}
		n = min(n, st.Version) // not what was written since
		v, err := getVersion(tx, st.sid, n)
		if err == nil && v.Opaque {
			err = fault.New(fault.ParameterInvalid, "version %d of the state %s is encrypted or of another format, and cannot be looked into", n, state).
				WithNext("read it as it is: kl state pull %s", state)
		}
		return err
	})
	return st, n, err
}

// Change is one line of what a version changed against the one before.
type Change struct {
	Kind    string // instance, output, check
	Address string // of an instance or of what a check is about; an output's name
	Change  string // added, changed, removed
}

// Changes lists what a version changed against the one before. The first
// version added all that it holds; where a state becomes or ceases to be one
// that cannot be looked into, nothing is listed.
func (m *Moment) Changes(st *MomentState, version uint64) ([]Change, error) {
	var out []Change
	first := false
	err := m.view(st, func(tx *bbolt.Tx) error {
		v, err := getVersion(tx, st.sid, version)
		if err != nil {
			return err
		}
		first = v.Version == 1 && !v.Opaque
		cs, err := changesOf(tx, st.sid, v)
		for i := range cs {
			out = append(out, Change{classNames[cs[i].class], cs[i].address, opNames[cs[i].op]})
		}
		return err
	})
	if err != nil || !first {
		return out, err
	}
	c, err := m.Content(st, version, false)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return out, c.each(func(e element) { out = append(out, Change{classNames[e.class], e.address, opNames[opAdd]}) })
}

var (
	classNames = map[class]string{classInstance: "instance", classOutput: "output", classCheck: "check"}
	opNames    = map[changeOp]string{opAdd: "added", opChange: "changed", opRemove: "removed"}
)

// Events returns some of the events that the reader may read, after the one
// with the id after, and where to go on; next 0 is the end.
func (m *Moment) Events(after uint64) (out []wire.Event, next uint64, err error) {
	err = m.s.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bEvent).Cursor()
		seen := 0
		for k, v := c.Seek(u64(after + 1)); k != nil; k, v = c.Next() {
			id, err := sidOf(k)
			if err != nil {
				return err
			}
			if id > m.lastEvent {
				return nil
			}
			if seen++; seen > 4*momentBatch {
				next = id - 1
				return nil
			}
			e, err := decodeEvent(k, v)
			if err != nil {
				return err
			}
			if m.reader.Environment != "" && e.Environment != m.reader.Environment {
				continue
			}
			if m.reader.Operator || m.managed[e.Workspace] {
				out = append(out, e)
			}
		}
		return nil
	})
	return out, next, err
}

// Reveal adds to the audit trail, once for each environment, that the reader
// is shown sensitive values of its states. Like NoteRead it does not wait for
// the disk.
func (m *Moment) Reveal(st *MomentState) {
	if m.revealed[st.Environment] || m.s.commit == nil {
		return
	}
	m.revealed[st.Environment] = true
	e := wire.Event{Kind: "query_revealed", Principal: m.reader.Display(), Environment: st.Environment, RequestID: m.reader.RequestID}
	m.s.commit.try(func(tx *bbolt.Tx) error { return broken(m.s.event(tx, e)) })
}

// view is Store.view for reading what belongs to a state: one that was purged
// meanwhile is not a damaged one.
func (m *Moment) view(st *MomentState, f func(tx *bbolt.Tx) error) error {
	return m.s.view(func(tx *bbolt.Tx) error {
		err := f(tx)
		if err != nil && !has(tx, bState, u64(st.sid)) {
			return purgedMeanwhile(st)
		}
		return err
	})
}

func purgedMeanwhile(st *MomentState) error {
	return fault.New(fault.Busy, "the state %s was purged while it was read", st.Name).WithNext("ask again")
}

// decodeEvent reads an event's record.
func decodeEvent(k, v []byte) (e wire.Event, err error) {
	if err := json.Unmarshal(v, &e); err != nil {
		return e, fmt.Errorf("event %x: %w", k, err)
	}
	return e, nil
}
