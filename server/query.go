package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/query"
	"kl/store"
	"kl/wire"
)

// queryRoutes are those that look into states.
func queryRoutes() []Route {
	return []Route{
		{
			Method: http.MethodPost, Path: wire.QueryPath, Access: Known, handle: (*Server).query,
			Summary: "Ask in SQL about all that the caller may read; rows are sent as they are found, and an answer that breaks off has the member error",
			Body:    wire.QueryRequest{}, Answer: wire.QueryAnswer{},
		},
		{
			Method: http.MethodGet, Path: wire.QueryPath + "/tables", Access: Known, handle: (*Server).queryTables,
			Summary: "The tables that can be asked, column by column", Answer: wire.List[wire.QueryTable]{},
		},
		{
			Method: http.MethodGet, Path: statePath + "/graph", Access: Environment, Action: auth.ReadState, handle: (*Server).graph,
			Summary: "What the resources of a state depend on", Answer: wire.Graph{}, Query: []Param{
				{"address", "only what this instance or resource depends on, and what depends on it"},
				{"depth", "at most so many steps from the address (default: all)"},
				{"version", "a number, @N, serial:N, a tag or head (default head)"},
			},
		},
	}
}

// query answers a question in SQL.
func (s *Server) query(c echo.Context) error {
	var q wire.QueryRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	cl := callOf(c)
	cl.environment = q.Environment
	a := &rowsWriter{c: c}
	done, err := s.engine.Run(c.Request().Context(), s.reads(c, q.Environment), query.Request{SQL: q.SQL, Limit: q.Limit, Reveal: q.Reveal}, a)
	switch {
	case a.gone:
		cl.gone = true
		return nil
	case err != nil && !a.sent:
		return err
	}
	var broke *wire.Problem
	if err != nil {
		if s.refuse(c, cl, err); cl.gone {
			return nil
		}
		broke = cl.refusal
	}
	err = a.end(done, broke)
	cl.gone = cl.gone || a.gone
	return err
}

// reads is the caller as a reader: with Basic credentials nothing outside of
// the workspace that they name is read.
func (s *Server) reads(c echo.Context, environment string) store.Reader {
	r := store.Reader{Actor: callOf(c).actor(), Environment: environment}
	if user, _, basic := credentials(c.Request()); basic {
		r.Workspace = user
	}
	return r
}

// rowsWriter sends an answer as it comes. What is small is not sent before its
// end, so that a statement that fails early is answered by a refusal.
type rowsWriter struct {
	c    echo.Context
	b    bytes.Buffer
	sent bool
	gone bool // the client takes nothing more
	rows int
}

// rowsPiece is how much of an answer is gathered before it is sent.
const rowsPiece = 32 << 10

// Columns begins the answer.
func (w *rowsWriter) Columns(names []string) error {
	w.b.WriteString(`{"columns":`)
	if err := w.json(names); err != nil {
		return err
	}
	w.b.WriteString(`,"rows":[`)
	return nil
}

// Row sends a row.
func (w *rowsWriter) Row(values []any) error {
	if w.rows > 0 {
		w.b.WriteByte(',')
	}
	w.rows++
	w.b.WriteString("\n[")
	for i, v := range values {
		if i > 0 {
			w.b.WriteByte(',')
		}
		if err := w.value(v); err != nil {
			return err
		}
	}
	w.b.WriteByte(']')
	if w.b.Len() < rowsPiece {
		return nil
	}
	return w.flush()
}

func (w *rowsWriter) value(v any) error {
	switch v := v.(type) {
	case int64:
		w.b.Write(strconv.AppendInt(w.b.AvailableBuffer(), v, 10))
		return nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) { // JSON has no such numbers
			return w.json(strconv.FormatFloat(v, 'g', -1, 64))
		}
		return w.json(v)
	case []byte:
		return w.json(base64.StdEncoding.EncodeToString(v))
	default:
		return w.json(v)
	}
}

func (w *rowsWriter) json(v any) error {
	enc := json.NewEncoder(&w.b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	w.b.Truncate(w.b.Len() - 1) // the line break
	return nil
}

func (w *rowsWriter) flush() error {
	if !w.sent {
		w.sent = true
		h := w.c.Response().Header()
		h.Set(echo.HeaderCacheControl, "no-store")
		h.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
		w.c.Response().WriteHeader(http.StatusOK)
	}
	_, err := w.c.Response().Write(w.b.Bytes())
	w.gone = err != nil
	w.b.Reset()
	return err
}

// end ends the answer; broke is what it broke off for, nil for nothing.
func (w *rowsWriter) end(done query.Done, broke *wire.Problem) error {
	w.b.WriteString("],\n\"row_count\":" + strconv.Itoa(w.rows) + `,"truncated":` + strconv.FormatBool(done.Truncated))
	if broke != nil {
		w.b.WriteString(`,"error":`)
		if err := w.json(broke); err != nil {
			return err
		}
	}
	w.b.WriteString("}\n")
	return w.flush()
}

// queryTables lists what can be asked.
func (s *Server) queryTables(c echo.Context) error {
	var out []wire.QueryTable
	for _, t := range query.Tables() {
		w := wire.QueryTable{Table: t.Name, About: t.About}
		for _, col := range t.Columns {
			w.Columns = append(w.Columns, wire.QueryColumn{Column: col.Name, Type: col.Type, About: col.About, Quick: col.Find})
		}
		out = append(out, w)
	}
	return answer(c, listOf(out))
}

// graph tells what the resources of a state depend on.
func (s *Server) graph(c echo.Context) error {
	cl := callOf(c)
	q := query.GraphRequest{State: cl.state, Version: c.QueryParam("version"), Address: c.QueryParam("address")}
	if v := c.QueryParam("depth"); v != "" {
		var err error
		if q.Depth, err = strconv.Atoi(v); err != nil || q.Depth < 1 {
			return fault.New(fault.ParameterInvalid, "depth is not a number from 1 on").WithNext("leave depth out for all steps")
		}
	}
	g, err := s.engine.Graph(c.Request().Context(), s.reads(c, cl.environment), q)
	if err != nil {
		return err
	}
	return answer(c, g)
}
