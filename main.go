// Command kl serves Terraform and OpenTofu state from one file.
package main

import (
	"os"

	"kl/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.OS()))
}
