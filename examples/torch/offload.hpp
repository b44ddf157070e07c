/* A session of gmlake_offload.h as the guest of a device's lake: while it is open it serves large
   requests, and moves what it has served to the host and back.

   What may move: a tensor that an operator has named. Memory that no operator names, for example a
   workspace of cuBLAS, stays; so does what record_stream, a raw pointer or a communication has
   touched. Needs no torch. Include it after gmlake_offload.h. */
#if !defined(GMLAKE_TORCH_OFFLOAD_HPP)
#define GMLAKE_TORCH_OFFLOAD_HPP

#include "lake.hpp"
#include "session.hpp"

#include <memory>
#include <string>

namespace gmlake_torch {

struct OffloadOptions {
  size_t limit_bytes = 0;      /* of all that the lake holds */
  size_t tensor_bytes_min = 0; /* smaller ones are the lake's; 0: half a chunk, and see slabs */
  size_t host_bytes_max = 0;   /* of pinned memory; 0: no limit */
  unsigned flags = 0;          /* of the session */
};

/* All functions may be called by any thread. Those that return a result leave the reason in
   error(). */
class Offload final : public Guest {
 public:
  using Result = gmlake_offload_result;
  using HeldFn = std::function<size_t()>;            /* bytes that the lake holds */
  using LimitFn = std::function<void(size_t bytes)>; /* sets what it may hold; 0: no limit */

  /* pre: the tables and what is behind them live as long as the session. own: bytes that the lake
     holds for the session alone; {}: it shares chunks with others. used: bytes that are in use, the
     session's too, at the cost of a look; {}: all that the lake holds. */
  Offload(const gmlake_offload_backend &backend, const gmlake_offload_memory &memory, HeldFn held,
          LimitFn limit, HeldFn own = {}, HeldFn used = {})
      : backend_(backend),
        memory_(memory),
        held_(std::move(held)),
        limit_(std::move(limit)),
        own_(std::move(own)),
        used_(std::move(used)) {}
  ~Offload() override = default;
  Offload(const Offload &) = delete;
  Offload &operator=(const Offload &) = delete;

  /* Serves requests from now on. Again after close: its tensors may move again. */
  Result open(const OffloadOptions &options) {
    const Lock lock(mutex_);
    if (is_open_) return refuse("a session is open already");
    options_ = options;
    has_slabs_ = !options_.tensor_bytes_min;
    if (has_slabs_) options_.tensor_bytes_min = (memory_.chunk_bytes + 1) / 2;
    others_held_ = others_hold();
    others_bytes_ = former_ = others_held_ + slack();
    most_ = mark_count_ = 0;
    const Result result = session_.get() ? set_limit(session_limit()) : create();
    if (result != GMLAKE_OFFLOAD_OK) return note(result);
    limit_(options_.limit_bytes);
    for (uint32_t id = 0; id < tensors_.size(); id++)
      if (tensors_[id].is_live && tensors_[id].is_parked) unpark(id);
    is_open_ = true;
    return GMLAKE_OFFLOAD_OK;
  }

  /* Brings all tensors back, for work on the stream, and keeps them. The limit ends. */
  Result close(void *stream) {
    const Lock lock(mutex_);
    if (!is_open_) return GMLAKE_OFFLOAD_OK;
    Result first = end_step();
    (void)region_end();
    session_.record_end(others_bytes());
    is_open_ = false;
    limit_(0);
    (void)set_limit(0);
    for (uint32_t id = 0; id < tensors_.size(); id++) {
      if (!tensors_[id].is_live) continue;
      const Result result = session_.pin(id, stream);
      tensors_[id].is_parked = result == GMLAKE_OFFLOAD_OK;
      if (result != GMLAKE_OFFLOAD_OK && first == GMLAKE_OFFLOAD_OK) first = note(result);
    }
    stream_ = stream;
    return first;
  }

  /* ---- What the program does ---- */

  /* An operator comes, on the stream, and the one before has ended. Addresses are of any byte of a
     storage, first those that it reads, then those that it writes; what is not the session's is
     left out. */
  Result step(uint64_t key, const uint64_t *addresses, size_t read_count, size_t write_count,
              void *stream) {
    const Lock lock(mutex_);
    if (!is_open_) return GMLAKE_OFFLOAD_OK;
    if (is_held_) {
      for (size_t i = 0; i < read_count + write_count; i++) captured(addresses[i]);
      return GMLAKE_OFFLOAD_OK;
    }
    const Result result = end_step();
    if (result != GMLAKE_OFFLOAD_OK) return result;
    collect(addresses, read_count, reads_);
    collect(addresses + read_count, write_count, writes_);
    return begin_step(key, stream);
  }
  /* The last operator has made these. */
  Result made(const uint64_t *addresses, size_t count) {
    const Lock lock(mutex_);
    if (!is_open_) return GMLAKE_OFFLOAD_OK;
    for (size_t i = 0; i < count; i++) is_held_ ? captured(addresses[i]) : name(addresses[i]);
    return GMLAKE_OFFLOAD_OK;
  }
  Result mark() {
    const Lock lock(mutex_);
    if (!is_open_ || is_held_) return GMLAKE_OFFLOAD_OK;
    const Result result = end_step();
    if (result != GMLAKE_OFFLOAD_OK) return result;
    share();
    return note(session_.mark());
  }
  /* Whether what the calling thread allocates from now on lasts: a model, or what an optimizer keeps.
     Tensors of less than a chunk that last lie side by side in slabs. */
  static void lasting(bool is_lasting) { is_lasting_ = is_lasting; }
  /* The storage stays from now on, and is on the device for work on the stream. */
  Result keep(uint64_t address, void *stream) {
    const Lock lock(mutex_);
    uint32_t id;
    if (!find(address, id) || tensors_[id].is_kept) return GMLAKE_OFFLOAD_OK;
    if (is_held_) captured(address);
    if (!is_held_) {
      const Result result = attempt([&] { return session_.pin(id, stream); });
      if (result != GMLAKE_OFFLOAD_OK) return result;
    }
    tensors_[id].is_kept = !is_held_;
    return GMLAKE_OFFLOAD_OK;
  }

  /* ---- Regions ---- */

  /* A region begins that the program would execute twice, and which it keeps if the session says
     so; see gmlake_offload_session_region. Operators that come from now on are in it, and what is
     allocated before the first of them. The last operator has ended.
     pre: of these three also: no other region is open. *out_region 0: the session is not asked. */
  Result region(uint64_t *out_region, int *out_is_kept) {
    const Lock lock(mutex_);
    *out_region = 0;
    *out_is_kept = 0;
    if (!is_open_ || is_held_) return GMLAKE_OFFLOAD_OK;
    Result result = end_step();
    if (result == GMLAKE_OFFLOAD_OK) result = note(session_.region(out_region, out_is_kept));
    is_region_ = result == GMLAKE_OFFLOAD_OK;
    is_again_ = false;
    return result;
  }
  /* It is executed again. */
  Result recompute(uint64_t region) {
    const Lock lock(mutex_);
    if (!is_open_ || is_held_ || !region) return GMLAKE_OFFLOAD_OK;
    Result result = end_step();
    if (result == GMLAKE_OFFLOAD_OK) result = note(session_.recompute(region));
    is_region_ = is_again_ = result == GMLAKE_OFFLOAD_OK;
    before_ = is_again_ ? others_use() : 0;
    return result;
  }
  /* What others have got meanwhile is what they need if the region is kept. */
  Result region_end() {
    const Lock lock(mutex_);
    if (!is_region_) return GMLAKE_OFFLOAD_OK;
    is_region_ = false;
    const Result ended = end_step();
    const size_t unseen = is_again_ ? without_own(others_use(), before_) : 0;
    const Result result = note(session_.region_end(unseen));
    return ended == GMLAKE_OFFLOAD_OK ? result : ended;
  }

  /* ---- Graphs ---- */

  /* A capture begins on the stream: all tensors come to the device first, and nothing moves until
     it has ended. */
  Result begin_capture(void *stream) {
    const Lock lock(mutex_);
    if (!is_open_ || is_held_) return GMLAKE_OFFLOAD_OK;
    Result result = end_step();
    if (result != GMLAKE_OFFLOAD_OK) return result;
    reads_.clear(), writes_.clear();
    for (uint32_t id = 0; id < tensors_.size(); id++)
      if (tensors_[id].is_live) reads_.push_back(id);
    result = begin_step(0, stream);
    if (result == GMLAKE_OFFLOAD_OK) result = end_step();
    if (result == GMLAKE_OFFLOAD_OK) result = note(session_.hold(1));
    is_held_ = result == GMLAKE_OFFLOAD_OK;
    captured_.clear();
    return result;
  }
  /* *out_graph: a number for what was captured. */
  Result end_capture(uint64_t *out_graph) {
    const Lock lock(mutex_);
    *out_graph = ++graph_count_;
    if (!is_held_) return GMLAKE_OFFLOAD_OK;
    is_held_ = false;
    graphs_[*out_graph] = std::move(captured_);
    const Result result = note(session_.hold(0));
    for (const auto &freed : late_) give_up(freed.first, freed.second);
    late_.clear();
    return result;
  }
  void forget_graph(uint64_t graph) {
    const Lock lock(mutex_);
    graphs_.erase(graph);
  }
  /* The graph will be launched on the stream: one operator, which may write all that it uses. */
  Result replay(uint64_t graph, void *stream) {
    const Lock lock(mutex_);
    const auto found = graphs_.find(graph);
    if (!is_open_ || is_held_ || found == graphs_.end()) return GMLAKE_OFFLOAD_OK;
    const Result result = end_step();
    if (result != GMLAKE_OFFLOAD_OK) return result;
    reads_.clear();
    for (const auto &use : found->second)
      if (tensors_[use.first].is_live && tensors_[use.first].serial == use.second)
        reads_.push_back(use.first);
    writes_ = reads_;
    return begin_step(graph, stream);
  }

  /* ---- What the lake asks ---- */

  gmlake_result alloc(size_t bytes, void *stream, void **out_ptr,
                      gmlake_error_info *out_info) override {
    uint32_t id = 0;
    *out_ptr = nullptr;
    if (!is_open_) return GMLAKE_OK;
    const Lock lock(mutex_);
    if (!is_open_) return GMLAKE_OK;
    if (is_lasting_ && has_slabs_ && !is_held_ && bytes < memory_.chunk_bytes &&
        place(bytes, stream, out_ptr))
      return GMLAKE_OK;
    if (bytes < options_.tensor_bytes_min) {
      most_ = std::max(most_, others_use() + bytes + slack());
      return GMLAKE_OK;
    }
    const Result result = serve(bytes, stream, &id, out_ptr);
    return result == GMLAKE_OFFLOAD_OK ? GMLAKE_OK : explain(result, bytes, out_info);
  }
  void free(void *ptr, void *stream) override {
    const Lock lock(mutex_);
    const uint64_t address = reinterpret_cast<uint64_t>(ptr);
    uint32_t id;
    size_t offset;
    if (!find(address, id, &offset)) return;
    if (tensors_[id].members && !leave_slab(address, id, offset)) return;
    tensors_[id].is_live = false;
    if (is_held_ && !tensors_[id].streams.empty())
      late_.emplace_back(id, stream); /* nobody may wait for its streams in a capture */
    else
      give_up(id, stream);
  }
  bool record_stream(void *ptr, void *stream) override {
    const Lock lock(mutex_);
    uint32_t id;
    if (!find(reinterpret_cast<uint64_t>(ptr), id)) return true;
    std::vector<void *> &streams = tensors_[id].streams;
    if (std::find(streams.begin(), streams.end(), stream) != streams.end()) return true;
    if (is_held_) return captured(reinterpret_cast<uint64_t>(ptr)), true;
    if (note(session_.pin(id, stream)) != GMLAKE_OFFLOAD_OK) return false;
    streams.push_back(stream);
    return true;
  }
  bool pin(void *ptr, void *stream) override {
    const Lock lock(mutex_);
    if (is_held_) return (void)refuse("a graph is being captured"), false;
    return keep(reinterpret_cast<uint64_t>(ptr), stream) == GMLAKE_OFFLOAD_OK;
  }
  /* What others need once they will need again: the session's share gets smaller by it. */
  bool make_room(size_t bytes) override {
    const Lock lock(mutex_);
    size_t given = 0;
    if (!is_open_ || is_held_) return false;
    (void)session_.make_room(bytes, &given);
    if (!given) return false;
    most_ = std::max(most_, others_use() + bytes + slack());
    if (most_ > others_bytes_) leave_to_others(most_);
    (void)set_limit(session_limit());
    return true;
  }

  /* ---- What is asked from outside ---- */

  gmlake_offload_session_stats stats() {
    const Lock lock(mutex_);
    gmlake_offload_session_stats stats{};
    if (session_.get()) (void)gmlake_offload_session_get_stats(session_.get(), &stats);
    return stats;
  }
  /* The most that others than the session have needed of late; of the limit it is left to them. */
  size_t others_bytes() {
    const Lock lock(mutex_);
    return std::max(others_bytes_, most_);
  }
  size_t chunk_bytes() const { return memory_.chunk_bytes; }
  /* The plan of an iteration, which the caller destroys. */
  Result plan(gmlake_offload_session_plan **out_plan) {
    const Lock lock(mutex_);
    *out_plan = nullptr;
    return session_.get() ? note(session_.take_plan(out_plan)) : refuse("there was no session yet");
  }
  /* Writes the calls of the open session into a file that does not exist, until path is NULL. */
  Result record(const char *path) {
    const Lock lock(mutex_);
    if (!is_open_ || is_held_) return refuse("no session is open that could be recorded");
    const Result result = end_step();
    if (result != GMLAKE_OFFLOAD_OK) return result;
    if (!path && !session_.end_recording(others_bytes())) return refuse("it could not be written");
    if (!path) return result;
    if (!session_.begin_recording(path, limit_now_))
      return refuse("the file cannot be written, or the session is recorded into another one");
    for (uint32_t id = 0; id < tensors_.size(); id++) {
      const Tensor &tensor = tensors_[id];
      const size_t pins = tensor.streams.size() + tensor.is_kept + tensor.is_unnamed;
      if (tensor.is_live) session_.is_there(id, tensor.bytes, tensor.stream, pins);
    }
    return result;
  }
  std::string error() override {
    const Lock lock(mutex_);
    return error_;
  }

 private:
  using Lock = std::lock_guard<std::recursive_mutex>;
  static constexpr size_t kSpanMin = 8, kSpanMax = 64; /* iterations */
  static constexpr size_t kGain = 16; /* what part of the limit is worth another plan */
  static constexpr size_t kAlignment = 512, kSlabChunks = 2, kTinyPart = 32; /* of a chunk */
  static inline thread_local bool is_lasting_ = false;
  struct Tensor {
    uint64_t serial = 0; /* no other tensor ever has it */
    size_t bytes = 0;
    void *stream = nullptr; /* that it was born on */
    bool is_live = false;
    bool is_unnamed = false; /* pinned until an operator names it, or each in it */
    bool is_kept = false;    /* pinned for ever */
    bool is_parked = false;  /* pinned until the session is opened again */
    uint64_t step = 0;       /* the list of `collect` that has it already */
    bool is_tiny = false;    /* of a slab: it is for tiny ones */
    size_t members = 0;      /* of a slab: the tensors that live in it */
    size_t unnamed_members = 0;
    std::vector<void *> streams; /* recorded */
  };

  struct Slab {
    uint64_t next = 0, end = 0; /* next: where the next tensor goes */
    uint32_t id = 0;
  };
  using Kind = std::pair<void *, bool>; /* the stream, and whether it is for tiny ones */
  struct Member {
    uint64_t end = 0;
    bool is_unnamed = false;
  };

  Result create() {
    gmlake_offload_session_desc desc{};
    desc.backend = &backend_;
    desc.memory = &memory_;
    desc.flags = options_.flags;
    desc.limit_bytes = session_limit();
    desc.tensor_bytes_min = 1; /* of all that it serves, also when it is opened again */
    desc.host_bytes_max = options_.host_bytes_max;
    limit_now_ = desc.limit_bytes;
    return session_.create(desc);
  }
  size_t session_limit() const {
    if (!options_.limit_bytes) return 0;
    return options_.limit_bytes > others_bytes_ ? options_.limit_bytes - others_bytes_ : 1;
  }
  Result set_limit(size_t bytes) {
    const Result result = session_.set_limit(bytes);
    if (result == GMLAKE_OFFLOAD_OK) limit_now_ = bytes;
    return result;
  }

  Result serve(size_t bytes, void *stream, uint32_t *out_id, void **out_ptr) {
    const Result result = attempt([&] { return session_.alloc(bytes, stream, out_id, out_ptr); });
    if (result != GMLAKE_OFFLOAD_OK) return result;
    if (tensors_.size() <= *out_id) tensors_.resize(*out_id + 1);
    Tensor &tensor = tensors_[*out_id];
    tensor = Tensor();
    tensor.is_live = true;
    tensor.bytes = bytes;
    tensor.serial = ++serial_;
    tensor.stream = stream;
    tensor.is_unnamed = session_.pin(*out_id, stream) == GMLAKE_OFFLOAD_OK;
    return result;
  }

  /* ---- Slabs ----
     A slab is a tensor of the session in which small ones lie that last. It leaves and comes back
     whole, stays until an operator has named each of them, and is freed with the last one. Room at
     its end serves again, if no other slab of its stream and kind has more. Tiny ones have slabs of
     their own: an optimizer may name all biases in one step, and else would need all slabs there. */

  /* false: no room is to be had. */
  bool place(size_t bytes, void *stream, void **out_ptr) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const Kind kind{stream, bytes < memory_.chunk_bytes / kTinyPart};
    Slab slab = slabs_[kind];
    if (slab.end - slab.next < bytes) {
      const size_t size = kSlabChunks * memory_.chunk_bytes;
      void *ptr = nullptr;
      if (serve(size, stream, &slab.id, &ptr) != GMLAKE_OFFLOAD_OK) return false;
      slab.next = reinterpret_cast<uint64_t>(ptr);
      slab.end = slab.next + size;
    } else if (!tensors_[slab.id].is_unnamed) { /* its copy on the host is stale from now on */
      if (attempt([&] { return session_.pin(slab.id, stream); }) != GMLAKE_OFFLOAD_OK) return false;
      tensors_[slab.id].is_unnamed = true;
    }
    *out_ptr = reinterpret_cast<void *>(slab.next);
    members_[slab.next] = {slab.next + bytes, true};
    slab.next += bytes;
    slabs_[kind] = slab;
    tensors_[slab.id].is_tiny = kind.second;
    tensors_[slab.id].members++;
    tensors_[slab.id].unnamed_members++;
    return true;
  }
  /* One of its tensors is freed. Whether it was the last. */
  bool leave_slab(uint64_t address, uint32_t id, size_t offset) {
    Slab &open = slabs_[{tensors_[id].stream, tensors_[id].is_tiny}];
    name_member(address, id);
    members_.erase(address);
    if (!--tensors_[id].members) {
      if (open.id == id) open = Slab();
      return true;
    }
    if (tensors_[id].streams.empty()) {
      const uint64_t end = address - offset + tensors_[id].bytes;
      const uint64_t next = std::prev(members_.lower_bound(end))->second.end;
      if (end - next >= open.end - open.next) open = {next, end, id};
    }
    if (!is_held_) name(id);
    return false;
  }
  void name_member(uint64_t address, uint32_t id) {
    auto found = members_.upper_bound(address);
    if (!tensors_[id].unnamed_members || found == members_.begin()) return;
    if (!(--found)->second.is_unnamed) return;
    found->second.is_unnamed = false;
    tensors_[id].unnamed_members--;
  }

  /* ---- What others get ---- */

  size_t slack() const { return 2 * memory_.chunk_bytes; }
  size_t without_own(size_t bytes, size_t own) const { return bytes > own ? bytes - own : 0; }
  size_t others_hold() { return without_own(held_(), own_ ? own_() : stats().device_bytes); }
  size_t others_use() { return used_ ? without_own(used_(), stats().device_bytes) : others_hold(); }
  /* An iteration has ended. Others get the most that they needed in this span of iterations and the
     one before: what they had in use at once, and what they came to hold where that was more. So no
     chunk goes to and fro in each iteration, and the session plans again only now and then. */
  void share() {
    const size_t held = own_ ? others_hold() : 0;
    if (!options_.limit_bytes) return;
    if (held > others_held_) most_ = std::max(most_, held);
    others_held_ = held;
    const size_t need = std::max({former_, most_, slack()});
    if (need > others_bytes_) {
      leave_to_others(need);
    } else if (others_bytes_ - need > options_.limit_bytes / kGain) {
      others_bytes_ = need;
      has_taken_back_ = true;
    }
    if (++mark_count_ >= span_) {
      former_ = most_;
      most_ = mark_count_ = 0;
    }
    (void)set_limit(session_limit());
  }
  /* Where the session took back what they do need, it tries that only half as often from now on. */
  void leave_to_others(size_t bytes) {
    others_bytes_ = bytes;
    if (has_taken_back_) span_ = std::min(2 * span_, kSpanMax);
    has_taken_back_ = false;
  }
  /* The session may have all that others do not use, until the next mark. Whether that is more. */
  bool raise() {
    const size_t all = options_.limit_bytes, use = others_use();
    return all > use && all - use > limit_now_ && set_limit(all - use) == GMLAKE_OFFLOAD_OK;
  }
  template <class Call>
  Result attempt(const Call &call) {
    Result result = call();
    if (result != GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY || !options_.limit_bytes)
      return note(result);
    if (raise()) result = call();
    if (note(result) == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY)
      error_ += ", as others use " + std::to_string(others_use()) + " of the " +
                std::to_string(options_.limit_bytes) + " bytes; raise limit_bytes";
    return result;
  }

  bool find(uint64_t address, uint32_t &out_id, size_t *out_offset = nullptr) const {
    const void *const ptr = reinterpret_cast<void *>(address);
    size_t offset = 0;
    return session_.get() &&
           gmlake_offload_session_find(session_.get(), ptr, &out_id,
                                       out_offset ? out_offset : &offset) == GMLAKE_OFFLOAD_OK;
  }
  void collect(const uint64_t *addresses, size_t count, std::vector<uint32_t> &out) {
    uint32_t id;
    list_++;
    out.clear();
    for (size_t i = 0; i < count; i++) {
      if (!find(addresses[i], id)) continue;
      if (tensors_[id].unnamed_members) name_member(addresses[i], id);
      if (tensors_[id].step == list_) continue;
      tensors_[id].step = list_;
      out.push_back(id);
    }
  }
  Result begin_step(uint64_t key, void *stream) {
    gmlake_offload_step step{};
    step.stream = stream;
    step.key = key;
    step.reads = reads_.data();
    step.read_count = reads_.size();
    step.writes = writes_.data();
    step.write_count = writes_.size();
    const Result result = attempt([&] { return session_.begin(step); });
    if (result != GMLAKE_OFFLOAD_OK) return result;
    is_stepping_ = true;
    for (uint32_t id : reads_) name(id);
    for (uint32_t id : writes_) name(id);
    return GMLAKE_OFFLOAD_OK;
  }
  Result end_step() {
    if (!is_stepping_) return GMLAKE_OFFLOAD_OK;
    is_stepping_ = false;
    return note(session_.end());
  }
  void name(uint64_t address) {
    uint32_t id;
    if (!find(address, id)) return;
    name_member(address, id);
    name(id);
  }
  void name(uint32_t id) {
    Tensor &tensor = tensors_[id];
    if (!tensor.is_unnamed || tensor.unnamed_members) return;
    tensor.is_unnamed = false;
    (void)session_.unpin(id, tensor.stream);
  }
  void unpark(uint32_t id) {
    tensors_[id].is_parked = false;
    (void)session_.unpin(id, stream_);
  }
  /* Who gets the memory waits for all that the recorded streams have by now. Where that cannot be
     had the tensor stays. */
  void give_up(uint32_t id, void *stream) {
    for (void *other : tensors_[id].streams)
      if (note(session_.unpin(id, other)) != GMLAKE_OFFLOAD_OK) return;
    (void)note(session_.free(id, stream));
  }
  void captured(uint64_t address) {
    uint32_t id;
    if (find(address, id)) captured_[id] = tensors_[id].serial;
  }

  Result refuse(const char *text) {
    error_ = text;
    return GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT;
  }
  Result note(Result result) {
    gmlake_offload_error_info info{};
    if (result == GMLAKE_OFFLOAD_OK) return result;
    if (session_.get()) (void)gmlake_offload_session_get_error(session_.get(), &info);
    error_ = std::string(gmlake_offload_result_name(result)) + ": " + info.text;
    return result;
  }
  gmlake_result explain(Result result, size_t bytes, gmlake_error_info *out_info) const {
    std::snprintf(out_info->text, sizeof out_info->text, "%s", error_.c_str());
    out_info->result =
        result == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY ? GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY
        : result == GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY ? GMLAKE_ERROR_OUT_OF_HOST_MEMORY
                                                            : GMLAKE_ERROR_DRIVER;
    out_info->asked_bytes = bytes;
    out_info->reserved_bytes = held_();
    out_info->limit_bytes = options_.limit_bytes;
    return out_info->result;
  }

  const gmlake_offload_backend backend_;
  const gmlake_offload_memory memory_;
  const HeldFn held_;
  const LimitFn limit_;
  const HeldFn own_, used_;
  std::recursive_mutex mutex_; /* protects what follows; an allocation inside may ask make_room */
  OffloadOptions options_;
  Session session_;
  std::atomic<bool> is_open_{false}; /* is asked without the lock, too */
  bool is_held_ = false, is_stepping_ = false;
  bool is_region_ = false, is_again_ = false;
  size_t before_ = 0;            /* [is_again_] what others used when the region began */
  size_t limit_now_ = 0;         /* the session's */
  size_t others_bytes_ = 0;      /* of the limit, for memory that is not the session's */
  size_t others_held_ = 0;       /* at the last mark */
  size_t most_ = 0, former_ = 0; /* that others needed at once in this span, and in the last one */
  size_t span_ = kSpanMin, mark_count_ = 0;
  bool has_taken_back_ = false;
  void *stream_ = nullptr;      /* that close named */
  std::vector<Tensor> tensors_; /* by the session's numbers */
  bool has_slabs_ = false;
  std::map<Kind, Slab> slabs_;         /* of each kind the one with the most room at its end */
  std::map<uint64_t, Member> members_; /* of slabs, by their first byte */
  std::vector<uint32_t> reads_, writes_;
  std::vector<std::pair<uint32_t, void *>> late_; /* [is_held_] freed, and on which stream */
  uint64_t serial_ = 0, list_ = 0, graph_count_ = 0;
  std::unordered_map<uint32_t, uint64_t> captured_; /* tensors and their serials */
  std::unordered_map<uint64_t, std::unordered_map<uint32_t, uint64_t>> graphs_;
  std::string error_;
};

} // namespace gmlake_torch

#endif
