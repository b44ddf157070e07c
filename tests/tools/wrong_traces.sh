# What both readers of traces refuse, bench/trace.h and bench/viewer.html, in the same words. The
# test of each defines bad NAME LINE REASON TEXT (printf's escapes), and reads this file.
# shellcheck shell=sh

h='gmtrace 1\n'
bad 'empty' 1 'the file is empty' ''
bad 'not a trace' 1 'not a trace' 'a 1 512 0 0\n'
bad 'another version' 1 "not a trace: 'gmtrace 2' expected" 'gmtrace 3\na 1 512 0 0\n'
bad 'no version' 1 'not a trace' 'gmtrace 0\na 1 512 0 0\n'
bad 'a longer version' 1 'not a trace' 'gmtrace 22\na 1 512 0 0\n'
bad 'no records' 2 'the trace has no records' "$h# remark\n"
bad 'unknown record' 2 "unknown record 'x'" "${h}x 1 2 3 4\n"
bad 'longer record' 2 "unknown record 'aa'" "${h}aa 1 2 3 4\n"
bad 'blank line' 2 'unknown record' "$h\na 1 512 0 0\n"
bad 'unknown id' 3 'free of unknown id 2' "${h}a 1 512 0 0\nf 2 0\n"
bad 'freed twice' 4 'id 1 is already free' "${h}a 1 512 0 0\nf 1 0\nf 1 0\n"
bad 'live twice' 3 'id 1 is already live' "${h}a 1 512 0 0\na 1 512 0 0\n"
bad 'negative size' 2 "the size is not a number: '-512'" "${h}a 1 -512 0 0\n"
bad 'negative id' 2 "the id is not a number: '-1'" "${h}a -1 512 0 0\n"
bad 'fraction' 2 "the size is not a number: '1.5'" "${h}a 1 1.5 0 0\n"
bad 'hexadecimal stream' 2 "the stream is not a number: '0x7'" "${h}a 1 512 0x7 0\n"
bad 'word for a time' 2 "the time is not a number: 'now'" "${h}a 1 512 0 now\n"
bad 'size of 2^64' 2 'the size is too large' "${h}a 1 18446744073709551616 0 0\n"
bad 'size near 2^64' 2 'the size is too large' "${h}a 1 18446744073709551615 0 0\n"
bad 'live bytes' 3 'the live bytes overflow' \
  "${h}a 1 4611686018427387392 0 0\na 2 4611686018427387392 0 0\n"
bad 'time' 3 'the time is too large' \
  "${h}a 1 512 0 4611686018427387\nf 1 4611686018427387\n"
bad 'field missing' 2 'the time is missing' "${h}a 1 512 0\n"
bad 'free without time' 3 'the time is missing' "${h}a 1 512 0 0\nf 1\n"
bad 'text after a record' 2 "text after the record: 'x'" "${h}a 1 512 0 0 x\n"
bad 'bad peak' 2 "the peak is not a number: 'big'" "$h# peak_reserved: big\n"
bad 'truncated line' 3 'the last line is truncated' "${h}a 1 512 0 0\nf 1 "
bad 'truncated number' 3 'the last line is truncated' "${h}a 1 512 0 0\na 2 51"
bad 'zero byte' 3 'not a line of text' "${h}a 1 512 0 0\nf 1 0\0000\nf 1 0\n"

bad 'a use in version 1' 3 "unknown record 'u'" "${h}a 1 512 0 0\nu 1 1 0\n"
bad 'completion in version 1' 3 "unknown record 'd'" "${h}a 1 512 0 0\nd 0 0 0\n"
bad 'no stream in version 1' 2 "the stream is not a number: '-'" "${h}a 1 512 - 0\n"
h='gmtrace 2\na 1 512 0 5\n'
bad 'a free without its stream' 3 'the time is missing' "${h}f 1 0\n"
bad 'a use of what is free' 4 'id 1 is already free' "${h}f 1 0 0\nu 1 1 0\n"
bad 'a use of nothing' 3 'use of unknown id 2' "${h}u 2 1 0\n"
bad 'a use on no stream' 3 '- is no stream' "${h}u 1 - 0\n"
bad 'completion on no stream' 3 '- is no stream' "${h}d - 0 0\n"
bad 'completion without a time' 3 'the time is missing' "${h}d 0 1\n"
bad 'completion before the beginning' 3 '7 us ago is before the trace began' "${h}d 0 7 1\n"
bad 'completion that goes back' 4 '3 us ago is before what was complete already' \
  "${h}d 0 1 1\nd 0 3 1\n"

bad 'a range of a block' 3 'id 1 is no buffer' "${h}c 1 0 0 0 0\n"
b="gmtrace 2\nb 1 5000000 2097152 0\n"
bad 'a use of a buffer' 3 'id 1 is a buffer' "${b}u 1 0 0\n"
bad 'a buffer twice' 3 'id 1 is already live' "${b}a 1 5 0 0\n"
bad 'a range behind the end' 3 'the buffer has no range of 2097152 bytes at 6291456' \
  "${b}c 1 6291456 2097152 0 0\n"
bad 'a range that is too long' 3 'the buffer has no range of 6291456 bytes at 2097152' \
  "${b}c 1 2097152 6291456 0 0\n"
bad 'a part of a chunk' 3 'the buffer has no range of 512 bytes at 0' "${b}x 1 0 512 0 0\n"
bad 'an odd chunk' 2 'the chunk is 2097153: ' "gmtrace 2\nb 1 512 2097153 0\n"
bad 'a small chunk' 2 'the chunk is 1048576: ' "gmtrace 2\nb 1 512 1048576 0\n"
bad 'a large chunk' 2 'the chunk is too large' "gmtrace 2\nb 1 512 2147483648 0\n"
bad 'an empty buffer' 2 'the buffer has 0 or more' "gmtrace 2\nb 1 0 2097152 0\n"
bad 'a buffer that is too large' 2 'the buffer has 0 or more' \
  "gmtrace 2\nb 1 274877906945 2097152 0\n"

long=$(printf '%5000s' x)
bad 'long line' 3 'the line is too long' "${h}m $long\n"

bad 'labels out of order' 2 'labels count from 1 on' 'gmtrace 2\n# label: 2 x\na 1 5 0 0\n'
bad 'an unknown label' 4 "the label's number is too large" \
  'gmtrace 2\n# label: 1 x\na 1 5 0 0\n# of: 2 0 0\n'
bad 'a chunk of 0' 2 'the chunk is 0: ' 'gmtrace 2\nb 1 4194304 0 0\n'
bad 'a size with an exponent' 3 "the size is not a number: '1e18'" \
  'gmtrace 2\nb 1 4194304 2097152 0\nc 1 0 1e18 0 0\n'
