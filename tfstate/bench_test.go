package tfstate_test

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"testing"

	"kl/kltest"
	"kl/tfstate"
)

var benchSizes = []int{10, 1000, 10000}

// each runs fn on states of several sizes, as Terraform and as OpenTofu write them.
func each(b *testing.B, fn func(b *testing.B, doc []byte)) {
	for _, n := range benchSizes {
		s := kltest.NewState(n, 1)
		for _, layout := range []struct {
			name string
			doc  []byte
		}{{"indented", s.Bytes()}, {"compact", s.Compact()}} {
			b.Run(strconv.Itoa(n)+"/"+layout.name, func(b *testing.B) {
				b.SetBytes(int64(len(layout.doc)))
				b.ReportAllocs()
				fn(b, layout.doc)
			})
		}
	}
}

func BenchmarkScan(b *testing.B) {
	each(b, func(b *testing.B, doc []byte) {
		for b.Loop() {
			s := tfstate.NewScanner(doc, tfstate.Options{})
			var h uint64
			for {
				t, err := s.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					b.Fatal(err)
				}
				h += t.StartHash(1)
			}
			if h == 0 {
				b.Fatal("no elements")
			}
		}
	})
}

func BenchmarkSniff(b *testing.B) {
	each(b, func(b *testing.B, doc []byte) {
		for b.Loop() {
			if _, err := tfstate.Sniff(doc); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkInstanceHash is the pass over all instances that a first POST needs, without the scan.
func BenchmarkInstanceHash(b *testing.B) {
	each(b, func(b *testing.B, doc []byte) {
		tokens, err := scanAll(tfstate.NewScanner(doc, tfstate.Options{}))
		if err != nil {
			b.Fatal(err)
		}
		h := tfstate.NewHasher(1)
		for b.Loop() {
			for i := range tokens {
				if tokens[i].Kind == tfstate.CutInstance {
					h.Instance(tokens[i].Inst.Raw)
				}
			}
		}
	})
}

func BenchmarkAddress(b *testing.B) {
	tokens, err := scanAll(tfstate.NewScanner(kltest.NewState(1000, 1).Bytes(), tfstate.Options{}))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range tokens {
			_ = tokens[i].Inst.Address()
		}
	}
}

func BenchmarkReset(b *testing.B) {
	doc := kltest.NewState(1000, 1).Bytes()
	tokens, err := scanAll(tfstate.NewScanner(doc, tfstate.Options{}))
	if err != nil {
		b.Fatal(err)
	}
	cuts := slices.DeleteFunc(tokens, func(t tfstate.Token) bool { return !t.Cut })
	t := cuts[len(cuts)/2]
	s := tfstate.NewScanner(nil, tfstate.Options{})
	b.ReportAllocs()
	for b.Loop() {
		s.Reset(doc, t.Start, t.Ctx)
		if _, err := s.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
