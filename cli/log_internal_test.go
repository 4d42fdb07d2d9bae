package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

func TestConsoleLog(t *testing.T) {
	for name, c := range map[string]struct {
		log  func(l zerolog.Logger)
		want string
	}{
		"fields in their order": {
			func(l zerolog.Logger) {
				l.Info().Str("route", "/a").Int("status", 200).Float64("duration", 1.5).Bool("ok", true).Msg("request")
			},
			"INF request route=/a status=200 duration=1.5 ok=true",
		},
		"what needs quotes": {
			func(l zerolog.Logger) {
				l.Warn().Str("a", "two words").Str("b", `q"\`).Str("c", "").Str("d", "x=y").Msg("a longer message")
			},
			`WRN a longer message a="two words" b="q\"\\" c="" d="x=y"`,
		},
		"lists and objects": {
			func(l zerolog.Logger) {
				l.Error().Strs("list", []string{"a]", "b"}).Interface("object", map[string]any{"k": []int{1}}).AnErr("error", errors.New("no")).Msg("failed")
			},
			`ERR failed list=["a]","b"] object={"k":[1]} error=no`,
		},
		"nothing that a terminal obeys": {
			func(l zerolog.Logger) {
				l.Info().Str("a", "\x1b[31m\u009b31m\x7f\n").Str("b", "käse").Strs("c", []string{"\u009b"}).Msg("request")
			},
			`INF request a="\u001b[31m\u009b31m\u007f\n" b="käse" c=["\u009b"]`,
		},
		"no message": {func(l zerolog.Logger) { l.Info().Str("a", "b").Send() }, "INF  a=b"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, colored bytes.Buffer
			c.log(zerolog.New(&consoleLog{out: &out}).With().Timestamp().Logger())
			c.log(zerolog.New(&consoleLog{out: &colored, color: true}))
			at, line, _ := strings.Cut(out.String(), " ")
			if line != c.want+"\n" || len(at) < len("2006-01-02T15:04:05Z") {
				t.Errorf("got  %s %q\nwant %q", at, line, c.want)
			}
			if !strings.Contains(colored.String(), colorField) || strings.Count(colored.String(), "\n") != 1 {
				t.Errorf("colored: %q", colored.String())
			}
		})
	}
}

// FuzzConsoleLog makes sure that no line breaks the formatter, and that none
// becomes two.
func FuzzConsoleLog(f *testing.F) {
	f.Add("name", "text", []byte(`{"level":"info","a":[1,{"b":"]"}],"message":"x"}`))
	f.Add(`"`, "\\\n\x1b", []byte(`{"a`))
	f.Fuzz(func(t *testing.T, name, text string, raw []byte) {
		l := &consoleLog{}
		l.format(nil, raw)
		var line bytes.Buffer
		log := zerolog.New(&line)
		log.Info().Str(name, text).Str("last", "z").Msg("m")
		got := string(l.format(nil, line.Bytes()))
		if !json.Valid(line.Bytes()) || name == "level" || name == "message" || name == "time" {
			return
		}
		if !strings.HasSuffix(got, " last=z\n") || strings.Count(got, "\n") != 1 {
			t.Fatalf("%s became %q", line.String(), got)
		}
	})
}
