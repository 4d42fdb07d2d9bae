package server_test

import (
	"net/url"
	"testing"

	"kl/kltest"
	"kl/wire"
)

func TestTagRoutes(t *testing.T) {
	s := kltest.Start(t)
	st := kltest.NewState(3, 1)
	want(t, "write", s.Do(s.Automation(), "POST", s.StateURL("app"), st.Bytes()), 200)
	url := s.APIURL("app", "/tags/good")
	for _, version := range []string{`"head"`, `1`, `"1"`, `"@0"`, `"serial:1"`} {
		var tag wire.Tag
		a := s.Do(s.Automation(), "PUT", url, []byte(`{"version":`+version+`}`))
		want(t, "PUT "+version, a, 200)
		if a.Into(t, &tag); tag.Version != 1 || tag.Tag != "good" {
			t.Errorf("%s makes %+v", version, tag)
		}
	}
	for _, body := range []string{``, `{}`, `{"version":""}`, `{"version":-1}`, `{"version":1.5}`, `{"version":null}`, `{"version":["1"]}`, `{"version":"nowhere else"}`, `{"to":1}`} {
		want(t, "PUT "+body, s.Do(s.Automation(), "PUT", url, []byte(body)), 400)
	}
	want(t, "PUT of no version", s.Do(s.Automation(), "PUT", url, []byte(`{"version":7}`)), 404)
	want(t, "PUT of a number", s.Do(s.Automation(), "PUT", s.APIURL("app", "/tags/12"), []byte(`{"version":1}`)), 400)
	var list wire.List[wire.Tag]
	if s.Do(s.Automation(), "GET", s.APIURL("app", "/tags"), nil).Into(t, &list); len(list.Items) != 1 {
		t.Errorf("listed are %+v", list)
	}
	want(t, "DELETE", s.Do(s.Automation(), "DELETE", url, nil), 204)
	want(t, "DELETE again", s.Do(s.Automation(), "DELETE", url, nil), 404)
}

func TestHistoryRoutes(t *testing.T) {
	s := kltest.Start(t)
	st := kltest.NewState(20, 1)
	want(t, "write", s.Do(s.Automation(), "POST", s.StateURL("app"), st.Bytes()), 200)
	second := next(st, func(n *kltest.State) { n.Update(managed(t, n, 0)); n.Remove(managed(t, n, 1)) })
	want(t, "write", s.Do(s.Automation(), "POST", s.StateURL("app"), second.Bytes()), 200)
	changed, removed := managed(t, st, 0), managed(t, st, 1)
	get := func(rest string, status int) *kltest.Answer {
		t.Helper()
		a := s.Do(s.Automation(), "GET", s.APIURL("app", rest), nil)
		want(t, "GET "+rest, a, status)
		return a
	}

	var d wire.Diff
	get("/diff", 200).Into(t, &d)
	if d.From != 1 || d.To != 2 || len(d.Changed) != 1 || d.Changed[0].Address != changed || len(d.Removed) != 1 || d.Removed[0].Address != removed {
		t.Errorf("%+v", d)
	}
	get("/diff?from=head&to=@1&address="+url.QueryEscape(removed), 200).Into(t, &d)
	if d.From != 2 || len(d.Changed) != 0 || len(d.Added) != 1 {
		t.Errorf("%+v", d)
	}
	for rest, status := range map[string]int{
		"/diff?from=9": 404, "/diff?from=a+b": 400, "/diff?address=no": 400, "/diff?reveal=yes": 400, "/resources?version=9": 404, "/resources?limit=0": 400,
		"/resources?cursor=x": 400, "/resources?address=%00": 400, "/resources/history": 400, "/resources/history?address=aws_x.nothing": 404,
	} {
		get(rest, status)
	}

	var resources wire.List[wire.Resource]
	get("/resources?limit=5", 200).Into(t, &resources)
	if len(resources.Items) != 5 || resources.Next == "" {
		t.Errorf("%+v", resources)
	}
	get("/resources?version=1&address="+url.QueryEscape(removed), 200).Into(t, &resources)
	if len(resources.Items) != 1 || resources.Items[0].Address != removed {
		t.Errorf("%+v", resources)
	}
	var events wire.List[wire.InstanceEvent]
	get("/resources/history?address="+url.QueryEscape(removed), 200).Into(t, &events)
	if len(events.Items) != 2 || events.Items[0].Event != wire.InstanceRemoved || events.Items[1].Event != wire.InstanceCreated {
		t.Errorf("%+v", events)
	}

	back := s.APIURL("app", "/rollback")
	for _, body := range []string{``, `{}`, `{"to":""}`, `{"to":null}`, `{"to":{}}`, `{"to":1,"force":true}`, `{"to":1,"address":7}`, `{"to":1,"address":"no"}`} {
		want(t, "rollback "+body, s.Do(s.Automation(), "POST", back, []byte(body)), 400)
	}
	want(t, "rollback to no version", s.Do(s.Automation(), "POST", back, []byte(`{"to":7}`)), 404)
	lockIt(t, s, s.Automation(), "app", "l-1")
	a := s.Do(s.Automation(), "POST", back, []byte(`{"to":1}`))
	want(t, "rollback while locked", a, 409)
	if p := a.Problem(); p.Class != "lock" || p.Extra["ID"] != "l-1" {
		t.Errorf("%+v", p)
	}
	want(t, "unlock", s.Do(s.Automation(), "UNLOCK", s.StateURL("app"), kltest.LockBody("l-1", apply)), 200)
	var r wire.Rollback
	s.Do(s.Automation(), "POST", back, []byte(`{"to":"@1","dry_run":true}`)).Into(t, &r)
	if !r.DryRun || r.Version != 0 || r.To != 1 || len(r.Added) != 1 || len(r.Changed) != 1 {
		t.Errorf("%+v", r)
	}
	a = s.Do(s.Automation(), "POST", back, []byte(`{"to":1}`))
	want(t, "rollback", a, 200)
	if a.Into(t, &r); r.Version != 3 || r.Serial != 3 {
		t.Errorf("%+v", r)
	}
	get("/diff?from=1", 200).Into(t, &d)
	if d.Counts != (wire.DiffCounts{}) {
		t.Errorf("after the rollback %+v", d)
	}
}
