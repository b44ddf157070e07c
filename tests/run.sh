#!/bin/sh
# usage: run.sh TEST...
# Runs cmocka programs and shell tests (*.sh, whose last line is `N passed, N failed`), TEST_JOBS
# (as many as there are processors) at a time, and prints the sum in the same form. A test that
# fails without saying so, that counts nothing or that takes longer than TEST_TIMEOUT seconds (300)
# counts as one failure.
set -u

limit=${TEST_TIMEOUT:-300}

# sum WORD: adds up the counts in cmocka's lines `[  WORD  ] N test(s)`.
sum() {
  sed -n "s/^\[ *$1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$log" |
    awk '{ n += $1 } END { print n + 0 }'
}

# last FIELD: that field of the last line of totals.
last() {
  awk -v field="$1" '/^[0-9]+ passed, [0-9]+ failed$/ { n = $field } END { print n + 0 }' "$log"
}

# run_one TEST: its line, below its output if it failed; its counts go to a file of $results.
run_one() {
  start=$(date +%s)
  case $1 in
  *.sh)
    timeout -k 10 "$limit" sh "$1" >"$log" 2>&1
    status=$?
    passed=$(last 1)
    failed=$(last 3)
    ;;
  *)
    timeout -k 10 "$limit" "$1" >"$log" 2>&1
    status=$?
    passed=$(sum PASSED)
    failed=$(sum FAILED)
    ;;
  esac
  reason=
  if [ "$status" = 124 ] || [ "$status" = 137 ]; then reason=", timed out or killed"; fi
  if [ "$status" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
  if [ "$((passed + failed))" = 0 ]; then
    failed=1
    reason=", counted nothing"
  fi
  if [ "$failed" != 0 ]; then reason="$reason, exit status $status"; fi
  echo "$1: $passed passed, $failed failed$reason ($(($(date +%s) - start)) s)" >>"$log"
  if [ "$failed" != 0 ]; then cat "$log"; else tail -n 1 "$log"; fi
  echo "$passed $failed" >"$log.counts"
}

if [ "${1:-}" = --one ]; then
  log=$results/$(echo "$2" | tr / _)
  run_one "$2"
  exit 0
fi

results=$(mktemp -d) || exit 1
trap 'rm -rf "$results"' EXIT
export results
printf '%s\n' "$@" | xargs -n 1 -P "${TEST_JOBS:-$(nproc)}" sh "$0" --one
cat "$results"/*.counts | awk -v tests=$# '
  { passed += $1; failed += $2; count++ }
  END {
    failed += tests - count
    print passed + 0 " passed, " failed + 0 " failed"
    exit failed != 0 || passed == 0
  }'
