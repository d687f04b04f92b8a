#!/bin/sh
# The dashboards against Grafana's own packages: types by tsc, pictures by Chromium. Needs npm with its registry (about
# 470 MB, outside of the repository), Prometheus with promtool, Chromium and the PyPI package playwright.
# usage: sh tests/integration/grafana/check.sh [FOLDER]
set -eu
here=$(dirname "$0")
python=${PYTHON:-.venv/bin/python}
# Not a name that others could have taken before: what lies in it is run. FOLDER, if given, is kept from run to run.
folder=${1:-$(mktemp -d "${TMPDIR:-/tmp}/gpuwatch-dashboards-check.XXXXXXXX")}
mkdir -p "$folder"
cp "$here/package.json" "$here/page.tsx" "$folder"
echo '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css"><body><script src="page.js"></script>' \
  > "$folder/page.html"
(cd "$folder" && npm install --no-audit --no-fund --ignore-scripts)
"$python" -m tests.integration.grafana.typed "$folder"
echo "types: no complaint"
"$python" -m tests.integration.grafana.answers "$folder/answers.json"
(cd "$folder" && npx esbuild page.tsx --bundle --outfile=page.js --log-level=error --define:global=window \
  --define:process.env.NODE_ENV='"production"' --loader:.svg=dataurl --loader:.ttf=dataurl --loader:.woff2=dataurl)
"$python" -m tests.integration.grafana.draw "$folder"
echo "pictures, to be looked at: $folder/*.png"
