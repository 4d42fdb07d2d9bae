package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/tfstate"
	"kl/wire"
)

const (
	defaultRunLease = 15 * time.Minute
	// maxRuns bounds the live runs of a state, and maxEndedRuns those of which
	// something is remembered.
	maxRuns      = 1000
	maxEndedRuns = 100
	// maxScopes bounds the addresses of one set.
	maxScopes = 10000
	// maxClaim is the size up to which such a set is kept in memory, ready to be
	// searched; larger ones are read when they are needed.
	maxClaim = 64 << 10
)

// runRec is a run. What it reserves is a reservationRec of its own: that is
// written once, this with every request.
type runRec struct {
	V             int           `json:"v"`
	ID            string        `json:"id"`
	PrincipalKind auth.Kind     `json:"principal_kind"`
	PrincipalID   string        `json:"principal_id"`
	User          string        `json:"user,omitempty"` // whose other tokens may speak for it too
	Principal     string        `json:"principal"`      // for people
	Actor         string        `json:"actor"`
	Reason        string        `json:"reason,omitempty"`
	Status        string        `json:"status"`
	CreatedAt     time.Time     `json:"created_at"`
	ReservedAt    time.Time     `json:"reserved_at,omitzero"`
	LeaseEnds     time.Time     `json:"lease_ends"`
	Lock          wire.LockInfo `json:"lock,omitzero"` // of a client within the run
	Serial        uint64        `json:"serial"`        // of its view
	Session       sessionRec    `json:"session"`       // what it saw and sent; Info.ID is the run's id
	View          runView       `json:"view"`
	EndedAt       time.Time     `json:"ended_at,omitzero"`
	EndedBy       string        `json:"ended_by,omitempty"`
	EndReason     string        `json:"end_reason,omitempty"`
	Write         []string      `json:"write,omitempty"` // some of what it had reserved, once it has ended
	Read          []string      `json:"read,omitempty"`
}

// runView is the document that a run sees.
type runView struct {
	Version uint64 `json:"version"`          // whose bytes it has, 0 for none
	Pieces  int    `json:"pieces,omitempty"` // of the difference from them; 0: it is the version itself
	Bytes   int64  `json:"bytes,omitempty"`
	SHA256  []byte `json:"sha256,omitempty"`
}

// reservationRec is there for each live run. It says what the run has reserved.
type reservationRec struct {
	V     int       `json:"v"`
	Since time.Time `json:"since,omitzero"` // zero: nothing yet
	Write []string  `json:"write,omitempty"`
	Read  []string  `json:"read,omitempty"`

	parse       sync.Once // the record is shared by all who read it
	write, read *tfstate.Scopes
	bad         error
}

// scopes are the sets in a form that is quickly searched.
func (r *reservationRec) scopes() (write, read *tfstate.Scopes, err error) {
	r.parse.Do(func() {
		if r.write, r.bad = tfstate.ParseScopes(r.Write); r.bad == nil {
			r.read, r.bad = tfstate.ParseScopes(r.Read)
		}
	})
	return r.write, r.read, r.bad
}

// runHolder is a live run that holds reservations.
type runHolder struct {
	run         *runRec
	since       time.Time
	write, read *tfstate.Scopes
}

// blocks returns which addresses of the holder stand in the way of the two
// sets: a write of one meets whatever the other has.
func (h *runHolder) blocks(write, read *tfstate.Scopes) []string {
	return slices.Compact(sorted(slices.Concat(h.write.Common(write), h.read.Common(write), h.write.Common(read))))
}

func sorted(s []string) []string { slices.Sort(s); return s }

func runKey(sid uint64, id string) []byte { return keyS(sid, id) }

func runPieceKey(sid uint64, id string, piece int) []byte {
	return append(append(keyS(sid, id), 0), u64(uint64(piece))...)
}

// newRunID makes an id that tells the run's state, so that its address needs
// no index.
func newRunID(sid uint64) string { return auth.NewID("run_" + strconv.FormatUint(sid, 36) + "_") }

var runForm = regexp.MustCompile(`^run_([0-9a-z]{1,13})_[0-9a-z]{12}$`)

// runState is the state that a run's id tells; false: it is none.
func runState(id string) (sid uint64, ok bool) {
	m := runForm.FindStringSubmatch(id)
	if m == nil {
		return 0, false
	}
	sid, err := strconv.ParseUint(m[1], 36, 64)
	return sid, err == nil
}

func noRun(id string) *fault.Error {
	return fault.New(fault.NotFound, "there is no run %.64q", id).WithNext("list the runs with: kl runs --state STATE")
}

// unknownRun is for the addresses that Terraform talks to: to it, not_found is
// a state without a version, of which it would make all again.
func unknownRun(id string) *fault.Error {
	return fault.New(fault.UnknownRun, "there is no run %.64q", id)
}

// RunRef tells of which state a run is, and of which workspace. Code:
// unknown_run.
func (s *Store) RunRef(_ context.Context, id string) (ref Ref, workspace string, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		sid, ok := runState(id)
		if !ok || !has(tx, bRun, runKey(sid, id)) {
			return unknownRun(id)
		}
		rec, ok, err := getRec[stateRec](tx, bState, u64(sid))
		if err != nil || !ok {
			return cmp.Or(err, error(unknownRun(id)))
		}
		env, ok, err := s.envs.get(tx, bEnvironment, []byte(rec.Environment))
		if err != nil || !ok {
			return cmp.Or(err, error(unknownRun(id)))
		}
		ref, workspace = Ref{rec.Environment, rec.Name}, env.WorkspaceID
		return nil
	})
	return ref, workspace, err
}

// getRun reads a run of a state. A lease that is over has ended it, whether
// that is written already or not.
func (s *Store) getRun(tx *bbolt.Tx, sid uint64, id string) (*runRec, error) {
	if of, ok := runState(id); !ok || of != sid {
		return nil, noRun(id)
	}
	r, ok, err := getRec[runRec](tx, bRun, runKey(sid, id))
	if err == nil && !ok {
		err = noRun(id)
	}
	if err != nil {
		return nil, err
	}
	if r.live() && s.now().After(r.LeaseEnds) {
		r.Status, r.EndedAt, r.EndReason = wire.RunExpired, r.LeaseEnds, leaseOver
	}
	return r, nil
}

const leaseOver = "its lease was not renewed"

func (r *runRec) live() bool { return wire.RunLive(r.Status) }

// applies notes that the apply of what is reserved has begun.
func (r *runRec) applies() {
	if r.Status == wire.RunReserved {
		r.Status = wire.RunApplying
	}
}

// holds reports whether it has reserved something.
func (r *runRec) holds() bool { return r.Status == wire.RunReserved || r.Status == wire.RunApplying }

// of reports whether the run belongs to p: to the credential that began it, or
// to another one of the same user.
func (r *runRec) of(p auth.Principal) bool {
	return r.PrincipalID == p.ID || r.User != "" && r.User == p.User
}

// mine refuses what is not the caller's. Code: lock_foreign.
func (r *runRec) mine(p auth.Principal) error {
	if r.of(p) {
		return nil
	}
	return fault.New(fault.LockForeign, "the run %s was begun by %s, not by these credentials", r.ID, r.Principal).
		WithNext("use the credentials that began it; to end it: kl apply abort --apply-id %s", r.ID)
}

// going refuses what only a live run may do. Code: reservation_conflict.
func (r *runRec) going(ref Ref) error {
	if r.live() {
		return nil
	}
	by := ""
	if r.EndedBy != "" {
		by = " by " + r.EndedBy
	}
	why := ""
	if r.EndReason != "" {
		why = ": " + r.EndReason
	}
	return fault.New(fault.ReservedConflict, "the run %s on the state %s is %s since %s%s%s", r.ID, ref.Name, r.Status, r.EndedAt.Format(time.RFC3339), by, why).
		WithNext("begin another one: kl apply --orchestrated").With("kind", "reservation").With("run_id", r.ID).With("run_status", r.Status)
}

// reservationOf reads what a run has reserved; false means that it has ended.
// The record is shared and must not be changed.
func (s *Store) reservationOf(tx *bbolt.Tx, k []byte) (*reservationRec, bool, error) {
	if len(peek(tx, bReservation, k)) > maxClaim {
		return getRec[reservationRec](tx, bReservation, k)
	}
	return s.claims.get(tx, bReservation, k)
}

// eachRun calls f for the runs of a state, those that have ended too.
func (s *Store) eachRun(tx *bbolt.Tx, sid uint64, f func(r *runRec) error) error {
	return eachKV(tx, bRun, u64(sid), func(k, _ []byte) (bool, error) {
		if bytes.IndexByte(k[8:], 0) >= 0 { // a piece of a view
			return true, nil
		}
		r, err := s.getRun(tx, sid, string(k[8:]))
		if err == nil {
			err = f(r)
		}
		return err == nil, err
	})
}

// eachLive calls f for the runs of a state that are not marked as ended. A run
// whose lease is over is among them, with the status expired.
func (s *Store) eachLive(tx *bbolt.Tx, sid uint64, f func(r *runRec, res *reservationRec) error) error {
	return eachKV(tx, bReservation, u64(sid), func(k, _ []byte) (bool, error) {
		res, _, err := s.reservationOf(tx, slices.Clone(k))
		if err != nil {
			return false, err
		}
		r, err := s.getRun(tx, sid, string(k[8:]))
		if err == nil {
			err = f(r, res)
		}
		return err == nil, err
	})
}

// holders returns the runs that hold reservations, in the order in which they
// got them.
func (s *Store) holders(tx *bbolt.Tx, sid uint64) (out []*runHolder, err error) {
	err = s.eachLive(tx, sid, func(r *runRec, res *reservationRec) error {
		if !r.holds() {
			return nil
		}
		h := &runHolder{run: r, since: res.Since}
		var err error
		h.write, h.read, err = res.scopes()
		out = append(out, h)
		return err
	})
	slices.SortFunc(out, func(a, b *runHolder) int { return a.since.Compare(b.since) })
	return out, err
}

// StartRun begins a run on the head of a state. Codes: workspace_suspended,
// state_archived, state_deleted, state_opaque, parameter_invalid, busy,
// reservation_conflict when the state has no version yet and another run is to
// make the first.
func (s *Store) StartRun(ctx context.Context, by Actor, ref Ref, q wire.RunRequest) (wire.Run, error) {
	var out wire.Run
	if err := checkName(ref.Name); err != nil {
		return out, err
	}
	actor := cmp.Or(q.Actor, by.Display())
	if err := checkText("actor", actor); err != nil {
		return out, err
	}
	if err := checkText("reason", q.Reason); err != nil {
		return out, err
	}
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		if err := s.activeEnvironment(tx, ref.Environment); err != nil {
			return err
		}
		sid, rec, err := find(tx, ref)
		fresh := fault.Is(err, fault.NotFound)
		switch {
		case fresh:
			rec = s.newState(ref)
		case err != nil:
			return err
		default:
			if err := s.mayStart(tx, sid, ref, rec); err != nil {
				return err
			}
		}
		now := s.now()
		if fresh {
			if sid, err = s.createState(tx, ref, by); err == nil {
				err = putRec(tx, bState, u64(sid), rec)
			}
			if err != nil {
				return broken(err)
			}
		}
		r := &runRec{
			V: 1, ID: newRunID(sid), PrincipalKind: by.Kind, PrincipalID: by.ID, User: by.User, Principal: by.Display(), Actor: actor, Reason: q.Reason,
			Status: wire.RunPlanning, CreatedAt: now,
		}
		s.look(r, rec)
		s.renew(r, now)
		err = errors.Join(
			putRec(tx, bRun, runKey(sid, r.ID), r), putRec(tx, bReservation, runKey(sid, r.ID), &reservationRec{V: 1}),
			s.runEvent(tx, ref, r, by, "run_started", map[string]any{"base_version": r.View.Version, "reason": r.Reason}),
		)
		if err != nil {
			return broken(err)
		}
		out, err = s.wireRun(tx, sid, ref, rec, r)
		return broken(err)
	})
	return out, err
}

func checkText(name, text string) error {
	if text != "" && !plainText(text) {
		return fault.New(fault.ParameterInvalid, "%s has more than %d characters, or some that cannot be printed", name, maxText).WithNext("send one short line")
	}
	return nil
}

// mayStart refuses runs on what cannot be merged, and more of them than can be
// dealt with.
func (s *Store) mayStart(tx *bbolt.Tx, sid uint64, ref Ref, rec *stateRec) error {
	if err := activeState(ref, rec); err != nil {
		return err
	}
	if rec.Opaque {
		return fault.New(fault.StateOpaque, "the state %s is encrypted, or of another form than Terraform's version 4, so that parts of it cannot be reserved", ref.Name).
			WithNext("plan and apply all of it: terraform apply")
	}
	n := 0
	return s.eachLive(tx, sid, func(r *runRec, _ *reservationRec) error {
		if !r.live() {
			return nil
		}
		if n++; n >= maxRuns {
			return fault.New(fault.Busy, "%d runs on the state %s are going on", n, ref.Name).WithNext("see them with: kl runs --state %s", ref.Name)
		}
		if rec.Head == 0 {
			return fault.New(fault.ReservedConflict, "the state %s has no version yet, and the run %s of %s is to make the first", ref.Name, r.ID, r.Actor).
				WithNext("wait for it: kl runs --state %s; to end it: kl apply abort --apply-id %s", ref.Name, r.ID).
				With("kind", "reservation").With("blocking_runs", []wire.RunBlock{s.block(r, r.CreatedAt, nil)})
		}
		return nil
	})
}

// look makes the head what the run sees.
func (s *Store) look(r *runRec, rec *stateRec) {
	r.Serial = rec.Serial
	r.View = runView{Version: rec.Head}
	r.Session = sessionRec{
		V: 1, Info: wire.LockInfo{ID: r.ID, Who: r.Actor}, PrincipalKind: r.PrincipalKind, PrincipalID: r.PrincipalID, Principal: r.Principal,
		Since: r.CreatedAt, BaseVersion: rec.Head, Shared: true, Pinned: true, Checkpoints: r.Session.Checkpoints, LastCheckpoint: r.Session.LastCheckpoint,
	}
}

// renew gives the run another lease.
func (s *Store) renew(r *runRec, now time.Time) {
	r.Session.LastActivity = now
	if ends := now.Add(s.opt.RunLease); ends.After(r.LeaseEnds) {
		r.LeaseEnds = ends
	}
}

func (s *Store) runEvent(tx *bbolt.Tx, ref Ref, r *runRec, by Actor, kind string, detail map[string]any) error {
	detail["run_id"], detail["actor"] = r.ID, r.Actor
	return s.event(tx, wire.Event{
		Kind: kind, Principal: by.Display(), Environment: ref.Environment, State: ref.Name, RequestID: by.RequestID, Serial: r.Serial, Detail: detail,
	})
}

// block describes a run that is in the way.
func (s *Store) block(r *runRec, since time.Time, addresses []string) wire.RunBlock {
	if addresses == nil {
		addresses = []string{}
	}
	return wire.RunBlock{
		RunID: r.ID, Actor: r.Actor, Principal: r.Principal, Status: r.Status, Addresses: addresses[:min(len(addresses), maxListed)],
		Since: since, Age: wire.Duration(max(0, s.now().Sub(since)).Round(time.Second)), LeaseExpiresAt: r.LeaseEnds,
	}
}

// wireRun is a run as the API shows it.
func (s *Store) wireRun(tx *bbolt.Tx, sid uint64, ref Ref, rec *stateRec, r *runRec) (wire.Run, error) {
	w := wire.Run{
		ID: r.ID, State: ref.Name, Environment: ref.Environment, StatePath: wire.RunStatePath(r.ID), BaseVersion: r.Session.BaseVersion, Serial: r.Serial,
		WriteSet: []string{}, ReadSet: []string{}, Actor: r.Actor, Principal: r.Principal, Reason: r.Reason, Status: r.Status, CreatedAt: r.CreatedAt,
		ReservedAt: r.ReservedAt, LastActivity: r.Session.LastActivity, LeaseExpiresAt: r.LeaseEnds, Lease: wire.Duration(s.opt.RunLease),
		Checkpoints: r.Session.Checkpoints, LastCheckpoint: r.Session.LastCheckpoint, LastVersion: r.Session.LastVersion, HeadVersion: rec.Head,
		Moved: []string{}, EndedAt: r.EndedAt, EndedBy: r.EndedBy, EndReason: r.EndReason,
	}
	res, ok, err := s.reservationOf(tx, runKey(sid, r.ID))
	if err != nil {
		return w, err
	}
	if !ok {
		w.WriteSet, w.ReadSet = append(w.WriteSet, r.Write...), append(w.ReadSet, r.Read...)
		return w, nil
	}
	w.WriteSet, w.ReadSet = append(w.WriteSet, res.Write...), append(w.ReadSet, res.Read...)
	if !r.live() {
		return w, nil
	}
	if w.Moved, err = moved(tx, sid, rec, r, res); err != nil {
		return w, err
	}
	w.BaseMoved = len(w.Moved) > 0
	if !has(tx, bQueue, keyS(sid, r.ID)) {
		return w, nil
	}
	c, err := s.readContest(tx, ref, s.now())
	if err != nil {
		return w, err
	}
	if t, pos := c.ticket(r.ID); t != nil {
		w.Waiting, w.QueuePosition = true, pos
	}
	return w, nil
}

// Run returns one run of a state. Code: not_found.
func (s *Store) Run(_ context.Context, ref Ref, id string) (wire.Run, error) {
	var out wire.Run
	err := s.view(func(tx *bbolt.Tx) error {
		sid, rec, err := find(tx, ref)
		if err != nil {
			return err
		}
		r, err := s.getRun(tx, sid, id)
		if err == nil {
			out, err = s.wireRun(tx, sid, ref, rec, r)
		}
		return err
	})
	return out, err
}

// Runs lists the runs of a state, or of all states of an environment when
// ref.Name is empty: the newest first, with live only those that go on. Of
// those that have ended, the last hundred of a state are remembered. Codes:
// not_found, unknown_environment.
func (s *Store) Runs(ctx context.Context, ref Ref, live bool) ([]wire.Run, error) {
	out := []wire.Run{}
	err := s.view(func(tx *bbolt.Tx) error {
		add := func(ref Ref) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			sid, rec, err := find(tx, ref)
			if err != nil {
				return err
			}
			one := func(r *runRec) error {
				if live && !r.live() {
					return nil
				}
				w, err := s.wireRun(tx, sid, ref, rec, r)
				out = append(out, w)
				return err
			}
			if live {
				return s.eachLive(tx, sid, func(r *runRec, _ *reservationRec) error { return one(r) })
			}
			return s.eachRun(tx, sid, one)
		}
		if ref.Name != "" {
			return add(ref)
		}
		if !has(tx, bEnvironment, []byte(ref.Environment)) {
			return unknownEnvironment(ref.Environment)
		}
		prefix := pair(ref.Environment, "")
		return eachKV(tx, bName, prefix, func(k, _ []byte) (bool, error) {
			return true, add(Ref{ref.Environment, string(k[len(prefix):])})
		})
	})
	slices.SortFunc(out, func(a, b wire.Run) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return out, err
}

// changeRun runs a change of a live or ended run in a transaction. f refuses
// before it writes anything and puts what it changes.
func (s *Store) changeRun(ctx context.Context, ref Ref, id string, f func(tx *bbolt.Tx, sid uint64, rec *stateRec, r *runRec) error) (wire.Run, error) {
	var out wire.Run
	err := s.commit.do(ctx, 4096, func(tx *bbolt.Tx) error {
		sid, rec, err := find(tx, ref)
		if err != nil {
			return err
		}
		r, err := s.getRun(tx, sid, id)
		if err != nil {
			return err
		}
		if err := f(tx, sid, rec, r); err != nil {
			return err
		}
		out, err = s.wireRun(tx, sid, ref, rec, r)
		return broken(err)
	})
	return out, err
}
