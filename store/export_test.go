package store

import "go.etcd.io/bbolt"

// StoredOf tells what reading a version takes: the stored bytes of its chunks
// and their bases, and those of its chunk list.
func (s *Store) StoredOf(ref Ref, version uint64) (chunks, list int64, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		sid, _, err := find(tx, ref)
		if err != nil {
			return err
		}
		es, err := manifestOf(tx, sid, version)
		if err != nil {
			return err
		}
		for _, e := range es {
			chunks += int64(len(peek(tx, bChunk, key(sid, e.id))))
			if e.base != 0 {
				chunks += int64(len(peek(tx, bChunk, key(sid, e.base))))
			}
		}
		for n := version; ; {
			v, err := getVersion(tx, sid, n)
			if err != nil {
				return err
			}
			list += int64(len(peek(tx, bVersion, key(sid, n))))
			if v.whole {
				return eachKV(tx, bManifest, key(sid, n), func(_, b []byte) (bool, error) {
					list += int64(len(b))
					return true, nil
				})
			}
			n = v.Previous
		}
	})
	return chunks, list, err
}

// OpenTransactions is how many read transactions are open.
func (s *Store) OpenTransactions() int { return s.db.Stats().OpenTxN }

// DropEvents drops all but the newest events.
func (s *Store) DropEvents(keep uint64) { s.dropEvents(keep) }

// RoomToCompact is how many bytes Compact wants the disk of a file to have.
func RoomToCompact(path string) (int64, error) {
	s, err := Open(Options{Path: path, ReadOnly: true})
	if err != nil {
		return 0, err
	}
	return s.inUse, s.Close()
}
