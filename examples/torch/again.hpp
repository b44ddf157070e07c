/* Executes again what a block of a model has executed: activation checkpointing below Python.

   While a block runs, each operator is written down behind autograd and autocast: itself, its
   arguments, and where its tensors lie in which storages. What the block saves for the backward
   pass is not held, if one of these operators has made its storage. When that pass asks for it, the
   operators that it takes run again, in their order, with the random numbers of the first time. No
   code of the program runs twice, so what that has changed meanwhile, or does besides, is no
   matter. (torch's checkpoint executes the module again.)

   Where that is enough, what matrix products, convolutions and other costly operators have made is
   held, and only the others run again: they take the time to read and write their tensors.

   What was there before is held, and may not be written until then. A block is left as it is, and
   all that it saves is held, if in it
   - something from outside is written: running statistics, a cache, a gradient; or nobody would see
     that, as in a tensor of torch's inference mode;
   - an operator raises an error, or code of the program's executes it (__torch_dispatch__);
   - memory is reached without torch's dispatcher: by an address, by a region of torch.compile, or
     by whoever fills what `empty` has given;
   - tensors of other layouts are used, other devices or streams, or a generator that is given;
   - processes work together: each has its own plan, and one that is alone would wait for ever.

   operators.cpp includes this, behind what says of an operator what it reads and writes. A region
   is of one thread at a time, which holds Python's lock. */
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/python_headers.h>
#include <torch/version.h>

namespace {
namespace again {

constexpr DispatchKey SEEN = DispatchKey::Fake; /* included while a block's operators are seen */

/* Who sees the operators of a backward pass is not shown a block's. */
constexpr DispatchKeySet MODES({DispatchKey::Python, DispatchKey::PythonTLSSnapshot,
                                DispatchKey::FuncTorchDynamicLayerFrontMode,
                                DispatchKey::FuncTorchDynamicLayerBackMode,
                                DispatchKey::FuncTorchVmapMode, DispatchKey::VmapMode});

/* How a tensor lies in a storage. */
struct Layout {
  c10::DimVector sizes, strides;
  int64_t offset = 0;
  caffe2::TypeMeta type;
  bool operator==(const Layout &other) const {
    return sizes == other.sizes && strides == other.strides && offset == other.offset &&
           type == other.type;
  }
};

/* How often somebody has written a tensor. */
struct Version {
  c10::VariableVersion count{c10::VariableVersion::DISABLED};
  uint32_t then = 0;
  Version() = default;
  explicit Version(const at::Tensor &tensor)
      : count(tensor.unsafeGetTensorImpl()->version_counter()) {
    if (count.enabled()) then = count.current_version();
  }
  bool is_now() const { return !count.enabled() || count.current_version() == then; }
};

struct Memory {
  c10::Storage outside; /* was there before the block; or nobody has written it since its fill */
  Version version;      /* of that, when it was read first */
  c10::weak_intrusive_ptr<c10::StorageImpl> known; /* no other one gets its address meanwhile */
  size_t bytes;
  bool is_made;   /* by the block */
  bool is_filled; /* not only allocated */
  uint32_t write_count = 0;
};

/* A tensor in an argument, or in an item of one that is a list. */
struct Place {
  uint32_t index;
  int32_t item; /* -1: it is no list */
  uint32_t memory;
  Layout layout;
};

/* What a generator draws next. A GPU's is known by numbers, which cost no copy. */
struct Random {
  uint64_t seed = 0, drawn = 0;
  at::Tensor state;
};

struct Step {
  c10::OperatorHandle handle;
  Stack args; /* without these tensors */
  std::vector<Place> tensors, made;
  std::vector<uint32_t> written, last; /* memory; what no later step needs */
  std::vector<Version> constants;      /* of tensors in `args` */
  Random random;                       /* before it, if it draws */
  bool is_random = false, is_costly = false, is_needed = false;
};

struct Saved {
  uint32_t memory = UINT32_MAX, write_count = 0;
  Layout layout;
  at::Tensor held; /* until it is to be made again, and from when it is */
  Version version;
};

Layout layout_of(const at::Tensor &tensor) {
  Layout layout;
  layout.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  layout.strides.assign(tensor.strides().begin(), tensor.strides().end());
  layout.offset = tensor.storage_offset();
  layout.type = tensor.dtype();
  return layout;
}

at::Tensor tensor_in(c10::Storage storage, const Layout &layout) {
  const DispatchKey key =
      storage.device_type() == c10::DeviceType::CPU ? DispatchKey::CPU : DispatchKey::CUDA;
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                               DispatchKeySet(key), layout.type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(layout.sizes, layout.strides);
  tensor.unsafeGetTensorImpl()->set_storage_offset(layout.offset);
  return tensor;
}

/* Whether its storage and its layout are all that it is. */
bool is_plain(const at::Tensor &tensor) {
  const DispatchKeySet keys = tensor.key_set();
  return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_nested() &&
         !keys.has(DispatchKey::Named) && !keys.has(DispatchKey::Python) &&
         !keys.has(DispatchKey::Conjugate) && !keys.has(DispatchKey::Negative) &&
         !keys.has(DispatchKey::ZeroTensor) && !keys.has(DispatchKey::Functionalize);
}

/* Of another device: it is held, without the graph that may hold it. */
at::Tensor constant_of(const at::Tensor &tensor) {
  c10::TensorImpl *const own = tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || !tensor.requires_grad()) return tensor;
  return at::Tensor(own->shallow_copy_and_detach(own->version_counter(), true));
}

bool is_counted(const at::Generator &generator) {
  return TORCH_VERSION_MAJOR >= 2 && generator.device().is_cuda();
}

Random random_of(at::Generator &generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
#if TORCH_VERSION_MAJOR >= 2
  if (is_counted(generator)) return {generator.current_seed(), generator.get_offset(), {}};
#endif
  return {0, 0, generator.get_state()};
}

void set_random(at::Generator &generator, const Random &random) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
#if TORCH_VERSION_MAJOR >= 2
  if (is_counted(generator)) {
    generator.set_current_seed(random.seed);
    return generator.set_offset(random.drawn);
  }
#endif
  generator.set_state(random.state);
}

class Region {
 public:
  Region(PyObject *again, c10::Device device, bool is_whole)
      : device_(device),
        guard_(device.type()),
        stream_(guard_.getStream(device)),
        is_whole_(is_whole),
        generator_(at::globalContext().defaultGenerator(device)),
        again_(again) {
    Py_INCREF(again_);
  }
  ~Region() { Py_DECREF(again_); }
  Region(const Region &) = delete;
  Region &operator=(const Region &) = delete;

  PyObject *again() const { return again_; }
  bool is_spoilt() const { return is_spoilt_; }
  void spoil() { is_spoilt_ = true; }

  /* Before an operator runs: what it is called with. */
  void begin_step(const Operator &op, const Stack &stack) {
    if (!now_.empty()) spoil(); /* the one before has raised an error, and may have written */
    clear_step();
    is_random_ = op.is_random;
    if (is_random_ || is_counted(generator_)) random_ = random_of(generator_);
    const size_t first = stack.size() - op.argument_count;
    for (size_t i = 0; i < op.argument_count; i++) args_.push_back(argument(stack[first + i], i));
    if (op.changes_storages || op.is_collective || guard_.getStream(device_) != stream_ ||
        c10::get_default_dtype() != dtype_)
      spoil();
  }

  /* Behind it: it is kept if it has made or written memory. */
  void end_step(const Operator &op, const c10::OperatorHandle &handle, const Stack &stack) {
    if (!is_spoilt_) add_step(op, handle, stack);
    clear_step();
  }

  /* Returns its number. */
  size_t save(const at::Tensor &tensor) {
    Saved saved;
    saved.version = Version(tensor);
    if (is_plain(tensor) && is_here(tensor)) {
      saved.layout = layout_of(tensor);
      saved.held = tensor_in(tensor.storage(), saved.layout);
      const auto found = known_.find(tensor.storage().unsafeGetStorageImpl());
      if (found != known_.end() && memories_[found->second].is_made) {
        if (!memories_[found->second].is_filled) spoil();
        saved.memory = found->second;
        saved.write_count = memories_[found->second].write_count;
      }
    } else {
      saved.held = tensor.detach();
    }
    saved_.push_back(std::move(saved));
    return saved_.size() - 1;
  }

  /* The block has ended. What can be made again is held no more. Returns the bytes that are held,
     and would not be if all were made again; -1: the block is left as it is. */
  int64_t end() {
    const bool is_fit = !is_spoilt_ && now_.empty() && is_as_read();
    is_spoilt_ = has_ended_ = true; /* an operator that is behind it has not been seen */
    clear_step();
    known_.clear();
    for (Memory &memory : memories_) memory.known.reset();
    if (!is_fit) steps_.clear(), memories_.clear();
    for (Step &step : steps_)
      if (!step.made.empty() && memories_[step.made[0].memory].outside) {
        memories_[step.made[0].memory].is_made = false;
        step.made.clear();
      }
    const std::vector<bool> is_makeable = hold();
    int64_t held_bytes = 0;
    for (Memory &memory : memories_)
      if (memory.is_made && memory.outside) {
        memory.is_made = false;
        held_bytes += static_cast<int64_t>(memory.bytes);
      }
    for (Saved &saved : saved_) {
      if (saved.memory == UINT32_MAX) continue;
      const bool is_again = is_fit && is_makeable[saved.memory] &&
                            memories_[saved.memory].is_made &&
                            memories_[saved.memory].write_count == saved.write_count;
      if (is_again) saved.held.reset();
      if (!is_again) saved.memory = UINT32_MAX;
    }
    choose();
    return is_fit ? held_bytes : -1;
  }

  bool is_there(size_t number) const { return saved_[number].held.defined(); }
  at::Tensor take(size_t number) {
    Saved &saved = saved_[number];
    if (has_ended_ && saved.memory != UINT32_MAX) return std::move(saved.held);
    TORCH_CHECK(saved.version.is_now(), WRITTEN);
    return saved.held;
  }

  /* Nobody asks for it again. */
  void release(size_t number) { saved_[number] = Saved(); }

  /* Makes all that was saved. */
  void execute() {
    TORCH_CHECK(is_as_read(), CHANGED);
    std::vector<c10::Storage> made(memories_.size());
    const bool does_draw =
        !is_counted(generator_) ||
        std::any_of(steps_.begin(), steps_.end(), [](const Step &step) { return step.is_random; });
    const Random random = does_draw ? random_of(generator_) : Random();
    const caffe2::TypeMeta dtype = c10::get_default_dtype();
    const c10::impl::ExcludeDispatchKeyGuard guard{
        c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset | MODES |
        DispatchKeySet(SEEN)};
    const auto put_back = [&] {
      if (does_draw) set_random(generator_, random);
      c10::set_default_dtype(dtype);
    };
    c10::set_default_dtype(dtype_);
    try {
      for (const Step &step : steps_) execute(step, made);
    } catch (...) {
      put_back();
      throw;
    }
    put_back();
    for (Saved &saved : saved_)
      if (saved.memory != UINT32_MAX && !saved.held.defined())
        saved.held = tensor_in(storage_of(saved.memory, made), saved.layout);
  }

 private:
  static constexpr const char *CHANGED =
      "gmlake_torch.offload: a block is executed for the second time, and a tensor that it has "
      "read, as a parameter or its input, was written since: write it after the backward pass, or "
      "open the session with recomputes=\"never\"";
  static constexpr const char *WRITTEN =
      "gmlake_torch.offload: a tensor that was saved for the backward pass was written since";
  static constexpr const char *DIFFERS =
      "gmlake_torch.offload: a block is executed for the second time, and an operator made other "
      "memory than for the first time: open the session with recomputes=\"never\"";

  /* Whether nobody has written or resized what was there before the block. */
  bool is_as_read() const {
    for (const Memory &memory : memories_)
      if (!memory.version.is_now() || (memory.outside && memory.outside.nbytes() != memory.bytes))
        return false;
    for (const Step &step : steps_)
      for (const Version &constant : step.constants)
        if (!constant.is_now()) return false;
    return true;
  }

  void clear_step() {
    now_.clear();
    args_.clear();
    constants_.clear();
    random_ = Random();
  }

  void add_step(const Operator &op, const c10::OperatorHandle &handle, const Stack &stack) {
    Step step{handle, {}, {}, {}, {}, {}, {}, {}};
    if (is_counted(generator_)) is_random_ |= random_of(generator_).drawn != random_.drawn;
    step.is_random = is_random_;
    step.random = std::move(random_);
    step.is_costly = op.is_costly;
    const size_t first = stack.size() - op.return_count;
    std::vector<std::pair<const at::Tensor *, Place>> made;
    for (size_t i = 0; i < op.return_count; i++)
      results(stack[first + i], static_cast<uint32_t>(i), made);
    bool does_write = false;
    for (const Operator::Argument &argument : op.tensors)
      for (const auto &now : now_)
        does_write |= argument.how != READ && now.second.index == argument.index;
    if (is_spoilt_ || (made.empty() && !does_write)) return;
    if (op.is_allocation) { /* what it is told of other tensors is their shape */
      for (const auto &result : made) {
        add(result.first->storage(), true);
        memories_.back().is_filled = !memories_.back().bytes;
      }
      return;
    }
    /* What zeros has given is held as it is if no operator writes it: a kernel of an extension,
       which nobody sees, may have done so. */
    const bool is_fill =
        !is_random_ && !does_write && made.size() == 1 &&
        (now_.empty() || starts_with(op.name, "aten::new_") || op.name == "aten::zeros_like" ||
         op.name == "aten::ones_like" || op.name == "aten::full_like");
    for (auto &now : now_) {
      now.second.memory = memory_of(now.first);
      Memory &memory = memories_[now.second.memory];
      const auto how = std::find_if(op.tensors.begin(), op.tensors.end(),
                                    [&](const auto &a) { return a.index == now.second.index; });
      if (how == op.tensors.end() || how->how == READ) {
        if (!memory.is_filled) return spoil();
        /* Not when it is made: torch may still make that tensor part of another one's versions. */
        if (memory.outside && memory.is_made && !memory.version.count.enabled())
          memory.version = Version(now.first);
      } else {
        if (!memory.is_made) return spoil();
        memory.is_filled = true;
        memory.outside = c10::Storage(), memory.version = Version();
        memory.write_count++;
        step.written.push_back(now.second.memory);
      }
      step.tensors.push_back(std::move(now.second));
    }
    for (auto &result : made) {
      const c10::Storage &storage = result.first->storage();
      const auto found = known_.find(storage.unsafeGetStorageImpl());
      if (found != known_.end()) continue; /* two results are in one storage */
      const auto sharing = std::count_if(made.begin(), made.end(), [&](const auto &other) {
        return other.first->storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
      });
      if (result.first->use_count() > 1 || storage.use_count() > static_cast<size_t>(sharing)) {
        (void)memory_of(*result.first); /* the operator keeps it, and may have had it before */
        continue;
      }
      result.second.memory = add(storage, true);
      if (is_fill) memories_.back().outside = storage;
      step.made.push_back(std::move(result.second));
    }
    step.args.swap(args_);
    step.constants.swap(constants_);
    steps_.push_back(std::move(step));
  }

  /* Whether it is a list of tensors, some of which may be none. */
  static bool has_tensors(const IValue &value) {
    return value.isTensorList() ||
           (value.isList() && value.toList().elementType()->kind() == c10::TypeKind::OptionalType);
  }

  IValue argument(const IValue &value, size_t index) {
    const uint32_t place = static_cast<uint32_t>(index);
    if (value.isTensor()) return IValue(tensor(value.toTensor(), place, -1));
    if (value.isGenerator() || value.isStorage()) {
      spoil();
    } else if (!has_tensors(value)) {
      for_each_tensor(value, [&](const at::Tensor &) { spoil(); });
    } else {
      const c10::List<IValue> list = value.toList();
      c10::List<IValue> copy(list.elementType());
      for (size_t i = 0; i < list.size(); i++) {
        const IValue item = list.get(i);
        copy.push_back(item.isTensor()
                           ? IValue(tensor(item.toTensor(), place, static_cast<int32_t>(i)))
                           : item);
      }
      return IValue(copy);
    }
    return value;
  }

  /* What is written down in its place. */
  at::Tensor tensor(const at::Tensor &given, uint32_t index, int32_t item) {
    if (!given.defined()) return given;
    if (!given.has_storage() || given.layout() != c10::kStrided) {
      if (given.device() == device_) spoil();
      return constant_of(given);
    }
    if (!is_here(given)) {
      constants_.emplace_back(given);
      return constant_of(given);
    }
    if (given.device() != device_ || !is_plain(given)) {
      spoil();
      return at::Tensor();
    }
    now_.emplace_back(given, Place{index, item, 0, layout_of(given)});
    return at::Tensor();
  }

  /* The tensors whose memory is not known, and is no argument's. */
  void results(const IValue &value, uint32_t index,
               std::vector<std::pair<const at::Tensor *, Place>> &made) {
    const auto add = [&](const at::Tensor &tensor, int32_t item) {
      if (!tensor.defined() || tensor.device().type() != device_.type()) return;
      if (tensor.device() != device_ || !tensor.has_storage() || !is_plain(tensor)) return spoil();
      const c10::StorageImpl *const own = tensor.storage().unsafeGetStorageImpl();
      if (known_.count(own)) return;
      for (const auto &now : now_)
        if (now.first.storage().unsafeGetStorageImpl() == own) return;
      made.emplace_back(&tensor, Place{index, item, 0, layout_of(tensor)});
    };
    if (value.isTensor()) {
      add(value.toTensor(), -1);
    } else if (value.isList()) {
      int32_t item = 0;
      for (const IValue &part : value.toListRef()) {
        if (part.isTensor()) add(part.toTensor(), item);
        item++;
      }
    } else {
      for_each_tensor(value, [&](const at::Tensor &) { spoil(); });
    }
  }

  uint32_t add(const c10::Storage &storage, bool is_made) {
    const uint32_t number = static_cast<uint32_t>(memories_.size());
    memories_.push_back({is_made ? c10::Storage() : storage, Version(),
                         storage.getWeakStorageImpl(), storage.nbytes(), is_made, true});
    known_[storage.unsafeGetStorageImpl()] = number;
    return number;
  }

  /* What is not known was there before. */
  uint32_t memory_of(const at::Tensor &tensor) {
    const auto found = known_.find(tensor.storage().unsafeGetStorageImpl());
    if (found != known_.end()) return found->second;
    const uint32_t number = add(tensor.storage(), false);
    memories_.back().version = Version(tensor);
    if (!memories_.back().version.count.enabled()) spoil(); /* nobody counts who writes it */
    return number;
  }

  /* Holds what costly steps have made and the block has saved, unless all is to be made again: the
     others are made of that. Whatever has more than one writer is not held for it. Returns which
     memory can be made again. */
  std::vector<bool> hold() {
    std::vector<bool> is_there(memories_.size(), true); /* or can be made */
    std::vector<uint32_t> writers(memories_.size());
    std::vector<const Saved *> saved_in(memories_.size());
    for (const Step &step : steps_) {
      for (const Place &made : step.made) writers[made.memory]++;
      for (const uint32_t written : step.written) writers[written]++;
    }
    for (const Saved &saved : saved_)
      if (saved.memory < memories_.size() &&
          memories_[saved.memory].write_count == saved.write_count)
        saved_in[saved.memory] = &saved;
    for (const Step &step : steps_) {
      bool is_made = is_whole_ || !step.is_costly;
      for (const Place &tensor : step.tensors) is_made = is_made && is_there[tensor.memory];
      if (is_made) continue;
      const auto leave = [&](uint32_t number) {
        is_there[number] = saved_in[number] && writers[number] == 1;
        if (!is_there[number]) return;
        memories_[number].outside = saved_in[number]->held.storage();
        memories_[number].version = saved_in[number]->version;
      };
      for (const Place &made : step.made) leave(made.memory);
      for (const uint32_t written : step.written) leave(written);
    }
    return is_there;
  }

  /* Which steps are needed, and behind which of them memory may go. */
  void choose() {
    std::vector<bool> is_needed(memories_.size());
    for (const Saved &saved : saved_)
      if (saved.memory != UINT32_MAX) is_needed[saved.memory] = true;
    if (std::none_of(is_needed.begin(), is_needed.end(), [](bool is) { return is; }))
      steps_.clear();
    std::vector<bool> is_used = is_needed; /* by a later step, or saved */
    for (size_t i = steps_.size(); i--;) {
      Step &step = steps_[i];
      const auto makes = [&](uint32_t memory) {
        return is_needed[memory] && memories_[memory].is_made;
      };
      for (const Place &made : step.made) step.is_needed |= makes(made.memory);
      for (const uint32_t written : step.written) step.is_needed |= makes(written);
      if (!step.is_needed) continue;
      const auto use = [&](uint32_t memory) {
        is_needed[memory] = true;
        if (!is_used[memory]) step.last.push_back(memory);
        is_used[memory] = true;
      };
      for (const Place &tensor : step.tensors) use(tensor.memory);
      for (const Place &made : step.made) use(made.memory);
    }
    steps_.erase(std::remove_if(steps_.begin(), steps_.end(),
                                [](const Step &step) { return !step.is_needed; }),
                 steps_.end());
    for (size_t i = 0; i < memories_.size(); i++)
      if (!is_needed[i]) memories_[i].outside = c10::Storage(), memories_[i].version = Version();
  }

  void execute(const Step &step, std::vector<c10::Storage> &made) {
    if (step.is_random) set_random(generator_, step.random);
    Stack stack = step.args;
    uint32_t list = UINT32_MAX; /* of which argument it is a copy */
    for (const Place &place : step.tensors) {
      at::Tensor tensor = tensor_in(storage_of(place.memory, made), place.layout);
      if (place.item < 0) {
        stack[place.index] = std::move(tensor);
        continue;
      }
      if (list != place.index) stack[place.index] = stack[place.index].toList().copy();
      list = place.index;
      stack[place.index].toList().set(static_cast<size_t>(place.item), std::move(tensor));
    }
    const Stack args = stack; /* torch drops several out= tensors before it returns them */
    step.handle.callBoxed(stack);
    for (const Place &place : step.made) {
      const IValue &value = stack[stack.size() - return_count(step) + place.index];
      const at::Tensor tensor = place.item < 0
                                    ? value.toTensor()
                                    : value.toListRef()[static_cast<size_t>(place.item)].toTensor();
      TORCH_CHECK(tensor.storage().nbytes() == memories_[place.memory].bytes &&
                      layout_of(tensor) == place.layout,
                  DIFFERS);
      made[place.memory] = tensor.storage();
    }
    for (const uint32_t memory : step.last) made[memory] = c10::Storage();
  }

  /* That of memory, which is allocated if no step has made it. */
  const c10::Storage &storage_of(uint32_t number, std::vector<c10::Storage> &made) const {
    const Memory &memory = memories_[number];
    if (made[number]) return made[number];
    const auto bytes = at::TensorOptions().dtype(at::kByte).device(device_);
    made[number] = memory.is_made ? at::empty({static_cast<int64_t>(memory.bytes)}, bytes).storage()
                                  : memory.outside;
    return made[number];
  }

  static size_t return_count(const Step &step) { return step.handle.schema().returns().size(); }

  const c10::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream stream_;
  const bool is_whole_;
  at::Generator generator_;
  const caffe2::TypeMeta dtype_ = c10::get_default_dtype();
  PyObject *const again_; /* executes it for the session */
  bool is_spoilt_ = false, has_ended_ = false;
  std::vector<Memory> memories_;
  std::vector<Step> steps_;
  std::vector<Saved> saved_;
  std::unordered_map<const c10::StorageImpl *, uint32_t> known_; /* while the block runs */
  /* The step that is under way: */
  std::vector<std::pair<at::Tensor, Place>> now_;
  Stack args_;
  std::vector<Version> constants_;
  Random random_;
  bool is_random_ = false;
};

/* The thread's block that runs. */
thread_local std::shared_ptr<Region> region_now;

void see_step(const c10::OperatorHandle &handle, DispatchKeySet keys, Stack *stack) {
  const DispatchKeySet below = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, SEEN);
  Region *const region = region_now.get();
  if (region && keys.has(DispatchKey::Python)) region->spoil(); /* the program may do anything */
  if (!region || region->is_spoilt()) return handle.redispatchBoxed(below, stack);
  const c10::impl::ExcludeDispatchKeyGuard guard{DispatchKeySet(SEEN)};
  region->begin_step(operator_of(handle), *stack);
  handle.redispatchBoxed(below, stack);
  /* Asked for again: an operator may define others, and then what is known of them is new. */
  region->end_step(operator_of(handle), handle, *stack);
}

/* ---- What Python calls ----------------------------------------------------------------------- */

struct Handle {
  std::shared_ptr<Region> region;
  size_t number;
  ~Handle() { region->release(number); }
};
const char *const HANDLE = "gmlake_torch.saved";

Handle *handle_of(PyObject *capsule) {
  return static_cast<Handle *>(PyCapsule_GetPointer(capsule, HANDLE));
}
void destroy(PyObject *capsule) { delete handle_of(capsule); }

std::shared_ptr<Region> new_region(PyObject *again, int device, bool is_whole) {
  const c10::DeviceType type = settings.device;
  return std::make_shared<Region>(
      again,
      c10::Device(type, static_cast<c10::DeviceIndex>(type == c10::DeviceType::CPU ? -1 : device)),
      is_whole);
}

/* begin(again, device, is_whole): the operators of the block that runs now are seen. again(handle)
   is called when its second execution is needed, and calls execute(handle). */
PyObject *begin(PyObject *, PyObject *args) {
  HANDLE_TH_ERRORS
  static const auto *const library = [] {
    auto *const own = new torch::Library(torch::Library::IMPL, "_", SEEN, __FILE__, __LINE__);
    own->fallback(torch::CppFunction::makeFromBoxedFunction<&see_step>());
    return own;
  }();
  (void)library;
  PyObject *again = nullptr;
  int device = 0, is_whole = 0;
  if (!PyArg_ParseTuple(args, "Oip", &again, &device, &is_whole)) return nullptr;
  region_now = new_region(again, device, is_whole != 0);
  c10::impl::tls_set_dispatch_key_included(SEEN, true);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

/* It has ended. Returns what Region::end does. */
PyObject *end(PyObject *, PyObject *) {
  HANDLE_TH_ERRORS
  c10::impl::tls_set_dispatch_key_included(SEEN, false);
  const std::shared_ptr<Region> region = std::move(region_now);
  return PyLong_FromLongLong(region ? region->end() : -1);
  END_HANDLE_TH_ERRORS
}

PyObject *save(PyObject *, PyObject *tensor) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(THPVariable_Check(tensor), "gmlake_torch.offload: no tensor");
  /* A thread that works for the block's has these hooks, too, and no region. */
  const std::shared_ptr<Region> region = region_now ? region_now : new_region(Py_None, 0, true);
  std::unique_ptr<Handle> handle(new Handle{region, region->save(THPVariable_Unpack(tensor))});
  PyObject *const capsule = PyCapsule_New(handle.get(), HANDLE, destroy);
  if (capsule) (void)handle.release();
  return capsule;
  END_HANDLE_TH_ERRORS
}

PyObject *load(PyObject *, PyObject *capsule) {
  HANDLE_TH_ERRORS
  Handle *const handle = handle_of(capsule);
  if (!handle) return nullptr;
  const std::shared_ptr<Region> region = handle->region;
  if (!region->is_there(handle->number)) {
    PyObject *const none = PyObject_CallFunctionObjArgs(region->again(), capsule, nullptr);
    if (!none) return nullptr;
    Py_DECREF(none);
  }
  return THPVariable_Wrap(region->take(handle->number));
  END_HANDLE_TH_ERRORS
}

PyObject *execute(PyObject *, PyObject *capsule) {
  HANDLE_TH_ERRORS
  Handle *const handle = handle_of(capsule);
  if (!handle) return nullptr;
  const std::shared_ptr<Region> region = handle->region;
  region->execute();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

/* The block that runs is left as it is: it has reached memory without torch's dispatcher. */
PyObject *spoil(PyObject *, PyObject *) {
  if (region_now) region_now->spoil();
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"begin", begin, METH_VARARGS, nullptr}, {"end", end, METH_NOARGS, nullptr},
    {"save", save, METH_O, nullptr},         {"load", load, METH_O, nullptr},
    {"execute", execute, METH_O, nullptr},   {"spoil", spoil, METH_NOARGS, nullptr},
};

} // namespace again
} // namespace

/* A new dict of these functions by their names; NULL: an error is raised. */
API PyObject *gmlake_torch_offload_again(void) {
  PyObject *const found = PyDict_New();
  for (PyMethodDef &method : again::methods) {
    PyObject *const function = found ? PyCFunction_New(&method, nullptr) : nullptr;
    const int result = function ? PyDict_SetItemString(found, method.ml_name, function) : -1;
    Py_XDECREF(function);
    if (result) {
      Py_XDECREF(found);
      return nullptr;
    }
  }
  return found;
}
