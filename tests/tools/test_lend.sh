#!/bin/sh
# build/lend: the load that lends a graph's memory keeps to its memory and computes the same, on the
# mock for several seeds and on a driver without a device with captured graphs; exports leave
# nothing behind.
. tests/tools/shell.sh

# lends PROGRAM ARGUMENT...: it says so, too.
lends() {
  "$@" >"$dir/out" 2>&1 &&
    grep -qE '^graphs .* both .* of the larger; the same bytes: yes$' "$dir/out" &&
    grep -qE '; left behind: nothing$' "$dir/out"
}

for seed in 1 5 7 8; do ok "seed $seed" lends "$build/lend" "$seed"; done

# It notices a lake that does not lend: all that is borrowed is then new memory.
sed 's/with_graphs ? GMLAKE_TRANSIENT : 0/0/' bench/lend.c >"$dir/wrong.c"
"${CC:-cc}" -std=gnu99 -I. "$dir/wrong.c" -o "$dir/wrong" -lpthread -ldl
ok 'a load that borrows nothing: noticed' test ! "$(lends "$dir/wrong" 5 && echo fine)"

export LD_LIBRARY_PATH="$build/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FAKE_CUDA_GIB=16
ok 'captured graphs' lends "$build/lend_cuda" 1 3
report
