#!/bin/sh
# usage: sh tests/run.sh NAME [CASE]
# Builds and runs the tests of tests/*/test_NAME.c or test_NAME.sh; with CASE only those of its cases
# whose names have these words: sh tests/run.sh rows 'keeps its contents'
set -eu
cd "$(dirname "$0")/.."

usage() {
  sed -n 's/^# //p' "$0" | head -n 3 >&2
  echo "NAME is one of:" >&2
  printf '%s\n' tests/*/test_*.c tests/*/test_*.sh |
    sed 's|.*/test_||; s|\.[a-z]*$||' | sort | tr '\n' ' ' | fold -s >&2
  echo >&2
  exit 2
}

[ $# = 1 ] || [ $# = 2 ] || usage
set -- "$1" "$(printf '%s' "${2:-}" | tr ' ' _)"
for file in tests/*/test_"$1".sh; do
  [ -e "$file" ] || continue
  MAKE=make sh tests/tools/build.sh -j"$(nproc)" FAST=-O0 programs
  exec sh "$file"
done
for file in tests/*/test_"$1".c; do [ -e "$file" ] || usage; done
program=${BUILD:-build}/test_$1
make -s BUILD="${BUILD:-build}" "$program"
[ -n "$2" ] || exec "$program"
export TEST="*$2*"
echo "TEST='$TEST' $program"
said=$(mktemp)
trap 'rm -f "$said"' EXIT
status=0
"$program" >"$said" 2>&1 || status=$?
cat "$said"
if grep -q 'Running 0 test(s)' "$said"; then
  echo "no case of $program has these words: $2" >&2
  exit 2
fi
exit "$status"
