package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"kl/fault"
)

// maxGroup bounds the jobs of one transaction, and groupBytes what they write.
const (
	maxGroup   = 128
	groupBytes = 32 << 20
)

// mappedBytes is how much commits write before unmap.
const mappedBytes = 8 << 20

// job is one change that wants to be in a write transaction. run may be called
// again when the transaction did not commit; it returns an error only before
// it has written anything. What it finds out, refusals too, it leaves in
// variables of its caller.
type job struct {
	run  func(tx *bbolt.Tx) error
	size int // bytes it writes, about
	done chan error
}

// committer gathers jobs into write transactions: bbolt has one writer, and
// each of its commits waits twice for the disk, so that jobs which wait at the
// same time share one.
type committer struct {
	db      *bbolt.DB
	jobs    chan *job
	stop    chan struct{}
	stopped chan struct{}
	commits atomic.Uint64
	count   atomic.Uint64

	unmapped int64 // bytes that were written until the last unmap; the loop's own
}

func newCommitter(db *bbolt.DB) *committer {
	c := &committer{db: db, jobs: make(chan *job, 4*maxGroup), stop: make(chan struct{}), stopped: make(chan struct{})}
	go c.loop()
	return c
}

// close commits what is queued and ends the loop.
func (c *committer) close() {
	close(c.stop)
	<-c.stopped
}

// do runs a job in a write transaction and returns when it is on disk. It does
// not stop waiting when ctx ends: the job may have been committed.
func (c *committer) do(ctx context.Context, size int, run func(tx *bbolt.Tx) error) error {
	j := &job{run: run, size: size, done: make(chan error, 1)}
	select {
	case <-c.stop:
		return fault.New(fault.ShuttingDown, "the server is stopping")
	default:
	}
	select {
	case c.jobs <- j:
	case <-c.stop:
		return fault.New(fault.ShuttingDown, "the server is stopping")
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-j.done:
		return err
	case <-c.stopped:
		// the loop drains the queue before it stops; a job that came later is answered here
		select {
		case err := <-j.done:
			return err
		default:
			return fault.New(fault.ShuttingDown, "the server is stopping")
		}
	}
}

// try queues a job if there is room and does not wait for it.
func (c *committer) try(run func(tx *bbolt.Tx) error) {
	select {
	case <-c.stop:
	case c.jobs <- &job{run: run, done: make(chan error, 1)}:
	default:
	}
}

func (c *committer) loop() {
	defer close(c.stopped)
	for {
		select {
		case j := <-c.jobs:
			c.group(j)
		case <-c.stop:
			for {
				select {
				case j := <-c.jobs:
					c.group(j)
				default:
					return
				}
			}
		}
	}
}

// group commits first and whatever waits behind it.
func (c *committer) group(first *job) {
	jobs, size := []*job{first}, first.size
	for waited := false; len(jobs) < maxGroup && size < groupBytes; {
		select {
		case j := <-c.jobs:
			jobs, size = append(jobs, j), size+j.size
			continue
		default:
		}
		if waited {
			break
		}
		// requests that can go on bring their jobs first; when there are none this takes no time
		runtime.Gosched()
		waited = true
	}
	if err := c.commit(jobs); err == nil {
		return
	} else if len(jobs) == 1 {
		first.done <- mapCommitError(err)
		return
	}
	// something in the group broke the transaction: alone, only the culprit fails
	for _, j := range jobs {
		if err := c.commit([]*job{j}); err != nil {
			j.done <- mapCommitError(err)
		}
	}
}

// commit runs the jobs in one transaction and answers them if it commits.
func (c *committer) commit(jobs []*job) (err error) {
	results := make([]error, len(jobs))
	inTx := func(tx *bbolt.Tx) error {
		wrote := false
		for i, j := range jobs {
			results[i] = j.run(tx)
			var broken *brokenError
			if errors.As(results[i], &broken) {
				return broken.err
			}
			wrote = wrote || results[i] == nil
		}
		if !wrote {
			return errNothing
		}
		return nil
	}
	// a panic of a job must reach bbolt as an error, and one of bbolt's nobody
	err = guarded(func() error {
		return c.db.Update(func(tx *bbolt.Tx) error { return guarded(func() error { return inTx(tx) }) })
	})
	if err != nil && !errors.Is(err, errNothing) {
		return err
	}
	c.commits.Add(1)
	c.count.Add(uint64(len(jobs)))
	for i, j := range jobs {
		j.done <- results[i]
	}
	stats := c.db.Stats()
	if written := stats.TxStats.GetPageAlloc(); written-c.unmapped >= mappedBytes {
		unmap(c.db)
		c.unmapped = written
	}
	return nil
}

// errNothing rolls a transaction back in which no job has written.
var errNothing = errors.New("nothing to commit")

// brokenError is a failure after the first write of a job: the whole
// transaction must go.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// broken marks err as one that leaves a half-made change behind; nil stays nil.
func broken(err error) error {
	if err == nil {
		return nil
	}
	return &brokenError{err}
}

// mapCommitError gives faults to what the disk answers.
func mapCommitError(err error) error {
	switch {
	case fault.Of(err) != nil:
		return err
	case diskFull(err):
		return fault.Wrap(fault.DiskFull, err, "the disk that holds the data file is full; nothing was stored")
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return fault.Wrap(fault.ShuttingDown, err, "the server is stopping")
	}
	return damaged(fmt.Errorf("commit: %w", err))
}

// diskFull reports whether a write failed for want of room.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
