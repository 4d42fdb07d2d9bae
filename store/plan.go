package store

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/tfstate"
)

// plan is a document made ready to become the version after a head. It is made
// without a write transaction and holds as long as the head stays.
type plan struct {
	head    *head  // nil before the first version
	oldBody []byte // the head's bytes, nil when they are not in memory
	body    *Body  // what is to be stored
	rec     stateRec
	top     topState

	opaque   bool
	unlisted bool
	counts   counts // of the whole document
	changes  []change
	regions  []region // the stretches that differ from the head
	ours     []item   // the document's elements in them
	theirs   []item   // the head's
	entries  []entry
	splices  []splice
	deaths   []uint64
	draft    bool // not to be compressed yet
	fresh    []fresh
	settle   func() // computes splices and deaths when the bases are final
	whole    []byte // packed chunk list, when it is due
	list     []byte // packed change list, when it is too long for the record

	chunks      []storedChunk
	storedBytes int64
	dict        []byte // packed new dictionary, nil when the old one goes on
	codec       *codec

	ids            map[uint64]struct{} // the head's, to be changed by the two below once committed
	added, removed []uint64
}

type storedChunk struct {
	id    uint64
	bytes []byte
}

// opaquePiece is the size of the chunks of a state that is not looked into.
const opaquePiece = 64 << 10

// plan compares a document with a head and compresses what is new. A draft is
// not compressed; complete must be called before it can be stored. Codes:
// body_digest_mismatch, body_invalid.
func (s *Store) plan(ctx context.Context, rec stateRec, h *head, oldBody []byte, body *Body, draft bool) (*plan, error) {
	p, err := s.planBody(rec, h, oldBody, body, draft)
	if err := errors.Join(body.verify(), ctx.Err()); err != nil {
		return nil, err // what did not arrive as it was sent need not be understood
	}
	if err != nil {
		return nil, invalidBody(err)
	}
	if !draft {
		p.finish()
	}
	return p, nil
}

// complete makes a draft ready to be stored.
func (s *Store) complete(p *plan) error {
	err := s.compress(p)
	if err == nil {
		p.finish()
	}
	return err
}

func (s *Store) planBody(rec stateRec, h *head, oldBody []byte, body *Body, draft bool) (*plan, error) {
	fresh := func() *plan {
		p := &plan{head: h, oldBody: oldBody, body: body, rec: rec, draft: draft}
		p.rec.Target = cmp.Or(rec.Target, s.opt.ChunkTarget)
		return p
	}
	p := fresh()
	err := s.planScanned(p, body.Bytes())
	var notState *tfstate.ShapeError
	switch {
	case errors.Is(err, tfstate.ErrAmbiguous), errors.Is(err, errDuplicate), errors.As(err, &notState):
		p = fresh()
		err = s.planOpaque(p, body.Bytes(), err)
	}
	return p, err
}

// invalidBody turns what the scanner says into a refusal; other errors pass.
func invalidBody(err error) error {
	var syntax *tfstate.SyntaxError
	var shape *tfstate.ShapeError
	switch {
	case errors.As(err, &syntax):
		return fault.New(fault.BodyInvalid, "the body is %s", syntax.Error()).With("line", syntax.Line).With("offset", syntax.Offset).
			WithNext("send a state document, such as terraform state pull prints")
	case errors.As(err, &shape):
		return fault.New(fault.BodyInvalid, "the body is %s", shape.Error()).With("line", shape.Line).With("offset", shape.Offset).
			WithNext("send a state document, such as terraform state pull prints")
	}
	return err
}

// planScanned plans a version 4 document.
func (s *Store) planScanned(p *plan, body []byte) error {
	var w *walk
	for _, reordered := range [...]bool{false, true} {
		w = &walk{seed: s.seed, target: p.rec.Target, body: body}
		if p.head != nil && !p.rec.Opaque {
			w.old = p.head.entries
		}
		err := w.run(reordered)
		if errors.Is(err, tfstate.ErrReordered) && !reordered {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	var old topState
	if p.head != nil {
		old = p.head.lastTop
	}
	var err error
	if p.top, err = w.finalTop(old); err != nil {
		return &tfstate.ShapeError{Line: 1, Msg: err.Error()}
	}
	switch {
	case p.top.serial == 0:
		return fault.New(fault.BodyInvalid, "the state's serial is 0; the first serial is 1")
	case p.top.lineage == "":
		return fault.New(fault.BodyInvalid, "the state's lineage is empty")
	}
	p.entries, p.fresh, p.counts = w.entries, w.fresh, w.counts
	p.number()
	p.settle = func() {
		if len(w.old) > 0 {
			p.splices, p.deaths = w.splices()
		} else {
			p.deaths = allIDs(p.head)
		}
	}
	if len(w.old) == 0 {
		p.unlisted, p.ids = true, w.ids
		return s.compressUnlessDraft(p)
	}
	// neither needs the other, and both take a while
	var compressed error
	var wg sync.WaitGroup
	wg.Go(func() { compressed = s.compressUnlessDraft(p) })
	err = s.planChanges(p, w, body)
	wg.Wait()
	return cmp.Or(err, compressed)
}

// planChanges compares the instances of the changed stretches.
func (s *Store) planChanges(p *plan, w *walk, body []byte) error {
	c := counts{p.rec.Instances, p.rec.Managed, p.rec.Resources, p.rec.Outputs}
	c.instances += w.counts.instances
	c.managed += w.counts.managed
	c.resources += w.counts.resources
	c.outputs += w.counts.outputs
	was, err := s.oldItems(p, w.regions, &c, false)
	if errors.Is(err, tfstate.ErrReordered) {
		was, err = s.oldItems(p, w.regions, &c, true)
	}
	if err != nil {
		return err
	}
	if p.changes, p.added, p.removed, err = diffItems(s.seed, was, w.items); err != nil {
		return err
	}
	p.counts, p.regions, p.ours, p.theirs = c, w.regions, w.items, was
	return s.planIdentities(p, body)
}

// oldItems scans the head's side of the changed stretches and takes their
// elements out of the counts. Looking ahead for what names a resource behind
// its instances takes longer, and is seldom needed.
func (s *Store) oldItems(p *plan, regions []region, c *counts, reordered bool) (was []item, err error) {
	n, size := *c, 0
	for _, r := range regions {
		size += r.end - r.start
	}
	was = make([]item, 0, itemsIn(size))
	for _, r := range regions {
		old, err := s.oldBytes(p, r)
		if err != nil {
			return nil, err
		}
		err = scanTokens(old, r.ctx, reordered, func(t *tfstate.Token) {
			n.token(t, -1)
			if t.Kind != tfstate.CutResource {
				was = append(was, item{id: t.StartHash(s.seed), tok: *t})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	*c = n
	return was, nil
}

// replaced are the addresses whose instance tells of another object than in
// the head.
func (p *plan) replaced() map[string]bool {
	old := make(map[uint64]*item, len(p.theirs))
	for i := range p.theirs {
		old[p.theirs[i].id] = &p.theirs[i]
	}
	out := map[string]bool{}
	for i := range p.ours {
		n := &p.ours[i].tok
		o := old[p.ours[i].id]
		if o != nil && n.Kind == tfstate.CutInstance && n.Inst.Managed() && tfstate.ObjectID(o.tok.Inst.Raw) != tfstate.ObjectID(n.Inst.Raw) {
			out[n.Inst.Address()] = true
		}
	}
	return out
}

// planIdentities makes sure that no added element is the same as one in a
// stretch that was not scanned.
func (s *Store) planIdentities(p *plan, body []byte) error {
	p.ids = p.head.ids
	if len(p.added) == 0 {
		return nil
	}
	if p.ids == nil {
		// not known since the server started: once, the whole document is scanned
		w := &walk{seed: s.seed, target: p.rec.Target, body: body}
		if err := w.run(true); err != nil {
			return err
		}
		p.ids, p.added, p.removed = w.ids, nil, nil
		return nil
	}
	gone := make(map[uint64]struct{}, len(p.removed))
	for _, id := range p.removed {
		gone[id] = struct{}{}
	}
	for _, id := range p.added {
		_, known := p.ids[id]
		if _, moved := gone[id]; known && !moved {
			return errDuplicate
		}
	}
	return nil
}

// identities applies the version's changes to the head's set.
func (p *plan) identities() map[uint64]struct{} {
	if p.ids == nil {
		return nil
	}
	for _, id := range p.removed {
		delete(p.ids, id)
	}
	for _, id := range p.added {
		p.ids[id] = struct{}{}
	}
	return p.ids
}

// planOpaque plans a document that is kept without being looked into. cause is
// why it is not scanned.
func (s *Store) planOpaque(p *plan, body []byte, cause error) error {
	info, err := tfstate.Sniff(body)
	if err != nil {
		return err
	}
	ambiguous := info.Ambiguous || errors.Is(cause, tfstate.ErrAmbiguous) || errors.Is(cause, errDuplicate)
	otherVersion := info.HasVersion && info.Version != 4
	switch {
	case info.Encrypted, otherVersion, ambiguous && info.HasVersion:
	default:
		return cause
	}
	switch {
	case !info.HasSerial:
		return fault.New(fault.BodyInvalid, "the document has no serial")
	case info.Serial == 0:
		return fault.New(fault.BodyInvalid, "the state's serial is 0; the first serial is 1")
	case info.Lineage == "" && !otherVersion:
		return fault.New(fault.BodyInvalid, "the document has no lineage")
	}
	p.top = topState{info.Serial, info.Lineage, info.TerraformVersion}
	p.opaque, p.unlisted = true, true
	var old []entry
	if p.head != nil && p.rec.Opaque {
		old = p.head.entries
	}
	same := 0
	for start := 0; start < len(body); start += opaquePiece {
		end := min(start+opaquePiece, len(body))
		e := entry{kind: kindOpaque, size: uint32(end - start), hash: xxh3.Hash128Seed(body[start:end], s.seed).Bytes(), last: -1}
		if k := len(p.entries); k == same && k < len(old) && old[k].size == e.size && old[k].hash == e.hash {
			p.entries = append(p.entries, old[k])
			same++
			continue
		}
		p.fresh = append(p.fresh, fresh{at: len(p.entries), start: start, end: end, base: -1})
		p.entries = append(p.entries, e)
	}
	p.number()
	p.settle = func() {
		if old == nil {
			p.deaths = allIDs(p.head)
			return
		}
		p.splices = []splice{{skip: same, del: len(old) - same, ins: p.entries[same:]}}
		for _, o := range old[same:] {
			p.deaths = append(p.deaths, o.id)
		}
	}
	return s.compressUnlessDraft(p)
}

// allIDs are the chunks that a head needs.
func allIDs(h *head) (ids []uint64) {
	if h == nil {
		return nil
	}
	for _, e := range h.entries {
		ids = append(ids, e.id)
		if e.base != 0 {
			ids = append(ids, e.base)
		}
	}
	return ids
}

// number gives the fresh chunks their ids and bases.
func (p *plan) number() {
	id := max(p.rec.NextChunk, 1)
	for _, f := range p.fresh {
		e := &p.entries[f.at]
		e.id = id
		id++
		if f.base >= 0 {
			o := &p.head.entries[f.base]
			if e.base = o.base; e.base == 0 {
				e.base = o.id
			}
		}
	}
	p.rec.NextChunk = id
}

func (s *Store) compressUnlessDraft(p *plan) error {
	if p.draft {
		return nil
	}
	return s.compress(p)
}

// compress encodes the fresh chunks, on all processors when there are many.
// A chunk that is not worth patching loses its base.
func (s *Store) compress(p *plan) error {
	body, fr := p.body.Bytes(), p.fresh
	if err := s.pickCodec(p, body); err != nil {
		return err
	}
	p.chunks = make([]storedChunk, len(fr))
	encode := func(i int) error {
		f := fr[i]
		e := &p.entries[f.at]
		var base []byte
		var of span
		if e.base != 0 {
			var err error
			if base, of, err = s.baseFor(p, f); err != nil {
				return err
			}
		}
		raw := body[f.start:f.end]
		work := s.bufs.get(workFor(raw))
		stored, patched := p.codec.encode(work, raw, base, of)
		s.bufs.put(work)
		if !patched {
			e.base = 0
		}
		p.chunks[i] = storedChunk{e.id, stored}
		return nil
	}
	workers := min(runtime.GOMAXPROCS(0), len(fr)/64)
	if workers < 2 {
		for i := range fr {
			if err := encode(i); err != nil {
				return err
			}
		}
	} else if err := parallel(workers, len(fr), encode); err != nil {
		return err
	}
	for i := range p.chunks {
		p.storedBytes += int64(len(p.chunks[i].bytes))
	}
	return nil
}

// parallel calls f for 0 to n-1 from several goroutines and joins their
// errors.
func parallel(workers, n int, f func(i int) error) error {
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			for i := k; i < n && errs[k] == nil; i += workers {
				errs[k] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pickCodec chooses the dictionary, a new one when the state has outgrown its
// own.
func (s *Store) pickCodec(p *plan, body []byte) error {
	n := int64(len(body))
	if n >= dictMinState && (p.rec.Dict == 0 || n > dictRegrow*p.rec.DictBytes) && !p.opaque && p.rec.Dict < 1<<15 {
		raw := sampleDict(body)
		p.rec.Dict++
		p.rec.DictBytes = n
		p.dict, p.codec = pack(raw), newCodec(p.rec.Dict, raw)
		return nil
	}
	var err error
	p.codec, err = s.codecOf(p.rec.Dict, p.head)
	return err
}

func (s *Store) codecOf(dict uint16, h *head) (*codec, error) {
	if h == nil {
		dict = 0
	}
	if dict == 0 {
		return s.codecs.get(0, 0, nil)
	}
	return s.codecs.get(h.sid, dict, func() ([]byte, error) { return s.loadDict(h.sid, dict) })
}

func (s *Store) loadDict(sid uint64, dict uint16) (raw []byte, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		b := peek(tx, bDict, key(sid, uint64(dict)))
		if b == nil {
			return errDamaged
		}
		raw, err = unpack(b)
		return err
	})
	return raw, err
}

// finish makes what the transaction only has to put: splices and deaths, a
// whole chunk list when the splices since the last one have become as long,
// and a change list of its own when it is long. It comes after compress, which
// may take bases out of the entries again.
func (p *plan) finish() {
	p.settle()
	slices.Sort(p.deaths)
	p.deaths = slices.Compact(p.deaths)
	debt := p.rec.SnapshotDebt
	for _, s := range p.splices {
		debt += s.del + len(s.ins)
	}
	if p.unlisted && !p.opaque || p.head == nil || p.opaque != p.rec.Opaque || debt >= max(64, len(p.entries)) {
		debt, p.splices = 0, nil
		p.whole = pack(encodeManifest(p.entries))
	}
	p.rec.SnapshotDebt = debt
	if list := appendChanges(nil, p.changes); len(list) > inlineChanges {
		p.list = pack(list)
	}
}
