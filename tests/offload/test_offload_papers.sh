#!/bin/sh
# bench/offload/networks.py describes networks of the right size, and bench/offload/PAPERS.md says
# what bench/offload/papers.py says today: a part of it, and each night all of it.

. tests/tools/shell.sh

if ! command -v python3 >/dev/null; then
  echo 'skipped: there is no python3'
  report
  exit
fi
program='python3 -B bench/offload/networks.py'

for wrong in '' 'vgg:2' 'vgg16' 'vgg16:2:2' 'mlp:2:2'; do
  fails "no network '$wrong'" 1 'usage: networks.py' "$wrong"
done
fails 'no such GPU' 1 'usage: networks.py' vgg16:2 3080
for words in 'prefill:7b:1:64:1 2080ti: half' 'prefill:7b:1:64:2 h200: peer' \
  'lora:9b:1:64:1 a100: 9b'; do
  # shellcheck disable=SC2086
  refused "$words" 1 "${words%: *}: there is no '${words##*: }'" ${words%: *}
done
refused 'no number' 1 "vgg16:x: numbers stand behind the network's name" vgg16:x
fails 'one word too many' 1 'usage: networks.py' vgg16:2 2080ti x

# numbers NETWORK GPU BYTES COUNT: its parameters are so many numbers, of so many bytes each: in
# training four of its own, and as many of each of Adam's two means.
numbers() {
  # shellcheck disable=SC2086
  $program "$1" "$2" >"$dir/out" 2>"$dir/err" &&
    awk -v bytes="$3" -v count="$4" '$1 == "t" && $4 == "p" { sum += $3 }
      END { exit sum != bytes * count }' "$dir/out"
}
ok 'VGG-16' numbers vgg16:1 2080ti 12 138357544
ok 'VGG-16, Adam fused' numbers vgg16_fused:1 2080ti 12 138357544
ok 'ResNet-50' numbers resnet50:1 2080ti 12 25557032
ok 'DenseNet-121' numbers densenet121:1 2080ti 12 7978856
ok 'Inception V3' numbers inception_v3:1 2080ti 12 27161264
ok 'Inception V4' numbers inception_v4:1 2080ti 12 42679816
ok 'an MLP' numbers mlp:8:100:3 2080ti 12 30300
ok 'LLaMA 7B' numbers prefill:7b:1:64:8 a100 2 6476005376
ok 'LLaMA 65B' numbers prefill:65b:1:64:4 p100 2 64760053760

# The arithmetic of an operator and the traffic of its tensors, at the rates of the GPU.
$program vgg16:2 >"$dir/out"
ok 'a convolution takes its arithmetic' [ "$(sed -n 's/^o convolution.default \([0-9]*\) .*/\1/p' \
  "$dir/out" | sed -n 2p)" = 692616 ]
ok "Adam's mean takes its traffic" [ "$(sed -n 's/^o lerp_.Scalar \([0-9]*\) .*/\1/p' "$dir/out" |
  sort -n | tail -1)" = 2864753 ]

# What two GPUs compute of a layer of LLaMA each, and what they send each other.
$program prefill:7b:1:1024:2 a100 >"$dir/out"
ok 'LLaMA: as many products here as there' [ "$(grep -c '^o qkv ' "$dir/out")" = 64 ]
ok 'LLaMA: four copies for each half of a layer' [ "$(grep -c '^o transfer ' "$dir/out")" = 256 ]

# page OPTION...: what papers.py prints.
page() { python3 -B bench/offload/papers.py --build "$build" "$@" >"$dir/page" 2>"$dir/err"; }

# in_the_page: PAPERS.md has each line of it.
in_the_page() {
  while read -r line; do
    if ! grep -qxF -- "$line" bench/offload/PAPERS.md; then
      echo "not in PAPERS.md: $line" >"$dir/out"
      return 1
    fi
  done <"$dir/page"
}
for section in head mlp others; do
  ok "PAPERS.md: $section" page --only "$section"
  ok "PAPERS.md: $section: up to date (make papers)" in_the_page
done
for other in '--link 50' '--ratio .01'; do
  # shellcheck disable=SC2086
  ok "$other" page --only mlp $other
  ok "$other: other figures" eval '! in_the_page'
done
ok 'another section' eval '! page --only moon'
for wrong in '--link 0' '--link nan' '--ratio 2'; do
  # shellcheck disable=SC2086
  ok "$wrong" eval '! page --only head $wrong'
  ok "$wrong: says so" says "${wrong% *}: it takes a number from"
done
ok 'no programs' eval '! page --only mlp --build "$dir/none"'
ok 'no programs: says so' says "$dir/none/offload is not there: make build/offload build/turnip"
if [ "$whole" = yes ]; then
  ok 'PAPERS.md: all of it' page
  ok 'PAPERS.md: all of it: up to date (make papers)' cmp "$dir/page" bench/offload/PAPERS.md
fi

report
