#!/usr/bin/env bash
# Runs the benchmarks of another commit and of this checkout and compares them:
# scripts/bench.sh BASE [REGEXP] [COUNT]. Rounds alternate, so that a machine
# that grows slower or faster meanwhile does not look like a change.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:?usage: scripts/bench.sh BASE [REGEXP] [COUNT]} pattern=${2:-.} count=${3:-10}
bash scripts/tools.sh

work=$(mktemp -d)
trap 'git worktree remove --force "$work/base" 2>/dev/null || true; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/base" "$base"

for ((round = 1; round <= count; round++)); do
    echo "== round $round of $count" >&2
    go test -C "$work/base" -run '^$' -bench "$pattern" ./... >>"$work/old.txt"
    go test -run '^$' -bench "$pattern" ./... >>"$work/new.txt"
done
.bin/benchstat "$work/old.txt" "$work/new.txt"
