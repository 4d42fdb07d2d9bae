package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/tfstate"
	"kl/wire"
)

// ResourceQuery selects instances of a version.
type ResourceQuery struct {
	Version string // reference
	Address string // of an instance, a resource or a module; "" for all
	Cursor  string // the Next of the page before, "" for the first; it goes on with the same version
	Limit   int    // 0: 100
}

// Resources lists the instances of a version in the order of the document.
// Codes: not_found, parameter_invalid, state_opaque.
func (s *Store) Resources(ctx context.Context, ref Ref, q ResourceQuery) (wire.List[wire.Resource], error) {
	out := wire.List[wire.Resource]{Items: []wire.Resource{}}
	within, err := parseScope(q.Address)
	if err != nil {
		return out, err
	}
	skip := 0
	if q.Cursor != "" {
		var version uint64
		if n, err := fmt.Sscanf(q.Cursor, "%d.%d", &version, &skip); n != 2 || err != nil || q.Cursor != fmt.Sprintf("%d.%d", version, skip) || skip < 0 {
			return out, badCursor(q.Cursor)
		}
		q.Version = fmt.Sprint(version)
	}
	err = s.looking(ctx, ref, func() error { return s.listResources(ctx, ref, q, within, skip, &out) })
	return out, err
}

func (s *Store) listResources(ctx context.Context, ref Ref, q ResourceQuery, within *scope, skip int, out *wire.List[wire.Resource]) error {
	var sid uint64
	var v *versionRec
	var es []entry
	err := s.view(func(tx *bbolt.Tx) (err error) {
		var rec *stateRec
		if sid, rec, err = written(tx, ref); err != nil {
			return err
		}
		n, err := resolve(tx, sid, rec, q.Version)
		if err != nil {
			return err
		}
		if v, es, err = chunksOf(tx, sid, n); err == nil && v.Opaque {
			err = opaque(ref, n, "listed")
		}
		return err
	})
	if err != nil {
		return err
	}
	scan, met := s.newChunkScan(sid, es), 0
	err = scan.run(ctx, func(int) bool { return true }, func(_ int, t *tfstate.Token) error {
		if t.Kind != tfstate.CutInstance || !within.covers(elementOf(t)) {
			return nil
		}
		if met++; met <= skip {
			return nil
		}
		if len(out.Items) == page(q.Limit) {
			out.Next = fmt.Sprintf("%d.%d", v.Version, met-1)
			return errEnough
		}
		out.Items = append(out.Items, resourceOf(&t.Inst, scan.provider))
		return nil
	})
	if err == nil && within != nil && met == 0 {
		return fault.New(fault.NotFound, "version %d of the state %s has nothing at %s", v.Version, ref.Name, within.text).
			WithNext("list what is there with: kl query resources %s; what was there with: kl query history %s --address ADDRESS", ref.Name, ref.Name)
	}
	return err
}

// resourceOf describes an instance.
func resourceOf(i *tfstate.Instance, provider string) wire.Resource {
	r := wire.Resource{
		Address: i.Address(), Module: i.Resource.Module, Mode: i.Resource.Mode, Type: i.Resource.Type, Name: i.Resource.Name, Deposed: i.Deposed,
		Provider: provider, Dependencies: tfstate.Dependencies(i.Raw),
	}
	switch i.Key.Kind {
	case tfstate.KeyInt:
		r.IndexKey = []byte(i.Key.Text)
	case tfstate.KeyString:
		r.IndexKey = jsonText(i.Key.Text)
	case tfstate.KeyNone: // null
	}
	if r.Dependencies == nil {
		r.Dependencies = []string{}
	}
	if _, hidden, err := tfstate.MaskAttributes(i.Raw); err == nil && !slices.ContainsFunc(hidden, func(path string) bool { return path == "id" || path == "" }) {
		r.ID = tfstate.ObjectID(i.Raw)
	}
	for name, value := range tfstate.Members(i.Raw) {
		if strings.EqualFold(name, "status") {
			r.Status, _ = tfstate.Text(value)
		}
	}
	return r
}
