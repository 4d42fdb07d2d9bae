package client

import (
	"context"
	"net/http"

	"kl/wire"
)

// Quota tells what a state and its environment hold and may hold, and when
// limits will be met. The state need not exist.
func (c *Client) Quota(ctx context.Context, env, state string) (q wire.Quota, err error) {
	return q, c.call(ctx, http.MethodGet, wire.ControlStatePath(env, state)+"/quota", nil, nil, &q)
}

// CheckQuota tells what a change would mean for the limits. What would be
// refused is no error, but an answer with the status hard.
func (c *Client) CheckQuota(ctx context.Context, env, state string, q wire.QuotaQuestion) (v wire.QuotaCheck, err error) {
	return v, c.call(ctx, http.MethodPost, wire.ControlStatePath(env, state)+"/quota/check", nil, q, &v)
}
