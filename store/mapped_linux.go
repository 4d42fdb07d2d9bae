package store

import (
	"syscall"

	"go.etcd.io/bbolt"
)

// unmap gives back the memory in which the process has looked at the file: the
// kernel counts it as the process's own, and it grows with the file. What is read
// again comes from the page cache. The kernel may decline: then nothing is lost.
func unmap(db *bbolt.DB) {
	// nothing moves the map while a transaction is open
	_ = db.View(func(tx *bbolt.Tx) error {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, db.Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
		return nil
	})
}
