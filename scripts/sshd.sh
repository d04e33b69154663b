#!/usr/bin/env bash
# Provides an sshd and an ssh for the tests of hosts, where this is possible. Without them these tests are skipped.
# The tests start servers of their own on the loopback. The service of the system is not started.
set -euo pipefail

has_ssh() {
  command -v ssh >/dev/null && { command -v sshd >/dev/null || [[ -x /usr/sbin/sshd ]]; }
}

if has_ssh; then exit 0; fi
if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
  echo "installing OpenSSH for the tests of hosts"
  guard=/usr/sbin/policy-rc.d
  if [[ ! -e "$guard" ]]; then  # without it, the package starts its service
    trap 'rm -f "$guard"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$guard"
    chmod +x "$guard"
  fi
  if apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends openssh-server openssh-client >/dev/null \
    && has_ssh; then exit 0; fi
fi
echo "sshd is not installed: the tests of SSH hosts are skipped (install openssh-server and openssh-client)"
