/* Rows of test_rows.c: sizes, alignments and limits, the last ones that are taken and the first
   that are refused, and calls that come twice or too late. As in rows.h sizes are in chunks. */
#if !defined(PLAY_MISUSE_ROWS_H)
#define PLAY_MISUSE_ROWS_H

#include "rows.h"

#define LAST "18446744073709551615b" /* SIZE_MAX */
#define HALF "9223372036854775808b"
#define NEAR_LAST "18446744073709486081b" /* rounds past the end by chunks of 64 KiB */

/* A range that neither commit nor discard takes of a buffer of 3 chunks and 5 bytes, and why. */
#define REFUSED(range, why)                                                       \
  {                                                                               \
    "neither_committed_nor_discarded:" range, BOTH,                               \
        "{granule:16 cap:16} N0:3+5b c0:0,1 c0:2,1 note c0:" range "!I says:" why \
        " told-by:gmlake_buffer_commit d0:" range "!I says:" why                  \
        " told-by:gmlake_buffer_discard map:0=m.m same"                           \
  }
#define RANGE(offset, bytes)              \
  "offset_is_" offset "_and_bytes_" bytes \
  ":_pass_multiples_of_the_buffer's_chunk_bytes,_65536,_that_end_at_its_max_bytes,_196613"

static const row misuse_rows[] = {
    /* ---- Sizes and alignments ---- */

    {"sizes_are_whole_grains", TOGETHER,
     "{granule:16 cap:20} +a=0b live=0 +a=1b +b=511b +c=512b +d=513b +e=1-1b +f=1 +g=1+1b "
     "size:a0=512b size:b0=512b size:c0=512b size:d0=1k size:e0=1 size:f0=1 size:g0=1+512b "
     "requested=3+1537b -a-g"},
    {"exclusive_sizes_are_whole_chunks", TOGETHER,
     "{granule:16 cap:20} +a=1b/x +b=1+1b/x size:a0=1 size:b0=2 -ab +c=1b/xsg^1 size:c0=1 -c"},
    /* Each is an attempt; nothing is left of it. */
    {"more_than_there_is_is_refused", TOGETHER,
     "{granule:16 cap:20} +a=20+1b!O +a=1125899906842624b!O +a=" HALF "!O +a=" LAST "!O "
     "+a=18446744073709551105b!O +a=18446744073709551104b!O +a=2199023255552b!O "
     "+a=2199023255040b!O +a=2199023256064b!O failures=9 live=0 reserved=0 quarantined=0"},
    {"more_exclusive_than_there_is_is_refused", TOGETHER,
     "{granule:16 cap:20} +a=" NEAR_LAST "/x!O +a=" LAST "/x!O +a=" HALF "/x!O "
     "+a=1125899906842624b/x!O +a=2199023255552b/x!O failures=5 reserved=0"},
    {"more_in_one_piece_than_there_is_is_refused", TOGETHER,
     "{granule:16 cap:20} +a=" LAST "/s!O +a=" LAST "/^1!O +a=" HALF "/s^1!O "
     "+a=2199023255552b/s^1!O failures=4 reserved=0"},
    /* What is there meanwhile stays. */
    {"too_much_is_refused_beside_live_blocks", TOGETHER,
     "{granule:16 cap:20} +z.3=8@n -z.3@n +a-e=1 -bd +w=2 -w +i=3 -i hB +p=1 rp@B -p mark "
     "+x=" LAST "!O +x=" NEAR_LAST "/x!O live=3 quarantined=0 holds:a=1 holds:c=1 holds:e=1 -ace"},
    {"an_alignment_is_a_power_of_two_up_to_a_chunk", TOGETHER,
     "{granule:16 cap:20} +a=1b/^1b +b=1b/^256b +c=1b/^1 size:c0=512b -a-c mark +d=1b/^3b!I "
     "+d=1b/^511b!I +d=1b/^513b!I +d=1b/^1-1b!I +d=1b/^2!I +d=1b/^" HALF "!I +d=1b/^" LAST
     "!I failures=0 live=0 calls=0"},

    {"a_pools_chunk_is_a_power_of_two_up_to_the_device", TOGETHER,
     "{granule:16 cap:20} +a=1 note P0^1b!I P0^32k!I P0^1-1b!I P0^1+1b!I P0^3!I says:chunk_bytes_is"
     "_196608:_it_has_to_be_a_power_of_two_from_65536_to_1310720,_or_0 P0^32!I P0^" HALF
     "!I P0^" LAST "!I same"},
    {"a_buffers_chunk_is_a_power_of_two_up_to_the_device", TOGETHER,
     "{granule:16 cap:20} +a=1 note N0:1^1b!I says:chunk_bytes_is_1:_it_has_to_be_a_power_of_two "
     "N0:1^32k!I N0:1^1-1b!I N0:2^1+1b!I N0:3^3!I N0:32^32!I N0:" LAST "^" LAST "!I same"},

    /* What rounding adds to an exclusive block stands in 32 bits, so chunks end at 1 GiB. */
    {"chunks_of_pools_and_buffers_are_at_most_a_gibibyte", TOGETHER,
     "{granule:16 cap:1048576 books} P0^32768!I told-by:gmlake_pool_create N0:65536^32768!I "
     "told-by:gmlake_buffer_create P0^16384 +a=1b/0 reserved=16384 -a N0:65536^16384 z0:16384+1b "
     "map:0=mm reserved=49152"},
    /* Small chunks on a large device: more windows' address space than 32 bits of chunks. */
    {"window_space_fits_its_records", TOGETHER, "{granule:1 cap:134217728 books} +a=1 -a"},

    {"a_buffer_has_the_chunks_of_its_size", BOTH,
     "{granule:16 cap:16} N0:1b^1 z0:1b map:0=m z0:2b!I K0 N0:1-1b^1 z0:1-1b map:0=m z0:1!I K0 "
     "N0:1+1b^1 z0:1 map:0=m z0:1+1b map:0=mm z0:1+2b!I K0 N0:3^1 z0:0 map:0= z0:3-1b map:0=mmm "
     "z0:2+1b map:0=mmm z0:3 z0:3+1b!I"},
    {"the_last_chunk_of_a_buffer_may_end_at_max_bytes", BOTH,
     "{granule:16 cap:16} N0:3+5b c0:2,1+5b map:0=..mm end:0=3+5b requested=1+5b d0:3,5b map:0=..m "
     "c0:3,5b map:0=..mm d0:0,3+5b requested=0 map:0="},
    REFUSED("1b,1", RANGE("1", "65536")),
    REFUSED("512b,1", RANGE("512", "65536")),
    REFUSED(HALF "," HALF, RANGE("9223372036854775808", "9223372036854775808")),
    REFUSED("4,0", RANGE("262144", "0")),
    REFUSED(LAST "," LAST, RANGE("18446744073709551615", "18446744073709551615")),
    REFUSED("0,1b", RANGE("0", "1")),
    REFUSED("0,1-1b", RANGE("0", "65535")),
    REFUSED("0,1+1b", RANGE("0", "65537")),
    REFUSED("1,3", RANGE("65536", "196608")),
    REFUSED("3,4b", RANGE("196608", "4")),
    REFUSED("1," LAST, RANGE("65536", "18446744073709551615")),
    REFUSED("1,18446744073709486080b", RANGE("65536", "18446744073709486080")),

    /* ---- Limits: a chunk is whole or not there ---- */

    {"a_limit_is_reached", TOGETHER,
     "{granule:16 cap:20 limit:4} +a=4 -a +a=4-1b -a +a=4+1b!L told-asked=4+1b live=0 +a=4 "
     "-a"},
    {"a_limit_of_less_than_4_chunks_is_3", TOGETHER,
     "{granule:16 cap:20 limit:4-1b} +a=4-1b!L told-asked=4-1b +a=3 -a +a=3 reserved=3"},
    {"a_limit_of_more_than_4_chunks_is_4", TOGETHER,
     "{granule:16 cap:20 limit:4+1b} +a=4 -a +a=4+1b!L +a=4 reserved=4"},
    {"a_limit_of_a_byte_is_none_at_all", TOGETHER,
     "{granule:16 cap:20 limit:1b} +a=1b!L reserved=0"},
    {"a_limit_of_less_than_a_chunk_is_none_at_all", TOGETHER,
     "{granule:16 cap:20 limit:1-1b} +a=1b!L reserved=0"},
    {"a_limit_of_a_chunk", TOGETHER, "{granule:16 cap:20 limit:1} +a=1b reserved=1 -a"},
    {"a_limit_beyond_the_device", TOGETHER,
     "{granule:16 cap:20 limit:" LAST "} +a=20 -a +a=20+1b!O"},
    {"a_pools_limit", TOGETHER,
     "{granule:16 cap:20} P0:2 +a=1/0 +b=1/0 -b +b=1+1b/0!L +b=" NEAR_LAST "/0x!O +b=1/0 -ab"},
    {"what_the_driver_has_to_keep", TOGETHER, "{granule:16 cap:4 keep:1+1b} +a=2 -a +a=2+1b!L"},
    {"the_driver_keeps_everything", TOGETHER,
     "{granule:16 cap:4 keep:" LAST "} +a=1b!L reserved=0"},
    {"a_trim_returns_whole_chunks", TOGETHER,
     "{granule:16 cap:4} +a=3 -a T:" LAST " released=0 T:3 released=0 T:3-1b released=1 T:2 "
     "released=0"},

    /* ---- What finds errors of the program's: the judge looks at what is filled ---- */

    {"blocks_are_filled_when_handed_out_and_when_freed", TOGETHER,
     "{granule:16 cap:16 fill} +z.3=2@n -z.3@n +a=1+100b -a +b=512b at:b=a -b"},
    {"windows_are_filled_in_all_their_pieces", TOGETHER,
     "{granule:16 cap:16 fill} +z.3=5@n -z.3@n +a-e=1 -bd +w=2 pieces:w=2 -w holds:c=1"},
    {"chunks_of_buffers_are_filled", BOTH,
     "{granule:16 cap:16 fill} N0:3 N1:3 z0:2 z0:1 z0:2 N2:8 c2:0,3 d2:1,1 c2:0,3"},

    /* ---- Twice, and too late ---- */

    {"a_pool_with_live_blocks_stays", TOGETHER,
     "{granule:16 cap:4} P0 +a=1/0 D0!I "
     "says:1_blocks_and_0_buffers_of_the_pool_are_live:_free_them live=1 "
     "reserved=1 holds:a=1 -a D0"},
    {"what_is_gone_is_no_block", TOGETHER,
     "{granule:16 cap:4} P0 +a=1/0 -a -a!D D0 +b=1 -b -b!D T:0 -b!U +c=1 -a!U holds:c=1"},
    /* A stream that is recorded twice, or the block's own, waits once. */
    {"what_is_said_twice_is_true_once", TOGETHER,
     "{granule:16 cap:4} P0 +a=1 hB ua@B ra@B ra@B ra pending=0 -a pending=1 -a!D fB BC:0/0 EC "
     "EC!I "
     "BC:0/1 EC reset-peaks reset-peaks"},
};

#define MISUSE_ROWS (sizeof(misuse_rows) / sizeof(misuse_rows[0]))

#endif /* PLAY_MISUSE_ROWS_H */
