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
	return m.s.eachRun(tx, st.sid, func(r *runRec) error {
		m.Runs = append(m.Runs, MomentRun{
			State: st, ID: r.ID, Actor: r.Actor, Principal: r.Principal, Reason: r.Reason, Status: r.Status, BaseVersion: r.Session.BaseVersion,
			CreatedAt: r.CreatedAt, LeaseExpiresAt: r.LeaseEnds, EndedAt: r.EndedAt, EndedBy: r.EndedBy, EndReason: r.EndReason, Checkpoints: r.Session.Checkpoints,
		})
		if !r.holds() {
			return nil
		}
		res, _, err := m.s.claims.get(tx, bReservation, runKey(st.sid, r.ID))
		if err != nil || res == nil {
			return err
		}
		for _, a := range res.Write {
			m.Reservations = append(m.Reservations, MomentReservation{State: st, Run: r.ID, Address: a, Mode: "write"})
		}
		for _, a := range res.Read {
			m.Reservations = append(m.Reservations, MomentReservation{State: st, Run: r.ID, Address: a, Mode: "read"})
		}
		return nil
	})
}
