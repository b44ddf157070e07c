/* Rows of test_rows.c: pools with everything fall asleep and wake. As in rows.h sizes are in
   chunks; where it is said, buffers' chunks are of two. */
#if !defined(PLAY_SLEEP_ROWS_H)
#define PLAY_SLEEP_ROWS_H

#include "rows.h"

/* Pool 0: blocks whole and in part of chunks, a live window l, an idle one that no graph knows,
   memory and a window that only a graph knows, and a buffer with a hole. */
#define FULL                                                                                 \
  "P0 +z.3=8@n/0 -z.3@n +a-h=1@A/0 -aceg@n BA:0/0 +i=1@A +j=2@A pieces:j=2 -ij@A EA -bd@n "  \
  "+p=1+32k@A/0 +q=2@A/0 +r=16k@A/0 -hf@n N0:8/0 z0:8@A z0:6@A d0:2,2@A +s-z=1@A/0 -suwy@n " \
  "+l=2@A/0 pieces:l=3 +m=2@A/0 pieces:m=3 -m@n -tvxz@n "
#define KEPT "holds:p=1 holds:q=1 holds:r=1 holds:l=1 "
#define ALL_GOES "-pqrl@n K0@n D0"

static const row sleep_rows[] = {
    /* The idle window that no graph knows does not come back. */
    {"a_pool_keeps_its_contents", TOGETHER | WIDE,
     "{granule:16 cap:64} " FULL "mark S0:k reserved=0 chunks=0 handles=0 mappings=0 "
     "driver-bytes=0 W0 sleeping=0 evictions=1 " KEPT "j0@A I " ALL_GOES},
    /* Memory is short, and the host cannot begin to wait. */
    {"what_does_not_come_back_is_counted_at_once", TOGETHER,
     "{granule:16 cap:16 limit:8} P3 N3:6/3 c3:0,4@n S3:d d3:0,2@n +a=7 sleeping=4 "
     "fail:exchange=3R W3!R sleeping=2 -a W3 K3 D3"},
    /* The copy would take as much of the same memory. */
    {"an_integrated_device_keeps_no_copy", TOGETHER,
     "{granule:16 cap:64 integrated} +p=4@n Sn:k!N says:no_host_memory_but_the_device's_own "
     "holds:p=1 host-ranges=0 Sn:d released=4 Sn:k Wn"},
    /* A block, its pieces at home and its chunks are the same memory. */
    {"mappings_alias_as_before", TOGETHER,
     "{granule:16 cap:64} "
     "+z.3=8@n -z.3@n +a-h=1 -aceg@n +w=3 pieces:w=3 Sn:k Wn holds:w=1 I"},
    /* One model gives way to another, and back. */
    {"the_handler_may_put_a_pool_to_sleep", TOGETHER,
     "{granule:16 cap:8 oom} P0 P2 +a=6/2 in:handler=1( S2:k ) +d=6/0 in:handler=1( S0:k ) W2 "
     "holds:a=1 sleeping=6 -a W0 holds:d=1"},
    {"what_is_freed_asleep_does_not_come_back", TOGETHER | WIDE,
     "{granule:16 cap:64 fill} " FULL "N1:8 N2:4 z1:6@A z2:2@A mark S0:k Sn:k rq@B -q@A -l@A "
     "z1:4@A d1:2,2@A c1:2,2@A!A K2@A T:0 released=0 Q W0 Wn evictions=2 holds:p=1 holds:r=1 "
     "z1:8@A "
     "c1:0,8@A -pr@n K0@n D0"},
    {"to_sleep_and_to_wake_may_be_repeated", TOGETHER,
     "{granule:16 cap:64} " FULL "W0 S0:k S0:k released=0 host-ranges=1 W0 W0 " KEPT "S0:k "
     "host-ranges=1 S0:d released=0 host-ranges=0 S0:k released=0 host-ranges=0 W0 S0:k W0 " KEPT
     "host-ranges=1 T:999 released=0 host-ranges=0 " ALL_GOES},
    {"to_sleep_and_to_wake_may_be_repeated_wide", WIDE,
     "{granule:16 cap:64} " FULL "S0:k host-ranges=2 W0 S0:k S0:k released=0 host-ranges=2 S0:d "
     "released=0 host-ranges=0 W0 S0:k W0 " KEPT
     "host-ranges=2 T:999 released=0 host-ranges=0 " ALL_GOES},
    {"rounds_leave_nothing_behind", TOGETHER,
     "{granule:16 cap:64} " FULL "N1:8 z1:6 [2 S0:k Sn:k W0 Wn S0:d Sn:k Wn W0 ] mark [40 S0:k "
     "Sn:k driver-bytes=0 W0 Wn S0:d Sn:k driver-bytes=0 Wn W0 ] S0:k Sn:k Wn W0 metadata-grown=0 "
     "grown=0 driver-events=2 mappings=36 host-ranges=2"},
    {"a_handle_that_stays_is_kept_and_told", TOGETHER,
     "{granule:16 cap:64} P0 +p=4/0 S0:d W0 warnings-told=0 fail:release=2R S0:d released=3 "
     "reserved=1 quarantined=1 warnings-told=1 W0 quarantined=0 reserved=4 fail:release=2R S0:k -p "
     "D0 quarantined=0 reserved=0"},
    /* A shortage of the calls that make room is a shortage as any other: it is told, and counted.
     */
    {"a_shortage_while_making_room_is_told", TOGETHER,
     "{granule:16 cap:4} P0 +p=1/0 +q=1 -q S0:d fail:create=1O* fail:unmap=1O* W0!O told-asked=1 "
     "failures=1 fail:any=0R W0"},
    /* Pinned memory that the driver does not take back is told of and offered to it again: by the
       next call that gives it up, and at the end, that of a pool that is gone too. */
    {"pinned_memory_that_stays_is_offered_again", TOGETHER,
     "{granule:16 cap:64} " FULL "S0:k W0 fail:host-free=1R* T:0!R host-ranges=1 S0:k W0 " KEPT
     "fail:any=0R T:0 host-ranges=0 " ALL_GOES},
    {"pinned_memory_of_a_pool_that_is_gone_is_offered_again", TOGETHER,
     "{granule:16 cap:64} " FULL "S0:k W0 fail:host-free=1R* T:0!R " ALL_GOES " host-ranges=1 "
     "fail:any=0R destroy host-ranges=0"},
    {"contents_that_the_host_has_no_room_for_stay", TOGETHER | WIDE,
     "{granule:16 cap:64} " FULL "fail:host-alloc=1H* S0:k!H says:free_host_memory host-ranges=0 "
     "fail:any=0R " KEPT "S0:k W0 " KEPT ALL_GOES},
    /* The judge sees that no copy runs on. */
    {"a_sleep_that_fails_leaves_nothing", TOGETHER,
     "{granule:16 cap:64} " FULL "fail:unmap=3R S0:k!R fail:unmap=12R S0:k!R +k=1@A/0 -k@n " KEPT
     "+k=1@A/0 -k@n S0:k W0 " KEPT ALL_GOES},
    {"windows_that_do_not_come_back_are_evicted", TOGETHER,
     "{granule:16 cap:64 observed} +z.3=4@n -z.3@n +a-d=1 -ac +w=2 pieces:w=2 Sn:d -w mark "
     "evictions=0 Wn evictions=1"},
};

#define SLEEP_ROWS (sizeof(sleep_rows) / sizeof(sleep_rows[0]))

#endif /* PLAY_SLEEP_ROWS_H */
