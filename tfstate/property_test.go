package tfstate_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/kltest"
	"kl/tfstate"
)

var (
	seed   = flag.Uint64("seed", 1, "seed of the random documents")
	rounds = flag.Int("rounds", 1500, "number of random documents a property is tried on")
)

// randomDocuments calls fn with documents, a third of them without deliberate faults.
func randomDocuments(t *testing.T, fn func(t *testing.T, doc []byte)) {
	t.Helper()
	t.Logf("seed %d", *seed)
	n := *rounds
	if testing.Short() {
		n /= 10
	}
	for i := range n {
		faults := [...]int{0, 2, 20}[i%3]
		fn(t, newGen(*seed<<32+uint64(i), faults).document())
	}
}

func TestScanAgreesWithEncodingJSON(t *testing.T) {
	accepted, all := 0, 0
	randomDocuments(t, func(t *testing.T, doc []byte) {
		agree(t, doc)
		all++
		if _, err := scanAll(tfstate.NewScanner(doc, tfstate.Options{})); err == nil {
			accepted++
		}
	})
	if accepted < all/4 || accepted == all {
		t.Errorf("%d of %d documents were states: the generator does not exercise both sides", accepted, all)
	}
}

// TestScanAgreesOnDamage changes single bytes of documents.
func TestScanAgreesOnDamage(t *testing.T) {
	const bytesToTry = "\x00\"\\{}[],:x0-.eE \n\x1f\x7f\x80\xff/u"
	r := rand.New(rand.NewPCG(*seed, 2))
	randomDocuments(t, func(t *testing.T, doc []byte) {
		for range 4 {
			damaged := append([]byte(nil), doc...)
			damaged[r.IntN(len(damaged))] = bytesToTry[r.IntN(len(bytesToTry))]
			agree(t, damaged)
			agree(t, doc[:r.IntN(len(doc))])
		}
	})
}

func TestTruncatedAtEveryByte(t *testing.T) {
	for name, doc := range map[string][]byte{"sample": []byte(sample), "generated": kltest.NewState(2, 1).Bytes()} {
		step := 1
		if testing.Short() {
			step = 5
		}
		for n := 0; n < len(doc)-1; n += step {
			_, err := scanAll(tfstate.NewScanner(doc[:n], tfstate.Options{}))
			var syntax *tfstate.SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset != int64(n) {
				t.Fatalf("%s cut at %d: %v", name, n, err)
			}
			if _, err := tfstate.Sniff(doc[:n]); !errors.As(err, &syntax) || syntax.Offset != int64(n) {
				t.Fatalf("%s cut at %d: Sniff says %v", name, n, err)
			}
		}
	}
}

// TestResume checks for every cut that a scan that begins there goes on as the whole scan did, that a fragment which
// ends there ends as the whole scan stood, and the same for random fragments between two cuts.
func TestResume(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 3))
	check := func(t *testing.T, doc []byte) {
		for _, reordered := range []bool{false, true} {
			resumes(t, doc, reordered, r)
		}
	}
	randomDocuments(t, check)
	s := kltest.NewState(40, *seed)
	check(t, s.Bytes())
	check(t, s.Compact())
}

func resumes(t *testing.T, doc []byte, reordered bool, r *rand.Rand) {
	t.Helper()
	full := tfstate.NewScanner(doc, tfstate.Options{Reordered: reordered})
	tokens, fullErr := scanAll(full)
	part := tfstate.NewScanner(nil, tfstate.Options{Reordered: reordered})
	frag := tfstate.NewScanner(nil, tfstate.Options{Reordered: reordered, Fragment: true})
	var cuts []int
	for i := range tokens {
		if tokens[i].Cut {
			cuts = append(cuts, i)
		}
	}
	for _, at := range cuts {
		tok := &tokens[at]
		part.Reset(doc, tok.Start, tok.Ctx)
		if part.Context() != tok.Ctx {
			t.Fatalf("Reset to %+v stands at %+v", tok.Ctx, part.Context())
		}
		got, err := scanAll(part)
		same(t, doc, tokens[at:], got)
		if !sameError(fullErr, err) {
			t.Fatalf("from %d: ends with %v, the whole scan with %v\n%s", tok.Start, err, fullErr, doc)
		}
		if part.Done() != full.Done() {
			t.Fatalf("from %d: Done = %v", tok.Start, part.Done())
		}

		begin := cuts[r.IntN(len(cuts))]
		if begin > at {
			begin = at
		}
		ctx, pos := tokens[begin].Ctx, tokens[begin].Start
		if r.IntN(2) == 0 {
			begin, pos, ctx = 0, 0, tfstate.Context{}
		}
		frag.Reset(doc[:tok.Start:tok.Start], pos, ctx)
		got, err = scanAll(frag)
		if err != nil || frag.Done() || frag.Context() != tok.Ctx || frag.Offset() != tok.Start {
			t.Fatalf("fragment %d to %d: %v, done %v, stands at %+v, want %+v\n%s", pos, tok.Start, err, frag.Done(),
				frag.Context(), tok.Ctx, doc)
		}
		same(t, doc, tokens[begin:at], got)
	}
	frag.Reset(doc, 0, tfstate.Context{})
	got, err := scanAll(frag)
	var syntax *tfstate.SyntaxError
	if errors.As(fullErr, &syntax) && syntax.Offset == int64(len(doc)) {
		// A document that is cut off may be a fragment, and looking ahead may not see that it is none.
		same(t, doc, tokens, got[:min(len(got), len(tokens))])
		return
	}
	same(t, doc, tokens, got)
	if frag.Done() != full.Done() || !sameError(fullErr, err) {
		t.Fatalf("the whole document as a fragment: %v, done %v; as a document: %v\n%s", err, frag.Done(), fullErr, doc)
	}
}

func sameError(a, b error) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Error() == b.Error()
}

func same(t *testing.T, doc []byte, want, got []tfstate.Token) {
	t.Helper()
	equal := len(want) == len(got)
	for i := 0; equal && i < len(want); i++ {
		equal = relevant(&want[i]) == relevant(&got[i])
	}
	if !equal {
		var w, g []token
		for i := range want {
			w = append(w, relevant(&want[i]))
		}
		for i := range got {
			g = append(g, relevant(&got[i]))
		}
		t.Fatalf("tokens differ (-want +got):\n%s\n%s", cmp.Diff(w, g), doc)
	}
}

// relevant leaves out what a token's kind gives no meaning to.
func relevant(t *tfstate.Token) token {
	out := token{Kind: t.Kind, Cut: t.Cut, Start: t.Start, End: t.End, Hash: t.StartHash(1), Raw: string(t.Raw())}
	if t.Cut {
		out.Ctx = t.Ctx
	}
	switch t.Kind {
	case tfstate.CutOutput:
		out.Name, out.Value = t.Name, t.Value
	case tfstate.CutResource:
		out.Resource = t.Resource
	case tfstate.CutInstance:
		out.Resource, out.Address, out.Key = t.Resource, t.Inst.Address(), t.Inst.Key
	}
	return out
}

type token struct {
	Kind              tfstate.CutKind
	Cut               bool
	Ctx               tfstate.Context
	Start, End, Value int
	Hash              uint64
	Name              string
	Resource          tfstate.Resource
	Key               tfstate.Key
	Address, Raw      string
}
