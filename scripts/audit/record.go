package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"kl/scripts/rig"
	"kl/wire"
)

// Results of a scenario.
const (
	pass    = "pass"
	fail    = "fail"
	unclear = "unclear" // it was not played to its end
)

// How well a screen explains a failure; see rule.
const (
	clear   = "clear"
	partial = "partial"
	poor    = "poor"
)

// rule is how the audit judges what a screen shows. It stands in the report.
const rule = `A failure that was met on purpose is judged by what stood on the screen of the one
who met it, not by taste:

- **clear**: the screen has the server's own sentence, its next step, or the id of the lock that is in the way.
- **partial**: it has only the HTTP status, or one of the client's fixed texts for it
  ("requires auth", "invalid auth", "HTTP error: N", "response code N"), and
  ` + "`kl why --last`" + ` with the same credentials names the code and a next step.
- **poor**: anything else.

The HTTP behaviour is right when status and class are those of the contract for what was done.`

// record is what the audit writes down of one scenario.
type record struct {
	ID     string     `json:"id"`
	Title  string     `json:"title"`
	Result string     `json:"result"`
	Bucket string     `json:"bucket"`
	Did    []string   `json:"did"`
	Screen []screen   `json:"terraform_output"`
	Log    []string   `json:"backend_log"`
	HTTP   []httpFact `json:"http"`
	Met    []met      `json:"failures_met"`
	Notes  []string   `json:"notes"`
	Took   string     `json:"took"`
	Saved  string     `json:"saved,omitempty"` // folder with what is left of a failed scenario

	a      *audit
	mark   int                // how long the server's log was
	states map[string]bool    // names whose log lines belong to the scenario
	paths  map[[2]string]bool // workspace and environment of paths that lead nowhere
	ids    map[string]string  // for whoever looks into a failure
	procs  []*rig.Process
	mu     sync.Mutex
}

// screen is what one command showed, in short.
type screen struct {
	Command string `json:"command"`
	Exit    int    `json:"exit"`
	Text    string `json:"text"`
}

// httpFact is one request as the server logged it.
type httpFact struct {
	Method    string `json:"method"`
	Status    int    `json:"status"`
	Class     string `json:"class,omitempty"`
	Code      string `json:"code,omitempty"`
	Principal string `json:"principal_kind,omitempty"`
	RequestID string `json:"request_id"`
}

// met is a failure that was met on purpose.
type met struct {
	What        string `json:"what"`
	Class       string `json:"class"` // auth, scope/path, quota, conflict, lifecycle, environment unavailable, unknown
	Status      int    `json:"status"`
	Code        string `json:"code"`
	RequestID   string `json:"request_id"`
	WantClass   string `json:"want_class"`
	WantStatus  int    `json:"want_status"`
	HTTPRight   bool   `json:"http_right"`
	Shows       string `json:"shows"` // clear, partial, poor
	Because     string `json:"because"`
	Explanation string `json:"explanation"` // what kl why says
}

// classNames are the audit's names of the server's classes.
var classNames = map[string]string{
	"auth": "auth", "scope": "scope/path", "quota": "quota", "conflict": "conflict", "lock": "conflict",
	"lifecycle": "lifecycle", "unavailable": "environment unavailable",
}

// expect notes a failure of the scenario unless ok.
func (r *record) expect(ok bool, format string, args ...any) {
	if !ok {
		r.failed(format, args...)
	}
}

func (r *record) failed(format string, args ...any) {
	r.Result = fail
	r.note("FAILED: "+format, args...)
}

// elsewhere notes what the log would tell, of a server whose log is not at hand.
func (r *record) elsewhere(format string, args ...any) {
	r.note("not looked at, for the server's log is elsewhere: "+format, args...)
}

func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *record) did(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Did = append(r.Did, fmt.Sprintf(format, args...))
}

// dir is a working directory of a scenario.
type dir struct {
	r    *record
	path string
	env  []string
}

// at points a client at a state of a workspace's environment, and counts the
// state's log lines to the scenario.
func (r *record) at(workspace, environment, state, password string) []string {
	r.states[state] = true
	r.paths[[2]string{workspace, environment}] = true
	return rig.StateEnv(r.a.base, workspace, environment, state, password)
}

// dir makes a directory with a configuration. The backend's settings come from
// env.
func (r *record) dir(name, config string, env []string) (*dir, error) {
	d := &dir{r: r, path: filepath.Join(r.a.folder, strings.ToLower(r.ID), name), env: env}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, err
	}
	return d, d.write("main.tf", config)
}

// initDir is dir with init done.
func (r *record) initDir(ctx context.Context, name, config string, env []string) (*dir, error) {
	d, err := r.dir(name, config, env)
	if err != nil {
		return nil, err
	}
	return d, d.must(ctx, "init")
}

// tokenDir is initDir for the scenario's state in an environment, with an
// automation token of its own.
func (r *record) tokenDir(ctx context.Context, workspace, environment, config string) (*dir, error) {
	token, err := r.tokenFor(ctx, environment)
	if err != nil {
		return nil, err
	}
	return r.initDir(ctx, "dir", config, r.at(workspace, environment, r.stateName(), token))
}

func (d *dir) write(name, text string) error {
	return os.WriteFile(filepath.Join(d.path, name), []byte(text), 0o600)
}

func (d *dir) has(name string) bool {
	_, err := os.Stat(filepath.Join(d.path, name))
	return err == nil
}

// start runs terraform beside the audit.
func (d *dir) start(args ...string) (*rig.Process, error) {
	switch args[0] {
	case "apply", "destroy":
		if !slices.ContainsFunc(args, func(a string) bool { return strings.HasSuffix(a, ".tfplan") }) {
			args = slices.Insert(slices.Clone(args), 1, "-auto-approve")
		}
		fallthrough
	case "init", "plan":
		args = slices.Insert(slices.Clone(args), 1, "-no-color", "-input=false")
	}
	return d.launch(d.r.a.o.terraform, args...)
}

func (d *dir) launch(bin string, args ...string) (*rig.Process, error) {
	where := filepath.Base(d.path)
	if d.path == d.r.a.folder {
		where = "operator"
	}
	d.r.did("%s: %s %s", where, filepath.Base(bin), strings.Join(args, " "))
	p, err := rig.Start(d.path, append(append(rig.CleanEnv(d.r.a.folder), "KL_TERRAFORM="+d.r.a.o.terraform, "GATE="+d.path), d.env...), bin, args...)
	if err == nil {
		d.r.mu.Lock()
		d.r.procs = append(d.r.procs, p)
		d.r.mu.Unlock()
	}
	return p, err
}

// finish waits for a command and writes down what it showed.
func (d *dir) finish(ctx context.Context, p *rig.Process) (rig.Result, error) {
	code, err := p.Wait(ctx)
	if err != nil {
		return rig.Result{}, err
	}
	r := rig.Result{Code: code, Out: p.Out.String(), Stdout: p.Stdout.String()}
	d.r.mu.Lock()
	d.r.Screen = append(d.r.Screen, screen{Command: p.Name, Exit: code, Text: short(r)})
	d.r.mu.Unlock()
	return r, nil
}

// tf runs terraform to its end.
func (d *dir) tf(ctx context.Context, args ...string) (rig.Result, error) {
	p, err := d.start(args...)
	if err != nil {
		return rig.Result{}, err
	}
	return d.finish(ctx, p)
}

// must runs terraform and demands that it succeeds.
func (d *dir) must(ctx context.Context, args ...string) error {
	r, err := d.tf(ctx, args...)
	return succeeded(r, err, "terraform "+strings.Join(args, " "))
}

func succeeded(r rig.Result, err error, what string) error {
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("%s: exit code %d, want 0: %s", what, r.Code, short(r))
	}
	return err
}

// kl runs a verb with the directory's credentials.
func (d *dir) kl(ctx context.Context, args ...string) (rig.Result, error) {
	p, err := d.launch(d.r.a.bin, args...)
	if err != nil {
		return rig.Result{}, err
	}
	return d.finish(ctx, p)
}

// operator runs a verb of kl as the operator, on an environment.
func (r *record) operator(ctx context.Context, environment string, args ...string) (rig.Result, error) {
	d := &dir{r: r, path: r.a.folder, env: []string{"KL_ADDRESS=" + r.a.base, "KL_TOKEN=" + r.a.token, "KL_ENV=" + environment}}
	res, err := d.kl(ctx, args...)
	return res, succeeded(res, err, "kl "+strings.Join(args, " "))
}

// refusal is a failure that a scenario wants to meet.
type refusal struct {
	what   string
	status int
	class  string // of the server
	code   string
}

// meets demands that a command failed as it should, and judges what it showed.
func (d *dir) meets(ctx context.Context, res rig.Result, want refusal) error {
	d.r.expect(res.Code != 0, "%s: the command succeeded", want.what)
	why, err := rig.Run(ctx, d.path, append(rig.CleanEnv(d.r.a.folder), d.env...), d.r.a.bin, "why", "--last", "--json")
	if err != nil {
		return err
	}
	// the answer, or why asking was refused: for the same reason, as a rule
	var q wire.Request
	if json.Unmarshal([]byte(why.Stdout), &q) != nil {
		if i := strings.Index(why.Out, "{"); i >= 0 {
			_ = json.Unmarshal([]byte(why.Out[i:]), &q) // what cannot be read explains nothing
		}
		if q.Class == "auth" && q.Status == 0 {
			q.Status = 401
		}
	}
	return d.r.judge(res, q, want)
}

// judge writes down a failure that was met.
func (r *record) judge(res rig.Result, q wire.Request, want refusal) error {
	m := met{
		What: want.what, Class: classNames[q.Class], Status: q.Status, Code: q.Code, RequestID: q.RequestID,
		WantClass: classNames[want.class], WantStatus: want.status,
	}
	if m.Class == "" {
		m.Class = "unknown"
	}
	if q.Detail != "" {
		m.Explanation = q.Detail + "; next: " + q.NextStep
	}
	m.HTTPRight = q.Status == want.status && q.Class == want.class && q.Code == want.code
	r.expect(m.HTTPRight, "%s: got %d %s %s, want %d %s %s", want.what, q.Status, q.Class, q.Code, want.status, want.class, want.code)
	m.Shows, m.Because = shows(res.Out, q)
	r.Met = append(r.Met, m)
	return nil
}

// fixedTexts are what Terraform prints for a status, whatever the server says.
var fixedTexts = []string{"requires auth", "invalid auth", "HTTP error: ", "HTTP response code ", "response code: "}

// shows applies the rule.
func shows(out string, q wire.Request) (verdict, because string) {
	flat := rig.Flatten(out)
	holder, _ := q.Members["ID"].(string)
	switch {
	case q.Detail != "" && strings.Contains(flat, rig.Flatten(q.Detail)):
		return clear, "the screen has the server's sentence"
	case q.NextStep != "" && strings.Contains(flat, rig.Flatten(q.NextStep)):
		return clear, "the screen has the next step"
	case holder != "" && strings.Contains(flat, holder):
		return clear, "the screen names the lock that is in the way"
	}
	for _, text := range fixedTexts {
		if strings.Contains(flat, text) {
			if q.Code != "" && q.NextStep != "" {
				return partial, fmt.Sprintf("the screen has only a fixed text (%q); kl why names %s and a next step", strings.TrimSpace(text), q.Code)
			}
			return poor, fmt.Sprintf("the screen has only a fixed text (%q), and kl why knows nothing of it", strings.TrimSpace(text))
		}
	}
	return poor, "the screen has neither the cause nor the status"
}

// short is what matters of a screen: from the first error on, or the end.
func short(r rig.Result) string {
	const most = 12
	var lines []string
	for line := range strings.Lines(r.Out) {
		if line = strings.Trim(line, "│╷╵ \n"); line != "" {
			lines = append(lines, line)
		}
	}
	if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Error") || strings.HasPrefix(l, "kl: ") }); i >= 0 {
		lines = lines[i:]
	} else if len(lines) > 3 {
		lines = lines[len(lines)-3:]
	}
	if len(lines) > most {
		lines = append(lines[:most], "…")
	}
	return strings.Join(lines, "\n")
}

// end stops what is left of a scenario, and gathers its log lines.
func (r *record) end(began time.Time) error {
	var errs []error
	for _, p := range r.procs {
		if p.Alive() {
			errs = append(errs, p.Signal(syscall.SIGKILL))
		}
		<-p.Done
	}
	r.Took = time.Since(began).Round(time.Millisecond).String()
	r.gatherLog()
	return errors.Join(errs...)
}

// maxLines bounds the log lines that a record has.
const maxLines = 40

// gatherLog takes the server's log lines of the scenario's states.
func (r *record) gatherLog() {
	if r.a.server == nil {
		return
	}
	dropped := 0
	for line := range strings.Lines(r.a.server.Log()[r.mark:]) {
		var l struct {
			Method, Class, Code, State, Workspace, Environment string
			Status                                             int
			Kind                                               string `json:"principal_kind"`
			RequestID                                          string `json:"request_id"`
			Route                                              string
		}
		if json.Unmarshal([]byte(line), &l) != nil || !strings.HasPrefix(l.Route, "/states/") && !strings.HasPrefix(l.Route, "/runs/") {
			continue
		}
		if !r.states[l.State] && (l.State != "" || !r.paths[[2]string{l.Workspace, l.Environment}]) {
			continue
		}
		if len(r.Log) >= maxLines && l.Status < 400 {
			dropped++
			continue
		}
		r.Log = append(r.Log, strings.TrimSpace(line))
		r.HTTP = append(r.HTTP, httpFact{Method: l.Method, Status: l.Status, Class: l.Class, Code: l.Code, Principal: l.Kind, RequestID: l.RequestID})
	}
	if dropped > 0 {
		r.note("%d more log lines of requests that succeeded", dropped)
	}
}

// logged tells whether the server's log has a line of the scenario that cond
// likes; known is false when there is no log at hand.
func (r *record) logged(cond func(line map[string]any) bool) (found, known bool) {
	if r.a.server == nil {
		return false, false
	}
	for line := range strings.Lines(r.a.server.Log()[r.mark:]) {
		var l map[string]any
		if json.Unmarshal([]byte(line), &l) == nil && cond(l) {
			return true, true
		}
	}
	return false, true
}

// save keeps what helps to understand a failed scenario.
func (r *record) save(folder string) error {
	to := filepath.Join(folder, r.ID)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	r.Saved = to
	from := filepath.Join(r.a.folder, strings.ToLower(r.ID))
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() != "errored.tfstate" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, filepath.Base(filepath.Dir(path))+".errored.tfstate"), b, 0o600)
	})
	if errors.Is(err, os.ErrNotExist) { // it failed before it had a directory
		err = nil
	}
	return errors.Join(err,
		os.WriteFile(filepath.Join(to, "kl.log"), []byte(strings.Join(r.Log, "\n")+"\n"), 0o600),
		rig.WriteJSON(filepath.Join(to, "ids.json"), r.ids))
}
