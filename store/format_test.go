package store_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"kl/store"
	"kl/tfstate"
	"kl/wire"
)

// The file of TestOldFile: its environment, and the automation token that held
// lock-1 on the state network when it was written.
const (
	oldEnvironment = "env_s0bdsa7uhp9y"
	oldToken       = "kl_env_jzveuilyqp3oivscq5yu27rjemjpvkp74ywzhqlsfem7php3jucarmc77q"
)

// TestOldFile opens a file that kl wrote before it knew quotas, runs and
// retention, with records that have no sums: everything in it is there, and it
// is written on.
func TestOldFile(t *testing.T) {
	packed, err := os.Open("testdata/format1.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	in, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kl.db")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}

	f := &fixture{tb: t, path: path, opt: store.Options{Path: path}, env: oldEnvironment}
	f.open()
	t.Cleanup(f.finish)
	p, err := f.s.Authenticate(context.Background(), oldToken)
	if err != nil {
		t.Fatal(err)
	}
	f.actor = store.Actor{Principal: p, RequestID: "req_test"}
	if r := f.check(); r.States != 3 || r.Versions != 12 {
		t.Errorf("%d states with %d versions, want 3 with 12", r.States, r.Versions)
	}

	head := f.get("network", "head")
	if _, err := f.write("network", "lock-1", bytes.Replace(head, []byte(`"serial": 9`), []byte(`"serial": 10`), 1)); err != nil {
		t.Fatal(err)
	}
	if err := f.unlock("network", "lock-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Rollback(context.Background(), f.actor, f.ref("network"), wire.RollbackRequest{To: "2"}); err != nil {
		t.Fatal(err)
	}
	info, err := tfstate.Sniff(f.get("network", "head"))
	if err != nil || info.Serial != 11 {
		t.Errorf("after the rollback the serial is %d (%v), want 11", info.Serial, err)
	}
	q, err := f.s.Quota(context.Background(), f.ref("network"))
	if err != nil || q.State.Current != 19 || q.Environment.Current != 19 {
		t.Errorf("quota %+v (%v), want 19 instances in both", q, err)
	}
	f.reopen()
}
