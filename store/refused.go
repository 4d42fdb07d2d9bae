package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/tfstate"
	"kl/wire"
)

// Status of a refused write.
const (
	refusedOpen       = "open"
	refusedDiscarded  = "discarded"
	refusedSuperseded = "superseded"
)

const (
	// refusedPiece is how much of a refused body one value holds, before
	// compression.
	refusedPiece = 256 << 10
	// maxListed bounds address lists in answers and records.
	maxListed = 100
	// maxHeld bounds the instances that a refused write is remembered to tell
	// of; with more the record says that there are more.
	maxHeld = 1000
)

// keep stores a refused body, or fails: then the client is told to try again,
// for its bytes would be lost with the refusal. It returns the refusal, which
// names the refused write.
func (s *Store) keep(ctx context.Context, r *WriteRequest, p *plan, b *base, refusal *fault.Error) error {
	pieces, stored := packBody(r.Body.Bytes())
	rec := refusedRec{V: 1, PrincipalID: r.Actor.ID, User: r.Actor.User, StoredBytes: stored, Pieces: len(pieces)}
	rec.Refused = wire.Refused{
		ID: auth.NewID("rw_"), CreatedAt: s.now(), Class: string(refusal.Class()), Code: string(refusal.Code), Detail: refusal.Detail,
		Principal: r.Actor.Display(), Serial: p.top.serial, Lineage: p.top.lineage, LockID: r.LockID, RunID: r.Run, Bytes: int64(r.Body.Len()), SHA256: hexSHA(r.Body),
		BaseVersion: b.rec.Head, ConflictingAddresses: []string{}, UnknownToHead: []string{}, Status: refusedOpen, RequestID: r.Actor.RequestID,
	}
	if a, ok := refusal.Details["conflicting_addresses"].([]string); ok {
		rec.ConflictingAddresses = a
	}
	if err := s.noteUnknown(&rec, r.Body.Bytes(), p, b); err != nil {
		return err
	}
	if err := s.noteView(&rec, p, b); err != nil {
		return err
	}
	var id string
	err := s.commit.do(ctx, int(stored), func(tx *bbolt.Tx) error {
		id = rec.ID
		return broken(s.putRefused(tx, r, rec, pieces, &id))
	})
	if err != nil {
		return err
	}
	return refusal.With("refused_write", id)
}

func hexSHA(b *Body) string {
	sha := b.SHA256()
	return hex.EncodeToString(sha[:])
}

// packBody compresses a body in pieces.
func packBody(b []byte) (pieces [][]byte, stored int64) {
	for p := range slices.Chunk(b, refusedPiece) {
		pieces = append(pieces, pack(p))
		stored += int64(len(pieces[len(pieces)-1]))
	}
	return pieces, stored
}

// explain adds to a conflict which addresses the write would have changed
// against the head, and who changed them since its base.
func (s *Store) explain(r *WriteRequest, p *plan, refusal *fault.Error) {
	if refusal.Class() != fault.Conflict {
		return
	}
	if refusal.Details["latest_serial"] == nil {
		refusal.With("latest_serial", p.rec.Serial).With("latest_version", p.rec.Head).With("base_serial", p.top.serial-min(1, p.top.serial))
	}
	if p.unlisted || refusal.Details["conflicting_addresses"] != nil {
		return
	}
	addresses, n := []string{}, 0
	for i := range p.changes {
		if p.changes[i].class != classInstance {
			continue
		}
		if n++; n <= maxListed {
			addresses = append(addresses, p.changes[i].address)
		}
	}
	refusal.With("conflicting_addresses", addresses).With("conflicting_count", n)
	if by, err := s.changedBy(r.Ref, p.top.serial-1, addresses); err == nil && len(by) > 0 {
		refusal.With("changed_by", by)
	}
}

// changedBy tells for each address the newest version after the one with that
// serial that changed it.
func (s *Store) changedBy(ref Ref, serial uint64, addresses []string) (map[string]any, error) {
	out := map[string]any{}
	err := s.view(func(tx *bbolt.Tx) error {
		sid, rec, err := written(tx, ref)
		if err != nil {
			return err
		}
		for v, n := rec.Head, 0; v != 0 && n < maxListed; n++ {
			r, err := getVersion(tx, sid, v)
			if err != nil || r.Serial <= serial {
				return err
			}
			cs, err := changesOf(tx, sid, r)
			if err != nil {
				return err
			}
			for _, a := range addresses {
				if _, known := out[a]; known {
					continue
				}
				if _, found := slices.BinarySearchFunc(cs, element{classInstance, a}, func(c change, e element) int { return c.compare(e) }); found {
					out[a] = changer{cmp.Or(r.Who, r.Principal), r.Principal, r.CreatedAt, v, r.Serial}
				}
			}
			v = r.Previous
		}
		return nil
	})
	return out, err
}

// noteUnknown records which objects the body tells of that the head does not
// know. Of an opaque one nothing is known, so it counts as telling of some.
func (s *Store) noteUnknown(rec *refusedRec, body []byte, p *plan, b *base) error {
	switch {
	case p.opaque:
		rec.Holds, rec.UnknownAll = true, true
		return nil
	case b.head == nil || b.rec.Opaque:
		// nothing to compare with: all objects of the body
		return eachInstance(body, s.seed, func(address string, managed bool, hash func() [16]byte) {
			if managed {
				rec.unknown(address, hash())
			}
		})
	}
	replaced := p.replaced()
	for i := range p.changes {
		c := &p.changes[i]
		if c.class != classInstance {
			continue
		}
		managed := !isData(c.address)
		if c.op == opAdd && managed || replaced[c.address] {
			rec.unknown(c.address, c.new)
		}
	}
	return nil
}

// noteView records what the writer saw of the state, so that its write can be
// merged later.
func (s *Store) noteView(rec *refusedRec, p *plan, b *base) error {
	if b.head == nil || p.opaque || p.top.lineage != b.rec.Lineage {
		return nil
	}
	return s.view(func(tx *bbolt.Tx) error {
		if b.sess == nil {
			// the newest version that its serial may follow
			for n := b.rec.Head; n != 0; {
				v, err := getVersion(tx, b.head.sid, n)
				if err != nil {
					return err
				}
				if v.Serial < rec.Serial && v.Lineage == rec.Lineage {
					rec.SeenVersion = n
					return nil
				}
				n = v.Previous
			}
			return nil
		}
		v, err := viewOf(tx, b.head.sid, &b.rec, b.sess, p.top.serial)
		if err != nil {
			return err
		}
		if v.version != 0 && !has(tx, bVersion, key(b.head.sid, v.version)) {
			return nil // of a run that has ended, pruned since
		}
		rec.SeenVersion = v.version
		if raw := get(tx, bOverlay, keyS(b.head.sid, b.sess.Info.ID)); b.sess.LastVersion != 0 && raw != nil {
			rec.Overlay = raw
		}
		return nil
	})
}

func (r *refusedRec) unknown(address string, hash [16]byte) {
	r.Holds = true
	if len(r.UnknownToHead) < maxListed {
		r.UnknownToHead = append(r.UnknownToHead, address)
	}
	if len(r.Unknown) == maxHeld {
		r.UnknownAll = true
		return
	}
	r.Unknown = append(r.Unknown, heldRec{address, hash[:]})
}

// eachInstance scans a whole document for its instances.
func eachInstance(body []byte, seed uint64, f func(address string, managed bool, hash func() [16]byte)) error {
	h := tfstate.NewHasher(seed)
	return oldTokens(body, func(t *tfstate.Token) {
		if t.Kind == tfstate.CutInstance {
			f(t.Inst.Address(), t.Inst.Managed(), func() [16]byte { return t.Content(h) })
		}
	})
}

// putRefused stores a refused write. The same bytes refused again in one
// session are one refused write, and a later one of a session supersedes the
// earlier: it tells of all that the earlier one told of. id becomes the one
// under which it is kept.
func (s *Store) putRefused(tx *bbolt.Tx, r *WriteRequest, rec refusedRec, pieces [][]byte, id *string) error {
	sid, _, err := find(tx, r.Ref)
	if fault.Is(err, fault.NotFound) {
		if sid, err = s.createState(tx, r.Ref, r.Actor); err == nil {
			err = putRec(tx, bState, u64(sid), s.newState(r.Ref))
		}
	}
	if err != nil {
		return err
	}
	if r.LockID != "" && r.Run == "" {
		if sess, ok, err := getRec[sessionRec](tx, bSession, keyS(sid, r.LockID)); err != nil {
			return err
		} else if ok && sess.PrincipalID == r.Actor.ID {
			if sess.FirstSerial == 0 && sess.LastVersion == 0 {
				sess.FirstSerial = rec.Serial
			}
			sess.LastActivity = s.now()
			if err := putRec(tx, bSession, keyS(sid, r.LockID), sess); err != nil {
				return err
			}
		}
	}
	if rec.SeenVersion != 0 && !has(tx, bVersion, key(sid, rec.SeenVersion)) {
		rec.SeenVersion, rec.Overlay = 0, nil // pruned since it was looked up
	}
	open, err := openRefused(tx, sid)
	if err != nil {
		return err
	}
	for i := range open {
		o := &open[i]
		if o.PrincipalID != rec.PrincipalID || o.LockID != rec.LockID || o.RunID != rec.RunID {
			continue
		}
		if o.SHA256 == rec.SHA256 {
			*id = o.ID
			return nil
		}
		if rec.LockID+rec.RunID == "" || o.Lineage != rec.Lineage {
			continue
		}
		if err := settle(tx, s, sid, o, refusedSuperseded, r.Actor, r.Ref); err != nil {
			return err
		}
	}
	for i, p := range pieces {
		if err := put(tx, bRefusedBody, refusedPieceKey(sid, rec.ID, i), p); err != nil {
			return err
		}
	}
	seq, err := tx.Bucket(bRefusedEnv).NextSequence()
	if err != nil {
		return fmt.Errorf("number a refused write: %w", err)
	}
	if err := errors.Join(
		putRec(tx, bRefused, keyS(sid, rec.ID), rec),
		put(tx, bRefusedEnv, append(pair(r.Ref.Environment, ""), u64(seq)...), keyS(sid, rec.ID)),
		s.event(tx, wire.Event{
			Kind: "write_refused", Class: rec.Class, Code: rec.Code, Principal: r.Actor.Display(), Environment: r.Ref.Environment, State: r.Ref.Name,
			Serial: rec.Serial, RequestID: r.Actor.RequestID, Detail: map[string]any{"refused_write": rec.ID, "lock_id": rec.LockID, "run_id": rec.RunID, "bytes": rec.Bytes},
		}),
	); err != nil {
		return err
	}
	return s.limitRefused(tx, r.Ref.Environment)
}

func refusedPieceKey(sid uint64, id string, piece int) []byte {
	return append(append(keyS(sid, id), 0), u64(uint64(piece))...)
}

// openRefused returns the refused writes of a state that wait for recovery.
func openRefused(tx *bbolt.Tx, sid uint64) (out []refusedRec, err error) {
	err = eachRec(tx, bRefused, u64(sid), func(_ []byte, r *refusedRec) (bool, error) {
		if r.Status == refusedOpen {
			out = append(out, *r)
		}
		return true, nil
	})
	return out, err
}

// settle ends a refused write; its bytes stay until a limit drops them.
func settle(tx *bbolt.Tx, s *Store, sid uint64, r *refusedRec, status string, by Actor, ref Ref) error {
	r.Status = status
	return errors.Join(
		putRec(tx, bRefused, keyS(sid, r.ID), r),
		s.event(tx, wire.Event{
			Kind: "refused_write_" + status, Principal: by.Display(), Environment: ref.Environment, State: ref.Name, Serial: r.Serial, RequestID: by.RequestID,
			Detail: map[string]any{"refused_write": r.ID},
		}),
	)
}

// settledBy returns the writer's open refused writes whose objects are all in
// what terraform state push now sends.
func (s *Store) settledBy(b *base, r *WriteRequest) []refusedRec {
	if !b.push() {
		return nil
	}
	var mine []refusedRec
	for i := range b.open {
		if b.open[i].of(r.Actor.Principal) && !b.open[i].UnknownAll {
			mine = append(mine, b.open[i])
		}
	}
	if len(mine) == 0 {
		return nil
	}
	have := map[string][16]byte{}
	if err := eachInstance(r.Body.Bytes(), s.seed, func(a string, _ bool, hash func() [16]byte) { have[a] = hash() }); err != nil {
		return nil // an opaque document settles nothing
	}
	return slices.DeleteFunc(mine, func(m refusedRec) bool {
		return slices.ContainsFunc(m.Unknown, func(h heldRec) bool {
			got, ok := have[h.Address]
			return !ok || string(got[:]) != string(h.Hash)
		})
	})
}

// KeepRefused keeps the body of a write that is refused before it is judged:
// that of an open session whose own credential has ended since. It returns the
// refusal, which names the refused write.
func (s *Store) KeepRefused(ctx context.Context, r WriteRequest, refusal *fault.Error) error {
	l := s.live(r.Ref)
	if err := l.lockWrite(ctx); err != nil {
		return err
	}
	defer l.unlockWrite()
	b, err := s.loadBase(l, &r)
	if err != nil {
		return err
	}
	var old []byte
	if b.body != nil {
		defer b.body.unref()
		old = b.body.Bytes()
	}
	p, err := s.plan(ctx, b.rec, b.head, old, r.Body, true)
	if err != nil {
		return err
	}
	s.explain(&r, p, refusal)
	return s.keep(ctx, &r, p, b, refusal)
}

// EndedSession reports whether a secret whose rights have ended is the one that
// took the lock, other than for a plan, which is held by that ID, and whose it
// is. ws must be the workspace of the state.
func (s *Store) EndedSession(_ context.Context, secret, ws string, ref Ref, lockID string) (auth.Principal, bool) {
	var p auth.Principal
	found := false
	err := s.view(func(tx *bbolt.Tx) error {
		t, err := s.tokenBySecret(tx, secret)
		if err != nil {
			return err
		}
		env, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(ref.Environment))
		if err != nil || !ok || env.WorkspaceID != ws {
			return err
		}
		sid, _, err := find(tx, ref)
		if err != nil {
			return err
		}
		sess, ok, err := getRec[sessionRec](tx, bSession, keyS(sid, lockID))
		if err != nil || !ok || sess.PrincipalID != t.ID || sess.plan() {
			return err
		}
		p, found, err = endedPrincipal(tx, t)
		return err
	})
	return p, found && err == nil
}

// endedPrincipal is whose a token is, whether or not it is still good.
func endedPrincipal(tx *bbolt.Tx, t *tokenRec) (auth.Principal, bool, error) {
	p := t.principal()
	u, ok, err := getRec[userRec](tx, bUser, []byte(t.User))
	if ok {
		p.UserName = u.Name
	}
	return p, err == nil, err
}

// EndedRun reports whether a secret whose rights have ended is the one that
// began a live run, and whose it is.
func (s *Store) EndedRun(_ context.Context, secret string, ref Ref, id string) (auth.Principal, bool) {
	var p auth.Principal
	found := false
	err := s.view(func(tx *bbolt.Tx) error {
		t, err := s.tokenBySecret(tx, secret)
		if err != nil {
			return err
		}
		sid, _, err := find(tx, ref)
		if err != nil {
			return err
		}
		r, err := s.getRun(tx, sid, id)
		if err != nil || r.PrincipalID != t.ID || !r.live() {
			return err
		}
		p, found, err = endedPrincipal(tx, t)
		return err
	})
	return p, found && err == nil
}

// RefusedList lists the refused writes of a state, the newest first.
func (s *Store) RefusedList(_ context.Context, ref Ref) ([]wire.Refused, error) {
	out := []wire.Refused{}
	err := s.view(func(tx *bbolt.Tx) error {
		sid, _, err := find(tx, ref)
		if err != nil {
			return err
		}
		return eachRec(tx, bRefused, u64(sid), func(_ []byte, r *refusedRec) (bool, error) {
			out = append(out, r.Refused)
			return true, nil
		})
	})
	slices.SortFunc(out, func(a, b wire.Refused) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return out, err
}

func getRefused(tx *bbolt.Tx, ref Ref, id string) (uint64, *refusedRec, error) {
	sid, _, err := find(tx, ref)
	if err != nil {
		return 0, nil, err
	}
	r, ok, err := getRec[refusedRec](tx, bRefused, keyS(sid, id))
	if err == nil && !ok {
		err = fault.New(fault.NotFound, "the state %s has no refused write %s", ref.Name, id).WithNext("kl recover list --state %s", ref.Name)
	}
	return sid, r, err
}

// Refused returns one refused write. Code: not_found.
func (s *Store) Refused(_ context.Context, ref Ref, id string) (wire.Refused, error) {
	var out wire.Refused
	err := s.view(func(tx *bbolt.Tx) error {
		_, r, err := getRefused(tx, ref, id)
		if err == nil {
			out = r.Refused
		}
		return err
	})
	return out, err
}

// RefusedBody opens the exact bytes of a refused write. Code: not_found.
func (s *Store) RefusedBody(_ context.Context, ref Ref, id string) (*Snapshot, error) {
	var sid uint64
	var r *refusedRec
	err := s.view(func(tx *bbolt.Tx) (err error) {
		sid, r, err = getRefused(tx, ref, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	snap := &Snapshot{Version: wire.Version{Serial: r.Serial, Lineage: r.Lineage, Bytes: r.Bytes, SHA256: r.SHA256}}
	snap.write = func(w io.Writer) error {
		for i := range r.Pieces {
			var b []byte
			err := s.view(func(tx *bbolt.Tx) (err error) {
				v := peek(tx, bRefusedBody, refusedPieceKey(sid, id, i))
				if v == nil {
					return fmt.Errorf("%w: piece %d of the refused write %s is missing", errDamaged, i, id)
				}
				b, err = unpack(v)
				return err
			})
			if err != nil {
				return err
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	}
	return snap, nil
}

// DiscardRefused settles a refused write without using it. Codes: not_found,
// parameter_invalid when it is settled already.
func (s *Store) DiscardRefused(ctx context.Context, by Actor, ref Ref, id string) error {
	return s.commit.do(ctx, 1024, func(tx *bbolt.Tx) error {
		sid, r, err := getRefused(tx, ref, id)
		if err != nil {
			return err
		}
		if r.Status != refusedOpen {
			return fault.New(fault.ParameterInvalid, "the refused write %s is %s already", id, r.Status)
		}
		return broken(settle(tx, s, sid, r, refusedDiscarded, by, ref))
	})
}
