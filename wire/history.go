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
