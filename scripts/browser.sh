#!/usr/bin/env bash
# Provides a Chromium for the tests and pictures of the dashboard. It installs the system's package without windows (as
# root), which needs half the time of the whole browser. Else it uses an installed Chromium, else Playwright's own.
# Running it again does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

has() {
  command -v "$1" >/dev/null && "$1" --version >/dev/null 2>&1
}

if has chromium-headless-shell; then exit 0; fi
if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
  echo "installing Chromium for the tests of the dashboard"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq -o Acquire::Retries=0 || true
  for package in chromium-headless-shell chromium; do  # older releases have the second only
    if has "$package"; then exit 0; fi
    if apt-get install -qq --yes --no-install-recommends "$package" >/dev/null && has "$package"; then exit 0; fi
  done
fi
if has chromium || has chromium-browser; then exit 0; fi
if compgen -G "${PLAYWRIGHT_BROWSERS_PATH:-$HOME/.cache/ms-playwright}/chromium*/INSTALLATION_COMPLETE" >/dev/null; then exit 0; fi
.venv/bin/python -m playwright install chromium
