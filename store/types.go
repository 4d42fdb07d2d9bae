package store

import (
	"io"
	"time"

	"kl/auth"
	"kl/wire"
)

// Options say how a data file is opened.
type Options struct {
	Path     string
	ReadOnly bool             // break-glass verbs: the file is not changed
	Now      func() time.Time // default time.Now
	// CacheBytes bounds the head bodies kept in memory for quick reads, all
	// together; 0 means 16 MiB. The head used last is kept beyond that, if it
	// is not larger than CacheLargest; 0 means 256 MiB. Others are read from
	// the file.
	CacheBytes   int64
	CacheLargest int64
	// BodyBytes bounds the bodies that are being received or written at the
	// same time, all together; 0 means 1 GiB. Further ones wait.
	BodyBytes int64
	// ChunkTarget is the size that chunks of new states aim at, in bytes; 0
	// means 8 KiB. A file may hold states cut with different targets.
	ChunkTarget int
	// RunLease is how long a run lives after its last request; 0 means 15
	// minutes.
	RunLease time.Duration
}

// Ref names a state: the environment's public id and the state's name.
type Ref struct {
	Environment string
	Name        string
}

// Actor is who does something, for records and messages.
type Actor struct {
	auth.Principal
	RequestID string
}

// LockRequest asks for a state's lock.
type LockRequest struct {
	Ref   Ref
	Actor Actor
	Info  wire.LockInfo
	// Hold is how long a repeated request may be held open until the lock is
	// free; 0 means not at all.
	Hold time.Duration
	// Stop, when closed, ends the holding with the ordinary refusal; the
	// request keeps its place in the queue. May be nil.
	Stop <-chan struct{}
}

// UnlockRequest gives a lock back. ID "" is a force-unlock: it releases the
// only holder.
type UnlockRequest struct {
	Ref   Ref
	Actor Actor
	ID    string
	// Force releases the lock with that ID whoever took it (audited).
	Force bool
}

// WriteRequest is one POST.
type WriteRequest struct {
	Ref    Ref
	Actor  Actor
	LockID string // "" when the client holds no lock
	Run    string // the run that it is a write of, "" for none
	Body   *Body  // the caller keeps it and must call Release afterwards
}

// Written says what became of a write.
type Written struct {
	Version uint64
	Serial  uint64
	Merged  bool
	Replay  bool // the same write was accepted before; nothing was stored
	// Warnings are sentences about soft limits that the write has exceeded.
	Warnings []string
}

// Snapshot is one version of a state, ready to be read. It holds no
// transaction open. Close must be called.
type Snapshot struct {
	wire.Version
	write func(w io.Writer) error
	close func()
}

// WriteTo writes the exact bytes of the version. An error of the store means
// that the bytes written so far are all right but not complete: the caller
// must break the connection off, never end it as if all were well.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	if err := s.write(w); err != nil {
		return 0, err
	}
	return s.Bytes, nil
}

// Close lets go of the snapshot.
func (s *Snapshot) Close() {
	if s.close != nil {
		s.close()
		s.close = nil
	}
}

// EventFilter selects events; zero members select all.
type EventFilter struct {
	Workspace   string
	Within      []string // only of these workspaces; nil: of all
	Environment string
	State       string
	Class       string
	Since       time.Time
	After       uint64 // cursor: events with a higher id
	Limit       int    // 0: 100
}

// Stats is what /metrics shows of the store.
type Stats struct {
	FileBytes     int64 // size of the data file
	FreePageBytes int64 // of it free for reuse
	States        int64
	Versions      int64
	Sessions      int64
	Waiters       int64
	RefusedOpen   int64
	Runs          int64  // live ones
	Commits       uint64 // write transactions since the file was opened
	CommitJobs    uint64 // jobs in them; their ratio is the group size
	CacheBytes    int64
	BodyBytes     int64 // of bodies in flight
}
