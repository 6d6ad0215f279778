#!/usr/bin/env bash
# Runs the tests that need a real PostgreSQL with one of a major: in a file tree that
# has it and its libraries, as the user postgres, in namespaces of their own. What a
# test leaves behind ends with them. TestRealRestoreByHand is left out: it needs programs
# of an administrator that the tree lacks.
#   $1 file tree, as printed by `cluster postgres`  $2 regular expression of tests
#   $3 folder of prometheus-postgres-exporter, as printed by `cluster programs`
#   $4 file tree of an older major, whose server imports read; none for the same major
set -euo pipefail
root=$1 focus=$2 exporter=$3 older=${4:-}
packages=$(grep -rl --include='*_test.go' '^//go:build postgres' internal | xargs -n1 dirname | sort -u)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
for package in $packages; do
	mkdir -p "$work/$package"
	CGO_ENABLED=0 go test -c -tags postgres -o "$work/$package/real.test" "./$package"
	if [ -d "$package/testdata" ]; then cp -r "$package/testdata" "$work/$package/"; fi
done
cp "$exporter/prometheus-postgres-exporter" "$work/"
mkdir "$work/tmp" "$work/older" && chmod 1777 "$work/tmp" "$work/older"
printf '%s\n' "it's \\ secret" >"$work/older/password"
printf '%s\n' $packages >"$work/packages"
bin=$(cd "$root" && echo usr/lib/postgresql/*/bin)
# The tree itself stays as it is: nothing is written outside what is mounted here.
unshare --mount --pid --fork --kill-child --propagation private bash -c '
	set -euo pipefail
	root=$1 work=$2 focus=$3 bin=$4 older=$5
	mount --bind "$root" "$root"
	mount -o remount,bind,ro "$root"
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs -o mode=1777 tmpfs "$root/run"
	mount -t tmpfs -o mode=0777,size=64m tmpfs "$root/srv"
	mount --bind "$work" "$root/mnt"
	mount --bind "$work/tmp" "$root/tmp"
	source=
	if [ -n "$older" ] && [ "$older" != "$root" ]; then
		source=25432 programs=$(cd "$older" && echo usr/lib/postgresql/*/bin)
		mount --bind "$older" "$older"
		mount -o remount,bind,ro "$older"
		mount -t proc proc "$older/proc"
		mount --rbind /dev "$older/dev"
		mount --bind "$work/older" "$older/tmp"
		chroot --userspec=postgres:postgres --groups= "$older" env -i PATH="/$programs:/usr/bin:/bin" HOME=/tmp LANG=C.UTF-8 sh -c "
			initdb --pgdata=/tmp/data --username=importer --pwfile=/tmp/password --auth=scram-sha-256 --no-sync >/tmp/log 2>&1 &&
			exec postgres -D /tmp/data -p $source -c fsync=off -c max_wal_size=1GB -c unix_socket_directories=/tmp >>/tmp/log 2>&1" &
		for _ in $(seq 300); do grep -q "ready to accept" "$work/older/log" 2>/dev/null && break; sleep 0.2; done
	fi
	failed=0
	while read -r package; do
		echo "--- $package"
		chroot --userspec=postgres:postgres --groups= "$root" env -i PATH="/$bin:/usr/bin:/bin" HOME=/tmp LANG=C.UTF-8 HOLDFAST_POSTGRES_EXPORTER=/mnt HOLDFAST_IMPORT_SOURCE_PORT=$source \
			sh -c "cd /mnt/$package && exec ./real.test -test.run \"\$0\" -test.timeout 60m -test.skip TestRealRestoreByHand" "$focus" >"$work/out" 2>&1 || failed=1
		if grep -q "^\(FAIL\|panic:\)" "$work/out"; then cat "$work/out"; else tail -1 "$work/out"; fi
	done <"$work/packages"
	exit $failed
' run-postgres-tests.sh "$root" "$work" "$focus" "$bin" "$older"
