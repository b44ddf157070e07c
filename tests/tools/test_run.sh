#!/bin/sh
# tests/tools/run.sh and tests/tools/shell.sh: how they count, what they say of a test that hangs, and that a
# test that is stopped leaves neither files nor processes.

. tests/tools/shell.sh

# test_file NAME: a shell test with the text of standard input.
test_file() { cat >"$dir/$1.sh"; }

# runs STATUS TEST...: run.sh exits so for these.
runs() {
  expected=$1
  shift
  sh tests/tools/run.sh "$@" >"$dir/out" 2>"$dir/err"
  [ $? = "$expected" ]
}

ends_with() { [ "$(tail -n 1 "$dir/out")" = "$1" ]; }

mkdir "$dir/tmp"
export TMPDIR="$dir/tmp"
empty() { [ -z "$(find "$dir/tmp" -mindepth 1)" ]; }

test_file good <<'END2'
. tests/tools/shell.sh
ok 'a file of its own' touch "$TMPDIR/left"
report
END2
test_file bad <<'END2'
echo '3 passed, 2 failed'
exit 1
END2
echo 'echo nothing' | test_file silent
test_file quiet <<'END2'
echo '1 passed, 0 failed'
exit 7
END2
test_file endless <<'END2'
. tests/tools/shell.sh
touch "$dir/mine" "$TMPDIR/$left"
echo $$ >"$started"
while :; do sleep 3600; done
END2
export started="$dir/started" left=left

ok 'good' runs 0 "$dir/good.sh"
ok 'good: the sum' ends_with '1 passed, 0 failed'
ok 'good: nothing is left' empty
printf '#!/bin/sh\necho "[  PASSED  ] 2 test(s)."\n' >"$dir/program"
ok 'under a command' eval 'TEST_UNDER="sh -e" runs 0 "$dir/program" "$dir/good.sh"'
ok 'under a command: the sum' ends_with '3 passed, 0 failed'
ok 'bad and good' runs 1 "$dir/bad.sh" "$dir/good.sh"
ok 'bad and good: the sum' ends_with '4 passed, 2 failed'
ok 'silent' runs 1 "$dir/silent.sh"
ok 'silent: counts' prints 'silent.sh: 0 passed, 1 failed, counted nothing, exit status 0'
ok 'a bad status' runs 1 "$dir/quiet.sh"
ok 'a bad status: counts' prints 'quiet.sh: 1 passed, 1 failed, exit status 7'
# In a log, a line for each tenth of many tests; of few there is none.
for i in $(seq 40); do cp "$dir/good.sh" "$dir/many.$i.sh"; done
ok 'many tests' runs 0 "$dir"/many.*.sh
ok 'many tests: how far it is' [ "$(grep -cE '^[0-9]+ of 40 tests; [0-9]+ s, about [0-9]+ s left$' \
  "$dir/err")" -ge 5 ]
ok 'few tests' runs 0 "$dir/good.sh"
ok 'few tests: nothing is said' [ ! -s "$dir/err" ]
python3 -B - >"$dir/out" 2>&1 <<'END2'
import io, sys
sys.path.insert(0, "tests/tools")
from progress import Progress
log, now = io.StringIO(), [0]
shown = Progress(40, log, lambda: now[0])
for i in range(40):
    now[0] += 60
    shown.step("part %d" % i)
lines = log.getvalue().splitlines()
assert len(lines) == 10, lines
assert lines[0] == "4 of 40: part 3; 4 min, about 36 min left", lines[0]
assert lines[9] == "40 of 40: part 39; 40 min, about 0 s left", lines[9]
log.isatty = lambda: True
Progress(2, log, lambda: now[0]).step("one")
assert log.getvalue().endswith("\r\033[K1 of 2: one; 0 s, about 0 s left\r")
END2
ok 'the progress of long work' [ $? = 0 ]
export TEST_TIMEOUT=1
ok 'a test that hangs' runs 1 "$dir/endless.sh"
ok 'a test that hangs: the limit and its variable' \
  prints 'stopped after 1 s (TEST_TIMEOUT=SECONDS sets another limit, 0 none), exit status 124'
ok 'a test that hangs: nothing is left' empty
export TEST_TIMEOUT=0

# stopped SIGNAL STATUS COMMAND...: the command runs the endless test; stopped by the signal it ends
# with the status, and neither files nor the test's processes are left.
stopped() {
  signal=$1
  expected=$2
  shift 2
  rm -f "$started"
  env --default-signal=INT "$@" >"$dir/out" 2>"$dir/err" &
  until [ -s "$started" ]; do sleep 0.1; done
  read -r test_pid <"$started"
  kill "-$signal" $!
  wait $!
  [ $? = "$expected" ] && empty && ! kill -0 "$test_pid" 2>"$dir/err"
}
for end in HUP:129 INT:130 TERM:143; do
  ok "run.sh stopped by SIG${end%:*}" stopped "${end%:*}" "${end#*:}" \
    sh tests/tools/run.sh "$dir/endless.sh" "$dir/good.sh"
  # timeout passes the signal on to the whole test, as a terminal does.
  ok "a test stopped by SIG${end%:*}" stopped "${end%:*}" "${end#*:}" \
    env left= timeout 0 sh "$dir/endless.sh"
done

report
