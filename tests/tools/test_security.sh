#!/bin/sh
# Every test that SECURITY.md, SOUNDNESS.md and tests/MUTATION.md name is there: files, and cases
# `program: case` that the program runs.
. tests/tools/shell.sh

documents="SECURITY.md SOUNDNESS.md tests/MUTATION.md"

runs_case() {
  grep -qsE "^[A-Z_]+\\((.*, )?$2[,)]|^ *\\{\"$2\"," tests/*/"$1.c" tests/*/*"${1#test_}.h"
}

# shellcheck disable=SC2086
grep -ohE '`test_[a-z_]+: [a-z0-9_]+`' $documents | tr -d '`' | sort -u >"$dir/cases"
while IFS=': ' read -r program name; do
  ok "$program runs $name" runs_case "$program" "$name"
done <"$dir/cases"

# shellcheck disable=SC2086
grep -ohE '`(tests|bench|examples)/[a-zA-Z0-9_./]+`' $documents | tr -d '`' | sort -u >"$dir/paths"
while read -r path; do
  ok "$path is there" test -e "$path"
done <"$dir/paths"

ok "cases are named" test "$(wc -l <"$dir/cases")" -ge 30
report
