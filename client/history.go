package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"kl/wire"
)

// DiffQuery says what Diff compares.
type DiffQuery struct {
	From, To wire.VersionRef // "" for @1 and head
	Address  string          // of an instance, a resource or a module, "" for the whole state
	Reveal   bool            // sensitive values are not masked; the audit trail notes it
}

// Diff compares two versions of a state. Codes: not_found, parameter_invalid,
// state_opaque.
func (c *Client) Diff(ctx context.Context, env, state string, q DiffQuery) (d wire.Diff, err error) {
	v := url.Values{}
	for name, value := range map[string]string{"from": string(q.From), "to": string(q.To), "address": q.Address} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Reveal {
		v.Set("reveal", "true")
	}
	return d, c.call(ctx, http.MethodGet, wire.ControlStatePath(env, state)+"/diff", v, nil, &d)
}

// Rollback makes the content of an earlier version the newest one, or tells
// what that would do.
func (c *Client) Rollback(ctx context.Context, env, state string, q wire.RollbackRequest) (r wire.Rollback, err error) {
	return r, c.call(ctx, http.MethodPost, wire.ControlStatePath(env, state)+"/rollback", nil, q, &r)
}

// Resources lists the instances of a version in the order of the document.
// version "" is the newest, address "" the whole state.
func (c *Client) Resources(ctx context.Context, env, state string, version wire.VersionRef, address string) iter.Seq2[wire.Resource, error] {
	q := url.Values{}
	if version != "" {
		q.Set("version", string(version))
	}
	if address != "" {
		q.Set("address", address)
	}
	return pages[wire.Resource](ctx, c, wire.ControlStatePath(env, state)+"/resources", q)
}

// InstanceHistory lists what happened to an instance, a resource or a module,
// the newest first.
func (c *Client) InstanceHistory(ctx context.Context, env, state, address string) iter.Seq2[wire.InstanceEvent, error] {
	return pages[wire.InstanceEvent](ctx, c, wire.ControlStatePath(env, state)+"/resources/history", url.Values{"address": {address}})
}

// Tags lists the tags of a state by name.
func (c *Client) Tags(ctx context.Context, env, state string) iter.Seq2[wire.Tag, error] {
	return pages[wire.Tag](ctx, c, wire.ControlStatePath(env, state)+"/tags", nil)
}

// SetTag gives a version a name; a tag that exists moves.
func (c *Client) SetTag(ctx context.Context, env, state, tag string, version wire.VersionRef) (t wire.Tag, err error) {
	return t, c.call(ctx, http.MethodPut, tagPath(env, state, tag), nil, wire.TagRequest{Version: version}, &t)
}

// UnsetTag removes a tag; the version stays.
func (c *Client) UnsetTag(ctx context.Context, env, state, tag string) error {
	return c.call(ctx, http.MethodDelete, tagPath(env, state, tag), nil, nil, nil)
}

func tagPath(env, state, tag string) string {
	return wire.ControlStatePath(env, state) + "/tags/" + url.PathEscape(tag)
}
