#!/bin/sh
# Puts a plan on the pull request (GitHub) or merge request (GitLab) of a CI job, as one
# comment: the one of this account that begins with the plan's marker is updated, and made
# where there is none.
#
#   comment.sh github|gitlab PLAN.md
#
# It reads what the platform sets, and a token:
#   GitHub: GITHUB_API_URL, GITHUB_REPOSITORY, PULL_REQUEST (its number), GITHUB_TOKEN
#   GitLab: CI_API_V4_URL, CI_PROJECT_ID, CI_MERGE_REQUEST_IID, PLAN_TOKEN (scope api)
# It needs curl 7.55 or later and jq, and ends with an error if the platform refuses. A file
# without a marker is that of a plan that failed: there is nothing to show.
set -eu
platform=$1 plan=$2
marker=$(head -n 1 "$plan")
case $marker in
"<!-- holdfast-plan: "*) ;;
*)
	echo "comment.sh: $plan holds no plan" >&2
	exit 0
	;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $platform in
github)
	comments=$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments
	one=$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues/comments
	header="Authorization: Bearer $GITHUB_TOKEN" change=PATCH longest=60000
	;;
gitlab)
	comments=$CI_API_V4_URL/projects/$CI_PROJECT_ID/merge_requests/$CI_MERGE_REQUEST_IID/notes
	one=$comments
	header="PRIVATE-TOKEN: $PLAN_TOKEN" change=PUT longest=900000
	;;
*)
	echo "comment.sh: $platform is no platform that it knows: write github or gitlab" >&2
	exit 2
	;;
esac
# The token stands in a file, not among the arguments of a process.
printf '%s\n' "$header" >"$work/header"
chmod 600 "$work/header"
# Leaves the answer in $work/answer, or shows it and ends.
request() {
	status=$(curl --silent --show-error --output "$work/answer" --write-out '%{http_code}' --header @"$work/header" --header 'Content-Type: application/json' "$@")
	case $status in
	2??) ;;
	*)
		echo "comment.sh: $platform answers $status:" >&2
		cat "$work/answer" >&2
		exit 1
		;;
	esac
}

# A person may write a comment that begins like this one: that of a program counts here, and
# on GitLab that of this token.
me=null
if [ "$platform" = gitlab ]; then
	request "$CI_API_V4_URL/user"
	me=$(jq .id "$work/answer")
fi
id=
page=1
while [ -z "$id" ]; do
	request "$comments?per_page=100&page=$page"
	id=$(jq --raw-output --arg marker "$marker" --argjson me "$me" '
		[.[] | select((.body // "" | startswith($marker)) and (if $me == null then .user.type == "Bot" else .author.id == $me end)) | .id][0] // empty' "$work/answer")
	[ "$(jq length "$work/answer")" -eq 100 ] || break
	page=$((page + 1))
done

# Platforms refuse comments that are too long.
head -c "$longest" "$plan" >"$work/body"
if [ "$(wc -c <"$plan")" -gt "$longest" ]; then
	printf '\n\nThe rest of the plan is in the artifacts of the job.\n' >>"$work/body"
fi
jq --raw-input --slurp '{body: .}' "$work/body" >"$work/request"
if [ -n "$id" ]; then
	request --request "$change" --data-binary @"$work/request" "$one/$id"
else
	request --request POST --data-binary @"$work/request" "$comments"
fi
