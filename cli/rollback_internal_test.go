package cli

import (
	"strings"
	"testing"
)

// A list that the server has cut does not tell how many there are.
func TestRollbackCountsNoMoreThanItKnows(t *testing.T) {
	list := make([]string, maxShown+7)
	for cut, want := range map[bool]string{false: "\n  and 7 more\n", true: "\n  and at least 7 more\n"} {
		c := &canvas{}
		c.warnings("head", list, cut)
		if got := c.b.String(); !strings.HasSuffix(got, want) {
			t.Errorf("cut %v: %q", cut, got[max(0, len(got)-40):])
		}
	}
}
