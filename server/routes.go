package server

import (
	"net/http"
	"regexp"
	"slices"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/wire"
)

// The methods that Terraform adds to HTTP's.
const (
	methodLock   = "LOCK"
	methodUnlock = "UNLOCK"
)

// Access says whose request a route answers. The zero value answers nobody.
type Access int

// The kinds of access.
const (
	Denied      Access = iota
	Public             // anybody, without credentials
	Known              // any valid credentials; the handler limits what they see
	Operator           // the operator's control token
	Account            // any control token; the handler limits what it sees
	Workspace          // /v1 below a workspace: control tokens of members with at least the role Least there
	Admin              // /v1 below an environment: control tokens of those who manage its workspace
	Environment        // /v1 below an environment: credentials that may do Action there
	StatePath          // data plane: as Environment, and the workspace must fit
	RunPath            // data plane of a run: as Environment, where the run's state is
)

// Route is one line of the route table: what is registered, who may use it, and
// what the OpenAPI document says of it.
type Route struct {
	Method  string
	Path    string // with {parameters}
	Access  Access
	Action  auth.Action     // what Environment and StatePath routes do
	Least   auth.MemberRole // who may use Workspace routes
	Summary string
	Query   []Param
	Body    any    // example value of the JSON body's type, nil without one
	Takes   string // media of the body when it is no JSON of ours
	Answer  any    // of the JSON answer's type
	Media   string // of the answer when it is no JSON of ours
	Status  int    // of success, 0: 200

	locks  bool // refusals are read as LockInfo
	handle func(*Server, echo.Context) error
}

// Param is a query parameter.
type Param struct{ Name, About string }

var (
	paging  = []Param{{"limit", "at most this many items (1 to 1000, default 100)"}, {"cursor", "the member next of the page before"}}
	lockID  = []Param{{"ID", "the lock's ID; left out when no lock is held"}}
	forceID = []Param{{"id", "the lock's ID; may be left out when exactly one is held"}}
)

const (
	dataPath  = "/states/{ws}/{env}/{state}"
	aliasPath = "/locks/{ws}/{env}/{state}"
	envPath   = "/v1/environments/{env}"
	statePath = "/v1/environments/{env}/states/{state}"
)

const mediaBytes = "application/octet-stream"

// kindsOf are the credentials that an access takes. A control token is never
// good on a state's path: it could not be limited to one environment there.
var kindsOf = map[Access][]auth.Kind{
	Known:       {auth.Automation, auth.PAT, auth.Control},
	Operator:    {auth.Control},
	Account:     {auth.Control},
	Workspace:   {auth.Control},
	Admin:       {auth.Control},
	Environment: {auth.Automation, auth.PAT, auth.Control},
	StatePath:   {auth.Automation, auth.PAT},
	RunPath:     {auth.Automation, auth.PAT},
}

// Routes is the route table: every route that a server has.
func Routes() []Route {
	return slices.Concat(
		dataRoutes(), pageRoutes(), accountRoutes(), environmentRoutes(), stateRoutes(), queryRoutes(),
		historyRoutes(),
		quotaRoutes(),
		operationRoutes(),
		runRoutes(),
	)
}

// dataRoutes are what Terraform and OpenTofu talk to.
func dataRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: dataPath, Access: StatePath, Action: auth.ReadOutputs, handle: (*Server).getState,
			Summary: "The newest version's exact bytes; for the role outputs a state with nothing but outputs", Media: echo.MIMEApplicationJSON,
		},
		{
			Method: http.MethodHead, Path: dataPath, Access: StatePath, Action: auth.ReadOutputs, handle: (*Server).getState,
			Summary: "The newest version's size, digest, number and serial", Media: echo.MIMEApplicationJSON,
		},
		{
			Method: http.MethodPost, Path: dataPath, Access: StatePath, Action: auth.WriteState, handle: (*Server).postState,
			Summary: "Store a new version", Query: lockID, Takes: echo.MIMEApplicationJSON,
		},
		{
			Method: http.MethodPut, Path: dataPath, Access: StatePath, Action: auth.WriteState, handle: (*Server).postState,
			Summary: "Store a new version, as POST", Query: lockID, Takes: echo.MIMEApplicationJSON,
		},
		{
			Method: http.MethodDelete, Path: dataPath, Access: StatePath, Action: auth.WriteState, handle: (*Server).deleteDataState,
			Summary: "Move the state to the trash", Query: lockID,
		},
		{
			Method: methodLock, Path: dataPath, Access: StatePath, Action: auth.LockForPlan, handle: (*Server).lock, locks: true,
			Summary: "Take the lock", Body: wire.LockInfo{},
		},
		{
			Method: methodUnlock, Path: dataPath, Access: StatePath, Action: auth.LockForPlan, handle: (*Server).unlock,
			Summary: "Give the lock back; without an ID: force it open", Body: wire.LockInfo{},
		},
		// the same for proxies that know only the usual methods
		{
			Method: methodLock, Path: aliasPath, Access: StatePath, Action: auth.LockForPlan, handle: (*Server).lock, locks: true,
			Summary: "Take the lock", Body: wire.LockInfo{},
		},
		{
			Method: http.MethodPost, Path: aliasPath, Access: StatePath, Action: auth.LockForPlan, handle: (*Server).lock, locks: true,
			Summary: "Take the lock, as LOCK", Body: wire.LockInfo{},
		},
		{
			Method: http.MethodPut, Path: aliasPath, Access: StatePath, Action: auth.LockForPlan, handle: (*Server).lock, locks: true,
			Summary: "Take the lock, as LOCK", Body: wire.LockInfo{},
		},
		{
			Method: methodUnlock, Path: aliasPath, Access: StatePath, Action: auth.LockForPlan, handle: (*Server).unlock,
			Summary: "Give the lock back", Body: wire.LockInfo{},
		},
		{
			Method: http.MethodDelete, Path: aliasPath, Access: StatePath, Action: auth.LockForPlan, handle: (*Server).unlock,
			Summary: "Give the lock back, as UNLOCK", Body: wire.LockInfo{},
		},
	}
}

// pageRoutes are for people and monitors.
func pageRoutes() []Route {
	return []Route{
		{Method: http.MethodGet, Path: "/healthz", Access: Public, handle: (*Server).healthz, Summary: "Whether the process answers", Media: echo.MIMETextPlain},
		{Method: http.MethodGet, Path: "/readyz", Access: Public, handle: (*Server).readyz, Summary: "Whether requests are taken", Media: echo.MIMETextPlain},
		{Method: http.MethodHead, Path: "/healthz", Access: Public, handle: (*Server).healthz, Summary: "Whether the process answers, without a body", Media: echo.MIMETextPlain},
		{Method: http.MethodHead, Path: "/readyz", Access: Public, handle: (*Server).readyz, Summary: "Whether requests are taken, without a body", Media: echo.MIMETextPlain},
		{Method: http.MethodGet, Path: "/version", Access: Public, handle: (*Server).version, Summary: "The server's version", Answer: wire.ServerVersion{}},
		{Method: http.MethodGet, Path: "/metrics", Access: Public, handle: (*Server).metricsPage, Summary: "Prometheus metrics", Media: echo.MIMETextPlain},
		{Method: http.MethodGet, Path: "/errors/{code}", Access: Public, handle: (*Server).errorPage, Summary: "What an error code means", Media: echo.MIMETextHTML},
		{Method: http.MethodGet, Path: "/v1/openapi.json", Access: Public, handle: (*Server).openAPI, Summary: "This document", Media: echo.MIMEApplicationJSON},
	}
}

// stateRoutes are the control API below a state.
func stateRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: envPath + "/states", Access: Environment, Action: auth.ReadState, handle: (*Server).states,
			Summary: "An environment's states, by name", Query: paging, Answer: wire.List[wire.State]{},
		},
		{Method: http.MethodGet, Path: statePath, Access: Environment, Action: auth.ReadState, handle: (*Server).state, Summary: "One state", Answer: wire.State{}},
		{
			Method: http.MethodPatch, Path: statePath, Access: Environment, Action: auth.WriteState, handle: (*Server).patchState,
			Summary: "Change a state's settings; an empty lock_mode is the environment's", Body: wire.StatePatch{}, Answer: wire.State{},
		},
		{
			Method: http.MethodDelete, Path: statePath, Access: Environment, Action: auth.WriteState, handle: (*Server).deleteState,
			Summary: "Move the state to the trash", Query: lockID, Status: http.StatusNoContent,
		},
		{
			Method: http.MethodPost, Path: statePath + "/restore", Access: Environment, Action: auth.WriteState, handle: (*Server).restoreState,
			Summary: "Bring the state back from the trash or the archive", Answer: wire.State{},
		},
		{
			Method: http.MethodPost, Path: statePath + "/archive", Access: Environment, Action: auth.WriteState, handle: (*Server).archiveState,
			Summary: "Make the state one that is only read", Answer: wire.State{},
		},
		{
			Method: http.MethodPost, Path: statePath + "/purge", Access: Environment, Action: auth.WriteState, handle: (*Server).purgeState,
			Summary: "Remove a state in the trash for good and free its name", Status: http.StatusNoContent,
		},
		{
			Method: http.MethodPost, Path: statePath + "/allow", Access: Environment, Action: auth.WriteState, handle: (*Server).allowState,
			Summary: "Let the next write through although its lineage is foreign or its serial too low", Body: wire.Allow{}, Status: http.StatusNoContent,
		},
		{
			Method: http.MethodGet, Path: statePath + "/versions", Access: Environment, Action: auth.ReadState, handle: (*Server).versions,
			Summary: "A state's versions, newest first", Query: paging, Answer: wire.List[wire.Version]{},
		},
		{
			Method: http.MethodGet, Path: statePath + "/versions/{version}", Access: Environment, Action: auth.ReadState, handle: (*Server).versionBytes,
			Summary: "A version's exact bytes; a number, @N, serial:N, a tag or head", Media: mediaBytes,
		},
		{
			Method: http.MethodGet, Path: statePath + "/lock", Access: Environment, Action: auth.ReadState, handle: (*Server).lockState,
			Summary: "Who holds the state and who waits", Answer: wire.Lock{},
		},
		{
			Method: http.MethodDelete, Path: statePath + "/lock", Access: Environment, Action: auth.WriteState, handle: (*Server).forceUnlock,
			Summary: "Force a lock open", Query: forceID, Status: http.StatusNoContent,
		},
		{
			Method: http.MethodGet, Path: statePath + "/refused", Access: Environment, Action: auth.ReadState, handle: (*Server).refusedList,
			Summary: "Refused writes that are kept", Answer: wire.List[wire.Refused]{},
		},
		{
			Method: http.MethodPost, Path: statePath + "/refused", Access: Environment, Action: auth.WriteState, handle: (*Server).addRefused,
			Summary: "Keep a document, such as an errored.tfstate, as a refused write that can be merged", Takes: echo.MIMEApplicationJSON, Answer: wire.Refused{},
		},
		{
			Method: http.MethodGet, Path: statePath + "/refused/{id}", Access: Environment, Action: auth.ReadState, handle: (*Server).refusedBytes,
			Summary: "A refused write's exact bytes", Media: mediaBytes,
		},
		{
			Method: http.MethodPost, Path: statePath + "/refused/{id}/merge", Access: Environment, Action: auth.WriteState, handle: (*Server).mergeRefused,
			Summary: "Merge a refused write into the head, or show what that would do", Body: wire.MergeRequest{}, Answer: wire.MergeResult{},
		},
		{
			Method: http.MethodDelete, Path: statePath + "/refused/{id}", Access: Environment, Action: auth.WriteState, handle: (*Server).discardRefused,
			Summary: "Discard a refused write", Status: http.StatusNoContent,
		},
	}
}

// Kinds are the credentials that the route takes.
func (r Route) Kinds() []auth.Kind { return kindsOf[r.Access] }

var inBraces = regexp.MustCompile(`\{(\w+)\}`)

// echoPath is the path as Echo's router wants it.
func echoPath(path string) string { return inBraces.ReplaceAllString(path, ":$1") }
