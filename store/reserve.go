package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/tfstate"
	"kl/wire"
)

// ReserveRequest asks for a run's reservations.
type ReserveRequest struct {
	Ref   Ref
	Actor Actor
	Run   string
	Want  wire.ReserveRequest
	// Hold is how long the request may be held open until its turn comes; 0
	// means not at all.
	Hold time.Duration
	// Stop, when closed, ends the holding with the ordinary refusal; the run
	// keeps its place in the queue. May be nil.
	Stop <-chan struct{}
}

// asked is what a run wants to reserve.
type asked struct{ write, read *tfstate.Scopes }

func parseAsked(q wire.ReserveRequest) (*asked, error) {
	for name, set := range map[string][]string{"write_set": q.WriteSet, "read_set": q.ReadSet} {
		if len(set) > maxScopes {
			return nil, fault.New(fault.ParameterInvalid, "%s has %d addresses, more than %d", name, len(set), maxScopes).
				WithNext("name whole resources or modules instead of their instances")
		}
	}
	bad := func(name string, err error) error {
		return fault.New(fault.ParameterInvalid, "%s has %s", name, err.Error()).
			WithNext("write addresses as terraform state list prints them, or those of whole resources and modules")
	}
	a := &asked{}
	var err error
	if a.write, err = tfstate.ParseScopes(q.WriteSet); err != nil {
		return nil, bad("write_set", err)
	}
	if a.read, err = tfstate.ParseScopes(q.ReadSet); err != nil {
		return nil, bad("read_set", err)
	}
	if a.write.Len()+a.read.Len() == 0 {
		return nil, fault.New(fault.ParameterInvalid, "write_set and read_set are empty: nothing would be reserved").
			WithNext("name at least one address; a run that changes nothing needs no reservation")
	}
	return a, nil
}

// Reserve reserves a run's write and read sets, all or nothing: they replace
// what it has reserved before. A write set meets the write and read sets of
// other live runs, a read set their write sets; in exclusive mode runs and
// locks that are not for a plan exclude each other. What is in the way is
// reservation_conflict with "blocking_runs", or "holder" for a lock. A run
// that holds nothing yet and wants to wait gets a place in the state's queue,
// and is held open for r.Hold; one that does hold something never waits, so
// that no two can wait for each other. Other codes: not_found, lock_foreign,
// parameter_invalid, recovery_hold, lifecycle ones.
func (s *Store) Reserve(ctx context.Context, r ReserveRequest) (wire.Run, error) {
	a, err := parseAsked(r.Want)
	if err != nil {
		return wire.Run{}, err
	}
	l := s.live(r.Ref)
	t, err := s.tryReserve(ctx, l, &r, a)
	if err != nil || t.refusal == nil {
		return t.run, err
	}
	if !t.waits || r.Hold <= 0 {
		return wire.Run{}, t.refusal
	}
	timeout := time.NewTimer(r.Hold)
	defer timeout.Stop()
	for {
		wake := l.waitCh() // before looking, so that no release is missed
		free, ends, err := s.couldReserve(&r, a)
		if err != nil {
			return wire.Run{}, err
		}
		if free {
			if t, err = s.tryReserve(ctx, l, &r, a); err != nil || t.refusal == nil {
				return t.run, err
			}
		}
		lease := time.NewTimer(ends)
		select {
		case <-wake:
		case <-lease.C:
		case <-timeout.C:
			lease.Stop()
			return wire.Run{}, s.stillReserved(&r, a, t.refusal)
		case <-r.Stop:
			lease.Stop()
			return wire.Run{}, s.stillReserved(&r, a, t.refusal)
		case <-ctx.Done(): // its place ends by its age, or with the run
			lease.Stop()
			return wire.Run{}, ctx.Err()
		}
		lease.Stop()
	}
}

// stillReserved is the refusal as things stand now; first is what it was at
// first.
func (s *Store) stillReserved(r *ReserveRequest, a *asked, first error) error {
	refusal := first
	err := s.view(func(tx *bbolt.Tx) error {
		c, err := s.readContest(tx, r.Ref, s.now())
		if err != nil {
			return err
		}
		run, err := s.getRun(tx, c.sid, r.Run)
		if err != nil {
			return err
		}
		o, err := s.inTheWay(c, run, a)
		if err == nil && o.any() {
			_, pos := c.ticket(run.ID)
			refusal = o.refusal(r, pos)
		}
		return err
	})
	return cmp.Or(err, refusal)
}

// couldReserve looks, without writing, whether a run's turn has come, and in
// what time the next lease or place ends.
func (s *Store) couldReserve(r *ReserveRequest, a *asked) (free bool, ends time.Duration, err error) {
	ends = time.Hour
	err = s.view(func(tx *bbolt.Tx) error {
		now := s.now()
		c, err := s.readContest(tx, r.Ref, now)
		if err != nil {
			return err
		}
		run, err := s.getRun(tx, c.sid, r.Run)
		if err != nil {
			return err
		}
		if !run.live() {
			free = true // to be told so
			return nil
		}
		o, err := s.inTheWay(c, run, a)
		free = err == nil && !o.any()
		for _, h := range c.held {
			ends = min(ends, max(h.run.LeaseEnds.Sub(now), 0)+time.Millisecond)
		}
		for _, t := range c.tickets {
			ends = min(ends, max(t.LastSeen.Add(ticketTTL).Sub(now), 0)+time.Millisecond)
		}
		return err
	})
	return free, ends, err
}

// trial is what became of one attempt to reserve.
type trial struct {
	run     wire.Run
	refusal error
	waits   bool // the run has a place in the queue
}

// tryReserve decides in one transaction. Whatever the answer, the run's lease
// is renewed: it has been heard of.
func (s *Store) tryReserve(ctx context.Context, l *live, r *ReserveRequest, a *asked) (trial, error) {
	var t trial
	woke := false
	size := 4096
	for _, set := range [][]string{r.Want.WriteSet, r.Want.ReadSet} {
		for _, address := range set {
			size += len(address)
		}
	}
	err := s.commit.do(ctx, size, func(tx *bbolt.Tx) error {
		t, woke = trial{}, false
		now := s.now()
		sid, rec, err := find(tx, r.Ref)
		if err != nil {
			return err
		}
		if err := cmp.Or(s.activeEnvironment(tx, r.Ref.Environment), activeState(r.Ref, rec)); err != nil {
			return err
		}
		run, err := s.getRun(tx, sid, r.Run)
		if err != nil {
			return err
		}
		if err := cmp.Or(run.mine(r.Actor.Principal), run.going(r.Ref)); err != nil {
			return err
		}
		c, err := s.readContest(tx, r.Ref, now)
		if err != nil {
			return err
		}
		if err := s.recoveryHeld(tx, c, r, a); err != nil {
			return err
		}
		o, err := s.inTheWay(c, run, a)
		if err != nil {
			return err
		}
		woke = len(c.idle)+len(c.gone)+len(c.over) > 0
		if err := s.clearContest(tx, c, r.Ref); err != nil {
			return broken(err)
		}
		if !o.any() {
			if err := s.grantRun(tx, c, r, run, a, now); err != nil {
				return broken(err)
			}
			t.run, err = s.wireRun(tx, sid, r.Ref, rec, run)
			return broken(err)
		}
		pos := 0
		if t.waits = r.Want.Wait > 0 && !run.holds() && (len(c.tickets) < maxTickets || hasTicket(c, run.ID)); t.waits {
			if pos, err = s.queueRun(tx, c, r, run, a, now); err != nil {
				return broken(err)
			}
		} else if err := del(tx, bQueue, keyS(sid, run.ID)); err != nil {
			return broken(err)
		}
		s.renew(run, now)
		if ends := now.Add(r.Hold + s.opt.RunLease); t.waits && ends.After(run.LeaseEnds) {
			run.LeaseEnds = ends // it is not heard of while it is held open
		}
		t.refusal = o.refusal(r, pos)
		return broken(putRec(tx, bRun, runKey(sid, run.ID), run))
	})
	if err == nil && woke {
		l.changed()
	}
	return t, err
}

func hasTicket(c *contest, id string) bool { t, _ := c.ticket(id); return t != nil }

// recoveryHeld refuses to reserve what a refused write of the same credential
// tells of: applied again, it would be created twice.
func (s *Store) recoveryHeld(tx *bbolt.Tx, c *contest, r *ReserveRequest, a *asked) error {
	if !c.env.RecoveryHold {
		return nil
	}
	open, err := openRefused(tx, c.sid)
	if err != nil {
		return err
	}
	for _, f := range open {
		if !f.Holds || !f.of(r.Actor.Principal) {
			continue
		}
		meets := f.UnknownAll || slices.ContainsFunc(f.Unknown, func(h heldRec) bool {
			sc, err := tfstate.ParseScope(h.Address)
			return err == nil && a.write.Overlap(sc)
		})
		if meets {
			return fault.New(fault.RecoveryHold, "your write of %s to the state %s was refused and kept as %s; it tells of objects that the state does not know, and that this run would make again",
				f.CreatedAt.Format(time.RFC3339), r.Ref.Name, f.ID).
				WithNext("see it with: kl recover show %s --state %s; then merge or discard it", f.ID, r.Ref.Name).
				With("refused_write", f.ID)
		}
	}
	return nil
}

// obstacles are what a run has to wait for.
type obstacles struct {
	runs []wire.RunBlock
	all  []string       // addresses of the runs, sorted
	lock *wire.LockInfo // in exclusive mode, of who holds the state or waits in front
	text string         // who that is
}

func (o *obstacles) any() bool { return len(o.runs) > 0 || o.lock != nil }

// inTheWay finds what keeps a run from reserving.
func (s *Store) inTheWay(c *contest, run *runRec, a *asked) (*obstacles, error) {
	o := &obstacles{}
	meet := func(b wire.RunBlock, addresses []string) {
		b.Addresses = addresses[:min(len(addresses), maxListed)]
		o.runs = append(o.runs, b)
		o.all = append(o.all, addresses...)
	}
	for _, h := range c.held {
		if h.run.ID == run.ID {
			continue
		}
		if common := h.blocks(a.write, a.read); len(common) > 0 {
			meet(s.block(h.run, h.since, nil), common)
		}
	}
	exclusive := c.mode == modeExclusive
	for _, h := range c.holders {
		if exclusive && !h.plan() && o.lock == nil {
			info := h.Info
			info.Info = strings.TrimSpace(info.Info + " " + h.describe(s.now()))
			o.lock, o.text = &info, fmt.Sprintf("the state is locked by %s (%s) since %s", cmp.Or(info.Who, h.Principal), info.ID, h.Since.Format(time.RFC3339))
		}
	}
	if !run.holds() { // who holds something and was made to wait could wait for ever
		if err := s.inFront(c, run, a, exclusive, o, meet); err != nil {
			return nil, err
		}
	}
	slices.Sort(o.all)
	o.all = slices.Compact(o.all)
	return o, nil
}

// inFront finds who has come first and waits for the same.
func (s *Store) inFront(c *contest, run *runRec, a *asked, exclusive bool, o *obstacles, meet func(wire.RunBlock, []string)) error {
	for _, t := range c.tickets {
		if t.Info.ID == run.ID {
			break
		}
		switch {
		case t.Run:
			h := &runHolder{}
			var err error
			if h.write, err = tfstate.ParseScopes(t.Write); err == nil {
				h.read, err = tfstate.ParseScopes(t.Read)
			}
			if err != nil {
				return err
			}
			if common := h.blocks(a.write, a.read); len(common) > 0 {
				w := &runRec{ID: t.Info.ID, Actor: t.Info.Who, Status: wire.RunPlanning, LeaseEnds: t.LastSeen.Add(ticketTTL)}
				b := s.block(w, t.Since, nil)
				b.Waiting = true
				meet(b, common)
			}
		case exclusive && t.confirmed() && t.Info.Operation != wire.OperationPlan && o.lock == nil:
			info := t.Info
			info.Info = strings.TrimSpace(info.Info + " waits for the lock since " + t.Since.Format(time.RFC3339))
			o.lock, o.text = &info, fmt.Sprintf("%s waits for the lock (%s) since %s", cmp.Or(info.Who, "somebody"), info.ID, t.Since.Format(time.RFC3339))
		}
	}
	return nil
}

// refusal is the answer to a run that has to wait.
func (o *obstacles) refusal(r *ReserveRequest, pos int) error {
	var f *fault.Error
	if len(o.runs) > 0 {
		b := o.runs[0]
		verb := "reserved by"
		if b.Waiting {
			verb = "waited for in front by"
		}
		f = fault.New(fault.ReservedConflict, "%s in the state %s is %s the run %s of %s for %s; its lease ends at %s%s",
			b.Addresses[0], r.Ref.Name, verb, b.RunID, b.Actor, time.Duration(b.Age), b.LeaseExpiresAt.Format(time.RFC3339), andMore(len(o.all)-1)).
			WithNext("wait for it (--wait 5m), or see it with: kl runs show %s --state %s; if its owner is gone: kl apply abort --apply-id %s", b.RunID, r.Ref.Name, b.RunID).
			With("blocking_runs", o.runs[:min(len(o.runs), maxListed)]).With("run_id", b.RunID)
	} else {
		f = fault.New(fault.ReservedConflict, "nothing of the state %s can be reserved in exclusive mode: %s", r.Ref.Name, o.text).
			WithNext("wait for it (--wait 5m), or see it with: kl lock show %s", r.Ref.Name)
	}
	if o.lock != nil {
		f = f.With("holder", *o.lock)
	}
	if pos > 0 {
		f = f.With("queue_position", pos)
	}
	return f.With("kind", "reservation").
		With("conflicting_addresses", append([]string{}, o.all[:min(len(o.all), maxListed)]...)).With("conflicting_count", len(o.all))
}

// grantRun stores a run's reservations.
func (s *Store) grantRun(tx *bbolt.Tx, c *contest, r *ReserveRequest, run *runRec, a *asked, now time.Time) error {
	res := &reservationRec{V: 1, Since: now, Write: a.write.Addresses(), Read: a.read.Addresses()}
	if run.holds() {
		res.Since = run.ReservedAt
	} else {
		run.Status, run.ReservedAt = wire.RunReserved, now
	}
	s.renew(run, now)
	return errors.Join(
		putRec(tx, bReservation, runKey(c.sid, run.ID), res), putRec(tx, bRun, runKey(c.sid, run.ID), run), del(tx, bQueue, keyS(c.sid, run.ID)),
		s.runEvent(tx, r.Ref, run, r.Actor, "run_reserved", map[string]any{
			"write_set": res.Write[:min(len(res.Write), maxListed)], "write_count": len(res.Write), "read_count": len(res.Read),
		}),
	)
}

// queueRun gives a run its place among those who wait for the state, or notes
// that it is still there, and returns the place, from 1. It counts at once:
// unlike a LOCK, the request says that it waits.
func (s *Store) queueRun(tx *bbolt.Tx, c *contest, r *ReserveRequest, run *runRec, a *asked, now time.Time) (int, error) {
	t, _ := c.ticket(run.ID)
	if t == nil {
		seq, err := tx.Bucket(bQueue).NextSequence()
		if err != nil {
			return 0, fmt.Errorf("number a place in the queue: %w", err)
		}
		t = &ticketRec{
			V: 1, Seq: seq, Info: wire.LockInfo{ID: run.ID, Who: run.Actor, Operation: operationRun}, PrincipalID: run.PrincipalID, Since: now, Seen: 1, Run: true,
		}
		c.tickets = append(c.tickets, t)
	}
	t.Seen++
	t.LastSeen = now.Add(r.Hold)
	t.Write, t.Read = a.write.Addresses(), a.read.Addresses()
	_, pos := c.ticket(run.ID)
	return pos, putRec(tx, bQueue, keyS(c.sid, run.ID), t)
}

// operationRun is the operation that a run shows where locks are shown.
const operationRun = "kl apply --orchestrated"

// readRuns adds the runs to what decides on locks.
func (s *Store) readRuns(tx *bbolt.Tx, c *contest) error {
	var err error
	if c.held, err = s.holders(tx, c.sid); err != nil {
		return err
	}
	return s.eachLive(tx, c.sid, func(r *runRec, _ *reservationRec) error {
		if !r.live() {
			c.over = append(c.over, r)
		}
		return nil
	})
}

// lockInfo is a run as those see it who want the state's lock.
func (h *runHolder) lockInfo(now time.Time) wire.LockInfo {
	first := slices.Concat(h.write.Addresses(), h.read.Addresses())
	more := andMore(len(first) - 3)
	return wire.LockInfo{
		ID: h.run.ID, Who: h.run.Actor, Operation: operationRun, Created: h.since.Format(time.RFC3339),
		Info: fmt.Sprintf("a run reserves %s%s; %s; its lease ends at %s unless it is renewed", strings.Join(first[:min(len(first), 3)], ", "), more,
			h.run.Session.describe(now), h.run.LeaseEnds.Format(time.RFC3339)),
	}
}

// moved returns the addresses among what a run has reserved that others have
// changed since it last looked.
func moved(tx *bbolt.Tx, sid uint64, rec *stateRec, r *runRec, res *reservationRec) ([]string, error) {
	out := []string{}
	if res.Since.IsZero() || rec.Head == r.Session.BaseVersion {
		return out, nil
	}
	all := slices.Concat(res.Write, res.Read)
	v := view{version: r.Session.BaseVersion}
	others, err := v.since(tx, sid, rec)
	if errors.Is(err, errUnlisted) {
		return append(out, all[:min(len(all), maxListed)]...), nil
	}
	if err != nil {
		return out, err
	}
	write, read, err := res.scopes()
	if err != nil {
		return out, err
	}
	for e := range others {
		if e.class != classInstance {
			continue
		}
		if sc, err := tfstate.ParseScope(e.address); err == nil && (write.Overlap(sc) || read.Overlap(sc)) {
			out = append(out, e.address)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxListed)], nil
}

// notReserved refuses what would pull a state from under runs. Code:
// lock_required.
func (s *Store) notReserved(tx *bbolt.Tx, sid uint64, ref Ref) error {
	held, err := s.holders(tx, sid)
	if err != nil || len(held) == 0 {
		return err
	}
	h := held[0]
	return fault.New(fault.LockRequired, "parts of the state %s are reserved by the run %s of %s%s", ref.Name, h.run.ID, h.run.Actor, andMore(len(held)-1)).
		WithNext("wait for it: kl runs --state %s; if its owner is gone: kl apply abort --apply-id %s", ref.Name, h.run.ID).
		With("holder", h.lockInfo(s.now()))
}
