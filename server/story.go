package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"kl/fault"
	"kl/wire"
)

// maxTold bounds the addresses of a story; the members have more.
const maxTold = 20

// story tells a refusal in sentences. kept is the refused write as it is now,
// nil when there is none.
func story(r wire.Request, kept *wire.Refused) []string {
	lines := []string{
		fmt.Sprintf("%s tried to %s at %s.", cmp.Or(r.Principal, "Somebody"), tried(r), moment(r.Time)),
		fmt.Sprintf("It was refused with %d %s: %s.", r.Status, r.Code, strings.TrimSuffix(r.Detail, ".")),
	}
	switch fault.Class(r.Class) {
	case fault.Conflict:
		lines = append(lines, conflictLines(r)...)
	case fault.Lock:
		lines = append(lines, holderLines(r)...)
	default:
	}
	return append(append(lines, whereabouts(r, kept)...), nextSteps(r, kept)...)
}

// tried says what the request was about.
func tried(r wire.Request) string {
	state := "the state " + r.State
	if r.State == "" {
		state = "a state"
	}
	lock := ""
	if r.LockID != "" {
		lock = " with the lock " + r.LockID
	}
	what := map[string]string{
		"GET " + dataPath: "read ", "HEAD " + dataPath: "read ", "POST " + dataPath: "write ", "PUT " + dataPath: "write ", "DELETE " + dataPath: "delete ",
		"LOCK " + dataPath: "lock ", "LOCK " + aliasPath: "lock ", "POST " + aliasPath: "lock ", "PUT " + aliasPath: "lock ",
		"UNLOCK " + dataPath: "unlock ", "UNLOCK " + aliasPath: "unlock ", "DELETE " + aliasPath: "unlock ",
		"POST " + statePath + "/refused/{id}/merge": "merge a refused write into ",
		"GET " + runStatePath:                       "read, within a run, ", "POST " + runStatePath: "write, within a run, ", "PUT " + runStatePath: "write, within a run, ",
		"LOCK " + runStatePath: "lock, within a run, ", "POST " + runPath + "/reserve": "reserve parts of ",
		"POST " + statePath + "/rollback": "roll back ",
	}[r.Method+" "+r.Route]
	if what == "" {
		return "ask for " + r.Method + " " + cmp.Or(r.Route, "an address that this server does not have")
	}
	return what + state + lock
}

// conflictLines says what the write met.
func conflictLines(r wire.Request) []string {
	var lines []string
	if base, latest := number(r, "base_serial"), number(r, "latest_serial"); latest != "" {
		made := ""
		if base != "" {
			made = "It was made on serial " + base + "; "
		}
		lines = append(lines, made+"by then the state was at serial "+latest+", version "+cmp.Or(number(r, "latest_version"), "unknown")+".")
	}
	all := addressesOf(r)
	if len(all) == 0 {
		return lines
	}
	head := map[string]string{
		"overlap":     "Changed on both sides, and not to the same:",
		"dependency":  "Built on what others have deleted meanwhile:",
		"reservation": "What was not reserved for it:",
	}[text(r, "kind")]
	lines = append(lines, cmp.Or(head, "Against what is stored it would have changed:"))
	by, _ := r.Members["changed_by"].(map[string]any)
	on, _ := r.Members["depends_on"].(map[string]any)
	for _, a := range all[:min(len(all), maxTold)] {
		line := "  " + a
		if d, ok := on[a].(string); ok {
			line += ", which depends on " + d
		}
		if c, ok := by[a].(map[string]any); ok {
			line += changed(c, on[a] != nil)
		}
		lines = append(lines, line)
	}
	count := max(len(all), int(float(r, "conflicting_count")))
	if more := count - maxTold; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}

// changed says who changed, or deleted, what.
func changed(by map[string]any, deleted bool) string {
	verb := "changed"
	if deleted {
		verb = "deleted"
	}
	who, _ := by["who"].(string)
	if p, _ := by["principal"].(string); p != "" && p != who {
		who += " (credentials " + p + ")"
	}
	line := ", " + verb + " by " + cmp.Or(who, "others")
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(by["when"])); err == nil {
		line += " at " + moment(at)
	}
	if v, ok := by["version"].(float64); ok {
		line += fmt.Sprintf(" in version %.0f", v)
	}
	return line
}

// holderLines says who held the lock.
func holderLines(r wire.Request) []string {
	id := text(r, "ID")
	if id == "" || strings.Contains(id, "; next: ") {
		return nil // the sentence of a LOCK that was refused for another reason
	}
	line := "The lock was held by " + cmp.Or(text(r, "Who"), "somebody") + " with the ID " + id
	if op := text(r, "Operation"); op != "" {
		line += " for " + op
	}
	if info := text(r, "Info"); info != "" {
		line += ": " + info
	}
	lines := []string{line + "."}
	if n := float(r, "queue_position"); n > 0 {
		lines = append(lines, fmt.Sprintf("The request had place %.0f in the queue.", n))
	}
	return lines
}

// whereabouts says what became of what was sent.
func whereabouts(r wire.Request, kept *wire.Refused) []string {
	id := text(r, "refused_write")
	write := strings.HasPrefix(tried(r), "write")
	switch {
	case kept != nil && kept.Status == "open":
		lines := []string{fmt.Sprintf("None of that write was stored; its %d bytes are kept as %s and wait for recovery.", kept.Bytes, id)}
		if n := len(kept.UnknownToHead); n > 0 {
			told := kept.UnknownToHead[:min(n, maxTold)]
			lines = append(lines, "It tells of objects that the state does not know: "+strings.Join(told, ", ")+more(n-len(told))+".")
		}
		if kept.Holds {
			lines = append(lines, "Until it is settled the next apply of these credentials is held back.")
		}
		return lines
	case kept != nil:
		return []string{"What was sent was kept as " + id + ", which is " + kept.Status + " by now: nothing is left to do about it."}
	case id != "":
		return []string{"What was sent was kept as " + id + ", which was dropped since: it was too old, or too much was kept."}
	case write:
		return []string{"Nothing was stored, and nothing of it is kept."}
	}
	return nil
}

// nextSteps says what to type.
func nextSteps(r wire.Request, kept *wire.Refused) []string {
	if kept == nil {
		return []string{"Next: " + r.NextStep}
	}
	if kept.Status != "open" {
		return []string{"Next: plan again."}
	}
	at := " " + kept.ID + " --state " + r.State
	var lines []string
	if c := fault.Class(r.Class); c != fault.Conflict && c != fault.Lock {
		lines = append(lines, "First: "+r.NextStep)
	}
	lines = append(lines,
		"Next, one of:",
		"  kl recover merge"+at+" --dry-run",
		"      shows what would come back, what overlaps and what is newer in the state",
		"  kl recover merge"+at+" --take disjoint",
		"      brings back what nobody else has changed, and leaves the rest as it is stored",
		"  kl recover discard"+at,
		"      gives it up",
	)
	return append(lines, "Then plan again.")
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

func addressesOf(r wire.Request) []string {
	list, _ := r.Members["conflicting_addresses"].([]any)
	var out []string
	for _, v := range list {
		if a, ok := v.(string); ok {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return out
}

func text(r wire.Request, member string) string {
	s, _ := r.Members[member].(string)
	return s
}

func float(r wire.Request, member string) float64 {
	f, _ := r.Members[member].(float64)
	return f
}

// number is a member as digits, "" when it is not there.
func number(r wire.Request, member string) string {
	f, ok := r.Members[member].(float64)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.0f", f)
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
