package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"kl/tfstate"
)

// topState is what a document says of itself at its top level.
type topState struct {
	serial           uint64
	lineage          string
	terraformVersion string
}

// fresh is a chunk that the head does not have.
type fresh struct {
	at         int // its index in the new chunk list
	start, end int // its span in the body
	base       int // index in the old list of the chunk that it comes from, -1 for none
	basePos    int // where that one began in the old body
}

// region is a stretch in which the new document differs from the old one.
type region struct {
	from, to   int             // entries of the old list that are replaced
	pos        int             // where from began in the old body
	start, end int             // where it is in the new body
	ctx        tfstate.Context // of the scan at its start, the same in both
	at         int             // index in the new list
	n          int             // entries there
}

// counts are the numbers of a document's elements.
type counts struct{ instances, managed, resources, outputs int64 }

func (c *counts) token(t *tfstate.Token, n int64) {
	switch t.Kind {
	case tfstate.CutOutput:
		c.outputs += n
	case tfstate.CutResource:
		c.resources += n
	case tfstate.CutInstance:
		c.instances += n
		if t.Inst.Managed() {
			c.managed += n
		}
	default: // nothing that is counted
	}
}

// walk compares a document with the chunk list of the version before it.
// Stretches whose bytes are those of old chunks are skipped by their hash; the
// rest is scanned strictly and cut at element boundaries. Skipping is right
// because a chunk is only skipped where the scan stands in the same context as
// it did when the chunk was cut: from equal states over equal bytes a scan
// comes to equal states.
type walk struct {
	seed   uint64
	target int
	old    []entry
	body   []byte
	sc     *tfstate.Scanner

	entries []entry
	fresh   []fresh
	regions []region
	items   []item // of the regions; not kept when there is no old list
	ids     map[uint64]struct{}
	counts  counts // of the regions
	top     topState
	seen    uint16 // which of top's members were scanned

	// the chunk being made
	cur     entry
	curAt   int
	curBase int
	basePos int
	started bool // cur.start is known

	k, kPos int // old entries before k are dealt with; k began at kPos in the old body
	lo      int // old entries from here on may still be found
	far     map[uint64]int
	lost    int // elements since the last old entry was found
	prevLen int // of the element before
}

// nearby is how many coming chunks are looked at for each element, and
// farAfter after how many elements without a find all of them are.
const (
	nearby   = 16
	farAfter = 64
)

// run walks the whole document. Errors are the scanner's; errDuplicate means
// that two instances have one identity.
func (w *walk) run(reordered bool) error {
	w.sc = tfstate.NewScanner(w.body, tfstate.Options{Reordered: reordered})
	if len(w.old) == 0 {
		w.ids = map[uint64]struct{}{}
	}
	w.openRegion(tfstate.Context{}, 0)
	w.begin(0, tfstate.Context{}, 0)
	for {
		t, err := w.sc.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := w.token(t); err != nil {
			return err
		}
	}
	w.noteTop()
	w.end(len(w.body))
	w.closeRegion(len(w.old), len(w.body))
	return nil
}

var errDuplicate = errors.New("two instances have the same address")

// token deals with one element, unless an old chunk begins with it whose bytes
// follow: then the scan is set behind that.
func (w *walk) token(t *tfstate.Token) error {
	h := t.StartHash(w.seed)
	if t.Cut {
		ctxHash := uint64(0)
		if !w.started {
			// the first element behind a place where the scan was set to
			ctxHash = t.Ctx.Hash(w.seed)
			if ctxHash == w.cur.ctx {
				w.cur.start = h
			}
			w.started = true
		}
		if j := w.find(t, h); j >= 0 {
			if ctxHash == 0 {
				ctxHash = t.Ctx.Hash(w.seed)
			}
			if ctxHash == w.old[j].ctx {
				if done, err := w.skip(t, j); done || err != nil {
					return err
				}
			}
			if t.Start > w.curAt {
				w.cut(t, h, ctxHash)
			}
			w.curBase, w.basePos = j, w.posOf(j)
			w.lo = j + 1
			w.lost = 0
		} else if size := t.Start - w.curAt; size >= 3*w.target || size >= w.target/4 && w.cutsHere(h) {
			if ctxHash == 0 {
				ctxHash = t.Ctx.Hash(w.seed)
			}
			w.cut(t, h, ctxHash)
		}
	}
	w.started = true
	w.lost++
	w.counts.token(t, 1)
	if t.Kind == tfstate.CutResource {
		w.cur.last = int32(t.Start - w.curAt)
		return nil
	}
	w.prevLen = t.End - t.Start
	if w.ids == nil {
		if w.items == nil {
			w.items = make([]item, 0, itemsIn(len(w.body)))
		}
		w.items = append(w.items, item{id: h, tok: *t})
		return nil
	}
	if _, ok := w.ids[h]; ok {
		return errDuplicate
	}
	w.ids[h] = struct{}{}
	return nil
}

// item is an element of a changed stretch, but for resources.
type item struct {
	id  uint64 // tfstate.Token.StartHash
	tok tfstate.Token
}

// itemsIn is for how many items room is made before a stretch of n bytes is
// scanned.
func itemsIn(n int) int { return min(n/1500+1, 64) }

func (i *item) element() element { return elementOf(&i.tok) }

func elementOf(t *tfstate.Token) element {
	c := classInstance
	switch t.Kind {
	case tfstate.CutOutput:
		c = classOutput
	case tfstate.CutCheck:
		c = classCheck
	default: // resources and their instances
	}
	return element{c, t.Label()}
}

// cutsHere is the rule for cuts that no old chunk suggests. It looks only at
// the element and the one before, so that an insertion does not move the cuts
// behind it, and aims at the target on the average.
func (w *walk) cutsHere(h uint64) bool {
	share := float64(w.prevLen) / (0.75 * float64(w.target))
	return share >= 1 || float64(h) < share*math.MaxUint64
}

// find returns the coming old chunk that starts with the element, or -1.
func (w *walk) find(t *tfstate.Token, h uint64) int {
	for j := w.lo; j < min(len(w.old), w.lo+nearby); j++ {
		if e := &w.old[j]; e.start == h && e.kind == uint8(t.Kind) {
			return j
		}
	}
	if w.lost < farAfter || w.lo+nearby >= len(w.old) {
		return -1
	}
	if w.far == nil {
		w.far = make(map[uint64]int, len(w.old)-w.lo)
		for j := w.lo; j < len(w.old); j++ {
			w.far[w.old[j].start] = j
		}
	}
	if j, ok := w.far[h]; ok && j >= w.lo && w.old[j].kind == uint8(t.Kind) {
		return j
	}
	return -1
}

// posOf is where old entry j >= k began in the old body.
func (w *walk) posOf(j int) int {
	pos := w.kPos
	for i := w.k; i < j; i++ {
		pos += int(w.old[i].size)
	}
	return pos
}

// same reports whether the body has the bytes of old entry j at pos.
func (w *walk) same(j, pos int) bool {
	e := &w.old[j]
	end := pos + int(e.size)
	return end <= len(w.body) && w.hash(pos, end) == e.hash
}

func (w *walk) hash(start, end int) [16]byte {
	return xxh3.Hash128Seed(w.body[start:end], w.seed).Bytes()
}

// skip passes over the old chunks from j on as long as their bytes are here
// too. The last one is always scanned, which tells how the document ends.
func (w *walk) skip(t *tfstate.Token, j int) (bool, error) {
	m, pos := j, t.Start
	for m < len(w.old)-1 && w.same(m, pos) {
		pos += int(w.old[m].size)
		m++
	}
	if m == j {
		return false, nil
	}
	here := t.Ctx
	w.noteTop()
	if w.curBase >= j {
		w.curBase = -1 // that chunk stays, and can be the base of nothing else
	}
	w.end(t.Start)
	w.closeRegion(j, t.Start)
	w.entries = append(w.entries, w.old[j:m]...)
	w.k, w.kPos, w.lo, w.lost = m, w.posOf(m), m, 0

	e := &w.old[m]
	ctx := tfstate.Context{Kind: tfstate.CutKind(e.kind), First: e.first, Top: e.top, Res: e.res}
	if ctx.Kind == tfstate.CutInstance {
		r, found, err := openResource(w.old[j:m], w.body, pos)
		if err != nil {
			return false, err
		}
		if !found {
			r = here // the scan stands in it already
		}
		ctx.Resource, ctx.Rest = r.Resource, r.Rest
	}
	w.sc.Reset(w.body, pos, ctx)
	w.openRegion(ctx, pos)
	w.begin(pos, ctx, e.ctx)
	w.curBase, w.basePos = m, w.kPos
	w.lo = m + 1
	return true, nil
}

func (w *walk) openRegion(ctx tfstate.Context, start int) {
	w.regions = append(w.regions, region{from: w.k, pos: w.kPos, ctx: ctx, at: len(w.entries), start: start})
}

func (w *walk) closeRegion(to, end int) {
	r := &w.regions[len(w.regions)-1]
	r.to, r.n, r.end = to, len(w.entries)-r.at, end
}

// begin starts a chunk where the scan stands in ctx.
func (w *walk) begin(pos int, ctx tfstate.Context, ctxHash uint64) {
	if ctxHash == 0 {
		ctxHash = ctx.Hash(w.seed)
	}
	w.cur = entry{kind: uint8(ctx.Kind), first: ctx.First, top: ctx.Top, res: ctx.Res, ctx: ctxHash, last: -1}
	w.curAt, w.curBase, w.started = pos, -1, false
	if ctx.Kind == tfstate.CutStart {
		w.started = true
		if len(w.old) > 0 {
			w.curBase, w.lo = 0, 1
		}
	}
}

// cut ends the chunk before the element and begins one with it.
func (w *walk) cut(t *tfstate.Token, h, ctxHash uint64) {
	w.end(t.Start)
	w.begin(t.Start, t.Ctx, ctxHash)
	w.cur.start, w.started = h, true
}

// end makes an entry of the chunk that ends at pos; none if it is empty.
func (w *walk) end(pos int) {
	if pos == w.curAt {
		return
	}
	e := w.cur
	e.size = uint32(pos - w.curAt)
	e.hash = w.hash(w.curAt, pos)
	if w.curBase >= 0 {
		if o := &w.old[w.curBase]; o.hash == e.hash && o.size == e.size && o.ctx == e.ctx {
			w.entries = append(w.entries, *o)
			return
		}
	}
	w.fresh = append(w.fresh, fresh{at: len(w.entries), start: w.curAt, end: pos, base: w.curBase, basePos: w.basePos})
	w.entries = append(w.entries, e)
}

// noteTop takes over the scalars that the scan has met.
func (w *walk) noteTop() {
	h := w.sc.Head()
	w.seen |= h.Seen
	if h.Seen&tfstate.TopSerial != 0 {
		w.top.serial = h.Serial
	}
	if h.Seen&tfstate.TopLineage != 0 {
		w.top.lineage = h.Lineage
	}
	if h.Seen&tfstate.TopTerraformVersion != 0 {
		w.top.terraformVersion = h.TerraformVersion
	}
}

// finalTop is what the whole document says, with what the skipped chunks hold.
func (w *walk) finalTop(old topState) (topState, error) {
	has := w.sc.Context().Top
	t := w.top
	if has&tfstate.TopSerial == 0 {
		return t, errors.New("it has no serial")
	}
	if has&tfstate.TopLineage == 0 {
		return t, errors.New("it has no lineage")
	}
	if w.seen&tfstate.TopSerial == 0 {
		t.serial = old.serial
	}
	if w.seen&tfstate.TopLineage == 0 {
		t.lineage = old.lineage
	}
	if w.seen&tfstate.TopTerraformVersion == 0 && has&tfstate.TopTerraformVersion != 0 {
		t.terraformVersion = old.terraformVersion
	}
	return t, nil
}

// splices are the regions as they are stored, and deaths the chunks that only
// the old list needs. ids of fresh chunks must be set.
func (w *walk) splices() (sp []splice, deaths []uint64) {
	needed := map[uint64]bool{}
	at := 0
	for _, r := range w.regions {
		from, to, ins := r.from, r.to, w.entries[r.at:r.at+r.n]
		for from < to && len(ins) > 0 && ins[0].id == w.old[from].id {
			from, ins = from+1, ins[1:]
		}
		for from < to && len(ins) > 0 && ins[len(ins)-1].id == w.old[to-1].id {
			to, ins = to-1, ins[:len(ins)-1]
		}
		for i := range ins {
			needed[ins[i].id] = true
			needed[ins[i].base] = true
		}
		if from == to && len(ins) == 0 {
			continue
		}
		sp = append(sp, splice{skip: from - at, del: to - from, ins: ins})
		at = to
	}
	at = 0
	for _, s := range sp {
		at += s.skip
		for _, o := range w.old[at : at+s.del] {
			for _, id := range [...]uint64{o.id, o.base} {
				if id != 0 && !needed[id] {
					deaths = append(deaths, id)
				}
			}
		}
		at += s.del
	}
	return sp, deaths
}

// oldTokens scans a stored document and adds its elements.
func oldTokens(b []byte, add func(t *tfstate.Token)) error {
	return scanTokens(b, tfstate.Context{}, true, add)
}

func scanTokens(b []byte, ctx tfstate.Context, reordered bool, add func(t *tfstate.Token)) error {
	sc := tfstate.NewScanner(nil, tfstate.Options{Fragment: true, Reordered: reordered})
	sc.Reset(b, 0, ctx)
	for {
		t, err := sc.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("scan the stored version: %w", err)
		}
		add(t)
	}
}

// diffItems compares the elements of the changed stretches. The changes are in
// order; added and removed are the ids of what came and went.
func diffItems(seed uint64, old, now []item) (cs []change, added, removed []uint64, err error) {
	h := tfstate.NewHasher(seed)
	was := make(map[uint64]*item, len(old))
	for i := range old {
		was[old[i].id] = &old[i]
	}
	found := make(map[uint64]struct{}, len(now))
	for i := range now {
		n := &now[i]
		if _, ok := found[n.id]; ok {
			return nil, nil, nil, errDuplicate
		}
		found[n.id] = struct{}{}
		o := was[n.id]
		switch {
		case o == nil:
			cs = append(cs, change{op: opAdd, element: n.element(), new: n.tok.Content(h)})
			added = append(added, n.id)
		case bytes.Equal(o.tok.Raw(), n.tok.Raw()) && o.tok.Inst.Rest == n.tok.Inst.Rest:
		default:
			if a, b := o.tok.Content(h), n.tok.Content(h); a != b {
				cs = append(cs, change{op: opChange, element: n.element(), old: a, new: b})
			}
		}
	}
	for i := range old {
		o := &old[i]
		if _, ok := found[o.id]; !ok {
			cs = append(cs, change{op: opRemove, element: o.element(), old: o.tok.Content(h)})
			removed = append(removed, o.id)
		}
	}
	slices.SortFunc(cs, func(a, b change) int { return a.compare(b.element) })
	return cs, added, removed, nil
}
