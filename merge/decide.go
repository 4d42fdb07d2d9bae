package merge

// Class is the kind of an element.
type Class uint8

// The classes of elements.
const (
	Instance Class = iota // a resource instance, named by its address
	Output                // a root output, named by its name
	Check                 // an element of check_results, named by the address of what it is about
)

// Element names an element of a state. The Address is that of tfstate.Token.Label. Elements may be compared with ==.
type Element struct {
	Class   Class
	Address string
}

// Hash is the content hash of an element, as of tfstate.Token.Content. The zero Hash says that it is not there.
type Hash = [16]byte

// Item is an element that the head and ours do not have alike, with what the merge needs to know to decide about it.
type Item struct {
	Element
	Data bool // an instance of a data source, which is read again at every apply
	View Hash // what the writer saw before
	Head Hash
	Ours Hash
}

// Verdict is what becomes of an element.
type Verdict uint8

// The verdicts.
const (
	Theirs   Verdict = iota // it stays as the head has it
	Ours                    // it becomes as ours has it
	Conflict                // both sides changed it, and not to the same
)

// String returns the verdict's name.
func (v Verdict) String() string {
	return [...]string{"theirs", "ours", "conflict"}[v]
}

// Verdict decides: what one side changed is taken from that side, what both changed to the same stays, and what both
// changed differently is a Conflict. To delete is to change. Data sources, outputs and check results are derived from
// the rest and never conflict: there the writer's value is taken.
func (i Item) Verdict() Verdict {
	switch {
	case i.Ours == i.View, i.Ours == i.Head:
		return Theirs
	case i.Head == i.View, i.derived():
		return Ours
	}
	return Conflict
}

// Overrides reports whether the verdict is Ours although the head changed the element too.
func (i Item) Overrides() bool { return i.Head != i.View && i.Verdict() == Ours }

func (i Item) derived() bool { return i.Data || i.Class != Instance }
