# Everything that CI does is here or in the scripts that this calls. `make`
# without a target prints what there is.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X kl/cli.version=$(VERSION) -X kl/cli.commit=$(COMMIT)
FUZZ    ?= 20s
BENCH   ?= .
COUNT   ?= 10
BASE    ?= main

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: ## all that CI does: format, vet, lint, race tests, fuzzing, real clients
	@bash scripts/check.sh

.PHONY: quick
quick: ## tests that take under a second each (-short), no race detector
	go test -short ./...

.PHONY: lint
lint: tools ## format, go vet, golangci-lint and the log field rule
	@bash scripts/lint.sh

.PHONY: fmt
fmt: tools ## rewrite the files that are not formatted
	.bin/golangci-lint fmt

.PHONY: test
test: ## all tests with the race detector, in random order
	go test -race -shuffle=on -timeout 30m ./...

.PHONY: fuzz
fuzz: ## every fuzz target that there is, FUZZ=20s each
	@bash scripts/fuzz.sh $(FUZZ)

.PHONY: bench
bench: tools ## benchmarks here and at BASE=main, compared (BENCH=regexp COUNT=10)
	@bash scripts/bench.sh '$(BASE)' '$(BENCH)' '$(COUNT)'

.PHONY: golden
golden: ## rewrite the expectations of golden tests
	KL_UPDATE=1 go test ./...

.PHONY: build
build: ## a static binary with its version in it: ./kl
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o kl .
	@test "$$(./kl version --json | sed -n 's/.*"version": *"\([^"]*\)".*/\1/p')" = '$(VERSION)' || { echo 'the binary does not know its version: is kl/cli.version still there?'; exit 1; }

.PHONY: tools
tools: .bin/.built

.bin/.built: scripts/tools/go.mod scripts/tools/go.sum
	@bash scripts/tools.sh
