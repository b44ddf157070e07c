/* What gmlake_torch.cpp needs of a lake, without torch: one device's lake, its live blocks, torch's
   memory pools, and the figures that torch shows. tests/clients/torch_allocator.cpp tests it over a
   driver without a device.

   Device    one device: allocations, frees, pools, captures, checkpoints, snapshots. Thread-safe
   Memory    the backend that the device's lake is given: the driver's, with a limit that may move,
             peers that may join, and counts of chunks
   Table     live blocks by address

   Locks: Device::mutex_ protects the table, the figures and the pools. It is never held while the
   lake is called, except for pools and captures, which call nothing of this file. Memory::mutex_ is
   taken inside calls of the lake and holds nobody up.

   What the lake calls is noexcept: an exception would leave the lake's lock taken for ever.

   A child of fork may hold copies of locked mutexes. So it takes none: see is_child. */
#pragma once

#include "gmlake.h"

#include "../ledger.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#if !defined(_WIN32)
#include <pthread.h>
#include <unistd.h>
#endif

namespace gmlake_torch {

using PoolId = std::pair<unsigned long long, unsigned long long>;
using Context = std::shared_ptr<void>; /* what the framework wants to remember of a call */

/* A call of the lake that failed. */
struct Failure {
  gmlake_result result;
  gmlake_error_info info;
  std::string reason{}; /* the guest's, if it refused */
};

/* ---- Figures -------------------------------------------------------------------------------- */

struct Counter {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  void up(size_t amount) {
    current += static_cast<int64_t>(amount);
    peak = std::max(peak, current);
    allocated += static_cast<int64_t>(amount);
  }
  void down(size_t amount) {
    current -= static_cast<int64_t>(amount);
    freed += static_cast<int64_t>(amount);
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
};

enum Kind { ALL = 0, SMALL = 1, LARGE = 2, KINDS = 3 }; /* as torch's StatType */

constexpr size_t kGrain = 512;
constexpr size_t kSmallMax = size_t(1) << 20; /* torch: a larger block is of the large pool */
inline Kind kind_of(size_t bytes) { return bytes <= kSmallMax ? SMALL : LARGE; }

struct Figures {
  Counter allocation[KINDS], allocated_bytes[KINDS], requested_bytes[KINDS];
  Counter active[KINDS], active_bytes[KINDS]; /* live, or freed and still used by other streams */
  Counter segment[KINDS], reserved_bytes[KINDS];
  int64_t retry_count = 0;  /* requests for which somebody else had to make room */
  int64_t oom_count = 0;    /* allocations that failed for want of memory */
  int64_t create_count = 0; /* chunks created so far, and released */
  int64_t release_count = 0;
  int64_t host_wait_count = 0; /* times that the host waited for the device */
};

/* Counts live blocks. Freed blocks that other streams still use are late: they count as active, and
   as requested. The lake knows their bytes; to which size they belong nobody knows, so they count as
   large. */
class Ledger {
 public:
  struct Late {
    int64_t count = 0, bytes = 0;
  };

  void up(Kind kind, size_t bytes, size_t requested) {
    for (int k : {int(ALL), int(kind)}) {
      live_[k][COUNT].up(1);
      live_[k][BYTES].up(bytes);
      live_[k][REQUESTED].up(requested);
    }
  }
  void down(Kind kind, size_t bytes, size_t requested) {
    for (int k : {int(ALL), int(kind)}) {
      live_[k][COUNT].down(1);
      live_[k][BYTES].down(bytes);
      live_[k][REQUESTED].down(requested);
    }
  }
  /* So many blocks are late now. */
  void note(const Late &late) {
    for (int kind : {ALL, LARGE})
      for (int measure = 0; measure < MEASURES; measure++) {
        int64_t &peak = active_peak_[kind][measure];
        peak = std::max(peak, live_[kind][measure].current + amount_of(late, measure));
      }
  }

  int64_t live_bytes() const { return live_[ALL][BYTES].current; }
  void read(Figures &out, const Late &late) const {
    for (int kind = 0; kind < KINDS; kind++) {
      out.allocation[kind] = live_[kind][COUNT];
      out.allocated_bytes[kind] = live_[kind][BYTES];
      out.active[kind] = active(kind, COUNT, late);
      out.active_bytes[kind] = active(kind, BYTES, late);
      out.requested_bytes[kind] = active(kind, REQUESTED, late);
    }
  }
  void reset_peaks(const Late &late) {
    for (int kind = 0; kind < KINDS; kind++)
      for (int measure = 0; measure < MEASURES; measure++) {
        live_[kind][measure].reset_peak();
        active_peak_[kind][measure] = 0;
      }
    note(late);
  }
  void reset_accumulated(const Late &late) {
    late_then_ = late;
    for (auto &counters : live_)
      for (Counter &counter : counters) counter.reset_accumulated();
  }

 private:
  enum Measure { COUNT = 0, BYTES = 1, REQUESTED = 2, MEASURES = 3 };

  static int64_t amount_of(const Late &late, int measure) {
    return measure == COUNT ? late.count : late.bytes;
  }
  Counter active(int kind, int measure, const Late &late) const {
    Counter out = live_[kind][measure];
    if (kind == SMALL) return out;
    out.current += amount_of(late, measure);
    out.freed -= amount_of(late, measure) - amount_of(late_then_, measure);
    out.peak = std::max({out.peak, active_peak_[kind][measure], out.current});
    return out;
  }

  Counter live_[KINDS][MEASURES];
  int64_t active_peak_[KINDS][MEASURES] = {}; /* of live and late blocks together */
  Late late_then_;                            /* at the last reset of what accumulates */
};

/* On whose behalf this thread calls the lake, while it exists: whose chunks it creates, and what is
   told of them, and of those that it releases. */
struct Asker {
  Asker(PoolId id, void *own_stream, const Context &own_context)
      : pool(id), stream(own_stream), context(own_context) {
    now() = this;
  }
  ~Asker() { now() = outer; }
  Asker(const Asker &) = delete;
  Asker &operator=(const Asker &) = delete;

  /* The innermost one; NULL: none. */
  static const Asker *&now() {
    static thread_local const Asker *asker = nullptr;
    return asker;
  }
  const PoolId pool;
  void *const stream;
  const Context &context;
  const Asker *const outer = now();
};

/* ---- Memory: the driver as the lake sees it -------------------------------------------------- */

class Memory {
 public:
  /* is_made: a chunk of the pool has got its address, else it will lose it. */
  using SegmentFn = std::function<void(bool is_made, uint64_t address, size_t bytes, PoolId pool)>;

  Memory(const gmlake_backend *inner, SegmentFn on_segment)
      : table_(*inner), inner_(inner), on_segment_(std::move(on_segment)) {
    table_.get_memory_info = get_memory_info;
    table_.create = create;
    table_.import_handle = import_handle;
    table_.release = release;
    table_.map = map;
    table_.unmap = unmap;
    table_.set_access = set_access;
    table_.event_record = event_record;
    std::lock_guard<std::mutex> lock(all_mutex());
    all().push_back(this);
  }
  ~Memory() {
    std::lock_guard<std::mutex> lock(all_mutex());
    all().erase(std::find(all().begin(), all().end(), this));
  }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  const gmlake_backend *table() const { return &table_; }
  size_t reserved() {
    std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<size_t>(bytes_.current);
  }
  /* 0: no limit. It may lie below what is held: then nothing more is created. A session has a limit
     of its own; the smaller one counts. */
  void set_limit(size_t bytes) { limit_.store(bytes); }
  void set_session_limit(size_t bytes) { session_limit_.store(bytes); }
  size_t limit() const {
    const size_t own = limit_.load(), session = session_limit_.load();
    return own && session ? std::min(own, session) : own + session;
  }

  /* From now on the device may access all that is mapped, and what will be. */
  gmlake_result add_peer(int device) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::find(peers_.begin(), peers_.end(), device) != peers_.end()) return GMLAKE_OK;
    for (const auto &mapping : mappings_) {
      int code = 0;
      const gmlake_result result =
          inner_->set_access(inner_->user, mapping.first, mapping.second.bytes, &device, 1, &code);
      if (result != GMLAKE_OK) return result;
    }
    peers_.push_back(device);
    return GMLAKE_OK;
  }

  void read(Figures &out) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int kind : {ALL, LARGE}) {
      out.segment[kind] = chunks_;
      out.reserved_bytes[kind] = bytes_;
    }
    out.create_count = chunks_.allocated;
    out.release_count = chunks_.freed;
  }
  /* By which descriptor other processes take the chunk; the first time it is made. It is closed
     when the chunk is released. Returns 0, or the driver's code. pre: the lake has the chunk. */
  int share(uint64_t handle, int32_t &out_fd, uint64_t &out_serial, uint64_t &out_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    Chunk &chunk = handles_[handle];
    if (chunk.fd < 0) {
      gmlake_handle made{};
      int code = 0;
      made.type = GMLAKE_HANDLE_POSIX_FD;
      made.bytes = chunk.bytes;
      if (inner_->export_handle(inner_->user, handle, &made, &code) != GMLAKE_OK)
        return code ? code : -1;
      chunk.fd = made.fd;
      chunk.serial = ++serial_;
    }
    out_fd = chunk.fd;
    out_serial = chunk.serial;
    out_bytes = chunk.bytes;
    return 0;
  }
  /* Whether the chunk is another process's. */
  bool is_foreign(uint64_t handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = handles_.find(handle);
    return it != handles_.end() && it->second.is_foreign;
  }

  /* The chunk whose home the address lies in was the so-manieth of the process, from 1 on; 0: none.
     Processes that ask for the same have the same orders, not the same addresses. */
  uint64_t order_of(uint64_t address) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = mappings_.upper_bound(address);
    return it == mappings_.begin() ? 0 : handles_[std::prev(it)->second.handle].order;
  }
  /* By the driver. What it cannot say, for example as earlier work has failed, is no. */
  bool is_capturing(void *stream) const noexcept {
    int is = 0, code = 0;
    return inner_->is_capturing &&
           inner_->is_capturing(inner_->user, stream, &is, &code) == GMLAKE_OK && is;
  }

  void reset_peaks() {
    std::lock_guard<std::mutex> lock(mutex_);
    chunks_.reset_peak();
    bytes_.reset_peak();
  }
  void reset_accumulated() {
    std::lock_guard<std::mutex> lock(mutex_);
    chunks_.reset_accumulated();
    bytes_.reset_accumulated();
  }

 private:
  struct Chunk {
    size_t bytes = 0;
    bool is_foreign = false; /* another process's: it counts nowhere */
    int fd = -1;             /* that other processes take it by; -1: it was not shared */
    uint64_t serial = 0;     /* of that descriptor: no other ever has it */
    PoolId pool{0, 0};       /* that it was created for */
    uint64_t order = 0;      /* see order_of; 0: it has no home */
  };

  struct Mapping {
    size_t bytes;
    uint64_t handle;
    bool is_home; /* on_segment_ was told of it, and not of its end */
  };

  static uint64_t next_order() {
    static std::atomic<uint64_t> count{0};
    return ++count;
  }

  /* The table's functions get the driver's own `user`, so that those of the driver may stay in the
     table. A process has few devices. */
  static std::vector<Memory *> &all() {
    static auto &memories = *new std::vector<Memory *>; /* torch frees until the very end */
    return memories;
  }
  static std::mutex &all_mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static Memory *of(void *user) {
    std::lock_guard<std::mutex> lock(all_mutex());
    for (Memory *memory : all())
      if (memory->inner_->user == user) return memory;
    return nullptr;
  }

  bool has_room(size_t bytes) { return !limit() || reserved() + bytes <= limit(); }

  static gmlake_result get_memory_info(void *user, size_t *out_free, size_t *out_total,
                                       int *out_code) noexcept {
    Memory *const m = of(user);
    const gmlake_result result = m->inner_->get_memory_info(user, out_free, out_total, out_code);
    if (result == GMLAKE_OK && m->limit())
      *out_free = std::min(*out_free, m->limit() - std::min(m->limit(), m->reserved()));
    return result;
  }

  static gmlake_result create(void *user, size_t bytes, unsigned handle_types, uint64_t *out_handle,
                              int *out_code) noexcept {
    Memory *const m = of(user);
    gmlake_result result;
    if (!m->has_room(bytes)) {
      *out_code = 2; /* as the driver says that memory has run out */
      return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    result = m->inner_->create(user, bytes, handle_types, out_handle, out_code);
    if (result != GMLAKE_OK) return result;
    std::lock_guard<std::mutex> lock(m->mutex_);
    m->handles_[*out_handle].bytes = bytes;
    m->handles_[*out_handle].pool = Asker::now() ? Asker::now()->pool : PoolId{0, 0};
    m->chunks_.up(1);
    m->bytes_.up(bytes);
    return GMLAKE_OK;
  }

  static gmlake_result import_handle(void *user, const gmlake_handle *in, uint64_t *out_handle,
                                     int *out_code) noexcept {
    Memory *const m = of(user);
    const gmlake_result result = m->inner_->import_handle(user, in, out_handle, out_code);
    if (result != GMLAKE_OK) return result;
    std::lock_guard<std::mutex> lock(m->mutex_);
    m->handles_[*out_handle].is_foreign = true;
    return GMLAKE_OK;
  }

  static gmlake_result release(void *user, uint64_t handle, int *out_code) noexcept {
    Memory *const m = of(user);
    const gmlake_result result = m->inner_->release(user, handle, out_code);
    if (result != GMLAKE_OK) return result;
    Chunk chunk;
    {
      std::lock_guard<std::mutex> lock(m->mutex_);
      chunk = m->handles_[handle];
      m->handles_.erase(handle);
      if (chunk.is_foreign) return GMLAKE_OK;
      m->chunks_.down(1);
      m->bytes_.down(chunk.bytes);
    }
#if !defined(_WIN32)
    if (chunk.fd >= 0) (void)close(chunk.fd);
#endif

    return GMLAKE_OK;
  }

  static gmlake_result map(void *user, uint64_t address, size_t bytes, uint64_t handle,
                           int *out_code) noexcept {
    Memory *const m = of(user);
    const gmlake_result result = m->inner_->map(user, address, bytes, handle, out_code);
    bool is_home = false;
    PoolId pool;
    if (result != GMLAKE_OK) return result;
    {
      std::lock_guard<std::mutex> lock(m->mutex_);
      Chunk &chunk = m->handles_[handle];
      is_home = !chunk.order && !chunk.is_foreign; /* its first mapping is its home */
      pool = chunk.pool;
      if (is_home) chunk.order = next_order();
      m->mappings_[address] = {bytes, handle, is_home};
    }
    if (m->on_segment_ && is_home) m->on_segment_(true, address, bytes, pool);
    return GMLAKE_OK;
  }

  static gmlake_result unmap(void *user, uint64_t address, size_t bytes, int *out_code) noexcept {
    Memory *const m = of(user);
    for (const auto &home : m->take_homes(address, address + bytes))
      if (m->on_segment_) m->on_segment_(false, home.first, home.second.bytes, home.second.pool);
    std::lock_guard<std::mutex> lock(m->mutex_); /* a peer that joins now sees it no more */
    const gmlake_result result = m->inner_->unmap(user, address, bytes, out_code);
    if (result == GMLAKE_OK)
      m->mappings_.erase(m->mappings_.lower_bound(address),
                         m->mappings_.lower_bound(address + bytes));
    return result;
  }

  static gmlake_result set_access(void *user, uint64_t address, size_t bytes, const int *peers,
                                  size_t peer_count, int *out_code) noexcept {
    Memory *const m = of(user);
    std::lock_guard<std::mutex> lock(m->mutex_); /* a peer that joins now sees it, or is in it */
    std::vector<int> all_peers(peers, peers + peer_count);
    for (int peer : m->peers_)
      if (std::find(all_peers.begin(), all_peers.end(), peer) == all_peers.end())
        all_peers.push_back(peer);
    return m->inner_->set_access(user, address, bytes, all_peers.data(), all_peers.size(),
                                 out_code);
  }

  /* The chunks whose homes are in the range that will be unmapped, by address: who is told may have
     registered them. */
  std::vector<std::pair<uint64_t, Chunk>> take_homes(uint64_t from, uint64_t to) {
    std::vector<std::pair<uint64_t, Chunk>> out;
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = mappings_.lower_bound(from); it != mappings_.end() && it->first < to; ++it)
      if (std::exchange(it->second.is_home, false))
        out.emplace_back(it->first, handles_[it->second.handle]);
    return out;
  }

  /* A stream may join a capture by an event, and the lake learns of it by the first request on that
     stream. An event that is recorded on it then would become a part of the graph, and to ask for
     it would spoil the capture. */
  static gmlake_result event_record(void *user, void *event, gmlake_stream stream,
                                    int *out_code) noexcept {
    Memory *const m = of(user);
    if (stream && m->is_capturing(stream)) {
      *out_code = 900; /* as the driver says that a capture forbids something */
      return GMLAKE_ERROR_CAPTURING;
    }
    return m->inner_->event_record(user, event, stream, out_code);
  }

  gmlake_backend table_;
  const gmlake_backend *inner_;
  SegmentFn on_segment_;
  std::atomic<size_t> limit_{0}, session_limit_{0};
  std::mutex mutex_; /* protects what follows */
  std::unordered_map<uint64_t, Chunk> handles_;
  std::map<uint64_t, Mapping> mappings_; /* by address */
  std::vector<int> peers_;
  uint64_t serial_ = uint64_t(std::random_device()()) << 32; /* other processes have others */
  Counter chunks_, bytes_;
};

/* ---- Blocks --------------------------------------------------------------------------------- */

struct Pool;

struct Block {
  void *ptr = nullptr;
  size_t bytes = 0, requested = 0; /* rounded to 512, and as asked for */
  void *stream = nullptr;          /* that it was allocated on */
  Pool *pool = nullptr;            /* NULL: the default one */
  Context context;
  unsigned pins = 0;     /* checkpoints in which it is live */
  bool is_live = false;  /* else, if it has pins, its memory waits for a checkpoint to come back */
  bool has_uses = false; /* recorded on another stream, and the lake knows */
  bool is_foreign = false; /* its stream may be destroyed before it is freed */
  bool is_guest = false;   /* the guest served it */
  uint64_t stream_id = 0;  /* [is_foreign] of its stream, which no other ever has */

  Kind kind() const { return kind_of(bytes); }
};

/* Live blocks by address: open addressing, never more than half full. */
class Table {
 public:
  using Slot = size_t;

  Table() : slots_(1024) {}

  Block *find(const void *ptr) const { return slots_[slot(ptr)].block; }
  /* Where the block at the address is, or would be. Valid until the next add or remove. */
  Slot slot(const void *ptr) const {
    Slot i = home(ptr);
    while (slots_[i].block && slots_[i].ptr != ptr) i = next(i);
    return i;
  }
  Block *at(Slot i) const { return slots_[i].block; }
  void add(Block *block) {
    if (2 * ++count_ > slots_.size()) grow();
    put({block->ptr, block});
  }
  /* pre: there is a block. The entries behind it move up, as far as they may. */
  void remove(Slot hole) {
    for (Slot i = next(hole); slots_[i].block; i = next(i))
      if (((i - home(slots_[i].ptr)) & mask()) >= ((i - hole) & mask())) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    slots_[hole] = Entry();
    count_--;
  }

 private:
  struct Entry {
    const void *ptr = nullptr;
    Block *block = nullptr;
  };

  size_t mask() const { return slots_.size() - 1; }
  Slot next(Slot i) const { return (i + 1) & mask(); }
  Slot home(const void *ptr) const {
    const uint64_t key = reinterpret_cast<uint64_t>(ptr) / kGrain;
    return static_cast<Slot>((key * 0x9E3779B97F4A7C15u) >> 32) & mask();
  }
  void put(const Entry &entry) {
    Slot i = home(entry.ptr);
    while (slots_[i].block) i = next(i);
    slots_[i] = entry;
  }
  void grow() {
    std::vector<Entry> former(slots_.size() * 2);
    former.swap(slots_);
    for (const Entry &entry : former)
      if (entry.block) put(entry);
  }

  std::vector<Entry> slots_;
  size_t count_ = 0;
};

/* ---- Pools ---------------------------------------------------------------------------------- */

/* A memory pool of torch: a pool of the lake. It is destroyed when torch has released it and none
   of its blocks is live; not at once, since the graphs that were captured into it may still run. */
struct Pool {
  PoolId id{0, 0};
  gmlake_pool *pool = nullptr;
  int use_count = 0;
  bool serves_oom = false, is_exclusive = false, had_capture = false;
  bool is_elsewhere = false; /* somebody else serves its requests: see Device::is_elsewhere */
  std::unordered_set<Block *> live;
  std::unordered_set<Block *> kept; /* freed, but live in a checkpoint: they keep their addresses */
};

/* Which blocks of a pool were live at a moment. They keep their addresses as long as it exists. */
struct Checkpoint {
  std::shared_ptr<Pool> pool;
  std::vector<Block *> live;
};

/* Requests that go to a pool: those on streams for which the filter says yes. */
struct Route {
  std::shared_ptr<Pool> pool;
  std::function<bool(void *stream)> filter;
  bool is_capture = false, has_begun = false; /* the latter: the driver was seen to capture */
  bool was_released = false;   /* the pool, while this route was open: whose use that was is open */
  bool has_use = true;         /* its use of the pool is counted */
  std::vector<void *> streams; /* that the lake was told are captured */
  std::weak_ptr<void> thread;  /* that began it: see this_thread */
};

/* Exists as long as the calling thread. */
inline const std::shared_ptr<void> &this_thread() {
  struct Token {
    std::shared_ptr<void> value = std::make_shared<char>();
    ~Token() { value.reset(); } /* static objects may still ask */
  };
  static thread_local Token token;
  return token.value;
}

/* ---- Snapshots ------------------------------------------------------------------------------ */

struct Piece { /* of a segment */
  uint64_t address = 0;
  size_t bytes = 0, requested = 0;
  bool is_live = false, is_active = false; /* active: live, or other streams still use it */
  Context context;
};

/* A range of addresses without a gap, of one pool: of the home arena without what stitched blocks
   own, or one stitched block. Their bytes together are what the lake holds. */
struct Segment {
  uint64_t address = 0;
  size_t bytes = 0;
  PoolId pool{0, 0};
  void *stream = nullptr; /* of its first block */
  uint64_t order = 0;     /* Memory::order_of its address */
  std::vector<Piece> pieces;
};

/* Serves requests for the default pool in the lake's place, and knows what it has served. */
class Guest {
 public:
  virtual ~Guest() = default;
  /* OK and NULL: the lake is to serve it. Else why not, in out_info. */
  virtual gmlake_result alloc(size_t bytes, void *stream, void **out_ptr,
                              gmlake_error_info *out_info) = 0;
  virtual void free(void *ptr, void *stream) = 0;
  /* False: error() says why it cannot wait for the stream. */
  virtual bool record_stream(void *ptr, void *stream) = 0;
  /* The block stays where it is from now on. False: error() says why it does not. */
  virtual bool pin(void *ptr, void *stream) = 0;
  /* Memory of the lake has run out: whether the guest gave up some. */
  virtual bool make_room(size_t bytes) = 0;
  virtual std::string error() = 0; /* why the last call failed */
};

/* ---- Device --------------------------------------------------------------------------------- */

/* Whether this process is a child of fork: it has copies of blocks, and no device. */
inline std::atomic<bool> &child_flag() {
  static std::atomic<bool> flag{false};
  return flag;
}
inline bool is_child() { return child_flag().load(std::memory_order_relaxed); }
inline void watch_forks() {
#if !defined(_WIN32)
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { child_flag() = true; }); });
#endif
}

class Device {
 public:
  struct Hooks {
    Memory::SegmentFn on_segment;
    std::function<bool()> make_room;   /* asked when memory has run out; whether it freed some */
    std::function<void()> wait_device; /* waits for all work on the device. It alone may throw */
  };

  /* desc: of the lake; its backend is the driver's. Throws Failure. */
  Device(const gmlake_desc &desc, Hooks hooks)
      : hooks_(std::move(hooks)), inner_(desc.backend), memory_(desc.backend, hooks_.on_segment) {
    gmlake_desc own = desc;
    Failure failure{GMLAKE_OK, {}};
    watch_forks();
    own.backend = memory_.table();
    own.oom.fn = on_oom;
    own.oom.user = this;
    own.out_error = &failure.info;
    failure.result = gmlake_create(&own, &lake_);
    if (failure.result != GMLAKE_OK) throw failure;
    (void)gmlake_get_desc(lake_, &own);
    chunk_bytes_ = own.chunk_bytes;
  }
  ~Device() {
    if (is_child()) return;
    routes_.clear();
    pools_.clear();
    (void)gmlake_destroy(lake_);
    share_.reset();
  }
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  gmlake *lake() const { return lake_; }
  Memory &memory() { return memory_; }
  /* From now on the lake shares the device with those of other processes. pre: no other thread uses
     this one yet. Throws std::runtime_error. */
  void join(const std::string &path, size_t floor_bytes, unsigned weight) {
    gmlake_budget budget{};
    gmlake_oom_handler own{};
    own.fn = give_way;
    own.user = this;
    if (gmlake_get_budget(lake_, &budget) != GMLAKE_OK)
      throw std::runtime_error("the driver does not say how much memory there is");
    share_.reset(new gmlake_share(path, budget.total_bytes, floor_bytes, weight, own));
  }
  /* pre: the guest lives as long as the device. */
  void set_guest(Guest *guest) { guest_.store(guest, std::memory_order_release); }

  /* The block is the device's until it is freed. Throws Failure. pre: bytes > 0. is_foreign: the
     stream may be destroyed before the block is freed, and nobody will tell. */
  Block *alloc(size_t bytes, void *stream, Context context, bool is_foreign = false) {
    if (share_) share_->step(lake_);
    if (!is_foreign) {
      stay(stream);
      return alloc_on(bytes, stream, context, guest_.load(std::memory_order_acquire));
    }
    const uint64_t id = meet(stream);
    Block *const block = alloc_on(bytes, stream, context, nullptr);
    block->is_foreign = true;
    block->stream_id = id;
    return block;
  }

  /* The live block at the address; NULL: none. It may be freed meanwhile, unless the caller owns
     it. */
  Block *find(const void *ptr) {
    if (is_child()) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    Block *const block = table_.find(ptr);
    return block && block->is_live ? block : nullptr;
  }

  /* Takes the live block at the address back, and writes its bytes. A checkpoint in which it is live
     keeps its address. Returns false if there is none. */
  bool free_at(const void *ptr, size_t *out_bytes) {
    Block freed;
    if (is_child()) return true;
    if (route_count_.load(std::memory_order_acquire))
      if (const Block *const block = find(ptr))
        if (!block->is_foreign) learn(block->stream);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const Table::Slot slot = table_.slot(ptr);
      Block *const block = table_.at(slot);
      if (!block || !block->is_live) return false;
      *out_bytes = block->bytes;
      if (!take_off(block, slot, freed)) return true;
    }
    hand_in(freed);
    return true;
  }
  void free(Block *block) {
    size_t bytes = 0;
    (void)free_at(block->ptr, &bytes);
  }

  /* The block is used on the stream, too. is_foreign: as of alloc. Throws Failure. */
  void record_stream(Block *block, void *stream, bool is_foreign = false) {
    if (is_child() || stream == block->stream) return;
    if (!is_foreign) stay(stream);
    if (route_count_.load(std::memory_order_acquire)) learn(stream);
    if (block->is_guest) {
      Guest *const guest = guest_.load();
      if (guest->record_stream(block->ptr, stream)) return;
      throw Failure{GMLAKE_ERROR_DRIVER, {}, guest->error()};
    }
    const gmlake_result result = gmlake_record_stream(lake_, block->ptr, stream);
    if (result != GMLAKE_OK) fail(result);
    block->has_uses = true;
  }

  /* Others keep the block's address, and nobody will say until when. Throws Failure. */
  void pin(Block *block, void *stream) {
    Guest *const guest = block->is_guest ? guest_.load() : nullptr;
    if (!guest || guest->pin(block->ptr, stream)) return;
    throw Failure{GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, {}, guest->error()};
  }

  /* Gives free memory to the driver. Waits for work that still uses some, as cudaFree does; during
     captures that memory stays. Of a pool: gives it all back, if it is unused; else nothing. */
  void trim(PoolId id, const Context &context = nullptr) {
    if (is_child()) return;
    const Asker asker(id, nullptr, context);
    if (id == PoolId{0, 0} && memory_.reserved() && !is_any_captured()) hooks_.wait_device();
    (void)drop_pools(id);
    if (id != PoolId{0, 0}) return;
    (void)unpark();
    const gmlake_result result = gmlake_trim(lake_, 0, nullptr);
    if (result != GMLAKE_OK && !is_lost(result)) fail(result);
  }

  /* ---- Figures ---- */

  Figures figures() {
    Figures out;
    gmlake_stats stats{};
    gmlake_budget budget;
    if (has_late_ && !route_count_) (void)gmlake_get_budget(lake_, &budget); /* asks the streams */
    const Ledger::Late late = late_now();
    std::lock_guard<std::mutex> lock(mutex_);
    out.retry_count = retry_count_;
    out.oom_count = oom_count_;
    ledger_.read(out, late);
    memory_.read(out);
    if (gmlake_get_stats(lake_, &stats) == GMLAKE_OK)
      out.host_wait_count = static_cast<int64_t>(stats.host_wait_count - host_waits_before_);
    return out;
  }
  int64_t allocated_bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ledger_.live_bytes();
  }
  void reset_peaks() {
    const Ledger::Late late = late_now();
    std::lock_guard<std::mutex> lock(mutex_);
    ledger_.reset_peaks(late);
    memory_.reset_peaks();
    (void)gmlake_reset_peaks(lake_);
  }
  void reset_accumulated() {
    const Ledger::Late late = late_now();
    std::lock_guard<std::mutex> lock(mutex_);
    gmlake_stats stats{};
    ledger_.reset_accumulated(late);
    retry_count_ = oom_count_ = 0;
    memory_.reset_accumulated();
    if (gmlake_get_stats(lake_, &stats) == GMLAKE_OK) host_waits_before_ = stats.host_wait_count;
  }
  void count_oom() {
    std::lock_guard<std::mutex> lock(mutex_);
    oom_count_++;
  }

  /* ---- Pools ---- */

  /* is_elsewhere: somebody else serves a new pool's requests. */
  void retain_pool(PoolId id, bool is_elsewhere = false) {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool is_new = !pools_.count(id);
    Pool &pool = *pool_for(id);
    if (is_new) pool.is_elsewhere = is_elsewhere;
    pool.use_count++;
  }
  /* Whether somebody else serves that pool, or requests on the stream. */
  bool is_elsewhere(PoolId id) {
    if (is_child()) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = pools_.find(id);
    return it != pools_.end() && it->second->is_elsewhere;
  }
  bool is_elsewhere(void *stream) {
    if (!route_count_.load(std::memory_order_acquire)) return false;
    const std::shared_ptr<Pool> pool = route(stream);
    return pool && pool->is_elsewhere;
  }
  /* Returns whether there is such a pool in use. */
  bool release_pool(PoolId id) {
    if (is_child()) return true;
    std::lock_guard<std::mutex> routes(routes_mutex_);
    for (const auto &route : routes_)
      if (route->is_capture && route->pool->id == id) route->was_released = true;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = pools_.find(id);
    if (it == pools_.end() || it->second->use_count == 0) return false;
    drop_use(*it->second);
    return true;
  }
  int pool_use_count(PoolId id) {
    if (is_child()) return 1; /* a MemPool that ends there wants to be the last user */
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = pools_.find(id);
    return it == pools_.end() ? 0 : it->second->use_count;
  }
  void set_serves_oom(PoolId id, bool value) {
    std::lock_guard<std::mutex> lock(mutex_);
    pool_for(id)->serves_oom = value;
  }
  void set_exclusive(PoolId id) {
    std::lock_guard<std::mutex> lock(mutex_);
    pool_for(id)->is_exclusive = true;
  }
  /* Bytes that pools of torch hold. */
  size_t pool_bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t sum = 0;
    for (const auto &entry : pools_) {
      gmlake_stats stats{};
      if (gmlake_pool_get_stats(lake_, entry.second->pool, &stats) == GMLAKE_OK)
        sum += stats.reserved_bytes;
    }
    return sum;
  }
  /* Addresses of the pool's live blocks. Returns whether there is such a pool. */
  bool pool_live(PoolId id, std::unordered_set<void *> &out) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = pools_.find(id);
    if (it == pools_.end()) return false;
    for (const Block *block : it->second->live) out.insert(block->ptr);
    return true;
  }

  /* From now on requests on streams for which the filter says yes go to the pool, whose use count
     goes up. `current` is the stream that will be captured, if a capture is to begin: the filter
     says no to it, as it is not being captured yet. Returns false if there is such a route
     already. */
  bool begin_route(PoolId id, std::function<bool(void *)> filter, void *current) {
    auto fresh = std::make_shared<Route>();
    std::lock_guard<std::mutex> routes(routes_mutex_);
    drop_failed(nullptr);
    if (find_route(id) != routes_.end()) return false;
    drop_failed(current);
    fresh->thread = this_thread();
    fresh->filter = std::move(filter);
    fresh->is_capture = !fresh->filter(current) || memory_.is_capturing(current);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      fresh->pool = pool_for(id);
      fresh->pool->use_count++;
      fresh->pool->had_capture |= fresh->is_capture;
    }
    if (fresh->is_capture) try {
        tell_captured(*fresh, current);
      } catch (const Failure &) {
        std::lock_guard<std::mutex> lock(mutex_);
        drop_use(*fresh->pool);
        throw;
      }
    routes_.push_back(std::move(fresh));
    route_count_.fetch_add(1, std::memory_order_release);
    return true;
  }
  /* Returns false if there is no such route. One that drop_failed has ended gets its use of the
     pool back, unless the pool is gone: then a graph could not run, and must not seem to. */
  bool end_route(PoolId id) {
    std::lock_guard<std::mutex> routes(routes_mutex_);
    const auto it = find_route(id);
    const bool is_own = it != routes_.end() && (*it)->thread.lock() == this_thread();
    if (!is_own && take_back(id, it == routes_.end())) return true;
    if (it == routes_.end()) return false;
    erase_route(it);
    return true;
  }

  /* ---- Checkpoints ---- */

  /* NULL: there is no such pool. The device has to outlive it. */
  std::shared_ptr<Checkpoint> checkpoint(PoolId id) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = pools_.find(id);
    if (it == pools_.end()) return nullptr;
    std::shared_ptr<Checkpoint> out(new Checkpoint, [this](Checkpoint *p) { discard(p); });
    out->pool = it->second;
    for (Block *block : it->second->live) {
      block->pins++;
      out->live.push_back(block);
    }
    return out;
  }
  /* Makes the pool's live blocks those of the checkpoint. Writes what was live before, and what is
     now. */
  void restore(const Checkpoint &point, const Context &context, std::vector<void *> &out_freed,
               std::vector<void *> &out_live) {
    std::vector<Block *> former;
    const std::unordered_set<Block *> wanted(point.live.begin(), point.live.end());
    {
      std::lock_guard<std::mutex> lock(mutex_);
      former.assign(point.pool->live.begin(), point.pool->live.end());
    }
    for (Block *block : former) {
      out_freed.push_back(block->ptr);
      if (!wanted.count(block)) free(block);
    }
    for (Block *block : point.live) {
      if (!block->is_live) {
        std::lock_guard<std::mutex> lock(mutex_);
        point.pool->kept.erase(block);
        live_again(block, block->requested, Context(context));
      }
      out_live.push_back(block->ptr);
    }
  }

  /* ---- Snapshots ---- */

  std::vector<Segment> segments() {
    const std::vector<gmlake_map_entry> map = read_map();
    std::unordered_set<uint64_t> stitched;
    for (const auto &entry : map)
      if (entry.kind == GMLAKE_KIND_PIECE) stitched.insert(entry.owner);
    std::vector<Segment> out;
    bool is_open = false; /* the last segment may go on */
    for (const auto &entry : map) {
      std::lock_guard<std::mutex> lock(mutex_); /* by entry: a snapshot holds nobody up */
      const bool is_block = entry.kind == GMLAKE_KIND_BLOCK;
      if (!is_block && entry.kind != GMLAKE_KIND_HOLE) {
        is_open = false;
        continue;
      }
      const bool is_stitched = is_block && stitched.count(entry.address);
      if (!is_open || is_stitched || out.back().address + out.back().bytes != entry.address)
        out.push_back(segment_at(entry));
      add_piece(out.back(), entry, entry.address, false);
      is_open = !is_stitched;
    }
    return out;
  }

  /* The same memory, a segment for each chunk: what Hooks::on_segment was told of. A block is cut
     where a chunk ends, and its parts count as asked for in whole. */
  std::vector<Segment> chunk_segments() {
    std::map<uint64_t, std::pair<uint64_t, Segment>> chunks; /* end and segment by address */
    const std::vector<gmlake_map_entry> map = read_map();
    for (const auto &entry : map) {
      std::lock_guard<std::mutex> lock(mutex_); /* by entry: a snapshot holds nobody up */
      if (entry.kind == GMLAKE_KIND_CHUNK && entry.address)
        chunks[entry.address] = {entry.address + entry.bytes, segment_at(entry)};
    }
    for (const auto &entry : map) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (entry.kind != GMLAKE_KIND_BLOCK && entry.kind != GMLAKE_KIND_HOLE &&
          entry.kind != GMLAKE_KIND_PIECE)
        continue;
      const uint64_t owner = entry.kind == GMLAKE_KIND_PIECE ? entry.owner : entry.address;
      const uint64_t end = entry.address + entry.bytes;
      auto it = chunks.upper_bound(entry.address);
      if (it == chunks.begin() || std::prev(it)->second.first <= entry.address) continue;
      for (--it; it != chunks.end() && it->first < end; ++it) {
        gmlake_map_entry part = entry;
        part.address = std::max(entry.address, it->first);
        part.bytes = static_cast<size_t>(std::min(end, it->second.first) - part.address);
        add_piece(it->second.second, part, owner,
                  entry.kind == GMLAKE_KIND_PIECE || part.bytes != entry.bytes);
      }
    }
    std::vector<Segment> out;
    for (auto &chunk : chunks) out.push_back(std::move(chunk.second.second));
    return out;
  }

  Context context_of(const void *ptr) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Block *const block = table_.find(ptr);
    return block ? block->context : nullptr;
  }

 private:
  static bool is_short(gmlake_result result) {
    return result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_ERROR_LIMIT_REACHED;
  }
  /* The device is gone, and with it all memory. torch finds out by itself; a free may not throw. */
  static bool is_lost(gmlake_result result) {
    return result == GMLAKE_ERROR_SHUTTING_DOWN || result == GMLAKE_ERROR_DEVICE_LOST;
  }
  static size_t rounded(size_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

  [[noreturn]] void fail(gmlake_result result) {
    Failure failure{result, {}};
    (void)gmlake_get_last_error(lake_, &failure.info);
    throw failure;
  }

  static int on_oom(void *user, gmlake *lake, const gmlake_error_info *info) noexcept {
    Device *const device = static_cast<Device *>(user);
    {
      std::lock_guard<std::mutex> lock(device->mutex_);
      device->retry_count_++;
    }
    return device->share_ ? device->share_->on_shortage(lake, info) : give_way(user, lake, info);
  }
  /* Gives memory back, where it is others that want it also what nobody uses. */
  static int give_way(void *user, gmlake *, const gmlake_error_info *info) noexcept {
    Device *const device = static_cast<Device *>(user);
    Guest *const guest = device->guest_.load(std::memory_order_acquire);
    if (guest && guest->make_room(info->asked_bytes)) return 1;
    const bool has_freed = device->hooks_.make_room && device->hooks_.make_room();
    return has_freed || gmlake_share::is_for_others(*info);
  }

  /* ---- Allocating ---- */

  Block *alloc_on(size_t bytes, void *stream, Context &context, Guest *guest) {
    std::shared_ptr<Pool> pool;
    void *ptr = nullptr;
    if (route_count_.load(std::memory_order_acquire)) pool = route(stream);
    const Asker asker(pool ? pool->id : PoolId{0, 0}, stream, context);
    if (pool)
      if (Block *kept = take_kept(*pool, bytes, stream, context)) return kept;
    if (guest && !pool) {
      Failure failure{GMLAKE_OK, {}};
      failure.result = guest->alloc(bytes, stream, &ptr, &failure.info);
      if (failure.result != GMLAKE_OK) failure.reason = guest->error();
      if (failure.result != GMLAKE_OK) throw failure;
      if (ptr) return remember(ptr, bytes, stream, nullptr, context, true);
    }
    gmlake_result result = ask(pool.get(), bytes, stream, 0, &ptr);
    if (is_short(result)) result = ask_others(pool, bytes, stream, result, &ptr);
    if (result != GMLAKE_OK) fail(result);
    return remember(ptr, bytes, stream, pool.get(), context);
  }

  gmlake_result ask(Pool *pool, size_t bytes, void *stream, unsigned flags, void **out_ptr) {
    if (!pool) return gmlake_alloc(lake_, bytes, stream, out_ptr);
    gmlake_alloc_desc desc{};
    desc.bytes = bytes;
    desc.pool = pool->pool;
    desc.flags = flags | (pool->is_exclusive ? GMLAKE_EXCLUSIVE : 0);
    return gmlake_alloc_with(lake_, &desc, stream, out_ptr);
  }

  /* Memory has run out. Pools that serve others then, and pools that torch has released. */
  gmlake_result ask_others(std::shared_ptr<Pool> &pool, size_t bytes, void *stream,
                           gmlake_result result, void **out_ptr) {
    if (!pool) {
      std::vector<std::shared_ptr<Pool>> willing;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        for (const auto &entry : pools_)
          if (entry.second->serves_oom) willing.push_back(entry.second);
      }
      for (const auto &other : willing)
        if (ask(other.get(), bytes, stream, GMLAKE_NO_GROW, out_ptr) == GMLAKE_OK) {
          pool = other;
          return GMLAKE_OK;
        }
    }
    const bool has_room = unpark();
    return drop_pools({0, 0}) || has_room ? ask(pool.get(), bytes, stream, 0, out_ptr) : result;
  }

  Block *remember(void *ptr, size_t bytes, void *stream, Pool *pool, Context &context,
                  bool is_guest = false) {
    const Ledger::Late late = late_now();
    std::lock_guard<std::mutex> lock(mutex_);
    Block *block;
    if (spare_.empty()) {
      blocks_.emplace_back();
      block = &blocks_.back();
    } else {
      block = spare_.back();
      spare_.pop_back();
    }
    block->ptr = ptr;
    block->bytes = rounded(bytes);
    block->stream = stream;
    block->pool = pool;
    block->is_foreign = false;
    block->is_guest = is_guest;
    block->has_uses = false;
    table_.add(block);
    live_again(block, bytes, std::move(context));
    if (late.bytes) ledger_.note(late);
    return block;
  }

  /* What was freed and other streams still use, by the lake. Costs nothing where there is none. */
  Ledger::Late late_now() {
    if (!has_late_.load(std::memory_order_relaxed)) return {};
    gmlake_stats stats{};
    (void)gmlake_get_stats(lake_, &stats);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stats.pending_bytes) late_count_ = 0, has_late_ = false;
    return {late_count_, static_cast<int64_t>(stats.pending_bytes)};
  }

  /* pre: mutex_. */
  void live_again(Block *block, size_t requested, Context &&context) {
    block->requested = requested;
    block->context = std::move(context);
    block->is_live = true;
    if (block->pool) block->pool->live.insert(block);
    ledger_.up(block->kind(), block->bytes, requested);
  }

  /* pre: mutex_. What the block needs when it is freed is moved to out, and its record is taken
     away. Returns false if a checkpoint keeps it. */
  bool take_off(Block *block, Table::Slot slot, Block &out) {
    block->is_live = false;
    if (block->pool) block->pool->live.erase(block);
    ledger_.down(block->kind(), block->bytes, block->requested);
    if (keep(block)) return false;
    if (block->has_uses) late_count_++, has_late_ = true;
    out = std::move(*block); /* the context, too: it is let go of without the lock */
    table_.remove(slot);
    spare_.push_back(block);
    return true;
  }
  void hand_in(const Block &freed) {
    if (freed.is_guest)
      guest_.load()->free(freed.ptr, freed.stream);
    else if (freed.is_foreign)
      park(freed);
    else
      give_back(freed);
  }

  /* Gives the memory of a block back that has no record any more. */
  void give_back(const Block &freed) {
    const gmlake_result result = gmlake_free(lake_, freed.ptr, freed.stream);
    if (result != GMLAKE_OK && !is_lost(result)) fail(result);
  }

  /* pre: mutex_. Gives the record of a block back. */
  void forget(Block *block) {
    table_.remove(table_.slot(block->ptr));
    block->context = nullptr;
    spare_.push_back(block);
  }

  /* ---- Streams that nobody tells the end of ---- */

  /* Such a stream may be gone when its block is freed, and to name it then ends the process. So the
     block is parked. When the stream is named again it exists: then it gets its blocks back, if it
     is the same one. The others wait until the host has waited for the device: when memory runs
     out, or in trim. A free does not wait, as that would break a capture of somebody else. */
  void park(const Block &block) {
    std::lock_guard<std::mutex> lock(mutex_);
    parked_.push_back(block);
  }

  /* The stream is never destroyed: the lake is told once, or again where two have one place. */
  void stay(void *stream) {
    auto &place = staying_[(reinterpret_cast<uintptr_t>(stream) >> 4) % staying_.size()];
    if (!stream || place.load(std::memory_order_relaxed) == stream) return;
    if (gmlake_mark_stream(lake_, stream, GMLAKE_STREAM_STAYS) == GMLAKE_OK)
      place.store(stream, std::memory_order_relaxed);
  }

  /* The stream exists: returns its id, and frees what is parked for it. */
  uint64_t meet(void *stream) {
    uint64_t id = 0;
    int code = 0;
    std::vector<Block> own;
    if (!inner_->stream_id || inner_->stream_id(inner_->user, stream, &id, &code) != GMLAKE_OK)
      return 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto is_own = [&](const Block &b) { return b.stream == stream && b.stream_id == id; };
      const auto it = std::stable_partition(parked_.begin(), parked_.end(),
                                            [&](const Block &b) { return !is_own(b); });
      own.assign(it, parked_.end());
      parked_.erase(it, parked_.end());
    }
    for (const Block &block : own) give_back(block);
    return id;
  }

  /* Waits for the device, and frees all that is parked. Returns whether it did. Not during captures. */
  bool unpark() {
    std::vector<Block> all;
    if (is_any_captured()) return false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      all.swap(parked_);
    }
    if (all.empty()) return false;
    if (!has_waited()) { /* they stay parked */
      std::lock_guard<std::mutex> lock(mutex_);
      parked_.insert(parked_.begin(), all.begin(), all.end());
      return false;
    }
    for (Block &block : all) {
      block.stream = GMLAKE_STREAM_NONE;
      give_back(block);
    }
    return true;
  }
  bool has_waited() {
    try {
      hooks_.wait_device();
      return true;
    } catch (...) {
      return false;
    }
  }

  /* ---- Checkpoints ---- */

  /* pre: mutex_. Whether a checkpoint keeps the block's address. */
  bool keep(Block *block) {
    if (!block->pins) return false;
    block->context = nullptr;
    block->pool->kept.insert(block);
    return true;
  }

  /* A block that only checkpoints keep may serve a request of about its size on its stream: it will
     be live at its address when they come back, whoever has it now. */
  Block *take_kept(Pool &pool, size_t bytes, void *stream, Context &context) {
    const size_t size = rounded(bytes);
    Block *best = nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    for (Block *block : pool.kept)
      if (block->stream == stream && !block->has_uses && block->bytes >= size &&
          block->bytes - size <= size / 8 && (!best || block->bytes < best->bytes))
        best = block;
    if (!best) return nullptr;
    pool.kept.erase(best);
    live_again(best, bytes, std::move(context));
    return best;
  }

  void discard(Checkpoint *point) {
    std::unique_ptr<Checkpoint> owner(point);
    std::vector<Block> freed;
    if (is_child()) return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (Block *block : point->live) {
        if (--block->pins || block->is_live) continue;
        point->pool->kept.erase(block);
        freed.push_back(*block);
        forget(block);
      }
    }
    for (const Block &block : freed) block.is_foreign ? park(block) : give_back(block);
  }

  /* ---- Pools ---- */

  /* pre: mutex_. Throws Failure. */
  std::shared_ptr<Pool> pool_for(PoolId id) {
    std::shared_ptr<Pool> &pool = pools_[id];
    if (pool) return pool;
    gmlake_pool_desc desc{};
    desc.chunk_bytes = std::min(chunk_bytes_, kPoolChunkMax);
    desc.label = "a memory pool of torch";
    auto fresh = std::make_shared<Pool>();
    fresh->id = id;
    const gmlake_result result = gmlake_pool_create(lake_, &desc, &fresh->pool);
    if (result != GMLAKE_OK) {
      pools_.erase(id);
      fail(result);
    }
    return pool = fresh;
  }

  /* Destroys the pools that torch has released and that have no block left: all, or those that were
     never captured and that one. Returns whether there was one. Not during captures: the host has to
     wait. */
  bool drop_pools(PoolId id) {
    std::vector<std::shared_ptr<Pool>> gone;
    bool had_capture = false;
    {
      std::lock_guard<std::mutex> routes(routes_mutex_);
      if (is_captured()) return false;
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto it = pools_.begin(); it != pools_.end();) {
        const Pool &pool = *it->second;
        const bool is_meant = id == PoolId{0, 0} || id == pool.id || !pool.had_capture;
        if (pool.use_count || !pool.live.empty() || !pool.kept.empty() || !is_meant) {
          ++it;
          continue;
        }
        had_capture |= pool.had_capture;
        gone.push_back(it->second);
        failed_.erase(
            std::remove_if(failed_.begin(), failed_.end(),
                           [&](const auto &failed) { return failed->pool == it->second; }),
            failed_.end());
        it = pools_.erase(it);
      }
    }
    const bool may_go = !had_capture || has_waited(); /* its graphs may still run */
    for (const auto &pool : gone)
      if (!may_go || gmlake_pool_destroy(lake_, pool->pool) != GMLAKE_OK) {
        std::lock_guard<std::mutex> lock(mutex_);
        pools_[pool->id] = pool; /* to be tried again */
      }
    return may_go && !gone.empty();
  }

  bool is_any_captured() {
    if (!route_count_.load(std::memory_order_acquire)) return false;
    std::lock_guard<std::mutex> routes(routes_mutex_);
    return is_captured();
  }
  /* pre: routes_mutex_. */
  bool is_captured() {
    drop_failed(nullptr);
    return std::any_of(routes_.begin(), routes_.end(),
                       [](const auto &route) { return route->is_capture; });
  }

  using Routes = std::vector<std::shared_ptr<Route>>;

  /* pre: routes_mutex_. */
  void erase_route(Routes::iterator it) {
    for (void *stream : (*it)->streams) (void)gmlake_capture_end(lake_, stream);
    routes_.erase(it);
    route_count_.fetch_sub(1, std::memory_order_release);
  }
  /* pre: routes_mutex_. */
  Routes::iterator find_route(PoolId id) {
    return std::find_if(routes_.begin(), routes_.end(),
                        [&](const auto &route) { return route->pool->id == id; });
  }

  /* pre: routes_mutex_. torch up to 2.12 does not end the route of a capture that failed. It is over
     where the driver has captured and does so no more, or where a capture is to begin on its stream,
     `current`. */
  void drop_failed(void *current) {
    for (size_t i = routes_.size(); i-- > 0;) {
      Route &route = *routes_[i];
      const auto is_captured = [&](void *stream) { return memory_.is_capturing(stream); };
      const bool is_going =
          !route.is_capture || std::any_of(route.streams.begin(), route.streams.end(), is_captured);
      route.has_begun |= route.is_capture && is_going;
      if (is_going || !(route.has_begun || (current && route.streams[0] == current))) continue;
      failed_.push_back(routes_[i]);
      erase_route(routes_.begin() + static_cast<ptrdiff_t>(i));
    }
    drop_uses_of_failed();
  }
  /* pre: routes_mutex_. Nor does torch release such a capture's pool. A capture that succeeded
     looks the same between the driver's end and torch's, and its graph needs the memory. The thread that
     began it makes both calls with none to the lake between them. So its use is dropped when that
     thread asks, or has ended; as long as only others ask, it stays. */
  void drop_uses_of_failed() {
    for (const auto &failed : failed_) {
      const std::shared_ptr<void> thread = failed->thread.lock();
      const bool is_sure = !thread || thread == this_thread();
      if (!is_sure || !failed->has_use || failed->was_released) continue;
      std::lock_guard<std::mutex> lock(mutex_);
      if (failed->pool->is_elsewhere || !failed->pool->use_count) continue;
      drop_use(*failed->pool);
      failed->has_use = false;
    }
  }
  /* pre: routes_mutex_. torch ends a capture of the pool after all: one of this thread, or if there
     is none and is_any is set, of another. Returns whether there is such a capture. */
  bool take_back(PoolId id, bool is_any) {
    const auto find = [&](bool is_own) {
      return std::find_if(failed_.begin(), failed_.end(), [&](const auto &failed) {
        return failed->pool->id == id && (!is_own || failed->thread.lock() == this_thread());
      });
    };
    auto it = find(true);
    if (it == failed_.end() && is_any) it = find(false);
    if (it == failed_.end()) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    if (!(*it)->has_use) (*it)->pool->use_count++;
    failed_.erase(it);
    return true;
  }
  /* pre: mutex_. */
  static void drop_use(Pool &pool) {
    if (--pool.use_count == 0) pool.serves_oom = false;
  }

  /* The pool that a request on the stream goes to; NULL: the default one. Tells the lake that the
     stream is captured, if it is. */
  std::shared_ptr<Pool> route(void *stream) {
    std::lock_guard<std::mutex> routes(routes_mutex_);
    for (auto it = routes_.rbegin(); it != routes_.rend(); ++it) {
      if (!(*it)->filter(stream)) continue;
      if ((*it)->is_capture) tell_captured(**it, stream);
      (*it)->has_begun = true;
      return (*it)->pool;
    }
    return nullptr;
  }
  /* Tells the lake that the stream is captured, if it is: it may have joined by an event. A filter
     that fails, as for the legacy stream beside a capture, says no. */
  void learn(void *stream) noexcept {
    if (stream) try {
        (void)route(stream);
      } catch (...) {
      }
  }
  void tell_captured(Route &route, void *stream) {
    if (std::find(route.streams.begin(), route.streams.end(), stream) != route.streams.end())
      return;
    const gmlake_result result = gmlake_capture_begin(lake_, stream, route.pool->pool);
    if (result != GMLAKE_OK) fail(result);
    route.streams.push_back(stream);
  }

  /* ---- Snapshots ---- */

  std::vector<gmlake_map_entry> read_map() {
    std::vector<gmlake_map_entry> map;
    size_t count = 0;
    do {
      map.resize(count + count / 8 + 64);
      if (gmlake_get_map(lake_, map.data(), map.size(), &count) != GMLAKE_OK) return {};
    } while (count > map.size());
    map.resize(count);
    std::unordered_set<unsigned> foreign; /* arenas: what was imported is no segment here */
    for (const gmlake_map_entry &entry : map)
      if (entry.kind == GMLAKE_KIND_CHUNK && memory_.is_foreign(entry.handle))
        foreign.insert(entry.arena);
    map.erase(std::remove_if(map.begin(), map.end(),
                             [&](const gmlake_map_entry &e) { return foreign.count(e.arena); }),
              map.end());
    return map;
  }
  /* pre: mutex_. */
  Segment segment_at(const gmlake_map_entry &entry) {
    Segment segment;
    segment.address = entry.address;
    segment.order = memory_.order_of(entry.address);
    segment.stream = entry.stream == GMLAKE_STREAM_NONE ? nullptr : entry.stream;
    for (const auto &pool : pools_)
      if (pool.second->pool == entry.pool) segment.pool = pool.first;
    return segment;
  }
  /* owner: address of the block that the entry is, or is a part of. */
  void add_piece(Segment &segment, const gmlake_map_entry &entry, uint64_t owner,
                 bool is_part) const {
    const bool is_live = entry.kind != GMLAKE_KIND_HOLE && entry.state == GMLAKE_STATE_LIVE;
    Piece piece;
    piece.address = entry.address;
    piece.bytes = entry.bytes;
    if (is_live) {
      const Block *const block = table_.find(reinterpret_cast<void *>(owner));
      piece.is_live = block && block->is_live;
      piece.requested = is_part ? entry.bytes : block ? block->requested : entry.requested_bytes;
      if (block) piece.context = block->context;
    }
    piece.is_active = piece.is_live || entry.state == GMLAKE_STATE_PENDING;
    segment.bytes += piece.bytes;
    if (!piece.is_active && !segment.pieces.empty() && !segment.pieces.back().is_active)
      segment.pieces.back().bytes += piece.bytes; /* the lake keeps apart what streams freed */
    else
      segment.pieces.push_back(std::move(piece));
  }

  static constexpr size_t kPoolChunkMax = size_t(2) << 20; /* graphs' pools are many and small */

  Hooks hooks_;
  const gmlake_backend *inner_; /* the driver's */
  std::array<std::atomic<void *>, 61>
      staying_{}; /* streams of which the lake knows that they stay */
  Memory memory_;
  gmlake *lake_ = nullptr;
  std::atomic<Guest *> guest_{nullptr};
  size_t chunk_bytes_ = 0;
  uint64_t host_waits_before_ = 0;

  std::mutex routes_mutex_; /* taken before mutex_ */
  Routes routes_;
  Routes failed_; /* those that drop_failed ended, and torch may still end */
  std::atomic<size_t> route_count_{0};

  std::mutex mutex_; /* protects what follows */
  Table table_;
  std::deque<Block> blocks_; /* records: their addresses stay */
  std::vector<Block *> spare_;
  Ledger ledger_;
  std::unique_ptr<gmlake_share> share_;     /* NULL: the device is this process's alone */
  int64_t retry_count_ = 0, oom_count_ = 0; /* see Figures */
  std::vector<Block> parked_;               /* freed, and the lake does not know yet; in order */
  std::atomic<bool> has_late_{false}; /* some may be late: see Ledger; is asked without lock */
  int64_t late_count_ = 0;            /* blocks that were freed so since there was none */
  std::map<PoolId, std::shared_ptr<Pool>> pools_;
};

} // namespace gmlake_torch
