package query

import "kl/store"

var runTable = table(Table{Name: "runs", About: "runs, those that ended lately too", parts: store.PartRuns}, append(stateColumns(func(r *store.MomentRun) *store.MomentState { return r.State }), []col[store.MomentRun]{
	text("run_id", "of the run", func(r *store.MomentRun) string { return r.Run.ID }),
	text("status", "planning, reserved, applying, finished, failed, aborted or expired", func(r *store.MomentRun) string { return r.Run.Status }),
	text("actor", "who runs it", func(r *store.MomentRun) string { return r.Run.Actor }),
	text("principal", "whose credentials began it", func(r *store.MomentRun) string { return r.Run.Principal }),
	orNull("reason", "what for", func(r *store.MomentRun) string { return r.Run.Reason }),
	value("base_version", "INTEGER", "version that it has seen last", func(r *store.MomentRun) any { return r.Run.BaseVersion }),
	value("checkpoints", "INTEGER", "writes accepted so far", func(r *store.MomentRun) any { return r.Run.Checkpoints }),
	value("created_at", "TEXT", "time", func(r *store.MomentRun) any { return r.Run.CreatedAt }),
	value("reserved_at", "TEXT", "time, NULL before", func(r *store.MomentRun) any { return r.Run.ReservedAt }),
	value("last_activity", "TEXT", "time of its last request", func(r *store.MomentRun) any { return r.Run.LastActivity }),
	value("lease_expires_at", "TEXT", "time at which it expires unless it is renewed", func(r *store.MomentRun) any { return r.Run.LeaseExpiresAt }),
	value("ended_at", "TEXT", "time, NULL while it goes on", func(r *store.MomentRun) any { return r.Run.EndedAt }),
	orNull("ended_by", "who ended it", func(r *store.MomentRun) string { return r.Run.EndedBy }),
	orNull("end_reason", "why", func(r *store.MomentRun) string { return r.Run.EndReason }),
}...), func(s *statement, f filter) (pull[store.MomentRun], error) {
	return &listed[store.MomentRun]{s.moment.Runs, func(r *store.MomentRun) bool { return f.state(r.State) }}, nil
})

var reservationTable = table(Table{Name: "reservations", About: "what live runs have reserved", parts: store.PartRuns}, append(stateColumns(func(r *store.MomentReservation) *store.MomentState { return r.State }), []col[store.MomentReservation]{
	text("run_id", "of the run", func(r *store.MomentReservation) string { return r.Run }),
	text("mode", "read or write", func(r *store.MomentReservation) string { return r.Mode }),
	text("address", "of an instance, a whole resource or a whole module", func(r *store.MomentReservation) string { return r.Address }),
	value("since", "TEXT", "time", func(r *store.MomentReservation) any { return r.Since }),
}...), func(s *statement, f filter) (pull[store.MomentReservation], error) {
	return &listed[store.MomentReservation]{s.moment.Reservations, func(r *store.MomentReservation) bool { return f.state(r.State) }}, nil
})
