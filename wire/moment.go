package wire

import (
	"bytes"
	"time"
)

// Moment is a time that may not have come: the zero time is null in JSON, so
// that the member is always there.
type Moment struct{ time.Time }

// MarshalJSON gives null for the zero time, else RFC 3339.
func (m Moment) MarshalJSON() ([]byte, error) {
	if m.IsZero() {
		return []byte("null"), nil
	}
	return m.Time.MarshalJSON()
}

// UnmarshalJSON reads null or RFC 3339.
func (m *Moment) UnmarshalJSON(raw []byte) error {
	if bytes.Equal(raw, []byte("null")) {
		m.Time = time.Time{}
		return nil
	}
	return m.Time.UnmarshalJSON(raw)
}
