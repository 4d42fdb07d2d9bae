package auth_test

import (
	"regexp"
	"strings"
	"testing"

	"kl/auth"
)

func TestSecrets(t *testing.T) {
	for _, k := range []auth.Kind{auth.Automation, auth.PAT, auth.Control} {
		s := auth.NewSecret(k)
		if !strings.HasPrefix(s, k.Prefix()) {
			t.Errorf("%s secret %q has not the prefix %q", k, s, k.Prefix())
		}
		if got, ok := auth.KindOf(s); !ok || got != k {
			t.Errorf("KindOf(new %s) = %q, %v", k, got, ok)
		}
		if s == auth.NewSecret(k) {
			t.Error("two secrets are equal")
		}
		for name, bad := range map[string]string{
			"cut":       s[:len(s)-1],
			"longer":    s + "a",
			"mistyped":  s[:20] + flip(s[20]) + s[21:],
			"uppercase": strings.ToUpper(s),
			"empty":     "",
			"prefix":    k.Prefix(),
			"kind swap": "kl_xxx_" + s[len(k.Prefix()):],
		} {
			if got, ok := auth.KindOf(bad); ok {
				t.Errorf("%s: KindOf(%q) = %q, want none", name, bad, got)
			}
		}
	}
	// the checksum covers the prefix: a PAT cannot be turned into a control token
	pat := auth.NewSecret(auth.PAT)
	if _, ok := auth.KindOf(auth.Control.Prefix() + strings.TrimPrefix(pat, auth.PAT.Prefix())); ok {
		t.Error("a secret is valid under another prefix")
	}
}

func flip(c byte) string {
	if c == 'a' {
		return "b"
	}
	return "a"
}

func TestIDs(t *testing.T) {
	if got := auth.NewID("ws_"); !regexp.MustCompile(`^ws_[a-z0-9]{12}$`).MatchString(got) {
		t.Errorf("NewID = %q", got)
	}
	if got := auth.NewRequestID(); !regexp.MustCompile(`^req_[0-9a-f]{16}$`).MatchString(got) {
		t.Errorf("NewRequestID = %q", got)
	}
}

func TestRoles(t *testing.T) {
	allowed := map[auth.Role][]auth.Action{
		auth.Outputs: {auth.ReadOutputs},
		auth.Read:    {auth.ReadOutputs, auth.ReadState},
		auth.Plan:    {auth.ReadOutputs, auth.ReadState, auth.LockForPlan},
		auth.Write:   {auth.ReadOutputs, auth.ReadState, auth.LockForPlan, auth.WriteState},
		"":           nil,
		"root":       nil,
	}
	for r, as := range allowed {
		for a := auth.ReadOutputs; a <= auth.WriteState; a++ {
			want := false
			for _, x := range as {
				want = want || x == a
			}
			if got := r.Allows(a); got != want {
				t.Errorf("%q allows %s: got %v, want %v", r, a, got, want)
			}
		}
		if r.Valid() != (as != nil) {
			t.Errorf("%q valid: %v", r, r.Valid())
		}
	}
}

func TestRedact(t *testing.T) {
	secret := auth.NewSecret(auth.PAT)
	for in, want := range map[string]string{
		"":                           "",
		"no token kl_env_x":          "no token kl_env_x",
		secret:                       "kl_pat_…",
		`the state "` + secret + `"`: `the state "kl_pat_…"`,
		secret[:40] + " " + secret:   "kl_pat_… kl_pat_…",
		secret + "x":                 "kl_pat_…",
		"kl_foo_" + secret[7:]:       "kl_foo_" + secret[7:],
	} {
		if got := auth.Redact(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
