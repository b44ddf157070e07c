# For tests written in shell, which source it from the root of the repository: a directory of their
# own, a count, questions about what a command wrote to $dir/out and $dir/err. $build is where
# the Makefile builds, $absolute_build the same for tests that change their directory. What they
# compile runs for a moment: where nobody named compilers clang's are taken, which need a third of
# gcc's time for what is not optimised. $whole is yes each night, else no.
set -u
whole=${TEST_WHOLE:-no}
if command -v clang++ >/dev/null; then
  case ${CC:-cc} in cc) CC=clang ;; esac
  case ${CXX:-c++} in c++ | g++) CXX=clang++ ;; esac
fi
export CC="${CC:-cc}" CXX="${CXX:-c++}"

build=${BUILD:-build}
case $build in
/*) absolute_build=$build ;;
*) absolute_build=$PWD/$build ;;
esac

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
passed=0
failed=0

# ok NAME COMMAND...: passes if the command succeeds; else shows what was written last.
ok() {
  name=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name"
    tail -q -n 40 "$dir/out" "$dir/err" 2>/dev/null
  fi
}

# run STATUS ARGUMENT...: the command $program ends with that status.
run() {
  expected=$1
  shift
  # shellcheck disable=SC2086
  $program "$@" >"$dir/out" 2>"$dir/err"
  [ $? = "$expected" ]
}

# fails NAME STATUS TEXT ARGUMENT...: it ends so, and says so. refused: and prints nothing.
fails() {
  what=$1 status=$2 text=$3
  shift 3
  ok "$what" run "$status" "$@"
  ok "$what: says so" says "$text"
}
refused() {
  fails "$@"
  ok "$what: silent" [ ! -s "$dir/out" ]
}

# gives NAME TEXT ARGUMENT...: it succeeds and prints that.
gives() {
  what=$1 text=$2
  shift 2
  ok "$what" run 0 "$@"
  ok "$what: prints so" prints "$text"
}

prints() { grep -qF -- "$1" "$dir/out"; }
says() { grep -qF -- "$1" "$dir/err"; }

# is_json FILE: also without NaN, which JSON does not have.
is_json() {
  python3 -c 'import json, sys
json.load(open(sys.argv[1]), parse_constant=sys.exit)' "$1" 2>/dev/null
}

# The last line, for run.sh, and the exit status.
report() {
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}
