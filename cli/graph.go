package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kl/wire"
)

func (a *app) graphCmd() *cobra.Command {
	var address, format, version string
	var depth int
	cmd := &cobra.Command{
		Use:   "graph [STATE]",
		Short: "Print what the resources of a state depend on, for Graphviz or Mermaid",
		Long: `Print what the resources of a state depend on, as Terraform recorded it: an arrow leads from
a resource to what it depends on. Instances of one resource are one node.

With --address only what that resource or instance depends on is printed, and what depends on
it; --depth bounds the steps.`,
		Example: "  kl graph demo | dot -Tsvg > demo.svg\n  kl graph demo --address aws_vpc.main --depth 2 --format mermaid",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := map[string]func(wire.Graph) error{
				"dot": a.printDOT, "mermaid": a.printMermaid, "json": func(g wire.Graph) error { return a.printJSON(g) },
			}[format]
			switch {
			case show == nil:
				return usage(cmd, "%q is not a format of graphs", format).WithNext("use one of: dot, mermaid, json")
			case depth < 0:
				return usage(cmd, "--depth must not be negative")
			case depth > 0 && address == "":
				return usage(cmd, "--depth counts steps from an address, and there is none").WithNext("add --address")
			}
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			g, err := t.Graph(cmd.Context(), t.environment, t.state, version, address, depth)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(g)
			}
			return show(g)
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().IntVar(&depth, "depth", 0, "at most so many steps from --address; 0 for all")
	cmd.Flags().StringVar(&format, "format", "dot", "dot, mermaid or json")
	cmd.Flags().StringVar(&version, "version", "", "of this version: a number, @N, serial:N or a tag (default the newest)")
	return a.onlineAbout(cmd, &address, "only what this resource or instance depends on, and what depends on it")
}

// printDOT writes a graph for Graphviz. Data sources are dashed.
func (a *app) printDOT(g wire.Graph) error {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n  rankdir = LR;\n  node [shape = box];\n", quoteDOT(g.State))
	for _, n := range g.Nodes {
		style := ""
		if n.Mode == "data" {
			style = ", style = dashed"
		}
		fmt.Fprintf(&b, "  %s [label = %s%s];\n", quoteDOT(n.Address), quoteDOT(nodeLabel(n)), style)
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, "  %s -> %s;\n", quoteDOT(e.From), quoteDOT(e.To))
	}
	b.WriteString("}\n")
	return a.printf("%s", b.String())
}

// nodeLabel is a node's address, with the number of its instances when there
// are several.
func nodeLabel(n wire.GraphNode) string {
	if n.Instances > 1 {
		return fmt.Sprintf("%s ×%d", n.Address, n.Instances)
	}
	return n.Address
}

var dotQuotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func quoteDOT(s string) string { return `"` + dotQuotes.Replace(s) + `"` }

// printMermaid writes a graph for Mermaid, which GitHub and others show in
// Markdown.
func (a *app) printMermaid(g wire.Graph) error {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	ids := map[string]int{}
	for i, n := range g.Nodes {
		ids[n.Address] = i
		left, right := `["`, `"]`
		if n.Mode == "data" {
			left, right = `("`, `")`
		}
		fmt.Fprintf(&b, "  n%d%s%s%s\n", i, left, mermaidQuotes.Replace(nodeLabel(n)), right)
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, "  n%d --> n%d\n", ids[e.From], ids[e.To])
	}
	return a.printf("%s", b.String())
}

var mermaidQuotes = strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "\n", " ")
