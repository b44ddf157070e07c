# For tests written in shell, which source it from the root of the repository: a directory of their
# own, a count, and questions about what a command wrote to $dir/out and $dir/err. $build is where
# the Makefile builds, $absolute_build the same for tests that change their directory.
set -u

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

prints() { grep -qF -- "$1" "$dir/out"; }
says() { grep -qF -- "$1" "$dir/err"; }

# The last line, for run.sh, and the exit status.
report() {
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}
