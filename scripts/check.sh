#!/usr/bin/env bash
# The one command that runs every check of the project; CI runs this and
# nothing else. It needs Go and git. The race detector also needs a C compiler,
# and the tests with a real client need terraform (or KL_TERRAFORM): where one
# is missing, this says so and goes on without.
#
#   FUZZ=20s   how long each fuzz target runs
set -euo pipefail
cd "$(dirname "$0")/.."
export CHECKPOINT_DISABLE=1

step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

race=-race
if ! command -v "$(go env CC)" >/dev/null; then
    echo 'There is no C compiler on this machine: the tests run without the race detector.'
    race=
fi
if ! command -v "${KL_TERRAFORM:-terraform}" >/dev/null && [ "${KL_TERRAFORM:-}" != none ]; then
    echo 'There is no terraform on this machine: the tests with a real client are left out.'
    echo 'Install it, or set KL_TERRAFORM to the path of a terraform or tofu binary, to run them.'
    export KL_TERRAFORM=none
fi

step 'format, vet, lint'
bash scripts/lint.sh

step 'tests'
go test $race -shuffle=on -timeout 30m ./...

step 'fuzzing'
bash scripts/fuzz.sh "${FUZZ:-10s}"

step 'done'
