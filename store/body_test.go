package store_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/store"
)

// The room that bodies in flight take is told, and given back however a body
// ends.
func TestBodiesInFlight(t *testing.T) {
	f := newFixture(t, store.Options{})
	inFlight := func(want int64) {
		t.Helper()
		st, err := f.s.Stats()
		if err != nil || st.BodyBytes != want {
			t.Errorf("%d bytes in flight, want %d (%v)", st.BodyBytes, want, err)
		}
	}
	body := kltest.NewState(50, 1).Bytes()
	b, err := f.s.ReadBody(context.Background(), bytes.NewReader(body), int64(len(body)), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	inFlight(int64(len(body)))
	b.Release()
	inFlight(0)
	if _, err := f.s.ReadBody(context.Background(), bytes.NewReader(body[:100]), int64(len(body)), 1<<20); !fault.Is(err, fault.BodyIncomplete) {
		t.Errorf("a cut body: %v", err)
	}
	if _, err := f.s.ReadBody(context.Background(), bytes.NewReader(body), -1, 100); !fault.Is(err, fault.BodyTooLarge) {
		t.Errorf("a body of unknown length over the limit: %v", err)
	}
	inFlight(0)
	// of unknown length, at the limit to the byte
	b, err = f.s.ReadBody(context.Background(), io.MultiReader(bytes.NewReader(body)), -1, int64(len(body)))
	if err != nil || !bytes.Equal(b.Bytes(), body) {
		t.Fatalf("a body at the limit: %v", err)
	}
	b.Release()
	inFlight(0)
}
