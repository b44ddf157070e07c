/* gmlake_turnip.h 0.2.0: compiles a graph to a memgraph, which runs in less memory, and proves it.

RECIPE
  One C or C++ file of the program says
      #define GMLAKE_OFFLOAD_IMPLEMENTATION
      #define GMLAKE_TURNIP_IMPLEMENTATION
      #include "gmlake_turnip.h"
  and every other file includes the header alone. It includes gmlake_offload.h, which has graphs,
  runs and backends, and whose other macros are said before it as they are before that one. Both
  implementations are in one file, since this one calls functions of the other that no other file
  sees. The other header's manual says how a memgraph is run.

EXAMPLE
      // Eight layers of 64 MiB of weights each, compiled for a device of 160 MiB.
      #define GMLAKE_OFFLOAD_IMPLEMENTATION
      #define GMLAKE_TURNIP_IMPLEMENTATION
      #include "gmlake_turnip.h"
      #include <stdio.h>
      static uint32_t tensor(gmlake_offload_graph *graph, size_t bytes, gmlake_offload_kind kind) {
        gmlake_offload_tensor_desc desc = {0};
        uint32_t id = GMLAKE_OFFLOAD_NONE;
        desc.bytes = bytes;
        desc.kind = kind;
        gmlake_offload_add_tensor(graph, &desc, &id);
        return id;
      }
      int main(void) {
        gmlake_offload_memgraph_desc desc = {0}; // an H200's link
        gmlake_offload_memgraph_info info;
        gmlake_offload_memgraph *memgraph;
        gmlake_offload_graph *graph;
        uint32_t reads[2], x, id, layer;
        if (gmlake_offload_graph_create(NULL, &graph)) return 1;
        reads[1] = tensor(graph, 1 << 20, GMLAKE_OFFLOAD_INPUT);
        for (layer = 0; layer < 8; layer++, reads[1] = x) {
          gmlake_offload_op_desc op = {0};
          reads[0] = tensor(graph, 64 << 20, GMLAKE_OFFLOAD_PERSISTENT);
          x = tensor(graph, 1 << 20, GMLAKE_OFFLOAD_INTERMEDIATE);
          op.time_ns = 1000000;
          op.reads = reads;
          op.read_count = 2;
          op.writes = &x;
          op.write_count = 1;
          gmlake_offload_add_op(graph, &op, &id);
        }
        if (gmlake_offload_graph_seal(graph)) return 1;
        desc.graph = graph;
        desc.device_bytes = 160 << 20;
        if (gmlake_offload_memgraph_create(&desc, &memgraph)) return 1;
        if (gmlake_offload_memgraph_check(memgraph, NULL)) return 1; // every order is right
        info.struct_bytes = 0;
        gmlake_offload_memgraph_get_info(memgraph, &info);
        // 17 nodes, of them 9 reloads
        printf("%zu nodes, of them %zu reloads\n", info.node_count, info.reload_count);
        gmlake_offload_memgraph_destroy(memgraph);
        gmlake_offload_graph_destroy(graph);
        return 0;
      }

WHAT IT DOES NOT DO
  It does not split tensors or operators, and recomputes nothing. A memgraph has the operators of
  one graph only.

MACROS, beside those of gmlake_offload.h, whose linkage, memory and assertions hold here, too
  GMLAKE_TURNIP_IMPLEMENTATION  compiles the implementation, in the file that has
                                GMLAKE_OFFLOAD_IMPLEMENTATION

GLOSSARY, beside that of gmlake_offload.h
  TASKGRAPH   the paper's word for the graph that the caller made. A node is a vertex there, and a
              place a memory location or a slot
  dependency  what an edge stands for. It is a data dependency if the node uses what the other one
              made, and a memory dependency if it only uses the same bytes again
  horizon     a position in the graph's order of operators that the compiler has reached. It
              executes operators at one horizon, and looks ahead at others
  home        the place on the device where a tensor is when an iteration begins and when it ends
  version     the bytes of a tensor after one write and before the next one

HOW TURNIP COMPILES
  The method is that of Ding et al., arXiv 2405.16283, and this text uses its words. The compiler
  (BUILDMEMGRAPH) executes the operators in the graph's order without a device, and notes which node
  must come before which.
  1. The execution horizon (execHzn) goes from operator to operator. Each operator becomes a node.
     It gets data dependencies on the nodes that made, or reloaded, what it reads; and memory
     dependencies on all nodes that used the bytes which it overwrites. When a tensor is no longer
     needed its memory becomes free; free memory remembers the nodes that used it last (simFree).
  2. The allocation horizon (allocHzn) is ahead of it. There the tensors of an operator get their
     places. What the operator reads and the device lacks is reloaded (simMallocForceReld). Of the
     free places the one that was unused for longest is taken (simMalloc), since its last users have
     probably ended. If no free place is large enough, tensors leave whose next use is farthest away
     (simMallocOffld). If several neighbours must leave together, the soonest next use among them
     counts. What the host has already is not copied again.
  3. By default a third horizon is farther ahead. It only reloads: a copy takes longer than memory
     takes to become free. The second and third horizon may take memory from tensors that are used
     later. In paper mode there are two horizons. At the allocation horizon only what the operator
     makes gets its place, and only free memory is taken. What it reads is reloaded when it is
     executed (Figure 8). A reload frees the place on the host, so a tensor that leaves again is
     copied again; and small tensors may leave, too.
  4. If an operator's tensors find no places when it is executed, although the device is large
     enough for them, all tensors leave the device, and those of the operator are placed at its
     begin. So every amount of memory is enough that has room for the largest operator.
  5. Tensors that exist between iterations get a home on the device, as far as homes have room
     beside the largest operator. The others begin and end on the host. What no operator writes is
     dropped without a copy. At the end of an iteration, tensors go back to their homes as soon as
     these are free. So each iteration begins as the one before it began. Homes go to the tensors
     that are used first, or are spread over the iteration, which keeps the link busy all the time.
  6. If the memory is enough for it, the compiler first makes a memgraph in which nothing moves.
     Else, or if that one keeps operators waiting for memory, it tries several settings: how far the
     horizons are ahead, how much memory homes get, and whether they are spread. It simulates an
     iteration of each memgraph, with the graph's times and the link's speed, and keeps the fastest
     memgraph.

  Where even paper mode is not the paper's, and why:
  - The paper has no iterations. What exists between them keeps its place on the host.
  - An addition to a sum is an operator like others, and additions to one sum run in the graph's
    order, since the results would depend on the order.
  - An operator's workspace is a tensor that it makes, which the caller adds to the graph.
  - A run has one stream for each queue, not five for each device, unless stream_count says
    otherwise: operators that run at once share the device, which delays the one that others wait
    for (bench/offload/README.md has a figure).
  - A run asks the backend again and again what has ended; the paper's sleeps until the driver calls
    it.

HOW A MEMGRAPH IS CHECKED
  gmlake_offload_memgraph_check uses the graph, the nodes, their edges and their places, and nothing
  that the compiler knew. It proves three things:
  - Each operator is a node exactly once, all places are inside their arenas, and all edges come
    from nodes that have lower numbers, and lower ones in the simulated order: there is no cycle.
  - If the nodes run one after another, by their numbers, then each reads, byte for byte, the
    version that the graph says, and the next iteration finds what it needs.
  - Of any two nodes that use the same bytes, one of them writing, a path of edges leads from one to
    the other. Therefore the second point is true in every order that the edges allow.

THREADS
  Any number of threads may compile one sealed graph, and read or check one memgraph, at a time.

ERRORS
  As in gmlake_offload.h. gmlake_offload_memgraph_check explains what is wrong with a memgraph.

COSTS
  Compiling: for each memgraph that is tried, an operator costs O(log bytes) for each tensor that
  gets a free place, and O(places) for each that others have to leave for. Up to 72 memgraphs are
  tried, but no further one after .1 to 1 s.
  Checking: O(nodes * places that overlap), and at most O(nodes * edges / 64) for the paths.

Licence: MIT, at the end of this file. */
#include "gmlake_offload.h"

#if !defined(GMLAKE_TURNIP_H_INCLUDED)
#define GMLAKE_TURNIP_H_INCLUDED

#define GMLAKE_TURNIP_VERSION 200 /* major * 10000 + minor * 100 + patch */

#if defined(__cplusplus)
extern "C" {
#endif

/* ---- Compiling and checking ----------------------------------------------------------------- */

/* All zero but the graph: room for all tensors, nothing moves; an H200's link. */
typedef struct gmlake_offload_memgraph_desc {
  const gmlake_offload_graph *graph; /* sealed; outlives the memgraph */
  unsigned flags;                    /* GMLAKE_OFFLOAD_PAPER */
  size_t device_bytes;               /* of each device's arena; 0: enough for all its tensors */
  const size_t *bytes_by_device;     /* instead of that one value for each device; may be NULL */
  size_t align_bytes;                /* all places are multiples of it; a power of two; 0: 512 */
  size_t tensor_bytes_min;  /* smaller tensors leave only if nothing else helps; 0: 1 MiB */
  uint64_t alloc_ahead_ns;  /* an operator gets its memory this long before it runs; */
  uint64_t reload_ahead_ns; /* its tensors are reloaded this long before. 0 each: several values are
                               tried. In paper mode memory is taken ahead as long as some is free */
  double out_bytes_per_s;   /* each device's link, for simulating; 0: 55e9 */
  double in_bytes_per_s;    /* 0: 55e9 */
  uint64_t copy_ns;         /* time of each copy besides that of its bytes; 0: 10 us */
  gmlake_offload_host host;
} gmlake_offload_memgraph_desc;

/* What gmlake_offload_memgraph_check found. */
typedef struct gmlake_offload_memgraph_fault {
  gmlake_offload_result result;
  uint32_t node, other; /* the node that is wrong, and the one that it conflicts with; or NONE */
  uint32_t tensor;      /* or NONE */
  char text[120];
} gmlake_offload_memgraph_fault;

/* Compiles a graph of any number of devices: TASKGRAPH to MEMGRAPH.
   Errors: INVALID_ARGUMENT; NOT_SEALED; OUT_OF_DEVICE_MEMORY (the tensors of one operator, each
   rounded up to align_bytes, are larger than its device's arena); SIZE_OVERFLOW (the rounded sizes,
   or all arenas together, are too large); OUT_OF_HOST_MEMORY. *out_memgraph is then NULL. */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_memgraph_create(
    const gmlake_offload_memgraph_desc *desc, gmlake_offload_memgraph **out_memgraph);

/* Proves that every order that the edges allow gives the graph's results: see HOW A MEMGRAPH IS
   CHECKED. out_fault may be NULL. Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY; or what is wrong
   with the memgraph:
   INCOMPLETE  an operator is missing or is there twice; or a tensor does not begin or end where it
               should
   BAD_PLACE   a place passes its arena's end; or two places of one node overlap; or an operator
               does not update a tensor in place
   CYCLE       a node waits for one behind it, by number or in the simulated order: nodes may wait
               for each other in a cyclic schedule
   RACE        two nodes use the same bytes, one of them writes, and no path orders the two
   STALE_READ  a node, or the next iteration, reads other bytes than it should */
GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_memgraph_check(
    const gmlake_offload_memgraph *memgraph, gmlake_offload_memgraph_fault *out_fault);
#if defined(__cplusplus)
}
#endif

#endif /* GMLAKE_TURNIP_H_INCLUDED */

/* ---- Users can stop here; the implementation is below ---------------------------------------- */

#if defined(GMLAKE_TURNIP_IMPLEMENTATION) && !defined(GMLAKE_TURNIP_IMPLEMENTATION_DONE)
#define GMLAKE_TURNIP_IMPLEMENTATION_DONE

#if !defined(GMLO_BYTES_MAX) /* gmlake_offload.h's implementation is not in this file */
#error "define GMLAKE_OFFLOAD_IMPLEMENTATION, too, where GMLAKE_TURNIP_IMPLEMENTATION is defined"
#endif

/* ---- SECTIONS (grep -n '---- >>'). Each ends with its public functions.
     >>reach >>edges >>blocks >>compile >>tune >>memcheck */

/* ---- >>reach: reachability ----------------------------------------------------------------------
   Owns nothing but its scratch memory. A graph is given by the predecessors of its nodes: those of
   node v are before[begin[v]] up to before[begin[v + 1] - 1], all below v. Sources are taken
   GMLO_SOURCES at a time, with one bit for each: bit s in the row of a node is set if a path leads
   from source s to it, or if it is source s. A row is full if all its bits are set; then so are the
   rows of all nodes that the node leads to.
   Cost: nodes times edges / 64 at most; next to nothing for rows that are full, and for nodes
   without an edge from a source. Fails: where host memory is refused. */

#define GMLO_SOURCES 2048u
#define GMLO_WORD_BITS 64u
#define GMLO_ROW_WORDS (GMLO_SOURCES / GMLO_WORD_BITS)

typedef struct gmlo_edges {
  const size_t *begin;
  const uint32_t *before;
  size_t node_count;
} gmlo_edges;

static int gmlo_reach_bit(const uint64_t *row, size_t source) {
  return (int)(row[source / GMLO_WORD_BITS] >> (source % GMLO_WORD_BITS) & 1);
}

/* Fills the row of node first + v, whose predecessors' rows are filled. */
static void gmlo_reach_fill_row(const gmlo_edges *edges, size_t first, size_t v, uint64_t *rows,
                                unsigned char *full) {
  uint64_t *row = rows + v * GMLO_ROW_WORDS, all = UINT64_MAX;
  size_t e, w;
  memset(row, 0, GMLO_ROW_WORDS * sizeof *row);
  full[v] = 0;
  for (e = edges->begin[first + v + 1]; e-- > edges->begin[first + v];) {
    size_t from = (size_t)edges->before[e] - first;
    if (edges->before[e] < first) continue;
    if (full[from]) {
      full[v] = 1;
      memset(row, 0xFF, GMLO_ROW_WORDS * sizeof *row);
    } else {
      for (w = 0; w < GMLO_ROW_WORDS && !full[v]; w++) row[w] |= rows[from * GMLO_ROW_WORDS + w];
    }
  }
  if (full[v]) return;
  if (v < GMLO_SOURCES) row[v / GMLO_WORD_BITS] |= (uint64_t)1 << (v % GMLO_WORD_BITS);
  for (w = 0; w < GMLO_ROW_WORDS; w++) all &= row[w];
  full[v] = all == UINT64_MAX;
}

/* Fills the rows of all nodes from `first` on, for GMLO_SOURCES sources from `first` on. Behind the
   rows stands which of them are full. */
static void gmlo_reach_fill(const gmlo_edges *edges, size_t first, uint64_t *rows) {
  unsigned char *full = (unsigned char *)(rows + edges->node_count * GMLO_ROW_WORDS);
  size_t v;
  for (v = 0; first + v < edges->node_count; v++) {
    gmlo_reach_fill_row(edges, first, v, rows, full);
  }
}

static uint64_t *gmlo_reach_rows(const gmlake_offload_host *host, size_t node_count) {
  return (uint64_t *)gmlo_zeroed(host, node_count, GMLO_ROW_WORDS * sizeof(uint64_t) + 1);
}

/* ---- >>edges: the edges of a memgraph -----------------------------------------------------------
   Owns nothing: works on a memgraph that is being made. Invariant: [V1] of gmlake_offload.h.
   Cost: linear. Fails: where host memory is refused. */

/* A memgraph without nodes. NULL if host memory is refused. */
static gmlake_offload_memgraph *gmlo_memgraph_new(const gmlake_offload_memgraph_desc *desc) {
  const gmlake_offload_graph *graph = desc->graph;
  gmlake_offload_memgraph *m = (gmlake_offload_memgraph *)gmlo_zeroed(&desc->host, 1, sizeof *m);
  if (m == NULL) return NULL;
  m->scope = gmlo_scope_of(&desc->host);
  m->graph = graph;
  m->ref_offsets = (size_t *)gmlo_take(&m->scope, graph->ref_count, sizeof *m->ref_offsets);
  m->begins = (gmlake_offload_place *)gmlo_take(&m->scope, graph->tensor_count, sizeof *m->begins);
  m->ends = (gmlake_offload_place *)gmlo_take(&m->scope, graph->tensor_count, sizeof *m->ends);
  m->device_bytes = (size_t *)gmlo_take(&m->scope, graph->device_count, sizeof *m->device_bytes);
  if (m->ref_offsets == NULL || m->begins == NULL || m->ends == NULL || m->device_bytes == NULL) {
    gmlake_offload_memgraph_destroy(m);
    return NULL;
  }
  return m;
}

/* Lists the successors of each node. 0 if host memory is refused. */
static int gmlo_memgraph_transpose(gmlake_offload_memgraph *m) {
  const gmlake_offload_host *host = &m->scope.host;
  size_t v, e;
  m->after_begin = (size_t *)gmlo_zeroed(host, m->node_count + 2, sizeof *m->after_begin);
  m->after = (uint32_t *)gmlo_zeroed(host, m->edge_count, sizeof *m->after);
  if (m->after_begin == NULL || m->after == NULL) return 0;
  for (e = 0; e < m->edge_count; e++) m->after_begin[m->before[e] + 2]++;
  for (v = 0; v < m->node_count; v++) m->after_begin[v + 2] += m->after_begin[v + 1];
  for (v = 0; v < m->node_count; v++) {
    for (e = m->before_begin[v]; e < m->before_begin[v + 1]; e++) {
      m->after[m->after_begin[m->before[e] + 1]++] = (uint32_t)v;
    }
  }
  return 1;
}

/* ---- >>blocks: places in the arenas -------------------------------------------------------------
   Owns the compiler's state: the blocks of the arenas, where each tensor is, and the nodes that
   used each block. Invariants, also of >>compile:
   [B1] The blocks of an arena follow each other without gaps. A block belongs to one tensor or is
        free. Free blocks beside each other are a hole: its first and its last block name each
        other, and the first is in the arena's list for holes of that size.
   [B2] The users of a free block are the nodes that must have ended before its bytes are written.
        The same holds for the users of a tensor's block; the node that produced the tensor is one
        of them or comes before them.
   [B4] A block that was joined with another one has the offset NOWHERE and, as `prev`, the one that
        it was joined with, until it is used again.
   Cost: taking a block or giving it back is O(blocks in it); finding free blocks looks at no more
   than GMLO_FITS of them for each class of holes; finding victims is O(blocks). Fails: where host
   memory is refused (`failed`). */

typedef struct gmlo_list_cell { /* a node in a list; lists may share their ends */
  uint32_t node, next;
} gmlo_list_cell;

typedef struct gmlo_block {
  size_t offset, bytes;
  uint32_t device;
  uint32_t tensor; /* or NONE */
  uint32_t prev, next, users;
  size_t used;         /* free blocks: `exec_horizon` when it became free, + 1; 0: never used */
  uint32_t hole_other; /* of a hole's first block: the last one, and the reverse */
  uint32_t hole_prev, hole_next; /* of a hole's first block, in the arena's list */
  size_t hole_bytes;             /* of a hole's first block: bytes of the hole */
} gmlo_block;

#define GMLO_HOLE_CLASSES 32u /* lists of holes; each has holes twice as large as the one before */
#define GMLO_FITS 256u        /* in one list, at most so many places are looked at */
#define GMLO_TUNE_WORK_MIN 40000000u /* for all memgraphs that are tried, at least: .1 s or more */

typedef struct gmlo_arena {
  uint32_t first;                    /* the block at offset 0 */
  uint32_t holes[GMLO_HOLE_CLASSES]; /* the first of each list: about the longest unused one */
  uint32_t lasts[GMLO_HOLE_CLASSES];
  size_t high; /* bytes from here on were never used */
} gmlo_arena;

typedef struct gmlo_residence { /* where a tensor is, on its device or on the host */
  uint32_t block;               /* or NONE: it has none, or it stays on the host for good */
  uint32_t users, producer;     /* nodes that used this block; the one that filled it */
  int there;                    /* the block has the tensor's bytes */
} gmlo_residence;

typedef struct gmlo_compile_tensor { /* a tensor, as far as the compiler has come */
  gmlo_residence device, host;
  int read; /* the device's `users` are nodes that read it, not the producer */
  int has_home;
  uint32_t home_near; /* of those with a home: the block in which it began when last looked for */
  size_t home;        /* offset of the home */
  size_t host_offset; /* for tensors that no operator makes, or NOWHERE */
  size_t next;        /* the next one of its accesses */
} gmlo_compile_tensor;

/* What the graph needs of its devices, with every tuning. */
typedef struct gmlo_devices {
  size_t *bytes, *largest; /* of each device: its arena, and its largest operator */
  uint64_t least_ns;       /* all operators of the busiest device; no iteration is shorter */
  uint64_t fill_ns;        /* how long it takes to copy the largest arena */
} gmlo_devices;

#define GMLO_ALIGN_BYTES 512u /* of places, by default */

/* Settings of the compiler; see >>tune. */
typedef struct gmlo_tuning {
  uint64_t alloc_ahead_ns, reload_ahead_ns;
  unsigned home_percent; /* of the memory that homes can have */
  int home_spread;       /* homes are spread over the iteration; else for what is used first */
  int in_place;          /* nothing moves, or there is no memgraph */
} gmlo_tuning;

typedef struct gmlo_compiler {
  gmlo_scope scope;
  const gmlake_offload_graph *graph;
  const gmlake_offload_memgraph_desc *desc;
  const gmlo_devices *devices;
  gmlake_offload_memgraph *out;
  gmlo_compile_tensor *tensors;
  gmlo_arena *arenas; /* of the devices, then of the host */
  size_t device_count;
  gmlo_block *blocks;
  size_t block_count, block_capacity;
  uint32_t spare_blocks; /* a list by `next` */
  gmlo_list_cell *cells;
  size_t cell_count, cell_capacity;
  uint32_t *homes;
  size_t home_count, away_count; /* tensors with a home; of them, those not on their device */
  uint64_t *begin_ns;            /* of each position */
  gmlo_tuning tuning;
  size_t exec_horizon, alloc_horizon, reload_horizon; /* positions in the graph's order */
  uint32_t marks;
  size_t host_fixed_bytes;
  size_t work;   /* looks at blocks and homes, so far */
  int first_fit; /* places are taken at the lowest offset */
  int paper;     /* in paper mode: what is read is reloaded when its operator is executed */
  int failed;
} gmlo_compiler;

/* Bytes of a tensor's place. */
static size_t gmlo_place_bytes(const gmlo_compiler *c, uint32_t tensor) {
  return gmlo_footprint(c->graph, tensor, c->desc->align_bytes);
}

/* ---- Lists of nodes ---- */

static uint32_t gmlo_list_push(gmlo_compiler *c, uint32_t list, uint32_t node) {
  gmlo_list_cell *cell = (gmlo_list_cell *)gmlo_more(&c->scope.host, &c->cells, c->cell_count, 1,
                                                     &c->cell_capacity, sizeof *cell);
  if (cell == NULL) {
    c->failed = 1;
    return list;
  }
  cell->node = node;
  cell->next = list;
  return (uint32_t)c->cell_count++;
}

/* Puts the nodes of `more` that are not marked before those of `list`. */
static uint32_t gmlo_list_join(gmlo_compiler *c, uint32_t list, uint32_t more) {
  uint32_t at;
  for (at = more; at != GMLAKE_OFFLOAD_NONE; at = c->cells[at].next) {
    gmlake_offload_node *node = &c->out->nodes[c->cells[at].node];
    if (node->start == c->marks) continue;
    node->start = c->marks;
    list = gmlo_list_push(c, list, c->cells[at].node);
  }
  return list;
}

/* ---- Nodes and edges ---- */

static uint32_t gmlo_node_add(gmlo_compiler *c, gmlake_offload_node_kind kind, uint32_t device,
                              uint32_t op, uint32_t tensor) {
  gmlake_offload_memgraph *m = c->out;
  const gmlake_offload_host *host = &c->scope.host;
  gmlake_offload_node *node = (gmlake_offload_node *)gmlo_more(host, &m->nodes, m->node_count, 1,
                                                               &m->node_capacity, sizeof *node);
  size_t *end = (size_t *)gmlo_more(host, &m->before_begin, m->node_count + 1, 1,
                                    &m->begin_capacity, sizeof *end);
  if (node == NULL || end == NULL || m->node_count >= GMLAKE_OFFLOAD_NONE - 1) {
    c->failed = 1;
    return GMLAKE_OFFLOAD_NONE;
  }
  node->kind = kind;
  node->device = device;
  node->op = op;
  node->tensor = tensor;
  node->device_offset = node->host_offset = GMLAKE_OFFLOAD_NOWHERE;
  m->before_begin[0] = 0;
  *end = m->edge_count;
  c->marks++;
  return (uint32_t)m->node_count++;
}

/* Adds an edge to the node that was added last, unless there is one already. Callers add data
   dependencies before memory dependencies. */
static void gmlo_edge_add(gmlo_compiler *c, uint32_t from, int memory) {
  gmlake_offload_memgraph *m = c->out;
  const gmlake_offload_host *host = &c->scope.host;
  uint32_t *before;
  unsigned char *kind;
  if (from == GMLAKE_OFFLOAD_NONE || c->failed || m->nodes[from].start == c->marks) return;
  before =
      (uint32_t *)gmlo_more(host, &m->before, m->edge_count, 1, &m->edge_capacity, sizeof *before);
  kind = (unsigned char *)gmlo_more(host, &m->memory, m->edge_count, 1, &m->memory_capacity, 1);
  if (before == NULL || kind == NULL) {
    c->failed = 1;
    return;
  }
  m->nodes[from].start = c->marks;
  *before = from;
  *kind = (unsigned char)memory;
  m->before_begin[m->node_count] = ++m->edge_count;
}

static void gmlo_edges_add(gmlo_compiler *c, uint32_t list) {
  for (; list != GMLAKE_OFFLOAD_NONE; list = c->cells[list].next) {
    gmlo_edge_add(c, c->cells[list].node, 1);
  }
}

/* ---- Blocks ---- */

static uint32_t gmlo_block_new(gmlo_compiler *c) {
  uint32_t id = c->spare_blocks;
  if (id != GMLAKE_OFFLOAD_NONE) {
    c->spare_blocks = c->blocks[id].next;
    return id;
  }
  if (gmlo_more(&c->scope.host, &c->blocks, c->block_count, 1, &c->block_capacity,
                sizeof *c->blocks) == NULL) {
    c->failed = 1;
    return GMLAKE_OFFLOAD_NONE;
  }
  return (uint32_t)c->block_count++;
}

static int gmlo_is_free(const gmlo_compiler *c, uint32_t b) {
  return b != GMLAKE_OFFLOAD_NONE && c->blocks[b].tensor == GMLAKE_OFFLOAD_NONE;
}

static unsigned gmlo_hole_class(size_t bytes) {
  unsigned size = 0;
  for (bytes /= 1024; bytes != 0 && size + 1 < GMLO_HOLE_CLASSES; bytes /= 2) size++;
  return size;
}

/* Makes the free blocks from `first` to `last` a hole [B1]. `behind`: it comes at the end of its
   list, since it was given back now; else, being the rest of another hole, at the begin. */
static void gmlo_hole_add(gmlo_compiler *c, gmlo_arena *arena, uint32_t first, uint32_t last,
                          int behind) {
  gmlo_block *hole = &c->blocks[first];
  unsigned size;
  c->blocks[last].hole_other = first;
  hole->hole_other = last;
  hole->hole_bytes = c->blocks[last].offset + c->blocks[last].bytes - hole->offset;
  size = gmlo_hole_class(hole->hole_bytes);
  hole->hole_prev = behind ? arena->lasts[size] : GMLAKE_OFFLOAD_NONE;
  hole->hole_next = behind ? GMLAKE_OFFLOAD_NONE : arena->holes[size];
  if (hole->hole_prev != GMLAKE_OFFLOAD_NONE) c->blocks[hole->hole_prev].hole_next = first;
  if (hole->hole_next != GMLAKE_OFFLOAD_NONE) c->blocks[hole->hole_next].hole_prev = first;
  if (hole->hole_prev == GMLAKE_OFFLOAD_NONE) arena->holes[size] = first;
  if (hole->hole_next == GMLAKE_OFFLOAD_NONE) arena->lasts[size] = first;
}

static void gmlo_hole_remove(gmlo_compiler *c, gmlo_arena *arena, uint32_t first) {
  const gmlo_block *hole = &c->blocks[first];
  unsigned size = gmlo_hole_class(hole->hole_bytes);
  if (hole->hole_prev != GMLAKE_OFFLOAD_NONE) {
    c->blocks[hole->hole_prev].hole_next = hole->hole_next;
  } else {
    arena->holes[size] = hole->hole_next;
  }
  if (hole->hole_next != GMLAKE_OFFLOAD_NONE) {
    c->blocks[hole->hole_next].hole_prev = hole->hole_prev;
  } else {
    arena->lasts[size] = hole->hole_prev;
  }
}

/* Splits the block: what is above `bytes` becomes a block of its own. 0 if host memory is refused.
   pre: the block is free. */
static int gmlo_block_split(gmlo_compiler *c, uint32_t b, size_t bytes) {
  uint32_t id = gmlo_block_new(c);
  gmlo_block *low, *high;
  if (id == GMLAKE_OFFLOAD_NONE) return 0;
  low = &c->blocks[b];
  high = &c->blocks[id];
  *high = *low;
  high->offset += bytes;
  high->bytes -= bytes;
  high->prev = b;
  low->bytes = bytes;
  low->next = id;
  if (high->next != GMLAKE_OFFLOAD_NONE) c->blocks[high->next].prev = id;
  if (!gmlo_is_free(c, high->next)) { /* it is the hole's last block now */
    c->blocks[low->hole_other].hole_other = id;
    if (low->hole_other == b) high->hole_other = b;
  }
  return 1;
}

/* Joins the block with the one behind it, and their users. pre: both are free. */
static void gmlo_block_absorb(gmlo_compiler *c, uint32_t b) {
  gmlo_block *low = &c->blocks[b];
  uint32_t id = low->next;
  gmlo_block *high = &c->blocks[id];
  low->bytes += high->bytes;
  low->next = high->next;
  if (high->next != GMLAKE_OFFLOAD_NONE) c->blocks[high->next].prev = b;
  low->users = gmlo_list_join(c, low->users, high->users);
  high->offset = GMLAKE_OFFLOAD_NOWHERE; /* [B4] */
  high->next = c->spare_blocks;
  c->spare_blocks = id;
}

/* Gives the tensor `bytes` from the begin of block b on. What is left of the hole becomes up to two
   holes. 0 if host memory is refused. pre: these bytes are free. [B2] */
static int gmlo_block_take(gmlo_compiler *c, gmlo_arena *arena, uint32_t b, size_t bytes,
                           uint32_t tensor) {
  uint32_t first = b, next;
  while (gmlo_is_free(c, c->blocks[first].prev)) first = c->blocks[first].prev;
  gmlo_hole_remove(c, arena, first);
  if (c->blocks[b].bytes < bytes) {
    uint32_t users = c->blocks[b].users;
    c->marks++;
    c->blocks[b].users = gmlo_list_join(c, GMLAKE_OFFLOAD_NONE, users);
  }
  while (c->blocks[b].bytes < bytes) {
    size_t more = bytes - c->blocks[b].bytes;
    next = c->blocks[b].next;
    if (c->blocks[next].bytes > more && !gmlo_block_split(c, next, more)) return 0;
    gmlo_block_absorb(c, b);
  }
  if (c->blocks[b].bytes > bytes && !gmlo_block_split(c, b, bytes)) return 0;
  c->blocks[b].tensor = tensor;
  next = c->blocks[b].next;
  if (gmlo_is_free(c, next)) gmlo_hole_add(c, arena, next, c->blocks[first].hole_other, 0);
  if (first != b) gmlo_hole_add(c, arena, first, c->blocks[b].prev, 0);
  if (c->blocks[b].offset + bytes > arena->high) arena->high = c->blocks[b].offset + bytes;
  return 1;
}

/* Makes a tensor's block free, for nodes that come behind its users. [B2] */
static void gmlo_block_give(gmlo_compiler *c, gmlo_arena *arena, uint32_t b, uint32_t users) {
  gmlo_block *block = &c->blocks[b];
  uint32_t first = b, last = b;
  block->tensor = GMLAKE_OFFLOAD_NONE;
  block->users = users;
  block->used = c->exec_horizon + 1;
  if (gmlo_is_free(c, block->prev)) {
    first = c->blocks[block->prev].hole_other;
    gmlo_hole_remove(c, arena, first);
  }
  if (gmlo_is_free(c, block->next)) {
    last = c->blocks[block->next].hole_other;
    gmlo_hole_remove(c, arena, block->next);
  }
  gmlo_hole_add(c, arena, first, last, 1);
}

static int gmlo_arena_init(gmlo_compiler *c, uint32_t device, size_t bytes) {
  gmlo_arena *arena = &c->arenas[device];
  gmlo_block *block;
  size_t i;
  for (i = 0; i < GMLO_HOLE_CLASSES; i++) arena->holes[i] = arena->lasts[i] = GMLAKE_OFFLOAD_NONE;
  arena->first = gmlo_block_new(c);
  if (arena->first == GMLAKE_OFFLOAD_NONE) return 0;
  block = &c->blocks[arena->first];
  memset(block, 0, sizeof *block);
  block->bytes = bytes;
  block->device = device;
  block->tensor = block->prev = block->next = block->users = GMLAKE_OFFLOAD_NONE;
  gmlo_hole_add(c, arena, arena->first, arena->first, 1);
  return 1;
}

/* The position of the tensor's next use. Behind all operators comes its use at home, and behind
   that none. */
static size_t gmlo_compile_next_use(const gmlo_compiler *c, uint32_t tensor) {
  const gmlo_compile_tensor *state = &c->tensors[tensor];
  if (state->next < c->graph->access_begin[tensor + 1]) {
    return c->graph->accesses[state->next].position;
  }
  return c->graph->op_count + !state->has_home;
}

/* Looks in the hole that begins at *b for blocks in a row that have `bytes` and were unused for
   longest, and at least as long as *used says. 1 if there are some: *b is the first of them, *used
   the latest position at which one of them was used. Looks at *left places at most. */
static int gmlo_hole_best(gmlo_compiler *c, uint32_t *b, size_t bytes, size_t *used,
                          unsigned *left) {
  uint32_t from = *b, last = c->blocks[*b].hole_other, e;
  int found = 0;
  if (c->blocks[last].used == 0 && c->blocks[last].bytes >= bytes) { /* it was never used */
    *b = last;
    *used = 0;
    return 1;
  }
  for (; gmlo_is_free(c, from) && *left != 0; --*left) {
    size_t sum = 0, most = 0;
    uint32_t latest = from;
    for (e = from; gmlo_is_free(c, e) && sum < bytes && most <= *used; e = c->blocks[e].next) {
      c->work++;
      sum += c->blocks[e].bytes;
      if (c->blocks[e].used < most) continue;
      most = c->blocks[e].used;
      latest = e;
    }
    if (most <= *used) {
      if (sum < bytes) break;
      if (!found || most < *used) *b = from;
      *used = most;
      found = 1;
    }
    from = c->blocks[latest].next; /* every place that begins before it contains it */
  }
  return found;
}

/* Finds free blocks in a row that have `bytes`: those that were unused for longest, of some in each
   list of holes; or, if `lowest`, those at the lowest offset. Returns the first block, or NONE. */
static uint32_t gmlo_find_free(gmlo_compiler *c, const gmlo_arena *arena, size_t bytes,
                               int lowest) {
  uint32_t best = GMLAKE_OFFLOAD_NONE, b;
  size_t best_used = SIZE_MAX;
  unsigned size;
  for (size = gmlo_hole_class(bytes); size < GMLO_HOLE_CLASSES; size++) {
    unsigned left = GMLO_FITS;
    for (b = arena->holes[size]; gmlo_is_free(c, b) && left != 0; b = c->blocks[b].hole_next) {
      uint32_t at = b;
      size_t used = best_used;
      c->work++;
      if (c->blocks[b].hole_bytes < bytes) continue;
      if (!lowest && !gmlo_hole_best(c, &at, bytes, &used, &left)) continue;
      if (best != GMLAKE_OFFLOAD_NONE && used == best_used &&
          c->blocks[at].offset > c->blocks[best].offset) {
        continue;
      }
      best = at;
      best_used = used;
    }
  }
  return best;
}

/* Whether the tensor may leave to make room for a use at `after`. */
static int gmlo_is_victim(const gmlo_compiler *c, uint32_t tensor, size_t after, int small) {
  return gmlo_compile_next_use(c, tensor) > after && c->tensors[tensor].device.there &&
         (small || c->graph->tensors[tensor].bytes >= c->desc->tensor_bytes_min);
}

/* Finds blocks in a row that have `bytes` and are free or of tensors that may leave: those whose
   soonest next use is farthest away. Returns the first block, or NONE. */
static uint32_t gmlo_find_victims(gmlo_compiler *c, const gmlo_arena *arena, size_t bytes,
                                  size_t after, int small) {
  uint32_t b = arena->first, best = GMLAKE_OFFLOAD_NONE, e;
  size_t best_age = 0, best_moved = 0;
  while (b != GMLAKE_OFFLOAD_NONE) {
    size_t sum = 0, moved = 0, least = SIZE_MAX;
    uint32_t soonest = b;
    for (e = b; e != GMLAKE_OFFLOAD_NONE && sum < bytes; e = c->blocks[e].next) {
      uint32_t tensor = c->blocks[e].tensor;
      size_t age = SIZE_MAX;
      c->work++;
      if (tensor != GMLAKE_OFFLOAD_NONE) {
        if (!gmlo_is_victim(c, tensor, after, small)) break;
        age = gmlo_compile_next_use(c, tensor);
        moved += c->blocks[e].bytes;
      }
      sum += c->blocks[e].bytes;
      if (age <= least) {
        least = age;
        soonest = e;
      }
    }
    if (sum < bytes) {
      b = e == GMLAKE_OFFLOAD_NONE ? e : c->blocks[e].next;
      continue;
    }
    if (best == GMLAKE_OFFLOAD_NONE || least > best_age ||
        (least == best_age && moved < best_moved)) {
      best = b;
      best_age = least;
      best_moved = moved;
    }
    b = c->blocks[soonest].next;
  }
  return best;
}

/* ---- >>compile: a TASKGRAPH becomes a MEMGRAPH --------------------------------------------------
   Executes the operators in the graph's order without a device, and writes down nodes and edges.
   Invariants:
   [B3] Each operator from position `exec_horizon` up to `alloc_horizon` has all its tensors on the
        device, or a block for what it makes. No victim is used before `alloc_horizon`.
   [B5] A tensor with a home is there, with all its bytes, when an iteration begins and when it
        ends.
   Cost: O(blocks) for each tensor of an operator that needs a place. Fails: where host memory is
   refused (`failed`), and where an operator is larger than its device. */

/* ---- Tensors that come and go ---- */

/* simFree: the tensor is no longer on its device, or on the host; its block becomes free. Tensors
   that no operator makes keep their place on the host. */
static void gmlo_sim_free(gmlo_compiler *c, uint32_t tensor, int on_host) {
  gmlo_compile_tensor *state = &c->tensors[tensor];
  gmlo_residence *at = on_host ? &state->host : &state->device;
  size_t arena = on_host ? c->device_count : c->graph->tensors[tensor].device;
  at->there = 0;
  at->producer = GMLAKE_OFFLOAD_NONE;
  if (at->block == GMLAKE_OFFLOAD_NONE) return;
  gmlo_block_give(c, &c->arenas[arena], at->block, at->users);
  at->block = at->users = GMLAKE_OFFLOAD_NONE;
  c->away_count += (size_t)(state->has_home && !on_host);
}

/* Gives the tensor a place in the host's arena: for good if it exists between iterations, else one
   that other tensors may have used. 0 if host memory is refused. */
static int gmlo_host_place(gmlo_compiler *c, uint32_t tensor) {
  gmlo_compile_tensor *state = &c->tensors[tensor];
  gmlo_arena *arena = &c->arenas[c->device_count];
  size_t bytes = gmlo_place_bytes(c, tensor);
  uint32_t b;
  if (!gmlo_kind_is_made(c->graph->tensors[tensor].kind)) {
    if (state->host_offset != GMLAKE_OFFLOAD_NOWHERE) return 1;
    state->host_offset = c->host_fixed_bytes;
    c->host_fixed_bytes += bytes;
    return 1;
  }
  if (state->host.block != GMLAKE_OFFLOAD_NONE) return 1;
  b = gmlo_find_free(c, arena, bytes, 1);
  if (b == GMLAKE_OFFLOAD_NONE || !gmlo_block_take(c, arena, b, bytes, tensor)) return 0;
  state->host.block = b;
  state->host.users = c->blocks[b].users;
  return 1;
}

static size_t gmlo_host_offset(const gmlo_compiler *c, uint32_t tensor) {
  const gmlo_compile_tensor *state = &c->tensors[tensor];
  return state->host.block != GMLAKE_OFFLOAD_NONE ? c->blocks[state->host.block].offset
                                                  : state->host_offset;
}

/* Adds the offload, or the reload, of a tensor that has a block on both sides. */
static void gmlo_copy_add(gmlo_compiler *c, gmlake_offload_node_kind kind, uint32_t tensor) {
  gmlo_compile_tensor *state = &c->tensors[tensor];
  int is_out = kind == GMLAKE_OFFLOAD_NODE_OFFLOAD;
  gmlo_residence *from = is_out ? &state->device : &state->host;
  gmlo_residence *to = is_out ? &state->host : &state->device;
  uint32_t node =
      gmlo_node_add(c, kind, c->graph->tensors[tensor].device, GMLAKE_OFFLOAD_NONE, tensor);
  if (node == GMLAKE_OFFLOAD_NONE) return;
  c->out->nodes[node].device_offset = c->blocks[state->device.block].offset;
  c->out->nodes[node].host_offset = gmlo_host_offset(c, tensor);
  gmlo_edge_add(c, from->producer, 0);
  gmlo_edges_add(c, to->users);
  from->users = gmlo_list_push(c, from->users, node);
  to->users = gmlo_list_push(c, GMLAKE_OFFLOAD_NONE, node);
  to->producer = node;
  to->there = 1;
}

/* The second half of simMallocOffld: the tensor leaves. It is copied if the host does not have its
   bytes. */
static void gmlo_evict(gmlo_compiler *c, uint32_t tensor) {
  gmlo_compile_tensor *state = &c->tensors[tensor];
  if (state->device.there && !gmlo_host_place(c, tensor)) {
    c->failed = 1;
    return;
  }
  if (state->device.there && !state->host.there) {
    gmlo_copy_add(c, GMLAKE_OFFLOAD_NODE_OFFLOAD, tensor);
  }
  gmlo_sim_free(c, tensor, 0);
}

/* Makes the tensors leave that are in the way, and gives the tensor its place from block b on. 0 if
   host memory is refused. */
static int gmlo_occupy(gmlo_compiler *c, uint32_t b, uint32_t tensor) {
  gmlo_compile_tensor *state = &c->tensors[tensor];
  gmlo_arena *arena = &c->arenas[c->graph->tensors[tensor].device];
  size_t bytes = gmlo_place_bytes(c, tensor), sum = 0;
  uint32_t e;
  for (e = b; sum < bytes; e = c->blocks[e].next) {
    sum += c->blocks[e].bytes;
    if (c->blocks[e].tensor != GMLAKE_OFFLOAD_NONE) gmlo_evict(c, c->blocks[e].tensor);
    if (c->failed) return 0;
  }
  if (!gmlo_block_take(c, arena, b, bytes, tensor)) return 0;
  c->away_count -= (size_t)state->has_home;
  state->device.block = b;
  state->device.users = c->blocks[b].users;
  state->device.producer = GMLAKE_OFFLOAD_NONE;
  state->device.there = state->read = 0;
  return 1;
}

/* The block in which the tensor's home begins: found from the one in which it began before. [B4]
   [B5] */
static uint32_t gmlo_home_block(gmlo_compiler *c, uint32_t tensor) {
  gmlo_compile_tensor *state = &c->tensors[tensor];
  uint32_t device = c->graph->tensors[tensor].device, b = state->home_near;
  while (c->blocks[b].offset == GMLAKE_OFFLOAD_NOWHERE) b = c->blocks[b].prev;
  if (c->blocks[b].device != device || c->blocks[b].offset > state->home) {
    b = c->arenas[device].first;
  }
  while (c->blocks[b].offset + c->blocks[b].bytes <= state->home) b = c->blocks[b].next;
  state->home_near = b;
  return b;
}

/* Gives the tensor its home, if all of it is free or of tensors that may leave. 1 if it did. */
static int gmlo_occupy_home(gmlo_compiler *c, uint32_t tensor, size_t after) {
  size_t home = c->tensors[tensor].home, end = home + gmlo_place_bytes(c, tensor);
  uint32_t b = gmlo_home_block(c, tensor), e;
  for (e = b; e != GMLAKE_OFFLOAD_NONE && c->blocks[e].offset < end; e = c->blocks[e].next) {
    uint32_t other = c->blocks[e].tensor;
    if (other != GMLAKE_OFFLOAD_NONE && !gmlo_is_victim(c, other, after, 1)) return 0;
  }
  if (c->blocks[b].tensor != GMLAKE_OFFLOAD_NONE) gmlo_evict(c, c->blocks[b].tensor);
  if (!c->failed && c->blocks[b].offset < home) {
    if (!gmlo_block_split(c, b, home - c->blocks[b].offset)) return 0;
    b = c->blocks[b].next;
  }
  return !c->failed && gmlo_occupy(c, b, tensor);
}

/* simMalloc, and simMallocOffld: gives the tensor a place. Tensors that are not used up to `after`
   may leave for it, none if `after` is SIZE_MAX. 0 if there is no place. */
static int gmlo_sim_malloc(gmlo_compiler *c, uint32_t tensor, size_t after, int small) {
  gmlo_compile_tensor *state = &c->tensors[tensor];
  const gmlo_arena *arena = &c->arenas[c->graph->tensors[tensor].device];
  size_t bytes = gmlo_place_bytes(c, tensor);
  uint32_t b;
  if (state->has_home && !c->first_fit && gmlo_occupy_home(c, tensor, SIZE_MAX)) return 1;
  b = gmlo_find_free(c, arena, bytes, c->first_fit);
  if (b == GMLAKE_OFFLOAD_NONE && after != SIZE_MAX) {
    b = gmlo_find_victims(c, arena, bytes, after, small);
  }
  return b != GMLAKE_OFFLOAD_NONE && gmlo_occupy(c, b, tensor);
}

/* Fills the tensor's new block. */
static void gmlo_reload_add(gmlo_compiler *c, uint32_t tensor) {
  gmlo_copy_add(c, GMLAKE_OFFLOAD_NODE_RELOAD, tensor);
  if (c->paper && gmlo_kind_is_made(c->graph->tensors[tensor].kind)) gmlo_sim_free(c, tensor, 1);
}

/* simMallocForceReld: reloads the tensor. 0 if there is no place for it. */
static int gmlo_sim_reload(gmlo_compiler *c, uint32_t tensor, size_t after, int small) {
  if (!c->tensors[tensor].host.there || !gmlo_sim_malloc(c, tensor, after, small)) return 0;
  gmlo_reload_add(c, tensor);
  return !c->failed;
}

/* ---- Operators ---- */

/* Gives all tensors of the operator at `position` their places, or at the reload horizon
   (`prefetches`) those that it reads and that the host has. 0 if one finds none. Only tensors that
   are not used up to `after` leave. In paper mode only what the operator makes gets a place before
   it is executed. [B3] */
static int gmlo_alloc_op(gmlo_compiler *c, size_t position, size_t after, int small,
                         int prefetches) {
  uint32_t op = c->graph->order[position];
  const gmlo_op *o = &c->graph->ops[op];
  size_t i;
  for (i = 0; i < o->read_count + o->write_count; i++) {
    uint32_t tensor = gmlo_op_ref(c->graph, op, i);
    gmlo_compile_tensor *state = &c->tensors[tensor];
    int is_next = c->graph->accesses[state->next].position == position;
    int reads = i < o->read_count || (gmlo_op_uses(c->graph, op, tensor) & GMLO_READS) != 0;
    if (state->device.block != GMLAKE_OFFLOAD_NONE && (reads || is_next)) continue;
    if (c->paper && position != c->exec_horizon && (reads || !is_next)) continue;
    if (prefetches && (!reads || !state->host.there)) continue;
    if (reads) {
      if (!gmlo_sim_reload(c, tensor, after, small)) return 0;
    } else if (!is_next || !gmlo_sim_malloc(c, tensor, after, small)) {
      return 0;
    }
  }
  return 1;
}

/* The operator at `exec_horizon` must get its places now: small tensors leave too, and, if that is
   not enough, all tensors on its devices; then its tensors are placed from the begin on. */
static int gmlo_alloc_now(gmlo_compiler *c) {
  uint32_t op = c->graph->order[c->exec_horizon];
  const gmlo_op *o = &c->graph->ops[op];
  size_t i;
  int done;
  if (c->tuning.in_place) return gmlo_alloc_op(c, c->exec_horizon, SIZE_MAX, 0, 0);
  if (gmlo_alloc_op(c, c->exec_horizon, c->exec_horizon, 0, 0)) return 1;
  if (!c->failed && gmlo_alloc_op(c, c->exec_horizon, c->exec_horizon, 1, 0)) return 1;
  for (i = 0; i < o->read_count + o->write_count; i++) {
    uint32_t b = c->arenas[c->graph->tensors[gmlo_op_ref(c->graph, op, i)].device].first;
    for (; b != GMLAKE_OFFLOAD_NONE && !c->failed; b = c->blocks[b].next) {
      if (c->blocks[b].tensor != GMLAKE_OFFLOAD_NONE) gmlo_evict(c, c->blocks[b].tensor);
    }
  }
  c->first_fit = 1;
  done = !c->failed && gmlo_alloc_op(c, c->exec_horizon, c->exec_horizon, 1, 0);
  c->first_fit = 0;
  return done;
}

/* Brings tensors back to their homes that no operator of this iteration uses any more. Only tensors
   that are not used up to `after` leave for them. */
static void gmlo_fill_homes(gmlo_compiler *c, size_t after) {
  size_t i;
  for (i = 0; i < c->home_count && !c->failed; i++) {
    uint32_t tensor = c->homes[i];
    const gmlo_compile_tensor *state = &c->tensors[tensor];
    c->work++;
    if (state->device.block != GMLAKE_OFFLOAD_NONE || !state->host.there) continue;
    if (state->next < c->graph->access_begin[tensor + 1]) continue;
    if (gmlo_occupy_home(c, tensor, after)) gmlo_reload_add(c, tensor);
  }
}

/* Goes on to the tensor's next access: a tensor that is not needed any more is freed, one without a
   home leaves. */
static void gmlo_access_end(gmlo_compiler *c, uint32_t tensor) {
  gmlo_compile_tensor *state = &c->tensors[tensor];
  gmlake_offload_kind kind = c->graph->tensors[tensor].kind;
  int again = ++state->next < c->graph->access_begin[tensor + 1];
  if (again ? c->graph->accesses[state->next].how == GMLO_WRITES
            : kind == GMLAKE_OFFLOAD_INTERMEDIATE) {
    gmlo_sim_free(c, tensor, 0);
    gmlo_sim_free(c, tensor, 1);
  } else if (!again && !state->has_home && !gmlo_kind_is_made(kind)) {
    gmlo_evict(c, tensor);
  }
}

static void gmlo_op_edges(gmlo_compiler *c, uint32_t op) {
  const gmlo_op *o = &c->graph->ops[op];
  size_t i, count = o->read_count + o->write_count;
  for (i = 0; i < o->read_count; i++)
    gmlo_edge_add(c, c->tensors[gmlo_op_ref(c->graph, op, i)].device.producer, 0);
  for (i = o->read_count; i < count; i++)
    gmlo_edges_add(c, c->tensors[gmlo_op_ref(c->graph, op, i)].device.users);
}

/* Makes the operator at `exec_horizon` a node, with its edges. */
static void gmlo_execute(gmlo_compiler *c) {
  uint32_t op = c->graph->order[c->exec_horizon];
  const gmlo_op *o = &c->graph->ops[op];
  size_t i, count = o->read_count + o->write_count;
  uint32_t node = gmlo_node_add(c, GMLAKE_OFFLOAD_NODE_OP, o->device, op, GMLAKE_OFFLOAD_NONE);
  for (i = 0; i < count; i++) {
    uint32_t block = c->tensors[gmlo_op_ref(c->graph, op, i)].device.block;
    c->out->ref_offsets[o->first_ref + i] = c->blocks[block].offset;
  }
  gmlo_op_edges(c, op);
  for (i = 0; i < count; i++) {
    uint32_t tensor = gmlo_op_ref(c->graph, op, i);
    gmlo_compile_tensor *state = &c->tensors[tensor];
    int writes = i >= o->read_count;
    state->device.users =
        gmlo_list_push(c, writes || !state->read ? GMLAKE_OFFLOAD_NONE : state->device.users, node);
    state->read = !writes;
    if (!writes) continue;
    state->device.producer = node;
    state->device.there = 1;
    gmlo_sim_free(c, tensor, 1);
  }
  for (i = 0; i < count && !c->failed; i++) { /* the loop skips the second reference of an update */
    uint32_t tensor = gmlo_op_ref(c->graph, op, i);
    size_t next = c->tensors[tensor].next;
    if (next < c->graph->access_begin[tensor + 1] && c->graph->accesses[next].op == op) {
      gmlo_access_end(c, tensor);
    }
  }
}

#define GMLO_FILLS 2048u /* in an iteration, all homes are looked at no more often */

/* Moves the horizons ahead of `exec_horizon`: reloads tensors, and gives operators their places. */
static void gmlo_advance_horizons(gmlo_compiler *c) {
  size_t n = c->graph->op_count;
  int free_only = c->tuning.in_place || c->paper;
  uint64_t now = c->begin_ns[c->exec_horizon];
  if (c->reload_horizon < c->alloc_horizon) c->reload_horizon = c->alloc_horizon;
  while (!c->paper && c->reload_horizon < n && !c->failed &&
         c->begin_ns[c->reload_horizon] - now <= c->tuning.reload_ahead_ns &&
         gmlo_alloc_op(c, c->reload_horizon, c->reload_horizon, 0, 1)) {
    c->reload_horizon++;
  }
  while (c->alloc_horizon < n && c->begin_ns[c->alloc_horizon] - now <= c->tuning.alloc_ahead_ns &&
         !c->failed &&
         gmlo_alloc_op(c, c->alloc_horizon, free_only ? SIZE_MAX : c->alloc_horizon, 0, 0)) {
    c->alloc_horizon++;
  }
  if (c->reload_horizon >= n && c->away_count != 0 && c->exec_horizon % (n / GMLO_FILLS + 1) == 0) {
    gmlo_fill_homes(c, SIZE_MAX);
  }
}

/* Makes tensors leave that are not at their home, then brings all back to their homes. [B5] */
static void gmlo_go_home(gmlo_compiler *c) {
  size_t i;
  for (i = 0; i < c->home_count && !c->failed; i++) {
    const gmlo_compile_tensor *state = &c->tensors[c->homes[i]];
    if (state->device.block == GMLAKE_OFFLOAD_NONE) continue;
    if (c->blocks[state->device.block].offset != state->home) gmlo_evict(c, c->homes[i]);
  }
  gmlo_fill_homes(c, c->graph->op_count);
}

/* ---- Before and after ---- */

typedef struct gmlo_persistent {
  uint32_t tensor;
  size_t key;
} gmlo_persistent;

static int gmlo_persistent_before(const void *a, const void *b) {
  return ((const gmlo_persistent *)a)->key < ((const gmlo_persistent *)b)->key;
}

/* Lists the tensors of the device that exist between iterations: small ones first, then the others
   by their first use. */
static size_t gmlo_list_persistent(const gmlo_compiler *c, uint32_t device,
                                   gmlo_persistent *starts) {
  const gmlake_offload_graph *graph = c->graph;
  size_t t, count = 0;
  for (t = 0; t < graph->tensor_count; t++) {
    const gmlo_tensor *tensor = &graph->tensors[t];
    size_t first = graph->access_begin[t];
    if (tensor->device != device || gmlo_kind_is_made(tensor->kind)) continue;
    if (first == graph->access_begin[t + 1]) continue;
    starts[count].tensor = (uint32_t)t;
    starts[count].key = graph->accesses[first].position + (size_t)1;
    if (tensor->bytes < c->desc->tensor_bytes_min) starts[count].key = 0;
    count++;
  }
  gmlo_sort(starts, starts + graph->tensor_count, count, sizeof *starts, gmlo_persistent_before);
  return count;
}

/* Gives the tensor its home, above the homes so far. 0 if host memory is refused. */
static int gmlo_give_home(gmlo_compiler *c, uint32_t tensor, uint32_t *b, size_t *bytes) {
  gmlo_compile_tensor *state = &c->tensors[tensor];
  size_t more = gmlo_place_bytes(c, tensor);
  if (!gmlo_block_take(c, &c->arenas[c->graph->tensors[tensor].device], *b, more, tensor)) return 0;
  state->device.block = state->home_near = *b;
  state->has_home = state->device.there = 1;
  state->home = *bytes;
  c->homes[c->home_count++] = tensor;
  *bytes += more;
  *b = c->blocks[*b].next;
  return 1;
}

/* Gives homes to the tensors that have room beside the largest operator. If homes are spread, a
   first pass gives them evenly over the list, in proportion to the bytes that it has passed. */
static int gmlo_choose_homes(gmlo_compiler *c, uint32_t device, gmlo_persistent *starts) {
  size_t i, count = gmlo_list_persistent(c, device, starts), bytes = 0;
  double room = (double)(c->devices->bytes[device] - c->devices->largest[device]), all = 0;
  double seen = 0;
  int spread = c->tuning.home_spread;
  uint32_t b = c->arenas[device].first;
  room = room * c->tuning.home_percent / 100;
  if (c->tuning.in_place) room = (double)c->devices->bytes[device];
  for (i = 0; i < count; i++) all += (double)gmlo_place_bytes(c, starts[i].tensor);
  for (; spread >= 0; spread--) {
    for (i = 0; i < count && b != GMLAKE_OFFLOAD_NONE; i++) {
      double more = (double)gmlo_place_bytes(c, starts[i].tensor);
      seen += more;
      if (c->tensors[starts[i].tensor].has_home || (double)bytes + more > room) continue;
      if (spread && starts[i].key != 0 && (double)bytes + more > room * (seen / all)) continue;
      if (!gmlo_give_home(c, starts[i].tensor, &b, &bytes)) return 0;
    }
  }
  return 1;
}

/* Chooses where tensors begin: without a home on the host; with a home on the device, and on the
   host too if no operator writes them. */
static int gmlo_compile_begin(gmlo_compiler *c) {
  const gmlake_offload_graph *graph = c->graph;
  gmlo_persistent *starts =
      (gmlo_persistent *)gmlo_take(&c->scope, graph->tensor_count, 2 * sizeof *starts);
  size_t t, i, d;
  if (starts == NULL) return 0;
  for (t = 0; t < graph->tensor_count; t++) {
    gmlo_compile_tensor *state = &c->tensors[t];
    state->device.block = state->device.users = state->device.producer = GMLAKE_OFFLOAD_NONE;
    state->host = state->device;
    state->host_offset = GMLAKE_OFFLOAD_NOWHERE;
    state->next = graph->access_begin[t];
  }
  for (d = 0; d <= c->device_count; d++) {
    size_t bytes = d < c->device_count ? c->devices->bytes[d] : GMLO_BYTES_MAX;
    if (!gmlo_arena_init(c, (uint32_t)d, bytes)) return 0;
  }
  for (d = 0; d < c->device_count; d++) {
    if (!gmlo_choose_homes(c, (uint32_t)d, starts)) return 0;
  }
  for (t = 0; t < graph->tensor_count; t++) {
    gmlo_compile_tensor *state = &c->tensors[t];
    int written = 0;
    if (gmlo_kind_is_made(graph->tensors[t].kind)) continue;
    for (i = graph->access_begin[t]; i < graph->access_begin[t + 1]; i++) {
      written |= (graph->accesses[i].how & GMLO_WRITES) != 0;
    }
    state->host.there = !state->has_home || !written;
    if (!state->has_home && !gmlo_host_place(c, (uint32_t)t)) return 0;
  }
  return 1;
}

static int gmlo_compile_scratch(gmlo_compiler *c) {
  const gmlake_offload_graph *graph = c->graph;
  size_t p;
  uint64_t sum = 0;
  c->device_count = graph->device_count;
  c->spare_blocks = GMLAKE_OFFLOAD_NONE;
  c->tensors = (gmlo_compile_tensor *)gmlo_take(&c->scope, graph->tensor_count, sizeof *c->tensors);
  c->arenas = (gmlo_arena *)gmlo_take(&c->scope, c->device_count + 1, sizeof *c->arenas);
  c->homes = (uint32_t *)gmlo_take(&c->scope, graph->tensor_count, sizeof *c->homes);
  c->begin_ns = (uint64_t *)gmlo_take(&c->scope, graph->op_count, sizeof *c->begin_ns);
  if (c->tensors == NULL || c->arenas == NULL || c->homes == NULL || c->begin_ns == NULL) {
    return 0;
  }
  for (p = 0; p < graph->op_count; p++) { /* estimates: as if all devices were busy all the time */
    c->begin_ns[p] = sum / c->device_count;
    sum += graph->ops[graph->order[p]].time_ns;
  }
  return !c->failed;
}

/* Notes where tensors are between iterations. In the host's arena the tensors that stay come first,
   then the blocks for the others. */
static void gmlo_compile_places(gmlo_compiler *c) {
  gmlake_offload_memgraph *m = c->out;
  size_t t, d, i;
  for (i = 0; i < m->node_count; i++) {
    gmlake_offload_node *node = &m->nodes[i];
    m->info.op_count += node->kind == GMLAKE_OFFLOAD_NODE_OP;
    if (node->kind == GMLAKE_OFFLOAD_NODE_OP) continue;
    if (gmlo_kind_is_made(c->graph->tensors[node->tensor].kind)) {
      node->host_offset += c->host_fixed_bytes;
    }
    if (node->kind == GMLAKE_OFFLOAD_NODE_OFFLOAD) {
      m->info.offload_count++;
      m->info.offload_bytes += c->graph->tensors[node->tensor].bytes;
    } else {
      m->info.reload_count++;
      m->info.reload_bytes += c->graph->tensors[node->tensor].bytes;
    }
  }
  for (t = 0; t < c->graph->tensor_count; t++) {
    const gmlo_compile_tensor *state = &c->tensors[t];
    int made = gmlo_kind_is_made(c->graph->tensors[t].kind);
    gmlake_offload_place *end = &m->ends[t];
    end->device_offset = end->host_offset = GMLAKE_OFFLOAD_NOWHERE;
    if (state->device.block != GMLAKE_OFFLOAD_NONE)
      end->device_offset = c->blocks[state->device.block].offset;
    if (state->host.there) end->host_offset = gmlo_host_offset(c, (uint32_t)t);
    if (state->host.there && made) end->host_offset += c->host_fixed_bytes;
    m->begins[t] = *end;
    if (made) m->begins[t].device_offset = m->begins[t].host_offset = GMLAKE_OFFLOAD_NOWHERE;
  }
  for (d = 0; d < c->device_count; d++) {
    m->device_bytes[d] = c->arenas[d].high;
    m->info.device_bytes += c->arenas[d].high;
  }
  m->info.host_bytes = c->host_fixed_bytes + c->arenas[d].high;
  m->info.node_count = m->node_count;
  m->info.device_count = c->device_count;
  m->info.align_bytes = c->desc->align_bytes;
}

static void gmlo_compiler_leave(gmlo_compiler *c) {
  gmlo_free(&c->scope.host, c->blocks);
  gmlo_free(&c->scope.host, c->cells);
  gmlo_leave(&c->scope);
}

/* BUILDMEMGRAPH. NULL if host memory is refused: *out_refused is then 1. Also NULL if nothing may
   move and something would have to. */
static gmlake_offload_memgraph *gmlo_build_memgraph(const gmlake_offload_memgraph_desc *desc,
                                                    const gmlo_devices *devices,
                                                    const gmlo_tuning *tuning, int *out_refused) {
  gmlo_compiler c;
  size_t i;
  memset(&c, 0, sizeof c);
  c.scope = gmlo_scope_of(&desc->host);
  c.graph = desc->graph;
  c.desc = desc;
  c.devices = devices;
  c.tuning = *tuning;
  c.paper = (desc->flags & GMLAKE_OFFLOAD_PAPER) != 0;
  c.out = gmlo_memgraph_new(desc);
  c.failed = c.out == NULL || !gmlo_compile_scratch(&c) || !gmlo_compile_begin(&c);
  for (; c.exec_horizon < c.graph->op_count && !c.failed; c.exec_horizon++) {
    if (c.alloc_horizon <= c.exec_horizon) {
      if (!gmlo_alloc_now(&c)) break;
      c.alloc_horizon = c.exec_horizon + 1;
    }
    gmlo_advance_horizons(&c);
    if (c.paper && !c.failed && !gmlo_alloc_now(&c)) break;
    if (!c.failed) gmlo_execute(&c);
  }
  if (!c.failed) gmlo_go_home(&c);
  if (!c.failed && c.exec_horizon == c.graph->op_count) {
    gmlo_compile_places(&c);
    c.out->work = c.work;
    c.out->info.alloc_ahead_ns = tuning->alloc_ahead_ns;
    c.out->info.reload_ahead_ns = tuning->reload_ahead_ns;
    for (i = 0; i < c.home_count; i++) {
      c.out->info.home_bytes += desc->graph->tensors[c.homes[i]].bytes;
    }
  } else {
    gmlake_offload_memgraph_destroy(c.out);
    c.out = NULL;
  }
  *out_refused = c.failed;
  gmlo_compiler_leave(&c);
  return c.out;
}

/* ---- >>tune: the best of several memgraphs ------------------------------------------------------
   Compiles with several tunings, simulates each memgraph on a clock on which each queue does one
   thing at a time, and keeps the fastest.
   Cost: a simulation is linear in nodes and edges, times the queues. Fails: where host memory is
   refused. */

static uint64_t gmlo_node_time(const gmlake_offload_memgraph_desc *desc,
                               const gmlake_offload_node *node) {
  size_t bytes;
  if (node->kind == GMLAKE_OFFLOAD_NODE_OP) return desc->graph->ops[node->op].time_ns;
  bytes = desc->graph->tensors[node->tensor].bytes;
  return desc->copy_ns + gmlo_copy_time(bytes, node->kind == GMLAKE_OFFLOAD_NODE_OFFLOAD
                                                   ? desc->out_bytes_per_s
                                                   : desc->in_bytes_per_s);
}

/* How long an iteration takes; 0 if host memory is refused. Lists the nodes in the order in which
   they begin. */
static uint64_t gmlo_simulate(const gmlake_offload_memgraph_desc *desc,
                              gmlake_offload_memgraph *m) {
  gmlo_ready r;
  size_t q, done, first = 0;
  uint64_t now = 0, *ends;
  uint32_t *nodes;
  size_t started = 0;
  int made = gmlo_ready_make(&r, m, &desc->host, 0);
  ends = (uint64_t *)gmlo_take(&r.scope, r.queue_count, sizeof *ends);
  nodes = (uint32_t *)gmlo_take(&r.scope, r.queue_count, sizeof *nodes);
  made = made && ends != NULL && nodes != NULL;
  if (made) gmlo_ready_begin(&r);
  for (done = 0; made && done < m->node_count; done++) {
    uint64_t least = UINT64_MAX;
    for (q = 0; q < r.queue_count; q++) {
      if (r.queues[q].active == 0) {
        nodes[q] = gmlo_ready_pop(&r, q);
        if (nodes[q] == GMLAKE_OFFLOAD_NONE) continue;
        m->nodes[nodes[q]].start = (uint32_t)started;
        m->starts[started++] = nodes[q];
        ends[q] = now + gmlo_node_time(desc, &m->nodes[nodes[q]]);
        if (ends[q] > UINT64_MAX / 2) ends[q] = UINT64_MAX / 2; /* hundreds of years */
      }
      if (ends[q] >= least) continue;
      least = ends[q];
      first = q;
    }
    now = least;
    gmlo_ready_done(&r, nodes[first]);
  }
  gmlo_leave(&r.scope);
  return made ? now + 1 : 0;
}

#define GMLO_TUNE_WORK_MAX 100000000u /* and at most */
#define GMLO_OP_WORK 5000u            /* between these, so much for each operator */
#define GMLO_NODE_WORK 256u           /* a node takes about as long */
#define GMLO_FILL_PARTS 256 /* horizons are so many parts of the time that fills a device */
#define GMLO_IDLE_PART 500  /* a device that idles for one part in so many is busy all along */
#define GMLO_PARAMETERS 4
#define GMLO_TUNINGS 72

static const int gmlo_parameter_values[GMLO_PARAMETERS] = {4, 3, 2,
                                                           3}; /* their product is GMLO_TUNINGS */

typedef struct gmlo_tuner {
  const gmlake_offload_memgraph_desc *desc;
  const gmlo_devices *devices;
  gmlake_offload_memgraph *best;
  int at;      /* the tuning of the best one */
  size_t left; /* work that may be done */
  unsigned char seen[GMLO_TUNINGS];
} gmlo_tuner;

/* Fills in the tuning of that number, which has one digit for each parameter. 0 if a lower number
   gives the same tuning, since the caller has fixed a parameter. */
static int gmlo_tuning_set(const gmlo_tuner *r, int number, gmlo_tuning *tuning) {
  static const unsigned reload[] = {32, 8, 2, 128}, alloc[] = {2, 0, 8}; /* in parts of fill_ns */
  static const unsigned percent[] = {100, 80, 50};
  const gmlake_offload_memgraph_desc *desc = r->desc;
  uint64_t part = r->devices->fill_ns / GMLO_FILL_PARTS;
  memset(tuning, 0, sizeof *tuning);
  tuning->reload_ahead_ns = part * reload[number % 4];
  tuning->alloc_ahead_ns = part * alloc[number / 4 % 3];
  tuning->home_spread = number / 12 % 2 == 0;
  tuning->home_percent = percent[number / 24];
  if (desc->reload_ahead_ns != 0) tuning->reload_ahead_ns = desc->reload_ahead_ns;
  if (desc->alloc_ahead_ns != 0) tuning->alloc_ahead_ns = desc->alloc_ahead_ns;
  return (desc->reload_ahead_ns == 0 || number % 4 == 0) &&
         (desc->alloc_ahead_ns == 0 || number / 4 % 3 == 0);
}

/* Compiles with the tuning, and simulates the memgraph. NULL as gmlo_build_memgraph. */
static gmlake_offload_memgraph *gmlo_compile_timed(const gmlake_offload_memgraph_desc *desc,
                                                   const gmlo_devices *devices,
                                                   const gmlo_tuning *tuning, int *out_refused) {
  gmlake_offload_memgraph *m = gmlo_build_memgraph(desc, devices, tuning, out_refused);
  if (m == NULL) return NULL;
  m->starts = (uint32_t *)gmlo_zeroed(&desc->host, m->node_count, sizeof *m->starts);
  if (m->starts != NULL && gmlo_memgraph_transpose(m)) {
    m->info.time_ns = gmlo_simulate(desc, m);
  }
  if (m->info.time_ns != 0) return m;
  *out_refused = 1;
  gmlake_offload_memgraph_destroy(m);
  return NULL;
}

/* The memgraph in which nothing moves. NULL if host memory is refused, or if there is no room. */
static gmlake_offload_memgraph *gmlo_compile_in_place(const gmlake_offload_memgraph_desc *desc,
                                                      const gmlo_devices *devices,
                                                      int *out_refused) {
  gmlo_tuning tuning;
  size_t d;
  *out_refused = 0;
  for (d = 0; d < desc->graph->device_count; d++) {
    if (desc->graph->devices[d].peak_bytes > devices->bytes[d]) return NULL;
  }
  memset(&tuning, 0, sizeof tuning);
  tuning.in_place = 1;
  tuning.home_percent = 100;
  return gmlo_compile_timed(desc, devices, &tuning, out_refused);
}

/* Tries a tuning, unless it was tried already, the work is done, or the best memgraph keeps a
   device busy all along. Keeps the faster memgraph. 0 if host memory is refused. */
static int gmlo_tuner_try(gmlo_tuner *r, int number) {
  uint64_t least = r->devices->least_ns;
  gmlake_offload_memgraph *m, *former = r->best;
  gmlo_tuning tuning;
  size_t work;
  int refused;
  if (r->seen[number] || !gmlo_tuning_set(r, number, &tuning) || r->left == 0) return 1;
  if (former != NULL && former->info.time_ns <= least + least / GMLO_IDLE_PART) return 1;
  r->seen[number] = 1;
  m = gmlo_compile_timed(r->desc, r->devices, &tuning, &refused);
  if (m == NULL) return 0;
  work = m->work + GMLO_NODE_WORK * m->node_count;
  r->left -= work < r->left ? work : r->left;
  if (former == NULL || m->info.time_ns < former->info.time_ns) {
    r->best = m;
    r->at = number;
    m = former;
  }
  gmlake_offload_memgraph_destroy(m);
  return 1;
}

/* Tells the nodes where their edges and places are. */
static gmlake_offload_memgraph *gmlo_memgraph_finish(gmlake_offload_memgraph *m) {
  size_t v, e;
  if (m == NULL) return NULL;
  m->info.edge_count = m->edge_count;
  for (e = 0; e < m->edge_count; e++) m->info.memory_edge_count += m->memory[e];
  for (v = 0; v < m->node_count; v++) {
    gmlake_offload_node *node = &m->nodes[v];
    node->before_count = m->before_begin[v + 1] - m->before_begin[v];
    node->before = node->before_count != 0 ? m->before + m->before_begin[v] : NULL;
    node->memory = node->before_count != 0 ? m->memory + m->before_begin[v] : NULL;
    if (node->kind != GMLAKE_OFFLOAD_NODE_OP) continue;
    node->read_offsets = m->ref_offsets + m->graph->ops[node->op].first_ref;
    node->write_offsets = node->read_offsets + m->graph->ops[node->op].read_count;
  }
  return m;
}

/* Begins with the memgraph in which nothing moves, if there is one. Then descends by coordinates:
   sets one parameter after another to its best value, until nothing gets better. Then tries all
   other tunings. NULL if host memory is refused. */
static gmlake_offload_memgraph *gmlo_tune(const gmlake_offload_memgraph_desc *desc,
                                          const gmlo_devices *devices) {
  gmlo_tuner r;
  int parameter, value, unit, from, number = 0, done, refused;
  memset(&r, 0, sizeof r);
  r.desc = desc;
  r.devices = devices;
  r.left = desc->graph->op_count * GMLO_OP_WORK;
  if (r.left < GMLO_TUNE_WORK_MIN) r.left = GMLO_TUNE_WORK_MIN;
  if (r.left > GMLO_TUNE_WORK_MAX) r.left = GMLO_TUNE_WORK_MAX;
  r.best = gmlo_compile_in_place(desc, devices, &refused);
  done = !refused && gmlo_tuner_try(&r, 0);
  do {
    from = r.at;
    for (parameter = 0, unit = 1; parameter < GMLO_PARAMETERS;
         unit *= gmlo_parameter_values[parameter++]) {
      for (value = 0; value < gmlo_parameter_values[parameter] && done; value++) {
        int digit = r.at / unit % gmlo_parameter_values[parameter];
        done = gmlo_tuner_try(&r, r.at + (value - digit) * unit);
      }
    }
  } while (done && r.at != from);
  for (; number < GMLO_TUNINGS && done; number++) done = gmlo_tuner_try(&r, number);
  if (done) return gmlo_memgraph_finish(r.best);
  gmlake_offload_memgraph_destroy(r.best);
  return NULL;
}

/* In paper mode: memory is taken ahead as far as there is room, and the tensors that are used first
   have homes. */
static gmlake_offload_memgraph *gmlo_compile_paper(const gmlake_offload_memgraph_desc *desc,
                                                   const gmlo_devices *devices) {
  gmlo_tuning tuning;
  int refused;
  memset(&tuning, 0, sizeof tuning);
  tuning.alloc_ahead_ns = desc->alloc_ahead_ns != 0 ? desc->alloc_ahead_ns : UINT64_MAX;
  tuning.home_percent = 100;
  return gmlo_memgraph_finish(gmlo_compile_timed(desc, devices, &tuning, &refused));
}

/* Sets the bytes of each device's arena: what the caller said, or the sum of all its tensors. */
static gmlake_offload_result gmlo_devices_size(const gmlake_offload_memgraph_desc *desc,
                                               gmlo_devices *devices) {
  const gmlake_offload_graph *graph = desc->graph;
  size_t d, t, sum = 0, most = 0;
  for (t = 0; t < graph->tensor_count; t++) {
    size_t footprint = gmlo_footprint(graph, (uint32_t)t, desc->align_bytes);
    if (footprint > GMLO_BYTES_MAX - sum) return GMLAKE_OFFLOAD_ERROR_SIZE_OVERFLOW;
    sum += footprint;
    devices->bytes[graph->tensors[t].device] += footprint;
  }
  for (d = 0, sum = 0; d < graph->device_count; d++) {
    size_t asked = desc->bytes_by_device != NULL ? desc->bytes_by_device[d] : desc->device_bytes;
    if (asked != 0) devices->bytes[d] = asked / desc->align_bytes * desc->align_bytes;
    if (devices->bytes[d] > GMLO_BYTES_MAX - sum) return GMLAKE_OFFLOAD_ERROR_SIZE_OVERFLOW;
    sum += devices->bytes[d];
    if (devices->bytes[d] > most) most = devices->bytes[d];
  }
  devices->fill_ns = gmlo_copy_time(most, desc->in_bytes_per_s);
  return GMLAKE_OFFLOAD_OK;
}

/* Finds the largest operator and the busiest device. */
static gmlake_offload_result gmlo_devices_load(const gmlake_offload_memgraph_desc *desc,
                                               gmlo_devices *devices) {
  const gmlake_offload_graph *graph = desc->graph;
  size_t op, d;
  for (d = 0; d < graph->device_count; d++) {
    uint64_t busy_ns = graph->devices[d].time_ns;
    if (busy_ns > devices->least_ns) devices->least_ns = busy_ns;
  }
  for (op = 0; op < graph->op_count; op++) {
    const gmlo_op *o = &graph->ops[op];
    int target, transfer = (o->flags & GMLAKE_OFFLOAD_TRANSFER) != 0;
    for (target = 0; target <= transfer; target++) { /* a transfer's devices are two */
      uint32_t device = target ? graph->tensors[graph->refs[o->first_ref + 1]].device : o->device;
      size_t bytes = gmlo_graph_op_bytes(graph, (uint32_t)op, device, desc->align_bytes);
      if (bytes > devices->largest[device]) devices->largest[device] = bytes;
      if (bytes > devices->bytes[device]) return GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY;
    }
  }
  return GMLAKE_OFFLOAD_OK;
}

static gmlake_offload_result gmlo_memgraph_compile(const gmlake_offload_memgraph_desc *desc,
                                                   gmlake_offload_memgraph **out_memgraph) {
  gmlake_offload_result result = GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  size_t count = desc->graph->device_count;
  gmlo_devices devices;
  gmlo_scope scope = gmlo_scope_of(&desc->host);
  memset(&devices, 0, sizeof devices);
  devices.bytes = (size_t *)gmlo_take(&scope, count, sizeof *devices.bytes);
  devices.largest = (size_t *)gmlo_take(&scope, count, sizeof *devices.largest);
  if (devices.bytes != NULL && devices.largest != NULL) {
    result = gmlo_devices_size(desc, &devices);
    if (result == GMLAKE_OFFLOAD_OK) result = gmlo_devices_load(desc, &devices);
  }
  if (result == GMLAKE_OFFLOAD_OK) {
    *out_memgraph = (desc->flags & GMLAKE_OFFLOAD_PAPER) != 0 ? gmlo_compile_paper(desc, &devices)
                                                              : gmlo_tune(desc, &devices);
    if (*out_memgraph == NULL) result = GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  }
  gmlo_leave(&scope);
  return result;
}

static int gmlo_memgraph_desc_valid(const gmlake_offload_memgraph_desc *desc) {
  size_t align = desc->align_bytes, d;
  if ((desc->flags & ~GMLAKE_OFFLOAD_PAPER) != 0 || desc->graph == NULL ||
      (align & (align - 1)) != 0 || align > (size_t)1 << 30 ||
      desc->device_bytes > GMLO_BYTES_MAX || !gmlo_figure_valid(desc->out_bytes_per_s) ||
      !gmlo_figure_valid(desc->in_bytes_per_s) || desc->copy_ns > GMLO_TIME_MAX ||
      !gmlo_host_valid(&desc->host)) {
    return 0;
  }
  for (d = 0; desc->bytes_by_device != NULL && d < desc->graph->device_count; d++) {
    if (desc->bytes_by_device[d] > GMLO_BYTES_MAX) return 0;
  }
  return 1;
}

/* ---- Public functions ---- */

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_memgraph_create(
    const gmlake_offload_memgraph_desc *desc, gmlake_offload_memgraph **out_memgraph) {
  gmlake_offload_memgraph_desc filled;
  if (out_memgraph == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  *out_memgraph = NULL;
  if (desc == NULL || !gmlo_memgraph_desc_valid(desc)) {
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  if (!desc->graph->sealed) return GMLAKE_OFFLOAD_ERROR_NOT_SEALED;
  filled = *desc;
  if (filled.align_bytes == 0) filled.align_bytes = GMLO_ALIGN_BYTES;
  if (filled.tensor_bytes_min == 0) {
    filled.tensor_bytes_min =
        (filled.flags & GMLAKE_OFFLOAD_PAPER) != 0 ? 1 : GMLO_TENSOR_BYTES_MIN;
  }
  if (filled.copy_ns == 0) filled.copy_ns = GMLO_COPY_NS;
  gmlo_figure_default(&filled.out_bytes_per_s, GMLO_LINK_BYTES_PER_S);
  gmlo_figure_default(&filled.in_bytes_per_s, GMLO_LINK_BYTES_PER_S);
  return gmlo_memgraph_compile(&filled, out_memgraph);
}

/* ---- >>memcheck: is a memgraph right? -----------------------------------------------------------
   Owns intervals: the bytes between two bounds of places that are next to each other, where all
   arenas lie behind each other. Works from the graph, the nodes, their edges and places, and not
   from what the compiler knew; the two share only >>reach. Invariants:
   [M1] The nodes are replayed by number, an order that the edges allow. An interval knows its
        tensor, its version, where that tensor begins, which node wrote it and which nodes have read
        it since.
   [M2] A path leads to each node that writes an interval from all of those, and to each node that
        reads it from its writer. Then each order that the edges allow gives the bytes that this one
        order gives.
   Cost: the intervals of all places of all nodes, and >>reach. Fails: where host memory is refused.
   */

typedef struct gmlo_check_place { /* a place that a node uses */
  size_t begin, end;
  uint32_t tensor;
  int outside; /* it passes the end of its arena */
} gmlo_check_place;

typedef struct gmlo_check_interval {
  uint32_t tensor, version; /* NONE: no tensor */
  size_t base;              /* where the tensor's place begins */
  uint32_t writer, readers; /* a node, and a list of nodes; or NONE */
} gmlo_check_interval;

typedef struct gmlo_check_query { /* whether a path leads from one node to another */
  uint32_t from, to, tensor;
} gmlo_check_query;

typedef struct gmlo_check {
  gmlo_scope scope;
  const gmlake_offload_memgraph *m;
  const gmlake_offload_graph *graph;
  gmlake_offload_memgraph_fault *fault;
  unsigned char *op_seen; /* by operator: it has a node */
  size_t *arena_begin;    /* of each device's arena, the host's, and the end */
  size_t *bounds;         /* of places, ascending */
  size_t bound_count;
  gmlo_check_interval *intervals; /* interval i begins at bounds[i] */
  gmlo_list_cell *readers;
  size_t reader_count, reader_capacity;
  gmlo_check_query *queries;
  size_t query_count, query_capacity;
  uint32_t *asked; /* by node: the last node that a path to was asked for, + 1 */
} gmlo_check;

/* Keeps the first fault. But a race takes the place of a stale read, which may only be its result.
   */
static int gmlo_fault(gmlo_check *c, gmlake_offload_result result, uint32_t node, uint32_t other,
                      uint32_t tensor, const char *text) {
  gmlake_offload_memgraph_fault *fault = c->fault;
  if (fault->result != GMLAKE_OFFLOAD_OK && (fault->result != GMLAKE_OFFLOAD_ERROR_STALE_READ ||
                                             result == GMLAKE_OFFLOAD_ERROR_STALE_READ)) {
    return 0;
  }
  fault->result = result;
  fault->node = node;
  fault->other = other;
  fault->tensor = tensor;
  gmlo_text(fault->text, sizeof fault->text, text);
  return 0;
}

static int gmlo_check_no_memory(gmlo_check *c) {
  c->fault->result = GMLAKE_OFFLOAD_OK;
  return gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY, GMLAKE_OFFLOAD_NONE,
                    GMLAKE_OFFLOAD_NONE, GMLAKE_OFFLOAD_NONE, "host memory was refused");
}

/* Whether each node is an operator, or a copy of a tensor, of the graph, and each operator is there
   once. */
static int gmlo_check_nodes(gmlo_check *c) {
  const gmlake_offload_memgraph *m = c->m;
  size_t v, count = 0;
  for (v = 0; v < m->node_count; v++) {
    const gmlake_offload_node *node = &m->nodes[v];
    if (node->kind != GMLAKE_OFFLOAD_NODE_OP) {
      if (node->tensor >= c->graph->tensor_count ||
          node->device != c->graph->tensors[node->tensor].device) {
        return gmlo_fault(
            c, GMLAKE_OFFLOAD_ERROR_INCOMPLETE, (uint32_t)v, GMLAKE_OFFLOAD_NONE, node->tensor,
            "the copy is of no tensor of the graph, or on another device than the tensor");
      }
      continue;
    }
    if (node->op >= c->graph->op_count || c->op_seen[node->op]) {
      return gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_INCOMPLETE, (uint32_t)v, GMLAKE_OFFLOAD_NONE,
                        GMLAKE_OFFLOAD_NONE,
                        "the node's operator has another node, or is not in the graph");
    }
    c->op_seen[node->op] = 1;
    count++;
  }
  if (count == c->graph->op_count) return 1;
  return gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_INCOMPLETE, GMLAKE_OFFLOAD_NONE, GMLAKE_OFFLOAD_NONE,
                    GMLAKE_OFFLOAD_NONE, "an operator of the graph has no node");
}

/* Whether all edges come from nodes that come before, by number and in the simulated order. */
static int gmlo_check_edges(gmlo_check *c) {
  const gmlake_offload_memgraph *m = c->m;
  size_t v, e;
  for (v = 0; v < m->node_count; v++) {
    for (e = m->before_begin[v]; e < m->before_begin[v + 1]; e++) {
      if (m->before[e] < v && m->nodes[m->before[e]].start < m->nodes[v].start) continue;
      return m->before[e] < m->node_count
                 ? gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_CYCLE, (uint32_t)v, m->before[e],
                              GMLAKE_OFFLOAD_NONE,
                              "the node waits for one behind it, and may be in a circle of nodes")
                 : gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_INCOMPLETE, (uint32_t)v, m->before[e],
                              GMLAKE_OFFLOAD_NONE, "an edge comes from a node that does not exist");
    }
  }
  return 1;
}

/* ---- Places ---- */

/* An empty tensor is checked as if it had one byte. */
static void gmlo_check_locate(const gmlo_check *c, uint32_t tensor, int on_host, size_t offset,
                              gmlo_check_place *place) {
  size_t arena = on_host ? c->graph->device_count : c->graph->tensors[tensor].device;
  size_t room = c->arena_begin[arena + 1] - c->arena_begin[arena];
  size_t bytes = c->graph->tensors[tensor].bytes != 0 ? c->graph->tensors[tensor].bytes : 1;
  place->tensor = tensor;
  place->begin = c->arena_begin[arena] + offset;
  place->end = place->begin + bytes;
  place->outside = offset > room || bytes > room - offset;
}

/* Use number i of a node: an operator's reads, then its writes; a copy's source, then its target. 0
   if there is no such use. */
static int gmlo_check_use(const gmlo_check *c, uint32_t id, size_t i, gmlo_check_place *use,
                          int *out_writes) {
  const gmlake_offload_node *node = &c->m->nodes[id];
  const gmlo_op *op;
  if (node->kind != GMLAKE_OFFLOAD_NODE_OP) {
    int on_host = (node->kind == GMLAKE_OFFLOAD_NODE_OFFLOAD) == (i == 1);
    if (i >= 2) return 0;
    *out_writes = i == 1;
    gmlo_check_locate(c, node->tensor, on_host, on_host ? node->host_offset : node->device_offset,
                      use);
    return 1;
  }
  op = &c->graph->ops[node->op];
  if (i >= op->read_count + op->write_count) return 0;
  *out_writes = i >= op->read_count;
  gmlo_check_locate(c, c->graph->refs[op->first_ref + i], 0, c->m->ref_offsets[op->first_ref + i],
                    use);
  return 1;
}

/* The place of a tensor when an iteration begins or ends. 0 if it has none there. */
static int gmlo_check_side(const gmlo_check *c, const gmlake_offload_place *places, size_t t,
                           int on_host, gmlo_check_place *use) {
  size_t offset = on_host ? places[t].host_offset : places[t].device_offset;
  gmlo_check_locate(c, (uint32_t)t, on_host, offset, use);
  return offset != GMLAKE_OFFLOAD_NOWHERE;
}

static int gmlo_check_bound(gmlo_check *c, const gmlo_check_place *use, uint32_t node) {
  if (use->outside) {
    return gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_BAD_PLACE, node, GMLAKE_OFFLOAD_NONE, use->tensor,
                      "a place passes the end of its arena");
  }
  c->bounds[c->bound_count++] = use->begin;
  c->bounds[c->bound_count++] = use->end;
  return 1;
}

/* Lists the bounds of all places. */
static int gmlo_check_bounds(gmlo_check *c) {
  gmlo_check_place use;
  size_t v, t, i;
  int writes, side;
  for (v = 0; v < c->m->node_count; v++) {
    for (i = 0; gmlo_check_use(c, (uint32_t)v, i, &use, &writes); i++) {
      if (!gmlo_check_bound(c, &use, (uint32_t)v)) return 0;
    }
  }
  for (t = 0; t < c->graph->tensor_count; t++) {
    for (side = 0; side < 4; side++) {
      const gmlake_offload_place *places = side < 2 ? c->m->begins : c->m->ends;
      if (!gmlo_check_side(c, places, t, side % 2, &use)) continue;
      if (!gmlo_check_bound(c, &use, GMLAKE_OFFLOAD_NONE)) return 0;
    }
  }
  return 1;
}

/* Whether no two places of one operator overlap, except those of one tensor that is updated in
   place. */
static int gmlo_check_overlaps(gmlo_check *c) {
  gmlo_check_place a, b;
  size_t v, i, n;
  int writes;
  for (v = 0; v < c->m->node_count; v++) {
    if (c->m->nodes[v].kind != GMLAKE_OFFLOAD_NODE_OP) continue;
    for (i = 0; gmlo_check_use(c, (uint32_t)v, i, &a, &writes); i++) {
      for (n = 0; n < i && gmlo_check_use(c, (uint32_t)v, n, &b, &writes); n++) {
        if (a.tensor == b.tensor ? a.begin == b.begin : a.begin >= b.end || b.begin >= a.end) {
          continue;
        }
        return gmlo_fault(
            c, GMLAKE_OFFLOAD_ERROR_BAD_PLACE, (uint32_t)v, GMLAKE_OFFLOAD_NONE, a.tensor,
            "two places of the node overlap, or it does not update a tensor in place");
      }
    }
  }
  return 1;
}

/* Makes the intervals of all arenas. */
static int gmlo_check_intervals(gmlo_check *c) {
  size_t i, count, arenas = c->graph->device_count, *room;
  size_t most = 2 * c->graph->ref_count + 4 * c->m->node_count + 8 * c->graph->tensor_count;
  c->arena_begin = (size_t *)gmlo_take(&c->scope, arenas + 2, sizeof *c->arena_begin);
  room = (size_t *)gmlo_take(&c->scope, most, sizeof *room);
  c->bounds = (size_t *)gmlo_take(&c->scope, most, sizeof *c->bounds);
  if (c->arena_begin == NULL || room == NULL || c->bounds == NULL) return gmlo_check_no_memory(c);
  for (i = 0; i < arenas; i++) {
    c->arena_begin[i + 1] = c->arena_begin[i] + c->m->device_bytes[i];
  }
  c->arena_begin[i + 1] = c->arena_begin[i] + c->m->info.host_bytes;
  if (!gmlo_check_bounds(c)) return 0;
  gmlo_sort(c->bounds, room, c->bound_count, sizeof *room, gmlo_earlier);
  for (i = 0, count = 0; i < c->bound_count; i++) { /* keeps each bound once */
    if (count == 0 || c->bounds[count - 1] != c->bounds[i]) c->bounds[count++] = c->bounds[i];
  }
  c->bound_count = count;
  c->intervals = (gmlo_check_interval *)gmlo_take(&c->scope, count, sizeof *c->intervals);
  if (c->intervals == NULL) return gmlo_check_no_memory(c);
  for (i = 0; i < count; i++) {
    c->intervals[i].tensor = c->intervals[i].writer = c->intervals[i].readers = GMLAKE_OFFLOAD_NONE;
  }
  return gmlo_check_overlaps(c);
}

/* The interval that begins where the place begins. */
static size_t gmlo_check_interval_of(const gmlo_check *c, const gmlo_check_place *use) {
  size_t i = gmlo_count_to(c->bounds, c->bound_count, sizeof *c->bounds, use->begin) - 1;
  GMLAKE_OFFLOAD_ASSERT(c->bounds[i] == use->begin);
  return i;
}

/* ---- The replay ---- */

/* Notes that a path must lead from one node to another. */
static int gmlo_check_ask(gmlo_check *c, uint32_t from, uint32_t to, uint32_t tensor) {
  gmlo_check_query *query;
  if (from == GMLAKE_OFFLOAD_NONE || from == to || c->asked[from] == to + 1) return 1;
  query = (gmlo_check_query *)gmlo_more(&c->scope.host, &c->queries, c->query_count, 1,
                                        &c->query_capacity, sizeof *query);
  if (query == NULL) return gmlo_check_no_memory(c);
  c->query_count++;
  c->asked[from] = to + 1;
  query->from = from;
  query->to = to;
  query->tensor = tensor;
  return 1;
}

static int gmlo_check_add_reader(gmlo_check *c, gmlo_check_interval *interval, uint32_t node) {
  gmlo_list_cell *reader;
  if (interval->readers != GMLAKE_OFFLOAD_NONE && c->readers[interval->readers].node == node) {
    return 1;
  }
  reader = (gmlo_list_cell *)gmlo_more(&c->scope.host, &c->readers, c->reader_count, 1,
                                       &c->reader_capacity, sizeof *reader);
  if (reader == NULL) return gmlo_check_no_memory(c);
  reader->node = node;
  reader->next = interval->readers;
  interval->readers = (uint32_t)c->reader_count++;
  return 1;
}

/* Notes that the node which overwrites an interval must come behind its writer and its readers. */
static int gmlo_check_overwrite(gmlo_check *c, gmlo_check_interval *interval, uint32_t node,
                                uint32_t tensor) {
  uint32_t at = interval->readers;
  if (!gmlo_check_ask(c, interval->writer, node, tensor)) return 0;
  for (; at != GMLAKE_OFFLOAD_NONE; at = c->readers[at].next) {
    if (!gmlo_check_ask(c, c->readers[at].node, node, tensor)) return 0;
  }
  interval->readers = GMLAKE_OFFLOAD_NONE;
  return 1;
}

/* Writes that version to the place. node NONE: before the iteration. */
static int gmlo_check_write(gmlo_check *c, const gmlo_check_place *use, uint32_t version,
                            uint32_t node) {
  size_t i;
  for (i = gmlo_check_interval_of(c, use); c->bounds[i] < use->end; i++) {
    gmlo_check_interval *interval = &c->intervals[i];
    if (node != GMLAKE_OFFLOAD_NONE && !gmlo_check_overwrite(c, interval, node, use->tensor)) {
      return 0;
    }
    interval->tensor = use->tensor;
    interval->version = version;
    interval->base = use->begin;
    interval->writer = node;
  }
  return 1;
}

/* Reads the place, which must have that version; NONE: any one version. *out_version is what it
   has. */
static int gmlo_check_read(gmlo_check *c, const gmlo_check_place *use, uint32_t version,
                           uint32_t node, uint32_t *out_version) {
  size_t i;
  *out_version = version;
  for (i = gmlo_check_interval_of(c, use); c->bounds[i] < use->end; i++) {
    gmlo_check_interval *interval = &c->intervals[i];
    if (node != GMLAKE_OFFLOAD_NONE && (!gmlo_check_ask(c, interval->writer, node, use->tensor) ||
                                        !gmlo_check_add_reader(c, interval, node))) {
      return 0;
    }
    if (*out_version == GMLAKE_OFFLOAD_NONE) *out_version = interval->version;
    if (interval->tensor == use->tensor && interval->base == use->begin &&
        interval->version == *out_version) {
      continue;
    }
    (void)gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_STALE_READ, node, interval->writer, use->tensor,
                     "other bytes are read than the version that should be there");
  }
  return 1;
}

/* The version of the tensor before that position: the number of its writes so far. */
static uint32_t gmlo_check_version(const gmlo_check *c, uint32_t tensor, size_t position) {
  const gmlake_offload_graph *graph = c->graph;
  size_t i;
  uint32_t version = 0;
  for (i = graph->access_begin[tensor];
       i < graph->access_begin[tensor + 1] && graph->accesses[i].position < position; i++) {
    version += (graph->accesses[i].how & GMLO_WRITES) != 0;
  }
  return version;
}

static int gmlo_check_replay(gmlo_check *c) {
  gmlo_check_place use;
  uint32_t v;
  size_t i;
  int writes;
  for (v = 0; v < c->m->node_count; v++) {
    uint32_t version = GMLAKE_OFFLOAD_NONE;
    const gmlake_offload_node *node = &c->m->nodes[v];
    for (i = 0; gmlo_check_use(c, v, i, &use, &writes); i++) {
      if (node->kind == GMLAKE_OFFLOAD_NODE_OP) {
        version = gmlo_check_version(c, use.tensor, c->graph->position[node->op]) + (writes != 0);
      }
      if (writes ? !gmlo_check_write(c, &use, version, v)
                 : !gmlo_check_read(c, &use, version, v, &version)) {
        return 0;
      }
    }
  }
  return 1;
}

/* Writes the tensors that exist before the iteration. Whether they have places and do not overlap.
   */
static int gmlo_check_begin(gmlo_check *c) {
  gmlo_check_place use;
  size_t t, i;
  int side, sides;
  for (t = 0; t < c->graph->tensor_count; t++) {
    for (side = 0, sides = 0; side < 2; side++) {
      if (!gmlo_check_side(c, c->m->begins, t, side, &use)) continue;
      sides++;
      for (i = gmlo_check_interval_of(c, &use); c->bounds[i] < use.end; i++) {
        if (c->intervals[i].tensor == GMLAKE_OFFLOAD_NONE) continue;
        return gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_BAD_PLACE, GMLAKE_OFFLOAD_NONE,
                          GMLAKE_OFFLOAD_NONE, (uint32_t)t,
                          "the tensor begins an iteration where another one does");
      }
      (void)gmlo_check_write(c, &use, 0, GMLAKE_OFFLOAD_NONE); /* which asks for no path */
    }
    if ((sides == 0) == gmlo_kind_is_made(c->graph->tensors[t].kind)) continue;
    return gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_INCOMPLETE, GMLAKE_OFFLOAD_NONE, GMLAKE_OFFLOAD_NONE,
                      (uint32_t)t, "the tensor begins nowhere, or has a place before it is made");
  }
  return 1;
}

/* Whether the tensors that exist after the iteration have their last version, and are where they
   began. */
static int gmlo_check_end(gmlo_check *c) {
  const gmlake_offload_graph *graph = c->graph;
  gmlo_check_place use;
  uint32_t version;
  size_t t;
  int side;
  for (t = 0; t < graph->tensor_count; t++) {
    const gmlake_offload_place *begin = &c->m->begins[t], *end = &c->m->ends[t];
    int made = gmlo_kind_is_made(graph->tensors[t].kind);
    int used = graph->access_begin[t] != graph->access_begin[t + 1];
    int gone =
        end->device_offset == GMLAKE_OFFLOAD_NOWHERE && end->host_offset == GMLAKE_OFFLOAD_NOWHERE;
    if (made ? graph->tensors[t].kind == GMLAKE_OFFLOAD_OUTPUT && used && gone
             : begin->device_offset != end->device_offset ||
                   begin->host_offset != end->host_offset) {
      return gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_INCOMPLETE, GMLAKE_OFFLOAD_NONE,
                        GMLAKE_OFFLOAD_NONE, (uint32_t)t,
                        "the tensor ends nowhere, or not where it begins");
    }
    for (side = 0; side < 2; side++) {
      if (!gmlo_check_side(c, c->m->ends, t, side, &use)) continue;
      version = gmlo_check_version(c, (uint32_t)t, SIZE_MAX);
      (void)gmlo_check_read(c, &use, version, GMLAKE_OFFLOAD_NONE, &version);
    }
  }
  return 1;
}

/* Whether there is a path for all that was noted [M2]. */
static int gmlo_check_paths(gmlo_check *c) {
  uint64_t *rows;
  size_t first, i;
  gmlo_edges edges = {c->m->before_begin, c->m->before, c->m->node_count};
  rows = gmlo_reach_rows(&c->scope.host, edges.node_count);
  if (rows == NULL) return gmlo_check_no_memory(c);
  for (first = 0; first < edges.node_count; first += GMLO_SOURCES) {
    gmlo_reach_fill(&edges, first, rows);
    for (i = 0; i < c->query_count; i++) {
      const gmlo_check_query *query = &c->queries[i];
      if (query->from < first || query->from >= first + GMLO_SOURCES) continue;
      if (query->to > query->from &&
          gmlo_reach_bit(rows + (query->to - first) * GMLO_ROW_WORDS, query->from - first)) {
        continue;
      }
      (void)gmlo_fault(c, GMLAKE_OFFLOAD_ERROR_RACE, query->to, query->from, query->tensor,
                       "both nodes use the same bytes, one writes, and no path orders them");
    }
  }
  gmlo_free(&c->scope.host, rows);
  return c->fault->result == GMLAKE_OFFLOAD_OK;
}

static void gmlo_memgraph_check(const gmlake_offload_memgraph *m,
                                gmlake_offload_memgraph_fault *fault) {
  gmlo_check c;
  memset(&c, 0, sizeof c);
  c.scope = gmlo_scope_of(&m->scope.host);
  c.m = m;
  c.graph = m->graph;
  c.fault = fault;
  c.asked = (uint32_t *)gmlo_take(&c.scope, m->node_count, sizeof *c.asked);
  c.op_seen = (unsigned char *)gmlo_take(&c.scope, c.graph->op_count, 1);
  if (c.asked == NULL || c.op_seen == NULL) {
    (void)gmlo_check_no_memory(&c);
  } else if (gmlo_check_nodes(&c) && gmlo_check_edges(&c) && gmlo_check_intervals(&c) &&
             gmlo_check_begin(&c) && gmlo_check_replay(&c) && gmlo_check_end(&c)) {
    (void)gmlo_check_paths(&c);
  }
  gmlo_free(&c.scope.host, c.readers);
  gmlo_free(&c.scope.host, c.queries);
  gmlo_leave(&c.scope);
}

/* ---- Public functions ---- */

GMLAKE_OFFLOAD_DEF gmlake_offload_result gmlake_offload_memgraph_check(
    const gmlake_offload_memgraph *memgraph, gmlake_offload_memgraph_fault *out_fault) {
  gmlake_offload_memgraph_fault fault;
  if (memgraph == NULL) return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  memset(&fault, 0, sizeof fault);
  fault.node = fault.other = fault.tensor = GMLAKE_OFFLOAD_NONE;
  gmlo_memgraph_check(memgraph, &fault);
  if (out_fault != NULL) *out_fault = fault;
  return fault.result;
}

#endif /* GMLAKE_TURNIP_IMPLEMENTATION */

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
