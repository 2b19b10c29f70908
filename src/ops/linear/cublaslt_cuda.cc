#include "ops/linear/cublaslt_cuda.h"

#include <string>

#include <dlfcn.h>

#include "core/error.h"

namespace octet {

namespace {

constexpr std::size_t workspace_bytes = std::size_t{64} << 20;
// Plans that are kept: prompts come in all lengths, and a plan is cheap to make anew (some 50 us).
constexpr std::size_t most_plans = 4096;
constexpr int most_algorithms = 16;

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const ErrorKind kind =
      status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorKind::out_of_memory : ErrorKind::device;
  throw_error(kind, "{} failed with cuBLAS status {}", call, static_cast<int>(status));
}

// The largest power of two, up to 256, that divides an address.
std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t alignment = 256;
  while (alignment > 1 && address % alignment != 0) alignment /= 2;
  return alignment;
}

int log2_of(std::uint32_t power) {
  int log = 0;
  while (power > 1) {
    power /= 2;
    ++log;
  }
  return log;
}

}  // namespace

struct CublasLt::Library {
  void* file = nullptr;
  cublasLtHandle_t handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) descriptor_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) descriptor_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) descriptor_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;

  explicit Library(std::span<const char* const> files) {
    std::string reason;
    for (const char* name : files) {
      file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (file != nullptr) break;
      if (reason.empty()) reason = dlerror();
    }
    if (file == nullptr) {
      throw_error(ErrorKind::device,
                  "cuBLASLt, which comes with CUDA's toolkit and which prompts are read with, "
                  "cannot be opened: {}",
                  reason);
    }
    load(&create, "cublasLtCreate");
    load(&destroy, "cublasLtDestroy");
    load(&matmul, "cublasLtMatmul");
    load(&heuristic, "cublasLtMatmulAlgoGetHeuristic");
    load(&descriptor_create, "cublasLtMatmulDescCreate");
    load(&descriptor_destroy, "cublasLtMatmulDescDestroy");
    load(&descriptor_set, "cublasLtMatmulDescSetAttribute");
    load(&layout_create, "cublasLtMatrixLayoutCreate");
    load(&layout_destroy, "cublasLtMatrixLayoutDestroy");
    load(&preference_create, "cublasLtMatmulPreferenceCreate");
    load(&preference_destroy, "cublasLtMatmulPreferenceDestroy");
    load(&preference_set, "cublasLtMatmulPreferenceSetAttribute");
    check(create(&handle), "cublasLtCreate");
  }
  ~Library() {
    // The file stays open: the library's own threads may not survive its closing.
    if (handle != nullptr) destroy(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <typename Function>
  void load(Function* function, const char* name) {
    *function = reinterpret_cast<Function>(dlsym(file, name));
    if (*function == nullptr) throw_error(ErrorKind::device, "cuBLASLt has no {}", name);
  }
};

// The library sees row-major matrices as their transposes: y^T [outputs, rows] = W x^T.
struct CublasLt::Plan {
  explicit Plan(const Library& opened) : library(opened) {}
  ~Plan() {
    if (y != nullptr) library.layout_destroy(y);
    if (x != nullptr) library.layout_destroy(x);
    if (weights != nullptr) library.layout_destroy(weights);
    if (descriptor != nullptr) library.descriptor_destroy(descriptor);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const Library& library;
  cublasLtMatmulDesc_t descriptor = nullptr;
  cublasLtMatrixLayout_t weights = nullptr;
  cublasLtMatrixLayout_t x = nullptr;
  cublasLtMatrixLayout_t y = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms;
  int wanted = 0;  // algorithms that were asked for

  void describe(const CublasLtProduct& product) {
    const cudaDataType_t y_type = product.y_float32 ? CUDA_R_32F : CUDA_R_16BF;
    const auto size = [](std::int64_t extent) { return static_cast<std::uint64_t>(extent); };
    check(library.descriptor_create(&descriptor, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose);
    if (product.bias != nullptr) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, y_type);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
    }
    check(library.layout_create(&weights, CUDA_R_16BF, size(product.k), size(product.outputs),
                                product.weight_stride),
          "cublasLtMatrixLayoutCreate");
    check(library.layout_create(&x, CUDA_R_16BF, size(product.k), size(product.rows),
                                product.x_stride),
          "cublasLtMatrixLayoutCreate");
    check(library.layout_create(&y, y_type, size(product.outputs), size(product.rows),
                                product.y_stride),
          "cublasLtMatrixLayoutCreate");
  }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(library.descriptor_set(descriptor, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }

  void find_algorithms(const CublasLtProduct& product, int count) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(library.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      library.preference_set(preference, attribute, &value, sizeof(value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.weights));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.x));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product.y));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.y));
    algorithms.resize(static_cast<std::size_t>(count));
    int found = 0;
    const cublasStatus_t status = library.heuristic(library.handle, descriptor, weights, x, y, y,
                                                    preference, count, algorithms.data(), &found);
    library.preference_destroy(preference);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic");
    algorithms.resize(static_cast<std::size_t>(status == CUBLAS_STATUS_SUCCESS ? found : 0));
    wanted = count;
  }
};

CublasLt::CublasLt(std::span<const char* const> files)
    : library_(std::make_unique<Library>(files)), workspace_(workspace_bytes) {}
CublasLt::~CublasLt() = default;

CublasLt::Plan& CublasLt::plan_of(const CublasLtProduct& product, int wanted) {
  const int alignments = log2_of(alignment_of(product.weights)) |
                         log2_of(alignment_of(product.x)) << 4 |
                         log2_of(alignment_of(product.y)) << 8 | (product.y_float32 ? 1 : 0) << 12 |
                         (product.bias != nullptr ? 1 : 0) << 13;
  const Key key = {product.rows,          product.outputs,  product.k, product.x_stride,
                   product.weight_stride, product.y_stride, alignments};
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    if (plans_.size() >= most_plans) plans_.clear();
    auto plan = std::make_unique<Plan>(*library_);
    plan->describe(product);
    found = plans_.emplace(key, std::move(plan)).first;
  }
  Plan& plan = *found->second;
  if (plan.wanted < wanted) plan.find_algorithms(product, wanted);
  return plan;
}

void CublasLt::run(const CublasLtProduct& product, Plan& plan, int algorithm, cudaStream_t stream) {
  if (product.bias != nullptr) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
  const float one = 1;
  const float zero = 0;
  check(library_->matmul(library_->handle, plan.descriptor, &one, product.weights, plan.weights,
                         product.x, plan.x, &zero, product.y, plan.y, product.y, plan.y,
                         &plan.algorithms[static_cast<std::size_t>(algorithm)].algo,
                         workspace_.data(), workspace_.bytes(), stream),
        "cublasLtMatmul");
}

bool CublasLt::multiply(const CublasLtProduct& product, cudaStream_t stream) {
  Plan& plan = plan_of(product, 1);
  if (plan.algorithms.empty()) return false;
  run(product, plan, 0, stream);
  return true;
}

int CublasLt::algorithms(const CublasLtProduct& product) {
  return static_cast<int>(plan_of(product, most_algorithms).algorithms.size());
}

void CublasLt::multiply_by(const CublasLtProduct& product, int algorithm, cudaStream_t stream) {
  Plan& plan = plan_of(product, most_algorithms);
  if (algorithm < 0 || algorithm >= static_cast<int>(plan.algorithms.size())) {
    throw_error(ErrorKind::internal, "cuBLASLt has no algorithm {} for the product", algorithm);
  }
  run(product, plan, algorithm, stream);
}

}  // namespace octet
