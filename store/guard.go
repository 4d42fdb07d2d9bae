package store

import (
	"errors"
	"fmt"
	"runtime/debug"

	"kl/fault"
)

// errUnreadable is what a panic under bbolt becomes.
var errUnreadable = errors.New("reading the data file failed")

// guarded turns a panic of f into an error, and so a fault on the file's
// memory map: pages that have gone bad, or are cut off, under an open file.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v\n%s", errUnreadable, p, debug.Stack())
		}
	}()
	return f()
}

// damaged gives a fault to what was found to be other than it was written.
func damaged(err error) error {
	if fault.Of(err) == nil && (errors.Is(err, errDamaged) || errors.Is(err, errRecord) || errors.Is(err, errUnreadable)) {
		return fault.Wrap(fault.DataDamaged, err, "a part of the data file is damaged")
	}
	return err
}
