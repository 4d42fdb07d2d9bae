#!/usr/bin/env bash
# Builds the tools that scripts/tools pins into .bin, unless they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ .bin/.built -nt scripts/tools/go.mod ] && [ .bin/.built -nt scripts/tools/go.sum ]; then
    exit 0
fi
echo '== building the pinned tools (a minute or two, once)' >&2
mkdir -p .bin
CGO_ENABLED=0 go build -C scripts/tools -o ../../.bin/ tool
touch .bin/.built
