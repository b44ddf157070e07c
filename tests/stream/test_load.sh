#!/bin/sh
# build/streams: each order of the lake is played, and what is marked does not wait.

. tests/tools/shell.sh

run() { "$build/streams" "$@" >"$dir/out" 2>"$dir/err"; }

# field ROW N: the N-th figure of a row, counted from its end.
field() { awk -v row="$1" -v n="$2" 'NR > 2 && ++rows == row { print $(NF - n) }' "$dir/out"; }

ok 'plays' run --steps 6 --layers 8 --ahead 8
ok 'two orders, one of them also marked' [ "$(wc -l <"$dir/out")" = 5 ]
ok 'growing first: no waits' [ "$(field 1 3)" = 0.0 ]
ok 'waiting first: waits' [ "$(field 2 3)" != 0.0 ]
ok 'waiting first: the link stands still' [ "$(field 2 0)" != 0.0 ]
ok 'marked: the link does not' [ "$(field 3 0)" = 0.0 ]
ok 'who does not wait takes as long' [ "$(field 1 2)" = "$(field 3 2)" ]
ok 'waiting first: recorded memory serves behind a wait, too' \
  [ "$(awk 'NR == 4 { print ($5 > .9) }' "$dir/out")" = 1 ]
ok 'one layer is too few' eval '! run --layers 1'

report
