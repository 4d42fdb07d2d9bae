//go:build !linux

package store

import "go.etcd.io/bbolt"

// unmap does nothing: only Linux is known to count what a process has looked at
// of a file as its memory and to take it back without harm.
func unmap(*bbolt.DB) {}
