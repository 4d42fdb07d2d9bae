package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/merge"
	"kl/tfstate"
	"kl/wire"
)

// rolledBack is where the content of a version comes from that a rollback
// made.
type rolledBack struct {
	to      uint64 // version
	address string // "" for the whole state
}

// Rollback makes a new version with the content of an earlier one, or with what
// an earlier one had at an address and the head's else: instances that were not
// there then go, those that were there come back. Nothing else is touched, and
// the version before stays, so that another rollback undoes it. The serial is
// the head's plus one; only an encrypted document, which nobody else can change,
// keeps its own. When the content is the head's already, no version
// is made. For who shares the state it is the work of somebody else, which
// their next write is merged with. q.DryRun only tells.
//
// Codes: not_found, parameter_invalid, state_opaque; lock_required while a lock
// is held in exclusive mode; lineage_conflict, reservation_conflict, quota and
// lifecycle ones.
func (s *Store) Rollback(ctx context.Context, by Actor, ref Ref, q wire.RollbackRequest) (wire.Rollback, error) {
	none := wire.Rollback{}
	within, err := parseScope(q.Address)
	if err != nil {
		return none, err
	}
	l := s.live(ref)
	if err := l.lockWrite(ctx); err != nil {
		return none, err
	}
	defer l.unlockWrite()
	for range maxAttempts {
		out, err := s.rollbackOnce(ctx, l, by, ref, q, within)
		if !errors.Is(err, errMoved) {
			return out, err
		}
		s.cache.remove(l)
	}
	return none, fault.New(fault.Busy, "the state %s is changed too quickly by others", ref.Name)
}

func (s *Store) rollbackOnce(ctx context.Context, l *live, by Actor, ref Ref, q wire.RollbackRequest, within *scope) (wire.Rollback, error) {
	none := wire.Rollback{}
	snap, err := s.Version(ctx, ref, string(q.To))
	if err != nil {
		return none, err
	}
	defer snap.Close()
	b, err := s.loadBase(l, &WriteRequest{Ref: ref, Actor: by})
	if err != nil {
		return none, err
	}
	if b.head == nil {
		return none, errMoved // purged since
	}
	var old []byte
	if b.body != nil {
		defer b.body.unref()
		old = b.body.Bytes()
	}
	if within != nil && snap.Opaque {
		return none, opaque(ref, snap.Version.Version, "rolled back in part")
	}
	if within != nil && b.rec.Opaque {
		return none, opaque(ref, b.rec.Head, "rolled back in part")
	}
	then := &gather{ctx: ctx, s: s, size: int(snap.Bytes)}
	defer then.release()
	if _, err := snap.WriteTo(then); err != nil {
		return none, err
	}
	out := wire.Rollback{
		To: snap.Version.Version, ToSerial: snap.Serial, Address: q.Address, DryRun: q.DryRun, Serial: b.rec.Serial, Opaque: snap.Opaque || b.rec.Opaque,
		Added: []string{}, Changed: []string{}, Removed: []string{}, Dependents: []wire.Dependent{}, Missing: []wire.Dependent{}, Twice: []wire.Twice{},
	}
	var body *Body
	if within == nil {
		body, err = s.wholeThen(ref, snap, then.b, &b.rec)
	} else {
		body, err = s.partThen(ctx, ref, then.b, b, old, within)
	}
	if err != nil {
		return none, err
	}
	if body == nil {
		// a state that may not be rolled back says so also when there is nothing to do
		w := &writing{r: &WriteRequest{Ref: ref, Actor: by}, planned: &b.rec}
		if err := s.view(func(tx *bbolt.Tx) error { return s.mayRollBack(tx, w) }); err != nil {
			return none, err
		}
		out.Unchanged = true
		return out, nil
	}
	defer body.unref()
	p, err := s.plan(ctx, b.rec, b.head, old, body, false)
	if err != nil {
		return none, err
	}
	if err := describeRollback(&out, p); err != nil {
		return none, err
	}
	if err := s.commitRollback(ctx, l, &WriteRequest{Ref: ref, Actor: by, Body: body}, p, &b.rec, &out); err != nil {
		return none, err
	}
	return out, nil
}

// wholeThen is the document of an earlier version with the next serial; nil
// when it has the head's content.
func (s *Store) wholeThen(ref Ref, snap *Snapshot, then []byte, rec *stateRec) (*Body, error) {
	start, end, err := serialSpan(snap.Opaque, then)
	if err != nil {
		return nil, err
	}
	if end == 0 {
		if snap.SHA256 == hex.EncodeToString(rec.SHA256) {
			return nil, nil
		}
		return s.ownBody(bytes.Clone(then)), nil
	}
	same := sha256.New()
	for _, part := range [][]byte{then[:start], strconv.AppendUint(nil, rec.Serial, 10), then[end:]} {
		_, _ = same.Write(part) // never fails
	}
	if bytes.Equal(same.Sum(nil), rec.SHA256) {
		return nil, nil
	}
	next, err := serialAfter(ref, rec)
	if err != nil {
		return nil, err
	}
	return s.ownBody(slices.Concat(then[:start], strconv.AppendUint(nil, next, 10), then[end:])), nil
}

// serialAfter is the serial that follows the head's.
func serialAfter(ref Ref, rec *stateRec) (uint64, error) {
	if rec.Serial == math.MaxUint64 {
		return 0, fault.New(fault.SerialConflict, "the state %s has the highest serial that there is, %d, so that none can follow", ref.Name, rec.Serial).
			With("kind", "serial").With("latest_serial", rec.Serial).With("latest_version", rec.Head).
			WithNext("write the version's bytes with a lower serial: kl state pull %s --version VERSION; kl state allow %s --lower-serial; kl state push %s FILE --force", ref.Name, ref.Name, ref.Name)
	}
	return rec.Serial + 1, nil
}

// serialSpan is where a stored document has its serial; 0 and 0 when that may not
// be changed: OpenTofu compares the one of an encrypted document with the one
// inside.
func serialSpan(opaque bool, b []byte) (start, end int, err error) {
	if opaque {
		info, err := tfstate.Sniff(b)
		if err != nil {
			return 0, 0, fmt.Errorf("find the serial of a stored version: %w", err)
		}
		if info.Encrypted {
			return 0, 0, nil
		}
		return info.SerialStart, info.SerialEnd, nil
	}
	sc := tfstate.NewScanner(b, tfstate.Options{Reordered: true})
	for sc.Head().SerialEnd == 0 {
		if _, err := sc.Next(); err != nil {
			if errors.Is(err, io.EOF) && sc.Head().SerialEnd != 0 {
				break
			}
			return 0, 0, fmt.Errorf("find the serial of a stored version: %w", err)
		}
	}
	return sc.Head().SerialStart, sc.Head().SerialEnd, nil
}

// partThen is the head with what an earlier version had within a scope; nil
// when that is the same.
func (s *Store) partThen(ctx context.Context, ref Ref, then []byte, b *base, old []byte, within *scope) (*Body, error) {
	p, err := s.planThen(ctx, then, b, old)
	if err != nil {
		return nil, err
	}
	differs := slices.ContainsFunc(p.changes, func(c change) bool { return within.covers(c.element) })
	if !differs {
		return nil, s.knowScope(ref, p, within)
	}
	next, err := serialAfter(ref, &b.rec)
	if err != nil {
		return nil, err
	}
	head, err := s.headBytes(p)
	if err != nil {
		return nil, err
	}
	doc, err := merge.Build(head, then, p.stretches(), func(e merge.Element) bool {
		return e.Class == merge.Instance && within.covers(element{classInstance, e.Address})
	}, merge.Options{Serial: next})
	if errors.Is(err, merge.ErrCannot) {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the state %s has a form that cannot be rolled back in part", ref.Name).
			WithNext("roll back all of it: kl rollback %s --to VERSION", ref.Name)
	}
	if err != nil {
		return nil, err
	}
	return s.ownBody(doc), nil
}

// planThen compares an earlier version with the head.
func (s *Store) planThen(ctx context.Context, then []byte, b *base, old []byte) (*plan, error) {
	body := s.ownBody(bytes.Clone(then))
	defer body.unref()
	return s.plan(ctx, b.rec, b.head, old, body, true)
}

// knowScope makes sure that an address at which nothing differs is not one that
// is mistyped.
func (s *Store) knowScope(ref Ref, p *plan, within *scope) error {
	head, err := s.headBytes(p)
	if err != nil {
		return err
	}
	known := false
	err = eachInstance(head, s.seed, func(address string, _ bool, _ func() [16]byte) {
		known = known || within.covers(element{classInstance, address})
	})
	if err == nil && !known {
		err = fault.New(fault.NotFound, "neither version of the state %s has anything at %s", ref.Name, within.text).
			WithNext("list what is there with: kl query resources %s", ref.Name)
	}
	return err
}

// maxRollback bounds each list of a rollback's preview.
const maxRollback = 1000

// describeRollback lists what a planned rollback does to the head, and which
// instances that it leaves alone depend on what it changes or removes.
func describeRollback(out *wire.Rollback, p *plan) error {
	if p.unlisted {
		out.Opaque = true
		return nil
	}
	list := func(to *[]string, n *int, address string) {
		if *n++; *n <= maxRollback {
			*to = append(*to, address)
		} else {
			out.Truncated = true
		}
	}
	ours, touched := map[string]bool{}, map[string]string{} // touched: a resource's address without keys → what happens to it
	for i := range p.changes {
		c := &p.changes[i]
		if c.class == classOutput {
			out.Counts.Outputs++
		}
		if c.class != classInstance {
			continue
		}
		config := ConfigAddress(c.address)
		switch c.op {
		case opAdd:
			list(&out.Added, &out.Counts.Added, c.address)
			ours[c.address] = true
		case opChange:
			list(&out.Changed, &out.Counts.Changed, c.address)
			ours[c.address] = true
			touched[config] = cmp.Or(touched[config], wire.DiffChanged)
		case opRemove:
			list(&out.Removed, &out.Counts.Removed, c.address)
			touched[config] = wire.DiffRemoved
		}
	}
	return bystanders(out, p.body.Bytes(), ours, touched)
}

// objects are the addresses of each object of a document.
type objects struct {
	provider string // of the resource that is open
	at       map[string][]string
}

func (o *objects) see(t *tfstate.Token) {
	switch {
	case t.Kind == tfstate.CutResource:
		o.provider = tfstate.Provider(t.Raw())
	case t.Kind == tfstate.CutInstance:
		if object := objectOf(t, o.provider); object != "" {
			o.at[object] = append(o.at[object], t.Inst.Address())
		}
	}
}

// twice lists the instances of ours whose object is at another address too,
// because it has moved there since.
func (o *objects) twice(out *wire.Rollback, ours map[string]bool) {
	for _, addresses := range o.at {
		for i, a := range addresses {
			if ours[a] && len(addresses) > 1 {
				out.Twice = append(out.Twice, wire.Twice{Address: a, AlsoAt: addresses[(i+1)%len(addresses)]})
			}
		}
	}
	slices.SortFunc(out.Twice, func(a, b wire.Twice) int { return cmp.Compare(a.Address, b.Address) })
	if len(out.Twice) > maxRollback {
		out.Twice, out.Truncated = out.Twice[:maxRollback], true
	}
}

// bystanders reads the new document for who depends on what is touched, for what
// the instances that come back depend on and is not there, and, of a part, for
// which of their objects are elsewhere too.
func bystanders(out *wire.Rollback, doc []byte, ours map[string]bool, touched map[string]string) error {
	there, part := map[string]bool{}, objects{at: map[string][]string{}}
	var back []wire.Dependent
	add := func(list *[]wire.Dependent, d wire.Dependent) {
		if len(*list) == maxRollback {
			out.Truncated = true
			return
		}
		*list = append(*list, d)
	}
	err := oldTokens(doc, func(t *tfstate.Token) {
		if out.Address != "" {
			part.see(t)
		}
		if t.Kind == tfstate.CutResource {
			there[ConfigAddress(t.Resource.Address())] = true
			return
		}
		if t.Kind != tfstate.CutInstance {
			return
		}
		address := t.Inst.Address()
		for _, on := range tfstate.Dependencies(t.Inst.Raw) {
			what := touched[on]
			switch {
			case ours[address]:
				back = append(back, wire.Dependent{Address: address, DependsOn: on, Change: wire.DiffRemoved})
			case what != "":
				add(&out.Dependents, wire.Dependent{Address: address, DependsOn: on, Change: what})
			}
		}
	})
	for _, d := range back {
		if !there[d.DependsOn] {
			add(&out.Missing, d)
		}
	}
	part.twice(out, ours)
	return err
}

// mayRollBack refuses where a state may not be rolled back, whatever the version
// has.
func (s *Store) mayRollBack(tx *bbolt.Tx, w *writing) error {
	if err := s.judgeState(tx, w); err != nil {
		return err
	}
	return s.notHeld(tx, w)
}

// commitRollback judges a rollback and stores it, unless it is only to be told.
func (s *Store) commitRollback(ctx context.Context, l *live, r *WriteRequest, p *plan, planned *stateRec, out *wire.Rollback) error {
	w := &writing{r: r, p: p, ours: p.top, planned: planned, source: sourceRollback, rollback: &rolledBack{out.To, out.Address}}
	judge := func(tx *bbolt.Tx) error {
		w.out = Written{}
		if err := s.mayRollBack(tx, w); err != nil {
			return err
		}
		if cur := w.cur; p.top.lineage != cur.Lineage && !cur.empty() && !cur.AllowLineage {
			return fault.New(fault.LineageConflict, "version %d has the lineage %s, the state %s has %s now: it was replaced since by another one", out.To, p.top.lineage, r.Ref.Name, cur.Lineage).
				WithNext("to go back to the other one on purpose: kl state allow %s --lineage; then kl rollback again", r.Ref.Name).
				With("kind", "lineage").With("latest_serial", cur.Serial).With("latest_version", cur.Head)
		}
		return nil
	}
	var err error
	if out.DryRun {
		err = s.view(func(tx *bbolt.Tx) error {
			if err := judge(tx); err != nil {
				return err
			}
			_, err := s.judgeQuota(tx, w)
			return cmp.Or(s.judgeReserved(tx, w), err)
		})
	} else {
		err = s.commit.do(ctx, int(p.storedBytes), func(tx *bbolt.Tx) error {
			if err := judge(tx); err != nil {
				return err
			}
			return s.store(tx, w)
		})
	}
	switch f := fault.Of(err); {
	case f != nil && f.Class() == fault.Quota: // there is no body that was sent and kept
		return f.WithNext("see the limits with: kl quota remaining --state %s; ask who manages the environment for more, or roll back less: --address", r.Ref.Name)
	case fault.Is(err, fault.ReservedConflict):
		return f.WithNext("wait until the run has ended: kl runs --state %s; then roll back again", r.Ref.Name)
	case err != nil || out.DryRun:
		return err
	}
	out.Version, out.Serial, out.QuotaWarnings = w.out.Version, w.out.Serial, w.out.Warnings
	s.remember(l, p, w.sid, w.meta)
	return nil
}
