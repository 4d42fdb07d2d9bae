package server

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func TestLimitersAreBounded(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	l := newLimiters[int](rate.Every(time.Second), 1)
	for i := range 3 * maxThrottled {
		if wait := l.take(i, now); wait != 0 {
			t.Fatalf("the first failure of %d waits %s", i, wait)
		}
		if wait := l.take(-1, now); (wait > 0) != (i > 0) || wait > time.Second {
			t.Fatalf("failure %d of one key waits %s", i, wait)
		}
	}
	if n := len(l.byKey); n != maxThrottled || l.order.Len() != n {
		t.Errorf("%d keys and %d places, want %d", n, l.order.Len(), maxThrottled)
	}
	if !l.empty(-1, now) || l.empty(-1, now.Add(time.Second)) || l.empty(-2, now) {
		t.Error("what is used all the time was forgotten, or is empty too long")
	}
}

func TestPrefixOf(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7:1234": "192.0.2.7/32", "[::ffff:192.0.2.7]:80": "192.0.2.7/32", "[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "@": "invalid Prefix", "": "invalid Prefix",
	} {
		if got := fmt.Sprint(prefixOf(in)); got != want {
			t.Errorf("prefixOf(%q) = %s, want %s", in, got, want)
		}
	}
}
