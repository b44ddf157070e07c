/* Rows of test_rows.c: what happens in the middle of a call, while the driver is asked, and calls
   of the driver that fail at the worst moment. As in rows.h sizes are in chunks. */
#if !defined(PLAY_MEANWHILE_ROWS_H)
#define PLAY_MEANWHILE_ROWS_H

#include "rows.h"

/* A has blocks a.1 to m.3; its ring of 64 fences is full, their work pending; m.3 is live. */
#define FULL_RING                                                                                  \
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

static const row meanwhile_rows[] = {
    /* ---- Plans under way ---- */

    /* Pieces of a plan that is being driven are free to nobody: an idle window over them is passed
       over, and they cannot be freed once more. */
    {"pieces_of_a_plan_are_nobody_elses", TOGETHER,
     "{granule:16 cap:16} +z.3=10@n -z.3@n +a-g=1 +r=2+32k +s=32k -bd +w=2 pieces:w=2 -wfr "
     "in:map=1( -b!D +q=2 ) +x=3 pieces:x=3 at:q=r pieces:q=1"},
    /* A free is one although its event cannot even be tried. */
    {"a_free_survives_a_full_ring_and_a_failed_question", TOGETHER,
     FULL_RING "fail:exchange=1R -m.3@A events=64 eA T:1 released=65"},
    /* The fence that finds a full ring asks which are complete; the next one has its place. */
    {"a_stream_is_not_forgotten_behind_a_failed_question", TOGETHER,
     FULL_RING "fail:query=1R fA!R told-call=query -m.3@A fA eA T:1 released=65"},

    /* ---- Other streams ---- */

    /* A's memory is borrowed although the wait for it has become needless. */
    {"what_completes_meanwhile_is_not_waited_for", TOGETHER,
     "{granule:16 cap:67} +a.1-z.1=1@A +a.2-z.2=1@A +a.3-n.3=1@A +y=1@B hA -a.1-z.1@A -a.2-z.2@A "
     "-a.3-l.3@A in:create=1( eA -n.3@A ) +p=32@B at:p=a.1 waits=0"},
    /* The legacy stream can then wait for none: that is want of memory like any other. */
    {"a_capture_begins_before_the_first_chunk_is_asked_for", TOGETHER, CAPTURE_BEGINS("1")},
    {"a_capture_begins_before_the_second_one", TOGETHER, CAPTURE_BEGINS("2")},
    {"a_capture_begins_before_the_third_one", TOGETHER, CAPTURE_BEGINS("3")},
    {"a_capture_begins_before_the_fourth_one", TOGETHER, CAPTURE_BEGINS("4")},
    {"a_capture_begins_before_the_fifth_one", TOGETHER, CAPTURE_BEGINS("5")},
    /* The event that was waited for in vain stands in its place, before a later one. */
    {"a_fence_that_failed_is_put_back", TOGETHER,
     "{granule:16 cap:8} P0 +y=512b@B +l=1@A/0 +m=512b@n/0 hA +f=1@A/0 -f@A in:wait=1( -l@A ) "
     "fail:wait=1R D0!R events=2 eA"},
    /* While the host waits for A, B's ring runs over: the event that the request needs is given up,
       and a later one stands for it. */
    {"what_was_given_up_is_waited_for", TOGETHER,
     "{granule:16 cap:10} +p=4@A +q=4@B +y=1@B +f=1@B hA hB -p@A -f@B T:0 released=0 -q@B "
     "in:wait=1( [128 +s=1@B at:s=f -s@B ] ) +w=8@n"},
    /* A request that is refused waits for nothing that was freed once it had begun to wait. */
    {"what_comes_later_is_not_waited_for", TOGETHER,
     "{granule:16 cap:4} hA hB +a=1@A -a@A +b=2@B in:wait=1( -b@B ) +w=5@n!O host-waits=1"},
    {"of_failed_waits_a_fatal_one_is_told", TOGETHER,
     "{granule:16 cap:8} hA hB +a=1@A -a@A +b=1@B -b@B fail:wait=1O fail:wait=2G destroy!G"},
    /* Its pieces are clean again, but work still uses the window. */
    {"a_pool_stays_while_a_window_alone_is_in_use", TOGETHER,
     "{granule:16 cap:8} P0 +y=512b@B +z=4@n/0 -z@n +a-d=1@A/0 -ac@A +w=2@A/0 pieces:w=2 hA -bd@A "
     "in:wait=1( -w@A +x=4@A/0s -x@n ) D0 host-waits=3"},
    /* The only number in use is that of the stream that a graph's block was taken and recorded on.
       The block is pending; the stream that freed it is gone, and its number with it. */
    {"a_pending_block_of_one_stream_is_settled", TOGETHER,
     "{granule:16 cap:4} P0 BB:0/0 +c=1@B EB hB rc@B -c@C fC [15 +y=512b@D -y@D fD kD vD ] "
     "pending=1 T:0 numbers-used=1 +x=4@B!O pending=0 host-waits=1"},

    /* ---- Buffers, and addresses ---- */

    {"a_device_lost_in_a_borrowed_chunk_ends_the_growth", TOGETHER,
     "{granule:16 cap:8} N0:4 z0:2@A hA z0:0@A fail:stream-wait=1G z0:1@B!G host-waits=0"},
    /* The ladder reports the chunk that lacks, and the growth then all that it lacks. */
    {"a_device_lost_in_the_ladders_report_is_told", TOGETHER,
     "{granule:16 cap:2} N0:4 fail:info=1G z0:4@A!G told-call=info requested=0"},
    {"a_device_lost_in_the_report_of_a_growth_is_told", TOGETHER,
     "{granule:16 cap:2} N0:4 fail:info=2G z0:4@A!G told-call=info requested=0"},
    {"addresses_that_cannot_be_unmapped_are_not_had", TOGETHER,
     FULL_ADDRESSES "fail:unmap=1R* N1:2!R fail:any=0R fail:reserve=1O* N1:2"},
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
};

#define MEANWHILE_ROWS (sizeof(meanwhile_rows) / sizeof(meanwhile_rows[0]))

#endif /* PLAY_MEANWHILE_ROWS_H */
