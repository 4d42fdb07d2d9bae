package store

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// TestMemoryDoesNotGrowWithTheFile writes 64 MiB and reads what it has written:
// the kernel counts little of the file as memory of the process afterwards.
func TestMemoryDoesNotGrowWithTheFile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells it, and only there kl gives it back")
	}
	path := filepath.Join(t.TempDir(), "kl.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{InitialMmapSize: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	c := newCommitter(db)
	value := make([]byte, 1<<20)
	if _, err := rand.Read(value); err != nil {
		t.Fatal(err)
	}
	name := []byte("bucket")
	for i := range uint64(64) {
		key := binary.BigEndian.AppendUint64(nil, i)
		err := c.do(context.Background(), len(value), func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(name)
			if err != nil {
				return err
			}
			return b.Put(key, value)
		})
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(func(tx *bbolt.Tx) error {
			if got := peek(tx, name, key); string(got) != string(value) {
				t.Errorf("value %d is not what was written", i)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := mapped(t, path); got > 2*mappedBytes {
		t.Errorf("%d MiB of the file are in the process's memory", got>>20)
	}
	c.close()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// mapped is how many bytes of a file the process has in its memory.
func mapped(t *testing.T, path string) (n int64) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	ours, found := false, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		rss, isRss := strings.CutPrefix(line, "Rss:")
		switch {
		case strings.HasSuffix(line, path):
			ours, found = true, true
		case isRss && ours:
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rss), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			n += kib << 10
			ours = false
		}
	}
	if !found {
		t.Fatal("the file is not mapped")
	}
	return n
}
