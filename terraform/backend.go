// Package terraform deals with Terraform and OpenTofu on this machine. It finds
// out what they have been told about their state (the http backend's address and
// credentials in the environment, in an initialised directory, and in the
// configuration), which part of a configuration files declare, and what a saved
// plan writes and relies on; and it runs them as a shell would.
package terraform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kl/fault"
)

// Backend is what one place says about the http backend.
type Backend struct {
	// Source names the place for messages, such as "main.tf:3".
	Source string
	// Type is the backend's type; the other members are empty unless it is
	// "http".
	Type     string
	Address  string
	Username string
	Password string
	// LockAddress and UnlockAddress are where locks are taken and given back,
	// "" for nowhere. FromConfiguration does not tell them.
	LockAddress, UnlockAddress string
	// UpdateMethod, LockMethod and UnlockMethod are HTTP's, "" for those that the
	// client chooses. FromConfiguration does not tell them.
	UpdateMethod, LockMethod, UnlockMethod string
	// Expressions names the settings that are there but are not literals, each
	// with its place, such as "password (main.tf:5)". Their values are not
	// known here.
	Expressions []string
}

// FromEnvironment reads the TF_HTTP_ variables; nil when none is set.
func FromEnvironment(getenv func(string) string) *Backend {
	b := &Backend{
		Source:   "TF_HTTP_ADDRESS",
		Type:     "http",
		Address:  getenv("TF_HTTP_ADDRESS"),
		Username: getenv("TF_HTTP_USERNAME"),
		Password: getenv("TF_HTTP_PASSWORD"),

		LockAddress:   getenv("TF_HTTP_LOCK_ADDRESS"),
		UnlockAddress: getenv("TF_HTTP_UNLOCK_ADDRESS"),
		UpdateMethod:  getenv("TF_HTTP_UPDATE_METHOD"),
		LockMethod:    getenv("TF_HTTP_LOCK_METHOD"),
		UnlockMethod:  getenv("TF_HTTP_UNLOCK_METHOD"),
	}
	if b.Address == "" && b.Username == "" && b.Password == "" {
		return nil
	}
	return b
}

// FromInitialised reads what "init" noted for the configuration in dir; nil
// when the directory was not initialised or has no backend. dataDir is the
// value of TF_DATA_DIR, "" for the default. The code of a failure is
// parameter_invalid.
func FromInitialised(dir, dataDir string) (*Backend, error) {
	if dataDir == "" {
		dataDir = ".terraform"
	}
	path := filepath.Join(dataDir, "terraform.tfstate")
	full := path
	if !filepath.IsAbs(path) {
		full = filepath.Join(dir, path)
	}
	b, err := os.ReadFile(full)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "%s cannot be read", path).
			WithNext("check the file's permissions, or name the state with --address")
	}
	var doc struct {
		Backend *struct {
			Type   string `json:"type"`
			Config struct {
				Address  *string `json:"address"`
				Username *string `json:"username"`
				Password *string `json:"password"`
				Lock     *string `json:"lock_address"`
				Unlock   *string `json:"unlock_address"`

				UpdateMethod *string `json:"update_method"`
				LockMethod   *string `json:"lock_method"`
				UnlockMethod *string `json:"unlock_method"`
			} `json:"config"`
		} `json:"backend"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		// another backend's members may have other types; only http's matter
		var other struct {
			Backend struct {
				Type string `json:"type"`
			} `json:"backend"`
		}
		if json.Unmarshal(b, &other) == nil && other.Backend.Type != "" && other.Backend.Type != "http" {
			return &Backend{Source: path, Type: other.Backend.Type}, nil
		}
		return nil, fault.Wrap(fault.ParameterInvalid, err, "%s is not what terraform init writes", path).
			WithNext("run terraform init again, or name the state with --address")
	}
	if doc.Backend == nil || doc.Backend.Type == "" {
		return nil, nil
	}
	out := &Backend{Source: path, Type: doc.Backend.Type}
	if out.Type == "http" {
		c := doc.Backend.Config
		out.Address, out.Username, out.Password = value(c.Address), value(c.Username), value(c.Password)
		out.LockAddress, out.UnlockAddress = value(c.Lock), value(c.Unlock)
		out.UpdateMethod, out.LockMethod, out.UnlockMethod = value(c.UpdateMethod), value(c.LockMethod), value(c.UnlockMethod)
	}
	return out, nil
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func place(file string, line int) string {
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}
