/* Rows of test_rows.c, as in rows.h: what becomes of the plans of desc.policy, those that are
   refused and change nothing, what a policy is shown, and when it is asked.

   In the drawings a chunk stands between two bars, live blocks are capitals, free ones small
   letters. */
#if !defined(PLAY_POLICY_ROWS_H)
#define PLAY_POLICY_ROWS_H

/* Live blocks of a chunk each, a and those behind it, side by side. */
#define LAY2 "+z.3=2@n -z.3@n +a-b=1 "
#define LAY3 "+z.3=3@n -z.3@n +a-c=1 "
#define LAY4 "+z.3=4@n -z.3@n +a-d=1 "
#define LAY5 "+z.3=5@n -z.3@n +a-e=1 "
#define LAY6 "+z.3=6@n -z.3@n +a-f=1 "
#define LAY8 "+z.3=8@n -z.3@n +a-h=1 "
/* | a | B | c | D |  with a window of a and c, idle */
#define WINDOW LAY4 "-ac plan:3,a=1,c=1 +w=2 -w "
/* | a | B | c | D | e | F |, also with addresses for one window of two chunks */
#define HOLES6 LAY6 "-ace "

/*   a     b   c   d   e   f   g   h   i   j   k   l   m   n   o
   | a:X | B | c   c   c | N | g | H | g | . | K | L | M | N | O |
   g is A's, whose work is pending, and so is window 4 of both. Window 1 is of c and e, 2 of l and
   n, which are taken, 3, w, of n and f, live. j has no memory. Pool 0 has y, free, and 5
   windows. */
#define WORLD                                                                                \
  "{granule:16 cap:40 policy:3} P0 +z.3=15@n -z.3@n +a-o=1 -j T:0 -cde plan:3,c=1,e=1 +z=2 " \
  "-z -ln plan:3,l=1,n=1 +z=2 -z -f plan:3,n=1,f=1 +w=2 plan:1,l=1 +l=1 -gi plan:3,g=1,i=1 " \
  "+z=2 hA -z@A -a plan:2,a+32k=32k +x=32k plan:4,G5 +y=5@n/0 -y@n [5 plan:3,y=1,y+2=1 "     \
  "+v=2@n/0 -v@n ] shows:a=32k,c=3;1fc,2c,4 "

static const row policy_rows[] = {
    /* ---- Legal plans: one piece ---- */

    {"piece_is_a_front", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY4 "-abc mark plan:2,a=1+512b +x=1+512b at:x=a state=2 "
     "splits=1 shows:a+1+512b=2-512b -x shows:a=3"},
    /* Three tags: clean, the stream's, clean; all of it. */
    {"piece_of_three_blocks", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY4
     "-a@n -b -c@n mark plan:2,a=3 +x=3-100b at:x=a state=2 splits=0"},
    {"piece_is_larger_than_the_request", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY3
     "-ab mark plan:2,a=2 +x=100b size:x0=2 active=3 requested=1+100b state=2 -x active=1 "
     "requested=1"},

    /* ---- Legal plans: windows ---- */

    /* | A a | B | c | D | e E |                         plan: the end of a, c, the front of e */
    {"stitch_of_three_with_partial_ends", TOGETHER,
     "{granule:16 cap:8 policy:1} " LAY5
     "-a +x=32k at:x=a -e plan:2,e+1-1k=1k +y=1k -c plan:3,a+1-1536b=1536b,c=1,e=512b mark "
     "+w=1+2000b state=3 pieces:w=3 home:w0=a+1-1536b size:w0=1536b home:w1=c home:w2=e "
     "size:w2=512b holds:x=1 holds:y=1"},
    /* A view of the size that there is room for takes no host memory: for a first view of no block
       there was made room for one of one. */
    {"views_are_written_over", TOGETHER,
     "{granule:16 cap:8 policy:1} +a=2 -a host:1 shows:a=2 host:0"},
    /* Of the two states that take what is there, either. */
    {"window_is_reused_by_its_number", TOGETHER,
     "{granule:16 cap:8 policy:1} " HOLES6
     "plan:3,a=1,c=1 +w=2 -w plan:3,e=1,a=1 +v=2 -v shows:*;1f,2f plan:1,W1 mark +x=2 at:x=w "
     "home:x0=a home:x1=c reuses=1 state=1 calls=0 -x plan:2,W2 mark +x=2-1b at:x=v state=2 "
     "home:x0=e"},
    /* A window whose piece is taken is no longer free, and is again. */
    {"window_waits_for_its_pieces", TOGETHER,
     "{granule:16 cap:4 policy:1} " WINDOW
     "plan:2,c=512b +x=512b shows:*;1 plan:1,W1 +y=1!I -x shows:*;1f"},

    /* ---- Legal plans: growth ---- */

    /* All of it. */
    {"growth_alone", TOGETHER,
     "{granule:16 cap:8 policy:1} plan:4,G2 mark +x=1+1b size:x0=2 pieces:x=1 reserved=2 state=4"},
    /* | A | b | C |                                     plan: b, and two chunks that are created */
    {"growth_behind_pieces", TOGETHER,
     "{granule:16 cap:8 policy:1} " LAY3
     "-b plan:4,G2,b=1 mark +w=3 state=4 stitches=1 pieces:w=2 home:w0=b size:w0=1 home:w1=c+1 "
     "size:w1=2"},
    {"growth_behind_a_partial_piece", TOGETHER,
     "{granule:16 cap:8 policy:1} " LAY3
     "-b plan:4,G1,b+1-512b=512b mark +w=1000b state=4 pieces:w=2 home:w0=b+1-512b size:w0=512b "
     "home:w1=c+1 size:w1=1"},
    /* | A | . | C | .   . | F |                         the lowest gap that holds it */
    {"growth_into_gaps", TOGETHER,
     "{granule:16 cap:12 policy:1} " LAY6
     "-bde T:0 released=3 plan:4,G2 +x=2 at:x=d plan:4,G1 +y=1 at:y=b -x T:0 released=2 "
     "plan:4,G3 mark +z=3 at:z=f+1 state=4"},
    {"growth_into_quarantined_slots", TOGETHER,
     "{granule:16 cap:8 policy:1} plan:4,G1 +x=1 plan:4,G2 fail:access=1R fail:unmap=2R +y=2!R "
     "quarantined=1 plan:4,G2 mark +y=2 at:y=x+1 state=4 quarantined=0"},

    /* ---- States 0 and 5 ---- */

    /* Nothing else counts. */
    {"state_0_is_the_built_in_policy", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY4
     "-ac plan:0,W77,G1b,K,N18446744073709551615 mark +w=2 state=3 home:w0=a home:w1=c"},
    /* Thrice: the host waits before the second time, windows and chunks go before the third. */
    {"state_5_is_asked_about_thrice", TOGETHER,
     "{granule:16 cap:8 policy:1} " LAY6
     "-ac plan:3,a=1,c=1 +w=2 -w hA -e@A plan:5 mark +x=1!O asked=3 shown:1:a=1,c=1;1fc "
     "shown:2:a=1,c=1,e=1;1fc shown:3:; state=5 driver-host-waits=1 failures=1 "
     "told-by:gmlake_alloc told-asked=1 told-live=3 told-reserved=3 told-driver-free=5"},
    {"state_5_then_served_after_waiting", TOGETHER,
     "{granule:16 cap:4 policy:1} plan:5;4,G1 mark +x=1 asked=2 state=4 failures=0"},
    /* A wait that fails is told where no plan serves: the policy is asked all the same. The
       driver's error, or a report. */
    {"state_5_and_a_wait_that_fails", TOGETHER,
     "{granule:16 cap:8 policy:1} +x=1@A +y=1 -y hA -x@A plan:5 fail:wait=1R* +z=1!R asked=3 "
     "told-asked=0 told-code=1234 fail:any=0R"},
    {"state_5_and_a_wait_without_memory", TOGETHER,
     "{granule:16 cap:8 policy:1} +x=1@A +y=1 -y hA -x@A plan:5 fail:wait=1O* +z=1!O asked=3 "
     "told-asked=1 told-code=0 fail:any=0R"},
    {"state_0_where_addresses_lacked", TOGETHER,
     "{granule:16 cap:8 window:2 policy:1} " HOLES6
     "plan:3,a=1,c=1 +w=2 -w plan:3,c=1,e=1;3,c=1,e=1;0 mark +x=2/g asked=3 pieces:x=2 "
     "evictions=1 grown=0 state=3"},
    /* Memory of a stream that works on, and of the default one: the host waits for the former
       before the second question, and both go back before the third. */
    {"state_5_and_the_first_of_two_failures", TOGETHER,
     "{granule:16 cap:8 policy:1} +x=1@A +y=1 hA -x@A -y plan:5 fail:wait=1R fail:release=1R "
     "+z=1!R asked=3 quarantined=1 error!R told-call=wait told-code=1234"},
    /* A device that is lost is told, whatever failed before. */
    {"state_5_and_a_failure_before_the_device_is_lost", TOGETHER,
     "{granule:16 cap:8 policy:1} +x=1@A +y=1 hA -x@A -y plan:5 fail:wait=1R fail:release=1G "
     "+z=1!G asked=2 error!G told-call=release destroy!G"},
    /* A limit is the answer where it stopped the last growth. */
    {"growth_beyond_a_limit", TOGETHER,
     "{granule:16 cap:8 limit:3 policy:1} plan:4,G2 +x=2 plan:4,G2 +y=1!L asked=3 told-limit=3 "
     "reserved=2 plan:4,G1 mark +y=1 state=4"},
    {"growth_beyond_the_device", TOGETHER,
     "{granule:16 cap:4 policy:1} plan:4,G3 +x=3 plan:4,G2 +y=1!O asked=3 reserved=3 handles=3"},
    {"growth_beyond_the_addresses", TOGETHER,
     "{granule:16 cap:8 arena:8 policy:1} plan:4,G5 +x=5 plan:4,G4 +y=1!O"},
    /* No addresses are left for the window: asked again, behind growth that stays. */
    {"stitch_beyond_the_addresses", TOGETHER,
     "{granule:16 cap:8 window:2 policy:1} " HOLES6
     "plan:3,a=1,c=1 +w=2 plan:4,G1,e=1;0 +x=512b asked=2 shown:2:e=1,f+1=1 size:x0=512b"},

    /* ---- keeps_former ---- */

    /* | a   a | B |                    plan: the front of a; w = front and rest, idle
       | A | a | B | */
    {"former_is_kept_and_reused", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY4
     "-abc plan:2,a=1,K mark +x=1 at:x=a state=2 stitches=1 stitched=3 shows:b=2;1c=3/3/2 -x "
     "shows:*;1fc=3/3/2 plan:1,W1 mark +w=3 state=1 off:w=a pieces:w=2 home:w0=a size:w0=1 "
     "home:w1=b size:w1=2"},
    /* Also where the block begins and ends inside chunks. */
    {"former_of_a_block_with_partial_ends", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY4
     "-abcd plan:2,a=1k +y=1k plan:2,d+512b=1-512b +v=1-512b plan:2,a+1k=2-1k,K mark +x=1 "
     "state=2 stitched=4 -x shows:*;1fc=3-512b/4/2 plan:1,W1 +w=1 pieces:w=2 home:w0=a+1k"},
    /* A former is a mere cache. */
    {"former_that_cannot_be_mapped", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY4
     "-abc plan:2,a=1,K mark fail:map=2R +x=1 state=2 windows=0 stitches=0 quarantined=0 "
     "mappings=4"},
    {"former_without_host_memory", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY4
     "-abc shows:a=3 plan:2,a=1,K mark host:1* +x=1 host:0 state=2 windows=0"},
    /* Their memory would live on under the window. */
    {"former_that_cannot_be_undone", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY4
     "-abc plan:2,a=1,K fail:access=1R fail:unmap=1R* +x=1 windows=0 quarantined=3 -x T:0!R "
     "released=0 fail:unmap=0R -d T:0 quarantined=0 released=4"},
    /* The device is lost after the block was taken: it is the caller's, and the next call says
       so. */
    {"former_that_loses_the_device", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY4
     "-abc plan:2,a=1,K fail:map=1G +x=1 at:x=a -x!G destroy!G"},
    /* Trim takes the rest while the front is live, and the window with it. */
    {"former_is_trimmed_while_the_front_is_live", TOGETHER,
     "{granule:16 cap:8 policy:1} " LAY4
     "-abc plan:2,a=1,K +x=1 T:0 released=2 windows=0 holds:x=1"},
    /* So is it dropped, for another former. */
    {"former_is_evicted_while_the_front_is_live", TOGETHER,
     "{granule:16 cap:8 policy:3} " LAY6
     "-abcde mark plan:2,a=1,K +x=1 evict-asked=1 evict-bytes=5 drop:1 plan:2,b=2,K +y=2 "
     "evict-bytes=4 evictions=1 windows=1 holds:x=1"},
    /* The built-in StitchFree stands where the policy has none: formers count, too. */
    {"former_is_counted_by_stitch_free", TOGETHER,
     "{granule:16 cap:8 smax:8 policy:1} " LAY8
     "-abcdefg mark plan:2,a=1,K +x=1 stitched=7 plan:2,b=1,K +y=1 stitched=6 plan:2,c=1,K +z=1 "
     "stitched=5 stitches=3"},
    /* A lake that cannot stitch keeps no former: it has no addresses for it. */
    {"formers_need_addresses", TOGETHER,
     "{granule:16 cap:4 policy:1} mark fail:reserve=1O* " LAY2
     "-ab plan:2,a=1,K mark +x=1 state=2 at:x=a windows=0"},

    /* ---- Options of requests and lakes ---- */

    /* The judge compares what the policy is told of each request. */
    {"request_is_shown", TOGETHER,
     "{granule:16 cap:4 observed policy:1} mark +x=1+1b@A/sg!O P0 +y=1b@n/0x +z=100b/^4k "
     "choose-asked=3"},
    /* What no policy could serve, and what needs no memory. */
    {"requests_that_are_not_shown", TOGETHER,
     "{granule:16 cap:4 policy:1} mark +x=0 +y=18446744073709551615b!O +z=1/^3k!I "
     "choose-asked=0"},
    {"buffers_are_not_asked_about", TOGETHER,
     "{granule:16 cap:4 policy:7} N0:8 mark z0:3 z0:1 z0:5!O K0 choose-asked=0 evict-asked=0 "
     "coalesce-asked=0"},
    {"alignment_is_kept", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY3
     "-ab plan:2,a+8k=512b +x=512b/^8k at:x=a+8k -x plan:3,b=1,a=1 +x=2/^1 pieces:x=2"},
    {"no_stitch_gets_one_piece", TOGETHER,
     "{granule:16 cap:5 policy:1} " WINDOW
     "shows:*;1f plan:3 +x=1/s!I shown:*;1 plan:1,c=1 +x=1/s at:x=c -x plan:4,G1 +x=1/s"},
    /* What may not be created anew is not returned for it, either. */
    {"no_grow_returns_nothing", TOGETHER,
     "{granule:16 cap:5 policy:1} +x=3 -x plan:5 +y=4/g!O asked=3 reserved=3"},
    {"small_requests_are_not_stitched", TOGETHER,
     "{granule:16 cap:5 smin:2 policy:1} " LAY4
     "-ac plan:3,a=1,c=1 +x=2-1b!I says:the_request_may_not_be_stitched plan:3,a=1,c=1 mark "
     "+x=2 state=3"},
    /* A pool is its own arena: blocks, windows and their numbers. */
    {"pools_are_shown_apart", TOGETHER,
     "{granule:16 cap:12 policy:1} P0:4 +x=3 -x plan:4,G3 +y=1/0 shown:; -y plan:3,y+2=1,y=1 "
     "+v=2/0 shown:y=3; -v plan:1,W1 +v=2/0 shown:*;1f -v shows:x=3; plan:4,G5 +u=1b/0!L "
     "told-limit=4 D0"},
    /* In a capture: from its pool, what the capture has freed, which a graph knows. Outside of it
       that is pinned. */
    {"captures_are_served", TOGETHER,
     "{granule:16 cap:12 policy:1} P0 BA:0/0 plan:4,G3 +x=3@A -x@A plan:3,x+2=1,x=1 +w=2@A "
     "shown:x=3 pieces:w=2 -w@A plan:5 +y=1@A!O asked=3 shown:x=3;1f EA shows/0:"},
    {"other_streams_memory_is_not_shown", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY3
     "hA -a@A -b shows:b=1 shows@A:a=1,b=1 shows@n:b=1 plan:1,a=1 +x=1!I eA plan:1,a=1 mark +x=1 "
     "state=1"},
    {"pending_frees_are_not_shown", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAY2 "hA ra@A -a shows: plan:1,a=1 +x=1!I eA shows:a=1"},
    /* Not the rest of a block whose former is kept. */
    {"fills_reach_all_of_a_block", TOGETHER,
     "{granule:16 cap:8 fill policy:1} " LAY4
     "-abc plan:3,c=1,a=1 +x=100b size:x1=1 -x plan:2,a=1,K +y=1 at:y=a stitches=2 -y"},
    /* Each attempt behind the handler is one of its own. */
    {"handler_is_asked_behind_the_policy", TOGETHER,
     "{granule:16 cap:4 oom observed policy:1} plan:5;5;5;4,G1 +x=1 asked=4"},

    /* ---- The view ---- */

    /* | A a | B | c   d | E | f F |  c is clean and d the stream's */
    {"view_has_the_blocks_by_address", TOGETHER,
     "{granule:16 cap:8 policy:1} " LAY6
     "-f@n plan:2,f+1k=1-1k +y=1-1k -ac@n plan:2,a=512b +x=512b h0 -d "
     "shows:a+512b=1-512b,c=1,d=1,f=1k shows@n:a+512b=1-512b,c=1,f=1k"},
    /* The window that was used longest ago comes first; live ones are not shown. The work of 1's
       last use is pending for a while. */
    {"view_has_the_windows_by_last_use", TOGETHER,
     "{granule:16 cap:12 policy:1} +q=512b@A -q@A " LAY8
     "-ace plan:3,a=1,c=1 +w=2 -w plan:3,c=1,e=1 +w=2 -w plan:3,e=1,a=1 +w=2 -w "
     "shows:*;1fc=2/2/2,2fc,3fc plan:1,W1 mark +w=2 state=1 shows:*;2c,3c hA -w@A "
     "shows:*;2c,3c,1 shows@A:*;2fc,3fc,1f eA plan:2,c=512b +x=512b shows:*;2c,3fc,1c stitched=6"},
    /* | X:a | B | c |  a window of a and c, which begins inside a chunk: not for EXCLUSIVE */
    {"windows_that_do_not_suit_are_refused", TOGETHER,
     "{granule:16 cap:8 policy:1} " LAY3
     "-ac plan:2,a=32k +x=32k plan:3,a+32k=32k,c=1 +w=1+32k -w plan:1,W1 "
     "+y=1/x!I says:the_window_is_not_free_for_the_request"},

    /* ---- evict ---- */

    /* A wrong answer is the answer where the built-in policy stitches, too: no growth instead. */
    {"a_wrong_drop_for_the_built_in_policy", TOGETHER,
     WORLD "note mark drop:99 +z=3+512b!I evict-asked=1 told-by:policy.evict "
           "says:name_idle_windows_whose_work_is_complete,_each_once,_and_not_more_than_"
           "window_count same"},

    /* Before the built-in policy stitches, and before a plan does; not where nothing is mapped. */
    {"evict_is_asked_before_windows_are_mapped", TOGETHER,
     "{granule:16 cap:8 policy:3} " HOLES6
     "mark +x=2 evict-asked=1 evict-bytes=2 -x plan:1,W1 +x=2 -x plan:1,a=1 +x=1 -x plan:4,G1 "
     "+x=1 evict-asked=1 plan:4,G1,c+1-512b=512b +y=1 evict-asked=2 evict-bytes=2"},
    /* Whatever of a stitch finds no host memory, the view for this question among it: nothing is
       mapped, and another time it is. */
    {"evict_is_not_asked_without_scratch", TOGETHER,
     "{granule:16 cap:6 policy:2} " LAY6
     "-ac mark host:1* +x=2!H host:0 evict-asked=0 stitches=0 +x=2 evict-asked=1 stitches=1"},
    {"evict_is_not_asked_without_a_view", TOGETHER,
     "{granule:16 cap:6 policy:2} " LAY6
     "-ac mark host:2* +x=2!H host:0 evict-asked=0 stitches=0 +x=2 evict-asked=1 stitches=1"},
    {"evict_is_asked_and_nothing_is_mapped", TOGETHER,
     "{granule:16 cap:6 policy:2} " LAY6
     "-ac mark host:3* +x=2!H host:0 evict-asked=2 stitches=0 +x=2 evict-asked=3 stitches=1"},
    /* With one stream, which needs no events for anything else. */
    {"evict_drops_windows_of_a_single_stream", TOGETHER,
     "{granule:16 cap:8 policy:2} " LAY6
     "-ac +w=2 -we mark drop:1 +x=3 shown:*;1fc evictions=1 windows=1"},
    /* A policy that evicts nothing: the built-in threshold is not applied in its place. */
    {"evict_has_the_only_say", TOGETHER,
     "{granule:16 cap:8 smax:2 policy:3} " LAY8
     "-aceg plan:3,a=1,c=1 +w=2 -w plan:3,a=1,e=1 +w=2 -w plan:3,a=1,g=1 +w=2 -w stitched=6 "
     "mark drop:1,2,3 plan:3,c=1,e=1 +x=2 state=3 stitched=2 evictions=3"},
    /* Its pieces may be those of the plan. */
    {"evict_drops_a_window_of_the_plans_pieces", TOGETHER,
     "{granule:16 cap:4 policy:3} " WINDOW "mark drop:1 plan:3,c=1,a=1 +x=2 state=3 windows=1"},
    {"evict_that_the_driver_refuses", TOGETHER,
     "{granule:16 cap:8 policy:3} " HOLES6
     "plan:3,a=1,c=1 +w=2 -w drop:1 plan:3,c=1,e=1 fail:unmap=1R +x=2!R quarantined=2 windows=0 "
     "plan:3,c=1,e=1 mark +x=2 state=3"},
    /* Before evict is asked the lake learns what is complete; that may be that the device is
       lost. */
    {"a_device_lost_before_evict_is_asked", TOGETHER,
     "{granule:16 cap:8 policy:3} " LAY3
     "+s=512b -ac plan:3,a=1,c=1 +w=2 -w -s mark plan:3,c=1,a=1 fail:record=1G +x=2!G "
     "evict-asked=0 destroy!G"},

    /* ---- coalesce ---- */

    {"no_keeps_blocks_apart", TOGETHER,
     "{granule:16 cap:4 policy:5} " LAY4 "a:/c mark -acb coalesce-asked=3 shows:a=1,b=1,c=1"},
    /* A piece across blocks that are apart is one block, and freed as one. */
    {"apart_blocks_are_taken_together", TOGETHER,
     "{granule:16 cap:4 policy:5} " LAY4
     "a:/c -abc plan:2,a+512b=3-1k mark +x=2+512b state=2 pieces:x=1 shows:a=512b,d-512b=512b "
     "-x shows:a=512b,a+512b=3-1k,d-512b=512b"},
    /* Those that have been a user's since are joined; of three chunks at once a part is taken. */
    {"new_memory_stays_apart", TOGETHER,
     "{granule:16 cap:8 policy:5} plan:4,G2 +x=1 plan:4,G1 +y=1 at:y=x+2 -xy shows:x=3 T:0 "
     "released=3 +z=2+512b -z shows:x=2+512b,y+512b=1-512b"},
    /* Completed work makes them clean, not one. */
    {"apart_blocks_outlive_sweeps", TOGETHER,
     "{granule:16 cap:8 policy:5} " LAY6
     "-e@A a:/c hA -abc@A a: -d@A eA Q shows@n:a=1,b=1,c=1,d=2"},
    {"apart_windows", TOGETHER,
     "{granule:16 cap:4 policy:5} " LAY4
     "-b@n -ac plan:3,a=1,c=1,b=1 mark +x=3 state=3 a:/c -x shows:a=1,b=1,c=1 plan:1,W1 mark "
     "+x=3 state=1 a: -x shows:a=3"},
    /* Those that waited are free, of the streams they were freed on. */
    {"apart_pending_blocks", TOGETHER,
     "{granule:16 cap:4 policy:5} " LAY4 "-b hA ra@A rc@A a:/c -a a: -c eA shows:a=1,b=2"},
    {"apart_pools", TOGETHER,
     "{granule:16 cap:8 policy:5} P0 a:/c +x=2/0 -x +y=1/0 +v=1/0 -yv shows/0:y=1,v=1 D0"},
    /* A capture's memory that is kept apart is apart for the next one, too. */
    {"apart_in_captures", TOGETHER,
     "{granule:16 cap:8 policy:5} P0 BA:0/0 +x=1@A +y=1@A a:/c -xy@A EA BA:0/1 "
     "shows@A:x=1,y=1 EA D0"},
    /* | A | b | c | d | E |  a is stream A's, the others are clean and apart: a run of A's */
    {"apart_blocks_in_a_streams_run", TOGETHER,
     "{granule:16 cap:8 policy:4} " LAY5
     "+q=512b@A -q@A a:/c hA -a@A -bcd@n +x=1@n +y=3@A holds:x=1"},
    /* Each of many chunks that are apart is a run of its own to the planner; | a B | is one's head.
       They are clean: else they are one run of the stream's. */
    {"apart_chunks_are_stitched", TOGETHER,
     "{granule:16 cap:64 policy:4} +z.3=41@n -z.3@n +a-o.1=1 -o.1 +x.1=32k at:x.1=o.1 +y.1=32k "
     "a:/c -x.1@n -a-n.1@n +w.1=40+32k reserved=41 holds:y.1=1"},
    /* A chunk of which all parts are free goes back, though they are apart, */
    {"apart_parts_of_a_chunk_are_trimmed", TOGETHER,
     "{granule:16 cap:4 policy:4} +z.3=2@n -z.3@n +a-d=32k a:/c -abcd T:0 released=2 +a-b=32k -a "
     "T:0 released=0 -b T:0 released=1"},
    /* and serves elsewhere where memory is short, */
    {"apart_parts_of_a_chunk_serve_another_pool", TOGETHER,
     "{granule:16 cap:2 policy:4} P0 +z.3=2@n -z.3@n +a-d=32k a:/c -abcd +x=2/0"},
    /* What trim cannot unmap stays as it is. */
    {"apart_parts_of_a_chunk_that_stay", TOGETHER,
     "{granule:16 cap:4 policy:5} +z.3=1@n -z.3@n +a-b=32k a:/c -ab@n fail:unmap=1R T:0!R "
     "shows:a=32k,b=32k fail:release=1R T:0!R quarantined=1"},
    /* A failed stitch gives its pieces back as they were, cut where the plan cut them. */
    {"apart_pieces_of_a_failed_stitch", TOGETHER,
     "{granule:16 cap:4 policy:5} " LAY4
     "-c a:/c -a plan:3,a+32k=32k,c=32k fail:access=1R +x=1!R shows:a=32k,a+32k=32k,c=1"},

    /* ---- The table itself ---- */

    /* Any functions may be missing, in a program that meets all of them. */
    {"no_policy_at_all", TOGETHER,
     "{granule:16 cap:8} " HOLES6 "+x=2 choose-asked=0 evict-asked=0 coalesce-asked=0"},
    {"single_threaded_lakes_ask_too", TOGETHER,
     "{granule:16 cap:4 single policy:7} " LAY4
     "mark -ac plan:3,a=1,c=1 +x=2 state=3 asked=1 evict-asked=1 coalesce-asked=2"},
};
#define POLICY_ROWS (sizeof(policy_rows) / sizeof(policy_rows[0]))

/* ---- Wrong answers ---- */

#define CHOSEN "told-by:policy.choose evict-asked=0 says:"
#define ROOM CHOSEN "piece_count_is_more_than_piece_capacity,_or_pieces_points_elsewhere"
#define NOTHING CHOSEN "the_plan_has_no_window,_no_piece_and_no_grow_bytes"
#define STATE CHOSEN "state_is_not_the_one_of_what_the_plan_does"
#define UNSTITCHED CHOSEN "the_request_may_not_be_stitched"
#define UNGROWN CHOSEN "grow_bytes_is_not_0,_but_the_request_has_GMLAKE_NO_GROW"
#define CHUNKS \
  CHOSEN "grow_bytes_is_no_multiple_of_chunk_bytes,_or_more_than_the_arena's_address_space"
#define GRAINS CHOSEN "a_piece's_home_or_bytes_is_no_multiple_of_512,_or_bytes_is_0"
#define OUTSIDE CHOSEN "a_piece_lies_outside_the_arena"
#define NOT_FREE CHOSEN "a_piece_is_not_free_for_the_request"
#define BEGINS CHOSEN "a_piece_begins_inside_a_chunk"
#define ENDS CHOSEN "a_piece_ends_inside_a_chunk"
#define UNALIGNED CHOSEN "the_first_piece_is_not_aligned"
#define SHARED CHOSEN "two_pieces_of_a_window_share_a_chunk"
#define SMALL CHOSEN "the_pieces_are_too_small"
#define FORMER CHOSEN "keeps_former_is_set,_but_the_plan_is_not_a_part_of_one_block"
#define CUT CHOSEN "keeps_former_is_set,_but_the_piece_ends_inside_a_chunk"
#define NO_WINDOW CHOSEN "no_idle_window_has_this_number"
#define BESIDE CHOSEN "the_plan_reuses_a_window,_and_has_pieces,_grow_bytes_or_keeps_former_too"
#define TAKEN CHOSEN "the_window_is_not_free_for_the_request"
#define NARROW CHOSEN "the_window_is_too_small"
#define DROPPED "told-by:policy.evict evict-asked=1 says:out_windows["

/* Answers to a request in the world above that are refused, for this reason, before anything has
   changed and anybody else is asked. */
static const struct wrong {
  const char *answer, *request, *error;
} wrongs[] = {
    {"plan:1,c=1,E", "1", ROOM},
    {"plan:3,c=1,N4", "1", ROOM}, /* one more than fits; as many as can be said */
    {"plan:3,c=1,N18446744073709551615", "1", ROOM},
    {"plan:4,G1,c=1,N18446744073709551615", "1", ROOM},
    {"plan:1", "1", NOTHING},
    {"plan:2,K", "1", NOTHING},
    {"plan:3,c=1", "1", STATE}, /* of one piece, of two, of growth, of both, of a window */
    {"plan:4,c=1", "1", STATE},
    {"plan:6,c=1", "1", STATE},
    {"plan:4294967295,c=1", "1", STATE},
    {"plan:1,c=1,d=1", "1", STATE},
    {"plan:2,c=1,d=1", "1", STATE},
    {"plan:1,G1", "1", STATE},
    {"plan:3,G1,c=1", "1", STATE},
    {"plan:3,W1", "1", STATE},
    {"plan:6,W1", "1", STATE},
    {"plan:3,c=1,d=1", "1/s", UNSTITCHED},
    {"plan:4,G1,c=1", "1/s", UNSTITCHED},
    {"plan:4,G1", "1/g", UNGROWN},
    {"plan:4,G32k", "1", CHUNKS},
    {"plan:4,G1+512b", "1", CHUNKS},
    {"plan:4,G321", "1", CHUNKS},
    {"plan:4,G18446744073709486080b", "1", CHUNKS},
    {"plan:1,c=0", "1", GRAINS}, /* no bytes, a part of a grain, and from within one */
    {"plan:2,c=1+1b", "1", GRAINS},
    {"plan:2,c+1b=1", "1", GRAINS},
    {"plan:1,0=1", "1", OUTSIDE}, /* NULL, the host's memory, a window's address, another pool's */
    {"plan:1,H=1", "1", OUTSIDE},
    {"plan:1,w=1", "1", OUTSIDE},
    {"plan:1,y=1", "1", OUTSIDE},
    {"plan:1,o+1=1", "1", OUTSIDE}, /* behind the arena, past its end, before it, once around */
    {"plan:1,o=2", "1", OUTSIDE},
    {"plan:1,a-512b=1", "1", OUTSIDE},
    {"plan:1,c=18446744073709551104b", "1", OUTSIDE},
    {"plan:1,b=1", "1", NOT_FREE}, /* a live block, half of one, into one, and out of one */
    {"plan:1,a=1", "1", NOT_FREE},
    {"plan:1,c=4", "1", NOT_FREE},
    {"plan:1,b=2", "1", NOT_FREE},
    {"plan:1,f=1", "1",
     NOT_FREE}, /* a live window's piece, another stream's, a gap, all there is */
    {"plan:1,g=1", "1", NOT_FREE},
    {"plan:1,j=1", "1", NOT_FREE},
    {"plan:1,a=15", "1", NOT_FREE},
    {"plan:3,c=1,d+512b=1", "1", BEGINS}, /* the second, the last, EXCLUSIVE memory */
    {"plan:3,c=1,d=1,e+512b=512b", "1", BEGINS},
    {"plan:2,c+512b=2", "1/x", BEGINS},
    {"plan:3,c=512b,d=1", "1", ENDS}, /* the first, before growth, EXCLUSIVE memory */
    {"plan:4,G1,c=512b", "1", ENDS},
    {"plan:2,c=1+512b", "1/x", ENDS},
    {"plan:3,c=1,d=512b", "1/x", ENDS},
    {"plan:2,c+512b=1", "1/^1k", UNALIGNED},
    {"plan:3,c+512b=1-512b,d=1", "1/^1k", UNALIGNED},
    {"plan:3,c=1,c=1", "1", SHARED}, /* one twice, one in another, both halves, both ends */
    {"plan:3,c=2,d=1", "1", SHARED},
    {"plan:3,c+32k=32k,c=32k", "1", SHARED},
    {"plan:3,c+32k=32k,d=1,c=512b", "1", SHARED},
    {"plan:2,c=1-512b", "1", SMALL},
    {"plan:3,c=1,d=1", "2+1b", SMALL},
    {"plan:4,G1", "1+1b", SMALL},
    {"plan:3,c=1,d=1,K", "1", FORMER}, /* of two, of growth, no larger, a middle, an end */
    {"plan:4,G1,K", "1", FORMER},
    {"plan:1,c=3,K", "1", FORMER},
    {"plan:2,d=1,K", "1", FORMER},
    {"plan:2,e=1,K", "1", FORMER},
    {"plan:2,c=1+512b,K", "1", CUT},
    {"plan:1,W99", "1", NO_WINDOW}, /* the last one, a live window's, and another pool's */
    {"plan:1,W18446744073709551615", "1", NO_WINDOW},
    {"plan:1,W3", "1", NO_WINDOW},
    {"plan:1,W5", "1", NO_WINDOW},
    {"plan:1,W1,c=1", "1", BESIDE},
    {"plan:1,W1,G1", "1", BESIDE},
    {"plan:1,W1,K", "1", BESIDE},
    {"plan:1,W2", "1", TAKEN}, /* blocked, in flight */
    {"plan:1,W4", "1", TAKEN},
    {"plan:1,W1", "1/s", TAKEN},
    {"plan:1,W1", "2+1b", NARROW},
    /* Windows to be dropped that may not be, behind a plan that could be carried out: no number, no
       window's, a live one's, one in flight, and another pool's. */
    {"plan:4,G1,c=1 drop:0", "1", DROPPED "0"},
    {"plan:4,G1,c=1 drop:99", "1", DROPPED "0"},
    {"plan:4,G1,c=1 drop:3", "1", DROPPED "0"},
    {"plan:4,G1,c=1 drop:4", "1", DROPPED "0"},
    {"plan:4,G1,c=1 drop:5", "1", DROPPED "0"},
    /* One twice, a wrong one behind right ones, more than there are, and as many as can be said. */
    {"plan:4,G1,c=1 drop:1,1", "1", DROPPED "1"},
    {"plan:4,G1,c=1 drop:1,2,99", "1", DROPPED "2"},
    {"plan:4,G1,c=1 drop:1,2,4,5", "1", DROPPED "2"},
    {"plan:4,G1,c=1 drop:1,2,N18446744073709551615", "1", DROPPED "2"},
};
#define WRONGS (sizeof(wrongs) / sizeof(wrongs[0]))

#endif /* PLAY_POLICY_ROWS_H */
