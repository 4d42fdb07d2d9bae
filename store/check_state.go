package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"kl/tfstate"
)

// stateCheck verifies one state in one read transaction.
type stateCheck struct {
	s      *Store
	tx     *bbolt.Tx
	sid    uint64
	report *CheckReport
	step   func() // called after each version
	name   string
	rec    *stateRec
	needed map[uint64]bool // chunk ids that some kept version needs
}

func (c *stateCheck) problem(format string, args ...any) {
	c.report.problem("state %s: %s", c.name, fmt.Sprintf(format, args...))
}

func (c *stateCheck) run(ctx context.Context) error {
	rec, ok, err := getRec[stateRec](c.tx, bState, u64(c.sid))
	if err != nil {
		c.name = fmt.Sprintf("number %d", c.sid)
		c.problem("%v", err)
		return nil
	}
	if !ok {
		return nil
	}
	c.rec, c.name, c.needed = rec, rec.Environment+"/"+rec.Name, map[uint64]bool{}
	c.report.States++
	if string(get(c.tx, bName, pair(rec.Environment, rec.Name))) != string(u64(c.sid)) {
		c.problem("its name does not lead to it")
	}
	if err := c.versions(ctx); err != nil {
		return err
	}
	c.chunks()
	c.coordination()
	c.runs()
	return nil
}

// document is one version read back.
type document struct {
	rec   *versionRec
	scan  map[element][16]byte // content hashes; nil when opaque
	count counts
}

// versions walks over all kept versions from the oldest on.
func (c *stateCheck) versions(ctx context.Context) error {
	var numbers []uint64
	err := eachKV(c.tx, bVersion, u64(c.sid), func(k, _ []byte) (bool, error) {
		numbers = append(numbers, binary.BigEndian.Uint64(k[8:]))
		return true, nil
	})
	if err != nil {
		return err
	}
	if len(numbers) == 0 {
		if c.rec.Head != 0 {
			c.problem("it has no version, and version %d should be its head", c.rec.Head)
		}
		return nil
	}
	if int64(len(numbers)) != c.rec.Versions || numbers[0] != c.rec.Oldest || numbers[len(numbers)-1] != c.rec.Head {
		c.problem("it has %d versions from %d to %d, and should have %d from %d to %d", len(numbers), numbers[0], numbers[len(numbers)-1], c.rec.Versions, c.rec.Oldest, c.rec.Head)
	}
	var before *document
	var es []entry
	for _, n := range numbers {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.report.Versions++
		d, entries, err := c.version(n, before, es)
		c.step()
		if err != nil {
			c.problem("version %d is not whole: %v", n, err)
			before, es = nil, nil
			continue
		}
		before, es = d, entries
	}
	if before != nil {
		c.head(before)
	}
	return nil
}

// version reads a version back and compares it with what is recorded, and with
// the version before when that is whole.
func (c *stateCheck) version(n uint64, before *document, was []entry) (*document, []entry, error) {
	v, err := getVersion(c.tx, c.sid, n)
	if err != nil {
		return nil, nil, err
	}
	es, err := manifestOf(c.tx, c.sid, n)
	if err != nil {
		return nil, nil, err
	}
	for i := range es {
		c.needed[es[i].id] = true
		if es[i].base != 0 {
			c.needed[es[i].base] = true
		}
	}
	body, err := c.body(es)
	if err != nil {
		return nil, nil, err
	}
	c.report.Bytes += int64(len(body))
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], v.SHA256) || int64(len(body)) != v.Bytes {
		return nil, nil, errors.New("its bytes are not those that were written")
	}
	d := &document{rec: v}
	info, err := tfstate.Sniff(body)
	if err != nil {
		return nil, nil, err
	}
	if info.Serial != v.Serial || info.Lineage != v.Lineage || info.TerraformVersion != v.TerraformVersion {
		c.problem("version %d is recorded with serial %d of lineage %s, its document says %d of %s", n, v.Serial, v.Lineage, info.Serial, info.Lineage)
	}
	if !v.Opaque {
		if err := c.scan(d, body); err != nil {
			return nil, nil, err
		}
		if got := (counts{v.Instances, v.Managed, v.Resources, v.Outputs}); got != d.count {
			c.problem("version %d counts %+v, and has %+v", n, got, d.count)
		}
		if msg := contexts(c.s.seed, es, body); msg != "" {
			c.problem("version %d: %s", n, msg)
		}
	}
	if before != nil {
		c.neighbours(before, d, was, es)
	}
	return d, es, nil
}

// body decodes a version within the check's own transaction.
func (c *stateCheck) body(es []entry) ([]byte, error) {
	size := 0
	for i := range es {
		size += int(es[i].size)
	}
	// decoding into the end of a large buffer would copy it each time
	body, piece := make([]byte, 0, size), []byte(nil)
	for i := range es {
		e := &es[i]
		chunk := peek(c.tx, bChunk, key(c.sid, e.id))
		if chunk == nil {
			return nil, fmt.Errorf("chunk %d is missing", e.id)
		}
		var base []byte
		if e.base != 0 {
			if base = peek(c.tx, bChunk, key(c.sid, e.base)); base == nil {
				return nil, fmt.Errorf("chunk %d, a base, is missing", e.base)
			}
		}
		var err error
		if piece, err = c.s.decodeChunk(c.sid, piece[:0], chunk, base, e); err != nil {
			return nil, err
		}
		body = append(body, piece...)
	}
	return body, nil
}

func (c *stateCheck) scan(d *document, body []byte) error {
	d.scan = map[element][16]byte{}
	h := tfstate.NewHasher(c.s.seed)
	return oldTokens(body, func(t *tfstate.Token) {
		d.count.token(t, 1)
		if t.Kind != tfstate.CutResource {
			e := elementOf(t)
			if _, twice := d.scan[e]; twice {
				c.problem("version %d has %s twice", d.rec.Version, e.address)
			}
			d.scan[e] = t.Content(h)
		}
	})
}

// contexts verifies that a scan of the whole document comes by every cut in
// the context that is recorded for it.
func contexts(seed uint64, es []entry, body []byte) string {
	at := map[int]*entry{}
	pos := 0
	for i := range es {
		at[pos] = &es[i]
		pos += int(es[i].size)
	}
	met := 1
	if e := at[0]; e == nil || e.kind != uint8(tfstate.CutStart) {
		return "its first chunk is not one that starts a document"
	}
	msg := ""
	err := oldTokens(body, func(t *tfstate.Token) {
		e := at[t.Start]
		if e == nil || t.Start == 0 {
			return
		}
		met++
		if !t.Cut || e.ctx != t.Ctx.Hash(seed) || e.kind != uint8(t.Kind) {
			msg = fmt.Sprintf("chunk %d is cut at a place where none may be, or with another context", e.id)
		}
	})
	if err != nil {
		return err.Error()
	}
	// a chunk may begin with the end of a container whose elements went; no token tells of that
	if met < len(es)-len(es)/4-2 {
		return fmt.Sprintf("only %d of %d chunks begin with an element", met, len(es))
	}
	return msg
}

// neighbours verifies what is recorded between two versions.
func (c *stateCheck) neighbours(a, b *document, was, now []entry) {
	if b.rec.Previous != a.rec.Version {
		c.problem("version %d should follow %d and says %d", b.rec.Version, a.rec.Version, b.rec.Previous)
		return
	}
	if !b.rec.Forced && (b.rec.Serial <= a.rec.Serial || b.rec.Lineage != a.rec.Lineage) {
		c.problem("version %d has serial %d of lineage %s after serial %d of lineage %s", b.rec.Version, b.rec.Serial, b.rec.Lineage, a.rec.Serial, a.rec.Lineage)
	}
	c.deaths(b, was, now)
	if b.rec.Unlisted {
		if a.scan != nil && b.scan != nil && b.rec.Version == a.rec.Version+1 { // over pruned ones there may be none
			c.problem("version %d has no change list", b.rec.Version)
		}
		return
	}
	cs, err := changesOf(c.tx, c.sid, b.rec)
	if err != nil {
		c.problem("version %d: %v", b.rec.Version, err)
		return
	}
	if want := diffScans(a.scan, b.scan); !slices.Equal(cs, want) {
		c.problem("version %d lists %d changes, the documents differ in %d: %s", b.rec.Version, len(cs), len(want), firstDifference(cs, want))
	}
	var n [3]int64
	for i := range cs {
		if cs[i].class == classInstance {
			n[strings.IndexByte("ACD", byte(cs[i].op))]++
		}
	}
	if n != [3]int64{b.rec.Added, b.rec.Changed, b.rec.Removed} {
		c.problem("version %d counts its changes as %d, %d, %d, and lists %v", b.rec.Version, b.rec.Added, b.rec.Changed, b.rec.Removed, n)
	}
}

func (c *stateCheck) deaths(b *document, was, now []entry) {
	left := map[uint64]bool{}
	for i := range was {
		left[was[i].id] = true
		left[was[i].base] = true
	}
	for i := range now {
		delete(left, now[i].id)
		delete(left, now[i].base)
	}
	delete(left, 0)
	want := make([]uint64, 0, len(left))
	for id := range left {
		want = append(want, id)
	}
	slices.Sort(want)
	if !slices.Equal(want, b.rec.deaths) {
		c.problem("version %d lists %d chunks that only the one before needs, and there are %d", b.rec.Version, len(b.rec.deaths), len(want))
	}
}

func firstDifference(a, b []change) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%c %s against %c %s", a[i].op, a[i].address, b[i].op, b[i].address)
		}
	}
	return "one list is longer"
}

// diffScans is the change list between two scanned documents.
func diffScans(a, b map[element][16]byte) []change {
	cs := []change{}
	for e, h := range b {
		if old, ok := a[e]; !ok {
			cs = append(cs, change{op: opAdd, element: e, new: h})
		} else if old != h {
			cs = append(cs, change{op: opChange, element: e, old: old, new: h})
		}
	}
	for e, h := range a {
		if _, ok := b[e]; !ok {
			cs = append(cs, change{op: opRemove, element: e, old: h})
		}
	}
	slices.SortFunc(cs, func(a, b change) int { return a.compare(b.element) })
	return cs
}

// head compares the state's record with its newest version.
func (c *stateCheck) head(d *document) {
	r, v := c.rec, d.rec
	if v.Version != r.Head || v.Serial != r.Serial || v.Lineage != r.Lineage || v.Bytes != r.Bytes || v.Opaque != r.Opaque || !bytes.Equal(v.SHA256, r.SHA256) ||
		v.NextChunk != r.NextChunk || (counts{v.Instances, v.Managed, v.Resources, v.Outputs}) != (counts{r.Instances, r.Managed, r.Resources, r.Outputs}) {
		c.problem("its record does not tell what its newest version %d tells", v.Version)
	}
}

// chunks verifies that exactly the needed chunks are there.
func (c *stateCheck) chunks() {
	var size int64
	err := eachKV(c.tx, bChunk, u64(c.sid), func(k, v []byte) (bool, error) {
		c.report.Chunks++
		size += int64(len(v))
		id := binary.BigEndian.Uint64(k[8:])
		if !c.needed[id] {
			c.problem("chunk %d is needed by no version", id)
		}
		if id >= c.rec.NextChunk {
			c.problem("chunk %d is beyond the next free number %d", id, c.rec.NextChunk)
		}
		return true, nil
	})
	if err != nil {
		c.problem("chunks: %v", err)
	}
	if size != c.rec.StoredBytes {
		c.problem("its chunks have %d bytes, its record says %d", size, c.rec.StoredBytes)
	}
}

// coordination verifies sessions, queue, tags and refused writes.
func (c *stateCheck) coordination() {
	note := func(err error) {
		if err != nil {
			c.problem("%v", err)
		}
	}
	var exclusive, plans int
	note(eachRec(c.tx, bSession, u64(c.sid), func(k []byte, h *sessionRec) (bool, error) {
		switch {
		case h.Shared: // granted beside others
		case h.plan():
			plans++
		default:
			exclusive++
		}
		if h.Info.ID != string(k[8:]) {
			c.problem("the session %s is stored under %s", h.Info.ID, k[8:])
		}
		for _, v := range []uint64{h.BaseVersion, h.LastVersion} {
			if v != 0 && !has(c.tx, bVersion, key(c.sid, v)) {
				c.problem("the session %s needs version %d, which is gone", h.Info.ID, v)
			}
		}
		return true, nil
	}))
	if exclusive > 1 || exclusive == 1 && plans > 0 {
		c.problem("%d exclusive locks and %d of plans are held at once", exclusive, plans)
	}
	note(eachRec(c.tx, bQueue, u64(c.sid), func(k []byte, t *ticketRec) (bool, error) {
		if has(c.tx, bSession, k) {
			c.problem("the lock %s is held and waited for", t.Info.ID)
		}
		return true, nil
	}))
	note(eachKV(c.tx, bTag, u64(c.sid), func(k, v []byte) (bool, error) {
		if !has(c.tx, bVersion, append(u64(c.sid), v...)) {
			c.problem("the tag %s names a version that is gone", k[8:])
		}
		return true, nil
	}))
	note(eachRec(c.tx, bRefused, u64(c.sid), func(_ []byte, r *refusedRec) (bool, error) {
		h := sha256.New()
		for i := range r.Pieces {
			v := peek(c.tx, bRefusedBody, refusedPieceKey(c.sid, r.ID, i))
			b, err := unpack(v)
			if err != nil {
				c.problem("the refused write %s is not whole: %v", r.ID, err)
				return true, nil
			}
			_, _ = h.Write(b)
		}
		if fmt.Sprintf("%x", h.Sum(nil)) != r.SHA256 {
			c.problem("the refused write %s has other bytes than were sent", r.ID)
		}
		if r.SeenVersion != 0 && r.Status == refusedOpen && !has(c.tx, bVersion, key(c.sid, r.SeenVersion)) {
			c.problem("the refused write %s needs version %d, which is gone", r.ID, r.SeenVersion)
		}
		return true, nil
	}))
}
