#!/usr/bin/env bash
# Installs the agent CLIs for `make record-agents` and `make test-agents` into .agents/. Running it again does nothing.
# The versions are pinned for two reasons: npm silently installs an older release if the newest one needs a newer
# Node.js, and the samples were recorded with exactly these versions. `paceline.agents.cli_facts` has the same numbers.
set -euo pipefail
cd "$(dirname "$0")/.."

# folder=package. Folders that end in -newest need the Node.js of node-22, which npm installs like any package.
packages=(
  "node-22=node@22.23.3"
  "claude-code=@anthropic-ai/claude-code@2.1.197"
  "claude-code-newest=@anthropic-ai/claude-code@2.1.325"
  "codex=@openai/codex@0.166.0"
  "gemini-cli=@google/gemini-cli@0.61.0"
  "opencode-ai=opencode-ai@1.18.33"
  "qwen-code=@qwen-code/qwen-code@0.15.10"
  "qwen-code-newest=@qwen-code/qwen-code@0.24.4"
  "copilot=@github/copilot@1.0.102"
)
home=.agents
stamp="$home/.installed"
wanted="$(printf '%s\n' "${packages[@]}")"

if [[ -f "$stamp" && "$(cat "$stamp")" == "$wanted" ]]; then
  exit 0
fi
command -v npm >/dev/null || { echo "npm not found: install Node.js 20 or newer to get the agent CLIs" >&2; exit 2; }

# One folder per CLI, because their dependencies may conflict.
for entry in "${packages[@]}"; do
  npm install --prefix "$home/${entry%%=*}" --no-fund --no-audit --no-update-notifier --loglevel=error "${entry#*=}"
done
printf '%s\n' "$wanted" >"$stamp"
echo "agent CLIs installed in $home/:" "${packages[@]#*=}"
