package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// event appends to the audit trail within the caller's transaction.
func (s *Store) event(tx *bbolt.Tx, e wire.Event) error {
	b := tx.Bucket(bEvent)
	id, err := b.NextSequence()
	if err != nil {
		return fmt.Errorf("number an event: %w", err)
	}
	e.ID = id
	e.Time = s.now()
	if e.Workspace == "" && e.Environment != "" {
		if env, ok, err := s.envs.get(tx, bEnvironment, []byte(e.Environment)); err != nil {
			return err
		} else if ok {
			e.Workspace = env.WorkspaceID
		}
	}
	b.FillPercent = 0.95
	return putRec(tx, bEvent, u64(id), e)
}

// Events lists events in order of time. Code: parameter_invalid.
func (s *Store) Events(ctx context.Context, f EventFilter) (wire.List[wire.Event], error) {
	out := wire.List[wire.Event]{Items: []wire.Event{}}
	if err := s.noted(ctx); err != nil {
		return out, err
	}
	err := s.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bEvent).Cursor()
		for k, v := c.Seek(u64(f.After + 1)); k != nil; k, v = c.Next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			var e wire.Event
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("event %x: %w", k, err)
			}
			if !f.matches(&e) {
				continue
			}
			if len(out.Items) == page(f.Limit) {
				out.Next = strconv.FormatUint(out.Items[len(out.Items)-1].ID, 10)
				return nil
			}
			out.Items = append(out.Items, e)
		}
		return nil
	})
	return out, err
}

func (f *EventFilter) matches(e *wire.Event) bool {
	return (f.Workspace == "" || f.Workspace == e.Workspace) && (f.Within == nil || slices.Contains(f.Within, e.Workspace)) && (f.Environment == "" || f.Environment == e.Environment) &&
		(f.State == "" || f.State == e.State) && (f.Class == "" || f.Class == e.Class) && !e.Time.Before(f.Since)
}

// NoteRead adds to the audit trail that somebody has read whole bytes over the
// control API: of a version, or of a refused write by its id. It does not wait
// for the disk, so that states can be read while that is full; then the
// request's line in the log is all that is left.
func (s *Store) NoteRead(by Actor, ref Ref, version uint64, refused string) {
	if s.commit == nil {
		return
	}
	e := wire.Event{Kind: "raw_read", Principal: by.Display(), Environment: ref.Environment, State: ref.Name, Version: version, RequestID: by.RequestID}
	if refused != "" {
		e.Detail = map[string]any{"refused_write": refused}
	}
	s.commit.try(func(tx *bbolt.Tx) error { return broken(s.event(tx, e)) })
}

// noteReveal adds to the audit trail that somebody was shown sensitive values.
// It does not wait for the disk, as NoteRead.
func (s *Store) noteReveal(by Actor, ref Ref, kind string, version uint64, detail map[string]any) {
	if s.commit == nil {
		return
	}
	e := wire.Event{Kind: kind, Principal: by.Display(), Environment: ref.Environment, State: ref.Name, Version: version, RequestID: by.RequestID, Detail: detail}
	s.commit.try(func(tx *bbolt.Tx) error { return broken(s.event(tx, e)) })
}

// maxRequests is how many refused requests are remembered.
const maxRequests = 10000

// NoteRequest remembers a refused request for Request. It does not wait for
// the disk, and when too much is to be written the request is forgotten: it
// was answered already.
func (s *Store) NoteRequest(r wire.Request) {
	if s.commit == nil {
		return
	}
	s.commit.try(func(tx *bbolt.Tx) error {
		ring := tx.Bucket(bRequestRing)
		n, err := ring.NextSequence()
		if err != nil {
			return fmt.Errorf("number a request: %w", err)
		}
		slot := u64(n % maxRequests)
		if old := peek(tx, bRequestRing, slot); old != nil {
			if err := del(tx, bRequest, append([]byte(nil), old...)); err != nil {
				return broken(err)
			}
		}
		return broken(errors.Join(put(tx, bRequestRing, slot, []byte(r.RequestID)), putRec(tx, bRequest, []byte(r.RequestID), r)))
	})
}

// Request tells why a request was refused. Code: not_found.
func (s *Store) Request(ctx context.Context, id string) (wire.Request, error) {
	var out wire.Request
	look := func(tx *bbolt.Tx) error {
		r, ok, err := getRec[wire.Request](tx, bRequest, []byte(id))
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.NotFound, "no refused request %q is remembered", id).
				WithNext("the last %d refusals are kept; see the server's log for older ones", maxRequests)
		}
		out = *r
		return nil
	}
	err := s.view(look)
	if fault.Is(err, fault.NotFound) && s.commit != nil {
		// it may have been noted a moment ago and wait to be written
		err = s.commit.do(ctx, 0, func(tx *bbolt.Tx) error { return cmp.Or(look(tx), errFound) })
		if errors.Is(err, errFound) {
			err = nil
		}
	}
	return out, err
}

// errFound ends a job that only looked.
var errFound = errors.New("found")

// noted waits until what was noted a moment ago is written.
func (s *Store) noted(ctx context.Context) error {
	if s.commit == nil {
		return nil
	}
	err := s.commit.do(ctx, 0, func(*bbolt.Tx) error { return errFound })
	if errors.Is(err, errFound) {
		return nil
	}
	return err
}

// foundNothing reports whether a client only met a state that was never written,
// as each does before its first apply: that refused nobody anything.
func foundNothing(r *wire.Request) bool {
	return r.Code == string(fault.NotFound) && (strings.HasPrefix(r.Route, "/states/") || strings.HasPrefix(r.Route, "/runs/"))
}

// LastRequest tells which of the remembered refusals of p is the newest; for a
// user's token those of the user's other tokens count too, and a state that was
// not there to be read is none. With run only those within that run count.
// Code: not_found.
func (s *Store) LastRequest(ctx context.Context, p auth.Principal, run string) (wire.Request, error) {
	var out wire.Request
	look := func(tx *bbolt.Tx) error {
		ring := tx.Bucket(bRequestRing)
		last := ring.Sequence()
		for n := last; n > 0 && last-n < maxRequests; n-- {
			if err := ctx.Err(); err != nil {
				return err
			}
			id := get(tx, bRequestRing, u64(n%maxRequests))
			r, ok, err := getRec[wire.Request](tx, bRequest, id)
			if err != nil {
				return err
			}
			if ok && r.PrincipalID != "" && (r.PrincipalID == p.ID || p.User != "" && r.User == p.User) && (run == "" || r.RunID == run) && !foundNothing(r) {
				out = *r
				return errFound
			}
		}
		return fault.New(fault.NotFound, "no refused request of these credentials is remembered").
			WithNext("requests that came without valid credentials belong to nobody; use the request id of the refusal: kl why REQUEST_ID")
	}
	err := s.noted(ctx)
	if err == nil {
		err = s.view(look)
	}
	if errors.Is(err, errFound) {
		err = nil
	}
	return out, err
}
