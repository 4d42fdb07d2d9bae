package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"kl/wire"
)

// evidenceFormat is raised when a reader of the old form would be misled.
const evidenceFormat = 1

// schemaText says what evidence has to look like.
//
//go:embed evidence.schema.json
var schemaText []byte

// evidence is what the program writes down.
type evidence struct {
	Format    int       `json:"format"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	OK        bool      `json:"ok"`
	Terraform struct {
		Path    string `json:"path"`
		Version string `json:"version"`
	} `json:"terraform"`
	Runs []*run `json:"runs"`
}

// fits compares the evidence with the schema beside this file.
func (e evidence) fits() error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return fitsSchema(b)
}

// fitsSchema compares a document with the schema.
func fitsSchema(document []byte) error {
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaText))
	if err != nil {
		return err
	}
	const name = "evidence.schema.json"
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, schema); err != nil {
		return err
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return err
	}
	if err := compiled.Validate(doc); err != nil {
		return fmt.Errorf("the evidence is not what evidence.schema.json says: %w", err)
	}
	return nil
}

// run is the experiment on one backend.
type run struct {
	Backend     string          `json:"backend"`
	OK          bool            `json:"ok"`
	Error       string          `json:"error,omitempty"` // why it broke off
	Directories []string        `json:"directories"`
	Steps       []step          `json:"steps"`
	Processes   []processFacts  `json:"processes"`
	Unused      forbiddenCounts `json:"unused"`
}

// step is one claim, whether it held, and what was seen.
type step struct {
	ID    string    `json:"id"`
	Claim string    `json:"claim"`
	Holds bool      `json:"holds"`
	At    time.Time `json:"at"`
	Facts any       `json:"facts"`
}

// processFacts tells of one client that ran.
type processFacts struct {
	Directory string    `json:"directory"`
	Command   string    `json:"command"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	ExitCode  int       `json:"exit_code"`
	Running   bool      `json:"running"`
}

// forbiddenCounts counts the ways round a lock that were taken: none.
type forbiddenCounts struct {
	ForceUnlock int `json:"force_unlock"`
	LockFalse   int `json:"lock_false"`
}

// lockFacts are the lock information that a backend shows.
type lockFacts struct {
	ID        string `json:"id"`
	Version   string `json:"version"`
	Operation string `json:"operation"`
	Who       string `json:"who"`
	Created   string `json:"created"`
	Age       string `json:"age,omitempty"` // kl only: how long it has been held
}

type activeFacts struct {
	MarkerSeen   bool   `json:"marker_seen"`
	ProcessAlive bool   `json:"process_alive"`
	Resource     string `json:"resource"`
}

type refusedFacts struct {
	ExitCode    int    `json:"exit_code"`
	LockID      string `json:"lock_id"`
	NamesHolder bool   `json:"names_holder"`
	Says        string `json:"says"`
}

type bytesFacts struct {
	SHA256Before string `json:"sha256_before"`
	SHA256After  string `json:"sha256_after"`
	Bytes        int    `json:"bytes"`
	Identical    bool   `json:"identical"`
}

type shortWaitFacts struct {
	refusedFacts
	LockTimeout   string `json:"lock_timeout"`
	Took          string `json:"took"`
	HolderAlive   bool   `json:"holder_alive"`
	ReleaseAsked  bool   `json:"release_asked"`
	LockUnchanged bool   `json:"lock_unchanged"`
}

type readingFacts struct {
	ExitCode    int      `json:"exit_code"`
	Resources   []string `json:"resources"`
	HolderAlive bool     `json:"holder_alive"`
	Remark      string   `json:"remark"`
}

type longWaitFacts struct {
	LockTimeout    string        `json:"lock_timeout"`
	SaidItWaits    bool          `json:"said_it_waits"`
	BothAlive      bool          `json:"both_alive"`
	Queue          []wire.Waiter `json:"queue,omitempty"` // kl only, as GET …/lock shows it
	ReleasedAt     time.Time     `json:"released_at"`
	HolderEndedAt  time.Time     `json:"holder_ended_at"`
	HolderExitCode int           `json:"holder_exit_code"`
	WaiterEndedAt  time.Time     `json:"waiter_ended_at"`
	WaiterExitCode int           `json:"waiter_exit_code"`
	NoOp           bool          `json:"no_op"`
}

type endFacts struct {
	FirstID        string `json:"first_id"`
	SecondID       string `json:"second_id"`
	FirstFinished  string `json:"first_finished"`
	SecondFinished string `json:"second_finished"`
	LockGone       bool   `json:"lock_gone"`
	AllEnded       bool   `json:"all_ended"`
}

type holderFacts struct {
	Who       string    `json:"who"`
	Since     time.Time `json:"since"`
	Age       string    `json:"age"`
	Principal string    `json:"principal"`
	Operation string    `json:"operation"`
}

type orderFacts struct {
	Queue   []wire.Waiter `json:"queue"` // as GET …/lock showed it when all three waited
	Arrived []string      `json:"arrived"`
	Served  []string      `json:"served"`
	Alone   bool          `json:"alone"` // whenever one had the lock, no other had begun
}

type grantFacts struct {
	TerraformWaiter    string `json:"terraform_waiter"` // release to grant, with the real client
	RequestWaiters     int    `json:"request_waiters"`  // LOCK requests that stood at the server
	RequestWaiterMed   string `json:"request_waiter_median"`
	RequestWaiterWorst string `json:"request_waiter_worst"`
	Remark             string `json:"remark"`
}
