#!/usr/bin/env bash
# Runs all tests again and again, 10 times or as often as the first argument says. Every second run is in a random order
# beside two busy cores. Prints one line for each run and keeps the output of those that are not good. Fails if a test
# failed, if more tests were skipped than SKIPS allows (0 unless it is set), or if a run had fewer tests than the first.
set -uo pipefail
cd "$(dirname "$0")/.."

outputs=$(mktemp -d)
busy=()
is_bad=0
first_total=

stop_load() {
  if ((${#busy[@]})); then
    kill "${busy[@]}"
    wait "${busy[@]}"
  fi 2>/dev/null
  busy=()
}
trap stop_load EXIT

count() {  # how many tests ended in this way, by the last line of pytest
  local found
  found=$(tail -n 1 "$1" | grep -oE "[0-9]+ $2" | cut -d ' ' -f 1)
  echo "${found:-0}"
}

row='%4s  %6s  %-12s  %7s  %7s  %7s  %8s\n'
printf "$row" run seed load passed failed skipped seconds
for ((run = 1; run <= ${1:-10}; run++)); do
  seed=-
  load=none
  options=()
  if ((run % 2 == 0)); then
    seed=$RANDOM
    load="2 busy cores"
    options=(--shuffle "$seed")
    for _ in 1 2; do
      sh -c 'while :; do :; done' &
      busy+=($!)
    done
  fi
  output="$outputs/run-$run"
  begun=$SECONDS
  .venv/bin/python -m pytest -n "${WORKERS:-3}" --dist worksteal -rfEs ${NO_HANG:-} "${options[@]}" >"$output" 2>&1
  code=$?
  stop_load
  passed=$(count "$output" passed)
  failed=$(($(count "$output" failed) + $(count "$output" 'errors?')))
  skipped=$(count "$output" skipped)
  printf "$row" "$run" "$seed" "$load" "$passed" "$failed" "$skipped" $((SECONDS - begun))
  : "${first_total:=$((passed + skipped))}"
  if ((code != 0 || skipped > ${SKIPS:-0} || passed + skipped < first_total)); then
    is_bad=1
    echo "      not good (exit code $code): $output"
    grep -E '^(FAILED|ERROR|SKIPPED) ' "$output"
  fi
done
exit $is_bad
