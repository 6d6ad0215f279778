#!/usr/bin/env bash
# Prints what a real MySQL does with changes of its settings, as internal/forecast/settings
# keeps it: "dynamic" is taken by the running server, "session" by new sessions, and
# "restart" at its next start. The server itself says so: it is asked to set each variable to
# the value that it has.
#   $1 folder of mysqld and mysql, as printed by `cluster mysql`
set -euo pipefail
programs=$1
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null && wait "$server" || true; rm -rf "$work"' EXIT
server=
ask() { "$programs/mysql" --no-defaults --socket="$work/sock" --user=root --batch --skip-column-names "$@"; }
"$programs/mysqld" --no-defaults --initialize-insecure --datadir="$work/data" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
# The plugins are those that members load.
"$programs/mysqld" --no-defaults --datadir="$work/data" --socket="$work/sock" --pid-file="$work/pid" --skip-networking --mysqlx=OFF --secure-file-priv= \
	--plugin-load-add='auth_socket.so;group_replication.so;mysql_clone.so' 2>"$work/log" &
server=$!
for _ in $(seq 120); do ! ask -e "SELECT 1" >/dev/null 2>&1 || break; kill -0 $server 2>/dev/null || { cat "$work/log" >&2; exit 1; }; sleep 0.5; done
version=$(ask -e 'SELECT VERSION()')
echo "# name, context of the global variables of MySQL ${version%%-*}"
# What begins with an underscore or holds a dot belongs to components, and rows of status to none.
ask -e 'SELECT VARIABLE_NAME FROM performance_schema.global_variables ORDER BY VARIABLE_NAME' >"$work/names"
# The order matters to none of them but these, which would refuse all that follow.
grep -v -x -e super_read_only -e read_only -e offline_mode "$work/names" >"$work/first"
grep -x -e super_read_only -e read_only -e offline_mode "$work/names" >>"$work/first"
while read -r name; do
	# 1238: the variable is read only. 1229: it has no value of a session.
	global=$(ask -e "SET GLOBAL $name = @@GLOBAL.$name" 2>&1 || true)
	session=$(ask -e "SET SESSION $name = @@GLOBAL.$name" 2>&1 || true)
	context=session
	case $session in *'ERROR 1229'*) context=dynamic ;; esac
	case $global in *'ERROR 1238'*) context=restart ;; esac
	printf '%s\t%s\n' "$name" "$context"
done <"$work/first" | LC_ALL=C sort
