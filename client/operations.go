package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"kl/fault"
	"kl/wire"
)

// Prune removes the versions that an environment's rules no longer keep, or
// with q.DryRun tells which these are.
func (c *Client) Prune(ctx context.Context, env string, q wire.PruneRequest) (r wire.PruneResult, err error) {
	return r, c.call(ctx, http.MethodPost, wire.PrunePath(env), nil, q, &r)
}

// Backup writes a consistent copy of the server's data file to w and returns
// its size. rate bounds the bytes per second, 0: not at all. progress may be
// nil. What was written is good only when the error is nil: then it has the
// digest that the server has told.
func (c *Client) Backup(ctx context.Context, w io.Writer, rate int64, progress func(done, total int64)) (int64, error) {
	q := url.Values{}
	if rate > 0 {
		q.Set("rate", strconv.FormatInt(rate, 10))
	}
	res, err := c.do(ctx, control, http.MethodGet, wire.BackupPath, q, nil, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	h := sha256.New()
	from := &counted{r: io.TeeReader(res.Body, h), total: res.ContentLength, progress: progress}
	n, err := io.Copy(w, from)
	switch {
	case from.err != nil:
		return n, c.unreachable(ctx, from.err)
	case err != nil:
		return n, fmt.Errorf("write the backup: %w", err)
	case res.Header.Get(wire.HeaderSHA256) != hex.EncodeToString(h.Sum(nil)):
		return n, fault.New(fault.Unreachable, "the backup did not arrive as it was sent").WithNext("make it again")
	}
	return n, nil
}

// counted tells how far a reader is, and keeps its failure apart from that of
// who writes what it reads.
type counted struct {
	r           io.Reader
	done, total int64
	progress    func(done, total int64)
	err         error
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done += int64(n)
	if c.progress != nil {
		c.progress(c.done, c.total)
	}
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// NewUserToken issues a new control token for a user, given by id or name, who
// has lost it; the one from before ends. The answer alone has its secret.
func (c *Client) NewUserToken(ctx context.Context, user string) (u wire.User, err error) {
	return u, c.call(ctx, http.MethodPost, "/v1/users/"+url.PathEscape(user)+"/token", nil, nil, &u)
}
