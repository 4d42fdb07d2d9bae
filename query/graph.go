package query

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"kl/fault"
	"kl/store"
	"kl/tfstate"
	"kl/wire"
)

// GraphRequest asks what depends on what in a state.
type GraphRequest struct {
	State   string
	Version string // as everywhere; "" for the head
	// Address is that of an instance or a resource. What it depends on is
	// followed, and what depends on it; "" is for all of the state.
	Address string
	Depth   int // steps from the address, 0 for all
}

// maxEdges bounds a graph: beyond it nobody looks at it as a whole.
const maxEdges = 200_000

// Graph tells what the resources of a state of the reader's environment depend
// on, as Terraform recorded it. Codes: not_found, parameter_invalid, query_timeout,
// query_answer_too_large, busy, and those of store.Moment.
func (e *Engine) Graph(ctx context.Context, r store.Reader, q GraphRequest) (g wire.Graph, err error) {
	if q.Depth < 0 {
		return g, fault.New(fault.ParameterInvalid, "depth must not be negative").WithNext("leave depth out for all steps")
	}
	leave, err := e.enter(ctx)
	if err != nil {
		return g, err
	}
	defer leave()
	m, err := e.store.Moment(ctx, r, 0)
	if err != nil {
		return g, err
	}
	defer m.Close()
	st, version, err := m.Resolve(q.State, cmp.Or(q.Version, "head"))
	if err != nil {
		return g, err
	}
	s := &statement{engine: e, reader: r, budget: newBudget(ctx, e.limits), moment: m}
	b := &graph{nodes: map[string]*wire.GraphNode{}, edges: map[wire.GraphEdge]bool{}}
	if err := b.read(s, st, version); err != nil {
		return g, s.explain(err)
	}
	nodes := b.all()
	if q.Address != "" {
		if nodes, err = b.around(q); err != nil {
			return g, err
		}
	}
	return b.wire(q.State, version, nodes), nil
}

// graph is one in the making.
type graph struct {
	nodes map[string]*wire.GraphNode
	edges map[wire.GraphEdge]bool
}

func (b *graph) node(address string) *wire.GraphNode {
	n := b.nodes[address]
	if n == nil {
		n = &wire.GraphNode{Address: address}
		b.nodes[address] = n
	}
	return n
}

func (b *graph) read(s *statement, st *store.MomentState, version uint64) error {
	c, err := s.moment.Content(st, version, false)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := 0; ; i++ {
		if i%1024 == 0 {
			if err := s.budget.Err(); err != nil {
				return err
			}
		}
		t, err := c.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if t.Kind != tfstate.CutResource && t.Kind != tfstate.CutInstance {
			continue
		}
		n := b.node(configAddress(t.Resource))
		n.Mode, n.Type = t.Resource.Mode, t.Resource.Type
		if t.Kind == tfstate.CutResource {
			continue
		}
		n.Instances++
		for _, d := range tfstate.Dependencies(t.Raw()) {
			b.node(d)
			b.edges[wire.GraphEdge{From: n.Address, To: d}] = true
		}
		if len(b.edges) > maxEdges {
			return fault.New(fault.QueryAnswer, "the graph of the state %s has more than %d edges", st.Name, maxEdges).
				With("limit", maxEdges).WithNext(`ask the table dependencies: kl query "SELECT … FROM dependencies WHERE …"`)
		}
	}
}

func (b *graph) all() map[string]bool {
	m := make(map[string]bool, len(b.nodes))
	for a := range b.nodes {
		m[a] = true
	}
	return m
}

// around finds what an address depends on and what depends on it, within so
// many steps. It does not turn: what else the things depend on that depend on
// it is not of interest.
func (b *graph) around(q GraphRequest) (map[string]bool, error) {
	from := store.ConfigAddress(q.Address)
	if b.nodes[from] == nil {
		return nil, fault.New(fault.NotFound, "the state %s has no resource %.200q", q.State, q.Address).
			WithNext(`list them with: kl query "SELECT address FROM resources WHERE state = '%s'"`, q.State)
	}
	to, back := map[string][]string{}, map[string][]string{}
	for e := range b.edges {
		to[e.From] = append(to[e.From], e.To)
		back[e.To] = append(back[e.To], e.From)
	}
	seen := reach(from, to, q.Depth)
	maps.Copy(seen, reach(from, back, q.Depth))
	return seen, nil
}

// reach walks along edges, breadth first.
func reach(from string, edges map[string][]string, depth int) map[string]bool {
	seen := map[string]bool{from: true}
	for border, step := []string{from}, 1; len(border) > 0 && (depth == 0 || step <= depth); step++ {
		var next []string
		for _, a := range border {
			for _, n := range edges[a] {
				if !seen[n] {
					seen[n] = true
					next = append(next, n)
				}
			}
		}
		border = next
	}
	return seen
}

func (b *graph) wire(state string, version uint64, nodes map[string]bool) wire.Graph {
	g := wire.Graph{State: state, Version: version, Nodes: []wire.GraphNode{}, Edges: []wire.GraphEdge{}}
	for a := range nodes {
		g.Nodes = append(g.Nodes, *b.nodes[a])
	}
	for e := range b.edges {
		if nodes[e.From] && nodes[e.To] {
			g.Edges = append(g.Edges, e)
		}
	}
	slices.SortFunc(g.Nodes, func(a, b wire.GraphNode) int { return strings.Compare(a.Address, b.Address) })
	slices.SortFunc(g.Edges, func(a, b wire.GraphEdge) int {
		return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.To, b.To))
	})
	return g
}
