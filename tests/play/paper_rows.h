/* Rows of test_rows.c, as in rows.h, whose policy is the one of bench/policy_paper.h: BestFit's
   states after the GMLake paper's Figure 9 and Algorithm 1, the fragmentation limit in each of its
   readings, StitchFree, slabs, and what the authors' code does instead.

   In the drawings a chunk stands between two bars, live blocks are capitals, free ones small
   letters; chunks side by side with one letter are one pBlock. Sizes are in chunks. */
#if !defined(PLAY_PAPER_ROWS_H)
#define PLAY_PAPER_ROWS_H

static const row paper_rows[] = {
    /* ---- The five states ---- */

    /* S1, exact pBlock: ask 2
         before  | A | b   b | C | d   d   d |      pPool {d 3, b 2}
         after   | A | B   B | C | d   d   d |      pPool {d 3} */
    {"paper_s1_takes_an_exact_pblock", TOGETHER,
     "{granule:16 cap:8 smin:1 policy:8} +a=1 +b=2 +c=1 +d=3 -db mark +x=2 at:x=b state=1 "
     "stitches=0 reuses=0 grown=0 calls=0"},
    /* S1, exact sBlock: ask 2 after w was freed
         before  | a | B | c | D |                  pPool {a, c}   sPool {w = a c, idle}
         after   | W | B | W | D |                  pPool {}       sPool {w live} */
    {"paper_s1_takes_an_exact_sblock", TOGETHER,
     "{granule:16 cap:4 smin:1 policy:8} +a-d=1 -ac mark +w=2 state=3 stitches=1 reuses=0 grown=0 "
     "-w mark +x=2 at:x=w state=1 stitches=0 reuses=1 grown=0 calls=0"},
    /* S1 over both pools before S2: ask 2, 2
         before  | a | B | c | D | e   e | F | g   g   g |    sPool {w = a c}
         first   | a | B | c | D | E   E | F | g   g   g |
         second  | W | B | W | D | E   E | F | g   g   g | */
    {"paper_s1_comes_before_s2", TOGETHER,
     "{granule:16 cap:10 smin:1 policy:8} +a-d=1 +e=2 +f=1 +g=3 -ac +w=2 -weg mark +x=2 at:x=e "
     "state=1 stitches=0 reuses=0 calls=0 mark +y=2 at:y=w state=1 stitches=0 reuses=1 calls=0"},
    /* An sBlock of which one piece has been taken is active and cannot serve: ask 2
         before  | A | B | c | D |                  sPool {w = a c, active with A}
         after   | A | B | X | D | X |              sPool {w, x = c and a new chunk} */
    {"paper_s1_passes_an_active_sblock", TOGETHER,
     "{granule:16 cap:8 smin:1 policy:8} +a-d=1 -ac +w=2 -w +y=1 at:y=a mark +x=2 state=4 "
     "stitches=1 reuses=0 grown=1 off:x=w home:x0=c size:x0=1"},
    /* S2, the smallest larger pBlock, Split; the former block is kept as an sBlock: ask 1, then 2
         before  | a   a   a | B | c   c | D |      pPool {a 3, c 2}
         after   | a   a   a | B | E | c | D |      pPool {a 3, c 1}   sPool {w = e c, active}
         freed   | a   a   a | B | e | c | D |      pPool {a 3, e 1, c 1}   sPool {w}
         then    | a   a   a | B | W | W | D |      pPool {a 3}   sPool {w live} */
    {"paper_s2_splits_the_smallest_larger_pblock", TOGETHER,
     "{granule:16 cap:8 smin:1 policy:8} +a=3 +b=1 +c=2 +d=1 -ac mark +e=1 at:e=c state=2 "
     "stitches=1 reuses=0 splits=1 stitched=2 -e mark +w=2 state=1 stitches=0 reuses=1 calls=0 "
     "pieces:w=2 home:w0=c size:w0=1 home:w1=c+1"},
    /* S3, greedily in descending size, here exactly: ask 5
         before  | a | B | c   c | D | e   e   e | F |    pPool {e 3, c 2, a 1}
         after   | a | B | W   W | D | W   W   W | F |    pPool {a 1}   sPool {w = e c} */
    {"paper_s3_stitches_in_descending_size", TOGETHER,
     "{granule:16 cap:9 smin:1 policy:8} +a-b=1 +c=2 +d=1 +e=3 +f=1 -ace mark +w=5 state=3 "
     "stitches=1 reuses=0 grown=0 pieces:w=2 home:w0=e size:w0=3 home:w1=c size:w1=2 mark +x=1 "
     "at:x=a state=1 stitches=0 reuses=0 calls=0"},
    /* S3, Split of the last, equal sizes by address: ask 6
         before  | a   a | B | c   c   c | D | e   e | F |    pPool {c 3, a 2, e 2}
         after   | W   W | B | W   W   W | D | W | e | F |    pPool {e 1}   sPool {w = c a e} */
    {"paper_s3_splits_the_last", TOGETHER,
     "{granule:16 cap:10 smin:1 policy:8} +a=2 +b=1 +c=3 +d=1 +e=2 +f=1 -ace mark +w=6 state=3 "
     "stitches=1 reuses=0 grown=0 pieces:w=3 home:w0=c size:w0=3 home:w1=a size:w1=2 home:w2=e "
     "size:w2=1 mark +x=1 at:x=e+1 state=1 stitches=0 reuses=0 calls=0"},
    /* S4, Alloc of the shortfall, Stitch of all: ask 5
         before  | a | B | c   c | D |              pPool {c 2, a 1}
         after   | W | B | W   W | D | W   W |      sPool {w = c a and 2 new chunks} */
    {"paper_s4_creates_the_shortfall", TOGETHER,
     "{granule:16 cap:8 smin:1 policy:8} +a-b=1 +c=2 +d=1 -ac mark +w=5 state=4 stitches=1 "
     "reuses=0 "
     "grown=2 pieces:w=3 home:w0=c size:w0=2 home:w1=a size:w1=1 home:w2=d+1 size:w2=2"},
    /* S4 where the pPool is empty: a pBlock, no sBlock. Sizes are rounded up to chunks. */
    {"paper_s4_creates_all_where_nothing_is_free", TOGETHER,
     "{granule:16 cap:4 smin:1 policy:8} mark +a=2+1b state=4 stitches=0 reuses=0 grown=3 "
     "pieces:a=1 "
     "size:a0=3 -a mark +x=3 at:x=a state=1 stitches=0 reuses=0 calls=0"},
    /* S5: of a device of 4 chunks 2 are live: ask 3, then 2
         before  | a | B | c | D |
         after   |   | B |   | D |                  what is free was returned, in vain
         then    | E   E | B | D | in some order */
    {"paper_s5_is_out_of_memory", TOGETHER,
     "{granule:16 cap:4 smin:1 policy:8} +a-d=1 -ac mark +x=3!O state=5 told-asked=3 +e=2"},
    /* As the built-in policy's: no plan is asked for what no arena has addresses for. */
    {"paper_s5_whatever_the_size", TOGETHER,
     "{granule:16 cap:4 smin:1 policy:8} mark +x=33!O state=5 told-asked=33 mark "
     "+x=1099511627776b!O state=5 told-asked=1099511627776b mark +x=1099511627777b!O state=5 "
     "told-asked=1099511627777b mark +x=9223372036854775807b!O state=5 "
     "told-asked=9223372036854775807b mark +x=18446744073709551615b!O state=5 "
     "told-asked=18446744073709551615b"},
    {"paper_s5_whatever_the_size_within_a_limit", TOGETHER,
     "{granule:16 cap:4 smin:1 limit:2 policy:8} mark +x=33!O state=5 error!O mark "
     "+x=1099511627776b!O state=5 error!O mark +x=1099511627777b!O state=5 error!O mark "
     "+x=9223372036854775807b!O state=5 error!O mark +x=18446744073709551615b!O state=5 error!O"},
    /* Another stream's memory is no part of the pools before it has been waited for: ask 2 on B,
       where the device has no more
         | a   a |                                  freed on A, whose work is pending */
    {"paper_s5_waits_for_other_streams", TOGETHER,
     "{granule:16 cap:2 smin:1 policy:8} +a=2@A hA -a@A +b=2@B at:b=a host-waits=1"},

    /* ---- Update ---- */

    /* Neighbours that are free stay two pBlocks: ask 2
         before  | a | b | C |                      pPool {a 1, b 1}
         after   | W | W | C |                      sPool {w = a b} */
    {"paper_freed_blocks_do_not_coalesce", TOGETHER,
     "{granule:16 cap:4 smin:1 policy:8} +a-c=1 -ab mark +w=2 state=3 stitches=1 reuses=0 grown=0 "
     "pieces:w=2"},
    /* The same if they coalesce: S1. */
    {"paper_freed_blocks_coalesce_if_asked", TOGETHER,
     "{granule:16 cap:4 smin:1 policy:8} paper:c +a-c=1 -ab mark +x=2 at:x=a state=1 stitches=0 "
     "reuses=0 calls=0"},
    /* The same sizes again and again: what was stitched or split once is met again as it is. */
    {"paper_programs_that_repeat_themselves_converge", TOGETHER,
     "{granule:16 cap:32 smin:1 policy:8} [2 +a=3 +b=1 +c=2 +d=1 +e=4 +f=2 -ace +g=7 -gbdf ] "
     "[4 mark +a=3 state=1 mark +b=1 state=1 mark +c=2 state=1 mark +d=1 state=1 mark +e=4 "
     "state=1 mark +f=2 calls=0 state=1 -ace mark +g=7 calls=0 state=1 -gbdf calls=0 ]"},

    /* ---- The fragmentation limit ---- */

    /* Limit 4 of what is asked for: 3 is not stitched, 4 is
         before  | a | B | c   c | D |
         ask 3   | a | B | c   c | D | E   E   E |
         ask 4   | W | B | W   W | D | E   E   E | W | */
    {"paper_limit_of_requests", TOGETHER,
     "{granule:16 cap:24 smin:1 policy:8} paper:L4,R0 +a-b=1 +c=2 +d=1 -ac mark +e=3 state=4 "
     "stitches=0 reuses=0 grown=3 mark +w=4 state=4 stitches=1 reuses=0 grown=1 pieces:w=3"},
    /* Limit 4 of what is asked for: 3 splits a larger pBlock, but keeps no sBlock of it
         before  | a   a   a   a   a | B |
         ask 3   | E   E   E | a   a | B | */
    {"paper_limit_of_requests_splits", TOGETHER,
     "{granule:16 cap:24 smin:1 policy:8} paper:L4,R0 +a=5 +b=1 -a mark +x=3 at:x=a state=2 "
     "stitches=0 reuses=0 grown=0"},
    /* Limit 4 of what is asked for, strictly: 3 splits nothing, 4 does
         before  | a   a   a   a   a | B |
         ask 3   | a   a   a   a   a | B | E   E   E |
         ask 4   | F   F   F   F | a | B | E   E   E | */
    {"paper_limit_of_requests_strictly", TOGETHER,
     "{granule:16 cap:24 smin:1 policy:8} paper:L4,R1 +a=5 +b=1 -a mark +e=3 state=4 stitches=0 "
     "reuses=0 grown=3 mark +f=4 at:f=a state=2 stitches=1 reuses=0 grown=0"},
    /* Limit 4 of what is free: a is split for nobody, but serves its own size; c is stitched alone
         before  | a   a   a | B | c   c   c   c | D |
         ask 6   | a   a   a | B | W   W   W   W | D | W   W |
         ask 2   | a   a   a | B | W   W   W   W | D | W   W | E   E |
         ask 3   | A   A   A | ... */
    {"paper_limit_of_blocks", TOGETHER,
     "{granule:16 cap:24 smin:1 policy:8} paper:L4,R2 +a=3 +b=1 +c=4 +d=1 -ac mark +w=6 state=4 "
     "stitches=1 reuses=0 grown=2 home:w0=c size:w0=4 mark +e=2 state=4 stitches=0 reuses=0 "
     "grown=2 mark +x=3 at:x=a state=1 stitches=0 reuses=0 calls=0"},
    /* Limit 4 of what is free: what is large enough is split, also into less; then no sBlock is
       kept
         before  | a   a   a   a   a   a   a   a   a | B |
         ask 4   | E   E   E   E | a   a   a   a   a | B |     sPool {w = e a, active}
         ask 3   | E   E   E   E | F   F   F | a   a | B | */
    {"paper_limit_of_blocks_splits_what_is_larger", TOGETHER,
     "{granule:16 cap:24 smin:1 policy:8} paper:L4,R2 +a=9 +b=1 -a mark +e=4 at:e=a state=2 "
     "stitches=1 reuses=0 grown=0 mark +f=3 at:f=a+4 state=2 stitches=0 reuses=0 grown=0"},
    /* Limit 4 of what is free, handed out whole: ask 2
         before  | a   a   a | B |
         after   | A   A   A | B |                  3 chunks for a request of 2 */
    {"paper_limit_of_blocks_hands_out_whole", TOGETHER,
     "{granule:16 cap:24 smin:1 policy:8} paper:L4,R3 +a=3 +b=1 -a mark +x=2 at:x=a state=2 "
     "stitches=0 reuses=0 grown=0 splits=0 size:x0=3"},

    /* ---- StitchFree ---- */

    /* Threshold 6 on the sPool: ask 2 and 3, free both, 2 again: v was used last. Ask 4:
         before  | a | B | c | D | e | F | g | H | i |    sPool {v = a c, w = e g i}
         after   | X | B | X | D | X | F | X | H | i |    sPool {v active, x live}, w dropped */
    {"paper_stitchfree_drops_the_one_longest_unused", TOGETHER,
     "{granule:16 cap:12 smin:1 policy:8} paper:M6 +a-i=1 -acegi +v=2 +w=3 -vw mark +y=2 at:y=v "
     "state=1 reuses=1 calls=0 -y stitched=5 mark +x=4 state=3 stitches=1 evictions=1 stitched=6 "
     "-x mark +y=2 at:y=v state=1 reuses=1 calls=0 mark +w=3 state=3 stitches=1 reuses=0"},
    /* Live windows stay, and so do those that work may still use, whatever the threshold. */
    {"paper_stitchfree_spares_what_is_in_use", TOGETHER,
     "{granule:16 cap:8 smin:1 policy:8} paper:M1 +a-f=1 -ac@A +v=2@A hA -v@A -e mark +w=3 "
     "evictions=0 windows=2"},

    /* ---- Slabs ---- */

    /* Below a chunk: best fit inside one, holes that touch are one
         | A 10K, B 10K, C 44K |,   then | a, b, C |, ask 20K: | D 20K, C 44K |
       A slab that is all free is a pBlock. The policy is asked for the first time about what may be
       stitched: one call reserves addresses. */
    {"paper_small_requests_share_a_slab", TOGETHER,
     "{granule:16 cap:4 smin:1 policy:8} +a=10k chunks=1 mark +b=10k at:b=a+10k state=2 stitches=0 "
     "reuses=0 grown=0 mark +c=44k state=1 calls=0 -ba mark +d=20k at:d=a state=1 calls=0 -dc "
     "mark +e=1 at:e=a state=1 stitches=0 reuses=0 calls=1"},
    /* The smallest hole of a slab, not a pBlock; where no hole will do, the smallest pBlock's
       front; a slab's free part does not grow into the pBlock beside it, whose size stays
         | A 4K, b 12K, C 48K | d | E | f   f   f | G |
         ask 8K   in b;   ask 20K   in d;   then 3   is f;   E freed, then 1   is e */
    {"paper_slabs_spare_pblocks", TOGETHER,
     "{granule:16 cap:12 smin:1 policy:8} +a=4k +b=12k +c=48k +d-e=1 +f=3 +g=1 -bdf +x=8k at:x=b "
     "+y=20k at:y=d mark +z=3 at:z=f state=1 stitches=0 calls=0 -e mark +v=1 at:v=e state=1 "
     "stitches=0 calls=0"},
    /* A slab cut off a larger pBlock leaves the rest of it a pBlock, which can be split in turn:
       ask 1K, 1 and 1
         before  | a   a   a | B |
         after   | C 1K, hole | D | E | B | */
    {"paper_a_slab_is_cut_off_a_pblock", TOGETHER,
     "{granule:16 cap:4 smin:1 policy:8} +a=3 +b=1 -a mark +c=1k at:c=a state=2 stitches=0 "
     "reuses=0 "
     "grown=0 mark +d=1 at:d=a+1 state=2 stitches=0 reuses=0 grown=0 mark +e=1 at:e=a+2 state=1 "
     "stitches=0 calls=0"},

    /* ---- Options ---- */

    /* | a | B | c | D |: pinned memory of 2 is created; a small EXCLUSIVE block has a chunk of its
       own; alignment holds inside slabs; memory that may not grow is stitched or refused. */
    {"paper_options_of_requests", TOGETHER,
     "{granule:16 cap:8 smin:1 policy:8} +a-d=1 -ac +x=2/s pieces:x=1 -x +x=1k/x at:x=a +y=1k "
     "at:y=c "
     "+z=1k/^8k at:z=y+8k -x +x=3/g pieces:x=2 +v=1/g!O"},

    /* ---- What the authors' code does instead ---- */

    /* A larger pBlock goes before an exact sBlock: ask 2
         before  | a | B | c | D | e   e   e |      sPool {w = a c}
         after   | a | B | c | D | F   F | e |      pPool {a 1, c 1, e 1} */
    {"paper_a_larger_pblock_may_go_first", TOGETHER,
     "{granule:16 cap:8 smin:1 policy:8} paper:b,s +a-d=1 +e=3 -ac +w=2 -we mark +x=2 at:x=e "
     "state=2 "
     "stitches=0 reuses=0 grown=0"},
    /* S4 creates all of the request: ask 3
         before  | a | B | c | D |
         after   | a | B | c | D | E   E   E | */
    {"paper_all_of_a_request_may_be_created", TOGETHER,
     "{granule:16 cap:8 smin:1 policy:8} paper:w +a-d=1 -ac mark +e=3 state=4 stitches=0 reuses=0 "
     "grown=3"},
    /* Stitching only where nothing can be created: ask 2 and 2 on a device of 6
         before  | a | B | c | D |
         first   | a | B | c | D | E   E |
         second  | W | B | W | D | E   E | */
    {"paper_stitching_may_come_late", TOGETHER,
     "{granule:16 cap:6 smin:1 policy:8} paper:l +a-d=1 -ac mark +e=2 state=4 stitches=0 reuses=0 "
     "grown=2 mark +w=2 state=3 stitches=1 reuses=0 grown=0"},
    /* An sBlock of up to so much of the request, whole: ask 2
         before  | a | B | c | D | e | F |          sPool {w = a c e}
         after   | W | B | W | D | W | F | */
    {"paper_a_larger_sblock_may_be_reused", TOGETHER,
     "{granule:16 cap:8 smin:1 policy:8} paper:P150 +a-f=1 -ace +w=3 -w mark +x=2 at:x=w state=1 "
     "stitches=0 reuses=1 calls=0 active=6 requested=5"},
};
#define PAPER_ROWS (sizeof(paper_rows) / sizeof(paper_rows[0]))

#endif /* PLAY_PAPER_ROWS_H */
