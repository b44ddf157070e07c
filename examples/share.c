/* Sends tensors between two processes, without a copy. The first process makes one and sends it;
   the second one reads it where it is, makes its own and sends that back; and so on, in a ring. The
   second process dies in the middle, holding a tensor of the first one's, while the first one holds
   one of its: the first one reads on, starts another second process, and goes on. In the end
   nothing is left of all that: descriptors, device memory and the lake's own memory are as before.

   A tensor is a block with GMLAKE_EXCLUSIVE. The handles of its chunks travel through a local
   socket, the file descriptors beside them. What the sender queued on the device has to be done
   before the receiver reads: so it waits for its stream. The second process is this program again,
   started by exec, as a child of fork cannot use the device that its parent has open.

   share [ROUNDS [ONE_OF]]: the second process dies in one of ONE_OF rounds, at random; 0: never.

   Compile it in the directory of gmlake.h, for Linux. On the mock:
     cc -I. examples/share.c -o share -lpthread -ldl
   On a GPU:
     cc -I. -I/usr/local/cuda/include -DSHARE_CUDA examples/share.c -o share \
       -lcuda -lpthread -ldl */
#define GMLAKE_IMPLEMENTATION
#if !defined(SHARE_CUDA)
#define GMLAKE_BACKEND_MOCK
#endif
#include "gmlake.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(SHARE_CUDA)
#include <cuda.h>
#endif

#define MIB ((size_t)1 << 20)
#define TENSOR (4 * MIB)
#define WORDS (TENSOR / sizeof(unsigned))
#define HANDLES_MAX 8 /* of a tensor */

typedef struct tensor {
  void *ptr;       /* NULL: there is none */
  unsigned number; /* all its words have this value */
} tensor;

typedef struct message {
  unsigned number;
  size_t count;
  gmlake_handle handles[HANDLES_MAX];
} message;

static gmlake_backend *backend;
static gmlake *lake;

static int failed(const char *what, gmlake_result result) {
  if (result) fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return result != GMLAKE_OK;
}

/* ---- The device: the mock or CUDA. Work is on the legacy stream, and is waited for ---- */

#if defined(SHARE_CUDA)
static int device_open(void) {
  CUcontext context;
  CUdevice device;
  if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
      cuCtxSetCurrent(context))
    return 1;
  return failed("cuda_create", gmlake_cuda_create(0, &backend));
}
static void device_close(void) { gmlake_cuda_destroy(backend); }
static int fill(void *ptr, unsigned value) {
  return cuMemsetD32Async((CUdeviceptr)(uintptr_t)ptr, value, WORDS, NULL) ||
         cuStreamSynchronize(NULL);
}
static unsigned word_of(const void *ptr, size_t i) {
  unsigned word = 0;
  (void)cuMemcpyDtoH(&word, (CUdeviceptr)(uintptr_t)ptr + i * sizeof(word), sizeof(word));
  return word;
}
#else
static int device_open(void) { return failed("mock_create", gmlake_mock_create(NULL, &backend)); }
static void device_close(void) { gmlake_mock_destroy(backend); }
static int fill(void *ptr, unsigned value) {
  size_t i;
  for (i = 0; i < WORDS; i++) ((unsigned *)ptr)[i] = value;
  return 0;
}
static unsigned word_of(const void *ptr, size_t i) { return ((const unsigned *)ptr)[i]; }
#endif

static int open_all(void) {
  gmlake_desc desc;
  if (device_open()) return 1;
  memset(&desc, 0, sizeof(desc));
  desc.backend = backend;
  desc.chunk_bytes = 2 * MIB;
  desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
  return failed("create", gmlake_create(&desc, &lake));
}

/* ---- Tensors ---- */

static int make(tensor *t, unsigned number) {
  gmlake_alloc_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.bytes = TENSOR;
  desc.flags = GMLAKE_EXCLUSIVE;
  t->number = number;
  return failed("alloc", gmlake_alloc_with(lake, &desc, NULL, &t->ptr)) || fill(t->ptr, number);
}

static int drop(tensor *t) {
  const int fails = failed("free", gmlake_free(lake, t->ptr, NULL));
  t->ptr = NULL;
  return fails;
}

static int is_whole(const tensor *t) {
  return !t->ptr || (word_of(t->ptr, 0) == t->number && word_of(t->ptr, WORDS / 2) == t->number &&
                     word_of(t->ptr, WORDS - 1) == t->number);
}

/* The parts of a message for sendmsg and recvmsg: the handles, and room for their descriptors. */
typedef struct parcel {
  struct msghdr head;
  struct iovec body;
  union {
    char bytes[CMSG_SPACE(HANDLES_MAX * sizeof(int))];
    size_t aligned; /* as a struct cmsghdr has to be */
  } fds;
} parcel;

static void wrap(parcel *p, message *m) {
  memset(p, 0, sizeof(*p));
  p->body.iov_base = m;
  p->body.iov_len = sizeof(*m);
  p->head.msg_iov = &p->body;
  p->head.msg_iovlen = 1;
  p->head.msg_control = p->fds.bytes;
  p->head.msg_controllen = sizeof(p->fds.bytes);
}

/* Returns 1 if it was sent, 0 if nobody is there, -1 after an error. */
static int post(int to, const tensor *t) {
  struct cmsghdr *fds;
  int sent = -1;
  message m;
  parcel p;
  size_t i;
  memset(&m, 0, sizeof(m));
  m.number = t->number;
  if (failed("export",
             gmlake_export(lake, t->ptr, GMLAKE_HANDLE_POSIX_FD, m.handles, HANDLES_MAX, &m.count)))
    return -1;
  wrap(&p, &m);
  p.head.msg_controllen = CMSG_SPACE(m.count * sizeof(int));
  fds = CMSG_FIRSTHDR(&p.head);
  fds->cmsg_level = SOL_SOCKET;
  fds->cmsg_type = SCM_RIGHTS;
  fds->cmsg_len = CMSG_LEN(m.count * sizeof(int));
  for (i = 0; i < m.count; i++)
    memcpy(CMSG_DATA(fds) + i * sizeof(int), &m.handles[i].fd, sizeof(int));
  sent = sendmsg(to, &p.head, MSG_NOSIGNAL) == (ssize_t)sizeof(m);
  for (i = 0; i < m.count; i++) (void)close(m.handles[i].fd);
  return sent;
}

/* The same for a tensor that comes. */
static int take(int from, tensor *t) {
  const struct cmsghdr *fds;
  gmlake_result result;
  message m;
  parcel p;
  size_t i;
  wrap(&p, &m);
  if (recvmsg(from, &p.head, MSG_WAITALL) != (ssize_t)sizeof(m)) return 0;
  fds = CMSG_FIRSTHDR(&p.head);
  if (!fds || fds->cmsg_len != CMSG_LEN(m.count * sizeof(int))) return -1;
  for (i = 0; i < m.count; i++)
    memcpy(&m.handles[i].fd, CMSG_DATA(fds) + i * sizeof(int), sizeof(int));
  t->number = m.number;
  result = gmlake_import(lake, m.handles, m.count, &t->ptr);
  for (i = 0; i < m.count; i++) (void)close(m.handles[i].fd);
  return failed("import", result) ? -1 : 1;
}

/* ---- The two processes ---- */

/* Answers each tensor with one of its own, until the other one is gone or it is time to die. */
static int second(int other, unsigned one_of, unsigned seed) {
  tensor in = {NULL, 0}, out = {NULL, 0};
  if (open_all()) return 1;
  while (take(other, &in) == 1) {
    seed = seed * 1664525u + 1013904223u;
    if (one_of && (seed >> 8) % one_of == 0) (void)raise(SIGKILL);
    if (!is_whole(&in)) return 2;
    if (out.ptr && drop(&out)) return 3; /* the other one has let go of it, or keeps it alive */
    if (make(&out, in.number + 1) || drop(&in) || post(other, &out) < 0) return 4;
  }
  return failed("destroy", gmlake_destroy(lake)) ? 5 : 0;
}

/* Starts this program again, as the second process. Returns its number, 0 after an error. */
static pid_t start(const char *self, unsigned one_of, unsigned seed, int *out_socket) {
  char fd[16], odds[16], number[16];
  int pair[2];
  pid_t child;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 0;
  (void)snprintf(fd, sizeof(fd), "%d", pair[1]);
  (void)snprintf(odds, sizeof(odds), "%u", one_of);
  (void)snprintf(number, sizeof(number), "%u", seed);
  child = fork();
  if (!child) {
    (void)close(pair[0]);
    (void)execl(self, self, "second", fd, odds, number, (char *)NULL);
    _exit(9);
  }
  (void)close(pair[1]);
  *out_socket = pair[0];
  return child < 0 ? 0 : child;
}

static size_t descriptors(void) {
  size_t count = 0;
  int fd;
  for (fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

/* What must be as before, while there is no second process. */
static size_t device_free(void) {
  gmlake_budget budget;
  return gmlake_trim(lake, 0, NULL) || gmlake_get_budget(lake, &budget) ? 0
                                                                        : budget.driver_free_bytes;
}

static int first(const char *self, unsigned rounds, unsigned one_of) {
  tensor out = {NULL, 0}, in = {NULL, 0}, next = {NULL, 0};
  unsigned round, deaths = 0;
  size_t fds, bytes;
  gmlake_stats stats;
  int other, status = 0;
  pid_t child;
  if (open_all()) return 1;
  bytes = device_free();
  fds = descriptors();
  child = start(self, one_of, 1, &other);
  for (round = 0; round < rounds && child; round++) {
    if (make(&out, 2 * round) || post(other, &out) < 0) return 1;
    while (take(other, &next) != 1) { /* it died: its last tensor is whole, and ours too */
      if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) return 2;
      if (!is_whole(&in) || !is_whole(&out)) return 3;
      (void)close(other);
      child = start(self, one_of, 2 + deaths++, &other);
      if (!child || post(other, &out) < 0) return 4;
    }
    if (next.number != 2 * round + 1 || !is_whole(&next)) return 5;
    if ((in.ptr && drop(&in)) || drop(&out)) return 6;
    in = next;
  }
  (void)close(other);
  if (waitpid(child, &status, 0) != child || drop(&in)) return 7;
  (void)gmlake_get_stats(lake, &stats);
  printf("%u tensors went around, %u times the other process died\n", round, deaths);
  printf("descriptors: %ld more; exported %llu, imported %llu bytes; device memory: %s\n",
         (long)descriptors() - (long)fds, (unsigned long long)stats.exported_bytes,
         (unsigned long long)stats.imported_bytes, device_free() >= bytes ? "as before" : "less");
  if (failed("destroy", gmlake_destroy(lake))) return 8;
  device_close();
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 5 && !strcmp(argv[1], "second"))
    return second(atoi(argv[2]), (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]));
  return first(argv[0], argc > 1 ? (unsigned)atoi(argv[1]) : 100,
               argc > 2 ? (unsigned)atoi(argv[2]) : 40);
}
