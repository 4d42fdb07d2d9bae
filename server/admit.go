package server

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
)

// admitted puts a route's handler behind the question who asks and whether they
// may. No byte of the body is read before it is answered, but for keepEnded.
func (s *Server) admitted(rt Route) echo.HandlerFunc {
	return func(c echo.Context) error {
		cl := callOf(c)
		cl.route, cl.path, cl.locks = &rt, rt.Path, rt.locks
		if rt.Access == StatePath {
			if err := wellFormed(c.Request().URL); err != nil {
				return err
			}
		}
		if err := unescapeParams(c); err != nil {
			return err
		}
		if err := s.admit(c, cl, rt); err != nil {
			return err
		}
		return rt.handle(s, c)
	}
}

// admit finds the caller and checks the route's rule.
func (s *Server) admit(c echo.Context, cl *call, rt Route) error {
	if rt.Access == Public {
		return nil
	}
	cl.workspace, cl.environment = c.Param("ws"), c.Param("env")
	if name := c.Param("state"); validName(name) {
		cl.state = name // what is refused below is remembered with the state that was meant
	}
	user, basic, err := s.authenticate(c, cl, rt)
	if err != nil {
		return s.keepEnded(c, cl, rt, err)
	}
	p := cl.principal
	if basic && (user == "" || p.Workspace != "" && user != p.Workspace || rt.Access == StatePath && user != cl.workspace) {
		return otherWorkspace(p, cl.workspace)
	}
	switch rt.Access {
	case Known:
		return nil
	case Operator:
		if !p.Operator {
			return fault.New(fault.RoleTooLow, "only the operator may do this").WithNext("use the operator's control token")
		}
		return nil
	case Account:
		return nil
	case Workspace:
		return s.store.AuthorizeMember(c.Request().Context(), p, cl.workspace, rt.Least)
	case Admin:
		return s.store.AuthorizeAdmin(c.Request().Context(), p, cl.environment)
	case Environment:
		if cl.role, err = s.store.Authorize(c.Request().Context(), p, user, cl.environment, rt.Action); err != nil {
			return err
		}
		return setState(c, cl)
	case StatePath:
		if cl.role, err = s.store.Authorize(c.Request().Context(), p, cl.workspace, cl.environment, rt.Action); err != nil {
			return s.keepEnded(c, cl, rt, err)
		}
		return setState(c, cl)
	case RunPath:
		return s.admitRun(c, cl, rt, user, basic)
	default:
		return fault.New(fault.RoleTooLow, "nobody may do this")
	}
}

// authenticate sets the call's principal and returns the user name of Basic
// credentials: the workspace that the client believes to be in. Only failures
// count against the throttle, and no limit stands in the way of a good secret.
func (s *Server) authenticate(c echo.Context, cl *call, rt Route) (user string, basic bool, err error) {
	r := c.Request()
	user, secret, basic := credentials(r)
	stranger, err := s.identify(r, cl, rt, secret, basic)
	if err == nil {
		return user, basic, nil
	}
	if wait := s.throttle.failed(r.RemoteAddr, secret, stranger, s.opt.Now()); wait > 0 {
		cl.throttled = true
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(int(wait.Seconds())+1))
	}
	return "", false, err
}

// identify finds whose a secret is. stranger says that the secret was never one
// of this server's; one that is refused for another reason may be good
// elsewhere.
func (s *Server) identify(r *http.Request, cl *call, rt Route, secret string, basic bool) (stranger bool, err error) {
	if secret == "" {
		return false, fault.New(fault.CredentialsMissing, "the request carries no credentials")
	}
	kind, ok := auth.KindOf(secret)
	switch {
	case !ok:
		return false, fault.New(fault.CredentialsInvalid, "the token is not one of this server's: it is cut, mistyped or of another system")
	case !slices.Contains(rt.Kinds(), kind):
		return false, fault.New(fault.CredentialsInvalid, "a token that begins with %s is not valid on this address", kind.Prefix()).
			WithNext("%s", nextForKind[rt.Access])
	case kind == auth.Control && basic:
		return false, fault.New(fault.CredentialsInvalid, "a control token is sent as a bearer token, not as a password").
			WithNext("send the header Authorization: Bearer TOKEN")
	case s.throttle.refused(secret, s.opt.Now()):
		return true, fault.New(fault.CredentialsInvalid, "the token is not one of this server, and was tried too often")
	}
	p, err := s.store.Authenticate(r.Context(), secret)
	if err != nil {
		return fault.Is(err, fault.CredentialsInvalid), err
	}
	cl.principal, cl.known = p, true
	return false, nil
}

const nextControl = "use a control token, which begins with kl_ctl_: --token or KL_TOKEN, or kl login"

var nextForKind = map[Access]string{
	StatePath: "use a token that begins with kl_env_ or kl_pat_, with the workspace's id as the user name",
	Operator:  "use the operator's control token: --token or KL_TOKEN",
	Account:   nextControl,
	Workspace: nextControl,
	Admin:     nextControl,
}

// credentials takes the token out of the Authorization header.
func credentials(r *http.Request) (user, secret string, basic bool) {
	if user, secret, ok := r.BasicAuth(); ok {
		return user, secret, true
	}
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if strings.EqualFold(scheme, "bearer") {
		return "", strings.TrimSpace(token), false
	}
	return "", "", false
}

// otherWorkspace refuses a user name that is not the workspace of the token or
// of the path. The name itself is not repeated: people put tokens there by
// mistake.
func otherWorkspace(p auth.Principal, path string) error {
	want := p.Workspace
	if want == "" {
		want = path
	}
	f := fault.New(fault.WorkspaceMismatch, "the user name of the credentials is not the workspace that the token and the path belong to")
	if want != "" {
		f = f.With("expected", want).WithNext("set username (TF_HTTP_USERNAME) and the path's workspace to %s", want)
	}
	return f
}

// setState takes the state's name from the path when the route has one.
func setState(c echo.Context, cl *call) error {
	if !slices.Contains(c.ParamNames(), "state") {
		return nil
	}
	name := c.Param("state")
	if !validName(name) {
		return fault.New(fault.StateNameInvalid, "the state's name in the path is not valid").
			WithNext("use 1 to 128 letters, digits, dots, dashes and underscores, beginning with a letter or a digit")
	}
	cl.state = name
	return nil
}

// validName reports whether a state may have the name.
func validName(s string) bool {
	if len(s) == 0 || len(s) > 128 {
		return false
	}
	for i, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case i > 0 && (r == '.' || r == '-' || r == '_'):
		default:
			return false
		}
	}
	return true
}

const stateForm = "{workspace_id}/{env_public_id}/{state_name}"

// wellFormed checks the shape of a state's path before anything else: what the
// router takes for the last parameter may hold further segments.
func wellFormed(u *url.URL) error {
	seg := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	if len(seg) != 4 || slices.Contains(seg, "") {
		return malformed(seg[0])
	}
	return nil
}

// malformed refuses a path that should be one of states or locks.
func malformed(noun string) error {
	want := "/" + noun + "/" + stateForm
	return fault.New(fault.MalformedPath, "the path has not the form %s", want).With("expected", want)
}

// unescapeParams decodes the path's parameters, which Echo leaves as they came
// when the path has escapes of its own, such as %%2F.
func unescapeParams(c echo.Context) error {
	if c.Request().URL.RawPath == "" {
		return nil
	}
	values := slices.Clone(c.ParamValues())
	for i, v := range values {
		u, err := url.PathUnescape(v)
		if err != nil {
			return fault.New(fault.NotFound, "the path has a bad escape")
		}
		values[i] = u
	}
	c.SetParamValues(values...)
	return nil
}

func printable(r rune) bool { return unicode.IsPrint(r) && r != unicode.ReplacementChar }
