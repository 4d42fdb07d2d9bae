package kltest

import (
	"os"
	"testing"

	"kl/scripts/rig"
)

// Terraform is the path of the real client for a test: what KL_TERRAFORM says,
// else terraform, else tofu. Without one the test is left out on a person's
// machine and fails in CI, so that CI cannot lose it unseen.
func Terraform(tb testing.TB) string {
	tb.Helper()
	if os.Getenv("KL_TERRAFORM") == "none" {
		tb.Skip("KL_TERRAFORM=none: tests with a real client are left out")
	}
	bin, err := rig.FindTerraform("")
	if err == nil {
		return bin
	}
	if os.Getenv("CI") != "" {
		tb.Fatalf("%v; CI needs a real client (KL_TERRAFORM=none leaves its tests out)", err)
	}
	tb.Skip(err)
	return ""
}
