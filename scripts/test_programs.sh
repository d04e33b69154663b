#!/usr/bin/env bash
# Installs the programs that some tests need besides Chromium: an SSH server and client, pgbouncer and fish. As root on
# Debian only. Elsewhere, the tests of what is missing are skipped. Running it again does nothing.
# The tests start servers of their own on the loopback. The services of the system are not started.
set -euo pipefail

missing=()
find_missing() {
  missing=()
  for entry in ssh=openssh-client sshd=openssh-server pgbouncer=pgbouncer fish=fish; do
    PATH="$PATH:/usr/sbin" command -v "${entry%%=*}" >/dev/null || missing+=("${entry#*=}")
  done
}

find_missing
if ((${#missing[@]} == 0)); then exit 0; fi
if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
  echo "installing ${missing[*]} for the tests"
  guard=/usr/sbin/policy-rc.d
  if [[ ! -e "$guard" ]]; then  # without it, the packages start their services
    trap 'rm -f "$guard"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$guard"
    chmod +x "$guard"
  fi
  apt-get update -qq -o Acquire::Retries=0 || true  # a source of others may not answer
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "${missing[@]}" >/dev/null || true
  find_missing
fi
if ((${#missing[@]})); then echo "not installed, so their tests are skipped: ${missing[*]}"; fi
