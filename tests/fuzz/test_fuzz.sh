#!/bin/sh
# Replays the inputs of tests/fuzz/corpus through the fuzz targets, as make has built them: what once
# reached a new corner, or broke something, is tried again. Searching for more: tests/fuzz/search.sh.

. tests/tools/shell.sh

for source in tests/fuzz/fuzz_*.c; do
  target=$(basename "$source" .c)
  find "tests/fuzz/corpus/$target" -type f >"$dir/inputs"
  ok "$target: inputs" [ -s "$dir/inputs" ]
  while read -r input; do
    ok "$input" eval '"$build/fuzz/$target" "$input" >"$dir/out" 2>"$dir/err"'
  done <"$dir/inputs"
done

report
