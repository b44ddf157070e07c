#!/bin/sh
# Who changes a function of gmlake.h that a model of tests/proof stands for is told to look at it.
. tests/tools/shell.sh

if ! command -v python3 >/dev/null; then
  echo 'skipped: there is no python3'
  report
  exit
fi

compare() { python3 -B tests/proof/models.py --functions "$@" >"$dir/out" 2>"$dir/err"; }
fails() { ! compare "$dir/gmlake.h"; }

# changed SED: gmlake.h with a change that is in $dir/gmlake.h.
changed() { sed "$1" gmlake.h >"$dir/gmlake.h" && ! cmp -s gmlake.h "$dir/gmlake.h"; }

ok 'the models were looked at' compare
ok 'a comment is changed' changed 's|s->freed_bytes = 0;$|s->freed_bytes = 0; /* none yet */|'
ok 'that is no change' compare "$dir/gmlake.h"
ok 'a function is changed' changed 's|fence.epoch = s->epoch++;|fence.epoch = s->epoch;|'
ok 'that is told' fails
ok 'it names function and model' \
  grep -q 'gmlk_stream_fence of gmlake.h has changed, and ends.pml has a step' "$dir/out"
ok 'it says what to do' grep -q 'models.py --looked-at gmlk_stream_fence$' "$dir/out"
ok 'a function is gone' changed 's|gmlk_stream_fence(|gmlk_stream_closed(|'
ok 'that is told, too' fails
ok 'it says so' grep -q 'gmlk_stream_fence is no function of gmlake.h any more' "$dir/out"

ok 'a proof of no such name' eval '! python3 -B tests/proof/proof.py tree nope 2>"$dir/err"'
ok 'it says so' says 'there is no run or defect nope: tree tree_of_windows'
ok 'no such mistake' eval '! python3 -B tests/proof/models.py --mistakes nope 2>"$dir/err"'
ok 'it says so' says 'no mistake has nope in its name'
ok 'no such function' eval '! python3 -B tests/proof/models.py --looked-at nope 2>"$dir/err"'
ok 'it says so' says 'models.txt has no function nope'

report
