package wire

import (
	"net/url"
	"time"
)

// RunStatePath is the state's address within a run: what Terraform talks to
// there instead of StatePath.
func RunStatePath(run string) string { return "/runs/" + url.PathEscape(run) + "/state" }

// RunsPath is the control API's path of a state's runs.
func RunsPath(environment, state string) string {
	return ControlStatePath(environment, state) + "/runs"
}

// Status of a run. The first three are those of a live one.
const (
	RunPlanning = "planning" // has reserved nothing yet
	RunReserved = "reserved" // holds its reservations, and its apply has not begun
	RunApplying = "applying" // its apply has begun: it has said so, or has written
	RunFinished = "finished"
	RunFailed   = "failed"
	RunAborted  = "aborted"
	RunExpired  = "expired" // its lease ended
)

// RunLive reports whether a run with that status goes on.
func RunLive(status string) bool {
	return status == RunPlanning || status == RunReserved || status == RunApplying
}

// RunRequest begins a run on the state's newest version.
type RunRequest struct {
	Actor  string `json:"actor,omitempty"`  // who, for people, such as ana@laptop; the credential's name when empty
	Reason string `json:"reason,omitempty"` // what for
}

// Run is a declared change to one state.
type Run struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	Environment string `json:"env_public_id"`
	StatePath   string `json:"state_path"` // below the server's address; what Terraform talks to
	// BaseVersion is the version that the run sees besides its own changes: the
	// head when it began, or was rebased, and its own last write from then on.
	BaseVersion uint64 `json:"base_version"`
	// Serial is that of the run's own view: what GET on StatePath serves.
	Serial uint64 `json:"serial"`
	// WriteSet and ReadSet are what is reserved: instances, whole resources and
	// whole modules. Of a run that has ended, at most 100 of each.
	WriteSet       []string  `json:"write_set"`
	ReadSet        []string  `json:"read_set"`
	Actor          string    `json:"actor"`
	Principal      string    `json:"principal"` // credential that it belongs to
	Reason         string    `json:"reason"`
	Status         string    `json:"status"`
	CreatedAt      time.Time `json:"created_at"`
	ReservedAt     time.Time `json:"reserved_at,omitzero"`
	LastActivity   time.Time `json:"last_activity"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
	Lease          Duration  `json:"lease"` // what a renewal gives
	Checkpoints    int64     `json:"checkpoints"`
	LastCheckpoint time.Time `json:"last_checkpoint,omitzero"`
	LastVersion    uint64    `json:"last_version"` // made by its last write, 0 for none
	HeadVersion    uint64    `json:"head_version"` // of the state, now
	// BaseMoved says that others have changed what this run reserved or reads
	// since it last looked: it should rebase and plan again. Moved names the
	// addresses, at most 100.
	BaseMoved bool     `json:"base_moved"`
	Moved     []string `json:"moved"`
	// Waiting says that it waits for reservations; QueuePosition counts from 1.
	Waiting       bool      `json:"waiting"`
	QueuePosition int       `json:"queue_position"`
	EndedAt       time.Time `json:"ended_at,omitzero"`
	EndedBy       string    `json:"ended_by,omitempty"`
	EndReason     string    `json:"end_reason,omitempty"`
}

// ReserveRequest declares what a run will change and what it relies on. Both
// sets replace what the run has reserved before.
type ReserveRequest struct {
	WriteSet []string `json:"write_set"`
	ReadSet  []string `json:"read_set,omitempty"`
	// Wait asks for a place in the queue when others are in the way. The request
	// is held open for a few seconds; a client that goes on waiting sends it
	// again within 40 seconds.
	Wait Duration `json:"wait,omitempty"`
}

// RunRenewal renews a run's lease. Status applying says that the apply of what
// is reserved begins; left out, the status stays.
type RunRenewal struct {
	Status string `json:"status,omitempty"`
}

// RunEnd ends a run: Status finished (also when empty) or failed for finish;
// Reason is for people.
type RunEnd struct {
	Status string `json:"status,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// RunBlock is a run that is, or may be, in the way of others.
type RunBlock struct {
	RunID          string    `json:"run_id"`
	Actor          string    `json:"actor"`
	Principal      string    `json:"principal"`
	Status         string    `json:"status"`
	Addresses      []string  `json:"addresses"` // in refusals those that overlap; at most 100
	Since          time.Time `json:"since"`
	Age            Duration  `json:"age"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
	Waiting        bool      `json:"waiting,omitempty"` // it does not hold them, but waits in front
}
