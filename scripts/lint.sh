#!/usr/bin/env bash
# Format, go vet, linters, and the one rule that no linter can express: names
# of log fields are constants, so that a field has one spelling.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/tools.sh

status=0
unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
    echo "not formatted (make fmt):"
    echo "$unformatted"
    status=1
fi
go vet ./... || status=1
.bin/golangci-lint run ./... || status=1

literals=$(git grep -nE '\.(Str|Strs|Int|Int32|Int64|Uint32|Uint64|Float64|Bool|Dur|Time|Any|Interface|Bytes|Hex|AnErr|Stringer)\("' \
    -- '*.go' ':!*_test.go' | grep -vE 'Flags\(\)|flags?\.' || true)
if [ -n "$literals" ]; then
    echo "log fields with a literal name (use the constants):"
    echo "$literals"
    status=1
fi
exit $status
