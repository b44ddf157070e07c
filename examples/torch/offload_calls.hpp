/* What gmlake_torch/session.py and operators.cpp call. Functions that return a text return NULL if
   they did what they say; else the text says why not. It is valid until the thread's next call. Who
   includes this has included adapter.h and offload.hpp, and defines what is declared first. */

namespace {

/* The stream that the thread's operators run on. */
void *session_stream(int device);
/* NULL: *out_why says why not. */
std::unique_ptr<gmlake_torch::Offload> make_session(int device, size_t chunk_bytes,
                                                    const char **out_why);

/* Options that are those of a device's first session, by their names. */
using FixedOptions = std::map<std::string, size_t>;

/* One session a device. It lives as long as the process, as the lake does. */
struct Sessions {
  std::mutex mutex;
  std::map<int, std::unique_ptr<gmlake_torch::Offload>> by_device;
  std::map<int, FixedOptions> fixed;
  std::atomic<gmlake_torch::Offload *> open{nullptr};
  int device = 0; /* of the open one */
};

Sessions &sessions() {
  static Sessions *const sessions = new Sessions;
  return *sessions;
}

const char *kept_text(std::string text) {
  static thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

/* Runs a function that returns a text. Nothing is raised: Python calls it as C. */
template <class Function>
const char *answer(Function function) noexcept {
  try {
    return function();
  } catch (const std::exception &error) {
    return kept_text(error.what());
  }
}

/* NULL; or which option the session cannot have any more: it is asked for, not 0, and another one. */
const char *other_than(const FixedOptions &has, const FixedOptions &asked) {
  for (const auto &option : asked)
    if (option.second && option.second != has.at(option.first))
      return kept_text(option.first + " is " + std::to_string(option.second) +
                       ", and the process's first session on this device had " +
                       std::to_string(has.at(option.first)) +
                       ": leave it out, or use another process");
  return nullptr;
}

const char *text_of(gmlake_torch::Offload &offload, gmlake_offload_result result) {
  return result == GMLAKE_OFFLOAD_OK ? nullptr : kept_text(offload.error());
}

/* Runs the function on the open session, on the stream of its device; without one does nothing. */
template <class Function>
const char *on_open(Function function) noexcept {
  gmlake_torch::Offload *const own = sessions().open.load(std::memory_order_acquire);
  if (!own) return nullptr;
  return answer([&] { return text_of(*own, function(*own, session_stream(sessions().device))); });
}

int64_t number(uint64_t value) { return static_cast<int64_t>(value); }
int64_t region_of(uint32_t region) { return region == GMLAKE_OFFLOAD_NONE ? -1 : region; }

/* Appends a list of lists of numbers to an object. */
template <class Row, class Numbers>
void list(std::string &text, const char *name, const Row *rows, size_t count, Numbers numbers) {
  text += std::string(", \"") + name + "\": [";
  for (size_t i = 0; i < count; i++) {
    const char *before = i ? ", [" : "[";
    for (const int64_t value : numbers(rows[i])) {
      text += before + std::to_string(value);
      before = ", ";
    }
    text += ']';
  }
  text += ']';
}

} // namespace

/* Opens a session on the device. host_bytes_max, chunk_bytes and is_checked are those of the first
   time: 0 later, or the same. */
API const char *gmlake_torch_offload_open(int device, size_t limit_bytes, size_t tensor_bytes_min,
                                          size_t host_bytes_max, size_t chunk_bytes,
                                          int is_checked) noexcept {
  return answer([&]() -> const char * {
    Sessions &all = sessions();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (all.open.load()) return "a session is open already";
    std::unique_ptr<gmlake_torch::Offload> &own = all.by_device[device];
    const char *why = nullptr;
    const FixedOptions asked{{"host_bytes_max", host_bytes_max},
                             {"chunk_bytes", chunk_bytes},
                             {"is_checked", size_t(is_checked)}};
    if (own) why = other_than(all.fixed[device], asked);
    if (why) return why;
    if (!own) own = make_session(device, chunk_bytes, &why);
    if (!own) return why;
    all.fixed.emplace(device, asked).first->second["chunk_bytes"] = own->chunk_bytes();
    gmlake_torch::OffloadOptions options;
    options.limit_bytes = limit_bytes;
    options.tensor_bytes_min = tensor_bytes_min;
    options.host_bytes_max = host_bytes_max;
    options.flags = is_checked ? GMLAKE_OFFLOAD_CHECKED : 0;
    const gmlake_offload_result result = own->open(options);
    if (result != GMLAKE_OFFLOAD_OK) return kept_text(own->error());
    all.device = device;
    all.open.store(own.get());
    return nullptr;
  });
}

API const char *gmlake_torch_offload_close(void) noexcept {
  return answer([&]() -> const char * {
    Sessions &all = sessions();
    std::lock_guard<std::mutex> lock(all.mutex);
    gmlake_torch::Offload *const own = all.open.exchange(nullptr);
    return own ? text_of(*own, own->close(session_stream(all.device))) : nullptr;
  });
}

API const char *gmlake_torch_offload_step(uint64_t key, const uint64_t *addresses,
                                          size_t read_count, size_t write_count) noexcept {
  return on_open([&](gmlake_torch::Offload &own, void *stream) {
    return own.step(key, addresses, read_count, write_count, stream);
  });
}
API const char *gmlake_torch_offload_made(const uint64_t *addresses, size_t count) noexcept {
  return on_open([&](gmlake_torch::Offload &own, void *) { return own.made(addresses, count); });
}
API const char *gmlake_torch_offload_mark(void) noexcept {
  return on_open([](gmlake_torch::Offload &own, void *) { return own.mark(); });
}
API const char *gmlake_torch_offload_lasting(int is_lasting) noexcept {
  gmlake_torch::Offload::lasting(is_lasting != 0); /* a session may end meanwhile */
  return nullptr;
}
API const char *gmlake_torch_offload_keep(uint64_t address) noexcept {
  return on_open(
      [&](gmlake_torch::Offload &own, void *stream) { return own.keep(address, stream); });
}

API const char *gmlake_torch_offload_region(uint64_t *out_region, int *out_is_kept) noexcept {
  *out_region = 0;
  *out_is_kept = 0;
  return on_open(
      [&](gmlake_torch::Offload &own, void *) { return own.region(out_region, out_is_kept); });
}
API const char *gmlake_torch_offload_recompute(uint64_t region) noexcept {
  return on_open([&](gmlake_torch::Offload &own, void *) { return own.recompute(region); });
}
API const char *gmlake_torch_offload_region_end(void) noexcept {
  return on_open([](gmlake_torch::Offload &own, void *) { return own.region_end(); });
}

API const char *gmlake_torch_offload_begin_capture(void) noexcept {
  return on_open(
      [](gmlake_torch::Offload &own, void *stream) { return own.begin_capture(stream); });
}
API const char *gmlake_torch_offload_end_capture(uint64_t *out_graph) noexcept {
  *out_graph = 0;
  return on_open([&](gmlake_torch::Offload &own, void *) { return own.end_capture(out_graph); });
}
API const char *gmlake_torch_offload_replay(uint64_t graph) noexcept {
  return on_open(
      [&](gmlake_torch::Offload &own, void *stream) { return own.replay(graph, stream); });
}
/* The graph is no more. */
API void gmlake_torch_offload_forget_graph(uint64_t graph) noexcept {
  gmlake_torch::Offload *const own = sessions().open.load(std::memory_order_acquire);
  if (own) own->forget_graph(graph);
}

/* As gmlake_torch_stats_json, of the device's session. -1: it never had one. */
API int gmlake_torch_offload_stats_json(int device, char *buffer, size_t size) noexcept {
  static const char *const modes[] = {"learning", "planned", "drifted"};
  Sessions &all = sessions();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_device.find(device);
  if (found == all.by_device.end() || !found->second) return -1;
  const gmlake_offload_session_stats stats = found->second->stats();
  json_text json{};
  json.buffer = buffer;
  json.size = size;
  put(&json, "{\"mode\": \"%s\"", modes[stats.mode]);
#define PUT(field) put(&json, ", \"%s\": %llu", #field, (unsigned long long)stats.field)
  PUT(tensor_count), PUT(tensor_bytes), PUT(device_bytes), PUT(device_bytes_peak);
  PUT(host_bytes), PUT(host_bytes_peak), PUT(out_bytes), PUT(in_bytes);
  PUT(out_count), PUT(in_count), PUT(drop_count), PUT(demand_out_count), PUT(demand_in_count);
  PUT(iteration_count), PUT(step_count), PUT(drift_count), PUT(plan_count), PUT(sync_count);
  PUT(unplanned_bytes), PUT(planned_bytes), PUT(plan_out_bytes), PUT(plan_in_bytes);
  PUT(step_ns), PUT(plan_added_ns), PUT(link_bound_ns), PUT(least_ns);
  PUT(region_count), PUT(kept_region_count);
  PUT(plan_work), PUT(plan_work_max);
  PUT(out_bytes_per_s), PUT(in_bytes_per_s);
#undef PUT
  put(&json, ", \"others_bytes\": %zu, \"chunk_bytes\": %zu}", found->second->others_bytes(),
      found->second->chunk_bytes());
  return static_cast<int>(json.length);
}

/* What the device's session plans, as JSON: lists of the numbers of steps, tensors and moves, in
   the order of the fields of gmlake_offload_session_plan, without keys and the tensors' numbers. It
   is valid until the thread's next call. */
API const char *gmlake_torch_offload_plan_json(int device, const char **out_json) noexcept {
  *out_json = nullptr;
  return answer([&]() -> const char * {
    Sessions &all = sessions();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.by_device.find(device);
    if (found == all.by_device.end() || !found->second) return "the device had no session yet";
    gmlake_offload_session_plan *plan = nullptr;
    const gmlake_offload_result result = found->second->plan(&plan);
    if (result != GMLAKE_OFFLOAD_OK) return kept_text(found->second->error());
    const std::unique_ptr<gmlake_offload_session_plan,
                          decltype(&gmlake_offload_session_plan_destroy)>
        owner(plan, gmlake_offload_session_plan_destroy);
    std::string text = "{\"time_ns\": " + std::to_string(plan->time_ns);
    list(text, "steps", plan->steps, plan->step_count, [](const gmlake_offload_planned_step &s) {
      return std::vector<int64_t>{number(s.begin_ns),        number(s.time_ns),
                                  number(s.unplanned_bytes), number(s.planned_bytes),
                                  region_of(s.region),       s.is_again};
    });
    list(text, "tensors", plan->tensors, plan->tensor_count,
         [](const gmlake_offload_planned_tensor &t) {
           return std::vector<int64_t>{t.first_step, t.step_count, number(t.bytes),
                                       number(t.copy_bytes)};
         });
    list(text, "moves", plan->moves, plan->move_count, [](const gmlake_offload_planned_move &m) {
      return std::vector<int64_t>{m.tensor,           m.step,           m.is_in, m.is_copy,
                                  number(m.begin_ns), number(m.end_ns), m.stays};
    });
    *out_json = kept_text(text + "}");
    return nullptr;
  });
}

/* The calls of the open session go into that file, which may not exist; NULL: no longer. */
API const char *gmlake_torch_offload_record(const char *path) noexcept {
  return on_open([&](gmlake_torch::Offload &own, void *) { return own.record(path); });
}
