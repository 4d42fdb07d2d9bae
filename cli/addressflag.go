package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// addressFlag is --address of commands that ask about one resource: the
// server's address is a URL, and anything else names the resource. It may be
// given for both.
type addressFlag struct{ server, resource *string }

// String is the resource's address.
func (f *addressFlag) String() string {
	if f.resource == nil {
		return ""
	}
	return *f.resource
}

// Set takes either. An empty one is most often a variable of a script that is not
// set, and would mean all of the state.
func (f *addressFlag) Set(v string) error {
	if v == "" {
		return errors.New("it is empty; leave it out to mean all of the state")
	}
	if strings.HasPrefix(v, "http://") || strings.HasPrefix(v, "https://") {
		*f.server = v
	} else {
		*f.resource = v
	}
	return nil
}

// Type names the value in the help.
func (f *addressFlag) Type() string { return "string" }

// onlineAbout is online for a command whose --address names a resource, too.
func (a *app) onlineAbout(cmd *cobra.Command, resource *string, about string) *cobra.Command {
	a.online(cmd)
	f := cmd.PersistentFlags().Lookup("address")
	f.Value = &addressFlag{&a.flags.address, resource}
	f.Usage = about + "; or the server's address, as a URL"
	return cmd
}

// serverLeft reports whether a flag was given, but not for the server, whose
// address then comes from where it always may.
func serverLeft(f *pflag.Flag) bool {
	v, ok := f.Value.(*addressFlag)
	return ok && *v.server == ""
}
