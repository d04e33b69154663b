#!/usr/bin/env bash
# Installs the agent CLIs that the recorder and `make test-agents` run, at pinned versions, into .agents/.
# Pinned because npm silently takes an older release where the newest wants a newer Node, and because
# the recorded samples are samples of exactly these versions. Running it again does nothing.
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
command -v npm >/dev/null || { echo "the agent CLIs come from npm: install Node.js 20 or newer" >&2; exit 2; }

# One folder per CLI: their dependencies need not agree with each other.
for package in "${packages[@]}"; do
  name="${package##*/}"
  npm install --prefix "$home/${name%@*}" --no-fund --no-audit --no-update-notifier --loglevel=error "$package"
done
printf '%s\n' "$wanted" >"$stamp"
echo "agent CLIs installed in $home/:" "${packages[@]}"
