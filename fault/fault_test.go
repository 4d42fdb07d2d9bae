package fault_test

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"kl/fault"
)

// statuses are the ones that contract.md allows per class. 404 and 405 stand
// for things and methods that do not exist.
var statuses = map[fault.Class][]int{
	fault.Auth: {401, 403}, fault.Scope: {422}, fault.Lock: {409, 423}, fault.Conflict: {409},
	fault.Quota: {403}, fault.Lifecycle: {403}, fault.Invalid: {400, 404, 405, 413},
	fault.Unavailable: {503}, fault.Unknown: {500},
}

func TestCatalogue(t *testing.T) {
	form := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[fault.Class]bool{}
	for _, c := range fault.Codes() {
		i := c.Info()
		seen[i.Class] = true
		if !form.MatchString(string(c)) {
			t.Errorf("code %q is not snake_case", c)
		}
		if i.Title == "" || i.Why == "" || i.Next == "" {
			t.Errorf("%s: title, why and next must all be there: %+v", c, i)
		}
		ok := false
		for _, s := range statuses[i.Class] {
			ok = ok || s == i.Status
		}
		if !ok {
			t.Errorf("%s: status %d is not one of class %s", c, i.Status, i.Class)
		}
		if (i.Class == fault.Auth || i.Class == fault.Scope || i.Class == fault.Lifecycle || i.Class == fault.Conflict) == (i.Reason == "") {
			t.Errorf("%s: reason %q does not fit class %s", c, i.Reason, i.Class)
		}
	}
	for _, c := range fault.Classes {
		if !seen[c] {
			t.Errorf("class %s has no code", c)
		}
	}
}

func TestErrorChain(t *testing.T) {
	cause := errors.New("disk")
	err := fmt.Errorf("write state: %w", fault.Wrap(fault.DiskFull, cause, "no room in %s", "kl.db").With("path", "kl.db"))
	if !fault.Is(err, fault.DiskFull) || fault.Is(err, fault.Busy) {
		t.Errorf("Is(%v) is wrong", err)
	}
	if got := fault.ClassOf(err); got != fault.Unavailable {
		t.Errorf("ClassOf = %s, want %s", got, fault.Unavailable)
	}
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
	if got := fault.ClassOf(cause); got != fault.Unknown {
		t.Errorf("ClassOf(plain) = %s, want %s", got, fault.Unknown)
	}
	if got := fault.ClassOf(nil); got != "" {
		t.Errorf("ClassOf(nil) = %q, want none", got)
	}
	if got := fault.Code("no_such").Info(); got.Class != fault.Unknown {
		t.Errorf("unknown code is of class %s", got.Class)
	}
}
