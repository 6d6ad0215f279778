#!/usr/bin/env bash
# Run end-to-end tests: each result as it comes, and at the end what was not tested
# and what failed tests reported.
#
#   FOCUS=regexp STATE=folder GOTESTSUM="command" test/run-e2e.sh [argument of go test …]
set -euo pipefail
cd "$(dirname "$0")/e2e"
mkdir -p "$STATE"
events=$STATE/e2e.json
status=0
$GOTESTSUM --format testname --hide-summary all --jsonfile "$events" -- \
  -vet=off -count=1 -run "$FOCUS" "$@" . || status=$?

untested=$(sed -nE 's/.*"Test":"([^"]*)".*\*\*\* NOT TESTED: (.*) \*\*\*.*/  \1: \2/p' "$events")
if [[ -n $untested ]]; then
  printf '\n*** NOT TESTED ***\n%s\n' "$untested"
fi
if ((status)); then
  ../report-failures.sh "$events"
fi
exit "$status"
