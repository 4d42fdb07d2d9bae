package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kl/fault"
	"kl/scripts/rig"
	"kl/wire"
)

// playQueue is what only kl shows: who holds, who waits, and in which order they
// are served. This program itself takes the lock first, as a client does, so that
// the moment of its release is known. It is played on another state, which the
// directories are pointed at by their environment: a waiter that has given up,
// as one did above, keeps its place for up to 40 seconds.
func (c *contest) playQueue(ctx context.Context, p *klPlace, h *held, folder, first, second string) error {
	p.ref.State = "queue"
	third, err := c.directory(ctx, folder, "third")
	if err != nil {
		return err
	}
	mine := wire.LockInfo{ID: "coordination-" + h.lock.ID, Operation: wire.OperationApply, Who: "coordination@here", Version: h.lock.Version}
	if err := p.client.Lock(ctx, p.ref, mine); err != nil {
		return err
	}
	l, err := p.show(ctx)
	if err != nil || len(l.Holders) != 1 {
		return fmt.Errorf("%d hold the lock, and not one: %w", len(l.Holders), err)
	}
	holder := l.Holders[0]
	f := holderFacts{Who: holder.Who, Since: holder.Since, Age: milliseconds(time.Since(holder.Since)), Principal: holder.Principal, Operation: holder.Operation}
	c.step("holder_shown", "the server tells who holds the lock, with which credential and since when",
		f.Who == mine.Who && f.Principal != "" && !f.Since.IsZero(), f)

	var waiters []*clientProcess
	var gates []gate
	for i, dir := range []string{first, second, third} {
		round := []string{"three", "four", "five"}[i]
		w, err := c.start(dir, "apply", "-auto-approve", "-var", "round="+round, "-lock-timeout="+c.longest.String())
		if err != nil {
			return err
		}
		waiters, gates = append(waiters, w), append(gates, c.gate(round))
		err = rig.Await(ctx, fmt.Sprintf("waiter %d in the queue", i+1), func() (bool, error) {
			if !w.Alive() {
				return false, fmt.Errorf("%s has ended:\n%s", w.Name, w.Out.String())
			}
			l, err = p.show(ctx)
			return len(l.Queue) == i+1, err
		})
		if err != nil {
			return err
		}
	}
	return c.serve(ctx, p, mine, l.Queue, waiters, gates)
}

// serve releases the lock and watches the waiters get it, one by one.
func (c *contest) serve(ctx context.Context, p *klPlace, mine wire.LockInfo, queue []wire.Waiter, waiters []*clientProcess, gates []gate) error {
	f := orderFacts{Queue: queue, Served: []string{}, Alone: true}
	for _, w := range queue {
		f.Arrived = append(f.Arrived, w.ID)
	}
	released := time.Now()
	if err := p.client.Unlock(ctx, p.ref, mine); err != nil {
		return err
	}
	var granted time.Duration
	for i, w := range waiters {
		if err := rig.AwaitFile(ctx, gates[i].begun(), w.Process); err != nil {
			return err
		}
		l, err := p.show(ctx)
		if err != nil {
			return err
		}
		if len(l.Holders) != 1 {
			return fmt.Errorf("%d hold the lock while waiter %d is at work", len(l.Holders), i+1)
		}
		if i == 0 {
			granted = l.Holders[0].Since.Sub(released)
		}
		f.Served = append(f.Served, l.Holders[0].ID)
		for _, later := range gates[i+1:] {
			f.Alone = f.Alone && !later.seen()
		}
		if err := gates[i].open(); err != nil {
			return err
		}
		if code, err := w.Wait(ctx); err != nil || code != 0 {
			return errors.Join(err, fmt.Errorf("waiter %d: exit code %d\n%s", i+1, code, w.Out.String()))
		}
	}
	c.step("served_in_order", "three applies that wait are served one by one, in the order in which they came",
		slices.Equal(f.Arrived, f.Served) && f.Alone, f)
	return c.timeGrants(ctx, p, granted)
}

// timeGrants measures how long it takes from the release of a lock until the
// next one has it, when its request stands at the server.
func (c *contest) timeGrants(ctx context.Context, p *klPlace, terraform time.Duration) error {
	const (
		rounds = 10
		prompt = 3 * time.Second // below the 5 s for which the server holds a request: a new one is not needed
	)
	var took []time.Duration
	for i := range rounds {
		holder := wire.LockInfo{ID: fmt.Sprintf("holder-%d", i), Operation: wire.OperationApply, Who: "coordination@here"}
		waiter := wire.LockInfo{ID: fmt.Sprintf("waiter-%d", i), Operation: wire.OperationApply, Who: "coordination@here"}
		if err := p.client.Lock(ctx, p.ref, holder); err != nil {
			return err
		}
		// the first refusal comes at once; only who asks again waits
		if err := p.client.Lock(ctx, p.ref, waiter); !fault.Is(err, fault.Locked) {
			return fmt.Errorf("a lock that is held was not refused: %w", err)
		}
		granted := make(chan error, 1)
		go func() { granted <- p.client.Lock(ctx, p.ref, waiter) }()
		err := rig.Await(ctx, "a place in the queue", func() (bool, error) {
			l, err := p.show(ctx)
			return len(l.Queue) == 1, err
		})
		if err != nil {
			return err
		}
		released := time.Now()
		if err := p.client.Unlock(ctx, p.ref, holder); err != nil {
			return err
		}
		if err := <-granted; err != nil {
			return err
		}
		took = append(took, time.Since(released))
		if err := p.client.Unlock(ctx, p.ref, waiter); err != nil {
			return err
		}
	}
	slices.Sort(took)
	f := grantFacts{
		TerraformWaiter: milliseconds(terraform), RequestWaiters: rounds,
		RequestWaiterMed: took[rounds/2].String(), RequestWaiterWorst: took[rounds-1].String(),
		Remark: "A request that stands at the server gets the lock at once. Terraform asks again and again, with pauses of 1, 2, 4, 8 and then 16 seconds; a release that falls into a pause is noticed at its end, and the place in the queue is kept for it until then.",
	}
	c.step("release_to_grant", "a lock that is released goes to the waiter at once", took[rounds-1] < prompt, f)
	return nil
}
