package store

import (
	"context"

	"go.etcd.io/bbolt"
)

// Tag puts a tag on a version, or takes it away with version 0; false when the
// version has been pruned.
func (s *Store) Tag(ref Ref, tag string, version uint64) (ok bool, err error) {
	err = s.commit.do(context.Background(), 0, func(tx *bbolt.Tx) error {
		sid, _, err := find(tx, ref)
		if err != nil {
			return err
		}
		if version == 0 {
			return broken(del(tx, bTag, keyS(sid, tag)))
		}
		if ok = has(tx, bVersion, key(sid, version)); !ok {
			return nil
		}
		return broken(put(tx, bTag, keyS(sid, tag), u64(version)))
	})
	return ok, err
}

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
