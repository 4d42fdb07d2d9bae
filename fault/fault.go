// Package fault gives every expected failure a kind.
//
// A failure is made where it happens, with New, and is never reclassified on
// its way up: the server turns it into a status and a problem document, the
// client rebuilds it from that document, and the command line turns its class
// into an exit code. An error without a fault in its chain is a bug and is
// answered as Internal.
package fault

import (
	"errors"
	"fmt"
)

// Class says what kind of answer a failure needs from its reader.
type Class string

// The classes of contract.md's error table.
const (
	Auth        Class = "auth"
	Scope       Class = "scope"
	Lock        Class = "lock"
	Conflict    Class = "conflict"
	Quota       Class = "quota"
	Lifecycle   Class = "lifecycle"
	Invalid     Class = "invalid"
	Unavailable Class = "unavailable"
	Unknown     Class = "unknown"
)

// Classes lists every class.
var Classes = []Class{Auth, Scope, Lock, Conflict, Quota, Lifecycle, Invalid, Unavailable, Unknown}

// Details are the members that a class adds to the problem document, such as
// "conflicting_addresses" or "reason". Values must be what encoding/json can
// write; secrets never go in here.
type Details map[string]any

// Error is a classified failure.
type Error struct {
	Code    Code    // which failure; also decides class and status
	Detail  string  // one sentence that names the thing concerned
	Next    string  // what the reader can do or type next
	Details Details // members of the class, may be nil
	Err     error   // cause for the log, may be nil; never shown to clients
}

// New makes a failure whose sentence is built from format.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...), Next: code.Info().Next}
}

// Wrap makes a failure with a cause that only the log shows.
func Wrap(code Code, err error, format string, args ...any) *Error {
	e := New(code, format, args...)
	e.Err = err
	return e
}

// WithNext replaces the next step of the code's catalogue entry.
func (e *Error) WithNext(format string, args ...any) *Error {
	e.Next = fmt.Sprintf(format, args...)
	return e
}

// With adds one member to the problem document.
func (e *Error) With(name string, value any) *Error {
	if e.Details == nil {
		e.Details = Details{}
	}
	e.Details[name] = value
	return e
}

// Error is the sentence, with the cause when there is one.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Class is the class of the failure's code.
func (e *Error) Class() Class { return e.Code.Info().Class }

// Status is the HTTP status of the failure's code.
func (e *Error) Status() int { return e.Code.Info().Status }

// Of returns the fault in err's chain, or nil when there is none.
func Of(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// Is reports whether err is a fault with that code.
func Is(err error, code Code) bool {
	e := Of(err)
	return e != nil && e.Code == code
}

// ClassOf is the class of err: Unknown when err is no fault, "" when err is nil.
func ClassOf(err error) Class {
	if err == nil {
		return ""
	}
	if e := Of(err); e != nil {
		return e.Class()
	}
	return Unknown
}
