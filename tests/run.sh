#!/bin/sh
# usage: run.sh TEST...
# Runs cmocka programs and shell tests (*.sh, whose last line is `N passed, N failed`) one after
# the other and prints the sum in the same form. A test that fails without saying so, that counts
# nothing or that takes longer than TEST_TIMEOUT seconds (300) counts as one failure.
set -u

limit=${TEST_TIMEOUT:-300}
log=build/test.log
all_passed=0
all_failed=0

# sum WORD: adds up the counts in cmocka's lines `[  WORD  ] N test(s)`.
sum() {
  sed -n "s/^\[ *$1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$log" |
    awk '{ n += $1 } END { print n + 0 }'
}

# last FIELD: that field of the last line of totals.
last() {
  awk -v field="$1" '/^[0-9]+ passed, [0-9]+ failed$/ { n = $field } END { print n + 0 }' "$log"
}

mkdir -p build
for t in "$@"; do
  start=$(date +%s)
  case $t in
  *.sh)
    timeout -k 10 "$limit" sh "$t" >"$log" 2>&1
    status=$?
    passed=$(last 1)
    failed=$(last 3)
    ;;
  *)
    timeout -k 10 "$limit" "$t" >"$log" 2>&1
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
  if [ "$failed" != 0 ]; then
    cat "$log"
    reason="$reason, exit status $status"
  fi
  echo "$t: $passed passed, $failed failed$reason ($(($(date +%s) - start)) s)"
  all_passed=$((all_passed + passed))
  all_failed=$((all_failed + failed))
done
rm -f "$log"
echo "$all_passed passed, $all_failed failed"
[ "$all_failed" = 0 ] && [ "$all_passed" != 0 ]
