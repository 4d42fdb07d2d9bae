package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kl/fault"
)

// configKeys are what the configuration file may set: the flags that describe
// a server or a place, not those that say what one call does.
var configKeys = []string{
	"address", "ca_file", "data", "env", "external_url", "json", "listen", "log_format",
	"max_body", "password", "state", "tls_cert", "tls_key", "token", "username",
}

// targetKeys say which server and state are meant. Terraform's own settings
// stand between the environment and the configuration file for these, so
// resolve looks at them and bind does not.
var targetKeys = []string{"address", "env", "password", "state", "token", "username"}

// config is the configuration file.
type config struct {
	path   string
	values map[string]string
}

func (c *config) get(key string) string { return c.values[key] }

// variable is the environment variable of a flag.
func variable(flag string) string {
	return "KL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// describe adds to each flag's help the variable that it also reads.
func describe(cmd *cobra.Command) {
	add := func(f *pflag.Flag) {
		if v := " (" + variable(f.Name) + ")"; f.Name != "help" && !strings.HasSuffix(f.Usage, v) {
			f.Usage += v
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, c := range cmd.Commands() {
		if c.Name() != "completion" {
			describe(c)
		}
	}
}

// bind gives every flag that is not on the command line its value from the
// environment or the configuration file.
func (a *app) bind(cmd *cobra.Command) error {
	for c := cmd; c != nil; c = c.Parent() {
		if c.Name() == "completion" || c.Name() == "help" {
			return nil
		}
	}
	if a.file == "" {
		a.file = a.env.Getenv("KL_CONFIG")
	}
	cfg, err := readConfig(a.file, a.env.Getenv("HOME"))
	if err != nil {
		return err
	}
	a.config = cfg
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if failed != nil || f.Changed && !serverLeft(f) || f.Name == "help" || f.Name == "config" {
			return
		}
		source := variable(f.Name)
		value := a.env.Getenv(source)
		a.fromEnv[f.Name] = value != ""
		key := strings.ReplaceAll(f.Name, "-", "_")
		if value == "" && !slices.Contains(targetKeys, key) {
			source, value = cfg.path, cfg.get(key)
		}
		if value == "" {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			failed = fault.Wrap(fault.ParameterInvalid, errors.Unwrap(err), "%s in %s is not valid for --%s", key, source, f.Name).
				WithNext("%s --help", cmd.CommandPath())
		}
	})
	return failed
}

// readConfig reads the configuration file: path, or the usual one, which may
// be absent. It holds secrets, so it is refused when others could read it.
func readConfig(path, home string) (*config, error) {
	named := path != ""
	if !named {
		if home == "" {
			return &config{}, nil
		}
		path = filepath.Join(home, ".config", "kl", "config.toml")
	}
	c := &config{path: path, values: map[string]string{}}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return c, nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the configuration file cannot be read").
			WithNext("check --config (KL_CONFIG) and the file's permissions")
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fault.New(fault.ParameterInvalid, "the configuration file %s can be read or changed by others (mode %04o)", path, info.Mode().Perm()).
			WithNext("chmod 600 %s", path)
	}
	values := map[string]any{}
	if _, err := toml.DecodeFile(path, &values); err != nil {
		return nil, tomlFault(path, err)
	}
	for key, v := range values {
		if !slices.Contains(configKeys, key) {
			return nil, fault.New(fault.ParameterInvalid, "%s: there is no setting %q", path, key).
				WithNext("take it out, or use one of: %s", strings.Join(configKeys, ", "))
		}
		switch v := v.(type) {
		case string:
			c.values[key] = v
		case bool:
			c.values[key] = strconv.FormatBool(v)
		case int64:
			c.values[key] = strconv.FormatInt(v, 10)
		default:
			return nil, fault.New(fault.ParameterInvalid, "%s: the setting %q must be text, a number, or true or false", path, key).
				WithNext("write it as: %s = \"…\"", key)
		}
	}
	return c, nil
}

// The decoder's own text may quote the line, which may hold a secret, so only
// the place is told.
func tomlFault(path string, err error) error {
	var pe toml.ParseError
	if errors.As(err, &pe) {
		return fault.New(fault.ParameterInvalid, "%s line %d is not valid TOML", path, pe.Position.Line).
			WithNext("settings look like: address = \"https://kl.example\"")
	}
	return fault.Wrap(fault.ParameterInvalid, err, "the configuration file %s cannot be read", path).
		WithNext("check --config (KL_CONFIG) and the file's permissions")
}

// size is a flag's number of bytes, with or without a unit.
type size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}}

// String writes the size in the largest unit that divides it.
func (s *size) String() string {
	for _, u := range slices.Backward(sizeUnits[:4]) {
		if *s != 0 && int64(*s)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(*s)/u.bytes, u.suffix)
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Type names the kind of value in help texts.
func (s *size) Type() string { return "size" }

// Set reads what String writes, or a plain number of bytes.
func (s *size) Set(text string) error {
	unit := int64(1)
	number := text
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			number, unit = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/unit {
		return fmt.Errorf("%q is not a size such as 512MiB", text)
	}
	*s = size(n * unit)
	return nil
}
