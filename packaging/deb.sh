#!/bin/sh
# usage: deb.sh FOLDER VERSION
# Writes FOLDER/libgmlake-dev_VERSION_all.deb, for `make deb`: what `make install` copies, below
# /usr, the licence and the changelog. It needs dpkg-deb and CMake. The same commit, and the same
# CMake, give the same bytes.
set -eu
out=$1/libgmlake-dev_$2_all.deb version=$2

for tool in dpkg-deb cmake; do
  if ! command -v "$tool" >/dev/null; then
    echo "make deb needs $tool" >&2
    exit 1
  fi
done
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022
# No file is newer than the commit; in an archive of `make dist` all have its time.
if [ -e .git ]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  if ! git diff --quiet HEAD; then
    echo 'make deb: the package also has what has changed since the commit' >&2
  fi
else
  SOURCE_DATE_EPOCH=$(stat -c %Y CHANGELOG.md)
fi
export SOURCE_DATE_EPOCH

${MAKE:-make} -s install "DESTDIR=$stage" PREFIX=/usr >/dev/null
doc=$stage/usr/share/doc/libgmlake-dev
mkdir -p "$doc" "$stage/DEBIAN" "$1"
cp LICENSE "$doc/copyright"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
(cd "$stage" && find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
kib=$(find "$stage/usr" -type f -printf '%s\n' | awk '{ n += $1 } END { print int(n / 1024) + 1 }')
cat >"$stage/DEBIAN/control" <<END
Package: libgmlake-dev
Version: $version
Section: libdevel
Priority: optional
Architecture: all
Multi-Arch: foreign
Maintainer: gmlake contributors
Installed-Size: $kib
Suggests: pkgconf, cmake, nvidia-cuda-dev
Description: GPU memory allocator that stitches free pieces
 Headers in C99 and C++11: an allocator for one GPU, which maps free pieces
 side by side; best fit with coalescing; and plans for programs that need more
 memory than the GPU has. There is no library to link with.
END
chmod -R go-w,a+rX "$stage"
dpkg-deb --root-owner-group --build "$stage" "$out"
