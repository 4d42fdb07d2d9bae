package auth_test

import (
	"testing"

	"pgregory.net/rapid"

	"kl/auth"
	"kl/fault"
)

const (
	wsA, wsB   = "ws_a", "ws_b"
	envA, envB = "env_a", "env_b"
)

func TestDecide(t *testing.T) {
	here := auth.Facts{PathWorkspace: wsA, Environment: envA, Workspace: wsA, UserActive: true, Member: auth.Member, Grant: auth.Plan}
	with := func(f func(*auth.Facts)) auth.Facts {
		x := here
		f(&x)
		return x
	}
	automation := auth.Principal{Kind: auth.Automation, Workspace: wsA, Environment: envA, Role: auth.Plan}
	pat := auth.Principal{Kind: auth.PAT, User: "usr_1"}
	control := auth.Principal{Kind: auth.Control, User: "usr_1"}
	operator := auth.Principal{Kind: auth.Control, Operator: true}
	for name, tc := range map[string]struct {
		p    auth.Principal
		f    auth.Facts
		a    auth.Action
		role auth.Role
		code fault.Code
	}{
		"automation":                        {automation, here, auth.LockForPlan, auth.Plan, ""},
		"automation, beyond its role":       {automation, here, auth.WriteState, "", fault.RoleTooLow},
		"automation, other workspace":       {automation, with(func(f *auth.Facts) { f.PathWorkspace = wsB }), auth.ReadState, "", fault.WorkspaceMismatch},
		"automation, other environment":     {automation, with(func(f *auth.Facts) { f.Environment = envB }), auth.ReadState, "", fault.UnknownEnvironment},
		"PAT with a grant":                  {pat, here, auth.LockForPlan, auth.Plan, ""},
		"PAT, beyond its grant":             {pat, here, auth.WriteState, "", fault.RoleTooLow},
		"PAT without a grant":               {pat, with(func(f *auth.Facts) { f.Grant = "" }), auth.ReadOutputs, "", fault.NoGrant},
		"PAT of an owner without a grant":   {pat, with(func(f *auth.Facts) { f.Grant, f.Member = "", auth.Owner }), auth.ReadOutputs, "", fault.NoGrant},
		"PAT, no member":                    {pat, with(func(f *auth.Facts) { f.Member = "" }), auth.ReadState, "", fault.NotMember},
		"PAT, unknown workspace":            {pat, with(func(f *auth.Facts) { f.PathWorkspace, f.Member = wsB, "" }), auth.ReadState, "", fault.NotMember},
		"PAT, environment of another":       {pat, with(func(f *auth.Facts) { f.Workspace = wsB }), auth.ReadState, "", fault.UnknownEnvironment},
		"PAT, environment that is not":      {pat, with(func(f *auth.Facts) { f.Workspace = "" }), auth.ReadState, "", fault.UnknownEnvironment},
		"PAT, no workspace named, foreign":  {pat, with(func(f *auth.Facts) { f.PathWorkspace, f.Member = "", "" }), auth.ReadState, "", fault.UnknownEnvironment},
		"PAT, no workspace named":           {pat, with(func(f *auth.Facts) { f.PathWorkspace = "" }), auth.ReadState, auth.Plan, ""},
		"PAT of a deleted user":             {pat, with(func(f *auth.Facts) { f.UserActive = false }), auth.ReadState, "", fault.CredentialsRevoked},
		"control, member with a grant":      {control, with(func(f *auth.Facts) { f.PathWorkspace = "" }), auth.ReadState, auth.Plan, ""},
		"control, member without":           {control, with(func(f *auth.Facts) { f.PathWorkspace, f.Grant = "", "" }), auth.ReadState, "", fault.NoGrant},
		"control, admin":                    {control, with(func(f *auth.Facts) { f.Member, f.Grant = auth.Admin, "" }), auth.WriteState, auth.Write, ""},
		"control, foreign":                  {control, with(func(f *auth.Facts) { f.PathWorkspace, f.Member = "", "" }), auth.ReadState, "", fault.UnknownEnvironment},
		"operator":                          {operator, auth.Facts{Environment: envA, Workspace: wsA}, auth.WriteState, auth.Write, ""},
		"operator, unknown environment":     {operator, auth.Facts{Environment: envB}, auth.ReadState, "", fault.UnknownEnvironment},
		"operator, other workspace's":       {operator, auth.Facts{PathWorkspace: wsB, Environment: envA, Workspace: wsA}, auth.ReadState, "", fault.UnknownEnvironment},
		"nobody":                            {auth.Principal{}, here, auth.ReadOutputs, "", fault.RoleTooLow},
		"PAT that claims to be an operator": {auth.Principal{Kind: auth.PAT, User: "usr_1", Operator: true}, with(func(f *auth.Facts) { f.Grant = "" }), auth.ReadOutputs, "", fault.NoGrant},
		"control token of nobody":           {auth.Principal{Kind: auth.Control}, here, auth.ReadOutputs, "", fault.RoleTooLow},
	} {
		role, code := auth.Decide(tc.p, tc.f, tc.a)
		if role != tc.role || code != tc.code {
			t.Errorf("%s: got %q %q, want %q %q", name, role, code, tc.role, tc.code)
		}
	}
}

// TestDecideHidesWhatIsForeign holds that an answer does not depend on whether
// what the caller has no part in exists.
func TestDecideHidesWhatIsForeign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := auth.Principal{Kind: rapid.SampledFrom([]auth.Kind{auth.Automation, auth.PAT, auth.Control}).Draw(t, "kind")}
		if p.Kind == auth.Automation {
			p.Workspace, p.Environment, p.Role = wsA, envA, auth.Write
		} else {
			p.User = "usr_1"
		}
		f := auth.Facts{
			PathWorkspace: rapid.SampledFrom([]string{"", wsA, wsB}).Draw(t, "path"), Environment: envB, UserActive: true,
			Member: rapid.SampledFrom([]auth.MemberRole{"", auth.Member, auth.Owner}).Draw(t, "member"),
		}
		if f.PathWorkspace != wsA {
			f.Member = "" // the caller is a member of A only, and the environment is not in it
		}
		a := auth.Action(rapid.IntRange(int(auth.ReadOutputs), int(auth.WriteState)).Draw(t, "action"))
		foreign, missing := f, f
		foreign.Workspace = wsB
		_, got := auth.Decide(p, foreign, a)
		_, want := auth.Decide(p, missing, a)
		if got != want || got == "" {
			t.Fatalf("foreign: %q, missing: %q (%+v)", got, want, f)
		}
	})
}

func TestMemberRoles(t *testing.T) {
	roles := []auth.MemberRole{auth.Owner, auth.Admin, auth.Member, ""}
	for _, by := range roles {
		for _, from := range roles {
			for _, to := range roles {
				want := by == auth.Owner || by == auth.Admin && from != auth.Owner && to != auth.Owner
				if got := by.MayAppoint(from, to); got != want {
					t.Errorf("%q may turn %q into %q: got %v, want %v", by, from, to, got, want)
				}
				for owners := 1; owners <= 2; owners++ {
					want := from == auth.Owner && to != auth.Owner && owners == 1
					if got := auth.OwnerNeeded(from, to, owners); got != want {
						t.Errorf("one of %d owners from %q to %q: got %v, want %v", owners, from, to, got, want)
					}
				}
			}
		}
	}
	if auth.Owner.AtLeast("") || auth.MemberRole("").AtLeast(auth.Member) || auth.MemberRole("root").Valid() || !auth.Owner.Valid() {
		t.Error("no role counts as one")
	}
}
