package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// CheckReport is what Check found.
type CheckReport struct {
	States   int      `json:"states"`
	Versions int      `json:"versions"`
	Chunks   int      `json:"chunks"`
	Bytes    int64    `json:"bytes"`    // of all versions, decoded
	Problems []string `json:"problems"` // sentences, at most maxProblems
	Whole    []string `json:"whole"`    // states of which all is right, as environment/name
	Damaged  []string `json:"damaged"`  // the others
}

const maxProblems = 1000

// problem notes what is wrong.
func (r *CheckReport) problem(format string, args ...any) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Check verifies the file: its structure, that every version has the bytes that
// were written, and every invariant of ARCHITECTURE.md. progress is called as it
// goes on, in versions. What is wrong is in the report, and which states are
// whole all the same; the error says only that the check could not be made. Each
// state is seen as of one moment, and others may write meanwhile, but for the
// time that bbolt's check takes.
func (s *Store) Check(ctx context.Context, progress func(done, total int)) (CheckReport, error) {
	r := CheckReport{Problems: []string{}, Whole: []string{}, Damaged: []string{}}
	if err := s.structure(&r); err != nil {
		return r, err
	}
	if s.damage != nil && s.damage.fatal {
		return r, nil
	}
	var sids []uint64
	total, done := 0, 0
	r.unless(s.view(func(tx *bbolt.Tx) error { s.checkAccounts(tx, &r); return nil }))
	r.unless(s.view(func(tx *bbolt.Tx) error {
		return eachKV(tx, bState, nil, func(k, v []byte) (bool, error) {
			sid, err := sidOf(k)
			sids = append(sids, sid)
			var n struct{ Versions int }
			if json.Unmarshal(v, &n) == nil { // what is wrong with it is found below
				total += n.Versions
			}
			return true, err
		})
	}))
	step := func() {
		if done++; progress != nil {
			progress(min(done, total), total)
		}
	}
	for _, sid := range sids {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		before := len(r.Problems)
		c := &stateCheck{s: s, sid: sid, report: &r, step: step}
		err := s.view(func(tx *bbolt.Tx) error {
			c.tx = tx
			return c.run(ctx)
		})
		switch {
		case ctx.Err() != nil:
			return r, ctx.Err()
		case err != nil:
			c.name = cmp.Or(c.name, fmt.Sprintf("number %d", sid))
			c.problem("it cannot be read: %v", err)
		}
		switch {
		case c.name == "": // gone since
		case len(r.Problems) > before:
			r.Damaged = append(r.Damaged, c.name)
		default:
			r.Whole = append(r.Whole, c.name)
		}
	}
	return r, nil
}

// unless notes a failure to read the file.
func (r *CheckReport) unless(err error) {
	if err != nil {
		r.problem("the file cannot be read to its end: %v", err)
	}
}

// structure lets bbolt verify its pages. Its check compares with the list of
// free pages, which belongs to the newest transaction: while the file is open
// for writing no other writer may come in between.
func (s *Store) structure(r *CheckReport) error {
	if s.commit == nil { // looked at when it was opened
		if s.damage != nil {
			r.Problems = append(r.Problems, s.damage.problems...)
		}
		return nil
	}
	tx, err := s.db.Begin(true)
	if err != nil {
		return fmt.Errorf("check the file's structure: %w", err)
	}
	for err := range tx.Check() {
		r.problem("the file's structure: %v", err)
	}
	return tx.Rollback()
}

// checkAccounts verifies that names, slugs and token hashes point to records
// and back, and that no rows are left of a state that is gone.
func (s *Store) checkAccounts(tx *bbolt.Tx, r *CheckReport) {
	note := func(err error) {
		if err != nil {
			r.problem("accounts: %v", err)
		}
	}
	note(eachKV(tx, bName, nil, func(k, v []byte) (bool, error) {
		env, name, _ := bytes.Cut(k, []byte{0})
		st, ok, err := getRec[stateRec](tx, bState, v)
		if err != nil || !ok || st.Environment != string(env) || st.Name != string(name) {
			r.problem("the name %s of environment %s does not lead to its state (%v)", name, env, err)
		}
		if !has(tx, bEnvironment, env) {
			r.problem("the state %s is in an environment %s that does not exist", name, env)
		}
		return true, nil
	}))
	note(eachRec(tx, bEnvironment, nil, func(k []byte, e *environmentRec) (bool, error) {
		if string(get(tx, bSlug, pair(e.WorkspaceID, e.Slug))) != string(k) {
			r.problem("the slug of environment %s does not lead to it", k)
		}
		if !has(tx, bWorkspace, []byte(e.WorkspaceID)) {
			r.problem("the environment %s is in a workspace %s that does not exist", k, e.WorkspaceID)
		}
		switch sum, err := sumOf(tx, string(k)); {
		case err != nil:
			return false, err
		case e.Total != nil && *e.Total != sum:
			r.problem("the environment %s counts %d managed instances, and its active states have %d", k, *e.Total, sum)
		}
		return true, nil
	}))
	note(eachRec(tx, bToken, nil, func(k []byte, t *tokenRec) (bool, error) {
		if string(get(tx, bTokenHash, t.Hash)) != string(k) {
			r.problem("the hash of token %s does not lead to it", k)
		}
		return true, nil
	}))
	note(eachRec(tx, bMember, nil, func(k []byte, m *memberRec) (bool, error) {
		ws, user, _ := bytes.Cut(k, []byte{0})
		u, ok, err := getRec[userRec](tx, bUser, user)
		if err != nil || !ok || !u.DeletedAt.IsZero() || m.User != string(user) || !m.Role.Valid() || !has(tx, bWorkspace, ws) {
			r.problem("the member %s of workspace %s is not an active user in a workspace (%v)", user, ws, err)
		}
		return true, nil
	}))
	note(eachRec(tx, bGrant, nil, func(k []byte, g *grantRec) (bool, error) {
		env, user, _ := bytes.Cut(k, []byte{0})
		if g.Environment != string(env) || g.User != string(user) || !g.Role.Valid() || !has(tx, bEnvironment, env) {
			r.problem("the grant of %s on environment %s is not one of a user on an environment", user, env)
		}
		if g.EndedAt.IsZero() && !has(tx, bMember, pair(g.Workspace, g.User)) {
			r.problem("the grant of %s on environment %s has outlived the membership", user, env)
		}
		return true, nil
	}))
	note(eachKV(tx, bRefusedEnv, nil, func(_, v []byte) (bool, error) {
		if !has(tx, bRefused, v) {
			r.problem("a refused write %x is listed but not there", v)
		}
		return true, nil
	}))
	for _, b := range stateBuckets[1:] {
		last := uint64(0)
		note(eachKV(tx, b, nil, func(k, _ []byte) (bool, error) {
			if len(k) < 8 {
				r.problem("bucket %s has a key %x without a state", b, k)
				return true, nil
			}
			if sid := binary.BigEndian.Uint64(k); sid != last {
				if last = sid; !has(tx, bState, k[:8]) {
					r.problem("bucket %s has rows of state %d, which does not exist", b, sid)
				}
			}
			return true, nil
		}))
	}
}
