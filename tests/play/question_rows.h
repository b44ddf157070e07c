/* Rows of test_rows.c: what lies where, how an allocation would end, what the budget promises, and
   what is told when memory has run out. As in rows.h sizes are in chunks. */
#if !defined(PLAY_QUESTION_ROWS_H)
#define PLAY_QUESTION_ROWS_H

#include "rows.h"

/* So many blocks of a chunk, side by side. */
#define LAID_8 "+z.3=8@n -z.3@n +a-h=1 "
#define LAID_6 "+z.3=6@n -z.3@n +a-f=1 "
#define LAID_4 "+z.3=4@n -z.3@n +a-d=1 "
#define LAID_16 "+z.3=16@n -z.3@n +a-p=1 "

static const row question_rows[] = {
    /* ---- What lies where ---- */

    /* q begins behind p, in the same chunk. Nothing lies before, behind, on the host, at 0. */
    {"any_address_of_a_block_finds_it", TOGETHER,
     "{granule:16 cap:16} +p=100b +q=1+700b/s at:q=p+512b lies:p=live-block@0/p "
     "lies:p+511b=live-block/p lies:q+1+1023b=live-block@0/q lies:q+1+1k=free-hole "
     "lies:p-1b=nothing lies:p+2=nothing lies:0=nothing lies:H=nothing I"},
    /* | a | W | c | W | e | W | g | h |: the window is found at its pieces' addresses, too, until
       it is free; then they are holes, and after the trim nothing. */
    {"windows_are_found_at_both_addresses", TOGETHER,
     "{granule:16 cap:16} " LAID_8 "-bdf +w=3 pieces:w=3 lies:w+3-1b=live-block/w "
     "lies:d+5b=live-block/w lies:w+3=nothing lies:w-1b=nothing I -w lies:w+2=tagged-window@0/w "
     "lies:d+5b=tagged-hole@0/d I T:0 lies:w=nothing lies:d=nothing I"},
    /* Of the parts of chunks at a window's ends that are not the window's, nothing is told. */
    {"what_a_window_maps_beside_itself_is_not_its_own", TOGETHER,
     "{granule:16 cap:16} +z.3=6@n -z.3@n +a-l=32k -dg +w=1 pieces:w=2 home:w0=d "
     "lies:w=live-block/w lies:w-1b=nothing lies:w+1=nothing I"},
    /* In the end, the budget has asked what is complete. */
    {"the_state_says_who_may_have_free_memory", TOGETHER,
     "{granule:16 cap:32} P0 +p=1@A +q=1@A lies:p=live-block@A +s=512b@B hA hB -p@A "
     "lies:p+9b=tagged-hole@A/p rq@B -q@A lies:q+9b=pending-block/q BB:0/0 +r=1@B -r@B "
     "lies:r=graph-hole/r EB lies:r=graph-hole/r I fA lies:p=tagged-hole@n/p eA eB Q "
     "lies:p=free-hole I"},
    /* A block of two chunks, a window of three, a buffer with a tail and a pool's block. */
    {"chunks_and_pools_figures_are_those_of_blocks_and_buffers", TOGETHER,
     "{granule:16 cap:32} " LAID_8
     "I -bc +p=1+32k I -eg +w=2+16k pieces:w=3 I N0:4 z0:3 I P0 N1:4/0 "
     "+q=1+100b/0 z1:2-1b inside:0=4 I -q K1 inside:0=4 I"},
    {"a_buffers_holes_have_no_chunks", BOTH,
     "{granule:16 cap:16} N0:8 c0:1,3 z0:5+1b d0:2,1 map:0=.m.mmm requested=3+1b buffer-bytes=4 I"},
    /* The home address of a buffer's memory is nobody's. */
    {"a_chunk_of_a_buffer_is_no_block_at_home", TOGETHER,
     "{granule:16 cap:8} N0:4 +a=2 -a c0:0,1 wa:0 says:it_lies_in_no_live_block_and_in_no_buffer "
     "lies:a=nothing lies:a+1=tagged-hole I"},
    {"a_pools_figures_tell_what_is_quarantined", TOGETHER,
     "{granule:16 cap:16} N0:8^2 fail:access=1R fail:unmap=1R* z0:4!R fail:any=0R quarantined=4 I"},

    /* ---- How an allocation would end: the judge compares the answer with every second one ---- */

    {"a_question_needs_no_driver_where_the_answer_is_known", TOGETHER,
     "{granule:16 cap:8} +b=512b mark q=512b foretold q=0 foretold foretold-new=0 all-calls=0 "
     "+a=512b"},
    /* In the end the pool's chunks serve the default pool, once they are returned. */
    {"growth_is_foretold_to_the_chunk", TOGETHER,
     "{granule:16 cap:16 limit:12} P0:3 q=3 foretold foretold-wait=0 foretold-new=3 +a=3 q=3/g "
     "foretold!O +c=3/g!O q=2+1b/0 foretold foretold-new=3 +c=2+1b/0 q=2+1b/0 foretold!L "
     "+e=2+1b/0!L q=6 foretold foretold-new=6 +e=6 q=1 foretold!L +g=1!L h0 -c q=3 foretold "
     "foretold-wait=2 foretold-new=3 +g=3 host-waits=1"},
    {"a_window_is_foretold_with_what_it_lacks", TOGETHER,
     "{granule:16 cap:10} " LAID_8 "-ace q=3 foretold foretold-new=0 +w=3 -w q=5 foretold "
     "foretold-new=2 +w=5 q=1 foretold!O +a=1!O"},
    {"a_range_is_foretold_that_takes_one_chunk_more", TOGETHER,
     "{granule:16 cap:10} " LAID_4 "-a q=2 foretold-new=2 +w=2 reserved=6"},
    /* What b had is to be returned; then home has memory to return. */
    {"limits_between_chunks_are_foretold", TOGETHER,
     "{granule:16 cap:32 limit:8-1b} Q allocatable=7 P0:2 +a=3 +b=2/0 -b@n q=5 foretold!L +c=5!L "
     "q=4 foretold foretold-wait=0 foretold-new=4 +c=4 -c@n P1:2-1b q=1/1 foretold foretold-wait=0 "
     "foretold-new=1 +e=1/1 q=1/1 foretold!L +g=1/1!L"},
    /* A pool may replace what it can return, and no more. */
    {"a_pools_limit_holds_for_what_replaces_its_memory", TOGETHER,
     "{granule:16 cap:32} P0:4 +a-d=1/0 -ac q=3/0s foretold!L +e=3/0s!L q=2/0s foretold "
     "foretold-new=2 +e=2/0s"},
    /* A's work need not be waited for. */
    {"a_pool_counts_on_what_its_own_buffers_return", TOGETHER,
     "{granule:16 cap:16} P0:4 N0:4/0^2 z0:2 z0:0@n +a=2@A hA -a@A q=4/0 foretold foretold-wait=0 "
     "foretold-new=4 +b=4/0 host-waits=0"},
    /* What is free of a pool that sleeps is no memory. */
    {"what_sleeps_is_not_counted_on", TOGETHER,
     "{granule:16 cap:8} P0 +a=3/0 S0:d -a@n Q allocatable=8 +x=5 q=6 foretold!O +y=6!O W0"},
    {"what_home_returns_is_counted_on_by_a_pool", TOGETHER,
     "{granule:16 cap:8} P0 +a=6 -a h0 q=4/0 foretold foretold-wait=2 foretold-new=4 +a=4/0"},
    /* After the host's wait it would be what has to be left to others that forbids to grow. */
    {"a_limit_that_only_waiting_meets_is_told", TOGETHER,
     "{granule:16 cap:8 keep:2} +a=3@A +b=2@A hA -a@A q=6@n foretold!L +c=6@n!L"},
    /* What is free begins inside a chunk, and the request is aligned to chunks; the second time it
       has been returned. */
    {"alignment_is_foretold", TOGETHER,
     "{granule:16 cap:3} +a=1+512b +b=2-512b -b q=1+512b/s^1 foretold!O +c=1+512b/s^1!O q=1/s^1 "
     "foretold foretold-wait=0 foretold-new=1 +c=1/s^1"},
    /* The legacy stream has work that nobody waits for: it can have no event in a capture. */
    {"a_capture_leaves_no_wait_to_be_foretold", TOGETHER,
     "{granule:16 cap:10} P0 P1 +a=4/0 -a@n +b=4 +c=512b BA:1/0 -c mark q=5 foretold "
     "foretold-wait=0 foretold-new=4 +e=5 grown=0 chunks=9 EA"},
    /* The window's use has an event from before the capture; the last block's can have none. */
    {"what_has_its_event_is_counted_on_in_a_capture", TOGETHER,
     "{granule:16 cap:6} P0 " LAID_6 "-bd@n +w=2@A pieces:w=2 hB rw@B -w@A rf@B BB:0/0 -f@A q=2@A "
     "foretold foretold-wait=1 foretold-new=0 +w=2@A waits=1 -w@A q=3@A foretold!O +y=3@A!O EB eB "
     "q=3@A foretold foretold-wait=0 foretold-new=0 +y=3@A"},
    /* New chunks side by side, for those that are returned once the host has waited. */
    {"a_window_without_addresses_is_not_foretold", TOGETHER,
     "{granule:16 cap:8 window:1} " LAID_8 "-ac q=2/g foretold!O +y=2/g!O h0 q=2 foretold "
     "foretold-wait=2 foretold-new=2 +y=2 -b q=1 foretold foretold-wait=0 foretold-new=0 +a=1"},
    {"waits_are_foretold", TOGETHER,
     "{granule:16 cap:8} +a=6@A +b=512b@B hA -a@A q=1@B foretold foretold-wait=0 foretold-new=1 "
     "+c=1@B q=3@B foretold foretold-wait=1 foretold-new=0 +e=3@B waits=1 q=2@n foretold "
     "foretold-wait=2 foretold-new=0 +g=2@n host-waits=1"},
    /* It has just the size. */
    {"a_range_that_the_host_waits_for_is_foretold", TOGETHER,
     "{granule:16 cap:3} +a=2@A +b=512b@B hA -a@A q=2@n/s foretold foretold-wait=2 foretold-new=0 "
     "+c=2@n/s host-waits=1"},
    /* A free chunk is clean, but a buffer that had it before still maps it for work that is not
       done: it is not returned before the host has waited. */
    {"a_chunk_that_a_buffer_may_still_use_is_not_counted_on", TOGETHER,
     "{granule:16 cap:2} N0:8^2 N1:8^2 z0:1@A hA z0:0@A z1:1@B z1:0@n handles=1 q=1@B foretold "
     "foretold-wait=2 foretold-new=1 +a=1@B host-waits=1"},
    /* A window that waits for a recorded stream is dropped once the host has waited. */
    {"pending_windows_are_counted_on", TOGETHER,
     "{granule:16 cap:6 window:2} " LAID_6 "-ac +w=2 rw@A hA -w q=1+512b foretold foretold-wait=2 "
     "foretold-new=0 +y=1+512b"},
    /* A pool's memory that waits for a recorded stream is free, and returned, once the host has
       waited. */
    {"pending_memory_of_pools_is_counted_on", TOGETHER,
     "{granule:16 cap:4} P0 +a=2@A/0 ra@B +b=2@A hB -a@A q=2@A foretold foretold-wait=2 "
     "foretold-new=2 +c=2@A host-waits=1"},
    {"what_others_use_and_a_new_chunk_are_foretold", TOGETHER,
     "{granule:16 cap:5} +a=2@B +b=2@A hA -b@A q=3@B foretold foretold-wait=1 foretold-new=1 "
     "+c=3@B waits=1"},
    /* An idle window is all that fits, and there are no addresses for another one. */
    {"a_window_that_another_stream_used_is_foretold", TOGETHER,
     "{granule:16 cap:4 window:2} " LAID_4 "-ac +w=2@A pieces:w=2 hA -w@A q=2@B foretold "
     "foretold-wait=1 foretold-new=0 +y=2@B waits=1"},
    /* No addresses for a window, so chunks are created behind what the host has waited for. */
    {"growth_behind_what_others_use_is_foretold", TOGETHER,
     "{granule:16 cap:8 window:1} +a=5@A hA -a@A q=7@B foretold foretold-wait=2 foretold-new=2 "
     "+c=7@B host-waits=1"},
    /* | live | gap | free | gap | live |: what is free stays, as a capture forbids to fence it. One
       growth fills one gap. */
    {"two_gaps_are_not_filled_at_once", TOGETHER,
     "{granule:16 cap:5} P0 +z.3=5@n -z.3@n +a-e=1 -bd T:0 released=2 BA:0/0 -c q=3/s foretold!O "
     "+y=3/s!O q=2/s foretold foretold-wait=0 foretold-new=1 +y=2/s EA"},
    /* | live, free | gap | live | free | live |: what is free is returned, and fills the gap. */
    {"a_gap_is_counted_on_for_what_is_returned", TOGETHER,
     "{granule:16 cap:5} +a=32k +z=32k +b-e=1 -b@n T:0 P0 +x=1/0 -zd@n Q allocatable=1+32k "
     "q=1+32k/s foretold foretold-wait=0 foretold-new=1 +y=1+32k/s at:y=a+32k"},
    /* The first question asks what is complete: what was tagged is clean from there on. */
    {"a_question_changes_no_memory", TOGETHER,
     "{granule:16 cap:12} N0:8^2 " LAID_8 "z0:2 z0:0 -ac q=4 note q=4 foretold-new=2 same"},
    /* A trim returns what it is asked for, and nothing else that a question had in mind: the pages
       of the chunks that stay are mapped still. */
    {"what_a_question_would_return_stays", TOGETHER,
     "{granule:16 cap:12} N0:8^2 +a=4-512b +b=512b@A z0:8 z0:0 mappings=8 q=12 mappings=8 T:10 "
     "released=2 mappings=7"},
    /* What was answered before stays. */
    {"a_driver_that_does_not_answer_is_an_error", TOGETHER,
     "{granule:16 cap:8} q=1 fail:info=1R q=2!R foretold-new=1 host:1 q=2@A!H foretold-new=1"},
    /* The device is lost where it is asked what is complete. */
    {"a_question_of_a_lost_device_is_an_error", TOGETHER,
     "{granule:16 cap:4} +a=1@A +b=1@B hA -a@A +c=1@A fail:query=1G q=2@B!G"},
    /* Whoever asked for memory on no stream once made an only stream record events for good. */
    {"a_question_on_no_stream_ends_with_it", TOGETHER,
     "{granule:16 cap:16} +a=1 +b=4 -b q=1@n foretold events=1 [20 +b=2 -b ] events=1"},
    /* What is set aside for small blocks ended at a question: the next large block lay behind each.
     */
    {"questions_leave_what_is_set_aside", TOGETHER,
     "{granule:16 cap:128} +a=40 +b=512b Q q=10000 q=10000@n +l=16k +c=512b at:c=b+512b "
     "from:l=b+1k"},

    /* ---- What the budget promises is served ---- */

    /* Where no window can be made it counts what can be created behind the last block. */
    {"the_budget_counts_new_memory_where_nothing_is_stitched", TOGETHER,
     "{granule:16 cap:8 smin:64} Q allocatable=8 +a=1+512b Q allocatable=7-512b +b=7-512b"},
    /* | live, free | live | free, live |: the free halves make a window, if it is not too small. */
    {"the_budget_counts_the_smallest_window", TOGETHER,
     "{granule:16 cap:3 smin:1} +a-b=32k +c=1 +d-e=32k -bd Q allocatable=1 +w=1"},
    /* No window is as long, but chunks created side by side are; so where only the device ends, it
       has 16. */
    {"the_budget_counts_what_is_created_in_place_of_free_chunks", TOGETHER,
     "{granule:16 cap:16 window:4 limit:16} " LAID_16
     "-acegikmo Q allocatable=8 q=8 foretold +y=8"},
    {"the_budget_counts_what_is_created_on_a_full_device", TOGETHER,
     "{granule:16 cap:16 window:4} " LAID_16 "-acegikmo Q allocatable=8 q=8 foretold +y=8"},
    {"the_budget_counts_a_window_with_addresses", TOGETHER,
     "{granule:16 cap:16 window:8 limit:16} " LAID_16
     "-acegikmo Q allocatable=8 q=8 foretold +y=8"},
    /* One chunk more than windows have. */
    {"the_budget_counts_a_chunk_more_than_windows_have", TOGETHER,
     "{granule:16 cap:16 window:3 limit:16} " LAID_16 "-aceg Q allocatable=4 q=4 foretold +y=4"},
    {"the_budget_counts_two_chunks_where_windows_have_one", TOGETHER,
     "{granule:16 cap:16 window:1 limit:16} " LAID_16 "-ac Q allocatable=2 q=2 foretold +y=2"},

    /* The window that it counts ends with the half of a chunk that is free. */
    {"the_budget_counts_a_free_head_behind_whole_chunks", TOGETHER,
     "{granule:16 cap:3} +a=32k +b=1-32k +c=1 +d=1 -ca Q allocatable=1+32k +w=1+32k"},

    /* ---- Why memory ran out: reserved is here, elsewhere, free and pending ---- */

    /* Two to a chunk: their holes are no ends. In a capture nobody can wait for B. */
    {"the_report_says_whose_the_memory_is", TOGETHER,
     "{granule:16 cap:16} P0 N0:8^2 +a-h=32k@A +p=2@A +q=3@A/0 z0:2@A +r=5@A reserved=16 -aceg@n "
     "+s=512b@A +t=512b@B hB rp@B BB:0/0 -p@A +x=9@A!O told-reserved=16 told-elsewhere=5 "
     "told-here=7+1k told-pending=2 told-free=2-1k told-largest=32k EB eB"},
    /* b lies inside a chunk; f and g, and l and m, at a chunk's end and the next one's begin. */
    {"the_report_tells_holes_from_what_can_be_stitched", TOGETHER,
     "{granule:16 cap:4} +z.3=4@n -z.3@n +a-p=16k -bfglm +x=2!O told-reserved=4 told-free=80k "
     "told-largest=32k told-stitchable=32k told-holes=48k told-here=176k told-elsewhere=0 "
     "told-pending=0"},
    {"the_report_tells_what_sleeps", TOGETHER,
     "{granule:16 cap:8} P0 +a=3/0 +b=2 S0:d +x=7!O told-sleeping=3 told-reserved=2 told-here=2 "
     "told-free=0 told-pending=0 told-elsewhere=0 W0"},
    {"the_report_counts_a_freed_window_as_pending", TOGETHER,
     "{granule:16 cap:8} P0 " LAID_8 "-bdf@n +i=1@B +w=2@A pieces:w=2 hB rw@B BB:0/0 -w@A +x=1@A!O "
     "told-reserved=8 told-pending=2 told-here=6 told-free=0 told-elsewhere=0 EB eB"},
};

#define QUESTION_ROWS (sizeof(question_rows) / sizeof(question_rows[0]))

#endif /* PLAY_QUESTION_ROWS_H */
