package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kl/auth"
)

// TestRoutesAreInTheTable compares what is registered with the table: a route
// beside it would have no rule who may use it.
func TestRoutesAreInTheTable(t *testing.T) {
	table := map[string]bool{}
	for _, rt := range Routes() {
		key := rt.Method + " " + echoPath(rt.Path)
		if table[key] {
			t.Errorf("%s stands twice in the table", key)
		}
		table[key] = true
	}
	for _, r := range New(Options{}).echo.Routes() {
		key := r.Method + " " + r.Path
		if !table[key] {
			t.Errorf("%s is registered but not in the table", key)
		}
		delete(table, key)
	}
	for key := range table {
		t.Errorf("%s is in the table but not registered", key)
	}
}

// TestRoutesHaveRules makes sure that nothing is open by omission.
func TestRoutesHaveRules(t *testing.T) {
	open := []string{"/healthz", "/readyz", "/version", "/metrics", "/errors/{code}", "/v1/openapi.json"}
	asks := []string{statePath + "/quota/check"} // questions too long for a GET
	for _, rt := range Routes() {
		name := rt.Method + " " + rt.Path
		switch rt.Access {
		case Denied:
			t.Errorf("%s has no access rule", name)
		case Public:
			if !slices.Contains(open, rt.Path) {
				t.Errorf("%s is open to everybody", name)
			}
		case Environment, StatePath:
			if rt.Action < auth.ReadOutputs || rt.Action > auth.WriteState {
				t.Errorf("%s has no action", name)
			}
			if rt.Method != http.MethodGet && rt.Method != http.MethodHead && rt.Action < auth.LockForPlan && !slices.Contains(asks, rt.Path) {
				t.Errorf("%s changes something for those who may only read", name)
			}
			if !strings.Contains(rt.Path, "{env}") {
				t.Errorf("%s has no environment to be authorized for", name)
			}
		default:
		}
		data := strings.HasPrefix(rt.Path, "/states/") || strings.HasPrefix(rt.Path, "/locks/")
		if data != (rt.Access == StatePath) {
			t.Errorf("%s: access %d does not fit the path", name, rt.Access)
		}
		if data && slices.Contains(rt.Kinds(), auth.Control) {
			t.Errorf("%s takes control tokens", name)
		}
		if rt.Summary == "" {
			t.Errorf("%s has no summary", name)
		}
	}
}

func TestOpenAPIDescribesEveryRoute(t *testing.T) {
	b, err := json.Marshal(describe("1.2.3", "https://kl.example"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, rt := range Routes() {
		if doc.Paths[rt.Path][operationKey(rt.Method)] == nil {
			t.Errorf("%s %s is not described", rt.Method, rt.Path)
		}
	}
	for path, item := range doc.Paths {
		for op, raw := range item {
			if op == "parameters" {
				continue
			}
			n++
			var o struct {
				Responses map[string]any
				Security  []any
			}
			if err := json.Unmarshal(raw, &o); err != nil || len(o.Responses) < 2 {
				t.Errorf("%s %s: %v, responses %v", op, path, err, o.Responses)
			}
		}
	}
	if n != len(Routes()) {
		t.Errorf("%d operations for %d routes", n, len(Routes()))
	}
	for _, ref := range strings.Split(string(b), `"$ref":"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(ref, `"`)
		if len(doc.Components.Schemas[name].Properties) == 0 {
			t.Errorf("schema %q is referred to but not described", name)
		}
	}
	for schema, members := range map[string][]string{
		"Holder":      {"ID", "Who", "principal", "checkpoints"}, // those of the embedded LockInfo too
		"VersionList": {"items", "next"},
		"Problem":     {"code", "next_step"},
		"Environment": {"lock_idle_ttl"},
	} {
		for _, m := range members {
			if doc.Components.Schemas[schema].Properties[m] == nil {
				t.Errorf("schema %s has no member %s: %v", schema, m, doc.Components.Schemas[schema])
			}
		}
	}
}

func TestEchoPath(t *testing.T) {
	for in, want := range map[string]string{
		"/healthz":                        "/healthz",
		"/states/{ws}/{env}/{state}":      "/states/:ws/:env/:state",
		statePath + "/versions/{version}": "/v1/environments/:env/states/:state/versions/:version",
	} {
		if got := echoPath(in); got != want {
			t.Errorf("echoPath(%q) = %q, want %q", in, got, want)
		}
	}
}
