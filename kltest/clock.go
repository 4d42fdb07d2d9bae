package kltest

import (
	"sync"
	"time"
)

// Clock is a clock that stands still until it is advanced. Its Now fits the
// option of that name.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock that shows some time in 2026.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)} }

// Now is the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
