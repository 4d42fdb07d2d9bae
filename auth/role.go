package auth

// Role is what a grant or a token allows in one environment.
type Role string

// The roles; each includes those below it.
const (
	Write   Role = "write"
	Plan    Role = "plan"
	Read    Role = "read"
	Outputs Role = "outputs"
)

var rank = map[Role]int{Write: 4, Plan: 3, Read: 2, Outputs: 1}

// Valid reports whether the role is one of the four.
func (r Role) Valid() bool { return rank[r] > 0 }

// Action is something that a role may do with a state.
type Action int

// The actions, from the least to the most that a role can do.
const (
	ReadOutputs Action = iota + 1 // GET, answered with outputs only
	ReadState                     // GET of bytes, versions, locks, refused writes
	LockForPlan                   // LOCK for OperationTypePlan and UNLOCK of one's own lock
	WriteState                    // POST, any LOCK, DELETE, force verbs
)

// Allows reports whether the role includes the action.
func (r Role) Allows(a Action) bool { return rank[r] >= int(a) }

// AtLeast reports whether the role includes all that other allows.
func (r Role) AtLeast(other Role) bool { return rank[r] >= rank[other] }

// String names the action as messages do.
func (a Action) String() string {
	switch a {
	case ReadOutputs:
		return "read outputs"
	case ReadState:
		return "read the state"
	case LockForPlan:
		return "lock the state for a plan"
	case WriteState:
		return "write the state"
	}
	return "do this"
}

// Principal is an authenticated caller.
type Principal struct {
	Kind        Kind
	ID          string // of the token
	Name        string // of the token, for people
	User        string // PAT and control: the user's id; "" for the operator
	UserName    string
	Operator    bool   // control: may do everything
	Workspace   string // automation: workspace id
	Environment string // automation: environment public id
	Role        Role   // automation: the token's role
	Sensitive   bool   // role outputs: sensitive outputs are served
}

// Display is how the principal is named in logs and messages.
func (p Principal) Display() string {
	switch {
	case p.UserName != "":
		return p.UserName
	case p.Name != "":
		return p.Name
	}
	return p.ID
}
