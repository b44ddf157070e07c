/* Sees what torch dispatches, as dispatch.py does in Python, and tells the session which storages
   an operator reads and which it writes before it runs, and afterwards what it has made.

   It is a boxed fallback of the dispatcher for a key that no tensor has (DispatchKey::Fake, which
   only the ended project torchdistx used). A thread that is watched has the key among those of its
   local state, and autograd's threads inherit that state. So operators come here behind autograd and
   autocast, as they will run, and before the device's kernel. An operator takes about a microsecond
   more. */
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

/* Of the session; each returns NULL or why not. */
API const char *gmlake_torch_offload_step(uint64_t key, const uint64_t *addresses,
                                          size_t read_count, size_t write_count);
API const char *gmlake_torch_offload_made(const uint64_t *addresses, size_t count);
API const char *gmlake_torch_offload_keep(uint64_t address);

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using Args = c10::ArrayRef<IValue>;
using torch::jit::Stack;

struct Settings {
  std::atomic<int> pause_count{0}; /* regions inside which no operator is seen */
  std::atomic<c10::DeviceType> device{c10::DeviceType::CUDA};
  std::atomic<size_t> foreach_bytes{SIZE_MAX};
};
Settings settings;

bool starts_with(const std::string &text, const char *begin) { return text.rfind(begin, 0) == 0; }

/* ---- What a schema says of an operator; see dispatch.py, whose lists these are ---------------- */

enum How { READ, WRITE, OVERWRITE };

struct Operator {
  struct Argument {
    size_t index;
    How how;
  };
  std::string name;
  size_t argument_count, return_count;
  uint64_t key;
  std::vector<Argument> tensors; /* the arguments that are, or have, tensors */
  bool is_quiet, is_foreach, is_collective;

  explicit Operator(const c10::OperatorHandle &handle) {
    const c10::FunctionSchema &schema = handle.schema();
    name = schema.name();
    argument_count = schema.arguments().size();
    return_count = schema.returns().size();
    key = std::hash<std::string>()(name + "." + schema.overload_name()) & 0xffffffffu;
    bool does_write = false, has_tensors = false, returns_alias = false;
    for (size_t i = 0; i < argument_count; i++) {
      const c10::Argument &argument = schema.arguments()[i];
      if (!has_tensor(argument)) continue;
      tensors.push_back({i, how_of(argument)});
      does_write |= tensors.back().how != READ;
    }
    has_tensors = !tensors.empty();
    for (const c10::Argument &result : schema.returns()) {
      has_tensors |= has_tensor(result);
      returns_alias |= result.alias_info() != nullptr;
    }
    static const std::unordered_set<std::string> gives_memory = {
        "aten::empty",          "aten::empty_like", "aten::empty_strided",
        "aten::empty_permuted", "aten::new_empty",  "aten::new_empty_strided"};
    const bool is_view = name == "aten::_unsafe_view" || name == "aten::_reshape_alias" ||
                         (returns_alias && !does_write &&
                          !handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd));
    is_quiet = is_view || !has_tensors || (gives_memory.count(name) && !does_write);
    is_foreach =
        (starts_with(name, "aten::_foreach_") || starts_with(name, "aten::_fused_ad") ||
         starts_with(name, "aten::_fused_sgd") || starts_with(name, "aten::_amp_foreach_")) &&
        argument_count && schema.arguments()[0].type()->str().find('[') != std::string::npos;
    is_collective = starts_with(name, "c10d::") || starts_with(name, "_c10d_functional::") ||
                    starts_with(name, "c10d_functional::") || starts_with(name, "symm_mem::");
  }

 private:
  static bool has_tensor(const c10::Argument &argument) {
    return argument.type()->str().find("Tensor") != std::string::npos;
  }
  How how_of(const c10::Argument &argument) const {
    static const std::unordered_set<std::string> overwrites = {
        "aten::bernoulli_", "aten::cauchy_",    "aten::copy_",   "aten::exponential_",
        "aten::fill_",      "aten::geometric_", "aten::normal_", "aten::log_normal_",
        "aten::random_",    "aten::uniform_",   "aten::zero_"};
    static const std::unordered_set<std::string> hides_writes = {
        "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm",
        "aten::_native_batch_norm_legit"};
    if (argument.alias_info() && argument.alias_info()->isWrite())
      return argument.kwarg_only() || (overwrites.count(name) && argument.name() == "self")
                 ? OVERWRITE
                 : WRITE;
    return hides_writes.count(name) &&
                   (argument.name() == "running_mean" || argument.name() == "running_var")
               ? WRITE
               : READ;
  }
};

const Operator &operator_of(const c10::OperatorHandle &handle) {
  static thread_local std::unordered_map<const void *, std::unique_ptr<Operator>> known;
  const c10::FunctionSchema &schema = handle.schema();
  std::unique_ptr<Operator> &own = known[&schema];
  if (!own || own->argument_count != schema.arguments().size() || own->name != schema.name())
    own = std::make_unique<Operator>(handle); /* or the name was registered anew */
  return *own;
}

/* ---- What it is called with ------------------------------------------------------------------- */

template <class Visit>
void for_each_tensor(const IValue &value, const Visit &visit) {
  if (value.isTensor()) {
    const at::Tensor &tensor = value.toTensor();
    if (tensor.defined()) visit(tensor);
  } else if (value.isList()) {
    for (const IValue &item : value.toListRef()) for_each_tensor(item, visit);
  }
}

/* Numbers come as tensors. The parts of tensors with another layout have operators of their own. */
bool is_here(const at::Tensor &tensor) {
  return tensor.layout() == c10::kStrided && tensor.device().type() == settings.device &&
         tensor.has_storage() && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

uint64_t address_of(const at::Tensor &tensor) {
  return reinterpret_cast<uint64_t>(static_cast<const void *>(tensor.storage().data()));
}

/* Whether the tensor is all of its storage, each byte once. */
bool covers(const at::Tensor &tensor) {
  if (static_cast<size_t>(tensor.numel()) * tensor.element_size() != tensor.storage().nbytes())
    return false;
  return tensor.is_contiguous() || tensor.is_contiguous(at::MemoryFormat::ChannelsLast) ||
         (tensor.dim() == 2 && tensor.stride(0) == 1 && tensor.stride(1) == tensor.size(0));
}

void check(const char *text) {
  if (!text) return;
  const std::string what = std::string("gmlake_torch.offload: ") + text;
  TORCH_CHECK_WITH(OutOfMemoryError, what.find("OUT_OF_DEVICE_MEMORY") == std::string::npos, what);
  TORCH_CHECK(false, what);
}

/* ---- Operators -------------------------------------------------------------------------------- */

/* Runs it, and says what it uses before and what it has made after that. The last values of the
   stack are its arguments, and then its results. */
void run(const Operator &op, const c10::OperatorHandle &handle, DispatchKeySet below,
         Stack &stack) {
  std::vector<uint64_t> read, written;
  const size_t first = stack.size() - op.argument_count;
  bool has_any = op.tensors.empty();
  for (const Operator::Argument &argument : op.tensors)
    for_each_tensor(stack[first + argument.index], [&](const at::Tensor &tensor) {
      if (!is_here(tensor)) return;
      const uint64_t address = address_of(tensor);
      has_any = true;
      if (op.is_collective) check(gmlake_torch_offload_keep(address));
      if (argument.how != READ) written.push_back(address);
      if (argument.how != OVERWRITE || !covers(tensor)) read.push_back(address);
    });
  if (has_any) {
    const size_t read_count = read.size();
    read.insert(read.end(), written.begin(), written.end());
    check(gmlake_torch_offload_step(op.key, read.data(), read_count, written.size()));
  }
  {
    const c10::impl::ExcludeDispatchKeyGuard guard{DispatchKeySet(DispatchKey::Fake)};
    handle.redispatchBoxed(below, &stack);
  }
  read.clear();
  for (size_t i = stack.size() - op.return_count; i < stack.size(); i++)
    for_each_tensor(stack[i], [&](const at::Tensor &tensor) {
      if (is_here(tensor)) read.push_back(address_of(tensor));
    });
  if (!read.empty()) check(gmlake_torch_offload_made(read.data(), read.size()));
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

void see(const c10::OperatorHandle &handle, DispatchKeySet keys, Stack *stack) {
  const DispatchKeySet below = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Fake);
  /* A mode, or tensors that are made of others: it calls operators of its own, which come here. */
  if (keys.has(DispatchKey::Python)) return handle.redispatchBoxed(below, stack);
  const Operator &op = operator_of(handle);
  if (op.is_quiet || settings.pause_count > 0) {
    const c10::impl::ExcludeDispatchKeyGuard guard{DispatchKeySet(DispatchKey::Fake)};
    return handle.redispatchBoxed(below, stack);
  }
  if (op.is_foreach) {
    const std::vector<size_t> ends =
        cuts(Args(stack->data() + stack->size() - op.argument_count, op.argument_count));
    if (!ends.empty()) return run_parts(op, handle, below, *stack, ends);
  }
  run(op, handle, below, *stack);
}

} // namespace

/* is_on: operators of the calling thread are seen from now on, on a GPU or, in tests, on the CPU;
   else no longer. Lists of more than foreach_bytes are worked on in parts. Returns whether they were
   seen. */
API int gmlake_torch_offload_watch(int is_on, int is_cpu, size_t foreach_bytes) {
  static torch::Library *const library =
      new torch::Library(torch::Library::IMPL, "_", DispatchKey::Fake, __FILE__, __LINE__);
  static torch::Library &with_fallback =
      library->fallback(torch::CppFunction::makeFromBoxedFunction<&see>());
  const bool was_on = c10::impl::tls_is_dispatch_key_included(DispatchKey::Fake);
  (void)with_fallback;
  settings.device = is_cpu ? c10::DeviceType::CPU : c10::DeviceType::CUDA;
  settings.foreach_bytes = foreach_bytes;
  c10::impl::tls_set_dispatch_key_included(DispatchKey::Fake, is_on != 0);
  return was_on;
}

/* is_on: operators of all threads run unseen until this was called as often with 0. */
API void gmlake_torch_offload_pause(int is_on) { settings.pause_count += is_on ? 1 : -1; }
