#!/usr/bin/env bash
# Fuzzes every target of the module for a while each: scripts/fuzz.sh [20s]
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-20s}

git ls-files --cached --others --exclude-standard '*_test.go' |
    xargs grep -HoE '^func Fuzz[A-Za-z0-9_]*' /dev/null | sort | while IFS=: read -r file func; do
    target=${func#func }
    echo "== $target in $(dirname "$file"), $each"
    # without a bound Go shrinks one input for up to a minute
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$each" -fuzzminimizetime 20x "./$(dirname "$file")" </dev/null
done
