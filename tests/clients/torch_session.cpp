/* Loaded before torch on a CPU: large host memory is that of a session, as a GPU's would be, and
   the library has the functions that gmlake_torch/session.py calls. A copy is done when it is
   queued. What is away has no access, so a storage that is used without being there is a fault
   (SIGSEGV). */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLAKE_STATIC
#define GMLAKE_BFC_IMPLEMENTATION
#define GMLAKE_BFC_STATIC
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_STATIC
#include "examples/torch/adapter.h"
#include "examples/torch/lake.hpp"

#include "gmlake_offload.h"

#include "examples/torch/offload.hpp"
#include "examples/torch/offload_calls.hpp"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <time.h>

static gmlake *lake_of(int) { return nullptr; }

namespace {

const size_t CHUNK = size_t(1) << 16, ADDRESSES = size_t(1) << 38;

/* ---- Memory at addresses that stay ---------------------------------------------------------- */

struct Range {
  char *ptr;
  size_t bytes;
};

struct Host {
  char *first = nullptr, *next = nullptr;
  std::atomic<size_t> committed{0}, limit{0}, peak{0}, served_min{CHUNK};

  bool owns(const void *ptr) const {
    return first && ptr >= first && ptr < static_cast<void *>(first + ADDRESSES);
  }
};
Host &host() {
  static Host *const host = new Host;
  return *host;
}

int reserve(void *, size_t bytes, void **out_range, void **out_ptr) {
  Host &h = host();
  if (!h.first) {
    void *const all =
        mmap(nullptr, ADDRESSES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return 2;
    h.first = h.next = static_cast<char *>(all);
  }
  *out_range = new Range{h.next, bytes};
  *out_ptr = h.next;
  h.next += bytes;
  return 0;
}
void release(void *, void *range, void *) { delete static_cast<Range *>(range); }
int map(const Range *range, int access) {
  return mmap(range->ptr, range->bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
         MAP_FAILED;
}
/* Chunks belong to their addresses for ever, whichever are wanted. */
int commit(void *, void *of, size_t bytes, uint32_t *chunks, void *) {
  Host &h = host();
  const Range *const range = static_cast<Range *>(of);
  if (h.limit && h.committed + bytes > h.limit) return 1;
  if (map(range, PROT_READ | PROT_WRITE)) return 2;
  for (size_t i = 0; i < bytes / CHUNK; i++)
    chunks[i] = static_cast<uint32_t>(size_t(range->ptr - h.first) / CHUNK + i);
  h.committed += bytes;
  h.peak = std::max<size_t>(h.peak, h.committed);
  return 0;
}
int discard(void *, void *range, size_t bytes, void *) {
  if (map(static_cast<Range *>(range), PROT_NONE)) return 2;
  host().committed -= bytes;
  return 0;
}

/* ---- Streams on which all is done at once ---------------------------------------------------- */

uint64_t now() {
  timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
}

extern "C" void *__libc_memalign(size_t alignment, size_t bytes);
extern "C" void __libc_free(void *ptr);

gmlake_offload_backend make_backend() {
  static char out, in;
  gmlake_offload_backend q{};
  q.struct_bytes = sizeof q;
  q.abi_version = 2;
  q.out_stream = &out;
  q.in_stream = &in;
  q.host_alloc = [](void *, size_t bytes, void **out_ptr) {
    *out_ptr = __libc_memalign(64, bytes);
    return *out_ptr ? 0 : 1;
  };
  q.host_free = [](void *, void *ptr, size_t) { __libc_free(ptr); };
  q.copy = [](void *, const gmlake_offload_copy *copy, void *) {
    std::memcpy(copy->to_host ? copy->host_ptr : copy->device_ptr,
                copy->to_host ? copy->device_ptr : copy->host_ptr, copy->bytes);
    return 0;
  };
  q.event_create = [](void *, uint32_t, int, void **out_event) {
    *out_event = new uint64_t(0);
    return 0;
  };
  q.event_destroy = [](void *, void *event) { delete static_cast<uint64_t *>(event); };
  q.event_record = [](void *, void *event, void *) {
    *static_cast<uint64_t *>(event) = now();
    return 0;
  };
  q.stream_wait = [](void *, void *, void *) { return 0; };
  q.event_done = [](void *, void *, int *out_done) {
    *out_done = 1;
    return 0;
  };
  q.event_ns = [](void *, void *from, void *to, uint64_t *out_ns) {
    *out_ns = *static_cast<uint64_t *>(to) - *static_cast<uint64_t *>(from);
    return 0;
  };
  q.stream_sync = [](void *, void *) { return 0; };
  return q;
}

void *session_stream(int) { return nullptr; }

std::atomic<gmlake_torch::Offload *> guest{nullptr};

std::unique_ptr<gmlake_torch::Offload> make_session(int, size_t, const char **) {
  gmlake_offload_memory memory{};
  memory.struct_bytes = sizeof memory;
  memory.abi_version = 3;
  memory.chunk_bytes = CHUNK;
  memory.reserve = reserve;
  memory.release = release;
  memory.commit = commit;
  memory.discard = discard;
  auto made = std::make_unique<gmlake_torch::Offload>(
      make_backend(), memory, [] { return host().committed.load(); },
      [](size_t bytes) { host().limit = bytes; });
  guest = made.get();
  return made;
}

} // namespace

/* ---- What torch calls ------------------------------------------------------------------------ */

API int posix_memalign(void **out_ptr, size_t alignment, size_t bytes) {
  gmlake_error_info info{};
  *out_ptr = nullptr;
  if (guest && bytes >= host().served_min && alignment <= 512 &&
      guest.load()->alloc(bytes, nullptr, out_ptr, &info) != GMLAKE_OK)
    return ENOMEM;
  if (!*out_ptr) *out_ptr = __libc_memalign(alignment, bytes);
  return *out_ptr ? 0 : ENOMEM;
}
API void free(void *ptr) {
  if (guest && host().owns(ptr))
    guest.load()->free(ptr, nullptr);
  else
    __libc_free(ptr);
}

/* Requests of so many bytes, and of more, are the session's. */
API void host_serve(size_t bytes) { host().served_min = bytes; }
API size_t host_peak(void) { return host().peak; }
API void host_reset_peak(void) { host().peak = host().committed.load(); }
