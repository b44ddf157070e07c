/* The strategy of the GMLake paper (Guo et al., ASPLOS 2024, arXiv 2401.08156, section 4) as a
   policy for desc.policy. It follows the paper's Algorithm 1 (BestFit), the five states of its
   Figure 9, and StitchFree.

      gmlake_paper paper;
      gmlake_policy policy;
      gmlake_paper_init(&paper);            // the paper's settings; change what you like
      policy = gmlake_policy_paper(&paper); // both must live longer than the lake
      desc.policy = &policy;
      desc.chunk_bytes = paper.chunk_bytes;
      desc.stitch_bytes_min = paper.chunk_bytes;

   THE STATES. Sizes are rounded up to chunks of 2 MiB. The pPool has the free pBlocks, the sPool
   the idle windows. Both are searched from the largest to the smallest. Of pBlocks with the same
   size the one with the lowest address comes first, of sBlocks the one that was used last. S1  A
   pBlock of exactly the size; if there is none, an sBlock of exactly the size whose pieces are
       all free.
   S2  The smallest pBlock that is larger. It is split. An sBlock over its two parts keeps it. S3
   Several smaller pBlocks, from the largest on, until they are large enough. The last one is split,
       and all are stitched.
   S4  All smaller pBlocks are too small together. Memory is created for the rest, and all is
   stitched. S5  The device has no more memory. Then the lake does what is described beside
   gmlake_policy. Update: a freed block is not merged with others. StitchFree: before a window is
   stitched, the windows that were unused longest are dropped, until the sPool with the new window
   is below a threshold.

   THE FRAGMENTATION LIMIT, 128 MB. The paper says that blocks below it are neither split nor
   stitched. That can mean the requests or the free blocks, and "neither" can be taken more or less
   strictly: REQUEST  (the default) A request below the limit is not stitched, but any pBlock may be
   split for it.
            That is what the authors' code does with its fragLimit.
   EXACT    For a request below the limit nothing is split or stitched. It is served by S1, or a
   pBlock
            is created.
   BLOCK    A pBlock below the limit serves only requests of exactly its size. S2 splits larger
   ones, S3
            and S4 stitch larger ones. What is created, or left over by a split, may be smaller.
   WHOLE    As BLOCK, but S2 may hand out such a pBlock whole, for a smaller request. With each of
   them, S2 keeps the former block only if the limit allows its parts to be stitched.

   REQUESTS BELOW 2 MIB. The paper leaves them to the allocator that it replaces. Here they live in
   slabs of one chunk. Such a request gets the smallest hole of a slab in use that is large enough.
   If there is none it gets the front of the smallest pBlock, whatever the limit. If nothing is
   free, the built-in policy creates a chunk. (This policy cannot create a slab itself while a
   pBlock is free, because the block of a plan is as large as the plan.) Holes of a slab that touch
   count as one. A slab that is completely free is a pBlock again. So only slabs in use break up
   pBlocks.

   DIFFERENCES OF THE AUTHORS' CODE (its last version, of 2023) are settings below, off by default,
   as far as the interface allows them. One is not possible: the code reuses the leading chunks of a
   larger sBlock, but a lake can only reuse a whole window (reuse_percent).

   COSTS: O(free blocks + idle windows) a request, and a sort of the free blocks in S3 and S4. */
#if !defined(POLICY_PAPER_H)
#define POLICY_PAPER_H

#include "gmlake.h"

#include <stdlib.h>
#include <string.h>

typedef enum gmlake_paper_limit {
  GMLAKE_PAPER_LIMIT_REQUEST = 0,
  GMLAKE_PAPER_LIMIT_EXACT,
  GMLAKE_PAPER_LIMIT_BLOCK,
  GMLAKE_PAPER_LIMIT_WHOLE
} gmlake_paper_limit;

typedef struct gmlake_paper {
  size_t chunk_bytes;               /* for desc.chunk_bytes; the policy itself uses the view's */
  size_t limit_bytes;               /* the fragmentation limit; 0: none */
  gmlake_paper_limit limit_reading; /* what it means, see above */
  size_t stitched_bytes_max;        /* StitchFree's threshold; 0: desc.stitched_bytes_max */
  size_t small_bytes;               /* requests below it live in slabs; 0: those below a chunk */
  int keeps_former;                 /* S2 keeps the former block as an sBlock */
  /* what the authors' code does; 0: not done */
  int coalesces;          /* a freed block joins its free neighbours */
  int takes_block_first;  /* a pBlock of the size or larger goes before an sBlock of the size */
  int allocates_whole;    /* S4 creates all of the request and stitches nothing */
  int stitches_late;      /* S3 and S4's Stitch only when creating all of the request has failed */
  unsigned reuse_percent; /* an sBlock of up to this part of the request is reused whole; 0: 100 */
  /* private */
  uint64_t grown_for; /* [stitches_late] number of the last request for which creation was tried */
} gmlake_paper;

static inline void gmlake_paper_init(gmlake_paper *paper) {
  memset(paper, 0, sizeof *paper);
  paper->chunk_bytes = (size_t)2 << 20;
  paper->limit_bytes = (size_t)128 << 20;
  paper->keeps_former = 1;
}

/* The settings that the authors' code has by default. */
static inline void gmlake_paper_init_official(gmlake_paper *paper) {
  gmlake_paper_init(paper);
  paper->limit_bytes = (size_t)512 << 20;
  paper->keeps_former = 0;
  paper->coalesces = paper->takes_block_first = paper->allocates_whole = 1;
}

/* ---- The pools, as a view shows them --------------------------------------------------------- */

/* A range of the arena: neighbouring free blocks. Its whole chunks are a pBlock. The rest, in its
   first and its last chunk, are holes of slabs. */
typedef struct gmlake_paper_range {
  uintptr_t begin, end;
  uintptr_t body_begin, body_end; /* the whole chunks; equal: none */
  int is_block;                   /* they are one block of the view */
  size_t next;                    /* index of the view's block after it */
} gmlake_paper_range;

/* Finds the next range, or the first one if next is 0. Returns 0 if there is none. */
static inline int gmlake_paper_next(const gmlake_view *view, gmlake_paper_range *r) {
  const gmlake_piece *blocks = view->blocks;
  uintptr_t chunk = view->chunk_bytes;
  size_t first = r->next;
  if (first >= view->block_count) return 0;
  r->begin = (uintptr_t)blocks[r->next].home;
  r->end = r->begin + blocks[r->next++].bytes;
  while (r->next < view->block_count && r->end % chunk && (uintptr_t)blocks[r->next].home == r->end)
    r->end += blocks[r->next++].bytes;
  r->body_begin = (r->begin + chunk - 1) / chunk * chunk;
  r->body_end = r->end / chunk * chunk;
  if (r->body_end < r->body_begin) r->body_end = r->body_begin;
  r->is_block = r->next == first + 1 && r->body_begin == r->begin && r->body_end == r->end;
  return 1;
}

static inline gmlake_piece gmlake_paper_piece(uintptr_t begin, uintptr_t end) {
  gmlake_piece piece;
  piece.home = (void *)begin;
  piece.bytes = end - begin;
  return piece;
}

/* What the pPool and the sPool have for a request. */
typedef struct gmlake_paper_fit {
  gmlake_piece exact, larger; /* pBlocks; bytes 0: none */
  int larger_is_block;
  const gmlake_window_info *window;
} gmlake_paper_fit;

/* Whether the limit is for free blocks. */
static inline int gmlake_paper_limits_blocks(const gmlake_paper *paper) {
  return paper->limit_reading == GMLAKE_PAPER_LIMIT_BLOCK ||
         paper->limit_reading == GMLAKE_PAPER_LIMIT_WHOLE;
}

/* Whether a pBlock of this size may not be split, nor stitched. */
static inline int gmlake_paper_is_below(const gmlake_paper *paper, size_t bytes) {
  return gmlake_paper_limits_blocks(paper) && bytes < paper->limit_bytes;
}

static inline int gmlake_paper_may_stitch(const gmlake_paper *paper, const gmlake_request *request,
                                          size_t bytes) {
  if (request->flags & GMLAKE_NO_STITCH) return 0;
  return gmlake_paper_limits_blocks(paper) || bytes >= paper->limit_bytes;
}

/* Searches the pPool. */
static inline void gmlake_paper_fit_blocks(const gmlake_paper *paper, const gmlake_view *view,
                                           size_t bytes, gmlake_paper_fit *fit) {
  int exact_only = paper->limit_reading == GMLAKE_PAPER_LIMIT_EXACT && bytes < paper->limit_bytes;
  gmlake_paper_range r;
  r.next = 0;
  while (gmlake_paper_next(view, &r)) {
    size_t have = r.body_end - r.body_begin;
    if (!have) continue;
    if (have == bytes && !fit->exact.bytes)
      fit->exact = gmlake_paper_piece(r.body_begin, r.body_end);
    if (exact_only || have <= bytes || (fit->larger.bytes && have >= fit->larger.bytes)) continue;
    if (gmlake_paper_is_below(paper, have) && paper->limit_reading == GMLAKE_PAPER_LIMIT_BLOCK)
      continue;
    fit->larger = gmlake_paper_piece(r.body_begin, r.body_end);
    fit->larger_is_block = r.is_block;
  }
}

/* Searches the sPool. */
static inline void gmlake_paper_fit_windows(const gmlake_paper *paper, const gmlake_view *view,
                                            size_t bytes, gmlake_paper_fit *fit) {
  size_t percent = paper->reuse_percent > 100 ? paper->reuse_percent : 100;
  size_t most = bytes / 100 * percent + bytes % 100 * percent / 100, i;
  for (i = 0; i < view->window_count; i++) {
    const gmlake_window_info *w = &view->windows[i];
    if (!w->is_free || w->bytes < bytes || w->bytes > most) continue;
    if (!fit->window || w->bytes <= fit->window->bytes) fit->window = w;
  }
}

/* ---- BestFit --------------------------------------------------------------------------------- */

static inline void gmlake_paper_take(gmlake_plan *plan, unsigned state, uintptr_t home,
                                     size_t bytes, const char *reason) {
  plan->state = state;
  plan->pieces[0] = gmlake_paper_piece(home, home + bytes);
  plan->piece_count = 1;
  plan->reason = reason;
}

static inline void gmlake_paper_reuse(gmlake_plan *plan, const gmlake_window_info *window) {
  plan->state = 1;
  plan->window = window->number;
  plan->reason = "exact sBlock";
}

/* S2. A lake can keep the former block only if it is one block of the view. */
static inline void gmlake_paper_split(const gmlake_paper *paper, gmlake_plan *plan,
                                      const gmlake_paper_fit *fit, size_t bytes) {
  uintptr_t home = (uintptr_t)fit->larger.home;
  size_t rest = fit->larger.bytes - bytes;
  if (gmlake_paper_is_below(paper, fit->larger.bytes)) { /* WHOLE */
    gmlake_paper_take(plan, 2, home, fit->larger.bytes, "larger pBlock, below the limit");
    return;
  }
  gmlake_paper_take(plan, 2, home, bytes, "larger pBlock, split");
  if (!paper->keeps_former || !fit->larger_is_block) return;
  plan->keeps_former = bytes >= paper->limit_bytes;
  if (gmlake_paper_is_below(paper, rest)) plan->keeps_former = 0;
}

static inline int gmlake_paper_descending(const void *a, const void *b) {
  const gmlake_piece *x = (const gmlake_piece *)a, *y = (const gmlake_piece *)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->home > y->home) - (x->home < y->home);
}

/* S3 and S4, after S1 and S2: all pBlocks that may be stitched are smaller than the request. */
static inline void gmlake_paper_gather(const gmlake_paper *paper, const gmlake_view *view,
                                       const gmlake_request *request, gmlake_plan *plan,
                                       size_t bytes) {
  size_t have = 0, count = 0, i;
  gmlake_paper_range r;
  r.next = 0;
  while (gmlake_paper_next(view, &r) && count < plan->piece_capacity) {
    gmlake_piece body = gmlake_paper_piece(r.body_begin, r.body_end);
    if (!body.bytes || body.bytes >= bytes || gmlake_paper_is_below(paper, body.bytes)) continue;
    plan->pieces[count++] = body;
  }
  qsort(plan->pieces, count, sizeof(gmlake_piece), gmlake_paper_descending);
  for (i = 0; i < count && have < bytes; i++) {
    if (plan->pieces[i].bytes > bytes - have) plan->pieces[i].bytes = bytes - have;
    have += plan->pieces[i].bytes;
  }
  plan->state = have == bytes ? 3 : 4;
  plan->reason = have == bytes ? "several pBlocks, stitched" : "shortfall created, stitched";
  plan->piece_count = i;
  plan->grow_bytes = bytes - have;
  if (plan->state == 4 && (request->flags & GMLAKE_NO_GROW)) {
    plan->state = 5;
    plan->reason = "may not create memory";
  }
}

/* S4 without a window. */
static inline void gmlake_paper_create(const gmlake_request *request, gmlake_plan *plan,
                                       size_t bytes) {
  int may = !(request->flags & GMLAKE_NO_GROW);
  plan->state = may ? 4 : 5;
  plan->reason = may ? "created" : "may not create memory";
  plan->piece_count = 0;
  plan->grow_bytes = bytes;
}

/* Plans a request that neither pool can serve with one piece. */
static inline void gmlake_paper_no_fit(gmlake_paper *paper, const gmlake_view *view,
                                       const gmlake_request *request, gmlake_plan *plan,
                                       size_t bytes) {
  int may_stitch = gmlake_paper_may_stitch(paper, request, bytes);
  if (paper->stitches_late && paper->grown_for != request->number) {
    paper->grown_for = request->number;
    may_stitch = may_stitch && (request->flags & GMLAKE_NO_GROW);
  }
  if (may_stitch) gmlake_paper_gather(paper, view, request, plan, bytes);
  if (!may_stitch || (plan->state == 4 && (paper->allocates_whole || !plan->piece_count)))
    gmlake_paper_create(request, plan, bytes);
}

static inline void gmlake_paper_large(gmlake_paper *paper, const gmlake_view *view,
                                      const gmlake_request *request, gmlake_plan *plan) {
  size_t bytes = (request->bytes + view->chunk_bytes - 1) / view->chunk_bytes * view->chunk_bytes;
  gmlake_paper_fit fit;
  memset(&fit, 0, sizeof fit);
  gmlake_paper_fit_blocks(paper, view, bytes, &fit);
  if (fit.exact.bytes) {
    gmlake_paper_take(plan, 1, (uintptr_t)fit.exact.home, bytes, "exact pBlock");
    return;
  }
  if (!(request->flags & GMLAKE_NO_STITCH) && !(paper->takes_block_first && fit.larger.bytes))
    gmlake_paper_fit_windows(paper, view, bytes, &fit);
  if (fit.window)
    gmlake_paper_reuse(plan, fit.window);
  else if (fit.larger.bytes)
    gmlake_paper_split(paper, plan, &fit, bytes);
  else
    gmlake_paper_no_fit(paper, view, request, plan, bytes);
}

/* ---- Slabs ----------------------------------------------------------------------------------- */

typedef struct gmlake_paper_hole {
  uintptr_t at;
  size_t bytes; /* of the hole; 0: none */
} gmlake_paper_hole;

static inline void gmlake_paper_try_hole(gmlake_paper_hole *best, const gmlake_request *request,
                                         size_t bytes, uintptr_t begin, uintptr_t end) {
  uintptr_t at = (begin + request->alignment - 1) & ~(uintptr_t)(request->alignment - 1);
  if (at > end || end - at < bytes || (best->bytes && end - begin >= best->bytes)) return;
  best->at = at;
  best->bytes = end - begin;
}

/* Plans a small request: best fit among the holes of slabs in use, else the front of the smallest
   pBlock. */
static inline void gmlake_paper_small(const gmlake_view *view, const gmlake_request *request,
                                      gmlake_plan *plan) {
  size_t bytes = (request->bytes + 511) & ~(size_t)511;
  uintptr_t chunk = view->chunk_bytes;
  gmlake_paper_hole hole = {0, 0}, block = {0, 0};
  gmlake_paper_range r;
  r.next = 0;
  while (gmlake_paper_next(view, &r)) {
    if (r.body_begin < r.body_end) {
      gmlake_paper_try_hole(&hole, request, bytes, r.begin, r.body_begin);
      gmlake_paper_try_hole(&block, request, bytes, r.body_begin, r.body_end);
      gmlake_paper_try_hole(&hole, request, bytes, r.body_end, r.end);
    } else if (r.begin / chunk == (r.end - 1) / chunk) {
      gmlake_paper_try_hole(&hole, request, bytes, r.begin, r.end);
    } else {
      gmlake_paper_try_hole(&hole, request, bytes, r.begin, r.body_begin);
      gmlake_paper_try_hole(&hole, request, bytes, r.body_begin, r.end);
    }
  }
  if (hole.bytes)
    gmlake_paper_take(plan, hole.bytes == bytes ? 1 : 2, hole.at, bytes, "hole of a slab");
  else if (block.bytes)
    gmlake_paper_take(plan, 2, block.at, bytes, "new slab from a pBlock");
}

/* ---- The table ------------------------------------------------------------------------------- */

static inline void gmlake_paper_choose(void *user, const gmlake_view *view,
                                       const gmlake_request *request, gmlake_plan *plan) {
  gmlake_paper *paper = (gmlake_paper *)user;
  size_t small = paper->small_bytes ? paper->small_bytes : view->chunk_bytes;
  if (small > view->chunk_bytes) small = view->chunk_bytes;
  if (request->bytes < small && !(request->flags & GMLAKE_EXCLUSIVE))
    gmlake_paper_small(view, request, plan);
  else
    gmlake_paper_large(paper, view, request, plan);
}

static inline size_t gmlake_paper_evict(void *user, const gmlake_view *view, size_t mapped_bytes,
                                        uint64_t *out_windows) {
  const gmlake_paper *paper = (const gmlake_paper *)user;
  size_t most = paper->stitched_bytes_max ? paper->stitched_bytes_max : view->stitched_bytes_max;
  size_t held = view->stitched_bytes + mapped_bytes, count = 0, i;
  for (i = 0; i < view->window_count && held > most; i++) {
    if (!view->windows[i].is_complete) continue;
    out_windows[count++] = view->windows[i].number;
    held -= view->windows[i].mapped_bytes;
  }
  return count;
}

/* Whether a freed block is merged. Inside a slab it is: a block that touches neither end of its
   chunk has its neighbours in the same slab. */
static inline int gmlake_paper_coalesce(void *user, const gmlake_piece *block) {
  const gmlake_paper *paper = (const gmlake_paper *)user;
  uintptr_t begin = (uintptr_t)block->home, end = begin + block->bytes, chunk = paper->chunk_bytes;
  return paper->coalesces || (begin % chunk && end % chunk && begin / chunk == end / chunk);
}

/* Returns the policy with these settings. The settings must live longer than the lake. */
static inline gmlake_policy gmlake_policy_paper(gmlake_paper *paper) {
  gmlake_policy policy;
  memset(&policy, 0, sizeof policy);
  policy.struct_bytes = sizeof policy;
  policy.user = paper;
  policy.choose = gmlake_paper_choose;
  policy.evict = gmlake_paper_evict;
  policy.coalesce = gmlake_paper_coalesce;
  return policy;
}

#endif
