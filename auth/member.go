package auth

// MemberRole is a user's part in a workspace.
type MemberRole string

// The member roles. Owners and admins manage members, environments, tokens and
// grants; only owners manage owners.
const (
	Owner  MemberRole = "owner"
	Admin  MemberRole = "admin"
	Member MemberRole = "member"
)

var memberRank = map[MemberRole]int{Owner: 3, Admin: 2, Member: 1}

// Valid reports whether the role is one of the three.
func (r MemberRole) Valid() bool { return memberRank[r] > 0 }

// AtLeast reports whether the role includes all that other allows. No role is
// at least "".
func (r MemberRole) AtLeast(other MemberRole) bool {
	return memberRank[other] > 0 && memberRank[r] >= memberRank[other]
}

// MayAppoint reports whether a member with role r may turn somebody from one
// role into another; "" stands for no member, before or after.
func (r MemberRole) MayAppoint(from, to MemberRole) bool {
	if from == Owner || to == Owner {
		return r == Owner
	}
	return r.AtLeast(Admin)
}

// OwnerNeeded reports whether turning a member from one role into another would
// leave a workspace that has so many owners without one.
func OwnerNeeded(from, to MemberRole, owners int) bool {
	return from == Owner && to != Owner && owners <= 1
}
