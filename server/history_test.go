package server_test

import (
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
