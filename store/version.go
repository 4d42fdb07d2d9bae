package store

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// Sources of a version.
const (
	sourceWrite    = "write"
	sourceMerge    = "merge"
	sourceRollback = "rollback"
	sourceRecover  = "recover"
	sourcePush     = "push"
)

// versionMeta is what is known of a version besides its bytes.
type versionMeta struct {
	Version          uint64    `json:"n"`
	Previous         uint64    `json:"prev"` // version before among the kept ones, 0 for none
	Serial           uint64    `json:"serial"`
	Lineage          string    `json:"lineage"`
	TerraformVersion string    `json:"tf,omitempty"`
	CreatedAt        time.Time `json:"at"`
	PrincipalID      string    `json:"pid"`
	Principal        string    `json:"p"`
	Who              string    `json:"who,omitempty"`
	LockID           string    `json:"lock,omitempty"`
	SessionSince     time.Time `json:"since,omitzero"` // when its lock was taken: IDs may come again
	RunID            string    `json:"run,omitempty"`
	Source           string    `json:"src"`
	RollbackTo       uint64    `json:"rb,omitempty"` // version whose content a rollback took
	RollbackAddress  string    `json:"rba,omitempty"`
	RequestID        string    `json:"req,omitempty"`
	Instances        int64     `json:"inst"`
	Managed          int64     `json:"man"`
	Resources        int64     `json:"res"`
	Outputs          int64     `json:"outs"`
	Bytes            int64     `json:"bytes"`
	StoredBytes      int64     `json:"stored"` // of the chunks that came with it
	SHA256           []byte    `json:"sha"`
	NextChunk        uint64    `json:"next"` // after it
	Opaque           bool      `json:"opaque,omitempty"`
	Forced           bool      `json:"forced,omitempty"` // serial or lineage do not follow those before: a ticket, or an empty state
	Added            int64     `json:"add"`
	Changed          int64     `json:"chg"`
	Removed          int64     `json:"rem"`
	// Unlisted says that there is no change list: the first version, and those
	// at which a state becomes or ceases to be opaque.
	Unlisted bool `json:"unlisted,omitempty"`
	// Apart says that the change list is in its own bucket.
	Apart bool `json:"apart,omitempty"`
}

// changeOp is what happened to an element.
type changeOp byte

const (
	opAdd    changeOp = 'A'
	opChange changeOp = 'C'
	opRemove changeOp = 'D'
)

// class says what kind of element a change is about.
type class byte

const (
	classInstance class = iota
	classOutput
	classCheck
)

// element names one element of a state: an instance by its address, an output
// by its name, a check result by the address that it is about.
type element struct {
	class   class
	address string
}

func (e element) compare(o element) int {
	return cmp.Or(cmp.Compare(e.class, o.class), strings.Compare(e.address, o.address))
}

// change is one line of a version's change list. The hashes are
// tfstate.Token.Content with the file's seed; an absent side's is zero.
type change struct {
	op changeOp
	element
	old, new [16]byte
}

// versionRec is a version as stored.
type versionRec struct {
	versionMeta
	whole   bool     // its whole chunk list is stored, and splices is empty
	splices []splice // against Previous
	deaths  []uint64 // chunk ids that Previous needs and this one does not
	changes []change // empty when Unlisted or Apart
}

// inlineChanges is the size up to which a change list is kept in the record.
const inlineChanges = 16 << 10

func appendChanges(b []byte, cs []change) []byte {
	b = binary.AppendUvarint(b, uint64(len(cs)))
	for i := range cs {
		c := &cs[i]
		b = append(b, byte(c.op)|byte(c.class)<<5&0x20|byte(c.class)<<6&0x80)
		b = binary.AppendUvarint(b, uint64(len(c.address)))
		b = append(b, c.address...)
		if c.op != opAdd {
			b = append(b, c.old[:]...)
		}
		if c.op != opRemove {
			b = append(b, c.new[:]...)
		}
	}
	return b
}

func (r *reader) changes() []change {
	cs := make([]change, r.length(18))
	for i := range cs {
		c := &cs[i]
		op := r.take(1)[0]
		c.op, c.class = changeOp(op&0x5f), class(op>>5&1|op>>6&2)
		c.address = string(r.take(r.length(1)))
		if c.op != opAdd {
			copy(c.old[:], r.take(16))
		}
		if c.op != opRemove {
			copy(c.new[:], r.take(16))
		}
	}
	return cs
}

// encode writes the record; the change list is left out when Apart.
func (v *versionRec) encode() ([]byte, error) {
	meta, err := json.Marshal(&v.versionMeta)
	if err != nil {
		return nil, fmt.Errorf("version record: %w", err)
	}
	b := []byte{1} // version of this record's form
	b = binary.AppendUvarint(b, uint64(len(meta)))
	b = append(b, meta...)
	if v.whole {
		b = append(b, 1)
	} else {
		b = append(b, 0)
		b = binary.AppendUvarint(b, uint64(len(v.splices)))
		for i := range v.splices {
			s := &v.splices[i]
			b = binary.AppendUvarint(b, uint64(s.skip))
			b = binary.AppendUvarint(b, uint64(s.del))
			b = binary.AppendUvarint(b, uint64(len(s.ins)))
			for k := range s.ins {
				b = appendEntry(b, &s.ins[k])
			}
		}
	}
	b = binary.AppendUvarint(b, uint64(len(v.deaths)))
	last := uint64(0)
	for _, d := range v.deaths { // sorted
		b = binary.AppendUvarint(b, d-last)
		last = d
	}
	if v.Apart {
		b = appendChanges(b, nil)
	} else {
		b = appendChanges(b, v.changes)
	}
	return pack(b), nil
}

func decodeVersion(b []byte) (*versionRec, error) {
	raw, err := unpack(b)
	if err != nil {
		return nil, err
	}
	r := &reader{b: raw}
	if form := r.take(1)[0]; form != 1 {
		return nil, fmt.Errorf("%w: form %d of a version record is not known", errRecord, form)
	}
	v := &versionRec{}
	if err := json.Unmarshal(r.take(r.length(1)), &v.versionMeta); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	if v.whole = r.take(1)[0] == 1; !v.whole {
		v.splices = make([]splice, r.length(3))
		for i := range v.splices {
			s := &v.splices[i]
			s.skip, s.del = r.count(), r.count()
			s.ins = make([]entry, r.length(20))
			for k := range s.ins {
				s.ins[k] = r.entry()
			}
		}
	}
	v.deaths = make([]uint64, r.length(1))
	last := uint64(0)
	for i := range v.deaths {
		last += r.uvarint()
		v.deaths[i] = last
	}
	v.changes = r.changes()
	if r.err == nil && len(r.b) > 0 {
		r.fail()
	}
	return v, r.err
}

// decodeVersionMeta reads a version's record without its lists.
func decodeVersionMeta(b []byte) (m versionMeta, err error) {
	raw, err := unpack(b)
	if err != nil {
		return m, err
	}
	r := &reader{b: raw}
	if form := r.take(1)[0]; form != 1 {
		return m, fmt.Errorf("%w: form %d of a version record is not known", errRecord, form)
	}
	if err := json.Unmarshal(r.take(r.length(1)), &m); err != nil {
		return m, fmt.Errorf("%w: %w", errRecord, err)
	}
	return m, r.err
}

// getVersion reads a version's record without a change list kept apart.
func getVersion(tx *bbolt.Tx, sid, version uint64) (*versionRec, error) {
	b := peek(tx, bVersion, key(sid, version))
	if b == nil {
		return nil, fmt.Errorf("%w: version %d of state %d is missing", errRecord, version, sid)
	}
	v, err := decodeVersion(b)
	if err != nil {
		return nil, fmt.Errorf("version %d of state %d: %w", version, sid, err)
	}
	if v.Version != version {
		return nil, fmt.Errorf("%w: version %d of state %d says that it is %d", errRecord, version, sid, v.Version)
	}
	return v, nil
}

// changesOf returns a version's change list, wherever it is.
func changesOf(tx *bbolt.Tx, sid uint64, v *versionRec) ([]change, error) {
	if !v.Apart {
		return v.changes, nil
	}
	raw, err := getPieces(tx, bChange, sid, v.Version)
	if err != nil {
		return nil, fmt.Errorf("change list of version %d: %w", v.Version, err)
	}
	r := &reader{b: raw}
	cs := r.changes()
	if r.err != nil {
		return nil, fmt.Errorf("change list of version %d: %w", v.Version, r.err)
	}
	return cs, nil
}
