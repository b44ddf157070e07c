/* Three inference servers on one device that holds two and a half of them, by the ledger of
   ledger.h: none dies, and each answers all its requests. A server has weights, and for each
   running sequence a cache, which is a growing buffer. When memory is short, the one that holds
   more than its share drops caches, by its out-of-memory handler; these sequences begin again
   later. The third server is careful: it takes a request only if the ledger admits all of its
   cache, beside what its running sequences still need. So a request may have to wait, but nobody
   can ask for memory of one that has begun. It starts when the others have all of the device. A
   fourth process is killed while it holds the ledger and memory; the others go on.

   Compile it in the directory of gmlake.h, for Linux. On the mock, where the processes count their
   memory together, as a device would:
     cc -I. examples/three_servers.c -o three_servers -lpthread -ldl
   On a GPU, of which they take 5 GiB:
     cc -I. -I/usr/local/cuda/include -DSERVERS_CUDA examples/three_servers.c -o three_servers \
       -lcuda -lpthread -ldl */
#define GMLAKE_IMPLEMENTATION
#if !defined(SERVERS_CUDA)
#define GMLAKE_BACKEND_MOCK
#endif
#include "gmlake.h"

#include "examples/ledger.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#if defined(SERVERS_CUDA)
#include <cuda.h>
#endif

#define MIB ((size_t)1 << 20)
#define SERVERS 3
#define SLOTS 14              /* sequences that run at a time */
#define CACHE_MAX (128 * MIB) /* of one sequence */
#define PIECE (16 * MIB)      /* by which it grows */
#define WEIGHTS (256 * MIB)
#define WISH (WEIGHTS + SLOTS * CACHE_MAX)         /* 2 GiB */
#define DEVICE (WISH * 5 / 2)                      /* what the servers may have together */
#define FLOOR (WEIGHTS + 2 * CACHE_MAX + 32 * MIB) /* with it, a server gets on */
#define REQUESTS 100                               /* that each server answers */
#define TOKENS 20                                  /* of an answer, on average */

typedef struct server {
  gmlake *lake;
  gmlake_buffer *caches[SLOTS];
  size_t bytes[SLOTS]; /* of the cache; 0: no sequence runs there */
  unsigned done, dropped, asked, waited, random;
  int growing; /* the slot that asks for memory now */
  int is_careful;
} server;

static gmlake_backend *backend;
static ledger book;

static unsigned draw(server *s, unsigned limit) {
  s->random = s->random * 1664525u + 1013904223u;
  return (s->random >> 8) % limit;
}

/* ---- The device. On the mock a create that all processes together cannot have is refused ---- */

#if defined(SERVERS_CUDA)
static int device_open(void) {
  CUcontext context;
  CUdevice device;
  return cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
         cuCtxSetCurrent(context) || gmlake_cuda_create(0, &backend);
}
static void device_close(void) { gmlake_cuda_destroy(backend); }
static size_t device_free(void) {
  size_t bytes = 0, total;
  (void)cuMemGetInfo(&bytes, &total);
  return bytes;
}
#else
static gmlake_backend shared; /* the mock, but for these */

static uint64_t *held_here(void) { return &book.page->entries[book.slot].held_bytes; }

static gmlake_result shared_create(void *user, size_t bytes, unsigned types, uint64_t *out,
                                   int *code) {
  gmlake_result result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  uint64_t sum = bytes;
  unsigned i;
  ledger_lock(&book);
  for (i = 0; i < LEDGER_SLOTS; i++) sum += book.page->entries[i].held_bytes;
  if (sum <= DEVICE) result = backend->create(user, bytes, types, out, code);
  if (!result) *held_here() += bytes;
  ledger_unlock(&book);
  return result;
}
static int device_open(void) {
  gmlake_mock_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.bookkeeping_only = 1;
  if (gmlake_mock_create(&desc, &backend)) return 1;
  shared = *backend;
  shared.create = shared_create;
  return 0;
}
static void device_close(void) { gmlake_mock_destroy(backend); }
static size_t device_free(void) { return DEVICE; }
#endif

/* ---- A server ---- */

static int drop_cache(server *s, unsigned slot) {
  if (!s->bytes[slot] || (int)slot == s->growing) return 0;
  s->bytes[slot] = 0;
  s->dropped++;
  return gmlake_buffer_resize(s->lake, s->caches[slot], 0, NULL) == GMLAKE_OK;
}

/* Memory is short, here or elsewhere: drops the caches that are least far, as much as it takes. */
static int on_shortage(void *user, gmlake *lake, const gmlake_error_info *info) {
  server *s = (server *)user;
  size_t wanted = info->asked_bytes;
  int gave = 0;
  (void)lake;
  s->asked += !strcmp(info->call, "ledger");
  for (;;) {
    int least = -1, i;
    for (i = 0; i < SLOTS; i++)
      if (s->bytes[i] && i != s->growing && (least < 0 || s->bytes[i] < s->bytes[least])) least = i;
    if (least < 0) return gave;
    wanted -= wanted < s->bytes[least] ? wanted : s->bytes[least];
    gave |= drop_cache(s, (unsigned)least);
    if (!wanted) return gave;
  }
}

static int open_server(server *s, unsigned number, size_t keep_free) {
  gmlake_oom_handler own;
  gmlake_buffer_desc cache;
  gmlake_desc desc;
  void *weights;
  int i;
  memset(s, 0, sizeof(*s));
  s->random = number;
  s->growing = -1;
  own.fn = on_shortage;
  own.user = s;
  if (device_open() || ledger_open(&book, getenv("LEDGER"), DEVICE, FLOOR, 1, own)) return 1;
  memset(&desc, 0, sizeof(desc));
  desc.backend = backend;
#if !defined(SERVERS_CUDA)
  desc.backend = &shared;
#endif
  desc.chunk_bytes = PIECE;
  desc.driver_free_bytes_min = keep_free;
  desc.oom = ledger_handler(&book);
  if (gmlake_create(&desc, &s->lake)) return 2;
  memset(&cache, 0, sizeof(cache));
  cache.max_bytes = CACHE_MAX;
  cache.chunk_bytes = PIECE;
  for (i = 0; i < SLOTS; i++)
    if (gmlake_buffer_create(s->lake, &cache, &s->caches[i])) return 3;
  return gmlake_alloc(s->lake, WEIGHTS, NULL, &weights) ? 4 : 0;
}

/* Whether one more sequence may begin: whether it, and all that run, can have whole caches,
   whatever the others do. Until the next one is asked for the ledger keeps them that memory. */
static int is_admitted(server *s) {
  gmlake_alloc_desc pieces[SLOTS * (CACHE_MAX / PIECE)];
  size_t count = CACHE_MAX / PIECE, i;
  for (i = 0; i < SLOTS; i++)
    if (s->bytes[i]) count += (CACHE_MAX - s->bytes[i]) / PIECE;
  memset(pieces, 0, sizeof(pieces));
  for (i = 0; i < count; i++) { /* a buffer takes whole chunks */
    pieces[i].bytes = PIECE;
    pieces[i].flags = GMLAKE_EXCLUSIVE;
  }
  if (!ledger_admit(&book, s->lake, pieces, count, NULL, NULL)) return 1;
  s->waited++;
  return 0;
}

/* One step: a sequence grows by a piece or by a token, is answered, or has to begin again; an empty
   slot takes a request. */
static void step(server *s) {
  const struct timespec computes = {0, 200000};
  unsigned slot = draw(s, SLOTS);
  (void)nanosleep(&computes, NULL);
  s->growing = (int)slot;
  if (s->is_careful && !s->bytes[slot] && !is_admitted(s)) {   /* the request waits */
  } else if (s->bytes[slot] == CACHE_MAX && draw(s, TOKENS)) { /* one more token */
  } else if (s->bytes[slot] == CACHE_MAX) {                    /* answered */
    s->bytes[slot] = 0;
    s->done++;
    (void)gmlake_buffer_resize(s->lake, s->caches[slot], 0, NULL);
  } else if (!gmlake_buffer_resize(s->lake, s->caches[slot], s->bytes[slot] + PIECE, NULL)) {
    s->bytes[slot] += PIECE;
  } else { /* no room even so: it begins again later */
    s->growing = -1;
    (void)drop_cache(s, slot);
  }
  s->growing = -1;
  ledger_step(&book, s->lake, WISH);
}

static int serve(unsigned number, size_t keep_free) {
  static server s;
  const int error = open_server(&s, number, keep_free);
  if (error) return error;
  s.is_careful = number == 3;
  while (s.done < REQUESTS) step(&s);
  printf(
      "server %u answered %u requests; %u times one waited, it began %u again, and the others "
      "asked it %u times\n",
      number, s.done, s.waited, s.dropped, s.asked);
  if (gmlake_destroy(s.lake)) return 6;
  ledger_close(&book);
  device_close();
  return 0;
}

/* Holds memory, and dies with the ledger locked. */
static int die(size_t keep_free) {
  static server s;
  int i;
  if (open_server(&s, 9, keep_free)) return 1;
  for (i = 0; i < 40; i++) step(&s);
  ledger_lock(&book);
  return raise(SIGKILL);
}

static pid_t start(const char *self, const char *role, size_t keep_free) {
  char number[24];
  const pid_t child = fork();
  if (child) return child;
  (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)keep_free);
  (void)execl(self, self, role, number, (char *)NULL);
  _exit(9);
}

int main(int argc, char **argv) {
  static const char *const roles[] = {"1", "2", "3"};
  const struct timespec until_they_are_full = {0, 200000000};
  char path[64];
  size_t keep_free = 0;
  int i, status, deaths = 0, killed = 0;
  if (argc == 3 && !strcmp(argv[1], "dies")) return die((size_t)strtoull(argv[2], NULL, 10));
  if (argc == 3) return serve((unsigned)atoi(argv[1]), (size_t)strtoull(argv[2], NULL, 10));
  (void)snprintf(path, sizeof(path), "/dev/shm/gmlake_ledger_%ld", (long)getpid());
  if (setenv("LEDGER", path, 1)) return 1;
#if defined(SERVERS_CUDA) /* the device is larger: the servers leave the rest alone */
  if (device_open()) return 1;
  keep_free = device_free() - DEVICE;
#endif
  (void)device_free;
  for (i = 0; i < SERVERS - 1; i++) (void)start(argv[0], roles[i], keep_free);
  (void)start(argv[0], "dies", keep_free);
  (void)nanosleep(&until_they_are_full, NULL);
  (void)start(argv[0], roles[i], keep_free);
  while (wait(&status) > 0) {
    killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    deaths += !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  (void)unlink(path);
  printf("%d process was killed; of the servers %d died\n", killed, deaths - killed);
  return deaths != killed;
}
