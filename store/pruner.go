package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// pruneEvery is how often all states are looked at.
const pruneEvery = 5 * time.Minute

// pruner is what the background pruning knows.
type pruner struct {
	wake chan struct{}
	turn sync.Mutex // held by who prunes, one at a time

	mu   sync.Mutex
	soon map[Ref]bool // states that have grown beyond what they keep

	seen map[Ref]pruned // only the pruning goroutine uses it
}

// pruned is when a state was last found to have nothing to prune. While that
// holds, it need not be looked at again.
type pruned struct {
	head     uint64
	versions int64
	rules    keepRules
	next     time.Time // zero: not by time alone
	held     bool      // a pin may end at any time
}

// slack is how many versions more than keep_last a state may have before it is
// pruned at once: each pruning writes a chunk list.
func slack(keepLast int64) int64 { return max(8, keepLast/4) }

// wrote lets a state be pruned soon when it has grown enough beyond what its
// environment keeps, so that a busy state's file does not grow meanwhile.
func (s *Store) wrote(ref Ref, w *writing) {
	if w.keepLast == 0 || w.versions <= w.keepLast+slack(w.keepLast) {
		return
	}
	s.pruner.mu.Lock()
	if s.pruner.soon == nil {
		s.pruner.soon = map[Ref]bool{}
	}
	s.pruner.soon[ref] = true
	s.pruner.mu.Unlock()
	select {
	case s.pruner.wake <- struct{}{}:
	default:
	}
}

// prunes is the goroutine that prunes.
func (s *Store) prunes() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-s.stop
		cancel()
	}()
	s.pruner.seen = map[Ref]pruned{}
	all := time.NewTicker(pruneEvery)
	defer all.Stop()
	for {
		select {
		case <-s.pruner.wake:
			s.pruner.mu.Lock()
			soon := s.pruner.soon
			s.pruner.soon = nil
			s.pruner.mu.Unlock()
			for ref := range soon {
				s.pruneQuietly(ctx, ref)
			}
		case <-all.C:
			s.pruneAll(ctx)
		case <-s.stop:
			return
		}
	}
}

// pruneQuietly prunes a state. A failure changes nothing, and the next pass
// comes again: what is wrong with the disk or the file shows in requests.
func (s *Store) pruneQuietly(ctx context.Context, ref Ref) {
	_, p, err := s.pruneState(ctx, Actor{}, ref, false)
	if err != nil || p.rec == nil {
		delete(s.pruner.seen, ref)
		return
	}
	s.pruner.seen[ref] = pruned{head: p.rec.Head, versions: p.rec.Versions - int64(len(p.out)), rules: p.rules, next: p.next, held: len(p.held) > 0}
}

// pruneAll looks at all states of which something may have to go.
func (s *Store) pruneAll(ctx context.Context) {
	due, err := s.duePrunes()
	if err != nil {
		return
	}
	for _, ref := range due {
		if ctx.Err() != nil {
			return
		}
		s.pruneQuietly(ctx, ref)
	}
}

// duePrunes finds the states for which that is not ruled out, and forgets
// those that are gone.
func (s *Store) duePrunes() (due []Ref, err error) {
	now, there := s.now(), map[Ref]bool{}
	err = s.view(func(tx *bbolt.Tx) error {
		return eachRec(tx, bState, nil, func(_ []byte, r *stateRec) (bool, error) {
			ref := Ref{r.Environment, r.Name}
			e, ok, err := s.envs.get(tx, bEnvironment, []byte(r.Environment))
			if err != nil || !ok || r.Versions < 2 || r.Lifecycle != lifecycleActive {
				return true, err
			}
			there[ref] = true
			k, ok := s.pruner.seen[ref]
			if ok && k.head == r.Head && k.versions == r.Versions && k.rules == (keepRules{e.KeepLast, e.KeepDays}) && !k.held && (k.next.IsZero() || now.Before(k.next)) {
				return true, nil
			}
			due = append(due, ref)
			return true, nil
		})
	})
	for ref := range s.pruner.seen {
		if !there[ref] {
			delete(s.pruner.seen, ref)
		}
	}
	return due, err
}

const (
	// maxEvents is how many events are kept: years of a busy server, and a few
	// hundred megabytes.
	maxEvents = 1_000_000
	// eventBatch bounds the events that one transaction drops.
	eventBatch = 2000
)

// sweepEvents drops the oldest events beyond maxEvents.
func (s *Store) sweepEvents() { s.dropEvents(maxEvents) }

func (s *Store) dropEvents(keep uint64) {
	for again := true; again; {
		again = false
		err := s.commit.do(context.Background(), 1<<20, func(tx *bbolt.Tx) error {
			last := tx.Bucket(bEvent).Sequence()
			if last <= keep {
				return errNothing
			}
			var old [][]byte
			err := eachKV(tx, bEvent, nil, func(k, _ []byte) (bool, error) {
				if len(old) == eventBatch || string(k) > string(u64(last-keep)) {
					return false, nil
				}
				old = append(old, slices.Clone(k))
				return true, nil
			})
			if err != nil {
				return err
			}
			if len(old) == 0 {
				return errNothing
			}
			again = len(old) == eventBatch
			for _, k := range old {
				err = errors.Join(err, del(tx, bEvent, k))
			}
			return broken(err)
		})
		if err != nil {
			return
		}
	}
}
