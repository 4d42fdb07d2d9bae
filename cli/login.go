package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"kl/auth"
	"kl/client"
	"kl/fault"
	"kl/wire"
)

func (a *app) loginCmd() *cobra.Command {
	return a.online(&cobra.Command{
		Use:   "login",
		Short: "Keep the server's address and a control token in the configuration file",
		Long: `Keep the server's address and a control token in ~/.config/kl/config.toml (mode 0600), so
that later commands need neither. The token is read from standard input, unless --token
or KL_TOKEN gives it, and is tried before anything is written.

A control token belongs to a person: the operator's is printed by the first kl serve, a
user's by kl user create. It is not valid for terraform, which takes an automation token
or a personal access token (kl pat create).

Login with another server takes the credentials of the one before out of the file.`,
		Example: "  kl login --address https://kl.example\n  kl login --address https://kl.example < token.txt",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			who, file, err := a.login(cmd)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(who)
			}
			name := cmp.Or(who.Name, who.ID)
			if who.Operator {
				name += ", an operator"
			}
			return a.printf("logged in as %s; address and token are in %s\n", name, file)
		},
	})
}

// login tries the token and writes the configuration file. The address comes
// from the flag, the environment or the file itself, never from a Terraform
// directory: one from elsewhere must not draw a token that was just typed.
func (a *app) login(cmd *cobra.Command) (wire.Whoami, string, error) {
	var none wire.Whoami
	s := source{name: "--address (KL_ADDRESS)", address: a.flags.address}
	if s.address == "" {
		s.name, s.address = a.config.path, a.config.get("address")
	}
	if s.address == "" {
		return none, "", usage(cmd, "no server is named").WithNext("kl login --address https://HOST")
	}
	if err := s.parse(); err != nil {
		return none, "", err
	}
	file, err := a.configFile()
	if err != nil {
		return none, "", err
	}
	token := a.flags.token
	if token == "" {
		if token, err = a.readToken(); err != nil {
			return none, "", err
		}
	}
	switch kind, ok := auth.KindOf(token); {
	case !ok:
		return none, "", fault.New(fault.CredentialsInvalid, "this is not a token of kl: it is cut, mistyped, or of another system").
			WithNext("take the whole token; it begins with %s", auth.Control.Prefix())
	case kind != auth.Control:
		return none, "", fault.New(fault.CredentialsInvalid, "a token that begins with %s is for terraform, and login takes a control token", kind.Prefix()).
			WithNext("export TF_HTTP_PASSWORD=TOKEN for terraform; for kl take a token that begins with %s", auth.Control.Prefix())
	}
	c, err := client.New(client.Options{Base: s.base, Bearer: token, CAFile: a.flags.caFile, UserAgent: "kl/" + build().Version})
	if err != nil {
		return none, "", err
	}
	who, err := c.Whoami(cmd.Context())
	if err != nil {
		return none, "", err
	}
	return who, file, a.keepLogin(file, s.base, token)
}

// configFile is where the configuration is, or will be.
func (a *app) configFile() (string, error) {
	if a.config.path == "" {
		return "", fault.New(fault.ParameterInvalid, "there is no home directory to keep the configuration in").
			WithNext("name a file: --config FILE (KL_CONFIG)")
	}
	return a.config.path, nil
}

func (a *app) readToken() (string, error) {
	if in, ok := a.env.Stdin.(*os.File); ok && terminal(in) {
		a.note("Paste the control token, then press Enter:")
	}
	line, err := bufio.NewReader(io.LimitReader(a.env.Stdin, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if line = strings.TrimSpace(line); line == "" {
		return "", fault.New(fault.CredentialsMissing, "no token came on standard input").
			WithNext("kl login --address URL < FILE, or set KL_TOKEN")
	}
	return line, nil
}

// keepLogin writes address and token into the configuration file and leaves
// its other settings. Those that were for another server go.
func (a *app) keepLogin(file, base, token string) error {
	set := map[string]string{"address": base, "token": token}
	if a.flags.caFile != "" {
		abs, err := filepath.Abs(a.flags.caFile)
		if err != nil {
			return fmt.Errorf("find %s: %w", a.flags.caFile, err)
		}
		set["ca_file"] = abs
	}
	var drop []string
	before := source{address: a.config.get("address")}
	if before.address != "" && (before.parse() != nil || !sameServer(before.base, base)) {
		for _, key := range []string{"username", "password", "env", "state"} {
			if a.config.get(key) != "" {
				drop = append(drop, key)
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.ParameterInvalid, err, "the configuration file cannot be read").WithNext("check --config (KL_CONFIG)")
	}
	out, err := edited(text, set, drop)
	if err != nil {
		return err
	}
	if err := replaceFile(file, out); err != nil {
		return fault.Wrap(fault.ParameterInvalid, err, "the configuration file cannot be written").WithNext("check --config (KL_CONFIG) and the directory's permissions")
	}
	if len(drop) > 0 {
		a.note("taken out of %s, because they were for %s: %s", file, before.base, strings.Join(drop, ", "))
	}
	return nil
}

var setting = regexp.MustCompile(`^\s*([A-Za-z_]+)\s*=`)

// edited changes settings in a configuration file's text and keeps its comments
// and order.
func edited(text []byte, set map[string]string, drop []string) ([]byte, error) {
	want := map[string]any{}
	if err := toml.Unmarshal(text, &want); err != nil {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the configuration file is not valid TOML")
	}
	for k, v := range set {
		want[k] = v
	}
	for _, k := range drop {
		delete(want, k)
	}
	left := maps.Clone(set)
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		m := setting.FindStringSubmatch(line)
		switch {
		case m != nil && slices.Contains(drop, m[1]):
			continue
		case m != nil && left[m[1]] != "":
			line = m[1] + " = " + strconv.Quote(left[m[1]]) + "\n"
			delete(left, m[1])
		case !strings.HasSuffix(line, "\n"):
			line += "\n"
		}
		out.WriteString(line)
	}
	for _, k := range []string{"address", "ca_file", "token"} {
		if left[k] != "" {
			out.WriteString(k + " = " + strconv.Quote(left[k]) + "\n")
		}
	}
	got := map[string]any{}
	if err := toml.Unmarshal([]byte(out.String()), &got); err == nil && maps.Equal(got, want) {
		return []byte(out.String()), nil
	}
	// settings over several lines: what they say is kept, how it was laid out not
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(want); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return b.Bytes(), nil
}

// replaceFile writes a file of mode 0600, wholly or not at all.
func replaceFile(file string, text []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".config-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
