package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"kl/scripts/rig"
)

// Buckets of the summary.
const (
	intended   = "working as intended"
	weak       = "behaviour correct, messaging weak"
	surprising = "behaviour surprising"
	bug        = "likely bugs"
)

var buckets = []string{intended, weak, surprising, bug}

// report is what the audit found.
type report struct {
	Format    int       `json:"format"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Server    struct {
		Address string `json:"address"`
		Own     bool   `json:"own"` // started by the audit
		Version string `json:"version"`
	} `json:"server"`
	Terraform struct {
		Path    string `json:"path"`
		Version string `json:"version"`
	} `json:"terraform"`
	Platform string              `json:"platform"`
	Rule     string              `json:"rule"`
	Counts   map[string]int      `json:"counts"`
	Buckets  map[string][]string `json:"buckets"`
	Records  []*record           `json:"records"`
}

func newReport(a *audit) *report {
	r := &report{Format: 1, StartedAt: time.Now().UTC(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Rule: rule}
	r.Server.Own = a.o.address == ""
	r.Server.Address = cmp.Or(a.o.address, "a server of its own")
	r.Terraform.Path = a.o.terraform
	return r
}

// bucketOf sorts a scenario into the summary.
func bucketOf(r *record) string {
	switch {
	case r.Result == fail:
		return bug
	case r.Result == unclear:
		return surprising
	case slices.ContainsFunc(r.Met, func(m met) bool { return m.Shows != clear }):
		return weak
	}
	return intended
}

// conclude writes the records that look back on all others, and counts.
func (rep *report) conclude(wanted []string) {
	rep.Counts = map[string]int{pass: 0, fail: 0, unclear: 0}
	rep.Buckets = map[string][]string{}
	for _, b := range buckets {
		rep.Buckets[b] = []string{}
	}
	for _, r := range rep.Records {
		r.Bucket = bucketOf(r)
	}
	if len(wanted) == 0 || slices.Contains(wanted, "9") {
		rep.Records = append(rep.Records, rep.surface())
	}
	for _, r := range rep.Records {
		rep.Counts[r.Result]++
		rep.Buckets[r.Bucket] = append(rep.Buckets[r.Bucket], r.ID)
	}
	if len(wanted) == 0 || slices.Contains(wanted, "10") {
		rep.Records = append(rep.Records, rep.summary())
		rep.Counts[pass]++
	}
}

// surface is 9: every failure that was met, once more.
func (rep *report) surface() *record {
	r := newRecord("9")
	n := map[string]int{}
	for _, other := range rep.Records {
		for _, m := range other.Met {
			n[m.Shows]++
			m.What = other.ID + ": " + m.What
			r.Met = append(r.Met, m)
			r.expect(m.HTTPRight, "%s: the HTTP behaviour was not right", m.What)
			r.expect(m.Class != "unknown", "%s: the class of the failure is not known", m.What)
		}
	}
	r.did("looked at the %d failures that were met on purpose", len(r.Met))
	r.note("what terraform or kl showed was %s %d times, %s %d times, %s %d times", clear, n[clear], partial, n[partial], poor, n[poor])
	r.expect(n[poor] == 0, "%d failures were shown poorly", n[poor])
	r.Bucket = bucketOf(r)
	return r
}

// summary is 10.
func (rep *report) summary() *record {
	r := newRecord("10")
	r.Bucket = intended
	for _, b := range buckets {
		r.note("%s: %s", b, cmp.Or(strings.Join(rep.Buckets[b], ", "), "none"))
	}
	return r
}

func newRecord(id string) *record {
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.id == id })
	return &record{
		ID: id, Title: scenarios[i].title, Result: pass, Took: "0s", states: map[string]bool{}, paths: map[[2]string]bool{},
		Did: []string{}, Screen: []screen{}, Log: []string{}, HTTP: []httpFact{}, Met: []met{}, Notes: []string{}, ids: map[string]string{},
	}
}

// save keeps what is left of failed scenarios, beside the report.
func (rep *report) save(o options) error {
	beside := cmp.Or(o.out, o.json, "audit.md")
	folder := strings.TrimSuffix(beside, filepath.Ext(beside)) + ".failures"
	var errs []error
	for _, r := range rep.Records {
		if r.Result == fail && r.a != nil {
			errs = append(errs, r.save(folder))
		}
	}
	return errors.Join(errs...)
}

// write puts the report where it is wanted.
func (rep *report) write(o options, stdout io.Writer) error {
	text := rep.markdown()
	var err error
	if o.out == "" {
		_, err = io.WriteString(stdout, text)
	} else {
		err = os.WriteFile(o.out, []byte(text), 0o600)
	}
	if o.json != "" {
		err = errors.Join(err, rig.WriteJSON(o.json, rep))
	}
	return err
}

// markdown is the report for people.
func (rep *report) markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# Audit of the execution plane\n\n")
	p("| | |\n|---|---|\n| server | %s, version %s |\n| client | %s, version %s |\n| platform | %s |\n| begun, ended | %s, %s |\n| result | %d passed, %d failed, %d unclear |\n\n",
		rep.Server.Address, rep.Server.Version, rep.Terraform.Path, rep.Terraform.Version, rep.Platform,
		rep.StartedAt.Format(time.RFC3339), rep.EndedAt.Format(time.RFC3339), rep.Counts[pass], rep.Counts[fail], rep.Counts[unclear])
	p("## Summary\n\n")
	for _, bucket := range buckets {
		p("- **%s**: %s\n", bucket, cmp.Or(strings.Join(rep.Buckets[bucket], ", "), "none"))
	}
	p("\nA scenario that failed is a likely bug; one that was not played to its end is surprising;\none whose failures were not all shown clearly has weak messaging.\n\n## The rule for what is shown\n\n%s\n", rep.Rule)
	p("\n## Scenarios\n\n| id | scenario | result | failures met | shown | took |\n|---|---|---|---|---|---|\n")
	for _, r := range rep.Records {
		var classes, shown []string
		for _, m := range r.Met {
			classes, shown = append(classes, fmt.Sprintf("%s (%d)", m.Class, m.Status)), append(shown, m.Shows)
		}
		if r.ID == "9" { // they stand in the rows above
			classes, shown = []string{fmt.Sprint(len(r.Met))}, nil
		}
		p("| %s | %s | %s | %s | %s | %s |\n", r.ID, r.Title, r.Result, strings.Join(classes, ", "), strings.Join(shown, ", "), r.Took)
	}
	for _, r := range rep.Records {
		r.markdown(p)
	}
	return b.String()
}

func (r *record) markdown(p func(string, ...any)) {
	p("\n### %s %s\n\nResult: **%s** (%s), %s.\n", r.ID, r.Title, r.Result, r.Bucket, r.Took)
	if r.Saved != "" {
		p("\nSaved: %s\n", r.Saved)
	}
	if len(r.Did) > 0 {
		p("\nWhat was done:\n\n")
		for _, d := range r.Did {
			p("- `%s`\n", d)
		}
	}
	if len(r.Met) > 0 {
		p("\n| failure met | class | HTTP | code | right | shown | because | what kl why says |\n|---|---|---|---|---|---|---|---|\n")
		for _, m := range r.Met {
			p("| %s | %s | %d | `%s` | %v | %s | %s | %s |\n", cell(m.What), m.Class, m.Status, m.Code, m.HTTPRight, m.Shows, cell(m.Because), cell(m.Explanation))
		}
	}
	for _, s := range r.Screen {
		if s.Exit != 0 {
			p("\n`%s` (exit code %d):\n\n```\n%s\n```\n", s.Command, s.Exit, s.Text)
		}
	}
	if len(r.Notes) > 0 {
		p("\nNotes:\n\n")
		for _, n := range r.Notes {
			p("- %s\n", strings.ReplaceAll(n, "\n", " "))
		}
	}
	if len(r.Log) > 0 {
		p("\n<details><summary>%d lines of the server's log</summary>\n\n```json\n%s\n```\n\n</details>\n", len(r.Log), strings.Join(r.Log, "\n"))
	}
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}
