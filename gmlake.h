/* gmlake.h - v0.2.0 - GPU memory allocator by virtual memory stitching - MIT licence (at the end)

Do this in ONE file, before any other header:
   #define GMLAKE_IMPLEMENTATION
   #include "gmlake.h"
Every other file only includes it, without that macro.
C99 or C++11 and later; -lpthread -ldl on old systems.

WHAT IT IS
  A deep-learning program loses memory to fragmentation: free memory lies in pieces, and none of
  them is large enough for the next request. CUDA's virtual memory management can map such pieces
  side by side. This allocator does that. It creates physical memory in chunks and maps each chunk
  once in a *home arena*. It serves a request from one free range of the arena if there is one. If
  not, it maps several free ranges into a second, contiguous range of addresses: a *window*. The
  algorithm is that of GMLake (Guo et al., ASPLOS 2024, arXiv 2401.08156); its states and words
  are used here. Three things differ from the paper: a window may begin and end inside a chunk;
  split and coalescing need no driver call; memory passes between streams behind fences.

EXAMPLE
      #define GMLAKE_IMPLEMENTATION
      #define GMLAKE_BACKEND_MOCK // without it: CUDA; the mock's memory is the host's
      #include "gmlake.h"
      int main(void) {
        gmlake *lake;
        void *tensor;
        if (gmlake_create(NULL, &lake)) return 1;
        if (gmlake_alloc(lake, 100 << 20, NULL, &tensor)) return 1;
        memset(tensor, 1, 100 << 20); // with CUDA: queue work on stream NULL that uses it
        if (gmlake_free(lake, tensor, NULL)) return 1;
        return gmlake_destroy(lake) != GMLAKE_OK;
      }

WHAT IT DOES NOT DO
  - It does not zero memory, does not move live blocks and does not manage host memory.
  - It does not find out which streams use a block: name them by gmlake_record_stream.
  - It does not order two uses of memory inside a kernel. A chunk that is freed may serve again at
    another address. Writes through one address are seen through the other only behind stream or
    event order; a flag that a kernel polls is not such an order.
  - It does not join pieces smaller than a chunk. A hole inside a chunk serves a request that fits
    into it, or it is the first or last piece of a window. Small blocks, up to a 32nd of a chunk,
    are kept together where they would else lie at the arena's end: a large block beside each of
    them would leave a hole of nearly a chunk.
  - Legacy IPC (cuIpcGetMemHandle) does not work: the driver gives such handles for cuMemAlloc
    only.
  - The per-thread default stream (value 2) is refused: one value stands for many streams.

MACROS                            where to define it
  GMLAKE_IMPLEMENTATION           in one file
  GMLAKE_BACKEND_CUDA             there: the CUDA driver. Needs <cuda.h>; libcuda is opened at run
                                  time. The default if no backend is defined
  GMLAKE_BACKEND_MOCK             there: a device on the host, for tests. Both may be defined
  GMLAKE_STATIC                   in every file that includes the implementation: all static
  GMLAKE_DEF                      in every file: how functions are declared (dllexport...)
  GMLAKE_ASSERT(condition)        in the implementation: instead of assert
  GMLAKE_MALLOC(bytes), _FREE(p)  in the implementation, both: instead of malloc and free.
                                  desc.host does the same for one lake
  GMLAKE_MUTEX, GMLAKE_MUTEX_INIT(m), _DESTROY(m), _LOCK(m), _UNLOCK(m)
                                  in the implementation, all: instead of pthread's or Windows'
  No macro changes a public struct or signature.

GLOSSARY
  chunk       physical memory, desc.chunk_bytes large, with a driver handle of its own
  home arena  reserved addresses, in one range or few. Every chunk is mapped once in it, in a slot
  pBlock      a range of the arena, free or live (paper). The free pBlocks are the paper's pPool
  window      a second, contiguous mapping of several ranges of the arena: the paper's sBlock. All
              windows, live and idle, are the paper's sPool
  piece       one of a window's ranges. All but the first begin where a chunk begins; all but the
              last end where a chunk ends
  tag         says which pending work may still use a free range: none (clean), or that of a stream
              up to one of its epochs
  epoch       a stream's work between two events that the lake records on it; what is freed there
              has the epoch in its tag
  fence       the event that ends a stream's epoch
  pool        a further arena for blocks, and further ones where its buffers' chunks have another
              size. It holds the memory of a graph, or of one tenant
  buffer      a range of addresses. Parts of it have memory, up to an end that the program moves.
              Chunks of another size than the arena's are mapped in buffers alone and have no home
              address
  grain       512 bytes; every size is rounded up to it

HOW AN ALLOCATION IS SERVED
  1. S1: a free range that the stream may use now and that has exactly the size. S2: the smallest
     larger range, if less than a chunk of it is left.
  2. S1: of the idle windows of exactly the size whose pieces are all free again, the one that was
     made first. No driver call.
  3. S2: the smallest larger range, split. No driver call. If it is at the end of an arena of 32
     chunks or more, half a chunk or less of it is set aside for small blocks. The later steps may
     call the driver.
  4. The lake asks what other streams have completed, then tries 1 to 3 again. After 32 windows in a
     row that no growth interrupted, a request of a chunk or more asks before step 1, too.
  5. S3: a window is stitched from free ranges; the smallest holes are used first.
  6. With GMLAKE_WAIT_FIRST step 10 is done here.
  7. S4: chunks are created for one contiguous range, if step 8 would need at most one chunk less.
  8. S4: chunks are created for what a window lacks, and the window is stitched.
  9. The limits or the driver refuse new chunks. If memory is set aside for small blocks, it is so
     no longer, and the lake begins again with step 4. Before the call fails (S5):
 10. the request takes memory that other streams freed or were recorded on, and its stream waits
     for these on the device;
 11. the host waits for pending work: until some stream's oldest event completes. Then the lake
     looks at all free ranges, where the steps above look at the first few of many, creates what
     a window lacks if that is less than before, and waits again until the request is served or
     nothing is pending;
 12. idle windows are dropped, free chunks are returned and created again where they are needed:
     other pools' as many as are missing, or all;
 13. the caller's handler is asked to make room, eight times at most. Then the call fails with a
     report in gmlake_get_last_error.

STREAMS
  Streams are those of the device's primary context, which the CUDA runtime and the frameworks use.
  The lake does not wait for work in a context of cuCtxCreate, nor for that context's NULL stream. A
  block's own stream is the one that it was allocated on. It may be used there, and on another
  stream in work that is ordered behind that point of the own stream. gmlake_free(ptr, stream)
  promises this: every use of the block precedes the call on that stream, or is on a stream that
  gmlake_record_stream named.
  - One stream: what was freed on it is reused on it at once, without an event. The lake records
    events for captures and buffers only, and from the first request on GMLAKE_STREAM_NONE on that
    meets memory which the stream may still use.
  - Several streams: the lake records an event on a stream each time that 1/128 of all memory it
    holds was freed on that stream, but at least a chunk; and before it would grow. Another stream
    gets the memory when the event has completed, or behind a wait on the device.
  - Which desc.cross_stream? Of one stream: any. Of several, where memory is short:
    GMLAKE_WAIT_FIRST. Of what it holds .960 to .997 is used in recordings of six programs, where
    GMLAKE_GROW_FIRST has .694 to .996 (bench/RESULTS.md); in the one that waits most its streams
    stand still for 1.8 of 11 s, if nothing else makes them wait. GMLAKE_GROW_FIRST, the default,
    where a stream may not wait for another as long as there is memory.
  - Waits on the device are queued where desc.cross_stream allows them, and where memory is short.
    Within a process they make no cycle. Each waits for an event that the host recorded earlier, so
    for work that it queued earlier, and never for work that is queued later. Two processes can wait
    for each other, through the kernels of NCCL: a kernel of rank 0 waits for one of rank 1, which
    is queued behind a wait of rank 1's lake. gmlake_mark_stream names streams that communicate: the
    lake never makes them wait; their requests grow, or the host waits.
  - Streams that end: call gmlake_forget_stream before you destroy a stream. The driver hands the
    value out again at once, and the new stream would get memory that the old stream's work still
    uses. Free a live block of a forgotten stream on another stream or on GMLAKE_STREAM_NONE. A
    stream that was destroyed and not forgotten is an error that may end the process: driver 580
    dies by SIGSEGV in cuEventRecord, or answers 709. If it answers an error, the lake tells the
    logger once and does not use that stream again. What was freed on it since its last event stays
    pending until the host waits for the whole device: in steps 11 and 12, or when a pool or the
    lake is destroyed.
  - GMLAKE_STREAMS_MAY_END in desc.flags is for programs in which nobody can call
    gmlake_forget_stream. The lake then touches a stream only in calls that name it; by naming it
    the caller says that it exists. Each free is fenced at once. Each call asks the driver for the
    stream's id (cuStreamGetId, CUDA 12; not during a capture): a known value with another id is
    another stream. A block that outlives its stream, or a stream that it is recorded on, may be
    freed with that stream's old value as the stream; its memory serves again after a wait for the
    whole device. Where a free names another stream than a block is recorded on, the next call that
    names the recorded one records the event; before that, only a wait for the whole device gives
    the memory back, and only a request that finds none waits. The flag costs nothing on the legacy
    stream, nor on a stream that gmlake_mark_stream marked GMLAKE_STREAM_STAYS: the program never
    destroys it. Drivers before CUDA 12 have no ids: gmlake_create answers UNSUPPORTED.

CAPTURES
  Call gmlake_capture_begin before cuStreamBeginCapture, and gmlake_capture_end after
  cuStreamEndCapture. In between, allocations on the stream come from the pool, and the lake does
  not record, wait or ask on the stream. The addresses that a capture used are part of the graph:
  the graph knows them. So what a capture used stays with the pool until the pool is destroyed: it
  is reused inside the capture, and by later captures into the pool. Graphs that share a pool must
  not run at the same time; nor may work outside of graphs that uses their memory: the program
  orders that as it orders launches. While any stream is captured the lake leaves the legacy stream
  alone too: an event there would spoil the capture.
  If an error keeps gmlake_capture_end from being called, the lake asks the driver
  (cuStreamIsCapturing) and ends the capture itself: in the next gmlake_capture_begin on the stream,
  and in every call that takes the driver lock, if memory was allocated in the capture.

LENDING
  I want one pool for many graphs. Capture them into it one after the other: each takes what the
  former ones have freed. Then this has to hold: no two of them run at once, so launch them on one
  stream, or order the launches by events; and a graph's results are lost at the next launch of any
  of them, unless they lie in blocks that its capture did not free. A plain allocation from the
  pool gets no memory that a graph knows. On the mock, gmlake_mock_launch refuses what breaks this.
  I want eager work between two launches to use what the graphs have. Behind a launch call
  gmlake_pool_lend(pool, stream), allocate with GMLAKE_TRANSIENT, free, call
  gmlake_pool_recall(pool, stream), launch again. Such requests take what the pool has free,
  stitched where it does not lie together; if it is not enough they are served like others. A window
  lies in one arena, so pieces of two pools never make one block.
  - If the graphs were launched on several streams, order them first: an event behind each launch,
    and a wait of `stream` for it. Between lend and recall launch none of them.
  - What is free in the pool loses its contents; what its live blocks hold stays.
  - Any stream may borrow. The lake makes it wait on the device for the launches, and for streams
    that borrowed before; recall makes its stream wait for all of them. A stream of
    GMLAKE_STREAM_COMMUNICATION never waits: it gets other memory.
  - A borrowed block that is live keeps the pool lent: recall, sleep, destroy and captures into it
    answer GMLAKE_ERROR_BUSY and name the block.
  - Before new memory is created other free memory serves. Then the pool grows by what is missing.
    Such chunks are lent again, and gmlake_trim returns them: no graph knows them. What was borrowed
    from chunks that a graph may know serves only the pool's captures and borrowers from then on, no
    plain allocation.

GROWING BUFFERS
  A buffer is for what may not move while its memory changes: the keys and values of a sequence, a
  log, an arena of the program's own. Its memory is chunks (2 MiB by default) that nothing else
  shares.
  - I want memory that grows at its end: gmlake_buffer_resize.
  - I want to give memory back in the middle, or to have memory in parts of it only:
    gmlake_buffer_discard and gmlake_buffer_commit. The parts around it keep their memory. To touch
    a hole is an error on the device. The address stays: a graph that was captured before reads what
    is committed later.
  - I want weights that give way when memory is short: let the out-of-memory handler discard them,
    and commit and load them again before they are used (examples/weights.c). A mixture of experts
    that is larger than the memory, each at one address, is examples/experts.c.
  - What a buffer gives up stays mapped. If nobody took the chunk meanwhile, a commit on the same
    stream takes it back without a driver call. So keep a buffer, at 0 bytes, for the next sequence
    instead of destroying it.
  - A commit needs a chunk for each hole: the one that is still mapped there, if the stream may have
    it; else it is served as a block of a whole chunk is, by the steps above. Several buffers may
    have one chunk mapped, but only one of them, or blocks, has it as memory.
  - Blocks and buffers share free memory. I want this sharing to cost least: give the buffer chunks
    of the size that the blocks' arena has. Then both take them from one place, in the order of
    streams or behind a wait on the device. A block takes what a buffer gave up without a driver
    call; the buffer maps what blocks freed. For that each chunk is mapped at home, too, which about
    doubles the cost of a new one.
  - Chunks of other sizes are returned, and created anew: before the lake creates chunks for blocks,
    it returns as many bytes of such buffers' chunks; before it creates chunks for a buffer, as many
    bytes of all other chunks. Each returns whole free chunks whose work is complete. To return a
    chunk costs about 20 us, to create one what COSTS says of grow. To keep a buffer's chunks for
    it, do not discard them.
  - To discard never waits for the device, only for a commit of the same buffer that another thread
    makes. A commit makes the host wait in steps 11 and 12, and in one more case: another owner has
    the chunk that is still mapped at the place, and the work that used it at this place is not
    complete, so that it cannot be unmapped yet.
  - On a stream that is being captured a commit is legal, a discard is not. What a graph uses has to
    stay committed as long as the graph may run. Launch the graph behind what its stream did before
    the capture: a commit may take chunks back that the stream still used.

SLEEP
  I want to give a model's memory to another model for a while. Give each model a pool. Wait for all
  work on the pool, also of its graphs. gmlake_pool_sleep(pool, KEEP) copies what is live to the
  host and gives the pool's memory back. Every address stays taken. Later gmlake_pool_wake gives
  each address memory again, with its contents, and graphs that were captured before run as before.
  DROP copies nothing, for what the program can load again. With NULL instead of a pool, all that is
  in no pool sleeps, buffers too. A server that sleeps one of two models is examples/two_models.c.
  An out-of-memory handler may put a pool to sleep, too.
  - At waking these get memory again: blocks, buffers, live windows, and what graphs know. KEEP
    keeps their contents. Other idle windows and free chunks are given up.
  - Meanwhile: to launch a graph of the pool, or to touch its memory, is an error on the device that
    ends the context. To free, to shrink, to destroy and to ask is legal. What was freed gets no
    memory at waking. To allocate, commit, capture or list chunks answers GMLAKE_ERROR_ASLEEP.
  - KEEP needs as much memory on the host: pinned memory of the backend. The first time pins it, in
    huge pages where the system has some; in small ones that took .3 to .5 s for each GiB on H200s.
    The lake keeps it for the next time. It is given back by gmlake_trim, by gmlake_pool_sleep with
    DROP while the pool sleeps, and by gmlake_pool_destroy.
  - Addresses that are registered elsewhere (NCCL, RDMA): end that before the pool sleeps, and
    register them again when it has woken. The memory there is another one then.
  - It costs what creating, mapping, unmapping and releasing each chunk costs, or the copies where
    these take longer: both go on at once.

INTEGRATED DEVICES
  The memory of a DGX Spark (GB10) or a Jetson is the host's. There the lake takes as free what
  Linux has available (MemAvailable, without swap): the driver counts the page cache as used. Set
  driver_free_bytes_min, since a host without memory hangs. Sleep with KEEP answers UNSUPPORTED, as
  it would hold everything twice. Chunks are 2 MiB by default. No such machine has run this.

SHARING
  I want another process to have a tensor. Give both lakes desc.handle_types GMLAKE_HANDLE_POSIX_FD.
  Allocate with GMLAKE_EXCLUSIVE, or use a buffer. gmlake_export writes the handles: send them
  through a local socket, the descriptors beside them by SCM_RIGHTS, and close yours. gmlake_import
  maps them in the other process, at one address; nothing is copied. Let its first use come behind
  your work: wait for your stream before you send. In that process gmlake_free gives it back.
  I want one descriptor, however large the tensor: a buffer whose chunk_bytes is its size. Processes
  of several hosts share GMLAKE_HANDLE_FABRIC, where the device offers it.
  - The memory lives until no process has it. Either may free first, or die.
  - What was exported is never reused, as the other process may still use it. Freed, it is pending
    until its work is complete; then its chunks are released. Whether it is complete is asked again
    at the next free of such memory, in gmlake_trim, and when memory is short. So a free of it may
    call the driver, as a free of what was imported does. stats.exported_bytes and imported_bytes
    count it.
  - As long as memory of a pool is exported, gmlake_pool_sleep answers GMLAKE_ERROR_BUSY for it.
  - Who has a handle may read and write all of that memory, for ever.

POLICIES
  desc.policy is for research. It is a table of decisions; the lake asks for each one that is set.
  A policy reads a view of the pools and returns a plan. The lake checks the plan before it changes
  anything, and carries it out by itself: a wrong policy cannot break the heap.
  bench/policy.h says how to try a policy on recorded programs: begin there. bench/policy_paper.h is
  the GMLake paper's own strategy. desc.observer is told of every step that the lake takes, whoever
  decides; examples/record.h records a program's allocations with it. Neither may be left by longjmp
  or by a C++ exception: a lock would stay held. Policies are not asked about buffers.

THREADS
  Every function but gmlake_destroy may be called from any thread. There are two locks. The driver
  lock is for the one thread that plans and calls the driver. The state lock guards what the lake
  has written down of its memory. It is held for a short time only: frees, and allocations that need
  no driver, take it alone and never wait for a thread that calls it. (A free may record an event.)
  gmlake_forget_stream and gmlake_capture_end take the driver lock too, and gmlake_capture_begin
  where the stream is captured already: what is under way on that stream ends before. So do
  gmlake_get_chunks, gmlake_get_map and gmlake_pool_get_stats: they wait while memory is created or
  unmapped. GMLAKE_SINGLE_THREADED: no locks. The state lock spins, then sleeps. A thread that has
  held it for long, as gmlake_check and gmlake_get_map do, or again and again, lets those in that
  have waited: such a call takes up to twice as long while others wait.
  With GMLAKE_MUTEX defined, and under compilers other than GCC and Clang, it is a mutex like the
  driver lock, and as fair as that is.
  A child of fork has no lake: the device is its parent's, and what the lake had written down was
  copied while another thread may have been changing it. In a child gmlake_free does nothing and
  answers OK, so that destructors may run; gmlake_get_last_error and gmlake_get_desc answer; every
  other call answers GMLAKE_ERROR_FORKED. None of them takes a lock. To find out costs a load from a
  page that the system clears in children, or a getpid where there is no MADV_WIPEONFORK (Linux
  before 4.14).

QUESTIONS
  I want to know ...
  - whether a request can be served now, and at what cost: gmlake_query. A server that admits a
    sequence only if nobody has to wait asks for wait 0 and new_bytes 0.
  - whether a step, a graph or a model will fit, whatever others do meanwhile: gmlake_admit.
  - what a pointer or the address of a fault belongs to: gmlake_find, for any address.
  - what a program has live, and how much of it: gmlake_get_map, as the input of a viewer;
    gmlake_get_stats and gmlake_pool_get_stats, as figures.
  - how large a block can be had, now or later: gmlake_get_budget.
  - why memory ran out: gmlake_get_last_error. What is not live is in free_bytes (its pieces are too
    small), in pending_bytes (somebody has to wait for streams first), or in elsewhere_bytes (other
    arenas hold it).
  - which handles to register with a network card: gmlake_get_chunks, of a block with
    GMLAKE_EXCLUSIVE or of a buffer.

ERRORS
  Every function returns a gmlake_result. gmlake_get_last_error says what was wrong. After an error
  live blocks and their contents are what they were. So are the statistics, but for those that count
  failures, calls of the driver, events and waits. GMLAKE_ERROR_DEVICE_LOST and
  _SHUTTING_DOWN are final: every later call that serves or changes memory answers them at once,
  questions still work, gmlake_destroy cleans up. What the driver refuses to undo is quarantined:
  given up, counted in stats.quarantined_bytes, and offered to the driver again by gmlake_trim. To
  find errors in your program: the logger lists at gmlake_destroy what was never freed; GMLAKE_FILL,
  on the mock, makes reads of freed memory visible, and finds writes; gmlake_mock_use, there, finds
  kernels that use what is not theirs any more, and streams that gmlake_record_stream did not name.

FIRST STEP
  The first step of a program creates the memory that later steps reuse, at 28 us a chunk. Where a
  program knows how much it will need, it can have that memory created before step one:
  gmlake_reserve. examples/profile.h keeps the figure from one run to the next. What is created in
  vain is returned by gmlake_trim, and where memory is short.

COSTS (measured; see bench/RESULTS.md)
  alloc and free   35 to 70 ns without the driver, 130 to 350 ns beyond 100,000 live blocks (the
                   processor's caches). A free range or an exact window is O(1), plus the pieces of
                   a window, plus one entry for each chunk whose first block changes. Where clean
                   memory and a stream's lie side by side, a search is O(log of how often they do).
  stitch           20 to 30 us for each chunk mapped (cuMemSetAccess), and up to 1 ms while the
                   device copies to the host, on an H200. To plan it: O(chunks mapped), or
                   O(slots + blocks, 4,096 at most) if the request may wait for other streams
  grow             28 us for each handle, of a buffer too, or twice as much for a buffer that shares
                   chunks with blocks; nothing for a buffer's chunk that is still mapped where it is
                   committed again
  trim, budget     O(free ranges + chunks + windows + buffers' chunks)
  check, map, a pool's statistics, and the report of a request that is refused   O(blocks)
  query            what planning the allocation costs; O(blocks + slots) if it would be refused, or
                   the host would have to wait
  commit           O(its chunks + arenas) beside the driver's; O(blocks) if other arenas have free
                   chunks that could be returned for it
  find, and the reason for a wrong pointer   O(blocks of a chunk + log(windows and buffers))
  lend, recall     O(the pool's blocks + idle windows), without the driver if one stream borrows
  export, import   a driver call a handle; an import also maps it, and reserves addresses;
                   to free or to return exported memory O(its chunks), and O(idle windows + buffers'
                   chunks) where others map them, beside the driver's; no other free waits for it
  other questions  O(1), pieces and chunks O(their number)
  host memory      64 bytes a block, 16 to 50 for its index, about 60 a chunk, 40 for each chunk of
                   a buffer's addresses up to its end, 2 KB a stream, 30 KB a pool, and 15 KB more
                   for each stream that used memory of it. Records serve again, and stay */

#if defined(GMLAKE_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* memfd_create, in the mock */
#endif

#if !defined(GMLAKE_H_INCLUDED)
#define GMLAKE_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#define GMLAKE_VERSION 200 /* major * 10000 + minor * 100 + patch */
#define GMLAKE_BACKEND_ABI 2u

/* Static functions are not inlined: gcc would warn of outputs that are not written on an error. */
#if !defined(GMLAKE_DEF)
#if defined(GMLAKE_STATIC) && defined(__GNUC__)
#define GMLAKE_DEF __attribute__((unused, noinline)) static
#elif defined(GMLAKE_STATIC)
#define GMLAKE_DEF static
#else
#define GMLAKE_DEF extern
#endif
#endif

#if defined(__cplusplus)
extern "C" {
#endif

/* ---- Results and handles -------------------------------------------------------------------- */

typedef enum gmlake_result {
  GMLAKE_OK = 0,
  GMLAKE_ERROR_INVALID_ARGUMENT,
  GMLAKE_ERROR_OUT_OF_HOST_MEMORY,
  GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, /* after the whole out-of-memory ladder */
  GMLAKE_ERROR_LIMIT_REACHED,        /* the same, because of limit_bytes or driver_free_bytes_min */
  GMLAKE_ERROR_UNKNOWN_POINTER,      /* not the start of a live block */
  GMLAKE_ERROR_DOUBLE_FREE,          /* ptr lies in free memory or in an idle window */
  GMLAKE_ERROR_UNSUPPORTED,          /* the device or the driver cannot do it */
  GMLAKE_ERROR_NO_DRIVER,
  GMLAKE_ERROR_NO_DEVICE,
  GMLAKE_ERROR_DRIVER,        /* any other driver error: see gmlake_get_last_error */
  GMLAKE_ERROR_DEVICE_LOST,   /* sticky: the context is dead, every later call fails */
  GMLAKE_ERROR_CAPTURING,     /* not allowed while the stream is being captured */
  GMLAKE_ERROR_FORKED,        /* a child of fork cannot use its parent's lake */
  GMLAKE_ERROR_SHUTTING_DOWN, /* the driver is unloading; destroy still frees host memory */
  GMLAKE_ERROR_CORRUPT,       /* gmlake_check found a broken invariant, GMLAKE_FILL a write */
  GMLAKE_ERROR_ASLEEP,        /* the pool sleeps: call gmlake_pool_wake first */
  GMLAKE_ERROR_BUSY           /* the pool is lent or exported, or a handler runs for it */
} gmlake_result;

typedef struct gmlake gmlake;
typedef struct gmlake_pool gmlake_pool;
typedef struct gmlake_buffer gmlake_buffer;
typedef void *gmlake_stream; /* a CUstream or cudaStream_t; NULL and 1 are the legacy stream */

/* No stream. An allocation returns memory that no pending work uses. A free says that the caller
   has synchronised the block's own stream; the lake still waits for streams that were recorded. */
#define GMLAKE_STREAM_NONE ((gmlake_stream)(intptr_t)-1)

/* ---- Backend: the seam to the memory system ------------------------------------------------- */

typedef struct gmlake_device_properties {
  size_t device_bytes;      /* physical memory of the device */
  size_t granularity_bytes; /* chunks, mappings and reservations are multiples; a power of two */
  unsigned handle_types;    /* mask of GMLAKE_HANDLE_* that create accepts */
  int is_host_memory;       /* the host may read and write what is mapped: GMLAKE_FILL */
  char name[64];
  int device;        /* its number, from 0 on, */
  int device_count;  /* how many devices there are; 0: the backend does not say */
  int is_integrated; /* its memory is the host's, and free what the system has available */
} gmlake_device_properties;

#define GMLAKE_HANDLE_POSIX_FD 1u
#define GMLAKE_HANDLE_WIN32 2u
#define GMLAKE_HANDLE_FABRIC 8u

/* The memory of one driver handle, described for another process. The struct is sent as plain
   bytes, but fd belongs to one process: send it by SCM_RIGHTS beside the rest. */
typedef struct gmlake_handle {
  unsigned type;            /* GMLAKE_HANDLE_POSIX_FD or GMLAKE_HANDLE_FABRIC */
  int fd;                   /* [POSIX_FD] an open file descriptor; else -1 */
  size_t bytes;             /* of the memory */
  unsigned char fabric[64]; /* [FABRIC] the driver's */
} gmlake_handle;

/* A memory system for one device. Every function may be called from any thread, takes `user`
   first, and writes the driver's own error number (0: none) to *out_code, which is never NULL.
   On an error nothing has changed and no other output is written. Results other than OK:
   OUT_OF_DEVICE_MEMORY, INVALID_ARGUMENT, UNSUPPORTED, DEVICE_LOST, SHUTTING_DOWN, CAPTURING,
   FORKED, NO_DRIVER, NO_DEVICE, OUT_OF_HOST_MEMORY, DRIVER. Addresses are device addresses. */
typedef struct gmlake_backend {
  size_t struct_bytes;  /* sizeof(gmlake_backend) */
  unsigned abi_version; /* GMLAKE_BACKEND_ABI; a table of version 1 has no entry behind
                           device_wait */
  void *user;

  gmlake_result (*get_properties)(void *user, gmlake_device_properties *out, int *out_code);
  gmlake_result (*get_memory_info)(void *user, size_t *out_free_bytes, size_t *out_total_bytes,
                                   int *out_code);

  /* pre: bytes > 0 and a multiple of the granularity; alignment a power of two. */
  gmlake_result (*reserve)(void *user, size_t bytes, size_t alignment, uint64_t *out_address,
                           int *out_code);
  /* pre: a whole reservation; nothing is mapped in it. */
  gmlake_result (*unreserve)(void *user, uint64_t address, size_t bytes, int *out_code);

  /* pre: bytes > 0 and a multiple of the granularity. The handle is never 0. */
  gmlake_result (*create)(void *user, size_t bytes, unsigned handle_types, uint64_t *out_handle,
                          int *out_code);
  /* pre: a handle not released. Its memory lives until the last mapping of it is gone. */
  gmlake_result (*release)(void *user, uint64_t handle, int *out_code);

  /* pre: bytes is the handle's size; the range lies in one reservation and nothing is mapped
     there. The new mapping has no access. */
  gmlake_result (*map)(void *user, uint64_t address, size_t bytes, uint64_t handle, int *out_code);
  /* pre: one or more whole adjacent mappings; no work that uses them is pending. */
  gmlake_result (*unmap)(void *user, uint64_t address, size_t bytes, int *out_code);
  /* pre: one or more whole adjacent mappings. Read and write for the device and its peers. */
  gmlake_result (*set_access)(void *user, uint64_t address, size_t bytes, const int *peer_devices,
                              size_t peer_count, int *out_code);

  gmlake_result (*event_create)(void *user, void **out_event, int *out_code);
  gmlake_result (*event_destroy)(void *user, void *event, int *out_code);
  /* The event completes when all work that is on the stream now has completed. To record it again
     replaces the former record. INVALID_ARGUMENT: there is no such stream; the lake does not record
     on it again. pre: the stream is not being captured. */
  gmlake_result (*event_record)(void *user, void *event, gmlake_stream stream, int *out_code);
  /* pre: the event was recorded. */
  gmlake_result (*event_query)(void *user, void *event, int *out_done, int *out_code);
  /* Blocks the host until the event completes. pre: the event was recorded. */
  gmlake_result (*event_wait)(void *user, void *event, int *out_code);
  /* Work queued on the stream from now on starts after the event. pre: the event was recorded. */
  gmlake_result (*stream_wait)(void *user, gmlake_stream stream, void *event, int *out_code);

  /* Exchanges this thread's capture mode with *mode (0 global, 1 thread-local, 2 relaxed). */
  gmlake_result (*capture_exchange)(void *user, int *mode, int *out_code);

  /* A clock for statistics, in nanoseconds: real time, or what a mock charges. */
  uint64_t (*clock_ns)(void *user);

  /* The following entries may be NULL, or lie behind the table's end as struct_bytes tells it. */

  /* A number that no other stream has or will ever have. Only lakes with GMLAKE_STREAMS_MAY_END
     call it. INVALID_ARGUMENT: there is no such stream. pre: not the legacy stream, and not a
     stream that the lake knows to be captured. */
  gmlake_result (*stream_id)(void *user, gmlake_stream stream, uint64_t *out_id, int *out_code);
  /* Blocks the host until all work on all streams is complete, also on streams that are destroyed.
     pre: the lake knows of no capture. */
  gmlake_result (*device_wait)(void *user, int *out_code);
  /* Copies from host memory to the device or, with to_host, back. Returns when every earlier copy
     is complete: this one may run on until the next call. 0 bytes: only waits. After an error no
     copy runs. Legal while streams are captured. pre: while it runs the range is mapped with
     access, and no other work uses it. */
  gmlake_result (*copy)(void *user, uint64_t address, void *host, size_t bytes, int to_host,
                        int *out_code);
  /* Host memory that the device reads and writes at the link's full speed: pinned. */
  gmlake_result (*host_alloc)(void *user, size_t bytes, void **out_host, int *out_code);
  gmlake_result (*host_free)(void *user, void *host, int *out_code);
  /* Writes out->fd or out->fabric, by which processes can have the handle's memory. The caller has
     set out->type and out->bytes. pre: the handle was created with this type, and is not another
     process's. */
  gmlake_result (*export_handle)(void *user, uint64_t handle, gmlake_handle *out, int *out_code);
  /* Creates a handle for memory that was exported, of in->bytes. The descriptor stays the
     caller's. */
  gmlake_result (*import_handle)(void *user, const gmlake_handle *in, uint64_t *out_handle,
                                 int *out_code);
  /* Whether the stream is being captured, also if the capture is spoilt; of the legacy stream,
     whether captures of others forbid to use it. To ask is legal in every mode, and spoils nothing.
     INVALID_ARGUMENT: there is no such stream. */
  gmlake_result (*is_capturing)(void *user, gmlake_stream stream, int *out_is, int *out_code);
  /* Blocks the host until one of the events completes, and writes its index. Without this function
     the lake waits for the first of them. pre: 1 <= count; the events were recorded. */
  gmlake_result (*event_wait_any)(void *user, void *const *events, unsigned count,
                                  unsigned *out_index, int *out_code);
} gmlake_backend;

#if !defined(GMLAKE_STATIC) || defined(GMLAKE_BACKEND_CUDA) || !defined(GMLAKE_BACKEND_MOCK)
/* The CUDA driver (GMLAKE_BACKEND_CUDA). One backend serves one device and may serve several
   lakes; destroy it after them. Errors: NO_DRIVER, NO_DEVICE, UNSUPPORTED (no virtual memory
   management), FORKED, OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY (a context), SHUTTING_DOWN,
   DEVICE_LOST, DRIVER. */
GMLAKE_DEF gmlake_result gmlake_cuda_create(int device, gmlake_backend **out_backend);
GMLAKE_DEF void gmlake_cuda_destroy(gmlake_backend *backend);
#endif

/* ---- Mock backend: a device on the host (GMLAKE_BACKEND_MOCK) -------------------------------- */

/* What the modelled clock charges for a call: what it took on an H200, */
typedef enum gmlake_mock_costs {
  GMLAKE_MOCK_COSTS_ALONE = 0, /* repeated, with nothing else going on */
  GMLAKE_MOCK_COSTS_REPLAYED,  /* among other calls, as a lake makes them for recorded programs */
  GMLAKE_MOCK_COSTS_BUSY       /* in torch's programs, which train on the GPU meanwhile */
} gmlake_mock_costs;

typedef struct gmlake_mock_desc { /* all zero: sensible defaults */
  size_t capacity_bytes;          /* 0: 16 GiB; sparse, so more than the host has is fine */
  size_t granularity_bytes;       /* 0: 2 MiB; a power of two, at least the host's page */
  int bookkeeping_only;           /* no memory behind the addresses */
  gmlake_mock_costs costs;
  int device_count;       /* 0: 8; at most 32. The mock is number 0, the others may be its peers */
  size_t available_bytes; /* less than the capacity, not 0: integrated, so much is available */
} gmlake_mock_desc;

typedef struct gmlake_mock_census {
  size_t handle_count;      /* created and not yet released */
  size_t mapping_count;     /* mapped and not yet unmapped */
  size_t reservation_count; /* reserved and not yet unreserved */
  size_t physical_bytes;    /* memory of handles that are not released or still mapped */
  size_t reserved_address_bytes;
  size_t event_count;       /* created and not yet destroyed */
  uint64_t call_count;      /* calls of the backend's table, failed ones included, clock excluded */
  uint64_t failed_count;    /* calls that returned an error, injected or refused */
  uint64_t host_wait_count; /* calls that waited for an event or the device, with work under way */
  uint64_t modelled_ns;     /* cost of all calls that succeeded, on the modelled device */
  size_t host_count;        /* ranges of host memory allocated and not yet freed */
} gmlake_mock_census;

#if !defined(GMLAKE_STATIC) || defined(GMLAKE_BACKEND_MOCK)
/* Errors: INVALID_ARGUMENT; UNSUPPORTED (real memory off Linux); OUT_OF_HOST_MEMORY, also where the
   process may open no more files, or has a limit on their size (ulimit -n, -f). NULL is a
   description that is all zero. With desc.handle_types each chunk takes a descriptor. */
GMLAKE_DEF gmlake_result gmlake_mock_create(const gmlake_mock_desc *desc,
                                            gmlake_backend **out_backend);
/* pre: its lakes are destroyed. */
GMLAKE_DEF void gmlake_mock_destroy(gmlake_backend *backend);
GMLAKE_DEF void gmlake_mock_get_census(gmlake_backend *backend, gmlake_mock_census *out_census);
/* Makes a call fail with `result`: the one after which census.call_count is call_number; if
   persistent, every later call too. call_number 0: no call fails. capture_exchange is a call. */
GMLAKE_DEF void gmlake_mock_fail_at(gmlake_backend *backend, uint64_t call_number,
                                    gmlake_result result, int persistent);
/* Whether this device (0: the mock's own) may read and write all these bytes: whether set_access
   gave it access to every mapping under them. */
GMLAKE_DEF int gmlake_mock_has_access(gmlake_backend *backend, const void *ptr, size_t bytes,
                                      int device);

/* Streams of the mock. A new one is idle; the legacy stream exists from the start. */
GMLAKE_DEF gmlake_result gmlake_mock_stream_create(gmlake_backend *backend,
                                                   gmlake_stream *out_stream);
/* The value may be handed out again by the next create, as drivers do. */
GMLAKE_DEF void gmlake_mock_stream_destroy(gmlake_backend *backend, gmlake_stream stream);
/* Work is now pending on the stream: events recorded on it from now on do not complete. */
GMLAKE_DEF void gmlake_mock_stream_hold(gmlake_backend *backend, gmlake_stream stream);
/* All work on the stream is done, its events complete (unless they wait for another stream). */
GMLAKE_DEF void gmlake_mock_stream_finish(gmlake_backend *backend, gmlake_stream stream);
/* Events recorded from now on complete lag_ns after they were recorded, by the mock's stream
   clock (UINT64_MAX: never). */
GMLAKE_DEF void gmlake_mock_stream_set_lag(gmlake_backend *backend, gmlake_stream stream,
                                           uint64_t lag_ns);
/* Sets the stream clock, which begins at 0 and never goes back. The clock of modelled costs does
   not change. */
GMLAKE_DEF void gmlake_mock_set_clock(gmlake_backend *backend, uint64_t now_ns);
/* Between begin and end the stream is being captured. These calls then fail with CAPTURING and
   spoil the capture: to record or to wait on the stream, to record on the legacy stream, and event
   queries outside a relaxed exchange. end answers OK, or CAPTURING if the capture was spoilt.
   INVALID_ARGUMENT: the legacy stream, a second begin, or an end without a capture. */
GMLAKE_DEF gmlake_result gmlake_mock_capture_begin(gmlake_backend *backend, gmlake_stream stream);
GMLAKE_DEF gmlake_result gmlake_mock_capture_end(gmlake_backend *backend, gmlake_stream stream);
/* Queues work on the stream, a kernel, that uses the bytes of a live block, or of a buffer where it
   has memory. From then on gmlake_free of that block, and gmlake_buffer_discard, resize and
   destroy, answer INVALID_ARGUMENT as long as the work is not ordered before them: before new work
   of the stream that they name, or of one that gmlake_record_stream named for the block. The work
   is complete when the host waits for work queued behind it, or when the stream is finished. The
   mock orders work by streams, events and waits alone: the legacy stream waits for no other.
   Refuses, with a text in gmlake_get_last_error: INVALID_ARGUMENT (the bytes are not all of one
   live block or buffer: they were freed, or lie behind its end; work of another stream used them
   for a block before, and no event orders it; no such stream), ASLEEP, CAPTURING (the legacy stream
   while another is captured). Else OUT_OF_HOST_MEMORY. On a stream that is being captured nothing
   is queued: launches of graphs are gmlake_mock_launch's. pre: the backend is the lake's, or that
   one calls it. Any thread. O(work that is not complete), and so is each such free from then on. */
GMLAKE_DEF gmlake_result gmlake_mock_use(gmlake_backend *backend, gmlake *lake, const void *ptr,
                                         size_t bytes, gmlake_stream stream);
/* Queues a launch of one of the graphs that were captured into the pool; `graph` is any number that
   tells it from the others. It runs after the earlier launches of the same graph. It is complete
   when the host waits for work queued behind it, or when the stream is finished. Refuses what
   CAPTURES, LENDING and SLEEP forbid, which a driver lets pass: BUSY (the pool is lent), ASLEEP,
   INVALID_ARGUMENT (no event orders it behind another graph of the pool that may still run; or no
   such stream), CAPTURING (the stream, or the legacy stream meanwhile). Else OUT_OF_HOST_MEMORY. */
GMLAKE_DEF gmlake_result gmlake_mock_launch(gmlake_backend *backend, gmlake_pool *pool,
                                            uint64_t graph, gmlake_stream stream);
#endif

/* ---- Description ----------------------------------------------------------------------------- */

typedef enum gmlake_cross_stream {
  GMLAKE_GROW_FIRST = 0, /* create memory before making one stream wait for another */
  GMLAKE_WAIT_FIRST      /* wait on the device for another stream's memory before creating more */
} gmlake_cross_stream;

typedef enum gmlake_stream_kind {
  GMLAKE_STREAM_PLAIN = 0,
  GMLAKE_STREAM_COMMUNICATION, /* other processes wait for its work: the lake never makes it wait */
  GMLAKE_STREAM_URGENT, /* of high priority: the lake makes it wait for other such streams alone */
  GMLAKE_STREAM_STAYS   /* it is not destroyed before the lake, unless it was forgotten. Its kind
                           stays the one that it was marked with before */
} gmlake_stream_kind;

/* Set both functions, or neither: then malloc and free are used. Memory is aligned as malloc's.
   They are called with a lock held: if they call the lake they get INVALID_ARGUMENT. */
typedef struct gmlake_host_allocator {
  void *(*malloc_fn)(void *user, size_t bytes);
  void (*free_fn)(void *user, void *ptr);
  void *user;
} gmlake_host_allocator;

typedef struct gmlake_error_info {
  gmlake_result result;
  int driver_code;  /* the driver's own number, 0: none */
  const char *call; /* the function that failed, the driver's or ours */
  char text[160];
  /* Filled when memory ran out; free, stitchable and pending are of the pool that was asked: */
  size_t asked_bytes;
  size_t live_bytes;       /* live blocks and buffers of the lake, rounded */
  size_t free_bytes;       /* free memory of the arena that the asking stream may take now */
  size_t stitchable_bytes; /* the part of it that a window without flags could be made of */
  size_t pending_bytes;    /* free memory of the arena that other streams' work, or a graph, uses */
  size_t reserved_bytes;   /* physical memory the lake holds */
  size_t limit_bytes;      /* the limit that applied; the pool's limit if the request alone exceeds
                              that one. 0: no limit, or only driver_free_bytes_min */
  size_t driver_free_bytes;
  gmlake_pool *pool; /* that was asked; NULL: the default one */
  /* Whose the rest is. reserved_bytes is live_here_bytes + free_bytes + pending_bytes +
     elsewhere_bytes: */
  size_t live_here_bytes; /* live blocks and buffers in the arena */
  size_t elsewhere_bytes; /* all that other arenas hold, of pools and buffers, and quarantine */
  size_t hole_bytes;      /* the part of free_bytes in holes smaller than a chunk, of which no
                             window can be made */
  size_t largest_bytes;   /* the longest run in free_bytes */
  size_t sleeping_bytes;  /* that pools gave back and need to wake; not in reserved_bytes */
} gmlake_error_info;

#define GMLAKE_LOG_ERROR 0
#define GMLAKE_LOG_WARNING 1

/* The lake tells the logger of: fatal errors; a lake that cannot stitch; a thread whose capture
   mode stays relaxed, because the driver refused to set it back; a write to free memory that
   GMLAKE_FILL found; at destroy every live block and buffer (a warning with size, address and
   label). Without a logger the last two are written to stderr, the leaks as a count, unless NDEBUG
   is defined. It is called with no lock held at the end of a call: the call that caused the
   message, or another thread's that ends meanwhile. It may call the lake. It has to return:
   neither longjmp nor an exception may leave it. */
typedef struct gmlake_logger {
  void (*fn)(void *user, int level, const gmlake_error_info *info);
  void *user;
} gmlake_logger;

/* Called with no lock held when memory has run out, also for a request that can never be served
   (compare asked_bytes with limit_bytes and with the device). It may free, shrink and trim on this
   lake, and put pools to sleep; it may not allocate or grow. If it answers non-zero the lake tries
   again, eight times at most. It has to return: neither longjmp nor an exception may leave it. */
typedef struct gmlake_oom_handler {
  int (*fn)(void *user, gmlake *lake, const gmlake_error_info *info);
  void *user;
} gmlake_oom_handler;

/* ---- Policies and observers: for research ---------------------------------------------------- */

/* A range of a home arena. */
typedef struct gmlake_piece {
  void *home; /* where it lies there */
  size_t bytes;
} gmlake_piece;

typedef struct gmlake_request { /* what is asked for */
  uint64_t number;         /* from 1 on, each try has another; steps name it. 0: an admission */
  size_t bytes, alignment; /* as asked for; 512 at least */
  unsigned flags;          /* GMLAKE_EXCLUSIVE, GMLAKE_NO_STITCH, GMLAKE_NO_GROW */
  gmlake_stream stream;
  gmlake_pool *pool; /* NULL: the default one */
} gmlake_request;

typedef struct gmlake_window_info { /* an idle window: an inactive sBlock */
  uint64_t number;                  /* names it; counts windows as they are stitched, from 1 on */
  size_t bytes;
  size_t mapped_bytes; /* of the chunks under it */
  size_t piece_count;
  int is_free;     /* its pieces are free for the request: it can be reused */
  int is_complete; /* no work uses it any more: it can be evicted */
} gmlake_window_info;

/* What a request could be served from; to be read only while the callback runs. */
typedef struct gmlake_view {
  size_t chunk_bytes;                          /* of the arena */
  size_t stitch_bytes_min, stitched_bytes_max; /* of the description */
  size_t reserved_bytes, stitched_bytes;       /* of the lake, now */
  const gmlake_piece *blocks;                  /* the free pBlocks that the request may have without
                                                  waiting for anything; by address within each range
                                                  of addresses that the arena has reserved */
  size_t block_count;
  const gmlake_window_info *windows; /* idle ones, the one longest unused first */
  size_t window_count;
} gmlake_view;

/* How a request is to be served. When the policy gets it all fields are zero but pieces and
   piece_capacity. A window or one piece is state 1 or 2, several pieces are state 3, a plan that
   creates memory is state 4. */
typedef struct gmlake_plan {
  unsigned state;  /* the paper's, 1 to 5; 0: the built-in policy decides, nothing else counts */
  uint64_t window; /* its number: reuse this one as it is; 0: none */
  gmlake_piece *pieces; /* to be written: one is taken, several are stitched in this order */
  size_t piece_count, piece_capacity; /* capacity: one more than the view has blocks */
  size_t grow_bytes;  /* memory to be created: whole chunks side by side, the last piece. All of it
                         becomes the block's; to use a part of new memory, leave state 0 */
  int keeps_former;   /* 1: the piece is the front of a free block. The lake also makes an idle
                         window of that front and the rest of the block */
  const char *reason; /* for the observer; not copied */
} gmlake_plan;

/* Decisions. Where a pointer is NULL the built-in policy decides, as it does for requests of more
   than the arena's addresses or of 1 TiB and more. The functions are called without a
   lock, for one planner at a time. They may ask the lake about blocks and figures; other calls on
   their thread get INVALID_ARGUMENT. The lake checks a plan before it changes anything. After an
   illegal plan the allocation answers INVALID_ARGUMENT, gmlake_get_last_error has the reason, and
   the heap is as it was. */
typedef struct gmlake_policy {
  size_t struct_bytes; /* sizeof(gmlake_policy), unlike elsewhere never 0 */
  void *user;
  /* BestFit. The pieces have to be free, multiples of 512 bytes, without overlap, and together at
     least as many bytes as asked for. A piece may cover several blocks side by side. It may not
     cross from one range of addresses that the arena has reserved into the next, even where the
     two touch. A piece that is one block never does. Of several pieces all but the last end where
     a chunk ends, all but the first begin where one begins, and no two share a chunk. After state
     5, or if growth fails, the policy is asked again when the host has waited for other streams;
     then once more when all idle windows are dropped and, if the request may grow, all free chunks
     are returned. Then the allocation fails. */
  void (*choose)(void *user, const gmlake_view *view, const gmlake_request *request,
                 gmlake_plan *plan);
  /* StitchFree: asked before a window maps mapped_bytes more. Writes the numbers of complete
     windows that are to be dropped, at most view->window_count, and returns how many. */
  size_t (*evict)(void *user, const gmlake_view *view, size_t mapped_bytes, uint64_t *out_windows);
  /* Update: whether a freed block joins its free neighbours. 0: it stays apart from them, and from
     neighbours that are freed later, until it is taken. New memory is apart too. The view shows
     blocks that are apart one by one; the built-in policy still takes neighbours as one range.
     Every thread that frees calls it, so several may at once. */
  int (*coalesce)(void *user, const gmlake_piece *block);
} gmlake_policy;

typedef enum gmlake_step_kind {
  GMLAKE_STEP_ALLOC = 1, /* a request was served, or was not: state 5 */
  GMLAKE_STEP_FREE,
  GMLAKE_STEP_SPLIT,   /* of a free range a part was taken */
  GMLAKE_STEP_STITCH,  /* a window was made */
  GMLAKE_STEP_REUSE,   /* a window was taken again */
  GMLAKE_STEP_EVICT,   /* a window was dropped */
  GMLAKE_STEP_GROW,    /* chunks were created */
  GMLAKE_STEP_WAIT,    /* a stream, or the host, was made to wait */
  GMLAKE_STEP_TRIM,    /* chunks were returned to the driver */
  GMLAKE_STEP_USE,     /* gmlake_record_stream named a stream for a block */
  GMLAKE_STEP_BUFFER,  /* a buffer was created */
  GMLAKE_STEP_COMMIT,  /* a range of a buffer has memory */
  GMLAKE_STEP_DISCARD, /* it has none any more */
  GMLAKE_STEP_END      /* a buffer was destroyed */
} gmlake_step_kind;

typedef struct gmlake_step {
  gmlake_step_kind kind;
  unsigned state;   /* ALLOC: the paper's, 1 to 5; else 0 */
  uint64_t request; /* the number of the request that it serves, 0: of none */
  /* ALLOC, FREE, USE: the block's; STITCH, REUSE, EVICT: the window's; SPLIT, GROW: of the first
     byte taken or created, at home; BUFFER, END: the buffer's; COMMIT, DISCARD: the range's; else,
     and of the chunks of buffers, 0. */
  uint64_t address;
  size_t bytes;         /* of that, rounded; SPLIT: of the range; GROW, TRIM: of all chunks; BUFFER:
                           of one chunk */
  size_t asked_bytes;   /* ALLOC, FREE, USE: of the user; BUFFER: its max_bytes */
  gmlake_stream stream; /* that the memory, or the waiting, is for, NONE if the driver has said
                           meanwhile that it is gone; USE: that was named */
  const char *reason;   /* a few words, never NULL; they stay valid */
  uint64_t driver_ns;   /* in calls of the backend: of this step, ALLOC: of the whole request */
  size_t reserved_bytes, active_bytes; /* of the lake, after it */
  const char *label; /* of the request that it serves, or of the buffer; NULL: it has none */
  gmlake_pool *pool; /* that was asked, or the buffer's; NULL: the default one, or none */
} gmlake_step;

/* The observer is told of every step, in order, with the state lock held. It must be quick and may
   not call any lake: its own answers INVALID_ARGUMENT. Of gmlake_destroy it is told the waits
   alone: no FREE for what is still live, no EVICT or TRIM for what is given back. Windows that go
   with their pool are not told and not counted as evicted. fn NULL: there is no observer. */
typedef struct gmlake_observer {
  void (*fn)(void *user, const gmlake_step *step);
  void *user;
} gmlake_observer;

/* desc.flags */
#define GMLAKE_SINGLE_THREADED 1u /* no locks; one thread at a time calls the lake */
/* Finds errors in your program: fills memory with GMLAKE_FILL_NEW when it is handed out, and with
   GMLAKE_FILL_FREE when nothing may use it any more. When it serves again, the logger, or else
   gmlake_get_last_error, is told of a write meanwhile (CORRUPT, with address and offset); the
   request succeeds. Not looked at: what graphs know; buffers' chunks that blocks cannot have. On a
   mock with real memory; else UNSUPPORTED. O(bytes) for each block. */
#define GMLAKE_FILL 2u
/* Streams may be destroyed without gmlake_forget_stream: for an owner of the lake who does not see
   the program's streams. The manual says under STREAMS what it costs. UNSUPPORTED where the backend
   has no stream_id: drivers before CUDA 12. */
#define GMLAKE_STREAMS_MAY_END 8u

#define GMLAKE_FILL_NEW 0xA5u
#define GMLAKE_FILL_FREE 0x5Au

typedef struct gmlake_desc { /* all zero: sensible defaults */
  int device;
  const gmlake_backend *backend; /* NULL: CUDA where compiled in, else a mock of the lake's own */
  unsigned flags;
  gmlake_cross_stream cross_stream;
  size_t chunk_bytes;           /* of a physical chunk, a power of two up to 1 GiB; 0: device memory
                                   / 8192, down to a power of two, 2 to 32 MiB; integrated: 2 MiB */
  size_t stitch_bytes_min;      /* smaller requests are never stitched (the paper's fragmentation
                                limit); 0: no such limit */
  size_t stitched_bytes_max;    /* StitchFree's threshold: bytes of all windows together. Divided by
                                   chunk_bytes it limits their number, too; 0: 4 x device memory */
  size_t limit_bytes;           /* physical memory this lake may hold; 0: no limit */
  size_t driver_free_bytes_min; /* the lake does not grow if the driver would then have less free
                                   memory */
  size_t arena_bytes;           /* address space of the home arena, at most; 0: 8 x device memory,
                                   less than 2 TiB */
  size_t window_bytes;          /* the same of its windows; 0: 32 x device memory */
  const int *peer_devices;      /* other devices that get access to every mapping, each once, 64 at
                                   most; if one cannot have access, the first allocation fails and
                                   names the error */
  size_t peer_count;
  unsigned handle_types; /* GMLAKE_HANDLE_*: chunks can be exported as these */
  gmlake_host_allocator host;
  gmlake_logger logger;
  gmlake_oom_handler oom;
  const gmlake_policy *policy; /* NULL: the built-in one alone; has to outlive the lake */
  gmlake_observer observer;
  gmlake_error_info *out_error; /* if not NULL: gmlake_create writes here why it failed. The logger
                                   is told too. Not used after that call */
} gmlake_desc;

#define GMLAKE_EXCLUSIVE 1u  /* whole chunks that no other block shares */
#define GMLAKE_NO_STITCH 2u  /* one piece of the home arena, as pinned DMA wants it */
#define GMLAKE_NO_GROW 4u    /* only from memory that the lake holds, else OUT_OF_DEVICE_MEMORY */
#define GMLAKE_TRANSIENT 16u /* may be served from a pool that is lent, see LENDING */

typedef struct gmlake_alloc_desc {
  size_t bytes;
  size_t alignment;  /* 0: 512; a power of two, at most chunk_bytes */
  unsigned flags;    /* GMLAKE_EXCLUSIVE, _NO_STITCH, _NO_GROW, _TRANSIENT */
  gmlake_pool *pool; /* NULL: the default pool, or that of the stream's capture */
  uint64_t user_data;
  const char *label; /* not copied */
} gmlake_alloc_desc;

typedef struct gmlake_pool_desc { /* all zero: sensible defaults */
  size_t chunk_bytes;             /* 0: the lake's */
  size_t limit_bytes;             /* physical memory this pool may hold; 0: only the lake's limit */
  const char *label;              /* not copied; shown for leaked blocks that have no label */
} gmlake_pool_desc;

typedef struct gmlake_buffer_desc {
  size_t max_bytes;   /* address space, rounded up to chunks; 0 is refused */
  size_t chunk_bytes; /* 0: 2 MiB, or the device's granularity if that is larger; a power of two,
                         a multiple of the granularity, at most 1 GiB */
  uint64_t user_data;
  const char *label; /* not copied */
  gmlake_pool *pool; /* whose limit_bytes counts the buffer's chunks, too; NULL: the default one */
} gmlake_buffer_desc;

#define GMLAKE_ANY_CHUNK UINT32_MAX

typedef struct gmlake_buffer_info {
  void *ptr;              /* of the first byte, whatever the size; a multiple of chunk_bytes */
  size_t bytes;           /* the end: as last resized to, or where a commit behind that ended */
  size_t committed_bytes; /* memory in it, in whole chunks; nothing behind the end */
  size_t max_bytes;       /* as asked for at create */
  size_t chunk_bytes;
  uint64_t user_data;
  const char *label;
  gmlake_pool *pool; /* NULL: the default one */
} gmlake_buffer_info;

typedef enum gmlake_kind {
  GMLAKE_KIND_BLOCK = 1, /* what an allocation got */
  GMLAKE_KIND_HOLE,      /* a free range of a home arena */
  GMLAKE_KIND_WINDOW,    /* an idle window */
  GMLAKE_KIND_BUFFER,    /* a buffer, up to its end */
  GMLAKE_KIND_PIECE,     /* a range of a home arena that is mapped in a block's window, or a chunk
                            of a buffer where that maps it */
  GMLAKE_KIND_CHUNK,     /* physical memory */
  GMLAKE_KIND_IDLE_PIECE /* a range of a home arena that an idle window maps */
} gmlake_kind;

typedef enum gmlake_state {
  GMLAKE_STATE_LIVE = 1, /* the user's; a chunk that is held */
  GMLAKE_STATE_PENDING,  /* freed, and recorded streams may still use it */
  GMLAKE_STATE_TAGGED,   /* free, but work on `stream` may still use it; that stream may have it */
  GMLAKE_STATE_FREE,     /* free for everybody */
  GMLAKE_STATE_GRAPH,    /* free for captures into its pool alone: a graph knows its address */
  GMLAKE_STATE_QUARANTINED /* given up */
} gmlake_state;

typedef struct gmlake_chunk_info { /* a part of a block or buffer that lies in one chunk */
  uint64_t handle;                 /* the driver's */
  uint64_t address;                /* of the part, in the block or buffer */
  size_t offset_bytes;             /* of the part, in the handle's memory */
  size_t bytes;
} gmlake_chunk_info;

typedef struct gmlake_map_entry { /* what lies somewhere */
  gmlake_kind kind;
  gmlake_state state;
  uint64_t address; /* 0: a chunk that only buffers can use: it has no address of its own */
  size_t bytes;     /* buffer: up to its end in whole chunks, holes too; its pieces tell them */
  size_t requested_bytes; /* block, buffer: as asked for */
  size_t piece_count;     /* of a block or idle window; else 1 */
  unsigned flags;         /* block: of the request; GMLAKE_TRANSIENT where it is borrowed */
  gmlake_stream
      stream;        /* block: it was allocated on, NONE if that stream is forgotten; free memory:
                             see the state; else NONE */
  gmlake_pool *pool; /* NULL: in no pool */
  uint64_t owner;    /* address of a piece's block or buffer; of an idle piece's window */
  uint64_t handle;   /* chunk, and piece of a buffer: the driver's */
  uint64_t user_data;
  const char *label;
  uint64_t age;            /* block: how many blocks, and pieces of windows, became live after it */
  unsigned arena;          /* number of the arena whose memory it is; such numbers are reused */
  const char *pool_label;  /* of the pool */
  size_t pool_limit_bytes; /* the pool's limit_bytes; 0: there is none */
} gmlake_map_entry;

typedef struct gmlake_stats {
  size_t requested_bytes, requested_bytes_peak; /* live blocks and buffers, as asked for */
  size_t active_bytes, active_bytes_peak;       /* the same, rounded. Both count what sleeps, too */
  size_t reserved_bytes, reserved_bytes_peak;   /* physical memory held */
  size_t stitched_bytes, stitched_bytes_peak;   /* all windows, live and idle */
  size_t pending_bytes, pending_bytes_peak;     /* freed, waiting for recorded streams alone */
  uint64_t allocation_count, free_count;
  uint64_t state_count[5]; /* requests served in the paper's states S1 to S4; a chunk that a buffer
                              gets counts as one, a chunk that it takes back does not. S5: requests
                              that failed */
  uint64_t split_count, stitch_count, stitch_reuse_count, stitch_evict_count;
  uint64_t chunk_count;       /* chunks held now */
  uint64_t driver_call_count; /* calls of the backend since creation, but clock_ns, stream_id,
                                 capture_exchange and is_capturing */
  uint64_t driver_ns;         /* time in them and in capture exchanges, by the backend's clock; not
                                 counted: frees' event records, which are made with the state lock
                                 held (0.2 us each) */
  uint64_t stream_wait_count; /* waits queued on a stream for another stream's memory */
  uint64_t host_wait_count;   /* waits of the host: last steps before an error, growing buffers,
                                 destroying a pool or a lake */
  uint64_t oom_count;         /* requests that failed for lack of memory, each of the handler's
                                 retries too */
  size_t quarantined_bytes;   /* memory given up because undoing failed */
  uint64_t live_count;        /* live blocks now */
  uint64_t window_count;      /* windows now, live and idle */
  uint64_t event_count;       /* events recorded */
  size_t metadata_bytes, metadata_bytes_peak; /* host memory of the lake */
  uint64_t buffer_count;                      /* buffers now */
  size_t buffer_bytes, buffer_bytes_peak;     /* committed in them: a part of active_bytes */
  size_t sleeping_bytes; /* that what sleeps gave back and needs to wake; not in reserved_bytes */
  size_t exported_bytes; /* chunks that other processes may have: a part of reserved_bytes */
  size_t imported_bytes; /* other processes' chunks that are mapped here: in reserved_bytes, too */
} gmlake_stats;

typedef enum gmlake_sleep_mode {
  GMLAKE_SLEEP_DROP = 0, /* contents are lost */
  GMLAKE_SLEEP_KEEP      /* contents are copied to the host, and back */
} gmlake_sleep_mode;

typedef struct gmlake_budget {
  size_t total_bytes;       /* of the device */
  size_t driver_free_bytes; /* as the driver says now */
  size_t reserved_bytes;    /* held by this lake */
  size_t idle_bytes;        /* held, free and used by no pending work */
  size_t pending_bytes;     /* held, free, work still pending, or a graph's */
  size_t allocatable_bytes; /* the largest block that could be had, see gmlake_get_budget */
} gmlake_budget;

typedef enum gmlake_wait { GMLAKE_NO_WAIT = 0, GMLAKE_DEVICE_WAIT, GMLAKE_HOST_WAIT } gmlake_wait;

typedef struct gmlake_query_info { /* how an allocation would end */
  /* OK; or OUT_OF_DEVICE_MEMORY or LIMIT_REACHED, then the rest is 0. The allocation may then
     answer the other of these two. */
  gmlake_result result;
  /* The stream is made to wait for other streams' work, or the host waits. Where new memory joins
     other streams', or enough work is complete by then, the wait turns out not to be needed. */
  gmlake_wait wait;
  size_t new_bytes; /* of new chunks, 0: none; where chunks are returned first about so many */
} gmlake_query_info;

/* ---- Functions ------------------------------------------------------------------------------ */

/* All functions may be called from any thread, except destroy (when no other call is under way).
   Out parameters are written on success only, unless said otherwise. Costs: see the manual.
   Any function may answer INVALID_ARGUMENT and, in a child of fork, FORKED. All that serve or
   change memory, gmlake_get_budget and gmlake_query may answer DEVICE_LOST and SHUTTING_DOWN. The
   other errors stand beside each function. */

/* Addresses are reserved where they are needed: for a little more than the device's memory here,
   for windows, pools and buffers later. Where the driver refuses as much at once, the lake asks for
   less. A request for which windows have no addresses is not stitched; the first time, the lake
   tells the logger. As there is no lake yet, desc->out_error and desc->logger say why it failed:
   which field is wrong, its value and what is legal, or which call of the driver failed. Errors:
   NO_DRIVER, NO_DEVICE, UNSUPPORTED, OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY (address space),
   DRIVER. */
GMLAKE_DEF gmlake_result gmlake_create(const gmlake_desc *desc, gmlake **out_lake);
/* Waits for pending work, tells the logger of live blocks and buffers, and frees everything,
   whatever fails; returns the first driver error. It cannot wait for a stream that is being
   captured: end captures first. NULL is fine. FORKED: in a child of fork nothing is freed. */
GMLAKE_DEF gmlake_result gmlake_destroy(gmlake *lake);
/* The description with every default filled in. */
GMLAKE_DEF gmlake_result gmlake_get_desc(gmlake *lake, gmlake_desc *out_desc);

/* Memory for work on the stream, aligned to 512 bytes, with undefined contents. *out_ptr is NULL on
   error and for 0 bytes. Errors: OUT_OF_DEVICE_MEMORY, LIMIT_REACHED, OUT_OF_HOST_MEMORY, DRIVER,
   CAPTURING (a capture that nobody told the lake of). */
GMLAKE_DEF gmlake_result gmlake_alloc(gmlake *lake, size_t bytes, gmlake_stream stream,
                                      void **out_ptr);
/* The same with options. CAPTURING also if the stream is being captured into another pool. */
GMLAKE_DEF gmlake_result gmlake_alloc_with(gmlake *lake, const gmlake_alloc_desc *desc,
                                           gmlake_stream stream, void **out_ptr);
/* How gmlake_alloc_with would end now: is it served, what has to wait, is memory created? True for
   a caller who is alone with the device until its next call, without out-of-memory handler and
   policy. If the lake has no free range that fits, it asks the driver what has completed, and how
   much memory is free. Changes no memory; as by an allocation, the lake learns of the stream. It is
   a forecast: it may be wrong for a lake that is very short of memory or of addresses for windows,
   and while exported or imported memory that was freed is pending. A host wait that it predicts
   while a stream is being captured may not be enough: what is freed on that stream joins what was
   freed there before, and such memory can be waited for only after the capture.
   Errors: CAPTURING, ASLEEP, OUT_OF_HOST_MEMORY, DRIVER. */
GMLAKE_DEF gmlake_result gmlake_query(gmlake *lake, const gmlake_alloc_desc *desc,
                                      gmlake_stream stream, gmlake_query_info *out_info);
/* Every use of the block must precede this call on the stream, or be on a stream that
   gmlake_record_stream named. That also holds for a block that was never used: if it is freed on
   another stream, that stream has to be ordered behind the point at which the block's own stream
   got it. NULL is fine. Errors, after which the block is what it was: UNKNOWN_POINTER, DOUBLE_FREE,
   OUT_OF_HOST_MEMORY (first use of a stream, or in a pool; the stream may stay recorded on the
   block). In a child of fork: OK, and nothing is done. */
GMLAKE_DEF gmlake_result gmlake_free(gmlake *lake, void *ptr, gmlake_stream stream);
/* The block is also used on this stream, until it is freed. Errors: UNKNOWN_POINTER,
   OUT_OF_HOST_MEMORY. */
GMLAKE_DEF gmlake_result gmlake_record_stream(gmlake *lake, void *ptr, gmlake_stream stream);
/* Says what the stream is for, until it is forgotten: see STREAMS. Errors: OUT_OF_HOST_MEMORY. */
GMLAKE_DEF gmlake_result gmlake_mark_stream(gmlake *lake, gmlake_stream stream,
                                            gmlake_stream_kind kind);
/* Call it before the stream is destroyed: the driver may give its value to another stream. A stream
   that was never used is fine. Errors: CAPTURING, OUT_OF_HOST_MEMORY, DRIVER. */
GMLAKE_DEF gmlake_result gmlake_forget_stream(gmlake *lake, gmlake_stream stream);

/* The block's pieces in order, at most capacity of them; *out_count is how many it has. */
GMLAKE_DEF gmlake_result gmlake_get_pieces(gmlake *lake, const void *ptr, gmlake_piece *out_pieces,
                                           size_t capacity, size_t *out_count);
/* The block, hole, idle window or buffer that an address lies in: any address, as a fault reports
   it. For the home address of a window's piece it answers the window's block; for an address that a
   buffer may still grow to, the buffer: compare address and bytes. UNKNOWN_POINTER: no memory of
   the lake lies there. */
GMLAKE_DEF gmlake_result gmlake_find(gmlake *lake, const void *address, gmlake_map_entry *out_info);
/* What backs the live block or the buffer that ptr lies in, in order of address: at most capacity
   parts; *out_count is how many there are. For exports, RDMA and NCCL. The handles stay the
   lake's; those of a block stay until it is freed, those of a buffer until they are
   discarded. */
GMLAKE_DEF gmlake_result gmlake_get_chunks(gmlake *lake, const void *ptr,
                                           gmlake_chunk_info *out_chunks, size_t capacity,
                                           size_t *out_count);
/* Every chunk, block, hole, window, buffer and piece, as they are at one moment: at most
   capacity of them; *out_count is how many there are. By arena: its chunks by slot, its home range
   by address, then buffers, each followed by its pieces, and windows, by address; an idle one is
   followed by its pieces. */
GMLAKE_DEF gmlake_result gmlake_get_map(gmlake *lake, gmlake_map_entry *out_entries,
                                        size_t capacity, size_t *out_count);

/* A pool is an arena of its own, and what its buffers hold: its chunks serve nobody else. */
GMLAKE_DEF gmlake_result gmlake_pool_create(gmlake *lake, const gmlake_pool_desc *desc,
                                            gmlake_pool **out_pool);
/* Waits for pending work. pre: the graphs that were captured into the pool have run and are
   destroyed. To name the pool afterwards is an error like the use of freed memory. NULL is fine.
   After an error the pool is as it was, but after DEVICE_LOST and SHUTTING_DOWN it may be gone;
   what the driver refuses to take back is quarantined. INVALID_ARGUMENT: the pool has live blocks
   or buffers. CAPTURING: a capture into it is under way, or another capture keeps the lake from
   recording an event behind pending work. BUSY: it is lent, or the out-of-memory handler runs for a
   call that asks this pool. */
GMLAKE_DEF gmlake_result gmlake_pool_destroy(gmlake *lake, gmlake_pool *pool);
/* Call it before the driver's own begin. Until capture_end, allocations on the stream come from the
   pool, which keeps them for its captures. CAPTURING: the stream is being captured already.
   INVALID_ARGUMENT: the legacy stream, NONE, or no pool. */
GMLAKE_DEF gmlake_result gmlake_capture_begin(gmlake *lake, gmlake_stream stream,
                                              gmlake_pool *pool);
/* Call it after the driver's own end. INVALID_ARGUMENT: the stream is not being captured. If the
   lake has found out meanwhile that the driver ended the capture, it answers OK once. */
GMLAKE_DEF gmlake_result gmlake_capture_end(gmlake *lake, gmlake_stream stream);

/* Lets requests with GMLAKE_TRANSIENT have what a graph's pool has free; see LENDING. pre: every
   launch of the pool's graphs is ordered before this point of the stream, and none follows before
   gmlake_pool_recall. What the pool's live blocks hold stays; the rest is lost. The stream may be
   destroyed meanwhile. Errors: BUSY (it is lent already), CAPTURING (into the pool, or the stream),
   ASLEEP, INVALID_ARGUMENT (NONE, no pool), OUT_OF_HOST_MEMORY. Cost: O(the pool's blocks + idle
   windows), no driver call. */
GMLAKE_DEF gmlake_result gmlake_pool_lend(gmlake *lake, gmlake_pool *pool, gmlake_stream stream);
/* Ends that, and makes the stream wait on the device for the work of all who borrowed: launch the
   pool's graphs on it, or behind it. After an error nothing has changed, but that waits may be
   queued. Errors: BUSY (a borrowed block is live: gmlake_get_last_error names its label, address
   and size), INVALID_ARGUMENT (not lent, NONE, no pool), CAPTURING (the stream, or one that
   borrowed), OUT_OF_HOST_MEMORY, DRIVER. Cost as to lend, and .3 us for each other stream. */
GMLAKE_DEF gmlake_result gmlake_pool_recall(gmlake *lake, gmlake_pool *pool, gmlake_stream stream);

/* Gives the memory of a pool back and keeps every address; see SLEEP. NULL: of all that is in no
   pool, buffers too. pre: the caller has waited for all work on it, also of graphs, and starts none
   before it is awake. *out_released_bytes (may be NULL) is written in any case. It sleeps already:
   OK, and DROP gives up what KEEP kept. After an error it is awake and as it was, but that windows
   and free chunks may be gone; only if the driver refuses to undo it, it sleeps with all contents,
   and gmlake_pool_wake tries again. What the driver refuses to release counts as quarantined until
   it wakes, and the logger is told. Errors: CAPTURING (into the pool), BUSY, UNSUPPORTED (KEEP, and
   the backend cannot copy, or the device is integrated), OUT_OF_HOST_MEMORY, INVALID_ARGUMENT,
   DRIVER, DEVICE_LOST, FORKED, SHUTTING_DOWN. */
GMLAKE_DEF gmlake_result gmlake_pool_sleep(gmlake *lake, gmlake_pool *pool, gmlake_sleep_mode mode,
                                           size_t *out_released_bytes);
/* Gives memory to every address again, and what KEEP kept its contents; after DROP contents are
   undefined. Free chunks of others are returned for it where memory is short. It is awake already:
   OK. After an error it sleeps, keeps what KEEP kept, and may be woken again. Errors:
   OUT_OF_DEVICE_MEMORY, LIMIT_REACHED (after the handler), OUT_OF_HOST_MEMORY, DRIVER,
   INVALID_ARGUMENT, DEVICE_LOST, FORKED, SHUTTING_DOWN. */
GMLAKE_DEF gmlake_result gmlake_pool_wake(gmlake *lake, gmlake_pool *pool);

/* Takes addresses for max_bytes and no memory; gmlake_buffer_get_info tells where they are. Unmaps
   what up to two destroyed buffers left. Errors: OUT_OF_DEVICE_MEMORY (address space:
   16 million chunks for all buffers of one chunk_bytes), OUT_OF_HOST_MEMORY, DRIVER. */
GMLAKE_DEF gmlake_result gmlake_buffer_create(gmlake *lake, const gmlake_buffer_desc *desc,
                                              gmlake_buffer **out_buffer);
/* Resizes the buffer to 0, with the errors of gmlake_buffer_resize; then the buffer is gone. Its
   addresses are given up when what is mapped there can be unmapped. The only driver call is an
   event. pre: no other call on the buffer is under way. To name the buffer afterwards is an error
   like the use of freed memory; debug builds assert it until the addresses are given up. NULL is
   fine. */
GMLAKE_DEF gmlake_result gmlake_buffer_destroy(gmlake *lake, gmlake_buffer *buffer,
                                               gmlake_stream stream);
/* Gives the range memory, for work on the stream. What is memory already keeps its contents; what
   is new has undefined contents. offset and bytes are multiples of the buffer's chunk_bytes; the
   range may also end at max_bytes. After an error the buffer is as it was. INVALID_ARGUMENT: no
   such range, or called from the out-of-memory handler. CAPTURING: the lake would have to wait for
   a captured stream. OUT_OF_DEVICE_MEMORY, LIMIT_REACHED, OUT_OF_HOST_MEMORY, DRIVER.
   `chunks` may be NULL. If not, it says which chunks it should be: each of the range's has a number
   there; in, of the one that is wanted, or GMLAKE_ANY_CHUNK; out, of the one that is there. Another
   one than is wanted is there if the place has memory already, or that chunk is not free for the
   stream, even behind a wait on the device. A number stays the same chunk's as long as that exists,
   for all buffers of a pool and chunk_bytes. A program that repeats itself and wants the same
   chunks at the same places again needs no driver call. */
GMLAKE_DEF gmlake_result gmlake_buffer_commit(gmlake *lake, gmlake_buffer *buffer, size_t offset,
                                              size_t bytes, uint32_t *chunks, gmlake_stream stream);
/* Takes the range's memory away, where there is some: every use of it must precede this call on the
   stream. The only driver call is an event. INVALID_ARGUMENT: no such range. CAPTURING: the stream
   is being captured. OUT_OF_HOST_MEMORY (first use of a stream). */
GMLAKE_DEF gmlake_result gmlake_buffer_discard(gmlake *lake, gmlake_buffer *buffer, size_t offset,
                                               size_t bytes, gmlake_stream stream);
/* Moves the buffer's end to `bytes`, at most max_bytes. Up: commits all from the former end on.
   Down: discards the chunks behind the new end. A commit behind the end moves it, too. Holes stay
   holes. Errors: those of commit and discard. */
GMLAKE_DEF gmlake_result gmlake_buffer_resize(gmlake *lake, gmlake_buffer *buffer, size_t bytes,
                                              gmlake_stream stream);
GMLAKE_DEF gmlake_result gmlake_buffer_get_info(gmlake *lake, gmlake_buffer *buffer,
                                                gmlake_buffer_info *out_info);

/* Lets other processes have the memory of a block with GMLAKE_EXCLUSIVE, or of a buffer without
   holes; see SHARING. ptr is its start; it stays live during the call. *out_count is the number of
   its handles; if capacity is less nothing else is done. Each descriptor is a new one: close it
   when it is sent. Errors, after which no descriptor is open that was not before:
   INVALID_ARGUMENT, UNKNOWN_POINTER, ASLEEP, UNSUPPORTED (Windows handles, or the backend cannot
   export), OUT_OF_HOST_MEMORY, DRIVER (too many descriptors are open). */
GMLAKE_DEF gmlake_result gmlake_export(gmlake *lake, const void *ptr, unsigned handle_type,
                                       gmlake_handle *out_handles, size_t capacity,
                                       size_t *out_count);
/* Maps what another process exported, all `count` handles in their order, at one address of this
   process. No stream may have used it: order the first use behind the exporter's work yourself.
   gmlake_free gives it back. It counts against limit_bytes: free chunks are returned if there is no
   room. The descriptors stay the caller's.
   Errors: INVALID_ARGUMENT, LIMIT_REACHED, UNSUPPORTED, OUT_OF_DEVICE_MEMORY (addresses),
   OUT_OF_HOST_MEMORY, DRIVER (not what gmlake_export wrote, or too many descriptors). */
GMLAKE_DEF gmlake_result gmlake_import(gmlake *lake, const gmlake_handle *handles, size_t count,
                                       void **out_ptr);

/* Creates chunks until the pool has `bytes` of memory for its blocks, or as many as the limits, the
   device's free memory and addresses allow; pool NULL: the default one. The stream is the one that
   uses them first. It is clean memory, like any other; gmlake_trim returns it. After an error none
   is created. Costs 28 us a chunk. Errors: INVALID_ARGUMENT (from the out-of-memory handler, too),
   OUT_OF_DEVICE_MEMORY (somebody else took it meanwhile), ASLEEP, OUT_OF_HOST_MEMORY, DRIVER. */
GMLAKE_DEF gmlake_result gmlake_reserve(gmlake *lake, gmlake_pool *pool, size_t bytes,
                                        gmlake_stream stream);

/* Whether blocks for all these requests can live at once, beside what lives now. If so their pools
   get the memory and keep all their chunks: neither gmlake_trim nor want of memory elsewhere takes
   one, so no other process, pool or buffer of other chunks does; who allocates from the same pool
   may. It allocates the list in this order and frees it, again until no request needs the driver.
   Then the same list is served on that stream, or on any if that is GMLAKE_STREAM_NONE, also in
   captures. GMLAKE_TRANSIENT is ignored. Streams and host may have to wait, the handler is not
   asked. For a buffer of the pool's chunk_bytes ask with GMLAKE_EXCLUSIVE. A list of 0 bytes of a
   pool, or its sleep, ends it; an error does not, and new chunks stay until gmlake_trim.
   *out_lacking_bytes (may be NULL; always written): about what has no room. Errors as
   gmlake_alloc_with, ASLEEP; INVALID_ARGUMENT from the handler. Costs about twice the list. */
GMLAKE_DEF gmlake_result gmlake_admit(gmlake *lake, const gmlake_alloc_desc *requests, size_t count,
                                      gmlake_stream stream, size_t *out_lacking_bytes);

/* Returns free chunks whose work is complete, also those of buffers, to the driver until the lake
   holds at most keep_bytes. Never waits. What a capture used stays with its pool. What was exported
   and freed is returned however much is to be kept: nothing here can use it again. So is, if the
   driver takes it now, what it refused to take before.
   *out_released_bytes (may be NULL) is written in any case. */
GMLAKE_DEF gmlake_result gmlake_trim(gmlake *lake, size_t keep_bytes, size_t *out_released_bytes);
GMLAKE_DEF gmlake_result gmlake_get_stats(gmlake *lake, gmlake_stats *out_stats);
/* The same of one pool; NULL: of all that is in no pool, buffers too. Of now alone: the metadata,
   what is counted from creation on, and peaks are the lake's, and 0 here; but reserved_bytes_peak
   is the most memory that the pool had for its blocks since gmlake_reset_peaks. O(its blocks). */
GMLAKE_DEF gmlake_result gmlake_pool_get_stats(gmlake *lake, gmlake_pool *pool,
                                               gmlake_stats *out_stats);
GMLAKE_DEF gmlake_result gmlake_reset_peaks(gmlake *lake);
/* Asks the driver for its free memory, and the streams what has completed. allocatable_bytes is the
   largest block that gmlake_alloc would serve, so from the default pool and without flags, to a
   program of one stream while nobody else is at work, once pending work is complete. It counts free
   pieces, what buffers and pools have free in whole chunks, and what limits, driver and arena_bytes
   let the lake create. Errors: DRIVER, OUT_OF_HOST_MEMORY. */
GMLAKE_DEF gmlake_result gmlake_get_budget(gmlake *lake, gmlake_budget *out_budget);
/* What was wrong in the last call on this lake that failed, on any thread; or what failed inside a
   call that then succeeded another way. Of a refused argument: name, value, and what is legal. */
GMLAKE_DEF gmlake_result gmlake_get_last_error(gmlake *lake, gmlake_error_info *out_info);
/* Looks for mistakes of the lake's own: whether its records of memory, tags, mappings and figures
   agree, in time about linear in its size; it does not look at what blocks hold. CORRUPT:
   gmlake_get_last_error names the first broken invariant. Links between records are believed. */
GMLAKE_DEF gmlake_result gmlake_check(gmlake *lake);
/* GMLAKE_VERSION of the implementation that is linked. */
GMLAKE_DEF int gmlake_version(void);
/* "GMLAKE_OK", ...; "unknown" for other values. Never NULL. */
GMLAKE_DEF const char *gmlake_result_name(gmlake_result result);

#if defined(__cplusplus)
}
#endif

#endif /* GMLAKE_H_INCLUDED */

/* ==== Users can stop reading here: the implementation is below ================================ */

#if defined(GMLAKE_IMPLEMENTATION) && !defined(GMLAKE_IMPLEMENTATION_DONE)
#define GMLAKE_IMPLEMENTATION_DONE

/* ---- THE DATA MODEL -----------------------------------------------------------------------------
   All memory that a lake has is *chunks*: physical memory, each desc.chunk_bytes large, each with a
   handle of the driver. A chunk is mapped once at home, in a *slot* of its arena, and in any number
   of windows and buffers besides.

      home      |   c0   |   c1   |   c2   |   c3   |  each chunk is mapped once here, in its slot
      blocks    | live |   free   |  live  |free|live  they tile the range, in units of 512 bytes
      a window         [  c0  c1  ]        [ c3 ]      maps the chunks of both free pieces again,
                                                       side by side: one range of addresses for one
                                                       request. What else lies in these chunks can
                                                       be seen there, but is not the window's

   gmlk_block    The record of a range of an arena, in units of 512 bytes. Blocks tile the arena:
                 linked by address, no gap. State: FREE, LIVE (the user's), PIECE (of a window that
                 is live or pending), PENDING (freed, other streams may still use it), RESERVED (a
                 plan took it, or the small-block reserve), UNBACKED (addresses without a chunk that
                 may serve), COMMITTED (a buffer's chunk), GONE (freed, but other processes know it:
                 nobody gets it). Who owns a byte is the state of its one block. Free memory gets an
                 owner by gmlk_take and gmlk_grant; for a window by gmlk_pieces_reserve,
                 gmlk_window_claim_pieces, and gmlk_grant of the window's record. An owned block
                 becomes free by gmlk_put. Split and coalesce move a block's ends.
                 The same record stands for two other things: a range of the addresses for windows
                 or buffers, in units of chunks, which is LIVE or COMMITTED while one has it; and a
                 window, whose record is in no tiling (prev and next are NULL).
   tag           stream and epoch of a FREE block: the last use that may still be under way. CLEAN:
                 none is. A stream takes clean memory and its own at once; other memory only once
                 the epoch is complete, or behind a wait. Memory whose epoch is complete becomes
                 CLEAN when gmlk_refresh has asked the driver. Neighbours that are clean or have one
                 stream's tag are a *run*: the stream may take from it in one piece, so its bins
                 list it as one *hole*, by the run's first tagged block, its head.
   gmlk_stream   Its open epoch, the last one complete (`done`), and fences (events recorded on it)
                 that cover the epochs closed since. gmlk_stream_fence closes an epoch,
                 gmlk_stream_poll completes some.
   gmlk_chunk    By slot: the handle, and how many windows and buffers map it (map_count). Only who
                 holds driver_lock changes it. What the driver refuses to take back is quarantined:
                 it is counted, offered again, and serves nobody.
   gmlk_alias    A mapping of chunks beside their homes: a window, or one page (the addresses of one
                 chunk) of a gmlake_buffer. EMPTY: not mapped. LIVE: a user has it. IDLE: still
                 mapped, with the tag of its last use, so that it may serve again without a driver
                 call. HELD: a window that is mapped, and that no search finds, as it is being
                 granted or dropped. QUARANTINED: the driver refused to unmap it; it keeps its
                 addresses, and its chunks serve at home, but cannot be released.
                 An idle alias is unmapped only once its tag is complete: until then work may still
                 use its addresses (gmlk_evict says why that is enough). One whose making failed is
                 unmapped at once: nobody got it.
   gmlk_window   An alias over pieces of the arena that lie apart: what stitching makes (the paper's
                 sBlock). Its own record, `self`, is the block that the user has. The states of
                 both; between gmlk_window_claim_pieces and gmlk_grant the alias is LIVE already:
                    alias        self
                    EMPTY        RESERVED  it is being mapped
                    HELD         RESERVED  it is mapped, and about to be granted
                    LIVE         LIVE      the user's: its blocks are PIECEs and point to it
                    LIVE         PENDING   freed, but other streams may still use it
                    IDLE         IDLE      it owns nothing: its pieces may be used at home or in
                                           other windows meanwhile; a request of the same size
                                           takes it when they are free again
                    HELD         IDLE      it was taken, to be granted again or to be unmapped
                    QUARANTINED  UNBACKED  the driver refused to unmap it
   gmlk_request  One call while it is served: who asks, where, for how much; what the steps tried
                 so far have found out. It stands on the caller's stack.
   gmlk_plan     What serves a request, and for whom: a range, a window that is there, or pieces for
                 a new one, which are listed in arena->pieces. The chunks that it lists have to be
                 created before. gmlk_plan_commit carries it out: the pieces are RESERVED before the
                 driver is called, then PIECEs, or FREE again if a call failed. In a dry run (a
                 question: gmlake_query) it only says what the stream would have to wait for.
   loan          What a graph's pool has free may be lent (>>lend): to requests with
                 GMLAKE_TRANSIENT, which wait on the device for all who used it before.
   gmlk_arena    Home range, tiling, free blocks by tag and size (bins), windows, buffers. A lake
                 has one, and one more for each pool and each chunk size of its buffers.
   gmlake        The arenas, the streams, the index of live blocks by address, and the two locks.

   Who changes them: state_lock guards everything above, except the chunks and what else only the
   holder of driver_lock reads or writes. Calls of the driver for events and streams take a moment
   and are made with state_lock held. Calls for memory take long. A call of the lake that needs none
   takes state_lock alone. One that does takes driver_lock, plans and reserves under state_lock,
   releases that, calls the driver, takes it again, and commits. If a call failed it unmaps what it
   mapped, by one call, and then the pieces that it reserved are free again. A wait that is queued
   stays queued: it only delays work.

   An allocation runs: gmlake_alloc, gmlk_serve, gmlk_request_open, gmlk_fast (best fit,
   split), gmlk_grant, gmlk_hand_over. If that finds nothing: gmlk_serve_slowly tries
   gmlk_slow_completed (what has completed meanwhile), gmlk_slow_stitch (gmlk_plan_window, then
   gmlk_plan_commit, which makes the window by gmlk_stitch), growth and waits. A free runs:
   gmlake_free, gmlk_free, gmlk_release_block, gmlk_put (coalesce).

   Order: what the system gives (>>platform); CORE, which is one stream's allocations, frees and
   stitching; REST: several streams, pressure, features, backends, the public functions, the check.
   A section calls only what stands above it, or what >>forward declares. A number in brackets names
   an invariant, which stands at the head of its section: [A5] in >>arena. Of those that CORE names,
   those with B, G, N and Q stand in REST. */

/* ---- SECTIONS (grep -n '---- >>')
     >>platform                 what is chosen at compile time; locks; children of fork
   CORE: one stream's allocations, frees and stitching
     >>base >>block >>bins      sizes, host memory; records of blocks; free blocks by size
     >>index >>tree             live blocks by address; runs of free memory, idle windows
     >>driver >>tags            calls of the backend; whose memory may still be in use
     >>chunks >>arena >>windows chunks and their handles; how blocks tile them; stitched blocks
     >>forward >>lake           what CORE calls of REST; the lake and its two locks
     >>planner >>alias          what a window is made of; mapping and unmapping beside home
     >>stitch >>alloc >>free    making windows; serving a request; freeing a block
   REST: several streams, pressure, features, backends
     >>errors >>capacity        errors and messages; how tables and arenas grow, shrink and end
     >>observe >>addresses      what the observer is told; addresses, asked for when needed
     >>pending >>streams        frees that wait; numbers and fences of streams, asking and waiting
     >>pages                    pages of buffers
     >>grow >>small             creating and returning chunks; memory set aside for small blocks
     >>research                 policies
     >>dry_run >>slow >>find   what a question counts on; the slow path; what lies at an address
     >>copies >>lend            contents kept on the host; graphs' memory that others use meanwhile
     >>pools >>buffer           arenas, pools and captures; buffers
     >>sharing >>sleep          memory of several processes; memory given back for a while
     >>figures >>ahead >>map    questions; creating memory ahead; what lies where
     >>backend_mock >>backend_cuda
     >>entry >>life >>api       the way in and out; creating and destroying lakes; public functions
     >>check                    gmlake_check */

/* ---- >>platform --------------------------------------------------------------------------------
   What the system gives: what is chosen at compile time, the two kinds of lock, the test for a
   child of fork. O(1), but a thread may wait for a lock. Cannot fail. */

#if !defined(GMLAKE_BACKEND_CUDA) && !defined(GMLAKE_BACKEND_MOCK)
#define GMLAKE_BACKEND_CUDA
#endif
#if defined(GMLAKE_MALLOC) != defined(GMLAKE_FREE)
#error "define both GMLAKE_MALLOC(bytes) and GMLAKE_FREE(ptr), or neither"
#endif
#if defined(GMLAKE_MUTEX) != defined(GMLAKE_MUTEX_LOCK)
#error "define all of GMLAKE_MUTEX, GMLAKE_MUTEX_INIT, _DESTROY, _LOCK and _UNLOCK, or none"
#endif

#if defined(SIZE_MAX) && SIZE_MAX < 0xFFFFFFFFFFFFFFFFu
#error "gmlake.h needs a size_t of 64 bits, as sizes of GPU memory do: build for a 64-bit target"
#endif

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#else
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#endif
#if defined(GMLAKE_BACKEND_MOCK) && defined(__GLIBC__) && !defined(__USE_GNU)
#error "the mock: include gmlake.h here before any other header, or define _GNU_SOURCE"
#endif

#if !defined(GMLAKE_MALLOC)
#define GMLAKE_MALLOC(bytes) malloc(bytes)
#define GMLAKE_FREE(ptr) free(ptr)
#endif
#if !defined(GMLAKE_ASSERT)
#include <assert.h>
#define GMLAKE_ASSERT(condition) assert(condition)
#endif

/* For a condition that an invariant rules out. With assertions, the program stops where it is met.
   Without, it is an ordinary condition, and the code behind it is a safe way out. No test can reach
   that code, so tests/tools/coverage.py leaves it out. */
static inline int gmlk_never(int is_met) {
  GMLAKE_ASSERT(!is_met);
  return is_met;
}
#if !defined(GMLK_NEVER)
#define GMLK_NEVER(condition) gmlk_never((condition) ? 1 : 0)
#endif

#if defined(GMLAKE_MUTEX)
typedef GMLAKE_MUTEX GMLK_MUTEX;
#elif defined(_WIN32)
typedef SRWLOCK GMLK_MUTEX;
#define GMLAKE_MUTEX_INIT(mutex) InitializeSRWLock(mutex)
#define GMLAKE_MUTEX_DESTROY(mutex) ((void)(mutex))
#define GMLAKE_MUTEX_LOCK(mutex) AcquireSRWLockExclusive(mutex)
#define GMLAKE_MUTEX_UNLOCK(mutex) ReleaseSRWLockExclusive(mutex)
#else
typedef pthread_mutex_t GMLK_MUTEX;
#define GMLAKE_MUTEX_INIT(mutex) pthread_mutex_init(mutex, NULL)
#define GMLAKE_MUTEX_DESTROY(mutex) pthread_mutex_destroy(mutex)
#define GMLAKE_MUTEX_LOCK(mutex) pthread_mutex_lock(mutex)
#define GMLAKE_MUTEX_UNLOCK(mutex) pthread_mutex_unlock(mutex)
#endif

/* The thread sleeps for so many times 50 us, at most 999 ms; on Windows for 1 ms at a time. */
static inline void gmlk_nap(unsigned count) {
#if defined(_WIN32)
  Sleep((count + 19) / 20);
#else
  const struct timespec nap = {0, 50000 * (long)count};
  (void)nanosleep(&nap, NULL);
#endif
}

/* state_lock. Its holder waits for no other thread and no work of the device, so a spin lock is
   enough: it costs one locked instruction where a mutex costs two. A thread that finds it taken
   reads it 1,024 times, then sleeps for 50 us at a time. Meanwhile the others may take it again and
   again, as what it guards is in their cache; but not for ever: halfway through its reads, and
   before each sleep, the waiter counts `wanted`. The thread that unlocks then stands back: it waits
   a moment for another one to get in, and sleeps as often as that one has slept, 39 times at most.
   Nobody yields: where other programs are busy, too, a yield takes milliseconds. */
#if defined(__GNUC__) && !defined(_WIN32) && !defined(GMLAKE_MUTEX)
typedef struct gmlk_spinlock {
  unsigned char taken, wanted;
} gmlk_spinlock;

static void gmlk_spinlock_init(gmlk_spinlock *spinlock) { spinlock->taken = spinlock->wanted = 0; }
static void gmlk_spinlock_destroy(gmlk_spinlock *spinlock) { (void)spinlock; }

static unsigned char gmlk_spinlock_read(const unsigned char *at) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}
static void gmlk_spinlock_want(gmlk_spinlock *spinlock, unsigned wanted) {
  __atomic_store_n(&spinlock->wanted, (unsigned char)(wanted < 40 ? wanted : 40), __ATOMIC_RELAXED);
}

static void gmlk_spinlock_wait(gmlk_spinlock *spinlock) {
  unsigned tries = 0;
  do {
    while (gmlk_spinlock_read(&spinlock->taken)) {
      tries++;
      if (tries == 512 || tries >= 1024)
        gmlk_spinlock_want(spinlock, gmlk_spinlock_read(&spinlock->wanted) + 1u);
      if (tries >= 1024) gmlk_nap(1);
    }
  } while (__atomic_exchange_n(&spinlock->taken, 1, __ATOMIC_ACQUIRE));
  gmlk_spinlock_want(spinlock, 0);
}

/* Unlocks, and lets another thread in. */
static void gmlk_spinlock_pass(gmlk_spinlock *spinlock) {
  const unsigned wanted = gmlk_spinlock_read(&spinlock->wanted);
  unsigned tries = 0;
  gmlk_spinlock_want(spinlock, 0);
  __atomic_store_n(&spinlock->taken, 0, __ATOMIC_RELEASE);
  while (++tries < 256 && !gmlk_spinlock_read(&spinlock->taken)) continue;
  if (wanted > 1) gmlk_nap(wanted - 1);
}

/* is_used: 0 in a lake of one thread. */
static inline void gmlk_spinlock_lock(gmlk_spinlock *spinlock, int is_used) {
  if (is_used && __atomic_exchange_n(&spinlock->taken, 1, __ATOMIC_ACQUIRE))
    gmlk_spinlock_wait(spinlock);
}
static inline void gmlk_spinlock_unlock(gmlk_spinlock *spinlock, int is_used) {
  if (!is_used) return;
  if (__atomic_load_n(&spinlock->wanted, __ATOMIC_RELAXED))
    gmlk_spinlock_pass(spinlock);
  else
    __atomic_store_n(&spinlock->taken, 0, __ATOMIC_RELEASE);
}
#else
typedef GMLK_MUTEX gmlk_spinlock;
#define gmlk_spinlock_init(spinlock) GMLAKE_MUTEX_INIT(spinlock)
#define gmlk_spinlock_destroy(spinlock) GMLAKE_MUTEX_DESTROY(spinlock)
static inline void gmlk_spinlock_lock(gmlk_spinlock *spinlock, int is_used) {
  if (is_used) (void)GMLAKE_MUTEX_LOCK(spinlock);
}
static inline void gmlk_spinlock_unlock(gmlk_spinlock *spinlock, int is_used) {
  if (is_used) (void)GMLAKE_MUTEX_UNLOCK(spinlock);
}
#endif

/* The compiler checks calls: parameter `number` is a printf format for the parameters after it. */
#if defined(__GNUC__) && !defined(_WIN32)
#define GMLK_LIKE_PRINTF(number) __attribute__((format(printf, number, (number) + 1)))
#else
#define GMLK_LIKE_PRINTF(number)
#endif

/* Always inlined: a hot function, or one that is compiled once for each constant it is given. */
#if defined(__GNUC__)
#define GMLK_INLINE static inline __attribute__((always_inline))
#else
#define GMLK_INLINE static inline
#endif

static uintptr_t gmlk_thread_id(void) {
#if defined(_WIN32)
  return (uintptr_t)GetCurrentThreadId();
#else
  return (uintptr_t)pthread_self();
#endif
}

static long gmlk_process_id(void) {
#if defined(_WIN32)
  return 0; /* no fork there */
#else
  return (long)getpid();
#endif
}

/* Tells the process that made an object from its children of fork. Where the system can clear a
   page in children, reading that page tells, at the cost of a load; elsewhere getpid tells. */
typedef struct gmlk_process {
  const unsigned char *page; /* first byte 1, in a child 0; NULL: the system has no such page */
  long id;                   /* of the process that made the object */
} gmlk_process;

static void gmlk_process_init(gmlk_process *process) {
  memset(process, 0, sizeof(*process));
  process->id = gmlk_process_id();
#if defined(MADV_WIPEONFORK) && defined(MAP_ANONYMOUS)
  {
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (madvise(page, bytes, MADV_WIPEONFORK)) {
      (void)munmap(page, bytes);
      return;
    }
    *(unsigned char *)page = 1;
    process->page = (const unsigned char *)page;
  }
#endif
}

static void gmlk_process_destroy(gmlk_process *process) {
#if defined(MADV_WIPEONFORK) && defined(MAP_ANONYMOUS)
  if (process->page) (void)munmap((void *)(uintptr_t)process->page, (size_t)sysconf(_SC_PAGESIZE));
#endif
  process->page = NULL;
}

static int gmlk_process_is_forked(const gmlk_process *process) {
  return process->page ? !*process->page : process->id != gmlk_process_id();
}

/* ==== CORE ==================================================================================== */

/* ---- >>base ------------------------------------------------------------------------------------
   What all sections use: sizes and bits, and host memory. Owns the count of the lake's host memory.

   [Z1] host.bytes is the sum of what gmlk_host_alloc gave and gmlk_host_free has not taken back.

   O(1). Can fail: host memory; sums of sizes that overflow. */

#define GMLK_GRAIN ((size_t)512) /* bytes; ranges of an arena begin and end at multiples of it */
#define GMLK_GRAINS_MAX ((uint32_t)0xFFFFFE00u) /* of an arena: numbers of grains fit 32 bits */
#define GMLK_SLOTS_MAX ((size_t)1 << 24)        /* of an arena's addresses for windows or buffers */
#define GMLK_CHUNK_BYTES_MAX ((size_t)1 << 30)  /* so that what rounding adds fits 32 bits */
#define GMLK_PEERS_MAX 64u
#define GMLK_MIB ((size_t)1 << 20)
#define GMLK_FLAGS (GMLAKE_SINGLE_THREADED | GMLAKE_FILL | GMLAKE_STREAMS_MAY_END)
#define GMLK_HANDLES (GMLAKE_HANDLE_POSIX_FD | GMLAKE_HANDLE_WIN32 | GMLAKE_HANDLE_FABRIC)

#define GMLK_ULL(value) ((unsigned long long)(value)) /* for the formats %llu and %llx */

static int gmlk_is_pow2(size_t value) { return value && (value & (value - 1)) == 0; }

/* Rounds a size up. 0: the sum overflows, and *out is not written. */
static int gmlk_size_round_up(size_t value, size_t unit_pow2, size_t *out) {
  if (value > SIZE_MAX - (unit_pow2 - 1)) return 0;
  *out = (value + unit_pow2 - 1) & ~(unit_pow2 - 1);
  return 1;
}

static size_t gmlk_max(size_t a, size_t b) { return a > b ? a : b; }
static size_t gmlk_min(size_t a, size_t b) { return a < b ? a : b; }

#define GMLK_CACHE_LINE ((size_t)64)

static void *gmlk_line_from(void *ptr) { /* where the next cache line begins */
  return (void *)(((uintptr_t)ptr + GMLK_CACHE_LINE - 1) & ~(uintptr_t)(GMLK_CACHE_LINE - 1));
}

typedef struct gmlk_host {
  gmlake_host_allocator hooks; /* desc.host; malloc_fn NULL: GMLAKE_MALLOC, GMLAKE_FREE */
  /* The thread that runs the host allocator, or the observer, with state_lock held; 0: none. */
  uintptr_t in_callback;
  size_t bytes, bytes_peak; /* [Z1]; the peak since create, or since gmlake_reset_peaks */
  size_t refused_bytes;     /* the last size refused; 0: none, or it was reported */
} gmlk_host;

/* Threads without the lock read in_callback, so it is written atomically where the compiler can. */
static void gmlk_set_in_callback(gmlk_host *host, uintptr_t thread) {
#if defined(__GNUC__)
  __atomic_store_n(&host->in_callback, thread, __ATOMIC_RELAXED);
#else
  *(volatile uintptr_t *)&host->in_callback = thread;
#endif
}

static int gmlk_is_in_callback(const gmlk_host *host) {
#if defined(__GNUC__)
  return __atomic_load_n(&host->in_callback, __ATOMIC_RELAXED) == gmlk_thread_id();
#else
  return *(const volatile uintptr_t *)&host->in_callback == gmlk_thread_id();
#endif
}

/* Zeroed memory; NULL: the host has none. */
static void *gmlk_host_alloc(gmlk_host *host, size_t bytes) {
  void *ptr;
  if (host->hooks.malloc_fn) {
    gmlk_set_in_callback(host, gmlk_thread_id());
    ptr = host->hooks.malloc_fn(host->hooks.user, bytes);
    gmlk_set_in_callback(host, 0);
  } else {
    ptr = GMLAKE_MALLOC(bytes);
  }
  if (!ptr) {
    host->refused_bytes = bytes;
    return NULL;
  }
  memset(ptr, 0, bytes);
  host->bytes += bytes;
  host->bytes_peak = gmlk_max(host->bytes, host->bytes_peak);
  return ptr;
}

static void gmlk_host_free(gmlk_host *host, void *ptr, size_t bytes) {
  if (!ptr) return;
  host->bytes -= bytes;
  if (!host->hooks.free_fn) {
    GMLAKE_FREE(ptr);
    return;
  }
  gmlk_set_in_callback(host, gmlk_thread_id());
  host->hooks.free_fn(host->hooks.user, ptr);
  gmlk_set_in_callback(host, 0);
}

/* Replaces an array of *capacity items by a longer or shorter copy. `array` is the address of the
   pointer to the first item. 0: no host memory, and nothing has changed. */
static int gmlk_host_resize(gmlk_host *host, void *array, size_t *capacity, size_t count,
                            size_t item_bytes) {
  void *copy = gmlk_host_alloc(host, count * item_bytes), *old;
  if (!copy) return 0;
  memcpy(&old, array, sizeof(old)); /* the pointer's type is not known here */
  if (old) memcpy(copy, old, gmlk_min(*capacity, count) * item_bytes);
  gmlk_host_free(host, old, *capacity * item_bytes);
  memcpy(array, &copy, sizeof(copy));
  *capacity = count;
  return 1;
}

/* Makes `count` + 1 items fit. Where it grows it at least doubles, to four or more. 0: no host
   memory, and nothing has changed. */
static int gmlk_host_grow(gmlk_host *host, void *array, size_t *capacity, size_t count,
                          size_t item_bytes) {
  const size_t wanted = gmlk_max(gmlk_max(count + 1, 2 * *capacity), 4);
  return count < *capacity || gmlk_host_resize(host, array, capacity, wanted, item_bytes);
}

/* ---- >>block -----------------------------------------------------------------------------------
   A block is a range of an arena, or of the address space for windows and buffers. The blocks of
   one such range tile it: they are linked by address and leave no gap. Owns the slabs of records.
   An operation gets the records that it may need before it changes anything, so it cannot fail
   half way. >>arena does that, takes a record where it cuts a block, and gives one back where it
   joins two.

   [R1] Each record of a slab is in one tiling, or in the list of unused records. */

enum {                  /* gmlk_block.state */
       GMLK_UNUSED = 0, /* a record that is in no tiling */
       GMLK_FREE,       /* memory without an owner; it has a tag */
       GMLK_LIVE,       /* the user's; in a window's own record: the window is live; in address
                           space: a window has it, live or not */
       GMLK_PIECE,      /* part of a window that is live or pending */
       GMLK_PENDING,    /* freed by the user; not free before the streams recorded on it are done */
       GMLK_RESERVED,   /* free memory that a plan took, until it is carried out; the small-block
                           reserve [U1]. It keeps its tag */
       GMLK_COMMITTED,  /* a chunk that a buffer uses; in address space: a buffer's range */
       GMLK_IDLE,       /* only in a window's own record: the window is mapped and not live */
       /* This state and those below have no usable memory. */
       GMLK_UNBACKED, /* addresses without a chunk, or with a quarantined one; in a window's own
                         record: quarantined */
       GMLK_GONE,     /* freed memory that other processes know: nobody gets it [P5] */
       GMLK_EDGE      /* the records before the first block and behind the last one; and a slot
                           between two extents, see >>arena */
};

enum {                        /* gmlk_block.flags, beside GMLAKE_EXCLUSIVE and the like */
       GMLK_IN_GRAPH = 0x80,  /* allocated during a capture: a graph knows its address */
       GMLK_APART = 0x40,     /* a policy forbids to join it with its neighbours, see >>research */
       GMLK_IN_THE_WAY = 0x20 /* [owned] windows wait until it is freed [W7] */
};

enum { /* gmlk_block.stream: the tag of free memory; from GMLK_FIRST_STREAM on, a stream's number */
       GMLK_CLEAN = 0,       /* no pending work uses the memory */
       GMLK_GRAPH_OWNED = 1, /* a graph knows it: only later captures into the pool may take it */
       GMLK_FIRST_STREAM = 2,
       GMLK_STREAMS_MAX = 0xFFFF
};

#define GMLK_ENDLESS UINT64_MAX /* epoch of memory that a capture used: no event completes it */

typedef struct gmlk_window gmlk_window;
typedef struct gmlk_extra gmlk_extra;
typedef struct gmlk_used gmlk_used;

typedef struct gmlk_link gmlk_link;
struct gmlk_link {
  gmlk_link *prev, *next;
};

typedef struct gmlk_block gmlk_block;
struct gmlk_block {
  union {
    gmlk_link link; /* [free] place in a bin; it is the first field: a link is a block */
    struct {
      gmlk_block *less, *more;
    } children;          /* [free, and second of its run; address space in use] in a tree */
    gmlk_window *window; /* [piece] that it belongs to */
    gmlk_extra *extra;   /* [live, pending, committed] label, recorded streams; NULL: it has none */
  } as;
  /* Neighbours by address; NULL in a window's own record. [unused] next: in the list. */
  gmlk_block *prev, *next;
  union {
    uint64_t epoch;  /* [free, reserved] of the last use by the tag's stream */
    uint64_t serial; /* [live, piece, pending, committed; a window's own record] a new number each
                        time that a block gets an owner */
    void *owner;     /* [address space in use] the window or buffer */
  } u;
  uint32_t at;     /* first grain, counted from the arena's base; [address space] first chunk */
  uint32_t grains; /* its size; [address space] in chunks */
  union {
    uint32_t hole;  /* [not owned] what a bin lists it as: its own size, or of a run's head the
                       size of the whole run. 0: it stands in no bin, as a tagged block of a run
                       that is not its head */
    uint32_t slack; /* [live] bytes added by rounding */
  } its;
  uint32_t arena;  /* number of its arena */
  uint16_t stream; /* [free, reserved] its tag; [live] the stream that it was allocated on */
  uint8_t state, flags;
};

typedef struct gmlk_piece { /* a range of grains: a piece of a window, or of a plan for one */
  uint32_t at, grains;
  gmlk_block *block; /* [live or pending window] the block of the home range that the piece is */
} gmlk_piece;

enum { /* gmlk_alias.state */
       GMLK_ALIAS_EMPTY = 0,
       GMLK_ALIAS_HELD, /* a window that is mapped, and that no search finds: it is being granted,
                                 or dropped */
       GMLK_ALIAS_LIVE, /* a user has it: a live or pending window, a committed page */
       GMLK_ALIAS_IDLE, /* still mapped; its tag is that of the last use through it */
       GMLK_ALIAS_QUARANTINED /* mapped, perhaps in part or without access: the driver refused to
                                 unmap it */
};

typedef struct gmlk_alias { /* a mapping beside the chunks' homes: a window, or a buffer's page */
  struct gmlk_alias *next;  /* in a list for one operation of who holds `driver_lock` */
  uint64_t address;         /* of the first byte that the user gets, in its first chunk */
  uint64_t epoch;           /* [idle, quarantined] with stream: its tag */
  uint32_t slot;            /* [page] of its chunk; [empty, being committed] of the one to map */
  uint32_t chunk_count;     /* one mapping for each chunk under it; 1 for a page */
  uint32_t mapped;          /* so many of these are mapped now; written with state_lock released */
  uint16_t stream;
  uint8_t state; /* GMLK_ALIAS_EMPTY... */
  uint8_t is_window;
} gmlk_alias;

struct gmlk_window {
  gmlk_block self; /* [live] the block that the index finds; [idle] it stands in a tree */
  gmlk_alias alias;
  gmlk_block *va;     /* its virtual addresses: the slots that it is mapped in */
  gmlk_piece *pieces; /* piece_count of them; they follow this record in the same allocation */
  uint32_t piece_count;
  int is_known;          /* a capture had it, so a graph knows its addresses; >>lend asks */
  uint64_t number;       /* the arena's windows are numbered from 1 as they are made */
  uint64_t key;          /* [idle] in `ready` its size, in `blocked` GMLK_BLOCKED + a serial */
  gmlk_window **idle_at; /* [idle] where the list of idle windows points to it */
  gmlk_window *idle_next;
};

/* The window whose own record this is, or NULL: such a record is in no tiling, so it has no next.
   pre: b is not the edge behind the last block. */
static inline gmlk_window *gmlk_window_from_block(const gmlk_block *b) {
  return b->next ? NULL : (gmlk_window *)(uintptr_t)b;
}

/* Both are of >>pending, which has [N4] and [N5]. */
struct gmlk_used { /* a stream that gmlake_record_stream named for a block, or that used what a pool
                        lends: then only stream and epoch count */
  gmlk_link link;  /* [in a queue] it is the first field: a link is a use */
  gmlk_extra *extra; /* [in a queue] whose use it is; else NULL */
  uint64_t epoch;    /* [live] the stream's `born`: another value there means that the number has a
                      new owner by now. [pending] the epoch that has to complete */
  unsigned stream;
};

struct gmlk_extra { /* what few live blocks have */
  gmlk_link link;   /* [pending] in the arena's ring; the first field, too */
  uint64_t user_data;
  const char *label;
  gmlk_used *used; /* used_count of them, room for used_capacity */
  size_t used_count, used_capacity;
  size_t uses_left;  /* [pending] [N4] */
  int is_shared;     /* [N5] other processes know its chunks: once freed it stays pending until they
                        are returned */
  gmlk_block *block; /* [pending] the block, for which the index has no entry any more */
  unsigned stream;   /* [pending] with epoch: the tag that its memory gets in the end */
  uint64_t epoch;
};

#define GMLK_SLAB_BLOCKS ((size_t)63) /* about 4 KiB */
#define GMLK_SLAB_BYTES /* a record fills one cache line, so that a visit costs one miss */ \
  (GMLK_SLAB_BLOCKS * sizeof(gmlk_block) + sizeof(gmlk_slab) + GMLK_CACHE_LINE)

typedef struct gmlk_slab gmlk_slab;
struct gmlk_slab { /* its records follow, from the next cache line on */
  gmlk_slab *next;
};

typedef struct gmlk_records {
  gmlk_slab *slabs;
  gmlk_block *unused; /* linked by next */
  size_t unused_count, slab_count;
  size_t set_aside; /* of the unused: for a thread that has released state_lock */
  uint64_t serial;  /* the last one given: blocks and streams get each number once */
} gmlk_records;

/* ---- >>bins ---------------------------------------------------------------------------------
   gmlk_bins, the paper's sorted pool: free blocks by the size of their holes. A block's *hole* is
   the free range that it stands for in the bins: itself, or the whole run that it heads (>>arena).
   Owns the links between the blocks and the table of bins. A bin is a ring of blocks of about one
   size: below 64 grains of exactly one size, above that of a 32nd of an octave. The block freed
   last stands first.

   Best fit takes the smallest block that is long enough from the first of these that has one:
   1. the first eight blocks of the size's own bin; if that is of one size, the first;
   2. the first eight of the next larger bin in use;
   3. the rest of the own bin. The ring then begins at the first block that was long enough. If
      there was none, [H5] notes it, and the next search stops after eight.

   [H1] A block stands in the bin of its hole.
   [H2] bits has a 1 for each bin in use, words has a 1 for each word of bits that is not 0.
   [H3] Bins are rings, linked both ways.
   [H4] grains is the sum of the holes, count the number of blocks.
   [H5] No hole has a size in [none_from, none_from + none_count).

   O(1); best fit is O(1) amortised. Bins take 15 KB, and each stream has some in each arena that it
   used memory of. Can fail: gmlk_bins_new, for lack of host memory. */

#define GMLK_BINS_LOG 5u                      /* log2 of the bins of an octave */
#define GMLK_BINS_EXACT (2u << GMLK_BINS_LOG) /* below, in grains and in bins, a bin is one size */
#define GMLK_BINS (GMLK_BINS_EXACT + ((31u - GMLK_BINS_LOG) << GMLK_BINS_LOG))
#define GMLK_BIN_WORDS ((GMLK_BINS + 63u) / 64u)
#define GMLK_BIN_TRIES 8u

static unsigned gmlk_log2(uint64_t value) { /* pre: value > 0 */
#if defined(__GNUC__)
  return 63u - (unsigned)__builtin_clzll(value);
#else
  unsigned log = 0;
  while (value >>= 1) log++;
  return log;
#endif
}

static unsigned gmlk_lowest_bit(uint64_t value) { /* pre: value > 0 */
#if defined(__GNUC__)
  return (unsigned)__builtin_ctzll(value);
#else
  return gmlk_log2(value & (~value + 1));
#endif
}

typedef struct gmlk_bins {
  uint64_t words;                 /* [H2] */
  uint64_t bits[GMLK_BIN_WORDS];  /* [H2] */
  uint64_t grains;                /* [H4] */
  uint32_t none_from, none_count; /* [H5] in grains */
  uint32_t count;                 /* [H4] */
  gmlk_block *second_blocks;      /* tree of the second tagged blocks of runs */
  gmlk_link rings[GMLK_BINS];     /* [H3] */
} gmlk_bins;

static void gmlk_ring_init(gmlk_link *ring) { ring->prev = ring->next = ring; }

static inline void gmlk_link_insert(gmlk_link *ring, gmlk_link *link) {
  link->prev = ring;
  link->next = ring->next;
  ring->next->prev = link;
  ring->next = link;
}

static inline void gmlk_link_remove(gmlk_link *link) {
  link->prev->next = link->next;
  link->next->prev = link->prev;
}

/* NULL: no host memory. */
static gmlk_bins *gmlk_bins_new(gmlk_host *host) {
  gmlk_bins *bins = (gmlk_bins *)gmlk_host_alloc(host, sizeof(gmlk_bins));
  unsigned bin;
  for (bin = 0; bins && bin < GMLK_BINS; bin++) gmlk_ring_init(&bins->rings[bin]);
  return bins;
}

static inline unsigned gmlk_bin_of(uint32_t grains) {
  unsigned octave = gmlk_log2(grains | (1u << GMLK_BINS_LOG)) - GMLK_BINS_LOG;
  return (octave << GMLK_BINS_LOG) + (grains >> octave);
}

static inline void gmlk_bins_insert(gmlk_bins *bins, gmlk_block *block, uint32_t hole) {
  unsigned bin = gmlk_bin_of(hole);
  gmlk_link *ring = &bins->rings[bin], *link = &block->as.link;
  block->its.hole = hole;
  link->prev = ring;
  link->next = ring->next;
  link->next->prev = ring->next = link;
  bins->bits[bin / 64u] |= (uint64_t)1 << (bin % 64u);
  bins->words |= (uint64_t)1 << (bin / 64u);
  bins->grains += hole;
  bins->count++;
  if (hole - bins->none_from < bins->none_count) {
    bins->none_count -= hole + 1 - bins->none_from;
    bins->none_from = hole + 1;
  }
}

static inline void gmlk_bins_remove(gmlk_bins *bins, gmlk_block *block) {
  unsigned bin = gmlk_bin_of(block->its.hole), word = bin / 64u;
  gmlk_link *prev = block->as.link.prev, *next = block->as.link.next;
  uint64_t is_last = prev == next; /* the ring itself */
  prev->next = next;
  next->prev = prev;
  bins->bits[word] &= ~(is_last << (bin % 64u)); /* a branch would often be predicted wrongly */
  if (!bins->bits[word]) bins->words &= ~((uint64_t)1 << word);
  bins->grains -= block->its.hole;
  bins->count--;
  block->its.hole = 0;
}

static int gmlk_hole_less(const gmlk_block *a, const gmlk_block *b) {
  return a->its.hole != b->its.hole ? a->its.hole < b->its.hole : a->at < b->at;
}

/* Of the first blocks of the bin, the smallest with at least `grains`; NULL: none has. */
static inline gmlk_block *gmlk_bin_best(const gmlk_bins *bins, unsigned bin, uint32_t grains) {
  const gmlk_link *ring = &bins->rings[bin], *link = ring->next;
  size_t tries = bin < GMLK_BINS_EXACT ? 1 : GMLK_BIN_TRIES;
  gmlk_block *best = NULL;
  for (; link != ring && tries; link = link->next, tries--) {
    gmlk_block *b = (gmlk_block *)(uintptr_t)link;
    if (b->its.hole >= grains && (!best || gmlk_hole_less(b, best))) best = b;
  }
  return best;
}

/* The first bin in use, `bin` or above; GMLK_BINS: there is none. */
static inline unsigned gmlk_bin_from(const gmlk_bins *bins, unsigned bin) {
  unsigned word = bin / 64u;
  uint64_t bits, words;
  if (word >= GMLK_BIN_WORDS) return GMLK_BINS;
  bits = bins->bits[word] & (~(uint64_t)0 << (bin % 64u));
  if (!bits) {
    words = bins->words & (~(uint64_t)1 << word);
    if (!words) return GMLK_BINS;
    word = gmlk_lowest_bit(words);
    bits = bins->bits[word];
  }
  return word * 64u + gmlk_lowest_bit(bits);
}

/* The smallest size that belongs in the bin. For GMLK_BINS that is 2^32, returned as 0. */
static uint32_t gmlk_bin_grains(unsigned bin) {
  unsigned octave = bin < GMLK_BINS_EXACT ? 0 : (bin >> GMLK_BINS_LOG) - 1;
  return (bin - (octave << GMLK_BINS_LOG)) << octave;
}

/* Step 3 of best fit. NULL: no block of the bin is long enough. */
static gmlk_block *gmlk_bin_rest(gmlk_bins *bins, unsigned bin, uint32_t grains) {
  gmlk_link *ring = &bins->rings[bin], *link = ring->next;
  if (grains - bins->none_from < bins->none_count) return NULL;
  while (link != ring && ((gmlk_block *)(void *)link)->its.hole < grains) link = link->next;
  if (link == ring) {
    bins->none_from = grains;
    bins->none_count = gmlk_bin_grains(bin + 1) - grains;
    return NULL;
  }
  gmlk_link_remove(ring); /* the ring now begins with this block */
  gmlk_link_insert(link->prev, ring);
  return gmlk_bin_best(bins, bin, grains);
}

/* BestFit: a block with a hole of at least this size, or NULL. */
static inline gmlk_block *gmlk_bins_best(gmlk_bins *bins, uint32_t grains) {
  const unsigned bin = gmlk_bin_of(grains);
  gmlk_block *found = gmlk_bin_best(bins, bin, grains);
  unsigned above;
  if (found) return found;
  above = gmlk_bin_from(bins, bin + 1);
  if (above < GMLK_BINS) return gmlk_bin_best(bins, above, 0);
  return bins->rings[bin].next == &bins->rings[bin] ? NULL : gmlk_bin_rest(bins, bin, grains);
}

/* The last bin in use, `bin` or below. 0: there is none, as no hole has 0 grains. */
static unsigned gmlk_bin_down(const gmlk_bins *bins, unsigned bin) {
  unsigned word = bin / 64u;
  uint64_t bits = bins->bits[word] & (~(uint64_t)0 >> (63u - bin % 64u));
  if (!bits) {
    uint64_t words = bins->words & (((uint64_t)1 << word) - 1);
    if (!words) return 0;
    word = gmlk_log2(words);
    bits = bins->bits[word];
  }
  return word * 64u + gmlk_log2(bits);
}

/* The candidate after `block`: the next of its bin, even if too short, else one of the next bin in
   use. NULL: no more. */
static gmlk_block *gmlk_bins_next(const gmlk_bins *bins, const gmlk_block *block) {
  unsigned bin = gmlk_bin_of(block->its.hole);
  gmlk_link *next = block->as.link.next;
  if (next != &bins->rings[bin]) return (gmlk_block *)(void *)next;
  bin = gmlk_bin_from(bins, bin + 1);
  return bin < GMLK_BINS ? gmlk_bin_best(bins, bin, 0) : NULL;
}

/* ---- >>index --------------------------------------------------------------------------------
   gmlk_index finds the record of a live block by its address. Owns its hash table.
   The table has buckets of four entries; a bucket fills a cache line. The four are compared without
   a branch, as the processor would often predict it wrongly. If an entry's home bucket is full, the
   entry goes to the next bucket with room. Each bucket counts the entries that passed over it, in
   the lowest bits of its first address, which are 0 in all addresses: a search ends at a bucket
   that counts 0.

   [I1] There is one entry for each live block that was handed to the user, and no other: a block
        that was granted, while the holder of `driver_lock` still serves its request, has none yet.
        An entry stands in its home bucket, or in a later one, and then all buckets from its home to
        the one before it count it.
   [I2] bucket_count is a power of two, or 0 before the first block.
   [I3] At most 5/8 of the entries are in use: count_max of them.

   O(1) expected. Can fail: gmlk_index_ensure, for lack of host memory. */

#define GMLK_BUCKET 4u /* entries */
#define GMLK_BUCKETS_MIN 16u
#define GMLK_PASSED_MAX (GMLK_GRAIN - 1) /* a count that got here stays: searches end later */
#define GMLK_NO_ENTRY SIZE_MAX

typedef struct gmlk_bucket {
  uint64_t address[GMLK_BUCKET]; /* below GMLK_GRAIN: the entry is empty */
  gmlk_block *block[GMLK_BUCKET];
} gmlk_bucket;

typedef struct gmlk_index {
  void *memory;               /* bucket_count + 1 buckets, as malloc aligns them */
  gmlk_bucket *buckets;       /* in memory, from a cache line on */
  size_t bucket_count, count; /* count: entries in use */
  size_t count_max;           /* before the table grows: 5/8 of four entries a bucket */
  unsigned shift;             /* 64 - log2(bucket_count) */
} gmlk_index;

/* The upper bits of a product, 64 - shift of them. A product alone is not enough: values with a
   fixed stride have products with a fixed stride, and some strides (Fibonacci numbers, with the
   usual factor) leave most buckets empty. So the value's upper bits change its lower bits first. */
static inline uint64_t gmlk_hash(uint64_t value, unsigned shift) {
  return ((value ^ value >> 5 ^ value >> 13) * 0x9E3779B97F4A7C15u) >> shift;
}

/* A bit for each entry of the bucket with that address, whatever its lowest bits count. Empty
   entries have address 0. A sum of comparisons needs no branch. */
static inline unsigned gmlk_bucket_find(const gmlk_bucket *r, uint64_t address) {
  unsigned found = (r->address[3] ^ address) < GMLK_GRAIN;
  found = 2 * found + ((r->address[2] ^ address) < GMLK_GRAIN);
  found = 2 * found + ((r->address[1] ^ address) < GMLK_GRAIN);
  return 2 * found + ((r->address[0] ^ address) < GMLK_GRAIN);
}

/* The number (bucket * GMLK_BUCKET + place in it) of the address's entry, or GMLK_NO_ENTRY. */
static inline size_t gmlk_index_find(const gmlk_index *index, uint64_t address) {
  size_t bucket = gmlk_hash(address / GMLK_GRAIN, index->shift), left; /* its home bucket */
  if (!address || address % GMLK_GRAIN) return GMLK_NO_ENTRY;
  for (left = index->bucket_count; left; left--) {
    const gmlk_bucket *r = &index->buckets[bucket];
    unsigned found = gmlk_bucket_find(r, address);
    if (found) return bucket * GMLK_BUCKET + gmlk_lowest_bit(found);
    if (!(r->address[0] % GMLK_GRAIN)) break;
    bucket = (bucket + 1) & (index->bucket_count - 1);
  }
  return GMLK_NO_ENTRY;
}

static gmlk_block *gmlk_index_get(const gmlk_index *index, uint64_t address) {
  const size_t entry = gmlk_index_find(index, address);
  return entry == GMLK_NO_ENTRY ? NULL
                                : index->buckets[entry / GMLK_BUCKET].block[entry % GMLK_BUCKET];
}

static inline void gmlk_index_put(gmlk_index *index, uint64_t address, gmlk_block *block) {
  size_t bucket = gmlk_hash(address / GMLK_GRAIN, index->shift);
  for (;; bucket = (bucket + 1) & (index->bucket_count - 1)) {
    gmlk_bucket *r = &index->buckets[bucket];
    unsigned empty = gmlk_bucket_find(r, 0);
    if (empty) {
      unsigned i = gmlk_lowest_bit(empty);
      r->address[i] |= address;
      r->block[i] = block;
      index->count++;
      return;
    }
    if (r->address[0] % GMLK_GRAIN < GMLK_PASSED_MAX) r->address[0]++;
  }
}

static void gmlk_index_destroy(gmlk_index *index, gmlk_host *host) {
  gmlk_host_free(host, index->memory, (index->bucket_count + 1) * sizeof(gmlk_bucket));
}

/* 0: no host memory, and nothing has changed. */
static int gmlk_index_resize(gmlk_index *index, gmlk_host *host, size_t bucket_count) {
  gmlk_index grown;
  size_t i;
  memset(&grown, 0, sizeof(grown));
  grown.bucket_count = bucket_count;
  grown.count_max = bucket_count / 2 * 5;
  grown.shift = 64u - gmlk_log2(grown.bucket_count);
  grown.memory = gmlk_host_alloc(host, (grown.bucket_count + 1) * sizeof(gmlk_bucket));
  if (!grown.memory) return 0;
  grown.buckets = (gmlk_bucket *)gmlk_line_from(grown.memory);
  for (i = 0; i < index->bucket_count * GMLK_BUCKET; i++) {
    const gmlk_bucket *bucket = &index->buckets[i / GMLK_BUCKET];
    gmlk_block *block = bucket->block[i % GMLK_BUCKET];
    if (block)
      gmlk_index_put(&grown, bucket->address[i % GMLK_BUCKET] & ~(uint64_t)(GMLK_GRAIN - 1), block);
  }
  gmlk_index_destroy(index, host);
  *index = grown;
  return 1;
}

/* Makes room for one more entry. 0: no host memory. */
static inline int gmlk_index_ensure(gmlk_index *index, gmlk_host *host) {
  return index->count < index->count_max ||
         gmlk_index_resize(index, host, gmlk_max(GMLK_BUCKETS_MIN, index->bucket_count * 2));
}

/* pre: the entry is in use. */
static inline void gmlk_index_remove(gmlk_index *index, size_t entry) {
  gmlk_bucket *r = &index->buckets[entry / GMLK_BUCKET];
  uint64_t *address = &r->address[entry % GMLK_BUCKET];
  size_t bucket = gmlk_hash(*address / GMLK_GRAIN, index->shift);
  *address %= GMLK_GRAIN;
  r->block[entry % GMLK_BUCKET] = NULL;
  index->count--;
  for (; bucket != entry / GMLK_BUCKET; bucket = (bucket + 1) & (index->bucket_count - 1))
    if (index->buckets[bucket].address[0] % GMLK_GRAIN < GMLK_PASSED_MAX)
      index->buckets[bucket].address[0]--;
}

/* ---- >>tree ---------------------------------------------------------------------------------
   Blocks by address, and idle windows by key: treaps, that is binary trees in which a block's rank
   decides how high it stands. The rank is a hash of the address, or of the window's number, so a
   tree is as flat as one built in random order. It has no links to parents: two links fit where a
   block in a bin has its link. Owns these links.

   [T1] What stands below b->as.children.less comes before b, what stands below more behind it.
   [T2] No block stands below one of lower rank.

   O(log blocks) expected. Cannot fail. */

static uint64_t gmlk_tree_rank(const gmlk_block *b) {
  const gmlk_window *w = gmlk_window_from_block(b);
  return gmlk_hash(w ? w->number : b->at, 0);
}

/* Whether it comes before what has this address; of windows, this key and number. */
static int gmlk_tree_precedes(const gmlk_block *b, uint64_t key, uint64_t number) {
  const gmlk_window *w = gmlk_window_from_block(b);
  return w ? w->key < key || (w->key == key && w->number < number) : b->at < key;
}

/* A place is where a tree points to a block: its root, or a child of another block. Where to go on
   from *place in search of b. */
static gmlk_block **gmlk_tree_side(gmlk_block **place, const gmlk_block *b) {
  const gmlk_window *w = gmlk_window_from_block(b);
  return gmlk_tree_precedes(*place, w ? w->key : b->at, w ? w->number : 0)
             ? &(*place)->as.children.more
             : &(*place)->as.children.less;
}

/* `place` is the root's; the same below. */
static void gmlk_tree_insert(gmlk_block **place, gmlk_block *b) {
  gmlk_block **less = &b->as.children.less, **more = &b->as.children.more, *rest;
  while (*place && gmlk_tree_rank(*place) > gmlk_tree_rank(b)) place = gmlk_tree_side(place, b);
  for (rest = *place; rest;) { /* deals the subtree whose place b takes to b's two sides */
    gmlk_block **below = gmlk_tree_side(&rest, b);
    gmlk_block ***side = below == &rest->as.children.more ? &less : &more;
    **side = rest;
    *side = below;
    rest = *below;
  }
  *less = *more = NULL;
  *place = b;
}

/* Merges the block's two subtrees into its place. pre: the block is in the tree. */
static void gmlk_tree_remove(gmlk_block **place, const gmlk_block *b) {
  gmlk_block *less = b->as.children.less, *more = b->as.children.more;
  while (*place != b) place = gmlk_tree_side(place, b);
  while (less && more) {
    gmlk_block **above = gmlk_tree_rank(less) > gmlk_tree_rank(more) ? &less : &more;
    *place = *above;
    place = above == &less ? &less->as.children.more : &more->as.children.less;
    *above = *place;
  }
  *place = less ? less : more;
}

/* The last block that begins at or before `at`, or NULL. */
static gmlk_block *gmlk_tree_upto(gmlk_block *b, uint32_t at) {
  gmlk_block *found = NULL;
  for (; b; b = b->at <= at ? b->as.children.more : b->as.children.less)
    if (b->at <= at) found = b;
  return found;
}

/* The first block that begins at or behind this address, or the first window that has this key and
   number or stands behind them; NULL: there is none. */
static gmlk_block *gmlk_tree_from(gmlk_block *b, uint64_t key, uint64_t number) {
  gmlk_block *found = NULL;
  while (b) {
    const int is_before = gmlk_tree_precedes(b, key, number);
    if (!is_before) found = b;
    b = is_before ? b->as.children.more : b->as.children.less;
  }
  return found;
}

/* ---- >>driver -------------------------------------------------------------------------------
   gmlk_driver is the backend as the lake calls it. gmlk_batch is a series of backend calls that one
   thread makes. It stands on that thread's stack, so it needs no lock. It counts and times the
   calls and keeps their first error. From its begin to its end (gmlk_batch_begin and gmlk_batch_end
   in >>lake) it owns the thread's capture mode: relaxed, so that no call spoils a capture.

   [D1] result, code and call are of the first call that failed, or of the first one that failed
        for good (gmlk_is_fatal). That a stream is gone (is_stream_gone) does not count as one.

   O(1) plus the calls. Can fail: all that the backend refuses. INVALID_ARGUMENT becomes DRIVER:
   the lake has checked the arguments, so it is not the caller's mistake. */

#define GMLK_RELAXED 2 /* the capture mode; 0 is global, 1 thread-local */

/* Whether no later call can work. */
static int gmlk_is_fatal(gmlake_result result) {
  return result == GMLAKE_ERROR_DEVICE_LOST || result == GMLAKE_ERROR_SHUTTING_DOWN ||
         result == GMLAKE_ERROR_FORKED;
}

static gmlake_result gmlk_backend_result(gmlake_result result) {
  return result == GMLAKE_ERROR_INVALID_ARGUMENT ? GMLAKE_ERROR_DRIVER : result;
}

typedef struct gmlk_driver {
  const gmlake_backend *backend;
  gmlake_backend *owned;     /* the same where the lake created it, else NULL */
  int peers[GMLK_PEERS_MAX]; /* devices that may read and write its memory, peer_count of them */
  size_t peer_count;
  unsigned handle_types; /* GMLAKE_HANDLE_* of the chunks */
} gmlk_driver;

/* Whether the backend has this function, which it may lack. Its table may be of an older header. */
#define GMLK_HAS(driver, function)                                                 \
  ((driver)->backend->struct_bytes >=                                              \
       offsetof(gmlake_backend, function) + sizeof((driver)->backend->function) && \
   (driver)->backend->function)

/* The table of a backend whose functions have the names of its entries behind a prefix. */
#define GMLK_BACKEND_TABLE(prefix)                                                              \
  {                                                                                             \
    sizeof(gmlake_backend), GMLAKE_BACKEND_ABI, NULL, prefix##_get_properties,                  \
        prefix##_get_memory_info, prefix##_reserve, prefix##_unreserve, prefix##_create,        \
        prefix##_release, prefix##_map, prefix##_unmap, prefix##_set_access,                    \
        prefix##_event_create, prefix##_event_destroy, prefix##_event_record,                   \
        prefix##_event_query, prefix##_event_wait, prefix##_stream_wait,                        \
        prefix##_capture_exchange, prefix##_clock_ns, prefix##_stream_id, prefix##_device_wait, \
        prefix##_copy, prefix##_host_alloc, prefix##_host_free, prefix##_export_handle,         \
        prefix##_import_handle, prefix##_is_capturing, prefix##_event_wait_any                  \
  }

typedef struct gmlk_batch {
  const gmlk_driver *driver;
  const gmlake_handle *imports; /* the handle that create takes next, if the backend can; NULL: it
                                   creates one */
  unsigned how;                 /* the flags that gmlk_batch_begin got */
  uint64_t start_ns;            /* by the backend's clock; not set with GMLK_LIGHTLY */
  uint64_t calls, ns;           /* so far; ns is set at the end */
  int mode;                     /* the thread's capture mode before, to be restored */
  int has_begun;                /* the mode was exchanged; with GMLK_LIGHTLY it is not */
  int answer;                   /* the driver's number for the last call */
  gmlake_result result;         /* [D1] */
  int code;                 /* [D1] the driver's number; with is_stream_gone, that of the answer */
  const char *call;         /* [D1] its name */
  int is_stream_gone;       /* a stream is gone, as the driver answered: no error here */
  gmlake_result end_result; /* of restoring the mode; a failure undoes nothing of the series */
  int end_code;
} gmlk_batch;

/* Counts a call, and keeps its error by [D1]. */
static gmlake_result gmlk_batch_called(gmlk_batch *batch, gmlake_result result, const char *call) {
  batch->calls++;
  result = gmlk_backend_result(result);
  if (!result || gmlk_is_fatal(batch->result)) return result;
  if (batch->result && !gmlk_is_fatal(result)) return result;
  batch->result = result;
  batch->code = batch->answer;
  batch->call = call;
  return result;
}

/* The same for a call that a capture may forbid, which is expected. */
static gmlake_result gmlk_batch_asked(gmlk_batch *batch, gmlake_result result, const char *call) {
  if (result != GMLAKE_ERROR_CAPTURING) return gmlk_batch_called(batch, result, call);
  batch->calls++;
  return result;
}

/* Calls the backend's function of this name with the arguments between its first, the backend's
   user, and its last, where it writes the driver's number. Its result has to be counted. */
#define GMLK_ANSWER(batch, function, ...)                                                  \
  ((batch)->answer = 0, (batch)->driver->backend->function((batch)->driver->backend->user, \
                                                           __VA_ARGS__, &(batch)->answer))
#define GMLK_CALL(batch, function, ...) \
  gmlk_batch_called(batch, GMLK_ANSWER(batch, function, __VA_ARGS__), #function)

static gmlake_result gmlk_batch_set_access(gmlk_batch *batch, uint64_t address, size_t bytes) {
  const gmlk_driver *d = batch->driver;
  return GMLK_CALL(batch, set_access, address, bytes, d->peers, d->peer_count);
}

/* ---- >>tags ---------------------------------------------------------------------------------
   gmlk_streams: the streams that the lake has seen, numbered from GMLK_FIRST_STREAM on, and their
   fences; and gmlk_requester: who asks for memory, and what it may wait for. Owns the numbers and
   the events.
   Memory freed on a stream is tagged with the stream's number and its open epoch. A fence is an
   event recorded on the stream; recording it closes the open epoch. When it has completed, memory
   freed in that epoch, or before, is clean. A stream is dirty while its open epoch has work that
   needs a fence. A stream is forgotten once gmlake_forget_stream, or the driver, said that it is
   gone. A forgotten stream that is dirty is lost: it was gone before it could be fenced, so only a
   wait for the whole device completes its open epoch.

   [F1] done < epoch.
   [F2] A stream's fences are in order of their epochs, and done < fence.epoch < epoch.
   [F3] Nothing is recorded on a stream that is being captured or forgotten, nor on the legacy
        stream while any stream is being captured: that would spoil the capture.
   [F4] Every closed epoch, and every tag, is complete, or covered by a fence, or its stream is
        dirty.
   [F5] A number in use belongs to a stream, forgotten or not, to a capture, or to a loan (>>lend).
        A capture's number is `capture` of exactly one stream, and its pool counts it.
   [F6] The wait that a stream remembers names a closed epoch.
   [F7] uses counts the live blocks that the stream is recorded on and, under
        GMLAKE_STREAMS_MAY_END, those that were allocated on it.
   [F8] Under that flag, only a call that names a stream records on it, as only that call says that
        the stream is still there. The legacy stream is always there.
   [F9] A forgotten stream's number is given to a new stream once its work is complete: then nothing
        pending waits for it. The number's epochs go on from there, so a tag or wait of the former
        stream reads as complete. `born` tells whether a live block is of the former stream.

   Event calls take about 0.3 us, so they are made with state_lock held. Finding a stream is O(1)
   for the last one found, else O(streams); under GMLAKE_STREAMS_MAY_END always O(streams), except
   for the legacy stream. Can fail: host memory, for a new stream; event calls. */

/* Stream values that CUDA gives a meaning; NULL is the legacy stream, too. */
#define GMLK_VALUE_LEGACY ((uintptr_t)1)
#define GMLK_VALUE_PER_THREAD ((uintptr_t)2)

#define GMLK_FENCES 64u /* the most of a stream; for more, gmlk_stream_thin drops every second */

enum {                 /* gmlk_stream.is_dirty */
       GMLK_DIRTY = 1, /* the open epoch has work that needs a fence */
       GMLK_AWAITED    /* the same, and the host waits for the whole device, which completes it. A
                       free meanwhile makes it GMLK_DIRTY, and so does gmlk_stream_end [F7] */
};

typedef struct gmlk_fence {
  void *event;
  uint64_t epoch;  /* this epoch, and all before, are complete when the event is */
  uint64_t serial; /* record_count then; of the oldest event in whose place it is */
} gmlk_fence;

typedef struct gmlk_stream {
  /* [F1] The open epoch; the last one known to be complete. Both stay when the number serves
     another stream [F9]. */
  uint64_t epoch, done;
  gmlk_link pending_uses; /* [N4] ring: the uses of pending blocks that wait for it; of >>pending */
  uint8_t is_news;      /* 1: an epoch completed since its pending blocks and tags were looked at */
  uint8_t is_dirty;     /* GMLK_DIRTY, GMLK_AWAITED, or 0: all work on freed memory has a fence */
  uint8_t is_capture;   /* stands for a capture or a loan, not for a stream */
  uint8_t is_used;      /* the number is taken */
  uint8_t is_forgotten; /* with is_dirty: it is lost */
  gmlake_stream value;  /* the user's; NULL: the legacy stream */
  uint64_t id;          /* [GMLAKE_STREAMS_MAY_END] the driver's, which no other stream has */
  uint64_t born;        /* its serial number, of the same series as blocks' serials */
  size_t freed_bytes;   /* in the open epoch */
  gmlk_fence fences[GMLK_FENCES]; /* [F2] fence_count of them */
  unsigned fence_count;
  /* [F6] The stream that it was made to wait for last, and up to which epoch; 0: none. */
  unsigned waited;
  uint64_t waited_epoch;
  unsigned capture;  /* [being captured] the number that stands for the capture, else 0 */
  uint8_t is_seen;   /* [being captured] the driver said so, too */
  uint8_t has_ended; /* the lake ended its last capture, as the driver had */
  uint32_t arena;    /* [being captured] the arena that its allocations come from */
  uint32_t uses;     /* [F7] */
  unsigned kind;     /* GMLAKE_STREAM_*, but not the last one */
  uint8_t may_end;   /* [F8] it may be destroyed without the lake being told: under
                        GMLAKE_STREAMS_MAY_END, unless it was marked GMLAKE_STREAM_STAYS */
} gmlk_stream;

typedef struct gmlk_streams {
  gmlk_stream **items; /* by number; [0] and [1] stay NULL */
  size_t count, capacity;
  size_t capture_count;  /* captures under way */
  int is_device_awaited; /* the host waits for the whole device: no capture may begin */
  size_t live_count;     /* streams neither forgotten nor captures */
  size_t used_count;     /* the same, and forgotten ones until their work is complete */
  int may_end;       /* 1: GMLAKE_STREAMS_MAY_END; a stream is gone if its value has another id */
  unsigned has_none; /* 1: GMLAKE_STREAM_NONE once asked for memory that had a stream's tag */
  gmlake_stream last_value; /* the last stream found, as it was named, */
  unsigned last;            /* and its number; 0: none */
  void **events;            /* idle ones: a stack with room for all that there are */
  size_t event_count, event_capacity;
  uint64_t record_count; /* events recorded since create */
} gmlk_streams;

/* Whether the work that a tag stands for is known to be complete. */
static int gmlk_tag_done(const gmlk_streams *streams, unsigned stream, uint64_t epoch) {
  if (stream < GMLK_FIRST_STREAM) return stream == GMLK_CLEAN;
  return streams->items[stream]->done >= epoch;
}

/* Whether only a wait for the whole device completes the open epoch. */
static int gmlk_stream_needs_device_wait(const gmlk_stream *s) {
  return s->is_dirty && !s->capture && (s->is_forgotten || s->may_end);
}

/* Whether all that was freed on the stream is known to be complete. */
static int gmlk_stream_is_complete(const gmlk_stream *s) {
  return !s->is_dirty && s->done + 1 == s->epoch;
}

/* The oldest fence that covers the epoch, or NULL. */
static gmlk_fence *gmlk_stream_covering(gmlk_stream *s, uint64_t epoch) {
  unsigned i = 0;
  while (i < s->fence_count && s->fences[i].epoch < epoch) i++;
  return i < s->fence_count ? &s->fences[i] : NULL;
}

/* Who asks for memory. */
typedef struct gmlk_requester {
  unsigned stream;      /* the stream's number, or its capture's; 0: GMLAKE_STREAM_NONE */
  gmlake_wait may_wait; /* DEVICE: the stream, which is not 0, may be made to wait on the device for
                           other streams. HOST: what would be free once the host has waited is asked
                           for, too */
} gmlk_requester;

/* Whether the work that a tag stands for is complete, or the requester may wait for it. No event
   completes what a graph owns, or what a capture or loan has. An urgent stream does not wait on the
   device for one that is not. For another stream's work there has to be a fence, or it has to be
   possible to record one (no capture forbids it, and the stream cannot be gone), or the host has to
   be allowed to wait for the whole device. */
static int gmlk_may_await(const gmlk_streams *streams, gmlk_requester requester, unsigned stream,
                          uint64_t epoch) {
  const int is_host = requester.may_wait == GMLAKE_HOST_WAIT;
  const gmlk_fence *fence;
  gmlk_stream *s;
  if (gmlk_tag_done(streams, stream, epoch)) return 1;
  if (!requester.may_wait || stream == GMLK_GRAPH_OWNED) return 0;
  s = streams->items[stream];
  if (s->is_capture) return 0;
  fence = gmlk_stream_covering(s, epoch);
  if (!is_host && streams->items[requester.stream]->kind == GMLAKE_STREAM_URGENT &&
      s->kind != GMLAKE_STREAM_URGENT)
    return 0;
  if (!s->capture && (s->value || !streams->capture_count) &&
      (!gmlk_stream_needs_device_wait(s) || (is_host && !streams->capture_count)))
    return 1;
  return fence != NULL;
}

/* ---- >>chunks -------------------------------------------------------------------------------
   gmlk_chunks: the chunks of one arena, by slot. A slot is the place of a chunk in the arena. Owns
   the handles of the chunks, the number of their mappings, the quarantine and the marks. What the
   driver refuses to unmap or to release is quarantined: gmlk_chunks_offer and who closes the arena
   offer it to the driver again, and growth into its slot takes it back into use.
   The holder of `driver_lock` reads and changes all of this, also while state_lock is released;
   nobody else does.

   [P1] backed_count and quarantined_count are the numbers of slots with a handle that are not in
        quarantine, and that are; asleep_count that of slots asleep, which have none.
   [P2] Between two operations no chunk is marked.
   [P3] A chunk that is not in quarantine is mapped at home, unless the arena is bare or asleep.
   [P5] shared_count is the number of slots that other processes may have mapped. Such a slot's
        memory is never free: once it is nobody's its block is gone, and the chunk quarantined.
   [P6] A graph knows no slot that is empty.

   What creates, maps and releases them stands in >>capacity. */

typedef struct gmlk_chunk { /* of one slot */
  uint64_t handle;          /* the driver's; 0: no memory */
  uint32_t map_count;       /* [W6] its mappings by windows and buffers: not the one at home */
  uint8_t is_home;          /* it is mapped at home */
  uint8_t is_quarantined;   /* it is in quarantine */
  uint8_t is_marked;        /* [P2] the operation that is under way chose it */
  uint8_t is_asleep;        /* it gave its memory back and gets new memory when its arena wakes */
  uint8_t is_shared;        /* [P5] it was exported */
  uint8_t is_known;         /* [P6] a graph may know it: its pool had it when a capture ended */
} gmlk_chunk;

typedef struct gmlk_chunks {
  gmlk_chunk *items;
  size_t capacity;                        /* records in items */
  size_t backed_count, quarantined_count; /* [P1] */
  size_t asleep_count;                    /* [P1] */
  size_t shared_count;                    /* [P5] */
} gmlk_chunks;

typedef struct gmlk_slots { /* a list of slots, in an arena's scratch */
  uint32_t *items;
  uint32_t count;
} gmlk_slots;

/* ---- >>arena --------------------------------------------------------------------------------
   gmlk_arena: one range of home addresses, tiled by blocks, and the paper's pPool: its free blocks
   in bins, one set of bins for each stream's memory and one for clean memory. Owns the tiling, the
   tags and the bins.

   Neighbours with the same tag are joined to one block, unless a policy keeps them apart. Free
   neighbours with different tags are not joined: one would lose its fence, or wait for a fence that
   it does not need. But a stream may take clean memory and its own in one piece. So a *run* of a
   stream is as many neighbours as possible that are clean or have the stream's tag, one at least
   with the tag. The stream's bins hold each run as one hole: its first tagged block, the head,
   carries the size of the whole run. Clean blocks also stand in the clean bins, each by itself.

   [A1] The blocks tile the arena from its base to its end without gap or overlap.
   [A2] No two neighbours are both unbacked, or both free with the same tag and neither apart; in a
        bare arena: with the same epoch, too.
   [A3] A clean free block stands in bins[GMLK_CLEAN] with its own size. A run's head stands in its
        stream's bins with the run's size, and the run's second tagged block, if it has one, in
        the tree bins->second_blocks. No other block stands in either.
   [A4] firsts[i] is the block that holds the first grain of slot i; for the slot behind the last
        one it is the edge.
   [A5] A slot whose block is in a state before GMLK_UNBACKED has a chunk that is not in quarantine,
        or one that is asleep, which has no handle. Any other slot (its block is unbacked or gone,
        or it lies behind the end) has no handle, or a chunk in quarantine.
   [A6] free_grains is what a walk would count.
   [A7] gap_count is the number of unbacked blocks.
   [A8] The sizes of an arena's tables are those that its slots and streams need.
   [A9] An owned block has a serial that was given out, and flags that a caller may ask for. Free
        memory has no flag but GMLK_APART.
   [X1] The extents of an area stand in the order of their slots. Between two of them is one slot
        that has no address and is in use for ever: a block of state GMLK_EDGE. So nothing is joined
        across it. An arena's tiling reaches behind the last of these.

   Best fit gives a large block the rest of a small block's chunk. When the large blocks go, each
   small one still holds a chunk. So small blocks for which best fit finds only the arena's end, or
   nothing, are kept together. A part of the end is set aside as *the small-block reserve*, and they
   are cut from its front, if the arena has GMLK_SMALL_RESERVE_FROM slots and may get as many more.
   The small-block reserve stands in no bin. It becomes free memory again when the block before it
   is freed, when memory is short, when chunks are returned, and when a capture or loan of the pool
   begins or ends.
   [U1] The small-block reserve is the arena's one reserved block between calls. It keeps its tag.
        The block before it is not free.
   [U2] small.most is a 32nd of a chunk; 0 in a bare arena, and if there is a policy.

   gmlk_locate is O(blocks of one chunk). Putting and taking a block are O(1), or O(log(runs of the
   stream)) next to clean memory, plus the chunks whose first block changes. Can fail: what gets
   host memory (admit, reserve_slots, scratch_ensure, init), and nothing else. */

/* Scratch of >>planner: neighbouring chunks that are wholly free. */
typedef struct gmlk_whole_chunks {
  uint32_t slot, count;
  uint32_t grains; /* of the free range that they are in */
} gmlk_whole_chunks;

typedef struct gmlk_head_fragment { /* scratch of >>planner: the free head of a chunk */
  uint32_t slot, grains;
} gmlk_head_fragment;

typedef struct gmlk_small { /* blocks that are kept together, see >>small */
  gmlk_block *reserve;      /* [U1] what is set aside for them; NULL: nothing */
  uint32_t most;            /* [U2] a small block's grains at most; 0: nothing is set aside here */
  uint32_t was_at, was_grains; /* what a dry run sets aside again */
} gmlk_small;

typedef struct gmlk_windows {  /* see >>windows */
  gmlk_block *ready, *blocked; /* [W5] trees of the idle windows */
  uint64_t number;             /* of the newest window */
  uint32_t grains_min;         /* of the smallest window ever; no search for less is needed */
  gmlk_window *idle_first;     /* list of the idle windows, longest idle first */
  gmlk_window **idle_end;      /* the NULL at its end */
} gmlk_windows;

typedef struct gmlk_mapped {         /* what aliases count, see >>alias */
  size_t window_count, window_bytes; /* windows, live and idle, and what they map */
  size_t quarantined_bytes;          /* mapped by windows and pages in quarantine */
} gmlk_mapped;

typedef struct gmlk_extent { /* addresses that the driver reserved in one call */
  uint64_t base;             /* its address minus `first` * chunk_bytes */
  uint32_t first, end;       /* the slots that they are for */
} gmlk_extent;

typedef struct gmlk_area { /* the addresses of an arena, or those for its windows or its buffers */
  gmlk_extent *extents;    /* [X1] count of them, room for `capacity` */
  size_t count, capacity;
  size_t chunk_bytes; /* of a slot */
  uint32_t limit;     /* [X1] the slots of all extents */
  uint32_t most;      /* that there may be */
  uint32_t unit;      /* the fewest that are asked for at a time, unless the driver refuses */
  int is_scarce;      /* the driver has refused some: less is asked for at a time */
  int is_full;        /* it has refused all that was asked for last */
} gmlk_area;

typedef struct gmlk_space { /* addresses for windows or for buffers */
  gmlk_block begin, end;    /* edges; it is tiled in slots of chunk_bytes */
  gmlk_bins *holes;         /* its free ranges; NULL: there are no windows, or no buffers */
  gmlk_block *used;         /* [V3] tree of the others */
  gmlk_area area;
} gmlk_space;

typedef struct gmlk_copies { /* see >>copies */
  struct gmlk_copy *items;   /* [Q1] count of them, room for capacity */
  size_t count, capacity;
  size_t next, done; /* [Q2] those before are started, or complete, in this series */
} gmlk_copies;

typedef struct gmlk_host_copies { /* see >>copies */
  void **items;                   /* [Q1] count pieces of piece_bytes each, room for capacity */
  size_t count, capacity, piece_bytes;
} gmlk_host_copies;

enum { /* gmlk_arena.sleep */
       GMLK_AWAKE = 0,
       GMLK_CHANGING, /* mapped as if awake, but serves no memory: it is about to fall asleep */
       GMLK_ASLEEP    /* some or all of it is not mapped */
};

typedef struct gmlk_arena {
  gmlk_host *host;
  gmlk_records *records;
  gmlk_area area;        /* its home addresses; a bare one has a limit without any */
  size_t chunk_bytes;    /* a power of two */
  size_t limit_bytes;    /* of its chunks together; 0: none but the lake's */
  unsigned chunk_log;    /* log2 of a chunk's grains */
  uint32_t chunk_grains; /* of one chunk */
  uint32_t number;       /* its index in lake->arenas */
  uint32_t slot_count;   /* slots tiled */
  int keeps_apart;       /* 1: a policy decides which free blocks are joined */
  size_t slot_capacity;  /* of firsts, which has one entry more, for the edge */
  gmlk_block **firsts;   /* [A4] by slot */
  gmlk_chunks chunks;    /* [A5] by slot */
  size_t backed_bytes, backed_bytes_peak; /* of its chunks that are not in quarantine, as of the
                                             last gmlk_driver_memory_sum */
  void *scratch;        /* holds the three below, or a gmlk_slots, during one plan */
  size_t scratch_slots; /* that it is large enough for */
  gmlk_whole_chunks *whole;
  gmlk_head_fragment *head_fragments;
  gmlk_piece *pieces;
  gmlk_block begin, end; /* edges */
  uint32_t gap_count;    /* [A7] */
  gmlk_bins **bins;      /* [A3] by stream number; NULL: no memory had that tag yet */
  size_t bins_capacity;
  uint64_t free_grains; /* [A6] in free blocks of any tag */
  gmlk_small small;
  gmlk_windows windows;
  gmlk_mapped mapped; /* by its aliases */
  gmlk_space window_space, buffer_space;
  gmlake_pool *pool;      /* that it belongs to; NULL: the lake's own arena */
  gmlake_pool *owner;     /* the pool that its memory is of; NULL: the default one */
  int is_bare;            /* 1: no home range; only buffers map its chunks, see >>buffer */
  int is_import;          /* 1: another process's memory, for one block: see >>sharing */
  gmlake_buffer *buffers; /* list; a destroyed buffer stays until it is unmapped */
  size_t destroyed_count; /* destroyed buffers in it: up in >>buffer, down in >>pages */
  gmlk_link pending;      /* [N1] ring of freed blocks that recorded streams may still use */
  unsigned sleep;         /* GMLK_AWAKE... */
  int is_kept;            /* its chunks are not returned: gmlake_admit */
  gmlk_copies copies;
  gmlk_host_copies host_copies;
} gmlk_arena;

/* Best fit looks at this many holes that might not serve (alignment, parts of a run) before it
   takes one that is sure to serve: a search stays O(1). */
#define GMLK_HOLE_TRIES 16u

#if !defined(GMLK_SMALL_PART)        /* tests have larger small blocks */
#define GMLK_SMALL_PART 32u          /* the part of a chunk that a small block has at most */
#define GMLK_SMALL_RESERVE_PART 128u /* the part of an arena that is set aside at most */
#define GMLK_SMALL_RESERVE_FROM 32u  /* slots that an arena has before, and that it may still get */
#endif

/* How many chunks have so many grains. That is also the first slot which begins at this grain or
   behind it. */
static uint32_t gmlk_chunks_for(const gmlk_arena *a, uint64_t grains) {
  return (uint32_t)((grains + a->chunk_grains - 1) >> a->chunk_log);
}

/* The address of what lies so many bytes behind slot 0's first. O(extents). */
static inline uint64_t gmlk_area_address(const gmlk_area *area, uint64_t offset) {
  size_t i = 0;
  if (!area->count) return offset;
  while (i + 1 < area->count && offset >= area->extents[i].end * (uint64_t)area->chunk_bytes) i++;
  return area->extents[i].base + offset;
}

#define GMLK_NOWHERE (~(uint32_t)0) /* no slot, or no grain */

/* Where the next extent would begin, if it has so many slots; NOWHERE: it cannot be had. */
static uint32_t gmlk_area_next(const gmlk_area *area, uint32_t count) {
  const uint32_t slot = area->limit + (area->limit != 0);
  return !area->is_full && slot <= area->most && count <= area->most - slot ? slot : GMLK_NOWHERE;
}

static uint64_t gmlk_home(const gmlk_arena *a, uint32_t at) {
  return gmlk_area_address(&a->area, at * GMLK_GRAIN);
}

static int gmlk_has_tag(const gmlk_block *b, unsigned stream) {
  return b->state == GMLK_FREE && b->stream == stream;
}

static int gmlk_is_tagged(const gmlk_block *b) {
  return b->state == GMLK_FREE && b->stream >= GMLK_FIRST_STREAM;
}

/* Whether the stream may take the block without waiting for another. */
static int gmlk_is_available(const gmlk_block *b, unsigned stream) {
  return b->state == GMLK_FREE && (b->stream == GMLK_CLEAN || b->stream == stream);
}

/* Makes at least `count` unused records. 0: no host memory. */
static int gmlk_records_ensure(gmlk_records *records, gmlk_host *host, size_t count) {
  while (records->unused_count < count + records->set_aside) {
    gmlk_slab *slab = (gmlk_slab *)gmlk_host_alloc(host, GMLK_SLAB_BYTES);
    gmlk_block *block;
    size_t i;
    if (!slab) return 0;
    block = (gmlk_block *)gmlk_line_from(slab + 1);
    slab->next = records->slabs;
    records->slabs = slab;
    records->slab_count++;
    for (i = GMLK_SLAB_BLOCKS; i--;) { /* backwards: they are then taken in order of address */
      block[i].next = records->unused;
      records->unused = &block[i];
    }
    records->unused_count += GMLK_SLAB_BLOCKS;
  }
  return 1;
}

static gmlk_block *gmlk_records_take(gmlk_records *records) { /* pre: reserved */
  gmlk_block *block = records->unused;
  GMLAKE_ASSERT(records->unused_count > records->set_aside);
  records->unused = block->next;
  records->unused_count--;
  return block;
}

static void gmlk_records_give(gmlk_records *records, gmlk_block *block) {
  block->state = GMLK_UNUSED;
  block->its.hole = 0;
  block->next = records->unused;
  records->unused = block;
  records->unused_count++;
}

/* Cuts a block behind its first `grains`. Returns the front; the back is its next. The shorter part
   gets the new record. pre: one record is at hand. */
static inline gmlk_block *gmlk_block_split(gmlk_records *records, gmlk_block *b, uint32_t grains) {
  const int is_front = grains <= b->grains / 2;
  gmlk_block *part = gmlk_records_take(records), *rest = is_front ? b : part;
  *part = *b;
  part->next = is_front ? b : b->next;
  part->prev = part->next->prev;
  part->next->prev = part->prev->next = part;
  rest->at += grains;
  rest->grains -= grains;
  (is_front ? part : b)->grains = grains;
  return is_front ? part : b;
}

/* Adds a neighbour's range to a block; the neighbour's record becomes unused. */
static inline void gmlk_block_absorb(gmlk_records *records, gmlk_block *b, gmlk_block *neighbour) {
  if (neighbour->at < b->at) b->at = neighbour->at;
  b->grains += neighbour->grains;
  neighbour->prev->next = neighbour->next;
  neighbour->next->prev = neighbour->prev;
  gmlk_records_give(records, neighbour);
}

/* Keeps [A4] for the slots whose first grain lies in [at, at + grains), which the block holds. */
static inline void gmlk_set_first_blocks(gmlk_arena *a, gmlk_block *b, uint32_t at,
                                         uint32_t grains) {
  const uint64_t rest = ((uint64_t)1 << a->chunk_log) - 1,
                 end = (at + rest + grains) >> a->chunk_log;
  uint64_t slot = (at + rest) >> a->chunk_log;
  for (; slot < end; slot++) a->firsts[slot] = b;
}

/* Makes sure that the stream has bins here: no later step has to make them. 0: no host memory. */
static int gmlk_arena_admit(gmlk_arena *a, unsigned stream) {
  if (!gmlk_host_grow(a->host, &a->bins, &a->bins_capacity, stream, sizeof(gmlk_bins *))) return 0;
  if (!a->bins[stream]) a->bins[stream] = gmlk_bins_new(a->host);
  return a->bins[stream] != NULL;
}

/* The nearest block before b that is not clean, and that behind it. One step, unless a policy keeps
   clean blocks apart. */
static gmlk_block *gmlk_before_clean(const gmlk_block *b) {
  gmlk_block *before = b->prev;
  while (gmlk_has_tag(before, GMLK_CLEAN)) before = before->prev;
  return before;
}

static gmlk_block *gmlk_behind_clean(const gmlk_block *b) {
  gmlk_block *behind = b->next;
  while (gmlk_has_tag(behind, GMLK_CLEAN)) behind = behind->next;
  return behind;
}

typedef struct gmlk_run_bounds { /* a run: its head, its first grain, the grain behind it */
  gmlk_block *head;
  uint32_t at, end;
} gmlk_run_bounds;

/* The first block of a run: its head, which is the first with the stream's tag, or a clean block
   before that. */
static gmlk_block *gmlk_run_start(gmlk_block *head) {
  return head->its.hole == head->grains ? head : gmlk_before_clean(head)->next;
}

/* The run that a tagged block is in. The head, which alone has a hole, stands before the second
   tagged block, which the tree finds. */
static gmlk_run_bounds gmlk_run_of(const gmlk_arena *a, gmlk_block *b) {
  gmlk_run_bounds run;
  run.head = b;
  if (!b->its.hole) {
    const gmlk_block *second = gmlk_tree_upto(a->bins[b->stream]->second_blocks, b->at);
    GMLAKE_ASSERT(second); /* a run whose blocks are not all the head has one [A3] */
    run.head = gmlk_before_clean(second);
  }
  run.at = gmlk_run_start(run.head)->at;
  run.end = run.at + run.head->its.hole;
  return run;
}

/* Enters a run of so many grains [A3]; gmlk_run_leave takes it out. */
static void gmlk_run_enter(gmlk_arena *a, gmlk_block *head, uint32_t grains) {
  gmlk_bins *bins = a->bins[head->stream];
  gmlk_block *second = gmlk_behind_clean(head);
  gmlk_bins_insert(bins, head, grains);
  if (gmlk_has_tag(second, head->stream)) gmlk_tree_insert(&bins->second_blocks, second);
}

static void gmlk_run_leave(gmlk_arena *a, gmlk_block *head) {
  gmlk_bins *bins = a->bins[head->stream];
  gmlk_block *second = gmlk_behind_clean(head);
  gmlk_bins_remove(bins, head);
  if (gmlk_has_tag(second, head->stream)) gmlk_tree_remove(&bins->second_blocks, second);
}

/* Takes out the runs that the blocks before and behind a clean block are in. head is NULL where
   there is none; both may be the same run. */
static void gmlk_runs_beside(gmlk_arena *a, gmlk_block *before, gmlk_block *behind,
                             gmlk_run_bounds *left, gmlk_run_bounds *right) {
  left->head = right->head = NULL;
  if (gmlk_is_tagged(before)) *left = gmlk_run_of(a, before);
  if (gmlk_is_tagged(behind)) *right = gmlk_run_of(a, behind);
  if (left->head) gmlk_run_leave(a, left->head);
  if (right->head && right->head != left->head) gmlk_run_leave(a, right->head);
}

/* Takes a free or unbacked block out of all bins and trees. Runs that it was in then end before it
   or begin behind it. It is reserved until gmlk_link_free enters it again or it gets an owner; that
   is set before runs beside it are entered, so that gmlk_behind_clean stops at it. */
static void gmlk_unlink_free(gmlk_arena *a, gmlk_block *b) {
  gmlk_block *before = gmlk_before_clean(b), *behind = gmlk_behind_clean(b);
  unsigned stream = b->stream;
  gmlk_run_bounds left, right;
  if (b->state == GMLK_UNBACKED) {
    a->gap_count--;
  } else if (stream == GMLK_CLEAN) {
    gmlk_bins_remove(a->bins[GMLK_CLEAN], b); /* [A3] */
    gmlk_runs_beside(a, before, behind, &left, &right);
    b->state = GMLK_RESERVED;
    if (left.head) gmlk_run_enter(a, left.head, b->at - left.at);
    if (right.head) gmlk_run_enter(a, behind, right.end - (b->at + b->grains));
  } else if (stream != GMLK_GRAPH_OWNED) {
    left = gmlk_run_of(a, b);
    gmlk_run_leave(a, left.head);
    b->state = GMLK_RESERVED;
    if (left.head != b) gmlk_run_enter(a, left.head, b->at - left.at);
    if (gmlk_has_tag(behind, stream)) gmlk_run_enter(a, behind, left.end - (b->at + b->grains));
  }
  b->state = GMLK_RESERVED;
}

/* Undoes gmlk_unlink_free: the block gets this state and stands where it belongs. No blocks are
   joined, but runs are: a clean block joins or lengthens those beside it. What graphs own stands in
   no bin. */
static void gmlk_link_free(gmlk_arena *a, gmlk_block *b, unsigned state) {
  gmlk_block *before = gmlk_before_clean(b), *behind = gmlk_behind_clean(b), *head = b;
  uint32_t at = before->at + before->grains, end = behind->at;
  gmlk_run_bounds left, right;
  b->state = GMLK_RESERVED;
  b->its.hole = 0;
  if (state == GMLK_UNBACKED) {
    a->gap_count++;
  } else if (b->stream == GMLK_CLEAN) {
    gmlk_bins_insert(a->bins[GMLK_CLEAN], b, b->grains);
    gmlk_runs_beside(a, before, behind, &left, &right);
    b->state = GMLK_FREE;
    if (left.head && right.head && before->stream == behind->stream) {
      gmlk_run_enter(a, left.head, right.end - left.at);
    } else {
      if (left.head) gmlk_run_enter(a, left.head, end - left.at);
      if (right.head) gmlk_run_enter(a, behind, right.end - at);
    }
  } else if (b->stream != GMLK_GRAPH_OWNED) {
    if (gmlk_has_tag(before, b->stream)) {
      left = gmlk_run_of(a, before);
      head = left.head;
      at = left.at;
      gmlk_run_leave(a, head);
    }
    if (gmlk_has_tag(behind, b->stream)) {
      end = gmlk_run_of(a, behind).end;
      gmlk_run_leave(a, behind);
    }
    b->state = GMLK_FREE;
    gmlk_run_enter(a, head, end - at);
  }
  b->state = (uint8_t)state;
}

/* The paper's Split: cuts a block behind its first `grains`. Returns the front; the back is its
   next. Only the slots of the shorter part get another first block. pre: the block stands in no
   bin; one record is at hand. */
static inline gmlk_block *gmlk_split(gmlk_arena *a, gmlk_block *b, uint32_t grains) {
  gmlk_block *front = gmlk_block_split(a->records, b, grains);
  gmlk_block *part = front == b ? b->next : front;
  gmlk_set_first_blocks(a, part, part->at, part->grains);
  return front;
}

/* Joins a block with the next one. The longer one's record stays. pre: both stand in no bin. */
static inline gmlk_block *gmlk_join(gmlk_arena *a, gmlk_block *b) {
  gmlk_block *next = b->next, *kept = b->grains >= next->grains ? b : next;
  gmlk_block *gone = kept == b ? next : b;
  kept->u.epoch = b->u.epoch > next->u.epoch ? b->u.epoch : next->u.epoch;
  gmlk_set_first_blocks(a, kept, gone->at, gone->grains);
  gmlk_block_absorb(a->records, kept, gone);
  return kept;
}

/* Whether two neighbours have to be one block [A2]. A bare arena's chunks are taken one by one:
   what was freed earlier does not wait there for what was freed later. */
static int gmlk_may_join(const gmlk_arena *arena, const gmlk_block *a, const gmlk_block *b) {
  if (a->state != b->state) return 0;
  if (a->state == GMLK_UNBACKED) return 1;
  return a->state == GMLK_FREE && a->stream == b->stream && !((a->flags | b->flags) & GMLK_APART) &&
         (!arena->is_bare || a->u.epoch == b->u.epoch);
}

/* Joins a block with the neighbours that have its tag, and enters the result. pre: it stands in no
   bin; its state is the one that it is to have. */
static gmlk_block *gmlk_coalesce(gmlk_arena *a, gmlk_block *b) {
  int joins_prev = gmlk_may_join(a, b, b->prev), joins_next = gmlk_may_join(a, b, b->next);
  unsigned state = b->state;
  b->state = GMLK_RESERVED;
  if (joins_prev) {
    gmlk_unlink_free(a, b->prev);
    b = gmlk_join(a, b->prev);
  }
  if (joins_next) {
    gmlk_unlink_free(a, b->next);
    b = gmlk_join(a, b);
  }
  gmlk_link_free(a, b, state);
  return b;
}

/* Changes the stream of a free block's tag; clean memory has no epoch. */
static gmlk_block *gmlk_retag(gmlk_arena *a, gmlk_block *b, unsigned stream) {
  gmlk_unlink_free(a, b);
  b->state = GMLK_FREE;
  b->stream = (uint16_t)stream;
  if (stream == GMLK_CLEAN) b->u.epoch = 0;
  return gmlk_coalesce(a, b);
}

/* The small-block reserve becomes free memory like any other. */
static void gmlk_small_reserve_end(gmlk_arena *a) {
  gmlk_block *small_reserve = a->small.reserve;
  if (!small_reserve) return;
  a->small.reserve = NULL;
  a->free_grains += small_reserve->grains;
  small_reserve->state = GMLK_FREE;
  (void)gmlk_coalesce(a, small_reserve);
}

/* Whether no run changes when a block beside `beside` gets this tag. A run that is `beside` alone
   does not count: gmlk_put lengthens it without a search. Most blocks that are freed have such
   neighbours on both sides. */
static int gmlk_needs_no_run_change(const gmlk_block *beside, unsigned stream) {
  if (beside->state != GMLK_FREE) return 1;
  if (beside->stream != stream) return beside->stream != GMLK_CLEAN && stream != GMLK_CLEAN;
  return beside->its.hole == beside->grains && stream >= GMLK_FIRST_STREAM;
}

/* The paper's Update: an owned block becomes free memory with this tag. gmlk_coalesce does that
   wherever the block lies. Most frees go one of two shorter ways to the same: the block becomes the
   head of the run behind it; or each neighbour is owned, or of another stream, or a run by itself,
   so that no other block's run changes. */
static inline void gmlk_put(gmlk_arena *a, gmlk_block *b, unsigned stream, uint64_t epoch) {
  int joins_run_behind;
  if (b->next == a->small.reserve) gmlk_small_reserve_end(a);
  b->state = GMLK_FREE;
  b->flags &= GMLK_APART;
  b->stream = (uint16_t)stream;
  b->u.epoch = epoch;
  b->its.hole = 0;
  a->free_grains += b->grains;
  joins_run_behind = b->prev->state != GMLK_FREE && b->next->state == GMLK_FREE &&
                     b->next->stream == stream && b->next->its.hole && !a->keeps_apart &&
                     !a->is_bare && stream >= GMLK_FIRST_STREAM;
  if (joins_run_behind) { /* it becomes the head */
    const uint32_t hole = b->next->its.hole + b->grains;
    gmlk_bins_remove(a->bins[stream], b->next);
    gmlk_bins_insert(a->bins[stream], gmlk_join(a, b), hole);
    return;
  }
  if (stream == GMLK_GRAPH_OWNED || a->keeps_apart || a->is_bare ||
      !gmlk_needs_no_run_change(b->prev, stream) || !gmlk_needs_no_run_change(b->next, stream)) {
    (void)gmlk_coalesce(a, b);
    return;
  }
  if (b->prev->state == GMLK_FREE && b->prev->stream == stream) {
    gmlk_bins_remove(a->bins[stream], b->prev);
    b = gmlk_join(a, b->prev);
  }
  if (b->next->state == GMLK_FREE && b->next->stream == stream) {
    gmlk_bins_remove(a->bins[stream], b->next);
    b = gmlk_join(a, b);
  }
  gmlk_bins_insert(a->bins[stream], b, b->grains);
}

/* Takes [at, at + grains) out of the free blocks, or the unbacked one, that hold it. The blocks in
   it become reserved, keep tags and epochs, and are not joined. Returns the first of them. pre: the
   range is free, or unbacked; `first` holds `at`; two records are at hand. */
static gmlk_block *gmlk_reserve_range(gmlk_arena *a, gmlk_block *first, uint32_t at,
                                      uint32_t grains) {
  const unsigned state = first->state;
  uint32_t end = at + grains;
  gmlk_block *b = first;
  gmlk_unlink_free(a, b);
  if (b->at < at) {
    b = gmlk_split(a, b, at - b->at);
    first = b->next;
    gmlk_link_free(a, b, state);
    b = first;
  }
  while (b->at + b->grains < end) {
    b = b->next;
    gmlk_unlink_free(a, b);
  }
  if (b->at + b->grains > end) {
    gmlk_block *front = gmlk_split(a, b, end - b->at);
    if (first == b) first = front;
    gmlk_link_free(a, front->next, state);
  }
  if (state == GMLK_FREE) a->free_grains -= grains;
  return first;
}

/* Joins the reserved blocks of a range into one, and gives it another state (an owner that is not
   the user) and a serial number. */
static gmlk_block *gmlk_join_as(gmlk_arena *a, gmlk_block *first, uint32_t grains, unsigned state) {
  while (first->grains < grains) first = gmlk_join(a, first);
  first->state = (uint8_t)state;
  first->flags = 0;
  first->its.slack = 0;
  first->u.serial = ++a->records->serial;
  first->as.extra = NULL;
  return first;
}

/* Makes [at, at + grains) of a hole one block, to be granted: its state is free or reserved until
   then. gmlk_reserve_range does that for any range. If is_alone, only b's own place in the bins
   changes, as no other block's run does: b is clean, and between two blocks that are not free; or
   it is its whole hole; or it heads a run, no clean block is before it, and something of it stays.
   pre: `b` holds `at`; two records are at hand. */
GMLK_INLINE gmlk_block *gmlk_take(gmlk_arena *a, gmlk_block *b, uint32_t at, uint32_t grains) {
  gmlk_bins *bins = a->bins[b->stream];
  int is_alone = b->stream == GMLK_CLEAN
                     ? b->prev->state != GMLK_FREE && b->next->state != GMLK_FREE
                     : b->its.hole == b->grains || (b->its.hole && b->grains > grains &&
                                                    !gmlk_has_tag(b->prev, GMLK_CLEAN));
  const uint32_t hole = b->its.hole; /* larger than b where b heads a run: then its rest does */
  if (!is_alone || b->at != at) {
    b = gmlk_reserve_range(a, b, at, grains);
    while (b->grains < grains) b = gmlk_join(a, b);
    return b;
  }
  gmlk_bins_remove(bins, b);
  a->free_grains -= grains;
  if (b->grains > grains) {
    b = gmlk_split(a, b, grains);
    gmlk_bins_insert(bins, b->next, hole - grains);
  }
  return b;
}

/* Undoes gmlk_reserve_range. */
static void gmlk_unreserve_range(gmlk_arena *a, gmlk_block *first, uint32_t grains) {
  uint32_t end = first->at + grains;
  for (;;) {
    uint32_t block_end = first->at + first->grains;
    gmlk_block *next = first->next;
    gmlk_put(a, first, first->stream, first->u.epoch);
    if (block_end == end) return;
    first = next;
  }
}

/* The block that holds the grain. It walks from the nearer end of the chunk. */
static gmlk_block *gmlk_locate(const gmlk_arena *a, uint32_t at) {
  const uint32_t slot = at >> a->chunk_log, half = a->chunk_grains >> 1;
  gmlk_block *b;
  if (at + 1 < (slot << a->chunk_log) + half) {
    b = a->firsts[slot];
    while (b->at + b->grains <= at) b = b->next;
    return b;
  }
  b = a->firsts[slot + 1]; /* the edge behind the last slot */
  while (b->at > at) b = b->prev;
  return b;
}

static void gmlk_pieces_unreserve(gmlk_arena *a, gmlk_piece *pieces, uint32_t count) {
  while (count--) gmlk_unreserve_range(a, pieces[count].block, pieces[count].grains);
}

/* Whether a clean block is part of one of the stream's runs. */
static int gmlk_is_in_run(const gmlk_block *b, unsigned stream) {
  return gmlk_has_tag(gmlk_before_clean(b), stream) || gmlk_has_tag(gmlk_behind_clean(b), stream);
}

/* Best fit among clean blocks that are not part of one of the stream's runs. */
static gmlk_block *gmlk_best_clean(const gmlk_arena *a, unsigned stream, uint32_t grains) {
  gmlk_bins *bins = a->bins[GMLK_CLEAN];
  gmlk_block *best = gmlk_bins_best(bins, grains), *b = best;
  unsigned tries = 0;
  while (b && tries++ < GMLK_HOLE_TRIES &&
         (b->its.hole < grains || (stream && gmlk_is_in_run(b, stream))))
    b = gmlk_bins_next(bins, b);
  return b && b->its.hole < grains ? best : b;
}

/* Best fit with alignment in the bins of one tag: of some holes the first that holds the aligned
   range, else one so large that it holds the range wherever it begins. */
static inline gmlk_block *gmlk_best_in(const gmlk_arena *a, unsigned tag, unsigned stream,
                                       uint32_t grains, uint32_t align, uint32_t *out_at) {
  gmlk_bins *bins = a->bins[tag];
  gmlk_block *b = tag ? gmlk_bins_best(bins, grains) : gmlk_best_clean(a, stream, grains);
  unsigned tries = 0;
  for (; b; b = gmlk_bins_next(bins, b)) {
    uint32_t start, skip;
    if (tries++ == GMLK_HOLE_TRIES && (b = gmlk_bins_best(bins, grains + align - 1)) == NULL)
      return NULL;
    start = tag ? gmlk_run_start(b)->at : b->at;
    skip = (0 - start) & (align - 1);
    *out_at = start + skip;
    if (b->its.hole >= grains && skip <= b->its.hole - grains) return b;
  }
  return NULL;
}

/* The paper's BestFit: the smaller of the stream's best run and the best clean hole. Returns the
   block that holds the range's first grain, *out_at; *out_hole is the hole's size. NULL: none. */
GMLK_INLINE gmlk_block *gmlk_best_fit(const gmlk_arena *a, unsigned stream, uint32_t grains,
                                      uint32_t align, uint32_t *out_at, uint32_t *out_hole) {
  const int is_aligned = align > 1; /* few requests are */
  uint32_t run_at = 0, clean_at = 0;
  gmlk_block *run = NULL, *clean = NULL, *best;
  if (stream)
    run = is_aligned ? gmlk_best_in(a, stream, stream, grains, align, &run_at)
                     : gmlk_bins_best(a->bins[stream], grains);
  if (is_aligned)
    clean = gmlk_best_in(a, GMLK_CLEAN, stream, grains, align, &clean_at);
  else if (a->bins[GMLK_CLEAN]->count && !(run && run->its.hole == grains))
    clean = gmlk_best_clean(a, stream, grains);
  if (clean && (!run || gmlk_hole_less(clean, run))) run = NULL;
  best = run ? gmlk_run_start(run) : clean;
  if (!best) return NULL;
  *out_hole = run ? run->its.hole : clean->its.hole;
  *out_at = best->at;
  if (is_aligned) *out_at = run ? run_at : clean_at;
  while (is_aligned && best->at + best->grains <= *out_at) best = best->next;
  return best;
}

/* The pending block behind this one; extra NULL: the one that was freed last. Shared ones that wait
   for nothing else come last [N5]. NULL: there are no more. */
static gmlk_extra *gmlk_pending_next(const gmlk_arena *a, const gmlk_extra *extra) {
  gmlk_link *link = extra ? extra->link.next : a->pending.next;
  return link == &a->pending ? NULL : (gmlk_extra *)(void *)link;
}

/* Bytes of scratch for so many slots. Two entries of `whole` have a chunk between them, so there
   are at most half as many as slots; each chunk has one head; a window has a piece for each entry,
   and two at its ends (and one for rounding). A list of all slots fits in their place. */
static size_t gmlk_scratch_bytes(size_t slots) {
  return (slots / 2 + 1) * sizeof(gmlk_whole_chunks) + (slots + 1) * sizeof(gmlk_head_fragment) +
         (slots / 2 + 3) * sizeof(gmlk_piece);
}

static int gmlk_scratch_ensure(gmlk_arena *a, size_t slots) { /* 0: no host memory */
  if (a->keeps_apart || a->is_bare) slots *= 2;               /* two entries may touch */
  if (a->scratch && slots <= a->scratch_slots) return 1;
  gmlk_host_free(a->host, a->scratch, gmlk_scratch_bytes(a->scratch_slots));
  a->scratch_slots = slots + slots / 4 + 16;
  a->scratch = gmlk_host_alloc(a->host, gmlk_scratch_bytes(a->scratch_slots));
  if (!a->scratch) return 0;
  a->pieces = (gmlk_piece *)a->scratch;
  a->whole = (gmlk_whole_chunks *)(void *)(a->pieces + a->scratch_slots / 2 + 3);
  a->head_fragments = (gmlk_head_fragment *)(void *)(a->whole + a->scratch_slots / 2 + 1);
  return 1;
}

/* ---- >>windows ---------------------------------------------------------------------------------
   gmlk_windows: the windows of one arena (the paper's sBlocks), live and idle, and the address
   space that they are mapped in. A window is a second mapping of parts of the arena: its pieces.
   Owns the lists of windows.
   [W1] Every piece but the last ends where a chunk ends; every piece but the first begins where
        one begins.
   [W2] No chunk is in two pieces of a window.
   [W3] The pieces' grains add up to the window's.
   [W4] While a window is live or pending each piece is one block of state GMLK_PIECE that points to
        the window.
   [W5] Idle windows stand in a list, longest idle first, and in one of two trees. In `ready` they
        are ordered by size, those of one size by number, so the one that was made first stands
        first; in `blocked` by the serial of the block that is in the way.
   [W6] The chunks' map_counts add up to what windows and buffers' pages map. One in quarantine
        counts for all its chunks, though perhaps only some are mapped.
   [W7] The block that is in the way of a blocked window is owned, has that serial, and its flags
        say so. When it is freed, the window goes back to `ready`.
   [W8] No window has a larger number than the newest, or is smaller than grains_min.

   Of the windows of a size that are free the one that was made first is taken, so that a program
   that repeats itself gets windows in the same order each time: those that it made since stand
   behind. A window found to be blocked is not looked at again before the block in its way is freed,
   so however many windows of a size take turns, the one that is free is found. Windows over memory
   that is free for other streams alone are looked at each time. There are at most
   desc.stitched_bytes_max divided by chunk_bytes windows, as each maps one chunk at least, and what
   one stitch adds to that. Costs: to look up a size is O(log(idle windows)) expected, plus the
   pieces of at most GMLK_WINDOW_TRIES windows; where the stream may wait, plus O(pending blocks).
   A free is that for each window that it unblocks, each of which a search has blocked. Cannot
   fail. */

#define GMLK_WINDOW_TRIES 64u /* a search looks at so many windows of the size */

#define GMLK_BLOCKED ((uint64_t)1 << 48) /* more than any size */

/* Enters a window into the tree that its key belongs to. */
static void gmlk_window_enter(gmlk_windows *windows, gmlk_window *w, uint64_t key) {
  w->key = key;
  gmlk_tree_insert(key < GMLK_BLOCKED ? &windows->ready : &windows->blocked, &w->self);
}

static void gmlk_window_leave(gmlk_windows *windows, const gmlk_window *w) {
  gmlk_tree_remove(w->key < GMLK_BLOCKED ? &windows->ready : &windows->blocked, &w->self);
}

/* The first window of a tree that has this key and this number or a larger one, or NULL. */
static gmlk_window *gmlk_window_with_key(gmlk_block *root, uint64_t key, uint64_t number) {
  gmlk_window *w = (gmlk_window *)(void *)gmlk_tree_from(root, key, number);
  return w && w->key == key ? w : NULL;
}

/* Ends the waits of windows for a block that is about to be free. */
static void gmlk_windows_unblock(gmlk_windows *windows, const gmlk_block *b) {
  gmlk_window *w;
  while ((w = gmlk_window_with_key(windows->blocked, GMLK_BLOCKED + b->u.serial, 0)) != NULL) {
    gmlk_window_leave(windows, w);
    gmlk_window_enter(windows, w, w->self.grains);
  }
}

/* Makes a window idle. Its tag is that of its last use. */
static void gmlk_window_set_idle(gmlk_windows *windows, gmlk_window *w, unsigned stream,
                                 uint64_t epoch) {
  w->alias.stream = (uint16_t)stream;
  w->alias.epoch = epoch;
  w->alias.state = GMLK_ALIAS_IDLE;
  gmlk_window_enter(windows, w, w->self.grains);
  w->self.state = GMLK_IDLE;
  w->idle_next = NULL;
  w->idle_at = windows->idle_end;
  *w->idle_at = w;
  windows->idle_end = &w->idle_next;
}

/* Takes a window out of the tree and the list of idle ones: nobody else finds it. */
static void gmlk_window_unset_idle(gmlk_windows *windows, gmlk_window *w) {
  gmlk_window_leave(windows, w);
  w->alias.state = GMLK_ALIAS_HELD;
  *w->idle_at = w->idle_next;
  if (w->idle_next)
    w->idle_next->idle_at = w->idle_at;
  else
    windows->idle_end = w->idle_at;
}

/* The user's block that this is, or is a piece of. */
static const gmlk_block *gmlk_user_block(const gmlk_block *b) {
  return b->state == GMLK_PIECE ? &b->as.window->self : b;
}

/* Whether the requester may have a pending block behind the wait that it allows. A use that has its
   event is waited for even while its stream is being captured. A graph's memory stays the graph's,
   and what other processes know has to be returned first. */
static int gmlk_may_await_uses(const gmlk_streams *streams, gmlk_requester requester,
                               const gmlk_block *b) {
  const gmlk_extra *extra = b->as.extra;
  size_t i;
  const int is_device = requester.may_wait == GMLAKE_DEVICE_WAIT;
  if ((b->flags & (GMLK_IN_GRAPH | GMLAKE_TRANSIENT)) || (is_device && extra->is_shared)) return 0;
  if (extra->stream != requester.stream &&
      !gmlk_may_await(streams, requester, extra->stream, extra->epoch))
    return 0;
  for (i = 0; i < extra->used_count; i++)
    if (!(is_device && extra->used[i].stream == requester.stream) &&
        !gmlk_may_await(streams, requester, extra->used[i].stream, extra->used[i].epoch))
      return 0;
  return 1;
}

/* Whether the requester may have a block: at once, or behind the wait that it allows. */
static int gmlk_may_take(const gmlk_streams *streams, gmlk_requester requester,
                         const gmlk_block *b) {
  if (gmlk_is_available(b, requester.stream)) return 1;
  if (requester.may_wait && gmlk_user_block(b)->state == GMLK_PENDING)
    return gmlk_may_await_uses(streams, requester, gmlk_user_block(b));
  return requester.may_wait && b->state == GMLK_FREE &&
         gmlk_may_await(streams, requester, b->stream, b->u.epoch);
}

/* The first block of an idle window's pieces that the requester may not have; NULL: it may have
   all. */
static gmlk_block *gmlk_window_blocker(const gmlk_arena *a, const gmlk_streams *streams,
                                       gmlk_requester requester, const gmlk_window *w) {
  uint32_t i;
  for (i = 0; i < w->piece_count; i++) {
    gmlk_block *b = gmlk_locate(a, w->pieces[i].at);
    uint32_t end = w->pieces[i].at + w->pieces[i].grains;
    for (; b->at < end; b = b->next)
      if (!gmlk_may_take(streams, requester, b)) return b;
  }
  return NULL;
}

/* ---- >>forward ---------------------------------------------------------------------------------
   What the rest of CORE calls of REST, declared here so that a reader comes to allocations and
   frees before all else. Every other call of a function goes upwards in the file. */

typedef struct gmlk_request gmlk_request;
typedef struct gmlk_plan gmlk_plan;
typedef struct gmlk_dry_run gmlk_dry_run;   /* see >>grow */
typedef struct gmlk_loan gmlk_loan;         /* see >>lend */
typedef struct gmlk_question gmlk_question; /* see >>research */

/* Where the fast path ends: the slow path; small blocks kept together; policies; a lake that has a
   logger, an observer or a handler; pools that are lent; more addresses for windows. */
static gmlake_result gmlk_serve_slowly(gmlake *l, gmlk_request *r, gmlake_stream stream,
                                       gmlk_block **out_block);
static gmlake_result gmlk_serve_pool(gmlake *l, gmlk_request *r, gmlake_stream stream,
                                     unsigned step_limit, gmlk_block **out_block);
static gmlk_block *gmlk_fast_small(gmlake *l, gmlk_request *r);
static gmlake_result gmlk_ask_evict(gmlake *l, const gmlk_request *r, const gmlk_question *q,
                                    size_t chunk_count);
static gmlake_result gmlk_space_extend_to(gmlake *l, gmlk_space *space, uint32_t slots);

/* The answer of a dry run. */
static void gmlk_dry_run_commit(const gmlake *l, const gmlk_request *r, const gmlk_plan *plan);

/* Which stream a value means; when events are recorded and asked; waits on the device. A lake of
   one stream waits for nothing. gmlk_refresh asks all streams what is complete and makes that
   memory CLEAN.
   gmlk_pieces_reserve takes the pieces of a plan from FREE, or PENDING, to RESERVED: from then on
   nobody else finds them. gmlk_pieces_unreserve undoes it. If the requester may wait, its stream is
   made to wait on the device for what still uses the pieces, and pending blocks among them end:
   their memory, and a pending window, get the tag of its open epoch, which is behind those waits.
   After an error none is reserved, but waits that were queued stay queued, and blocks that ended
   stay free. */
static unsigned gmlk_stream_find_or_add(gmlake *l, gmlake_stream value);
static gmlake_result gmlk_refuse_gone(gmlake *l, gmlake_stream value, const char *call);
static int gmlk_is_capturing(const gmlake *l, gmlk_stream *s);
static gmlake_result gmlk_refresh(gmlake *l, int close);
static void gmlk_fence_now(gmlake *l, unsigned stream, int is_named);
static gmlake_result gmlk_pieces_reserve(gmlake *l, gmlk_arena *a, gmlk_requester requester,
                                         gmlk_piece *pieces, uint32_t count);

/* Notes that the stream's open epoch uses what a pool lends, or may lend: who borrows it next waits
   for that epoch. 0: no host memory. */
static int gmlk_loan_use(gmlake *l, gmlk_loan *loan, unsigned stream);

/* Extra records: labels, and the streams that gmlake_record_stream named for a block. */
static gmlk_extra *gmlk_extra_new(gmlake *l, uint64_t user_data, const char *label);
static void gmlk_extra_free(gmlake *l, gmlk_extra *extra);
static int gmlk_extra_add_use(gmlake *l, gmlk_block *b, unsigned stream);
static void gmlk_fill(gmlake *l, const gmlk_block *b, unsigned byte);

/* Errors in words, and what the observer is told. */
static gmlake_result gmlk_fail(gmlake *l, gmlake_result result, const char *call,
                               const char *format, ...);
static void gmlk_warn(gmlake *l, gmlake_result result, const char *call, int code,
                      const char *text);
static void gmlk_log(gmlake *l, int level, const gmlake_error_info *info);
static gmlake_result gmlk_refuse_asleep(gmlake *l, const gmlk_arena *a, const char *call);
static gmlake_result gmlk_explain(gmlake *l, uint64_t address, const char *call);
static void gmlk_tell(gmlake *l, const gmlk_request *r, gmlake_step_kind kind, uint64_t address,
                      uint64_t bytes, uint64_t driver_ns, const char *reason);
static void gmlk_tell_request(gmlake *l, const gmlk_request *r, const void *ptr);

/* Refuses a free, or a buffer's discard, under work that gmlake_mock_use told of; once it is done
   that work is of the past. */
#if defined(GMLAKE_BACKEND_MOCK)
static gmlake_result gmlk_mock_may_end(gmlake *l, uint64_t address, uint64_t bytes,
                                       const gmlk_extra *extra, gmlake_stream stream,
                                       const char *call);
static void gmlk_mock_end_uses(const gmlake *l, uint64_t address, uint64_t bytes);
#else
#define gmlk_mock_may_end(l, address, bytes, extra, stream, call) GMLAKE_OK
#define gmlk_mock_end_uses(l, address, bytes) ((void)(address), (void)(bytes))
#endif

/* ---- >>lake ------------------------------------------------------------------------------------
   The lake, which the sections below work on, and its two locks. `driver_lock` is taken first; its
   holder alone creates, maps and unmaps memory, and there is one at a time. `state_lock` is taken
   second and guards every field but those that only the holder of `driver_lock` uses (>>chunks).
   The holder of `driver_lock` releases state_lock before it calls for memory, and takes it again
   behind. Owns the locks, the functions that lock and unlock, the records of callbacks, the last
   error and the messages for the logger.
   [K1] A callback that is running has a record in callbacks, on the stack of the thread that runs
        it. */

struct gmlk_loan { /* see >>lend */
  unsigned number; /* [G1] 0: the pool is not lent */
  /* The streams whose work has used what it lends, or lent, with the epoch of their last such work;
     where a number serves another stream by now, that is complete. count of them, room for
     capacity. */
  gmlk_used *users;
  size_t count, capacity;
};

struct gmlake_pool {
  gmlk_arena arena;
  gmlk_loan loan;
  gmlake *lake; /* NULL: destroyed */
  const char *label;
  size_t capture_count;       /* captures into it that have begun and not ended */
  gmlake_pool *next_released; /* [destroyed] in lake->released_pools */
};

typedef struct gmlk_callback { /* a running oom handler or function of a policy */
  uintptr_t thread;            /* that it runs on */
  int is_policy;
  const gmlake_pool *pool; /* of the request that an oom handler is asked about; or NULL */
  struct gmlk_callback *next;
} gmlk_callback;

/* The paper's states: how a request was served. */
#define GMLK_S1 1u /* by a free range or a window of exactly the size */
#define GMLK_S2 2u /* by a part of a larger range */
#define GMLK_S3 3u /* by a new window */
#define GMLK_S4 4u /* after growth */
#define GMLK_S5 5u /* not at all */

enum { /* gmlk_request.window_space */
       GMLK_SPACE_UNKNOWN = 0,
       GMLK_SPACE_IN_USE,   /* no range of addresses is free: it helps to drop windows */
       GMLK_SPACE_TOO_SMALL /* the window needs more than there is in all */
};

struct gmlk_request { /* see >>alloc */
  gmlk_arena *arena;
  const gmlake_alloc_desc *desc;
  size_t bytes;   /* as asked for */
  uint32_t align; /* in grains */
  unsigned flags;
  int is_whole;             /* it gets whole chunks */
  gmlk_requester requester; /* its stream is the capture's number if the stream is captured */
  unsigned stream;          /* the stream's own number; 0: none */
  uint32_t grains;          /* its size; 0: more than any arena can hold */
  int may_stitch;           /* a window may serve it */
  int is_capture;           /* the stream is being captured */
  /* What follows is 0 when it is opened, and at most 96 bytes: compilers clear that much by a few
     stores, and more by a loop or a call, which costs each allocation 5 ns. */
  int is_reuse; /* an idle window was taken for it */
  int is_split; /* a part of a free range was taken for it */
  /* What one slow step of >>slow leaves to the next: */
  uint32_t shortfall;    /* grains that were missing for a window; 0: no window can be made */
  uint32_t piece_count;  /* what that window has: so many ranges in arena->pieces */
  size_t limit_bytes;    /* the limit that forbade growth; 0: none did */
  int has_grown;         /* chunks were created for it */
  unsigned window_space; /* GMLK_SPACE_...: whether there are addresses for its window */
  int is_exhaustive;     /* a window of any free pieces will do, however long it takes; stays set */
  gmlake_result error;   /* the first error of a slow step, other than a lack of memory */
  /* For policy and observer: */
  unsigned state;      /* GMLK_S1 to GMLK_S4, once it is granted */
  unsigned step_limit; /* the slow steps that are tried for it; 0: all */
  uint64_t number;     /* of the request; 0: for a buffer */
  uint64_t driver_ns;  /* time spent in the driver */
  const char *reason;  /* static text for the observer; NULL: the state says it */
};

#define GMLK_LOG_QUEUE 8u /* messages that may wait for the end of a call; more are dropped */

typedef struct gmlk_message {
  int level; /* GMLAKE_LOG_* */
  gmlake_error_info info;
} gmlk_message;

struct gmlake {
  gmlake_desc desc; /* defaults filled in */
  gmlk_host host;
  gmlk_driver driver;
  gmlake_device_properties device;
  gmlk_process process; /* that created the lake */
  GMLK_MUTEX driver_lock;
  GMLK_MUTEX turn; /* its holder gets `driver_lock` next; the last holder may ask again behind it */
  /* A byte that is 1 while every caller may take state_lock, and 0 in a child of fork. If it is 0,
     or fork_guard NULL, gmlk_turn_away decides. */
  const unsigned char *fork_guard;
  gmlk_spinlock state_lock;
  int has_locks;      /* 0: GMLAKE_SINGLE_THREADED */
  int is_restricted;  /* lost is set or callbacks is not empty: calls have to look at both */
  gmlake_result lost; /* the fatal error that every later call returns */
  gmlk_records records;
  gmlk_index index;
  gmlk_streams streams;
  gmlk_arena **arenas; /* by number; NULL: a pool that was destroyed */
  size_t arena_count, arena_capacity;
  gmlk_arena home;             /* the default pool's */
  size_t return_count;         /* [N5] */
  size_t loan_count;           /* pools that are lent */
  gmlake_pool *released_pools; /* destroyed; the driver refused to take something back */
  gmlake_stats stats;
  gmlake_error_info error; /* what gmlake_get_last_error answers */
  struct {
    gmlk_message messages[GMLK_LOG_QUEUE];
    unsigned count;
  } log;                    /* for the logger, which is called when no lock is held */
  gmlk_callback *callbacks; /* [K1] */
  unsigned stitches_in_row; /* since growth for a block; see gmlk_serve */
  int asks_first;           /* the policy chooses or evicts: every allocation takes the slow way */
  uint64_t request_count;   /* requests so far */
  int is_watched;           /* there is an observer or a policy, or the mock is told of uses */
  int is_observed;          /* there is an observer */
  gmlake_backend *mock;     /* that gmlake_mock_use tells of uses; NULL: none */
  const gmlk_request *served; /* the request that the holder of `driver_lock` serves, or NULL */
  gmlk_dry_run *dry_run;      /* the dry run that answers a question: nothing is taken or created,
                                 and state_lock stays held; NULL: requests are served */
  struct {
    void *memory;
    size_t bytes;
  } view; /* scratch for the holder of `driver_lock`: >>research */
};

/* Takes `driver_lock` in addition. It has to be taken before state_lock, so that is released
   meanwhile, and what the caller read before may have changed. */
static void gmlk_lock_driver(gmlake *l) {
  if (!l->has_locks) return;
  gmlk_spinlock_unlock(&l->state_lock, 1);
  (void)GMLAKE_MUTEX_LOCK(&l->turn);
  (void)GMLAKE_MUTEX_LOCK(&l->driver_lock);
  (void)GMLAKE_MUTEX_UNLOCK(&l->turn);
  gmlk_spinlock_lock(&l->state_lock, 1);
}
static void gmlk_unlock_driver(gmlake *l) {
  if (l->has_locks) (void)GMLAKE_MUTEX_UNLOCK(&l->driver_lock);
}

#define GMLK_CODE_OPERATING_SYSTEM 304 /* CUDA_ERROR_OPERATING_SYSTEM; the mock answers it, too */

/* How a series of calls is made. UNLOCKED: state_lock is released until its end; the caller holds
   `driver_lock`. LIGHTLY: the capture mode stays, and nothing is timed; enough for a free that
   records an event, which is legal in every mode. */
#define GMLK_UNLOCKED 1u
#define GMLK_LIGHTLY 2u

/* Begins a series of calls. On an error no call may be made (has_begun stays 0), but state_lock is
   released all the same: in any case gmlk_batch_end has to follow. Only here does the holder of
   `driver_lock` release state_lock for driver calls. */
static gmlake_result gmlk_batch_begin(gmlake *l, gmlk_batch *batch, unsigned how) {
  const gmlake_backend *backend = l->driver.backend;
  memset(batch, 0, sizeof(*batch));
  batch->driver = &l->driver;
  batch->how = how;
  if (how & GMLK_UNLOCKED) gmlk_spinlock_unlock(&l->state_lock, l->has_locks);
  if (how & GMLK_LIGHTLY) return GMLAKE_OK;
  batch->start_ns = backend->clock_ns(backend->user);
  batch->mode = GMLK_RELAXED;
  batch->result =
      gmlk_backend_result(backend->capture_exchange(backend->user, &batch->mode, &batch->code));
  batch->call = "capture_exchange";
  batch->has_begun = !batch->result;
  return batch->result;
}

/* Adds what an arena has of the driver. What did not go when it fell asleep is quarantined. */
static void gmlk_driver_memory_add(const gmlk_arena *a, gmlake_stats *out) {
  const gmlk_chunks *all = &a->chunks;
  const size_t held = all->backed_count + all->quarantined_count;
  const size_t left = a->sleep == GMLK_ASLEEP ? held : all->quarantined_count;
  out->chunk_count += held;
  out->reserved_bytes += held * a->chunk_bytes;
  out->quarantined_bytes += left * a->chunk_bytes + a->mapped.quarantined_bytes;
  out->sleeping_bytes += all->asleep_count * a->chunk_bytes;
  out->exported_bytes += all->shared_count * a->chunk_bytes;
  if (a->is_import) out->imported_bytes += held * a->chunk_bytes;
  out->window_count += a->mapped.window_count;
  out->stitched_bytes += a->mapped.window_bytes;
}

/* The arena behind `a`, or with `a` NULL the first one. NULL: there are no more. */
static gmlk_arena *gmlk_next_arena(const gmlake *l, const gmlk_arena *a) {
  size_t i = a ? (size_t)a->number + 1 : 0;
  while (i < l->arena_count && !l->arenas[i]) i++;
  return i < l->arena_count ? l->arenas[i] : NULL;
}

#define GMLK_FOR_ARENAS(l, a) for ((a) = gmlk_next_arena(l, NULL); a; (a) = gmlk_next_arena(l, a))

/* Adds up in the statistics what the arenas have of the driver. Others may read them in the middle
   of a driver's part, so they change at its end, and when a step changed something without the
   driver. O(arenas). pre: both locks are held. */
static void gmlk_driver_memory_sum(gmlake *l) {
  gmlake_stats *s = &l->stats;
  const gmlake_pool *pool;
  gmlk_arena *a;
  s->chunk_count = s->window_count = 0;
  s->reserved_bytes = s->stitched_bytes = s->quarantined_bytes = 0;
  s->sleeping_bytes = s->exported_bytes = s->imported_bytes = 0;
  GMLK_FOR_ARENAS(l, a) {
    gmlk_driver_memory_add(a, s);
    a->backed_bytes = a->chunks.backed_count * a->chunk_bytes;
    a->backed_bytes_peak = gmlk_max(a->backed_bytes_peak, a->backed_bytes);
  }
  for (pool = l->released_pools; pool; pool = pool->next_released)
    gmlk_driver_memory_add(&pool->arena, s);
  s->reserved_bytes_peak = gmlk_max(s->reserved_bytes_peak, s->reserved_bytes);
  s->stitched_bytes_peak = gmlk_max(s->stitched_bytes_peak, s->stitched_bytes);
}

/* Ends a series of backend calls, and enters it into statistics and last error. Returns the series'
   result; a fatal one other than FORKED makes the lake lost. */
static gmlake_result gmlk_batch_end(gmlake *l, gmlk_batch *batch) {
  const gmlake_backend *backend = batch->driver->backend;
  const gmlake_result result = batch->result;
  const char *hint = "";
  if (batch->has_begun) {
    batch->end_result = gmlk_backend_result(
        backend->capture_exchange(backend->user, &batch->mode, &batch->end_code));
    if (batch->calls) batch->ns = backend->clock_ns(backend->user) - batch->start_ns;
  }
  if (batch->how & GMLK_UNLOCKED) {
    gmlk_spinlock_lock(&l->state_lock, l->has_locks);
    gmlk_driver_memory_sum(l);
  }
  l->stats.driver_call_count += batch->calls;
  l->stats.driver_ns += batch->ns;
  if (batch->is_stream_gone)
    gmlk_warn(l, GMLAKE_ERROR_DRIVER, "event_record", batch->code,
              "a stream was destroyed before gmlake_forget_stream: what was freed on it last is "
              "pending until the host waits for the whole device");
  if (batch->end_result) /* the work is done; if the device is lost, the next call says so */
    gmlk_warn(l, batch->end_result, "capture_exchange", batch->end_code,
              "the thread's capture mode stays relaxed: the driver refused to set it back");
  if (!result || l->lost) return result;
  if (batch->code == GMLK_CODE_OPERATING_SYSTEM)
    hint = ": the system refused; is a limit reached (ulimit -n, ulimit -v, vm.max_map_count)?";
  if (batch->result == GMLAKE_ERROR_DRIVER && !strcmp(batch->call, "event_record"))
    hint = ": was the stream destroyed before gmlake_forget_stream?";
  if (batch->result == GMLAKE_ERROR_DRIVER && !strcmp(batch->call, "export_handle"))
    hint = ": has the process as many descriptors as it may (ulimit -n)?";
  if (batch->result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY && !strcmp(batch->call, "host_alloc"))
    hint = ": free host memory for the contents, or use GMLAKE_SLEEP_DROP";
  (void)gmlk_fail(l, result, batch->call,
                  "the backend's function failed, its driver's code is %d%s", batch->code, hint);
  l->error.driver_code = batch->code;
  if (!gmlk_is_fatal(result)) return result;
  gmlk_log(l, GMLAKE_LOG_ERROR, &l->error);
  if (result == GMLAKE_ERROR_FORKED) return result; /* in the parent the lake still works */
  l->lost = result;
  l->is_restricted = 1;
  return result;
}

static int gmlk_is_shortage(gmlake_result result) {
  return result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_ERROR_LIMIT_REACHED;
}

/* Whether a pool or buffer belongs to this lake; owner is its field `lake`. */
static inline int gmlk_is_of(const gmlake *l, const gmlake *owner) {
  GMLAKE_ASSERT(owner); /* else it was destroyed, and not everything of it could be given back */
  return owner == l;
}

/* ---- >>planner ---------------------------------------------------------------------------------
   Chooses the free ranges that a window is made of. Reads the arena and changes only its scratch
   arrays. A plan may begin in the free tail of one chunk and end in the free head of another; the
   chunks between are wholly free.
   Costs: for a requester that may not wait O(whole chunks that it takes + runs of one to two chunks
   that hold no whole chunk); else O(slots + blocks of free ranges that touch a chunk's end).
   pre: scratch has room for all slots. Cannot fail. */

#define GMLK_END_TRIES 16u       /* so many runs shorter than a chunk whose ends are looked at, */
#define GMLK_END_SHARE 16u       /* or such a part of all runs, if that is more, */
#define GMLK_END_TRIES_MOST 128u /* but no more than these */
#define GMLK_RUN_TRIES 64u       /* runs of one bin that are looked at for whole chunks; */
#define GMLK_RUN_TRIES_PER_CHUNK 4u /* and so many more for each chunk that is missing */

typedef enum gmlk_how { GMLK_NOTHING, GMLK_RANGE, GMLK_REUSE, GMLK_STITCH } gmlk_how;

struct gmlk_plan { /* what serves a request */
  gmlk_how how;
  unsigned state;           /* [RANGE, REUSE] what a policy calls it; 0: it says nothing */
  gmlk_requester requester; /* who gets it: the stream may have to wait */
  gmlk_piece range;         /* [RANGE] */
  uint32_t hole;            /* [RANGE] the grains of the free range that it is a part of */
  gmlk_window *window;      /* [REUSE] */
  uint32_t piece_count;     /* [STITCH] ranges in arena->pieces, in the window's order */
  uint32_t chunk_count;     /* [STITCH] mappings that the window needs, new chunks' too */
  uint32_t shortfall;       /* [NOTHING] grains that are missing for a window */
  gmlk_slots slots;         /* the chunks that growth creates for it */
};

typedef struct gmlk_supply {     /* what free ranges offer to a window */
  uint32_t whole_count;          /* entries in arena->whole */
  uint32_t head_count;           /* entries in arena->head_fragments: free heads of chunks */
  uint64_t chunk_count;          /* the chunks of all these together */
  uint32_t tail_at, tail_grains; /* the longest free tail of a chunk that the request can fill */
  uint32_t next_at, next_grains; /* the next longest, of another chunk */
  uint32_t head_grains;          /* of the longest free head of another chunk than the tail's */
} gmlk_supply;

/* Sorts whole chunks by the size of the free range that they are in, so that small ranges are used
   up and large ones are kept. It is a Shell sort, since the C library's qsort may allocate. */
static void gmlk_whole_sort(gmlk_whole_chunks *whole, uint32_t count) {
  uint32_t gap, i, j;
  for (gap = count / 2; gap; gap /= 2) {
    for (i = gap; i < count; i++) {
      const gmlk_whole_chunks moved = whole[i];
      for (j = i; j >= gap &&
                  (whole[j - gap].grains > moved.grains ||
                   (whole[j - gap].grains == moved.grains && whole[j - gap].slot > moved.slot));
           j -= gap)
        whole[j] = whole[j - gap];
      whole[j] = moved;
    }
  }
}

/* Enters a free range [at, end) into the supply, for a request of `grains`. pre: a chunk begins or
   ends in it, or at one of its ends. */
static void gmlk_supply_add(gmlk_arena *a, gmlk_supply *supply, uint32_t at, uint32_t end,
                            uint32_t grains, uint32_t align) {
  const unsigned log = a->chunk_log;
  const uint32_t rest = ((uint32_t)1 << log) - 1, last = end >> log;
  const uint32_t first = (at >> log) + ((at & rest) != 0), boundary = first << log;
  const uint32_t aligned = at + ((0 - at) & (align - 1));
  if (aligned < boundary && boundary - aligned <= grains) {
    const uint32_t tail = boundary - aligned;
    const int is_longest = tail > supply->tail_grains;
    if (is_longest || tail > supply->next_grains) {
      supply->next_at = is_longest ? supply->tail_at : aligned;
      supply->next_grains = is_longest ? supply->tail_grains : tail;
    }
    if (is_longest) supply->tail_at = aligned;
    if (is_longest) supply->tail_grains = tail;
  }
  if (last > first) {
    gmlk_whole_chunks *whole = &a->whole[supply->whole_count++];
    whole->slot = first;
    whole->count = last - first;
    whole->grains = end - at;
    supply->chunk_count += whole->count;
  }
  if (end & rest) {
    gmlk_head_fragment *fragment = &a->head_fragments[supply->head_count++];
    fragment->slot = last;
    fragment->grains = end & rest;
  }
}

/* The longest free head of a chunk; none in the chunk of the tail, if there is a tail [W2]. */
static uint32_t gmlk_supply_head(const gmlk_arena *a, const gmlk_supply *supply, uint32_t tail_at,
                                 uint32_t tail_grains) {
  uint32_t most = 0, i;
  for (i = 0; i < supply->head_count; i++)
    if (a->head_fragments[i].grains > most &&
        !(tail_grains && a->head_fragments[i].slot == (tail_at >> a->chunk_log)))
      most = a->head_fragments[i].grains;
  return most;
}

/* Sets what the window can be made of, once all runs are entered. Returns the sum. If the longest
   tail and the longest head are of one chunk, the next longest tail, or none, may be better. */
static uint64_t gmlk_supply_sum(const gmlk_arena *a, int whole_only, gmlk_supply *supply) {
  uint32_t fragment;
  if (whole_only) supply->tail_grains = supply->next_grains = supply->head_count = 0;
  supply->head_grains = gmlk_supply_head(a, supply, supply->tail_at, supply->tail_grains);
  fragment = gmlk_supply_head(a, supply, supply->next_at, supply->next_grains);
  if (supply->next_grains + fragment > supply->tail_grains + supply->head_grains) {
    supply->tail_at = supply->next_at;
    supply->tail_grains = supply->next_grains;
    supply->head_grains = fragment;
  }
  return (supply->chunk_count << a->chunk_log) + supply->tail_grains + supply->head_grains;
}

/* Enters the runs that the stream may take, of one bin, either under its own tag or as clean
   memory: at most `tries`. Returns how many it looked at. */
static unsigned gmlk_supply_bin(gmlk_arena *a, unsigned tag, unsigned stream, unsigned bin,
                                unsigned tries, uint32_t grains, uint32_t align,
                                gmlk_supply *supply) {
  gmlk_link *ring = &a->bins[tag]->rings[bin], *link = ring->next;
  unsigned count = 0;
  for (; link != ring && count < tries; link = link->next, count++) {
    gmlk_block *head = (gmlk_block *)(void *)link, *b = tag ? gmlk_run_start(head) : head;
    const uint32_t end = b->at + head->its.hole, rest = a->chunk_grains - 1;
    if (end < ((b->at + rest) & ~rest)) continue; /* it touches no chunk's end */
    if (!tag && stream && (b->prev->state == GMLK_FREE || b->next->state == GMLK_FREE) &&
        gmlk_is_in_run(b, stream))
      continue; /* its run stands in the own bins */
    gmlk_supply_add(a, supply, b->at, end, grains, align);
  }
  return count;
}

/* How many runs of the next bin are looked at; 0: there are enough whole chunks. */
static unsigned gmlk_supply_tries(const gmlk_arena *a, const gmlk_supply *supply, uint32_t grains) {
  uint64_t have = supply->chunk_count << a->chunk_log;
  return have < grains ? GMLK_RUN_TRIES +
                             GMLK_RUN_TRIES_PER_CHUNK * (unsigned)((grains - have) >> a->chunk_log)
                       : 0;
}

/* How many runs shorter than a chunk are looked at for their ends, the longest first. Of few runs
   it looks at 16, and leaves the rest to shorter requests. Of many it looks at more, since the
   longest are seldom what a window lacks. */
static unsigned gmlk_end_tries(uint32_t runs) {
  return (unsigned)gmlk_min(gmlk_max(GMLK_END_TRIES, runs / GMLK_END_SHARE), GMLK_END_TRIES_MOST);
}

/* Finds the supply of a requester that may not wait in the stream's and the clean bins: whole
   chunks, from the shortest runs that hold one until there are enough; and ends of chunks, also of
   the longest runs that hold no whole chunk. */
static void gmlk_supply_find(gmlk_arena *a, unsigned stream, uint32_t grains, uint32_t align,
                             gmlk_supply *supply) {
  const gmlk_bins *own = a->bins[stream], *clean = a->bins[GMLK_CLEAN];
  const unsigned chunk_bin = gmlk_bin_of(a->chunk_grains);
  unsigned tag, bin = chunk_bin, tries;
  memset(supply, 0, sizeof(*supply));
  while ((tries = gmlk_supply_tries(a, supply, grains)) != 0) {
    bin = (unsigned)gmlk_min(gmlk_bin_from(own, bin), gmlk_bin_from(clean, bin));
    if (bin == GMLK_BINS) break;
    for (tag = stream;; tag = GMLK_CLEAN) {
      (void)gmlk_supply_bin(a, tag, stream, bin, tries, grains, align, supply);
      if (!tag) break;
      tries = gmlk_supply_tries(a, supply, grains);
    }
    bin++;
  }
  tries = gmlk_end_tries(stream ? own->count + clean->count : clean->count);
  for (bin = chunk_bin; bin && tries;) {
    bin = (unsigned)gmlk_max(gmlk_bin_down(own, bin - 1), gmlk_bin_down(clean, bin - 1));
    for (tag = stream; bin; tag = GMLK_CLEAN) {
      tries -= gmlk_supply_bin(a, tag, stream, bin, tries, grains, align, supply);
      if (!tag) break;
    }
  }
}

/* Finds the supply of any requester: looks at every free range that touches a chunk's end. Each is
   found by the first slot whose first grain lies in it, or right behind it. For a requester that
   may wait, memory of several streams side by side is one range, which stands in no bin. */
static void gmlk_supply_scan(gmlk_arena *a, const gmlk_streams *streams, gmlk_requester requester,
                             uint32_t grains, uint32_t align, gmlk_supply *supply) {
  uint32_t slot = 0;
  memset(supply, 0, sizeof(*supply));
  while (slot <= a->slot_count) {
    gmlk_block *b = a->firsts[slot];
    uint32_t boundary = slot << a->chunk_log, end = b->at + b->grains;
    slot = end > boundary ? gmlk_chunks_for(a, end) : slot + 1;
    if (!gmlk_may_take(streams, requester, b)) {
      b = b->prev; /* a range that ends here and is shorter than a chunk meets no other end */
      if (b->at + b->grains != boundary || !gmlk_may_take(streams, requester, b)) continue;
      end = boundary;
    } else {
      while (gmlk_may_take(streams, requester, b->next)) b = b->next;
      end = b->at + b->grains;
      slot = (end >> a->chunk_log) + 1;
    }
    while (gmlk_may_take(streams, requester, b->prev)) b = b->prev;
    gmlk_supply_add(a, supply, b->at, end, grains, align);
  }
}

/* Adds a range to the plan, behind the others. joins: if it continues the last piece, it makes that
   longer. */
static void gmlk_plan_add(gmlk_arena *a, gmlk_plan *plan, uint32_t at, uint32_t grains, int joins) {
  gmlk_piece *last = a->pieces + plan->piece_count;
  GMLAKE_ASSERT(a->pieces);
  plan->chunk_count += ((at + grains - 1) >> a->chunk_log) - (at >> a->chunk_log) + 1;
  if (joins && plan->piece_count && last[-1].at + last[-1].grains == at) {
    last[-1].grains += grains;
    return;
  }
  last->at = at;
  last->grains = grains;
  last->block = NULL;
  plan->piece_count++;
}

/* Adds whole chunks that are no larger than what is left, in order. Returns where the next of them
   begins, for what is left then, or GMLK_NOWHERE. */
static uint32_t gmlk_plan_whole(gmlk_arena *a, gmlk_plan *plan, const gmlk_supply *supply,
                                uint32_t *left) {
  const uint32_t chunk = a->chunk_grains;
  uint32_t i;
  for (i = 0; i < supply->whole_count && *left; i++) {
    const uint32_t at = a->whole[i].slot << a->chunk_log;
    const uint32_t count = a->whole[i].count;
    const uint32_t whole = *left / chunk < count ? *left / chunk : count;
    if (whole) gmlk_plan_add(a, plan, at, whole * chunk, 1);
    *left -= whole * chunk;
    if (whole < count) return at + whole * chunk;
  }
  return GMLK_NOWHERE;
}

/* Where the last piece begins: the shortest free head that holds it, else the next whole chunk. The
   head of not_slot is none, since the plan uses that chunk's tail [W2]. */
static uint32_t gmlk_plan_end(const gmlk_arena *a, const gmlk_supply *supply, uint32_t left,
                              uint32_t not_slot, uint32_t whole_at) {
  uint32_t i, best = whole_at, best_grains = 0;
  for (i = 0; i < supply->head_count; i++) {
    const gmlk_head_fragment *fragment = &a->head_fragments[i];
    if (fragment->slot == not_slot || fragment->grains < left) continue;
    if (best_grains && fragment->grains >= best_grains) continue;
    best = fragment->slot << a->chunk_log;
    best_grains = fragment->grains;
  }
  return best;
}

/* S3: writes the ranges of a window to arena->pieces. Where the free ranges are too few,
   plan->shortfall says how much memory is missing, and the ranges are what the window has without
   the new chunks. */
static void gmlk_plan_window(gmlk_arena *a, const gmlk_streams *streams, gmlk_requester requester,
                             int is_exhaustive, uint32_t grains, uint32_t align, int whole_only,
                             gmlk_plan *plan) {
  const uint32_t chunk = a->chunk_grains;
  uint32_t left = grains, not_slot = GMLK_NOWHERE, missing, end;
  gmlk_supply supply;
  uint64_t offer;
  memset(plan, 0, sizeof(*plan));
  if (requester.may_wait || is_exhaustive)
    gmlk_supply_scan(a, streams, requester, grains, align, &supply);
  else
    gmlk_supply_find(a, requester.stream, grains, align, &supply);
  offer = gmlk_supply_sum(a, whole_only, &supply);
  if (offer < grains) plan->shortfall = grains - (uint32_t)offer;
  missing = (plan->shortfall + chunk - 1) & ~(chunk - 1);
  if (!missing) gmlk_whole_sort(a->whole, supply.whole_count);
  if (supply.tail_grains) {
    gmlk_plan_add(a, plan, supply.tail_at, supply.tail_grains, 1);
    not_slot = supply.tail_at >> a->chunk_log;
    left -= supply.tail_grains;
  }
  plan->chunk_count += missing >> a->chunk_log;
  left -= missing < left ? missing : left;
  end = gmlk_plan_whole(a, plan, &supply, &left);
  if (left) end = gmlk_plan_end(a, &supply, left, not_slot, end);
  if (left && !GMLK_NEVER(end == GMLK_NOWHERE)) gmlk_plan_add(a, plan, end, left, 1);
}

/* ---- >>alias -----------------------------------------------------------------------------------
   Maps and unmaps what maps chunks beside their homes: windows, and the pages of buffers. What
   both have in common is a gmlk_alias. Owns the tiling of their addresses, the counts of mappings
   of chunks, and what is counted of windows.

   [V1] Blocks tile the address space as they tile an arena, with an edge between two extents
        [X1]; its free blocks stand in bins of their own.
   [V2] Each block of it that is in use belongs to one window, live, idle or quarantined, and has
        its address. Buffers have addresses of their own, to which [V1] to [V3] apply as well.
   [V3] The tree of used address space holds these blocks, and nothing else.

   To drop an alias, gmlk_alias_give_up hides a window from searches and lists the alias,
   gmlk_alias_unmap calls the driver, and gmlk_alias_end writes down what that did: a page is empty,
   a window's record and addresses are freed by gmlk_window_discard.
   pre: the caller holds `driver_lock`.
   Costs: one map for each chunk, one set_access for each row of neighbours, one unmap for each
   alias. Can fail: the driver; gmlk_va_take, where no free range is as long. */

struct gmlake_buffer {
  gmlake *lake; /* NULL: destroyed */
  gmlk_arena *arena;
  gmlk_block *va; /* its address space */
  gmlk_alias *pages;
  uint32_t page_count;     /* records in pages; more are allocated as it grows */
  uint32_t count;          /* [B1] */
  size_t bytes, max_bytes; /* its end, and how far that may move */
  uint64_t user_data;
  const char *label;
  gmlake_buffer *next; /* in arena->buffers */
  int is_busy;         /* the holder of `driver_lock` commits, with state_lock released at times */
};

/* Takes address space for so many chunks of a window or buffer; NULL where no free range is as
   long. In address space `grains` are chunks. pre: one record is at hand. */
static gmlk_block *gmlk_va_take(gmlk_space *space, gmlk_records *records, uint32_t chunks,
                                const void *owner) {
  gmlk_block *b = gmlk_bins_best(space->holes, chunks);
  if (!b) return NULL;
  gmlk_bins_remove(space->holes, b);
  if (b->grains > chunks) {
    b = gmlk_block_split(records, b, chunks);
    gmlk_bins_insert(space->holes, b->next, b->next->grains);
  }
  gmlk_tree_insert(&space->used, b);
  b->state = GMLK_LIVE;
  b->u.owner = (void *)(uintptr_t)owner;
  return b;
}

/* Frees slots of address space and joins them with free neighbours. */
static void gmlk_va_give(gmlk_space *space, gmlk_records *records, gmlk_block *b) {
  gmlk_block *beside[2];
  int i;
  GMLAKE_ASSERT(b);
  gmlk_tree_remove(&space->used, b);
  b->u.epoch = 0;
  beside[0] = b->prev;
  beside[1] = b->next;
  for (i = 0; i < 2; i++) {
    if (beside[i]->state != GMLK_FREE) continue;
    gmlk_bins_remove(space->holes, beside[i]);
    gmlk_block_absorb(records, b, beside[i]);
  }
  b->state = GMLK_FREE;
  gmlk_bins_insert(space->holes, b, b->grains);
}

/* The window that this alias is. */
static gmlk_window *gmlk_window_from_alias(gmlk_alias *x) {
  return (gmlk_window *)(void *)((char *)x - offsetof(gmlk_window, alias));
}

/* The i-th row of neighbouring chunks that an alias maps: how many; 0: there are no more. */
static uint32_t gmlk_alias_row(const gmlk_arena *a, const gmlk_alias *x, uint32_t i,
                               uint32_t *out_slot) {
  const gmlk_window *w;
  const gmlk_piece *piece;
  *out_slot = x->slot;
  if (!x->is_window) return i == 0;
  w = gmlk_window_from_alias((gmlk_alias *)(uintptr_t)x);
  if (i == w->piece_count) return 0;
  piece = &w->pieces[i];
  *out_slot = piece->at >> a->chunk_log;
  return ((piece->at + piece->grains - 1) >> a->chunk_log) - *out_slot + 1;
}

/* Whether the last use through an alias is known to be complete. */
static int gmlk_alias_is_done(const gmlake *l, const gmlk_alias *x) {
  return gmlk_tag_done(&l->streams, x->stream, x->epoch);
}

/* Adds `by`, 1 or -1, to the counts of mappings of an alias's chunks [W6]. */
static void gmlk_alias_count_mappings(gmlk_arena *a, const gmlk_alias *x, int by) {
  uint32_t i, slot, left;
  for (i = 0; (left = gmlk_alias_row(a, x, i, &slot)) != 0; i++)
    for (; left--; slot++) a->chunks.items[slot].map_count += (uint32_t)by;
}

/* ---- the driver's part ---- */

/* Where an alias's first chunk is mapped. */
static uint64_t gmlk_alias_address(const gmlk_arena *a, const gmlk_alias *x) {
  return x->address & ~((uint64_t)a->chunk_bytes - 1);
}

/* Unmaps what is mapped of an alias. */
static gmlake_result gmlk_alias_unmap(gmlk_batch *batch, const gmlk_arena *a, gmlk_alias *x) {
  gmlake_result result = GMLAKE_OK;
  if (x->mapped)
    result = GMLK_CALL(batch, unmap, gmlk_alias_address(a, x), x->mapped * a->chunk_bytes);
  if (!result) x->mapped = 0;
  return result;
}

/* Maps the aliases of a list, which stand in the order of their addresses. On an error unmaps them.
   If `mapped` of one is still not 0 then, the driver refused to unmap it. */
static gmlake_result gmlk_aliases_map(gmlk_batch *batch, const gmlk_arena *a, gmlk_alias *list) {
  gmlake_result result = batch->has_begun ? GMLAKE_OK : batch->result;
  gmlk_alias *x, *first = list;
  uint64_t address, end;
  uint32_t i, slot, left;
  for (x = list; x && !result; x = x->next)
    for (i = 0; !result && (left = gmlk_alias_row(a, x, i, &slot)) != 0; i++)
      for (; left-- && !result; slot++) {
        address = gmlk_alias_address(a, x) + x->mapped * (uint64_t)a->chunk_bytes;
        result = GMLK_CALL(batch, map, address, a->chunk_bytes, a->chunks.items[slot].handle);
        x->mapped += !result;
      }
  for (x = list; x && !result; x = x->next) { /* one call for each row of neighbours */
    end = gmlk_alias_address(a, x) + x->chunk_count * a->chunk_bytes;
    if (x->next && gmlk_alias_address(a, x->next) == end) continue;
    address = gmlk_alias_address(a, first);
    result = gmlk_batch_set_access(batch, address, (size_t)(end - address));
    first = x->next;
  }
  for (x = list; x && result; x = x->next) (void)gmlk_alias_unmap(batch, a, x);
  return result;
}

/* ---- writing down what it did ---- */

/* Adds an alias, or with -1 takes it off: as a window, or what it maps as quarantined. */
static void gmlk_mapped_add(const gmlk_arena *a, const gmlk_alias *x, int by, gmlk_mapped *out) {
  const size_t bytes = x->chunk_count * a->chunk_bytes * (size_t)by;
  if (x->state == GMLK_ALIAS_QUARANTINED) {
    out->quarantined_bytes += bytes;
  } else if (x->state && x->is_window) {
    out->window_count += (size_t)by;
    out->window_bytes += bytes;
  }
}

/* Changes what an alias counts as: EMPTY, QUARANTINED, or mapped. HELD, LIVE and IDLE all count as
   mapped, so a step from one of these to another assigns the state itself. */
static void gmlk_alias_set_state(gmlk_arena *a, gmlk_alias *x, unsigned state) {
  gmlk_mapped_add(a, x, -1, &a->mapped);
  x->state = (uint8_t)state;
  gmlk_mapped_add(a, x, 1, &a->mapped);
}

/* Frees an unmapped window's record and address space. */
static void gmlk_window_discard(gmlake *l, gmlk_arena *a, gmlk_window *w) {
  gmlk_va_give(&a->window_space, &l->records, w->va);
  gmlk_host_free(&l->host, w, sizeof(*w) + w->piece_count * sizeof(gmlk_piece));
}

/* Quarantines an alias: its addresses stay in use. The chunks serve at home, and cannot be
   released. A window then stands in no list: gmlk_walk_next finds it by its address space, for
   gmlk_release_poll, which offers it to the driver again. */
static void gmlk_alias_quarantine(gmlk_arena *a, gmlk_alias *x) {
  gmlk_alias_set_state(a, x, GMLK_ALIAS_QUARANTINED);
  if (x->is_window) gmlk_window_from_alias(x)->self.state = GMLK_UNBACKED;
}

/* Maps the aliases of a list, state_lock released meanwhile. Then writes down what is mapped: a
   page is idle; a window is held until the caller makes it idle or grants it. What an error left
   mapped is quarantined. */
static gmlake_result gmlk_aliases_make(gmlake *l, gmlk_arena *a, gmlk_alias *list,
                                       uint64_t *out_ns) {
  gmlk_batch batch;
  gmlk_alias *x;
  (void)gmlk_batch_begin(l, &batch, GMLK_UNLOCKED);
  (void)gmlk_aliases_map(&batch, a, list);
  (void)gmlk_batch_end(l, &batch);
  for (x = list; x; x = x->next) {
    if (!x->mapped) continue;
    x->stream = GMLK_CLEAN;
    x->epoch = 0;
    gmlk_alias_count_mappings(a, x, 1);
    gmlk_alias_set_state(a, x, x->is_window ? GMLK_ALIAS_HELD : GMLK_ALIAS_IDLE);
    if (batch.result) gmlk_alias_quarantine(a, x);
  }
  gmlk_driver_memory_sum(l); /* again: gmlk_batch_end did so before this was written down */
  *out_ns = batch.ns;
  return batch.result;
}

/* Writes down that an alias is mapped no more. A window is freed. If the observer was told of its
   stitch, it is told of the end, with the reason. */
static void gmlk_alias_end(gmlake *l, gmlk_arena *a, gmlk_alias *x, uint64_t driver_ns,
                           const char *reason) {
  gmlk_window *w;
  gmlk_alias_count_mappings(a, x, -1);
  gmlk_alias_set_state(a, x, GMLK_ALIAS_EMPTY);
  if (!x->is_window) return;
  w = gmlk_window_from_alias(x);
  if (w->number) {
    l->stats.stitch_evict_count++;
    gmlk_tell(l, NULL, GMLAKE_STEP_EVICT, x->address, w->self.grains * GMLK_GRAIN, driver_ns,
              reason);
  }
  gmlk_window_discard(l, a, w);
}

/* Puts an alias that nobody has into the list of those to be unmapped. An idle window is held from
   then on. */
static void gmlk_alias_give_up(gmlk_arena *a, gmlk_alias *x, gmlk_alias **dying) {
  if (x->is_window && x->state == GMLK_ALIAS_IDLE)
    gmlk_window_unset_idle(&a->windows, gmlk_window_from_alias(x));
  x->next = *dying;
  *dying = x;
}

/* Unmaps the aliases of a list, state_lock released meanwhile. If one cannot be unmapped, a window
   is quarantined and a page stays as it is. If the series of driver calls cannot even begin, all
   stay mapped: the windows are idle again, as if they had become so just now. */
static gmlake_result gmlk_aliases_unmap(gmlake *l, gmlk_arena *a, gmlk_alias *dying) {
  gmlk_batch batch;
  gmlk_alias *x, *next;
  uint64_t count = 0;
  if (!dying) return GMLAKE_OK;
  (void)gmlk_batch_begin(l, &batch, GMLK_UNLOCKED);
  for (x = dying; x; x = x->next, count++)
    if (batch.has_begun) (void)gmlk_alias_unmap(&batch, a, x);
  (void)gmlk_batch_end(l, &batch);
  for (x = dying; x; x = next) {
    next = x->next;
    if (!x->mapped) {
      gmlk_alias_end(l, a, x, batch.ns / count, "the lake dropped an idle window");
    } else if (x->state == GMLK_ALIAS_HELD && batch.has_begun) {
      gmlk_alias_quarantine(a, x);
    } else if (x->state == GMLK_ALIAS_HELD) {
      gmlk_window_set_idle(&a->windows, gmlk_window_from_alias(x), x->stream, x->epoch);
    }
  }
  gmlk_driver_memory_sum(l);
  return batch.result;
}

/* ---- >>stitch ----------------------------------------------------------------------------------
   Finds, makes, reuses and drops windows. Idle windows are dropped by gmlk_evict here (the limit of
   stitched bytes, want of memory), with the chunks under them by gmlk_trim_arena and
   gmlk_return_block in >>grow, for a policy by gmlk_ask_evict in >>research, and in arenas that
   sleep or close by >>sleep and >>pools. pre, except to reuse: the caller holds `driver_lock`.
   Costs: one map for each chunk and one set_access for each window; to drop one, one unmap. Can
   fail: host memory, the driver. */

/* Makes each reserved piece of a held window one block, a PIECE of that window [W4]. The caller
   grants the window: its record becomes LIVE. */
static void gmlk_window_claim_pieces(gmlk_arena *a, gmlk_window *w) {
  uint32_t i;
  w->alias.state = GMLK_ALIAS_LIVE;
  for (i = 0; i < w->piece_count; i++) {
    gmlk_piece *piece = &w->pieces[i];
    piece->block = gmlk_join_as(a, piece->block, piece->grains, GMLK_PIECE);
    piece->block->as.window = w;
  }
}

/* Takes a window whose pieces the requester may have; the caller grants it. It is idle, or pending:
   then it becomes idle when its pieces are reserved. Driver calls: waits only. */
static gmlake_result gmlk_window_take(gmlake *l, gmlk_request *r, gmlk_requester requester,
                                      gmlk_window *w) {
  gmlk_arena *a = r->arena;
  gmlake_result result;
  if (!gmlk_records_ensure(&l->records, &l->host, 2 * (size_t)w->piece_count))
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  result = gmlk_pieces_reserve(l, a, requester, w->pieces, w->piece_count);
  if (result) return result;
  gmlk_window_unset_idle(&a->windows, w);
  w->is_known |= r->is_capture;
  r->is_reuse = 1;
  l->stats.stitch_reuse_count++;
  if (!r->reason) r->reason = "an idle window has exactly the size";
  gmlk_tell(l, r, GMLAKE_STEP_REUSE, w->alias.address, w->self.grains * GMLK_GRAIN, 0, r->reason);
  gmlk_window_claim_pieces(a, w);
  return GMLAKE_OK;
}

/* Whether a window is aligned as the request wants it and, where it has to, covers whole chunks. */
static int gmlk_window_suits(const gmlk_request *r, const gmlk_window *w) {
  const uint32_t at = w->pieces[0].at;
  return !(at & (r->align - 1)) &&
         (!r->is_whole || !((at | w->self.grains) & (r->arena->chunk_grains - 1)));
}

/* Whether it suits, and the requester may have all its pieces. */
static int gmlk_window_may_serve(const gmlk_streams *streams, const gmlk_request *r,
                                 gmlk_requester requester, const gmlk_window *w) {
  return gmlk_window_suits(r, w) && !gmlk_window_blocker(r->arena, streams, requester, w);
}

/* The same of a window in `ready`. If an owned block is in its way, it waits in `blocked` until
   that block is freed. If only free memory of others is, it stays in `ready`: that becomes clean
   without a free. No idle window maps a chunk that was returned: windows go before their chunks. */
static int gmlk_window_try(const gmlk_streams *streams, const gmlk_request *r,
                           gmlk_requester requester, gmlk_window *w) {
  gmlk_block *b;
  if (!gmlk_window_suits(r, w)) return 0;
  b = gmlk_window_blocker(r->arena, streams, requester, w);
  if (b && b->state != GMLK_FREE && b->state != GMLK_RESERVED) { /* it is owned */
    gmlk_window_leave(&r->arena->windows, w);
    b->flags |= GMLK_IN_THE_WAY;
    gmlk_window_enter(&r->arena->windows, w, GMLK_BLOCKED + b->u.serial);
  }
  return !b;
}

/* Of the idle windows of exactly the size that the requester may have, the one that was made first;
   NULL: there is none. */
static gmlk_window *gmlk_window_idle_for(const gmlk_streams *streams, const gmlk_request *r,
                                         gmlk_requester requester) {
  gmlk_block *const *ready = &r->arena->windows.ready;
  gmlk_window *w = gmlk_window_with_key(*ready, r->grains, 0);
  unsigned tries = GMLK_WINDOW_TRIES;
  while (w && tries--) {
    const uint64_t number = w->number; /* a window that is blocked leaves the tree */
    if (gmlk_window_try(streams, r, requester, w)) return w;
    w = gmlk_window_with_key(*ready, r->grains, number + 1);
  }
  return NULL;
}

/* A window of exactly the size: an idle one, or, if the requester may wait on the device for its
   uses, the oldest that is pending. NULL: there is none. */
static gmlk_window *gmlk_window_any_for(const gmlake *l, const gmlk_request *r,
                                        gmlk_requester requester) {
  gmlk_window *w = gmlk_window_idle_for(&l->streams, r, requester);
  const gmlk_extra *extra = NULL;
  if (w || requester.may_wait != GMLAKE_DEVICE_WAIT) return w;
  while ((extra = gmlk_pending_next(r->arena, extra)) != NULL) {
    gmlk_window *pending = gmlk_window_from_block(extra->block);
    if (pending && pending->self.grains == r->grains &&
        gmlk_window_may_serve(&l->streams, r, requester, pending))
      w = pending;
  }
  return w;
}

/* StitchFree, and for lack of memory: drops the windows that are idle longest and whose own tag is
   complete, until `bytes` of mappings are dropped. Never waits. Unmapping is safe, as then all work
   that used the window's addresses is complete:
   - The tag is the stream that the window was freed on, and the epoch then open. The event that
     ends the epoch comes later, so it is behind all work before the free. (Freed on
     GMLAKE_STREAM_NONE it is clean: the caller has synchronised. What a graph knows never ends.)
   - Recorded streams keep a window pending, not idle, until their work is complete. Who ends that
     early waits for them on the device, and the tag is then of its open epoch.
   - Who takes the window again has to get each of its pieces, so it comes behind all work of their
     owners before. Hence the tag that the window gets next covers the one that it had.
   - Who takes its pieces alone uses them by other addresses. */
static gmlake_result gmlk_evict(gmlake *l, gmlk_arena *a, size_t bytes) {
  gmlk_window *w = a->sleep < GMLK_ASLEEP ? a->windows.idle_first : NULL;
  gmlk_alias *dying = NULL;
  while (w && bytes) {
    gmlk_window *next = w->idle_next;
    if (gmlk_alias_is_done(l, &w->alias)) {
      gmlk_alias_give_up(a, &w->alias, &dying);
      bytes -= gmlk_min(bytes, w->alias.chunk_count * a->chunk_bytes);
    }
    w = next;
  }
  return gmlk_aliases_unmap(l, a, dying);
}

/* If more is stitched than desc.stitched_bytes_max, drops windows until three quarters of it are
   left: of this arena, then of each other. */
static void gmlk_evict_if_due(gmlake *l, gmlk_arena *a) {
  const size_t low = l->desc.stitched_bytes_max / 4 * 3;
  gmlk_arena *other;
  if (l->stats.stitched_bytes <= l->desc.stitched_bytes_max) return;
  if (l->desc.policy && l->desc.policy->evict) return; /* the policy has decided: >>research */
  (void)gmlk_refresh(l, 1);
  (void)gmlk_evict(l, a, l->stats.stitched_bytes - low);
  GMLK_FOR_ARENAS(l, other)
    if (l->stats.stitched_bytes > low) (void)gmlk_evict(l, other, l->stats.stitched_bytes - low);
}

/* Makes the record of a planned window and takes address space for it. NULL: *out_result is the
   error, or OK where no address space is left. */
static gmlk_window *gmlk_window_new(gmlake *l, gmlk_arena *a, const gmlk_plan *plan,
                                    gmlake_result *out_result) {
  const size_t bytes = sizeof(gmlk_window) + plan->piece_count * sizeof(gmlk_piece);
  uint32_t i;
  gmlk_window *w;
  *out_result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (!gmlk_records_ensure(&l->records, &l->host, 2 * (size_t)plan->piece_count + 1)) return NULL;
  w = (gmlk_window *)gmlk_host_alloc(&l->host, bytes);
  if (!w) return NULL;
  *out_result = GMLAKE_OK;
  w->pieces = (gmlk_piece *)(void *)(w + 1);
  memcpy(w->pieces, a->pieces, plan->piece_count * sizeof(gmlk_piece));
  w->piece_count = plan->piece_count;
  w->alias.chunk_count = plan->chunk_count;
  w->alias.is_window = 1;
  for (i = 0; i < w->piece_count; i++) w->self.grains += w->pieces[i].grains; /* [W3] */
  w->self.arena = a->number;
  w->self.state = GMLK_RESERVED;
  w->va = gmlk_va_take(&a->window_space, &l->records, plan->chunk_count, w);
  if (w->va) {
    w->alias.address = gmlk_area_address(&a->window_space.area, w->va->at * a->chunk_bytes) +
                       (w->pieces[0].at & (a->chunk_grains - 1)) * GMLK_GRAIN;
    return w;
  }
  gmlk_host_free(&l->host, w, bytes);
  return NULL;
}

/* Maps a new window, state_lock released meanwhile, and counts it in. Then it is held: the caller
   grants it or makes it idle. On an error its pieces become free, if is_reserved (those of a
   window that a policy asks for are not), and the window is discarded; if the driver also refused
   to unmap it, it stays, in quarantine. */
static gmlake_result gmlk_window_make(gmlake *l, gmlk_arena *a, gmlk_window *w, int is_reserved) {
  const uint32_t grains = w->self.grains;
  uint64_t ns;
  const gmlake_result result = gmlk_aliases_make(l, a, &w->alias, &ns);
  if (result && is_reserved) gmlk_pieces_unreserve(a, w->pieces, w->piece_count);
  if (result && !w->alias.mapped) gmlk_window_discard(l, a, w);
  if (result) return result;
  if (!a->windows.number || grains < a->windows.grains_min) a->windows.grains_min = grains;
  w->number = ++a->windows.number;
  l->stats.stitch_count++;
  gmlk_tell(l, NULL, GMLAKE_STEP_STITCH, w->alias.address, grains * GMLK_GRAIN, ns,
            "the lake mapped free pieces side by side");
  return GMLAKE_OK;
}

/* Stitch: makes the window that arena->pieces plans, to be granted. *out_window stays NULL on an
   error, and where no address space is left: then the result is OK. */
static gmlake_result gmlk_stitch(gmlake *l, gmlk_request *r, const gmlk_plan *plan,
                                 gmlk_window **out_window) {
  gmlk_arena *a = r->arena;
  gmlake_result result;
  gmlk_window *w = gmlk_window_new(l, a, plan, &result);
  if (!w) {
    r->window_space = result ? GMLK_SPACE_UNKNOWN : GMLK_SPACE_IN_USE;
    return result;
  }
  result = gmlk_pieces_reserve(l, a, plan->requester, w->pieces, w->piece_count);
  if (result) {
    gmlk_window_discard(l, a, w);
    return result;
  }
  result = gmlk_window_make(l, a, w, 1);
  if (result) return result;
  w->is_known = r->is_capture;
  gmlk_window_claim_pieces(a, w);
  *out_window = w;
  return GMLAKE_OK;
}

/* ---- >>alloc -----------------------------------------------------------------------------------
   Serves a request: opens it; the states S1 and S2, which need no driver, steps 1 to 3 of the
   manual's "how an allocation is served"; carries out plans; and one of the slow steps: stitching.
   A slow step that finds nothing returns OK with *out_block NULL, or the error that it met. Owns
   gmlk_request, in which the steps of >>slow write what they leave to the next.
   pre, to stitch or to carry out a plan: the caller holds `driver_lock`, which gmlk_serve_slowly
   takes.
   Costs: O(1) expected for S1 and S2, plus the pieces of a window; to stitch, see >>stitch. Can
   fail: host memory, the driver, limits. */

#define GMLK_ALLOC_FLAGS (GMLAKE_EXCLUSIVE | GMLAKE_NO_STITCH | GMLAKE_NO_GROW | GMLAKE_TRANSIENT)

/* Checks alignment and flags; sets size and alignment in grains, with EXCLUSIVE in chunks. With
   TRANSIENT the request asks with the number of its pool's loan. */
static gmlake_result gmlk_request_size(gmlake *l, gmlk_request *r) {
  const size_t alignment = r->desc->alignment ? r->desc->alignment : GMLK_GRAIN;
  const size_t chunk = r->arena->chunk_bytes;
  size_t unit = r->is_whole ? chunk : GMLK_GRAIN, bytes;
  if (!gmlk_is_pow2(alignment) || alignment > chunk)
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_alloc",
                     "alignment is %llu: it has to be a power of two, at most %llu, a chunk's size",
                     GMLK_ULL(alignment), GMLK_ULL(chunk));
  if (r->flags & ~GMLK_ALLOC_FLAGS)
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_alloc",
                     "flags is 0x%x: use only bits of 0x%x", r->flags, GMLK_ALLOC_FLAGS);
  if (r->flags & GMLAKE_TRANSIENT) {
    GMLAKE_ASSERT(r->desc->pool != NULL);
    r->requester.stream = r->desc->pool->loan.number;
  }
  r->align = (uint32_t)(gmlk_max(alignment, unit) / GMLK_GRAIN);
  if (gmlk_size_round_up(gmlk_max(r->bytes, 1), unit, &bytes) &&
      bytes <= GMLK_GRAIN * (size_t)GMLK_GRAINS_MAX - chunk) /* else it is too large: 0 */
    r->grains = (uint32_t)(bytes / GMLK_GRAIN);
  return GMLAKE_OK;
}

/* The request is of a stream that is being captured: it asks with the capture's number, of the
   arena that the stream is captured into. */
static gmlake_result gmlk_request_capture(gmlake *l, gmlk_request *r, gmlk_stream *s) {
  r->is_capture = 1;
  r->requester.stream = s->capture;
  r->arena = l->arenas[s->arena];
  if (r->desc->pool && r->desc->pool != r->arena->pool)
    return gmlk_fail(l, GMLAKE_ERROR_CAPTURING, "gmlake_alloc",
                     "pool is not the one that the stream is captured into: set it to that one or "
                     "to NULL");
  if (!s->is_seen) (void)gmlk_is_capturing(l, s);
  return GMLAKE_OK;
}

/* Opens a request: who asks, of which arena, for how much. Gets the host memory that serving
   needs at its end: to split a block, for the index, for the stream's bins. A slow step that
   releases state_lock gets records again, and gmlk_serve_slowly room in the index. */
GMLK_INLINE gmlake_result gmlk_request_open(gmlake *l, gmlk_request *r,
                                            const gmlake_alloc_desc *desc, gmlake_stream stream) {
  gmlk_arena *a = desc->pool ? &desc->pool->arena : &l->home;
  gmlake_result result = GMLAKE_OK;
  memset((char *)r + offsetof(gmlk_request, is_reuse), 0,
         sizeof(*r) - offsetof(gmlk_request, is_reuse));
  r->arena = a;
  r->desc = desc;
  r->requester.stream = r->stream = r->grains = 0;
  r->requester.may_wait = GMLAKE_NO_WAIT;
  r->may_stitch = r->is_capture = 0;
  r->bytes = desc->bytes;
  r->align = 1;
  r->flags = desc->flags;
  r->is_whole = (desc->flags & GMLAKE_EXCLUSIVE) != 0;
  if (desc->pool && !gmlk_is_of(l, desc->pool->lake))
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_alloc",
                     "the pool belongs to another lake, the one at %p: call that lake",
                     (void *)desc->pool->lake);
  if (stream != GMLAKE_STREAM_NONE) {
    gmlk_stream *s;
    r->stream = l->streams.last && l->streams.last_value == stream
                    ? l->streams.last /* nearly always */
                    : gmlk_stream_find_or_add(l, stream);
    if (!r->stream) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    s = l->streams.items[r->stream];
    r->requester.stream = r->stream;
    if (s->capture) {
      result = gmlk_request_capture(l, r, s);
      if (result) return result;
      a = r->arena;
    }
    if (s->is_forgotten) return gmlk_refuse_gone(l, s->value, "gmlake_alloc");
  }
  if (a->sleep) return gmlk_refuse_asleep(l, a, "gmlake_alloc");
  r->may_stitch = !(desc->flags & GMLAKE_NO_STITCH) && a->window_space.holes &&
                  desc->bytes >= l->desc.stitch_bytes_min;
  if (desc->flags || desc->alignment || desc->bytes > a->chunk_bytes)
    result = gmlk_request_size(l, r);
  else
    r->grains = (uint32_t)((desc->bytes + GMLK_GRAIN - 1) / GMLK_GRAIN);
  if (result) return result;
  if (l->records.unused_count >= 2 + l->records.set_aside && l->index.count < l->index.count_max &&
      r->requester.stream < a->bins_capacity && a->bins[r->requester.stream])
    return GMLAKE_OK; /* it is there: nearly always */
  return gmlk_records_ensure(&l->records, &l->host, 2) && gmlk_index_ensure(&l->index, &l->host) &&
                 gmlk_arena_admit(a, r->requester.stream)
             ? GMLAKE_OK
             : GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
}

/* Makes a block the user's: one that was taken from a free range of `hole` grains, or a window's
   record. state 0: GMLK_S1 if that is all of the range, else GMLK_S2. After growth: GMLK_S4. */
static inline gmlk_block *gmlk_grant(gmlake *l, gmlk_request *r, gmlk_block *b, uint32_t hole,
                                     unsigned state) {
  unsigned flags = r->flags & GMLK_ALLOC_FLAGS;
  if (r->is_capture) flags |= GMLK_IN_GRAPH;
  r->is_split = hole != r->grains;
  l->stats.split_count += (uint64_t)r->is_split;
  if (l->is_observed && r->is_split)
    gmlk_tell(l, r, GMLAKE_STEP_SPLIT, r->desc ? gmlk_home(r->arena, b->at) : 0, hole * GMLK_GRAIN,
              0, "the request takes a part of this free range");
  r->state = r->has_grown ? GMLK_S4 : state ? state : GMLK_S1 + (unsigned)r->is_split;
  l->stats.state_count[r->state - 1]++;
  b->state = GMLK_LIVE;
  b->flags = (uint8_t)flags;
  b->stream = (uint16_t)r->stream;
  b->its.slack = (uint32_t)(r->grains * GMLK_GRAIN - r->bytes);
  b->u.serial = ++l->records.serial;
  b->as.extra = NULL;
  return b;
}

/* S1 and S2, without the driver: the best free range, if less than a chunk of it would be left;
   else a window of exactly the size; else a part of that range. But a small block that this would
   cut from the arena's end, or for which there is no range, comes from the small-block reserve.
   NULL: there is none. pre: two records are at hand. */
GMLK_INLINE gmlk_block *gmlk_fast(gmlake *l, gmlk_request *r) {
  gmlk_arena *a = r->arena;
  uint32_t at = 0, hole = 0;
  gmlk_block *b = gmlk_best_fit(a, r->requester.stream, r->grains, r->align, &at, &hole);
  if ((!b || (hole - r->grains) >> a->chunk_log) && r->may_stitch && a->windows.ready &&
      r->grains >= a->windows.grains_min) {
    gmlk_window *w = gmlk_window_any_for(l, r, r->requester);
    /* Without waits it fails only for lack of records, which changes nothing: then `b` serves. */
    if (w && !gmlk_window_take(l, r, r->requester, w))
      return gmlk_grant(l, r, &w->self, r->grains, GMLK_S1);
  }
  if ((!b || at + hole == a->end.at) && r->grains <= a->small.most && r->align == 1 &&
      a->slot_count >= GMLK_SMALL_RESERVE_FROM)
    return gmlk_fast_small(l, r);
  return b ? gmlk_grant(l, r, gmlk_take(a, b, at, r->grains), hole, 0) : NULL;
}

#define GMLK_STITCHES_IN_ROW 32u /* so many without growth tell that a lake does not settle */

/* Carries out a plan. In a dry run it only says what the stream has to wait for; then *out_block is
   the arena's edge, which stands for a block. OK with *out_block NULL: no address space is left for
   the window. */
static gmlake_result gmlk_plan_commit(gmlake *l, gmlk_request *r, gmlk_plan *plan,
                                      gmlk_block **out_block) {
  gmlk_arena *a = r->arena;
  gmlk_window *w = plan->window;
  gmlk_block *b;
  gmlake_result result;
  if (l->dry_run) {
    gmlk_dry_run_commit(l, r, plan);
    *out_block = &a->end;
    return GMLAKE_OK;
  }
  if (plan->how == GMLK_REUSE) {
    result = gmlk_window_take(l, r, plan->requester, w);
    if (!result) *out_block = gmlk_grant(l, r, &w->self, r->grains, plan->state);
    return result;
  }
  if (plan->how == GMLK_STITCH) {
    w = NULL;
    result = gmlk_stitch(l, r, plan, &w);
    if (!w) return result;
    *out_block = gmlk_grant(l, r, &w->self, r->grains, GMLK_S3);
    l->stitches_in_row += l->stitches_in_row < GMLK_STITCHES_IN_ROW && !r->has_grown;
    gmlk_evict_if_due(l, a);
    return GMLAKE_OK;
  }
  if (!gmlk_records_ensure(&l->records, &l->host, 2)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  result = gmlk_pieces_reserve(l, a, plan->requester, &plan->range, 1);
  if (result) return result;
  for (b = plan->range.block; b->grains < plan->range.grains;) b = gmlk_join(a, b);
  *out_block = gmlk_grant(l, r, b, plan->hole, plan->state);
  return GMLAKE_OK;
}

/* Plans a window for a request. 0: there are too few pieces, and r->shortfall is set; or no window
   can be made, perhaps as there are no addresses. pre: scratch is there. */
static int gmlk_plan_stitch(const gmlake *l, gmlk_request *r, gmlk_requester requester,
                            gmlk_plan *plan) {
  gmlk_arena *a = r->arena;
  r->shortfall = 0;
  if (!r->may_stitch || r->window_space == GMLK_SPACE_IN_USE) return 0;
  gmlk_plan_window(a, &l->streams, requester, r->is_exhaustive, r->grains, r->align, r->is_whole,
                   plan);
  plan->requester = requester;
  plan->how = plan->shortfall ? GMLK_NOTHING : GMLK_STITCH;
  if (!gmlk_bins_best(a->window_space.holes, plan->chunk_count) &&
      gmlk_area_next(&a->window_space.area, plan->chunk_count) == GMLK_NOWHERE) {
    r->window_space =
        plan->chunk_count <= a->window_space.area.limit ? GMLK_SPACE_IN_USE : GMLK_SPACE_TOO_SMALL;
    return 0;
  }
  r->shortfall = plan->shortfall;
  r->piece_count = plan->piece_count;
  return !plan->shortfall;
}

/* S3: makes a window, if the planner finds pieces for it; else sets r->shortfall. */
static gmlake_result gmlk_try_stitch(gmlake *l, gmlk_request *r, gmlk_requester requester,
                                     gmlk_block **out_block) {
  gmlk_space *space = &r->arena->window_space;
  gmlk_plan plan;
  gmlake_result result;
  size_t extents;
  GMLAKE_ASSERT(r->arena != NULL);
  if (!gmlk_scratch_ensure(r->arena, r->arena->slot_count)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (!gmlk_plan_stitch(l, r, requester, &plan)) return GMLAKE_OK;
  if (l->dry_run) return gmlk_plan_commit(l, r, &plan, out_block);
  extents = space->area.count;
  result = gmlk_space_extend_to(l, space, plan.chunk_count);
  if (result && !gmlk_is_shortage(result)) return result;
  /* If it asked for addresses, state_lock was released: others may have taken pieces. */
  if ((result || extents != space->area.count) && !gmlk_plan_stitch(l, r, requester, &plan))
    return GMLAKE_OK;
  result = GMLAKE_OK;
  /* It may release state_lock. The plan holds all the same: where a policy evicts, `asks_first`
     sends every allocation the slow way, so nobody takes a piece meanwhile. */
  if (l->desc.policy) result = gmlk_ask_evict(l, r, NULL, plan.chunk_count);
  return result ? result : gmlk_plan_commit(l, r, &plan, out_block);
}

/* A window of free pieces. */
static gmlake_result gmlk_slow_stitch(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  r->reason = "the lake stitched free pieces";
  return gmlk_try_stitch(l, r, r->requester, out_block);
}

/* The address of a live block. pre: it is no piece of a window. */
static uint64_t gmlk_address_of(const gmlk_arena *a, const gmlk_block *b) {
  if (b->next) return gmlk_home(a, b->at);
  return ((const gmlk_window *)(const void *)b)->alias.address; /* it is a window's own record */
}

/* Gives a granted block to the user: enters it in index and statistics. Returns its address. */
GMLK_INLINE void *gmlk_hand_over(gmlake *l, const gmlk_request *r, gmlk_block *b,
                                 gmlk_extra *extra) {
  const uint64_t address = gmlk_address_of(r->arena, b);
  gmlake_stats *s = &l->stats;
  b->as.extra = extra;
  if (l->desc.flags & GMLAKE_FILL) gmlk_fill(l, b, GMLAKE_FILL_NEW);
  gmlk_index_put(&l->index, address, b);
  if (l->streams.may_end && b->stream) l->streams.items[b->stream]->uses++;
  s->allocation_count++;
  s->requested_bytes += r->bytes;
  s->active_bytes += r->grains * GMLK_GRAIN;
  if (s->requested_bytes > s->requested_bytes_peak) s->requested_bytes_peak = s->requested_bytes;
  if (s->active_bytes > s->active_bytes_peak) s->active_bytes_peak = s->active_bytes;
  return (void *)(uintptr_t)address;
}

/* Serves a request. step_limit: 0; or the request is of one pool, and so many slow steps are tried
   at most (gmlk_serve_pool). Then OK with *out_ptr NULL may be the answer, and in a dry run an
   *out_ptr that is no address but stands for a block. pre: state_lock is held; it is held again at
   the end.
   Only where memory is short the lake asks what other streams have completed; till then it leaves
   freed memory to its stream. So what a request may have depends on when somebody asked last, and a
   program that repeats itself finds other pieces each time. After 32 stitches in a row without
   growth each request of a chunk or more asks: that is a call for each stream, and a stitch costs
   some for each chunk. */
GMLK_INLINE gmlake_result gmlk_serve(gmlake *l, const gmlake_alloc_desc *desc, gmlake_stream stream,
                                     unsigned step_limit, void **out_ptr) {
  gmlk_request r;
  gmlk_block *b = NULL;
  gmlk_extra *extra = NULL;
  gmlake_result result = gmlk_request_open(l, &r, desc, stream);
  if (result) return result;
  if (desc->user_data || desc->label) {
    extra = gmlk_extra_new(l, desc->user_data, desc->label);
    if (!extra) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  }
  r.number = ++l->request_count;
  if (step_limit) {
    result = gmlk_serve_pool(l, &r, stream, step_limit, &b);
    if (l->dry_run) {
      gmlk_extra_free(l, extra);
      *out_ptr = b;
      return result;
    }
  } else {
    if (l->stitches_in_row == GMLK_STITCHES_IN_ROW && l->streams.used_count >= 2 &&
        r.grains >> r.arena->chunk_log)
      result = gmlk_refresh(l, 0);
    if (r.grains && !result && !l->asks_first) b = gmlk_fast(l, &r);
    if (!b) result = gmlk_serve_slowly(l, &r, stream, &b);
  }
  if (b)
    *out_ptr = gmlk_hand_over(l, &r, b, extra);
  else
    gmlk_extra_free(l, extra);
  if (l->is_observed && (b || !step_limit)) gmlk_tell_request(l, &r, *out_ptr);
  return result;
}

/* ---- >>free ------------------------------------------------------------------------------------
   Frees blocks: at once, or once all is complete that the streams which gmlake_record_stream named
   had queued before the free. Until then a block is pending: each of these uses waits in a queue of
   its stream, in order of epochs [N4]. A block that other processes know (is_shared) waits for the
   stream that freed it, too, and then for the return of its chunks [N5]. The calls of the driver
   are events. pre: state_lock is held. If there is an observer or a policy, gmlk_free_watched in
   >>find calls gmlk_free; it asks a policy's `coalesce` before, with state_lock released. Costs:
   O(1) expected, plus the pieces of a window and the recorded streams, plus an event where one is
   due. Can fail: a wrong pointer, host memory. */

/* A live or pending block becomes free memory with this tag. A window becomes idle. */
static inline void gmlk_release_block(gmlake *l, gmlk_block *b, unsigned stream, uint64_t epoch) {
  gmlk_arena *a = l->arenas[b->arena];
  gmlk_window *w;
  uint32_t i;
  if (l->desc.flags & GMLAKE_FILL) gmlk_fill(l, b, GMLAKE_FILL_FREE);
  if (b->next) { /* it is in a tiling: not a window's own record */
    if (b->flags & GMLK_IN_THE_WAY) gmlk_windows_unblock(&a->windows, b);
    gmlk_put(a, b, stream, epoch);
    return;
  }
  w = gmlk_window_from_block(b);
  for (i = 0; i < w->piece_count; i++) {
    if (w->pieces[i].block->flags & GMLK_IN_THE_WAY)
      gmlk_windows_unblock(&a->windows, w->pieces[i].block);
    w->pieces[i].block->flags |= b->flags & GMLK_APART;
    gmlk_put(a, w->pieces[i].block, stream, epoch);
  }
  gmlk_window_set_idle(&a->windows, w, stream, epoch);
}

/* The stream of the tag that a block's memory gets when it is freed on this one, if a graph knows
   it or it is borrowed. */
static unsigned gmlk_tag_in_pool(const gmlake *l, const gmlk_block *b, unsigned stream) {
  const gmlk_stream *s = stream ? l->streams.items[stream] : NULL;
  if (b->flags & GMLAKE_TRANSIENT) return l->arenas[b->arena]->pool->loan.number;
  return s && s->capture && s->arena == b->arena ? s->capture : (unsigned)GMLK_GRAPH_OWNED;
}

/* The stream that a live block was allocated on. 0: none, or a stream that is gone, whose number
   serves another one; then its work is complete. */
static unsigned gmlk_own_stream(const gmlake *l, const gmlk_block *b) {
  return b->stream && b->u.serial > l->streams.items[b->stream]->born ? b->stream : 0;
}

/* [F7] Counts a block off the streams that use it, since it is freed. Drops those recorded streams
   whose uses need no wait: numbers that serve others by now; streams that are gone and complete;
   and the one on which it is freed, or else was allocated, whose uses come before the free, unless
   it is shared [N5]. Returns whether others are left, for which the block has to wait. */
static int gmlk_uses_end(gmlake *l, const gmlk_block *b, unsigned stream) {
  gmlk_extra *extra = b->as.extra;
  const unsigned own = gmlk_own_stream(l, b);
  size_t i, kept = 0;
  if (own && l->streams.may_end) l->streams.items[own]->uses--;
  if (!extra) return 0;
  if (!stream) stream = own;
  for (i = 0; i < extra->used_count; i++) {
    const gmlk_used use = extra->used[i];
    gmlk_stream *s = l->streams.items[use.stream];
    if (use.epoch != s->born) continue;
    s->uses--;
    if (s->is_forgotten && gmlk_stream_is_complete(s)) continue;
    if (use.stream != stream || extra->is_shared) extra->used[kept++] = use;
  }
  extra->used_count = kept;
  return kept != 0;
}

/* A pending block becomes free memory. Its tag may be complete by now. */
static void gmlk_pending_end(gmlake *l, gmlk_extra *extra) {
  gmlk_link_remove(&extra->link);
  l->return_count -= (size_t)extra->is_shared;
  l->stats.pending_bytes -= extra->block->grains * GMLK_GRAIN;
  if (gmlk_tag_done(&l->streams, extra->stream, extra->epoch))
    gmlk_release_block(l, extra->block, GMLK_CLEAN, 0);
  else
    gmlk_release_block(l, extra->block, extra->stream, extra->epoch);
  gmlk_extra_free(l, extra);
}

/* All uses of a pending block are complete. It becomes free memory; a shared one stays pending, and
   stands last [N5]. */
static void gmlk_pending_uses_done(gmlake *l, gmlk_extra *extra) {
  if (!extra->is_shared) {
    gmlk_pending_end(l, extra);
    return;
  }
  gmlk_link_remove(&extra->link);
  gmlk_link_insert(l->arenas[extra->block->arena]->pending.prev, &extra->link);
}

/* Makes a freed block pending. Its uses go to the ends of their streams' queues [N4]; each waits
   for the open epoch, or for the one before of a stream that is gone, and not lost. pre: it is used
   elsewhere, or shared; the caller then fences. */
static void gmlk_pend(gmlake *l, gmlk_block *b, unsigned stream, uint64_t epoch) {
  gmlk_extra *extra = b->as.extra;
  size_t i;
  b->state = GMLK_PENDING;
  extra->block = b;
  extra->stream = stream;
  extra->epoch = epoch;
  extra->uses_left = extra->used_count;
  gmlk_link_insert(&l->arenas[b->arena]->pending, &extra->link);
  l->return_count += (size_t)extra->is_shared;
  l->stats.pending_bytes += b->grains * GMLK_GRAIN;
  l->stats.pending_bytes_peak = gmlk_max(l->stats.pending_bytes_peak, l->stats.pending_bytes);
  for (i = 0; i < extra->used_count; i++) {
    gmlk_used *use = &extra->used[i];
    gmlk_stream *s = l->streams.items[use->stream];
    use->epoch = s->is_forgotten && !s->is_dirty ? s->epoch - 1 : s->epoch;
    if (!s->is_forgotten) s->is_dirty = GMLK_DIRTY;
    use->extra = extra;
    gmlk_link_insert(s->pending_uses.prev, &use->link);
  }
  if (!extra->uses_left) gmlk_pending_uses_done(l, extra);
}

#define GMLK_FENCE_SHARE 128u /* an event for each such part of what the lake holds */

/* Notes that the stream freed so much in its open epoch; may_be_lent: of what a graph knows, or of
   what was borrowed. Once it has freed enough since its last event, it gets another one; at once,
   if it may end without the lake being told [F8]. What it frees later is fenced where somebody else
   needs memory. */
static inline void gmlk_note_freed(gmlake *l, const gmlk_arena *a, unsigned stream, size_t bytes,
                                   int may_be_lent) {
  gmlk_stream *s = l->streams.items[stream];
  s->is_dirty = GMLK_DIRTY;
  if (!may_be_lent) s->freed_bytes += bytes;
  if (s->may_end || (!may_be_lent && l->streams.live_count + l->streams.has_none >= 2 &&
                     s->freed_bytes >= a->chunk_bytes &&
                     s->freed_bytes >= l->stats.reserved_bytes / GMLK_FENCE_SHARE))
    gmlk_fence_now(l, stream, 1);
}

/* Frees the block at an address. */
GMLK_INLINE gmlake_result gmlk_free(gmlake *l, uint64_t address, gmlake_stream value) {
  const size_t entry = gmlk_index_find(&l->index, address);
  gmlk_arena *a;
  gmlk_block *b;
  gmlk_extra *extra;
  unsigned stream = 0, own, tag;
  uint64_t epoch;
  size_t bytes, i;
  int has_to_wait = 0, is_shared, may_be_lent;
  if (entry == GMLK_NO_ENTRY) return gmlk_explain(l, address, "gmlake_free");
  b = l->index.buckets[entry / GMLK_BUCKET].block[entry % GMLK_BUCKET];
  a = l->arenas[b->arena];
  if (value != GMLAKE_STREAM_NONE) {
    stream = l->streams.last && l->streams.last_value == value ? l->streams.last
                                                               : gmlk_stream_find_or_add(l, value);
    if (!stream || !((stream < a->bins_capacity && a->bins[stream]) || gmlk_arena_admit(a, stream)))
      return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    /* Where the own stream is gone and another one has its value, both may still use the block. */
    own = l->streams.may_end ? gmlk_own_stream(l, b) : 0;
    if (own && own != stream && l->streams.items[own]->value == l->streams.items[stream]->value &&
        !gmlk_extra_add_use(l, b, own))
      return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  }
  tag = stream; /* 0 is GMLK_CLEAN: the caller has synchronised */
  epoch = stream ? l->streams.items[stream]->epoch : 0;
  if (b->flags & (GMLK_IN_GRAPH | GMLAKE_TRANSIENT)) {
    tag = gmlk_tag_in_pool(l, b, stream);
    epoch = GMLK_ENDLESS;
  }
  bytes = b->grains * GMLK_GRAIN;
  extra = b->as.extra;
  is_shared = extra && extra->is_shared; /* [N5] */
  if (is_shared && stream && !gmlk_extra_add_use(l, b, stream))
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  may_be_lent = tag == GMLK_GRAPH_OWNED || (tag != stream && (b->flags & GMLAKE_TRANSIENT));
  if (may_be_lent && stream && !gmlk_loan_use(l, &a->pool->loan, stream)) /* who borrows it waits */
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (extra || l->streams.may_end) has_to_wait = gmlk_uses_end(l, b, stream);
  gmlk_index_remove(&l->index, entry);
  l->stats.active_bytes -= bytes;
  l->stats.requested_bytes -= bytes - b->its.slack;
  if (has_to_wait || is_shared) {
    gmlk_pend(l, b, tag, epoch);
    /* It stays pending till the end of this: gmlk_fence_now may ask what is complete, but only
       gmlk_take_back ends waits. */
    for (i = 0; i < extra->used_count; i++)
      gmlk_fence_now(l, extra->used[i].stream, extra->used[i].stream == stream);
  } else {
    gmlk_release_block(l, b, tag, epoch);
    if (extra) gmlk_extra_free(l, extra);
  }
  if (stream && (tag == stream || may_be_lent)) gmlk_note_freed(l, a, stream, bytes, may_be_lent);
  return GMLAKE_OK;
}

/* ---- REST ------------------------------------------------------------------------------------ */

/* ---- >>errors ----------------------------------------------------------------------------------
   The last error and the messages for the logger; callbacks that run; which arenas there are;
   asking for free memory. pre: state_lock is held. O(1), except for lists of arenas. Can fail: host
   memory. */

/* Enters a callback that is about to run, and releases state_lock. */
static void gmlk_callback_begin(gmlake *l, gmlk_callback *callback, int is_policy,
                                const gmlake_pool *pool) {
  callback->thread = gmlk_thread_id();
  callback->is_policy = is_policy;
  callback->pool = pool;
  callback->next = l->callbacks;
  l->callbacks = callback;
  l->is_restricted = 1;
  gmlk_spinlock_unlock(&l->state_lock, l->has_locks);
}

/* The callback has returned: takes state_lock again. */
static void gmlk_callback_end(gmlake *l, const gmlk_callback *callback) {
  gmlk_callback **link = &l->callbacks;
  gmlk_spinlock_lock(&l->state_lock, l->has_locks);
  while (*link != callback) link = &(*link)->next;
  *link = callback->next;
  l->is_restricted = l->lost || l->callbacks;
}

/* Whether this thread is inside a callback, or one of the policy's. */
static int gmlk_in_callback(const gmlake *l, int of_policy) {
  const uintptr_t thread = gmlk_thread_id();
  const gmlk_callback *callback = l->callbacks;
  while (callback && (callback->thread != thread || (of_policy && !callback->is_policy)))
    callback = callback->next;
  return callback != NULL;
}

/* Tells of a mistake of the program's where there is no logger, unless NDEBUG is defined. */
static void gmlk_say(const gmlake_error_info *info) {
#if !defined(NDEBUG)
  (void)fprintf(stderr, "%s: %s\n", info->call, info->text);
#else
  (void)info;
#endif
}

/* Queues a message for the logger. */
static void gmlk_log(gmlake *l, int level, const gmlake_error_info *info) {
  if (!l->desc.logger.fn || l->log.count == GMLK_LOG_QUEUE) return;
  l->log.messages[l->log.count].level = level;
  l->log.messages[l->log.count++].info = *info;
}

/* Makes a text the lake's last error, unless that is a fatal one. */
static void gmlk_error_write(gmlake *l, gmlake_result result, const char *call, const char *format,
                             va_list values) {
  if (l->lost) return;
  memset(&l->error, 0, sizeof(l->error));
  l->error.result = result;
  l->error.call = call;
  (void)vsnprintf(l->error.text, sizeof(l->error.text), format, values);
}

/* The same of an error that was noted before. */
static void gmlk_error_set(gmlake *l, const gmlake_error_info *info) {
  if (!l->lost) l->error = *info;
}

/* Fails a call: writes why, and returns the result. */
GMLK_LIKE_PRINTF(4)
static gmlake_result gmlk_fail(gmlake *l, gmlake_result result, const char *call,
                               const char *format, ...) {
  va_list values;
  va_start(values, format);
  gmlk_error_write(l, result, call, format, values);
  va_end(values);
  return result;
}

/* Fails a call that may take memory, if a callback makes it. pre: l->is_restricted. */
static gmlake_result gmlk_forbid_in_callback(gmlake *l, const char *call) {
  if (!gmlk_in_callback(l, 0)) return GMLAKE_OK;
  return gmlk_fail(
      l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
      "called from the out-of-memory handler, which may free, trim and put to sleep only");
}

/* The answer to a call that wants memory of an arena that sleeps. */
static gmlake_result gmlk_refuse_asleep(gmlake *l, const gmlk_arena *a, const char *call) {
  return gmlk_fail(l, GMLAKE_ERROR_ASLEEP, call,
                   "the pool at %p (NULL: what is in no pool) sleeps: call gmlake_pool_wake first",
                   (const void *)a->owner);
}

/* Warns of what the driver answered. The call that found it may succeed all the same. */
static void gmlk_warn(gmlake *l, gmlake_result result, const char *call, int code,
                      const char *text) {
  if (l->lost) return;
  (void)gmlk_fail(l, result, call, "%s", text);
  l->error.driver_code = code;
  gmlk_log(l, GMLAKE_LOG_WARNING, &l->error);
}

/* Asks for the device's free and total memory, state_lock released. An error writes nothing. */
static gmlake_result gmlk_ask_memory(gmlake *l, size_t *out_free, size_t *out_total) {
  gmlk_batch batch;
  if (!gmlk_batch_begin(l, &batch, GMLK_UNLOCKED))
    (void)GMLK_CALL(&batch, get_memory_info, out_free, out_total);
  return gmlk_batch_end(l, &batch);
}

/* As gmlk_next_arena, of a pool's arenas; pool NULL: of those of no pool. */
static gmlk_arena *gmlk_pool_next_arena(const gmlake *l, const gmlake_pool *pool,
                                        const gmlk_arena *a) {
  gmlk_arena *next = gmlk_next_arena(l, a);
  while (next && next->owner != pool) next = gmlk_next_arena(l, next);
  return next;
}

#define GMLK_FOR_POOL_ARENAS(l, pool, a) \
  for ((a) = gmlk_pool_next_arena(l, pool, NULL); a; (a) = gmlk_pool_next_arena(l, pool, a))

/* Gives an arena a number and enters it into the lake's list; 0: no host memory. */
static int gmlk_arena_enlist(gmlake *l, gmlk_arena *a) {
  size_t i = 0;
  while (i < l->arena_count && l->arenas[i]) i++;
  if (!gmlk_host_grow(&l->host, &l->arenas, &l->arena_capacity, i, sizeof(gmlk_arena *))) return 0;
  a->number = (uint32_t)i;
  l->arenas[i] = a;
  if (i == l->arena_count) l->arena_count++;
  return 1;
}

/* ---- >>capacity --------------------------------------------------------------------------------
   Records, tables, arenas and windows: how they begin, grow, shrink and end; walks over aliases and
   blocks. pre, for what changes an arena's slots: the caller holds `driver_lock`. O(what is moved,
   freed or walked over). Can fail: host memory. */

static void gmlk_records_destroy(gmlk_records *records, gmlk_host *host) {
  while (records->slabs) {
    gmlk_slab *next = records->slabs->next;
    gmlk_host_free(host, records->slabs, GMLK_SLAB_BYTES);
    records->slabs = next;
  }
}

static void gmlk_tiling_init(gmlk_block *edge_before, gmlk_block *edge_behind) {
  edge_before->state = GMLK_EDGE;
  edge_behind->state = GMLK_EDGE;
  edge_before->next = edge_behind;
  edge_behind->prev = edge_before;
}

/* Takes the last block of a tiling away. */
static void gmlk_tiling_shrink(gmlk_records *records, gmlk_block *tail) {
  gmlk_block *b = tail->prev;
  tail->at = b->at;
  b->prev->next = b->next;
  b->next->prev = b->prev;
  gmlk_records_give(records, b);
}

/* Whether the slot has memory that is not in quarantine. */
static int gmlk_chunk_is_backed(const gmlk_chunks *all, uint32_t slot) {
  return all->items[slot].handle && !all->items[slot].is_quarantined;
}

/* Makes a slot that is asleep an empty one. */
static void gmlk_chunk_end_sleep(gmlk_chunks *all, uint32_t slot) {
  all->asleep_count -= all->items[slot].is_asleep;
  all->items[slot].is_asleep = 0;
}

static void gmlk_chunk_quarantine(gmlk_chunks *all, uint32_t slot) {
  if (all->items[slot].is_quarantined) return;
  all->items[slot].is_quarantined = 1;
  all->backed_count--;
  all->quarantined_count++;
}

/* Gives a chunk back to the driver; its slot is empty. If the driver refuses, it is quarantined.
   pre: it is mapped nowhere. */
static void gmlk_chunk_release(gmlk_chunks *all, gmlk_batch *batch, uint32_t slot) {
  gmlk_chunk *chunk = &all->items[slot];
  if (GMLK_CALL(batch, release, chunk->handle)) {
    gmlk_chunk_quarantine(all, slot);
    return;
  }
  if (chunk->is_quarantined)
    all->quarantined_count--;
  else
    all->backed_count--;
  all->shared_count -= chunk->is_shared;
  memset(chunk, 0, sizeof(*chunk));
}

static void gmlk_slots_add(gmlk_slots *list, uint32_t slot) { list->items[list->count++] = slot; }

/* An empty list that stands in this memory. */
static gmlk_slots gmlk_slots_in(void *memory) {
  gmlk_slots list;
  list.items = (uint32_t *)memory;
  list.count = 0;
  return list;
}

/* The place in a list behind the row of neighbours that begins at place `first`. */
static uint32_t gmlk_slots_row(const gmlk_slots *list, uint32_t first) {
  uint32_t end = first + 1;
  while (end < list->count && list->items[end] == list->items[end - 1] + 1) end++;
  return end;
}

/* The pool that a caller knows an arena by: what was imported is in none. */
static gmlake_pool *gmlk_pool_told(const gmlk_arena *a) { return a->is_import ? NULL : a->owner; }

/* How many bytes behind slot 0 an address lies; UINT64_MAX: it lies in no extent. */
static uint64_t gmlk_area_offset(const gmlk_area *area, uint64_t address) {
  size_t i;
  for (i = 0; i < area->count; i++) {
    const uint64_t offset = address - area->extents[i].base;
    const uint64_t slot = offset / area->chunk_bytes;
    if (slot >= area->extents[i].first && slot < area->extents[i].end) return offset;
  }
  return UINT64_MAX;
}

/* Gives a slot that is empty or asleep a chunk, or takes the one back into use that the driver has
   not taken, and maps a chunk at home that is not mapped there.
   Growth then makes its block FREE and CLEAN. Trim makes the block RESERVED, returns the chunk,
   then makes the block UNBACKED. */
static gmlake_result gmlk_chunk_make(gmlk_batch *batch, gmlk_arena *a, uint32_t slot) {
  gmlk_chunk *chunk = &a->chunks.items[slot];
  gmlake_result result = GMLAKE_OK;
  uint64_t handle = 0;
  if (!chunk->handle) {
    result = batch->imports
                 ? GMLK_CALL(batch, import_handle, batch->imports++, &handle)
                 : GMLK_CALL(batch, create, a->chunk_bytes, batch->driver->handle_types, &handle);
    if (result) return result;
    gmlk_chunk_end_sleep(&a->chunks, slot);
    chunk->handle = handle;
    a->chunks.backed_count++;
  } else if (chunk->is_quarantined) {
    chunk->is_quarantined = 0;
    a->chunks.quarantined_count--;
    a->chunks.backed_count++;
  }
  if (a->is_bare || chunk->is_home) return GMLAKE_OK;
  result = GMLK_CALL(batch, map, gmlk_home(a, slot << a->chunk_log), a->chunk_bytes, chunk->handle);
  chunk->is_home = !result;
  return result;
}

/* Unmaps a chunk at home. 0: it is still mapped. */
static int gmlk_chunk_unmap(gmlk_batch *batch, gmlk_arena *a, uint32_t slot) {
  gmlk_chunk *chunk = &a->chunks.items[slot];
  if (chunk->is_home &&
      !GMLK_CALL(batch, unmap, gmlk_home(a, slot << a->chunk_log), a->chunk_bytes))
    chunk->is_home = 0;
  return !chunk->is_home;
}

/* The same, and gives it back to the driver. pre: no window or page maps it. */
static int gmlk_chunk_return(gmlk_batch *batch, gmlk_arena *a, uint32_t slot) {
  const int is_unmapped = gmlk_chunk_unmap(batch, a, slot);
  if (is_unmapped) gmlk_chunk_release(&a->chunks, batch, slot);
  return is_unmapped;
}

/* Makes room for slots [0, count) in both tables. 0: no host memory. */
static int gmlk_arena_reserve_slots(gmlk_arena *a, size_t count) {
  gmlk_chunks *all = &a->chunks;
  size_t capacity = a->slot_capacity, firsts = a->firsts ? capacity + 1 : 0;
  if (a->firsts && count <= capacity) return 1;
  capacity = gmlk_max(count, gmlk_min(capacity + capacity / 4 + 32, a->area.most)); /* to spare */
  if (all->capacity < capacity &&
      !gmlk_host_resize(a->host, &all->items, &all->capacity, capacity, sizeof(gmlk_chunk)))
    return 0;
  if (!gmlk_host_resize(a->host, &a->firsts, &firsts, capacity + 1, sizeof(gmlk_block *))) return 0;
  a->slot_capacity = capacity;
  a->firsts[a->slot_count] = &a->end;
  return 1;
}

/* Makes unbacked slots clean free memory. pre: they have handles; two records are at hand. */
static void gmlk_arena_back(gmlk_arena *a, uint32_t slot, uint32_t count) {
  const uint32_t at = slot << a->chunk_log;
  gmlk_block *b = gmlk_reserve_range(a, gmlk_locate(a, at), at, count << a->chunk_log);
  b->flags = a->keeps_apart ? GMLK_APART : 0;
  gmlk_put(a, b, GMLK_CLEAN, 0);
}

/* Makes a reserved block unbacked; the arena ends before its last unbacked slots. pre: it covers
   whole slots. */
static void gmlk_arena_unback(gmlk_arena *a, gmlk_block *b) {
  b->state = GMLK_UNBACKED;
  b->stream = GMLK_CLEAN;
  b->u.epoch = 0;
  (void)gmlk_coalesce(a, b);
  if (a->end.prev->state != GMLK_UNBACKED) return;
  gmlk_unlink_free(a, a->end.prev);
  gmlk_tiling_shrink(a->records, &a->end);
  a->slot_count = a->end.at >> a->chunk_log;
  a->firsts[a->slot_count] = &a->end;
}

static int gmlk_arena_init(gmlk_arena *a, gmlk_host *host, gmlk_records *records) {
  a->host = host;
  a->records = records;
  gmlk_tiling_init(&a->begin, &a->end);
  gmlk_tiling_init(&a->window_space.begin, &a->window_space.end);
  gmlk_tiling_init(&a->buffer_space.begin, &a->buffer_space.end);
  gmlk_ring_init(&a->pending);
  a->windows.idle_end = &a->windows.idle_first;
  return gmlk_arena_admit(a, GMLK_CLEAN) && gmlk_arena_reserve_slots(a, 1);
}

static void gmlk_space_destroy(const gmlk_arena *a, gmlk_space *space) {
  gmlk_host_free(a->host, space->area.extents, space->area.capacity * sizeof(gmlk_extent));
  gmlk_host_free(a->host, space->holes, sizeof(gmlk_bins));
  while (space->begin.next && space->begin.next != &space->end)
    gmlk_tiling_shrink(a->records, &space->end);
}

static void gmlk_arena_destroy(gmlk_arena *a) {
  size_t i;
  for (i = 0; i < a->bins_capacity; i++) gmlk_host_free(a->host, a->bins[i], sizeof(gmlk_bins));
  gmlk_host_free(a->host, a->bins, a->bins_capacity * sizeof(gmlk_bins *));
  gmlk_host_free(a->host, a->firsts, (a->slot_capacity + 1) * sizeof(gmlk_block *));
  gmlk_host_free(a->host, a->chunks.items, a->chunks.capacity * sizeof(gmlk_chunk));
  gmlk_host_free(a->host, a->scratch, gmlk_scratch_bytes(a->scratch_slots));
  gmlk_host_free(a->host, a->area.extents, a->area.capacity * sizeof(gmlk_extent));
  while (a->begin.next && a->begin.next != &a->end) gmlk_tiling_shrink(a->records, &a->end);
  gmlk_space_destroy(a, &a->window_space);
  gmlk_space_destroy(a, &a->buffer_space);
}

typedef struct gmlk_walk { /* over the aliases of an arena */
  const gmlk_arena *arena;
  const gmlk_block *va;        /* addresses of the next window, or behind */
  const gmlake_buffer *buffer; /* then i is the next of its pages */
  uint32_t i;
} gmlk_walk;

static gmlk_walk gmlk_walk_of(const gmlk_arena *a) {
  gmlk_walk walk;
  walk.arena = a;
  walk.va = a->window_space.begin.next;
  walk.buffer = a->buffers;
  walk.i = 0;
  return walk;
}

/* The next alias that is mapped, or is to be when its arena wakes; NULL: there is none. Windows
   come first, in the order of their addresses. An arena that was never opened has none. */
static gmlk_alias *gmlk_walk_next(gmlk_walk *walk) {
  gmlk_alias *x;
  while (walk->va && walk->va != &walk->arena->window_space.end) {
    x = walk->va->state == GMLK_LIVE ? &((gmlk_window *)walk->va->u.owner)->alias : NULL;
    walk->va = walk->va->next;
    if (x && x->state) return x;
  }
  for (; walk->buffer; walk->buffer = walk->buffer->next, walk->i = 0)
    while (walk->i < walk->buffer->page_count) {
      x = &walk->buffer->pages[walk->i++];
      if (x->state) return x;
    }
  return NULL;
}

/* The user's block behind b: live, pending, or a window's own, which comes where its first piece
   is. b NULL: the first. NULL: there are no more. */
static const gmlk_block *gmlk_next_user(const gmlk_arena *a, const gmlk_block *b) {
  if (b && gmlk_window_from_block(b)) b = gmlk_window_from_block(b)->pieces[0].block;
  for (b = b ? b->next : a->begin.next; b; b = b->next) { /* to the edge, which has no next */
    const gmlk_window *w = b->state == GMLK_PIECE ? b->as.window : NULL;
    if (w && w->pieces[0].block == b) return &w->self;
    if (b->state == GMLK_LIVE || b->state == GMLK_PENDING) return b;
  }
  return NULL;
}

/* The idle window that has this number, or NULL. O(idle windows). */
static gmlk_window *gmlk_window_numbered(const gmlk_arena *a, uint64_t number) {
  gmlk_window *w = a->windows.idle_first;
  while (w && w->number != number) w = w->idle_next;
  return w;
}

/* ---- >>observe ---------------------------------------------------------------------------------
   Tells desc.observer of steps. Owns nothing. pre: state_lock is held. O(1), plus the
   observer's own time. Cannot fail. */

/* NONE if the stream is forgotten. */
static gmlake_stream gmlk_stream_shown(const gmlake *l, unsigned stream) {
  const gmlk_stream *s = stream ? l->streams.items[stream] : NULL;
  return s && !s->is_forgotten ? s->value : GMLAKE_STREAM_NONE;
}

/* Fills in a step for a request; r may be NULL: for none. */
GMLK_INLINE void gmlk_step_begin(const gmlake *l, const gmlk_request *r, gmlake_step_kind kind,
                                 const char *reason, gmlake_step *out) {
  memset(out, 0, sizeof(*out));
  out->kind = kind;
  out->reason = reason;
  out->stream = GMLAKE_STREAM_NONE;
  if (!r) return;
  out->request = r->number;
  out->stream = gmlk_stream_shown(l, r->stream);
  out->label = r->desc ? r->desc->label : NULL;
  out->pool = gmlk_pool_told(r->arena);
}

GMLK_INLINE void gmlk_tell_step(gmlake *l, gmlake_step *step) {
  step->reserved_bytes = l->stats.reserved_bytes;
  step->active_bytes = l->stats.active_bytes;
  gmlk_set_in_callback(&l->host, gmlk_thread_id());
  l->desc.observer.fn(l->desc.observer.user, step);
  gmlk_set_in_callback(&l->host, 0);
}

/* Tells of a step. r NULL: it serves the request that the holder of `driver_lock` works on. */
static void gmlk_tell(gmlake *l, const gmlk_request *r, gmlake_step_kind kind, uint64_t address,
                      uint64_t bytes, uint64_t driver_ns, const char *reason) {
  gmlake_step step;
  if (!l->is_observed) return;
  gmlk_step_begin(l, r ? r : l->served, kind, reason, &step);
  step.address = address;
  step.bytes = (size_t)bytes;
  step.driver_ns = driver_ns;
  gmlk_tell_step(l, &step);
}

/* Tells which chunks have come or gone since the lake held so many bytes. Returns the bytes that
   have gone. */
static size_t gmlk_tell_held(gmlake *l, size_t before, uint64_t driver_ns, const char *reason) {
  const size_t now = l->stats.reserved_bytes;
  if (now > before) gmlk_tell(l, NULL, GMLAKE_STEP_GROW, 0, now - before, driver_ns, reason);
  if (now < before) gmlk_tell(l, NULL, GMLAKE_STEP_TRIM, 0, before - now, driver_ns, reason);
  return before - gmlk_min(before, now);
}

/* Tells that a stream was made to wait, or the host for a stream. */
static void gmlk_tell_wait(gmlake *l, unsigned stream, uint64_t driver_ns, const char *reason) {
  gmlake_step step;
  if (!l->is_observed) return;
  gmlk_step_begin(l, l->served, GMLAKE_STEP_WAIT, reason, &step);
  step.stream = gmlk_stream_shown(l, stream);
  step.driver_ns = driver_ns;
  gmlk_tell_step(l, &step);
}

/* Tells of a call that succeeded: the stream that it named, or NONE; the buffer that it was on, or
   NULL. */
static void gmlk_tell_call(gmlake *l, gmlake_step_kind kind, gmlake_stream stream, uint64_t address,
                           size_t bytes, size_t asked_bytes, const gmlake_buffer *buffer,
                           const char *reason) {
  gmlake_step step;
  if (!l->is_observed) return;
  gmlk_step_begin(l, NULL, kind, reason, &step);
  step.stream = stream;
  step.address = address;
  step.bytes = bytes;
  step.asked_bytes = asked_bytes;
  step.label = buffer ? buffer->label : NULL;
  step.pool = buffer ? buffer->arena->owner : NULL;
  gmlk_tell_step(l, &step);
}

/* Tells the observer how the request ended; ptr NULL: it failed. */
static void gmlk_tell_request(gmlake *l, const gmlk_request *r, const void *ptr) {
  const char *reason = r->reason;
  gmlake_step step;
  if (!ptr)
    reason = "the lake could not serve the request";
  else if (!reason)
    reason = r->state == GMLK_S1 ? "a free range has exactly the size"
                                 : "the smallest free range that is larger";
  gmlk_step_begin(l, r, GMLAKE_STEP_ALLOC, reason, &step);
  step.state = ptr ? r->state : GMLK_S5;
  step.address = (uint64_t)(uintptr_t)ptr;
  step.bytes = r->grains * GMLK_GRAIN;
  step.asked_bytes = r->bytes;
  step.driver_ns = r->driver_ns;
  gmlk_tell_step(l, &step);
}

/* ---- >>addresses -------------------------------------------------------------------------------
   Asks the driver for addresses where they are needed: an arena's first extent when it is opened, a
   further one when it grows behind the last; for windows and buffers with the first of them.
   An extent is as long as all before it together, and as the area's unit; where the driver refuses
   that, a quarter of it, and so on down to what is needed. So an arena has few extents, and leaves
   others their addresses. All of an arena's are given back with it. pre: the caller holds
   `driver_lock`. state_lock is released meanwhile. Costs: the driver's. Can fail: host memory, the
   driver. */

#if !defined(GMLK_UNIT_CHUNKS)
#define GMLK_UNIT_CHUNKS 64u /* an extent has so many slots at least; tests have other numbers, */
#endif
#define GMLK_UNIT_BYTES ((size_t)1 << 30) /* or so many bytes */

/* Sets what an area may have, and asks for at a time: so many bytes, or little more if that is
   little. */
static void gmlk_area_init(gmlk_area *area, size_t most_bytes, size_t unit_bytes, size_t chunk) {
  const size_t most = most_bytes / chunk;
  const size_t least = gmlk_min(GMLK_UNIT_CHUNKS, GMLK_UNIT_BYTES / chunk);
  area->chunk_bytes = chunk;
  area->most = (uint32_t)most;
  area->unit = (uint32_t)gmlk_min(most, gmlk_max(unit_bytes / chunk + 1, least));
}

/* Reserves an extent of `need` slots or more. On success the caller enters its slots into the
   tiling before it releases state_lock: two records for that are set aside meanwhile.
   OUT_OF_DEVICE_MEMORY: there are no addresses. */
static gmlake_result gmlk_area_reserve(gmlake *l, gmlk_area *area, uint32_t need) {
  const uint32_t first = gmlk_area_next(area, need);
  const int was_scarce = area->is_scarce;
  uint64_t address = 0, wanted;
  gmlake_result opened, result;
  gmlk_batch batch;
  if (first > area->most) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  if (!gmlk_records_ensure(&l->records, &l->host, 2) ||
      !gmlk_host_grow(&l->host, &area->extents, &area->capacity, area->count, sizeof(gmlk_extent)))
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  l->records.set_aside += 2;
  wanted = gmlk_max(area->unit, area->is_scarce ? 0 : area->limit);
  for (;; wanted /= 4) {
    wanted = gmlk_max(gmlk_min(wanted, area->most - first), need);
    opened = gmlk_batch_begin(l, &batch, GMLK_UNLOCKED);
    result = opened;
    if (!opened)
      result = GMLK_CALL(&batch, reserve, (size_t)wanted * area->chunk_bytes, area->chunk_bytes,
                         &address);
    (void)gmlk_batch_end(l, &batch);
    if (opened || result != GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY) break; /* no lack of addresses */
    area->is_scarce = 1;
    area->is_full = wanted == need;
    if (area->is_full && !was_scarce) gmlk_log(l, GMLAKE_LOG_WARNING, &l->error);
    if (area->is_full) break;
  }
  l->records.set_aside -= 2;
  if (result) return result;
  if (area->is_scarce) area->unit = (uint32_t)gmlk_min(area->unit, wanted);
  area->extents[area->count].base = address - (uint64_t)first * area->chunk_bytes;
  area->extents[area->count].first = first;
  area->extents[area->count++].end = area->limit = first + (uint32_t)wanted;
  return GMLAKE_OK;
}

/* Adds a block at the end of a tiling. pre: one record is at hand. */
static gmlk_block *gmlk_tiling_extend(gmlk_records *records, gmlk_block *edge_behind,
                                      uint32_t arena, uint32_t grains, unsigned state) {
  gmlk_block *b = gmlk_records_take(records);
  memset(b, 0, sizeof(*b));
  b->arena = arena;
  b->at = edge_behind->at;
  b->grains = grains;
  b->state = (uint8_t)state;
  b->next = edge_behind;
  b->prev = edge_behind->prev;
  b->prev->next = edge_behind->prev = b;
  edge_behind->at += grains;
  return b;
}

/* Moves the end to `count` slots; new ones are unbacked. pre: slots and one record are at hand. */
static void gmlk_arena_extend(gmlk_arena *a, uint32_t count) {
  uint32_t grains = (count - a->slot_count) << a->chunk_log;
  gmlk_block *b;
  if (count <= a->slot_count) return;
  b = gmlk_tiling_extend(a->records, &a->end, a->number, grains, GMLK_UNBACKED);
  a->slot_count = count;
  a->firsts[count] = &a->end;
  gmlk_set_first_blocks(a, b, b->at, grains);
  (void)gmlk_coalesce(a, b);
}

/* Reserves addresses for slots that growth has planned, up to `last`, if they have none yet. Where
   that is another extent, the arena's end moves behind the former ones and the slot without an
   address that follows them [X1]. pre: the arena's tables have room for these slots. */
static gmlake_result gmlk_arena_extend_to(gmlake *l, gmlk_arena *a, uint32_t last) {
  const uint32_t limit = a->area.limit;
  gmlake_result result;
  gmlk_block *b;
  if (last < limit) return GMLAKE_OK;
  result = gmlk_area_reserve(l, &a->area, last - limit);
  if (result) return result;
  gmlk_arena_extend(a, limit);
  b = gmlk_tiling_extend(a->records, &a->end, a->number, a->chunk_grains, GMLK_EDGE);
  a->firsts[++a->slot_count] = &a->end;
  gmlk_set_first_blocks(a, b, b->at, b->grains);
  return GMLAKE_OK;
}

/* Makes sure that a window or buffer of so many slots finds addresses, if there are any. An edge
   stands between two extents. */
static gmlake_result gmlk_space_extend_to(gmlake *l, gmlk_space *space, uint32_t slots) {
  const uint32_t limit = space->area.limit;
  gmlake_result result;
  if (gmlk_bins_best(space->holes, slots)) return GMLAKE_OK;
  result = gmlk_area_reserve(l, &space->area, slots);
  if (result) return result;
  if (limit) (void)gmlk_tiling_extend(&l->records, &space->end, 0, 1, GMLK_EDGE);
  slots = space->area.limit - limit - (limit != 0);
  gmlk_bins_insert(space->holes, gmlk_tiling_extend(&l->records, &space->end, 0, slots, GMLK_FREE),
                   slots);
  return GMLAKE_OK;
}

/* Gives an area's addresses back; what the driver refuses to take stays. pre: nothing is mapped. */
static void gmlk_area_close(gmlk_area *area, gmlk_batch *batch) {
  size_t i, count = area->count;
  area->count = 0;
  for (i = 0; i < count; i++) {
    const gmlk_extent *e = &area->extents[i];
    if (GMLK_CALL(batch, unreserve, e->base + e->first * (uint64_t)area->chunk_bytes,
                  (e->end - e->first) * area->chunk_bytes))
      area->extents[area->count++] = *e;
  }
}

/* ---- >>pending ---------------------------------------------------------------------------------
   Extra records, which hold what few blocks have: user data, a label, and the streams that
   gmlake_record_stream named. A freed block is pending until those streams have passed the free, or
   a stream that takes its memory waits for them on the device: its wait begins and ends in >>free.
   Owns the extra records and the rings of pending blocks. Each stream has a queue of the uses that
   pending blocks wait for, so that what completes on one stream costs nothing for the blocks that
   wait for others.
   [N1] An extra record belongs to one block. A pending block has an extra record, in its arena's
        ring, that names the block.
   [N2] An extra record has room for the streams that it lists, and their numbers are in use.
   [N4] Each use of a pending block is complete, or in its stream's queue. A queue is in order of
        epochs. uses_left of an extra record is how many of its uses are in queues, one at least,
        unless it is shared.
   [N5] return_count is the number of pending blocks that are shared: other processes know their
        chunks. Their use by the stream that freed them is waited for, too. Then they stand last
        in the ring, and stay pending until >>grow quarantines their chunks.
   O(recorded streams). Can fail: host memory, for an extra record or for one more stream in it. */

/* GMLAKE_FILL: tells of a byte that was written while it was free. */
static void gmlk_fill_verify(gmlake *l, uint64_t address, size_t bytes) {
  const unsigned char *at = (const unsigned char *)(uintptr_t)address;
  size_t i = 0;
  if (at[0] == GMLAKE_FILL_FREE && memcmp(at, at + 1, bytes - 1) == 0) return;
  while (at[i] == GMLAKE_FILL_FREE) i++;
  (void)gmlk_fail(l, GMLAKE_ERROR_CORRUPT, "GMLAKE_FILL",
                  "0x%llx, byte %llu of a new block of %llu at 0x%llx, is 0x%02x: it was written "
                  "to while it was free",
                  GMLK_ULL(address + i), GMLK_ULL(i), GMLK_ULL(bytes), GMLK_ULL(address), at[i]);
  if (l->desc.logger.fn)
    gmlk_log(l, GMLAKE_LOG_ERROR, &l->error);
  else
    gmlk_say(&l->error);
}

/* GMLAKE_FILL: the host writes the byte to all of the block at once, as it does the streams' work
   on the mock. What sleeps has no memory to write to; others may use what is shared. Graphs write
   to memory that is free for the lake. */
static void gmlk_fill(gmlake *l, const gmlk_block *b, unsigned byte) {
  const gmlk_arena *a = l->arenas[b->arena];
  const uint64_t address = gmlk_address_of(a, b);
  if ((b->as.extra && b->as.extra->is_shared) || a->sleep >= GMLK_ASLEEP) return;
  if (byte == GMLAKE_FILL_NEW && !(b->flags & (GMLK_IN_GRAPH | GMLAKE_TRANSIENT)))
    gmlk_fill_verify(l, address, b->grains * GMLK_GRAIN);
  memset((void *)(uintptr_t)address, (int)byte, b->grains * GMLK_GRAIN);
}

/* GMLAKE_FILL: what is free of an arena that has woken is new memory, or what a block left that was
   freed meanwhile. O(blocks). */
static void gmlk_fill_woken(const gmlake *l, const gmlk_arena *a) {
  const gmlk_block *b;
  if (!(l->desc.flags & GMLAKE_FILL) || a->is_bare) return;
  for (b = a->begin.next; b != &a->end; b = b->next)
    if (b->state == GMLK_FREE && !gmlk_has_tag(b, GMLK_GRAPH_OWNED))
      memset((void *)(uintptr_t)gmlk_home(a, b->at), GMLAKE_FILL_FREE, b->grains * GMLK_GRAIN);
}

/* A new extra record; NULL: no host memory. */
static gmlk_extra *gmlk_extra_new(gmlake *l, uint64_t user_data, const char *label) {
  gmlk_extra *extra = (gmlk_extra *)gmlk_host_alloc(&l->host, sizeof(gmlk_extra));
  if (!extra) return NULL;
  extra->user_data = user_data;
  extra->label = label;
  return extra;
}

/* Whether a stream in a live block's extra record still has its number. If not, its work is
   complete. */
static int gmlk_use_is_known(const gmlake *l, const gmlk_used *used) {
  return used->epoch == l->streams.items[used->stream]->born;
}

/* An owned block's extra record, which it gets if it has none; NULL: no host memory. */
static gmlk_extra *gmlk_extra_of(gmlake *l, gmlk_block *b) {
  if (!b->as.extra) b->as.extra = gmlk_extra_new(l, 0, NULL);
  return b->as.extra;
}

/* Enters a stream into a live block's extra record; 0: no host memory. */
static int gmlk_extra_add_use(gmlake *l, gmlk_block *b, unsigned stream) {
  gmlk_extra *extra = gmlk_extra_of(l, b);
  size_t i, kept = 0;
  int full;
  if (!extra) return 0;
  full = extra->used_count == extra->used_capacity;
  for (i = 0; i < extra->used_count; i++)
    if (extra->used[i].stream == stream && gmlk_use_is_known(l, &extra->used[i])) return 1;
  for (i = 0; full && i < extra->used_count; i++) /* work of those not known is complete */
    if (gmlk_use_is_known(l, &extra->used[i])) extra->used[kept++] = extra->used[i];
  if (full) extra->used_count = kept;
  if (!gmlk_host_grow(&l->host, &extra->used, &extra->used_capacity, extra->used_count,
                      sizeof(gmlk_used)))
    return 0;
  extra->used[extra->used_count].epoch = l->streams.items[stream]->born;
  extra->used[extra->used_count++].stream = stream;
  l->streams.items[stream]->uses++;
  return 1;
}

static void gmlk_extra_free(gmlake *l, gmlk_extra *extra) {
  if (!extra) return;
  gmlk_host_free(&l->host, extra->used, extra->used_capacity * sizeof(gmlk_used));
  gmlk_host_free(&l->host, extra, sizeof(*extra));
}

/* Whether a pending block is shared, and waits for nothing but its chunks' return [N5]. */
static int gmlk_is_return(const gmlk_extra *extra) { return extra->is_shared && !extra->uses_left; }

/* Gives an arena's pending blocks that have one tag another one, as gmlk_arena_retag does. */
static void gmlk_pending_retag(const gmlk_arena *a, unsigned from, unsigned to) {
  gmlk_extra *extra = NULL;
  while ((extra = gmlk_pending_next(a, extra)) != NULL)
    if (extra->stream == from) extra->stream = to;
}

/* ---- >>streams ---------------------------------------------------------------------------------
   Numbers and fences of streams; when the lake records events, asks which have completed, and
   waits; makes memory clean whose work is complete. What streams and fences are, and their
   invariants, stands in >>tags.
   pre, for waits of the host: the caller holds `driver_lock`; state_lock is released meanwhile.
   Costs: about 0.2 us to record or to ask an event; a new stream O(streams). If something
   completed, gmlk_refresh is O(what was pending for it + free blocks in runs of its streams + idle
   windows). Can fail: host memory, the driver. */

/* ---- numbers ---- */

static gmlake_stream gmlk_stream_canonical(gmlake_stream stream) {
  return (uintptr_t)stream == GMLK_VALUE_LEGACY ? NULL : stream;
}

/* Whether the number stands for a stream that is not forgotten. */
static int gmlk_stream_is_named(const gmlk_stream *s) {
  return s->is_used && !s->is_capture && !s->is_forgotten;
}

/* The stream's number; 0: the lake has not seen it. */
static unsigned gmlk_stream_find(gmlk_streams *streams, gmlake_stream value) {
  gmlake_stream canonical = gmlk_stream_canonical(value);
  size_t i;
  if (streams->last && streams->last_value == value) return streams->last;
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++) {
    gmlk_stream *s = streams->items[i];
    if (!gmlk_stream_is_named(s) || s->value != canonical) continue;
    if (s->may_end) return (unsigned)i; /* its id is asked for each time */
    streams->last_value = value;
    return streams->last = (unsigned)i;
  }
  return 0;
}

/* A number that may serve a new stream, or a capture; 0: there is none. A capture takes none that
   a stream had: free memory may still have that tag, and what has a capture's tag when it ends
   becomes the graph's. O(streams). */
static unsigned gmlk_stream_idle(const gmlk_streams *streams, int is_capture) {
  unsigned i;
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++) {
    const gmlk_stream *s = streams->items[i];
    if (!s->is_used || (!is_capture && s->is_forgotten && gmlk_stream_is_complete(s))) return i;
  }
  return 0;
}

/* Gives a new stream or capture a number. One that never served comes with a record, and with room
   for the idle events of so many streams, so that no fence and no wait needs host memory later. 0:
   no host memory, or all numbers are in use. */
static unsigned gmlk_stream_add(gmlk_streams *streams, gmlk_host *host, gmlake_stream value,
                                int is_capture, uint64_t born) {
  unsigned stream = gmlk_stream_idle(streams, is_capture);
  gmlk_stream *s;
  if (!stream) {
    const size_t i = gmlk_max(streams->count, GMLK_FIRST_STREAM);
    const size_t events = (i + 1 - GMLK_FIRST_STREAM) * (GMLK_FENCES + 1) - 1;
    if (i == GMLK_STREAMS_MAX) return 0;
    if (!gmlk_host_grow(host, &streams->items, &streams->capacity, i, sizeof(gmlk_stream *)) ||
        !gmlk_host_grow(host, &streams->events, &streams->event_capacity, events, sizeof(void *)))
      return 0;
    streams->items[i] = (gmlk_stream *)gmlk_host_alloc(host, sizeof(gmlk_stream));
    if (!streams->items[i]) return 0;
    streams->count = i + 1;
    stream = (unsigned)i;
  }
  s = streams->items[stream];
  if (!s->epoch) s->epoch = 1;
  memset(&s->pending_uses, 0, sizeof(*s) - offsetof(gmlk_stream, pending_uses));
  gmlk_ring_init(&s->pending_uses);
  s->value = value;
  s->born = born;
  s->is_used = 1;
  s->is_capture = (uint8_t)is_capture;
  s->may_end = streams->may_end && value;
  if (!is_capture) {
    streams->live_count++;
    streams->used_count++;
  }
  return stream;
}

/* ---- fences ---- */

static void gmlk_event_give(gmlk_streams *streams, void *event) {
  GMLAKE_ASSERT(streams->event_count < streams->event_capacity);
  streams->events[streams->event_count++] = event;
}

/* Moves the fences from one place on to another. */
static void gmlk_fences_move(gmlk_stream *s, unsigned from, unsigned to) {
  memmove(&s->fences[to], &s->fences[from], (s->fence_count - from) * sizeof(gmlk_fence));
  s->fence_count = s->fence_count - from + to;
}

/* Notes that work up to an epoch is complete; fences up to it are no longer needed [F2]. */
static void gmlk_stream_complete(gmlk_streams *streams, gmlk_stream *s, uint64_t epoch) {
  unsigned i = 0;
  while (i < s->fence_count && s->fences[i].epoch <= epoch)
    gmlk_event_give(streams, s->fences[i++].event);
  gmlk_fences_move(s, i, 0);
  s->done = gmlk_max(s->done, epoch);
  s->is_news = 1;
  if (s->is_forgotten && gmlk_stream_is_complete(s)) streams->used_count--;
}

/* The stream is gone. If it is dirty, it is lost; else its number will serve again. */
static void gmlk_stream_forget(gmlk_streams *streams, unsigned stream) {
  gmlk_stream *s = streams->items[stream];
  GMLAKE_ASSERT(!s->is_forgotten);
  s->is_forgotten = 1;
  streams->live_count--;
  streams->last = 0;
  if (gmlk_stream_is_complete(s)) streams->used_count--;
}

/* The stream was destroyed, and the lake was not told in time. Its work of the open epoch, and what
   it does with live blocks, can no longer have a fence. */
static void gmlk_stream_end(gmlk_streams *streams, unsigned stream, int is_dirty) {
  gmlk_stream *s = streams->items[stream];
  if (s->uses || is_dirty) s->is_dirty = GMLK_DIRTY;
  gmlk_stream_forget(streams, stream);
}

/* Whether a wait of the host for all streams includes this one. */
static int gmlk_stream_has_work(const gmlk_stream *s) {
  return s->is_used && !s->is_capture && (s->fence_count || s->is_dirty);
}

/* Asks for the stream's fences and takes off those that are complete; an error counts as no. As
   they complete in order, it asks in steps: they double up to the first that is not complete, then
   they halve. */
static void gmlk_stream_poll(gmlk_streams *streams, gmlk_batch *batch, unsigned stream) {
  gmlk_stream *s = streams->items[stream];
  unsigned done = 0, end = s->fence_count, step = 1; /* complete: below done, none from end on */
  while (done < end && !gmlk_is_fatal(batch->result)) {
    const unsigned place = step < end - done ? done + step - 1 : end - 1;
    int is_done = 0;
    gmlake_result result = GMLK_ANSWER(batch, event_query, s->fences[place].event, &is_done);
    result = gmlk_batch_asked(batch, result, "event_query");
    if (!result && is_done)
      done = place + 1;
    else
      end = place;
    step = end == s->fence_count ? 2 * step : (end - done + 1) / 2;
  }
  if (done) gmlk_stream_complete(streams, s, s->fences[done - 1].epoch);
}

/* Makes room where all fences are in use: gives up every second one. The fence behind it covers its
   epochs too, but completes later. */
static void gmlk_stream_thin(gmlk_streams *streams, gmlk_stream *s) {
  size_t i;
  for (i = 0; i < GMLK_FENCES / 2; i++) {
    const gmlk_fence given = s->fences[2 * i];
    gmlk_event_give(streams, given.event);
    s->fences[i] = s->fences[2 * i + 1];
    s->fences[i].serial = given.serial;
  }
  s->fence_count = GMLK_FENCES / 2;
}

/* Closes the open epoch with a fence, if the stream is dirty and not forgotten. On an error the
   epoch stays open, and a later fence will cover it; only where the driver says that the stream is
   gone, there will be none: DRIVER, and batch->is_stream_gone is set. CAPTURING: a capture forbids
   it, even one that the lake was not told of; or [F8], where the call does not name the stream. */
static gmlake_result gmlk_stream_fence(gmlk_streams *streams, gmlk_batch *batch, unsigned stream,
                                       int is_named) {
  gmlk_stream *s = streams->items[stream];
  gmlk_fence fence;
  gmlake_result result = GMLAKE_OK;
  void *event;
  if (!s->is_dirty || s->is_forgotten) return GMLAKE_OK;
  if (!is_named && s->may_end) return GMLAKE_ERROR_CAPTURING;                             /* [F8] */
  if (s->capture || (!s->value && streams->capture_count)) return GMLAKE_ERROR_CAPTURING; /* [F3] */
  if (s->fence_count == GMLK_FENCES) gmlk_stream_poll(streams, batch, stream);
  if (s->fence_count == GMLK_FENCES) gmlk_stream_thin(streams, s);
  if (streams->event_count)
    event = streams->events[--streams->event_count];
  else
    result = GMLK_CALL(batch, event_create, &event);
  if (result) return result;
  result = GMLK_ANSWER(batch, event_record, event, s->value);
  if (s->value && result == GMLAKE_ERROR_INVALID_ARGUMENT) { /* it is gone: no error here [D1] */
    batch->is_stream_gone = 1;
    batch->calls++;
    batch->code = batch->answer;
    gmlk_stream_end(streams, stream, 1);
    result = GMLAKE_ERROR_DRIVER;
  } else {
    result = gmlk_batch_asked(batch, result, "event_record");
  }
  if (result) {
    gmlk_event_give(streams, event);
    return result;
  }
  fence.event = event;
  fence.epoch = s->epoch++;
  fence.serial = ++streams->record_count;
  s->fences[s->fence_count++] = fence;
  s->freed_bytes = 0;
  s->is_dirty = 0;
  return GMLAKE_OK;
}

/* Ends a wait for a fence that was taken off. If it is not complete, it is put back in its place
   [F2]. */
static void gmlk_stream_return_fence(gmlk_streams *streams, gmlk_stream *s, gmlk_fence fence,
                                     int is_done) {
  unsigned place = 0;
  if (is_done && s->done < fence.epoch) gmlk_stream_complete(streams, s, fence.epoch);
  if (s->done >= fence.epoch) {
    gmlk_event_give(streams, fence.event);
    return;
  }
  if (s->fence_count == GMLK_FENCES) gmlk_stream_thin(streams, s);
  while (place < s->fence_count && s->fences[place].epoch < fence.epoch) place++;
  gmlk_fences_move(s, place, place + 1);
  s->fences[place] = fence;
}

/* Frees everything. Events are destroyed only if has_driver: a child of fork has no driver. */
static void gmlk_streams_destroy(gmlk_streams *streams, gmlk_host *host, gmlk_batch *batch,
                                 int has_driver) {
  size_t i;
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++) {
    gmlk_stream *s = streams->items[i];
    while (s->fence_count) gmlk_event_give(streams, s->fences[--s->fence_count].event);
    gmlk_host_free(host, s, sizeof(*s));
  }
  while (has_driver && streams->event_count)
    (void)GMLK_CALL(batch, event_destroy, streams->events[--streams->event_count]);
  gmlk_host_free(host, streams->events, streams->event_capacity * sizeof(void *));
  gmlk_host_free(host, streams->items, streams->capacity * sizeof(gmlk_stream *));
}

/* ---- what is complete becomes clean ---- */

/* Makes clean the free blocks whose tags are complete. It looks only at the runs of streams of
   which something has completed. O(blocks in these runs). */
static void gmlk_arena_sweep(gmlk_arena *a, const gmlk_streams *streams) {
  const size_t count = gmlk_min(streams->count, a->bins_capacity);
  unsigned stream, bin;
  for (stream = GMLK_FIRST_STREAM; stream < count; stream++) {
    const gmlk_stream *s = streams->items[stream];
    gmlk_bins *bins = s->is_news ? a->bins[stream] : NULL;
    for (bin = bins ? gmlk_bin_from(bins, 1) : GMLK_BINS; bin < GMLK_BINS;
         bin = gmlk_bin_from(bins, bin + 1)) {
      const gmlk_link *ring = &bins->rings[bin], *link, *next;
      for (link = ring->next; link != ring; link = next) {
        gmlk_block *b = (gmlk_block *)(uintptr_t)link;
        next = link->next; /* the rest of a run may enter the bin again: before it, so not seen */
        for (; gmlk_is_available(b, stream); b = b->next)
          if (b->stream == stream && b->u.epoch <= s->done) b = gmlk_retag(a, b, GMLK_CLEAN);
      }
    }
  }
  if (a->small.reserve &&
      gmlk_tag_done(streams, a->small.reserve->stream, a->small.reserve->u.epoch)) {
    a->small.reserve->stream = GMLK_CLEAN;
    a->small.reserve->u.epoch = 0;
  }
}

#define GMLK_ANY_STREAM (~0u)

/* Gives all free memory and idle aliases that have one tag another one: when a capture or loan
   begins or ends, and `from` and `to` are its number and GMLK_GRAPH_OWNED; or, with
   GMLK_ANY_STREAM, those of any stream, which the caller has waited for, GMLK_CLEAN. O(blocks +
   windows + pages). */
static void gmlk_arena_retag(gmlk_arena *a, unsigned from, unsigned to) {
  const int is_any = from == GMLK_ANY_STREAM;
  gmlk_walk walk = gmlk_walk_of(a);
  gmlk_alias *x;
  gmlk_block *b;
  gmlk_small_reserve_end(a);
  for (b = a->begin.next; b != &a->end; b = b->next)
    if (is_any ? gmlk_is_tagged(b) : gmlk_has_tag(b, from)) b = gmlk_retag(a, b, to);
  while ((x = gmlk_walk_next(&walk)) != NULL) {
    if (x->state != GMLK_ALIAS_IDLE) continue;
    if (is_any ? x->stream == GMLK_GRAPH_OWNED : x->stream != from) continue;
    x->stream = (uint16_t)to;
  }
}

/* ---- events for a lake's streams; which stream a value means ---- */

/* Closes a stream's open epoch with an event, at the end of a free; [F8] one that may have ended is
   left open, unless the call names it. An error is left in the lake's last error; the epoch then
   stays open. */
static void gmlk_fence_now(gmlake *l, unsigned stream, int is_named) {
  gmlk_stream *s = l->streams.items[stream];
  gmlk_batch batch;
  unsigned how = 0;
  if (l->lost || s->is_forgotten) return;
  if (s->fence_count < GMLK_FENCES) /* else it makes room: it asks which events are complete */
    how = GMLK_LIGHTLY;
  if (!gmlk_batch_begin(l, &batch, how))
    (void)gmlk_stream_fence(&l->streams, &batch, stream, is_named);
  (void)gmlk_batch_end(l, &batch);
}

/* Closes the open epochs of all streams, if somebody else asks for memory. */
static void gmlk_fence_all(gmlake *l) {
  unsigned i;
  for (i = GMLK_FIRST_STREAM; i < l->streams.count; i++)
    if (l->streams.live_count + l->streams.has_none >= 2) gmlk_fence_now(l, i, 0);
}

/* Gives a new stream a number; 0: no host memory, or too many streams. Where no number is idle and
   streams are forgotten, asks what has completed: their numbers serve again. So a program whose
   streams come and go needs as many numbers as have work at a time. A lake's second stream
   closes the first one's epoch: an only stream records no events, so nothing else would tell when
   what it freed is complete. */
static unsigned gmlk_stream_enter(gmlake *l, gmlake_stream value, uint64_t id) {
  gmlk_streams *streams = &l->streams;
  unsigned i = GMLK_FIRST_STREAM, stream;
  while (i < streams->count && (!streams->items[i]->is_forgotten || streams->items[i]->is_dirty))
    i++;
  if (i < streams->count && !gmlk_stream_idle(streams, 0)) (void)gmlk_refresh(l, 0);
  stream = gmlk_stream_add(streams, &l->host, value, 0, ++l->records.serial);
  if (stream) streams->items[stream]->id = id;
  if (stream && streams->live_count == 2) gmlk_fence_all(l);
  return stream;
}

/* [GMLAKE_STREAMS_MAY_END] Asks the driver which stream has the value now. Returns `stream` if it
   is the one that has this number, or if the driver does not answer, as in a capture that the lake
   was not told of, or is lost; 0 if it is a new stream, whose id is in *out_id. If no stream has
   the value, returns the number of one that is lost, perhaps from the start: what is freed on it
   serves again after a wait for the whole device. If it is the one, its open epoch gets an event
   [F8]: what frees of blocks that it is recorded on have left open. pre: stream is 0 or the number
   that the value had last. */
static unsigned gmlk_stream_identify(gmlake *l, gmlake_stream value, unsigned stream,
                                     uint64_t *out_id) {
  gmlk_stream *s = stream ? l->streams.items[stream] : NULL;
  gmlake_result result;
  int code = 0;
  if (!value || l->lost || (s && (s->capture || !s->may_end))) return stream;
  result = l->driver.backend->stream_id(l->driver.backend->user, value, out_id, &code);
  if (result && result != GMLAKE_ERROR_INVALID_ARGUMENT) return stream;
  if (s && !result && s->id == *out_id) {
    if (s->is_dirty) gmlk_fence_now(l, stream, 1);
    return stream;
  }
  if (s) gmlk_stream_end(&l->streams, stream, result != GMLAKE_OK);
  if (!result || s) return result ? stream : 0;
  for (stream = GMLK_FIRST_STREAM; stream < l->streams.count; stream++) {
    s = l->streams.items[stream];
    if (s->value == value && s->is_forgotten && s->is_dirty) return stream; /* it is lost */
  }
  stream = gmlk_stream_enter(l, value, 0);
  if (stream && !l->streams.items[stream]->is_forgotten) gmlk_stream_end(&l->streams, stream, 1);
  return stream;
}

/* Whether the driver captures the stream, as far as it can be known. */
static int gmlk_is_capturing(const gmlake *l, gmlk_stream *s) {
  const gmlake_backend *b = l->driver.backend;
  int is_capturing = 1, code = 0;
  gmlake_result result;
  if (!GMLK_HAS(&l->driver, is_capturing)) return 1;
  result = b->is_capturing(b->user, s->value, &is_capturing, &code);
  if (!result) s->is_seen |= is_capturing != 0;
  return is_capturing && result != GMLAKE_ERROR_INVALID_ARGUMENT;
}

/* Ends a stream's capture. pre: the caller holds `driver_lock`, and has no request open. */
static void gmlk_capture_close(gmlake *l, unsigned stream) {
  gmlk_stream *s = l->streams.items[stream];
  gmlk_arena *a = l->arenas[s->arena];
  uint64_t id;
  size_t i;
  gmlk_arena_retag(a, s->capture, GMLK_GRAPH_OWNED);
  gmlk_pending_retag(a, s->capture, GMLK_GRAPH_OWNED);
  for (i = 0; i < a->chunks.capacity; i++) /* graphs may know all chunks there are */
    a->chunks.items[i].is_known = a->chunks.items[i].handle != 0;
  a->pool->capture_count--;
  l->streams.items[s->capture]->is_used = 0;
  l->streams.capture_count--;
  s->capture = 0;
  if (s->may_end) /* it may have freed, too; or be another by now */
    (void)gmlk_stream_identify(l, s->value, stream, &id);
}

/* Ends the captures that the driver has ended without the lake being told, as by an exception: it
   was seen to make them; or it makes none of `named` (0: no stream), for which a call came that
   says so. Streams that may be gone are asked about only by such a call [F8]. pre: as above. */
static void gmlk_captures_end(gmlake *l, unsigned named) {
  size_t i;
  for (i = GMLK_FIRST_STREAM; i < l->streams.count && l->streams.capture_count; i++) {
    gmlk_stream *s = l->streams.items[i];
    const int is_named = i == named;
    if (!s->capture || l->lost || (!is_named && s->may_end)) continue;
    if (gmlk_is_capturing(l, s) || !(is_named || s->is_seen)) continue;
    gmlk_capture_close(l, (unsigned)i);
    s->has_ended = 1;
  }
}

/* The answer to a call that names a stream which is gone. */
static gmlake_result gmlk_refuse_gone(gmlake *l, gmlake_stream value, const char *call) {
  return gmlk_fail(l, GMLAKE_ERROR_DRIVER, call,
                   "stream is %p, which the driver does not know: was it destroyed?",
                   (void *)value);
}

/* The stream's number; it gets one if it has none. 0: no host memory, or too many streams. */
static unsigned gmlk_stream_find_or_add(gmlake *l, gmlake_stream value) {
  unsigned stream = gmlk_stream_find(&l->streams, value);
  uint64_t id = 0;
  value = gmlk_stream_canonical(value);
  if (l->streams.may_end) stream = gmlk_stream_identify(l, value, stream, &id);
  return stream ? stream : gmlk_stream_enter(l, value, id);
}

/* ---- asking ---- */

/* Ends the waits of pending blocks for work that has completed, and makes memory clean. */
static void gmlk_take_back(gmlake *l) {
  gmlk_streams *streams = &l->streams;
  gmlk_arena *a;
  gmlk_window *w;
  size_t i;
  int is_news = 0;
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++) {
    gmlk_stream *s = streams->items[i];
    is_news |= s->is_news;
    while (s->is_news && s->pending_uses.next != &s->pending_uses) {
      gmlk_used *use = (gmlk_used *)(void *)s->pending_uses.next;
      gmlk_extra *extra = use->extra;
      if (use->epoch > s->done) break;
      GMLAKE_ASSERT(extra != NULL);
      gmlk_link_remove(&use->link);
      use->extra = NULL;
      if (!--extra->uses_left) gmlk_pending_uses_done(l, extra);
    }
  }
  if (!is_news) return;
  GMLK_FOR_ARENAS(l, a) {
    gmlk_arena_sweep(a, streams);
    for (w = a->windows.idle_first; w; w = w->idle_next)
      if (gmlk_tag_done(streams, w->alias.stream, w->alias.epoch)) w->alias.stream = GMLK_CLEAN;
  }
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++) streams->items[i]->is_news = 0;
}

/* Asks all streams what has completed, frees what was pending for it and makes memory clean. With
   `close`, open epochs get an event first, for a later call to see them complete. Never waits. */
static gmlake_result gmlk_refresh(gmlake *l, int close) {
  const gmlk_arena *a = gmlk_next_arena(l, NULL);
  gmlk_batch batch;
  unsigned i;
  if (l->lost) return l->lost;
  /* Even an only stream has events behind what buffers gave up: is there one, or was? */
  while (a && !a->buffer_space.holes) a = gmlk_next_arena(l, a);
  if (!close && !a && l->streams.used_count + l->streams.has_none < 2 &&
      l->streams.used_count == l->streams.live_count && !l->streams.capture_count &&
      !l->stats.pending_bytes)
    return GMLAKE_OK;
  if (!gmlk_batch_begin(l, &batch, 0)) {
    for (i = GMLK_FIRST_STREAM; i < l->streams.count && !gmlk_is_fatal(batch.result); i++) {
      if (close) (void)gmlk_stream_fence(&l->streams, &batch, i, 0);
      gmlk_stream_poll(&l->streams, &batch, i);
    }
  }
  (void)gmlk_batch_end(l, &batch);
  gmlk_take_back(l);
  return batch.result;
}

/* The same for a request that finds no memory. What streams freed since their last event gets one,
   if there is somebody else to ask for it. */
static gmlake_result gmlk_look(gmlake *l) {
  return gmlk_refresh(l, l->streams.live_count + l->streams.has_none >= 2);
}

/* ---- waits of the host ---- */

/* Makes the host wait for all work on the device, for this stream's sake. Then all is complete that
   was freed before on streams that cannot have a fence. CAPTURING: a stream is being captured. */
static gmlake_result gmlk_wait_for_device(gmlake *l, unsigned stream) {
  gmlk_streams *streams = &l->streams;
  gmlake_result result;
  gmlk_batch batch;
  size_t i;
  if (!GMLK_HAS(&l->driver, device_wait))
    return gmlk_fail(l, GMLAKE_ERROR_DRIVER, "device_wait",
                     "a stream was destroyed before gmlake_forget_stream, and the backend cannot "
                     "wait for the whole device");
  if (l->streams.capture_count) return GMLAKE_ERROR_CAPTURING;
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++)
    if (gmlk_stream_needs_device_wait(streams->items[i]))
      streams->items[i]->is_dirty = GMLK_AWAITED;
  l->stats.host_wait_count++;
  streams->is_device_awaited = 1;
  result = gmlk_batch_begin(l, &batch, GMLK_UNLOCKED);
  if (!result) {
    const gmlake_backend *backend = l->driver.backend;
    batch.answer = 0;
    result = gmlk_batch_called(&batch, backend->device_wait(backend->user, &batch.answer),
                               "device_wait");
  }
  (void)gmlk_batch_end(l, &batch);
  streams->is_device_awaited = 0;
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++) {
    gmlk_stream *s = streams->items[i];
    if (s->is_dirty != GMLK_AWAITED) continue;
    s->is_dirty = result ? GMLK_DIRTY : 0;
    if (!result) gmlk_stream_complete(streams, s, s->epoch++);
  }
  gmlk_tell_wait(l, stream, batch.ns, "the host waits for all work on the device");
  return batch.result;
}

#define GMLK_WAIT_EVENTS 32u /* the most that the host waits for at once, each of another stream */

/* Makes the host wait until the oldest fence of one of these streams is complete; takes back what
   that frees. While it waits, no other thread sees these fences. pre: each stream has one. */
static gmlake_result gmlk_wait_for_any(gmlake *l, const unsigned *streams, unsigned count) {
  void *events[GMLK_WAIT_EVENTS];
  gmlk_fence fences[GMLK_WAIT_EVENTS];
  unsigned i, first = 0;
  gmlk_batch batch;
  if (!GMLK_HAS(&l->driver, event_wait_any)) count = 1;
  for (i = 0; i < count; i++) { /* takes them off: nobody else gives the events away meanwhile */
    gmlk_stream *s = l->streams.items[streams[i]];
    fences[i] = s->fences[0];
    events[i] = fences[i].event;
    gmlk_fences_move(s, 1, 0);
  }
  l->stats.host_wait_count++;
  if (!gmlk_batch_begin(l, &batch, GMLK_UNLOCKED)) {
    if (count > 1)
      (void)GMLK_CALL(&batch, event_wait_any, events, count, &first);
    else
      (void)GMLK_CALL(&batch, event_wait, events[0]);
  }
  (void)gmlk_batch_end(l, &batch);
  for (i = 0; i < count; i++)
    gmlk_stream_return_fence(&l->streams, l->streams.items[streams[i]], fences[i],
                             !batch.result && i == first);
  gmlk_tell_wait(l, streams[first], batch.ns, "the host waits for this stream's work");
  gmlk_take_back(l);
  return batch.result;
}

/* A wait of the host that goes on until enough is complete: the caller looks again after each step.
   Work that comes after it has begun is not waited for, so it ends. */
typedef struct gmlk_host_wait {
  uint64_t last;                   /* the serial number of the newest fence that it may wait for */
  int has_begun, has_waited_whole; /* it has looked; it has waited for the whole device */
  int is_partial;                  /* a capture forbids to wait for some stream */
  int is_over; /* all is complete, or a capture forbids to record an event behind it */
} gmlk_host_wait;

/* A step of such a wait, which is all 0 before. The first one only looks, and gives what streams
   freed since their last event another one where that is allowed. Each further one makes the host
   wait until more is complete than now: whichever stream's oldest work is first, or else all that
   only a wait for the whole device completes. */
static gmlake_result gmlk_wait_on(gmlake *l, gmlk_host_wait *p) {
  unsigned streams[GMLK_WAIT_EVENTS], count = 0, out = 0, i;
  const int begins = !p->has_begun;
  gmlake_result result = begins ? gmlk_refresh(l, 1) : GMLAKE_OK;
  if (begins) p->last = l->streams.record_count;
  p->has_begun = 1;
  for (i = GMLK_FIRST_STREAM; i < l->streams.count && count < GMLK_WAIT_EVENTS; i++) {
    const gmlk_stream *s = l->streams.items[i];
    if (gmlk_stream_needs_device_wait(s)) out = i;
    /* If it got no event, a capture forbids that, perhaps one that the driver alone knows of. */
    if (begins && gmlk_stream_has_work(s) && s->is_dirty)
      p->is_partial |= l->streams.capture_count || !gmlk_stream_needs_device_wait(s);
    if (!begins && s->fence_count && s->fences[0].serial <= p->last) streams[count++] = i;
  }
  if (begins) return result;
  if (count) return gmlk_wait_for_any(l, streams, count);
  p->is_over = !out || p->has_waited_whole || l->streams.capture_count;
  if (p->is_over) return GMLAKE_OK;
  p->has_waited_whole = 1;
  result = gmlk_wait_for_device(l, out);
  gmlk_take_back(l);
  return result;
}

/* Makes the host wait for what was freed on all streams but those that a capture forbids to wait
   for. */
static gmlake_result gmlk_wait_for_others(gmlake *l) {
  gmlk_host_wait p = {0, 0, 0, 0, 0};
  gmlake_result result = GMLAKE_OK;
  while (!result && !p.is_over) result = gmlk_wait_on(l, &p);
  return result;
}

/* The same for all that is queued on every stream. */
static gmlake_result gmlk_wait_for_all(gmlake *l) {
  const int can_wait = GMLK_HAS(&l->driver, device_wait);
  size_t i;
  for (i = GMLK_FIRST_STREAM; i < l->streams.count; i++) {
    gmlk_stream *s = l->streams.items[i];
    if (gmlk_stream_is_named(s) && (can_wait || !s->may_end)) s->is_dirty = GMLK_DIRTY;
  }
  return gmlk_wait_for_others(l);
}

/* ---- waits on the device ---- */

/* Whether `waiter` has to be made to wait for work of a stream. waiter 0 is GMLAKE_STREAM_NONE:
   then it means that the host would have to wait. */
static int gmlk_has_to_wait_for(const gmlake *l, unsigned waiter, unsigned stream, uint64_t epoch) {
  const gmlk_stream *w = waiter ? l->streams.items[waiter] : NULL;
  return stream != waiter && !gmlk_tag_done(&l->streams, stream, epoch) &&
         !(w && w->waited == stream && w->waited_epoch >= epoch);
}

/* The same for all work on a block that it may take: free, or pending, or a piece of such. */
static int gmlk_has_to_wait(const gmlake *l, unsigned waiter, gmlk_block *b) {
  const gmlk_block *user = gmlk_user_block(b);
  const gmlk_extra *extra = user->state == GMLK_PENDING ? user->as.extra : NULL;
  size_t i;
  if (!extra) return gmlk_has_to_wait_for(l, waiter, b->stream, b->u.epoch);
  for (i = 0; i < extra->used_count; i++)
    if (gmlk_has_to_wait_for(l, waiter, extra->used[i].stream, extra->used[i].epoch)) return 1;
  return gmlk_has_to_wait_for(l, waiter, extra->stream, extra->epoch);
}

/* Makes work queued on `waiter` from now on start after this work, if it has to.
   OUT_OF_DEVICE_MEMORY: the memory cannot be had, as the wait is forbidden or there is no fence to
   wait for. */
static gmlake_result gmlk_wait_for_work(gmlake *l, gmlk_batch *batch, unsigned waiter,
                                        unsigned stream, uint64_t epoch) {
  const gmlake_backend *backend = l->driver.backend;
  const uint64_t before = backend->clock_ns(backend->user);
  gmlk_streams *streams = &l->streams;
  gmlk_stream *w = streams->items[waiter], *s = streams->items[stream];
  const gmlk_fence *fence;
  gmlake_result result;
  if (!gmlk_has_to_wait_for(l, waiter, stream, epoch)) return GMLAKE_OK;
  if (w->capture || (!w->value && streams->capture_count)) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  if (!gmlk_stream_covering(s, epoch)) (void)gmlk_stream_fence(streams, batch, stream, 0);
  fence = gmlk_stream_covering(s, epoch);
  if (!fence) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  result = GMLK_CALL(batch, stream_wait, w->value, fence->event);
  if (result) return result;
  w->waited = stream;
  w->waited_epoch = fence->epoch;
  l->stats.stream_wait_count++;
  gmlk_tell_wait(l, waiter, backend->clock_ns(backend->user) - before,
                 "this stream waits on the device for another one's work");
  return GMLAKE_OK;
}

/* Makes free memory of all pending blocks that a range has a part of, before their uses are
   complete: the waiter waits for these on the device, and the memory is its own. */
static gmlake_result gmlk_wait_for_pending(gmlake *l, gmlk_batch *batch, unsigned waiter,
                                           const gmlk_arena *a, const gmlk_piece *piece) {
  gmlk_stream *s = l->streams.items[waiter];
  gmlk_block *b = gmlk_locate(a, piece->at);
  while (b->at < piece->at + piece->grains) {
    const uint32_t at = b->at;
    gmlk_extra *extra;
    gmlake_result result;
    size_t i;
    if (gmlk_user_block(b)->state != GMLK_PENDING) {
      b = b->next;
      continue;
    }
    extra = gmlk_user_block(b)->as.extra;
    result = gmlk_wait_for_work(l, batch, waiter, extra->stream, extra->epoch);
    for (i = 0; i < extra->used_count && !result; i++)
      result = gmlk_wait_for_work(l, batch, waiter, extra->used[i].stream, extra->used[i].epoch);
    if (result) return result;
    for (i = 0; i < extra->used_count; i++) /* those in queues leave them; the record goes */
      if (extra->used[i].extra) gmlk_link_remove(&extra->used[i].link);
    extra->stream = waiter;
    extra->epoch = s->epoch;
    s->is_dirty = GMLK_DIRTY;
    gmlk_pending_end(l, extra);
    b = gmlk_locate(a, at); /* it may have merged with what is before it */
  }
  return GMLAKE_OK;
}

/* Makes the waiter wait on the device for the other streams whose tags these reserved blocks carry:
   once for each stream, for its newest epoch among them. */
static gmlake_result gmlk_wait_for_range(gmlake *l, gmlk_batch *batch, unsigned waiter,
                                         gmlk_block *first, uint32_t grains) {
  uint32_t end = first->at + grains;
  gmlk_block *b = first, *other;
  gmlake_result result = GMLAKE_OK;
  for (; b->at < end && !result; b = b->next) {
    uint64_t epoch = b->u.epoch;
    for (other = first; other->stream != b->stream;) other = other->next;
    if (other != b) continue; /* that one's wait was for both */
    for (; other->at < end; other = other->next)
      if (other->stream == b->stream && other->u.epoch > epoch) epoch = other->u.epoch;
    result = gmlk_wait_for_work(l, batch, waiter, b->stream, epoch);
  }
  return result;
}

/* Reserves pieces for the requester, and makes its stream wait on the device for the work that
   still uses them. On an error they are not reserved. pre: two records are at hand for each piece;
   the requester may have them. */
static gmlake_result gmlk_pieces_reserve(gmlake *l, gmlk_arena *a, gmlk_requester requester,
                                         gmlk_piece *pieces, uint32_t count) {
  const gmlk_stream *s = requester.may_wait ? l->streams.items[requester.stream] : NULL;
  gmlake_result result = GMLAKE_OK;
  gmlk_batch batch;
  uint32_t i;
  if (s) result = gmlk_batch_begin(l, &batch, 0);
  for (i = 0; i < count && s && !result; i++)
    result = gmlk_wait_for_pending(l, &batch, requester.stream, a, &pieces[i]);
  if (s && !result && s->is_dirty && s->may_end)
    result = gmlk_stream_fence(&l->streams, &batch, requester.stream, 1);
  for (i = 0; i < count && !result; i++)
    pieces[i].block =
        gmlk_reserve_range(a, gmlk_locate(a, pieces[i].at), pieces[i].at, pieces[i].grains);
  if (s && !result) {
    for (i = 0; i < count && !result; i++)
      result = gmlk_wait_for_range(l, &batch, requester.stream, pieces[i].block, pieces[i].grains);
    if (result) gmlk_pieces_unreserve(a, pieces, count);
  }
  if (s) (void)gmlk_batch_end(l, &batch);
  return result;
}

/* ---- >>pages ----------------------------------------------------------------------------------
   gmlake_buffer: a range of addresses, parts of which are memory. A page is one chunk's worth of
   these addresses; it is committed or not. The chunks belong to the blocks' arena if they are as
   large as its own, and else to a bare one, of which no chunk has a home address. Either's tiling
   and tags say who owns a chunk and what may still use it, as for blocks; buffers map it where they
   need it. Owns the buffers' records and their pages.
   pre: the caller holds `driver_lock`, except for what needs no driver call on a buffer that is not
   busy.

   [B1] `count` pages are committed, none of them behind the buffer's end. Such a page is mapped.
        Its chunk is one block of state GMLK_COMMITTED, and that of no other committed page.
   [B2] Another page is empty, or it is still mapped, with the tag of the last use through it;
        another page, or blocks, may own the chunk. It is unmapped only when that use is complete.
   [B4] A destroyed buffer has count 0 and its end at 0. It stays in the arena's list until all its
        pages are empty.
   [B5] A buffer's address space has room for max_bytes; its pages lie there in order.
   A page is quarantined after a growth that failed if the driver refused to unmap it again; it is
   unmapped before it is used again.
   Costs: those of >>alias, else O(chunks). Can fail: host memory, the driver. */

static uint64_t gmlk_buffer_address(const gmlake_buffer *b) {
  return gmlk_area_address(&b->arena->buffer_space.area, b->va->at * b->arena->chunk_bytes);
}

/* Whether the requester may have all of the chunk in a slot. */
static int gmlk_slot_suits(const gmlake *l, const gmlk_arena *a, uint32_t slot,
                           gmlk_requester requester) {
  const uint32_t end = (slot + 1) << a->chunk_log;
  const gmlk_block *b = a->firsts[slot];
  while (b->at < end && gmlk_may_take(&l->streams, requester, b)) b = b->next;
  return b->at >= end;
}

/* The number of chunks, and of pages, for so many bytes of a buffer. */
static uint32_t gmlk_buffer_count(const gmlake_buffer *b, size_t bytes) {
  size_t chunk = b->arena->chunk_bytes;
  return (uint32_t)(bytes / chunk + (bytes % chunk != 0));
}

static int gmlk_is_committed(const gmlake_buffer *b, uint32_t i) {
  return i < b->page_count && b->pages[i].state == GMLK_ALIAS_LIVE;
}

/* How many pages of [from, to) are committed. */
static uint32_t gmlk_pages_committed(const gmlake_buffer *b, uint32_t from, uint32_t to) {
  uint32_t count = 0;
  for (; from < to; from++) count += (uint32_t)gmlk_is_committed(b, from);
  return count;
}

/* The bytes that the user asked for: what is committed, except what lies behind the end. */
static size_t gmlk_buffer_asked(const gmlake_buffer *b) {
  size_t chunk = b->arena->chunk_bytes, tail = b->bytes % chunk;
  size_t slack = tail && gmlk_is_committed(b, (uint32_t)(b->bytes / chunk)) ? chunk - tail : 0;
  return b->count * chunk - slack;
}

/* Makes records for the pages of [0, count), and for more; 0: no host memory. */
static int gmlk_pages_ensure(gmlake *l, gmlake_buffer *b, uint32_t count) {
  uint32_t i = b->page_count;
  size_t capacity = i;
  if (count <= i) return 1;
  if (!gmlk_host_grow(&l->host, &b->pages, &capacity, count - 1, sizeof(gmlk_alias))) return 0;
  b->page_count = (uint32_t)capacity;
  for (; i < b->page_count; i++) {
    b->pages[i].address = gmlk_buffer_address(b) + (uint64_t)i * b->arena->chunk_bytes;
    b->pages[i].chunk_count = 1;
  }
  return 1;
}

static void gmlk_buffer_free(gmlake *l, gmlake_buffer *b) {
  gmlk_host_free(&l->host, b->pages, b->page_count * sizeof(gmlk_alias));
  gmlk_host_free(&l->host, b, sizeof(gmlake_buffer));
}

/* Unmaps and frees destroyed buffers whose uses are known to be complete: at most `limit` that need
   the driver. Never waits. */
static gmlake_result gmlk_buffers_reap(gmlake *l, gmlk_arena *a, size_t limit) {
  gmlake_buffer **link = &a->buffers, *b;
  gmlake_result result = GMLAKE_OK;
  while (a->sleep < GMLK_ASLEEP && (b = *link) != NULL && limit) {
    gmlk_alias *list = NULL;
    int is_done = b->lake == NULL;
    uint32_t i;
    for (i = 0; i < b->page_count && is_done; i++) { /* what it still maps */
      if (!b->pages[i].state) continue;
      is_done = gmlk_alias_is_done(l, &b->pages[i]);
      gmlk_alias_give_up(a, &b->pages[i], &list);
    }
    if (!is_done) {
      link = &b->next;
      continue;
    }
    limit -= list != NULL;
    result = gmlk_aliases_unmap(l, a, list);
    if (result) break;
    *link = b->next;
    a->destroyed_count--;
    gmlk_va_give(&a->buffer_space, &l->records, b->va);
    gmlk_buffer_free(l, b);
  }
  return result;
}

/* Takes a buffer out of the lake's figures, by -1, while it changes, and puts it back, by 1. */
static void gmlk_buffer_figure(gmlake *l, const gmlake_buffer *b, int by) {
  const size_t bytes = b->count * b->arena->chunk_bytes * (size_t)by;
  l->stats.buffer_bytes += bytes;
  l->stats.active_bytes += bytes;
  l->stats.requested_bytes += gmlk_buffer_asked(b) * (size_t)by;
  l->stats.buffer_bytes_peak = gmlk_max(l->stats.buffer_bytes_peak, l->stats.buffer_bytes);
  l->stats.active_bytes_peak = gmlk_max(l->stats.active_bytes_peak, l->stats.active_bytes);
  l->stats.requested_bytes_peak = gmlk_max(l->stats.requested_bytes_peak, l->stats.requested_bytes);
}

/* Gives a chunk, whose blocks are reserved or owned, to a page. */
static void gmlk_page_commit(gmlk_arena *a, gmlk_block *block) {
  block = gmlk_join_as(a, block, a->chunk_grains, GMLK_COMMITTED);
  block->stream = GMLK_CLEAN;
}

/* ---- >>grow ------------------------------------------------------------------------------------
   Creates chunks (the paper's Alloc) and returns them to the driver (trim). Only three other
   sections do that: >>pools returns all chunks of an arena that it closes, >>sleep releases and
   creates those of arenas that sleep and wake, >>sharing imports some. Owns nothing.
   pre: the caller holds `driver_lock`.
   Costs: the driver's, for each chunk, and 1 ns a slot where some between others are empty. Can
   fail: host memory, the driver, limits. */

#define GMLK_GAP_TRIES 64u /* gaps of the home range that growth looks at, the lowest first */

/* Whether new chunks may fill a slot: it is unbacked, or a dry run has marked it to be returned. */
static int gmlk_slot_is_open(const gmlk_arena *a, uint32_t slot) {
  return a->chunks.items[slot].is_marked ||
         (!gmlk_chunk_is_backed(&a->chunks, slot) && a->firsts[slot]->state == GMLK_UNBACKED);
}

/* The first slot from here on that is open, or that is not; or the one behind the last. */
static uint32_t gmlk_slot_from(const gmlk_arena *a, uint32_t slot, int is_open) {
  while (slot < a->slot_count && gmlk_slot_is_open(a, slot) != is_open) slot++;
  return slot;
}

/* The slot behind all that has memory. */
static uint32_t gmlk_slots_end(const gmlk_arena *a) {
  uint32_t slot = a->slot_count;
  while (slot && gmlk_slot_is_open(a, slot - 1)) slot--;
  return slot;
}

typedef struct gmlk_room { /* slots side by side that new chunks may fill: a gap, or all behind */
  uint32_t slot, count;
  uint32_t before, after; /* grains of the usable free runs beside it: new chunks make one run with
                             them. The one before counts from its first aligned grain on */
} gmlk_room;

/* Whether a block makes one run with new chunks. HOST_WAIT: it is a dry run. */
static int gmlk_is_usable(const gmlake *l, const gmlk_requester *by, const gmlk_block *b) {
  return by->may_wait ? gmlk_may_take(&l->streams, *by, b) : gmlk_has_tag(b, GMLK_CLEAN);
}

/* In a dry run: what is marked is memory no more. So the free grains before `slot` begin, and those
   behind `stop` end, at the nearest marked slot. */
static void gmlk_room_cut(const gmlk_arena *a, uint32_t slot, uint32_t stop, uint32_t *at,
                          uint32_t *end) {
  while (slot > *at >> a->chunk_log && !gmlk_slot_is_open(a, slot - 1)) slot--;
  while (stop << a->chunk_log < *end && !gmlk_slot_is_open(a, stop)) stop++;
  *at = (uint32_t)gmlk_max(*at, slot << a->chunk_log);
  *end = (uint32_t)gmlk_min(*end, stop << a->chunk_log);
}

/* The first room from this slot on. The last one, behind all that has memory, may have no slot
   left. `by` is for whom chunks are created, NULL: for a piece of their own. */
static gmlk_room gmlk_room_from(const gmlake *l, const gmlk_arena *a, const gmlk_requester *by,
                                uint32_t align, uint32_t from) {
  const uint32_t slot = gmlk_slot_from(a, from, 1), stop = gmlk_slot_from(a, slot, 0);
  const uint32_t begin = slot << a->chunk_log;
  uint32_t at, end, limit = stop;
  gmlk_block *before = a->firsts[slot], *behind = a->firsts[stop];
  gmlk_room room;
  memset(&room, 0, sizeof(room));
  if (stop == a->slot_count && slot < a->area.limit) limit = a->area.limit;
  room.slot = slot;
  room.count = limit - slot;
  if (a->keeps_apart || !by) return room;
  if (before->at == begin) before = before->prev;
  while (gmlk_is_usable(l, by, before)) before = before->prev;
  while (gmlk_is_usable(l, by, behind)) behind = behind->next;
  at = before->at + before->grains;
  end = behind->at;
  if (by->stream && gmlk_has_tag(before, by->stream)) at = gmlk_run_of(a, before).at;
  if (by->stream && gmlk_has_tag(behind, by->stream)) end = gmlk_run_of(a, behind).end;
  if (by->may_wait) gmlk_room_cut(a, slot, stop, &at, &end);
  room.before = (begin - at) & ~(align - 1);
  room.after = end - (stop << a->chunk_log);
  return room;
}

/* The new chunks that make one run of `grains` there: at least one, since BestFit, which looks at
   few runs for aligned requests, may have missed a run that is long enough. 0: there is no room. */
static uint32_t gmlk_room_need(const gmlk_arena *a, const gmlk_room *room, uint32_t grains) {
  const uint32_t need = grains > room->before ? gmlk_chunks_for(a, grains - room->before) : 1;
  const uint64_t all = ((uint64_t)room->count << a->chunk_log) + room->before + room->after;
  if (need <= room->count) return need;
  return all >= grains ? room->count : 0; /* fills it, so the run behind it counts too */
}

/* Finds the fewest new chunks that make one run of `grains`: behind the last slot, or in a gap.
   Looks at the GMLK_GAP_TRIES lowest gaps, and at more of them only until one is found. Returns no
   slot where there is no room. */
static gmlk_slots gmlk_growth_contiguous(const gmlake *l, const gmlk_arena *a,
                                         const gmlk_requester *by, uint32_t grains,
                                         uint32_t align) {
  gmlk_room room = gmlk_room_from(l, a, by, align, gmlk_slots_end(a));
  uint32_t best = gmlk_room_need(a, &room, grains), slot = room.slot, end = slot, need;
  uint32_t left = by && by->may_wait ? a->slot_count : a->gap_count;
  unsigned tries = 0;
  gmlk_slots list;
  if (!best) { /* in another extent: the free tail is not next to it */
    best = gmlk_chunks_for(a, grains);
    slot = gmlk_area_next(&a->area, best);
    if (slot == GMLK_NOWHERE) best = 0;
  }
  for (room.slot = room.count = 0; left-- && (tries++ < GMLK_GAP_TRIES || !best);) {
    room = gmlk_room_from(l, a, by, align, room.slot + room.count);
    if (room.slot == end) break;
    need = gmlk_room_need(a, &room, grains);
    if (!need || (best && (need > best || (need == best && slot < room.slot)))) continue;
    best = need;
    slot = room.slot;
    if (need == 1) break; /* fewer is not possible */
  }
  for (list = gmlk_slots_in(a->scratch); best; best--) gmlk_slots_add(&list, slot++);
  return list;
}

/* Finds slots for so many chunks that need not lie side by side: the lowest gaps, then the end.
   Returns no slot where there is no room. */
static gmlk_slots gmlk_growth_anywhere(const gmlk_arena *a, uint32_t count) {
  gmlk_slots list = gmlk_slots_in(a->scratch);
  uint32_t slot = 0, left = a->gap_count;
  for (; left && list.count < count; left--)
    for (slot = gmlk_slot_from(a, slot, 1);
         slot < a->slot_count && gmlk_slot_is_open(a, slot) && list.count < count; slot++)
      gmlk_slots_add(&list, slot);
  for (slot = a->slot_count; slot < a->area.limit && list.count < count; slot++)
    gmlk_slots_add(&list, slot);
  slot = gmlk_area_next(&a->area, count - list.count);
  while (list.count < count && slot != GMLK_NOWHERE) gmlk_slots_add(&list, slot++);
  return list.count == count ? list : gmlk_slots_in(a->scratch);
}

/* Creates chunks in the slots and maps them at home. */
static gmlake_result gmlk_chunks_make(gmlk_batch *batch, gmlk_arena *a, const gmlk_slots *slots) {
  gmlake_result result = batch->result;
  uint32_t i, end;
  for (i = 0; i < slots->count && !result; i++) result = gmlk_chunk_make(batch, a, slots->items[i]);
  for (i = 0; i < slots->count && !result && !a->is_bare; i = end) { /* a call for each row */
    end = gmlk_slots_row(slots, i);
    result = gmlk_batch_set_access(batch, gmlk_home(a, slots->items[i] << a->chunk_log),
                                   (size_t)(end - i) * a->chunk_bytes);
  }
  return result;
}

/* Block records that entering these slots may take: one for the new end, two for each range. */
static size_t gmlk_growth_records(const gmlk_slots *slots) {
  size_t records = 1;
  uint32_t i;
  for (i = 0; i < slots->count; i = gmlk_slots_row(slots, i)) records += 2;
  return records;
}

/* Creates chunks in the slots, or imports them, and makes them clean free memory. On an error
   undoes it. pre: the slots have addresses, and room in the tables. imports: so many handles, or
   NULL; then the records are left that the block over them takes. */
static gmlake_result gmlk_slots_fill(gmlake *l, gmlk_arena *a, const gmlk_slots *slots,
                                     const gmlake_handle *imports, gmlk_batch *batch) {
  const size_t records = gmlk_growth_records(slots) + (imports ? 2 : 0);
  const size_t held = l->stats.reserved_bytes;
  gmlake_result result;
  uint32_t i, end;
  memset(batch, 0, sizeof(*batch));
  if (!gmlk_records_ensure(&l->records, &l->host, records)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  l->records.set_aside += records;
  (void)gmlk_batch_begin(l, batch, GMLK_UNLOCKED);
  batch->imports = imports;
  result = gmlk_chunks_make(batch, a, slots);
  for (i = slots->count; result && batch->has_begun && i--;) /* undoes it in reverse */
    if (a->chunks.items[slots->items[i]].handle && !gmlk_chunk_return(batch, a, slots->items[i]))
      gmlk_chunk_quarantine(&a->chunks, slots->items[i]);
  result = gmlk_batch_end(l, batch);
  l->records.set_aside -= records;
  if (result) {
    (void)gmlk_tell_held(l, held, batch->ns,
                         "growth failed, and the driver refused to take chunks back");
    return result;
  }
  gmlk_arena_extend(a, slots->items[slots->count - 1] + 1);
  for (i = 0; i < slots->count; i = end) {
    end = gmlk_slots_row(slots, i);
    if (l->desc.flags & GMLAKE_FILL && !a->is_bare && !imports)
      memset((void *)(uintptr_t)gmlk_home(a, slots->items[i] << a->chunk_log), GMLAKE_FILL_FREE,
             (end - i) * a->chunk_bytes);
    gmlk_arena_back(a, slots->items[i], end - i);
  }
  return GMLAKE_OK;
}

typedef struct gmlk_headroom { /* what an arena may grow into */
  size_t free_bytes;           /* the driver's; SIZE_MAX: it was not asked */
  size_t returned_bytes;       /* that other arenas return before, */
  size_t own_bytes;            /* and those of the same pool among them */
} gmlk_headroom;

struct gmlk_dry_run { /* of a request that is only asked about */
  gmlake_query_info answer;
  gmlk_headroom headroom; /* for growth */
};

/* Before it creates so many chunks the lake asks the driver for its free memory, which costs less
   than creating them in vain. */
#define GMLK_GROWTH_ASKED 64u

/* What a limit leaves beside what is held. limit 0: there is none. */
static size_t gmlk_limit_left(size_t limit, size_t held) {
  return limit ? limit - gmlk_min(limit, held) : SIZE_MAX;
}

/* The bytes that a pool holds: for its blocks, and for its buffers of each chunk size. */
static size_t gmlk_pool_bytes(const gmlake *l, const gmlake_pool *pool) {
  const gmlk_arena *a;
  size_t bytes = 0;
  GMLK_FOR_POOL_ARENAS(l, pool, a) bytes += a->backed_bytes;
  return bytes;
}

/* Whether limits and the room allow new chunks of so many bytes. */
static gmlake_result gmlk_growth_fits(const gmlake *l, gmlk_request *r, size_t bytes,
                                      const gmlk_headroom *headroom) {
  const gmlk_arena *a = r->arena;
  const size_t free_bytes = headroom->free_bytes + headroom->returned_bytes;
  r->limit_bytes = l->desc.limit_bytes;
  if (bytes > gmlk_limit_left(r->limit_bytes, l->stats.reserved_bytes - headroom->returned_bytes))
    return GMLAKE_ERROR_LIMIT_REACHED;
  r->limit_bytes = a->limit_bytes;
  if (r->limit_bytes &&
      bytes > gmlk_limit_left(r->limit_bytes, gmlk_pool_bytes(l, a->owner) - headroom->own_bytes))
    return GMLAKE_ERROR_LIMIT_REACHED;
  r->limit_bytes = 0;
  if (bytes > free_bytes) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  return free_bytes - bytes < l->desc.driver_free_bytes_min ? GMLAKE_ERROR_LIMIT_REACHED
                                                            : GMLAKE_OK;
}

/* The same for a growth. The driver is asked only if desc.driver_free_bytes_min is set, or for many
   chunks, which else might be created in vain. */
static gmlake_result gmlk_growth_allowed(gmlake *l, gmlk_request *r, size_t bytes) {
  const size_t asked_bytes = GMLK_GROWTH_ASKED * r->arena->chunk_bytes;
  gmlk_headroom headroom = {SIZE_MAX, 0, 0};
  size_t total_bytes = 0;
  gmlake_result result;
  if (l->dry_run) return gmlk_growth_fits(l, r, bytes, &l->dry_run->headroom);
  result = gmlk_growth_fits(l, r, bytes, &headroom);
  if (result || (!l->desc.driver_free_bytes_min && bytes < asked_bytes)) return result;
  result = gmlk_ask_memory(l, &headroom.free_bytes, &total_bytes);
  return result ? result : gmlk_growth_fits(l, r, bytes, &headroom);
}

/* Creates chunks in the slots, if limits and the device allow it. A dry run says whether. */
static gmlake_result gmlk_grow_slots(gmlake *l, gmlk_request *r, const gmlk_slots *slots) {
  gmlk_arena *a = r->arena;
  const size_t bytes = slots->count * a->chunk_bytes, held = l->stats.reserved_bytes;
  gmlk_batch batch;
  gmlake_result result = gmlk_growth_allowed(l, r, bytes);
  if (l->dry_run) {
    l->dry_run->answer.new_bytes = bytes;
    return result;
  }
  if (!result) result = gmlk_arena_extend_to(l, a, slots->items[slots->count - 1]);
  if (!result) result = gmlk_slots_fill(l, a, slots, NULL, &batch);
  if (result) return result;
  gmlk_tell(l, r, GMLAKE_STEP_GROW, r->desc ? gmlk_home(a, slots->items[0] << a->chunk_log) : 0,
            l->stats.reserved_bytes - held, batch.ns, "the lake created chunks");
  return GMLAKE_OK;
}

/* Gets host memory to list and enter so many more slots. */
static int gmlk_grow_ensure(gmlk_arena *a, uint64_t more) {
  size_t slots = (size_t)(a->slot_count + more);
  if (slots > a->area.limit) /* in another extent */
    slots = (size_t)gmlk_min(a->area.limit + 1 + more, a->area.most);
  return gmlk_arena_reserve_slots(a, slots) && gmlk_scratch_ensure(a, slots);
}

/* S4's Alloc: creates what a request lacks. One contiguous range, if it needs at most one chunk
   more than a window does: what is left of it serves later requests. Else, and if memory is too
   short for that, the shortfall alone, wherever there are slots. r->shortfall 0: no window can be
   made. */
static gmlake_result gmlk_grow(gmlake *l, gmlk_request *r, gmlk_requester requester,
                               gmlk_plan *plan) {
  gmlk_arena *a = r->arena;
  const uint32_t missing = gmlk_chunks_for(a, r->shortfall);
  uint32_t spare = 1;
  gmlake_result result;
  memset(plan, 0, sizeof(*plan));
  for (;; spare--) {
    if (!gmlk_grow_ensure(a, gmlk_chunks_for(a, r->grains))) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    plan->how = GMLK_RANGE;
    plan->slots = gmlk_growth_contiguous(l, a, &requester, r->grains, r->align);
    if (missing && (!plan->slots.count || plan->slots.count > missing + spare)) {
      plan->how = GMLK_STITCH;
      plan->slots = gmlk_growth_anywhere(a, missing);
    }
    if (!plan->slots.count) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY; /* no address space */
    result = gmlk_grow_slots(l, r, &plan->slots);
    if (!gmlk_is_shortage(result) || !missing || plan->slots.count <= missing || !spare)
      return result;
  }
}

/* ---- trim ---- */

/* Tells whether one of an alias's chunks has a mark; with sets, gives one to all. */
static int gmlk_alias_marks(gmlk_arena *a, const gmlk_alias *x, int sets) {
  uint32_t i, slot, left;
  int has = 0;
  for (i = 0; (left = gmlk_alias_row(a, x, i, &slot)) != 0; i++)
    for (; left--; slot++) {
      has |= a->chunks.items[slot].is_marked;
      a->chunks.items[slot].is_marked |= (uint8_t)sets;
    }
  return has;
}

typedef enum gmlk_which {
  GMLK_WHICH_ANY,
  GMLK_WHICH_MARKED,   /* those of chunks with a mark */
  GMLK_WHICH_UNMAPPED, /* those that are not mapped, in an arena that sleeps */
  GMLK_WHICH_QUARANTINED
} gmlk_which;

/* Gives up an arena's idle and quarantined aliases, but those that captures know. pre: no work uses
   them any more: the caller has waited for all of it, or has chosen chunks that nothing uses. */
static gmlk_alias *gmlk_aliases_idle(gmlk_arena *a, gmlk_which which) {
  gmlk_walk walk = gmlk_walk_of(a);
  gmlk_alias *x, *list = NULL;
  while ((x = gmlk_walk_next(&walk)) != NULL)
    if (x->state >= GMLK_ALIAS_IDLE && x->stream != GMLK_GRAPH_OWNED &&
        (which != GMLK_WHICH_MARKED || gmlk_alias_marks(a, x, 0)) &&
        (which != GMLK_WHICH_UNMAPPED || !x->mapped) &&
        (which != GMLK_WHICH_QUARANTINED || x->state == GMLK_ALIAS_QUARANTINED))
      gmlk_alias_give_up(a, x, &list);
  return list;
}

static inline gmlk_requester gmlk_requester_of(unsigned stream, gmlake_wait may_wait) {
  gmlk_requester requester;
  requester.stream = stream;
  requester.may_wait = may_wait;
  return requester;
}

/* Clears all marks. */
static void gmlk_trim_forget(gmlk_arena *a) {
  uint32_t slot;
  for (slot = 0; slot < a->slot_count; slot++) a->chunks.items[slot].is_marked = 0;
}

/* The trimmer is the requester for which trim looks for free chunks: it may have what is clean;
   with HOST_WAIT also what is clean once the host has waited. Marks the chunks that a quarantined
   window or page maps, or one whose last use is not complete for the trimmer. */
static void gmlk_trim_mark_used(const gmlake *l, gmlk_arena *a, gmlk_requester trimmer) {
  gmlk_walk walk = gmlk_walk_of(a);
  const gmlk_alias *x;
  while ((x = gmlk_walk_next(&walk)) != NULL)
    if (x->state == GMLK_ALIAS_QUARANTINED ||
        (x->state == GMLK_ALIAS_IDLE && !gmlk_may_await(&l->streams, trimmer, x->stream, x->epoch)))
      (void)gmlk_alias_marks(a, x, 1);
}

/* Chooses, marks and lists at most so many chunks to return, the highest first: free for the
   trimmer, and used through no window or page. None of an arena that sleeps, or is kept. pre:
   scratch has room for all slots. */
static gmlk_slots gmlk_trim_choose(const gmlake *l, gmlk_arena *a, gmlk_requester trimmer,
                                   size_t most) {
  gmlk_slots chosen = gmlk_slots_in(a->scratch);
  uint32_t i, slot = a->sleep < GMLK_ASLEEP && !a->is_kept ? a->slot_count : 0;
  if (!slot) return chosen;
  gmlk_small_reserve_end(a);
  gmlk_trim_mark_used(l, a, trimmer);
  while (slot-- && chosen.count < most)
    if (!a->chunks.items[slot].is_marked && gmlk_slot_suits(l, a, slot, trimmer))
      gmlk_slots_add(&chosen, slot);
  gmlk_trim_forget(a);
  for (i = 0; i < chosen.count; i++) a->chunks.items[chosen.items[i]].is_marked = 1;
  return chosen;
}

/* Reserves the chosen chunks, which are clean. pre: two records are at hand for each. */
static void gmlk_trim_reserve(gmlk_arena *a, const gmlk_slots *slots) {
  uint32_t i;
  for (i = 0; i < slots->count; i++)
    (void)gmlk_reserve_range(a, a->firsts[slots->items[i]], slots->items[i] << a->chunk_log,
                             a->chunk_grains);
}

/* Writes down what became of the chosen chunks. */
static void gmlk_trim_commit(gmlk_arena *a, const gmlk_slots *slots) {
  uint32_t i;
  for (i = 0; i < slots->count; i++) {
    uint32_t slot = slots->items[i];
    gmlk_block *first = a->firsts[slot];
    a->chunks.items[slot].is_marked = 0;
    if (gmlk_chunk_is_backed(&a->chunks, slot)) /* the driver has not unmapped it */
      gmlk_unreserve_range(a, first, a->chunk_grains);
    else if (a->chunks.items[slot].is_shared)
      (void)gmlk_join_as(a, first, a->chunk_grains, GMLK_GONE);
    else
      gmlk_arena_unback(a, gmlk_join_as(a, first, a->chunk_grains, GMLK_RESERVED));
  }
}

/* Returns free chunks of one arena whose work is complete: `bytes`, or little more. */
static gmlake_result gmlk_trim_arena(gmlake *l, gmlk_arena *a, size_t bytes, size_t *released) {
  const gmlk_requester trimmer = gmlk_requester_of(GMLK_CLEAN, GMLAKE_NO_WAIT);
  const size_t held = l->stats.reserved_bytes;
  gmlk_alias *dying = NULL;
  gmlk_batch batch;
  gmlk_slots slots;
  gmlake_result result;
  uint32_t i;
  if (!gmlk_scratch_ensure(a, a->slot_count)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  slots = gmlk_trim_choose(l, a, trimmer, (bytes - 1) / a->chunk_bytes + 1);
  if (!slots.count) return GMLAKE_OK;
  if (!gmlk_records_ensure(&l->records, &l->host, 2 * (size_t)slots.count)) {
    gmlk_trim_forget(a);
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  }
  dying = gmlk_aliases_idle(a, GMLK_WHICH_MARKED);
  gmlk_trim_reserve(a, &slots);
  result = gmlk_aliases_unmap(l, a, dying);
  (void)gmlk_batch_begin(l, &batch, GMLK_UNLOCKED);
  for (i = 0; i < slots.count && !result && batch.has_begun; i++)
    if (!GMLK_NEVER(a->chunks.items[slots.items[i]].map_count)) /* [W6] */
      (void)gmlk_chunk_return(&batch, a, slots.items[i]);
  (void)gmlk_batch_end(l, &batch);
  gmlk_trim_commit(a, &slots);
  *released += gmlk_tell_held(l, held, batch.ns, "the lake returned free chunks to the driver");
  return batch.result ? batch.result : result;
}

static gmlk_piece gmlk_piece_with(uint32_t at, uint32_t grains) {
  gmlk_piece piece;
  piece.at = at;
  piece.grains = grains;
  piece.block = NULL;
  return piece;
}

/* The ranges of the home arena that a live block is made of. */
static const gmlk_piece *gmlk_pieces_of(const gmlk_block *b, gmlk_piece *whole, size_t *out_count) {
  const gmlk_window *w = gmlk_window_from_block(b);
  *whole = gmlk_piece_with(b->at, b->grains);
  *out_count = w ? w->piece_count : 1;
  return w ? w->pieces : whole;
}

/* Lists the chunks of a shared block in the arena's scratch; it has whole ones of its own. */
static gmlk_slots gmlk_block_slots(gmlk_arena *a, const gmlk_block *b) {
  gmlk_slots slots = gmlk_slots_in(a->scratch);
  const gmlk_piece *pieces;
  gmlk_piece whole;
  size_t count, i;
  uint32_t slot;
  pieces = gmlk_pieces_of(b, &whole, &count);
  for (i = 0; i < count; i++)
    for (slot = pieces[i].at >> a->chunk_log;
         slot < ((pieces[i].at + pieces[i].grains) >> a->chunk_log); slot++)
      gmlk_slots_add(&slots, slot);
  return slots;
}

/* Quarantines the chunks of a pending block that is shared, and what maps them: other processes may
   still use the memory, so it is never free. It stays pending while a window or page that maps one
   may still be in use. The caller goes on to gmlk_chunks_offer, which counts them. O(chunks), plus
   O(windows + pages). */
static gmlake_result gmlk_return_block(gmlake *l, gmlk_extra *extra) {
  gmlk_arena *a = l->arenas[extra->block->arena];
  const uint32_t count = gmlk_chunks_for(a, extra->block->grains);
  gmlk_slots slots;
  gmlk_alias *x;
  uint32_t i;
  int is_used = 0;
  if (!gmlk_records_ensure(&l->records, &l->host, 2 * (size_t)count) ||
      !gmlk_scratch_ensure(a, count))
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  slots = gmlk_block_slots(a, extra->block);
  gmlk_trim_mark_used(l, a, gmlk_requester_of(GMLK_CLEAN, GMLAKE_NO_WAIT));
  for (i = 0; i < count; i++) is_used |= a->chunks.items[slots.items[i]].is_marked;
  gmlk_trim_forget(a);
  if (is_used) return GMLAKE_OK;
  for (i = 0; i < count; i++) a->chunks.items[slots.items[i]].is_marked = 1;
  gmlk_pending_end(l, extra);
  for (x = gmlk_aliases_idle(a, GMLK_WHICH_MARKED); x; x = x->next) gmlk_alias_quarantine(a, x);
  gmlk_trim_reserve(a, &slots);
  for (i = 0; i < count; i++) gmlk_chunk_quarantine(&a->chunks, slots.items[i]);
  gmlk_trim_commit(a, &slots);
  return GMLAKE_OK;
}

/* Offers an arena's quarantined chunks to the driver, but those that something still maps. */
static gmlake_result gmlk_chunks_offer(gmlake *l, gmlk_arena *a, size_t *released) {
  gmlk_chunks *all = &a->chunks;
  const size_t held = l->stats.reserved_bytes;
  gmlk_batch batch;
  uint32_t slot;
  if (!all->quarantined_count) return GMLAKE_OK;
  (void)gmlk_batch_begin(l, &batch, GMLK_UNLOCKED);
  for (slot = 0; slot < all->capacity && batch.has_begun; slot++)
    if (all->items[slot].is_quarantined && !all->items[slot].map_count)
      (void)gmlk_chunk_return(&batch, a, slot);
  (void)gmlk_batch_end(l, &batch);
  for (slot = 0; slot < a->slot_count; slot++)
    if (a->firsts[slot]->state == GMLK_GONE && !all->items[slot].handle)
      gmlk_arena_unback(a, a->firsts[slot]);
  *released +=
      gmlk_tell_held(l, held, batch.ns, "the lake returned quarantined chunks to the driver");
  return batch.result;
}

/* Gives up what waits to go: shared blocks that are freed, destroyed buffers, what is quarantined;
   each once its work is known to be complete. What the driver refuses stays, and the next call
   offers it again. Returns the first error; only a fatal one ends it. */
static gmlake_result gmlk_release_poll(gmlake *l, size_t *released) {
  gmlake_result first = GMLAKE_OK, result;
  gmlk_link *link, *before;
  gmlk_arena *a;
  GMLK_FOR_ARENAS(l, a) {
    if (l->lost) break;
    for (link = a->pending.prev; !first && link != &a->pending; link = before) {
      gmlk_extra *extra = (gmlk_extra *)(void *)link;
      before = gmlk_is_return(extra) ? link->prev : &a->pending; /* [N5] */
      if (gmlk_is_return(extra)) first = gmlk_return_block(l, extra);
    }
    if (a->sleep >= GMLK_ASLEEP) continue;
    result = gmlk_buffers_reap(l, a, SIZE_MAX);
    if (!first) first = result;
    if (!l->lost && a->mapped.quarantined_bytes)
      result = gmlk_aliases_unmap(l, a, gmlk_aliases_idle(a, GMLK_WHICH_QUARANTINED));
    if (!first) first = result;
    if (!l->lost) result = gmlk_chunks_offer(l, a, released);
    if (!first) first = result;
  }
  return first;
}

/* Returns free chunks whose work is complete, of every arena, until at most keep_bytes are held. */
static gmlake_result gmlk_trim_arenas(gmlake *l, size_t keep_bytes, size_t *released) {
  gmlake_result result = l->lost;
  size_t i;
  for (i = l->arena_count; i-- && !result && l->stats.reserved_bytes > keep_bytes;)
    if (l->arenas[i])
      result = gmlk_trim_arena(l, l->arenas[i], l->stats.reserved_bytes - keep_bytes, released);
  return result;
}

/* The same, once what waits to go was offered to the driver. That it refuses this is no error. */
static gmlake_result gmlk_trim(gmlake *l, size_t keep_bytes, size_t *released) {
  gmlake_result result = gmlk_refresh(l, 1);
  if (result) return result;
  (void)gmlk_release_poll(l, released);
  return gmlk_trim_arenas(l, keep_bytes, released);
}

/* For whom other arenas return chunks: for a block, for a buffer, or for either in need. */
typedef enum gmlk_giving { GMLK_GIVE_BLOCK, GMLK_GIVE_BUFFER, GMLK_GIVE_ALL } gmlk_giving;

/* Whether an arena's free chunks are returned for the requester: if the arena has buffers, or the
   requester is a buffer; or, where memory is short, in any case. A pool's chunks are returned only
   for the same pool, unless memory is short. */
static int gmlk_gives(const gmlk_arena *a, const gmlk_arena *requester, gmlk_giving giving) {
  if (!a || a == requester || giving == GMLK_GIVE_ALL) return a && a != requester;
  return (a->buffer_space.holes || giving == GMLK_GIVE_BUFFER) &&
         (!a->owner || a->owner == requester->owner);
}

/* Returns up to `bytes` of other arenas' free chunks whose work is complete, before `requester`
   creates as many; those of its pool first, as that may have a limit. Only a fatal error counts.
   In a dry run it counts what would be returned, once the host has waited if `wait` says so. */
static gmlake_result gmlk_return_others(gmlake *l, const gmlk_arena *requester, gmlk_giving giving,
                                        size_t bytes, gmlake_wait wait) {
  const gmlk_requester trimmer =
      gmlk_requester_of(GMLK_CLEAN, wait == GMLAKE_HOST_WAIT ? GMLAKE_HOST_WAIT : GMLAKE_NO_WAIT);
  gmlk_headroom *headroom = l->dry_run ? &l->dry_run->headroom : NULL;
  gmlake_result result = GMLAKE_OK;
  size_t released = 0, i;
  if (headroom) headroom->returned_bytes = headroom->own_bytes = 0;
  for (i = 0; i < 2 * l->arena_count && released < bytes && !gmlk_is_fatal(result); i++) {
    gmlk_arena *a = l->arenas[i < l->arena_count ? i : i - l->arena_count];
    const size_t before = released;
    if (!gmlk_gives(a, requester, giving) || (a->owner == requester->owner) != (i < l->arena_count))
      continue;
    if (!headroom) {
      if (a->bins[GMLK_CLEAN]->grains >= a->chunk_grains)
        result = gmlk_trim_arena(l, a, bytes - released, &released);
      continue;
    }
    if (!gmlk_scratch_ensure(a, a->slot_count)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    released += a->chunk_bytes *
                gmlk_trim_choose(l, a, trimmer, (bytes - released - 1) / a->chunk_bytes + 1).count;
    gmlk_trim_forget(a);
    headroom->returned_bytes = released;
    if (i < l->arena_count) headroom->own_bytes += released - before;
  }
  return gmlk_is_fatal(result) ? result : GMLAKE_OK;
}

/* ---- >>small -----------------------------------------------------------------------------------
   The small-block reserve, see >>arena. Owns nothing of its own. O(1). Cannot fail. */

/* Whether the small-block reserve holds a small block of the stream. */
static int gmlk_small_reserve_hold(const gmlk_arena *a, unsigned stream, uint32_t grains) {
  const gmlk_block *small_reserve = a->small.reserve;
  return small_reserve && grains <= a->small.most && grains <= small_reserve->grains &&
         (small_reserve->stream == GMLK_CLEAN || small_reserve->stream == stream);
}

/* Sets so many grains of a hole aside, from `at` on, which b holds. pre: two records at hand. */
static void gmlk_small_reserve_begin(gmlk_arena *a, unsigned stream, gmlk_block *b, uint32_t at,
                                     uint32_t grains) {
  if (b->at + b->grains - at >= grains) stream = b->stream; /* else b's run is the stream's */
  a->small.reserve = gmlk_take(a, b, at, grains);
  a->small.reserve->state = GMLK_RESERVED;
  a->small.reserve->stream = (uint16_t)stream;
}

/* Serves a small block for which best fit has found nothing, or a hole at the arena's end: from the
   small-block reserve, if that holds it, or one can be set aside. NULL: there is no free range.
   pre: two records are at hand. */
static gmlk_block *gmlk_fast_small(gmlake *l, gmlk_request *r) {
  gmlk_arena *a = r->arena;
  const unsigned stream = r->requester.stream;
  const size_t device = l->device.device_bytes;
  const size_t most =
      gmlk_min((a->slot_count << a->chunk_log) / GMLK_SMALL_RESERVE_PART, a->chunk_grains / 2);
  gmlk_headroom headroom = {0, 0, 0};
  uint32_t at = 0, hole = 0;
  int begins = !gmlk_small_reserve_hold(a, stream, r->grains);
  gmlk_block *b = NULL;
  if (begins) { /* if the arena may grow by so many chunks that a part of its end is not missed */
    headroom.free_bytes = device - gmlk_min(device, l->stats.reserved_bytes);
    begins = a->area.most - a->slot_count >= GMLK_SMALL_RESERVE_FROM &&
             !gmlk_growth_fits(l, r, GMLK_SMALL_RESERVE_FROM * a->chunk_bytes, &headroom);
    r->limit_bytes = 0; /* nothing was refused */
  }
  while (begins) {
    b = gmlk_best_fit(a, stream, r->grains, 1, &at, &hole);
    begins = b && at + hole == a->end.at && gmlk_min(most, hole) / 2 >= r->grains;
    if (!begins || !a->small.reserve) break;
    gmlk_small_reserve_end(a);
  }
  if (begins) gmlk_small_reserve_begin(a, stream, b, at, (uint32_t)gmlk_min(most, hole));
  if (gmlk_small_reserve_hold(a, stream, r->grains)) {
    b = a->small.reserve;
    hole = b->grains;
    a->small.reserve = NULL;
    if (hole > r->grains) { /* it is cut from the reserve's front */
      b = gmlk_split(a, b, r->grains);
      a->small.reserve = b->next;
    }
  } else {
    b = gmlk_best_fit(a, stream, r->grains, 1, &at, &hole);
    if (!b) return NULL;
    b = gmlk_take(a, b, at, r->grains);
  }
  return gmlk_grant(l, r, b, hole, 0);
}

/* ---- >>research --------------------------------------------------------------------------------
   Asks desc.policy: builds a view, calls the policy with state_lock released, checks the answer and
   carries it out by functions of the sections above. Owns the memory of views. A free block that a
   policy keeps apart is marked GMLK_APART and joins no neighbour [A2].
   pre, but to ask `coalesce`: the caller holds `driver_lock`. With `choose` or `evict` every
   allocation holds it, so what was free before the policy was asked is free afterwards; other
   threads may free meanwhile.
   Costs: O(blocks + windows) a question. Can fail: host memory, as >>stitch and >>grow do, and
   with INVALID_ARGUMENT before anything has changed. */

struct gmlk_question { /* what a policy is asked, and its answer */
  gmlake_view view;
  gmlake_request request;
  gmlake_plan plan;
  gmlake_piece *pieces; /* room for plan.pieces, one more than view.block_count, and for one more:
                           what the plan creates */
  uint64_t *numbers;    /* room for the numbers of view.window_count windows to drop */
};

static void gmlk_view_fill(const gmlake *l, const gmlk_request *r, gmlake_piece *blocks,
                           gmlake_window_info *windows) {
  const gmlk_arena *a = r->arena;
  const gmlk_block *b;
  gmlk_window *w;
  for (b = a->begin.next; b != &a->end; b = b->next) {
    if (!gmlk_is_available(b, r->requester.stream)) continue;
    blocks->home = (void *)(uintptr_t)gmlk_home(a, b->at);
    blocks->bytes = b->grains * GMLK_GRAIN;
    blocks++;
  }
  for (w = a->windows.idle_first; w; w = w->idle_next, windows++) {
    windows->number = w->number;
    windows->bytes = w->self.grains * GMLK_GRAIN;
    windows->mapped_bytes = w->alias.chunk_count * a->chunk_bytes;
    windows->piece_count = w->piece_count;
    windows->is_free = r->may_stitch && gmlk_window_may_serve(&l->streams, r, r->requester, w);
    windows->is_complete = gmlk_alias_is_done(l, &w->alias);
  }
}

/* Fills in what a policy is shown for a request; 0: no host memory. */
static int gmlk_ask(gmlake *l, const gmlk_request *r, gmlk_question *q) {
  const gmlk_arena *a = r->arena;
  const gmlk_block *b;
  const gmlk_window *w;
  gmlake_piece *blocks;
  gmlake_window_info *windows;
  size_t bytes;
  memset(q, 0, sizeof(*q));
  for (b = a->begin.next; b != &a->end; b = b->next)
    q->view.block_count += (size_t)gmlk_is_available(b, r->requester.stream);
  for (w = a->windows.idle_first; w; w = w->idle_next) q->view.window_count++;
  bytes = (2 * q->view.block_count + 2) * sizeof(gmlake_piece) +
          q->view.window_count * (sizeof(gmlake_window_info) + sizeof(uint64_t));
  if (bytes > l->view.bytes &&
      !gmlk_host_resize(&l->host, &l->view.memory, &l->view.bytes, bytes * 2, 1))
    return 0;
  memset(l->view.memory, 0, bytes); /* so that what a policy forgets to write is 0 */
  windows = (gmlake_window_info *)l->view.memory;
  q->numbers = (uint64_t *)(void *)(windows + q->view.window_count);
  blocks = (gmlake_piece *)(void *)(q->numbers + q->view.window_count);
  q->pieces = blocks + q->view.block_count;
  gmlk_view_fill(l, r, blocks, windows);
  q->view.chunk_bytes = a->chunk_bytes;
  q->view.stitch_bytes_min = l->desc.stitch_bytes_min;
  q->view.stitched_bytes_max = l->desc.stitched_bytes_max;
  q->view.reserved_bytes = l->stats.reserved_bytes;
  q->view.stitched_bytes = l->stats.stitched_bytes;
  q->view.blocks = blocks;
  q->view.windows = windows;
  q->request.number = r->number;
  q->request.bytes = r->bytes;
  q->request.alignment = r->align * GMLK_GRAIN;
  q->request.flags = r->flags;
  q->request.stream = gmlk_stream_shown(l, r->stream);
  q->request.pool = a->pool;
  q->plan.pieces = q->pieces;
  q->plan.piece_capacity = q->view.block_count + 1;
  return 1;
}

/* ---- what is wrong with an answer: each returns the reason, or NULL ---- */

/* The grains of the arena that a piece is. pre: it lies in the arena. */
static gmlk_piece gmlk_piece_of(const gmlk_arena *a, const gmlake_piece *p) {
  const uint64_t offset = gmlk_area_offset(&a->area, (uint64_t)(uintptr_t)p->home);
  return gmlk_piece_with((uint32_t)(offset / GMLK_GRAIN), (uint32_t)(p->bytes / GMLK_GRAIN));
}

static const char *gmlk_piece_wrong(const gmlk_request *r, const gmlake_piece *p, int is_first,
                                    int is_last) {
  const gmlk_arena *a = r->arena;
  const uint64_t home = (uint64_t)(uintptr_t)p->home, end_bytes = a->end.at * GMLK_GRAIN;
  const uint64_t offset = gmlk_area_offset(&a->area, home);
  uint32_t end, edge = a->chunk_grains - 1;
  const gmlk_block *b;
  gmlk_piece piece;
  if (!p->bytes || (home | p->bytes) % GMLK_GRAIN)
    return "a piece's home or bytes is no multiple of 512, or bytes is 0";
  if (offset >= end_bytes || p->bytes > end_bytes - offset) return "a piece lies outside the arena";
  piece = gmlk_piece_of(a, p);
  end = piece.at + piece.grains;
  for (b = gmlk_locate(a, piece.at); b->at < end; b = b->next)
    if (!gmlk_is_available(b, r->requester.stream))
      return b->state == GMLK_EDGE
                 ? "a piece crosses from one of the arena's ranges of addresses into "
                   "the next: plan one piece for each block"
                 : "a piece is not free for the request";
  if ((!is_first || r->is_whole) && (piece.at & edge)) return "a piece begins inside a chunk";
  if ((!is_last || r->is_whole) && (end & edge)) return "a piece ends inside a chunk";
  if (is_first && (piece.at & (r->align - 1))) return "the first piece is not aligned";
  return NULL;
}

/* How many slots a window maps for a piece. */
static uint32_t gmlk_piece_chunks(const gmlk_arena *a, const gmlk_piece *piece) {
  return ((piece->at + piece->grains - 1) >> a->chunk_log) - (piece->at >> a->chunk_log) + 1;
}

/* The block of the view whose front the plan's piece is, or NULL. By now it may be larger. */
static const gmlake_piece *gmlk_former_of(const gmlk_question *q) {
  const gmlake_piece *p = &q->pieces[0], *b = q->view.blocks, *end = b + q->view.block_count;
  while (b != end && b->home != p->home) b++;
  return b != end && b->bytes > p->bytes ? b : NULL;
}

/* Of a plan's pieces and of what it creates. */
static const char *gmlk_pieces_wrong(const gmlk_request *r, const gmlk_question *q) {
  const gmlake_plan *plan = &q->plan;
  gmlk_arena *a = r->arena;
  size_t parts = plan->piece_count + (plan->grow_bytes != 0), i;
  uint64_t total = plan->grow_bytes, end;
  const char *wrong = NULL;
  if (plan->pieces != q->pieces || plan->piece_count > q->view.block_count + 1)
    return "piece_count is more than piece_capacity, or pieces points elsewhere";
  if (!parts) return "the plan has no window, no piece and no grow_bytes";
  if (plan->state != (plan->grow_bytes         ? GMLK_S4
                      : parts > 1              ? GMLK_S3
                      : plan->state == GMLK_S2 ? GMLK_S2
                                               : GMLK_S1))
    return "state is not the one of what the plan does";
  if (parts > 1 && !r->may_stitch) return "the request may not be stitched";
  if (plan->grow_bytes && (r->flags & GMLAKE_NO_GROW))
    return "grow_bytes is not 0, but the request has GMLAKE_NO_GROW";
  if (plan->grow_bytes % a->chunk_bytes || plan->grow_bytes > a->area.most * a->chunk_bytes)
    return "grow_bytes is no multiple of chunk_bytes, or more than the arena's address space";
  for (i = 0; i < plan->piece_count && !wrong; i++) {
    gmlk_piece piece;
    uint32_t slot, left;
    wrong = gmlk_piece_wrong(r, &plan->pieces[i], i == 0, i + 1 == parts);
    if (wrong) break;
    total += plan->pieces[i].bytes;
    piece = gmlk_piece_of(a, &plan->pieces[i]);
    left = gmlk_piece_chunks(a, &piece);
    for (slot = piece.at >> a->chunk_log; left--; slot++) {
      if (a->chunks.items[slot].is_marked) wrong = "two pieces of a window share a chunk";
      a->chunks.items[slot].is_marked = 1;
    }
  }
  gmlk_trim_forget(a);
  if (wrong) return wrong;
  if (total < r->bytes) return "the pieces are too small";
  if (total - r->bytes > UINT32_MAX || total > GMLK_GRAINS_MAX / 2 * GMLK_GRAIN)
    return "the pieces are too large";
  if (!plan->keeps_former) return NULL; /* else it takes a block's front and stitches both parts */
  if (plan->piece_count != 1 || plan->grow_bytes || !gmlk_former_of(q))
    return "keeps_former is set, but the plan is not a part of one block";
  end = (uint64_t)(uintptr_t)q->pieces->home + q->pieces->bytes;
  return end & (a->chunk_bytes - 1) ? "keeps_former is set, but the piece ends inside a chunk"
                                    : NULL;
}

/* Of a plan's window; w is NULL if there is no such window. */
static const char *gmlk_reuse_wrong(const gmlake *l, const gmlk_request *r, const gmlk_question *q,
                                    gmlk_window *w) {
  if (!w) return "no idle window has this number";
  if (q->plan.piece_count || q->plan.grow_bytes || q->plan.keeps_former)
    return "the plan reuses a window, and has pieces, grow_bytes or keeps_former too";
  if (q->plan.state > GMLK_S2) return "state is not the one of what the plan does";
  if (!r->may_stitch || !gmlk_window_may_serve(&l->streams, r, r->requester, w))
    return "the window is not free for the request";
  if (w->self.grains * GMLK_GRAIN < r->bytes) return "the window is too small";
  return w->self.grains * GMLK_GRAIN - r->bytes > UINT32_MAX ? "the window is too large" : NULL;
}

/* ---- asking ---- */

/* StitchFree by the policy, before so many chunks more are mapped: corrects the view, asks, checks,
   drops windows. q NULL: for a window of the built-in planner. A program of one stream records no
   event before. Windows that have become idle since the view was filled come last in the list, so
   the others are still in the view's order. */
static gmlake_result gmlk_ask_evict(gmlake *l, const gmlk_request *r, const gmlk_question *q,
                                    size_t chunk_count) {
  const gmlake_policy *policy = l->desc.policy;
  gmlake_window_info *windows;
  gmlk_alias *dying = NULL;
  gmlk_question own;
  gmlk_callback callback;
  const gmlk_window *w;
  size_t count, i, n;
  if (!policy->evict) return GMLAKE_OK;
  if (!q && !gmlk_ask(l, r, &own)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (!q) q = &own;
  windows = (gmlake_window_info *)l->view.memory;
  if (q->view.window_count) (void)gmlk_refresh(l, 1);
  for (i = 0, w = r->arena->windows.idle_first; i < q->view.window_count; i++, w = w->idle_next)
    windows[i].is_complete = gmlk_alias_is_done(l, &w->alias);
  if (l->lost) return l->lost;
  gmlk_callback_begin(l, &callback, 1, NULL);
  count = policy->evict(policy->user, &q->view, chunk_count * r->arena->chunk_bytes, q->numbers);
  gmlk_callback_end(l, &callback);
  if (l->lost) return l->lost;
  for (i = 0; i < gmlk_min(count, q->view.window_count); i++) {
    w = gmlk_window_numbered(r->arena, q->numbers[i]);
    if (!w || !gmlk_alias_is_done(l, &w->alias)) break;
    for (n = 0; n < i && q->numbers[n] != q->numbers[i];) n++;
    if (n < i) break;
  }
  if (i < count)
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "policy.evict",
                     "out_windows[%llu]: name idle windows whose work is complete, each once, and "
                     "not more than window_count",
                     GMLK_ULL(i));
  for (i = 0; i < count; i++)
    gmlk_alias_give_up(r->arena, &gmlk_window_numbered(r->arena, q->numbers[i])->alias, &dying);
  return gmlk_aliases_unmap(l, r->arena, dying);
}

/* ---- carrying out ---- */

/* Creates the plan's chunks side by side and enters them behind the plan's pieces. */
static gmlake_result gmlk_grow_fresh(gmlake *l, gmlk_request *r, gmlk_question *q) {
  gmlk_arena *a = r->arena;
  uint32_t count = (uint32_t)(q->plan.grow_bytes / a->chunk_bytes), slot;
  gmlake_piece *piece = &q->pieces[q->plan.piece_count];
  gmlk_slots slots;
  gmlake_result result;
  if (!gmlk_grow_ensure(a, count)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  slots = gmlk_growth_contiguous(l, a, NULL, count << a->chunk_log, 1);
  if (!slots.count) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  slot = slots.items[0];
  result = gmlk_grow_slots(l, r, &slots);
  if (result) return result;
  r->has_grown = 1;
  piece->home = (void *)(uintptr_t)gmlk_home(a, slot << a->chunk_log);
  piece->bytes = q->plan.grow_bytes;
  return GMLAKE_OK;
}

/* Turns pieces into a plan: one is taken, several are stitched. */
static gmlake_result gmlk_plan_pieces(gmlk_arena *a, const gmlake_piece *pieces, size_t count,
                                      gmlk_plan *plan) {
  const gmlk_block *last;
  size_t i;
  memset(plan, 0, sizeof(*plan));
  if (!gmlk_scratch_ensure(a, 2 * count)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  for (i = 0; i < count; i++) {
    const gmlk_piece piece = gmlk_piece_of(a, &pieces[i]);
    gmlk_plan_add(a, plan, piece.at, piece.grains, 0);
  }
  plan->how = count == 1 ? GMLK_RANGE : GMLK_STITCH;
  if (count != 1) return GMLAKE_OK;
  plan->range = a->pieces[0];
  last = gmlk_locate(a, plan->range.at + plan->range.grains - 1);
  plan->hole = last->at + last->grains - gmlk_locate(a, plan->range.at)->at;
  return GMLAKE_OK;
}

/* Makes an idle window over both parts of a split block, to save a stitch later. Ignores errors. */
static void gmlk_keep_former(gmlake *l, gmlk_arena *a, gmlake_piece front, size_t former_bytes) {
  gmlake_piece pair[2];
  gmlk_window *w = NULL;
  gmlake_result result;
  gmlk_plan plan;
  pair[0] = front;
  pair[1].home = (char *)front.home + front.bytes;
  pair[1].bytes = former_bytes - front.bytes;
  if (a->window_space.holes && !gmlk_plan_pieces(a, pair, 2, &plan))
    w = gmlk_window_new(l, a, &plan, &result);
  if (!w || gmlk_window_make(l, a, w, 0)) return;
  gmlk_window_set_idle(&a->windows, w, GMLK_CLEAN, 0);
  gmlk_evict_if_due(l, a);
}

/* Carries out a checked plan; w is its window, or NULL. r->grains becomes the plan's size. */
static gmlake_result gmlk_carry_out(gmlake *l, gmlk_request *r, gmlk_question *q, gmlk_window *w,
                                    gmlk_block **out_block) {
  gmlk_arena *a = r->arena;
  const gmlake_piece *former = q->plan.keeps_former ? gmlk_former_of(q) : NULL;
  const size_t parts = q->plan.piece_count + (q->plan.grow_bytes != 0);
  size_t mappings = 0; /* that a window of the plan needs */
  gmlk_plan plan;
  gmlake_result result = gmlk_plan_pieces(a, q->pieces, q->plan.piece_count, &plan);
  uint32_t i;
  if (parts > 1) mappings = plan.chunk_count + q->plan.grow_bytes / a->chunk_bytes;
  if (former) {
    const gmlk_piece whole = gmlk_piece_of(a, former);
    mappings = gmlk_piece_chunks(a, &whole);
  }
  if (!result && mappings) result = gmlk_ask_evict(l, r, q, mappings);
  if (!result && q->plan.grow_bytes) result = gmlk_grow_fresh(l, r, q);
  if (!result) result = gmlk_plan_pieces(a, q->pieces, parts, &plan);
  if (result) return result;
  plan.requester = r->requester;
  plan.state = q->plan.state;
  plan.window = w;
  if (w) plan.how = GMLK_REUSE;
  r->grains = w ? w->self.grains : 0;
  for (i = 0; i < plan.piece_count; i++) r->grains += a->pieces[i].grains;
  result = gmlk_plan_commit(l, r, &plan, out_block);
  if (former && !result) gmlk_keep_former(l, a, q->pieces[0], former->bytes);
  return result || *out_block ? result : GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY; /* no addresses */
}

/* BestFit by the policy: asks, checks, carries out. OK with *out_block NULL: the lake decides. */
static gmlake_result gmlk_decide(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  const gmlake_policy *policy = l->desc.policy;
  gmlk_space *space = &r->arena->window_space;
  const uint32_t grains = r->grains, next = gmlk_area_next(&space->area, 1);
  gmlk_window *w = NULL;
  gmlk_question q;
  gmlk_callback callback;
  gmlake_result result;
  const char *wrong;
  if (r->may_stitch && next <= space->area.most) { /* so that a window finds addresses */
    const uint64_t slots = gmlk_chunks_for(r->arena, r->grains) + 2;
    (void)gmlk_space_extend_to(l, space, (uint32_t)gmlk_min(slots, space->area.most - next));
  }
  if (!gmlk_ask(l, r, &q)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  gmlk_callback_begin(l, &callback, 1, NULL);
  policy->choose(policy->user, &q.view, &q.request, &q.plan);
  gmlk_callback_end(l, &callback);
  if (l->lost || !q.plan.state) return l->lost; /* 0: the lake is to decide */
  r->reason = q.plan.reason ? q.plan.reason : "the policy chose this";
  if (q.plan.state == GMLK_S5) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  if (q.plan.window) w = gmlk_window_numbered(r->arena, q.plan.window);
  wrong = q.plan.window ? gmlk_reuse_wrong(l, r, &q, w) : gmlk_pieces_wrong(r, &q);
  if (wrong) return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "policy.choose", "%s", wrong);
  result = gmlk_carry_out(l, r, &q, w, out_block);
  if (result) r->grains = grains;
  return result;
}

/* ---- >>dry_run --------------------------------------------------------------------------------
   A dry run answers a question such as gmlake_query. Where an allocation would wait, drop
   windows or return chunks, it finds out how much there would be then. Owns nothing; marks of
   chunks are gone at the end. pre: both locks are held. Costs: O(blocks + windows). Cannot fail. */

/* What the stream of a requester that may wait has to do before it uses these ranges. */
static gmlake_wait gmlk_pieces_wait(const gmlake *l, const gmlk_arena *a, gmlk_requester requester,
                                    const gmlk_piece *pieces, uint32_t count) {
  uint32_t i;
  for (i = 0; i < count; i++) {
    gmlk_block *b = gmlk_locate(a, pieces[i].at);
    for (; b->at < pieces[i].at + pieces[i].grains; b = b->next)
      if (gmlk_may_take(&l->streams, requester, b) && gmlk_has_to_wait(l, requester.stream, b))
        return GMLAKE_DEVICE_WAIT;
  }
  return GMLAKE_NO_WAIT;
}

/* Whether gmlk_fast would find a block. */
static int gmlk_is_fast(const gmlake *l, const gmlk_request *r) {
  gmlk_arena *a = r->arena;
  uint32_t at, hole;
  return gmlk_best_fit(a, r->requester.stream, r->grains, r->align, &at, &hole) ||
         (r->align == 1 && gmlk_small_reserve_hold(a, r->requester.stream, r->grains)) ||
         (r->may_stitch && gmlk_window_any_for(l, r, r->requester));
}

/* Says how a plan would be carried out. What the host waits for is said before. */
static void gmlk_dry_run_commit(const gmlake *l, const gmlk_request *r, const gmlk_plan *plan) {
  const gmlk_window *w = plan->window;
  const gmlk_piece *pieces = plan->how == GMLK_RANGE ? &plan->range : r->arena->pieces;
  const uint32_t count = plan->how == GMLK_RANGE ? 1 : plan->piece_count;
  if (plan->requester.may_wait != GMLAKE_DEVICE_WAIT) return;
  l->dry_run->answer.wait = gmlk_pieces_wait(l, r->arena, plan->requester, w ? w->pieces : pieces,
                                             w ? w->piece_count : count);
}

/* A requester that waits on the device may do so before each growth: it passes over so many blocks
   that it may not have. */
#define GMLK_RANGE_TRIES 4096u

/* The shortest aligned range of at least so many grains that the requester may have; if there is
   none, the longest. O(blocks). */
static gmlk_piece gmlk_range_best(const gmlake *l, const gmlk_arena *a, gmlk_requester requester,
                                  uint32_t grains, uint32_t align) {
  const gmlk_block *b = a->begin.next;
  unsigned tries = requester.may_wait == GMLAKE_DEVICE_WAIT ? GMLK_RANGE_TRIES : UINT_MAX;
  gmlk_piece best = gmlk_piece_with(0, 0);
  for (;; b = b->next) {
    const uint32_t at = b->at + ((0 - b->at) & (align - 1));
    while (gmlk_may_take(&l->streams, requester, b)) b = b->next;
    if (at < b->at && (best.grains < grains ? b->at - at > best.grains
                                            : b->at - at >= grains && b->at - at < best.grains))
      best = gmlk_piece_with(at, b->at - at);
    if (b == &a->end || !--tries) return best;
  }
}

/* Whether the host has to wait where it waits for all streams: there is one that it can wait for. A
   capture may forbid the event. */
static gmlake_wait gmlk_dry_run_wait(const gmlake *l) {
  const gmlk_streams *streams = &l->streams;
  size_t i;
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++) {
    const gmlk_stream *s = streams->items[i];
    const int gets_event = !s->capture && s->value && !gmlk_stream_needs_device_wait(s);
    if (gmlk_stream_has_work(s) && (s->fence_count || !streams->capture_count || gets_event))
      return GMLAKE_HOST_WAIT;
  }
  return GMLAKE_NO_WAIT;
}

/* The grains of the longest aligned range that the requester may have after the arena's free chunks
   are returned and so many more than these are created: one that is there, or that growth makes. */
static uint64_t gmlk_range_grown(const gmlake *l, gmlk_arena *a, gmlk_requester requester,
                                 uint32_t align, uint64_t chunks) {
  const uint32_t fresh = gmlk_area_next(&a->area, 1);
  uint64_t most = gmlk_range_best(l, a, requester, GMLK_GRAINS_MAX, align).grains;
  gmlk_room room;
  chunks += gmlk_trim_choose(l, a, gmlk_requester_of(GMLK_CLEAN, GMLAKE_HOST_WAIT), SIZE_MAX).count;
  room.slot = room.count = 0;
  do {
    room = gmlk_room_from(l, a, &requester, align, room.slot + room.count);
    most = gmlk_max(most, room.before + (gmlk_min(chunks, room.count) << a->chunk_log) +
                              (chunks < room.count ? 0 : room.after));
  } while (room.slot + room.count < a->slot_count);
  gmlk_trim_forget(a);
  if (fresh > a->area.most) return most;
  return gmlk_max(most, gmlk_min(chunks, a->area.most - fresh) << a->chunk_log);
}

/* The number of new chunks that the room, limits and address space allow an arena. */
static uint64_t gmlk_creatable(const gmlake *l, const gmlk_arena *a,
                               const gmlk_headroom *headroom) {
  const size_t slots = a->area.is_full ? a->area.limit : a->area.most;
  size_t bytes = headroom->free_bytes + headroom->returned_bytes;
  bytes -= gmlk_min(bytes, l->desc.driver_free_bytes_min);
  bytes = gmlk_min(bytes, gmlk_limit_left(l->desc.limit_bytes,
                                          l->stats.reserved_bytes - headroom->returned_bytes));
  if (a->limit_bytes)
    bytes = gmlk_min(
        bytes, gmlk_limit_left(a->limit_bytes, gmlk_pool_bytes(l, a->owner) - headroom->own_bytes));
  return gmlk_min(slots - gmlk_min(slots, a->chunks.backed_count), bytes / a->chunk_bytes);
}

/* ---- >>slow ------------------------------------------------------------------------------------
   The slow path: steps 4 to 12 of the manual's "how an allocation is served", until one of them
   finds a block. A dry run (lake->dry_run) goes the same steps: what they would take, create,
   wait for or return they only count. A fatal error ends the slow path, and so does an illegal
   answer of a policy, the only INVALID_ARGUMENT here. pre, for gmlk_slow_path and everything it
   calls: the caller holds `driver_lock`. Costs: a step costs what the functions cost that it calls.
   Can fail: host memory, the driver, limits. */

/* A request that is for no block of the user's: a chunk of a buffer, a pool that wakes. */
static gmlk_request gmlk_request_of(gmlk_arena *a, unsigned stream, size_t bytes) {
  gmlk_request r;
  memset(&r, 0, sizeof(r));
  r.arena = a;
  r.requester = gmlk_requester_of(stream, GMLAKE_NO_WAIT);
  r.stream = stream;
  r.bytes = bytes;
  r.grains = r.align = a->chunk_grains;
  return r;
}

/* The request's requester, which may wait on the device for other streams if the stream can. */
static gmlk_requester gmlk_waiting_requester(const gmlake *l, const gmlk_request *r) {
  gmlk_requester requester = r->requester;
  if (!r->stream || r->is_capture || r->step_limit || l->streams.used_count < 2) return requester;
  if (l->streams.items[r->stream]->kind == GMLAKE_STREAM_COMMUNICATION) return requester;
  if (l->streams.items[r->stream]->value || !l->streams.capture_count)
    return gmlk_requester_of(requester.stream, GMLAKE_DEVICE_WAIT);
  return requester;
}

#define GMLK_GROW_TRIES 8u /* growths for one request; a second one is rare */

/* S1 and S2 again. */
static gmlake_result gmlk_try_fast(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  if (!gmlk_records_ensure(&l->records, &l->host, 2)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (l->dry_run)
    *out_block = gmlk_is_fast(l, r) ? &r->arena->end : NULL;
  else
    *out_block = gmlk_fast(l, r);
  return GMLAKE_OK;
}

/* Memory whose work has completed meanwhile, that of other streams too. */
static gmlake_result gmlk_slow_completed(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  gmlake_result result = l->dry_run || r->step_limit ? GMLAKE_OK : gmlk_look(l);
  r->reason = l->asks_first ? NULL : "work that used the memory has completed";
  return result ? result : gmlk_try_fast(l, r, out_block);
}

/* Plans what is there already: for a requester that may wait a window or a range; for another the
   shortest aligned range, since best fit looks at few holes that are too short for alignment. */
static int gmlk_plan_there(const gmlake *l, const gmlk_request *r, gmlk_requester requester,
                           gmlk_plan *plan) {
  memset(plan, 0, sizeof(*plan));
  plan->requester = requester;
  if (r->may_stitch && requester.may_wait) plan->window = gmlk_window_any_for(l, r, requester);
  if (!plan->window) {
    plan->range = gmlk_range_best(l, r->arena, requester, r->grains, r->align);
    if (plan->range.grains >= r->grains) plan->hole = plan->range.grains;
    plan->range = gmlk_piece_with(plan->range.at, r->grains);
  }
  plan->how = plan->window ? GMLK_REUSE : plan->hole ? GMLK_RANGE : GMLK_NOTHING;
  return plan->how != GMLK_NOTHING;
}

/* One look: a range or a window that is there, an aligned range, a window of free pieces. */
static gmlake_result gmlk_try_all(gmlake *l, gmlk_request *r, gmlk_requester requester,
                                  gmlk_block **out_block) {
  gmlk_plan plan;
  gmlake_result result = gmlk_try_fast(l, r, out_block);
  if (!result && !*out_block && r->align > 1 && gmlk_plan_there(l, r, r->requester, &plan))
    result = gmlk_plan_commit(l, r, &plan, out_block);
  if (!result && !*out_block) result = gmlk_try_stitch(l, r, requester, out_block);
  return result;
}

/* Foretells growth for what a window of the requester lacks, or for a range. pre: what other arenas
   return is counted. */
static gmlake_result gmlk_dry_run_growth(gmlake *l, gmlk_request *r, gmlk_requester requester,
                                         gmlk_block **out_block) {
  gmlk_arena *a = r->arena;
  const int is_host = requester.may_wait == GMLAKE_HOST_WAIT;
  gmlake_wait wait = GMLAKE_NO_WAIT;
  gmlk_plan plan;
  gmlake_result result;
  if (requester.may_wait == GMLAKE_DEVICE_WAIT && r->shortfall &&
      r->piece_count) { /* another chunk than the last may be used in part */
    gmlk_piece *last = &a->pieces[r->piece_count - 1];
    const uint32_t end = gmlk_chunks_for(a, last->at + last->grains) << a->chunk_log;
    *last = gmlk_piece_with(last->at, end - last->at);
    wait = gmlk_pieces_wait(l, a, requester, a->pieces, r->piece_count);
  }
  result = gmlk_grow(l, r, is_host ? requester : r->requester, &plan);
  if (result) return result;
  if (wait && plan.how == GMLK_STITCH) l->dry_run->answer.wait = wait;
  *out_block = &a->end;
  return GMLAKE_OK;
}

/* Grows (gmlk_grow), then serves the request from what is free: a range, or a new window. */
static gmlake_result gmlk_grow_and_serve(gmlake *l, gmlk_request *r, gmlk_requester requester,
                                         gmlk_block **out_block) {
  const uint32_t missing = gmlk_chunks_for(r->arena, r->shortfall ? r->shortfall : r->grains);
  gmlake_result result = GMLAKE_OK;
  gmlk_plan plan;
  unsigned tries;
  if (r->flags & GMLAKE_NO_GROW) return GMLAKE_OK;
  if (r->desc && !r->has_grown) /* else gmlk_buffer_share has run */
    result = gmlk_return_others(l, r->arena, GMLK_GIVE_BLOCK, missing * r->arena->chunk_bytes,
                                requester.may_wait);
  if (result) return result;
  if (l->dry_run) return gmlk_dry_run_growth(l, r, requester, out_block);
  for (tries = 0; tries < GMLK_GROW_TRIES; tries++) { /* a plan may need one more chunk after all */
    result = gmlk_grow(l, r, r->requester, &plan);
    if (result) return result;
    r->has_grown = 1;
    l->stitches_in_row = 0;
    result = gmlk_try_all(l, r, requester, out_block);
    if (result || *out_block) return result;
  }
  return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
}

/* New chunks. With GMLAKE_WAIT_FIRST only those that are missing although other streams' memory is
   used, too. */
static gmlake_result gmlk_slow_grow(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  const int grows_first = l->desc.cross_stream == GMLAKE_GROW_FIRST;
  r->reason = "the lake created chunks";
  return gmlk_grow_and_serve(l, r, grows_first ? r->requester : gmlk_waiting_requester(l, r),
                             out_block);
}

/* Other streams' memory behind a wait on the device: a window, a range, or a new window. */
static gmlake_result gmlk_wait_and_serve(gmlake *l, gmlk_request *r, gmlk_requester requester,
                                         gmlk_block **out_block) {
  gmlk_plan plan;
  if (!requester.may_wait) return GMLAKE_OK;
  r->reason = "the stream waits for another one and takes its memory";
  if (gmlk_plan_there(l, r, requester, &plan)) (void)gmlk_plan_commit(l, r, &plan, out_block);
  if (*out_block || l->lost) return l->lost;
  return gmlk_try_stitch(l, r, requester, out_block);
}

/* The same before the lake grows. */
static gmlake_result gmlk_slow_device_wait_early(gmlake *l, gmlk_request *r,
                                                 gmlk_block **out_block) {
  if (l->desc.cross_stream == GMLAKE_GROW_FIRST) return GMLAKE_OK;
  return gmlk_wait_and_serve(l, r, gmlk_waiting_requester(l, r), out_block);
}

/* The same after growth has failed: new chunks may fill what the new window lacks. */
static gmlake_result gmlk_slow_device_wait(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  const gmlk_requester requester = gmlk_waiting_requester(l, r);
  gmlake_result result;
  if (l->desc.cross_stream == GMLAKE_WAIT_FIRST || !requester.may_wait) return GMLAKE_OK;
  result = gmlk_wait_and_serve(l, r, requester, out_block);
  if (*out_block || l->lost || !r->shortfall || result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY)
    return result;
  return gmlk_grow_and_serve(l, r, requester, out_block);
}

/* One look at all free ranges. Where a window lacks less than *shortfall, for which growth failed
   before, new chunks may fill the rest. */
static gmlake_result gmlk_try_to_fill(gmlake *l, gmlk_request *r, uint32_t *shortfall,
                                      gmlk_block **out_block) {
  const gmlake_result result = gmlk_try_all(l, r, r->requester, out_block);
  if (result || *out_block || r->shortfall >= *shortfall) return result;
  *shortfall = r->shortfall;
  return gmlk_grow_and_serve(l, r, r->requester, out_block);
}

/* Memory that other streams' work or pending frees hold back: the host waits until enough of that
   is complete, and looks at all free ranges each time, once if there is nothing to wait for. */
static gmlake_result gmlk_slow_host_wait(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  const int waits = /* whether there is something that the host can wait for */
      l->streams.used_count > 1 || !r->stream || r->is_capture || l->stats.pending_bytes;
  const gmlk_requester requester = gmlk_requester_of(r->requester.stream, GMLAKE_HOST_WAIT);
  uint32_t shortfall = waits && !r->shortfall ? r->grains : r->shortfall;
  gmlake_result result = GMLAKE_OK, refused = GMLAKE_OK;
  gmlk_host_wait p = {0, 0, 0, 0, 0};
  r->reason = waits ? "the host waited for streams first" : "the lake looked at all free ranges";
  r->is_exhaustive = 1;
  if (!waits) return gmlk_try_to_fill(l, r, &shortfall, out_block);
  if (l->dry_run) {
    l->dry_run->answer.wait = gmlk_dry_run_wait(l);
    result = gmlk_wait_and_serve(l, r, requester, out_block);
    return result || *out_block ? result : gmlk_grow_and_serve(l, r, requester, out_block);
  }
  result = gmlk_wait_on(l, &p);
  while (!result && !p.is_over) {
    result = gmlk_try_to_fill(l, r, &shortfall, out_block);
    if (*out_block || (result && !gmlk_is_shortage(result))) return result;
    if (result) refused = result;
    result = gmlk_wait_on(l, &p);
  }
  return result ? result : refused;
}

/* The chunks that a range takes once all that may be returned is; 0: it has no place. Adds what is
   returned to *chunks. pre: there is scratch for them. */
static uint32_t gmlk_dry_run_range(const gmlake *l, const gmlk_request *r, gmlk_requester requester,
                                   uint64_t *chunks) {
  gmlk_arena *a = r->arena;
  const gmlk_requester clean = gmlk_requester_of(GMLK_CLEAN, GMLAKE_HOST_WAIT);
  uint32_t count;
  *chunks += gmlk_trim_choose(l, a, clean, SIZE_MAX).count;
  count = gmlk_growth_contiguous(l, a, &requester, r->grains, r->align).count;
  gmlk_trim_forget(a);
  return count;
}

/* Foretells how gmlk_slow_reclaim ends: with a window, for which chunks may be created, or with a
   range. */
static gmlake_result gmlk_dry_run_reclaim(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  gmlk_arena *a = r->arena;
  const gmlk_requester requester = gmlk_requester_of(r->requester.stream, GMLAKE_HOST_WAIT);
  const int may_grow = !(r->flags & GMLAKE_NO_GROW);
  uint64_t chunks = 0;
  uint32_t count = gmlk_chunks_for(a, r->grains);
  gmlk_plan plan;
  gmlake_result result = GMLAKE_OK;
  int is_served = 0;
  if (may_grow) result = gmlk_return_others(l, a, GMLK_GIVE_ALL, SIZE_MAX, GMLAKE_HOST_WAIT);
  if (result) return result;
  if (may_grow) chunks = gmlk_creatable(l, a, &l->dry_run->headroom);
  l->dry_run->answer.wait = gmlk_dry_run_wait(l);
  if (r->may_stitch) {
    gmlk_plan_window(a, &l->streams, requester, 1, r->grains, r->align, r->is_whole, &plan);
    is_served = gmlk_chunks_for(a, plan.shortfall) <= chunks &&
                plan.chunk_count <= a->window_space.area.most;
    if (is_served) count = gmlk_chunks_for(a, plan.shortfall);
  }
  if (!is_served && may_grow) {
    if (!gmlk_grow_ensure(a, count)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    count = gmlk_dry_run_range(l, r, requester, &chunks);
    is_served = count && count <= chunks;
  }
  l->dry_run->answer.new_bytes = count * a->chunk_bytes;
  if (is_served) *out_block = &a->end;
  return GMLAKE_OK;
}

/* Memory after idle windows were dropped, free chunks were returned, and new ones were created:
   after others returned as many as it lacks, or after all did. */
static gmlake_result gmlk_slow_reclaim(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  const int may_grow = !(r->flags & GMLAKE_NO_GROW);
  /* Returning chunks and creating them elsewhere helps if the request cannot get a window, if a
     policy keeps free blocks apart, and if others have something to return. */
  int may_help = !r->may_stitch || r->window_space || r->arena->keeps_apart || l->return_count;
  const gmlk_arena *a;
  gmlake_result result;
  size_t held, missing, released = 0;
  if (!may_grow && r->window_space != GMLK_SPACE_IN_USE) return GMLAKE_OK;
  if (l->dry_run) return gmlk_dry_run_reclaim(l, r, out_block);
  GMLK_FOR_ARENAS(l, a) may_help |= a != r->arena && (a->free_grains || a->small.reserve);
  if (may_grow && !may_help) return GMLAKE_OK;
  r->reason = "the lake dropped windows and returned chunks first";
  result = gmlk_wait_for_others(l);
  if (!result) result = gmlk_evict(l, r->arena, SIZE_MAX);
  r->window_space = GMLK_SPACE_UNKNOWN;
  if (!result) result = gmlk_try_stitch(l, r, r->requester, out_block);
  if (!may_grow || result || *out_block) return result;
  missing = gmlk_chunks_for(r->arena, r->shortfall ? r->shortfall : r->grains);
  held = l->stats.reserved_bytes;
  result = gmlk_return_others(l, r->arena, GMLK_GIVE_ALL, missing * r->arena->chunk_bytes,
                              GMLAKE_NO_WAIT);
  if (!result && l->stats.reserved_bytes < held)
    result = gmlk_grow_and_serve(l, r, r->requester, out_block);
  if (*out_block || (result && !gmlk_is_shortage(result))) return result;
  result = gmlk_trim(l, 0, &released);
  if (!result) result = gmlk_try_stitch(l, r, r->requester, out_block);
  if (result || *out_block) return result;
  return gmlk_grow_and_serve(l, r, r->requester, out_block);
}

typedef gmlake_result (*gmlk_slow_step)(gmlake *l, gmlk_request *r, gmlk_block **out_block);

/* Why a request could not be served, and what the caller can do. */
static void gmlk_oom_write(const gmlk_request *r, gmlake_error_info *info) {
  const gmlk_area *area = &r->arena->area;
  const char *why = "the device has no room for more: free blocks, or ";
  const char *advice = r->arena->sleep ? "let another pool sleep" : "ask for less";
  if (info->result == GMLAKE_ERROR_LIMIT_REACHED) {
    why = "limit_bytes or driver_free_bytes_min forbids to create more: free blocks, or ";
    advice = "change it";
  } else if (r->flags & GMLAKE_NO_GROW) {
    why = "GMLAKE_NO_GROW forbids to create more: free blocks, or ";
    advice = "allow growth";
  } else if (area->is_full) {
    why = "the driver has no addresses for more: destroy pools or buffers, free blocks, or ";
  } else if (gmlk_area_next(area, 1) == GMLK_NOWHERE &&
             r->arena->chunks.backed_count + gmlk_chunks_for(r->arena, r->grains) > area->limit) {
    why = "arena_bytes has no room for more: free blocks, or ";
    advice = "set it higher";
  }
  (void)snprintf(info->text, sizeof(info->text), "no free memory fits %llu bytes, and %s%s",
                 GMLK_ULL(r->bytes), why, advice);
}

/* S5: makes a failed request's report the last error. Returns `result`, or a fatal error. */
static gmlake_result gmlk_report_oom(gmlake *l, const gmlk_request *r, gmlake_result result) {
  gmlk_arena *a = r->arena;
  gmlake_error_info info;
  gmlk_supply supply;
  gmlk_block *b;
  size_t total = 0, run = 0;
  gmlake_result asked;
  gmlk_small_reserve_end(a);
  memset(&info, 0, sizeof(info));
  asked = gmlk_ask_memory(l, &info.driver_free_bytes, &total);
  if (gmlk_is_fatal(asked)) return asked;
  for (b = a->begin.next; b != &a->end; b = b->next) {
    const int is_available = gmlk_is_available(b, r->requester.stream);
    const int is_freed = b->state == GMLK_FREE || gmlk_user_block(b)->state == GMLK_PENDING;
    const int is_memory = b->state < GMLK_UNBACKED;
    const size_t bytes = is_memory ? b->grains * GMLK_GRAIN : 0;
    run = is_available ? run + bytes : 0;
    info.largest_bytes = gmlk_max(info.largest_bytes, run);
    *(is_available ? &info.free_bytes
      : is_freed   ? &info.pending_bytes
                   : &info.live_here_bytes) += bytes;
  }
  info.elsewhere_bytes =
      l->stats.reserved_bytes - info.free_bytes - info.pending_bytes - info.live_here_bytes;
  memset(&supply, 0, sizeof(supply));
  if (gmlk_scratch_ensure(a, a->slot_count))
    gmlk_supply_scan(a, &l->streams, r->requester, r->grains, r->align, &supply);
  info.stitchable_bytes = gmlk_supply_sum(a, 0, &supply) * GMLK_GRAIN;
  info.hole_bytes = info.free_bytes - gmlk_min(info.free_bytes, info.stitchable_bytes);
  info.result = result;
  info.call = "gmlake_alloc";
  info.asked_bytes = r->bytes;
  info.pool = r->arena->owner;
  info.live_bytes = l->stats.active_bytes;
  info.reserved_bytes = l->stats.reserved_bytes;
  info.sleeping_bytes = l->stats.sleeping_bytes;
  info.limit_bytes = r->limit_bytes ? r->limit_bytes : l->desc.limit_bytes;
  if (a->limit_bytes && (!info.limit_bytes || r->bytes > a->limit_bytes))
    info.limit_bytes = a->limit_bytes; /* the only limit, or one that the request alone exceeds */
  gmlk_oom_write(r, &info);
  gmlk_error_set(l, &info);
  return result;
}

/* The same for a call that allocates no block, if the result is a shortage. */
static gmlake_result gmlk_report_short(gmlake *l, const gmlk_request *r, gmlake_result result,
                                       const char *call) {
  if (gmlk_is_shortage(result)) result = gmlk_report_oom(l, r, result);
  if (!gmlk_is_shortage(result)) return result;
  l->stats.oom_count++;
  l->error.call = call;
  return result;
}

#define GMLK_ASK_STEPS 2u /* a policy is asked once, and again after each of so many steps */

/* Serves a request by the policy's plans. OK with *out_block NULL: the lake is to decide. If no
   plan can be carried out, r->error and *error tell what else failed. */
static gmlake_result gmlk_slow_path_asked(gmlake *l, gmlk_request *r, gmlk_block **out_block,
                                          gmlake_error_info *error) {
  gmlake_result result = gmlk_look(l);
  size_t released = 0;
  unsigned step;
  for (step = 0; !gmlk_is_fatal(result); step++) {
    r->window_space = GMLK_SPACE_UNKNOWN;
    result = gmlk_decide(l, r, out_block);
    if (!gmlk_is_shortage(result)) return result;
    if (step == GMLK_ASK_STEPS && !r->error) return gmlk_report_oom(l, r, result);
    if (step == GMLK_ASK_STEPS) break;
    /* Makes room: the host waits. The second time all idle windows are dropped, too, and all free
       chunks returned, unless none may be created instead. */
    result = gmlk_wait_for_others(l);
    if (!result && step) result = gmlk_evict(l, r->arena, SIZE_MAX);
    if (!result && step && !(r->flags & GMLAKE_NO_GROW)) result = gmlk_trim(l, 0, &released);
    if (!result || gmlk_is_shortage(result) || r->error) continue;
    r->error = result;
    *error = l->error;
  }
  return gmlk_is_fatal(result) ? result : r->error;
}

/* For a request on GMLAKE_STREAM_NONE, which only clean memory can serve. A lake's only stream
   records no events, so its memory never becomes clean; from here on it records them. */
static void gmlk_serve_none(gmlake *l, const gmlk_arena *a) {
  if (l->streams.has_none || a->free_grains == a->bins[GMLK_CLEAN]->grains) return;
  l->streams.has_none = 1;
  gmlk_fence_all(l);
}

#define GMLK_EARLY_STEPS 4u /* those up to growth */
#define GMLK_FREE_STEPS 2u  /* those that take what is free */

/* Tries the slow steps in order. The last error is the report, or the first error of a slow step
   that was not a shortage of device memory. */
static gmlake_result gmlk_slow_path(gmlake *l, gmlk_request *r, gmlk_block **out_block) {
  static const gmlk_slow_step steps[] = {
      gmlk_slow_completed,         /* the manual's step 4 */
      gmlk_slow_stitch,            /* 5 */
      gmlk_slow_device_wait_early, /* 6 */
      gmlk_slow_grow,              /* 7 and 8 */
      gmlk_slow_device_wait,       /* 10 */
      gmlk_slow_host_wait,         /* 11 */
      gmlk_slow_reclaim,           /* 12 */
  };
  const size_t count = r->step_limit ? r->step_limit : sizeof(steps) / sizeof(steps[0]);
  gmlake_result result, memory = r->step_limit ? GMLAKE_OK : GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  gmlake_error_info error;
  int is_again = 0;
  size_t i;
  memset(&error, 0, sizeof(error));
  if (!l->dry_run && !r->step_limit) {
    /* Others may have given addresses back. */
    r->arena->area.is_full = r->arena->window_space.area.is_full = 0;
    if (!r->stream) gmlk_serve_none(l, r->arena);
    result = l->lost;
    /* Not for buffers, nor for requests that no arena can hold or whose pieces' grains might not
       fit 32 bits: */
    if (!result && l->desc.policy && l->desc.policy->choose && r->desc && r->grains &&
        r->grains < GMLK_GRAINS_MAX / 2 && r->bytes <= r->arena->area.most * r->arena->chunk_bytes)
      result = gmlk_slow_path_asked(l, r, out_block, &error);
    if (result && result == error.result) gmlk_error_set(l, &error);
    if (result || *out_block) return result;
  }
  for (i = 0; r->grains && i < count; i++) {
    if (i >= GMLK_EARLY_STEPS && r->arena->small.reserve) { /* begin again with that */
      gmlk_small_reserve_end(r->arena);
      if (!is_again++) i = 0;
    }
    if (l->dry_run) memset(&l->dry_run->answer, 0, sizeof(l->dry_run->answer));
    result = steps[i](l, r, out_block);
    if (*out_block) return GMLAKE_OK;
    if (gmlk_is_fatal(result) || result == GMLAKE_ERROR_INVALID_ARGUMENT ||
        (l->dry_run && result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY))
      return result;
    if (result == GMLAKE_ERROR_LIMIT_REACHED) memory = result;
    if (!result || gmlk_is_shortage(result) || r->error) continue;
    r->error = result;
    error = l->error;
  }
  if (l->dry_run || r->step_limit) return r->error ? r->error : memory;
  if (!r->error) return gmlk_report_oom(l, r, memory);
  if (error.result == r->error) gmlk_error_set(l, &error);
  return r->error;
}

/* Takes a granted block back, as if the user had freed it. */
static void gmlk_ungrant(gmlake *l, const gmlk_request *r, gmlk_block *b) {
  const int is_pools = (b->flags & (GMLK_IN_GRAPH | GMLAKE_TRANSIENT)) != 0;
  const uint64_t epoch = r->stream ? l->streams.items[r->stream]->epoch : 0;
  l->stats.state_count[r->state - 1]--;
  l->stats.stitch_reuse_count -= (uint64_t)r->is_reuse;
  l->stats.split_count -= (uint64_t)r->is_split;
  gmlk_release_block(l, b, is_pools ? gmlk_tag_in_pool(l, b, r->stream) : r->stream,
                     is_pools ? GMLK_ENDLESS : epoch);
  if (r->stream) l->streams.items[r->stream]->is_dirty = GMLK_DIRTY;
}

/* Serves a request that the fast path could not: takes `driver_lock` and tries the slow steps. OK
   with *out_block NULL: it has a step_limit, and none of the steps served it. state_lock was
   released, so the stream may have been forgotten or captured: the request is opened again. From
   there on the stream keeps its number, since to forget it needs `driver_lock`, and a capture of it
   that has begun does not end. One may still begin while state_lock is released; then the request
   counts as made before it. */
static gmlake_result gmlk_serve_slowly(gmlake *l, gmlk_request *r, gmlake_stream stream,
                                       gmlk_block **out_block) {
  const gmlk_arena *a = r->arena;
  const uint32_t number = a->number;
  const uint64_t request = r->number;
  const unsigned step_limit = r->step_limit;
  const int is_lent = (r->flags & GMLAKE_TRANSIENT) != 0;
  int is_there = 1;
  uint64_t before;
  gmlake_result result;
  gmlk_lock_driver(l);
  gmlk_captures_end(l, 0);
  result = l->lost;
  if (step_limit) is_there = l->arenas[number] == a && (!is_lent || a->pool->loan.number);
  if (!result && is_there) {
    result = gmlk_request_open(l, r, r->desc, stream);
    r->number = request;
    r->step_limit = step_limit;
  }
  l->served = r;
  before = l->stats.driver_ns;
  if (!result && is_there) result = gmlk_slow_path(l, r, out_block);
  r->driver_ns = l->stats.driver_ns - before;
  l->served = NULL;
  gmlk_unlock_driver(l);
  if (step_limit && !*out_block) return result;
  if (result) {
    l->stats.oom_count += (uint64_t)gmlk_is_shortage(result);
    l->stats.state_count[GMLK_S5 - 1]++;
    return result;
  }
  GMLAKE_ASSERT(*out_block);
  if (gmlk_index_ensure(&l->index, &l->host)) return GMLAKE_OK;
  l->stats.state_count[GMLK_S5 - 1]++;
  gmlk_ungrant(l, r, *out_block);
  *out_block = NULL;
  return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
}

/* ---- >>find ------------------------------------------------------------------------------------
   Finds what lies at an address, records and forgets streams. pre: state_lock is held; to forget,
   the caller holds `driver_lock` too. O(arenas + blocks of a chunk), or O(arenas + log(windows or
   buffers)). Can fail: a wrong pointer, host memory; to forget, the driver. */

/* The window or buffer, by its record, whose addresses hold this one; NULL: there is none. */
static void *gmlk_find_mapped(const gmlk_space *space, uint64_t address) {
  const uint64_t offset = gmlk_area_offset(&space->area, address);
  const uint32_t slot = offset != UINT64_MAX ? (uint32_t)(offset / space->area.chunk_bytes) : 0;
  const gmlk_block *va = offset != UINT64_MAX ? gmlk_tree_upto(space->used, slot) : NULL;
  return va && slot < va->at + va->grains ? va->u.owner : NULL;
}

/* Finds the block, or window's own block, or the buffer that an address lies in; neither: none. */
static gmlk_block *gmlk_find_at(const gmlake *l, uint64_t address, gmlake_buffer **out_buffer) {
  const gmlk_arena *a;
  *out_buffer = NULL;
  GMLK_FOR_ARENAS(l, a) {
    const uint64_t offset = gmlk_area_offset(&a->area, address);
    gmlake_buffer *buffer;
    gmlk_window *w;
    gmlk_block *b;
    w = (gmlk_window *)gmlk_find_mapped(&a->window_space, address);
    if (w && address - w->alias.address < w->self.grains * GMLK_GRAIN) return &w->self;
    buffer = (gmlake_buffer *)gmlk_find_mapped(&a->buffer_space, address);
    if (buffer && buffer->lake) *out_buffer = buffer;
    if (offset >= a->end.at * GMLK_GRAIN) continue;
    b = gmlk_locate(a, (uint32_t)(offset / GMLK_GRAIN));
    if (b->state == GMLK_PIECE) return &b->as.window->self;
    return b->state >= GMLK_UNBACKED || b->state == GMLK_COMMITTED ? NULL : b;
  }
  return NULL;
}

/* Says why no live block starts at an address. Only gmlake_free knows double frees. */
static gmlake_result gmlk_explain(gmlake *l, uint64_t address, const char *call) {
  gmlake_buffer *buffer;
  const gmlk_block *b = gmlk_find_at(l, address, &buffer);
  const unsigned state = b ? b->state : (unsigned)GMLK_UNUSED;
  const int is_free =
      state == GMLK_FREE || state == GMLK_RESERVED || state == GMLK_PENDING || state == GMLK_IDLE;
  if (is_free && strcmp(call, "gmlake_free") == 0)
    return gmlk_fail(l, GMLAKE_ERROR_DOUBLE_FREE, call,
                     "ptr is 0x%llx: this memory is free already", GMLK_ULL(address));
  return gmlk_fail(l, GMLAKE_ERROR_UNKNOWN_POINTER, call,
                   "ptr is 0x%llx: no live block starts there", GMLK_ULL(address));
}

/* The live block that starts at ptr; NULL: *out_result says why there is none. */
static gmlk_block *gmlk_live_block(gmlake *l, const void *ptr, const char *call,
                                   gmlake_result *out_result) {
  uint64_t address = (uint64_t)(uintptr_t)ptr;
  gmlk_block *b = gmlk_index_get(&l->index, address);
  *out_result = b ? GMLAKE_OK : gmlk_explain(l, address, call);
  return b;
}

/* A policy forbids to join the block with its neighbours once it is free, or allows it. */
static void gmlk_keep_apart(gmlk_block *b, int is_apart) {
  b->flags = (uint8_t)(is_apart ? b->flags | GMLK_APART : b->flags & ~GMLK_APART);
}

/* Asks the mock and the policy, frees and tells the observer. */
static gmlake_result gmlk_free_watched(gmlake *l, uint64_t address, gmlake_stream value) {
  gmlk_block *b = gmlk_index_get(&l->index, address);
  size_t bytes = 0, slack = 0, pending;
  const char *reason = "free for the stream that it was freed on";
  gmlk_callback callback;
  gmlake_piece piece;
  gmlake_result result = GMLAKE_OK;
  int is_apart = 0;
  if (b)
    result =
        gmlk_mock_may_end(l, address, b->grains * GMLK_GRAIN, b->as.extra, value, "gmlake_free");
  if (result) return result;
  if (b && l->arenas[b->arena]->keeps_apart) { /* does it join its neighbours? */
    piece.home = (void *)(uintptr_t)address;
    piece.bytes = b->grains * GMLK_GRAIN;
    gmlk_callback_begin(l, &callback, 1, NULL);
    is_apart = !l->desc.policy->coalesce(l->desc.policy->user, &piece);
    gmlk_callback_end(l, &callback);
    if (l->lost) return l->lost;
    b = gmlk_index_get(&l->index, address); /* another thread may have freed it meanwhile */
  }
  if (b) {
    gmlk_keep_apart(b, is_apart);
    bytes = b->grains * GMLK_GRAIN;
    slack = b->its.slack;
  }
  pending = l->stats.pending_bytes;
  result = gmlk_free(l, address, value);
  if (result && b) gmlk_keep_apart(b, 0);
  if (result) return result;
  gmlk_mock_end_uses(l, address, bytes);
  if (l->stats.pending_bytes != pending)
    reason = "pending: other streams may still use it";
  else if (value == GMLAKE_STREAM_NONE)
    reason = "free for every stream";
  gmlk_tell_call(l, GMLAKE_STEP_FREE, value, address, bytes, bytes - slack, NULL, reason);
  return GMLAKE_OK;
}

static gmlake_result gmlk_forget_stream(gmlake *l, gmlake_stream value) {
  unsigned stream = gmlk_stream_find(&l->streams, value);
  gmlk_stream *s;
  gmlake_result result;
  gmlk_batch batch;
  uint64_t id;
  if (stream && l->streams.may_end)
    stream = gmlk_stream_identify(l, gmlk_stream_canonical(value), stream, &id);
  if (l->lost) return l->lost;
  s = stream ? l->streams.items[stream] : NULL;
  if (!s || s->is_forgotten) return GMLAKE_OK;
  gmlk_captures_end(l, stream);
  s->is_dirty = GMLK_DIRTY; /* so that the event covers its uses of live blocks, too */
  result = gmlk_batch_begin(l, &batch, 0);
  if (!result) result = gmlk_stream_fence(&l->streams, &batch, stream, 1);
  if (gmlk_batch_end(l, &batch)) return batch.result;
  if (result == GMLAKE_ERROR_CAPTURING)
    return gmlk_fail(l, result, "gmlake_forget_stream",
                     "a capture forbids to record an event on the stream: end the capture first");
  if (result) return result;
  gmlk_stream_forget(&l->streams, stream);
  return GMLAKE_OK;
}

/* ---- >>copies ----------------------------------------------------------------------------------
   What sleeping arenas' contents are kept in: a host copy for each arena, in pieces of a size; and
   copies, which say what lies where in it. A host copy stays for the next time, so that memory is
   pinned once. Owns both.
   pre: the caller holds `driver_lock`.

   [Q1] Copies lie in the host copy in order of their offsets, without overlap. Each is of one chunk
        and in one piece.
   [Q2] done <= next <= count. Copies between the first two are running: none is
        outside of a series of driver calls. A bare arena's are of pages, in the order of their
        buffers; another's of chunks at home, in order of their slots.

   O(what is kept). Can fail: host memory, the driver. */

/* As much is copied by one call, about 1 ms: the host maps or unmaps other chunks meanwhile. */
#define GMLK_COPY_BYTES ((size_t)64 << 20)

typedef struct gmlk_copy {
  uint64_t address; /* where it is mapped */
  uint64_t offset;  /* in the host copy */
  uint32_t at, grains;
} gmlk_copy;

/* Gives the arena's host copy back, the last piece first. What the driver does not take back stays,
   and is offered to it again. */
static gmlake_result gmlk_host_copy_free(gmlake *l, gmlk_arena *a) {
  gmlk_batch batch;
  if (!a->host_copies.count) return GMLAKE_OK;
  (void)gmlk_batch_begin(l, &batch, GMLK_UNLOCKED);
  while (a->host_copies.count && batch.has_begun &&
         !GMLK_CALL(&batch, host_free, a->host_copies.items[a->host_copies.count - 1]))
    a->host_copies.count--;
  return gmlk_batch_end(l, &batch);
}

/* Gives the arena a host copy of so many bytes at least. */
static gmlake_result gmlk_host_copy_ensure(gmlake *l, gmlk_arena *a, size_t bytes) {
  gmlk_host_copies *all = &a->host_copies;
  gmlk_batch batch;
  gmlake_result result;
  if (bytes <= all->count * all->piece_bytes) return GMLAKE_OK;
  result = gmlk_host_copy_free(l, a);
  if (result) return result;
  for (all->piece_bytes = a->chunk_bytes; all->piece_bytes < gmlk_min(bytes, GMLK_COPY_BYTES);)
    all->piece_bytes *= 2;
  while (!result && all->count * all->piece_bytes < bytes) {
    if (!gmlk_host_grow(&l->host, &all->items, &all->capacity, all->count, sizeof(void *)))
      return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    if (!gmlk_batch_begin(l, &batch, GMLK_UNLOCKED))
      (void)GMLK_CALL(&batch, host_alloc, all->piece_bytes, &all->items[all->count]);
    result = gmlk_batch_end(l, &batch);
    all->count += !result;
  }
  if (result) (void)gmlk_host_copy_free(l, a);
  return result;
}

/* Gives back the host copies that keep nothing, or all, and those of destroyed pools. */
static gmlake_result gmlk_host_copies_free(gmlake *l, int of_all) {
  gmlake_result first = GMLAKE_OK;
  gmlake_pool *pool = l->released_pools;
  gmlk_arena *a;
  for (; pool; pool = pool->next_released)
    if (!first) first = gmlk_host_copy_free(l, &pool->arena);
  GMLK_FOR_ARENAS(l, a) {
    const gmlake_result result = of_all || !a->copies.items ? gmlk_host_copy_free(l, a) : GMLAKE_OK;
    if (!first) first = result;
  }
  return first;
}

static void gmlk_copies_drop(gmlake *l, gmlk_arena *a) {
  gmlk_host_free(&l->host, a->copies.items, a->copies.capacity * sizeof(gmlk_copy));
  memset(&a->copies, 0, sizeof(a->copies));
}

/* Adds a range of the arena, mapped at an address. 0: no host memory. */
static int gmlk_copies_add(gmlk_arena *a, uint64_t *offset, uint64_t address, uint32_t at,
                           uint32_t grains) {
  const uint64_t piece = a->host_copies.piece_bytes;
  while (grains) {
    const uint32_t chunk = (((at >> a->chunk_log) + 1) << a->chunk_log) - at;
    gmlk_copy copy;
    if (!gmlk_host_grow(a->host, &a->copies.items, &a->copies.capacity, a->copies.count,
                        sizeof(copy)))
      return 0;
    copy.address = address;
    copy.offset = *offset;
    copy.at = at;
    copy.grains =
        (uint32_t)gmlk_min(gmlk_min(chunk, grains), (piece - *offset % piece) / GMLK_GRAIN);
    a->copies.items[a->copies.count++] = copy;
    *offset += copy.grains * GMLK_GRAIN;
    address += copy.grains * GMLK_GRAIN;
    at += copy.grains;
    grains -= copy.grains;
  }
  return 1;
}

/* Whether a block's contents are kept: it has an owner, or captures know it. */
static int gmlk_is_kept(const gmlk_block *b) {
  return b->state < GMLK_UNBACKED && (b->state != GMLK_FREE || b->stream == GMLK_GRAPH_OWNED);
}

/* Lists what an arena is to keep: of a bare one pages, of another blocks at home. 0: no host
   memory. */
static int gmlk_copies_list(gmlk_arena *a) {
  const gmlake_buffer *buffer = a->is_bare ? a->buffers : NULL;
  const gmlk_block *b = a->begin.next, *end;
  uint64_t offset = 0;
  int is_listed = 1;
  uint32_t i;
  for (; buffer; buffer = buffer->next)
    for (i = 0; i < buffer->page_count && is_listed; i++)
      if (gmlk_is_committed(buffer, i))
        is_listed = gmlk_copies_add(a, &offset, buffer->pages[i].address,
                                    buffer->pages[i].slot << a->chunk_log, a->chunk_grains);
  for (; b != &a->end && !a->is_bare && is_listed; b = end) {
    for (end = b->next; gmlk_is_kept(b) && end != &a->end && gmlk_is_kept(end);) end = end->next;
    if (gmlk_is_kept(b))
      is_listed = gmlk_copies_add(a, &offset, gmlk_home(a, b->at), b->at, end->at - b->at);
  }
  return is_listed;
}

/* Makes ready to keep what an arena has: gets a host copy for it and lists it. */
static gmlake_result gmlk_copies_plan(gmlake *l, gmlk_arena *a) {
  const gmlk_block *b;
  size_t bytes = 0;
  gmlake_result result;
  for (b = a->begin.next; b != &a->end; b = b->next)
    bytes += gmlk_is_kept(b) ? b->grains * GMLK_GRAIN : 0;
  result = gmlk_host_copy_ensure(l, a, bytes);
  if (result) return result;
  return gmlk_copies_list(a) ? GMLAKE_OK : GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
}

/* Forgets the copies of chunks that are nobody's any more. */
static void gmlk_copies_prune(gmlk_arena *a) {
  size_t i, kept = 0;
  for (i = 0; i < a->copies.count; i++) {
    const int is_behind = a->copies.items[i].at >= a->end.at; /* the arena's end has moved */
    const gmlk_block *b = is_behind ? &a->end : gmlk_locate(a, a->copies.items[i].at);
    if (!is_behind && b->state != GMLK_UNBACKED && (b->state == GMLK_COMMITTED || !a->is_bare))
      a->copies.items[kept++] = a->copies.items[i];
  }
  a->copies.count = a->copies.next = a->copies.done = kept;
}

/* Waits until all that were started are complete. */
static gmlake_result gmlk_copies_wait(gmlk_batch *batch, gmlk_arena *a, int to_host) {
  gmlake_result result = GMLAKE_OK;
  if (a->copies.done < a->copies.next)
    result = GMLK_CALL(batch, copy, 0, a->host_copies.items[0], (size_t)0, to_host);
  a->copies.done = a->copies.next;
  return result;
}

/* Starts one copy to a piece of the host copy, or back, of what lies side by side at both ends and
   before the address `end`. Those before it are complete then. */
static gmlake_result gmlk_copies_step(gmlk_batch *batch, gmlk_arena *a, uint64_t end, int to_host) {
  const gmlk_copy *first = a->copies.items + a->copies.next, *c = first;
  const gmlk_area *area = a->is_bare ? &a->buffer_space.area : &a->area;
  const uint64_t begin = gmlk_area_offset(area, first->address); /* in one extent */
  const size_t piece = a->host_copies.piece_bytes, at = (size_t)first->offset % piece;
  char *host = (char *)a->host_copies.items[first->offset / piece] + at;
  gmlake_result result;
  size_t bytes = 0;
  a->copies.done = a->copies.next;
  for (; a->copies.next < a->copies.count && bytes < piece - at && c->address < end &&
         c->address == first->address + bytes && c->offset == first->offset + bytes &&
         gmlk_area_offset(area, c->address) == begin + bytes;
       c++, a->copies.next++)
    bytes += c->grains * GMLK_GRAIN;
  result = GMLK_CALL(batch, copy, first->address, host, bytes, to_host);
  if (result) a->copies.done = a->copies.next; /* after an error none runs */
  return result;
}

/* Completes the copies of a range that is about to be unmapped. */
static gmlake_result gmlk_copies_out(gmlk_batch *batch, gmlk_arena *a, uint64_t address,
                                     size_t bytes) {
  gmlake_result result = GMLAKE_OK;
  while (!result && a->copies.done < a->copies.count &&
         a->copies.items[a->copies.done].address - address < bytes)
    result = a->copies.next < a->copies.count ? gmlk_copies_step(batch, a, UINT64_MAX, 1)
                                              : gmlk_copies_wait(batch, a, 1);
  return result;
}

/* Starts the copies back to a chunk that has been mapped at this address. */
static gmlake_result gmlk_copies_in(gmlk_batch *batch, gmlk_arena *a, uint64_t address) {
  gmlake_result result = GMLAKE_OK;
  while (!result && a->copies.next < a->copies.count &&
         a->copies.items[a->copies.next].address - address < a->chunk_bytes)
    result = gmlk_copies_step(batch, a, address + a->chunk_bytes, 0);
  return result;
}

/* ---- >>lend ------------------------------------------------------------------------------------
   Lends what a graph's pool has free, and takes it back. A loan has a number of the same kind as a
   capture's. While the pool is lent, its free memory that graphs know has this number as its tag:
   so trim does not return it, and no other request gets it. Requests with GMLAKE_TRANSIENT ask with
   this number, and get it: of one pool after another, each with as many slow steps as step_limit
   says. The loan lists the streams that have used the memory so far, those that freed what graphs
   know before it too: a stream that takes some waits on the device for all the others. Behind a
   recall only that one's stream is left, as it is behind all others.

   [G1] A loan's number is that of no other loan and of no capture. The pool has no capture.
   [G2] Live blocks that were borrowed are in pools that are lent.

   Costs: to lend and to recall O(the pool's blocks + idle windows); to serve those of >>slow, and
   O(streams that borrowed). Can fail: host memory, the driver. */

/* Notes that the stream's open epoch uses what a pool lends. 0: no host memory. */
static int gmlk_loan_use(gmlake *l, gmlk_loan *loan, unsigned stream) {
  size_t i = 0;
  while (i < loan->count && loan->users[i].stream != stream) i++;
  if (!gmlk_host_grow(&l->host, &loan->users, &loan->capacity, i, sizeof(gmlk_used))) return 0;
  loan->count = gmlk_max(loan->count, i + 1);
  loan->users[i].stream = stream;
  loan->users[i].epoch = l->streams.items[stream]->epoch;
  return 1;
}

/* The first live block of a pool that is borrowed; NULL: none. O(blocks). */
static const gmlk_block *gmlk_borrowed(const gmlk_arena *a) {
  const gmlk_block *b = gmlk_next_user(a, NULL);
  while (b && !(b->state == GMLK_LIVE && (b->flags & GMLAKE_TRANSIENT))) b = gmlk_next_user(a, b);
  return b;
}

/* The answer to a call that is not legal while the pool is lent. */
static gmlake_result gmlk_refuse_lent(gmlake *l, const gmlake_pool *pool, const char *call) {
  const gmlk_block *b = gmlk_borrowed(&pool->arena);
  const char *label = b && b->as.extra ? b->as.extra->label : NULL;
  if (!b)
    return gmlk_fail(l, GMLAKE_ERROR_BUSY, call, "the pool is lent: call gmlake_pool_recall first");
  return gmlk_fail(l, GMLAKE_ERROR_BUSY, call,
                   "the pool is lent, and the block at 0x%llx of %llu bytes (%.40s) is borrowed: "
                   "free it first",
                   GMLK_ULL(gmlk_address_of(&pool->arena, b)),
                   (unsigned long long)(b->grains * GMLK_GRAIN - b->its.slack),
                   label ? label : "no label");
}

/* Refuses a call that is not legal while streams are captured into the pool, or while it is lent.
   */
static gmlake_result gmlk_refuse_used(gmlake *l, const gmlake_pool *pool, const char *call) {
  if (pool->loan.number) return gmlk_refuse_lent(l, pool, call);
  if (!pool->capture_count) return GMLAKE_OK;
  return gmlk_fail(l, GMLAKE_ERROR_CAPTURING, call,
                   "%llu captures into the pool are under way: end them first",
                   GMLK_ULL(pool->capture_count));
}

/* A number for a capture into the pool, or for a loan of it, with room for what it and the stream
   free there, and for the stream among those that use it. 0: no host memory. */
static unsigned gmlk_pool_number(gmlake *l, gmlake_pool *pool, gmlake_stream value,
                                 unsigned stream) {
  const unsigned number = gmlk_stream_add(&l->streams, &l->host, value, 1, ++l->records.serial);
  if (!number) return 0;
  if (gmlk_arena_admit(&pool->arena, number) && gmlk_arena_admit(&pool->arena, stream) &&
      gmlk_host_grow(&l->host, &pool->loan.users, &pool->loan.capacity, pool->loan.count,
                     sizeof(gmlk_used)))
    return number;
  l->streams.items[number]->is_used = 0;
  return 0;
}

/* Changes the tag of free memory, in chunks that no graph knows, from `from` to `to`. The pool grew
   by these chunks for borrowers, so they can be lent again, but trim may return them. Where host
   memory is short, some of it keeps its tag. */
static void gmlk_loan_shift(gmlake *l, gmlk_arena *a, unsigned from, unsigned to, uint64_t epoch) {
  uint32_t slot, at, stop;
  for (slot = 0; slot < a->slot_count; slot++) {
    const uint32_t end = (slot + 1) << a->chunk_log;
    gmlk_block *b = a->firsts[slot], *first;
    if (a->chunks.items[slot].is_known) continue;
    for (at = slot << a->chunk_log; at < end; at = stop) { /* a run of free blocks, or one other */
      const int is_free = b->state == GMLK_FREE;
      for (first = b, b = b->next; is_free && b->at < end && b->state == GMLK_FREE;) b = b->next;
      stop = (uint32_t)gmlk_min(b->at, end);
      if (!is_free || !gmlk_records_ensure(&l->records, &l->host, 2)) continue;
      first = gmlk_reserve_range(a, first, at, stop - at);
      for (b = first; b->at < stop; b = b->next)
        if (b->stream == from) {
          b->stream = (uint16_t)to;
          b->u.epoch = epoch;
        }
      gmlk_unreserve_range(a, first, stop - at); /* b is not free, or in the next chunk */
    }
  }
}

static gmlake_result gmlk_pool_lend(gmlake *l, gmlake_pool *pool, gmlake_stream value) {
  const char *call = "gmlake_pool_lend";
  const unsigned stream = gmlk_stream_find_or_add(l, value);
  gmlk_stream *s = stream ? l->streams.items[stream] : NULL;
  gmlake_result result;
  unsigned number;
  if (!s) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (pool->arena.sleep) return gmlk_refuse_asleep(l, &pool->arena, call);
  result = gmlk_refuse_used(l, pool, call);
  if (result) return result;
  if (s->capture)
    return gmlk_fail(l, GMLAKE_ERROR_CAPTURING, call,
                     "the stream is being captured: end that capture, or pass another stream");
  if (s->is_forgotten) return gmlk_refuse_gone(l, value, call);
  number = gmlk_pool_number(l, pool, value, stream);
  if (!number) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  (void)gmlk_loan_use(l, &pool->loan, stream); /* there is room */
  s->is_dirty = GMLK_DIRTY;                    /* the graphs' work is before this point */
  if (s->may_end) gmlk_fence_now(l, stream, 1);
  pool->loan.number = number;
  l->loan_count++;
  gmlk_arena_retag(&pool->arena, GMLK_GRAPH_OWNED, number);
  gmlk_loan_shift(l, &pool->arena, stream, number, GMLK_ENDLESS);
  return l->lost;
}

/* Makes the stream wait on the device for all others that have used what was lent; in a dry run
   only says that it has to wait. CAPTURING: a capture forbids that, or one of these streams was
   destroyed before gmlake_forget_stream. */
static gmlake_result gmlk_loan_follow(gmlake *l, const gmlk_used *users, size_t count,
                                      unsigned stream) {
  gmlake_result result = GMLAKE_OK;
  gmlk_batch batch;
  size_t i = 0;
  while (i < count && !gmlk_has_to_wait_for(l, stream, users[i].stream, users[i].epoch)) i++;
  if (i == count || l->lost) return l->lost;
  if (l->dry_run) {
    l->dry_run->answer.wait = GMLAKE_DEVICE_WAIT;
    return GMLAKE_OK;
  }
  result = gmlk_batch_begin(l, &batch, 0);
  for (; i < count && !result; i++)
    result = gmlk_wait_for_work(l, &batch, stream, users[i].stream, users[i].epoch);
  if (gmlk_batch_end(l, &batch)) return batch.result;
  return result ? GMLAKE_ERROR_CAPTURING : GMLAKE_OK;
}

/* The same for frees of borrowed blocks that wait for recorded streams. */
static gmlake_result gmlk_loan_follow_pending(gmlake *l, const gmlake_pool *pool, unsigned stream) {
  const gmlk_extra *extra = NULL;
  gmlake_result result = GMLAKE_OK;
  while (!result && (extra = gmlk_pending_next(&pool->arena, extra)) != NULL)
    if (extra->stream == pool->loan.number)
      result = gmlk_loan_follow(l, extra->used, extra->used_count, stream);
  return result;
}

static gmlake_result gmlk_pool_recall(gmlake *l, gmlake_pool *pool, gmlake_stream value) {
  const char *call = "gmlake_pool_recall";
  const unsigned stream = gmlk_stream_find_or_add(l, value), number = pool->loan.number;
  gmlk_stream *s = stream ? l->streams.items[stream] : NULL;
  gmlake_result result;
  gmlk_window *w;
  int has_waited;
  if (!s) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (!number)
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                     "the pool is not lent: see gmlake_pool_lend");
  if (gmlk_borrowed(&pool->arena)) return gmlk_refuse_lent(l, pool, call);
  if (s->is_forgotten) return gmlk_refuse_gone(l, value, call);
  if (!gmlk_arena_admit(&pool->arena, stream)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  do { /* while the host waits, others borrow and free */
    result = gmlk_loan_follow(l, pool->loan.users, pool->loan.count, stream);
    if (!result) result = gmlk_loan_follow_pending(l, pool, stream);
    has_waited = result == GMLAKE_ERROR_CAPTURING && !l->streams.capture_count;
    if (has_waited) result = gmlk_wait_for_others(l); /* one of them is gone */
    if (result == GMLAKE_ERROR_CAPTURING)
      return gmlk_fail(l, result, call,
                       "a capture of the stream, or of one that borrowed, forbids to wait for it: "
                       "end that capture first");
    if (result) return result;
    if (gmlk_borrowed(&pool->arena)) return gmlk_refuse_lent(l, pool, call);
  } while (has_waited);
  gmlk_arena_retag(&pool->arena, number, GMLK_GRAPH_OWNED);
  gmlk_loan_shift(l, &pool->arena, GMLK_GRAPH_OWNED, stream, s->epoch);
  s->is_dirty = GMLK_DIRTY;
  for (w = pool->arena.windows.idle_first; w; w = w->idle_next) /* borrowers' are no graph's */
    if (w->alias.stream == GMLK_GRAPH_OWNED && !w->is_known) {
      w->alias.stream = (uint16_t)stream;
      w->alias.epoch = s->epoch;
    }
  gmlk_pending_retag(&pool->arena, number, GMLK_GRAPH_OWNED);
  l->streams.items[number]->is_used = 0;
  pool->loan.number = 0;
  pool->loan.count = 0;
  (void)gmlk_loan_use(l, &pool->loan, stream); /* it is behind them all. There is room: lend's */
  l->loan_count--;
  if (s->may_end) gmlk_fence_now(l, stream, 1);
  return l->lost;
}

/* Serves a request from one pool without taking memory that others wait for, by so many slow steps
   at most. What is lent its stream has to follow, at once or behind waits it may make. OK with
   *out_block NULL: there is none, or the pool is not lent any more. */
static gmlake_result gmlk_serve_pool(gmlake *l, gmlk_request *r, gmlake_stream stream,
                                     unsigned step_limit, gmlk_block **out_block) {
  const gmlk_loan *loan = r->flags & GMLAKE_TRANSIENT ? &r->arena->pool->loan : NULL;
  const gmlk_requester requester =
      gmlk_requester_of(r->stream, gmlk_waiting_requester(l, r).may_wait);
  gmlake_result result;
  size_t i;
  if (!r->grains) return GMLAKE_OK;
  for (i = 0; loan && i < loan->count; i++) {
    const gmlk_used *user = &loan->users[i];
    if (gmlk_has_to_wait_for(l, r->stream, user->stream, user->epoch) &&
        !gmlk_may_await(&l->streams, requester, user->stream, user->epoch))
      return GMLAKE_OK;
  }
  r->step_limit = step_limit;
  result = gmlk_try_fast(l, r, out_block);
  if (!result && !*out_block && (r->may_stitch || step_limit > GMLK_FREE_STEPS))
    result =
        l->dry_run ? gmlk_slow_path(l, r, out_block) : gmlk_serve_slowly(l, r, stream, out_block);
  if (!*out_block || !loan) return result;
  result = gmlk_loan_follow(l, loan->users, loan->count, r->stream);
  if (!result) return GMLAKE_OK;
  gmlk_ungrant(l, r, *out_block);
  *out_block = NULL;
  return result;
}

/* Serves a request from lent pools. *out_ptr NULL: none can. */
static gmlake_result gmlk_serve_lenders(gmlake *l, const gmlake_alloc_desc *desc,
                                        gmlake_stream stream, unsigned step_limit, void **out_ptr) {
  gmlake_alloc_desc wanted = *desc;
  gmlake_result result = GMLAKE_OK;
  uint32_t i;
  for (i = 1; i < l->arena_count && l->loan_count && !gmlk_is_fatal(result) && !*out_ptr; i++) {
    const gmlk_arena *a = l->arenas[i];
    if (!a || !a->pool->loan.number || (desc->pool && desc->pool != a->pool)) continue;
    wanted.pool = a->pool;
    result = gmlk_serve(l, &wanted, stream, step_limit, out_ptr);
  }
  return gmlk_is_fatal(result) ? result : GMLAKE_OK;
}

/* Serves a request with GMLAKE_TRANSIENT from a pool that is lent; else from other free memory;
   else from a pool that is lent together with new chunks for what it lacks, which needs the fewest
   new chunks; else like any other request, which a dry run leaves to its caller. */
static gmlake_result gmlk_serve_transient(gmlake *l, const gmlake_alloc_desc *desc,
                                          gmlake_stream stream, void **out_ptr) {
  const unsigned number = stream == GMLAKE_STREAM_NONE ? 0 : gmlk_stream_find_or_add(l, stream);
  const int is_capture = number && l->streams.items[number]->capture;
  gmlake_alloc_desc plain = *desc;
  gmlake_result result = GMLAKE_OK;
  plain.flags &= ~GMLAKE_TRANSIENT;
  if (l->loan_count && !is_capture) {
    result = gmlk_serve_lenders(l, desc, stream, GMLK_FREE_STEPS, out_ptr);
    if (!result && !*out_ptr) result = gmlk_serve(l, &plain, stream, GMLK_FREE_STEPS, out_ptr);
    if (!gmlk_is_fatal(result) && !*out_ptr && !(desc->flags & GMLAKE_NO_GROW))
      result = gmlk_serve_lenders(l, desc, stream, GMLK_EARLY_STEPS, out_ptr);
  }
  if (*out_ptr || gmlk_is_fatal(result)) return result;
  return l->dry_run ? GMLAKE_OK : gmlk_serve(l, &plain, stream, 0, out_ptr);
}

/* ---- >>pools -----------------------------------------------------------------------------------
   Opens, drains and closes arenas; creates and destroys pools; begins and ends captures into them.
   Owns the lake's list of destroyed pools of which the driver refused to take something back.
   pre: the caller holds `driver_lock`, except to begin a capture.
   Costs: to create O(1), to destroy O(what the pool has), to begin and end a capture O(the pool's
   blocks + idle windows), and the driver's. Can fail: host memory, the driver. */

#define GMLK_POOL_TRIES 8u        /* waits of gmlake_pool_destroy while other threads free */
#define GMLK_POOL_WINDOW_SPACE 4u /* addresses for a pool's windows: so many times the device's */
#define GMLK_EXTENT_PART 64u      /* pools ask for addresses for such a part of the device */

/* Reserves an arena's first addresses, and says what it and its windows may have. window_bytes less
   than a chunk: it does not stitch. */
static gmlake_result gmlk_arena_open(gmlake *l, gmlk_arena *a, size_t chunk_bytes,
                                     size_t arena_bytes, size_t window_bytes) {
  const size_t device = l->device.device_bytes, part = device / GMLK_EXTENT_PART;
  const int is_home = a == &l->home;
  gmlake_result result = GMLAKE_OK;
  a->chunk_bytes = chunk_bytes;
  a->chunk_grains = (uint32_t)(chunk_bytes / GMLK_GRAIN);
  a->chunk_log = gmlk_log2(a->chunk_grains);
  gmlk_area_init(&a->area, gmlk_min(arena_bytes, GMLK_GRAINS_MAX * GMLK_GRAIN),
                 is_home ? device + device / 8 : part, chunk_bytes);
  a->keeps_apart = !a->is_bare && l->desc.policy && l->desc.policy->coalesce;
  if (!a->is_bare && !l->desc.policy) /* [U2] */
    a->small.most = (uint32_t)(chunk_bytes / GMLK_GRAIN / GMLK_SMALL_PART);
  if (!gmlk_arena_init(a, &l->host, &l->records)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (a->is_bare)
    a->area.limit = a->area.most;
  else /* an import needs all */
    result = gmlk_area_reserve(l, &a->area, is_home || arena_bytes == SIZE_MAX ? 1 : a->area.most);
  if (result || window_bytes < chunk_bytes) return result;
  gmlk_area_init(&a->window_space.area, gmlk_min(window_bytes, GMLK_SLOTS_MAX * chunk_bytes),
                 is_home ? device : part, chunk_bytes);
  a->window_space.holes = gmlk_bins_new(&l->host);
  return a->window_space.holes ? GMLAKE_OK : GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
}

/* Unmaps, releases and unreserves all that an arena has, whatever fails. What is left can be
   drained again, unless is_last: then every handle is released, mapped or not. */
static void gmlk_arena_drain(gmlk_arena *a, gmlk_batch *batch, int is_last) {
  gmlk_walk walk = gmlk_walk_of(a);
  gmlk_alias *x;
  uint32_t slot;
  int is_mapped = 0, is_paged = 0; /* a window is still mapped, or a buffer's page */
  int is_backed = 0, is_home;      /* a chunk is still mapped at home; this one is */
  while ((x = gmlk_walk_next(&walk)) != NULL) {
    const int is_left = gmlk_alias_unmap(batch, a, x) != GMLAKE_OK;
    is_mapped |= is_left && x->is_window;
    is_paged |= is_left && !x->is_window;
  }
  for (slot = 0; slot < a->chunks.capacity; slot++) {
    if (!a->chunks.items[slot].handle) continue;
    is_home = !gmlk_chunk_unmap(batch, a, slot);
    is_backed |= is_home;
    if (is_last || /* a mapping would keep its memory */
        !(is_home || ((is_mapped || is_paged) && a->chunks.items[slot].map_count)))
      gmlk_chunk_release(&a->chunks, batch, slot);
  }
  if (!is_mapped) gmlk_area_close(&a->window_space.area, batch);
  if (!is_paged) gmlk_area_close(&a->buffer_space.area, batch);
  if (!is_backed) gmlk_area_close(&a->area, batch);
}

/* Frees an arena's host memory: windows, buffers, blocks, tables. */
static void gmlk_arena_close(gmlake *l, gmlk_arena *a) {
  const gmlk_block *va = a->window_space.begin.next, *b;
  for (b = gmlk_next_user(a, NULL); b; b = gmlk_next_user(a, b)) gmlk_extra_free(l, b->as.extra);
  for (b = a->begin.next; b; b = b->next) /* of chunks of buffers that were exported */
    if (b->state == GMLK_COMMITTED) gmlk_extra_free(l, b->as.extra);
  gmlk_copies_drop(l, a);
  gmlk_host_free(&l->host, a->host_copies.items, a->host_copies.capacity * sizeof(void *));
  for (; va && va != &a->window_space.end; va = va->next) {
    gmlk_window *w = va->state == GMLK_LIVE ? (gmlk_window *)va->u.owner : NULL;
    if (w) gmlk_host_free(&l->host, w, sizeof(*w) + w->piece_count * sizeof(gmlk_piece));
  }
  while (a->buffers) {
    gmlake_buffer *next = a->buffers->next;
    gmlk_buffer_free(l, a->buffers);
    a->buffers = next;
  }
  gmlk_arena_destroy(a);
}

static void gmlk_pool_free(gmlake *l, gmlake_pool *pool) {
  gmlk_arena_close(l, &pool->arena);
  gmlk_host_free(&l->host, pool->loan.users, pool->loan.capacity * sizeof(gmlk_used));
  gmlk_host_free(&l->host, pool, sizeof(gmlake_pool));
}

/* Offers to the driver what a destroyed pool still has. If nothing is left, frees the pool, which
   *link names; else *link is the next one. */
static gmlake_result gmlk_pool_offer(gmlake *l, gmlake_pool ***link) {
  gmlake_pool *pool = **link;
  gmlk_arena *a = &pool->arena;
  const size_t held = l->stats.reserved_bytes;
  gmlk_batch batch;
  if (!gmlk_batch_begin(l, &batch, GMLK_UNLOCKED)) gmlk_arena_drain(a, &batch, 0);
  (void)gmlk_batch_end(l, &batch);
  (void)gmlk_tell_held(l, held, batch.ns, "the chunks' pool was destroyed");
  if (gmlk_is_fatal(batch.result) || a->host_copies.count || a->area.count ||
      a->window_space.area.count || a->buffer_space.area.count || a->chunks.backed_count ||
      a->chunks.quarantined_count) {
    *link = &pool->next_released;
  } else {
    **link = pool->next_released;
    gmlk_pool_free(l, pool);
  }
  return batch.result;
}

/* Destroys a pool: all that it holds is quarantined until the driver has taken it. */
static void gmlk_pool_release(gmlake *l, gmlake_pool *pool) {
  gmlake_pool **link = &l->released_pools;
  gmlk_arena *a = &pool->arena;
  a->sleep = GMLK_ASLEEP; /* all that it holds counts as quarantined, */
  a->chunks.asleep_count = 0;
  if (l->arenas[a->number] == a) l->arenas[a->number] = NULL; /* it was opened to its end */
  memset(&a->mapped, 0, sizeof(a->mapped));                   /* and the chunks alone */
  gmlk_copies_drop(l, a);
  pool->lake = NULL;
  pool->next_released = l->released_pools; /* so its chunks count, before the driver is called */
  l->released_pools = pool;
  (void)gmlk_host_copy_free(l, a);
  (void)gmlk_pool_offer(l, &link);
}

/* Makes the record of a pool, of an arena for buffers, or of another process's memory. */
static gmlake_result gmlk_pool_open(gmlake *l, const gmlake_pool_desc *desc, int is_bare,
                                    gmlake_pool *owner, size_t arena_bytes, size_t window_bytes,
                                    gmlake_pool **out_pool) {
  gmlake_pool *pool = (gmlake_pool *)gmlk_host_alloc(&l->host, sizeof(gmlake_pool));
  gmlake_result result;
  if (!pool) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  pool->lake = l;
  pool->label = desc->label;
  pool->arena.pool = pool;
  pool->arena.owner = is_bare ? owner : pool;
  pool->arena.limit_bytes = desc->limit_bytes;
  pool->arena.is_bare = is_bare;
  result = gmlk_arena_open(l, &pool->arena, desc->chunk_bytes, arena_bytes, window_bytes);
  if (!result && !gmlk_arena_enlist(l, &pool->arena)) result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (!result) {
    *out_pool = pool;
    return GMLAKE_OK;
  }
  gmlk_pool_release(l, pool);
  return l->lost ? l->lost : result;
}

/* Refuses a size of chunks that the device cannot have. */
static gmlake_result gmlk_chunk_check(gmlake *l, size_t chunk, const char *call) {
  const size_t least = l->device.granularity_bytes;
  const size_t most = gmlk_min(l->device.device_bytes, GMLK_CHUNK_BYTES_MAX);
  if (gmlk_is_pow2(chunk) && chunk % least == 0 && chunk <= most) return GMLAKE_OK;
  return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                   "chunk_bytes is %llu: it has to be a power of two from %llu to %llu, or 0 for "
                   "the default",
                   GMLK_ULL(chunk), GMLK_ULL(least), GMLK_ULL(most));
}

/* Creates a pool, or, if is_bare, the arena that the owner's buffers of one chunk size share.
   desc NULL: all of it is 0. */
static gmlake_result gmlk_pool_create(gmlake *l, const gmlake_pool_desc *desc, int is_bare,
                                      gmlake_pool *owner, gmlake_pool **out_pool) {
  const size_t chunk = desc && desc->chunk_bytes ? desc->chunk_bytes : l->home.chunk_bytes;
  const char *call = is_bare ? "gmlake_buffer_create" : "gmlake_pool_create";
  size_t window = 0;
  gmlake_pool_desc full;
  gmlake_result result = gmlk_chunk_check(l, chunk, call);
  if (result) return result;
  memset(&full, 0, sizeof(full));
  if (desc) full = *desc;
  if (l->home.window_space.holes && !is_bare)
    window = gmlk_min(l->device.device_bytes, SIZE_MAX / 8) * GMLK_POOL_WINDOW_SPACE;
  full.chunk_bytes = chunk;
  return gmlk_pool_open(l, &full, is_bare, owner, SIZE_MAX, window, out_pool);
}

static gmlk_arena *gmlk_pool_first_arena(gmlake *l, gmlake_pool *pool) {
  return pool ? &pool->arena : &l->home;
}

/* Whether all work on an arena's free memory, idle windows and pages is known to be complete, and
   what streams have done with what its pool lends; except work of graphs, which the caller has to
   wait for. pre: gmlk_refresh has just run. */
static int gmlk_arena_is_quiet(const gmlake *l, const gmlk_arena *a) {
  gmlk_walk walk = gmlk_walk_of(a);
  const gmlk_alias *x;
  const gmlk_block *b;
  size_t i;
  for (i = 0; a->pool && i < a->pool->loan.count; i++) {
    const gmlk_used *user = &a->pool->loan.users[i];
    if (!gmlk_tag_done(&l->streams, user->stream, user->epoch)) return 0;
  }
  for (b = a->begin.next; b != &a->end; b = b->next)
    if (gmlk_is_tagged(b)) return 0;
  while ((x = gmlk_walk_next(&walk)) != NULL)
    if (x->state == GMLK_ALIAS_IDLE && x->stream != GMLK_GRAPH_OWNED && !gmlk_alias_is_done(l, x))
      return 0;
  return 1;
}

/* The same for all arenas of a pool. Counts its live blocks, and its buffers but destroyed ones.
   What the driver did not let the lake return is no longer the user's: it goes with the pool. */
static int gmlk_pool_is_quiet(const gmlake *l, const gmlake_pool *pool, size_t *out_blocks,
                              size_t *out_buffers) {
  const gmlake_buffer *b;
  const gmlk_block *block = gmlk_next_user(&pool->arena, NULL);
  int is_quiet = 1;
  gmlk_arena *a;
  for (*out_blocks = 0; block; block = gmlk_next_user(&pool->arena, block)) /* pending ones too */
    *out_blocks += !(block->state == GMLK_PENDING && gmlk_is_return(block->as.extra));
  *out_buffers = 0;
  GMLK_FOR_POOL_ARENAS(l, pool, a) {
    for (b = a->buffers; b; b = b->next) *out_buffers += b->lake != NULL;
    is_quiet = is_quiet && gmlk_arena_is_quiet(l, a);
  }
  return is_quiet;
}

/* Makes the host wait until all work on the memory of a pool's arenas is complete, except that of
   graphs and of live blocks. CAPTURING: a capture forbids to record an event behind some of it. */
static gmlake_result gmlk_wait_for_pool(gmlake *l, gmlake_pool *pool) {
  int is_done = 0;
  gmlk_host_wait p = {0, 0, 0, 0, 0};
  gmlake_result result;
  gmlk_arena *a;
  for (result = gmlk_wait_on(l, &p); !result; result = gmlk_wait_on(l, &p)) {
    is_done = 1;
    GMLK_FOR_POOL_ARENAS(l, pool, a) {
      is_done = is_done && !gmlk_pending_next(a, NULL) && gmlk_arena_is_quiet(l, a);
    }
    if (is_done || p.is_over) break;
  }
  if (result || is_done || !p.is_partial) return result;
  return GMLAKE_ERROR_CAPTURING;
}

/* gmlk_release_poll, once streams were asked as gmlk_refresh does; also for imports that are freed,
   and destroyed pools. */
static gmlake_result gmlk_release_all(gmlake *l, int close, size_t *released) {
  gmlake_pool **link = &l->released_pools;
  gmlake_result first = gmlk_refresh(l, close), result;
  size_t held, i;
  if (!first) first = gmlk_release_poll(l, released);
  held = l->stats.reserved_bytes;
  while (*link && !l->lost) {
    result = gmlk_pool_offer(l, &link);
    if (!first) first = result;
  }
  for (i = 0; i < l->arena_count && !l->lost; i++) {
    gmlk_arena *a = l->arenas[i];
    if (!a || !a->is_import || gmlk_next_user(a, NULL)) continue;
    gmlk_pool_release(l, a->pool);
  }
  *released += held - l->stats.reserved_bytes;
  return l->lost ? l->lost : first;
}

static gmlake_result gmlk_pool_destroy(gmlake *l, gmlake_pool *pool) {
  const char *call = "gmlake_pool_destroy";
  const gmlk_callback *callback = l->callbacks;
  size_t blocks, buffers, released = 0, i = l->arena_count;
  gmlk_extra *extra;
  unsigned tries = 0;
  gmlake_result result;
  int is_quiet;
  result = gmlk_refuse_used(l, pool, call);
  if (result) return result;
  while (callback && callback->pool != pool) callback = callback->next;
  if (callback) /* that call goes on to use the pool */
    return gmlk_fail(
        l, GMLAKE_ERROR_BUSY, call,
        "the out-of-memory handler runs for a call that asks the pool at %p for memory: "
        "destroy the pool once that call has returned",
        (const void *)pool);
  do { /* also ends pending frees; other threads may free the pool's blocks meanwhile */
    result = gmlk_wait_for_pool(l, pool);
    if (!result) (void)gmlk_release_poll(l, &released);
    if (!result) result = l->lost;
    is_quiet = gmlk_pool_is_quiet(l, pool, &blocks, &buffers);
  } while (!result && !is_quiet && ++tries < GMLK_POOL_TRIES);
  if (result && result != GMLAKE_ERROR_CAPTURING) return result;
  if (pool->capture_count) return gmlk_refuse_used(l, pool, call); /* it began meanwhile */
  if (result && (blocks || !is_quiet))
    return gmlk_fail(l, result, call,
                     "work on the pool's memory is pending, and a capture forbids to record an "
                     "event behind it: end the capture first");
  if (blocks || buffers)
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                     "%llu blocks and %llu buffers of the pool are live: free them first",
                     GMLK_ULL(blocks), GMLK_ULL(buffers));
  if (!is_quiet)
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                     "other threads free the pool's blocks while it is destroyed: stop them first");
  while (i--) { /* the arena of its blocks goes last */
    gmlk_arena *a = l->arenas[i];
    if (a && a->owner == pool && a != &pool->arena) gmlk_pool_release(l, a->pool);
  }
  while ((extra = gmlk_pending_next(&pool->arena, NULL)) != NULL) gmlk_pending_end(l, extra);
  gmlk_pool_release(l, pool);
  return l->lost;
}

static gmlake_result gmlk_capture_begin(gmlake *l, gmlake_stream value, gmlake_pool *pool) {
  unsigned stream = gmlk_stream_find_or_add(l, value), capture;
  unsigned legacy = gmlk_stream_find(&l->streams, NULL);
  gmlk_stream *s = stream ? l->streams.items[stream] : NULL;
  if ((s && s->capture) || l->streams.is_device_awaited) {
    gmlk_lock_driver(l); /* what is under way on the stream, or on all, ends before */
    stream = gmlk_stream_find_or_add(l, value);
    s = stream ? l->streams.items[stream] : NULL;
    if (s && s->capture) gmlk_captures_end(l, stream); /* the driver may have ended that one */
    gmlk_unlock_driver(l);
  }
  if (!s) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (s->capture)
    return gmlk_fail(l, GMLAKE_ERROR_CAPTURING, "gmlake_capture_begin",
                     "stream is %p, which is being captured already: end that capture first",
                     (void *)value);
  if (pool->arena.sleep) return gmlk_refuse_asleep(l, &pool->arena, "gmlake_capture_begin");
  if (pool->loan.number) return gmlk_refuse_lent(l, pool, "gmlake_capture_begin");
  /* The stream may have used blocks that the capture then frees. */
  if (gmlk_next_user(&pool->arena, NULL)) {
    if (!gmlk_loan_use(l, &pool->loan, stream)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    s->is_dirty = GMLK_DIRTY;
  }
  gmlk_fence_now(l, stream, 1);             /* for the capture, what it freed is another stream's */
  if (legacy) gmlk_fence_now(l, legacy, 1); /* during captures no event may be recorded on it */
  if (l->lost) return l->lost;
  if (s->is_forgotten) return gmlk_refuse_gone(l, value, "gmlake_capture_begin");
  capture = gmlk_pool_number(l, pool, value, stream);
  if (!capture) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (!pool->capture_count++) gmlk_arena_retag(&pool->arena, GMLK_GRAPH_OWNED, capture);
  s->capture = capture;
  s->is_seen = s->has_ended = 0;
  l->streams.capture_count++;
  s->arena = pool->arena.number;
  return GMLAKE_OK;
}

/* ---- >>buffer ----------------------------------------------------------------------------------
   Creates buffers; commits and discards ranges of their pages; a resize is one of the two. A
   discard needs no driver call, nor does a commit of pages that still map chunks which the stream
   may have. Any other commit takes a chunk for each page and then maps them all; an error gives
   the chunks back. pre, for that: the caller holds `driver_lock`.
   Costs and failures: those of >>pages and >>slow. */

#define GMLK_REAP_MAX 2u /* destroyed buffers that one gmlake_buffer_create unmaps */

typedef enum gmlk_verb { GMLK_RESIZE, GMLK_COMMIT, GMLK_DISCARD } gmlk_verb;

typedef struct gmlk_change { /* what a call asks of a buffer */
  const char *call;
  gmlk_verb verb;
  size_t offset, bytes; /* [RESIZE] the new end, and 0 */
  uint32_t *chunks;     /* [COMMIT] slots of the chunks that are wanted, and then there; or NULL */
  /* What has to be done for it, as the buffer is now: */
  int is_commit;
  uint32_t from, to; /* the pages to commit or to discard */
  size_t end;        /* the buffer's, when that is done */
} gmlk_change;

/* Frees a page's chunk, which queued work of the stream may use. With an extra record it is shared
   [N5]. */
static void gmlk_page_free(gmlake *l, gmlk_arena *a, const gmlk_alias *page, unsigned stream) {
  gmlk_stream *s = stream ? l->streams.items[stream] : NULL;
  gmlk_block *b = a->firsts[page->slot];
  gmlk_extra *extra = b->as.extra;
  if (extra) {
    extra->used_count = stream != 0; /* of its uses, that one alone is left */
    extra->used[0].stream = stream;
    gmlk_pend(l, b, stream, s ? s->epoch : 0);
    return;
  }
  if (b->flags & GMLK_IN_THE_WAY) gmlk_windows_unblock(&a->windows, b);
  gmlk_put(a, b, stream, s ? s->epoch : 0);
  if (s) s->is_dirty = GMLK_DIRTY;
}

/* Carries out a change that has the chunks it needs, highest page first. What is discarded stays
   mapped. Then an event is recorded even if the lake has only one stream, since only complete
   memory serves other buffers without a wait. GMLAKE_FILL: the host fills the chunks, unless
   another process may use them, which an extra record tells; new chunks of bare arenas, which have
   no home, are not filled before. */
static void gmlk_change_settle(gmlake *l, gmlake_buffer *b, const gmlk_change *change,
                               unsigned stream) {
  const int fills = (l->desc.flags & GMLAKE_FILL) && b->arena->sleep < GMLK_ASLEEP;
  const int is_commit = change->is_commit;
  uint32_t i = change->to, before = b->count;
  gmlk_buffer_figure(l, b, -1);
  while (i-- > change->from) {
    gmlk_alias *page;
    if (gmlk_is_committed(b, i) == is_commit) continue;
    page = &b->pages[i];
    page->state = is_commit ? GMLK_ALIAS_LIVE : GMLK_ALIAS_IDLE;
    b->count += is_commit ? 1u : (uint32_t)-1;
    if (fills && is_commit && !b->arena->is_bare && !b->arena->firsts[page->slot]->as.extra)
      gmlk_fill_verify(l, page->address, b->arena->chunk_bytes);
    if (fills && !b->arena->firsts[page->slot]->as.extra)
      memset((void *)(uintptr_t)page->address, is_commit ? GMLAKE_FILL_NEW : GMLAKE_FILL_FREE,
             b->arena->chunk_bytes);
    if (is_commit) continue;
    gmlk_page_free(l, b->arena, page, stream);
    page->stream = (uint16_t)stream;
    page->epoch = stream ? l->streams.items[stream]->epoch : 0;
  }
  for (i = change->from; change->chunks && i < change->to; i++)
    change->chunks[i - change->from] = b->pages[i].slot;
  b->bytes = change->end;
  gmlk_buffer_figure(l, b, 1);
  if (stream && b->count < before) gmlk_fence_now(l, stream, 1);
}

/* Takes the chunks that the change's pages map, if they are wanted and the stream may have all. */
static int gmlk_pages_retake(gmlake *l, gmlake_buffer *b, const gmlk_change *change,
                             unsigned stream) {
  gmlk_arena *a = b->arena;
  const gmlk_requester requester = gmlk_requester_of(stream, GMLAKE_NO_WAIT);
  uint32_t i, from = change->from, to = change->to;
  int is_all;
  for (i = from; i < to; i++) {
    const uint32_t wanted_slot = change->chunks ? change->chunks[i - from] : GMLAKE_ANY_CHUNK;
    const gmlk_alias *page = i < b->page_count ? &b->pages[i] : NULL;
    if (gmlk_is_committed(b, i)) continue; /* whatever was wanted there */
    if (!page || page->state != GMLK_ALIAS_IDLE ||
        (wanted_slot != GMLAKE_ANY_CHUNK && wanted_slot != page->slot) ||
        !gmlk_slot_suits(l, a, page->slot, requester) || /* two may map one chunk */
        !gmlk_records_ensure(&l->records, &l->host, 2))
      break;
    (void)gmlk_reserve_range(a, a->firsts[page->slot], page->slot << a->chunk_log, a->chunk_grains);
  }
  is_all = i == to;
  while (i-- > from) {
    gmlk_block *block;
    if (gmlk_is_committed(b, i)) continue;
    block = a->firsts[b->pages[i].slot];
    if (is_all)
      gmlk_page_commit(a, block);
    else
      gmlk_unreserve_range(a, block, a->chunk_grains);
  }
  return is_all;
}

/* Carries out a change if that needs no driver call except an event. 0: it is not carried out. */
static int gmlk_change_try(gmlake *l, gmlake_buffer *b, const gmlk_change *change,
                           unsigned stream) {
  if (b->is_busy) return 0;
  if (change->is_commit && !gmlk_pages_retake(l, b, change, stream)) return 0;
  gmlk_change_settle(l, b, change, stream);
  return 1;
}

/* Finds a chunk for an empty page, as a block of a whole chunk is served. */
static gmlake_result gmlk_page_find(gmlake *l, const gmlk_request *wanted, gmlk_block **out) {
  gmlk_request r = *wanted;
  gmlake_result result = gmlk_try_fast(l, &r, out);
  return result || *out ? result : gmlk_slow_path(l, &r, out);
}

/* Takes the chunk in a slot for a requester, whose stream may have to wait on the device. */
static int gmlk_slot_take(gmlake *l, gmlk_arena *a, gmlk_requester requester, uint32_t slot) {
  gmlk_piece piece = gmlk_piece_with(slot << a->chunk_log, a->chunk_grains);
  if (!gmlk_slot_suits(l, a, slot, requester) || !gmlk_records_ensure(&l->records, &l->host, 2) ||
      gmlk_pieces_reserve(l, a, requester, &piece, 1))
    return 0;
  gmlk_page_commit(a, piece.block);
  return 1;
}

/* Makes the host wait for the last use through a page. */
static gmlake_result gmlk_page_wait(gmlake *l, const gmlk_alias *page, const char *call) {
  gmlk_host_wait p = {0, 0, 0, 0, 0};
  gmlake_result result = l->lost;
  while (!result && !p.is_over && !gmlk_alias_is_done(l, page)) result = gmlk_wait_on(l, &p);
  if (gmlk_alias_is_done(l, page) || (result && result != GMLAKE_ERROR_CAPTURING))
    return l->lost ? l->lost : result;
  return gmlk_fail(l, GMLAKE_ERROR_CAPTURING, call,
                   "the host has to wait for a stream that used the memory, which a capture "
                   "forbids: end the capture first");
}

/* Unmaps one alias. */
static gmlake_result gmlk_alias_unmap_one(gmlake *l, gmlk_arena *a, gmlk_alias *x) {
  x->next = NULL;
  return gmlk_aliases_unmap(l, a, x);
}

/* Takes a chunk for a page: the one that is wanted, unless the host would have to wait to unmap
   what the page maps; else the one mapped there if possible; else another. If it is not the one
   mapped there, the page becomes empty, with the chunk's slot to be mapped. */
static gmlake_result gmlk_page_serve(gmlake *l, const gmlk_request *r, gmlk_alias *page,
                                     uint32_t wanted_slot, const char *call) {
  const gmlk_requester waiting = gmlk_waiting_requester(l, r);
  gmlk_arena *a = r->arena;
  gmlk_block *found = NULL;
  gmlake_result result = GMLAKE_OK;
  if (wanted_slot < a->slot_count && !(page->state && page->slot == wanted_slot) &&
      gmlk_slot_suits(l, a, wanted_slot, waiting) &&
      (!page->state || gmlk_alias_is_done(l, page))) {
    if (page->state) result = gmlk_alias_unmap_one(l, a, page);
    if (result) return result;
    if (gmlk_slot_take(l, a, waiting, wanted_slot)) {
      page->slot = wanted_slot;
      return GMLAKE_OK;
    }
    if (l->lost) return l->lost;
  }
  if (page->state == GMLK_ALIAS_IDLE &&
      (gmlk_slot_take(l, a, r->requester, page->slot) || gmlk_slot_take(l, a, waiting, page->slot)))
    return GMLAKE_OK;
  if (page->state) {
    result = gmlk_page_wait(l, page, call);
    if (result) return result;
    if (page->state == GMLK_ALIAS_IDLE && gmlk_slot_take(l, a, r->requester, page->slot))
      return GMLAKE_OK;
    result = gmlk_alias_unmap_one(l, a, page);
  }
  if (!result) result = gmlk_page_find(l, r, &found);
  if (result) return result;
  gmlk_page_commit(a, found);
  page->slot = found->at >> a->chunk_log;
  return GMLAKE_OK;
}

/* Makes other arenas return the chunks that will have to be created for an arena's buffers: what
   its own free memory does not suffice for, whatever may still use that. Asks first what has
   completed, since a program of one stream records no events for blocks. O(arenas), and O(blocks)
   where one may return something. */
static gmlake_result gmlk_buffer_share(gmlake *l, const gmlk_arena *a, size_t chunks) {
  const size_t own = (size_t)(a->free_grains >> a->chunk_log);
  const gmlk_arena *other;
  int asks = 0;
  if (chunks <= own) return GMLAKE_OK;
  GMLK_FOR_ARENAS(l, other)
    asks |= gmlk_gives(other, a, GMLK_GIVE_BUFFER) && other->free_grains >= other->chunk_grains &&
            other->free_grains > other->bins[GMLK_CLEAN]->grains;
  if (asks) (void)gmlk_refresh(l, 1);
  return l->lost ? l->lost
                 : gmlk_return_others(l, a, GMLK_GIVE_BUFFER, (chunks - own) * a->chunk_bytes,
                                      GMLAKE_NO_WAIT);
}

/* Commits more chunks with the driver's help; after an error the buffer is as it was. r: for one of
   them, as the slow steps need it. */
static gmlake_result gmlk_buffer_grow(gmlake *l, const gmlk_request *r, gmlake_buffer *b,
                                      const gmlk_change *change) {
  const uint32_t committed = gmlk_pages_committed(b, change->from, change->to);
  gmlk_arena *a = b->arena;
  uint32_t i = change->from, n;
  gmlk_alias *list = NULL;
  uint64_t ns;
  gmlake_result result = GMLAKE_OK;
  if (!gmlk_pages_ensure(l, b, change->to)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (a->free_grains > a->bins[GMLK_CLEAN]->grains) (void)gmlk_refresh(l, 0);
  result = l->lost;
  if (!result) result = gmlk_buffer_share(l, a, change->to - change->from - committed);
  for (; i < change->to && !result; i += !result)
    if (!gmlk_is_committed(b, i))
      result = gmlk_page_serve(l, r, &b->pages[i],
                               change->chunks ? change->chunks[i - change->from] : GMLAKE_ANY_CHUNK,
                               change->call);
  for (n = change->to; !result && n-- > change->from;) /* maps the empty pages to their slots */
    if (!b->pages[n].state) gmlk_alias_give_up(a, &b->pages[n], &list);
  if (!result) result = gmlk_aliases_make(l, a, list, &ns);
  if (!result) gmlk_change_settle(l, b, change, r->stream);
  while (result && i-- > change->from)
    if (!gmlk_is_committed(b, i)) gmlk_page_free(l, a, &b->pages[i], r->stream);
  return result;
}

/* Takes address space for a buffer. If there is none, destroyed buffers' is freed whose uses are
   complete; then the driver is asked for more; then the host waits, and the rest of theirs is. */
static gmlake_result gmlk_buffer_addresses(gmlake *l, gmlk_arena *a, size_t max_bytes,
                                           const gmlake_buffer *b, gmlk_block **out_va) {
  const size_t slots = max_bytes / a->chunk_bytes + (max_bytes % a->chunk_bytes != 0);
  gmlake_result result = GMLAKE_OK, refused = GMLAKE_OK;
  unsigned tries;
  *out_va = NULL;
  a->buffer_space.area.is_full = 0;
  for (tries = 0; tries < 4 && slots <= GMLK_SLOTS_MAX && !*out_va; tries++) {
    if (tries == 2) result = refused = gmlk_space_extend_to(l, &a->buffer_space, (uint32_t)slots);
    if (tries == 3 && a->destroyed_count) result = gmlk_wait_for_others(l);
    if (tries % 2 && !result) result = gmlk_buffers_reap(l, a, SIZE_MAX);
    if (gmlk_is_fatal(result) || result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY) return result;
    if (!gmlk_records_ensure(&l->records, &l->host, 1)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    *out_va = gmlk_va_take(&a->buffer_space, &l->records, (uint32_t)slots, b);
  }
  if (!result) result = refused; /* a wait behind it may have succeeded */
  if (!*out_va && result && result != GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY) return result;
  if (!*out_va)
    return gmlk_fail(l, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, "gmlake_buffer_create",
                     "max_bytes is %llu: no address space is left for it; destroy other buffers, "
                     "or ask for less",
                     GMLK_ULL(max_bytes));
  (*out_va)->state = GMLK_COMMITTED;
  return GMLAKE_OK;
}

/* The arena that all the owner's buffers of a chunk size share: that of its blocks, if their chunks
   are as large and buffers may have them; else a bare one, which is created on first use. */
static gmlake_result gmlk_buffers_arena(gmlake *l, size_t chunk_bytes, gmlake_pool *owner,
                                        gmlk_arena **out_arena) {
  gmlk_arena *first = owner ? &owner->arena : &l->home, *a = NULL;
  gmlake_pool_desc desc;
  gmlake_pool *pool = NULL;
  gmlake_result result;
  size_t i;
  for (i = 0; i < l->arena_count && !a; i++) {
    a = l->arenas[i];
    /* A policy may decide about the chunks of an arena that has others than buffers'. */
    if (a && (a->owner != owner || a->chunk_bytes != chunk_bytes ||
              !(a->buffer_space.holes || a->is_bare || !l->desc.policy)))
      a = NULL;
  }
  memset(&desc, 0, sizeof(desc));
  desc.chunk_bytes = chunk_bytes;
  desc.limit_bytes = first->limit_bytes;
  if (!a) {
    result = gmlk_pool_create(l, &desc, 1, owner, &pool);
    if (result) return result;
    GMLAKE_ASSERT(pool);
    a = &pool->arena;
    a->sleep = first->sleep; /* [E1] */
  }
  *out_arena = a;
  if (!a->buffer_space.holes) {
    gmlk_area_init(&a->buffer_space.area, GMLK_SLOTS_MAX * chunk_bytes,
                   l->device.device_bytes / GMLK_EXTENT_PART, chunk_bytes);
    a->buffer_space.holes = gmlk_bins_new(&l->host);
  }
  return a->buffer_space.holes ? GMLAKE_OK : GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
}

static gmlake_result gmlk_buffer_create(gmlake *l, const gmlake_buffer_desc *desc,
                                        gmlake_buffer **out_buffer) {
  size_t chunk = gmlk_max(2 * GMLK_MIB, l->device.granularity_bytes);
  gmlake_buffer *b;
  gmlk_arena *a;
  gmlake_result result =
      gmlk_buffers_arena(l, desc->chunk_bytes ? desc->chunk_bytes : chunk, desc->pool, &a);
  if (result) return result;
  if (a->destroyed_count) { /* unmaps some that are destroyed; later calls try again */
    result = gmlk_refresh(l, 0);
    if (!gmlk_is_fatal(result)) result = gmlk_buffers_reap(l, a, GMLK_REAP_MAX);
    if (gmlk_is_fatal(result)) return result;
  }
  b = (gmlake_buffer *)gmlk_host_alloc(&l->host, sizeof(gmlake_buffer));
  if (!b) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  result = gmlk_buffer_addresses(l, a, desc->max_bytes, b, &b->va);
  if (result) {
    gmlk_host_free(&l->host, b, sizeof(gmlake_buffer));
    return result;
  }
  GMLAKE_ASSERT(b->va);
  b->lake = l;
  b->arena = a;
  b->max_bytes = desc->max_bytes;
  b->user_data = desc->user_data;
  b->label = desc->label;
  b->next = a->buffers;
  a->buffers = b;
  l->stats.buffer_count++;
  gmlk_tell_call(l, GMLAKE_STEP_BUFFER, GMLAKE_STREAM_NONE, gmlk_buffer_address(b), a->chunk_bytes,
                 b->max_bytes, b, "a buffer was created");
  *out_buffer = b;
  return GMLAKE_OK;
}

/* Refuses a range that the buffer does not have. */
static gmlake_result gmlk_change_check(gmlake *l, const gmlake_buffer *b, const gmlk_change *of) {
  const size_t chunk = b->arena->chunk_bytes;
  const size_t left = b->max_bytes - gmlk_min(of->offset, b->max_bytes);
  if (of->verb == GMLK_RESIZE && of->offset > b->max_bytes)
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, of->call,
                     "bytes is %llu, more than the buffer's max_bytes, %llu", GMLK_ULL(of->offset),
                     GMLK_ULL(b->max_bytes));
  if (of->verb == GMLK_RESIZE ||
      (of->offset <= b->max_bytes && of->offset % chunk == 0 &&
       (of->bytes == left || (of->bytes < left && of->bytes % chunk == 0))))
    return GMLAKE_OK;
  return gmlk_fail(
      l, GMLAKE_ERROR_INVALID_ARGUMENT, of->call,
      "offset is %llu and bytes %llu: pass multiples of the buffer's chunk_bytes, %llu, "
      "that end at its max_bytes, %llu, or before",
      GMLK_ULL(of->offset), GMLK_ULL(of->bytes), GMLK_ULL(chunk), GMLK_ULL(b->max_bytes));
}

/* Plans a change, checks whether it may be made on the stream, and finds the stream's number. A
   commit behind the end moves the end. A discard before it leaves a hole; the end stays. */
static gmlake_result gmlk_change_admit(gmlake *l, const gmlake_buffer *b, gmlake_stream value,
                                       gmlk_change *change, unsigned *out_stream) {
  size_t first = change->offset, last = change->offset + change->bytes;
  uint64_t address, bytes;
  gmlake_result result;
  change->is_commit = change->verb == GMLK_COMMIT;
  change->end = b->bytes;
  if (change->verb == GMLK_RESIZE) {
    change->is_commit = change->offset > b->bytes;
    change->end = change->offset;
    first = gmlk_min(change->offset, b->bytes);
    last = gmlk_max(change->offset, b->bytes);
  }
  if (!change->is_commit) last = gmlk_min(last, b->bytes);
  if (change->is_commit && first < last) change->end = gmlk_max(last, b->bytes);
  change->from =
      change->is_commit ? (uint32_t)(first / b->arena->chunk_bytes) : gmlk_buffer_count(b, first);
  change->to = gmlk_buffer_count(b, last);
  *out_stream = 0;
  if (change->is_commit && l->is_restricted && gmlk_forbid_in_callback(l, change->call))
    return l->error.result;
  if (change->is_commit && b->arena->sleep) return gmlk_refuse_asleep(l, b->arena, change->call);
  if (value != GMLAKE_STREAM_NONE) {
    *out_stream = gmlk_stream_find_or_add(l, value);
    if (!*out_stream) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    if (!change->is_commit && l->streams.items[*out_stream]->capture &&
        gmlk_pages_committed(b, change->from, change->to))
      return gmlk_fail(l, GMLAKE_ERROR_CAPTURING, change->call,
                       "a buffer cannot shrink on a captured stream: end the capture first");
    if (!gmlk_arena_admit(b->arena, *out_stream)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    if (change->is_commit && l->streams.items[*out_stream]->is_forgotten)
      return gmlk_refuse_gone(l, value, change->call);
  }
  if (change->is_commit || change->from >= change->to) return GMLAKE_OK;
  address = gmlk_buffer_address(b) + change->from * (uint64_t)b->arena->chunk_bytes;
  bytes = (change->to - change->from) * (uint64_t)b->arena->chunk_bytes;
  result = gmlk_mock_may_end(l, address, bytes, NULL, value, change->call);
  if (!result) gmlk_mock_end_uses(l, address, bytes); /* at most host memory can be missing now */
  return result;
}

/* pre: state_lock is held; it is held again at the end. */
static gmlake_result gmlk_buffer_change(gmlake *l, gmlake_buffer *b, gmlk_change *change,
                                        gmlake_stream value) {
  unsigned stream = 0;
  gmlake_result result = gmlk_change_check(l, b, change);
  if (!result) result = gmlk_change_admit(l, b, value, change, &stream);
  if (!result && !gmlk_change_try(l, b, change, stream)) {
    gmlk_lock_driver(l);
    result = l->lost;
    if (!result) result = gmlk_change_admit(l, b, value, change, &stream);
    if (!result && !gmlk_change_try(l, b, change, stream)) {
      gmlk_request r = gmlk_request_of(b->arena, stream, b->arena->chunk_bytes);
      b->is_busy = 1;
      result = gmlk_buffer_grow(l, &r, b, change);
      b->is_busy = 0;
      l->stats.state_count[GMLK_S5 - 1] += result != GMLAKE_OK;
      r.bytes *= change->to - change->from - gmlk_pages_committed(b, change->from, change->to);
      result = gmlk_report_short(l, &r, result, change->call);
    }
    gmlk_unlock_driver(l);
  }
  if (!result && change->from < change->to)
    gmlk_tell_call(l, change->is_commit ? GMLAKE_STEP_COMMIT : GMLAKE_STEP_DISCARD, value,
                   gmlk_buffer_address(b) + change->from * (uint64_t)b->arena->chunk_bytes,
                   (change->to - change->from) * b->arena->chunk_bytes, 0, b,
                   change->is_commit ? "the range has memory" : "the range has none any more");
  return result;
}

/* ---- >>sharing ---------------------------------------------------------------------------------
   Memory of several processes. An export marks the chunks under a block or buffer as shared [P5],
   and marks the extra records of their blocks [N5]: once such a block is freed, >>grow returns its
   chunks. Imported memory is an arena of its own, with the handles as its chunks and one block over
   all of them. The arena is closed when that block was freed and its work is complete. Owns
   nothing.
   pre: the caller holds `driver_lock`.
   Costs: the driver's for each handle. Can fail: host memory, limits, the driver, and for wrong
   arguments. */

/* Refuses what cannot be exported. */
static gmlake_result gmlk_export_check(gmlake *l, const gmlk_block *b, const gmlake_buffer *buffer,
                                       uint64_t address, unsigned type) {
  const gmlake_result wrong = GMLAKE_ERROR_INVALID_ARGUMENT;
  const char *call = "gmlake_export";
  const gmlk_arena *a = buffer ? buffer->arena : b ? l->arenas[b->arena] : NULL;
  const char *why = NULL;
  if (type != GMLAKE_HANDLE_POSIX_FD && type != GMLAKE_HANDLE_FABRIC)
    return gmlk_fail(l, type == GMLAKE_HANDLE_WIN32 ? GMLAKE_ERROR_UNSUPPORTED : wrong, call,
                     "handle_type is %u: pass GMLAKE_HANDLE_POSIX_FD (1) or _FABRIC (8)", type);
  if (!a || address != (buffer ? gmlk_buffer_address(buffer) : gmlk_address_of(a, b)))
    return gmlk_fail(l, GMLAKE_ERROR_UNKNOWN_POINTER, call,
                     "ptr is 0x%llx: no live block and no buffer starts there", GMLK_ULL(address));
  if (a->sleep) return gmlk_refuse_asleep(l, a, call);
  if (!GMLK_HAS(&l->driver, export_handle))
    return gmlk_fail(l, GMLAKE_ERROR_UNSUPPORTED, call, "the backend cannot export");
  if (!(l->driver.handle_types & type))
    return gmlk_fail(l, wrong, call,
                     "handle_type is %u, and desc.handle_types was 0x%x: create the lake with it",
                     type, l->driver.handle_types);
  if (a->is_import)
    why = "it is another process's memory: export it there";
  else if (buffer && (!buffer->count || buffer->count != gmlk_buffer_count(buffer, buffer->bytes)))
    why = "the buffer is empty or has holes: commit all of it up to its end";
  else if (b && !(b->flags & GMLAKE_EXCLUSIVE))
    why = "its chunks have other blocks, too: allocate it with GMLAKE_EXCLUSIVE, or use a buffer";
  else if (b && b->flags & GMLK_IN_GRAPH)
    why = "a graph knows its memory, which is not released when it is freed";
  else if (b && b->flags & GMLAKE_TRANSIENT)
    why = "it is borrowed, and a graph may know its memory: allocate it without GMLAKE_TRANSIENT";
  if (!why) return GMLAKE_OK;
  return gmlk_fail(l, wrong, call, "ptr is 0x%llx: %s", GMLK_ULL(address), why);
}

/* Makes the driver's handles sharable; on an error closes the descriptors that it opened. */
static gmlake_result gmlk_handles_export(gmlake *l, const gmlk_arena *a, const gmlk_slots *slots,
                                         unsigned type, gmlake_handle *out) {
  gmlk_batch batch;
  uint32_t i, done = 0;
  if (!gmlk_batch_begin(l, &batch, GMLK_UNLOCKED))
    for (i = 0; i < slots->count && !batch.result; i++) {
      memset(&out[i], 0, sizeof(out[i]));
      out[i].type = type;
      out[i].fd = -1;
      out[i].bytes = a->chunk_bytes;
      done += !GMLK_CALL(&batch, export_handle, a->chunks.items[slots->items[i]].handle, &out[i]);
    }
#if !defined(_WIN32)
  for (i = 0; batch.result && i < done; i++)
    if (type == GMLAKE_HANDLE_POSIX_FD) (void)close(out[i].fd);
#endif
  return gmlk_batch_end(l, &batch);
}

static gmlake_result gmlk_export(gmlake *l, uint64_t address, unsigned type, gmlake_handle *out,
                                 size_t capacity, size_t *out_count) {
  gmlake_buffer *buffer;
  gmlk_block *found = gmlk_find_at(l, address, &buffer);
  gmlk_block *b = found && found->state == GMLK_LIVE ? found : NULL;
  gmlk_arena *a = buffer ? buffer->arena : b ? l->arenas[b->arena] : NULL;
  gmlake_result result = gmlk_export_check(l, b, buffer, address, type);
  gmlk_slots slots;
  uint32_t i;
  if (result) return result;
  GMLAKE_ASSERT(a);
  if (!gmlk_scratch_ensure(a, a->slot_count)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  slots = b ? gmlk_block_slots(a, b) : gmlk_slots_in(a->scratch);
  for (i = 0; buffer && i < buffer->count; i++) gmlk_slots_add(&slots, buffer->pages[i].slot);
  *out_count = slots.count;
  if (capacity < slots.count) return GMLAKE_OK;
  if (buffer) buffer->is_busy = 1;
  for (i = 0; i < slots.count && !result; i++) { /* with room for the stream that will free it */
    gmlk_extra *extra = gmlk_extra_of(l, b ? b : a->firsts[slots.items[i]]);
    if (!extra ||
        !gmlk_host_grow(&l->host, &extra->used, &extra->used_capacity, 0, sizeof(gmlk_used)))
      result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  }
  if (!result) result = gmlk_handles_export(l, a, &slots, type, out);
  for (i = 0; i < slots.count; i++) {
    gmlk_block *owner = b ? b : a->firsts[slots.items[i]];
    if (owner->as.extra) owner->as.extra->is_shared |= !result;
    if (!result) { /* other processes may map the chunk from now on */
      a->chunks.shared_count += !a->chunks.items[slots.items[i]].is_shared;
      a->chunks.items[slots.items[i]].is_shared = 1;
    }
    if (!b && owner->as.extra && !owner->as.extra->is_shared) {
      gmlk_extra_free(l, owner->as.extra);
      owner->as.extra = NULL;
    }
  }
  gmlk_driver_memory_sum(l);
  if (buffer) buffer->is_busy = 0;
  return result;
}

/* Refuses handles that gmlake_export cannot have written, and too many of them. */
static gmlake_result gmlk_import_check(gmlake *l, const gmlake_handle *handles, size_t count) {
  const char *call = "gmlake_import";
  const size_t chunk = handles->bytes, granularity = l->device.granularity_bytes;
  size_t i = 0;
  if (!GMLK_HAS(&l->driver, import_handle))
    return gmlk_fail(l, GMLAKE_ERROR_UNSUPPORTED, call, "the backend cannot import");
  while (i < count && handles[i].bytes == chunk && gmlk_is_pow2(chunk) &&
         chunk % granularity == 0 && chunk <= GMLK_CHUNK_BYTES_MAX &&
         (handles[i].type == GMLAKE_HANDLE_POSIX_FD || handles[i].type == GMLAKE_HANDLE_FABRIC))
    i++;
  if (i < count)
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                     "handles[%llu] has type %u and %llu bytes: the type has to be 1 or 8, and "
                     "bytes that of the first, a power of two from %llu to %llu",
                     GMLK_ULL(i), handles[i].type, GMLK_ULL(handles[i].bytes),
                     GMLK_ULL(granularity), GMLK_ULL(GMLK_CHUNK_BYTES_MAX));
  if (count > GMLK_GRAINS_MAX / (chunk / GMLK_GRAIN))
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                     "count is %llu: a block cannot have so many handles", GMLK_ULL(count));
  return GMLAKE_OK;
}

/* Maps the handles as the arena's chunks and makes one block of them. */
static gmlake_result gmlk_import_map(gmlake *l, gmlk_arena *a, const gmlake_handle *handles,
                                     uint32_t count, void **out_ptr) {
  gmlk_request r = gmlk_request_of(a, 0, count * a->chunk_bytes);
  gmlk_extra *extra;
  gmlk_slots slots;
  gmlk_block *b;
  gmlk_batch batch;
  gmlake_result result;
  if (!gmlk_grow_ensure(a, count) || (extra = gmlk_extra_new(l, 0, NULL)) == NULL)
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  slots = gmlk_growth_anywhere(a, count); /* that is: the first so many */
  r.reason = "another process's memory was mapped";
  result = gmlk_slots_fill(l, a, &slots, handles, &batch);
  if (!result && !gmlk_index_ensure(&l->index, &l->host)) { /* state_lock was released before */
    gmlk_tell(l, NULL, GMLAKE_STEP_GROW, gmlk_home(a, 0), r.bytes, batch.ns, r.reason);
    result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY; /* the pool's end is told, too */
  }
  if (result) gmlk_extra_free(l, extra);
  if (result && batch.calls && !l->lost && !strcmp(batch.call, "import_handle")) {
    const gmlake_handle *bad = batch.imports - 1; /* that the driver did not take */
    (void)gmlk_fail(l, result, batch.call,
                    "handles[%llu] (type %u, descriptor %d) is no memory of %llu bytes, says the "
                    "driver (%d): pass what gmlake_export wrote, or close some descriptors",
                    GMLK_ULL(bad - handles), bad->type, bad->fd, GMLK_ULL(bad->bytes), batch.code);
    l->error.driver_code = batch.code;
  }
  if (result) return result;
  r.number = ++l->request_count;
  gmlk_tell(l, &r, GMLAKE_STEP_GROW, gmlk_home(a, 0), r.bytes, batch.ns, r.reason);
  r.grains = count << a->chunk_log;
  r.driver_ns = batch.ns;
  r.flags |= GMLAKE_EXCLUSIVE;
  b = gmlk_grant(l, &r, gmlk_take(a, a->firsts[0], 0, r.grains), r.grains, GMLK_S4);
  extra->is_shared = 1;
  *out_ptr = gmlk_hand_over(l, &r, b, extra);
  if (l->is_observed) gmlk_tell_request(l, &r, *out_ptr);
  return GMLAKE_OK;
}

static gmlake_result gmlk_import(gmlake *l, const gmlake_handle *handles, size_t count,
                                 void **out_ptr) {
  const size_t bytes = count * handles->bytes, limit = l->desc.limit_bytes;
  size_t released = 0;
  gmlake_pool_desc desc;
  gmlake_pool *pool;
  gmlake_result result = gmlk_import_check(l, handles, count);
  if (result) return result;
  result = gmlk_release_all(l, 0, &released);
  if (gmlk_is_fatal(result)) return result;
  result = GMLAKE_OK; /* free chunks make room under the limit, as far as it takes */
  if (bytes <= limit && bytes > gmlk_limit_left(limit, l->stats.reserved_bytes))
    result = gmlk_trim(l, limit - bytes, &released);
  if (!result && bytes > gmlk_limit_left(limit, l->stats.reserved_bytes))
    return gmlk_fail(l, GMLAKE_ERROR_LIMIT_REACHED, "gmlake_import",
                     "%llu bytes are held and %llu would come, and limit_bytes is %llu: free some, "
                     "or raise it",
                     GMLK_ULL(l->stats.reserved_bytes), GMLK_ULL(bytes), GMLK_ULL(limit));
  if (result) return result;
  memset(&desc, 0, sizeof(desc));
  desc.chunk_bytes = handles->bytes;
  result = gmlk_pool_open(l, &desc, 0, NULL, bytes, 0, &pool);
  if (result) return result;
  pool->arena.is_import = 1;
  result = gmlk_import_map(l, &pool->arena, handles, (uint32_t)count, out_ptr);
  if (!result) return GMLAKE_OK;
  gmlk_pool_release(l, pool);
  return l->lost ? l->lost : result;
}

/* ---- >>sleep -----------------------------------------------------------------------------------
   Puts arenas to sleep and wakes them: those of a pool, or all that are of no pool. To sleep, a
   series of driver calls copies what is to be kept and unmaps everything; a second one releases
   the chunks. To wake, one series does the reverse. After an error in one direction the steps of
   the other direction undo it. Each step looks at what is mapped now and does only what is left to
   do, so a later call can finish what an earlier one could not undo. Meanwhile other threads may
   free, but a request for memory of these arenas is refused. Owns gmlk_arena.sleep. The arenas
   of one pool sleep together.
   pre: the caller holds `driver_lock`.

   [E1] All arenas of a pool are in the same state, and so are all arenas that are of no pool.
   [E2] An arena that is not asleep has no chunk that is asleep, and all of each window and page
        that is not quarantined is mapped.
   [E3] Only arenas that are asleep have copies.

   Costs: the driver's for each chunk and each mapping, O(blocks + chunks + windows). Can fail: host
   memory, limits, the driver. */

/* Sets the state of a pool's arenas. What an arena holds in its sleep counts as quarantined; an
   arena that falls asleep has yet to return its chunks, so that is counted later. */
static void gmlk_pool_set_sleep(gmlake *l, const gmlake_pool *pool, unsigned sleep) {
  gmlk_arena *a;
  GMLK_FOR_POOL_ARENAS(l, pool, a) a->sleep = sleep;
  if (sleep != GMLK_ASLEEP) gmlk_driver_memory_sum(l);
}

/* Adds up what a pool's arenas hold, in fields of the statistics. */
static gmlake_stats gmlk_pool_chunks(const gmlake *l, const gmlake_pool *pool) {
  gmlake_stats sum;
  const gmlk_arena *a;
  memset(&sum, 0, sizeof(sum));
  GMLK_FOR_POOL_ARENAS(l, pool, a) gmlk_driver_memory_add(a, &sum);
  return sum;
}

/* Unmaps windows, pages, chunks at home; with `copies`, each once its contents are copied. Stops at
   an error. */
static gmlake_result gmlk_unmap_all(gmlk_batch *batch, gmlk_arena *a, int copies) {
  gmlake_result result = GMLAKE_OK;
  gmlk_walk walk = gmlk_walk_of(a);
  gmlk_alias *x;
  uint32_t i;
  a->copies.next = a->copies.done = copies ? 0 : a->copies.count;
  while (!result && (x = gmlk_walk_next(&walk)) != NULL) {
    if (!x->is_window && x->mapped) result = gmlk_copies_out(batch, a, x->address, a->chunk_bytes);
    if (!result) result = gmlk_alias_unmap(batch, a, x);
  }
  for (i = 0; i < a->slot_count && !result && !a->is_bare; i++) {
    if (!a->chunks.items[i].is_home || a->chunks.items[i].is_quarantined) continue;
    result = gmlk_copies_out(batch, a, gmlk_home(a, i << a->chunk_log), a->chunk_bytes);
    if (!result && !gmlk_chunk_unmap(batch, a, i)) result = batch->result;
  }
  return result;
}

/* Maps all that is not mapped and creates the chunks that are missing, which get marks. With
   `copies`, contents are copied back to what is already mapped while the rest is being mapped.
   Stops at the first error; then copies may run. */
static gmlake_result gmlk_map_all(gmlk_batch *batch, gmlk_arena *a, int copies) {
  gmlake_result result = GMLAKE_OK;
  gmlk_walk walk = gmlk_walk_of(a);
  gmlk_alias *x;
  uint32_t i;
  a->copies.next = a->copies.done = copies ? 0 : a->copies.count;
  for (i = 0; i < a->slot_count && !result; i++) {
    gmlk_chunk *chunk = &a->chunks.items[i];
    const int was_home = chunk->is_home;
    if (chunk->is_asleep || gmlk_chunk_is_backed(&a->chunks, i)) {
      chunk->is_marked |= chunk->is_asleep; /* it is created */
      result = gmlk_chunk_make(batch, a, i);
      if (!result && !was_home && !a->is_bare)
        result = gmlk_batch_set_access(batch, gmlk_home(a, i << a->chunk_log), a->chunk_bytes);
    }
    if (!result && !a->is_bare) result = gmlk_copies_in(batch, a, gmlk_home(a, i << a->chunk_log));
  }
  while (!result && (x = gmlk_walk_next(&walk)) != NULL) {
    if (x->mapped) continue;
    x->next = NULL;
    result = gmlk_aliases_map(batch, a, x);
    if (!result && !x->is_window) result = gmlk_copies_in(batch, a, x->address);
  }
  while (!result && a->copies.next < a->copies.count)
    result = gmlk_copies_step(batch, a, UINT64_MAX, 0);
  return result ? result : gmlk_copies_wait(batch, a, 0);
}

/* Gives an arena's chunks back, with only_new those with a mark; their slots are asleep. Those that
   the driver refuses stay. pre: they are mapped nowhere. */
static void gmlk_chunks_drop(gmlk_batch *batch, gmlk_arena *a, int only_new) {
  uint32_t slot;
  for (slot = 0; slot < a->slot_count; slot++) {
    gmlk_chunk *chunk = &a->chunks.items[slot];
    if (!gmlk_chunk_is_backed(&a->chunks, slot) || (only_new && !chunk->is_marked) ||
        GMLK_CALL(batch, release, chunk->handle))
      continue;
    a->chunks.backed_count--;
    a->chunks.asleep_count++;
    chunk->handle = 0;
    chunk->is_asleep = 1;
  }
}

/* Copies what is to be kept and unmaps everything; on an error maps it again. Returns whether the
   arenas are asleep now: all is unmapped, or not all could be mapped again. */
static int gmlk_pool_unmap(gmlake *l, const gmlake_pool *pool, gmlk_batch *batch) {
  gmlake_result result = GMLAKE_OK, undone = GMLAKE_OK;
  gmlk_arena *a;
  GMLK_FOR_POOL_ARENAS(l, pool, a)
    if (!result) result = gmlk_unmap_all(batch, a, 1);
  if (!result) return 1;
  GMLK_FOR_POOL_ARENAS(l, pool, a) {
    (void)gmlk_copies_wait(batch, a, 1);
    if (!undone) undone = gmlk_map_all(batch, a, 0);
  }
  return undone != GMLAKE_OK;
}

/* Ends the aliases that need not be mapped again. */
static void gmlk_aliases_forget(gmlake *l, gmlk_arena *a) {
  gmlk_alias *x = gmlk_aliases_idle(a, GMLK_WHICH_UNMAPPED), *next;
  for (; x; x = next) {
    next = x->next;
    gmlk_alias_end(l, a, x, 0, "it was freed while its pool slept");
  }
  gmlk_driver_memory_sum(l);
}

/* Waits, gives up what needs no memory after waking, and gets host memory for what is kept. Idle
   windows that captures do not know go, free chunks, mappings of pages that are not committed. */
static gmlake_result gmlk_pool_settle(gmlake *l, gmlake_pool *pool, int keeps, size_t *released) {
  gmlake_result result = gmlk_wait_for_pool(l, pool);
  gmlk_arena *a;
  if (result == GMLAKE_ERROR_CAPTURING) result = GMLAKE_OK; /* the caller has waited for its work */
  GMLK_FOR_POOL_ARENAS(l, pool, a) {
    gmlk_arena_retag(a, GMLK_ANY_STREAM, GMLK_CLEAN);
    if (!result) result = gmlk_buffers_reap(l, a, SIZE_MAX);
    if (!result) result = gmlk_aliases_unmap(l, a, gmlk_aliases_idle(a, GMLK_WHICH_ANY));
    if (!result) result = gmlk_trim_arena(l, a, SIZE_MAX, released);
  }
  GMLK_FOR_POOL_ARENAS(l, pool, a)
    if (keeps && !result) result = gmlk_copies_plan(l, a);
  return result;
}

/* Puts a pool's arenas to sleep. Chunks that the driver does not take back stay; the logger is
   told. After an error all is mapped as before and changing, or asleep where that could not be
   undone. */
static gmlake_result gmlk_pool_put_to_sleep(gmlake *l, gmlake_pool *pool, int keeps,
                                            size_t *released) {
  gmlake_result result = gmlk_pool_settle(l, pool, keeps, released);
  const size_t held = l->stats.reserved_bytes;
  const uint64_t ns = l->stats.driver_ns;
  gmlk_batch batch;
  gmlk_arena *a;
  int is_asleep = 0, is_unmapped = 0;
  if (!result) {
    gmlk_pool_set_sleep(l, pool, GMLK_ASLEEP);
    if (!gmlk_batch_begin(l, &batch, GMLK_UNLOCKED)) is_asleep = gmlk_pool_unmap(l, pool, &batch);
    is_unmapped = is_asleep && !batch.result;
    GMLK_FOR_POOL_ARENAS(l, pool, a)
      if (is_unmapped) gmlk_chunks_drop(&batch, a, 0);
    result = gmlk_batch_end(l, &batch);
    if (!is_asleep) gmlk_pool_set_sleep(l, pool, GMLK_CHANGING);
  }
  if (is_unmapped && result && !gmlk_is_fatal(result)) {
    gmlk_log(l, GMLAKE_LOG_WARNING, &l->error);
    result = GMLAKE_OK;
  }
  GMLK_FOR_POOL_ARENAS(l, pool, a) {
    if (is_unmapped)
      gmlk_aliases_forget(l, a);
    else if (result)
      gmlk_copies_drop(l, a);
  }
  *released += gmlk_tell_held(l, held, l->stats.driver_ns - ns, "the pool of these chunks sleeps");
  return result;
}

/* ---- waking ---- */

/* Slots that have no memory now and are wholly free become unbacked. Where host memory for the
   block records is short, they get memory again instead. */
static void gmlk_slots_forget(gmlake *l, gmlk_arena *a) {
  const uint32_t grains = a->chunk_grains;
  uint32_t slot = a->slot_count;
  while (slot--) {
    gmlk_block *first;
    if (!a->chunks.items[slot].is_asleep ||
        !gmlk_slot_suits(l, a, slot, gmlk_requester_of(GMLK_CLEAN, GMLAKE_NO_WAIT)) ||
        !gmlk_records_ensure(&l->records, &l->host, 2))
      continue;
    first = gmlk_reserve_range(a, a->firsts[slot], slot << a->chunk_log, grains);
    gmlk_chunk_end_sleep(&a->chunks, slot);
    a->chunks.items[slot].is_known = 0;
    gmlk_arena_unback(a, gmlk_join_as(a, first, grains, GMLK_RESERVED));
  }
}

/* The driver calls that wake a pool's arenas: maps everything and copies back what was kept. On an
   error it unmaps everything, releases new chunks, and they stay asleep. */
static gmlake_result gmlk_pool_map_again(gmlake *l, const gmlake_pool *pool) {
  const size_t held = l->stats.reserved_bytes;
  gmlake_result result;
  gmlk_batch batch;
  gmlk_arena *a;
  result = gmlk_batch_begin(l, &batch, GMLK_UNLOCKED);
  GMLK_FOR_POOL_ARENAS(l, pool, a)
    if (!result) result = gmlk_unmap_all(&batch, a, 0); /* what is still mapped */
  GMLK_FOR_POOL_ARENAS(l, pool, a)
    if (!result) result = gmlk_map_all(&batch, a, 1);
  GMLK_FOR_POOL_ARENAS(l, pool, a) {
    if (!result || !batch.has_begun) break;
    (void)gmlk_copies_wait(&batch, a, 0);
    if (!gmlk_unmap_all(&batch, a, 0)) gmlk_chunks_drop(&batch, a, 1);
  }
  result = gmlk_batch_end(l, &batch);
  GMLK_FOR_POOL_ARENAS(l, pool, a) {
    gmlk_trim_forget(a);
    if (result) continue;
    gmlk_copies_drop(l, a);
    gmlk_fill_woken(l, a);
  }
  if (!result) gmlk_pool_set_sleep(l, pool, GMLK_AWAKE);
  (void)gmlk_tell_held(l, held, batch.ns, "the pool of these chunks wakes");
  return result;
}

/* Wakes a pool's arenas. Where memory is short it returns free chunks of others: first those whose
   work is complete, then more after each step of a wait of the host. */
static gmlake_result gmlk_pool_wake(gmlake *l, gmlake_pool *pool) {
  gmlake_result result, made;
  size_t bytes, held, released = 0;
  unsigned looks = 0;
  gmlk_host_wait p = {0, 0, 0, 0, 0};
  gmlk_request r;
  gmlk_arena *a;
  if (!gmlk_pool_first_arena(l, pool)->sleep) return GMLAKE_OK;
  GMLK_FOR_POOL_ARENAS(l, pool, a) { /* gives up what was freed in its sleep */
    gmlk_arena_retag(a, GMLK_ANY_STREAM, GMLK_CLEAN);
    gmlk_aliases_forget(l, a);
    gmlk_slots_forget(l, a);
    gmlk_copies_prune(a);
  }
  gmlk_driver_memory_sum(l);
  bytes = gmlk_pool_chunks(l, pool).sleeping_bytes;
  r = gmlk_request_of(gmlk_pool_first_arena(l, pool), 0, bytes);
  for (;;) {
    result = gmlk_growth_allowed(l, &r, bytes);
    if (!result) result = gmlk_pool_map_again(l, pool);
    if (!gmlk_is_shortage(result) || p.is_over) break;
    for (released = 0; !released && !p.is_over; looks++) {
      made = gmlk_wait_on(l, &p);
      if (made && looks) p.is_over = 1; /* what it waits for is no nearer */
      held = l->stats.reserved_bytes;
      if (!made) made = gmlk_trim(l, held - gmlk_min(held, bytes), &released);
      if (made && !gmlk_is_shortage(made)) return made;
    }
  }
  return gmlk_report_short(l, &r, result, "gmlake_pool_wake");
}

/* For a pool that sleeps already: DROP gives up what KEEP kept, and the host memory for it. If the
   driver takes none of that back, all is kept. If it takes a part, the rest is offered to it again,
   and the logger is told. */
static gmlake_result gmlk_sleep_again(gmlake *l, const gmlake_pool *pool, int keeps) {
  gmlake_result result = GMLAKE_OK;
  int is_given = 0;
  gmlk_arena *a;
  if (keeps) return GMLAKE_OK;
  GMLK_FOR_POOL_ARENAS(l, pool, a) {
    const size_t before = a->host_copies.count;
    if (!result) result = gmlk_host_copy_free(l, a);
    is_given |= a->host_copies.count < before;
  }
  if (result && (!is_given || gmlk_is_fatal(result))) return result;
  if (result) gmlk_log(l, GMLAKE_LOG_WARNING, &l->error);
  GMLK_FOR_POOL_ARENAS(l, pool, a) gmlk_copies_drop(l, a);
  return GMLAKE_OK;
}

static gmlake_result gmlk_pool_sleep(gmlake *l, gmlake_pool *pool, int keeps, size_t *released) {
  const char *call = "gmlake_pool_sleep";
  gmlk_arena *first = gmlk_pool_first_arena(l, pool);
  gmlake_result result;
  if (first->sleep) return gmlk_sleep_again(l, pool, keeps);
  result = pool ? gmlk_refuse_used(l, pool, call) : GMLAKE_OK;
  if (result) return result;
  if (gmlk_pool_chunks(l, pool).exported_bytes)
    return gmlk_fail(l, GMLAKE_ERROR_BUSY, call,
                     "%llu of its bytes are exported: free these blocks and buffers, and call "
                     "gmlake_trim behind their last work",
                     GMLK_ULL(gmlk_pool_chunks(l, pool).exported_bytes));
  if (keeps && !(GMLK_HAS(&l->driver, copy) && !l->device.is_integrated &&
                 GMLK_HAS(&l->driver, host_alloc) && GMLK_HAS(&l->driver, host_free)))
    return gmlk_fail(l, GMLAKE_ERROR_UNSUPPORTED, call,
                     "mode is GMLAKE_SLEEP_KEEP: the backend cannot copy, or has no host memory "
                     "but the device's own; use GMLAKE_SLEEP_DROP");
  gmlk_pool_set_sleep(l, pool, GMLK_CHANGING);
  first->is_kept = 0;
  result = gmlk_pool_put_to_sleep(l, pool, keeps, released);
  if (first->sleep == GMLK_CHANGING) gmlk_pool_set_sleep(l, pool, GMLK_AWAKE);
  return result;
}

/* ---- >>figures ---------------------------------------------------------------------------------
   Answers questions about amounts of memory. Owns nothing. pre: state_lock is held; the budget and
   a query ask the driver, so their caller holds `driver_lock`.
   Costs: a pool's figures O(its blocks), the budget O(blocks) and what gmlk_refresh costs, a query
   what >>slow costs. Can fail: the budget and a query: host memory, the driver. */

/* The bytes of the largest block that gmlake_alloc would serve, see gmlake_get_budget: a range, or
   a window. */
static gmlake_result gmlk_allocatable(gmlake *l, size_t *out) {
  gmlk_arena *home = &l->home;
  const gmlk_requester requester = gmlk_requester_of(GMLK_CLEAN, GMLAKE_HOST_WAIT);
  const uint64_t limit = GMLK_GRAINS_MAX - home->chunk_grains;
  uint64_t chunks, window, range;
  gmlk_supply supply;
  *out = 0;
  if (home->sleep) return GMLAKE_OK;
  if (gmlk_return_others(l, home, GMLK_GIVE_ALL, SIZE_MAX, GMLAKE_HOST_WAIT) ||
      !gmlk_scratch_ensure(home, home->slot_count))
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  gmlk_supply_scan(home, &l->streams, requester, GMLK_GRAINS_MAX, 1, &supply);
  chunks = gmlk_creatable(l, home, &l->dry_run->headroom);
  window = gmlk_min(gmlk_supply_sum(home, 0, &supply) + (chunks << home->chunk_log), limit);
  range = gmlk_min(gmlk_range_grown(l, home, requester, 1, chunks), limit);
  if (home->window_space.holes && window * GMLK_GRAIN >= l->desc.stitch_bytes_min)
    range = gmlk_max(range, window);
  *out = range * GMLK_GRAIN;
  return GMLAKE_OK;
}

/* Begins a dry run. It may end what is set aside for small blocks, so this is noted. 0: no host
   memory for setting it aside again. */
static int gmlk_dry_run_begin(gmlake *l, gmlk_dry_run *dry_run) {
  gmlk_arena *a;
  GMLK_FOR_ARENAS(l, a) {
    a->small.was_at = a->small.reserve ? a->small.reserve->at : 0;
    a->small.was_grains = a->small.reserve ? a->small.reserve->grains : 0;
  }
  if (!gmlk_records_ensure(&l->records, &l->host, 2 * l->arena_count)) return 0;
  l->dry_run = dry_run;
  return 1;
}

/* Ends it, and sets that aside again. pre: state_lock has been held since. */
static void gmlk_dry_run_end(gmlake *l) {
  gmlk_arena *a;
  l->dry_run = NULL;
  GMLK_FOR_ARENAS(l, a) {
    const gmlk_small *small = &a->small;
    gmlk_block *b = small->was_grains && !small->reserve ? gmlk_locate(a, small->was_at) : NULL;
    if (b) gmlk_small_reserve_begin(a, b->stream, b, small->was_at, small->was_grains);
  }
}

static gmlake_result gmlk_get_budget(gmlake *l, gmlake_budget *out) {
  gmlake_result result = gmlk_refresh(l, 1);
  gmlk_dry_run dry_run;
  gmlake_budget budget;
  uint64_t idle = 0, all = 0; /* what sleeps is held no more */
  gmlk_arena *a;
  if (result) return result;
  memset(&budget, 0, sizeof(budget));
  result = gmlk_ask_memory(l, &budget.driver_free_bytes, &budget.total_bytes);
  if (result) return result;
  memset(&dry_run, 0, sizeof(dry_run));
  dry_run.headroom.free_bytes = budget.driver_free_bytes;
  if (!gmlk_dry_run_begin(l, &dry_run)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  GMLK_FOR_ARENAS(l, a) {
    const gmlk_extra *extra = NULL;
    if (a->sleep) continue;
    gmlk_small_reserve_end(a);
    idle += a->bins[GMLK_CLEAN]->grains;
    all += a->free_grains;
    while ((extra = gmlk_pending_next(a, extra)) != NULL) all += extra->block->grains;
  }
  budget.reserved_bytes = l->stats.reserved_bytes;
  budget.idle_bytes = idle * GMLK_GRAIN;
  budget.pending_bytes = (all - idle) * GMLK_GRAIN;
  result = gmlk_allocatable(l, &budget.allocatable_bytes);
  gmlk_dry_run_end(l);
  if (!result) *out = budget;
  return result;
}

/* ---- query ---- */

/* How a request would end. What is free by now is asked first. For a request on GMLAKE_STREAM_NONE
   events are recorded; that the lake would go on doing so is the caller's to take back. Where
   memory is short the small-block reserve ends; it is set aside again. */
static gmlake_result gmlk_query_request(gmlake *l, const gmlake_alloc_desc *desc,
                                        gmlake_stream stream, gmlk_dry_run *dry_run) {
  gmlake_alloc_desc plain = *desc;
  gmlk_block *b = NULL;
  void *ptr = NULL;
  gmlk_request r;
  gmlake_result result;
  size_t total = 0;
  unsigned tries;
  int borrows;
  plain.flags &= ~GMLAKE_TRANSIENT;
  result = gmlk_request_open(l, &r, &plain, stream);
  borrows = desc->bytes && (desc->flags & GMLAKE_TRANSIENT) && l->loan_count &&
            (result == GMLAKE_ERROR_ASLEEP || (!result && r.grains && !r.is_capture));
  if (!borrows && (result || !desc->bytes)) return result;
  if (!borrows && !r.grains) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  if (!borrows && gmlk_is_fast(l, &r)) return GMLAKE_OK;
  for (tries = r.stream ? 1 : 2; tries; tries--) { /* what is free by now may need an event, too */
    if (!r.stream) gmlk_serve_none(l, r.arena);
    result = gmlk_look(l);
    if (result || (!borrows && gmlk_is_fast(l, &r))) return result;
  }
  result = gmlk_ask_memory(l, &dry_run->headroom.free_bytes, &total);
  if (result) return result;
  if (!gmlk_dry_run_begin(l, dry_run)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (borrows) result = gmlk_serve_transient(l, desc, stream, &ptr);
  if (!ptr && !result) {
    memset(&dry_run->answer, 0, sizeof(dry_run->answer));
    if (borrows) result = gmlk_request_open(l, &r, &plain, stream); /* it may have failed above */
    if (!result && !(r.grains && gmlk_is_fast(l, &r))) result = gmlk_slow_path(l, &r, &b);
  }
  gmlk_dry_run_end(l);
  return result;
}

/* Adds what an arena has. */
static void gmlk_count_arena(const gmlk_arena *a, gmlake_stats *out) {
  const size_t chunk = a->chunk_bytes;
  const gmlake_buffer *buffer;
  const gmlk_block *b;
  gmlk_driver_memory_add(a, out);
  for (b = gmlk_next_user(a, NULL); b; b = gmlk_next_user(a, b)) {
    const size_t bytes = b->grains * GMLK_GRAIN;
    if (b->state == GMLK_PENDING) out->pending_bytes += bytes;
    if (b->state != GMLK_LIVE) continue;
    out->live_count++;
    out->active_bytes += bytes;
    out->requested_bytes += bytes - b->its.slack;
  }
  for (buffer = a->buffers; buffer; buffer = buffer->next) {
    out->buffer_count += buffer->lake != NULL;
    out->requested_bytes += gmlk_buffer_asked(buffer);
    out->buffer_bytes += buffer->count * chunk;
    out->active_bytes += buffer->count * chunk;
  }
}

/* The figures that have a peak. */
#define GMLK_PEAKS(X)                                                                           \
  (X(requested_bytes), X(active_bytes), X(reserved_bytes), X(stitched_bytes), X(pending_bytes), \
   X(buffer_bytes))
#define GMLK_RESET_PEAK(name) (l->stats.name##_peak = l->stats.name)

/* ---- >>ahead -----------------------------------------------------------------------------------
   Creates memory before it is needed, and keeps it: owns arena->is_kept, which a sleep ends. pre:
   the caller holds `driver_lock`. Costs: the driver's. Can fail: host memory, the driver. */

static gmlake_result gmlk_reserve(gmlake *l, gmlake_pool *pool, size_t bytes, gmlake_stream value) {
  gmlk_arena *a = gmlk_pool_first_arena(l, pool);
  const size_t held = a->chunks.backed_count;
  const unsigned stream = value == GMLAKE_STREAM_NONE ? 0 : gmlk_stream_find_or_add(l, value);
  gmlk_request r = gmlk_request_of(a, stream, a->chunk_bytes);
  size_t want = bytes / a->chunk_bytes + (bytes % a->chunk_bytes != 0), total;
  gmlk_headroom headroom = {0, 0, 0};
  gmlk_slots slots;
  gmlake_result result;
  if (!stream && value != GMLAKE_STREAM_NONE) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (a->sleep) return gmlk_refuse_asleep(l, a, "gmlake_reserve");
  if (want <= held) return GMLAKE_OK;
  result = gmlk_ask_memory(l, &headroom.free_bytes, &total);
  if (result) return result;
  want = gmlk_min(want - held, (size_t)gmlk_creatable(l, a, &headroom));
  if (!want) return GMLAKE_OK;
  if (!gmlk_grow_ensure(a, want)) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  slots = gmlk_growth_anywhere(a, (uint32_t)want);
  return slots.count ? gmlk_grow_slots(l, &r, &slots) : GMLAKE_OK;
}

typedef struct gmlk_candidate { /* a request that is to be admitted */
  gmlk_request request;
  gmlk_block *block; /* NULL: it has none */
} gmlk_candidate;

/* Serves the requests up to the first that fails, then takes the blocks back as if they were freed:
   nobody has seen them, but now the memory is there. *again: one needed more than the fast path. */
static gmlake_result gmlk_admit_try(gmlake *l, const gmlake_alloc_desc *requests, size_t count,
                                    gmlake_stream stream, gmlk_candidate *list, int *again) {
  gmlake_result result = GMLAKE_OK;
  size_t i;
  for (i = 0, *again = 0; i < count && !result; i++) {
    gmlk_request *r = &list[i].request;
    gmlake_alloc_desc desc = requests[i];
    desc.flags &= ~GMLAKE_TRANSIENT;
    result = gmlk_request_open(l, r, &desc, stream);
    if (result || !r->bytes) continue;
    if (r->grains && !l->asks_first) result = gmlk_try_fast(l, r, &list[i].block);
    if (result || list[i].block) continue;
    *again = 1;
    result = gmlk_slow_path(l, r, &list[i].block);
  }
  for (; i--; list[i].block = NULL)
    if (list[i].block) gmlk_ungrant(l, &list[i].request, list[i].block);
  return result;
}

static gmlake_result gmlk_admit(gmlake *l, const gmlake_alloc_desc *requests, size_t count,
                                gmlake_stream stream, size_t *lacking) {
  const size_t held = l->stats.reserved_bytes, bytes = (count + 1) * sizeof(gmlk_candidate);
  const size_t idle = held + l->stats.sleeping_bytes - l->stats.active_bytes;
  size_t sum = 0, free_bytes = 0, room, total, i;
  int again = 1, tries = 8;
  gmlk_candidate *list;
  gmlake_result result = GMLAKE_OK;
  for (i = 0; i < count; i++) sum += requests[i].bytes;
  if (sum > idle) result = gmlk_ask_memory(l, &free_bytes, &total);
  room = free_bytes - gmlk_min(free_bytes, l->desc.driver_free_bytes_min);
  room = gmlk_min(room, gmlk_limit_left(l->desc.limit_bytes, held)) + idle;
  if (!result && sum > room) { /* wherever memory lies: nothing is created in vain */
    *lacking = sum - room;
    result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
    if (sum <= free_bytes + idle) result = GMLAKE_ERROR_LIMIT_REACHED;
    (void)gmlk_fail(l, result, "gmlake_admit", "%llu bytes too many: free as many, or raise limits",
                    GMLK_ULL(*lacking));
  }
  list = result ? NULL : (gmlk_candidate *)gmlk_host_alloc(&l->host, bytes);
  if (!result && !list) result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  for (; !result && again && tries; tries--) /* what there is now may serve it in another way */
    result = gmlk_admit_try(l, requests, count, stream, list, &again);
  for (i = 0; i < count && !result; i++) list[i].request.arena->is_kept = sum != 0;
  gmlk_host_free(&l->host, list, bytes);
  if (gmlk_is_shortage(result) && !*lacking) *lacking = l->error.asked_bytes;
  if (*lacking) l->error.call = "gmlake_admit";
  return result;
}

/* ---- >>map -------------------------------------------------------------------------------------
   Tells what lies where: at one address, under one block or buffer, in all of the lake. Owns
   nothing. pre: state_lock is held; for the map, `driver_lock` too.
   Costs: O(entries), and what gmlk_find_at costs. Can fail: a wrong pointer. */

static gmlake_map_entry gmlk_entry(gmlake_kind kind, const gmlk_arena *a, uint64_t address,
                                   size_t bytes) {
  gmlake_map_entry e;
  memset(&e, 0, sizeof(e));
  e.kind = kind;
  e.state = GMLAKE_STATE_LIVE;
  e.address = address;
  e.bytes = bytes;
  e.piece_count = 1;
  e.stream = GMLAKE_STREAM_NONE;
  e.pool = gmlk_pool_told(a);
  e.arena = a->number;
  e.pool_label = a->owner ? a->owner->label : NULL;
  e.pool_limit_bytes = a->owner ? a->owner->arena.limit_bytes : 0;
  return e;
}

/* Whose work may still use free memory with this tag. */
static void gmlk_show_tag(const gmlake *l, unsigned stream, uint64_t epoch, gmlake_map_entry *e) {
  const int is_done = gmlk_tag_done(&l->streams, stream, epoch);
  e->state = is_done ? GMLAKE_STATE_FREE : GMLAKE_STATE_TAGGED;
  if (stream == GMLK_GRAPH_OWNED || (stream && l->streams.items[stream]->is_capture))
    e->state = GMLAKE_STATE_GRAPH;
  else if (!is_done)
    e->stream = gmlk_stream_shown(l, stream);
}

/* What a block of a home arena is, or a window, whose own record b is. */
static gmlake_map_entry gmlk_show_block(const gmlake *l, const gmlk_block *b) {
  const gmlk_arena *a = l->arenas[b->arena];
  const gmlk_extra *extra;
  gmlake_map_entry e = gmlk_entry(GMLAKE_KIND_HOLE, a, gmlk_home(a, b->at), b->grains * GMLK_GRAIN);
  if (gmlk_window_from_block(b)) e.piece_count = gmlk_window_from_block(b)->piece_count;
  if (gmlk_user_block(b)->state == GMLK_PENDING) e.state = GMLAKE_STATE_PENDING;
  if (b->state == GMLK_PIECE) {
    e.kind = GMLAKE_KIND_PIECE;
    e.owner = b->as.window->alias.address;
  } else if (b->state == GMLK_LIVE || b->state == GMLK_PENDING) {
    e.kind = GMLAKE_KIND_BLOCK;
    e.address = gmlk_address_of(a, b);
    e.requested_bytes = e.bytes - b->its.slack;
    e.flags = b->flags & GMLK_ALLOC_FLAGS;
    e.stream = gmlk_stream_shown(l, gmlk_own_stream(l, b));
    e.age = a->records->serial - b->u.serial;
    extra = b->as.extra;
    e.user_data = extra ? extra->user_data : 0;
    e.label = extra ? extra->label : NULL;
  } else if (b->state == GMLK_IDLE || b->state == GMLK_UNBACKED) { /* the first field of a window */
    const gmlk_alias *x = &((const gmlk_window *)(const void *)b)->alias;
    e.kind = GMLAKE_KIND_WINDOW;
    e.address = x->address;
    gmlk_show_tag(l, x->stream, x->epoch, &e);
    if (b->state == GMLK_UNBACKED) e.state = GMLAKE_STATE_QUARANTINED;
  } else {
    gmlk_show_tag(l, b->stream, b->u.epoch, &e);
  }
  return e;
}

static gmlake_map_entry gmlk_show_buffer(const gmlake_buffer *b) {
  gmlake_map_entry e = gmlk_entry(GMLAKE_KIND_BUFFER, b->arena, gmlk_buffer_address(b),
                                  gmlk_buffer_count(b, b->bytes) * b->arena->chunk_bytes);
  e.requested_bytes = gmlk_buffer_asked(b);
  e.user_data = b->user_data;
  e.label = b->label;
  return e;
}

typedef struct gmlk_chunk_list {
  gmlake_chunk_info *out;
  size_t capacity, count;
  uint64_t address; /* of the next part */
} gmlk_chunk_list;

/* Lists the handles under [at, at + grains) of an arena. */
static void gmlk_list_chunks(gmlk_chunk_list *list, const gmlk_arena *a, uint32_t at,
                             uint32_t grains) {
  const uint32_t end = at + grains;
  gmlake_chunk_info part;
  for (; at < end; at += (uint32_t)(part.bytes / GMLK_GRAIN), list->address += part.bytes) {
    const uint32_t first = at >> a->chunk_log, behind = (first + 1) << a->chunk_log;
    part.handle = a->chunks.items[first].handle;
    part.address = list->address;
    part.offset_bytes = (at - (first << a->chunk_log)) * GMLK_GRAIN;
    part.bytes = ((end < behind ? end : behind) - at) * GMLK_GRAIN;
    if (list->count < list->capacity) list->out[list->count] = part;
    list->count++;
  }
}

static gmlake_result gmlk_get_chunks(gmlake *l, uint64_t address, gmlake_chunk_info *out,
                                     size_t capacity, size_t *out_count) {
  gmlk_chunk_list list = {out, out ? capacity : 0, 0, 0};
  gmlake_buffer *buffer;
  const gmlk_block *b = gmlk_find_at(l, address, &buffer);
  const gmlk_piece *pieces = NULL;
  const gmlk_arena *a;
  gmlk_piece whole;
  size_t count = 0, i;
  if (!buffer && !(b && b->state == GMLK_LIVE))
    return gmlk_fail(l, GMLAKE_ERROR_UNKNOWN_POINTER, "gmlake_get_chunks",
                     "ptr is 0x%llx: it lies in no live block and in no buffer", GMLK_ULL(address));
  a = buffer ? buffer->arena : l->arenas[b->arena];
  if (a->sleep) return gmlk_refuse_asleep(l, a, "gmlake_get_chunks");
  for (i = 0; buffer && i < buffer->page_count; i++) {
    if (!gmlk_is_committed(buffer, (uint32_t)i)) continue;
    list.address = buffer->pages[i].address;
    gmlk_list_chunks(&list, a, buffer->pages[i].slot << a->chunk_log, a->chunk_grains);
  }
  if (!buffer) pieces = gmlk_pieces_of(b, &whole, &count);
  if (!buffer) list.address = gmlk_address_of(a, b);
  for (i = 0; i < count; i++) gmlk_list_chunks(&list, a, pieces[i].at, pieces[i].grains);
  *out_count = list.count;
  return GMLAKE_OK;
}

typedef struct gmlk_map {
  gmlake_map_entry *out;
  size_t capacity, count;
  gmlake *left; /* whose logger is told of each live block and buffer instead; or NULL */
} gmlk_map;

/* Tells the logger of an entry, if it is a live block or a buffer. */
static void gmlk_report_leak(gmlake *l, const gmlake_map_entry *e) {
  const char *label = e->label ? e->label : e->pool_label;
  const int is_buffer = e->kind == GMLAKE_KIND_BUFFER;
  const size_t chunk = l->arenas[e->arena]->chunk_bytes;
  gmlake_error_info info;
  if (!is_buffer && (e->kind != GMLAKE_KIND_BLOCK || e->state != GMLAKE_STATE_LIVE)) return;
  memset(&info, 0, sizeof(info));
  info.call = "gmlake_destroy";
  info.live_bytes = is_buffer ? (e->requested_bytes + chunk - 1) & ~(chunk - 1) : e->bytes;
  (void)snprintf(info.text, sizeof(info.text), "%llu bytes%s at 0x%llx were never freed (%s)",
                 GMLK_ULL(e->requested_bytes), is_buffer ? " of a buffer" : "",
                 GMLK_ULL(e->address), label ? label : "no label");
  l->desc.logger.fn(l->desc.logger.user, GMLAKE_LOG_WARNING, &info);
}

static void gmlk_map_add(gmlk_map *map, const gmlake_map_entry *e) {
  if (map->left) gmlk_report_leak(map->left, e);
  if (map->count < map->capacity) map->out[map->count] = *e;
  map->count++;
}

/* A buffer, and its chunks where it maps them. */
static void gmlk_map_buffer(const gmlake_buffer *b, gmlk_map *map) {
  gmlake_map_entry e = gmlk_show_buffer(b);
  uint32_t i;
  if (!b->lake) return;
  gmlk_map_add(map, &e);
  e.kind = GMLAKE_KIND_PIECE;
  e.owner = e.address;
  e.bytes = b->arena->chunk_bytes;
  e.requested_bytes = 0;
  for (i = 0; i < b->page_count; i++) {
    if (!gmlk_is_committed(b, i)) continue;
    e.address = b->pages[i].address;
    e.handle = b->arena->chunks.items[b->pages[i].slot].handle;
    gmlk_map_add(map, &e);
  }
}

/* A window's entry: of the user's block if it is live. If it is idle, its pieces' entries, too. */
static void gmlk_map_window(const gmlake *l, const gmlk_window *w, gmlk_map *map) {
  gmlake_map_entry e = gmlk_show_block(l, &w->self);
  const gmlk_arena *a = l->arenas[w->self.arena];
  uint32_t i;
  gmlk_map_add(map, &e);
  if (e.kind != GMLAKE_KIND_WINDOW || e.state == GMLAKE_STATE_QUARANTINED) return;
  e.kind = GMLAKE_KIND_IDLE_PIECE;
  e.owner = e.address;
  for (i = 0; i < w->piece_count; i++) {
    e.address = gmlk_home(a, w->pieces[i].at);
    e.bytes = w->pieces[i].grains * GMLK_GRAIN;
    gmlk_map_add(map, &e);
  }
}

static void gmlk_map_arena(const gmlake *l, const gmlk_arena *a, gmlk_map *map) {
  const gmlk_block *b;
  gmlake_map_entry e;
  uint32_t slot;
  for (slot = 0; slot < a->chunks.capacity; slot++) {
    if (!a->chunks.items[slot].handle) continue; /* behind the end it has no block either */
    b = a->firsts[slot];
    e = gmlk_entry(GMLAKE_KIND_CHUNK, a, a->is_bare ? 0 : gmlk_home(a, slot << a->chunk_log),
                   a->chunk_bytes);
    e.handle = a->chunks.items[slot].handle;
    if (a->chunks.items[slot].is_quarantined || a->sleep == GMLK_ASLEEP)
      e.state = GMLAKE_STATE_QUARANTINED;
    else if (a->is_bare && b->state == GMLK_FREE)
      gmlk_show_tag(l, b->stream, b->u.epoch, &e);
    gmlk_map_add(map, &e);
  }
  for (b = a->begin.next; b != &a->end && !a->is_bare; b = b->next) {
    if (b->state >= GMLK_UNBACKED || b->state == GMLK_COMMITTED) continue;
    e = gmlk_show_block(l, b);
    gmlk_map_add(map, &e);
  }
  for (b = a->buffer_space.begin.next; b != &a->buffer_space.end; b = b->next)
    if (b->state == GMLK_COMMITTED) gmlk_map_buffer((const gmlake_buffer *)b->u.owner, map);
  for (b = a->window_space.begin.next; b != &a->window_space.end; b = b->next) {
    if (b->state == GMLK_LIVE) gmlk_map_window(l, (gmlk_window *)b->u.owner, map);
  }
}

#if defined(GMLAKE_BACKEND_MOCK)

/* ---- >>backend_mock --------------------------------------------------------------------------
   A device on the host. Owns its handles (physical memory), its reservations (address space) with
   what is mapped in each, its events, and its streams (queues of pending work).

   With real memory (Linux), a handle is a range of one sparse memory file, and a mapping is a
   shared mmap of that range: what is written through one mapping is read through the others. No
   part of the file is used twice, so it cannot become fragmented; when a handle ends, its pages are
   given back to the host. A handle that can be exported has a file of its own instead, and takes a
   descriptor. With bookkeeping_only the same records stand over made-up addresses.

   [M1] physical_bytes == sum of the bytes of live handle slots <= capacity. A handle's slot is live
        until the handle is released and its last mapping is gone.
   [M2] A mapping is as large as its handle and lies in one reservation.
   [M3] handle.mapping_count counts the mappings that name it.
   [M4] Reservations, and the mappings of each, are sorted by address and do not overlap.
   [M5] queue.done <= queue.last, and the ring holds the work (done, last]. An event is complete
        when its sequence <= done of its queue. A queue never begins its sequences again, so an
        event is valid beyond the life of the stream that it was recorded on.
   [M6] A wait names work that was queued before it: waits form no cycle, and settling ends.

   The mock refuses what the driver leaves undefined or lets pass. Only calls that succeed cost
   modelled time. While a stream is captured the legacy stream may not be used, but otherwise the
   streams' work does not depend on the legacy stream's. Work pending on a destroyed stream stays
   pending until the clock or an event_wait completes it.

   Costs: a handle or event is found in O(1), an address in O(log reservations + log mappings). Map
   and unmap move the records of the mappings behind, in the same reservation. Reserve and unreserve
   are O(reservations), events O(1) amortised, clock, finish and event_wait at least O(streams), a
   launch O(pending work). Can fail: host memory, and the host's limit on mappings
   (OUT_OF_HOST_MEMORY, nothing has changed); capacity (OUT_OF_DEVICE_MEMORY); all misuse
   (INVALID_ARGUMENT). */

#if defined(__linux__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

/* What calls cost in nanoseconds, measured on an H200, driver 580. */
typedef struct gmlk_mock_costs {
  uint32_t memory_info, reserve, unreserve;
  uint32_t create, create_per_mib; /* per MiB beyond the first 512 */
  uint32_t release, release_per_gib;
  uint32_t map, unmap, set_access; /* per mapping */
  uint32_t event_create, event_destroy, event_record, event_query, event_wait, stream_wait;
  uint32_t capture_exchange;
} gmlk_mock_costs;

/* Indexed by gmlake_mock_costs. The cost of stream_wait among other calls has not been measured. Of
   the last row three figures are: a chunk that is created and mapped, a mapping more, and a query,
   by least squares over the driver time of eight programs (bench/torch/README.md). The costs of the
   other calls are larger than in the row above in proportion. */
#define GMLK_MOCK_COSTS 3u
static const gmlk_mock_costs gmlk_mock_cost_table[GMLK_MOCK_COSTS] = {
    {4000, 2000, 5000, 7500, 7, 8000, 220000, 500, 13000, 20000, 150, 100, 150, 100, 1000, 100, 50},
    {4000, 11000, 73600, 9500, 7, 10800, 220000, 2600, 17200, 21600, 580, 570, 350, 325, 1600, 100,
     200},
    {8000, 22000, 147200, 10100, 7, 21600, 440000, 5200, 34400, 43300, 2700, 2600, 1600, 1500, 7400,
     500, 200}};

#define GMLK_MOCK_LINK 55u   /* bytes a nanosecond that are copied to or from the host */
#define GMLK_MOCK_PINNING 3u /* the same of host memory that is pinned */
#define GMLK_MOCK_TIB ((uint64_t)1 << 40)
#define GMLK_MOCK_RESERVED_MAX (100 * GMLK_MOCK_TIB) /* the driver refuses 120 TiB */
#define GMLK_MOCK_ADDRESS_MIN (16 * GMLK_MOCK_TIB)   /* made-up addresses lie from here */
#define GMLK_MOCK_ADDRESS_MAX (256 * GMLK_MOCK_TIB)  /* to here */
#define GMLK_MOCK_FILE_MAX ((uint64_t)1 << 62)
#define GMLK_MOCK_SLOT_BITS 24
#define GMLK_MOCK_SLOT_MASK (((uint64_t)1 << GMLK_MOCK_SLOT_BITS) - 1)
#define GMLK_MOCK_STREAM_UNIT 64u /* streams are multiples: never NULL, 1, 2 or STREAM_NONE */

/* The driver's error numbers that a gmlake_result alone does not tell. */
#define GMLK_MOCK_CODE_INVALID_HANDLE 400
#define GMLK_MOCK_CODE_CAPTURE_INVALIDATED 901
#define GMLK_MOCK_CODE_CAPTURE_ISOLATION 905
#define GMLK_MOCK_CODE_CAPTURE_IMPLICIT 906

typedef struct gmlk_mock_slot { /* first member of each item of a gmlk_mock_table */
  uint32_t index;
  uint32_t generation; /* part of the value that callers get: a stale value has an older one */
  uint32_t next_free;  /* [not live] index + 1 */
  int live;
} gmlk_mock_slot;

typedef struct gmlk_mock_table {
  void *items;
  size_t item_bytes, count, capacity;
  uint32_t free_slot; /* index + 1 of the last slot freed; 0: none */
} gmlk_mock_table;

typedef struct gmlk_mock_handle {
  gmlk_mock_slot slot;
  int released;
  int is_foreign; /* another process's: its memory is not of this device */
  int file;       /* 0: the mock's memory file; else 1 + the descriptor of one of its own */
  size_t bytes, mapping_count;
  uint64_t offset; /* in the file */
} gmlk_mock_handle;

typedef struct gmlk_mock_event {
  gmlk_mock_slot slot;
  size_t queue;
  uint64_t sequence; /* 0: never recorded */
} gmlk_mock_event;

typedef struct gmlk_mock_mode { /* of a thread that is not in the global capture mode */
  gmlk_mock_slot slot;
  uintptr_t thread;
  int mode; /* 1: thread-local, or GMLK_RELAXED */
} gmlk_mock_mode;

typedef struct gmlk_mock_mapping { /* [M2] */
  uint64_t address;                /* stands first: see gmlk_mock_upto */
  uint32_t handle;                 /* its slot */
  uint32_t devices;                /* with access: a bit for each */
} gmlk_mock_mapping;

typedef struct gmlk_mock_reservation {
  uint64_t address; /* stands first */
  size_t bytes;
  gmlk_mock_mapping *mappings;
  size_t mapping_count, mapping_capacity;
} gmlk_mock_reservation;

/* A recorded event, a launch, a use of memory, or a wait for another queue's work. */
typedef struct gmlk_mock_work {
  uint64_t due_ns;           /* [recording] when it completes, by the stream clock */
  int held;                  /* [no wait] it does not complete before the stream is finished */
  size_t awaited_queue;      /* [wait] */
  uint64_t awaited_sequence; /* [wait]; 0: none */
  const gmlake_pool *pool;   /* [launch]; NULL: it is none */
  uint64_t graph;            /* [launch] */
  uint64_t address, end;     /* [use] of these bytes; end 0: it is none, */
  int is_past;               /* of a block that has been freed since */
} gmlk_mock_work;

typedef struct gmlk_mock_queue {
  gmlk_mock_work *ring; /* the work of sequence s lies at s % capacity */
  size_t capacity;      /* 0 or a power of two */
  uint64_t done, last;  /* [M5] sequences: the last that is complete, the last queued */
  uint64_t forced;      /* recordings up to this one complete, even if held or not yet due */
  uint64_t wanted;      /* the same, and so does what the waits up to this one wait for */
  uint64_t before;      /* [in a launch] up to this one it is ordered before the launch */
  uint64_t lag_ns;      /* from recording to completion; UINT64_MAX: never by itself */
  uintptr_t capture_thread;
  int held, capturing, spoilt; /* spoilt: the capture will end with an error */
  int owned;       /* by a stream; when that is destroyed, its pending work stays here */
  uintptr_t value; /* the stream's; of queue 0, the legacy stream's, 0 */
  uint64_t id;     /* of the stream */
} gmlk_mock_queue;

typedef union gmlk_mock_host gmlk_mock_host;
union gmlk_mock_host { /* stands before a range of host memory that the mock allocated */
  gmlk_mock_host *next;
  long double aligned; /* not used: aligns the range as malloc does */
};

typedef struct gmlk_mock {
  gmlake_backend backend;
  GMLK_MUTEX mutex;
  gmlake_mock_desc desc;
  const gmlk_mock_costs *costs;
  gmlake_mock_census census;
  int file;             /* -1: bookkeeping only */
  uint64_t file_end;    /* all handles' ranges of the file lie below */
  gmlake_result result; /* that the running call will return, as far as it is known */
  int code;             /* its error number; 0: the one that the result implies */
  uint64_t fail_call;   /* this and the next two: as gmlake_mock_fail_at was told */
  gmlake_result fail_result;
  int fail_persistent;
  uint64_t now_ns; /* the stream clock */
  uint64_t last_id;
  size_t capture_count;
  gmlk_mock_table handles, events, modes;
  gmlk_mock_reservation *reservations;
  size_t reservation_count, reservation_capacity;
  gmlk_mock_queue *queues;
  size_t queue_count, queue_capacity;
  gmlk_mock_host *host;       /* list */
  struct {                    /* bytes 0: none */
    uint64_t address, end_ns; /* of census.modelled_ns */
    void *host;
    size_t bytes;
    int to_host;
  } copying; /* the copy that runs: its bytes move when it is waited for */
} gmlk_mock;

/* A call of the table: gmlk_mock_enter locks, and decides whether the call must fail. Then it says
   what it needs, and changes something only if nothing of that was missing. gmlk_mock_leave
   unlocks and returns the result. */

static gmlk_mock *gmlk_mock_lock(void *user) {
  gmlk_mock *mock = (gmlk_mock *)user;
  (void)GMLAKE_MUTEX_LOCK(&mock->mutex);
  return mock;
}

static void gmlk_mock_unlock(gmlk_mock *mock) { (void)GMLAKE_MUTEX_UNLOCK(&mock->mutex); }

static gmlk_mock *gmlk_mock_enter(void *user) {
  gmlk_mock *mock = gmlk_mock_lock(user);
  uint64_t call = ++mock->census.call_count, fail = mock->fail_call;
  int fails = fail && (call == fail || (call > fail && mock->fail_persistent));
  mock->code = 0;
  mock->result = fails ? mock->fail_result : GMLAKE_OK;
  return mock;
}

/* Whether nothing has been missing so far. `otherwise`: the result if this is the first that is. */
static int gmlk_mock_need(gmlk_mock *mock, int holds, gmlake_result otherwise) {
  if (!mock->result && !holds) mock->result = otherwise;
  return !mock->result;
}

/* The same for what the host's system does. */
static int gmlk_mock_need_host(gmlk_mock *mock, int holds) {
  if (!mock->result && !holds) mock->code = GMLK_CODE_OPERATING_SYSTEM;
  return gmlk_mock_need(mock, holds, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
}

/* The same for a call that must name an event, or a stream, that exists. */
static int gmlk_mock_need_named(gmlk_mock *mock, int exists) {
  if (!mock->result && !exists) mock->code = GMLK_MOCK_CODE_INVALID_HANDLE;
  return gmlk_mock_need(mock, exists, GMLAKE_ERROR_INVALID_ARGUMENT);
}

static gmlake_result gmlk_mock_leave(gmlk_mock *mock, uint64_t cost_ns, int *out_code) {
  static const int codes[][2] = {{GMLAKE_OK, 0},
                                 {GMLAKE_ERROR_INVALID_ARGUMENT, 1},
                                 {GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 2},
                                 {GMLAKE_ERROR_SHUTTING_DOWN, 4},
                                 {GMLAKE_ERROR_DEVICE_LOST, 719},
                                 {GMLAKE_ERROR_UNSUPPORTED, 801},
                                 {GMLAKE_ERROR_CAPTURING, 900}};
  const gmlake_result result = mock->result;
  size_t i = 0;
  if (result)
    mock->census.failed_count++;
  else
    mock->census.modelled_ns += cost_ns;
  while (i < sizeof(codes) / sizeof(codes[0]) && codes[i][0] != (int)result) i++;
  *out_code = i < sizeof(codes) / sizeof(codes[0]) ? codes[i][1] : 999;
  if (mock->code) *out_code = mock->code;
  gmlk_mock_unlock(mock);
  return result;
}

/* Makes room for one more item, which is zero. `array` is the address of the pointer to the first.
   0: no host memory, and nothing has changed. */
static int gmlk_mock_grow(void *array, size_t count, size_t *capacity, size_t item_bytes) {
  gmlk_host host;
  if (count < *capacity) return 1;
  memset(&host, 0, sizeof(host));
  return gmlk_host_grow(&host, array, capacity, count, item_bytes);
}

static void *gmlk_mock_at(const gmlk_mock_table *table, size_t index) {
  return (char *)table->items + index * table->item_bytes;
}

static uint64_t gmlk_mock_value(const gmlk_mock_slot *slot) {
  return (uint64_t)slot->generation << GMLK_MOCK_SLOT_BITS | (slot->index + 1u);
}

/* A live slot; what follows its head is zero. NULL: no host memory. */
static void *gmlk_mock_take(gmlk_mock_table *table) {
  size_t index = table->free_slot ? table->free_slot - 1 : table->count;
  gmlk_mock_slot *slot;
  uint32_t generation;
  if (index == GMLK_MOCK_SLOT_MASK ||
      !gmlk_mock_grow(&table->items, index, &table->capacity, table->item_bytes))
    return NULL;
  slot = (gmlk_mock_slot *)gmlk_mock_at(table, index);
  if (table->free_slot)
    table->free_slot = slot->next_free;
  else
    table->count++;
  generation = slot->generation;
  memset((void *)slot, 0, table->item_bytes);
  slot->index = (uint32_t)index;
  slot->generation = generation;
  slot->live = 1;
  return slot;
}

static void gmlk_mock_put(gmlk_mock_table *table, gmlk_mock_slot *slot) {
  slot->generation++;
  slot->live = 0;
  slot->next_free = table->free_slot;
  table->free_slot = slot->index + 1;
}

static void *gmlk_mock_find(const gmlk_mock_table *table, uint64_t value) {
  uint64_t number = value & GMLK_MOCK_SLOT_MASK;
  gmlk_mock_slot *slot;
  if (!number || number > table->count) return NULL;
  slot = (gmlk_mock_slot *)gmlk_mock_at(table, (size_t)number - 1);
  return slot->live && gmlk_mock_value(slot) == value ? slot : NULL;
}

/* The host's memory system. These functions return 0 if the host refuses. Except the first two,
   they do nothing for a mock that is bookkeeping only. */

#if defined(__linux__)
#define GMLK_MOCK_NO_FILE \
  GMLAKE_ERROR_OUT_OF_HOST_MEMORY /* what it means that none can be opened */

static void *gmlk_mock_ptr(uint64_t address) { return (void *)(uintptr_t)address; }

static size_t gmlk_mock_page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* A file of so many bytes. -1: the host refuses. A file beyond the process's limit would end it. */
static int gmlk_mock_host_file(uint64_t bytes) {
  struct rlimit most;
  int file;
  if (!getrlimit(RLIMIT_FSIZE, &most) && bytes > most.rlim_cur) return -1;
  file = memfd_create("gmlake_mock", MFD_CLOEXEC);
  if (file < 0 || !ftruncate(file, (off_t)bytes)) return file;
  (void)close(file);
  return -1;
}

/* Reserves more than is asked for, and gives back what lies on both sides of the aligned range. */
static int gmlk_mock_host_reserve(size_t bytes, size_t alignment, uint64_t *out_address) {
  size_t padded = bytes + alignment, start, head;
  char *base;
  if (alignment > GMLK_MOCK_RESERVED_MAX) return 0; /* nor are bytes more: the sum fits */
  base = (char *)mmap(NULL, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if ((void *)base == MAP_FAILED) return 0;
  start = ((size_t)(uintptr_t)base + alignment - 1) & ~(alignment - 1); /* inside the mapping */
  head = start - (size_t)(uintptr_t)base;
  if (head > 0) (void)munmap(base, head);
  (void)munmap(base + head + bytes, padded - head - bytes);
  *out_address = start;
  return 1;
}

static void gmlk_mock_host_close(int file) {
  if (file >= 0) (void)close(file);
}

static int gmlk_mock_host_unreserve(const gmlk_mock *mock, uint64_t address, size_t bytes) {
  return mock->file < 0 || munmap(gmlk_mock_ptr(address), bytes) == 0;
}

static int gmlk_mock_host_map(const gmlk_mock *mock, uint64_t address,
                              const gmlk_mock_handle *handle) {
  const int file = handle->file ? handle->file - 1 : mock->file;
  return mock->file < 0 || mmap(gmlk_mock_ptr(address), handle->bytes, PROT_NONE,
                                MAP_SHARED | MAP_FIXED, file, (off_t)handle->offset) != MAP_FAILED;
}

static int gmlk_mock_host_unmap(const gmlk_mock *mock, uint64_t address, size_t bytes) {
  return mock->file < 0 ||
         mmap(gmlk_mock_ptr(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static int gmlk_mock_host_access(const gmlk_mock *mock, uint64_t address, size_t bytes) {
  return mock->file < 0 || mprotect(gmlk_mock_ptr(address), bytes, PROT_READ | PROT_WRITE) == 0;
}

/* Nothing will map these bytes again, so a failure costs host memory only. */
static void gmlk_mock_host_discard(const gmlk_mock *mock, const gmlk_mock_handle *handle) {
  if (handle->file)
    (void)close(handle->file - 1);
  else if (mock->file >= 0)
    (void)fallocate(mock->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)handle->offset,
                    (off_t)handle->bytes);
}

/* Another descriptor of a file, which has as many bytes. -1: the host refuses; -2: it has not. */
static int gmlk_mock_host_share(int file, size_t bytes) {
  struct stat stat;
  if (fstat(file, &stat) || (size_t)stat.st_size != bytes) return -2;
  return fcntl(file, F_DUPFD_CLOEXEC, 0);
}
#else /* every mock is bookkeeping only: no file can be opened */
#define gmlk_mock_page_bytes() ((size_t)4096)
#define GMLK_MOCK_NO_FILE GMLAKE_ERROR_UNSUPPORTED
#define gmlk_mock_host_reserve(bytes, alignment, out_address) 0
#define gmlk_mock_host_close(file) ((void)0)
#define gmlk_mock_host_unreserve(mock, address, bytes) 1
#define gmlk_mock_host_map(mock, address, handle) 1
#define gmlk_mock_host_unmap(mock, address, bytes) 1
#define gmlk_mock_host_access(mock, address, bytes) 1
#define gmlk_mock_host_discard(mock, handle) ((void)0)
#define gmlk_mock_host_file(bytes) (-1)
#define gmlk_mock_host_share(file, bytes) (-1)
#endif

/* Address space. */

/* How many of the items begin at or below the address. They begin with their address [M4]. */
static size_t gmlk_mock_upto(const void *items, size_t count, size_t item_bytes, uint64_t address) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const void *item = (const char *)items + middle * item_bytes;
    if (*(const uint64_t *)item <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The last reservation that begins at or below the address; NULL: none does. */
static gmlk_mock_reservation *gmlk_mock_below(const gmlk_mock *mock, uint64_t address) {
  const size_t upto = gmlk_mock_upto(mock->reservations, mock->reservation_count,
                                     sizeof(gmlk_mock_reservation), address);
  return upto ? &mock->reservations[upto - 1] : NULL;
}

/* The reservation that the range lies in; NULL: it lies in none. */
static gmlk_mock_reservation *gmlk_mock_around(const gmlk_mock *mock, uint64_t address,
                                               size_t bytes) {
  gmlk_mock_reservation *r = gmlk_mock_below(mock, address);
  if (!r || !bytes || address - r->address >= r->bytes) return NULL;
  return bytes <= r->bytes - (address - r->address) ? r : NULL;
}

static gmlk_mock_handle *gmlk_mock_handle_of(const gmlk_mock *mock, const gmlk_mock_mapping *m) {
  return (gmlk_mock_handle *)gmlk_mock_at(&mock->handles, m->handle);
}

static uint64_t gmlk_mock_mapping_end(const gmlk_mock *mock, const gmlk_mock_mapping *m) {
  return m->address + gmlk_mock_handle_of(mock, m)->bytes;
}

typedef struct gmlk_mock_run { /* mappings side by side */
  gmlk_mock_reservation *reservation;
  gmlk_mock_mapping *first;
  size_t count; /* 0: none, and nothing else counts */
  int is_whole; /* they begin and end where the range does */
} gmlk_mock_run;

/* The mappings that cover the range without a hole. */
static gmlk_mock_run gmlk_mock_find_run(const gmlk_mock *mock, uint64_t address, size_t bytes) {
  gmlk_mock_run run = {gmlk_mock_around(mock, address, bytes), NULL, 0, 0};
  const gmlk_mock_reservation *r = run.reservation;
  const gmlk_mock_mapping *m, *last;
  size_t upto;
  uint64_t at;
  if (!r) return run;
  upto = gmlk_mock_upto(r->mappings, r->mapping_count, sizeof(*m), address);
  if (!upto) return run;
  m = run.first = r->mappings + upto - 1;
  last = r->mappings + r->mapping_count;
  if (gmlk_mock_mapping_end(mock, m) <= address) return run;
  for (at = m->address; m < last && m->address == at && at < address + bytes; m++)
    at = gmlk_mock_mapping_end(mock, m);
  if (at < address + bytes) return run;
  run.count = (size_t)(m - run.first);
  run.is_whole = run.first->address == address && at == address + bytes;
  return run;
}

/* First fit among made-up addresses. No sum here can overflow 64 bits. */
static int gmlk_mock_make_up(const gmlk_mock *mock, size_t bytes, size_t alignment,
                             uint64_t *out_address) {
  uint64_t mask = alignment - 1;
  uint64_t address = (GMLK_MOCK_ADDRESS_MIN + mask) & ~mask;
  size_t i;
  for (i = 0; i < mock->reservation_count; i++) {
    const gmlk_mock_reservation *other = &mock->reservations[i];
    if (address + bytes <= other->address) break;
    address = (other->address + other->bytes + mask) & ~mask;
  }
  if (address + bytes > GMLK_MOCK_ADDRESS_MAX) return 0;
  *out_address = address;
  return 1;
}

static gmlake_result gmlk_mock_reserve(void *user, size_t bytes, size_t alignment,
                                       uint64_t *out_address, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const size_t granularity = mock->desc.granularity_bytes;
  const size_t room = GMLK_MOCK_RESERVED_MAX - mock->census.reserved_address_bytes;
  const int is_legal = bytes && bytes % granularity == 0 && gmlk_is_pow2(alignment);
  gmlk_mock_reservation added = {0, 0, NULL, 0, 0}, *behind;
  int is_paged = 0;
  added.bytes = bytes;
  if (gmlk_mock_need(mock, is_legal, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      gmlk_mock_need(mock, bytes <= room, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY) &&
      gmlk_mock_need(mock,
                     gmlk_mock_grow(&mock->reservations, mock->reservation_count,
                                    &mock->reservation_capacity, sizeof(added)),
                     GMLAKE_ERROR_OUT_OF_HOST_MEMORY)) {
    alignment = gmlk_max(alignment, granularity);
    is_paged = mock->file < 0 ? gmlk_mock_make_up(mock, bytes, alignment, &added.address)
                              : gmlk_mock_host_reserve(bytes, alignment, &added.address);
  }
  if (gmlk_mock_need(mock, is_paged, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY)) {
    GMLAKE_ASSERT(mock->reservations); /* it has grown */
    behind = gmlk_mock_below(mock, added.address);
    behind = behind ? behind + 1 : mock->reservations;
    memmove(behind + 1, behind,
            (size_t)(mock->reservations + mock->reservation_count - behind) * sizeof(added));
    *behind = added;
    mock->reservation_count++;
    mock->census.reservation_count++;
    mock->census.reserved_address_bytes += bytes;
    *out_address = added.address;
  }
  return gmlk_mock_leave(mock, mock->costs->reserve, out_code);
}

static gmlake_result gmlk_mock_unreserve(void *user, uint64_t address, size_t bytes,
                                         int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_reservation *found = gmlk_mock_below(mock, address);
  const int is_whole =
      found && found->address == address && found->bytes == bytes && !found->mapping_count;
  if (gmlk_mock_need(mock, is_whole, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      gmlk_mock_need_host(mock, gmlk_mock_host_unreserve(mock, address, bytes))) {
    GMLAKE_FREE(found->mappings);
    mock->reservation_count--;
    memmove(found, found + 1,
            (size_t)(mock->reservations + mock->reservation_count - found) * sizeof(*found));
    mock->census.reservation_count--;
    mock->census.reserved_address_bytes -= bytes;
  }
  return gmlk_mock_leave(mock, mock->costs->unreserve, out_code);
}

/* Physical memory and mappings. */

/* A new handle, with the file of its own if it has one. */
static gmlk_mock_handle *gmlk_mock_add_handle(gmlk_mock *mock, size_t bytes, int file,
                                              uint64_t *out_handle) {
  gmlk_mock_handle *handle = NULL;
  if (!mock->result) handle = (gmlk_mock_handle *)gmlk_mock_take(&mock->handles);
  if (!gmlk_mock_need(mock, handle != NULL, GMLAKE_ERROR_OUT_OF_HOST_MEMORY)) {
    gmlk_mock_host_close(file);
    return NULL;
  }
  handle->bytes = bytes;
  handle->file = file + 1;
  mock->census.handle_count++;
  *out_handle = gmlk_mock_value(&handle->slot);
  return handle;
}

static gmlake_result gmlk_mock_create(void *user, size_t bytes, unsigned handle_types,
                                      uint64_t *out_handle, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const int is_whole = bytes && bytes % mock->desc.granularity_bytes == 0;
  const int is_there = bytes <= mock->desc.available_bytes - mock->census.physical_bytes &&
                       bytes <= GMLK_MOCK_FILE_MAX - mock->file_end;
  const uint64_t mib = bytes / GMLK_MIB, more = mib > 512 ? mib - 512 : 0;
  gmlk_mock_handle *handle;
  int file = -1;
  if (gmlk_mock_need(mock, is_whole, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      gmlk_mock_need(mock, !(handle_types & ~GMLAKE_HANDLE_POSIX_FD), GMLAKE_ERROR_UNSUPPORTED) &&
      gmlk_mock_need(mock, is_there, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY) && handle_types &&
      mock->file >= 0) {
    file = gmlk_mock_host_file(bytes);
    (void)gmlk_mock_need_host(mock, file >= 0);
  }
  handle = gmlk_mock_add_handle(mock, bytes, file, out_handle);
  if (handle && file < 0) {
    handle->offset = mock->file_end;
    mock->file_end += bytes;
  }
  if (handle) mock->census.physical_bytes += bytes;
  return gmlk_mock_leave(mock, mock->costs->create + more * mock->costs->create_per_mib, out_code);
}

/* Ends the handle if it is released and no longer mapped [M1]. */
static void gmlk_mock_reap(gmlk_mock *mock, gmlk_mock_handle *handle) {
  if (!handle->released || handle->mapping_count) return;
  gmlk_mock_host_discard(mock, handle);
  if (!handle->is_foreign) mock->census.physical_bytes -= handle->bytes;
  gmlk_mock_put(&mock->handles, &handle->slot);
}

static gmlake_result gmlk_mock_release(void *user, uint64_t value, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_handle *handle = (gmlk_mock_handle *)gmlk_mock_find(&mock->handles, value);
  const uint64_t mib = handle ? handle->bytes / GMLK_MIB : 0;
  if (gmlk_mock_need(mock, handle != NULL, GMLAKE_ERROR_INVALID_ARGUMENT)) {
    handle->released = 1;
    handle->slot.generation++; /* the value is stale from now on, mapped or not */
    mock->census.handle_count--;
    gmlk_mock_reap(mock, handle);
  }
  return gmlk_mock_leave(mock, mock->costs->release + mib * mock->costs->release_per_gib / 1024,
                         out_code);
}

static gmlake_result gmlk_mock_export_handle(void *user, uint64_t value, gmlake_handle *out,
                                             int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const gmlk_mock_handle *handle = (gmlk_mock_handle *)gmlk_mock_find(&mock->handles, value);
  const int is_legal = handle && out->type == GMLAKE_HANDLE_POSIX_FD && out->bytes == handle->bytes;
  int file = -1;
  if (gmlk_mock_need(mock, is_legal && !handle->is_foreign, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      gmlk_mock_need(mock, handle->file != 0, GMLAKE_ERROR_UNSUPPORTED))
    file = gmlk_mock_host_share(handle->file - 1, handle->bytes);
  if (gmlk_mock_need(mock, file >= 0, GMLAKE_ERROR_DRIVER)) out->fd = file;
  return gmlk_mock_leave(mock, 0, out_code);
}

static gmlake_result gmlk_mock_import_handle(void *user, const gmlake_handle *in,
                                             uint64_t *out_handle, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_handle *handle;
  int file = -1;
  if (gmlk_mock_need(mock, in->type == GMLAKE_HANDLE_POSIX_FD && mock->file >= 0,
                     GMLAKE_ERROR_UNSUPPORTED))
    file = gmlk_mock_host_share(in->fd, in->bytes);
  (void)gmlk_mock_need(mock, file != -2, GMLAKE_ERROR_INVALID_ARGUMENT);
  (void)gmlk_mock_need(mock, file >= 0, GMLAKE_ERROR_DRIVER);
  handle = gmlk_mock_add_handle(mock, in->bytes, file, out_handle);
  if (handle) handle->is_foreign = 1;
  return gmlk_mock_leave(mock, 0, out_code);
}

static gmlake_result gmlk_mock_map(void *user, uint64_t address, size_t bytes, uint64_t value,
                                   int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_handle *handle = (gmlk_mock_handle *)gmlk_mock_find(&mock->handles, value);
  gmlk_mock_reservation *r = gmlk_mock_around(mock, address, bytes);
  const int is_whole = ((address | bytes) & (mock->desc.granularity_bytes - 1)) == 0;
  const size_t at =
      r ? gmlk_mock_upto(r->mappings, r->mapping_count, sizeof(gmlk_mock_mapping), address) : 0;
  const int is_free = r && (!at || gmlk_mock_mapping_end(mock, &r->mappings[at - 1]) <= address) &&
                      (at == r->mapping_count || r->mappings[at].address - address >= bytes);
  gmlk_mock_mapping added = {address, 0, 0};
  if (gmlk_mock_need(mock, handle && r && is_whole, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      gmlk_mock_need(mock, bytes == handle->bytes, GMLAKE_ERROR_UNSUPPORTED) &&
      gmlk_mock_need(mock, is_free, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      gmlk_mock_need(
          mock, gmlk_mock_grow(&r->mappings, r->mapping_count, &r->mapping_capacity, sizeof(added)),
          GMLAKE_ERROR_OUT_OF_HOST_MEMORY) &&
      gmlk_mock_need_host(mock, gmlk_mock_host_map(mock, address, handle))) {
    added.handle = handle->slot.index;
    memmove(&r->mappings[at + 1], &r->mappings[at], (r->mapping_count++ - at) * sizeof(added));
    r->mappings[at] = added;
    handle->mapping_count++;
    mock->census.mapping_count++;
  }
  return gmlk_mock_leave(mock, mock->costs->map, out_code);
}

static gmlake_result gmlk_mock_unmap(void *user, uint64_t address, size_t bytes, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const gmlk_mock_run run = gmlk_mock_find_run(mock, address, bytes);
  size_t i;
  if (gmlk_mock_need(mock, run.is_whole, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      gmlk_mock_need_host(mock, gmlk_mock_host_unmap(mock, address, bytes))) {
    gmlk_mock_mapping *next = run.first + run.count;
    gmlk_mock_mapping *last = run.reservation->mappings + run.reservation->mapping_count;
    for (i = 0; i < run.count; i++) {
      gmlk_mock_handle *handle = gmlk_mock_handle_of(mock, &run.first[i]);
      handle->mapping_count--;
      gmlk_mock_reap(mock, handle);
    }
    memmove(run.first, next, (size_t)(last - next) * sizeof(*next));
    run.reservation->mapping_count -= run.count;
    mock->census.mapping_count -= run.count;
  }
  return gmlk_mock_leave(mock, (uint64_t)run.count * mock->costs->unmap, out_code);
}

static gmlake_result gmlk_mock_set_access(void *user, uint64_t address, size_t bytes,
                                          const int *peers, size_t peer_count, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const gmlk_mock_run run = gmlk_mock_find_run(mock, address, bytes);
  uint32_t devices = 1; /* a bit for each: number 0, and the peers */
  int is_legal = run.is_whole && (peers || !peer_count);
  size_t i;
  for (i = 0; is_legal && i < peer_count; i++) {
    is_legal = peers[i] >= 0 && peers[i] < mock->desc.device_count && !(devices >> peers[i] & 1);
    if (is_legal) devices |= (uint32_t)1 << peers[i];
  }
  if (gmlk_mock_need(mock, is_legal, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      gmlk_mock_need_host(mock, gmlk_mock_host_access(mock, address, bytes)))
    for (i = 0; i < run.count; i++) run.first[i].devices |= devices;
  return gmlk_mock_leave(mock, (uint64_t)run.count * mock->costs->set_access, out_code);
}

/* Streams: queues of work that completes in order. */

static gmlk_mock_work *gmlk_mock_work_at(const gmlk_mock_queue *queue, uint64_t sequence) {
  return &queue->ring[sequence & (queue->capacity - 1)];
}

/* Completes the work that can complete. Wanted work that has to wait makes what it waits for
   wanted, too. Returns whether anything has changed. */
static int gmlk_mock_advance(const gmlk_mock *mock, gmlk_mock_queue *queue) {
  int has_moved = 0;
  for (; queue->done < queue->last; queue->done++, has_moved = 1) {
    const uint64_t next = queue->done + 1;
    const gmlk_mock_work *work = gmlk_mock_work_at(queue, next);
    gmlk_mock_queue *awaited = &mock->queues[work->awaited_queue];
    const int is_wanted = next <= queue->wanted;
    const int is_due =
        is_wanted || next <= queue->forced || (!work->held && work->due_ns <= mock->now_ns);
    if (work->awaited_sequence ? work->awaited_sequence <= awaited->done : is_due) continue;
    if (!is_wanted || work->awaited_sequence <= awaited->wanted) break;
    awaited->wanted = work->awaited_sequence;
    return 1;
  }
  return has_moved;
}

/* The same for all queues, until nothing more completes. */
static void gmlk_mock_settle(const gmlk_mock *mock) {
  size_t i;
  int moved;
  do {
    moved = 0;
    for (i = 0; i < mock->queue_count; i++) moved |= gmlk_mock_advance(mock, &mock->queues[i]);
  } while (moved);
}

/* Queues work. 0: no host memory. Where the ring grows, its work keeps its places modulo the size.
   */
static int gmlk_mock_push(gmlk_mock_queue *queue, const gmlk_mock_work *work) {
  const size_t former = queue->capacity;
  uint64_t s;
  if (queue->last - queue->done == former) {
    if (!gmlk_mock_grow(&queue->ring, former, &queue->capacity, sizeof(*work))) return 0;
    for (s = queue->done + 1; s <= queue->last; s++)
      *gmlk_mock_work_at(queue, s) = queue->ring[s & (former - 1)];
  }
  *gmlk_mock_work_at(queue, ++queue->last) = *work;
  return 1;
}

/* The stream's queue; NULL: there is no such stream. */
static gmlk_mock_queue *gmlk_mock_find_queue(const gmlk_mock *mock, gmlake_stream stream) {
  const uintptr_t value = (uintptr_t)stream == GMLK_VALUE_LEGACY ? 0 : (uintptr_t)stream;
  size_t i = 0;
  while (i < mock->queue_count && !(mock->queues[i].owned && mock->queues[i].value == value)) i++;
  return i < mock->queue_count ? &mock->queues[i] : NULL;
}

/* Makes a stream: an idle queue that no stream has, whose sequences go on [M5], with the lowest
   value that is not in use. */
static gmlake_result gmlk_mock_add_stream(gmlk_mock *mock, gmlake_stream *out_stream) {
  uintptr_t value = 0;
  gmlk_mock_queue *queue;
  size_t i = 0;
  while (i < mock->queue_count &&
         (mock->queues[i].owned || mock->queues[i].done != mock->queues[i].last))
    i++;
  if (!gmlk_mock_grow(&mock->queues, i, &mock->queue_capacity, sizeof(*queue)))
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  while (gmlk_mock_find_queue(mock, (gmlake_stream)value)) value += GMLK_MOCK_STREAM_UNIT;
  if (i == mock->queue_count) mock->queue_count++;
  queue = &mock->queues[i];
  queue->owned = 1;
  queue->held = 0;
  queue->lag_ns = 0;
  queue->value = value;
  queue->id = ++mock->last_id;
  *out_stream = (gmlake_stream)value;
  return GMLAKE_OK;
}

/* Captures. */

/* NULL: this thread is in mode 0, global. */
static gmlk_mock_mode *gmlk_mock_own_mode(const gmlk_mock *mock) {
  const uintptr_t thread = gmlk_thread_id();
  size_t i;
  for (i = 0; i < mock->modes.count; i++) {
    gmlk_mock_mode *mode = (gmlk_mock_mode *)gmlk_mock_at(&mock->modes, i);
    if (mode->slot.live && mode->thread == thread) return mode;
  }
  return NULL;
}

static gmlake_result gmlk_mock_capture_exchange(void *user, int *mode, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_mode *own = gmlk_mock_own_mode(mock);
  const int former = own ? own->mode : 0;
  if (gmlk_mock_need(mock, *mode >= 0 && *mode <= GMLK_RELAXED, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      *mode != former) {
    if (!own) own = (gmlk_mock_mode *)gmlk_mock_take(&mock->modes);
    if (gmlk_mock_need(mock, own != NULL, GMLAKE_ERROR_OUT_OF_HOST_MEMORY)) {
      own->thread = gmlk_thread_id();
      own->mode = *mode;
      if (!*mode) gmlk_mock_put(&mock->modes, &own->slot);
      *mode = former;
    }
  }
  return gmlk_mock_leave(mock, mock->costs->capture_exchange, out_code);
}

/* For calls that ask whether work is complete. During a capture they are forbidden to each thread
   in mode 0, and in mode 1 to the thread that captures; they spoil the captures concerned. */
static int gmlk_mock_may_look(gmlk_mock *mock) {
  const uintptr_t thread = gmlk_thread_id();
  const gmlk_mock_mode *own;
  size_t i;
  if (mock->result || !mock->capture_count) return !mock->result;
  own = gmlk_mock_own_mode(mock);
  for (i = 0; (!own || own->mode < GMLK_RELAXED) && i < mock->queue_count; i++) {
    gmlk_mock_queue *queue = &mock->queues[i];
    if (!queue->capturing || (own && queue->capture_thread != thread)) continue;
    queue->spoilt = 1;
    mock->result = GMLAKE_ERROR_CAPTURING;
  }
  return !mock->result;
}

static void gmlk_mock_spoil_all(const gmlk_mock *mock) {
  size_t i;
  for (i = 0; i < mock->queue_count; i++) mock->queues[i].spoilt = mock->queues[i].capturing;
}

/* For calls that queue work. In every mode they are forbidden on a stream that is captured, and on
   the legacy stream while another is captured; they spoil the captures concerned. `code` is the
   driver's number for the first call that spoils a capture, 0: the usual one. */
static int gmlk_mock_may_queue(gmlk_mock *mock, gmlk_mock_queue *queue, int code) {
  const int is_legacy = queue == mock->queues;
  if (mock->result || !(is_legacy ? mock->capture_count > 0 : queue->capturing))
    return !mock->result;
  mock->result = GMLAKE_ERROR_CAPTURING;
  mock->code = queue->spoilt ? GMLK_MOCK_CODE_CAPTURE_INVALIDATED : code;
  if (is_legacy) {
    mock->code = GMLK_MOCK_CODE_CAPTURE_IMPLICIT;
    gmlk_mock_spoil_all(mock);
  }
  queue->spoilt = queue->capturing;
  return 0;
}

static void gmlk_mock_stop_capture(gmlk_mock *mock, gmlk_mock_queue *queue) {
  if (queue->capturing) mock->capture_count--;
  queue->capturing = queue->spoilt = 0;
}

/* Events. */

static gmlk_mock_event *gmlk_mock_find_event(const gmlk_mock *mock, const void *value) {
  return (gmlk_mock_event *)gmlk_mock_find(&mock->events, (uint64_t)(uintptr_t)value);
}

static int gmlk_mock_event_is_done(const gmlk_mock *mock, const gmlk_mock_event *event) {
  return event->sequence <= mock->queues[event->queue].done;
}

/* For calls that ask for an event's completion, or wait for it. */
static int gmlk_mock_need_recorded(gmlk_mock *mock, const gmlk_mock_event *event) {
  return gmlk_mock_need_named(mock, event != NULL) &&
         gmlk_mock_need(mock, event->sequence != 0, GMLAKE_ERROR_INVALID_ARGUMENT);
}

static gmlake_result gmlk_mock_event_create(void *user, void **out_event, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_event *event = NULL;
  if (!mock->result) event = (gmlk_mock_event *)gmlk_mock_take(&mock->events);
  if (gmlk_mock_need(mock, event != NULL, GMLAKE_ERROR_OUT_OF_HOST_MEMORY)) {
    mock->census.event_count++;
    *out_event = (void *)(uintptr_t)gmlk_mock_value(&event->slot);
  }
  return gmlk_mock_leave(mock, mock->costs->event_create, out_code);
}

static gmlake_result gmlk_mock_event_destroy(void *user, void *value, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_event *event = gmlk_mock_find_event(mock, value);
  if (gmlk_mock_need_named(mock, event != NULL)) {
    gmlk_mock_put(&mock->events, &event->slot);
    mock->census.event_count--;
  }
  return gmlk_mock_leave(mock, mock->costs->event_destroy, out_code);
}

static gmlake_result gmlk_mock_event_record(void *user, void *value, gmlake_stream stream,
                                            int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_event *event = gmlk_mock_find_event(mock, value);
  gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  gmlk_mock_work work = {0, 0, 0, 0, NULL, 0, 0, 0, 0};
  if (gmlk_mock_need_named(mock, event && queue) && gmlk_mock_may_queue(mock, queue, 0)) {
    work.held = queue->held || queue->lag_ns == UINT64_MAX;
    work.due_ns =
        queue->lag_ns > UINT64_MAX - mock->now_ns ? UINT64_MAX : mock->now_ns + queue->lag_ns;
    if (gmlk_mock_need(mock, gmlk_mock_push(queue, &work), GMLAKE_ERROR_OUT_OF_HOST_MEMORY)) {
      event->queue = (size_t)(queue - mock->queues);
      event->sequence = queue->last;
      (void)gmlk_mock_advance(mock, queue);
    }
  }
  return gmlk_mock_leave(mock, mock->costs->event_record, out_code);
}

static gmlake_result gmlk_mock_event_query(void *user, void *value, int *out_done, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const gmlk_mock_event *event = gmlk_mock_find_event(mock, value);
  if (gmlk_mock_need_recorded(mock, event) && gmlk_mock_may_look(mock))
    *out_done = gmlk_mock_event_is_done(mock, event);
  return gmlk_mock_leave(mock, mock->costs->event_query, out_code);
}

/* When the event completes by itself, by the modelled clock; UINT64_MAX: not before it is waited
   for. Waits for other streams are left out. */
static uint64_t gmlk_mock_event_due(const gmlk_mock *mock, const gmlk_mock_event *event) {
  const gmlk_mock_queue *queue = &mock->queues[event->queue];
  uint64_t at, due = 0;
  for (at = queue->done + 1; at <= event->sequence; at++) {
    const gmlk_mock_work *work = gmlk_mock_work_at(queue, at);
    due = gmlk_max(due, work->held ? UINT64_MAX : work->due_ns);
  }
  return due;
}

static gmlake_result gmlk_mock_event_wait_any(void *user, void *const *events, unsigned count,
                                              unsigned *out_index, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const gmlk_mock_event *event, *first = NULL;
  unsigned i;
  for (i = 0; i < count && !mock->result; i++) {
    event = gmlk_mock_find_event(mock, events[i]);
    if (!gmlk_mock_need_recorded(mock, event)) break;
    if (first && gmlk_mock_event_due(mock, event) >= gmlk_mock_event_due(mock, first)) continue;
    first = event;
    *out_index = i;
  }
  if (gmlk_mock_need(mock, first != NULL, GMLAKE_ERROR_INVALID_ARGUMENT) &&
      gmlk_mock_may_look(mock) && !gmlk_mock_event_is_done(mock, first)) {
    mock->census.host_wait_count++;
    mock->queues[first->queue].wanted = first->sequence;
    gmlk_mock_settle(mock);
  }
  return gmlk_mock_leave(mock, mock->costs->event_wait, out_code);
}

static gmlake_result gmlk_mock_event_wait(void *user, void *value, int *out_code) {
  unsigned first;
  return gmlk_mock_event_wait_any(user, &value, 1, &first, out_code);
}

static gmlake_result gmlk_mock_stream_wait(void *user, gmlake_stream stream, void *value,
                                           int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const gmlk_mock_event *event = gmlk_mock_find_event(mock, value);
  gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  gmlk_mock_work work = {0, 0, 0, 0, NULL, 0, 0, 0, 0};
  if (gmlk_mock_need_named(mock, queue != NULL) && gmlk_mock_need_recorded(mock, event) &&
      gmlk_mock_may_queue(mock, queue, GMLK_MOCK_CODE_CAPTURE_ISOLATION) &&
      !gmlk_mock_event_is_done(mock, event)) {
    work.awaited_queue = event->queue;
    work.awaited_sequence = event->sequence;
    (void)gmlk_mock_need(mock, gmlk_mock_push(queue, &work), GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  }
  return gmlk_mock_leave(mock, mock->costs->stream_wait, out_code);
}

/* Refused while the stream is captured, as by the CUDA backend: that asks whether it is, which
   spoils nothing. */
static gmlake_result gmlk_mock_stream_id(void *user, gmlake_stream stream, uint64_t *out_id,
                                         int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  if (gmlk_mock_need_named(mock, queue != NULL) &&
      gmlk_mock_need(mock, !queue->capturing, GMLAKE_ERROR_CAPTURING))
    *out_id = queue->id;
  return gmlk_mock_leave(mock, 0, out_code);
}

static gmlake_result gmlk_mock_is_capturing(void *user, gmlake_stream stream, int *out_is,
                                            int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  if (gmlk_mock_need_named(mock, queue != NULL))
    *out_is = queue == mock->queues ? mock->capture_count > 0 : queue->capturing;
  return gmlk_mock_leave(mock, 0, out_code);
}

/* Like the driver, refuses in every mode while a stream is captured, and spoils the capture. */
static gmlake_result gmlk_mock_device_wait(void *user, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  size_t i;
  int is_done = 1;
  if (!mock->result) gmlk_mock_spoil_all(mock);
  if (gmlk_mock_need(mock, !mock->capture_count, GMLAKE_ERROR_CAPTURING)) {
    for (i = 0; i < mock->queue_count; i++) {
      is_done &= mock->queues[i].done == mock->queues[i].last;
      mock->queues[i].wanted = mock->queues[i].last;
    }
    mock->census.host_wait_count += !is_done;
    gmlk_mock_settle(mock);
  }
  return gmlk_mock_leave(mock, mock->costs->event_wait, out_code);
}

static gmlake_result gmlk_mock_get_properties(void *user, gmlake_device_properties *out,
                                              int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  if (!mock->result) {
    memset(out, 0, sizeof(*out));
    out->device_bytes = mock->desc.capacity_bytes;
    out->granularity_bytes = mock->desc.granularity_bytes;
    out->handle_types = GMLAKE_HANDLE_POSIX_FD;
    out->is_host_memory = mock->file >= 0;
    out->device_count = mock->desc.device_count;
    out->is_integrated = mock->desc.available_bytes < mock->desc.capacity_bytes;
    memcpy(out->name, "gmlake mock", sizeof("gmlake mock"));
  }
  return gmlk_mock_leave(mock, 0, out_code);
}

static gmlake_result gmlk_mock_get_memory_info(void *user, size_t *out_free_bytes,
                                               size_t *out_total_bytes, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  if (!mock->result) {
    *out_free_bytes = mock->desc.available_bytes - mock->census.physical_bytes;
    *out_total_bytes = mock->desc.capacity_bytes;
  }
  return gmlk_mock_leave(mock, mock->costs->memory_info, out_code);
}

/* Whether the device has access to every mapping under these bytes. */
static int gmlk_mock_reaches(const gmlk_mock *mock, uint64_t address, size_t bytes, int device) {
  const gmlk_mock_run run = gmlk_mock_find_run(mock, address, bytes);
  size_t i = 0;
  while (i < run.count && run.first[i].devices >> device & 1) i++;
  return run.count && i == run.count;
}

/* Whether the range of a copy is there: when it begins, and when it ends. */
static int gmlk_mock_can_copy(gmlk_mock *mock, uint64_t address, size_t bytes) {
  return gmlk_mock_need(mock, gmlk_mock_reaches(mock, address, bytes, 0),
                        GMLAKE_ERROR_INVALID_ARGUMENT);
}

/* Completes the copy that runs. Returns what the caller waits for it. */
static uint64_t gmlk_mock_end_copy(gmlk_mock *mock) {
  const uint64_t now = mock->census.modelled_ns, end = mock->copying.end_ns;
  void *host = mock->copying.host, *device = (void *)(uintptr_t)mock->copying.address;
  const size_t bytes = mock->copying.bytes;
  mock->copying.bytes = 0;
  if (!bytes || !gmlk_mock_can_copy(mock, mock->copying.address, bytes)) return 0;
  if (mock->file >= 0)
    memcpy(mock->copying.to_host ? host : device, mock->copying.to_host ? device : host, bytes);
  return end > now ? end - now : 0;
}

static gmlake_result gmlk_mock_copy(void *user, uint64_t address, void *host, size_t bytes,
                                    int to_host, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  const uint64_t former = mock->copying.bytes ? mock->copying.end_ns : 0;
  const uint64_t begin = gmlk_max(mock->census.modelled_ns, former);
  uint64_t cost = 0;
  if (!mock->result && (!bytes || gmlk_mock_can_copy(mock, address, bytes)) &&
      gmlk_mock_need(mock, !bytes || host, GMLAKE_ERROR_INVALID_ARGUMENT))
    cost = gmlk_mock_end_copy(mock);
  mock->copying.bytes = mock->result ? 0 : bytes;
  mock->copying.address = address;
  mock->copying.host = host;
  mock->copying.to_host = to_host;
  mock->copying.end_ns = begin + bytes / GMLK_MOCK_LINK;
  return gmlk_mock_leave(mock, cost, out_code);
}

static gmlake_result gmlk_mock_host_alloc(void *user, size_t bytes, void **out_host,
                                          int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_host *host = NULL;
  if (!mock->result && bytes <= SIZE_MAX - sizeof(*host))
    host = (gmlk_mock_host *)GMLAKE_MALLOC(sizeof(*host) + bytes);
  if (gmlk_mock_need(mock, host != NULL, GMLAKE_ERROR_OUT_OF_HOST_MEMORY)) {
    host->next = mock->host;
    mock->host = host;
    mock->census.host_count++;
    *out_host = host + 1;
  }
  return gmlk_mock_leave(mock, bytes / GMLK_MOCK_PINNING, out_code);
}

static gmlake_result gmlk_mock_host_free(void *user, void *host, int *out_code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_host **link = &mock->host, *found;
  while (*link && (void *)(*link + 1) != host) link = &(*link)->next;
  found = *link;
  if (gmlk_mock_need(mock, found != NULL, GMLAKE_ERROR_INVALID_ARGUMENT)) {
    *link = found->next;
    GMLAKE_FREE(found);
    mock->census.host_count--;
  }
  return gmlk_mock_leave(mock, 0, out_code);
}

static uint64_t gmlk_mock_clock_ns(void *user) {
  gmlk_mock *mock = gmlk_mock_lock(user);
  uint64_t ns = mock->census.modelled_ns;
  gmlk_mock_unlock(mock);
  return ns;
}

static const gmlake_backend gmlk_mock_backend = GMLK_BACKEND_TABLE(gmlk_mock);

/* What tests call. Functions without a result ignore a stream that does not exist. */

GMLAKE_DEF gmlake_result gmlake_mock_create(const gmlake_mock_desc *desc,
                                            gmlake_backend **out_backend) {
  gmlake_mock_desc zero;
  gmlake_stream legacy;
  gmlk_mock *mock;
  gmlake_result result;
  memset(&zero, 0, sizeof(zero));
  if (!desc) desc = &zero;
  if (!out_backend) return GMLAKE_ERROR_INVALID_ARGUMENT;
  mock = (gmlk_mock *)GMLAKE_MALLOC(sizeof(*mock));
  if (!mock) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  memset(mock, 0, sizeof(*mock));
  mock->backend = gmlk_mock_backend;
  mock->backend.user = mock;
  mock->file = -1;
  mock->desc = *desc;
  if (!desc->capacity_bytes) mock->desc.capacity_bytes = 16384 * GMLK_MIB;
  if (!desc->available_bytes) mock->desc.available_bytes = mock->desc.capacity_bytes;
  if (!desc->granularity_bytes) mock->desc.granularity_bytes = 2 * GMLK_MIB;
  if (!desc->device_count) mock->desc.device_count = 8;
  mock->costs = &gmlk_mock_cost_table[(unsigned)desc->costs % GMLK_MOCK_COSTS];
  mock->handles.item_bytes = sizeof(gmlk_mock_handle);
  mock->events.item_bytes = sizeof(gmlk_mock_event);
  mock->modes.item_bytes = sizeof(gmlk_mock_mode);
  (void)GMLAKE_MUTEX_INIT(&mock->mutex);
  if (!desc->bookkeeping_only) mock->file = gmlk_mock_host_file(GMLK_MOCK_FILE_MAX);
  if (!gmlk_is_pow2(mock->desc.granularity_bytes) ||
      mock->desc.granularity_bytes < gmlk_mock_page_bytes() || mock->desc.device_count < 1 ||
      mock->desc.device_count > 32 || mock->desc.available_bytes > mock->desc.capacity_bytes ||
      (unsigned)desc->costs >= GMLK_MOCK_COSTS)
    result = GMLAKE_ERROR_INVALID_ARGUMENT;
  else
    result = desc->bookkeeping_only || mock->file >= 0 ? gmlk_mock_add_stream(mock, &legacy)
                                                       : GMLK_MOCK_NO_FILE;
  if (result)
    gmlake_mock_destroy(&mock->backend);
  else
    *out_backend = &mock->backend;
  return result;
}

GMLAKE_DEF void gmlake_mock_destroy(gmlake_backend *backend) {
  gmlk_mock *mock;
  size_t i;
  if (!backend) return;
  mock = (gmlk_mock *)backend->user;
  for (i = 0; i < mock->reservation_count; i++) {
    const gmlk_mock_reservation *left = &mock->reservations[i];
    (void)gmlk_mock_host_unreserve(mock, left->address, left->bytes);
    GMLAKE_FREE(left->mappings);
  }
  for (i = 0; i < mock->queue_count; i++) GMLAKE_FREE(mock->queues[i].ring);
  while (mock->host) {
    gmlk_mock_host *next = mock->host->next;
    GMLAKE_FREE(mock->host);
    mock->host = next;
  }
  gmlk_mock_host_close(mock->file);
  for (i = 0; i < mock->handles.count; i++) {
    const gmlk_mock_handle *left = (gmlk_mock_handle *)gmlk_mock_at(&mock->handles, i);
    if (left->slot.live) gmlk_mock_host_close(left->file - 1);
  }
  GMLAKE_FREE(mock->handles.items);
  GMLAKE_FREE(mock->events.items);
  GMLAKE_FREE(mock->modes.items);
  GMLAKE_FREE(mock->reservations);
  GMLAKE_FREE(mock->queues);
  (void)GMLAKE_MUTEX_DESTROY(&mock->mutex);
  GMLAKE_FREE(mock);
}

GMLAKE_DEF void gmlake_mock_get_census(gmlake_backend *backend, gmlake_mock_census *out_census) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  *out_census = mock->census;
  gmlk_mock_unlock(mock);
}

GMLAKE_DEF int gmlake_mock_has_access(gmlake_backend *backend, const void *ptr, size_t bytes,
                                      int device) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  const int has = device >= 0 && device < mock->desc.device_count &&
                  gmlk_mock_reaches(mock, (uint64_t)(uintptr_t)ptr, bytes, device);
  gmlk_mock_unlock(mock);
  return has;
}

GMLAKE_DEF void gmlake_mock_fail_at(gmlake_backend *backend, uint64_t call_number,
                                    gmlake_result result, int persistent) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  mock->fail_call = call_number;
  mock->fail_result = result;
  mock->fail_persistent = persistent;
  gmlk_mock_unlock(mock);
}

GMLAKE_DEF gmlake_result gmlake_mock_stream_create(gmlake_backend *backend,
                                                   gmlake_stream *out_stream) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  gmlake_result result = gmlk_mock_add_stream(mock, out_stream);
  gmlk_mock_unlock(mock);
  return result;
}

GMLAKE_DEF void gmlake_mock_stream_destroy(gmlake_backend *backend, gmlake_stream stream) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  if (queue && queue != mock->queues) { /* the legacy stream stays */
    queue->owned = 0;
    gmlk_mock_stop_capture(mock, queue);
  }
  gmlk_mock_unlock(mock);
}

GMLAKE_DEF void gmlake_mock_stream_hold(gmlake_backend *backend, gmlake_stream stream) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  if (queue) queue->held = 1;
  gmlk_mock_unlock(mock);
}

GMLAKE_DEF void gmlake_mock_stream_finish(gmlake_backend *backend, gmlake_stream stream) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  if (queue) {
    queue->held = 0;
    queue->forced = queue->last;
    gmlk_mock_settle(mock);
  }
  gmlk_mock_unlock(mock);
}

GMLAKE_DEF void gmlake_mock_stream_set_lag(gmlake_backend *backend, gmlake_stream stream,
                                           uint64_t lag_ns) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  if (queue) queue->lag_ns = lag_ns;
  gmlk_mock_unlock(mock);
}

GMLAKE_DEF void gmlake_mock_set_clock(gmlake_backend *backend, uint64_t now_ns) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  if (now_ns > mock->now_ns) {
    mock->now_ns = now_ns;
    gmlk_mock_settle(mock);
  }
  gmlk_mock_unlock(mock);
}

/* Like the driver, refuses the legacy stream. */
GMLAKE_DEF gmlake_result gmlake_mock_capture_begin(gmlake_backend *backend, gmlake_stream stream) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  int begins = queue && queue != mock->queues && !queue->capturing;
  if (begins) {
    queue->capturing = 1;
    queue->capture_thread = gmlk_thread_id();
    mock->capture_count++;
  }
  gmlk_mock_unlock(mock);
  return begins ? GMLAKE_OK : GMLAKE_ERROR_INVALID_ARGUMENT;
}

GMLAKE_DEF gmlake_result gmlake_mock_capture_end(gmlake_backend *backend, gmlake_stream stream) {
  gmlk_mock *mock = gmlk_mock_lock(backend->user);
  gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  gmlake_result result = GMLAKE_ERROR_INVALID_ARGUMENT;
  if (queue && queue->capturing) {
    result = queue->spoilt ? GMLAKE_ERROR_CAPTURING : GMLAKE_OK;
    gmlk_mock_stop_capture(mock, queue);
  }
  gmlk_mock_unlock(mock);
  return result;
}

/* The queue's last launch from the pool that is not before, of this graph or, if is_other, of
   another one; 0: there is none. */
static uint64_t gmlk_mock_last_launch(const gmlk_mock_queue *queue, const gmlake_pool *pool,
                                      uint64_t graph, int is_other) {
  uint64_t s;
  for (s = queue->last; s > queue->before; s--) {
    const gmlk_mock_work *work = gmlk_mock_work_at(queue, s);
    if (work->pool == pool && (work->graph != graph) == is_other) return s;
  }
  return 0;
}

/* Begins to find out what is ordered: what is complete, and what the queue has; NULL: no queue. */
static void gmlk_mock_order_begin(gmlk_mock *mock, gmlk_mock_queue *queue) {
  size_t i;
  for (i = 0; i < mock->queue_count; i++) mock->queues[i].before = mock->queues[i].done;
  if (queue) queue->before = queue->last;
}

/* Adds all that what is ordered waits for. */
static void gmlk_mock_order_end(gmlk_mock *mock) {
  uint64_t s;
  size_t i;
  int moved;
  do {
    moved = 0;
    for (i = 0; i < mock->queue_count; i++)
      for (s = mock->queues[i].done + 1; s <= mock->queues[i].before; s++) {
        const gmlk_mock_work *work = gmlk_mock_work_at(&mock->queues[i], s);
        gmlk_mock_queue *awaited = &mock->queues[work->awaited_queue];
        if (work->awaited_sequence <= awaited->before) continue;
        awaited->before = work->awaited_sequence;
        moved = 1;
      }
  } while (moved);
}

/* Queues a launch behind those of the same graph, as the driver does it. Before it is what its
   queue has, and all that this waits for. */
static void gmlk_mock_queue_launch(gmlk_mock *mock, gmlk_mock_queue *queue, const gmlake_pool *pool,
                                   uint64_t graph) {
  gmlk_mock_work wait = {0, 0, 0, 0, NULL, 0, 0, 0, 0}, launch = {0, 1, 0, 0, NULL, 0, 0, 0, 0};
  size_t i;
  gmlk_mock_order_begin(mock, queue);
  gmlk_mock_order_end(mock);
  launch.pool = pool;
  launch.graph = graph;
  for (i = 0; i < mock->queue_count; i++)
    (void)gmlk_mock_need(mock, !gmlk_mock_last_launch(&mock->queues[i], pool, graph, 1),
                         GMLAKE_ERROR_INVALID_ARGUMENT);
  for (i = 0; i < mock->queue_count && !mock->result; i++) {
    wait.awaited_queue = i;
    wait.awaited_sequence = gmlk_mock_last_launch(&mock->queues[i], pool, graph, 0);
    (void)gmlk_mock_need(mock, !wait.awaited_sequence || gmlk_mock_push(queue, &wait),
                         GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  }
  if (!mock->result)
    (void)gmlk_mock_need(mock, gmlk_mock_push(queue, &launch), GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
}

GMLAKE_DEF gmlake_result gmlake_mock_launch(gmlake_backend *backend, gmlake_pool *pool,
                                            uint64_t graph, gmlake_stream stream) {
  gmlk_mock *mock;
  gmlk_mock_queue *queue;
  gmlake_result result = GMLAKE_OK;
  if (!pool) return GMLAKE_ERROR_INVALID_ARGUMENT;
  gmlk_spinlock_lock(&pool->lake->state_lock, pool->lake->has_locks);
  if (pool->arena.sleep) result = GMLAKE_ERROR_ASLEEP;
  if (pool->loan.number) result = GMLAKE_ERROR_BUSY;
  gmlk_spinlock_unlock(&pool->lake->state_lock, pool->lake->has_locks);
  mock = gmlk_mock_lock(backend->user);
  mock->result = result;
  queue = gmlk_mock_find_queue(mock, stream);
  if (gmlk_mock_need_named(mock, queue != NULL) && gmlk_mock_may_queue(mock, queue, 0))
    gmlk_mock_queue_launch(mock, queue, pool, graph);
  result = mock->result;
  gmlk_mock_unlock(mock);
  return result;
}

/* A use of these bytes that is not ordered, of a block that has been freed since or of one that has
   not, and its stream. NULL: there is none. What streams did that are gone is left out. */
static const gmlk_mock_work *gmlk_mock_unordered(const gmlk_mock *mock, uint64_t address,
                                                 uint64_t end, int is_past, uint64_t *out_stream) {
  size_t i;
  uint64_t s;
  for (i = 0; i < mock->queue_count; i++) {
    const gmlk_mock_queue *queue = &mock->queues[i];
    for (s = queue->before + 1; queue->owned && s <= queue->last; s++) {
      const gmlk_mock_work *work = gmlk_mock_work_at(queue, s);
      if (work->address >= end || address >= work->end || work->is_past != is_past) continue;
      *out_stream = queue->value;
      return work;
    }
  }
  return NULL;
}

/* Work so far used what was there before. pre: state_lock is held. */
static void gmlk_mock_end_uses(const gmlake *l, uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  gmlk_mock *mock;
  uint64_t s;
  size_t i;
  if (!l->mock) return;
  mock = gmlk_mock_lock(l->mock->user);
  for (i = 0; i < mock->queue_count; i++)
    for (s = mock->queues[i].done + 1; s <= mock->queues[i].last; s++) {
      gmlk_mock_work *work = gmlk_mock_work_at(&mock->queues[i], s);
      work->is_past |= work->address < end && address < work->end;
    }
  gmlk_mock_unlock(mock);
}

/* What a stream that is gone had waited for is not known: all is taken to be ordered before it.
   pre: state_lock is held. */
static gmlake_result gmlk_mock_may_end(gmlake *l, uint64_t address, uint64_t bytes,
                                       const gmlk_extra *extra, gmlake_stream stream,
                                       const char *call) {
  gmlk_mock *mock;
  const gmlk_mock_work *work;
  gmlk_mock_queue *own, *queue;
  uint64_t user = 0, at = 0;
  size_t i;
  if (!l->mock) return GMLAKE_OK;
  mock = gmlk_mock_lock(l->mock->user);
  own = gmlk_mock_find_queue(mock, stream);
  gmlk_mock_order_begin(mock, own);
  for (i = 0; extra && i < extra->used_count; i++) {
    queue = gmlk_mock_find_queue(mock, l->streams.items[extra->used[i].stream]->value);
    if (queue) queue->before = queue->last;
  }
  gmlk_mock_order_end(mock);
  work = own || stream == GMLAKE_STREAM_NONE
             ? gmlk_mock_unordered(mock, address, address + bytes, 0, &user)
             : NULL;
  if (work) at = gmlk_max(work->address, address);
  gmlk_mock_unlock(mock);
  if (!at) return GMLAKE_OK;
  return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                   "stream 0x%llx may still use 0x%llx, byte %llu: call gmlake_record_stream for "
                   "it before, or let %s wait for it",
                   GMLK_ULL(user), GMLK_ULL(at), GMLK_ULL(at - address),
                   stream == GMLAKE_STREAM_NONE ? "the host" : "this stream");
}

/* Whether the bytes are all memory of one live block or buffer. */
static gmlake_result gmlk_mock_may_use(gmlake *l, uint64_t address, size_t bytes,
                                       gmlake_stream stream, const char *call) {
  gmlake_buffer *buffer;
  const gmlk_block *b = gmlk_find_at(l, address, &buffer);
  const gmlk_arena *a = NULL;
  uint64_t end = 0;
  if (b) {
    a = l->arenas[b->arena];
    if (b->state == GMLK_LIVE && address >= gmlk_address_of(a, b))
      end = gmlk_address_of(a, b) + b->grains * GMLK_GRAIN;
  } else if (buffer) {
    uint64_t n;
    a = buffer->arena;
    n = (address - gmlk_buffer_address(buffer)) / a->chunk_bytes;
    for (end = gmlk_buffer_address(buffer) + n * a->chunk_bytes;
         (end <= address || end - address < bytes) && gmlk_is_committed(buffer, (uint32_t)n); n++)
      end += a->chunk_bytes;
  }
  if (a && a->sleep >= GMLK_ASLEEP) return gmlk_refuse_asleep(l, a, call);
  if (address < end && bytes <= end - address) return GMLAKE_OK;
  return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                   "stream 0x%llx uses %llu bytes from 0x%llx on: of these the live block or "
                   "buffer there, if there is one, has %llu",
                   GMLK_ULL((uintptr_t)stream), GMLK_ULL(bytes), GMLK_ULL(address),
                   GMLK_ULL(end > address ? end - address : 0));
}

/* Queues the use, unless one of a block that was there before is not ordered. */
static gmlake_result gmlk_mock_queue_use(gmlake *l, void *user, uint64_t address, size_t bytes,
                                         gmlake_stream stream, const char *call) {
  gmlk_mock_work use = {0, 1, 0, 0, NULL, 0, 0, 0, 0};
  const gmlk_mock_work *early = NULL;
  gmlk_mock *mock = gmlk_mock_lock(user);
  gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, stream);
  gmlake_result result;
  uint64_t other = 0;
  use.address = address;
  use.end = address + bytes;
  mock->result = GMLAKE_OK;
  if (gmlk_mock_need_named(mock, queue != NULL) && !queue->capturing &&
      gmlk_mock_may_queue(mock, queue, 0)) {
    gmlk_mock_order_begin(mock, queue);
    gmlk_mock_order_end(mock);
    early = gmlk_mock_unordered(mock, address, use.end, 1, &other);
    if (gmlk_mock_need(mock, !early, GMLAKE_ERROR_INVALID_ARGUMENT))
      (void)gmlk_mock_need(mock, gmlk_mock_push(queue, &use), GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  }
  result = mock->result;
  gmlk_mock_unlock(mock);
  if (!queue)
    return gmlk_fail(l, result, call, "the mock has no stream 0x%llx", GMLK_ULL((uintptr_t)stream));
  if (early)
    return gmlk_fail(
        l, result, call,
        "stream 0x%llx has to wait for stream 0x%llx, which used 0x%llx before: let it wait "
        "for the stream that the block was allocated on",
        GMLK_ULL((uintptr_t)stream), GMLK_ULL(other), GMLK_ULL(address));
  if (result == GMLAKE_ERROR_CAPTURING)
    return gmlk_fail(l, result, call,
                     "a capture forbids work on the legacy stream: end that capture first");
  return result;
}

GMLAKE_DEF gmlake_result gmlake_mock_use(gmlake_backend *backend, gmlake *l, const void *ptr,
                                         size_t bytes, gmlake_stream stream) {
  const char *call = "gmlake_mock_use";
  const uint64_t address = (uint64_t)(uintptr_t)ptr;
  gmlake_result result;
  if (!backend || !l) return GMLAKE_ERROR_INVALID_ARGUMENT;
  gmlk_spinlock_lock(&l->state_lock, l->has_locks);
  result = l->lost ? l->lost : gmlk_mock_may_use(l, address, bytes, stream, call);
  if (!result) result = gmlk_mock_queue_use(l, backend->user, address, bytes, stream, call);
  if (!result) {
    l->mock = backend;
    l->is_watched = 1;
  }
  gmlk_spinlock_unlock(&l->state_lock, l->has_locks);
  return result;
}

#endif /* GMLAKE_BACKEND_MOCK */

/* ---- >>backend_cuda -------------------------------------------------------------------------
   Owns one reference to the device's primary context, and a table of driver functions. Handles,
   addresses and events belong to the caller; the section keeps no record of them.

   [C1] Between create and destroy its state does not change, so the table's functions need no lock;
        except the streams that copy, which copies create.
   [C2] A function of the table makes the primary context current, where the driver makes and finds
        events, and on return restores the thread's own. capture_exchange needs no context.
   [C3] A process other than the one that called create makes no driver call.
   [C4] *out_code is the number of the driver call that failed, or 0. Other outputs are written on
        GMLAKE_OK only.
   [C5] At most one copy runs while none is being started: on copiers[turn].

   Costs: each function makes one driver call and asks for the current context; two more calls if
   another context is current, three more after an unknown error. stream_id asks one call more.
   Can fail: all that the driver refuses. Any call may report an error of earlier asynchronous work;
   gmlk_cuda_result tells which errors are for good. */
#if defined(GMLAKE_BACKEND_CUDA)

#include <cuda.h>
#if !defined(CUDA_VERSION) || CUDA_VERSION < 10020 /* the first with cuMemMap */
#error "cuda.h is too old: gmlake.h needs that of CUDA 10.2, or a later one"
#endif
#if !defined(_WIN32)
#include <time.h>
#endif
#if !defined(_WIN32)
#include <dlfcn.h>
#endif

/* CUdevice_attribute by number: the cuda.h at hand may be too old to have the names. */
enum {
  GMLK_CUDA_ATTRIBUTE_INTEGRATED = 18,
  GMLK_CUDA_ATTRIBUTE_VMM = 102,
  GMLK_CUDA_ATTRIBUTE_POSIX_FD = 103,
  GMLK_CUDA_ATTRIBUTE_RDMA_WITH_VMM = 110,
  GMLK_CUDA_ATTRIBUTE_FABRIC = 128
};

/* The driver functions used: name without cu, what the exported name has behind that for this form
   of the function, parameters. The plain names take NULL for the legacy stream. A driver with
   virtual memory management has all but StreamGetId, which is of CUDA 12.0 and NULL before. Those
   behind it are for gmlake_offload.h. */
#define GMLK_CUDA_FUNCTIONS(X)                                                                     \
  X(Init, "", (unsigned flags))                                                                    \
  X(DeviceGet, "", (CUdevice * device, int ordinal))                                               \
  X(DeviceGetCount, "", (int *count))                                                              \
  X(DeviceGetName, "", (char *name, int bytes, CUdevice device))                                   \
  X(DeviceGetAttribute, "", (int *value, CUdevice_attribute attribute, CUdevice device))           \
  X(DeviceTotalMem, "_v2", (size_t * bytes, CUdevice device))                                      \
  X(DevicePrimaryCtxRetain, "", (CUcontext * context, CUdevice device))                            \
  X(DevicePrimaryCtxRelease, "_v2", (CUdevice device))                                             \
  X(CtxGetCurrent, "", (CUcontext * context))                                                      \
  X(CtxPushCurrent, "_v2", (CUcontext context))                                                    \
  X(CtxPopCurrent, "_v2", (CUcontext * context))                                                   \
  X(MemGetInfo, "_v2", (size_t * free_bytes, size_t * total_bytes))                                \
  X(MemGetAllocationGranularity, "",                                                               \
    (size_t * bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags flags))     \
  X(MemAddressReserve, "",                                                                         \
    (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint,                      \
     unsigned long long flags))                                                                    \
  X(MemAddressFree, "", (CUdeviceptr address, size_t bytes))                                       \
  X(MemCreate, "",                                                                                 \
    (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop,         \
     unsigned long long flags))                                                                    \
  X(MemRelease, "", (CUmemGenericAllocationHandle handle))                                         \
  X(MemMap, "",                                                                                    \
    (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,        \
     unsigned long long flags))                                                                    \
  X(MemUnmap, "", (CUdeviceptr address, size_t bytes))                                             \
  X(MemExportToShareableHandle, "",                                                                \
    (void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,            \
     unsigned long long flags))                                                                    \
  X(MemImportFromShareableHandle, "",                                                              \
    (CUmemGenericAllocationHandle * handle, void *shared, CUmemAllocationHandleType type))         \
  X(MemSetAccess, "",                                                                              \
    (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descs, size_t count))               \
  X(EventCreate, "", (CUevent * event, unsigned flags))                                            \
  X(EventDestroy, "_v2", (CUevent event))                                                          \
  X(EventRecord, "", (CUevent event, CUstream stream))                                             \
  X(EventQuery, "", (CUevent event))                                                               \
  X(EventSynchronize, "", (CUevent event))                                                         \
  X(StreamWaitEvent, "", (CUstream stream, CUevent event, unsigned flags))                         \
  X(StreamIsCapturing, "", (CUstream stream, CUstreamCaptureStatus * status))                      \
  X(CtxSynchronize, "", (void))                                                                    \
  X(StreamCreate, "", (CUstream * stream, unsigned flags))                                         \
  X(StreamDestroy, "_v2", (CUstream stream))                                                       \
  X(StreamSynchronize, "", (CUstream stream))                                                      \
  X(MemcpyDtoHAsync, "_v2", (void *host, CUdeviceptr address, size_t bytes, CUstream stream))      \
  X(MemcpyHtoDAsync, "_v2",                                                                        \
    (CUdeviceptr address, const void *host, size_t bytes, CUstream stream))                        \
  X(MemHostAlloc, "", (void **host, size_t bytes, unsigned flags))                                 \
  X(MemFreeHost, "", (void *host))                                                                 \
  X(MemHostRegister, "_v2", (void *host, size_t bytes, unsigned flags))                            \
  X(MemHostUnregister, "", (void *host))                                                           \
  X(ThreadExchangeStreamCaptureMode, "", (CUstreamCaptureMode * mode))                             \
  X(StreamGetId, "", (CUstream stream, unsigned long long *id))                                    \
  X(EventElapsedTime, "", (float *ms, CUevent from, CUevent to))                                   \
  X(MemAlloc, "_v2", (CUdeviceptr * address, size_t bytes))                                        \
  X(MemFree, "_v2", (CUdeviceptr address))                                                         \
  X(CtxEnablePeerAccess, "", (CUcontext peer, unsigned flags))                                     \
  X(MemcpyPeerAsync, "",                                                                           \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, \
     CUstream stream))                                                                             \
  X(MemsetD8Async, "", (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))

#define GMLK_CUDA_MEMBER(name, suffix, params) CUresult(CUDAAPI *name) params;
typedef struct gmlk_cuda_functions {
  GMLK_CUDA_FUNCTIONS(GMLK_CUDA_MEMBER)
} gmlk_cuda_functions;
#undef GMLK_CUDA_MEMBER

typedef struct gmlk_cuda {
  gmlake_backend table; /* what the caller holds; table.user is this struct */
  gmlk_cuda_functions fn;
  gmlake_device_properties properties;
  CUdevice device;
  CUcontext context;    /* the primary context, retained once */
  gmlk_process process; /* the one that called create */
  unsigned char rdma_capable;
  GMLK_MUTEX mutex;    /* of copiers and turn */
  CUstream copiers[2]; /* [C1] each copies every other time */
  unsigned turn;       /* the one that copied last */
} gmlk_cuda;

/* ---- Loading the driver ---- */

typedef struct gmlk_cuda_symbol {
  const char *exported;
  size_t offset; /* in gmlk_cuda_functions */
} gmlk_cuda_symbol;

/* The module is never closed, because the driver has threads and exit handlers of its own. */
#if defined(_WIN32)
static void *gmlk_cuda_module_open(void) {
  return (void *)LoadLibraryExA("nvcuda.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
}
static void *gmlk_cuda_module_find(void *module, const char *name) {
  FARPROC function = GetProcAddress((HMODULE)module, name);
  void *symbol;
  memcpy(&symbol, &function, sizeof(symbol));
  return symbol;
}
#else
static void *gmlk_cuda_module_open(void) { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); }
static void *gmlk_cuda_module_find(void *module, const char *name) { return dlsym(module, name); }
#endif

#define GMLK_CUDA_ROW(name, suffix, params) \
  {"cu" #name suffix, offsetof(gmlk_cuda_functions, name)},
static gmlake_result gmlk_cuda_load(gmlk_cuda_functions *fn) {
  static const gmlk_cuda_symbol rows[] = {GMLK_CUDA_FUNCTIONS(GMLK_CUDA_ROW)};
  void *module = gmlk_cuda_module_open(), *symbol;
  size_t i;
  if (!module) return GMLAKE_ERROR_NO_DRIVER;
  for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    symbol = gmlk_cuda_module_find(module, rows[i].exported);
    if (!symbol && rows[i].offset == offsetof(gmlk_cuda_functions, DevicePrimaryCtxRelease))
      symbol = gmlk_cuda_module_find(module, "cuDevicePrimaryCtxRelease"); /* CUDA 10.2's name */
    if (!symbol && rows[i].offset != offsetof(gmlk_cuda_functions, StreamGetId))
      return GMLAKE_ERROR_UNSUPPORTED; /* a driver older than virtual memory management */
    /* ISO C has no cast from an object pointer to a function pointer, so the bytes are copied. */
    memcpy((char *)fn + rows[i].offset, &symbol, sizeof(symbol));
  }
  return GMLAKE_OK;
}
#undef GMLK_CUDA_ROW

/* ---- Results, and how every function of the table begins and ends ---- */

/* By number, because cuda.h before CUDA 13 lacks some of the names. 709, context destroyed, is a
   plain DRIVER here: drivers also answer it for a stream that is gone. gmlk_cuda_leave then asks
   whether the context is alive. */
static gmlake_result gmlk_cuda_result(CUresult code) {
  static const int rows[][3] = {
      {0, 0, GMLAKE_OK},
      {1, 1, GMLAKE_ERROR_INVALID_ARGUMENT},
      {2, 2, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY},
      {3, 3, GMLAKE_ERROR_FORKED}, /* not initialised; create did that, so a child of fork asks */
      {4, 4, GMLAKE_ERROR_SHUTTING_DOWN},
      {34, 34, GMLAKE_ERROR_NO_DRIVER}, /* the toolkit's stub library */
      {100, 101, GMLAKE_ERROR_NO_DEVICE},
      {801, 801, GMLAKE_ERROR_UNSUPPORTED},
      {900, 907, GMLAKE_ERROR_CAPTURING},
      {214, 214, GMLAKE_ERROR_DEVICE_LOST}, /* memory error that ECC cannot correct */
      {220, 220, GMLAKE_ERROR_DEVICE_LOST}, /* NVLink error that cannot be corrected */
      {226, 226, GMLAKE_ERROR_DEVICE_LOST}, /* error contained to this process */
      {700, 700, GMLAKE_ERROR_DEVICE_LOST}, /* illegal address */
      {702, 702, GMLAKE_ERROR_DEVICE_LOST}, /* launch timeout */
      {710, 710, GMLAKE_ERROR_DEVICE_LOST}, /* device-side assert */
      {714, 719, GMLAKE_ERROR_DEVICE_LOST}, /* from a stack error to a failed launch */
      {721, 721, GMLAKE_ERROR_DEVICE_LOST}  /* tensor memory leak */
  };
  size_t i;
  for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
    if ((int)code >= rows[i][0] && (int)code <= rows[i][1]) return (gmlake_result)rows[i][2];
  return GMLAKE_ERROR_DRIVER;
}

typedef struct gmlk_cuda_call {
  const gmlk_cuda *cuda;
  CUresult code; /* of the first driver call that failed */
  int forked;
  int entered; /* the primary context is current */
  int pushed;  /* because enter pushed it */
} gmlk_cuda_call;

/* [C2] [C3] Whether the driver may be called. In both cases gmlk_cuda_leave must follow. */
static int gmlk_cuda_enter(void *user, gmlk_cuda_call *call) {
  const gmlk_cuda *cuda = (const gmlk_cuda *)user;
  CUcontext current = NULL;
  memset(call, 0, sizeof(*call));
  call->cuda = cuda;
  call->forked = gmlk_process_is_forked(&cuda->process);
  if (call->forked) return 0;
  call->code = cuda->fn.CtxGetCurrent(&current);
  if (call->code == CUDA_SUCCESS && current != cuda->context) {
    call->code = cuda->fn.CtxPushCurrent(cuda->context);
    call->pushed = call->code == CUDA_SUCCESS;
  }
  call->entered = call->code == CUDA_SUCCESS;
  return call->entered;
}

/* After an unknown error it makes a call that a dead context refuses; calls of virtual memory
   management succeed even then. The thread's capture mode is relaxed meanwhile, or the call would
   spoil a capture. If the context could not be made current, another context would answer. */
static gmlake_result gmlk_cuda_leave(const gmlk_cuda_call *call, int *out_code) {
  gmlake_result result = call->forked ? GMLAKE_ERROR_FORKED : gmlk_cuda_result(call->code);
  const gmlk_cuda_functions *fn = &call->cuda->fn;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUcontext popped;
  if (result == GMLAKE_ERROR_DRIVER && !call->entered) {
    result = GMLAKE_ERROR_DEVICE_LOST;
  } else if (result == GMLAKE_ERROR_DRIVER) {
    const int relaxed = fn->ThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    size_t free_bytes, total_bytes;
    if (fn->MemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS)
      result = GMLAKE_ERROR_DEVICE_LOST;
    if (relaxed) (void)fn->ThreadExchangeStreamCaptureMode(&mode);
  }
  /* A pop fails only if the driver is gone; then no context is current. */
  if (call->pushed) (void)fn->CtxPopCurrent(&popped);
  *out_code = (int)call->code;
  return result;
}

/* ---- The functions of the table ---- */

static gmlake_result gmlk_cuda_get_properties(void *user, gmlake_device_properties *out,
                                              int *out_code) {
  const gmlk_cuda *cuda = (const gmlk_cuda *)user;
  *out_code = 0;
  if (gmlk_process_is_forked(&cuda->process)) return GMLAKE_ERROR_FORKED;
  *out = cuda->properties;
  return GMLAKE_OK;
}

/* What the system can give without swapping; 0: it does not say. Why: see bench/NOTES.md. */
static size_t gmlk_cuda_available(void) {
  static const char name[] = "MemAvailable:";
  FILE *file = fopen("/proc/meminfo", "r");
  size_t kib = 0;
  char line[128];
  while (!kib && file && fgets(line, sizeof(line), file))
    if (!strncmp(line, name, sizeof(name) - 1))
      kib = (size_t)strtoull(line + sizeof(name) - 1, NULL, 10);
  if (file) (void)fclose(file);
  return kib * 1024;
}

static gmlake_result gmlk_cuda_get_memory_info(void *user, size_t *out_free_bytes,
                                               size_t *out_total_bytes, int *out_code) {
  gmlk_cuda_call call;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (gmlk_cuda_enter(user, &call)) {
    call.code = call.cuda->fn.MemGetInfo(&free_bytes, &total_bytes);
    if (call.code == CUDA_SUCCESS) {
      const size_t available = call.cuda->properties.is_integrated ? gmlk_cuda_available() : 0;
      *out_free_bytes = available ? gmlk_min(available, total_bytes) : free_bytes;
      *out_total_bytes = total_bytes;
    }
  }
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_reserve(void *user, size_t bytes, size_t alignment,
                                       uint64_t *out_address, int *out_code) {
  gmlk_cuda_call call;
  CUdeviceptr address = 0;
  if (gmlk_cuda_enter(user, &call)) {
    /* 0 asks for the driver's own alignment, which is at least the granularity. */
    const size_t asked = alignment <= call.cuda->properties.granularity_bytes ? 0 : alignment;
    call.code = call.cuda->fn.MemAddressReserve(&address, bytes, asked, 0, 0);
    if (call.code == CUDA_SUCCESS) *out_address = (uint64_t)address;
  }
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_unreserve(void *user, uint64_t address, size_t bytes,
                                         int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call))
    call.code = call.cuda->fn.MemAddressFree((CUdeviceptr)address, bytes);
  return gmlk_cuda_leave(&call, out_code);
}

/* What a handle is made of. Whether a network card may read the memory is fixed when the handle is
   made, and any block may be registered with a card later, so it is asked for wherever the device
   can. GMLAKE_HANDLE_* are the driver's numbers. */
static CUmemAllocationProp gmlk_cuda_prop(const gmlk_cuda *cuda, unsigned handle_types) {
  CUmemAllocationProp prop;
  memset(&prop, 0, sizeof(prop));
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = (CUmemAllocationHandleType)handle_types;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = cuda->device;
  prop.allocFlags.gpuDirectRDMACapable = cuda->rdma_capable;
  return prop;
}

static gmlake_result gmlk_cuda_create(void *user, size_t bytes, unsigned handle_types,
                                      uint64_t *out_handle, int *out_code) {
  const gmlk_cuda *cuda = (const gmlk_cuda *)user;
  gmlk_cuda_call call;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp prop = gmlk_cuda_prop(cuda, handle_types);
  if (handle_types & ~cuda->properties.handle_types) {
    *out_code = 0;
    return GMLAKE_ERROR_UNSUPPORTED;
  }
  if (gmlk_cuda_enter(user, &call)) {
    call.code = cuda->fn.MemCreate(&handle, bytes, &prop, 0);
    if (call.code == CUDA_SUCCESS) *out_handle = (uint64_t)handle;
  }
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_release(void *user, uint64_t handle, int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call))
    call.code = call.cuda->fn.MemRelease((CUmemGenericAllocationHandle)handle);
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_export_handle(void *user, uint64_t handle, gmlake_handle *out,
                                             int *out_code) {
  const int is_fd = out->type == GMLAKE_HANDLE_POSIX_FD;
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call))
    call.code = call.cuda->fn.MemExportToShareableHandle(
        is_fd ? (void *)&out->fd : (void *)out->fabric, (CUmemGenericAllocationHandle)handle,
        (CUmemAllocationHandleType)out->type, 0);
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_import_handle(void *user, const gmlake_handle *in,
                                             uint64_t *out_handle, int *out_code) {
  const int is_fd = in->type == GMLAKE_HANDLE_POSIX_FD;
  gmlake_handle copy = *in; /* the driver takes a pointer to what it may write */
  gmlk_cuda_call call;
  CUmemGenericAllocationHandle handle = 0;
  if (gmlk_cuda_enter(user, &call)) {
    call.code = call.cuda->fn.MemImportFromShareableHandle(
        &handle, is_fd ? (void *)(intptr_t)in->fd : (void *)copy.fabric,
        (CUmemAllocationHandleType)in->type);
    if (call.code == CUDA_SUCCESS) *out_handle = (uint64_t)handle;
  }
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_map(void *user, uint64_t address, size_t bytes, uint64_t handle,
                                   int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call)) {
    call.code = call.cuda->fn.MemMap((CUdeviceptr)address, bytes, 0,
                                     (CUmemGenericAllocationHandle)handle, 0);
  }
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_unmap(void *user, uint64_t address, size_t bytes, int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call)) call.code = call.cuda->fn.MemUnmap((CUdeviceptr)address, bytes);
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_set_access(void *user, uint64_t address, size_t bytes,
                                          const int *peer_devices, size_t peer_count,
                                          int *out_code) {
  gmlk_cuda_call call;
  CUmemAccessDesc descs[GMLK_PEERS_MAX + 1];
  size_t i;
  if (peer_count > GMLK_PEERS_MAX) {
    *out_code = 0;
    return GMLAKE_ERROR_INVALID_ARGUMENT;
  }
  if (gmlk_cuda_enter(user, &call)) {
    memset(descs, 0, sizeof(descs));
    for (i = 0; i <= peer_count; i++) {
      descs[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      descs[i].location.id = i ? peer_devices[i - 1] : call.cuda->device;
      descs[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    call.code = call.cuda->fn.MemSetAccess((CUdeviceptr)address, bytes, descs, peer_count + 1);
  }
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_event_create(void *user, void **out_event, int *out_code) {
  gmlk_cuda_call call;
  CUevent event = NULL;
  if (gmlk_cuda_enter(user, &call)) {
    call.code = call.cuda->fn.EventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (call.code == CUDA_SUCCESS) *out_event = (void *)event;
  }
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_event_destroy(void *user, void *event, int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call)) call.code = call.cuda->fn.EventDestroy((CUevent)event);
  return gmlk_cuda_leave(&call, out_code);
}

/* In a program that is compiled for per-thread default streams and linked to the driver, NULL would
   be the thread's own stream. So the legacy stream is named by its own value. */
static CUstream gmlk_cuda_stream(gmlake_stream stream) {
  return stream ? (CUstream)stream : CU_STREAM_LEGACY;
}

/* gmlk_cuda_leave for calls that name a stream: INVALID_ARGUMENT if the stream was destroyed while
   the context is alive. */
static gmlake_result gmlk_cuda_leave_stream(const gmlk_cuda_call *call, int *out_code) {
  const gmlake_result result = gmlk_cuda_leave(call, out_code);
  const int is_gone =
      call->code == CUDA_ERROR_INVALID_HANDLE || call->code == CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return result == GMLAKE_ERROR_DRIVER && is_gone ? GMLAKE_ERROR_INVALID_ARGUMENT : result;
}

static gmlake_result gmlk_cuda_event_record(void *user, void *event, gmlake_stream stream,
                                            int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call))
    call.code = call.cuda->fn.EventRecord((CUevent)event, gmlk_cuda_stream(stream));
  return gmlk_cuda_leave_stream(&call, out_code);
}

static gmlake_result gmlk_cuda_event_query(void *user, void *event, int *out_done, int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call)) {
    const CUresult code = call.cuda->fn.EventQuery((CUevent)event);
    call.code = code == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : code;
    if (call.code == CUDA_SUCCESS) *out_done = code == CUDA_SUCCESS;
  }
  return gmlk_cuda_leave(&call, out_code);
}

#define GMLK_CUDA_ASKS 1000u /* questions before the host naps between two rounds of them */

/* The driver has no such call: it is asked again and again. */
static gmlake_result gmlk_cuda_event_wait_any(void *user, void *const *events, unsigned count,
                                              unsigned *out_index, int *out_code) {
  CUresult code = CUDA_ERROR_NOT_READY;
  unsigned asked;
  gmlk_cuda_call call;
  if (!gmlk_cuda_enter(user, &call)) return gmlk_cuda_leave(&call, out_code);
  for (asked = 0; code == CUDA_ERROR_NOT_READY; asked++) {
    *out_index = asked % count;
    code = call.cuda->fn.EventQuery((CUevent)events[*out_index]);
    if (asked > GMLK_CUDA_ASKS && *out_index + 1 == count) gmlk_nap(1);
  }
  call.code = code;
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_event_wait(void *user, void *event, int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call)) call.code = call.cuda->fn.EventSynchronize((CUevent)event);
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_stream_wait(void *user, gmlake_stream stream, void *event,
                                           int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call))
    call.code = call.cuda->fn.StreamWaitEvent(gmlk_cuda_stream(stream), (CUevent)event, 0);
  return gmlk_cuda_leave(&call, out_code);
}

static gmlake_result gmlk_cuda_stream_id(void *user, gmlake_stream stream, uint64_t *out_id,
                                         int *out_code) {
  gmlk_cuda_call call;
  unsigned long long id = 0;
  if (gmlk_cuda_enter(user, &call)) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    call.code = call.cuda->fn.StreamIsCapturing((CUstream)stream, &status);
    if (call.code == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
      call.code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* asking would spoil the capture */
    else if (call.code == CUDA_SUCCESS)
      call.code = call.cuda->fn.StreamGetId((CUstream)stream, &id);
    if (call.code == CUDA_SUCCESS) *out_id = (uint64_t)id;
  }
  return gmlk_cuda_leave_stream(&call, out_code);
}

static gmlake_result gmlk_cuda_is_capturing(void *user, gmlake_stream stream, int *out_is,
                                            int *out_code) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call)) {
    call.code = call.cuda->fn.StreamIsCapturing(gmlk_cuda_stream(stream), &status);
    if (call.code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) { /* the legacy stream may not be used */
      status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
      call.code = CUDA_SUCCESS;
    }
    if (call.code == CUDA_SUCCESS) *out_is = status != CU_STREAM_CAPTURE_STATUS_NONE;
  }
  return gmlk_cuda_leave_stream(&call, out_code);
}

static gmlake_result gmlk_cuda_device_wait(void *user, int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call)) call.code = call.cuda->fn.CtxSynchronize();
  return gmlk_cuda_leave(&call, out_code);
}

/* Starts a copy on a stream of its own. That does not wait for the legacy stream, so no capture
   forbids it. [C5] At most one copy runs when it returns: on copiers[turn]. */
static gmlake_result gmlk_cuda_copy(void *user, uint64_t address, void *host, size_t bytes,
                                    int to_host, int *out_code) {
  gmlk_cuda *cuda = (gmlk_cuda *)user;
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call)) {
    const CUdeviceptr device = (CUdeviceptr)address;
    CUstream former, *copier;
    CUresult code = CUDA_SUCCESS, waited = CUDA_SUCCESS;
    (void)GMLAKE_MUTEX_LOCK(&cuda->mutex);
    former = cuda->copiers[cuda->turn];
    copier = &cuda->copiers[cuda->turn ^ 1u];
    if (bytes && !*copier) code = cuda->fn.StreamCreate(copier, CU_STREAM_NON_BLOCKING);
    if (bytes && code == CUDA_SUCCESS)
      code = to_host ? cuda->fn.MemcpyDtoHAsync(host, device, bytes, *copier)
                     : cuda->fn.MemcpyHtoDAsync(device, host, bytes, *copier);
    if (former) waited = cuda->fn.StreamSynchronize(former);
    call.code = code == CUDA_SUCCESS ? waited : code;
    if (bytes) cuda->turn ^= 1u;
    if (call.code != CUDA_SUCCESS && cuda->copiers[cuda->turn])
      (void)cuda->fn.StreamSynchronize(cuda->copiers[cuda->turn]);
    (void)GMLAKE_MUTEX_UNLOCK(&cuda->mutex);
  }
  return gmlk_cuda_leave(&call, out_code);
}

#if defined(MADV_HUGEPAGE) && defined(MADV_DONTFORK)

#define GMLK_TOUCHERS 16

typedef struct gmlk_touch { /* a part of a mapping, in pages of at least 4 KiB */
  char *ptr, *end;
} gmlk_touch;

static void *gmlk_cuda_touch_part(void *user) {
  const gmlk_touch *part = (const gmlk_touch *)user;
  char *at;
  for (at = part->ptr; at < part->end; at += 4096) *(volatile char *)at = 0;
  return NULL;
}

/* Makes the pages of a mapping of whole huge pages, a part in each of several threads. */
static void gmlk_cuda_touch(char *ptr, size_t bytes) {
  const size_t page = 2 * GMLK_MIB, pages = bytes / page;
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  gmlk_touch parts[GMLK_TOUCHERS];
  pthread_t threads[GMLK_TOUCHERS];
  size_t count = online < 1 ? 1 : online < GMLK_TOUCHERS ? (size_t)online : GMLK_TOUCHERS, i, begun;
  if (count > pages) count = pages;
  for (i = 0; i < count; i++) {
    parts[i].ptr = ptr + pages * i / count * page;
    parts[i].end = ptr + pages * (i + 1) / count * page;
  }
  for (begun = 1; begun < count; begun++)
    if (pthread_create(&threads[begun], NULL, gmlk_cuda_touch_part, &parts[begun])) break;
  for (i = begun; i < count; i++) (void)gmlk_cuda_touch_part(&parts[i]);
  if (count) (void)gmlk_cuda_touch_part(&parts[0]);
  for (i = 1; i < begun; i++) (void)pthread_join(threads[i], NULL);
}

/* Pinned memory in huge pages, which several threads make; gmlake_offload.h's is made here, too. On
   an H200's host that took a tenth of the driver's time (bench/NOTES.md, "Pinning"). Two words
   before the memory tell where the mapping begins and ends. A child of fork has none of it: else a
   page that the parent writes would be another one than the device's. */
static CUresult gmlk_cuda_pin_mapped(const gmlk_cuda *cuda, size_t bytes, void **out_host) {
  const size_t page = 2 * GMLK_MIB, mapped = (bytes + page - 1) / page * page + 2 * page;
  CUresult code = CUDA_ERROR_NOT_SUPPORTED;
  char *base =
      (char *)mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void **host;
  if (base == (char *)MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  host = (void **)(void *)(base + 2 * page - (uintptr_t)base % page);
  host[-1] = base;
  host[-2] = base + mapped;
  (void)madvise(host, mapped - 2 * page, MADV_HUGEPAGE); /* where there are none they are small */
  if (!madvise(base, mapped, MADV_DONTFORK)) {
    gmlk_cuda_touch((char *)host, mapped - 2 * page);
    code = cuda->fn.MemHostRegister(host, mapped - 2 * page, 0);
  }
  if (code == CUDA_SUCCESS)
    *out_host = host;
  else
    (void)munmap(base, mapped);
  return code;
}

/* Where the driver or the system does not support that, the driver makes the memory, and the word
   for the mapping's end is NULL. */
static CUresult gmlk_cuda_pin(const gmlk_cuda *cuda, size_t bytes, void **out_host) {
  const size_t head = 4096; /* a page, so that host memory is aligned as ever */
  void *base = NULL, **host;
  CUresult code;
  if (bytes > SIZE_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  code = gmlk_cuda_pin_mapped(cuda, bytes, out_host);
  if (code != CUDA_ERROR_NOT_SUPPORTED && code != CUDA_ERROR_NOT_PERMITTED) return code;
  code = cuda->fn.MemHostAlloc(&base, head + bytes, 0);
  if (code != CUDA_SUCCESS) return code;
  host = (void **)(void *)((char *)base + head);
  host[-1] = base;
  host[-2] = NULL;
  *out_host = host;
  return code;
}

static CUresult gmlk_cuda_unpin(const gmlk_cuda *cuda, void *host) {
  char *base = (char *)((void **)host)[-1], *end = (char *)((void **)host)[-2];
  CUresult code;
  if (!end) return cuda->fn.MemFreeHost(base);
  code = cuda->fn.MemHostUnregister(host);
  if (code == CUDA_SUCCESS) (void)munmap(base, (size_t)(end - base));
  return code;
}

#else

static CUresult gmlk_cuda_pin(const gmlk_cuda *cuda, size_t bytes, void **out_host) {
  return cuda->fn.MemHostAlloc(out_host, bytes, 0);
}
static CUresult gmlk_cuda_unpin(const gmlk_cuda *cuda, void *host) {
  return cuda->fn.MemFreeHost(host);
}

#endif

static gmlake_result gmlk_cuda_host_alloc(void *user, size_t bytes, void **out_host,
                                          int *out_code) {
  gmlk_cuda_call call;
  gmlake_result result;
  void *host = NULL;
  if (gmlk_cuda_enter(user, &call)) {
    call.code = gmlk_cuda_pin(call.cuda, bytes, &host);
    if (call.code == CUDA_SUCCESS) *out_host = host;
  }
  result = gmlk_cuda_leave(&call, out_code);
  return result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY ? GMLAKE_ERROR_OUT_OF_HOST_MEMORY : result;
}

static gmlake_result gmlk_cuda_host_free(void *user, void *host, int *out_code) {
  gmlk_cuda_call call;
  if (gmlk_cuda_enter(user, &call)) call.code = gmlk_cuda_unpin(call.cuda, host);
  return gmlk_cuda_leave(&call, out_code);
}

/* The mode belongs to the thread, not to a context, so none is made current. */
static gmlake_result gmlk_cuda_capture_exchange(void *user, int *mode, int *out_code) {
  const gmlk_cuda *cuda = (const gmlk_cuda *)user;
  CUstreamCaptureMode exchanged = (CUstreamCaptureMode)*mode;
  CUresult code;
  *out_code = 0;
  if (gmlk_process_is_forked(&cuda->process)) return GMLAKE_ERROR_FORKED;
  code = cuda->fn.ThreadExchangeStreamCaptureMode(&exchanged);
  *out_code = (int)code;
  if (code == CUDA_SUCCESS) *mode = (int)exchanged;
  return gmlk_cuda_result(code);
}

static uint64_t gmlk_cuda_clock_ns(void *user) {
#if defined(_WIN32)
  LARGE_INTEGER ticks, rate;
  (void)user;
  QueryPerformanceCounter(&ticks);
  QueryPerformanceFrequency(&rate);
  return (uint64_t)((double)ticks.QuadPart / (double)rate.QuadPart * 1e9);
#else
  struct timespec now;
  (void)user;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

static const gmlake_backend gmlk_cuda_backend = GMLK_BACKEND_TABLE(gmlk_cuda);

/* ---- Create and destroy ---- */

/* The attribute's value; 0 also where the driver does not know it. */
static int gmlk_cuda_attribute(const gmlk_cuda *cuda, int attribute) {
  int value = 0;
  const CUresult code =
      cuda->fn.DeviceGetAttribute(&value, (CUdevice_attribute)attribute, cuda->device);
  return code == CUDA_SUCCESS ? value : 0;
}

/* Opens the device and reads its properties. On success the primary context is retained. */
static gmlake_result gmlk_cuda_open_device(gmlk_cuda *cuda, int ordinal) {
  gmlake_device_properties *properties = &cuda->properties;
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop;
  CUresult code = cuda->fn.Init(0);
  if (code == CUDA_SUCCESS) code = cuda->fn.DeviceGet(&cuda->device, ordinal);
  if (code == CUDA_SUCCESS && !gmlk_cuda_attribute(cuda, GMLK_CUDA_ATTRIBUTE_VMM))
    return GMLAKE_ERROR_UNSUPPORTED;
  if (code == CUDA_SUCCESS) code = cuda->fn.DevicePrimaryCtxRetain(&cuda->context, cuda->device);
  if (code != CUDA_SUCCESS) return gmlk_backend_result(gmlk_cuda_result(code));
  code = cuda->fn.DeviceGetName(properties->name, (int)sizeof(properties->name) - 1, cuda->device);
  if (code == CUDA_SUCCESS) code = cuda->fn.DeviceTotalMem(&properties->device_bytes, cuda->device);
  if (code == CUDA_SUCCESS) code = cuda->fn.DeviceGetCount(&properties->device_count);
  if (code == CUDA_SUCCESS) {
    cuda->rdma_capable = gmlk_cuda_attribute(cuda, GMLK_CUDA_ATTRIBUTE_RDMA_WITH_VMM) ? 1 : 0;
    properties->is_integrated = gmlk_cuda_attribute(cuda, GMLK_CUDA_ATTRIBUTE_INTEGRATED) != 0;
    prop = gmlk_cuda_prop(cuda, 0);
    code = cuda->fn.MemGetAllocationGranularity(&properties->granularity_bytes, &prop,
                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  }
  properties->device = ordinal;
  if (code == CUDA_SUCCESS && gmlk_cuda_attribute(cuda, GMLK_CUDA_ATTRIBUTE_POSIX_FD))
    properties->handle_types = GMLAKE_HANDLE_POSIX_FD;
  /* A device refuses fabric handles to a process that may not share them; only trying tells. Win32
     handles are not offered, as they need a security descriptor of the program's. */
  prop = gmlk_cuda_prop(cuda, GMLAKE_HANDLE_FABRIC);
  if (code == CUDA_SUCCESS && gmlk_cuda_attribute(cuda, GMLK_CUDA_ATTRIBUTE_FABRIC) &&
      cuda->fn.MemCreate(&handle, properties->granularity_bytes, &prop, 0) == CUDA_SUCCESS) {
    (void)cuda->fn.MemRelease(handle);
    properties->handle_types |= GMLAKE_HANDLE_FABRIC;
  }
  if (code != CUDA_SUCCESS) (void)cuda->fn.DevicePrimaryCtxRelease(cuda->device);
  return gmlk_backend_result(gmlk_cuda_result(code));
}

GMLAKE_DEF gmlake_result gmlake_cuda_create(int device, gmlake_backend **out_backend) {
  gmlk_cuda *cuda;
  gmlake_result result;
  if (!out_backend) return GMLAKE_ERROR_INVALID_ARGUMENT;
  *out_backend = NULL;
  cuda = (gmlk_cuda *)GMLAKE_MALLOC(sizeof(*cuda));
  if (!cuda) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  memset(cuda, 0, sizeof(*cuda));
  gmlk_process_init(&cuda->process);
  result = gmlk_cuda_load(&cuda->fn);
  if (result == GMLAKE_OK) result = gmlk_cuda_open_device(cuda, device);
  if (result != GMLAKE_OK) {
    gmlk_process_destroy(&cuda->process);
    GMLAKE_FREE(cuda);
    return result;
  }
  cuda->table = gmlk_cuda_backend;
  cuda->table.user = cuda;
  (void)GMLAKE_MUTEX_INIT(&cuda->mutex);
  if (!cuda->fn.StreamGetId) cuda->table.stream_id = NULL;
  *out_backend = &cuda->table;
  return GMLAKE_OK;
}

GMLAKE_DEF void gmlake_cuda_destroy(gmlake_backend *backend) {
  gmlk_cuda *cuda;
  gmlk_cuda_call call;
  int code;
  if (!backend) return;
  cuda = (gmlk_cuda *)backend->user;
  if ((cuda->copiers[0] || cuda->copiers[1]) && gmlk_cuda_enter(cuda, &call)) {
    if (cuda->copiers[0]) (void)cuda->fn.StreamDestroy(cuda->copiers[0]);
    if (cuda->copiers[1]) (void)cuda->fn.StreamDestroy(cuda->copiers[1]);
    (void)gmlk_cuda_leave(&call, &code);
  }
  (void)GMLAKE_MUTEX_DESTROY(&cuda->mutex);
  /* At exit the driver may be gone and refuse; then there is nothing left to release. */
  if (!gmlk_process_is_forked(&cuda->process)) (void)cuda->fn.DevicePrimaryCtxRelease(cuda->device);
  gmlk_process_destroy(&cuda->process);
  GMLAKE_FREE(cuda);
}

#endif /* GMLAKE_BACKEND_CUDA */

/* ---- >>entry -----------------------------------------------------------------------------------
   How every public function begins and ends. gmlk_enter turns away callers that may not call now,
   and locks. gmlk_leave unlocks, and then hands the queued messages to the logger. The section also
   refuses wrong arguments, and calls the out-of-memory handler. At its end stand gmlake_alloc,
   gmlake_alloc_with and gmlake_free, so that who follows an allocation need not go to >>api. Owns
   nothing.

   [Y1] The user's logger and out-of-memory handler run with no lock held.
   [Y2] A call that is turned away, or refused, changes nothing but the last error.

   O(1), but a thread may wait for a lock. Can fail: gmlk_enter and its like. Then no lock is held,
   and the public function returns that error. */

#define GMLK_POLICY_CALLS "called from one of the policy's functions: return from it first"

/* Goes on entering while the lake is restricted: the device is lost, or a callback of the user's
   runs. `lost`: what the call answers if the device is lost. pre: state_lock is held. */
static gmlake_result gmlk_enter_restricted(gmlake *l, gmlake_result lost) {
  gmlake_result result = lost;
  if (!result && gmlk_in_callback(l, 1))
    result = gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "policy", GMLK_POLICY_CALLS);
  if (result) gmlk_spinlock_unlock(&l->state_lock, l->has_locks);
  return result;
}

/* Refuses callers that must not wait for state_lock: a child of fork, as its copy of the lock may
   be locked for good; and the thread that runs the observer or the host allocator, as it holds
   it. */
static gmlake_result gmlk_turn_away(gmlake *l) {
  if (gmlk_process_is_forked(&l->process)) return GMLAKE_ERROR_FORKED;
  if (!gmlk_is_in_callback(&l->host)) return GMLAKE_OK;
  return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_desc",
                   "called from the observer or the host allocator: return from it first");
}

enum { /* what a call does with the lake: it serves or changes memory, or it only asks */
       GMLK_ASKS,
       GMLK_CHANGES
};

/* Takes state_lock. */
static inline gmlake_result gmlk_enter(gmlake *l, int does) {
  gmlake_result result;
  if (!l) return GMLAKE_ERROR_INVALID_ARGUMENT;
  result = l->fork_guard && *l->fork_guard ? GMLAKE_OK : gmlk_turn_away(l);
  if (result) return result;
  gmlk_spinlock_lock(&l->state_lock, l->has_locks);
  return does && l->is_restricted ? gmlk_enter_restricted(l, l->lost) : GMLAKE_OK;
}

/* Releases state_lock, then hands the queued messages to the logger. If the device was lost during
   the call, a DRIVER error becomes that loss. Says what lacks on the host, unless the last error
   tells already what lacked there. */
static gmlake_result gmlk_leave_with_news(gmlake *l, gmlake_result result) {
  const gmlake_result no_memory = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  gmlk_message messages[GMLK_LOG_QUEUE];
  unsigned count = 0, i;
  if (!gmlk_in_callback(l, 1)) { /* else driver_lock is held; the call around it hands them over */
    count = l->log.count;
    if (count) memcpy(messages, l->log.messages, count * sizeof(*messages));
    l->log.count = 0;
  }
  if (result == GMLAKE_ERROR_DRIVER && l->lost) result = l->lost;
  if (result == no_memory && l->host.refused_bytes)
    (void)gmlk_fail(l, result, "malloc",
                    "the host has no %llu bytes for the lake's records: free host memory",
                    GMLK_ULL(l->host.refused_bytes));
  else if (result == no_memory && l->error.result != result)
    (void)gmlk_fail(l, result, "malloc",
                    "no number is left for another stream: call gmlake_forget_stream for those "
                    "that are gone");
  if (result == no_memory) l->host.refused_bytes = 0;
  gmlk_spinlock_unlock(&l->state_lock, l->has_locks);
  for (i = 0; i < count; i++)
    l->desc.logger.fn(l->desc.logger.user, messages[i].level, &messages[i].info);
  return result;
}

static inline gmlake_result gmlk_leave(gmlake *l, gmlake_result result) {
  if (result || l->log.count) return gmlk_leave_with_news(l, result);
  gmlk_spinlock_unlock(&l->state_lock, l->has_locks);
  return GMLAKE_OK;
}

static gmlake_result gmlk_leave_driver(gmlake *l, gmlake_result result) {
  gmlk_unlock_driver(l);
  return gmlk_leave(l, result);
}

/* Takes both locks, for a call that drives the device, which the call before it may have lost.
   taking: its name, if it may take memory, so that no callback may make it; else NULL. */
static gmlake_result gmlk_enter_driver(gmlake *l, const char *taking) {
  gmlake_result result = gmlk_enter(l, GMLK_CHANGES);
  if (result) return result;
  gmlk_lock_driver(l);
  gmlk_captures_end(l, 0);
  result = l->lost;
  if (!result && taking && l->is_restricted) result = gmlk_forbid_in_callback(l, taking);
  return result ? gmlk_leave_driver(l, result) : GMLAKE_OK;
}

/* Takes both locks for a call that only asks. A policy may not: its caller has `driver_lock`. */
static gmlake_result gmlk_enter_to_ask(gmlake *l) {
  gmlake_result result = gmlk_enter(l, GMLK_ASKS);
  if (!result && l->is_restricted) result = gmlk_enter_restricted(l, GMLAKE_OK);
  if (!result) gmlk_lock_driver(l);
  return result;
}

/* Returns INVALID_ARGUMENT, and makes the text the last error. */
GMLK_LIKE_PRINTF(3)
static gmlake_result gmlk_refuse(gmlake *l, const char *call, const char *format, ...) {
  gmlake_result result = gmlk_enter(l, GMLK_ASKS);
  va_list values;
  if (result) return result; /* with l NULL there is nowhere to say why */
  va_start(values, format);
  gmlk_error_write(l, GMLAKE_ERROR_INVALID_ARGUMENT, call, format, values);
  va_end(values);
  gmlk_spinlock_unlock(&l->state_lock, l->has_locks);
  return GMLAKE_ERROR_INVALID_ARGUMENT;
}

/* The functions gmlk_need_... return OK, or refuse an argument. */
static inline gmlake_result gmlk_need(gmlake *l, const char *call, const void *argument,
                                      const char *name) {
  return l && argument ? GMLAKE_OK : gmlk_refuse(l, call, "%s is NULL", name);
}

static gmlake_result gmlk_need_own(gmlake *l, const char *call, const char *what,
                                   const gmlake *owner) {
  if (!l || gmlk_is_of(l, owner)) return l ? GMLAKE_OK : GMLAKE_ERROR_INVALID_ARGUMENT;
  return gmlk_refuse(l, call, "the %s belongs to another lake, the one at %p: call that lake", what,
                     (const void *)owner);
}

/* pool: NULL is all that is in no pool. */
static gmlake_result gmlk_need_pool(gmlake *l, const char *call, const gmlake_pool *pool) {
  return gmlk_need_own(l, call, "pool", pool ? pool->lake : l);
}

static gmlake_result gmlk_need_buffer(gmlake *l, const char *call, const gmlake_buffer *b) {
  gmlake_result result = gmlk_need(l, call, b, "buffer");
  return result ? result : gmlk_need_own(l, call, "buffer", b->lake);
}

/* pre: the call does not take this stream. */
static gmlake_result gmlk_refuse_stream(gmlake *l, const char *call, gmlake_stream stream) {
  if (stream == GMLAKE_STREAM_NONE)
    return gmlk_refuse(l, call, "stream is GMLAKE_STREAM_NONE: pass the stream that is meant");
  if ((uintptr_t)stream == GMLK_VALUE_PER_THREAD)
    return gmlk_refuse(l, call,
                       "stream is 2, the per-thread default stream, which is another stream in "
                       "each thread: create a stream and pass it");
  return gmlk_refuse(l, call,
                     "stream is %p, the legacy stream, which no driver captures: pass another one",
                     (void *)stream);
}

/* For calls that mean one stream, or with takes_none perhaps none. */
static inline gmlake_result gmlk_need_stream(gmlake *l, const char *call, gmlake_stream stream,
                                             int takes_none) {
  if (l && (uintptr_t)stream != GMLK_VALUE_PER_THREAD &&
      (takes_none || stream != GMLAKE_STREAM_NONE))
    return GMLAKE_OK;
  return gmlk_refuse_stream(l, call, stream);
}

/* For calls that mean a pool and a stream. */
static gmlake_result gmlk_need_both(gmlake *l, const char *call, const gmlake_pool *pool,
                                    gmlake_stream stream) {
  gmlake_result result = gmlk_need(l, call, pool, "pool");
  if (!result) result = gmlk_need_pool(l, call, pool);
  return result ? result : gmlk_need_stream(l, call, stream, 0);
}

typedef struct gmlk_array { /* an array that the caller wants filled */
  const char *call, *name;
  const void *out;
  size_t capacity;
  size_t *out_count;
} gmlk_array;

/* Refuses NULL for out_count, and for an array that has a capacity. */
static gmlake_result gmlk_need_array(gmlake *l, const gmlk_array *array) {
  gmlake_result result = gmlk_need(l, array->call, array->out_count, "out_count");
  if (result || array->out || !array->capacity) return result;
  return gmlk_refuse(l, array->call,
                     "%s is NULL and capacity is %llu: pass an array, or capacity 0", array->name,
                     GMLK_ULL(array->capacity));
}

#define GMLK_OOM_TRIES 8u /* times that a call asks the handler, see gmlake_oom_handler */

/* Leaves the call. After a shortage it asks the user's handler to make room, with no lock held.
   Returns whether to try again. pool: that the call goes on to use. */
static int gmlk_leave_short(gmlake *l, const gmlake_pool *pool, gmlake_result *result,
                            unsigned tries) {
  const int asks = l->desc.oom.fn && gmlk_is_shortage(*result);
  const gmlake_error_info info = l->error;
  gmlk_callback callback;
  int again = 0;
  *result = gmlk_leave(l, *result);
  if (!asks) return 0;
  gmlk_spinlock_lock(&l->state_lock, l->has_locks);
  if (tries < GMLK_OOM_TRIES) {
    gmlk_callback_begin(l, &callback, 0, pool);
    again = l->desc.oom.fn(l->desc.oom.user, l, &info);
    gmlk_callback_end(l, &callback);
  }
  if (!again) gmlk_error_set(l, &info); /* calls of the handler may have left another error */
  gmlk_spinlock_unlock(&l->state_lock, l->has_locks);
  return again;
}

/* ---- alloc and free ---- */

GMLAKE_DEF gmlake_result gmlake_alloc_with(gmlake *l, const gmlake_alloc_desc *desc,
                                           gmlake_stream stream, void **out_ptr) {
  const char *call = "gmlake_alloc";
  gmlake_result result;
  unsigned tries = 0;
  if (!out_ptr) return gmlk_need(l, call, NULL, "out_ptr");
  *out_ptr = NULL;
  if (!desc) return gmlk_need(l, call, NULL, "desc");
  if (!l || (uintptr_t)stream == GMLK_VALUE_PER_THREAD) return gmlk_refuse_stream(l, call, stream);
  do {
    result = gmlk_enter(l, GMLK_CHANGES);
    if (result) return result;
    if (l->is_restricted) result = gmlk_forbid_in_callback(l, call);
    if (!result && desc->bytes) {
      if (desc->flags & GMLAKE_TRANSIENT)
        result = gmlk_serve_transient(l, desc, stream, out_ptr);
      else
        result = gmlk_serve(l, desc, stream, 0, out_ptr);
    }
    if (!result) return gmlk_leave(l, GMLAKE_OK);
  } while (gmlk_leave_short(l, desc->pool, &result, tries++));
  return result;
}

GMLAKE_DEF gmlake_result gmlake_alloc(gmlake *l, size_t bytes, gmlake_stream stream,
                                      void **out_ptr) {
  gmlake_alloc_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.bytes = bytes;
  return gmlake_alloc_with(l, &desc, stream, out_ptr);
}

GMLAKE_DEF gmlake_result gmlake_free(gmlake *l, void *ptr, gmlake_stream stream) {
  const uint64_t address = (uint64_t)(uintptr_t)ptr;
  size_t released = 0, returns;
  gmlake_result result;
  if (!l || (uintptr_t)stream == GMLK_VALUE_PER_THREAD)
    return gmlk_refuse_stream(l, "gmlake_free", stream);
  if (!ptr) return GMLAKE_OK;
  result = gmlk_enter(l, GMLK_CHANGES);
  if (result) return result == GMLAKE_ERROR_FORKED ? GMLAKE_OK : result;
  returns = l->return_count;
  result = l->is_watched ? gmlk_free_watched(l, address, stream) : gmlk_free(l, address, stream);
  if (l->return_count == returns) return gmlk_leave(l, result);
  gmlk_lock_driver(l);
  if (!l->lost) (void)gmlk_release_all(l, 0, &released);
  return gmlk_leave_driver(l, result);
}

/* ---- >>life ------------------------------------------------------------------------------------
   Creates and destroys lakes: checks the description, opens the backend, and in the end gives
   everything back, whatever fails. Owns the backend that a lake made for itself.
   Costs: to create O(1), to destroy O(everything the lake has), and the driver's. Can fail: an
   illegal description, host memory, the driver. */

/* Checks what does not depend on the device. */
static gmlake_result gmlk_desc_check(gmlake *l) {
  const gmlake_desc *d = &l->desc;
  const gmlake_backend *b = d->backend;
  const int is_whole = /* it has all but what a backend may lack */
      !b ||
      (b->struct_bytes >= offsetof(gmlake_backend, stream_id) && b->get_properties &&
       b->get_memory_info && b->reserve && b->unreserve && b->create && b->release && b->map &&
       b->unmap && b->set_access && b->event_create && b->event_destroy && b->event_record &&
       b->event_query && b->event_wait && b->stream_wait && b->capture_exchange && b->clock_ns);
  const struct {
    int is_wrong;
    const char *field;
    size_t value;
    const char *legal;
  } rows[] = {
      {(d->flags & ~GMLK_FLAGS) != 0, "flags", d->flags, "use only bits of 11"},
      {(d->handle_types & ~GMLK_HANDLES) != 0, "handle_types", d->handle_types,
       "use only bits of 11"},
      {(unsigned)d->cross_stream > GMLAKE_WAIT_FIRST, "cross_stream", (unsigned)d->cross_stream,
       "set it to GMLAKE_GROW_FIRST (0) or GMLAKE_WAIT_FIRST (1)"},
      {d->policy && d->policy->struct_bytes != sizeof(gmlake_policy), "policy->struct_bytes",
       d->policy ? d->policy->struct_bytes : 0, "it has to be sizeof(gmlake_policy)"},
      {!d->peer_count != !d->peer_devices || d->peer_count > GMLK_PEERS_MAX, "peer_count",
       d->peer_count, "set peer_devices, too, or neither; 64 peers at most"},
      {!is_whole, "backend->struct_bytes", b ? b->struct_bytes : 0,
       "it has to be sizeof(gmlake_backend); only functions behind clock_ns may be NULL"},
      {b && b->abi_version - 1 >= GMLAKE_BACKEND_ABI, "backend->abi_version",
       b ? b->abi_version : 0, "it has to be GMLAKE_BACKEND_ABI, or less and not 0"},
      {!d->host.malloc_fn != !d->host.free_fn, d->host.free_fn ? "host.malloc_fn" : "host.free_fn",
       0, "set both functions, or neither"}};
  size_t i;
  for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
    if (rows[i].is_wrong)
      return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_create", "%s is %llu: %s",
                       rows[i].field, GMLK_ULL(rows[i].value), rows[i].legal);
  return GMLAKE_OK;
}

/* Checks peer_devices. A backend that does not tell how many devices there are has a count of 0. */
static gmlake_result gmlk_desc_check_peers(gmlake *l) {
  const gmlake_desc *d = &l->desc;
  const int count = l->device.device_count, last = count ? count - 1 : INT_MAX;
  unsigned i, n;
  for (i = 0; i < d->peer_count; i++) {
    const int peer = d->peer_devices[i];
    const int is_own = count ? peer == l->device.device : !d->backend && peer == d->device;
    for (n = 0; d->peer_devices[n] != peer;) n++;
    if (is_own || peer < 0 || peer > last || n < i)
      return gmlk_fail(
          l, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_create",
          "peer_devices[%u] is %d: name other devices than the lake's, from 0 to %d, each once", i,
          peer, last);
  }
  return GMLAKE_OK;
}

/* Opens the backend, and says why the lake's own could not be created. */
static gmlake_result gmlk_backend_open(gmlake *l) {
  static const struct {
    gmlake_result result;
    const char *why;
  } rows[] = {
      {GMLAKE_ERROR_NO_DRIVER,
       "the CUDA driver's library cannot be opened: is the driver installed?"},
      {GMLAKE_ERROR_NO_DEVICE, "there is no device of this number"},
      {GMLAKE_ERROR_UNSUPPORTED, "the device or its driver has no virtual memory management"},
      {GMLAKE_ERROR_FORKED,
       "cuInit says: not initialised, as in a child of fork after its parent's first CUDA call"},
      {GMLAKE_ERROR_OUT_OF_HOST_MEMORY,
       "no host memory, or a mock whose file a limit forbids: raise it (ulimit -n, ulimit -f)"},
      {GMLAKE_OK, "the device cannot be opened"}};
  gmlk_driver *driver = &l->driver;
  gmlake_result result = GMLAKE_OK;
  size_t i = 0;
  driver->backend = l->desc.backend;
  if (!driver->backend) {
#if defined(GMLAKE_BACKEND_CUDA)
    result = gmlake_cuda_create(l->desc.device, &driver->owned);
#else
    result = l->desc.device ? GMLAKE_ERROR_NO_DEVICE : gmlake_mock_create(NULL, &driver->owned);
#endif
    driver->backend = driver->owned;
  }
  if (!result) return GMLAKE_OK;
  while (rows[i].result && rows[i].result != result) i++;
  return gmlk_fail(l, result, "gmlake_create", "device %d: %s", l->desc.device, rows[i].why);
}

/* Checks what depends on the device, and fills in defaults. A chunk is 1/8192 of the device's
   memory, from 2 to 32 MiB. On an integrated device it is 2 MiB: what is free in a chunk is lost to
   the host. Address space is reserved where it is needed: the arena may have 8 times the device's
   memory, and windows 32 times. */
static gmlake_result gmlk_desc_default(gmlake *l) {
  const char *call = "gmlake_create";
  const gmlake_device_properties *device = &l->device;
  gmlake_desc *d = &l->desc;
  size_t total = device->device_bytes, chunk = (size_t)1 << gmlk_log2(total / 8192 | 1);
  gmlake_result result;
  if (device->is_integrated) chunk = 0;
  if (!d->chunk_bytes)
    d->chunk_bytes =
        gmlk_max(gmlk_min(gmlk_max(chunk, 2 * GMLK_MIB), 32 * GMLK_MIB), device->granularity_bytes);
  chunk = d->chunk_bytes;
  result = gmlk_chunk_check(l, chunk, call);
  if (result) return result;
  if (d->handle_types & ~device->handle_types)
    return gmlk_fail(l, GMLAKE_ERROR_UNSUPPORTED, call,
                     "handle_types is 0x%x: this device exports 0x%x", d->handle_types,
                     device->handle_types);
  if ((d->flags & GMLAKE_FILL) && !device->is_host_memory)
    return gmlk_fail(l, GMLAKE_ERROR_UNSUPPORTED, call,
                     "flags has GMLAKE_FILL: the host cannot write this device's memory");
  if (!d->stitched_bytes_max) d->stitched_bytes_max = gmlk_min(total, SIZE_MAX / 4) * 4;
  if (!d->arena_bytes) d->arena_bytes = gmlk_min(total, SIZE_MAX / 8) * 8;
  if (!d->window_bytes) d->window_bytes = gmlk_min(total, SIZE_MAX / 32) * 32;
  if (d->arena_bytes >= chunk && d->window_bytes >= chunk) return gmlk_desc_check_peers(l);
  return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                   "%s is %llu: it has to hold a chunk at least, %llu, or be 0 for the default",
                   d->arena_bytes < chunk ? "arena_bytes" : "window_bytes",
                   GMLK_ULL(gmlk_min(d->arena_bytes, d->window_bytes)), GMLK_ULL(chunk));
}

/* Frees a lake's host memory. pre: gmlk_lake_drain has given the driver everything back, or the
   driver cannot be called any more. */
static void gmlk_lake_free(gmlake *l) {
  gmlk_host host;
  size_t i;
  for (i = 0; i < l->arena_count; i++) {
    gmlk_arena *a = l->arenas[i];
    if (a && a->pool)
      gmlk_pool_free(l, a->pool);
    else if (a)
      gmlk_arena_close(l, a);
  }
  while (l->released_pools) { /* the driver kept something of them */
    gmlake_pool *next = l->released_pools->next_released;
    gmlk_pool_free(l, l->released_pools);
    l->released_pools = next;
  }
  gmlk_host_free(&l->host, l->arenas, l->arena_capacity * sizeof(gmlk_arena *));
  gmlk_index_destroy(&l->index, &l->host);
  gmlk_host_free(&l->host, l->view.memory, l->view.bytes);
  gmlk_records_destroy(&l->records, &l->host);
#if defined(GMLAKE_BACKEND_CUDA)
  gmlake_cuda_destroy(l->driver.owned);
#else
  gmlake_mock_destroy(l->driver.owned);
#endif
  gmlk_process_destroy(&l->process);
  if (l->has_locks) gmlk_spinlock_destroy(&l->state_lock);
  if (l->has_locks) (void)GMLAKE_MUTEX_DESTROY(&l->driver_lock);
  if (l->has_locks) (void)GMLAKE_MUTEX_DESTROY(&l->turn);
  host = l->host; /* it lies in what it frees */
  gmlk_host_free(&host, l, sizeof(gmlake));
}

/* Gives everything that a lake has back to the driver, whatever fails; returns the first error. */
static gmlake_result gmlk_lake_drain(gmlake *l) {
  gmlk_batch batch;
  gmlake_pool *pool;
  gmlk_arena *a;
  (void)gmlk_batch_begin(l, &batch, 0);
  GMLK_FOR_ARENAS(l, a)
    if (batch.result != GMLAKE_ERROR_FORKED) gmlk_arena_drain(a, &batch, 1);
  for (pool = l->released_pools; pool && batch.result != GMLAKE_ERROR_FORKED;
       pool = pool->next_released)
    gmlk_arena_drain(&pool->arena, &batch, 1);
  gmlk_streams_destroy(&l->streams, &l->host, &batch, batch.result != GMLAKE_ERROR_FORKED);
  (void)gmlk_batch_end(l, &batch);
  return batch.result ? batch.result : batch.end_result;
}

/* Opens the backend, fills in the description and reserves address space. */
static gmlake_result gmlk_lake_init(gmlake *l) {
  const char *call = "gmlake_create";
  gmlake_result result = gmlk_desc_check(l);
  gmlk_batch batch;
  if (!result) result = gmlk_backend_open(l);
  if (result) return result;
  if (!gmlk_batch_begin(l, &batch, 0)) (void)GMLK_CALL(&batch, get_properties, &l->device);
  result = gmlk_batch_end(l, &batch);
  l->stats.driver_call_count = l->stats.driver_ns = 0; /* counted from here on */
  if (result) return result;
  if (!gmlk_is_pow2(l->device.granularity_bytes) || l->device.granularity_bytes < GMLK_GRAIN)
    return gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, call,
                     "the device's granularity is %llu: it has to be a power of two, at least 512",
                     GMLK_ULL(l->device.granularity_bytes));
  result = gmlk_desc_default(l);
  if (result) return result;
  l->desc.backend = l->driver.backend;
  l->driver.handle_types = l->desc.handle_types;
  l->streams.may_end = (l->desc.flags & GMLAKE_STREAMS_MAY_END) != 0;
  if (l->streams.may_end && !GMLK_HAS(&l->driver, stream_id))
    return gmlk_fail(l, GMLAKE_ERROR_UNSUPPORTED, call,
                     "flags has GMLAKE_STREAMS_MAY_END: the driver has no ids of streams (CUDA 12 "
                     "has); leave it out, and forget streams before they end");
  if (!gmlk_index_ensure(&l->index, &l->host) || !gmlk_arena_enlist(l, &l->home))
    return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  if (l->desc.peer_count) {
    l->driver.peer_count = l->desc.peer_count;
    memcpy(l->driver.peers, l->desc.peer_devices, l->desc.peer_count * sizeof(int));
    l->desc.peer_devices = l->driver.peers;
  }
  result =
      gmlk_arena_open(l, &l->home, l->desc.chunk_bytes, l->desc.arena_bytes, l->desc.window_bytes);
  l->desc.arena_bytes = l->home.area.most * l->desc.chunk_bytes;
  l->desc.window_bytes = l->home.window_space.area.most * l->desc.chunk_bytes;
  return result;
}

/* A lake that has neither backend nor memory yet; NULL: no host memory. */
static gmlake *gmlk_lake_new(const gmlake_desc *desc) {
  gmlk_host host;
  gmlake *l;
  memset(&host, 0, sizeof(host));
  if (!desc->host.malloc_fn == !desc->host.free_fn) host.hooks = desc->host;
  l = (gmlake *)gmlk_host_alloc(&host, sizeof(gmlake));
  if (!l) return NULL;
  l->host = host;
  l->desc = *desc;
  l->desc.out_error = NULL; /* only gmlake_create may write there */
  l->is_observed = desc->observer.fn != NULL;
  l->is_watched = l->is_observed || desc->policy;
  l->asks_first = desc->policy && (desc->policy->choose || desc->policy->evict);
  l->has_locks = !(desc->flags & GMLAKE_SINGLE_THREADED);
  gmlk_process_init(&l->process);
  if (!l->is_observed && !desc->host.malloc_fn) l->fork_guard = l->process.page;
  if (l->has_locks) (void)GMLAKE_MUTEX_INIT(&l->driver_lock);
  if (l->has_locks) (void)GMLAKE_MUTEX_INIT(&l->turn);
  if (l->has_locks) gmlk_spinlock_init(&l->state_lock);
  return l;
}

/* Tells the logger of every live block and buffer, or says without one how many there are. pre: no
   lock is held. */
static void gmlk_report_leaks(gmlake *l) {
  gmlk_map map = {NULL, 0, 0, l};
  const gmlk_arena *a;
  if (!l->desc.logger.fn && (l->index.count || l->stats.buffer_count)) {
    gmlake_error_info info;
    memset(&info, 0, sizeof(info));
    info.call = "gmlake_destroy";
    (void)snprintf(
        info.text, sizeof(info.text),
        "%llu blocks and %llu buffers, %llu bytes, were never freed: desc.logger is told "
        "which",
        GMLK_ULL(l->index.count), GMLK_ULL(l->stats.buffer_count), GMLK_ULL(l->stats.active_bytes));
    gmlk_say(&info);
  }
  if (!l->desc.logger.fn) return;
  GMLK_FOR_ARENAS(l, a) gmlk_map_arena(l, a, &map);
}

/* ---- >>api -------------------------------------------------------------------------------------
   The other public functions. Each checks its arguments, enters, calls one function of the sections
   above, or answers in a few lines itself, and leaves (>>entry). Owns nothing; costs and failures
   stand at the declarations. */

GMLAKE_DEF gmlake_result gmlake_query(gmlake *l, const gmlake_alloc_desc *desc,
                                      gmlake_stream stream, gmlake_query_info *out_info) {
  const char *call = "gmlake_query";
  gmlk_dry_run dry_run;
  unsigned has_none;
  gmlake_result result = gmlk_need(l, call, desc, "desc");
  if (!result) result = gmlk_need(l, call, out_info, "out_info");
  if (!result) result = gmlk_need_stream(l, call, stream, 1);
  if (!result) result = gmlk_enter_driver(l, NULL);
  if (result) return result;
  has_none = l->streams.has_none;
  memset(&dry_run, 0, sizeof(dry_run));
  result = gmlk_query_request(l, desc, stream, &dry_run);
  if (result == GMLAKE_ERROR_INVALID_ARGUMENT || result == GMLAKE_ERROR_CAPTURING ||
      result == GMLAKE_ERROR_ASLEEP)
    l->error.call = call;
  l->streams.has_none = has_none;
  if (result && !gmlk_is_shortage(result)) return gmlk_leave_driver(l, result);
  if (result) memset(&dry_run.answer, 0, sizeof(dry_run.answer));
  dry_run.answer.result = result;
  *out_info = dry_run.answer;
  return gmlk_leave_driver(l, GMLAKE_OK);
}

/* ---- streams ---- */

GMLAKE_DEF gmlake_result gmlake_record_stream(gmlake *l, void *ptr, gmlake_stream stream) {
  const char *call = "gmlake_record_stream";
  gmlk_block *b;
  unsigned number;
  size_t bytes;
  gmlake_result result = gmlk_need(l, call, ptr, "ptr");
  if (!result) result = gmlk_need_stream(l, call, stream, 0);
  if (!result) result = gmlk_enter(l, GMLK_CHANGES);
  if (result) return result;
  b = gmlk_live_block(l, ptr, call, &result);
  if (!b) return gmlk_leave(l, result);
  number = gmlk_stream_find_or_add(l, stream);
  if (!number || !gmlk_extra_add_use(l, b, number))
    return gmlk_leave(l, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  bytes = b->grains * GMLK_GRAIN;
  gmlk_tell_call(l, GMLAKE_STEP_USE, stream, (uint64_t)(uintptr_t)ptr, bytes, bytes - b->its.slack,
                 NULL, "the block is used on this stream, too");
  return gmlk_leave(l, GMLAKE_OK);
}

GMLAKE_DEF gmlake_result gmlake_mark_stream(gmlake *l, gmlake_stream stream,
                                            gmlake_stream_kind kind) {
  unsigned number;
  gmlake_result result = gmlk_need_stream(l, "gmlake_mark_stream", stream, 0);
  if (!result && (unsigned)kind > GMLAKE_STREAM_STAYS)
    result = gmlk_refuse(l, "gmlake_mark_stream",
                         "kind is %d: pass one of GMLAKE_STREAM_* (0 to 3)", (int)kind);
  if (!result) result = gmlk_enter(l, GMLK_CHANGES);
  if (result) return result;
  number = gmlk_stream_find_or_add(l, stream);
  if (!number) return gmlk_leave(l, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  if (kind == GMLAKE_STREAM_STAYS)
    l->streams.items[number]->may_end = 0;
  else
    l->streams.items[number]->kind = kind;
  return gmlk_leave(l, GMLAKE_OK);
}

GMLAKE_DEF gmlake_result gmlake_forget_stream(gmlake *l, gmlake_stream stream) {
  gmlake_result result = gmlk_need_stream(l, "gmlake_forget_stream", stream, 0);
  if (!result) result = gmlk_enter_driver(l, NULL);
  return result ? result : gmlk_leave_driver(l, gmlk_forget_stream(l, stream));
}

/* ---- questions ---- */

GMLAKE_DEF gmlake_result gmlake_find(gmlake *l, const void *address, gmlake_map_entry *out_info) {
  const uint64_t at = (uint64_t)(uintptr_t)address;
  gmlake_buffer *buffer = NULL;
  const gmlk_block *b;
  gmlake_result result = gmlk_need(l, "gmlake_find", out_info, "out_info");
  if (!result) result = gmlk_enter(l, GMLK_ASKS);
  if (result) return result;
  b = gmlk_index_get(&l->index, at);
  if (!b) b = gmlk_find_at(l, at, &buffer);
  if (b || buffer)
    *out_info = b ? gmlk_show_block(l, b) : gmlk_show_buffer(buffer);
  else
    result = gmlk_fail(l, GMLAKE_ERROR_UNKNOWN_POINTER, "gmlake_find",
                       "address is 0x%llx: no memory of this lake lies there", GMLK_ULL(at));
  return gmlk_leave(l, result);
}

GMLAKE_DEF gmlake_result gmlake_get_pieces(gmlake *l, const void *ptr, gmlake_piece *out_pieces,
                                           size_t capacity, size_t *out_count) {
  const gmlk_array array = {"gmlake_get_pieces", "out_pieces", out_pieces, capacity, out_count};
  const gmlk_piece *pieces;
  const gmlk_block *b;
  gmlk_piece whole;
  size_t i;
  gmlake_result result = gmlk_need(l, array.call, ptr, "ptr");
  if (!result) result = gmlk_need_array(l, &array);
  if (!result) result = gmlk_enter(l, GMLK_ASKS);
  if (result) return result;
  b = gmlk_live_block(l, ptr, array.call, &result);
  if (!b) return gmlk_leave(l, result);
  pieces = gmlk_pieces_of(b, &whole, out_count);
  for (i = 0; i < *out_count && i < capacity; i++) {
    out_pieces[i].home = (void *)(uintptr_t)gmlk_home(l->arenas[b->arena], pieces[i].at);
    out_pieces[i].bytes = pieces[i].grains * GMLK_GRAIN;
  }
  return gmlk_leave(l, GMLAKE_OK);
}

GMLAKE_DEF gmlake_result gmlake_get_chunks(gmlake *l, const void *ptr,
                                           gmlake_chunk_info *out_chunks, size_t capacity,
                                           size_t *out_count) {
  const gmlk_array array = {"gmlake_get_chunks", "out_chunks", out_chunks, capacity, out_count};
  gmlake_result result = gmlk_need(l, array.call, ptr, "ptr");
  if (!result) result = gmlk_need_array(l, &array);
  if (!result) result = gmlk_enter_to_ask(l);
  if (result) return result;
  result = gmlk_get_chunks(l, (uint64_t)(uintptr_t)ptr, out_chunks, capacity, out_count);
  return gmlk_leave_driver(l, result);
}

GMLAKE_DEF gmlake_result gmlake_get_map(gmlake *l, gmlake_map_entry *out_entries, size_t capacity,
                                        size_t *out_count) {
  const gmlk_array array = {"gmlake_get_map", "out_entries", out_entries, capacity, out_count};
  gmlk_map map = {out_entries, out_entries ? capacity : 0, 0, NULL};
  const gmlk_arena *a;
  gmlake_result result = gmlk_need_array(l, &array);
  if (!result) result = gmlk_enter_to_ask(l);
  if (result) return result;
  GMLK_FOR_ARENAS(l, a) gmlk_map_arena(l, a, &map);
  *out_count = map.count;
  return gmlk_leave_driver(l, GMLAKE_OK);
}

GMLAKE_DEF gmlake_result gmlake_get_stats(gmlake *l, gmlake_stats *out_stats) {
  gmlake_result result = gmlk_need(l, "gmlake_get_stats", out_stats, "out_stats");
  if (!result) result = gmlk_enter(l, GMLK_ASKS);
  if (result) return result;
  *out_stats = l->stats;
  out_stats->live_count = l->index.count;
  out_stats->free_count = out_stats->allocation_count - out_stats->live_count;
  out_stats->event_count = l->streams.record_count;
  out_stats->metadata_bytes = l->host.bytes;
  out_stats->metadata_bytes_peak = l->host.bytes_peak;
  return gmlk_leave(l, GMLAKE_OK);
}

GMLAKE_DEF gmlake_result gmlake_pool_get_stats(gmlake *l, gmlake_pool *pool,
                                               gmlake_stats *out_stats) {
  const gmlk_arena *a;
  gmlake_result result = gmlk_need_pool(l, "gmlake_pool_get_stats", pool);
  if (!result) result = gmlk_need(l, "gmlake_pool_get_stats", out_stats, "out_stats");
  if (!result) result = gmlk_enter_to_ask(l);
  if (result) return result;
  memset(out_stats, 0, sizeof(*out_stats));
  GMLK_FOR_ARENAS(l, a)
    if (gmlk_pool_told(a) == pool) gmlk_count_arena(a, out_stats);
  out_stats->reserved_bytes_peak = gmlk_pool_first_arena(l, pool)->backed_bytes_peak;
  return gmlk_leave_driver(l, GMLAKE_OK);
}

GMLAKE_DEF gmlake_result gmlake_reset_peaks(gmlake *l) {
  gmlk_arena *a;
  gmlake_result result = gmlk_enter(l, GMLK_ASKS);
  if (result) return result;
  (void)GMLK_PEAKS(GMLK_RESET_PEAK);
  GMLK_FOR_ARENAS(l, a) a->backed_bytes_peak = a->backed_bytes;
  l->host.bytes_peak = l->host.bytes;
  return gmlk_leave(l, GMLAKE_OK);
}

GMLAKE_DEF gmlake_result gmlake_get_budget(gmlake *l, gmlake_budget *out_budget) {
  gmlake_result result = gmlk_need(l, "gmlake_get_budget", out_budget, "out_budget");
  if (!result) result = gmlk_enter_driver(l, NULL);
  return result ? result : gmlk_leave_driver(l, gmlk_get_budget(l, out_budget));
}

/* A child of fork may not read the lake. The observer and the host allocator hold state_lock. */
GMLAKE_DEF gmlake_result gmlake_get_last_error(gmlake *l, gmlake_error_info *out_info) {
  gmlake_result result = gmlk_need(l, "gmlake_get_last_error", out_info, "out_info");
  int locks;
  if (result) return result;
  if (gmlk_process_is_forked(&l->process)) {
    memset(out_info, 0, sizeof(*out_info));
    out_info->result = GMLAKE_ERROR_FORKED;
    out_info->call = "fork";
    (void)snprintf(out_info->text, sizeof(out_info->text), "%s",
                   "this process is a child of fork, and the lake belongs to its parent: create a "
                   "lake of the child's own");
    return GMLAKE_OK;
  }
  locks = !gmlk_is_in_callback(&l->host);
  if (locks) gmlk_spinlock_lock(&l->state_lock, l->has_locks);
  *out_info = l->error;
  if (locks) gmlk_spinlock_unlock(&l->state_lock, l->has_locks);
  return GMLAKE_OK;
}

GMLAKE_DEF gmlake_result gmlake_get_desc(gmlake *l, gmlake_desc *out_desc) {
  gmlake_result result = gmlk_need(l, "gmlake_get_desc", out_desc, "out_desc");
  if (!result) *out_desc = l->desc;
  return result;
}

/* What waits to go is offered first, and free chunks go then; in the end host copies that keep
   nothing. Answers the first error. */
GMLAKE_DEF gmlake_result gmlake_trim(gmlake *l, size_t keep_bytes, size_t *out_released_bytes) {
  size_t released = 0;
  gmlake_result result = gmlk_enter_driver(l, NULL), trimmed, freed;
  if (!result) {
    result = gmlk_release_all(l, 1, &released);
    trimmed = gmlk_trim_arenas(l, keep_bytes, &released);
    freed = l->lost ? l->lost : gmlk_host_copies_free(l, 0);
    result = gmlk_leave_driver(l, result ? result : trimmed ? trimmed : freed);
  }
  if (out_released_bytes) *out_released_bytes = released;
  return result;
}

GMLAKE_DEF int gmlake_version(void) { return GMLAKE_VERSION; }

GMLAKE_DEF const char *gmlake_result_name(gmlake_result result) {
  static const char *const names[] = {"GMLAKE_OK",
                                      "GMLAKE_ERROR_INVALID_ARGUMENT",
                                      "GMLAKE_ERROR_OUT_OF_HOST_MEMORY",
                                      "GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY",
                                      "GMLAKE_ERROR_LIMIT_REACHED",
                                      "GMLAKE_ERROR_UNKNOWN_POINTER",
                                      "GMLAKE_ERROR_DOUBLE_FREE",
                                      "GMLAKE_ERROR_UNSUPPORTED",
                                      "GMLAKE_ERROR_NO_DRIVER",
                                      "GMLAKE_ERROR_NO_DEVICE",
                                      "GMLAKE_ERROR_DRIVER",
                                      "GMLAKE_ERROR_DEVICE_LOST",
                                      "GMLAKE_ERROR_CAPTURING",
                                      "GMLAKE_ERROR_FORKED",
                                      "GMLAKE_ERROR_SHUTTING_DOWN",
                                      "GMLAKE_ERROR_CORRUPT",
                                      "GMLAKE_ERROR_ASLEEP",
                                      "GMLAKE_ERROR_BUSY"};
  const size_t i = (size_t)(int)result;
  return i < sizeof(names) / sizeof(names[0]) ? names[i] : "unknown";
}

/* ---- several processes ---- */

GMLAKE_DEF gmlake_result gmlake_export(gmlake *l, const void *ptr, unsigned handle_type,
                                       gmlake_handle *out_handles, size_t capacity,
                                       size_t *out_count) {
  const gmlk_array array = {"gmlake_export", "out_handles", out_handles, capacity, out_count};
  gmlake_result result = gmlk_need(l, array.call, ptr, "ptr");
  if (!result) result = gmlk_need_array(l, &array);
  if (!result) result = gmlk_enter_driver(l, NULL);
  if (result) return result;
  result = gmlk_export(l, (uint64_t)(uintptr_t)ptr, handle_type, out_handles, capacity, out_count);
  return gmlk_leave_driver(l, result);
}

GMLAKE_DEF gmlake_result gmlake_import(gmlake *l, const gmlake_handle *handles, size_t count,
                                       void **out_ptr) {
  const char *call = "gmlake_import";
  gmlake_result result = gmlk_need(l, call, handles, "handles");
  if (!result) result = gmlk_need(l, call, out_ptr, "out_ptr");
  if (!result && !count) result = gmlk_refuse(l, call, "count is 0: pass one handle or more");
  if (!result) *out_ptr = NULL;
  if (!result) result = gmlk_enter_driver(l, call);
  return result ? result : gmlk_leave_driver(l, gmlk_import(l, handles, count, out_ptr));
}

/* ---- the first step ---- */

GMLAKE_DEF gmlake_result gmlake_reserve(gmlake *l, gmlake_pool *pool, size_t bytes,
                                        gmlake_stream stream) {
  const char *call = "gmlake_reserve";
  gmlake_result result = gmlk_need_pool(l, call, pool);
  if (!result) result = gmlk_need_stream(l, call, stream, 1);
  if (!result) result = gmlk_enter_driver(l, call);
  return result ? result : gmlk_leave_driver(l, gmlk_reserve(l, pool, bytes, stream));
}

GMLAKE_DEF gmlake_result gmlake_admit(gmlake *l, const gmlake_alloc_desc *requests, size_t count,
                                      gmlake_stream stream, size_t *out_lacking_bytes) {
  size_t lacking = 0;
  gmlake_result result = gmlk_need(l, "gmlake_admit", requests, "requests");
  if (!result) result = gmlk_need_stream(l, "gmlake_admit", stream, 1);
  if (!result) result = gmlk_enter_driver(l, "gmlake_admit");
  if (!result) result = gmlk_leave_driver(l, gmlk_admit(l, requests, count, stream, &lacking));
  if (out_lacking_bytes) *out_lacking_bytes = lacking;
  return result;
}

/* ---- pools and captures ---- */

GMLAKE_DEF gmlake_result gmlake_pool_create(gmlake *l, const gmlake_pool_desc *desc,
                                            gmlake_pool **out_pool) {
  gmlake_result result = gmlk_need(l, "gmlake_pool_create", out_pool, "out_pool");
  if (!result) result = gmlk_enter_driver(l, NULL);
  return result ? result : gmlk_leave_driver(l, gmlk_pool_create(l, desc, 0, NULL, out_pool));
}

GMLAKE_DEF gmlake_result gmlake_pool_destroy(gmlake *l, gmlake_pool *pool) {
  gmlake_result result = gmlk_need_pool(l, "gmlake_pool_destroy", pool);
  if (result || !pool) return result;
  result = gmlk_enter_driver(l, NULL);
  return result ? result : gmlk_leave_driver(l, gmlk_pool_destroy(l, pool));
}

GMLAKE_DEF gmlake_result gmlake_pool_sleep(gmlake *l, gmlake_pool *pool, gmlake_sleep_mode mode,
                                           size_t *out_released_bytes) {
  size_t released = 0;
  gmlake_result result = gmlk_need_pool(l, "gmlake_pool_sleep", pool);
  if (!result && mode != GMLAKE_SLEEP_DROP && mode != GMLAKE_SLEEP_KEEP)
    result =
        gmlk_refuse(l, "gmlake_pool_sleep",
                    "mode is %d: pass GMLAKE_SLEEP_DROP (0) or GMLAKE_SLEEP_KEEP (1)", (int)mode);
  if (!result) result = gmlk_enter_driver(l, NULL);
  if (!result)
    result = gmlk_leave_driver(l, gmlk_pool_sleep(l, pool, mode == GMLAKE_SLEEP_KEEP, &released));
  if (out_released_bytes) *out_released_bytes = released;
  return result;
}

GMLAKE_DEF gmlake_result gmlake_pool_wake(gmlake *l, gmlake_pool *pool) {
  unsigned tries = 0;
  gmlake_result result = gmlk_need_pool(l, "gmlake_pool_wake", pool);
  if (result) return result;
  do {
    result = gmlk_enter_driver(l, "gmlake_pool_wake");
    if (result) return result;
    result = gmlk_pool_wake(l, pool);
    gmlk_unlock_driver(l);
  } while (gmlk_leave_short(l, pool, &result, tries++));
  return result;
}

GMLAKE_DEF gmlake_result gmlake_pool_lend(gmlake *l, gmlake_pool *pool, gmlake_stream stream) {
  gmlake_result result = gmlk_need_both(l, "gmlake_pool_lend", pool, stream);
  if (!result) result = gmlk_enter_driver(l, NULL);
  return result ? result : gmlk_leave_driver(l, gmlk_pool_lend(l, pool, stream));
}

GMLAKE_DEF gmlake_result gmlake_pool_recall(gmlake *l, gmlake_pool *pool, gmlake_stream stream) {
  gmlake_result result = gmlk_need_both(l, "gmlake_pool_recall", pool, stream);
  if (!result) result = gmlk_enter_driver(l, NULL);
  return result ? result : gmlk_leave_driver(l, gmlk_pool_recall(l, pool, stream));
}

GMLAKE_DEF gmlake_result gmlake_capture_begin(gmlake *l, gmlake_stream stream, gmlake_pool *pool) {
  const char *call = "gmlake_capture_begin";
  gmlake_result result = gmlk_need_both(l, call, pool, stream);
  if (!result && !gmlk_stream_canonical(stream)) result = gmlk_refuse_stream(l, call, stream);
  if (!result) result = gmlk_enter(l, GMLK_CHANGES);
  return result ? result : gmlk_leave(l, gmlk_capture_begin(l, stream, pool));
}

GMLAKE_DEF gmlake_result gmlake_capture_end(gmlake *l, gmlake_stream stream) {
  unsigned number;
  gmlk_stream *s;
  gmlake_result result = gmlk_need_stream(l, "gmlake_capture_end", stream, 0);
  if (!result) result = gmlk_enter_driver(l, NULL);
  if (result) return result;
  number = gmlk_stream_find(&l->streams, stream);
  s = number ? l->streams.items[number] : NULL;
  if (s && s->has_ended) {
    s->has_ended = 0;
  } else if (s && s->capture) {
    gmlk_capture_close(l, number);
    result = l->lost;
  } else {
    result =
        gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_capture_end",
                  "stream is %p, which is not being captured: see gmlake_capture_begin", stream);
  }
  return gmlk_leave_driver(l, result);
}

/* ---- buffers ---- */

GMLAKE_DEF gmlake_result gmlake_buffer_create(gmlake *l, const gmlake_buffer_desc *desc,
                                              gmlake_buffer **out_buffer) {
  const char *call = "gmlake_buffer_create";
  gmlake_result result = gmlk_need(l, call, desc, "desc");
  if (!result) result = gmlk_need(l, call, out_buffer, "out_buffer");
  if (!result && !desc->max_bytes)
    result = gmlk_refuse(l, call, "max_bytes is 0: set it to the most bytes that it may have");
  if (!result) result = gmlk_need_pool(l, call, desc->pool);
  if (!result) result = gmlk_enter_driver(l, NULL);
  return result ? result : gmlk_leave_driver(l, gmlk_buffer_create(l, desc, out_buffer));
}

static gmlake_result gmlk_buffer_call(gmlake *l, gmlake_buffer *b, gmlk_change *change,
                                      gmlake_stream stream) {
  unsigned tries = 0;
  gmlake_result result = gmlk_need_buffer(l, change->call, b);
  if (!result) result = gmlk_need_stream(l, change->call, stream, 1);
  if (result) return result;
  do {
    result = gmlk_enter(l, GMLK_CHANGES);
    if (result) return result;
    result = gmlk_buffer_change(l, b, change, stream);
  } while (gmlk_leave_short(l, NULL, &result, tries++));
  return result;
}

GMLAKE_DEF gmlake_result gmlake_buffer_resize(gmlake *l, gmlake_buffer *b, size_t bytes,
                                              gmlake_stream stream) {
  gmlk_change change = {"gmlake_buffer_resize", GMLK_RESIZE, bytes, 0, NULL, 0, 0, 0, 0};
  return gmlk_buffer_call(l, b, &change, stream);
}

GMLAKE_DEF gmlake_result gmlake_buffer_commit(gmlake *l, gmlake_buffer *b, size_t offset,
                                              size_t bytes, uint32_t *chunks,
                                              gmlake_stream stream) {
  gmlk_change change = {"gmlake_buffer_commit", GMLK_COMMIT, offset, bytes, chunks, 0, 0, 0, 0};
  return gmlk_buffer_call(l, b, &change, stream);
}

GMLAKE_DEF gmlake_result gmlake_buffer_discard(gmlake *l, gmlake_buffer *b, size_t offset,
                                               size_t bytes, gmlake_stream stream) {
  gmlk_change change = {"gmlake_buffer_discard", GMLK_DISCARD, offset, bytes, NULL, 0, 0, 0, 0};
  return gmlk_buffer_call(l, b, &change, stream);
}

GMLAKE_DEF gmlake_result gmlake_buffer_destroy(gmlake *l, gmlake_buffer *b, gmlake_stream stream) {
  gmlk_change change = {"gmlake_buffer_destroy", GMLK_RESIZE, 0, 0, NULL, 0, 0, 0, 0};
  gmlake_result result = gmlk_need_stream(l, change.call, stream, 1);
  if (result || !b) return result;
  result = gmlk_need_buffer(l, change.call, b);
  if (!result) result = gmlk_enter(l, GMLK_CHANGES);
  if (result) return result;
  result = gmlk_buffer_change(l, b, &change, stream);
  if (result) return gmlk_leave(l, result);
  b->lake = NULL;
  b->arena->destroyed_count++;
  l->stats.buffer_count--;
  gmlk_tell_call(l, GMLAKE_STEP_END, stream, gmlk_buffer_address(b), 0, 0, b,
                 "a buffer was destroyed");
  return gmlk_leave(l, GMLAKE_OK);
}

GMLAKE_DEF gmlake_result gmlake_buffer_get_info(gmlake *l, gmlake_buffer *b,
                                                gmlake_buffer_info *out_info) {
  gmlake_result result = gmlk_need_buffer(l, "gmlake_buffer_get_info", b);
  if (!result) result = gmlk_need(l, "gmlake_buffer_get_info", out_info, "out_info");
  if (!result) result = gmlk_enter(l, GMLK_ASKS);
  if (result) return result;
  memset(out_info, 0, sizeof(*out_info));
  out_info->ptr = (void *)(uintptr_t)gmlk_buffer_address(b);
  out_info->bytes = b->bytes;
  out_info->committed_bytes = b->count * b->arena->chunk_bytes;
  out_info->max_bytes = b->max_bytes;
  out_info->chunk_bytes = b->arena->chunk_bytes;
  out_info->user_data = b->user_data;
  out_info->label = b->label;
  out_info->pool = b->arena->owner;
  return gmlk_leave(l, GMLAKE_OK);
}

/* ---- create and destroy ---- */

/* If it cannot, it tells desc->out_error and the logger why. */
GMLAKE_DEF gmlake_result gmlake_create(const gmlake_desc *desc, gmlake **out_lake) {
  const gmlake_result no_memory = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  gmlake_result result = no_memory;
  gmlake_error_info why;
  gmlake_desc zero;
  gmlake *l;
  memset(&zero, 0, sizeof(zero));
  memset(&why, 0, sizeof(why));
  if (!desc) desc = &zero;
  l = gmlk_lake_new(desc);
  if (l) {
    gmlk_spinlock_lock(&l->state_lock, l->has_locks);
    result = out_lake ? gmlk_lake_init(l)
                      : gmlk_fail(l, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_create",
                                  "out_lake is NULL: pass the address of a pointer");
    why = l->error;
    if (result) l->log.count = 0; /* the logger hears of the error alone */
    (void)gmlk_leave(l, GMLAKE_OK);
  }
  if (out_lake && !result) {
    *out_lake = l;
    return GMLAKE_OK;
  }
  if (l && l->driver.backend) (void)gmlk_lake_drain(l);
  if (l) gmlk_lake_free(l);
  if (result == no_memory && why.result != result) {
    why.result = result;
    why.call = "gmlake_create";
    (void)snprintf(why.text, sizeof(why.text), "the host has no memory for the lake's records");
  }
  if (desc->out_error) *desc->out_error = why;
  if (desc->logger.fn) desc->logger.fn(desc->logger.user, GMLAKE_LOG_ERROR, &why);
  return result;
}

/* Waits for the streams, then gives everything back. Answers the first error. */
GMLAKE_DEF gmlake_result gmlake_destroy(gmlake *l) {
  gmlake_result waited = GMLAKE_OK, freed, drained;
  if (!l) return GMLAKE_OK;
  freed = gmlk_turn_away(l);
  if (freed) return freed;
  gmlk_report_leaks(l);
  gmlk_spinlock_lock(&l->state_lock, l->has_locks);
  if (!l->lost) waited = gmlk_wait_for_all(l);
  if (waited == GMLAKE_ERROR_CAPTURING) waited = GMLAKE_OK; /* a capture cannot be waited for */
  freed = gmlk_host_copies_free(l, 1);
  if (!waited) waited = l->lost ? l->lost : freed;
  if (waited) l->log.count = 0; /* the result tells the same */
  (void)gmlk_leave(l, GMLAKE_OK);
  drained = gmlk_lake_drain(l);
  if (!waited) waited = l->lost;
  gmlk_lake_free(l);
  return waited ? waited : drained;
}

/* ---- >>check --------------------------------------------------------------------------------
   Looks for bugs of the lake itself: walks all that the lake reaches, recomputes what the other
   sections keep, and names the first invariant that does not hold, one of those sections or of
   these:

   [L1] the figures are what a walk counts, and no limit is exceeded.

   Each record is visited once, where its owner keeps it: blocks in the tiling of their arena,
   windows and buffers in that of their address space. Trees that have to find it are asked for it
   there. What is kept twice is added up and compared in the end, for all arenas together: how many
   stand in lists, trees and bins; how many own, use and map what, also as sums of the numbers of
   slots and streams.

   Links, sizes of tables, extents, what the caller asked for, and what flags, loans and sleep
   say of a record are believed: damage there may end the program before it is told. Of destroyed
   pools whose memory the driver did not take back only the chunks are counted; while there is
   one, [R1] is not looked at. Changes nothing. O(everything), and a search for what stands in
   trees. */

typedef struct gmlk_checker {
  const gmlake *l;
  const char *broken;       /* the first invariant found broken */
  gmlake_stats found;       /* [L1] what a walk can count of it */
  size_t records, returns;  /* [R1] blocks of all tilings; [N5] pending ones that are shared */
  const gmlk_arena *a;      /* the one that is looked at */
  gmlk_mapped found_mapped; /* by its aliases */
  size_t pending, queued;   /* [N1], [N4] in lists and queues, less blocks and uses */
  size_t listed;            /* what should stand in bins, trees and lists, less what does */
  uint64_t grains;          /* [A6] free memory, less the arenas' counts */
  size_t pieces;            /* [W4] blocks that are pieces, less live windows' pieces */
  uint64_t mapped;          /* [W6] slots of mappings, less what chunks count */
  uint64_t owned;           /* [B1] slots of committed pages, less those of blocks */
  uint64_t uses, captures;  /* [F7], [F5] streams of live blocks, arenas captured into, less what
                                   streams and pools count */
} gmlk_checker;

/* Returns whether everything has held so far. */
static int gmlk_expect(gmlk_checker *c, int holds, const char *invariant) {
  if (!holds && !c->broken) c->broken = invariant;
  return !c->broken;
}

/* A number in use: of a stream, forgotten or not, or, with is_capture, of a capture or loan. */
static gmlk_stream *gmlk_check_used(const gmlk_checker *c, unsigned number, int is_capture) {
  const gmlk_streams *all = &c->l->streams;
  gmlk_stream *s = number >= GMLK_FIRST_STREAM && number < all->count ? all->items[number] : NULL;
  return s && s->is_used && s->is_capture == is_capture ? s : NULL;
}

/* [F1], [F2], [F4], [F6], [N4] of one number. */
static void gmlk_check_stream(gmlk_checker *c, gmlk_stream *s, unsigned number) {
  const gmlk_link *link;
  uint64_t last = s->done, before = 0;
  unsigned i;
  gmlk_expect(c, last < s->epoch, "F1: epochs are out of order");
  for (i = 0; i < s->fence_count; i++) {
    const gmlk_fence *fence = &s->fences[i];
    const int is_between = fence->epoch > last && fence->epoch < s->epoch;
    gmlk_expect(c, fence->event && is_between, "F2: fences are out of order");
    last = fence->epoch;
  }
  gmlk_expect(c, s->is_dirty || last + 1 == s->epoch, "F4: an epoch has no fence");
  gmlk_expect(c, !s->waited || s->waited_epoch < c->l->streams.items[s->waited]->epoch,
              "F6: a wait is for an epoch to come");
  for (link = s->pending_uses.next; link != &s->pending_uses && !c->broken; link = link->next) {
    const gmlk_used *use = (const gmlk_used *)(const void *)link;
    gmlk_expect(c, use->stream == number && before <= use->epoch, "N4: a queue is out of order");
    before = use->epoch;
    c->queued++;
  }
  c->uses -= (uint64_t)s->uses * number;
}

/* [F5]. */
static void gmlk_check_streams(gmlk_checker *c) {
  const gmlk_streams *all = &c->l->streams;
  size_t named = all->live_count, used = all->used_count;
  size_t captured = all->capture_count, captures = captured + c->l->loan_count;
  unsigned i;
  for (i = GMLK_FIRST_STREAM; i < all->count; i++) {
    gmlk_stream *s = all->items[i];
    const gmlk_stream *capture = gmlk_check_used(c, s->capture, 1);
    const int is_named = gmlk_stream_is_named(s), is_stream = s->is_used && !s->is_capture;
    gmlk_check_stream(c, s, i);
    gmlk_expect(c, !s->capture || (is_named && capture && capture->value == s->value),
                "F5: a capture is another stream's");
    named -= (size_t)is_named;
    used -= is_stream && !(s->is_forgotten && gmlk_stream_is_complete(s));
    captured -= s->capture != 0;
    captures -= s->is_used && s->is_capture;
    if (s->capture) c->captures += s->arena;
  }
  gmlk_expect(c, !(named | used | captured | captures),
              "F5: a count of streams or captures is wrong");
}

/* A tag of memory that is free, or will be: [F1], [F4]. */
static void gmlk_check_tag(gmlk_checker *c, unsigned stream, uint64_t epoch, const char *text) {
  gmlk_stream *s = gmlk_check_used(c, stream, 0);
  if (stream == GMLK_CLEAN) return;
  if (stream == GMLK_GRAPH_OWNED || gmlk_check_used(c, stream, 1)) {
    gmlk_expect(c, epoch == GMLK_ENDLESS, text);
  } else if (!s) {
    gmlk_expect(c, 0, "F1: a tag names no stream");
  } else {
    gmlk_expect(c, epoch && epoch <= s->epoch, text);
    gmlk_expect(c, s->is_dirty || epoch <= s->done || gmlk_stream_covering(s, epoch),
                "F4: no fence is to cover a tag");
  }
}

/* [H1] to [H5]: what stands in bins is free memory of this tag and arena. Returns how many. */
static size_t gmlk_check_bins(gmlk_checker *c, const gmlk_bins *bins, unsigned stream,
                              uint32_t arena) {
  uint64_t grains = 0, words = 0;
  size_t count = 0;
  unsigned bin;
  for (bin = 0; bin < GMLK_BINS; bin++) {
    const gmlk_link *ring = &bins->rings[bin], *link = ring->next;
    const uint64_t bit = bins->bits[bin / 64u] >> (bin % 64u) & 1u;
    words |= bit << (bin / 64u);
    gmlk_expect(c, bit == (link != ring), "H2: a bin's bit is wrong");
    for (; link != ring && !c->broken; link = link->next, count++) {
      const gmlk_block *b = (const gmlk_block *)(const void *)link;
      const uint32_t hole = b->its.hole;
      gmlk_expect(c, gmlk_has_tag(b, stream) && b->arena == arena, "A3: bins have another's block");
      gmlk_expect(c, hole && gmlk_bin_of(hole) == bin, "H1: a block is in a wrong bin");
      gmlk_expect(c, hole - bins->none_from >= bins->none_count, "H5: a hole is said to be absent");
      grains += hole;
    }
  }
  gmlk_expect(c, words == bins->words && grains == bins->grains && count == bins->count,
              "H2, H4: a total of bins is wrong");
  return count;
}

/* How many blocks a search of a tree finds. */
static size_t gmlk_check_tree(gmlk_block *root) {
  const gmlk_block *b;
  size_t count = 0;
  for (b = gmlk_tree_from(root, 0, 0); b; b = gmlk_tree_from(root, b->at + 1, 0)) count++;
  return count;
}

/* [N1], [N4] of one block, and its part of [F7]. */
static void gmlk_check_extra(gmlk_checker *c, const gmlk_block *b) {
  const gmlk_extra *extra = b->as.extra;
  const int is_pending = b->state == GMLK_PENDING;
  size_t i, left = 0;
  gmlk_expect(c, extra ? extra->block == (is_pending ? b : NULL) : !is_pending,
              "N1: a pending block and its extra record differ");
  for (i = 0; extra && i < extra->used_count && !c->broken; i++) {
    const gmlk_used *use = &extra->used[i];
    if (!is_pending && gmlk_use_is_known(c->l, use)) c->uses += use->stream;
    if (!is_pending) continue;
    left += use->extra == extra;
    gmlk_check_tag(c, use->stream, use->epoch, "F1: a pending use is of an epoch to come");
    gmlk_expect(c, use->extra || gmlk_tag_done(&c->l->streams, use->stream, use->epoch),
                "N4: a pending use is in no queue");
  }
  if (!is_pending || c->broken) return;
  gmlk_check_tag(c, extra->stream, extra->epoch, "F1: a pending block is of an epoch to come");
  gmlk_expect(c, left == extra->uses_left && (left || extra->is_shared),
              "N4: a count of uses in queues is wrong");
  c->returns += (size_t)extra->is_shared;
  c->queued -= left;
  c->pending--;
}

/* A block of the user's. */
static void gmlk_check_owned(gmlk_checker *c, const gmlk_block *b, uint64_t address) {
  const int is_live = b->state == GMLK_LIVE;
  gmlk_expect(c, gmlk_index_get(&c->l->index, address) == (is_live ? b : NULL),
              "I1: the index is not of the live blocks");
  gmlk_check_extra(c, b);
  if (is_live && c->l->streams.may_end && gmlk_own_stream(c->l, b)) c->uses += b->stream;
}

/* What an alias maps and counts for; the tag of an idle one. */
static void gmlk_check_alias(gmlk_checker *c, const gmlk_alias *x) {
  uint32_t i, slot, left, chunks = 0;
  for (i = 0; (left = gmlk_alias_row(c->a, x, i, &slot)) != 0; i++)
    for (; left--; slot++, chunks++) c->mapped += slot + 1;
  gmlk_expect(c, chunks == x->chunk_count, "W2: a window maps more or fewer chunks");
  if (x->state == GMLK_ALIAS_IDLE)
    gmlk_check_tag(c, x->stream, x->epoch, "F1, B2: an alias's tag is of an epoch to come");
  gmlk_mapped_add(c->a, x, 1, &c->found_mapped);
}

/* [W1] to [W4]: pieces that lie in the arena and add up; those of a live window are its own. */
static void gmlk_check_pieces(gmlk_checker *c, const gmlk_window *w, int is_live) {
  const gmlk_arena *a = c->a;
  uint32_t i, grains = 0, end = 0;
  for (i = 0; i < w->piece_count; i++) {
    const gmlk_piece *s = &w->pieces[i];
    const gmlk_block *b = s->block;
    gmlk_expect(c, !i || !((s->at | end) & (a->chunk_grains - 1)), "W1: pieces meet in a chunk");
    end = s->at + s->grains;
    gmlk_expect(c, s->at < end && end <= a->end.at, "W2: a piece is not in the arena");
    gmlk_expect(c, !is_live || (b->as.window == w && b->at == s->at && b->grains == s->grains),
                "W4: a live window's piece is not its own");
    grains += s->grains;
  }
  end = w->pieces->at + w->pieces->grains - 1;
  gmlk_expect(c, i == 1 || (end >> a->chunk_log) != (w->pieces[i - 1].at >> a->chunk_log),
              "W2: ends share a chunk");
  gmlk_expect(c, grains == w->self.grains && (!w->number || grains >= a->windows.grains_min),
              "W3, W8: a window's size is wrong");
}

/* [W5]; [W7] the block with the serial that a blocked window waits for is under it, and knows. */
static void gmlk_check_idle(gmlk_checker *c, const gmlk_window *w) {
  const gmlk_windows *all = &c->a->windows;
  const int is_ready = w->key == w->self.grains;
  int is_placed = is_ready;
  uint32_t i;
  for (i = 0; !is_ready && i < w->piece_count; i++) {
    const gmlk_block *b = gmlk_locate(c->a, w->pieces[i].at);
    for (; b->at < w->pieces[i].at + w->pieces[i].grains; b = b->next)
      is_placed |= b->state != GMLK_FREE && b->flags & GMLK_IN_THE_WAY &&
                   GMLK_BLOCKED + b->u.serial == w->key;
  }
  gmlk_expect(c, is_placed, "W7: nothing is in a window's way");
  gmlk_expect(c,
              gmlk_tree_from(is_ready ? all->ready : all->blocked, w->key, w->number) == &w->self,
              "W5: a window is not in its tree");
  c->listed++;
}

/* The window of a range of address space in use. In quarantine it is mapped for good, perhaps in
   part, and perhaps it was not made to its end. */
static void gmlk_check_window(gmlk_checker *c, const gmlk_block *va) {
  const gmlk_arena *a = c->a;
  const gmlk_window *w = (gmlk_window *)va->u.owner;
  const gmlk_alias *x = &w->alias;
  const int is_live = w->self.state == GMLK_LIVE || w->self.state == GMLK_PENDING;
  const int may_lack = x->state == GMLK_ALIAS_QUARANTINED || a->sleep == GMLK_ASLEEP;
  gmlk_check_pieces(c, w, is_live);
  gmlk_check_alias(c, x);
  gmlk_expect(c, w->va == va && va->grains == x->chunk_count, "V2: addresses are another window's");
  gmlk_expect(c, may_lack ? x->mapped <= x->chunk_count : x->mapped == x->chunk_count,
              "V2: more or less is mapped");
  gmlk_expect(
      c,
      gmlk_alias_address(a, x) == gmlk_area_address(&a->window_space.area, va->at * a->chunk_bytes),
      "W2: a window is elsewhere");
  if (w->self.state == GMLK_IDLE && !c->broken) gmlk_check_idle(c, w);
  if (!is_live) return;
  gmlk_check_owned(c, &w->self, x->address);
  c->pieces -= w->piece_count;
}

/* [B1] to [B4] of the buffer of a range of address space in use. */
static void gmlk_check_buffer(gmlk_checker *c, const gmlk_block *va) {
  const gmlake_buffer *b = (const gmlake_buffer *)va->u.owner;
  const uint32_t end = gmlk_buffer_count(b, b->bytes);
  uint32_t i, count = 0;
  gmlk_expect(c, b->va == va && b->arena == c->a, "V2: addresses are another buffer's");
  gmlk_expect(c, end <= b->page_count, "B1: pages are missing");
  gmlk_expect(c, b->lake || !(b->count || b->bytes), "B4: a destroyed buffer has memory");
  for (i = 0; i < b->page_count && !c->broken; i++) {
    const gmlk_alias *x = &b->pages[i];
    if (x->state) gmlk_check_alias(c, x);
    if (x->state != GMLK_ALIAS_LIVE) continue;
    gmlk_expect(c, i < end, "B1: memory lies behind a buffer's end");
    c->owned += x->slot + 1;
    count++;
  }
  gmlk_expect(c, count == b->count, "B1: a buffer's committed pages are wrong");
  c->listed += b->lake ? 1u : 2u; /* in the list, and among destroyed_count */
}

/* [A1], [V1]: linked blocks tile [0, end) between the edges. */
static int gmlk_check_tiling(gmlk_checker *c, const gmlk_block *edge_before,
                             const gmlk_block *edge_behind, uint32_t end, const char *text) {
  const gmlk_block *b = edge_before->next;
  uint32_t at = 0;
  for (; b && b != edge_behind && b->prev->next == b && b->at == at && b->grains; b = b->next) {
    at += b->grains;
    c->records++;
  }
  return gmlk_expect(c, b == edge_behind && b->prev->next == b && at == end && b->at == end, text);
}

/* [V1] to [V3]: addresses for windows or for buffers, and what has them. */
static void gmlk_check_space(gmlk_checker *c, const gmlk_space *space, int is_windows) {
  const uint32_t end = space->area.limit;
  const gmlk_block *va = space->begin.next;
  if (!gmlk_check_tiling(c, &space->begin, &space->end, end, "V1: blocks do not tile the space"))
    return;
  for (; va != &space->end && !c->broken; va = va->next) {
    const int is_free = va->state == GMLK_FREE, is_used = !is_free && va->state != GMLK_EDGE;
    c->listed += is_free || is_used;
    gmlk_expect(c, !is_free || (va->its.hole == va->grains && va->next->state != GMLK_FREE),
                "V1: free address space is apart");
    gmlk_expect(c, !is_used || gmlk_tree_upto(space->used, va->at) == va,
                "V3: no tree has a range");
    if (!is_used || c->broken) continue;
    if (is_windows)
      gmlk_check_window(c, va);
    else
      gmlk_check_buffer(c, va);
  }
  c->listed -= gmlk_check_tree(space->used);
  if (space->holes) c->listed -= gmlk_check_bins(c, space->holes, GMLK_CLEAN, 0);
}

/* [A3] of a free block. */
static void gmlk_check_hole(gmlk_checker *c, const gmlk_block *b) {
  const gmlk_block *before = gmlk_before_clean(b), *behind = b;
  const int is_head = gmlk_is_tagged(b) && !gmlk_has_tag(before, b->stream);
  uint32_t hole = b->stream == GMLK_CLEAN ? b->grains : 0;
  while (is_head && gmlk_is_available(behind, b->stream)) behind = behind->next;
  if (is_head) hole = behind->at - (before->at + before->grains);
  gmlk_expect(c, b->its.hole == hole, "A3: a hole's size is wrong");
  c->listed += hole != 0;
  if (c->broken || hole || !gmlk_is_tagged(b) || !before->its.hole) return;
  before = gmlk_tree_upto(c->a->bins[b->stream]->second_blocks, b->at);
  gmlk_expect(c, before == b, "A3: a run's second block is not in the tree");
  c->listed++;
}

static void gmlk_check_block(gmlk_checker *c, const gmlk_block *b) {
  const gmlk_arena *a = c->a;
  uint32_t n;
  gmlk_expect(c, !gmlk_may_join(a, b, b->next), "A2: neighbours of one tag are apart");
  for (n = gmlk_chunks_for(a, b->at); n < gmlk_chunks_for(a, b->at + b->grains); n++)
    gmlk_expect(c, a->firsts[n] == b, "A4: a slot's first block is wrong");
  switch (b->state) {
  case GMLK_FREE:
    gmlk_check_tag(c, b->stream, b->u.epoch, "F1: a tag is of an epoch to come");
    gmlk_check_hole(c, b);
    c->grains += b->grains;
    return;
  case GMLK_UNBACKED:
    c->listed++;
    return;
  case GMLK_LIVE:
  case GMLK_PENDING:
    gmlk_check_owned(c, b, gmlk_home(a, b->at));
    return;
  case GMLK_PIECE:
    c->pieces++;
    return;
  case GMLK_COMMITTED:
    c->owned -= (b->at >> a->chunk_log) + 1;
    gmlk_check_extra(c, b);
    return;
  case GMLK_RESERVED:
    gmlk_expect(c, b == a->small.reserve && b->prev->state != GMLK_FREE,
                "U1: the small-block reserve is out of place");
    gmlk_check_tag(c, b->stream, b->u.epoch, "U1: the small-block reserve is of an epoch to come");
    c->listed--;
    return;
  default:
    gmlk_expect(c, b->state == GMLK_EDGE || b->state == GMLK_GONE,
                "A1: a block is in a state that does not last");
  }
}

/* [A5], [P1] to [P6], [E2]; [W6] the counts of mappings. */
static void gmlk_check_chunks(gmlk_checker *c) {
  const gmlk_arena *a = c->a;
  const gmlk_chunks *all = &a->chunks;
  size_t backed = all->backed_count, quarantined = all->quarantined_count;
  size_t asleep = all->asleep_count, shared = all->shared_count;
  const int sleeps = a->sleep == GMLK_ASLEEP;
  uint32_t slot;
  for (slot = 0; slot < all->capacity; slot++) {
    const gmlk_chunk *chunk = &all->items[slot];
    const gmlk_block *b = slot < a->slot_count ? a->firsts[slot] : &a->end;
    const int is_backed = b->state < GMLK_UNBACKED;
    const int is_lost = chunk->is_quarantined, is_held = chunk->handle && !is_lost;
    gmlk_expect(c, (is_held || chunk->is_asleep) == is_backed, "A5: a handle and a state differ");
    gmlk_expect(c, sleeps || !chunk->is_asleep, "E2: a chunk of an awake arena is asleep");
    gmlk_expect(c, is_lost || sleeps || chunk->is_home == (is_backed && !a->is_bare),
                "P3: a chunk is not mapped as it is said to be");
    gmlk_expect(c, !chunk->is_marked, "P2: a chunk is marked");
    gmlk_expect(c, !chunk->is_shared || b->state != GMLK_FREE, "P5: what others know is free");
    backed -= (size_t)is_held;
    quarantined -= (size_t)is_lost;
    asleep -= chunk->is_asleep;
    shared -= chunk->is_shared;
    c->mapped -= (uint64_t)chunk->map_count * (slot + 1);
  }
  gmlk_expect(c, !(backed | quarantined | asleep | shared), "P1, P5: a count of chunks is wrong");
}

/* What an arena has, and what finds it there. */
static void gmlk_check_arena(gmlk_checker *c, const gmlk_arena *a) {
  const uint32_t end = a->slot_count << a->chunk_log;
  const gmlk_block *b;
  const gmlake_buffer *buffer;
  const gmlk_window *w;
  const gmlk_extra *extra = NULL;
  size_t i;
  c->a = a;
  memset(&c->found_mapped, 0, sizeof(c->found_mapped));
  if (!gmlk_check_tiling(c, &a->begin, &a->end, end, "A1: blocks do not tile the arena")) return;
  for (b = a->begin.next; b != &a->end && !c->broken; b = b->next) gmlk_check_block(c, b);
  gmlk_expect(c, a->firsts[a->slot_count] == &a->end, "A4: the end is wrong");
  gmlk_check_space(c, &a->window_space, 1);
  gmlk_check_space(c, &a->buffer_space, 0);
  gmlk_check_chunks(c);
  for (i = 0; i < a->bins_capacity && !c->broken; i++)
    if (a->bins[i])
      c->listed -= gmlk_check_bins(c, a->bins[i], (unsigned)i, a->number) +
                   gmlk_check_tree(a->bins[i]->second_blocks);
  if (c->broken) return;
  c->listed += a->small.reserve != NULL;
  c->listed -= a->gap_count + a->destroyed_count;
  for (w = a->windows.idle_first; w; w = w->idle_next) c->listed--;
  for (buffer = a->buffers; buffer; buffer = buffer->next) c->listed--;
  while ((extra = gmlk_pending_next(a, extra)) != NULL) c->pending++;
  c->grains -= a->free_grains;
  gmlk_expect(c, !memcmp(&c->found_mapped, &a->mapped, sizeof(a->mapped)),
              "L1: a count of windows, or of what is quarantined, is wrong");
  gmlk_count_arena(a, &c->found);
}

#define GMLK_CHECK_FIGURES(X)                                                                 \
  (X(requested_bytes), X(active_bytes), X(pending_bytes), X(window_count), X(stitched_bytes), \
   X(buffer_count), X(buffer_bytes), X(chunk_count), X(reserved_bytes), X(quarantined_bytes), \
   X(sleeping_bytes), X(exported_bytes), X(imported_bytes))
#define GMLK_CHECK_FIGURE(name) \
  gmlk_expect(c, c->found.name == s->name, "L1: " #name " is not what a walk counts")

/* What is counted twice. */
static void gmlk_check_totals(gmlk_checker *c) {
  const gmlake *l = c->l;
  const gmlake_stats *s = &l->stats;
  const size_t records = l->records.slab_count * GMLK_SLAB_BLOCKS - l->records.unused_count;
  const int is_past = s->reserved_bytes > gmlk_limit_left(l->desc.limit_bytes, 0);
  const gmlake_pool *pool;
  gmlk_expect(c, !c->listed, "A3, A7, U1, V1, V3, W5, B4: bins, trees or lists have more or fewer");
  gmlk_expect(c, !c->pieces && !c->owned, "W4, B1: what windows or buffers own does not add up");
  gmlk_expect(c, !c->grains, "A6: a count of free memory is wrong");
  gmlk_expect(c, !c->mapped, "W6: a chunk's mappings do not add up");
  gmlk_expect(c, !c->pending && !c->queued && l->return_count == c->returns,
              "N1, N4, N5: lists or queues have more or fewer pending blocks");
  gmlk_expect(c, !c->uses && !c->captures, "F5, F7: uses or captures do not add up");
  for (pool = l->released_pools; pool; pool = pool->next_released)
    gmlk_driver_memory_add(&pool->arena, &c->found);
  (void)GMLK_CHECK_FIGURES(GMLK_CHECK_FIGURE);
  gmlk_expect(c, l->index.count == c->found.live_count, "I1: the index has more than live blocks");
  gmlk_expect(c, l->index.count <= l->index.count_max, "I3: the index is too full");
  gmlk_expect(c, s->quarantined_bytes || !is_past, "L1: the limit is exceeded");
  gmlk_expect(c, l->released_pools || records == c->records, "R1: a record is lost");
}

GMLAKE_DEF gmlake_result gmlake_check(gmlake *l) {
  const gmlk_arena *a;
  gmlk_checker c;
  gmlake_result result = gmlk_enter_to_ask(l);
  if (result) return result;
  memset(&c, 0, sizeof(c));
  c.l = l;
  gmlk_check_streams(&c);
  GMLK_FOR_ARENAS(l, a) {
    const int is_past = gmlk_pool_bytes(l, a->owner) > gmlk_limit_left(a->limit_bytes, 0);
    if (!c.broken) gmlk_check_arena(&c, a);
    gmlk_expect(&c, a->chunks.quarantined_count || !is_past, "L1: a pool's limit is exceeded");
    if (a->pool) c.captures -= (uint64_t)a->pool->capture_count * a->number;
  }
  if (!c.broken) gmlk_check_totals(&c);
  if (c.broken) result = gmlk_fail(l, GMLAKE_ERROR_CORRUPT, "gmlake_check", "%s", c.broken);
  return gmlk_leave_driver(l, result);
}

#endif /* GMLAKE_IMPLEMENTATION */

/* ---- >>licence ---------------------------------------------------------------------------------
   Copyright (c) 2026 gmlake contributors. MIT licence:

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software
   and associated documentation files (the "Software"), to deal in the Software without
   restriction, including without limitation the rights to use, copy, modify, merge, publish,
   distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
   Software is furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all copies or
   substantial portions of the Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING
   BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
