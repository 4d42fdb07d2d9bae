package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/quota"
	"kl/wire"
)

// counted is what a state adds to the total of its environment: archived and
// deleted ones add nothing.
func (r *stateRec) counted() int64 {
	if r.Lifecycle != lifecycleActive {
		return 0
	}
	return r.Managed
}

// totalOf is the number of managed instances in an environment's active states.
func totalOf(tx *bbolt.Tx, env *environmentRec) (int64, error) {
	if env.Total != nil {
		return *env.Total, nil
	}
	return sumOf(tx, env.EnvPublicID)
}

// sumOf counts anew what environmentRec.Total keeps. Files written before there
// were totals have none until the next write.
func sumOf(tx *bbolt.Tx, env string) (sum int64, err error) {
	err = eachActive(tx, env, func(_ uint64, r *stateRec) error {
		sum += r.counted()
		return nil
	})
	return sum, err
}

// eachActive calls f for the active states of an environment.
func eachActive(tx *bbolt.Tx, env string, f func(sid uint64, r *stateRec) error) error {
	return eachKV(tx, bName, pair(env, ""), func(_, v []byte) (bool, error) {
		sid, err := sidOf(v)
		if err != nil {
			return false, err
		}
		r, ok, err := getRec[stateRec](tx, bState, v)
		if err == nil && ok && r.Lifecycle == lifecycleActive {
			err = f(sid, r)
		}
		return err == nil, err
	})
}

// addTotal keeps an environment's total. It must be called in every transaction
// in which what a state counts changes, after the state's record was put.
func (s *Store) addTotal(tx *bbolt.Tx, env string, delta int64) error {
	if delta == 0 {
		return nil
	}
	e, ok, err := s.envs.get(tx, bEnvironment, []byte(env))
	if err != nil || !ok {
		return err
	}
	var total int64
	if e.Total != nil {
		total = *e.Total + delta
	} else if total, err = sumOf(tx, env); err != nil { // it has the change already
		return err
	}
	e.Total = &total
	return s.envs.put(tx, bEnvironment, []byte(env), e)
}

// limitsOf are the limits that hold for a state: its own, or the environment's.
func limitsOf(env *environmentRec, r *stateRec) (state, bytes, history quota.Limits) {
	own := r.Limits
	if own == nil {
		own = &wire.StateLimits{}
	}
	return limits(own.SoftLimit, env.StateSoftLimit, own.HardLimit, env.StateHardLimit),
		limits(own.BytesSoftLimit, env.StateBytesSoftLimit, own.BytesHardLimit, env.StateBytesHardLimit),
		limits(own.HistoryBytesSoftLimit, env.HistoryBytesSoftLimit, own.HistoryBytesHardLimit, env.HistoryBytesHardLimit)
}

func limits(ownSoft *int64, soft int64, ownHard *int64, hard int64) quota.Limits {
	l := quota.Limits{Soft: soft, Hard: hard}
	if ownSoft != nil {
		l.Soft = *ownSoft
	}
	if ownHard != nil {
		l.Hard = *ownHard
	}
	return l
}

// ownLimits applies a patch to a state's own limits; nil when none are left.
// Code: parameter_invalid.
func ownLimits(old *wire.StateLimits, patch wire.StateLimits) (*wire.StateLimits, error) {
	var own wire.StateLimits
	if old != nil {
		own = *old
	}
	for name, f := range map[string]struct {
		from *int64
		to   **int64
	}{
		"soft_limit": {patch.SoftLimit, &own.SoftLimit}, "hard_limit": {patch.HardLimit, &own.HardLimit},
		"bytes_soft_limit": {patch.BytesSoftLimit, &own.BytesSoftLimit}, "bytes_hard_limit": {patch.BytesHardLimit, &own.BytesHardLimit},
		"history_bytes_soft_limit": {patch.HistoryBytesSoftLimit, &own.HistoryBytesSoftLimit}, "history_bytes_hard_limit": {patch.HistoryBytesHardLimit, &own.HistoryBytesHardLimit},
	} {
		switch {
		case f.from == nil:
		case *f.from == wire.InheritLimit:
			*f.to = nil
		case *f.from < 0:
			return nil, fault.New(fault.ParameterInvalid, "%s %d is negative", name, *f.from).
				WithNext("give a number, 0 for no limit, or %d for the environment's limit", wire.InheritLimit)
		default:
			*f.to = f.from
		}
	}
	if own == (wire.StateLimits{}) {
		return nil, nil
	}
	return &own, nil
}

// judgeQuota judges what a write leaves behind: the document that is to be
// stored, after merging. It changes nothing. The uses that come back are for
// noteQuota. Codes: state_quota, environment_quota, bytes_quota.
func (s *Store) judgeQuota(tx *bbolt.Tx, w *writing) (quota.Uses, error) {
	env, ok, err := s.envs.get(tx, bEnvironment, []byte(w.r.Ref.Environment))
	if err != nil || !ok {
		return nil, err
	}
	total, err := totalOf(tx, env)
	if err != nil {
		return nil, err
	}
	cur, now := w.cur, w.p.counts.managed
	state, bytes, history := limitsOf(env, cur)
	uses := quota.NewUses(
		quota.Use{Current: cur.Managed, Resulting: now, Limits: state},
		quota.Use{Current: total, Resulting: total - cur.counted() + now, Limits: quota.Limits{Soft: env.EnvironmentSoftLimit, Hard: env.EnvironmentHardLimit}},
		quota.Use{Current: cur.Bytes, Resulting: int64(w.p.body.Len()), Limits: bytes},
		quota.Use{Current: cur.StoredBytes, Resulting: cur.StoredBytes + w.p.storedBytes, Limits: history},
	)
	for _, u := range uses {
		if u.Use.Status() == quota.Hard {
			f := quotaFault(w.r.Ref, env, u.Dimension, u.Use).
				WithNext("ask who manages the environment for: %s; then bring in what was sent, which is kept: kl recover list --state %s",
					raise(w.r.Ref, cur, u.Dimension, u.Use.Resulting), w.r.Ref.Name)
			if u.Dimension == quota.State || u.Dimension == quota.Environment {
				err = noteReplacing(tx, w, f)
			}
			return nil, cmp.Or(err, error(f))
		}
	}
	return uses, nil
}

var quotaCodes = map[quota.Dimension]fault.Code{
	quota.State: fault.StateQuota, quota.Environment: fault.EnvironmentQuota, quota.Bytes: fault.BytesQuota, quota.HistoryBytes: fault.BytesQuota,
}

// quotaFault says that a hard limit would be exceeded.
func quotaFault(ref Ref, env *environmentRec, d quota.Dimension, u quota.Use) *fault.Error {
	f := fault.New(quotaCodes[d], "%s would have %s, %d above the hard limit of %d; now it has %d",
		holder(ref, env, d), held(d, u.Resulting), u.Resulting-u.Hard, u.Hard, u.Current)
	name := d
	if d == quota.HistoryBytes {
		name = quota.Bytes
		f.With("bytes_of", "history")
	}
	return f.With("dimension", string(name)).With("current_count", u.Current).With("resulting_count", u.Resulting).
		With("soft_limit", u.Soft).With("hard_limit", u.Hard)
}

// holder names what a limit is for.
func holder(ref Ref, env *environmentRec, d quota.Dimension) string {
	switch d {
	case quota.Environment:
		return "the environment " + cmp.Or(env.Slug, env.EnvPublicID)
	case quota.HistoryBytes:
		return "the history of the state " + ref.Name
	default:
		return "the state " + ref.Name
	}
}

// held puts a count into words.
func held(d quota.Dimension, n int64) string {
	switch {
	case d == quota.Bytes || d == quota.HistoryBytes:
		return fmt.Sprintf("%d bytes", n)
	case n == 1:
		return "1 resource instance"
	}
	return fmt.Sprintf("%d resource instances", n)
}

// warning is the sentence about a limit that is exceeded and not enforced. It
// stands in a header, so it has no line end.
func warning(ref Ref, env *environmentRec, d quota.Dimension, u quota.Use) string {
	which, limit := "soft", u.Soft
	if u.Hard > 0 && u.Resulting > u.Hard {
		which, limit = "hard", u.Hard
	}
	s := fmt.Sprintf("%s has %s, above the %s limit of %d", holder(ref, env, d), held(d, u.Resulting), which, limit)
	if which == "soft" && u.Hard > 0 {
		s += fmt.Sprintf(" (the hard limit is %d)", u.Hard)
	}
	return s
}

// noteReplacing says so when the write is one moment of a replacement: the
// session or run, in this write and those before, both creates and deletes instances of
// one resource, or has left a deposed object of what it creates. What it does
// next would make the state smaller again, but each checkpoint is judged by what
// it holds.
func noteReplacing(tx *bbolt.Tx, w *writing, f *fault.Error) error {
	cs := slices.Clone(w.p.changes)
	for n, i := w.cur.Head, 0; w.r.LockID+w.r.Run != "" && n != 0 && i < maxListed; i++ {
		v, err := getVersion(tx, w.sid, n)
		if err != nil {
			return err
		}
		if v.RunID != w.r.Run || v.RunID == "" && v.LockID != w.r.LockID {
			break
		}
		before, err := changesOf(tx, w.sid, v)
		if err != nil {
			return err
		}
		cs, n = append(cs, before...), v.Previous
	}
	resources := replacing(cs)
	if len(resources) == 0 {
		return nil
	}
	f.Detail += fmt.Sprintf("; this run both creates and deletes instances of %s%s, and for a time there are both",
		resources[0], andMore(len(resources)-1))
	f.With("replacing", resources[:min(len(resources), maxListed)])
	f.Next += "; apply again, and another time destroy first what goes, with -target"
	return nil
}

// replacing are the resources of which a change list both adds instances and
// removes some, or leaves a deposed object behind.
func replacing(cs []change) []string {
	added, gone := map[string]bool{}, map[string]bool{}
	for i := range cs {
		c := &cs[i]
		if c.class != classInstance || isData(c.address) {
			continue
		}
		deposed := strings.Contains(c.address, deposedMark)
		switch resource := ConfigAddress(c.address); {
		case c.op == opAdd && !deposed:
			added[resource] = true
		case c.op == opRemove && !deposed, c.op == opAdd:
			gone[resource] = true
		}
	}
	var out []string
	for r := range added {
		if gone[r] {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// noteQuota warns of what a stored write exceeds: the sentences are for its
// answer.
func (s *Store) noteQuota(tx *bbolt.Tx, w *writing, uses quota.Uses) error {
	warnings, err := s.noteUses(tx, w.r.Ref, w.r.Actor, uses, w.out.Version, w.out.Serial)
	w.out.Warnings = append(w.out.Warnings, warnings...)
	return err
}

// noteUses returns the sentences about the limits that are exceeded. There is an
// event when a count that is above a soft limit grows.
func (s *Store) noteUses(tx *bbolt.Tx, ref Ref, by Actor, uses quota.Uses, version, serial uint64) ([]string, error) {
	env, _, err := s.envs.get(tx, bEnvironment, []byte(ref.Environment))
	if err != nil {
		return nil, err
	}
	var warnings []string
	for _, u := range uses {
		if u.Use.Status() == quota.OK {
			continue
		}
		text := warning(ref, env, u.Dimension, u.Use)
		warnings = append(warnings, text)
		if u.Use.Resulting <= u.Use.Current {
			continue
		}
		err := s.event(tx, wire.Event{
			Kind: "quota_soft_exceeded", Class: string(fault.Quota), Principal: by.Display(), Environment: ref.Environment, State: ref.Name,
			Version: version, Serial: serial, RequestID: by.RequestID,
			Detail: map[string]any{
				"dimension": string(u.Dimension), "current_count": u.Use.Current, "resulting_count": u.Use.Resulting,
				"soft_limit": u.Use.Soft, "hard_limit": u.Use.Hard, "warning": text,
			},
		})
		if err != nil {
			return nil, err
		}
	}
	return warnings, nil
}

// roomFor refuses to bring back a state whose instances the environment has no
// room for. The uses that come back are for noteUses. Code: environment_quota.
func (s *Store) roomFor(tx *bbolt.Tx, ref Ref, more int64) (quota.Uses, error) {
	env, ok, err := s.envs.get(tx, bEnvironment, []byte(ref.Environment))
	if err != nil || !ok || more <= 0 {
		return nil, err
	}
	total, err := totalOf(tx, env)
	if err != nil {
		return nil, err
	}
	u := quota.Use{Current: total, Resulting: total + more, Limits: quota.Limits{Soft: env.EnvironmentSoftLimit, Hard: env.EnvironmentHardLimit}}
	if u.Status() != quota.Hard {
		return quota.NewUses(quota.Use{}, u, quota.Use{}, quota.Use{}), nil
	}
	return nil, quotaFault(ref, env, quota.Environment, u).
		WithNext("archive or delete another state first (kl state list), or raise the limit: kl quota set --environment-hard-limit %d", u.Resulting)
}

// Quota tells what a state and its environment hold, may hold, and will hold
// if they go on growing. A state that does not exist holds nothing. Codes:
// unknown_environment, state_name_invalid.
func (s *Store) Quota(ctx context.Context, ref Ref) (wire.Quota, error) {
	var out wire.Quota
	err := s.view(func(tx *bbolt.Tx) error {
		uses, sid, r, err := s.uses(tx, ref)
		if err != nil {
			return err
		}
		out = wireQuota(uses, r)
		return s.foresee(ctx, tx, ref, sid, r, uses, &out)
	})
	return out, err
}

// uses are those of a state as it is.
func (s *Store) uses(tx *bbolt.Tx, ref Ref) (quota.Uses, uint64, *stateRec, error) {
	if err := checkName(ref.Name); err != nil {
		return nil, 0, nil, err
	}
	env, ok, err := s.envs.get(tx, bEnvironment, []byte(ref.Environment))
	if err == nil && !ok {
		err = unknownEnvironment(ref.Environment)
	}
	if err != nil {
		return nil, 0, nil, err
	}
	sid, r, err := find(tx, ref)
	if fault.Is(err, fault.NotFound) {
		sid, r, err = 0, s.newState(ref), nil
	}
	if err != nil {
		return nil, 0, nil, err
	}
	total, err := totalOf(tx, env)
	as := func(n int64, l quota.Limits) quota.Use { return quota.Use{Current: n, Resulting: n, Limits: l} }
	state, bytes, history := limitsOf(env, r)
	return quota.NewUses(
		as(r.Managed, state), as(total, quota.Limits{Soft: env.EnvironmentSoftLimit, Hard: env.EnvironmentHardLimit}),
		as(r.Bytes, bytes), as(r.StoredBytes, history),
	), sid, r, err
}

func wireQuota(uses quota.Uses, r *stateRec) wire.Quota {
	q := wire.Quota{Opaque: r.Opaque}
	for i, to := range []*wire.QuotaUse{&q.State, &q.Environment, &q.Bytes, &q.HistoryBytes} {
		u := uses[i].Use
		*to = wire.QuotaUse{Current: u.Current, SoftLimit: u.Soft, HardLimit: u.Hard, RemainingSoft: remaining(u.Soft, u.Current), RemainingHard: remaining(u.Hard, u.Current)}
	}
	return q
}

func remaining(limit, n int64) *int64 {
	if limit == 0 {
		return nil
	}
	left := limit - n
	return &left
}

// raise is the command that makes room for n instances.
func raise(ref Ref, r *stateRec, d quota.Dimension, n int64) string {
	own := r.Limits
	if own == nil {
		own = &wire.StateLimits{}
	}
	flag := map[quota.Dimension]string{quota.State: "state-hard", quota.Environment: "environment-hard", quota.Bytes: "state-bytes-hard", quota.HistoryBytes: "history-bytes-hard"}[d]
	switch {
	case d == quota.State && own.HardLimit != nil:
		flag = ref.Name + " --hard"
	case d == quota.Bytes && own.BytesHardLimit != nil:
		flag = ref.Name + " --bytes-hard"
	case d == quota.HistoryBytes && own.HistoryBytesHardLimit != nil:
		flag = ref.Name + " --history-hard"
	default:
		flag = "--" + flag
	}
	return fmt.Sprintf("kl quota set %s-limit %d", flag, n)
}

// CheckQuota tells what a change of a state's count by delta would mean. peak
// is by how much it may grow at most meanwhile. Codes: unknown_environment,
// state_name_invalid, workspace_suspended, state_archived, state_deleted.
func (s *Store) CheckQuota(ctx context.Context, ref Ref, delta, peak int64) (wire.QuotaCheck, error) {
	out := wire.QuotaCheck{Delta: delta, Warnings: []string{}}
	err := s.view(func(tx *bbolt.Tx) error {
		uses, _, r, err := s.uses(tx, ref)
		if err != nil {
			return err
		}
		if err := cmp.Or(s.activeEnvironment(tx, ref.Environment), activeState(ref, r)); err != nil {
			return err
		}
		env, _, err := s.envs.get(tx, bEnvironment, []byte(ref.Environment))
		if err != nil {
			return err
		}
		out.Quota = wireQuota(uses, r)
		worst := quota.OK
		fit := max(delta, -r.Managed) // a state cannot lose more than it has
		for i, to := range []*wire.QuotaUse{&out.State, &out.Environment} {
			d, u := uses[i].Dimension, uses[i].Use
			u.Resulting = u.Current + fit
			to.Projected, to.Delta, to.Status = &u.Resulting, &fit, u.Status().String()
			worst = max(worst, u.Status())
			switch u.Status() {
			case quota.Hard:
				if out.Refusal == "" {
					f := quotaFault(ref, env, d, u)
					out.Refusal = f.Detail
					out.NextStep = "plan for less, destroy what is not needed, or ask who manages the environment to raise the limit: " + raise(ref, r, d, u.Resulting)
				}
			case quota.Soft:
				out.Warnings = append(out.Warnings, "afterwards "+warning(ref, env, d, u))
			case quota.OK:
			}
			top := u
			top.Resulting = u.Current + peak
			if u.Status() != quota.Hard && peak > delta && top.Status() == quota.Hard {
				out.Warnings = append(out.Warnings, fmt.Sprintf(
					"while the run creates before it destroys %s may have %s for a time, above the hard limit of %d: a checkpoint that is sent then is refused",
					holder(ref, env, d), held(d, top.Resulting), u.Hard))
			}
		}
		for _, u := range uses[2:] { // by how many bytes a plan adds is not known
			if u.Use.Hard > 0 && u.Use.Current >= u.Use.Hard && fit > 0 {
				out.Warnings = append(out.Warnings, fmt.Sprintf("%s has %s, and the hard limit is %d: a write that makes the state larger is refused",
					holder(ref, env, u.Dimension), held(u.Dimension, u.Use.Current), u.Use.Hard))
			}
		}
		out.Projected, out.Status = *out.State.Projected, worst.String()
		return ctx.Err()
	})
	return out, err
}
