package store

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/wire"
)

// maxTags bounds the tags of one state.
const maxTags = 1000

// tagForm leaves no name that could be read as another kind of version
// reference: those are digits, or hold @ or a colon.
var tagForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)

func validTag(tag string) bool {
	return tagForm.MatchString(tag) && !strings.EqualFold(tag, "head")
}

func checkTag(tag string) error {
	if validTag(tag) {
		return nil
	}
	return fault.New(fault.ParameterInvalid, "%.80q cannot be a tag", tag).
		WithNext("use 1 to 64 letters, digits, dots, dashes and underscores, beginning with a letter; head is taken")
}

// SetTag gives a version a name, which may be used wherever a version is
// referred to and keeps the version from being pruned. A tag that exists moves.
// Codes: not_found, parameter_invalid, workspace_suspended, state_archived,
// state_deleted.
func (s *Store) SetTag(ctx context.Context, by Actor, ref Ref, tag, version string) (wire.Tag, error) {
	var out wire.Tag
	if err := checkTag(tag); err != nil {
		return out, err
	}
	err := s.changeTag(ctx, by, ref, func(tx *bbolt.Tx, sid uint64, rec *stateRec) (*wire.Event, error) {
		n, err := resolve(tx, sid, rec, version)
		if err != nil {
			return nil, err
		}
		k := keyS(sid, tag)
		e := &wire.Event{Kind: "tag_set", Version: n, Detail: map[string]any{"tag": tag}}
		if old := peek(tx, bTag, k); old != nil {
			was, err := sidOf(old)
			if err != nil {
				return nil, err
			}
			e.Detail["was"] = was
		} else if count, err := countKeys(tx, bTag, u64(sid)); err != nil {
			return nil, err
		} else if count >= maxTags {
			return nil, fault.New(fault.ParameterInvalid, "the state %s has %d tags, which is the most a state can have", ref.Name, count).
				WithNext("remove some with: kl tag unset %s TAG", ref.Name)
		}
		v, err := getVersion(tx, sid, n)
		if err != nil {
			return nil, err
		}
		e.Serial = v.Serial
		out = wire.Tag{Tag: tag, Version: n, Serial: v.Serial, CreatedAt: v.CreatedAt}
		return e, broken(put(tx, bTag, k, u64(n)))
	})
	return out, err
}

// UnsetTag removes a tag; the version stays. Codes: not_found,
// parameter_invalid, workspace_suspended, state_archived, state_deleted.
func (s *Store) UnsetTag(ctx context.Context, by Actor, ref Ref, tag string) error {
	if err := checkTag(tag); err != nil {
		return err
	}
	return s.changeTag(ctx, by, ref, func(tx *bbolt.Tx, sid uint64, _ *stateRec) (*wire.Event, error) {
		k := keyS(sid, tag)
		old := peek(tx, bTag, k)
		if old == nil {
			return nil, noTag(ref.Name, tag)
		}
		was, err := sidOf(old)
		if err != nil {
			return nil, err
		}
		return &wire.Event{Kind: "tag_unset", Version: was, Detail: map[string]any{"tag": tag}}, broken(del(tx, bTag, k))
	})
}

func noTag(state, tag string) error {
	return fault.New(fault.NotFound, "the state %s has no tag %s", state, tag).WithNext("list the tags with: kl tag list %s", state)
}

// changeTag runs a change of a state's tags in a transaction. f must not fail
// once it has written.
func (s *Store) changeTag(ctx context.Context, by Actor, ref Ref, f func(tx *bbolt.Tx, sid uint64, rec *stateRec) (*wire.Event, error)) error {
	return s.commit.do(ctx, 512, func(tx *bbolt.Tx) error {
		sid, rec, err := written(tx, ref)
		if err != nil {
			return err
		}
		if err := s.activeEnvironment(tx, ref.Environment); err != nil {
			return err
		}
		if err := activeState(ref, rec); err != nil {
			return err
		}
		e, err := f(tx, sid, rec)
		if err != nil {
			return err
		}
		e.Principal, e.Environment, e.State, e.RequestID = by.Display(), ref.Environment, ref.Name, by.RequestID
		return broken(s.event(tx, *e))
	})
}

// Tags lists the tags of a state by name. Code: not_found.
func (s *Store) Tags(ctx context.Context, ref Ref) ([]wire.Tag, error) {
	out := []wire.Tag{}
	err := s.view(func(tx *bbolt.Tx) error {
		sid, _, err := written(tx, ref)
		if err != nil {
			return err
		}
		tags, err := tagsOf(tx, sid)
		if err != nil {
			return err
		}
		for n, names := range tags {
			v, err := getVersion(tx, sid, n)
			if err != nil {
				return err
			}
			for _, name := range names {
				out = append(out, wire.Tag{Tag: name, Version: n, Serial: v.Serial, CreatedAt: v.CreatedAt})
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b wire.Tag) int { return strings.Compare(a.Tag, b.Tag) })
	return out, cmp.Or(err, ctx.Err())
}

// countKeys counts the keys that begin with prefix.
func countKeys(tx *bbolt.Tx, bucket, prefix []byte) (n int, err error) {
	err = eachKV(tx, bucket, prefix, func(_, _ []byte) (bool, error) { n++; return true, nil })
	return n, err
}
