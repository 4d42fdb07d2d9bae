// Package store keeps everything in one bbolt file: states and their versions,
// locks and their queue, refused writes, accounts, events. It is the only
// package that knows bbolt.
//
// A version is the exact bytes of a POST, cut into chunks at element
// boundaries and stored as a splice against the version before. One request
// that changes something is one write transaction, in which the head is looked
// at again; slow work (reading, scanning, hashing, compressing) happens before.
package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sync/semaphore"

	"kl/fault"
)

const (
	defaultCacheBytes  = 16 << 20
	defaultLargest     = 256 << 20
	defaultBodyBytes   = 1 << 30
	defaultChunkTarget = 8 << 10
)

// Store is an open data file. It is safe for concurrent use.
type Store struct {
	opt    Options
	db     *bbolt.DB
	damage *pageCheck // what is wrong with the structure of a file that is only read
	inUse  int64      // bytes of the pages that were in use when the file was opened
	commit *committer // nil when read-only
	seed   uint64
	bufs   bufPool
	flight budget // bytes of bodies in flight
	codecs codecCache
	cache  headCache
	keys   keyIndex
	envs   memo[environmentRec]
	spaces memo[workspaceRec]
	claims memo[reservationRec]
	tokens memo[tokenRec]
	users  memo[userRec]
	heads  memo[stateRec]
	locks  memo[sessionRec]

	released memo[[]string]

	reading readings
	pruner  pruner
	backups atomic.Int32 // on their way

	mu    sync.Mutex
	lives map[Ref]*live
	used  map[string]time.Time // token id → last use, not yet written
	stop  chan struct{}
	tidy  sync.WaitGroup
}

// Open opens the data file, or creates it with mode 0600 unless ReadOnly. The
// file is locked against other processes. Codes: file_in_use, file_invalid.
func Open(o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.CacheLargest == 0 {
		o.CacheLargest = defaultLargest
	}
	if o.BodyBytes == 0 {
		o.BodyBytes = defaultBodyBytes
	}
	if o.ChunkTarget == 0 {
		o.ChunkTarget = defaultChunkTarget
	}
	if o.RunLease == 0 {
		o.RunLease = defaultRunLease
	}
	fresh, err := preflight(o)
	if err != nil {
		return nil, err
	}
	bo := &bbolt.Options{Timeout: time.Second, ReadOnly: o.ReadOnly, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, PreLoadFreelist: false}
	// growing the map waits for all readers; address space costs nothing (bbolt on Windows would grow the file itself)
	if reserve := int64(64 << 30); runtime.GOOS != "windows" && !o.ReadOnly && reserve <= math.MaxInt {
		bo.InitialMmapSize = int(reserve)
	}
	var damage *pageCheck
	var inUse int64
	if !fresh {
		c, err := inspect(o)
		if err != nil {
			return nil, err
		}
		inUse = c.inUse()
		if len(c.problems) > 0 {
			damage = c
		}
	}
	var db *bbolt.DB
	err = guarded(func() (err error) {
		db, err = bbolt.Open(o.Path, 0o600, bo)
		if errors.Is(err, syscall.ENOMEM) { // a limit on address space
			bo.InitialMmapSize = 0
			db, err = bbolt.Open(o.Path, 0o600, bo)
		}
		return err
	})
	if err != nil {
		return nil, openError(o.Path, err)
	}
	s := &Store{
		opt: o, db: db, damage: damage, inUse: inUse, lives: map[Ref]*live{}, used: map[string]time.Time{}, stop: make(chan struct{}),
	}
	s.flight.room = semaphore.NewWeighted(o.BodyBytes)
	s.cache.limit, s.cache.largest = o.CacheBytes, o.CacheLargest
	s.keys.limit = keyIndexBytes
	if !fresh && !o.ReadOnly {
		// killed after creating the file and before laying it out
		fresh, err = s.bare()
	}
	if fresh {
		err = s.format()
	}
	if err == nil {
		err = s.readMeta()
	}
	if err == nil && !o.ReadOnly {
		err = s.namesLead()
	}
	if err != nil {
		return nil, errors.Join(damagedFile(o, damage, err), db.Close())
	}
	if !o.ReadOnly {
		s.commit = newCommitter(db)
		s.pruner.wake = make(chan struct{}, 1)
		s.tidy.Go(s.background)
		s.tidy.Go(s.prunes)
	}
	return s, nil
}

// preflight says what is wrong with the path before bbolt would panic on it or
// take an empty file for a new one.
func preflight(o Options) (fresh bool, err error) {
	fi, err := os.Stat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.ReadOnly:
		return false, fault.New(fault.FileInvalid, "there is no file %s", o.Path).WithNext("name the data file with --data")
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, fault.Wrap(fault.FileInvalid, err, "the data file %s cannot be looked at", o.Path)
	case fi.IsDir():
		return false, fault.New(fault.FileInvalid, "%s is a directory, not a data file", o.Path).WithNext("name a file with --data")
	case !fi.Mode().IsRegular():
		return false, fault.New(fault.FileInvalid, "%s is a pipe or a device; a data file must lie on a disk", o.Path).
			WithNext("copy it to a file first")
	case fi.Size() == 0:
		return false, fault.New(fault.FileInvalid, "the data file %s is empty", o.Path).
			WithNext("if nothing was ever stored in it, remove it and start again; otherwise restore a backup")
	}
	return false, nil
}

// inspect verifies the file's pages before bbolt is given it. The lock that it
// holds meanwhile is a shared one: no server has the file open. A file that is
// only to be read may be damaged, if there is a root to begin from.
func inspect(o Options) (c *pageCheck, err error) {
	var db *bbolt.DB
	err = guarded(func() (err error) {
		db, err = bbolt.Open(o.Path, 0o600, &bbolt.Options{Timeout: time.Second, ReadOnly: true})
		return err
	})
	if err != nil {
		return nil, openError(o.Path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	f, err := os.Open(o.Path)
	if err != nil {
		return nil, openError(o.Path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return nil, openError(o.Path, err)
	}
	c = checkPages(f, fi.Size())
	switch {
	case len(c.problems) == 0, o.ReadOnly:
		return c, nil
	case c.oneRoot:
		return nil, fault.New(fault.FileInvalid, "the data file %s is damaged: %s", o.Path, c.problems[0]).
			WithNext("restore a backup: kl restore BACKUP --data %s --force; or go on without what may be missing: kl compact --data %s", o.Path, o.Path)
	}
	return nil, fault.New(fault.FileInvalid, "the data file %s is damaged: %s%s", o.Path, c.problems[0], andMore(len(c.problems)-1)).
		WithNext("see what is whole with: kl check --data %s; then restore a backup: kl restore BACKUP --data %s --force", o.Path, o.Path)
}

// damagedFile says of a failure to read the file's first records what it means;
// c is what is wrong with its pages, nil for nothing.
func damagedFile(o Options, c *pageCheck, err error) error {
	switch f := fault.Of(err); {
	case f != nil && f.Code != fault.DataDamaged:
		return err
	case c != nil:
		return fault.New(fault.FileInvalid, "the data file %s is damaged, and nothing can be read from it: %s%s", o.Path, c.problems[0], andMore(len(c.problems)-1)).
			WithNext("restore a backup: kl restore BACKUP --data %s --force", o.Path)
	case o.ReadOnly:
		return fault.Wrap(fault.FileInvalid, err, "the data file %s is damaged, and nothing can be read from it", o.Path).
			WithNext("restore a backup: kl restore BACKUP --data %s --force", o.Path)
	}
	return fault.Wrap(fault.FileInvalid, err, "the data file %s is damaged", o.Path).
		WithNext("see what is whole with: kl check --data %s; then restore a backup: kl restore BACKUP --data %s --force", o.Path, o.Path)
}

// namesLead makes sure that no state has lost its name, or its name it: it would
// be taken for one that was never written, which Terraform creates anew.
func (s *Store) namesLead() error {
	return s.view(func(tx *bbolt.Tx) error {
		names := 0
		err := eachKV(tx, bName, nil, func(_, _ []byte) (bool, error) { names++; return true, nil })
		if err != nil {
			return err
		}
		err = eachRec(tx, bState, nil, func(k []byte, r *stateRec) (bool, error) {
			names--
			if !bytes.Equal(peek(tx, bName, pair(r.Environment, r.Name)), k) {
				return false, fmt.Errorf("%w: the state %s of environment %s is not found by its name", errRecord, r.Name, r.Environment)
			}
			return true, nil
		})
		if err == nil && names != 0 {
			err = fmt.Errorf("%w: names and states are not the same number", errRecord)
		}
		return err
	})
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fault.Wrap(fault.FileInUse, err, "the data file %s is open in another process, probably a running kl serve", path)
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(fault.FileInvalid, err, "the data file %s may not be opened by this user", path).WithNext("check its owner and mode (0600)")
	}
	return fault.Wrap(fault.FileInvalid, err, "%s is not a kl data file, or is damaged", path).WithNext("restore a backup, or start with another file")
}

// bare reports whether the file holds no bucket at all.
func (s *Store) bare() (bool, error) {
	bare := true
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func([]byte, *bbolt.Bucket) error {
			bare = false
			return nil
		})
	})
	return bare, err
}

// format lays out a new file.
func (s *Store) format() error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		for _, b := range buckets {
			if _, err := tx.CreateBucket(b); err != nil {
				return fmt.Errorf("create bucket %s: %w", b, err)
			}
		}
		return errors.Join(
			put(tx, bMeta, keyFormat, binary.BigEndian.AppendUint32(nil, formatVersion)),
			put(tx, bMeta, keyFileID, []byte(uuid.NewString())),
			put(tx, bMeta, keyCreated, []byte(s.now().Format(time.RFC3339))),
			put(tx, bMeta, keySeed, u64(rand.Uint64())),
			put(tx, bMeta, keyNextSID, u64(1)),
		)
	})
}

// readMeta checks the format and reads the seed.
func (s *Store) readMeta() error {
	return s.view(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bMeta)
		if meta == nil {
			return fault.New(fault.FileInvalid, "%s is a bbolt file, but not one of kl", s.opt.Path)
		}
		f := get(tx, bMeta, keyFormat)
		if len(f) != 4 {
			return fault.New(fault.FileInvalid, "%s has no format number", s.opt.Path)
		}
		if n := binary.BigEndian.Uint32(f); n != formatVersion {
			return fault.New(fault.FileInvalid, "%s has format %d, this kl knows format %d", s.opt.Path, n, formatVersion).
				WithNext("use the kl that wrote it, or a newer one")
		}
		for _, b := range buckets {
			if tx.Bucket(b) == nil {
				return fault.New(fault.FileInvalid, "%s lacks the bucket %s", s.opt.Path, b)
			}
		}
		seed := get(tx, bMeta, keySeed)
		if len(seed) != 8 {
			return fault.New(fault.FileInvalid, "%s has no seed", s.opt.Path)
		}
		s.seed = binary.BigEndian.Uint64(seed)
		return nil
	})
}

// Close writes what is still to be written and closes the file.
func (s *Store) Close() error {
	if s.commit != nil {
		close(s.stop)
		s.tidy.Wait()
		s.commit.close()
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.opt.Path, err)
	}
	return nil
}

// now is the time in UTC without its monotonic part, as records keep it.
func (s *Store) now() time.Time { return s.opt.Now().UTC().Round(0) }

// view runs f in a read transaction. f must not wait for anything and must not
// write: a transaction left open keeps freed pages from being reused.
func (s *Store) view(f func(tx *bbolt.Tx) error) error {
	err := guarded(func() error { return s.db.View(f) })
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return fault.Wrap(fault.ShuttingDown, err, "the server is stopping")
	}
	return damaged(err)
}

// background does what nobody waits for: each minute it writes when tokens
// were last used, ends grants that have outlived their user's tokens and runs
// whose lease is over and lets go of memory that is not in use, each hour it drops refused writes that are too
// old.
func (s *Store) background() {
	minute, hour := time.NewTicker(time.Minute), time.NewTicker(time.Hour)
	defer minute.Stop()
	defer hour.Stop()
	for {
		select {
		case <-minute.C:
			s.flushUsed()
			s.endExpired()
			s.expireRuns()
			s.bufs.trim()
			unmap(s.db)
		case <-hour.C:
			s.sweepRefused()
			s.sweepEvents()
		case <-s.stop:
			s.flushUsed()
			s.endExpired()
			return
		}
	}
}

// live is what is kept in memory of a state.
type live struct {
	// write is held by the one who writes the state; the others queue.
	write chan struct{}

	mu   sync.Mutex
	wake chan struct{} // closed when a lock was released or a place given up

	cached *cached // under headCache's lock; nil: the head is not in memory
}

// live returns the memory of a state.
func (s *Store) live(ref Ref) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[ref]
	if l == nil {
		l = &live{write: make(chan struct{}, 1), wake: make(chan struct{})}
		s.lives[ref] = l
	}
	return l
}

// lockWrite waits for the state's turn to write.
func (l *live) lockWrite(ctx context.Context) error {
	select {
	case l.write <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *live) unlockWrite() { <-l.write }

// changed wakes all who wait for the state's lock.
func (l *live) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.wake)
	l.wake = make(chan struct{})
}

// waitCh returns the channel that the next changed closes.
func (l *live) waitCh() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wake
}
