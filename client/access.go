package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"kl/wire"
)

const (
	usersPath = "/v1/users"
	patsPath  = "/v1/pats"
)

// Users lists the users, for the operator.
func (c *Client) Users(ctx context.Context) iter.Seq2[wire.User, error] {
	return pages[wire.User](ctx, c, usersPath, nil)
}

// CreateUser adds a user. The user's control token is in the answer, and cannot
// be had again.
func (c *Client) CreateUser(ctx context.Context, name string) (u wire.User, err error) {
	return u, c.call(ctx, http.MethodPost, usersPath, nil, wire.UserRequest{Name: name}, &u)
}

// DeleteUser ends all that a user, given by id or name, may do.
func (c *Client) DeleteUser(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, usersPath+"/"+url.PathEscape(id), nil, nil, nil)
}

// CreateWorkspace adds a workspace.
func (c *Client) CreateWorkspace(ctx context.Context, q wire.WorkspaceRequest) (w wire.Workspace, err error) {
	return w, c.call(ctx, http.MethodPost, "/v1/workspaces", nil, q, &w)
}

// DeleteWorkspace removes a workspace that has no environments.
func (c *Client) DeleteWorkspace(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, wire.WorkspacePath(id), nil, nil, nil)
}

// Workspace returns one workspace. What is not the caller's is not_found.
func (c *Client) Workspace(ctx context.Context, id string) (w wire.Workspace, err error) {
	return w, c.call(ctx, http.MethodGet, wire.WorkspacePath(id), nil, nil, &w)
}

// SuspendWorkspace holds a workspace: reads go on, writes and new locks are
// refused, and told the reason.
func (c *Client) SuspendWorkspace(ctx context.Context, id, reason string) (w wire.Workspace, err error) {
	return w, c.call(ctx, http.MethodPost, wire.WorkspacePath(id)+"/suspend", nil, wire.Suspension{Reason: reason}, &w)
}

// ResumeWorkspace ends SuspendWorkspace.
func (c *Client) ResumeWorkspace(ctx context.Context, id string) (w wire.Workspace, err error) {
	return w, c.call(ctx, http.MethodPost, wire.WorkspacePath(id)+"/resume", nil, nil, &w)
}

// Members lists the members of a workspace.
func (c *Client) Members(ctx context.Context, workspace string) iter.Seq2[wire.Member, error] {
	return pages[wire.Member](ctx, c, wire.WorkspacePath(workspace)+"/members", nil)
}

// AddMember makes a user a member of a workspace, or changes a member's role.
func (c *Client) AddMember(ctx context.Context, workspace string, q wire.MemberRequest) (m wire.Member, err error) {
	return m, c.call(ctx, http.MethodPost, wire.WorkspacePath(workspace)+"/members", nil, q, &m)
}

// RemoveMember ends a membership of a user, given by id or name, and with it the member's grants.
func (c *Client) RemoveMember(ctx context.Context, workspace, user string) error {
	return c.call(ctx, http.MethodDelete, wire.WorkspacePath(workspace)+"/members/"+url.PathEscape(user), nil, nil, nil)
}

// Leave ends the caller's own membership.
func (c *Client) Leave(ctx context.Context, workspace string) error {
	return c.call(ctx, http.MethodPost, wire.WorkspacePath(workspace)+"/leave", nil, nil, nil)
}

// DeleteEnvironment removes an environment that has no states outside of the
// trash.
func (c *Client) DeleteEnvironment(ctx context.Context, env string) error {
	return c.call(ctx, http.MethodDelete, wire.EnvironmentPath(env), nil, nil, nil)
}

// Access lists what each member of the workspace may do on an environment.
func (c *Client) Access(ctx context.Context, env string) iter.Seq2[wire.Access, error] {
	return pages[wire.Access](ctx, c, wire.EnvironmentPath(env)+"/access", nil)
}

// Grant gives a member of the workspace, by id or name, a role on an environment.
func (c *Client) Grant(ctx context.Context, env, user, role string) (g wire.Grant, err error) {
	return g, c.call(ctx, http.MethodPut, wire.EnvironmentPath(env)+"/grants/"+url.PathEscape(user), nil, wire.GrantRequest{Role: role}, &g)
}

// EndGrant ends a grant at once.
func (c *Client) EndGrant(ctx context.Context, env, user string) error {
	return c.call(ctx, http.MethodDelete, wire.EnvironmentPath(env)+"/grants/"+url.PathEscape(user), nil, nil, nil)
}

// PATs lists the caller's own personal access tokens, without their secrets.
func (c *Client) PATs(ctx context.Context) iter.Seq2[wire.Token, error] {
	return pages[wire.Token](ctx, c, patsPath, nil)
}

// CreatePAT issues a personal access token of the caller. Its secret is in the
// answer, and cannot be had again.
func (c *Client) CreatePAT(ctx context.Context, q wire.PATRequest) (t wire.Token, err error) {
	return t, c.call(ctx, http.MethodPost, patsPath, nil, q, &t)
}

// RevokePAT ends a personal access token of the caller.
func (c *Client) RevokePAT(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, patsPath+"/"+url.PathEscape(id), nil, nil, nil)
}

// ArchiveState makes a state read-only until RestoreState.
func (c *Client) ArchiveState(ctx context.Context, env, state string) (s wire.State, err error) {
	return s, c.call(ctx, http.MethodPost, wire.ControlStatePath(env, state)+"/archive", nil, nil, &s)
}

// LastRequest tells why the caller's last refused request was refused; not_found
// when none is remembered.
func (c *Client) LastRequest(ctx context.Context) (r wire.Request, err error) {
	return r, c.call(ctx, http.MethodGet, wire.LastRequestPath, nil, nil, &r)
}

// LastRequestIn is LastRequest of what came on the state's address within a run.
func (c *Client) LastRequestIn(ctx context.Context, run string) (r wire.Request, err error) {
	return r, c.call(ctx, http.MethodGet, wire.LastRequestPath, url.Values{"run": {run}}, nil, &r)
}
