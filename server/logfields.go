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
	fieldClass         = "class"
	fieldCode          = "code"
	fieldLatestSerial  = "latest_serial"
	fieldError         = "error"
	fieldStack         = "stack"
	fieldPath          = "path"
)
