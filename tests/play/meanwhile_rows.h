/* Rows of test_rows.c: what happens in the middle of a call, while the driver, a policy or the
   handler is at work, who waits for whom, and calls of the driver that fail at the worst moment. As
   in rows.h sizes are in chunks. */
#if !defined(PLAY_MEANWHILE_ROWS_H)
#define PLAY_MEANWHILE_ROWS_H

#include "question_rows.h"

/* A has blocks a.1 to m.3; all its 64 fences are in use, their work pending; m.3 is live. */
#define ALL_FENCES                                                                                 \
  "{granule:16 cap:80} +a.1-z.1=1@A +a.2-z.2=1@A +a.3-m.3=1@A +y=512b@B hA -a.1-z.1@A -a.2-z.2@A " \
  "-a.3-l.3@A events=64 "
/* A destroyed buffer holds all the address space for buffers, and the driver has no more. */
#define FULL_ADDRESSES \
  "{granule:16 cap:2 extent:2} N0:16 z0:1@A +y=512b@B -y@B hA K0@A fail:reserve=1O* "
/* A window of the legacy stream's is planned over A's memory; then a capture begins. */
#define CAPTURE_BEGINS(create)                                                                  \
  "{granule:16 cap:8} P0 +y=512b@B +x=5@A hA -x@A in:create=" create                            \
  "( BB:0/0 ) in:wait=1( "                                                                      \
  "+t=5@A ) +w=7!O says:no_free_memory_fits_458752_bytes,_and_the_device_has_no_room_for_more " \
  "failures=1 waits=0"

/* Pools, a buffer, an idle window, an idle stream's memory, a block that is recorded. */
#define FURNISHED                                                                                \
  "P0 P1 +z.3=6@n -z.3@n +a-f=1 +l=3000b@A +s=512b@B -ace +w=2 -w +p=1@A/1 -p@A N0:8 N1:8 z0:2 " \
  "rl@B mark "
/* Work is pending on 16 chunks, 12 are free here and there, and there is a hole in the last one. */
#define BUSY(limit)                                                                              \
  "{granule:16 cap:96 " limit                                                                    \
  "} N0:8 z0:2 +a.1-p.1=1@C +a-x=1 +a.2=16k +b.2=32k +c.2=16k -b.2 hC -a.1-p.1@C -bdfhjlnprtvx " \
  "mark "
#define FAST "( +b.2=4k rb.2@B live=15 -b.2 z0:1 z0:2 -c ) "

#define NEVER_SEEN                                                                                \
  "P0 P1 BA:1/1 +a=1@A -a@A T:0 EA lake-alone BA:0/0 T:0 D0!C driver-alone BA:0/0 BA:1/2!C fA!C " \
  "driver-alone EA "

#define SHORT_IN_A_CAPTURE(exchange)                                                       \
  "{granule:16 cap:4 limit:2} P0 lake-alone BA:0/0 +a=1 +b=32k -b fail:exchange=" exchange \
  "W +x=2!W error!W"
/* A frees in a millisecond what is enough, B, whose work has no end, what is not needed; either may
   come first, and the one that does not was known before. C may have them recorded. */
#define WHICHEVER_ROW(way, first, of, known, p, q, records, frees, last)                \
  {                                                                                     \
    "the_host_waits_for_whichever_is_enough:" way, TOGETHER,                            \
        "{granule:16 cap:8} P0 +s=2@C/0 " first "P1 m" known ":3 +p=3@" p of " +q=3@" q \
        " gA:1000000 hB " records frees last " Q at-work=3 host-waits=1"                \
  }
#define WHICHEVER(way, first, of, last)                                                           \
  WHICHEVER_ROW(way, first, of, "A", "A", "B", "", "-q@B -p@A ", last),                           \
      WHICHEVER_ROW(way "_later", first, of, "B", "A", "B", "", "-p@A -q@B ", last),              \
      WHICHEVER_ROW(way "_recorded", first, of, "A", "C", "C", "rp@A rq@B ", "-q@C -p@C ", last), \
      WHICHEVER_ROW(way "_recorded_later", first, of, "B", "C", "C", "rp@A rq@B ", "-p@C -q@C ",  \
                    last)

/* Two streams; a trim that keeps all asks what is complete; one leaves memory that its work still
   uses. */
#define TWO_KNOWN "+s=512b@B -s@B +r=512b@A -r@A "
#define ASK "T:1099511627776 "
#define LEAVE_1 "+m=1@A hA -m@A "
#define LEAVE_4 "+x=4@A hA -x@A "

static const row meanwhile_rows[] = {
    /* ---- Plans under way ---- */

    /* Pieces of a plan that is being driven are free to nobody: an idle window over them is passed
       over, and they cannot be freed once more. */
    {"pieces_of_a_plan_are_nobody_elses", TOGETHER,
     "{granule:16 cap:16} +z.3=10@n -z.3@n +a-g=1 +r=2+32k +s=32k -bd +w=2 pieces:w=2 -wfr "
     "in:map=1( -b!D +q=2 ) +x=3 pieces:x=3 at:q=r pieces:q=1"},
    /* A free is one although its event cannot even be tried. */
    {"a_free_survives_fences_in_use_and_a_failed_question", TOGETHER,
     ALL_FENCES "fail:exchange=1R -m.3@A events=64 eA T:1 released=65"},
    /* The fence that finds all in use asks which are complete; the next one has its place. */
    {"a_stream_is_not_forgotten_behind_a_failed_question", TOGETHER,
     ALL_FENCES "fail:query=1R fA!R told-call=query -m.3@A fA eA T:1 released=65"},

    /* ---- Other streams ---- */

    /* A's memory is borrowed although the wait for it has become needless. */
    {"what_completes_meanwhile_is_not_waited_for", TOGETHER,
     "{granule:16 cap:67} +a.1-z.1=1@A +a.2-z.2=1@A +a.3-n.3=1@A +y=1@B hA -a.1-z.1@A -a.2-z.2@A "
     "-a.3-l.3@A in:create=1( eA -n.3@A ) +p=32@B at:p=a.1 waits=0"},
    /* The legacy stream can then wait for none: that is want of memory like any other. */
    {"a_capture_begins_before_the_first_chunk_is_asked_for", TOGETHER, CAPTURE_BEGINS("1")},
    {"a_capture_begins_before_the_fourth_one", TOGETHER, CAPTURE_BEGINS("4")},
    {"a_capture_begins_before_the_fifth_one", TOGETHER, CAPTURE_BEGINS("5")},
    /* The event that was waited for in vain stands in its place, before a later one. */
    {"a_fence_that_failed_is_put_back", TOGETHER,
     "{granule:16 cap:8} P0 +y=512b@B +l=1@A/0 +m=512b@n/0 hA +f=1@A/0 -f@A in:wait=1( -l@A ) "
     "fail:wait=1R D0!R events=2 eA"},
    /* While the host waits for A, B runs out of fences: the event that the request needs is given
       up, and a later one stands for it. */
    {"what_was_given_up_is_waited_for", TOGETHER,
     "{granule:16 cap:10} +p=4@A +q=4@B +y=1@B +f=1@B hA hB -p@A -f@B T:0 released=0 -q@B "
     "in:wait=1( [128 +s=1@B at:s=f -s@B ] ) +w=8@n"},
    /* A request that is refused waits for nothing that was freed once it had begun to wait. */
    {"what_comes_later_is_not_waited_for", TOGETHER,
     "{granule:16 cap:4} hA hB +a=1@A -a@A +b=2@B in:wait=1( -b@B ) +w=5@n!O host-waits=1"},
    /* Its pieces are clean again, but work still uses the window. */
    {"a_pool_stays_while_a_window_alone_is_in_use", TOGETHER,
     "{granule:16 cap:8} P0 +y=512b@B +z=4@n/0 -z@n +a-d=1@A/0 -ac@A +w=2@A/0 pieces:w=2 hA -bd@A "
     "in:wait=1( -w@A +x=4@A/0s -x@n ) D0 host-waits=3"},
    /* The host waits for the first event of a stream that is gone. Meanwhile another thread sees
       the second one complete: the lake stitches on and does not grow, so a request asks first. */
    {"a_stream_that_is_gone_is_complete_once", TOGETHER,
     "{granule:16 cap:7 smax:1} +z.3=7@n -z.3@n +t=512b@B -t@n +a-g=1 -ace@n mark "
     "[16 +v=1+512b -v@n +w=1+1k -w@n ] stitches=32 hA +p=1@A -p@A +q=1@A -q@A fA "
     "in:wait=1( eA +x=1@B ) +y=3@n!O host-waits=1"},
    /* The only number in use is that of the stream that a graph's block was taken and recorded on.
       The block is pending; the stream that freed it is gone, and its number with it. */
    {"a_pending_block_of_one_stream_is_settled", TOGETHER,
     "{granule:16 cap:4} P0 BB:0/0 +c=1@B EB hB rc@B -c@C fC [15 +y=512b@D -y@D fD kD vD ] "
     "pending=1 T:0 numbers-used=1 +x=4@B!O pending=0 host-waits=1"},

    WHICHEVER("on_no_stream", "", "/1", "+x=3@n/1"),
    WHICHEVER("on_a_stream_for_communication", "", "/1", "mC:1 +x=3@C/1"),
    WHICHEVER("to_destroy", "", "/1", "D1"),
    WHICHEVER("to_sleep", "", "/1", "S1:d"),
    WHICHEVER("to_wake", "S0:d ", "", "+y=2@C/1 W0"),

    /* Other threads free blocks of the pool in the middle of both. */
    {"blocks_go_while_their_pool_falls_asleep_and_wakes", BOTH,
     "{granule:16 cap:8} P0 +a-e=1/0 in:copy=1( -b ) in:unmap=1( -c ) S0:k inside:0=0 "
     "in:map=1( -d ) in:copy=1( -e ) W0 holds:a=1 I +x=4/0 -ax D0"},

    /* ---- Buffers, and addresses ---- */

    /* What the growth gives back is the stream's, and is behind the event that ends it. */
    {"a_growth_fails_while_its_stream_waits_to_be_forgotten", TOGETHER,
     "{granule:16 cap:4} +b=2@B N0:4 z0:1@A in:turn=1( z0:4@A!O ) fA kA T:0 released=1 reserved=3"},

    {"a_device_lost_in_a_borrowed_chunk_ends_the_growth", TOGETHER,
     "{granule:16 cap:8} N0:4 z0:2@A hA z0:0@A fail:stream-wait=1G z0:1@B!G host-waits=0"},
    /* The ladder reports the chunk that lacks, and the growth then all that it lacks. */
    {"a_device_lost_in_the_ladders_report_is_told", TOGETHER,
     "{granule:16 cap:2} N0:4 fail:info=1G z0:4@A!G told-call=info requested=0"},
    {"a_device_lost_in_the_report_of_a_growth_is_told", TOGETHER,
     "{granule:16 cap:2} N0:4 fail:info=2G z0:4@A!G told-call=info requested=0"},
    {"addresses_that_cannot_be_waited_for_are_not_had", TOGETHER,
     FULL_ADDRESSES "fail:wait=1R* N1:2!R fail:any=0R fail:reserve=1O* fail:wait=1G N1:2!G"},
    {"a_device_lost_by_a_question_while_tidying_ends_the_create", TOGETHER,
     FULL_ADDRESSES "fail:query=1G N1:2!G"},
    {"a_device_lost_while_tidying_ends_the_create", TOGETHER,
     FULL_ADDRESSES "eA fail:unmap=1G N1:2!G"},
    {"addresses_are_had_although_a_capture_forbids_a_wait", TOGETHER,
     "{granule:16 cap:4 extent:2} P0 N0:16 z0:1@A fail:reserve=1O* hA K0@A +p=512b@B BB:0/0 -p@B "
     "N1:2 host-waits=1 EB"},
    /* All addresses for windows are an idle window's; what cannot be unmapped is why none are had.
     */
    {"no_grow_is_told_why_no_addresses_are_had", TOGETHER,
     "{granule:16 cap:6 window:3} +z.3=6@n -z.3@n +a-f=1 -bdf +w=3 -w fail:unmap=1R* +x=2/g!R "
     "fail:any=0R"},
    /* Addresses where something is still mapped the driver would not take back: it is not asked to.
     */
    {"addresses_that_are_mapped_are_not_given_back", TOGETHER,
     "{granule:16 cap:4} N0:4 z0:2@A fail:unmap=1R destroy!R mappings=1 reservations=1"},
    /* | s a ... | t b ... |: a begins misaligned; b, next in the same list, is shorter than what is
       asked for. */
    {"a_hole_that_is_too_short_is_passed_over", TOGETHER,
     "{granule:16 cap:8} +z.3=2@n -z.3@n +s=512b@n +a=62976b@n +g=2k@n +h=512b@n +b=62464b@n "
     "+i=2560b@n -ba@n +x=62976b@n/s^4k reserved=3 -xsghi@n"},

    /* ---- Who waits for whom: the judge looks at the locks ---- */

    {"what_needs_no_driver_waits_for_no_planner", TOGETHER,
     "{granule:16 cap:16} " FURNISHED
     "+g=1 +h=0 +h=1/^3b!I -s@B -s@B!D -l@A rf@A holds:f=1 pieces:f=1 reset-peaks error!D end:0=2 "
     "z0:1 z0:2 z0:9!I d0:1,1 d0:512b,1!I K1 c0:0,2 BA:0/0 turns=0"},
    {"what_may_need_the_driver_takes_its_turn", TOGETHER,
     "{granule:16 cap:16} " FURNISHED "+g=2 turns=1 +h=3 turns=2 +x=64!O turns=3 +x=20/g!O turns=4 "
     "fB turns=5 Q turns=6 z0:3 turns=7 "
     "c0:4,1 turns=8 C0:5,1 turns=9 N2:8 turns=10 BA:0/0 BA:0/1!C turns=11 D0!C turns=12 EA "
     "turns=13 EA!I turns=14 P2 turns=15 D1 turns=16 T:0 turns=17"},
    /* Reuse of free memory, records, figures, frees, buffers that shrink and grow over what is
       mapped. */
    {"nobody_waits_for_who_creates", TOGETHER, BUSY("") "in:create=1" FAST "+a.3=40@A"},
    {"nobody_waits_for_who_trims", TOGETHER, BUSY("") "in:unmap=1" FAST "T:10"},
    {"nobody_waits_for_who_waits", TOGETHER, BUSY("limit:43") "in:wait=1" FAST "+a.3=20@n"},

    /* The host waits with an event of its own, as there is no place for another one. */
    {"a_wait_without_host_memory", TOGETHER,
     "{granule:16 cap:16} P0 +x=2@A/0 hA -x@A host:1* D0 host-waits=1 host:0"},

    /* ---- While a planner waits for its turn ---- */

    /* The sixteenth stream is forgotten: its number serves B, which frees memory at once. */
    {"a_stream_is_forgotten_while_its_call_waits", TOGETHER,
     "{granule:16 cap:16} +y=512b@A -y@n [15 +x=512b@D -x@D fD kD vD ] T:0 P0 +z.3=2@n/0 -z.3@n "
     "+s=1@n/0 in:turn=1( fA hB +q=1@B/0 -q@B ) +p=2@A/0 waits=0 pieces:p=1 off:p=q"},
    {"captures_end_and_begin_while_a_call_waits", TOGETHER,
     "{granule:16 cap:16} P0 P1 BA:0/0 in:turn=1( EA ) +a=2@A pool:a=n in:turn=1( BA:0/1 ) +b=2@A "
     "pool:b=0 EA in:turn=1( BA:0/2 ) mark +c=2@A/1!C says:pool_is_not_the_one_that_the_stream_is"
     "_captured_into:_set_it_to_that_one_or_to_NULL state=5 EA"},
    /* Whoever waits is told, and asks the driver for nothing. */
    {"a_device_is_lost_while_a_request_waits", TOGETHER,
     "{granule:16 cap:8} +z.3=2@n -z.3@n +a=1@A -a@A +b=1@B -b@B in:turn=1( fail:create=1G +x=4!G "
     "mark ) +y=8!G all-calls=0 handles=2"},
    {"a_device_is_lost_while_a_pool_waits", TOGETHER,
     "{granule:16 cap:8} in:turn=1( fail:create=1G +x=4!G mark ) P0!G all-calls=0"},
    {"a_device_is_lost_while_a_growth_waits", TOGETHER,
     "{granule:16 cap:8} N0:4 N1:4 in:turn=1( fail:create=1G z0:1@A!G mark ) z1:2!G all-calls=0"},
    /* What was a growth when it was asked for takes chunks away by now. */
    {"a_captured_growth_becomes_a_shrink_while_it_waits", TOGETHER,
     "{granule:16 cap:16} P0 N0:8 BA:0/0 in:turn=1( z0:4 ) z0:2@A!C end:0=4 map:0=mmmm EA"},
    /* 61 blocks use up the records that there are. */
    {"records_run_out_while_a_call_waits", TOGETHER,
     "{granule:16 cap:16} +a=512b@A in:turn=1( [60 +*=512b@n ] ) +w=4@A"},
    {"host_memory_runs_out_while_a_call_waits", TOGETHER,
     "{granule:16 cap:16} +a=512b@A in:turn=1( [60 +*=512b@n ] host:1* ) +w=4@A!H host:0"},

    /* ---- The index of live blocks, which has room for 40, is full when the driver is done ---- */

    {"a_full_index_gives_the_block_back", TOGETHER,
     "{granule:16 cap:8} +z.3=1@n -z.3@n [39 +*=512b ] in:create=1( +*=512b host:1 mark ) +x=1!H "
     "live=40 state=5 grown=1 +x=1 grown=1"},
    {"a_full_index_gives_a_block_of_no_stream_back", TOGETHER,
     "{granule:16 cap:8} +z.3=1@n -z.3@n [39 +*=512b ] in:create=1( +*=512b host:1 mark ) +x=1@n!H "
     "live=40 state=5 grown=1 +x=1@n grown=1"},
    /* The stream was made to wait for A's work, which others have to wait for still. */
    {"a_full_index_gives_no_clean_block_back", TOGETHER,
     "{granule:16 cap:5} [34 +*=512b@n ] +g=14k +f=33k +a-d=1 -g@n hA ua@A uc@A -ac@A "
     "in:map=1( [3 +*=512b@n ] host:1 ) +x=2@B!H live=40 mark +y=2@C pieces:y=2 "
     "grown=0 behind:C=1"},

    /* ---- Pools that are destroyed meanwhile ---- */

    /* No capture is to blame: the pool is in use. It is waited for eight times. */
    {"pool_destroy_ends_where_frees_do_not", TOGETHER,
     "{granule:16 cap:16} P0 +a-i=32k@B/0 hB -a@B in:wait=1( hB -b@B ) in:wait=2( hB -c@B ) "
     "in:wait=3( hB -d@B ) in:wait=4( hB -e@B ) in:wait=5( hB -f@B ) in:wait=6( hB -g@B ) "
     "in:wait=7( hB -h@B ) in:wait=8( hB -i@B ) D0!I host-waits=8 says:other_threads_free_the_"
     "pool's_blocks_while_it_is_destroyed:_stop_them_first D0"},

    /* ---- Captures that end by an exception, or by an illegal call: the lake is not told ---- */

    /* The stream can be captured again, and the pool goes. */
    {"a_capture_that_ended_untold_is_over", TOGETHER,
     "{granule:16 cap:32} P0 P1 P2 P3 BA:0/0 driver-alone EA BA:1/1 driver-alone EA BA:2/2 "
     "driver-alone EA BA:3/3 +a=4@A -a@A EA EA!I D0 D1 D2 D3 T:0 reserved=0"},
    {"a_capture_that_allocated_and_ended_untold_is_over", TOGETHER,
     "{granule:16 cap:32} P0 P1 P2 P3 BA:0/0 +a=4@A driver-alone EA -a@A BA:1/1 +a=4@A "
     "driver-alone "
     "EA -a@A D1 BA:2/2 +a=4@A driver-alone EA -a@A BA:3/3 +a=4@A -a@A EA EA!I D0 D2 D3 T:0 "
     "reserved=0"},
    /* The lake finds out in a call that takes the driver lock; the end that is told later is none.
       A graph knows p. The third capture forgets that the lake ended the second one. */
    {"the_end_may_be_told_after_the_lake_knows_it", TOGETHER,
     "{granule:16 cap:8} P0 BA:0/0 +p=1@A -p@A T:0 captures=1 D0!C driver-alone EA T:0 captures=0 "
     "+q=1@A off:q=p lake-alone EA EA!I BA:0/1 +r=1@A at:r=p driver-alone EA T:0 BA:0/2 EA EA!I "
     "-r@n"},
    /* A capture that only the lake was told of may be about to begin: it ends where a call says so.
       The one before was seen, and says nothing of it. */
    {"a_capture_that_was_never_seen_ends_where_its_stream_is_forgotten", TOGETHER,
     "{granule:16 cap:8} " NEVER_SEEN "fA D0 D1"},
    {"a_capture_that_was_never_seen_ends_where_the_next_one_begins", TOGETHER,
     "{granule:16 cap:8} " NEVER_SEEN "BA:1/2 EA D0 D1"},
    /* Memory that a dead capture would keep the host from waiting for serves. */
    {"a_request_ends_dead_captures", TOGETHER,
     "{granule:16 cap:4} P0 +q=3@B BA:0/0 +p=1@A driver-alone EA hB -q@B +r=3@n captures=0 "
     "host-waits=1"},
    /* It went while it was captured, and another has its value when the capture ends: what it freed
       then waits for the device. */
    {"a_captured_stream_that_went_is_not_its_successor", TOGETHER,
     "{granule:16 cap:2 may-end} P0 +p=1@A lake-alone BA:0/0 -p@A hA kA vA lake-alone EA "
     "lost-streams=1 +q=1@B off:q=p host-waits=0 +r=1@B at:r=p host-waits=1"},

    /* ---- What is to be done is said ---- */

    {"a_stream_that_refuses_an_event_may_be_gone", TOGETHER,
     "{granule:16 cap:8} +p=1@A +q=1@B fail:record=1R -q@B "
     "says:destroyed_before_gmlake_forget_stream"},
    {"a_stream_that_is_gone_was_to_be_forgotten", TOGETHER,
     "{granule:16 cap:8} +r=512b@B -r@B kB!U T:0 says:destroyed_before_gmlake_forget_stream"},
    {"a_capture_that_is_in_the_way_is_to_be_ended", TOGETHER,
     "{granule:16 cap:8} P0 P1 +p=1@A/0 BA:1/0 -p@A D0!C says:work_on_the_pool's_memory_is_pending,"
     "_and_a_capture_forbids_to_record_an_event_behind_it:_end_the_capture_first EA"},

    /* ---- While a policy thinks, or the handler ---- */

    /* What is free by the time of the answer may be taken, though it was not shown. */
    {"others_free_while_a_policy_chooses", TOGETHER,
     "{granule:16 cap:4 policy:1} " LAID_4
     "-a mark plan:2,a+32k=2 in:choose=1( -bc ) +x=2 state=2 at:x=a+32k"},
    /* The block whose former is to be kept is larger by then: kept is what was shown. */
    {"others_free_around_a_former", TOGETHER,
     "{granule:16 cap:5 policy:1} +z.3=5@n -z.3@n +a-e=1 -bc plan:2,b=1,K in:choose=1( -ad ) +x=1 "
     "at:x=b shows:a=1,c=2;1c"},
    {"others_free_beside_a_former", TOGETHER,
     "{granule:16 cap:6 policy:3} " LAID_6 "-bc plan:2,b=1,K in:evict=1( -ad ) +x=1 at:x=b "
     "pieces:x=1 -x plan:1,W1 +y=512b pieces:y=2 reuses=1"},
    /* No lock is held then: everybody may call. */
    {"others_allocate_while_a_policy_is_asked_to_coalesce", TOGETHER,
     "{granule:16 cap:8 policy:4} +a=3 -a +x=1 in:coalesce=1( +y=1 -y T:8 ) -x"},
    /* Another thread's free records an event, in vain. */
    {"a_device_is_lost_while_a_policy_chooses", TOGETHER,
     "{granule:16 cap:8 policy:1} " LAID_6 "-ac +s=1@A -s@A +t=1@n -t@n plan:3,a=1,c=1 "
     "in:choose=1( fail:record=1G -e mark ) +x=2!G live=3 all-calls=0 destroy!G"},
    {"a_device_is_lost_while_a_policy_evicts", TOGETHER,
     "{granule:16 cap:8 policy:2} " LAID_6 "-ac +s=1@A -s@A +t=1@n -t@n in:evict=1( "
     "fail:record=1G -e mark ) +x=2!G live=3 all-calls=0 destroy!G"},
    {"a_device_is_lost_while_a_policy_coalesces", TOGETHER,
     "{granule:16 cap:8 policy:4} " LAID_6 "-ac +s=1@A -s@A +t=1@n -t@n in:coalesce=1( "
     "fail:record=1G -e mark ) -b!G live=3 all-calls=0 destroy!G"},
    /* Only the thread that the handler runs on may not grow. */
    {"others_grow_while_the_handler_runs", TOGETHER,
     "{granule:16 cap:4 oom} N0:4 in:handler=1( z0:2 ) +x=8!O map:0=mm"},
    {"others_allocate_while_the_handler_runs", TOGETHER,
     "{granule:16 cap:4 oom} +a=4 in:handler=1( -a +b=1 -b ) +x=2"},
    /* Another pool makes room. */
    {"the_asking_pool_outlives_the_handler", TOGETHER,
     "{granule:16 cap:4 oom} P0 P1 in:handler=1( D0!B says:asks_the_pool_at D1 ) +x=5/0!O +x=4/0 "
     "S0:d +y=4 in:handler=1( D0!B ) W0 D0"},
    /* What it needs itself is there when it is asked the first time. */
    {"a_handler_needs_no_host_memory", TOGETHER,
     "{granule:16 cap:4 oom} +x=5!O host:1* in:handler=1( mark ) +x=5!O host:0"},

    /* ---- The thread's capture mode, which the driver does not set back ---- */

    {"destroy_tells_of_a_mode_that_stays_relaxed", TOGETHER,
     "{granule:16 cap:4} +a=1 -a fail:exchange=2R destroy warnings-told=1"},
    {"destroy_fails_the_second_time_it_relaxes_the_mode", TOGETHER,
     "{granule:16 cap:4} +a=1 -a fail:exchange=3R destroy!R warnings-told=0"},

    /* ---- Sharing over and over: the judge sees descriptors that are left ---- */

    {"nothing_is_left_of_many_that_were_shared", TOGETHER,
     "{granule:16 cap:16 share} [10 +a=2/x xa ib=a -a -b ] mark [700 +a=2/x xa ib=a -a -b ] "
     "metadata-grown=0 reserved=0 driver-bytes=0"},

    /* ---- A fatal error stays what is told ---- */

    {"the_fatal_error_stays_the_last_one", TOGETHER,
     "{granule:16 cap:4} " LAID_4 "-ac +w=2 pieces:w=2 -w fail:unmap=1G fail:exchange=4R* T:0!G "
     "error!G"},
    /* The answer of a stream that is being captured hid what another one's was. */
    {"a_capture_hides_no_error", TOGETHER,
     "{granule:16 cap:8} P0 lake-alone BA:0/0 +x=1@B -x +y=1@C fail:record=1R* destroy!R"},
    /* The same, a fatal one: the climb went on, and its report replaced the error. */
    {"a_capture_hides_no_lost_device", TOGETHER, SHORT_IN_A_CAPTURE("1")},
    {"a_capture_hides_no_device_that_is_lost_last", TOGETHER, SHORT_IN_A_CAPTURE("5")},

    {"no_order_reads_the_clock_for_events", TOGETHER,
     "{granule:16 cap:32 wait-first} " TWO_KNOWN "+m=1@A -m@A mark " LEAVE_1 "clock-reads=0 "
     "t:10000000 eA " ASK LEAVE_4 "mark +y=4@B waits=1 grown=0"},
};

#define MEANWHILE_ROWS (sizeof(meanwhile_rows) / sizeof(meanwhile_rows[0]))

#endif /* PLAY_MEANWHILE_ROWS_H */
