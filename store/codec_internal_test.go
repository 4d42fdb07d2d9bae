package store

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// texts are two texts that have much in common, and few different bytes so that
// they agree by chance, too.
func texts(t *rapid.T) (a, b []byte) {
	part := func(label string) []byte {
		return rapid.SliceOfN(rapid.SampledFrom([]byte("ab")), 0, 40).Draw(t, label)
	}
	begin, end := part("begin"), part("end")
	return bytes.Join([][]byte{begin, part("a"), end}, nil), bytes.Join([][]byte{begin, part("b"), end}, nil)
}

func TestCommon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts(t)
		p, q := common(a, b)
		n := min(len(a), len(b))
		if p+q > n || !bytes.Equal(a[:p], b[:p]) || !bytes.Equal(a[len(a)-q:], b[len(b)-q:]) {
			t.Fatalf("common(%s, %s) = %d, %d", a, b, p, q)
		}
		if p+q < n && (a[p] == b[p] || a[len(a)-q-1] == b[len(b)-q-1]) {
			t.Fatalf("common(%s, %s) = %d, %d: not the longest", a, b, p, q)
		}
	})
}

func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "part")
		raw := bytes.Repeat(part, rapid.IntRange(0, 2*packQuick/100).Draw(t, "times"))
		got, err := unpack(pack(raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%d bytes come back as %d: %v", len(raw), len(got), err)
		}
	})
}
