#!/bin/sh
# Plans what lies between two revisions of a Git repository, offline: no cluster is read.
#
#   revisions.sh FROM TO OVERLAY [FLAGS OF kubectl holdfast plan]
#
# Run it inside the repository, such as `revisions.sh origin/main HEAD shop/production`. It
# needs git, tar and kustomize, leaves the working tree alone, and ends with the exit code of
# the plan.
set -eu
from=$1 to=$2 overlay=$3
shift 3
top=$(git rev-parse --show-toplevel)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # REVISION SIDE
	mkdir "$work/tree-$2" "$work/$2"
	git -C "$top" archive --output "$work/$2.tar" "$1"
	tar -xf "$work/$2.tar" -C "$work/tree-$2"
	# An overlay that a revision lacks declares nothing there.
	: >"$work/$2/built.yaml"
	if [ -d "$work/tree-$2/$overlay" ]; then
		kustomize build "$work/tree-$2/$overlay" >"$work/$2/built.yaml"
	fi
}
build "$from" from
build "$to" to
kubectl holdfast plan --from "$work/from" --to "$work/to" "$@"
