package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"kl/client"
	"kl/fault"
	"kl/wire"
)

// lockPause stands between two attempts at a lock.
const lockPause = 500 * time.Millisecond

// unlockTimeout bounds giving the lock back after an interrupted push.
const unlockTimeout = 15 * time.Second

func (a *app) statePushCmd() *cobra.Command {
	var how pushOptions
	cmd := &cobra.Command{
		Use:   "push [STATE] FILE",
		Short: "Write a state from a file, or from standard input with -",
		Long: `Write a state's next version from a file, byte for byte, or from standard input
with -. The lock is taken for it and given back.

As terraform state push does, it first compares with what is there: the lineage
must be the same and the serial higher. --force leaves that to the server, which
lets such a write through once after kl state allow.`,
		Example: `  kl state push demo errored.tfstate
  kl state pull demo --version @1 | kl state push copy -`,
		Args: between(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := a.readDocument(args[len(args)-1])
			if err != nil {
				return err
			}
			state := ""
			if len(args) == 2 {
				state = args[0]
			}
			t, err := a.forState(cmd.Context(), state)
			if err != nil {
				return err
			}
			p, err := a.push(cmd.Context(), t, doc, how)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(p)
			}
			if p.Unchanged {
				return a.printf("%s has these bytes already: version %d, serial %d\n", t.state, p.Version, p.Serial)
			}
			if p.QuotaWarning != "" {
				a.note("warning: %s", p.QuotaWarning)
			}
			return a.printf("wrote %s: version %d, serial %d\n", t.state, p.Version, p.Serial)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, complete string) ([]string, cobra.ShellCompDirective) {
			names, _ := a.completeState(cmd, args, complete)
			return names, cobra.ShellCompDirectiveDefault // a file may stand first
		},
	}
	cmd.Flags().BoolVar(&how.force, "force", false, "do not compare lineage and serial first")
	cmd.Flags().DurationVar(&how.wait, "lock-timeout", 0, "wait that long for the lock, such as 5m")
	return cmd
}

// pushOptions are the flags of kl state push.
type pushOptions struct {
	force bool
	wait  time.Duration
}

// document is a state file.
type document struct {
	name    string // for messages
	bytes   []byte
	sum     string // SHA-256 of them, in hexadecimal
	serial  uint64
	lineage string
	sealed  bool // by OpenTofu's state encryption
}

func (a *app) readDocument(name string) (document, error) {
	d := document{name: name}
	var err error
	if name == "-" {
		d.name = "standard input"
		d.bytes, err = io.ReadAll(a.env.Stdin)
	} else {
		d.bytes, err = os.ReadFile(name)
	}
	if err != nil {
		return d, fault.Wrap(fault.ParameterInvalid, err, "the state cannot be read from %s", d.name).
			WithNext("check the file's name and permissions")
	}
	return parseDocument(d.name, d.bytes)
}

// parseDocument reads what must be known of a state to send it; name is for
// messages.
func parseDocument(name string, b []byte) (document, error) {
	d := document{name: name, bytes: b}
	// encrypted documents have serial and lineage in clear too
	var head struct {
		Serial  *uint64 `json:"serial"`
		Lineage string  `json:"lineage"`
		Sealed  *string `json:"encrypted_data"`
	}
	err, why := json.Unmarshal(d.bytes, &head), "it has no serial and lineage"
	var odd *json.UnmarshalTypeError
	switch {
	case errors.As(err, &odd) && odd.Field == "":
		why = "it is not a JSON object"
	case errors.As(err, &odd):
		why = fmt.Sprintf("its %s cannot be of this kind: %s", odd.Field, odd.Value)
	case err != nil:
		why = "it is not JSON: " + err.Error()
	}
	if err != nil || head.Serial == nil || head.Lineage == "" {
		return d, fault.New(fault.BodyInvalid, "%s is not a state: %s", d.name, why).
			WithNext("give a file as kl state pull or terraform state pull prints it")
	}
	sum := sha256.Sum256(b)
	d.sum = hex.EncodeToString(sum[:])
	d.serial, d.lineage, d.sealed = *head.Serial, head.Lineage, head.Sealed != nil
	return d, nil
}

// pushed is the answer to a push.
type pushed struct {
	Name string `json:"name"`
	client.Written
	Unchanged bool `json:"unchanged"` // the bytes were there already, nothing was written
}

func (a *app) push(ctx context.Context, t *target, d document, how pushOptions) (p pushed, err error) {
	ref, err := t.dataRef(ctx)
	if err != nil {
		return p, err
	}
	p.Name = t.state
	info := wire.LockInfo{
		ID: uuid.NewString(), Operation: wire.OperationPush, Who: a.who(), Version: "kl " + build().Version,
		Created: a.env.Now().UTC().Format(time.RFC3339Nano),
	}
	if err := a.lock(ctx, t, ref, info, how.wait); err != nil {
		return p, err
	}
	defer func() {
		// also after Ctrl-C: a push must not leave a lock
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
		defer cancel()
		if uerr := t.Unlock(ctx, ref, info); uerr != nil {
			a.note("the lock %s of %s could not be given back; release it with: kl lock release %s --id %s", info.ID, t.state, t.state, info.ID)
			err = errors.Join(err, fmt.Errorf("unlock %s: %w", t.state, uerr))
		}
	}()
	if !how.force {
		head, err := t.compare(ctx, d)
		if err != nil {
			return p, err
		}
		if head != nil {
			p.Unchanged = true
			p.Version, p.Serial = head.Version, head.Serial
			return p, nil
		}
	}
	p.Written, err = t.Push(ctx, ref, info.ID, d.bytes)
	return p, err
}

// lock takes the lock, coming back for it until wait is over. The server holds
// a request that comes again open, and hands the lock over in order of arrival.
func (a *app) lock(ctx context.Context, t *target, ref client.Ref, info wire.LockInfo, wait time.Duration) error {
	until := a.env.Now().Add(wait)
	for told := false; ; told = true {
		err := t.Lock(ctx, ref, info)
		if !fault.Is(err, fault.Locked) {
			return err
		}
		if !a.env.Now().Before(until) {
			f := fault.Of(err)
			return f.WithNext("%s", strings.Replace(f.Next, " -lock-timeout", " --lock-timeout", 1)) // kl's, not Terraform's
		}
		if !told {
			a.note("waiting up to %s: %s", wait, fault.Of(err).Detail)
		}
		pause := time.NewTimer(lockPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
}

// compare is what terraform state push checks before it writes. It returns the
// head when that has these very bytes.
func (t *target) compare(ctx context.Context, d document) (*wire.Version, error) {
	heads, err := client.Collect(t.Versions(ctx, t.environment, t.state), 1)
	if fault.Is(err, fault.NotFound) || (err == nil && len(heads) == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h := heads[0]
	if h.SHA256 == d.sum {
		return &h, nil
	}
	again := fmt.Sprintf("kl state push %s FILE --force", t.state)
	if h.Lineage != d.lineage {
		return nil, fault.New(fault.LineageConflict, "%s has lineage %s, but %s has %s: it belongs to another state", d.name, d.lineage, t.state, h.Lineage).
			WithNext("to replace the state on purpose: kl state allow %s --lineage, then %s", t.state, again)
	}
	if d.serial <= h.Serial {
		what := "is older than"
		if d.serial == h.Serial {
			what = "is the same as that of"
		}
		return nil, fault.New(fault.SerialConflict, "%s has serial %d, which %s %s (%d)", d.name, d.serial, what, t.state, h.Serial).
			WithNext("set the file's serial to %d if its content is right, or: kl state allow %s --lower-serial, then %s", h.Serial+1, t.state, again)
	}
	return nil, nil
}

// who names the user as Terraform does in its locks.
func (a *app) who() string {
	name := a.env.Getenv("USER")
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
