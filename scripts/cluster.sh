#!/usr/bin/env bash
# Installs what `make test-cluster` needs: sshd, Slurm and network tools from Debian's packages, and Ray in .venv-ray,
# apart from Paceline's own environment. Running it again does nothing. No service is started or left running.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ "$(id -u)" != 0 ]]; then
  echo "the cluster tests make network namespaces: run them as root" >&2
  exit 2
fi
missing=()
for entry in sshd=openssh-server ssh=openssh-client slurmctld=slurm-wlm munged=munge ip=iproute2 nsenter=util-linux; do
  command -v "${entry%%=*}" >/dev/null || missing+=("${entry#*=}")
done
if ((${#missing[@]})); then
  command -v apt-get >/dev/null || { echo "install these, then try again: ${missing[*]}" >&2; exit 2; }
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # The packages start their services on installation where nothing forbids it; the tests start their own.
  guard=/usr/sbin/policy-rc.d
  if [[ ! -e "$guard" ]]; then
    trap 'rm -f "$guard"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$guard"
    chmod +x "$guard"
  fi
  apt-get update -qq
  apt-get install -qq --yes --no-install-recommends "${missing[@]}" >/dev/null
fi
if [[ ! -x .venv-ray/bin/ray ]]; then
  echo "installing Ray into .venv-ray (about 300 MB)"
  "${PYTHON:-python3.11}" -m venv .venv-ray
  wanted="$(sed -n 's/^ray = \["\(.*\)"\].*/\1/p' pyproject.toml)"
  .venv-ray/bin/python -m pip install --quiet "$wanted"
fi
