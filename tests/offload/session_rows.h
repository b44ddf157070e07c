/* What has to come of a program under a session; the words are those of language.h. The stage
   judges beside it that each word that is read is right, that the limit holds on the device, that
   addresses stay, and that nothing is left. A chunk has 4 KiB here; the link moves 500 MB/s unless
   the line says, so that a chunk takes 8.2 us; a step takes 100 us. */
#if !defined(OFFLOAD_SESSION_ROWS_H)
#define OFFLOAD_SESSION_ROWS_H

#include "player.h"

/* ---- Training: by layer weights w, states m, activations a, gradients g; x is on its way ----- */

#define SETUP(layers, size, twice) "[" layers " >w#=" size "/106 >m#=" twice "/107 ] "
/* The first steps of `count` layers from `first` on, whose activation is `next`. */
#define FORTH(count, first, next, size) \
  "[" count " w#+" first ",a#+" first "?>a#+" next "=" size "+64b/100 ] "
#define BACK(layers, size, half)                                                       \
  ">x" layers "=" size "/102 [" layers " w~,a~+1,x~+1>x~=" size "/103 -x~+1 >g~=" half \
  ",x~/104 -a~+1 ] -x0 [" layers " g#>m#,w#/105 -g# ] "
#define UNMARKED(layers, size, half) FORTH(layers, "0", "1", size) BACK(layers, size, half) "sync "
#define TRAIN(layers, size, half) "mark " UNMARKED(layers, size, half)
/* Layers that make three tensors for themselves, of two sizes. */
#define OWN(first, some, others)                                                          \
  "[3 w#+" first ">t=" some "/108 t>u=" others "/109 t,u>v=" some "/110 -t u,v>t=" others \
  "/111 -u -v -t ] "
/* An iteration of which the tensors that a layer makes for itself vary. */
#define SOON_FREED(some, others) \
  "mark " OWN("0", some, others) OWN("3", others, some) UNMARKED("6", "3", "2")
/* One step more behind the first `some` layers, of which there are `rest` more; next: some + 1. */
#define ODD(layers, some, next, rest, size, half) \
  FORTH(some, "0", "1", size)                     \
  ">a" some "/101 " FORTH(rest, some, next, size) BACK(layers, size, half) "sync "

/* An iteration in which each layer is a region: unless it is kept its first steps are executed
   again in the backward pass, the first of them with the key `again`. */
#define REGIONS_OF(layers, size, twice, more, again, instead) \
  "mark " UNMARKED_REGIONS(layers, size, twice, more, again, instead)
#define UNMARKED_REGIONS(layers, size, twice, more, again, instead)                      \
  "[" layers " begin:# " more "w#,y#?>h#=" size "/200 h#>u#=" twice "/201 u#>y#+1=" size \
  "/202 end given#:-h# given#:-u# ] >x" layers "=" size "/203 [" layers                  \
  " given~:again:~ given~:w~,y~?>h~=" size "/" again " given~:h~>u~=" twice              \
  "/201 given~:end " instead "u~,x~+1>x~=" size "/204 -x~+1,u~ h~,w~,x~>x~,d~=" size     \
  "/205 -h~,y~+1 ] -x0 [" layers " d#>w#/206 -d# ] sync "
#define REGIONS_8 REGIONS_OF("8", "4", "8", "", "200", "")
#define REGIONS_8_LARGER REGIONS_OF("8", "6", "12", "", "200", "")
#define SMALLER_8 REGIONS_OF("8", "3", "6", "", "200", "")
#define REGIONS_8_ODD REGIONS_OF("8", "4", "8", "", "208", "")
#define EVALUATION_8 "[8 w#,y#?>h#=6/200 h#>u#=12/201 u#>y#+1=6/202 -h# -u# -y#? ] -y8 "
/* The host takes so long for each. */
#define SLOWER_8(first, second) \
  REGIONS_OF("8", "4", "8", "spend:" first " ", "200", "given~:spend:" second " spend:" second " ")
#define SLOW_8 SLOWER_8("450", "300")
/* Without a mark, behind a step of its own. */
#define ONE_REGIONS_8(size, twice) \
  ">p=4/400 p>/401 -p " UNMARKED_REGIONS("8", size, twice, "", "200", "")
#define REGIONS_3 REGIONS_OF("3", "4", "8", "", "200", "")
#define WEIGHTS_8 "[8 >w#=4/106 ] "
/* Regions of 8 layers that read a cast of the weights. Their second steps make it anew, of `size`;
   then they read `reads`, whose second step has the key `key`. `first` and `second` belong to the
   steps of key 200, `begin` to the iteration's, `behind` to what is given up. */
#define CASTS_8(begin, size, reads, key, first, second, behind)                                 \
  "mark " begin ">s=4/299 [8 begin:# s,y#?>h#=4" first                                          \
  "/200 h#>u#=8/201 u#>y#+1=4/202 end "                                                         \
  "given#:-h# given#:-u# ] >x8=4/203 [8 given~:again:~ given~:w~>c~=" size "/300 given~:" reads \
  ",y~?>h~=4" second "/200 given~:h~>u~=8/" key                                                 \
  " given~:end u~,x~+1>x~=4/204 -x~+1,u~ "                                                      \
  "given~:c~>/210 kept~:s>/210 h~,w~,x~>x~,d~=4/205 " behind                                    \
  "-h~,y~+1 ] -x0 [8 d#>w#/206 -d# ] "                                                          \
  "-s sync "

/* Of two tensors of an iteration the one that is made last is the first to be used in the next. */
#define CARRIED "mark b>/2 -b [6 w#>t=4/3 -t ] a>/4 -a [6 w~>t=4/5 -t ] >a=6/6 >b=6/7 sync "

/* Two iterations that have no step in common. */
#define TURNS                                                                                     \
  "mark [12 w#>t=4/500 -t ] [12 w~>t=4/501 -t ] sync mark [12 w~>t=4/600 -t ] [12 w#>t=4/601 -t " \
  "] sync "

/* In five chunks a has to leave between its uses. */
#define READ_MEANWHILE "w>a=2/3 a>b=2/4 w,b>c=1/5 -b a>a/6 -a c>x/7 -c w>/8 sync "

/* Behind step 0 y is away, behind step 2 a. */
#define SHORT_OF_PIECES "mark w>a=2/3 a>b=2/4 -b w,a,y>/5 w,y>c=2/6 -c a>y/7 -a w>/8 sync "

static const row session_rows[] = {
    /* ---- Plans are followed ---- */

    /* The second iteration is planned already. From the third on nothing is fetched on demand, the
       host waits for nothing, and an iteration takes no longer than without a limit. */
    {"training_in_less_memory",
     "{limit:86} " SETUP("8", "4", "8")
         TRAIN("8", "4", "2") "mode=0 " TRAIN("8", "4", "2") "mode=1 plans=1 " TRAIN(
             "8", "4", "2") "note [9 " TRAIN("8", "4",
                                             "2") "mode=1 ] plans=2 "
                                                  "drifts=0 syncs=0 +demand_in=0 +demand_out=0 "
                                                  "+out=9*plan_out +in<=9*plan_in +time>=9*step "
                                                  "+time<=9*step+90us link_bound>0 plan_out>0 "
                                                  "unplanned>86u planned<=86u"},
    /* Where the backend starts threads no call plans; where it refuses one, or cannot join it, the
       calls do. */
    {"threads_plan",
     "{threads:(1|3|4) limit:86} " SETUP("8", "4", "8") TRAIN("8", "4", "2") "mode=0 " TRAIN(
         "8", "4",
         "2") "mode=1 plans=1 work_most(=|>|>)0 [9 " TRAIN("8", "4",
                                                           "2") "] plans=2 work_most(=|>|>)0"},
    /* Also which regions are kept. */
    {"threads_decide_on_regions",
     "{threads:(1|3) limit:90} " WEIGHTS_8 "[16 " REGIONS_8 "] kept_regions>0 work_most(=|>)0"},
    /* A plan that a thread makes is given up when the limit is another one, or the session ends. */
    {"threads_are_stopped",
     "{threads:2 limit:86} " SETUP("8", "4", "8") "[2 " TRAIN("8", "4", "2") "] limit:80 [2 " TRAIN(
         "8", "4", "2") "] limit:76 [2 " TRAIN("8", "4", "2") "] work_most=0"},
    /* On a slow link more leaves than the planner moves for no time. What is planned is what
       happens, and no iteration is faster than what the statistics call the least. */
    {"slow_links_are_planned_for",
     "{link:(25e7|25e7|6e7|6e7|2e7|2e7) limit:(57|115|72|100|57|86)} " SETUP(
         "8", "4", "8") "[6 " TRAIN("8", "4",
                                    "2") "] note [4 " TRAIN("8", "4",
                                                            "2") "] +demand_in=0 +demand_out=0 "
                                                                 "+out<=4*plan_out +in<=4*plan_in "
                                                                 "planned<=(57|115|72|100|57|86)u "
                                                                 "+time+40us>=4*least "
                                                                 "least>=step"},
    /* What the statistics say that a plan adds is what iterations then take, where to map a chunk
       takes what the plan is made for. */
    {"what_a_plan_adds_is_told",
     "{told map:100us link:6e7 limit:(43|72|115)} " SETUP("8", "4", "8") "[13 " TRAIN(
         "8", "4",
         "2") "] note " TRAIN("8", "4",
                              "2") "step+added>=.9*+time step+added<=1.1*+time added>=(1|1|0)"},
    /* Another limit is planned for from the next iteration on, also where that would only have
       looked at the times again. */
    {"a_limit_set_in_any_iteration_is_planned_for",
     "{limit:46} " SETUP("6", "2", "4") "[(4|6|9|12) " TRAIN(
         "6", "2", "1") "] plans=2 limit:42 "
                        "[4 " TRAIN("6", "2", "1") "plans=3 planned<=42u ]"},
    /* These programs take what their plan tells within 8 parts in 100, although copies out go on
       when an iteration has ended: what is made then waits for few of them. */
    {"copies_across_the_turn_hold_nobody_up",
     "{told map:100us link:125e6 limit:(66|149|82) time:(204|94|134)} " SETUP(
         "(3|8|4)", "(6|6|5)", "(12|12|10)") "[12 mark w0>a1=(6|6|5)/100 " FORTH("(2|7|3)", "1",
                                                                                 "2", "(6|6|5)")
         BACK("(3|8|4)", "(6|6|5)", "(3|3|2+2k)") "sync ] note [8 mark w0>a1=(6|6|5)/100 " FORTH(
             "(2|7|3)", "1", "2", "(6|6|5)")
             BACK("(3|8|4)", "(6|6|5)", "(3|3|2+2k)") "] sync +time>=7.36*step+7.36*added "
                                                      "+time<=8.64*step+8.64*added"},
    /* Of the steps that no move follows, and that use nothing which leaves then, one of 16 has a
       fence: with one for each step these iterations take 1,676 calls of the device. */
    {"few_steps_have_a_fence",
     "{told limit:5} >w=1/1 >x=1/2 [12 mark w>a=2/3 a>b=2/4 w,b>c=1/5 -b a>a/6 -a c>x/7 -c "
     "[160 w>/8 ] sync ] note [4 mark w>a=2/3 a>b=2/4 w,b>c=1/5 -b a>a/6 -a c>x/7 -c [160 w>/8 ] "
     "sync ] +calls<=1128"},
    /* Of schedules that are as fast, one is taken whose copies out have ended when the iteration
       ends: a program may wait for the device there. */
    {"copies_end_with_the_iteration",
     "{told limit:(108|113) link:25e7} " SETUP("6", "2", "12") "[12 " TRAIN(
         "6", "6", "3") "] view view_tail=0 view_waits=20us"},
    /* While no plan holds: what is used at the end of an iteration comes back as soon as there is
       room, though that is a hundred steps before. A copy takes 13 steps. */
    {"what_is_used_late_comes_back_early",
     "{limit:40 link:12.5e6} [8 >s#=4/1 ] [2 mark [8 >t#=4/2 ] sync note [8 -t# ] [100 >/3 ] "
     "[8 s#>/4 ] sync ] +time<11880us"},
    /* Pinned memory serves tensors of all sizes: those that change take no more of it than what is
       away at once. */
    {"pinned_memory_of_other_sizes_is_used_again",
     "{limit:12} [60 mark >a=#00b+1k >b=~00b+3k >c=#00b+~50b >d=9k >e=~50b+100b >f=#50b+2k "
     ">h=~00b+40b >i=#00b+20k >j=12k >k=~00b+16k i> d> a> k> j> h> f> e> c> b> "
     "-a,b,c,d,e,f -h,i,j,k sync ] pinned_peak>0 pinned_peak<=native_peak"},
    /* What the schedule lets go, and is still there, may lose its copy on the host to a tensor that
       has to leave: then its memory is nobody's to take. */
    {"pinned_memory_is_short",
     "{limit:88 host-max:34} " SETUP("6", "4", "8") "[10 " TRAIN("6", "4", "2") "] drifts=0"},
    /* a would be copied behind step 0, while y is away and has all of it: other tensors would lose
       their copies for that, and be copied once more. */
    {"pinned_memory_is_too_short_for_copies_ahead",
     "{told limit:5 host-max:2} >w=1/1 >y=2/2 [8 " SHORT_OF_PIECES "] note [4 " SHORT_OF_PIECES
     "] +outs<=16"},
    /* A tensor that no schedule is for has a range that is wider than what it is for. */
    {"a_wider_range_is_used_again",
     "{free map:100us} mark a0,a12>a20=6/101 a11,a1>a11=27648b/102 a11,a8>a12=31744b/107 "
     "a20,a6>a23=3072b/108 a22,a3>a20=1/109 a19,a10>a18=30720b/110 a22,a4>a13=25600b/111 "
     "a13,a3>a16=14336b/113 -a16? a16,a10>a4=7168b/120 a18,a5>a9=22528b/121 a14,a12>a15=6/132 "
     "-a15? "
     "sync mark a0,a12>a20=6/101 a11,a1>a11=27648b/102 a11,a8>a12=31744b/107 a20,a6>a23=3072b/108 "
     "a22,a3>a20=1/109 a19,a10>a18=30720b/110 a22,a4>a13=25600b/111 a13,a3>a16=14336b/113 -a9? "
     "-a16? a16,a10>a4=7168b/120 a18,a5>a9=22528b/121 ins>=0"},
    /* What is freed while away is not fetched, what is never used again does not come back. */
    {"dead_tensors",
     "{limit:5} [6 mark [8 >a#=2/# ] [8 -a# ] sync ] ins=0 outs>0 device=0 tensors=0"},

    /* ---- Addresses and mappings ---- */

    /* No pointer changes while more than a thousand tensors leave and come back, in memory of a
       lake. */
    {"addresses_stay", "{map:100us limit:66} " SETUP("6", "4", "8") "[150 " TRAIN(
                           "6", "4", "2") "] outs+drops>1000 syncs=0 "
                                          "mode=1"},
    /* What goes as planned maps each chunk once at each place, also where tensors leave between. */
    {"what_repeats_stays_mapped",
     "{map:100us link:125e7 limit:(140|168|224|252|0)} " SETUP("8", "8", "16") "[12 " TRAIN(
         "8", "8", "4") "] note [4 " TRAIN("8", "8", "4") "] +maps=0 drifts=0 "
                                                          "+in(>|>|>|>|=)0"},
    /* The same where weights that live for ever leave and come back among tensors that are soon
       dead: these never get a weight's addresses. */
    {"weights_keep_their_addresses",
     "{map:100us link:125e7 limit:(48|56|64|72)} [12 >w#=8/106 ] [12 mark [12 w#,a#?>a#+1=8/100 "
     "-a#? ] -a12 sync ] note [4 mark [12 w#,a#?>a#+1=8/100 -a#? ] -a12 ] sync +maps=0"},
    /* What the host takes to map memory, while it learns, is no part of a step's time. */
    {"mapping_takes_no_step_longer",
     "{map:1000} " SETUP("8", "4", "8") "note [4 " TRAIN(
         "8", "4", "2") "] +maps>10 mode=1 step>=3300us step<=3400us"},
    /* A tensor that the host has, and that was fetched and used, leaves on the program's stream:
       what is made next takes its memory, and its step runs beside the copies out that are queued.
       The copy takes 1,311 us. */
    {"what_the_host_has_leaves_before_copies",
     "{map:100us limit:3 link:6.25e6} >a=1/0 room:max a>/1 >b=2/2 sync note room:max +drops=1 "
     ">c=1/3 "
     "sync +time>=100us +time<=1400us"},
    /* Under GMLAKE_OFFLOAD_CHECKED nothing is mapped where a tensor is away. */
    {"what_is_away_is_unmapped",
     "{map:100us checked limit:4 device:8} >a=2 mapped=1 room:1b mapped=0 a> mapped=1"},
    /* The lake's driver says why, by its own number, or that it cannot. */
    {"a_drivers_error",
     "{map:100us limit:4} unmappable:(700|1) a=1!B says:said_(700|2); unmappable:0 a=1"},

    /* ---- What the host has needs no copy ---- */

    /* A network whose weights never change: five tensors have to be away, and the host has the
       bytes of four of them already. The backward steps' next use of a is farther away. */
    {"frozen_weights_leave_without_copies",
     "{limit:44 link:25e7} [8 >w#=4/1 ] [12 mark {time:20} [8 w#,a#?>a#+1=4/2 ] {time:200} "
     "[8 w~>/3 a~+1>/4 -a~+1 ] sync ] plan_out=4u plan_in=20u drops>=32"},
    /* Frozen weights go first where that saves copies out. */
    {"frozen_weights_go_first",
     "{chunk:64k limit:(8|40|18|28) link:(2e9|3e9|6e9|4e9)} [(12|11|5|12) >w#=(1|4|4|3)/1 ] "
     "[12 mark {time:(61|42|43|59)} [(12|11|5|12) w#,a#?>a#+1=(1|3|2|3)/2 ] {time:(114|22|36|125)} "
     "[(12|11|5|12) w~,a~+1>/3 -a~+1 ] sync ] plan_out<=(5|0|0|12)u"},

    /* ---- Programs that change ---- */

    /* One step more at any place of one iteration: three iterations later nothing is fetched on
       demand any more. */
    {"drift_at_any_step",
     "{limit:29 jitter:.3} " SETUP("5", "2", "4") "[5 " TRAIN("5", "2", "1") "] drifts=0 mark " ODD(
         "5", "(1|3|5)", "(2|4|6)", "(4|2|0)", "2",
         "1") "drifts=1 mode=2 [3 " TRAIN("5", "2",
                                          "1") "] note [3 " TRAIN("5", "2",
                                                                  "1") "] drifts=1 mode=1 "
                                                                       "+demand_in=0"},
    /* A tensor that was too small to be told until now comes before another one: that one is still
       the one that is known, and so is the weight that a step reads behind it. */
    {"one_more_takes_nobodys_place",
     "{limit:22} [6 >w#=4/106 ] [6 mark [6 a=4 w#,a>/100 -a ] sync ] note mark "
     "[6 b=1 a=4 w#,a>/100 -a -b ] sync mark [6 b=1 a=4 b,w#,a>/100 -a -b ] sync "
     "[2 mark [6 a=4 w#,a>/100 -a ] sync ] drifts=0 +demand_in=0"},
    /* Nor does one that a step reads before a weight get the weight's place. */
    {"one_more_before_a_weight",
     "{limit:44} [12 >w#=4/106 ] [14 mark [12 a=4 w#,a>/100 -a ] [12 a=4 w~,a>/101 -a ] sync ] "
     "note "
     "[3 mark [2 a=4 b#=1 b#,w#,a>/100 -a ] [10 a=4 w#+2,a>/100 -a ] [12 a=4 w~,a>/101 -a ] "
     "[2 -b# ] sync mark [12 a=4 w#,a>/100 -a ] [12 a=4 w~,a>/101 -a ] sync ] drifts=0 +plans=0"},
    /* Where one step has one more, and another one less, the iteration stays as it was learnt. */
    {"one_more_and_one_less",
     "{limit:38} [6 >w#=4/106 ] [30 mark [3 b=1 a=12 b,w#,a>/100 -a -b ] [3 a=12 w#+3,a>/100 -a ] "
     "sync mark [3 a=12 w#,a>/100 -a ] [3 b=1 a=12 b,w#+3,a>/100 -a -b ] sync ] unplanned<=37u "
     "plans<8"},
    /* If many are, the next iteration is learnt, and planned for. */
    {"many_more_are_learnt",
     "{limit:22} [6 >w#=4/106 ] [6 mark [6 a=4 w#,a>/100 -a ] sync ] note "
     "[3 mark [6 b=1 a=4 b,w#,a>/100 -a -b ] sync ] +plans>=1 note "
     "[3 mark [6 b=1 a=4 b,w#,a>/100 -a -b ] sync ] drifts=0 +demand_in=0"},
    /* One that begins to tell of regions is learnt at once, however few of its steps are new. */
    {"regions_are_learnt_at_once",
     "{limit:60} [40 >w#=2/106 ] [8 mark [40 w#>/100 ] [40 w~>/101 ] sync ] drifts=0 mark "
     "[40 w#>/100 ] begin:0 w0>/102 end:0 again:0 w0>/102 end:0 [40 w~>/101 ] sync drifts=1 "
     "[4 mark [40 w#>/100 ] begin:#+1 w0>/102 end:0 again:#+1 w0>/102 end:0 begin:#+9 w1>/103 "
     "end:0 "
     "again:#+9 w1>/103 end:0 [40 w~>/101 ] sync ] drifts=2 mode=1"},
    /* But not for ever where their number changes by turns: then one of both stays known. */
    {"regions_by_turns",
     "{limit:60} [40 >w#=2/106 ] [12 mark [40 w#>/100 ] begin:1 w0>/102 end:0 again:1 w0>/102 "
     "end:0 "
     "[40 w~>/101 ] sync mark [40 w#>/100 ] begin:1 w0>/102 end:0 again:1 w0>/102 end:0 begin:2 "
     "w1>/103 end:0 again:2 w1>/103 end:0 [40 w~>/101 ] sync ] note [6 mark [40 w#>/100 ] begin:1 "
     "w0>/102 end:0 again:1 w0>/102 end:0 [40 w~>/101 ] sync mark [40 w#>/100 ] begin:1 w0>/102 "
     "end:0 again:1 w0>/102 end:0 begin:2 w1>/103 end:0 again:2 w1>/103 end:0 [40 w~>/101 ] sync ] "
     "+drifts=6 mode=1"},
    /* What outlives an iteration takes the place of what the next one began with, of its size: the
       first plan counts the two once. */
    {"carried_values_count_once",
     "{told limit:20} >w=1/1 >g=4/2 >h=4/2 mark w,g>a=2/3 -g a>b=2/4 "
     "h>b -h -a -b w>g=4/7 w>h=4/8 sync mark unplanned=11u"},
    /* Of several of one size the session sees which takes which place. Else four iterations take
       6,662 us, since one that is soon used leaves. */
    {"carried_values_in_another_order",
     "{limit:28} [6 >w#=4/1 ] >a=6/1 >b=6/1 [8 " CARRIED "] note [4 " CARRIED "] +time<=6450us"},
    /* A program that changes for good is learnt again, when it went the new way twice. */
    {"another_order_is_learnt",
     "{limit:34} " SETUP("6", "2", "4") "[6 " TRAIN("6", "2", "1") "] note [10 mark " ODD(
         "6", "4", "5", "2", "2", "1") "] mode=1 +plans>0 drifts>=1 drifts<=3"},
    /* Other sizes in the same order are no drift; two iterations alike get a plan of their own. */
    {"sizes_vary",
     "{limit:66} " SETUP("6", "4", "8") "[2 " TRAIN("6", "4", "2") TRAIN("6", "3", "2")
         TRAIN("6", "2+100b", "1") TRAIN("6", "4", "2") TRAIN("6", "3+2k", "2")
             TRAIN("6", "2+1k", "1") "] note [6 " TRAIN("6", "2", "1") "] drifts=0 +plans>0"},
    /* In an iteration whose tensors are much smaller than those that the schedule is for nothing is
       copied to the host, and nothing has to come back. In the next one it holds again. */
    {"a_schedule_is_for_its_sizes",
     "{limit:88} " SETUP("6", "4", "8") "[5 " TRAIN("6", "4", "2") "] [3 note " TRAIN(
         "6", "2k", "1k") "mode=1 +in=0 +outs=0 note " TRAIN("6", "4",
                                                             "2") "mode=1 +in>0 ] drifts=0"},
    /* A tensor may be missing: a program does not tell of what is small. It was seen when the
       iteration was learnt, or not. */
    {"a_tensor_that_is_missing_at_times",
     "{limit:66} " SETUP("6", "4", "8") "[6 mark >t=1/50 w0,t>y=1/51 -y -t " UNMARKED(
         "6", "4", "2") "] [4 mark >/50 w0>y=1/51 -y " UNMARKED("6", "4",
                                                                "2") "mark >t=1/50 w0,t>y=1/51 -y "
                                                                     "-t " UNMARKED(
                                                                         "6", "4",
                                                                         "2") "] drifts=0 mode=1"},
    {"a_tensor_that_is_there_at_times",
     "{limit:66} " SETUP("6", "4", "8") "[5 mark >/50 w0>y=1/51 -y " UNMARKED(
         "6", "4", "2") "] [4 mark >t=1/50 w0,t>y=1/51 -y -t " UNMARKED("6", "4",
                                                                        "2") "mark >/50 w0>y=1/51 "
                                                                             "-y " UNMARKED(
                                                                                 "6", "4",
                                                                                 "2") "] drifts=0 "
                                                                                      "mode=1"},
    /* The first iteration is the smallest. Those that are larger than any before are planned for:
       there is a new schedule when all together have grown by a sixteenth. */
    {"larger_sizes_are_planned_for",
     "{limit:66} " SETUP("6", "4", "8") "[8 " TRAIN("6", "1", "1") "] note " TRAIN("6", "4", "2")
         TRAIN("6", "2", "1") "+plans>0 note [4 " TRAIN("6", "3", "2") TRAIN("6", "4", "2")
             TRAIN("6", "1", "1") "] drifts=0 +plans=0 +demand_in<=12 mode=1"},
    /* While sizes vary, too, a tensor gets addresses whose chunks are free. Where sizes are new and
       tensors are freed soon, 55 chunks are mapped in nine iterations, */
    {"new_sizes_in_a_lake",
     "{map:100us limit:200} " SETUP("6", "4", "8") "[6 " SOON_FREED("4", "4") "] note " SOON_FREED(
         "5", "3") SOON_FREED("2", "6") SOON_FREED("6", "3") SOON_FREED("3", "5")
         SOON_FREED("7", "1") SOON_FREED("1", "7") SOON_FREED("7", "2") SOON_FREED("3", "4")
             SOON_FREED("2", "7") "+maps<=60"},
    /* and 239 in twelve where all of it leaves and the same sizes come again. */
    {"sizes_vary_in_a_lake",
     "{map:100us limit:66} " SETUP("6", "4", "8") "[12 " TRAIN("6", "4", "2") TRAIN("6", "3", "2")
         TRAIN("6", "2", "1") "] note [4 " TRAIN("6", "4", "2") TRAIN("6", "3", "2")
             TRAIN("6", "2", "1") "] +maps<=260"},
    /* An evaluation between iterations: it uses the weights in an order that is known, so the
       session finds where it is, and the schedule goes on. Nothing is learnt for it. Of 50 tensors
       that are away all but 20 come back ahead. */
    {"evaluations_between",
     "{limit:58} " SETUP("8", "4", "4") "[6 " TRAIN("8", "4", "2") "] note [5 [2 " TRAIN(
         "8", "4", "2") "] mark [2 " FORTH("8", "0", "1",
                                           "4") "[8 -a#+1 ] ] " UNMARKED("8", "4",
                                                                         "2") "] +plans=0 "
                                                                              "+demand_in<=20 note "
                                                                              "[2 " TRAIN(
                                                                                  "8", "4",
                                                                                  "2") "] "
                                                                                       "mode=1 "
                                                                                       "+demand_"
                                                                                       "in=0"},
    /* Where each iteration has another order, schedules are soon given up. Once iterations are
       alike again, there is one that is followed. */
    {"schedules_in_vain_are_given_up",
     "{limit:43} " SETUP("8", "2", "4") "[4 mark [# >/101 ] " UNMARKED(
         "8", "2", "1") "] note [36 mark [~ >/101 ] " UNMARKED("8", "2",
                                                               "1") "] +plans<=1 plans<=3 "
                                                                    "[20 " TRAIN("8", "2",
                                                                                 "1") "] mode=1 "
                                                                                      "+plans>0"},
    /* So it is where two programs take turns: none of both is ever followed by itself. */
    {"programs_that_take_turns_are_not_planned",
     "{limit:30} [12 >w#=4/1 ] [8 " TURNS "] note [8 " TURNS "] +plans=0"},
    /* After four and nine iterations that were alike the steps are timed again. The plan changes
       if they are faster by a sixteenth. */
    {"slow_steps_are_timed_again",
     "{limit:34 time:(400|400|400|105|50)} " SETUP("6", "2", "4") "[4 " TRAIN(
         "6", "2", "1") "] plans=2 step>=25*(400|400|400|105|50)us step<26*(400|400|400|105|50)us "
                        "[(0|5|10|0|0) " TRAIN("6", "2", "1") "] {time:100} [(12|7|2|12|12) " TRAIN(
                            "6", "2", "1") "] "
                                           "plans=(3|3|2|"
                                           "2|2) "
                                           "step>=(2500|"
                                           "2500|10000|"
                                           "2500|1250)us "
                                           "step<=(2600|"
                                           "2600|10400|"
                                           "2730|1300)us "
                                           "drifts=0 "
                                           "mode=1"},

    /* ---- Iterations that nobody marks ---- */

    /* Training is found, learnt and planned. An iteration of another order is noticed, and three
       later nothing is fetched on demand any more. It drifts twice where it was the first step. */
    {"iterations_are_found",
     "{limit:34 jitter:.3} " SETUP("6", "2", "4") "[2 " UNMARKED(
         "6", "2",
         "1") "] iterations=0 "
              "[7 " UNMARKED("6", "2", "1") "] note [3 " UNMARKED(
                  "6", "2",
                  "1") "] drifts=0 mode=1 "
                       "+demand_in=0 " ODD(
                           "6", "(1|4|6)",
                           "(2|5|7)", "(5|2|0)", "2",
                           "1") "[6 " UNMARKED("6", "2",
                                               "1") "] note [5 " UNMARKED("6", "2",
                                                                          "1") "] +demand_in=0 "
                                                                               "mode=1 drifts>=1 "
                                                                               "drifts<=2 "
                                                                               "iterations>=18 "
                                                                               "iterations<=24 "
                                                                               "ins>0"},
    /* What is repeated within an iteration is no iteration, however long: a program that adds up
       the gradients of some batches drifts no more when that is known. It was taken for one. */
    {"repeats_within_an_iteration",
     "{limit:16} [4 >p#=2/9 ] [8 [4 p0>a=2/1 [6 p1,a>b=2/#1 -a p2,b>a=2/#2 -b p0,a>b=2/#3 -a "
     "b>a=2/#4 -b ] -a ] p0,p1>p3/77 sync ] note drifts>0 [4 [4 p0>a=2/1 [6 p1,a>b=2/#1 -a "
     "p2,b>a=2/#2 -b p0,a>b=2/#3 -a b>a=2/#4 -b ] -a ] p0,p1>p3/77 sync ] +drifts=0 "
     "+iterations=4 mode=1"},
    /* Steps that name nothing are no iterations, however they repeat; a mark ends the search. */
    {"what_is_not_searched",
     "[90 >t#=1/9 ] iterations=0 [10 [7 t0>/# ] ] iterations>3 note mark [10 [7 t0>/# ] ] "
     "+iterations=1"},

    /* ---- Regions ---- */

    /* Nobody says how much memory there is: nothing is kept. An iteration takes 65 steps. */
    {"regions_are_given_up_without_a_limit",
     "{told} " WEIGHTS_8 "[6 " REGIONS_8 "kept=0 ] note " REGIONS_8 "+time>=6500us +time<=6505us "
     "mark regions=8 kept_regions=0"},
    /* Where there is memory for all that a program gives up and makes again, it does that no more.
       The first such iteration is planned already, so nothing drifts, and takes as long as was
       foretold: 16 steps less. */
    {"regions_are_kept_where_memory_allows",
     "{told limit:180} " WEIGHTS_8 "[23 " REGIONS_8 "] note " REGIONS_8 "kept=8 drifts=0 outs=0 "
     "+time>=4900us +time<=4950us +time>=step +time<=step+20us mark kept_regions=8 regions=8"},
    /* One step more than was foretold: that is learnt. */
    {"regions_kept_with_a_step_more",
     "{told limit:180} " WEIGHTS_8 "[24 " REGIONS_OF(
         "8", "4", "8", ">/209 ", "200", "kept~:>/207 ") "] kept=8 drifts>=1 drifts<=3 mode=1"},
    /* With less memory as many are kept as make an iteration shorter; it is then shorter by a
       twentieth at least than if all were executed again. */
    {"regions_are_kept_as_far_as_it_pays",
     "{told limit:(84|126) link:(6e7|125e6)} " WEIGHTS_8 "[23 " REGIONS_8 "] note " REGIONS_8
     "kept>0 kept<=(7|8) drifts=0 step+added>=.95*+time step+added<=1.05*+time "
     "+time<(6175|6175)us"},
    /* Their second steps may be some of the first ones. */
    {"regions_whose_second_steps_are_fewer",
     "{told limit:190} " WEIGHTS_8 "[15 " REGIONS_OF("8", "4", "8", ">v#=1/210 v#>/211 -v# ", "200",
                                                     "") "] kept=8 drifts=0 outs=0"},
    /* Those whose second steps are others are not kept. */
    {"regions_whose_second_steps_are_others",
     "{told limit:(84|126) link:(6e7|125e6)} " WEIGHTS_8 "[23 " REGIONS_8_ODD
     "] note " REGIONS_8_ODD "kept=0 +time>=6500us"},
    /* But they may make what the first ones found ready, as weights in another data type: where the
       region is kept the backward steps read that. */
    {"regions_whose_second_steps_make_more",
     "{told limit:190} " WEIGHTS_8
     "[15 " CASTS_8("", "4", "c~", "201", "", "", "given~:-c~ ") "] kept=8 drifts=0 outs=0"},
    /* Not if it is of another size, or not read; nor if a later step is another one; if they write
       what was there before; or if what they make is still there in the next iteration. */
    {"regions_whose_second_steps_make_others",
     "{told limit:190} " WEIGHTS_8 "[15 " CASTS_8("", "(5|4|4)", "(c~|w~|c~)", "(201|201|207)", "",
                                                  "", "given~:-c~ ") "] kept=0"},
    {"regions_whose_second_steps_read_others",
     "{told limit:190} " WEIGHTS_8 "[15 mark begin:1 w0>y0=4/200 end:0 given1:-y0 given1:again:1 "
     "given1:w(0|1)>y0=4/200 given1:end:0 y0>/202 -y0 [8 w#>/201 ] sync ] kept=(1|0)"},
    {"regions_whose_second_steps_write",
     "{told limit:190} " WEIGHTS_8
     "[15 " CASTS_8("", "4", "c~", "201", ",w#", ",w~", "given~:-c~ ") "] kept=0"},
    {"regions_whose_second_steps_write_what_they_made",
     "{told limit:190} " WEIGHTS_8
     "[15 " CASTS_8("", "4", "c~", "201 given~:w~>h~/303", "", "", "given~:-c~ ") "] kept=0"},
    /* Or if none of them is a first one; or if there is none. */
    {"regions_whose_second_steps_are_no_first_ones",
     "{limit:40} " WEIGHTS_8 "[20 mark [8 begin:# w#>/200 end ] [8 given~:again:~ given~:w~>/300 "
     "given~:end w~>/301 ] sync ] kept_regions=0"},
    {"regions_without_second_steps",
     "{limit:6} [12 mark begin:1 (|>b=2/77) end:0 (again:1|) (end:0|) [6 >a#=2/# ] [6 a#>/1 ] "
     "[6 -a# ] (|-b) (|again:1) (|end:0) sync ] plans>0 kept_regions=0"},
    {"regions_whose_second_steps_leave_something",
     "{told limit:190} " WEIGHTS_8
     "[15 " CASTS_8("[8 -c#? ] ", "4", "c~", "201", "", "", "") "] kept=0"},
    /* Also where no iteration can be timed again, as each is smaller than the one that is known. */
    {"regions_of_smaller_iterations", "{told limit:180} " WEIGHTS_8 "[3 " REGIONS_8
                                      "s=1 >s/209 -s ] [12 " REGIONS_8 ">/209 ] kept=8 "
                                      "drifts<=1"},
    /* Where sizes vary as many are kept in each iteration as there is room for, but the first of a
       row, which tells how large the others are. Nothing drifts, and nothing leaves: to map what
       differs each time costs the host more than a plan knows. */
    {"regions_of_sizes_that_vary_are_kept_by_room",
     "{told limit:(100|120|120|150)} " WEIGHTS_8 "[3 " REGIONS_8
     "] [9 " REGIONS_OF("8", "(3|3|1|3)", "(6|6|2|6)", "", "200", "") REGIONS_8
     "] note [2 " REGIONS_OF("8", "(3|3|1|3)", "(6|6|2|6)", "", "200",
                             "") "kept=(4|6|7|7) " REGIONS_8 "kept=(2|4|4|6) ] +outs=0 +drifts=0"},
    /* Before an iteration the program evaluates, in larger tensors, and goes back to the begin
       behind the last layer. What the regions make has the sizes then that it had before. */
    {"regions_are_kept_by_room_after_an_evaluation",
     "{told limit:120} " WEIGHTS_8 "[3 " REGIONS_8 "] [9 " SMALLER_8 REGIONS_8
     "] [3 mark " EVALUATION_8 EVALUATION_8 UNMARKED_REGIONS("8", "4", "8", "", "200", "") SMALLER_8
     "kept=6 ]"},
    /* A few of the same size are not taken for sizes that vary no more; many are. */
    {"regions_of_sizes_that_are_the_same_by_chance",
     "{told limit:120} " WEIGHTS_8 "[3 " REGIONS_8 "] [4 " SMALLER_8 REGIONS_8
     "] note [6 [5 " SMALLER_8 "] " REGIONS_8 "] +outs<9 +drifts=0 [24 " SMALLER_8 "] kept=8"},
    /* Also where the largest iteration has no room, and copies take so long that it keeps none: the
       smaller ones do. */
    {"smaller_regions_are_kept_by_room_where_larger_ones_leave",
     "{told limit:(70|70|80) link:(2e7|6.25e6|6.25e6)} " WEIGHTS_8 "[3 " REGIONS_8
     "] [9 " REGIONS_OF("8", "2", "4", "", "200", "") REGIONS_8 "] note [3 " REGIONS_OF(
         "8", "2", "4", "", "200", "") "kept=(3|3|4) " REGIONS_8 "kept=0 ] +drifts=0"},
    /* Where tensors had to leave, as others need room, fewer are kept until that is long ago. */
    {"regions_kept_by_room_leave_room",
     "{told limit:120} " WEIGHTS_8 "[3 " REGIONS_8 "] [9 " SMALLER_8 REGIONS_8 "] " SMALLER_8
     "kept=6 room:(24|32) " REGIONS_8 SMALLER_8 "kept<=(4|3) [40 " SMALLER_8 REGIONS_8
     "] " SMALLER_8 "kept=6"},
    /* Also where so much had to leave that none was kept. */
    {"regions_are_kept_by_room_again",
     "{told limit:120} " WEIGHTS_8 "[3 " REGIONS_8 "] [9 " SMALLER_8 REGIONS_8 "] [3 " SMALLER_8
     "room:32 " REGIONS_8 "room:32 ] " SMALLER_8 "kept<=1 [40 " REGIONS_8 SMALLER_8 "] kept=6"},
    /* Without marks, nothing is kept: the session finds iterations by what they repeat. */
    {"regions_without_marks_are_not_kept_by_room",
     "{told limit:120} " WEIGHTS_8 "[4 " ONE_REGIONS_8("4", "8") "] [12 " ONE_REGIONS_8("3", "6")
         ONE_REGIONS_8("4", "8") "] kept=0 drifts=0 iterations>=24"},
    /* A session that takes the link to be fast keeps too many. It measures that the iterations
       became longer, and goes back for good. If all are executed again, one takes 8,577 us. */
    {"what_does_not_pay_is_taken_back",
     "{limit:63 link:6e7} " WEIGHTS_8 "[9 " REGIONS_8 "] kept>0 [14 " REGIONS_8 "] note " REGIONS_8
     "kept=0 drifts>=1 drifts<=3 +time<=8577us"},
    /* But only iterations of about the same sizes are compared. */
    {"smaller_iterations_take_nothing_back",
     "{told limit:180} " WEIGHTS_8 "[9 " REGIONS_8 "] kept=8 {time:200} [6 " REGIONS_OF(
         "8", "3", "6", "", "200", "") REGIONS_OF("8", "2", "4", "", "200", "") "] kept=8"},
    /* Steps may take longer than a plan says: what is kept is compared with what was measured. */
    {"regions_of_a_slow_host", "{told limit:180} " WEIGHTS_8 "[40 " REGIONS_OF(
                                   "8", "4", "8", "spend:(450|600|600) ", "200",
                                   "given~:spend:(300|400|600) spend:(300|400|200) ") "] kept=8"},
    {"regions_of_a_host_that_gets_slower",
     "{told limit:180} " WEIGHTS_8 "[8 " SLOW_8
     "] kept=8 note [30 " SLOWER_8("590", "440") "] kept=8 +drifts=0"},
    /* One iteration that takes longer takes nothing back, whichever is measured. Two do, or one
       that takes much longer. */
    {"regions_survive_one_long_iteration", "{told limit:180} " WEIGHTS_8 "[(11|16) " SLOW_8
                                           "] " SLOWER_8("645", "495") "[14 " SLOW_8 "] kept=8"},
    {"regions_do_not_survive_two",
     "{told limit:180} " WEIGHTS_8 "[11 " SLOW_8
     "] " SLOWER_8("(645|700)", "(495|550)") "[4 " SLOW_8 "] " SLOWER_8(
         "(645|450)", "(495|300)") "[14 " SLOW_8 "] kept=0"},
    /* Where the device waits for the host that is part of a step: what is kept saves it, too. */
    {"what_a_slow_host_takes_is_planned_for",
     "{told limit:180} " WEIGHTS_8 "[5 " SLOW_8 "] step=8600us [5 " SLOW_8
     "] step=6200us kept=8 [30 " SLOW_8 "] kept=8 plans=5"},
    /* Where sizes grow, what is kept stays as long as copies take less than is saved. */
    {"larger_iterations_take_nothing_back",
     "{told limit:180} " WEIGHTS_8 "[12 " REGIONS_8
     "] kept=8 note [20 " REGIONS_OF("8", "5", "10", "", "200", "") "kept=8 ] +drifts=0 outs>0"},
    /* Where times grow, too, that is measured and not taken for what does not pay. */
    {"longer_iterations_take_nothing_back",
     "{told limit:180} " WEIGHTS_8 "[12 " REGIONS_8
     "] kept=8 {time:150} [40 " REGIONS_OF("8", "(6|4)", "(12|8)", "", "200", "") "] kept=8"},
    /* Another limit, or other sizes, and it is decided anew; in between, nothing is kept that would
       not fit. */
    {"regions_are_decided_anew",
     "{told limit:180 link:6e7} " WEIGHTS_8 "[12 " REGIONS_8 "] kept=8 limit:116 " REGIONS_8
     "kept=0 [16 " REGIONS_8 "] kept>0 kept<8 note limit:117 [12 " REGIONS_8 "] +kept=0 "
     "limit:180 [20 " REGIONS_8 "] kept=8 [30 " REGIONS_8_LARGER "] kept>0 kept<8 [30 " REGIONS_8
     "] kept=8"},
    /* A limit that is told again and again, and differs by little, is the same one. */
    {"regions_are_kept_where_the_limit_is_told_often",
     "{limit:180} " WEIGHTS_8 "[20 limit:180 limit:(179|180) " REGIONS_8 "] kept=8"},
    /* Memory that nobody can give up ends it, too. */
    {"regions_make_room",
     "{told limit:180 link:6e7} " WEIGHTS_8 "[12 " REGIONS_8 "] kept=8 room:1 roomed=4u " REGIONS_8
     "kept=8 room:180 [12 " REGIONS_8 "] kept=0"},

    /* ---- Particular calls ---- */

    /* Another one has the chunk that the range of a had: without a new range a gets that. */
    {"addresses_are_refused",
     "{map:1us limit:8} a=1 -a b=2 fail-call:1 a=1 a>b/1 fail-call:1 c=4!B"},
    /* What is too large is refused, and nothing has changed. What the step names may be less. */
    {"too_large_a_step",
     "{limit:4} [3 a#=2 ] note a0,a1,a2>!D same says:this_step_needs_24576_bytes_at_once,_in_whole_"
     "chunks,_with_what_may_not_leave;_the_limit_is_16384 a0,a1>b=1+1b!D says:24576_bytes c=1b"},
    /* In a session that is held nothing moves; pinned tensors stay. */
    {"steps_and_marks_that_make_no_sense_are_refused_in_words",
     "{limit:8} a=1 b=1 a,b,a>/1!I says:twice_in_reads a,b>a,b/1 b>a,a/1!I says:twice_in_writes "
     "begin:1 mark!I says:in_a_step_or_a_region end:0 mark"},
    {"held_and_pinned",
     "{limit:4} [4 >a#=2/0 ] a0,a1>/1 hold:1 note a0> a2>!I pin:a2!I mark!I room:1b roomed=0 "
     "+calls=0 hold:0 pin:a2 room:max device=2u unpin:a2 unpin:a2!U room:1b roomed=2u"},
    /* Nor does what the schedule let go, whose chunks the range of what is allocated had. */
    {"held_and_let_go",
     "{told map:100us limit:10} limit:5 >w=1/1 >x=1/2 [8 mark w>a=2/3 a>b=2/4 w,b>c=1/5 -b "
     "a>a/6 -a c>x/7 -c sync ] mark w>a=2/3 a>b=2/4 limit:10 hold:1 c=1 a>/6 hold:0"},
    /* What is planned, worked out by hand: step 2 would need 7 chunks, of which 5 may be there, and
       step 1 six. So a, of two chunks, is away in step 2, between its uses; and x, of one, from its
       use to the next iteration's step 2: w and what is made stay. A copy takes 10 us and 8.192 us
       a chunk. a is copied while step 1 reads it, and leaves behind that: so what step 2 makes gets
       a chunk of a's, and waits for nothing. a comes back when b is gone, behind step 2, so that
       step 3 waits for its 26.385 us; the host takes 20 us to begin an iteration when it has read
       the result of the last. x is copied behind its use, too, and leaves behind the last step. */
    {"what_is_planned",
     "{told limit:5} >w=1/1 >x=1/2 view!N [6 mark w>a=2/3 a>b=2/4 w,b>c=1/5 -b a>a/6 -a "
     "c>x/7 -c w>/8 sync ] view view_steps=6 view_tensors=5 view_stays=3 view_moves=6 "
     "view_unplanned=7u "
     "view_planned=5u view_out=3u view_in=3u view_step=600us view_out_busy=26385+18193 "
     "view_in_busy=view_out_busy view_first_in=2 view_first_wait=3 "
     "view_waits=26385+20us view_time=step+added view_again=0 view_regions=0 view_named=2 "
     "view_keys=33"},
    /* What is planned happens: an iteration takes 16 us more than its steps. If a were copied when
       it leaves it would take 33 us more. */
    {"what_is_read_is_copied_meanwhile",
     "{told limit:5} >w=1/1 >x=1/2 [6 mark " READ_MEANWHILE "] note [4 mark " READ_MEANWHILE
     "] +demand_in=0 +demand_out=0 +out=4*plan_out +time<4*step+4*20us"},
    /* So that a plan's cost stays linear, 64 steps are looked at for the one that wrote a. */
    {"what_is_read_often_is_copied_when_it_leaves",
     "{told limit:5} >w=1/1 >x=1/2 [6 mark w>a=2/3 [(62|63) a>/9 ] a>b=2/4 w,b>c=1/5 -b a>a/6 -a "
     "c>x/7 -c w>/8 sync ] view view_moves=(6|5)"},
    /* The same with g, which step 4 makes and the next iteration's step 0 uses for the last time:
       the session plans from behind that on. What happens there is told by the program's steps. */
    {"what_is_planned_across_iterations",
     "{told limit:5} >w=1/1 >x=1/2 >g=2/2 [6 mark w,g>a=2/3 -g a>b=2/4 w,b>c=1/5 -b a>a/6 -a "
     "c>x,g=2/7 -c sync ] view view_named=3 view_keys=25 view_unplanned=7u view_planned=5u "
     "view_moves=5 view_first_in=2 view_first_wait=3 view_waits=26385+20us "
     "view_time=step+added"},
    /* Where chunks have numbers, too: the plan says from that step on who has which. */
    {"what_is_planned_across_iterations_for_chunks",
     "{told map:100us limit:8 link:1e8} >a=3/1 >b=3/1 >c=2/1 >d=1/1 >e=1/1 >f=3/1 >g=3/1 >t=3/18 "
     "[9 "
     "mark c>c/10 -t g>g/11 b>h=2/12 f>i=3/13 -h e>j=2/14 -i,j f>f/15 c>c/16 g>k=2/17 e>t=3/18 -k "
     "sync ] view view_time=step+added"},
    {"what_is_planned_and_needs_no_copy",
     "{told limit:3} >a=1/1 >b=1/2 >c=1/3 >d=1/4 [6 mark a>/1 b>/2 c>/3 d>/4 sync ] view "
     "view_moves>=4 view_out=0 view_in>=2u view_named=4"},
    {"what_is_planned_and_moves_often",
     "{told limit:3} >a=2/1 >b=2/2 [6 mark [8 a>a/1 b>b/2 ] sync ] view view_moves=16 "
     "view_out=16u view_in=16u"},
    /* a leaves for d, and is freed behind step 3, in which it counts: more than the limit. */
    {"what_is_planned_and_never_returns",
     "{told limit:5} >w=1/1 >x=1/2 [6 mark w>a=2/3 a>a/4 w>d=4/5 -d w>e=4/6 -a,e x>x/7 sync ] view "
     "view_planned=7u"},
    /* Iterations that are timed once more, while the device is still busy with them. */
    {"what_is_planned_while_times_are_not_known",
     "{told limit:5} >w=1/1 >x=1/2 [3 mark w>a=2/3 a>b=2/4 w,b>c=1/5 -b a>a/6 -a c>x/7 -c sync ] "
     "[9 mark view view_step=500us w>a=2/3 a>b=2/4 w,b>c=1/5 -b a>a/6 -a c>x/7 -c view "
     "view_step=500us ]"},
    /* Each of the three regions has two steps of 100 us that are executed again. */
    {"what_is_executed_again_is_told",
     "{told limit:23} " WEIGHTS_8 "[4 " REGIONS_3 "] view view_regions=3 view_again=6*100us "
     "view_time=step+added"},
    /* Later iterations free a before step 2, where the plan lets it go: d and w are there. */
    {"what_is_planned_and_freed_earlier",
     "{told limit:5} >w=1/1 >x=1/2 [4 mark w>a=2/3 a>a/4 w>d=4/5 -d w>w/7 -a x>x/6 sync ] view "
     "view_planned=5u view_unplanned=8u [6 mark w>a=2/3 a>a/4 -a w>d=4/5 -d w>w/7 x>x/6 sync ] "
     "view view_planned=5u view_unplanned=6u"},
    {"what_is_planned_for_a_limit_that_is_far_away",
     SETUP("4", "2", "4") "[4 " TRAIN("4", "2", "1") "] view view_moves=0 view_steps=17 "
                                                     "view_planned=native_peak view_waits=20us"},
    {"wrong_regions", "end!I again:5!U begin:1 begin:2!I again:1!I end again:1 end"},
};
#define SESSION_ROWS (sizeof(session_rows) / sizeof(session_rows[0]))

/* Played once for each call of the device that fails between the words `faults`, and for each
   request for host memory. A program repeats what fails; the bytes are right in the end. */
static const row fault_rows[] = {
    {"a_stubborn_program",
     "{limit:13 jitter:.2} [4 >w#=4/1 ] faults [3 mark [2 w0>w1,a=1+2k/2 spend:100 w1>w2,a=1+2k/2 "
     "-a "
     "spend:100 w2>w3,a=1+2k/2 spend:100 w3>w0,a=1+2k/2 -a spend:100 ] ]"},
    {"room_without_a_tensor", "{free limit:8} faults a=1 room:1b faults b=1"},
    /* A tensor that was copied to the host, but whose memory could not be given up, stays. What
       writes it next does so behind the copy. */
    {"writes_wait_for_copies_in_vain",
     "{limit:4 link:6.25e6} >a=2/1 faults room:1b faults (|pin:a touch:a unpin:a) >a/2"},
    /* Without host memory for the decision the session goes on without it. */
    {"deciding_without_host_memory", "{told limit:40 link:6e7} [3 >w#=4/106 ] [6 " REGIONS_3
                                     "] faults mark faults " REGIONS_3 "[3 " REGIONS_3 "]"},
    /* Nor without it to see what there is room for. */
    {"keeping_by_room_without_host_memory",
     "{told limit:60} [3 >w#=4/106 ] [3 " REGIONS_3 "] [2 " REGIONS_OF("3", "3", "6", "", "200", "")
         REGIONS_3
     "] " REGIONS_OF("3", "5", "10", "", "200", "") "faults " REGIONS_OF(
         "3", "2", "4", "", "200", "") "faults [2 " REGIONS_3 REGIONS_OF("3", "2", "4", "", "200",
                                                                         "") "] kept>0 " REGIONS_3},
    {"asking_what_is_planned",
     "{limit:13} [4 >w#=4/1 ] [4 mark [4 w#>w#/2 ] sync ] faults view faults [4 w#>w#/2 ]"},
};
#define FAULT_ROWS (sizeof(fault_rows) / sizeof(fault_rows[0]))

#endif /* OFFLOAD_SESSION_ROWS_H */
