package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/wire"
)

func TestStateOverItsLife(t *testing.T) {
	s := kltest.Start(t)
	url, as := s.StateURL("app"), s.Automation()
	refused(t, "GET of nothing", s.Do(as, "GET", url, nil), 404, fault.NotFound)
	if a := s.Do(as, "HEAD", url, nil); a.Status != 404 || a.Header.Get(wire.HeaderRequestID) == "" {
		t.Errorf("HEAD of nothing: %d", a.Status)
	}

	st := kltest.NewState(4, 7)
	first := st.Bytes()
	a := s.Do(as, "POST", url, first, "Content-MD5", contentMD5(first))
	want(t, "first POST", a, 200)
	if a.Header.Get(wire.HeaderVersion) != "1" || a.Header.Get(wire.HeaderSerial) != "1" || a.Header.Get(wire.HeaderMerged) != "" {
		t.Errorf("first POST: headers %v", a.Header)
	}

	st.Mutate(1)
	second := st.Compact()
	want(t, "PUT", s.Do(as, "PUT", url, second), 200)
	for _, method := range []string{"GET", "HEAD"} {
		a = s.Do(as, method, url, nil)
		want(t, method, a, 200)
		for name, value := range map[string]string{
			"ETag": `"` + sha(second) + `"`, "Content-Type": "application/json", "Cache-Control": "no-store",
			"Content-Length": strconv.Itoa(len(second)), wire.HeaderVersion: "2", wire.HeaderSerial: "2",
		} {
			if got := a.Header.Get(name); got != value {
				t.Errorf("%s: header %s is %q, want %q", method, name, got, value)
			}
		}
		if method == "GET" && !bytes.Equal(a.Body, second) {
			t.Errorf("GET: other bytes than were stored: %s", cut(a.Body))
		}
	}
	if a = s.Do(as, "GET", url, nil, "If-None-Match", `"`+sha(second)+`"`); a.Status != 304 || len(a.Body) != 0 || a.Header.Get("ETag") == "" {
		t.Errorf("If-None-Match of the head: %d with %d bytes", a.Status, len(a.Body))
	}
	want(t, "If-None-Match of another", s.Do(as, "GET", url, nil, "If-None-Match", `"`+sha(first)+`"`), 200)

	want(t, "DELETE", s.Do(as, "DELETE", url, nil), 200)
	if p := refused(t, "GET from the trash", s.Do(as, "GET", url, nil), 403, fault.StateDeleted); p.Extra["hold"] != "state_deleted" {
		t.Errorf("GET from the trash: members %v", p.Extra)
	}
	refused(t, "POST into the trash", s.Do(as, "POST", url, second), 403, fault.StateDeleted)
	a = s.Do(as, "LOCK", url, kltest.LockBody("l1", apply))
	if info, err := a.LockInfo(); a.Status != 423 || err != nil || !strings.Contains(info.ID, "; next: ") {
		t.Errorf("LOCK in the trash: %d %s", a.Status, a.Body)
	}

	want(t, "restore", s.Do(as, "POST", s.APIURL("app", "/restore"), nil), 200)
	if a = s.Do(as, "GET", url, nil); !bytes.Equal(a.Body, second) {
		t.Errorf("after the restore: %d %s", a.Status, cut(a.Body))
	}
	want(t, "DELETE by the control API", s.Do(as, "DELETE", s.APIURL("app", ""), nil), 204)
	want(t, "purge", s.Do(as, "POST", s.APIURL("app", "/purge"), nil), 204)
	refused(t, "GET after the purge", s.Do(as, "GET", url, nil), 404, fault.NotFound)
	want(t, "POST under the free name", s.Do(as, "POST", url, first), 200)
}

func TestBearerAndBasicAreTheSame(t *testing.T) {
	s, st := seeded(t)
	st.Mutate(1)
	as := kltest.Bearer(s.Bootstrap.AutomationToken)
	want(t, "LOCK", s.Do(as, "LOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
	want(t, "POST by Basic under the bearer's lock", s.Do(s.Automation(), "POST", s.StateURL("app")+"?ID=l1", st.Bytes()), 200)
	var a, b wire.Whoami
	s.Do(as, "GET", s.URL+"/v1/whoami", nil).Into(t, &a)
	s.Do(s.Automation(), "GET", s.URL+"/v1/whoami", nil).Into(t, &b)
	if a != b || a.Kind != "automation" || a.Environment != s.Bootstrap.EnvPublicID || a.Role != "write" {
		t.Errorf("whoami: %+v and %+v", a, b)
	}
}

// TestReplays: clients repeat what they got no answer to.
func TestReplays(t *testing.T) {
	s, st := seeded(t)
	url, as := s.StateURL("app"), s.Automation()
	for range 3 {
		want(t, "LOCK again", s.Do(as, "LOCK", url, kltest.LockBody("l1", apply)), 200)
	}
	st.Mutate(2)
	for range 3 {
		a := s.Do(as, "POST", url+"?ID=l1", st.Bytes())
		want(t, "POST again", a, 200)
		if got := a.Header.Get(wire.HeaderVersion); got != "2" {
			t.Errorf("POST again: version %s, want 2", got)
		}
	}
	for range 3 {
		want(t, "UNLOCK again", s.Do(as, "UNLOCK", url, kltest.LockBody("l1", apply)), 200)
	}
	var list wire.List[wire.Version]
	s.Do(as, "GET", s.APIURL("app", "/versions"), nil).Into(t, &list)
	if len(list.Items) != 2 || len(holders(t, s, "app")) != 0 {
		t.Errorf("%d versions and holders %v, want 2 and none", len(list.Items), holders(t, s, "app"))
	}
	want(t, "POST of the head without a lock", s.Do(as, "POST", url, st.Bytes()), 200)
}

// TestDeleteThatWasMeantAsUnlock: unlock_method = "DELETE" with the state's own
// address must not delete states.
func TestDeleteThatWasMeantAsUnlock(t *testing.T) {
	s, _ := seeded(t)
	before := picture(t, s, "app")
	for name, headers := range map[string][]string{
		"LockInfo":     nil,
		"force-unlock": {"Content-MD5", contentMD5(nil)},
	} {
		var body []byte
		if headers == nil {
			body = kltest.LockBody("l1", apply)
		}
		p := refused(t, name, s.Do(s.Automation(), "DELETE", s.StateURL("app"), body, headers...), 400, fault.BodyInvalid)
		if !strings.Contains(p.NextStep, "/locks/") {
			t.Errorf("%s: next step %q", name, p.NextStep)
		}
	}
	if after := picture(t, s, "app"); after != before {
		t.Errorf("changed from %s to %s", before, after)
	}
}

// TestPostThatWasMeantAsLock: lock_method = "POST" with the state's own address.
func TestPostThatWasMeantAsLock(t *testing.T) {
	s, _ := seeded(t)
	before := picture(t, s, "app")
	p := refused(t, "LockInfo", s.Do(s.Automation(), "POST", s.StateURL("app"), kltest.LockBody("l1", apply)), 400, fault.BodyInvalid)
	if !strings.Contains(p.NextStep, wire.LockPath(s.Bootstrap.WorkspaceID, s.Bootstrap.EnvPublicID, "app")) {
		t.Errorf("next step %q", p.NextStep)
	}
	p = refused(t, "neither", s.Do(s.Automation(), "POST", s.StateURL("app"), []byte(`{"ID":"x"}`)), 400, fault.BodyInvalid)
	if strings.Contains(p.NextStep, "lock") {
		t.Errorf("next step %q", p.NextStep)
	}
	if after := picture(t, s, "app"); after != before {
		t.Errorf("changed from %s to %s", before, after)
	}
}

// TestBigStateThenUnlock: the release that follows a large upload at once.
func TestBigStateThenUnlock(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 50 MB")
	}
	s := kltest.Start(t)
	url, as := s.StateURL("big"), s.Automation()
	b := bulky(50)
	want(t, "LOCK", s.Do(as, "LOCK", url, kltest.LockBody("l1", apply)), 200)
	want(t, "POST", s.Do(as, "POST", url+"?ID=l1", b, "Content-MD5", contentMD5(b)), 200)
	want(t, "UNLOCK", s.Do(as, "UNLOCK", url, kltest.LockBody("l1", apply)), 200)
	if a := s.Do(as, "GET", url, nil); !bytes.Equal(a.Body, b) {
		t.Errorf("GET: %d bytes, want %d equal ones", len(a.Body), len(b))
	}
}

// TestEarlyRefusalOfBigBody: a refusal that comes before the body is read must
// reach clients that go on sending.
func TestEarlyRefusalOfBigBody(t *testing.T) {
	s, _ := seeded(t, kltest.WithServer(limit1MB))
	big := bytes.Repeat([]byte("x"), 30<<20)
	for name, c := range map[string]struct {
		as     kltest.Credentials
		status int
		code   fault.Code
	}{
		"too large":      {s.Automation(), 413, fault.BodyTooLarge},
		"no credentials": {kltest.Nobody, 401, fault.CredentialsMissing},
	} {
		for range 5 {
			refused(t, name, s.Do(c.as, "POST", s.StateURL("app"), big), c.status, c.code)
		}
		// a client that reads nothing until it has sent everything
		conn := dial(t, s)
		r, err := http.NewRequest("POST", s.StateURL("app"), bytes.NewReader(big))
		if err != nil {
			t.Fatal(err)
		}
		c.as(r)
		if err := r.Write(conn); err != nil {
			t.Errorf("%s: the connection broke while the body was sent: %v", name, err)
			continue
		}
		refused(t, name+", sent whole", readAnswer(t, conn, "POST"), c.status, c.code)
	}
	p := s.Do(s.Automation(), "POST", s.StateURL("app"), big).Problem()
	if p.Extra["limit"] != float64(1<<20) || !strings.Contains(p.Detail, "1048576") || !strings.Contains(p.NextStep, "--max-body") {
		t.Errorf("413 does not name the limit and the flag: %+v", p)
	}
}

// TestCutUploads: a connection that ends in the middle of a body changes
// nothing, wherever it ends.
func TestCutUploads(t *testing.T) {
	s, st := seeded(t)
	url, as := s.StateURL("app"), s.Automation()
	want(t, "LOCK", s.Do(as, "LOCK", url, kltest.LockBody("l1", apply)), 200)
	before := picture(t, s, "app")
	st.Mutate(2)
	b := st.Bytes()
	for _, chunked := range []bool{false, true} {
		for _, at := range []int{0, 1, 17, len(b) / 2, len(b) - 2, len(b) - 1} {
			conn := dial(t, s)
			head := "POST " + strings.TrimPrefix(url, s.URL) + "?ID=l1 HTTP/1.1\r\nHost: x\r\n" + authHeader(t, as) + "Content-Type: application/json\r\n"
			if chunked {
				head += "Transfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(len(b)), 16) + "\r\n"
			} else {
				head += "Content-Length: " + strconv.Itoa(len(b)) + "\r\n\r\n"
			}
			send(t, conn, append([]byte(head), b[:at]...))
			closeWrite(t, conn)
			refused(t, "cut at "+strconv.Itoa(at), readAnswer(t, conn, "POST"), 400, fault.BodyIncomplete)
			if after := picture(t, s, "app"); after != before {
				t.Fatalf("cut at %d: changed from %s to %s", at, before, after)
			}
		}
	}
	want(t, "the same POST whole", s.Do(as, "POST", url+"?ID=l1", b), 200)
}

// TestClientGoneAfterTheBody: what was sent whole is stored, also when nobody
// waits for the answer.
func TestClientGoneAfterTheBody(t *testing.T) {
	s, st := seeded(t)
	url, as := s.StateURL("app"), s.Automation()
	for i := range 20 {
		st.Mutate(1)
		b := st.Bytes()
		conn := dial(t, s)
		send(t, conn, append([]byte("POST "+strings.TrimPrefix(url, s.URL)+" HTTP/1.1\r\nHost: x\r\n"+authHeader(t, as)+
			"Content-Length: "+strconv.Itoa(len(b))+"\r\n\r\n"), b...))
		closeWrite(t, conn) // the server sees a client that has gone
		if a := readAnswer(t, conn, "POST"); a.Status != 200 {
			t.Fatalf("POST %d: %d %s", i, a.Status, a.Body)
		}
	}
	if a := s.Do(as, "GET", url, nil); a.Header.Get(wire.HeaderVersion) != "21" {
		t.Errorf("version %s, want 21", a.Header.Get(wire.HeaderVersion))
	}
}

// bulky is a state of so many instances of 1 MB each: large, and cheap to make.
func bulky(instances int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"version":4,"terraform_version":"1.11.4","serial":1,"lineage":"9f1b7f0e-2f0e-4f7e-8c55-5a3f2c1d0e9b","outputs":{},` +
		`"resources":[{"mode":"managed","type":"terraform_data","name":"bulk","provider":"provider[\"terraform.io/builtin/terraform\"]","instances":[`)
	for i := range instances {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"index_key":%d,"schema_version":0,"attributes":{"id":"%d","input":"`, i, i)
		b.WriteString(strings.Repeat(string(rune('a'+i%26)), 1<<20))
		b.WriteString(`"},"sensitive_attributes":[]}`)
	}
	b.WriteString("]}],\"check_results\":null}\n")
	return b.Bytes()
}
