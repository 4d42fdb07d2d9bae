package auth

import "kl/fault"

// Facts are what is known, at one moment, of a caller's part in an environment.
type Facts struct {
	PathWorkspace string     // that the path or the user name names; "" for none
	Environment   string     // that is asked for
	Workspace     string     // that the environment is in; "" when there is no such environment
	UserActive    bool       // PAT and control: the token's user exists still
	Member        MemberRole // of the user in PathWorkspace, or in Workspace when no other is named; "" for none
	Grant         Role       // of the user on the environment, if active; "" for none
}

// Decide says with which role p acts on an environment, or why it may not do a
// there: then the code is one of credentials_revoked, workspace_mismatch,
// unknown_environment, not_member, no_grant and role_too_low, and else "". What
// p has no part in is answered like what does not exist.
func Decide(p Principal, f Facts, a Action) (Role, fault.Code) {
	var role Role
	switch {
	case p.Kind == Automation:
		if f.PathWorkspace != "" && f.PathWorkspace != p.Workspace {
			return "", fault.WorkspaceMismatch
		}
		if f.Environment != p.Environment {
			return "", fault.UnknownEnvironment
		}
		role = p.Role
	case p.Kind == Control && p.Operator:
		if !f.inPlace() {
			return "", fault.UnknownEnvironment
		}
		role = Write
	case p.Kind != PAT && p.Kind != Control || p.User == "":
		return "", fault.RoleTooLow
	case !f.UserActive:
		return "", fault.CredentialsRevoked
	case f.PathWorkspace != "" && f.Member == "":
		return "", fault.NotMember
	case !f.inPlace(), f.Member == "":
		return "", fault.UnknownEnvironment
	case p.Kind == Control && f.Member.AtLeast(Admin):
		role = Write // who issues tokens and grants could take any role
	case f.Grant == "":
		return "", fault.NoGrant
	default:
		role = f.Grant
	}
	if !role.Allows(a) {
		return "", fault.RoleTooLow
	}
	return role, ""
}

// inPlace reports whether the environment exists in the workspace that is
// named.
func (f Facts) inPlace() bool {
	return f.Workspace != "" && (f.PathWorkspace == "" || f.PathWorkspace == f.Workspace)
}
