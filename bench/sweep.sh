#!/bin/sh
# usage: sweep.sh [TRACE...]
# Replays traces with each line of a grid of policies and settings, two at a time. Without TRACE
# these are all in bench/traces. Writes the memory and the driver time that each line needs, over
# the traces with one stream, into build/sweep/sweep.tsv, and draws them into sweep.png beside it.
# Standard error shows the progress. A sweep that was stopped goes on where it was. A line of the
# grid is `POLICY [KEY=VALUE]...`, as for build/replay. Environment: SWEEP_GRID is a file with another
# grid, SWEEP_OUT another folder for the results, BUILD the folder to use in place of build.
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

# told DONE LINE: how far it is, and about how long it takes; on a terminal in one line, in a log a
# line for each tenth. SWEEP_HAD lines were done before this run.
told() {
  took=$(($(date +%s) - SWEEP_START))
  left=$((took * (SWEEP_LINES - $1) / ($1 > SWEEP_HAD ? $1 - SWEEP_HAD : 1)))
  text="$1 of $SWEEP_LINES: $2; $took s, about $left s left"
  if [ -t 2 ]; then
    printf '\r\033[K%s' "$text" >&2
    if [ "$1" = "$SWEEP_LINES" ]; then echo >&2; fi
  elif [ $(($1 * 10 / SWEEP_LINES)) != $((($1 - 1) * 10 / SWEEP_LINES)) ]; then
    echo "$text" >&2
  fi
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
  if [ -s "$file.tsv" ]; then return; fi # a sweep that was stopped has done it
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
  }' "$file.json" >"$file.part"
  mv "$file.part" "$file.tsv"
  told "$(find "$out/rows" -name '*.tsv' | wc -l)" "$line"
}

# words POLICY: what it is called in the picture, and its colour of bench/style.gp.
words() {
  case $1 in
  default) echo "the lake's own policy, by chunk size in MiB|lake" ;;
  paper) echo "the GMLake paper's policy|paper" ;;
  worst_fit) echo "worst fit|other" ;;
  *) echo "$1|ink" ;;
  esac
}

# Names stand beside points: the lake's below its first, others' above their lowest. Below the lake's
# best points stand their chunk sizes.
draw() {
  cat <<END
load "bench/style.gp"
set output "$out/sweep.png"
set datafile separator tab
set logscale x
set xlabel "time in the driver for all of them, modelled, in milliseconds" textcolor rgb ink
set label 1 "How much of the held memory is live, in %: mean of $1 programs; each point is a setting" at graph -.06, graph 1.07 textcolor rgb ink
set label 2 "Higher and further left is better. For what is on the\ndashed line no other setting is better in both." at graph .03, .45 textcolor rgb ink
set xrange [$2]
set yrange [*:100]
set rmargin 4
plot "$out/frontier.tsv" using 1:(100 * \$2) with lines lw 2 dt 2 lc rgb ink, \\
  "$out/sizes.tsv" using 1:(100 * \$2):3 with labels center offset 0,-1 textcolor rgb lake, \\
END
  for policy in $(tail -n +2 "$out/sweep.tsv" | cut -f 1 | sort -u); do
    words=$(words "$policy")
    side='right offset -.8,.9'
    key=4,4n
    if [ "$policy" = default ]; then side='left offset -.5,-2.3' key=6,6n; fi
    printf '  "< grep ^%s%s %s" using 6:(100 * $4) with points pt 7 ps 1.8 lc rgb %s, \\\n' \
      "$policy" "$tab" "$out/sweep.tsv" "${words#*|}"
    printf '  "< grep ^%s%s %s | sort -t '"'%s'"' -k %s | sed -n %s" using 6:(100 * $4):("%s") with labels %s textcolor rgb %s, \\\n' \
      "$policy" "$tab" "$out/sweep.tsv" "$tab" "$key" 1p "${words%|*}" "$side" "${words#*|}"
  done
  echo
}

if [ "${1:-}" = --row ]; then
  shift
  row "$@"
  exit 0
fi
if [ $# = 0 ]; then set -- bench/traces/*.gmtrace.gz; fi
mkdir -p "$out"
if [ -n "${SWEEP_GRID:-}" ]; then cat "$SWEEP_GRID"; else grid; fi >"$out/grid"
# What was replayed by the same program, grid and traces is not replayed again.
cksum "$out/grid" "$build/replay" "$build"/policy_*.so "$@" >"$out/of" 2>/dev/null || :
if ! cmp -s "$out/of" "$out/rows/of"; then rm -rf "$out/rows"; fi
mkdir -p "$out/rows"
mv "$out/grid" "$out/of" "$out/rows"
SWEEP_START=$(date +%s)
export SWEEP_START
SWEEP_LINES=$(wc -l <"$out/rows/grid")
export SWEEP_LINES
SWEEP_HAD=$(find "$out/rows" -name '*.tsv' | wc -l)
export SWEEP_HAD
tr '\n' '\0' <"$out/rows/grid" | xargs -0 -P 2 -I '{}' sh "$0" --row '{}' "$@"
{
  printf 'policy\tknobs\ttraces\tutilization\tworst\tdriver_ms\tstitches\n'
  cat "$out"/rows/*.tsv | sort -t "$tab" -k 1,1 -k 4,4nr -k 6,6n -k 2,2
} >"$out/sweep.tsv"
rm -rf "$out/rows"
tail -n +2 "$out/sweep.tsv" | sort -t "$tab" -k 6,6n -k 4,4nr |
  awk -F '\t' '$6 != "-" && $4 > best { best = $4; print $6 "\t" $4 "\t" $1 "\t" $2 }' \
    >"$out/frontier.tsv"
# The best point of each chunk size of the lake.
awk -F '\t' '$3 == "default" && sub(/^chunk_mib=/, "", $4) && !seen[$4 + 0]++ {
  print $1 "\t" $2 "\t" $4 + 0 }' "$out/frontier.tsv" >"$out/sizes.tsv"
# The count of programs, and the axis a little longer than what is on it.
shape=$(awk -F '\t' 'NR > 1 && $6 != "-" && $6 > 0 {
  if (!n || $6 < least) least = $6
  if (!n || $6 > most) most = $6
  if ($3 > n) n = $3
} END { printf "%d %g:%g", n, least / 1.5, most * 1.5 }' "$out/sweep.tsv")
draw "${shape%% *}" "${shape#* }" | gnuplot
echo "$out/sweep.tsv $out/sweep.png"
