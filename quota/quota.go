// Package quota judges counts against limits, and says when a limit will be
// met if growth goes on. It is pure: counts come in, verdicts come out.
//
// A limit is met, not exceeded, by a count equal to it. What does not grow a
// count is never refused for it, so that a state above a limit that was lowered
// can always be made smaller.
package quota

import (
	"math"
	"time"
)

// Limits bound a count; 0 means that there is no such limit.
type Limits struct {
	Soft int64 // above it a write is warned of
	Hard int64 // above it a write that grows the count is refused
}

// Any reports whether there is a limit at all.
func (l Limits) Any() bool { return l.Soft != 0 || l.Hard != 0 }

// Status is a verdict; they are ordered from good to bad.
type Status int

// The verdicts.
const (
	OK   Status = iota
	Soft        // above a limit, and allowed
	Hard        // refused
)

// String is the verdict as the API writes it.
func (s Status) String() string { return [...]string{"ok", "soft", "hard"}[s] }

// Judge decides on a count that goes from current to resulting.
func Judge(current, resulting int64, l Limits) Status {
	switch above := l.Hard > 0 && resulting > l.Hard; {
	case above && resulting > current:
		return Hard
	case above, l.Soft > 0 && resulting > l.Soft:
		return Soft
	}
	return OK
}

// Use is a count, what it is to become, and its limits.
type Use struct {
	Current, Resulting int64
	Limits
}

// Status is the verdict on the use.
func (u Use) Status() Status { return Judge(u.Current, u.Resulting, u.Limits) }

// Dimension names what is counted.
type Dimension string

// The dimensions.
const (
	State        Dimension = "state"         // managed instances of a state
	Environment  Dimension = "environment"   // managed instances of all active states of an environment
	Bytes        Dimension = "bytes"         // the size of a state's newest version
	HistoryBytes Dimension = "history_bytes" // what a state's kept versions take in the file
)

// Uses are those of one write, in the order in which they are judged.
type Uses []struct {
	Dimension Dimension
	Use       Use
}

// NewUses are the uses of a write to one state. Of bytes nothing is refused
// that makes the state hold fewer instances, and the history, which grows by
// every write, counts as growing only where the state itself does: taking
// things away must always work.
func NewUses(state, environment, bytes, history Use) Uses {
	fewer := state.Resulting < state.Current
	if fewer {
		bytes.Current = max(bytes.Current, bytes.Resulting)
	}
	if fewer || bytes.Resulting <= bytes.Current {
		history.Current = max(history.Current, history.Resulting)
	}
	return Uses{{State, state}, {Environment, environment}, {Bytes, bytes}, {HistoryBytes, history}}
}

// Sample is a count at a time.
type Sample struct {
	At    time.Time
	Count int64
}

// Window is how far back a forecast looks.
const Window = 30 * 24 * time.Hour

// minSpan is the shortest history that says anything about growth.
const minSpan = 24 * time.Hour

// Forecast is growth, and when it meets the limits. The times are zero where
// there is no such limit, where it is met already, where nothing grows, and
// where it lies more than ten years ahead.
type Forecast struct {
	Growth   int64         // between the samples
	Span     time.Duration // between the samples
	PerDay   float64
	SoftAt   time.Time
	HardAt   time.Time
	TooShort bool // there is less than a day of history: nothing is foretold
}

// Foresee draws a line from then to now, and on.
func Foresee(then, now Sample, l Limits) Forecast {
	f := Forecast{Growth: now.Count - then.Count, Span: now.At.Sub(then.At)}
	if f.Span < minSpan {
		f.TooShort = true
		return f
	}
	f.PerDay = float64(f.Growth) / f.Span.Hours() * 24
	f.SoftAt, f.HardAt = f.meets(now, l.Soft), f.meets(now, l.Hard)
	return f
}

// horizon is as far ahead as a forecast goes.
const horizon = 10 * 365 * 24 * time.Hour

// meets is when the count comes to the limit: from then on nothing more may be
// added.
func (f *Forecast) meets(now Sample, limit int64) time.Time {
	left := limit - now.Count
	if limit == 0 || f.Growth <= 0 || left <= 0 {
		return time.Time{}
	}
	ahead := float64(f.Span) / float64(f.Growth) * float64(left)
	if ahead > float64(horizon) || math.IsNaN(ahead) {
		return time.Time{}
	}
	return now.At.Add(time.Duration(ahead))
}
