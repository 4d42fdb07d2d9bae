// Package wire holds what server, client and command line say to each other:
// JSON bodies, paths and header names. It imports nothing of this project.
package wire

import (
	"encoding/json"
	"net/url"
	"time"
)

// Headers of answers.
const (
	HeaderRequestID = "KL-Request-Id"
	HeaderVersion   = "KL-Version"
	HeaderSerial    = "KL-Serial"
	HeaderMerged    = "KL-Merged"
)

// MediaProblem is the media type of refusals.
const MediaProblem = "application/problem+json"

// StatePath is the data plane's path of a state.
func StatePath(workspace, environment, state string) string {
	return "/states/" + url.PathEscape(workspace) + "/" + url.PathEscape(environment) + "/" + url.PathEscape(state)
}

// LockPath is the alias of a state's path for locking with standard methods.
func LockPath(workspace, environment, state string) string {
	return "/locks/" + url.PathEscape(workspace) + "/" + url.PathEscape(environment) + "/" + url.PathEscape(state)
}

// EnvironmentPath is the control API's path of an environment.
func EnvironmentPath(environment string) string {
	return "/v1/environments/" + url.PathEscape(environment)
}

// ControlStatePath is the control API's path of a state.
func ControlStatePath(environment, state string) string {
	return EnvironmentPath(environment) + "/states/" + url.PathEscape(state)
}

// LockInfo is a lock as Terraform describes it on LOCK and UNLOCK. The names
// are Terraform's (statemgr.LockInfo).
type LockInfo struct {
	ID        string `json:"ID"`
	Operation string `json:"Operation"`
	Info      string `json:"Info"`
	Who       string `json:"Who"`
	Version   string `json:"Version"`
	Created   string `json:"Created,omitempty"` // RFC 3339; kept as sent, for a bad date makes clients drop the whole answer
	Path      string `json:"Path"`
}

// Operations that LockInfo names, of those the server treats specially.
const (
	OperationPlan  = "OperationTypePlan"
	OperationApply = "OperationTypeApply"
	OperationPush  = "state-push"
)

// Problem is a refusal. Members of the class are in Extra and stand beside the
// others in JSON.
type Problem struct {
	Type      string
	Title     string
	Status    int
	Detail    string
	Code      string
	Class     string
	NextStep  string
	RequestID string
	Extra     map[string]any
}

// MarshalJSON writes all members into one object.
func (p Problem) MarshalJSON() ([]byte, error) {
	m := make(map[string]any, len(p.Extra)+8)
	for k, v := range p.Extra {
		m[k] = v
	}
	m["type"], m["title"], m["status"], m["detail"] = p.Type, p.Title, p.Status, p.Detail
	m["code"], m["class"], m["next_step"], m["request_id"] = p.Code, p.Class, p.NextStep, p.RequestID
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Problem) UnmarshalJSON(b []byte) error {
	var known struct {
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		Detail    string `json:"detail"`
		Code      string `json:"code"`
		Class     string `json:"class"`
		NextStep  string `json:"next_step"`
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal(b, &known); err != nil {
		return err
	}
	extra := map[string]any{}
	if err := json.Unmarshal(b, &extra); err != nil {
		return err
	}
	for _, k := range []string{"type", "title", "status", "detail", "code", "class", "next_step", "request_id"} {
		delete(extra, k)
	}
	*p = Problem{known.Type, known.Title, known.Status, known.Detail, known.Code, known.Class, known.NextStep, known.RequestID, extra}
	return nil
}

// List is the form of every listing; Next is the cursor of the next page, ""
// on the last.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// Bootstrap is what the first start creates. The secrets in it are shown once.
type Bootstrap struct {
	ControlToken    string `json:"control_token"`
	WorkspaceID     string `json:"workspace_id"`
	EnvPublicID     string `json:"env_public_id"`
	AutomationToken string `json:"automation_token"`
	Address         string `json:"address"` // of a state named demo
}

// Workspace is a tenant.
type Workspace struct {
	WorkspaceID string    `json:"workspace_id"`
	Name        string    `json:"name"`
	Kind        string    `json:"kind"`   // personal, organization
	Status      string    `json:"status"` // active, suspended
	CreatedAt   time.Time `json:"created_at"`
	// MemberRole is the caller's own: owner, admin, member; "" for the operator.
	MemberRole      string    `json:"member_role,omitempty"`
	SuspendedReason string    `json:"suspended_reason,omitempty"`
	SuspendedBy     string    `json:"suspended_by,omitempty"`
	SuspendedAt     time.Time `json:"suspended_at,omitzero"`
}

// Environment holds states and the rules for them.
type Environment struct {
	EnvPublicID          string    `json:"env_public_id"`
	Slug                 string    `json:"slug"`
	WorkspaceID          string    `json:"workspace_id"`
	LockMode             string    `json:"lock_mode"` // exclusive, optimistic
	RecoveryHold         bool      `json:"recovery_hold"`
	LockIdleTTL          Duration  `json:"lock_idle_ttl"`         // 0s: locks never expire
	MaxTerraformVersion  string    `json:"max_terraform_version"` // "": no limit
	StateSoftLimit       int64     `json:"state_soft_limit"`      // managed instances, 0: none
	StateHardLimit       int64     `json:"state_hard_limit"`
	EnvironmentSoftLimit int64     `json:"environment_soft_limit"`
	EnvironmentHardLimit int64     `json:"environment_hard_limit"`
	KeepLast             int64     `json:"keep_last"`          // versions, 0: all
	KeepDays             int64     `json:"keep_days"`          // 0: for ever
	RefusedKeepLast      int64     `json:"refused_keep_last"`  // refused writes per environment
	RefusedKeepBytes     int64     `json:"refused_keep_bytes"` // stored bytes of them per environment
	RefusedKeepDays      int64     `json:"refused_keep_days"`
	CreatedAt            time.Time `json:"created_at"`
	ByteLimits
}

// EnvironmentPatch changes settings of an environment; nil members stay.
type EnvironmentPatch struct {
	Slug                *string   `json:"slug,omitempty"`
	LockMode            *string   `json:"lock_mode,omitempty"`
	RecoveryHold        *bool     `json:"recovery_hold,omitempty"`
	LockIdleTTL         *Duration `json:"lock_idle_ttl,omitempty"`
	MaxTerraformVersion *string   `json:"max_terraform_version,omitempty"`
	KeepLast            *int64    `json:"keep_last,omitempty"`
	KeepDays            *int64    `json:"keep_days,omitempty"`
	RefusedKeepLast     *int64    `json:"refused_keep_last,omitempty"`
	RefusedKeepBytes    *int64    `json:"refused_keep_bytes,omitempty"`
	RefusedKeepDays     *int64    `json:"refused_keep_days,omitempty"`
	LimitsPatch
}

// Token is an automation token of an environment, or a personal access token.
type Token struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Role       string    `json:"role"`                // write, plan, read, outputs; "" for a PAT, whose roles are its user's grants
	Sensitive  bool      `json:"sensitive,omitempty"` // role outputs: sensitive outputs are served
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  Moment    `json:"expires_at"`       // null: never
	LastUsedAt Moment    `json:"last_used_at"`     // null: never used
	RevokedAt  Moment    `json:"revoked_at"`       // null: valid
	Secret     string    `json:"secret,omitempty"` // only in the answer to the request that made it
}

// TokenRequest asks for a new token.
type TokenRequest struct {
	Name      string   `json:"name"`
	Role      string   `json:"role,omitempty"`       // default write
	Sensitive bool     `json:"sensitive,omitempty"`  // role outputs only: serve sensitive outputs too
	ExpiresIn Duration `json:"expires_in,omitempty"` // 0s: never
}

// State is one state of an environment.
type State struct {
	Name          string    `json:"name"`
	Lifecycle     string    `json:"lifecycle"` // active, archived, deleted
	Lineage       string    `json:"lineage"`
	Serial        uint64    `json:"serial"`
	Version       uint64    `json:"version"`        // 0: never written
	ResourceCount int64     `json:"resource_count"` // managed instances, without deposed ones
	InstanceCount int64     `json:"instance_count"` // all instances, data sources and deposed ones too
	Bytes         int64     `json:"bytes"`
	LockMode      string    `json:"lock_mode"` // exclusive, optimistic
	Opaque        bool      `json:"opaque"`
	UpdatedAt     time.Time `json:"updated_at"`
	Sessions      int       `json:"sessions"`      // locks held now
	RefusedOpen   int       `json:"refused_open"`  // refused writes that wait for recovery
	VersionCount  int64     `json:"version_count"` // versions kept
	// Quota are the limits that are the state's own; nil: all are the
	// environment's.
	Quota *StateLimits `json:"quota,omitempty"`
	// QuotaWarnings are sentences about soft limits that the environment exceeds
	// since the state was brought back; in the answer to that alone.
	QuotaWarnings []string `json:"quota_warnings,omitempty"`
}

// Version is one version of a state.
type Version struct {
	Version          uint64    `json:"version"`
	Serial           uint64    `json:"serial"`
	Lineage          string    `json:"lineage"`
	TerraformVersion string    `json:"terraform_version"`
	CreatedAt        time.Time `json:"created_at"`
	Principal        string    `json:"principal"`
	Who              string    `json:"who"` // LockInfo.Who of the session, "" without one
	LockID           string    `json:"lock_id"`
	RunID            string    `json:"run_id"`
	Source           string    `json:"source"`                     // write, merge, rollback, recover, push
	RollbackTo       uint64    `json:"rollback_to,omitempty"`      // source rollback: version whose content was taken
	RollbackAddress  string    `json:"rollback_address,omitempty"` // and within which address, "" for all of it
	ResourceCount    int64     `json:"resource_count"`
	Added            int64     `json:"added"` // instances, against the version before; -1 when not known
	Changed          int64     `json:"changed"`
	Removed          int64     `json:"removed"`
	Bytes            int64     `json:"bytes"`
	StoredBytes      int64     `json:"stored_bytes"`
	SHA256           string    `json:"sha256"`
	Opaque           bool      `json:"opaque"`
	Tags             []string  `json:"tags"`
}

// Lock is who holds a state and who waits for it.
type Lock struct {
	Mode    string   `json:"mode"` // exclusive, optimistic
	Holders []Holder `json:"holders"`
	Queue   []Waiter `json:"queue"`
	// Runs have reserved parts of the state; in exclusive mode locks that are not
	// for a plan wait for them.
	Runs []RunBlock `json:"runs"`
}

// Holder is an open session: LockInfo as it was sent, and what the server
// knows.
type Holder struct {
	LockInfo
	Principal    string    `json:"principal"`
	Since        time.Time `json:"since"`
	LastActivity time.Time `json:"last_activity"`
	Checkpoints  int64     `json:"checkpoints"` // writes accepted in this session
	BaseVersion  uint64    `json:"base_version"`
	Stale        bool      `json:"stale"` // idle for long; nothing is released by itself unless lock_idle_ttl says so
}

// Waiter has a place in the queue for a lock.
type Waiter struct {
	ID        string    `json:"id"`
	Who       string    `json:"who"`
	Operation string    `json:"operation"`
	Since     time.Time `json:"since"`
	LastSeen  time.Time `json:"last_seen"`
	Position  int       `json:"position"` // from 1
}

// Refused is a write that was refused and kept.
type Refused struct {
	ID                   string    `json:"id"`
	CreatedAt            time.Time `json:"created_at"`
	Class                string    `json:"class"`
	Code                 string    `json:"code"`
	Detail               string    `json:"detail"`
	Principal            string    `json:"principal"`
	Serial               uint64    `json:"serial"`
	Lineage              string    `json:"lineage"`
	LockID               string    `json:"lock_id"`
	RunID                string    `json:"run_id"`
	Bytes                int64     `json:"bytes"`
	SHA256               string    `json:"sha256"`
	BaseVersion          uint64    `json:"base_version"` // head when it was refused
	ConflictingAddresses []string  `json:"conflicting_addresses"`
	UnknownToHead        []string  `json:"unknown_to_head"` // instances created or replaced there, capped
	Holds                bool      `json:"holds"`           // holds back the principal's next apply while open
	Status               string    `json:"status"`          // open, merged, discarded, superseded
	RequestID            string    `json:"request_id"`
}

// Event is one entry of the audit trail.
type Event struct {
	ID          uint64         `json:"id"`
	Time        time.Time      `json:"time"`
	Kind        string         `json:"kind"`
	Class       string         `json:"class"`
	Code        string         `json:"code"`
	Principal   string         `json:"principal"`
	Workspace   string         `json:"workspace"`
	Environment string         `json:"environment"`
	State       string         `json:"state"`
	Version     uint64         `json:"version"`
	Serial      uint64         `json:"serial"`
	RequestID   string         `json:"request_id"`
	Detail      map[string]any `json:"detail"`
}

// Request is what is remembered of a refused request.
type Request struct {
	RequestID   string         `json:"request_id"`
	Time        time.Time      `json:"time"`
	Method      string         `json:"method"`
	Route       string         `json:"route"`
	Status      int            `json:"status"`
	Class       string         `json:"class"`
	Code        string         `json:"code"`
	Detail      string         `json:"detail"`
	NextStep    string         `json:"next_step"`
	Principal   string         `json:"principal"`
	PrincipalID string         `json:"principal_id"`
	User        string         `json:"user,omitempty"` // whose token it was, "" for automation tokens and the operator
	Workspace   string         `json:"workspace"`
	Environment string         `json:"environment"`
	State       string         `json:"state"`
	LockID      string         `json:"lock_id"`
	RunID       string         `json:"run_id,omitempty"` // on whose address it came, "" elsewhere
	Members     map[string]any `json:"members"`          // what the problem document had besides
	// Story tells all of it in sentences: what was tried, what stood in the
	// way, where the bytes are, what to do next. Lines of a list begin with
	// two blanks.
	Story []string `json:"story,omitempty"`
}

// Whoami is who the caller is to the server.
type Whoami struct {
	Kind        string `json:"kind"` // automation, pat, control
	ID          string `json:"id"`
	Name        string `json:"name"`
	User        string `json:"user"`
	Operator    bool   `json:"operator"`
	Workspace   string `json:"workspace_id"`
	Environment string `json:"env_public_id"`
	Role        string `json:"role"`           // of an automation token, or of the caller on the environment asked for
	Hold        string `json:"hold,omitempty"` // in words, when the workspace of the environment asked for is suspended
}

// Allow is a one-shot permission for the next write of a state.
type Allow struct {
	Lineage     bool `json:"lineage,omitempty"`
	LowerSerial bool `json:"lower_serial,omitempty"`
}

// ServerVersion is what GET /version answers.
type ServerVersion struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// Duration is a time.Duration written as Go writes them, such as "90s".
type Duration time.Duration

// MarshalText writes the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads; negative ones are errors.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err == nil && v < 0 {
		err = &time.ParseError{Layout: "duration", Value: string(b), Message: ": negative duration"}
	}
	*d = Duration(v)
	return err
}

// StatePatch changes settings of a state; nil members stay.
type StatePatch struct {
	LockMode *string `json:"lock_mode,omitempty"` // exclusive, optimistic, or "" for the environment's
	// Quota changes the state's own limits. It takes the rights of who manages
	// the environment.
	Quota *StateLimits `json:"quota,omitempty"`
}

// Sides of a conflict.
const (
	TakeDisjoint = "disjoint" // what does not overlap; of the rest the head's
	TakeMine     = "mine"     // the refused write's
	TakeTheirs   = "theirs"   // the head's
)

// Take says which side wins where a refused write and the head overlap: one
// for all, or mine or theirs for each address. It is written as a string or as
// an object.
type Take struct {
	All     string
	Address map[string]string
}

// MarshalJSON writes a string or an object.
func (t Take) MarshalJSON() ([]byte, error) {
	if t.Address != nil {
		return json.Marshal(t.Address)
	}
	return json.Marshal(t.All)
}

// UnmarshalJSON reads a string or an object of strings.
func (t *Take) UnmarshalJSON(b []byte) error {
	*t = Take{}
	if len(b) > 0 && b[0] == '{' {
		return json.Unmarshal(b, &t.Address)
	}
	return json.Unmarshal(b, &t.All)
}

// MergeRequest asks for a refused write to be merged into the head.
type MergeRequest struct {
	DryRun bool  `json:"dry_run,omitempty"`
	Take   *Take `json:"take,omitempty"` // absent: an overlap is a conflict, and so is what depends on what is gone
}

// MergeResult is what a merge of a refused write did, or would do.
type MergeResult struct {
	ID          string    `json:"id"`
	DryRun      bool      `json:"dry_run"`
	Status      string    `json:"status"`  // of the refused write afterwards
	Version     uint64    `json:"version"` // made, 0 for none
	Serial      uint64    `json:"serial"`
	Added       []string  `json:"added"`       // addresses that come back into the head
	Changed     []string  `json:"changed"`     // that become what the refused write says
	Removed     []string  `json:"removed"`     // that go from the head
	Overlapping []Overlap `json:"overlapping"` // changed on both sides, or dependent on what others deleted
	Newer       []string  `json:"newer"`       // that others changed since, and that stay as they are in the head
	// QuotaWarnings are sentences about soft limits that the version made exceeds.
	QuotaWarnings []string `json:"quota_warnings,omitempty"`
	// Refusal is the sentence with which the merge would be refused for another
	// cause than what overlaps; in the answer to a dry run only.
	Refusal string `json:"refusal,omitempty"`
}

// Overlap is an address that a refused write and others changed differently, or
// one that depends on what others deleted.
type Overlap struct {
	Address string `json:"address"`
	Side    string `json:"side"` // mine, theirs; "" as long as nothing was chosen
	// DependsOn is the deleted resource that the address depends on; "" when both sides changed the address.
	DependsOn string    `json:"depends_on,omitempty"`
	Who       string    `json:"who"` // who changed it in the head
	When      time.Time `json:"when,omitzero"`
	Version   uint64    `json:"version"`
}
