#!/bin/sh
# The headers as other projects get them: by make install, by CMake in three ways, by pkg-config, as
# a Debian package, as a release; from a read-only tree in a path with spaces, by a user who is not
# root. And what version they say.

. tests/tools/shell.sh

unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES DESTDIR PREFIX # of the make that runs this
# Other users may look into this folder. It has no space: pkg-config cannot take such a path apart.
plain=$(TMPDIR=/tmp mktemp -d) || exit 1
trap 'rm -rf "$dir" "$plain"' EXIT
chmod a+rx "$plain"
tree="$plain/a source tree"
mkdir -p "$tree/examples"
cp -r ./*.h Makefile CMakeLists.txt LICENSE CHANGELOG.md packaging "$tree"
cp examples/gmlake.hpp "$tree/examples"
find "$tree" -printf '%p %s %T@\n' | sort >"$dir/before"
chmod -R a-w "$tree"
# number_of HEADER: its version as one number.
number_of() { awk '$1 == "#define" && $2 ~ /^GMLAKE_([A-Z]+_)?VERSION$/ { print $3 }' "$1"; }
number=$(number_of gmlake.h)
version=$((number / 10000)).$((number / 100 % 100)).$((number % 100))

# quietly COMMAND...: as a user who may write only in $mine, where root runs this.
mine="$plain/of a user"
mkdir "$mine"
as_user=
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  chown 65534:65534 "$mine"
  as_user='setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent'
fi
# shellcheck disable=SC2086
quietly() { TMPDIR=$mine $as_user "$@" >"$dir/out" 2>"$dir/err"; }

cat >"$dir/engine.c" <<'END'
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include <gmlake.h>
#include <stdio.h>
int main(void) {
  gmlake *lake = NULL;
  void *block = NULL;
  if (gmlake_create(NULL, &lake)) return 1;
  if (gmlake_alloc(lake, 1 << 20, NULL, &block)) return 2;
  if (gmlake_free(lake, block, NULL) || gmlake_destroy(lake)) return 3;
  printf("gmlake %d\n", gmlake_version());
  return 0;
}
END
cat >"$dir/engine.cpp" <<'END'
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include <gmlake.hpp>
int main() {
  gmlake_unique lake = gmlake_make();
  std::printf("gmlake %d\n", gmlake_make_block<float>(lake, 9, nullptr) ? gmlake_version() : 0);
}
END
cp "$dir/engine.c" "$dir/engine.cpp" "$mine"

# runs PROGRAM: it is an engine, and says the version's number.
runs() { quietly "$1" && prints "gmlake $number"; }

# ---- The version, told in one way everywhere ----

ok 'version: gmlake_bfc.h' [ "$(number_of gmlake_bfc.h)" = "$number" ]
ok 'version: gmlake_offload.h' [ "$(number_of gmlake_offload.h)" = "$number" ]
ok 'version: gmlake_turnip.h' [ "$(number_of gmlake_turnip.h)" = "$number" ]
ok 'version: the first lines' [ "$(head -qn 1 ./*.h | grep -c "[ v]$version[ :]")" = 4 ]
ok 'version: CHANGELOG' [ "$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)" = \
  "$version" ]

# ---- make install ----

ok 'make install' quietly make -C "$tree" install "PREFIX=$mine/of make"
for header in gmlake gmlake_bfc gmlake_offload gmlake_turnip; do
  ok "make install: $header.h" cmp "$header.h" "$mine/of make/include/$header.h"
done
ok 'make install: gmlake.hpp' cmp examples/gmlake.hpp "$mine/of make/include/gmlake.hpp"
ok 'DESTDIR' quietly make -C "$tree" install "DESTDIR=$mine/a stage" PREFIX=/usr
ok 'DESTDIR: the headers' [ -f "$mine/a stage/usr/include/gmlake.h" ]
ok 'DESTDIR: not in what is installed' grep -qx 'prefix=/usr' \
  "$mine/a stage/usr/lib/pkgconfig/gmlake.pc"
ok 'make uninstall' quietly make -C "$tree" uninstall "DESTDIR=$mine/a stage" PREFIX=/usr
ok 'make uninstall: nothing is left' [ -z "$(find "$mine/a stage" -type f)" ]

# ---- pkg-config ----

make -C "$tree" install "PREFIX=$plain/usr" >"$dir/out" 2>"$dir/err"
PKG_CONFIG_PATH=$plain/usr/lib/pkgconfig
export PKG_CONFIG_PATH
ok 'pkg-config: version' [ "$(pkg-config --modversion gmlake)" = "$version" ]
# shellcheck disable=SC2046
ok 'pkg-config: compiles' quietly ${CC:-cc} "$mine/engine.c" -o "$mine/by pkg-config" \
  $(pkg-config --cflags --libs gmlake)
ok 'pkg-config: runs' runs "$mine/by pkg-config"

# A path with a space, and with what sed would replace. What pkg-config prints is for the shell.
odd="$mine/R&D | x"
ok 'an odd path: make install' quietly make -C "$tree" install "PREFIX=$odd"
PKG_CONFIG_PATH="$odd/lib/pkgconfig"
ok 'an odd path: told as it is' [ "$(pkg-config --variable=includedir gmlake)" = "$odd/include" ]
ok 'an odd path: compiles' eval 'eval "quietly ${CC:-cc} \"$mine/engine.c\" -o \"$mine/odd\" \
  $(pkg-config --cflags --libs gmlake)"'
ok 'an odd path: runs' runs "$mine/odd"
ok 'an odd path: make uninstall' quietly make -C "$tree" uninstall "PREFIX=$odd"
ok 'an odd path: the headers are gone' [ ! -e "$odd/include/gmlake.h" ]
unset PKG_CONFIG_PATH

# ---- CMake ----

# project NAME LINES [cpp]: a project that gets gmlake by those lines of CMake; its program is in C,
# or in C++.
project() {
  mkdir "$mine/$1"
  cp "$dir"/engine.* "$mine/$1"
  {
    echo 'cmake_minimum_required(VERSION 3.14)'
    echo 'project(engine C CXX)'
    printf '%s\n' "$2"
    echo "add_executable(engine engine.${3:-c})"
    echo 'target_link_libraries(engine PRIVATE gmlake::gmlake)'
  } >"$mine/$1/CMakeLists.txt"
  chmod -R a+rwX "$mine/$1"
}

# builds NAME ARGUMENT...: configures and builds that project; its program runs.
builds() {
  name=$1
  shift
  quietly cmake -S "$mine/$name" -B "$mine/$name/out" "$@" &&
    quietly cmake --build "$mine/$name/out" && runs "$mine/$name/out/engine"
}

project 'as a subdirectory' "add_subdirectory(\"$tree\" gmlake)" cpp
ok 'add_subdirectory' builds 'as a subdirectory'
project 'fetched' "include(FetchContent)
FetchContent_Declare(gmlake SOURCE_DIR \"$tree\")
FetchContent_MakeAvailable(gmlake)"
ok 'FetchContent' builds 'fetched'
ok 'cmake: configures' quietly cmake -S "$tree" -B "$mine/configured" \
  "-DCMAKE_INSTALL_PREFIX=$mine/of cmake"
ok 'cmake: installs' quietly cmake --install "$mine/configured"
project 'found' "find_package(gmlake $version REQUIRED)" cpp
ok 'find_package' builds 'found' "-DCMAKE_PREFIX_PATH=$mine/of cmake"
project 'found of make' "find_package(gmlake $version REQUIRED)"
ok 'find_package after make install' builds 'found of make' "-DCMAKE_PREFIX_PATH=$mine/of make"
project 'moved' "find_package(gmlake $version REQUIRED)"
ok 'find_package: of a stage that was moved' eval 'cp -r "$mine/of make" "$mine/moved there" &&
  rm -r "$mine/of make" && builds moved "-DCMAKE_PREFIX_PATH=$mine/moved there"'
project 'too new' 'find_package(gmlake 99.0 REQUIRED)'
ok 'find_package: a later version is not there' eval \
  '! builds "too new" "-DCMAKE_PREFIX_PATH=$mine/of cmake"'
ok 'find_package: says so' says '99.0'
ok 'cmake: a file for pkg-config' grep -qx "Version: $version" \
  "$mine/of cmake/lib/pkgconfig/gmlake.pc"

# ---- The Debian package ----

# dpkg installs it below a folder, as any user may: what the machine has stays as it is.
if command -v dpkg-deb >/dev/null; then
  root=$mine/root
  package() { quietly dpkg "--root=$root" --log=/dev/null --force-not-root,bad-path "$@"; }
  deb() { make -s -C "$tree" deb "BUILD=$plain/$1" >"$dir/out" 2>"$dir/err"; }
  quietly mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
  quietly touch "$root/var/lib/dpkg/status"
  file=libgmlake-dev_${version}_all.deb
  ok 'make deb' deb one
  ok 'make deb: again, the same' eval '(umask 077 && TZ=Asia/Tokyo deb two) &&
    cmp "$plain/one/$file" "$plain/two/$file"'
  ok 'dpkg: installs' package -i "$plain/one/$file"
  ok 'dpkg: knows its files' eval 'package -V libgmlake-dev && [ ! -s "$dir/out" ]'
  export "PKG_CONFIG_SYSROOT_DIR=$root" "PKG_CONFIG_LIBDIR=$root/usr/lib/pkgconfig"
  ok 'dpkg: pkg-config: compiles' eval 'eval "quietly $CXX -std=c++11 \"$mine/engine.cpp\" \
    -o \"$mine/of deb\" $(pkg-config --cflags --libs gmlake)"'
  ok 'dpkg: pkg-config: runs' runs "$mine/of deb"
  unset PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR
  project 'of a package' "find_package(gmlake $version REQUIRED)"
  ok 'dpkg: find_package' builds 'of a package' "-DCMAKE_PREFIX_PATH=$root/usr"
  ok 'dpkg: removes' package -r libgmlake-dev
  ok 'dpkg: nothing is left' [ ! -e "$root/usr" ]
fi

# ---- A release ----

# It is made of a commit: in what was unpacked from one there is none.
if [ -e .git ]; then
  dist() { make -s dist "BUILD=$dir/$1" >"$dir/out" 2>"$dir/err"; }
  release=$dir/one/dist
  ok 'make dist' dist one
  ok 'make dist: again, the same' eval '(umask 077 && TZ=Asia/Tokyo dist two) &&
    diff -r "$release" "$dir/two/dist"'
  mkdir "$dir/vendored" "$dir/unpacked"
  cp "$release/SHA256SUMS" "$release/gmlake.h" "$dir/vendored"
  checked() { (cd "$1" && sha256sum -c --ignore-missing SHA256SUMS) >"$dir/out" 2>"$dir/err"; }
  ok 'SHA256SUMS' checked "$release"
  ok 'SHA256SUMS: of all' [ "$(wc -l <"$dir/out")" = 6 ]
  ok 'a vendored copy' checked "$dir/vendored"
  echo >>"$dir/vendored/gmlake.h"
  ok 'a vendored copy: changed' eval '! checked "$dir/vendored" && prints "gmlake.h: FAILED"'
  ok 'make dist: unpacks' tar -xzf "$release/gmlake-$version.tar.gz" -C "$dir/unpacked"
  # unpacked ARGUMENT...: make there, which has no git.
  unpacked() { make -C "$dir/unpacked/gmlake-$version" "$@" >"$dir/out" 2>"$dir/err"; }
  ok 'make dist: without git' eval '! unpacked dist'
  ok 'make dist: without git: says so' says 'needs a clone by git'
  ok 'make replay of it' unpacked replay FAST=-O0 TRACES=bench/traces/opt-1.3b-N.gmtrace.gz
  ok 'make replay of it: the lake' prints 'opt-1.3b-N'
  ok 'make test of it' unpacked test PROGRAMS= EXAMPLES= FUZZ= TEST_PROGRAMS=build/test_judge \
    TEST_SCRIPTS=tests/tools/test_security.sh
  ok 'make test of it: both' [ "$(grep -c ': [1-9][0-9]* passed, 0 failed' "$dir/out")" = 2 ]
fi

chmod -R u+w "$tree"
find "$tree" -printf '%p %s %T@\n' | sort >"$dir/after"
ok 'nothing is written beside the sources' cmp "$dir/before" "$dir/after"

report
