package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"kl/wire"
)

// Set by the linker: -X kl/cli.version=v1.2.3 -X kl/cli.commit=….
var (
	version string
	commit  string
)

// build tells which build this is. Without the linker's words, as under "go
// run", it is what the Go tool noted.
func build() wire.ServerVersion {
	v := wire.ServerVersion{Version: version, Commit: commit, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v.Version == "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && v.Commit == "" {
				v.Commit = s.Value
			}
		}
	}
	if v.Version == "" {
		v.Version = "dev"
	}
	if v.Commit == "" {
		v.Commit = "unknown"
	}
	return v
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print which build of kl this is",
		Example: "  kl version\n  kl version --json",
		Args:    between(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := build()
			if a.asJSON {
				return a.printJSON(v)
			}
			return a.printf("kl %s (commit %s, %s)\n", v.Version, v.Commit, v.Go)
		},
	}
}
