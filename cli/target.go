package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"kl/auth"
	"kl/client"
	"kl/fault"
	"kl/terraform"
	"kl/wire"
)

var (
	stateName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	workspaceID   = regexp.MustCompile(`^ws_[a-z0-9]{12}$`)
	environmentID = regexp.MustCompile(`^env_[a-z0-9]{12}$`)
)

// targetFlags say which server and state a command means.
type targetFlags struct {
	address, username, password, token, env, state, caFile string
}

// online adds the flags of commands that talk to a server.
func (a *app) online(cmd *cobra.Command) *cobra.Command {
	f := cmd.PersistentFlags()
	f.StringVar(&a.flags.address, "address", "", "the server's address, or a whole state address")
	f.StringVar(&a.flags.username, "username", "", "workspace id, the user name of the backend block")
	f.StringVar(&a.flags.password, "password", "", "automation token or PAT, the password of the backend block")
	f.StringVar(&a.flags.token, "token", "", "control token")
	f.StringVar(&a.flags.env, "env", "", "environment: its public id, or its slug")
	f.StringVar(&a.flags.state, "state", "", "name of the state")
	f.StringVar(&a.flags.caFile, "ca-file", "", "PEM file with the certificates to trust; without it those in TF_HTTP_CLIENT_CA_CERTIFICATE_PEM, or the system's")
	return cmd
}

// source is one place that may know server, state and credentials.
type source struct {
	name                              string
	address                           string // as found
	username, password, token         string
	base, workspace, environment, key string // of the address
	client                            bool   // Terraform's own setting
}

// target is the server, and the state, that a command means.
type target struct {
	*client.Client
	address     string // the source's name
	base        string
	username    string
	password    string
	token       string
	workspace   string   // "" when no source knows it
	environment string   // id or slug, "" when no source knows it
	state       string   // "" when no source knows it
	noState     bool     // Terraform's own address names none
	notes       []string // why something that was found is not used
	trouble     error    // a source that could not be read
}

// resolve finds server and credentials, and the state if some source names
// one; stateArg is the argument STATE. The code of a failure is
// parameter_invalid or state_name_invalid.
func (a *app) resolve(stateArg string) (*target, error) {
	f := a.flags
	if stateArg != "" && f.state != "" && stateArg != f.state && !a.fromEnv["state"] {
		return nil, fault.New(fault.ParameterInvalid, "two states are named: %q, and %q by --state", stateArg, f.state).
			WithNext("name one of them")
	}
	t := &target{environment: f.env, state: cmp.Or(stateArg, f.state)}
	given := source{name: "--address (KL_ADDRESS)", address: f.address, username: f.username, password: f.password, token: f.token}
	for _, next := range append([]func() (source, error){func() (source, error) { return given, nil }}, a.sources(t)...) {
		s, err := next()
		if err != nil {
			// matters only when what is missing might have been there
			t.trouble = cmp.Or(t.trouble, err)
			continue
		}
		if err := t.take(s); err != nil {
			return nil, err
		}
	}
	if err := t.complete(); err != nil {
		return nil, err
	}
	if t.state != "" && !stateName.MatchString(t.state) {
		return nil, fault.New(fault.StateNameInvalid, "%q cannot be the name of a state: it takes 1 to 128 letters, digits, dots, dashes and underscores, the first a letter or digit", t.state)
	}
	var err error
	t.Client, err = client.New(client.Options{
		Base: t.base, Bearer: t.token, Username: t.username, Password: t.password,
		CAFile: f.caFile, CA: a.env.Getenv("TF_HTTP_CLIENT_CA_CERTIFICATE_PEM"), UserAgent: "kl/" + build().Version,
	})
	return t, err
}

// sources are the places behind the flags and KL_ variables, in their order.
func (a *app) sources(t *target) []func() (source, error) {
	fromTerraform := func(b *terraform.Backend, err error) (source, error) {
		if b == nil || err != nil {
			return source{}, err
		}
		if b.Type != "http" {
			t.notes = append(t.notes, fmt.Sprintf("%s has a backend of type %q, not \"http\"", b.Source, b.Type))
		}
		for _, e := range b.Expressions {
			t.notes = append(t.notes, e+" is an expression, whose value only terraform knows")
		}
		return source{name: b.Source, address: b.Address, username: b.Username, password: b.Password, client: true}, nil
	}
	return []func() (source, error){
		func() (source, error) { return fromTerraform(terraform.FromEnvironment(a.env.Getenv), nil) },
		func() (source, error) {
			return fromTerraform(terraform.FromInitialised(a.env.Dir, a.env.Getenv("TF_DATA_DIR")))
		},
		func() (source, error) { return fromTerraform(terraform.FromConfiguration(a.env.Dir)) },
		func() (source, error) {
			c := a.config
			s := source{name: c.path, address: c.get("address"), username: c.get("username"), password: c.get("password"), token: c.get("token")}
			s.environment, s.key = c.get("env"), c.get("state")
			return s, nil
		},
	}
}

// take adds what s knows to what is known already. What a source says beside
// an address, secrets first of all, is for that server and goes to no other:
// a directory from elsewhere must not be able to draw the user's tokens.
func (t *target) take(s source) error {
	if s.address != "" {
		if err := s.parse(); err != nil {
			return err
		}
		if t.base == "" {
			t.base, t.address, t.noState = s.base, s.name, s.client && s.key == ""
		}
		if !sameServer(s.base, t.base) {
			if s.password != "" || s.token != "" {
				t.notes = append(t.notes, fmt.Sprintf("the credentials in %s are for %s and are not sent to %s", s.name, s.base, t.base))
			}
			return nil
		}
	}
	t.token = cmp.Or(t.token, s.token)
	// user name and password belong together, but Terraform lets them come
	// from different places, and so does this
	t.username = cmp.Or(t.username, s.username)
	t.password = cmp.Or(t.password, s.password)
	t.environment = cmp.Or(t.environment, s.environment)
	if t.environment == s.environment {
		t.workspace = cmp.Or(t.workspace, s.workspace)
	}
	t.state = cmp.Or(t.state, s.key)
	return nil
}

// parse splits the address into the server's part, the state's, and
// credentials.
func (s *source) parse() error {
	bad := func() error {
		return fault.New(fault.ParameterInvalid, "the address in %s is neither a server's nor a state's", s.name).
			WithNext("give it as http://HOST:PORT, or as http://HOST:PORT/states/WORKSPACE/ENVIRONMENT/STATE")
	}
	u, err := url.Parse(s.address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return bad()
	}
	if u.User != nil {
		p, _ := u.User.Password()
		s.username, s.password = cmp.Or(s.username, u.User.Username()), cmp.Or(s.password, p)
	}
	base := url.URL{Scheme: u.Scheme, Host: u.Host}
	prefix, rest, isState := cutLast(u.EscapedPath(), "/states/", "/locks/")
	if isState {
		parts := strings.Split(rest, "/")
		if len(parts) != 3 {
			return bad()
		}
		for i, to := range []*string{&s.workspace, &s.environment, &s.key} {
			if *to, err = url.PathUnescape(parts[i]); err != nil || *to == "" {
				return bad()
			}
		}
	}
	s.base = base.String() + strings.TrimRight(prefix, "/")
	return nil
}

func cutLast(s string, seps ...string) (before, after string, found bool) {
	for _, sep := range seps {
		if i := strings.LastIndex(s, sep); i >= 0 {
			return s[:i], s[i+len(sep):], true
		}
	}
	return s, "", false
}

func sameServer(a, b string) bool {
	ua, errA := url.Parse(a)
	ub, errB := url.Parse(b)
	return errA == nil && errB == nil && origin(ua) == origin(ub)
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// complete fills in what follows from the rest and says what is missing.
func (t *target) complete() error {
	if t.base == "" {
		if t.trouble != nil {
			return t.trouble
		}
		return fault.New(fault.ParameterInvalid, "no server is named%s", t.because()).
			WithNext("give --address (KL_ADDRESS), or run in a directory with a backend \"http\" block")
	}
	if t.workspace == "" && workspaceID.MatchString(t.username) {
		t.workspace = t.username
	}
	if t.token == "" && t.username == "" && t.password != "" {
		t.token = t.password
	}
	if t.token == "" && t.password == "" {
		if t.trouble != nil {
			return t.trouble
		}
		return fault.New(fault.CredentialsMissing, "there are no credentials for %s%s", t.base, t.because()).
			WithNext("give --token (KL_TOKEN), or --username and --password (TF_HTTP_USERNAME, TF_HTTP_PASSWORD)")
	}
	return nil
}

func (t *target) because() string {
	if len(t.notes) == 0 {
		return ""
	}
	return ": " + strings.Join(t.notes, "; ")
}

// forState is resolve for commands that need a state: the public id of its
// environment and its name are known afterwards.
func (a *app) forState(ctx context.Context, stateArg string) (*target, error) {
	t, err := a.resolve(stateArg)
	if err != nil {
		return nil, err
	}
	if t.state == "" {
		if t.trouble != nil {
			return nil, t.trouble
		}
		return nil, fault.New(fault.ParameterInvalid, "no state is named%s", t.because()).
			WithNext("name it (kl state list shows all), or run in a directory with a backend \"http\" block")
	}
	return t, t.findEnvironment(ctx)
}

// forEnvironment is resolve for commands that need an environment.
func (a *app) forEnvironment(ctx context.Context) (*target, error) {
	t, err := a.resolve("")
	if err != nil {
		return nil, err
	}
	return t, t.findEnvironment(ctx)
}

// findEnvironment makes environment a public id: it looks a slug up, and takes
// the only environment there is when none was named.
func (t *target) findEnvironment(ctx context.Context) error {
	if environmentID.MatchString(t.environment) {
		return nil
	}
	envs, err := t.environments(ctx)
	if err != nil {
		return err
	}
	var found []wire.Environment
	var names []string
	for _, e := range envs {
		if t.environment == "" || e.Slug == t.environment {
			found = append(found, e)
		}
		names = append(names, e.EnvPublicID+" ("+e.Slug+")")
	}
	switch {
	case len(found) == 1:
		t.environment, t.workspace = found[0].EnvPublicID, found[0].WorkspaceID
		return nil
	case t.environment == "":
		return fault.New(fault.ParameterInvalid, "no environment is named, and %s has %d of them", t.base, len(envs)).
			WithNext("give --env (KL_ENV), one of: %s", strings.Join(names, ", "))
	case len(found) > 1:
		return fault.New(fault.ParameterInvalid, "several workspaces have an environment %q", t.environment).
			WithNext("give its public id: --env env_…")
	}
	return fault.New(fault.UnknownEnvironment, "there is no environment %q here", t.environment).
		WithNext("give --env (KL_ENV), one of: %s", strings.Join(names, ", "))
}

// environments lists what the credentials can see.
func (t *target) environments(ctx context.Context) ([]wire.Environment, error) {
	who, err := t.Whoami(ctx)
	if err != nil {
		return nil, err
	}
	if who.Environment != "" {
		e, err := t.Environment(ctx, who.Environment)
		return []wire.Environment{e}, err
	}
	var out []wire.Environment
	for ws, err := range t.Workspaces(ctx) {
		if err != nil {
			return nil, err
		}
		es, err := client.Collect(t.Environments(ctx, ws.WorkspaceID), 0)
		if err != nil {
			return nil, err
		}
		out = append(out, es...)
	}
	return out, nil
}

// findWorkspace makes the workspace known.
func (t *target) findWorkspace(ctx context.Context) error {
	if t.workspace != "" {
		return nil
	}
	e, err := t.Environment(ctx, t.environment)
	t.workspace = e.WorkspaceID
	return err
}

// dataRef names the state on the data plane, for which a control token is not
// enough.
func (t *target) dataRef(ctx context.Context) (client.Ref, error) {
	if t.username == "" || t.password == "" {
		if k, _ := auth.KindOf(t.token); k == auth.Control {
			return client.Ref{}, fault.New(fault.CredentialsMissing, "a control token cannot write states").
				WithNext("give --username (the workspace id) and --password (an automation token), or TF_HTTP_USERNAME and TF_HTTP_PASSWORD")
		}
	}
	if err := t.findWorkspace(ctx); err != nil {
		return client.Ref{}, err
	}
	return client.Ref{Workspace: t.workspace, Environment: t.environment, State: t.state}, nil
}
