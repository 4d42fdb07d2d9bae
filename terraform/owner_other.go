//go:build !unix

package terraform

import (
	"errors"
	"os"
)

// own makes a file that belongs to this process.
func own(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
}

// take always fails: nothing tells here whether the owner lives.
func take(string) (*os.File, error) { return nil, errors.ErrUnsupported }
