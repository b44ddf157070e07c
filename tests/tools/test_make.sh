#!/bin/sh
# The Makefile in a path with spaces, with a read-only source tree, and what it installs.

. tests/tools/shell.sh

unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES INSTALL_PACKAGES # of the make that runs this
tree="$dir/a source tree"
mkdir "$tree"
cp -R ./*.h Makefile bench examples tests "$tree"
cat >"$tree/tests/tools/test_one.sh" <<'END2'
. tests/tools/shell.sh
ok 'replay' "$build/replay" --help
report
END2

# made ARGUMENT...: make in the copy, quickly.
made() { make -C "$tree" CFLAGS=-O0 "$@" >"$dir/out" 2>"$dir/err"; }

# tested BUILD TEST...: run.sh in the copy, which is to count no failure.
tested() {
  (
    export BUILD="$1"
    shift
    cd "$tree" && exec sh tests/tools/run.sh "$@"
  ) >"$dir/out" 2>"$dir/err"
}

ok 'spaces: make' made build/replay build/policy_worst_fit.so build/test_debug
ok 'spaces: tests' tested build tests/tools/test_one.sh build/test_debug
ok 'spaces: of both kinds' [ "$(grep -c ': [1-9][0-9]* passed, 0 failed (' "$dir/out")" = 2 ]
ok 'spaces: make clean' made clean
ok 'spaces: nothing is left' [ ! -e "$tree/build" ]

listed() { find "$tree" -printf '%p %s %T@\n' | sort; }
chmod -R a-w "$tree"
listed >"$dir/before" # root may write all the same
out=$dir/out.of.tree
ok 'read-only: make' made "BUILD=$out" "$out/replay" "$out/policy_worst_fit.so" \
  "$out/fake/libcuda.so.1" "$out/test_debug"
ok 'read-only: tests' tested "$out" tests/tools/test_one.sh "$out/test_debug"
ok 'read-only: of both kinds' [ "$(grep -c ': [1-9][0-9]* passed, 0 failed (' "$dir/out")" = 2 ]
listed >"$dir/after"
ok 'read-only: nothing is written' cmp "$dir/before" "$dir/after"
chmod -R u+w "$tree"
ok 'a build folder with spaces' eval '! made "BUILD=$dir/b c" all'
ok 'a build folder with spaces: says so' says 'a folder whose name has a space'

# ---- Packages --------------------------------------------------------------------------------

# A machine without zlib, and an apt-get that installs nothing.
mkdir "$dir/bin"
cat >"$dir/bin/cc" <<'END2'
#!/bin/sh
! grep -q zlib
END2
cat >"$dir/bin/apt-get" <<'END2'
#!/bin/sh
echo "apt-get $*" >&2
END2
printf '#!/bin/sh\necho 0\n' >"$dir/bin/id"
chmod +x "$dir/bin/cc" "$dir/bin/apt-get" "$dir/bin/id"

deps() { PATH=$dir/bin:$PATH CC=cc sh tests/tools/deps.sh replay >"$dir/out" 2>"$dir/err"; }
ok 'packages' deps
ok 'packages: named before they are installed' [ "$(sed 's/:.*//; s/ -.*//' "$dir/err" |
  tr '\n' ',')" = 'missing,now installed by,(INSTALL_PACKAGES=no only says what is missing),'\
'apt-get update,apt-get install,' ]
ok 'packages: by their names' says 'missing: zlib1g-dev'
ok 'packages: with this command' says \
  'now installed by: apt-get install --no-install-recommends zlib1g-dev'
# Another process holds a lock for the first two tries of each command, or for ever. Sleeps count.
cat >"$dir/bin/apt-get" <<'END2'
#!/bin/sh
folder=$(dirname "$0")
echo "$1" >>"$folder/tries"
if [ -e "$folder/stuck" ] || [ "$(grep -c "$1" "$folder/tries")" -le 2 ]; then
  echo 'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (dpkg)' >&2
  exit 100
fi
echo "apt-get $*" >&2
END2
printf '#!/bin/sh\necho slept >>"%s"\n' "$dir/sleeps" >"$dir/bin/sleep"
chmod +x "$dir/bin/sleep"
ok 'packages: a lock is waited for' deps
ok 'packages: twice for each command' [ "$(wc -l <"$dir/sleeps")" = 4 ]
ok 'packages: then they are installed' says 'apt-get install -y'
touch "$dir/bin/stuck"
ok 'packages: not for ever' eval '! deps'
ok 'packages: not for ever: ten minutes' [ "$(wc -l <"$dir/sleeps")" = 64 ]
cat >"$dir/bin/apt-get" <<'END2'
#!/bin/sh
echo 'E: Unable to locate package zlib1g-dev' >&2
exit 100
END2
ok 'packages: another error ends it' eval '! deps'
ok 'packages: another error ends it: at once' [ "$(wc -l <"$dir/sleeps")" = 64 ]
export INSTALL_PACKAGES=no
ok 'packages: not wanted' eval '! deps'
ok 'packages: not wanted: says so' says 'missing, please install: zlib1g-dev'
ok 'packages: not wanted: none' [ "$(wc -l <"$dir/err")" = 1 ]

report
