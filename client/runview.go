package client

import (
	"context"

	"kl/wire"
)

// RunView opens the exact bytes of the state that a run sees, as Terraform
// reads them there. The code is not_found when the state was never written. The
// caller closes the answer.
func (c *Client) RunView(ctx context.Context, r wire.Run) (*Bytes, error) {
	return c.bytes(ctx, data, r.StatePath)
}
