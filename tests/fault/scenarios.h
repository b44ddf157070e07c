/* Programs for fault injection: what a lake is and what is done to it, in a small language that
   test_exhaustive.c plays. Chunks are 4 KiB, the device has 64 of them, sizes are in chunks,
   with k in KiB, with b in bytes, and may be sums: 2+512b.

     +a-c=2@1/xsgtupq^1k allocate blocks a, b and c of 2 chunks each, on stream 1 (default 0, n:
                         STREAM_NONE), EXCLUSIVE, NO_STITCH, NO_GROW, TRANSIENT, with user data and
                         label, from pool 0 or 1, aligned
     +*=1                a block of any name from A on that is not live
     -ac@2               free blocks a and c, on stream 2 (default: the stream of the block)
     ra@2  Ia  xa        record a stream on block a; ask for its pieces; share it with oneself
     m1:1                mark stream 1: GMLAKE_STREAM_COMMUNICATION
     f1  P0:2:8  D0      forget stream 1; create pool 0 of chunks of 2, limited to 8; destroy it
     B1:0  E1            begin a capture on stream 1 into pool 0; end it
     N0:8/p z0:3-1b@1    create buffer 0 of at most 8 chunks; resize it, on stream 1 (default 0)
     c0:2:3@1  d0:2:1@1  commit its chunks 2, 3 and 4; discard chunk 2
     C0:2:3@1            the same, and the lake's first chunks are wanted, the eighth first
     K0@1                destroy it
     l0@1  L0@1          lend pool 0, on stream 1; recall it
     k0  o0  w0          pool 0 (2: what is in no pool) sleeps, KEEP or DROP, and wakes
     T:3  Q  S  X        trim to 3 chunks; the budget; other questions; calls that are refused
     Y:4:8@1             prewarm: 4 chunks that stay, in handles of 4, and 8 in all
     Q1                  asks how allocations of several sizes and flags would end
     h1  e1  g1:9b  t:9b work is pending on stream 1; is done; takes 9 ns; the clock says 9 ns
     |                   the pairs of calls from here on are tried, if they are not too many
     [3 steps ]          three times
     !O                  behind a step: it fails. O out of memory (or a limit), L a limit, I invalid
                         argument, C capturing, U unknown pointer, D double free, A asleep, B
                         busy

   The option ask:LETTERS gives the lake a policy. For each request it makes the first plan of its
   letters that can be made: p a piece, r the reuse of a window; from two chunks on s a stitch of
   what lies last first, k the front of a block whose former is kept, g growth, b growth behind the
   first block, 4 state 5 once, 5 twice, 9 always. Else the built-in policy decides; what is freed
   is kept apart with c, all windows are evicted with e.

   `reach` names what a run without faults must come by: 1 to 5 the paper's states; the rung that
   served an allocation: c what others completed, s stitch, g grow, b borrow, w wait, r reclaim,
   h the handler; E a window evicted, R reused, W live, Z stitched; X a split, V an event
   recorded, P pending frees, T trimmed, N pinned by a graph, O out of memory
   (or a limit), L a limit, D blocks live at destroy; a buffer that grew without a call (F), onto
   chunks that were there (A), where another mapping had to go (Y). */
#if !defined(SCENARIOS_H)
#define SCENARIOS_H

typedef struct variant {
  char letter;
  const char *name, *options;
} variant;

static const variant variants[] = {
    {'.', "plain", ""},
    {'w', "wait-first", "wait-first"},
    {'1', "single-threaded", "single"},
    {'g', "guard", "guard"},
    {'f', "fill", "fill"},
    {'a', "apart", "apart"},
    {'c', "larger-chunks", "chunk:2"},
    {'e', "few-windows", "smax:6"},
    {'l', "limited", "limited "},
    {'k', "kept-free", "kept"},
    {'p', "in-a-pool", "pool"},
    {'q', "in-a-limited-pool", "limited-pool"},
    {'o', "created-stream", "created"},
    {'m', "most-at-once", "wait-first guard smax:8 peers created kept"},
};

typedef struct program {
  const char *name, *variants, *reach, *options, *steps;
} program;

/* Chunks side by side, laid out for a to h, of which every other one is then free. */
#define LAY8 "+Z=8@n -Z@n +a-h=1 "
#define HOLES8 LAY8 "-aceg "
/* The same on stream 1; stream 2 has some memory of its own. */
#define LAY8_ON_1 "+Z=8@n -Z@n +a-g=1@1 +h=1@2 "
#define HOLES8_ON_1 LAY8_ON_1 "h1 -aceg "

#define POOL_HOLES8 "P0 +Z=8@n/p -Z@n +a-h=1/p -aceg "
#define LAY8_AGAIN "+Z=8@n -Z@n +i-p=1 "

static const program programs[] = {
    /* one block, and none */
    {"nothing", ".1gpo", "", "", ""},
    {"one-block", ".1wfcplko", "4g", "", "| +a=1 -a"},
    {"left-live", ".wpm", "4gD", "", "| +a=1 +b=3@1 +c=512b/u"},
    {"zero-bytes", ".p", "4", "", "| +a=0 +b=1 +c=0/xsu"},
    {"peers", ".c", "3", "peers", HOLES8 "| +x=2"},
    {"refused-arguments", ".1", "", "", "X +a=1 | X +b=1^3k!I +b=1^2!I +b=1^1 X"},
    {"refused-pointers", ".f", "", "", "+a=1 +b=1 -a | -a!D Ia!U ra@1!U -b -b!D"},
    {"refused-window", ".w", "R", "", HOLES8 "+x=3 -x | -x!D Ix!U +x=3"},
    {"questions", ".1wm", "", "", "S Q +a=2/u +b=3@1 | S Q Ia Ib -a Q S"},
    {"queries", ".1wlkp", "", "cap:12", HOLES8_ON_1 "| Q1"},
    {"queries-of-one-stream", ".1g", "", "", HOLES8 "+x=3 -x | Q1"},
    {"queries-beside-buffers", ".wl", "", "cap:16", "P0 N0:8 z0:4 z0:1 +a=3/p -a +b=2@1 -b | Q1"},
    {"queries-in-a-capture", ".", "", "cap:16", "P0 +a=2 B1:0 +b=2@1 -a -b | Q1 E1"},

    /* S1 and S2 */
    {"exact-block", ".1fplk", "14", "", "+a=3 -a | +b=3 -b"},
    {"exact-grains", ".1f", "14", "", "+a-c=512b -b | +d=512b"},
    {"split", ".1cpo", "24X", "", "+a=4 -a | +b=1 +c=512b +d=2k"},
    {"coalesce", ".fp", "1", "", LAY8 "-a -c -b | +i=3 +j=512b"},
    {"exact-window", ".1wgfcpm", "13sRZW", "", HOLES8 "+x=3 -x | +y=3 -y +z=3"},
    {"blocked-window", ".gp", "3s", "", HOLES8 "+x=3 -x +a=1 +c=1 | +y=3 -ac +z=2"},
    {"window-in-pieces", ".f", "13s", "", HOLES8 "+x=4 -x | +a=1 +c=1 +e=1 +g=1"},
    {"aligned-block", ".cp", "4", "", "+a=512b | +b=512b^1 +c=1k^2k +d=1^1"},
    {"exclusive-block", ".cpg", "4", "", "+a=512b | +b=1k/x +c=2/x -b +d=512b/x"},

    /* S3 */
    {"stitch-two", ".1wgfcplko", "3sZW", "", HOLES8 "| +x=2"},
    {"stitch-all", ".wgp", "3sZW", "", HOLES8 "| +x=4 -x"},
    {"stitch-ends", ".1fp", "3sZ", "", "+Z=6@n -Z@n +a-l=2k -dghk | +x=2"},
    {"stitch-part", ".fc", "3sZ", "", HOLES8 "| +x=1+512b +y=1+1k"},
    {"stitch-exclusive", ".cp", "3sZ", "", HOLES8 "| +x=2/x"},
    {"stitch-aligned", ".cp", "3sZ", "", HOLES8 "| +x=2^1"},
    {"stitch-from-size", ".p", "34Z", "smin:4", HOLES8 "| +x=2 +y=4"},
    {"stitch-labelled", ".1", "3sZ", "", HOLES8 "| +x=2/u Ix -x"},
    {"stitch-twice", ".gem", "3sZ", "", HOLES8 "| +x=2 +y=2 -x -y +z=4"},
    {"stitch-over-idle", ".ge", "3sZ", "", HOLES8 "+x=2 -x +y=3 -y | +z=4 -z T:0"},
    {"stitch-no-grow", ".p", "3sZO", "", HOLES8 "| +x=3/g +y=2/g!O"},

    /* S4 */
    {"grow-more", ".wcplkq", "4g", "", "+a=1 | +b=5"},
    {"grow-at-tail", ".1cp", "4g", "", "+a=1 +b=2 -b | +c=4"},
    {"grow-shortfall", ".wgcplkq", "4gZ", "", HOLES8 "| +x=6"},
    {"grow-into-gap", ".p", "4gT", "", LAY8 "-cd T:6 | +x=2"},
    {"grow-past-gap", ".", "4gT", "", LAY8 "-cd T:6 | +x=3"},
    {"grow-around-gap", ".p", "4gTZ", "", LAY8 "-bcdf T:6 | +x=4"},
    {"grow-with-one-to-spare", ".lp", "4g", "", LAY8 "-a | +x=2"},
    {"grow-with-none-to-spare", ".lkq", "4gZ", "cap:9", LAY8 "-a | +x=2"},
    {"grow-aligned", ".c", "4g", "", "+a=512b | +b=1+512b^1"},
    {"grow-no-stitch", ".g", "4g", "", HOLES8 "| +x=2/s"},
    {"grow-unstitched-exclusive", ".c", "4g", "", HOLES8 "| +x=2/xs"},

    /* S5, without much of a ladder */
    {"too-large", ".1wlkpq", "45O", "", "| +a=65!O +b=1"},
    {"far-too-large", ".p", "5O", "", "| +a=4000000000k!O +b=1"},
    {"full", ".wplkqm", "5", "cap:8", "+a-h=1 | +i=1!O -a +i=1"},
    {"full-stitched", ".wgp", "35O", "cap:8", HOLES8 "| +x=4 +y=1!O -x"},
    {"no-grow", ".1", "5O", "", "| +a=1 +b=1/g!O -a +b=1/g"},
    {"no-stitch-no-grow", ".p", "5O", "", HOLES8 "| +x=2/sg!O"},
    {"no-addresses", ".", "5O", "arena:8", "| +a=8 +b=1!O -a +b=1"},
    {"few-addresses", ".w", "35O", "arena:8", HOLES8 "| +x=3 +y=2!O -x"},
    {"pool-limit", ".w", "5L", "", "P0:0:4 | +a=4/p +b=1/p!L -a +b=1/p"},
    {"both-limits", ".w", "5L", "limit:6", "P0:0:4 | +a=3 +b=3/p +c=1/p!L +d=1!L"},
    {"nothing-to-spare", ".", "5L", "keep:56", "| +a=8 +b=1!L"},

    /* the ladder: what others have completed */
    {"completed", ".wpko", "cV", "", "+p=512b@2 +a=4@1 | -a +b=4@2"},
    {"completed-late", ".w", "cV", "", "+p=512b@2 +a=4@1 h1 | -a e1 +b=4@2"},
    {"completed-stitch", ".gp", "3sVZ", "", LAY8_ON_1 "-aceg | +x=3@2"},
    {"completed-by-clock", ".p", "cg", "", "g1:9b +p=512b@2 +a=4@1 | -a +b=4@2 t:9b +c=4@2"},
    {"held-so-grow", ".pk", "cg4", "", "+p=512b@2 +a=4@1 h1 | -a +b=4@2 e1 +c=4@2"},
    {"second-stream", ".wp", "cV", "", "+a=4 -a | +b=4@1"},

    /* borrowing */
    {"borrow-part", ".wplkq", "b2X", "cap:8", "+p=512b@2 +a=7@1 h1 | -a +b=5@2"},
    {"borrow-exact", ".wp", "b1", "cap:8", "+p=512b@2 +a=7@1 h1 | -a +b=8-512b@2"},
    {"borrow-first", ".1po", "b", "wait-first", "+p=512b@2 +a=7@1 h1 | -a +b=5@2"},
    {"borrow-pieces", ".wgpl", "b3Z", "cap:8", HOLES8_ON_1 "| +x=3@2"},
    {"borrow-window", ".wgp", "b1R", "cap:8", HOLES8_ON_1 "+x=3@1 -x | +y=3@2"},
    {"borrow-soon", ".gp", "bZ", "wait-soon",
     LAY8_ON_1 "h1 -ac +k=1@2 e1 +i=2@2 h1 -eg | +x=2@2 +y=6@2"},
    {"borrow-marked", ".gp", "w", "cap:8 wait-first", HOLES8_ON_1 "m2:1 | +x=3@2"},
    {"borrow-urgent", ".g", "b", "cap:8 wait-first", HOLES8_ON_1 "m2:2 | m1:2 m1:3 +x=3@2 m2:0 f1"},
    {"borrow-and-grow", ".wgpl", "b4Z", "cap:10", HOLES8_ON_1 "| +x=6@2"},
    {"borrow-first-and-grow", ".gp", "b4Z", "wait-first", HOLES8_ON_1 "| +x=6@2"},
    {"borrow-of-two", ".wp", "b3Z", "cap:8",
     "+Z=8@n -Z@n +a=1@1 +b=1@2 +c=1@3 +d=1@2 +e=1@1 +f=1@2 +g=1@3 +h=1@2 h1 h3 -aceg | +x=4@2"},
    {"borrow-again", ".w", "b", "cap:8", HOLES8_ON_1 "| +x=1@2 +y=1@2 +z=2@2"},
    {"borrow-back", ".w", "b", "cap:8", HOLES8_ON_1 "| +x=3@2 -x h2 +y=3@1"},
    {"borrow-of-forgotten", ".w", "b", "cap:8", "+p=512b@2 +a=7@1 h1 -a f1 | +b=5@2"},
    {"borrow-from-legacy", ".w", "b", "cap:8", "+p=512b@2 +a=7 h0 | -a +b=5@2"},

    /* waiting on the host */
    {"borrow-pending", ".wplkq", "bP", "cap:8", "+p=512b@2 +a=7@1 ra@2 h2 | -a +b=7@1"},
    {"borrow-pending-window", ".gp", "RbP", "cap:8 wait-first",
     LAY8 "-aceg +x=4@1 rx@2 h2 | -x +y=4@1"},
    {"borrow-pending-part", ".gp", "bP", "cap:8 wait-first",
     "+p=512b@2 +a=3@1 +*=1 +b=2@1 ra@2 ra@3 h2 h3 | -a -b +x=4@1"},
    {"wait-for-pending", ".wplkq", "wP", "cap:8", "+p=512b@2 +a=7@1 ra@2 h2 | -a +b=7@n"},
    {"wait-for-clean", ".wp", "w", "cap:8", "+p=512b@2 +a=7@1 h1 | -a +b=7@n"},
    {"wait-and-stitch", ".gp", "w3", "cap:8", HOLES8_ON_1 "| +x=3@n"},
    {"wait-and-grow", ".gp", "w4", "cap:10", HOLES8_ON_1 "| +x=6@n"},
    {"wait-for-two", ".", "wP", "cap:8", "+p=512b@2 +a=7@1 ra@2 ra@3 h2 h3 | -a +b=7@n"},
    {"wait-in-vain", ".w", "5O", "cap:8", "+p=512b@2 +c=2@2 +a=5@1 h1 | -a +b=7@n!O +b=5@n"},

    /* giving memory back to create it where it is needed */
    {"reclaim-from-pool", ".wlk", "r", "cap:8", "P0 +a=7/p -a +b=512b | +c=7"},
    {"reclaim-for-pool", ".wlk", "r", "cap:8", "P0 +a=7 -a | +b=7/p"},
    {"reclaim-pending", ".w", "r", "cap:8", "P0 +p=512b@2 +a=7@1/p h1 -a | +b=7@2"},
    {"reclaim-for-one-piece", ".wlkq", "r", "cap:8", HOLES8 "| +x=2/s"},
    {"reclaim-windows", ".g", "rE", "cap:8", HOLES8 "+x=3 -x | +y=4/s"},
    {"reclaim-addresses", ".w", "rE", "cap:8 window:4", HOLES8 "+x=4 -x | +y=3"},
    {"reclaim-not-pinned", ".", "5NO", "cap:8", "P0 B1:0 +a=4@1 -a E1 | +b=6!O D0 +b=6"},
    {"reclaim-too-little", ".w", "5O", "cap:8", "P0 +a=3/p +b=3/p +c=1 -a | +d=7!O +d=4"},

    /* the handler */
    {"handler-frees", ".wplm", "h", "cap:8 oom:a", "+a=7 | +b=5"},
    {"handler-frees-pieces", ".g", "h", "cap:8 oom:a", LAY8 "-a +i=1 -ceg +a=2 | +x=3"},
    {"handler-trims", ".p", "hO", "cap:8 oom:!", "+a=7 | +b=5!O"},
    {"handler-allocates", ".1", "hO", "cap:8 oom:?", "+a=7 | +b=5!O"},
    {"handler-gives-up", ".l", "hO", "cap:8 oom:z", "+a=7 | +b=5!O"},
    {"whole-ladder", ".wm", "5", "cap:12 oom:z",
     "P0 +q=1/p -q +z=1 +p=512b@2 +a=4@1 +b=1@2 +c=2@1 ra@3 h1 h3 -ac | +d=12@2!O +d=8@2"},

    /* windows dropped */
    {"evict", ".wgp", "E", "smax:4", HOLES8 "| +x=3 -x +y=4 -y +z=2"},
    {"evict-pending", ".", "3", "smax:4", LAY8_ON_1 "-aceg h1 +x=3@1 -x +y=4@1 -y | +z=2@1"},
    {"evict-elsewhere", ".", "E", "smax:5", POOL_HOLES8 "+x=3/p -x " LAY8_AGAIN "-ikmo | +y=3"},
    {"records-run-low", ".w", "13R", "",
     HOLES8 "+x=3 -x -bd P0 +i-k=512b^1k/p [25 +*=512b^1k/p +x=3 -x ]"},
    {"many-windows", ".g", "13Z", "",
     HOLES8 "[2 +x=1+512b +y=1+1k -xy +x=1+1536b +y=1+2k -xy +x=1+2560b +y=1+3k -xy +x=1+3584b -x "
            "+x=2 +y=2 -xy +x=2+512b -x +x=2+1k -x +x=2+1536b -x +x=2+2k -x +x=2+2560b -x +x=2+3k "
            "-x +x=2+3584b -x +x=3 -x +x=3+512b -x +x=3+1k -x ]"},

    /* trim */
    {"trim-all", ".1wcpf", "T", "", "+a=4 -a | T:0"},
    {"trim-some", ".p", "T", "", "+a=8 -a | T:3 T:3 T:0"},
    {"trim-windows", ".gp", "TE", "", HOLES8 "+x=3 -x | T:0"},
    {"trim-under-window", ".g", "TE", "", HOLES8 "+x=3 | T:0 -x T:0"},
    {"trim-pending", ".w", "TV", "", "+p=512b@2 +a=4@1 h1 -a | T:0 e1 T:0"},
    {"trim-pending-window", ".", "TEV", "", HOLES8_ON_1 "+x=3@1 -x | T:0 e1 T:0"},
    {"trim-pools", ".1", "T", "", "P0 +a=3/p +b=3 -ab | T:2 T:0"},
    {"trim-and-regrow", ".cp", "4T", "", "+a=4 -a | T:0 +b=4 -b T:0"},
    {"trim-nothing", ".w", "", "", "+a=4 | T:0 T:9"},

    /* streams */
    {"record", ".wp", "PV", "", "+a=2@1 ra@2 | -a +b=2@1"},
    {"record-held", ".wp", "PV", "", "+a=2@1 ra@2 h2 | -a +b=2@1 e2 +c=2@1"},
    {"record-own", ".", "1", "", "+a=2@1 | ra@1 -a +b=2@1"},
    {"record-many", ".m", "PV", "", "+a=2@1 | ra@0 ra@2 ra@3 ra@2 -a +b=2@1"},
    {"record-window", ".g", "3PV", "", HOLES8 "+x=3 | rx@1 -x +y=3"},
    {"record-labelled", ".1", "PV", "", "+a=1/u | ra@1 Ia -a"},
    {"record-and-free-clean", ".w", "PV", "", "+a=2@1 ra@2 h2 | -a@n +b=2@n"},
    {"record-and-left", ".", "PVD", "", "+a=2@1 +b=2@1 ra@2 rb@2 h2 -a |"},
    {"free-elsewhere", ".p", "1V", "", "+a=2@1 | -a@2 +b=2@2"},
    {"free-clean", ".fp", "1", "", "+a=2@1 | -a@n +b=2@2 +c=1@n"},
    {"clean-only", ".1p", "14", "", "+a=2@n -a | +b=2@n -b +c=1@1"},
    {"fences-full", ".", "gV", "", "+p=512b@2 h1 [70 +a=1@1 -a ] | +b=1@2 e1 +c=1@2"},
    {"forget", ".wo", "V", "", "+a=2@1 -a | f1 +b=2@1"},
    {"forget-held", ".w", "V", "", "+p=512b@2 +a=4@1 h1 -a | f1 +b=4@2"},
    {"forget-unseen", ".", "", "", "| f3 +a=1@3 f3 f3"},
    {"forget-live", ".w", "V", "", "+a=2@1 +b=2@1 | f1 -a@n -b@2"},
    {"forget-recorded", ".", "PV", "", "+a=2@1 ra@2 | f2 -a +b=2@1"},
    {"forget-legacy", ".o", "V", "", "+a=2 -a | f0 +b=2"},
    {"forget-many", ".", "V", "", "[16 +a=1@1 -a f1 ] | +a=1@1 f1"},

    /* pools */
    {"pool-empty", ".1gc", "", "", "| P0 D0"},
    {"pool-blocks", ".wfk", "4", "", "| P0 +a=2/p -a D0"},
    {"pool-chunks", ".1", "4", "", "| P0:2 +a=3/p +b=512b/p -ab D0"},
    {"pool-live", ".", "", "", "P0 +a=1/p | D0!I -a D0"},
    {"pool-windows", ".gc", "3Z", "", POOL_HOLES8 "+x=3/p -x | -bdfh D0"},
    {"pool-pending", ".w", "V", "", "P0 +p=512b@2 +a=4@1/p h1 -a | D0"},
    {"pool-recorded", ".w", "PV", "", "P0 +a=4@1/p ra@2 h2 | -a D0"},
    {"pool-twice", ".1", "", "", "| P0 P1 D0 P0 D1 D0"},
    {"pool-left", ".g", "4D", "", "P0 +a=2/p +b=2 |"},
    {"pool-exclusive", ".c", "4", "", "P0:2 | +a=1k/px -a D0"},
    {"pool-limit-reclaim", ".w", "r", "cap:8", "P0:0:6 +a=8 -a | +b=6/p +c=2"},

    /* sleep */
    {"sleep-nothing", ".1", "", "", "P0 | k0 w0 o0 w0 k2 w2"},
    {"sleep-blocks", ".1wgfcplko", "4", "", "+a=2 +b=1+1k +c=3 -b | k2 w2 +d=1"},
    {"sleep-drop", ".gfp", "4", "", "+a=2 +b=3 | o2 w2"},
    {"sleep-window", ".gfcpm", "3W", "", HOLES8 "+x=3 | k2 w2 -x"},
    {"sleep-idle-window", ".gp", "3E", "", HOLES8 "+x=3 -x | k2 w2 +x=3"},
    {"sleep-graph", ".gf", "N", "", "P0 B1:0 +a=2@1 +b=1@1 -a E1 | k0 w0 B1:0 +c=2@1 -c E1"},
    {"sleep-graph-window", ".", "NZ", "",
     "P0 +Z=6@n/p -Z@n +a-f=1/p -ace@n B1:0 +x=2@1 -x E1 | k0 w0"},
    {"sleep-buffers", ".1gfca", "", "", "P0 N0:8/p z0:5 d0:1:2 N1:8 z1:3 | k0 k2 w0 w2 c0:0:5"},
    {"sleep-freed", ".gf", "3W", "", HOLES8 "+x=3 N0:6 z0:4 | k2 -x -b d0:1:2 z0:3 w2 c0:0:4"},
    {"sleep-recorded", ".", "P", "", "+a=3@1 +b=1 ra@2 | k2 -a w2 -b"},
    {"sleep-refuses", ".", "", "", "P0 +a=2/p N0:4/p z0:1 | k0 +b=1/p!A c0:1:1!A B1:0!A w0 +b=1/p"},
    {"sleep-again", ".", "", "", "+a=3 | k2 k2 o2 k2 w2 w2 k2 w2 T:3"},
    {"sleep-destroy", ".", "", "", "P0 +a=3/p N0:4 z0:2 | k0 k2 -a D0"},
    {"handles-grow", ".wgfcplko", "4g", "handle:4", "| +a=9 +b=2 -a +c=4 +d=5"},
    {"handles-stitch", ".wgfpm", "3sZW", "handle:2", "+a-d=3 -ac | +x=5 -x +y=5"},
    {"handles-ends", ".gfp", "3sZW", "handle:4", "+a=6 +b=1 +c=6 +d=1 -ac +e=1 | +x=8 -x"},
    {"handles-shortfall", ".wgpl", "4gZ", "handle:2", "+a-d=3 -ac | +x=9"},
    {"handles-whole", ".g", "34Z", "handle:4", "+a=6 +b=1 +c=6 -ac +e=1 | +x=8/x +y=1/x"},
    {"handles-trim", ".gp", "T", "handle:4", "+a=6 +b=6 -a T:0 | +c=3 +x=6 -x T:0"},
    {"handles-trim-window", ".g", "TEZ", "handle:2", "+a-d=3 -ac +x=5 -x | T:9 +y=5 -y T:0"},
    {"handles-asleep", ".gfp", "3W", "handle:2", "+a-d=3 -ac +x=5 | k2 w2 -x"},
    {"handles-freed-asleep", ".gf", "3W", "handle:2", "+a-d=3 -ac +x=5 | k2 -bx w2 +e=3"},
    {"handles-of-a-pool", ".g", "3D", "handle:2", "P0 +a-d=3/p -ac | +x=5/p -b"},
    {"handles-given-up", ".g", "3Z", "handle:2", "P0 +a-d=3/p -ac | +x=5/p -bdx D0"},
    {"prewarm", ".1wgfcplko", "", "", "| Y:4:8 +a=3 +b=5 Y:4:8"},
    {"prewarm-more", ".g", "T", "", "Y:2:4 +a=4 | Y:4:12@1 +b=8 -a T:0 Y:6:20 S"},
    {"prewarm-short", ".", "", "cap:8", "| Y:4:60 +a=8"},
    {"prewarm-limited", ".", "", "limit:8", "| Y:6:60 +a=8"},
    {"prewarm-and-stitch", ".g", "3sZ", "", "Y:4:12 +a-d=3 -ac | +x=5"},
    {"prewarm-asleep", ".", "", "", "+a=2 k2 | Y:4:8!A w2 Y:4:8"},
    {"sleep-at-destroy", ".g", "D", "", "P0 +a=3/p +b=2 N0:4 z0:2 | k0 k2"},
    {"sleep-short", ".", "", "cap:8", "P0 +a=5/p | k0 +b=6@1 -b w0"},
    {"sleep-too-short", ".", "O", "cap:8", "P0 +a=5/p k0 +b=6@1 | w0!O -b w0"},
    {"sleep-limit", ".", "L", "limit:8", "P0 +a=5/p k0 +b=6 | w0!L -b w0"},
    {"sleep-beside-a-capture", ".", "", "", "P0 P1 +a=2/p B1:1 | k0 w0 E1"},
    {"sleep-in-a-capture", ".", "", "", "P0 B1:0 | k0!C E1 k0 w0"},

    /* captures */
    {"capture-empty", ".1w", "", "", "P0 | B1:0 E1"},
    {"capture-blocks", ".wf", "4N", "", "P0 | B1:0 +a=2@1 -a +b=2@1 -b E1"},
    {"capture-live", ".w", "N", "", "P0 B1:0 +a=2@1 E1 | -a D0"},
    {"capture-again", ".w", "1N", "", "P0 B1:0 +a=2@1 -a E1 | B1:0 +b=2@1 -b E1"},
    {"capture-stitch", ".g", "13RZ", "",
     "P0 B1:0 +Z=8@1 -Z +a-h=1@1 -aceg | +x=3@1 -x +y=3@1 E1 -y"},
    {"capture-outside-block", ".w", "4", "", "P0 +a=2@1 B1:0 | -a +b=2@1 E1 +c=2@1"},
    {"capture-other-streams", ".wo", "V", "", "P0 +p=1@2 B1:0 | +a=2@2 -a +b=2@3 -b E1"},
    {"capture-and-legacy", ".w", "4", "", "P0 +p=512b@2 +a=2 B1:0 | -a +b=2@2 E1 +c=2@2"},
    {"capture-two-streams", ".", "4N", "", "P0 | B1:0 B2:0 +a=2@1 +b=2@2 -ab E1 E2 D0"},
    {"capture-two-pools", ".1", "4N", "", "P0 P1 | B1:0 B2:1 +a=2@1 +b=2@2 -ab E2 E1"},
    {"capture-wrong-pool", ".", "4", "", "P0 P1 B1:0 | +a=1@1/q!C +b=1@1/p E1"},
    {"capture-twice", ".1", "", "", "P0 | B1:0 B1:0!C E1 E1!I"},
    {"capture-refused", ".1", "", "", "P0 X B1:0 X | E1 X"},
    {"capture-and-forget", ".w", "V", "", "P0 +a=1@1 B1:0 | f1!C E1 f1"},
    {"capture-and-trim", ".w", "TN", "", "P0 +a=4@2 -a B1:0 +b=2@1 -b | T:0 E1 T:0 D0"},
    {"capture-recorded", ".w", "PV", "", "P0 B1:0 +a=2@1 ra@2 | -a +b=2@1 E1 -b D0"},
    {"capture-records", ".", "PV", "", "+a=2@2 P0 +p=1@1 B1:0 ra@1 | -a +b=2@2 E1 +c=2@2"},
    {"capture-and-budget", ".m", "4", "", "P0 B1:0 +a=2@1 | Q E1 Q"},
    {"capture-full", ".l", "5O", "cap:8", "P0 B1:0 +a=6@1 | +b=4@1!O E1"},
    {"capture-reclaims", ".w", "r", "cap:8", "P0 +a=6 -a@n B1:0 | +b=6@1 E1"},
    {"capture-cannot-reclaim", ".", "5O", "cap:8", "P0 +p=512b@1 +a=6 B1:0 -a | +b=6@1!O E1"},
    {"capture-and-pool-destroy", ".", "", "", "P0 B1:0 | D0!C E1 D0"},
    {"capture-at-destroy", ".w", "4", "", "P0 B1:0 +a=2@1 +b=1@2 -b |"},
    {"capture-free-elsewhere", ".", "4N", "", "P0 B1:0 +a=2@1 | -a@2 +b=2@1 E1"},
    {"capture-then-eager", ".", "4N", "", "P0 B1:0 +a=2@1 -a E1 | +b=2@1/p -b D0"},

    /* growing buffers */
    {"buffer-empty", ".1g", "", "", "| N0:4 K0 N0:3-1b K0"},
    {"buffer-grow", ".1wfglkoa", "4g", "", "| N0:8 z0:1 z0:3 z0:3+1b z0:8"},
    {"buffer-left", ".a", "4D", "", "N0:8 z0:2 | N1:8 z1:1b@1"},
    {"buffer-refused", ".1", "", "", "N0:4 | z0:4+1b!I z0:4 K0 X"},
    {"buffer-regrow", ".1wfgoa", "F", "", "N0:8 z0:4 | z0:1 z0:4 z0:0 z0:2"},
    {"buffer-peers", ".", "4", "peers", "N0:8 | z0:2 z0:3"},
    {"buffer-alias", ".wfga", "AF", "", "N0:8 N1:8 z0:3 z0:0 | z1:2 z1:1 z1:2 z0:1 z1:3 z0:3"},
    {"buffer-replace", ".wfga", "AY", "", "N0:8 N1:8 z0:3 z0:0 z1:3 | z0:2 z1:0 z0:4"},
    {"buffer-pending", ".a", "g4F", "", "N0:8 N1:8 z0:2@1 h1 z0:0@1 | z1:1@1 z1:0@1 z0:2@1 z0:3@1"},
    {"buffer-own-pending", ".l", "A", "cap:2", "N0:8 N1:8 z0:2@1 h1 z0:0@1 | z1:2@1"},
    {"buffer-wait-to-unmap", ".", "wY", "cap:3",
     "N0:8 N1:8 z0:2@1 h1 z0:0@1 z1:3@1 | z1:2@1 z0:1@1"},
    {"buffer-borrow", ".wla", "b", "cap:2", "N0:8 z0:2@1 h1 z0:0@1 | z0:2@2"},
    {"buffer-borrow-alias", ".wl", "bA", "cap:2", "N0:8 N1:8 z0:2@1 h1 z0:0@1 | z1:1@2 z1:2@3"},
    {"buffer-wait-for-clean", ".a", "w", "", "N0:8 z0:2@1 h1 z0:0@1 | z0:1@n z0:2@2"},
    {"buffer-given-clean", ".", "F", "", "N0:8 z0:2@1 h1 | z0:0@n z0:2@2"},
    {"buffer-full", ".wlk", "5O", "cap:3", "N0:8 N1:8 z0:2 | z1:2!O z1:1 z0:1 z1:2"},
    {"buffer-part-made", ".", "5O", "cap:4", "N0:8 z0:1 | z0:7!O z0:4"},
    {"buffer-from-home", ".l", "A", "cap:4", "N0:8 +a=4 -a | z0:2 z0:4"},
    {"buffer-from-home-pending", ".lw", "A", "cap:4", "N0:8 +a=4@1 h1 -a | z0:2@1 z0:0@1 z0:3@2"},
    {"buffer-from-windows", ".", "A", "cap:8", "N0:8 " HOLES8 "+x=3 -x | z0:2"},
    {"buffer-to-home", ".l", "1", "cap:4", "N0:8 z0:4 z0:1 | +a=3 -a z0:2"},
    {"buffer-to-home-pending", ".w", "b", "cap:4", "N0:8 z0:4@1 h1 z0:0@1 | +a=2@1 +b=2@2 -ab"},
    {"buffer-and-home", ".wgf", "A", "cap:6",
     "N0:8 N1:8 +a=2 z0:3 | -a z1:2 z0:1 +b=1-1b +c=1@1 d1:0:1 +d=512b -b z0:3"},
    {"bare-from-home", ".l", "r", "cap:4 apart", "N0:8 +a=4 -a | z0:2 z0:4"},
    {"bare-from-windows", ".", "rE", "cap:16 apart", "N0:8 +a-h=2 -aceg +x=6 -x | z0:4"},
    {"bare-to-home", ".l", "r", "cap:4 apart", "N0:8 z0:4 z0:2 | +a=2"},
    {"bare-to-home-pending", ".", "r", "cap:4 apart", "N0:8 z0:4@1 h1 z0:0@1 | +a=4"},
    {"buffer-trim", ".1a", "T", "", "N0:8 N1:8 z0:4 z0:1 z1:3 z1:0 | T:4 T:0 z0:2"},
    {"buffer-trim-pending", ".", "T", "", "N0:8 z0:4@1 z0:3 h1 z0:1@1 | T:0 e1 T:0"},
    {"buffer-trim-alias", ".a", "T", "", "N0:8 N1:8 z0:2 z0:0 z1:2 z1:0 | T:0"},
    {"buffer-handler", ".", "h", "cap:4 oom:a", "N0:8 +a=3 z0:1 | z0:3"},
    {"buffer-destroy", ".1a", "A", "", "N0:8 z0:2 K0 | N1:8 z1:2 N0:4 z0:1"},
    {"buffer-destroy-pending", ".", "", "", "N0:8 z0:2@1 h1 K0@1 | N0:8 e1 N1:4 z0:2@1"},
    {"buffer-addresses", ".", "", "cap:4", "N0:128 z0:2@1 h1 K0@1 | N0:100 z0:1@1"},
    {"buffer-capture", ".", "", "", "P0 N0:8 z0:2@1 B1:0 | z0:4@1 z0:1@1!C E1 z0:1@1"},
    {"buffer-capture-waits", ".", "", "cap:2",
     "P0 N0:8 N1:8 z0:2 B1:0 z0:1 z1:1 | z0:2@2!C E1 z1:0 z0:2@2"},
    {"buffer-forget", ".", "V", "", "N0:8 z0:2@1 h1 z0:1@1 | f1 z0:2@2 z0:1@2"},

    /* memory inside buffers */
    {"pages", ".1wfglkoa", "4g", "", "N0:8 | c0:2:3 d0:3:1 c0:0:8 d0:0:8"},
    {"pages-repeated", ".", "4g", "", "N0:8 c0:1:4 | c0:1:4 d0:2:1 d0:2:2 c0:0:0 d0:5:3 c0:1:3"},
    {"pages-back", ".1wfgoa", "F", "", "N0:8 c0:0:6 d0:1:3 | c0:2:1 c0:0:6"},
    {"pages-and-resize", ".a", "4gF", "", "N0:8 | z0:2 c0:5:1 z0:7+1b d0:6:2 z0:7+2b z0:4+1b z0:1"},
    {"pages-up-to-max", ".", "4", "", "N0:3+5b | c0:2:1+5b d0:3:5b c0:3:5b z0:0"},
    {"pages-refused", ".1", "", "", "N0:4+1b c0:1:1 | c0:1b:1!I d0:1:1b!I c0:3:2!I d0:6:0!I K0"},
    {"pages-wanted", ".1wfgkoa", "4g", "",
     "N0:8 N1:8 c0:0:6 d0:1:3 | C1:0:4 C0:1:2 d1:0:4 d0:0:6 C0:0:8 d0:2:3 C1:5:3@1"},
    {"pages-peers", ".", "4", "peers", "N0:8 c0:4:1 | c0:2:5"},
    {"pages-alias", ".wfga", "AF", "", "N0:8 N1:8 c0:0:4 d0:1:2 | c1:5:2 d1:5:1 c0:1:1 c1:5:2"},
    {"pages-replace", ".wfga", "AY", "", "N0:8 N1:8 c0:0:4 d0:1:2 c1:4:4 d1:6:2 | c0:0:4 c1:0:8"},
    {"pages-pending", ".", "g4F", "",
     "N0:8 N1:8 c0:0:4@1 h1 d0:1:2@1 | c1:0:1@1 d1:0:1@1 c0:0:4@1 e1 c1:1:2"},
    {"pages-borrow", ".wla", "b", "cap:4", "N0:8 c0:0:4@1 h1 d0:1:2@1 | c0:0:4@2"},
    {"pages-wait-to-unmap", ".", "wY", "cap:3",
     "N0:8 N1:8 c0:2:2@1 h1 d0:2:2@1 c1:1:3@1 | d1:3:1@1 c0:2:1@1"},
    {"pages-full", ".wlk", "5O", "cap:4", "N0:8 c0:1:1 c0:4:1 | c0:0:8!O c0:0:3 c0:0:7!O d0:4:1"},
    {"pages-to-home", ".l", "1", "cap:5", "N0:8 c0:0:5 d0:1:3 | +a=3 -a c0:1:3"},
    {"bare-pages-to-home", ".l", "r", "cap:6 apart", "N0:8 c0:0:6 d0:1:4 | +a=4 -a c0:1:3"},
    {"pages-trim", ".1a", "T", "", "N0:8 N1:8 c0:0:5 d0:1:2 c1:3:3 d1:4:1 | T:4 T:0 c0:0:5"},
    {"pages-trim-pending", ".", "T", "", "N0:8 c0:0:4@1 h1 d0:1:2@1 | T:0 e1 T:0"},
    {"pages-handler", ".", "h", "cap:5 oom:a", "N0:8 +a=3 c0:1:1 | c0:3:3"},
    {"pages-capture", ".", "", "",
     "P0 N0:8 c0:0:3@1 B1:0 | c0:5:1@1 d0:1:1@1!C d0:4:1@1 E1 d0:1:1@1"},
    {"pages-left", ".a", "4D", "", "N0:8 c0:1:2 | N1:8 c1:3:2@1 d1:3:1@1"},

    /* buffers of pools */
    {"pool-buffer", ".wga", "4g", "", "P0 N0:8/p | c0:1:2 +a=1/p d0:1:1 c0:4:2 -a K0 D0"},
    {"pool-buffer-limited", ".", "4LO", "",
     "P0:1:4 N0:8/p c0:1:2 +a=1/p | c0:4:2!L -a c0:4:2 K0 D0"},
    {"pool-buffer-to-blocks", ".", "4", "", "P0:1:4 N0:8/p c0:0:4 | d0:1:3 +a=3/p -a K0 D0"},
    {"pool-buffer-stays", ".", "4", "", "P0 N0:8/p c0:1:2@1 | D0!I h1 K0@1 e1 D0 T:0"},
    {"pool-buffer-left", ".", "4D", "", "P0 N0:8/p | c0:1:2@1"},

    /* pools that are lent */
    {"lend", ".1f", "14N", "", "P0 B1:0 +a=4@1 -a E1 | l0@1 +b=3@1/t -b L0@1 B1:0 +c=4@1 E1"},
    {"lend-stitched", ".gf", "3ZNR", "",
     "P0 B1:0 +a-e=1@1 -ace E1 | l0@1 +x=3@1/tu -x +y=3@1/t L0@1!B -y L0@1 -bd D0"},
    {"lend-to-others", ".wf", "bNV", "",
     "P0 B1:0 +a=4@1 -a E1 | h1 l0@1 +b=2@2/t +c=1@1/t h2 -bc +d=4/t -d L0@2 D0"},
    {"lend-pending", ".", "PNV", "",
     "P0 B1:0 +a=2@1 -a E1 | l0@1 +b=2@1/t rb@2 h2 -b L0@1 B1:0 +c=2@1 E1 e2 -c D0"},
    {"lend-and-more", ".", "4N", "", "P0 B1:0 +a=1@1 -a E1 | l0@1 +b=3@1/t +c=1@1/t -bc L0@1"},
    {"lend-left", ".", "4D", "", "P0 B1:0 +a=2@1 -a E1 | l0@1 +b=1@1/t"},

    /* several processes */
    {"share", ".1fwk", "4P", "shared", "+a=3/x | xa -a +b=3"},
    {"share-window", ".g", "3ZPE", "shared", HOLES8 "+x=3/x | xx -x +y=3"},
    {"share-pending", ".", "4P", "shared cap:4", "+a=3/x@1 xa ra@2 h1 h2 -a | T:0 e2 T:0 e1 +b=4"},
    {"share-in-a-pool", ".", "4P", "shared", "P0 +a=2/xp | xa -a D0"},
    {"share-left", ".", "4D", "shared", "+a=2/x | xa"},

    /* policies */
    {"policy-piece", ".1wgfcplko", "2X", "ask:p", HOLES8 "| +x=512b +y=1 -x +z=1"},
    {"policy-piece-of-two-tags", ".p", "2X", "ask:p", LAY8 "-c -d@n | +x=1+1k -x +y=2"},
    {"policy-stitch", ".1wgfcplqm", "3Z", "ask:s", HOLES8 "| +x=2 -x +y=3"},
    {"policy-stitch-all", ".gp", "3Z", "ask:s", HOLES8 "+x=4 -x | +y=4"},
    {"policy-no-addresses", ".", "3Z", "ask:s window:4", HOLES8 "+x=3 | +y=2 -x +z=2"},
    {"policy-grow", ".1wcplkq", "4", "ask:g", "+a=1 | +b=5"},
    {"policy-grow-into-gap", ".p", "4T", "ask:g", LAY8 "-cd T:6 | +x=2"},
    {"policy-grow-too-much", ".lq", "5O", "ask:g cap:8", "+a=6 | +b=3!O"},
    {"policy-grow-after-trim", ".", "4", "ask:g cap:8", "P0 +a=6/p -a | +b=4"},
    {"policy-grow-and-stitch", ".wgcplq", "4Z", "ask:b", HOLES8 "| +x=4"},
    {"policy-reuse", ".1wgfpm", "1RZ", "ask:rs", HOLES8 "+x=3 -x | +y=3 -y +z=2"},
    {"policy-reuse-blocked", ".", "3RZ", "ask:rs", HOLES8 "+x=4 -x +a=1 | +y=3 -ya +z=4"},
    {"policy-former", ".1gfcp", "2XZ", "ask:k", LAY8 "-cdef | +x=2 -x"},
    {"policy-former-reused", ".gp", "2RZ", "ask:rk", LAY8 "-cdef +x=2 | -x +y=4"},
    {"policy-former-trimmed", ".g", "2TEZ", "ask:k", LAY8 "-cdef +x=2 | T:0 -x T:0"},
    {"policy-former-past-the-threshold", ".", "2EZ", "ask:k smax:4", LAY8 "-cdef +x=2 -x | +y=3"},
    {"policy-former-in-a-pool", ".", "2Z", "ask:k", "P0 +a=6/p -a | +b=2/p -b D0"},
    {"policy-evict", ".1wgp", "3EZ", "ask:es", HOLES8 "+x=3 -x +y=2 -y | +z=4"},
    {"policy-evict-built-in", ".wp", "3EZ", "ask:e", HOLES8 "+x=3 -x | +z=4"},
    {"policy-evict-pending", ".", "3Z", "ask:es", LAY8_ON_1 "-aceg h1 +x=3@1 -x | +y=4@1 e1"},
    {"policy-evict-and-grow", ".g", "4EZ", "ask:eb", HOLES8 "+x=3 -x | +y=4"},
    {"policy-evict-former", ".", "2EZ", "ask:ek", LAY8 "-cdefg +x=2 | +y=2"},
    {"policy-waits", ".w", "4r", "ask:5g cap:8", "+p=512b@2 +a=4@1 h1 -a | +b=4@2"},
    {"policy-waits-for-pending", ".", "wP", "ask:4g cap:8", "+p=512b@2 +a=4@1 ra@2 h2 -a | +b=3@1"},
    {"policy-gives-up", ".1wl", "5O", "ask:9", "+a-d=1 -ac | +y=2!O +z=1"},
    {"policy-handler", ".", "h", "ask:g cap:8 oom:a", "+a=5 | +b=5"},
    {"policy-keeps-apart", ".1fp", "T", "ask:c", LAY8 "-a-d | +x=2 T:0 -x +y=3"},
    {"policy-keeps-parts-apart", ".", "T", "ask:c", "+a-h=512b -a-h | +i=1k T:0 -i T:0"},
    {"policy-keeps-apart-and-grows", ".", "4", "ask:c", "+a=1+1k -a | +b=2/s +c=3"},
    {"policy-keeps-streams-apart", ".w", "V", "ask:c",
     LAY8_ON_1 "-abc -h@2 e1 | +x=2@2 -x@2 +y=1@1 +z=3@1"},
    {"policy-keeps-windows-apart", ".g", "3Z", "ask:c", HOLES8 "+x=3 | -x +y=2 -y"},
    {"policy-joins-nothing-pending", ".", "PV", "ask:c", "+a=1@1 +b=1@1 ra@2 h2 | -ab e2 +c=2@1"},
    {"policy-capture", ".", "3NZ", "ask:rsc",
     "P0 B1:0 +Z=8@1 -Z +a-h=1@1 -aceg | +x=3@1 -x +y=3@1 E1 -y"},
    {"policy-whole", ".wgm", "4RZ", "ask:rekspc cap:16",
     HOLES8 "+x=3 -x | +y=3 +z=2 -yz +i=6 -bd +j=5"},
};

#endif /* SCENARIOS_H */
