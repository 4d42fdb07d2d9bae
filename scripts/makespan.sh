#!/usr/bin/env bash
# How long N people take who each change their own part of one big state, each part
# taking ten seconds: with plain applies, which wait for each other at the state's
# lock, and with kl apply --orchestrated. Prints a table for docs/runs.md.
#
#   bash scripts/makespan.sh [SIZE [SECONDS [N…]]]
#
# SIZE is the number of instances that the state has besides (10000), SECONDS how long
# each part takes (10). Needs terraform (KL_TERRAFORM names another one); builds kl and
# serves it from a temporary directory.
set -euo pipefail
size=${1:-10000} seconds=${2:-10}
shift $(($# < 2 ? $# : 2))
counts=("$@")
[ ${#counts[@]} -gt 0 ] || counts=(1 2 4 8)
most=$(printf '%s\n' "${counts[@]}" | sort -n | tail -1)
terraform=${KL_TERRAFORM:-terraform}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
go build -o "$work/kl" .
kl=$work/kl
export CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_INPUT=0 HOME=$work
unset TF_CLI_CONFIG_FILE

"$kl" serve --data "$work/kl.db" --listen 127.0.0.1:0 >"$work/out" 2>"$work/err" &
until grep -q 'listening on' "$work/err"; do sleep 0.1; done
base=$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' "$work/err")
word() { sed -n "s/^$1  *\([^ ]*\).*/\1/p" "$work/out"; }
TF_HTTP_USERNAME=$(word workspace) TF_HTTP_PASSWORD=$(word 'automation token')
TF_HTTP_ADDRESS=$base/states/$TF_HTTP_USERNAME/$(word environment)/big
export TF_HTTP_USERNAME TF_HTTP_PASSWORD TF_HTTP_ADDRESS TF_HTTP_LOCK_ADDRESS=$TF_HTTP_ADDRESS TF_HTTP_UNLOCK_ADDRESS=$TF_HTTP_ADDRESS

# the state is written, not applied: terraform takes minutes to make 10,000 instances
mkdir "$work/conf"
cat >"$work/conf/main.tf" <<EOF
terraform {
  backend "http" {}
}
variable "round" {
  default = 0
}
resource "terraform_data" "filler" {
  count = $size
}
EOF
awk -v size="$size" 'BEGIN {
  print "{\"version\":4,\"terraform_version\":\"1.5.0\",\"serial\":1,\"lineage\":\"makespan\",\"outputs\":{},\"resources\":["
  print "{\"mode\":\"managed\",\"type\":\"terraform_data\",\"name\":\"filler\",\"provider\":\"provider[\\\"terraform.io/builtin/terraform\\\"]\",\"instances\":["
  for (i = 0; i < size; i++)
    printf "%s{\"index_key\":%d,\"schema_version\":0,\"attributes\":{\"id\":\"%08d-0000-0000-0000-000000000000\",\"input\":null,\"output\":null,\"triggers_replace\":null},\"sensitive_attributes\":[]}\n", (i ? "," : ""), i, i
  print "]}],\"check_results\":null}"
}' >"$work/state.json"
for i in $(seq "$most"); do
  cat >"$work/conf/part_$i.tf" <<EOF
resource "terraform_data" "part_$i" {
  triggers_replace = [var.round]
  provisioner "local-exec" {
    command = "sleep $seconds"
  }
}
EOF
done
cd "$work/conf"
"$terraform" init >/dev/null
"$terraform" state push "$work/state.json" >/dev/null

round=0
# together VERB N sets took to the seconds that N of them take, begun at the same moment
together() {
  local verb=$1 n=$2 begun i waits=()
  round=$((round + 1))
  begun=$(date +%s.%N)
  for i in $(seq "$n"); do
    "$verb" "$i" >"$work/$verb.$i" 2>&1 &
    waits+=($!)
  done
  for i in "${waits[@]}"; do
    wait "$i" || { cat "$work/$verb".* >&2; echo "a part failed" >&2; exit 1; }
  done
  took=$(echo "$begun $(date +%s.%N)" | awk '{printf "%.0f", $2 - $1}')
}
plain() { "$terraform" apply -no-color -auto-approve -lock-timeout=30m -var "round=$round" -target "terraform_data.part_$1"; }
orchestrated() { "$kl" apply --orchestrated --yes -no-color -var "round=$round" -f "part_$1.tf"; }

echo "| people | plain applies, exclusive lock | \`kl apply --orchestrated\` |"
echo "|---|---|---|"
for n in "${counts[@]}"; do
  together plain "$n"
  alone=$took
  together orchestrated "$n"
  echo "| $n | $alone s | $took s |"
done
