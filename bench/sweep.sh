#!/bin/sh
# usage: sweep.sh [TRACE...]
# Replays traces with each line of a grid of policies and settings, two at a time. Without TRACE
# these are all in bench/traces. Writes the memory and the driver time that each line needs, over
# the traces with one stream, into build/sweep/sweep.tsv, and draws them into sweep.png beside it.
# Standard error shows the progress. A line of the grid is `POLICY [KEY=VALUE]...`, as for
# build/replay. Environment: SWEEP_GRID is a file with another grid, SWEEP_OUT another folder for
# the results, BUILD the folder to use in place of build.
set -eu

build=${BUILD:-build}
out=${SWEEP_OUT:-$build/sweep}
tab=$(printf '\t')

# With 2 MiB all meanings of the paper's limit are the same.
grid() {
  for limit in 2 8 32 128 512; do echo "paper limit_mib=$limit"; done
  for limit in 8 32 128; do echo "paper limit_mib=$limit limit_reading=block"; done
  for limit in 32 128; do
    echo "paper limit_mib=$limit limit_reading=exact"
    echo "paper limit_mib=$limit limit_reading=whole"
  done
  for limit in 2 32 128; do echo "paper limit_mib=$limit keeps_former=0"; done
  for limit in 32 128 512; do echo "paper official=1 limit_mib=$limit"; done
  for chunk in 8 32; do echo "paper chunk_mib=$chunk limit_mib=$chunk"; done
  for chunk in 2 4 8 16 32 64 128 256; do
    for least in 0 32 128 512; do echo "default chunk_mib=$chunk stitch_min_mib=$least"; done
  done
  for chunk in 2 16 64; do echo "$build/policy_worst_fit.so chunk_mib=$chunk"; done
}

# row LINE TRACE...: writes that line's row of the table; `-` where a trace could not be replayed.
row() {
  line=$1
  shift
  policy=${line%% *}
  knobs=${line#"$policy"}
  name=$(basename "$policy" .so)
  file=$out/rows/$(printf %s "$line" | cksum | tr ' ' -)
  traces=$#
  options=
  for knob in $knobs; do options="$options --set $knob"; done
  # shellcheck disable=SC2086
  "$build/replay" --json --once --policy "$policy" $options "$@" >"$file.json" || :
  awk -v traces="$traces" -v policy="${name#policy_}" -v knobs="${knobs# }" '
  function field(name) {
    if (!match($0, "\"" name "\": [0-9.]+")) return 0
    return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0
  }
  field("streams") == 1 {
    n++
    sum += field("utilization")
    if (n == 1 || field("utilization") < least) least = field("utilization")
    ms += field("driver_ms")
    stitches += field("stitches")
  }
  END {
    printf "%s\t%s\t%d", policy, knobs, n
    if (NR < traces || !n) print "\t-\t-\t-\t-"
    else printf "\t%.4f\t%.4f\t%.1f\t%d\n", sum / n, least, ms, stitches
  }' "$file.json" >"$file.tsv"
  echo "$(find "$out/rows" -name '*.tsv' | wc -l) of $SWEEP_LINES: $line" >&2
}

draw() {
  printf 'set terminal pngcairo size 1200,700 noenhanced\nset output "%s/sweep.png"\n' "$out"
  cat <<END
set datafile separator tab
set logscale x
set xlabel "driver time of all traces, modelled, ms"
set ylabel "utilization, mean over traces"
set yrange [*:1.005]
set grid
set key outside bottom center horizontal
plot "$out/frontier.tsv" using 1:2 with linespoints lc rgb "gray50" dt 2 pt 6 ps 2.5 \\
  title "no other line of the grid is better in both", \\
END
  for policy in $(tail -n +2 "$out/sweep.tsv" | cut -f 1 | sort -u); do
    printf '  "< grep ^%s%s %s" using 6:4 with points pt 7 ps 1.3 title "%s", \\\n' \
      "$policy" "$tab" "$out/sweep.tsv" "$policy"
  done
  echo
}

if [ "${1:-}" = --row ]; then
  shift
  row "$@"
  exit 0
fi
if [ $# = 0 ]; then set -- bench/traces/*.gmtrace.gz; fi
rm -rf "$out/rows"
mkdir -p "$out/rows"
if [ -n "${SWEEP_GRID:-}" ]; then cat "$SWEEP_GRID"; else grid; fi >"$out/rows/grid"
SWEEP_LINES=$(wc -l <"$out/rows/grid")
export SWEEP_LINES
tr '\n' '\0' <"$out/rows/grid" | xargs -0 -P 2 -I '{}' sh "$0" --row '{}' "$@"
{
  printf 'policy\tknobs\ttraces\tutilization\tworst\tdriver_ms\tstitches\n'
  cat "$out"/rows/*.tsv | sort -t "$tab" -k 1,1 -k 4,4nr -k 6,6n -k 2,2
} >"$out/sweep.tsv"
rm -rf "$out/rows"
tail -n +2 "$out/sweep.tsv" | sort -t "$tab" -k 6,6n -k 4,4nr |
  awk -F '\t' '$6 != "-" && $4 > best { best = $4; print $6 "\t" $4 "\t" $1 "\t" $2 }' \
    >"$out/frontier.tsv"
draw | gnuplot
echo "$out/sweep.tsv $out/sweep.png"
