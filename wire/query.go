package wire

// QueryPath is where questions in SQL are asked.
const QueryPath = "/v1/query"

// QueryRequest is a question in SQL.
type QueryRequest struct {
	SQL         string `json:"sql"`
	Environment string `json:"environment,omitempty"` // public id; "": all that the caller may read
	Limit       int    `json:"limit,omitempty"`       // rows, 0: 10000, at most 100000
	Reveal      bool   `json:"reveal,omitempty"`      // show sensitive values; it is in the audit trail then
}

// QueryAnswer is the form of an answer, which is sent as it is made. Values are
// null, numbers and strings; a blob is a string in base64.
type QueryAnswer struct {
	Columns   []string `json:"columns"`
	Rows      [][]any  `json:"rows"`
	RowCount  int      `json:"row_count"`
	Truncated bool     `json:"truncated"` // there are more rows
	// Error ends an answer that broke off after it had begun; the rows before it
	// are all right.
	Error *Problem `json:"error,omitempty"`
}

// QueryTable is a table that can be asked.
type QueryTable struct {
	Table   string        `json:"table"`
	About   string        `json:"about"`
	Columns []QueryColumn `json:"columns"`
}

// QueryColumn is a column of a table.
type QueryColumn struct {
	Column string `json:"column"`
	Type   string `json:"type"` // TEXT, INTEGER, JSON (as text), ANY
	About  string `json:"about"`
	Quick  bool   `json:"quick"` // rows with one value of it are found without reading the others
}

// Graph is what the resources of a state depend on.
type Graph struct {
	State   string      `json:"state"`
	Version uint64      `json:"version"`
	Nodes   []GraphNode `json:"nodes"` // in the order of their addresses
	Edges   []GraphEdge `json:"edges"`
}

// GraphNode is a resource of the configuration: module and instance keys do
// not tell one from another.
type GraphNode struct {
	Address   string `json:"address"`
	Mode      string `json:"mode"` // managed, data; "" for one that is only depended on
	Type      string `json:"type"`
	Instances int64  `json:"instances"`
}

// GraphEdge says that From depends on To.
type GraphEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
}
