package wire

import (
	"encoding/json"
	"time"
)

// HeaderQuotaWarning is on the answer to a write that was stored and left a
// count above a soft limit: a sentence for each, with semicolons between them.
const HeaderQuotaWarning = "KL-Quota-Warning"

// ByteLimits are an environment's limits on each of its states' bytes; 0: none.
type ByteLimits struct {
	StateBytesSoftLimit   int64 `json:"state_bytes_soft_limit"` // of the newest version
	StateBytesHardLimit   int64 `json:"state_bytes_hard_limit"`
	HistoryBytesSoftLimit int64 `json:"history_bytes_soft_limit"` // of all kept versions, as they are stored
	HistoryBytesHardLimit int64 `json:"history_bytes_hard_limit"`
}

// LimitsPatch changes limits of an environment; nil members stay, 0 is no
// limit.
type LimitsPatch struct {
	StateSoftLimit        *int64 `json:"state_soft_limit,omitempty"`
	StateHardLimit        *int64 `json:"state_hard_limit,omitempty"`
	EnvironmentSoftLimit  *int64 `json:"environment_soft_limit,omitempty"`
	EnvironmentHardLimit  *int64 `json:"environment_hard_limit,omitempty"`
	StateBytesSoftLimit   *int64 `json:"state_bytes_soft_limit,omitempty"`
	StateBytesHardLimit   *int64 `json:"state_bytes_hard_limit,omitempty"`
	HistoryBytesSoftLimit *int64 `json:"history_bytes_soft_limit,omitempty"`
	HistoryBytesHardLimit *int64 `json:"history_bytes_hard_limit,omitempty"`
}

// InheritLimit as a value of StateLimits gives a limit back to the environment.
const InheritLimit = -1

// StateLimits are a state's own limits, which count instead of its
// environment's; nil members are the environment's. In a patch nil members
// stay, 0 is no limit, and InheritLimit is the environment's.
type StateLimits struct {
	SoftLimit             *int64 `json:"soft_limit,omitempty"` // managed instances
	HardLimit             *int64 `json:"hard_limit,omitempty"`
	BytesSoftLimit        *int64 `json:"bytes_soft_limit,omitempty"`
	BytesHardLimit        *int64 `json:"bytes_hard_limit,omitempty"`
	HistoryBytesSoftLimit *int64 `json:"history_bytes_soft_limit,omitempty"`
	HistoryBytesHardLimit *int64 `json:"history_bytes_hard_limit,omitempty"`
}

// QuotaUse is a count and its limits.
type QuotaUse struct {
	Current   int64 `json:"current"`
	SoftLimit int64 `json:"soft_limit"` // 0: none
	HardLimit int64 `json:"hard_limit"` // 0: none
	// RemainingSoft and RemainingHard are what may still be added; null without
	// that limit, negative above it.
	RemainingSoft *int64 `json:"remaining_soft"`
	RemainingHard *int64 `json:"remaining_hard"`
	// Projected, Delta and Status are there when something was checked. No Delta
	// takes away more than there is.
	Projected *int64    `json:"projected,omitempty"`
	Delta     *int64    `json:"delta,omitempty"`
	Status    string    `json:"status,omitempty"` // ok, soft, hard
	Forecast  *Forecast `json:"forecast,omitempty"`
}

// Forecast is how a count has grown, and when it would meet its limits if that
// went on.
type Forecast struct {
	Since    time.Time `json:"since"`   // up to 30 days back
	Growth   int64     `json:"growth"`  // from then to now
	PerDay   float64   `json:"per_day"` // 0 when there is less than a day of history
	TooShort bool      `json:"too_short,omitempty"`
	SoftAt   time.Time `json:"soft_at,omitzero"` // absent: not in sight
	HardAt   time.Time `json:"hard_at,omitzero"`
}

// Quota is what a state and its environment hold and may hold. The state need
// not exist: then it holds nothing.
type Quota struct {
	State        QuotaUse `json:"state"`         // managed instances of the state
	Environment  QuotaUse `json:"environment"`   // of all active states of its environment
	Bytes        QuotaUse `json:"bytes"`         // of the state's newest version
	HistoryBytes QuotaUse `json:"history_bytes"` // of its kept versions, as they are stored
	// Opaque says that the state cannot be looked into, so that its instances
	// are not counted.
	Opaque bool `json:"opaque,omitempty"`
}

// QuotaCheck tells what a change would mean for the counts of managed
// instances.
type QuotaCheck struct {
	Quota
	Delta     int64  `json:"delta"`
	Projected int64  `json:"projected"` // of the state
	Status    string `json:"status"`    // the worse of state and environment: ok, soft, hard
	// Warnings are sentences: soft limits that would be exceeded, and hard ones
	// that a run may exceed for a moment, when it creates before it destroys.
	Warnings []string `json:"warnings"`
	// Refusal is the sentence with which the write would be refused, with
	// status hard.
	Refusal  string `json:"refusal,omitempty"`
	NextStep string `json:"next_step,omitempty"`
}

// QuotaQuestion asks what a change would mean: a number of instances, or a plan
// as terraform show -json prints it.
type QuotaQuestion struct {
	Delta *int64 `json:"delta,omitempty"`
	// Peak is by how many instances the state may grow at most meanwhile; it
	// goes with Delta and may be left out.
	Peak *int64          `json:"peak,omitempty"`
	Plan json.RawMessage `json:"plan,omitempty"`
}
