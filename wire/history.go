package wire

import (
	"encoding/json"
	"time"
)

// VersionRef names a version of a state: its number, @N (N back from the
// head), serial:N, a tag, or head. In JSON it is a string, and numbers are taken
// as well.
type VersionRef string

// UnmarshalJSON reads a string or a number.
func (r *VersionRef) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		err := json.Unmarshal(b, &s)
		*r = VersionRef(s)
		return err
	}
	var n *uint64
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	if *r = ""; n != nil {
		*r = VersionRef(b)
	}
	return nil
}

// Tag is a name for a version.
type Tag struct {
	Tag       string    `json:"tag"`
	Version   uint64    `json:"version"`
	Serial    uint64    `json:"serial"`
	CreatedAt time.Time `json:"created_at"` // of the version
}

// TagRequest asks for a tag to be set.
type TagRequest struct {
	Version VersionRef `json:"version"`
}

// Diff is what two versions of a state have differently. Lists are sorted by
// address.
type Diff struct {
	From       uint64      `json:"from"` // version
	To         uint64      `json:"to"`
	FromSerial uint64      `json:"from_serial"`
	ToSerial   uint64      `json:"to_serial"`
	Address    string      `json:"address,omitempty"` // only what is at or below it was compared
	Added      []DiffItem  `json:"added"`             // instances that only To has
	Changed    []DiffItem  `json:"changed"`
	Removed    []DiffItem  `json:"removed"` // instances that only From has
	Moved      []DiffItem  `json:"moved"`   // the same object at another address; not among added and removed
	Outputs    []DiffValue `json:"outputs"` // root outputs, by name
	Checks     []DiffValue `json:"checks"`  // check results, by what they are about
	Counts     DiffCounts  `json:"counts"`
	Truncated  bool        `json:"truncated"` // not all that was counted is listed
}

// DiffCounts are the numbers of what differs, whatever is listed.
type DiffCounts struct {
	Added   int `json:"added"`
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	Moved   int `json:"moved"`
	Outputs int `json:"outputs"`
	Checks  int `json:"checks"`
}

// DiffItem is an instance that differs.
type DiffItem struct {
	Address    string      `json:"address"`
	From       string      `json:"from,omitempty"` // of a moved one: where it was
	Attributes []DiffValue `json:"attributes"`     // of changed and moved ones
	Members    []DiffValue `json:"members"`        // what else the state tells of the instance: status, dependencies, provider
	Omitted    int         `json:"omitted"`        // attributes and members that differ and are not listed
}

// Kinds of a DiffValue.
const (
	DiffAdded   = "added"
	DiffChanged = "changed"
	DiffRemoved = "removed"
)

// DiffValue is a value that differs.
type DiffValue struct {
	Path      string          `json:"path"`      // of an attribute: tags.Name, list[0].x; of an output: its name; of a check result: what it is about
	Change    string          `json:"change"`    // added, changed, removed
	Before    json.RawMessage `json:"before"`    // null for none, and for what is masked or too large
	After     json.RawMessage `json:"after"`     // likewise
	Sensitive bool            `json:"sensitive"` // values are masked unless they were asked for
	TooLarge  bool            `json:"too_large,omitempty"`
}

// RollbackRequest asks for the content of an earlier version.
type RollbackRequest struct {
	To      VersionRef `json:"to"`
	Address string     `json:"address,omitempty"` // of an instance, a resource or a module; absent: the whole state
	DryRun  bool       `json:"dry_run,omitempty"` // only tell what it would do, or why it would be refused
}

// Rollback is what a rollback did, or would do, to the newest version. Lists
// are sorted by address.
type Rollback struct {
	To         uint64      `json:"to"` // version whose content is taken
	ToSerial   uint64      `json:"to_serial"`
	Address    string      `json:"address,omitempty"`
	DryRun     bool        `json:"dry_run"`
	Unchanged  bool        `json:"unchanged"`  // the newest version has that content already, and no version is made
	Version    uint64      `json:"version"`    // made, 0 for none
	Serial     uint64      `json:"serial"`     // of the newest version afterwards
	Added      []string    `json:"added"`      // instances that come back
	Changed    []string    `json:"changed"`    // that become what they were
	Removed    []string    `json:"removed"`    // that were not there then
	Dependents []Dependent `json:"dependents"` // instances that stay as they are and depend on what is changed or removed
	Missing    []Dependent `json:"missing"`    // instances that come back or change and depend on what is not there
	Twice      []Twice     `json:"twice"`      // instances that come back or change and whose object is at another address too
	Counts     DiffCounts  `json:"counts"`
	Opaque     bool        `json:"opaque"`    // one of both documents cannot be looked into: lists and counts are empty
	Truncated  bool        `json:"truncated"` // not all is listed
	// QuotaWarnings are sentences about soft limits that the version made exceeds.
	QuotaWarnings []string `json:"quota_warnings,omitempty"`
}

// Twice is an object that a state has at two addresses: the instances agree in
// type, provider and attribute id. Terraform destroys it when one of them goes.
type Twice struct {
	Address string `json:"address"`
	AlsoAt  string `json:"also_at"`
}

// Dependent is an instance that depends on a resource.
type Dependent struct {
	Address   string `json:"address"`
	DependsOn string `json:"depends_on"` // a resource's address, without keys
	Change    string `json:"change"`     // what happens to that: changed, removed
}

// Resource is one instance of a resource in a version of a state.
type Resource struct {
	Address      string          `json:"address"`
	Module       string          `json:"module"` // "" for the root
	Mode         string          `json:"mode"`   // managed, data
	Type         string          `json:"type"`
	Name         string          `json:"name"`
	IndexKey     json.RawMessage `json:"index_key"` // number, string or null
	Deposed      string          `json:"deposed,omitempty"`
	Provider     string          `json:"provider"`
	ID           string          `json:"id"`     // its attribute id; "" when it has none, or a sensitive one
	Status       string          `json:"status"` // tainted, or ""
	Dependencies []string        `json:"dependencies"`
}

// What happened to an instance.
const (
	InstanceCreated  = "created"
	InstanceChanged  = "changed"
	InstanceRemoved  = "removed"
	InstanceRestored = "restored" // came back as it had been before
	InstanceMoved    = "moved"    // the same object came from, or went to, another address
	InstancePresent  = "present"  // was there in the oldest version that is kept
)

// InstanceEvent is one line of an instance's history.
type InstanceEvent struct {
	Address   string    `json:"address"`
	Event     string    `json:"event"`          // created, changed, removed, restored, moved, present
	From      string    `json:"from,omitempty"` // moved: where it was before
	To        string    `json:"to,omitempty"`   // moved: where it is since
	Version   uint64    `json:"version"`
	Serial    uint64    `json:"serial"`
	CreatedAt time.Time `json:"created_at"` // of the version
	Principal string    `json:"principal"`
	Who       string    `json:"who"`
	Source    string    `json:"source"`
	RunID     string    `json:"run_id"`
}
