package tfstate

import (
	"errors"
	"io"
	"strconv"
)

// Options of a Scanner. They hold for all its scans.
type Options struct {
	// Fragment says that the bytes may end at a cut: reaching their end where an element may begin ends the scan with
	// io.EOF. Scanner.Context then tells the Context there.
	Fragment bool
	// Reordered looks ahead through each resource, so that members of its identity are found after its instances.
	// It takes twice the time; without it such a resource ends the scan with ErrReordered.
	Reordered bool
}

// Head holds the scalars of a document that one scan came across.
type Head struct {
	Seen             uint16 // which of the members below were there: TopVersion and so on; null counts as there
	Version          int64  // always 4 once seen
	Serial           uint64
	Lineage          string
	TerraformVersion string
	// SerialStart and SerialEnd are the span of the serial's value in the scanned bytes.
	SerialStart, SerialEnd int
}

type state uint8

const (
	atStart      state = iota
	inTop              // in the document's object, before a comma unless first
	inResource         // in a resource's object, behind its instances
	atElement          // where an element of the container may begin
	afterElement       // behind one
	atEnd              // behind the document's object
)

// Scanner reads a state's elements one after the other. It never changes the bytes it reads. The byte slices in what it
// returns alias them, the strings do not. A Scanner must not be used by two goroutines at a time.
type Scanner struct {
	b     []byte
	i     int
	opt   Options
	state state
	kind  CutKind // of the container's elements
	first bool    // nothing stands before i in the container or object
	top   uint16
	res   resource
	head  Head
	tok   Token
	err   error
}

// NewScanner returns a Scanner at the start of the document b.
func NewScanner(b []byte, opt Options) *Scanner {
	s := &Scanner{opt: opt}
	s.Reset(b, 0, Context{})
	return s
}

// Reset makes the Scanner stand at b[pos], a cut where ctx holds, as if it had come there by scanning. Head starts
// empty again.
func (s *Scanner) Reset(b []byte, pos int, ctx Context) {
	s.b, s.i = b, pos
	s.kind, s.first, s.top = ctx.Kind, ctx.First, ctx.Top
	s.head, s.err = Head{}, nil
	s.state = atElement
	if ctx.Kind == CutStart {
		s.state = atStart
	}
	if ctx.Kind == CutInstance {
		s.res = resource{Resource: ctx.Resource, rest: ctx.Rest, seen: ctx.Res | ResInstances, opened: true}
	}
}

// Head returns the document's scalars as far as this scan has met them, since NewScanner or Reset.
func (s *Scanner) Head() Head { return s.head }

// Offset returns how far the scan has come. After io.EOF it is the end of the document or fragment.
func (s *Scanner) Offset() int { return s.i }

// Done reports whether the end of the document was reached, not only that of a fragment.
func (s *Scanner) Done() bool { return s.state == atEnd && errors.Is(s.err, io.EOF) }

// Context returns the Context at Offset. It means something where an element may begin: at the start, after Reset, and
// after io.EOF at the end of a fragment.
func (s *Scanner) Context() Context {
	if s.state == atStart {
		return Context{}
	}
	ctx := Context{Kind: s.kind, First: s.first, Top: s.top}
	if s.kind == CutInstance {
		ctx.Res, ctx.Resource, ctx.Rest = s.res.seen, s.res.Resource, s.res.rest
	}
	return ctx
}

// Next returns the next element. The token is valid until the next call. At the document's end, after which only white
// space may follow, it returns io.EOF. Other errors are a *SyntaxError, a *ShapeError, ErrAmbiguous or ErrReordered,
// the latter two to be told by errors.Is; all errors are final until Reset.
func (s *Scanner) Next() (*Token, error) {
	if s.err != nil {
		return nil, s.err
	}
	for {
		var found bool
		var err error
		switch s.state {
		case atStart:
			err = s.start()
		case inTop:
			err = s.topMember()
		case inResource:
			err = s.resourceTail()
		case atElement:
			found, err = s.element()
		case afterElement:
			err = s.separator()
		case atEnd:
			err = s.finish()
		}
		if err != nil {
			s.err = err
			return nil, err
		}
		if found {
			return &s.tok, nil
		}
	}
}

func (s *Scanner) start() error {
	i, err := openDocument(s.b, s.i)
	s.i, s.state, s.first = i, inTop, true
	return err
}

// openDocument returns the offset after the '{' of the document.
func openDocument(b []byte, i int) (int, error) {
	if i = space(b, i); i < len(b) && b[i] == '{' {
		return i + 1, nil
	}
	end, f := skipValue(b, i, 0)
	if f != ok {
		return i, syntaxError(b, end, f)
	}
	if end = space(b, end); end < len(b) {
		return i, syntaxError(b, end, failToken)
	}
	return i, shapeError(b, i, "the document must be an object, not %s", typeName(b[i]))
}

func (s *Scanner) finish() error {
	if s.i = space(s.b, s.i); s.i < len(s.b) {
		return syntaxError(s.b, s.i, failToken)
	}
	if s.top&TopVersion == 0 {
		return shapeError(s.b, len(s.b), "it has no version")
	}
	return io.EOF
}

func (s *Scanner) topMember() error {
	name, value, closed, f := nextMember(s.b, s.i, s.first)
	if f != ok {
		return syntaxError(s.b, value, f)
	}
	if closed {
		s.i, s.state = value, atEnd
		return nil
	}
	bit := topMember(name)
	if bit&s.top != 0 {
		return ambiguous(s.b, value, string(name))
	}
	s.top |= bit
	s.first = false
	c := s.b[value]
	switch bit {
	case TopOutputs:
		if c == '{' {
			return s.enter(CutOutput, value)
		}
	case TopResources:
		if c == '[' {
			return s.enter(CutResource, value)
		}
	case TopCheckResults:
		if c == '[' {
			return s.enter(CutCheck, value)
		}
	case TopVersion, TopSerial, TopLineage, TopTerraformVersion:
		end, err := s.scalar(bit, value)
		s.i = end
		return err
	}
	if c != 'n' {
		switch bit {
		case TopOutputs:
			return wrongType(s.b, value, depthTop, "outputs", "an object")
		case TopResources:
			return wrongType(s.b, value, depthTop, "resources", "an array")
		case TopCheckResults:
			return wrongType(s.b, value, depthTop, "check_results", "an array")
		}
	}
	s.i, f = skipValue(s.b, value, depthTop)
	if f != ok {
		return syntaxError(s.b, s.i, f)
	}
	return nil
}

func (s *Scanner) enter(kind CutKind, open int) error {
	s.i, s.state, s.kind, s.first = open+1, atElement, kind, true
	return nil
}

func (s *Scanner) scalar(bit uint16, i int) (end int, err error) {
	s.head.Seen |= bit
	switch bit {
	case TopLineage:
		s.head.Lineage, end, err = readString(s.b, i, depthTop, "", "lineage")
		return end, err
	case TopTerraformVersion:
		s.head.TerraformVersion, end, err = readString(s.b, i, depthTop, "", "terraform_version")
		return end, err
	}
	end, f := skipValue(s.b, i, depthTop)
	if f != ok {
		return 0, syntaxError(s.b, end, f)
	}
	n, whole := unsigned(s.b[i:end])
	kind := typeName(s.b[i])
	switch {
	case bit == TopVersion && whole && n == 4:
		s.head.Version = 4
		return end, nil
	case bit == TopVersion && kind == "a number":
		return 0, shapeError(s.b, i, "version must be 4, not %.40s", s.b[i:end])
	case bit == TopVersion:
		return 0, shapeError(s.b, i, "version must be 4, not %s", kind)
	case whole, kind == "null":
		s.head.Serial, s.head.SerialStart, s.head.SerialEnd = n, i, end
		return end, nil
	case kind == "a number":
		return 0, shapeError(s.b, i, "serial must be a whole number from 0 to 2^64-1, not %.40s", s.b[i:end])
	}
	return 0, shapeError(s.b, i, "serial must be a whole number, not %s", kind)
}

// unsigned reads a number as encoding/json does for a uint64: digits only.
func unsigned(text []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	return n, err == nil
}

func (s *Scanner) separator() error {
	i := space(s.b, s.i)
	if i >= len(s.b) {
		return syntaxError(s.b, i, failToken)
	}
	switch s.b[i] {
	case ',':
		s.i, s.state, s.first = i+1, atElement, false
	case s.closing():
		s.leave(i)
	default:
		return syntaxError(s.b, i, failToken)
	}
	return nil
}

func (s *Scanner) closing() byte {
	if s.kind == CutOutput {
		return '}'
	}
	return ']'
}

// leave goes on behind the container that closes at b[i].
func (s *Scanner) leave(i int) {
	s.i, s.first, s.state = i+1, false, inTop
	if s.kind == CutInstance {
		s.state = inResource
	}
}

func (s *Scanner) element() (found bool, err error) {
	i := space(s.b, s.i)
	s.i = i
	if i >= len(s.b) {
		if s.opt.Fragment {
			return false, io.EOF
		}
		return false, syntaxError(s.b, i, failToken)
	}
	if s.first && s.b[i] == s.closing() {
		s.leave(i)
		return false, nil
	}
	t := &s.tok
	t.Kind, t.Cut, t.Ctx, t.Start = s.kind, true, s.Context(), i
	var end int
	switch s.kind {
	case CutOutput:
		end, err = s.output(i)
	case CutResource:
		end, err = s.resource(i)
	case CutInstance:
		t.Cut = !s.first && !s.res.late
		end, err = s.instance(i)
	default:
		end, err = s.check(i)
	}
	if err != nil {
		return false, err
	}
	t.End, t.raw = end, s.b[i:end:end]
	s.i = end
	return true, nil
}

func (s *Scanner) output(i int) (int, error) {
	s.state = afterElement
	name, value, _, f := memberAt(s.b, i)
	if f != ok {
		return 0, syntaxError(s.b, value, f)
	}
	if s.b[value] != '{' {
		return 0, wrongType(s.b, value, depthElement, "an output", "an object")
	}
	end, f := skipValue(s.b, value, depthElement)
	if f != ok {
		return 0, syntaxError(s.b, end, f)
	}
	s.tok.Name, s.tok.Value = decode(name, ""), value
	return end, nil
}

func (s *Scanner) check(i int) (int, error) {
	s.state = afterElement
	if s.b[i] != '{' {
		return 0, wrongType(s.b, i, depthElement, "a check result", "an object")
	}
	end, f := skipValue(s.b, i, depthElement)
	if f != ok {
		return 0, syntaxError(s.b, end, f)
	}
	return end, nil
}

func (s *Scanner) resource(start int) (int, error) {
	b := s.b
	if b[start] != '{' {
		return 0, wrongType(b, start, depthElement, "a resource", "an object")
	}
	r := &s.res
	*r = resource{Resource: r.Resource}
	end, at, err := r.head(b, start+1)
	if err != nil {
		return 0, err
	}
	if at == stepOpened && s.opt.Reordered {
		if cut, err := r.lookAhead(b, end-1); err != nil && !(cut && s.opt.Fragment) {
			return 0, err
		}
	}
	if !r.ahead {
		r.settle()
	}
	if err := r.complete(b, start); err != nil {
		return 0, err
	}
	s.tok.Resource = r.Resource
	if at == stepClosed {
		s.state = afterElement
	} else {
		s.state, s.kind, s.first = atElement, CutInstance, true
	}
	return end, nil
}

// resourceTail reads what stands behind a resource's instances.
func (s *Scanner) resourceTail() error {
	end, at, err := s.res.member(s.b, s.i, false)
	if err != nil {
		return err
	}
	s.i = end
	if at == stepClosed {
		s.state, s.kind = afterElement, CutResource
	}
	return nil
}

func (s *Scanner) instance(start int) (int, error) {
	b := s.b
	s.state = afterElement
	if b[start] != '{' {
		return 0, wrongType(b, start, depthElemInst, "an instance", "an object")
	}
	inst := &s.tok.Inst
	inst.Key, inst.Deposed = Key{}, ""
	var seen uint32
	i := start + 1
	for first := true; ; first = false {
		name, value, closed, f := nextMember(b, i, first)
		if f != ok {
			return 0, syntaxError(b, value, f)
		}
		if closed {
			i = value
			break
		}
		bit := instMember(name)
		if bit&seen != 0 {
			return 0, ambiguous(b, value, string(name))
		}
		seen |= bit
		var err error
		switch bit {
		case instIndexKey:
			inst.Key, i, err = readKey(b, value)
		case instDeposed:
			inst.Deposed, i, err = readString(b, value, depthInstance, "", "deposed")
		default:
			if i, f = skipValue(b, value, depthInstance); f != ok {
				return 0, syntaxError(b, i, f)
			}
		}
		if err != nil {
			return 0, err
		}
	}
	s.tok.Resource, inst.Resource = s.res.Resource, s.res.Resource
	inst.Raw, inst.Rest = b[start:i:i], s.res.rest
	return i, nil
}

func readKey(b []byte, i int) (Key, int, error) {
	switch c := b[i]; {
	case c == '"':
		text, end, err := readString(b, i, depthInstance, "", "index_key")
		return Key{KeyString, text}, end, err
	case c == '-' || '0' <= c && c <= '9':
		end, f := skipNumber(b, i)
		if f != ok {
			return Key{}, 0, syntaxError(b, end, f)
		}
		return Key{KeyInt, string(b[i:end])}, end, nil
	case c == 'n':
		end, f := skipWord(b, i, "null")
		if f != ok {
			return Key{}, 0, syntaxError(b, end, f)
		}
		return Key{}, end, nil
	}
	return Key{}, 0, wrongType(b, i, depthInstance, "index_key", "a string, a number or null")
}
