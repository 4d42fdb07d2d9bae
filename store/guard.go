package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

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
			err = fmt.Errorf("%w: %v (%s)", errUnreadable, p, ours())
		}
	}()
	return f()
}

// ours says where in this package the panic was that is being recovered: a
// whole stack is nothing for those who read the error.
func ours() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])]) // without guarded itself
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "kl/store.") {
			return fmt.Sprintf("%s, %s:%d", f.Function, filepath.Base(f.File), f.Line)
		}
		if !more {
			return "place unknown"
		}
	}
}

// damaged gives a fault to what was found to be other than it was written.
func damaged(err error) error {
	if fault.Of(err) == nil && (errors.Is(err, errDamaged) || errors.Is(err, errRecord) || errors.Is(err, errUnreadable)) {
		return fault.Wrap(fault.DataDamaged, err, "a part of the data file is damaged")
	}
	return err
}
