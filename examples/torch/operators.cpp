/* Sees what torch dispatches, as dispatch.py does in Python, and tells the session which storages
   an operator reads and which it writes before it runs, and afterwards what it has made.

   Each operator that may read or write memory gets a kernel for DispatchKey::BackendSelect. That
   key is the lowest one above all backends and layouts, and every call has it. So operators come
   here behind autograd, autocast and whatever dispatches in Python, as they will run, and before
   the device's kernel. Operators that have a kernel there already choose a backend by it, and then
   call others. Of torch's own operators those that are made of others are left out, unless the
   device has a kernel of its own for them. Other libraries' are not, as they may reach memory
   themselves: what they are given stays. The kernels go when the session ends. */
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

/* Of the session; each returns NULL or why not. */
API const char *gmlake_torch_offload_step(uint64_t key, const uint64_t *addresses,
                                          size_t read_count, size_t write_count) noexcept;
API const char *gmlake_torch_offload_made(const uint64_t *addresses, size_t count) noexcept;
API const char *gmlake_torch_offload_keep(uint64_t address) noexcept;

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using Args = c10::ArrayRef<IValue>;
using torch::jit::Stack;

/* Keys that no tensor of such a machine has. A thread excludes them as a mark, and autograd's
   threads that work for it have its marks. */
constexpr DispatchKey WATCHED = DispatchKey::Vulkan; /* the thread that opened the session */
constexpr DispatchKey INSIDE = DispatchKey::Metal;   /* what is one operator, and seen already */

struct Settings {
  std::atomic<bool> is_on{false};
  std::atomic<c10::DeviceType> device{c10::DeviceType::CUDA};
  std::atomic<size_t> foreach_bytes{SIZE_MAX};
};
Settings settings;

bool starts_with(const std::string &text, const char *begin) { return text.rfind(begin, 0) == 0; }

/* Those of dense, sparse and nested tensors there; the first is that of dense ones. */
std::vector<DispatchKey> device_keys() {
  if (settings.device == c10::DeviceType::CPU)
    return {DispatchKey::CPU, DispatchKey::SparseCPU, DispatchKey::SparseCsrCPU,
            DispatchKey::NestedTensorCPU};
  return {DispatchKey::CUDA, DispatchKey::SparseCUDA, DispatchKey::SparseCsrCUDA,
          DispatchKey::NestedTensorCUDA};
}

/* ---- What a schema says of an operator; dispatch.py does the same ---------------------------- */

enum How { READ, WRITE, OVERWRITE };
enum Kind { VIEW, ALLOCATION, OVERWRITES, UNMARKED, COSTLY };

/* Whether operators.inc says so of the operator, or of its argument. */
bool is_listed(Kind kind, const std::string &name, const std::string &argument = "") {
  using Line = std::tuple<Kind, std::string, std::string>;
#define OPERATOR(kind, name, argument) Line(kind, name, argument),
  static const auto &lines = *new std::set<Line>{
#include "gmlake_torch/operators.inc"
  };
#undef OPERATOR
  return lines.count(Line(kind, name, argument)) != 0;
}

struct Operator {
  struct Argument {
    size_t index;
    How how;
  };
  std::string name;
  size_t argument_count, return_count;
  uint64_t key;
  std::vector<Argument> tensors; /* the arguments that are, or have, tensors */
  DispatchKeySet own_kernels;    /* of the device's keys, those with a kernel of its own */
  bool is_quiet, is_foreach, is_collective;
  bool is_view, is_allocation;
  bool changes_storages; /* not what is in them; or other streams use them */
  bool is_costly;        /* takes longer than to read and write its tensors, or nobody knows */
  bool is_random;
  bool is_composite; /* made of others, but for tensors that `own_kernels` has */
  bool is_own;       /* of torch's, and reaches memory by its dispatcher alone */

  explicit Operator(const c10::OperatorHandle &handle) {
    const c10::FunctionSchema &schema = handle.schema();
    name = schema.name();
    argument_count = schema.arguments().size();
    return_count = schema.returns().size();
    key = std::hash<std::string>()(name + "." + schema.overload_name()) & 0xffffffffu;
    bool does_write = false, has_tensors = false, returns_alias = false, has_scalars = false;
    for (size_t i = 0; i < argument_count; i++) {
      const c10::Argument &argument = schema.arguments()[i];
      if (!has_tensor(argument)) continue;
      tensors.push_back({i, how_of(argument)});
      does_write |= tensors.back().how != READ;
      has_scalars |= argument.name() == "scalars"; /* a number of each item in one tensor */
    }
    has_tensors = !tensors.empty();
    for (const c10::Argument &result : schema.returns()) {
      has_tensors |= has_tensor(result);
      returns_alias |= result.alias_info() != nullptr;
    }
    is_composite = handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
    for (const DispatchKey device_key : device_keys())
      if (handle.hasKernelForDispatchKey(device_key)) own_kernels = own_kernels.add(device_key);
    is_own =
        starts_with(name, "aten::") && name != "aten::nanmean" && name != "aten::linalg_eigvals";
    is_view = is_listed(VIEW, name) || (returns_alias && !does_write && !is_composite);
    is_allocation = is_listed(ALLOCATION, name) && !does_write;
    is_quiet = is_view || starts_with(name, "prim::") || !has_tensors || is_allocation;
    changes_storages = name == "aten::set_" || starts_with(name, "aten::resize") ||
                       starts_with(name, "aten::_resize") || name == "aten::record_stream";
    is_costly = !is_own || is_listed(COSTLY, name);
    is_random = handle.hasTag(at::Tag::nondeterministic_seeded);
    is_foreach =
        (starts_with(name, "aten::_foreach_") || starts_with(name, "aten::_fused_ad") ||
         starts_with(name, "aten::_fused_sgd") || starts_with(name, "aten::_amp_foreach_")) &&
        !has_scalars && argument_count &&
        schema.arguments()[0].type()->str().find('[') != std::string::npos;
    is_collective = starts_with(name, "c10d::") || starts_with(name, "_c10d_functional::") ||
                    starts_with(name, "c10d_functional::") || starts_with(name, "symm_mem::");
  }

 private:
  static bool has_tensor(const c10::Argument &argument) {
    return argument.type()->str().find("Tensor") != std::string::npos;
  }
  How how_of(const c10::Argument &argument) const {
    if (argument.alias_info() && argument.alias_info()->isWrite())
      return (argument.kwarg_only() && starts_with(name, "aten::")) ||
                     (is_listed(OVERWRITES, name) && argument.name() == "self")
                 ? OVERWRITE
                 : WRITE;
    return is_listed(UNMARKED, name, argument.name()) ? WRITE : READ;
  }
};

/* Grows whenever an operator is defined, or is no more. */
std::atomic<uint64_t> generation{0};

const Operator &operator_of(const c10::OperatorHandle &handle) {
  static thread_local std::unordered_map<const void *, std::unique_ptr<Operator>> known;
  static thread_local uint64_t known_generation = 0;
  if (known_generation != generation) known.clear();
  known_generation = generation;
  std::unique_ptr<Operator> &own = known[&handle.schema()];
  if (!own) own = std::make_unique<Operator>(handle);
  return *own;
}

/* ---- What it is called with ------------------------------------------------------------------ */

/* Numbers come as tensors, and tensors that are made of others have no storage. */
bool is_here(const at::Tensor &tensor) {
  return tensor.has_storage() && tensor.storage().device().type() == settings.device &&
         !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

template <class Visit>
void for_each_part(const at::Tensor &tensor, const Visit &visit) {
  c10::TensorImpl *const own = tensor.unsafeGetTensorImpl();
  if (const auto *const coo = dynamic_cast<const at::SparseTensorImpl *>(own)) {
    visit(coo->indices());
    visit(coo->values());
  } else if (const auto *const csr = dynamic_cast<const at::SparseCsrTensorImpl *>(own)) {
    visit(csr->compressed_indices());
    visit(csr->plain_indices());
    visit(csr->values());
  }
}

/* Visits the tensors that are in the device's memory, and those that sparse ones are made of. */
template <class Visit>
void for_each_tensor(const IValue &value, const Visit &visit) {
  if (value.isTensor()) {
    const at::Tensor &tensor = value.toTensor();
    if (!tensor.defined()) return;
    if (tensor.layout() != c10::kStrided)
      for_each_part(tensor, [&](const at::Tensor &part) {
        if (part.defined() && is_here(part)) visit(part);
      });
    else if (is_here(tensor))
      visit(tensor);
  } else if (value.isList()) {
    for (const IValue &item : value.toListRef()) for_each_tensor(item, visit);
  } else if (value.isTuple()) {
    for (const IValue &item : value.toTupleRef().elements()) for_each_tensor(item, visit);
  } else if (value.isGenericDict()) {
    for (const auto &entry : value.toGenericDict()) for_each_tensor(entry.value(), visit);
  }
}

uint64_t address_of(const at::Tensor &tensor) {
  return reinterpret_cast<uint64_t>(static_cast<const void *>(tensor.storage().data()));
}

/* Whether the tensor is all of its storage, each byte once. */
bool covers(const at::Tensor &tensor) {
  return static_cast<size_t>(tensor.numel()) * tensor.element_size() == tensor.storage().nbytes() &&
         tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

void check(const char *text) {
  if (!text) return;
  const std::string what = std::string("gmlake_torch.offload: ") + text;
  TORCH_CHECK_WITH(OutOfMemoryError, what.find("OUT_OF_DEVICE_MEMORY") == std::string::npos, what);
  TORCH_CHECK(false, what);
}

/* ---- Operators ------------------------------------------------------------------------------- */

/* Runs it, and says what it uses before and what it has made after that. The last values of the
   stack are its arguments, and then its results. */
void run(const Operator &op, const c10::OperatorHandle &handle, DispatchKeySet below,
         Stack &stack) {
  static thread_local std::vector<uint64_t> read, written; /* inside, nobody runs another one */
  const size_t first = stack.size() - op.argument_count;
  read.clear(), written.clear();
  for (const Operator::Argument &argument : op.tensors)
    for_each_tensor(stack[first + argument.index], [&](const at::Tensor &tensor) {
      const uint64_t address = address_of(tensor);
      if (op.is_collective) check(gmlake_torch_offload_keep(address));
      if (argument.how != READ) written.push_back(address);
      if (argument.how != OVERWRITE || !covers(tensor)) read.push_back(address);
    });
  if (!read.empty() || !written.empty() || op.tensors.empty()) {
    const size_t read_count = read.size();
    read.insert(read.end(), written.begin(), written.end());
    check(gmlake_torch_offload_step(op.key, read.data(), read_count, written.size()));
  }
  {
    const c10::impl::ExcludeDispatchKeyGuard guard{DispatchKeySet(INSIDE)};
    handle.redispatchBoxed(below, &stack);
  }
  read.clear();
  for (size_t i = stack.size() - op.return_count; i < stack.size(); i++)
    for_each_tensor(stack[i],
                    [&](const at::Tensor &tensor) { read.push_back(address_of(tensor)); });
  if (!read.empty()) check(gmlake_torch_offload_made(read.data(), read.size()));
}

/* What it uses stays from now on. */
void keep_all(const Operator &op, const Stack &stack) {
  for (size_t i = stack.size() - op.argument_count; i < stack.size(); i++)
    for_each_tensor(stack[i], [&](const at::Tensor &tensor) {
      const char *const why = gmlake_torch_offload_keep(address_of(tensor));
      if (why)
        check((std::string(why) + "; " + op.name +
               " runs in another thread than the session's, or reaches memory itself, so what it "
               "uses has to stay")
                  .c_str());
    });
}

/* Where to cut the lists of a foreach operator, so that no part has more than foreach_bytes or one
   item; {}: nowhere. The first argument is a list. */
std::vector<size_t> cuts(Args args) {
  const size_t most = settings.foreach_bytes, count = args[0].toListRef().size();
  std::vector<size_t> sizes(count), ends;
  size_t sum = 0;
  for (const IValue &value : args) {
    if (!value.isList() || value.toListRef().size() != count) continue;
    size_t i = 0;
    for (const IValue &item : value.toListRef()) {
      if (item.isTensor() && item.toTensor().defined()) sizes[i] += item.toTensor().nbytes();
      i++;
    }
  }
  for (size_t i = 0; i < count; sum += sizes[i++]) {
    if (!i || sum + sizes[i] <= most) continue;
    ends.push_back(i);
    sum = 0;
  }
  if (!ends.empty()) ends.push_back(count);
  return ends;
}

/* The items of a list of `count` items from `first` to `end`; what is no such list as it is. */
IValue part_of(const IValue &value, size_t count, size_t first, size_t end) {
  if (!value.isList() || value.toListRef().size() != count) return value;
  const c10::List<IValue> list = value.toList();
  c10::List<IValue> part(list.elementType());
  for (size_t i = first; i < end; i++) part.push_back(list.get(i));
  return part;
}

void run_parts(const Operator &op, const c10::OperatorHandle &handle, DispatchKeySet below,
               Stack &stack, const std::vector<size_t> &ends) {
  const size_t base = stack.size() - op.argument_count;
  size_t first = 0;
  Stack results;
  for (const size_t end : ends) {
    Stack part;
    for (size_t i = base; i < stack.size(); i++)
      part.push_back(part_of(stack[i], ends.back(), first, end));
    run(op, handle, below, part);
    if (results.empty()) {
      results = std::move(part);
    } else {
      for (size_t i = 0; i < results.size(); i++) results[i].toList().append(part[i].toList());
    }
    first = end;
  }
  torch::jit::drop(stack, op.argument_count);
  for (IValue &result : results) stack.push_back(std::move(result));
}

} // namespace

#include "again.hpp"

namespace {

void register_new();

/* Whether nobody asks for what the thread executes. */
bool is_unseen() { return !settings.is_on || c10::impl::tls_is_dispatch_key_excluded(INSIDE); }

void see(const c10::OperatorHandle &handle, DispatchKeySet keys, Stack *stack) {
  const DispatchKeySet below =
      keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect);
  if (is_unseen()) return handle.redispatchBoxed(below, stack);
  register_new();
  const Operator &op = operator_of(handle);
  const bool is_composite =
      op.is_composite && (below.empty() || !op.own_kernels.has(below.highestPriorityTypeId()));
  /* Another thread's work goes on beside the session's steps; a composite has steps of its own. */
  if (is_composite || !c10::impl::tls_is_dispatch_key_excluded(WATCHED)) {
    if (!is_composite || !op.is_own) keep_all(op, *stack);
    return handle.redispatchBoxed(below, stack);
  }
  if (op.is_foreach) {
    const std::vector<size_t> ends =
        cuts(Args(stack->data() + stack->size() - op.argument_count, op.argument_count));
    if (!ends.empty()) return run_parts(op, handle, below, *stack, ends);
  }
  run(op, handle, below, *stack);
}

/* Where autograd would execute what the operator is made of. */
void see_composite(const c10::OperatorHandle &handle, DispatchKeySet, Stack *stack) {
  if (!is_unseen()) keep_all(operator_of(handle), *stack);
  handle.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, *stack);
}

/* ---- Registration ---------------------------------------------------------------------------- */

/* Is told of each operator, those that are there already first. It cannot register kernels then, as
   the dispatcher is locked. */
struct Listener final : c10::OpRegistrationListener {
  std::mutex mutex;
  std::vector<c10::OperatorName> names;
  std::atomic<bool> has_names{false};

  void onOperatorRegistered(const c10::OperatorHandle &handle) override {
    const std::lock_guard<std::mutex> lock(mutex);
    names.push_back(handle.operator_name());
    has_names = true;
    generation++;
  }
  void onOperatorDeregistered(const c10::OperatorHandle &) override { generation++; }
};

Listener &listener() {
  static Listener *const own = [] {
    std::unique_ptr<Listener> made(new Listener);
    Listener *const pointer = made.get();
    static const c10::RegistrationHandleRAII *const handle = new c10::RegistrationHandleRAII(
        c10::Dispatcher::singleton().addRegistrationListener(std::move(made)));
    (void)handle;
    return pointer;
  }();
  return *own;
}

/* The kernels that operators were given, by the namespace and the key; and whose they are. Protected
   by the lock of register_new. */
struct Kernels {
  std::mutex mutex;
  std::map<std::pair<std::string, DispatchKey>, std::unique_ptr<torch::Library>> libraries;
  std::vector<c10::OperatorName> names;
};
Kernels &kernels() {
  static Kernels *const own = new Kernels;
  return *own;
}

void give_kernel(const c10::OperatorName &name, DispatchKey key, torch::CppFunction kernel) {
  const std::string space = name.name.substr(0, name.name.find(':'));
  std::unique_ptr<torch::Library> &library = kernels().libraries[{space, key}];
  if (!library)
    library =
        std::make_unique<torch::Library>(torch::Library::IMPL, space, key, __FILE__, __LINE__);
  library->impl(
      (name.overload_name.empty() ? name.name : name.name + "." + name.overload_name).c_str(),
      std::move(kernel));
}

void register_operator(const c10::OperatorHandle &handle) {
  const Operator op(handle);
  if (op.is_view) { /* whoever uses its result says how that lies */
    kernels().names.push_back(handle.operator_name());
    give_kernel(handle.operator_name(), again::SEEN, torch::CppFunction::makeFallthrough());
  }
  if (op.is_quiet || (op.is_composite && op.is_own && op.own_kernels.empty())) return;
  kernels().names.push_back(handle.operator_name());
  if (!handle.hasKernelForDispatchKey(DispatchKey::BackendSelect))
    give_kernel(handle.operator_name(), DispatchKey::BackendSelect,
                torch::CppFunction::makeFromBoxedFunction<&see>());
  const DispatchKey autograd = settings.device == c10::DeviceType::CPU ? DispatchKey::AutogradCPU
                                                                       : DispatchKey::AutogradCUDA;
  if (op.is_composite && !op.is_own && !op.own_kernels.has(device_keys()[0]) &&
      !handle.hasKernelForDispatchKey(autograd))
    give_kernel(handle.operator_name(), autograd,
                torch::CppFunction::makeFromBoxedFunction<&see_composite>());
}

void register_new() {
  Listener &own = listener();
  if (!own.has_names) return;
  const std::lock_guard<std::mutex> lock(kernels().mutex);
  std::vector<c10::OperatorName> names;
  {
    const std::lock_guard<std::mutex> inner(own.mutex);
    names.swap(own.names);
    own.has_names = false;
  }
  for (const c10::OperatorName &name : names) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (handle) register_operator(*handle);
  }
}

/* Operators are as they were. Those that had kernels are new ones for the next session. A call that
   is under way in another thread ends as it began. */
void take_kernels() {
  const std::lock_guard<std::mutex> lock(kernels().mutex);
  kernels().libraries.clear();
  const std::lock_guard<std::mutex> inner(listener().mutex);
  std::vector<c10::OperatorName> &names = listener().names;
  names.insert(names.end(), kernels().names.begin(), kernels().names.end());
  kernels().names.clear();
  listener().has_names = !names.empty();
}

/* Runs the function. NULL, or what it raised: Python calls it as C. */
const char *answer(void (*function)()) noexcept {
  static thread_local std::string kept;
  try {
    function();
    return nullptr;
  } catch (const std::exception &error) {
    kept = error.what();
    return kept.c_str();
  }
}

} // namespace

/* is_on: operators of the calling thread are seen from now on, on a GPU or, in tests, on the CPU,
   and what other threads use stays; else no longer. Lists of more than foreach_bytes are worked on
   in parts. Returns NULL, or why it cannot; the text is valid until the thread's next call. */
API const char *gmlake_torch_offload_watch(int is_on, int is_cpu, size_t foreach_bytes) noexcept {
  settings.device = is_cpu ? c10::DeviceType::CPU : c10::DeviceType::CUDA;
  settings.foreach_bytes = foreach_bytes;
  c10::impl::tls_set_dispatch_key_excluded(WATCHED, is_on != 0);
  settings.is_on = is_on != 0;
  return answer(is_on ? register_new : take_kernels);
}

/* Operators may have been defined. Answers as the former. */
API const char *gmlake_torch_offload_look(void) noexcept {
  return settings.is_on ? answer(register_new) : nullptr;
}

/* is_on: what the thread executes is one operator, until this is called with what it returned. */
API int gmlake_torch_offload_pause(int is_on) noexcept {
  if (is_on && again::region_now) again::region_now->spoil();
  const int was_on = c10::impl::tls_is_dispatch_key_excluded(INSIDE);
  c10::impl::tls_set_dispatch_key_excluded(INSIDE, is_on != 0);
  return was_on;
}
