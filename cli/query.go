package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/fault"
	"kl/wire"
)

// maxCell is how much of a value a table shows, in characters.
const maxCell = 100

// maxQueryFile bounds the file of -f; the server takes less.
const maxQueryFile = 1 << 20

// queryFlags are those of kl query.
type queryFlags struct {
	file   string
	csv    bool
	schema bool
	reveal bool
	limit  int
}

func (a *app) queryCmd() *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "query [SQL]",
		Short: "Ask in SQL about states, versions, changes and locks",
		Long: `Ask in SQL (SQLite's) about all that your credentials may read: resources, instances and
their attributes, dependencies, outputs, versions, changes, locks, runs, refused writes.
kl query --schema lists the tables; docs/queries.md has questions worth asking.

Tables of contents tell of the newest version of each state; version = N asks for an older
one. Sensitive values are NULL unless --reveal shows them, which the audit trail records.
A table shows the first 100 characters of a value; --csv and --json show all.`,
		Example: `  kl query "SELECT type, count(*) AS n FROM instances GROUP BY type ORDER BY n DESC"
  kl query --csv "SELECT state, address FROM instances WHERE type = 'aws_instance'"
  kl query -f question.sql --json
  kl query --schema instances`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.csv && a.asJSON {
				return usage(cmd, "--csv and --json exclude each other")
			}
			if f.schema {
				return a.querySchema(cmd, first(args))
			}
			q, err := a.question(cmd, f, args)
			if err != nil {
				return err
			}
			return a.runQuery(cmd.Context(), f, q)
		},
	}
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "read the SQL from this file, - for standard input")
	cmd.Flags().BoolVar(&f.csv, "csv", false, "print the rows as CSV")
	cmd.Flags().BoolVar(&f.schema, "schema", false, "list the tables and their columns, or those of one table")
	cmd.Flags().BoolVar(&f.reveal, "reveal", false, "show sensitive values; takes a role that may read states, and is in the audit trail")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "at most so many rows (default 10000, at most 100000)")
	cmd.AddCommand(a.queryResourcesCmd(), a.queryHistoryCmd())
	return a.online(cmd)
}

// question makes the request out of flags and arguments.
func (a *app) question(cmd *cobra.Command, f queryFlags, args []string) (q wire.QueryRequest, err error) {
	q = wire.QueryRequest{Limit: f.limit, Reveal: f.reveal}
	switch {
	case f.limit < 0:
		return q, usage(cmd, "--limit must not be negative")
	case f.file == "" && len(args) == 0:
		return q, usage(cmd, "there is no SQL to run").WithNext(`kl query "SELECT state, resource_count FROM states"; the tables: kl query --schema`)
	case f.file != "" && len(args) > 0:
		return q, usage(cmd, "the SQL is given twice, as an argument and by -f")
	case f.file != "":
		q.SQL, err = a.readSQL(f.file)
		return q, err
	}
	q.SQL = args[0]
	return q, nil
}

func (a *app) readSQL(name string) (string, error) {
	r := a.env.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", fault.Wrap(fault.ParameterInvalid, err, "the file %s cannot be read", name).WithNext("check -f")
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxQueryFile+1))
	switch {
	case err != nil:
		return "", fault.Wrap(fault.ParameterInvalid, err, "the SQL cannot be read").WithNext("check -f")
	case len(b) > maxQueryFile:
		return "", fault.New(fault.ParameterInvalid, "%s is larger than %d KiB", name, maxQueryFile>>10).WithNext("give a file with one SELECT")
	}
	return string(b), nil
}

// runQuery asks, and prints the answer as it comes where it needs no table.
func (a *app) runQuery(ctx context.Context, f queryFlags, q wire.QueryRequest) error {
	t, err := a.resolve("")
	if err != nil {
		return err
	}
	if a.flags.env != "" && !a.fromEnv["env"] {
		t.environment = a.flags.env
		if err := t.findEnvironment(ctx); err != nil {
			return err
		}
		q.Environment = t.environment
	}
	rows, err := t.Query(ctx, q)
	if err != nil {
		return err
	}
	defer rows.Close()
	var n int
	switch {
	case a.asJSON:
		n, err = a.rowsAsJSON(rows)
	case f.csv:
		n, err = a.rowsAsCSV(rows)
	default:
		n, err = a.rowsAsTable(rows)
	}
	if err == nil && rows.Truncated {
		a.note("there are more rows than these %d; --limit asks for more, up to 100000", n)
	}
	return err
}

func (a *app) rowsAsTable(rows *client.Rows) (n int, err error) {
	table := [][]string{rows.Columns}
	for row, err := range rows.All() {
		if err != nil {
			return 0, err
		}
		cells := make([]string, len(row))
		for i, v := range row {
			cells[i] = shorten(cellOf(v, "NULL"))
		}
		table = append(table, cells)
	}
	if len(table) == 1 {
		a.note("there is no such row")
		return 0, nil
	}
	return len(table) - 1, a.printTable(table)
}

func (a *app) rowsAsCSV(rows *client.Rows) (n int, err error) {
	w := csv.NewWriter(a.env.Stdout)
	_ = w.Write(rows.Columns) // errors stay until Flush
	for row, err := range rows.All() {
		if err != nil {
			w.Flush()
			return n, err
		}
		cells := make([]string, len(row))
		for i, v := range row {
			if cells[i] = cellOf(v, ""); terminal(a.env.Stdout) {
				cells[i] = clean(cells[i])
			}
		}
		if err := w.Write(cells); err != nil {
			return n, fmt.Errorf("write the answer: %w", err)
		}
		n++
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return n, fmt.Errorf("write the answer: %w", err)
	}
	return n, nil
}

// rowsAsJSON prints the document that the server sends, a row to a line.
func (a *app) rowsAsJSON(rows *client.Rows) (n int, err error) {
	put := func(format string, args ...any) {
		if err == nil {
			if _, err = fmt.Fprintf(a.env.Stdout, format, args...); err != nil {
				err = fmt.Errorf("write the answer: %w", err)
			}
		}
	}
	put("{\"columns\": %s,\n \"rows\": [", compactJSON(rows.Columns))
	for row, broke := range rows.All() {
		if broke != nil {
			// what was printed stays a document that can be read
			put("],\n \"row_count\": %d, \"truncated\": true}\n", n)
			return n, broke
		}
		if n > 0 {
			put(",")
		}
		put("\n  %s", compactJSON(row))
		if n++; err != nil {
			return n, err
		}
	}
	put("],\n \"row_count\": %d, \"truncated\": %t}\n", n, rows.Truncated)
	return n, err
}

func compactJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // strings and numbers always can be
	return strings.TrimSuffix(b.String(), "\n")
}

// cellOf writes a value as text.
func cellOf(v any, null string) string {
	if v == nil {
		return null
	}
	return fmt.Sprint(v)
}

func shorten(s string) string {
	if utf8.RuneCountInString(s) <= maxCell {
		return s
	}
	return string([]rune(s)[:maxCell-1]) + "…"
}

// querySchema lists the tables that can be asked.
func (a *app) querySchema(cmd *cobra.Command, table string) error {
	t, err := a.resolve("")
	if err != nil {
		return err
	}
	tables, err := t.QueryTables(cmd.Context())
	if err != nil {
		return err
	}
	var found []wire.QueryTable
	var names []string
	for _, q := range tables {
		names = append(names, q.Table)
		if table == "" || q.Table == table {
			found = append(found, q)
		}
	}
	if len(found) == 0 {
		return fault.New(fault.ParameterInvalid, "there is no table %q", table).WithNext("use one of: %s", strings.Join(names, ", "))
	}
	if a.asJSON {
		return a.printJSON(wire.List[wire.QueryTable]{Items: found})
	}
	var b strings.Builder
	for i, q := range found {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s\n", q.Table, q.About)
		for _, c := range q.Columns {
			quick := " "
			if c.Quick {
				quick = "*"
			}
			fmt.Fprintf(&b, "  %s %-22s %-8s %s\n", quick, c.Column, c.Type, c.About)
		}
	}
	b.WriteString("\n* rows with one value of it are found without reading the others\ntimes are UTC, as SQLite's datetime() writes them\n")
	return a.printf("%s", b.String())
}
