#!/usr/bin/env bash
# Two people apply a slow file each, at the same time, to one state with an exclusive
# lock: left.tf and right.tf, each of which takes twice SECONDS.
#
#   bash parallel.sh [SIZE [SECONDS]]
#
# It takes the state from the environment (TF_HTTP_ADDRESS and its like: see README.md)
# and needs kl and terraform in the PATH.
set -euo pipefail
cd "$(dirname "$0")"
size=${1:-1000} seconds=${2:-10}
vars=(-var "size=$size" -var slow_seconds=0 -var "side_seconds=$seconds")
export TF_IN_AUTOMATION=1 TF_INPUT=0

terraform init -no-color >/dev/null
echo "== what is there before: $size instances"
kl apply -no-color --yes "${vars[@]}" -var side_seconds=0 | tail -n 8

echo "== left.tf and right.tf, both at once"
begun=$(date +%s)
apply() {
  kl apply --orchestrated --yes -no-color -f "$1.tf" "${vars[@]}" 2>&1 | sed -u "s/^/$1 | /"
}
apply left &
left=$!
apply right &
right=$!
until [ "$(kl runs --live --json | grep -cE '"status": "(reserved|applying)"')" -ge 2 ] || ! kill -0 "$left" 2>/dev/null; do
  sleep 0.2
done
echo "== both have reserved what is theirs"
kl runs --live
wait "$left"
wait "$right"
echo "== both are done after $(($(date +%s) - begun)) s; one after the other they would sleep $((4 * seconds)) s"

kl history --state "${TF_HTTP_ADDRESS##*/}"
terraform plan -no-color -detailed-exitcode "${vars[@]}" >/dev/null
echo "== a plain plan finds nothing left to do"
