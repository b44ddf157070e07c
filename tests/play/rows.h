/* The rows of test_rows.c. Small letters are blocks, capital ones streams; sizes are in chunks of
   64 KiB. Where it is said, a row is played a second time so that buffers lie apart from blocks:
   with blocks that have chunks of two, or with buffers that have. */
#if !defined(PLAY_ROWS_H)
#define PLAY_ROWS_H

enum { TOGETHER = 1, APART = 2, BOTH = TOGETHER | APART, WIDE = 4 };

typedef struct row {
  const char *name;
  int how; /* buffers lie */
  const char *line;
} row;

/* Streams A and B are known. */
#define KNOWN "+z.3=512b@B -z.3@B +z.3=512b@A -z.3@A "

static const row rows[] = {
    /* ---- BestFit, StitchFree, options of requests, growth, trim, limits ---- */

    /* BestFit, after the paper's Figure 9 */
    /* S1, exact pBlock: ask 2
         before  | A | b   b | C | d   d   d |      pPool {b 2, d 3}
         after   | A | B   B | C | d   d   d |      pPool {d 3} */
    {"s1_takes_an_exact_pblock", TOGETHER,
     "{granule:16 cap:8} +z.3=7@n -z.3@n +a=1 +b=2 +c=1 +d=3 -db mark +a.2=2 at:a.2=b state=1 "
     "splits=0 stitches=0 reuses=0 calls=0 -aa.2c"},
    /* S1, exact sBlock: ask 2 after w was freed
         before  | a | B | c | D |                  pPool {a, c}   sPool {w = a c, idle}
         after   | W | B | W | D |                  pPool {}       sPool {w live} */
    {"s1_takes_an_exact_sblock", TOGETHER,
     "{granule:16 cap:4} +z.3=4@n -z.3@n +a-d=1 -ac +w=2 -w mark +a.2=2 at:a.2=w state=1 "
     "splits=0 stitches=0 reuses=1 calls=0 -a.2bd"},
    /* S1 prefers a pBlock of the size to a window of it, and a window to a larger pBlock: ask 2, 2
         before  | a | B | c | D | e   e | F | g   g   g |    sPool {w = a c}
         first   | a | B | c | D | E   E | F | g   g   g |
         second  | W | B | W | D | E   E | F | g   g   g |
       (w is made while nothing else is free). */
    {"s1_prefers_pblock_then_sblock_then_s2", TOGETHER,
     "{granule:16 cap:12} +z.3=10@n -z.3@n +a-d=1 +e=2 +f=1 +g=3 -ac +w=2 -wge mark +a.2=2 "
     "at:a.2=e state=1 splits=0 stitches=0 reuses=0 mark +b.2=2 at:b.2=w state=1 splits=0 "
     "stitches=0 reuses=1 -b.2a.2bdf"},
    /* A window of which one piece has been taken cannot serve; when the piece is free again it can.
         | A | B | c | D |                          sPool {w = a c, blocked by A} */
    {"s1_skips_a_blocked_sblock", TOGETHER,
     "{granule:16 cap:4} +z.3=4@n -z.3@n +a-d=1 -ac +w=2 -w +a=1 +*=2!O reuses=0 -a mark +a.2=2 "
     "at:a.2=w state=1 splits=0 stitches=0 reuses=1 -a.2bd"},
    /* S4 without a window, where one range takes a single new chunk more: ask 2
         before  | a | B | . | .
         after   | a | B | D   D | */
    {"s4_spares_a_chunk_for_one_range", TOGETHER,
     "{granule:16 cap:4} +z.3=2@n -z.3@n +a-b=1 -a mark +d=2 state=4 splits=0 stitches=0 "
     "reuses=0 pieces:d=1 grown=2 -db"},
    /* The same where the device has no chunk to spare
         before  | a | B | .
         after   | D | B | D | */
    {"s4_stitches_where_there_is_none_to_spare", TOGETHER,
     "{granule:16 cap:3} +z.3=2@n -z.3@n +a-b=1 -a mark +d=2 state=4 splits=0 stitches=1 "
     "reuses=0 pieces:d=2 reserved=3 -db"},
    /* Two chunks have free tails of one length, one of them also has the only free head: the window
       takes the other one's tail, whichever chunk comes first. */
    {"a_windows_ends_are_of_two_chunks", TOGETHER,
     "{granule:16 cap:4} +a=32k +b=32k-2560b +x=2560b +c=1-2560b +y=2560b +d=2 -ayx "
     "+w=32k+2560b pieces:w=2 -wbcd"},
    /* S4 on an empty lake is plain growth, and costs one set_access. */
    {"s4_of_an_empty_lake_is_growth", TOGETHER,
     "{granule:16 cap:6} mark +a=5-1000b state=4 splits=1 stitches=0 reuses=0 chunks=5 calls=11 "
     "-a"},
    /* S2, one larger pBlock, the smallest that holds it: ask 1
         before  | a   a   a | B | c   c | D |      pPool {c 2, a 3}
         after   | a   a   a | B | E | c | D |      pPool {c 1, a 3} */
    {"s2_splits_the_best_larger_pblock", TOGETHER,
     "{granule:16 cap:8} +z.3=7@n -z.3@n +a=3 +b=1 +c=2 +d=1 -ac mark +e=1 at:e=c state=2 "
     "splits=1 stitches=0 reuses=0 calls=0 mark +f=1 at:f=c+1 state=1 splits=0 stitches=0 "
     "reuses=0 -efbd"},
    /* S2, small blocks that know only the arena's end lie side by side: a large one in between does
       not get the rest of their chunk, until the last of them is freed. */
    {"s2_keeps_small_blocks_together", TOGETHER,
     "{granule:16 cap:72} +x=31 mark +s=512b state=4 splits=1 reserved=32 +l=1-512b from:l=s+1k "
     "mark +t=2k at:t=s+512b state=2 splits=1 +u=2560b off:u=s+2560b -s +a.2=512b at:a.2=s "
     "+b.2=512b at:b.2=s+2560b -b.2 +c.2=8k at:c.2=s+2560b"},
    /* Where the arena can hardly grow, the last hole stays whole for a request of just its size. */
    {"s2_leaves_the_last_hole_whole", TOGETHER,
     "{granule:16 cap:63} +x=31 +s=512b reserved=32 +r=2-1k at:r=s+512b +t=512b at:t=r+2-1k "
     "+*=30 reserved=63"},
    /* In a pool, too: after a peak small blocks keep few chunks. */
    {"s2_keeps_small_blocks_of_a_pool_together", TOGETHER,
     "{granule:16 cap:1024} P0 [39 +*=512b/0 +*=1/0 ] +a-z=512b/0 [39 u* -* ] T:0 reserved=33"},
    /* What is set aside is free memory where memory is short: the judge sees what the query says,
       too. */
    {"s2_sets_nothing_aside_for_good", TOGETHER,
     "{granule:16 cap:64} +*=31 +s=512b +*=32/x mark +l=1-512b at:l=s+512b grown=0 stitches=0"},
    {"s2_sets_nothing_aside_from_who_may_not_grow", TOGETHER,
     "{granule:16 cap:64} +*=31 +s=512b +*=32/x +l=1-512b/g at:l=s+512b"},
    {"s2_sets_nothing_aside_for_the_budget", TOGETHER,
     "{granule:16 cap:72} +*=31 +s=512b Q idle=1-512b at-work=0"},
    {"s2_sets_nothing_aside_from_trim", TOGETHER,
     "{granule:16 cap:72} +*=32-1k +l=2 -l +s=512b at:s=l T:0 released=2"},
    {"s2_sets_nothing_aside_past_a_capture", TOGETHER,
     "{granule:16 cap:1024} P0 +a=31@A/0 BA:0/0 +b=1@A -b@A +s=512b@A at:s=b EA"},
    /* S3, several and Split of the last: ask 3
         before  | a | B | c | D | e   e | F |      pPool {a 1, c 1, e 2}
         after   | W | B | W | D | W | e | F |      pPool {e 1}   sPool {w = a c e} */
    {"s3_stitches_and_splits_the_last", TOGETHER,
     "{granule:16 cap:12} +z.3=7@n -z.3@n +a-d=1 +e=2 +f=1 -ace mark +w=3 state=3 splits=0 "
     "stitches=1 reuses=0 pieces:w=3 home:w0=a size:w0=1 home:w1=c size:w1=1 home:w2=e size:w2=1 "
     "stitched=3 mappings=10 mark +g=1 at:g=e+1 state=1 splits=0 stitches=0 reuses=0 -gwbdf"},
    /* S3, contents: what is written through the window lies at the pieces' homes, in order, and
       nowhere else. */
    {"s3_window_aliases_its_pieces", TOGETHER,
     "{granule:16 cap:5} +z.3=5@n -z.3@n +a-e=1 -ace +w=3 home:w0=a home:w1=c home:w2=e "
     "holds:w=1 holds:b=1 holds:d=1 -wbd"},
    /* S3, partial ends: the free tail of one chunk and the free head of another: ask 56K
         before  | A 24K, b 40K | C | d 16K, E 48K | F |
         after   | A 24K, W 40K | C | W 16K, E 48K | F | */
    {"s3_begins_in_a_tail_and_ends_in_a_head", TOGETHER,
     "{granule:16 cap:4} +z.3=4@n -z.3@n +a=24k +b=40k +c=1 +d=16k +e=48k +f=1 -bd mark +w=56k "
     "state=3 splits=0 stitches=1 reuses=0 pieces:w=2 home:w0=b size:w0=40k home:w1=d "
     "size:w1=16k stitched=2 holds:w=1 holds:a=1 holds:e=1 -wacef"},
    /* S3 with a whole chunk between the ends: ask 40K + 64K + 8K
         before  | A 24K, b 40K | C | d | E | f 16K, G 48K |
         after   | A 24K, W 40K | C | W | E | W 8K, f 8K, G 48K | */
    {"s3_puts_whole_chunks_between_its_ends", TOGETHER,
     "{granule:16 cap:5} +z.3=5@n -z.3@n +a=24k +b=40k +c-e=1 +f=16k +g=48k -bdf +w=112k "
     "pieces:w=3 home:w0=b size:w0=40k home:w1=d size:w1=1 home:w2=f size:w2=8k -waceg"},
    /* The last piece is the shortest free head that holds it: ask 64K + 10K
         | a | B | c 40K, D 24K | e 16K, F 48K | g 8K, H 56K |     the window ends in e */
    {"s3_ends_in_the_shortest_head_that_will_do", TOGETHER,
     "{granule:16 cap:5} +z.3=5@n -z.3@n +a-b=1 +c=40k +d=24k +e=16k +f=48k +g=8k +h=56k -aceg "
     "+w=74k pieces:w=2 home:w0=a size:w0=1 home:w1=e size:w1=10k -wbdfh"},
    /* A hole that touches no chunk's end is of no use to a window: ask 80K
         | A 8K, b 48K, C 8K | d | E |              48K + 64K free, 64K of them stitchable */
    {"s3_cannot_use_a_hole_inside_a_chunk", TOGETHER,
     "{granule:16 cap:3} +z.3=3@n -z.3@n +a=8k +b=48k +c=8k +d-e=1 -bd +*=80k!O told-free=112k "
     "told-stitchable=1 -ace"},
    /* S4, Alloc of the shortfall, then Stitch: ask 3
         before  | a | B | c | D | . | .            pPool {a 1, c 1}
         after   | W | B | W | D | W | .            sPool {w = a c and the new chunk} */
    {"s4_allocates_the_shortfall_and_stitches", TOGETHER,
     "{granule:16 cap:6} +z.3=4@n -z.3@n +a-d=1 -ac mark +w=3 state=4 splits=0 stitches=1 "
     "reuses=0 grown=1 chunks=5 pieces:w=3 holds:w=1 -wbd"},
    /* S4 without a window, where one range takes no more new chunks: ask 3
         before  | A | B | c | . | .
         after   | A | B | D   D   D | */
    {"s4_grows_contiguously_where_that_takes_no_more", TOGETHER,
     "{granule:16 cap:6} +z.3=3@n -z.3@n +a-c=1 -c mark +d=3 at:d=c pieces:d=1 grown=2 "
     "stitches=0 state=4 -abd"},
    /* S5, out of memory: ask 3 of a device of 5
         | a | B | c | D | E |                      and the report has the figures */
    {"s5_reports_the_figures", TOGETHER,
     "{granule:16 cap:5} +z.3=5@n -z.3@n +a-e=1 -ac mark +*=3-1b!O state=5 splits=0 stitches=0 "
     "reuses=0 failures=1 told-asked=3-1b told-live=3 told-free=2 told-stitchable=2 "
     "told-pending=0 told-reserved=5 told-limit=0 told-driver-free=0 -bde"},
    /* StitchFree */
    /* Past 8 chunks the oldest go until 6 are left: of {2, 3} and the new 4 both go. */
    {"stitch_free_evicts_down_to_the_low_water_mark", TOGETHER,
     "{granule:16 cap:8 smax:8} +z.3=8@n -z.3@n +a-h=1 -aceg +z.3=2 -z.3 +z.3=3 -z.3 "
     "evictions=0 stitched=5 +w=4 evictions=2 stitched=4 windows=1 stitched-peak=9 mappings=12 "
     "-w"},
    /* The same, but 2 was used after 3: only 3 goes, and 2 still serves without a driver call. */
    {"stitch_free_evicts_the_least_recently_used", TOGETHER,
     "{granule:16 cap:8 smax:8} +z.3=8@n -z.3@n +a-h=1 -aceg +z.3=2 -z.3 +z.3=3 -z.3 +z.3=2 "
     "-z.3 +z.3=4 -z.3 evictions=1 stitched=6 mark +z.3=2 -z.3 state=1 splits=0 stitches=0 "
     "reuses=1 calls=0"},
    {"stitch_free_leaves_live_windows", TOGETHER,
     "{granule:16 cap:8 smax:1} +z.3=8@n -z.3@n +a-h=1 -aceg +w=4 stitched=4 evictions=0 -w"},
    /* "on all windows": a pool's count too. */
    {"stitch_free_counts_every_pool", TOGETHER,
     "{granule:16 cap:16 smax:3} P0 +z.3=8@n -z.3@n +a-h=1 -aceg +z.3=2 -z.3 +i-l=1/0 -ik "
     "+w=2/0 stitches=2 stitched=2 -wjl D0"},
    {"small_requests_are_not_stitched", TOGETHER,
     "{granule:16 cap:8 smin:2+1b} +z.3=4@n -z.3@n +a-d=1 -ac +p=2 pieces:p=1 stitches=0 "
     "reserved=6 -p +a=2 +p=2+512b stitches=1 -pabd"},
    /* Two chunks of window space: a third window has to grow, not stitch. */
    {"without_window_space_left_the_lake_grows", TOGETHER,
     "{granule:16 cap:12 window:2} +z.3=8@n -z.3@n +a-h=1 -aceg +v-w=2 pieces:v=2 pieces:w=1 "
     "reserved=10 -vw"},
    /* Until a fourth window is made. */
    {"stitch_free_leaves_windows_of_pending_work", TOGETHER,
     "{granule:16 cap:8 smax:8} +z.3=8@n -z.3@n +a-h=1 -aceg h0 +z.3=2 -z.3 +z.3=3 -z.3 +z.3=4 "
     "-z.3 evictions=0 stitched=9 driver-host-waits=0 e0 +z.3=3+512b -z.3 evictions=3 stitched=4 "
     "-bdfh"},
    /* Options of a request */
    /* | A 24K, b 40K | c | D | e | F |: an exclusive window is made of c and e alone, the one in
       the smaller hole first. */
    {"exclusive_windows_are_of_whole_chunks", TOGETHER,
     "{granule:16 cap:5} +z.3=5@n -z.3@n +a=24k +b=40k +c-f=1 -bce +x=1+1b/x pieces:x=2 "
     "home:x0=e size:x0=1 home:x1=c size:x1=1 -xadf"},
    /* A window for others of the same size begins inside a chunk: it is not for EXCLUSIVE. */
    {"exclusive_does_not_reuse_a_partial_window", TOGETHER,
     "{granule:16 cap:6} +z.3=4@n -z.3@n +a=24k +b=40k +c=1 +d=24k +e=1+40k -bd +w=1 pieces:w=2 "
     "-w +x=1/x pieces:x=1 -xace"},
    {"no_grow_takes_only_what_is_held", TOGETHER,
     "{granule:16 cap:8} +*=1/g!O reserved=0 +z.3=1@n -z.3@n +z.3=1/g -z.3 +*=1+1b/g!O "
     "reserved=1"},
    /* All addresses for windows are an idle window's, whose memory would do. No window is
       dropped for memory that is not there. In the end there are no addresses and nothing to
       drop, nor anything to trim for. */
    {"no_grow_drops_windows_for_their_addresses", TOGETHER,
     "{granule:16 cap:8 window:3} +z.3=8@n -z.3@n +a-h=1 -bdf +z.3=3 -z.3 +*=4/g!O windows=1 "
     "+w=2/g pieces:w=2 windows=1 -h +*=2/g!O reserved=8 -waceg"},
    /* | A 24.5K, b 39.5K | C | d 16K, E 48K |: a window aligned to 4K begins at 28K. For a whole
       chunk of alignment no window that begins in a tail will do. */
    {"alignment_of_a_window_is_its_first_piece", TOGETHER,
     "{granule:16 cap:3} +z.3=3@n -z.3@n +a=25088b +b=40448b +c=1 +d=16k +e=48k -bd +w=50k/^4k "
     "pieces:w=2 home:w0=a+28k size:w0=36k home:w1=d size:w1=14k -w +*=40k/^1!O -ace"},
    /* A window that begins at 24K of its chunk is not for who asks for more than 8K of
       alignment. */
    {"alignment_is_kept_by_reused_windows", TOGETHER,
     "{granule:16 cap:5} +z.3=3@n -z.3@n +a=24k +b=40k +c=1 +d=16k +e=48k -bd +w=56k -w "
     "+a.2=56k/^8k at:a.2=w -a.2 +p=56k/^16k off:p=w -pace"},
    {"no_stitch_takes_one_piece", TOGETHER,
     "{granule:16 cap:8} +z.3=4@n -z.3@n +a-d=1 -ac +p=2/s pieces:p=1 home:p=p stitches=0 "
     "reserved=6 -pbd"},
    /* Nobody else is in it. */
    {"exclusive_owns_whole_chunks", TOGETHER,
     "{granule:16 cap:8} +z.3=3@n -z.3@n +a=24k +x=10k/x at:x=a+1 holds:x=1 +y=20k active=1+44k "
     "requested=54k -axy"},
    {"alignment_is_kept", TOGETHER,
     "{granule:16 cap:8} +*=512b +*=3000b/^1b +*=3000b/^4b +*=3000b/^16b +*=3000b/^64b "
     "+*=3000b/^256b +*=3000b/^1k +*=3000b/^4k +*=3000b/^16k [3 +*=3000b/^1 ]"},
    /* Growth, trim, limits, budget */
    /* | A | . | . | d | E |: a hole with free memory behind it takes fewer new chunks. */
    {"growth_uses_what_lies_beside_a_hole", TOGETHER,
     "{granule:16 cap:8} +z.3=5@n -z.3@n +a-e=1 -bc T:0 -d chunks=3 +p=3 at:p=b pieces:p=1 "
     "chunks=5 -pae"},
    /* The 16 longest runs that hold no chunk lie inside of chunks. One more look finds b, at the
       end of its chunk: with it a window lacks a chunk less, and there is no more than that. */
    {"growth_fills_what_one_more_look_leaves", TOGETHER,
     "{granule:16 cap:20} +z.3=19@n -z.3@n [17 +*=8k +*=48k +*=8k ] +a=32k +b=32k +c=1 -b "
     "-b.1e.1h.1k.1n.1q.1t.1w.1z.1c.2f.2i.2l.2o.2r.2u.2x.2 mark Q allocatable=1+32k q=1+32k "
     "foretold foretold-wait=0 foretold-new=1 +w=1+32k grown=1 pieces:w=2 home:w0=b"},
    /* | A | W | C | W | E | v | G | v |: of two idle windows the one over live blocks stays. */
    {"trim_tells_windows_apart", TOGETHER,
     "{granule:16 cap:8} +z.3=8@n -z.3@n +a-h=1 -bd +w=2 -fh +v=2 -w +a.2=1 at:a.2=b +b.2=1 "
     "at:b.2=d -v windows=2 T:0 released=2 windows=1 -a.2b.2 +c.2=2 at:c.2=w destroy"},
    {"trim_takes_nothing_pending_and_never_waits", TOGETHER,
     "{granule:16 cap:4} h0 +p=4 -p T:0 released=0 driver-host-waits=0 host-waits=0 e0 T:0 "
     "released=4 driver-host-waits=0"},
    {"the_lakes_limit_holds_for_all_pools", TOGETHER,
     "{granule:16 cap:16 limit:4} P0 +a=3 +*=2/0!L +b=1/0 -ab"},
    /* Only so many chunks of another arena go; the request's own has none to return. */
    {"other_arenas_return_what_a_request_lacks", TOGETHER,
     "{granule:16 cap:16 limit:7} P0 +a=2 +z.3=5/0 -z.3 inside:0=5 mark +b=2 inside:0=3 "
     "reserved=7 chunks=7 pieces:b=1 -ab"},
    /* | A | b | C |: what is free in the own arena stays there. */
    {"others_return_what_a_request_lacks_in_one_piece", TOGETHER,
     "{granule:16 cap:16 limit:8} P0 +z.3=3@n -z.3@n +a-c=1 -ac +z.3=5/0 -z.3 inside:0=5 +p=2/s "
     "inside:0=3 reserved=7 -bp"},
    {"memory_is_left_to_others", TOGETHER,
     "{granule:16 cap:6 keep:2} +*=4+1b!L +a=4 +*=512b!L told-driver-free=2 -a"},
    {"budget_ends_with_the_addresses", TOGETHER,
     "{granule:16 cap:16 arena:3} +z.3=1@n -z.3@n Q allocatable=3 +*=3 Q allocatable=0 +*=512b!O"},
    /* Just below works. */
    {"limit_is_reached_and_not_passed", TOGETHER,
     "{granule:16 cap:16 limit:4+32k} mark +*=4+1b!L state=5 told-limit=4+32k told-pool=0 "
     "told-driver-free=16 +a=4 mark +*=512b!L state=5 failures=2 -a +z.3=4 -z.3"},
    /* The limit that is told is the one in force. The lake itself has none. */
    {"pool_limits_are_reached", TOGETHER,
     "{granule:16 cap:16} P0:2 +*=2+1b/0!L told-limit=2 told-pool=1 +a=2/0 +*=512b/0!L +z.3=4 "
     "-z.3 -a"},
    {"budget_adds_up", TOGETHER,
     "{granule:16 cap:16 limit:10} +z.3=4@n -z.3@n +a-b=1 h0 -b Q reserved=4 idle=2 at-work=1 "
     "allocatable=9 driver-host-waits=0 e0 Q idle=3 at-work=0 -a"},
    /* The judge looks at the mode. */
    {"budget_leaves_the_thread_its_capture_mode", TOGETHER, "{granule:16 cap:4 mode:1} Q"},
    /* Where the lake's is in the way of the first request, too. */
    {"a_shortage_names_the_limit_that_counts", TOGETHER,
     "{granule:16 cap:16 limit:8} P0:2 +*=7 +*=3/0!L told-limit=2 +*=2/0!L told-limit=8 +*=1/0 "
     "+*=1!L told-limit=8"},
    {"a_shortage_of_who_may_not_grow_names_it_too", TOGETHER,
     "{granule:16 cap:16} P0:2 +*=1/0g!O told-limit=2 +*=1/g!O told-limit=0"},
    /* What the budget promises */
    /* A byte more than four chunks is no chunk. */
    {"budget_leaves_to_others_what_is_theirs", TOGETHER,
     "{granule:16 cap:16 keep:5-1b} +z.3=4@n -z.3@n Q allocatable=11"},
    {"budget_knows_what_is_quarantined", TOGETHER,
     "{granule:16 cap:16 arena:4} fail:access=1R fail:unmap=1R +*=1!R quarantined=1 Q "
     "allocatable=4 +z=4 -z reserved=4 quarantined=0"},
    /* Half of each chunk is free: a window takes one end of a chunk, and another one's beginning.
       */
    {"the_budget_counts_no_holes_that_cannot_be_joined", TOGETHER,
     "{granule:16 cap:5} +a-h=32k -aceg Q idle=2 allocatable=1+32k +z=1+32k -z Q "
     "allocatable=1+32k +*=2+32k!O"},
    /* ---- Pointers, errors of the driver, the end of a lake ---- */

    /* Descriptions */
    /* What an arena takes of addresses follows what it has: a unit of 64 chunks and one for its
       end, and what is larger has addresses of its own. */
    {"addresses_are_reserved_by_need", TOGETHER,
     "{granule:16 cap:4096 books} addresses=4609 P0 +a=1/0 addresses=4674 -a +a=500/0 "
     "addresses=5174 -a T:0 +a=900/0 -a D0 addresses=4609"},
    /* Behind those there are as many again as all before, but a slot between them. */
    {"addresses_double", TOGETHER,
     "{granule:16 cap:4096 books} P0 +a=65/0 addresses=4674 +b=1/0 addresses=4739 +c=65/0 "
     "addresses=4870"},
    /* Where the driver refuses 65 it is asked for a quarter, from then on, and for one at last. */
    {"addresses_that_are_refused_are_had_in_pieces", TOGETHER,
     "{granule:16 cap:4096 books} P1 addresses=4674 fail:reserve=1O P0 addresses=4690 +a=16/0 "
     "addresses=4690 +b=1/0 addresses=4706 mark fail:reserve=1O* P2!O all-calls=14"},
    /* The report says which limit was met. */
    {"a_lack_of_addresses_is_told", TOGETHER,
     "{granule:16 cap:16 arena:4} +a=3 +*=2!O says:arena_bytes_has_no_room_for_more"},
    {"a_refusal_is_told_behind_a_wait", TOGETHER,
     "{extent:2} Sn:d N3:2^1 K3@C fail:any=3I N1:10^1!R"},
    {"the_drivers_lack_of_addresses_is_told", TOGETHER,
     "{granule:16 cap:128} P0 fail:reserve=1O* +*=100/0!O "
     "says:the_driver_has_no_addresses_for_more warnings-told=1 +*=100/0!O warnings-told=1"},
    {"a_limit_is_told", TOGETHER,
     "{granule:16 cap:16 limit:4} +*=5!L "
     "says:limit_bytes_or_driver_free_bytes_min_forbids_to_create_more"},
    {"the_devices_lack_of_room_is_told", TOGETHER,
     "{granule:16 cap:4} +*=8!O says:the_device_has_no_room_for_more"},
    {"odd_address_space_is_rounded_down", TOGETHER,
     "{granule:16 cap:8 arena:9-1b window:5-1b} addresses=8 +a-g=1 -bd +w=2/g addresses=12"},
    /* Logger */
    /* It is told once. */
    {"without_window_space_the_lake_runs_unstitched", TOGETHER,
     "{granule:16 cap:8} fail:reserve=2O* +a-c=1 -ac mark +w=2 -w stitches=0 grown=1 "
     "warnings-told=1 -b destroy warnings-told=1"},
    {"a_quiet_lake_says_nothing", TOGETHER,
     "{granule:16 cap:4} +a=1 -a +*=5!O destroy errors-told=0 warnings-told=0"},
    {"a_lost_device_is_logged_once", TOGETHER,
     "{granule:16 cap:8} mark fail:any=1G* +*=1!G +*=1!G errors-told=1 warnings-told=0 "
     "told-code=1234 error!G fail:any=0R destroy!G"},
    /* Arguments */
    {"nothing_asked_is_nothing_given", TOGETHER, "{granule:16 cap:8} +a=0 handles=0 live=0"},
    /* The first is all bits, the others fit the numbers of grains, and leave no room for the
       chunks' ends. */
    {"a_request_too_large_for_any_arena_is_reported_in_full", TOGETHER,
     "{granule:16 cap:8} mark +*=18446744073709551615b!O told-asked=18446744073709551615b "
     "failures=1 state=5 +*=2199022993408b!O +*=2199022928384b!O +*=2199022927872b!O failures=4"},
    /* Pointers that are no live block's start */
    /* The second free of b is of a part of one free block with a. */
    {"double_frees_are_refused", TOGETHER,
     "{granule:16 cap:3} +z.3=3@n -z.3@n +a-c=1 -b -b!D -a -b!D -a!D -c"},
    /* a's home is not the window's start; the window is idle, then idle and blocked by a, then
       gone. */
    {"stale_windows_are_refused", TOGETHER,
     "{granule:16 cap:3} +z.3=3@n -z.3@n +a-c=1 -ac +w=2 -a!U -w -w!D +a=1 -w!D -ab T:0 "
     "released=3 -w!U -a!U"},
    /* Errors of the driver */
    {"growth_that_cannot_be_undone_is_quarantined", TOGETHER,
     "{granule:16 cap:8} fail:access=1R fail:unmap=1R +*=2!R quarantined=1 reserved=1 "
     "driver-bytes=1 +z.3=6 -z.3"},
    {"a_failed_create_is_a_driver_error", TOGETHER,
     "{granule:16 cap:8} fail:create=1R +a=1!R error!R says:the_backend's_function_failed "
     "told-code=1234 told-call=create failures=0 +a=1"},
    /* An argument that the backend refuses was the lake's, not the caller's. */
    {"a_refused_argument_is_a_driver_error", TOGETHER,
     "{granule:16 cap:8} mark fail:map=1I +a=1!R error!R driver-bytes=0 +a=1 -a"},
    {"failed_growth_is_undone", TOGETHER,
     "{granule:16 cap:8} mark fail:create=1R +*=4!R fail:create=2R +*=4!R fail:create=3R +*=4!R "
     "fail:create=4R +*=4!R fail:any=0R fail:map=1R +*=4!R fail:map=2R +*=4!R fail:map=3R +*=4!R "
     "fail:any=0R fail:map=4R +*=4!R fail:access=1R +*=4!R reserved=0 quarantined=0 handles=0 "
     "mappings=0 +a=4"},
    {"a_failed_stitch_is_undone", TOGETHER,
     "{granule:16 cap:3} +a-c=1 -ac fail:map=1R* +*=2!R windows=0 mappings=3 fail:map=0R "
     "fail:map=2R* +*=2!R windows=0 mappings=3 fail:map=0R fail:access=1R* +*=2!R windows=0 "
     "mappings=3 fail:map=0R +w=2 pieces:w=2 -wb"},
    /* But for a fatal one behind it. */
    {"of_errors_in_one_series_the_first_is_told", TOGETHER,
     "{granule:16 cap:8} mark fail:access=1R fail:unmap=1N +*=2!R told-call=access fail:map=1R "
     "fail:release=1G +*=2!G told-call=release destroy!G"},
    {"of_two_fatal_errors_the_first_is_told", TOGETHER,
     "{granule:16 cap:8} mark fail:map=1G fail:release=1G +*=2!G told-call=map destroy!G"},
    /* Not that the contents' memory could not be given back. */
    {"destroy_says_that_the_device_is_lost", TOGETHER,
     "{granule:16 cap:4} +a=2 Sn:k fail:create=1G Wn!G fail:host-free=1R destroy!G"},
    /* Addresses for windows may lack, but not because the device is gone. */
    {"a_device_that_is_lost_with_the_windows_addresses", TOGETHER,
     "{granule:16 cap:8} +a-h=1 -ac fail:reserve=1G +*=2!G destroy!G"},
    {"a_handle_that_stays_is_quarantined", TOGETHER,
     "{granule:16 cap:8} +a=2 -a fail:release=1R T:0!R quarantined=1 reserved=1 driver-bytes=1 "
     "fail:release=1R T:999!R quarantined=1 T:999 released=1 quarantined=0 reserved=0"},
    /* The memory is there: it need not be created. */
    {"what_is_quarantined_serves_again", TOGETHER,
     "{granule:16 cap:8} +a=2 -a fail:release=1R T:0!R quarantined=1 +a=6 quarantined=0 reserved=6 "
     "driver-bytes=6"},
    /* Trims offer it again. */
    {"a_dead_pool_goes_when_the_driver_takes_it", TOGETHER,
     "{granule:16 cap:8} P0 +z.3=1/0 -z.3 fail:unmap=1R* D0 quarantined=1 T:999!R released=0 "
     "fail:unmap=0R T:999 released=1 quarantined=0 reserved=0"},
    {"a_trim_unmaps_destroyed_buffers", TOGETHER,
     "{granule:16 cap:16} N0:8 z0:2@A mappings=4 hA K0@A T:999 mappings=4 eA T:999 mappings=2 "
     "released=0"},
    /* Nobody releases what such a window still shows. The next trim tries again. */
    {"a_window_that_stays_mapped_is_quarantined", TOGETHER,
     "{granule:16 cap:4} +a-c=1 -ac +w=2 -w fail:unmap=1R* T:0!R quarantined=2 windows=0 T:0!R "
     "released=0 fail:unmap=0R +w=2 -wb T:0 quarantined=0 released=3"},
    /* The driver takes it when the pool goes. */
    {"a_pool_goes_with_its_quarantined_window", TOGETHER,
     "{granule:16 cap:8} P0 +z.3=3@n/0 -z.3@n +a-c=1/0 -ac +w=2/0 pieces:w=2 -w fail:unmap=1R "
     "T:0!R quarantined=2 -b D0 quarantined=0 stitched=0 reserved=0 chunks=0"},
    /* The driver is left alone; questions are answered. */
    {"a_lost_device_stays_lost", TOGETHER,
     "{granule:16 cap:8} N0:2 P0 +a=1 fail:create=1G +*=2!G told-code=1234 live=1 +*=512b!G -a!G "
     "ra@A!G fA!G P1!G T:0!G released=0 Q!G EA!G S0:d!G c0:0,1!G pieces:a=1 live=1"},
    {"a_driver_that_shuts_down_stays_so", TOGETHER,
     "{granule:16 cap:8} N0:2 P0 +a=1 fail:create=1W +*=2!W told-code=1234 live=1 +*=512b!W -a!W "
     "ra@A!W fA!W P1!W T:0!W released=0 Q!W EA!W S0:d!W c0:0,1!W pieces:a=1 live=1"},
    {"destroy_frees_host_memory_of_a_dead_driver", TOGETHER,
     "{granule:16 cap:8} +a=1 fail:any=1W* destroy!W"},
    /* The capture mode that a series of driver calls leaves */
    /* The second exchange of a call sets the mode back. The memory is there: this undoes nothing.
       After a failure it is told too, but the failure is the last error. */
    {"a_mode_that_stays_relaxed_is_told", TOGETHER,
     "{granule:16 cap:4} mark fail:exchange=2R +p=1 warnings-told=1 warned-call=exchange "
     "told-code=1234 told-call=exchange error!R fail:exchange=2R fail:create=1R +*=1!R "
     "warnings-told=2 warned-call=exchange told-call=create -p"},
    /* A lost device is noticed by the next call that reaches it. */
    {"what_is_lost_at_the_end_of_a_series_shows_in_the_next", TOGETHER,
     "{granule:16 cap:4} mark fail:exchange=2G* +p=1 warnings-told=1 +*=1!G -p!G fail:any=0R "
     "destroy!G"},
    /* Out-of-memory handler: the judge's own, which trims or frees by the name that is asked for.
       */
    {"the_handler_frees_and_the_call_succeeds", TOGETHER,
     "{granule:16 cap:4 oom} +a=3 +b=2 live=1 failures=1 -b"},
    {"the_handler_serves_limits_too", TOGETHER,
     "{granule:16 cap:8 limit:4 oom} +c=9!L told-limit=4 failures=1 +a=4 +b=4 live=1 failures=2 "
     "-b"},
    {"the_handler_is_not_asked_about_other_errors", TOGETHER,
     "{granule:16 cap:8 oom} +b=1/^3b!I mark fail:create=1R +b=1!R"},
    /* y by way of the handler, which frees b. */
    {"a_single_threaded_lake_works", TOGETHER,
     "{granule:16 cap:4 single oom} +a-c=1 -ac +w=2 +y=2 failures=1 live=2 -wy T:0"},
    /* Figures */
    {"statistics_follow_blocks", TOGETHER,
     "{granule:16 cap:8} +a=100b +b=1+1b requested=1+101b active=1+1k reserved=2 live=2 chunks=2 "
     "-a requested=1+1b active=1+512b live=1 -b"},
    {"peaks_stay_until_reset", TOGETHER,
     "{granule:16 cap:3} +a-c=1 -ac +w=2 -wb T:1 requested-peak=3 reserved-peak=3 stitched-peak=2 "
     "reset-peaks requested-peak=0 reserved-peak=1 stitched-peak=0"},
    {"what_was_pending_once_has_a_peak", TOGETHER,
     "{granule:16 cap:3} +p=2 rp@A hA -p pending=2 eA +p=3 -p pending=0 pending-peak=2 "
     "reset-peaks pending-peak=0"},
    /* Of 64 chunks and one more above a gap the first batch takes all but the lowest, and the gap.
       */
    {"trim_looks_below_a_gap", TOGETHER,
     "{granule:16 cap:90} +a-l.3=1 -c-z T:0 released=24 -a.1-l.3 -a T:0 released=65 reserved=1 "
     "+z.3=80 -z.3b"},
    /* Host memory that runs out */
    {"labels_survive_lack_of_host_memory", TOGETHER,
     "{granule:16 cap:4} +b=2 -b +q=512b host:1 +a=1!H live=1 +a=1 -aq"},
    {"a_free_on_a_new_stream_survives_lack_of_host_memory", TOGETHER,
     "{granule:16 cap:4} +p=1 host:1 -p@A!H error!H live=1 -p@A"},
    /* Lakes */
    /* The rest goes all the same. */
    {"destroy_returns_the_first_driver_error", TOGETHER,
     "{granule:16 cap:4} +p=3 -p fail:unmap=1R destroy!R handles=0 mappings=1"},
    /* ---- Streams, pending frees, pools, captures ---- */

    /* Events */
    {"one_stream_records_no_event", TOGETHER,
     "{granule:16 cap:4} hC [20 +a=1@C +b=1-512b@C +c=63k@C +d=1-1536b@C -abcd@C ] events=0 "
     "driver-events=0 waits=0 host-waits=0 eC"},
    /* The judge counts along. */
    {"metadata_of_streams_is_counted_to_the_byte", TOGETHER,
     "{granule:16 cap:64} [38 hA +z.3=1@A -z.3@A fA kA vA ] numbers=38"},
    /* Own memory, clean memory, other streams' memory */
    /* GROW_FIRST: B gets new memory while A's is pending. */
    {"pending_memory_is_nobody_elses", TOGETHER,
     "{granule:16 cap:8} +p=2@A +*=512b@B hA -p@A +q=2@B from:q=p+2 waits=0 reserved=5 eA"},
    /* | - | a | - | B |: A sees one hole of three chunks, B two of one. */
    {"clean_and_own_memory_are_one_hole", TOGETHER,
     "{granule:16 cap:8} +z.3=4@n -z.3@n +a-c=1@A +d=1@B hA -ac@n -b@A +a.2=3@A at:a.2=a "
     "reserved=4 stitches=0 eA -a.2@A -d@B"},
    /* The same from B's side: the clean chunks alone, as a window around A's. */
    {"clean_memory_around_anothers_is_stitched", TOGETHER,
     "{granule:16 cap:8} +z.3=4@n -z.3@n +a-c=1@A +d=1@B hA -ac@n -b@A +w=2@B pieces:w=2 "
     "home:w0=a size:w0=1 home:w1=c size:w1=1 reserved=4 waits=0 eA -wd@B"},
    /* a was freed and its event completed, its neighbour b was freed later and is pending: B
       never gets b. */
    {"memory_freed_later_stays_pending", TOGETHER,
     "{granule:16 cap:8} +z.3=2@n -z.3@n +a-b=1@A +*=512b@B -a@A hA -b@A +a.2=1@B off:a.2=b "
     "+b.2=1@B off:b.2=b waits=0 eA"},
    {"memory_freed_on_another_stream_is_that_streams", TOGETHER,
     "{granule:16 cap:4} +p=1@A hA hB -p@B +a.2=1@B at:a.2=p -a.2@B +b.2=1@A off:b.2=p eA eB"},
    {"null_and_one_are_the_legacy_stream", TOGETHER,
     "{granule:16 cap:4} h0 +p=1 -p@1 +a.2=1@1 at:a.2=p ra.2 -a.2 +b.2=1 at:b.2=p holds:b.2=1 "
     "events=0 pending-peak=0 e0 -b.2@1"},
    /* | a | b |: side by side, both pending: neither stream has two chunks. In the end b is B's own
       still. */
    {"tags_of_two_streams_do_not_merge", TOGETHER,
     "{granule:16 cap:8} +z.3=2@n -z.3@n +a=1@A +b=1@B at:b=a+1 hA hB -a@A -b@B +p=2@A "
     "from:p=b+1 pieces:p=1 waits=0 +b.2=1@B at:b.2=b eA eB"},
    /* 26 times | - | a | A |: A's holes are of two chunks; the clean chunks are parts of them, and
       sixteen are passed over in search of one that is a hole by itself. A chunk is had at the
       begin of a hole, without growth or wait. */
    {"a_chunk_of_many_holes_that_clean_chunks_begin", TOGETHER,
     "{granule:16 cap:200} +z=78@n -z@n [78 +*=1@A ] hA [26 -*@n -*@A u*@A ] +a=1@A at:a=g.1 "
     "reserved=78 waits=0 eA"},
    /* The clean hole that fits begins a run of the stream's own, and those beside it in its bin are
       too short: it is had as part of the run. */
    {"a_hole_of_a_run_among_shorter_ones", TOGETHER,
     "{granule:16 cap:16} +z.3=8@n -z.3@n +a=68k@A +b=5k@A +c=69k@A +d=59k@A +e=5k@A +f=68k@A "
     "+g=5k@A +h=68k@A +*=165k@A hA -d@A -acfh@n +j=68k+512b@A at:j=c reserved=8 eA"},
    /* No stream */
    {"none_does_not_get_pending_memory", TOGETHER,
     "{granule:16 cap:8} +p=2@A +*=512b@B hA -p@A +q=2@n from:q=p+2 host-waits=0 eA"},
    /* There is no stream that could wait on the device: at the device's end the host does. */
    {"none_waits_on_the_host_where_it_must", TOGETHER,
     "{granule:16 cap:3} +p=2@A +*=512b@B hA -p@A +a.2=2@n at:a.2=p waits=0 host-waits=1 "
     "driver-host-waits=1"},
    {"none_waits_for_the_only_stream_too", TOGETHER,
     "{granule:16 cap:2} +p=2@A hA -p@A +a.2=2@n at:a.2=p driver-host-waits=1 -a.2@n"},
    /* One stream whose memory is asked for on none: it becomes clean as its work completes. */
    {"none_reuses_what_the_only_stream_freed", TOGETHER,
     "{granule:16 cap:64} [50 +x=2@n -x@A ] reserved-peak=2 host-waits=0"},
    /* As long as the stream is at work its memory serves nobody else. */
    {"none_leaves_what_is_pending_to_the_only_stream", TOGETHER,
     "{granule:16 cap:4} +p=1@n hA -p@A +a.2=1@n off:a.2=p eA +b.2=1@n at:b.2=p events=1"},
    /* Without a stream's memory to be had nothing is recorded: the weights first, then one
       stream. In the end clean memory is there. */
    {"none_costs_no_event_where_it_asks_first", TOGETHER,
     "{granule:16 cap:8} +p=2@n [10 +z.3=3@A -z.3@A ] events=0 -p@n +z.3=2@n -z.3@n events=0"},
    /* A device that is lost as the only stream is fenced is lost to the one who asks. */
    {"none_learns_that_the_device_is_lost", TOGETHER,
     "{granule:16 cap:4} +z.3=1@A -z.3@A fail:record=1G +*=1@n!G destroy!G"},
    /* The ladder: waits on the device */
    /* The device is full: A's pending memory, behind one wait; what lies behind the same wait is
       had without another, what A frees later is not. */
    {"a_full_device_borrows_behind_one_wait", TOGETHER,
     "{granule:16 cap:5} +m=1@A +p=3@A +*=512b@B hA -p@A +a.2=1@B at:a.2=p waits=1 +b.2=2@B "
     "at:b.2=p+1 waits=1 -m@A +c.2=1@B at:c.2=m waits=2 host-waits=0 driver-host-waits=0 eA"},
    {"the_legacy_stream_borrows_behind_a_wait", TOGETHER,
     "{granule:16 cap:3} +p=2@A +*=512b@B hA -p@A +a.2=2 at:a.2=p waits=1 host-waits=0 eA"},
    /* What B frees now is pending until A's work is done, since B waits for A. */
    {"a_wait_holds_the_waiters_work_back", TOGETHER,
     "{granule:16 cap:3} +p=2@A +*=512b@B hA -p@A +a.2=2@B at:a.2=p -a.2@B T:0 released=0 eA "
     "T:0 released=2"},
    /* NONE cannot borrow: it waits for two chunks on the host and creates the other two. */
    {"waiting_and_growth_together_serve", TOGETHER,
     "{granule:16 cap:5} +p=2@A +*=512b@B hA -p@A +*=4@n host-waits=1 reserved=5"},
    /* | a | - | a | B |: freed at different times, taken as one hole behind the later event. */
    {"a_hole_of_several_frees_takes_one_wait", TOGETHER,
     "{granule:16 cap:4} +z.3=4@n -z.3@n +a-c=1@A +d=1@B hA -ac@A -b@n events=2 +a.2=3@B "
     "at:a.2=a waits=1 eA"},
    {"an_idle_window_is_borrowed_behind_a_wait", TOGETHER,
     "{granule:16 cap:3} +z.3=3@n -z.3@n +a=1@A +b=1@B +c=1@A -ac@A +w=2@A hA -w@A mark "
     "mappings=5 +a.2=2@B at:a.2=w waits=1 reuses=1 mappings=5 eA"},
    /* A device that is lost while a window is waited for is asked for nothing more. Behind c there
       is one hole with d and e. */
    {"a_lost_device_ends_the_borrowing", TOGETHER,
     "{granule:16 cap:6} +z.3=6@n -z.3@n +a-e=1@A +*=512b@B -ac@A +w=2@A hA -w@A -de@A "
     "fail:stream-wait=1G +*=2@B!G waits=0 destroy!G"},
    /* Of many events that are complete few are asked for (1, 2, 4, 8, 16, and the rest); so of
       those that are not: B grows, the oldest is not complete. */
    {"events_are_asked_for_in_steps", TOGETHER,
     "{granule:16 cap:128} +a-h.2=1@A +z.3=512b@B hA -a-h.2@A events=60 mark +y.3=1@B calls=4 eA "
     "mark +x.3=60@B calls=6 pending=0"},
    /* More events than a stream has fences for: all of it can still be had behind waits. */
    {"a_long_queue_of_frees_can_be_borrowed", TOGETHER,
     "{granule:16 cap:104} +a-v.3=1@A +z.3=512b@B hA -a-v.3@A events=100 +y.3=100@B waits=1 "
     "host-waits=0 eA"},
    /* Of 200 chunks each second one. */
    {"a_free_of_each_128th_has_an_event", TOGETHER,
     "{granule:16 cap:208} +a-v.3=1@A +z.3=512b@B +y.3=99@n hA -a-v.3@A events=50 +x.3=100@B "
     "waits=1 host-waits=0 eA"},
    /* What both streams freed is not enough, so the host waits for both. */
    {"a_request_that_is_refused_has_waited_for_all", TOGETHER,
     "{granule:16 cap:4} gA:1000000 hB +x=1@A -x@A +y=1@B -y@B +*=5@n!O Q at-work=0"},
    /* 38 streams freed what one request needs all of. The host waits for at most 32 at once. */
    {"the_host_waits_for_many_streams", TOGETHER,
     "{granule:16 cap:38} [38 hA +a=1@A ua@A -a@A fA kA vA ] +z.3=38@n host-waits=38"},
    /* The first one that fails ends the call: the third call of the driver, behind two questions.
       */
    {"a_failed_wait_is_told", TOGETHER,
     "{granule:16 cap:8} P0 hA hB +x=1@A/0 -x@A +y=1@B/0 -y@B fail:wait=1O fail:wait=2R mark "
     "D0!O calls=3 host-waits=1 fail:wait=0R D0"},
    /* Out of memory for good: nothing is left pending where the host could wait for it. */
    {"out_of_memory_is_the_last_answer", TOGETHER,
     "{granule:16 cap:4} +p=2@A +*=512b@B hA -p@A +*=4@B!O told-free=3-512b told-pending=0 "
     "told-live=512b eA"},
    /* Calls about streams that fail */
    {"the_host_waits_where_the_device_cannot", TOGETHER,
     "{granule:16 cap:3} +p=2@A +*=512b@B hA -p@A fail:stream-wait=1R* +a.2=2@B at:a.2=p "
     "host-waits=1"},
    /* The block comes from elsewhere first. */
    {"a_failed_query_is_not_completion", TOGETHER,
     "{granule:16 cap:8} +p=2@A +*=512b@B hA -p@A eA fail:query=1R +q=2@B off:q=p +a.2=2@B "
     "at:a.2=p"},
    {"destroy_frees_everything_though_waiting_fails", TOGETHER,
     "{granule:16 cap:4} +p=2@A +*=512b@B hA -p@A fail:wait=1R* destroy!R"},
    /* A free needs no event: it succeeds, and the next one covers its memory. */
    {"a_free_survives_a_failed_record", TOGETHER,
     "{granule:16 cap:4} +p=2@A +q=1@A +*=512b@B hA fail:record=1R -p@A error!R events=0 -q@A "
     "events=1 eA +a.2=3@B at:a.2=p waits=0"},
    /* Recorded streams */
    {"recorded_streams_defer_reuse", TOGETHER,
     "{granule:16 cap:8} +p=2@A rp@B hB -p@A pending=2 active=0 +a.2=2@A off:a.2=p reserved=4 "
     "eB +b.2=2@A at:b.2=p pending=0 pending-peak=2 reserved=4"},
    {"recorded_windows_are_deferred_too", TOGETHER,
     "{granule:16 cap:3} +z.3=3@n -z.3@n +a-c=1 -ac +w=2 rw@B hB -w pending=2 -w!D T:0 "
     "released=0 eB T:0 released=2 pending=0 -b"},
    /* At the device's end the stream waits on the device: new work on A is behind B's. */
    {"pending_frees_are_had_behind_a_wait_on_the_device", TOGETHER,
     "{granule:16 cap:2} +p=2@A rp@B hB -p@A +a.2=2@A at:a.2=p host-waits=0 waits=1 behind:A=1 "
     "pending=0 eB -a.2@A"},
    /* The host runs ahead of B: each layer has the memory of the one before. */
    {"layers_have_the_memory_of_those_before", TOGETHER,
     "{granule:16 cap:64 wait-first} hB [32 +p=2@A rp@B -p@A ] reserved=2 waits=31 host-waits=0 "
     "pending=2"},
    /* The stream that is recorded waits for the one that freed. C waits for both. */
    {"a_recorded_stream_has_the_memory_itself", TOGETHER,
     "{granule:16 cap:4 wait-first} +p=2@A rp@B hA hB -p@A +q=2@B at:q=p waits=1 behind:B=1 -q@B"},
    {"who_takes_a_pending_block_waits_for_all_its_streams", TOGETHER,
     "{granule:16 cap:4 wait-first} +p=2@A rp@B rp@D hA hB hD -p@A +q=2@C at:q=p waits=3 eA eB "
     "behind:C=1 eD behind:C=0"},
    /* A window that is pending serves again without a driver call but the wait. */
    {"a_pending_window_is_reused_behind_a_wait", TOGETHER,
     "{granule:16 cap:4 wait-first} +a-d=1@A -ac@n +w=2@A pieces:w=2 rw@B hB -w@A mark +a.2=2@A "
     "at:a.2=w reuses=1 stitches=0 waits=1 windows=1"},
    /* B still uses the window's addresses: A's tag, behind B, keeps it mapped. */
    {"a_pending_window_that_another_stream_ends_stays_mapped", TOGETHER,
     "{granule:16 cap:6 smax:2} +z.3=6@n -z.3@n +a-f=1 -ac +w=2 pieces:w=2 rw@B hB uw@B -w mark "
     "+q=1@A +r=1@A pending=0 -df@n +v=2@n pieces:v=2 stitches=1 evictions=0"},
    /* | p p | | a | |: what is pending and what is free are the pieces of one window. */
    {"a_part_of_a_pending_block_is_stitched", TOGETHER,
     "{granule:16 cap:5 wait-first} +p=2@A +*=1@A +a=1@A +*=1@A rp@B hB -p@A -a@A mark +w=3@A "
     "pieces:w=2 holds:w=1 waits=1 host-waits=0 pending=0"},
    {"the_rest_of_a_pending_block_is_the_takers", TOGETHER,
     "{granule:16 cap:4 wait-first} +p=3@A rp@B hB -p@A +q=1@A at:q=p waits=1 +a.2=2@A "
     "at:a.2=p+1 waits=1 reserved=3"},
    /* It is not clean: who takes it from A waits for B's work, behind A's event. */
    {"the_rest_of_a_pending_block_is_not_clean", TOGETHER,
     "{granule:16 cap:4 wait-first} +p=3@A rp@B hB -p@A +q=1@A at:q=p +*=1@A +a.2=1@C "
     "at:a.2=p+2 behind:C=1 waits=2 eB behind:C=0"},
    /* Of B's uses the later one leaves first: the next one comes behind the earlier. */
    {"a_use_that_has_left_is_no_queues_end", TOGETHER,
     "{granule:16 cap:8 wait-first} P0 +p=1@A +q=1@A/0 rp@B rq@B hB -p@A -q@A +x=1@A/0 at:x=q "
     "waits=1 pending=1 +r=1@A/0 rr@B -r@A pending=2 eB T:999 pending=0"},
    {"of_pending_blocks_the_oldest_is_taken", TOGETHER,
     "{granule:16 cap:4 wait-first} +p-q=2@A rp@B rq@D hB hD -p@A -q@A +a.2=2@A at:a.2=p "
     "waits=1 eB behind:A=0"},
    /* What both streams are recorded on can be had once B is done, not before D's capture ends. */
    {"every_recorded_stream_has_to_be_waited_for", TOGETHER,
     "{granule:16 cap:8} P0 +p=2@A +x=1@A rp@B rp@D BD:0/0 hB -p@A Q allocatable=5 +*=5@A "
     "host-waits=0 ED"},
    /* A's small-block reserve is had from what its pending work uses: B's news do not make it
       clean. */
    {"a_reserve_of_pending_work_stays_its_streams", TOGETHER,
     "{granule:16 cap:4096 chunk:32} +p=2048@A hA -p@A +s=4k@A +z.3=32@B -z.3@B +z.3=96@B "
     "-z.3@B +z.3=192@B -z.3@B +y=4k@B from:y=p+2048 waits=0"},
    /* So is one that begins in clean memory and ends in what A's work uses. */
    {"a_reserve_of_a_run_is_its_streams", TOGETHER,
     "{granule:16 cap:72} +x=31 +c=8k +p=1-8k@A -c@n hA up@A -p@A mark +s=512b@A at:s=x+31 "
     "[8 +*=2k@B ] from:a.1=x+32 grown=1 waits=0"},
    /* Growth creates what is missing beside it. */
    {"a_pending_block_and_new_chunks_serve_together", TOGETHER,
     "{granule:16 cap:8 wait-first} +p=2@A +*=1@A rp@B hB -p@A +*=3@A reserved=4 waits=1 "
     "pending=0"},
    /* Not before growth if that comes first; not what a stream that is lost may still use. */
    {"growth_comes_first_if_the_description_says_so", TOGETHER,
     "{granule:16 cap:8} +p=2@A rp@B hB -p@A +a.2=2@A from:a.2=p+2 waits=0 pending=2 reserved=4"},
    {"a_lost_streams_use_is_not_waited_for_there", TOGETHER,
     "{granule:16 cap:8 wait-first} +p=2@A rp@B hB kB!U T:0 -p@A +a.2=2@A from:a.2=p+2 waits=0 "
     "pending=2"},
    /* Its rest has an event at once: A may end, and C has it. */
    {"the_rest_is_fenced_for_a_stream_that_may_end", TOGETHER,
     "{granule:16 cap:3 may-end wait-first} +p=2@A +y=512b@D rp@B hB -p@A ry@B +q=1@A at:q=p "
     "waits=1 kA eB +a.2=1@C at:a.2=p+1 host-waits=0"},
    /* NONE says that the block's own stream is synchronised, and speaks for no other. It is
       clean, though A is held. */
    {"none_speaks_for_the_blocks_own_stream_alone", TOGETHER,
     "{granule:16 cap:4} hA hB +p=1@A rp@A rp@B -p@n pending=1 +a.2=1@A off:a.2=p eB T:999 "
     "pending=0 +b.2=1 at:b.2=p waits=0 eA"},
    {"none_frees_what_its_own_stream_alone_was_recorded_on", TOGETHER,
     "{granule:16 cap:4} hA +p=1@A rp@A -p@n pending=0 +a.2=1@B at:a.2=p"},
    /* A block of no stream: NONE speaks for nobody, and the fence is recorded at once. */
    {"none_waits_for_the_only_stream_that_was_recorded", TOGETHER,
     "{granule:16 cap:1} +p=1@n rp@B gB:10 -p@n pending=1 events=1 t:10 +a.2=1@n at:a.2=p "
     "host-waits=0 -a.2@n"},
    /* A stream's work goes on in a window: it is not unmapped. |A|-|B|-| and the window over
       both. */
    {"none_leaves_recorded_windows_mapped", TOGETHER,
     "{granule:16 cap:4} +a-d=1@A -ac@A +w=2@A pieces:w=2 rw@B hB -w@n T:0 released=0 "
     "evictions=0 eB T:0 released=2 evictions=1"},
    /* The new block finds what a freed one is filled with. */
    {"what_streams_still_use_is_filled_later", TOGETHER,
     "{granule:16 cap:1 fill} +p=1@A rp@B hB -p@A eB +q=1@A at:q=p errors-told=0"},
    {"pending_frees_are_in_the_budget", TOGETHER,
     "{granule:16 cap:8} +z.3=4@n -z.3@n +p=1@A rp@B hB -p@A Q at-work=1 idle=3 allocatable=8 "
     "eB Q at-work=0 idle=4"},
    {"destroy_waits_for_pending_frees", TOGETHER,
     "{granule:16 cap:4} +p=1@A rp@B hB -p@A destroy driver-host-waits=2"},
    {"a_stream_is_recorded_once", TOGETHER,
     "{granule:16 cap:8} +p=1 rp@A rp@B mark [50 rp@A rp@B ] metadata-grown=0 -p"},
    {"a_pending_block_cannot_be_freed_again", TOGETHER,
     "{granule:16 cap:4} +p=1@A rp@B hB -p@A pending=1 -p@A!D rp@B!U pending=1 eB"},
    /* To record one again is the same. */
    {"every_recorded_stream_counts", TOGETHER,
     "{granule:16 cap:16} +p=1@A hC rp@C rp@C hD rp@D rp@D hE rp@E rp@E hF rp@F rp@F hG rp@G "
     "rp@G -p@A +a=1@A off:a=p eG +b=1@A off:b=p eF +c=1@A off:c=p eE +d=1@A off:d=p eD +e=1@A "
     "off:e=p eC +f=1@A at:f=p"},
    /* Each recorded stream is waited for, watched or not, whichever is the last at work. */
    {"every_recorded_stream_is_waited_for", TOGETHER,
     "{granule:16 cap:2} +p=4k@A rp@B rp@C rp@D rp@E rp@F rp@G rp@H rp hC -p@A T:999 pending=4k "
     "eC T:999 pending=0 +p=4k@A rp@B rp@C rp@D rp@E rp@F rp@G rp@H rp hE -p@A T:999 pending=4k "
     "eE T:999 pending=0 +p=4k@A rp@B rp@C rp@D rp@E rp@F rp@G rp@H rp hG -p@A T:999 pending=4k "
     "eG T:999 pending=0 +p=4k@A rp@B rp@C rp@D rp@E rp@F rp@G rp@H rp h0 -p@A T:999 pending=4k "
     "e0 T:999 pending=0"},
    {"every_recorded_stream_is_waited_for_and_watched", TOGETHER,
     "{granule:16 cap:2 observed} +p=4k@A rp@B rp@C rp@D rp@E rp@F rp@G rp@H rp hB -p@A T:999 "
     "pending=4k eB T:999 pending=0 +p=4k@A rp@B rp@C rp@D rp@E rp@F rp@G rp@H rp hD -p@A T:999 "
     "pending=4k eD T:999 pending=0 +p=4k@A rp@B rp@C rp@D rp@E rp@F rp@G rp@H rp hF -p@A T:999 "
     "pending=4k eF T:999 pending=0 +p=4k@A rp@B rp@C rp@D rp@E rp@F rp@G rp@H rp hH -p@A T:999 "
     "pending=4k eH T:999 pending=0"},
    /* It is recorded in the end. */
    {"record_stream_survives_lack_of_host_memory", TOGETHER,
     "{granule:16 cap:4} +p=1 host:1 rp@A!H host:2 rp@A!H host:0 rp@A hA -p pending=1 eA"},
    /* A had ended: the free on its successor records the use of A. */
    {"a_free_behind_an_end_survives_lack_of_host_memory", TOGETHER,
     "{granule:16 cap:4 may-end} +p=1@A kA vA +q=1@A host:1 -p@A!H live=2 host:0 -p@A live=1"},
    /* B, on which p was freed, is idle, and of A the trim learns that earlier work, x's, is done:
       only A's work with p keeps the chunk from going. */
    {"trim_spares_what_a_recorded_stream_still_uses", TOGETHER,
     "{granule:16 cap:4} +p=1@B rp@A +x=1@A -x@A hA up@A -p@B T:0 released=1 pending=1 "
     "driver-bytes=1 eA T:0 released=1 pending=0 driver-bytes=0 host-waits=0 "
     "driver-host-waits=0"},
    /* Forgotten streams */
    {"forgetting_an_unknown_stream_is_fine", TOGETHER, "{granule:16 cap:4} fA events=0"},
    {"a_forgotten_stream_completes", TOGETHER,
     "{granule:16 cap:4} +p=512b@A +z.3=512b@B -z.3@B hA -p@A fA eA kA T:0 released=1"},
    /* Work that was queued on a recorded stream before it was forgotten still counts. */
    {"a_recorded_stream_may_be_forgotten", TOGETHER,
     "{granule:16 cap:8} +p=1@A hB rp@B fB -p@A pending=1 +q=1@A off:q=p eB kB +a.2=1@A "
     "at:a.2=p -a.2q@A"},
    /* Nor is it hidden by a use of the stream that had the number before. */
    {"a_use_is_recorded_beside_that_of_a_former_stream", TOGETHER,
     "{granule:16 cap:4} +p=1@A rp@B fB rp@C hC -p@A pending=1 eC"},
    /* The driver hands the value out again: the new stream is not the old one, whose work goes on.
       */
    {"a_reused_value_is_another_stream", TOGETHER,
     "{granule:16 cap:8} +p=2@A hA -p@A fA kA vA +q=2@A off:q=p waits=0 reserved=4 -q@A"},
    {"a_forgotten_streams_memory_is_had_behind_its_fence", TOGETHER,
     "{granule:16 cap:2} +p=2@A hA -p@A fA kA vA +a.2=2@A at:a.2=p waits=1 host-waits=0 -a.2@A"},
    {"a_forgotten_streams_blocks_live_on", TOGETHER,
     "{granule:16 cap:4} +p=1@A fA kA holds:p=1 -p@B +a.2=1@B at:a.2=p -a.2@B"},
    /* The stream that a block names is one that can be used: not C, nor D, which have A's number.
       */
    {"a_block_names_no_forgotten_stream", TOGETHER,
     "{granule:16 cap:4} +p=1@A number:A=0 holds:p=1 fA +*=512b@C number:C=0 holds:p=1 fC "
     "+*=512b@D holds:p=1 -p@B"},
    {"blocks_of_many_sizes_leave_metadata_flat", TOGETHER,
     "{granule:16 cap:256} [10 +a-z=3b +a.1-z.1=5k +a.2-f.2=2+7k -a-z -a.2-f.2 -a.1-z.1 ] mark "
     "[40 +a-z=3b +a.1-z.1=5k +a.2-f.2=2+7k -a-z -a.2-f.2 -a.1-z.1 ] metadata-grown=0"},
    /* Streams that come and go: a block of each stays, and so does a use of each of another block.
       */
    {"live_blocks_keep_no_numbers", TOGETHER,
     "{granule:16 cap:300} +k=512b +y=200@n [10 +p=8k@A rk@A fA kA vA -p ] mark [28 +p=8k@A rk@A "
     "fA kA vA -p ] metadata-grown=0 numbers=2 -k T:999 pending=0"},
    /* B's two frees are of one epoch. A waited for it; who has A's number next has not. */
    {"a_new_streams_waits_are_its_own", TOGETHER,
     "{granule:16 cap:1 may-end} mB:3 +p=1k@B +s=1k@B +q=4k@B +t=58k@B hB -p@B -q@B mark +x=1k@A "
     "at:x=p waits=1 -x@B kA vA +y=4k@A at:y=q waits=2 numbers=2"},
    /* A number does not serve again while its stream is at work; many at work do not bar the line.
       */
    {"a_number_at_work_does_not_serve_again", TOGETHER,
     "{granule:16 cap:64} +*=512b@B +p=1@C hC -p@C +q=1@D hD -q@D +s=1@E hE -s@E fC fD fE [20 "
     "+x=1@A off:x=p off:x=q off:x=s -x@A fA kA vA ] numbers=5 eC eD eE T:999 numbers-used=1"},
    /* A pending block has the tag of a stream whose number is another's when it is freed at last.
       There is nothing to wait for: D never had it. */
    {"a_pending_tag_outlives_its_streams_number", TOGETHER,
     "{granule:16 cap:2} +*=512b@C +p=1@A number:A=1 rp@B hB -p@A fA hD +*=512b@D number:D=1 "
     "behind:D=1 eB +a.2=1@C at:a.2=p waits=0 host-waits=0 eD"},
    /* The same of a place of a buffer: it is unmapped without a wait. The other chunk is the
       block's. */
    {"a_place_outlives_its_streams_number", TOGETHER,
     "{granule:16 cap:4} N0:2 z0:2@A z0:0@A number:A=0 fA +*=512b@C number:C=0 hC behind:C=1 T:0 "
     "released=1 host-waits=0 eC"},
    /* A block recorded on a stream whose number is another's: that one is not waited for. Nor does
       a stale use hide one of it. */
    {"a_recorded_use_outlives_its_streams_number", TOGETHER,
     "{granule:16 cap:4} +p=1@A rp@B number:B=1 fB hC +*=512b@C number:C=1 -p@A pending=0 +p=1@A "
     "rp@C -p@A pending=1 eC"},
    /* A block's own stream is gone and its number is a recorded one's: NONE does not speak for
       that. */
    {"none_does_not_speak_for_the_number", TOGETHER,
     "{granule:16 cap:4} +p=1@A number:A=0 fA rp@B number:B=0 hB -p@n pending=1 eB"},
    /* A capture takes no number that free memory may name: what it pins is the graph's alone. B
       takes that of A. */
    {"a_capture_has_a_number_of_its_own", TOGETHER,
     "{granule:16 cap:4} P0 +x=1@A/0 -x@A fA BB:0/0 EB T:0 released=1 BB:0/1 EB numbers=2"},
    /* Nor one that a pending block's tag names, as A is known to be done: the graph does not know
       that block. */
    {"a_capture_leaves_pending_tags_alone", TOGETHER,
     "{granule:16 cap:4} P0 +*=512b@C +p=1@A/0 rp@B hB -p@A fA T:999 BC:0/0 EC eB T:0 released=1"},
    {"a_busy_stream_with_many_frees_can_be_forgotten", TOGETHER,
     "{granule:16 cap:104} +a-v.3=1@A +z.3=512b@B hA -a-v.3@A fA eA T:1 released=100"},
    /* B waited for a stream that is gone. A new stream with its number has not been waited for:
       there are enough in between for numbers to serve again. */
    {"a_recycled_number_has_not_been_waited_for", TOGETHER,
     "{granule:16 cap:3} +s=512b@B +p=2@A number:A=1 hA -p@A +q=2@B at:q=p waits=1 -q@B eA fA kA "
     "vA [31 +z.3=512b@A -z.3@A fA kA vA ] +z.3=512b@A -z.3@A number:A=1 +p=2@A hA -p@A +q=2@B "
     "at:q=p waits=2 host-waits=0 eA -q@B"},
    /* Pools */
    {"a_pools_windows_go_with_it", TOGETHER,
     "{granule:16 cap:3} P0 +z.3=3@n/0 -z.3@n +a-c=1/0 -ac +w=2/0 pieces:w=2 -wb stitched=2 D0 "
     "stitched=0 windows=0 mappings=0"},
    {"pool_destroy_waits_for_pending_work", TOGETHER,
     "{granule:16 cap:8} P0 +p=1@A/0 rp@B hA hB -p@A D0 driver-host-waits=2 pending=0"},
    /* The second one has the whole device in one chunk. */
    {"pools_have_their_own_chunk_size", TOGETHER,
     "{granule:16 cap:16} P0^4 +z.3=512b/0 -z.3 reserved=4 chunks=1 D0 P0^16 +z.3=512b/0 -z.3 "
     "reserved=16 chunks=1 D0"},
    {"a_pool_that_cannot_be_made_leaves_nothing", TOGETHER,
     "{granule:16 cap:8} mark fail:reserve=1O* P0!O metadata-grown=0 fail:reserve=0O host:1 P0!H "
     "reservations=1 host:2 P0!H reservations=1 host:3 P0!H reservations=1 host:4 P0!H "
     "reservations=1 host:5 P0!H reservations=1 host:6 P0!H reservations=1 host:7 P0!H "
     "reservations=1 metadata-grown=0 host:8 P0 host:0 D0"},
    {"a_pool_with_live_blocks_stays", TOGETHER,
     "{granule:16 cap:8} +q=1 P0 +p=3/0 D0!I holds:p=1 -p reserved=4 D0 reserved=1 chunks=1 "
     "driver-bytes=1 reservations=1 -p!U -q"},
    {"pools_come_and_go_without_growth_of_metadata", TOGETHER,
     "{granule:16 cap:8} [10 P0 P1 +z.3=1/0 -z.3 +y.3=1/1 -y.3 D0 D1 ] mark [190 P0 P1 +z.3=1/0 "
     "-z.3 +y.3=1/1 -y.3 D0 D1 ] metadata-grown=0"},
    /* Captures */
    /* There is free memory outside. Other streams are not concerned. */
    {"captured_allocations_come_from_the_pool", TOGETHER,
     "{granule:16 cap:8} P0 +z.3=4@A -z.3@A BA:0/0 +p=2@A pool:p=0 reserved=6 +q=1@B pool:q=n "
     "EA +x=1@A pool:x=n"},
    /* Ordinary allocations of the pool do not get it. To name the pool is fine. */
    {"memory_freed_inside_is_reused_inside", TOGETHER,
     "{granule:16 cap:8} P0 BA:0/0 +p=2@A -p@A +q=2@B/0 off:q=p +a.2=2@A at:a.2=p +x=1@A/0 "
     "pool:x=0 EA"},
    /* What would otherwise record, query or wait: frees of many chunks, trim, the budget, full
       devices, on the capturing stream and beside it. EA tells. */
    {"nothing_spoils_a_capture", TOGETHER,
     "{granule:16 cap:16} P0 +a=2@A +b=2@B +l=2 hB BA:0/0 -a@A -b@B -l Q T:0 +p=4@A -p@A "
     "+*=20@A!O +*=20@B!O +*=20!O +*=20@n!O EA eB"},
    /* The legacy stream may not be made to wait while another is captured: the host waits
       instead. */
    {"the_legacy_stream_does_not_wait_during_a_capture", TOGETHER,
     "{granule:16 cap:4} P0 +*=512b +p=2@B hB -p@B BA:0/0 +*=512b@A +a.2=2 at:a.2=p waits=0 "
     "host-waits=1 EA"},
    /* Nor does it plan with what it would have to wait for: that growth would then be too small. */
    {"the_legacy_stream_plans_with_no_wait_during_a_capture", TOGETHER,
     "{granule:16 cap:16 wait-first} P0 +p=3@B hB -p@B BA:0/0 +*=4 chunks=7 host-waits=0 EA"},
    /* What a capture freed is not planned with either: there is no waiting for that. For what C
       freed the host would wait, too. */
    {"nobody_plans_with_what_a_capture_freed", TOGETHER,
     "{granule:16 cap:16 wait-first} P0 +p=1@C hC -p@C BA:0/0 +z.3=3@A -z.3@A +*=4@B/0 "
     "host-waits=0 EA"},
    {"another_stream_waits_beside_a_capture", TOGETHER,
     "{granule:16 cap:3} P0 +p=2@B hB -p@B BA:0/0 +*=512b@A +a.2=2@C at:a.2=p waits=1 "
     "host-waits=0 EA eB"},
    /* A graph's output, read by a stream's own work behind the launch: the unmapping waits for
       that. */
    {"pool_destroy_waits_for_what_used_a_graphs_memory", TOGETHER,
     "{granule:16 cap:8} P0 BA:0/0 +p=2@A EA hB -p@B D0 driver-host-waits=1"},
    /* The same where the block is freed in the next capture, whose graph cannot tell of the use.
       What is held reads it. */
    {"pool_destroy_waits_for_what_was_used_before_a_capture", TOGETHER,
     "{granule:16 cap:8} P0 BA:0/0 +p=2@A EA hA BA:0/1 -p@A EA D0 driver-host-waits=1"},
    /* Freed, but recorded on the legacy stream, which cannot be fenced while another is
       captured. */
    {"pool_destroy_says_that_a_capture_is_in_the_way", TOGETHER,
     "{granule:16 cap:8} P0 P1 +p=1@B/0 rp BA:1/0 -p@B D0!C EA D0"},
    {"pool_destroy_does_not_go_on_where_such_a_use_cannot_be_fenced", TOGETHER,
     "{granule:16 cap:8} P0 P1 BA:0/0 +p=2@A EA BB:1/1 -p@B D0!C EB hB D0 driver-host-waits=1"},
    /* A cannot be recorded on: p is pending until after the end. A trim that returns nothing
       looks at all. */
    {"a_captured_block_recorded_elsewhere_waits", TOGETHER,
     "{granule:16 cap:8} P0 +p=1@B rp@A BA:0/0 -p@B pending=1 +a.2=1@B off:a.2=p EA T:999 "
     "pending=0 +b.2=1@B at:b.2=p"},
    /* The first graph knows four chunks, the second captures one: the other three are still known
       to the first, so ordinary allocations do not get them and trim leaves them. */
    {"graphs_that_share_a_pool_keep_what_they_know", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +x=4@A -x@A EA BA:0/1 +p=1@A at:p=x T:0 released=0 -p@A EA "
     "+q=1@B/0 off:q=x off:q=x+1 off:q=x+2 off:q=x+3 -q@n T:0 released=1 reserved=4"},
    {"captured_windows_stay_mapped_and_serve_again", TOGETHER,
     "{granule:16 cap:3 smax:1b} P0 BA:0/0 +x=3@A -x@A +a-c=1@A -ac@A +w=2@A pieces:w=2 -w@A EA "
     "T:0 released=0 +*=1@A!O windows=1 BA:0/1 mark +a.2=2@A at:a.2=w calls=0 EA -a.2@A -b@A"},
    {"recapturing_needs_no_more_memory", TOGETHER,
     "{granule:16 cap:32} +z.3=1@B -z.3@B P0 [2 BA:0/0 +a=1@A +b=2@A +c=3@A +d=4@A -abc@A EA "
     "-d@A J0 ] mark [150 BA:0/0 +a=1@A +b=2@A +c=3@A +d=4@A -abc@A EA -d@A J0 ] "
     "metadata-grown=0 grown=0 D0"},
    {"outside_memory_freed_inside_is_had_by_others_after_the_end", TOGETHER,
     "{granule:16 cap:3} P0 +p=2@A +*=512b@B BA:0/0 -p@A +*=2@B!O told-pending=2 EA +a.2=2@B "
     "at:a.2=p"},
    /* Whatever the only stream freed before its capture is had there once it is complete, the
       lake's and the pool's, whether a fence was recorded before or not. */
    {"a_capture_has_what_its_stream_freed_before", TOGETHER,
     "{granule:16 cap:4 limit:2} P0 +p=2@A hA -p@A eA BA:0/0 +q=2@A EA -q@A D0 P0 +p=2@A hA -p@A "
     "T:0 eA BA:0/0 +q=2@A EA -q@A D0 host-waits=0 P0 +p=2@A hA -p@A BA:0/0 +q=2@A host-waits=1 "
     "EA -q@A D0 host-waits=2 P0 +p=2@A hA -p@A T:0 BA:0/0 +q=2@A host-waits=3 reserved-peak=2 "
     "EA"},
    /* A wait for each event. */
    {"what_little_was_not_fenced_is_as_a_capture_begins", TOGETHER,
     "{granule:16 cap:8} P0 +*=512b@B +p=5@A +l=512b@A hA -pl@A BA:0/0 +*=4@A host-waits=2 EA"},
    {"what_little_was_not_fenced_on_the_legacy_stream_is_too", TOGETHER,
     "{granule:16 cap:8} P0 +*=512b@B +p=5 +l=512b h0 -pl BA:0/0 +*=4@A host-waits=2 EA"},
    /* Whose use was fenced before a capture, though another pool's was not. */
    {"a_pool_is_destroyed_during_a_capture", TOGETHER,
     "{granule:16 cap:8} P0 P1 P2 +*=512b@B +p=2@A/1 +q=1@A/2 +l=1@A/2 hA -pq@A BA:0/0 -l@A "
     "fail:wait=1R D2!R D2!C host-waits=3 D1 EA D2"},
    {"a_device_lost_before_a_capture_ends_it", TOGETHER,
     "{granule:16 cap:4} P0 +z.3=512b@A -z.3@A fail:record=1G BA:0/0!G error!G destroy!G"},
    {"capture_begin_survives_lack_of_host_memory", TOGETHER,
     "{granule:16 cap:8} P0 host:1 BA:0/0!H EA!I host:2 BA:0/0!H EA!I host:3 BA:0/0!H EA!I "
     "host:4 BA:0/0!H EA!I host:0 BA:0/0 host:1 BB:0/1!H EB!I BB:0/1 host:1 BC:0/2!H EC!I BC:0/2 "
     "host:1 BD:0/3!H ED!I BD:0/3 host:1 BE:0/4!H EE!I BE:0/4 EA EB EC ED EE D0"},
    /* Streams that are destroyed untold */
    /* What is freed in a capture has its event when the capture ends: the stream may end then. */
    {"what_a_capture_freed_is_fenced_at_its_end", TOGETHER,
     "{granule:16 cap:8 may-end} P0 +p=1@A BA:0/0 -p@A hA EA events=1 kA vA +a.2=1@A off:a.2=p "
     "lost-streams=0 behind:A=0"},
    /* There is no order to be had with a stream that is gone. */
    {"nothing_is_served_on_a_stream_that_is_gone", TOGETHER,
     "{granule:16 cap:4 may-end} +p=1@A N0:4 z0:2@B kA +*=1@A!R z0:4@A!R z0:1@B -p@A K0@B"},
    /* The tag of a graph's memory names no stream, but who destroys the pool has to wait for one
       that used it and is gone: by the fence of the free. */
    {"a_gone_stream_that_used_a_graphs_memory_is_waited_for", TOGETHER,
     "{granule:16 cap:32 may-end} P0 BA:0/0 +p=1@A EA hB -p@B kB vB +z.3=1@B -z.3@B "
     "lost-streams=0 driver-host-waits=0 D0 driver-host-waits=1"},
    /* The number of the stream that is gone serves no other, its fence completes as any. */
    {"what_a_stream_that_is_gone_freed_becomes_clean", TOGETHER,
     "{granule:16 cap:4 may-end} +p=1@A gA:10 -p@A kA vA +a.2=1@A off:a.2=p Q at-work=1 t:10 "
     "T:0 released=1"},
    /* What the record of a free could not be made for is recorded by no call about something
       else. It is had after a wait for the whole device. */
    {"nothing_is_recorded_on_a_stream_behind_its_back", TOGETHER,
     "{granule:16 cap:3 may-end} +p-q=1@A hA fail:record=1R -p@A kA fail:record=1G* T:0 "
     "released=0 Q at-work=1 events=0 +*=1@B host-waits=0 +a.2=1@B at:a.2=p host-waits=1 -q@n"},
    /* A block that a stream which is gone was recorded for waits for the whole device. When the
       value allocates it is seen to be another. */
    {"a_use_by_a_stream_that_is_gone_is_waited_for", TOGETHER,
     "{granule:16 cap:2 may-end} +p=1@A rp@B hB behind:B=1 kB vB +*=1@B -p@A pending=1 Q "
     "pending=1 host-waits=0 +a.2=1@A at:a.2=p host-waits=1 pending=0"},
    /* The next call that names it closes what the free left open: a request, a free, a record. */
    {"a_recorded_stream_that_is_named_again_is_fenced", TOGETHER,
     "{granule:16 cap:4 may-end} +p=2@A rp@B +x=1@B -p@A events=1 pending=2 +*=512b@B events=2 "
     "Q pending=0 +y=512b@A +p=2@A rp@B -p@A events=3 ry@B events=4 Q pending=0 +p=2@A rp@B "
     "-p@A events=5 -x@B events=7 Q pending=0 host-waits=0"},
    /* So memory that a stream is recorded on over and over is never waited for by the host. */
    {"who_is_recorded_over_and_over_waits_for_no_device", TOGETHER,
     "{granule:16 cap:4 may-end} [9 +p=2@A rp@B hB +q=2@B -p@A rq@A eB -q@B ] host-waits=0 "
     "reserved=4"},
    /* A stream that stays, and the legacy stream, are fenced by the free itself. */
    {"a_recorded_stream_that_cannot_end_is_fenced_at_once", TOGETHER,
     "{granule:16 cap:4 may-end} +p=2@A rp@0 -p@A events=2 Q pending=0"},
    /* Its number is not its successor's, which is recorded beside it. */
    {"two_streams_of_one_value_are_recorded", TOGETHER,
     "{granule:16 cap:4 may-end} +p=2@A rp@B hB kB vB rp@B hB -p@A eB lost-streams=1 pending=2 "
     "+*=2@A +a.2=2@A at:a.2=p host-waits=1"},
    /* Freed on the value of the stream that it is recorded on, which another one has by now. */
    {"freed_on_the_value_of_a_recorded_stream", TOGETHER,
     "{granule:16 cap:2 may-end} +p=2@A rp@B hB kB vB -p@B pending=2 lost-streams=1 "
     "host-waits=0 +a.2=2@B at:a.2=p host-waits=1"},
    /* The same where nothing used the stream that is gone since: its memory is like any other's. */
    {"a_stream_that_left_nothing_open_is_not_waited_for", TOGETHER,
     "{granule:16 cap:2 may-end} +z.3=1@A -z.3@A kA vA +z.3=512b@A -z.3@A lost-streams=0 T:0 "
     "released=1 host-waits=0"},
    /* What is lost is no memory to wait for on the device: another stream's is. */
    {"what_is_lost_bars_no_wait_on_the_device", TOGETHER,
     "{granule:16 cap:4} +p=32k@A +*=32k +q=3@B hB -p@A kA!U T:0 released=0 -q@B +a.2=32k@C "
     "at:a.2=q waits=1 host-waits=0"},
    /* Nothing completes any more that would tell of such a free: the next request that needs
       memory finds it. Nobody had to wait for it. */
    {"a_free_that_waits_for_what_is_done_is_found", TOGETHER,
     "{granule:16 cap:4} +p=1@C rp@D fD T:0 -p@C +p=1@C/g pending=0 host-waits=0 -p@C"},
    /* A stream of which the driver says that it is gone, as its capture is to begin. */
    {"no_capture_begins_on_a_stream_that_is_gone", TOGETHER,
     "{granule:16 cap:8} P0 +z.3=32k@A -z.3@A kA!U BA:0/0!R EA!I D0"},
    /* The legacy stream never ends, so it is asked nothing and needs no event, but when the second
       stream closes the first one's epoch. */
    {"each_free_is_fenced_but_on_the_legacy_stream", TOGETHER,
     "{granule:16 cap:4 may-end} +z.3=512b -z.3 mark +z.3=512b -z.3 all-calls=0 events=0 [2 "
     "+z.3=512b@A -z.3@A ] events=3"},
    /* A stream that stays costs what it costs in a lake without the flag, until it is forgotten.
       That it is urgent is something else. */
    {"a_stream_that_stays_is_asked_and_fenced_as_others", TOGETHER,
     "{granule:16 cap:4 may-end} +*=512b@B mA:3 mA:2 +z.3=512b@A -z.3@A mark +z.3=512b@A -z.3@A "
     "all-calls=0 events=0 fA events=1 kA vA +z.3=512b@A -z.3@A events=2"},
    /* What it freed since its last event can be had behind a wait: it may be fenced at any time. */
    {"a_stream_that_stays_is_fenced_by_others", TOGETHER,
     "{granule:16 cap:1 may-end} mA:3 +p=1-512b@A +*=512b@B hA -p@A events=0 +a.2=1-512b@B "
     "at:a.2=p waits=1 host-waits=0 eA"},
    /* Freed on a value that no stream has: pending for the whole device, under one number. */
    {"a_free_on_a_stream_that_is_gone", TOGETHER,
     "{granule:16 cap:4 may-end} +p-r=1@A +*=512b@B kA -p@A numbers-used=2 -qr@A numbers-used=2 "
     "lost-streams=1 T:0 released=0 +a.2=3@B at:a.2=p host-waits=1 lost-streams=0"},
    /* To forget a value is not to forget the stream that had it before. */
    {"a_stream_is_forgotten_under_a_former_ones_value", TOGETHER,
     "{granule:16 cap:2 may-end} +p=1@A hA -p@A kA vA fA live-streams=0 kA vA +q=1@A off:q=p fA "
     "kA vA fA"},
    /* Nobody said that streams may end, and the driver says that one has: the others go on. In the
       end there is all, after a wait for the whole device. */
    {"a_stream_found_destroyed_is_left_out", TOGETHER,
     "{granule:16 cap:4} +p=32k@A +q=2@B hA -p@A -q@B kA!U T:0 released=2 error!R Q at-work=32k "
     "idle=32k host-waits=0 +q=4@B host-waits=1 -q@B"},
    /* One call records on three streams: two of them are gone. */
    {"two_streams_are_found_destroyed", TOGETHER,
     "{granule:16 cap:4} +p=32k@A +q=32k@B +r=32k@C -p@A -q@B -r@C kA!U kB!U T:0 lost-streams=2 "
     "error!R +*=4@C lost-streams=0"},
    /* A capture forbids to wait for the device; the others' memory is waited for. */
    {"the_device_is_not_waited_for_in_a_capture", TOGETHER,
     "{granule:16 cap:2} P0 +p=1@A -p@A kA!U T:0 released=0 BB:0/0 +*=2!O EB +a.2=2 at:a.2=p"},
    /* Memory that could not be waited for is as it was. */
    {"a_wait_for_the_device_fails", TOGETHER,
     "{granule:16 cap:2} +p=1@A -p@A kA!U fail:device-wait=1R* T:0 released=0 +*=2!R "
     "lost-streams=1 destroy!R"},
    /* No chunk can be created, then the host cannot wait: the ladder tells what failed first,
       however many slow steps fail behind it, but for what ends the lake. */
    {"of_failed_steps_the_first_is_told", TOGETHER,
     "{granule:16 cap:8} +p=1@A hA -p@A fail:create=1R fail:wait=1R* +q=1@n!R told-call=create "
     "fail:any=0R fail:create=1R fail:wait=1G +q=1@n!G told-call=wait destroy!G"},
    {"pool_destroy_ends_where_a_capture_begins_meanwhile", TOGETHER,
     "{granule:16 cap:8} P0 +y=512b@B +x=1@A/0 -x@A hA +z=1@A/0 -z@A in:wait=1( BB:0/0 ) D0!C "
     "says:1_captures_into_the_pool_are_under_way:_end_them_first EB D0"},
    {"destroy_during_a_capture_frees_everything", TOGETHER,
     "{granule:16 cap:8} P0 BA:0/0 +p=1@A -p@A +q=2@A destroy"},
    /* ---- Memory ahead ---- */

    {"what_is_reserved_serves", TOGETHER,
     "{granule:16 cap:16} Y:11-5b reserved=11 chunks=11 mark +a=11 pieces:a=1 calls=0"},
    {"what_is_there_is_not_created_again", TOGETHER,
     "{granule:16 cap:16} +a=3 Y:8 mark Y:8 all-calls=0 Y:2 Y:0 reserved=8"},
    {"no_more_is_reserved_than_there_is", TOGETHER,
     "{granule:16 cap:16} Y:18446744073709551615b reserved=16 Y:18446744073709551615b"},
    {"limits_hold_for_what_is_reserved", TOGETHER,
     "{granule:16 cap:16 limit:6+1b} Y:16 reserved=6 failures=0"},
    {"what_an_integrated_device_has_is_what_the_system_has", TOGETHER,
     "{granule:16 cap:16 integrated keep:4} Q device-free=12 allocatable=8 Y:16 reserved=8 "
     "Q device-free=4 +a=9!L told-driver-free=4"},
    /* ---- Admission ---- */

    {"what_is_admitted_is_served", TOGETHER,
     "{granule:16 cap:16} Y:4,2*3@A lacking=0 reserved=14 active=0 live=0 splits=0 state=0 mark "
     "+a-c=4@A +d=2@A calls=0 I"},
    {"what_is_admitted_is_beside_what_lives", TOGETHER,
     "{granule:16 cap:16} +p=2@A +q=6@A -p@A Y:2,8*1@A reserved=16 mark +p=2@A +r=8@A calls=0 "
     "+s=512b@A!O"},
    /* But it is that pool's, whoever asks there. */
    {"it_is_not_returned_until_it_ends", TOGETHER,
     "{granule:16 cap:16} Y:4*3@A T:0 released=0 +a=8@B T:0 released=0 -a@B Y:0*1@A lacking=0 "
     "T:0 released=12"},
    {"want_of_memory_elsewhere_does_not_take_it", TOGETHER,
     "{granule:16 cap:16} P0 P1 Y:8*1@A/0 +b=9@B/1!O q=8@B/1 foretold q=9@B/1 foretold!O +b=8@B/1 "
     "Q allocatable=0 mark +a=8@A/0 calls=0 -a@A Y:0*1/0 -b@B +b=12@B/1"},
    {"a_buffer_of_other_chunks_does_not_take_it", TOGETHER,
     "{granule:16 cap:16} N0:8^2 Y:5*3@A z0:2@A!O Y:0*1 z0:2@A"},
    {"a_buffer_of_its_chunks_has_it", TOGETHER,
     "{granule:16 cap:16} N0:8 Y:8*1@A/x mark z0:8@A grown=0"},
    {"its_own_pool_does_not_trade_it_for_other_places", TOGETHER,
     "{granule:16 cap:8 arena:16} +a-h=1@A -aceg@A Y:1*4@A +w=2@A/s!O Y:0*1@A +w=2@A/s"},
    /* Then nothing is created, and nothing waited for: the driver says how much is free. */
    {"more_than_there_can_be_is_not_admitted", TOGETHER,
     "{granule:16 cap:16} hA +z=4@A -z@A mark Y:4*5@A!O lacking=4 grown=0 host-waits=0 calls=1 "
     "says:262144_bytes_too_many:_free_as_many Y:4,512b*4@A!O lacking=512b failures=0 T:0"},
    /* The caller decides what has to give way: the judge says no to a handler that runs. */
    {"no_handler_is_asked_for_an_admission", TOGETHER,
     "{granule:16 cap:8 oom} +a=4 Y:5*1!O lacking=1 says:65536_bytes_too_many:_free_as_many"},
    {"limits_hold_for_what_is_admitted", TOGETHER,
     "{granule:16 cap:16 limit:8} Y:4*3@A!L lacking=4 reserved=0 Y:4*5@A!O lacking=12 Y:4*2@A"},
    {"what_is_admitted_leaves_memory_for_others", TOGETHER,
     "{granule:16 cap:16 keep:8} Y:4*3@A!L lacking=4 reserved=0 Y:4*2@A reserved=8"},
    {"what_was_created_in_vain_is_returned_by_trim", TOGETHER,
     "{granule:16 cap:16} P0:4 Y:3*2@A/0!L lacking=3 reserved=3 T:0 released=3 Y:2*2@A/0 T:0 "
     "released=0"},
    {"without_growth_what_is_held_is_asked", TOGETHER,
     "{granule:16 cap:16} Y:4*1@A/g!O lacking=4 reserved=0 Y:4 Y:4*1@A/g Y:2*3@A/g!O lacking=2"},
    {"holes_that_serve_no_block_do_not_count", TOGETHER,
     "{granule:16 cap:8 arena:8} +a-h=1@A -aceg@A Y:2*1@A/s!O lacking=2 Y:2*2@A"},
    {"the_host_waits_for_what_is_admitted", TOGETHER,
     "{granule:16 cap:8} +a=8@A hA -a@A Y:8*1@n host-waits=1 reserved=8 mark +b=8@n calls=0"},
    {"a_stream_waits_for_what_is_admitted", TOGETHER,
     "{granule:16 cap:8} " KNOWN "+a=8@A hA -a@A Y:8*1@B waits=1 host-waits=0 eA"},
    {"a_capture_has_what_is_admitted_in_it", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 Y:4*2@A mark +a-b=4@A grown=0 -a-b@A EA"},
    {"what_is_admitted_sleeps", TOGETHER,
     "{granule:16 cap:16} +p=1@n Y:4*1@n Sn:d released=5 Y:4*1@n!A Wn Y:5 reserved=5 T:0 "
     "released=4"},
    /* With the chunks that the list got a part of the end is set aside for small blocks. */
    {"what_is_admitted_is_tried_again_with_its_chunks", TOGETHER,
     "{granule:16 cap:128} +r=32+62k Y:2k,2*1 mark +a=2k +b=2 grown=0"},
    /* What sleeps is live, and holds nothing. */
    {"others_sleep_beside_what_is_admitted", TOGETHER,
     "{granule:16 cap:16} P0 +p=4@n/0 S0:d +a=2@n Y:10@n reserved=10 Y:4*3@n lacking=0 reserved=14 "
     "Y:0*1@n W0"},
    /* ---- Marked streams ---- */

    /* But others wait for it. */
    {"communication_is_never_made_to_wait", TOGETHER,
     "{granule:16 cap:32 wait-first} " KNOWN "mB:1 +a=4@A hA -a@A +b=4@B waits=0 -b@B eA +c=3@B hB "
     "-c@B +d=7@A waits=1 eB"},
    {"where_memory_is_short_the_host_waits_instead", TOGETHER,
     "{granule:16 cap:6 wait-first} " KNOWN "mB:1 +a=4@A hA -a@A +b=5@B waits=0 host-waits=1"},
    {"the_urgent_wait_for_the_urgent_alone", TOGETHER,
     "{granule:16 cap:32 wait-first} " KNOWN "mB:2 +a=4@A hA -a@A +b=4@B waits=0 -b@B mA:2 +c=8@B "
     "waits=1 eA"},
    {"a_mark_can_be_taken_off", TOGETHER,
     "{granule:16 cap:32 wait-first} " KNOWN "mB:1 mB:0 +a=4@A hA -a@A +b=4@B waits=1 eA"},
    {"a_mark_ends_with_its_stream", TOGETHER,
     "{granule:16 cap:32 wait-first} " KNOWN
     "mB:1 fB kB vB T:999 +z.3=512b@B -z.3@B +a=4@A hA -a@A +b=4@B "
     "waits=1 eA"},
    {"a_stream_may_be_marked_before_it_is_used", TOGETHER,
     "{granule:16 cap:32 wait-first} " KNOWN "mC:1 m0:2 +a=4@A hA -a@A +b=4@C waits=0 eA"},
    /* ---- Bugs that models, faults, fuzzing and reviews found ---- */

    /* What only follows the exchange had not been tried, yet every window was given up for good. */
    {"a_failed_exchange_gives_up_no_window", TOGETHER,
     "{granule:16 cap:4} +z.3=4@n -z.3@n +a-d=1 -ac +w=2 pieces:w=2 -w fail:exchange=1R T:0!R "
     "fail:exchange=0R quarantined=0 T:0 windows=0 +a=1 +c=1 -ac +w=2 pieces:w=2 -w "
     "fail:exchange=2R T:0 fail:exchange=0R quarantined=0 T:0 windows=0 +a=1 +c=1 -ac +w=2 "
     "pieces:w=2 -w fail:exchange=3R T:0!R fail:exchange=0R quarantined=0 T:0 windows=0 +a=1 "
     "+c=1 -ac +w=2 pieces:w=2 -w fail:exchange=4R T:0 fail:exchange=0R quarantined=0 T:0 "
     "windows=0 +a=1 +c=1 -ac +w=2 pieces:w=2 -w fail:exchange=5R T:0!R fail:exchange=0R "
     "quarantined=0 T:0 windows=0 +a=1 +c=1 -ac +w=2 pieces:w=2 -w fail:exchange=6R T:0 "
     "fail:exchange=0R quarantined=0 T:0 windows=0"},
    /* A backend's INVALID_ARGUMENT came out as if the caller had been wrong. */
    {"trim_blames_the_driver", TOGETHER,
     "{granule:16 cap:4} +z.3=1 -z.3 fail:unmap=1I T:0!R error!R"},
    {"creating_a_pool_blames_the_driver", TOGETHER,
     "{granule:16 cap:4} mark fail:reserve=1I P0!R error!R"},
    /* Create is done again where it fails. */
    {"creating_a_lake_blames_the_driver", TOGETHER, "{granule:16 cap:4} fail:reserve=1I"},
    /* INVALID_ARGUMENT means that it has live blocks; of a record, that the stream is gone, whose
       work is waited for with the whole device's. */
    {"destroying_a_pool_blames_the_driver", TOGETHER,
     "{granule:16 cap:8} P0 hA +x=1@A/0 -x@A fail:record=1I D0 error!R"},
    {"destroying_a_pool_that_waits_blames_the_driver", TOGETHER,
     "{granule:16 cap:8} P0 hA +x=1@A/0 -x@A fail:wait=1I D0!R D0 error!R"},
    /* It answered the driver's error, though the pool was gone: trying again was a use after free.
       */
    {"a_pool_whose_memory_stays_is_destroyed", TOGETHER,
     "{granule:16 cap:8} P0 +z.3=1/0 -z.3 fail:unreserve=1R D0 quarantined=0 P0 +z.3=1/0 -z.3 "
     "fail:unmap=1R D0 quarantined=1 P0 +z.3=1/0 -z.3 fail:release=1R D0 quarantined=2"},
    /* Its chunks counted as returned, though the window that stayed mapped kept their memory. */
    {"a_pool_whose_window_stays_keeps_its_chunks", TOGETHER,
     "{granule:16 cap:8} P0 +a-d=1/0 -ac +w=2/0 pieces:w=2 -wbd fail:unmap=1R D0 quarantined=2"},
    {"a_lost_device_is_told_once", TOGETHER,
     "{granule:16 cap:8} mark fail:any=2G* P0!G errors-told=1 fail:any=0R destroy!G"},
    /* The handler asks for a block, and may not. */
    {"the_last_error_is_not_the_handlers", TOGETHER,
     "{granule:16 cap:8 oom} +*=9!O error!O told-asked=9"},
    /* The lake's reservation and the pool's. */
    {"pools_reserve_nothing_for_windows", TOGETHER,
     "{granule:16 cap:8} P0 +z.3=1/0 -z.3 reservations=2 D0 reservations=1"},
    /* Its addresses were given back with a mapping left in them, against the table's own pre: that
       would be a fifth call. */
    {"addresses_stay_while_anything_is_mapped_there", TOGETHER,
     "{granule:16 cap:8} P0 +z.3=1/0 -z.3 mark fail:unmap=1R D0 calls=4 reservations=2"},
    /* Host memory lacked, the device was lost while that was undone, and the answer hid it. */
    {"a_pool_that_loses_the_device_says_so", TOGETHER,
     "{granule:16 cap:8} mark fail:unreserve=1G host:1 P0!H host:6 P0!H host:7 P0!G error!G "
     "destroy!G"},
    /* gmlake_check looked into its chunks, which it never got. */
    {"a_pool_that_never_became_one_is_checked", TOGETHER,
     "{granule:16 cap:8} mark fail:unreserve=1R host:1 P0!H host:2 P0!H host:3 P0!H host:4 P0!H "
     "host:5 P0!H host:6 P0!H host:7 P0!H reservations=2 host:8 P0 host:0 D0"},
    /* Its quarantined chunk was released behind the arena's end, and gmlake_check missed it there.
       */
    {"a_dead_pool_may_have_released_its_quarantine", TOGETHER,
     "{granule:16 cap:8} P0 fail:map=1R fail:release=1R +*=1/0!R quarantined=1 fail:unreserve=1R "
     "D0 quarantined=0"},
    {"the_last_error_is_that_of_the_last_call_that_failed", TOGETHER,
     "{granule:16 cap:4} error +p=1 -p -p!D error!D +q=1 error!D host:1* P0!H error!H "
     "told-by:malloc "
     "says:_bytes_for_the_lake's_records"},
    {"windows_lie_side_by_side", TOGETHER,
     "{granule:16 cap:16} +a-e=1 -bd +w=2 -ace +x=3 windows=2 at:x=w+2"},
    /* Ownerships were numbered by arena, but block records are the lake's: what a pool took in the
       record of a block that had been in a window's way was held to be that block. */
    {"a_pools_block_is_in_no_home_windows_way", TOGETHER,
     "{granule:16 cap:16} P0 +a-d=1 -ac +w=2 pieces:w=2 -w [20 +*=512b/0 +p=512b +x=2/g!O -p "
     "+*=512b/0 mark +x=2/g reuses=1 -x ]"},
    /* A chunk's worth of 512-byte grains less 6, of which each hole is one, begins misaligned in
       them. Best fit does not see the new chunk, in the gap, behind the holes. One is enough
       nonetheless. */
    {"one_growth_serves_what_best_fit_overlooks", TOGETHER,
     "{granule:16 cap:32} +z=25@n -z@n +y=1@n [24 +*=512b@n +*=61k@n +*=2560b@n ] reserved=25 "
     "-y@n T:0 released=1 "
     "-s.3p.3m.3j.3g.3d.3a.3x.2u.2r.2o.2l.2i.2f.2c.2z.1w.1t.1q.1n.1k.1h.1e.1b.1@n mark "
     "+z=61k@n/s^4k grown=1"},

    /* ---- Growing buffers ---- */

    /* though the stream has work that no event covers yet */
    {"a_resize_within_a_chunk_calls_no_driver", BOTH,
     "{granule:16 cap:16} N0:8 z0:2@A +z.3=1@A -z.3@A mark z0:2-1b@A z0:1+1b@A z0:2@A calls=0 K0"},
    {"a_pools_buffers_take_what_is_free_outside", BOTH,
     "{granule:16 cap:16} P0 +z.3=6@A -z.3@A N0:8/0 z0:6@A reserved-peak=6 inside:0=6 K0"},
    /* in the order in which a block would be served */
    {"what_pools_have_free_comes_behind_a_wait", BOTH,
     "{granule:16 cap:8} P0 +z.3=6@A/0 -z.3@A +r=1@B hB -r@B N0:8 z0:4@A host-waits=1 eB"},
    /* whoever comes second takes what the first gave up */
    /* A program that takes turns with chunks maps each once at each place. Calls: events. */
    {"a_chunk_that_is_wanted_comes", BOTH,
     "{granule:16 cap:3} N0:4 N1:4 want:*** C0:1,3 came:012 d0:1,3 want:210 C1:0,3 came:210 d1:0,3 "
     "mark [3 want:012 C0:1,3 came:012 d0:1,3 want:210 C1:0,3 came:210 d1:0,3 ] all-calls=12 "
     "mapped=6"},
    /* What is memory already needs no driver, whatever is wanted there. */
    {"wishes_for_what_is_there_cost_nothing", BOTH,
     "{granule:16 cap:2} N0:4 want:** C0:0,2 came:01 mark want:1x C0:0,2 came:01 all-calls=0 "
     "mapped=2"},
    /* What a place maps stays there while work may use it. */
    {"what_is_in_use_stays_mapped", BOTH,
     "{granule:16 cap:2} N0:4 want:** C0:0,2 came:01 h0 d0:0,2 want:1* C0:0,2 came:01 mapped=2"},
    /* What is wanted twice one gets. */
    {"what_is_not_free_is_not_given", BOTH,
     "{granule:16 cap:3} N0:4 N1:4 want:** C0:0,2 came:01 want:1 C1:0,1 came:2 d0:1,1 want:x0 "
     "C1:0,2 came:21 d1:0,2 want:11 C1:0,2 came:12"},
    {"blocks_and_buffers_share", BOTH,
     "{granule:16 cap:64} N0:16 [3 z0:10 z0:0 +z.3=10 -z.3 reserved-peak=10 ] K0"},
    /* and takes it back without a call once the other one has given it up */
    {"what_a_buffer_gave_up_serves_another_one_of_the_stream", BOTH,
     "{granule:16 cap:16} N0:8 N1:8 z0:4@A hA z0:1@A z1:2@A handles=4 host-waits=0 z1:0@A mark "
     "z0:4@A calls=0 eA"},
    /* pending as it is; who had it waits before the address can show anything else */
    {"at_the_limit_a_stream_takes_its_own_pending_chunks", BOTH,
     "{granule:16 cap:16 limit:4} N0:8 N1:8 z0:4@A hA z0:2@A z1:2@A handles=4 host-waits=0 "
     "z0:3@A!L z1:0@A z0:4@A host-waits=1"},
    {"what_has_completed_is_taken_before_anything_is_returned", BOTH,
     "{granule:16 cap:2} N0:2 N1:2 z0:2@A hA z0:0@A eA mapped=2 z1:1 mapped=3 handles=2"},
    /* its event could not be recorded */
    {"what_nobody_knew_to_be_complete_is_found_before_anything_is_returned", BOTH,
     "{granule:16 cap:2} N0:2 N1:2 z0:2 fail:record=1R z0:0 mapped=2 z1:1 mapped=3 handles=2"},
    {"no_stream_takes_complete_memory_and_waits_for_it", BOTH,
     "{granule:16 cap:16} N0:8 N1:8 z0:2@A hA z0:0@A z1:1@n handles=3 host-waits=0 mapped=3 "
     "z0:1@n host-waits=1 mapped=3 z0:0@n z1:2@A handles=3"},
    {"waiting_first_takes_what_is_pending_before_it_grows", BOTH,
     "{granule:16 cap:16 wait-first} N0:8 N1:8 z0:2@A hA z0:0@A z1:1@A z1:2@B handles=2 waits=1 "
     "eA"},
    {"trim_returns_what_is_complete", BOTH,
     "{granule:16 cap:16} N0:8 N1:8 z0:4 z1:2@A hA z0:1 z1:0@A T:5 released=1 T:0 released=2 "
     "handles=3 mapped=3 eA T:0 released=2 mapped=1 host-waits=0 z0:3 handles=3"},
    /* B waits for A; the chunk goes only when no buffer that maps it may still use it */
    {"trim_spares_a_chunk_that_somebody_may_still_read", BOTH,
     "{granule:16 cap:16 limit:1} N0:8 N1:8 z0:1@A hA z0:0@A z1:1@B waits=1 z1:0@n mapped=2 T:0 "
     "released=0 eA T:0 released=1 mapped=0"},
    /* the last one unmaps what the destroyed one left */
    {"destroyed_buffers_leave_chunks_and_then_addresses", BOTH,
     "{granule:16 cap:16} N0:4 z0:4@A hA K0@A buffers=0 N1:4 mapped=4 eA z1:4@A handles=4 "
     "mapped=8 N2:4 mapped=4"},
    {"create_learns_what_destroyed_buffers_wait_for", BOTH,
     "{granule:16 cap:16} N0:2 z0:2@A hA K0@A N1:1 mapped=2 eA N2:1 mapped=0"},
    /* 3 chunks and a byte give up no chunk */
    {"a_captured_stream_grows_and_does_not_shrink", BOTH,
     "{granule:16 cap:16} N0:8 z0:2@A z0:1@A P0 BA:0/0 z0:2@A z0:4@A z0:3@A!C K0@A!C "
     "buffer-bytes=4 z0:3+1b@A z0:1@n z0:8@A EA K0"},
    /* the mapping in the way was used on a stream that cannot be asked for the end of it */
    {"a_capture_forbids_to_wait_for_a_use", BOTH,
     "{granule:16 cap:16 limit:2} N0:8 N1:8 P0 z1:1@n z1:0@n z0:2@A BB:0/0 z0:1 z1:1 z0:2@A!C "
     "buffer-bytes=2 EB z1:0 z0:2@A"},
    /* though the stream has freed more since */
    {"a_use_that_was_fenced_before_a_capture_is_waited_for", BOTH,
     "{granule:16 cap:16} N0:8 P0 +p=512b@A z0:1@A hA z0:0@A BA:0/0 -p@A z0:1@n host-waits=1 EA"},
    {"the_budget_sees_what_buffers_gave_up", TOGETHER,
     "{granule:16 cap:16} N0:8 z0:4@A hA z0:1@A Q at-work=3 idle=0 eA Q at-work=0 idle=3 "
     "reserved=4 allocatable=15 +z.3=15 -z.3"},
    /* one chunk was enough */
    {"blocks_get_what_buffers_gave_up", TOGETHER,
     "{granule:16 cap:16 limit:8} N0:8 z0:8 +p=1!L z0:3 +p=5 handles=8 z0:4!L -p z0:4 handles=8 "
     "z0:8 handles=8"},
    /* at the same addresses */
    {"it_grows_in_place_and_keeps_its_bytes", BOTH,
     "{granule:16 cap:16} N0:8 z0:1 z0:2 z0:3 z0:4 z0:5 z0:6 z0:7 z0:8 z0:3 end:0=3 K0"},
    {"the_figures_count_buffers", BOTH,
     "{granule:16 cap:16} N0:8 +p=100b z0:3+1b requested=3+101b active=4+512b buffer-bytes=4 "
     "live=1 z0:1-1b -p requested=1-1b active=1 buffer-bytes=1 buffer-bytes-peak=4 "
     "requested-peak=3+101b K0 requested=0 active=0"},
    /* Only as much as is needed, and of whole chunks: half a chunk is free, so that a window is
       completed by three; what the large one takes comes from the blocks and the other buffer,
       which has to make its own anew. */
    {"what_is_shared_is_what_is_needed", TOGETHER,
     "{granule:16 cap:64} N0:16 N1:16^4 +p=32k z0:10 z0:2 +z.3=3 -z.3 reserved-peak=11 "
     "reserved=11 z1:4 reserved=11 z1:8 reserved=11 z0:10 reserved=19 -p K1 K0"},
    /* What work may still use stays where it is, and nobody waits for it; a pool's is the pool's.
       At the end it takes the four that are still mapped in it, behind a wait on the device. */
    {"what_is_in_use_is_not_shared", TOGETHER,
     "{granule:16 cap:64} P0 +z.3=4/0 -z.3 N0:16 z0:4@A reserved=8 hA z0:0@A +z.3=4 -z.3 "
     "reserved=12 host-waits=0 waits=0 eA +z.3=8 -z.3 reserved=12 h0 +z.3=8 -z.3 z0:8@A "
     "reserved=16 waits=1 host-waits=0 e0 D0"},
    /* which were returned for the blocks where these have other chunks */
    {"what_is_in_use_is_not_shared_apart", APART,
     "{granule:16 cap:64} P0 +z.3=4/0 -z.3 N0:16 z0:4@A reserved=8 hA z0:0@A +z.3=4 -z.3 "
     "reserved=12 host-waits=0 waits=0 eA +z.3=8 -z.3 reserved=12 h0 +z.3=8 -z.3 z0:8@A "
     "reserved=20 waits=0 host-waits=0 e0 D0"},
    /* A query, four maps, one set_access. What is mapped in the first one is the other one's by
       then: unmapped, and another chunk takes its place. */
    {"complete_chunks_serve_other_buffers_first", BOTH,
     "{granule:16 cap:16} N0:8 N1:8 z0:4 z0:0 mark z1:4 calls=6 handles=4 mapped=8 z0:1b "
     "handles=5 mapped=8 host-waits=0"},
    /* Two addresses of a buffer may show one chunk; only one of them can have it. */
    {"a_buffer_does_not_take_a_chunk_twice", BOTH,
     "{granule:16 cap:16} N0:8 N1:8 z0:2 z0:0 z1:1 z0:1 handles=2 z0:0 z0:2 handles=3"},
    /* the other one has the chunk that is mapped there, or another has */
    {"the_host_waits_to_unmap_and_only_then", BOTH,
     "{granule:16 cap:16 limit:4} N0:8 N1:8 z0:3@A hA z0:0@A z1:4@A z1:1@A z1:4@A z1:1@A "
     "host-waits=0 z0:1@A +p=1@A"},
    /* Each attempt that failed is counted, whatever it failed for. */
    {"a_growth_that_the_driver_refuses_is_counted", BOTH,
     "{granule:16 cap:4} N0:8 fail:create=1R* z0:1!R failures=0 fail:create=0R z0:8!O "
     "failures=1 fail:info=1G z0:8!G failures=1 destroy!G"},
    /* The legacy stream's uses: of the former the end was fenced, of the other it cannot be. */
    {"a_use_in_a_capture_is_not_waited_for", BOTH,
     "{granule:16 cap:16} N0:8 P0 z0:2 h0 z0:1 BA:0/0 z0:0 z0:1@n!C host-waits=1 mapped=2 EA "
     "z0:1@n"},
    /* numbers of streams serve again */
    {"forgotten_streams_are_waited_for_too", BOTH,
     "{granule:16 cap:32} N0:8 [13 z0:4@A hA z0:1b@A fA eA kA vA z0:4@A hA z0:1+1b@A fA eA kA "
     "vA z0:4@A hA z0:2+1b@A fA eA kA vA ] z0:4@A hA z0:1b@A fA eA kA handles=4 T:0 released=3 "
     "K0"},
    /* Numbers of streams are looked for while A is at work where a chunk was mapped first, which
       was taken by another buffer since then, and given back as clean. */
    {"a_use_outlasts_other_streams", TOGETHER,
     "{granule:16 cap:32 limit:5} N0:8 N1:8 +p=512b z0:4@A hA z0:0@A z1:4@A z1:0@n [32 "
     "+z.3=512b@C -z.3@C fC kC vC ] T:0 released=0 mapped=8 eA T:0 released=4"},
    {"a_use_outlasts_other_streams_apart", APART,
     "{granule:16 cap:32 limit:6} N0:8 N1:8 +p=512b z0:4@A hA z0:0@A z1:4@A z1:0@n [32 "
     "+z.3=512b@C -z.3@C fC kC vC ] T:0 released=0 mapped=8 eA T:0 released=4"},
    /* The only chunk was used on another stream: a captured one is not made to wait for it, the
       host is. */
    {"a_captured_stream_waits_for_no_other", TOGETHER,
     "{granule:16 cap:16 limit:2} N0:8 N1:8 P0 z1:1@A +p=512b@B hA z1:0@A BB:0/0 z0:1@B "
     "waits=0 host-waits=1 EB -p@B K0"},
    /* A chunk that cannot be had is asked for by slow steps alone: three calls are made to create
       it. */
    {"a_growth_in_vain_asks_no_second_time", BOTH,
     "{granule:16 cap:2} N0:8 z0:2 mark z0:3@n!O calls=5 z0:0 z0:2"},
    /* What another stream used turns out to be complete, then the device to be lost: what could be
       had without the driver is not taken. */
    {"a_growth_that_finds_the_device_lost", TOGETHER,
     "{granule:16 cap:16} N0:8 z0:4@A +p=1@B z0:0@A -p@B fail:query=2G z0:4@C!G destroy!G"},
    /* Three chunks are mapped for blocks first. */
    {"what_cannot_be_undone_is_quarantined_until_it_can", TOGETHER,
     "{granule:16 cap:16} N0:8 z0:1 fail:access=4N fail:unmap=2N z0:4!N quarantined=1 mapped=2 "
     "end:0=1 fail:unmap=1N z0:4!N quarantined=1 z0:4 quarantined=0 mapped=4"},
    {"what_cannot_be_undone_is_quarantined_until_it_can_apart", APART,
     "{granule:16 cap:16} N0:8 z0:1 fail:access=1N fail:unmap=2N z0:4!N quarantined=1 "
     "mappings=2 end:0=1 fail:unmap=1N z0:4!N quarantined=1 z0:4 quarantined=0 mappings=4"},
    {"trim_tries_quarantined_mappings_again_apart", APART,
     "{granule:16 cap:16} N0:8 z0:1 fail:access=1N fail:unmap=1N* z0:3!N quarantined=2 T:0!N "
     "handles=3 fail:unmap=0N T:0 released=2 quarantined=0 mappings=1"},
    {"a_mapping_that_does_not_go_stops_growth", BOTH,
     "{granule:16 cap:16} N0:8 N1:8 z0:1 z0:0 z1:1 fail:unmap=1N z0:1!N end:0=0 quarantined=0 "
     "z0:1"},
    {"shrinking_survives_an_event_that_fails", BOTH,
     "{granule:16 cap:16} N0:8 z0:3 fail:record=1N z0:1 T:0 released=2"},
    {"a_stream_that_cannot_be_made_to_wait_leaves_the_host_to", BOTH,
     "{granule:16 cap:16} N0:8 z0:1 z0:2@A hA z0:1@A fail:stream-wait=1N z0:2@B host-waits=1 "
     "handles=2 z0:1@A fail:stream-wait=1N fail:wait=1N hA z0:2@B!N end:0=1 eA"},
    {"a_lost_device_answers_questions_only", BOTH,
     "{granule:16 cap:16} N0:8 z0:1 fail:map=2G z0:4!G end:0=1 z0:0!G K0!G N1:1!G destroy!G"},
    /* at the end a quarter of the addresses will do */
    {"addresses_may_lack", BOTH,
     "{granule:16 cap:16} T:0 fail:reserve=1N N0:1!N fail:reserve=1O* N0:1!O fail:reserve=0O "
     "fail:reserve=1O N0:4 z0:4"},
    {"the_peak_of_buffers_is_reset", BOTH,
     "{granule:16 cap:16} N0:8 z0:4 z0:1-1b buffer-bytes-peak=4 reset-peaks buffer-bytes-peak=1 "
     "K0"},
    {"a_growth_that_fails_leaves_the_buffer_as_it_was", BOTH,
     "{granule:16 cap:16 limit:4} N0:16 N1:16 z0:1 z1:1 z0:6!L told-asked=5 told-limit=4 "
     "told-pool=0 told-live=2 end:0=1 buffer-bytes=2 failures=1 z1:3"},
    {"addresses_of_destroyed_buffers_are_waited_for", TOGETHER,
     "{granule:16 cap:2 extent:2} N0:16 z0:1@A +y=512b@B -y@B fail:reserve=1O* N1:16!O hA K0@A "
     "N1:16 host-waits=1 z1:1@A K1@n N2:16"},
    /* Devices 1 and 2 may use every mapping, at home, in a window and in a buffer; the judge looks
       at each. */
    {"peers_reach_every_mapping", BOTH,
     "{granule:16 cap:16 peers:2} P0 N0:4 N1:4 +z.3=4@n -z.3@n +a-d=1 -ac +w=2 +p=3/0 z0:2 z0:0 "
     "z1:3 K0 K1 -wpbd D0"},
    /* ---- Sleep ---- */

    /* others are awake; of what is in no pool a buffer of other chunks sleeps, too, that is made
       meanwhile: it has addresses only */
    {"what_sleeps_serves_no_memory", TOGETHER,
     "{granule:16 cap:64} P0 N0:8 z0:3 +a=1 +p=2/0 S0:k released=2 +q=1/0!A +q=40/0x!A BA:0/0!A "
     "+z.3=1 -z.3 z0:4 Sn:d +q=1!A c0:5,1!A z0:5!A N1:8^4 z1:1!A c1:0,4!A c1:0,0!A Wn z1:1 +q=1 "
     "c0:5,1 W0 holds:p=1 +z.3=1/0 -z.3"},
    {"to_give_back_is_legal_asleep", TOGETHER,
     "{granule:16 cap:64} P0 N0:8/0 c0:0,4 +p=2/0 +q=2/0 S0:k released=8 sleeping=8 -q d0:1,1 "
     "z0:3 T:0 released=0 W0 sleeping=0 inside:0=4 holds:p=1 -p K0 D0 reserved=0"},
    {"what_is_awake_wakes", TOGETHER | WIDE,
     "{granule:16 cap:64} P0 Wn W0 +p=1/0 S0:k released=1 S0:k released=0 S0:d released=0 W0 W0 "
     "Sn:k released=0 Wn"},
    {"a_pool_that_is_captured_into_stays_awake", TOGETHER | WIDE,
     "{granule:16 cap:64} P0 P1 +p=2/0 BA:0/0 S0:d!C released=0 Sn:d released=0 Wn EA BB:1/1 "
     "S0:k released=2 W0 EB holds:p=1"},
    {"waking_takes_what_others_have_free", TOGETHER | WIDE,
     "{granule:16 cap:8} P0 +p=6/0 S0:k +q=7@A W0!O told-asked=6 +r=1@B hA -q@A W0 holds:p=1 "
     "holds:r=1 host-waits=1"},
    {"waking_takes_what_is_complete_before_it_waits", TOGETHER | WIDE,
     "{granule:16 cap:8} P0 +p=6/0 S0:k +q=6@A +r=1@B hB -r@B -q@A W0 holds:p=1 host-waits=0"},
    {"waking_during_a_capture_waits_for_others", TOGETHER | WIDE,
     "{granule:16 cap:8} P0 P1 +p=6/0 S0:k +q=1 +r=6@A hA BC:1/0 -q -r@A W0 holds:p=1 "
     "host-waits=1 EC"},
    {"what_fails_while_waking_makes_room_is_told", TOGETHER | WIDE,
     "{granule:16 cap:8} P0 +p=6/0 S0:k +q=7@A hA -q@A fail:wait=1R W0!R W0 holds:p=1"},
    {"a_device_that_is_lost_while_waking_fails_is_told", TOGETHER | WIDE,
     "{granule:16 cap:8} P0 +p=6/0 S0:d +q=7 fail:info=1G W0!G failures=0 W0!G destroy!G"},
    {"sleep_waits_for_what_was_freed_alone", TOGETHER | WIDE,
     "{granule:16 cap:64} P0 +p=1/0 +q=1@A hA S0:k released=1 host-waits=0 W0"},
    {"a_wait_that_fails_leaves_a_pool_awake", TOGETHER | WIDE,
     "{granule:16 cap:64} P0 +p=2@A/0 +q=1@A/0 hA -q@A fail:wait=1R S0:k!R holds:p=1 +r=1/0 "
     "S0:k W0 holds:p=1"},
    {"a_device_that_is_lost_while_chunks_are_released_is_told", TOGETHER | WIDE,
     "{granule:16 cap:8} P0 +p=4/0 fail:release=2G S0:d!G destroy!G"},
    /* It is pending and held no more: the budget counted it. */
    {"what_is_freed_asleep_is_in_no_budget", TOGETHER,
     "{granule:16 cap:8} +p=1@C rp@A Sn:d hA -p@C pending=1 reserved=0 Q at-work=0 idle=0 eA Wn "
     "Q at-work=0"},
    {"nothing_can_be_allocated_asleep", TOGETHER | WIDE,
     "{granule:16 cap:8} +p=2 Sn:d Q allocatable=0 Wn Q allocatable=6"},
    {"the_lakes_limit_holds_for_waking", TOGETHER | WIDE,
     "{granule:16 cap:64 limit:8} P0:6 +p=6/0 S0:k +q=8 W0!L told-limit=8 -q W0 holds:p=1"},
    {"the_pools_limit_holds_for_waking", TOGETHER | WIDE,
     "{granule:16 cap:64} P0:6 +p=6/0 S0:k +q=8 W0 holds:p=1 +r=1/0!L"},
    {"what_is_left_to_others_is_so_for_waking", TOGETHER | WIDE,
     "{granule:16 cap:16 keep:4} P0 +p=6/0 S0:d +q=7 W0!L -q W0"},
    /* what sleeps is 1.5 chunks of blocks: a buffer's are half as large */
    {"limits_hold_for_waking_smaller_chunks", TOGETHER,
     "{granule:16 cap:16 chunk:2 limit:4} P0 N0:1 z0:1 +p=2 Sn:d released=3 +q=2/0 Wn!L -q Wn"},
    /* A pool with everything: blocks whole and in part of chunks, memory and a window that only a
       graph knows, and a buffer with a hole. */
    {"what_is_dropped_gets_new_memory", TOGETHER | WIDE,
     "{granule:16 cap:64} P0 +z.3=8@n/0 -z.3@n +a-h=1@A/0 -aceg@n BA:0/0 +i=1@A +j=2@A "
     "pieces:j=2 -ij@A EA -bd@n +p=1+32k@A/0 +q=2@A/0 +r=16k@A/0 N0:8/0 z0:8@A z0:6@A d0:2,2@A "
     "S0:d driver-bytes=0 host-ranges=0 W0 j0@A -fhpqr@n K0@n D0"},
    /* others' memory stays; two places of the buffer stay mapped */
    {"without_a_pool_the_home_arena_sleeps_with_the_buffers", TOGETHER,
     "{granule:16 cap:64} P0 N0:8 N1:8^2 +q=2/0 +p=3 z0:5 z0:3 z1:4 Sn:k driver-bytes=2 "
     "holds:q=1 Wn driver-bytes=12 holds:p=1 z0:8 S0:k holds:p=1 W0 holds:q=1"},
    /* it has live blocks */
    {"what_sleeps_may_be_destroyed", TOGETHER | WIDE,
     "{granule:16 cap:64} P0 +z.3=8@n/0 -z.3@n +a-h=1@A/0 -aceg@n BA:0/0 +i=1@A +j=2@A "
     "pieces:j=2 -ij@A EA -bd@n +p=1+32k@A/0 +q=2@A/0 +r=16k@A/0 N0:8/0 z0:8@A z0:6@A d0:2,2@A "
     "S0:k D0!I -fhpqr@n K0@n D0 sleeping=0 reserved=0 P0 +p=4/0 +q=3 N1:4 z1:2 S0:k Sn:d"},
    {"a_window_in_quarantine_goes_before_its_chunks", TOGETHER,
     "{granule:16 cap:64} +a-h=1 -aceg@n fail:access=1R fail:unmap=1R +w=2 -w quarantined=2 "
     "Sn:k quarantined=0 driver-bytes=0 Wn +w=2 -w"},
    /* two creations, and four calls for the chunk that is there */
    {"waking_stops_at_the_first_chunk_that_cannot_be_created", TOGETHER,
     "{granule:16 cap:8} P0 +p=4/0 S0:d fail:create=2R* mark W0!R calls=6 fail:create=0R "
     "handles=0 W0"},
    /* No event may be recorded behind a block that is freed meanwhile. */
    {"a_capture_into_the_pool_refuses_and_others_do_not", TOGETHER | WIDE,
     "{granule:16 cap:64} P0 +z.3=8@n/0 -z.3@n +a-h=1@A/0 -aceg@n BA:0/0 +i=1@A +j=2@A "
     "pieces:j=2 -ij@A EA -bd@n +p=1+32k@A/0 +q=2@A/0 +r=16k@A/0 N0:8/0 z0:8@A z0:6@A d0:2,2@A "
     "BB:0/1 S0:d!C EB P1 BB:1/2 -p S0:k W0 EB holds:q=1 -fhqr@n K0@n D0"},
    /* After an error the contents are as they were. */
    {"contents_are_kept_where_giving_them_up_fails", TOGETHER | WIDE,
     "{granule:16 cap:64} P0 +z.3=8@n/0 -z.3@n +a-h=1@A/0 -aceg@n BA:0/0 +i=1@A +j=2@A "
     "pieces:j=2 -ij@A EA -bd@n +p=1+32k@A/0 +q=2@A/0 +r=16k@A/0 N0:8/0 z0:8@A z0:6@A d0:2,2@A "
     "S0:k fail:host-free=1R* S0:d!R W0 holds:q=1 fail:host-free=0R S0:k S0:d host-ranges=0 W0 "
     "-fhpqr@n K0@n D0"},
    {"pinned_memory_goes_with_its_pool_awake", TOGETHER | WIDE,
     "{granule:16 cap:64} P0 +z.3=8@n/0 -z.3@n +a-h=1@A/0 -aceg@n BA:0/0 +i=1@A +j=2@A "
     "pieces:j=2 -ij@A EA -bd@n +p=1+32k@A/0 +q=2@A/0 +r=16k@A/0 N0:8/0 z0:8@A z0:6@A d0:2,2@A "
     "S0:k W0 -fhpqr@n K0@n D0 host-ranges=0"},
    /* ---- Lend and recall ---- */

    /* One stream: no event, no wait. What is free is lent until the recall; then it is the graph's
       again. */
    {"free_memory_serves", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=4@A -p@A EA l0@A mark +a=4@A/t at:a=p pool:a=0 -a@A "
     "L0@A calls=0 reserved=4 +a=4@A/t pool:a=n reserved=8 -a@A BA:0/1 +b=4@A -b@A EA "
     "reserved=8 D0"},
    /* The window serves again, later too, with no driver call; b stays. */
    {"pieces_are_stitched", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=3@A +b=1@A +q=3@A -pq@A EA l0@A +w=6@A/tg -w@A +w=6@A/t "
     "pool:w=0 pieces:w=2 L0@A!B -w@A +v=6@A/t at:v=w -v@A L0@A windows=1 holds:b=1 l0@A mark "
     "+v=6@A/t at:v=w calls=0 -v@A L0@A -b@A D0"},
    /* What a graph knows stays mapped and held, however short memory is. */
    {"what_graphs_know_is_not_given_up", TOGETHER,
     "{granule:16 cap:8} P0 BA:0/0 +p=1@A +b=1@A +q=1@A -pq@A +w=2@A pieces:w=2 -w@A EA l0@A "
     "T:0 released=0 +*=6@A!O windows=1 +v=2@A/t at:v=w -v@A L0@A +*=6@A!O j0@A -b@A D0"},
    /* Nor when windows are dropped because there are too many. */
    {"windows_of_graphs_stay", TOGETHER,
     "{granule:16 cap:16 smax:2} P0 BA:0/0 +p=1@A +b=1@A +q=1@A -pq@A +w=2@A pieces:w=2 -w@A "
     "EA l0@A L0@A +c-f=1@A -ce@A +v=2@A pieces:v=2 -v@A evictions=0 j0@A -dfb@A D0"},
    /* Nor a window that was made for a borrower, once a capture has used it. Whatever A did is seen
       complete by then. */
    {"a_borrowers_window_may_become_a_graphs", TOGETHER,
     "{granule:16 cap:16 smax:2} P0 BA:0/0 +p=1@A +b=1@A +q=1@A -pq@A EA l0@A +w=2@A/tg "
     "pieces:w=2 -w@A L0@A BA:0/1 +k=2@A at:k=w -k@A EA l0@A L0@A +z.3=1@n -z.3@n +c-f=1@A "
     "-ce@A +v=2@A pieces:v=2 -v@A evictions=0 j1@A -dfb@A D0"},
    /* Each stream that takes some waits once for all others that used it: B for the graphs' work on
       A, A for B's. Recall waits for all. */
    {"streams_wait_for_each_other", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=4@A -p@A EA hA hB l0@A +q=2@B/t pool:q=0 waits=1 "
     "+c=1@B/t -c@B waits=1 +d=1@A/t -d@A waits=2 -q@B L0@A waits=3 eA eB l0@B +c=1@B/t -c@B "
     "L0@B D0"},
    {"recall_waits_for_every_borrower", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=4@A -p@A EA hB hC l0@A +q=2@B/t +r=1@C/t -q@B -r@C L0@A "
     "eB behind:A=1 eC behind:A=0 D0"},
    /* GMLAKE_STREAM_NONE and streams that communicate wait for nobody. The trim asks what is
       complete. */
    {"who_may_not_wait_gets_other_memory", TOGETHER,
     "{granule:16 cap:32} P0 BA:0/0 +p=4@A -p@A EA hA mB:1 l0@A +q=1@B/t pool:q=n -q@B "
     "+q=1@n/t pool:q=n -q@n eA +d=1@A/t -d@A T:999 +q=1@n/t pool:q=0 -q@n +q=1@B/t pool:q=0 "
     "-q@B L0@A D0"},
    /* No event may be recorded on the legacy stream during a capture, so nobody can be told to wait
       for it, and nothing is made ready for who would have to. */
    {"what_cannot_be_waited_for_is_not_stitched", TOGETHER,
     "{granule:16 cap:32} P0 BA:0/0 +p=3@A +b=1@A +q=3@A -pq@A EA h0 P1 BA:1/1 l0 +r=6@B/t "
     "pool:r=n stitches=0 -r@B EA +r=6@B/t pool:r=0 stitches=1 -r@B L0@B -b@B D0 D1"},
    {"a_borrower_keeps_it_lent", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=2@A +q=2@A -pq@A EA l0@A +r=1-100b@A/t L0@A!B S0:d!B "
     "D0!B BA:0/1!B l0@A!B -r@A S0:d!B L0@A L0@A!I S0:d l0@A!A W0 D0"},
    /* The capture's own pool serves it. */
    {"captures_and_loans_exclude_each_other", TOGETHER,
     "{granule:16 cap:16} P0 P1 BA:0/0 +p=2@A -p@A EA BA:0/1 l0@B!C EA l0@A +q=1@B/t -q@B hA "
     "+q=1@A/t -q@A BB:1/2 +q=1@B/t pool:q=1 -q@B l1@B!C L0@B!C EB L0@B eA D1 D0"},
    /* A freed borrower that other streams still use: recall makes the stream wait for them, too.
       Then it is the graphs'. */
    {"pending_borrowers_do_not_keep_it", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=2@A -p@A EA l0@A +q=2@A/t rq@B rq@C hB hC -q@A L0@A "
     "waits=2 eB eC T:999 BA:0/1 +r=2@A at:r=q -r@A EA D0"},
    /* The slot of a chunk that is freed while its pool sleeps is nobody's: a graph does not know
       what borrowers are given there later. */
    {"what_slept_and_went_is_no_graphs", TOGETHER,
     "{granule:16 cap:16} P0 +b=1@A/0 BA:0/0 +p=1@A -p@A EA S0:d -b@n W0 reserved=1 l0@A "
     "+q=2@A/t pool:q=0 -q@A L0@A +z.3=1@n -z.3@n T:0 reserved=1"},
    /* A loan's memory is not for requests without the flag, nor for others' pools. */
    {"others_do_not_get_it", TOGETHER,
     "{granule:16 cap:16} P0 P1 BA:0/0 +p=2@A -p@A EA l0@A +q=1@A pool:q=n -q@A +q=1@A/0 "
     "off:q=p -q@A +q=1@A/1t pool:q=1 -q@A +q=1@A/0t pool:q=0 -q@A L0@A D0 D1"},
    /* Together with what it has, few chunks serve; no graph knows them, so they can be returned.
       Free memory elsewhere comes before growth. */
    {"a_pool_grows_by_what_is_missing", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=4@A -p@A EA l0@A +q=6@A/t pool:q=0 reserved=6 -q@A L0@A "
     "l0@A +q=6@A/t reserved=6 -q@A L0@A T:0 released=2 reserved=4 +q=6@A -q@A l0@A +q=6@A/t "
     "pool:q=n reserved=10 -q@A +*=8@A/tg!O L0@A D0"},
    /* What was lent in a chunk that no graph knows is as any free memory again, also beside a
       block. q is no borrower: it is of what nobody has used. */
    {"beside_live_blocks_all_is_returned", TOGETHER,
     "{granule:16 cap:16} P0 +q=16k@A/0 -q@A l0@A +q=16k@A/0 +r=16k@A/t pool:r=0 -r@A L0@A T:0 "
     "released=0 -q@A T:0 released=1 D0"},
    /* Nobody has to wait for the device. */
    {"lenders_and_borrowers_may_end", TOGETHER,
     "{granule:16 cap:16 may-end} P0 BA:0/0 +p=4@A -p@A EA l0@A +q=2@B/t -q@B kB vB +q=2@B/t "
     "-q@B kA vA L0@A l0@A +q=6@A/t -q@A L0@A kA T:0 released=2 D0"},
    /* A stream that ended untold, of which the driver says so. Lending records an event behind what
       is before it. */
    {"no_loan_on_a_stream_that_is_gone", TOGETHER,
     "{granule:16 cap:16 may-end} P0 BA:0/0 +p=4@A -p@A EA +q=32k@B -q@B kB l0@B!R l0@A L0@B!R "
     "L0@A fail:record=1G* l0@A!G destroy!G"},
    /* Graphs were launched on the legacy stream before the loan. While another stream is captured
       no event can be recorded behind them, so the pool cannot go. */
    {"a_pool_that_was_lent_stays_while_launches_may_run", TOGETHER,
     "{granule:16 cap:16} P0 P1 BA:0/0 +p=4@A -p@A EA h0 BB:1/1 l0 L0 D0!C EB e0 D0 D1"},
    /* Not while it is lent or asleep, nor beside another graph of it that may still run. */
    {"graphs_of_a_pool_run_alone", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=4@A -p@A EA BA:0/1 +q=4@A at:q=p -q@A EA hA j0@A j1@B!I "
     "j0@B j1@C j0@A!I eA j0@A l0@A j0@A L0@A j0@A S0:k j0@A W0 j0@A D0"},
    /* Pools that are gone, or not lent, have free memory, too. */
    {"only_pools_that_are_lent_serve", TOGETHER,
     "{granule:16 cap:24} P0 P1 P2 +q=4@A/0 -q@A +q=4@A/1 -q@A BA:2/0 +p=4@A -p@A EA D0 l2@A "
     "+q=3@A/t pool:q=2 -q@A L2@A D2 D1"},
    /* What borrowers stitched is dropped for a newer window, as no graph knows it. */
    {"windows_of_borrowers_may_go", TOGETHER,
     "{granule:16 cap:16 smax:8} P0 BA:0/0 +p=3@A +b=1@A +q=3@A -pq@A EA l0@A +w=6@A/t -w@A "
     "L0@A windows=1 l0@A +w=5@A/t -w@A evictions=1 L0@A -b@A D0"},
    /* | a | live | c | no memory |: a window that the driver did not unmap keeps a and c, so that
       the one chunk that P0 gives is enough beside c. */
    {"what_stays_counts_once", TOGETHER,
     "{granule:16 cap:4} +a-d=1 -ac +x=2 pieces:x=2 -x fail:unmap=1R T:0!R quarantined=2 "
     "reserved=4 "
     "-d fail:unmap=1R T:0!R released=1 P0 +p=1/0 -p +y=2/s at:y=c"},
    /* A question knows what is lent. B waits for what A did there; the pool grows by what it
       lacks. */
    {"what_is_borrowed_is_foretold", TOGETHER,
     "{granule:16 cap:8} P0 BA:0/0 +p=4@A -p@A EA hA l0@A q=4@A/t foretold-wait=0 "
     "foretold-new=0 +q=4@A/t pool:q=0 waits=0 -q@A q=4@B/t foretold-wait=1 foretold-new=0 "
     "+q=4@B/t pool:q=0 waits=1 -q@B eA eB mark q=6@B/t foretold-wait=0 foretold-new=2 "
     "+q=6@B/t pool:q=0 grown=2 q=2@B/t foretold-wait=0 foretold-new=2 +r=2@B/t grown=4 -r@B "
     "q=2@B/t foretold-wait=0 foretold-new=0 +r=2@B/t pool:r=0 q=1@A/t foretold!O "
     "+*=1@A/t!O -rq@B q=6@B/tg foretold-wait=0 foretold-new=0 +q=6@B/tg waits=1 grown=4 -q@B "
     "L0@B D0"},
    /* A launch behind the recall is behind B's work. */
    {"recall_is_behind_the_borrowers", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=4@A -p@A EA j0@A hB l0@A +q=4@B/t pool:q=0 -q@B L0@A "
     "behind:A=1 j0@A eB behind:A=0"},
    /* What stands in the way is named: the borrower, then the loan; and a stream that is gone. */
    {"refusals_of_a_recall_say_why", TOGETHER,
     "{granule:16 cap:16 may-end} P0 BA:0/0 +p=2@A +q=2@A -pq@A EA l0@A +e=1-100b@A/t L0@A!B "
     "says:(labelled) says:of_65436_bytes S0:d!B says:(labelled) -e@A S0:d!B "
     "says:gmlake_pool_recall L0@A +z.3=32k@B -z.3@B kB l0@B!R says:was_it_destroyed? D0"},
    {"loans_leave_nothing_behind", TOGETHER,
     "{granule:16 cap:64} P0 BA:0/0 +a-f=3@A -a-f@A EA [9 l0@A +a=1@A/t +b=1+32k@B/t +c=2@A/t "
     "+d=3+32k@B/t -ac@B -bd@A L0@A l0@B +a=2@A/t +b=3@B/t -a@A -b@B L0@A ] mark [90 l0@A +a=1@A/t "
     "+b=1+32k@B/t +c=2@A/t +d=3+32k@B/t -ac@B -bd@A L0@A l0@B +a=2@A/t +b=3@B/t -a@A -b@B L0@A ] "
     "grown=0 metadata-grown=0 D0"},
    /* A borrower has no event, and may have ended: recall waits for the device, and meanwhile
       another thread borrows. */
    {"a_loan_while_recall_waits_is_not_recalled", TOGETHER,
     "{granule:16 cap:16 may-end} P0 BA:0/0 +p=4@A -p@A EA l0@A +b=2@B/t pool:b=0 fail:record=1N "
     "-b@B in:device-wait=1( +c=1@B/t ) L0@A!B pool:c=0 -c@B L0@A D0"},
    /* Who borrows, works and frees while it makes the host wait is waited for, too: C is gone. */
    {"recall_follows_who_borrowed_while_it_waited", TOGETHER,
     "{granule:16 cap:8 may-end} P0 +z=512b@D -z@D BB:0/0 +a-b=1@B -ab@B EB l0@B +c=1@A/0t "
     "+y=512b@C -y@C rc@C hC kC!U -c@A in:device-wait=1( +d=1@D/0t hD ud@D -d@D ) L0@B waits=3"},
    /* What is done for a borrower is told with its request, label and time; without leave to stitch
       or to grow what lies there serves. */
    {"steps_for_borrowers_are_told", TOGETHER,
     "{granule:16 cap:16 observed} P0 BA:0/0 +p=2@A +b=2@A +q=2@A +d=2@A -pq@A EA hA l0@A mark "
     "+e=1@B/tsg pool:e=0 heard:SPLIT@B heard:WAIT@B heard:ALLOC@B heard:nothing waits=1 -e@B eA "
     "mark +e=4@A/tg pool:e=0 heard:STITCH~@A heard:WAIT@A heard:ALLOC~@A heard:nothing -e@A L0@A "
     "-bd@A D0"},
    /* For its records and the index of many blocks, at whatever time they are full: one attempt
       lacks it, and the next one serves. */
    {"host_memory_may_lack_for_many_borrowers", TOGETHER,
     "{granule:16 cap:16} P0 BA:0/0 +p=4@A -p@A EA l0@A [78 host:1 +*=512b@A/t ] [26 -*@A ] "
     "reserved=4 host:0 [52 -*@A ] L0@A D0"},
    /* ---- Export and import ---- */

    {"a_block_is_shared", TOGETHER,
     "{granule:16 cap:16 share} +p=3-100b/x xp iq=p exported=3 imported=3 reserved=6 -p "
     "exported=0 holds:q=1 -q imported=0 reserved=0 driver-bytes=0"},
    /* Its chunks are never used again, either, whether blocks could or not. */
    {"a_buffer_is_shared", BOTH,
     "{granule:16 cap:16 share} N0:8 xp/0!I says:empty_or_has_holes c0:1,1 xp/0!I says:holes z0:0 "
     "z0:4 xp/0 xq/0 ip.2=p iq.2=q exported=4 d0:0,1 c0:0,1 K0 T:0 exported=0 holds:p.2=1 "
     "holds:q.2=1"},
    {"a_buffer_of_large_chunks_is_shared", TOGETHER,
     "{granule:16 cap:16 share} N0:8^4 c0:4,4 xp/0!I says:holes z0:0 z0:4 xp/0 ip.2=p d0:0,4 "
     "c0:0,4 K0 T:0 exported=0 holds:p.2=1"},
    /* What a buffer gave up is returned by frees of such memory, and by trim. The free of any block
       that came next did it, and waited for the driver. */
    {"only_frees_of_shared_memory_return_it", TOGETHER,
     "{granule:16 cap:8 share} +b=1 +w=1/x xw N0:1 z0:1 xp/0 z0:0 exported=2 -b exported=2 -w "
     "exported=0"},
    {"what_was_shared_may_be_live_at_the_end", BOTH,
     "{granule:16 cap:16 share} N0:4 z0:2 xp/0 ip.2=p +w=1/x xw"},
    {"an_import_reserves_its_own_size", TOGETHER,
     "{granule:16 cap:16 share} +p=2/x xp addresses=64 iq=p addresses=66 -q addresses=64 -p"},
    /* Of what is freed three chunks are imported. */
    {"a_window_is_shared", TOGETHER,
     "{granule:16 cap:6 share} +a-f=1 -ace +w=3/x pieces:w=3 xw iz=w holds:z=1 -w reserved=6 "
     "windows=0 holds:z=1 -zbdf"},
    /* What a window maps that the driver did not unmap is quarantined with it; each trim tries
       again. */
    {"what_a_quarantined_window_maps_is_not_released", TOGETHER,
     "{granule:16 cap:4 share} +a-d=1 -ac +w=2 pieces:w=2 -w +p=1/x windows=1 xp fail:unmap=1R -p "
     "quarantined=3 exported=1 pending=0 fail:unmap=1R T:0!R quarantined=3 exported=1 T:0 "
     "quarantined=0 exported=0 -bd"},
    /* Its chunk is clean, but a window over it has a use that no event has told of. */
    {"a_window_over_what_was_exported_is_done_first", TOGETHER,
     "{granule:16 cap:4 share} +a-d=1@A -ac@A +w=2@A pieces:w=2 hA uw@A -w@A +x=1@A/x at:x=a xx "
     "-x@n exported=1 eA T:0 exported=0"},
    /* Work may still use it; the same of what was imported. */
    {"what_was_exported_never_serves_again", TOGETHER,
     "{granule:16 cap:8 share} +p=2@A/x xp iq=p rp@B hA hB -p@A pending=2 +r=2@A off:r=p "
     "holds:q=1 eB T:0 released=0 eA T:0 released=2 exported=0 hA -q@A imported=2 eA T:999 "
     "imported=0 -r@A"},
    /* The free notes its own stream, too, behind four: without host memory nothing is freed. */
    {"a_free_of_what_is_shared_notes_its_stream", TOGETHER,
     "{granule:16 cap:4 share} +p=1@A/x xp rp@B rp@C rp@D rp@E hA up@A host:1 -p@A!H -p@A T:0 "
     "exported=1 eA T:0 exported=0"},
    {"memory_comes_back_where_it_is_short", TOGETHER,
     "{granule:16 cap:4 share} +p=4@A/x xp hA -p@A eA +q=4 -q"},
    /* Free chunks make room for it, as for an allocation, and no more of them than it takes; what
       work may still use may not go yet. */
    {"an_import_returns_free_chunks_for_its_room", TOGETHER,
     "{granule:16 cap:16 share limit:6} +p=2/x xp +a=4 -a reserved=6 iq=p reserved=6 "
     "driver-bytes=4 -q +a=2@A -a@A hA +a=4@A -a@A iq=p!L eA iq=p -qp"},
    {"fills_keep_off_shared_memory", TOGETHER,
     "{granule:16 cap:16 share fill} +p=1/x xp iq=p holds:q=1 -p holds:q=1 -q"},
    {"imports_count_against_the_limit", TOGETHER,
     "{granule:16 cap:16 share limit:5} +p=2/x xp iq=p ir=p!L says:limit_bytes"},
    {"what_sleeps_is_not_shared", TOGETHER,
     "{granule:16 cap:16 share} P0 +p=1/0x xp S0:d!B says:exported -p S0:d W0 +p=1/0x S0:d xp!A "
     "W0 xp D0!I -p D0"},
    /* Who borrows it, knows it as little. */
    {"what_a_graph_knows_is_not_shared", TOGETHER,
     "{granule:16 cap:16 share} P0 BA:0/0 +p=1@A/x EA xp!I says:a_graph_knows -p@A l0@A +q=1@A/xt "
     "reserved=1 xq!I says:it_is_borrowed -q@A L0@A reserved=1 D0"},
    {"a_lake_without_handle_types_exports_nothing", TOGETHER,
     "{granule:16 cap:8} +p=1/x xp!I says:handle_types_was_0x0"},
    {"what_is_of_others_is_not_shared", TOGETHER,
     "{granule:16 cap:16 share} +s=32k xs!I says:GMLAKE_EXCLUSIVE +p=2/x xp iq=p xq!I "
     "says:another_process's"},
    {"a_failed_import_is_undone", TOGETHER,
     "{granule:16 cap:16 share} +p=2/x xp addresses=64 fail:map=2R iq=p!R told-call=map "
     "addresses=64 mappings=2 quarantined=0 iq=p"},
    /* The 40th block comes while the driver maps the 41st: the index has room for 40, and grows. */
    {"an_import_finds_room_in_the_index", TOGETHER,
     "{granule:16 cap:16 share} +a.1-z.1=512b +a.2-l.2=512b +p=1/x live=39 xp "
     "in:map=1( +q=512b ) ir=p live=41"},
    {"no_room_in_the_index_undoes_an_import", TOGETHER,
     "{granule:16 cap:16 share} +a.1-z.1=512b +a.2-l.2=512b +p=1/x live=39 xp reserved=2 "
     "addresses=64 in:map=1( +q=512b host:1* ) ir=p!H live=40 reserved=2 addresses=64 mappings=2 "
     "host:0 ir=p live=41"},
    {"failures_to_share_are_told_as_they_are", TOGETHER,
     "{granule:16 cap:16 share limit:6} +p=2/x fail:exchange=1R xp!R told-call=exchange xp "
     "fail:map=1R iq=p!R told-call=map +a=4 -a fail:unmap=1R iq=p!R told-call=unmap"},
    /* An observer that adds up blocks has each that it hears the free of. */
    {"an_observer_is_told_of_an_import", TOGETHER,
     "{granule:16 cap:16 share observed} +p=2/x xp mark iq=p "
     "heard:GROW@n,q=2:another_process's_memory_was_mapped "
     "heard:ALLOC@n,q=2:another_process's_memory_was_mapped -q heard:FREE,q=2 heard:TRIM=2 "
     "heard:nothing -p"},

    /* ---- Chunks of buffers ---- */

    /* a stream that was never used gets its number; nothing else happens */
    {"nothing_at_all_is_fine", BOTH,
     "{granule:16 cap:16} N0:8 c0:0,0 c0:8,0 d0:8,0@A end:0=0 reserved=0"},
    {"what_is_still_mapped_is_taken_back", BOTH,
     "{granule:16 cap:16} N0:8 c0:0,8 d0:2,4 c0:5,1 c0:4,1 c0:3,1 c0:2,1 map:0=mmmmmmmm "
     "handles=8"},
    {"both_may_be_repeated", BOTH,
     "{granule:16 cap:16} N0:8 d0:0,8 end:0=0 c0:1,4 mark c0:1,4 c0:2,2 c0:3,0 d0:3,0 d0:5,3 "
     "calls=0 grown=0 map:0=.mmmm d0:2,1 mark d0:2,1 d0:0,1 calls=0 map:0=.m.mm"},
    /* a hole takes nothing from what lies around it; at the end its chunks are the other one's */
    {"a_hole_serves_other_buffers", BOTH,
     "{granule:16 cap:16} N0:8 N1:8 c0:0,8 d0:2,3 c1:5,3 reserved=8 c0:2,3 reserved=11"},
    {"a_hole_serves_blocks", BOTH,
     "{granule:16 cap:16} N0:8 c0:0,8 d0:1,6 +p=6 reserved=8 -p c0:1,6 reserved=8"},
    {"trim_returns_holes", BOTH,
     "{granule:16 cap:16} N0:8 c0:0,8 d0:1,4 d0:6,1 T:0 released=5 handles=3 mapped=3 c0:0,8 "
     "map:0=mmmmmmmm"},
    /* what is a hole already may be discarded there, too */
    {"a_captured_stream_commits_and_does_not_discard", BOTH,
     "{granule:16 cap:32} P0 N0:8 c0:0,2@A BA:0/0 c0:4,2@A d0:0,1@A!C d0:2,2@A map:0=mm..mm EA "
     "d0:0,1@A map:0=.m..mm"},
    /* a commit behind the end moves it; only a resize moves it back. Holes stay, but for one that a
       resize begins in */
    {"a_resize_works_from_the_end", BOTH,
     "{granule:16 cap:32} N0:12 z0:2 c0:5,1 end:0=6 z0:8 map:0=mm...mmm d0:6,2 end:0=8 z0:9 "
     "map:0=mm...m..m z0:7 map:0=mm...m. z0:5+1b map:0=mm...m z0:5 map:0=mm... end:0=5 z0:5+10b "
     "d0:5,1 z0:5+20b map:0=mm...m z0:1 z0:0 map:0= end:0=0"},
    /* what is asked for is what is memory, but for what lies behind the end */
    {"the_figures_count_what_is_memory", BOTH,
     "{granule:16 cap:16} N0:8 z0:3+100b requested=3+100b d0:1,1 requested=2+100b active=3 "
     "buffer-bytes=3 d0:3,1 requested=2 buffer-bytes=2 c0:1,3 end:0=4 requested=4 "
     "buffer-bytes-peak=4 requested-peak=4 K0 requested=0 active=0"},
    /* the stream itself has it at once; nobody else before the work's end */
    {"work_on_a_hole_is_not_waited_for", BOTH,
     "{granule:16 cap:16} N0:8 N1:8 c0:0,4@A hA d0:1,2@A c1:0,2 reserved=6 c0:1,1@A reserved=6 "
     "d0:1,1@A eA c1:2,2 reserved=6 host-waits=0 waits=0 driver-host-waits=0"},
    {"another_stream_waits_on_the_device_for_a_hole", BOTH,
     "{granule:16 cap:16 limit:4} N0:8 c0:0,4@A hA d0:1,2@A c0:1,2@B map:0=mmmm waits=1 "
     "driver-host-waits=0"},
    {"trim_spares_a_hole_that_work_still_uses", BOTH,
     "{granule:16 cap:16} N0:8 c0:0,4@A hA d0:1,2@A T:0 released=0 eA T:0 released=2"},
    /* a place takes back the chunk that it maps only if all of it is free */
    {"a_part_of_a_chunk_is_not_taken_back", TOGETHER,
     "{granule:16 cap:2} N0:4 c0:0,2 d0:1,1 +a=32k +b=32k -a c0:1,1!O map:0=m. holds:b=1 +a=32k "
     "-b c0:1,1@n!O map:0=m. holds:a=1 -a c0:1,1 handles=2"},
    {"a_buffer_takes_chunks_from_under_an_idle_window", TOGETHER,
     "{granule:16 cap:8} N0:8 +a-h=1 -bd +w=2 pieces:w=2 -w c0:0,2 +x=2!O handles=8 d0:0,2 +w=2 "
     "pieces:w=2"},
    /* at the end its own four, and the two that buffers left */
    {"what_is_a_pools_serves_nobody_else", TOGETHER,
     "{granule:16 cap:32} P0 N0:8/0 N1:8 c0:0,4 d0:0,4 c1:0,2 +z.3=3 -z.3 inside:0=4 reserved=9 "
     "d1:0,2 +z.3=6/0 -z.3 inside:0=6 reserved=9"},
    /* a program of one stream, which is always ahead of the device; at the end not the two chunks
       that it used before */
    {"a_stream_shares_with_itself_without_a_wait", TOGETHER,
     "{granule:16 cap:32} N0:16 h0 +z.3=4 -z.3 c0:0,2 [4 d0:0,2 +z.3=4 -z.3 c0:0,2 +z.3=2 -z.3 "
     "] c0:4,2 reserved-peak=4 d0:0,6 +z.3=4 -z.3 handles=4 host-waits=0 waits=0 e0"},
    /* either way; the block has two chunks of its own stream and two behind B */
    {"other_streams_share_behind_a_wait_on_the_device", TOGETHER,
     "{granule:16 cap:4} N0:8 +p=4@A hA -p@A c0:0,2@B waits=1 hB d0:0,2@B +p=4@A waits=2 "
     "host-waits=0 handles=4 eA eB -p@A"},
    /* the first chunk's work is done; its neighbour was discarded behind more of it */
    {"a_chunk_does_not_wait_for_its_neighbours_work", APART,
     "{granule:16 cap:8 limit:2} N0:8 c0:0,2@A hA d0:0,1@A eA hA d0:1,1@A c0:4,1@B waits=0 "
     "c0:5,1@B waits=1 eA"},
    {"nor_if_the_neighbour_was_first", APART,
     "{granule:16 cap:8 limit:2} N0:8 c0:0,2@A hA d0:1,1@A eA hA d0:0,1@A c0:4,1@B waits=0 "
     "c0:5,1@B waits=1 eA"},
    {"nor_between_two", APART,
     "{granule:16 cap:8 limit:3} N0:8 c0:0,3@A hA d0:0,1@A d0:2,1@A eA hA d0:1,1@A c0:4,2@B "
     "waits=0 c0:6,1@B waits=1 eA"},
    /* What blocks freed is mapped in the buffer, eight mappings and one access, and what that gives
       up is mapped at home all the time: nothing is created nor returned, and no contents change
       hands. */
    {"chunks_of_one_size_go_to_and_fro_by_mappings", TOGETHER,
     "{granule:16 cap:8} N0:8 +z.3=8 -z.3 mark c0:0,8 calls=9 [3 d0:2,3 mark +p=3 calls=0 "
     "c0:2,3!O holds:p=1 -p c0:2,3 map:0=mmmmmmmm ] handles=8 reserved-peak=8"},
    {"a_lost_device_answers_so", BOTH,
     "{granule:16 cap:16} N0:8 c0:0,2 fail:create=1G c0:4,1!G c0:0,1!G d0:0,1!G map:0=mm "
     "destroy!G"},
    /*  in a place | left by a block |: the stream may have both, and the second maps at once. */
    {"a_chunk_behind_one_in_a_place_is_found", TOGETHER,
     "{granule:16 cap:8} N0:1 N1:1 c0:0,1@A +p=1@A hA d0:0,1@A -p@A c1:0,1@A reserved=2"},
    {"holes_of_a_destroyed_buffer_give_way", BOTH,
     "{granule:16 cap:16} N0:8 c0:1,2 c0:5,2 d0:1,1 K0 buffer-bytes=0 +z.3=4 -z.3 reserved=4"},
    {"a_range_becomes_memory_and_the_rest_does_not", BOTH,
     "{granule:16 cap:16} N0:8 c0:2,3 map:0=..mmm end:0=5 reserved=3 buffer-bytes=3 mapped=3 "
     "c0:0,8 map:0=mmmmmmmm d0:3,1 map:0=mmm.mmmm"},
    /* all or nothing: four chunks are to be had, and five are missing */
    {"a_commit_that_fails_leaves_the_buffer_as_it_was", BOTH,
     "{granule:16 cap:16 limit:6} N0:12 c0:1,1 c0:4,1 c0:0,7!L told-asked=5 "
     "told-by:gmlake_buffer_commit map:0=.m..m end:0=5 c0:0,6"},
    /* it is mapped in the buffer alone, not at home */
    {"a_policy_decides_about_no_chunk_of_a_buffer", TOGETHER,
     "{granule:16 cap:8 policy:1} N0:4 +z.3=2 -z.3 c0:0,1 mappings=2"},
    /* Blocks and buffers of all sizes of chunks count against one limit. Then the pool's blocks
       give way to its buffers, and its buffers to its blocks. */
    {"a_pool_is_limited_with_its_buffers", BOTH,
     "{granule:16 cap:32} P0:8 N0:8/0^1 N1:8/0^2 c0:2,2 c1:2,4 +p=2/0 inside:0=8 buffer-bytes=6 "
     "c0:0,1!L told-limit=8 told-pool=1 c1:0,2!L +q=1 -p c0:0,1 d1:2,4 +p=3/0 -p K0 K1 D0"},
    /* in the end it waits for the work */
    {"a_pool_with_buffers_is_not_destroyed", TOGETHER,
     "{granule:16 cap:32} +q=1 P0 N0:8/0 N1:8/0^2 c0:0,2@A c1:0,2@A D0!I "
     "says:0_blocks_and_2_buffers_of_the_pool_are_live: K1@A D0!I hA K0@A D0 host-waits=1 "
     "handles=1 reserved=1"},
    /* what the driver does not take back is told, and offered again when the lake is destroyed */
    {"a_pools_buffers_may_stay_mapped", BOTH,
     "{granule:16 cap:32} P0 N0:8/0 c0:0,3 K0 fail:unmap=1R* D0 handles=3 quarantined=3 reserved=3 "
     "fail:unmap=0R T:0 quarantined=0 reserved=0"},
    {"a_pools_buffers_may_keep_a_handle", BOTH,
     "{granule:16 cap:32} P0 N0:8/0 c0:0,3 K0 fail:release=1R D0 handles=1 quarantined=1 "
     "reserved=1"},
    {"a_page_without_access_goes_with_its_pool", TOGETHER,
     "{granule:16 cap:32} P0 N0:8/0 fail:access=2R fail:unmap=1R c0:0,1!R quarantined=1 inside:0=1 "
     "K0 D0 quarantined=0 handles=0"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* How many calls of the driver a change takes, behind what was done before: where buffers lie apart
   from blocks, which have chunks of two, and where they do not. */
static const struct cost {
  const char *before, *change;
  unsigned apart, together;
} costs[] = {
    /* A row of neighbours is given access by one call. Where blocks may have a chunk it is mapped
       at home, too. */
    {"N0:8", "c0:2,1", 3, 5},
    {"N0:8", "c0:2,2", 5, 9},
    {"N0:8 N1:8 c0:0,1 d0:0,1", "c1:0,1", 3, 3}, /* what the other one left: asked, mapped */
    /* The same where another chunk's mapping has to give way. */
    {"N0:8 N1:8 N2:8 c0:0,1 d0:0,1 c1:0,1 c2:0,1 d2:0,1", "c0:0,1", 4, 4},
    {"N0:8", "z0:1b", 3, 5},
    {"N0:8", "z0:1b z0:1", 3, 5},
    {"N0:8", "z0:1b z0:1 z0:1+1b", 6, 10},
    {"N0:8 z0:8", "z0:2", 2, 2}, /* an event is made and recorded */
    {"N0:8 z0:8 z0:2", "z0:3 z0:4 z0:5 z0:6 z0:7 z0:8", 0, 0},
    /* No event is asked where none of the buffers' memory is pending, and less than a chunk is. */
    {"N0:8 +p=32k@A +q=512b hA -p@A", "z0:1", 6, 8},
    {"N0:8 c0:2,2", "c0:0,8", 14, 26}, /* six, six, one on each side */
    {"N0:8 c0:0,8", "d0:2,4", 2, 2},   /* an event is made and recorded */
    {"N0:8 c0:0,8 d0:0,1", "d0:2,4", 2, 2},
    {"N0:8 c0:0,8 d0:2,4", "c0:5,1 c0:4,1 c0:3,1 c0:2,1", 0, 0},
    {"N0:8 c0:0,8 d0:2,4", "d0:2,4 d0:3,1", 0, 0},
    {"N0:8 c0:0,8 d0:2,4", "z0:0", 2, 2},
    {"N0:8 N1:8 c0:0,4 d0:0,4", "c1:0,4", 6, 6}, /* what the other one left: asked, mapped */
    {"N0:8 N1:8 c0:0,4 d0:0,4 c1:0,4 d1:0,4", "c0:0,4", 0, 0},
    {"N0:8 c0:0,4 d0:0,4", "+p=4", 14, 0}, /* returned and created, or taken as they are */
    {"N0:8 +z=4 -z", "c0:0,4", 16, 5},
    /* Where blocks have chunks of two, and of one as buffers have. Unmapped and released, or
       created, mapped and given access is each chunk; each chunk of a buffer that is home too, and
       each window, is mapped once more. Copies to the host are one call for each row of memory,
       copies back one for each chunk, and one more call waits for them. The first time gets the
       host's memory. */
    {"P0", "S0:d", 0, 0},
    {"P0 S0:d", "W0", 0, 0},
    {"P0 +p=4/0", "S0:d", 4, 8},
    {"P0 +p=4/0 S0:d", "W0", 6, 12},
    {"P0 +p=4/0", "S0:k", 7, 11},
    {"P0 +p=4/0 S0:k W0", "S0:k", 6, 10},
    {"P0 +p=4/0 S0:k", "W0", 9, 17},
    {"P0 +p=4/0 S0:k", "S0:k", 0, 0},
    {"P0 +p=4/0 S0:k", "S0:d", 1, 1},
    {"P0 +a-d=2/0 -bd@n +w=4/0", "S0:d", 9, 17},
    {"P0 +a-d=2/0 -bd@n +w=4/0 S0:d", "W0", 15, 29},
    {"P0 N0:8/0 c0:0,4", "S0:d", 8, 12},
    {"P0 N0:8/0 c0:0,4 S0:d", "W0", 12, 20},
};
#define COSTS (sizeof(costs) / sizeof(costs[0]))

#endif /* PLAY_ROWS_H */
