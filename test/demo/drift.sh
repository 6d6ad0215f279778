#!/usr/bin/env bash
# Edits the read-write Service of the demo's cluster by hand, and shows that the drift is
# detected, attributed and reverted. Called by demo.sh and make recording.
set -euo pipefail
: "${KUBECTL:?}" "${KUBECONFIG:?}"
k() { "$KUBECTL" -n demo "$@"; }
show() {
  local word
  printf '\n\033[1m$ kubectl -n demo'
  for word in "$@"; do
    case $word in
      *[!A-Za-z0-9_./=-]*) printf " '%s'" "$word" ;;
      *) printf ' %s' "$word" ;;
    esac
  done
  printf '\033[0m\n'
  k "$@"
}
drifts() { k get pg orders -o jsonpath='{range .status.drift.last[*]}{.time} {.object} {.path} {.manager} {.operation} {.action}{"\n"}{end}'; }
selector() { k get service orders-rw -o jsonpath='{.spec.selector.holdfast\.dev/role}'; }

show get pg orders
before=$(drifts | head -n 1)
show patch service orders-rw --type merge --field-manager a-user -p '{"spec":{"selector":{"holdfast.dev/role":"replica"}}}'
for _ in $(seq 100); do
  [ "$(drifts | head -n 1)" != "$before" ] && [ "$(selector)" = primary ] && break
  sleep 0.1
done
printf '\nThe drift was detected, attributed to its field manager and reverted:\n'
drifts | head -n 1
role=$(selector)
echo "orders-rw selects the role: $role"
[ "$role" = primary ] || { echo "the drift was not reverted"; exit 1; }
