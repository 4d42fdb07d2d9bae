package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"kl/fault"
	"kl/wire"
)

// TestProblemOfEveryCode: each code becomes a whole document, with the member
// that its class asks for.
func TestProblemOfEveryCode(t *testing.T) {
	for _, code := range fault.Codes() {
		p, _ := problem("req_1", fmt.Errorf("write: %w", fault.New(code, "state app is %s", "so")))
		i := code.Info()
		if p.Code != string(code) || p.Class != string(i.Class) || p.Status != i.Status || p.Type != "/errors/"+string(code) ||
			p.Title == "" || p.NextStep == "" || p.RequestID != "req_1" {
			t.Errorf("%s: %+v", code, p)
		}
		if code != fault.Internal && p.Detail != "state app is so" {
			t.Errorf("%s: detail %q", code, p.Detail)
		}
		if m := reasonMember[i.Class]; m != "" && p.Extra[m] != i.Reason {
			t.Errorf("%s: %s is %v, want %q", code, m, p.Extra[m], i.Reason)
		}
		if p.Status == http.StatusTooManyRequests || p.Status > 500 && p.Status != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d is retried by clients", code, p.Status)
		}
	}
}

// TestBugsAreNotExplained: what is no fault shows nothing of its cause.
func TestBugsAreNotExplained(t *testing.T) {
	secret := errors.New("open /srv/kl.db: token kl_ctl_x")
	for name, err := range map[string]error{
		"plain":        secret,
		"wrapped":      fmt.Errorf("a: %w", secret),
		"internal":     fault.Wrap(fault.Internal, secret, "boom %s", "kl_ctl_x"),
		"unknown code": fault.New("no_such_code", "kl_ctl_x"),
		"echo":         echo.NewHTTPError(http.StatusTeapot, "kl_ctl_x"),
	} {
		p, cause := problem("req_1", err)
		b, merr := json.Marshal(p)
		if merr != nil || p.Status != 500 || p.Code != "internal" || strings.Contains(string(b), "kl_ctl_x") {
			t.Errorf("%s: %s", name, b)
		}
		if cause == nil {
			t.Errorf("%s: the log gets no cause", name)
		}
	}
}

// TestRefusedLockIsLockInfo: whatever refuses a LOCK, clients read a LockInfo
// with a telling ID and status 423, but for the few that are exempt.
func TestRefusedLockIsLockInfo(t *testing.T) {
	exempt := map[fault.Code]bool{
		fault.LockInfoInvalid: true, fault.BodyDigest: true, fault.BodyIncomplete: true, fault.BodyInvalid: true,
		fault.BodyTooLarge: true, fault.Internal: true,
	}
	for _, code := range fault.Codes() {
		f := fault.New(code, "state app is so").WithNext("kl do it").
			With("path", 17).With("Version", []int{1}).With("created", "yesterday").With("expected", "x")
		p, _ := problem("req_1", f)
		asLockInfo(&p)
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		if exempt[code] || code.Info().Class == fault.Auth {
			if p.Status != code.Info().Status {
				t.Errorf("%s: status %d, want %d", code, p.Status, code.Info().Status)
			}
			continue
		}
		var info struct {
			wire.LockInfo
			Created *time.Time // as clients read it
		}
		if err := json.Unmarshal(b, &info); err != nil {
			t.Errorf("%s: a client cannot read %s: %v", code, b, err)
			continue
		}
		if p.Status != http.StatusLocked || info.ID != "state app is so; next: kl do it" || info.Created != nil {
			t.Errorf("%s: status %d, %+v", code, p.Status, info)
		}
		if p.Code != string(code) || p.Extra["expected"] != "x" {
			t.Errorf("%s: members lost: %s", code, b)
		}
	}
}

func TestRefusedLockShowsHolder(t *testing.T) {
	holder := wire.LockInfo{ID: "1234", Operation: wire.OperationApply, Who: "ana@laptop", Created: "2026-01-02T03:04:05Z", Info: "held for 3m0s"}
	for _, code := range []fault.Code{fault.Locked, fault.LockAmbiguous, fault.LockForeign} {
		p, _ := problem("req_1", fault.New(code, "state app is locked").With("holder", holder).With("queue_position", 2))
		asLockInfo(&p)
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got wire.LockInfo
		if err := json.Unmarshal(b, &got); err != nil || got != holder || p.Status != http.StatusLocked {
			t.Errorf("%s: status %d, got %+v, want %+v", code, p.Status, got, holder)
		}
		if p.Extra["queue_position"] != 2 || p.Extra["holder"] != nil {
			t.Errorf("%s: members %v", code, p.Extra)
		}
	}
}

func TestParseLockInfo(t *testing.T) {
	long := strings.Repeat("ä", maxLockID)
	for name, c := range map[string]struct {
		body string
		want wire.LockInfo
		bad  bool
	}{
		"empty":            {body: ""},
		"blank":            {body: " \n\t"},
		"no members":       {body: "{}"},
		"empty ID":         {body: `{"ID":""}`},
		"ID only":          {body: `{"ID":"a"}`, want: wire.LockInfo{ID: "a"}},
		"lower case":       {body: `{"id":"a","who":"ana"}`, want: wire.LockInfo{ID: "a", Who: "ana"}},
		"unknown members":  {body: `{"ID":"a","x":{"y":[1]}}`, want: wire.LockInfo{ID: "a"}},
		"good date":        {body: `{"ID":"a","Created":"2026-01-02T03:04:05.6Z"}`, want: wire.LockInfo{ID: "a", Created: "2026-01-02T03:04:05.6Z"}},
		"bad date":         {body: `{"ID":"a","Created":"yesterday"}`, want: wire.LockInfo{ID: "a"}},
		"null ID":          {body: `{"ID":null}`},
		"longest ID":       {body: `{"ID":"` + long + `"}`, want: wire.LockInfo{ID: long}},
		"longer ID":        {body: `{"ID":"` + long + `x"}`, bad: true},
		"unprintable ID":   {body: `{"ID":"a\u0007"}`, bad: true},
		"ID with newline":  {body: `{"ID":"a\nb"}`, bad: true},
		"number ID":        {body: `{"ID":5}`, bad: true},
		"object ID":        {body: `{"ID":{}}`, bad: true},
		"null":             {body: `null`, bad: true},
		"list":             {body: `[]`, bad: true},
		"string":           {body: `"a"`, bad: true},
		"text":             {body: `unlock it`, bad: true},
		"html":             {body: `<html>`, bad: true},
		"cut":              {body: `{"ID":"a"`, bad: true},
		"trailing garbage": {body: `{"ID":"a"}x`, bad: true},
		"two objects":      {body: `{"ID":"a"}{"ID":"b"}`, bad: true},
		"deep":             {body: `{"x":` + strings.Repeat("[", 20000), bad: true},
		"not UTF-8":        {body: "{\"ID\":\"\xff\xfe\"}", bad: true},
		"byte order mark":  {body: "\ufeff{}", bad: true},
	} {
		got, err := parseLockInfo([]byte(c.body))
		if c.bad {
			if !fault.Is(err, fault.LockInfoInvalid) {
				t.Errorf("%s: got %+v, %v, want lock_info_invalid", name, got, err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

func TestPrefersText(t *testing.T) {
	for accept, want := range map[string]bool{
		"":           false,
		"*/*":        false,
		"text/html":  false,
		"text/plain": true,
		"text/*":     false,
		"text/html,application/xhtml+xml,*/*;q=0.8": false,
		"text/plain;q=0.5, text/html;q=0.4":         true,
		"text/plain, text/html;q=0":                 true,
		"text/html;q=0.1, */*":                      true,
		"text/plain;q=x":                            false,
	} {
		if got := prefersText(accept); got != want {
			t.Errorf("prefersText(%q) = %v, want %v", accept, got, want)
		}
	}
}

func TestFresh(t *testing.T) {
	for header, want := range map[string]bool{
		``: false, `"a"`: true, `W/"a"`: true, `"b"`: false, `"b", "a"`: true, `*`: true, `a`: false,
	} {
		if got := fresh([]string{header}, `"a"`); got != want {
			t.Errorf("fresh(%q) = %v, want %v", header, got, want)
		}
	}
	if fresh(nil, `"a"`) {
		t.Error("a request without the header is fresh")
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "0": true, "app": true, "app.v1_x-y": true, "A": true, strings.Repeat("a", 128): true,
		"": false, ".": false, "..": false, "-a": false, "_a": false, ".a": false, "a/b": false, "a b": false, "a\n": false,
		"ä": false, "a%2Fb": false, "a\x00": false, strings.Repeat("a", 129): false,
	} {
		if got := validName(name); got != want {
			t.Errorf("validName(%q) = %v, want %v", name, got, want)
		}
	}
}
