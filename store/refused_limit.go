package store

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"kl/wire"
)

// limitRefused drops refused writes beyond the environment's limits: settled
// ones first, then the oldest. The drop of an open one is an event of its own.
func (s *Store) limitRefused(tx *bbolt.Tx, environment string) error {
	env, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(environment))
	if err != nil || !ok {
		return err
	}
	type kept struct {
		k, ref []byte
		rec    *refusedRec
	}
	var all []kept
	var size int64
	err = eachKV(tx, bRefusedEnv, pair(environment, ""), func(k, v []byte) (bool, error) {
		rec, ok, err := getRec[refusedRec](tx, bRefused, v)
		if err != nil || !ok {
			return false, errors.Join(err, fmt.Errorf("%w: a refused write is listed but not there", errRecord))
		}
		all = append(all, kept{slices.Clone(k), slices.Clone(v), rec})
		size += rec.StoredBytes
		return true, nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b kept) int {
		open := func(k kept) int {
			if k.rec.Status == refusedOpen {
				return 1
			}
			return 0
		}
		return open(a) - open(b)
	})
	oldest := s.now().AddDate(0, 0, -int(env.RefusedKeepDays))
	n := int64(len(all))
	for i, k := range all {
		tooMany := env.RefusedKeepLast > 0 && n > env.RefusedKeepLast
		tooMuch := env.RefusedKeepBytes > 0 && size > env.RefusedKeepBytes
		tooOld := env.RefusedKeepDays > 0 && k.rec.CreatedAt.Before(oldest)
		newest := i == len(all)-1 && n == 1 // the one just kept is never dropped for being large
		if newest || !tooMany && !tooMuch && !tooOld {
			continue
		}
		n, size = n-1, size-k.rec.StoredBytes
		if err := s.dropRefused(tx, environment, k.k, k.ref, k.rec); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) dropRefused(tx *bbolt.Tx, environment string, k, ref []byte, rec *refusedRec) error {
	sid, err := sidOf(ref[:8])
	if err != nil {
		return err
	}
	st, _, err := getRec[stateRec](tx, bState, u64(sid))
	if err != nil {
		return err
	}
	name := ""
	if st != nil {
		name = st.Name
	}
	return errors.Join(
		del(tx, bRefusedEnv, k), del(tx, bRefused, ref), deletePrefix(tx, bRefusedBody, append(slices.Clone(ref), 0)),
		s.event(tx, wire.Event{
			Kind: "refused_write_dropped", Environment: environment, State: name, Serial: rec.Serial,
			Detail: map[string]any{"refused_write": rec.ID, "status": rec.Status, "principal": rec.Principal, "bytes": rec.Bytes},
		}),
	)
}

// forgetRefused takes a purged state's refused writes out of the environment's
// list.
func forgetRefused(tx *bbolt.Tx, environment string, sid uint64) error {
	var keys [][]byte
	err := eachKV(tx, bRefusedEnv, pair(environment, ""), func(k, v []byte) (bool, error) {
		if string(v[:8]) == string(u64(sid)) {
			keys = append(keys, slices.Clone(k))
		}
		return true, nil
	})
	for _, k := range keys {
		err = errors.Join(err, del(tx, bRefusedEnv, k))
	}
	return err
}

// sweepRefused drops refused writes that have become too old.
func (s *Store) sweepRefused() {
	s.commit.try(func(tx *bbolt.Tx) error {
		var envs []string
		if err := tx.Bucket(bEnvironment).ForEach(func(k, _ []byte) error {
			envs = append(envs, string(k))
			return nil
		}); err != nil {
			return err
		}
		for _, e := range envs {
			if err := s.limitRefused(tx, e); err != nil {
				return broken(err)
			}
		}
		return nil
	})
}
