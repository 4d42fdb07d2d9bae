package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"kl/wire"
)

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
