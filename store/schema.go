package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/wire"
)

// formatVersion is the number in meta "format". A change of the file's layout
// adds a migration and a file of the format before it to testdata.
const formatVersion = 1

// The buckets. All are created with the file, also those that only later
// features fill, so that these need no migration.
var (
	bMeta        = []byte("meta")         // see the key… constants
	bWorkspace   = []byte("workspace")    // workspace id → workspaceRec
	bEnvironment = []byte("environment")  // environment public id → environmentRec
	bSlug        = []byte("slug")         // workspace id 0 slug → environment public id
	bUser        = []byte("user")         // user id → userRec
	bMember      = []byte("member")       // workspace id 0 user id → memberRec
	bGrant       = []byte("grant")        // environment public id 0 user id → grantRec
	bToken       = []byte("token")        // token id → tokenRec
	bTokenHash   = []byte("token_hash")   // SHA-256 of the secret → token id
	bName        = []byte("name")         // environment public id 0 state name → sid
	bState       = []byte("state")        // sid → stateRec
	bVersion     = []byte("version")      // sid version → versionRec
	bManifest    = []byte("manifest")     // sid version piece → part of a whole chunk list
	bChange      = []byte("change")       // sid version piece → part of a long change list
	bChunk       = []byte("chunk")        // sid chunk id → chunk
	bDict        = []byte("dict")         // sid dictionary number → dictionary
	bSession     = []byte("session")      // sid lock id → sessionRec
	bOverlay     = []byte("overlay")      // sid lock id → packed change list: where the client's view is not that of its base version
	bReleased    = []byte("released")     // sid → lock ids released last
	bQueue       = []byte("queue")        // sid lock id or run id → ticketRec
	bRun         = []byte("run")          // sid run id → runRec; sid run id 0 piece → part of what its view differs in
	bReservation = []byte("reservation")  // sid run id → reservationRec, one for each live run
	bTag         = []byte("tag")          // sid tag → version
	bRefused     = []byte("refused")      // sid refused id → refusedRec
	bRefusedBody = []byte("refused_body") // sid refused id 0 piece → part of its bytes
	bRefusedEnv  = []byte("refused_env")  // environment public id 0 sequence → key in refused
	bEvent       = []byte("event")        // event id → wire.Event
	bRequest     = []byte("request")      // request id → wire.Request
	bRequestRing = []byte("request_ring") // sequence → request id
)

var buckets = [][]byte{
	bMeta, bWorkspace, bEnvironment, bSlug, bUser, bMember, bGrant, bToken, bTokenHash, bName, bState, bVersion, bManifest, bChange,
	bChunk, bDict, bSession, bOverlay, bReleased, bQueue, bRun, bReservation, bTag, bRefused, bRefusedBody, bRefusedEnv, bEvent, bRequest, bRequestRing,
}

// Keys of the meta bucket.
var (
	keyFormat  = []byte("format")  // formatVersion, uint32
	keyFileID  = []byte("file_id") // a UUID
	keyCreated = []byte("created") // RFC 3339
	keySeed    = []byte("seed")    // uint64: seed of all content hashes of the file
	keyNextSID = []byte("next_sid")
)

// workspaceRec is a workspace.
type workspaceRec struct {
	V int `json:"v"`
	wire.Workspace
}

// environmentRec is an environment.
type environmentRec struct {
	V int `json:"v"`
	wire.Environment
	// Total are the managed instances of its active states; nil: not counted
	// yet.
	Total *int64 `json:"total,omitempty"`
}

// userRec is a user, also one that was deleted.
type userRec struct {
	V         int       `json:"v"`
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	DeletedAt time.Time `json:"deleted_at,omitzero"`
}

// memberRec is a user's part in a workspace.
type memberRec struct {
	V     int             `json:"v"`
	User  string          `json:"user"`
	Role  auth.MemberRole `json:"role"`
	Since time.Time       `json:"since"`
}

// grantRec is a member's role on an environment, also one that has ended.
type grantRec struct {
	V           int       `json:"v"`
	Environment string    `json:"environment"`
	Workspace   string    `json:"workspace"`
	User        string    `json:"user"`
	Role        auth.Role `json:"role"`
	GrantedAt   time.Time `json:"granted_at"`
	GrantedBy   string    `json:"granted_by"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
	Because     string    `json:"because,omitempty"`
}

// tokenRec is a credential. The secret itself is never stored.
type tokenRec struct {
	V           int       `json:"v"`
	ID          string    `json:"id"`
	Kind        auth.Kind `json:"kind"`
	Name        string    `json:"name"`
	Hash        []byte    `json:"hash"`
	User        string    `json:"user,omitempty"`
	Operator    bool      `json:"operator,omitempty"`
	Workspace   string    `json:"workspace,omitempty"`
	Environment string    `json:"environment,omitempty"`
	Role        auth.Role `json:"role,omitempty"`
	Sensitive   bool      `json:"sensitive,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"`
	RevokedAt   time.Time `json:"revoked_at,omitzero"`
	LastUsedAt  time.Time `json:"last_used_at,omitzero"`
}

// Lifecycles of a state.
const (
	lifecycleActive   = "active"
	lifecycleArchived = "archived"
	lifecycleDeleted  = "deleted"
)

// stateRec is a state: what is true of its head, and counters.
type stateRec struct {
	V              int       `json:"v"`
	Environment    string    `json:"env"`
	Name           string    `json:"name"`
	Lifecycle      string    `json:"lifecycle"`
	LifecycleSince time.Time `json:"lifecycle_since,omitzero"`
	LifecycleBy    string    `json:"lifecycle_by,omitempty"`
	LockMode       string    `json:"lock_mode,omitempty"` // "": the environment's
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`

	Head         uint64 `json:"head"`       // version, 0 before the first
	NextChunk    uint64 `json:"next_chunk"` // chunk ids from here on are not in use
	Oldest       uint64 `json:"oldest"`     // oldest kept version
	Versions     int64  `json:"versions"`   // kept
	Serial       uint64 `json:"serial"`
	Lineage      string `json:"lineage"`
	Instances    int64  `json:"instances"` // all, with data sources and deposed ones
	Managed      int64  `json:"managed"`   // without data sources and deposed ones
	Resources    int64  `json:"resources"`
	Outputs      int64  `json:"outputs"`
	Bytes        int64  `json:"bytes"`
	StoredBytes  int64  `json:"stored_bytes"` // of all kept chunks
	SHA256       []byte `json:"sha256,omitempty"`
	Opaque       bool   `json:"opaque,omitempty"`
	Target       int    `json:"target"`     // chunk size aimed at
	Dict         uint16 `json:"dict"`       // dictionary in use, 0 for none
	DictBytes    int64  `json:"dict_bytes"` // size of the state that it was sampled from
	SnapshotDebt int    `json:"debt"`       // splice entries since the last whole chunk list
	AllowLineage bool   `json:"allow_lineage,omitempty"`
	AllowSerial  bool   `json:"allow_serial,omitempty"`

	Limits *wire.StateLimits `json:"limits,omitempty"` // its own ones
}

// empty reports whether the head holds nothing that a foreign lineage would
// destroy.
func (r *stateRec) empty() bool {
	return r.Head == 0 || !r.Opaque && r.Instances == 0 && r.Outputs == 0
}

// sessionRec is an open session: a lock, and what its client has seen and
// sent.
type sessionRec struct {
	V              int           `json:"v"`
	Info           wire.LockInfo `json:"info"`
	PrincipalKind  auth.Kind     `json:"principal_kind"`
	PrincipalID    string        `json:"principal_id"`
	Principal      string        `json:"principal"` // for people
	Since          time.Time     `json:"since"`
	LastActivity   time.Time     `json:"last_activity"`
	BaseVersion    uint64        `json:"base_version"` // head when the lock was granted, then that of the last own write
	Checkpoints    int64         `json:"checkpoints"`
	LastCheckpoint time.Time     `json:"last_checkpoint,omitzero"`
	Shared         bool          `json:"shared,omitempty"`       // granted beside others: its writes are merged
	Pinned         bool          `json:"pinned,omitempty"`       // BaseVersion is what its client has seen, whatever serial it sends
	FirstSerial    uint64        `json:"first_serial,omitempty"` // of its first attempt to write, if that was refused
	LastVersion    uint64        `json:"last_version,omitempty"` // own last accepted write
	LastSerial     uint64        `json:"last_serial,omitempty"`  // as the client sent it
	LastSHA256     []byte        `json:"last_sha256,omitempty"`
}

// plan reports whether the session shares the state with other plans.
func (s *sessionRec) plan() bool { return s.Info.Operation == wire.OperationPlan }

// ticketRec is a place in the queue for a lock.
type ticketRec struct {
	V           int           `json:"v"`
	Seq         uint64        `json:"seq"` // order of arrival
	Info        wire.LockInfo `json:"info"`
	PrincipalID string        `json:"principal_id"`
	Since       time.Time     `json:"since"`
	LastSeen    time.Time     `json:"last_seen"` // with the time that its request is held open
	Seen        int64         `json:"seen"`      // requests; a place counts from the second on
	Run         bool          `json:"run,omitempty"`
	Write       []string      `json:"write,omitempty"` // what a run waits for
	Read        []string      `json:"read,omitempty"`
}

// confirmed reports whether the client has come back for its place.
func (t *ticketRec) confirmed() bool { return t.Seen >= 2 }

// refusedRec is a refused write that is kept.
type refusedRec struct {
	V int `json:"v"`
	wire.Refused
	PrincipalID string    `json:"principal_id"`
	User        string    `json:"user,omitempty"`         // the writer's, when a user's token wrote
	SeenVersion uint64    `json:"seen_version,omitempty"` // what its writer saw last, 0 when not known
	Overlay     []byte    `json:"overlay,omitempty"`      // and where it saw that differently, a packed change list
	StoredBytes int64     `json:"stored_bytes"`
	Pieces      int       `json:"pieces"`
	Unknown     []heldRec `json:"unknown,omitempty"`     // instances that the head did not know
	UnknownAll  bool      `json:"unknown_all,omitempty"` // the list is not complete: opaque, or too many
}

// of reports whether the write is p's: of the credential that sent it, or of
// another one of the same user, who has perhaps replaced one that ended.
func (r *refusedRec) of(p auth.Principal) bool {
	return r.PrincipalID == p.ID || r.User != "" && r.User == p.User
}

// heldRec is an instance that a refused write tells of.
type heldRec struct {
	Address string `json:"address"`
	Hash    []byte `json:"hash"`
}

func u64(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

// sidOf reads a number that a value holds.
func sidOf(v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: %x is not a number", errRecord, v)
	}
	return binary.BigEndian.Uint64(v), nil
}

// key joins a state's id and further numbers.
func key(sid uint64, more ...uint64) []byte {
	k := make([]byte, 0, 8*(1+len(more)))
	k = binary.BigEndian.AppendUint64(k, sid)
	for _, m := range more {
		k = binary.BigEndian.AppendUint64(k, m)
	}
	return k
}

// keyS joins a state's id and a text.
func keyS(sid uint64, s string) []byte { return append(u64(sid), s...) }

// pair joins two texts of which the first has no zero byte.
func pair(a, b string) []byte { return append(append([]byte(a), 0), b...) }

// peek looks at a value in place, for those who decode it at once: the bytes
// die with the transaction. nil means that there is none.
func peek(tx *bbolt.Tx, bucket, k []byte) []byte { return tx.Bucket(bucket).Get(k) }

// get copies a value out of the transaction: bbolt's memory dies with it. nil
// means that there is none.
func get(tx *bbolt.Tx, bucket, k []byte) []byte {
	v := tx.Bucket(bucket).Get(k)
	if v == nil {
		return nil
	}
	return append(make([]byte, 0, len(v)), v...)
}

// has reports whether there is a value.
func has(tx *bbolt.Tx, bucket, k []byte) bool { return tx.Bucket(bucket).Get(k) != nil }

// getRec reads a JSON record; false means that there is none.
func getRec[T any](tx *bbolt.Tx, bucket, k []byte) (*T, bool, error) {
	v := tx.Bucket(bucket).Get(k)
	if v == nil {
		return nil, false, nil
	}
	r := new(T)
	if err := json.Unmarshal(v, r); err != nil {
		return nil, false, fmt.Errorf("record %x in bucket %s: %w", k, bucket, err)
	}
	return r, true, nil
}

// putRec writes a JSON record.
func putRec(tx *bbolt.Tx, bucket, k []byte, r any) error {
	v, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record %x for bucket %s: %w", k, bucket, err)
	}
	return put(tx, bucket, k, v)
}

func put(tx *bbolt.Tx, bucket, k, v []byte) error {
	if err := tx.Bucket(bucket).Put(k, v); err != nil {
		return fmt.Errorf("put into bucket %s: %w", bucket, err)
	}
	return nil
}

func del(tx *bbolt.Tx, bucket, k []byte) error {
	if err := tx.Bucket(bucket).Delete(k); err != nil {
		return fmt.Errorf("delete from bucket %s: %w", bucket, err)
	}
	return nil
}

// eachKV calls f for the keys that begin with prefix, in order, until it
// returns false or an error. Keys and values must not be kept.
func eachKV(tx *bbolt.Tx, bucket, prefix []byte, f func(k, v []byte) (bool, error)) error {
	c := tx.Bucket(bucket).Cursor()
	for k, v := c.Seek(prefix); k != nil && len(k) >= len(prefix) && string(k[:len(prefix)]) == string(prefix); k, v = c.Next() {
		more, err := f(k, v)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// eachRec calls f for the JSON records whose keys begin with prefix.
func eachRec[T any](tx *bbolt.Tx, bucket, prefix []byte, f func(k []byte, r *T) (bool, error)) error {
	return eachKV(tx, bucket, prefix, func(k, v []byte) (bool, error) {
		r := new(T)
		if err := json.Unmarshal(v, r); err != nil {
			return false, fmt.Errorf("record %x in bucket %s: %w", k, bucket, err)
		}
		return f(k, r)
	})
}

// deletePrefix removes all keys that begin with prefix.
func deletePrefix(tx *bbolt.Tx, bucket, prefix []byte) error {
	c := tx.Bucket(bucket).Cursor()
	for k, _ := c.Seek(prefix); k != nil && len(k) >= len(prefix) && string(k[:len(prefix)]) == string(prefix); k, _ = c.Seek(prefix) {
		if err := c.Delete(); err != nil {
			return fmt.Errorf("delete from bucket %s: %w", bucket, err)
		}
	}
	return nil
}
