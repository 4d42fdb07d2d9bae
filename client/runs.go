package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"kl/wire"
)

// StartRun begins a run on the newest version of a state. It belongs to the
// credential that begins it, so Terraform needs the same one, or another one of
// the same user.
func (c *Client) StartRun(ctx context.Context, env, state string, q wire.RunRequest) (r wire.Run, err error) {
	return r, c.call(ctx, http.MethodPost, wire.RunsPath(env, state), nil, q, &r)
}

// Runs lists the runs of a state, newest first; with live only those that go
// on.
func (c *Client) Runs(ctx context.Context, env, state string, live bool) iter.Seq2[wire.Run, error] {
	return pages[wire.Run](ctx, c, wire.RunsPath(env, state), liveQuery(live))
}

// EnvironmentRuns lists the runs of all states of an environment, newest first;
// with live only those that go on.
func (c *Client) EnvironmentRuns(ctx context.Context, env string, live bool) iter.Seq2[wire.Run, error] {
	return pages[wire.Run](ctx, c, wire.EnvironmentPath(env)+"/runs", liveQuery(live))
}

func liveQuery(live bool) url.Values {
	if !live {
		return nil
	}
	return url.Values{"live": {"true"}}
}

// Run returns one run. The code is not_found when there is none.
func (c *Client) Run(ctx context.Context, env, state, id string) (r wire.Run, err error) {
	return r, c.call(ctx, http.MethodGet, runPath(env, state, id, ""), nil, nil, &r)
}

// Reserve reserves a run's sets in place of what it has reserved before, all
// or nothing. What is in the way is reservation_conflict; with q.Wait the run
// then has a place in the queue, as long as it asks again within 40 seconds.
func (c *Client) Reserve(ctx context.Context, env, state, id string, q wire.ReserveRequest) (r wire.Run, err error) {
	if q.WriteSet == nil {
		q.WriteSet = []string{}
	}
	return r, c.call(ctx, http.MethodPost, runPath(env, state, id, "/reserve"), nil, q, &r)
}

// RenewRun gives a run another lease, and tells with q when its apply begins.
func (c *Client) RenewRun(ctx context.Context, env, state, id string, q wire.RunRenewal) (r wire.Run, err error) {
	return r, c.call(ctx, http.MethodPost, runPath(env, state, id, "/renew"), nil, q, &r)
}

// RebaseRun makes the newest version what the run sees, to plan again.
func (c *Client) RebaseRun(ctx context.Context, env, state, id string) (r wire.Run, err error) {
	return r, c.call(ctx, http.MethodPost, runPath(env, state, id, "/rebase"), nil, nil, &r)
}

// FinishRun ends a run as finished or failed.
func (c *Client) FinishRun(ctx context.Context, env, state, id string, q wire.RunEnd) (r wire.Run, err error) {
	return r, c.call(ctx, http.MethodPost, runPath(env, state, id, "/finish"), nil, q, &r)
}

// AbortRun ends a run, whoever began it: its later writes are refused and kept.
func (c *Client) AbortRun(ctx context.Context, env, state, id, reason string) (r wire.Run, err error) {
	return r, c.call(ctx, http.MethodPost, runPath(env, state, id, "/abort"), nil, wire.RunEnd{Reason: reason}, &r)
}

func runPath(env, state, id, verb string) string {
	return wire.RunsPath(env, state) + "/" + url.PathEscape(id) + verb
}
