#!/usr/bin/env bash
# Provides a pgbouncer for the tests of connection pools, where this is possible. Without one they are skipped.
set -euo pipefail
if command -v pgbouncer >/dev/null || [[ -x /usr/sbin/pgbouncer ]]; then exit 0; fi
if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
  echo "installing pgbouncer for the tests of connection pools"
  if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends pgbouncer >/dev/null
  then exit 0; fi
fi
echo "pgbouncer is not installed: the tests of connection pools are skipped"
