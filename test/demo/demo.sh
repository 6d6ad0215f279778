#!/usr/bin/env bash
# Shows what Holdfast does, on the cluster that KUBECONFIG names. Called by make demo.
set -euo pipefail
cd "$(dirname "$0")/../.."
k() { "$KUBECTL" "$@"; }
say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }
drifts() { k -n demo get pg orders -o jsonpath='{range .status.drift.last[*]}{.time} {.object} {.path} {.manager} {.operation} {.action}{"\n"}{end}'; }

say "a namespace under the restricted Pod Security Standard, and a cluster of three members"
k create namespace demo --dry-run=client -o yaml | k apply -f - >/dev/null
k label namespace demo --overwrite pod-security.kubernetes.io/enforce=restricted >/dev/null
k -n demo apply --server-side -f examples/postgrescluster.yaml
k -n demo wait --for=condition=Ready pg/orders --timeout=300s
k -n demo get pg,pods -o wide

say "a write through orders-rw's database, read back from a replica"
k -n demo exec orders-0 -c postgres -- psql -qh /run/holdfast -U postgres app -c \
  'create table if not exists seen (at timestamptz default now()); insert into seen default values'
sleep 1
k -n demo exec orders-1 -c postgres -- psql -h /run/holdfast -U postgres app -c 'select count(*), max(at) from seen'

say "somebody sends the read-write Service's clients to the replicas"
before=$(drifts | wc -l)
k -n demo patch service orders-rw --type merge --field-manager somebody -p '{"spec":{"selector":{"holdfast.dev/role":"replica"}}}'
for _ in $(seq 100); do
  [ "$(drifts | wc -l)" -gt "$before" ] && break
  sleep 0.1
done
say "detected, attributed, reverted"
drifts | head -n 1
selector=$(k -n demo get service orders-rw -o jsonpath='{.spec.selector.holdfast\.dev/role}')
echo "orders-rw selects the role: $selector"
[ "$selector" = primary ] || { echo "the drift was not reverted"; exit 1; }

say "the cluster goes on running. To look further:"
cat <<END
  export KUBECONFIG=$KUBECONFIG
  $KUBECTL -n demo get pg orders
  bin/kubectl-holdfast -n demo status orders
  bin/kubectl-holdfast -n demo drift orders
  $KUBECTL -n demo scale pg orders --replicas=5; $KUBECTL -n demo get pg orders -w
  $KUBECTL -n demo exec -it orders-0 -c postgres -- psql -h /run/holdfast -U postgres app
  $KUBECTL -n demo get secret orders-app -o jsonpath='{.data.uri}' | base64 -d
  make cluster-down        # stop it all
END
