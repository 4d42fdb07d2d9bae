package store

import (
	"time"

	"go.etcd.io/bbolt"
)

// idle reports whether nothing came from a session for so long that its
// environment has it released.
func (s *sessionRec) idle(ttl time.Duration, now time.Time) bool {
	return ttl > 0 && now.Sub(s.LastActivity) > ttl
}

// idleTTL is how long the sessions of an environment may be silent, 0 for ever.
func (s *Store) idleTTL(tx *bbolt.Tx, env string) (time.Duration, error) {
	e, ok, err := s.envs.get(tx, bEnvironment, []byte(env))
	if err != nil || !ok {
		return 0, err
	}
	return time.Duration(e.LockIdleTTL), nil
}

// holderNow returns a session that holds a state and was not idle for too long,
// or nil.
func (s *Store) holderNow(tx *bbolt.Tx, sid uint64, env string) (holder *sessionRec, err error) {
	ttl, err := s.idleTTL(tx, env)
	if err != nil {
		return nil, err
	}
	err = s.eachLock(tx, sid, func(h *sessionRec) (bool, error) {
		if h.idle(ttl, s.now()) {
			return true, nil
		}
		holder = h
		return false, nil
	})
	return holder, err
}
