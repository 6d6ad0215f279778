#!/usr/bin/env bash
# Shows a cluster, a drift and its revert on the local Kubernetes cluster, which
# it starts if there is none. Called by make demo. It builds one image of
# PostgreSQL: the example's.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${CLUSTER:?}" "${STATE:?}"
export KUBECONFIG=$STATE/kubeconfig

steps=6
step=0
say() {
  step=$((step + 1))
  printf '\n\033[1m==> %d of %d, after %dm%02ds: %s\033[0m\n' "$step" "$steps" $((SECONDS / 60)) $((SECONDS % 60)) "$*"
}
k() { "$KUBECTL" "$@"; }

line=$(sed -n 's/^ *version: "\([0-9]*\).*/\1/p' examples/postgrescluster.yaml | head -n 1)

# What is downloaded and built beside Kubernetes fills the times at which its
# build waits for the network or for one core.
logs=$(mktemp -d)
beside() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >"$logs/$name" 2>&1 &
  jobs[$name]=$!
}
await() { wait "${jobs[$1]}" || { cat "$logs/$1" >&2; exit 1; }; }
declare -A jobs
trap 'kill "${jobs[@]}" 2>/dev/null || true; rm -rf "$logs"' EXIT

say "three Kubernetes nodes on this machine (the first time they are built: nine minutes on two idle cores)"
beside image "$CLUSTER" images --line "$line" --build-only --dir "$STATE"
beside operator "$MAKE" --no-print-directory plugin
"$CLUSTER" up --dir "$STATE" --kubeconfig "$KUBECONFIG"
KUBECTL=$STATE/bin/kubernetes/kubectl

say "PostgreSQL $line, as an image on each node"
await image
"$CLUSTER" images --line "$line" --dir "$STATE"

say "the operator"
await operator
IMAGE='' KUBECTL=$KUBECTL test/deploy.sh

say "a namespace under the restricted Pod Security Standard, and a cluster of three members"
k create namespace demo --dry-run=client -o yaml | k apply -f - >/dev/null
k label namespace demo --overwrite pod-security.kubernetes.io/enforce=restricted >/dev/null
k -n demo apply --server-side -f examples/postgrescluster.yaml
k -n demo wait --for=condition=Ready pg/orders --timeout=300s
k -n demo get pg,pods -o wide

say "a write to the primary, read from a replica"
k -n demo exec orders-0 -c postgres -- psql -qh /run/holdfast -U postgres app -c \
  'create table if not exists visits (at timestamptz default now()); insert into visits default values'
sleep 1
k -n demo exec orders-1 -c postgres -- psql -h /run/holdfast -U postgres app -c 'select count(*), max(at) from visits'

say "a user edits the read-write Service by hand, so that its clients reach replicas"
KUBECTL=$KUBECTL test/demo/drift.sh

printf '\n\033[1m==> done after %dm%02ds. The cluster keeps running. To look further:\033[0m\n' $((SECONDS / 60)) $((SECONDS % 60))
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
