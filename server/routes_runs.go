package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/wire"
)

const (
	runsPath     = statePath + "/runs"
	runPath      = runsPath + "/{run}"
	runStatePath = "/runs/{run}/state"
)

// runRoutes are the runs of a state, and what Terraform talks to within one.
func runRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: envPath + "/runs", Access: Environment, Action: auth.ReadState, handle: (*Server).runs,
			Summary: "The runs of all states of an environment, newest first", Query: liveRuns, Answer: wire.List[wire.Run]{},
		},
		{
			Method: http.MethodGet, Path: runsPath, Access: Environment, Action: auth.ReadState, handle: (*Server).runs,
			Summary: "A state's runs, newest first; of those that have ended the last hundred", Query: liveRuns, Answer: wire.List[wire.Run]{},
		},
		{
			Method: http.MethodPost, Path: runsPath, Access: Environment, Action: auth.LockForPlan, handle: (*Server).startRun,
			Summary: "Begin a run on the newest version", Body: wire.RunRequest{}, Answer: wire.Run{}, Status: http.StatusCreated,
		},
		{Method: http.MethodGet, Path: runPath, Access: Environment, Action: auth.ReadState, handle: (*Server).oneRun, Summary: "One run", Answer: wire.Run{}},
		{
			Method: http.MethodPost, Path: runPath + "/reserve", Access: Environment, Action: auth.WriteState, handle: (*Server).reserve,
			Summary: "Reserve addresses, all or nothing, in place of what the run has reserved before", Body: wire.ReserveRequest{}, Answer: wire.Run{},
		},
		{
			Method: http.MethodPost, Path: runPath + "/renew", Access: Environment, Action: auth.LockForPlan, handle: (*Server).renewRun,
			Summary: "Give the run another lease, and say when its apply begins", Body: wire.RunRenewal{}, Answer: wire.Run{},
		},
		{
			Method: http.MethodPost, Path: runPath + "/rebase", Access: Environment, Action: auth.LockForPlan, handle: (*Server).rebaseRun,
			Summary: "Make the newest version what the run sees, to plan again", Answer: wire.Run{},
		},
		{
			Method: http.MethodPost, Path: runPath + "/finish", Access: Environment, Action: auth.LockForPlan, handle: (*Server).finishRun,
			Summary: "End the run as finished or failed and free its reservations", Body: wire.RunEnd{}, Answer: wire.Run{},
		},
		{
			Method: http.MethodPost, Path: runPath + "/abort", Access: Environment, Action: auth.LockForPlan, handle: (*Server).abortRun,
			Summary: "End the run and refuse its later writes; a run of others needs the role write", Body: wire.RunEnd{}, Answer: wire.Run{},
		},
		{
			Method: http.MethodGet, Path: runStatePath, Access: RunPath, Action: auth.ReadState, handle: (*Server).getRunState,
			Summary: "The bytes that the run sees: its base, or its own last write", Media: echo.MIMEApplicationJSON,
		},
		{
			Method: http.MethodHead, Path: runStatePath, Access: RunPath, Action: auth.ReadState, handle: (*Server).getRunState,
			Summary: "The size, digest and serial of what the run sees", Media: echo.MIMEApplicationJSON,
		},
		{
			Method: http.MethodPost, Path: runStatePath, Access: RunPath, Action: auth.WriteState, handle: (*Server).postState,
			Summary: "Merge a write of the run into the state", Query: lockID, Takes: echo.MIMEApplicationJSON,
		},
		{
			Method: http.MethodPut, Path: runStatePath, Access: RunPath, Action: auth.WriteState, handle: (*Server).postState,
			Summary: "Merge a write of the run into the state, as POST", Query: lockID, Takes: echo.MIMEApplicationJSON,
		},
		{
			Method: methodLock, Path: runStatePath, Access: RunPath, Action: auth.LockForPlan, handle: (*Server).lockRun, locks: true,
			Summary: "Take the lock within the run, which is not the state's", Body: wire.LockInfo{},
		},
		{
			Method: methodUnlock, Path: runStatePath, Access: RunPath, Action: auth.LockForPlan, handle: (*Server).unlockRun,
			Summary: "Give the lock within the run back", Body: wire.LockInfo{},
		},
	}
}
