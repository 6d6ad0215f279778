#!/usr/bin/env bash
# Installs the operator: image, CRDs, Deployment. Called by make deploy.
set -euo pipefail
cd "$(dirname "$0")/.."
image=${IMAGE:-}
if [ -z "$image" ]; then
  # The tag names the content, so that an unchanged operator is not restarted.
  image=docker.io/library/holdfast:$(sha256sum bin/holdfast | cut -c1-12)
  # Records which images the nodes have, in the directory that is removed with them.
  loaded=$STATE/loaded/$(basename "${image/:/-}")
  if [ ! -e "$loaded" ]; then
    echo "==> packing the operator as $image and giving it to the nodes"
    archive=$(mktemp --suffix .tar)
    trap 'rm -f "$archive"' EXIT
    "$CLUSTER" pack --name "$image" --binary bin/holdfast --out "$archive" >/dev/null
    "$CLUSTER" load --dir "$STATE" "$archive"
    mkdir -p "$STATE/loaded" && touch "$loaded"
  fi
fi
echo "==> applying CRDs and operator, server-side"
install=$(mktemp -d)
trap 'rm -rf "$install" "${archive:-}"' EXIT
cp -r config "$install/"
cat >"$install/kustomization.yaml" <<END
resources: [config/default]
patches:
  - target: {kind: Deployment, name: holdfast}
    patch: |-
      - {op: replace, path: /spec/template/spec/containers/0/image, value: "$image"}
END
"$KUBECTL" kustomize "$install" >"$install/all.yaml"
"$KUBECTL" apply --server-side --force-conflicts -f "$install/all.yaml"
"$KUBECTL" -n holdfast-system rollout status deployment/holdfast --timeout 180s
