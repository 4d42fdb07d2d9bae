package tfstate

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrReordered is returned when a member that names a resource (module, mode, type or name) stands after its
// instances. Scan again from the start with Options.Reordered.
var ErrReordered = errors.New("a resource names itself only after its instances")

// ErrAmbiguous is returned when a member that the format defines occurs twice in one object, so that two readers may
// disagree on what the document says. Such a document is only fit to be kept as opaque bytes.
var ErrAmbiguous = errors.New("a member of the state format occurs twice in one object")

// SyntaxError says that the bytes are not one JSON document: malformed, cut off, empty, or followed by something else.
type SyntaxError struct {
	Offset int64 // of the offending byte; the length of the input when it ends too early
	Line   int   // of Offset, counted from 1
	Column int   // of Offset in its line, in bytes, counted from 1
	Msg    string
}

// Error tells what is wrong and where.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not valid JSON: %s (line %d, column %d)", e.Msg, e.Line, e.Column)
}

// ShapeError says that the document is JSON as far as it was read, but not a state of format version 4.
type ShapeError struct {
	Offset int64 // of the offending value
	Line   int   // of Offset, counted from 1
	Msg    string
}

// Error tells what is wrong and where.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("not a version 4 state: %s (line %d)", e.Msg, e.Line)
}

// fail is the reason why a lexical function gave up at an offset.
type fail uint8

const (
	ok fail = iota
	failToken
	failControl
	failEscape
	failDepth
)

func syntaxError(b []byte, off int, f fail) error {
	off = min(off, len(b))
	e := &SyntaxError{Offset: int64(off)}
	e.Line, e.Column = position(b, off)
	switch {
	case f == failDepth:
		e.Msg = fmt.Sprintf("nested deeper than %d levels", maxDepth)
	case off == 0 && len(b) == 0:
		e.Msg = "there is nothing"
	case off == len(b):
		e.Msg = "it ends too early"
	case f == failControl:
		e.Msg = fmt.Sprintf("control character %#02x within a string", b[off])
	case f == failEscape:
		e.Msg = fmt.Sprintf("%s is no escape within a string", character(b[off]))
	default:
		e.Msg = "unexpected " + character(b[off])
	}
	return e
}

func character(c byte) string {
	if c < ' ' || c > '~' {
		return fmt.Sprintf("byte %#02x", c)
	}
	return fmt.Sprintf("%q", c)
}

func shapeError(b []byte, off int, format string, args ...any) error {
	line, _ := position(b, off)
	return &ShapeError{Offset: int64(off), Line: line, Msg: fmt.Sprintf(format, args...)}
}

// wrongType is a ShapeError about the value at off, unless that value is not even JSON.
func wrongType(b []byte, off, depth int, what, want string) error {
	if end, f := skipValue(b, off, depth); f != ok {
		return syntaxError(b, end, f)
	}
	return shapeError(b, off, "%s must be %s, not %s", what, want, typeName(b[off]))
}

func ambiguous(b []byte, off int, name string) error {
	line, _ := position(b, off)
	return fmt.Errorf("%w: %q at line %d is the second one", ErrAmbiguous, name, line)
}

func typeName(c byte) string {
	switch c {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// position counts lines only here, so that a scan without errors never does.
func position(b []byte, off int) (line, column int) {
	off = min(off, len(b))
	return bytes.Count(b[:off], []byte{'\n'}) + 1, off - bytes.LastIndexByte(b[:off], '\n')
}
