//go:build unix

package terraform

import (
	"os"
	"syscall"
)

// own makes a file that this process, and those that it hands the file to, hold
// until they close it, or die.
func own(path string) (*os.File, error) {
	// under another name until it is held, so that nobody takes it before
	made := path + ".new"
	f, err := os.OpenFile(made, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if f, err = held(f); err != nil {
		return nil, err
	}
	if err := os.Rename(made, path); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// take opens a file that another process has made with own; it fails while that
// one lives.
func take(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return held(f)
}

func held(f *os.File) (*os.File, error) {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
