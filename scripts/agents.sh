#!/usr/bin/env bash
# Installs the agent CLIs for `make record-agents` and `make test-agents` into .agents/. Running it again does nothing.
# The versions are pinned for two reasons: npm silently installs an older release if the newest one needs a newer
# Node.js, and the samples were recorded with exactly these versions.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  "@anthropic-ai/claude-code@2.1.197"
  "@openai/codex@0.166.0"
  "@google/gemini-cli@0.61.0"
  "opencode-ai@1.18.33"
  "@qwen-code/qwen-code@0.15.10"
)
home=.agents
stamp="$home/.installed"
wanted="$(printf '%s\n' "${packages[@]}")"

if [[ -f "$stamp" && "$(cat "$stamp")" == "$wanted" ]]; then
  exit 0
fi
command -v npm >/dev/null || { echo "npm not found: install Node.js 20 or newer to get the agent CLIs" >&2; exit 2; }

# One folder per CLI, because their dependencies may conflict.
for package in "${packages[@]}"; do
  name="${package##*/}"
  npm install --prefix "$home/${name%@*}" --no-fund --no-audit --no-update-notifier --loglevel=error "$package"
done
printf '%s\n' "$wanted" >"$stamp"
echo "agent CLIs installed in $home/:" "${packages[@]}"
