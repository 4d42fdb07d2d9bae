package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"kl/fault"
	"kl/wire"
)

// Rows is an answer to a question in SQL, read as it comes. Close must be
// called.
type Rows struct {
	Columns   []string
	Truncated bool // there are more rows; known behind the last

	c    *Client
	ctx  context.Context
	body io.ReadCloser
	dec  *json.Decoder
	id   string
}

// Query asks a question in SQL. Codes: query_invalid, with the members line
// and column where the place is known, query_not_allowed, query_timeout,
// query_memory, query_answer_too_large, role_too_low, unknown_environment,
// busy.
func (c *Client) Query(ctx context.Context, q wire.QueryRequest) (*Rows, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("write the query: %w", err)
	}
	//nolint:bodyclose // Rows.Close closes it
	res, err := c.do(ctx, control, http.MethodPost, wire.QueryPath, nil, body, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, err
	}
	r := &Rows{c: c, ctx: ctx, body: res.Body, dec: json.NewDecoder(res.Body), id: res.Header.Get(wire.HeaderRequestID)}
	r.dec.UseNumber()
	if err := r.begin(); err != nil {
		r.Close()
		return nil, fault.Wrap(fault.ParameterInvalid, err, "%s does not answer as a kl server (%s on POST %s)", c.base, contentType(res), wire.QueryPath).
			WithNext("check --address (KL_ADDRESS)")
	}
	return r, nil
}

// begin reads up to the first row.
func (r *Rows) begin() error {
	if err := r.expect(json.Delim('{'), "columns"); err != nil {
		return err
	}
	if err := r.dec.Decode(&r.Columns); err != nil {
		return err
	}
	return r.expect("rows", json.Delim('['))
}

func (r *Rows) expect(want ...json.Token) error {
	for _, w := range want {
		t, err := r.dec.Token()
		if err != nil {
			return err
		}
		if t != w {
			return fmt.Errorf("%v where %v should be", t, w)
		}
	}
	return nil
}

// All yields the rows: of each value nil, a string or a json.Number. An error
// ends it and is the last pair; its code is one of those of Query, for an
// answer that broke off.
func (r *Rows) All() iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		for r.dec.More() {
			var row []any
			if err := r.dec.Decode(&row); err != nil {
				yield(nil, r.c.unreachable(r.ctx, err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := r.end(); err != nil {
			yield(nil, err)
		}
	}
}

// end reads what stands behind the rows.
func (r *Rows) end() error {
	if err := r.expect(json.Delim(']')); err != nil {
		return r.c.unreachable(r.ctx, err)
	}
	for r.dec.More() {
		name, err := r.dec.Token()
		if err != nil {
			return r.c.unreachable(r.ctx, err)
		}
		var p *wire.Problem
		var into any
		switch name {
		case "truncated":
			into = &r.Truncated
		case "error":
			into = &p
		default:
			into = new(any)
		}
		if err := r.dec.Decode(into); err != nil {
			return r.c.unreachable(r.ctx, err)
		}
		if p != nil {
			return withID(&fault.Error{Code: knownCode(*p), Detail: p.Detail, Next: p.NextStep, Details: fault.Details(p.Extra)}, r.id)
		}
	}
	if err := r.expect(json.Delim('}')); err != nil {
		return r.c.unreachable(r.ctx, err)
	}
	return nil
}

// Close lets go of the connection.
func (r *Rows) Close() { _ = r.body.Close() }

// QueryTables lists the tables that can be asked.
func (c *Client) QueryTables(ctx context.Context) ([]wire.QueryTable, error) {
	var l wire.List[wire.QueryTable]
	err := c.call(ctx, http.MethodGet, wire.QueryPath+"/tables", nil, nil, &l)
	return l.Items, err
}

// Graph tells what the resources of a state depend on: of all of it, or of
// what an address depends on and what depends on that, within depth steps (0
// for all). Codes: not_found, parameter_invalid, query_answer_too_large.
func (c *Client) Graph(ctx context.Context, env, state, version, address string, depth int) (g wire.Graph, err error) {
	q := url.Values{}
	for name, v := range map[string]string{"version": version, "address": address} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if depth > 0 {
		q.Set("depth", strconv.Itoa(depth))
	}
	return g, c.call(ctx, http.MethodGet, wire.ControlStatePath(env, state)+"/graph", q, nil, &g)
}
