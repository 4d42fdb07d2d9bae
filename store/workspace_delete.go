package store

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/wire"
)

// DeleteWorkspace removes a workspace that has no environments, with its
// memberships. Codes: not_found, parameter_invalid while it has environments, is
// suspended, or is the only one.
func (s *Store) DeleteWorkspace(ctx context.Context, by Actor, id string) error {
	return s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		w, ok, err := getRec[workspaceRec](tx, bWorkspace, []byte(id))
		if err != nil {
			return err
		}
		if !ok {
			return noWorkspace(id)
		}
		if w.Status == statusSuspended {
			return fault.New(fault.ParameterInvalid, "the workspace %s is suspended", w.Name).WithNext("kl workspace resume %s", id)
		}
		environments := 0
		err = eachKV(tx, bSlug, pair(id, ""), func([]byte, []byte) (bool, error) {
			environments++
			return true, nil
		})
		if err != nil {
			return err
		}
		if environments > 0 {
			return fault.New(fault.ParameterInvalid, "the workspace %s still has environments: %d", w.Name, environments).
				WithNext("kl env list --workspace %s; kl env delete ENV", id)
		}
		// a file without workspaces counts as new, and would be bootstrapped again
		c := tx.Bucket(bWorkspace).Cursor()
		c.First()
		if k, _ := c.Next(); k == nil {
			return fault.New(fault.ParameterInvalid, "%s is the only workspace of this server", w.Name).WithNext("make another one first: kl workspace create NAME")
		}
		return broken(errors.Join(
			deletePrefix(tx, bMember, pair(id, "")),
			del(tx, bWorkspace, []byte(id)),
			s.event(tx, wire.Event{
				Kind: "workspace_deleted", Principal: by.Display(), Workspace: id, RequestID: by.RequestID,
				Detail: map[string]any{"name": w.Name, "kind": w.Kind},
			}),
		))
	})
}
