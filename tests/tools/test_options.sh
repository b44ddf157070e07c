#!/bin/sh
# The options of all programs: bench/options.h.

. tests/tools/shell.sh

# run STATUS PROGRAM ARGUMENT...: runs it; answers whether it ended so.
run() {
  wanted=$1
  program=$2
  shift 2
  LD_LIBRARY_PATH=$build/fake "$build/$program" "$@" >"$dir/out" 2>"$dir/err"
  [ $? = "$wanted" ]
}

# In all of them: what is unknown is refused and named, the help comes wherever it is asked for.
for program in replay bench gpu_bench offload turnip offload_gpu offload_session gpu_test gpu_play \
  test_faults test_soak test_threads test_turnip test_worlds; do
  for word in --nonsense -j -A; do
    ok "$program $word" run 2 $program $word
    ok "$program $word: named" says "$program: $word: no such option; $program --help"
    ok "$program $word: silent" [ ! -s "$dir/out" ]
  done
  ok "$program: a bundle of letters" run 2 $program -hx
  ok "$program: a bundle of letters: named" says "$program: -x: no such option"
  for help in --help -h; do
    ok "$program $help" run 0 $program $help
    ok "$program $help: usage" prints "usage: $program [OPTION]..."
    ok "$program $help: options" prints '  -h, --help '
    ok "$program $help: nothing else" [ ! -s "$dir/err" ]
  done
done
for program in replay offload turnip offload_gpu offload_session; do
  ok "$program: a flag with a value" run 2 $program --json=1
  ok "$program: a flag with a value: told" says "$program: --json takes no value"
  ok "$program: help behind an option" run 0 $program --json -h
done
for program in offload turnip offload_gpu offload_session; do
  ok "$program: columns" run 0 $program -h
  ok "$program: columns: explained" prints 'olumns'
done

# refuses WANTED OPTION VALUE...: each value, in both forms, together with what would be right.
refuses() {
  what=$1
  option=$2
  shift 2
  for value in "$@"; do
    ok "$program $option '$value'" run 2 "$program" "$option" "$value"
    ok "$program $option '$value': what is right" says "$program: $option takes $what, not '$value'"
    ok "$program $option=$value" run 2 "$program" "$option=$value"
    ok "$program $option=$value: silent" [ ! -s "$dir/out" ]
  done
  ok "$program $option alone" run 2 "$program" "$option"
  ok "$program $option alone: what is right" says "$program: $option takes $what, not ''"
}
program=offload
refuses 'a whole number from 1 to 16' --jobs x 0 17 1.5 '' nan 1x ' 1' -1 18446744073709551617
refuses 'a number from 0 to 0.99' --jitter 1 -1 x '' nan 0.5x
program=replay
refuses 'a power of two from 2 to 1024' --chunk-mib 1 3 2048 '' x 2.0
refuses 'wait|grow' --cross-stream '' wai waiter 'wait|grow' soon
refuses FILE --series ''
refuses 'KEY=VALUE, at most 64 times' --set ''
program=bench
refuses 'FILE, at most 3 times' --peer ''
ok 'a list that is too long' run 2 bench --peer a --peer b --peer=c --peer d
ok 'a list that is too long: what is right' says "bench: --peer takes FILE, at most 3 times, not 'd'"
program=gpu_bench
ok 'a check of its own' run 2 gpu_bench --copy-mib 24
ok 'a check of its own: what is right' says "gpu_bench: --copy-mib takes a multiple of 16, not '24'"
program=test_faults
for shard in 1 1/ 2/2 1/0 1/2x; do
  ok "--shard $shard" run 2 test_faults --shard $shard
  ok "--shard $shard: what is right" says "--shard takes I/N with I below N, not '$shard'"
done

ok 'a name behind --' run 1 offload --json -- --jobs
ok 'a name behind --: no option' says '--jobs: No such file or directory'
ok 'a word where only options may stand' run 2 test_faults --shard 0/1 word
ok 'a word where only options may stand: told' says 'test_faults: word: it takes options only'
ok 'no such case' run 2 gpu_test nonsense
ok 'no such case: told' says 'gpu_test: nonsense: no such case'
report
