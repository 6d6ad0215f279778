#!/usr/bin/env bash
# Runs the tests that need a real PostgreSQL with one of a major: in a file tree that
# has it and its libraries, as the user postgres, in namespaces of their own. What a
# test leaves behind ends with them. TestRealRestoreByHand is left out: it needs programs
# of an administrator that the tree lacks.
#   $1 file tree, as printed by `cluster postgres`  $2 regular expression of tests
#   $3 folder of prometheus-postgres-exporter, as printed by `cluster programs`
set -euo pipefail
root=$1 focus=$2 exporter=$3
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
mkdir "$work/tmp" && chmod 1777 "$work/tmp"
printf '%s\n' $packages >"$work/packages"
bin=$(cd "$root" && echo usr/lib/postgresql/*/bin)
# The tree itself stays as it is: nothing is written outside what is mounted here.
unshare --mount --pid --fork --kill-child --propagation private bash -c '
	set -euo pipefail
	root=$1 work=$2 focus=$3 bin=$4
	mount --bind "$root" "$root"
	mount -o remount,bind,ro "$root"
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs -o mode=1777 tmpfs "$root/run"
	mount --bind "$work" "$root/mnt"
	mount --bind "$work/tmp" "$root/tmp"
	failed=0
	while read -r package; do
		echo "--- $package"
		chroot --userspec=postgres:postgres --groups= "$root" env -i PATH="/$bin:/usr/bin:/bin" HOME=/tmp LANG=C.UTF-8 HOLDFAST_POSTGRES_EXPORTER=/mnt \
			sh -c "cd /mnt/$package && exec ./real.test -test.run \"\$0\" -test.timeout 60m -test.skip TestRealRestoreByHand" "$focus" >"$work/out" 2>&1 || failed=1
		if grep -q "^\(FAIL\|panic:\)" "$work/out"; then cat "$work/out"; else tail -1 "$work/out"; fi
	done <"$work/packages"
	exit $failed
' run-postgres-tests.sh "$root" "$work" "$focus" "$bin"
