#!/usr/bin/env bash
# Runs `go test` in the present folder: a line for each package, and at the end what failed
# tests reported. All of it is kept in bin/NAME.json.
#
#   GOTESTSUM="command" test/run-tests.sh NAME [argument of go test …]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
events=$root/bin/$1.json
mkdir -p "$root/bin"
if ! $GOTESTSUM --format pkgname --hide-summary skipped,failed,output --jsonfile "$events" -- "${@:2}"; then
  "$root/test/report-failures.sh" "$events"
  exit 1
fi
