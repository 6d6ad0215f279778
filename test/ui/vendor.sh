#!/usr/bin/env bash
# Writes the libraries of the pages of `kubectl holdfast ui` from npm's packages, whose
# hashes package-lock.json has, and a list of the hashes of what was written.
set -euo pipefail
cd "$(dirname "$0")"
npm ci --ignore-scripts --no-audit --no-fund >/dev/null
to=../../internal/plugin/web/assets/vendor
mkdir -p "$to"
from=node_modules
# Source maps are not embedded, so the files do not name them.
grep -v '^//# sourceMappingURL=' $from/preact/dist/preact.mjs >"$to/preact.js"
cp $from/htm/dist/htm.module.js "$to/htm.js"
# uPlot's own ES module is not minified, and alone would fill the budget.
{ cat $from/uplot/dist/uPlot.iife.min.js; echo 'export default uPlot;'; } >"$to/uplot.js"
cp $from/uplot/dist/uPlot.min.css "$to/uplot.css"
for name in preact htm uplot; do
  cp $from/$name/LICENSE "$to/LICENSE.$name"
done
cd "$to"
LC_ALL=C sha256sum LICENSE.* ./*.js ./*.css | sed 's, \./, ,' >SHA256SUMS
