package store

import (
	"context"
	"slices"
	"sync"
)

// versionKey names a version of a state.
type versionKey struct{ sid, version uint64 }

// readings are the versions that somebody reads at the moment, without a
// transaction, and those that are about to be pruned. A version is never both.
type readings struct {
	mu    sync.Mutex
	held  map[versionKey]int
	all   int                          // who holds every version of every state
	freed chan struct{}                // closed when all has become 0; nil while it is
	wait  int                          // who waits for that, to prune
	turn  chan struct{}                // not nil: all has become 0, and it is their turn until this is closed
	going map[versionKey]chan struct{} // closed when it is decided whether the version is gone
}

// hold keeps a version from being pruned until release. When it is about to be
// pruned, nothing is held, and going is closed when that has come to an end.
// A version that was pruned before can be held too: look whether it is there
// after hold, not before.
func (r *readings) hold(k versionKey) (going <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.going[k]; c != nil {
		return c
	}
	if r.held == nil {
		r.held = map[versionKey]int{}
	}
	r.held[k]++
	return nil
}

func (r *readings) release(k versionKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[k]--; r.held[k] == 0 {
		delete(r.held, k)
	}
}

// holdAll keeps every version from being pruned until releaseAll, for those who
// read many. What is about to be pruned is waited for, so that a transaction
// that begins behind holdAll sees only what stays.
func (r *readings) holdAll(ctx context.Context) error {
	for {
		r.mu.Lock()
		going := r.turn
		for _, c := range r.going {
			going = c
			break
		}
		if going == nil {
			if r.all++; r.freed == nil {
				r.freed = make(chan struct{})
			}
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		select {
		case <-going:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *readings) releaseAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all--; r.all == 0 {
		close(r.freed)
		r.freed = nil
		if r.wait > 0 {
			r.turn = make(chan struct{})
		}
	}
}

// waited ends the waiting of one who was told that claim is busy.
func (r *readings) waited() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait--
	r.passTurn()
}

func (r *readings) passTurn() {
	if r.turn != nil && r.wait == 0 {
		close(r.turn)
		r.turn = nil
	}
}

// claim takes the versions that nobody reads for being pruned. done ends that,
// whether they are gone or not. While somebody holds all, nothing is taken, and
// busy is closed when that has ended: then, and when it is not waited for any
// longer, waited must be called, after claim was tried again.
func (r *readings) claim(sid uint64, versions []uint64) (free []uint64, done func(), busy <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.freed != nil {
		r.wait++
		return nil, nil, r.freed
	}
	if r.going == nil {
		r.going = map[versionKey]chan struct{}{}
	}
	c := make(chan struct{})
	for _, v := range versions {
		k := versionKey{sid, v}
		if r.held[k] > 0 || r.going[k] != nil {
			continue
		}
		r.going[k] = c
		free = append(free, v)
	}
	claimed := slices.Clone(free)
	return free, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, v := range claimed {
			delete(r.going, versionKey{sid, v})
		}
		close(c)
	}, nil
}
