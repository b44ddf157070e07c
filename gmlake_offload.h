/* gmlake_offload.h 0.2.0: plans and runs computations larger than the GPU's memory.

RECIPE
  One C or C++ file of the program says
      #define GMLAKE_OFFLOAD_IMPLEMENTATION
      #include "gmlake_offload.h"
  and every other file includes the header alone. It needs the C library, no GPU and no other
  header; gmlake_turnip.h, which compiles memgraphs, includes this one. Memory, copies and kernels
  come from a table of functions, the backend. Two backends are in this header: define
  GMLAKE_OFFLOAD_BACKEND_CUDA before the implementation for a GPU, which stands on gmlake.h's CUDA
  backend, and GMLAKE_OFFLOAD_BACKEND_MOCK for a simulation that needs no device.

EXAMPLE
      // A step of training whose activation `x` is not needed while `y` is made.
      #define GMLAKE_OFFLOAD_IMPLEMENTATION
      #define GMLAKE_OFFLOAD_BACKEND_MOCK
      #include "gmlake_offload.h"
      #include <stdio.h>
      static uint32_t tensor(gmlake_offload_graph *graph, size_t bytes) {
        gmlake_offload_tensor_desc desc = {0};
        uint32_t id = GMLAKE_OFFLOAD_NONE;
        desc.bytes = bytes;
        desc.kind = GMLAKE_OFFLOAD_INTERMEDIATE;
        gmlake_offload_add_tensor(graph, &desc, &id);
        return id;
      }
      static void step(gmlake_offload_graph *graph, uint32_t read, uint32_t write) {
        gmlake_offload_op_desc desc = {0};
        uint32_t id;
        desc.time_ns = 5000000;
        desc.reads = &read;
        desc.read_count = read != GMLAKE_OFFLOAD_NONE;
        desc.writes = &write;
        desc.write_count = 1;
        gmlake_offload_add_op(graph, &desc, &id);
      }
      int main(void) {
        gmlake_offload_planner_desc desc = {0}; // an H200's link
        gmlake_offload_job_desc job_desc = {0};
        gmlake_offload_job_info info;
        gmlake_offload_graph *graph;
        gmlake_offload_planner *planner;
        uint32_t x, y, z, w, job;
        if (gmlake_offload_graph_create(NULL, &graph)) return 1;
        x = tensor(graph, 100 << 20), y = tensor(graph, 300 << 20);
        z = tensor(graph, 1 << 20), w = tensor(graph, 1 << 20);
        step(graph, GMLAKE_OFFLOAD_NONE, x);
        step(graph, x, z);
        step(graph, z, w); // x leaves beside this,
        step(graph, GMLAKE_OFFLOAD_NONE, y);
        step(graph, y, z);
        step(graph, z, w); // comes back beside this
        step(graph, x, z); // and is there again; no step takes longer
        if (gmlake_offload_graph_seal(graph)) return 1;
        if (gmlake_offload_planner_create(&desc, &planner)) return 1;
        job_desc.graph = graph;
        if (gmlake_offload_add_job(planner, &job_desc, &job)) return 1;
        if (gmlake_offload_replan(planner)) return 1;
        info.struct_bytes = 0;
        gmlake_offload_get_job_info(planner, job, &info);
        // 316669952 instead of 421527552 bytes
        printf("%zu instead of %zu bytes\n", info.planned_bytes, info.unplanned_bytes);
        gmlake_offload_planner_destroy(planner);
        gmlake_offload_graph_destroy(graph);
        return 0;
      }

WHAT IT DOES NOT DO
  It does not split tensors or operators. It does not find out what a program executes: the program
  adds its tensors and operators to a graph, or names them to a session. TENSILE does not reorder
  the operators of a job, and does not choose addresses: the backend allocates, and a lake
  (gmlake.h) behind it keeps memory from fragmenting. A session recomputes nothing.

MACROS, all for the implementation file only unless it says otherwise
  GMLAKE_OFFLOAD_IMPLEMENTATION  compiles the implementation
  GMLAKE_OFFLOAD_BACKEND_MOCK    every file that uses it: the mock
  GMLAKE_OFFLOAD_BACKEND_CUDA    every file that uses it: CUDA. Includes gmlake.h, whose
                                 implementation has to be in the same file, with its CUDA backend
  GMLAKE_OFFLOAD_LAKE            every file that uses it: memory of a lake for sessions. Includes
                                 gmlake.h
  GMLAKE_OFFLOAD_STATIC          every file: all functions static, each file has its own copy
  GMLAKE_OFFLOAD_DEF             every file: linkage of the functions, instead of extern
  GMLAKE_OFFLOAD_ASSERT(x)       instead of assert
  GMLAKE_OFFLOAD_MALLOC(bytes)   instead of malloc and free, where a description has no functions
  GMLAKE_OFFLOAD_FREE(ptr)       for host memory; both or neither

GLOSSARY
  tensor      bytes that operators read and write. A tensor moves as a whole
  operator    work on one device that takes a known time, reads some tensors and writes others. A
              tensor that is in both lists is updated in place
  job         a graph that is executed again and again; one execution is an iteration
  access      one operator's use of one tensor. The first access of an intermediate makes it
  gap         the time between two accesses of a tensor that follow each other. A persistent tensor
              has one gap more: from its last access in an iteration to the first in the next one
  slot        a stretch of time in which no operator begins or ends
  cyclic      schedule: the slots of an iteration; behind the last one comes the first one again,
              since plans are the same in each iteration
  link        the connection between the device and host memory. It has two directions, each of
              which carries one tensor at a time
  swap out    copy a tensor to the host, then free its memory on the device
  swap in     allocate memory on the device, then copy the tensor back
  drop        free the tensor's memory on the device without a copy, because the host has its bytes
              already, or because operators will make it again
  on demand   a swap that no plan asked for: the run needs the tensor, or the memory, now
  paper mode  flag GMLAKE_OFFLOAD_PAPER: do as the paper says, where the default is different
  MEMGRAPH    what TURNIP (gmlake_turnip.h) compiles a graph to. It has nodes, each of which runs
              once and uses fixed addresses, and edges, which are data or memory dependencies: a
              node begins when all nodes with an edge to it have ended
  node        of a memgraph: an operator, an offload (copy to the host) or a reload (copy back)
  arena       one allocation in which tensors have their places. There is one for each device and
              one for the host

THE GRAPH
  A tensor has a size, a device and a kind:
    PERSISTENT    exists between iterations: parameters, the state of an optimizer. The next
                  iteration reads what this one wrote.
    INPUT         exists between iterations too. No operator writes it; the caller does, between
                  iterations (gmlake_offload_run_locate).
    INTERMEDIATE  is made by the first operator that writes it, and is gone after its last access.
    OUTPUT        is made likewise, and kept until its iteration has ended and iteration_fn has
                  been called.
  An operator runs on one device and uses only tensors of that device. A transfer reads a tensor on
  one device and writes one of the same size on another device. Two operators that use the same
  tensor, at least one of them writing, run in the order in which they were added. With
  GMLAKE_OFFLOAD_UNORDERED the operator that makes an intermediate comes before all others that use
  it, wherever it was added. Two operators that share nothing are ordered by a tensor of 0 bytes,
  which the first one makes and the second one reads.
  gmlake_offload_graph_seal checks the graph and chooses an order of its operators that keeps these
  rules. Where they allow several operators next, it takes the one that was added first. A sealed
  graph does not change; any number of jobs, planners and runs may share it.
  Two kinds of planning use it. TENSILE keeps the chosen order, with one stream of operators for
  each job. TURNIP keeps only what is needed: an operator runs after those whose results it reads,
  and after those that use the same memory.

HOW TENSILE PLANS
  The method is that of Zhang et al., arXiv 2105.13336, and this text uses its words. A planner
  holds the jobs of one device.
  1. Times. Each operator has a mean time: at first the graph's, then an exponentially weighted mean
     of what gmlake_offload_observe reports. From these follow the times of all accesses on the
     cyclic schedule. By default each job has a cyclic schedule of its own and an equal share of the
     link, so that its plan holds whatever the other jobs do at the time. In paper mode all jobs are
     on one cyclic schedule and share one link (4.1).
  2. Peak analysis (the paper's Algorithm 2). A tree over the slots knows the bytes in each slot,
     and which slot has most. The candidates are the tensors that are in this slot but not used
     there.
  3. Swap scheduling (Algorithm 1). A candidate leaves as early as it can between its last access
     and the peak. It comes back as late as it can between the peak and its next access. Both copies
     need free time of the link in their direction. Parameters and optimizer state may leave at the
     end of one iteration and come back in the next. A job swaps at most swap_ratio_max of its
     bytes. The largest candidate is first.
     In paper mode one tensor is on the link at a time, in either direction (4.1). All candidates of
     a peak are scheduled before the next peak is looked for. Then later gaps of the same tensors
     get swaps, as far as the link is free. A tensor that comes back counts from the end of its copy
     (4.2). The ratio is a job's swapped tensors by all tensors of all jobs, and what operators
     update is not under it (Algorithm 1, line 27). A tensor leaves in one iteration and comes back
     in the next, or both in one: no copy crosses the end of an iteration, since the run waits there
     until all of them have ended (3.2).
     By default one candidate is scheduled for each peak; a tensor whose bytes the host has already
     is dropped without a copy; and swaps that do not lower the peak are taken back, which frees the
     link for others.
  4. The complete loop (Algorithm 3). Steps 2 and 3 repeat until the target is reached or no swap
     helps. If the jobs are then still above the target, tensors are recomputed: the candidate that
     saves most bytes for the time of its recomputation (MSPS) is dropped in its gap, and the
     operators that made it run again before its next access; then 2 and 3 repeat. A tensor is
     recomputed only if what its makers read is on the device at that time, unchanged, and if what
     else they write is still the same or no longer needed. In paper mode nothing is swapped once a
     tensor was recomputed (Algorithm 3), and no swap is taken back for it (4.4).
     By default overhead_max limits the time that this adds, an operator may also wait for a swap,
     and whatever costs the least time for its bytes is done. The planner makes several plans and
     keeps the best: with candidates in different orders, with targets below the best peak, and with
     random choices (the same ones in every run). A job of moderate size is planned first for no
     added time, then for .01, .02, .03, .05, .1, .2, .3, .5 and 1 of an iteration, as far as these
     are allowed, and last for overhead_max. A larger job is planned for no added time and for
     overhead_max only, and what it is spent for does not depend on how much may be spent. So a plan
     is not worse because more was allowed. The work for each job is limited. When it is spent, the
     best plan so far is taken. Of a job of at most 5,000 accesses, each plan that waits is
     simulated, which means that it is run on a clock, without a device, and is taken only if it
     takes no longer than it says.
  5. The plan is a list of events: (trigger, delay). An event happens `delay` after the end of the
     operator `trigger`. So the swaps of an iteration that runs late are late by the same time.
  By default a copy is planned at the lower speed that a direction has while both are busy; or,
  where there is one job only, at its direction's own speed, and then nothing is copied the other
  way at the same time.
  Two kinds of bytes are not saved: tensors that no operator uses, and tensors that the next access
  overwrites without reading, which come back before all the same.
  gmlake_offload_update plans again if a job came or left, or if times have changed by more than
  a tenth of the iteration. A run changes to a new plan when its next iteration begins.

  Where even paper mode is not the paper's, and why:
  - Jobs that are on one cyclic schedule begin together. The paper's do not (4.1), and it does not
    say how their analyses, of iterations of different lengths, are merged (4.5).
  - Of a tensor's gaps only the one over the peak is a candidate; another one would not lower it.
  - A candidate for which the link has no time is not tried again until the link gets free time.
  - A model's outputs count from the operator that makes them, not from the begin.
  - The paper has a process for each job and two threads for its swaps (3.2). Here one loop runs the
    operators and copies of all jobs.
  - Nothing predicts the times of operators that never ran (4.3): a job's first plan follows the
    times that its graph says, which may be guesses. The first iterations correct them by
    gmlake_offload_observe.

HOW A PLAN IS RUN
  A run executes the operators of its jobs, those of one job one after another, and the events of
  their plans, through the backend. It allocates intermediates before the operator that makes them
  and frees them after their last access. The copies of one direction run one after another.
  Before an operator starts, all that it uses is on the device. If a tensor is missing, the run
  fetches it (an on-demand swap in), however wrong the plan is. The tensors never take more than
  limit_bytes: operators and swaps in wait for tensors that are leaving. If that is not enough, the
  run swaps out others (an on-demand swap out): those whose next use is farthest away by the order
  and the times of their jobs, or with GMLAKE_OFFLOAD_LRU those that were not used for longest. A
  run without a plan works by on-demand swaps alone.
  With launch_ahead_max, operators of a job are launched while one of it runs, if all that they use
  is on the device and what they make has room. The device then need not wait for the host between
  two operators. Memory is still freed, and tensors still leave, only when the operator before has
  ended.
  An event is ignored if it comes too late or too early: a swap out of a tensor that was used since,
  a swap in of a tensor that is there. A tensor that an operator needs while it is copied out stays
  on the device until a later event. So the results are right with every plan; a bad plan only costs
  time.
  To follow jobs that come and go, and times that change, repeat: gmlake_offload_run_iterations with
  a small count, while observe_fn calls gmlake_offload_observe; then gmlake_offload_update. If that
  has planned again, call for each job gmlake_offload_take_plan and gmlake_offload_run_set_plan,
  destroy the plan before the last one, and call gmlake_offload_run_set_limit with the sum of the
  plans' peak_bytes.

HOW A SESSION WORKS
  A session is for a program that executes itself: nobody has written down what it does. The program
  gets its tensors from the session, and names before each operator (a step) what the operator reads
  and writes. It marks where its iterations begin, or lets the session find that. It launches its
  operators itself, on its own streams, and their tensors never change their addresses.
  1. Order. The session does everything in the order of the calls. A step's begin queues the copies
     and waits that the step needs; then it returns, and the host runs ahead of the device. Memory
     is given up behind the copy of what was in it, and taken behind a wait on the device. So
     limit_bytes holds at every moment, and the host waits only where an address that is still in
     use has to get another chunk.
  2. Iterations. In a program that marks none the session finds them. Steps are alike if they have
     the same key and name the same tensors, by number. When as many steps as lie between two that
     are alike have repeated those before them, at least 32, that many are an iteration from then
     on. So the third iteration is learnt, and not the first.
  3. Learning. The session notes which tensors each step names, and which are allocated and freed
     where. A tensor that is allocated in each iteration anew is the same one to it. Events on the
     device tell how long the steps take, and how fast the link is.
  4. Planning. When the events of one iteration are complete, the session makes a graph of it, in a
     thread of its own where the backend starts one, as CUDA's does: so no step of the program waits
     for a plan, and the last schedule serves meanwhile. Else, as on the mock, it plans at once, in
     the begin or mark in which the last events are read: equal programs are planned equally. In the
     graph is what the iteration did: in whole chunks, from the tensor's allocation to its end,
     beginning where the fewest bytes of tensors that come and go are there. TENSILE plans that
     graph for limit_bytes, without recomputation and without added time. Where that plan is still
     above the limit, the tensors whose next use is farthest away leave too, each right behind its
     last use. The session turns all that into a schedule: after which step what leaves, and what
     comes back. The copies back follow each other as late as they can, or later where there is no
     room before. That is one schedule of several: in others only the farthest next use counts,
     tensors come back as early as there is room, nothing leaves in vain, what the host has already
     leaves first, or somewhat more leaves than has to, which is room for what comes back. Each is
     simulated on a clock. Another one is taken if it is faster by one part in 33, or if it maps
     less and is not slower by that. Copies out that go on behind the last step count half: a
     program that waits for the device waits for them. When the next iteration is the same, the
     session plans once more, with its times. The schedule that it has is one of those that are
     compared then. In the first iterations the host pins and maps memory, and the device waits for
     it. So after four that were the same, and after nine, one more is timed: where a step was
     faster, that time counts. If all steps together are faster by one part in 16, the session plans
     again. Where the device waits for the program, a step's time has that in it; what it waits for
     the session has not.
  5. Sizes. What repeats is the order of steps and who makes what. Other sizes are no drift, and the
     schedule is for the largest that were seen: when all together have grown by one part in 16, a
     new one is made; when three iterations in a row have the same smaller ones, too. What it makes
     leave is copied to the host at once, and its memory goes when others want it. So where tensors
     are smaller less leaves, and less comes back. A tensor that is sometimes too small for the
     session, as a program decides, may be missing in a step or be one more. Where many are more,
     the next iteration is learnt.
  6. Drift. A step whose key is not the expected one, or that names other tensors, ends the schedule
     until a step names a tensor as the known iteration does: there it goes on, as in an evaluation,
     or where there is one batch more or less. If it goes back there, the larger sizes since are
     forgotten: an evaluation's are not those of training. An iteration that drifted is learnt if
     more than an eighth of its steps were not found, or if the next one has as many steps. Where
     two or more schedules in a row were in vain, as no iteration followed them, the next one is
     made only after as many iterations that were alike, less one; after 8 at most.
  7. On demand. What a step names is fetched if it is away, whatever was planned. Where memory is
     short those tensors leave first that the schedule lets go, then those whose next use, or whose
     end, is farthest away: by what is known of the iteration, else those that were not used for
     longest. Without a schedule, and behind a drift, what the next 256 steps are expected to use
     comes back ahead. What the host has already, and is used later than that, leaves for it; a
     16th of the limit is left free for what is allocated. Without a schedule what later steps use
     comes back, too, into room that is free: in training, while the backward pass frees memory.
  8. Chunks. A tensor that gets memory gets the chunks that its addresses had last, if they are
     free, and in the place of the others those that are free for longest. Where to map a chunk
     costs time (map_ns), a new tensor gets addresses whose chunks are free: those of the tensor
     that was made at the same place of the iteration before, if these map nothing, else others; and
     what the schedule let go gives up its memory for it. A tensor that comes back waits for its
     chunks half of the way to its use, if its copy then still has eight times the time it takes.
     What is mapped stays mapped, so an iteration that goes as planned calls the driver for few
     chunks, and one that moves nothing for none. A session takes up to about 32 times limit_bytes
     of addresses for it. The simulation of a schedule does the same, but does not wait, and takes
     map_ns for each chunk that is mapped.
  9. Regions. A program may execute some steps twice, to keep less in between, as activation
     checkpointing does; it tells the session which (gmlake_offload_session_region). Where its
     iterations are marked and limit_bytes is not 0, the session decides which of these regions are
     kept, executed once, when it times an iteration behind four that were alike; where that fails,
     as each has other tensors, behind ten. The iteration as learnt is changed on paper: the second
     steps of the kept ones are gone, and what they made lives from the first steps on. The regions
     of the smallest MSPS (bytes kept for longer, by the time saved) are kept first, of equal ones
     the last. How many: the session plans and simulates several such iterations, and takes the
     shortest if it saves one part in 50. Where sizes vary from one iteration to the next and
     nothing has to leave, or to keep some does not pay in the largest one, that is not decided
     ahead: each region is kept if there is room for it when it begins, with what the iteration as
     learnt still needs, by how much smaller tensors are this time. The first of several in a row is
     executed again; it tells that. Where tensors had to leave all the same, so many bytes more stay
     free, and an eighth less after each iteration from which none had to. Sizes count as varying
     until three iterations in a row had the same ones; after each change about twice as many, at
     most 17. A region can be kept if its second steps are first ones, in their order, write only
     what they make, and nothing of that outlives the iteration. The next two that are timed are
     compared with the one before: if neither takes less time, or one takes an eighth more, all
     regions are executed again. If an iteration then takes longer still, all has become slower, and
     it is decided once more. What is decided stands until the limit, or the bytes of an iteration,
     change by an eighth, or the number of its steps changes. Where bytes grow, what is kept stays
     if copies hold an iteration up for less than half of what is saved. What is kept changes at
     most 8 times in a session. Where memory runs out, nothing is kept from then on.
  The plan's link bound is the time that its copies take at least: an iteration takes no less than
  that, and no less than it takes without a session. gmlake_offload_session_get_stats tells both,
  and a third bound, of all plans (`least_ns`): what is not on the device in the step that needs the
  most memory has to leave between its last write and that step, and to come back before it is used.
  gmlake_offload_session_take_plan tells the whole plan: each step's time, wait and memory, each
  tensor's life, and each copy.
  A program may use memory only in a step that names it, or after pin. To find the places where it
  does not, GMLAKE_OFFLOAD_CHECKED unmaps what is away. The host then waits for each copy.

HOW A MEMGRAPH IS RUN
  A run may have jobs that are memgraphs (gmlake_offload_run_add_memgraph). It allocates the arenas
  of such a job, and from then on only starts its nodes. A node may start when all nodes before it
  have ended. Each device has four queues: operators, transfers, offloads and reloads. Of the nodes
  of a queue that may start, the one with the lowest number starts first, and one runs at a time, or
  of operators stream_count at once. No other order is kept, so a late copy delays only the nodes
  that need it. An iteration begins when the one before has ended.
  Three flags fix the order instead: a queue then waits for its next node. The results are the same
  in every order; bench/offload/README.md says what each costs. With GMLAKE_OFFLOAD_SIMULATED_ORDER
  each queue keeps the order in which the compiler's simulation of the iteration starts its nodes
  (`start` of gmlake_offload_node). With GMLAKE_OFFLOAD_FIXED_OPS operators and transfers keep the
  order of compilation, and copies start as by default: what the paper compares with, as we read it.
  With GMLAKE_OFFLOAD_FIXED_ORDER copies keep the order of compilation, too. Whoever wants one CUDA
  graph of an iteration can capture the nodes by `start`: bench/offload/captured.h does.
  With launch_ahead_max an operator may also start if it waits only for operators of its device that
  were launched already. It is launched behind them on the same stream. The device then need not
  wait for the host between two operators.

THE MOCK
  A backend with a clock of its own. Each operator takes its time, more or less if jitter is asked
  for; the random numbers follow from a seed. Operators that run at once on a device share it
  evenly, and so do transfers. A copy takes as long as the link's speed says; the speed is lower
  while both directions are busy. The tensors are in host memory, smaller by a divisor, and are
  really copied: half of their bytes when a copy begins, half when it ends. An operator fills each
  tensor that it writes with bytes that depend on every byte that it read. When it begins, it
  overwrites with other bytes what it writes but does not read; so does freed memory. A digest of
  all that operators wrote therefore shows every wrong order, missing copy and overlap.
  census.race_count counts operators and copies whose input changed while they ran.
  With launch_fn the operators are the caller's own: it computes what they write from what they read
  (the operator's `user` says what it is), and the same checks hold.
  A session's memory is a lake's here, too: one on the mock of gmlake.h, whose events are those of
  this mock, so that both have one clock. examples/mock_lake.h makes such a table.

CUDA
  The caller's functions launch the operators, on one stream for each job. They may also allocate
  and free device memory: with those of a lake (gmlake.h) it does not fragment. Copies go through
  pinned memory, on one stream for each direction. Pinning takes long, so pinned memory is kept and
  used again. The thread that runs a run is busy also while it waits. Set
  launch_ahead_max (to about 4): an operator that is launched only when the one before it has ended
  begins some microseconds late.
  A memgraph may use several devices (desc.devices). Each has streams of its own. A transfer is a
  copy from device to device. It takes the direct way where the devices reach each other: the
  backend enables that for memory of cuMemAlloc, and it stays enabled. Memory of alloc_fn has to be
  within the other devices' reach: a lake's is, with gmlake_desc.peer_devices.
  An integrated device (DGX Spark, Jetson) has the host's memory: what is offloaded there takes as
  much of it as before. So gmlake_offload_cuda_create answers UNSUPPORTED. With allow_integrated it
  does not, for programs that save by dropping and recomputing, or that put their copies elsewhere.

THREADS
  Only one thread at a time may use a graph that is not sealed, a planner, a run or a session. A
  session refuses a call while another one is under way. Any number of threads may read a sealed
  graph or a memgraph. The CUDA backend starts a thread for each plan of a session. It calls no
  function of the driver, only the session's `host`, and is joined when the plan is taken or given
  up, and by gmlake_offload_session_destroy: within some milliseconds.

ERRORS
  Each function that can fail returns a result. A call that fails changes nothing, unless its
  comment says otherwise. gmlake_offload_graph_get_error explains the last error of a graph. Nothing
  is printed and nothing exits.

COSTS
  Sealing: linear in accesses. Planning: 7,000,000 steps for each job (21,000,000 for one of at most
  5,000 accesses), or 80 for each access if that is more, of 7 to 20 ns; up to 200 more for each
  access in the first try; and the same once more where time may be added, up to five times for a
  job of moderate size. A simulation is four iterations of a run: of each better plan that waits, if
  the job has at most 5,000 accesses. A session plans without added time and makes 16 schedules.
  That takes about 1,700 steps of work, of 10 ns each, for each step of an iteration: of a Trainer
  with 16,000 steps .4 to .9 s of an H200's host. Where a thread plans, what a call does beside its
  own work is at most linear in an iteration. To decide which regions are kept takes up to ten plans
  of four schedules, and two for each time that what lies between them is halved. Running: linear in
  accesses and events; O(log n) for each node of a memgraph.

Licence: MIT, at the end of this file. */
#if !defined(GMLAKE_OFFLOAD_H_INCLUDED)
#define GMLAKE_OFFLOAD_H_INCLUDED

#if defined(GMLAKE_OFFLOAD_LAKE) || defined(GMLAKE_OFFLOAD_BACKEND_CUDA)
#include "gmlake.h"
#endif

#include <stddef.h>
#include <stdint.h>

#define GMLAKE_OFFLOAD_VERSION 200 /* major * 10000 + minor * 100 + patch */

#if !defined(GMLAKE_OFFLOAD_DEF)
#if defined(GMLAKE_OFFLOAD_STATIC) && defined(__GNUC__)
#define GMLAKE_OFFLOAD_DEF __attribute__((unused)) static
#elif defined(GMLAKE_OFFLOAD_STATIC)
#define GMLAKE_OFFLOAD_DEF static
#else
#define GMLAKE_OFFLOAD_DEF extern
#endif
#endif

#if defined(__cplusplus)
extern "C" {
#endif

#define GMLAKE_OFFLOAD_NONE UINT32_MAX /* no tensor, no operator */

typedef enum gmlake_offload_result {
  GMLAKE_OFFLOAD_OK = 0,
  GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT,
  GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY,
  GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY, /* one operator needs more than the limit */
  GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID,           /* no such tensor, operator or job */
  GMLAKE_OFFLOAD_ERROR_DUPLICATE_ID,         /* an operator reads, or writes, a tensor twice */
  GMLAKE_OFFLOAD_ERROR_SIZE_OVERFLOW,        /* the sum of all bytes, or of all times */
  GMLAKE_OFFLOAD_ERROR_WRONG_DEVICE,         /* an operator uses another device's tensor */
  GMLAKE_OFFLOAD_ERROR_READ_BEFORE_WRITE,    /* an intermediate is read before it is made */
  GMLAKE_OFFLOAD_ERROR_WRITTEN_INPUT,        /* an operator writes an INPUT */
  GMLAKE_OFFLOAD_ERROR_CYCLE,                /* operators wait for each other in a circle */
  GMLAKE_OFFLOAD_ERROR_SEALED,               /* the graph can no longer be changed */
  GMLAKE_OFFLOAD_ERROR_NOT_SEALED,           /* the graph is not sealed yet */
  GMLAKE_OFFLOAD_ERROR_WRONG_PLAN,           /* the plan was made for another graph */
  GMLAKE_OFFLOAD_ERROR_BACKEND,              /* a call of the backend failed */
  GMLAKE_OFFLOAD_ERROR_INCOMPLETE,           /* a memgraph lacks something that the graph has */
  GMLAKE_OFFLOAD_ERROR_BAD_PLACE,            /* places in it overlap, or pass their arena's end */
  GMLAKE_OFFLOAD_ERROR_RACE,                 /* nodes may write and use the same bytes at once */
  GMLAKE_OFFLOAD_ERROR_STALE_READ,           /* a node reads other bytes than it should */
  GMLAKE_OFFLOAD_ERROR_UNSUPPORTED /* the device is integrated: to offload frees nothing */
} gmlake_offload_result;

typedef struct gmlake_offload_graph gmlake_offload_graph;
typedef struct gmlake_offload_planner gmlake_offload_planner;
typedef struct gmlake_offload_plan gmlake_offload_plan;
typedef struct gmlake_offload_memgraph gmlake_offload_memgraph;
typedef struct gmlake_offload_run gmlake_offload_run;

/* Where this header gets host memory for its own data. Memory is aligned as malloc's is. Both
   functions or neither (then GMLAKE_OFFLOAD_MALLOC and GMLAKE_OFFLOAD_FREE are used). */
typedef struct gmlake_offload_host {
  void *(*malloc_fn)(void *user, size_t bytes);
  void (*free_fn)(void *user, void *ptr);
  void *user; /* first argument of both */
} gmlake_offload_host;

/* ---- Graphs ---------------------------------------------------------------------------------- */

typedef enum gmlake_offload_kind {
  GMLAKE_OFFLOAD_PERSISTENT = 0,
  GMLAKE_OFFLOAD_INPUT,
  GMLAKE_OFFLOAD_INTERMEDIATE,
  GMLAKE_OFFLOAD_OUTPUT
} gmlake_offload_kind;

#define GMLAKE_OFFLOAD_UNORDERED 1u /* graph: who makes a tensor comes before who uses it */
#define GMLAKE_OFFLOAD_IMPURE 1u   /* operator: run again, it writes other bytes (random numbers) */
#define GMLAKE_OFFLOAD_TRANSFER 2u /* operator, set by add_transfer: copies between devices */

typedef struct gmlake_offload_graph_desc {
  unsigned flags; /* GMLAKE_OFFLOAD_UNORDERED */
  gmlake_offload_host host;
} gmlake_offload_graph_desc;

typedef struct gmlake_offload_tensor_desc {
  size_t bytes; /* 0 is allowed */
  gmlake_offload_kind kind;
  uint32_t device; /* 65,535 at most; the graph then has all devices from 0 to this one */
} gmlake_offload_tensor_desc;

/* Names are cut to 31 characters; NULL is "". Where a function fills this in, `reads` and `writes`
   point into the graph. */
typedef struct gmlake_offload_op_desc {
  const char *name;
  uint32_t device;
  unsigned flags;   /* GMLAKE_OFFLOAD_IMPURE */
  uint64_t time_ns; /* how long it runs if it is alone on its device */
  const uint32_t *reads, *writes;
  size_t read_count, write_count;
  void *user; /* the caller's own, which a launch finds in its desc: what to run, for instance */
} gmlake_offload_op_desc;

typedef struct gmlake_offload_graph_info {
  size_t tensor_count, op_count, access_count, dependency_count;
  size_t device_count;      /* the largest number of a device, + 1 */
  size_t tensor_bytes;      /* all tensors */
  size_t persistent_bytes;  /* PERSISTENT and INPUT */
  size_t peak_bytes;        /* most at once, in op_order with nothing moved; all devices together */
  size_t op_bytes_max;      /* what the largest operator uses: a limit may not be lower */
  uint64_t time_ns;         /* all operators */
  const uint32_t *op_order; /* op_count operators, in the order in which they run */
} gmlake_offload_graph_info;

/* What one device needs if nothing is moved. */
typedef struct gmlake_offload_device_info {
  size_t struct_bytes; /* set by the caller, or 0: this header's size; returned: bytes filled in */
  size_t peak_bytes;   /* the most at once while the operators run in op_order */
  size_t op_bytes_max; /* what the largest operator uses on it */
  uint64_t time_ns;    /* of its operators, without transfers */
} gmlake_offload_device_info;

typedef struct gmlake_offload_error_info {
  gmlake_offload_result result;
  uint32_t op, tensor; /* the operator and the tensor that are wrong, or GMLAKE_OFFLOAD_NONE */
  char text[120];
} gmlake_offload_error_info;

/* Makes an empty graph. desc may be NULL.
   Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY; *out_graph is then NULL. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_create(
    const gmlake_offload_graph_desc *desc, gmlake_offload_graph **out_graph);

/* pre: no planner, plan, run or memgraph uses the graph. NULL is fine. */
GMLAKE_OFFLOAD_DEF void gmlake_offload_graph_destroy(gmlake_offload_graph *graph);

/* Adds a tensor; ids count up from 0.
   Errors: INVALID_ARGUMENT, SIZE_OVERFLOW, SEALED, OUT_OF_HOST_MEMORY. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_add_tensor(
    gmlake_offload_graph *graph, const gmlake_offload_tensor_desc *desc, uint32_t *out_tensor);

/* Adds an operator; ids count up from 0.
   Errors: INVALID_ARGUMENT, UNKNOWN_ID, DUPLICATE_ID, WRONG_DEVICE, WRITTEN_INPUT, SIZE_OVERFLOW,
   SEALED, OUT_OF_HOST_MEMORY. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_add_op(gmlake_offload_graph *graph,
                                                               const gmlake_offload_op_desc *desc,
                                                               uint32_t *out_op);

/* Adds a copy of tensor `from` to tensor `to` of another device: an operator of from's device with
   the flag GMLAKE_OFFLOAD_TRANSFER. Errors: as add_op; INVALID_ARGUMENT where the devices are the
   same or the bytes differ. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_add_transfer(gmlake_offload_graph *graph,
                                                                     uint32_t from, uint32_t to,
                                                                     uint64_t time_ns,
                                                                     uint32_t *out_op);

/* Checks the graph and chooses the order of its operators. From then on it can be used and no
   longer be changed. Errors, after which it can be changed further: READ_BEFORE_WRITE, CYCLE,
   OUT_OF_HOST_MEMORY, INVALID_ARGUMENT (it has no operator). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_seal(gmlake_offload_graph *graph);

/* Explains the last call for this graph that failed. Errors: INVALID_ARGUMENT. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_get_error(
    const gmlake_offload_graph *graph, gmlake_offload_error_info *out_info);

/* Errors: INVALID_ARGUMENT, NOT_SEALED. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_get_info(
    const gmlake_offload_graph *graph, gmlake_offload_graph_info *out_info);

/* Errors: INVALID_ARGUMENT, NOT_SEALED, UNKNOWN_ID (the graph names no such device). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_get_device_info(
    const gmlake_offload_graph *graph, uint32_t device, gmlake_offload_device_info *out_info);

/* Errors of both: INVALID_ARGUMENT, UNKNOWN_ID. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_get_tensor(
    const gmlake_offload_graph *graph, uint32_t tensor, gmlake_offload_tensor_desc *out_desc);
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_get_op(const gmlake_offload_graph *graph,
                                                               uint32_t op,
                                                               gmlake_offload_op_desc *out_desc);

/* ---- Plans ----------------------------------------------------------------------------------- */

typedef enum gmlake_offload_action {
  GMLAKE_OFFLOAD_SWAP_OUT = 0,
  GMLAKE_OFFLOAD_SWAP_IN,
  GMLAKE_OFFLOAD_DROP,
  GMLAKE_OFFLOAD_RECOMPUTE
} gmlake_offload_action;

/* Happens in every iteration, delay_ns after operator `trigger` has ended. */
typedef struct gmlake_offload_event {
  gmlake_offload_action action;
  uint32_t tensor;
  uint32_t trigger;  /* an operator; GMLAKE_OFFLOAD_NONE: the begin of the iteration */
  uint64_t delay_ns; /* RECOMPUTE: 0; the operator `op` then runs next */
  uint32_t op;       /* RECOMPUTE: what runs again. Else: the tensor's last use before its gap */
} gmlake_offload_event;

typedef struct gmlake_offload_plan_info {
  size_t event_count;
  const gmlake_offload_event *events; /* by trigger, then by delay; valid as long as the plan */
  size_t peak_bytes;                  /* as planned, for this job; in paper mode, for all jobs */
  size_t out_bytes, in_bytes;         /* copied to the host and back, in an iteration */
  uint64_t time_ns, added_ns;         /* an iteration; of it, recomputation and waits */
} gmlake_offload_plan_info;

/* Makes a plan for one graph from the caller's own events, which may be in any order: for baselines
   and experiments. To make a tensor again it needs one RECOMPUTE event for each operator that wrote
   the tensor before the trigger, in the order in which they wrote it. None of these operators may
   be IMPURE. What else they read must not have been written since, and must still be needed later.
   What else they write must not be persistent, and must not have been written since, unless it is
   no longer needed. In the plan's info, peak_bytes and time_ns are those of the graph.
   pre: the graph outlives the plan.
   Errors: INVALID_ARGUMENT, UNKNOWN_ID, NOT_SEALED, OUT_OF_HOST_MEMORY. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_plan_create(
    const gmlake_offload_graph *graph, const gmlake_offload_event *events, size_t event_count,
    const gmlake_offload_host *host, gmlake_offload_plan **out_plan);

/* NULL is fine. pre: no run uses it. */
GMLAKE_OFFLOAD_DEF void gmlake_offload_plan_destroy(gmlake_offload_plan *plan);

/* Errors: INVALID_ARGUMENT. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_plan_get_info(const gmlake_offload_plan *plan, gmlake_offload_plan_info *out_info);

/* ---- The planner: TENSILE for the jobs of one device ----------------------------------------- */

#define GMLAKE_OFFLOAD_PAPER 1u /* planner, memgraph: as the paper says */

/* All zero: an H200's link; saves as much memory as is possible without adding time. */
typedef struct gmlake_offload_planner_desc {
  unsigned flags;
  size_t target_bytes;      /* of all jobs together: lower is no better; 0: as low as possible */
  double out_bytes_per_s;   /* link to the host; 0: 55e9 */
  double in_bytes_per_s;    /* from the host; 0: 55e9 */
  double both_bytes_per_s;  /* both at once; 0: 101e9 */
  double overhead_max;      /* waits and recomputation may add this part of an iteration's time to
                               it; 0: none. In paper mode there is no limit for recomputation, but
                               it is done only while the peak is above target_bytes */
  double smoothing;         /* weight of a newly observed time in the mean, up to 1; 0: .2 */
  size_t try_count_max;     /* plans tried for each job and limit of time, about; 0: up to 120,
                               fewer for larger graphs */
  size_t tensor_bytes_min;  /* smaller tensors stay on the device; 0: 1 MiB, or 1/4096 of a job's
                               peak if that is less; in paper mode 1 */
  uint64_t copy_ns;         /* time of each copy besides that of its bytes; 0: 10 us */
  gmlake_offload_host host; /* for the plans, too */
} gmlake_offload_planner_desc;

typedef struct gmlake_offload_job_desc {
  const gmlake_offload_graph *graph; /* sealed, all on one device; outlives the job */
  double swap_ratio_max;             /* part of its tensors' bytes that may be swapped; 0: all */
} gmlake_offload_job_desc;

typedef struct gmlake_offload_job_info {
  size_t struct_bytes; /* set by the caller, or 0: this header's size; returned: bytes filled in */
  size_t unplanned_bytes, planned_bytes; /* the job's peak if nothing moves, and by its plan */
  uint64_t time_ns;                      /* an iteration by the present means, if nothing moves */
  uint64_t plan_count;                   /* plans made for this job so far */
  double drift;                          /* how far times changed since the last, by an iteration */
} gmlake_offload_job_info;

/* desc may be NULL, as if all zero. Errors: INVALID_ARGUMENT (out_planner NULL, negative or not
   finite figures, unknown flags), OUT_OF_HOST_MEMORY; *out_planner is then NULL. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_planner_create(
    const gmlake_offload_planner_desc *desc, gmlake_offload_planner **out_planner);

/* NULL is fine. Plans that were taken stay valid. */
GMLAKE_OFFLOAD_DEF void gmlake_offload_planner_destroy(gmlake_offload_planner *planner);

/* Adds a job. *out_job is its number: the lowest that no other job has. No plan is made yet.
   Errors: INVALID_ARGUMENT, NOT_SEALED, WRONG_DEVICE (more than one), SIZE_OVERFLOW (all jobs'
   tensors together), OUT_OF_HOST_MEMORY. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_add_job(gmlake_offload_planner *planner,
                                                                const gmlake_offload_job_desc *desc,
                                                                uint32_t *out_job);

/* Removes a job. Errors: INVALID_ARGUMENT, UNKNOWN_ID. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_remove_job(gmlake_offload_planner *planner,
                                                                   uint32_t job);

/* Reports how long an operator ran this time, which changes its mean.
   Errors: INVALID_ARGUMENT (also for a time of years), UNKNOWN_ID. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_observe(gmlake_offload_planner *planner,
                                                                uint32_t job, uint32_t op,
                                                                uint64_t time_ns);

/* Makes new plans for all jobs. Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY, after which the
   former plans stay. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_replan(gmlake_offload_planner *planner);

/* As gmlake_offload_replan, but only if jobs came or left, or times changed by more than
   a tenth of an iteration. *out_replanned (may be NULL) says whether it has planned.
   Errors: as replan. Cost: linear in operators if nothing changed. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_update(gmlake_offload_planner *planner,
                                                               int *out_replanned);

/* Copies the job's present plan; the caller destroys the copy.
   Errors: INVALID_ARGUMENT, UNKNOWN_ID (also if the job has no plan yet), OUT_OF_HOST_MEMORY. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_take_plan(gmlake_offload_planner *planner,
                                                                  uint32_t job,
                                                                  gmlake_offload_plan **out_plan);

/* Errors: INVALID_ARGUMENT, UNKNOWN_ID. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_get_job_info(
    const gmlake_offload_planner *planner, uint32_t job, gmlake_offload_job_info *out_info);

/* ---- Backends -------------------------------------------------------------------------------- */

typedef struct gmlake_offload_copy {
  uint32_t device;
  int to_host; /* 1: from `device` memory to `host` memory; 0: the other way */
  void *device_ptr, *host_ptr;
  size_t bytes;
  int is_divided; /* a session maps memory meanwhile, which waits less if a copy to the host has
                     gaps. What is at host_ptr is pinned, and undefined until the copy has ended */
} gmlake_offload_copy;

/* `reads` and `writes` here are pointers, in the order of desc.reads and desc.writes. */
typedef struct gmlake_offload_launch {
  const gmlake_offload_graph *graph;
  uint32_t job, op;
  uint32_t stream; /* of the job on that device. A run uses stream 0 only. A memgraph uses the
                      streams below stream_count for operators, and that one for transfers */
  uint64_t iteration;
  int is_again; /* it ran in this iteration already */
  gmlake_offload_op_desc desc;
  void *const *reads, *const *writes;
} gmlake_offload_launch;

/* Streams, events, copies, operators and memory of devices: what runs and sessions call.
   `user` is the first argument of every function. Functions return 0, or another value if they
   fail; then they have done nothing. All but stream_sync, fill and idle return at once. */
typedef struct gmlake_offload_backend {
  size_t struct_bytes;  /* sizeof(gmlake_offload_backend) */
  unsigned abi_version; /* 2 */
  void *user;
  void *out_stream, *in_stream; /* of device 0, for copies to the host and back; a session's own */
  /* Pinned memory. A session whose sizes change gives back and asks again: keep what was pinned. */
  int (*host_alloc)(void *user, size_t bytes, void **out_ptr);
  void (*host_free)(void *user, void *ptr, size_t bytes); /* pre: no copy uses it */
  int (*copy)(void *user, const gmlake_offload_copy *copy, void *stream);
  int (*event_create)(void *user, uint32_t device, int is_timed, void **out_event);
  void (*event_destroy)(void *user, void *event);
  int (*event_record)(void *user, void *event, void *stream); /* again: replaces the former one */
  int (*stream_wait)(void *user, void *stream, void *event);  /* on the device */
  int (*event_done)(void *user, void *event, int *out_done);
  /* The time between two timed events. pre: both are done. */
  int (*event_ns)(void *user, void *from, void *to, uint64_t *out_ns);
  int (*stream_sync)(void *user, void *stream); /* the host waits */
  /* What follows is for runs. A table for sessions alone may leave it NULL. */
  /* Stream `number` of a device, the same one whenever it is asked for. Of device 0 numbers 0 and 1
     are out_stream and in_stream. */
  int (*stream)(void *user, uint32_t device, uint32_t number, void **out_stream);
  /* If device memory is refused, a run moves tensors out, as it does at its limit. What is freed
     is used by no work that was queued. */
  int (*device_alloc)(void *user, uint32_t device, size_t bytes, void **out_ptr);
  void (*device_free)(void *user, uint32_t device, void *ptr, size_t bytes);
  /* Writes the first contents of the device's PERSISTENT or INPUT tensor, before the first
     iteration. */
  int (*fill)(void *user, uint32_t device, uint32_t job, uint32_t tensor, void *ptr, size_t bytes,
              int on_host);
  int (*launch)(void *user, const gmlake_offload_launch *launch, void *stream);
  int (*now)(void *user, uint64_t *out_ns);
  /* May be NULL. Waits until something that was queued ends, at most until that time. May return
     earlier; fails if nothing is under way that could end. */
  int (*idle)(void *user, uint64_t until_ns);
  size_t divisor; /* 0 or 1, except in the mock, where `divisor` bytes of a tensor are one byte of
                     memory: an allocation has at least bytes / divisor bytes, and a tensor whose
                     place in an arena is at `offset` begins at offset / divisor */
  /* May be NULL. A session plans in a thread that this starts: it calls run(arg) there; thread_join
     waits until that has returned. Without it, or where it fails, a session plans at once, in the
     caller's thread. */
  int (*thread_start)(void *user, void (*run)(void *arg), void *arg, void **out_thread);
  void (*thread_join)(void *user, void *thread);
} gmlake_offload_backend;

#if defined(GMLAKE_OFFLOAD_BACKEND_MOCK)
/* All zero: an H200's link, tensors of their full size. */
typedef struct gmlake_offload_mock_desc {
  size_t device_bytes;      /* allocations on devices are refused above this sum; 0: never */
  size_t divisor;           /* above 1: a tensor has bytes / divisor real bytes, at least 16 */
  double out_bytes_per_s;   /* 0: 55e9 */
  double in_bytes_per_s;    /* 0: 55e9 */
  double both_bytes_per_s;  /* 0: 101e9 */
  uint64_t copy_ns;         /* time of each copy besides that of its bytes */
  double jitter;            /* an operator takes 1 - jitter to 1 + jitter of its time; below 1 */
  double copy_jitter;       /* the same for copies */
  uint64_t seed;            /* of the random numbers for both */
  int bookkeeping_only;     /* sessions: copies take their time and touch no memory */
  gmlake_offload_host host; /* for the tensors, too */
  /* The caller's own operators and first contents, as in gmlake_offload_cuda_desc. They read and
     write host memory (with a divisor, that much less of it), and `stream` is NULL. launch_fn is
     called when an operator ends, and does its work at once. If it fails, the run does. The mock
     itself copies transfers. NULL: the mock makes up the bytes. */
  int (*launch_fn)(void *user, const gmlake_offload_launch *launch, void *stream);
  int (*fill_fn)(void *user, uint32_t job, uint32_t tensor, void *ptr, size_t bytes, int on_host,
                 void *stream);
  void *user; /* the first argument of both */
} gmlake_offload_mock_desc;

typedef struct gmlake_offload_mock_census {
  uint64_t call_count; /* calls of the backend's functions so far, without `now` and `stream` */
  uint64_t digest;     /* of all that operators wrote when they ran for the first time in an
                          iteration, in whatever order they ran */
  uint64_t race_count; /* operators and copies whose input changed while they ran */
  uint64_t launch_count;
  uint64_t rerun_count; /* launches of operators that had run in the same iteration already */
  size_t device_bytes, host_bytes, device_bytes_peak, host_bytes_peak;
  uint64_t out_busy_ns, in_busy_ns; /* time in which a copy of that direction was under way */
  size_t event_count;               /* created and not destroyed */
} gmlake_offload_mock_census;

/* Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY; *out_backend is then NULL. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_mock_create(
    const gmlake_offload_mock_desc *desc, gmlake_offload_backend **out_backend);
GMLAKE_OFFLOAD_DEF void gmlake_offload_mock_destroy(gmlake_offload_backend *backend);
GMLAKE_OFFLOAD_DEF void gmlake_offload_mock_get_census(const gmlake_offload_backend *backend,
                                                       gmlake_offload_mock_census *out_census);

/* Makes the call of that number fail, as census.call_count counts calls; 0: none fails. */
GMLAKE_OFFLOAD_DEF void gmlake_offload_mock_fail_at(gmlake_offload_backend *backend,
                                                    uint64_t call_number);
#endif

#if defined(GMLAKE_OFFLOAD_BACKEND_CUDA)
/* The functions return 0, or another value if they fail. While they are called the device's primary
   context is current. `stream` is a CUstream of that device. */
typedef struct gmlake_offload_cuda_desc {
  int device;        /* its number in the driver; graphs may use another number */
  size_t host_bytes; /* pinned at create; more is pinned when needed, at least 16 MiB and a quarter
                        of what is there. On Linux in huge pages, which up to 16 threads make */
  /* Device memory. Both or neither: then cuMemAlloc and cuMemFree are used, which wait for the
     device. Every stream may use memory of alloc_fn as soon as it returns. When free_fn is called,
     nothing uses the memory any more. `stream` is always the same one of the device, and is
     destroyed with the backend. With a lake: gmlake_alloc and gmlake_free. */
  int (*alloc_fn)(void *user, size_t bytes, void *stream, void **out_ptr);
  void (*free_fn)(void *user, void *ptr, size_t bytes, void *stream);
  /* Queues the operator on the stream and returns without waiting for it. NULL: there are no runs,
     only sessions. */
  int (*launch_fn)(void *user, const gmlake_offload_launch *launch, void *stream);
  /* Queues what writes the first contents of a tensor, in device memory or in pinned memory;
     kernels can use both pointers. NULL: zeros. */
  int (*fill_fn)(void *user, uint32_t job, uint32_t tensor, void *ptr, size_t bytes, int on_host,
                 void *stream);
  void *user; /* the first argument of these functions */
  gmlake_offload_host host;
  /* For memgraphs of several devices: device d of a graph is number devices[d] of the driver;
     `device` is ignored. The backend copies transfers itself, from device to device, and launch_fn
     gets operators only. NULL: one device, and launch_fn launches transfers too. */
  const int *devices;
  uint32_t device_count;    /* of `devices`, or 0 */
  void *const *alloc_users; /* by device: the first argument of alloc_fn and free_fn; NULL: user */
  size_t host_bytes_max;    /* of pinned memory. 0: half of what the host has available when the
                               backend is created (Linux: MemAvailable, or what the limit of a
                               container leaves, if that is less), or host_bytes if that is more;
                               elsewhere no limit */
  int allow_integrated;     /* 1: also where the memory is the host's, and offloading frees none */
} gmlake_offload_cuda_desc;

/* Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY, BACKEND (there is no driver, or no such device, or
   a call of the driver failed), UNSUPPORTED (a device is integrated: see CUDA); *out_backend is
   then NULL. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_cuda_create(
    const gmlake_offload_cuda_desc *desc, gmlake_offload_backend **out_backend);
/* pre: no run and no session uses the backend. Waits until all its work has ended. NULL is fine. */
GMLAKE_OFFLOAD_DEF void gmlake_offload_cuda_destroy(gmlake_offload_backend *backend);
#endif

/* ---- Memgraphs ------------------------------------------------------------------------------- */

#define GMLAKE_OFFLOAD_NOWHERE SIZE_MAX /* an offset: the tensor is not in this arena */

typedef enum gmlake_offload_node_kind {
  GMLAKE_OFFLOAD_NODE_OP = 0, /* an operator, also a transfer */
  GMLAKE_OFFLOAD_NODE_OFFLOAD,
  GMLAKE_OFFLOAD_NODE_RELOAD
} gmlake_offload_node_kind;

typedef struct gmlake_offload_memgraph_info {
  size_t struct_bytes; /* set by the caller, or 0: this header's size; returned: bytes filled in */
  size_t node_count, op_count, offload_count, reload_count;
  size_t edge_count, memory_edge_count; /* all dependencies; memory dependencies */
  size_t offload_bytes, reload_bytes;   /* copied in an iteration */
  size_t device_count, device_bytes;    /* devices; bytes used of all their arenas together */
  size_t home_bytes;                    /* tensors with a home on their device */
  size_t host_bytes;                    /* of the host's arena */
  size_t align_bytes;
  uint64_t alloc_ahead_ns, reload_ahead_ns; /* as given, or the best that was tried */
  uint64_t time_ns;                         /* an iteration, as simulated */
} gmlake_offload_memgraph_info;

/* A node. Its pointers are valid as long as the memgraph. The numbers of nodes are an order in
   which they may run. */
typedef struct gmlake_offload_node {
  gmlake_offload_node_kind kind;
  uint32_t device, op, tensor;       /* an operator has no tensor, a copy no op (NONE) */
  size_t device_offset, host_offset; /* copies: the tensor's places in the two arenas */
  const size_t *read_offsets;        /* operators: the places of the tensors that it reads, */
  const size_t *write_offsets;       /* and of those that it writes */
  const uint32_t *before;            /* the nodes that must end before it begins */
  const unsigned char *memory;       /* for each: 1: a memory dependency, 0: a data dependency */
  size_t before_count;
  uint32_t start; /* its place in the order in which the compiler's simulation starts nodes, which
                     is another one in which they may run */
} gmlake_offload_node;

/* Where a tensor is when an iteration begins, or when it ends: on the device, on the host, or both.
   PERSISTENT and INPUT tensors are at the same places both times. An OUTPUT that an operator writes
   has a place at the end only. */
typedef struct gmlake_offload_place {
  size_t device_offset, host_offset; /* or GMLAKE_OFFLOAD_NOWHERE */
} gmlake_offload_place;

/* NULL is fine. pre: no job runs it. */
GMLAKE_OFFLOAD_DEF void gmlake_offload_memgraph_destroy(gmlake_offload_memgraph *memgraph);

/* Errors of these: INVALID_ARGUMENT; UNKNOWN_ID. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_memgraph_get_info(
    const gmlake_offload_memgraph *memgraph, gmlake_offload_memgraph_info *out_info);
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_memgraph_get_node(
    const gmlake_offload_memgraph *memgraph, uint32_t node, gmlake_offload_node *out_node);
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_memgraph_get_place(const gmlake_offload_memgraph *memgraph, uint32_t tensor,
                                  gmlake_offload_place *out_begin, gmlake_offload_place *out_end);

/* ---- Runs ------------------------------------------------------------------------------------ */

#define GMLAKE_OFFLOAD_LRU 2u /* run: on-demand swaps out take what was not used for longest */
/* Of a run, one at most, for its memgraphs: see HOW A MEMGRAPH IS RUN. */
#define GMLAKE_OFFLOAD_FIXED_ORDER 4u      /* each queue runs in the order of compilation; */
#define GMLAKE_OFFLOAD_FIXED_OPS 8u        /* those of operators and transfers do; */
#define GMLAKE_OFFLOAD_SIMULATED_ORDER 16u /* each runs in the order of `start` of its nodes */

typedef struct gmlake_offload_run_desc {
  const gmlake_offload_backend *backend; /* outlives the run */
  unsigned flags;                        /* those above */
  size_t limit_bytes;                    /* of all tensors on the device; 0: only the backend's */
  uint32_t launch_ahead_max;             /* operators of a job that may be launched while one of it
                                            runs; 0: none; else stream_count must be 0 or 1 */
  gmlake_offload_host host;
  /* Called after each operator, with the time that it took; may be NULL. observe_fn and
     iteration_fn may call all functions for runs except run_iterations and run_destroy. */
  void (*observe_fn)(void *user, uint32_t job, uint32_t op, uint64_t time_ns);
  /* Called after each iteration, while its OUTPUTs still exist; may be NULL. */
  void (*iteration_fn)(void *user, uint32_t job, uint64_t iteration);
  void *user;
  /* Of memgraphs: */
  uint32_t stream_count; /* operators at once on each device, up to 1,024; 0: 1 */
} gmlake_offload_run_desc;

typedef struct gmlake_offload_run_stats {
  size_t struct_bytes; /* set by the caller, or 0: this header's size; returned: bytes filled in */
  uint64_t time_ns;    /* spent in gmlake_offload_run_iterations, by the backend's clock */
  uint64_t stall_ns;   /* the sum over jobs, of a memgraph over its devices, of the time without an
                        operator */
  size_t device_bytes, device_bytes_peak, host_bytes, host_bytes_peak;
  size_t out_bytes, in_bytes;   /* copied so far */
  uint64_t out_count, in_count; /* copies so far */
  uint64_t on_demand_out_count, on_demand_in_count, recompute_count;
  uint64_t void_count;      /* events that were ignored: too late, too early or not needed */
  uint64_t iteration_count; /* of all jobs */
} gmlake_offload_run_stats;

/* Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY; *out_run is then NULL. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_run_create(const gmlake_offload_run_desc *desc, gmlake_offload_run **out_run);

/* Waits until all work has ended, and frees all tensors. NULL is fine. */
GMLAKE_OFFLOAD_DEF void gmlake_offload_run_destroy(gmlake_offload_run *run);

/* Adds a job, which runs from the next call of run_iterations on. Allocates and fills its
   persistent tensors: on the host if the plan brings them back before they leave, or if the device
   has no room left; else on the device. *out_job is the lowest number that no other job has.
   A planner gives numbers by the same rule: jobs that are added to both, and removed from both when
   they are gone, have the same number in both. The graph must exist until the job is gone. The plan
   (may be NULL) must exist until then, or until the job has begun an iteration by another plan.
   Errors: INVALID_ARGUMENT, NOT_SEALED, WRONG_PLAN, WRONG_DEVICE, SIZE_OVERFLOW,
   OUT_OF_HOST_MEMORY, BACKEND. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_run_add_job(gmlake_offload_run *run, const gmlake_offload_graph *graph,
                           const gmlake_offload_plan *plan, uint32_t *out_job);

/* Adds a job that runs a memgraph: allocates an arena on each device and one on the host, with the
   backend's functions, and fills the tensors that exist when an iteration begins. The arenas stay
   as long as the job, so what else runs gets the rest of limit_bytes. Several jobs may share a
   memgraph, which must exist until they are gone. observe_fn is not called for it.
   Errors: INVALID_ARGUMENT (also if the memgraph's align_bytes is below 16 times the backend's
   divisor), OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY (also if it would pass limit_bytes),
   BACKEND. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_add_memgraph(
    gmlake_offload_run *run, const gmlake_offload_memgraph *memgraph, uint32_t *out_job);

/* Stops a job, after its present iteration if one is under way, else at once. Then its copies have
   ended and its tensors are freed, and another job may get its number. Errors: INVALID_ARGUMENT,
   UNKNOWN_ID; BACKEND, after which the run can only be destroyed. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_remove_job(gmlake_offload_run *run,
                                                                       uint32_t job);

/* Makes the job run by this plan from its next iteration on; NULL: by no plan.
   Errors: INVALID_ARGUMENT, UNKNOWN_ID, WRONG_PLAN (also for a memgraph). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_run_set_plan(gmlake_offload_run *run, uint32_t job, const gmlake_offload_plan *plan);

/* Runs until each job has completed iteration_count more iterations. A job that has waits for the
   others. Errors: INVALID_ARGUMENT. OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, BACKEND, WRONG_PLAN
   (an operator reads a tensor that the plan dropped and did not make again): after these the run
   can only be destroyed. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_iterations(gmlake_offload_run *run,
                                                                       uint64_t iteration_count);

/* Sets the limit for all tensors on the device; 0: only the backend's. If they take more already,
   tensors leave when an operator next needs memory. Errors: INVALID_ARGUMENT. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_set_limit(gmlake_offload_run *run,
                                                                      size_t limit_bytes);

/* Tells where the bytes of a tensor are now, on the device, the host, or both; a memgraph's, when
   no iteration of it is under way. The other pointer is NULL. The pointers are valid until
   iterations run again; in a callback, until it returns. Outside of callbacks it waits if the
   tensor is being copied. The caller may then write a PERSISTENT or INPUT tensor: in both places,
   if it got both.
   Errors: INVALID_ARGUMENT, UNKNOWN_ID, BACKEND. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_locate(gmlake_offload_run *run,
                                                                   uint32_t job, uint32_t tensor,
                                                                   void **out_device,
                                                                   void **out_host);

/* Errors: INVALID_ARGUMENT. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_run_get_stats(const gmlake_offload_run *run, gmlake_offload_run_stats *out_stats);

/* Sets the peaks to the present values. Errors: INVALID_ARGUMENT. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_reset_peaks(gmlake_offload_run *run);

/* ---- Sessions: programs that run themselves -------------------------------------------------- */

/* Memory at addresses that stay. commit, discard and release return at once: they take effect where
   they are queued. They return 0; 1: there is no memory now, and others may leave for it; another
   value: they failed, and it comes with the error. What fails has changed nothing.
   gmlake_offload_lake_memory fills one in, whose values above 2 are the driver's. */
typedef struct gmlake_offload_memory {
  size_t struct_bytes;  /* sizeof(gmlake_offload_memory) */
  unsigned abi_version; /* 3 */
  void *user;           /* the first argument of every function */
  size_t chunk_bytes;   /* a power of two: ranges are whole chunks */
  uint64_t map_ns;      /* that the host needs for a chunk which the range did not have last */
  /* Takes addresses without memory; out_range names them from then on. */
  int (*reserve)(void *user, size_t bytes, void **out_range, void **out_ptr);
  /* pre: the range has no memory. */
  void (*release)(void *user, void *range, void *stream);
  /* Gives the range's first bytes, whole chunks, memory for work that is queued on the stream from
     now on. That work waits on the device for what last used the memory elsewhere. Chunks have
     numbers from 0 on. `chunks` has one for each chunk of these bytes: in, of the one that is
     wanted, or UINT32_MAX; out, of the one that is there. To want what the range had last costs
     nothing, if nobody else has it. */
  int (*commit)(void *user, void *range, size_t bytes, uint32_t *chunks, void *stream);
  /* Takes it away: as many bytes as commit gave. pre: all their uses precede this call on the
     stream. */
  int (*discard)(void *user, void *range, size_t bytes, void *stream);
  /* May be NULL; for checking. Makes every access to a range without memory an error. pre: no work
     is under way on the stream that the last discard named. */
  int (*expel)(void *user);
} gmlake_offload_memory;

#define GMLAKE_OFFLOAD_CHECKED 2u /* session: unmaps what is away; the host waits each time */

typedef struct gmlake_offload_session gmlake_offload_session;

typedef struct gmlake_offload_session_desc {
  const gmlake_offload_backend *backend; /* both outlive the session */
  const gmlake_offload_memory *memory;
  unsigned flags;          /* GMLAKE_OFFLOAD_CHECKED */
  size_t limit_bytes;      /* of all tensors on the device, in whole chunks; 0: only the memory's */
  size_t tensor_bytes_min; /* smaller tensors never leave; 0: 1 MiB */
  size_t host_bytes_max;   /* of pinned memory, which grows to what was away at once, in pieces of a
                              chunk or 2 MiB. 0: no limit but the backend's */
  double out_bytes_per_s, in_bytes_per_s; /* the link; 0: as measured, at first an H200's */
  double both_bytes_per_s;                /* both at once; 0: 101/110 of the sum */
  size_t try_count_max;                   /* of the planner */
  gmlake_offload_host host; /* for the session's own data; also called in the backend's threads */
} gmlake_offload_session_desc;

/* An operator, or whatever the program does between two calls. */
typedef struct gmlake_offload_step {
  void *stream; /* that its work is queued on */
  uint64_t key; /* what it is: a change of key is noticed as one of order; 0 is fine */
  const uint32_t *reads, *writes; /* tensors; one may be in both, but in each only once */
  size_t read_count, write_count;
} gmlake_offload_step;

typedef enum gmlake_offload_session_mode {
  GMLAKE_OFFLOAD_LEARNING = 0, /* no iteration is known yet, or its plan is not made yet */
  GMLAKE_OFFLOAD_PLANNED,
  GMLAKE_OFFLOAD_DRIFTED /* this iteration is not the one that was learnt */
} gmlake_offload_session_mode;

typedef struct gmlake_offload_session_stats {
  size_t struct_bytes; /* set by the caller, or 0: this header's size; returned: bytes filled in */
  gmlake_offload_session_mode mode;
  size_t tensor_count, tensor_bytes;          /* that live, on the device or not */
  size_t device_bytes, device_bytes_peak;     /* in whole chunks, in the order of the calls */
  size_t host_bytes, host_bytes_peak;         /* pinned */
  size_t out_bytes, in_bytes;                 /* copied so far */
  uint64_t out_count, in_count, drop_count;   /* copies; tensors that left as the host had them */
  uint64_t demand_out_count, demand_in_count; /* that no plan asked for */
  uint64_t iteration_count;                   /* marked or found */
  uint64_t step_count, drift_count, plan_count;
  uint64_t sync_count; /* waits of the host in calls other than destroy */
  /* The present plan, for an iteration; 0 as long as there is none. */
  size_t unplanned_bytes, planned_bytes; /* the most at once, if nothing moves, and by the plan */
  size_t plan_out_bytes, plan_in_bytes;  /* what it copies */
  uint64_t step_ns;                      /* an iteration as learnt, without waits for copies */
  uint64_t plan_added_ns; /* what it adds to step_ns, as simulated with the link's speed and a time
                             for each call of the host; 0 as well if nothing was added */
  uint64_t link_bound_ns; /* what its copies take at least. No iteration is shorter than this */
  double out_bytes_per_s, in_bytes_per_s; /* the link, as measured or as given */
  /* By the times of the steps as learnt, no plan for this limit is faster that recomputes nothing:
     so much has to leave before the step that needs the most memory, and to come back behind it. */
  uint64_t least_ns;
  uint64_t region_count, kept_region_count; /* of the last iteration; 0: none yet */
  /* Steps of planning, of about 10 ns: so far, also in a thread that has ended; the most in a
     call. */
  uint64_t plan_work, plan_work_max;
} gmlake_offload_session_stats;

/* Only one thread at a time may use a session. All calls return without waiting for the device,
   except destroy, those of a session that checks, and where pinned memory has reached its bound or
   the backend failed. A call that fails may be repeated; no tensor's bytes are lost by it.
   Errors of all: INVALID_ARGUMENT, UNKNOWN_ID (no such tensor), OUT_OF_HOST_MEMORY (also pinned
   memory), BACKEND (a function of memory or backend failed). gmlake_offload_session_get_error
   explains the last one. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_create(
    const gmlake_offload_session_desc *desc, gmlake_offload_session **out_session);

/* Waits for all work on the streams that steps named, and gives up all tensors. NULL is fine. */
GMLAKE_OFFLOAD_DEF void gmlake_offload_session_destroy(gmlake_offload_session *session);

/* A tensor of that size, whose address never changes. Its memory is for work that is queued on the
   stream from now on. Others leave for it if it has to be. Between begin and end it belongs to that
   step. Its bytes are undefined. *out_tensor is a number that no other tensor has now.
   Errors: OUT_OF_DEVICE_MEMORY (this step's tensors, and those that never leave, exceed the limit;
   the error's text has the bytes). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_alloc(gmlake_offload_session *session, size_t bytes, void *stream,
                             uint32_t *out_tensor, void **out_ptr);

/* Gives up a tensor, which may be away. pre: work that uses it is part of steps that have ended, or
   precedes this call on the stream. In an open step it may be one of those named. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_free(gmlake_offload_session *session, uint32_t tensor, void *stream);

/* Finds the tensor that the address belongs to, and how far behind its begin the address is.
   Cost: O(log ranges). Errors: UNKNOWN_ID. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_find(const gmlake_offload_session *session, const void *ptr,
                            uint32_t *out_tensor, size_t *out_offset);

/* Begins a step: work that is queued on step->stream from now on may use the tensors named. What is
   away comes back; the stream waits for it on the device. They stay until end.
   Errors: OUT_OF_DEVICE_MEMORY (as for alloc; nothing has moved). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_begin(gmlake_offload_session *session, const gmlake_offload_step *step);

/* Ends the step, when its work is queued. Then tensors leave and come back as planned. The step has
   ended also if that fails. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_end(gmlake_offload_session *session);

/* An iteration begins. pre: no step and no region is open. The iterations of a program that never
   calls it are found by the session. Cost: linear in tensors, and that of planning (COSTS). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_mark(gmlake_offload_session *session);

/* A region begins: steps that the program may execute twice, to keep less meanwhile. They are those
   that begin before region_end. *out_is_kept 0: the program does so as ever: it gives up what these
   steps make, and later executes them again, between recompute and region_end. 1: it keeps what it
   needs of it, and executes them once. *out_region is a number that no other region ever has. The
   results have to be the same either way. pre: no region is open: of nested ones only the outermost
   is told; nor is a step, here and in the next two functions. Errors: INVALID_ARGUMENT. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_region(
    gmlake_offload_session *session, uint64_t *out_region, int *out_is_kept);

/* The steps of a region are executed again, or the first of them. pre: no region is open. Errors:
   UNKNOWN_ID (there was no such region). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_recompute(gmlake_offload_session *session, uint64_t region);

/* What region or recompute began has ended. unseen_bytes: behind recompute, what the steps made in
   memory that the session does not know and that is still needed; else 0. Errors: INVALID_ARGUMENT
   (no region is open, or a step is). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_region_end(gmlake_offload_session *session, size_t unseen_bytes);

/* Fetches a tensor to the device, for work on the stream, and keeps it there until as many calls of
   unpin, which names the stream of its last use outside of steps. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_pin(gmlake_offload_session *session,
                                                                    uint32_t tensor, void *stream);
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_unpin(gmlake_offload_session *session, uint32_t tensor, void *stream);

/* Between hold(1) and hold(0) nothing moves and the session calls neither backend nor, but for
   alloc and free, memory: a stream may be captured. A step may then name only tensors that the last
   step before on the same stream could use without waiting: name all of them in one step first.
   Errors: INVALID_ARGUMENT (also begin with a tensor that is away, or still on its way). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_hold(gmlake_offload_session *session, int is_held);

/* Makes tensors leave until `bytes` have been given up, for memory that the session does not know:
   an out-of-memory handler may call it, also while another call of the session is under way, which
   then gives up nothing. *out_bytes: what was given up; less, if the rest may not leave. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_make_room(gmlake_offload_session *session, size_t bytes, size_t *out_bytes);

/* Tensors leave at the next begin or alloc if they take more. 0: no limit but the memory's. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_set_limit(gmlake_offload_session *session, size_t limit_bytes);

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_get_stats(
    const gmlake_offload_session *session, gmlake_offload_session_stats *out_stats);
/* Explains the last call that failed: `tensor` is the one concerned, or GMLAKE_OFFLOAD_NONE. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_get_error(
    const gmlake_offload_session *session, gmlake_offload_error_info *out_info);

/* What a session plans for an iteration. Steps are numbered as the iteration begins them, from 0.
   Times count from the begin of step 0 on the device. They are simulated: with the steps' times as
   learnt, the link's present speed and a time for each call of the host. */
typedef struct gmlake_offload_planned_step {
  uint64_t key, begin_ns, time_ns; /* from its end to the next begin the device waits */
  size_t unplanned_bytes;          /* on the device in it, if nothing moves; */
  size_t planned_bytes;            /* and by the plan */
  uint32_t region; /* that it is in, by number in the iteration, or GMLAKE_OFFLOAD_NONE */
  int is_again;    /* it is executed for the second time */
} gmlake_offload_planned_step;

typedef struct gmlake_offload_planned_tensor {
  uint32_t tensor; /* its number now, or GMLAKE_OFFLOAD_NONE: it does not live now */
  uint32_t first_step, step_count; /* in which it exists, around the end; step_count 0: in none */
  size_t bytes, copy_bytes;        /* in whole chunks; what a copy moves */
} gmlake_offload_planned_tensor;

typedef struct gmlake_offload_planned_move {
  uint32_t tensor;           /* its place in the plan's list; one without a move stays */
  uint32_t step;             /* behind which it leaves, comes back, or is copied */
  int is_in, is_copy;        /* without a copy it leaves since the host has its bytes */
  uint64_t begin_ns, end_ns; /* of the copy, which may end in the next iteration */
  int stays;                 /* it is only copied, and leaves by a later move */
} gmlake_offload_planned_move;

typedef struct gmlake_offload_session_plan {
  const gmlake_offload_planned_step *steps;
  const gmlake_offload_planned_tensor *tensors;
  const gmlake_offload_planned_move *moves; /* by step, in each those that leave first */
  size_t step_count, tensor_count, move_count;
  uint64_t time_ns; /* an iteration */
} gmlake_offload_session_plan;

/* What stays, leaves, comes back and is executed again, and where the time goes: for whoever prints
   or draws it. The caller destroys it; NULL is fine. It changes nothing and waits for nothing. What
   all copies are, bounds and the link's speed are in the statistics. Cost: linear in what an
   iteration names. Errors: NOT_SEALED (nothing is planned yet). */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_take_plan(
    gmlake_offload_session *session, gmlake_offload_session_plan **out_plan);
GMLAKE_OFFLOAD_DEF void gmlake_offload_session_plan_destroy(gmlake_offload_session_plan *plan);

#if defined(GMLAKE_OFFLOAD_LAKE)
/* Where a session's memory comes from: a lake. All fields but lake and chunk_bytes may be 0. */
typedef struct gmlake_offload_lake {
  gmlake *lake;       /* outlives the memory */
  size_t chunk_bytes; /* of the ranges */
  gmlake_pool *pool;  /* whose chunks they have, and whose limit counts; NULL: the default one. Best
                         is one that serves no blocks, with another chunk_bytes than this: no block
                         takes a chunk that a session's plan counts on, and chunks that are free do
                         not wait for neighbours that are still copied. */
} gmlake_offload_lake;

/* Fills in the table. *lake outlives it. Create the lake with GMLAKE_WAIT_FIRST: else it takes new
   memory before it makes a stream wait for what another one gave up.
   Errors: INVALID_ARGUMENT. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_lake_memory(const gmlake_offload_lake *lake, gmlake_offload_memory *out_memory);
#endif

#if defined(GMLAKE_OFFLOAD_BACKEND_MOCK)
/* Queues work that takes so long; when it ends, work_fn is called, which may read and write
   tensors (NULL: nothing). The device runs while the host waits or spends time.
   Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_mock_work(gmlake_offload_backend *backend,
                                                                  void *stream, uint64_t time_ns,
                                                                  void (*work_fn)(void *user),
                                                                  void *user);
GMLAKE_OFFLOAD_DEF void gmlake_offload_mock_spend(gmlake_offload_backend *backend,
                                                  uint64_t time_ns);
#endif

/* The result's spelling in this header, a constant string; never NULL. */
GMLAKE_OFFLOAD_DEF const char *gmlake_offload_result_name(gmlake_offload_result result);

#if defined(__cplusplus)
}
#endif

#endif /* GMLAKE_OFFLOAD_H_INCLUDED */

/* ---- Users can stop here; the implementation is below ---------------------------------------- */

#if defined(GMLAKE_OFFLOAD_IMPLEMENTATION) && !defined(GMLAKE_OFFLOAD_IMPLEMENTATION_DONE)
#define GMLAKE_OFFLOAD_IMPLEMENTATION_DONE

/* ---- SECTIONS (grep -n '---- >>'). Each ends with its public functions.
     common    >>base >>graph
     TENSILE   >>plan >>jobs >>cyclic >>link >>profile >>itree >>swap >>cost >>emit
     a run     >>work >>memgraph >>queues >>nodes >>run >>clock >>simulate
     the best  >>search
     sessions  >>chunks >>recording >>regions >>period >>session >>view
     backends  >>backend_mock >>backend_cuda >>memory_lake */

/* ---- >>base: configuration, host memory, helpers ------------------------------------------------
   Owns nothing. Gives host memory in two ways: arrays that grow (gmlo_grow), and scopes
   (gmlo_scope), whose pieces are zeroed when they are taken and are freed all together.
   In the whole file a section calls only functions of its own and of the sections above it, and it
   ends with its public functions.
   Cost: constant; growing is constant on average. Fails: where host memory is refused. */

#if defined(SIZE_MAX) && SIZE_MAX < 0xFFFFFFFFFFFFFFFFu
#error "gmlake_offload.h needs a size_t of 64 bits, as sizes of GPU memory do: build for 64 bits"
#endif

#include <stdlib.h>
#include <string.h>

#if !defined(GMLAKE_OFFLOAD_ASSERT)
#include <assert.h>
#define GMLAKE_OFFLOAD_ASSERT(x) assert(x)
#endif

#if defined(GMLAKE_OFFLOAD_MALLOC) != defined(GMLAKE_OFFLOAD_FREE)
#error "define both GMLAKE_OFFLOAD_MALLOC and GMLAKE_OFFLOAD_FREE, or neither"
#elif !defined(GMLAKE_OFFLOAD_MALLOC)
#define GMLAKE_OFFLOAD_MALLOC(bytes) malloc(bytes)
#define GMLAKE_OFFLOAD_FREE(ptr) free(ptr)
#endif

#define GMLO_NAME_BYTES 32
#define GMLO_BYTES_MAX (SIZE_MAX / 4)   /* of all tensors of a graph */
#define GMLO_TIME_MAX (UINT64_MAX / 64) /* of all operators of a graph */
#define GMLO_DEVICE_MAX 65535u          /* the largest number of a device */
#define GMLO_LINK_BYTES_PER_S 55e9      /* of an H200's link, one direction alone */
#define GMLO_BOTH_BYTES_PER_S 101e9     /* of both directions together */
#define GMLO_COPY_NS 10000u             /* what a copy takes besides its bytes */
#define GMLO_ROUNDS 3         /* iterations of a schedule that are simulated; the last one counts */
#define GMLO_REMAP_NS 100000u /* of the host, for a chunk that is mapped elsewhere among others */
#define GMLO_HOST_NS 20000u   /* of the host, for a step, in Python */
#define GMLO_TENSOR_BYTES_MIN ((size_t)1 << 20) /* smaller tensors are worth no copy */
#define GMLO_WORD_BYTES 8                       /* of a word that the mock fills and reads */
#define GMLO_REAL_MIN 16u /* real bytes of a tensor in the mock with a divisor, at least */

static void *gmlo_malloc(const gmlake_offload_host *host, size_t bytes) {
  return host->malloc_fn != NULL ? host->malloc_fn(host->user, bytes)
                                 : GMLAKE_OFFLOAD_MALLOC(bytes);
}

static void gmlo_free(const gmlake_offload_host *host, void *ptr) {
  if (ptr == NULL) return;
  if (host->malloc_fn != NULL) {
    host->free_fn(host->user, ptr);
  } else {
    GMLAKE_OFFLOAD_FREE(ptr);
  }
}

/* Zeroed memory. NULL if it is refused, also if the size overflows. */
static void *gmlo_zeroed(const gmlake_offload_host *host, size_t count, size_t item_bytes) {
  size_t bytes;
  void *ptr;
  if (count > SIZE_MAX / 2 / item_bytes) return NULL;
  bytes = count != 0 ? count * item_bytes : item_bytes;
  ptr = gmlo_malloc(host, bytes);
  if (ptr != NULL) memset(ptr, 0, bytes);
  return ptr;
}

/* The items in an array that has room for `more` beyond `count`. NULL if memory is refused; the old
   array then stays as it is. */
static void *gmlo_grow(const gmlake_offload_host *host, void *items, size_t count, size_t more,
                       size_t *capacity, size_t item_bytes) {
  size_t wanted = *capacity < 8 ? 16 : *capacity;
  void *grown;
  if (items != NULL && more <= *capacity - count) return items;
  while (wanted - count < more) {
    if (wanted > SIZE_MAX / 8 / item_bytes) return NULL;
    wanted *= 2;
  }
  grown = gmlo_malloc(host, wanted * item_bytes);
  if (grown == NULL) return NULL;
  if (items != NULL) memcpy(grown, items, count * item_bytes);
  gmlo_free(host, items);
  *capacity = wanted;
  return grown;
}

/* The first of `more` new items, zeroed, behind the `count` ones of the array that `items` points
   to. They count when the caller says so. NULL if memory is refused; the array then stays as it
   is. */
static void *gmlo_more(const gmlake_offload_host *host, void *items, size_t count, size_t more,
                       size_t *capacity, size_t item_bytes) {
  void *former, *grown;
  memcpy(&former, items, sizeof former);
  grown = gmlo_grow(host, former, count, more, capacity, item_bytes);
  if (grown == NULL) return NULL;
  memcpy(items, &grown, sizeof grown);
  return memset((char *)grown + count * item_bytes, 0, more * item_bytes);
}

typedef struct gmlo_piece {
  struct gmlo_piece *next;
  double align; /* so that what follows is aligned for every type used here */
} gmlo_piece;

typedef struct gmlo_scope {
  gmlake_offload_host host;
  gmlo_piece *pieces;
} gmlo_scope;

/* An empty scope. */
static gmlo_scope gmlo_scope_of(const gmlake_offload_host *host) {
  gmlo_scope scope;
  scope.host = *host;
  scope.pieces = NULL;
  return scope;
}

/* Takes memory that is written before it is read. NULL if host memory is refused. */
static void *gmlo_take_unset(gmlo_scope *scope, size_t count, size_t item_bytes) {
  gmlo_piece *piece;
  GMLAKE_OFFLOAD_ASSERT(item_bytes != 0);
  if (count > SIZE_MAX / 4 / item_bytes) return NULL;
  piece = (gmlo_piece *)gmlo_malloc(&scope->host, sizeof *piece + count * item_bytes);
  if (piece == NULL) return NULL;
  piece->next = scope->pieces;
  scope->pieces = piece;
  return piece + 1;
}

/* Zeroed items, which are freed with the scope. NULL if host memory is refused. */
static void *gmlo_take(gmlo_scope *scope, size_t count, size_t item_bytes) {
  void *items = gmlo_take_unset(scope, count, item_bytes);
  if (items != NULL) memset(items, 0, count * item_bytes);
  return items;
}

static void gmlo_leave(gmlo_scope *scope) {
  while (scope->pieces != NULL) {
    gmlo_piece *piece = scope->pieces;
    scope->pieces = piece->next;
    gmlo_free(&scope->host, piece);
  }
}

static int gmlo_host_valid(const gmlake_offload_host *host) {
  return (host->malloc_fn == NULL) == (host->free_fn == NULL);
}

/* Sorts by merging; equal items keep their order. `room` has room for as many items. */
static void gmlo_sort(void *items, void *room, size_t count, size_t bytes,
                      int (*before)(const void *a, const void *b)) {
  size_t half = count / 2, a = 0, b = half, i;
  char *to = (char *)items, *from = (char *)room;
  if (count < 2) return;
  gmlo_sort(to, room, half, bytes, before);
  gmlo_sort(to + half * bytes, room, count - half, bytes, before);
  if (!before(to + half * bytes, to + (half - 1) * bytes)) return; /* it is sorted */
  memcpy(from, to, count * bytes);
  for (i = 0; i < count; i++) {
    int second = a == half || (b != count && before(from + b * bytes, from + a * bytes));
    memcpy(to + i * bytes, from + (second ? b++ : a++) * bytes, bytes);
  }
}

/* Lists items by their keys, which are below key_count: order[i] is the number of the i-th. Equal
   ones keep their order. `begin` has room for key_count + 1. */
static void gmlo_sort_keys(const uint32_t *keys, size_t count, uint32_t *begin, size_t key_count,
                           uint32_t *order) {
  size_t i;
  memset(begin, 0, (key_count + 1) * sizeof *begin);
  for (i = 0; i < count; i++) begin[keys[i] + 1]++;
  for (i = 0; i < key_count; i++) begin[i + 1] += begin[i];
  for (i = 0; i < count; i++) order[begin[keys[i]]++] = (uint32_t)i;
}

/* A copy of the items. NULL if host memory is refused. */
static void *gmlo_copy(const gmlake_offload_host *host, const void *items, size_t count,
                       size_t item_bytes) {
  void *copy = gmlo_malloc(host, count * item_bytes + 1);
  if (copy != NULL && count != 0) memcpy(copy, items, count * item_bytes);
  return copy;
}

/* The nanoseconds that the bytes take. Above all other times if the quotient is no number. */
static uint64_t gmlo_copy_time(size_t bytes, double bytes_per_s) {
  uint64_t most = GMLO_TIME_MAX / 2;
  double ns = (double)bytes * 1e9 / bytes_per_s;
  return ns < (double)most ? (uint64_t)ns + 1 : most;
}

static void gmlo_text(char *out, size_t room, const char *text) {
  size_t length = strlen(text);
  if (length >= room) length = room - 1;
  memcpy(out, text, length);
  out[length] = '\0';
}

static int gmlo_figure_valid(double figure) { return figure >= 0 && figure < 1e18; }

static void gmlo_figure_default(double *figure, double value) {
  if (*figure == 0) *figure = value;
}

/* Fills in as much of `info` as the caller has room for. Its first field, struct_bytes, says how
   much that is. */
static gmlake_offload_result gmlo_fill_info(void *out, const void *info, size_t info_bytes) {
  size_t bytes;
  memcpy(&bytes, out, sizeof bytes);
  if (bytes == 0 || bytes > info_bytes) bytes = info_bytes;
  if (bytes < sizeof bytes) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  memcpy(out, info, bytes);
  memcpy(out, &bytes, sizeof bytes);
  return GMLAKE_OFFLOAD_OK;
}

static int gmlo_memory_valid(const gmlake_offload_memory *m) {
  return m != NULL && m->struct_bytes >= sizeof *m && m->abi_version == 3 && m->chunk_bytes != 0 &&
         (m->chunk_bytes & (m->chunk_bytes - 1)) == 0 && m->reserve != NULL && m->release != NULL &&
         m->commit != NULL && m->discard != NULL;
}

/* Whether the table has what a session calls, or with `runs` all. */
static int gmlo_backend_valid(const gmlake_offload_backend *b, int runs) {
  return b != NULL && b->struct_bytes >= sizeof *b && b->abi_version == 2 &&
         b->host_alloc != NULL && b->host_free != NULL && b->copy != NULL &&
         b->event_create != NULL && b->event_destroy != NULL && b->event_record != NULL &&
         b->stream_wait != NULL && b->event_done != NULL && b->event_ns != NULL &&
         b->stream_sync != NULL &&
         (!runs || (b->stream != NULL && b->device_alloc != NULL && b->device_free != NULL &&
                    b->fill != NULL && b->launch != NULL && b->now != NULL));
}

/* What another thread stores, and what it stored before that. Where a compiler has no atomic
   operations, volatile has to do. */
static int gmlo_load(const int *at) {
#if defined(__GNUC__)
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
#else
  return *(const volatile int *)at;
#endif
}

static void gmlo_store(int *at, int value) {
#if defined(__GNUC__)
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
#else
  *(volatile int *)at = value;
#endif
}

/* Whether another thread has asked to stop. NULL: none does. */
static int gmlo_stops(const int *stops) { return stops != NULL && gmlo_load(stops); }

static void gmlo_count_up(size_t *value, size_t *peak, size_t bytes) {
  *value += bytes;
  if (*value > *peak) *peak = *value;
}

/* A heap of numbers, the lowest on top. */
static void gmlo_heap_push(uint64_t *heap, size_t *count, uint64_t key) {
  size_t i = (*count)++;
  for (; i != 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
  heap[i] = key;
}

static uint64_t gmlo_heap_pop(uint64_t *heap, size_t *count) {
  uint64_t top = heap[0], last = heap[--*count];
  size_t i = 0, child;
  for (; (child = 2 * i + 1) < *count; i = child) {
    if (child + 1 < *count && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= last) break;
    heap[i] = heap[child];
  }
  heap[i] = last;
  return top;
}

/* How many of the items, each of so many bytes, are at most `key`. They ascend by the uint64_t with
   which they begin. */
static size_t gmlo_count_to(const void *items, size_t count, size_t item_bytes, uint64_t key) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    uint64_t at;
    memcpy(&at, (const char *)items + middle * item_bytes, sizeof at);
    if (at <= key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static size_t gmlo_count_below(const void *items, size_t count, size_t item_bytes, uint64_t key) {
  return key != 0 ? gmlo_count_to(items, count, item_bytes, key - 1) : 0;
}

/* The link's directions, as indices. */
#define GMLO_OUT 0
#define GMLO_IN 1

GMLAKE_OFFLOAD_DEF const char *gmlake_offload_result_name(gmlake_offload_result result) {
  static const char *const names[] = {"GMLAKE_OFFLOAD_OK",
                                      "GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT",
                                      "GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY",
                                      "GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY",
                                      "GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID",
                                      "GMLAKE_OFFLOAD_ERROR_DUPLICATE_ID",
                                      "GMLAKE_OFFLOAD_ERROR_SIZE_OVERFLOW",
                                      "GMLAKE_OFFLOAD_ERROR_WRONG_DEVICE",
                                      "GMLAKE_OFFLOAD_ERROR_READ_BEFORE_WRITE",
                                      "GMLAKE_OFFLOAD_ERROR_WRITTEN_INPUT",
                                      "GMLAKE_OFFLOAD_ERROR_CYCLE",
                                      "GMLAKE_OFFLOAD_ERROR_SEALED",
                                      "GMLAKE_OFFLOAD_ERROR_NOT_SEALED",
                                      "GMLAKE_OFFLOAD_ERROR_WRONG_PLAN",
                                      "GMLAKE_OFFLOAD_ERROR_BACKEND",
                                      "GMLAKE_OFFLOAD_ERROR_INCOMPLETE",
                                      "GMLAKE_OFFLOAD_ERROR_BAD_PLACE",
                                      "GMLAKE_OFFLOAD_ERROR_RACE",
                                      "GMLAKE_OFFLOAD_ERROR_STALE_READ",
                                      "GMLAKE_OFFLOAD_ERROR_UNSUPPORTED"};
  unsigned number = (unsigned)result;
  return number < sizeof names / sizeof *names ? names[number] : "GMLAKE_OFFLOAD_ERROR_?";
}

/* ---- >>graph: tensors, operators, their order ---------------------------------------------------
   Owns what the caller added. Once the graph is sealed it also owns the order of the operators, the
   accesses of each tensor in that order, and the dependencies. Invariants:
   [G1] The ids in refs are below tensor_count. No operator names a tensor twice among its reads,
        nor twice among its writes.
   [G2] The bytes of all tensors together are at most GMLO_BYTES_MAX, the times of all operators
        together at most GMLO_TIME_MAX.
   [G3] Sealed: `order` is a permutation of the operators and `position` is its inverse. Every
        dependency goes from a lower to a higher position.
   [G4] Sealed: accesses[access_begin[t]] up to accesses[access_begin[t + 1] - 1] are those of
        tensor t, by position. The first access of an INTERMEDIATE or OUTPUT writes and does not
        read.
   Cost: adding is constant for each reference on average. Sealing is O(n log n) in accesses and
   dependencies. Fails: as the public functions say; the graph then stays as it was. */

#define GMLO_READS 1u
#define GMLO_WRITES 2u

typedef struct gmlo_tensor {
  size_t bytes;
  size_t mark; /* of the last list that named it */
  uint32_t device;
  gmlake_offload_kind kind;
} gmlo_tensor;

typedef struct gmlo_op {
  uint64_t time_ns;
  size_t first_ref, read_count, write_count; /* refs: reads, then writes */
  uint32_t device;
  unsigned flags;
  void *user; /* the caller's own */
  char name[GMLO_NAME_BYTES];
} gmlo_op;

typedef struct gmlo_access {
  uint32_t op;
  uint32_t position; /* of op in `order` */
  unsigned how;      /* GMLO_READS, GMLO_WRITES */
} gmlo_access;

struct gmlake_offload_graph {
  gmlake_offload_host host;
  unsigned flags;
  int sealed;
  gmlo_tensor *tensors;
  gmlo_op *ops;
  uint32_t *refs;
  size_t tensor_count, op_count, ref_count;
  size_t tensor_capacity, op_capacity, ref_capacity;
  size_t tensor_bytes, marks, device_count;
  size_t refs_most; /* of an operator */
  uint64_t time_ns;
  gmlo_scope scope; /* of what follows, which sealing makes */
  uint32_t *order, *position;
  size_t *access_begin;
  gmlo_access *accesses;
  size_t *successor_begin; /* successors[successor_begin[op]] .. run after op */
  uint32_t *successors;
  size_t access_count, dependency_count;
  gmlake_offload_device_info *devices;
  gmlake_offload_graph_info info;
  gmlake_offload_error_info error;
};

static gmlake_offload_result gmlo_graph_fail(gmlake_offload_graph *graph,
                                             gmlake_offload_result result, size_t op, size_t tensor,
                                             const char *text) {
  graph->error.result = result;
  graph->error.op = (uint32_t)op;
  graph->error.tensor = (uint32_t)tensor;
  gmlo_text(graph->error.text, sizeof graph->error.text, text);
  return result;
}

static gmlake_offload_result gmlo_graph_no_memory(gmlake_offload_graph *graph) {
  return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY, GMLAKE_OFFLOAD_NONE,
                         GMLAKE_OFFLOAD_NONE, "host memory was refused");
}

static gmlake_offload_result gmlo_graph_add_tensor(gmlake_offload_graph *graph,
                                                   const gmlake_offload_tensor_desc *desc,
                                                   uint32_t *out_tensor) {
  gmlo_tensor *tensor;
  if ((unsigned)desc->kind > (unsigned)GMLAKE_OFFLOAD_OUTPUT) {
    return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, GMLAKE_OFFLOAD_NONE,
                           graph->tensor_count,
                           "the tensor's kind is none of PERSISTENT, INPUT, INTERMEDIATE, OUTPUT");
  }
  if (desc->device > GMLO_DEVICE_MAX) {
    return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, GMLAKE_OFFLOAD_NONE,
                           graph->tensor_count, "the tensor's device is above 65535");
  }
  if (desc->bytes > GMLO_BYTES_MAX - graph->tensor_bytes ||
      graph->tensor_count >= GMLAKE_OFFLOAD_NONE - 1) {
    return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_SIZE_OVERFLOW, GMLAKE_OFFLOAD_NONE,
                           graph->tensor_count, "the tensors together are too large, or too many");
  }
  tensor = (gmlo_tensor *)gmlo_more(&graph->host, &graph->tensors, graph->tensor_count, 1,
                                    &graph->tensor_capacity, sizeof *tensor);
  if (tensor == NULL) return gmlo_graph_no_memory(graph);
  tensor->bytes = desc->bytes;
  tensor->kind = desc->kind;
  tensor->device = desc->device;
  graph->tensor_bytes += desc->bytes;
  if (desc->device >= graph->device_count) graph->device_count = (size_t)desc->device + 1;
  *out_tensor = (uint32_t)graph->tensor_count++;
  return GMLAKE_OFFLOAD_OK;
}

/* Checks [G1], and that the operator may use these tensors. `other` is the device on which a
   transfer writes; for other operators it is `device`. */
static gmlake_offload_result gmlo_graph_check_refs(gmlake_offload_graph *graph, const uint32_t *ids,
                                                   size_t count, int writes, uint32_t device,
                                                   uint32_t other) {
  size_t i, mark = ++graph->marks;
  for (i = 0; i < count; i++) {
    gmlo_tensor *tensor;
    if (ids[i] >= graph->tensor_count) {
      return gmlo_graph_fail(
          graph, GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID, graph->op_count, ids[i],
          "the operator names a tensor that was not added; add the tensor first");
    }
    tensor = &graph->tensors[ids[i]];
    if (tensor->mark == mark) {
      return gmlo_graph_fail(
          graph, GMLAKE_OFFLOAD_ERROR_DUPLICATE_ID, graph->op_count, ids[i],
          "the operator names a tensor twice among its reads, or twice among its writes");
    }
    tensor->mark = mark;
    if (tensor->device != device && !(writes && tensor->device == other)) {
      return gmlo_graph_fail(
          graph, GMLAKE_OFFLOAD_ERROR_WRONG_DEVICE, graph->op_count, ids[i],
          "the operator uses a tensor of another device; add a transfer to this device");
    }
    if (writes && tensor->kind == GMLAKE_OFFLOAD_INPUT) {
      return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_WRITTEN_INPUT, graph->op_count, ids[i],
                             "the operator writes an INPUT; what operators write is PERSISTENT");
    }
  }
  return GMLAKE_OFFLOAD_OK;
}

static gmlake_offload_result gmlo_graph_add_op(gmlake_offload_graph *graph,
                                               const gmlake_offload_op_desc *desc, uint32_t other,
                                               uint32_t *out_op) {
  gmlake_offload_result result;
  gmlo_op *op;
  uint32_t *refs;
  result =
      gmlo_graph_check_refs(graph, desc->reads, desc->read_count, 0, desc->device, desc->device);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  result = gmlo_graph_check_refs(graph, desc->writes, desc->write_count, 1, desc->device, other);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (desc->time_ns > GMLO_TIME_MAX - graph->time_ns ||
      graph->op_count >= GMLAKE_OFFLOAD_NONE - 1) {
    return gmlo_graph_fail(
        graph, GMLAKE_OFFLOAD_ERROR_SIZE_OVERFLOW, graph->op_count, GMLAKE_OFFLOAD_NONE,
        "the operators together take too long (times are nanoseconds), or are too many");
  }
  op = (gmlo_op *)gmlo_more(&graph->host, &graph->ops, graph->op_count, 1, &graph->op_capacity,
                            sizeof *op);
  refs = (uint32_t *)gmlo_more(&graph->host, &graph->refs, graph->ref_count,
                               desc->read_count + desc->write_count, &graph->ref_capacity,
                               sizeof *refs);
  if (op == NULL || refs == NULL) return gmlo_graph_no_memory(graph);
  op->time_ns = desc->time_ns;
  op->device = desc->device;
  op->flags = desc->flags;
  op->user = desc->user;
  op->first_ref = graph->ref_count;
  op->read_count = desc->read_count;
  op->write_count = desc->write_count;
  gmlo_text(op->name, sizeof op->name, desc->name != NULL ? desc->name : "");
  if (desc->reads != NULL) memcpy(refs, desc->reads, op->read_count * sizeof *refs);
  refs += op->read_count;
  if (op->read_count + op->write_count > graph->refs_most)
    graph->refs_most = op->read_count + op->write_count;
  if (desc->writes != NULL) memcpy(refs, desc->writes, op->write_count * sizeof *refs);
  graph->ref_count += op->read_count + op->write_count;
  graph->time_ns += desc->time_ns;
  if (desc->device >= graph->device_count) graph->device_count = (size_t)desc->device + 1;
  *out_op = (uint32_t)graph->op_count++;
  return GMLAKE_OFFLOAD_OK;
}

/* How the operator uses the tensor: GMLO_READS, GMLO_WRITES, both, or 0. */
static unsigned gmlo_op_uses(const gmlake_offload_graph *graph, uint32_t op, uint32_t tensor) {
  const gmlo_op *o = &graph->ops[op];
  unsigned how = 0;
  size_t i;
  for (i = 0; i < o->read_count + o->write_count; i++) {
    if (graph->refs[o->first_ref + i] == tensor)
      how |= i < o->read_count ? GMLO_READS : GMLO_WRITES;
  }
  return how;
}

static uint32_t gmlo_op_ref(const gmlake_offload_graph *graph, uint32_t op, size_t i) {
  return graph->refs[graph->ops[op].first_ref + i];
}

static size_t gmlo_op_refs(const gmlake_offload_graph *graph, uint32_t op) {
  return graph->ops[op].read_count + graph->ops[op].write_count;
}

/* The tensor's first access at the position or behind it; where its accesses end: there is none. */
static size_t gmlo_access_from(const gmlake_offload_graph *graph, uint32_t tensor,
                               size_t position) {
  size_t low = graph->access_begin[tensor], high = graph->access_begin[tensor + 1];
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (graph->accesses[middle].position < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Fills in the accesses of all tensors, for operators that run in `order` (NULL: as they were
   added). */
static void gmlo_graph_fill_accesses(gmlake_offload_graph *graph, const uint32_t *order) {
  size_t i, n, *fill = graph->access_begin;
  memset(fill, 0, (graph->tensor_count + 1) * sizeof *fill);
  for (i = 0; i < graph->tensor_count; i++) graph->tensors[i].mark = 0;
  graph->marks = 0;
  /* First counts accesses, where an update is one. `mark` is the last operator that named the
     tensor, + 1. */
  for (i = 0; i < graph->op_count; i++) {
    const gmlo_op *op = &graph->ops[i];
    for (n = 0; n < op->read_count + op->write_count; n++) {
      uint32_t t = graph->refs[op->first_ref + n];
      if (graph->tensors[t].mark != i + 1) fill[t + 1]++;
      graph->tensors[t].mark = i + 1;
    }
  }
  for (i = 0; i < graph->tensor_count; i++) fill[i + 1] += fill[i];
  graph->access_count = fill[graph->tensor_count];
  for (i = 0; i < graph->tensor_count; i++) graph->tensors[i].mark = fill[i];
  for (i = 0; i < graph->op_count; i++) {
    uint32_t id = order != NULL ? order[i] : (uint32_t)i;
    const gmlo_op *op = &graph->ops[id];
    for (n = 0; n < op->read_count + op->write_count; n++) {
      uint32_t t = graph->refs[op->first_ref + n];
      size_t *next = &graph->tensors[t].mark;
      unsigned how = n < op->read_count ? GMLO_READS : GMLO_WRITES;
      if (*next > fill[t] && graph->accesses[*next - 1].op == id) {
        graph->accesses[*next - 1].how |= how;
        continue;
      }
      graph->accesses[*next].op = id;
      graph->accesses[*next].position = (uint32_t)i;
      graph->accesses[(*next)++].how = how;
    }
  }
  for (i = 0; i < graph->tensor_count; i++) graph->tensors[i].mark = 0;
}

static int gmlo_kind_is_made(gmlake_offload_kind kind) {
  return kind == GMLAKE_OFFLOAD_INTERMEDIATE || kind == GMLAKE_OFFLOAD_OUTPUT;
}

/* In an UNORDERED graph, puts the maker of each tensor before its other accesses. Then checks what
   [G4] says of the first access. */
static gmlake_offload_result gmlo_graph_check_makers(gmlake_offload_graph *graph) {
  size_t t, i;
  for (t = 0; t < graph->tensor_count; t++) {
    gmlo_access *first = &graph->accesses[graph->access_begin[t]];
    size_t count = graph->access_begin[t + 1] - graph->access_begin[t];
    if (count == 0 || !gmlo_kind_is_made(graph->tensors[t].kind)) continue;
    for (i = 0; i < count && (graph->flags & GMLAKE_OFFLOAD_UNORDERED) != 0; i++) {
      gmlo_access maker = first[i];
      if (maker.how != GMLO_WRITES) continue;
      memmove(first + 1, first, i * sizeof *first);
      first[0] = maker;
      break;
    }
    if (first->how != GMLO_WRITES) {
      return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_READ_BEFORE_WRITE, first->op, t,
                             "the operator reads a tensor before any writes it; add the writer "
                             "first, or make the graph UNORDERED");
    }
  }
  return GMLAKE_OFFLOAD_OK;
}

/* Counts a dependency while `successors` is NULL; else stores it. */
static void gmlo_graph_add_successor(gmlake_offload_graph *graph, uint32_t before, uint32_t after) {
  if (graph->successors != NULL) {
    graph->successors[graph->successor_begin[before + 1]++] = after;
  } else {
    graph->successor_begin[before + 2]++;
    graph->dependency_count++;
  }
}

/* An operator that reads a tensor runs after the last one that wrote it. One that writes it runs
   after all that read it since, or, if none did, after the last one that wrote it. */
static void gmlo_graph_add_successors(gmlake_offload_graph *graph) {
  size_t t, i;
  for (t = 0; t < graph->tensor_count; t++) {
    const gmlo_access *a = graph->accesses + graph->access_begin[t];
    size_t count = graph->access_begin[t + 1] - graph->access_begin[t], writer = count, n;
    for (i = 0; i < count; i++) {
      if ((a[i].how & GMLO_WRITES) == 0) {
        if (writer != count) gmlo_graph_add_successor(graph, a[writer].op, a[i].op);
        continue;
      }
      for (n = writer == count ? 0 : writer + 1; n < i; n++) {
        gmlo_graph_add_successor(graph, a[n].op, a[i].op);
      }
      if (writer != count && writer + 1 == i)
        gmlo_graph_add_successor(graph, a[writer].op, a[i].op);
      writer = i;
    }
  }
}

/* successor_begin has two entries more than there are operators. The count of operator op is in
   entry op + 2. Storing then moves entry op + 1 from the begin of op's successors to their end,
   which is where those of op + 1 begin. */
static int gmlo_graph_make_successors(gmlake_offload_graph *graph) {
  size_t i;
  graph->successors = NULL;
  graph->dependency_count = 0;
  graph->successor_begin =
      (size_t *)gmlo_take(&graph->scope, graph->op_count + 2, sizeof *graph->successor_begin);
  if (graph->successor_begin == NULL) return 0;
  gmlo_graph_add_successors(graph);
  for (i = 0; i < graph->op_count; i++) {
    graph->successor_begin[i + 2] += graph->successor_begin[i + 1];
  }
  graph->successors =
      (uint32_t *)gmlo_take(&graph->scope, graph->dependency_count, sizeof *graph->successors);
  if (graph->successors == NULL) return 0;
  gmlo_graph_add_successors(graph);
  return 1;
}

/* Takes one operator after another: of those whose predecessors were all taken the one that was
   added first. [G3] */
static gmlake_offload_result gmlo_graph_sort(gmlake_offload_graph *graph) {
  size_t i, count = 0, taken = 0;
  uint32_t *waits = (uint32_t *)gmlo_take(&graph->scope, graph->op_count, sizeof *waits);
  uint64_t *heap = (uint64_t *)gmlo_take(&graph->scope, graph->op_count, sizeof *heap);
  if (waits == NULL || heap == NULL) return gmlo_graph_no_memory(graph);
  for (i = 0; i < graph->dependency_count; i++) waits[graph->successors[i]]++;
  for (i = 0; i < graph->op_count; i++) {
    if (waits[i] == 0) gmlo_heap_push(heap, &count, i);
  }
  while (count != 0) {
    uint32_t op = (uint32_t)gmlo_heap_pop(heap, &count);
    graph->position[op] = (uint32_t)taken;
    graph->order[taken++] = op;
    for (i = graph->successor_begin[op]; i < graph->successor_begin[op + 1]; i++) {
      if (--waits[graph->successors[i]] == 0) gmlo_heap_push(heap, &count, graph->successors[i]);
    }
  }
  for (i = 0; taken < graph->op_count && i < graph->op_count; i++) {
    if (waits[i] == 0) continue;
    return gmlo_graph_fail(
        graph, GMLAKE_OFFLOAD_ERROR_CYCLE, i, GMLAKE_OFFLOAD_NONE,
        "the operator is in a circle of operators that wait for each other, or behind one");
  }
  return GMLAKE_OFFLOAD_OK;
}

/* A tensor's bytes, rounded up to the alignment, and then never 0. align: 0: none. */
static size_t gmlo_footprint(const gmlake_offload_graph *graph, uint32_t tensor, size_t align) {
  size_t bytes = graph->tensors[tensor].bytes;
  if (align == 0) return bytes;
  return bytes == 0 ? align : (bytes + align - 1) / align * align;
}

/* What the operator uses on that device, or on all devices if it is GMLAKE_OFFLOAD_NONE. A tensor
   that it reads and writes counts once. */
static size_t gmlo_graph_op_bytes(const gmlake_offload_graph *graph, uint32_t op, uint32_t device,
                                  size_t align) {
  size_t i, bytes = 0;
  for (i = 0; i < gmlo_op_refs(graph, op); i++) {
    uint32_t t = gmlo_op_ref(graph, op, i);
    if (device != GMLAKE_OFFLOAD_NONE && graph->tensors[t].device != device) continue;
    if (i >= graph->ops[op].read_count && (gmlo_op_uses(graph, op, t) & GMLO_READS) != 0) continue;
    bytes += gmlo_footprint(graph, t, align);
  }
  return bytes;
}

/* Adds what the operator at the position makes: to bytes[d] for each device d, and to
   bytes[device_count] for all together. Or, with is_gone, subtracts the intermediates that it is
   the last to use. What it updates counts with its reads. */
static void gmlo_graph_count_ops(const gmlake_offload_graph *graph, size_t position, int is_gone,
                                 size_t *bytes) {
  uint32_t op = graph->order[position];
  size_t i;
  for (i = 0; i < gmlo_op_refs(graph, op); i++) {
    uint32_t t = gmlo_op_ref(graph, op, i);
    const gmlo_tensor *tensor = &graph->tensors[t];
    size_t at = is_gone ? graph->access_begin[t + 1] - 1 : graph->access_begin[t];
    size_t more = is_gone ? 0 - tensor->bytes : tensor->bytes;
    if (!gmlo_kind_is_made(tensor->kind) || graph->accesses[at].position != position) continue;
    if (is_gone && tensor->kind == GMLAKE_OFFLOAD_OUTPUT) continue;
    if (i >= graph->ops[op].read_count && (graph->accesses[at].how & GMLO_READS) != 0) continue;
    bytes[tensor->device] += more;
    bytes[graph->device_count] += more;
  }
}

/* Adds the tensors that exist when an iteration begins. */
static void gmlo_graph_count_tensors(const gmlake_offload_graph *graph, size_t *bytes) {
  size_t t;
  for (t = 0; t < graph->tensor_count; t++) {
    const gmlo_tensor *tensor = &graph->tensors[t];
    if (gmlo_kind_is_made(tensor->kind)) continue;
    bytes[tensor->device] += tensor->bytes;
    bytes[graph->device_count] += tensor->bytes;
  }
}

static void gmlo_most(size_t *most, size_t bytes) {
  if (bytes > *most) *most = bytes;
}

/* Finds the peak and the largest operator of each device, and of all together. */
static void gmlo_graph_measure_ops(gmlake_offload_graph *graph, size_t *bytes) {
  size_t p, i, d;
  for (d = 0; d < graph->device_count; d++) graph->devices[d].peak_bytes = bytes[d];
  for (p = 0; p < graph->op_count; p++) {
    uint32_t op = graph->order[p];
    gmlo_graph_count_ops(graph, p, 0, bytes);
    gmlo_most(&graph->info.peak_bytes, bytes[graph->device_count]);
    gmlo_most(&graph->info.op_bytes_max, gmlo_graph_op_bytes(graph, op, GMLAKE_OFFLOAD_NONE, 0));
    for (i = 0; i < gmlo_op_refs(graph, op); i++) {
      uint32_t device = graph->tensors[gmlo_op_ref(graph, op, i)].device;
      gmlo_most(&graph->devices[device].peak_bytes, bytes[device]);
      if (i == 0 || (graph->ops[op].flags & GMLAKE_OFFLOAD_TRANSFER) != 0) {
        gmlo_most(&graph->devices[device].op_bytes_max, gmlo_graph_op_bytes(graph, op, device, 0));
      }
    }
    if ((graph->ops[op].flags & GMLAKE_OFFLOAD_TRANSFER) == 0) {
      graph->devices[graph->ops[op].device].time_ns += graph->ops[op].time_ns;
    }
    gmlo_graph_count_ops(graph, p, 1, bytes);
  }
}

static gmlake_offload_result gmlo_graph_measure(gmlake_offload_graph *graph) {
  gmlake_offload_graph_info *info = &graph->info;
  size_t *bytes = (size_t *)gmlo_take(&graph->scope, graph->device_count + 1, sizeof *bytes);
  graph->devices = (gmlake_offload_device_info *)gmlo_take(&graph->scope, graph->device_count,
                                                           sizeof *graph->devices);
  if (bytes == NULL || graph->devices == NULL) return gmlo_graph_no_memory(graph);
  memset(info, 0, sizeof *info);
  gmlo_graph_count_tensors(graph, bytes);
  info->persistent_bytes = bytes[graph->device_count];
  gmlo_graph_measure_ops(graph, bytes);
  info->tensor_count = graph->tensor_count;
  info->op_count = graph->op_count;
  info->access_count = graph->access_count;
  info->dependency_count = graph->dependency_count;
  info->device_count = graph->device_count;
  info->tensor_bytes = graph->tensor_bytes;
  info->time_ns = graph->time_ns;
  info->op_order = graph->order;
  return GMLAKE_OFFLOAD_OK;
}

static gmlake_offload_result gmlo_graph_seal(gmlake_offload_graph *graph) {
  gmlake_offload_result result;
  graph->order = (uint32_t *)gmlo_take(&graph->scope, graph->op_count, sizeof *graph->order);
  graph->position = (uint32_t *)gmlo_take(&graph->scope, graph->op_count, sizeof *graph->position);
  graph->access_begin =
      (size_t *)gmlo_take(&graph->scope, graph->tensor_count + 1, sizeof *graph->access_begin);
  graph->accesses =
      (gmlo_access *)gmlo_take(&graph->scope, graph->ref_count, sizeof *graph->accesses);
  if (graph->order == NULL || graph->position == NULL || graph->access_begin == NULL ||
      graph->accesses == NULL) {
    return gmlo_graph_no_memory(graph);
  }
  gmlo_graph_fill_accesses(graph, NULL);
  result = gmlo_graph_check_makers(graph);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (!gmlo_graph_make_successors(graph)) return gmlo_graph_no_memory(graph);
  result = gmlo_graph_sort(graph);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  gmlo_graph_fill_accesses(graph, graph->order);
  return gmlo_graph_measure(graph);
}

static int gmlo_graph_has_one_device(const gmlake_offload_graph *graph) {
  size_t i;
  for (i = 0; i < graph->op_count; i++) {
    if (graph->ops[i].device != graph->ops[0].device ||
        (graph->ops[i].flags & GMLAKE_OFFLOAD_TRANSFER) != 0) {
      return 0;
    }
  }
  for (i = 0; i < graph->tensor_count; i++) {
    if (graph->tensors[i].device != graph->ops[0].device) return 0;
  }
  return 1;
}

/* Whether the sum of the graph's bytes and these stays below GMLO_BYTES_MAX. */
static int gmlo_sum_valid(const gmlake_offload_graph *graph, size_t bytes) {
  return graph->tensor_bytes <= GMLO_BYTES_MAX - bytes;
}

/* ---- Public functions ---- */

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_create(
    const gmlake_offload_graph_desc *desc, gmlake_offload_graph **out_graph) {
  gmlake_offload_graph_desc zero;
  gmlake_offload_graph *graph;
  if (out_graph == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_graph = NULL;
  memset(&zero, 0, sizeof zero);
  if (desc == NULL) desc = &zero;
  if ((desc->flags & ~GMLAKE_OFFLOAD_UNORDERED) != 0 || !gmlo_host_valid(&desc->host)) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  graph = (gmlake_offload_graph *)gmlo_zeroed(&desc->host, 1, sizeof *graph);
  if (graph == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  graph->host = desc->host;
  graph->scope = gmlo_scope_of(&desc->host);
  graph->flags = desc->flags;
  graph->error.op = graph->error.tensor = GMLAKE_OFFLOAD_NONE;
  *out_graph = graph;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_graph_destroy(gmlake_offload_graph *graph) {
  gmlake_offload_host host;
  if (graph == NULL) return;
  host = graph->host;
  gmlo_leave(&graph->scope);
  gmlo_free(&host, graph->tensors);
  gmlo_free(&host, graph->ops);
  gmlo_free(&host, graph->refs);
  gmlo_free(&host, graph);
}

static gmlake_offload_result gmlo_graph_sealed(gmlake_offload_graph *graph) {
  return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_SEALED, GMLAKE_OFFLOAD_NONE,
                         GMLAKE_OFFLOAD_NONE,
                         "the graph is sealed and can no longer be changed; make a new one");
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_add_tensor(
    gmlake_offload_graph *graph, const gmlake_offload_tensor_desc *desc, uint32_t *out_tensor) {
  if (graph == NULL || desc == NULL || out_tensor == NULL) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  *out_tensor = GMLAKE_OFFLOAD_NONE;
  if (graph->sealed) return gmlo_graph_sealed(graph);
  return gmlo_graph_add_tensor(graph, desc, out_tensor);
}

static gmlake_offload_result gmlo_graph_bad_op(gmlake_offload_graph *graph, const char *text) {
  return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, graph->op_count,
                         GMLAKE_OFFLOAD_NONE, text);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_add_op(gmlake_offload_graph *graph,
                                                               const gmlake_offload_op_desc *desc,
                                                               uint32_t *out_op) {
  if (graph == NULL || desc == NULL || out_op == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_op = GMLAKE_OFFLOAD_NONE;
  if (graph->sealed) return gmlo_graph_sealed(graph);
  if ((desc->flags & ~GMLAKE_OFFLOAD_IMPURE) != 0) {
    return gmlo_graph_bad_op(graph, "the operator has a flag other than GMLAKE_OFFLOAD_IMPURE");
  }
  if (desc->device > GMLO_DEVICE_MAX) {
    return gmlo_graph_bad_op(graph, "the operator's device is above 65535");
  }
  if ((desc->reads == NULL && desc->read_count != 0) ||
      (desc->writes == NULL && desc->write_count != 0)) {
    return gmlo_graph_bad_op(graph,
                             "the operator's reads or writes are NULL, and their count is not 0");
  }
  return gmlo_graph_add_op(graph, desc, desc->device, out_op);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_add_transfer(gmlake_offload_graph *graph,
                                                                     uint32_t from, uint32_t to,
                                                                     uint64_t time_ns,
                                                                     uint32_t *out_op) {
  gmlake_offload_op_desc desc;
  if (graph == NULL || out_op == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_op = GMLAKE_OFFLOAD_NONE;
  if (graph->sealed) return gmlo_graph_sealed(graph);
  if (from >= graph->tensor_count || to >= graph->tensor_count) {
    return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID, graph->op_count,
                           from >= graph->tensor_count ? from : to,
                           "the transfer names a tensor that was not added; add the tensor first");
  }
  if (graph->tensors[from].device == graph->tensors[to].device) {
    return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, graph->op_count, to,
                           "the transfer is within one device; add an operator instead");
  }
  if (graph->tensors[from].bytes != graph->tensors[to].bytes) {
    return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, graph->op_count, to,
                           "the transfer is between tensors of different sizes");
  }
  memset(&desc, 0, sizeof desc);
  desc.name = "transfer";
  desc.device = graph->tensors[from].device;
  desc.flags = GMLAKE_OFFLOAD_TRANSFER;
  desc.time_ns = time_ns;
  desc.reads = &from;
  desc.writes = &to;
  desc.read_count = desc.write_count = 1;
  return gmlo_graph_add_op(graph, &desc, graph->tensors[to].device, out_op);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_seal(gmlake_offload_graph *graph) {
  gmlake_offload_result result;
  if (graph == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  if (graph->sealed) return gmlo_graph_sealed(graph);
  if (graph->op_count == 0) {
    return gmlo_graph_fail(graph, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, GMLAKE_OFFLOAD_NONE,
                           GMLAKE_OFFLOAD_NONE,
                           "the graph has no operator; add one before sealing it");
  }
  result = gmlo_graph_seal(graph);
  if (result != GMLAKE_OFFLOAD_OK) gmlo_leave(&graph->scope);
  graph->sealed = result == GMLAKE_OFFLOAD_OK;
  return result;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_get_error(
    const gmlake_offload_graph *graph, gmlake_offload_error_info *out_info) {
  if (graph == NULL || out_info == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_info = graph->error;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_get_info(
    const gmlake_offload_graph *graph, gmlake_offload_graph_info *out_info) {
  if (graph == NULL || out_info == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  if (!graph->sealed) return GMLAKE_OFFLOAD_ERROR_NOT_SEALED;
  *out_info = graph->info;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_graph_get_device_info(
    const gmlake_offload_graph *graph, uint32_t device, gmlake_offload_device_info *out_info) {
  if (graph == NULL || out_info == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  if (!graph->sealed) return GMLAKE_OFFLOAD_ERROR_NOT_SEALED;
  if (device >= graph->device_count) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  return gmlo_fill_info(out_info, &graph->devices[device], sizeof graph->devices[device]);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_get_tensor(
    const gmlake_offload_graph *graph, uint32_t tensor, gmlake_offload_tensor_desc *out_desc) {
  if (graph == NULL || out_desc == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  if (tensor >= graph->tensor_count) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  out_desc->bytes = graph->tensors[tensor].bytes;
  out_desc->kind = graph->tensors[tensor].kind;
  out_desc->device = graph->tensors[tensor].device;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_get_op(const gmlake_offload_graph *graph,
                                                               uint32_t op,
                                                               gmlake_offload_op_desc *out_desc) {
  const gmlo_op *o;
  if (graph == NULL || out_desc == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  if (op >= graph->op_count) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  o = &graph->ops[op];
  out_desc->name = o->name;
  out_desc->device = o->device;
  out_desc->flags = o->flags;
  out_desc->time_ns = o->time_ns;
  out_desc->reads = graph->refs + o->first_ref;
  out_desc->writes = graph->refs + o->first_ref + o->read_count;
  out_desc->read_count = o->read_count;
  out_desc->write_count = o->write_count;
  out_desc->user = o->user;
  return GMLAKE_OFFLOAD_OK;
}

/* ---- >>plan: events that move tensors -----------------------------------------------------------
   Owns the events of a plan, sorted by the position of their trigger (those of the iteration's
   begin come first), then by delay. Of two equal ones the one that frees memory is first. A plan
   never changes.
   Cost: O(n log n) in events. Fails: where host memory is refused. */

struct gmlake_offload_plan {
  gmlake_offload_host host;
  const gmlake_offload_graph *graph;
  gmlake_offload_event *events;
  int pauses; /* in paper mode: the next iteration waits for the copies of this one */
  gmlake_offload_plan_info info;
};

static int gmlo_event_before(const void *a, const void *b) {
  const gmlake_offload_event *x = (const gmlake_offload_event *)a;
  const gmlake_offload_event *y = (const gmlake_offload_event *)b;
  int x_in = x->action == GMLAKE_OFFLOAD_SWAP_IN, y_in = y->action == GMLAKE_OFFLOAD_SWAP_IN;
  if (x->delay_ns != y->delay_ns) return x->delay_ns < y->delay_ns;
  return x_in < y_in;
}

/* The position of the operator behind the trigger. */
static size_t gmlo_event_after(const gmlake_offload_graph *graph,
                               const gmlake_offload_event *event) {
  return event->trigger == GMLAKE_OFFLOAD_NONE ? 0 : graph->position[event->trigger] + (size_t)1;
}

static int gmlo_events_sort(const gmlake_offload_graph *graph, gmlake_offload_event *events,
                            size_t count, const gmlake_offload_host *host) {
  gmlo_scope scope = gmlo_scope_of(host);
  gmlake_offload_event *room = (gmlake_offload_event *)gmlo_take(&scope, count, sizeof *room);
  uint32_t *keys = (uint32_t *)gmlo_take(&scope, count, 2 * sizeof *keys);
  uint32_t *begin = (uint32_t *)gmlo_take(&scope, graph->op_count + 2, sizeof *begin);
  size_t i, from;
  int ok = room != NULL && keys != NULL && begin != NULL;
  for (i = 0; i < count && ok; i++) { /* 0: the begin of the iteration */
    room[i] = events[i];
    keys[i] = (uint32_t)gmlo_event_after(graph, &events[i]);
  }
  if (ok) gmlo_sort_keys(keys, count, begin, graph->op_count + 1, keys + count);
  for (i = 0; i < count && ok; i++) events[i] = room[keys[count + i]];
  for (from = 0; from < count && ok; from = i) { /* those of one trigger */
    for (i = from + 1; i < count && events[i].trigger == events[from].trigger; i++) continue;
    gmlo_sort(events + from, room, i - from, sizeof *events, gmlo_event_before);
  }
  gmlo_leave(&scope);
  return ok;
}

/* A plan with copies of the events, sorted. NULL if host memory is refused. */
static gmlake_offload_plan *gmlo_plan_make(const gmlake_offload_graph *graph,
                                           const gmlake_offload_event *events, size_t event_count,
                                           const gmlake_offload_host *host) {
  gmlake_offload_plan *plan = (gmlake_offload_plan *)gmlo_zeroed(host, 1, sizeof *plan);
  size_t i;
  if (plan == NULL) return NULL;
  plan->host = *host;
  plan->graph = graph;
  plan->events = (gmlake_offload_event *)gmlo_copy(host, events, event_count, sizeof *events);
  if (plan->events == NULL || !gmlo_events_sort(graph, plan->events, event_count, host)) {
    gmlake_offload_plan_destroy(plan);
    return NULL;
  }
  plan->info.event_count = event_count;
  plan->info.events = plan->events;
  for (i = 0; i < event_count; i++) {
    size_t bytes = graph->tensors[events[i].tensor].bytes;
    if (events[i].action == GMLAKE_OFFLOAD_SWAP_OUT) plan->info.out_bytes += bytes;
    if (events[i].action == GMLAKE_OFFLOAD_SWAP_IN) plan->info.in_bytes += bytes;
  }
  return plan;
}

/* Whether operator `op` may use the tensor when it runs again before position `after`. A tensor
   that it reads must exist then and must not have been written since. A tensor that it writes must
   be gone, or must not have been written since. */
static int gmlo_rerun_may_touch(const gmlake_offload_graph *graph, uint32_t op, uint32_t tensor,
                                unsigned how, size_t after) {
  size_t i = graph->access_begin[tensor], end = graph->access_begin[tensor + 1];
  int gone = graph->tensors[tensor].kind == GMLAKE_OFFLOAD_INTERMEDIATE &&
             graph->accesses[end - 1].position < after;
  if ((how & GMLO_WRITES) != 0) {
    if ((how & GMLO_READS) != 0 || !gmlo_kind_is_made(graph->tensors[tensor].kind)) return 0;
    if (gone) return 1;
  }
  for (; i < end && graph->accesses[i].position < after; i++) {
    if (graph->accesses[i].position > graph->position[op] &&
        (graph->accesses[i].how & GMLO_WRITES) != 0) {
      return 0;
    }
  }
  return !gone;
}

static gmlake_offload_result gmlo_event_check(const gmlake_offload_graph *graph,
                                              const gmlake_offload_event *event) {
  const gmlo_op *op;
  size_t i;
  if ((unsigned)event->action > (unsigned)GMLAKE_OFFLOAD_RECOMPUTE ||
      event->delay_ns > GMLO_TIME_MAX) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  if (event->tensor >= graph->tensor_count || event->op >= graph->op_count ||
      (event->trigger != GMLAKE_OFFLOAD_NONE && event->trigger >= graph->op_count)) {
    return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  }
  if (event->action != GMLAKE_OFFLOAD_RECOMPUTE) return GMLAKE_OFFLOAD_OK;
  op = &graph->ops[event->op];
  if ((op->flags & GMLAKE_OFFLOAD_IMPURE) != 0 || event->delay_ns != 0 ||
      (gmlo_op_uses(graph, event->op, event->tensor) & GMLO_WRITES) == 0 ||
      !gmlo_kind_is_made(graph->tensors[event->tensor].kind)) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  for (i = 0; i < op->read_count + op->write_count; i++) {
    uint32_t tensor = graph->refs[op->first_ref + i];
    if (tensor != event->tensor &&
        !gmlo_rerun_may_touch(graph, event->op, tensor, gmlo_op_uses(graph, event->op, tensor),
                              gmlo_event_after(graph, event))) {
      return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
    }
  }
  return GMLAKE_OFFLOAD_OK;
}

/* The next event behind `i` that recomputes the same tensor at the same trigger. The number of
   events if there is none. */
static size_t gmlo_plan_next_remake(const gmlake_offload_plan *plan, size_t i) {
  const gmlake_offload_event *events = plan->events, *event = &events[i];
  for (i++; i < plan->info.event_count && events[i].trigger == event->trigger; i++) {
    if (events[i].action == GMLAKE_OFFLOAD_RECOMPUTE && events[i].tensor == event->tensor) return i;
  }
  return plan->info.event_count;
}

/* Whether the events that recompute a tensor at one trigger name all operators that wrote it
   before, in their order. `first` is the first of these events. Sets `seen` for each of them. */
static int gmlo_plan_remakes(const gmlake_offload_plan *plan, size_t first, unsigned char *seen) {
  const gmlake_offload_graph *graph = plan->graph;
  const gmlake_offload_event *event = &plan->events[first];
  size_t i = first, count = plan->info.event_count, n = graph->access_begin[event->tensor];
  size_t after = gmlo_event_after(graph, event);
  for (; n < graph->access_begin[event->tensor + 1]; n++) {
    if (graph->accesses[n].position >= after) break;
    if ((graph->accesses[n].how & GMLO_WRITES) == 0) continue;
    if (i == count || plan->events[i].op != graph->accesses[n].op) return 0;
    seen[i] = 1;
    i = gmlo_plan_next_remake(plan, i);
  }
  return i == count;
}

static gmlake_offload_result gmlo_plan_check_remakes(const gmlake_offload_plan *plan) {
  unsigned char *seen = (unsigned char *)gmlo_zeroed(&plan->host, plan->info.event_count, 1);
  size_t i;
  int sound = 1;
  if (seen == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  for (i = 0; i < plan->info.event_count && sound; i++) {
    if (plan->events[i].action != GMLAKE_OFFLOAD_RECOMPUTE || seen[i] != 0) continue;
    sound = gmlo_plan_remakes(plan, i, seen);
  }
  gmlo_free(&plan->host, seen);
  return sound ? GMLAKE_OFFLOAD_OK : GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
}

/* ---- Public functions ---- */

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_plan_create(
    const gmlake_offload_graph *graph, const gmlake_offload_event *events, size_t event_count,
    const gmlake_offload_host *host, gmlake_offload_plan **out_plan) {
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  gmlake_offload_host none;
  size_t i;
  if (out_plan == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_plan = NULL;
  memset(&none, 0, sizeof none);
  if (host == NULL) host = &none;
  if (graph == NULL || (events == NULL && event_count != 0) || !gmlo_host_valid(host)) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  if (!graph->sealed) return GMLAKE_OFFLOAD_ERROR_NOT_SEALED;
  for (i = 0; i < event_count && result == GMLAKE_OFFLOAD_OK; i++) {
    result = gmlo_event_check(graph, &events[i]);
  }
  if (result != GMLAKE_OFFLOAD_OK) return result;
  *out_plan = gmlo_plan_make(graph, events, event_count, host);
  if (*out_plan == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  result = gmlo_plan_check_remakes(*out_plan);
  if (result != GMLAKE_OFFLOAD_OK) {
    gmlake_offload_plan_destroy(*out_plan);
    *out_plan = NULL;
    return result;
  }
  (*out_plan)->info.peak_bytes = graph->info.peak_bytes;
  (*out_plan)->info.time_ns = graph->info.time_ns;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_plan_destroy(gmlake_offload_plan *plan) {
  gmlake_offload_host host;
  if (plan == NULL) return;
  host = plan->host;
  gmlo_free(&host, plan->events);
  gmlo_free(&host, plan);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_plan_get_info(const gmlake_offload_plan *plan, gmlake_offload_plan_info *out_info) {
  if (plan == NULL || out_info == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_info = plan->info;
  return GMLAKE_OFFLOAD_OK;
}

/* ---- >>jobs: what a planner knows of its jobs ---------------------------------------------------
   Owns the jobs of a planner: their graphs, the mean time of each operator, and their present
   plans. >>search makes the plans: it is the only other section that writes here (plan, based_ns,
   changed).
   Cost: linear in the operators of a job. Fails: where host memory is refused. */

typedef struct gmlo_planner_job {
  const gmlake_offload_graph *graph; /* NULL: there is no job of this number */
  double swap_ratio_max;
  double *mean_ns;  /* mean time of each operator */
  double *based_ns; /* the means when the job was planned last */
  gmlake_offload_plan *plan;
  uint64_t plan_count;
  double swapped; /* while planning: gmlo_ratio_of all items with a swapped gap */
} gmlo_planner_job;

struct gmlake_offload_planner {
  gmlake_offload_planner_desc desc;
  gmlo_planner_job *jobs;
  size_t job_count, job_capacity;
  int changed;      /* jobs came or left since the last plan */
  const int *stops; /* of a session's thread, which may be asked to stop; else NULL */
  uint64_t work;    /* steps of all plans so far */
};

static uint64_t gmlo_mean(const gmlo_planner_job *job, uint32_t op) {
  return job->mean_ns[op] >= 1 ? (uint64_t)job->mean_ns[op] : 1;
}

static double gmlo_planner_job_drift(const gmlo_planner_job *job) {
  double moved = 0, sum = 0;
  size_t i;
  for (i = 0; i < job->graph->op_count; i++) {
    double change = job->mean_ns[i] - job->based_ns[i];
    moved += change < 0 ? -change : change;
    sum += job->based_ns[i];
  }
  return sum > 0 ? moved / sum : 0;
}

static void gmlo_planner_job_leave(gmlake_offload_planner *planner, gmlo_planner_job *job) {
  gmlake_offload_plan_destroy(job->plan);
  gmlo_free(&planner->desc.host, job->mean_ns);
  gmlo_free(&planner->desc.host, job->based_ns);
  memset(job, 0, sizeof *job);
}

static gmlake_offload_result gmlo_planner_job_init(gmlake_offload_planner *planner,
                                                   gmlo_planner_job *job,
                                                   const gmlake_offload_job_desc *desc) {
  const gmlake_offload_graph *graph = desc->graph;
  size_t i;
  memset(job, 0, sizeof *job);
  job->mean_ns = (double *)gmlo_zeroed(&planner->desc.host, graph->op_count, sizeof(double));
  job->based_ns = (double *)gmlo_zeroed(&planner->desc.host, graph->op_count, sizeof(double));
  if (job->mean_ns == NULL || job->based_ns == NULL) {
    gmlo_planner_job_leave(planner, job);
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  }
  job->graph = graph;
  job->swap_ratio_max = desc->swap_ratio_max == 0 ? 1 : desc->swap_ratio_max;
  for (i = 0; i < graph->op_count; i++) {
    job->mean_ns[i] = job->based_ns[i] = (double)graph->ops[i].time_ns;
  }
  return GMLAKE_OFFLOAD_OK;
}

static gmlake_offload_result gmlo_planner_add(gmlake_offload_planner *planner,
                                              const gmlake_offload_job_desc *desc,
                                              uint32_t *out_job) {
  gmlake_offload_result result;
  size_t j;
  if (gmlo_more(&planner->desc.host, &planner->jobs, planner->job_count, 1, &planner->job_capacity,
                sizeof *planner->jobs) == NULL) {
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  }
  for (j = 0; j < planner->job_count && planner->jobs[j].graph != NULL; j++) continue;
  result = gmlo_planner_job_init(planner, &planner->jobs[j], desc);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (j == planner->job_count) planner->job_count++;
  planner->changed = 1;
  *out_job = (uint32_t)j;
  return GMLAKE_OFFLOAD_OK;
}

static gmlo_planner_job *gmlo_planner_find(const gmlake_offload_planner *planner, uint32_t job) {
  if (job >= planner->job_count || planner->jobs[job].graph == NULL) return NULL;
  return &planner->jobs[job];
}

static size_t gmlo_planner_bytes(const gmlake_offload_planner *planner) {
  size_t j, bytes = 0;
  for (j = 0; j < planner->job_count; j++) {
    if (planner->jobs[j].graph != NULL) bytes += planner->jobs[j].graph->info.peak_bytes;
  }
  return bytes;
}

static size_t gmlo_planner_job_count(const gmlake_offload_planner *planner) {
  size_t j, count = 0;
  for (j = 0; j < planner->job_count; j++) count += planner->jobs[j].graph != NULL;
  return count;
}

static int gmlo_planner_desc_valid(const gmlake_offload_planner_desc *desc) {
  return (desc->flags & ~GMLAKE_OFFLOAD_PAPER) == 0 && desc->target_bytes <= GMLO_BYTES_MAX &&
         gmlo_figure_valid(desc->out_bytes_per_s) && gmlo_figure_valid(desc->in_bytes_per_s) &&
         gmlo_figure_valid(desc->both_bytes_per_s) && gmlo_figure_valid(desc->overhead_max) &&
         desc->overhead_max <= 1e6 && gmlo_figure_valid(desc->smoothing) && desc->smoothing <= 1 &&
         desc->copy_ns <= GMLO_TIME_MAX && gmlo_host_valid(&desc->host);
}

static void gmlo_planner_desc_fill(gmlake_offload_planner_desc *desc) {
  int paper = (desc->flags & GMLAKE_OFFLOAD_PAPER) != 0;
  gmlo_figure_default(&desc->out_bytes_per_s, GMLO_LINK_BYTES_PER_S);
  gmlo_figure_default(&desc->in_bytes_per_s, GMLO_LINK_BYTES_PER_S);
  gmlo_figure_default(&desc->both_bytes_per_s, GMLO_BOTH_BYTES_PER_S);
  gmlo_figure_default(&desc->smoothing, .2);
  if (desc->tensor_bytes_min == 0 && paper) desc->tensor_bytes_min = 1;
  if (desc->copy_ns == 0) desc->copy_ns = GMLO_COPY_NS;
}

/* ---- Public functions ---- */

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_planner_create(
    const gmlake_offload_planner_desc *desc, gmlake_offload_planner **out_planner) {
  gmlake_offload_planner_desc filled;
  if (out_planner == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_planner = NULL;
  memset(&filled, 0, sizeof filled);
  if (desc != NULL) filled = *desc;
  if (!gmlo_planner_desc_valid(&filled)) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  gmlo_planner_desc_fill(&filled);
  *out_planner = (gmlake_offload_planner *)gmlo_zeroed(&filled.host, 1, sizeof **out_planner);
  if (*out_planner == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  (*out_planner)->desc = filled;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_planner_destroy(gmlake_offload_planner *planner) {
  gmlake_offload_host host;
  size_t j;
  if (planner == NULL) return;
  host = planner->desc.host;
  for (j = 0; j < planner->job_count; j++) gmlo_planner_job_leave(planner, &planner->jobs[j]);
  gmlo_free(&host, planner->jobs);
  gmlo_free(&host, planner);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_add_job(gmlake_offload_planner *planner,
                                                                const gmlake_offload_job_desc *desc,
                                                                uint32_t *out_job) {
  size_t j, bytes = 0;
  if (out_job == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_job = GMLAKE_OFFLOAD_NONE;
  if (planner == NULL || desc == NULL || desc->graph == NULL ||
      !gmlo_figure_valid(desc->swap_ratio_max)) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  if (!desc->graph->sealed) return GMLAKE_OFFLOAD_ERROR_NOT_SEALED;
  if (!gmlo_graph_has_one_device(desc->graph)) return GMLAKE_OFFLOAD_ERROR_WRONG_DEVICE;
  for (j = 0; j < planner->job_count; j++) {
    if (planner->jobs[j].graph != NULL) bytes += planner->jobs[j].graph->tensor_bytes;
  }
  if (!gmlo_sum_valid(desc->graph, bytes)) return GMLAKE_OFFLOAD_ERROR_SIZE_OVERFLOW;
  return gmlo_planner_add(planner, desc, out_job);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_remove_job(gmlake_offload_planner *planner,
                                                                   uint32_t job) {
  gmlo_planner_job *j;
  if (planner == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  j = gmlo_planner_find(planner, job);
  if (j == NULL) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  gmlo_planner_job_leave(planner, j);
  planner->changed = 1;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_observe(gmlake_offload_planner *planner,
                                                                uint32_t job, uint32_t op,
                                                                uint64_t time_ns) {
  gmlo_planner_job *j;
  if (planner == NULL || time_ns > GMLO_TIME_MAX) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  j = gmlo_planner_find(planner, job);
  if (j == NULL || op >= j->graph->op_count) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  if (time_ns > GMLO_TIME_MAX / j->graph->op_count) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  j->mean_ns[op] += planner->desc.smoothing * ((double)time_ns - j->mean_ns[op]);
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_take_plan(gmlake_offload_planner *planner,
                                                                  uint32_t job,
                                                                  gmlake_offload_plan **out_plan) {
  const gmlake_offload_plan_info *info;
  gmlo_planner_job *j;
  if (out_plan == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_plan = NULL;
  if (planner == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  j = gmlo_planner_find(planner, job);
  if (j == NULL || j->plan == NULL) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  info = &j->plan->info;
  *out_plan = gmlo_plan_make(j->graph, info->events, info->event_count, &planner->desc.host);
  if (*out_plan == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  (*out_plan)->info.peak_bytes = info->peak_bytes;
  (*out_plan)->info.time_ns = info->time_ns;
  (*out_plan)->info.added_ns = info->added_ns;
  (*out_plan)->pauses = j->plan->pauses;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_get_job_info(
    const gmlake_offload_planner *planner, uint32_t job, gmlake_offload_job_info *out_info) {
  gmlake_offload_job_info info;
  size_t i;
  double sum = 0;
  gmlo_planner_job *j;
  if (planner == NULL || out_info == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  j = gmlo_planner_find(planner, job);
  if (j == NULL) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  memset(&info, 0, sizeof info);
  for (i = 0; i < j->graph->op_count; i++) sum += j->mean_ns[i];
  info.unplanned_bytes = j->graph->info.peak_bytes;
  info.planned_bytes = j->plan != NULL ? j->plan->info.peak_bytes : info.unplanned_bytes;
  info.time_ns = (uint64_t)sum;
  info.plan_count = j->plan_count;
  info.drift = gmlo_planner_job_drift(j);
  return gmlo_fill_info(out_info, &info, sizeof info);
}

/* ---- >>cyclic: the slots of an iteration --------------------------------------------------------
   Owns the times of the slots, the steps (operators in time), and for each tensor its uses, with
   the gap behind each use. Times are nanoseconds since the cyclic schedule's begin. A time in the
   next iteration is one period larger. Invariants:
   [C1] slot_begin rises strictly. Slot i is the time from slot_begin[i] up to slot_begin[i + 1];
        the last slot ends where the period ends. A step covers the whole slots lo to hi.
   [C2] The operator of a step ends idle_ns before its last slot ends. In the time between, the job
        waits for a swap.
   [C3] The uses of an item, use_begin up to use_end - 1, are in order of time. No two are of one
        step.
   [C4] gaps[u] lies behind uses[u]. Its state is GMLO_NO_GAP behind the last use of a tensor that
        is not persistent. absent_lo and absent_count are slots; behind the last slot, slot 0 comes
        again.
   Cost: building is O(n log n) for several jobs, linear for one. Fails: where host memory is
   refused. */

typedef struct gmlo_step {
  uint32_t job, op;
  size_t lo, hi;
  uint64_t idle_ns;
} gmlo_step;

typedef struct gmlo_item {
  uint32_t job, tensor;
  size_t bytes;
  size_t use_begin, use_end;
  size_t lo, hi;        /* slots of the first and the last use */
  int made;             /* it is an INTERMEDIATE or OUTPUT */
  int written;          /* an operator writes it */
  size_t swapped_count; /* gaps that are GMLO_SWAPPED */
} gmlo_item;

typedef struct gmlo_use {
  size_t step;
  unsigned how; /* GMLO_READS, GMLO_WRITES */
} gmlo_use;

typedef enum gmlo_gap_state {
  GMLO_KEPT = 0,
  GMLO_SWAPPED,
  GMLO_DROPPED,
  GMLO_NO_GAP
} gmlo_gap_state;

typedef struct gmlo_gap {
  gmlo_gap_state state;
  size_t needed; /* first step in this gap at which a recomputation reads the tensor, + 1 */
  int copies;    /* swapped: the swap out copies */
  int alone[2];  /* swapped: that copy has both directions of the link for itself; see >>link */
  uint32_t part; /* the gap's first part, see >>itree; + 1, 0: it has none */
  uint64_t out_start, out_end, in_start, in_end;
  size_t absent_lo, absent_count;
  const gmlo_item *dropped; /* if it is dropped: the tensor */
  size_t dropped_before;    /* use of the gap that was dropped before this one, + 1 */
} gmlo_gap;

typedef struct gmlo_span {
  uint64_t end, begin;
} gmlo_span;

/* One direction of the link; see >>link. */
typedef struct gmlo_lane {
  gmlo_span *spans;
  size_t count, capacity;
  double bytes_per_s, alone_bytes_per_s; /* while the other direction is busy too, and is not */
} gmlo_lane;

/* See >>itree. */
typedef struct gmlo_part {
  uint32_t item, use;  /* the use before the gap */
  uint32_t wraps;      /* 1: its slots are those of the next period */
  uint32_t first, end; /* its slots: first up to end - 1 */
  uint32_t lo, hi;     /* of them, those for which the link may have time */
  double key;          /* of several parts the one with the largest key is taken; */
  double key_max;      /* it falls from here; see [D3] */
} gmlo_part;

/* Of a heap: its part, its first child, the next child of its parent; or GMLAKE_OFFLOAD_NONE. */
typedef struct gmlo_cell {
  double key; /* of the part when it was put here; see [D3] */
  uint32_t part, child, next;
} gmlo_cell;

#define GMLO_CYCLIC_WORK 8 /* steps that making the cyclic schedule takes for each use, about */

typedef struct gmlo_profile { /* see >>profile */
  int64_t *tree_max, *tree_add;
  size_t leaf_count, slot_count;
} gmlo_profile;

/* Which candidate is tried first. */
typedef enum gmlo_preference {
  GMLO_GREEDY =
      0, /* the largest, and all candidates of a slot before the next peak: as in paper mode */
  GMLO_LARGEST,
  GMLO_FARTHEST, /* its next use is */
  GMLO_AREA,     /* bytes times the length of the gap */
  GMLO_RATE      /* bytes times the time of absence, for its time on the link */
} gmlo_preference;

/* How a plan is made. */
typedef struct gmlo_mode {
  gmlo_preference order;
  int packed;    /* a copy in touches the one before it, if no other one fits between them */
  int exclusive; /* a copy takes both directions where the other one is free [L3] */
  int keen;      /* stalls between operators beside each other, and for a swap once more, too */
} gmlo_mode;

typedef struct gmlo_cyclic {
  gmlo_scope scope;
  const gmlake_offload_planner_desc *desc;
  gmlo_planner_job *jobs;
  uint64_t *slot_begin;
  size_t slot_count;
  gmlo_step *steps; /* sorted by job, then in the job's order */
  size_t step_count;
  size_t *job_steps; /* those of job j begin at job_steps[j] */
  size_t job_count;  /* of the planner; some may not be on this cyclic schedule */
  gmlo_item *items;  /* largest first */
  size_t item_count;
  size_t *item_base, *item_at; /* tensor t of job j is items[item_at[item_base[j] + t]] */
  gmlo_use *uses;
  gmlo_gap *gaps;
  size_t use_count;
  gmlo_lane lanes[2];
  gmlo_profile profile;
  int paper_mode;             /* in paper mode: one copy at a time, and what else the paper rules */
  int channel[2];             /* the lane whose spans are those of copies out, and in [L4] */
  double overhead;            /* part of base_ns that may be added */
  uint64_t base_ns, added_ns; /* the period is their sum; added: waits and recomputation */
  size_t last_dropped;        /* use of the gap that was dropped last, + 1 */
  uint64_t noise;             /* state of the random numbers; 0: none */
  gmlo_part *parts;           /* see >>itree */
  size_t part_count;
  gmlo_cell *cells;
  size_t cell_count, cell_capacity;
  uint32_t *heaps;
  gmlo_mode mode;
  int strict;        /* what time is spent for does not depend on what is left of it */
  int64_t low_bytes; /* the lowest peak since time was spent, */
  uint64_t low_ns;   /* and what was added then */
  int freed, failed; /* swaps were taken back since the heaps were filled; memory was refused */
  uint64_t work, work_max; /* steps so far, about 10 ns each; no further swap above the maximum */
  const int *stops;        /* see gmlake_offload_planner */
} gmlo_cyclic;

static uint64_t gmlo_period(const gmlo_cyclic *c) { return c->slot_begin[c->slot_count]; }

static uint64_t gmlo_step_begin(const gmlo_cyclic *c, size_t step) {
  return c->slot_begin[c->steps[step].lo];
}

/* When the operator ends, if it begins in time: before the wait behind it. [C2] */
static uint64_t gmlo_step_end(const gmlo_cyclic *c, size_t step) {
  return c->slot_begin[c->steps[step].hi + 1] - c->steps[step].idle_ns;
}

/* The largest i up to slot_count whose slot_begin[i] <= t. pre: t is at most the period. */
static size_t gmlo_slot_floor(const gmlo_cyclic *c, uint64_t t) {
  return gmlo_count_to(c->slot_begin, c->slot_count + 1, sizeof t, t) - 1;
}

/* The last boundary of slots at or before t. Slots are counted on in the next periods. */
static size_t gmlo_boundary_before(const gmlo_cyclic *c, uint64_t t) {
  uint64_t period = gmlo_period(c), periods = t / period;
  return (size_t)periods * c->slot_count + gmlo_slot_floor(c, t - periods * period);
}

/* The first boundary of slots at or after t, counted likewise. */
static size_t gmlo_boundary_after(const gmlo_cyclic *c, uint64_t t) {
  return t != 0 ? gmlo_boundary_before(c, t - 1) + 1 : 0;
}

static int gmlo_earlier(const void *a, const void *b) {
  return *(const uint64_t *)a < *(const uint64_t *)b;
}

/* Makes the slots from the times at which operators of any job end. [C1] */
static int gmlo_cyclic_make_slots(gmlo_cyclic *c) {
  size_t i, j, n = 0, count = 0;
  uint64_t *room = (uint64_t *)gmlo_take(&c->scope, c->step_count + c->job_count + 1, sizeof *room);
  uint64_t *ends = (uint64_t *)gmlo_take(&c->scope, c->step_count, sizeof *ends);
  c->slot_begin =
      (uint64_t *)gmlo_take(&c->scope, c->step_count + c->job_count + 1, sizeof *c->slot_begin);
  if (room == NULL || ends == NULL || c->slot_begin == NULL) return 0;
  c->slot_begin[count++] = 0;
  for (j = 0; j < c->job_count; j++) {
    uint64_t t = 0;
    for (i = c->job_steps[j]; i < c->job_steps[j + 1]; i++) {
      t += gmlo_mean(&c->jobs[j], c->steps[i].op);
      ends[i] = t;
      c->slot_begin[count++] = t;
    }
  }
  gmlo_sort(c->slot_begin, room, count, sizeof *room, gmlo_earlier);
  for (i = 1; i < count; i++) {
    if (c->slot_begin[i] != c->slot_begin[n]) c->slot_begin[++n] = c->slot_begin[i];
  }
  c->slot_count = n;
  for (j = 0; j < c->job_count; j++) {
    size_t lo = 0;
    for (i = c->job_steps[j]; i < c->job_steps[j + 1]; i++) {
      c->steps[i].lo = lo;
      lo = gmlo_slot_floor(c, ends[i]);
      c->steps[i].hi = lo - 1;
    }
  }
  return 1;
}

/* Makes the steps of job `only`, or of all jobs if it is GMLAKE_OFFLOAD_NONE. */
static int gmlo_cyclic_make_steps(gmlo_cyclic *c, uint32_t only) {
  size_t i, j;
  c->job_steps = (size_t *)gmlo_take(&c->scope, c->job_count + 1, sizeof *c->job_steps);
  if (c->job_steps == NULL) return 0;
  for (j = 0; j < c->job_count; j++) {
    int here = c->jobs[j].graph != NULL && (only == GMLAKE_OFFLOAD_NONE || only == j);
    c->job_steps[j + 1] = c->job_steps[j] + (here ? c->jobs[j].graph->op_count : 0);
  }
  c->step_count = c->job_steps[c->job_count];
  c->steps = (gmlo_step *)gmlo_take(&c->scope, c->step_count, sizeof *c->steps);
  if (c->steps == NULL) return 0;
  for (j = 0; j < c->job_count; j++) {
    for (i = c->job_steps[j]; i < c->job_steps[j + 1]; i++) {
      GMLAKE_OFFLOAD_ASSERT(c->jobs[j].graph != NULL);
      c->steps[i].job = (uint32_t)j;
      c->steps[i].op = c->jobs[j].graph->order[i - c->job_steps[j]];
    }
  }
  return gmlo_cyclic_make_slots(c);
}

static void gmlo_item_init(gmlo_cyclic *c, gmlo_item *item) {
  const gmlake_offload_graph *graph = c->jobs[item->job].graph;
  uint32_t tensor = item->tensor;
  size_t i, begin = graph->access_begin[tensor], end = graph->access_begin[tensor + 1];
  item->made = gmlo_kind_is_made(graph->tensors[tensor].kind);
  item->use_begin = c->use_count;
  for (i = begin; i < end; i++) {
    gmlo_use *use = &c->uses[c->use_count++];
    use->step = c->job_steps[item->job] + graph->accesses[i].position;
    use->how = graph->accesses[i].how;
    item->written |= (use->how & GMLO_WRITES) != 0;
  }
  item->use_end = c->use_count;
  if (end == begin) return;
  item->lo = c->steps[c->uses[item->use_begin].step].lo;
  item->hi = c->steps[c->uses[item->use_end - 1].step].hi;
  if (item->made) c->gaps[c->use_count - 1].state = GMLO_NO_GAP;
}

static int gmlo_larger(const void *a, const void *b) {
  return ((const gmlo_item *)a)->bytes > ((const gmlo_item *)b)->bytes;
}

/* Notes where the tensors of each job are among the items. */
static int gmlo_cyclic_make_index(gmlo_cyclic *c) {
  size_t i, j;
  c->item_base = (size_t *)gmlo_take(&c->scope, c->job_count + 1, sizeof *c->item_base);
  c->item_at = (size_t *)gmlo_take(&c->scope, c->item_count, sizeof *c->item_at);
  if (c->item_base == NULL || c->item_at == NULL) return 0;
  for (j = 0; j < c->job_count; j++) {
    int here = c->job_steps[j] != c->job_steps[j + 1];
    c->item_base[j + 1] = c->item_base[j] + (here ? c->jobs[j].graph->tensor_count : 0);
  }
  for (i = 0; i < c->item_count; i++) {
    c->item_at[c->item_base[c->items[i].job] + c->items[i].tensor] = i;
  }
  return 1;
}

/* Makes the tensors of all its jobs items, the largest first, with their uses. */
static int gmlo_cyclic_make_items(gmlo_cyclic *c) {
  size_t i, j, t, count = 0, uses = 0;
  for (j = 0; j < c->job_count; j++) {
    if (c->job_steps[j] == c->job_steps[j + 1]) continue;
    c->item_count += c->jobs[j].graph->tensor_count;
    uses += c->jobs[j].graph->access_count;
  }
  c->items = (gmlo_item *)gmlo_take(&c->scope, c->item_count, 2 * sizeof *c->items);
  c->uses = (gmlo_use *)gmlo_take(&c->scope, uses, sizeof *c->uses);
  c->gaps = (gmlo_gap *)gmlo_take(&c->scope, uses, sizeof *c->gaps);
  if (c->items == NULL || c->uses == NULL || c->gaps == NULL) return 0;
  for (j = 0; j < c->job_count; j++) {
    if (c->job_steps[j] == c->job_steps[j + 1]) continue;
    for (t = 0; t < c->jobs[j].graph->tensor_count; t++, count++) {
      c->items[count].bytes = c->jobs[j].graph->tensors[t].bytes;
      c->items[count].job = (uint32_t)j;
      c->items[count].tensor = (uint32_t)t;
    }
  }
  gmlo_sort(c->items, c->items + count, count, sizeof *c->items, gmlo_larger);
  for (i = 0; i < count; i++) gmlo_item_init(c, &c->items[i]);
  return 1;
}

/* ---- >>link: when a direction of the link is free -----------------------------------------------
   Owns the lanes: each has the spans of time in which one direction is taken. Invariants:
   [L1] The spans lie in one period, sorted, and neither overlap nor touch. What goes past the end
        of the period continues at 0 as a span of its own.
   [L2] What was taken can be given back. A piece of time that finds no room for its span, since
        host memory is refused, sets `failed`: then the cyclic schedule is none.
   [L3] A copy that is planned at the speed of one direction alone takes the time of both lanes.
   [L4] In paper mode there is one channel (4.1): copies in are spans of the lane of copies out.
   Cost: searching is O(log spans) and linear in the spans that are passed, changing is linear in
   spans. Fails: where host memory is refused. */

#define GMLO_PASSED_SPANS 8 /* so many spans that are passed in a search are one step of work, */
#define GMLO_MOVED_SPANS 64 /* and so many that are moved */

static uint64_t gmlo_lane_copy_ns(const gmlo_cyclic *c, int lane, size_t bytes, int alone) {
  const gmlo_lane *l = &c->lanes[lane];
  return gmlo_copy_time(bytes, alone ? l->alone_bytes_per_s : l->bytes_per_s) + c->desc->copy_ns;
}

/* The first span that ends after t, or the number of spans. */
static size_t gmlo_lane_find(const gmlo_lane *l, uint64_t t) {
  return gmlo_count_to(l->spans, l->count, sizeof *l->spans, t);
}

/* Finds the earliest begin of `length` free nanoseconds between lo and hi. 0 if there is none. */
static int gmlo_lane_earliest(gmlo_cyclic *c, int lane, uint64_t lo, uint64_t hi, uint64_t length,
                              uint64_t *out_begin) {
  const gmlo_lane *l = &c->lanes[c->channel[lane]];
  uint64_t period = gmlo_period(c), base = lo / period * period;
  size_t i = gmlo_lane_find(l, lo - base), passed = 0;
  if (length > period) return 0;
  for (; lo + length <= hi; passed++) {
    if (i == l->count) {
      i = 0;
      base += period;
      if (l->count == 0 || l->spans[0].begin + base >= lo + length) break;
    } else if (l->spans[i].begin + base >= lo + length) {
      break;
    }
    if (l->spans[i].end + base > lo) lo = l->spans[i].end + base;
    i++;
  }
  c->work += passed / GMLO_PASSED_SPANS;
  *out_begin = lo;
  return lo + length <= hi;
}

/* Finds the latest begin likewise. */
static int gmlo_lane_latest(gmlo_cyclic *c, int lane, uint64_t lo, uint64_t hi, uint64_t length,
                            uint64_t *out_begin) {
  const gmlo_lane *l = &c->lanes[c->channel[lane]];
  uint64_t period = gmlo_period(c), base = hi / period * period;
  size_t i = gmlo_lane_find(l, hi - base), passed = 0;
  if (length > period) return 0;
  if (i < l->count && l->spans[i].begin + base < hi) i++; /* that begin before hi */
  for (; hi >= length && hi - length >= lo; passed++) {
    if (i == 0) {
      if (base == 0 || l->count == 0) break;
      i = l->count;
      base -= period;
    }
    if (l->spans[i - 1].end + base <= hi - length) break;
    if (l->spans[i - 1].begin + base < hi) hi = l->spans[i - 1].begin + base;
    i--;
  }
  c->work += passed / GMLO_PASSED_SPANS;
  if (hi < length || hi - length < lo) return 0;
  *out_begin = hi - length;
  return 1;
}

/* How long the lane is free before t, up to `most`. pre: it is free at once before t, or taken. */
static uint64_t gmlo_lane_room(const gmlo_cyclic *c, int lane, uint64_t t, uint64_t most) {
  const gmlo_lane *l = &c->lanes[c->channel[lane]];
  uint64_t period = gmlo_period(c), low = t % period, end;
  size_t i;
  if (l->count == 0) return most;
  i = gmlo_lane_find(l, low);
  if (i < l->count && l->spans[i].begin < low) return 0;
  end = i > 0 ? l->spans[i - 1].end : l->spans[l->count - 1].end;
  low = i > 0 ? low - end : low + period - end;
  return low < most ? low : most;
}

/* Whether nothing is under way in the lane in that time, which begins in the first period. */
static int gmlo_lane_is_free(gmlo_cyclic *c, int lane, uint64_t begin, uint64_t end) {
  uint64_t at;
  return gmlo_lane_earliest(c, lane, begin, end, end - begin, &at);
}

/* Finds time for a copy between lo and hi: the latest or the earliest. It has both directions for
   itself if the other one is free then; else the time for it is that while both are busy. 0 if
   there is none. */
static int gmlo_lane_place(gmlo_cyclic *c, int lane, uint64_t lo, uint64_t hi, size_t bytes,
                           uint64_t *begin, uint64_t *end, int *alone) {
  int (*find)(gmlo_cyclic *, int, uint64_t, uint64_t, uint64_t, uint64_t *) =
      lane == GMLO_IN ? gmlo_lane_latest : gmlo_lane_earliest;
  uint64_t length = gmlo_lane_copy_ns(c, lane, bytes, 1);
  *alone = 1;
  if (!c->mode.exclusive || !find(c, lane, lo, hi, length, begin) ||
      !gmlo_lane_is_free(c, !lane, *begin, *begin + length)) {
    *alone = 0;
    length = gmlo_lane_copy_ns(c, lane, bytes, 0);
    if (!find(c, lane, lo, hi, length, begin)) return 0;
  }
  *end = *begin + length;
  return 1;
}

/* Makes room for one more span before span i. NULL, and `failed`, if host memory is refused. */
static gmlo_span *gmlo_lane_open(gmlo_cyclic *c, gmlo_lane *l, size_t i) {
  if (gmlo_more(&c->scope.host, &l->spans, l->count, 1, &l->capacity, sizeof *l->spans) == NULL) {
    c->failed = 1;
    return NULL;
  }
  memmove(&l->spans[i + 1], &l->spans[i], (l->count++ - i) * sizeof *l->spans);
  return &l->spans[i];
}

/* Adds a piece of time. pre: it is free, and lies in one period. */
static void gmlo_lane_insert(gmlo_cyclic *c, gmlo_lane *l, uint64_t begin, uint64_t end) {
  size_t i = gmlo_lane_find(l, begin);
  int low = i > 0 && l->spans[i - 1].end == begin;
  int high = i < l->count && l->spans[i].begin == end;
  gmlo_span *span;
  if (low && high) {
    l->spans[i - 1].end = l->spans[i].end;
    memmove(&l->spans[i], &l->spans[i + 1], (--l->count - i) * sizeof *l->spans);
  } else if (low) {
    l->spans[i - 1].end = end;
  } else if (high) {
    l->spans[i].begin = begin;
  } else if ((span = gmlo_lane_open(c, l, i)) != NULL) {
    span->begin = begin;
    span->end = end;
  }
}

/* Removes a piece of time that was added. [L2] */
static void gmlo_lane_remove(gmlo_cyclic *c, gmlo_lane *l, uint64_t begin, uint64_t end) {
  size_t i = gmlo_lane_find(l, begin);
  gmlo_span *span = &l->spans[i];
  if (c->failed) return;
  GMLAKE_OFFLOAD_ASSERT(i < l->count && span->begin <= begin && end <= span->end);
  if (span->begin == begin && span->end == end) {
    memmove(span, span + 1, (--l->count - i) * sizeof *span);
  } else if (span->begin == begin) {
    span->begin = end;
  } else if (span->end == end) {
    span->end = begin;
  } else if ((span = gmlo_lane_open(c, l, i)) != NULL) {
    span[0].begin = span[1].begin;
    span[0].end = begin;
    span[1].begin = end;
  }
}

/* Adds or removes a span that may lie behind the end of the period. [L1] */
static void gmlo_lane_change(gmlo_cyclic *c, int lane, uint64_t begin, uint64_t end, int insert) {
  uint64_t period = gmlo_period(c), low = begin % period, high = low + end - begin;
  void (*change)(gmlo_cyclic *, gmlo_lane *, uint64_t, uint64_t) =
      insert ? gmlo_lane_insert : gmlo_lane_remove;
  gmlo_lane *l = &c->lanes[c->channel[lane]];
  c->work += l->count / GMLO_MOVED_SPANS; /* that are moved */
  if (begin == end) return;
  change(c, l, low, high < period ? high : period);
  if (high > period) change(c, l, 0, high - period);
}

/* Adds or removes the copies of a swap. [L3] */
static void gmlo_lanes_change(gmlo_cyclic *c, const gmlo_gap *gap, int insert) {
  gmlo_lane_change(c, GMLO_OUT, gap->out_start, gap->out_end, insert);
  if (gap->alone[GMLO_OUT]) gmlo_lane_change(c, GMLO_IN, gap->out_start, gap->out_end, insert);
  gmlo_lane_change(c, GMLO_IN, gap->in_start, gap->in_end, insert);
  if (gap->alone[GMLO_IN]) gmlo_lane_change(c, GMLO_OUT, gap->in_start, gap->in_end, insert);
}

/* Time t is inserted at x in each period. Moves a swap's copy along: its length stays the same. */
static void gmlo_shift(uint64_t *begin, uint64_t *end, uint64_t x, uint64_t t, uint64_t period) {
  uint64_t length = *end - *begin, periods = *begin / period, rest = *begin % period;
  *begin = periods * (period + t) + rest + (rest >= x ? t : 0);
  *end = *begin + length;
}

/* Puts the copies of all swaps into the lanes anew. */
static void gmlo_lanes_fill(gmlo_cyclic *c) {
  size_t i;
  c->lanes[GMLO_OUT].count = c->lanes[GMLO_IN].count = 0;
  for (i = 0; i < c->use_count; i++) {
    const gmlo_gap *gap = &c->gaps[i];
    if (gap->state != GMLO_SWAPPED) continue;
    gmlo_lanes_change(c, gap, 1);
  }
}

/* Makes the slot before boundary `slot` (above 0) longer by t. All that begins behind it moves
   along. A tensor is then still absent from the slots noted in its gap; there may be others that
   are not noted. */
static void gmlo_cyclic_stretch(gmlo_cyclic *c, size_t slot, uint64_t t) {
  uint64_t x = c->slot_begin[slot], period = gmlo_period(c);
  size_t i;
  for (i = slot; i <= c->slot_count; i++) c->slot_begin[i] += t;
  c->added_ns += t;
  for (i = 0; i < c->use_count; i++) {
    gmlo_gap *gap = &c->gaps[i];
    if (gap->state != GMLO_SWAPPED) continue;
    gmlo_shift(&gap->out_start, &gap->out_end, x, t, period);
    gmlo_shift(&gap->in_start, &gap->in_end, x, t, period);
  }
  gmlo_lanes_fill(c);
}

/* ---- >>profile: bytes in each slot --------------------------------------------------------------
   Owns a binary tree over the slots, with a power of two of leaves. Invariant:
   [P1] tree_max of a node is the largest number of bytes in any of its slots, as far as bytes were
        added to this node or below it. What was added above it (tree_add of its ancestors) is not
        in it. Slots behind slot_count have INT64_MIN / 2.
   Cost: O(log slots); making it is linear. Cannot fail, but where the tree is made. */

static void gmlo_tree_change(gmlo_profile *p, size_t node, size_t first, size_t width, size_t lo,
                             size_t hi, int64_t bytes) {
  size_t half = width / 2;
  if (hi <= first || lo >= first + width) return;
  if (lo <= first && first + width <= hi) {
    p->tree_max[node] += bytes;
    p->tree_add[node] += bytes;
    return;
  }
  gmlo_tree_change(p, 2 * node, first, half, lo, hi, bytes);
  gmlo_tree_change(p, 2 * node + 1, first + half, half, lo, hi, bytes);
  p->tree_max[node] = p->tree_max[2 * node] > p->tree_max[2 * node + 1] ? p->tree_max[2 * node]
                                                                        : p->tree_max[2 * node + 1];
  p->tree_max[node] += p->tree_add[node];
}

static int64_t gmlo_tree_max_in(const gmlo_profile *p, size_t node, size_t first, size_t width,
                                size_t lo, size_t hi) {
  int64_t a, b;
  if (hi <= first || lo >= first + width) return INT64_MIN / 2;
  if (lo <= first && first + width <= hi) return p->tree_max[node];
  a = gmlo_tree_max_in(p, 2 * node, first, width / 2, lo, hi);
  b = gmlo_tree_max_in(p, 2 * node + 1, first + width / 2, width / 2, lo, hi);
  return (a > b ? a : b) + p->tree_add[node];
}

/* Adds bytes (below 0: subtracts) to `count` slots from lo on, around the cyclic schedule. */
static void gmlo_profile_add(gmlo_profile *p, size_t lo, size_t count, int64_t bytes) {
  lo %= p->slot_count;
  if (count > p->slot_count) count = p->slot_count;
  if (lo + count <= p->slot_count) {
    gmlo_tree_change(p, 1, 0, p->leaf_count, lo, lo + count, bytes);
  } else {
    gmlo_tree_change(p, 1, 0, p->leaf_count, lo, p->slot_count, bytes);
    gmlo_tree_change(p, 1, 0, p->leaf_count, 0, lo + count - p->slot_count, bytes);
  }
}

/* The most bytes in any of these slots. */
static int64_t gmlo_profile_max(const gmlo_profile *p, size_t lo, size_t count) {
  int64_t a, b = INT64_MIN / 2;
  lo %= p->slot_count;
  if (lo + count <= p->slot_count) {
    return gmlo_tree_max_in(p, 1, 0, p->leaf_count, lo, lo + count);
  }
  a = gmlo_tree_max_in(p, 1, 0, p->leaf_count, lo, p->slot_count);
  b = gmlo_tree_max_in(p, 1, 0, p->leaf_count, 0, lo + count - p->slot_count);
  return a > b ? a : b;
}

/* The slot that has most bytes, of several the first one. */
static size_t gmlo_profile_peak(const gmlo_profile *p, int64_t *out_bytes) {
  size_t node = 1;
  *out_bytes = p->tree_max[1];
  while (node < p->leaf_count) {
    node = p->tree_max[2 * node] >= p->tree_max[2 * node + 1] ? 2 * node : 2 * node + 1;
  }
  return node - p->leaf_count;
}

/* The last of the slots [lo, hi) that has more than `most`. SIZE_MAX: none has. */
static size_t gmlo_tree_last_above(const gmlo_profile *p, size_t node, size_t first, size_t width,
                                   size_t lo, size_t hi, int64_t most) {
  size_t half = width / 2, at;
  if (hi <= first || lo >= first + width || p->tree_max[node] <= most) return SIZE_MAX;
  if (width == 1) return first;
  most -= p->tree_add[node];
  at = gmlo_tree_last_above(p, 2 * node + 1, first + half, half, lo, hi, most);
  if (at != SIZE_MAX) return at;
  return gmlo_tree_last_above(p, 2 * node, first, half, lo, hi, most);
}

/* From which slot on, at or behind lo, all up to hi have at most so many bytes; counted around, hi
   at most twice the slots. pre: lo < hi. */
static size_t gmlo_profile_since(const gmlo_profile *p, size_t lo, size_t hi, int64_t most) {
  size_t base = (hi - 1) / p->slot_count * p->slot_count, at;
  for (;; base -= p->slot_count) {
    at = gmlo_tree_last_above(p, 1, 0, p->leaf_count, lo > base ? lo - base : 0, hi - base, most);
    if (at != SIZE_MAX) return base + at + 1;
    if (lo >= base) return lo;
    hi = base;
  }
}

/* An empty tree. 0 if host memory is refused. A leaf at first has by how much its slot has more
   than the one before: see gmlo_profile_close. */
static int gmlo_profile_take(gmlo_profile *p, gmlo_scope *scope, size_t slot_count) {
  p->slot_count = slot_count;
  p->leaf_count = 1;
  while (p->leaf_count < slot_count) p->leaf_count *= 2;
  p->tree_max = (int64_t *)gmlo_take(scope, 2 * p->leaf_count, sizeof *p->tree_max);
  p->tree_add = (int64_t *)gmlo_take(scope, 2 * p->leaf_count, sizeof *p->tree_add);
  return p->tree_max != NULL && p->tree_add != NULL;
}

/* Makes the tree of its leaves. */
static void gmlo_profile_close(gmlo_profile *p) {
  int64_t *leaves = p->tree_max + p->leaf_count;
  size_t i;
  for (i = 1; i < p->slot_count; i++) leaves[i] += leaves[i - 1];
  for (i = p->slot_count; i < p->leaf_count; i++) leaves[i] = INT64_MIN / 2;
  for (i = p->leaf_count; i-- > 1;) {
    int64_t low = p->tree_max[2 * i], high = p->tree_max[2 * i + 1];
    p->tree_max[i] = low > high ? low : high;
  }
}

/* Adds each tensor from the operator that makes it to its last use, persistent tensors always. */
static void gmlo_profile_add_items(gmlo_cyclic *c) {
  int64_t *more = c->profile.tree_max + c->profile.leaf_count;
  size_t i;
  for (i = 0; i < c->item_count; i++) {
    const gmlo_item *item = &c->items[i];
    const gmlake_offload_graph *graph = c->jobs[item->job].graph;
    size_t lo = item->lo, hi = item->hi;
    if (item->made && item->use_begin == item->use_end) continue;
    if (!item->made) lo = 0;
    if (graph->tensors[item->tensor].kind == GMLAKE_OFFLOAD_OUTPUT) {
      hi = c->steps[c->job_steps[item->job + 1] - 1].hi;
    }
    more[lo] += (int64_t)item->bytes;
    if (item->made && hi + 1 < c->slot_count) more[hi + 1] -= (int64_t)item->bytes;
  }
}

static int gmlo_profile_make(gmlo_cyclic *c) {
  if (!gmlo_profile_take(&c->profile, &c->scope, c->slot_count)) return 0;
  gmlo_profile_add_items(c);
  gmlo_profile_close(&c->profile);
  return 1;
}

/* ---- >>itree: an interval tree of the gaps, by the slots that they lie over ---------------------
   Owns the parts: a gap is one part, or two where it lies over the end of the period. Over the tree
   of >>profile stand heaps, one for each node. Invariants:
   [D1] If a part may be swapped, then for each slot from lo up to hi - 1 it is in the heap of the
        slot's leaf or of a node above that.
   [D2] Slots of a part below lo, or from hi on, are those for which the link has no time for its
        swap, since it gets no more free time: where it does, lo and hi are widened again.
   [D3] The key of a part may fall while it is in heaps. A cell whose key is above its part's is put
        into its heap anew when it is the first there.
   A part is put into one heap. It goes to the heaps of lower nodes only when it is the first of its
   heap and `lo` and `hi` leave out the slot that is looked for.
   Cost: O(log slots) for each part that is looked at, and for each that goes one node down.
   Fails: where host memory is refused (`failed`). */

#define GMLO_SCAN 16 /* so many parts or uses that are only looked at are one step of work */

static int gmlo_itree_first(const gmlo_cyclic *c, uint32_t a, uint32_t b) {
  const gmlo_cell *x = &c->cells[a], *y = &c->cells[b];
  return x->key > y->key || (x->key == y->key && x->part < y->part);
}

/* Joins two heaps. */
static uint32_t gmlo_itree_join(gmlo_cyclic *c, uint32_t a, uint32_t b) {
  uint32_t high = a, low = b;
  if (a == GMLAKE_OFFLOAD_NONE) return b;
  if (b == GMLAKE_OFFLOAD_NONE) return a;
  if (gmlo_itree_first(c, b, a)) {
    high = b;
    low = a;
  }
  c->cells[low].next = c->cells[high].child;
  c->cells[high].child = low;
  return high;
}

/* Takes the first part off the node's heap: joins its children in pairs, then the pairs. */
static void gmlo_itree_pop(gmlo_cyclic *c, size_t node) {
  uint32_t at = c->cells[c->heaps[node]].child, pairs = GMLAKE_OFFLOAD_NONE;
  c->heaps[node] = GMLAKE_OFFLOAD_NONE;
  while (at != GMLAKE_OFFLOAD_NONE) {
    uint32_t a = at, b = c->cells[a].next;
    at = b != GMLAKE_OFFLOAD_NONE ? c->cells[b].next : b;
    c->cells[a].next = GMLAKE_OFFLOAD_NONE;
    if (b != GMLAKE_OFFLOAD_NONE) c->cells[b].next = GMLAKE_OFFLOAD_NONE;
    a = gmlo_itree_join(c, a, b);
    c->cells[a].next = pairs;
    pairs = a;
  }
  while (pairs != GMLAKE_OFFLOAD_NONE) {
    uint32_t next = c->cells[pairs].next;
    c->cells[pairs].next = GMLAKE_OFFLOAD_NONE;
    c->heaps[node] = gmlo_itree_join(c, c->heaps[node], pairs);
    pairs = next;
  }
}

static void gmlo_itree_push(gmlo_cyclic *c, size_t node, uint32_t part) {
  gmlo_cell *cell = (gmlo_cell *)gmlo_more(&c->scope.host, &c->cells, c->cell_count, 1,
                                           &c->cell_capacity, sizeof *cell);
  if (cell == NULL || c->cell_count >= GMLAKE_OFFLOAD_NONE - 1) {
    c->failed = 1;
    return;
  }
  cell->key = c->parts[part].key;
  cell->part = part;
  cell->child = cell->next = GMLAKE_OFFLOAD_NONE;
  c->heaps[node] = gmlo_itree_join(c, c->heaps[node], (uint32_t)c->cell_count++);
}

/* The link may have time again for all slots of the part. [D2] */
static void gmlo_itree_widen(gmlo_cyclic *c, uint32_t id) {
  gmlo_part *part = &c->parts[id];
  size_t lo = c->profile.leaf_count + part->first, hi = c->profile.leaf_count + part->end - 1;
  part->lo = part->first;
  part->hi = part->end;
  part->key = part->key_max;
  for (; lo != hi; lo /= 2) hi /= 2;
  gmlo_itree_push(c, lo, id);
}

/* The same for all parts. */
static void gmlo_itree_fill(gmlo_cyclic *c) {
  size_t i;
  for (i = 0; i < 2 * c->profile.leaf_count; i++) c->heaps[i] = GMLAKE_OFFLOAD_NONE;
  c->cell_count = 0;
  c->freed = 0;
  c->work += c->profile.leaf_count + 2 * c->part_count;
  for (i = 0; i < c->part_count; i++) gmlo_itree_widen(c, (uint32_t)i);
}

/* The same for all parts that lie over the slot or begin behind it: it has become longer. [C2] */
static void gmlo_itree_widen_at(gmlo_cyclic *c, size_t slot) {
  size_t i, next = slot + 1 == c->slot_count ? 0 : slot + 1;
  c->work += c->part_count / GMLO_SCAN;
  for (i = 0; i < c->part_count; i++) {
    const gmlo_part *part = &c->parts[i];
    if ((part->first <= slot && slot < part->end) || part->first == next) {
      gmlo_itree_widen(c, (uint32_t)i);
    }
  }
}

/* Moves the first part of the node's heap to the nodes below that have slots of it. `width` is that
   of the nodes below. */
static void gmlo_itree_sink(gmlo_cyclic *c, size_t node, size_t width) {
  uint32_t id = c->cells[c->heaps[node]].part;
  const gmlo_part *part = &c->parts[id];
  size_t below;
  gmlo_itree_pop(c, node);
  for (below = 2 * node; width != 0 && below <= 2 * node + 1; below++) {
    size_t first = below * width - c->profile.leaf_count;
    if (part->lo < first + width && part->hi > first) gmlo_itree_push(c, below, id);
  }
}

/* Of the parts over the slot that may be swapped the one with the largest key; NONE: there is none.
   It stays in its heap. */
static uint32_t gmlo_itree_at(gmlo_cyclic *c, size_t slot) {
  while (!c->failed) {
    size_t width = 1, best_width = 0, node, best = 0;
    const gmlo_part *part;
    uint32_t id;
    for (node = c->profile.leaf_count + slot; node != 0; node /= 2, width *= 2) {
      c->work++;
      if (c->heaps[node] == GMLAKE_OFFLOAD_NONE) continue;
      if (best != 0 && !gmlo_itree_first(c, c->heaps[node], c->heaps[best])) continue;
      best = node;
      best_width = width;
    }
    if (best == 0) break;
    id = c->cells[c->heaps[best]].part;
    part = &c->parts[id];
    if (c->gaps[part->use].state != GMLO_KEPT || part->lo >= part->hi) {
      gmlo_itree_pop(c, best);
    } else if (part->key < c->cells[c->heaps[best]].key) {
      gmlo_itree_pop(c, best);
      gmlo_itree_push(c, best, id);
    } else if (slot < part->lo || slot >= part->hi) {
      gmlo_itree_sink(c, best, best_width / 2);
    } else {
      return id;
    }
  }
  return GMLAKE_OFFLOAD_NONE;
}

/* ---- A whole cyclic schedule ---- */

static void gmlo_cyclic_leave(gmlo_cyclic *c) {
  gmlo_free(&c->scope.host, c->lanes[GMLO_OUT].spans);
  gmlo_free(&c->scope.host, c->lanes[GMLO_IN].spans);
  gmlo_free(&c->scope.host, c->cells);
  gmlo_leave(&c->scope);
}

/* Makes the cyclic schedule of job `only`, or of all jobs. Each direction has `share` of its speed.
   By default that is the speed that it has while the other one is busy too. 0 if host memory is
   refused. It is to be left in any case. */
static int gmlo_cyclic_begin(gmlo_cyclic *c, const gmlake_offload_planner *planner, uint32_t only,
                             double share) {
  const gmlake_offload_planner_desc *desc = &planner->desc;
  int lane;
  size_t j;
  memset(c, 0, sizeof *c);
  c->scope = gmlo_scope_of(&desc->host);
  c->desc = desc;
  c->work_max = UINT64_MAX;
  c->stops = planner->stops;
  c->paper_mode = (desc->flags & GMLAKE_OFFLOAD_PAPER) != 0;
  c->channel[GMLO_IN] = c->paper_mode ? GMLO_OUT : GMLO_IN;
  c->jobs = planner->jobs;
  c->job_count = planner->job_count;
  for (j = 0; j < c->job_count; j++) c->jobs[j].swapped = 0;
  for (lane = 0; lane < 2; lane++) {
    double speed = lane == GMLO_OUT ? desc->out_bytes_per_s : desc->in_bytes_per_s;
    c->lanes[lane].bytes_per_s = c->lanes[lane].alone_bytes_per_s = share * speed;
    if (c->paper_mode || desc->both_bytes_per_s / 2 >= speed) continue;
    c->lanes[lane].bytes_per_s = share * (desc->both_bytes_per_s / 2);
  }
  if (!gmlo_cyclic_make_steps(c, only) || !gmlo_cyclic_make_items(c) ||
      !gmlo_cyclic_make_index(c) || !gmlo_profile_make(c)) {
    return 0;
  }
  c->base_ns = gmlo_period(c);
  c->work = GMLO_CYCLIC_WORK * c->use_count; /* that were looked at */
  return 1;
}

/* ---- >>swap: what leaves, when, and when it comes back ------------------------------------------
   Works on one cyclic schedule. Invariants, also of >>cost:
   [T1] The swap out of a swapped gap lies behind the use before the gap and before the swap in. The
        swap in ends before the use behind the gap. Both are spans of the lanes.
   [T2] The profile counts a tensor in each slot in which it is on the device for any part of the
        slot; in paper mode not while it comes back.
   [T3] What a recomputation reads is on the device by then and was not written since: `needed` of
        its own gap keeps it there. Of several tensors that are made again before one step, the one
        that was dropped last is made first, since others may read it.
   [T4] A swapped gap that does not copy lies behind one that copies, with no write between the two;
        or its tensor is never written.
   Cost: a peak analysis is O(log slots) and what >>itree and >>link take for each candidate that is
   tried. Fails: where host memory is refused; the caller then throws the cyclic schedule away. */

#define GMLO_SWAP_ROUNDS 8   /* at most so many times swaps are planned and taken back */
#define GMLO_SMALL_PART 4096 /* a tensor of one part in so many of the peak is small */

typedef struct gmlo_candidate {
  gmlo_item *item;
  size_t use;                    /* of the item, before the gap */
  uint64_t begin, end;           /* when that use ends; when the tensor is needed again */
  uint64_t slot_begin, slot_end; /* of the peak's slot, not before `begin` */
} gmlo_candidate;

static int gmlo_uses_before(const gmlo_item *item, size_t slot) {
  return item->use_begin != item->use_end && item->lo <= slot;
}

/* The last use that begins in the slot or before it; use_end - 1 if all begin later. */
static size_t gmlo_use_at(const gmlo_cyclic *c, const gmlo_item *item, size_t slot) {
  size_t lo = item->use_begin, hi = item->use_end - 1;
  if (!gmlo_uses_before(item, slot)) return hi;
  while (lo < hi) {
    size_t middle = hi - (hi - lo) / 2;
    if (c->steps[c->uses[middle].step].lo <= slot) {
      lo = middle;
    } else {
      hi = middle - 1;
    }
  }
  return lo;
}

/* The step before which the tensor must be back. */
static size_t gmlo_gap_next(const gmlo_cyclic *c, const gmlo_item *item, size_t use) {
  size_t next = use + 1 == item->use_end ? item->use_begin : use + 1;
  return c->gaps[use].needed != 0 ? c->gaps[use].needed - 1 : c->uses[next].step;
}

/* When a step begins that lies in the gap behind the use, or at its end. */
static uint64_t gmlo_gap_time(const gmlo_cyclic *c, size_t use, size_t step) {
  uint64_t t = gmlo_step_begin(c, step);
  return t < gmlo_step_end(c, c->uses[use].step) ? t + gmlo_period(c) : t;
}

static void gmlo_candidate_times(const gmlo_cyclic *c, gmlo_candidate *k, size_t slot) {
  uint64_t period = gmlo_period(c);
  k->begin = gmlo_step_end(c, c->uses[k->use].step);
  k->end = gmlo_gap_time(c, k->use, gmlo_gap_next(c, k->item, k->use));
  k->slot_begin = c->slot_begin[slot];
  k->slot_end = c->slot_begin[slot + 1];
  if (k->slot_begin < k->begin) {
    k->slot_begin += period;
    k->slot_end += period;
  }
}

/* The part as a candidate of a slot that it lies over. 0 if the tensor is needed again before. */
static int gmlo_candidate_of(const gmlo_cyclic *c, const gmlo_part *part, size_t slot,
                             gmlo_candidate *k) {
  k->item = &c->items[part->item];
  k->use = part->use;
  gmlo_candidate_times(c, k, slot);
  return k->slot_end <= k->end;
}

/* Whether the host has the tensor's bytes when the gap begins. [T4] */
static int gmlo_gap_is_clean(const gmlo_cyclic *c, const gmlo_item *item, size_t use) {
  size_t u = use;
  if (c->paper_mode) return 0;
  if (!item->made && !item->written) return 1;
  for (; u > item->use_begin; u--) {
    if ((c->uses[u].how & GMLO_WRITES) != 0) return 0;
    if (c->gaps[u - 1].state == GMLO_SWAPPED) return 1;
  }
  return 0;
}

/* What swap_ratio_max counts: a job's bytes; in paper mode its tensors, of those of all jobs. */
static double gmlo_ratio_of(const gmlo_cyclic *c, const gmlo_item *item) {
  return c->paper_mode ? 1 : (double)item->bytes;
}

static int gmlo_ratio_allows(const gmlo_cyclic *c, const gmlo_item *item) {
  const gmlo_planner_job *job = &c->jobs[item->job];
  double all = c->paper_mode ? (double)c->item_count : (double)job->graph->tensor_bytes;
  if (item->swapped_count != 0) return 1;
  if (c->paper_mode && !item->made && item->written) return 1; /* Algorithm 1, line 27 */
  return job->swapped + gmlo_ratio_of(c, item) <= job->swap_ratio_max * all;
}

/* When the profile counts the tensor again: when its copy begins, or in paper mode ends (4.2). */
static uint64_t gmlo_gap_back(const gmlo_cyclic *c, const gmlo_gap *gap) {
  return c->paper_mode ? gap->in_end : gap->in_start;
}

static void gmlo_gap_absent(gmlo_cyclic *c, const gmlo_item *item, gmlo_gap *gap) {
  size_t from = gmlo_boundary_after(c, gap->out_end);
  size_t to = gmlo_boundary_before(c, gmlo_gap_back(c, gap));
  gap->absent_lo = from;
  gap->absent_count = to > from ? to - from : 0;
  gmlo_profile_add(&c->profile, gap->absent_lo, gap->absent_count, -(int64_t)item->bytes);
}

/* Lets the copy in begin where the one before it ends, if the time between them is too short for
   another one and the tensor is still away during the candidate's slot. */
static void gmlo_swap_pack(gmlo_cyclic *c, const gmlo_candidate *k, gmlo_gap *gap) {
  uint64_t length = gap->in_end - gap->in_start, first = gap->out_end;
  uint64_t room = gmlo_lane_room(c, GMLO_IN, gap->in_start, length);
  if (first < k->slot_end) first = k->slot_end;
  if (room >= length || gap->in_start < first + room) return;
  if (gap->alone[GMLO_IN] &&
      !gmlo_lane_is_free(c, GMLO_OUT, gap->in_start - room, gap->in_end - room)) {
    return;
  }
  gap->in_start -= room;
  gap->in_end -= room;
}

/* Finds time on the link in the candidate's gap: the earliest for the copy out, and the latest for
   the copy in behind it. 0 if there is none. */
static int gmlo_swap_place(gmlo_cyclic *c, const gmlo_candidate *k, gmlo_gap *gap) {
  uint64_t period = gmlo_period(c), out_by = k->end, in_from;
  int crosses = c->paper_mode && k->end > period; /* the run waits between the two (3.2) */
  if (crosses && k->begin < period) out_by = period;
  gap->copies = !gmlo_gap_is_clean(c, k->item, k->use);
  gap->out_start = gap->out_end = k->begin;
  gap->alone[GMLO_OUT] = 0;
  if (gap->copies && !gmlo_lane_place(c, GMLO_OUT, k->begin, out_by, k->item->bytes,
                                      &gap->out_start, &gap->out_end, &gap->alone[GMLO_OUT])) {
    return 0;
  }
  in_from = crosses && gap->out_end < period ? period : gap->out_end;
  if (k->end < in_from) return 0;
  if (!gmlo_lane_place(c, GMLO_IN, in_from, k->end, k->item->bytes, &gap->in_start, &gap->in_end,
                       &gap->alone[GMLO_IN])) {
    return 0;
  }
  if (c->mode.packed) gmlo_swap_pack(c, k, gap);
  return 1;
}

/* Whether the tensor is away during all of the candidate's slot. */
static int gmlo_swap_helps(const gmlo_cyclic *c, const gmlo_candidate *k, const gmlo_gap *placed) {
  return placed->out_end <= k->slot_begin && gmlo_gap_back(c, placed) >= k->slot_end;
}

/* The host has the tensor's bytes now until the next write: swaps of the gaps until then take less
   time. [D2] */
static void gmlo_swap_widen(gmlo_cyclic *c, const gmlo_item *item, size_t use) {
  size_t u;
  for (u = use + 1; u < item->use_end && (c->uses[u].how & GMLO_WRITES) == 0; u++) {
    uint32_t id = c->gaps[u].part;
    if (id == 0 || c->gaps[u].state != GMLO_KEPT) continue;
    for (id--; id < c->part_count && c->parts[id].use == u; id++) gmlo_itree_widen(c, id);
  }
}

/* Makes the gap a swapped one. */
static void gmlo_swap_commit(gmlo_cyclic *c, gmlo_item *item, size_t use, const gmlo_gap *placed) {
  gmlo_gap *gap = &c->gaps[use];
  *gap = *placed;
  gap->state = GMLO_SWAPPED;
  if (item->swapped_count++ == 0) c->jobs[item->job].swapped += gmlo_ratio_of(c, item);
  gmlo_lanes_change(c, gap, 1);
  gmlo_gap_absent(c, item, gap);
  gmlo_swap_widen(c, item, use);
}

static void gmlo_swap_undo(gmlo_cyclic *c, gmlo_item *item, size_t use) {
  gmlo_gap *gap = &c->gaps[use];
  gmlo_lanes_change(c, gap, 0);
  gmlo_profile_add(&c->profile, gap->absent_lo, gap->absent_count, (int64_t)item->bytes);
  if (--item->swapped_count == 0) c->jobs[item->job].swapped -= gmlo_ratio_of(c, item);
  gap->state = GMLO_KEPT;
  c->freed = 1;
}

/* In paper mode: the tensor also leaves in its later gaps, up to the next write, if the link has
   time to bring it back; the host has its bytes. */
static void gmlo_swap_later(gmlo_cyclic *c, gmlo_item *item, size_t use) {
  size_t u;
  for (u = use + 1; u + 1 < item->use_end && (c->uses[u].how & GMLO_WRITES) == 0; u++) {
    gmlo_gap placed = c->gaps[u];
    uint64_t begin = gmlo_step_end(c, c->uses[u].step), length;
    uint64_t end = gmlo_step_begin(c, c->uses[u + 1].step);
    if (placed.state != GMLO_KEPT || placed.needed != 0) continue;
    length = gmlo_lane_copy_ns(c, GMLO_IN, item->bytes, 0);
    if (end < begin) continue;
    if (!gmlo_lane_latest(c, GMLO_IN, begin, end, length, &placed.in_start)) continue;
    placed.copies = placed.alone[GMLO_OUT] = placed.alone[GMLO_IN] = 0;
    placed.out_start = placed.out_end = begin;
    placed.in_end = placed.in_start + length;
    gmlo_swap_commit(c, item, u, &placed);
  }
}

/* The figure times a random factor between a half and two, if the cyclic schedule has noise. */
static double gmlo_noisy(gmlo_cyclic *c, double figure) {
  if (c->noise == 0) return figure;
  c->noise = c->noise * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return figure * (.5 + 1.5 * (double)(c->noise >> 40) / 16777216.0);
}

/* Bytes times the time of absence, for each nanosecond on the link. */
static double gmlo_gap_rate(const gmlo_gap *placed, size_t bytes) {
  double link = (double)(placed->out_end - placed->out_start + placed->in_end - placed->in_start);
  return (double)bytes * (double)(placed->in_start - placed->out_end) / (link + 1);
}

/* The same for a gap whose copies find time at once. */
static double gmlo_candidate_rate(const gmlo_cyclic *c, const gmlo_candidate *k) {
  gmlo_gap placed;
  uint64_t out = gmlo_lane_copy_ns(c, GMLO_OUT, k->item->bytes, c->mode.exclusive);
  uint64_t in = gmlo_lane_copy_ns(c, GMLO_IN, k->item->bytes, c->mode.exclusive);
  memset(&placed, 0, sizeof placed);
  if (gmlo_gap_is_clean(c, k->item, k->use)) out = 0;
  placed.out_end = out;
  placed.in_start = k->end - k->begin > in ? k->end - k->begin - in : 0;
  if (placed.in_start < out) placed.in_start = out;
  placed.in_end = placed.in_start + in;
  return gmlo_gap_rate(&placed, k->item->bytes);
}

/* What parts are taken by: see gmlo_preference. */
static double gmlo_part_key(gmlo_cyclic *c, const gmlo_part *part, gmlo_preference order) {
  double bytes = (double)c->items[part->item].bytes;
  gmlo_candidate k;
  (void)gmlo_candidate_of(c, part, part->first, &k);
  if (order == GMLO_LARGEST || order == GMLO_GREEDY) return gmlo_noisy(c, bytes);
  if (order == GMLO_AREA) return gmlo_noisy(c, (double)(k.end - k.begin) * bytes);
  if (order == GMLO_RATE) return gmlo_noisy(c, gmlo_candidate_rate(c, &k));
  return gmlo_noisy(c, (double)(k.end - (part->wraps != 0 ? gmlo_period(c) : 0)));
}

static void gmlo_part_add(gmlo_cyclic *c, size_t item, size_t use, uint32_t wraps, size_t first,
                          size_t end) {
  gmlo_part *part = &c->parts[c->part_count];
  if (first >= end) return;
  part->item = (uint32_t)item;
  part->use = (uint32_t)use;
  part->wraps = wraps;
  part->first = (uint32_t)first;
  part->end = (uint32_t)end;
  part->key_max = gmlo_part_key(c, part, c->mode.order);
  c->part_count++;
  if (c->gaps[use].part == 0) c->gaps[use].part = (uint32_t)c->part_count;
}

/* Smaller tensors stay on the device. */
static size_t gmlo_bytes_min(const gmlo_cyclic *c) {
  size_t j, peak = 0, bytes = c->desc->tensor_bytes_min;
  if (bytes != 0) return bytes;
  for (j = 0; j < c->job_count; j++) {
    if (c->job_steps[j] != c->job_steps[j + 1]) peak += c->jobs[j].graph->info.peak_bytes;
  }
  bytes = peak / GMLO_SMALL_PART + 1;
  return bytes < GMLO_TENSOR_BYTES_MIN ? bytes : GMLO_TENSOR_BYTES_MIN;
}

/* Makes the parts of an item's gaps. */
static void gmlo_parts_add(gmlo_cyclic *c, size_t i) {
  const gmlo_item *item = &c->items[i];
  size_t u;
  for (u = item->use_begin; u < item->use_end; u++) {
    size_t first = c->steps[c->uses[u].step].hi + 1;
    if (c->gaps[u].state != GMLO_KEPT) continue;
    if (u + 1 < item->use_end) {
      gmlo_part_add(c, i, u, 0, first, c->steps[c->uses[u + 1].step].lo);
    } else {
      gmlo_part_add(c, i, u, 0, first, c->slot_count);
      gmlo_part_add(c, i, u, 1, 0, item->lo);
    }
  }
}

/* Makes the parts of all gaps of tensors that may leave, and heaps of them. 0 if host memory is
   refused. Items are sorted by size. */
static int gmlo_parts_make(gmlo_cyclic *c) {
  size_t i, bytes_min = gmlo_bytes_min(c);
  c->parts = (gmlo_part *)gmlo_take(&c->scope, c->use_count + c->item_count, sizeof *c->parts);
  c->heaps = (uint32_t *)gmlo_take(&c->scope, 2 * c->profile.leaf_count, sizeof *c->heaps);
  if (c->parts == NULL || c->heaps == NULL) return 0;
  for (i = 0; i < c->item_count && c->items[i].bytes >= bytes_min; i++) gmlo_parts_add(c, i);
  gmlo_itree_fill(c);
  return !c->failed;
}

/* Leaves the part only the slots for which `placed` would help; NULL: none. [D2] */
static void gmlo_part_narrow(const gmlo_cyclic *c, gmlo_part *part, const gmlo_gap *placed) {
  size_t base = part->wraps != 0 ? c->slot_count : 0;
  size_t lo = placed != NULL ? gmlo_boundary_after(c, placed->out_end) : 0;
  size_t hi = placed != NULL ? gmlo_boundary_before(c, gmlo_gap_back(c, placed)) : 0;
  lo = lo > base ? lo - base : 0;
  hi = hi > base ? hi - base : 0;
  part->lo = lo > part->first ? (uint32_t)(lo < part->end ? lo : part->end) : part->first;
  part->hi = hi < part->end ? (uint32_t)hi : part->end;
}

/* Lowers the part's key to the rate of `placed` [D3]. 0 if it is no lower. */
static int gmlo_part_falls(const gmlo_cyclic *c, gmlo_part *part, const gmlo_candidate *k,
                           const gmlo_gap *placed) {
  double best = gmlo_candidate_rate(c, k), rate = gmlo_gap_rate(placed, k->item->bytes);
  double key = best > 0 ? part->key_max * (rate / best) : 0;
  if (key >= part->key) return 0;
  part->key = key;
  return 1;
}

/* Swaps one candidate of the slot; in paper mode all that it can. How many; -1: host memory is
   refused, or the plan is given up. */
static int gmlo_swap_at(gmlo_cyclic *c, size_t slot) {
  int swapped = 0;
  while (c->mode.order == GMLO_GREEDY || swapped == 0) {
    uint32_t id;
    gmlo_part *part;
    gmlo_gap placed;
    gmlo_candidate k;
    int fits;
    if (gmlo_stops(c->stops)) return -1;
    id = gmlo_itree_at(c, slot);
    if (id == GMLAKE_OFFLOAD_NONE) break;
    part = &c->parts[id];
    placed = c->gaps[part->use];
    (void)gmlo_candidate_of(c, part, slot, &k);
    fits = gmlo_ratio_allows(c, k.item) && gmlo_swap_place(c, &k, &placed);
    if (!fits || !gmlo_swap_helps(c, &k, &placed)) {
      gmlo_part_narrow(c, part, fits ? &placed : NULL);
      continue;
    }
    if (c->mode.order == GMLO_RATE && gmlo_part_falls(c, part, &k, &placed)) continue;
    gmlo_swap_commit(c, k.item, k.use, &placed);
    swapped++;
    if (c->mode.order == GMLO_GREEDY) gmlo_swap_later(c, k.item, k.use);
  }
  return c->failed ? -1 : swapped;
}

/* Algorithm 3 without recomputation: swaps until the target is reached or no swap helps. 0: as
   above. */
static int gmlo_swap_down(gmlo_cyclic *c, int64_t target) {
  int64_t bytes;
  int swapped = 1;
  if (c->freed) gmlo_itree_fill(c);
  while (swapped > 0) {
    size_t slot = gmlo_profile_peak(&c->profile, &bytes);
    if (bytes <= target || c->work >= c->work_max) break;
    swapped = gmlo_swap_at(c, slot);
  }
  return swapped >= 0;
}

/* Whether a later gap needs the copy that this one makes. */
static int gmlo_gap_is_needed(const gmlo_cyclic *c, const gmlo_item *item, size_t use) {
  size_t u;
  if (!c->gaps[use].copies) return 0;
  for (u = use + 1; u < item->use_end && (c->uses[u].how & GMLO_WRITES) == 0; u++) {
    if (c->gaps[u].state == GMLO_SWAPPED && !c->gaps[u].copies) return 1;
  }
  return 0;
}

/* Takes back each swap without which no slot has more than `bytes`, smallest tensors first. How
   many. */
static size_t gmlo_swap_prune(gmlo_cyclic *c, int64_t bytes) {
  size_t i = c->item_count, u, count = 0;
  while (i-- != 0) {
    gmlo_item *item = &c->items[i];
    for (u = item->use_begin; item->swapped_count != 0 && u < item->use_end; u++) {
      const gmlo_gap *gap = &c->gaps[u];
      int64_t most;
      if (gap->state != GMLO_SWAPPED || gmlo_gap_is_needed(c, item, u)) continue;
      most = gap->absent_count != 0
                 ? gmlo_profile_max(&c->profile, gap->absent_lo, gap->absent_count)
                 : 0;
      if (most + (int64_t)item->bytes > bytes) continue;
      gmlo_swap_undo(c, item, u);
      count++;
    }
  }
  return count;
}

/* ---- >>cost: the cost model: recompute or stall -------------------------------------------------
   Works on one cyclic schedule behind >>swap, and keeps its invariants. A tensor is dropped and
   made again, or an operator waits for a swap, whichever takes less time for the bytes that it
   saves. Cost: O(items) options for each choice, each O(uses of what a maker reads), and O(uses) to
   lengthen a slot. Fails: where host memory is refused; the caller then destroys the schedule. */

/* Whether the tensor is on the device before `step` and was not written since the step `maker`
   [T3]. If a swap of it ends too late for that, the swap must be taken back: its bytes are added to
   *returned_bytes. Only with `pin` is that done, and the tensor kept until `step`. */
static int gmlo_source_is_there(gmlo_cyclic *c, gmlo_item *item, size_t maker, size_t step, int pin,
                                size_t *returned_bytes) {
  size_t u, slot = c->steps[step].lo, at = gmlo_use_at(c, item, slot);
  gmlo_gap *gap = &c->gaps[at];
  uint64_t begin;
  for (u = item->use_begin; u < item->use_end; u++) {
    size_t s = c->uses[u].step;
    if (s >= maker && s <= step && (c->uses[u].how & GMLO_WRITES) != 0) return 0;
  }
  if (gmlo_uses_before(item, slot) && c->steps[c->uses[at].step].hi >= slot) {
    at = at > item->use_begin ? at - 1
                              : item->use_end - 1; /* the step uses it, so it is back by then */
    return c->gaps[at].state != GMLO_DROPPED;
  }
  if (gap->state == GMLO_NO_GAP) return 0;
  begin = gmlo_gap_time(c, at, step);
  if (gap->state == GMLO_DROPPED) {
    return gmlo_gap_time(c, at, gmlo_gap_next(c, item, at)) < begin;
  }
  if (gap->state == GMLO_SWAPPED && gap->in_end > begin) {
    if (c->paper_mode || gmlo_gap_is_needed(c, item, at)) return 0;
    *returned_bytes += item->bytes;
    if (pin) gmlo_swap_undo(c, item, at);
  }
  if (pin && (gap->needed == 0 || begin < gmlo_gap_time(c, at, gap->needed - 1))) {
    gap->needed = step + 1;
  }
  return 1;
}

static gmlo_item *gmlo_item_of(gmlo_cyclic *c, uint32_t job, uint32_t tensor) {
  return &c->items[c->item_at[c->item_base[job] + tensor]];
}

#define GMLO_OPTION_WORK 8 /* steps that an option takes, about */

/* What it costs to recompute a tensor. */
typedef struct gmlo_remake {
  uint64_t time_ns;      /* 0: it cannot be recomputed */
  size_t returned_bytes; /* of swaps that must be taken back */
  size_t scratch_bytes;  /* of other tensors that the operators write */
} gmlo_remake;

/* Whether what else the operator at step `maker` writes may be written again before `step`: each
   such tensor is gone, and needs memory only while the operator runs; or it is on the device,
   unchanged. */
static int gmlo_rest_is_sound(gmlo_cyclic *c, const gmlo_item *item, size_t maker, size_t step,
                              int pin, gmlo_remake *remake) {
  const gmlake_offload_graph *graph = c->jobs[item->job].graph;
  uint32_t id = c->steps[maker].op;
  const gmlo_op *op = &graph->ops[id];
  size_t n;
  for (n = 0; n < op->write_count; n++) {
    uint32_t tensor = graph->refs[op->first_ref + op->read_count + n];
    gmlo_item *other = gmlo_item_of(c, item->job, tensor);
    if (tensor == item->tensor) continue;
    if (!other->made || (gmlo_op_uses(graph, id, tensor) & GMLO_READS) != 0) return 0;
    if (graph->tensors[tensor].kind == GMLAKE_OFFLOAD_INTERMEDIATE &&
        c->uses[other->use_end - 1].step < step) {
      remake->scratch_bytes += other->bytes;
    } else if (!gmlo_source_is_there(c, other, maker + 1, step, pin, &remake->returned_bytes)) {
      return 0;
    }
  }
  return 1;
}

/* What it costs to make the candidate's tensor again before its next use, by the operators that
   wrote it before the gap. With `pin` what they read is kept on the device for that. */
static gmlo_remake gmlo_remake_of(gmlo_cyclic *c, const gmlo_candidate *k, int pin) {
  const gmlo_item *item = k->item;
  const gmlake_offload_graph *graph = c->jobs[item->job].graph;
  gmlo_remake none, remake;
  size_t u, n, step;
  memset(&none, 0, sizeof none);
  remake = none;
  if (!item->made || k->use + 1 == item->use_end) return none;
  step = gmlo_gap_next(c, item, k->use);
  for (u = item->use_begin; u <= k->use; u++) {
    uint32_t id = c->steps[c->uses[u].step].op;
    const gmlo_op *op = &graph->ops[id];
    if ((c->uses[u].how & GMLO_WRITES) == 0) continue;
    if ((op->flags & GMLAKE_OFFLOAD_IMPURE) != 0) return none;
    if (!gmlo_rest_is_sound(c, item, c->uses[u].step, step, pin, &remake)) return none;
    for (n = 0; n < op->read_count; n++) {
      uint32_t source = graph->refs[op->first_ref + n];
      if (source == item->tensor) continue;
      if (!gmlo_source_is_there(c, gmlo_item_of(c, item->job, source), c->uses[u].step, step, pin,
                                &remake.returned_bytes)) {
        return none;
      }
    }
    remake.time_ns += gmlo_mean(&c->jobs[item->job], id);
  }
  return remake.returned_bytes < item->bytes ? remake : none;
}

typedef struct gmlo_option {
  gmlo_candidate k;
  int recompute;
  gmlo_remake remake;
  uint64_t out_wait_ns, in_wait_ns; /* before the peak's slot, and before the use behind the gap */
} gmlo_option;

/* How long operators would have to wait for a swap of the candidate. 0 if it is not possible. An
   operator waits at the end of its slots, where the memory of its slots counts: so a wait gives no
   time to come back if the peak's slot is the last of the gap. */
static int gmlo_stall_times(gmlo_cyclic *c, const gmlo_candidate *k, gmlo_option *option) {
  uint64_t out = k->begin, in = 0, lo, period = gmlo_period(c);
  uint64_t length = gmlo_lane_copy_ns(c, GMLO_OUT, k->item->bytes, 0);
  if (!gmlo_gap_is_clean(c, k->item, k->use)) {
    if (!gmlo_lane_earliest(c, GMLO_OUT, out, out + period, length, &out)) return 0;
    out += length;
  }
  option->out_wait_ns = out > k->slot_begin ? out - k->slot_begin : 0;
  lo = out > k->slot_end ? out : k->slot_end;
  length = gmlo_lane_copy_ns(c, GMLO_IN, k->item->bytes, 0);
  if (!gmlo_lane_earliest(c, GMLO_IN, lo, lo + period, length, &in)) return 0;
  in += length;
  option->in_wait_ns = in > k->end ? in - k->end : 0;
  return (option->out_wait_ns == 0 || c->mode.keen || k->begin < k->slot_begin) &&
         (option->in_wait_ns == 0 || k->slot_end < k->end);
}

/* Chooses recomputing or waiting, whichever takes less time; *out_cost_ns is that time. 0 if
   neither is possible. */
static int gmlo_option_make(gmlo_cyclic *c, const gmlo_candidate *k, gmlo_option *option,
                            uint64_t *out_cost_ns) {
  uint64_t wait = UINT64_MAX;
  memset(option, 0, sizeof *option);
  option->k = *k;
  option->remake = gmlo_remake_of(c, k, 0);
  if (!c->paper_mode && gmlo_ratio_allows(c, k->item) && gmlo_stall_times(c, k, option)) {
    wait = option->out_wait_ns + option->in_wait_ns;
  }
  option->recompute = option->remake.time_ns != 0 && option->remake.time_ns <= wait;
  *out_cost_ns = option->recompute ? option->remake.time_ns : wait;
  return *out_cost_ns != UINT64_MAX;
}

/* Makes the operator that ends at the boundary wait for t there. Boundary 0 is the last one. */
static void gmlo_stall_before(gmlo_cyclic *c, size_t slot, uint64_t t) {
  size_t i;
  if (t == 0) return;
  if (slot == 0) slot = c->slot_count;
  for (i = 0; i < c->step_count; i++) {
    if (c->steps[i].hi + 1 == slot) c->steps[i].idle_ns += t;
  }
  gmlo_cyclic_stretch(c, slot, t);
  gmlo_itree_widen_at(c, slot - 1);
}

static void gmlo_recompute_commit(gmlo_cyclic *c, const gmlo_option *option) {
  const gmlo_candidate *k = &option->k;
  const gmlo_step *next = &c->steps[gmlo_gap_next(c, k->item, k->use)];
  gmlo_gap *gap = &c->gaps[k->use];
  (void)gmlo_remake_of(c, k, 1);
  gap->state = GMLO_DROPPED;
  gap->dropped = k->item;
  gap->dropped_before = c->last_dropped;
  c->last_dropped = k->use + 1;
  gap->out_start = gap->out_end = k->begin;
  gap->in_start = gap->in_end = k->end;
  gmlo_gap_absent(c, k->item, gap);
  gmlo_profile_add(&c->profile, next->lo, next->hi - next->lo + 1,
                   (int64_t)option->remake.scratch_bytes);
  gmlo_cyclic_stretch(c, next->lo + 1, option->remake.time_ns);
  gmlo_itree_widen_at(c, next->lo);
}

/* 1: done; -1: host memory is refused. */
static int gmlo_option_take(gmlo_cyclic *c, gmlo_option *option, size_t slot) {
  gmlo_candidate *k = &option->k;
  gmlo_gap placed;
  int fits;
  GMLAKE_OFFLOAD_ASSERT(k->item != NULL);
  if (c->gaps[k->use].state == GMLO_SWAPPED) gmlo_swap_undo(c, k->item, k->use);
  if (option->recompute) {
    gmlo_recompute_commit(c, option);
    return c->failed ? -1 : 1;
  }
  gmlo_stall_before(c, slot, option->out_wait_ns);
  gmlo_stall_before(c, c->steps[gmlo_gap_next(c, k->item, k->use)].lo, option->in_wait_ns);
  if (c->failed) return -1;
  gmlo_candidate_times(c, k, slot);
  placed = c->gaps[k->use];
  fits = gmlo_swap_place(c, k, &placed) && gmlo_swap_helps(c, k, &placed);
  GMLAKE_OFFLOAD_ASSERT(fits); /* after the waits the link has time */
  if (fits) gmlo_swap_commit(c, k->item, k->use, &placed);
  return c->failed ? -1 : fits;
}

/* Whether the part's tensor may leave for the slot: it stays, or its swap leaves it there then. */
static int gmlo_cost_is_open(const gmlo_cyclic *c, const gmlo_part *part, size_t slot) {
  const gmlo_gap *gap = &c->gaps[part->use];
  if (gap->state != GMLO_SWAPPED || !c->mode.keen) return gap->state == GMLO_KEPT;
  if (gmlo_gap_is_needed(c, &c->items[part->item], part->use)) return 0;
  slot += slot < gap->absent_lo ? c->slot_count : 0;
  return slot - gap->absent_lo >= gap->absent_count;
}

/* Offers the candidate as if it had no swap yet. */
static int gmlo_option_again(gmlo_cyclic *c, const gmlo_candidate *k, gmlo_option *option,
                             uint64_t *out_cost_ns) {
  gmlo_gap *gap = &c->gaps[k->use];
  int swapped = gap->state == GMLO_SWAPPED, possible;
  if (swapped) gmlo_lanes_change(c, gap, 0);
  gap->state = GMLO_KEPT;
  possible = gmlo_option_make(c, k, option, out_cost_ns);
  if (!swapped) return possible;
  gmlo_lanes_change(c, gap, 1);
  gap->state = GMLO_SWAPPED;
  return possible;
}

/* Takes the candidate of the slot that saves most bytes for its time (MSPS), if that is within
   budget_ns. By default bytes above the excess do not count. Returns 1, 0 if there is none, or -1
   if host memory is refused. */
static int gmlo_cost_at(gmlo_cyclic *c, size_t slot, double excess_bytes, uint64_t budget_ns) {
  gmlo_candidate k;
  gmlo_option option, best;
  double best_rate = -1;
  uint64_t best_cost = 0;
  size_t i;
  memset(&best, 0, sizeof best);
  c->work += c->part_count / GMLO_SCAN;
  for (i = 0; i < c->part_count; i++) {
    const gmlo_part *part = &c->parts[i];
    uint64_t cost;
    double rate;
    if (slot < part->first || slot >= part->end) continue;
    if (!gmlo_cost_is_open(c, part, slot) || !gmlo_candidate_of(c, part, slot, &k)) continue;
    c->work += GMLO_OPTION_WORK;
    if (!gmlo_option_again(c, &k, &option, &cost) || (cost > budget_ns && !c->strict)) continue;
    rate = (double)k.item->bytes;
    if (option.recompute) rate -= (double)option.remake.returned_bytes;
    if (rate > excess_bytes && !c->paper_mode) rate = excess_bytes;
    rate = gmlo_noisy(c, rate / ((double)cost + 1));
    if (rate <= best_rate) continue;
    best_rate = rate;
    best_cost = cost;
    best = option;
  }
  if (best_rate < 0 || best_cost > budget_ns) return 0;
  return gmlo_option_take(c, &best, slot);
}

/* Recomputes and waits until the target is reached, or the time that may be added is spent; swaps
   again after each step. -1: host memory is refused. */
static int gmlo_cost_down(gmlo_cyclic *c, int64_t target) {
  int done;
  double wanted = (double)c->base_ns * c->overhead;
  uint64_t budget =
      c->paper_mode || wanted > (double)GMLO_TIME_MAX ? GMLO_TIME_MAX : (uint64_t)wanted;
  int64_t bytes;
  size_t slot = gmlo_profile_peak(&c->profile, &bytes);
  c->low_bytes = bytes;
  while (bytes > target && c->added_ns < budget && c->work < c->work_max) {
    done = gmlo_cost_at(c, slot, (double)(bytes - target), budget - c->added_ns);
    if (done <= 0) return done;
    c->work += c->use_count / GMLO_SCAN * 4;                     /* of making slots longer */
    if (!c->paper_mode && !gmlo_swap_down(c, target)) return -1; /* else as Algorithm 3, line 5 */
    slot = gmlo_profile_peak(&c->profile, &bytes);
    if (bytes >= c->low_bytes) continue;
    c->low_bytes = bytes;
    c->low_ns = c->added_ns;
  }
  return 0;
}

/* Plans the cyclic schedule, down to the target or as near as possible. What is swapped in vain is
   taken back, and what that leaves of the link serves others, as long as that lowers the peak. 0 if
   host memory is refused, or the plan is given up. */
static int gmlo_cyclic_plan(gmlo_cyclic *c, int64_t target) {
  int64_t bytes, before = INT64_MAX;
  int rounds;
  if (!gmlo_parts_make(c)) return 0;
  for (rounds = 0;; rounds++) {
    if (!gmlo_swap_down(c, target)) return 0;
    (void)gmlo_profile_peak(&c->profile, &bytes);
    if (c->paper_mode || rounds == GMLO_SWAP_ROUNDS || bytes >= before) break;
    before = bytes;
    if (gmlo_swap_prune(c, bytes) == 0 || bytes <= target) break;
  }
  if ((c->paper_mode ? target > 0 : c->overhead > 0) && gmlo_cost_down(c, target) < 0) return 0;
  (void)gmlo_profile_peak(&c->profile, &bytes);
  if (!c->paper_mode) (void)gmlo_swap_prune(c, bytes > target ? bytes : target);
  return !c->failed;
}

/* ---- >>emit: the gaps of a cyclic schedule become a plan ----------------------------------------
   Owns the events of one job while they are collected. Each gap that is swapped becomes two events,
   each dropped one becomes an event for the drop and one for each operator that runs again.
   Cost: O(log operators) for each event. Fails: where host memory is refused. */

/* The events of one job, while they are collected. */
typedef struct gmlo_emit {
  gmlake_offload_event *events;
  size_t event_count, event_capacity;
} gmlo_emit;

/* Turns a time into a trigger and a delay. */
static void gmlo_emit_time(const gmlo_cyclic *c, uint32_t job, uint64_t t,
                           gmlake_offload_event *event) {
  size_t begin = c->job_steps[job], lo = begin, hi = c->job_steps[job + 1];
  t %= gmlo_period(c);
  while (lo < hi) { /* the first step that ends after t */
    size_t middle = lo + (hi - lo) / 2;
    if (gmlo_step_end(c, middle) <= t) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  event->trigger = lo == begin ? GMLAKE_OFFLOAD_NONE : c->steps[lo - 1].op;
  if (lo == begin) { /* an iteration begins when the last one's operators end, not their waits */
    event->delay_ns = t + c->steps[c->job_steps[job + 1] - 1].idle_ns;
  } else {
    event->delay_ns = t - gmlo_step_end(c, lo - 1);
  }
}

static int gmlo_emit_add(const gmlo_cyclic *c, gmlo_emit *d, const gmlake_offload_event *event) {
  gmlake_offload_event *added = (gmlake_offload_event *)gmlo_more(
      &c->scope.host, &d->events, d->event_count, 1, &d->event_capacity, sizeof *added);
  if (added == NULL) return 0;
  *added = *event;
  d->event_count++;
  return 1;
}

/* Adds the drop, and the operators that run again before the next use. */
static int gmlo_emit_recompute(const gmlo_cyclic *c, gmlo_emit *d, const gmlo_item *item,
                               size_t use, gmlake_offload_event *event) {
  size_t u, step = gmlo_gap_next(c, item, use);
  event->action = GMLAKE_OFFLOAD_DROP;
  if (!gmlo_emit_add(c, d, event)) return 0;
  event->action = GMLAKE_OFFLOAD_RECOMPUTE;
  event->trigger = step == c->job_steps[item->job] ? GMLAKE_OFFLOAD_NONE : c->steps[step - 1].op;
  for (u = item->use_begin; u <= use; u++) {
    if ((c->uses[u].how & GMLO_WRITES) == 0) continue;
    event->op = c->steps[c->uses[u].step].op;
    if (!gmlo_emit_add(c, d, event)) return 0;
  }
  return 1;
}

static int gmlo_emit_gap(const gmlo_cyclic *c, gmlo_emit *d, const gmlo_item *item, size_t use) {
  const gmlo_gap *gap = &c->gaps[use];
  gmlake_offload_event event;
  memset(&event, 0, sizeof event);
  event.tensor = item->tensor;
  event.trigger = event.op = c->steps[c->uses[use].step].op;
  if (gap->state == GMLO_DROPPED) return gmlo_emit_recompute(c, d, item, use, &event);
  event.action = gap->copies ? GMLAKE_OFFLOAD_SWAP_OUT : GMLAKE_OFFLOAD_DROP;
  gmlo_emit_time(c, item->job, gap->out_start, &event);
  if (!gmlo_emit_add(c, d, &event)) return 0;
  event.action = GMLAKE_OFFLOAD_SWAP_IN;
  gmlo_emit_time(c, item->job, gap->in_start, &event);
  return gmlo_emit_add(c, d, &event);
}

/* The plan of one job. NULL if host memory is refused. */
static gmlake_offload_plan *gmlo_emit_plan(const gmlo_cyclic *c, uint32_t job,
                                           const gmlake_offload_host *host) {
  gmlake_offload_plan *plan = NULL;
  gmlo_emit d;
  size_t i, u;
  int done = 1;
  memset(&d, 0, sizeof d);
  for (i = 0; i < c->item_count && done; i++) {
    const gmlo_item *item = &c->items[i];
    if (item->job != job) continue;
    for (u = item->use_begin; u < item->use_end && done; u++) {
      if (c->gaps[u].state == GMLO_SWAPPED) done = gmlo_emit_gap(c, &d, item, u);
    }
  }
  for (u = c->last_dropped; u != 0 && done; u = c->gaps[u - 1].dropped_before) { /* [T3] */
    const gmlo_item *item = c->gaps[u - 1].dropped;
    if (item->job == job) done = gmlo_emit_gap(c, &d, item, u - 1);
  }
  if (done) plan = gmlo_plan_make(c->jobs[job].graph, d.events, d.event_count, host);
  if (plan != NULL) {
    plan->info.time_ns = gmlo_period(c);
    plan->info.added_ns = c->added_ns;
  }
  gmlo_free(&c->scope.host, d.events);
  return plan;
}

/* ---- >>work: what is under way on a backend -----------------------------------------------------
   Owns, for each thing that was started and has not ended, the event behind it on its stream, and
   the token by which its owner knows it. Invariants:
   [W1] Work that was queued is in `tasks` until its token was taken. Where it cannot get an event,
        or an event can no longer be asked about, the host has waited for it.
   [W2] Tasks stand in the order in which they began. Of those that have ended the first is taken.
   Cost: constant, but O(tasks) for each look. Fails: where host memory is refused, and where the
   backend fails. */

typedef struct gmlo_spare {
  void *event;
  uint32_t device;
} gmlo_spare;

typedef struct gmlo_task {
  gmlo_spare behind;
  void *stream;
  uint32_t number; /* of the device's streams */
  int is_behind;   /* another task of its stream has begun before it */
  uint64_t token;
} gmlo_task;

typedef struct gmlo_works {
  const gmlake_offload_backend *backend;
  gmlake_offload_host host;
  gmlo_task *tasks; /* [W2] */
  size_t count, capacity;
  gmlo_spare *spares;
  size_t spare_count, spare_capacity;
  uint64_t now_ns; /* when it was looked last */
  gmlake_offload_run_stats *stats;
} gmlo_works;

static int gmlo_works_now(gmlo_works *works) {
  return works->backend->now(works->backend->user, &works->now_ns) == 0;
}

/* The first task from number `i` on that is on stream `number` of the device; count: there is
   none. */
static size_t gmlo_works_find(const gmlo_works *works, size_t i, uint32_t device, uint32_t number) {
  for (; i < works->count; i++)
    if (works->tasks[i].behind.device == device && works->tasks[i].number == number) break;
  return i;
}

/* An event of the device that nothing uses. NULL if it is refused. Else there is room to give it
   back. */
static void *gmlo_works_event(gmlo_works *works, uint32_t device) {
  void *event = NULL;
  size_t i;
  if (gmlo_more(&works->host, &works->spares, works->spare_count, works->count + 1,
                &works->spare_capacity, sizeof *works->spares) == NULL) {
    return NULL;
  }
  for (i = works->spare_count; i-- != 0;) {
    if (works->spares[i].device != device) continue;
    event = works->spares[i].event;
    works->spares[i] = works->spares[--works->spare_count];
    return event;
  }
  return works->backend->event_create(works->backend->user, device, 0, &event) == 0 ? event : NULL;
}

/* What a task on stream `number` of the device needs beforehand; it counts when it is queued. NULL
   if that is refused. */
static gmlo_task *gmlo_works_begin(gmlo_works *works, uint32_t device, uint32_t number,
                                   uint64_t token) {
  const gmlake_offload_backend *b = works->backend;
  gmlo_task *task = (gmlo_task *)gmlo_more(&works->host, &works->tasks, works->count, 1,
                                           &works->capacity, sizeof *task);
  if (task == NULL || b->stream(b->user, device, number, &task->stream) != 0) return NULL;
  task->token = token;
  task->number = number;
  task->is_behind = gmlo_works_find(works, 0, device, number) != works->count;
  task->behind.device = device;
  task->behind.event = gmlo_works_event(works, device);
  return task->behind.event != NULL ? task : NULL;
}

/* Ends what begin has begun: 1 if the work was queued, and the task waits for it. [W1] */
static int gmlo_works_queued(gmlo_works *works, gmlo_task *task, int failed) {
  const gmlake_offload_backend *b = works->backend;
  if (!failed && b->event_record(b->user, task->behind.event, task->stream) == 0) {
    works->count++;
    return 1;
  }
  (void)b->stream_sync(b->user, task->stream);
  works->spares[works->spare_count++] = task->behind;
  return 0;
}

static int gmlo_works_copy(gmlo_works *works, const gmlake_offload_copy *copy, uint32_t number,
                           uint64_t token) {
  gmlo_task *task = gmlo_works_begin(works, copy->device, number, token);
  const gmlake_offload_backend *b = works->backend;
  if (task == NULL || !gmlo_works_queued(works, task, b->copy(b->user, copy, task->stream) != 0)) {
    return 0;
  }
  if (copy->to_host) {
    works->stats->out_bytes += copy->bytes;
    works->stats->out_count++;
  } else {
    works->stats->in_bytes += copy->bytes;
    works->stats->in_count++;
  }
  return 1;
}

/* Launches launch->op of launch->graph. pointers: of what it reads, then of what it writes. */
static int gmlo_works_launch(gmlo_works *works, gmlake_offload_launch *launch, void **pointers,
                             uint32_t number, uint64_t token) {
  const gmlake_offload_backend *b = works->backend;
  gmlo_task *task;
  (void)gmlake_offload_get_op(launch->graph, launch->op, &launch->desc);
  launch->reads = pointers;
  launch->writes = pointers + launch->desc.read_count;
  task = gmlo_works_begin(works, launch->desc.device, number, token);
  return task != NULL &&
         gmlo_works_queued(works, task, b->launch(b->user, launch, task->stream) != 0);
}

/* Takes task i away. */
static void gmlo_works_remove(gmlo_works *works, size_t i) {
  gmlo_task task = works->tasks[i];
  memmove(&works->tasks[i], &works->tasks[i + 1], (--works->count - i) * sizeof task);
  works->spares[works->spare_count++] = task.behind;
  i = gmlo_works_find(works, i, task.behind.device, task.number);
  if (i < works->count) works->tasks[i].is_behind = 0;
}

/* Waits for all that was queued, whose tokens are then gone. */
static void gmlo_works_sync(gmlo_works *works) {
  while (works->count != 0) {
    (void)works->backend->stream_sync(works->backend->user, works->tasks[0].stream);
    gmlo_works_remove(works, 0);
  }
}

/* Waits for the task of that token, which is then gone. 0 if the backend fails. */
static int gmlo_works_finish(gmlo_works *works, uint64_t token) {
  size_t i = 0;
  while (works->tasks[i].token != token) i++;
  if (works->backend->stream_sync(works->backend->user, works->tasks[i].stream) != 0) return 0;
  gmlo_works_remove(works, i);
  return 1;
}

/* Looks at all tasks. 1: the one that *out_token is of has ended; 0: none has; -1: the backend
   fails. [W2] */
static int gmlo_works_look(gmlo_works *works, uint64_t *out_token) {
  const gmlake_offload_backend *b = works->backend;
  size_t i;
  if (!gmlo_works_now(works)) return -1;
  for (i = 0; i < works->count; i++) {
    const gmlo_task *task = &works->tasks[i];
    int done = 0;
    if (!task->is_behind && b->event_done(b->user, task->behind.event, &done) != 0) return -1;
    if (!done) continue;
    *out_token = task->token;
    gmlo_works_remove(works, i);
    return 1;
  }
  return 0;
}

/* Waits until a task has ended: 1; or that time has come: 0. -1 if the backend fails: then no task
   is under way any more. */
static int gmlo_works_wait(gmlo_works *works, uint64_t until_ns, uint64_t *out_token) {
  const gmlake_offload_backend *b = works->backend;
  int found = gmlo_works_look(works, out_token);
  while (found == 0 && works->now_ns < until_ns) {
    found =
        b->idle != NULL && b->idle(b->user, until_ns) != 0 ? -1 : gmlo_works_look(works, out_token);
  }
  if (found < 0) gmlo_works_sync(works);
  return found;
}

/* pre: no task is under way. */
static void gmlo_works_leave(gmlo_works *works) {
  while (works->spare_count != 0) {
    works->backend->event_destroy(works->backend->user, works->spares[--works->spare_count].event);
  }
  gmlo_free(&works->host, works->spares);
  gmlo_free(&works->host, works->tasks);
}

/* ---- >>memgraph: nodes, edges and places --------------------------------------------------------
   Owns a memgraph: what gmlake_turnip.h makes and checks, and what runs run. Invariant:
   [V1] Edges lead from a lower node to a higher one.
   Cost: constant. Fails: never. */

struct gmlake_offload_memgraph {
  gmlo_scope scope;
  const gmlake_offload_graph *graph;
  gmlake_offload_node *nodes; /* whose `start` is the last list or node that named it, at first */
  size_t node_count, node_capacity;
  size_t *before_begin; /* node_count + 1 */
  uint32_t *before;
  unsigned char *memory; /* for each of before: why it is there */
  size_t edge_count, edge_capacity, begin_capacity, memory_capacity;
  size_t *after_begin; /* the edges by the node that they come from */
  uint32_t *after;
  size_t *ref_offsets;                 /* for each of the graph's refs, of scope */
  gmlake_offload_place *begins, *ends; /* for each tensor, of scope */
  size_t *device_bytes;                /* for each device, of scope */
  uint32_t *starts; /* the nodes in the order in which the simulation starts them */
  size_t work;      /* looks at blocks and homes that finding all places took */
  gmlake_offload_memgraph_info info;
};

/* ---- Public functions ---- */

GMLAKE_OFFLOAD_DEF void gmlake_offload_memgraph_destroy(gmlake_offload_memgraph *m) {
  gmlake_offload_host host;
  if (m == NULL) return;
  host = m->scope.host;
  gmlo_free(&host, m->nodes);
  gmlo_free(&host, m->before_begin);
  gmlo_free(&host, m->before);
  gmlo_free(&host, m->memory);
  gmlo_free(&host, m->after_begin);
  gmlo_free(&host, m->after);
  gmlo_free(&host, m->starts);
  gmlo_leave(&m->scope);
  gmlo_free(&host, m);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_memgraph_get_info(
    const gmlake_offload_memgraph *memgraph, gmlake_offload_memgraph_info *out_info) {
  if (memgraph == NULL || out_info == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  return gmlo_fill_info(out_info, &memgraph->info, sizeof memgraph->info);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_memgraph_get_node(
    const gmlake_offload_memgraph *memgraph, uint32_t node, gmlake_offload_node *out_node) {
  if (memgraph == NULL || out_node == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  if (node >= memgraph->node_count) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  *out_node = memgraph->nodes[node];
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_memgraph_get_place(const gmlake_offload_memgraph *memgraph, uint32_t tensor,
                                  gmlake_offload_place *out_begin, gmlake_offload_place *out_end) {
  if (memgraph == NULL || out_begin == NULL || out_end == NULL) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  if (tensor >= memgraph->graph->tensor_count) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  *out_begin = memgraph->begins[tensor];
  *out_end = memgraph->ends[tensor];
  return GMLAKE_OFFLOAD_OK;
}

/* ---- >>queues: which nodes are ready ------------------------------------------------------------
   Owns for each node the number of predecessors that it waits for, and for each device four queues:
   operators, transfers, offloads, reloads. Invariants:
   [Q1] The heap of a queue has exactly the nodes that are ready and have not begun.
   [Q2] If in_line is set, the operators of a device run in the order in which they begin, so that
        none waits for another one that has begun.
   [Q3] In a queue whose order is fixed each node also waits until the one before has begun.
   Cost: O(log n) for each node and constant for each edge. Fails: where host memory is refused, and
   only when it is made. */

#define GMLO_QUEUES 4u        /* of each device: operators, transfers, */
#define GMLO_COPY_QUEUES 2u   /* then offloads and reloads */
#define GMLO_BEGUN UINT32_MAX /* in `waits`: the node has begun and has not ended */

typedef struct gmlo_node_queue {
  uint64_t *heap;
  size_t count;    /* of the heap */
  uint32_t active; /* nodes that have begun and not ended */
  uint32_t last;   /* while the order is fixed: the last node; or NONE */
} gmlo_node_queue;

typedef struct gmlo_ready {
  gmlo_scope scope;
  const gmlake_offload_memgraph *memgraph;
  uint32_t *waits;
  uint32_t *following; /* [Q3] by node; or NONE */
  gmlo_node_queue *queues;
  size_t queue_count;
  int in_line;
} gmlo_ready;

static size_t gmlo_queue_of(const gmlake_offload_memgraph *m, uint32_t id) {
  const gmlake_offload_node *node = &m->nodes[id];
  size_t kind = node->kind == GMLAKE_OFFLOAD_NODE_OFFLOAD ? 2 : 3;
  if (node->kind == GMLAKE_OFFLOAD_NODE_OP) {
    kind = (m->graph->ops[node->op].flags & GMLAKE_OFFLOAD_TRANSFER) != 0;
  }
  return (size_t)node->device * GMLO_QUEUES + kind;
}

/* Fixes the order of the queues for which the flags of the run say so. [Q3] */
static void gmlo_ready_fix(gmlo_ready *r, unsigned flags) {
  const unsigned all = GMLAKE_OFFLOAD_FIXED_ORDER | GMLAKE_OFFLOAD_SIMULATED_ORDER;
  const gmlake_offload_memgraph *m = r->memgraph;
  size_t v;
  for (v = 0; v < m->node_count; v++) {
    uint32_t id = (flags & GMLAKE_OFFLOAD_SIMULATED_ORDER) != 0 ? m->starts[v] : (uint32_t)v;
    size_t q = gmlo_queue_of(m, id);
    gmlo_node_queue *queue = &r->queues[q];
    unsigned fixed = q % GMLO_QUEUES < GMLO_COPY_QUEUES ? all | GMLAKE_OFFLOAD_FIXED_OPS : all;
    r->following[id] = GMLAKE_OFFLOAD_NONE;
    if ((flags & fixed) == 0) continue;
    if (queue->last != GMLAKE_OFFLOAD_NONE) r->following[queue->last] = id;
    queue->last = id;
  }
}

static int gmlo_ready_make(gmlo_ready *r, const gmlake_offload_memgraph *m,
                           const gmlake_offload_host *host, unsigned flags) {
  size_t *counts, q, v;
  memset(r, 0, sizeof *r);
  r->scope = gmlo_scope_of(host);
  r->memgraph = m;
  r->queue_count = m->info.device_count * GMLO_QUEUES;
  r->waits = (uint32_t *)gmlo_take(&r->scope, m->node_count, sizeof *r->waits);
  r->following = (uint32_t *)gmlo_take(&r->scope, m->node_count, sizeof *r->following);
  r->queues = (gmlo_node_queue *)gmlo_take(&r->scope, r->queue_count, sizeof *r->queues);
  counts = (size_t *)gmlo_take(&r->scope, r->queue_count, sizeof *counts);
  if (r->waits == NULL || r->following == NULL || r->queues == NULL || counts == NULL) return 0;
  for (v = 0; v < m->node_count; v++) counts[gmlo_queue_of(m, (uint32_t)v)]++;
  for (q = 0; q < r->queue_count; q++) {
    r->queues[q].last = GMLAKE_OFFLOAD_NONE;
    r->queues[q].heap = (uint64_t *)gmlo_take(&r->scope, counts[q], sizeof(uint64_t));
    if (r->queues[q].heap == NULL) return 0;
  }
  gmlo_ready_fix(r, flags);
  return 1;
}

/* The node waits for one less, which may have been the last. */
static void gmlo_ready_less(gmlo_ready *r, uint32_t id) {
  gmlo_node_queue *queue = &r->queues[gmlo_queue_of(r->memgraph, id)];
  if (--r->waits[id] == 0) gmlo_heap_push(queue->heap, &queue->count, id);
}

/* Begins an iteration. */
static void gmlo_ready_begin(gmlo_ready *r) {
  const gmlake_offload_memgraph *m = r->memgraph;
  size_t v;
  for (v = 0; v < m->node_count; v++)
    r->waits[v] = (uint32_t)(m->before_begin[v + 1] - m->before_begin[v]) + 1;
  for (v = 0; v < m->node_count; v++)
    if (r->following[v] != GMLAKE_OFFLOAD_NONE) r->waits[r->following[v]]++;
  for (v = 0; v < m->node_count; v++) gmlo_ready_less(r, (uint32_t)v); /* for the begin */
}

/* Whether the node may begin behind the other one without waiting for its end. [Q2] */
static int gmlo_ready_follows(const gmlo_ready *r, uint32_t id, uint32_t other) {
  size_t q = gmlo_queue_of(r->memgraph, id);
  return r->in_line && q % GMLO_QUEUES == 0 && q == gmlo_queue_of(r->memgraph, other);
}

/* The node has begun, or ended: each node that waited for that waits for one less. */
static void gmlo_ready_pass(gmlo_ready *r, uint32_t id, int ended) {
  const gmlake_offload_memgraph *m = r->memgraph;
  size_t e;
  for (e = m->after_begin[id]; e < m->after_begin[id + 1]; e++)
    if (gmlo_ready_follows(r, m->after[e], id) != ended) gmlo_ready_less(r, m->after[e]);
}

/* Takes the first node that may begin. NONE if there is none. */
static uint32_t gmlo_ready_pop(gmlo_ready *r, size_t q) {
  gmlo_node_queue *queue = &r->queues[q];
  uint32_t id;
  if (queue->count == 0) return GMLAKE_OFFLOAD_NONE;
  id = (uint32_t)gmlo_heap_pop(queue->heap, &queue->count);
  queue->active++;
  r->waits[id] = GMLO_BEGUN;
  if (r->following[id] != GMLAKE_OFFLOAD_NONE) gmlo_ready_less(r, r->following[id]);
  if (r->in_line) gmlo_ready_pass(r, id, 0);
  return id;
}

static void gmlo_ready_done(gmlo_ready *r, uint32_t id) {
  r->waits[id] = 0;
  r->queues[gmlo_queue_of(r->memgraph, id)].active--;
  gmlo_ready_pass(r, id, 1);
}

/* ---- >>nodes: starts the nodes of a memgraph that are ready -------------------------------------
   Owns the arenas of a job that is a memgraph, and its nodes under way. Invariants:
   [E1] A node begins when all nodes before it have ended. Where it was launched behind operators on
        their stream, the stream sees to that.
   [E2] A queue of operators has at most stream_count of them under way, and launch_ahead_max more
        that were launched behind them. Every other queue has one node under way.
   [E3] Operators under way at once are on different streams, but those that were launched behind
        others are on the same one.
   [E4] Of the backend's streams of a device the first two are for copies to the host and back, of
        all jobs. Then each job has stream_count for operators and one for transfers.
   Cost: as >>queues. Fails: where host memory is refused when it is made, and where the backend
   fails. */

#define GMLO_TOKEN_SHIFT 60 /* the kind is in the bits above, */
#define GMLO_TOKEN_JOB 32   /* of a node its job is in those above, a number in those below */
#define GMLO_TOKEN_OP 1u
#define GMLO_TOKEN_COPY 2u
#define GMLO_TOKEN_NODE 3u
#define GMLO_WIDTH_MAX 1024u   /* of stream_count */
#define GMLO_JOBS_MAX 0xFFFFFu /* so that [E4] fits in 32 bits */

typedef struct gmlo_nodes {
  const gmlake_offload_memgraph *memgraph;
  const gmlake_offload_run_desc *desc; /* of the run, as is */
  gmlo_works *works;
  uint32_t job;
  gmlo_ready ready;
  void **device_arenas; /* memory of ready.scope, as the arrays below */
  void *host_arena;
  void **pointers;   /* of one operator */
  uint64_t *idle_ns; /* for each device: since when no operator is under way */
  size_t ended, divisor;
} gmlo_nodes;

/* The backend's number of the first stream of the job's operators. [E4] */
static uint32_t gmlo_job_stream(const gmlake_offload_run_desc *desc, uint32_t job) {
  return GMLO_COPY_QUEUES + job * (desc->stream_count + 1);
}

/* The number of the stream on which the next node of the queue runs: of an operator the lowest one
   on which nothing is under way. [E3] [E4] */
static uint32_t gmlo_nodes_number(const gmlo_nodes *n, size_t q) {
  uint32_t kind = (uint32_t)(q % GMLO_QUEUES), left = n->desc->stream_count;
  uint32_t number = gmlo_job_stream(n->desc, n->job);
  if (kind >= GMLO_COPY_QUEUES) return kind - GMLO_COPY_QUEUES;
  if (kind != 0) return number + left;
  while (--left != 0 &&
         gmlo_works_find(n->works, 0, (uint32_t)(q / GMLO_QUEUES), number) != n->works->count) {
    number++;
  }
  return number;
}

static uint64_t gmlo_nodes_token(const gmlo_nodes *n, uint32_t id) {
  return (uint64_t)GMLO_TOKEN_NODE << GMLO_TOKEN_SHIFT | (uint64_t)n->job << GMLO_TOKEN_JOB | id;
}

static void *gmlo_nodes_at(const gmlo_nodes *n, void *arena, size_t offset) {
  return (char *)arena + offset / n->divisor;
}

static int gmlo_nodes_launch(gmlo_nodes *n, uint32_t id, uint32_t number, uint64_t iteration) {
  const gmlake_offload_memgraph *m = n->memgraph;
  const gmlake_offload_graph *graph = m->graph;
  const gmlo_op *op = &graph->ops[m->nodes[id].op];
  gmlake_offload_launch launch;
  size_t i;
  for (i = 0; i < op->read_count + op->write_count; i++) {
    uint32_t device = graph->tensors[graph->refs[op->first_ref + i]].device;
    n->pointers[i] = gmlo_nodes_at(n, n->device_arenas[device], m->ref_offsets[op->first_ref + i]);
  }
  memset(&launch, 0, sizeof launch);
  launch.graph = graph;
  launch.job = n->job;
  launch.op = m->nodes[id].op;
  launch.stream = number - gmlo_job_stream(n->desc, n->job);
  launch.iteration = iteration;
  return gmlo_works_launch(n->works, &launch, n->pointers, number, gmlo_nodes_token(n, id));
}

static int gmlo_nodes_copy(gmlo_nodes *n, uint32_t id, uint32_t number) {
  const gmlake_offload_node *node = &n->memgraph->nodes[id];
  gmlake_offload_copy copy;
  memset(&copy, 0, sizeof copy);
  copy.device = node->device;
  copy.to_host = node->kind == GMLAKE_OFFLOAD_NODE_OFFLOAD;
  copy.device_ptr = gmlo_nodes_at(n, n->device_arenas[node->device], node->device_offset);
  copy.host_ptr = gmlo_nodes_at(n, n->host_arena, node->host_offset);
  copy.bytes = n->memgraph->graph->tensors[node->tensor].bytes;
  return gmlo_works_copy(n->works, &copy, number, gmlo_nodes_token(n, id));
}

/* Starts a node of queue q, if one is ready: 1. -1 if the backend fails. [E1] [E2] */
static int gmlo_nodes_start_one(gmlo_nodes *n, size_t q, uint64_t iteration) {
  uint64_t most = 1;
  uint32_t id, number, was = n->ready.queues[q].active;
  int started;
  if (q % GMLO_QUEUES == 0) most = (uint64_t)n->desc->stream_count + n->desc->launch_ahead_max;
  if (was >= most) return 0;
  id = gmlo_ready_pop(&n->ready, q);
  if (id == GMLAKE_OFFLOAD_NONE) return 0;
  number = gmlo_nodes_number(n, q);
  if (q % GMLO_QUEUES == 0 && was == 0) {
    n->works->stats->stall_ns += n->works->now_ns - n->idle_ns[q / GMLO_QUEUES];
  }
  started = n->memgraph->nodes[id].kind == GMLAKE_OFFLOAD_NODE_OP
                ? gmlo_nodes_launch(n, id, number, iteration)
                : gmlo_nodes_copy(n, id, number);
  return started ? 1 : -1;
}

/* Starts all nodes that may start: 1 if there were such. -1 if the backend fails. */
static int gmlo_nodes_start(gmlo_nodes *n, uint64_t iteration) {
  int started = 0, state;
  size_t q;
  for (q = 0; q < n->ready.queue_count; q++) {
    while ((state = gmlo_nodes_start_one(n, q, iteration)) > 0) started = 1;
    if (state < 0) return -1;
  }
  return started;
}

/* Begins an iteration. */
static void gmlo_nodes_begin(gmlo_nodes *n) {
  size_t d;
  gmlo_ready_begin(&n->ready);
  n->ended = 0;
  for (d = 0; d < n->memgraph->info.device_count; d++) n->idle_ns[d] = n->works->now_ns;
}

/* A node has ended. 1 if it was the last one of its iteration. */
static int gmlo_nodes_done(gmlo_nodes *n, uint32_t id) {
  size_t q = gmlo_queue_of(n->memgraph, id), d;
  gmlo_ready_done(&n->ready, id);
  if (q % GMLO_QUEUES == 0 && n->ready.queues[q].active == 0) {
    n->idle_ns[q / GMLO_QUEUES] = n->works->now_ns;
  }
  if (++n->ended != n->memgraph->node_count) return 0;
  for (d = 0; d < n->memgraph->info.device_count; d++) {
    n->works->stats->stall_ns += n->works->now_ns - n->idle_ns[d];
  }
  return 1;
}

static void gmlo_nodes_locate(const gmlo_nodes *n, int is_begin, uint32_t tensor, void **out_device,
                              void **out_host) {
  const gmlake_offload_memgraph *m = n->memgraph;
  const gmlake_offload_place *place = is_begin ? &m->begins[tensor] : &m->ends[tensor];
  *out_device = *out_host = NULL;
  if (place->device_offset != GMLAKE_OFFLOAD_NOWHERE) {
    uint32_t device = m->graph->tensors[tensor].device;
    *out_device = gmlo_nodes_at(n, n->device_arenas[device], place->device_offset);
  }
  if (place->host_offset != GMLAKE_OFFLOAD_NOWHERE) {
    *out_host = gmlo_nodes_at(n, n->host_arena, place->host_offset);
  }
}

static gmlake_offload_result gmlo_nodes_alloc(gmlo_nodes *n) {
  const gmlake_offload_memgraph *m = n->memgraph;
  const gmlake_offload_backend *b = n->works->backend;
  size_t d;
  for (d = 0; d < m->info.device_count; d++) {
    void **arena = &n->device_arenas[d];
    if (m->device_bytes[d] == 0) continue;
    if (b->device_alloc(b->user, (uint32_t)d, m->device_bytes[d], arena) != 0) {
      *arena = NULL;
      return GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    gmlo_count_up(&n->works->stats->device_bytes, &n->works->stats->device_bytes_peak,
                  m->device_bytes[d]);
  }
  if (m->info.host_bytes == 0) return GMLAKE_OFFLOAD_OK;
  if (b->host_alloc(b->user, m->info.host_bytes, &n->host_arena) != 0) {
    n->host_arena = NULL;
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  }
  gmlo_count_up(&n->works->stats->host_bytes, &n->works->stats->host_bytes_peak,
                m->info.host_bytes);
  return GMLAKE_OFFLOAD_OK;
}

static gmlake_offload_result gmlo_nodes_fill(const gmlo_nodes *n) {
  const gmlake_offload_graph *graph = n->memgraph->graph;
  const gmlake_offload_backend *b = n->works->backend;
  uint32_t t;
  for (t = 0; t < graph->tensor_count; t++) {
    size_t bytes = graph->tensors[t].bytes;
    uint32_t d = graph->tensors[t].device;
    void *device, *host;
    gmlo_nodes_locate(n, 1, t, &device, &host);
    if (bytes == 0) continue;
    if ((device != NULL && b->fill(b->user, d, n->job, t, device, bytes, 0) != 0) ||
        (host != NULL && b->fill(b->user, d, n->job, t, host, bytes, 1) != 0)) {
      return GMLAKE_OFFLOAD_ERROR_BACKEND;
    }
  }
  return GMLAKE_OFFLOAD_OK;
}

/* Makes room for what is under way, allocates the arenas and fills what exists when an iteration
   begins. */
static gmlake_offload_result gmlo_nodes_make(gmlo_nodes *n) {
  const gmlake_offload_memgraph *m = n->memgraph;
  gmlo_scope *scope = &n->ready.scope;
  gmlake_offload_result result;
  n->divisor = n->works->backend->divisor != 0 ? n->works->backend->divisor : 1;
  if (!gmlo_ready_make(&n->ready, m, &n->desc->host, n->desc->flags)) {
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  }
  n->ready.in_line = n->desc->launch_ahead_max != 0;
  n->idle_ns = (uint64_t *)gmlo_take(scope, m->info.device_count, sizeof *n->idle_ns);
  n->pointers = (void **)gmlo_take(scope, m->graph->refs_most, sizeof *n->pointers);
  n->device_arenas = (void **)gmlo_take(scope, m->info.device_count, sizeof(void *));
  if (n->idle_ns == NULL || n->pointers == NULL || n->device_arenas == NULL) {
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  }
  result = gmlo_nodes_alloc(n);
  return result == GMLAKE_OFFLOAD_OK ? gmlo_nodes_fill(n) : result;
}

/* pre: none of its nodes is under way. */
static void gmlo_nodes_leave(gmlo_nodes *n) {
  const gmlake_offload_memgraph *m = n->memgraph;
  const gmlake_offload_backend *b = n->works->backend;
  size_t d;
  for (d = 0; n->device_arenas != NULL && d < m->info.device_count; d++) {
    if (n->device_arenas[d] == NULL) continue;
    b->device_free(b->user, (uint32_t)d, n->device_arenas[d], m->device_bytes[d]);
    n->works->stats->device_bytes -= m->device_bytes[d];
  }
  if (n->host_arena != NULL) {
    b->host_free(b->user, n->host_arena, m->info.host_bytes);
    n->works->stats->host_bytes -= m->info.host_bytes;
  }
  gmlo_leave(&n->ready.scope);
}

/* ---- >>run: the operators of jobs in order, and the events of plans -----------------------------
   Owns for each job where its tensors are (gmlo_run_tensor), or its memgraph, and the requests that
   were asked for.
   Invariants:
   [N1] stats.device_bytes is the sum of the bytes of all tensors that are `there`, as those that
        are coming or going are, and of the arenas of memgraphs.
   [N2] A tensor that is `there` and not `coming` has its bytes on the device. One with host_valid
        has its bytes on the host. A tensor that exists has one or the other.
   [N3] A tensor with pins stays where it is: an operator that runs uses it.
   [N4] At most one copy of each direction is under way. The operators of a job end in their order.
        More than one of a job is under way only if launch_ahead_max allows it, and only within one
        iteration.
   [N5] Swaps on demand are for one job at a time, the acquirer: they bring what its next operator
        lacks. They leave that operator's tensors alone, and what they free is the acquirer's. So
        jobs can neither wait for each other's tensors in a circle nor take them from each other for
        ever.
   [N6] Nothing refers to a job that is gone: its requests went with it, and its copies have
        ended.
   Cost: an operator O(its tensors), an on-demand swap out O(all tensors). Fails: where host memory
   is refused, where the backend fails, and where an operator needs more than the limit; the run is
   over then. */

typedef struct gmlo_run_tensor {
  void *device, *host;
  int there;  /* it has device memory */
  int coming; /* it is being copied from the host */
  int going;  /* it is being copied to the host */
  int keep;   /* it is going, but stays on the device: it is used again */
  int host_valid;
  int fresh; /* gmlo_step_alloc has given it memory */
  int dead;  /* it is being copied, but no longer needed */
  unsigned pins;
  uint32_t last_op; /* the operator that used it last */
  uint64_t used_at; /* rises with every use */
} gmlo_run_tensor;

typedef struct gmlo_run_step {
  uint32_t op;
  uint32_t remade; /* the tensor for which it runs again, or NONE */
} gmlo_run_step;

typedef struct gmlo_run_job {
  const gmlake_offload_graph *graph; /* NULL: there is no job of this number */
  gmlo_nodes *nodes; /* of its memgraph, memory of scope; NULL: it has none, and all of this: */
  const gmlake_offload_plan *plan, *next_plan;
  int leaves, replans; /* replans: the next iteration runs by next_plan */
  int pauses;          /* between two iterations, until its copies have ended */
  gmlo_run_tensor *tensors;
  gmlo_scope scope; /* of what follows, which each plan has of its own */
  gmlo_run_step *steps;
  size_t step_count;
  void **pointers;     /* of the operator that is being launched */
  uint64_t *begin_ns;  /* of each position, and of the end, if nothing waits */
  size_t *event_begin; /* events behind position p: event_begin[p + 1] up to [p + 2] - 1 */
  size_t *last;        /* for each tensor: the last step that needs it, + 1; 0: none does */
  size_t at;           /* the next step, or the first one that runs */
  size_t running;      /* steps under way, from `at` on */
  uint64_t started_ns, ended_ns;
  uint64_t iteration, target;
} gmlo_run_job;

/* What was asked for: it waits for its time, then for its turn. */
typedef struct gmlo_request {
  gmlake_offload_action action; /* no RECOMPUTE */
  uint32_t job, tensor;
  uint32_t last_op; /* void if another operator used the tensor since */
  uint64_t at_ns;   /* its time; 0: it has come */
  int on_demand;    /* no plan asked for it */
} gmlo_request;

typedef struct gmlo_copy_lane { /* one direction */
  int busy;
  uint32_t job, tensor; /* [busy] what is being copied */
} gmlo_copy_lane;

struct gmlake_offload_run {
  gmlake_offload_run_desc desc;
  gmlo_run_job *jobs;
  size_t job_count, job_capacity;
  uint32_t device;
  gmlo_copy_lane lanes[2];
  gmlo_request *requests; /* in the order in which they were asked for */
  size_t request_count, request_capacity;
  size_t refused_bytes; /* the backend refused so many; 0: not since memory was freed */
  uint64_t uses;        /* counts up for used_at */
  gmlo_works works;
  uint32_t acquirer; /* [N5] a job, or NONE */
  int looping;       /* gmlake_offload_run_iterations is on the stack */
  int hungry;        /* the acquirer waits for memory, of which no other job takes any: */
  size_t hungry_bytes;
  gmlake_offload_result failed;
  gmlake_offload_run_stats stats;
};

static gmlake_offload_result gmlo_run_fail(gmlake_offload_run *run, gmlake_offload_result result) {
  if (run->failed == GMLAKE_OFFLOAD_OK) run->failed = result;
  return result;
}

static size_t gmlo_run_bytes(const gmlo_run_job *job, uint32_t tensor) {
  return job->graph->tensors[tensor].bytes;
}

static int gmlo_run_fits(const gmlake_offload_run *run, size_t bytes) {
  size_t limit = run->desc.limit_bytes != 0 ? run->desc.limit_bytes : SIZE_MAX;
  if (run->refused_bytes != 0 && bytes >= run->refused_bytes) return 0;
  return run->stats.device_bytes <= limit && bytes <= limit - run->stats.device_bytes;
}

/* Allocates device memory for a tensor. 0 if the backend refuses. */
static int gmlo_run_tensor_alloc(gmlake_offload_run *run, gmlo_run_tensor *state, size_t bytes) {
  state->device = NULL;
  if (bytes != 0 && run->desc.backend->device_alloc(run->desc.backend->user, run->device, bytes,
                                                    &state->device) != 0) {
    run->refused_bytes = bytes;
    return 0;
  }
  state->there = 1;
  gmlo_count_up(&run->stats.device_bytes, &run->stats.device_bytes_peak, bytes);
  return 1;
}

static void gmlo_run_tensor_free(gmlake_offload_run *run, gmlo_run_tensor *state, size_t bytes) {
  if (!state->there) return;
  if (bytes != 0) {
    run->desc.backend->device_free(run->desc.backend->user, run->device, state->device, bytes);
  }
  state->device = NULL;
  state->there = 0;
  run->stats.device_bytes -= bytes;
  run->refused_bytes = 0;
}

/* Allocates host memory for a tensor, which it keeps as long as it exists. 0 if the backend
   refuses. */
static int gmlo_run_tensor_alloc_host(gmlake_offload_run *run, gmlo_run_tensor *state,
                                      size_t bytes) {
  if (state->host != NULL || bytes == 0) return 1;
  if (run->desc.backend->host_alloc(run->desc.backend->user, bytes, &state->host) != 0) {
    state->host = NULL;
    return 0;
  }
  gmlo_count_up(&run->stats.host_bytes, &run->stats.host_bytes_peak, bytes);
  return 1;
}

static void gmlo_run_tensor_free_host(gmlake_offload_run *run, gmlo_run_tensor *state,
                                      size_t bytes) {
  state->host_valid = 0;
  if (state->host == NULL) return;
  run->desc.backend->host_free(run->desc.backend->user, state->host, bytes);
  state->host = NULL;
  run->stats.host_bytes -= bytes;
}

/* Frees both. pre: it is not being copied. */
static void gmlo_run_tensor_end(gmlake_offload_run *run, gmlo_run_tensor *state, size_t bytes) {
  gmlo_run_tensor_free(run, state, bytes);
  gmlo_run_tensor_free_host(run, state, bytes);
}

/* ---- Steps of an iteration ---- */

static int gmlo_run_make_steps(gmlo_run_job *job) {
  const gmlake_offload_graph *graph = job->graph;
  const gmlake_offload_plan *plan = job->plan;
  size_t count = plan != NULL ? plan->info.event_count : 0, i = 0, p;
  job->steps = (gmlo_run_step *)gmlo_take(&job->scope, graph->op_count + count, sizeof *job->steps);
  job->event_begin =
      (size_t *)gmlo_take(&job->scope, graph->op_count + 2, sizeof *job->event_begin);
  job->begin_ns = (uint64_t *)gmlo_take(&job->scope, graph->op_count + 1, sizeof *job->begin_ns);
  job->pointers = (void **)gmlo_take(&job->scope, graph->refs_most, sizeof *job->pointers);
  if (job->steps == NULL || job->event_begin == NULL || job->begin_ns == NULL ||
      job->pointers == NULL) {
    return 0;
  }
  job->step_count = 0;
  for (p = 0; p <= graph->op_count; p++) { /* what runs again before position p, then its own */
    job->event_begin[p] = i;
    for (; i < count; i++) {
      const gmlake_offload_event *event = &plan->events[i];
      if (gmlo_event_after(graph, event) != p) break;
      if (event->action != GMLAKE_OFFLOAD_RECOMPUTE || p == graph->op_count) continue;
      job->steps[job->step_count].op = event->op;
      job->steps[job->step_count++].remade = event->tensor;
    }
    if (p == graph->op_count) break;
    job->begin_ns[p + 1] = job->begin_ns[p] + graph->ops[graph->order[p]].time_ns;
    job->steps[job->step_count].op = graph->order[p];
    job->steps[job->step_count++].remade = GMLAKE_OFFLOAD_NONE;
  }
  job->event_begin[graph->op_count + 1] = count;
  return 1;
}

/* Whether step s writes its reference i only because it runs again for another tensor. */
static int gmlo_run_is_beside(const gmlo_run_job *job, size_t s, size_t i) {
  uint32_t op = job->steps[s].op, remade = job->steps[s].remade;
  return remade != GMLAKE_OFFLOAD_NONE && remade != gmlo_op_ref(job->graph, op, i) &&
         i >= job->graph->ops[op].read_count;
}

static int gmlo_run_make_last(gmlo_run_job *job) {
  size_t s, i;
  job->last = (size_t *)gmlo_take(&job->scope, job->graph->tensor_count, sizeof *job->last);
  if (job->last == NULL) return 0;
  for (s = 0; s < job->step_count; s++) {
    for (i = 0; i < gmlo_op_refs(job->graph, job->steps[s].op); i++) {
      uint32_t tensor = gmlo_op_ref(job->graph, job->steps[s].op, i);
      if (!gmlo_run_is_beside(job, s, i)) job->last[tensor] = s + 1;
    }
  }
  return 1;
}

/* Makes the steps for the plan of the next iteration. */
static int gmlo_run_adopt(gmlo_run_job *job) {
  gmlo_leave(&job->scope);
  if (job->replans) job->plan = job->next_plan;
  job->replans = 0;
  return gmlo_run_make_steps(job) && gmlo_run_make_last(job);
}

/* ---- Copies ---- */

static gmlo_run_tensor *gmlo_request_tensor(const gmlake_offload_run *run,
                                            const gmlo_request *request) {
  return &run->jobs[request->job].tensors[request->tensor];
}

/* The first request for that action whose time has come, or with is_early has not: for that tensor,
   or for any (job NONE). request_count: there is none. */
static size_t gmlo_run_find_request(const gmlake_offload_run *run, gmlake_offload_action action,
                                    uint32_t job, uint32_t tensor, int is_early) {
  size_t i;
  for (i = 0; i < run->request_count; i++) {
    const gmlo_request *request = &run->requests[i];
    if (request->action == action && (request->at_ns != 0) == is_early &&
        (job == GMLAKE_OFFLOAD_NONE || (request->job == job && request->tensor == tensor))) {
      break;
    }
  }
  return i;
}

static int gmlo_run_has_request(const gmlake_offload_run *run, gmlake_offload_action action,
                                uint32_t job, uint32_t tensor, int is_early) {
  return gmlo_run_find_request(run, action, job, tensor, is_early) != run->request_count;
}

static void gmlo_run_add_request(gmlake_offload_run *run, const gmlo_request *request) {
  gmlo_request *added =
      (gmlo_request *)gmlo_more(&run->desc.host, &run->requests, run->request_count, 1,
                                &run->request_capacity, sizeof *added);
  if (added == NULL) {
    (void)gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY);
    return;
  }
  *added = *request;
  run->request_count++;
}

static gmlo_request gmlo_run_take_request(gmlake_offload_run *run, size_t i) {
  gmlo_request request = run->requests[i];
  memmove(&run->requests[i], &run->requests[i + 1], (--run->request_count - i) * sizeof request);
  return request;
}

static uint64_t gmlo_lane_token(int lane) {
  return (uint64_t)GMLO_TOKEN_COPY << GMLO_TOKEN_SHIFT | (uint64_t)(unsigned)lane;
}

/* pre: the tensor has memory at both ends, and the direction is not busy. */
static void gmlo_copy_start(gmlake_offload_run *run, int lane, uint32_t job, uint32_t tensor,
                            int on_demand) {
  gmlo_run_tensor *state = &run->jobs[job].tensors[tensor];
  gmlo_copy_lane *l = &run->lanes[lane];
  gmlake_offload_copy copy;
  memset(&copy, 0, sizeof copy);
  copy.device = run->device;
  copy.to_host = lane == GMLO_OUT;
  copy.device_ptr = state->device;
  copy.host_ptr = state->host;
  copy.bytes = gmlo_run_bytes(&run->jobs[job], tensor);
  if (!gmlo_works_copy(&run->works, &copy, (uint32_t)lane, gmlo_lane_token(lane))) {
    (void)gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_BACKEND);
    return;
  }
  l->busy = 1;
  l->job = job;
  l->tensor = tensor;
  if (lane == GMLO_OUT) {
    state->going = 1;
    run->stats.on_demand_out_count += (uint64_t)on_demand;
  } else {
    state->coming = 1;
    run->stats.on_demand_in_count += (uint64_t)on_demand;
  }
}

static void gmlo_copy_done(gmlake_offload_run *run, int lane) {
  const gmlo_run_job *job = &run->jobs[run->lanes[lane].job];
  gmlo_run_tensor *state = &job->tensors[run->lanes[lane].tensor];
  size_t bytes = gmlo_run_bytes(job, run->lanes[lane].tensor);
  run->lanes[lane].busy = 0;
  if (lane == GMLO_IN) {
    state->coming = 0;
    state->used_at = ++run->uses;
  } else {
    state->going = 0;
    state->host_valid = 1;
    if (!state->keep && state->pins == 0) gmlo_run_tensor_free(run, state, bytes);
    state->keep = 0;
  }
  if (state->dead) {
    state->dead = 0;
    gmlo_run_tensor_end(run, state, bytes);
  }
}

/* Whether the tensor is on the device, and nothing uses or copies it. */
static int gmlo_run_is_idle(const gmlo_run_tensor *state) {
  return state->there && !state->coming && !state->going && state->pins == 0;
}

/* Whether a swap out may still happen: no operator used the tensor since. */
static int gmlo_run_out_is_valid(const gmlake_offload_run *run, const gmlo_request *request) {
  const gmlo_run_tensor *state = gmlo_request_tensor(run, request);
  return gmlo_run_is_idle(state) && state->last_op == request->last_op;
}

/* ---- Memory on demand ---- */

static int gmlo_run_next_uses(const gmlake_offload_run *run, uint32_t job, uint32_t tensor) {
  const gmlo_run_job *j = &run->jobs[job];
  return run->acquirer == job && j->at < j->step_count &&
         gmlo_op_uses(j->graph, j->steps[j->at].op, tensor) != 0;
}

/* Whether the tensor leaves anyway, now or soon. */
static int gmlo_run_leaves(const gmlake_offload_run *run, uint32_t job, uint32_t tensor) {
  size_t i;
  for (i = 0; i < run->request_count; i++) {
    const gmlo_request *request = &run->requests[i];
    if (request->job == job && request->tensor == tensor && gmlo_run_out_is_valid(run, request)) {
      return 1;
    }
  }
  return 0;
}

static int gmlo_run_may_evict(const gmlake_offload_run *run, uint32_t job, uint32_t tensor) {
  const gmlo_run_job *j = &run->jobs[job];
  return gmlo_run_is_idle(&j->tensors[tensor]) && j->graph->tensors[tensor].bytes != 0 &&
         !gmlo_run_leaves(run, job, tensor) && !gmlo_run_next_uses(run, job, tensor);
}

/* The position of the job's next operator that does not run again. */
static size_t gmlo_run_position(const gmlo_run_job *job) {
  size_t at = job->at;
  while (at < job->step_count && job->steps[at].remade != GMLAKE_OFFLOAD_NONE) at++;
  return at < job->step_count ? job->graph->position[job->steps[at].op] : job->graph->op_count;
}

/* How long it takes until the job, which is at `position`, uses the tensor, in this iteration or in
   the next one. */
static uint64_t gmlo_run_time_to_use(const gmlo_run_job *job, size_t position, uint32_t tensor) {
  const gmlake_offload_graph *graph = job->graph;
  size_t begin = graph->access_begin[tensor], end = graph->access_begin[tensor + 1];
  size_t next = gmlo_access_from(graph, tensor, position);
  uint64_t now = job->begin_ns[position];
  if (next < end) return job->begin_ns[graph->accesses[next].position] - now;
  if (begin == end || gmlo_kind_is_made(graph->tensors[tensor].kind)) return UINT64_MAX;
  return job->begin_ns[graph->op_count] - now + job->begin_ns[graph->accesses[begin].position];
}

/* Finds the tensor that leaves if one has to: the one whose next use is farthest away; of several
   the one that was not used for longest. 0 if none may leave. */
static int gmlo_run_find_victim(const gmlake_offload_run *run, uint32_t *out_job,
                                uint32_t *out_tensor) {
  int lru = (run->desc.flags & GMLAKE_OFFLOAD_LRU) != 0, found = 0;
  uint64_t farthest = 0, oldest = 0;
  size_t j, t;
  for (j = 0; j < run->job_count; j++) {
    const gmlo_run_job *job = &run->jobs[j];
    int in_run = job->graph != NULL && job->nodes == NULL;
    size_t position = in_run ? gmlo_run_position(job) : 0;
    for (t = 0; in_run && t < job->graph->tensor_count; t++) {
      uint64_t used_at = job->tensors[t].used_at, until = 0;
      if (!job->tensors[t].there) continue;
      if (!lru) until = gmlo_run_time_to_use(job, position, (uint32_t)t);
      if (found && (until < farthest || (until == farthest && used_at >= oldest))) continue;
      if (!gmlo_run_may_evict(run, (uint32_t)j, (uint32_t)t)) continue;
      found = 1;
      farthest = until;
      oldest = used_at;
      *out_job = (uint32_t)j;
      *out_tensor = (uint32_t)t;
    }
  }
  return found;
}

/* Starts the next swap out whose time has come: the last one on demand, else the first. 1 if
   something changed. */
static int gmlo_run_next_out(gmlake_offload_run *run) {
  size_t i, next = run->request_count, bytes;
  gmlo_request request;
  gmlo_run_tensor *state;
  for (i = 0; i < run->request_count && !run->lanes[GMLO_OUT].busy; i++) {
    if (run->requests[i].action == GMLAKE_OFFLOAD_SWAP_OUT && run->requests[i].at_ns == 0 &&
        (next == run->request_count || run->requests[i].on_demand)) {
      next = i;
    }
  }
  if (next == run->request_count) return 0;
  request = gmlo_run_take_request(run, next);
  state = gmlo_request_tensor(run, &request);
  bytes = gmlo_run_bytes(&run->jobs[request.job], request.tensor);
  if (!gmlo_run_out_is_valid(run, &request)) {
    run->stats.void_count++;
  } else if (state->host_valid || bytes == 0) {
    state->host_valid = 1;
    gmlo_run_tensor_free(run, state, bytes);
  } else if (!gmlo_run_tensor_alloc_host(run, state, bytes)) {
    (void)gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY);
  } else {
    gmlo_copy_start(run, GMLO_OUT, request.job, request.tensor, request.on_demand);
  }
  return 1;
}

/* Whether so many bytes have room behind the swap out under way, those that wait for their turn and
   those that wait for their time. */
static int gmlo_run_fits_behind(const gmlake_offload_run *run, size_t bytes) {
  const gmlo_copy_lane *l = &run->lanes[GMLO_OUT];
  size_t limit = run->desc.limit_bytes != 0 ? run->desc.limit_bytes : SIZE_MAX, used, i;
  size_t leaving = 0;
  if (l->busy && !run->jobs[l->job].tensors[l->tensor].keep)
    leaving = gmlo_run_bytes(&run->jobs[l->job], l->tensor);
  for (i = 0; i < run->request_count; i++) {
    const gmlo_request *request = &run->requests[i];
    if (request->action == GMLAKE_OFFLOAD_SWAP_IN || !gmlo_run_out_is_valid(run, request) ||
        (request->at_ns != 0 &&
         gmlo_run_has_request(run, GMLAKE_OFFLOAD_SWAP_OUT, request->job, request->tensor, 0))) {
      continue;
    }
    leaving += gmlo_run_bytes(&run->jobs[request->job], request->tensor);
  }
  used = run->stats.device_bytes - leaving;
  return used <= limit && bytes <= limit - used && (run->refused_bytes == 0 || leaving >= bytes);
}

/* The acquirer needs so much memory: asks for swaps out until it will have room. 1 if something
   changed. [N5] */
static int gmlo_run_reclaim(gmlake_offload_run *run, size_t bytes) {
  gmlo_request request;
  int changed = 0;
  memset(&request, 0, sizeof request);
  request.action = GMLAKE_OFFLOAD_SWAP_OUT;
  request.on_demand = 1;
  run->hungry = 1;
  run->hungry_bytes = bytes;
  while (!gmlo_run_fits_behind(run, bytes) && run->failed == GMLAKE_OFFLOAD_OK &&
         gmlo_run_find_victim(run, &request.job, &request.tensor)) {
    request.last_op = gmlo_request_tensor(run, &request)->last_op;
    gmlo_run_add_request(run, &request);
    changed = 1;
  }
  return changed;
}

/* A tensor that the acquirer's next step lacks, and that no plan brings later. NONE: there is
   none. */
static uint32_t gmlo_run_missing(const gmlake_offload_run *run) {
  const gmlo_run_job *job = &run->jobs[run->acquirer];
  uint32_t op = job->steps[job->at].op;
  size_t i;
  for (i = 0; i < job->graph->ops[op].read_count; i++) {
    uint32_t tensor = gmlo_op_ref(job->graph, op, i);
    if (!job->tensors[tensor].there &&
        !gmlo_run_has_request(run, GMLAKE_OFFLOAD_SWAP_IN, run->acquirer, tensor, 1)) {
      return tensor;
    }
  }
  return GMLAKE_OFFLOAD_NONE;
}

/* Starts the next swap in, if there is memory for it: of what the acquirer needs, else the first
   that a plan asks for. 1 if something changed. */
static int gmlo_run_next_in(gmlake_offload_run *run) {
  uint32_t job = run->acquirer, tensor = GMLAKE_OFFLOAD_NONE;
  int is_needed, is_planned;
  gmlo_run_tensor *state;
  size_t next, bytes;
  if (run->lanes[GMLO_IN].busy) return 0;
  if (job != GMLAKE_OFFLOAD_NONE) tensor = gmlo_run_missing(run);
  is_needed = tensor != GMLAKE_OFFLOAD_NONE;
  next = gmlo_run_find_request(run, GMLAKE_OFFLOAD_SWAP_IN, is_needed ? job : GMLAKE_OFFLOAD_NONE,
                               tensor, 0);
  is_planned = next != run->request_count;
  if (!is_needed && !is_planned) return 0;
  if (is_planned) job = run->requests[next].job;
  if (is_planned) tensor = run->requests[next].tensor;
  state = &run->jobs[job].tensors[tensor];
  bytes = gmlo_run_bytes(&run->jobs[job], tensor);
  if (is_planned && (state->there || !state->host_valid)) {
    run->stats.void_count++;
    (void)gmlo_run_take_request(run, next);
    return 1;
  }
  if (run->hungry && !is_needed &&
      (run->refused_bytes != 0 || !gmlo_run_fits_behind(run, run->hungry_bytes + bytes))) {
    return 0;
  }
  if (!gmlo_run_fits(run, bytes) || !gmlo_run_tensor_alloc(run, state, bytes)) {
    return is_needed ? gmlo_run_reclaim(run, bytes) : 0;
  }
  if (is_planned) (void)gmlo_run_take_request(run, next);
  if (bytes != 0) gmlo_copy_start(run, GMLO_IN, job, tensor, !is_planned);
  return 1;
}

/* ---- Operators ---- */

/* Whether all that the job's next step reads is on the device. *out_bytes is what it has to
   allocate. */
static int gmlo_step_is_ready(gmlake_offload_run *run, uint32_t id, size_t *out_bytes) {
  gmlo_run_job *job = &run->jobs[id];
  uint32_t op = job->steps[job->at + job->running].op;
  size_t i, read_count = job->graph->ops[op].read_count;
  int ready = 1, is_ahead = job->running != 0;
  *out_bytes = 0;
  for (i = 0; i < gmlo_op_refs(job->graph, op); i++) {
    uint32_t tensor = gmlo_op_ref(job->graph, op, i);
    gmlo_run_tensor *state = &job->tensors[tensor];
    if (state->going && !is_ahead) state->keep = 1;
    if (state->coming || (state->going && (is_ahead || i >= read_count))) ready = 0;
    if (state->there) continue;
    if (i < read_count) {
      ready = 0;
      if (!is_ahead && !state->host_valid) {
        (void)gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_WRONG_PLAN);
      }
    } else if ((gmlo_op_uses(job->graph, op, tensor) & GMLO_READS) == 0) {
      *out_bytes += gmlo_run_bytes(job, tensor);
    }
  }
  return ready;
}

/* Allocates device memory, `bytes` together, for what the step makes. 0 if there is no room yet. */
static int gmlo_step_alloc(gmlake_offload_run *run, uint32_t id, size_t bytes) {
  gmlo_run_job *job = &run->jobs[id];
  uint32_t op = job->steps[job->at + job->running].op;
  size_t i = job->graph->ops[op].read_count, end = gmlo_op_refs(job->graph, op);
  int has_all = 1;
  for (; i < end && has_all; i++) {
    uint32_t tensor = gmlo_op_ref(job->graph, op, i);
    gmlo_run_tensor *state = &job->tensors[tensor];
    if (state->there) continue;
    has_all = state->fresh = gmlo_run_tensor_alloc(run, state, gmlo_run_bytes(job, tensor));
  }
  for (i = job->graph->ops[op].read_count; i < end; i++) {
    uint32_t tensor = gmlo_op_ref(job->graph, op, i);
    gmlo_run_tensor *state = &job->tensors[tensor];
    if (!has_all && state->fresh) gmlo_run_tensor_free(run, state, gmlo_run_bytes(job, tensor));
    state->fresh = 0;
  }
  if (!has_all) run->refused_bytes = bytes;
  return has_all;
}

static void gmlo_step_launch(gmlake_offload_run *run, uint32_t id) {
  gmlo_run_job *job = &run->jobs[id];
  const gmlake_offload_graph *graph = job->graph;
  uint32_t op = job->steps[job->at + job->running].op;
  size_t i, count = gmlo_op_refs(graph, op), read_count = graph->ops[op].read_count;
  gmlake_offload_launch launch;
  for (i = 0; i < count; i++) {
    gmlo_run_tensor *state = &job->tensors[gmlo_op_ref(graph, op, i)];
    state->pins++;
    state->last_op = op;
    state->used_at = ++run->uses;
    if (i >= read_count) state->host_valid = 0;
    job->pointers[i] = state->device;
  }
  memset(&launch, 0, sizeof launch);
  launch.graph = graph;
  launch.job = id;
  launch.op = op;
  launch.iteration = job->iteration;
  launch.is_again = job->steps[job->at + job->running].remade != GMLAKE_OFFLOAD_NONE;
  if (!gmlo_works_launch(&run->works, &launch, job->pointers, gmlo_job_stream(&run->desc, id),
                         (uint64_t)GMLO_TOKEN_OP << GMLO_TOKEN_SHIFT | id)) {
    (void)gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_BACKEND);
    return;
  }
  if (job->running++ != 0) return;
  job->started_ns = run->works.now_ns;
  run->stats.stall_ns += run->works.now_ns - job->ended_ns;
}

/* Launches one more step behind those that run, if it can. 1 if it did. [N4] */
static int gmlo_step_next_ahead(gmlake_offload_run *run, uint32_t id) {
  gmlo_run_job *job = &run->jobs[id];
  size_t bytes;
  if (job->running > run->desc.launch_ahead_max || job->at + job->running >= job->step_count ||
      run->acquirer != GMLAKE_OFFLOAD_NONE || !gmlo_step_is_ready(run, id, &bytes) ||
      !gmlo_run_fits(run, bytes) || !gmlo_step_alloc(run, id, bytes)) {
    return 0;
  }
  gmlo_step_launch(run, id);
  return 1;
}

/* Starts the nodes of the job's memgraph that may start. 1 if there were such. */
static int gmlo_step_next_nodes(gmlake_offload_run *run, const gmlo_run_job *job) {
  int started = gmlo_nodes_start(job->nodes, job->iteration);
  if (started < 0) (void)gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_BACKEND);
  return started > 0;
}

/* Launches the job's next step, if it can. 1 if something changed. */
static int gmlo_step_next(gmlake_offload_run *run, uint32_t id) {
  gmlo_run_job *job = &run->jobs[id];
  size_t bytes;
  if (job->iteration >= job->target || job->pauses) return 0;
  if (job->nodes != NULL) return gmlo_step_next_nodes(run, job);
  if (job->running != 0) return gmlo_step_next_ahead(run, id);
  if (!gmlo_step_is_ready(run, id, &bytes)) {
    if (run->acquirer == GMLAKE_OFFLOAD_NONE) run->acquirer = id;
    return 0;
  }
  if (run->hungry && run->acquirer != id && bytes != 0) return 0;
  if (!gmlo_run_fits(run, bytes) || !gmlo_step_alloc(run, id, bytes)) {
    if (run->acquirer == GMLAKE_OFFLOAD_NONE) run->acquirer = id;
    return run->acquirer == id ? gmlo_run_reclaim(run, bytes) : 0;
  }
  if (run->acquirer == id) {
    run->acquirer = GMLAKE_OFFLOAD_NONE;
    run->hungry = 0;
  }
  gmlo_step_launch(run, id);
  return 1;
}

/* ---- Events ---- */

/* Whether steps make the dropped tensor again before its next use. */
static int gmlo_drop_is_sound(const gmlo_run_job *job, uint32_t tensor) {
  size_t s;
  for (s = job->at; s < job->step_count; s++) {
    unsigned uses = gmlo_op_uses(job->graph, job->steps[s].op, tensor);
    if (uses != 0) return job->steps[s].remade == tensor && uses == GMLO_WRITES;
  }
  return 0;
}

/* The time of a request has come. */
static void gmlo_request_fire(gmlake_offload_run *run, gmlo_request request) {
  gmlo_run_job *job = &run->jobs[request.job];
  gmlo_run_tensor *state = gmlo_request_tensor(run, &request);
  int is_in = request.action == GMLAKE_OFFLOAD_SWAP_IN;
  request.at_ns = 0;
  if (is_in ? state->there && !state->going
            : !state->there || state->coming || state->pins != 0 ||
                  (state->last_op != request.last_op && state->last_op != GMLAKE_OFFLOAD_NONE)) {
    run->stats.void_count++;
  } else if (state->going) {
    state->keep = is_in; /* one that was used while it was copied out leaves when that ends */
  } else if (!is_in && (state->host_valid || (request.action == GMLAKE_OFFLOAD_DROP &&
                                              gmlo_drop_is_sound(job, request.tensor)))) {
    gmlo_run_tensor_free(run, state, gmlo_run_bytes(job, request.tensor));
  } else {
    if (!is_in) request.action = GMLAKE_OFFLOAD_SWAP_OUT;
    if (gmlo_run_has_request(run, request.action, request.job, request.tensor, 0)) return;
    request.last_op = state->last_op;
    gmlo_run_add_request(run, &request);
    if (!is_in) (void)gmlo_run_next_out(run); /* before the next operator can use it */
  }
}

/* Fires the requests whose time has come. */
static void gmlo_requests_fire(gmlake_offload_run *run) {
  size_t i = 0;
  while (i < run->request_count && run->failed == GMLAKE_OFFLOAD_OK) {
    uint64_t at_ns = run->requests[i].at_ns;
    if (at_ns != 0 && at_ns <= run->works.now_ns) {
      gmlo_request_fire(run, gmlo_run_take_request(run, i));
    } else {
      i++;
    }
  }
}

/* When the next one does. UINT64_MAX: none waits for its time. */
static uint64_t gmlo_requests_next_ns(const gmlake_offload_run *run) {
  uint64_t next_ns = UINT64_MAX;
  size_t i;
  for (i = 0; i < run->request_count; i++) {
    uint64_t at_ns = run->requests[i].at_ns;
    if (at_ns != 0 && at_ns < next_ns) next_ns = at_ns;
  }
  return next_ns;
}

/* Starts the events of the operator at position p - 1: at once, or when their time comes. */
static void gmlo_events_trigger(gmlake_offload_run *run, uint32_t id, size_t p) {
  gmlo_run_job *job = &run->jobs[id];
  size_t i;
  if (job->plan == NULL) return;
  for (i = job->event_begin[p]; i < job->event_begin[p + 1]; i++) {
    const gmlake_offload_event *event = &job->plan->events[i];
    gmlo_request request;
    if (event->action == GMLAKE_OFFLOAD_RECOMPUTE) continue; /* it is a step */
    memset(&request, 0, sizeof request);
    request.action = event->action;
    request.job = id;
    request.tensor = event->tensor;
    request.last_op = event->op;
    request.at_ns = run->works.now_ns + event->delay_ns;
    if (event->delay_ns == 0) {
      gmlo_request_fire(run, request);
    } else {
      gmlo_run_add_request(run, &request);
    }
  }
}

/* Frees all that the job has, behind its copies. 0 if the backend fails. pre: none of its operators
   runs. [N6] */
static int gmlo_run_job_stop(gmlake_offload_run *run, uint32_t id) {
  gmlo_run_job *job = &run->jobs[id];
  size_t i, kept = 0, t;
  int lane;
  for (lane = 0; lane < 2; lane++) {
    if (!run->lanes[lane].busy || run->lanes[lane].job != id) continue;
    if (!gmlo_works_finish(&run->works, gmlo_lane_token(lane))) {
      (void)gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_BACKEND);
      return 0;
    }
    gmlo_copy_done(run, lane);
  }
  for (i = 0; i < run->request_count; i++) {
    if (run->requests[i].job != id) run->requests[kept++] = run->requests[i];
  }
  run->request_count = kept;
  for (t = 0; job->tensors != NULL && t < job->graph->tensor_count; t++) {
    gmlo_run_tensor_end(run, &job->tensors[t], gmlo_run_bytes(job, (uint32_t)t));
  }
  if (job->nodes != NULL) gmlo_nodes_leave(job->nodes);
  gmlo_leave(&job->scope);
  gmlo_free(&run->desc.host, job->tensors);
  memset(job, 0, sizeof *job);
  return 1;
}

/* Begins the job's next iteration, if it has one to run. */
static void gmlo_iteration_begin(gmlake_offload_run *run, uint32_t id) {
  gmlo_run_job *job = &run->jobs[id];
  job->at = 0;
  if (job->leaves) {
    (void)gmlo_run_job_stop(run, id);
  } else if (job->iteration < job->target && job->nodes != NULL) {
    gmlo_nodes_begin(job->nodes);
  } else if (job->iteration < job->target) {
    if (job->replans && !gmlo_run_adopt(job)) {
      (void)gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY);
      return;
    }
    gmlo_events_trigger(run, id, 0);
  }
}

/* Whether a copy of the job is under way, or waits for its turn or its time. */
static int gmlo_run_job_copies(const gmlake_offload_run *run, uint32_t id) {
  size_t i;
  for (i = 0; i < 2; i++) {
    if (run->lanes[i].busy && run->lanes[i].job == id) return 1;
  }
  for (i = 0; i < run->request_count; i++) {
    if (run->requests[i].job == id) return 1;
  }
  return 0;
}

/* Begins the next iteration of each job that has waited for its copies. Where nothing at all is
   under way they cannot end before it. */
static int gmlo_run_resume(gmlake_offload_run *run) {
  int resumed = 0;
  size_t j;
  for (j = 0; j < run->job_count; j++) {
    gmlo_run_job *job = &run->jobs[j];
    int waits = run->works.count != 0 || gmlo_requests_next_ns(run) != UINT64_MAX;
    if (!job->pauses || (waits && gmlo_run_job_copies(run, (uint32_t)j))) continue;
    job->pauses = 0;
    resumed = 1;
    gmlo_iteration_begin(run, (uint32_t)j);
  }
  return resumed;
}

/* Frees what an iteration made. */
static void gmlo_run_drop(gmlake_offload_run *run, gmlo_run_job *job, uint32_t tensor) {
  gmlo_run_tensor *state = &job->tensors[tensor];
  size_t bytes = gmlo_run_bytes(job, tensor);
  if (state->pins != 0) return; /* a step that runs makes it again, and frees it */
  state->last_op = GMLAKE_OFFLOAD_NONE;
  state->dead = state->going || state->coming; /* then gmlo_copy_done frees it */
  if (!state->dead) gmlo_run_tensor_end(run, state, bytes);
}

/* Frees what no step after job->at needs: intermediates, and what is written only beside a tensor
   that is made again. */
static void gmlo_step_free(gmlake_offload_run *run, gmlo_run_job *job) {
  const gmlake_offload_graph *graph = job->graph;
  uint32_t op = job->steps[job->at].op;
  size_t i;
  for (i = 0; i < gmlo_op_refs(graph, op); i++) {
    uint32_t tensor = gmlo_op_ref(graph, op, i);
    if (job->last[tensor] == job->at + 1
            ? graph->tensors[tensor].kind == GMLAKE_OFFLOAD_INTERMEDIATE
            : job->last[tensor] <= job->at && gmlo_run_is_beside(job, job->at, i)) {
      gmlo_run_drop(run, job, tensor);
    }
  }
}

/* At the end of the iteration. */
static void gmlo_outputs_free(gmlake_offload_run *run, gmlo_run_job *job) {
  uint32_t t;
  for (t = 0; t < job->graph->tensor_count; t++) {
    if (job->graph->tensors[t].kind == GMLAKE_OFFLOAD_OUTPUT && job->last[t] != 0) {
      gmlo_run_drop(run, job, t);
    }
  }
}

/* The last operator of the job's iteration has ended, and job->at is not 0. */
static void gmlo_iteration_end(gmlake_offload_run *run, uint32_t id) {
  gmlo_run_job *job = &run->jobs[id];
  uint64_t iteration = job->iteration++;
  run->stats.iteration_count++;
  if (run->desc.iteration_fn != NULL) run->desc.iteration_fn(run->desc.user, id, iteration);
  job = &run->jobs[id];     /* iteration_fn may have added jobs */
  if (job->at == 0) return; /* it was removed; another job may have its number */
  if (job->nodes == NULL) gmlo_outputs_free(run, job);
  job->pauses = job->plan != NULL && job->plan->pauses && job->iteration < job->target;
  if (!job->pauses) gmlo_iteration_begin(run, id);
}

static void gmlo_node_done(gmlake_offload_run *run, uint32_t id, uint32_t node) {
  gmlo_run_job *job = &run->jobs[id];
  job->at = 1;
  if (gmlo_nodes_done(job->nodes, node)) gmlo_iteration_end(run, id);
}

static void gmlo_step_done(gmlake_offload_run *run, uint32_t id) {
  gmlo_run_job *job = &run->jobs[id];
  uint32_t op = job->steps[job->at].op, remade = job->steps[job->at].remade;
  size_t i;
  job->running--;
  job->ended_ns = run->works.now_ns;
  for (i = 0; i < gmlo_op_refs(job->graph, op); i++) {
    job->tensors[gmlo_op_ref(job->graph, op, i)].pins--;
  }
  gmlo_step_free(run, job);
  if (run->desc.observe_fn != NULL) {
    run->desc.observe_fn(run->desc.user, id, op, run->works.now_ns - job->started_ns);
  }
  job = &run->jobs[id];                /* observe_fn may have added jobs */
  job->started_ns = run->works.now_ns; /* of the next step, if it was launched */
  job->at++;
  if (remade != GMLAKE_OFFLOAD_NONE) {
    run->stats.recompute_count++;
    return;
  }
  gmlo_events_trigger(run, id, (size_t)job->graph->position[op] + 1);
  if (job->at == job->step_count) gmlo_iteration_end(run, id);
}

/* ---- The loop ---- */

static void gmlo_run_progress(gmlake_offload_run *run) {
  int changed = 1;
  size_t j;
  while (changed && run->failed == GMLAKE_OFFLOAD_OK) {
    changed = 0;
    for (j = 0; j < run->job_count; j++) changed |= gmlo_step_next(run, (uint32_t)j);
    changed |= gmlo_run_next_out(run);
    changed |= gmlo_run_next_in(run);
    if (!changed) changed = gmlo_run_resume(run);
  }
}

static void gmlo_run_token(gmlake_offload_run *run, uint64_t token) {
  uint32_t id = (uint32_t)(token & UINT32_MAX);
  switch ((unsigned)(token >> GMLO_TOKEN_SHIFT)) {
  case GMLO_TOKEN_OP:
    gmlo_step_done(run, id);
    break;
  case GMLO_TOKEN_COPY:
    gmlo_copy_done(run, (int)id);
    break;
  default:
    gmlo_node_done(run, (uint32_t)(token >> GMLO_TOKEN_JOB) & GMLO_JOBS_MAX, id);
    break;
  }
}

/* Waits until something has ended, or the time of a request has come. */
static void gmlo_run_wait(gmlake_offload_run *run) {
  uint64_t token, until_ns = gmlo_requests_next_ns(run);
  int found = gmlo_works_wait(&run->works, until_ns, &token);
  if (found < 0) (void)gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_BACKEND);
  if (found > 0) gmlo_run_token(run, token);
  gmlo_requests_fire(run);
}

static int gmlo_run_unfinished(const gmlake_offload_run *run) {
  size_t j;
  for (j = 0; j < run->job_count; j++) {
    const gmlo_run_job *job = &run->jobs[j];
    if (job->iteration < job->target) return 1;
  }
  return 0;
}

static gmlake_offload_result gmlo_run_iterations(gmlake_offload_run *run, uint64_t count) {
  uint64_t began_ns;
  size_t j;
  if (!gmlo_works_now(&run->works)) return gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_BACKEND);
  began_ns = run->works.now_ns;
  for (j = 0; j < run->job_count; j++) {
    gmlo_run_job *job = &run->jobs[j];
    if (job->graph == NULL) continue;
    job->target = job->iteration + count;
    job->ended_ns = run->works.now_ns;
    gmlo_iteration_begin(run, (uint32_t)j);
  }
  gmlo_run_progress(run);
  while (run->failed == GMLAKE_OFFLOAD_OK && gmlo_run_unfinished(run)) {
    if (run->works.count == 0 && gmlo_requests_next_ns(run) == UINT64_MAX) {
      return gmlo_run_fail(run, GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY);
    }
    gmlo_run_wait(run);
    gmlo_run_progress(run);
  }
  run->stats.time_ns += run->works.now_ns - began_ns;
  return run->failed;
}

/* Allocates and fills the persistent tensors: on the host if the plan brings them back before they
   leave, or if the device has no room left. */
static gmlake_offload_result gmlo_run_fill(gmlake_offload_run *run, uint32_t id) {
  gmlo_run_job *job = &run->jobs[id];
  size_t t, i;
  for (i = job->plan != NULL ? job->plan->info.event_count : 0; i-- != 0;) {
    const gmlake_offload_event *event =
        &job->plan->events[i]; /* a tensor's first one is the last */
    job->tensors[event->tensor].host_valid =
        event->action == GMLAKE_OFFLOAD_SWAP_IN &&
        !gmlo_kind_is_made(job->graph->tensors[event->tensor].kind);
  }
  for (t = 0; t < job->graph->tensor_count; t++) {
    gmlo_run_tensor *state = &job->tensors[t];
    size_t bytes = job->graph->tensors[t].bytes;
    int on_host = state->host_valid || !gmlo_run_fits(run, bytes);
    if (gmlo_kind_is_made(job->graph->tensors[t].kind)) continue;
    if (!on_host && !gmlo_run_tensor_alloc(run, state, bytes)) on_host = 1;
    if (on_host && !gmlo_run_tensor_alloc_host(run, state, bytes)) {
      return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
    }
    state->host_valid = on_host;
    if (bytes != 0 &&
        run->desc.backend->fill(run->desc.backend->user, run->device, id, (uint32_t)t,
                                on_host ? state->host : state->device, bytes, on_host) != 0) {
      return GMLAKE_OFFLOAD_ERROR_BACKEND;
    }
  }
  return GMLAKE_OFFLOAD_OK;
}

/* What a job of a graph has. */
static gmlake_offload_result gmlo_run_make_tensors(gmlake_offload_run *run, uint32_t id) {
  gmlo_run_job *job = &run->jobs[id];
  size_t t, count = job->graph->tensor_count;
  job->tensors = (gmlo_run_tensor *)gmlo_zeroed(&run->desc.host, count, sizeof(gmlo_run_tensor));
  if (job->tensors == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  for (t = 0; t < count; t++) job->tensors[t].last_op = GMLAKE_OFFLOAD_NONE;
  run->device = job->graph->ops[0].device;
  return gmlo_run_adopt(job) ? gmlo_run_fill(run, id) : GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
}

/* What a job of a memgraph has. */
static gmlake_offload_result gmlo_run_make_nodes(gmlake_offload_run *run, uint32_t id,
                                                 const gmlake_offload_memgraph *memgraph) {
  gmlo_nodes *nodes = (gmlo_nodes *)gmlo_take(&run->jobs[id].scope, 1, sizeof *nodes);
  if (nodes == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  run->jobs[id].nodes = nodes;
  nodes->memgraph = memgraph;
  nodes->desc = &run->desc;
  nodes->works = &run->works;
  nodes->job = id;
  return gmlo_nodes_make(nodes);
}

/* memgraph NULL: the job is a graph. */
static gmlake_offload_result gmlo_run_add(gmlake_offload_run *run,
                                          const gmlake_offload_graph *graph,
                                          const gmlake_offload_plan *plan,
                                          const gmlake_offload_memgraph *memgraph,
                                          uint32_t *out_job) {
  gmlake_offload_result result;
  uint32_t id = 0;
  gmlo_run_job *job;
  if (gmlo_more(&run->desc.host, &run->jobs, run->job_count, 1, &run->job_capacity, sizeof *job) ==
      NULL) {
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  }
  while (id < run->job_count && run->jobs[id].graph != NULL) id++;
  job = &run->jobs[id]; /* zeroed, also if a job has left it */
  job->graph = graph;
  job->plan = plan;
  job->scope = gmlo_scope_of(&run->desc.host);
  if (id == run->job_count) run->job_count++;
  result =
      memgraph != NULL ? gmlo_run_make_nodes(run, id, memgraph) : gmlo_run_make_tensors(run, id);
  if (result != GMLAKE_OFFLOAD_OK) {
    (void)gmlo_run_job_stop(run, id);
    return result;
  }
  *out_job = id;
  return GMLAKE_OFFLOAD_OK;
}

static gmlo_run_job *gmlo_run_find(const gmlake_offload_run *run, uint32_t job) {
  return job < run->job_count && run->jobs[job].graph != NULL ? &run->jobs[job] : NULL;
}

/* ---- Public functions ---- */

static int gmlo_run_desc_valid(const gmlake_offload_run_desc *desc) {
  const unsigned orders =
      GMLAKE_OFFLOAD_FIXED_ORDER | GMLAKE_OFFLOAD_SIMULATED_ORDER | GMLAKE_OFFLOAD_FIXED_OPS;
  const unsigned order = desc->flags & orders;
  return gmlo_backend_valid(desc->backend, 1) && gmlo_host_valid(&desc->host) &&
         (desc->flags & ~(orders | GMLAKE_OFFLOAD_LRU)) == 0 && (order & (order - 1)) == 0 &&
         desc->stream_count <= GMLO_WIDTH_MAX &&
         (desc->launch_ahead_max == 0 || desc->stream_count <= 1);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_run_create(const gmlake_offload_run_desc *desc, gmlake_offload_run **out_run) {
  gmlake_offload_run *run;
  if (out_run == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_run = NULL;
  if (desc == NULL || !gmlo_run_desc_valid(desc)) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  run = (gmlake_offload_run *)gmlo_zeroed(&desc->host, 1, sizeof *run);
  if (run == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  run->desc = *desc;
  if (run->desc.stream_count == 0) run->desc.stream_count = 1;
  run->works.backend = desc->backend;
  run->works.host = desc->host;
  run->works.stats = &run->stats;
  run->acquirer = GMLAKE_OFFLOAD_NONE;
  *out_run = run;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_run_destroy(gmlake_offload_run *run) {
  gmlake_offload_host host;
  size_t j;
  int lane;
  if (run == NULL) return;
  host = run->desc.host;
  run->failed = GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT; /* so that nothing starts any more */
  gmlo_works_sync(&run->works);
  for (lane = 0; lane < 2; lane++) {
    if (run->lanes[lane].busy) gmlo_copy_done(run, lane);
  }
  for (j = 0; j < run->job_count; j++) {
    if (run->jobs[j].graph != NULL) (void)gmlo_run_job_stop(run, (uint32_t)j);
  }
  gmlo_works_leave(&run->works);
  gmlo_free(&host, run->jobs);
  gmlo_free(&host, run->requests);
  gmlo_free(&host, run);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_run_add_job(gmlake_offload_run *run, const gmlake_offload_graph *graph,
                           const gmlake_offload_plan *plan, uint32_t *out_job) {
  size_t j, bytes = 0;
  if (out_job == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_job = GMLAKE_OFFLOAD_NONE;
  if (run == NULL || graph == NULL || run->job_count >= GMLO_JOBS_MAX) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  if (!graph->sealed) return GMLAKE_OFFLOAD_ERROR_NOT_SEALED;
  if (plan != NULL && plan->graph != graph) return GMLAKE_OFFLOAD_ERROR_WRONG_PLAN;
  if (!gmlo_graph_has_one_device(graph)) return GMLAKE_OFFLOAD_ERROR_WRONG_DEVICE;
  for (j = 0; j < run->job_count; j++) {
    if (run->jobs[j].graph == NULL || run->jobs[j].nodes != NULL) continue;
    if (run->device != graph->ops[0].device) return GMLAKE_OFFLOAD_ERROR_WRONG_DEVICE;
    bytes += run->jobs[j].graph->tensor_bytes;
  }
  if (!gmlo_sum_valid(graph, bytes)) return GMLAKE_OFFLOAD_ERROR_SIZE_OVERFLOW;
  return gmlo_run_add(run, graph, plan, NULL, out_job);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_add_memgraph(
    gmlake_offload_run *run, const gmlake_offload_memgraph *memgraph, uint32_t *out_job) {
  if (out_job == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_job = GMLAKE_OFFLOAD_NONE;
  if (run == NULL || memgraph == NULL || run->job_count >= GMLO_JOBS_MAX ||
      memgraph->info.align_bytes / GMLO_REAL_MIN < run->desc.backend->divisor) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  if (!gmlo_run_fits(run, memgraph->info.device_bytes)) {
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  return gmlo_run_add(run, memgraph->graph, NULL, memgraph, out_job);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_remove_job(gmlake_offload_run *run,
                                                                       uint32_t job) {
  gmlo_run_job *j;
  if (run == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  j = gmlo_run_find(run, job);
  if (j == NULL) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  j->leaves = 1;
  if (j->iteration >= j->target && j->running == 0 && !gmlo_run_job_stop(run, job))
    return GMLAKE_OFFLOAD_ERROR_BACKEND;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_set_plan(
    gmlake_offload_run *run, uint32_t job, const gmlake_offload_plan *plan) {
  gmlo_run_job *j;
  if (run == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  j = gmlo_run_find(run, job);
  if (j == NULL) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  if (j->nodes != NULL || (plan != NULL && plan->graph != j->graph)) {
    return GMLAKE_OFFLOAD_ERROR_WRONG_PLAN;
  }
  j->next_plan = plan;
  j->replans = 1;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_iterations(gmlake_offload_run *run,
                                                                       uint64_t iteration_count) {
  gmlake_offload_result result;
  if (run == NULL || iteration_count > UINT32_MAX || run->looping) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  if (run->failed != GMLAKE_OFFLOAD_OK) return run->failed;
  run->looping = 1;
  result = gmlo_run_iterations(run, iteration_count);
  run->looping = 0;
  return result;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_set_limit(gmlake_offload_run *run,
                                                                      size_t limit_bytes) {
  if (run == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  run->desc.limit_bytes = limit_bytes;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_locate(gmlake_offload_run *run,
                                                                   uint32_t job, uint32_t tensor,
                                                                   void **out_device,
                                                                   void **out_host) {
  const gmlo_run_job *j;
  const gmlo_run_tensor *state;
  if (run == NULL || out_device == NULL || out_host == NULL) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  j = gmlo_run_find(run, job);
  if (j == NULL || tensor >= j->graph->tensor_count) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  if (j->nodes != NULL) {
    gmlo_nodes_locate(j->nodes, j->iteration == 0, tensor, out_device, out_host);
    return GMLAKE_OFFLOAD_OK;
  }
  GMLAKE_OFFLOAD_ASSERT(j->tensors != NULL);
  state = &j->tensors[tensor];
  while (!run->looping && run->failed == GMLAKE_OFFLOAD_OK && (state->coming || state->going)) {
    gmlo_run_wait(run);
    if (run->failed != GMLAKE_OFFLOAD_OK) return run->failed;
  }
  *out_device = state->there && !state->coming ? state->device : NULL;
  *out_host = state->host_valid ? state->host : NULL;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_run_get_stats(const gmlake_offload_run *run, gmlake_offload_run_stats *out_stats) {
  if (run == NULL || out_stats == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  return gmlo_fill_info(out_stats, &run->stats, sizeof run->stats);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_run_reset_peaks(gmlake_offload_run *run) {
  if (run == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  run->stats.device_bytes_peak = run->stats.device_bytes;
  run->stats.host_bytes_peak = run->stats.host_bytes;
  return GMLAKE_OFFLOAD_OK;
}

/* ---- >>clock: streams of devices on a clock, without memory -------------------------------------
   Owns the time, streams with what is queued on them, and events. Plans are simulated on a clock,
   and the mock is one whose copies and operators have bytes. Work is counted in nanoseconds at full
   speed. Invariants:
   [K1] The speed of work changes only when some begins or ends. Of n operators under way on a
        device each has the speed 1 / n, and so have transfers from it. A copy has the speed of its
        direction, or half of both_bytes_per_s if that is less and copies of both directions are
        under way on the device; n copies of one direction share that evenly.
   [K3] A stream carries out what is queued on it one after another. The device runs while the host
        waits, idles or spends time, and stands still in all other calls.
   Cost: a call is constant, but O(streams) where something was queued or has ended since the last
   one. Fails: where host memory is refused, and at the call that was asked to fail. */

typedef enum gmlo_clock_kind {
  GMLO_CLOCK_OUT = GMLO_OUT,
  GMLO_CLOCK_IN = GMLO_IN,
  GMLO_CLOCK_WORK,
  GMLO_CLOCK_PEER,   /* a transfer. These take time, */
  GMLO_CLOCK_RECORD, /* the others none */
  GMLO_CLOCK_WAIT
} gmlo_clock_kind;

#define GMLO_CLOCK_TIMED GMLO_CLOCK_RECORD /* kinds below it take time */
#define GMLO_CLOCK_FOREVER 1e18

typedef struct gmlo_clock_event {
  struct gmlo_clock_event *next;
  uint64_t recorded, done; /* counts of records */
  double at_ns;
} gmlo_clock_event;

typedef struct gmlo_clock_entry {
  gmlo_clock_kind kind;
  uint32_t device;
  int begun;
  double left_ns, speed;
  gmlo_clock_event *event;
  uint64_t count; /* RECORD, WAIT: of the event */
  /* The mock's: */
  gmlake_offload_copy copy;
  gmlake_offload_launch launch; /* its pointers are in `pointers` */
  void **pointers;              /* what an operator reads, then what it writes; NULL: none */
  uint64_t source;              /* digest of what it read when it began */
  void (*work_fn)(void *user);
  void *user;
} gmlo_clock_entry;

typedef struct gmlo_clock_stream {
  void *value;               /* that names it */
  uint32_t device, number;   /* of the clock's own, whose value is their address */
  gmlo_clock_entry *entries; /* from `first` on */
  size_t first, count, capacity;
} gmlo_clock_stream;

typedef struct gmlo_clock {
  gmlake_offload_host host;
  double bytes_per_s[2], both_bytes_per_s; /* [2]: GMLO_OUT, GMLO_IN */
  uint64_t copy_ns;
  double now_ns;
  gmlo_clock_stream **streams;
  size_t stream_count, stream_capacity;
  gmlo_clock_event *events;           /* all that were created: a stream may still wait for one */
  size_t event_count;                 /* created and not destroyed */
  uint64_t busy_ns[GMLO_CLOCK_TIMED]; /* time in which work of the kind was under way */
  uint64_t call_count, fail_at;
  int unsettled; /* something was queued or has ended */
  int failed;    /* work has failed: all questions do from now on */
  /* What the entry does when it begins, and when it ends; one that takes no time only ends. NULL:
     nothing. */
  void (*act)(struct gmlo_clock *clock, gmlo_clock_entry *entry, int is_end);
} gmlo_clock;

static int gmlo_clock_fails(gmlo_clock *clock) {
  clock->call_count++;
  return clock->fail_at != 0 && clock->call_count == clock->fail_at;
}

/* A new stream. NULL if host memory is refused. */
static gmlo_clock_stream *gmlo_clock_add_stream(gmlo_clock *clock) {
  gmlo_clock_stream **stream =
      (gmlo_clock_stream **)gmlo_more(&clock->host, &clock->streams, clock->stream_count, 1,
                                      &clock->stream_capacity, sizeof *stream);
  if (stream == NULL) return NULL;
  *stream = (gmlo_clock_stream *)gmlo_zeroed(&clock->host, 1, sizeof **stream);
  if (*stream != NULL) clock->stream_count++;
  return *stream;
}

/* The stream of that value, made if it is new. NULL if host memory is refused. */
static gmlo_clock_stream *gmlo_clock_stream_of(gmlo_clock *clock, void *value) {
  gmlo_clock_stream *stream;
  size_t i;
  for (i = 0; i < clock->stream_count; i++) {
    if (clock->streams[i]->value == value) return clock->streams[i];
  }
  stream = gmlo_clock_add_stream(clock);
  if (stream != NULL) stream->value = value;
  return stream;
}

static int gmlo_clock_stream_get(void *user, uint32_t device, uint32_t number, void **out_stream) {
  gmlo_clock *clock = (gmlo_clock *)user;
  gmlo_clock_stream *stream;
  size_t i;
  for (i = 0; i < clock->stream_count; i++) {
    *out_stream = stream = clock->streams[i];
    if (stream->value == stream && stream->device == device && stream->number == number) return 0;
  }
  stream = gmlo_clock_add_stream(clock);
  if (stream == NULL) return 1;
  *out_stream = stream->value = stream;
  stream->device = device;
  stream->number = number;
  return 0;
}

/* Queues an entry, zeroed. NULL if host memory is refused. */
static gmlo_clock_entry *gmlo_clock_queue(gmlo_clock *clock, void *value, gmlo_clock_kind kind) {
  gmlo_clock_stream *stream = gmlo_clock_stream_of(clock, value);
  gmlo_clock_entry *entry;
  if (stream == NULL) return NULL;
  if (stream->first > 64 && stream->first > stream->count / 2) {
    stream->count -= stream->first;
    memmove(stream->entries, stream->entries + stream->first, stream->count * sizeof *entry);
    stream->first = 0;
  }
  entry = (gmlo_clock_entry *)gmlo_more(&clock->host, &stream->entries, stream->count, 1,
                                        &stream->capacity, sizeof *entry);
  if (entry == NULL) return NULL;
  stream->count++;
  entry->kind = kind;
  clock->unsettled = 1;
  return entry;
}

static gmlo_clock_entry *gmlo_clock_head(const gmlo_clock *clock, size_t i) {
  const gmlo_clock_stream *stream = clock->streams[i];
  return stream->first < stream->count ? &stream->entries[stream->first] : NULL;
}

/* The head of stream i, if it takes time, else NULL. */
static gmlo_clock_entry *gmlo_clock_timed(const gmlo_clock *clock, size_t i) {
  gmlo_clock_entry *entry = gmlo_clock_head(clock, i);
  return entry != NULL && entry->kind < GMLO_CLOCK_TIMED ? entry : NULL;
}

/* Ends the head of stream i. */
static void gmlo_clock_end(gmlo_clock *clock, size_t i) {
  gmlo_clock_entry entry = *gmlo_clock_head(clock, i);
  clock->streams[i]->first++;
  clock->unsettled = 1;
  if (clock->act != NULL) clock->act(clock, &entry, 1);
}

/* Carries out what takes no time at the head of stream i. Whether there was such an entry. */
static int gmlo_clock_step(gmlo_clock *clock, size_t i) {
  gmlo_clock_entry *entry = gmlo_clock_head(clock, i);
  if (entry == NULL || entry->kind < GMLO_CLOCK_TIMED) return 0;
  if (entry->kind == GMLO_CLOCK_WAIT && entry->event->done < entry->count) return 0;
  if (entry->kind == GMLO_CLOCK_RECORD) {
    if (entry->count > entry->event->done) entry->event->done = entry->count;
    entry->event->at_ns = clock->now_ns;
  }
  gmlo_clock_end(clock, i);
  return 1;
}

/* How many entries of that kind are under way on the device. */
static size_t gmlo_clock_count(const gmlo_clock *clock, gmlo_clock_kind kind, uint32_t device) {
  size_t i, count = 0;
  for (i = 0; i < clock->stream_count; i++) {
    const gmlo_clock_entry *entry = gmlo_clock_timed(clock, i);
    count += entry != NULL && entry->kind == kind && entry->device == device;
  }
  return count;
}

static double gmlo_clock_speed(const gmlo_clock *clock, const gmlo_clock_entry *entry) {
  double speed = 1, both = clock->both_bytes_per_s / 2;
  if (entry->kind <= GMLO_CLOCK_IN && both < clock->bytes_per_s[entry->kind] &&
      gmlo_clock_count(clock, (gmlo_clock_kind)(1 - (int)entry->kind), entry->device) != 0) {
    speed = both / clock->bytes_per_s[entry->kind];
  }
  return speed / (double)gmlo_clock_count(clock, entry->kind, entry->device);
}

/* Carries out what takes no time, begins what heads the streams, and sets speeds. [K1] */
static void gmlo_clock_settle(gmlo_clock *clock) {
  size_t i = 0;
  if (!clock->unsettled) return;
  while (i < clock->stream_count) { /* what one does may have let others go on */
    i = gmlo_clock_step(clock, i) ? 0 : i + 1;
  }
  clock->unsettled = 0;
  for (i = 0; i < clock->stream_count; i++) {
    gmlo_clock_entry *entry = gmlo_clock_timed(clock, i);
    if (entry == NULL) continue;
    entry->speed = gmlo_clock_speed(clock, entry);
    if (entry->begun) continue;
    entry->begun = 1;
    if (clock->act != NULL) clock->act(clock, entry, 0);
  }
}

/* Lets the device run for so long, or until the first thing ends. The time that has passed; -1:
   nothing is under way that could end. */
static double gmlo_clock_run(gmlo_clock *clock, double most_ns) {
  double ns = most_ns;
  size_t i, begun = 0;
  int kind, busy[GMLO_CLOCK_TIMED] = {0};
  gmlo_clock_settle(clock);
  for (i = 0; i < clock->stream_count; i++) {
    const gmlo_clock_entry *entry = gmlo_clock_timed(clock, i);
    if (entry == NULL) continue;
    begun++;
    busy[entry->kind] = 1;
    if (entry->left_ns / entry->speed < ns) ns = entry->left_ns / entry->speed;
  }
  if (begun == 0 && most_ns >= GMLO_CLOCK_FOREVER) return -1;
  clock->now_ns += ns;
  for (kind = 0; kind < GMLO_CLOCK_TIMED; kind++)
    clock->busy_ns[kind] += busy[kind] ? (uint64_t)ns : 0;
  for (i = 0; i < clock->stream_count; i++) {
    gmlo_clock_entry *entry = gmlo_clock_timed(clock, i);
    if (entry == NULL || !entry->begun) continue; /* it comes after one that has just ended */
    entry->left_ns -= ns * entry->speed;
    if (entry->left_ns <= 1e-3) gmlo_clock_end(clock, i);
  }
  return ns;
}

/* ---- A backend's functions ---- */

/* Queues a copy. NULL if that fails. */
static gmlo_clock_entry *gmlo_clock_queue_copy(gmlo_clock *clock, const gmlake_offload_copy *copy,
                                               void *stream) {
  gmlo_clock_kind kind = copy->to_host ? GMLO_CLOCK_OUT : GMLO_CLOCK_IN;
  gmlo_clock_entry *entry;
  if (gmlo_clock_fails(clock)) return NULL;
  entry = gmlo_clock_queue(clock, stream, kind);
  if (entry == NULL) return NULL;
  entry->copy = *copy;
  entry->device = copy->device;
  entry->left_ns = (double)copy->bytes * 1e9 / clock->bytes_per_s[kind] + (double)clock->copy_ns;
  return entry;
}

static int gmlo_clock_copy(void *user, const gmlake_offload_copy *copy, void *stream) {
  return gmlo_clock_queue_copy((gmlo_clock *)user, copy, stream) == NULL;
}

static int gmlo_clock_event_create(void *user, uint32_t device, int is_timed, void **out_event) {
  gmlo_clock *clock = (gmlo_clock *)user;
  gmlo_clock_event *event;
  (void)device;
  (void)is_timed;
  if (gmlo_clock_fails(clock)) return 1;
  *out_event = event = (gmlo_clock_event *)gmlo_zeroed(&clock->host, 1, sizeof *event);
  if (event == NULL) return 1;
  event->next = clock->events;
  clock->events = event;
  clock->event_count++;
  return 0;
}

/* It is freed with the clock: a stream may still wait for it. */
static void gmlo_clock_event_destroy(void *user, void *event) {
  (void)event;
  ((gmlo_clock *)user)->event_count--;
}

/* RECORD or WAIT. */
static int gmlo_clock_queue_event(gmlo_clock *clock, gmlo_clock_kind kind, void *event,
                                  void *stream) {
  gmlo_clock_entry *entry;
  if (gmlo_clock_fails(clock)) return 1;
  entry = gmlo_clock_queue(clock, stream, kind);
  if (entry == NULL) return 1;
  entry->event = (gmlo_clock_event *)event;
  entry->event->recorded += kind == GMLO_CLOCK_RECORD;
  entry->count = entry->event->recorded;
  return 0;
}

static int gmlo_clock_event_record(void *user, void *event, void *stream) {
  return gmlo_clock_queue_event((gmlo_clock *)user, GMLO_CLOCK_RECORD, event, stream);
}

static int gmlo_clock_stream_wait(void *user, void *stream, void *event) {
  return gmlo_clock_queue_event((gmlo_clock *)user, GMLO_CLOCK_WAIT, event, stream);
}

static int gmlo_clock_event_done(void *user, void *event, int *out_done) {
  gmlo_clock *clock = (gmlo_clock *)user;
  if (gmlo_clock_fails(clock)) return 1;
  gmlo_clock_settle(clock);
  *out_done = ((gmlo_clock_event *)event)->done == ((gmlo_clock_event *)event)->recorded;
  return clock->failed;
}

static int gmlo_clock_event_ns(void *user, void *from, void *to, uint64_t *out_ns) {
  double ns = ((gmlo_clock_event *)to)->at_ns - ((gmlo_clock_event *)from)->at_ns;
  if (gmlo_clock_fails((gmlo_clock *)user)) return 1;
  *out_ns = ns > 0 ? (uint64_t)(ns + .5) : 0; /* sums of parts of a ns may lack some of it */
  return 0;
}

static int gmlo_clock_stream_sync(void *user, void *stream) {
  gmlo_clock *clock = (gmlo_clock *)user;
  const gmlo_clock_stream *of;
  if (gmlo_clock_fails(clock)) return 1;
  of = gmlo_clock_stream_of(clock, stream);
  if (of == NULL) return 1;
  while (of->first < of->count && gmlo_clock_run(clock, GMLO_CLOCK_FOREVER) >= 0) continue;
  return of->first < of->count || clock->failed; /* it waits for something that is not queued */
}

static int gmlo_clock_now(void *user, uint64_t *out_ns) {
  *out_ns = (uint64_t)((gmlo_clock *)user)->now_ns;
  return 0;
}

static int gmlo_clock_idle(void *user, uint64_t until_ns) {
  gmlo_clock *clock = (gmlo_clock *)user;
  double most = until_ns != UINT64_MAX ? (double)until_ns - clock->now_ns : GMLO_CLOCK_FOREVER;
  return gmlo_clock_fails(clock) || gmlo_clock_run(clock, most > 0 ? most : 0) < 0;
}

/* The functions of a backend that move no bytes. */
static void gmlo_clock_table(gmlo_clock *clock, gmlake_offload_backend *table) {
  memset(table, 0, sizeof *table);
  table->struct_bytes = sizeof *table;
  table->abi_version = 2;
  table->user = clock;
  table->copy = gmlo_clock_copy;
  table->event_create = gmlo_clock_event_create;
  table->event_destroy = gmlo_clock_event_destroy;
  table->event_record = gmlo_clock_event_record;
  table->stream_wait = gmlo_clock_stream_wait;
  table->event_done = gmlo_clock_event_done;
  table->event_ns = gmlo_clock_event_ns;
  table->stream_sync = gmlo_clock_stream_sync;
  table->stream = gmlo_clock_stream_get;
  table->now = gmlo_clock_now;
  table->idle = gmlo_clock_idle;
}

static void gmlo_clock_leave(gmlo_clock *clock) {
  size_t i;
  for (i = 0; i < clock->stream_count; i++) {
    gmlo_free(&clock->host, clock->streams[i]->entries);
    gmlo_free(&clock->host, clock->streams[i]);
  }
  gmlo_free(&clock->host, clock->streams);
  while (clock->events != NULL) {
    gmlo_clock_event *event = clock->events;
    clock->events = event->next;
    gmlo_free(&clock->host, event);
  }
}

/* ---- >>simulate: how long a job takes by a plan -------------------------------------
   Owns simulators: one is a clock with the planner's link, on which operators take one job's mean
   times, and a backend of it. The job's plan is run there as it would be on a device.
   Cost: four iterations of >>run. Fails: where host memory is refused. */

#define GMLO_SIM_ITERATIONS 2u /* iterations that are measured, behind as many others */

typedef struct gmlo_simulator {
  gmlo_clock clock; /* must be first: `user` points to it */
  gmlake_offload_backend table;
  const gmlo_planner_job *job;
} gmlo_simulator;

/* Any address will do: nothing reads or writes there. */
static int gmlo_simulator_alloc(void *user, uint32_t device, size_t bytes, void **out_ptr) {
  (void)device;
  (void)bytes;
  *out_ptr = user;
  return 0;
}

static void gmlo_simulator_free(void *user, uint32_t device, void *ptr, size_t bytes) {
  (void)user;
  (void)device;
  (void)ptr;
  (void)bytes;
}

static int gmlo_simulator_host_alloc(void *user, size_t bytes, void **out_ptr) {
  return gmlo_simulator_alloc(user, 0, bytes, out_ptr);
}

static void gmlo_simulator_host_free(void *user, void *ptr, size_t bytes) {
  gmlo_simulator_free(user, 0, ptr, bytes);
}

static int gmlo_simulator_fill(void *user, uint32_t device, uint32_t job, uint32_t tensor,
                               void *ptr, size_t bytes, int on_host) {
  (void)job;
  (void)tensor;
  (void)on_host;
  gmlo_simulator_free(user, device, ptr, bytes);
  return 0;
}

static int gmlo_simulator_launch(void *user, const gmlake_offload_launch *launch, void *stream) {
  gmlo_simulator *simulator = (gmlo_simulator *)user;
  gmlo_clock_entry *entry = gmlo_clock_queue(&simulator->clock, stream, GMLO_CLOCK_WORK);
  if (entry == NULL) return 1;
  entry->left_ns = (double)gmlo_mean(simulator->job, launch->op);
  return 0;
}

static void gmlo_simulator_init(gmlo_simulator *simulator, const gmlake_offload_planner *planner,
                                const gmlo_planner_job *job) {
  memset(simulator, 0, sizeof *simulator);
  simulator->job = job;
  simulator->clock.host = planner->desc.host;
  simulator->clock.bytes_per_s[GMLO_OUT] = planner->desc.out_bytes_per_s;
  simulator->clock.bytes_per_s[GMLO_IN] = planner->desc.in_bytes_per_s;
  simulator->clock.both_bytes_per_s = planner->desc.both_bytes_per_s;
  simulator->clock.copy_ns = planner->desc.copy_ns;
  gmlo_clock_table(&simulator->clock, &simulator->table);
  simulator->table.device_alloc = gmlo_simulator_alloc;
  simulator->table.device_free = gmlo_simulator_free;
  simulator->table.host_alloc = gmlo_simulator_host_alloc;
  simulator->table.host_free = gmlo_simulator_host_free;
  simulator->table.fill = gmlo_simulator_fill;
  simulator->table.launch = gmlo_simulator_launch;
}

/* Runs the job by the plan, in the memory that the plan says. *out_ns: an iteration, once the job
   is in step with its plan. */
static gmlake_offload_result gmlo_simulate_plan(const gmlake_offload_planner *planner,
                                                const gmlo_planner_job *job,
                                                const gmlake_offload_plan *plan, double *out_ns) {
  gmlake_offload_run_desc desc;
  gmlake_offload_run *run;
  gmlake_offload_result result;
  gmlo_simulator simulator;
  uint32_t id;
  memset(&desc, 0, sizeof desc);
  gmlo_simulator_init(&simulator, planner, job);
  desc.backend = &simulator.table;
  desc.limit_bytes = plan->info.peak_bytes;
  desc.host = planner->desc.host;
  result = gmlake_offload_run_create(&desc, &run);
  if (result == GMLAKE_OFFLOAD_OK) {
    result = gmlake_offload_run_add_job(run, job->graph, NULL, &id); /* it has to get in step */
  }
  if (result == GMLAKE_OFFLOAD_OK) result = gmlake_offload_run_set_plan(run, id, plan);
  if (result == GMLAKE_OFFLOAD_OK) result = gmlake_offload_run_iterations(run, GMLO_SIM_ITERATIONS);
  if (result == GMLAKE_OFFLOAD_OK) {
    double began_ns = simulator.clock.now_ns;
    result = gmlake_offload_run_iterations(run, GMLO_SIM_ITERATIONS);
    *out_ns = (simulator.clock.now_ns - began_ns) / GMLO_SIM_ITERATIONS;
  }
  gmlake_offload_run_destroy(run);
  gmlo_clock_leave(&simulator.clock);
  return result;
}

/* ---- >>search: the best of several plans for each job -------------------------------------------
   Tries plans with several preferences, targets and allowances, and keeps the best one of each job.
   Invariants:
   [R1] A replan makes the plans of all jobs before it puts the first of them in its place.
   [R2] Each try counts its steps of work. A try that has spent its part ends as it is, which is a
        plan, too.
   [R3] If more time may be added, a plan's peak is not higher: gmlo_search_allowances says why.
   Cost: so many steps, about 7 to 20 ns each. Fails: where host memory is refused; the former
   plans then stay. */

/* In paper mode: plans all jobs on one cyclic schedule. plans[j] becomes the plan of job j. */
static int gmlo_search_paper(gmlake_offload_planner *planner, gmlake_offload_plan **plans) {
  static const gmlo_mode mode = {GMLO_GREEDY, 0, 0, 0};
  gmlo_cyclic c;
  int64_t bytes;
  size_t j;
  int done = gmlo_cyclic_begin(&c, planner, GMLAKE_OFFLOAD_NONE, 1);
  c.mode = mode;
  done = done && gmlo_cyclic_plan(&c, (int64_t)planner->desc.target_bytes);
  if (done) (void)gmlo_profile_peak(&c.profile, &bytes);
  for (j = 0; j < planner->job_count && done; j++) {
    if (planner->jobs[j].graph == NULL) continue;
    plans[j] = gmlo_emit_plan(&c, (uint32_t)j, &planner->desc.host);
    if (plans[j] == NULL) {
      done = 0;
    } else {
      plans[j]->info.peak_bytes = (size_t)bytes;
      plans[j]->pauses = 1;
    }
  }
  gmlo_cyclic_leave(&c);
  return done;
}

#define GMLO_DRIFT_MAX .1  /* by such a part of an iteration's time others have to plan again */
#define GMLO_TRIES_MAX 120 /* for each allowance at most so many plans are tried, */
#define GMLO_TRIED_ACCESSES 100000 /* and so many that they have about these accesses together */
#define GMLO_TRIES_MIN 4           /* but so many at least */
#define GMLO_WORK_MIN 7000000u     /* so many steps are for plans that add no time, as many for */
#define GMLO_WORK_PER_ACCESS 80u   /* the others; or so many for each access if that is more. */
#define GMLO_WORK_SMALL 21000000u  /* Jobs of at most so many accesses get so many steps. */
#define GMLO_SMALL_ACCESSES 5000
#define GMLO_HOLDS_PART \
  1000 /* a plan holds if it takes no longer than it says but for such a part */
#define GMLO_WORK_FIRST 200u /* The first try may take so many more for each access */
#define GMLO_WORK_RUNG 4     /* each allowance gets one part in so many of that work */
#define GMLO_TRIES_COST 16u  /* so many tries at no cost have to find room in that part */
#define GMLO_NEAR_PART 512   /* a peak is near a target if it is above it by one part in so many */
#define GMLO_COST_PART \
  8u /* a try that may add time has so many times the work of one that may not */
#define GMLO_SAME_TARGET 3u /* so many tries after each other have the same target */

/* The modes, in the order in which they are tried: where few can be tried these are different. */
static const gmlo_mode gmlo_modes[] = {
    {GMLO_GREEDY, 1, 0, 1},  {GMLO_RATE, 1, 0, 0},     {GMLO_LARGEST, 1, 1, 1},
    {GMLO_AREA, 1, 0, 0},    {GMLO_RATE, 1, 1, 1},     {GMLO_FARTHEST, 1, 1, 0},
    {GMLO_AREA, 0, 0, 1},    {GMLO_FARTHEST, 0, 0, 1}, {GMLO_GREEDY, 1, 1, 0},
    {GMLO_LARGEST, 1, 0, 0}, {GMLO_RATE, 0, 0, 1},     {GMLO_AREA, 1, 1, 1},
    {GMLO_GREEDY, 0, 0, 0},  {GMLO_LARGEST, 0, 0, 0},  {GMLO_FARTHEST, 0, 1, 0},
    {GMLO_GREEDY, 0, 1, 1}};

#define GMLO_MODES (sizeof gmlo_modes / sizeof *gmlo_modes)
#define GMLO_MODES_FIRST 5 /* these are tried with each target */

/* Parts of an iteration's time for which plans are made, if so much is allowed. */
static const double gmlo_allowances[] = {.01, .02, .03, .05, .1, .2, .3, .5, 1};

/* Looks for the best of several plans of one job. */
typedef struct gmlo_search {
  gmlake_offload_planner *planner;
  uint32_t job;
  double share;
  size_t goal_bytes;   /* lower is no better */
  double overhead;     /* plans are now made for this */
  int strict;          /* see gmlo_cyclic */
  uint64_t work_left;  /* steps that are left */
  uint64_t try_work;   /* steps of the longest try so far, */
  uint64_t still_work; /* and of the longest that added no time */
  gmlake_offload_plan *best;
} gmlo_search;

/* Whether plan a is better than the best one: fewer bytes above the goal, then less time, then
   fewer bytes copied. */
static int gmlo_search_prefers(const gmlo_search *search, const gmlake_offload_plan_info *a) {
  const gmlake_offload_plan_info *b;
  size_t a_bytes = a->peak_bytes, b_bytes;
  if (search->best == NULL) return 1;
  b = &search->best->info;
  b_bytes = b->peak_bytes;
  if (a_bytes < search->goal_bytes) a_bytes = search->goal_bytes;
  if (b_bytes < search->goal_bytes) b_bytes = search->goal_bytes;
  if (a_bytes != b_bytes) return a_bytes < b_bytes;
  if (a->time_ns != b->time_ns) return a->time_ns < b->time_ns;
  return a->in_bytes + a->out_bytes < b->in_bytes + b->out_bytes;
}

/* Whether a small job takes no longer by the plan than the plan says, in the memory that it says. A
   plan may count on an operator that waits, while in the run another one takes the memory first. */
static int gmlo_search_holds(const gmlo_search *search, const gmlake_offload_plan *plan,
                             gmlake_offload_result *out_result) {
  const gmlo_planner_job *job = &search->planner->jobs[search->job];
  double time_ns = 0;
  *out_result = GMLAKE_OFFLOAD_OK;
  if (job->graph->info.access_count > GMLO_SMALL_ACCESSES || plan->info.added_ns == 0) return 1;
  *out_result = gmlo_simulate_plan(search->planner, job, plan, &time_ns);
  return *out_result == GMLAKE_OFFLOAD_OK &&
         time_ns <= (double)plan->info.time_ns * (1 + 1. / GMLO_HOLDS_PART);
}

/* Makes the cyclic schedule's plan the best one, if it is better and holds. 0 if host memory is
   refused. */
static int gmlo_search_keep(gmlo_search *search, const gmlo_cyclic *c) {
  gmlake_offload_plan *plan;
  gmlake_offload_plan_info info;
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  int64_t bytes;
  memset(&info, 0, sizeof info);
  (void)gmlo_profile_peak(&c->profile, &bytes);
  info.peak_bytes = (size_t)bytes;
  info.time_ns = gmlo_period(c);
  if (!gmlo_search_prefers(search, &info)) return 1; /* whatever it copies */
  plan = gmlo_emit_plan(c, search->job, &search->planner->desc.host);
  if (plan == NULL) return 0;
  plan->info.peak_bytes = (size_t)bytes;
  if (gmlo_search_prefers(search, &plan->info) && gmlo_search_holds(search, plan, &result)) {
    gmlake_offload_plan *former = search->best;
    search->best = plan;
    plan = former;
  }
  gmlake_offload_plan_destroy(plan);
  return result != GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
}

/* Makes a cyclic schedule and plans it for the target in that mode. 0 if host memory is refused, or
   the plan is given up; there is no cyclic schedule then. */
static int gmlo_search_plan(gmlo_search *search, gmlo_cyclic *c, size_t target_bytes, size_t number,
                            uint64_t noise) {
  int done = gmlo_cyclic_begin(c, search->planner, search->job, search->share);
  c->noise = noise;
  c->overhead = search->overhead;
  c->strict = search->strict;
  c->work_max = search->work_left;
  c->mode = gmlo_modes[number % GMLO_MODES];
  if (search->share < 1) c->mode.exclusive = 0; /* other jobs may copy then */
  done = done && gmlo_cyclic_plan(c, (int64_t)target_bytes);
  search->work_left -= c->work < search->work_left ? c->work : search->work_left;
  if (c->work > search->try_work) search->try_work = c->work;
  search->planner->work += c->work;
  if (!done) gmlo_cyclic_leave(c);
  return done;
}

/* Tries one plan for the target in that mode. A choice can raise the peak, by what recomputation
   needs: then a strict try is made again, and stops where the peak was lowest. 0 if host memory is
   refused. */
static int gmlo_search_try(gmlo_search *search, size_t target_bytes, size_t number,
                           uint64_t noise) {
  double overhead = search->overhead;
  uint64_t work = search->work_left;
  gmlo_cyclic c;
  int64_t bytes;
  int done;
  if (!gmlo_search_plan(search, &c, target_bytes, number, noise)) return 0;
  (void)gmlo_profile_peak(&c.profile, &bytes);
  if (search->strict && bytes > c.low_bytes) {
    search->overhead = ((double)c.low_ns + .5) / (double)c.base_ns;
    search->work_left = work;
    gmlo_cyclic_leave(&c);
    done = gmlo_search_plan(search, &c, target_bytes, number, noise);
    search->overhead = overhead;
    if (!done) return 0;
  }
  done = gmlo_search_keep(search, &c);
  gmlo_cyclic_leave(&c);
  return done;
}

/* Bytes below which no plan comes, or lower is no better. */
static size_t gmlo_search_low(const gmlo_search *search) {
  size_t low = search->planner->jobs[search->job].graph->info.op_bytes_max;
  return low > search->goal_bytes ? low : search->goal_bytes;
}

/* How many plans are tried for one allowance. */
static size_t gmlo_search_tries(const gmlo_search *search) {
  const gmlake_offload_planner_desc *desc = &search->planner->desc;
  size_t most = desc->try_count_max;
  size_t accesses = search->planner->jobs[search->job].graph->info.access_count;
  if (most != 0) return most;
  most = GMLO_TRIES_MIN + GMLO_TRIED_ACCESSES / (accesses + 1);
  return most < GMLO_TRIES_MAX ? most : GMLO_TRIES_MAX;
}

/* Looks for a plan that adds no time: in each mode, then with random choices. 0 if host memory is
   refused, or the plan is given up. */
static int gmlo_search_still(gmlo_search *search, uint64_t work) {
  size_t accesses = search->planner->jobs[search->job].graph->info.access_count, n;
  size_t most = gmlo_search_tries(search), low = gmlo_search_low(search);
  search->work_left = work + GMLO_WORK_FIRST * (uint64_t)accesses; /* the first try may take more */
  for (n = 0; n < most && (n == 0 || search->best->info.peak_bytes > low); n++) {
    if (search->share < 1 && gmlo_modes[n % GMLO_MODES].exclusive) continue;
    if (!gmlo_search_try(search, search->goal_bytes, n, n < GMLO_MODES ? 0 : n)) return 0;
    if (n == 0) search->work_left = search->try_work < work ? work - search->try_work : 0;
    if (search->work_left < search->try_work) break; /* another one would not end */
  }
  return 1;
}

/* A number from 0 to 1, the n-th of a sequence that fills it evenly, from 0 on. */
static double gmlo_between(size_t n) {
  double part = .5, sum = 0;
  while (n != 0) {
    sum += n % 2 != 0 ? part : 0;
    n /= 2;
    part /= 2;
  }
  return sum;
}

/* Looks for a plan that adds no more than `overhead`. The modes, the targets and the part of the
   work that each try has do not depend on `overhead`, and a try spends on the same things in the
   same order whatever it may spend, and only stops earlier: so a plan is not worse because more is
   allowed. A target that cannot be reached makes a plan spend in the wrong places: so there are
   many, from the lowest to the peak so far. The first try has `first` steps. 0 if host memory is
   refused.
   [R3] */
static int gmlo_search_at_cost(gmlo_search *search, double overhead, uint64_t work,
                               uint64_t first) {
  size_t low = gmlo_search_low(search), high = search->best->info.peak_bytes, n;
  size_t count = (size_t)(work / (GMLO_COST_PART * search->still_work + 1)) + 1;
  uint64_t least = search->still_work + search->still_work / GMLO_COST_PART;
  if (count > GMLO_MODES) count = GMLO_MODES;
  if (work < least) work = least;
  if (first < work / count) first = work / count;
  search->overhead = overhead;
  search->strict = 1;
  for (n = 0; n < count && low < high; n++) {
    size_t target = low + (size_t)((double)(high - low) * gmlo_between(n / GMLO_SAME_TARGET));
    if (search->share < 1 && gmlo_modes[n % GMLO_MODES].exclusive) continue;
    search->work_left = n == 0 ? first : work / count;
    if (!gmlo_search_try(search, target, n, 0)) return 0;
  }
  return 1;
}

/* Whether another try is allowed and would end. */
static int gmlo_search_goes_on(const gmlo_search *search, size_t tried) {
  return tried < gmlo_search_tries(search) && search->work_left >= search->still_work &&
         search->best->info.peak_bytes > gmlo_search_low(search);
}

/* Looks for better ones that add no more than `overhead`: halves the targets again and again, then
   makes random choices. What is too dear is passed over. 0 if host memory is refused. */
static int gmlo_search_closer(gmlo_search *search, double overhead, uint64_t work) {
  size_t low = gmlo_search_low(search), bound = low, n = 0, mode, high;
  search->overhead = overhead;
  search->strict = 0;
  search->work_left = work;
  while ((high = search->best->info.peak_bytes) > bound + bound / GMLO_NEAR_PART) {
    size_t middle = bound + (high - bound) / 2;
    for (mode = 0; mode < GMLO_MODES_FIRST && search->best->info.peak_bytes > middle; mode++, n++) {
      if (!gmlo_search_goes_on(search, n)) return 1;
      if (search->share < 1 && gmlo_modes[mode].exclusive) continue;
      if (!gmlo_search_try(search, middle, mode, 0)) return 0;
    }
    if (search->best->info.peak_bytes > middle) bound = middle;
  }
  for (; gmlo_search_goes_on(search, n); n++) {
    high = search->best->info.peak_bytes;
    if (!gmlo_search_try(search, n % 2 == 0 ? low : high - (high - low) / 16, n / 2, n + 1)) {
      return 0;
    }
  }
  return 1;
}

/* Plans for no added time, then for more and more up to all that is allowed. What is done for one
   allowance does not depend on what else is allowed. Where the job is too large for that, there is
   only what is allowed. [R3] */
static int gmlo_search_allowances(gmlo_search *search, uint64_t work) {
  double allowed = search->planner->desc.overhead_max;
  uint64_t part = work / GMLO_WORK_RUNG;
  size_t i, count = sizeof gmlo_allowances / sizeof *gmlo_allowances;
  if (!gmlo_search_still(search, work)) return 0;
  search->still_work = search->try_work;
  if (allowed <= 0) return 1;
  if (search->still_work * GMLO_TRIES_COST > part) {
    return gmlo_search_at_cost(search, allowed, work, work);
  }
  for (i = 0; i < count && gmlo_allowances[i] <= allowed; i++) {
    if (!gmlo_search_at_cost(search, gmlo_allowances[i], part, 0)) return 0;
    if (!gmlo_search_closer(search, gmlo_allowances[i], part)) return 0;
  }
  return gmlo_search_at_cost(search, allowed, part, work);
}

/* Begins with a job. The steps that its plans may take, for each part of the search. */
static uint64_t gmlo_search_begin(gmlo_search *search, gmlake_offload_planner *planner,
                                  uint32_t job, double share) {
  const gmlake_offload_graph_info *info = &planner->jobs[job].graph->info;
  double all = (double)gmlo_planner_bytes(planner);
  uint64_t work = GMLO_WORK_PER_ACCESS * (uint64_t)info->access_count;
  memset(search, 0, sizeof *search);
  search->planner = planner;
  search->job = job;
  search->share = share;
  if (all > 0) {
    search->goal_bytes =
        (size_t)((double)planner->desc.target_bytes * ((double)info->peak_bytes / all));
  }
  if (work < GMLO_WORK_MIN) work = GMLO_WORK_MIN;
  if (work < GMLO_WORK_SMALL && info->access_count <= GMLO_SMALL_ACCESSES) work = GMLO_WORK_SMALL;
  return work;
}

/* The best plan of the job; NULL if host memory is refused. */
static gmlake_offload_plan *gmlo_search_job(gmlake_offload_planner *planner, uint32_t job,
                                            double share) {
  gmlo_search search;
  uint64_t work = gmlo_search_begin(&search, planner, job, share);
  if (gmlo_search_allowances(&search, work)) return search.best;
  gmlake_offload_plan_destroy(search.best);
  return NULL;
}

static void gmlo_search_drop(const gmlake_offload_planner *planner, gmlake_offload_plan **plans) {
  size_t j;
  for (j = 0; plans != NULL && j < planner->job_count; j++) gmlake_offload_plan_destroy(plans[j]);
  gmlo_free(&planner->desc.host, plans);
}

static int gmlo_search_jobs(gmlake_offload_planner *planner, gmlake_offload_plan **plans) {
  size_t j, count = gmlo_planner_job_count(planner);
  for (j = 0; j < planner->job_count; j++) {
    if (planner->jobs[j].graph == NULL) continue;
    plans[j] = gmlo_search_job(planner, (uint32_t)j, 1 / (double)count);
    if (plans[j] == NULL) return 0;
  }
  return 1;
}

/* Puts the new plans in the place of the former ones. [R1] */
static void gmlo_search_adopt(gmlake_offload_planner *planner, gmlake_offload_plan **plans) {
  size_t j, i;
  for (j = 0; j < planner->job_count; j++) {
    gmlo_planner_job *job = &planner->jobs[j];
    if (job->graph == NULL) continue;
    GMLAKE_OFFLOAD_ASSERT(plans[j] != NULL);
    gmlake_offload_plan_destroy(job->plan);
    job->plan = plans[j];
    plans[j] = NULL;
    job->plan_count++;
    for (i = 0; i < job->graph->op_count; i++) job->based_ns[i] = job->mean_ns[i];
  }
  planner->changed = 0;
}

static gmlake_offload_result gmlo_replan(gmlake_offload_planner *planner) {
  gmlake_offload_plan **plans;
  int done = 1, paper = (planner->desc.flags & GMLAKE_OFFLOAD_PAPER) != 0;
  plans =
      (gmlake_offload_plan **)gmlo_zeroed(&planner->desc.host, planner->job_count, sizeof *plans);
  if (plans == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  if (gmlo_planner_job_count(planner) != 0) {
    done = paper ? gmlo_search_paper(planner, plans) : gmlo_search_jobs(planner, plans);
  }
  if (done) gmlo_search_adopt(planner, plans);
  gmlo_search_drop(planner, plans);
  return done ? GMLAKE_OFFLOAD_OK : GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
}

/* ---- Public functions ---- */

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_replan(gmlake_offload_planner *planner) {
  return planner != NULL ? gmlo_replan(planner) : GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_update(gmlake_offload_planner *planner,
                                                               int *out_replanned) {
  gmlake_offload_result result;
  int wanted;
  size_t j;
  if (out_replanned != NULL) *out_replanned = 0;
  if (planner == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  wanted = planner->changed;
  for (j = 0; j < planner->job_count && !wanted; j++) {
    if (planner->jobs[j].graph == NULL) continue;
    wanted = gmlo_planner_job_drift(&planner->jobs[j]) > GMLO_DRIFT_MAX;
  }
  if (!wanted) return GMLAKE_OFFLOAD_OK;
  result = gmlo_replan(planner);
  if (out_replanned != NULL) *out_replanned = result == GMLAKE_OFFLOAD_OK;
  return result;
}

/* ---- >>chunks: which chunks ranges of addresses have --------------------------------------------
   Owns ranges of addresses, and for each which chunks it was last given: these are still mapped
   there, so to have them again costs nothing. A session's ranges are those of its tensors; a
   simulated schedule has others like them. Invariants:
   [H1] A chunk is held by a range, or it is in the list of the free ones, which are there in the
        order in which they became free.
   [H2] An idle range is on the shelf of its size, the one that became idle last is the first.
   A range that gets memory asks for the chunks that it had, and in the place of those that are held
   for those that are free for longest: what leaves first comes back last, in most programs, so
   these are wanted last. bench/NOTES.md, "Which chunks a tensor gets", has what else was tried.
   Cost: linear in a range's chunks. Fails: where host memory is refused. */

typedef struct gmlo_range {
  void *range;
  char *ptr;
  size_t bytes;
  size_t used;            /* bytes from its begin on that its tensor has, or the last one had */
  uint32_t tensor;        /* NONE: it is idle, */
  uint32_t before, after; /* between these on its shelf; or NONE */
  int is_released;        /* the schedule lets its memory go */
  uint64_t free_ns;       /* [simulated] when the last use of its addresses has ended */
  uint32_t *chunks;       /* that it was last given, by number */
} gmlo_range;

typedef struct gmlo_shelf { /* idle ranges of one size: what became idle last is the first */
  size_t bytes;
  uint32_t first; /* NONE: there is none */
} gmlo_shelf;

typedef struct gmlo_chunk {
  uint32_t holder;        /* the range with memory that has it; NONE */
  uint32_t before, after; /* [free] between these in the list; or NONE */
  uint64_t free_ns;       /* [simulated] when its last use has ended */
  int is_known;           /* memory has given it; else nothing else is set */
} gmlo_chunk;

typedef struct gmlo_space {
  gmlake_offload_host host;
  size_t chunk_bytes;
  uint64_t map_ns; /* that the host needs to map a chunk */
  gmlo_range *ranges;
  size_t range_count, range_capacity;
  size_t bytes, most_bytes; /* addresses of all ranges; as many are enough */
  gmlo_shelf *shelves;      /* by size, ascending */
  size_t shelf_count, shelf_capacity;
  gmlo_chunk *chunks; /* by number */
  size_t chunk_count, chunk_capacity;
  uint32_t oldest, newest; /* of the free ones; NONE */
  size_t free_count;
  uint64_t work; /* chunks that were looked at so far */
} gmlo_space;

static void gmlo_space_init(gmlo_space *t, const gmlake_offload_host *host, size_t chunk_bytes,
                            uint64_t map_ns) {
  memset(t, 0, sizeof *t);
  t->host = *host;
  t->chunk_bytes = chunk_bytes;
  t->map_ns = map_ns;
  t->oldest = t->newest = GMLAKE_OFFLOAD_NONE;
}

static void gmlo_space_leave(gmlo_space *t) {
  size_t i;
  for (i = 0; i < t->range_count; i++) gmlo_free(&t->host, t->ranges[i].chunks);
  gmlo_free(&t->host, t->ranges);
  gmlo_free(&t->host, t->shelves);
  gmlo_free(&t->host, t->chunks);
  gmlo_space_init(t, &t->host, t->chunk_bytes, t->map_ns);
}

/* A chunk becomes free. */
static void gmlo_space_spare(gmlo_space *t, uint32_t number) {
  gmlo_chunk *chunk = &t->chunks[number];
  chunk->holder = chunk->after = GMLAKE_OFFLOAD_NONE;
  chunk->before = t->newest;
  *(t->newest != GMLAKE_OFFLOAD_NONE ? &t->chunks[t->newest].after : &t->oldest) = number;
  t->newest = number;
  t->free_count++;
}

/* A range takes a free chunk. */
static void gmlo_space_take(gmlo_space *t, uint32_t number, uint32_t id) {
  gmlo_chunk *chunk = &t->chunks[number];
  *(chunk->before != GMLAKE_OFFLOAD_NONE ? &t->chunks[chunk->before].after : &t->oldest) =
      chunk->after;
  *(chunk->after != GMLAKE_OFFLOAD_NONE ? &t->chunks[chunk->after].before : &t->newest) =
      chunk->before;
  chunk->holder = id;
  t->free_count--;
}

/* Notes a chunk's number. 0 if host memory is refused: then it is no chunk of a range. */
static int gmlo_space_see(gmlo_space *t, uint32_t number) {
  gmlo_chunk *chunks;
  if (number >= t->chunk_count) {
    chunks = (gmlo_chunk *)gmlo_grow(&t->host, t->chunks, t->chunk_count,
                                     (size_t)number + 1 - t->chunk_count, &t->chunk_capacity,
                                     sizeof *chunks);
    if (chunks == NULL) return 0;
    t->chunks = chunks;
    memset(chunks + t->chunk_count, 0, (number + 1 - t->chunk_count) * sizeof *chunks);
    t->chunk_count = (size_t)number + 1;
  }
  if (!t->chunks[number].is_known) gmlo_space_spare(t, number);
  t->chunks[number].is_known = 1;
  return 1;
}

/* A range has memory now, or has none any more. */
static void gmlo_space_hold(gmlo_space *t, uint32_t id, int is_held) {
  const gmlo_range *range = &t->ranges[id];
  size_t i, count = range->used / t->chunk_bytes;
  t->work += count;
  for (i = 0; i < count; i++) {
    uint32_t chunk = range->chunks[i];
    if (is_held && !gmlo_space_see(t, chunk)) continue;
    if (chunk >= t->chunk_count || !t->chunks[chunk].is_known) continue;
    if (is_held && t->chunks[chunk].holder == GMLAKE_OFFLOAD_NONE) {
      gmlo_space_take(t, chunk, id);
    } else if (!is_held && t->chunks[chunk].holder == id) {
      gmlo_space_spare(t, chunk);
    }
  }
}

/* Writes down which chunks a range wants, which it then holds. NONE: any, where no known one is
   free. Returns how many it did not have last. */
static size_t gmlo_space_wish(gmlo_space *t, uint32_t id) {
  gmlo_range *range = &t->ranges[id];
  size_t i, count = range->used / t->chunk_bytes, moved = 0;
  t->work += count;
  for (i = 0; i < count; i++) {
    uint32_t chunk = range->chunks[i];
    if (t->map_ns != 0 && chunk < t->chunk_count &&
        t->chunks[chunk].holder == GMLAKE_OFFLOAD_NONE) {
      gmlo_space_take(t, chunk, id);
    } else {
      range->chunks[i] = GMLAKE_OFFLOAD_NONE;
      moved++;
    }
  }
  for (i = 0; moved != 0 && i < count; i++) {
    if (range->chunks[i] != GMLAKE_OFFLOAD_NONE) continue;
    range->chunks[i] = t->oldest;
    if (t->oldest != GMLAKE_OFFLOAD_NONE) gmlo_space_take(t, t->oldest, id);
  }
  return moved;
}

/* The first shelf of so many bytes or more. */
static size_t gmlo_space_shelf(const gmlo_space *t, size_t bytes) {
  return gmlo_count_to(t->shelves, t->shelf_count, sizeof *t->shelves, bytes - 1);
}

/* Lays an idle range on its shelf, as the first. */
static void gmlo_space_lay(gmlo_space *t, uint32_t id) {
  gmlo_range *range = &t->ranges[id];
  gmlo_shelf *shelf = &t->shelves[gmlo_space_shelf(t, range->bytes)];
  range->tensor = range->before = GMLAKE_OFFLOAD_NONE;
  range->after = shelf->first;
  if (shelf->first != GMLAKE_OFFLOAD_NONE) t->ranges[shelf->first].before = id;
  shelf->first = id;
}

/* A tensor gets an idle range. */
static void gmlo_space_lift(gmlo_space *t, uint32_t id, uint32_t tensor) {
  gmlo_range *range = &t->ranges[id];
  gmlo_shelf *shelf = &t->shelves[gmlo_space_shelf(t, range->bytes)];
  *(range->before != GMLAKE_OFFLOAD_NONE ? &t->ranges[range->before].after : &shelf->first) =
      range->after;
  if (range->after != GMLAKE_OFFLOAD_NONE) t->ranges[range->after].before = range->before;
  range->tensor = tensor;
}

#define GMLO_RANGES_SEEN 512u /* idle ranges of one size that are looked at */
#define GMLO_ADDRESSES 32u    /* times the memory, of ranges */

/* How many of the chunks that a range had last it does not get now for so many bytes, as others
   have them: up to `most`. 0 where mapping costs nothing. With `clears` the chunks of released
   ranges count as free. */
static size_t gmlo_space_lacks(gmlo_space *t, const gmlo_range *range, size_t bytes, int clears,
                               size_t most) {
  size_t i, lacks = 0, count = t->map_ns != 0 ? bytes / t->chunk_bytes : 0;
  for (i = 0; i < count && lacks < most; i++) {
    uint32_t chunk = range->chunks[i], holder;
    t->work++;
    holder = chunk < t->chunk_count ? t->chunks[chunk].holder : GMLAKE_OFFLOAD_NONE;
    lacks += chunk >= t->chunk_count ||
             (holder != GMLAKE_OFFLOAD_NONE && (!clears || !t->ranges[holder].is_released));
  }
  return lacks;
}

static int gmlo_space_is_mapped(gmlo_space *t, const gmlo_range *range, size_t bytes, int clears) {
  return gmlo_space_lacks(t, range, bytes, clears, 1) == 0;
}

/* Of a shelf's ranges the one that lacks the fewest chunks, of several the one that became idle
   last. NONE: there is none. */
static uint32_t gmlo_space_nearest(gmlo_space *t, const gmlo_shelf *shelf, size_t bytes,
                                   int clears) {
  uint32_t at, best = GMLAKE_OFFLOAD_NONE;
  size_t lacks, least = SIZE_MAX;
  unsigned seen = 0;
  for (at = shelf->first; at != GMLAKE_OFFLOAD_NONE && seen < GMLO_RANGES_SEEN; seen++) {
    lacks = gmlo_space_lacks(t, &t->ranges[at], bytes, clears, least);
    if (lacks < least) best = at;
    if (lacks < least) least = lacks;
    at = t->ranges[at].after;
  }
  return best;
}

/* Of a shelf's ranges one that maps nothing for so many bytes: one that clears nothing, if there is
   one. Else the one that maps the least if there are many; NONE: a new one is better. */
static uint32_t gmlo_space_from_shelf(gmlo_space *t, const gmlo_shelf *shelf, size_t bytes,
                                      int clears) {
  uint32_t at, nearest;
  unsigned seen = 0;
  for (at = shelf->first; at != GMLAKE_OFFLOAD_NONE && seen < GMLO_RANGES_SEEN; seen++) {
    if (gmlo_space_is_mapped(t, &t->ranges[at], bytes, 0)) return at;
    at = t->ranges[at].after;
  }
  nearest = gmlo_space_nearest(t, shelf, bytes, clears);
  if (nearest != GMLAKE_OFFLOAD_NONE &&
      gmlo_space_is_mapped(t, &t->ranges[nearest], bytes, clears)) {
    return nearest;
  }
  if (shelf->bytes == bytes && seen < GMLO_RANGES_SEEN && t->bytes < t->most_bytes)
    return GMLAKE_OFFLOAD_NONE;
  return nearest;
}

/* The smallest idle range with room for so many bytes; NONE: there is none. */
static uint32_t gmlo_space_any(const gmlo_space *t, size_t bytes) {
  size_t i = gmlo_space_shelf(t, bytes);
  while (i < t->shelf_count && t->shelves[i].first == GMLAKE_OFFLOAD_NONE) i++;
  return i < t->shelf_count ? t->shelves[i].first : GMLAKE_OFFLOAD_NONE;
}

/* An idle range with room for so many bytes: `wanted`, which the tensor's slot had last, if it maps
   nothing; else one of the smallest. NONE: a new one is better. */
static uint32_t gmlo_space_idle(gmlo_space *t, size_t bytes, uint32_t wanted, int clears) {
  size_t i;
  if (wanted != GMLAKE_OFFLOAD_NONE && t->ranges[wanted].tensor == GMLAKE_OFFLOAD_NONE &&
      t->ranges[wanted].bytes >= bytes && t->ranges[wanted].bytes / 2 <= bytes &&
      gmlo_space_is_mapped(t, &t->ranges[wanted], bytes, clears)) {
    return wanted;
  }
  for (i = gmlo_space_shelf(t, bytes); i < t->shelf_count; i++) {
    if (t->shelves[i].bytes / 2 > bytes) break;
    if (t->shelves[i].first != GMLAKE_OFFLOAD_NONE)
      return gmlo_space_from_shelf(t, &t->shelves[i], bytes, clears);
  }
  return t->bytes < t->most_bytes ? GMLAKE_OFFLOAD_NONE : gmlo_space_any(t, bytes);
}

/* Makes a shelf for ranges of so many bytes. 0 if host memory is refused. */
static int gmlo_space_make_shelf(gmlo_space *t, size_t bytes) {
  size_t at = gmlo_space_shelf(t, bytes);
  gmlo_shelf *shelves;
  if (at != t->shelf_count && t->shelves[at].bytes == bytes) return 1;
  shelves = (gmlo_shelf *)gmlo_grow(&t->host, t->shelves, t->shelf_count, 1, &t->shelf_capacity,
                                    sizeof *shelves);
  if (shelves == NULL) return 0;
  t->shelves = shelves;
  memmove(shelves + at + 1, shelves + at, (t->shelf_count++ - at) * sizeof *shelves);
  shelves[at].bytes = bytes;
  shelves[at].first = GMLAKE_OFFLOAD_NONE;
  return 1;
}

/* A new range, which is idle; its addresses are the caller's to take. NONE if host memory is
   refused. */
static uint32_t gmlo_space_add(gmlo_space *t, size_t bytes) {
  size_t count = bytes / t->chunk_bytes;
  gmlo_range *range = (gmlo_range *)gmlo_more(&t->host, &t->ranges, t->range_count, 1,
                                              &t->range_capacity, sizeof *range);
  if (range == NULL || !gmlo_space_make_shelf(t, bytes)) return GMLAKE_OFFLOAD_NONE;
  range->chunks = (uint32_t *)gmlo_malloc(&t->host, count * sizeof *range->chunks);
  if (range->chunks == NULL) return GMLAKE_OFFLOAD_NONE;
  memset(range->chunks, 0xff, count * sizeof *range->chunks);
  range->bytes = bytes;
  t->bytes += bytes;
  gmlo_space_lay(t, (uint32_t)t->range_count);
  return (uint32_t)t->range_count++;
}

/* Takes the newest range back. pre: it was not lifted. */
static void gmlo_space_drop(gmlo_space *t) {
  gmlo_space_lift(t, (uint32_t)t->range_count - 1, GMLAKE_OFFLOAD_NONE);
  t->bytes -= t->ranges[--t->range_count].bytes;
  gmlo_free(&t->host, t->ranges[t->range_count].chunks);
}

/* ---- >>recording: what an iteration of a program did --------------------------------------------
   Owns the steps of one iteration of a session, as they were begun: what each named, which tensors
   were allocated and which were freed when. Makes a graph of it, and from a plan for that graph a
   schedule: which tensors leave and return after which step. A slot stands for a tensor: the
   tensor's number is another one in each iteration, its slot the same. Invariants:
   [L1] Slots are numbered as they first appear. A slot exists from the step `alloc` (NONE: from the
        iteration's begin) to the step before `freed` (NONE: beyond its end).
   [L2] What is allocated and outlives the iteration is a loop-carried value: in the next one its
        tensor is in the slot `peer`, which existed at the begin and is freed. Such two are one
        tensor of the graph.
   [L3] The graph's operators are the steps from `cut` on, around the iteration's end. Fewest bytes
        of tensors that are allocated and freed cross the begin of step `cut`.
   A schedule is made at once (gmlo_making), by a thread of its own where there is one, which may be
   asked to stop. Work is counted in steps of about 10 ns.
   Cost: linear in what was named; planning and a schedule O(log steps) for each move, GMLO_WAYS
   times. Fails: where host memory is refused. */

typedef struct gmlo_named { /* a step's use of a slot */
  uint32_t slot;
  unsigned how; /* GMLO_READS, GMLO_WRITES */
} gmlo_named;

typedef struct gmlo_recording_step {
  uint64_t key, time_ns;
  uint64_t fastest_ns;           /* in recordings before that were alike; 0: none */
  size_t named_begin, named_end; /* in `named` */
  uint32_t begun, ended;         /* events */
} gmlo_recording_step;

typedef struct gmlo_slot {
  size_t bytes;      /* of its range */
  size_t real_bytes; /* that a copy moves */
  uint32_t alloc, freed;
  size_t use_begin, use_end; /* in `uses`, once the recording is closed */
  uint32_t peer;             /* of a carried value and of the slot that it takes; else NONE */
  uint32_t tensor;           /* that is in it now, or NONE */
  uint32_t range;            /* that its tensor had last, or NONE */
} gmlo_slot;

typedef struct gmlo_widened { /* a slot, and what it had before it grew */
  uint32_t slot;
  size_t bytes, real_bytes;
} gmlo_widened;

typedef struct gmlo_recording_copy {
  int direction;
  size_t bytes;
  uint32_t begun, ended; /* events */
} gmlo_recording_copy;

typedef struct gmlo_region { /* steps that the program may execute twice */
  uint32_t begin, end;       /* end NONE: not in this iteration */
  uint32_t again, again_end; /* the same again; NONE: not in this iteration */
  size_t unseen_bytes;       /* see gmlake_offload_session_region_end */
  int is_odd;                /* they were executed more than twice */
} gmlo_region;

typedef struct gmlo_recording {
  gmlake_offload_host host;
  gmlo_recording_step *steps;
  gmlo_named *named;
  gmlo_slot *slots;
  uint32_t *allocs; /* slots, in the order of their allocations */
  gmlo_recording_copy *copies;
  gmlo_region *regions; /* by number in the iteration */
  void **events;        /* timed; `made` of them exist */
  uint64_t *uses;       /* steps by slot, ascending */
  size_t step_count, named_count, slot_count, alloc_count, copy_count, region_count, event_count,
      made;
  size_t step_capacity, named_capacity, slot_capacity, alloc_capacity, copy_capacity,
      region_capacity, event_capacity;
  int is_broken;     /* something is missing in it */
  uint32_t cut;      /* [L3] */
  uint64_t digest;   /* of the bytes of all slots */
  size_t slot_bytes; /* of all slots */
} gmlo_recording;

typedef struct gmlo_move {
  uint32_t step; /* after which it happens */
  uint32_t slot;
  uint32_t use; /* SWAP_OUT: the last step before that used the slot; SWAP_IN: the next one */
  int is_in;
  int is_copy; /* SWAP_OUT: 0: the host has its bytes already */
  int stays;   /* it is only copied: it leaves by a later move, without a copy */
} gmlo_move;

typedef struct gmlo_schedule {
  gmlo_move *moves;        /* by step, those that leave first */
  size_t *begin;           /* of each step's moves, and their end */
  unsigned char *is_asked; /* by step: a move follows it, or what then leaves was used in it */
  size_t step_count;
  size_t unplanned_bytes, planned_bytes, out_bytes, in_bytes;
  uint64_t step_ns, added_ns;
  uint64_t least_ns;   /* no schedule for these bytes is faster */
  size_t target_bytes; /* it is for */
  uint64_t print;      /* of the recording that it is for: gmlo_recording_print */
  uint32_t cut;        /* of the recording; half steps count from there */
  size_t map_count;    /* chunks that an iteration maps */
} gmlo_schedule;

static void gmlo_schedule_free(const gmlake_offload_host *host, gmlo_schedule *schedule) {
  gmlo_free(host, schedule->moves);
  gmlo_free(host, schedule->begin);
  gmlo_free(host, schedule->is_asked);
  memset(schedule, 0, sizeof *schedule);
}

/* Forgets all but the events. */
static void gmlo_recording_clear(gmlo_recording *l) {
  l->step_count = l->named_count = l->slot_count = l->alloc_count = l->copy_count = 0;
  l->region_count = l->event_count = 0;
  l->is_broken = 0;
  l->cut = 0;
  l->digest = 0;
  l->slot_bytes = 0;
  gmlo_free(&l->host, l->uses);
  l->uses = NULL;
}

/* pre: its events are destroyed. */
static void gmlo_recording_free(gmlo_recording *l) {
  gmlo_recording_clear(l);
  gmlo_free(&l->host, l->steps);
  gmlo_free(&l->host, l->named);
  gmlo_free(&l->host, l->slots);
  gmlo_free(&l->host, l->allocs);
  gmlo_free(&l->host, l->copies);
  gmlo_free(&l->host, l->regions);
  gmlo_free(&l->host, l->events);
}

/* Makes a copy of what a recording knows, but for its events and copies; 0: host memory is refused.
   It is to be freed in any case. pre: *out is empty. */
static int gmlo_recording_copy_to(const gmlo_recording *l, gmlo_recording *out) {
  const gmlake_offload_host *host = &l->host;
  out->host = *host;
  out->steps = (gmlo_recording_step *)gmlo_copy(host, l->steps, l->step_count, sizeof *l->steps);
  out->named = (gmlo_named *)gmlo_copy(host, l->named, l->named_count, sizeof *l->named);
  out->slots = (gmlo_slot *)gmlo_copy(host, l->slots, l->slot_count, sizeof *l->slots);
  out->allocs = (uint32_t *)gmlo_copy(host, l->allocs, l->alloc_count, sizeof *l->allocs);
  out->regions = (gmlo_region *)gmlo_copy(host, l->regions, l->region_count, sizeof *l->regions);
  out->slot_bytes = l->slot_bytes;
  out->step_count = l->step_count;
  out->named_count = l->named_count;
  out->slot_count = l->slot_count;
  out->alloc_count = l->alloc_count;
  out->region_count = l->region_count;
  return out->steps != NULL && out->named != NULL && out->slots != NULL && out->allocs != NULL &&
         out->regions != NULL;
}

/* One more item of an array; NULL, and the recording is broken, if host memory is refused. */
static void *gmlo_recording_more(gmlo_recording *l, void *items, size_t count, size_t *capacity,
                                 size_t item_bytes) {
  void *item = gmlo_more(&l->host, items, count, 1, capacity, item_bytes);
  l->is_broken |= item == NULL;
  return item;
}

/* A slot that appears now; NONE if host memory is refused. */
static uint32_t gmlo_recording_add_slot(gmlo_recording *l, size_t bytes, size_t real_bytes,
                                        uint32_t alloc) {
  gmlo_slot *slot = (gmlo_slot *)gmlo_recording_more(l, &l->slots, l->slot_count, &l->slot_capacity,
                                                     sizeof *slot);
  if (slot == NULL || gmlo_recording_more(l, &l->allocs, l->alloc_count, &l->alloc_capacity,
                                          sizeof *l->allocs) == NULL) {
    return GMLAKE_OFFLOAD_NONE;
  }
  slot->bytes = bytes;
  slot->real_bytes = real_bytes;
  slot->alloc = alloc;
  slot->freed = slot->peer = slot->tensor = slot->range = GMLAKE_OFFLOAD_NONE;
  if (alloc != GMLAKE_OFFLOAD_NONE) l->allocs[l->alloc_count++] = (uint32_t)l->slot_count;
  l->slot_bytes += bytes;
  l->digest = (l->digest ^ bytes) * UINT64_C(0x9E3779B97F4A7C15);
  return (uint32_t)l->slot_count++;
}

static void gmlo_recording_add_step(gmlo_recording *l, uint64_t key) {
  gmlo_recording_step *step = (gmlo_recording_step *)gmlo_recording_more(
      l, &l->steps, l->step_count, &l->step_capacity, sizeof *step);
  if (step == NULL) return;
  l->step_count++;
  step->key = key;
  step->named_begin = step->named_end = l->named_count;
  step->begun = step->ended = GMLAKE_OFFLOAD_NONE;
}

/* The last step uses the slot. */
static void gmlo_recording_name(gmlo_recording *l, uint32_t slot, unsigned how) {
  gmlo_named *named = (gmlo_named *)gmlo_recording_more(l, &l->named, l->named_count,
                                                        &l->named_capacity, sizeof *named);
  if (named == NULL || l->step_count == 0) return;
  named->slot = slot;
  named->how = how;
  l->steps[l->step_count - 1].named_end = ++l->named_count;
}

/* The slot's tensor has so many bytes: the next schedule is for the largest that were seen. */
static void gmlo_recording_widen(gmlo_recording *l, uint32_t id, size_t bytes, size_t real_bytes) {
  gmlo_slot *slot = &l->slots[id];
  if (bytes > slot->bytes) {
    l->slot_bytes += bytes - slot->bytes;
    slot->bytes = bytes;
  }
  if (real_bytes > slot->real_bytes) slot->real_bytes = real_bytes;
}

/* The region of that number begins with the next step. */
static void gmlo_recording_add_region(gmlo_recording *l, uint64_t number) {
  gmlo_region *region;
  if (number != l->region_count) l->is_broken = 1; /* one before was not noted */
  if (l->is_broken) return;
  region = (gmlo_region *)gmlo_recording_more(l, &l->regions, l->region_count, &l->region_capacity,
                                              sizeof *region);
  if (region == NULL) return;
  l->region_count++;
  region->begin = (uint32_t)l->step_count;
  region->end = region->again = region->again_end = GMLAKE_OFFLOAD_NONE;
}

/* Lists the steps that use each slot. 0 if host memory is refused. */
static int gmlo_recording_close(gmlo_recording *l) {
  size_t i, n, at = 0;
  if (l->is_broken || l->step_count == 0) return 0;
  l->uses = (uint64_t *)gmlo_zeroed(&l->host, l->named_count, sizeof *l->uses);
  if (l->uses == NULL) return 0;
  for (i = 0; i < l->named_count; i++) l->slots[l->named[i].slot].use_end++;
  for (i = 0; i < l->slot_count; i++) {
    size_t count = l->slots[i].use_end;
    l->slots[i].use_begin = l->slots[i].use_end = at;
    at += count;
  }
  for (i = 0; i < l->step_count; i++) {
    for (n = l->steps[i].named_begin; n < l->steps[i].named_end; n++) {
      l->uses[l->slots[l->named[n].slot].use_end++] = i;
    }
  }
  return 1;
}

/* The same for two recordings whose slots have the same sizes, times of life and peers. */
static uint64_t gmlo_recording_print(const gmlo_recording *l) {
  uint64_t print = l->step_count;
  size_t i;
  for (i = 0; i < l->slot_count; i++) {
    const gmlo_slot *slot = &l->slots[i];
    print = (print ^ slot->bytes) * UINT64_C(0x9E3779B97F4A7C15);
    print = (print ^ print >> 32 ^ slot->alloc) * UINT64_C(0x9E3779B97F4A7C15);
    print ^= (uint64_t)slot->freed << 32 ^ slot->peer;
  }
  return print;
}

/* The first use of the slot in step `at` or later, or the end of its uses. */
static size_t gmlo_slot_next(const gmlo_recording *l, const gmlo_slot *slot, size_t at) {
  const uint64_t *uses = l->uses + slot->use_begin;
  return slot->use_begin +
         gmlo_count_below(uses, slot->use_end - slot->use_begin, sizeof *uses, at);
}

/* The steps from `at` to the slot's next use, or, where there is none, to where it is freed: until
   then its memory would serve others. SIZE_MAX: to neither. */
static size_t gmlo_recording_expect(const gmlo_recording *l, uint32_t id, size_t at) {
  const gmlo_slot *slot = &l->slots[id];
  size_t next = gmlo_slot_next(l, slot, at);
  if (next != slot->use_end) return l->uses[next] - at;
  if (slot->freed != GMLAKE_OFFLOAD_NONE) return slot->freed > at ? slot->freed - at : 0;
  if (slot->alloc != GMLAKE_OFFLOAD_NONE) {
    if (slot->peer == GMLAKE_OFFLOAD_NONE) return l->step_count - at;
    slot = &l->slots[slot->peer];
  }
  if (slot->use_begin == slot->use_end) return SIZE_MAX;
  return l->step_count - at + l->uses[slot->use_begin];
}

/* ---- The graph ---- */

/* A tensor of the graph: one slot, or a carried value and the slot that it takes. */
typedef struct gmlo_live_range {
  uint32_t carried, slot; /* carried value: NONE, or what it is from that one's allocation on */
  uint32_t from, length;  /* the steps in which it exists, around the end; length step_count: all */
  uint32_t id;            /* in the graph; NONE: none */
  unsigned how;           /* [while a step is added] how the step uses it */
} gmlo_live_range;

typedef struct gmlo_build {
  gmlo_scope scope;
  const gmlo_recording *l;
  gmlo_live_range *live_ranges;
  size_t live_count;
  uint32_t *of;    /* by slot: its live range */
  uint32_t *by_id; /* by tensor of the graph: its live range */
  uint32_t *first, *next_first, *last,
      *next_last; /* by step: lists of live ranges that begin, end */
  uint32_t *ids;  /* the live ranges of a step; from slot_count on, what it reads and then writes */
  size_t id_count;
} gmlo_build;

#define GMLO_MATCHED 4096u /* so many slots are looked at for each */

/* Gives slots of their size to carried values that the session has not seen come back. */
static void gmlo_recording_match(gmlo_recording *l) {
  size_t i, n, from = 0;
  for (i = 0; i < l->alloc_count; i++) {
    gmlo_slot *carried = &l->slots[l->allocs[i]];
    if (carried->freed != GMLAKE_OFFLOAD_NONE || carried->peer != GMLAKE_OFFLOAD_NONE) continue;
    for (n = from; n < l->slot_count && n < from + GMLO_MATCHED; n++) {
      gmlo_slot *slot = &l->slots[n];
      if (slot->alloc != GMLAKE_OFFLOAD_NONE || slot->freed == GMLAKE_OFFLOAD_NONE ||
          slot->peer != GMLAKE_OFFLOAD_NONE) {
        from += n == from;
        continue;
      }
      if (slot->bytes != carried->bytes || slot->freed > carried->alloc) continue;
      slot->peer = l->allocs[i];
      carried->peer = (uint32_t)n;
      break;
    }
  }
}

/* When the live range of a slot exists. */
static void gmlo_live_init(const gmlo_recording *l, gmlo_live_range *live, uint32_t id) {
  const gmlo_slot *slot = &l->slots[id];
  size_t count = l->step_count, alloc = slot->alloc, freed = slot->freed;
  live->slot = id;
  live->carried = GMLAKE_OFFLOAD_NONE;
  live->from = 0;
  live->length = (uint32_t)count;
  if (slot->peer != GMLAKE_OFFLOAD_NONE) { /* of the two, the carried value is here */
    live->carried = id;
    live->slot = slot->peer;
    freed = count + l->slots[slot->peer].freed;
  }
  if (alloc == GMLAKE_OFFLOAD_NONE || freed == GMLAKE_OFFLOAD_NONE || freed - alloc >= count)
    return;
  live->from = (uint32_t)(alloc % count);
  live->length = (uint32_t)(freed - alloc);
}

static uint32_t gmlo_live_end(const gmlo_recording *l, const gmlo_live_range *live) {
  return (uint32_t)((live->from + live->length + l->step_count - 1) % l->step_count);
}

static int gmlo_live_is_whole(const gmlo_recording *l, const gmlo_live_range *live) {
  return live->length == l->step_count;
}

/* How far step `to` is behind step `from`, around the end. */
static size_t gmlo_recording_way(const gmlo_recording *l, size_t from, size_t to) {
  return to >= from ? to - from : to + l->step_count - from;
}

/* Chooses the step that the graph begins with. 0 if host memory is refused. [L3] */
static int gmlo_build_cut(gmlo_build *w, uint32_t *out_cut) {
  const gmlo_recording *l = w->l;
  size_t i, n = l->step_count, best = SIZE_MAX;
  size_t *crossing = (size_t *)gmlo_take(&w->scope, 2 * n + 1, sizeof *crossing);
  if (crossing == NULL) return 0;
  for (i = 0; i < w->live_count; i++) { /* changes from one step's begin to the next one's */
    const gmlo_live_range *live = &w->live_ranges[i];
    if (gmlo_live_is_whole(l, live) || live->length < 2) continue;
    crossing[live->from + 1] += l->slots[live->slot].bytes;
    crossing[live->from + live->length] -= l->slots[live->slot].bytes;
  }
  for (i = 0; i < 2 * n; i++) crossing[i + 1] += crossing[i];
  for (i = 0; i < n; i++) {
    if (crossing[i] + crossing[i + n] >= best) continue;
    best = crossing[i] + crossing[i + n];
    *out_cut = (uint32_t)i;
  }
  return 1;
}

/* Whether a live range begins before the cut and ends behind it, or exists all the time. */
static int gmlo_live_crosses(const gmlo_recording *l, const gmlo_live_range *live) {
  size_t way = gmlo_recording_way(l, l->cut, live->from);
  return gmlo_live_is_whole(l, live) || way + live->length > l->step_count;
}

/* Makes the live ranges of all slots, and lists them by the steps that they begin and end with. It
   is to be left in any case. */
static int gmlo_build_begin(gmlo_build *w, const gmlo_recording *l) {
  size_t i, n = l->step_count;
  memset(w, 0, sizeof *w);
  w->scope = gmlo_scope_of(&l->host);
  w->l = l;
  w->live_ranges = (gmlo_live_range *)gmlo_take(&w->scope, l->slot_count, sizeof *w->live_ranges);
  w->of = (uint32_t *)gmlo_take(&w->scope, l->slot_count, sizeof *w->of);
  w->by_id = (uint32_t *)gmlo_take(&w->scope, l->slot_count, sizeof *w->by_id);
  w->ids = (uint32_t *)gmlo_take(&w->scope, l->slot_count, 3 * sizeof *w->ids);
  w->first = (uint32_t *)gmlo_take(&w->scope, n, 2 * sizeof *w->first);
  w->next_first = (uint32_t *)gmlo_take(&w->scope, l->slot_count, 2 * sizeof *w->next_first);
  if (w->live_ranges == NULL || w->of == NULL || w->by_id == NULL || w->ids == NULL ||
      w->first == NULL || w->next_first == NULL) {
    return 0;
  }
  w->last = w->first + n;
  w->next_last = w->next_first + l->slot_count;
  for (i = 0; i < 2 * n; i++) w->first[i] = GMLAKE_OFFLOAD_NONE;
  for (i = 0; i < l->slot_count; i++) {
    const gmlo_slot *slot = &l->slots[i];
    gmlo_live_range *live = &w->live_ranges[w->live_count];
    if (slot->peer != GMLAKE_OFFLOAD_NONE && slot->alloc == GMLAKE_OFFLOAD_NONE) continue;
    gmlo_live_init(l, live, (uint32_t)i);
    w->of[live->slot] = w->of[i] = (uint32_t)w->live_count++;
    live->id = GMLAKE_OFFLOAD_NONE;
    if (live->length == 0 || gmlo_live_is_whole(l, live)) continue;
    w->next_first[w->of[i]] = w->first[live->from];
    w->first[live->from] = w->of[i];
    w->next_last[w->of[i]] = w->last[gmlo_live_end(l, live)];
    w->last[gmlo_live_end(l, live)] = w->of[i];
  }
  return 1;
}

static gmlake_offload_result gmlo_build_tensors(gmlo_build *w, gmlake_offload_graph *graph) {
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  gmlake_offload_tensor_desc desc;
  size_t i;
  memset(&desc, 0, sizeof desc);
  for (i = 0; i < w->live_count && result == GMLAKE_OFFLOAD_OK; i++) {
    gmlo_live_range *live = &w->live_ranges[i];
    if (live->length == 0) continue;
    desc.bytes = w->l->slots[live->slot].bytes;
    desc.kind =
        gmlo_live_crosses(w->l, live) ? GMLAKE_OFFLOAD_PERSISTENT : GMLAKE_OFFLOAD_INTERMEDIATE;
    result = gmlake_offload_add_tensor(graph, &desc, &live->id);
    if (result == GMLAKE_OFFLOAD_OK) w->by_id[live->id] = (uint32_t)i;
  }
  return result;
}

/* A live range is used by the step that is added now. */
static void gmlo_build_touch(gmlo_build *w, uint32_t live, unsigned how) {
  if (w->live_ranges[live].id == GMLAKE_OFFLOAD_NONE) return;
  if (w->live_ranges[live].how == 0) w->ids[w->id_count++] = live;
  w->live_ranges[live].how |= how;
}

/* Adds a step, by its position from the cut on, as an operator. It also makes what is allocated in
   it, and reads what is freed behind it: that stays until then. */
static gmlake_offload_result gmlo_build_step(gmlo_build *w, gmlake_offload_graph *graph,
                                             size_t position) {
  const gmlo_recording *l = w->l;
  size_t index = (l->cut + position) % l->step_count;
  const gmlo_recording_step *step = &l->steps[index];
  gmlake_offload_op_desc desc;
  uint32_t i, op, *ids = w->ids + l->slot_count;
  size_t n;
  w->id_count = 0;
  for (n = step->named_begin; n < step->named_end; n++)
    gmlo_build_touch(w, w->of[l->named[n].slot], l->named[n].how);
  for (i = w->last[index]; i != GMLAKE_OFFLOAD_NONE; i = w->next_last[i])
    if (w->live_ranges[i].how == 0) gmlo_build_touch(w, i, GMLO_READS);
  for (i = w->first[index]; i != GMLAKE_OFFLOAD_NONE; i = w->next_first[i]) {
    gmlo_build_touch(w, i, GMLO_WRITES);
    if (!gmlo_live_crosses(l, &w->live_ranges[i])) w->live_ranges[i].how = GMLO_WRITES;
  }
  memset(&desc, 0, sizeof desc);
  desc.time_ns = step->time_ns;
  desc.reads = ids;
  for (n = 0; n < w->id_count; n++)
    if (w->live_ranges[w->ids[n]].how & GMLO_READS)
      ids[desc.read_count++] = w->live_ranges[w->ids[n]].id;
  desc.writes = ids + desc.read_count;
  for (n = 0; n < w->id_count; n++) {
    if (w->live_ranges[w->ids[n]].how & GMLO_WRITES)
      ids[desc.read_count + desc.write_count++] = w->live_ranges[w->ids[n]].id;
    w->live_ranges[w->ids[n]].how = 0;
  }
  return gmlake_offload_add_op(graph, &desc, &op);
}

static void gmlo_build_leave(gmlo_build *w) { gmlo_leave(&w->scope); }

/* Makes a graph of the recording. On an error *out_graph is to be destroyed. */
static gmlake_offload_result gmlo_build_graph(gmlo_build *w, gmlo_recording *l,
                                              gmlake_offload_graph **out_graph) {
  gmlake_offload_graph_desc desc;
  gmlake_offload_result result;
  size_t i;
  if (!gmlo_build_begin(w, l) || !gmlo_build_cut(w, &l->cut))
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  memset(&desc, 0, sizeof desc);
  desc.host = l->host;
  result = gmlake_offload_graph_create(&desc, out_graph);
  if (result == GMLAKE_OFFLOAD_OK) result = gmlo_build_tensors(w, *out_graph);
  for (i = 0; i < l->step_count && result == GMLAKE_OFFLOAD_OK; i++)
    result = gmlo_build_step(w, *out_graph, i);
  return result == GMLAKE_OFFLOAD_OK ? gmlake_offload_graph_seal(*out_graph) : result;
}

/* ---- The schedule ---- */

#define GMLO_CLEAN_GAIN 3u /* what needs no copy out counts as unused for so many times as long */

/* A tensor's absence: it leaves behind step `out`, is back before step `in`, and is used in step
   `use`; all counted from the cut on, `use` maybe in the next iteration. */
typedef struct gmlo_absence {
  uint32_t live, last_use;
  size_t out, in, use;
  size_t copy; /* behind which step it is copied: `out`, or an earlier one */
  int returns; /* 0: it is freed before it is used again */
  int is_copy; /* 0: the host has its bytes already */
} gmlo_absence;

/* A schedule on a clock of its own. */
typedef struct gmlo_schedule_sim {
  uint64_t *ready_ns, *gone_ns; /* by live range: when its last copy back, and out, has ended */
  unsigned char *is_away;       /* by live range */
  uint64_t now_ns, out_ns, in_ns, first_ns;
  uint64_t tail_ns;   /* that copies out take behind the last step of an iteration */
  uint64_t host_ns;   /* until when the host is busy */
  gmlo_space space;   /* its chunks say when memory is free */
  uint32_t *range_of; /* by live range: its range there; NONE */
  uint32_t *last_of;  /* likewise, but the one that it had last */
  size_t map_count;   /* chunks that were mapped in the last iteration */
  int is_last;        /* iteration */
  uint32_t *released; /* live ranges that left, one after the other; their memory is */
  size_t released_at, released_count; /* taken from this one on */
  int is_refused;                     /* host memory was */
} gmlo_schedule_sim;

typedef struct gmlo_scheduler {
  gmlo_build build;
  const gmlake_offload_graph *graph;
  const gmlake_offload_plan_info *plan;
  const gmlake_offload_planner_desc *desc;
  gmlo_profile still, level; /* bytes by step from the cut on: if nothing moves; as planned */
  uint64_t *time_ns;         /* when it begins, by step from the cut on, in two iterations */
  unsigned char *is_written; /* by live range */
  unsigned char *is_named;   /* by access of the graph: a step names it. Else it is a free */
  uint32_t *rest;            /* by live range: its last access up to the step that is looked at */
  uint32_t *absence_of;      /* by access: 1 + the absence behind it; 0: none */
  uint64_t
      *heaps[2]; /* of live ranges, the farthest next use first; the second one: what needs no copy
                         out, where that leaves first */
  size_t heap_counts[2];
  gmlo_absence *absences;
  size_t absence_count, absence_capacity;
  uint32_t *keys, *order, *begin; /* to sort absences and moves */
  int spares_out;                 /* what needs no copy out leaves first */
  gmlo_schedule_sim sim;
} gmlo_scheduler;

/* The step, from the cut on, in which the time `ns` after the end of operator `trigger` lies. */
static size_t gmlo_scheduler_step(const gmlo_scheduler *c, uint32_t trigger, uint64_t ns) {
  size_t low = trigger == GMLAKE_OFFLOAD_NONE ? 0 : trigger + (size_t)1;
  const uint64_t *ends = c->time_ns + low + 1;
  return low +
         gmlo_count_to(ends, 2 * c->build.l->step_count - low, sizeof *ends, c->time_ns[low] + ns);
}

/* A live range's last access at a position of at most `step`; or the last of all, in the iteration
   before. */
static size_t gmlo_scheduler_access(const gmlo_scheduler *c, uint32_t tensor, size_t step) {
  const gmlake_offload_graph *graph = c->graph;
  size_t next = gmlo_access_from(graph, tensor, step + 1);
  return (next != graph->access_begin[tensor] ? next : graph->access_begin[tensor + 1]) - 1;
}

/* The access behind that one, around the end. */
static size_t gmlo_scheduler_next(const gmlo_scheduler *c, uint32_t tensor, size_t access) {
  const size_t *begin = &c->graph->access_begin[tensor];
  return access + 1 != begin[1] ? access + 1 : begin[0];
}

/* When the access is, in the step or behind it: beyond the end by step_count if it is in the next
   iteration. */
static size_t gmlo_scheduler_from(const gmlo_scheduler *c, size_t access, size_t step) {
  size_t position = c->graph->accesses[access].position;
  return position >= step ? position : position + c->build.l->step_count;
}

static size_t gmlo_scheduler_bytes(const gmlo_scheduler *c, uint32_t live) {
  return c->build.l->slots[c->build.live_ranges[live].slot].bytes;
}

/* Adds the live range's bytes to the steps [from, to), from the cut on, even beyond the end; sign
   -1: subtracts them. */
static void gmlo_scheduler_add(gmlo_scheduler *c, uint32_t live, size_t from, size_t to, int sign) {
  int64_t bytes = (int64_t)gmlo_scheduler_bytes(c, live);
  if (from < to) gmlo_profile_add(&c->level, from, to - from, sign * bytes);
}

/* Adds an absence that begins behind step `out`, at the last use or later. 0: there is no room. */
static int gmlo_scheduler_leave(gmlo_scheduler *c, uint32_t tensor, size_t access, size_t out,
                                int is_copy) {
  gmlo_absence *a;
  size_t n = c->build.l->step_count, next = gmlo_scheduler_next(c, tensor, access);
  if (c->absence_count == c->absence_capacity) return 0;
  a = &c->absences[c->absence_count++];
  c->absence_of[access] = (uint32_t)c->absence_count;
  a->live = c->build.by_id[tensor];
  a->last_use = c->graph->accesses[access].position;
  a->use = gmlo_scheduler_from(c, next, a->last_use + (size_t)1);
  while (out < a->last_use) out += n; /* its trigger is in the next iteration */
  a->out = out < a->use ? out : a->use - 1;
  a->in = a->use;
  a->is_copy = is_copy;
  a->returns = c->is_named[next];
  gmlo_scheduler_add(c, a->live, a->out + 1, a->use, -1);
  return 1;
}

/* Whether the live range is away in a step that lies behind its access. */
static int gmlo_scheduler_is_away(const gmlo_scheduler *c, size_t access, size_t step) {
  uint32_t id = c->absence_of[access];
  if (step < c->graph->accesses[access].position) step += c->build.l->step_count;
  return id != 0 && step > c->absences[id - 1].out;
}

/* Whether a live range may leave, and exists in the step. */
static int gmlo_scheduler_may_leave(const gmlo_scheduler *c, uint32_t id, size_t step) {
  const gmlo_recording *l = c->build.l;
  const gmlo_live_range *live = &c->build.live_ranges[id];
  size_t from = gmlo_recording_way(l, l->cut, live->from), bytes = gmlo_scheduler_bytes(c, id);
  if (live->id == GMLAKE_OFFLOAD_NONE || bytes == 0 || bytes < c->desc->tensor_bytes_min ||
      c->graph->access_begin[live->id] == c->graph->access_begin[live->id + 1]) {
    return 0;
  }
  if (gmlo_live_is_whole(l, live)) return 1;
  if (step < from) step += l->step_count;
  return step >= from && step < from + live->length;
}

/* The live range is not used for a while from the step on: notes when it will be. */
static void gmlo_scheduler_push(gmlo_scheduler *c, uint32_t live, size_t step) {
  uint32_t tensor = c->build.live_ranges[live].id;
  size_t n = c->build.l->step_count, which = c->spares_out && !c->is_written[live], use;
  if (!gmlo_scheduler_may_leave(c, live, step)) return;
  use = gmlo_scheduler_from(c, gmlo_scheduler_next(c, tensor, c->rest[live]), step);
  if (use == step) return;
  gmlo_heap_push(c->heaps[which], &c->heap_counts[which], (uint64_t)(2 * n - use) << 32 | live);
}

/* Goes on to a step of the graph: `rest` of what it uses is there. */
static void gmlo_scheduler_pass(gmlo_scheduler *c, size_t step) {
  size_t i;
  for (i = 0; i < gmlo_op_refs(c->graph, (uint32_t)step); i++) {
    uint32_t tensor = gmlo_op_ref(c->graph, (uint32_t)step, i), live = c->build.by_id[tensor];
    size_t next = gmlo_scheduler_next(c, tensor, c->rest[live]);
    if (c->graph->accesses[next].position == step) c->rest[live] = (uint32_t)next;
  }
}

/* How long the first live range of a heap is not used behind the step; 0: the heap is empty. What
   is used by then, or away, goes. */
static uint64_t gmlo_scheduler_unused_ns(gmlo_scheduler *c, size_t which, size_t step) {
  while (c->heap_counts[which] != 0) {
    uint64_t top = c->heaps[which][0];
    size_t use = 2 * c->build.l->step_count - (size_t)(top >> 32);
    if (use > step && !gmlo_scheduler_is_away(c, c->rest[(uint32_t)top], step))
      return (which != 0 ? GMLO_CLEAN_GAIN : 1) * (c->time_ns[use] - c->time_ns[step] + 1);
    (void)gmlo_heap_pop(c->heaps[which], &c->heap_counts[which]);
  }
  return 0;
}

/* What the plan leaves above the limit in a step: the tensor whose next use is farthest away leaves
   too, right behind its last use. Where copies out are spared, one that needs none counts as if it
   were not used for longer. 0 if none is left that would help. */
static int gmlo_scheduler_lower(gmlo_scheduler *c, size_t step) {
  uint64_t dirty_ns = gmlo_scheduler_unused_ns(c, 0, step);
  uint64_t clean_ns = gmlo_scheduler_unused_ns(c, 1, step);
  size_t which = clean_ns > dirty_ns, access;
  gmlo_absence *a;
  uint32_t live;
  if (clean_ns == 0 && dirty_ns == 0) return 0;
  live = (uint32_t)gmlo_heap_pop(c->heaps[which], &c->heap_counts[which]);
  access = c->rest[live];
  if (c->absence_of[access] == 0)
    return gmlo_scheduler_leave(c, c->build.live_ranges[live].id, access,
                                c->graph->accesses[access].position, c->is_written[live]);
  a = &c->absences[c->absence_of[access] - 1]; /* it leaves earlier than it would */
  gmlo_scheduler_add(c, live, a->last_use + (size_t)1, a->out + 1, -1);
  a->out = a->last_use;
  return 1;
}

#define GMLO_LEVEL_WORK ((uint64_t)32) /* steps of a change of levels, about */

/* Lowers a step to the target. pre: it was done for those before it. Returns its work. */
static size_t gmlo_scheduler_sweep(gmlo_scheduler *c, size_t step, size_t target) {
  size_t i, options = step == 0 ? c->build.live_count : gmlo_op_refs(c->graph, (uint32_t)step - 1);
  size_t work = 8 + (step == 0 ? 1 : 8) * options;
  for (i = 0; i < options; i++)
    gmlo_scheduler_push(
        c, step == 0 ? (uint32_t)i : c->build.by_id[gmlo_op_ref(c->graph, (uint32_t)step - 1, i)],
        step);
  gmlo_scheduler_pass(c, step);
  while (gmlo_profile_max(&c->level, step, 1) > (int64_t)target && gmlo_scheduler_lower(c, step))
    work += 2 * GMLO_LEVEL_WORK;
  return work;
}

typedef enum gmlo_order { GMLO_BY_USE, GMLO_BY_LENGTH, GMLO_BY_OUT } gmlo_order;

/* Sorts the absences: by their uses, by how long they are, or by when they begin. */
static void gmlo_scheduler_sort(gmlo_scheduler *c, gmlo_order order) {
  gmlo_absence *sorted = c->absences + c->absence_capacity;
  size_t i, n = c->build.l->step_count;
  for (i = 0; i < c->absence_count; i++) {
    const gmlo_absence *a = &c->absences[i];
    c->keys[i] =
        (uint32_t)(order == GMLO_BY_OUT ? a->out : a->use - (order == GMLO_BY_USE ? 0 : a->out));
  }
  gmlo_sort_keys(c->keys, c->absence_count, c->begin, 2 * n + 1, c->order);
  for (i = 0; i < c->absence_count; i++) sorted[i] = c->absences[c->order[i]];
  memcpy(c->absences, sorted, c->absence_count * sizeof *sorted);
}

/* Takes an absence back if it is not needed for `target` bytes. */
static int gmlo_scheduler_take_back(gmlo_scheduler *c, const gmlo_absence *a, size_t target) {
  int64_t bytes = (int64_t)gmlo_scheduler_bytes(c, a->live);
  size_t count = a->use - a->out - 1;
  if (count != 0 && gmlo_profile_max(&c->level, a->out + 1, count) + bytes > (int64_t)target)
    return 0;
  gmlo_scheduler_add(c, a->live, a->out + 1, a->use, 1);
  return 1;
}

/* The last step up to the use at whose begin a copy of so long may begin that ends at `end`; or the
   first one of the absence. */
static size_t gmlo_scheduler_latest(const gmlo_scheduler *c, const gmlo_absence *a, uint64_t copy,
                                    uint64_t end) {
  const uint64_t *later = c->time_ns + a->out + 2;
  if (end < copy) return a->out + 1;
  return a->out + 1 + gmlo_count_to(later, a->use - a->out - 1, sizeof *later, end - copy);
}

/* Lets a tensor come back. Early: as soon as there is room from then on. Else the copy is as late
   as the ones behind it allow, of which the first begins at *end: twice its time before the use,
   or later, as soon as there is room. */
static void gmlo_scheduler_return(gmlo_scheduler *c, gmlo_absence *a, int is_early, uint64_t *end) {
  size_t at, bytes = gmlo_scheduler_bytes(c, a->live);
  uint64_t copy = gmlo_copy_time(bytes, c->desc->both_bytes_per_s / 2) + GMLO_COPY_NS;
  if (!a->returns) return;
  if (c->time_ns[a->use] < *end) *end = c->time_ns[a->use];
  *end = *end > copy ? *end - copy : 0;
  at = is_early ? a->out + 1 : gmlo_scheduler_latest(c, a, copy, *end);
  if (at < a->use)
    a->in =
        gmlo_profile_since(&c->level, at, a->use, (int64_t)c->desc->target_bytes - (int64_t)bytes);
  gmlo_scheduler_add(c, a->live, a->in, a->use, 1);
}

static uint64_t gmlo_scheduler_copy_ns(const gmlo_scheduler *c, uint32_t live, int is_in) {
  double speed = is_in ? c->desc->in_bytes_per_s : c->desc->out_bytes_per_s;
  return gmlo_copy_time(c->build.l->slots[c->build.live_ranges[live].slot].real_bytes, speed) +
         GMLO_COPY_NS;
}

#define GMLO_READS_SEEN 64u /* uses, from the last one back, among which the last write is sought */

/* The last step, up to its last use, that writes what leaves, or makes it; that use, if it was
   written in the iteration before, or too many steps have read it since. */
static size_t gmlo_scheduler_last_write(const gmlo_scheduler *c, const gmlo_absence *a) {
  const gmlo_recording *l = c->build.l;
  const gmlo_live_range *live = &c->build.live_ranges[a->live];
  size_t first = c->graph->access_begin[live->id], access, from;
  unsigned seen = 0;
  for (access = gmlo_scheduler_access(c, live->id, a->last_use);; access--) {
    if (c->graph->accesses[access].position > a->last_use) break;
    if (c->graph->accesses[access].how & GMLO_WRITES) return c->graph->accesses[access].position;
    if (access == first) break;
    if (++seen == GMLO_READS_SEEN) return a->last_use;
  }
  from = gmlo_recording_way(l, l->cut, live->from);
  return gmlo_live_is_whole(l, live) || from > a->last_use ? a->last_use : from;
}

/* What leaves may be copied while it is still read: behind its last write, as soon as the copies of
   what leaves earlier have ended. Else what gets its memory waits for the copy. */
static void gmlo_scheduler_copy_early(gmlo_scheduler *c) {
  uint64_t end_ns = 0; /* of the copies so far */
  size_t i;
  gmlo_scheduler_sort(c, GMLO_BY_OUT);
  for (i = 0; i < c->absence_count; i++) {
    gmlo_absence *a = &c->absences[i];
    size_t from;
    a->copy = a->out;
    if (!a->is_copy) continue;
    from = gmlo_scheduler_last_write(c, a);
    a->copy =
        from + gmlo_count_below(c->time_ns + from + 1, a->out - from, sizeof *c->time_ns, end_ns);
    if (end_ns < c->time_ns[a->copy + 1]) end_ns = c->time_ns[a->copy + 1];
    end_ns += gmlo_scheduler_copy_ns(c, a->live, 0);
  }
  gmlo_scheduler_sort(c, GMLO_BY_USE);
}

/* The slot that stands for the live range when a step has ended. */
static uint32_t gmlo_live_slot(const gmlo_recording *l, const gmlo_live_range *live,
                               uint32_t step) {
  if (live->carried == GMLAKE_OFFLOAD_NONE || step < l->slots[live->carried].alloc)
    return live->slot;
  return live->carried;
}

static void gmlo_scheduler_move(const gmlo_scheduler *c, gmlo_move *move, const gmlo_absence *a,
                                int is_in, int stays) {
  const gmlo_recording *l = c->build.l;
  size_t n = l->step_count, out = stays ? a->copy : a->out;
  move->step = (uint32_t)((l->cut + (is_in ? a->in + n - 1 : out)) % n);
  move->slot = gmlo_live_slot(l, &c->build.live_ranges[a->live], move->step);
  move->use = (uint32_t)((l->cut + (is_in ? a->use : stays ? a->copy : a->last_use)) % n);
  move->is_in = is_in;
  move->is_copy = a->is_copy && (is_in || stays || a->copy == a->out);
  move->stays = stays;
}

/* Lists the moves by step, those that leave first. 0 if host memory is refused. */
static int gmlo_scheduler_list(gmlo_scheduler *c, gmlo_schedule *schedule) {
  const gmlo_recording *l = c->build.l;
  size_t i, count = 0, n = l->step_count;
  gmlo_move *unsorted;
  schedule->step_count = n;
  schedule->begin = (size_t *)gmlo_zeroed(&l->host, n + 1, sizeof *schedule->begin);
  schedule->moves = (gmlo_move *)gmlo_zeroed(&l->host, 6 * c->absence_count, sizeof(gmlo_move));
  schedule->is_asked = (unsigned char *)gmlo_zeroed(&l->host, n, 1);
  if (schedule->begin == NULL || schedule->moves == NULL || schedule->is_asked == NULL) {
    gmlo_schedule_free(&l->host, schedule);
    return 0;
  }
  unsorted = schedule->moves + 3 * c->absence_count;
  gmlo_scheduler_copy_early(c);
  for (i = 0; i < c->absence_count; i++) {
    const gmlo_absence *a = &c->absences[i];
    gmlo_scheduler_move(c, &unsorted[count++], a, 0, 0);
    if (a->copy != a->out) gmlo_scheduler_move(c, &unsorted[count++], a, 0, 1);
    if (a->returns) gmlo_scheduler_move(c, &unsorted[count++], a, 1, 0);
  }
  for (i = 0; i < count; i++) c->keys[i] = 2 * unsorted[i].step + (uint32_t)unsorted[i].is_in;
  gmlo_sort_keys(c->keys, count, c->begin, 2 * n, c->order);
  for (i = 0; i < count; i++) {
    schedule->moves[i] = unsorted[c->order[i]];
    schedule->begin[schedule->moves[i].step + 1]++;
    schedule->is_asked[schedule->moves[i].step] = 1;
    if (!schedule->moves[i].is_in) schedule->is_asked[schedule->moves[i].use] = 1;
  }
  for (i = 0; i < n; i++) schedule->begin[i + 1] += schedule->begin[i];
  return 1;
}

/* Notes what a step of the graph names. */
static void gmlo_scheduler_name(gmlo_scheduler *c, size_t step) {
  const gmlo_recording *l = c->build.l;
  const gmlo_recording_step *known = &l->steps[(l->cut + step) % l->step_count];
  size_t k;
  gmlo_scheduler_pass(c, step);
  for (k = known->named_begin; k < known->named_end; k++) {
    uint32_t live = c->build.of[l->named[k].slot];
    if (c->build.live_ranges[live].id != GMLAKE_OFFLOAD_NONE) c->is_named[c->rest[live]] = 1;
  }
}

/* Makes what all ways to plan share, but for arrays. */
static void gmlo_scheduler_prepare(gmlo_scheduler *c) {
  const gmlo_recording *l = c->build.l;
  int64_t *more = c->still.tree_max + c->still.leaf_count;
  size_t i, n = l->step_count, live_ranges = c->build.live_count;
  for (i = 0; i < 2 * n; i++)
    c->time_ns[i + 1] = c->time_ns[i] + l->steps[(l->cut + i) % n].time_ns;
  for (i = 0; i < l->named_count; i++)
    if (l->named[i].how & GMLO_WRITES) c->is_written[c->build.of[l->named[i].slot]] = 1;
  for (i = 0; i < live_ranges; i++) {
    const gmlo_live_range *live = &c->build.live_ranges[i];
    int64_t bytes = (int64_t)gmlo_scheduler_bytes(c, (uint32_t)i);
    size_t from = gmlo_recording_way(l, l->cut, live->from), to = from + live->length;
    int is_whole = gmlo_live_is_whole(l, live);
    c->is_written[i] |= !is_whole;
    if (live->id != GMLAKE_OFFLOAD_NONE)
      c->rest[i] = (uint32_t)c->graph->access_begin[live->id + 1] - 1;
    if (live->length == 0) continue;
    more[is_whole ? 0 : from] += bytes;
    if (is_whole || to == n) continue;
    more[to > n ? to - n : to] -= bytes; /* to is below 2 * n */
    if (to > n) more[0] += bytes;
  }
  gmlo_profile_close(&c->still);
  for (i = 0; i < n; i++) gmlo_scheduler_name(c, i);
}

/* Makes room for what all ways share; 0 if host memory is refused. */
static int gmlo_scheduler_take(gmlo_scheduler *c) {
  gmlo_scope *scope = &c->build.scope;
  size_t n = c->build.l->step_count, live_ranges = c->build.live_count;
  size_t accesses = c->graph->access_count, options = c->graph->ref_count + live_ranges;
  c->time_ns = (uint64_t *)gmlo_take(scope, 2 * n + 1, sizeof *c->time_ns);
  c->is_written = (unsigned char *)gmlo_take(scope, live_ranges, 1);
  c->is_named = (unsigned char *)gmlo_take(scope, accesses, 1);
  c->rest = (uint32_t *)gmlo_take(scope, live_ranges, sizeof *c->rest);
  c->absence_of = (uint32_t *)gmlo_take(scope, accesses, sizeof *c->absence_of);
  c->heaps[0] = (uint64_t *)gmlo_take_unset(scope, options, 2 * sizeof **c->heaps);
  if (!gmlo_profile_take(&c->still, scope, n) || !gmlo_profile_take(&c->level, scope, n) ||
      c->time_ns == NULL || c->is_written == NULL || c->is_named == NULL || c->rest == NULL ||
      c->absence_of == NULL || c->heaps[0] == NULL) {
    return 0;
  }
  c->heaps[1] = c->heaps[0] + options;
  return 1;
}

/* Makes room for a way, and for its simulation; 0 if host memory is refused. */
static int gmlo_scheduler_take_way(gmlo_scheduler *c) {
  gmlo_scope *scope = &c->build.scope;
  gmlo_schedule_sim *r = &c->sim;
  size_t n = c->build.l->step_count, live_ranges = c->build.live_count;
  size_t most = c->plan->event_count + 4 * c->build.l->slot_count;
  c->absence_capacity = most;
  c->absences = (gmlo_absence *)gmlo_take_unset(scope, most,
                                                2 * sizeof *c->absences); /* half of it to sort */
  c->keys = (uint32_t *)gmlo_take_unset(scope, most, 6 * sizeof *c->keys);
  c->begin = (uint32_t *)gmlo_take(scope, 2 * n + 2, sizeof *c->begin);
  r->ready_ns = (uint64_t *)gmlo_take(scope, live_ranges, 2 * sizeof *r->ready_ns);
  r->is_away = (unsigned char *)gmlo_take(scope, live_ranges, 1);
  r->range_of = (uint32_t *)gmlo_take(scope, live_ranges, sizeof *r->range_of);
  r->last_of = (uint32_t *)gmlo_take(scope, live_ranges, sizeof *r->range_of);
  r->released = (uint32_t *)gmlo_take_unset(scope, most, GMLO_ROUNDS * sizeof *r->released);
  if (c->absences == NULL || c->keys == NULL || c->begin == NULL || r->ready_ns == NULL ||
      r->is_away == NULL || r->range_of == NULL || r->last_of == NULL || r->released == NULL) {
    return 0;
  }
  c->order = c->keys + 3 * most;
  r->gone_ns = r->ready_ns + live_ranges;
  return 1;
}

/* ---- A simulation: GMLO_ROUNDS iterations of a schedule ---- */

/* A live range gets addresses. 0 if host memory is refused. */
static int gmlo_simulate_open(const gmlo_scheduler *c, gmlo_schedule_sim *r, uint32_t live) {
  size_t bytes = gmlo_scheduler_bytes(c, live);
  uint32_t id = gmlo_space_idle(&r->space, bytes, r->last_of[live], 1);
  if (id == GMLAKE_OFFLOAD_NONE) id = gmlo_space_add(&r->space, bytes);
  r->is_refused |= id == GMLAKE_OFFLOAD_NONE;
  if (r->is_refused) return 0;
  gmlo_space_lift(&r->space, id, live);
  r->space.ranges[id].used = bytes;
  r->range_of[live] = r->last_of[live] = id;
  return 1;
}

/* The memory of a range that was released is free. */
static void gmlo_simulate_clear(gmlo_space *t, uint32_t id) {
  if (id == GMLAKE_OFFLOAD_NONE || !t->ranges[id].is_released) return;
  t->ranges[id].is_released = 0;
  gmlo_space_hold(t, id, 0);
}

/* Those whose chunks the range had are cleared; and more, the first that left first, until there
   are enough. */
static void gmlo_simulate_need(gmlo_schedule_sim *r, const gmlo_range *range) {
  gmlo_space *t = &r->space;
  size_t i, count = range->used / t->chunk_bytes;
  for (i = 0; i < count && r->space.map_ns != 0; i++)
    if (range->chunks[i] < t->chunk_count)
      gmlo_simulate_clear(t, t->chunks[range->chunks[i]].holder);
  while (t->free_count < count && r->released_at < r->released_count)
    gmlo_simulate_clear(t, r->range_of[r->released[r->released_at++]]);
}

/* It gets memory at `now` or later: when its chunks are free. Chunks that its addresses do not have
   yet are mapped there by the host, when the last use there has ended. */
static uint64_t gmlo_simulate_take(gmlo_schedule_sim *r, uint32_t live, uint64_t now) {
  gmlo_space *t = &r->space;
  uint32_t id = r->range_of[live], *chunks;
  size_t i, count, moved;
  if (r->is_refused || id == GMLAKE_OFFLOAD_NONE) return now;
  chunks = t->ranges[id].chunks;
  count = t->ranges[id].used / t->chunk_bytes;
  gmlo_simulate_clear(t, id);
  gmlo_simulate_need(r, &t->ranges[id]);
  moved = gmlo_space_wish(t, id);
  for (i = 0; i < count; i++) {
    if (chunks[i] == GMLAKE_OFFLOAD_NONE) {
      chunks[i] = (uint32_t)t->chunk_count;
      r->is_refused |= !gmlo_space_see(t, chunks[i]);
      if (r->is_refused) return now;
      gmlo_space_take(t, chunks[i], id);
    }
    if (t->chunks[chunks[i]].free_ns > now) now = t->chunks[chunks[i]].free_ns;
  }
  if (moved == 0 || !r->is_last) return now;
  r->map_count += moved;
  if (r->host_ns < t->ranges[id].free_ns) r->host_ns = t->ranges[id].free_ns;
  r->host_ns += moved * r->space.map_ns;
  return now > r->host_ns ? now : r->host_ns;
}

/* A live range's memory is free from `when` on. */
static void gmlo_simulate_leave(gmlo_schedule_sim *r, uint32_t live, uint64_t when,
                                int is_released) {
  gmlo_space *t = &r->space;
  gmlo_range *range;
  size_t i;
  if (r->is_refused || r->range_of[live] == GMLAKE_OFFLOAD_NONE) return;
  range = &t->ranges[r->range_of[live]];
  range->free_ns = when;
  for (i = 0; i < range->used / t->chunk_bytes; i++) t->chunks[range->chunks[i]].free_ns = when;
  range->is_released = is_released;
  if (is_released) {
    r->released[r->released_count++] = live;
  } else {
    gmlo_space_hold(t, r->range_of[live], 0);
  }
}

static void gmlo_simulate_move(const gmlo_scheduler *c, gmlo_schedule_sim *r,
                               const gmlo_move *move) {
  uint32_t live = c->build.of[move->slot];
  r->host_ns += GMLO_HOST_NS;
  if (move->is_in) {
    uint64_t at = r->in_ns > r->now_ns ? r->in_ns : r->now_ns;
    if (r->is_away[live]) at = gmlo_simulate_take(r, live, at);
    if (at < r->gone_ns[live]) at = r->gone_ns[live];
    if (at < r->host_ns) at = r->host_ns;
    r->in_ns = r->ready_ns[live] = at + gmlo_scheduler_copy_ns(c, live, 1);
    r->is_away[live] = 0;
    return;
  }
  if (r->gone_ns[live] < r->now_ns) r->gone_ns[live] = r->now_ns;
  if (move->is_copy) {
    if (r->out_ns < r->now_ns) r->out_ns = r->now_ns;
    if (r->out_ns < r->host_ns) r->out_ns = r->host_ns;
    r->gone_ns[live] = r->out_ns += gmlo_scheduler_copy_ns(c, live, 0);
  }
  if (move->stays) return;
  if (!r->is_away[live]) gmlo_simulate_leave(r, live, r->gone_ns[live], 1);
  r->is_away[live] = 1;
}

/* A step: waits for the memory of what is allocated in it, and for what it names. */
static void gmlo_simulate_op(const gmlo_scheduler *c, gmlo_schedule_sim *r, size_t index) {
  const gmlo_recording_step *step = &c->build.l->steps[index];
  size_t i;
  uint32_t live;
  r->host_ns += step->time_ns < GMLO_HOST_NS ? step->time_ns : GMLO_HOST_NS;
  for (live = c->build.first[index]; live != GMLAKE_OFFLOAD_NONE;
       live = c->build.next_first[live]) {
    r->is_away[live] = 0;
    if (gmlo_simulate_open(c, r, live)) r->now_ns = gmlo_simulate_take(r, live, r->now_ns);
  }
  for (i = step->named_begin; i < step->named_end; i++) {
    uint64_t ready = r->ready_ns[c->build.of[c->build.l->named[i].slot]];
    if (ready > r->now_ns) r->now_ns = ready;
  }
  if (r->now_ns < r->host_ns) r->now_ns = r->host_ns;
  r->now_ns += step->time_ns;
  for (live = c->build.last[index]; live != GMLAKE_OFFLOAD_NONE; live = c->build.next_last[live]) {
    if (!r->is_away[live]) gmlo_simulate_leave(r, live, r->now_ns, 0);
    if (r->is_refused || r->range_of[live] == GMLAKE_OFFLOAD_NONE) continue;
    gmlo_simulate_clear(&r->space, r->range_of[live]);
    gmlo_space_lay(&r->space, r->range_of[live]);
    r->range_of[live] = GMLAKE_OFFLOAD_NONE;
  }
}

/* Gives all live ranges that are there at the cut addresses, and memory, if they are not away then.
   What neither moves nor comes nor goes needs none; the others share what it leaves. */
static void gmlo_simulate_cut(gmlo_scheduler *c, const gmlo_schedule *schedule) {
  const gmlo_recording *l = c->build.l;
  gmlo_schedule_sim *r = &c->sim;
  gmlo_space *t = &r->space;
  size_t i, k, n = l->step_count, fixed_bytes = 0, most_bytes = 0;
  uint32_t live;
  memset(r->is_away, 2, c->build.live_count);
  for (i = n; i-- != 0;) {
    size_t index = (l->cut + i) % n;
    for (k = schedule->begin[index + 1]; k-- != schedule->begin[index];)
      if (!schedule->moves[k].stays)
        r->is_away[c->build.of[schedule->moves[k].slot]] = (unsigned char)schedule->moves[k].is_in;
  }
  for (live = 0; live < c->build.live_count; live++) {
    int never = r->is_away[live] == 2, crosses = gmlo_live_crosses(l, &c->build.live_ranges[live]);
    if (never || !crosses) r->is_away[live] = 0;
    if (c->build.live_ranges[live].length != 0) most_bytes += gmlo_scheduler_bytes(c, live);
    if (c->build.live_ranges[live].length == 0 || !crosses) continue;
    if (never && gmlo_live_is_whole(l, &c->build.live_ranges[live])) {
      fixed_bytes += gmlo_scheduler_bytes(c, live);
      continue;
    }
    if (gmlo_simulate_open(c, r, live) && !r->is_away[live]) (void)gmlo_simulate_take(r, live, 0);
  }
  i = c->desc->target_bytes > fixed_bytes ? (c->desc->target_bytes - fixed_bytes) / t->chunk_bytes
                                          : 0;
  if (i > most_bytes / t->chunk_bytes) i = most_bytes / t->chunk_bytes;
  while (t->chunk_count < i && !r->is_refused)
    r->is_refused |= !gmlo_space_see(t, (uint32_t)t->chunk_count);
}

/* Begins to simulate a schedule. 0 if host memory is refused. */
static int gmlo_simulate_begin(gmlo_scheduler *c, const gmlo_schedule *schedule,
                               const gmlake_offload_memory *memory) {
  gmlo_schedule_sim *r = &c->sim;
  uint32_t live;
  gmlo_space_init(&r->space, &c->build.l->host, memory->chunk_bytes, memory->map_ns);
  memset(r->ready_ns, 0, 2 * c->build.live_count * sizeof *r->ready_ns);
  r->now_ns = r->out_ns = r->in_ns = r->tail_ns = r->host_ns = 0;
  r->map_count = r->released_at = r->released_count = 0;
  r->is_last = r->is_refused = 0;
  for (live = 0; live < c->build.live_count; live++)
    r->range_of[live] = r->last_of[live] = GMLAKE_OFFLOAD_NONE;
  r->space.most_bytes = GMLO_ADDRESSES * c->desc->target_bytes;
  gmlo_simulate_cut(c, schedule);
  return !r->is_refused;
}

/* The i-th step of these iterations, by the times of the steps, the link's speed and what the host
   has to do. In the end the last one took now_ns - first_ns. Returns the step's work. */
static size_t gmlo_simulate_step(gmlo_scheduler *c, const gmlo_schedule *schedule, size_t i) {
  const gmlo_recording *l = c->build.l;
  gmlo_schedule_sim *r = &c->sim;
  size_t k, n = l->step_count, index = (l->cut + i) % n;
  uint64_t work = r->space.work;
  if (i == (GMLO_ROUNDS - 1) * n) {
    r->is_last = 1;
    r->first_ns = r->now_ns;
  }
  if (index == 0 && r->host_ns < r->now_ns) r->host_ns = r->now_ns; /* it reads a result */
  if (index == 0) r->tail_ns = r->out_ns > r->now_ns ? r->out_ns - r->now_ns : 0;
  gmlo_simulate_op(c, r, index);
  for (k = schedule->begin[index]; k < schedule->begin[index + 1]; k++)
    gmlo_simulate_move(c, r, &schedule->moves[k]);
  k = schedule->begin[index + 1] - schedule->begin[index];
  k += (size_t)(r->space.work - work) / 8;
  return 8 + 2 * (l->steps[index].named_end - l->steps[index].named_begin) + 8 * k;
}

/* ---- The least time ---- */

/* In the step that needs the most memory, the top, so many bytes have to be away. What is away then
   has left behind its last write and comes back before its next use. So the link limits every
   schedule: what is written late before the top leaves late, what is used early behind it comes
   back early. */

typedef struct gmlo_transfer { /* a live range that may be away in the top */
  int64_t when;                /* the end of its last write, or the begin of its next use */
  size_t bytes;                /* that a copy moves */
} gmlo_transfer;

typedef struct gmlo_bound {
  gmlo_transfer *out,
      *in; /* each with room for as many again; out: without those that need no copy */
  size_t out_count, in_count;
  size_t free_bytes;  /* away without any copy */
  size_t clean_bytes; /* without one to the host */
  size_t top;         /* the step, and what it needs */
  int64_t most;
} gmlo_bound;

static int gmlo_transfer_before(const void *a, const void *b) {
  return ((const gmlo_transfer *)a)->when < ((const gmlo_transfer *)b)->when;
}

/* When the live range's last write up to the top has ended, from the cut on; maybe before it. */
static int64_t gmlo_scheduler_written(const gmlo_scheduler *c, uint32_t tensor, size_t top) {
  const gmlake_offload_graph *graph = c->graph;
  size_t i, first = graph->access_begin[tensor], end = graph->access_begin[tensor + 1];
  int64_t round = (int64_t)c->time_ns[c->build.l->step_count], before = -round;
  for (i = first; i < end; i++) {
    const gmlo_access *access = &graph->accesses[i];
    int64_t when = (int64_t)c->time_ns[access->position + 1];
    if (!(access->how & GMLO_WRITES)) continue;
    if (access->position > top) when -= round;
    if (when > before) before = when;
  }
  return before;
}

/* Adds a live range to what may be away in the top. */
static void gmlo_bound_add(const gmlo_scheduler *c, gmlo_bound *bound, uint32_t id, size_t top) {
  const gmlo_recording *l = c->build.l;
  const gmlo_live_range *live = &c->build.live_ranges[id];
  const gmlo_slot *slot = &l->slots[live->slot];
  size_t from = gmlo_recording_way(l, l->cut, live->from), end = from + live->length, use, access;
  int is_whole = gmlo_live_is_whole(l, live);
  gmlo_transfer *transfer;
  if (!gmlo_scheduler_may_leave(c, id, top)) return;
  access = gmlo_scheduler_access(c, live->id, top);
  if (c->graph->accesses[access].position == top) return;
  if (top < from) end -= l->step_count;
  access = gmlo_scheduler_next(c, live->id, access);
  use = gmlo_scheduler_from(c, access, top + 1);
  if ((!is_whole && use >= end) || !c->is_named[access]) {
    bound->free_bytes += slot->bytes;
    return;
  }
  bound->free_bytes += slot->bytes - slot->real_bytes;
  transfer = &bound->in[bound->in_count++];
  transfer->when = (int64_t)c->time_ns[use];
  transfer->bytes = slot->real_bytes;
  if (!c->is_written[id]) {
    bound->clean_bytes += slot->real_bytes;
    return;
  }
  transfer = &bound->out[bound->out_count++];
  transfer->when = gmlo_scheduler_written(c, live->id, top);
  transfer->bytes = slot->real_bytes;
}

/* How long the top waits for copies to the host, or what follows it for copies from the host, of so
   many bytes. *out_since: since when, or until when, they fill the link. */
static int64_t gmlo_bound_wait(const gmlo_transfer *transfers, size_t count, int is_in,
                               size_t bytes, int64_t top_ns, double speed, int64_t *out_since) {
  int64_t most = 0;
  size_t i, left = bytes;
  *out_since = top_ns;
  for (i = 0; i < count && left != 0; i++) {
    const gmlo_transfer *transfer = &transfers[is_in ? count - 1 - i : i];
    int64_t room = is_in ? transfer->when - top_ns : top_ns - transfer->when;
    int64_t wait = (int64_t)gmlo_copy_time(left, speed) - room;
    if (wait > most) {
      most = wait;
      *out_since = transfer->when;
    }
    left = left > transfer->bytes ? left - transfer->bytes : 0;
  }
  return most;
}

/* Looks for the top. 1: it fits; 0: it does not, and live ranges are to be added; -1: host memory
   is refused. */
static int gmlo_bound_begin(gmlo_scheduler *c, gmlo_bound *bound) {
  size_t live_ranges = c->build.live_count;
  memset(bound, 0, sizeof *bound);
  bound->top = gmlo_profile_peak(&c->still, &bound->most);
  if ((size_t)bound->most <= c->desc->target_bytes) return 1;
  bound->out = (gmlo_transfer *)gmlo_take(&c->build.scope, live_ranges + 1, 4 * sizeof *bound->out);
  if (bound->out == NULL) return -1;
  bound->in = bound->out + 2 * (live_ranges + 1);
  return 0;
}

/* All live ranges were added, and are sorted: no schedule is faster than that. */
static uint64_t gmlo_bound_close(const gmlo_scheduler *c, const gmlo_bound *bound) {
  size_t n = c->build.l->step_count, top = bound->top;
  size_t bytes = (size_t)bound->most - c->desc->target_bytes, dirty;
  int64_t out_ns, in_ns, from, until;
  bytes = bytes > bound->free_bytes ? bytes - bound->free_bytes : 0;
  dirty = bytes > bound->clean_bytes ? bytes - bound->clean_bytes : 0;
  out_ns = gmlo_bound_wait(bound->out, bound->out_count, 0, dirty, (int64_t)c->time_ns[top],
                           c->desc->out_bytes_per_s, &from);
  in_ns = gmlo_bound_wait(bound->in, bound->in_count, 1, bytes, (int64_t)c->time_ns[top + 1],
                          c->desc->in_bytes_per_s, &until);
  if (until - from > (int64_t)c->time_ns[n]) /* both waits may be the same */
    return c->time_ns[n] + (uint64_t)(out_ns > in_ns ? out_ns : in_ns);
  return c->time_ns[n] + (uint64_t)(out_ns + in_ns);
}

/* ---- The choice ---- */

#define GMLO_WAY_GAIN 33u

typedef struct gmlo_way { /* to make a schedule */
  int by_plan;            /* what the plan moves leaves first, and others only where more has to */
  int is_pruned;          /* nothing leaves in vain */
  int is_early;           /* tensors come back as early as there is room */
  int spares_out;         /* what needs no copy out leaves first */
  size_t spare;           /* so much more leaves than has to: room for what comes back */
} gmlo_way;

#define GMLO_WAYS 16u

/* Four with the plan and four without it; then some of those in which more leaves than has to, and
   in which copies out are spared: of all 32 no other one was the best of any recorded graph. */
static gmlo_way gmlo_way_of(unsigned number, size_t target) {
  static const unsigned char ways[GMLO_WAYS] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                8, 9, 10, 14, 16, 17, 20, 21};
  unsigned i = ways[number];
  gmlo_way way;
  way.by_plan = (i & 1) == 0;
  way.is_early = (i & 2) != 0;
  way.is_pruned = (i & 12) == 4;
  way.spare = (i & 8) != 0 ? target / ((i & 4) == 0 ? 32 : 16) : 0;
  way.spares_out = (i & 16) != 0;
  return way;
}

/* A schedule in the making. */
typedef struct gmlo_making {
  gmlo_recording *l; /* NULL: there is none */
  gmlake_offload_planner_desc desc;
  const gmlake_offload_memory *memory;
  const int *stops;             /* see gmlake_offload_planner */
  unsigned way_count;           /* how many ways are tried */
  const gmlo_schedule *present; /* of the session; NULL: it does not compete */
  gmlo_scheduler c;
  uint64_t work;              /* steps so far, about 10 ns each */
  gmlo_schedule schedule;     /* the best one so far */
  int is_present, has_best;   /* the best one is `present`; there is one */
  uint64_t best_ns, least_ns; /* of the best one, of the fastest: gmlo_making_ns */
  uint64_t added_ns;          /* by the best one */
  uint64_t step_ns, bound_ns; /* if nothing moves; none is faster */
} gmlo_making;

/* TENSILE's plan. 0 if host memory is refused, or if it is given up. */
static int gmlo_making_plan(gmlo_making *m, gmlake_offload_planner **out_planner) {
  gmlake_offload_job_desc job;
  uint32_t id;
  memset(&job, 0, sizeof job);
  job.graph = m->c.graph;
  if (gmlake_offload_planner_create(&m->desc, out_planner) != GMLAKE_OFFLOAD_OK) return 0;
  (*out_planner)->stops = m->stops;
  if (gmlake_offload_add_job(*out_planner, &job, &id) != GMLAKE_OFFLOAD_OK ||
      gmlake_offload_replan(*out_planner) != GMLAKE_OFFLOAD_OK) {
    return 0;
  }
  m->work += (*out_planner)->work;
  m->c.plan = &(*out_planner)->jobs[id].plan->info;
  return 1;
}

/* How fast a schedule can be. 0 if host memory is refused. */
static int gmlo_making_bound(gmlo_making *m) {
  gmlo_scheduler *c = &m->c;
  gmlo_bound bound;
  uint32_t live;
  int fits = gmlo_bound_begin(c, &bound);
  m->step_ns = m->bound_ns = c->time_ns[m->l->step_count];
  if (fits != 0) return fits > 0;
  for (live = 0; live < c->build.live_count; live++) gmlo_bound_add(c, &bound, live, bound.top);
  gmlo_sort(bound.out, bound.out + c->build.live_count + 1, bound.out_count, sizeof *bound.out,
            gmlo_transfer_before);
  gmlo_sort(bound.in, bound.in + c->build.live_count + 1, bound.in_count, sizeof *bound.in,
            gmlo_transfer_before);
  m->bound_ns = gmlo_bound_close(c, &bound);
  m->work += 16 * c->build.live_count;
  return 1;
}

/* Simulates a schedule. 0 if host memory is refused, or if it is given up. */
static int gmlo_making_simulate(gmlo_making *m, const gmlo_schedule *schedule) {
  gmlo_schedule_sim *r = &m->c.sim;
  size_t i, count = GMLO_ROUNDS * m->l->step_count;
  int done = gmlo_simulate_begin(&m->c, schedule, m->memory);
  for (i = 0; i < count && done; i++) {
    m->work += gmlo_simulate_step(&m->c, schedule, i);
    done = !r->is_refused && !gmlo_stops(m->stops);
  }
  gmlo_space_leave(&r->space);
  return done;
}

/* What the simulated iteration takes, to compare it. A program that waits for the device behind
   each iteration waits for copies out, too; others do not: so these count half. */
static uint64_t gmlo_making_ns(const gmlo_making *m, uint64_t *out_added_ns) {
  uint64_t ns = m->c.sim.now_ns - m->c.sim.first_ns;
  *out_added_ns = ns > m->step_ns ? ns - m->step_ns : 0;
  return ns + m->c.sim.tail_ns / 2;
}

/* The schedule that the session has is simulated with the new times, if it is for this recording
   and limit: another one has to be better, as one of two ways. Else times that differ by little
   would change what moves, and sometimes for the worse. */
static int gmlo_making_present(gmlo_making *m) {
  const gmlo_schedule *present = m->present;
  m->best_ns = m->least_ns = UINT64_MAX;
  if (present == NULL || present->print != gmlo_recording_print(m->l) ||
      present->cut != m->l->cut || present->target_bytes != m->desc.target_bytes ||
      present->begin[present->step_count] > m->c.absence_capacity) {
    return 1;
  }
  if (!gmlo_making_simulate(m, present)) return 0;
  m->best_ns = m->least_ns = gmlo_making_ns(m, &m->added_ns);
  m->has_best = m->is_present = 1;
  return 1;
}

/* What the plan moves leaves. */
static void gmlo_making_leave_by_plan(gmlo_making *m) {
  gmlo_scheduler *c = &m->c;
  size_t i;
  for (i = 0; i < c->plan->event_count; i++) {
    const gmlake_offload_event *event = &c->plan->events[i];
    if (event->action == GMLAKE_OFFLOAD_SWAP_IN) continue;
    (void)gmlo_scheduler_leave(c, event->tensor, gmlo_scheduler_access(c, event->tensor, event->op),
                               gmlo_scheduler_step(c, event->trigger, event->delay_ns),
                               event->action == GMLAKE_OFFLOAD_SWAP_OUT);
  }
}

/* Takes back what is in vain, the shortest absences first. */
static void gmlo_making_prune(gmlo_making *m) {
  gmlo_scheduler *c = &m->c;
  size_t i, kept = 0;
  gmlo_scheduler_sort(c, GMLO_BY_LENGTH);
  for (i = 0; i < c->absence_count; i++)
    if (!gmlo_scheduler_take_back(c, &c->absences[i], m->desc.target_bytes))
      c->absences[kept++] = c->absences[i];
  c->absence_count = kept;
}

/* Lets tensors come back. Early: in the order of their uses; else the last one first. */
static void gmlo_making_return(gmlo_making *m, int is_early) {
  gmlo_scheduler *c = &m->c;
  uint64_t end_ns = UINT64_MAX; /* the begin of the first copy back, from behind */
  size_t i, count = c->absence_count;
  gmlo_scheduler_sort(c, GMLO_BY_USE);
  for (i = 0; i < count; i++)
    gmlo_scheduler_return(c, &c->absences[is_early ? i : count - 1 - i], is_early, &end_ns);
}

/* Makes the schedule of the absences. 0 if host memory is refused. */
static int gmlo_making_list(gmlo_making *m, gmlo_schedule *schedule) {
  gmlo_scheduler *c = &m->c;
  int64_t most;
  size_t i;
  memset(schedule, 0, sizeof *schedule);
  for (i = 0; i < c->absence_count; i++) {
    const gmlo_absence *a = &c->absences[i];
    size_t bytes = m->l->slots[c->build.live_ranges[a->live].slot].real_bytes;
    if (a->is_copy) schedule->out_bytes += bytes;
    if (a->returns) schedule->in_bytes += bytes;
  }
  (void)gmlo_profile_peak(&c->still, &most);
  schedule->unplanned_bytes = (size_t)most;
  (void)gmlo_profile_peak(&c->level, &most);
  schedule->planned_bytes = (size_t)most;
  schedule->step_ns = m->step_ns;
  schedule->least_ns = m->bound_ns;
  schedule->target_bytes = m->desc.target_bytes;
  schedule->print = gmlo_recording_print(m->l);
  schedule->cut = m->l->cut;
  m->work += m->l->slot_count;
  return gmlo_scheduler_list(c, schedule);
}

/* Whether a schedule needs less memory than another one; or as much, and copies less to the host;
   or as much, and maps fewer chunks. */
static int gmlo_schedule_is_lighter(const gmlo_schedule *a, const gmlo_schedule *b) {
  if (a->planned_bytes != b->planned_bytes) return a->planned_bytes < b->planned_bytes;
  if (a->out_bytes != b->out_bytes) return a->out_bytes < b->out_bytes;
  return a->map_count < b->map_count;
}

/* A schedule is taken if it is faster than the best one by one part in GMLO_WAY_GAIN; or if it is
   lighter, and none is faster by that. Else it is freed. */
static void gmlo_making_judge(gmlo_making *m, gmlo_schedule *other) {
  const gmlo_schedule *best = m->is_present ? m->present : &m->schedule;
  uint64_t added_ns, ns = gmlo_making_ns(m, &added_ns);
  if (m->has_best && ((other->planned_bytes > m->desc.target_bytes &&
                       other->planned_bytes > best->planned_bytes) ||
                      (ns + ns / GMLO_WAY_GAIN >= m->best_ns &&
                       (m->memory->map_ns == 0 || !gmlo_schedule_is_lighter(other, best) ||
                        ns > m->least_ns + m->least_ns / GMLO_WAY_GAIN)))) {
    gmlo_schedule_free(&m->l->host, other);
    return;
  }
  gmlo_schedule_free(&m->l->host, &m->schedule);
  m->schedule = *other;
  m->has_best = 1;
  m->is_present = 0;
  m->best_ns = ns;
  if (ns < m->least_ns) m->least_ns = ns;
  m->schedule.added_ns = added_ns;
}

/* Makes a schedule in one way: what the plan moves leaves, and more, where more has to; what is in
   vain is taken back; and the rest comes back. 0 if host memory is refused, or if it is given
   up. */
static int gmlo_making_try(gmlo_making *m, unsigned number) {
  gmlo_scheduler *c = &m->c;
  gmlo_way way = gmlo_way_of(number, m->desc.target_bytes);
  size_t step, leaves = 2 * c->still.leaf_count;
  gmlo_schedule schedule;
  c->spares_out = way.spares_out;
  c->absence_count = c->heap_counts[0] = c->heap_counts[1] = 0;
  memset(c->absence_of, 0, c->graph->access_count * sizeof *c->absence_of);
  memcpy(c->level.tree_max, c->still.tree_max, leaves * sizeof *c->level.tree_max);
  memset(c->level.tree_add, 0, leaves * sizeof *c->level.tree_add);
  if (way.by_plan) gmlo_making_leave_by_plan(m);
  for (step = 0; step < m->l->step_count && !gmlo_stops(m->stops); step++)
    m->work += gmlo_scheduler_sweep(c, step, m->desc.target_bytes - way.spare);
  m->work += 4 * GMLO_LEVEL_WORK * c->absence_count;
  if (way.is_pruned) gmlo_making_prune(m);
  gmlo_making_return(m, way.is_early);
  if (!gmlo_making_list(m, &schedule)) return 0;
  if (!gmlo_making_simulate(m, &schedule)) {
    gmlo_schedule_free(&m->l->host, &schedule);
    return 0;
  }
  schedule.map_count = c->sim.map_count;
  gmlo_making_judge(m, &schedule);
  return 1;
}

/* A schedule is to be made. The recording, and the present schedule if there is one, stay as they
   are until that is left. */
static void gmlo_making_begin(gmlo_making *m, gmlo_recording *l,
                              const gmlake_offload_planner_desc *desc,
                              const gmlake_offload_memory *memory, const gmlo_schedule *present,
                              const int *stops) {
  memset(m, 0, sizeof *m);
  m->l = l;
  m->present = present;
  m->desc = *desc;
  m->memory = memory;
  m->stops = stops;
  m->way_count = GMLO_WAYS;
}

/* Makes it. 0 if host memory is refused, or if it is given up. What was made before that is a
   schedule, too. */
static int gmlo_making_run(gmlo_making *m) {
  gmlo_scheduler *c = &m->c;
  gmlake_offload_planner *planner = NULL;
  gmlake_offload_graph *graph = NULL;
  unsigned number;
  int done = gmlo_build_graph(&c->build, m->l, &graph) == GMLAKE_OFFLOAD_OK;
  c->graph = graph;
  c->desc = &m->desc;
  done =
      done && gmlo_making_plan(m, &planner) && gmlo_scheduler_take(c) && gmlo_scheduler_take_way(c);
  if (done) gmlo_scheduler_prepare(c);
  done = done && gmlo_making_bound(m) && gmlo_making_present(m);
  for (number = 0; number < m->way_count && done; number++) done = gmlo_making_try(m, number);
  m->work += 16 * m->l->named_count;
  gmlo_build_leave(&c->build);
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(graph);
  return done || m->has_best;
}

static void gmlo_making_leave(gmlo_making *m) {
  if (m->l == NULL) return;
  gmlo_schedule_free(&m->l->host, &m->schedule);
  memset(m, 0, sizeof *m);
}

/* ---- >>regions: what a program need not execute twice -------------------------------------------
   Owns nothing of a recording. Says what an iteration would be if some of its regions were kept:
   their second steps are gone, and what these make was made by the first steps already. Invariants:
   [K1] A region can be kept if its second steps are first ones, in their order, by key, by what
        they name and by what they make; if they write only that, and nothing of it outlives the
        iteration. A tensor that is made again and the one that was made first are duplicates.
        Steps may be added that make what the first ones found ready: weights in another data type.
   [K2] No step is in two regions.
   Cost: linear in the recording, but for sorting regions: a second step is compared with at most
   GMLO_LEFT_OUT first ones. Fails: where host memory is refused. */

#define GMLO_LEFT_OUT 64u /* first steps in a row that are no second ones, + 1 */

typedef struct gmlo_keep { /* a region that can be kept */
  uint32_t region;
  unsigned msps; /* bytes that are there for longer, by the time saved: equal within an eighth */
  size_t bytes, unseen_bytes; /* that are there for longer; more than that, of what is not seen */
} gmlo_keep;

typedef struct gmlo_keeping {
  gmlo_scope scope;
  const gmlo_recording *l;
  uint32_t *dup;           /* by slot that is made again; else NONE */
  unsigned char *is_added; /* by slot: a second step makes it that is no first one */
  unsigned char *is_dup;   /* by slot: it is the duplicate of one that is made again */
  gmlo_keep *keeps;
  size_t count;
} gmlo_keeping;

/* The first allocation in the step, or behind it. */
static size_t gmlo_recording_first_alloc(const gmlo_recording *l, uint32_t step) {
  size_t low = 0, high = l->alloc_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (l->slots[l->allocs[middle]].alloc < step) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static int gmlo_keeping_are_alike(const gmlo_keeping *k, uint32_t slot, uint32_t dup) {
  const gmlo_slot *a = &k->l->slots[slot], *b = &k->l->slots[dup];
  return a->bytes == b->bytes && a->real_bytes == b->real_bytes;
}

/* Whether a second step is the first one `dup`: names what that does, or duplicates of it. With
   `binds` it is, and what it is the first to name becomes a duplicate. */
static int gmlo_keeping_match_step(gmlo_keeping *k, const gmlo_region *region, uint32_t step,
                                   uint32_t dup, int binds) {
  const gmlo_recording_step *a = &k->l->steps[step], *b = &k->l->steps[dup];
  size_t n, count = a->named_end - a->named_begin;
  if (a->key != b->key || count != b->named_end - b->named_begin) return 0;
  for (n = 0; n < count; n++) {
    const gmlo_named *named = &k->l->named[a->named_begin + n];
    const gmlo_named *other = &k->l->named[b->named_begin + n];
    uint32_t found = k->dup[named->slot];
    uint32_t alloc = k->l->slots[named->slot].alloc;
    int is_made = alloc >= region->again && alloc < region->again_end;
    if (named->how != other->how || (named->how == GMLO_WRITES && !is_made)) return 0;
    if (found == GMLAKE_OFFLOAD_NONE && is_made) {
      uint32_t first = k->l->slots[other->slot].alloc;
      int was_made = first >= region->begin && first < region->end;
      if (!gmlo_keeping_are_alike(k, named->slot, other->slot)) return 0;
      if (k->is_added[named->slot] && was_made) return 0;
      if (binds) k->dup[named->slot] = other->slot;
      continue;
    }
    if (other->slot != (found != GMLAKE_OFFLOAD_NONE ? found : named->slot)) return 0;
  }
  return 1;
}

/* Finds the duplicates of what no second step names: in the order of their allocation. `first`,
   `again`: from these allocations on. 0 if one has none. */
static int gmlo_keeping_match_rest(gmlo_keeping *k, const gmlo_region *region, size_t first,
                                   size_t again) {
  const gmlo_recording *l = k->l;
  size_t end = gmlo_recording_first_alloc(l, region->again_end), i;
  for (i = again; i < end; i++) {
    uint32_t slot = l->allocs[i];
    if (l->slots[slot].freed == GMLAKE_OFFLOAD_NONE) return 0;
    if (k->dup[slot] != GMLAKE_OFFLOAD_NONE) k->is_dup[k->dup[slot]] = 1;
    if (k->dup[slot] == GMLAKE_OFFLOAD_NONE && k->is_added[slot]) return 0;
  }
  for (i = again; i < end; i++) {
    uint32_t slot = l->allocs[i];
    if (k->dup[slot] != GMLAKE_OFFLOAD_NONE) continue;
    while (first < again &&
           (k->is_dup[l->allocs[first]] || !gmlo_keeping_are_alike(k, slot, l->allocs[first]))) {
      first++;
    }
    if (first == again || l->slots[l->allocs[first]].alloc >= region->end) return 0;
    k->dup[slot] = l->allocs[first++];
  }
  return 1;
}

/* A second step that is no first one: it may write only what such steps make. */
static int gmlo_keeping_add_step(gmlo_keeping *k, uint32_t step) {
  const gmlo_recording *l = k->l;
  size_t n = gmlo_recording_first_alloc(l, step);
  for (; n < l->alloc_count && l->slots[l->allocs[n]].alloc == step; n++)
    k->is_added[l->allocs[n]] = 1;
  for (n = l->steps[step].named_begin; n < l->steps[step].named_end; n++)
    if (l->named[n].how == GMLO_WRITES && !k->is_added[l->named[n].slot]) return 0;
  return 1;
}

/* Whether the second steps are first ones, in their order, and added ones; and what these make is
   named by the others. [K1] */
static int gmlo_keeping_match(gmlo_keeping *k, const gmlo_region *region) {
  uint32_t i, at, end, dup = region->begin;
  for (i = region->again; i < region->again_end; i++) {
    end = region->end - dup < GMLO_LEFT_OUT ? region->end : dup + GMLO_LEFT_OUT;
    for (at = dup; at < end && !gmlo_keeping_match_step(k, region, i, at, 0);) at++;
    if (at < end) {
      if (!gmlo_keeping_match_step(k, region, i, at, 1)) return 0;
      dup = at + 1;
    } else if (!gmlo_keeping_add_step(k, i)) {
      return 0;
    }
  }
  return dup != region->begin &&
         gmlo_keeping_match_rest(k, region, gmlo_recording_first_alloc(k->l, region->begin),
                                 gmlo_recording_first_alloc(k->l, region->again));
}

/* What keeping the region costs: bytes, and its MSPS, as a power of 9/8. */
static void gmlo_keeping_cost(const gmlo_keeping *k, const gmlo_region *region, gmlo_keep *keep) {
  const gmlo_recording *l = k->l;
  double ns = 1, power = 1e-6;
  size_t i = gmlo_recording_first_alloc(l, region->again),
         end = gmlo_recording_first_alloc(l, region->again_end);
  keep->unseen_bytes = region->unseen_bytes;
  keep->bytes = 0;
  keep->msps = 0;
  for (; i < end; i++) {
    const gmlo_slot *slot = &l->slots[l->allocs[i]], *dup = &l->slots[k->dup[l->allocs[i]]];
    if (slot->freed > region->again_end && slot->freed > dup->freed) keep->bytes += slot->bytes;
  }
  for (i = region->again; i < region->again_end; i++) ns += (double)l->steps[i].time_ns;
  while (power < (double)(keep->bytes + keep->unseen_bytes) / ns && keep->msps < 1000) {
    power *= 1.125;
    keep->msps++;
  }
}

static void gmlo_keeping_add(gmlo_keeping *k, uint32_t number) {
  const gmlo_recording *l = k->l;
  gmlo_region region = l->regions[number];
  gmlo_keep *keep = &k->keeps[k->count];
  size_t i, end;
  if (region.end == GMLAKE_OFFLOAD_NONE || region.again == GMLAKE_OFFLOAD_NONE ||
      region.again_end == GMLAKE_OFFLOAD_NONE || region.is_odd) {
    return;
  }
  if (region.again == region.again_end) return; /* nothing is executed again */
  if (gmlo_keeping_match(k, &region)) {
    keep->region = number;
    gmlo_keeping_cost(k, &region, keep);
    k->count++;
    return;
  }
  end = gmlo_recording_first_alloc(l, region.again_end);
  for (i = gmlo_recording_first_alloc(l, region.again); i < end; i++) {
    uint32_t slot = l->allocs[i];
    if (k->dup[slot] != GMLAKE_OFFLOAD_NONE) k->is_dup[k->dup[slot]] = 0;
    k->dup[slot] = GMLAKE_OFFLOAD_NONE;
    k->is_added[slot] = 0;
  }
}

static int gmlo_keep_before(const void *a, const void *b) {
  const gmlo_keep *first = (const gmlo_keep *)a, *second = (const gmlo_keep *)b;
  if (first->msps != second->msps) return first->msps < second->msps;
  return first->region > second->region;
}

/* Lists the regions that can be kept: the smallest MSPS first, of equal ones the last. 0 if host
   memory is refused. It is to be left in any case. */
static int gmlo_keeping_begin(gmlo_keeping *k, const gmlo_recording *l) {
  uint32_t i;
  size_t n;
  memset(k, 0, sizeof *k);
  k->scope = gmlo_scope_of(&l->host);
  k->l = l;
  k->dup = (uint32_t *)gmlo_take(&k->scope, l->slot_count, sizeof *k->dup);
  k->keeps = (gmlo_keep *)gmlo_take(&k->scope, l->region_count, 2 * sizeof *k->keeps);
  k->is_dup = (unsigned char *)gmlo_take(&k->scope, l->slot_count, 2);
  if (k->dup == NULL || k->keeps == NULL || k->is_dup == NULL) return 0;
  k->is_added = k->is_dup + l->slot_count;
  for (n = 0; n < l->slot_count; n++) k->dup[n] = GMLAKE_OFFLOAD_NONE;
  for (i = 0; i < l->region_count; i++) gmlo_keeping_add(k, i);
  gmlo_sort(k->keeps, k->keeps + k->count, k->count, sizeof *k->keeps, gmlo_keep_before);
  return 1;
}

/* Fills in how many steps are left before each step if the first `count` regions are kept: a step
   is gone if there are as many before the next one. */
static void gmlo_keeping_left(const gmlo_keeping *k, size_t count, uint32_t *left) {
  uint32_t now = 0, is_gone;
  size_t i, n;
  for (i = 0; i < count; i++) {
    const gmlo_region *region = &k->l->regions[k->keeps[i].region];
    for (n = region->again; n < region->again_end; n++) left[n] = 1;
  }
  for (i = 0; i < k->l->step_count; i++) {
    is_gone = left[i];
    left[i] = now;
    now += !is_gone;
  }
  left[i] = now;
  left[i + 1] = now + 1; /* of what was allocated behind the last step */
}

/* Adds the slots that are left, and writes down which one each slot is then. */
static void gmlo_keeping_slots(const gmlo_keeping *k, const uint32_t *left, gmlo_recording *out,
                               uint32_t *slot_of) {
  const gmlo_recording *l = k->l;
  size_t i;
  for (i = 0; i < l->slot_count && !out->is_broken; i++) {
    const gmlo_slot *slot = &l->slots[i];
    uint32_t alloc = slot->alloc, freed = slot->freed, at;
    if (alloc != GMLAKE_OFFLOAD_NONE) alloc = left[alloc];
    if (freed != GMLAKE_OFFLOAD_NONE) freed = left[freed];
    if (alloc == GMLAKE_OFFLOAD_NONE || left[slot->alloc + 1] != alloc) {
      slot_of[i] = gmlo_recording_add_slot(out, slot->bytes, slot->real_bytes, alloc);
      if (!out->is_broken) out->slots[slot_of[i]].freed = freed;
      continue;
    }
    at = slot_of[i] = slot_of[k->dup[i]];
    GMLAKE_OFFLOAD_ASSERT(at < out->slot_count); /* it was made before */
    if (freed != alloc && freed > out->slots[at].freed) out->slots[at].freed = freed;
  }
  for (i = 0; i < l->slot_count && !out->is_broken; i++)
    if (l->slots[i].peer != GMLAKE_OFFLOAD_NONE)
      out->slots[slot_of[i]].peer = slot_of[l->slots[i].peer];
}

/* The iteration if the first `count` regions are kept; slot_of: by slot, with room for all. 0 if
   host memory is refused. *out is to be freed in any case. */
static int gmlo_keeping_recording(const gmlo_keeping *k, size_t count, gmlo_recording *out,
                                  uint32_t *slot_of) {
  const gmlo_recording *l = k->l;
  gmlo_scope scope = gmlo_scope_of(&l->host);
  uint32_t *left = (uint32_t *)gmlo_take(&scope, l->step_count + 2, sizeof *left);
  size_t i, n, known;
  memset(out, 0, sizeof *out);
  out->host = l->host;
  out->is_broken = left == NULL;
  if (left != NULL) gmlo_keeping_left(k, count, left);
  if (left != NULL) gmlo_keeping_slots(k, left, out, slot_of);
  for (i = 0; i < l->step_count && !out->is_broken; i++) {
    const gmlo_recording_step *step = &l->steps[i];
    if (left[i + 1] == left[i]) continue;
    gmlo_recording_add_step(out, step->key);
    for (n = step->named_begin; n < step->named_end && !out->is_broken; n++) {
      const gmlo_named *named = &l->named[n];
      for (known = out->steps[left[i]].named_begin; known < out->named_count; known++)
        if (out->named[known].slot == slot_of[named->slot] && out->named[known].how == named->how)
          break; /* it names a dup, too */
      if (known == out->named_count) gmlo_recording_name(out, slot_of[named->slot], named->how);
    }
    if (!out->is_broken) out->steps[left[i]].time_ns = step->time_ns;
  }
  gmlo_leave(&scope);
  return gmlo_recording_close(out);
}

static void gmlo_keeping_leave(gmlo_keeping *k) { gmlo_leave(&k->scope); }

/* ---- >>period: after how many steps a program repeats itself ------------------------------------
   Owns the prints of a program's last steps: numbers that are the same for like steps. Invariants:
   [Y1] The print of step n is that of past[n % capacity], for each of the last `capacity` steps.
        Those of a place (print % capacity) are listed, the last one first, by their number + 1.
   [Y2] The last `run` steps have the prints of those `period` steps before them, and name `named`
        tensors together. A step that breaks that asks for the period since the last one like it.
        A step that an iteration has once is never like one that is less than an iteration before
        it. So the period is right from that step on, whatever is repeated within an iteration.
   Cost: constant for a step; 24 bytes for each step, up to GMLO_PAST_MAX. Fails: where host memory
   is refused; then the step is not noted. */

#define GMLO_PAST_MAX ((uint64_t)1 << 20)
#define GMLO_PAST_SEEN 64u /* of a place */
#define GMLO_RUN_MIN 32u   /* steps: less may be a short loop within an iteration */

typedef struct gmlo_past_step {
  uint64_t print;        /* [Y1] of step n; */
  uint64_t before, last; /* the one before it of its place; the last one of place n. 0: none */
} gmlo_past_step;

typedef struct gmlo_detector {
  gmlo_past_step *past;
  uint64_t capacity, count; /* count: steps noted so far */
  uint64_t period, run;     /* [Y2] period 0: none */
  size_t named;
} gmlo_detector;

static gmlo_past_step *gmlo_detector_at(const gmlo_detector *r, uint64_t n) {
  return &r->past[n & (r->capacity - 1)];
}

static void gmlo_detector_put(const gmlo_detector *r, uint64_t n, uint64_t print) {
  gmlo_past_step *past = gmlo_detector_at(r, n), *place = gmlo_detector_at(r, print);
  past->print = print;
  past->before = place->last;
  place->last = n + 1;
}

/* Makes room for one more step: the oldest one goes only at GMLO_PAST_MAX. 0 if host memory is
   refused. */
static int gmlo_detector_room(gmlo_detector *r, const gmlake_offload_host *host) {
  gmlo_detector grown = *r;
  uint64_t n;
  if (r->count < r->capacity || r->capacity == GMLO_PAST_MAX) return 1;
  grown.capacity = r->capacity != 0 ? 2 * r->capacity : 256;
  grown.past = (gmlo_past_step *)gmlo_zeroed(host, (size_t)grown.capacity, sizeof *grown.past);
  if (grown.past == NULL) return 0;
  for (n = 0; n < r->count; n++) gmlo_detector_put(&grown, n, r->past[n].print);
  gmlo_free(host, r->past);
  *r = grown;
  return 1;
}

/* How far back the last step with that print is; 0: there is none. */
static uint64_t gmlo_detector_back(const gmlo_detector *r, uint64_t print) {
  uint64_t last = gmlo_detector_at(r, print)->last;
  unsigned i;
  for (i = 0; i < GMLO_PAST_SEEN && last != 0 && r->count - last < r->capacity - 1; i++) {
    const gmlo_past_step *past = gmlo_detector_at(r, last - 1);
    if (past->print == print) return r->count + 1 - last;
    last = past->before;
  }
  return 0;
}

/* Notes a step that names so many tensors. The period, if a whole one was repeated; else 0. */
static uint64_t gmlo_detector_note(gmlo_detector *r, const gmlake_offload_host *host,
                                   uint64_t print, size_t named) {
  if (!gmlo_detector_room(r, host)) return 0;
  if (r->period == 0 || gmlo_detector_at(r, r->count - r->period)->print != print) {
    r->period = gmlo_detector_back(r, print);
    r->run = r->named = 0;
  }
  r->run += r->period != 0;
  r->named += named;
  gmlo_detector_put(r, r->count++, print);
  return r->run >= r->period && r->run >= GMLO_RUN_MIN && r->named != 0 ? r->period : 0;
}

/* ---- >>session: tensors of a program that runs itself -------------------------------------------
   Owns the tensors, the ranges of addresses that they have, pinned memory, and for each stream the
   events behind its steps. Everything is queued in the order of the calls: who may use what is
   known when a call returns, though nothing has happened yet. Invariants:
   [S1] device_bytes is the sum over tensors with memory of their bytes, in whole chunks, and at
        most limit_bytes.
   [S2] A tensor with memory lists the uses that no other listed use is behind: a stream and the
        number of a fence on it. Memory is discarded on a stream behind all of them.
   [S3] A fence is an event on a stream. Fence n is recorded in event n % GMLO_FENCES, so a wait for
        a fence that was replaced waits for the oldest one that was not.
   [S4] A tensor's bytes are on the device (has_bytes), or in its pinned memory, or in both
        (is_clean). Neither is given up before the copy to the other one is queued.
   [S5] `at` steps of the known recording have begun. A tensor whose slot is s is `tensor` of slot
        s.
   [S6] In a program that marks no iteration one begins when `period` steps have been repeated, and
        `period` steps later the next one. After a drift it begins later than that, when the first
        step of the last one comes again, or when another `period` steps have been repeated.
   [S7] While is_ranked, each tensor that may leave is in the heap of its rank, by its key.
   [S8] stuck_bytes is the sum over tensors with is_stuck: those that live and may not leave, since
        they are the open step's, pinned, small or without bytes.
   [S9] What the schedule makes leave is copied to the host at once. Its memory goes when others
        want it: where tensors are smaller than the schedule's it stays, and need not come back.
   Cost: a step is linear in what it names, and O(log tensors) for each that leaves, comes back or
   is allocated or freed, where at most GMLO_RANGES_SEEN ranges are looked at, too; the first that
   makes one leave, in an iteration, is linear in the session's tensors, and so is the begin of an
   iteration. Fails: where memory, the backend or host memory refuse. */

#define GMLO_EVENTS_SEEN 512u /* steps and copies whose times are read, in one call */
#define GMLO_FENCES 1024u     /* steps of a stream whose end can be told from later ones */
#define GMLO_STREAMS_MAX 64u
#define GMLO_USES 4u
#define GMLO_AHEAD 256u /* steps for whose tensors others leave ahead while no plan holds */
#define GMLO_ROOM 16u   /* a part of the limit, that what comes back earlier leaves free */
#define GMLO_USES_SEEN \
  64u                    /* uses of a tensor that are compared with a step that was not expected */
#define GMLO_COVERED 8u  /* a part of the steps, that may be others without a new recording */
#define GMLO_VAIN 1u     /* schedules in vain that do not count: a first iteration is special */
#define GMLO_VAIN_MAX 8u /* iterations that have to be alike at most */
#define GMLO_FENCED 16u  /* where all goes as planned, one of so many steps has a fence at least */
#define GMLO_STEADY 2u  /* how often sizes have to be those of the iteration before, to be learnt */
#define GMLO_GROWTH 16u /* a part of all sizes, or tensors: more by it are learnt, or planned for */
#define GMLO_REVIEW 4u  /* an iteration is timed once more after so many that were alike, */
#define GMLO_REVIEW_LAST 9u  /* and after so many */
#define GMLO_REVIEW_GAIN 16u /* a part of the steps' time that is worth a new schedule */
#define GMLO_REGROUPS 8u     /* new numbers of regions that are learnt at once */
#define GMLO_KEEP_GAIN 50u   /* a part of the time that is worth keeping regions */
#define GMLO_KEEP_SIMS 8u    /* numbers of kept regions that are planned for at first, about, */
#define GMLO_KEEP_WAYS 4u    /* in so many ways; the one that is taken is planned again later */
#define GMLO_KEEP_CHANGES 8u /* how often a session changes what is kept */
#define GMLO_KEEP_VARIED 3u  /* changes of sizes that double how long these have to be the same */
#define GMLO_MEASURED_BYTES ((size_t)4 << 20) /* smaller copies do not tell the link's speed */

typedef struct gmlo_stream { /* a stream */
  void *stream;
  void *events[GMLO_FENCES];       /* NULL: never recorded */
  uint64_t fences;                 /* recorded so far */
  uint64_t seen[GMLO_STREAMS_MAX]; /* by stream: the fence that this one has waited for */
  size_t stamped[2]; /* by recording: so many timed events were there with the last one on this */
} gmlo_stream;

typedef struct gmlo_fence {
  uint32_t stream_id;
  uint64_t number;
} gmlo_fence;

typedef struct gmlo_place { /* where a range is */
  uint64_t address;
  uint32_t range;
} gmlo_place;

typedef struct gmlo_host_piece { /* of pinned memory */
  char *ptr;                     /* NULL: behind the last one of a slab */
  uint64_t read; /* the fence of copies in behind the last one that read it; 0: none */
  uint32_t run;  /* [used] the first one of so many neighbours, which a tensor has together */
  uint32_t next; /* [used] likewise: the tensor's next run; NONE: the last one */
} gmlo_host_piece;

/* The tensors that may leave in heaps: see "Who leaves" below. */
typedef enum gmlo_rank {
  GMLO_RANK_NONE = 0,
  GMLO_RANK_FAR,       /* may leave and has a slot: by its next use, the farthest first; */
  GMLO_RANK_FAR_CLEAN, /* the host has its bytes, too */
  GMLO_RANK_OLD,       /* may leave and has none: by the last step that named it; */
  GMLO_RANK_OLD_CLEAN,
  GMLO_RANK_RELEASED, /* is_released */
  GMLO_RANKS
} gmlo_rank;

typedef struct gmlo_late { /* a tensor that may come back as soon as there is room */
  uint32_t tensor;
  uint64_t ticket;
  uint64_t until; /* the step before which it waits for its chunks */
} gmlo_late;

typedef struct gmlo_session_tensor { /* a tensor */
  size_t bytes;                      /* of its range */
  size_t real_bytes;                 /* as asked for */
  uint32_t range, pin;               /* its first run of pieces; NONE: it has none */
  gmlo_fence copied;                 /* [pin] behind the last copy */
  int lives, has_memory, has_bytes, is_clean;
  int is_released;         /* the schedule lets its memory go, the host has its bytes: [S9] */
  int is_stuck, is_listed; /* counted in stuck_bytes; in the open step's list */
  gmlo_rank rank;          /* its heap, */
  size_t place;            /* its place there, */
  uint64_t key;            /* and what it is ordered by */
  uint64_t late;           /* ticket of the entry that asks for it; 0: none */
  uint32_t keep_count;     /* calls of pin without unpin */
  uint64_t step;           /* the last that named it */
  uint64_t list;           /* which of its lists did: twice its number, + 1 for writes */
  gmlo_fence uses[GMLO_USES];
  size_t use_count;
  uint64_t back;         /* the fence behind its last copy from the host; 0: none */
  uint32_t slot, learnt; /* in the known recording, in the one that is recorded; or NONE */
  uint32_t carried;      /* the slot in which it outlived the last iteration, or NONE [L2] */
} gmlo_session_tensor;

typedef struct gmlo_worker { /* a thread that plans */
  void *thread;
  int is_running; /* it was started, and not joined: what it uses stays as it is */
  int stops;      /* it is to end soon; */
  int done;       /* what it came to, 0 before that: both change while it runs */
} gmlo_worker;

typedef struct gmlo_proposal { /* an iteration in which other regions are kept */
  gmlo_recording recording;
  gmlo_schedule schedule;
  uint32_t *slot_of; /* by slot of the recording that it was made of; NULL: there is no proposal */
  unsigned char *is_kept; /* by region of an iteration, */
  size_t region_count;    /* and how many there are */
} gmlo_proposal;

typedef struct gmlo_kept { /* which regions are kept, and why */
  unsigned char *is_kept;  /* by region of an iteration; NULL: none is */
  size_t region_count;
  unsigned changes; /* so far */
  int is_settled;   /* that stays so for about this limit and an iteration like this: */
  size_t limit_bytes;
  size_t step_count, peak_bytes; /* [is_settled] 0: such an iteration was not seen yet */
  uint64_t before_ns;            /* what one took in which none was kept; 0: not known; */
  unsigned before_size;          /* and how large it was: session.span_size */
  uint64_t saved_ns;             /* what operators took less by the plan when that was decided */
  int is_doubted;                /* one that was measured with these took as long */
  uint64_t failed_ns;            /* what one took that made an end of it; 0: none */
} gmlo_kept;

/* How many regions are kept in each of the iterations that are compared. */
typedef struct gmlo_sims {
  gmlo_recording recording; /* that the iterations are made of: a copy of the known one */
  gmlo_keeping keeping;
  gmlake_offload_planner_desc desc; /* where no memory that is not seen is needed for them */
  uint64_t *ns;       /* by number: an iteration as planned; 0: not planned yet. NULL: nothing is */
  size_t best;        /* of those planned */
  uint64_t before_ns; /* an iteration in which none is kept, also above the limit */
  uint64_t work;      /* steps so far */
  gmlo_proposal tried, found; /* the present one; the best one so far, if any is better than none */
} gmlo_sims;

/* Regions that are kept in this iteration alone, as there is room. */
typedef struct gmlo_by_room {
  gmlo_keeping keeping; /* of the known recording, which had so many bytes; l NULL: of none */
  size_t slot_bytes;
  gmlo_profile need;  /* by step of it: the bytes of its slots that are there */
  uint32_t *keep_of;  /* by region: its place among `keeping.keeps`; or NONE */
  uint32_t *skip_to;  /* by step: the first one behind steps that are not executed; or NONE */
  size_t kept;        /* so many are kept, */
  uint64_t out_bytes; /* and when that began so much had left */
  size_t margin;      /* stays free: what had to leave, as too many were kept */
  size_t alloc_bytes, alloc_slot_bytes; /* of the session, when the last region began */
} gmlo_by_room;

struct gmlake_offload_session {
  gmlake_offload_session_desc desc;
  gmlake_offload_backend backend; /* copies of desc's */
  gmlake_offload_memory memory;
  gmlake_offload_session_stats stats;
  gmlake_offload_error_info error;
  gmlo_stream *streams[GMLO_STREAMS_MAX]; /* GMLO_OUT, GMLO_IN, the program's */
  size_t stream_count;
  gmlo_session_tensor *tensors;
  size_t tensor_count, tensor_capacity;
  uint64_t *spare_ids; /* numbers that no tensor has: a heap */
  size_t spare_count, spare_capacity;
  uint32_t *ranks; /* room for all tensors in each heap, and in the open step's list */
  size_t rank_count[GMLO_RANKS], rank_capacity;
  uint32_t *open; /* in `ranks`: tensors that the open step names, or allocated in it */
  size_t open_count;
  size_t stuck_bytes; /* [S8] */
  gmlo_space space;
  gmlo_place *by_address; /* of all ranges */
  size_t address_capacity;
  gmlo_host_piece *pieces; /* those of each slab, and behind them one that is never free */
  uint64_t *free_pieces;   /* numbers: a heap */
  size_t piece_count, piece_capacity, piece_bytes, free_count, free_capacity;
  int is_ranked; /* [S7] */
  gmlo_recording recordings[2];
  int known;        /* the recording that is expected; -1: none */
  int is_recording; /* the other recording */
  int is_confirmed; /* two iterations in a row were alike */
  int is_drifted;   /* this iteration went another way than the known recording; */
  int is_lost;      /* and was not found again in it */
  int is_timed, has_schedule;
  int is_review; /* the present schedule stays unless the steps turn out to be faster */
  size_t ahead;  /* the steps from `at` to here have what they name */
  uint64_t met, count, last_count; /* steps of this iteration that were found; all; of the last */
  unsigned regroup_count; /* iterations with another number of regions than the one before */
  int records_more;       /* this iteration is recorded since the last one named more, */
  int is_more_vain;       /* but such a one has no more in all: the known one stays */
  uint64_t more; /* how often its steps named a tensor that is too small in the known recording */
  uint64_t alike_count;   /* iterations in a row that were as expected */
  uint64_t followed;      /* iterations that followed the present schedule to their end */
  uint64_t vain_count;    /* schedules in a row that no iteration followed */
  int is_marked;          /* the program marks its iterations */
  gmlo_detector detector; /* [S6] as long as it does not */
  uint64_t period, since, first_print; /* 0: none yet; steps since; print of the first step */
  gmlo_schedule schedule;
  gmlo_making making;    /* of the next one, */
  gmlo_recording made;   /* for a copy of the known recording */
  gmlo_worker worker;    /* that makes it, or `sims` */
  int makes_review;      /* `is_review` when it was begun */
  size_t made_bytes;     /* of the slots that it, or the present one, is for */
  size_t timed;          /* steps of it whose times were read */
  uint64_t timed_ns;     /* what these take together */
  size_t at, alloc_at;   /* [S5]; allocations of the known recording so far */
  gmlo_widened *widened; /* slots of it that grew in this iteration, in their order */
  size_t widened_count, widened_capacity;
  gmlo_late *late; /* that the schedule asked for, the first ones first */
  size_t late_count, late_capacity;
  uint64_t tickets;
  uint64_t step;                        /* the number of the present or last one, from 1 on */
  uint64_t mapped_step;                 /* the last one for which a chunk was mapped; 0: none was */
  uint64_t first_step;                  /* of this iteration */
  size_t alloc_bytes, alloc_slot_bytes; /* of what was allocated in this iteration; of its slots */
  size_t begun_bytes; /* of the slots with which the schedule's iteration begins */
  double owed_bytes;  /* that were to be copied to the host so far, and were not */
  uint64_t digest,
      last_digest;       /* of the bytes of what was allocated in this iteration, in the last */
  uint64_t steady_count; /* iterations in a row in which these were the same */
  unsigned varied;       /* known iterations with other sizes than the one before; up to a few */
  int is_open, is_held, is_busy;
  int is_delayed; /* since the last step has ended: a chunk was mapped, or a stream waits */
  uint32_t open_stream_id, ended_stream_id;
  double measured[2];            /* bytes/s of the directions; 0: not yet */
  uint64_t region, first_region; /* the last region's number, from 1 on; this iteration's first */
  uint64_t open_region;          /* 0: none is open */
  int is_again;                  /* the open one is executed again */
  uint64_t kept_now;             /* regions of this iteration that are kept */
  uint64_t span_ns;    /* of the known recording, with its waits for copies; 0: not by this limit */
  unsigned span_size;  /* what it allocated, in 1,024ths of the most that was seen; */
  unsigned known_size; /* the same of the known recording, whether it was timed or not */
  gmlo_kept kept;
  gmlo_by_room by_room;
  gmlo_sims sims;         /* while regions are decided about */
  gmlo_proposal proposal; /* for the next iteration */
};

static gmlake_offload_result gmlo_session_fail(gmlake_offload_session *s,
                                               gmlake_offload_result result, uint32_t tensor,
                                               const char *text) {
  s->error.result = result;
  s->error.op = GMLAKE_OFFLOAD_NONE;
  s->error.tensor = tensor;
  gmlo_text(s->error.text, sizeof s->error.text, text);
  return result;
}

static gmlake_offload_result gmlo_session_invalid(gmlake_offload_session *s, const char *text) {
  return gmlo_session_fail(s, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, GMLAKE_OFFLOAD_NONE, text);
}

static gmlake_offload_result gmlo_session_no_memory(gmlake_offload_session *s) {
  return gmlo_session_fail(s, GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY, GMLAKE_OFFLOAD_NONE,
                           "host memory was refused");
}

/* Appends text, or a number, to the error's text. */
static void gmlo_session_say(gmlake_offload_session *s, const char *text, size_t number) {
  size_t length = strlen(s->error.text);
  char digits[24];
  size_t i = sizeof digits - 1;
  digits[i] = '\0';
  do {
    digits[--i] = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  gmlo_text(s->error.text + length, sizeof s->error.text - length,
            text != NULL ? text : digits + i);
}

/* ---- What is kept ---- */

static void gmlo_proposal_free(const gmlake_offload_host *host, gmlo_proposal *proposal) {
  gmlo_recording_free(&proposal->recording);
  gmlo_schedule_free(host, &proposal->schedule);
  gmlo_free(host, proposal->slot_of);
  gmlo_free(host, proposal->is_kept);
  memset(proposal, 0, sizeof *proposal);
  proposal->recording.host = *host;
}

/* Waits for the thread that plans, which soon ends. */
static void gmlo_session_join(gmlake_offload_session *s) {
  if (!s->worker.is_running) return;
  gmlo_store(&s->worker.stops, 1);
  s->backend.thread_join(s->backend.user, s->worker.thread);
  s->worker.is_running = s->worker.stops = 0;
  s->stats.plan_work += s->making.work + s->sims.work;
}

/* What is in the making is for another limit, or for another iteration. */
static void gmlo_session_stop_making(gmlake_offload_session *s) {
  gmlo_session_join(s);
  gmlo_making_leave(&s->making);
  gmlo_recording_free(&s->made);
  memset(&s->made, 0, sizeof s->made);
  if (s->sims.ns == NULL) return;
  gmlo_proposal_free(&s->desc.host, &s->sims.tried);
  gmlo_proposal_free(&s->desc.host, &s->sims.found);
  gmlo_keeping_leave(&s->sims.keeping);
  gmlo_recording_free(&s->sims.recording);
  memset(&s->sims, 0, sizeof s->sims);
}

/* From now on each region is executed again. */
static void gmlo_session_keep_none(gmlake_offload_session *s) {
  if (s->sims.ns != NULL) gmlo_session_stop_making(s);
  gmlo_free(&s->desc.host, s->kept.is_kept);
  s->kept.is_kept = NULL;
  gmlo_proposal_free(&s->desc.host, &s->proposal);
}

/* What is kept takes too much: none is, until the limit or the program changes. */
static void gmlo_session_revert(gmlake_offload_session *s) {
  if (s->kept.is_kept == NULL) return;
  gmlo_session_keep_none(s);
  s->kept.step_count = 0;
}

/* ---- Errors ---- */

static gmlake_offload_result gmlo_session_too_large(gmlake_offload_session *s, uint32_t tensor,
                                                    size_t bytes) {
  gmlo_session_revert(s);
  (void)gmlo_session_fail(s, GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY, tensor, "this step needs ");
  gmlo_session_say(s, NULL, bytes);
  gmlo_session_say(s, " bytes at once, in whole chunks, with what may not leave; the limit is ", 0);
  if (s->desc.limit_bytes != 0) {
    gmlo_session_say(s, NULL, s->desc.limit_bytes);
  } else {
    gmlo_session_say(s, "the memory's", 0);
  }
  return s->error.result;
}

/* ---- Streams and fences ---- */

/* The number of a stream. GMLO_STREAMS_MAX: there are too many, or host memory is refused. */
static uint32_t gmlo_session_stream(gmlake_offload_session *s, void *stream) {
  uint32_t i;
  for (i = 0; i < s->stream_count; i++)
    if (s->streams[i]->stream == stream) return i;
  if (i == GMLO_STREAMS_MAX) {
    (void)gmlo_session_invalid(s, "steps named more than 62 streams; use fewer");
    return i;
  }
  s->streams[i] = (gmlo_stream *)gmlo_zeroed(&s->desc.host, 1, sizeof **s->streams);
  if (s->streams[i] == NULL) {
    (void)gmlo_session_no_memory(s);
    return GMLO_STREAMS_MAX;
  }
  s->streams[i]->stream = stream;
  s->stream_count++;
  return i;
}

/* A fence was recorded in an open step, whose work goes on: its uses end with the next one. */
static void gmlo_session_postpone(gmlake_offload_session *s, uint32_t stream_id) {
  size_t i, n;
  for (i = 0; i < s->open_count; i++) {
    gmlo_session_tensor *g = &s->tensors[s->open[i]];
    for (n = 0; g->step == s->step && n < g->use_count; n++)
      if (g->uses[n].stream_id == stream_id) g->uses[n].number = s->streams[stream_id]->fences + 1;
  }
}

/* Records a fence behind what is queued on the stream. 0 if that is refused. */
static int gmlo_session_fence(gmlake_offload_session *s, uint32_t stream_id) {
  gmlo_stream *c = s->streams[stream_id];
  void **event = &c->events[(c->fences + 1) % GMLO_FENCES];
  if (*event == NULL && s->backend.event_create(s->backend.user, 0, 0, event) != 0) {
    *event = NULL;
    return 0;
  }
  if (s->backend.event_record(s->backend.user, *event, c->stream) != 0) return 0;
  c->fences++;
  if (s->is_open && stream_id > GMLO_IN) gmlo_session_postpone(s, stream_id);
  return 1;
}

/* Makes one stream wait for a fence of another one, which is recorded first if it has to be. 0 if
   that is refused. [S3] */
static int gmlo_session_order(gmlake_offload_session *s, uint32_t to, gmlo_fence fence) {
  gmlo_stream *c = s->streams[to], *other = s->streams[fence.stream_id];
  if (to == fence.stream_id || fence.number == 0 || c->seen[fence.stream_id] >= fence.number)
    return 1;
  if (other->fences < fence.number && !gmlo_session_fence(s, fence.stream_id)) return 0;
  if (fence.number + GMLO_FENCES <= other->fences) fence.number = other->fences - GMLO_FENCES + 1;
  if (s->backend.stream_wait(s->backend.user, c->stream,
                             other->events[fence.number % GMLO_FENCES]) != 0) {
    return 0;
  }
  c->seen[fence.stream_id] = fence.number;
  s->is_delayed = 1;
  return 1;
}

/* Makes the host wait for a stream. */
static int gmlo_session_sync(gmlake_offload_session *s, uint32_t stream_id) {
  s->stats.sync_count++;
  return s->backend.stream_sync(s->backend.user, s->streams[stream_id]->stream) == 0;
}

static gmlake_offload_result gmlo_session_refused(gmlake_offload_session *s, uint32_t tensor,
                                                  const char *text) {
  return gmlo_session_fail(s, GMLAKE_OFFLOAD_ERROR_BACKEND, tensor, text);
}

/* Adds a use up to the next fence of the stream, in the place of those that the stream has waited
   for. 0 if an older one had to be waited for and that was refused. [S2] */
static int gmlo_session_use(gmlake_offload_session *s, gmlo_session_tensor *g, uint32_t stream_id) {
  const uint64_t *seen = s->streams[stream_id]->seen;
  size_t i, kept = 0;
  for (i = 0; i < g->use_count; i++) {
    if (g->uses[i].stream_id != stream_id && g->uses[i].number > seen[g->uses[i].stream_id])
      g->uses[kept++] = g->uses[i];
  }
  if (kept == GMLO_USES) {
    if (!gmlo_session_order(s, stream_id, g->uses[0])) return 0;
    g->uses[0] = g->uses[--kept];
  }
  g->use_count = kept + 1;
  g->uses[kept].stream_id = stream_id;
  g->uses[kept].number = s->streams[stream_id]->fences + 1;
  return 1;
}

/* Makes a stream wait for all uses of a tensor. */
static int gmlo_session_follow_uses(gmlake_offload_session *s, const gmlo_session_tensor *g,
                                    uint32_t stream_id) {
  size_t i;
  for (i = 0; i < g->use_count; i++)
    if (!gmlo_session_order(s, stream_id, g->uses[i])) return 0;
  return 1;
}

/* From here on the only use is up to the stream's next fence: pre: it waits for all others. */
static void gmlo_session_only_use(gmlake_offload_session *s, gmlo_session_tensor *g,
                                  uint32_t stream_id) {
  g->use_count = 1;
  g->uses[0].stream_id = stream_id;
  g->uses[0].number = s->streams[stream_id]->fences + 1;
}

/* ---- What is recorded ---- */

static gmlo_recording *gmlo_session_known(gmlake_offload_session *s) {
  return s->known >= 0 ? &s->recordings[s->known] : NULL;
}

static gmlo_recording *gmlo_session_recorded(gmlake_offload_session *s) {
  return s->is_recording ? &s->recordings[s->known == 0] : NULL;
}

/* The open region in the recording that is made; NULL: it began before that. */
static gmlo_region *gmlo_session_region(gmlake_offload_session *s) {
  gmlo_recording *l = gmlo_session_recorded(s);
  if (l == NULL || l->is_broken || s->open_region < s->first_region ||
      s->open_region - s->first_region >= l->region_count) {
    return NULL;
  }
  return &l->regions[s->open_region - s->first_region];
}

/* Records a timed event. Its number; NONE if that is refused: the recording is then broken. */
static uint32_t gmlo_session_stamp(gmlake_offload_session *s, uint32_t stream_id) {
  gmlo_recording *l = gmlo_session_recorded(s);
  void **event;
  if (l == NULL || l->is_broken) return GMLAKE_OFFLOAD_NONE;
  if (l->event_count == l->made) {
    event = (void **)gmlo_recording_more(l, &l->events, l->made, &l->event_capacity, sizeof *event);
    if (event == NULL) return GMLAKE_OFFLOAD_NONE;
    l->is_broken = s->backend.event_create(s->backend.user, 0, 1, event) != 0;
    if (l->is_broken) return GMLAKE_OFFLOAD_NONE;
    l->made++;
  }
  l->is_broken = s->backend.event_record(s->backend.user, l->events[l->event_count],
                                         s->streams[stream_id]->stream) != 0;
  if (l->is_broken) return GMLAKE_OFFLOAD_NONE;
  s->streams[stream_id]->stamped[s->known == 0] = ++l->event_count;
  return (uint32_t)l->event_count - 1;
}

/* The tensor's slot in the recording that is made, which appears if it is new there. */
static uint32_t gmlo_session_learn(gmlake_offload_session *s, gmlo_session_tensor *g) {
  gmlo_recording *l = gmlo_session_recorded(s);
  if (g->learnt == GMLAKE_OFFLOAD_NONE)
    g->learnt = gmlo_recording_add_slot(l, g->bytes, g->real_bytes, GMLAKE_OFFLOAD_NONE);
  return g->learnt;
}

static void gmlo_session_learn_step(gmlake_offload_session *s, const gmlake_offload_step *step) {
  gmlo_recording *l = gmlo_session_recorded(s);
  size_t i;
  if (l == NULL) return;
  gmlo_recording_add_step(l, step->key);
  for (i = 0; i < step->read_count + step->write_count && !l->is_broken; i++) {
    int writes = i >= step->read_count;
    uint32_t id = writes ? step->writes[i - step->read_count] : step->reads[i];
    gmlo_recording_name(l, gmlo_session_learn(s, &s->tensors[id]),
                        writes ? GMLO_WRITES : GMLO_READS);
  }
}

/* The step that a tensor is allocated in: the open one, or the next one. */
static uint32_t gmlo_session_now(const gmlake_offload_session *s, size_t begun) {
  return (uint32_t)(begun - (s->is_open && begun != 0));
}

/* ---- Who leaves, who comes back ---- */

/* Heaps of tensors. A tensor that may leave is in one of them; each change of its state puts it in
   its place. Its next use, as a step of the known recording, changes only where the
   session passes that step, or where slots are matched. Without a slot it counts as used the later,
   the longer it was not. The heaps are made when an iteration first asks for a tensor: one that
   follows its schedule asks for none, at no cost. */

static int gmlo_session_is_locked(const gmlake_offload_session *s, const gmlo_session_tensor *g) {
  return g->keep_count != 0 || (s->is_open && g->step == s->step);
}

static int gmlo_session_may_leave(const gmlake_offload_session *s, const gmlo_session_tensor *g) {
  return g->lives && g->has_memory && g->has_bytes && !gmlo_session_is_locked(s, g) &&
         g->real_bytes >= s->desc.tensor_bytes_min;
}

/* How many steps away the next use of a tensor is, as far as is known. */
static size_t gmlo_session_expect(gmlake_offload_session *s, const gmlo_session_tensor *g) {
  gmlo_recording *l = gmlo_session_known(s);
  if (l != NULL && g->slot != GMLAKE_OFFLOAD_NONE && s->at <= l->step_count)
    return gmlo_recording_expect(l, g->slot, s->at);
  return (size_t)(s->step - g->step) + 1;
}

static uint32_t *gmlo_session_heap(const gmlake_offload_session *s, gmlo_rank rank) {
  return s->ranks + (size_t)rank * s->rank_capacity;
}

/* Whether tensor a is before b in their heap. */
static int gmlo_session_is_before(const gmlake_offload_session *s, uint32_t a, uint32_t b) {
  const gmlo_session_tensor *x = &s->tensors[a], *y = &s->tensors[b];
  if (x->key != y->key) return x->key < y->key;
  if (x->bytes != y->bytes) return x->bytes > y->bytes;
  return a < b;
}

static void gmlo_session_set_place(gmlake_offload_session *s, uint32_t *heap, size_t place,
                                   uint32_t id) {
  heap[place] = id;
  s->tensors[id].place = place;
}

/* The tensor goes from the place up, or down, to where it belongs. */
static void gmlo_session_sift(gmlake_offload_session *s, gmlo_rank rank, size_t place,
                              uint32_t id) {
  uint32_t *heap = gmlo_session_heap(s, rank);
  size_t count = s->rank_count[rank], child;
  for (; place != 0 && gmlo_session_is_before(s, id, heap[(place - 1) / 2]);
       place = (place - 1) / 2)
    gmlo_session_set_place(s, heap, place, heap[(place - 1) / 2]);
  for (; (child = 2 * place + 1) < count; place = child) {
    if (child + 1 < count && gmlo_session_is_before(s, heap[child + 1], heap[child])) child++;
    if (gmlo_session_is_before(s, id, heap[child])) break;
    gmlo_session_set_place(s, heap, place, heap[child]);
  }
  gmlo_session_set_place(s, heap, place, id);
}

/* The heap that a tensor belongs in now, and by what. */
static gmlo_rank gmlo_session_rank_of(gmlake_offload_session *s, const gmlo_session_tensor *g,
                                      uint64_t *out_key) {
  int has_slot = g->slot != GMLAKE_OFFLOAD_NONE;
  size_t way;
  if (!gmlo_session_may_leave(s, g)) return GMLO_RANK_NONE;
  *out_key = g->step;
  if (!has_slot && !g->is_released) return g->is_clean ? GMLO_RANK_OLD_CLEAN : GMLO_RANK_OLD;
  way = gmlo_session_expect(s, g);
  *out_key = way != SIZE_MAX ? UINT64_MAX - (s->at + way) : 0;
  if (g->is_released) return GMLO_RANK_RELEASED;
  return g->is_clean ? GMLO_RANK_FAR_CLEAN : GMLO_RANK_FAR;
}

/* Puts the tensor into the heap that it belongs in, or out of all. [S7] */
static void gmlo_session_rank(gmlake_offload_session *s, uint32_t id) {
  gmlo_session_tensor *g = &s->tensors[id];
  uint64_t key = 0;
  gmlo_rank rank, former = g->rank;
  if (g->lives) s->space.ranges[g->range].is_released = g->is_released; /* else it is another's */
  if (!s->is_ranked) return;
  rank = gmlo_session_rank_of(s, g, &key);
  if (rank == former && (rank == GMLO_RANK_NONE || key == g->key)) return;
  if (former != GMLO_RANK_NONE) {
    uint32_t last = gmlo_session_heap(s, former)[--s->rank_count[former]];
    g->rank = GMLO_RANK_NONE;
    if (last != id) gmlo_session_sift(s, former, g->place, last);
  }
  if (rank == GMLO_RANK_NONE) return;
  g->rank = rank;
  g->key = key;
  gmlo_session_sift(s, rank, s->rank_count[rank]++, id);
}

/* Makes the heaps. */
static void gmlo_session_rank_all(gmlake_offload_session *s) {
  size_t i;
  if (s->is_ranked) return;
  s->is_ranked = 1;
  memset(s->rank_count, 0, sizeof s->rank_count);
  for (i = 0; i < s->tensor_count; i++) s->tensors[i].rank = GMLO_RANK_NONE;
  for (i = 0; i < s->tensor_count; i++) gmlo_session_rank(s, (uint32_t)i);
}

/* A tensor's state has changed: counts it if it may not leave, and ranks it. [S8] */
static void gmlo_session_settle_tensor(gmlake_offload_session *s, gmlo_session_tensor *g) {
  int is_stuck = g->lives &&
                 (gmlo_session_is_locked(s, g) || (g->has_memory && !gmlo_session_may_leave(s, g)));
  if (is_stuck && !g->is_stuck) s->stuck_bytes += g->bytes;
  if (!is_stuck && g->is_stuck) s->stuck_bytes -= g->bytes;
  g->is_stuck = is_stuck;
  gmlo_session_rank(s, (uint32_t)(g - s->tensors));
}

/* The open step names a tensor, or allocates it: it may not leave before the step has ended. */
static void gmlo_session_list(gmlake_offload_session *s, uint32_t id) {
  gmlo_session_tensor *g = &s->tensors[id];
  g->step = s->step;
  if (s->is_open && !g->is_listed) s->open[s->open_count++] = id;
  g->is_listed |= s->is_open;
  gmlo_session_settle_tensor(s, g);
}

/* The step has ended, or could not begin. */
static void gmlo_session_close(gmlake_offload_session *s) {
  s->is_open = 0;
  while (s->open_count != 0) {
    gmlo_session_tensor *g = &s->tensors[s->open[--s->open_count]];
    g->is_listed = 0;
    gmlo_session_settle_tensor(s, g);
  }
}

/* The session passes steps of the known recording: who was used in them has another next use. */
static void gmlo_session_pass(gmlake_offload_session *s, size_t to) {
  const gmlo_recording *l = gmlo_session_known(s);
  size_t n = l->steps[s->at].named_begin, end = l->steps[to - 1].named_end;
  s->at = to;
  for (; s->is_ranked && n < end; n++) {
    uint32_t tensor = l->slots[l->named[n].slot].tensor;
    if (tensor != GMLAKE_OFFLOAD_NONE) gmlo_session_rank(s, tensor);
  }
}

/* The tensor whose next use is farthest away, of those that the schedule lets go, else of those
   that may leave: of equal ones the largest. NONE: there is none. */
static uint32_t gmlo_session_victim(gmlake_offload_session *s, int only_clean) {
  static const gmlo_rank ranks[] = {GMLO_RANK_FAR_CLEAN, GMLO_RANK_OLD_CLEAN, GMLO_RANK_FAR,
                                    GMLO_RANK_OLD};
  uint32_t best = GMLAKE_OFFLOAD_NONE;
  size_t i, farthest = 0;
  gmlo_session_rank_all(s);
  if (s->rank_count[GMLO_RANK_RELEASED] != 0) return gmlo_session_heap(s, GMLO_RANK_RELEASED)[0];
  for (i = 0; i < (only_clean ? 2 : 4); i++) {
    uint32_t id;
    size_t way;
    if (s->rank_count[ranks[i]] == 0) continue;
    id = gmlo_session_heap(s, ranks[i])[0];
    way = gmlo_session_expect(s, &s->tensors[id]);
    if (best != GMLAKE_OFFLOAD_NONE) {
      size_t bytes = s->tensors[id].bytes, most = s->tensors[best].bytes;
      if (way < farthest || (way == farthest && (bytes < most || (bytes == most && id > best))))
        continue;
    }
    best = id;
    farthest = way;
  }
  return best;
}

/* ---- Following the known recording ---- */

static void gmlo_session_bind(gmlake_offload_session *s, uint32_t tensor, uint32_t slot) {
  gmlo_recording *l = gmlo_session_known(s);
  gmlo_session_tensor *g = &s->tensors[tensor];
  if (g->slot != GMLAKE_OFFLOAD_NONE) l->slots[g->slot].tensor = GMLAKE_OFFLOAD_NONE;
  g->slot = slot;
  if (slot != GMLAKE_OFFLOAD_NONE) {
    uint32_t other = l->slots[slot].tensor;
    l->slots[slot].tensor = tensor;
    if (other != GMLAKE_OFFLOAD_NONE && other != tensor) {
      s->tensors[other].slot = GMLAKE_OFFLOAD_NONE;
      gmlo_session_rank(s, other);
    }
  }
  gmlo_session_rank(s, tensor);
}

/* Slots were matched: when what is in this one is used next. */
static void gmlo_session_rank_slot(gmlake_offload_session *s, uint32_t slot) {
  uint32_t tensor = gmlo_session_known(s)->slots[slot].tensor;
  if (tensor != GMLAKE_OFFLOAD_NONE) gmlo_session_rank(s, tensor);
}

/* A tensor that outlived an iteration was found to be in that slot: the two are peers. */
static void gmlo_session_learn_peer(gmlake_offload_session *s, uint32_t carried, uint32_t slot) {
  gmlo_recording *l = gmlo_session_known(s);
  uint32_t had = l->slots[carried].peer, other = l->slots[slot].peer;
  if (l->slots[slot].freed == GMLAKE_OFFLOAD_NONE) return;
  if (had != GMLAKE_OFFLOAD_NONE) l->slots[had].peer = other;
  if (other != GMLAKE_OFFLOAD_NONE) l->slots[other].peer = had;
  l->slots[carried].peer = slot;
  l->slots[slot].peer = carried;
  gmlo_session_rank_slot(s, carried);
  if (other != GMLAKE_OFFLOAD_NONE) gmlo_session_rank_slot(s, other);
}

/* Whether a tensor that has the slot `had` may get this one, and who is in this one the other.
   `had` NONE: then this one has to be of the iteration's begin, or empty, or the next step is the
   first that names it: who is in it got it as a tensor that was too small until now. */
static int gmlo_session_is_like(const gmlake_offload_session *s, const gmlo_recording *l,
                                uint32_t slot, uint32_t had) {
  const gmlo_slot *a = &l->slots[slot], *b;
  if (had == GMLAKE_OFFLOAD_NONE) {
    return a->alloc == GMLAKE_OFFLOAD_NONE || a->tensor == GMLAKE_OFFLOAD_NONE ||
           (a->use_begin != a->use_end && l->uses[a->use_begin] == s->at);
  }
  b = &l->slots[had];
  if (a->alloc != b->alloc) return 0;
  return a->alloc != GMLAKE_OFFLOAD_NONE ||
         (a->freed != GMLAKE_OFFLOAD_NONE && b->freed != GMLAKE_OFFLOAD_NONE);
}

/* Whether the program has one tensor for both slots, as it keeps regions that make what is in one
   of them again. */
static int gmlo_session_are_dups(const gmlo_by_room *b, uint32_t slot, uint32_t other) {
  const uint32_t *dup = b->keeping.dup;
  if (b->kept == 0 || other == GMLAKE_OFFLOAD_NONE) return 0;
  if (dup[slot] != GMLAKE_OFFLOAD_NONE) slot = dup[slot];
  return slot == (dup[other] != GMLAKE_OFFLOAD_NONE ? dup[other] : other);
}

/* Whether a tensor may be the one that the recording names. What outlived an iteration was given
   the slot of one that is like it, and what is allocated the slot that was next: here it may change
   with another one. */
static int gmlo_session_matches(gmlake_offload_session *s, uint32_t tensor, uint32_t slot) {
  gmlo_recording *l = gmlo_session_known(s);
  uint32_t had = s->tensors[tensor].slot, other = l->slots[slot].tensor;
  if (had == slot) return 1;
  if (gmlo_session_are_dups(&s->by_room, slot, had)) {
    gmlo_session_bind(s, tensor, slot);
    return 1;
  }
  if (!gmlo_session_is_like(s, l, slot, had)) return 0;
  if (other != GMLAKE_OFFLOAD_NONE && l->slots[slot].alloc == GMLAKE_OFFLOAD_NONE &&
      s->tensors[other].step >= s->first_step && s->tensors[other].step < s->step) {
    return 0; /* it was named in this iteration already */
  }
  if (other != GMLAKE_OFFLOAD_NONE) gmlo_session_bind(s, other, GMLAKE_OFFLOAD_NONE);
  gmlo_session_bind(s, tensor, slot);
  if (s->tensors[tensor].carried != GMLAKE_OFFLOAD_NONE)
    gmlo_session_learn_peer(s, s->tensors[tensor].carried, slot);
  if (other != GMLAKE_OFFLOAD_NONE && had != GMLAKE_OFFLOAD_NONE) gmlo_session_bind(s, other, had);
  return 1;
}

/* Whether a tensor that a step names may be the one that the recording names there. `strictly`: it
   gets that slot. */
static int gmlo_session_is_named(gmlake_offload_session *s, uint32_t tensor,
                                 const gmlo_named *named, int strictly) {
  uint32_t had = s->tensors[tensor].slot;
  if (strictly) return gmlo_session_matches(s, tensor, named->slot);
  return had == GMLAKE_OFFLOAD_NONE || had == named->slot ||
         gmlo_session_are_dups(&s->by_room, named->slot, had);
}

/* Whether what a step reads, or what it writes, is what the recording names in it, from `first` on.
   Tensors whose size varies may be smaller than what a program tells a session: if one of the two
   names less, the other's may be missing in it, wherever that is. Before that place, none that has
   no slot gets one. */
static int gmlo_session_is_list(gmlake_offload_session *s, const uint32_t *tensors, size_t count,
                                size_t first, size_t known_count, int strictly) {
  const gmlo_recording *l = gmlo_session_known(s);
  size_t i = 0, n = 0;
  while (i < count && n < known_count) {
    const gmlo_named *named = &l->named[first + n];
    size_t left = count - i, known_left = known_count - n;
    if ((left == known_left || s->tensors[tensors[i]].slot == named->slot) &&
        gmlo_session_is_named(s, tensors[i], named, strictly)) {
      i++;
      n++;
    } else if (left == known_left) {
      return 0;
    } else if (left > known_left) {
      i++;
    } else {
      n++;
    }
  }
  return 1;
}

/* Whether the step is the recording's step `at`; `strictly`: its tensors get the slots. */
static int gmlo_session_is_step(gmlake_offload_session *s, const gmlake_offload_step *step,
                                size_t at, int strictly) {
  const gmlo_recording *l = gmlo_session_known(s);
  const gmlo_recording_step *known = &l->steps[at];
  size_t first = known->named_begin, end = known->named_end, count;
  if (known->key != step->key) return 0;
  while (first < end && l->named[first].how != GMLO_WRITES) first++;
  if (!gmlo_session_is_list(s, step->reads, step->read_count, known->named_begin,
                            first - known->named_begin, strictly) ||
      !gmlo_session_is_list(s, step->writes, step->write_count, first, end - first, strictly)) {
    return 0;
  }
  count = step->read_count + step->write_count;
  if (strictly && count > end - known->named_begin) s->more += count - (end - known->named_begin);
  return 1;
}

/* Whether the schedule is carried out. */
static int gmlo_session_is_planned(const gmlake_offload_session *s) {
  return s->has_schedule && !s->is_lost;
}

static void gmlo_session_drift(gmlake_offload_session *s) {
  if (!s->is_drifted) s->stats.drift_count++;
  s->is_drifted = 1;
  s->late_count = 0;
}

/* A tensor of this iteration has the slot. Without host memory for a note the slot stays as
   large. */
static void gmlo_session_widen(gmlake_offload_session *s, uint32_t id,
                               const gmlo_session_tensor *g) {
  gmlo_recording *l = gmlo_session_known(s);
  const gmlo_slot *slot = &l->slots[id];
  if (g->bytes > slot->bytes || g->real_bytes > slot->real_bytes) {
    gmlo_widened *list = (gmlo_widened *)gmlo_grow(&s->desc.host, s->widened, s->widened_count, 1,
                                                   &s->widened_capacity, sizeof *list);
    if (list != NULL) {
      s->widened = list;
      list += s->widened_count++;
      list->slot = id;
      list->bytes = slot->bytes;
      list->real_bytes = slot->real_bytes;
    }
  }
  gmlo_recording_widen(l, id, g->bytes, g->real_bytes);
}

/* The program goes back to that step: what it executed since was the begin of something else, as an
   evaluation is. The slots there have the sizes that they had before. */
static void gmlo_session_unwiden(gmlake_offload_session *s, size_t at) {
  gmlo_recording *l = gmlo_session_known(s);
  size_t n = s->widened_count;
  for (; n != 0 && l->slots[s->widened[n - 1].slot].alloc >= at; n--) {
    gmlo_slot *slot = &l->slots[s->widened[n - 1].slot];
    l->slot_bytes -= slot->bytes - s->widened[n - 1].bytes;
    slot->bytes = s->widened[n - 1].bytes;
    slot->real_bytes = s->widened[n - 1].real_bytes;
  }
  s->widened_count = n;
}

/* The known recording goes on at that step: what it allocates there is bound as it is named. */
static void gmlo_session_jump(gmlake_offload_session *s, size_t at) {
  if (at < s->at) gmlo_session_unwiden(s, at);
  s->at = s->ahead = at;
  s->is_ranked = 0;
  s->alloc_at = gmlo_recording_first_alloc(gmlo_session_known(s), (uint32_t)at);
}

/* The program does not execute the steps that make a kept region again. */
static void gmlo_session_skip(gmlake_offload_session *s) {
  const gmlo_by_room *b = &s->by_room;
  while (b->kept != 0 && s->at < b->keeping.l->step_count &&
         b->skip_to[s->at] != GMLAKE_OFFLOAD_NONE)
    gmlo_session_jump(s, b->skip_to[s->at]);
}

/* The step of the known recording that uses a tensor of this one in the same way: the first one
   from `at` on, around the end. NONE: there is none. */
static size_t gmlo_session_find_step(gmlake_offload_session *s, const gmlake_offload_step *step) {
  const gmlo_recording *l = gmlo_session_known(s);
  size_t i, n;
  for (i = 0; i < step->read_count + step->write_count; i++) {
    uint32_t id = i < step->read_count ? step->reads[i] : step->writes[i - step->read_count];
    const gmlo_slot *slot;
    size_t count, from;
    if (s->tensors[id].slot == GMLAKE_OFFLOAD_NONE) continue;
    slot = &l->slots[s->tensors[id].slot];
    count = slot->use_end - slot->use_begin;
    from = gmlo_slot_next(l, slot, s->at) - slot->use_begin;
    for (n = 0; n < count && n < GMLO_USES_SEEN; n++) {
      size_t at = l->uses[slot->use_begin + (from + n) % count];
      if (gmlo_session_is_step(s, step, at, 0)) return at;
    }
  }
  return GMLAKE_OFFLOAD_NONE;
}

/* A step has begun: finds it in the known recording. After a step that was not expected the session
   is lost until one names what one of the recording does: an evaluation, or one batch more, uses
   the program's weights in an order that is known. */
static void gmlo_session_follow(gmlake_offload_session *s, const gmlake_offload_step *step) {
  gmlo_recording *l = gmlo_session_known(s);
  size_t at;
  s->count++;
  if (l == NULL) return;
  gmlo_session_skip(s);
  if (s->is_lost || s->at == l->step_count || !gmlo_session_is_step(s, step, s->at, 1)) {
    gmlo_session_drift(s);
    at = gmlo_session_find_step(s, step);
    s->is_lost = at == GMLAKE_OFFLOAD_NONE;
    if (s->is_lost) return;
    if (at != s->at) gmlo_session_jump(s, at);
    (void)gmlo_session_is_step(s, step, at, 1);
  }
  gmlo_session_pass(s, s->at + 1);
  s->met++;
}

/* The slot of a tensor of so many bytes that is allocated now; NONE: none is expected. Of several
   that are expected in this step it is the next one, or, where that one was much smaller, one
   behind it. alloc_at is then its place. */
static uint32_t gmlo_session_next_alloc(gmlake_offload_session *s, size_t bytes) {
  const gmlo_recording *l = gmlo_session_known(s);
  uint32_t now;
  size_t i;
  if (l == NULL || s->is_lost) return GMLAKE_OFFLOAD_NONE;
  if (!s->is_open) gmlo_session_skip(s);
  now = gmlo_session_now(s, s->at);
  while (s->alloc_at < l->alloc_count && l->slots[l->allocs[s->alloc_at]].alloc < now)
    s->alloc_at++;
  for (i = s->alloc_at; i < l->alloc_count && l->slots[l->allocs[i]].alloc == now; i++) {
    size_t known = l->slots[l->allocs[i]].bytes;
    if (i == s->alloc_at ? known < bytes - bytes / 4 : known < bytes) continue;
    s->alloc_at = i;
    return l->allocs[i];
  }
  return i != s->alloc_at ? l->allocs[s->alloc_at] : GMLAKE_OFFLOAD_NONE;
}

/* A tensor is allocated. */
static void gmlo_session_follow_alloc(gmlake_offload_session *s, uint32_t tensor) {
  uint32_t slot = gmlo_session_next_alloc(s, s->tensors[tensor].bytes);
  if (slot == GMLAKE_OFFLOAD_NONE) return;
  gmlo_session_widen(s, slot, &s->tensors[tensor]);
  gmlo_session_known(s)->slots[slot].range = s->tensors[tensor].range;
  gmlo_session_bind(s, tensor, slot);
  s->alloc_at++;
  s->alloc_bytes += s->tensors[tensor].bytes;
  s->alloc_slot_bytes += gmlo_session_known(s)->slots[slot].bytes;
}

/* ---- Pinned memory: slabs of pieces, which stay ----

   A tensor has any pieces, but neighbours where there are enough. So tensors of all sizes use the
   same ones, and no more is pinned than was away at once. */

#define GMLO_PIECE_MAX ((size_t)2 << 20) /* bytes: a copy of these takes 40 us */

/* Gives a tensor the lowest free pieces. pre: there are so many. */
static void gmlo_session_take_pieces(gmlake_offload_session *s, gmlo_session_tensor *g,
                                     size_t count) {
  uint32_t *link = &g->pin;
  gmlo_host_piece *first = NULL; /* of the last run */
  g->copied.stream_id = GMLO_IN;
  g->copied.number = 0;
  for (; count != 0; count--) {
    uint32_t number = (uint32_t)gmlo_heap_pop(s->free_pieces, &s->free_count);
    gmlo_host_piece *piece = &s->pieces[number];
    if (piece->read > g->copied.number) g->copied.number = piece->read;
    if (first == NULL || first + first->run != piece) {
      first = piece;
      first->run = 0;
      *link = number;
      link = &first->next;
    }
    first->run++;
  }
  *link = GMLAKE_OFFLOAD_NONE;
}

/* The host's copy of a tensor is none any more. Who gets the pieces writes them behind the copies
   out that there are, and behind the last copy that reads them. */
static void gmlo_session_unpin(gmlake_offload_session *s, gmlo_session_tensor *g) {
  size_t at, i;
  for (at = g->pin; at != GMLAKE_OFFLOAD_NONE; at = s->pieces[at].next) {
    for (i = at; i < at + s->pieces[at].run; i++) {
      gmlo_heap_push(s->free_pieces, &s->free_count, i);
      if (g->copied.stream_id == GMLO_IN) s->pieces[i].read = g->copied.number;
    }
  }
  g->pin = GMLAKE_OFFLOAD_NONE;
  g->is_clean = g->is_released = 0;
  gmlo_session_settle_tensor(s, g);
}

/* 0: the backend or host memory refuses. Where a mock's divisor leaves too little of a piece, all
   begin where the slab does. */
static int gmlo_session_add_slab(gmlake_offload_session *s, size_t count) {
  size_t bytes = count * s->piece_bytes, i, end = s->piece_count + count;
  size_t divisor = s->backend.divisor,
         real = divisor > 1 ? s->piece_bytes / divisor : s->piece_bytes;
  void *ptr = NULL;
  gmlo_host_piece *pieces = (gmlo_host_piece *)gmlo_grow(
      &s->desc.host, s->pieces, s->piece_count, count + 1, &s->piece_capacity, sizeof *pieces);
  uint64_t *heap = NULL;
  if (pieces == NULL) return 0;
  s->pieces = pieces;
  heap = (uint64_t *)gmlo_grow(&s->desc.host, s->free_pieces, s->free_count, end - s->free_count,
                               &s->free_capacity, sizeof *heap);
  if (heap == NULL) return 0;
  s->free_pieces = heap;
  if (divisor > 1 && real < GMLO_REAL_MIN) real = 0;
  if (s->backend.host_alloc(s->backend.user, bytes, &ptr) != 0) return 0;
  memset(pieces + s->piece_count, 0, (count + 1) * sizeof *pieces);
  for (i = s->piece_count; i < end; i++) {
    pieces[i].ptr = (char *)ptr + (i - s->piece_count) * real;
    gmlo_heap_push(heap, &s->free_count, i);
  }
  s->piece_count += count + 1;
  gmlo_count_up(&s->stats.host_bytes, &s->stats.host_bytes_peak, bytes);
  return 1;
}

/* How many pieces a tensor needs. */
static size_t gmlo_session_pieces(const gmlake_offload_session *s, const gmlo_session_tensor *g) {
  size_t count = g->real_bytes / s->piece_bytes + (g->real_bytes % s->piece_bytes != 0);
  return count != 0 ? count : 1;
}

/* Whether so many pieces are free, if need be those of a new slab. */
static int gmlo_session_find_pieces(gmlake_offload_session *s, size_t count) {
  size_t most = s->desc.host_bytes_max, held = s->stats.host_bytes, missing;
  if (s->free_count >= count) return 1;
  missing = count - s->free_count;
  return (most == 0 || (held < most && missing <= (most - held) / s->piece_bytes)) &&
         gmlo_session_add_slab(s, missing);
}

/* The same; where there are too few, of tensors that are also on the device. */
static int gmlo_session_need_pieces(gmlake_offload_session *s, size_t count) {
  size_t i;
  if (gmlo_session_find_pieces(s, count)) return 1;
  for (i = 0; i < s->tensor_count && s->free_count < count; i++) {
    gmlo_session_tensor *g = &s->tensors[i];
    if (g->lives && g->has_bytes && g->pin != GMLAKE_OFFLOAD_NONE) gmlo_session_unpin(s, g);
  }
  return s->free_count >= count;
}

/* Pinned memory for a tensor. */
static gmlake_offload_result gmlo_session_take_pin(gmlake_offload_session *s, uint32_t tensor) {
  gmlo_session_tensor *g = &s->tensors[tensor];
  size_t count = gmlo_session_pieces(s, g);
  if (g->pin != GMLAKE_OFFLOAD_NONE) return GMLAKE_OFFLOAD_OK;
  if (!gmlo_session_need_pieces(s, count)) {
    return gmlo_session_fail(s, GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY, tensor,
                             "there is no pinned memory left for a tensor that has to leave; "
                             "raise host_bytes_max");
  }
  gmlo_session_take_pieces(s, g, count);
  return GMLAKE_OFFLOAD_OK;
}

/* ---- Chunks ---- */

static gmlake_offload_result gmlo_session_discard(gmlake_offload_session *s, uint32_t tensor,
                                                  uint32_t stream_id);

/* Whether what the schedule lets go leaves for chunks that a range had. */
static int gmlo_session_clears(const gmlake_offload_session *s) {
  return gmlo_session_is_planned(s) && s->space.map_ns != 0 && !s->is_held;
}

/* What the schedule lets go leaves where it has chunks that the range had. [S9] */
static void gmlo_session_clear(gmlake_offload_session *s, uint32_t id, uint32_t stream_id) {
  const gmlo_space *t = &s->space;
  size_t i;
  for (i = 0; i < t->ranges[id].used / t->chunk_bytes; i++) {
    uint32_t chunk = t->ranges[id].chunks[i], holder, tensor;
    if (chunk >= t->chunk_count) continue;
    holder = t->chunks[chunk].holder;
    tensor = holder != GMLAKE_OFFLOAD_NONE ? t->ranges[holder].tensor : GMLAKE_OFFLOAD_NONE;
    if (tensor != GMLAKE_OFFLOAD_NONE && s->tensors[tensor].is_released &&
        gmlo_session_discard(s, tensor, stream_id) != GMLAKE_OFFLOAD_OK) {
      return;
    }
  }
}

/* Gives a tensor's range memory: the chunks that it had, if they are free. */
static int gmlo_session_supply(gmlake_offload_session *s, uint32_t tensor, uint32_t stream_id) {
  uint32_t id = s->tensors[tensor].range;
  gmlo_range *range = &s->space.ranges[id];
  void *stream = s->streams[stream_id]->stream;
  int code;
  if (gmlo_session_clears(s)) gmlo_session_clear(s, id, stream_id);
  if (gmlo_space_wish(&s->space, id) != 0 && s->space.map_ns != 0) {
    s->mapped_step = s->step;
    s->is_delayed = 1;
  }
  gmlo_space_hold(&s->space, id, 0); /* it may get others */
  code = s->memory.commit(s->memory.user, range->range, range->used, range->chunks, stream);
  if (code == 0) gmlo_space_hold(&s->space, id, 1);
  return code;
}

/* ---- Leaving ---- */

/* Notes a copy whose begin was stamped. */
static void gmlo_session_measure(gmlake_offload_session *s, int direction, size_t bytes,
                                 uint32_t begun) {
  gmlo_recording *l = gmlo_session_recorded(s);
  uint32_t ended = gmlo_session_stamp(s, (uint32_t)direction);
  gmlo_recording_copy *copy;
  if (ended == GMLAKE_OFFLOAD_NONE) return;
  copy = (gmlo_recording_copy *)gmlo_recording_more(l, &l->copies, l->copy_count, &l->copy_capacity,
                                                    sizeof *copy);
  if (copy == NULL) return;
  l->copy_count++;
  copy->direction = direction;
  copy->bytes = bytes;
  copy->begun = begun;
  copy->ended = ended;
}

/* Queues the copies of a tensor's pieces. 0 if that fails: then none of them runs. */
static int gmlo_session_copy_pieces(gmlake_offload_session *s, const gmlo_session_tensor *g,
                                    int direction) {
  const gmlo_recording *l = gmlo_session_known(s);
  gmlake_offload_copy copy;
  size_t at, left = g->real_bytes;
  memset(&copy, 0, sizeof copy);
  copy.to_host = direction == GMLO_OUT;
  copy.is_divided = s->mapped_step != 0 && (l == NULL || s->step - s->mapped_step <= l->step_count);
  copy.device_ptr = s->space.ranges[g->range].ptr;
  for (at = g->pin; at != GMLAKE_OFFLOAD_NONE; at = s->pieces[at].next) {
    copy.host_ptr = s->pieces[at].ptr;
    copy.bytes = s->pieces[at].run * s->piece_bytes;
    if (copy.bytes > left) copy.bytes = left;
    if (s->backend.copy(s->backend.user, &copy, s->streams[direction]->stream) != 0) {
      if (left != g->real_bytes) (void)gmlo_session_sync(s, (uint32_t)direction);
      return 0;
    }
    copy.device_ptr = (char *)copy.device_ptr + copy.bytes;
    left -= copy.bytes;
  }
  return 1;
}

/* Queues a copy. 0 if that fails: then nothing of it runs. pre: the stream waits for all that the
   copy needs. */
static int gmlo_session_copy(gmlake_offload_session *s, gmlo_session_tensor *g, int direction) {
  uint32_t stream_id = (uint32_t)direction, begun = GMLAKE_OFFLOAD_NONE;
  if (g->real_bytes >= GMLO_MEASURED_BYTES) begun = gmlo_session_stamp(s, stream_id);
  if (!gmlo_session_copy_pieces(s, g, direction)) return 0;
  gmlo_session_only_use(s, g, stream_id);
  g->copied = g->uses[0];
  if (!gmlo_session_fence(s, stream_id) && !gmlo_session_sync(s, stream_id)) return 0;
  if (begun != GMLAKE_OFFLOAD_NONE) gmlo_session_measure(s, direction, g->real_bytes, begun);
  if (direction == GMLO_OUT) {
    s->stats.out_bytes += g->real_bytes;
    s->stats.out_count++;
  } else {
    s->stats.in_bytes += g->real_bytes;
    s->stats.in_count++;
  }
  return 1;
}

/* Copies the bytes to the host, too. */
static gmlake_offload_result gmlo_session_copy_out(gmlake_offload_session *s, uint32_t tensor) {
  gmlo_session_tensor *g = &s->tensors[tensor];
  gmlake_offload_result result = gmlo_session_take_pin(s, tensor);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (!gmlo_session_order(s, GMLO_OUT, g->copied) || !gmlo_session_follow_uses(s, g, GMLO_OUT) ||
      !gmlo_session_copy(s, g, GMLO_OUT)) {
    gmlo_session_unpin(s, g);
    return gmlo_session_refused(s, tensor, "a copy to the host failed; the tensor stays");
  }
  g->is_clean = 1;
  gmlo_session_settle_tensor(s, g);
  return GMLAKE_OFFLOAD_OK;
}

/* Takes a tensor's memory away. */
static gmlake_offload_result gmlo_session_discard(gmlake_offload_session *s, uint32_t tensor,
                                                  uint32_t stream_id) {
  gmlo_session_tensor *g = &s->tensors[tensor];
  gmlo_range *range = &s->space.ranges[g->range];
  if (!gmlo_session_follow_uses(s, g, stream_id) ||
      s->memory.discard(s->memory.user, range->range, range->used, s->streams[stream_id]->stream)) {
    return gmlo_session_refused(s, tensor, "a tensor's memory could not be given up; it stays");
  }
  gmlo_space_hold(&s->space, g->range, 0);
  g->has_memory = g->has_bytes = g->is_released = 0;
  g->use_count = 0;
  g->back = 0;
  gmlo_session_settle_tensor(s, g);
  s->stats.device_bytes -= g->bytes;
  if ((s->desc.flags & GMLAKE_OFFLOAD_CHECKED) != 0 && s->memory.expel != NULL &&
      (!gmlo_session_sync(s, stream_id) || s->memory.expel(s->memory.user) != 0)) {
    return gmlo_session_refused(s, tensor, "what is away could not be unmapped");
  }
  return GMLAKE_OFFLOAD_OK;
}

/* Makes a tensor leave the device. pre: it may. */
static gmlake_offload_result gmlo_session_leave(gmlake_offload_session *s, uint32_t tensor,
                                                int is_demand) {
  gmlo_session_tensor *g = &s->tensors[tensor];
  int is_drop = g->is_clean, was_released = g->is_released;
  gmlake_offload_result result = is_drop ? GMLAKE_OFFLOAD_OK : gmlo_session_copy_out(s, tensor);
  if (result == GMLAKE_OFFLOAD_OK)
    result = gmlo_session_discard(s, tensor, g->use_count == 1 ? g->uses[0].stream_id : GMLO_OUT);
  if (g->has_memory) return result;
  if (was_released) return result; /* it was counted */
  s->stats.drop_count += (uint64_t)is_drop;
  s->stats.demand_out_count += (uint64_t)is_demand;
  return result;
}

/* The schedule makes a tensor leave: of those that have to be copied for it, such a share. [S9]
   pre: it may leave. */
static gmlake_offload_result gmlo_session_let_go(gmlake_offload_session *s, uint32_t tensor,
                                                 double share) {
  gmlo_session_tensor *g = &s->tensors[tensor];
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  if (g->is_clean) {
    s->stats.drop_count++;
  } else {
    s->owed_bytes += share * (double)g->bytes;
    if (s->owed_bytes < (double)g->bytes / 2) return result;
    s->owed_bytes -= (double)g->bytes;
    result = gmlo_session_copy_out(s, tensor);
  }
  g->is_released = result == GMLAKE_OFFLOAD_OK;
  gmlo_session_settle_tensor(s, g);
  return result;
}

/* Makes one tensor leave, for `tensor`. Where pinned memory is short, one that the host has. */
static gmlake_offload_result gmlo_session_evict(gmlake_offload_session *s, uint32_t tensor,
                                                size_t needed, uint32_t stream_id) {
  uint32_t victim = gmlo_session_victim(s, 0);
  gmlake_offload_result result;
  if (victim == GMLAKE_OFFLOAD_NONE || s->is_held) return gmlo_session_too_large(s, tensor, needed);
  if (s->tensors[victim].is_released) return gmlo_session_discard(s, victim, stream_id);
  result = gmlo_session_leave(s, victim, 1);
  if (result != GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY) return result;
  victim = gmlo_session_victim(s, 1);
  return victim == GMLAKE_OFFLOAD_NONE ? result : gmlo_session_leave(s, victim, 1);
}

/* Whether so many more bytes fit under the limit. [S1] */
static int gmlo_session_fits(const gmlake_offload_session *s, size_t bytes) {
  size_t limit = s->desc.limit_bytes;
  return limit == 0 || (bytes <= limit && s->stats.device_bytes <= limit - bytes);
}

/* Memory could not be had, and not for want of room. */
static gmlake_offload_result gmlo_session_broken(gmlake_offload_session *s, uint32_t tensor,
                                                 int code) {
  (void)gmlo_session_refused(s, tensor, "memory could not be had: its functions said ");
  gmlo_session_say(s, NULL, (size_t)code);
  gmlo_session_say(s, "; a lake's say the driver's error, or 2", 0);
  return s->error.result;
}

/* Gives a tensor memory for a stream; others leave for it, if `is_demand`. *out_full: there was no
   room, which is no error without `is_demand`. */
static gmlake_offload_result gmlo_session_commit(gmlake_offload_session *s, uint32_t tensor,
                                                 uint32_t stream_id, int is_demand, int *out_full) {
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  const gmlo_range *range = &s->space.ranges[s->tensors[tensor].range];
  int code = 1;
  *out_full = 0;
  while (result == GMLAKE_OFFLOAD_OK) {
    if (gmlo_session_fits(s, range->used)) {
      code = gmlo_session_supply(s, tensor, stream_id);
      if (code == 0) break;
      if (code != 1) return gmlo_session_broken(s, tensor, code);
    }
    if (!is_demand) {
      uint32_t victim = gmlo_session_victim(s, 1);
      *out_full = victim == GMLAKE_OFFLOAD_NONE || !s->tensors[victim].is_released;
      if (*out_full) return GMLAKE_OFFLOAD_OK;
      result = gmlo_session_discard(s, victim, stream_id);
      continue;
    }
    result = gmlo_session_evict(s, tensor, s->stats.device_bytes + range->used, stream_id);
  }
  if (result != GMLAKE_OFFLOAD_OK) return result;
  s->tensors[tensor].has_memory = 1;
  gmlo_session_settle_tensor(s, &s->tensors[tensor]);
  gmlo_session_only_use(s, &s->tensors[tensor], stream_id);
  gmlo_count_up(&s->stats.device_bytes, &s->stats.device_bytes_peak, range->used);
  return GMLAKE_OFFLOAD_OK;
}

/* ---- Coming back ---- */

/* Fetches a tensor back. *out_full as above. */
static gmlake_offload_result gmlo_session_fetch(gmlake_offload_session *s, uint32_t tensor,
                                                int is_demand, int *out_full) {
  gmlo_session_tensor *g = &s->tensors[tensor];
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  *out_full = 0;
  if (!g->has_memory) result = gmlo_session_commit(s, tensor, GMLO_IN, is_demand, out_full);
  if (result != GMLAKE_OFFLOAD_OK || *out_full) return result;
  if (!gmlo_session_order(s, GMLO_IN, g->copied) || !gmlo_session_copy(s, g, GMLO_IN)) {
    result = gmlo_session_refused(s, tensor, "a copy from the host failed; the host has the bytes");
    (void)gmlo_session_discard(s, tensor, GMLO_IN); /* else it keeps its memory for a later try */
    (void)gmlo_session_refused(s, tensor, "a copy from the host failed; the host has the bytes");
    return result;
  }
  g->has_bytes = g->is_clean = 1;
  g->late = 0;
  gmlo_session_settle_tensor(s, g);
  g->back = g->copied.number;
  s->stats.demand_in_count += (uint64_t)is_demand;
  return GMLAKE_OFFLOAD_OK;
}

/* Makes a tensor usable for work on a stream. */
static gmlake_offload_result gmlo_session_fetch_now(gmlake_offload_session *s, uint32_t tensor,
                                                    uint32_t stream_id) {
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  gmlo_session_tensor *g = &s->tensors[tensor];
  gmlo_fence back;
  int full;
  if (!g->has_bytes) result = gmlo_session_fetch(s, tensor, 1, &full);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  back.stream_id = GMLO_IN;
  back.number = g->back;
  if (!gmlo_session_order(s, stream_id, back) || !gmlo_session_use(s, g, stream_id))
    return gmlo_session_refused(s, tensor, "a stream could not be made to wait");
  return GMLAKE_OFFLOAD_OK;
}

/* Work on a stream may write the tensor from here on: the host's copy of it is none any more. One
   that is still read on its way there, since its memory could not be given up, is waited for. */
static gmlake_offload_result gmlo_session_change(gmlake_offload_session *s, uint32_t tensor,
                                                 uint32_t stream_id) {
  gmlo_session_tensor *g = &s->tensors[tensor];
  size_t i;
  for (i = 0; i < g->use_count; i++) {
    if (g->uses[i].stream_id != GMLO_OUT) continue;
    if (!gmlo_session_order(s, stream_id, g->uses[i]))
      return gmlo_session_refused(s, tensor, "a stream could not be made to wait");
  }
  gmlo_session_unpin(s, g);
  return GMLAKE_OFFLOAD_OK;
}

#define GMLO_PASSED 32u /* tensors that wait for their chunks may be passed by others */

/* Whether a tensor waits before it comes back: other tensors have the chunks that its addresses
   had, and there is time. If it takes other chunks, these lack to the tensor that comes back next,
   which then takes others, too: so a whole iteration is mapped elsewhere. */
static int gmlo_session_waits(gmlake_offload_session *s, const gmlo_late *late) {
  gmlo_range *range = &s->space.ranges[s->tensors[late->tensor].range];
  if (s->tensors[late->tensor].has_memory || s->step >= late->until) return 0;
  return gmlo_session_is_planned(s) && !gmlo_space_is_mapped(&s->space, range, range->used, 1);
}

/* Fetches tensors back as long as there is room: those that the schedule asked for. */
static gmlake_offload_result gmlo_session_fetch_late(gmlake_offload_session *s) {
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  size_t i, kept = 0, passed = 0;
  int full = 0;
  for (i = 0; i < s->late_count; i++) {
    gmlo_late late = s->late[i];
    const gmlo_session_tensor *g = &s->tensors[late.tensor];
    int is_over = full || result != GMLAKE_OFFLOAD_OK || passed > GMLO_PASSED;
    if (is_over && kept == i) return result; /* the rest stays where it is */
    if (!is_over) {
      if (!g->lives || g->late != late.ticket || g->pin == GMLAKE_OFFLOAD_NONE) continue;
      if (gmlo_session_waits(s, &late)) {
        passed++;
      } else {
        result = gmlo_session_fetch(s, late.tensor, 0, &full);
        if (result == GMLAKE_OFFLOAD_OK && !full) continue;
      }
    }
    s->late[kept++] = late;
  }
  s->late_count = kept;
  return result;
}

/* The link as given, as measured, or an H200's. */
static void gmlo_session_link(const gmlake_offload_session *s, double *out, double *in,
                              double *both) {
  *out = s->desc.out_bytes_per_s;
  *in = s->desc.in_bytes_per_s;
  *both = s->desc.both_bytes_per_s;
  gmlo_figure_default(out, s->measured[GMLO_OUT]);
  gmlo_figure_default(in, s->measured[GMLO_IN]);
  gmlo_figure_default(out, *in);
  gmlo_figure_default(in, *out);
  gmlo_figure_default(out, GMLO_LINK_BYTES_PER_S);
  gmlo_figure_default(in, GMLO_LINK_BYTES_PER_S);
  gmlo_figure_default(both, (*out + *in) * (GMLO_BOTH_BYTES_PER_S / GMLO_LINK_BYTES_PER_S / 2));
}

#define GMLO_COPIES_LEFT 8 /* copies of a tensor that its link has time for until its use */

/* The step before which a tensor that comes back waits for its chunks: half of the way to its use,
   or sooner. */
static uint64_t gmlo_session_wait_until(gmlake_offload_session *s, const gmlo_session_tensor *g) {
  size_t way = gmlo_session_expect(s, g);
  double out, in, both, steps;
  if (way == SIZE_MAX || s->schedule.step_ns == 0) return 0;
  gmlo_session_link(s, &out, &in, &both);
  steps = (double)g->bytes / in * 1e9 * (double)s->schedule.step_count /
          (double)s->schedule.step_ns * GMLO_COPIES_LEFT;
  if (steps > (double)way) return 0;
  return s->step + (steps < (double)way / 2 ? way / 2 : way - (size_t)steps);
}

/* Asks for a tensor that is away. 0 if host memory is refused. */
static int gmlo_session_ask(gmlake_offload_session *s, uint32_t tensor) {
  gmlo_late *late = (gmlo_late *)gmlo_more(&s->desc.host, &s->late, s->late_count, 1,
                                           &s->late_capacity, sizeof *late);
  if (late == NULL) return 0;
  late->tensor = tensor;
  late->ticket = s->tensors[tensor].late = ++s->tickets;
  late->until = gmlo_session_wait_until(s, &s->tensors[tensor]);
  s->late_count++;
  return 1;
}

/* How large an iteration is, by what it has allocated: 1 if as large as its slots. */
static double gmlo_session_scale(const gmlake_offload_session *s) {
  return s->alloc_slot_bytes != 0 ? (double)s->alloc_bytes / (double)s->alloc_slot_bytes : 1;
}

/* The part of what the schedule has copied to the host that has to be, if what is still to be
   allocated is as much smaller than its slots as what was allocated in this iteration. */
static double gmlo_session_share(const gmlake_offload_session *s) {
  double all = (double)s->schedule.unplanned_bytes, limit = (double)s->desc.limit_bytes;
  double begun = (double)s->begun_bytes < all ? (double)s->begun_bytes : all;
  double scale = gmlo_session_scale(s), peak = begun + (all - begun) * scale;
  if (scale > .95 || all <= limit) return 1;
  return peak < limit * .95 ? 0 : (peak - limit * .95) / (all - limit * .95);
}

/* Carries out what the schedule says behind the step that has ended. What comes back does so before
   the next step, when the program has freed what ends in this one. */
static gmlake_offload_result gmlo_session_move(gmlake_offload_session *s) {
  gmlo_recording *l = gmlo_session_known(s);
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  double share = gmlo_session_share(s);
  size_t i, end;
  if (s->at == 0) return result;
  end = s->schedule.begin[s->at];
  for (i = s->schedule.begin[s->at - 1]; i < end && result == GMLAKE_OFFLOAD_OK; i++) {
    const gmlo_move *move = &s->schedule.moves[i];
    uint32_t tensor = l->slots[move->slot].tensor;
    gmlo_session_tensor *g;
    if (tensor == GMLAKE_OFFLOAD_NONE) continue;
    g = &s->tensors[tensor];
    if (move->stays) {
      if (gmlo_session_may_leave(s, g) && !g->is_clean && share >= 1 &&
          gmlo_session_find_pieces(s, gmlo_session_pieces(s, g)))
        result = gmlo_session_copy_out(s, tensor);
      continue;
    }
    if (!move->is_in) {
      if (gmlo_session_may_leave(s, g)) result = gmlo_session_let_go(s, tensor, share);
      continue;
    }
    g->is_released = 0;
    gmlo_session_settle_tensor(s, g);
    if (!g->has_bytes && !gmlo_session_ask(s, tensor)) return gmlo_session_no_memory(s);
  }
  return result;
}

/* Makes tensors leave that the host has, and whose next use is farther than so many steps away,
   until so many bytes fit. Whether they do. */
static int gmlo_session_make_way(gmlake_offload_session *s, size_t bytes, size_t steps,
                                 gmlake_offload_result *result) {
  while (!gmlo_session_fits(s, bytes)) {
    uint32_t victim = gmlo_session_victim(s, 1);
    if (victim == GMLAKE_OFFLOAD_NONE || gmlo_session_expect(s, &s->tensors[victim]) <= steps)
      return 0;
    *result = gmlo_session_leave(s, victim, 0);
    if (*result != GMLAKE_OFFLOAD_OK) return 0;
  }
  return 1;
}

/* While no schedule holds, or behind a drift: fetches back what the next steps are expected to use,
   and leaves some room for what is allocated. What the host has, and is used later than that,
   leaves for it; what steps farther away use comes back only into free room, as when the backward
   pass frees memory. */
static gmlake_offload_result gmlo_session_look_ahead(gmlake_offload_session *s) {
  gmlo_recording *l = gmlo_session_known(s);
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  size_t n, part = s->desc.limit_bytes / GMLO_ROOM;
  int full = 0;
  if (s->desc.limit_bytes == 0) return result;
  if (s->ahead < s->at) s->ahead = s->at;
  for (; s->ahead < l->step_count && result == GMLAKE_OFFLOAD_OK; s->ahead++) {
    size_t away = s->ahead - s->at;
    for (n = l->steps[s->ahead].named_begin; n < l->steps[s->ahead].named_end; n++) {
      uint32_t tensor = l->slots[l->named[n].slot].tensor;
      size_t bytes;
      if (tensor == GMLAKE_OFFLOAD_NONE || s->tensors[tensor].has_bytes) continue;
      bytes = s->tensors[tensor].bytes + part;
      if (away < GMLO_AHEAD ? !gmlo_session_make_way(s, bytes, away, &result)
                            : gmlo_session_is_planned(s) || !gmlo_session_fits(s, bytes)) {
        return result;
      }
      result = gmlo_session_fetch(s, tensor, 0, &full);
      if (result != GMLAKE_OFFLOAD_OK || full) return result;
    }
  }
  return result;
}

/* ---- Planning ---- */

/* Whether all events of the known recording are complete: the last one of each stream is. */
static int gmlo_session_is_over(gmlake_offload_session *s) {
  const gmlo_recording *l = gmlo_session_known(s);
  size_t i;
  for (i = 0; i < s->stream_count; i++) {
    size_t last = s->streams[i]->stamped[s->known];
    int done = 0;
    if (last == 0 || last > l->event_count) continue; /* it has none there */
    if (s->backend.event_done(s->backend.user, l->events[last - 1], &done) != 0 || !done) return 0;
  }
  return 1;
}

static uint64_t gmlo_session_between(gmlake_offload_session *s, uint32_t from, uint32_t to) {
  gmlo_recording *l = gmlo_session_known(s);
  uint64_t ns = 0;
  if (from == GMLAKE_OFFLOAD_NONE || to == GMLAKE_OFFLOAD_NONE ||
      s->backend.event_ns(s->backend.user, l->events[from], l->events[to], &ns) != 0) {
    return 0;
  }
  return ns < GMLO_TIME_MAX / 1000000 ? ns : 0;
}

/* Reads the events, as many as one call may: the time of each step, and the link's speed by the
   fastest copies. A step that was faster in a recording before takes that time: in the other one
   the device waited for the host, or for memory. Whether all are read. */
static int gmlo_session_read_times(gmlake_offload_session *s) {
  gmlo_recording *l = gmlo_session_known(s);
  uint32_t before = 0; /* the iteration's begin */
  size_t i, end = s->timed + GMLO_EVENTS_SEEN;
  if (s->timed == 0) s->timed_ns = 0;
  for (i = s->timed; i != 0 && before == 0; i--)
    if (l->steps[i - 1].ended != GMLAKE_OFFLOAD_NONE) before = l->steps[i - 1].ended;
  for (; s->timed < l->step_count && s->timed < end; s->timed++) {
    gmlo_recording_step *step = &l->steps[s->timed];
    uint32_t from = step->begun != GMLAKE_OFFLOAD_NONE ? step->begun : before;
    if (step->ended != GMLAKE_OFFLOAD_NONE) /* else it was made of another one, with its time */
      step->time_ns = gmlo_session_between(s, from, step->ended);
    if (step->fastest_ns != 0 && step->fastest_ns < step->time_ns) step->time_ns = step->fastest_ns;
    s->timed_ns += step->time_ns;
    if (step->ended != GMLAKE_OFFLOAD_NONE) before = step->ended;
  }
  if (s->timed < l->step_count) return 0;
  for (i = 0; i < l->copy_count && i < GMLO_EVENTS_SEEN; i++) {
    const gmlo_recording_copy *copy = &l->copies[i];
    uint64_t ns = gmlo_session_between(s, copy->begun, copy->ended);
    double speed = ns != 0 ? (double)copy->bytes * 1e9 / (double)ns : 0;
    if (speed > s->measured[copy->direction]) s->measured[copy->direction] = speed;
  }
  s->is_timed = 1;
  return 1;
}

/* What pinned tensors and those that no step names take: the plan has to leave that free. */
static size_t gmlo_session_stays(gmlake_offload_session *s) {
  size_t i, bytes = 0;
  for (i = 0; i < s->tensor_count; i++) {
    const gmlo_session_tensor *g = &s->tensors[i];
    if (g->lives && g->slot == GMLAKE_OFFLOAD_NONE &&
        (g->keep_count != 0 || g->real_bytes < s->desc.tensor_bytes_min)) {
      bytes += g->bytes;
    }
  }
  return bytes;
}

/* What a recording is planned for. */
static gmlake_offload_planner_desc gmlo_session_planner(gmlake_offload_session *s) {
  gmlake_offload_planner_desc desc;
  size_t stays = gmlo_session_stays(s);
  memset(&desc, 0, sizeof desc);
  desc.target_bytes = SIZE_MAX / 8; /* no plan can keep to that limit */
  if (s->desc.limit_bytes > stays) desc.target_bytes = s->desc.limit_bytes - stays;
  desc.overhead_max = 0;
  desc.try_count_max = s->desc.try_count_max;
  desc.tensor_bytes_min = s->desc.tensor_bytes_min;
  desc.host = s->desc.host;
  gmlo_session_link(s, &desc.out_bytes_per_s, &desc.in_bytes_per_s, &desc.both_bytes_per_s);
  return desc;
}

/* From now on that is the schedule. */
static void gmlo_session_follow_schedule(gmlake_offload_session *s, const gmlo_schedule *schedule) {
  const gmlo_recording *l = gmlo_session_known(s);
  size_t i;
  gmlo_schedule_free(&s->desc.host, &s->schedule);
  s->schedule = *schedule;
  s->begun_bytes = 0;
  for (i = 0; i < l->slot_count; i++)
    if (l->slots[i].alloc == GMLAKE_OFFLOAD_NONE) s->begun_bytes += l->slots[i].bytes;
  s->has_schedule = 1;
  s->followed = 0;
  s->stats.plan_count++;
}

/* None is better than the schedule that there is. */
static void gmlo_session_keep_schedule(gmlake_offload_session *s) {
  const gmlo_making *m = &s->making;
  gmlo_schedule *schedule = &s->schedule;
  schedule->step_ns = m->step_ns;
  schedule->added_ns = m->added_ns;
  schedule->least_ns = m->bound_ns;
  s->stats.plan_count++;
}

/* Matches what the known recording leaves unmatched. */
static void gmlo_session_match(gmlake_offload_session *s) {
  gmlo_recording_match(gmlo_session_known(s));
  s->is_ranked = 0;
}

/* Begins to make a schedule for the known recording, which may change meanwhile. Without host
   memory for a copy there is none. */
static void gmlo_session_begin_making(gmlake_offload_session *s, int is_review) {
  gmlo_recording *l = gmlo_session_known(s), *made = &s->made;
  gmlake_offload_planner_desc desc = gmlo_session_planner(s);
  gmlo_session_match(s);
  s->made_bytes = l->slot_bytes;
  if (!gmlo_recording_copy_to(l, made)) {
    gmlo_session_stop_making(s);
    return;
  }
  s->makes_review = is_review;
  gmlo_making_begin(&s->making, made, &desc, &s->memory, s->has_schedule ? &s->schedule : NULL,
                    &s->worker.stops);
}

/* ---- Regions ---- */

static int gmlo_is_near(size_t bytes, size_t former) {
  return bytes <= former + former / 8 && bytes >= former - former / 8;
}

static size_t gmlo_sims_unseen(const gmlo_sims *p, size_t count) {
  size_t i, bytes = 0;
  for (i = 0; i < count; i++) bytes += p->keeping.keeps[i].unseen_bytes;
  return bytes;
}

/* Makes the iteration in which so many regions are kept. 0 if host memory is refused. */
static int gmlo_sims_propose(gmlo_sims *p, size_t count) {
  const gmlake_offload_host *host = &p->desc.host;
  const gmlo_recording *l = p->keeping.l;
  gmlo_proposal *proposal = &p->tried;
  size_t i;
  gmlo_proposal_free(host, proposal);
  proposal->slot_of = (uint32_t *)gmlo_zeroed(host, l->slot_count + 1, sizeof *proposal->slot_of);
  proposal->is_kept = (unsigned char *)gmlo_zeroed(host, l->region_count, 1);
  proposal->region_count = l->region_count;
  if (proposal->slot_of == NULL || proposal->is_kept == NULL) return 0;
  for (i = 0; i < count; i++) proposal->is_kept[p->keeping.keeps[i].region] = 1;
  if (!gmlo_keeping_recording(&p->keeping, count, &proposal->recording, proposal->slot_of))
    return 0;
  gmlo_recording_match(&proposal->recording);
  return 1;
}

/* Plans for a number, if that was not done: it is proposed if it is the fastest so far. 0 if host
   memory is refused, or if that is given up. */
static int gmlo_sims_try(gmlo_sims *p, size_t number, const gmlake_offload_memory *memory,
                         const int *stops) {
  gmlake_offload_planner_desc desc = p->desc;
  size_t others = gmlo_sims_unseen(p, number);
  gmlo_proposal former = p->found;
  gmlo_making m;
  int done;
  if (p->ns[number] != 0) return 1;
  done = gmlo_sims_propose(p, number);
  if (others != 0) desc.target_bytes = desc.target_bytes > others ? desc.target_bytes - others : 1;
  gmlo_making_begin(&m, &p->tried.recording, &desc, memory, NULL, stops);
  m.way_count = GMLO_KEEP_WAYS;
  done = done && gmlo_making_run(&m);
  p->work += m.work;
  if (done) {
    p->ns[number] = m.best_ns;
    if (number == 0) p->before_ns = p->ns[0];
    if (m.schedule.planned_bytes > desc.target_bytes) p->ns[number] = UINT64_MAX;
  }
  if (done && p->ns[number] < p->ns[p->best]) {
    p->best = number;
    p->tried.schedule = m.schedule;
    memset(&m.schedule, 0, sizeof m.schedule);
    p->found = p->tried;
    p->tried = former;
  }
  gmlo_making_leave(&m);
  return done;
}

/* Plans for some numbers, then for those that are nearer and nearer to the best. 0 as above: it is
   decided by what is known then. */
static int gmlo_sims_run(gmlo_sims *p, const gmlake_offload_memory *memory, const int *stops) {
  size_t count = p->keeping.count, step = 1 + count / GMLO_KEEP_SIMS, number;
  for (number = 0; number < count + step; number += step)
    if (!gmlo_sims_try(p, number < count ? number : count, memory, stops)) return 0;
  for (step /= 2; step != 0; step /= 2) {
    number = p->best;
    if (number >= step && !gmlo_sims_try(p, number - step, memory, stops)) return 0;
    if (number + step <= count && !gmlo_sims_try(p, number + step, memory, stops)) return 0;
  }
  return 1;
}

/* What a thread does, or else a call. */
static void gmlo_session_work(void *arg) {
  gmlake_offload_session *s = (gmlake_offload_session *)arg;
  gmlo_worker *w = &s->worker;
  int done = s->sims.ns != NULL ? gmlo_sims_run(&s->sims, &s->memory, &w->stops)
                                : gmlo_making_run(&s->making);
  gmlo_store(&w->done, done ? 1 : -1);
}

/* Plans in a thread, or at once. 1 if that has ended, -1 if host memory was refused for it; 0: not
   yet. */
static int gmlo_session_go_on(gmlake_offload_session *s) {
  gmlo_worker *w = &s->worker;
  if (!w->is_running && s->backend.thread_start != NULL) {
    w->done = 0;
    w->is_running = s->backend.thread_start(s->backend.user, gmlo_session_work, s, &w->thread) == 0;
  }
  if (w->is_running) {
    if (gmlo_load(&w->done) == 0) return 0;
    gmlo_session_join(s);
  } else {
    uint64_t work;
    gmlo_session_work(s);
    work = s->making.work + s->sims.work;
    s->stats.plan_work += work;
    if (work > s->stats.plan_work_max) s->stats.plan_work_max = work;
  }
  return w->done;
}

/* That stays so as long as iterations are like the known one. */
static void gmlo_session_settle(gmlake_offload_session *s) {
  s->kept.is_settled = 1;
  s->kept.step_count = gmlo_session_known(s)->step_count;
  s->kept.peak_bytes = s->schedule.unplanned_bytes;
}

/* Whether what is kept still pays where sizes have grown: copies hold an iteration up for less than
   half of what is saved. */
static int gmlo_session_still_pays(const gmlake_offload_session *s) {
  const gmlo_kept *kept = &s->kept;
  return kept->is_kept != NULL && kept->step_count == s->recordings[s->known].step_count &&
         s->schedule.unplanned_bytes > kept->peak_bytes &&
         s->schedule.added_ns < kept->saved_ns / 2 &&
         s->schedule.planned_bytes <= s->schedule.target_bytes;
}

/* A review: what is kept is taken back if two iterations took as long as one without, or one took
   much longer: returns 1. If one without then takes longer still, as all has become slower, it is
   decided once more. */
static int gmlo_session_take_back(gmlake_offload_session *s) {
  gmlo_kept *kept = &s->kept;
  uint64_t before_ns = kept->before_ns;
  if (!gmlo_is_near(s->span_size, kept->before_size)) return 0;
  if (kept->is_kept == NULL) {
    if (!kept->is_settled && kept->failed_ns != 0 && s->span_ns <= kept->failed_ns)
      gmlo_session_settle(s);
    return 0;
  }
  if (before_ns == 0 || s->span_ns < before_ns) return 0;
  if (!kept->is_doubted && s->span_ns - before_ns < before_ns / 8) {
    kept->is_doubted = 1;
    return 0;
  }
  kept->is_settled = 0;
  kept->failed_ns = s->span_ns;
  gmlo_session_keep_none(s);
  return 1;
}

/* How often sizes have to be those of the iteration before until it is decided for them alone which
   regions are kept: where they vary some are the same by chance. */
static uint64_t gmlo_session_steady_due(const gmlake_offload_session *s) {
  return (uint64_t)GMLO_STEADY << s->varied;
}

/* Whether sizes vary, and nothing has to leave if none is kept, or keeping some does not pay where
   all is as large as it was seen. How many there is room for then differs from one iteration to the
   next: the program is told as it comes to each. What would move would be mapped anew each time,
   and the plan does not know the cost. */
static int gmlo_session_keeps_by_room(const gmlake_offload_session *s) {
  return s->is_marked && s->steady_count < gmlo_session_steady_due(s) && s->has_schedule &&
         s->kept.is_kept == NULL && s->desc.limit_bytes != 0 &&
         (s->kept.is_settled || s->schedule.unplanned_bytes <= s->schedule.target_bytes);
}

static void gmlo_by_room_leave(gmlo_by_room *b) {
  size_t margin = b->margin;
  gmlo_keeping_leave(&b->keeping);
  memset(b, 0, sizeof *b);
  b->margin = margin;
}

/* What the known recording needs in each step, and which of its regions can be kept. 0: host memory
   is refused. */
static int gmlo_by_room_begin(gmlo_by_room *b, const gmlo_recording *l) {
  gmlo_keeping *k = &b->keeping;
  int64_t *leaves;
  size_t i;
  gmlo_by_room_leave(b);
  if (!gmlo_keeping_begin(k, l)) return 0;
  b->keep_of = (uint32_t *)gmlo_take(&k->scope, l->region_count, sizeof *b->keep_of);
  b->skip_to = (uint32_t *)gmlo_take(&k->scope, l->step_count, sizeof *b->skip_to);
  if (b->keep_of == NULL || b->skip_to == NULL ||
      !gmlo_profile_take(&b->need, &k->scope, l->step_count + 1)) {
    return 0;
  }
  for (i = 0; i < l->region_count; i++) b->keep_of[i] = GMLAKE_OFFLOAD_NONE;
  for (i = 0; i < k->count; i++) b->keep_of[k->keeps[i].region] = (uint32_t)i;
  for (i = 0; i < l->step_count; i++) b->skip_to[i] = GMLAKE_OFFLOAD_NONE;
  leaves = b->need.tree_max + b->need.leaf_count;
  for (i = 0; i < l->slot_count; i++) {
    const gmlo_slot *slot = &l->slots[i];
    leaves[slot->alloc != GMLAKE_OFFLOAD_NONE ? slot->alloc : 0] += (int64_t)slot->bytes;
    if (slot->freed != GMLAKE_OFFLOAD_NONE) leaves[slot->freed] -= (int64_t)slot->bytes;
  }
  gmlo_profile_close(&b->need);
  b->slot_bytes = l->slot_bytes;
  return 1;
}

/* A region begins: whether it is kept, as there is room for what it makes until the steps that
   would make it again. What else will be there by then is what the known recording has more there
   than now, if its tensors are as much smaller than their slots as those since the last region
   began. So the first one behind steps that made regions again is not kept: those were of another
   batch. */
static int gmlo_session_keep_by_room(gmlake_offload_session *s, uint64_t number) {
  gmlo_by_room *b = &s->by_room;
  const gmlo_recording *l = gmlo_session_known(s);
  const gmlo_region *region;
  size_t slot_bytes = s->alloc_slot_bytes - b->alloc_slot_bytes;
  double scale =
             slot_bytes != 0 ? (double)(s->alloc_bytes - b->alloc_bytes) / (double)slot_bytes : 1,
         more;
  b->alloc_bytes = s->alloc_bytes;
  b->alloc_slot_bytes = s->alloc_slot_bytes;
  if (!gmlo_session_keeps_by_room(s) || s->is_recording || s->is_lost) return 0;
  if (number == 0 && (b->keeping.l == NULL || b->slot_bytes != l->slot_bytes) &&
      !gmlo_by_room_begin(b, l))
    gmlo_by_room_leave(b);
  if (b->keeping.l == NULL || number == 0 || number >= l->region_count) return 0;
  region = &l->regions[number];
  if (region->begin != s->at || l->regions[number - 1].again < region->begin ||
      b->keep_of[number] == GMLAKE_OFFLOAD_NONE) {
    return 0;
  }
  more = (double)gmlo_profile_max(&b->need, region->begin, region->again + 1 - region->begin) -
         (double)gmlo_profile_max(&b->need, region->begin, 1);
  more += (double)b->keeping.keeps[b->keep_of[number]].bytes;
  more = more * scale + (double)b->keeping.keeps[b->keep_of[number]].unseen_bytes;
  if ((double)(s->stats.device_bytes + b->margin) + more > (double)s->desc.limit_bytes) return 0;
  if (b->kept++ == 0) b->out_bytes = s->stats.out_bytes;
  b->skip_to[region->again] = region->again_end;
  return 1;
}

/* The open region has ended for the first time, and is kept: what would be made again is there. */
static void gmlo_session_bind_kept(gmlake_offload_session *s, const gmlo_region *region) {
  gmlo_recording *l = gmlo_session_known(s);
  size_t i = gmlo_recording_first_alloc(l, region->again),
         end = gmlo_recording_first_alloc(l, region->again_end);
  for (; i < end; i++) {
    uint32_t slot = l->allocs[i], dup = s->by_room.keeping.dup[slot], tensor = l->slots[dup].tensor;
    gmlo_recording_widen(l, slot, l->slots[dup].bytes, l->slots[dup].real_bytes);
    if (tensor != GMLAKE_OFFLOAD_NONE && l->slots[dup].freed <= region->end &&
        l->slots[slot].freed > region->again_end)
      gmlo_session_bind(s, tensor, slot);
  }
}

/* The known recording's region that is kept by room; NULL: this number's is not. */
static const gmlo_region *gmlo_session_kept_by_room(const gmlake_offload_session *s,
                                                    uint64_t region) {
  const gmlo_by_room *b = &s->by_room;
  const gmlo_region *known;
  if (b->kept == 0 || region < s->first_region ||
      region - s->first_region >= b->keeping.l->region_count) {
    return NULL;
  }
  known = &b->keeping.l->regions[region - s->first_region];
  return known->again != GMLAKE_OFFLOAD_NONE && b->skip_to[known->again] != GMLAKE_OFFLOAD_NONE
             ? known
             : NULL;
}

/* An iteration has ended. If tensors had to leave, so much more stays free in those to come; after
   others less, also where nothing was kept for it. */
static void gmlo_session_end_by_room(gmlake_offload_session *s) {
  gmlo_by_room *b = &s->by_room;
  uint64_t left = b->kept != 0 ? s->stats.out_bytes - b->out_bytes : 0;
  size_t i;
  b->margin = left != 0 ? b->margin + (size_t)left : b->margin - b->margin / 8;
  if (b->kept != 0)
    for (i = 0; i < b->keeping.l->step_count; i++) b->skip_to[i] = GMLAKE_OFFLOAD_NONE;
  b->kept = b->alloc_bytes = b->alloc_slot_bytes = 0;
}

/* The known recording was planned: decides which regions are kept, or judges that. `is_review`: it
   was timed under its schedule. */
static void gmlo_session_consider(gmlake_offload_session *s, int is_review) {
  const gmlo_recording *l = gmlo_session_known(s);
  gmlo_kept *kept = &s->kept;
  gmlo_sims *p = &s->sims;
  if (!is_review) s->span_ns = 0; /* it is of another schedule */
  if (!s->has_schedule || !s->is_marked || s->alike_count < GMLO_REVIEW - 1 ||
      l->region_count == 0 || s->desc.limit_bytes == 0) {
    return;
  }
  if (kept->is_settled && (kept->step_count == 0 || gmlo_session_still_pays(s))) {
    if (kept->step_count != 0) kept->before_ns = 0; /* what was measured was of a smaller one */
    gmlo_session_settle(s);
  } else if (kept->is_settled && (kept->step_count != l->step_count ||
                                  !gmlo_is_near(s->schedule.unplanned_bytes, kept->peak_bytes))) {
    kept->is_settled = 0; /* the program is another one */
    kept->failed_ns = 0;
    gmlo_session_keep_none(s);
  }
  if (is_review && gmlo_session_take_back(s)) return;
  if (kept->is_settled || kept->changes == GMLO_KEEP_CHANGES || s->proposal.slot_of != NULL ||
      gmlo_session_keeps_by_room(s))
    return;
  if (s->span_ns == 0 && s->alike_count != GMLO_REVIEW_LAST + 1) { /* one is to be timed */
    if (s->alike_count > GMLO_REVIEW_LAST) s->alike_count = GMLO_REVIEW - 1;
    return;
  }
  if (gmlo_recording_copy_to(l, &p->recording) && gmlo_keeping_begin(&p->keeping, &p->recording))
    p->ns = (uint64_t *)gmlo_take(&p->keeping.scope, p->keeping.count + 1, sizeof *p->ns);
  if (p->ns != NULL) {
    p->desc = gmlo_session_planner(s);
    return;
  }
  gmlo_keeping_leave(&p->keeping);
  gmlo_recording_free(&p->recording);
  memset(p, 0, sizeof *p);
  gmlo_session_settle(s);
}

/* All numbers that are worth it are planned for: the iteration that is the shortest is the proposal
   for the next one. */
static void gmlo_session_decide(gmlake_offload_session *s) {
  gmlo_sims *p = &s->sims;
  uint64_t before_ns = p->before_ns;
  s->kept.before_ns = s->span_ns;
  s->kept.before_size = s->span_size;
  if (p->best != 0)
    s->kept.saved_ns =
        p->found.schedule.step_ns < before_ns ? before_ns - p->found.schedule.step_ns : 0;
  if (p->best != 0 && p->ns[p->best] + before_ns / GMLO_KEEP_GAIN <= before_ns) {
    s->proposal = p->found;
    memset(&p->found, 0, sizeof p->found);
  }
  gmlo_session_stop_making(s);
  if (s->proposal.slot_of == NULL) gmlo_session_settle(s);
}

/* An iteration begins: the one that was proposed is the known one. */
static void gmlo_session_take_proposal(gmlake_offload_session *s) {
  gmlo_recording *l = &s->recordings[s->known == 0];
  gmlo_proposal proposal = s->proposal;
  size_t i;
  proposal.recording.events = l->events;
  proposal.recording.made = l->made;
  proposal.recording.event_capacity = l->event_capacity;
  l->events = NULL;
  gmlo_by_room_leave(&s->by_room);
  gmlo_recording_free(l);
  *l = proposal.recording;
  s->known = s->known == 0;
  s->timed = 0;
  gmlo_session_stop_making(s);
  for (i = 0; i < s->tensor_count; i++) {
    gmlo_session_tensor *g = &s->tensors[i];
    if (g->slot != GMLAKE_OFFLOAD_NONE) g->slot = proposal.slot_of[g->slot];
    if (g->carried != GMLAKE_OFFLOAD_NONE) g->carried = proposal.slot_of[g->carried];
    if (g->lives && g->slot != GMLAKE_OFFLOAD_NONE) l->slots[g->slot].tensor = (uint32_t)i;
  }
  gmlo_free(&s->desc.host, s->kept.is_kept);
  s->kept.is_kept = proposal.is_kept;
  s->kept.region_count = proposal.region_count;
  s->kept.is_settled = 1;
  s->kept.is_doubted = 0;
  s->kept.step_count = 0;
  s->kept.changes++;
  gmlo_free(&s->desc.host, proposal.slot_of);
  memset(&s->proposal, 0, sizeof s->proposal);
  s->proposal.recording.host = s->desc.host;
  s->is_confirmed = s->is_review = s->is_timed = 0; /* it is planned once more, in all ways */
  gmlo_session_follow_schedule(s, &proposal.schedule);
}

/* ---- Iterations ---- */

/* Goes on with the schedule that is in the making. Without host memory for it, the session goes on
   with the former one, or without any. */
static void gmlo_session_make(gmlake_offload_session *s) {
  int done = gmlo_session_go_on(s);
  if (done == 0) return;
  if (done > 0 && s->making.is_present) {
    gmlo_session_keep_schedule(s);
  } else if (done > 0) {
    gmlo_session_follow_schedule(s, &s->making.schedule);
    memset(&s->making.schedule, 0, sizeof s->making.schedule);
  }
  gmlo_session_stop_making(s);
  if (done > 0) gmlo_session_consider(s, s->makes_review);
}

/* Plans the known recording when its times are there. With `is_due` this call asks whether they
   are. After schedules in vain as many iterations have to be alike first: where
   all differ a schedule costs time and helps nobody. */
static void gmlo_session_plan(gmlake_offload_session *s, int is_due) {
  int is_review = s->is_review;
  if (s->sims.ns != NULL) {
    if (gmlo_session_go_on(s) != 0) gmlo_session_decide(s);
    return;
  }
  if (s->making.l != NULL) {
    gmlo_session_make(s);
    return;
  }
  if (s->known < 0 || s->is_timed || s->alike_count + GMLO_VAIN < s->vain_count) return;
  if (s->timed == 0 && !(is_due && gmlo_session_is_over(s))) return;
  if (!gmlo_session_read_times(s)) return;
  s->timed = 0;
  s->is_review = 0;
  if (is_review) {
    gmlo_recording *l = gmlo_session_known(s);
    s->span_ns = gmlo_session_between(s, l->steps[0].begun, l->steps[l->step_count - 1].ended);
    s->span_size = s->known_size;
  }
  if (is_review && s->timed_ns + s->timed_ns / GMLO_REVIEW_GAIN >= s->schedule.step_ns) {
    gmlo_session_consider(s, is_review);
    return;
  }
  gmlo_session_begin_making(s, is_review);
  if (s->making.l != NULL) gmlo_session_make(s);
}

/* Where reviews have timed none, as each iteration has other tensors, it is decided without. Where
   sizes no longer vary there are reviews once more. */
static void gmlo_session_consider_late(gmlake_offload_session *s) {
  int is_due =
      s->alike_count == GMLO_REVIEW_LAST + 1
          ? s->span_ns == 0
          : s->alike_count > GMLO_REVIEW_LAST && s->steady_count == gmlo_session_steady_due(s);
  if (is_due && s->is_timed && s->making.l == NULL && s->sims.ns == NULL)
    gmlo_session_consider(s, 0);
}

/* Whether the slots of two recordings have the same numbers: sizes may differ. */
static int gmlo_recording_is_alike(const gmlo_recording *a, const gmlo_recording *b) {
  size_t i;
  if (a->slot_count != b->slot_count || a->step_count != b->step_count) return 0;
  for (i = 0; i < a->slot_count; i++) {
    const gmlo_slot *x = &a->slots[i], *y = &b->slots[i];
    if (x->alloc != y->alloc || x->freed != y->freed ||
        x->use_end - x->use_begin != y->use_end - y->use_begin) {
      return 0;
    }
  }
  return 1;
}

/* The new recording becomes the known one. `is_alike`: it is the same iteration again, so that
   the schedule stays until a new one is made. */
static void gmlo_session_adopt(gmlake_offload_session *s, int is_alike, int is_steady) {
  gmlo_recording *before = gmlo_session_known(s), *l;
  size_t i;
  s->timed = 0;
  gmlo_by_room_leave(&s->by_room);
  for (i = 0; i < s->tensor_count; i++) {
    s->tensors[i].slot = s->tensors[i].learnt;
    s->tensors[i].learnt = GMLAKE_OFFLOAD_NONE;
  }
  s->known = s->known == 0;
  l = gmlo_session_known(s);
  is_alike = is_alike && gmlo_recording_is_alike(before, l);
  for (i = 0; i < l->slot_count && is_alike; i++) {
    l->slots[i].peer = before->slots[i].peer;
    if (!is_steady)
      gmlo_recording_widen(l, (uint32_t)i, before->slots[i].bytes, before->slots[i].real_bytes);
  }
  for (i = 0; i < l->step_count && is_alike; i++) {
    const gmlo_recording_step *old = &before->steps[i];
    l->steps[i].fastest_ns = s->is_timed ? old->time_ns : old->fastest_ns;
  }
  for (i = 0; i < s->tensor_count; i++) {
    if (s->tensors[i].lives && s->tensors[i].slot != GMLAKE_OFFLOAD_NONE)
      l->slots[s->tensors[i].slot].tensor = (uint32_t)i;
  }
  if (!is_alike) {
    if (s->has_schedule && s->followed != 0) s->vain_count = 0;
    if (s->has_schedule && s->followed == 0 && s->vain_count < GMLO_VAIN + GMLO_VAIN_MAX)
      s->vain_count++;
    s->has_schedule = 0;
    gmlo_session_stop_making(s);
    gmlo_schedule_free(&s->desc.host, &s->schedule);
  }
  s->is_confirmed = is_alike;
  s->is_timed = 0;
}

/* Puts what outlived the iteration into the slots that the next one begins with. [L2] */
static void gmlo_session_rebind(gmlake_offload_session *s) {
  gmlo_recording *l = gmlo_session_known(s);
  size_t i;
  for (i = 0; i < s->tensor_count; i++) s->tensors[i].carried = GMLAKE_OFFLOAD_NONE;
  for (i = 0; l != NULL && i < l->alloc_count; i++) {
    const gmlo_slot *carried = &l->slots[l->allocs[i]];
    uint32_t tensor = carried->tensor, old;
    if (tensor == GMLAKE_OFFLOAD_NONE) continue;
    old =
        carried->peer != GMLAKE_OFFLOAD_NONE ? l->slots[carried->peer].tensor : GMLAKE_OFFLOAD_NONE;
    if (old != GMLAKE_OFFLOAD_NONE) gmlo_session_bind(s, old, GMLAKE_OFFLOAD_NONE);
    gmlo_session_bind(s, tensor, carried->peer);
    s->tensors[tensor].carried = l->allocs[i];
  }
}

/* Whether an iteration is timed once more, after so many that were alike: in the first ones the
   host pins and maps memory, and the device waits for it. */
static int gmlo_session_is_reviewed(uint64_t alike_count) {
  return alike_count == GMLO_REVIEW || alike_count == GMLO_REVIEW_LAST;
}

/* What was recorded of an iteration that has ended, if it is to be learnt; else NULL. */
static gmlo_recording *gmlo_session_news(gmlake_offload_session *s, int is_review) {
  const gmlo_recording *known = gmlo_session_known(s);
  gmlo_recording *l = gmlo_session_recorded(s);
  if (l == NULL || known == NULL) return l;
  if (is_review && (s->is_drifted || l->slot_count != known->slot_count)) return NULL;
  if (s->is_drifted || s->steady_count >= GMLO_STEADY) return l;
  if (s->records_more && l->slot_count <= known->slot_count) {
    s->is_more_vain = 1; /* it has others, but not more */
    return NULL;
  }
  return l->slot_count < known->slot_count ? NULL : l; /* some were too small to be seen */
}

/* An iteration has ended, with its regions. */
static void gmlo_session_count_regions(gmlake_offload_session *s) {
  s->stats.region_count = s->region + 1 - s->first_region;
  s->stats.kept_region_count = s->kept_now;
  s->first_region = s->region + 1;
  s->kept_now = 0;
  gmlo_session_end_by_room(s);
}

/* An iteration has ended: whether its sizes are those of the one before. */
static void gmlo_session_compare_sizes(gmlake_offload_session *s) {
  s->steady_count = s->digest == s->last_digest ? s->steady_count + 1 : 0;
  if (s->known >= 0 && !s->is_drifted && s->steady_count == 0 && s->varied < GMLO_KEEP_VARIED)
    s->varied++;
}

/* An iteration has ended: compares, learns and begins the next one. Smaller sizes are learnt when
   three iterations in a row had the same ones. After one that named many tensors which were too
   small when the known one was learnt the next one is learnt. */
static void gmlo_session_next_iteration(gmlake_offload_session *s) {
  gmlo_recording *known = gmlo_session_known(s), *l;
  int is_review = gmlo_session_is_reviewed(s->alike_count);
  int was_timed = s->is_timed; /* else a plan is due already, as for another limit */
  int is_larger = known != NULL && !s->is_more_vain && s->more > known->named_count / GMLO_GROWTH;
  int is_regrouped = s->region + 1 - s->first_region != s->stats.region_count &&
                     s->regroup_count++ < GMLO_REGROUPS; /* it is another program */
  int is_covered, is_same = !s->is_drifted;
  size_t i;
  s->is_ranked = 0;
  gmlo_session_skip(s);
  if (known != NULL && s->at != known->step_count) gmlo_session_drift(s);
  s->followed += s->has_schedule && !s->is_drifted;
  /* Nearly all was known, and what was not did not come again the same way: nothing is learnt. */
  is_covered = s->is_drifted && s->count != s->last_count &&
               s->count - s->met <= s->count / GMLO_COVERED && !is_regrouped;
  gmlo_session_compare_sizes(s);
  l = is_covered ? NULL : gmlo_session_news(s, is_review);
  if (l != NULL && gmlo_recording_close(l)) {
    gmlo_session_adopt(s, known != NULL && !s->is_drifted, s->steady_count >= GMLO_STEADY);
    s->known_size = (unsigned)(1024 * gmlo_session_scale(s));
    s->is_more_vain = 0;
    s->is_review = is_review && was_timed && s->has_schedule;
  } else {
    s->is_confirmed = known != NULL && (!s->is_drifted || is_covered) && !is_larger &&
                      (s->digest == known->digest || s->steady_count < GMLO_STEADY);
  }
  if (l != NULL && gmlo_session_known(s) == l) l->digest = s->digest;
  s->last_digest = s->digest;
  s->digest = 0;
  s->alloc_bytes = s->alloc_slot_bytes = 0;
  s->owed_bytes = 0;
  gmlo_session_rebind(s);
  s->at = s->ahead = s->alloc_at = s->widened_count = 0;
  if (s->proposal.slot_of != NULL && s->is_confirmed && !s->is_drifted) {
    gmlo_session_take_proposal(s);
  } else {
    gmlo_proposal_free(&s->desc.host, &s->proposal);
  }
  if (!is_covered) s->alike_count = s->is_confirmed ? s->alike_count + 1 : 0;
  l = gmlo_session_known(s);
  if (s->is_confirmed && s->has_schedule &&
      l->slot_bytes > s->made_bytes + s->made_bytes / GMLO_GROWTH) {
    s->is_timed = s->is_review = 0;
    gmlo_session_stop_making(s);
  }
  s->records_more = is_larger && !s->is_drifted;
  s->is_recording = !s->is_confirmed || (s->is_timed && gmlo_session_is_reviewed(s->alike_count));
  s->is_drifted = s->is_lost = 0;
  s->last_count = s->count;
  s->count = s->met = s->more = 0;
  s->first_step = s->step + (s->is_open ? 0 : 1);
  l = gmlo_session_recorded(s);
  for (i = 0; l != NULL && i < s->tensor_count; i++) s->tensors[i].learnt = GMLAKE_OFFLOAD_NONE;
  if (l != NULL) gmlo_recording_clear(l);
  s->stats.iteration_count++;
  gmlo_session_count_regions(s);
  gmlo_session_plan(s, 1);
  if (is_same) gmlo_session_consider_late(s);
}

static uint64_t gmlo_session_print(const gmlake_offload_step *step) {
  uint64_t print = step->key ^ step->read_count << 32 ^ step->write_count << 48;
  size_t i;
  for (i = 0; i < step->read_count + step->write_count; i++) {
    uint32_t id = i < step->read_count ? step->reads[i] : step->writes[i - step->read_count];
    print = (print ^ print >> 29 ^ id) * UINT64_C(0x9E3779B97F4A7C15);
  }
  return print ^ print >> 32;
}

/* Whether an iteration begins with this step. [S6] */
static int gmlo_session_is_first(gmlake_offload_session *s, const gmlake_offload_step *step) {
  uint64_t print = gmlo_session_print(step);
  uint64_t period =
      gmlo_detector_note(&s->detector, &s->desc.host, print, step->read_count + step->write_count);
  int is_new = period != 0 && period != s->period;
  s->since++;
  if (s->is_held) return 0;
  if (!is_new) {
    if (s->period == 0 || s->since < s->period) return 0;
    if (s->is_drifted && period == 0 && print != s->first_print) return 0;
  }
  if (is_new) s->period = period;
  s->since = 0;
  s->first_print = print;
  return 1;
}

/* ---- Tensors ---- */

/* A range of so many bytes. NONE if one is not to be had. */
static uint32_t gmlo_session_range(gmlake_offload_session *s, size_t bytes, uint32_t slot) {
  gmlo_space *t = &s->space;
  size_t most = s->desc.limit_bytes != 0 ? s->desc.limit_bytes : s->stats.device_bytes_peak;
  uint32_t id, wanted = GMLAKE_OFFLOAD_NONE;
  gmlo_place *by_address;
  gmlo_range *range;
  void *ptr = NULL;
  size_t at;
  t->most_bytes = GMLO_ADDRESSES * most;
  if (slot != GMLAKE_OFFLOAD_NONE) wanted = gmlo_session_known(s)->slots[slot].range;
  id = gmlo_space_idle(t, bytes, wanted, gmlo_session_clears(s));
  if (id != GMLAKE_OFFLOAD_NONE) return id;
  by_address = (gmlo_place *)gmlo_grow(&s->desc.host, s->by_address, t->range_count, 1,
                                       &s->address_capacity, sizeof *by_address);
  if (by_address != NULL) s->by_address = by_address;
  if (by_address != NULL) id = gmlo_space_add(t, bytes);
  if (id == GMLAKE_OFFLOAD_NONE) {
    (void)gmlo_session_no_memory(s);
    return id;
  }
  range = &t->ranges[id];
  if (s->memory.reserve(s->memory.user, bytes, &range->range, &ptr) != 0) {
    (void)gmlo_session_refused(s, GMLAKE_OFFLOAD_NONE, "addresses for a tensor could not be had");
    gmlo_space_drop(t);
    return gmlo_space_any(t, bytes);
  }
  range->ptr = (char *)ptr;
  at = gmlo_count_to(by_address, id, sizeof *by_address, (uintptr_t)ptr);
  memmove(by_address + at + 1, by_address + at, (id - at) * sizeof *by_address);
  by_address[at].address = (uintptr_t)ptr;
  by_address[at].range = id;
  return id;
}

/* Makes room for one more tensor, also in the lists. 0 if host memory is refused. */
static int gmlo_session_room_for_tensor(gmlake_offload_session *s) {
  const gmlake_offload_host *host = &s->desc.host;
  uint64_t *spares = (uint64_t *)gmlo_grow(host, s->spare_ids, s->spare_count,
                                           s->tensor_count + 1 - s->spare_count, &s->spare_capacity,
                                           sizeof *spares);
  gmlo_session_tensor *tensors;
  uint32_t *ranks;
  if (spares == NULL) return 0;
  s->spare_ids = spares;
  tensors = (gmlo_session_tensor *)gmlo_grow(host, s->tensors, s->tensor_count, 1,
                                             &s->tensor_capacity, sizeof *tensors);
  if (tensors == NULL) return 0;
  s->tensors = tensors;
  if (s->rank_capacity == s->tensor_capacity) return 1;
  ranks = (uint32_t *)gmlo_malloc(host, s->tensor_capacity * GMLO_RANKS * sizeof *ranks);
  if (ranks == NULL) return 0;
  if (s->open_count != 0) memcpy(ranks, s->open, s->open_count * sizeof *ranks);
  gmlo_free(host, s->ranks);
  s->ranks = s->open = ranks; /* GMLO_RANK_NONE has no heap */
  s->rank_capacity = s->tensor_capacity;
  s->is_ranked = 0;
  return 1;
}

/* The lowest number that no tensor has; NONE if host memory is refused. */
static uint32_t gmlo_session_new_tensor(gmlake_offload_session *s) {
  if (s->spare_count == 0) {
    if (!gmlo_session_room_for_tensor(s)) {
      (void)gmlo_session_no_memory(s);
      return GMLAKE_OFFLOAD_NONE;
    }
    memset(&s->tensors[s->tensor_count], 0, sizeof *s->tensors);
    gmlo_heap_push(s->spare_ids, &s->spare_count, s->tensor_count++);
  }
  return (uint32_t)s->spare_ids[0];
}

/* A tensor without memory. NONE: the error says why. */
static uint32_t gmlo_session_new(gmlake_offload_session *s, size_t bytes) {
  size_t chunk = s->memory.chunk_bytes, whole = (bytes + chunk - 1) / chunk * chunk;
  uint32_t tensor = gmlo_session_new_tensor(s), range;
  gmlo_session_tensor *g;
  int is_listed;
  if (tensor == GMLAKE_OFFLOAD_NONE) return tensor;
  if (whole == 0) whole = chunk;
  range = gmlo_session_range(s, whole, gmlo_session_next_alloc(s, whole));
  if (range == GMLAKE_OFFLOAD_NONE) return range;
  g = &s->tensors[tensor];
  is_listed = g->is_listed; /* the number may have been another tensor's in this step */
  memset(g, 0, sizeof *g);
  g->is_listed = is_listed;
  g->bytes = s->space.ranges[range].used = whole;
  g->real_bytes = bytes;
  g->range = range;
  g->pin = g->slot = g->learnt = g->carried = GMLAKE_OFFLOAD_NONE;
  return tensor;
}

/* A step's time counts from the end of the one before on its stream: where the device waits for the
   host, that is part of it. But behind chunks that the session mapped since, or a stream that it
   makes wait, which a later iteration does not repeat, it counts from here on. */
static void gmlo_session_restamp(gmlake_offload_session *s, uint32_t stream_id) {
  gmlo_recording *l = gmlo_session_recorded(s);
  if (l == NULL || !s->is_open || s->is_held || l->step_count == 0) return;
  if (!s->is_delayed && l->step_count != 1 && s->ended_stream_id == stream_id) return;
  l->steps[l->step_count - 1].begun = gmlo_session_stamp(s, stream_id);
}

static gmlake_offload_result gmlo_session_alloc(gmlake_offload_session *s, uint32_t tensor,
                                                uint32_t stream_id) {
  gmlo_session_tensor *g = &s->tensors[tensor];
  gmlo_recording *l = gmlo_session_recorded(s);
  int full = 0;
  size_t stuck = s->stuck_bytes + g->bytes;
  gmlake_offload_result result;
  if (s->desc.limit_bytes != 0 && stuck > s->desc.limit_bytes)
    return gmlo_session_too_large(s, GMLAKE_OFFLOAD_NONE, stuck);
  result = gmlo_session_commit(s, tensor, stream_id, 1, &full);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  g->lives = g->has_bytes = 1;
  gmlo_space_lift(&s->space, g->range, tensor);
  (void)gmlo_heap_pop(s->spare_ids, &s->spare_count);
  gmlo_session_list(s, tensor);
  if (s->open_region == 0 || !s->is_again) /* else that depends on what is kept */
    s->digest = (s->digest ^ g->bytes) * UINT64_C(0x9E3779B97F4A7C15) + 1;
  s->stats.tensor_count++;
  s->stats.tensor_bytes += g->real_bytes;
  if (l != NULL) {
    g->learnt =
        gmlo_recording_add_slot(l, g->bytes, g->real_bytes, gmlo_session_now(s, l->step_count));
    if (g->learnt != GMLAKE_OFFLOAD_NONE) l->slots[g->learnt].range = g->range;
  }
  gmlo_session_follow_alloc(s, tensor);
  gmlo_session_restamp(s, stream_id);
  return GMLAKE_OFFLOAD_OK;
}

/* pre: its memory is gone. */
static void gmlo_session_free_tensor(gmlake_offload_session *s, uint32_t tensor) {
  gmlo_session_tensor *g = &s->tensors[tensor];
  gmlo_recording *l = gmlo_session_recorded(s);
  if (l != NULL && g->learnt == GMLAKE_OFFLOAD_NONE) (void)gmlo_session_learn(s, g);
  if (l != NULL && !l->is_broken) l->slots[g->learnt].freed = (uint32_t)l->step_count;
  if (g->slot != GMLAKE_OFFLOAD_NONE) gmlo_session_bind(s, tensor, GMLAKE_OFFLOAD_NONE);
  gmlo_session_unpin(s, g);
  gmlo_space_lay(&s->space, g->range);
  g->lives = 0;
  gmlo_heap_push(s->spare_ids, &s->spare_count, tensor);
  gmlo_session_settle_tensor(s, g);
  s->stats.tensor_count--;
  s->stats.tensor_bytes -= g->real_bytes;
}

static int gmlo_session_lives(const gmlake_offload_session *s, uint32_t tensor) {
  return tensor < s->tensor_count && s->tensors[tensor].lives;
}

static gmlake_offload_result gmlo_session_unknown(gmlake_offload_session *s, uint32_t tensor) {
  return gmlo_session_fail(s, GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID, tensor,
                           "the session has no tensor of that number");
}

/* Marks what the step names. */
static gmlake_offload_result gmlo_session_lock(gmlake_offload_session *s,
                                               const gmlake_offload_step *step) {
  size_t i, count = step->read_count + step->write_count;
  for (i = 0; i < count; i++) {
    const int writes = i >= step->read_count;
    uint32_t id = writes ? step->writes[i - step->read_count] : step->reads[i];
    uint64_t list = 2 * s->step + (uint64_t)writes;
    if (!gmlo_session_lives(s, id)) return gmlo_session_unknown(s, id);
    if (s->tensors[id].list == list)
      return gmlo_session_fail(s, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, id,
                               "a step names a tensor twice in reads, or twice in writes");
    s->tensors[id].is_released = 0;
    gmlo_session_list(s, id);
    s->tensors[id].list = list;
  }
  return GMLAKE_OFFLOAD_OK;
}

static gmlake_offload_result gmlo_session_begin(gmlake_offload_session *s,
                                                const gmlake_offload_step *step) {
  size_t i, count = step->read_count + step->write_count;
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  for (i = 0; i < count && result == GMLAKE_OFFLOAD_OK; i++) {
    uint32_t id = i < step->read_count ? step->reads[i] : step->writes[i - step->read_count];
    const gmlo_session_tensor *g = &s->tensors[id];
    if (!s->is_held) continue;
    if (!g->has_bytes || s->streams[s->open_stream_id]->seen[GMLO_IN] < g->back)
      return gmlo_session_fail(s, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, id,
                               "the tensor is away while the session is held; name it in a step "
                               "on this stream before that");
  }
  if (s->late_count != 0 && !s->is_held) result = gmlo_session_fetch_late(s);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (s->desc.limit_bytes != 0 && s->stuck_bytes > s->desc.limit_bytes && !s->is_held)
    return gmlo_session_too_large(s, GMLAKE_OFFLOAD_NONE, s->stuck_bytes);
  while (!gmlo_session_fits(s, 0) && result == GMLAKE_OFFLOAD_OK && !s->is_held)
    result = gmlo_session_evict(s, GMLAKE_OFFLOAD_NONE, s->stats.device_bytes, s->open_stream_id);
  for (i = 0; i < count && result == GMLAKE_OFFLOAD_OK; i++) {
    uint32_t id = i < step->read_count ? step->reads[i] : step->writes[i - step->read_count];
    result = gmlo_session_fetch_now(s, id, s->open_stream_id);
  }
  for (i = 0; i < step->write_count && result == GMLAKE_OFFLOAD_OK; i++)
    result = gmlo_session_change(s, step->writes[i], s->open_stream_id);
  return result;
}

/* Whether somebody may wait for the end of the step that has ended, and not of a later one: of any
   behind a drift, of none where nothing moves. A fence costs the host a call of the driver. */
static int gmlo_session_is_asked(const gmlake_offload_session *s) {
  if (!gmlo_session_is_planned(s) || s->is_drifted) return 1;
  return s->schedule.begin[s->schedule.step_count] != 0 &&
         (s->at % GMLO_FENCED == 0 || s->schedule.is_asked[s->at - 1]);
}

/* Ends the step, whether what follows succeeds or not. */
static gmlake_offload_result gmlo_session_end(gmlake_offload_session *s) {
  gmlo_recording *l = gmlo_session_recorded(s);
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  uint32_t ended;
  gmlo_session_close(s);
  s->is_delayed = 0;
  if (s->is_held) return GMLAKE_OFFLOAD_OK;
  if (gmlo_session_is_asked(s))
    (void)gmlo_session_fence(s, s->open_stream_id); /* if it fails, a later fence is as good */
  ended = gmlo_session_stamp(s, s->open_stream_id);
  s->ended_stream_id = s->open_stream_id;
  if (l != NULL && l->step_count != 0) l->steps[l->step_count - 1].ended = ended;
  if (gmlo_session_is_planned(s)) result = gmlo_session_move(s);
  if (s->known < 0 || s->is_lost || (s->has_schedule && !s->is_drifted)) return result;
  return result == GMLAKE_OFFLOAD_OK ? gmlo_session_look_ahead(s) : result;
}

static void gmlo_session_free_recording(gmlake_offload_session *s, gmlo_recording *l) {
  size_t i;
  for (i = 0; i < l->made; i++) s->backend.event_destroy(s->backend.user, l->events[i]);
  gmlo_recording_free(l);
}

static void gmlo_session_free(gmlake_offload_session *s) {
  gmlake_offload_host host = s->desc.host;
  size_t i, n;
  for (i = 0; i < s->stream_count; i++)
    (void)s->backend.stream_sync(s->backend.user, s->streams[i]->stream);
  for (i = 0; i < s->tensor_count; i++) {
    const gmlo_range *range;
    if (!s->tensors[i].has_memory) continue;
    range = &s->space.ranges[s->tensors[i].range];
    (void)s->memory.discard(s->memory.user, range->range, range->used, s->backend.out_stream);
  }
  for (i = 0; i < s->space.range_count; i++)
    s->memory.release(s->memory.user, s->space.ranges[i].range, s->backend.out_stream);
  gmlo_space_leave(&s->space);
  for (i = 0; i < s->piece_count; i = n + 1) {
    for (n = i; s->pieces[n].ptr != NULL; n++) {
    }
    s->backend.host_free(s->backend.user, s->pieces[i].ptr, (n - i) * s->piece_bytes);
  }
  for (i = 0; i < s->stream_count; i++) {
    for (n = 0; n < GMLO_FENCES; n++)
      if (s->streams[i]->events[n] != NULL)
        s->backend.event_destroy(s->backend.user, s->streams[i]->events[n]);
    gmlo_free(&host, s->streams[i]);
  }
  gmlo_session_free_recording(s, &s->recordings[0]);
  gmlo_session_free_recording(s, &s->recordings[1]);
  gmlo_session_stop_making(s);
  gmlo_schedule_free(&host, &s->schedule);
  gmlo_session_keep_none(s);
  gmlo_by_room_leave(&s->by_room);
  gmlo_free(&host, s->tensors);
  gmlo_free(&host, s->spare_ids);
  gmlo_free(&host, s->ranks);
  gmlo_free(&host, s->by_address);
  gmlo_free(&host, s->pieces);
  gmlo_free(&host, s->free_pieces);
  gmlo_free(&host, s->late);
  gmlo_free(&host, s->widened);
  gmlo_free(&host, s->detector.past);
  gmlo_free(&host, s);
}

static int gmlo_session_desc_valid(const gmlake_offload_session_desc *desc) {
  return desc != NULL && gmlo_backend_valid(desc->backend, 0) && gmlo_memory_valid(desc->memory) &&
         (desc->flags & ~GMLAKE_OFFLOAD_CHECKED) == 0 && gmlo_figure_valid(desc->out_bytes_per_s) &&
         gmlo_figure_valid(desc->in_bytes_per_s) && gmlo_figure_valid(desc->both_bytes_per_s) &&
         gmlo_host_valid(&desc->host);
}

/* ---- Public functions ---- */

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_create(
    const gmlake_offload_session_desc *desc, gmlake_offload_session **out_session) {
  gmlake_offload_session *s;
  if (out_session == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_session = NULL;
  if (!gmlo_session_desc_valid(desc)) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  s = (gmlake_offload_session *)gmlo_zeroed(&desc->host, 1, sizeof *s);
  if (s == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  s->desc = *desc;
  s->backend = *desc->backend;
  if (s->backend.thread_join == NULL) s->backend.thread_start = NULL;
  s->memory = *desc->memory;
  s->known = -1;
  s->piece_bytes = s->memory.chunk_bytes;
  gmlo_space_init(&s->space, &desc->host, s->memory.chunk_bytes, s->memory.map_ns);
  if (s->piece_bytes > GMLO_PIECE_MAX) s->piece_bytes = GMLO_PIECE_MAX;
  s->recordings[0].host = s->recordings[1].host = s->proposal.recording.host = desc->host;
  s->first_region = 1;
  if (s->desc.tensor_bytes_min == 0) s->desc.tensor_bytes_min = GMLO_TENSOR_BYTES_MIN;
  if (gmlo_session_stream(s, s->backend.out_stream) != GMLO_OUT ||
      gmlo_session_stream(s, s->backend.in_stream) != GMLO_IN) {
    gmlake_offload_result result = s->stream_count == 1 && s->error.result == GMLAKE_OFFLOAD_OK
                                       ? GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT
                                       : GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
    gmlo_session_free(s);
    return result;
  }
  *out_session = s;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_session_destroy(gmlake_offload_session *session) {
  if (session != NULL) gmlo_session_free(session);
}

/* Whether a call may begin: no other one is under way, of this thread or, where the compiler has
   atomic operations, of another one. */
static int gmlo_session_claim(gmlake_offload_session *s) {
#if defined(__GNUC__)
  if (__atomic_exchange_n(&s->is_busy, 1, __ATOMIC_ACQUIRE)) return 0;
#else
  if (s->is_busy) return 0;
  s->is_busy = 1;
#endif
  return 1;
}

/* Refuses a call inside another one. */
static gmlake_offload_result gmlo_session_enter(gmlake_offload_session *s) {
  if (s == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  if (gmlo_session_claim(s)) return GMLAKE_OFFLOAD_OK;
  return gmlo_session_invalid(s, "another call of the session is under way");
}

static gmlake_offload_result gmlo_session_exit(gmlake_offload_session *s,
                                               gmlake_offload_result result) {
  gmlo_store(&s->is_busy, 0);
  return result;
}

/* Enters a call about a tensor and a stream; after an error the call has ended. */
static gmlake_offload_result gmlo_session_enter_on(gmlake_offload_session *s, uint32_t tensor,
                                                   void *stream, uint32_t *out_stream_id) {
  gmlake_offload_result result = gmlo_session_enter(s);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  *out_stream_id = gmlo_session_stream(s, stream);
  if (*out_stream_id == GMLO_STREAMS_MAX) return gmlo_session_exit(s, s->error.result);
  if (!gmlo_session_lives(s, tensor)) return gmlo_session_exit(s, gmlo_session_unknown(s, tensor));
  return result;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_alloc(gmlake_offload_session *session, size_t bytes, void *stream,
                             uint32_t *out_tensor, void **out_ptr) {
  gmlake_offload_result result = gmlo_session_enter(session);
  uint32_t tensor, stream_id;
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (out_tensor != NULL) *out_tensor = GMLAKE_OFFLOAD_NONE;
  if (out_ptr != NULL) *out_ptr = NULL;
  stream_id = gmlo_session_stream(session, stream);
  if (out_tensor == NULL || out_ptr == NULL || bytes > GMLO_BYTES_MAX) {
    result =
        gmlo_session_invalid(session, "out_tensor or out_ptr is NULL, or the tensor too large");
  } else if (stream_id == GMLO_STREAMS_MAX) {
    result = session->error.result;
  } else {
    tensor = gmlo_session_new(session, bytes);
    result = tensor == GMLAKE_OFFLOAD_NONE ? session->error.result
                                           : gmlo_session_alloc(session, tensor, stream_id);
    if (result == GMLAKE_OFFLOAD_OK) *out_tensor = tensor;
    if (result == GMLAKE_OFFLOAD_OK)
      *out_ptr = session->space.ranges[session->tensors[tensor].range].ptr;
  }
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_free(gmlake_offload_session *session, uint32_t tensor, void *stream) {
  uint32_t stream_id;
  gmlake_offload_result result = gmlo_session_enter_on(session, tensor, stream, &stream_id);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (session->tensors[tensor].has_memory)
    result = gmlo_session_discard(session, tensor, stream_id);
  if (!session->tensors[tensor].has_memory) gmlo_session_free_tensor(session, tensor);
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_find(const gmlake_offload_session *session, const void *ptr,
                            uint32_t *out_tensor, size_t *out_offset) {
  const gmlo_range *range;
  size_t at;
  if (session == NULL || out_tensor == NULL || out_offset == NULL)
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  at = gmlo_count_to(session->by_address, session->space.range_count, sizeof *session->by_address,
                     (uintptr_t)ptr);
  *out_tensor = GMLAKE_OFFLOAD_NONE;
  if (at == 0) return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  range = &session->space.ranges[session->by_address[at - 1].range];
  *out_offset = (size_t)((uintptr_t)ptr - (uintptr_t)range->ptr);
  if (*out_offset >= range->used || range->tensor == GMLAKE_OFFLOAD_NONE)
    return GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID;
  *out_tensor = range->tensor;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_begin(gmlake_offload_session *session, const gmlake_offload_step *step) {
  gmlake_offload_result result = gmlo_session_enter(session);
  gmlo_recording *l;
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (step == NULL || session->is_open || (step->reads == NULL && step->read_count != 0) ||
      (step->writes == NULL && step->write_count != 0)) {
    return gmlo_session_exit(session,
                             gmlo_session_invalid(session, "a step is open, or lists are NULL"));
  }
  session->open_stream_id = gmlo_session_stream(session, step->stream);
  if (session->open_stream_id == GMLO_STREAMS_MAX)
    return gmlo_session_exit(session, session->error.result);
  if (session->open_stream_id == GMLO_OUT || session->open_stream_id == GMLO_IN)
    return gmlo_session_exit(
        session,
        gmlo_session_invalid(session, "a step's stream is one that the session copies on"));
  if (!session->is_held) gmlo_session_plan(session, session->step % 64 == 0);
  session->step++;
  session->is_open = 1;
  result = gmlo_session_lock(session, step);
  if (result == GMLAKE_OFFLOAD_OK) result = gmlo_session_begin(session, step);
  if (result != GMLAKE_OFFLOAD_OK) {
    gmlo_session_close(session);
    return gmlo_session_exit(session, result);
  }
  session->stats.step_count++;
  if (!session->is_marked && gmlo_session_is_first(session, step))
    gmlo_session_next_iteration(session);
  l = gmlo_session_recorded(session);
  if (l != NULL && session->is_held) l->is_broken = 1;
  gmlo_session_learn_step(session, step);
  gmlo_session_restamp(session, session->open_stream_id);
  gmlo_session_follow(session, step);
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_end(gmlake_offload_session *session) {
  gmlake_offload_result result = gmlo_session_enter(session);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  result = session->is_open ? gmlo_session_end(session)
                            : gmlo_session_invalid(session, "no step is open");
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_mark(gmlake_offload_session *session) {
  gmlake_offload_result result = gmlo_session_enter(session);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (session->is_open || session->is_held || session->open_region != 0) {
    result = gmlo_session_invalid(session,
                                  "an iteration cannot begin in a step or a region, or while the "
                                  "session is held");
  } else {
    gmlo_free(&session->desc.host, session->detector.past);
    memset(&session->detector, 0, sizeof session->detector);
    session->is_marked = 1;
    gmlo_session_next_iteration(session);
  }
  return gmlo_session_exit(session, result);
}

/* Whether a region may begin. In an open step it may not: what the region allocates first would be
   the step's. */
static gmlake_offload_result gmlo_session_check_region(gmlake_offload_session *s) {
  if (s->is_open) return gmlo_session_invalid(s, "a step is open; end it before the region begins");
  if (s->open_region == 0) return GMLAKE_OFFLOAD_OK;
  return gmlo_session_invalid(s, "a region is open; tell only the outermost of nested ones");
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_region(
    gmlake_offload_session *session, uint64_t *out_region, int *out_is_kept) {
  gmlake_offload_result result = gmlo_session_enter(session);
  uint64_t number;
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (out_region == NULL || out_is_kept == NULL) {
    result = gmlo_session_invalid(session, "out_region or out_is_kept is NULL");
  } else if ((result = gmlo_session_check_region(session)) == GMLAKE_OFFLOAD_OK) {
    *out_region = session->open_region = ++session->region;
    number = session->region - session->first_region;
    *out_is_kept = session->kept.is_kept != NULL && number < session->kept.region_count &&
                   session->kept.is_kept[number];
    if (!*out_is_kept) *out_is_kept = gmlo_session_keep_by_room(session, number);
    session->kept_now += (uint64_t)*out_is_kept;
    session->is_again = 0;
    if (session->is_recording) gmlo_recording_add_region(gmlo_session_recorded(session), number);
  }
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_recompute(gmlake_offload_session *session, uint64_t region) {
  gmlake_offload_result result = gmlo_session_enter(session);
  const gmlo_region *known;
  gmlo_region *record;
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (region == 0 || region > session->region) {
    result = gmlo_session_fail(session, GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID, GMLAKE_OFFLOAD_NONE,
                               "there was no region of that number");
  } else if ((result = gmlo_session_check_region(session)) == GMLAKE_OFFLOAD_OK) {
    known = gmlo_session_kept_by_room(session, region);
    if (known != NULL) session->by_room.skip_to[known->again] = GMLAKE_OFFLOAD_NONE;
    session->open_region = region;
    session->is_again = 1;
    record = gmlo_session_region(session);
    if (record != NULL && record->again != GMLAKE_OFFLOAD_NONE) record->is_odd = 1;
    if (record != NULL) record->again = (uint32_t)gmlo_session_recorded(session)->step_count;
  }
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_region_end(gmlake_offload_session *session, size_t unseen_bytes) {
  gmlake_offload_result result = gmlo_session_enter(session);
  const gmlo_region *known;
  gmlo_region *record;
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (session->open_region == 0 || session->is_open) {
    result = gmlo_session_invalid(session, "no region is open, or a step in it is");
  } else {
    record = gmlo_session_region(session);
    if (record != NULL)
      *(session->is_again ? &record->again_end : &record->end) =
          (uint32_t)gmlo_session_recorded(session)->step_count;
    if (record != NULL && session->is_again) record->unseen_bytes = unseen_bytes;
    known = session->is_again ? NULL : gmlo_session_kept_by_room(session, session->open_region);
    if (known != NULL) gmlo_session_bind_kept(session, known);
    session->open_region = 0;
  }
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_pin(gmlake_offload_session *session,
                                                                    uint32_t tensor, void *stream) {
  uint32_t stream_id;
  gmlake_offload_result result = gmlo_session_enter_on(session, tensor, stream, &stream_id);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (session->is_held && !session->tensors[tensor].has_bytes) {
    result = gmlo_session_fail(session, GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT, tensor,
                               "the tensor is away while the session is held");
  } else {
    session->tensors[tensor].keep_count++;
    gmlo_session_settle_tensor(session, &session->tensors[tensor]);
    result = gmlo_session_fetch_now(session, tensor, stream_id);
    if (result == GMLAKE_OFFLOAD_OK) result = gmlo_session_change(session, tensor, stream_id);
    if (result != GMLAKE_OFFLOAD_OK) session->tensors[tensor].keep_count--;
    gmlo_session_settle_tensor(session, &session->tensors[tensor]);
  }
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_unpin(gmlake_offload_session *session, uint32_t tensor, void *stream) {
  uint32_t stream_id;
  gmlake_offload_result result = gmlo_session_enter_on(session, tensor, stream, &stream_id);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (session->tensors[tensor].keep_count == 0) {
    result = gmlo_session_unknown(session, tensor);
  } else if (!gmlo_session_use(session, &session->tensors[tensor], stream_id)) {
    result = gmlo_session_refused(session, tensor, "a stream could not be made to wait");
  } else {
    session->tensors[tensor].keep_count--;
    gmlo_session_settle_tensor(session, &session->tensors[tensor]);
  }
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_hold(gmlake_offload_session *session, int is_held) {
  gmlake_offload_result result = gmlo_session_enter(session);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (session->is_open)
    result = gmlo_session_invalid(session, "a step is open; hold the session before its begin");
  else
    session->is_held = is_held != 0;
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_make_room(gmlake_offload_session *session, size_t bytes, size_t *out_bytes) {
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  size_t before;
  if (session == NULL || out_bytes == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_bytes = 0;
  if (!gmlo_session_claim(session)) return GMLAKE_OFFLOAD_OK;
  if (session->is_held) return gmlo_session_exit(session, result);
  before = session->stats.device_bytes;
  while (result == GMLAKE_OFFLOAD_OK && before - session->stats.device_bytes < bytes &&
         gmlo_session_victim(session, 0) != GMLAKE_OFFLOAD_NONE) {
    result = gmlo_session_evict(session, GMLAKE_OFFLOAD_NONE, 0, GMLO_OUT);
  }
  *out_bytes = before - session->stats.device_bytes;
  if (*out_bytes < bytes) gmlo_session_revert(session);
  if (session->is_open) gmlo_session_restamp(session, session->open_stream_id);
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_session_set_limit(gmlake_offload_session *session, size_t limit_bytes) {
  gmlake_offload_result result = gmlo_session_enter(session);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (session->desc.limit_bytes != limit_bytes) {
    session->is_timed = session->is_review = 0;
    session->span_ns = 0;
    gmlo_session_stop_making(session);
  }
  if (!gmlo_is_near(limit_bytes, session->kept.limit_bytes)) { /* it is decided anew */
    session->kept.is_settled = 0;
    session->kept.failed_ns = 0;
    session->kept.limit_bytes = limit_bytes;
    gmlo_session_keep_none(session);
  }
  session->desc.limit_bytes = limit_bytes;
  return gmlo_session_exit(session, result);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_get_stats(
    const gmlake_offload_session *session, gmlake_offload_session_stats *out_stats) {
  gmlake_offload_session_stats stats;
  double both;
  uint64_t in_ns, both_ns;
  if (session == NULL || out_stats == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  stats = session->stats;
  gmlo_session_link(session, &stats.out_bytes_per_s, &stats.in_bytes_per_s, &both);
  stats.mode = !session->has_schedule ? GMLAKE_OFFLOAD_LEARNING : GMLAKE_OFFLOAD_PLANNED;
  if (session->is_drifted) stats.mode = GMLAKE_OFFLOAD_DRIFTED;
  stats.unplanned_bytes = session->schedule.unplanned_bytes;
  stats.planned_bytes = session->schedule.planned_bytes;
  stats.plan_out_bytes = session->schedule.out_bytes;
  stats.plan_in_bytes = session->schedule.in_bytes;
  stats.step_ns = session->schedule.step_ns;
  stats.plan_added_ns = session->schedule.added_ns;
  stats.least_ns = session->schedule.least_ns;
  if (session->has_schedule) {
    stats.link_bound_ns = gmlo_copy_time(stats.plan_out_bytes, stats.out_bytes_per_s);
    in_ns = gmlo_copy_time(stats.plan_in_bytes, stats.in_bytes_per_s);
    both_ns = gmlo_copy_time(stats.plan_out_bytes + stats.plan_in_bytes, both);
    if (in_ns > stats.link_bound_ns) stats.link_bound_ns = in_ns;
    if (both_ns > stats.link_bound_ns) stats.link_bound_ns = both_ns;
  }
  return gmlo_fill_info(out_stats, &stats, sizeof stats);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_get_error(
    const gmlake_offload_session *session, gmlake_offload_error_info *out_info) {
  if (session == NULL || out_info == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_info = session->error;
  return GMLAKE_OFFLOAD_OK;
}

/* ---- >>view: what a session plans, for whoever prints or draws it -------------------------------
   Owns plans that were taken. A copy of what the session knows is simulated with its schedule.
   Invariants:
   [V1] Tensors are live ranges. The largest planned_bytes of all steps is that of the statistics.
   [V2] The second simulated iteration is told: what happens in it happens in each later one.
   Cost: linear in the recording. Fails: where host memory is refused. */

typedef struct gmlo_view {
  gmlake_offload_session_plan plan; /* the first field: what the caller has */
  gmlo_scope scope;
  const gmlo_schedule *schedule;
  gmlo_recording l;
  gmlake_offload_planner_desc desc;
  gmlake_offload_plan_info nothing;
  gmlo_scheduler c;
  gmlake_offload_planned_step *steps; /* those of `plan` */
  gmlake_offload_planned_tensor *tensors;
  gmlake_offload_planned_move *moves;
  unsigned char *is_away; /* by tensor */
  size_t there, away;     /* bytes of what exists, and of that of what is away */
} gmlo_view;

/* Copies the known recording, makes room, and begins the simulation. 0: host memory is refused. */
static int gmlo_view_begin(gmlo_view *v, const gmlo_recording *known,
                           const gmlake_offload_memory *memory) {
  gmlo_scheduler *c = &v->c;
  gmlake_offload_session_plan *plan = &v->plan;
  size_t i;
  if (!gmlo_recording_copy_to(known, &v->l)) return 0;
  v->l.cut = v->schedule->cut;
  for (i = 0; i < v->l.step_count; i++) /* its times may not be read yet */
    if (v->l.steps[i].time_ns == 0) v->l.steps[i].time_ns = v->l.steps[i].fastest_ns;
  if (!gmlo_build_begin(&c->build, &v->l)) return 0;
  plan->step_count = v->l.step_count;
  plan->tensor_count = c->build.live_count;
  plan->move_count = v->schedule->begin[v->l.step_count];
  v->nothing.event_count = 2 * plan->move_count;
  c->plan = &v->nothing;
  c->desc = &v->desc;
  plan->steps = v->steps =
      (gmlake_offload_planned_step *)gmlo_take(&v->scope, plan->step_count, sizeof *v->steps);
  plan->tensors = v->tensors =
      (gmlake_offload_planned_tensor *)gmlo_take(&v->scope, plan->tensor_count, sizeof *v->tensors);
  plan->moves = v->moves =
      (gmlake_offload_planned_move *)gmlo_take(&v->scope, plan->move_count, sizeof *v->moves);
  v->is_away = (unsigned char *)gmlo_take(&c->build.scope, plan->tensor_count, 1);
  return v->steps != NULL && v->tensors != NULL && v->moves != NULL && v->is_away != NULL &&
         gmlo_scheduler_take_way(c) && gmlo_simulate_begin(c, v->schedule, memory);
}

static void gmlo_view_tensors(gmlo_view *v) {
  size_t i;
  for (i = 0; i < v->plan.tensor_count; i++) {
    const gmlo_live_range *live = &v->c.build.live_ranges[i];
    const gmlo_slot *slot = &v->l.slots[live->slot];
    v->tensors[i].tensor = slot->tensor;
    if (slot->tensor == GMLAKE_OFFLOAD_NONE && live->carried != GMLAKE_OFFLOAD_NONE)
      v->tensors[i].tensor = v->l.slots[live->carried].tensor;
    v->tensors[i].first_step = live->from;
    v->tensors[i].step_count = live->length;
    v->tensors[i].bytes = slot->bytes;
    v->tensors[i].copy_bytes = slot->real_bytes;
  }
}

/* The bytes of those that begin, or end, with a step; with only_away of those that are away. */
static size_t gmlo_view_sum(const gmlo_view *v, uint32_t live, const uint32_t *next,
                            int only_away) {
  size_t bytes = 0;
  for (; live != GMLAKE_OFFLOAD_NONE; live = next[live])
    if (!only_away || v->is_away[live]) bytes += v->tensors[live].bytes;
  return bytes;
}

/* What exists when step `cut` begins; the first time nothing is away. */
static void gmlo_view_count(gmlo_view *v) {
  size_t i;
  for (i = 0; i < v->plan.tensor_count; i++) {
    const gmlo_live_range *live = &v->c.build.live_ranges[i];
    if (live->length != 0 && gmlo_live_crosses(&v->l, live)) v->there += v->tensors[i].bytes;
  }
}

/* A live range leaves behind a step, or comes back. It may have ended there since the schedule was
   made, and then does neither. */
static void gmlo_view_turn(gmlo_view *v, uint32_t live, int is_away, size_t index) {
  const gmlo_live_range *range = &v->c.build.live_ranges[live];
  size_t bytes = v->tensors[live].bytes;
  if (!gmlo_live_is_whole(&v->l, range) &&
      gmlo_recording_way(&v->l, range->from, index) + 1 >= range->length) {
    return;
  }
  if (v->is_away[live] == is_away) return;
  v->is_away[live] = (unsigned char)is_away;
  v->away += is_away ? bytes : (size_t)0 - bytes;
}

/* What the simulation says of a move. */
static void gmlo_view_move(gmlo_view *v, size_t number, int is_in, uint32_t live) {
  const gmlo_move *move = &v->schedule->moves[number];
  gmlake_offload_planned_move *row = &v->moves[number];
  row->tensor = live;
  row->step = move->step;
  row->is_in = is_in;
  row->is_copy = is_in || move->is_copy;
  row->end_ns = is_in ? v->c.sim.ready_ns[live] : v->c.sim.gone_ns[live];
  row->begin_ns = row->end_ns;
  if (row->is_copy) row->begin_ns -= gmlo_scheduler_copy_ns(&v->c, live, is_in);
  row->stays = move->stays;
}

/* The i-th step of a simulation. In its last step a tensor counts even if it is away. [V1] */
static void gmlo_view_step(gmlo_view *v, size_t i) {
  const gmlo_build *build = &v->c.build;
  const gmlo_schedule *schedule = v->schedule;
  uint32_t last;
  size_t k, index = (v->l.cut + i) % v->l.step_count;
  gmlake_offload_planned_step *row = &v->steps[index];
  size_t gone = gmlo_view_sum(v, build->last[index], build->next_last, 1);
  v->there += gmlo_view_sum(v, build->first[index], build->next_first, 0);
  row->key = v->l.steps[index].key;
  row->time_ns = v->l.steps[index].time_ns;
  row->unplanned_bytes = v->there;
  row->planned_bytes = v->there - v->away + gone;
  row->region = GMLAKE_OFFLOAD_NONE;
  (void)gmlo_simulate_step(&v->c, schedule, i);
  row->begin_ns = v->c.sim.now_ns - row->time_ns;
  v->there -= gmlo_view_sum(v, build->last[index], build->next_last, 0);
  v->away -= gone;
  for (last = build->last[index]; last != GMLAKE_OFFLOAD_NONE; last = build->next_last[last])
    v->is_away[last] = 0;
  for (k = schedule->begin[index]; k < schedule->begin[index + 1]; k++) {
    uint32_t live = build->of[schedule->moves[k].slot];
    gmlo_view_move(v, k, schedule->moves[k].is_in, live);
    if (!v->moves[k].stays) gmlo_view_turn(v, live, !v->moves[k].is_in, index);
  }
}

/* Simulates the schedule. What is before step 0 of the last iteration, as the simulation begins
   with step `cut`, is the iteration's end. [V2] */
static void gmlo_view_run(gmlo_view *v) {
  size_t i, n = v->l.step_count;
  uint64_t first_ns, time_ns;
  gmlo_view_count(v);
  for (i = 0; i < GMLO_ROUNDS * n; i++) gmlo_view_step(v, i);
  time_ns = v->plan.time_ns = v->c.sim.now_ns - v->c.sim.first_ns;
  first_ns = v->steps[0].begin_ns;
  for (i = 0; i < n; i++)
    v->steps[i].begin_ns += (v->l.cut != 0 && i >= v->l.cut ? time_ns : 0) - first_ns;
  for (i = 0; i < v->plan.move_count; i++) {
    uint64_t add_ns = (v->moves[i].begin_ns < first_ns ? time_ns : 0) - first_ns;
    v->moves[i].begin_ns += add_ns;
    v->moves[i].end_ns += add_ns;
  }
}

static void gmlo_view_region(gmlo_view *v, uint32_t number, uint32_t from, uint32_t to,
                             int is_again) {
  for (; to != GMLAKE_OFFLOAD_NONE && from < to; from++) {
    v->steps[from].region = number;
    v->steps[from].is_again = is_again;
  }
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_session_plan_destroy(gmlake_offload_session_plan *plan) {
  gmlo_view *v = (gmlo_view *)plan;
  gmlake_offload_host host;
  if (v == NULL) return;
  host = v->l.host;
  gmlo_leave(&v->scope);
  gmlo_free(&host, v);
}

/* NULL: host memory is refused. */
static gmlo_view *gmlo_session_view(gmlake_offload_session *s) {
  const gmlake_offload_host *host = &s->desc.host;
  gmlo_view *v = (gmlo_view *)gmlo_zeroed(host, 1, sizeof *v);
  uint32_t i;
  int is_made;
  if (v == NULL) return NULL;
  v->schedule = &s->schedule;
  v->desc = gmlo_session_planner(s);
  v->l.host = *host;
  v->scope = v->c.build.scope = gmlo_scope_of(host);
  is_made = gmlo_view_begin(v, gmlo_session_known(s), &s->memory);
  if (is_made) {
    gmlo_view_tensors(v);
    gmlo_view_run(v);
    is_made = !v->c.sim.is_refused;
  }
  for (i = 0; is_made && i < v->l.region_count; i++) {
    const gmlo_region *region = &v->l.regions[i];
    gmlo_view_region(v, i, region->begin, region->end, 0);
    gmlo_view_region(v, i, region->again, region->again_end, 1);
  }
  gmlo_space_leave(&v->c.sim.space);
  gmlo_build_leave(&v->c.build);
  gmlo_recording_free(&v->l);
  if (is_made) return v;
  gmlake_offload_session_plan_destroy(&v->plan);
  return NULL;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_session_take_plan(
    gmlake_offload_session *session, gmlake_offload_session_plan **out_plan) {
  gmlake_offload_result result = gmlo_session_enter(session);
  gmlo_view *v;
  if (out_plan != NULL) *out_plan = NULL;
  if (result != GMLAKE_OFFLOAD_OK) return result;
  if (out_plan == NULL) {
    result = gmlo_session_invalid(session, "out_plan is NULL");
  } else if (!session->has_schedule) {
    result = gmlo_session_fail(session, GMLAKE_OFFLOAD_ERROR_NOT_SEALED, GMLAKE_OFFLOAD_NONE,
                               "no iteration is planned yet; ask again after some more");
  } else {
    v = gmlo_session_view(session);
    if (v != NULL) *out_plan = &v->plan;
    if (v == NULL) result = gmlo_session_no_memory(session);
  }
  return gmlo_session_exit(session, result);
}

/* ---- >>backend_mock: a device on a clock of its own ---------------------------------------------
   Owns a clock, and the bytes of its copies and operators. Invariants:
   [K2] An allocation of b bytes has at least b / divisor real bytes. A tensor whose place in it is
        at `offset` begins at offset / divisor. With a divisor it has bytes / divisor real bytes, or
        GMLO_REAL_MIN if that is less; gmlake_offload_run_add_memgraph checks that every place has
        room for so many.
   Cost: as >>clock, and linear in the bytes that it touches. Fails: where device_bytes would be
   passed, where host memory is refused, and at the call that was asked to fail. */

#if defined(GMLAKE_OFFLOAD_BACKEND_MOCK)

typedef struct gmlo_mock {
  gmlo_clock clock; /* must be first: `user` points to it */
  gmlake_offload_backend table;
  gmlake_offload_mock_desc desc;
  gmlake_offload_mock_census census; /* the clock has what it counts */
  uint64_t random;
} gmlo_mock;

static gmlo_mock *gmlo_mock_of(const gmlake_offload_backend *backend) {
  return (gmlo_mock *)backend->user;
}

static uint64_t gmlo_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}

/* The real bytes of a tensor: all of them, or with a divisor whole words. */
static size_t gmlo_mock_bytes(const gmlo_mock *mock, size_t bytes) {
  size_t real = bytes / mock->desc.divisor;
  if (mock->desc.divisor == 1) return bytes;
  return real < GMLO_REAL_MIN ? GMLO_REAL_MIN : real / GMLO_WORD_BYTES * GMLO_WORD_BYTES;
}

/* The real bytes of an allocation [K2], rounded up to whole words: a place in it may begin between
   two words. */
static size_t gmlo_mock_room(const gmlo_mock *mock, size_t bytes) {
  size_t real = bytes / mock->desc.divisor;
  return real < GMLO_REAL_MIN ? GMLO_REAL_MIN
                              : real / GMLO_WORD_BYTES * GMLO_WORD_BYTES +
                                    (real % GMLO_WORD_BYTES != 0 ? GMLO_WORD_BYTES : 0);
}

static uint64_t gmlo_mock_digest(const gmlo_mock *mock, const void *ptr, size_t bytes,
                                 uint64_t seed) {
  size_t i, real = gmlo_mock_bytes(mock, bytes);
  const unsigned char *at = (const unsigned char *)ptr;
  uint64_t word, digest = gmlo_mix(seed + 0x9E3779B9u);
  if (bytes == 0) return digest;
  for (i = 0; i < real; i += GMLO_WORD_BYTES) {
    word = 0;
    memcpy(&word, at + i, real - i < GMLO_WORD_BYTES ? real - i : GMLO_WORD_BYTES);
    digest = (digest ^ word) * UINT64_C(0x9E3779B97F4A7C15) + (digest >> 29);
  }
  return gmlo_mix(digest);
}

/* Fills `real` bytes with words that follow from the seed. */
static void gmlo_mock_fill_words(void *ptr, size_t real, uint64_t seed) {
  unsigned char *at = (unsigned char *)ptr;
  size_t i;
  for (i = 0; i < real; i += GMLO_WORD_BYTES) {
    uint64_t word = gmlo_mix(seed + i);
    memcpy(at + i, &word, real - i < GMLO_WORD_BYTES ? real - i : GMLO_WORD_BYTES);
  }
}

/* Fills a tensor in the same way. */
static void gmlo_mock_fill_tensor(const gmlo_mock *mock, void *ptr, size_t bytes, uint64_t seed) {
  if (bytes != 0) gmlo_mock_fill_words(ptr, gmlo_mock_bytes(mock, bytes), seed);
}

/* Overwrites an allocation, so that reading it before it is written is noticed. */
static void gmlo_mock_spoil(gmlo_mock *mock, void *ptr, size_t bytes) {
  gmlo_mock_fill_words(ptr, gmlo_mock_room(mock, bytes), ++mock->random);
}

/* NULL where host memory is refused. */
static void *gmlo_mock_alloc(gmlo_mock *mock, size_t bytes) {
  void *ptr = NULL;
  if (bytes <= GMLO_BYTES_MAX) ptr = gmlo_malloc(&mock->desc.host, gmlo_mock_room(mock, bytes));
  if (ptr != NULL) gmlo_mock_spoil(mock, ptr, bytes);
  return ptr;
}

static int gmlo_mock_device_alloc(void *user, uint32_t device, size_t bytes, void **out_ptr) {
  gmlo_mock *mock = (gmlo_mock *)user;
  gmlake_offload_mock_census *census = &mock->census;
  size_t room = mock->desc.device_bytes != 0 ? mock->desc.device_bytes : SIZE_MAX;
  (void)device;
  *out_ptr = NULL;
  if (gmlo_clock_fails(&mock->clock) || bytes > room - census->device_bytes) return 1;
  *out_ptr = gmlo_mock_alloc(mock, bytes);
  if (*out_ptr == NULL) return 1;
  gmlo_count_up(&census->device_bytes, &census->device_bytes_peak, bytes);
  return 0;
}

static void gmlo_mock_device_free(void *user, uint32_t device, void *ptr, size_t bytes) {
  gmlo_mock *mock = (gmlo_mock *)user;
  (void)device;
  mock->census.device_bytes -= bytes;
  gmlo_mock_spoil(mock, ptr, bytes);
  gmlo_free(&mock->desc.host, ptr);
}

static int gmlo_mock_host_alloc(void *user, size_t bytes, void **out_ptr) {
  gmlo_mock *mock = (gmlo_mock *)user;
  *out_ptr = NULL;
  if (gmlo_clock_fails(&mock->clock)) return 1;
  *out_ptr = gmlo_mock_alloc(mock, bytes);
  if (*out_ptr == NULL) return 1;
  gmlo_count_up(&mock->census.host_bytes, &mock->census.host_bytes_peak, bytes);
  return 0;
}

static void gmlo_mock_host_free(void *user, void *ptr, size_t bytes) {
  gmlo_mock *mock = (gmlo_mock *)user;
  mock->census.host_bytes -= bytes;
  gmlo_mock_spoil(mock, ptr, bytes);
  gmlo_free(&mock->desc.host, ptr);
}

static int gmlo_mock_fill(void *user, uint32_t device, uint32_t job, uint32_t tensor, void *ptr,
                          size_t bytes, int on_host) {
  gmlo_mock *mock = (gmlo_mock *)user;
  (void)device;
  if (gmlo_clock_fails(&mock->clock)) return 1;
  if (mock->desc.fill_fn != NULL)
    return mock->desc.fill_fn(mock->desc.user, job, tensor, ptr, bytes, on_host, NULL);
  gmlo_mock_fill_tensor(mock, ptr, bytes, gmlo_mix(tensor + 1) ^ job);
  return 0;
}

/* Copies the first half of the bytes (when the copy begins) or the second half (when it ends). */
static void gmlo_mock_move(const gmlo_mock *mock, const gmlake_offload_copy *copy, int second) {
  size_t real = gmlo_mock_bytes(mock, copy->bytes),
         half = real / 2 / GMLO_WORD_BYTES * GMLO_WORD_BYTES;
  char *device = (char *)copy->device_ptr + (second ? half : 0);
  char *host = (char *)copy->host_ptr + (second ? half : 0);
  memcpy(copy->to_host ? host : device, copy->to_host ? device : host, second ? real - half : half);
}

static uint64_t gmlo_mock_copy_source(const gmlo_mock *mock, const gmlake_offload_copy *copy) {
  return gmlo_mock_digest(mock, copy->to_host ? copy->device_ptr : copy->host_ptr, copy->bytes, 0);
}

/* A random factor from 1 - jitter to 1 + jitter. */
static double gmlo_mock_jitter(gmlo_mock *mock, double jitter) {
  mock->desc.seed += UINT64_C(0x9E3779B97F4A7C15);
  return 1 + jitter * (2 * ((double)(gmlo_mix(mock->desc.seed) >> 11) / 9007199254740992.0) - 1);
}

static int gmlo_mock_copy(void *user, const gmlake_offload_copy *copy, void *stream) {
  gmlo_mock *mock = (gmlo_mock *)user;
  gmlo_clock_entry *entry = gmlo_clock_queue_copy(&mock->clock, copy, stream);
  if (entry == NULL) return 1;
  if (mock->desc.copy_jitter > 0) entry->left_ns *= gmlo_mock_jitter(mock, mock->desc.copy_jitter);
  return 0;
}

/* Digest of everything that the operator reads. */
static uint64_t gmlo_mock_op_source(const gmlo_mock *mock, const gmlo_clock_entry *entry) {
  const gmlake_offload_launch *launch = &entry->launch;
  uint64_t digest = gmlo_mix(launch->op + UINT64_C(77)) ^ launch->job;
  size_t i;
  if ((launch->desc.flags & GMLAKE_OFFLOAD_IMPURE) != 0) digest ^= gmlo_mix(launch->iteration);
  for (i = 0; i < launch->desc.read_count; i++) {
    size_t bytes = launch->graph->tensors[launch->desc.reads[i]].bytes;
    if (bytes != 0) digest = gmlo_mock_digest(mock, launch->reads[i], bytes, digest + i);
  }
  return digest;
}

/* Begins an operator: notes what it reads, and overwrites what it writes but does not read. */
static void gmlo_mock_op_begin(gmlo_mock *mock, gmlo_clock_entry *entry) {
  const gmlake_offload_launch *launch = &entry->launch;
  size_t i, n;
  entry->source = gmlo_mock_op_source(mock, entry);
  for (i = 0; i < launch->desc.write_count; i++) {
    uint32_t tensor = launch->desc.writes[i];
    for (n = 0; n < launch->desc.read_count && launch->desc.reads[n] != tensor; n++) continue;
    if (n != launch->desc.read_count) continue;
    gmlo_mock_fill_tensor(mock, launch->writes[i], launch->graph->tensors[tensor].bytes,
                          ++mock->random);
  }
}

static int gmlo_mock_launch(void *user, const gmlake_offload_launch *launch, void *stream) {
  gmlo_mock *mock = (gmlo_mock *)user;
  size_t i, count = launch->desc.read_count + launch->desc.write_count;
  int transfer = (launch->desc.flags & GMLAKE_OFFLOAD_TRANSFER) != 0;
  gmlo_clock_entry *entry;
  void **pointers;
  if (gmlo_clock_fails(&mock->clock)) return 1;
  pointers = (void **)gmlo_zeroed(&mock->desc.host, count, sizeof *pointers);
  if (pointers == NULL) return 1;
  entry = gmlo_clock_queue(&mock->clock, stream, transfer ? GMLO_CLOCK_PEER : GMLO_CLOCK_WORK);
  if (entry == NULL) {
    gmlo_free(&mock->desc.host, pointers);
    return 1;
  }
  for (i = 0; i < count; i++) {
    pointers[i] = i < launch->desc.read_count ? launch->reads[i]
                                              : launch->writes[i - launch->desc.read_count];
  }
  entry->left_ns = (double)launch->desc.time_ns * gmlo_mock_jitter(mock, mock->desc.jitter);
  entry->device = launch->desc.device;
  entry->launch = *launch;
  entry->launch.reads = entry->pointers = pointers;
  entry->launch.writes = pointers + launch->desc.read_count;
  mock->census.launch_count++;
  return 0;
}

/* Writes what the operator writes: the caller's function does, or the bytes follow from the digest
   of what it read. Returns 0 if that function failed. */
static int gmlo_mock_op_write(gmlo_mock *mock, const gmlo_clock_entry *entry, uint64_t *digest) {
  const gmlake_offload_launch *launch = &entry->launch;
  int is_own = mock->desc.launch_fn != NULL, is_transfer = entry->kind == GMLO_CLOCK_PEER;
  size_t i;
  if (is_own && !is_transfer && mock->desc.launch_fn(mock->desc.user, launch, NULL) != 0) return 0;
  for (i = 0; i < launch->desc.write_count; i++) {
    size_t bytes = launch->graph->tensors[launch->desc.writes[i]].bytes;
    if (!is_own) {
      gmlo_mock_fill_tensor(mock, launch->writes[i], bytes, gmlo_mix(*digest + i));
      continue;
    }
    if (is_transfer && bytes != 0)
      memcpy(launch->writes[i], launch->reads[i], gmlo_mock_bytes(mock, bytes));
    *digest = gmlo_mock_digest(mock, launch->writes[i], bytes, *digest);
  }
  return 1;
}

/* Ends an operator, and adds its digest if it ran for the first time. What it writes when it runs
   again is in the digests of those that read it. */
static void gmlo_mock_op_end(gmlo_mock *mock, gmlo_clock_entry *entry) {
  const gmlake_offload_launch *launch = &entry->launch;
  uint64_t digest = gmlo_mock_op_source(mock, entry);
  if (digest != entry->source) mock->census.race_count++;
  if (!gmlo_mock_op_write(mock, entry, &digest)) mock->clock.failed = 1;
  if (launch->is_again) {
    mock->census.rerun_count++;
  } else {
    mock->census.digest += gmlo_mix(digest + launch->iteration);
  }
  gmlo_free(&mock->desc.host, entry->pointers);
}

/* What happens to bytes when an entry of the clock begins and ends. */
static void gmlo_mock_act(gmlo_clock *clock, gmlo_clock_entry *entry, int is_end) {
  gmlo_mock *mock = (gmlo_mock *)(void *)clock;
  if (entry->pointers != NULL) {
    if (is_end) {
      gmlo_mock_op_end(mock, entry);
    } else {
      gmlo_mock_op_begin(mock, entry);
    }
  } else if (entry->kind == GMLO_CLOCK_WORK) {
    if (is_end && entry->work_fn != NULL) entry->work_fn(entry->user);
  } else if (entry->kind <= GMLO_CLOCK_IN && !mock->desc.bookkeeping_only) {
    uint64_t source = gmlo_mock_copy_source(mock, &entry->copy);
    if (is_end && entry->source != source) mock->census.race_count++;
    entry->source = source;
    gmlo_mock_move(mock, &entry->copy, is_end);
  }
}

/* ---- Create and destroy ---- */

static int gmlo_mock_desc_valid(const gmlake_offload_mock_desc *desc) {
  return gmlo_figure_valid(desc->out_bytes_per_s) && gmlo_figure_valid(desc->in_bytes_per_s) &&
         gmlo_figure_valid(desc->both_bytes_per_s) && desc->jitter >= 0 && desc->jitter < 1 &&
         desc->copy_jitter >= 0 && desc->copy_jitter < 1 && desc->copy_ns <= GMLO_TIME_MAX &&
         gmlo_host_valid(&desc->host);
}

static void gmlo_mock_init(gmlo_mock *mock, const gmlake_offload_mock_desc *desc) {
  gmlake_offload_backend *table = &mock->table;
  gmlo_clock *clock = &mock->clock;
  mock->desc = *desc;
  if (mock->desc.divisor == 0) mock->desc.divisor = 1;
  clock->host = desc->host;
  clock->act = gmlo_mock_act;
  clock->copy_ns = desc->copy_ns;
  clock->bytes_per_s[GMLO_OUT] = desc->out_bytes_per_s;
  clock->bytes_per_s[GMLO_IN] = desc->in_bytes_per_s;
  clock->both_bytes_per_s = desc->both_bytes_per_s;
  gmlo_figure_default(&clock->bytes_per_s[GMLO_OUT], GMLO_LINK_BYTES_PER_S);
  gmlo_figure_default(&clock->bytes_per_s[GMLO_IN], GMLO_LINK_BYTES_PER_S);
  gmlo_figure_default(&clock->both_bytes_per_s, GMLO_BOTH_BYTES_PER_S);
  gmlo_clock_table(clock, table);
  table->divisor = mock->desc.divisor;
  table->device_alloc = gmlo_mock_device_alloc;
  table->device_free = gmlo_mock_device_free;
  table->host_alloc = gmlo_mock_host_alloc;
  table->host_free = gmlo_mock_host_free;
  table->fill = gmlo_mock_fill;
  table->copy = gmlo_mock_copy;
  table->launch = gmlo_mock_launch;
}

static void gmlo_mock_free(gmlo_mock *mock) {
  gmlake_offload_host host = mock->desc.host;
  gmlo_clock *clock = &mock->clock;
  size_t i, n;
  for (i = 0; i < clock->stream_count; i++) {
    for (n = clock->streams[i]->first; n < clock->streams[i]->count; n++) {
      gmlo_free(&host, clock->streams[i]->entries[n].pointers);
    }
  }
  gmlo_clock_leave(clock);
  gmlo_free(&host, mock);
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_mock_create(
    const gmlake_offload_mock_desc *desc, gmlake_offload_backend **out_backend) {
  gmlake_offload_mock_desc zero;
  gmlo_mock *mock;
  if (out_backend == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_backend = NULL;
  memset(&zero, 0, sizeof zero);
  if (desc == NULL) desc = &zero;
  if (!gmlo_mock_desc_valid(desc)) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  mock = (gmlo_mock *)gmlo_zeroed(&desc->host, 1, sizeof *mock);
  if (mock == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  gmlo_mock_init(mock, desc);
  if (gmlo_clock_stream_get(mock, 0, GMLO_OUT, &mock->table.out_stream) != 0 ||
      gmlo_clock_stream_get(mock, 0, GMLO_IN, &mock->table.in_stream) != 0) {
    gmlo_mock_free(mock);
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  }
  *out_backend = &mock->table;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_mock_destroy(gmlake_offload_backend *backend) {
  if (backend != NULL) gmlo_mock_free(gmlo_mock_of(backend));
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_mock_get_census(const gmlake_offload_backend *backend,
                                                       gmlake_offload_mock_census *out_census) {
  const gmlo_mock *mock = gmlo_mock_of(backend);
  *out_census = mock->census;
  out_census->call_count = mock->clock.call_count;
  out_census->event_count = mock->clock.event_count;
  out_census->out_busy_ns = mock->clock.busy_ns[GMLO_CLOCK_OUT];
  out_census->in_busy_ns = mock->clock.busy_ns[GMLO_CLOCK_IN];
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_mock_fail_at(gmlake_offload_backend *backend,
                                                    uint64_t call_number) {
  gmlo_mock_of(backend)->clock.fail_at = call_number;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_mock_work(gmlake_offload_backend *backend,
                                                                  void *stream, uint64_t time_ns,
                                                                  void (*work_fn)(void *user),
                                                                  void *user) {
  gmlo_clock_entry *entry;
  gmlo_mock *mock;
  if (backend == NULL || time_ns > GMLO_TIME_MAX) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  mock = gmlo_mock_of(backend);
  entry = gmlo_clock_queue(&mock->clock, stream, GMLO_CLOCK_WORK);
  if (entry == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  entry->left_ns = (double)time_ns;
  if (mock->desc.jitter > 0) entry->left_ns *= gmlo_mock_jitter(mock, mock->desc.jitter);
  entry->work_fn = work_fn;
  entry->user = user;
  mock->census.launch_count++;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_mock_spend(gmlake_offload_backend *backend,
                                                  uint64_t time_ns) {
  gmlo_clock *clock = &gmlo_mock_of(backend)->clock;
  double end_ns = clock->now_ns + (double)time_ns;
  while (clock->now_ns < end_ns) (void)gmlo_clock_run(clock, end_ns - clock->now_ns);
  gmlo_clock_settle(clock);
}

#endif /* GMLAKE_OFFLOAD_BACKEND_MOCK */

/* ---- >>backend_cuda: a GPU ----------------------------------------------------------------------
   Owns a backend of gmlake.h for each device (its driver functions, its context, pinned memory in
   huge pages), streams on each device, and what is pinned. Invariants:
   [U1] When an entry returns, the current context of the thread is what it was before. In the
        caller's functions it is the primary context of the device concerned. Where no device is
        named it is that of the first one.
   Cost: a few driver calls for each entry, but none for pinned memory unless it grows. Finding
   pinned memory is O(pieces). Fails: where the driver, the caller's functions or the host refuse.
   */

#if defined(GMLAKE_OFFLOAD_BACKEND_CUDA)

#include "gmlake.h"
#if !defined(GMLK_CUDA_FUNCTIONS) /* its CUDA backend is not in this file */
#error "define GMLAKE_IMPLEMENTATION and GMLAKE_BACKEND_CUDA, too, with GMLAKE_OFFLOAD_BACKEND_CUDA"
#endif
#include <stdio.h>
#if defined(__linux__)
#include <pthread.h>
#endif

#define GMLO_PINNED_BYTES ((size_t)16 << 20) /* least bytes of a segment; */
#define GMLO_PINNED_PART 4u                  /* and it is such a part of all there are */
#define GMLO_PINNED_GRAIN ((size_t)512)
#define GMLO_PINNED_PAGE ((size_t)2 << 20) /* a huge page */

/* A piece of pinned memory. */
typedef struct gmlo_pinned {
  char *ptr; /* first: pieces are found by it */
  size_t bytes;
  int busy;
  size_t segment; /* bytes of the segment whose first piece it is; 0: it joins the one below */
} gmlo_pinned;

typedef struct gmlo_cuda_device {
  gmlk_cuda *of;     /* gmlake.h's backend; NULL: the device is not open */
  CUstream *streams; /* by number; NULL: it was not asked for yet */
  size_t stream_count, stream_capacity;
  void *alloc_user;
} gmlo_cuda_device;

typedef struct gmlo_cuda {
  gmlake_offload_backend table; /* must be first: `user` points to it */
  gmlake_offload_cuda_desc desc;
  const gmlk_cuda_functions *fn; /* of the first device */
  gmlo_cuda_device *devices;     /* as the desc has them, or one */
  uint32_t device_count;
  gmlo_pinned *pinned; /* of all segments, by address */
  size_t pinned_count, pinned_capacity, pinned_bytes;
  size_t host_bytes_max; /* of these */
  size_t gapless_bytes;  /* of divided copies, since the last gap */
} gmlo_cuda;

/* ---- The frame of every entry ---- */

/* What the graph calls device d; NULL: there is no such device. */
static gmlo_cuda_device *gmlo_cuda_device_of(const gmlo_cuda *cuda, uint32_t d) {
  if (cuda->desc.devices == NULL) return &cuda->devices[0];
  return d < cuda->device_count ? &cuda->devices[d] : NULL;
}

/* Makes the device's primary context current [U1]. 0 if that fails, or if the device is NULL; then
   there is nothing to leave. */
static int gmlo_cuda_enter(const gmlo_cuda_device *at, gmlk_cuda_call *call) {
  return at != NULL && gmlk_cuda_enter(at->of, call);
}

/* Restores the context that was current. Returns `failed`. */
static int gmlo_cuda_leave(const gmlk_cuda_call *call, int failed) {
  int code;
  (void)gmlk_cuda_leave(call, &code);
  return failed;
}

/* The device's stream of that number. NULL if it is refused. pre: the device's context is
   current. */
static CUstream gmlo_cuda_stream_of(gmlo_cuda *cuda, gmlo_cuda_device *at, size_t number) {
  if (number >= at->stream_count) {
    size_t more = number + 1 - at->stream_count;
    if (gmlo_more(&cuda->desc.host, &at->streams, at->stream_count, more, &at->stream_capacity,
                  sizeof *at->streams) == NULL) {
      return NULL;
    }
    at->stream_count += more;
  }
  if (at->streams[number] == NULL &&
      cuda->fn->StreamCreate(&at->streams[number], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    at->streams[number] = NULL;
  }
  return at->streams[number];
}

/* ---- Pinned memory ---- */

static gmlo_pinned *gmlo_pinned_insert(gmlo_cuda *cuda, size_t at, char *ptr, size_t bytes) {
  gmlo_pinned *pinned;
  if (gmlo_more(&cuda->desc.host, &cuda->pinned, cuda->pinned_count, 1, &cuda->pinned_capacity,
                sizeof *pinned) == NULL) {
    return NULL;
  }
  pinned = &cuda->pinned[at];
  memmove(pinned + 1, pinned, (cuda->pinned_count++ - at) * sizeof *pinned);
  memset(pinned, 0, sizeof *pinned);
  pinned->ptr = ptr;
  pinned->bytes = bytes;
  return pinned;
}

static void gmlo_pinned_remove(gmlo_cuda *cuda, size_t at) {
  memmove(&cuda->pinned[at], &cuda->pinned[at + 1],
          (--cuda->pinned_count - at) * sizeof *cuda->pinned);
}

/* The last piece that begins at the address or below it. pre: there is one. */
static size_t gmlo_pinned_find(const gmlo_cuda *cuda, const void *ptr) {
  return gmlo_count_to(cuda->pinned, cuda->pinned_count, sizeof *cuda->pinned, (uintptr_t)ptr) - 1;
}

/* The number in a file; SIZE_MAX: there is none. */
static size_t gmlo_read_number(const char *path) {
  FILE *file = fopen(path, "r");
  char text[32] = "";
  if (file != NULL && fgets(text, sizeof text, file) == NULL) text[0] = '\0';
  if (file != NULL) (void)fclose(file);
  return text[0] >= '0' && text[0] <= '9' ? (size_t)strtoull(text, NULL, 10) : SIZE_MAX;
}

/* What the system has available, but no more than a container's limit leaves. 0: not known. */
static size_t gmlo_host_left(size_t available, size_t limit, size_t used) {
  size_t most = limit > used ? limit - used : 0;
  if (available == 0 || limit == SIZE_MAX || most >= available) return available;
  return most > 1 ? most : 2; /* 0 would be no limit */
}

/* What the host has available for the program. A container sees its own limit at the root of the
   control groups, of version 2 or 1. */
static size_t gmlo_host_available(void) {
  size_t limit = gmlo_read_number("/sys/fs/cgroup/memory.max");
  size_t used = gmlo_read_number("/sys/fs/cgroup/memory.current");
  if (used == SIZE_MAX) {
    limit = gmlo_read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    used = gmlo_read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  }
  return gmlo_host_left(gmlk_cuda_available(), limit, used);
}

/* Pins a segment of at least that many bytes. 0 if that is refused. pre: the context is current. */
static int gmlo_pinned_grow(gmlo_cuda *cuda, size_t bytes) {
  size_t at = 0, most = cuda->host_bytes_max - cuda->pinned_bytes;
  const gmlk_cuda *of = cuda->devices[0].of;
  gmlo_pinned *pinned;
  void *ptr;
  if (bytes > most) return 0;
  if (bytes < GMLO_PINNED_BYTES) bytes = GMLO_PINNED_BYTES;
  if (bytes < cuda->pinned_bytes / GMLO_PINNED_PART) bytes = cuda->pinned_bytes / GMLO_PINNED_PART;
  bytes = (bytes + GMLO_PINNED_PAGE - 1) / GMLO_PINNED_PAGE * GMLO_PINNED_PAGE;
  if (bytes > most) bytes = most;
  if (gmlk_cuda_pin(of, bytes, &ptr) != CUDA_SUCCESS) return 0;
  while (at < cuda->pinned_count && (uintptr_t)cuda->pinned[at].ptr < (uintptr_t)ptr) at++;
  pinned = gmlo_pinned_insert(cuda, at, (char *)ptr, bytes);
  if (pinned == NULL) {
    (void)gmlk_cuda_unpin(of, ptr);
    return 0;
  }
  pinned->segment = bytes;
  cuda->pinned_bytes += bytes;
  return 1;
}

/* Takes the smallest free piece that is large enough, and cuts off what is left. NULL if there is
   none. */
static char *gmlo_pinned_take(gmlo_cuda *cuda, size_t bytes) {
  size_t i, best = SIZE_MAX;
  gmlo_pinned *piece;
  for (i = 0; i < cuda->pinned_count; i++) {
    piece = &cuda->pinned[i];
    if (piece->busy || piece->bytes < bytes) continue;
    if (best == SIZE_MAX || piece->bytes < cuda->pinned[best].bytes) best = i;
  }
  if (best == SIZE_MAX) return NULL;
  piece = &cuda->pinned[best];
  if (piece->bytes > bytes) {
    char *rest = piece->ptr + bytes;
    if (gmlo_pinned_insert(cuda, best + 1, rest, piece->bytes - bytes) == NULL) return NULL;
    piece = &cuda->pinned[best];
    piece->bytes = bytes;
  }
  piece->busy = 1;
  return piece->ptr;
}

/* Gives a piece back, and joins it with free ones beside it. */
static void gmlo_pinned_give(gmlo_cuda *cuda, const void *ptr) {
  size_t at = gmlo_pinned_find(cuda, ptr);
  gmlo_pinned *piece = &cuda->pinned[at];
  piece->busy = 0;
  if (at + 1 < cuda->pinned_count && !piece[1].busy && piece[1].segment == 0) {
    piece->bytes += piece[1].bytes;
    gmlo_pinned_remove(cuda, at + 1);
  }
  if (piece->segment == 0 && !piece[-1].busy) {
    piece[-1].bytes += piece->bytes;
    gmlo_pinned_remove(cuda, at);
  }
}

/* ---- Entries ---- */

static int gmlo_cuda_device_alloc(void *user, uint32_t device, size_t bytes, void **out_ptr) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  gmlo_cuda_device *at = gmlo_cuda_device_of(cuda, device);
  CUdeviceptr address = 0;
  gmlk_cuda_call call;
  int failed = 1;
  *out_ptr = NULL;
  if (!gmlo_cuda_enter(at, &call)) return 1;
  if (cuda->desc.alloc_fn != NULL) {
    failed = cuda->desc.alloc_fn(at->alloc_user, bytes, (void *)at->streams[2], out_ptr) != 0;
  } else if (cuda->fn->MemAlloc(&address, bytes) == CUDA_SUCCESS) {
    *out_ptr = (void *)(uintptr_t)address;
    failed = 0;
  }
  return gmlo_cuda_leave(&call, failed);
}

/* If the driver refuses to free memory, it is freed with the context. */
static void gmlo_cuda_device_free(void *user, uint32_t device, void *ptr, size_t bytes) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  gmlo_cuda_device *at = gmlo_cuda_device_of(cuda, device);
  gmlk_cuda_call call;
  GMLAKE_OFFLOAD_ASSERT(at != NULL);
  (void)gmlk_cuda_enter(at->of, &call);
  if (cuda->desc.free_fn != NULL) {
    cuda->desc.free_fn(at->alloc_user, ptr, bytes, (void *)at->streams[2]);
  } else {
    (void)cuda->fn->MemFree((CUdeviceptr)(uintptr_t)ptr);
  }
  (void)gmlo_cuda_leave(&call, 0);
}

static int gmlo_cuda_host_alloc(void *user, size_t bytes, void **out_ptr) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  gmlk_cuda_call call;
  *out_ptr = NULL;
  if (bytes > SIZE_MAX / 2) return 1;
  bytes = (bytes + GMLO_PINNED_GRAIN - 1) / GMLO_PINNED_GRAIN * GMLO_PINNED_GRAIN;
  *out_ptr = gmlo_pinned_take(cuda, bytes);
  if (*out_ptr != NULL) return 0;
  if (!gmlk_cuda_enter(cuda->devices[0].of, &call)) return 1;
  if (gmlo_pinned_grow(cuda, bytes)) *out_ptr = gmlo_pinned_take(cuda, bytes);
  return gmlo_cuda_leave(&call, *out_ptr == NULL);
}

static void gmlo_cuda_host_free(void *user, void *ptr, size_t bytes) {
  (void)bytes;
  gmlo_pinned_give((gmlo_cuda *)user, ptr);
}

static int gmlo_cuda_fill(void *user, uint32_t device, uint32_t job, uint32_t tensor, void *ptr,
                          size_t bytes, int on_host) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  const gmlo_cuda_device *at = gmlo_cuda_device_of(cuda, on_host ? 0 : device);
  CUstream stream;
  gmlk_cuda_call call;
  int failed = 0;
  if (!gmlo_cuda_enter(at, &call)) return 1;
  stream = at->streams[2];
  if (cuda->desc.fill_fn != NULL) {
    failed = cuda->desc.fill_fn(cuda->desc.user, job, tensor, ptr, bytes, on_host, (void *)stream);
  } else if (on_host) {
    memset(ptr, 0, bytes);
  } else {
    failed = cuda->fn->MemsetD8Async((CUdeviceptr)(uintptr_t)ptr, 0, bytes, stream) != CUDA_SUCCESS;
  }
  failed = (cuda->fn->StreamSynchronize(stream) != CUDA_SUCCESS) | (failed != 0);
  return gmlo_cuda_leave(&call, failed);
}

#define GMLO_CUDA_PART ((size_t)8 << 20)

/* Copies to the host. Mappings wait for such copies, up to 1 ms each; but they get their turn when
   the engine that copies has nothing to do. So divided copies have a gap behind each
   GMLO_CUDA_PART: a kernel writes a byte that the next part then overwrites. Where it is refused
   there is none. On an H200 copies take 3 % longer, and a mapping .15 to .3 ms: bench/NOTES.md,
   "What a mapping waits for". */
static CUresult gmlo_cuda_copy_out(gmlo_cuda *cuda, const gmlake_offload_copy *copy,
                                   CUstream stream) {
  char *host = (char *)copy->host_ptr;
  CUdeviceptr from = (CUdeviceptr)(uintptr_t)copy->device_ptr;
  size_t at, part;
  CUresult code = CUDA_SUCCESS;
  for (at = 0; at < copy->bytes && code == CUDA_SUCCESS; at += part) {
    part = copy->bytes - at;
    if (copy->is_divided && part > GMLO_CUDA_PART) part = GMLO_CUDA_PART;
    if (copy->is_divided && cuda->gapless_bytes + part > GMLO_CUDA_PART) {
      (void)cuda->fn->MemsetD8Async((CUdeviceptr)(uintptr_t)(host + at), 0, 1, stream);
      cuda->gapless_bytes = 0;
    }
    cuda->gapless_bytes += copy->is_divided ? part : 0;
    code = cuda->fn->MemcpyDtoHAsync(host + at, from + at, part, stream);
    if (code != CUDA_SUCCESS && at != 0) (void)cuda->fn->StreamSynchronize(stream);
  }
  return code;
}

static int gmlo_cuda_copy(void *user, const gmlake_offload_copy *copy, void *stream) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  CUdeviceptr address = (CUdeviceptr)(uintptr_t)copy->device_ptr;
  CUresult code;
  gmlk_cuda_call call;
  if (copy->bytes == 0) return 0;
  if (!gmlo_cuda_enter(gmlo_cuda_device_of(cuda, copy->device), &call)) return 1;
  code = copy->to_host
             ? gmlo_cuda_copy_out(cuda, copy, (CUstream)stream)
             : cuda->fn->MemcpyHtoDAsync(address, copy->host_ptr, copy->bytes, (CUstream)stream);
  return gmlo_cuda_leave(&call, code != CUDA_SUCCESS);
}

/* Queues a transfer: a copy from the stream's device to the one of the tensor that it writes. 1 if
   that is refused. */
static int gmlo_cuda_transfer(const gmlo_cuda *cuda, const gmlo_cuda_device *from,
                              const gmlake_offload_launch *launch, CUstream stream) {
  gmlake_offload_tensor_desc tensor;
  const gmlo_cuda_device *to;
  memset(&tensor, 0, sizeof tensor);
  (void)gmlake_offload_get_tensor(launch->graph, launch->desc.writes[0], &tensor);
  to = gmlo_cuda_device_of(cuda, tensor.device);
  if (to == NULL) return 1;
  if (tensor.bytes == 0) return 0;
  return cuda->fn->MemcpyPeerAsync((CUdeviceptr)(uintptr_t)launch->writes[0], to->of->context,
                                   (CUdeviceptr)(uintptr_t)launch->reads[0], from->of->context,
                                   tensor.bytes, stream) != CUDA_SUCCESS;
}

static int gmlo_cuda_launch(void *user, const gmlake_offload_launch *launch, void *stream) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  gmlo_cuda_device *at = gmlo_cuda_device_of(cuda, launch->desc.device);
  gmlk_cuda_call call;
  int failed = 1;
  if (!gmlo_cuda_enter(at, &call)) return 1;
  if (cuda->desc.devices != NULL && (launch->desc.flags & GMLAKE_OFFLOAD_TRANSFER) != 0) {
    failed = gmlo_cuda_transfer(cuda, at, launch, (CUstream)stream);
  } else if (cuda->desc.launch_fn != NULL) {
    failed = cuda->desc.launch_fn(cuda->desc.user, launch, stream) != 0;
  }
  return gmlo_cuda_leave(&call, failed);
}

static int gmlo_cuda_now(void *user, uint64_t *out_ns) {
  *out_ns = gmlk_cuda_clock_ns(user);
  return 0;
}

static int gmlo_cuda_stream_get(void *user, uint32_t device, uint32_t number, void **out_stream) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  gmlo_cuda_device *at = gmlo_cuda_device_of(cuda, device);
  gmlk_cuda_call call;
  if (at != NULL && number < at->stream_count && at->streams[number] != NULL) {
    *out_stream = (void *)at->streams[number];
    return 0;
  }
  if (!gmlo_cuda_enter(at, &call)) return 1;
  *out_stream = (void *)gmlo_cuda_stream_of(cuda, at, number);
  return gmlo_cuda_leave(&call, *out_stream == NULL);
}

static int gmlo_cuda_event_create(void *user, uint32_t device, int is_timed, void **out_event) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  CUevent event = NULL;
  CUresult code;
  gmlk_cuda_call call;
  if (!gmlo_cuda_enter(gmlo_cuda_device_of(cuda, device), &call)) return 1;
  code = cuda->fn->EventCreate(&event, is_timed ? 0u : (unsigned)CU_EVENT_DISABLE_TIMING);
  *out_event = (void *)event;
  return gmlo_cuda_leave(&call, code != CUDA_SUCCESS);
}

static void gmlo_cuda_event_destroy(void *user, void *event) {
  int code;
  (void)gmlk_cuda_event_destroy(((gmlo_cuda *)user)->devices[0].of, event, &code);
}

static int gmlo_cuda_event_record(void *user, void *event, void *stream) {
  gmlk_cuda *of = ((gmlo_cuda *)user)->devices[0].of;
  int code;
  return gmlk_cuda_event_record(of, event, stream, &code) != GMLAKE_OK;
}

static int gmlo_cuda_stream_wait(void *user, void *stream, void *event) {
  gmlk_cuda *of = ((gmlo_cuda *)user)->devices[0].of;
  int code;
  return gmlk_cuda_stream_wait(of, stream, event, &code) != GMLAKE_OK;
}

static int gmlo_cuda_event_done(void *user, void *event, int *out_done) {
  gmlk_cuda *of = ((gmlo_cuda *)user)->devices[0].of;
  int code;
  return gmlk_cuda_event_query(of, event, out_done, &code) != GMLAKE_OK;
}

static int gmlo_cuda_event_ns(void *user, void *from, void *to, uint64_t *out_ns) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  float ms = 0;
  CUresult code;
  gmlk_cuda_call call;
  if (!gmlk_cuda_enter(cuda->devices[0].of, &call)) return 1;
  code = cuda->fn->EventElapsedTime(&ms, (CUevent)from, (CUevent)to);
  *out_ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
  return gmlo_cuda_leave(&call, code != CUDA_SUCCESS);
}

static int gmlo_cuda_stream_sync(void *user, void *stream) {
  gmlo_cuda *cuda = (gmlo_cuda *)user;
  gmlk_cuda_call call;
  if (!gmlk_cuda_enter(cuda->devices[0].of, &call)) return 1;
  return gmlo_cuda_leave(&call, cuda->fn->StreamSynchronize((CUstream)stream) != CUDA_SUCCESS);
}

#if defined(_WIN32)
typedef HANDLE gmlo_thread_id;
#define GMLO_THREAD_RUN(user) static DWORD WINAPI gmlo_thread_run(void *user)
#elif defined(__linux__)
typedef pthread_t gmlo_thread_id;
#define GMLO_THREAD_RUN(user) static void *gmlo_thread_run(void *user)
#endif

#if defined(GMLO_THREAD_RUN)

typedef struct gmlo_thread {
  gmlo_thread_id id;
  void (*run)(void *arg);
  void *arg;
} gmlo_thread;

GMLO_THREAD_RUN(user) {
  const gmlo_thread *thread = (const gmlo_thread *)user;
  thread->run(thread->arg);
  return 0;
}

static int gmlo_cuda_thread_start(void *user, void (*run)(void *arg), void *arg,
                                  void **out_thread) {
  const gmlo_cuda *cuda = (const gmlo_cuda *)user;
  gmlo_thread *thread = (gmlo_thread *)gmlo_zeroed(&cuda->desc.host, 1, sizeof *thread);
  if (thread == NULL) return 1;
  thread->run = run;
  thread->arg = arg;
#if defined(_WIN32)
  thread->id = CreateThread(NULL, 0, gmlo_thread_run, thread, 0, NULL);
  if (thread->id == NULL) {
#else
  if (pthread_create(&thread->id, NULL, gmlo_thread_run, thread) != 0) {
#endif
    gmlo_free(&cuda->desc.host, thread);
    return 1;
  }
  *out_thread = thread;
  return 0;
}

static void gmlo_cuda_thread_join(void *user, void *thread) {
#if defined(_WIN32)
  (void)WaitForSingleObject(((gmlo_thread *)thread)->id, INFINITE);
  (void)CloseHandle(((gmlo_thread *)thread)->id);
#else
  (void)pthread_join(((gmlo_thread *)thread)->id, NULL);
#endif
  gmlo_free(&((const gmlo_cuda *)user)->desc.host, thread);
}

#endif /* GMLO_THREAD_RUN */

/* ---- Create and destroy ---- */

static void gmlo_cuda_fill_table(gmlo_cuda *cuda) {
  gmlake_offload_backend *table = &cuda->table;
  table->struct_bytes = sizeof *table;
  table->abi_version = 2;
  table->user = cuda;
  table->host_alloc = gmlo_cuda_host_alloc;
  table->host_free = gmlo_cuda_host_free;
  table->copy = gmlo_cuda_copy;
  table->event_create = gmlo_cuda_event_create;
  table->event_destroy = gmlo_cuda_event_destroy;
  table->event_record = gmlo_cuda_event_record;
  table->stream_wait = gmlo_cuda_stream_wait;
  table->event_done = gmlo_cuda_event_done;
  table->event_ns = gmlo_cuda_event_ns;
  table->stream_sync = gmlo_cuda_stream_sync;
  table->stream = gmlo_cuda_stream_get;
  table->device_alloc = gmlo_cuda_device_alloc;
  table->device_free = gmlo_cuda_device_free;
  table->fill = gmlo_cuda_fill;
  table->launch = gmlo_cuda_launch;
  table->now = gmlo_cuda_now;
#if defined(GMLO_THREAD_RUN)
  table->thread_start = gmlo_cuda_thread_start;
  table->thread_join = gmlo_cuda_thread_join;
#endif
}

/* Opens a device and makes its first streams. */
static gmlake_offload_result gmlo_cuda_open_device(gmlo_cuda *cuda, uint32_t d) {
  gmlo_cuda_device *at = &cuda->devices[d];
  int ordinal = cuda->desc.devices != NULL ? cuda->desc.devices[d] : cuda->desc.device, ok;
  gmlake_backend *of;
  gmlk_cuda_call call;
  size_t i;
  if (gmlake_cuda_create(ordinal, &of) != GMLAKE_OK) return GMLAKE_OFFLOAD_ERROR_BACKEND;
  at->of = (gmlk_cuda *)of->user;
  cuda->fn = &cuda->devices[0].of->fn;
  if (at->of->properties.is_integrated && !cuda->desc.allow_integrated)
    return GMLAKE_OFFLOAD_ERROR_UNSUPPORTED;
  at->alloc_user = cuda->desc.alloc_users != NULL ? cuda->desc.alloc_users[d] : cuda->desc.user;
  ok = gmlk_cuda_enter(at->of, &call);
  for (i = 0; ok && i < 3; i++) ok = gmlo_cuda_stream_of(cuda, at, i) != NULL;
  return gmlo_cuda_leave(&call, !ok) ? GMLAKE_OFFLOAD_ERROR_BACKEND : GMLAKE_OFFLOAD_OK;
}

/* Lets the device reach the others' memory. Where that is refused, copies go the long way. */
static void gmlo_cuda_open_peers(const gmlo_cuda *cuda, const gmlo_cuda_device *at) {
  uint32_t d;
  gmlk_cuda_call call;
  (void)gmlk_cuda_enter(at->of, &call);
  for (d = 0; d < cuda->device_count; d++) {
    CUcontext peer = cuda->devices[d].of->context;
    if (peer != at->of->context) (void)cuda->fn->CtxEnablePeerAccess(peer, 0);
  }
  (void)gmlo_cuda_leave(&call, 0);
}

/* Opens the devices, and makes the first pinned memory. */
static gmlake_offload_result gmlo_cuda_open_all(gmlo_cuda *cuda) {
  uint32_t d, count = cuda->desc.devices != NULL ? cuda->desc.device_count : 1;
  gmlake_offload_result result = GMLAKE_OFFLOAD_OK;
  gmlk_cuda_call call;
  int ok;
  for (d = 0; d < count && result == GMLAKE_OFFLOAD_OK; d++) {
    cuda->device_count = d + 1;
    result = gmlo_cuda_open_device(cuda, d);
  }
  if (result != GMLAKE_OFFLOAD_OK) return result;
  for (d = 0; d < count; d++) gmlo_cuda_open_peers(cuda, &cuda->devices[d]);
  cuda->table.out_stream = (void *)cuda->devices[0].streams[GMLO_OUT];
  cuda->table.in_stream = (void *)cuda->devices[0].streams[GMLO_IN];
  if (cuda->desc.host_bytes == 0) return GMLAKE_OFFLOAD_OK;
  ok = gmlk_cuda_enter(cuda->devices[0].of, &call) && gmlo_pinned_grow(cuda, cuda->desc.host_bytes);
  return gmlo_cuda_leave(&call, !ok) ? GMLAKE_OFFLOAD_ERROR_BACKEND : GMLAKE_OFFLOAD_OK;
}

static void gmlo_cuda_close_device(const gmlo_cuda_device *at) {
  size_t i;
  gmlk_cuda_call call;
  if (at->of == NULL) return;
  (void)gmlk_cuda_enter(at->of, &call);
  for (i = 0; i < at->stream_count; i++) {
    if (at->streams[i] != NULL) (void)at->of->fn.StreamDestroy(at->streams[i]);
  }
  (void)gmlo_cuda_leave(&call, 0);
  gmlake_cuda_destroy(&at->of->table);
}

static void gmlo_cuda_close_pinned(const gmlo_cuda *cuda) {
  size_t i;
  gmlk_cuda_call call;
  (void)gmlk_cuda_enter(cuda->devices[0].of, &call);
  for (i = 0; i < cuda->pinned_count; i++) {
    const gmlo_pinned *piece = &cuda->pinned[i];
    if (piece->segment != 0) (void)gmlk_cuda_unpin(cuda->devices[0].of, piece->ptr);
  }
  (void)gmlo_cuda_leave(&call, 0);
}

static void gmlo_cuda_close(gmlo_cuda *cuda) {
  gmlake_offload_host host = cuda->desc.host;
  size_t d, i;
  for (d = 0; d < cuda->device_count; d++) {
    for (i = 0; i < cuda->devices[d].stream_count; i++) {
      CUstream stream = cuda->devices[d].streams[i];
      if (stream != NULL) (void)cuda->fn->StreamSynchronize(stream);
    }
  }
  if (cuda->pinned_count != 0) gmlo_cuda_close_pinned(cuda);
  for (d = cuda->device_count; d-- != 0;) {
    gmlo_cuda_device *at = &cuda->devices[d];
    gmlo_cuda_close_device(at);
    gmlo_free(&host, at->streams);
  }
  gmlo_free(&host, cuda->devices);
  gmlo_free(&host, cuda->pinned);
  gmlo_free(&host, cuda);
}

/* How much may be pinned. available: of the host; 0: unknown. */
static size_t gmlo_pinned_max(const gmlake_offload_cuda_desc *desc, size_t available) {
  size_t most = desc->host_bytes_max;
  if (most == 0) most = available / 2;
  if (most != 0 && most < desc->host_bytes) most = desc->host_bytes;
  if (most == 0 || most > SIZE_MAX / 2) most = SIZE_MAX / 2; /* sums stay below SIZE_MAX */
  return most;
}

static int gmlo_cuda_desc_valid(const gmlake_offload_cuda_desc *desc) {
  uint32_t d;
  if (desc == NULL || desc->device < 0 || (desc->alloc_fn == NULL) != (desc->free_fn == NULL) ||
      !gmlo_host_valid(&desc->host) || (desc->devices == NULL) != (desc->device_count == 0) ||
      desc->device_count > GMLO_DEVICE_MAX ||
      (desc->host_bytes_max != 0 && desc->host_bytes > desc->host_bytes_max)) {
    return 0;
  }
  for (d = 0; d < desc->device_count; d++) {
    if (desc->devices[d] < 0) return 0;
  }
  return 1;
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_cuda_create(
    const gmlake_offload_cuda_desc *desc, gmlake_offload_backend **out_backend) {
  gmlake_offload_result result;
  gmlo_cuda *cuda;
  if (out_backend == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_backend = NULL;
  if (!gmlo_cuda_desc_valid(desc)) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  cuda = (gmlo_cuda *)gmlo_zeroed(&desc->host, 1, sizeof *cuda);
  if (cuda == NULL) return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  cuda->desc = *desc;
  cuda->host_bytes_max = gmlo_pinned_max(desc, gmlo_host_available());
  cuda->devices = (gmlo_cuda_device *)gmlo_zeroed(
      &desc->host, desc->devices != NULL ? desc->device_count : 1, sizeof *cuda->devices);
  if (cuda->devices == NULL) {
    gmlo_cuda_close(cuda);
    return GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  }
  gmlo_cuda_fill_table(cuda);
  result = gmlo_cuda_open_all(cuda);
  if (result != GMLAKE_OFFLOAD_OK) {
    gmlo_cuda_close(cuda);
    return result;
  }
  *out_backend = &cuda->table;
  return GMLAKE_OFFLOAD_OK;
}

GMLAKE_OFFLOAD_DEF void gmlake_offload_cuda_destroy(gmlake_offload_backend *backend) {
  if (backend != NULL) gmlo_cuda_close((gmlo_cuda *)(void *)backend);
}

#endif /* GMLAKE_OFFLOAD_BACKEND_CUDA */

/* ---- >>memory_lake: memory of a lake at addresses that stay -------------------------------------
   Owns nothing. A range is a buffer of the lake: what a tensor gives up stays mapped there, and if
   nobody has taken the chunk when the tensor comes back, that costs no driver call.
   Cost and failures: those of gmlake_buffer_commit and gmlake_buffer_discard. */

#if defined(GMLAKE_OFFLOAD_LAKE)

/* 0; 1: there is no memory; the driver's number of the failure, if that is above 2; else 2. */
static int gmlo_lake_code(gmlake *lake, gmlake_result result) {
  gmlake_error_info info;
  if (result == GMLAKE_OK) return 0;
  if (result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_ERROR_LIMIT_REACHED) return 1;
  if (gmlake_get_last_error(lake, &info) != GMLAKE_OK || info.driver_code <= 2) return 2;
  return info.driver_code;
}

static int gmlo_lake_reserve(void *user, size_t bytes, void **out_range, void **out_ptr) {
  gmlake *lake = (gmlake *)((const gmlake_offload_lake *)user)->lake;
  gmlake_buffer_desc desc;
  gmlake_buffer_info info;
  gmlake_buffer *buffer = NULL;
  gmlake_result result;
  memset(&desc, 0, sizeof desc);
  desc.max_bytes = bytes;
  desc.chunk_bytes = ((const gmlake_offload_lake *)user)->chunk_bytes;
  desc.pool = ((const gmlake_offload_lake *)user)->pool;
  desc.label = "offload";
  result = gmlake_buffer_create(lake, &desc, &buffer);
  if (result == GMLAKE_OK) result = gmlake_buffer_get_info(lake, buffer, &info);
  if (result != GMLAKE_OK) return gmlo_lake_code(lake, result);
  *out_range = buffer;
  *out_ptr = info.ptr;
  return 0;
}

/* If the lake refuses, the buffer goes with it. */
static void gmlo_lake_release(void *user, void *range, void *stream) {
  (void)gmlake_buffer_destroy(((const gmlake_offload_lake *)user)->lake, (gmlake_buffer *)range,
                              stream);
}

static int gmlo_lake_commit(void *user, void *range, size_t bytes, uint32_t *chunks, void *stream) {
  gmlake *lake = ((const gmlake_offload_lake *)user)->lake;
  return gmlo_lake_code(
      lake, gmlake_buffer_commit(lake, (gmlake_buffer *)range, 0, bytes, chunks, stream));
}

static int gmlo_lake_discard(void *user, void *range, size_t bytes, void *stream) {
  gmlake *lake = ((const gmlake_offload_lake *)user)->lake;
  return gmlo_lake_code(lake,
                        gmlake_buffer_discard(lake, (gmlake_buffer *)range, 0, bytes, stream));
}

static int gmlo_lake_expel(void *user) {
  gmlake *lake = ((const gmlake_offload_lake *)user)->lake;
  return gmlo_lake_code(lake, gmlake_trim(lake, 0, NULL));
}

GMLAKE_OFFLOAD_DEF gmlake_offload_result
gmlake_offload_lake_memory(const gmlake_offload_lake *lake, gmlake_offload_memory *out_memory) {
  if (lake == NULL || lake->lake == NULL || out_memory == NULL)
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  memset(out_memory, 0, sizeof *out_memory);
  out_memory->struct_bytes = sizeof *out_memory;
  out_memory->abi_version = 3;
  out_memory->user = (void *)(uintptr_t)lake;
  out_memory->chunk_bytes = lake->chunk_bytes;
  out_memory->map_ns = GMLO_REMAP_NS;
  out_memory->reserve = gmlo_lake_reserve;
  out_memory->release = gmlo_lake_release;
  out_memory->commit = gmlo_lake_commit;
  out_memory->discard = gmlo_lake_discard;
  out_memory->expel = gmlo_lake_expel;
  return GMLAKE_OFFLOAD_OK;
}

#endif /* GMLAKE_OFFLOAD_LAKE */

#endif /* GMLAKE_OFFLOAD_IMPLEMENTATION */

/* MIT License

Copyright (c) 2026 gmlake contributors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
