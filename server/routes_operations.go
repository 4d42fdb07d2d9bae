package server

import (
	"net/http"

	"kl/wire"
)

// operationRoutes look after the file: what is kept of it, and copies of it.
func operationRoutes() []Route {
	return []Route{
		{
			Method: http.MethodPost, Path: envPath + "/prune", Access: Admin, handle: (*Server).prune,
			Summary: "Remove the versions that the environment's rules no longer keep, or with dry_run tell which these are",
			Body:    wire.PruneRequest{}, Answer: wire.PruneResult{},
		},
		{
			Method: http.MethodPost, Path: "/v1/users/{user}/token", Access: Operator, handle: (*Server).newUserToken,
			Summary: "Issue a new control token for a user, given by id or name, who has lost it; the one from before ends, PATs and grants stay",
			Answer:  wire.User{}, Status: http.StatusCreated,
		},
		{
			Method: http.MethodGet, Path: wire.BackupPath, Access: Operator, handle: (*Server).backup,
			Summary: "A consistent copy of the whole data file, with its tokens' hashes and every state", Media: mediaBytes,
			Query: []Param{{"rate", "send at most this many bytes a second; default as fast as the client takes them"}},
		},
	}
}
