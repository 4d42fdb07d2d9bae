package server

import (
	"encoding/json"
	"iter"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"kl/wire"
)

// openAPI serves the description of all routes, made from the route table.
func (s *Server) openAPI(c echo.Context) error {
	return c.JSON(http.StatusOK, describe(s.opt.Version.Version, s.opt.ExternalURL))
}

// object is a JSON object in the making.
type object = map[string]any

// describe builds the OpenAPI document.
func describe(version, externalURL string) object {
	d := &description{schemas: object{}}
	paths := object{}
	for _, rt := range Routes() {
		item, ok := paths[rt.Path].(object)
		if !ok {
			item = object{}
			if ps := pathParams(rt.Path); len(ps) > 0 {
				item["parameters"] = ps
			}
			paths[rt.Path] = item
		}
		item[operationKey(rt.Method)] = d.operation(rt)
	}
	if version == "" {
		version = "unknown"
	}
	doc := object{
		"openapi": "3.1.0",
		"info":    object{"title": "kl", "version": version, "description": "Terraform and OpenTofu state server."},
		"paths":   paths,
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{
				"token": object{"type": "http", "scheme": "bearer", "description": "Control token (kl_ctl_…), automation token (kl_env_…) or personal access token (kl_pat_…)."},
				"basic": object{"type": "http", "scheme": "basic", "description": "User name: the workspace's id. Password: an automation token or a personal access token."},
			},
		},
	}
	if externalURL != "" {
		doc["servers"] = []object{{"url": externalURL}}
	}
	return doc
}

// operationKey is a method's member in a path item. OpenAPI knows only HTTP's
// own methods; the others go in as extensions.
func operationKey(method string) string {
	if method == methodLock || method == methodUnlock {
		return "x-" + strings.ToLower(method)
	}
	return strings.ToLower(method)
}

// description collects schemas while operations are described.
type description struct{ schemas object }

func (d *description) operation(rt Route) object {
	status := rt.Status
	if status == 0 {
		status = http.StatusOK
	}
	success := object{"description": "done"}
	switch {
	case rt.Answer != nil:
		success["content"] = object{echo.MIMEApplicationJSON: object{"schema": d.schema(reflect.TypeOf(rt.Answer))}}
	case rt.Media != "" && rt.Method == http.MethodGet:
		success["content"] = object{rt.Media: object{}}
	}
	op := object{
		"summary": rt.Summary,
		"responses": object{
			strconv.Itoa(status): success,
			"default": object{"description": "refused", "content": object{
				wire.MediaProblem: object{"schema": d.problem()},
			}},
		},
	}
	if rt.Access != Public {
		op["security"] = security(rt.Access)
	}
	var query []object
	for _, p := range rt.Query {
		query = append(query, object{"name": p.Name, "in": "query", "description": p.About, "schema": object{"type": "string"}})
	}
	if query != nil {
		op["parameters"] = query
	}
	switch {
	case rt.Body != nil:
		op["requestBody"] = object{"content": object{echo.MIMEApplicationJSON: object{"schema": d.schema(reflect.TypeOf(rt.Body))}}}
	case rt.Takes != "":
		op["requestBody"] = object{"required": true, "content": object{rt.Takes: object{}}}
	}
	return op
}

func security(a Access) []object {
	token, basic := object{"token": []string{}}, object{"basic": []string{}}
	if a == Operator {
		return []object{token}
	}
	return []object{token, basic}
}

func pathParams(path string) []object {
	var out []object
	for _, m := range inBraces.FindAllStringSubmatch(path, -1) {
		out = append(out, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	return out
}

// problem is the schema of refusals; classes add members.
func (d *description) problem() object {
	if d.schemas["Problem"] == nil {
		props := object{"status": object{"type": "integer"}}
		for _, name := range []string{"type", "title", "detail", "code", "class", "next_step", "request_id"} {
			props[name] = object{"type": "string"}
		}
		d.schemas["Problem"] = object{"type": "object", "properties": props, "additionalProperties": true}
	}
	return object{"$ref": "#/components/schemas/Problem"}
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	momentType   = reflect.TypeFor[wire.Moment]()
	durationType = reflect.TypeFor[wire.Duration]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	takeType     = reflect.TypeFor[wire.Take]()
	refType      = reflect.TypeFor[wire.VersionRef]()
)

// schema describes a type of package wire as encoding/json writes it.
func (d *description) schema(t reflect.Type) object {
	switch t {
	case timeType:
		return object{"type": "string", "format": "date-time"}
	case momentType:
		return object{"type": []string{"string", "null"}, "format": "date-time"}
	case durationType:
		return object{"type": "string", "description": "a duration such as 90s or 720h"}
	case rawType:
		return object{}
	case refType:
		return object{"type": []string{"string", "integer"}, "description": "a version: its number, @N (N back from the newest), serial:N, a tag, or head"}
	case takeType:
		return object{"oneOf": []object{
			{"type": "string", "enum": []string{wire.TakeDisjoint, wire.TakeMine, wire.TakeTheirs}},
			{"type": "object", "description": "a side for each address", "additionalProperties": object{"type": "string", "enum": []string{wire.TakeMine, wire.TakeTheirs}}},
		}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Struct:
		return d.reference(t)
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Interface:
		return object{}
	case reflect.Float64:
		return object{"type": "number"}
	default:
		return object{"type": "integer"}
	}
}

// reference describes a struct once and refers to it.
func (d *description) reference(t reflect.Type) object {
	name := t.Name()
	if base, arg, generic := strings.Cut(name, "["); generic {
		name = strings.TrimSuffix(arg[strings.LastIndex(arg, ".")+1:], "]") + base
	}
	if d.schemas[name] == nil {
		d.schemas[name] = object{} // before its members: they may refer back
		props := object{}
		for f := range fields(t) {
			props[f.name] = d.schema(f.typ)
		}
		d.schemas[name] = object{"type": "object", "properties": props}
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// field is a member of a struct's JSON form.
type field struct {
	name string
	typ  reflect.Type
}

// fields walks the JSON members of a struct, those of embedded structs too.
func fields(t reflect.Type) iter.Seq[field] {
	return func(yield func(field) bool) { walkFields(t, yield) }
}

func walkFields(t reflect.Type, yield func(field) bool) bool {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			if !walkFields(f.Type, yield) {
				return false
			}
		case f.IsExported() && name != "-":
			if name == "" {
				name = f.Name
			}
			if !yield(field{name, f.Type}) {
				return false
			}
		}
	}
	return true
}
