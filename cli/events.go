package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/fault"
	"kl/wire"
)

func (a *app) eventsCmd() *cobra.Command {
	var since, class, workspace string
	var limit int
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the audit trail",
		Long: `Print the audit trail, oldest first: who changed what, and what was refused. It outlives
the states that it tells of. The newest 200 entries are printed, unless --limit says
otherwise; the flags --env and --state select, their variables do not.`,
		Example: "  kl events --since 24h\n  kl events --state demo --class conflict\n  kl events --since 2026-01-31T00:00:00Z --limit 0 --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage(cmd, "--limit must not be negative")
			}
			f := client.EventFilter{Workspace: workspace, Class: class}
			if !a.fromEnv["state"] {
				f.State = a.flags.state
			}
			if class != "" && !slices.Contains(fault.Classes, fault.Class(class)) {
				return usage(cmd, "%q is not a class of refusals", class).WithNext("use one of: %s", classNames())
			}
			var err error
			if f.Since, err = a.sinceWhen(cmd, since); err != nil {
				return err
			}
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			if a.flags.env != "" && !a.fromEnv["env"] {
				t.environment = a.flags.env
				if err := t.findEnvironment(cmd.Context()); err != nil {
					return err
				}
				f.Environment = t.environment
			}
			list := []wire.Event{}
			for e, err := range t.Events(cmd.Context(), f) {
				if err != nil {
					return err
				}
				// the trail comes oldest first, and only the newest are wanted
				if list = append(list, e); limit > 0 && len(list) > 2*limit {
					list = slices.Delete(list, 0, len(list)-limit)
				}
			}
			if limit > 0 && len(list) > limit {
				list = list[len(list)-limit:]
			}
			return a.printEvents(list)
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "not before this time (RFC 3339), or this long ago, such as 24h")
	cmd.Flags().StringVar(&class, "class", "", "only refusals of this class")
	cmd.Flags().StringVar(&workspace, "workspace", "", "only of this workspace, by its id")
	cmd.Flags().IntVar(&limit, "limit", 200, "how many, the newest; 0 for all")
	return a.online(cmd)
}

func classNames() string {
	names := make([]string, len(fault.Classes))
	for i, c := range fault.Classes {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}

// sinceWhen reads a point in time, or how long ago it was.
func (a *app) sinceWhen(cmd *cobra.Command, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return a.env.Now().Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usage(cmd, "--since %q is neither a time nor a duration", text).WithNext("write it like 2026-01-31T12:00:00Z, or like 24h")
	}
	return at, nil
}

func (a *app) printEvents(list []wire.Event) error {
	head := []string{"TIME", "EVENT", "WHO", "ENVIRONMENT", "STATE", "VERSION", "REQUEST", "DETAIL"}
	return printList(a, list, head, func(e wire.Event) []string {
		version := ""
		if e.Version > 0 {
			version = fmt.Sprint(e.Version)
		}
		kind := e.Kind
		if e.Code != "" {
			kind += " " + e.Code
		}
		return []string{when(e.Time), kind, e.Principal, e.Environment, e.State, version, e.RequestID, eventDetail(e.Detail)}
	}, "there is no such event")
}

// eventDetail writes the members of an event's detail in one line.
func eventDetail(m map[string]any) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if s := fmt.Sprint(m[k]); s != "" && m[k] != nil {
			parts = append(parts, k+"="+s)
		}
	}
	return strings.Join(parts, " ")
}
