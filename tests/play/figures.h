/* What the lake says of itself: its statistics against the calls that the judge has seen and the
   blocks of the program, and what it tells of a block. Include after policy.h. */
#if !defined(PLAY_FIGURES_H)
#define PLAY_FIGURES_H

#include "policy.h"

#define PIECES 512 /* of a block */

static struct sums { /* of a lake, since it began */
  size_t requested_peak, active_peak, pending_most;
  uint64_t allocations, frees, lacks; /* lacks: the handler's retries, too */
} sums;

/* ---- Statistics ------------------------------------------------------------------------------ */

typedef struct live_sums {
  size_t requested, active, in_buffers, buffers, blocks;
} live_sums;

/* Of a pool's blocks and buffers; of all of them: of pool ALL_POOLS. */
#define ALL_POOLS (POOLS + 1)
static live_sums sum_live(int pool) {
  live_sums sum;
  const block *b = NULL;
  size_t i;
  memset(&sum, 0, sizeof(sum));
  while ((b = live_next((block *)(uintptr_t)b))) {
    const int is_block = b >= w.blocks && b < w.blocks + NAMES;
    if (pool != ALL_POOLS && b->pool != pool) continue;
    sum.requested += b->asked;
    sum.active += b->bytes;
    sum.blocks += (size_t)is_block;
    if (!is_block) sum.in_buffers += b->bytes;
  }
  for (i = 0; i < BUFFERS; i++) {
    const buffer *of = &w.buffers[i];
    const size_t tail = of->value ? of->end % of->chunk : 0;
    if (pool != ALL_POOLS && of->pool != pool) continue;
    sum.buffers += of->value != NULL;
    if (tail && of->cells[of->end / of->chunk].id) sum.requested -= of->chunk - tail;
  }
  return sum;
}

static void judge_live(const gmlake_stats *all) {
  const live_sums sum = sum_live(ALL_POOLS);
  if (sums.requested_peak < sum.requested) sums.requested_peak = sum.requested;
  if (sums.active_peak < sum.active) sums.active_peak = sum.active;
  judge(all->requested_bytes == sum.requested, "requested_bytes");
  judge(all->active_bytes == sum.active, "active_bytes");
  judge(all->requested_bytes_peak == sums.requested_peak, "requested_bytes_peak");
  judge(all->active_bytes_peak == sums.active_peak, "active_bytes_peak");
  judge(all->buffer_count == sum.buffers && all->buffer_bytes == sum.in_buffers, "buffer_bytes");
  judge(all->allocation_count == sums.allocations, "allocation_count");
  judge(all->free_count == sums.frees, "free_count");
}

static void judge_pool_figures(int pool) {
  const live_sums sum = sum_live(pool);
  gmlake_stats inside;
  must(gmlake_pool_get_stats(lake, w.pools[pool].value, &inside), "gmlake_pool_get_stats");
  judge(inside.requested_bytes == sum.requested && inside.active_bytes == sum.active &&
            inside.live_count == sum.blocks && inside.buffer_count == sum.buffers &&
            inside.buffer_bytes == sum.in_buffers,
        "a pool's figures");
}

/* Freed, and waiting for recorded streams alone: such frees there have been. */
static void judge_pending(const gmlake_stats *all) {
  judge(all->pending_bytes <= sums.pending_most, "pending_bytes");
  judge(all->pending_bytes_peak >= all->pending_bytes, "pending_bytes_peak");
  if (!all->pending_bytes) sums.pending_most = 0;
}

static void judge_device(const gmlake_stats *all) {
  const gmlake_mock_census now_there = census();
  judge(all->metadata_bytes == host_bytes, "metadata_bytes");
  judge(all->metadata_bytes_peak >= all->metadata_bytes, "metadata_bytes_peak");
  judge(all->reserved_bytes - all->imported_bytes == now_there.physical_bytes, "reserved_bytes");
  judge(all->reserved_bytes_peak >= all->reserved_bytes &&
            all->reserved_bytes_peak <= w.reserved_most,
        "reserved_bytes_peak");
  judge(all->stitched_bytes_peak >= all->stitched_bytes, "stitched_bytes_peak");
  judge(all->buffer_bytes_peak >= all->buffer_bytes, "buffer_bytes_peak");
  judge(all->stream_wait_count == w.stream_waits, "stream_wait_count");
  judge(all->event_count == w.records, "event_count");
  if (all->driver_call_count != w.driver_calls)
    trace("calls %llu %llu\n", (unsigned long long)all->driver_call_count,
          (unsigned long long)w.driver_calls);
  judge(all->driver_call_count == w.driver_calls, "driver_call_count");
}

/* What failed half way is counted here and there. */
static void judge_counts(const gmlake_stats *all) {
  const uint64_t *states = all->state_count;
  const uint64_t served = states[0] + states[1] + states[2] + states[3];
  if (w.has_failed) return;
  judge(all->chunk_count == census().handle_count, "chunk_count");
  judge(!all->quarantined_bytes, "memory is given up though nothing has failed");
  judge(all->host_wait_count == w.host_waits, "host_wait_count");
  judge(served >= sums.allocations, "state_count");
  judge(told.has_lent || all->oom_count == sums.lacks, "oom_count");
  judge(desc.policy || told.has_lent ||
            (all->split_count >= states[1] && all->split_count <= states[1] + states[3]),
        "split_count");
}

static void judge_figures(const gmlake_stats *all) {
  judge_live(all);
  judge_pending(all);
  judge_device(all);
  judge_counts(all);
}

/* ---- A block --------------------------------------------------------------------------------- */

/* The homes of its pieces show the same memory, cut where a window may be cut. */
static void judge_pieces(const block *b, unsigned flags, const pool *from) {
  static gmlake_piece pieces[PIECES];
  size_t count = 0, i, sum = 0, at;
  must(gmlake_get_pieces(lake, (void *)(uintptr_t)b->at, pieces, PIECES, &count),
       "gmlake_get_pieces");
  judge(count >= 1 && count <= PIECES, "a block has no pieces, or too many");
  judge(!(flags & GMLAKE_NO_STITCH) || (count == 1 && home_of(pieces) == b->at),
        "NO_STITCH was stitched");
  for (i = 0; i < count; i++) {
    const uint64_t home = home_of(&pieces[i]);
    judge(!i || home % from->chunk == 0, "a piece begins inside a chunk");
    judge(i + 1 == count || end_of(&pieces[i]) % from->chunk == 0, "a piece ends inside a chunk");
    for (at = 0; at < pieces[i].bytes; at += GRAIN) {
      const map *m = map_at(home + at), *own = map_at(b->at + sum + at);
      judge(m && own && m->of == own->of && home + at - m->at == b->at + sum + at - own->at,
            "a piece shows other memory than the block");
    }
    sum += pieces[i].bytes;
  }
  judge(sum == b->bytes, "the pieces do not add up");
}

/* What gmlake_get_chunks tells are the handles that are mapped there, in their order. */
static void judge_chunks(const block *b) {
  static gmlake_chunk_info chunks[PIECES];
  size_t count = 0, i, sum = 0;
  must(gmlake_get_chunks(lake, (void *)(uintptr_t)(b->at + b->bytes - 1), chunks, PIECES, &count),
       "gmlake_get_chunks");
  for (i = 0; i < count; i++) {
    const uint64_t at = b->at + sum;
    const map *m = map_at(at);
    judge(chunks[i].address == at && m && chunks[i].handle == m->of->value &&
              chunks[i].offset_bytes == at - m->at && sum + chunks[i].bytes <= b->bytes,
          "a block has other chunks than are told");
    sum += chunks[i].bytes;
  }
  judge(sum == b->bytes, "the chunks do not add up");
}

/* GMLAKE_FILL: new memory shows its byte. */
static void judge_filled(const block *b) {
  size_t i;
  for (i = 0; w.is_real && desc.flags & GMLAKE_FILL && i < b->bytes; i += 32)
    judge(((const unsigned char *)(uintptr_t)b->at)[i] == GMLAKE_FILL_NEW,
          "new memory is not filled");
}

/* Free memory behind a block is not filled with it. Where it was written to before, eight bytes end
   with a zero. */
static void judge_unfilled(const block *b) {
  const uint64_t end = b->at + b->bytes;
  const map *m = map_at(end);
  if (!m || !m->is_accessible || !w.is_real || !(desc.flags & GMLAKE_FILL)) return;
  judge(m->of->grains[(end - m->at) / GRAIN].owner ||
            ((const unsigned char *)(uintptr_t)end)[7] != GMLAKE_FILL_NEW,
        "memory behind a new block is filled");
}

/* What is freed shows another byte then, or as before what was written, where that is not asked for
   or the memory waits for other streams. */
static void judge_freed(const block *b, int is_pending) {
  const int is_filled = desc.flags & GMLAKE_FILL && !is_pending;
  const unsigned char *bytes = (const unsigned char *)(uintptr_t)b->at;
  size_t at;
  if (!w.is_real || b->is_exported || b->is_imported || w.pools[b->pool].asleep) return;
  for (at = 0; at < b->bytes; at += GRAIN) {
    const uint64_t stamp = stamp_of(b, at);
    judge(is_filled ? bytes[at] == GMLAKE_FILL_FREE && bytes[at + GRAIN - 1] == GMLAKE_FILL_FREE
                    : !memcmp(bytes + at, &stamp, sizeof(stamp)),
          is_filled ? "freed memory is not filled" : "freed memory has changed");
  }
}

static void judge_block(const block *b, const gmlake_map_entry *info, unsigned flags) {
  const pool *from = &w.pools[b->pool];
  const size_t unit = flags & GMLAKE_EXCLUSIVE ? from->chunk : GRAIN;
  judge(info->address == b->at, "a block's ptr");
  judge(desc.policy ? info->bytes >= b->asked && info->bytes % unit == 0
                    : info->bytes == up(b->asked, unit),
        "a block is rounded wrongly");
  judge(info->stream == (b->on < 0 || w.seems_gone ? GMLAKE_STREAM_NONE : w.lines[b->on].value) ||
            (b->on >= 0 && info->stream == w.lines[b->on].value),
        "a block's stream");
  judge((info->flags | GMLAKE_TRANSIENT) == (flags | GMLAKE_TRANSIENT), "a block's flags");
  judge(info->flags & GMLAKE_TRANSIENT ? b->may_be_borrowed : !b->is_borrowed,
        "a block's flags do not say who lends");
  judge_pieces(b, flags, from);
  judge_filled(b);
  judge_unfilled(b);
}

/* ---- Whether memory that is there, or can be made, would have served ------------------------- */

/* What is lent is for borrowers alone. */
static int is_lent(uint32_t serial) {
  const int number = pool_of_serial(serial);
  return number >= 0 && w.pools[number].is_lent;
}

static int handle_is_free(const handle *h) {
  size_t i;
  if (!h->value || h->is_foreign || h->is_odd || h->is_released || !h->pool || is_lent(h->pool))
    return 0;
  for (i = 0; i < h->bytes / GRAIN; i++)
    if (h->grains[i].owner || h->grains[i].graph || h->grains[i].is_exported) return 0;
  return 1;
}

/* Free bytes of the pool's handles, or of all others that give them. */
static size_t free_bytes_of(uint32_t serial, int others) {
  size_t i, bytes = 0;
  for (i = 0; i < HANDLES; i++)
    if ((w.handles[i].pool == serial) != others && handle_is_free(&w.handles[i]) &&
        !(others && w.pools[pool_of_serial(w.handles[i].pool)].is_kept))
      bytes += w.handles[i].bytes;
  return bytes;
}

static size_t room_below(size_t limit, size_t held, size_t room) {
  if (!limit) return room;
  limit = limit > held ? limit - held : 0;
  return limit < room ? limit : room;
}

/* Whole chunks that nobody owns, of its pool, or returned to the driver and created again. */
static int is_servable(size_t asked_bytes, unsigned flags, const pool *from) {
  const size_t physical = census().physical_bytes, chunk = from->chunk;
  const size_t bytes = (size_t)up(asked_bytes, chunk), own = free_bytes_of(from->serial, 0);
  size_t room = w.capacity - physical;
  if (asked_bytes > w.capacity) return 0;
  if (w.has_failed || w.is_unsure || w.lacks_addresses || w.handler_calls || captures() ||
      (desc.arena_bytes && desc.arena_bytes < w.capacity) || desc.window_bytes || desc.policy ||
      w.program->options[OPT_SHARE])
    return 0;
  if (flags & (GMLAKE_NO_STITCH | GMLAKE_TRANSIENT) || asked_bytes < desc.stitch_bytes_min)
    return 0;
  if (bytes <= own) return 1;
  if (flags & GMLAKE_NO_GROW) return 0;
  if (from->limit) return 0;
  if (desc.driver_free_bytes_min >= w.capacity) return 0;
  room = room_below(w.capacity - desc.driver_free_bytes_min, physical, room);
  room = room_below(desc.limit_bytes, physical, room) + free_bytes_of(from->serial, 1);
  return bytes <= own + room / chunk * chunk;
}

#endif /* PLAY_FIGURES_H */
