#!/usr/bin/env bash
# Writes into a file that a version was seen today, with the commit of the tree that was tested.
# A line of the same version and the same words is replaced.
#
#   test/record-version.sh test/versions-seen.txt "Kubernetes 1.37.2" "what ran"
#
# DATE and COMMIT take the place of today and of the commit.
set -euo pipefail
file=$1 of=$2 what=$3
date=${DATE:-$(date -u +%Y-%m-%d)}
if [[ -z ${COMMIT:-} ]]; then
  COMMIT=$(git rev-parse --short=8 HEAD)
  # What this script and its page write is no change of what was tested.
  if [[ -n $(git status --porcelain --untracked-files=no -- ':/' ':(exclude,top)test/versions-seen.txt' ':(exclude,top)docs/reference/versions.md') ]]; then
    echo "record-version: the tree has changes that are not committed, so no commit can be named: nothing is recorded" >&2
    exit 0
  fi
fi
new=$(mktemp "$file.XXXX")
OF="$of: " LINE="$of: $date $COMMIT: $what" WHAT=": $what" awk '
  function is_of(line) { return substr(line, 1, length(ENVIRON["OF"])) == ENVIRON["OF"] }
  function says(line) { return substr(line, length(line) - length(ENVIRON["WHAT"]) + 1) == ENVIRON["WHAT"] }
  { lines[NR] = $0; if (is_of($0)) { last = NR; if (says($0)) same = NR } }
  END {
    for (i = 1; i <= NR; i++) {
      print i == same ? ENVIRON["LINE"] : lines[i]
      if (!same && i == last) print ENVIRON["LINE"]
    }
    if (!last) print ENVIRON["LINE"]
  }' "$file" >"$new"
cat "$new" >"$file"
rm "$new"
