package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"
)

// memo remembers decoded records of one bucket that are read much more often
// than they change: a record is decoded again only when its bytes differ from
// those it was last decoded from. So it is right whatever a transaction comes
// to, and nothing has to be told to it.
type memo[T any] struct {
	mu sync.Mutex
	m  map[string]remembered[T]
}

type remembered[T any] struct {
	raw []byte
	rec T
}

// maxMemo bounds the records of one memo; then it begins anew. Most take 2 KiB
// with their bytes, a state's released locks up to 7.
const maxMemo = 1024

// get is getRec. What the record points to, such as slices, is shared and must
// not be changed; the record itself is the caller's.
func (m *memo[T]) get(tx *bbolt.Tx, bucket, k []byte) (*T, bool, error) {
	v := peek(tx, bucket, k)
	if v == nil {
		return nil, false, nil
	}
	r, err := m.decode(bucket, k, v)
	return r, err == nil, err
}

// decode is get for bytes that are at hand.
func (m *memo[T]) decode(bucket, k, v []byte) (*T, error) {
	m.mu.Lock()
	r, ok := m.m[string(k)]
	m.mu.Unlock()
	if ok && bytes.Equal(r.raw, v) {
		return &r.rec, nil
	}
	rec := new(T)
	if err := json.Unmarshal(v, rec); err != nil {
		return nil, fmt.Errorf("record %x in bucket %s: %w", k, bucket, err)
	}
	m.remember(k, bytes.Clone(v), rec)
	return rec, nil
}

// put is putRec for a record that will soon be read.
func (m *memo[T]) put(tx *bbolt.Tx, bucket, k []byte, r *T) error {
	v, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record %x for bucket %s: %w", k, bucket, err)
	}
	if err := put(tx, bucket, k, v); err != nil {
		return err
	}
	m.remember(k, v, r)
	return nil
}

func (m *memo[T]) remember(k, v []byte, r *T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m == nil || len(m.m) >= maxMemo {
		m.m = map[string]remembered[T]{}
	}
	m.m[string(k)] = remembered[T]{v, *r}
}

// forget drops a record that was deleted.
func (m *memo[T]) forget(k []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.m, string(k))
}
