/* A session of gmlake_offload.h whose calls are written down, if the environment variable
   GMLAKE_TORCH_RECORD_SESSION names a file, or between begin_recording and end_recording: a line a
   call. `build/offload_session FILE`, of a name with .gmcalls in it, plays that on a machine
   without a GPU. Include it after gmlake_offload.h.

   Behind `gmcalls 1` a line has a call, the microseconds since the session's begin, and:
     limit BYTES                 of the session, from now on
     alloc TENSOR BYTES STREAM   TENSOR: the session's number; streams are numbered as they come
     free TENSOR STREAM
     begin KEY STREAM N TENSOR...   a step that reads the first N tensors, and writes the others
     end                         of the step
     mark                        an iteration begins
     pin TENSOR STREAM, unpin TENSOR STREAM
     hold 0 or 1
     room BYTES                  others need so many
     region, again REGION, region_end UNSEEN_BYTES
     others BYTES                the most that others than the session needed; at the end
     time NS                     of each step of the iteration that was learnt last, in its order;
                                 when the session is closed, or the recording ends
   A call that fails is not written. */
#if !defined(GMLAKE_TORCH_SESSION_HPP)
#define GMLAKE_TORCH_SESSION_HPP

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>

namespace gmlake_torch {

/* One thread at a time. What the functions do is said in gmlake_offload.h. */
class Session final {
 public:
  using Result = gmlake_offload_result;

  Session() = default;
  ~Session() {
    gmlake_offload_session_destroy(session_);
    if (file_) (void)std::fclose(file_);
  }
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  Result create(const gmlake_offload_session_desc &desc) {
    const Result result = gmlake_offload_session_create(&desc, &session_);
    if (result == GMLAKE_OFFLOAD_OK) open_file();
    return note(result, "limit", "%zu", desc.limit_bytes);
  }
  gmlake_offload_session *get() const { return session_; }

  Result alloc(size_t bytes, void *stream, uint32_t *out_tensor, void **out_ptr) {
    const Result result =
        gmlake_offload_session_alloc(session_, bytes, stream, out_tensor, out_ptr);
    return note(result, "alloc", "%" PRIu32 " %zu %d", *out_tensor, bytes, number(stream));
  }
  Result free(uint32_t tensor, void *stream) {
    const Result result = gmlake_offload_session_free(session_, tensor, stream);
    return note(result, "free", "%" PRIu32 " %d", tensor, number(stream));
  }
  Result begin(const gmlake_offload_step &step) {
    const Result result = gmlake_offload_session_begin(session_, &step);
    if (!file_ || result != GMLAKE_OFFLOAD_OK) return result;
    print("begin", "%" PRIu64 " %d %zu", step.key, number(step.stream), step.read_count);
    for (size_t i = 0; i < step.read_count; i++) std::fprintf(file_, " %" PRIu32, step.reads[i]);
    for (size_t i = 0; i < step.write_count; i++) std::fprintf(file_, " %" PRIu32, step.writes[i]);
    (void)std::fputc('\n', file_);
    return result;
  }
  Result end() { return note(gmlake_offload_session_end(session_), "end"); }
  Result mark() { return note(gmlake_offload_session_mark(session_), "mark"); }
  Result pin(uint32_t tensor, void *stream) {
    const Result result = gmlake_offload_session_pin(session_, tensor, stream);
    return note(result, "pin", "%" PRIu32 " %d", tensor, number(stream));
  }
  Result unpin(uint32_t tensor, void *stream) {
    const Result result = gmlake_offload_session_unpin(session_, tensor, stream);
    return note(result, "unpin", "%" PRIu32 " %d", tensor, number(stream));
  }
  Result hold(int is_held) {
    return note(gmlake_offload_session_hold(session_, is_held), "hold", "%d", is_held);
  }
  Result set_limit(size_t bytes) {
    return note(gmlake_offload_session_set_limit(session_, bytes), "limit", "%zu", bytes);
  }
  Result make_room(size_t bytes, size_t *out_bytes) {
    return note(gmlake_offload_session_make_room(session_, bytes, out_bytes), "room", "%zu", bytes);
  }
  Result region(uint64_t *out_region, int *out_is_kept) {
    return note(gmlake_offload_session_region(session_, out_region, out_is_kept), "region");
  }
  Result recompute(uint64_t region) {
    return note(gmlake_offload_session_recompute(session_, region), "again", "%" PRIu64, region);
  }
  Result region_end(size_t unseen_bytes) {
    const Result result = gmlake_offload_session_region_end(session_, unseen_bytes);
    return note(result, "region_end", "%zu", unseen_bytes);
  }

  Result take_plan(gmlake_offload_session_plan **out_plan) const {
    return gmlake_offload_session_take_plan(session_, out_plan);
  }

  /* Writes what others need, and how long the steps of the iteration took that was learnt last. */
  void record_end(size_t others_bytes) {
    gmlake_offload_session_plan *plan = nullptr;
    (void)note(GMLAKE_OFFLOAD_OK, "others", "%zu", others_bytes);
    if (!file_ || take_plan(&plan) != GMLAKE_OFFLOAD_OK) return;
    for (size_t i = 0; i < plan->step_count; i++)
      (void)note(GMLAKE_OFFLOAD_OK, "time", "%" PRIu64, plan->steps[i].time_ns);
    gmlake_offload_session_plan_destroy(plan);
  }
  /* Into that file, which may not exist. What lives already is written by is_there. Whether it is
     done: not while the session is recorded into another file. */
  bool begin_recording(const char *path, size_t limit_bytes) {
    if (file_ || !(file_ = std::fopen(path, "wx"))) return false;
    streams_.clear();
    (void)std::fputs("gmcalls 1\n", file_);
    (void)note(GMLAKE_OFFLOAD_OK, "limit", "%zu", limit_bytes);
    return true;
  }
  void is_there(uint32_t tensor, size_t bytes, void *stream, size_t pin_count) {
    (void)note(GMLAKE_OFFLOAD_OK, "alloc", "%" PRIu32 " %zu %d", tensor, bytes, number(stream));
    for (; pin_count; pin_count--)
      (void)note(GMLAKE_OFFLOAD_OK, "pin", "%" PRIu32 " %d", tensor, number(stream));
  }
  /* Whether all was written. */
  bool end_recording(size_t others_bytes) {
    if (!file_) return false;
    record_end(others_bytes);
    const bool is_written = !std::ferror(file_);
    const bool is_closed = !std::fclose(file_);
    file_ = nullptr;
    return is_written && is_closed;
  }

 private:
  /* No file is overwritten: where there is one, the name has .2 at its end, or .3 and so on. */
  void open_file() {
    const char *const name = std::getenv("GMLAKE_TORCH_RECORD_SESSION");
    if (!name || !*name) return;
    std::string path = name;
    for (int i = 2; !(file_ = std::fopen(path.c_str(), "wx")) && errno == EEXIST; i++)
      path = name + ("." + std::to_string(i));
    if (!file_) std::fprintf(stderr, "gmlake_torch: %s cannot be written\n", path.c_str());
    if (file_) (void)std::fputs("gmcalls 1\n", file_);
  }
  int number(void *stream) {
    return file_ ? streams_.emplace(stream, static_cast<int>(streams_.size())).first->second : 0;
  }
  template <class... Values>
  Result note(Result result, const char *call, Values... values) {
    if (!file_ || result != GMLAKE_OFFLOAD_OK) return result;
    print(call, values...);
    (void)std::fputc('\n', file_);
    return result;
  }
  void print(const char *call) {
    const auto now = std::chrono::steady_clock::now() - began_;
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
    std::fprintf(file_, "%s %lld", call, static_cast<long long>(us));
  }
  template <class... Values>
  void print(const char *call, const char *format, Values... values) {
    print(call);
    (void)std::fputc(' ', file_);
    std::fprintf(file_, format, values...);
  }
  gmlake_offload_session *session_ = nullptr;
  std::FILE *file_ = nullptr;
  std::unordered_map<void *, int> streams_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

} // namespace gmlake_torch

#endif
