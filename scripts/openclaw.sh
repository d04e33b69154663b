#!/usr/bin/env bash
# Installs OpenClaw for `make test-openclaw` and its recordings into .agents/openclaw/. Running it again does nothing.
# It needs Node.js >= 24.16 < 25 or >= 26.1, which npm installs like any package. Both versions are pinned, because the
# samples and the double of its gateway were made with exactly these. `paceline.agents.cli_facts` has the same number.
set -euo pipefail
cd "$(dirname "$0")/.."

node="node@26.10.0"
package="openclaw=openclaw@2026.9.6"
openclaw="${package#*=}"
home=.agents/openclaw
stamp="$home/.installed"

if [[ -f "$stamp" && "$(cat "$stamp")" == "$node $openclaw" ]]; then
  exit 0
fi
command -v npm >/dev/null || { echo "npm not found: install Node.js 20 or newer to get OpenClaw" >&2; exit 2; }

mkdir -p "$home"
npm install --prefix "$home" --no-fund --no-audit --no-update-notifier --loglevel=error "$node"
# OpenClaw refuses an older Node.js while it is installed, so the new one comes first.
PATH="$PWD/$home/node_modules/.bin:$PATH" \
  npm install --prefix "$home" --no-fund --no-audit --no-update-notifier --loglevel=error "$openclaw"
printf '%s' "$node $openclaw" >"$stamp"
echo "$openclaw installed in $home/, with $node"
