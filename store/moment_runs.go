package store

import (
	"time"

	"go.etcd.io/bbolt"
)

// MomentRun is a run of a state.
type MomentRun struct {
	State                                *MomentState
	ID, Actor, Principal, Reason, Status string
	BaseVersion                          uint64
	CreatedAt, LeaseExpiresAt, EndedAt   time.Time
	EndedBy, EndReason                   string
	Checkpoints                          int64
}

// MomentReservation is an address that a run has reserved.
type MomentReservation struct {
	State        *MomentState
	Run, Address string
	Mode         string // read, write
}

// runs copies a state's runs and what they have reserved.
func (m *Moment) runs(tx *bbolt.Tx, st *MomentState) error {
	return nil
}
