package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/wire"
)

const (
	// ticketTTL is how long a place in the queue is kept for a client that
	// does not come back.
	ticketTTL = 40 * time.Second
	// maxTickets bounds the queue of one state.
	maxTickets = 1000
	// maxReleased is how many released locks of a state are remembered, so
	// that a release that is sent again is answered alike.
	maxReleased = 64
	// staleAfter is how long a session must be silent to be shown as stale. A
	// living apply sends a checkpoint whenever a resource is done; resources
	// that take longer than this are rare, and nothing is released for it.
	staleAfter = time.Hour
)

// contest is all that decides on a LOCK, as one transaction sees it.
type contest struct {
	env     *environmentRec
	mode    string // lock mode now
	sid     uint64 // 0: there is no such state yet
	rec     *stateRec
	holders []*sessionRec // without those that have idled away
	idle    []*sessionRec
	tickets []*ticketRec // in order of arrival, without those given up
	gone    []*ticketRec
	held    []*runHolder // runs with reservations
	over    []*runRec    // runs whose lease is over
}

// readContest collects what decides on locks of a state.
func (s *Store) readContest(tx *bbolt.Tx, ref Ref, now time.Time) (*contest, error) {
	c := &contest{}
	var err error
	var ok bool
	if c.env, ok, err = s.envs.get(tx, bEnvironment, []byte(ref.Environment)); err != nil {
		return nil, err
	} else if !ok {
		return nil, unknownEnvironment(ref.Environment)
	}
	c.sid, c.rec, err = s.find(tx, ref)
	if fault.Is(err, fault.NotFound) {
		c.rec, c.mode = s.newState(ref), modeExclusive
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.mode = modeOf(c.env, c.rec)
	ttl := time.Duration(c.env.LockIdleTTL)
	err = s.eachLock(tx, c.sid, func(h *sessionRec) (bool, error) {
		if h.idle(ttl, now) {
			c.idle = append(c.idle, h)
		} else {
			c.holders = append(c.holders, h)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	err = eachRec(tx, bQueue, u64(c.sid), func(_ []byte, t *ticketRec) (bool, error) {
		if now.Sub(t.LastSeen) > ticketTTL {
			c.gone = append(c.gone, t)
		} else {
			c.tickets = append(c.tickets, t)
		}
		return true, nil
	})
	slices.SortFunc(c.tickets, func(a, b *ticketRec) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(c.holders, func(a, b *sessionRec) int { return a.Since.Compare(b.Since) })
	if err != nil {
		return nil, err
	}
	return c, s.readRuns(tx, c)
}

// eachLock calls f for a state's open sessions until it returns false.
func (s *Store) eachLock(tx *bbolt.Tx, sid uint64, f func(h *sessionRec) (bool, error)) error {
	return eachKV(tx, bSession, u64(sid), func(k, v []byte) (bool, error) {
		h, err := s.locks.decode(bSession, k, v)
		if err != nil {
			return false, err
		}
		return f(h)
	})
}

// ticket returns the place of a lock ID, or nil, and its position from 1 among
// those who wait.
func (c *contest) ticket(id string) (*ticketRec, int) {
	pos := 1
	for _, t := range c.tickets {
		if t.Info.ID == id {
			return t, pos
		}
		if t.confirmed() {
			pos++
		}
	}
	return nil, pos
}

func (c *contest) holder(id string) *sessionRec {
	for _, h := range c.holders {
		if h.Info.ID == id {
			return h
		}
	}
	return nil
}

// free reports whether the lock can be granted now: no holder excludes it and
// nobody who waits in front of it would be passed. Plans share with plans, but
// not past an apply that waits: applies would starve. They share with runs,
// which no other lock does.
func (c *contest) free(info wire.LockInfo) bool {
	if c.mode == modeOptimistic {
		return true
	}
	plan := info.Operation == wire.OperationPlan
	if !plan && len(c.held) > 0 {
		return false
	}
	for _, h := range c.holders {
		if !plan || !h.plan() {
			return false
		}
	}
	for _, t := range c.tickets {
		if t.Info.ID == info.ID {
			break
		}
		if t.confirmed() && !(plan && (t.Run || t.Info.Operation == wire.OperationPlan)) {
			return false
		}
	}
	return true
}

// Lock takes a state's lock, or a share of it for a plan. The same ID from the
// same principal again is granted again. A refusal because of others is
// locked, with "holder" (wire.LockInfo, Info extended) and "queue_position";
// from the second request with one ID on, the request is held open for r.Hold
// and the lock handed over when it is free and the request's turn. Other
// codes: recovery_hold, client_too_new, workspace_suspended, state_archived,
// state_deleted, lock_info_invalid, state_name_invalid.
func (s *Store) Lock(ctx context.Context, r LockRequest) error {
	if err := checkName(r.Ref.Name); err != nil {
		return err
	}
	if err := checkLockID(r.Info.ID); err != nil {
		return err
	}
	l := s.live(r.Ref)
	refusal, again, err := s.tryLock(ctx, l, &r)
	if err != nil || refusal == nil {
		return err
	}
	if !again || r.Hold <= 0 {
		return refusal
	}
	timeout := time.NewTimer(r.Hold)
	defer timeout.Stop()
	for {
		wake := l.waitCh() // before looking, so that no release is missed
		free, err := s.couldLock(&r)
		if err != nil {
			return err
		}
		if free {
			if refusal, _, err = s.tryLock(ctx, l, &r); err != nil || refusal == nil {
				return err
			}
		}
		select {
		case <-wake:
		case <-timeout.C: // a lock that became idle, or a lease that is over, wakes nobody
			if free, err := s.couldLock(&r); err != nil || !free {
				return cmp.Or(err, s.stillLocked(&r))
			}
			refusal, _, err = s.tryLock(ctx, l, &r)
			return cmp.Or(err, refusal)
		case <-r.Stop:
			return s.stillLocked(&r)
		case <-ctx.Done():
			s.giveUp(l, &r)
			return ctx.Err()
		}
	}
}

func checkLockID(id string) error {
	bad := len(id) == 0 || len(id) > 200
	for _, c := range []byte(id) {
		bad = bad || c < 0x20 || c == 0x7f
	}
	if bad {
		return fault.New(fault.LockInfoInvalid, "a lock's ID has 1 to 200 printable characters")
	}
	return nil
}

// couldLock looks, without writing, whether a request's turn has come.
func (s *Store) couldLock(r *LockRequest) (free bool, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		c, err := s.readContest(tx, r.Ref, s.now())
		free = err == nil && c.free(r.Info)
		return err
	})
	return free, err
}

// stillLocked is the refusal as things stand now.
func (s *Store) stillLocked(r *LockRequest) error {
	return s.view(func(tx *bbolt.Tx) error {
		c, err := s.readContest(tx, r.Ref, s.now())
		if err != nil {
			return err
		}
		_, pos := c.ticket(r.Info.ID)
		return c.refusal(r, pos, s.now())
	})
}

// tryLock decides on a LOCK in one transaction: it grants, or gives or renews a
// place in the queue. again says that the client has come back for its place.
func (s *Store) tryLock(ctx context.Context, l *live, r *LockRequest) (refusal error, again bool, err error) {
	woke := false
	err = s.commit.do(ctx, 1024, func(tx *bbolt.Tx) error {
		refusal, again, woke = nil, false, false
		now := s.now()
		c, err := s.readContest(tx, r.Ref, now)
		if err != nil {
			return err
		}
		if err := s.mayLock(tx, c, r); err != nil {
			return err
		}
		if h := c.holder(r.Info.ID); h != nil {
			if h.PrincipalID != r.Actor.ID {
				return c.refusal(r, 0, now)
			}
			h.LastActivity = now
			return broken(s.locks.put(tx, bSession, keyS(c.sid, h.Info.ID), h))
		}
		if t, _ := c.ticket(r.Info.ID); t != nil && t.PrincipalID != r.Actor.ID {
			return c.refusal(r, 0, now)
		}
		if len(c.tickets) >= maxTickets && !c.free(r.Info) {
			return c.refusal(r, len(c.tickets)+1, now)
		}
		woke = len(c.idle)+len(c.gone)+len(c.over) > 0
		if err := s.clearContest(tx, c, r.Ref); err != nil {
			return broken(err)
		}
		if c.free(r.Info) {
			return broken(s.grant(tx, c, r, now))
		}
		again, err = s.queue(tx, c, r, now)
		_, pos := c.ticket(r.Info.ID)
		refusal = c.refusal(r, pos, now)
		return broken(err)
	})
	if err != nil {
		return nil, false, err
	}
	if woke {
		l.changed()
	}
	return refusal, again, nil
}

// mayLock refuses for other reasons than a holder.
func (s *Store) mayLock(tx *bbolt.Tx, c *contest, r *LockRequest) error {
	if err := s.activeEnvironment(tx, r.Ref.Environment); err != nil {
		return err
	}
	if err := activeState(r.Ref, c.rec); err != nil {
		return err
	}
	if err := tooNew(c.env, r.Info); err != nil {
		return err
	}
	if c.sid == 0 || !c.env.RecoveryHold || r.Info.Operation != wire.OperationApply || c.holder(r.Info.ID) != nil {
		return nil
	}
	open, err := openRefused(tx, c.sid)
	if err != nil {
		return err
	}
	for _, f := range open {
		if f.Holds && f.of(r.Actor.Principal) {
			return fault.New(fault.RecoveryHold, "your write of %s to the state %s was refused and kept as %s; it tells of objects that the state does not know",
				f.CreatedAt.Format(time.RFC3339), r.Ref.Name, f.ID).
				WithNext("see it with: kl recover show %s --state %s; then merge, push or discard it", f.ID, r.Ref.Name).
				With("refused_write", f.ID)
		}
	}
	return nil
}

// clearContest removes sessions that idled away, places that were given up and
// runs whose lease is over.
func (s *Store) clearContest(tx *bbolt.Tx, c *contest, ref Ref) error {
	for _, h := range c.idle {
		if err := s.endSession(tx, c.sid, h, ref, Actor{}, "lock_expired"); err != nil {
			return err
		}
	}
	for _, t := range c.gone {
		if err := del(tx, bQueue, keyS(c.sid, t.Info.ID)); err != nil {
			return err
		}
	}
	for _, r := range c.over {
		if err := s.endRun(tx, c.sid, ref, r, Actor{}, wire.RunExpired, leaseOver); err != nil {
			return err
		}
	}
	c.idle, c.gone, c.over = nil, nil, nil
	return nil
}

// grant opens a session.
func (s *Store) grant(tx *bbolt.Tx, c *contest, r *LockRequest, now time.Time) error {
	if c.sid == 0 {
		var err error
		if c.sid, err = s.createState(tx, r.Ref, r.Actor); err != nil {
			return err
		}
		if err := s.heads.put(tx, bState, u64(c.sid), c.rec); err != nil {
			return err
		}
	}
	if t, _ := c.ticket(r.Info.ID); t != nil {
		if err := del(tx, bQueue, keyS(c.sid, r.Info.ID)); err != nil {
			return err
		}
	}
	h := &sessionRec{
		V: 1, Info: r.Info, PrincipalKind: r.Actor.Kind, PrincipalID: r.Actor.ID, Principal: r.Actor.Display(),
		Since: now, LastActivity: now, BaseVersion: c.rec.Head, Shared: c.mode == modeOptimistic,
	}
	if err := s.locks.put(tx, bSession, keyS(c.sid, r.Info.ID), h); err != nil {
		return err
	}
	return s.event(tx, wire.Event{
		Kind: "locked", Principal: r.Actor.Display(), Environment: r.Ref.Environment, State: r.Ref.Name, Version: c.rec.Head, Serial: c.rec.Serial,
		RequestID: r.Actor.RequestID, Detail: map[string]any{"lock_id": r.Info.ID, "operation": r.Info.Operation, "who": r.Info.Who},
	})
}

// queue gives the request a place, or notes that it has come again.
func (s *Store) queue(tx *bbolt.Tx, c *contest, r *LockRequest, now time.Time) (again bool, err error) {
	t, _ := c.ticket(r.Info.ID)
	if t == nil {
		if c.sid == 0 {
			return false, errors.New("a state without a record cannot be locked by others")
		}
		seq, err := tx.Bucket(bQueue).NextSequence()
		if err != nil {
			return false, fmt.Errorf("number a place in the queue: %w", err)
		}
		t = &ticketRec{V: 1, Seq: seq, Info: r.Info, PrincipalID: r.Actor.ID, Since: now}
		c.tickets = append(c.tickets, t)
	}
	t.Seen++
	t.LastSeen = now
	if t.confirmed() {
		t.LastSeen = now.Add(r.Hold)
	}
	return t.confirmed(), putRec(tx, bQueue, keyS(c.sid, t.Info.ID), t)
}

// giveUp drops the place of a client that went away while it was held.
func (s *Store) giveUp(l *live, r *LockRequest) {
	err := s.commit.do(context.Background(), 64, func(tx *bbolt.Tx) error {
		sid, _, err := find(tx, r.Ref)
		if err != nil {
			return err
		}
		return broken(del(tx, bQueue, keyS(sid, r.Info.ID)))
	})
	if err == nil { // otherwise the place ends by its age
		l.changed()
	}
}

// refusal is the answer to a LOCK that others stand in the way of. Where they
// only wait it names no holder: there is nothing to release.
func (c *contest) refusal(r *LockRequest, pos int, now time.Time) error {
	name := r.Ref.Name
	if len(c.held) > 0 && r.Info.Operation != wire.OperationPlan {
		info := c.held[0].lockInfo(now)
		return fault.New(fault.Locked, "parts of the state %s are reserved by the run %s of %s since %s", name, info.ID, info.Who, info.Created).
			WithNext("wait with -lock-timeout=5m; look with: kl runs --state %s; if its owner is gone: kl apply abort --state %s --apply-id %s", name, name, info.ID).
			With("holder", info).With("queue_position", pos)
	}
	if h := c.blocker(r.Info); h != nil {
		info := h.Info
		info.Info = strings.TrimSpace(info.Info + " " + h.describe(now))
		return fault.New(fault.Locked, "the state %s is locked by %s (%s) since %s", name, cmp.Or(info.Who, h.Principal), info.ID, h.Since.Format(time.RFC3339)).
			WithNext("wait with -lock-timeout=5m; look with: kl lock show %s; if its owner is gone: kl lock release %s --id %s", name, name, info.ID).
			With("holder", info).With("queue_position", pos)
	}
	first := ""
	for _, t := range c.tickets {
		if t.confirmed() && t.Info.ID != r.Info.ID {
			first = fmt.Sprintf(", %s since %s", cmp.Or(t.Info.Who, t.Info.ID), t.Since.Format(time.RFC3339))
			break
		}
	}
	return fault.New(fault.Locked, "others wait for the lock of the state %s in front of this request%s", name, first).
		WithNext("wait with -lock-timeout=5m: the place of one who has gone ends after %s; look with: kl lock show %s", ticketTTL, name).
		With("queue_position", pos)
}

// blocker is the session that is named to those who have to wait.
func (c *contest) blocker(info wire.LockInfo) *sessionRec {
	for _, h := range c.holders {
		if !h.plan() || info.Operation != wire.OperationPlan {
			return h
		}
	}
	return nil
}

// describe tells what the server knows of a session.
func (s *sessionRec) describe(now time.Time) string {
	age := func(t time.Time) time.Duration { return max(0, now.Sub(t)).Round(time.Second) }
	text := fmt.Sprintf("held for %s by %s", age(s.Since), s.Principal)
	switch {
	case s.Checkpoints == 1:
		text += fmt.Sprintf(", 1 write, %s ago", age(s.LastCheckpoint))
	case s.Checkpoints > 1:
		text += fmt.Sprintf(", %d writes, the last %s ago", s.Checkpoints, age(s.LastCheckpoint))
	default:
		text += ", no write yet"
	}
	if s.stale(now) {
		text += fmt.Sprintf(", silent for %s", age(s.LastActivity))
	}
	return text
}

func (s *sessionRec) stale(now time.Time) bool { return now.Sub(s.LastActivity) > staleAfter }

// tooNew refuses clients that are newer than the environment accepts.
func tooNew(env *environmentRec, info wire.LockInfo) error {
	if limit := env.MaxTerraformVersion; limit != "" && versionAbove(info.Version, limit) {
		return fault.New(fault.ClientTooNew, "version %s is newer than %s, the newest that this environment accepts", info.Version, limit)
	}
	return nil
}

// versionAbove compares the numbers of two versions, as many as the limit has:
// 1.11 lets all of 1.11 through. What is no version is never above.
func versionAbove(v, limit string) bool {
	a, ok1 := versionNumbers(v)
	b, ok2 := versionNumbers(limit)
	return ok1 && ok2 && slices.Compare(a[:min(len(a), len(b))], b) > 0
}

func versionNumbers(v string) ([]int, bool) {
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "-")
	parts := strings.Split(v, ".")
	if len(parts) > 3 {
		return nil, false
	}
	n := make([]int, len(parts))
	for i, p := range parts {
		x, err := strconv.Atoi(p)
		if err != nil || x < 0 {
			return nil, false
		}
		n[i] = x
	}
	return n, true
}

// LockState tells who holds a state and who waits for it. A state that does
// not exist is held by nobody.
func (s *Store) LockState(_ context.Context, ref Ref) (wire.Lock, error) {
	out := wire.Lock{Mode: modeExclusive, Holders: []wire.Holder{}, Queue: []wire.Waiter{}, Runs: []wire.RunBlock{}}
	err := s.view(func(tx *bbolt.Tx) error {
		now := s.now()
		c, err := s.readContest(tx, ref, now)
		if err != nil {
			return err
		}
		out.Mode = cmp.Or(c.rec.LockMode, c.env.LockMode)
		for _, h := range c.holders {
			out.Holders = append(out.Holders, wire.Holder{
				LockInfo: h.Info, Principal: h.Principal, Since: h.Since, LastActivity: h.LastActivity, Checkpoints: h.Checkpoints,
				BaseVersion: h.BaseVersion, Stale: h.stale(now),
			})
		}
		for _, h := range c.held {
			out.Runs = append(out.Runs, s.block(h.run, h.since, append(h.write.Addresses(), h.read.Addresses()...)))
		}
		for _, t := range c.tickets {
			if !t.confirmed() {
				continue // a refused request that may never come again has no place yet
			}
			out.Queue = append(out.Queue, wire.Waiter{
				ID: t.Info.ID, Who: t.Info.Who, Operation: t.Info.Operation, Since: t.Since, LastSeen: minTime(t.LastSeen, now), Position: len(out.Queue) + 1,
			})
		}
		return nil
	})
	return out, err
}

func minTime(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
