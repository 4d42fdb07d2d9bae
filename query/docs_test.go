package query_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"kl/kltest"
	"kl/query"
	"kl/store"
	"kl/wire"
)

const page = "../docs/queries.md"

func readPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPageListsTables keeps the tables of the page equal to those of the code.
// KL_UPDATE=1 rewrites them.
func TestPageListsTables(t *testing.T) {
	const begin, end = "<!-- tables: written by go test, KL_UPDATE=1 -->\n", "<!-- end of tables -->\n"
	text := readPage(t)
	head, rest, ok := strings.Cut(text, begin)
	_, foot, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its marks", page)
	}
	var b strings.Builder
	for _, table := range query.Tables() {
		fmt.Fprintf(&b, "\n### %s\n\n%s%s.\n\n| column | type | |\n|---|---|---|\n", table.Name, strings.ToUpper(table.About[:1]), table.About[1:])
		for _, c := range table.Columns {
			star := ""
			if c.Find {
				star = " \\*"
			}
			fmt.Fprintf(&b, "| `%s`%s | %s | %s |\n", c.Name, star, c.Type, c.About)
		}
	}
	want := head + begin + b.String() + "\n" + end + foot
	if os.Getenv("KL_UPDATE") != "" {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != want {
		t.Errorf("%s does not list the tables as they are; make golden rewrites it", page)
	}
}

// versions of the state network, and another state, of which each question of
// the page has something to tell.
const (
	networkOne = `{"version":4,"terraform_version":"1.11.4","serial":1,"lineage":"n","outputs":{"cidr":{"value":"10.0.0.0/8","type":"string"}},"resources":[
{"mode":"managed","type":"aws_vpc","name":"main","provider":"provider[\"registry.terraform.io/hashicorp/aws\"]","instances":[{"schema_version":1,"attributes":{"id":"vpc-1"}}]},
{"mode":"managed","type":"aws_subnet","name":"gone","provider":"provider[\"registry.terraform.io/hashicorp/aws\"]","instances":[{"schema_version":1,"attributes":{"id":"subnet-0"}}]}]}`
	networkTwo = `{"version":4,"terraform_version":"1.11.4","serial":2,"lineage":"n","outputs":{"cidr":{"value":"10.0.0.0/8","type":"string"}},"resources":[
{"mode":"managed","type":"aws_vpc","name":"main","provider":"provider[\"registry.terraform.io/hashicorp/aws\"]","instances":[{"schema_version":1,"attributes":{"id":"vpc-1"}}]},
{"mode":"managed","type":"aws_subnet","name":"gone","provider":"provider[\"registry.terraform.io/hashicorp/aws\"]","instances":[{"schema_version":1,"attributes":{"id":"subnet-0"}}]}]}`
	networkThree = `{"version":4,"terraform_version":"1.11.4","serial":3,"lineage":"n","outputs":{"cidr":{"value":"10.1.0.0/16","type":"string"}},"resources":[
{"mode":"data","type":"aws_ami","name":"unused","provider":"provider[\"registry.terraform.io/hashicorp/aws\"]","instances":[{"schema_version":0,"attributes":{"id":"ami-1"}}]},
{"mode":"managed","type":"aws_instance","name":"web","provider":"provider[\"registry.terraform.io/hashicorp/aws\"]","instances":[
 {"index_key":0,"schema_version":1,"attributes":{"id":"i-1","tags":{"Owner":"ana"},"password":"hunter2"},"sensitive_attributes":[[{"type":"get_attr","value":"password"}]],"dependencies":["aws_subnet.a","aws_vpc.main"]},
 {"index_key":1,"status":"tainted","schema_version":1,"attributes":{"id":"i-2"},"dependencies":["aws_subnet.a","aws_vpc.main"]}]},
{"mode":"managed","type":"aws_subnet","name":"a","provider":"provider[\"registry.terraform.io/hashicorp/aws\"]","instances":[{"schema_version":1,"attributes":{"id":"subnet-1"},"dependencies":["aws_vpc.main"]}]},
{"mode":"managed","type":"aws_vpc","name":"main","provider":"provider[\"registry.terraform.io/hashicorp/aws\"]","instances":[{"schema_version":1,"attributes":{"id":"vpc-1"}}]}]}`
	legacy = `{"version":4,"terraform_version":"0.14.11","serial":1,"lineage":"l","outputs":{},"resources":[
{"mode":"managed","type":"aws_vpc","name":"old","provider":"provider[\"registry.terraform.io/-/aws\"]","instances":[{"schema_version":0,"attributes":{"id":"vpc-1"}}]}]}`
)

// TestPageQueries runs each question of the page and wants an answer.
func TestPageQueries(t *testing.T) {
	clock := time.Now().Add(-100 * 24 * time.Hour) // datetime('now') is the real one
	f := newFixtureWith(t, query.Limits{}, func(o *store.Options) { o.Now = func() time.Time { return clock } })
	f.write("legacy", []byte(legacy))
	f.write("network", []byte(networkOne))
	f.write("network", []byte(networkTwo))
	clock = time.Now().Add(-2 * time.Hour)
	f.write("network", []byte(networkThree))
	robot := store.Actor{Principal: f.robot}
	ref := store.Ref{Environment: f.boot.EnvPublicID, Name: "network"}
	if err := f.store.Lock(context.Background(), store.LockRequest{Ref: ref, Actor: robot, Info: wire.LockInfo{ID: "l", Operation: wire.OperationApply, Who: "ana@laptop"}}); err != nil {
		t.Fatal(err)
	}
	foreign := kltest.NewState(3, 9).Bytes()
	b, err := f.store.ReadBody(context.Background(), bytes.NewReader(foreign), int64(len(foreign)), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if _, err := f.store.Write(context.Background(), store.WriteRequest{Ref: ref, Actor: robot, LockID: "l", Body: b}); err == nil {
		t.Fatal("a foreign lineage is accepted")
	}
	n := 0
	for i, part := range strings.Split(readPage(t), "```sql\n") {
		if i == 0 {
			continue
		}
		sql, _, _ := strings.Cut(part, "```")
		n++
		if a := f.ask(sql); len(a.rows) == 0 {
			t.Errorf("no answer to:\n%s", sql)
		} else if testing.Verbose() {
			t.Logf("%s\n%v\n%s", sql, a.columns, strings.Join(a.lines(), "\n"))
		}
	}
	if n < 12 {
		t.Errorf("the page has %d questions", n)
	}
	blast := f.ask("WITH RECURSIVE hit(address) AS (SELECT config_address FROM instances WHERE address = 'aws_vpc.main' UNION SELECT d.config_address FROM hit JOIN dependencies d ON d.depends_on = hit.address) SELECT address FROM hit ORDER BY 1")
	if got := strings.Join(blast.lines(), " "); got != "aws_instance.web aws_subnet.a aws_vpc.main" {
		t.Errorf("the blast radius is %s", got)
	}
}
