//go:build linux || darwin || freebsd

package store

import (
	"os"
	"syscall"
)

// freeSpace is how many bytes a directory's disk has for this user; ok is
// false when that cannot be known.
func freeSpace(dir string) (n int64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(uint64(st.Bavail) * uint64(st.Bsize)), true // the types of the fields differ between systems
}

// keepOwner gives a file the owner of the one that it takes the place of. Who
// may not do that owns the new file.
func keepOwner(f *os.File, path string) {
	fi, err := os.Stat(path)
	if err != nil {
		return // there is none
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}
