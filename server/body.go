package server

import (
	"bytes"
	"crypto/md5" // Content-MD5 is what Terraform sends
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"kl/fault"
	"kl/store"
)

const (
	maxLockBody    = 64 << 10 // of a LockInfo
	maxControlBody = 1 << 20  // of the control API's documents
)

// receive reads a state: whole and within the limit. Codes: body_invalid,
// body_too_large, body_incomplete, busy; body_digest_mismatch comes from what
// is done with it.
func (s *Server) receive(c echo.Context) (*store.Body, error) {
	r, cl := c.Request(), callOf(c)
	if err := plainEncoding(r.Header.Get(echo.HeaderContentEncoding)); err != nil {
		return nil, err
	}
	digest, err := contentMD5(r.Header.Get("Content-MD5"))
	if err != nil {
		return nil, err
	}
	if r.ContentLength > s.opt.MaxBody {
		return nil, tooLarge(s.opt.MaxBody).WithNext("raise the limit with: kl serve --max-body %d (or more)", r.ContentLength)
	}
	b, err := s.store.ReadBody(r.Context(), cl.reader(), r.ContentLength, s.opt.MaxBody)
	if err != nil {
		return nil, err
	}
	b.Expect(digest) // the store compares, once it is computed
	return b, nil
}

// reader is the request's body, or an empty one.
func (cl *call) reader() io.Reader {
	if cl.body == nil {
		return strings.NewReader("")
	}
	return cl.body
}

func tooLarge(limit int64) *fault.Error {
	return fault.New(fault.BodyTooLarge, "the body is larger than this server's limit of %d bytes", limit).With("limit", limit)
}

func plainEncoding(enc string) error {
	if enc != "" && !strings.EqualFold(enc, "identity") {
		return fault.New(fault.BodyInvalid, "the body has a Content-Encoding, which states must not have").
			WithNext("send the state as it is, without compression")
	}
	return nil
}

// contentMD5 decodes the header; "" is no digest.
func contentMD5(header string) ([]byte, error) {
	if header == "" {
		return nil, nil
	}
	b, err := base64.StdEncoding.DecodeString(header)
	if err != nil || len(b) != md5.Size {
		return nil, fault.New(fault.BodyDigest, "the header Content-MD5 is not the base64 form of an MD5 digest").
			WithNext("send the digest of the body's bytes in base64, or leave the header out")
	}
	return b, nil
}

// readSmall reads a whole body of at most limit bytes.
func readSmall(c echo.Context, limit int64) ([]byte, error) {
	r, cl := c.Request(), callOf(c)
	if err := plainEncoding(r.Header.Get(echo.HeaderContentEncoding)); err != nil {
		return nil, err
	}
	digest, err := contentMD5(r.Header.Get("Content-MD5"))
	if err != nil {
		return nil, err
	}
	over := fault.New(fault.BodyTooLarge, "the body is larger than the %d bytes that this address takes", limit).
		With("limit", limit).WithNext("send a smaller document")
	if r.ContentLength > limit {
		return nil, over
	}
	b, err := io.ReadAll(io.LimitReader(cl.reader(), limit+1))
	switch sum := md5.Sum(b); {
	case err != nil:
		return nil, err
	case int64(len(b)) > limit:
		return nil, over
	case digest != nil && !bytes.Equal(digest, sum[:]):
		return nil, fault.New(fault.BodyDigest, "the %d bytes that arrived do not have the digest that Content-MD5 announced", len(b))
	}
	return b, nil
}

// decode reads a JSON object into v, which is a pointer to a struct. Members
// that v does not have are refused, all of them by name: a mistyped setting
// must not look as if it had been set.
func decode(c echo.Context, v any) error {
	b, err := readSmall(c, maxControlBody)
	if err != nil {
		return err
	}
	return unmarshal(b, v)
}

// decodeIfAny is decode where a request without a body asks for the defaults.
func decodeIfAny(c echo.Context, v any) error {
	b, err := readSmall(c, maxControlBody)
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return err
	}
	return unmarshal(b, v)
}

func unmarshal(b []byte, v any) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil || members == nil {
		return notJSON(err)
	}
	t := reflect.TypeOf(v).Elem()
	known := memberNames(t)
	if unknown := unknownMembers(t, members); len(unknown) > 0 {
		slices.Sort(unknown)
		return fault.New(fault.ParameterInvalid, "the body has members that are not known here: %s", short(strings.Join(unknown, ", "))).
			With("unknown_members", unknown).WithNext("known are: %s", strings.Join(known, ", "))
	}
	if err := json.Unmarshal(b, v); err != nil {
		return notJSON(err)
	}
	return nil
}

// unknownMembers are those that a struct does not have, also those of objects
// within it, as "object.member".
func unknownMembers(t reflect.Type, members map[string]json.RawMessage) []string {
	types := map[string]reflect.Type{}
	for f := range fields(t) {
		types[f.name] = f.typ
	}
	var unknown []string
	for name, raw := range members {
		ft, known := types[name]
		if !known {
			unknown = append(unknown, name)
			continue
		}
		ft, object := objectType(ft)
		if !object {
			continue
		}
		var inner map[string]json.RawMessage
		if json.Unmarshal(raw, &inner) != nil {
			continue // no object: told when it is decoded
		}
		for _, u := range unknownMembers(ft, inner) {
			unknown = append(unknown, name+"."+u)
		}
	}
	return unknown
}

func notJSON(err error) error {
	f := fault.New(fault.ParameterInvalid, "the body is not a JSON object").WithNext("send a JSON object")
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return f.With("offset", syntax.Offset)
	case errors.As(err, &kind) && kind.Field != "":
		return fault.New(fault.ParameterInvalid, "the member %s takes %s, not %s", memberPath(kind.Field), taken(kind.Type), given(kind.Value)).With("offset", kind.Offset)
	case err != nil && kind == nil:
		return fault.New(fault.ParameterInvalid, "the body has a value that is not valid: %v", err)
	}
	return f
}

// memberPath is where a value stands in the body. The decoder also names the Go
// structs whose members stand in that of another, which begin with a capital.
func memberPath(field string) string {
	steps := slices.DeleteFunc(strings.Split(field, "."), func(s string) bool { return s != "" && s[0] >= 'A' && s[0] <= 'Z' })
	return strings.Join(steps, ".")
}

// taken puts into words what a member is for.
func taken(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "a " + t.Kind().String()
	}
}

// given puts into words what came instead.
func given(value string) string {
	switch value {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "bool":
		return "true or false"
	}
	if n, ok := strings.CutPrefix(value, "number "); ok {
		return short(n)
	}
	return "a " + value
}

// objectType is the struct that a member is read into, if it is one; what reads
// itself also judges itself.
func objectType(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t, t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// memberNames are the JSON members of a struct, those of embedded ones too, and
// those of objects within it as "object.member".
func memberNames(t reflect.Type) []string {
	var out []string
	for f := range fields(t) {
		out = append(out, f.name)
		if inner, object := objectType(f.typ); object {
			for _, name := range memberNames(inner) {
				out = append(out, f.name+"."+name)
			}
		}
	}
	return out
}
