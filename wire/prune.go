package wire

// PruneRequest asks to remove versions that an environment's keep_last and
// keep_days, and the folding of checkpoints, no longer keep.
type PruneRequest struct {
	State  string `json:"state,omitempty"` // only this one; empty for all of the environment
	DryRun bool   `json:"dry_run,omitempty"`
}

// PruneResult is what was removed, or with dry_run would be.
type PruneResult struct {
	DryRun   bool          `json:"dry_run"`
	KeepLast int64         `json:"keep_last"`
	KeepDays int64         `json:"keep_days"`
	Versions int64         `json:"versions"` // removed, of all states
	Bytes    int64         `json:"bytes"`    // stored bytes freed; the file reuses them and does not shrink
	States   []PrunedState `json:"states"`   // those of which something goes, or is held
}

// PrunedState is what becomes of one state.
type PrunedState struct {
	Name     string        `json:"name"`
	Versions int64         `json:"versions"` // removed
	Kept     int64         `json:"kept"`
	Oldest   uint64        `json:"oldest"` // version kept
	Bytes    int64         `json:"bytes"`
	Removed  []uint64      `json:"removed"` // version numbers, at most 1000
	Held     []HeldVersion `json:"held"`    // would go, but something needs them; at most 100
}

// HeldVersion is a version that something needs.
type HeldVersion struct {
	Version uint64 `json:"version"`
	By      string `json:"by"` // a sentence's end, such as "the tag good"
}

// PrunePath is the address of pruning in an environment.
func PrunePath(env string) string { return EnvironmentPath(env) + "/prune" }
