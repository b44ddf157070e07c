/* Memory for sessions whose chunks have numbers: those of another table, which has none. It keeps
   to what gmlake_offload_memory.commit promises, and a chunk has one owner. */
#if !defined(NUMBERED_H)
#define NUMBERED_H

#define NUMBERED_MAX 4096

typedef struct numbered_range {
  void *base;
  size_t count, used;
  uint32_t *chunks; /* that are mapped; UINT32_MAX: none yet */
  int has_memory;
} numbered_range;

typedef struct numbered {
  gmlake_offload_memory base;
  unsigned char is_taken[NUMBERED_MAX];
  size_t map_count; /* chunks that had to be mapped so far */
} numbered;

static int numbered_reserve(void *user, size_t bytes, void **out_range, void **out_ptr) {
  numbered *all = (numbered *)user;
  numbered_range *range = (numbered_range *)calloc(1, sizeof *range);
  int code = range ? all->base.reserve(all->base.user, bytes, &range->base, out_ptr) : 2;
  if (range) range->count = bytes / all->base.chunk_bytes;
  if (range) range->chunks = (uint32_t *)malloc(range->count * sizeof *range->chunks);
  if (code || !range || !range->chunks) {
    free(range ? range->chunks : NULL);
    free(range);
    return code ? code : 2;
  }
  memset(range->chunks, 0xff, range->count * sizeof *range->chunks);
  *out_range = range;
  return 0;
}

static void numbered_release(void *user, void *of, void *stream) {
  numbered *all = (numbered *)user;
  numbered_range *range = (numbered_range *)of;
  all->base.release(all->base.user, range->base, stream);
  free(range->chunks);
  free(range);
}

/* The wanted chunk, the one that was there last, or the first one; of those that are free. */
static uint32_t numbered_pick(const numbered *all, uint32_t wanted, uint32_t former) {
  uint32_t i = 0;
  if (wanted < NUMBERED_MAX && !all->is_taken[wanted]) return wanted;
  if (former < NUMBERED_MAX && !all->is_taken[former]) return former;
  while (all->is_taken[i]) i++;
  return i;
}

static int numbered_commit(void *user, void *of, size_t bytes, uint32_t *chunks, void *stream) {
  numbered *all = (numbered *)user;
  numbered_range *range = (numbered_range *)of;
  int code = all->base.commit(all->base.user, range->base, bytes, NULL, stream);
  size_t i;
  if (code) return code;
  range->used = bytes / all->base.chunk_bytes;
  for (i = 0; i < range->used; i++) {
    uint32_t chunk = numbered_pick(all, chunks[i], range->chunks[i]);
    all->map_count += chunk != range->chunks[i];
    all->is_taken[chunk] = 1;
    range->chunks[i] = chunks[i] = chunk;
  }
  range->has_memory = 1;
  return 0;
}

static int numbered_discard(void *user, void *of, size_t bytes, void *stream) {
  numbered *all = (numbered *)user;
  numbered_range *range = (numbered_range *)of;
  int code = all->base.discard(all->base.user, range->base, bytes, stream);
  size_t i;
  if (code) return code;
  for (i = 0; i < range->used; i++) all->is_taken[range->chunks[i]] = 0;
  range->has_memory = 0;
  return 0;
}

/* Puts numbers on the memory; *all outlives it. */
static void numbered_wrap(numbered *all, gmlake_offload_memory *memory) {
  memset(all, 0, sizeof *all);
  all->base = *memory;
  memory->user = all;
  memory->is_numbered = 1;
  memory->reserve = numbered_reserve;
  memory->release = numbered_release;
  memory->commit = numbered_commit;
  memory->discard = numbered_discard;
  memory->expel = NULL;
}

#endif
