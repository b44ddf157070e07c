/* Rows of test_rows.c: the steps that the observer is told, one by one. The judge looks at their
   figures, at who asked, and at what they add up to. As in rows.h sizes are in chunks. */
#if !defined(PLAY_OBSERVER_ROWS_H)
#define PLAY_OBSERVER_ROWS_H

#include "rows.h"

#define FREED ":free_for_the_stream_that_it_was_freed_on "
#define GROWN ":the_lake_created_chunks "
#define TAKES_A_PART ":the_request_takes_a_part_of_this_free_range "
#define EXACT_WINDOW ":an_idle_window_has_exactly_the_size "
#define MAPPED ":the_lake_mapped_free_pieces_side_by_side "
#define STITCHED ":the_lake_stitched_free_pieces "
#define WINDOW_GONE ":the_lake_dropped_an_idle_window "
#define RETURNED ":the_lake_returned_free_chunks_to_the_driver "
#define NOT_SERVED ":the_lake_could_not_serve_the_request "

static const row observer_rows[] = {
    {"growth_and_an_exact_range_are_told", TOGETHER,
     "{granule:16 cap:8 observed} +a=2-100b heard:GROW~@0,a=2" GROWN "heard:ALLOC~@0,a=2" GROWN
     "-a heard:FREE@0,a=2" FREED "+b=2 heard:ALLOC@0,b=2:a_free_range_has_exactly_the_size "
     "heard:nothing"},
    {"steps_on_no_stream_are_told", TOGETHER,
     "{granule:16 cap:8 observed} +a=1@n heard:GROW@n,a=1" GROWN "heard:ALLOC@n" GROWN
     "-a@n heard:FREE@n,a=1:free_for_every_stream heard:nothing"},
    {"a_split_is_told", TOGETHER,
     "{granule:16 cap:8 observed} +z.3=3@n -z.3@n +a-c=1 -b mark +x=1000b "
     "heard:SPLIT@0,b=1" TAKES_A_PART
     "heard:ALLOC:the_smallest_free_range_that_is_larger heard:nothing"},
    {"a_stitch_and_a_reuse_are_told", TOGETHER,
     "{granule:16 cap:4 observed} +z.3=4@n -z.3@n +a-d=1 -ac mark +w=2 heard:STITCH~@0,w=2" MAPPED
     "heard:ALLOC~,w=2" STITCHED "-w heard:FREE,w=2" FREED "+x=2 heard:REUSE@0,w=2" EXACT_WINDOW
     "heard:ALLOC" EXACT_WINDOW "heard:nothing"},
    {"a_shortfall_is_told_before_the_stitch", TOGETHER,
     "{granule:16 cap:8 observed} +z.3=4@n -z.3@n +a-d=1 -ac mark +w=3 heard:GROW~@0,d+1=1" GROWN
     "heard:STITCH~,w=3" MAPPED "heard:ALLOC" GROWN "heard:nothing"},
    {"windows_above_the_threshold_are_told", TOGETHER,
     "{granule:16 cap:6 smax:2 observed} +z.3=6@n -z.3@n +a-f=1 -ace +v=2 -v mark +w=3 "
     "heard:STITCH,w=3" MAPPED "heard:EVICT~@0,v=2" WINDOW_GONE "heard:ALLOC" STITCHED
     "heard:nothing"},
    {"a_trim_is_told", TOGETHER,
     "{granule:16 cap:4 observed} +z.3=4@n -z.3@n +a-d=1 -ac +w=2 -w -d mark T:2 "
     "heard:EVICT~@n,w=2" WINDOW_GONE "heard:TRIM~@n,0=2" RETURNED "T:0 heard:TRIM@n,0=1" RETURNED
     "heard:nothing"},
    /* Windows that are unmapped together share the time. */
    {"evictions_share_their_time", TOGETHER,
     "{granule:16 cap:8 observed} +z.3=8@n -z.3@n +a-h=1 -ac +x=2 -eg +y=2 -xy@n mark T:4 "
     "released=4 heard:EVICT~ heard:EVICT~ heard:TRIM~ heard:nothing"},
    {"the_end_of_a_pool_is_told", TOGETHER,
     "{granule:16 cap:8 observed} P0 heard:nothing +a=2/0 mark h0 -a heard:FREE,a=2" FREED
     "D0 heard:WAIT@0,0=0:the_host_waits_for_this_stream's_work "
     "heard:TRIM@n,0=2:the_chunks'_pool_was_destroyed heard:nothing"},
    {"a_wait_on_the_device_is_told", TOGETHER,
     "{granule:16 cap:4 wait-first observed} +a=2@A hA -a@A mark +b=1@B "
     "heard:WAIT~@B,0=0:this_stream_waits_on_the_device_for_another_one's_work "
     "heard:SPLIT@B,a=2" TAKES_A_PART
     "heard:ALLOC:the_stream_waits_for_another_one_and_takes_its_memory heard:nothing "
     "eA"},
    /* Freed on two streams by turns and wanted on a third: a wait for each, of the same time, and
       none twice for what lies in two places. */
    {"a_wait_for_each_of_two_streams_is_told", TOGETHER,
     "{granule:16 cap:4 wait-first observed} +z.3=4@n -z.3@n +a-d=1 hA hB -a@A -b@B -c@A mark "
     "+x=3@C heard:WAIT~@C heard:WAIT~@C heard:ALLOC heard:nothing eA eB"},
    {"a_wait_of_the_host_is_told", TOGETHER,
     "{granule:16 cap:2 observed} +a=2@A hA -a@A mark +b=1@n "
     "heard:WAIT~@A,0=0:the_host_waits_for_this_stream's_work heard:SPLIT@n,a=2" TAKES_A_PART
     "heard:ALLOC:the_host_waited_for_streams_first heard:nothing"},
    {"a_pending_free_is_told", TOGETHER,
     "{granule:16 cap:4 observed} +a=1@A +y=1@A -y@A hB mark ry@B!U heard:nothing ra@B "
     "heard:USE@B,a=1:the_block_is_used_on_this_stream,_too -a@A "
     "heard:FREE@A,a=1:pending:_other_streams_may_still_use_it heard:nothing eB"},
    /* What is refused without an attempt is not told. */
    {"an_attempt_that_fails_is_told", TOGETHER,
     "{granule:16 cap:2 observed} +a=1 mark +x=2+1b!O heard:ALLOC@0,0=2+512b" NOT_SERVED
     "+x=9223372036854775807b!O heard:ALLOC,0=0" NOT_SERVED "-a mark -a!D +x=0 +x=1/^3b!I "
     "heard:nothing"},
    {"retries_have_numbers_of_their_own", TOGETHER,
     "{granule:16 cap:2 oom observed} +a=2 mark +b=1 heard:ALLOC,0=1" NOT_SERVED
     "heard:FREE,a=2 heard:SPLIT,a=2" TAKES_A_PART "heard:ALLOC,b=1"},
    {"growth_that_stays_is_told", TOGETHER,
     "{granule:16 cap:4 observed} mark fail:access=1R* fail:unmap=1R* +x=1!R "
     "heard:GROW@0,0=1:growth_failed,_and_the_driver_refused_to_take_chunks_back "
     "heard:ALLOC,0=1" NOT_SERVED "heard:nothing fail:any=0R"},
    /* The index is full, and has to grow when the memory is mapped. */
    {"an_import_that_lacks_host_memory_is_told", TOGETHER,
     "{granule:16 cap:16 share observed} +a=1/x xa [39 +*=512b ] mark host:9 ib=a!H "
     "heard:GROW@n:another_process's_memory_was_mapped "
     "heard:TRIM@n,0=1:the_chunks'_pool_was_destroyed heard:nothing"},
    {"an_attempt_is_of_no_stream_that_has_gone_meanwhile", TOGETHER,
     "{granule:16 cap:16 wait-first observed} +a=1@A ra@B hB -a@A +b=1@A mark fail:record=1I "
     "+c=1@A heard:GROW heard:ALLOC@n,c=1 heard:nothing"},
    {"plans_have_reasons", TOGETHER,
     "{granule:16 cap:8 policy:1 observed} +z.3=4@n -z.3@n +a-d=1 -ac mark plan:3,c=1,a=1 +w=2 "
     "heard:STITCH,w=2" MAPPED "heard:ALLOC:the_policy_chose_this -w mark plan:2,a=512b +x=512b "
     "heard:SPLIT,a=1" TAKES_A_PART "heard:ALLOC:the_policy_chose_this plan:5;5 +y=1!O "
     "heard:EVICT@0,w=2" WINDOW_GONE "heard:TRIM@0,0=1" RETURNED "heard:ALLOC,0=1" NOT_SERVED
     "+y=1 heard:GROW,y=1" GROWN "heard:ALLOC" GROWN "heard:nothing"},
    /* Its chunks go behind its host copy, and are counted meanwhile. */
    {"a_pool_that_kept_contents_goes", TOGETHER,
     "{granule:16 cap:8 observed} P0 BA:0/0 +a=1@A EA -a@A S0:k W0 mark D0 "
     "heard:TRIM@n,0=1:the_chunks'_pool_was_destroyed heard:nothing"},
    {"buffers_are_no_requests", APART,
     "{granule:16 cap:8 observed} N0:4 heard:BUFFER@n=1:a_buffer_was_created z0:3 "
     "heard:GROW@0,0=1" GROWN
     "heard:GROW,0=1 heard:GROW,0=1 heard:COMMIT@0=3:the_range_has_memory z0:1 "
     "heard:DISCARD@0=2:the_range_has_none_any_more z0:1 heard:nothing T:0 "
     "heard:TRIM@n,0=2" RETURNED "z0:5!I K0 heard:DISCARD@0=1:the_range_has_none_any_more "
     "heard:END@0=0:a_buffer_was_destroyed heard:nothing"},
};

#define OBSERVER_ROWS (sizeof(observer_rows) / sizeof(observer_rows[0]))

#endif /* PLAY_OBSERVER_ROWS_H */
