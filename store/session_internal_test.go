package store

import "testing"

func TestVersionAbove(t *testing.T) {
	for _, c := range []struct {
		version, limit string
		above          bool
	}{
		{"1.11.4", "1.11.4", false},
		{"1.11.5", "1.11.4", true},
		{"1.9.9", "1.11.4", false}, // numbers, not text
		{"1.12.0-beta1", "1.11.4", true},
		{"v1.12.0", "v1.11.4", true},
		{"1.11.9", "1.11", false},
		{"1.12.0", "1.11", true},
		{"1.99.0", "1", false},
		{"2.0.0", "1", true},
		{"1.11", "1.11.4", false},
		{"1.12", "1.11.4", true},
		{"2", "1.11.4", true},
		{"", "1.11.4", false},
		{"dev", "1.11.4", false},
		{"9.9.9.9", "1.11.4", false},
	} {
		if got := versionAbove(c.version, c.limit); got != c.above {
			t.Errorf("%q above %q: %v", c.version, c.limit, got)
		}
	}
}
