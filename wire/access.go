package wire

import (
	"net/url"
	"time"
)

// WorkspacePath is the control API's path of a workspace.
func WorkspacePath(workspace string) string { return "/v1/workspaces/" + url.PathEscape(workspace) }

// LastRequestPath is where the caller's own last refusal is told.
const LastRequestPath = "/v1/requests/last"

// Kinds of workspaces.
const (
	Personal     = "personal"     // exactly one member, its owner
	Organization = "organization" // any number of members
)

// WorkspaceRequest asks for a new workspace.
type WorkspaceRequest struct {
	Name string `json:"name"`
	Kind string `json:"kind,omitempty"` // default organization
	// Owner is the first owner's id or name. A user who asks becomes the owner
	// and leaves it out; the operator must name one for a personal workspace.
	Owner string `json:"owner,omitempty"`
}

// Suspension holds a workspace.
type Suspension struct {
	Reason string `json:"reason"` // told to everybody who is refused
}

// User is somebody who may be a member of workspaces.
type User struct {
	UserID       string    `json:"user_id"`
	Name         string    `json:"name"`   // unique among the active ones
	Status       string    `json:"status"` // active, deleted
	CreatedAt    time.Time `json:"created_at"`
	ControlToken string    `json:"control_token,omitempty"` // only in the answer to the request that made the user
}

// UserRequest asks for a new user.
type UserRequest struct {
	Name string `json:"name"` // 1 to 64 letters, digits and . _ @ + -
}

// Member is a user's part in a workspace.
type Member struct {
	UserID string    `json:"user_id"`
	Name   string    `json:"name"`
	Role   string    `json:"role"` // owner, admin, member
	Since  time.Time `json:"since"`
}

// MemberRequest makes a user a member, or changes a member's role.
type MemberRequest struct {
	User string `json:"user"`           // id or name
	Role string `json:"role,omitempty"` // default member; owner in a personal workspace
}

// GrantRequest gives a member a role on an environment.
type GrantRequest struct {
	Role string `json:"role,omitempty"` // default write
}

// Grant is a member's role on an environment.
type Grant struct {
	EnvPublicID  string    `json:"env_public_id"`
	UserID       string    `json:"user_id"`
	Name         string    `json:"name"`
	Role         string    `json:"role"`   // write, plan, read, outputs
	Status       string    `json:"status"` // active, ended
	GrantedAt    time.Time `json:"granted_at"`
	GrantedBy    string    `json:"granted_by"`
	EndedAt      time.Time `json:"ended_at,omitzero"`
	EndedBecause string    `json:"ended_because,omitempty"` // revoked, membership, pat, user
}

// Statuses of an Access item.
const (
	PATNone      = "No PAT created yet"
	PATActive    = "active"
	PATRevoked   = "revoked" // all are revoked or have expired
	GrantNone    = "none"
	GrantActive  = "active"
	GrantEnded   = "ended"
	UserIsActive = "active"
	UserDeleted  = "deleted"
)

// Access is what one member of the workspace may do on an environment.
type Access struct {
	UserID      string `json:"user_id"`
	Name        string `json:"name"`
	MemberRole  string `json:"member_role"`
	PATStatus   string `json:"pat_status"`   // see PATNone and so on
	GrantStatus string `json:"grant_status"` // none, active, ended
	GrantRole   string `json:"grant_role"`   // "" without a grant
	GrantCount  int    `json:"grant_count"`  // active grants in the whole workspace
}

// PATRequest asks for a new personal access token of the caller.
type PATRequest struct {
	Name      string   `json:"name"`
	ExpiresIn Duration `json:"expires_in,omitempty"` // 0s: never
}
