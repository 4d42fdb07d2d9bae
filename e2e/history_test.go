package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"kl/fault"
	"kl/wire"
)

// TestLockHistory records what concurrent clients see of locks while the server
// is killed, stopped and started again, and has porcupine look for an order of
// all that which a single lock could have produced.
func TestLockHistory(t *testing.T) {
	t.Parallel()
	rounds := 12
	if testing.Short() {
		rounds = 2
	}
	histories(t, rounds, func(r *recorder, rng *rand.Rand) {
		r.play(rng, 6, 60, r.client)
		unknown := 0
		for _, op := range r.history {
			if op.Output.(lockAnswer).status == unanswered {
				unknown++
			}
		}
		r.t.Logf("%d requests, %d of them without an answer", len(r.history), unknown)
		r.verify(lockModel.ToModel())
	})
}

// histories calls play for each round, with a server of its own.
func histories(t *testing.T, rounds int, play func(r *recorder, rng *rand.Rand)) {
	rng := seeded(t)
	for round := range rounds {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) { play(newRecorder(t), rng) })
	}
}

// play lets clients work until the server was ended three times among them, each
// time behind a number of answers that is about the one given.
func (r *recorder) play(rng *rand.Rand, clients, answers int, client func(ctx context.Context, number int, rng *rand.Rand)) {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range clients {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		all.Go(func() { client(ctx, i, own) })
	}
	for range 3 {
		r.answered.await(r.t, answers/2+rng.IntN(answers))
		r.restart(rng.IntN(3) > 0)
	}
	r.answered.await(r.t, answers)
	stop()
	all.Wait()
}

// verify looks for an order of the history that the model allows.
func (r *recorder) verify(model porcupine.Model) {
	r.t.Helper()
	got, _ := porcupine.CheckOperationsVerbose(model, r.history, time.Minute)
	if got == porcupine.Ok {
		return
	}
	slices.SortFunc(r.history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var lines strings.Builder
	for _, op := range r.history {
		fmt.Fprintf(&lines, "%10d-%-10d client %d: %s\n", op.Call/1000, op.Return/1000, op.ClientId, model.DescribeOperation(op.Input, op.Output))
	}
	r.t.Errorf("the history is %s:\n%s", got, lines.String())
}

// What a client asks, and what it is told.
type lockRequest struct {
	state string
	verb  string // lock, plan, unlock, show
	id    string
}

type lockStatus int

const (
	unanswered lockStatus = iota // the server died meanwhile
	accepted
	refused
)

type lockAnswer struct {
	status lockStatus
	holder string // of a refusal
	ids    string // of show: all holders, sorted
}

// lockStateModel is one state's lock: comparable, so that porcupine can compare
// it.
type lockStateModel struct {
	holders string // sorted IDs, each followed by a blank
	plans   bool   // the holders are plans
	gone    string // released IDs
}

func (m lockStateModel) holds(id string) bool { return strings.Contains(" "+m.holders, " "+id+" ") }

func (m lockStateModel) released(id string) bool { return strings.Contains(" "+m.gone, " "+id+" ") }

func (m lockStateModel) add(id string, plan bool) lockStateModel {
	ids := append(strings.Fields(m.holders), id)
	slices.Sort(ids)
	return lockStateModel{strings.Join(ids, " ") + " ", plan, m.gone}
}

func (m lockStateModel) remove(id string) lockStateModel {
	ids := slices.DeleteFunc(strings.Fields(m.holders), func(h string) bool { return h == id })
	next := lockStateModel{"", m.plans && len(ids) > 0, m.gone + id + " "}
	if len(ids) > 0 {
		next.holders = strings.Join(ids, " ") + " "
	}
	return next
}

// lockModel says what one lock may answer. Requests that got no answer may or
// may not have been done.
var lockModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		return partition(history, func(op porcupine.Operation) string { return op.Input.(lockRequest).state })
	},
	Init: func() []any { return []any{lockStateModel{}} },
	Step: func(state, input, output any) []any {
		m, in, out := state.(lockStateModel), input.(lockRequest), output.(lockAnswer)
		var next []any
		if in.verb == "show" {
			if out.status == unanswered || strings.Join(strings.Fields(m.holders), " ") == out.ids {
				next = append(next, m)
			}
			return next
		}
		if out.status != refused {
			if done, may := m.accept(in); may {
				next = append(next, done)
			}
		}
		if out.status == unanswered || out.status == refused && m.refuses(in, out) {
			next = append(next, m)
		}
		return next
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(lockRequest), output.(lockAnswer)
		return fmt.Sprintf("%s %s %s -> %s %s%s", in.state, in.verb, in.id,
			[]string{"no answer", "ok", "refused"}[out.status], out.holder, out.ids)
	},
}

// partition takes a history apart, by state: none knows of another.
func partition(history []porcupine.Operation, of func(porcupine.Operation) string) (out [][]porcupine.Operation) {
	parts := map[string][]porcupine.Operation{}
	for _, op := range history {
		parts[of(op)] = append(parts[of(op)], op)
	}
	for _, part := range parts {
		out = append(out, part)
	}
	return out
}

// accept is the state after the request was done, if it may be.
func (m lockStateModel) accept(in lockRequest) (lockStateModel, bool) {
	switch in.verb {
	case "unlock":
		if m.holds(in.id) {
			return m.remove(in.id), true
		}
		return m, m.released(in.id)
	default:
		plan := in.verb == "plan"
		if m.holds(in.id) {
			return m, true
		}
		return m.add(in.id, plan), m.holders == "" || plan && m.plans
	}
}

// refuses reports whether the request may be refused as it was: a lock by a
// holder that is named, a release because that ID does not hold.
func (m lockStateModel) refuses(in lockRequest, out lockAnswer) bool {
	if in.verb == "unlock" {
		return !m.holds(in.id)
	}
	return !m.holds(in.id) && m.holds(out.holder)
}

// epoch is the life of one server process.
type epoch struct {
	over chan struct{} // closed when the next process serves
	dead int64         // when the process was gone; set before over is closed
}

func newEpoch() *epoch { return &epoch{over: make(chan struct{})} }

// recorder collects the history.
type recorder struct {
	t        *testing.T
	s        *server
	began    time.Time
	answered answers

	mu      sync.Mutex
	epoch   *epoch
	history []porcupine.Operation
}

func newRecorder(t *testing.T) *recorder {
	r := &recorder{t: t, s: startServer(t), began: time.Now(), answered: newAnswers(), epoch: newEpoch()}
	r.s.client() // before the goroutines
	return r
}

func (r *recorder) now() int64 { return time.Since(r.began).Nanoseconds() }

func (r *recorder) current() *epoch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch
}

func (r *recorder) restart(kill bool) {
	if kill {
		r.s.proc.kill()
	} else {
		r.s.stop()
	}
	old := r.current()
	old.dead = r.now()
	r.s.start()
	r.mu.Lock()
	r.epoch = newEpoch()
	r.mu.Unlock()
	close(old.over)
}

// do sends a request and records it.
func (r *recorder) do(client int, in lockRequest) lockAnswer {
	return record(r, client, in, r.send, func(out lockAnswer) bool { return out.status == unanswered })
}

// record notes a request and its answer. One that the server took with it into
// death can have had its effect only before that, which bounds its place in the
// order.
func record[In, Out any](r *recorder, client int, in In, send func(In) Out, lost func(Out) bool) Out {
	e := r.current()
	op := porcupine.Operation{ClientId: client, Input: in, Call: r.now()}
	out := send(in)
	op.Return = r.now()
	if lost(out) {
		<-e.over
		op.Return = max(e.dead, op.Call)
	} else {
		r.answered.add()
	}
	op.Output = out
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, op)
	return out
}

func (r *recorder) send(in lockRequest) lockAnswer {
	ctx, c, ref := context.Background(), r.s.c, r.s.ref(in.state)
	info := wire.LockInfo{ID: in.id, Operation: wire.OperationApply, Who: "history"}
	var err error
	switch in.verb {
	case "show":
		var l wire.Lock
		if l, err = c.LockState(ctx, ref.Environment, ref.State); err == nil {
			ids := []string{}
			for _, h := range l.Holders {
				ids = append(ids, h.ID)
			}
			slices.Sort(ids)
			return lockAnswer{status: accepted, ids: strings.Join(ids, " ")}
		}
	case "unlock":
		err = c.Unlock(ctx, ref, info)
	case "plan":
		info.Operation = wire.OperationPlan
		err = c.Lock(ctx, ref, info)
	default:
		err = c.Lock(ctx, ref, info)
	}
	switch {
	case err == nil:
		return lockAnswer{status: accepted}
	case fault.Is(err, fault.Unreachable), fault.Is(err, fault.ShuttingDown):
		return lockAnswer{}
	case fault.ClassOf(err) == fault.Lock:
		holder, _ := fault.Of(err).Details["ID"].(string)
		return lockAnswer{status: refused, holder: holder}
	default:
		r.t.Errorf("%s %s: %v", in.verb, in.id, err)
		return lockAnswer{status: refused}
	}
}

// client locks, looks and unlocks, now and then with an ID that is not the
// holder's. It never repeats a refused LOCK: waiting has its own tests.
func (r *recorder) client(ctx context.Context, number int, rng *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		state := []string{"a", "b"}[rng.IntN(2)]
		id := fmt.Sprintf("c%d-%d", number, i)
		verb := "lock"
		if rng.IntN(3) == 0 {
			verb = "plan"
		}
		got := r.do(number, lockRequest{state, verb, id})
		if rng.IntN(3) == 0 {
			r.do(number, lockRequest{state, "show", ""})
		}
		switch {
		case got.status != refused:
			r.release(number, state, id)
		case rng.IntN(8) == 0:
			r.do(number, lockRequest{state, "unlock", id})
		}
	}
}

// release repeats UNLOCK until an answer comes, as clients do.
func (r *recorder) release(number int, state, id string) {
	for r.do(number, lockRequest{state, "unlock", id}).status == unanswered {
	}
}
