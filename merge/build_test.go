package merge_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/kltest"
	"kl/merge"
)

// TestAdditionsAsTerraformWritesThem merges two sides that each added instances, and expects the bytes of a state with
// both.
func TestAdditionsAsTerraformWritesThem(t *testing.T) {
	sides := map[string]struct{ head, ours []string }{
		"new resources":         {[]string{"aws_instance.a"}, []string{"aws_instance.b"}},
		"ours first":            {[]string{"aws_instance.b"}, []string{"aws_instance.a"}},
		"first of all":          {[]string{"aws_instance.zz"}, []string{"aaa_first.a"}},
		"last of all":           {[]string{"aws_instance.zz"}, []string{`module.zzz["x"].zzz_last.z[3]`}},
		"several":               {[]string{"aws_x.a", "aws_x.c"}, []string{"aws_x.b", "aws_x.d", "aws_x.e[1]", "aws_x.e[0]"}},
		"instances of one":      {[]string{"aws_x.n[1]", "aws_x.n[10]"}, []string{"aws_x.n[0]", "aws_x.n[2]", "aws_x.n[11]"}},
		"string keys":           {[]string{`aws_x.n["a"]`, `aws_x.n["c"]`}, []string{`aws_x.n["b"]`, `aws_x.n["d"]`}},
		"kinds of keys":         {[]string{`aws_x.n["a"]`, `aws_x.n[7]`}, []string{`aws_x.n`, `aws_x.n[8]`, `aws_x.n["0"]`}},
		"nested modules":        {[]string{`module.a.module.b[0].aws_x.n`}, []string{`module.a.aws_x.n`, `module.a.module.b[1].aws_x.n`}},
		"data beside resources": {[]string{`data.aws_x.n`}, []string{`aws_x.n`}},
	}
	for name, side := range sides {
		for _, size := range []int{2, 3, 40} {
			t.Run(name, func(t *testing.T) {
				both := kltest.NewState(size, 1)
				for _, a := range append(side.head, side.ours...) {
					both.Add(a)
				}
				head, ours := both.Clone(), both.Clone()
				for _, a := range side.ours {
					head.Remove(a)
				}
				for _, a := range side.head {
					ours.Remove(a)
				}
				head.SetSerial(7)
				ours.SetSerial(6)
				ours.SetTerraformVersion("1.12.0-rc1")
				both.SetSerial(8)
				both.SetTerraformVersion("1.12.0-rc1")
				mine := map[string]bool{}
				for _, a := range side.ours {
					mine[a] = true
				}
				take := func(e merge.Element) bool { return e.Class != merge.Instance || mine[e.Address] }
				layouts := map[string]func(*kltest.State) []byte{"indented": (*kltest.State).Bytes, "compact": (*kltest.State).Compact}
				for hl, layHead := range layouts {
					for ol, layOurs := range layouts {
						h, o, want := layHead(head), layOurs(ours), layHead(both)
						got, err := merge.Build(h, o, whole(h, o), take, merge.Options{Serial: 8, TerraformVersion: "1.12.0-rc1"})
						if err != nil {
							t.Fatalf("%s head, %s ours: %v", hl, ol, err)
						}
						if diff := cmp.Diff(string(want), string(got)); diff != "" {
							t.Fatalf("%s head, %s ours (-want +got):\n%s", hl, ol, diff)
						}
					}
				}
			})
		}
	}
}
