#!/bin/sh
# usage: dist.sh FOLDER VERSION HEADER...
# Writes a release into FOLDER, for `make dist`: gmlake-VERSION.tar.gz, a copy of each header, and
# SHA256SUMS of all. What is in them is the commit that is checked out. git orders the archive's
# files, and gives each root as its owner and the commit's time: the same commit gives the same
# bytes.
set -eu
out=$1 version=$2
shift 2
name=gmlake-$version
archive=$out/$name.tar

if [ ! -e .git ]; then
  echo 'make dist needs a clone by git: it archives a commit' >&2
  exit 1
fi
if ! git diff --quiet HEAD; then
  echo 'make dist: what has changed since the commit is left out' >&2
fi
rm -rf "$out"
mkdir -p "$out"
git -c tar.umask=0022 archive --format=tar --prefix="$name/" -o "$archive" HEAD
for header; do
  tar -xOf "$archive" "$name/$header" >"$out/${header##*/}"
done
gzip -9n "$archive"
(cd "$out" && LC_ALL=C sha256sum -- *.tar.gz *.h *.hpp >SHA256SUMS)
ls "$out"
