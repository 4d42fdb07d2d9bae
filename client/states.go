package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"kl/fault"
	"kl/wire"
)

// pages walks a listing. An error ends it and is the last pair.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := url.Values{}
		for k, v := range query {
			q[k] = v
		}
		q.Set("limit", strconv.Itoa(c.pageSize))
		for {
			var l wire.List[T]
			if err := c.call(ctx, http.MethodGet, path, q, nil, &l); err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, it := range l.Items {
				if !yield(it, nil) {
					return
				}
			}
			if l.Next == "" || l.Next == q.Get("cursor") {
				return
			}
			q.Set("cursor", l.Next)
		}
	}
}

// Collect gathers a listing into a slice that is never nil; limit 0 means all.
func Collect[T any](seq iter.Seq2[T, error], limit int) ([]T, error) {
	out := []T{}
	for it, err := range seq {
		if err != nil {
			return nil, err
		}
		out = append(out, it)
		if limit > 0 && len(out) == limit {
			break
		}
	}
	return out, nil
}

// Whoami tells who the caller is to the server.
func (c *Client) Whoami(ctx context.Context) (w wire.Whoami, err error) {
	return w, c.call(ctx, http.MethodGet, "/v1/whoami", nil, nil, &w)
}

// WhoamiIn tells who the caller is, with which role on an environment, and
// whether its workspace is on hold. Codes are those of a request there.
func (c *Client) WhoamiIn(ctx context.Context, env string) (w wire.Whoami, err error) {
	return w, c.call(ctx, http.MethodGet, "/v1/whoami", url.Values{"environment": {env}}, nil, &w)
}

// Version tells which build the server is.
func (c *Client) Version(ctx context.Context) (v wire.ServerVersion, err error) {
	return v, c.call(ctx, http.MethodGet, "/version", nil, nil, &v)
}

// Workspaces lists the workspaces that the caller may see.
func (c *Client) Workspaces(ctx context.Context) iter.Seq2[wire.Workspace, error] {
	return pages[wire.Workspace](ctx, c, "/v1/workspaces", nil)
}

// Environments lists the environments of a workspace.
func (c *Client) Environments(ctx context.Context, workspace string) iter.Seq2[wire.Environment, error] {
	return pages[wire.Environment](ctx, c, "/v1/workspaces/"+url.PathEscape(workspace)+"/environments", nil)
}

// Environment returns an environment's settings.
func (c *Client) Environment(ctx context.Context, env string) (e wire.Environment, err error) {
	return e, c.call(ctx, http.MethodGet, wire.EnvironmentPath(env), nil, nil, &e)
}

// PatchEnvironment changes the settings that are not nil in p and returns all.
func (c *Client) PatchEnvironment(ctx context.Context, env string, p wire.EnvironmentPatch) (e wire.Environment, err error) {
	return e, c.call(ctx, http.MethodPatch, wire.EnvironmentPath(env), nil, p, &e)
}

// CreateEnvironment adds an environment to a workspace; the slug is required.
func (c *Client) CreateEnvironment(ctx context.Context, workspace string, p wire.EnvironmentPatch) (e wire.Environment, err error) {
	return e, c.call(ctx, http.MethodPost, "/v1/workspaces/"+url.PathEscape(workspace)+"/environments", nil, p, &e)
}

// Tokens lists the automation tokens of an environment, without their secrets.
func (c *Client) Tokens(ctx context.Context, env string) iter.Seq2[wire.Token, error] {
	return pages[wire.Token](ctx, c, wire.EnvironmentPath(env)+"/tokens", nil)
}

// CreateToken issues an automation token. Its secret is in the answer, and
// cannot be had again.
func (c *Client) CreateToken(ctx context.Context, env string, q wire.TokenRequest) (t wire.Token, err error) {
	return t, c.call(ctx, http.MethodPost, wire.EnvironmentPath(env)+"/tokens", nil, q, &t)
}

// RevokeToken ends an automation token.
func (c *Client) RevokeToken(ctx context.Context, env, id string) error {
	return c.call(ctx, http.MethodDelete, wire.EnvironmentPath(env)+"/tokens/"+url.PathEscape(id), nil, nil, nil)
}

// States lists the states of an environment.
func (c *Client) States(ctx context.Context, env string) iter.Seq2[wire.State, error] {
	return pages[wire.State](ctx, c, wire.EnvironmentPath(env)+"/states", nil)
}

// State returns what is known of a state besides its bytes.
func (c *Client) State(ctx context.Context, env, state string) (s wire.State, err error) {
	return s, c.call(ctx, http.MethodGet, wire.ControlStatePath(env, state), nil, nil, &s)
}

// PatchState changes the settings of a state that are not nil in p.
func (c *Client) PatchState(ctx context.Context, env, state string, p wire.StatePatch) (s wire.State, err error) {
	return s, c.call(ctx, http.MethodPatch, wire.ControlStatePath(env, state), nil, p, &s)
}

// DeleteState moves a state to the trash.
func (c *Client) DeleteState(ctx context.Context, env, state string) error {
	return c.call(ctx, http.MethodDelete, wire.ControlStatePath(env, state), nil, nil, nil)
}

// RestoreState takes a state out of the trash.
func (c *Client) RestoreState(ctx context.Context, env, state string) (s wire.State, err error) {
	return s, c.call(ctx, http.MethodPost, wire.ControlStatePath(env, state)+"/restore", nil, nil, &s)
}

// PurgeState removes a state that is in the trash, with all its versions, for
// good; its name is free afterwards.
func (c *Client) PurgeState(ctx context.Context, env, state string) error {
	return c.call(ctx, http.MethodPost, wire.ControlStatePath(env, state)+"/purge", nil, nil, nil)
}

// Allow lets the next write of a state break the rules named in a, once.
func (c *Client) Allow(ctx context.Context, env, state string, a wire.Allow) error {
	return c.call(ctx, http.MethodPost, wire.ControlStatePath(env, state)+"/allow", nil, a, nil)
}

// Versions lists the versions of a state, newest first.
func (c *Client) Versions(ctx context.Context, env, state string) iter.Seq2[wire.Version, error] {
	return pages[wire.Version](ctx, c, wire.ControlStatePath(env, state)+"/versions", nil)
}

// VersionBytes opens the exact bytes of a version. ref is a version number,
// @N, serial:N, a tag, or head. The caller closes the answer.
func (c *Client) VersionBytes(ctx context.Context, env, state, ref string) (*Bytes, error) {
	return c.bytes(ctx, control, wire.ControlStatePath(env, state)+"/versions/"+url.PathEscape(ref))
}

// LockState tells who holds a state and who waits for it.
func (c *Client) LockState(ctx context.Context, env, state string) (l wire.Lock, err error) {
	return l, c.call(ctx, http.MethodGet, wire.ControlStatePath(env, state)+"/lock", nil, nil, &l)
}

// ReleaseLock releases the lock with that ID, whoever took it. It is audited.
func (c *Client) ReleaseLock(ctx context.Context, env, state, id string) error {
	return c.call(ctx, http.MethodDelete, wire.ControlStatePath(env, state)+"/lock", url.Values{"id": {id}}, nil, nil)
}

// RefusedList lists the refused writes of a state that are kept.
func (c *Client) RefusedList(ctx context.Context, env, state string) iter.Seq2[wire.Refused, error] {
	return pages[wire.Refused](ctx, c, wire.ControlStatePath(env, state)+"/refused", nil)
}

// RefusedBody opens the exact bytes of a refused write. The caller closes the
// answer.
func (c *Client) RefusedBody(ctx context.Context, env, state, id string) (*Bytes, error) {
	return c.bytes(ctx, control, wire.ControlStatePath(env, state)+"/refused/"+url.PathEscape(id))
}

// AddRefused brings in a document, such as an errored.tfstate, as a refused
// write that can be merged. The same bytes again are the same refused write.
func (c *Client) AddRefused(ctx context.Context, env, state string, body []byte) (r wire.Refused, err error) {
	if body == nil {
		body = []byte{}
	}
	return r, c.answer(ctx, http.MethodPost, wire.ControlStatePath(env, state)+"/refused", nil, body, digest(body), &r)
}

// MergeRefused merges a refused write into the newest version, or tells what
// that would do. Without q.Take an overlap is code overlap_conflict.
func (c *Client) MergeRefused(ctx context.Context, env, state, id string, q wire.MergeRequest) (m wire.MergeResult, err error) {
	return m, c.call(ctx, http.MethodPost, wire.ControlStatePath(env, state)+"/refused/"+url.PathEscape(id)+"/merge", nil, q, &m)
}

// DiscardRefused settles a refused write by giving it up.
func (c *Client) DiscardRefused(ctx context.Context, env, state, id string) error {
	return c.call(ctx, http.MethodDelete, wire.ControlStatePath(env, state)+"/refused/"+url.PathEscape(id), nil, nil, nil)
}

// Request tells why a request was refused.
func (c *Client) Request(ctx context.Context, id string) (r wire.Request, err error) {
	return r, c.call(ctx, http.MethodGet, "/v1/requests/"+url.PathEscape(id), nil, nil, &r)
}

// EventFilter selects events; zero members select all.
type EventFilter struct {
	Workspace, Environment, State, Class string
	Since                                time.Time
}

// Events lists the audit trail, oldest first.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[wire.Event, error] {
	q := url.Values{}
	for k, v := range map[string]string{"workspace": f.Workspace, "environment": f.Environment, "state": f.State, "class": f.Class} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	return pages[wire.Event](ctx, c, "/v1/events", q)
}

// Bytes are the exact bytes of a state. Reading them ends in io.EOF only when
// all have come and match the digest the server gave; a cut or changed answer
// ends in an error with the code unreachable.
type Bytes struct {
	Version uint64 // 0 when the server gave none, as for refused writes
	Serial  uint64
	Length  int64  // -1 when not announced
	SHA256  string // hex; "" when the server gave none

	c    *Client
	ctx  context.Context
	body io.ReadCloser
	sum  hash.Hash
}

func (c *Client) bytes(ctx context.Context, p plane, path string) (*Bytes, error) {
	res, err := c.do(ctx, p, http.MethodGet, path, nil, nil, nil) //nolint:bodyclose // Bytes.Close closes it
	if err != nil {
		return nil, err
	}
	b := &Bytes{Length: res.ContentLength, c: c, ctx: ctx, body: res.Body, sum: sha256.New()}
	b.Version, _ = strconv.ParseUint(res.Header.Get(wire.HeaderVersion), 10, 64)
	b.Serial, _ = strconv.ParseUint(res.Header.Get(wire.HeaderSerial), 10, 64)
	if tag := strings.Trim(res.Header.Get("ETag"), `"`); len(tag) == 2*sha256.Size {
		b.SHA256 = tag
	}
	return b, nil
}

// Read reads on.
func (b *Bytes) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.sum.Write(p[:n])
	switch {
	case err == nil:
	case err != io.EOF: //nolint:errorlint // io.Reader's contract is the bare value
		err = b.c.unreachable(b.ctx, err)
	case b.SHA256 != "" && hex.EncodeToString(b.sum.Sum(nil)) != b.SHA256:
		err = fault.New(fault.Unreachable, "the bytes that came from %s are not those that were stored", b.c.base).
			WithNext("try again; a proxy that changes answers must leave these alone")
	}
	return n, err
}

// Close lets go of the connection.
func (b *Bytes) Close() error { return b.body.Close() }
