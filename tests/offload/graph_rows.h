/* What has to come of graphs, plans, runs and memgraphs; the words are those of language.h. The
   stage judges beside it that each run gives the bytes of one that moves nothing, and that each
   memgraph is right and does so in any order. An operator takes 1 us unless it says. */
#if !defined(OFFLOAD_GRAPH_ROWS_H)
#define OFFLOAD_GRAPH_ROWS_H

#include "graphs.h"

/* e is used first and last, l between. */
#define VALLEY "e=100 l=300 s=1 >s:5000 >e:5000 e,s>s:5000 >s:5000 >l:5000 >s:5000 e,s>s:5000 "
/* [units of 64 bytes] x is made, leaves for y, and comes back when y is gone. In four units. */
#define THERE_AND_BACK "x=2 y=3 z=1 u=1o >x >y y>z x,z>u "
/* Parameters used in turn, the first updated at the end: more than fits. */
#define FOUR_LAYERS "x0=1i [4 w#=2p ] [4 x#,w#>x#+1=1 ] x4,w0>w0 "

/* w leads to a, b and c, and these and w to the next w. No whole words. */
#define CIRCLE "w=1001bp w>a=1001b a>b=1001b b>c=1001b a,w,c>w "

static const row graph_rows[] = {
    /* ---- Graphs ---- */

    {"cycles_are_found", "{unordered} a=1 b=1 a>b b>a seal!C"},
    {"unordered_makers_come_first",
     "{unordered} a=1 b=1 b> a>b >a seal order:2,1,0 dependencies=2 seal!S"},
    {"empty_tensors_order", "{unordered} a=1 b=1 c=0 c>a >b,c seal order:1,0"},
    /* 10 + 100 + 5 + 1000 bytes at the third operator. */
    {"graphs_are_measured",
     "p=10bp a=100b b=1000b u=5bo p>a:3ns a>u:4ns a>b:5ns b,p>p:6ns seal peak=1115 op_most=1100 "
     "persistent=10 tensor_bytes=1115 graph_time=18ns accesses=8"},
    /* What is wrong is told at once, or when the graph is whole. */
    {"wrong_graphs",
     "a=1 b=1 c=1@1 i=1i q?>a!U i>a,a!L c>a!W >c!W >i!T >a:36028797018963968us!V "
     "p=9223372036854775808bp!V seal!I b>a seal!R"},

    /* ---- Plans ---- */

    /* The tensor leaves at once behind its first uses, and comes back just before its last. In
       paper mode each direction has its full speed. */
    {"a_tensor_leaves_and_comes_back",
     "({}|{paper}) " VALLEY "plan unplanned=401u planned=301u plan_out=100u events=2 =out:e,2,2 "
     "=in:e,4,2,(2913611|3083498)ns"},
    {"a_target_is_enough", "{target:401} " VALLEY "plan planned=401u"},
    {"the_ratio_bounds_what_a_job_swaps", "{ratio:.2468} " VALLEY "plan planned=401u"},
    /* An optimizer's state is used at the end, a peak is at the begin. */
    {"state_leaves_across_iterations",
     "m=100p a=300 b=1 >b:5000 b>a:5000 a>b:5000 b>:5000 b,m>m:5000 plan planned=301u events=2"},
    /* The link is too slow for a swap; making the tensor again takes 1 ms, its update in place
       included. In paper mode the input has left then, and x is not made of what has to come
       back. */
    {"recomputation_where_swaps_do_not_fit",
     "{target:310 link:1e9 both:2e9 overhead:.3 (|paper)} i=1i x=100 y=300 z=1 "
     "i>x:500 x>x:500 x>z:1000 z>y:1000 y,z>z:1000 x,z>z:1000 plan planned=(302|401)u "
     "(events=3 =drop:x,2,2 =remake:x,4,0 =remake:x,4,1 added=1ms|added=0)"},
    /* ---- In paper mode ---- */

    /* The copy back takes the whole of the peak's operator: it counts when it has ended. */
    {"to_the_letter_memory_comes_back_at_the_copys_end",
     "({}|{paper}) e=100 l=300 s=1 >e:5000 >s:5000 >l:2000 e,s>:5000 plan "
     "planned=(401|301)u"},
    /* A quarter of the bytes, a third of the tensors. */
    {"to_the_letter_the_ratio_counts_tensors",
     "({}|{paper}) {ratio:.26} " VALLEY "plan planned=(301|401)u"},
    {"to_the_letter_no_ratio_bounds_what_is_updated",
     "({}|{paper}) {ratio:.0001} w=100p l=300 s=1 w>s:5000 >s:5000 >l:5000 >s:5000 w,s>w:5000 "
     "plan planned=(401|301)u"},
    /* Between the two peaks b has to return and a to leave, and there is time for one of them. */
    {"to_the_letter_copies_take_turns",
     "({}|{paper}) a=100 b=100 l=400 m=300 s=1 >b:1 >s:2500 >l:2000 >a:1 >s:2500 b,s>m:5000 "
     ">s:2500 a,s>:5000 plan planned=(401|501)u"},
    /* The plan's link is faster than the run's. The copy out ends .9 ms behind the iteration, and
       the next one waits for it. The copy in ends 1.4 ms late, and w's operator waits for it. */
    {"to_the_letter_an_iteration_waits_for_copies",
     "{paper link:200e9} w=100p l=300 s=1 >s:5000 >l:5000 >s:5000 w,s>w:5000 >s:1000 plan "
     "events=2 "
     "run:2 note run:4 +time=92278354ns"},

    /* t is made of s, and both are in the way: t is dropped, then s, which is made again first.
       Beside s its maker writes r, which stays. */
    {"what_recomputation_reads_is_recomputed",
     "{link:1e9 overhead:.5} i=1i s=100 t=90 r=1 p=300 i>s,r:1000 s>t:1000 >p:1000 t>:1000 "
     "s,r>:1000 plan planned=302u events=4 added=2ms =drop:s,1,1 =drop:t,1,1 =remake:s,2,0 "
     "=remake:t,2,1 {limit:302} run:2 time=14ms on_demand_outs=0"},
    /* A tensor can leave only between two operators beside each other: the second one waits for it,
       if time may be added. */
    {"operators_beside_each_other_wait",
     "{overhead:(0|.02)} k=100 a=1 g=1000 b=1 >k:20000 k>a:20000 a>g:20000 g>b:20000 b>:20000 "
     "k>:20000 plan planned=(1101|1001)u"},
    /* Where all tensors are small, small ones leave, too. */
    {"small_tensors_leave_small_graphs",
     ">k0=128k:1000 [19 k#>k#+1=128k:1000 ] k19>t19=128k:1000 [19 k~,t~+1>t~=128k:1000 ] plan "
     "planned<=512*1024"},
    /* Where a peak ends right before a tensor's next use, operators would wait in vain: nothing is
       bought then, and what costs time and helps is still found. */
    {"no_time_is_spent_in_vain",
     "{overhead:.5} e=100 l=300 >e:5000 e>:5000 >l:5000 l>:5000 e>:5000 plan plan_peak=300u "
     "added=5ms"},
    /* Every other operator of a chain reads a parameter, which can be brought back every 93 us, but
       is needed every 40: copies that begin as late as they can would leave holes between them. */
    {"copies_leave_no_holes",
     "{tries:12 min:1b} x0=1i [200 w#=4p ] [200 x#,w#>y#=1:20 y#>x#+1=1:20 ] plan planned<.6*peak"},
    /* A job alone knows when nothing is copied the other way: then a copy takes its direction's
       full speed, 9.54 ms here and 10.4 else. Of two jobs each has half of what a direction has
       beside the other one. */
    {"a_direction_alone_is_faster",
     "{jobs:(1|2)} x=500 y=500 z=1 >x:1000 x>z:(9600|19200) >z:(9600|19200) z>y:1000 "
     "y>z:(9600|19200) >z:(9600|19200) x>:1000 plan events=(2|0)"},
    /* Years of operators, and a million times as much for waits and recomputation. */
    {"times_do_not_overflow",
     "{target:1b overhead:1e6 (|paper)} a=1152921504606846000b b=1152921504606846000b "
     ">a:36028797018ms [3 >b:36028797018ms a>:36028797018ms ] plan planned<=peak"},

    /* ---- Plans by hand ---- */

    {"plans_by_hand_are_checked",
     VALLEY "out:q,none,0 by-hand!U out:l,none,7 by-hand!U out:l,7,0 by-hand!U remake:l,0,0 "
            "by-hand!I"},
    /* What makes x writes r beside it, which may be written again as long as it is as it was. */
    {"what_is_beside_is_written_again",
     "x=1 r=1 >x,r:1000 >:1000 x>:1000 r>r:1000 x,r>:1000 drop:x,0,0 remake:x,1,0 by-hand run:2 "
     "remade=2 drop:x,2,2 remake:x,3,0 by-hand!I"},
    /* x has two makers, of which the first reads w: both have to be named, in their order, once,
       and before w changes. Where 2 runs x may be gone. */
    {"tensors_are_made_again_whole_or_not_at_all",
     "w=1p x=1 w>x:1000 x>x:1000 >:1000 x>:1000 w>w:1000 x>:1000 drop:x,1,1 remake:x,2,0 "
     "by-hand!I remake:x,2,1 by-hand!I remake:x,2,1 remake:x,2,0 by-hand!I drop:x,1,1 "
     "remake:x,2,0 remake:x,2,1 remake:x,2,0 by-hand!I drop:x,1,1 remake:x,4,0 remake:x,4,1 "
     "by-hand!I drop:x,1,1 remake:x,2,0 remake:x,2,1 by-hand run:2 remade=4"},
    /* Its drop came too early: it is made again all the same, and nothing is lost. */
    {"a_tensor_that_never_left_is_made_again",
     "x=1 >x:1000 x>:1000 x>:1000 drop:x,1,0 remake:x,1,0 by-hand run:2 voids=2 remade=2"},
    /* A swap out that waits for the link is void once its tensor was used again. Such a tensor may
       leave for another one that needs its memory. */
    {"void_swaps_do_not_hold_their_tensors",
     "{limit:200} a=100 b=100 c=200 >a:1ns >b:1ns b>:1ns >c:1ns a,b>:1ns out:a,1,0 out:b,1,1 "
     "by-hand run:2"},
    /* A copy begins with the operator that reads its tensor, and goes on behind it if it takes
       longer, 2.01 ms here; an event behind the operator lets the tensor leave when the copy ends.
       y waits for it, then x comes back. */
    {"copies_go_on_beside_readers",
     "{limit:110000000b} x=110000000b y=110000000b >x:1000 x>:(5000|1000) >y:5000 x>:1000 "
     "out:x,0,0 drop:x,1,1 by-hand run:1 voids=0 on_demand_outs=0 outs=1 stall>=(2010|3020)us "
     "stall<=(2010|3020)us+4"},

    /* ---- Runs ---- */

    {"a_plan_runs_as_planned",
     VALLEY "plan {limit:301} run:3 time=105ms stall=0 device_peak=301u outs=3 ins=3 "
            "on_demand_ins=0 on_demand_outs=0 voids=0"},
    {"without_a_plan_tensors_move_on_demand",
     "{limit:301} " VALLEY "run:3 time>105ms stall=time-105ms device_peak=301u on_demand_outs=3 "
     "on_demand_ins=3"},
    /* Eight weights of which five fit, read in turn. The least recently used weight is the next
       one. By what is needed last, as Belady's rule has it, every use of the others finds (5 - 1)
       of (8 - 1) there. What leaves is on the host already. */
    {"what_is_needed_last_leaves_first",
     "{limit:51 (lru|)} s=1p [8 w#=10p ] [8 w#,s>s:1000 ] run:7 note run:70 +outs=0 "
     "+on_demand_ins/70>=(8|3.33) +on_demand_ins/70<=(8|3.53)"},
    /* The largest operator needs 300. */
    {"limits_that_cannot_be_kept", "{limit:299} " VALLEY "run:1!D run:1!D"},
    {"a_new_plan_takes_over_at_the_next_iteration",
     VALLEY "plan job unplan:0 run:1 outs=0 take:0 run:2 outs=2 unplan:0 "
            "run:1 outs=2 leave:0 leave:0!U run:1 device=0"},
    /* p leaves at 0, and comes back at 9.5 ms: half a millisecond late, and 10 us. */
    {"the_mock_takes_its_time",
     "p=55000000bp q=55000000bp >:10000 p,q>:1ns out:p,none,1 in:p,none,0,9500 by-hand run:1 "
     "time>=10510us time<=10510us+2 out_busy>=1010us-2 out_busy<=1010us+2 in_busy>=1010us-2 "
     "in_busy<=1010us+2"},
    /* Operator 1 waits for q: 2 ms at half of both directions' 101 GB/s. */
    {"directions_share_the_link",
     "p=101000000bp q=101000000bp >:1000 q>:1ns >:1000 p>:1ns out:p,none,3 in:q,none,0 "
     "by-hand run:1 in_busy>=1999us in_busy<=4025us out_busy>=2009us "
     "out_busy<=2012us outs=1"},
    /* r, which the plan brings too late, before p and q, which wait for their turn. */
    {"what_is_needed_now_comes_first",
     "p=55000000bp q=55000000bp r=55000000bp r>:1000 p,q>:1000 in:p,none,1 "
     "in:q,none,1 in:r,1,0 by-hand run:1 stall>=2029us stall<=2031us ins=3"},
    {"what_a_plan_brings_later_is_waited_for",
     "p=55000000bp >:1000 p>:1000 in:p,none,1,3000 by-hand run:1 ins=1 "
     "stall>=3009us stall<=3011us"},
    {"jobs_wait_for_each_other_in_no_circle",
     "{jobs:3 limit:44000000b} p=11000000bp q=11000000bp r=11000000bp p>:100 q>:200 r>:300 run:8"},
    {"jobs_share_the_device", "{jobs:2} >:3000 run:2 time=12ms iterations=4"},
    /* The device refuses what an operator makes, of which the first tensor has no bytes: others
       have to leave all the same. */
    {"what_the_device_refuses_is_made_room_for",
     "{device:100} a=100 n=0 b=100 >a:1000 >n,b:1000 a>:1000 run:2"},
    /* As many as may, where memory lets them; what they make again meanwhile is freed behind. */
    {"operators_are_launched_ahead",
     "{ahead:(0|1|2|3|4)} x=1 y=1 z=1 >x,y:1000 y>z:1000 x,z>z:1000 y,z>z:1000 run:3 "
     "ahead=(1|2|3|4|4) drop:y,1,1 remake:y,2,0 by-hand run:3 reruns=3 ahead>=(1|2|2|2|2) "
     "{limit:3} run:3"},

    /* What the caller writes is what the next iteration reads, also where a copy of the former
       bytes is on the host or on its way there. */
    {"inputs_are_overwritten",
     "i=100i a=1 i>a:1000 a>:1000 out:i,1,0 in:i,none,0 by-hand run:1 write:i,0 run:1 "
     "write:i,1 run:1 write:i,2 run:1 write:i,3 run:1"},

    /* ---- Memgraphs ---- */

    {"moves_by_hand",
     "{chunk:64b} " THERE_AND_BACK "compile:4 nodes=6 =node-op:0,0b,none =node-out:x,0b,0 "
     "=node-op:1,0b,1,1 =node-op:2,3,2 =node-in:x,0b,3,1 =node-op:3,2,4 edges=8 memory_edges=3 "
     "offload_bytes=2u reload_bytes=2u arena=4u host=2u"},
    {"room_for_all",
     "{chunk:64b} " THERE_AND_BACK "compile:0 nodes=4 memory_edges=0 edges=3 host=0"},
    /* In paper mode x returns when z has been made, and small tensors leave. */
    {"to_the_letter_a_reload_waits_for_its_operator",
     "{chunk:64b paper min:0} " THERE_AND_BACK
     "compile:4 nodes=6 =node-op:0,0b,none =node-out:x,0b,0 "
     "=node-op:1,0b,1,1 =node-op:2,3,2 =node-in:x,0b,3,1 =node-op:3,2,4"},
    {"to_the_letter_what_left_twice_is_copied_twice",
     "{chunk:64b} ({}|{paper}) x=2 y=3 z=1 u=1o >x >y y>z x,z>z >y y>z x,z>u compile:4 "
     "offload_bytes=(2|4)u reload_bytes=(4|4)u"},
    {"too_little_for_an_operator", "{chunk:64b} " THERE_AND_BACK "compile:3+63b!D"},
    {"stalls_are_the_rest_of_the_time",
     FOUR_LAYERS "compile:6 offloads>0 reloads>0 execute:3 stall>0 stall+graph_time*3<=time "
                 "stall+graph_time*3>=time-1us"},
    {"homes", "{chunk:64b} " FOUR_LAYERS "compile:(4|6|8|10|13|16) reloads>=(5|1|1|1|0|0) "
              "reloads<=(9|9|9|9|0|0) homes<=(0|2|4|6|9|12)u"},
    /* In five units b leaves, whose use is last. */
    {"of_two_victims_the_one_used_last_leaves",
     "{chunk:64b} a=2 b=2 c=2 d=1 e=1 >a >b >c a,c>d b,d>e e> compile:5 =node-op:0 =node-op:1 "
     "=node-out:b offloads=1"},
    /* Of free slots the longest unused is taken: the first was never used; t1's is free before
       t0's. */
    {"slots",
     "{chunk:64b} [5 t#=1 ] >t0 >t1 t1> t0> >t2 >t3 t2,t3>t4 compile:3 =node-op:0 =node-op:1 "
     "=node-op:2 =node-op:3 =node-op:4,2,none =node-op:5,1,2,1 =node-op:6,0b"},
    /* What is overwritten unread leaves without a copy; what is updated twice is copied twice. */
    {"overwritten", "{chunk:64b} x=2 y=3 >x x> >y >x x> compile:3 offloads=0 reloads=0"},
    {"updated_twice", "{chunk:64b} x=1 >x >y=3 x>x >z=3 x> >v=3 compile:3 offloads=2 reloads=2"},
    /* With memory for the peak nothing moves, and no time is added, however far ahead the compiler
       looks: homes are not taken for what comes later. */
    {"what_fits_stays",
     "{chunk:64b alloc:1 reload:1} x0=1i [150 w#=4p ] [150 x#,w#>x#+1=1(|,w#):20 ] seal peak=603u "
     "compile:603 "
     "nodes=150 homes=persistent simulated<=graph_time+1 compile:602 reloads>0"},
    /* On a link that takes years for a copy the simulated time ends, and does not begin anew. */
    {"years",
     "{chunk:64b copy:288230376151ms} [70 >y#=1:1ns ] [70 y#>:1ns ] compile:3 "
     "offloads>64 simulated>9.2e18"},

    /* ---- Runs of memgraphs ---- */

    /* Two chains on one device, the first held up by a reload: in any order the second goes on. */
    {"any_order_overlaps",
     "{chunk:64b align:16k divisor:1024 order:(0|2)} a=1 w=4mp v=400kp w>a >b0=1:20 "
     "[3 b#>b#+1=1:20 ] a,v> compile:4m+128k execute:3 time(<330|>480)us stall(<80|>240)us"},
    /* Operators that wait for operators only are launched behind them; the others wait for copies.
     */
    {"operators_of_memgraphs_are_launched_ahead",
     "{chunk:64b jitter:.5 streams:3 order:(0|1|2)} " THERE_AND_BACK "compile:8 nodes=4 {ahead:1} "
     "execute:2 ahead=2 {ahead:2} execute:2 ahead=3 {ahead:3} execute:2 ahead=4 {ahead:5} "
     "execute:2 ahead=4 {ahead:none} execute:2 ahead=4 {ahead:1} compile:4 execute:2 ahead=2 "
     "{ahead:2} execute:2 ahead=2 {ahead:5} execute:2 ahead=2"},
};

/* Played once for each request for host memory, and each call of the mock, that fails behind the
   word `faults`: nothing may be left, and a run that goes on gives the right bytes. */
static const row graph_fault_rows[] = {
    {"building", "faults a=1 b=0 >a,b a,b> seal peak=1u ops=2"},
    {"planning_and_running",
     "{overhead:.2 target:1 divisor:65536 (|paper)} random:7,18 faults plan {limit:plan_peak} "
     "run:2"},
    {"running",
     "{overhead:.2 target:1 divisor:65536} random:(7|11),18 plan {limit:plan_peak} faults run:2"},
    {"a_job_leaves_while_it_is_copied", "p=100p p>:1000 out:p,0,0 by-hand faults run:1 leave:0"},
    {"compiling_and_executing",
     "{tight reload:1 jitter:.3} random:11,60,3 faults compile execute:2"},
    {"executing", "{chunk:64b} " FOUR_LAYERS "compile:6 faults {jitter:.3} execute:2"},
};
#define GRAPH_FAULT_ROWS (sizeof(graph_fault_rows) / sizeof(graph_fault_rows[0]))

#define GRAPH_ROWS (sizeof(graph_rows) / sizeof(graph_rows[0]))

#endif /* OFFLOAD_GRAPH_ROWS_H */
