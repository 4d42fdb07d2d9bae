package server

import (
	"time"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/store"
	"kl/wire"
)

// call is what is known of a request while it is answered.
type call struct {
	id    string
	start time.Time
	route *Route // nil when no route matches
	path  string // the route's path, for the log and the metrics

	locks bool // a refusal is read as LockInfo

	principal auth.Principal
	known     bool      // principal is set
	role      auth.Role // on the environment, on routes below one
	throttled bool      // too many such failures: this one is not remembered

	workspace   string
	environment string
	state       string
	lockID      string
	runID       string // of the path, on addresses of a run

	body *stallReader // nil without a body

	refusal *wire.Problem // what was answered instead of a success
	cause   error         // of a refusal, for the log
	stack   []byte        // of a panic
	gone    bool          // the client left before the answer
}

const callKey = "kl.call"

// callOf returns the request's call; frame has put it there.
func callOf(c echo.Context) *call {
	cl, ok := c.Get(callKey).(*call)
	if !ok {
		return &call{}
	}
	return cl
}

func (cl *call) ref() store.Ref { return store.Ref{Environment: cl.environment, Name: cl.state} }

func (cl *call) actor() store.Actor {
	return store.Actor{Principal: cl.principal, RequestID: cl.id}
}

// maxLockID is the longest lock ID, in characters. Terraform's have 36.
const maxLockID = 200

// checkLockID refuses what no client makes: such IDs would only disfigure logs
// and messages.
func checkLockID(id string) error {
	n := 0
	for _, r := range id {
		if !printable(r) {
			return fault.New(fault.LockInfoInvalid, "the lock ID holds a character that cannot be printed").
				WithNext("send the ID that the LOCK was made with")
		}
		n++
	}
	if n > maxLockID {
		return fault.New(fault.LockInfoInvalid, "the lock ID has %d characters, more than %d", n, maxLockID).
			WithNext("send the ID that the LOCK was made with")
	}
	return nil
}
