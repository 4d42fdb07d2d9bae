package store

import (
	"time"

	"go.etcd.io/bbolt"

	"kl/wire"
)

// MomentRun is a run of a state, also one that has ended. Of the run's members
// those are set that its record holds.
type MomentRun struct {
	State *MomentState
	Run   wire.Run
}

// MomentReservation is an address that a live run has reserved.
type MomentReservation struct {
	State   *MomentState
	Run     string
	Mode    string // write, read
	Address string
	Since   time.Time
}

// runs copies a state's runs and what they have reserved.
func (m *Moment) runs(tx *bbolt.Tx, st *MomentState) error {
	err := m.s.eachRun(tx, st.sid, func(r *runRec) error {
		m.Runs = append(m.Runs, MomentRun{st, wire.Run{
			ID: r.ID, BaseVersion: r.Session.BaseVersion, Serial: r.Serial, Actor: r.Actor, Principal: r.Principal, Reason: r.Reason, Status: r.Status,
			CreatedAt: r.CreatedAt, ReservedAt: r.ReservedAt, LastActivity: r.Session.LastActivity, LeaseExpiresAt: r.LeaseEnds,
			Checkpoints: r.Session.Checkpoints, EndedAt: r.EndedAt, EndedBy: r.EndedBy, EndReason: r.EndReason,
		}})
		return nil
	})
	if err != nil {
		return err
	}
	return m.s.eachLive(tx, st.sid, func(r *runRec, res *reservationRec) error {
		if !r.holds() {
			return nil
		}
		for _, a := range res.Write {
			m.Reservations = append(m.Reservations, MomentReservation{st, r.ID, "write", a, res.Since})
		}
		for _, a := range res.Read {
			m.Reservations = append(m.Reservations, MomentReservation{st, r.ID, "read", a, res.Since})
		}
		return nil
	})
}
