package server

import (
	"container/list"
	"crypto/sha256"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"kl/auth"
)

// What one address and one secret may fail before they are told to wait.
const (
	addressBurst = 100
	addressEvery = time.Second / 5
	secretBurst  = 10
	secretEvery  = 10 * time.Second
	maxThrottled = 8192 // addresses, and secrets, that are remembered
)

// throttle limits failed authentication, per address and per secret. Only
// failures count. It locks nobody out: a secret that was tried too often is one
// that was never issued, and can never become good; an address that has failed
// too often costs the server no more than a look-up per request, since its
// failures are not remembered on disk any more, and whoever comes from there
// with a good secret is served.
type throttle struct {
	addresses *limiters[netip.Prefix]
	secrets   *limiters[[sha256.Size]byte]
}

func newThrottle() *throttle {
	return &throttle{
		addresses: newLimiters[netip.Prefix](rate.Every(addressEvery), addressBurst),
		secrets:   newLimiters[[sha256.Size]byte](rate.Every(secretEvery), secretBurst),
	}
}

// refused reports whether a secret has failed so often that it need not be
// looked up.
func (t *throttle) refused(secret string, now time.Time) bool {
	return t.secrets.empty(auth.Hash(secret), now)
}

// failed counts a failure and returns how long the client should wait, 0 while
// it is within its limits. Only the secret of a stranger counts for itself:
// others are or were good, and their clients may have something to tell that
// must not be lost.
func (t *throttle) failed(remote, secret string, stranger bool, now time.Time) time.Duration {
	wait := t.addresses.take(prefixOf(remote), now)
	if stranger {
		wait = max(wait, t.secrets.take(auth.Hash(secret), now))
	}
	return wait
}

// prefixOf is what stands for one client: an IPv4 address, or the 64 bits of an
// IPv6 address that one site has.
func prefixOf(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // the bits fit the kind of address
	return p
}

// limiters is a bounded table of limiters: the one used longest ago is
// forgotten for a new one.
type limiters[K comparable] struct {
	limit rate.Limit
	burst int

	mu    sync.Mutex
	byKey map[K]*list.Element
	order *list.List // of *limiter[K], the last used in front
}

type limiter[K comparable] struct {
	key K
	*rate.Limiter
}

func newLimiters[K comparable](limit rate.Limit, burst int) *limiters[K] {
	return &limiters[K]{limit: limit, burst: burst, byKey: map[K]*list.Element{}, order: list.New()}
}

// empty reports whether a key has nothing left, without making it known.
func (l *limiters[K]) empty(k K, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byKey[k]
	if !ok {
		return false
	}
	lim, ok := e.Value.(*limiter[K])
	return ok && lim.TokensAt(now) < 1
}

// take counts one failure of a key and returns how long it takes until there is
// room for another, 0 when there was room for this one.
func (l *limiters[K]) take(k K, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byKey[k]
	if !ok {
		if l.order.Len() >= maxThrottled {
			oldest := l.order.Back()
			if lim, ok := l.order.Remove(oldest).(*limiter[K]); ok {
				delete(l.byKey, lim.key)
			}
		}
		e = l.order.PushFront(&limiter[K]{k, rate.NewLimiter(l.limit, l.burst)})
		l.byKey[k] = e
	}
	l.order.MoveToFront(e)
	lim, ok := e.Value.(*limiter[K])
	if !ok || lim.AllowN(now, 1) {
		return 0
	}
	return time.Duration((1 - lim.TokensAt(now)) / float64(l.limit) * float64(time.Second))
}
