package server

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/tfstate"
	"kl/wire"
)

// maxPlanBody bounds the JSON of a plan. Larger ones are counted by the one who
// has them (kl quota check does), and asked about as a number.
const maxPlanBody = 16 << 20

// quotaRoutes tell what a state may hold.
func quotaRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: statePath + "/quota", Access: Environment, Action: auth.ReadState, handle: (*Server).quota,
			Summary: "What the state and its environment hold and may hold, and when limits will be met; the state need not exist", Answer: wire.Quota{},
		},
		{
			Method: http.MethodPost, Path: statePath + "/quota/check", Access: Environment, Action: auth.ReadState, handle: (*Server).checkQuota,
			Summary: "What a change by so many managed instances, or by a plan, would mean for the limits", Body: wire.QuotaQuestion{}, Answer: wire.QuotaCheck{},
		},
	}
}

func (s *Server) quota(c echo.Context) error {
	q, err := s.store.Quota(c.Request().Context(), callOf(c).ref())
	if err != nil {
		return err
	}
	return answer(c, q)
}

func (s *Server) checkQuota(c echo.Context) error {
	delta, peak, err := quotaQuestion(c)
	if err != nil {
		return err
	}
	check, err := s.store.CheckQuota(c.Request().Context(), callOf(c).ref(), delta, peak)
	if err != nil {
		return err
	}
	return answer(c, check)
}

// quotaQuestion reads what is asked: by how much the count changes in the end,
// and at most meanwhile.
func quotaQuestion(c echo.Context) (delta, peak int64, err error) {
	b, err := readSmall(c, maxPlanBody)
	if err != nil {
		return 0, 0, err
	}
	var q wire.QuotaQuestion
	if err := unmarshal(b, &q); err != nil {
		return 0, 0, err
	}
	switch {
	case (q.Delta == nil) == (q.Plan == nil), q.Plan != nil && q.Peak != nil:
		return 0, 0, fault.New(fault.ParameterInvalid, "the body asks about neither a number nor a plan, or about both").
			WithNext(`send {"delta": 3}, or {"plan": …} with what terraform show -json prints`)
	case q.Plan != nil:
		p, err := tfstate.CountPlan(bytes.NewReader(q.Plan))
		return p.Delta, p.Peak, err
	case tooFar(*q.Delta), q.Peak != nil && tooFar(*q.Peak):
		return 0, 0, fault.New(fault.ParameterInvalid, "the member delta or peak is no number of instances").WithNext(`send {"delta": 3}`)
	case q.Peak != nil:
		return *q.Delta, *q.Peak, nil
	}
	return *q.Delta, *q.Delta, nil
}

// tooFar reports whether a number could not be added to a count.
func tooFar(n int64) bool { return n > 1<<40 || n < -1<<40 }

// warn tells the writer of soft limits that are exceeded.
func warn(c echo.Context, warnings []string) {
	if len(warnings) > 0 {
		c.Response().Header().Set(wire.HeaderQuotaWarning, strings.Join(warnings, "; "))
	}
}

// mayPatch refuses changes of a state's own limits to those who do not manage
// the environment: a writer could lift its own limits.
func (s *Server) mayPatch(c echo.Context, p wire.StatePatch) error {
	if p.Quota == nil {
		return nil
	}
	cl := callOf(c)
	if cl.principal.Kind != auth.Control {
		return fault.New(fault.RoleTooLow, "a state's limits are set by those who manage its environment").
			WithNext("use a control token of an owner or admin of the workspace, or the operator's: --token or KL_TOKEN")
	}
	return s.store.AuthorizeAdmin(c.Request().Context(), cl.principal, cl.environment)
}
