package terraform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"kl/fault"
)

// Scratch is a data directory of Terraform (TF_DATA_DIR) for one run of it,
// pointed at another state than the configuration names. Terraform runs in the
// directory of the configuration all the same, so that paths in it, what it
// writes there and an errored.tfstate are where they always are; the .terraform
// directory stays as it is.
//
// Address and the like stand in a file there. Credentials are in Env alone:
// Terraform copies those of a configuration into its data directory and into
// saved plans, and those of the environment nowhere.
type Scratch struct {
	Dir string // private to the user (0700)
	// Env is the environment that the client needs, NAME=value.
	Env []string
	// Owner is the file by which others see that the directory is in use; a
	// client that may outlive this process has to hold it. It may be nil.
	Owner *os.File
}

// At is a state that Terraform is pointed at.
type At struct {
	Address, Username, Password string
	// CA holds certificates to trust in PEM, "" for those that the configuration
	// or the system names.
	CA string
}

const (
	scratchPrefix = "kl-run-"
	ownerFile     = "owner"
	backendFile   = "run.tfbackend"
)

// NewScratch makes a Scratch for the configuration in dir, below the directory
// for temporary files. The providers and modules that "terraform init" has
// installed for dir are used from where they are. environ is the environment to
// start from. Close removes it all; what a killed process left behind, which may
// hold values of a plan, goes when the next one is made.
// Codes are those of CheckBackend.
func NewScratch(dir string, environ []string, at At) (_ *Scratch, err error) {
	if err := CheckBackend(dir); err != nil {
		return nil, err
	}
	tmp := os.TempDir()
	sweep(tmp)
	s := &Scratch{}
	if s.Dir, err = os.MkdirTemp(tmp, scratchPrefix); err != nil {
		return nil, fmt.Errorf("make a directory for the run: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Owner, err = own(filepath.Join(s.Dir, ownerFile)); err != nil {
		return nil, fmt.Errorf("make a directory for the run: %w", err)
	}
	dataDir := ""
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, "TF_DATA_DIR="); ok {
			dataDir = v
		}
	}
	if err := s.reuse(dir, dataDir); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(s.Dir, backendFile), backendConfig(at.Address), 0o600); err != nil {
		return nil, err
	}
	s.environment(environ, at)
	return s, nil
}

// CheckBackend refuses a configuration without a backend "http" block, with
// parameter_invalid: Terraform keeps its state elsewhere, and the server's would
// be taken for a new one.
func CheckBackend(dir string) error {
	b, err := FromConfiguration(dir)
	if err != nil || b != nil && b.Type == "http" {
		return err
	}
	what := "has no backend block"
	if b != nil {
		what = fmt.Sprintf("has a backend of type %q (%s)", b.Type, b.Source)
	}
	return fault.New(fault.ParameterInvalid, "the configuration in %s %s: its state is not here", dir, what).
		WithNext("add the block that this prints, then run terraform init: kl backend STATE")
}

// backendConfig is what init takes with -backend-config. null makes Terraform
// forget what the block says, so that the environment counts (seen with
// Terraform 1.11). A run needs no lock: nobody else uses its state.
func backendConfig(address string) []byte {
	return fmt.Appendf(nil, "address = %s\n%s", hclwrite.TokensForValue(cty.StringVal(address)).Bytes(), `lock_address = null
unlock_address = null
update_method = null
lock_method = null
unlock_method = null
username = null
password = null
`)
}

// reuse makes what init has installed for dir available.
func (s *Scratch) reuse(dir, dataDir string) error {
	if dataDir == "" {
		dataDir = ".terraform"
	}
	if !filepath.IsAbs(dataDir) {
		dataDir = filepath.Join(dir, dataDir)
	}
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return err
	}
	if info, err := os.Stat(filepath.Join(dataDir, "providers")); err == nil && info.IsDir() {
		// without the link init installs them anew, from the plugin cache at best
		_ = os.Symlink(filepath.Join(dataDir, "providers"), filepath.Join(s.Dir, "providers"))
	}
	// the manifest names each module's directory as seen from dir
	manifest, err := os.ReadFile(filepath.Join(dataDir, "modules", "modules.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(s.Dir, "modules"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Dir, "modules", "modules.json"), manifest, 0o600)
	}
	return err
}

// environment is that of the process, with the state of at in place of what the
// user's Terraform is pointed at.
func (s *Scratch) environment(environ []string, at At) {
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "TF_DATA_DIR", "TF_HTTP_ADDRESS", "TF_HTTP_UPDATE_METHOD", "TF_HTTP_LOCK_ADDRESS", "TF_HTTP_LOCK_METHOD",
			"TF_HTTP_UNLOCK_ADDRESS", "TF_HTTP_UNLOCK_METHOD", "TF_HTTP_USERNAME", "TF_HTTP_PASSWORD":
			continue
		case "TF_HTTP_CLIENT_CA_CERTIFICATE_PEM":
			if at.CA != "" {
				continue
			}
		}
		s.Env = append(s.Env, kv)
	}
	s.Env = append(s.Env, "TF_DATA_DIR="+s.Dir, "TF_HTTP_USERNAME="+at.Username, "TF_HTTP_PASSWORD="+at.Password)
	if at.CA != "" {
		s.Env = append(s.Env, "TF_HTTP_CLIENT_CA_CERTIFICATE_PEM="+at.CA)
	}
}

// InitArgs are the arguments of the client's init in the scratch directory.
func (s *Scratch) InitArgs() []string {
	return []string{"init", "-input=false", "-reconfigure", "-backend-config=" + filepath.Join(s.Dir, backendFile)}
}

// Close removes the directory.
func (s *Scratch) Close() error {
	err := os.RemoveAll(s.Dir)
	if s.Owner != nil {
		err = errors.Join(err, s.Owner.Close())
	}
	if err != nil {
		return fmt.Errorf("remove the run's directory: %w", err)
	}
	return nil
}

// sweep removes what processes left behind that were killed: their directories
// are owned by nobody. It is not worth a failure.
func sweep(tmp string) {
	left, err := filepath.Glob(filepath.Join(tmp, scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue
		}
		if f, err := take(filepath.Join(dir, ownerFile)); err == nil {
			_ = os.RemoveAll(dir)
			_ = f.Close()
		}
	}
}
