// The few functions of torch's stable C interface that the operators call, declared here and looked up when the library is loaded.
// Building therefore needs a compiler but not torch, and if torch lacks one of them, this is reported instead of crashing.
#pragma once
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace mollifier {

using Value = uint64_t;  // torch's StableIValue: a number, a handle, or the address of an optional one
struct TensorOpaque;
struct ListOpaque;
struct LibraryOpaque;
using TensorHandle = TensorOpaque*;
using ListHandle = ListOpaque*;
using LibraryHandle = LibraryOpaque*;
using Kernel = void (*)(Value* stack, uint64_t inputs, uint64_t outputs);
constexpr uint64_t TORCH_2_10 = (2ULL << 56) | (10ULL << 48);  // the version of the interface used; later versions support it

// Each entry: the name, then the arguments. All functions return 0 on success.
#define MOLLIFIER_TORCH_CALLS(CALL)                                                                                        \
  CALL(aoti_torch_library_init_impl, (const char*, const char*, const char*, uint32_t, LibraryHandle*))                    \
  CALL(torch_library_impl, (LibraryHandle, const char*, Kernel, uint64_t))                                                 \
  CALL(torch_call_dispatcher, (const char*, const char*, Value*, uint64_t))                                                \
  CALL(torch_get_num_threads, (uint32_t*))                                                                                 \
  CALL(torch_list_size, (ListHandle, size_t*))                                                                             \
  CALL(torch_list_get_item, (ListHandle, size_t, Value*))                                                                  \
  CALL(torch_list_push_back, (ListHandle, Value))                                                                          \
  CALL(torch_new_list_reserve_size, (size_t, ListHandle*))                                                                 \
  CALL(torch_delete_list, (ListHandle))                                                                                    \
  CALL(aoti_torch_delete_tensor_object, (TensorHandle))                                                                    \
  CALL(aoti_torch_get_data_ptr, (TensorHandle, void**))                                                                    \
  CALL(aoti_torch_get_dim, (TensorHandle, int64_t*))                                                                       \
  CALL(aoti_torch_get_sizes, (TensorHandle, int64_t**))                                                                    \
  CALL(aoti_torch_get_strides, (TensorHandle, int64_t**))                                                                  \
  CALL(aoti_torch_get_dtype, (TensorHandle, int32_t*))                                                                     \
  CALL(aoti_torch_empty_strided, (int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, TensorHandle*))
// Numbers that torch assigns to types, devices and layouts.
#define MOLLIFIER_TORCH_NUMBERS(NUMBER)                                                                                    \
  NUMBER(aoti_torch_dtype_float32)                                                                                         \
  NUMBER(aoti_torch_dtype_float64)                                                                                         \
  NUMBER(aoti_torch_dtype_bfloat16)                                                                                        \
  NUMBER(aoti_torch_dtype_int64)                                                                                           \
  NUMBER(aoti_torch_device_type_cpu)                                                                                       \
  NUMBER(aoti_torch_memory_format_contiguous_format)                                                                       \
  NUMBER(aoti_torch_memory_format_channels_last)

struct Torch {
#define POINTER(name, arguments) int32_t(*name) arguments = nullptr;
  MOLLIFIER_TORCH_CALLS(POINTER)
#undef POINTER
#define POINTER(name) int32_t (*name)() = nullptr;
  MOLLIFIER_TORCH_NUMBERS(POINTER)
#undef POINTER
  void *sgemm = nullptr, *dgemm = nullptr;  // torch's own matrix products; null if this build of torch does not export them
  int32_t float32 = 0, float64 = 0, bfloat16 = 0, int64 = 0, cpu = 0, contiguous = 0, channels_last = 0;
  void ask_numbers() {
    float32 = aoti_torch_dtype_float32(), float64 = aoti_torch_dtype_float64(), bfloat16 = aoti_torch_dtype_bfloat16();
    int64 = aoti_torch_dtype_int64(), cpu = aoti_torch_device_type_cpu();
    contiguous = aoti_torch_memory_format_contiguous_format(), channels_last = aoti_torch_memory_format_channels_last();
  }
};
extern Torch torch;

inline void check(int32_t failed, const char* what) {
  if (failed) throw std::runtime_error(std::string("mollifier: torch could not ") + what);
}
template <class T> Value value_of(T v) {
  Value all = 0;
  std::memcpy(&all, &v, sizeof(T));
  return all;
}
template <class T> T value_as(Value v) {
  T part;
  std::memcpy(&part, &v, sizeof(T));
  return part;
}

// A tensor that is released when it goes out of scope, or no tensor.
class Tensor {
  TensorHandle handle = nullptr;

 public:
  Tensor() = default;
  explicit Tensor(TensorHandle handle) : handle(handle) {}
  Tensor(Tensor&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Tensor() { if (handle) torch.aoti_torch_delete_tensor_object(handle); }

  explicit operator bool() const { return handle != nullptr; }
  Value release() { return value_of(std::exchange(handle, nullptr)); }
  int64_t dim() const { int64_t n; check(torch.aoti_torch_get_dim(handle, &n), "tell the dimensions of a tensor"); return n; }
  const int64_t* sizes() const { int64_t* n; check(torch.aoti_torch_get_sizes(handle, &n), "tell the sizes of a tensor"); return n; }
  const int64_t* strides() const { int64_t* n; check(torch.aoti_torch_get_strides(handle, &n), "tell the strides of a tensor"); return n; }
  int64_t size(int64_t d) const { return sizes()[d < 0 ? d + dim() : d]; }
  int32_t dtype() const { int32_t n; check(torch.aoti_torch_get_dtype(handle, &n), "tell the type of a tensor"); return n; }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d = 0, all = dim(); d < all; ++d) n *= sizes()[d];
    return n;
  }
  std::vector<int64_t> shape() const { return {sizes(), sizes() + dim()}; }
  void* address() const {
    if (!handle) return nullptr;
    void* at;
    check(torch.aoti_torch_get_data_ptr(handle, &at), "tell where a tensor is");
    return at;
  }
  template <class T> T* data() const { return static_cast<T*>(address()); }

  // Returns whether the dimensions, from the innermost outward, follow each other without gaps. Channels are innermost, or in their usual place.
  bool packed(bool channels_first) const {
    const int64_t *n = sizes(), *step = strides(), all = dim();
    int64_t expected = 1;
    for (int64_t k = 0; k < all; ++k) {
      const int64_t d = !channels_first ? all - 1 - k : k == 0 ? 1 : k == all - 1 ? 0 : all - k;
      if (n[d] != 1 && step[d] != expected) return false;
      expected *= n[d];
    }
    return true;
  }
  bool contiguous() const { return packed(false); }
  bool channels_last() const { return dim() == 4 && packed(true); }

  // Returns the tensor itself or, if needed, a copy that is contiguous, with channels last or not.
  Tensor laid_out(bool last = false) && {
    if (last ? channels_last() : contiguous()) return std::move(*this);
    Value stack[2] = {release(), value_of(last ? torch.channels_last : torch.contiguous)};
    check(torch.torch_call_dispatcher("aten::contiguous", "", stack, TORCH_2_10), "bring a tensor into memory order");
    return Tensor(value_as<TensorHandle>(stack[0]));
  }
};

inline Tensor empty(const std::vector<int64_t>& shape, int32_t dtype, bool channels_last = false) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  const auto place = [&](size_t d) { strides[d] = step; step *= shape[d] > 1 ? shape[d] : 1; };
  if (channels_last) {
    for (size_t d : {1, 3, 2, 0}) place(d);
  } else {
    for (size_t d = shape.size(); d-- > 0;) place(d);
  }
  TensorHandle made;
  check(torch.aoti_torch_empty_strided(int64_t(shape.size()), shape.data(), strides.data(), dtype, torch.cpu, -1, &made), "make a tensor");
  return Tensor(made);
}

// The arguments of a call, taken one after the other; all of them must be taken.
class Arguments {
  Value* at;

 public:
  explicit Arguments(Value* stack) : at(stack) {}
  Tensor tensor() { return Tensor(value_as<TensorHandle>(*at++)); }
  Tensor optional() {
    Value* inside = value_as<Value*>(*at++);
    if (!inside) return {};
    Tensor found(value_as<TensorHandle>(*inside));
    delete inside;
    return found;
  }
  int64_t integer() { return value_as<int64_t>(*at++); }
  double number() { return value_as<double>(*at++); }
  bool flag() { return value_as<bool>(*at++); }
  template <class T, class Take> std::vector<T> list(Take take) {
    const ListHandle given = value_as<ListHandle>(*at++);
    size_t count = 0;
    check(torch.torch_list_size(given, &count), "count a list");
    std::vector<T> found;
    found.reserve(count);
    for (size_t k = 0; k < count; ++k) {
      Value item;
      check(torch.torch_list_get_item(given, k, &item), "read a list");
      found.push_back(take(item));
    }
    check(torch.torch_delete_list(given), "give a list back");
    return found;
  }
  std::vector<double> numbers() { return list<double>(value_as<double>); }
  std::vector<int64_t> integers() { return list<int64_t>(value_as<int64_t>); }
  std::vector<Tensor> tensors() { return list<Tensor>([](Value v) { return Tensor(value_as<TensorHandle>(v)); }); }
};

inline Value list_of(std::vector<Tensor>& tensors) {
  ListHandle made;
  check(torch.torch_new_list_reserve_size(tensors.size(), &made), "make a list");
  for (Tensor& each : tensors) check(torch.torch_list_push_back(made, each.release()), "fill a list");
  return value_of(made);
}

inline int threads() {
  uint32_t count = 1;
  check(torch.torch_get_num_threads(&count), "count its threads");
  return int(count);
}

// Returns the single number in a CPU tensor of any type, such as a level or a step.
inline double number_in(const Tensor& t) {
  const int32_t kind = t.dtype();
  if (kind == torch.float64) return *t.data<double>();
  if (kind == torch.float32) return *t.data<float>();
  if (kind == torch.int64) return double(*t.data<int64_t>());
  throw std::runtime_error("mollifier: a level or a time of this type; expected float64, float32 or int64");
}

}  // namespace mollifier
