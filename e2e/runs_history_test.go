package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"kl/client"
	"kl/fault"
	"kl/kltest"
	"kl/wire"
)

// TestRunHistory records what fifty concurrent runs see of reservations while
// the server is killed, stopped and started again, and has porcupine look for
// an order of all that in which no two of them held what overlaps.
func TestRunHistory(t *testing.T) {
	t.Parallel()
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	histories(t, rounds, runHistory)
}

// runStates are few, so that runs meet, and several, so that a search for an
// order stays short.
var runStates = []string{"a", "b", "c", "d", "e"}

func runHistory(r *recorder, rng *rand.Rand) {
	const clients = 50
	t := r.t
	for _, state := range runStates {
		if _, err := r.s.c.Push(context.Background(), r.s.ref(state), "", kltest.NewState(3, 1).Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	r.play(rng, clients, 4*clients, r.runner)
	counts := map[string]int{}
	for _, op := range r.history {
		counts[op.Input.(runRequest).verb+" "+[]string{"without an answer", "accepted", "refused"}[op.Output.(runAnswer).status]]++
	}
	t.Logf("%d requests: %v", len(r.history), counts)
	if counts["reserve accepted"] < clients || counts["reserve refused"] == 0 {
		t.Error("there was too little load for this to prove anything")
	}
	r.verify(runsModel.ToModel())
}

// runRequest is what a run asks: reserve, or end.
type runRequest struct {
	state, run, verb string
	write, read      string // addresses, with blanks between
}

type runAnswer struct {
	status lockStatus
	by     string // of a refusal: the runs that are named as holders
	queue  bool   // of a refusal: only runs that wait in front are named
}

// heldModel is what the runs of a state hold: a line for each, sorted, with the
// run, what it writes and what it reads.
type heldModel string

func (m heldModel) lines() []string {
	return strings.FieldsFunc(string(m), func(r rune) bool { return r == '\n' })
}

func (m heldModel) without(run string) []string {
	return slices.DeleteFunc(m.lines(), func(l string) bool { return strings.HasPrefix(l, run+"|") })
}

func heldOf(lines []string) heldModel {
	slices.Sort(lines)
	return heldModel(strings.Join(lines, "\n"))
}

// meets reports whether a line of the model and a request exclude each other.
// One address lies within another when it goes on behind it with a dot or a
// bracket.
func meets(line string, in runRequest) bool {
	held := strings.Split(line, "|")
	overlap := func(a, b string) bool {
		for _, x := range strings.Fields(a) {
			for _, y := range strings.Fields(b) {
				if x == y || strings.HasPrefix(x, y+".") || strings.HasPrefix(x, y+"[") || strings.HasPrefix(y, x+".") || strings.HasPrefix(y, x+"[") {
					return true
				}
			}
		}
		return false
	}
	return overlap(held[1], in.write+" "+in.read) || overlap(held[2], in.write)
}

var runsModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		return partition(history, func(op porcupine.Operation) string { return op.Input.(runRequest).state })
	},
	Init: func() []any { return []any{heldModel("")} },
	Step: func(state, input, output any) []any {
		m, in, out := state.(heldModel), input.(runRequest), output.(runAnswer)
		others := m.without(in.run)
		var next []any
		var inWay []string
		for _, l := range others {
			if in.verb == "reserve" && meets(l, in) {
				run, _, _ := strings.Cut(l, "|")
				inWay = append(inWay, run)
			}
		}
		if out.status != refused && len(inWay) == 0 {
			if in.verb == "reserve" {
				others = append(others, in.run+"|"+in.write+"|"+in.read)
			}
			next = append(next, heldOf(others))
		}
		slices.Sort(inWay)
		if out.status == unanswered || out.status == refused && (out.queue || strings.Join(inWay, " ") == out.by && len(inWay) > 0) {
			next = append(next, m)
		}
		return next
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(runRequest), output.(runAnswer)
		return fmt.Sprintf("%s %s %s write %s read %s -> %s %s", in.state, in.verb, in.run, in.write, in.read, []string{"no answer", "ok", "refused"}[out.status], out.by)
	},
}

var runScopes = []string{"module.m", "module.m.a.x", `module.m.a.x["k"]`, `module.m.a.x["j"]`, "a.x", "a.x[0]", "a.x[1]", "a.y", "a.z"}

// runner begins runs, reserves for them, sometimes something else later, and
// ends them.
func (r *recorder) runner(ctx context.Context, number int, rng *rand.Rand) {
	c := r.s.clientFor(client.Options{Username: r.s.boot.WorkspaceID, Password: r.s.boot.AutomationToken})
	state := runStates[number%len(runStates)]
	env := r.s.boot.EnvPublicID
	some := func(n int) string {
		var out []string
		for range n {
			out = append(out, runScopes[rng.IntN(len(runScopes))])
		}
		return strings.Join(out, " ")
	}
	for ctx.Err() == nil {
		e := r.current()
		run, err := c.StartRun(context.Background(), env, state, wire.RunRequest{Actor: fmt.Sprint("runner ", number)})
		if fault.Is(err, fault.Unreachable) || fault.Is(err, fault.ShuttingDown) {
			<-e.over
			continue
		}
		if err != nil {
			r.t.Errorf("start: %v", err)
			return
		}
		wait := wire.Duration(rng.IntN(2) * int(200*time.Millisecond))
		send := func(in runRequest) runAnswer { return r.askRun(c, env, in, wait) }
		lost := func(a runAnswer) bool { return a.status == unanswered }
		got := record(r, number, runRequest{state, run.ID, "reserve", some(1 + rng.IntN(2)), some(rng.IntN(2))}, send, lost)
		if got.status == accepted && rng.IntN(3) == 0 {
			record(r, number, runRequest{state, run.ID, "reserve", some(1 + rng.IntN(2)), some(rng.IntN(2))}, send, lost)
		}
		for record(r, number, runRequest{state, run.ID, "end", "", ""}, send, lost).status == unanswered {
		}
	}
}

func (r *recorder) askRun(c *client.Client, env string, in runRequest, wait wire.Duration) runAnswer {
	var err error
	if in.verb == "end" {
		_, err = c.FinishRun(context.Background(), env, in.state, in.run, wire.RunEnd{})
	} else {
		_, err = c.Reserve(context.Background(), env, in.state, in.run, wire.ReserveRequest{
			WriteSet: strings.Fields(in.write), ReadSet: strings.Fields(in.read), Wait: wait,
		})
	}
	switch {
	case err == nil:
		return runAnswer{status: accepted}
	case fault.Is(err, fault.Unreachable), fault.Is(err, fault.ShuttingDown):
		return runAnswer{}
	case fault.Is(err, fault.ReservedConflict) && in.verb == "reserve":
		out := runAnswer{status: refused, queue: true}
		blocks, _ := fault.Of(err).Details["blocking_runs"].([]any)
		var by []string
		for _, b := range blocks {
			if m, _ := b.(map[string]any); m["waiting"] != true {
				id, _ := m["run_id"].(string)
				by, out.queue = append(by, id), false
			}
		}
		slices.Sort(by)
		out.by = strings.Join(by, " ")
		return out
	default:
		r.t.Errorf("%s of %s: %v", in.verb, in.run, err)
		return runAnswer{status: refused}
	}
}
