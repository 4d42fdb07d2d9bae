package fault

// Code names one failure. Codes are part of the contract: they are never
// renamed, and each has a page at /errors/<code>.
type Code string

// Info describes a code for the problem document, its page and the docs.
type Info struct {
	Class  Class
	Status int    // HTTP status
	Title  string // the same words at each occurrence
	Reason string // member "reason" of the classes auth and scope, and "hold" of lifecycle
	Why    string // what has happened, for the code's page
	Next   string // default next step
}

// The codes.
const (
	CredentialsMissing Code = "credentials_missing"
	CredentialsInvalid Code = "credentials_invalid"
	CredentialsExpired Code = "credentials_expired"
	CredentialsRevoked Code = "credentials_revoked"
	NotMember          Code = "not_member"
	NoGrant            Code = "no_grant"
	RoleTooLow         Code = "role_too_low"

	WorkspaceMismatch  Code = "workspace_mismatch"
	UnknownEnvironment Code = "unknown_environment"
	UnknownRun         Code = "unknown_run"
	SlugNotID          Code = "slug_not_id"
	MalformedPath      Code = "malformed_path"

	Locked        Code = "locked"
	LockNotHeld   Code = "lock_not_held"
	LockRequired  Code = "lock_required"
	LockMismatch  Code = "lock_mismatch"
	LockAmbiguous Code = "lock_ambiguous"
	LockForeign   Code = "lock_foreign"
	RecoveryHold  Code = "recovery_hold"
	ClientTooNew  Code = "client_too_new"

	SerialConflict     Code = "serial_conflict"
	LineageConflict    Code = "lineage_conflict"
	OverlapConflict    Code = "overlap_conflict"
	DependencyConflict Code = "dependency_conflict"
	ReservedConflict   Code = "reservation_conflict"

	StateQuota       Code = "state_quota"
	EnvironmentQuota Code = "environment_quota"
	BytesQuota       Code = "bytes_quota"

	WorkspaceSuspended Code = "workspace_suspended"
	StateArchived      Code = "state_archived"
	StateDeleted       Code = "state_deleted"

	BodyInvalid      Code = "body_invalid"
	BodyIncomplete   Code = "body_incomplete"
	BodyDigest       Code = "body_digest_mismatch"
	BodyTooLarge     Code = "body_too_large"
	StateNameInvalid Code = "state_name_invalid"
	LockInfoInvalid  Code = "lock_info_invalid"
	ParameterInvalid Code = "parameter_invalid"
	NotFound         Code = "not_found"
	MethodNotAllowed Code = "method_not_allowed"
	QueryInvalid     Code = "query_invalid"
	QueryNotAllowed  Code = "query_not_allowed"
	QueryTimeout     Code = "query_timeout"
	QueryMemory      Code = "query_memory"
	QueryAnswer      Code = "query_answer_too_large"
	FileInvalid      Code = "file_invalid"
	StateOpaque      Code = "state_opaque"

	DiskFull     Code = "disk_full"
	ShuttingDown Code = "shutting_down"
	Busy         Code = "busy"
	FileInUse    Code = "file_in_use"
	Unreachable  Code = "unreachable"

	DataDamaged Code = "data_damaged"
	Internal    Code = "internal"
)

// Info returns the catalogue entry of a code; an unknown code is described as
// Internal.
func (c Code) Info() Info {
	if i, ok := catalogue[c]; ok {
		return i
	}
	return catalogue[Internal]
}

// Known reports whether the code is in the catalogue.
func (c Code) Known() bool { _, ok := catalogue[c]; return ok }

// Codes returns every code of the catalogue, in no particular order.
func Codes() []Code {
	out := make([]Code, 0, len(catalogue))
	for c := range catalogue {
		out = append(out, c)
	}
	return out
}

var catalogue = map[Code]Info{
	CredentialsMissing: {
		Auth, 401, "Credentials are missing", "missing",
		"The request carried neither HTTP Basic credentials nor a bearer token.",
		"set username (the workspace id) and password (a token) in the backend block, or TF_HTTP_USERNAME and TF_HTTP_PASSWORD",
	},
	CredentialsInvalid: {
		Auth, 401, "Credentials are not valid", "invalid",
		"The token is not one that this server has issued, or it is of a kind that is not valid on this address.",
		"check TF_HTTP_PASSWORD (or --token) for a cut or outdated token",
	},
	CredentialsExpired: {
		Auth, 401, "Credentials have expired", "expired",
		"The token was issued with an end date that has passed.",
		"ask the operator for a new token and set TF_HTTP_PASSWORD to it",
	},
	CredentialsRevoked: {
		Auth, 401, "Credentials were revoked", "revoked",
		"Somebody revoked this token.",
		"ask the operator for a new token and set TF_HTTP_PASSWORD to it",
	},
	NotMember: {
		Auth, 403, "Not a member of the workspace", "not_member",
		"The token's user is not, or no longer, a member of the workspace.",
		"ask an owner of the workspace: kl member add",
	},
	NoGrant: {
		Auth, 403, "No grant on the environment", "no_grant",
		"The token's user has no active grant on this environment.",
		"ask an admin of the workspace: kl grant add",
	},
	RoleTooLow: {
		Auth, 403, "The role does not allow this", "role",
		"The credentials are valid, but their role does not allow this request.",
		"use a token with a role that allows it",
	},

	WorkspaceMismatch: {
		Scope, 422, "The credentials belong to another workspace", "workspace_mismatch",
		"The workspace of the path, the user name of the credentials and the workspace of the token must be one and the same.",
		"print the right block with: kl backend STATE",
	},
	UnknownEnvironment: {
		Scope, 422, "The environment is not known here", "unknown_environment",
		"The path names an environment that does not exist, or that is not one of these credentials'.",
		"print the right block with: kl backend STATE",
	},
	UnknownRun: {
		Scope, 422, "The run is not known here", "unknown_run",
		"The path names a run that does not exist, that is forgotten since it ended, or that is of no state which these credentials may use.",
		"begin another run: kl apply --orchestrated",
	},
	SlugNotID: {
		Scope, 422, "A slug stands where an id belongs", "slug_not_id",
		"State paths use the workspace's id (ws_…) and the environment's public id (env_…), never their names.",
		"print the right block with: kl backend STATE",
	},
	MalformedPath: {
		Scope, 422, "The path is not a state's path", "malformed_path",
		"A state's path is /states/{workspace_id}/{env_public_id}/{state_name}.",
		"print the right block with: kl backend STATE",
	},

	Locked: {
		Lock, 423, "The state is locked", "",
		"Somebody else holds the lock, or waits for it in front of this request.",
		"wait with -lock-timeout=5m, or look with: kl lock show STATE",
	},
	LockNotHeld: {
		Lock, 409, "The lock is not held", "",
		"The request names a lock that does not hold this state: it was released, or forced open, or never taken.",
		"look at the state's lock with: kl lock show STATE; the bytes sent are kept: kl recover list",
	},
	LockRequired: {
		Lock, 409, "The state is locked by somebody else", "",
		"A write without a lock was refused because somebody holds the lock.",
		"run again without -lock=false",
	},
	LockMismatch: {
		Lock, 409, "Another lock is held", "",
		"The lock to be released is not the one that is held.",
		"see the holder with: kl lock show STATE",
	},
	LockAmbiguous: {
		Lock, 409, "Several locks are held", "",
		"A release without a lock ID is only possible when exactly one lock is held.",
		"kl lock release STATE --id ID",
	},
	LockForeign: {
		Lock, 409, "The lock belongs to another credential", "",
		"A lock can be used and released only by the credential that took it.",
		"see the holder with: kl lock show STATE; force it open with: kl lock release STATE --id ID",
	},
	RecoveryHold: {
		Lock, 423, "A refused write waits for recovery", "",
		"An earlier write of these credentials was refused. It tells of objects that exist but are not in the state; a new apply would create them again.",
		"kl recover list --state STATE",
	},
	ClientTooNew: {
		Lock, 423, "The Terraform version is too new for this environment", "",
		"The environment sets max_terraform_version, so that older clients can go on reading its states.",
		"use an older version, or raise max_terraform_version with: kl env set",
	},

	SerialConflict: {
		Conflict, 409, "The serial does not follow the state's", "serial",
		"The state has moved on since it was read for this write.",
		"plan again; if objects were created, see: kl recover list --state STATE",
	},
	LineageConflict: {
		Conflict, 409, "The lineage is another state's", "lineage",
		"The document belongs to another state than the one stored under this name.",
		"check the address; to replace the state on purpose: kl state allow STATE --lineage",
	},
	OverlapConflict: {
		Conflict, 409, "Others changed the same addresses", "overlap",
		"This write and writes accepted since its base change the same resource instances differently.",
		"kl recover list --state STATE, then plan again",
	},
	DependencyConflict: {
		Conflict, 409, "Others deleted what this depends on", "dependency",
		"This write creates or changes instances that depend on resources which others have deleted since its base.",
		"kl recover list --state STATE, then plan again",
	},
	ReservedConflict: {
		Conflict, 409, "The addresses are reserved by a run", "reservation",
		"A run has reserved addresses that this write changes.",
		"kl runs --state STATE",
	},

	StateQuota: {
		Quota, 403, "The state's hard limit would be exceeded", "",
		"The write would leave more managed instances in the state than its hard limit allows.",
		"kl quota remaining",
	},
	EnvironmentQuota: {
		Quota, 403, "The environment's hard limit would be exceeded", "",
		"The write would leave more managed instances in the environment than its hard limit allows.",
		"kl quota remaining",
	},
	BytesQuota: {
		Quota, 403, "The size limit would be exceeded", "",
		"The write would store more bytes than the limit allows.",
		"kl quota remaining",
	},

	WorkspaceSuspended: {
		Lifecycle, 403, "The workspace is suspended", "workspace_suspended",
		"An operator holds this workspace: its states can be read but not written.",
		"ask the operator: kl workspace resume",
	},
	StateArchived: {
		Lifecycle, 403, "The state is archived", "state_archived",
		"An archived state can be read but not written.",
		"kl state restore STATE",
	},
	StateDeleted: {
		Lifecycle, 403, "The state is in the trash", "state_deleted",
		"The state was deleted and can still be restored. Its name is free again after a purge.",
		"bring it back with: kl state restore STATE; or free the name with: kl state purge STATE",
	},

	BodyInvalid: {
		Invalid, 400, "The document is not a state", "",
		"The body is not what this address takes.",
		"check what was sent",
	},
	BodyIncomplete: {
		Invalid, 400, "The body was cut short", "",
		"Fewer bytes arrived than Content-Length announced. Nothing was stored.",
		"send it again",
	},
	BodyDigest: {
		Invalid, 400, "The body does not match its Content-MD5", "",
		"The bytes that arrived are not the bytes that were sent. Nothing was stored.",
		"send it again",
	},
	BodyTooLarge: {
		Invalid, 413, "The body is too large", "",
		"The body exceeds the server's limit.",
		"raise the limit with: kl serve --max-body",
	},
	StateNameInvalid: {
		Invalid, 400, "The state's name is not valid", "",
		"A state's name has 1 to 128 letters, digits, dots, dashes and underscores, and begins with a letter or a digit.",
		"choose another name",
	},
	LockInfoInvalid: {
		Invalid, 400, "The lock information is not valid", "",
		"The body of a LOCK or UNLOCK is a JSON object with at least an ID.",
		"send the LockInfo as Terraform does",
	},
	ParameterInvalid: {
		Invalid, 400, "A parameter is not valid", "",
		"A query parameter or a member of the body is not what this address takes.",
		"see /v1/openapi.json or kl help",
	},
	NotFound: {
		Invalid, 404, "There is no such thing", "",
		"Nothing exists under this name, or these credentials may not know of it.",
		"list what exists with: kl state list",
	},
	MethodNotAllowed: {
		Invalid, 405, "The method is not known here", "",
		"This address does not know the request's method.",
		"see /v1/openapi.json",
	},
	QueryInvalid: {
		Invalid, 400, "The SQL is not valid", "",
		"The statement cannot be understood or evaluated; where the place is known, line and column name it.",
		"the tables and their columns: kl query --schema",
	},
	QueryNotAllowed: {
		Invalid, 400, "The SQL does what a query may not", "",
		"A query is a single statement that reads the documented tables, with the functions that are allowed.",
		"ask with a single SELECT over the tables that this lists: kl query --schema",
	},
	QueryTimeout: {
		Invalid, 413, "The query takes too long", "",
		"The statement was stopped at the server's limit of time.",
		"name a state, an address or a type in WHERE, and join on columns that are found quickly: kl query --schema",
	},
	QueryMemory: {
		Invalid, 413, "The query needs too much memory", "",
		"Sorting, grouping or gathering values needs more memory than a statement may have, or one value is too long.",
		"name the columns instead of *, and filter with WHERE",
	},
	QueryAnswer: {
		Invalid, 413, "The answer is too large", "",
		"The values of the answer together are larger than an answer may be.",
		"ask for fewer rows or columns",
	},
	FileInvalid: {
		Invalid, 400, "The data file is not valid", "",
		"The file is no kl data file, is of a newer format, or is damaged.",
		"kl check --data FILE",
	},
	StateOpaque: {
		Invalid, 400, "The document cannot be looked into", "",
		"The document is encrypted, or of another form than Terraform's version 4. It is kept, served and rolled back byte for byte, but not read.",
		"use its bytes: kl state pull STATE --version N",
	},

	DiskFull: {
		Unavailable, 503, "The disk is full", "",
		"The data file could not grow. Nothing was stored; reads go on.",
		"free space on the server's disk",
	},
	ShuttingDown: {
		Unavailable, 503, "The server is stopping", "",
		"The server finishes what it has begun and takes nothing new.",
		"try again in a moment",
	},
	Busy: {
		Unavailable, 503, "The server is busy", "",
		"Too much is being received at once.",
		"try again in a moment",
	},
	FileInUse: {
		Unavailable, 503, "The data file is in use", "",
		"Another process has the file open.",
		"stop the other process, or talk to it over HTTP",
	},
	Unreachable: {
		Unavailable, 503, "The server cannot be reached", "",
		"No answer came from the server's address.",
		"check --address (KL_ADDRESS) and that kl serve is running",
	},

	DataDamaged: {
		Unknown, 500, "A part of the data file is damaged", "",
		"What is stored is not what was written: the disk has changed it. Nothing of it is served; what is whole goes on being served.",
		"tell the operator: stop the server, see what is whole with kl check --data FILE, and restore a backup",
	},
	Internal: {
		Unknown, 500, "Internal error", "",
		"Something went wrong that should not. The server's log has the details under the request id.",
		"look for the request id in the server's log",
	},
}
