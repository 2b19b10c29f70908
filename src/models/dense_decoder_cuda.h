// The dense decoder on an NVIDIA GPU.
//
// Activations: the residual stream and logits are float32, all else bfloat16. Everything of a step
// goes to one stream, and the host waits once: for its tokens or logits. A step of decoding alone
// is padded to one of a few sizes and replayed as a graph.
#pragma once

#include <initializer_list>
#include <list>
#include <memory>
#include <span>

#include "core/cuda/launch.h"
#include "models/cache_binding_cuda.h"
#include "models/dense_weights_cuda.h"
#include "ops/linear/linear_chain.h"
#include "ops/linear/linear_cuda.h"

namespace octet {

// Sees each operation of a step that is not replayed, right after it was launched.
class StepObserverCuda {
 public:
  virtual ~StepObserverCuda() = default;
  virtual void begin(cudaStream_t stream) = 0;
  // `weights`: the matrices that `rows` rows were multiplied by; none for other operations.
  virtual void after(const char* operation, std::span<const DeviceMatrix* const> weights,
                     std::int64_t rows, cudaStream_t stream) = 0;
};

class DenseDecoderCuda final : public Model {
 public:
  // `storage` keeps the weights' bytes alive, for make_cpu_model(). Throws as
  // make_dense_decoder_cuda does.
  DenseDecoderCuda(ModelConfig config, DenseWeights weights, std::shared_ptr<const void> storage,
                   const LoadOptions& options);
  ~DenseDecoderCuda() override;

  const ModelConfig& config() const override { return config_; }
  Device device() const override { return Device::cuda; }
  std::unique_ptr<Model> make_cpu_model() const override;
  void prepare(const ForwardSettings& settings) override;
  void forward(const OpContext& context, const ForwardBatch& batch, float* logits) override;
  bool draws() const override;
  void forward_and_draw(const OpContext& context, const ForwardBatch& batch,
                        std::span<const DrawRow> draws, std::int64_t usable,
                        std::span<std::int32_t> tokens) override;
  void read_logits(std::int64_t row, std::span<float> logits) override;

  // For benchmarks. While a step is observed no kernel begins before the one ahead has ended, and
  // no graph is replayed.
  void observe(StepObserverCuda* observer) { observer_ = observer; }
  // Whether steps of few rows may run chains of products: to compare.
  void allow_chains(bool allowed);
  // Of the cache that was used last: "sm90" or "portable", of the first group of layers.
  const char* decode_kernel() const;
  const char* prefill_kernel() const;
  int graph_count() const;
  std::size_t graph_bytes() const { return graph_bytes_; }

 private:
  // Of one step, [rows, width] each.
  struct Activations {
    DeviceArray<float> residual;
    DeviceArray<__nv_bfloat16> normed;
    DeviceArray<float> query_key_value;
    DeviceArray<__nv_bfloat16> query;
    DeviceArray<__nv_bfloat16> attended;
    DeviceArray<__nv_bfloat16> branch;  // what a block adds to the residual stream
    DeviceArray<__nv_bfloat16> gate_up;
    DeviceArray<__nv_bfloat16> activated;
    DeviceArray<__nv_bfloat16> sampled;  // [logit rows, hidden]
    DeviceArray<float> logits;           // [logit rows at once, vocabulary]
    DeviceArray<std::int32_t> drawn;     // tokens, then statuses
    PinnedArray<std::int32_t> host_drawn;
  };
  struct Rope {
    DeviceArray<float> cosines;
    DeviceArray<float> sines;
    int pairs = 0;
  };

  std::int64_t query_width() const;
  std::int64_t qkv_width() const;
  CudaLaunch launch() const;
  // Room for steps of these sizes, of which drawn_rows rows' logits lie there at once.
  void grow(const StepSizes& wanted, int drawn_rows);
  CacheBindingCuda& bind(const OpContext& context, const PagePool& pool);
  StepSizes exact_sizes(const ForwardBatch& batch) const;
  StepInputs copy_inputs(CacheBindingCuda& cache, const ForwardBatch& batch,
                         std::span<const DrawRow> draws, const StepSizes& sizes);
  void plan_prefill(CacheBindingCuda& cache, const ForwardBatch& batch, const StepInputs& inputs);
  void enqueue_layers(CacheBindingCuda& cache, const StepInputs& inputs);
  void attend(CacheBindingCuda& cache, const StepInputs& inputs, int layer);
  void attention_block(CacheBindingCuda& cache, const StepInputs& inputs, int layer);
  void feed_forward_block(const StepInputs& inputs, int layer);
  void write_cache(CacheBindingCuda& cache, const StepInputs& inputs, int layer);
  // What of the logits is the same for all rows.
  void prepare_logits(const StepInputs& inputs);
  // Of logit rows [first, first + rows).
  void compute_logits(const StepInputs& inputs, std::int64_t first, std::int64_t rows);
  void draw(const StepInputs& inputs, std::int64_t usable);
  void run_graph(CacheBindingCuda& cache, const StepInputs& inputs, std::int64_t usable);
  void multiply(const DeviceMatrix& weight, const float* bias, const __nv_bfloat16* x,
                std::int64_t rows, void* y, LinearOutput y_type);
  void norm(const float* weight, const __nv_bfloat16* branch, const float* branch_norm,
            std::int64_t rows);
  void seen(const char* operation, std::initializer_list<const DeviceMatrix*> weights = {},
            std::int64_t rows = 0);
  // Whether the matrices of this step's layers run as chains (ops/linear/linear_chain.h).
  bool runs_chains(const StepInputs& inputs) const;
  void enqueue_chained_layers(CacheBindingCuda& cache, const StepInputs& inputs);
  bool runs_chained_logits(const StepInputs& inputs) const;
  void compute_chained_logits(const StepInputs& inputs);
  void run_chain(std::span<const LinearChainStep> steps, std::int64_t rows);

  ModelConfig config_;
  DenseWeights host_weights_;
  std::shared_ptr<const void> storage_;
  std::int64_t positions_;
  CudaStream stream_;
  int multiprocessors_ = 0;
  int architecture_ = 0;
  LinearCudaWorkspace linear_workspace_;
  LinearChainWorkspace chain_workspace_;
  DenseWeightsCuda weights_;
  std::vector<Rope> ropes_;
  StepSizes capacity_;
  std::int64_t logit_rows_at_once_ = 0;
  bool graphs_enabled_ = true;
  bool chains_enabled_ = false;
  std::size_t graph_bytes_ = 0;
  Activations activations_;
  std::unique_ptr<StepInputsCuda> inputs_;
  // Of the caches used last, the latest first.
  std::list<CacheBindingCuda> bindings_;
  StepObserverCuda* observer_ = nullptr;
};

}  // namespace octet
