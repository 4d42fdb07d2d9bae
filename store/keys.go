package store

import (
	"container/list"
	"sync"

	"github.com/zeebo/xxh3"

	"kl/tfstate"
)

// Key is something that elements of a state are found by.
type Key uint64

// KeyKind says what a Key is.
type KeyKind uint64

// The kinds of keys.
const (
	KeyAddress   KeyKind = iota + 1 // of an instance
	KeyResource                     // a resource's address
	KeyType                         // a resource's type
	KeyMode                         // a resource's mode
	KeyModule                       // a module's path, "" for the root
	KeyOutput                       // "", for all outputs
	KeyDependsOn                    // what an instance depends on
	KeyConfig                       // a resource's address without the keys of its modules (ConfigAddress)
)

// KeyOf makes a key.
func KeyOf(kind KeyKind, text string) Key { return Key(xxh3.HashStringSeed(text, uint64(kind))) }

// chunkKeys is what is known of a stored chunk: where the scan stands at its
// start, and by which keys its elements are found. Chunks never change, so
// that only new ones have to be read when a state was written.
type chunkKeys struct {
	ctx      tfstate.Context
	provider string // of the resource that is open at its start
	plain    bool   // each resource names itself before its instances
	deps     bool   // keys of dependencies are among them
	keys     []Key
	resource tfstate.Resource // noted last
}

func newChunkKeys(ctx tfstate.Context, provider string) *chunkKeys {
	k := &chunkKeys{ctx: ctx, provider: provider, plain: true}
	if ctx.Kind == tfstate.CutInstance {
		k.of(ctx.Resource)
	}
	return k
}

// of notes a resource.
func (k *chunkKeys) of(r tfstate.Resource) {
	was := k.resource
	k.resource = r
	address := r.Address()
	k.keys = append(k.keys, KeyOf(KeyResource, address), KeyOf(KeyConfig, ConfigAddress(address)))
	if r.Type != was.Type {
		k.keys = append(k.keys, KeyOf(KeyType, r.Type))
	}
	if r.Mode != was.Mode {
		k.keys = append(k.keys, KeyOf(KeyMode, r.Mode))
	}
	if r.Module != was.Module || was.Type == "" {
		k.keys = append(k.keys, KeyOf(KeyModule, r.Module))
	}
}

func (k *chunkKeys) add(t *tfstate.Token, deps bool) {
	switch t.Kind {
	case tfstate.CutOutput:
		k.keys = append(k.keys, KeyOf(KeyOutput, ""))
	case tfstate.CutResource:
		ctx, err := tfstate.ResourceAt(t.Raw(), 0)
		k.plain = k.plain && err == nil && ctx.Resource == t.Resource
		k.of(t.Resource)
	case tfstate.CutInstance:
		k.keys = append(k.keys, KeyOf(KeyAddress, t.Inst.Address()))
		if deps {
			for _, d := range tfstate.Dependencies(t.Raw()) {
				k.keys = append(k.keys, KeyOf(KeyDependsOn, d))
			}
		}
	default: // check results are not asked for
	}
}

// has reports whether the chunk may hold an element with all the keys.
func (k *chunkKeys) has(keys []Key) bool {
	for _, want := range keys {
		found := false
		for _, have := range k.keys {
			if have == want {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// cost is the memory that it takes, about.
func (k *chunkKeys) cost() int64 { return int64(cap(k.keys))*8 + 256 }

// stateKeys is what is known of a state's chunks, by their ids.
type stateKeys struct {
	mu     sync.Mutex
	chunks map[uint64]*chunkKeys
	size   int64
}

// find returns what is known of a chunk, nil when it has to be gathered.
func (s *stateKeys) find(id uint64, deps bool) *chunkKeys {
	if k := s.chunks[id]; k != nil && (k.deps || !deps) {
		return k
	}
	return nil
}

func (s *stateKeys) add(id uint64, k *chunkKeys, deps bool) {
	k.deps = deps
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.chunks[id]; old != nil {
		s.size -= old.cost()
	}
	s.chunks[id] = k
	s.size += k.cost()
}

// picked is an entry that is to be read, and what is known of it.
type picked struct {
	entry int
	known *chunkKeys // nil: nothing
}

// pick chooses the entries in which elements with all the keys can be. One of
// which nothing is known is read, and so is the one before it, which tells
// where the scan stands.
func (s *stateKeys) pick(es []entry, deps bool, keys []Key) []picked {
	out := make([]picked, 0, 16)
	s.mu.Lock()
	defer s.mu.Unlock()
	var before *chunkKeys
	for i := range es {
		k := s.find(es[i].id, deps)
		if k == nil || k.has(keys) {
			if k == nil && i > 0 && (len(out) == 0 || out[len(out)-1].entry != i-1) {
				out = append(out, picked{i - 1, before})
			}
			out = append(out, picked{i, k})
		}
		before = k
	}
	return out
}

// trim forgets chunks of versions that are no longer read when they are more
// than those of the list.
func (s *stateKeys) trim(es []entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.chunks) <= 2*len(es)+64 {
		return
	}
	kept := make(map[uint64]*chunkKeys, len(es))
	s.size = 0
	for i := range es {
		if k := s.chunks[es[i].id]; k != nil {
			kept[es[i].id] = k
			s.size += k.cost()
		}
	}
	s.chunks = kept
}

func (s *stateKeys) cost() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// keyIndexBytes bounds the keys of all states. A state of 100,000 resources
// takes some 12 MiB.
const keyIndexBytes = 64 << 20

// keyIndex bounds the memory of all states' keys together; the state read
// longest ago goes first.
type keyIndex struct {
	limit int64

	mu    sync.Mutex
	bySID map[uint64]*list.Element
	order list.List // of *keyEntry, newest first
	size  int64
}

type keyEntry struct {
	sid  uint64
	keys *stateKeys
	cost int64
}

// of returns the keys of a state, to be filled and then settled.
func (x *keyIndex) of(sid uint64) *stateKeys {
	x.mu.Lock()
	defer x.mu.Unlock()
	if el := x.bySID[sid]; el != nil {
		x.order.MoveToFront(el)
		return el.Value.(*keyEntry).keys
	}
	if x.bySID == nil {
		x.bySID = map[uint64]*list.Element{}
	}
	e := &keyEntry{sid: sid, keys: &stateKeys{chunks: map[uint64]*chunkKeys{}}}
	x.bySID[sid] = x.order.PushFront(e)
	return e.keys
}

// settle takes over what a reader has added to a state's keys.
func (x *keyIndex) settle(sid uint64, keys *stateKeys, es []entry) {
	keys.trim(es)
	cost := keys.cost()
	x.mu.Lock()
	defer x.mu.Unlock()
	el := x.bySID[sid]
	if el == nil || el.Value.(*keyEntry).keys != keys {
		return // dropped meanwhile
	}
	e := el.Value.(*keyEntry)
	x.size += cost - e.cost
	e.cost = cost
	for x.size > x.limit {
		last := x.order.Back().Value.(*keyEntry)
		delete(x.bySID, last.sid)
		x.order.Remove(x.order.Back())
		x.size -= last.cost
	}
}

// bytes is the memory in use.
func (x *keyIndex) bytes() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.size
}
