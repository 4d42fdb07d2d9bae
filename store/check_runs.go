package store

import (
	"bytes"
	"crypto/sha256"
)

// runs verifies that live runs have a record of what they reserve and nobody
// else has, that no two hold what overlaps, and that what each sees is whole.
func (c *stateCheck) runs() {
	note := func(err error) {
		if err != nil {
			c.problem("%v", err)
		}
	}
	note(eachKV(c.tx, bReservation, u64(c.sid), func(k, _ []byte) (bool, error) {
		if !has(c.tx, bRun, k) {
			c.problem("the reservations of %s belong to no run", k[8:])
		}
		return true, nil
	}))
	var held []*runHolder
	note(eachKV(c.tx, bRun, u64(c.sid), func(k, _ []byte) (bool, error) {
		if id, _, piece := bytes.Cut(k[8:], []byte{0}); piece {
			if r, ok, err := getRec[runRec](c.tx, bRun, runKey(c.sid, string(id))); err != nil || !ok || r.View.Pieces == 0 {
				c.problem("a piece of a view is of the run %s, which has none (%v)", id, err)
			}
			return true, nil
		}
		// as it is written: a lease that is over since changes nothing in the file
		r, ok, err := getRec[runRec](c.tx, bRun, k)
		if err != nil || !ok || r.ID != string(k[8:]) {
			c.problem("the run %s is not stored as one (%v)", k[8:], err)
			return true, nil
		}
		h, err := c.oneRun(r)
		if h != nil {
			held = append(held, h)
		}
		return true, err
	}))
	for i, a := range held {
		for _, b := range held[i+1:] {
			if common := a.blocks(b.write, b.read); len(common) > 0 {
				c.problem("the runs %s and %s have both reserved %s", a.run.ID, b.run.ID, common[0])
			}
		}
	}
}

// oneRun verifies one run and returns what it holds, nil for nothing.
func (c *stateCheck) oneRun(r *runRec) (*runHolder, error) {
	res, ok, err := getRec[reservationRec](c.tx, bReservation, runKey(c.sid, r.ID))
	if err != nil {
		return nil, err
	}
	if ok != r.live() {
		c.problem("the run %s is %s, and has a record of reservations: %v", r.ID, r.Status, ok)
	}
	if !r.live() {
		if r.View.Pieces > 0 {
			c.problem("the run %s is %s and still has a view", r.ID, r.Status)
		}
		return nil, nil
	}
	for _, v := range []uint64{r.View.Version, r.Session.BaseVersion, r.Session.LastVersion} {
		if v != 0 && !has(c.tx, bVersion, key(c.sid, v)) {
			c.problem("the run %s needs version %d, which is gone", r.ID, v)
			return nil, nil
		}
	}
	if err := c.view(r); err != nil {
		c.problem("what the run %s sees is not whole: %v", r.ID, err)
	}
	if !ok || res.Since.IsZero() == r.holds() {
		c.problem("the run %s is %s, and its reservations say something else", r.ID, r.Status)
		return nil, nil
	}
	h := &runHolder{run: r}
	h.write, h.read, err = res.scopes()
	return h, err
}

// view reads back what a run sees beside a version.
func (c *stateCheck) view(r *runRec) error {
	diff, err := readView(c.tx, c.sid, r)
	if err != nil || diff == nil {
		return err
	}
	es, err := manifestOf(c.tx, c.sid, r.View.Version)
	if err != nil {
		return err
	}
	old, err := c.body(es)
	if err != nil {
		return err
	}
	own, err := applyDiff(old, diff, r.View.Bytes)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(own); !bytes.Equal(sum[:], r.View.SHA256) {
		c.problem("the run %s sees other bytes than were sent", r.ID)
	}
	return nil
}
