#!/usr/bin/env bash
# Records what agents measure of real servers, side by side: PostgreSQL in its file tree, as
# run-postgres-tests.sh does, MySQL and etcd as they are. Needs root.
#   $1 folder to write into  $2 minutes of load without a fault
#   $3 file tree of PostgreSQL  $4 programs of MySQL  $5 programs of etcd, as `cluster` prints them
# Each of the last three may be empty, and is left out then.
set -euo pipefail
out=$(realpath "$1") minutes=$2 postgres=$3 mysql=$4 etcd=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/out" "$work/tmp" && chmod 1777 "$work/tmp" "$out"
export HOLDFAST_RECORD_MINUTES=$minutes HOLDFAST_RECORD_TO=$out
export HOLDFAST_RECORD_MACHINE=${HOLDFAST_RECORD_MACHINE:-$(nproc) cores, $(uname -sr)}
for engine in postgres mysql etcd; do
	if [ -z "${!engine}" ]; then continue; fi
	if [ -n "${HOLDFAST_RECORD_TESTS:-}" ]; then
		cp "$HOLDFAST_RECORD_TESTS/$engine.test" "$work/" # built before
	else
		CGO_ENABLED=0 go test -c -tags "$engine" -o "$work/$engine.test" "./internal/agent/$engine"
	fi
done
test=(-test.run '^TestRecordAnomalies$' -test.v -test.timeout "$((minutes + 40))m")
running=()
if [ -n "$postgres" ]; then
	bin=$(cd "$postgres" && echo usr/lib/postgresql/*/bin)
	unshare --mount --pid --fork --kill-child --propagation private bash -c '
		set -euo pipefail
		root=$1 work=$2 bin=$3 out=$4
		shift 4
		mount --bind "$root" "$root"
		mount -o remount,bind,ro "$root"
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		mount -t tmpfs -o mode=1777 tmpfs "$root/run"
		mount --bind "$work" "$root/mnt"
		mount --bind "$out" "$root/mnt/out"
		mount --bind "$work/tmp" "$root/tmp"
		chroot --userspec=postgres:postgres --groups= "$root" env -i PATH="/$bin:/usr/bin:/bin" HOME=/tmp LANG=C.UTF-8 \
			HOLDFAST_RECORD_TO=/mnt/out HOLDFAST_RECORD_MINUTES="$HOLDFAST_RECORD_MINUTES" HOLDFAST_RECORD_MACHINE="$HOLDFAST_RECORD_MACHINE" \
			sh -c "cd /tmp && exec /mnt/postgres.test \"\$@\"" sh "$@"
	' record "$postgres" "$work" "$bin" "$out" "${test[@]}" >"$out/postgres.log" 2>&1 &
	running+=($!)
fi
if [ -n "$mysql" ]; then
	(cd "$work" && HOLDFAST_MYSQL=$mysql exec ./mysql.test "${test[@]}") >"$out/mysql.log" 2>&1 &
	running+=($!)
fi
if [ -n "$etcd" ]; then
	(cd "$work" && HOLDFAST_ETCD=$etcd exec ./etcd.test "${test[@]}") >"$out/etcd.log" 2>&1 &
	running+=($!)
fi
failed=0
for pid in "${running[@]}"; do wait "$pid" || failed=1; done
if [ "$failed" != 0 ]; then
	grep -hE '^(---|panic:|FAIL)|record_anomalies_test|record\.go' "$out"/*.log >&2 || true
	echo "a recording failed: see $out/*.log" >&2
fi
exit "$failed"
