#!/usr/bin/env bash
# Measures what the agent costs its PostgreSQL, in namespaces of its own: a file tree that has
# the database's programs, all files in memory, and no network but the loopback device. What
# it leaves behind ends with them.
#   $1 file tree, as printed by `cluster postgres`  $2 regular expression of benchmarks
#   $3 and $4 folders with MySQL and etcd, as printed by `cluster mysql` and `cluster etcd`
# The agent from before is that of BENCH_BEFORE, a commit; of none, if that is not in the
# Git clone. BENCH_PAIRS is how many pairs of runs there are.
set -euo pipefail
root=$1 focus=$2 mysql=$(dirname "$3") etcd=$4 before=${BENCH_BEFORE:-ce13ea55}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
build() { (cd "$1" && CGO_ENABLED=0 go build -trimpath -tags "$TAGS" -ldflags '-s -w' -o "$2" .); }
mkdir "$work/now" "$work/before" "$work/tree"
CGO_ENABLED=0 go test -c -tags bench -o "$work/bench.test" ./internal/bench/overhead
build . "$work/now/holdfast"
if git cat-file -e "$before^{commit}" 2>/dev/null; then
	git archive "$before" | tar -x -C "$work/tree"
	build "$work/tree" "$work/before/holdfast"
	rm -rf "$work/tree"
fi
bin=$(cd "$root" && echo usr/lib/postgresql/*/bin)
unshare --mount --net --pid --fork --kill-child --propagation private bash -c '
	set -euo pipefail
	root=$1 work=$2 focus=$3 bin=$4 mysql=$5 etcd=$6
	ip link set lo up
	mount -t proc proc /proc
	mkdir "$work/memory"
	mount -t tmpfs -o size=10g tmpfs "$work/memory"
	tree=$work/memory/tree
	mkdir "$work/memory/upper" "$work/memory/work" "$tree"
	mount -t overlay -o "lowerdir=$root,upperdir=$work/memory/upper,workdir=$work/memory/work" overlay "$tree"
	mount -t proc proc "$tree/proc"
	mount --rbind /dev "$tree/dev"
	mkdir -p "$tree/opt/holdfast" "$tree/opt/mysql" "$tree/opt/etcd"
	mount --bind "$mysql" "$tree/opt/mysql"
	mount --bind "$etcd" "$tree/opt/etcd"
	cp -r "$work/now" "$work/before" "$tree/opt/holdfast/"
	chmod 1777 "$tree/srv"
	cd "$work"
	HOLDFAST_TREE=$tree HOLDFAST_TREE_PATH=/$bin ./bench.test -test.v -test.timeout 2h -test.run "$focus"
' run-overhead-bench.sh "$root" "$work" "$focus" "$bin" "$mysql" "$etcd"
