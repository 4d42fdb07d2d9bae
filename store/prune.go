package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/wire"
)

const (
	// foldAfter is how long the checkpoints of a session stay single.
	foldAfter = 24 * time.Hour
	// pruneBatch and pruneChunks bound what one transaction prunes, so that
	// writers wait for milliseconds.
	pruneBatch  = 200
	pruneChunks = 20000
	// maxRemoved bounds the version numbers in an answer.
	maxRemoved = 1000
)

// lateWrites is how long a run that has ended keeps the version that it saw last:
// what its client still sends is refused, and can be merged by it.
const lateWrites = 24 * time.Hour

// pins are the versions of a state that something needs, whatever the rules of
// retention say.
type pins struct {
	by    map[uint64]string // who needs it
	from  uint64            // all from here on are needed; 0: none
	since string            // by whom
	open  map[string]bool   // IDs of sessions and runs that are not over
}

func (p *pins) add(version uint64, by string) {
	if version != 0 && p.by[version] == "" {
		p.by[version] = by
	}
}

// of tells what needs a version, "" for nothing.
func (p *pins) of(version uint64) string {
	if by := p.by[version]; by != "" {
		return by
	}
	if p.from != 0 && version >= p.from {
		return p.since
	}
	return ""
}

// session adds what a session has seen.
func (p *pins) session(h *sessionRec, by string) {
	p.open[h.Info.ID] = true
	p.add(h.BaseVersion, by)
	p.add(h.LastVersion, by)
	// its first write says by its serial which version it was made on: any since the lock
	if h.LastVersion == 0 && !h.Pinned && !h.plan() && h.BaseVersion != 0 && (p.from == 0 || h.BaseVersion < p.from) {
		p.from, p.since = h.BaseVersion, by
	}
}

// pinned lists what must not be pruned of a state: tagged versions, what open
// sessions and live runs have seen, what open refused writes were made on.
// Whatever else keeps a version's number over a transaction's end adds its own
// here: nothing but this is asked. The head is never pruned.
func (s *Store) pinned(tx *bbolt.Tx, sid uint64) (*pins, error) {
	p := &pins{by: map[uint64]string{}, open: map[string]bool{}}
	err := eachKV(tx, bTag, u64(sid), func(k, v []byte) (bool, error) {
		n, err := sidOf(v)
		p.add(n, "the tag "+string(k[8:]))
		return true, err
	})
	if err != nil {
		return nil, err
	}
	err = eachRec(tx, bSession, u64(sid), func(_ []byte, h *sessionRec) (bool, error) {
		p.session(h, "the open session "+h.Info.ID)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	err = s.eachRun(tx, sid, func(r *runRec) error {
		by := "the run " + r.ID
		switch {
		case has(tx, bReservation, runKey(sid, r.ID)): // not marked as ended
			p.session(&r.Session, by)
			p.add(r.View.Version, by)
		case s.now().Sub(r.EndedAt) < lateWrites:
			p.add(r.Session.BaseVersion, by)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, eachRec(tx, bRefused, u64(sid), func(_ []byte, r *refusedRec) (bool, error) {
		if r.Status == refusedOpen {
			p.add(r.SeenVersion, "the refused write "+r.ID)
		}
		return true, nil
	})
}

// keepRules are an environment's.
type keepRules struct{ last, days int64 }

// expendable returns which of a state's versions, the oldest first, the rules
// do not keep, and when, with nothing else happening, there will be more; zero
// for never. First checkpoints fold: of a session that is over only the last
// write stays, a day after it. Of what is left a version is kept if it is among
// the newest rules.last, or if it was the state's newest at some time in the
// last rules.days; a rule that is 0 keeps nothing, and two of them everything.
// The newest is always kept.
func expendable(vs []versionMeta, rules keepRules, open map[string]bool, now time.Time) (out []uint64, next time.Time) {
	later := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	lastOf := map[sessionKey]time.Time{}
	newer, rank := time.Time{}, int64(0) // of those not folded: when the next newer one came, and how many there are
	for i, v := range slices.Backward(vs) {
		head := i == len(vs)-1
		k := v.session()
		if last, ok := lastOf[k]; ok && k != (sessionKey{}) && !head && !open[v.LockID] && !open[v.RunID] {
			if now.Sub(last) > foldAfter {
				out = append(out, v.Version)
				continue
			}
			later(last.Add(foldAfter))
		} else if !ok {
			lastOf[k] = v.CreatedAt
		}
		byLast := rules.last > 0 && rank < rules.last
		end := newer.AddDate(0, 0, int(rules.days))
		byDays := rules.days > 0 && now.Before(end)
		switch {
		case head, rules == keepRules{}, byLast:
		case byDays:
			later(end)
		default:
			out = append(out, v.Version)
		}
		newer, rank = v.CreatedAt, rank+1
	}
	slices.Reverse(out)
	return out, next
}

// sessionKey tells the writes of one session from those of another that used
// the same ID. The zero value is no session's.
type sessionKey struct {
	lock, run, principal string
	since                int64
}

func (v *versionMeta) session() sessionKey {
	if v.LockID == "" && v.RunID == "" {
		return sessionKey{}
	}
	return sessionKey{v.LockID, v.RunID, v.PrincipalID, v.SessionSince.UnixNano()}
}

// Prune removes the versions of an environment's states, or of one, that its
// rules no longer keep, or tells with q.DryRun which these are. What a tag, an
// open session, an open refused write or a reader needs stays, and so does the
// newest. States in the trash or in the archive are left as they are. Codes:
// not_found for a state that is not there, unknown_environment,
// workspace_suspended.
func (s *Store) Prune(ctx context.Context, by Actor, env string, q wire.PruneRequest) (wire.PruneResult, error) {
	out := wire.PruneResult{DryRun: q.DryRun, States: []wire.PrunedState{}}
	names := []string{q.State}
	err := s.view(func(tx *bbolt.Tx) error {
		e, err := s.prunedEnvironment(tx, env)
		if err != nil {
			return err
		}
		out.KeepLast, out.KeepDays = e.KeepLast, e.KeepDays
		if q.State != "" {
			_, _, err = written(tx, Ref{env, q.State})
		}
		return err
	})
	if err == nil && q.State == "" {
		names, err = s.stateNames(env)
	}
	if err != nil {
		return out, err
	}
	for _, name := range names {
		st, _, err := s.pruneState(ctx, by, Ref{env, name}, q.DryRun)
		if err != nil {
			return out, err
		}
		if st.Versions > 0 || len(st.Held) > 0 {
			out.States = append(out.States, st)
			out.Versions += st.Versions
			out.Bytes += st.Bytes
		}
	}
	return out, nil
}

// prunedEnvironment returns an environment in which something may change.
func (s *Store) prunedEnvironment(tx *bbolt.Tx, id string) (*environmentRec, error) {
	if err := s.activeEnvironment(tx, id); err != nil {
		return nil, err
	}
	e, ok, err := s.envs.get(tx, bEnvironment, []byte(id))
	if err == nil && !ok {
		err = unknownEnvironment(id)
	}
	return e, err
}

// prunePlan is what the rules say of a state at one moment.
type prunePlan struct {
	sid   uint64
	rec   *stateRec // nil: nothing is to be pruned of it
	rules keepRules
	out   []uint64 // versions to go, none of them pinned
	held  []wire.HeldVersion
	next  time.Time // when there will be more; zero: not by time alone
}

func (s *Store) planPrune(tx *bbolt.Tx, ref Ref) (*prunePlan, error) {
	p := &prunePlan{}
	e, err := s.prunedEnvironment(tx, ref.Environment)
	if err != nil {
		return nil, err
	}
	sid, rec, err := find(tx, ref)
	if fault.Is(err, fault.NotFound) {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	if rec.Lifecycle != lifecycleActive || rec.Versions < 2 {
		return p, nil
	}
	p.sid, p.rec, p.rules = sid, rec, keepRules{e.KeepLast, e.KeepDays}
	pin, err := s.pinned(tx, sid)
	if err != nil {
		return nil, err
	}
	vs := make([]versionMeta, 0, rec.Versions)
	err = eachKV(tx, bVersion, u64(sid), func(_, b []byte) (bool, error) {
		m, err := decodeVersionMeta(b)
		vs = append(vs, m)
		return true, err
	})
	if err != nil {
		return nil, fmt.Errorf("prune the state %s: %w", ref.Name, err)
	}
	var all []uint64
	all, p.next = expendable(vs, p.rules, pin.open, s.now())
	for _, n := range all {
		if by := pin.of(n); by == "" {
			p.out = append(p.out, n)
		} else if len(p.held) < maxListed {
			p.held = append(p.held, wire.HeldVersion{Version: n, By: by})
		}
	}
	return p, nil
}

// pruneState prunes one state in as many transactions as it takes, and returns
// the plan that it went by.
func (s *Store) pruneState(ctx context.Context, by Actor, ref Ref, dry bool) (wire.PrunedState, *prunePlan, error) {
	st := wire.PrunedState{Name: ref.Name, Removed: []uint64{}, Held: []wire.HeldVersion{}}
	var p *prunePlan
	if !dry {
		s.pruner.turn.Lock()
		defer s.pruner.turn.Unlock()
	}
	err := s.view(func(tx *bbolt.Tx) (err error) {
		if p, err = s.planPrune(tx, ref); err != nil || p.rec == nil {
			return err
		}
		st.Kept, st.Oldest = p.rec.Versions, p.rec.Oldest
		st.Held = append(st.Held, p.held...)
		if dry {
			err = p.pretend(tx, &st)
		}
		return err
	})
	if err != nil || dry || p.rec == nil {
		return st, p, err
	}
	for batch := range slices.Chunk(p.out, pruneBatch) {
		for len(batch) > 0 {
			if err := ctx.Err(); err != nil {
				return st, p, err
			}
			done, more, err := s.pruneVersions(ctx, by, ref, p, batch)
			if err != nil {
				return st, p, err
			}
			done.into(&st)
			batch = more
		}
	}
	return st, p, nil
}

// batchDone is what one transaction has pruned.
type batchDone struct {
	removed []uint64
	bytes   int64
	rec     stateRec // afterwards
}

func (d *batchDone) into(st *wire.PrunedState) {
	st.Versions += int64(len(d.removed))
	st.Bytes += d.bytes
	st.Removed = append(st.Removed, d.removed[:min(len(d.removed), maxRemoved-len(st.Removed))]...)
	if d.rec.Head != 0 {
		st.Kept, st.Oldest = d.rec.Versions, d.rec.Oldest
	}
}

// pretend tells what pruning would free.
func (p *prunePlan) pretend(tx *bbolt.Tx, st *wire.PrunedState) error {
	d := &batchDone{rec: *p.rec}
	if err := eachRun(tx, p.sid, p.out, func(f *fold) (bool, error) {
		d.folded(f, f.bytes())
		return true, nil
	}); err != nil {
		return err
	}
	d.into(st)
	return nil
}

// folded notes a run that went, or would.
func (d *batchDone) folded(f *fold, bytes int64) {
	for _, v := range f.run {
		d.removed = append(d.removed, v.Version)
	}
	d.bytes += bytes
	d.rec.Versions -= int64(len(f.run))
	d.rec.StoredBytes -= bytes
	if f.before == nil {
		d.rec.Oldest = f.after.Version
	}
}

// eachRun calls f for each run of neighbours among the versions, until it
// returns false. What f writes is seen by the next.
func eachRun(tx *bbolt.Tx, sid uint64, versions []uint64, f func(*fold) (bool, error)) error {
	var there []uint64
	err := eachKV(tx, bVersion, u64(sid), func(k, _ []byte) (bool, error) {
		there = append(there, binary.BigEndian.Uint64(k[8:]))
		return true, nil
	})
	if err != nil {
		return err
	}
	going := make(map[uint64]bool, len(versions))
	for _, v := range versions {
		going[v] = true
	}
	before := uint64(0)
	for i := 0; i < len(there); i++ {
		run := i
		for i < len(there)-1 && going[there[i]] { // never the newest
			i++
		}
		if i > run {
			fd, err := newFold(tx, sid, before, there[run:i+1])
			if err != nil {
				return err
			}
			if more, err := f(fd); err != nil || !more {
				return err
			}
			i = run + len(fd.run)
		}
		before = there[i]
	}
	return nil
}

// pruneVersions prunes in one transaction what is free to go of a batch and
// returns what was too much for one.
func (s *Store) pruneVersions(ctx context.Context, by Actor, ref Ref, p *prunePlan, batch []uint64) (done *batchDone, more []uint64, err error) {
	free, end, err := s.claim(ctx, p.sid, batch)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	if len(free) == 0 {
		return &batchDone{}, nil, nil
	}
	err = s.commit.do(ctx, 1<<20, func(tx *bbolt.Tx) error {
		done, more = &batchDone{}, nil
		rec, going, err := s.stillGoing(tx, ref, p, free)
		if err != nil {
			return err
		}
		if len(going) == 0 {
			return errNothing
		}
		done.rec = *rec
		chunks, wrote := 0, false
		err = eachRun(tx, p.sid, going, func(f *fold) (bool, error) {
			wrote = true
			bytes, err := f.write()
			if err != nil {
				return false, err
			}
			done.folded(f, bytes)
			chunks += len(f.freed)
			return chunks < pruneChunks, nil
		})
		switch {
		case err != nil && !wrote:
			return err
		case err != nil:
			return broken(err)
		case !wrote:
			return errNothing
		}
		if n := len(done.removed); n < len(going) {
			more = going[n:]
		}
		return broken(errors.Join(
			putRec(tx, bState, u64(p.sid), &done.rec),
			s.event(tx, wire.Event{
				Kind: "versions_pruned", Principal: by.Display(), Environment: ref.Environment, State: ref.Name, RequestID: by.RequestID,
				Detail: map[string]any{"versions": len(done.removed), "bytes": done.bytes, "kept": done.rec.Versions, "oldest": done.rec.Oldest},
			}),
		))
	})
	if errors.Is(err, errNothing) {
		return &batchDone{}, nil, nil
	}
	return done, more, err
}

// claimWait is how long pruning waits for those who read many versions.
const claimWait = 30 * time.Second

// claim takes versions for being pruned, once nobody reads all of them.
func (s *Store) claim(ctx context.Context, sid uint64, versions []uint64) (free []uint64, done func(), err error) {
	wait := time.NewTimer(claimWait)
	defer wait.Stop()
	for {
		free, done, busy := s.reading.claim(sid, versions)
		if busy == nil {
			return free, done, nil
		}
		defer s.reading.waited()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-wait.C:
			return nil, nil, fault.New(fault.Busy, "versions are being compared or queried without a pause, so that none can be removed")
		}
	}
}

// stillGoing returns which of the versions may go in the transaction's own
// view of the state. The rules are those of the plan: that time has passed
// since only makes more go.
func (s *Store) stillGoing(tx *bbolt.Tx, ref Ref, p *prunePlan, versions []uint64) (*stateRec, []uint64, error) {
	e, err := s.prunedEnvironment(tx, ref.Environment)
	if err != nil {
		return nil, nil, err
	}
	sid, rec, err := find(tx, ref)
	if fault.Is(err, fault.NotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if sid != p.sid || rec.Lifecycle != lifecycleActive || (keepRules{e.KeepLast, e.KeepDays}) != p.rules {
		return nil, nil, nil
	}
	pin, err := s.pinned(tx, sid)
	if err != nil {
		return nil, nil, err
	}
	going := slices.DeleteFunc(slices.Clone(versions), func(n uint64) bool { return pin.of(n) != "" })
	return rec, going, nil
}
