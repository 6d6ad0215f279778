#!/usr/bin/env bash
# What failed tests reported, by a file of events of `go test -json`: each test's name and
# its last messages. Whole reports would push these out of sight.
#
#   test/report-failures.sh events.json
set -euo pipefail
events=$1
printf '\n==> what failed tests reported (all of it: %s)\n' "$events"
sed -nE 's/.*"Action":"fail".*"Test":"([^"]*)".*/\1/p' "$events" | sort -u | while read -r name; do
  printf '%s\n' "$name"
  grep -F "\"Test\":\"$name\"" "$events" | sed -nE 's/.*"Output":" *([a-z0-9_]+_test\.go:[0-9]+: .*|panic: .*)"}$/    \1/p' | tail -n 20 | cut -c1-500
done
