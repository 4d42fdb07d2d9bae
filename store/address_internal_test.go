package store

import "testing"

func TestAddresses(t *testing.T) {
	for address, want := range map[string]struct {
		config string
		data   bool
	}{
		"aws_x.y":                                {"aws_x.y", false},
		`aws_x.y["a.b[0]"]`:                      {"aws_x.y", false},
		"aws_x.y[0]":                             {"aws_x.y", false},
		"data.aws_x.y[0]":                        {"data.aws_x.y", true},
		`module.m["data.x"].aws_x.y`:             {"module.m.aws_x.y", false},
		`module.m["a\"]b"].module.n[3].data.x.y`: {"module.m.module.n.data.x.y", true},
		`module.data.x.y["k"] (deposed object 0a1b2c3d)`: {"module.data.x.y", false},
		"module.m.data.x.y": {"module.m.data.x.y", true},
		`x.y["unterminated`: {"x.y", false},
	} {
		if got := ConfigAddress(address); got != want.config {
			t.Errorf("ConfigAddress(%s) = %s, want %s", address, got, want.config)
		}
		if got := isData(address); got != want.data {
			t.Errorf("isData(%s) = %v", address, got)
		}
	}
}
