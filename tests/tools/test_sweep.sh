#!/bin/sh
# bench/sweep.sh: the table and the picture of a tiny grid. Without gnuplot it is not drawn.

. tests/tools/shell.sh

# A block is freed between two that stay; then one twice as large comes: 4 MiB that need no growth
# where pieces are stitched.
cat >"$dir/tiny.gmtrace" <<'END'
gmtrace 1
m one
a 1 2097152 0 1
a 2 2097152 0 1
a 3 2097152 0 1
a 4 2097152 0 1
f 1 1
f 3 1
m two
a 5 4194304 0 1
f 5 1
f 2 1
f 4 1
END
cat >"$dir/streams.gmtrace" <<'END'
gmtrace 1
a 1 2097152 0 1
a 2 2097152 1 1
END
cat >"$dir/grid" <<END
default chunk_mib=2
default chunk_mib=2 stitch_min_mib=512
paper limit_mib=2
paper nonsense=2
$build/policy_worst_fit.so chunk_mib=2
END

# sweep TRACE...: that grid's table of those.
sweep() {
  SWEEP_GRID=$dir/grid SWEEP_OUT=$dir/sweep sh bench/sweep.sh "$@" >"$dir/out" 2>"$dir/err"
}

# has ROW: a line of the table begins so (tabs are commas here).
has() { tr '\t' ',' <"$dir/sweep/sweep.tsv" | grep -q "^$1"; }

if ! command -v gnuplot >/dev/null; then
  mkdir "$dir/bin"
  printf '#!/bin/sh\ncat >/dev/null\n' >"$dir/bin/gnuplot"
  chmod +x "$dir/bin/gnuplot"
  PATH=$dir/bin:$PATH
else
  drawn=1
fi

ok 'runs' sweep "$dir/tiny.gmtrace" "$dir/streams.gmtrace"
ok 'tells what is done' [ "$(grep -c '^[1-5] of 5: ' "$dir/err")" = 5 ]
ok 'tells when all is done' says '5 of 5: '
ok 'head' has 'policy,knobs,traces,utilization,worst,driver_ms,stitches'
ok 'stitches' has 'default,chunk_mib=2,1,1.0000,1.0000,[0-9.]*,1$'
ok 'does not stitch' has 'default,chunk_mib=2 stitch_min_mib=512,1,0.6667,0.6667,[0-9.]*,0$'
ok 'paper' has 'paper,limit_mib=2,1,1.0000,1.0000,[0-9.]*,1$'
ok 'library' has 'worst_fit,chunk_mib=2,1,0.6667,'
ok 'a line that fails' has 'paper,nonsense=2,0,-,-,-,-$'
ok 'why it fails' says ', not: nonsense=2'
ok 'five rows' [ "$(wc -l <"$dir/sweep/sweep.tsv")" = 6 ]
ok 'frontier' [ -s "$dir/sweep/frontier.tsv" ]
if [ -n "${drawn:-}" ]; then ok 'picture' [ -s "$dir/sweep/sweep.png" ]; fi

report
