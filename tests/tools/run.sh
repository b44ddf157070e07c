#!/bin/sh
# usage: run.sh TEST...
# Runs cmocka programs and shell tests (*.sh, whose last line is `N passed, N failed`, and
# `, N skipped` where that is so), TEST_JOBS
# (as many as there are processors) at a time, and prints the sum in the same form. A test that
# fails without saying so, or that counts nothing, counts as one failure; so does one that hangs:
# that has not ended after TEST_TIMEOUT seconds (3600; 0: it is waited for). Each test has a TMPDIR
# of its own, which is removed with what is left in it, also where this is stopped. TEST_UNDER is a
# command that runs the programs: valgrind, say.
set -u

limit=${TEST_TIMEOUT:-3600}

# sum WORD: adds up the counts in cmocka's lines `[  WORD  ] N test(s)`.
sum() {
  sed -n "s/^\[ *$1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$log" |
    awk '{ n += $1 } END { print n + 0 }'
}

# last FIELD: that field of the last line of totals.
last() {
  awk -v field="$1" '/^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ { n = $field }
    END { print n + 0 }' "$log"
}

# limited COMMAND...: runs it within the limit. `stop` finds its process by the file.
limited() {
  timeout -k 10 "$limit" "$@" >"$log" 2>&1 &
  echo $! >"$log.pid"
  wait $!
  status=$?
  rm -f "$log.pid"
}

# processor_seconds: those of all that this shell has waited for.
processor_seconds() {
  sed -n '2s/[ms]/ /gp' "$log.times" | awk '{ printf "%.1f", 60 * ($1 + $3) + $2 + $4 }'
}

# How far it is, and about how long the rest takes: on a terminal a line that changes, else a line
# for each tenth of many tests.
show_progress() {
  total=$(wc -l <"$results/tests")
  done=$(find "$results" -name '*.counts' | wc -l)
  took=$(($(date +%s) - $(cat "$results/start")))
  text="$done of $total tests; $took s, about $((took * (total - done) / done)) s left"
  if [ -t 2 ]; then
    if [ "$done" -lt "$total" ]; then printf '%s' "$text" >&2; fi
  elif [ "$total" -ge 20 ] && [ $((done * 10 / total)) != $(((done - 1) * 10 / total)) ]; then
    echo "$text" >&2
  fi
}

# run_one TEST: its line, below its output if it failed; its counts go to a file of $results.
run_one() {
  start=$(date +%s)
  mkdir "$log.tmp"
  export TMPDIR="$log.tmp"
  case $1 in
  *.sh)
    limited sh "$1"
    passed=$(last 1)
    failed=$(last 3)
    skipped=$(last 5)
    ;;
  *)
    # shellcheck disable=SC2086
    limited ${TEST_UNDER:-} "$1"
    passed=$(sum PASSED)
    failed=$(sum FAILED)
    skipped=$(sum SKIPPED)
    ;;
  esac
  rm -rf "$log.tmp"
  times >"$log.times"
  reason=
  if [ "$((passed + failed))" = 0 ]; then reason=", counted nothing"; fi
  case $status in
  124) reason=", stopped after $limit s (TEST_TIMEOUT=SECONDS sets another limit, 0 none)" ;;
  137) reason=", killed after $(($(date +%s) - start)) s: for memory, or by the limit of $limit s \
(TEST_TIMEOUT=SECONDS sets another, 0 none)" ;;
  esac
  if [ "$failed" = 0 ] && [ "$status$reason" != 0 ]; then failed=1; fi
  if [ "$skipped" != 0 ]; then reason=", $skipped skipped$reason"; fi
  if [ "$failed" != 0 ]; then reason="$reason, exit status $status"; fi
  echo "$1: $passed passed, $failed failed$reason ($(($(date +%s) - start)) s, processor \
$(processor_seconds) s)" >>"$log"
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
  if [ "$failed" != 0 ]; then
    cat "$log"
    case $1 in *test_*) echo "to repeat it: sh tests/run.sh $(basename "${1%.*}" | sed 's/^test_//')" ;; esac
  else
    tail -n 1 "$log"
  fi
  echo "$passed $failed $skipped" >"$log.counts"
  show_progress
}

# stop STATUS: ends what runs, then this. `timeout` passes the signal on to all of its test.
stop() {
  trap '' HUP INT TERM
  # shellcheck disable=SC2046
  kill $(cat "$results/runner" "$results"/*.shell 2>/dev/null) 2>/dev/null
  for file in "$results"/*.pid; do
    [ -e "$file" ] || continue
    read -r pid <"$file"
    kill "$pid" 2>/dev/null
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
  done
  exit "$1"
}

if [ "${1:-}" = --one ]; then
  log=$results/$(echo "$2" | tr / _)
  echo $$ >"$log.shell"
  run_one "$2"
  rm "$log.shell"
  exit 0
fi

results=$(mktemp -d) || exit 1
trap 'rm -rf "$results"' EXIT
trap 'stop 129' HUP
trap 'stop 130' INT
trap 'stop 143' TERM
export results
printf '%s\n' "$@" >"$results/tests"
date +%s >"$results/start"
xargs -d '\n' -n 1 -P "${TEST_JOBS:-$(nproc)}" sh "$0" --one <"$results/tests" &
echo $! >"$results/runner"
wait $!
cat "$results"/*.counts | awk -v tests=$# '
  { passed += $1; failed += $2; skipped += $3; count++ }
  END {
    failed += tests - count
    print passed + 0 " passed, " failed + 0 " failed" (skipped ? ", " skipped " skipped" : "")
    exit failed != 0 || passed == 0
  }'
