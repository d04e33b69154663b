#!/usr/bin/env bash
# Provides a Chromium for the tests and pictures of the dashboard. It uses an installed one, else installs the system
# package (as root), else Playwright's own. Running it again does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

has_chromium() {
  for name in chromium chromium-browser; do
    if command -v "$name" >/dev/null && "$name" --version >/dev/null 2>&1; then return 0; fi
  done
  compgen -G "${PLAYWRIGHT_BROWSERS_PATH:-$HOME/.cache/ms-playwright}/chromium*/INSTALLATION_COMPLETE" >/dev/null
}

if has_chromium; then exit 0; fi
if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
  echo "installing Chromium for the tests of the dashboard"
  if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium >/dev/null \
    && has_chromium; then exit 0; fi
fi
.venv/bin/python -m playwright install chromium
