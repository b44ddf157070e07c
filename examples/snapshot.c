/* Shows how to see what lies where in a lake. The program is a made-up server on the mock, with two
   streams, a pool, growing buffers and labels. It runs until memory is out, writes a snapshot in
   its out-of-memory handler, where host memory may be short too, and one at its end. Open
   bench/viewer.html in a browser and drop both files on it. Usage: snapshot [NAME [BLOCKS]]. It
   writes NAME.full.json and NAME.end.json. BLOCKS is how many small blocks it has besides; it
   prints what writing the second file took.

   Compile and run it in the directory of gmlake.h:
     cc -I. -Iexamples examples/snapshot.c -o snapshot -lpthread -ldl
     ./snapshot server */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define LAYERS 24
#define SEQUENCES 8

typedef struct server {
  char name[1000]; /* of the files, without the end */
  gmlake_backend *backend;
  gmlake *lake;
  gmlake_pool *pool;
  gmlake_stream copies; /* a second stream */
  void *activations[LAYERS];
  void *memory; /* for the snapshot of the handler: taken while there is some */
  size_t memory_bytes;
} server;

/* For a program that is only an example: ends it. */
static void need(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  exit(1);
}

static FILE *open_in(const server *s, const char *name) {
  char path[1100];
  FILE *file;
  snprintf(path, sizeof path, "%s.%s", s->name, name);
  file = fopen(path, "wb");
  if (file) return file;
  perror(path);
  exit(1);
}

/* Memory has run out. The snapshot tells the viewer what was asked for, too. */
static int on_oom(void *user, gmlake *lake, const gmlake_error_info *info) {
  const server *const s = (const server *)user;
  gmlake_snapshot_desc desc = {0};
  FILE *const file = open_in(s, "full.json");
  desc.name = "out of memory";
  desc.error = info;
  desc.memory = s->memory;
  desc.memory_bytes = s->memory_bytes;
  if (gmlake_snapshot_write(lake, &desc, gmlake_snapshot_to_file, file)) exit(1);
  (void)fclose(file);
  return 0; /* nothing was freed: the request fails */
}

static void *take(server *s, size_t bytes, const char *label, gmlake_stream stream,
                  gmlake_pool *pool) {
  gmlake_alloc_desc desc = {0};
  void *ptr;
  desc.bytes = bytes;
  desc.label = label;
  desc.pool = pool;
  need(label, gmlake_alloc_with(s->lake, &desc, stream, &ptr));
  return ptr;
}

/* Weights stay. Between them lie activations, which leave holes; a larger one is stitched from
   these. */
static void load(server *s) {
  size_t i;
  for (i = 0; i < LAYERS; i++) {
    (void)take(s, 60 * MIB + i * MIB, "weights", NULL, NULL);
    s->activations[i] = take(s, 70 * MIB, "activations", NULL, NULL);
    (void)take(s, 3 * MIB, "optimizer", NULL, NULL);
  }
  for (i = 0; i < LAYERS; i += 2) need("free", gmlake_free(s->lake, s->activations[i], NULL));
  (void)take(s, 300 * MIB, "logits", NULL, NULL);
  need("free", gmlake_free(s->lake, take(s, 200 * MIB, "logits", NULL, NULL), NULL));
}

/* Copies run on a second stream, and use a block of the first one. They do not end yet. */
static void copy(server *s) {
  void *staging, *shared;
  gmlake_mock_stream_hold(s->backend, s->copies);
  staging = take(s, 48 * MIB, "staging", s->copies, NULL);
  shared = take(s, 40 * MIB, "shared", NULL, NULL);
  (void)take(s, 32 * MIB, "staging", s->copies, NULL);
  need("record", gmlake_record_stream(s->lake, shared, s->copies));
  need("free", gmlake_free(s->lake, shared, NULL)); /* pending: the copies still use it */
  need("free", gmlake_free(s->lake, staging, s->copies));
}

static void grow(server *s, gmlake_buffer **caches) {
  gmlake_buffer_desc desc = {0};
  size_t i;
  desc.max_bytes = 256 * MIB;
  desc.label = "kv cache";
  for (i = 0; i < SEQUENCES; i++) {
    need("buffer", gmlake_buffer_create(s->lake, &desc, &caches[i]));
    need("resize", gmlake_buffer_resize(s->lake, caches[i], (10 + 7 * i) * MIB, NULL));
  }
  need("discard", gmlake_buffer_discard(s->lake, caches[3], 4 * MIB, 8 * MIB, NULL));
}

static double now_ms(void) { return (double)clock() * 1e3 / CLOCKS_PER_SEC; }

/* Writes the second file, and what it took: the lake's locks are held as long as the map takes. */
static void write_end(server *s) {
  gmlake_snapshot_desc desc = {0};
  FILE *const file = open_in(s, "end.json");
  double begin, taken, done;
  gmlake_stats stats = {0};
  size_t count;
  desc.name = "after some sequences have ended";
  need("stats", gmlake_get_stats(s->lake, &stats));
  desc.memory_bytes = gmlake_snapshot_bytes(s->lake);
  desc.memory = malloc(desc.memory_bytes);
  if (!desc.memory) exit(1);
  memset(desc.memory, 0, desc.memory_bytes); /* so that no page is new below */
  begin = now_ms();
  need("map", gmlake_get_map(s->lake, (gmlake_map_entry *)desc.memory,
                             desc.memory_bytes / sizeof(gmlake_map_entry), &count));
  taken = now_ms();
  if (gmlake_snapshot_write(s->lake, &desc, gmlake_snapshot_to_file, file)) exit(1);
  done = now_ms();
  free(desc.memory);
  if (fclose(file)) exit(1);
  printf("%llu blocks: the map of %zu entries took %.1f ms, the file %.1f ms\n",
         (unsigned long long)stats.live_count, count, taken - begin, done - taken);
}

static void run(server *s, size_t blocks) {
  gmlake_buffer *caches[SEQUENCES];
  gmlake_pool_desc pool = {0};
  char path[1100];
  void *ptr;
  size_t i;
  load(s);
  copy(s);
  grow(s, caches);
  pool.label = "tenant b";
  pool.limit_bytes = 512 * MIB;
  need("pool", gmlake_pool_create(s->lake, &pool, &s->pool));
  for (i = 0; i < 5; i++) {
    ptr = take(s, 20 * MIB, "tenant's", NULL, s->pool);
    if (i % 2) need("free", gmlake_free(s->lake, ptr, NULL));
  }
  for (i = 0; i < blocks; i++) {
    ptr = take(s, 512 + i % 7 * 512, i % 3 ? "tokens" : "scratch", NULL, NULL);
    if (i % 5 == 4) need("free", gmlake_free(s->lake, ptr, NULL));
  }
  s->memory_bytes = gmlake_snapshot_bytes(s->lake);
  s->memory = malloc(s->memory_bytes);
  if (!s->memory) exit(1);
  if (!gmlake_alloc(s->lake, 1024 * MIB, NULL, &ptr)) exit(1); /* that is too much */
  for (i = 0; i < SEQUENCES; i += 2)
    need("destroy", gmlake_buffer_destroy(s->lake, caches[i], NULL));
  for (i = 1; i < 6; i += 2) need("free", gmlake_free(s->lake, s->activations[i], NULL));
  need("free", gmlake_free(s->lake, take(s, 150 * MIB, "logits", NULL, NULL), NULL));
  for (i = 0; i < 2; i++) (void)take(s, 20 * MIB, "prompts", NULL, NULL);
  copy(s);
  write_end(s);
  need("sleep", gmlake_pool_sleep(s->lake, s->pool, GMLAKE_SLEEP_DROP, NULL));
  snprintf(path, sizeof path, "%s.asleep.json", s->name);
  if (gmlake_snapshot_save(s->lake, path)) exit(1);
}

int main(int argc, char **argv) {
  gmlake_mock_desc mock = {0};
  gmlake_desc desc = {0};
  server s = {0};
  snprintf(s.name, sizeof s.name, "%s", argv[argc > 1]);
  mock.capacity_bytes = 5 << 10;
  mock.capacity_bytes *= MIB;
  mock.bookkeeping_only = 1;
  need("mock", gmlake_mock_create(&mock, &s.backend));
  need("stream", gmlake_mock_stream_create(s.backend, &s.copies));
  desc.backend = s.backend;
  desc.chunk_bytes = 16 * MIB;
  desc.limit_bytes = 4096 * MIB;
  desc.oom.fn = on_oom;
  desc.oom.user = &s;
  need("create", gmlake_create(&desc, &s.lake));
  run(&s, argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 200);
  gmlake_mock_stream_finish(s.backend, s.copies);
  need("destroy", gmlake_destroy(s.lake));
  gmlake_mock_destroy(s.backend);
  free(s.memory);
  printf("%s.full.json, end.json, asleep.json: open bench/viewer.html and drop them on it\n",
         s.name);
  return 0;
}
