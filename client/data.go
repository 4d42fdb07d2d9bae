package client

import (
	"context"
	"crypto/md5" //nolint:gosec // Content-MD5 is what state clients send
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"kl/wire"
)

// Ref names a state on the data plane.
type Ref struct {
	Workspace   string // ws_…
	Environment string // env_…
	State       string
}

// Path is the state's path below the server's address.
func (r Ref) Path() string { return wire.StatePath(r.Workspace, r.Environment, r.State) }

// Written says what became of a write.
type Written struct {
	Version uint64 `json:"version"`
	Serial  uint64 `json:"serial"`
	Merged  bool   `json:"merged"`
	// QuotaWarning tells of soft limits that are exceeded, "" when none is.
	QuotaWarning string `json:"quota_warning,omitempty"`
}

// Pull opens the exact bytes of a state's newest version, as Terraform reads
// them. The code is not_found when the state was never written. The caller
// closes the answer.
func (c *Client) Pull(ctx context.Context, r Ref) (*Bytes, error) {
	return c.bytes(ctx, data, r.Path())
}

// Push writes a state as Terraform does. lockID is the caller's lock, "" when
// it holds none.
func (c *Client) Push(ctx context.Context, r Ref, lockID string, body []byte) (Written, error) {
	q := url.Values{}
	if lockID != "" {
		q.Set("ID", lockID)
	}
	if body == nil {
		body = []byte{}
	}
	res, err := c.do(ctx, data, http.MethodPost, r.Path(), q, body, digest(body))
	if err != nil {
		return Written{}, err
	}
	defer drain(res)
	w := Written{Merged: res.Header.Get(wire.HeaderMerged) == "true", QuotaWarning: res.Header.Get(wire.HeaderQuotaWarning)}
	w.Version, _ = strconv.ParseUint(res.Header.Get(wire.HeaderVersion), 10, 64)
	w.Serial, _ = strconv.ParseUint(res.Header.Get(wire.HeaderSerial), 10, 64)
	return w, nil
}

// digest is the header that lets the server see that all has come.
func digest(body []byte) http.Header {
	sum := md5.Sum(body) //nolint:gosec // as above
	return http.Header{"Content-Md5": {base64.StdEncoding.EncodeToString(sum[:])}}
}

// Lock takes a state's lock, as Terraform does. Asking again with the same ID
// is harmless, and keeps a place in the queue when somebody else holds the
// state (code locked).
func (c *Client) Lock(ctx context.Context, r Ref, info wire.LockInfo) error {
	return c.lock(ctx, "LOCK", r, info)
}

// Unlock gives a lock back. Only the ID of info matters; an empty one is a
// force-unlock of the only holder.
func (c *Client) Unlock(ctx context.Context, r Ref, info wire.LockInfo) error {
	return c.lock(ctx, "UNLOCK", r, info)
}

func (c *Client) lock(ctx context.Context, method string, r Ref, info wire.LockInfo) error {
	body, err := json.Marshal(info)
	if err != nil {
		return fmt.Errorf("write lock info: %w", err)
	}
	res, err := c.do(ctx, data, method, r.Path(), nil, body, nil)
	if err != nil {
		return err
	}
	drain(res)
	return nil
}

// drain lets the connection be used again.
func drain(res *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	_ = res.Body.Close()
}
