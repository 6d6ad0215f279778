#!/bin/sh
# Plans what the checked-out commit does to database clusters, for a pull request.
#
#   plan.sh OVERLAY [FLAGS OF kubectl holdfast plan]
#
# It writes plan.md, a comment whose first line is a hidden marker, and ends with 0 if the
# commit may be merged: 0 and 1 of the plan. It ends with 2 on errors, with 3 if something
# is refused or would stall, and with 4 if data is at risk.
set -eu
overlay=$1
shift
kustomize build "$overlay" >built.yaml
code=0
kubectl holdfast plan -f built.yaml -o markdown --marker "$overlay" "$@" >plan.md || code=$?
cat plan.md
if [ "$code" -le 1 ]; then
	exit 0
fi
exit "$code"
