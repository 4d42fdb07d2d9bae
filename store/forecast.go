package store

import (
	"cmp"
	"context"
	"time"

	"go.etcd.io/bbolt"

	"kl/quota"
	"kl/wire"
)

// foresee adds the forecasts: growth over the last 30 days, from history.
func (s *Store) foresee(ctx context.Context, tx *bbolt.Tx, ref Ref, sid uint64, r *stateRec, uses quota.Uses, q *wire.Quota) error {
	now := s.now()
	since := now.Add(-quota.Window)
	if r.Head != 0 {
		oldest, err := getVersion(tx, sid, r.Oldest)
		if err != nil {
			return err
		}
		at := later(since, oldest.CreatedAt)
		n, err := countAsOf(tx, sid, r, at)
		if err != nil {
			return err
		}
		q.State.Forecast = wireForecast(quota.Sample{At: at, Count: n}, quota.Sample{At: now, Count: r.Managed}, uses[0].Use.Limits)
	}
	type active struct {
		sid uint64
		rec *stateRec
	}
	var all []active
	first := now
	err := eachActive(tx, ref.Environment, func(sid uint64, r *stateRec) error {
		if r.Head == 0 {
			return ctx.Err()
		}
		oldest, err := getVersion(tx, sid, r.Oldest)
		if err == nil && oldest.CreatedAt.Before(first) {
			first = oldest.CreatedAt
		}
		all = append(all, active{sid, r})
		return cmp.Or(err, ctx.Err())
	})
	if err != nil || len(all) == 0 {
		return err
	}
	then := quota.Sample{At: later(since, first)}
	for _, a := range all {
		n, err := countAsOf(tx, a.sid, a.rec, then.At)
		if err != nil {
			return err
		}
		then.Count += n
	}
	q.Environment.Forecast = wireForecast(then, quota.Sample{At: now, Count: q.Environment.Current}, uses[1].Use.Limits)
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func wireForecast(then, now quota.Sample, l quota.Limits) *wire.Forecast {
	f := quota.Foresee(then, now, l)
	return &wire.Forecast{Since: then.At, Growth: f.Growth, PerDay: f.PerDay, TooShort: f.TooShort, SoftAt: f.SoftAt, HardAt: f.HardAt}
}

// countAsOf is what a state counted at a time. Of a state whose versions of
// then were pruned the oldest kept one tells; one that did not exist counted
// nothing. Numbers of versions rise with time, so that a few are looked at.
func countAsOf(tx *bbolt.Tx, sid uint64, r *stateRec, t time.Time) (int64, error) {
	low, high := r.Oldest, r.Head
	var count int64
	if r.Oldest > 1 && !r.CreatedAt.After(t) {
		oldest, err := getVersion(tx, sid, r.Oldest)
		if err != nil {
			return 0, err
		}
		count = oldest.Managed
	}
	c := tx.Bucket(bVersion).Cursor()
	for low <= high {
		middle := low + (high-low)/2
		k, _ := c.Seek(key(sid, middle)) // pruning leaves gaps
		if len(k) != 16 || string(k[:8]) != string(u64(sid)) {
			break
		}
		n, err := sidOf(k[8:])
		if err != nil {
			return 0, err
		}
		if n > high {
			high = middle - 1
			continue
		}
		v, err := getVersion(tx, sid, n)
		if err != nil {
			return 0, err
		}
		if v.CreatedAt.After(t) {
			high = middle - 1
			continue
		}
		count, low = v.Managed, n+1
	}
	return count, nil
}
