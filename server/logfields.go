package server

// Names of log fields. The log line of a request is part of the contract.
const (
	fieldMethod        = "method"
	fieldRoute         = "route"
	fieldStatus        = "status"
	fieldDuration      = "duration" // milliseconds
	fieldBytes         = "bytes"    // of the answer
	fieldBodyBytes     = "body_bytes"
	fieldRequestID     = "request_id"
	fieldPrincipalKind = "principal_kind"
	fieldPrincipalID   = "principal_id"
	fieldPrincipalName = "principal_name"
	fieldWorkspace     = "workspace"
	fieldEnvironment   = "environment"
	fieldState         = "state"
	fieldLockID        = "lock_id"
	fieldRunID         = "run_id"
	fieldClass         = "class"
	fieldCode          = "code"
	fieldLatestSerial  = "latest_serial"
	fieldNextStep      = "next_step"             // of a conflict
	fieldAddresses     = "conflicting_addresses" // of a conflict, the first ten
	fieldAddressCount  = "conflicting_count"     // how many there are
	fieldError         = "error"
	fieldStack         = "stack"
	fieldPath          = "path"
)

// maxLoggedAddresses bounds the addresses in a line; the refusal has more.
const maxLoggedAddresses = 10
