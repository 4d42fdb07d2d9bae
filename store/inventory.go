package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.etcd.io/bbolt"

	"kl/fault"
)

// Located is a state and where it belongs.
type Located struct {
	Ref
	Workspace     string // id
	WorkspaceName string
	Slug          string // of the environment
	Lifecycle     string
	LockMode      string // "" for the environment's
	Versions      int64  // kept

	sid uint64
}

// Inventory lists the states of the whole file that were ever written, those in
// the trash too, by workspace, environment and name. It reads the states' own
// records, so that it finds them also where other parts of a file are damaged;
// the error tells of those that it could not read.
func (s *Store) Inventory(_ context.Context) ([]Located, error) {
	var out []Located
	var bad []error
	err := s.view(func(tx *bbolt.Tx) error {
		return eachKV(tx, bState, nil, func(k, _ []byte) (bool, error) {
			sid, err := sidOf(k)
			if err != nil {
				bad = append(bad, err)
				return true, nil
			}
			r, _, err := getRec[stateRec](tx, bState, k)
			if err != nil {
				bad = append(bad, fault.Wrap(fault.DataDamaged, err, "the record of state number %d is damaged", sid))
				return true, nil
			}
			if r.Head == 0 {
				return true, nil
			}
			l := Located{Ref: Ref{r.Environment, r.Name}, Lifecycle: r.Lifecycle, LockMode: r.LockMode, Versions: r.Versions, sid: sid}
			if e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(r.Environment)); ok && err == nil {
				l.Workspace, l.Slug = e.WorkspaceID, e.Slug
				if w, ok, err := getRec[workspaceRec](tx, bWorkspace, []byte(e.WorkspaceID)); ok && err == nil {
					l.WorkspaceName = w.Name
				}
			}
			out = append(out, l)
			return true, nil
		})
	})
	slices.SortStableFunc(out, func(a, b Located) int {
		return slices.Compare([]string{a.Workspace, a.Environment, a.Name}, []string{b.Workspace, b.Environment, b.Name})
	})
	return out, errors.Join(append(bad, err)...)
}

// ReadLocated opens the newest version of a state of Inventory; when that is
// damaged, and older is true, the newest that is whole. Bytes are verified
// before the last of them is written. Code: data_damaged.
func (s *Store) ReadLocated(_ context.Context, l Located, older bool) (*Snapshot, error) {
	var numbers []uint64
	err := s.view(func(tx *bbolt.Tx) error {
		return eachKV(tx, bVersion, u64(l.sid), func(k, _ []byte) (bool, error) {
			numbers = append(numbers, binary.BigEndian.Uint64(k[8:]))
			return true, nil
		})
	})
	if err == nil && len(numbers) == 0 {
		err = fmt.Errorf("%w: it has no versions", errRecord)
	}
	for i, n := range slices.Backward(numbers) {
		var snap *Snapshot
		if snap, err = s.whole(l.sid, n, i == len(numbers)-1 && !older); err == nil || !older {
			return snap, damaged(err)
		}
	}
	return nil, damaged(err)
}

// whole opens a version that can be read to its end; head says that it must be
// the one of which the state's record tells.
func (s *Store) whole(sid, n uint64, head bool) (*Snapshot, error) {
	var v *versionRec
	var es []entry
	err := s.view(func(tx *bbolt.Tx) (err error) {
		if v, err = getVersion(tx, sid, n); err != nil {
			return err
		}
		if r, _, err := getRec[stateRec](tx, bState, u64(sid)); head && (err != nil || r.Head != n || !bytes.Equal(r.SHA256, v.SHA256)) {
			return errors.Join(err, fmt.Errorf("%w: version %d is not what the state's record tells of the newest", errRecord, n))
		}
		es, err = manifestOf(tx, sid, n)
		return err
	})
	if err == nil {
		err = s.writeVersion(io.Discard, sid, &v.versionMeta, es)
	}
	if err != nil {
		return nil, err
	}
	return &Snapshot{Version: v.wire(), write: func(w io.Writer) error { return s.writeVersion(w, sid, &v.versionMeta, es) }}, nil
}
