package server

import (
	"net/http"

	"kl/auth"
	"kl/wire"
)

const workspacePath = "/v1/workspaces/{ws}"

// accountRoutes are the control API of users, workspaces and what belongs to
// the caller.
func accountRoutes() []Route {
	return []Route{
		{Method: http.MethodGet, Path: "/v1/whoami", Access: Known, handle: (*Server).whoami, Summary: "Who the caller is", Answer: wire.Whoami{}, Query: []Param{{"environment", "tell the role on this environment too, and what holds its workspace"}}},
		{
			Method: http.MethodGet, Path: wire.LastRequestPath, Access: Known, handle: (*Server).lastRequest,
			Summary: "Why the caller's own last refused request was refused", Query: []Param{{"run", "only what came on the state's address within this run"}}, Answer: wire.Request{},
		},
		{Method: http.MethodGet, Path: "/v1/requests/{id}", Access: Known, handle: (*Server).request, Summary: "Why a request was refused", Answer: wire.Request{}},
		{
			Method: http.MethodGet, Path: "/v1/events", Access: Account, handle: (*Server).events,
			Summary: "The audit trail, oldest first; for users that of the workspaces which they manage",
			Answer:  wire.List[wire.Event]{}, Query: append([]Param{
				{"workspace", "only of this workspace"},
				{"environment", "only of this environment"},
				{"state", "only of the state with this name"},
				{"class", "only with this class"},
				{"since", "not before this time (RFC 3339)"},
			}, paging...),
		},

		{Method: http.MethodGet, Path: "/v1/users", Access: Operator, handle: (*Server).users, Summary: "All users", Answer: wire.List[wire.User]{}},
		{
			Method: http.MethodPost, Path: "/v1/users", Access: Operator, handle: (*Server).createUser,
			Summary: "Make a user; the answer alone has the user's control token", Body: wire.UserRequest{}, Answer: wire.User{}, Status: http.StatusCreated,
		},
		{
			Method: http.MethodDelete, Path: "/v1/users/{user}", Access: Operator, handle: (*Server).deleteUser,
			Summary: "End a user, given by id or name, with all tokens, memberships and grants", Status: http.StatusNoContent,
		},

		{Method: http.MethodGet, Path: "/v1/pats", Access: Account, handle: (*Server).pats, Summary: "The caller's personal access tokens", Answer: wire.List[wire.Token]{}},
		{
			Method: http.MethodPost, Path: "/v1/pats", Access: Account, handle: (*Server).createPAT,
			Summary: "Issue a personal access token; the answer alone has its secret", Body: wire.PATRequest{}, Answer: wire.Token{}, Status: http.StatusCreated,
		},
		{
			Method: http.MethodDelete, Path: "/v1/pats/{id}", Access: Account, handle: (*Server).revokePAT,
			Summary: "End a personal access token; grants end with the last one", Status: http.StatusNoContent,
		},

		{Method: http.MethodGet, Path: "/v1/workspaces", Access: Account, handle: (*Server).workspaces, Summary: "The caller's workspaces", Answer: wire.List[wire.Workspace]{}},
		{
			Method: http.MethodPost, Path: "/v1/workspaces", Access: Account, handle: (*Server).createWorkspace,
			Summary: "Make a workspace", Body: wire.WorkspaceRequest{}, Answer: wire.Workspace{}, Status: http.StatusCreated,
		},
		{Method: http.MethodGet, Path: workspacePath, Access: Workspace, Least: auth.Member, handle: (*Server).workspace, Summary: "One workspace", Answer: wire.Workspace{}},
		{
			Method: http.MethodDelete, Path: workspacePath, Access: Workspace, Least: auth.Owner, handle: (*Server).deleteWorkspace,
			Summary: "Remove a workspace that has no environments", Status: http.StatusNoContent,
		},
		{
			Method: http.MethodPost, Path: workspacePath + "/suspend", Access: Operator, handle: (*Server).suspend,
			Summary: "Hold a workspace: what it has can only be read", Body: wire.Suspension{}, Answer: wire.Workspace{},
		},
		{
			Method: http.MethodPost, Path: workspacePath + "/resume", Access: Operator, handle: (*Server).resume,
			Summary: "End a suspension", Answer: wire.Workspace{},
		},
		{
			Method: http.MethodGet, Path: workspacePath + "/members", Access: Workspace, Least: auth.Member, handle: (*Server).members,
			Summary: "A workspace's members", Answer: wire.List[wire.Member]{},
		},
		{
			Method: http.MethodPost, Path: workspacePath + "/members", Access: Workspace, Least: auth.Admin, handle: (*Server).setMember,
			Summary: "Make a user a member, or change a member's role", Body: wire.MemberRequest{}, Answer: wire.Member{},
		},
		{
			Method: http.MethodDelete, Path: workspacePath + "/members/{user}", Access: Workspace, Least: auth.Member, handle: (*Server).removeMember,
			Summary: "End a membership and the grants that came with it; members may end only their own", Status: http.StatusNoContent,
		},
		{
			Method: http.MethodPost, Path: workspacePath + "/leave", Access: Workspace, Least: auth.Member, handle: (*Server).leave,
			Summary: "End the caller's own membership", Status: http.StatusNoContent,
		},
	}
}

// environmentRoutes are the control API of environments and who may use them.
func environmentRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: workspacePath + "/environments", Access: Workspace, Least: auth.Member, handle: (*Server).environments,
			Summary: "A workspace's environments", Answer: wire.List[wire.Environment]{},
		},
		{
			Method: http.MethodPost, Path: workspacePath + "/environments", Access: Workspace, Least: auth.Admin, handle: (*Server).createEnvironment,
			Summary: "Add an environment; slug is required, other settings have defaults", Body: wire.EnvironmentPatch{}, Answer: wire.Environment{}, Status: http.StatusCreated,
		},
		{Method: http.MethodGet, Path: envPath, Access: Environment, Action: auth.ReadState, handle: (*Server).environment, Summary: "One environment", Answer: wire.Environment{}},
		{
			Method: http.MethodPatch, Path: envPath, Access: Admin, handle: (*Server).patchEnvironment,
			Summary: "Change an environment's settings", Body: wire.EnvironmentPatch{}, Answer: wire.Environment{},
		},
		{
			Method: http.MethodDelete, Path: envPath, Access: Admin, handle: (*Server).deleteEnvironment,
			Summary: "Remove an environment that has no states outside of the trash", Status: http.StatusNoContent,
		},
		{
			Method: http.MethodGet, Path: envPath + "/tokens", Access: Admin, handle: (*Server).tokens,
			Summary: "An environment's automation tokens, without their secrets", Answer: wire.List[wire.Token]{},
		},
		{
			Method: http.MethodPost, Path: envPath + "/tokens", Access: Admin, handle: (*Server).createToken,
			Summary: "Issue an automation token; the answer alone has its secret", Body: wire.TokenRequest{}, Answer: wire.Token{}, Status: http.StatusCreated,
		},
		{
			Method: http.MethodDelete, Path: envPath + "/tokens/{id}", Access: Admin, handle: (*Server).revokeToken,
			Summary: "Revoke an automation token", Status: http.StatusNoContent,
		},
		{
			Method: http.MethodGet, Path: envPath + "/access", Access: Admin, handle: (*Server).access,
			Summary: "What each member may do on an environment", Answer: wire.List[wire.Access]{},
		},
		{
			Method: http.MethodPut, Path: envPath + "/grants/{user}", Access: Admin, handle: (*Server).setGrant,
			Summary: "Give a member a role on an environment", Body: wire.GrantRequest{}, Answer: wire.Grant{},
		},
		{
			Method: http.MethodDelete, Path: envPath + "/grants/{user}", Access: Admin, handle: (*Server).endGrant,
			Summary: "Take a member's grant away", Status: http.StatusNoContent,
		},
	}
}
