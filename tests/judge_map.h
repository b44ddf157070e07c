/* Compares the answers of gmlake_get_map, gmlake_find, gmlake_get_chunks and gmlake_pool_get_stats
   with one another and with the lake's statistics. Include after gmlake.h. */
#if !defined(JUDGE_MAP_H)
#define JUDGE_MAP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct map_sums {
  size_t live, chunks, buffers, active, requested, reserved, pending, buffer_bytes;
} map_sums;

static char map_wrong_text[160];

static const char *map_wrong_at(const gmlake_map_entry *e, const char *what) {
  (void)snprintf(map_wrong_text, sizeof(map_wrong_text), "entry of kind %d at 0x%llx: %s",
                 (int)e->kind, (unsigned long long)e->address, what);
  return map_wrong_text;
}

/* What gmlake_find says of an address; NULL: what it should. */
static const char *map_found_wrong(gmlake *lake, const gmlake_map_entry *e, uint64_t at) {
  const int is_piece = e->kind == GMLAKE_KIND_PIECE;
  gmlake_map_entry info;
  if (gmlake_find(lake, (const void *)(uintptr_t)at, &info))
    return map_wrong_at(e, "nothing is found");
  if (info.address != (is_piece ? e->owner : e->address))
    return map_wrong_at(e, "something else is found");
  if (info.state != e->state || info.label != e->label || info.pool != e->pool)
    return is_piece ? NULL : map_wrong_at(e, "found in another state");
  if (!is_piece && (info.kind != e->kind || info.bytes != e->bytes || info.stream != e->stream ||
                    info.requested_bytes != e->requested_bytes || info.user_data != e->user_data))
    return map_wrong_at(e, "found to be another");
  return NULL;
}

/* The chunks under a block follow one another and cover it; a buffer has holes. All are on the map.
   Counts a buffer's memory. */
static const char *map_chunks_wrong(gmlake *lake, const gmlake_map_entry *e,
                                    const gmlake_map_entry *all, size_t count, map_sums *sums) {
  const int has_holes = e->kind == GMLAKE_KIND_BUFFER;
  size_t capacity = 0, parts, bytes = 0, end = 0, pieces = 0, i, n;
  const void *ptr = (const void *)(uintptr_t)e->address;
  gmlake_chunk_info *chunks;
  const char *wrong = NULL;
  if (gmlake_get_chunks(lake, ptr, NULL, 0, &capacity)) return map_wrong_at(e, "no chunks");
  chunks = (gmlake_chunk_info *)malloc((capacity + 1) * sizeof(*chunks));
  if (!chunks) abort();
  memset(chunks, 0x5A, (capacity + 1) * sizeof(*chunks));
  if (gmlake_get_chunks(lake, ptr, chunks, capacity / 2, &parts) || parts != capacity ||
      memcmp(&chunks[capacity / 2], &chunks[capacity], sizeof(*chunks)) != 0)
    wrong = map_wrong_at(e, "more chunks than there is room for");
  if (gmlake_get_chunks(lake, ptr, chunks, capacity, &parts) || parts != capacity)
    wrong = map_wrong_at(e, "its chunks change");
  for (n = 0; n < count; n++)
    pieces += all[n].kind == GMLAKE_KIND_PIECE && all[n].owner == e->address;
  if (has_holes && pieces != capacity) wrong = map_wrong_at(e, "other pieces than chunks");
  for (i = 0; i < capacity && !wrong; i++) {
    if (chunks[i].address - e->address != end &&
        !(has_holes && chunks[i].address - e->address > end))
      wrong = map_wrong_at(e, "chunks with a gap");
    bytes += chunks[i].bytes;
    end = (size_t)(chunks[i].address - e->address) + chunks[i].bytes;
    for (n = 0; n < count && !wrong; n++)
      if (all[n].kind == GMLAKE_KIND_PIECE && all[n].address == chunks[i].address &&
          all[n].handle != chunks[i].handle)
        wrong = map_wrong_at(&all[n], "a piece of another chunk");
    for (n = 0; n < count; n++)
      if (all[n].kind == GMLAKE_KIND_CHUNK && all[n].handle == chunks[i].handle) break;
    if (n == count || chunks[i].offset_bytes + chunks[i].bytes > all[n].bytes)
      wrong = map_wrong_at(e, "a chunk that is not on the map");
    else if (all[n].pool != e->pool)
      wrong = map_wrong_at(e, "a chunk of another pool");
  }
  if (!wrong && (has_holes ? end > e->bytes : bytes != e->bytes))
    wrong = map_wrong_at(e, "chunks of another size");
  sums->active += has_holes ? bytes : 0;
  sums->buffer_bytes += has_holes ? bytes : 0;
  free(chunks);
  return wrong;
}

/* The spans of an idle window follow it, are as long as it, and lie in chunks of its arena. */
static const char *map_spans_wrong(const gmlake_map_entry *all, size_t count, size_t i) {
  const gmlake_map_entry *w = &all[i];
  size_t bytes = 0, n, under;
  for (n = i + 1; n < count && all[n].kind == GMLAKE_KIND_IDLE_PIECE; n++) {
    uint64_t at = all[n].address;
    const uint64_t end = at + all[n].bytes;
    if (all[n].owner != w->address || all[n].arena != w->arena)
      return map_wrong_at(&all[n], "a span of another window");
    for (under = 0; under < i && at < end; under++)
      if (all[under].kind == GMLAKE_KIND_CHUNK && all[under].arena == w->arena &&
          at - all[under].address < all[under].bytes)
        at = all[under].address + all[under].bytes;
    if (at < end) return map_wrong_at(&all[n], "a span without chunks");
    bytes += all[n].bytes;
  }
  return bytes == w->bytes ? NULL : map_wrong_at(w, "spans of another length");
}

static const char *map_entry_wrong(gmlake *lake, const gmlake_map_entry *all, size_t count,
                                   size_t i, map_sums *sums) {
  const gmlake_map_entry *e = &all[i];
  const char *wrong;
  size_t n;
  switch (e->kind) {
  case GMLAKE_KIND_CHUNK:
    sums->chunks++;
    sums->reserved += e->bytes;
    for (n = 0; n < i; n++)
      if (all[n].kind == GMLAKE_KIND_CHUNK && all[n].handle == e->handle)
        return map_wrong_at(e, "a chunk is there twice");
    if (e->address && e->stream != GMLAKE_STREAM_NONE)
      return map_wrong_at(e, "a chunk of a stream");
    return e->handle ? NULL : map_wrong_at(e, "a chunk without a handle");
  case GMLAKE_KIND_BLOCK:
    sums->live += e->state == GMLAKE_STATE_LIVE;
    sums->pending += e->state == GMLAKE_STATE_PENDING ? e->bytes : 0;
    sums->active += e->state == GMLAKE_STATE_LIVE ? e->bytes : 0;
    sums->requested += e->state == GMLAKE_STATE_LIVE ? e->requested_bytes : 0;
    break;
  case GMLAKE_KIND_BUFFER:
    sums->buffers++;
    sums->requested += e->requested_bytes;
    break;
  case GMLAKE_KIND_IDLE_PIECE:
    return NULL; /* of its window, below */
  default:
    if (e->state == GMLAKE_STATE_QUARANTINED) return NULL;
  }
  wrong = e->kind == GMLAKE_KIND_WINDOW ? map_spans_wrong(all, count, i) : NULL;
  if (!wrong) wrong = map_found_wrong(lake, e, e->address);
  if (!wrong && e->bytes) wrong = map_found_wrong(lake, e, e->address + e->bytes - 1);
  if (wrong || e->state != GMLAKE_STATE_LIVE) return wrong;
  return e->kind == GMLAKE_KIND_BLOCK || e->kind == GMLAKE_KIND_BUFFER
             ? map_chunks_wrong(lake, e, all, count, sums)
             : NULL;
}

/* The figures of all pools, and of what is in none, add up to the lake's. */
static const char *map_pools_wrong(gmlake *lake, gmlake_pool *const *pools, size_t pool_count,
                                   const gmlake_stats *stats, const map_sums *sums) {
  gmlake_stats sum, one;
  size_t i;
  memset(&sum, 0, sizeof(sum));
  for (i = 0; i <= pool_count; i++) {
    if (i < pool_count && !pools[i]) continue;
    if (gmlake_pool_get_stats(lake, i < pool_count ? pools[i] : NULL, &one)) return "no statistics";
    if (one.allocation_count || one.active_bytes_peak || one.metadata_bytes)
      return "a pool has a figure that is not kept";
    sum.requested_bytes += one.requested_bytes;
    sum.active_bytes += one.active_bytes;
    sum.reserved_bytes += one.reserved_bytes;
    sum.stitched_bytes += one.stitched_bytes;
    sum.pending_bytes += one.pending_bytes;
    sum.chunk_count += one.chunk_count;
    sum.live_count += one.live_count;
    sum.window_count += one.window_count;
    sum.quarantined_bytes += one.quarantined_bytes;
    sum.buffer_count += one.buffer_count;
    sum.buffer_bytes += one.buffer_bytes;
  }
  if (sum.requested_bytes != stats->requested_bytes || sum.active_bytes != stats->active_bytes ||
      sum.stitched_bytes != stats->stitched_bytes || sum.pending_bytes != stats->pending_bytes ||
      sum.live_count != stats->live_count || sum.window_count != stats->window_count ||
      sum.buffer_count != stats->buffer_count || sum.buffer_bytes != stats->buffer_bytes)
    return "the pools' figures do not add up to the lake's";
  if (sum.reserved_bytes != sums->reserved || sum.chunk_count != sums->chunks)
    return "the pools' chunks are not those of the map";
  /* What the driver did not take back of a destroyed pool is the lake's alone. */
  return stats->reserved_bytes - sum.reserved_bytes ==
                 stats->quarantined_bytes - sum.quarantined_bytes
             ? NULL
             : "the pools' chunks do not add up to the lake's";
}

/* NULL, or what is wrong. `pools`: all that there are; entries may be NULL. What a buffer gave up
   of exported chunks is pending, and has no address where only buffers can use such chunks. */
static const char *map_wrong(gmlake *lake, gmlake_pool *const *pools, size_t pool_count) {
  size_t count = 0, again = 0, i;
  const char *wrong = NULL;
  gmlake_map_entry *all, untouched;
  gmlake_stats stats;
  map_sums sums;
  memset(&sums, 0, sizeof(sums));
  if (gmlake_get_stats(lake, &stats) || gmlake_get_map(lake, NULL, 0, &count)) return "no map";
  all = (gmlake_map_entry *)malloc((count + 1) * sizeof(*all));
  if (!all) abort();
  memset(all, 0x5A, (count + 1) * sizeof(*all));
  untouched = all[count];
  if (gmlake_get_map(lake, all, count / 2, &again) || again != count ||
      memcmp(&all[count / 2], &untouched, sizeof(untouched)) != 0)
    wrong = "the map is longer than there is room for";
  else if (gmlake_get_map(lake, all, count + 1, &again) || again != count)
    wrong = "the map's count changes";
  else if (memcmp(&all[count], &untouched, sizeof(untouched)) != 0)
    wrong = "the map is longer than it says";
  for (i = 0; i < count && !wrong; i++) wrong = map_entry_wrong(lake, all, count, i, &sums);
  if (!wrong && (sums.live != stats.live_count || sums.buffers != stats.buffer_count ||
                 sums.active != stats.active_bytes || sums.requested != stats.requested_bytes ||
                 sums.buffer_bytes != stats.buffer_bytes || sums.pending > stats.pending_bytes ||
                 (sums.pending < stats.pending_bytes && !stats.exported_bytes)))
    wrong = "the map's sums are not the statistics";
  if (!wrong) wrong = map_pools_wrong(lake, pools, pool_count, &stats, &sums);
  free(all);
  return wrong;
}

#endif /* JUDGE_MAP_H */
