#include "models/dense_decoder_cuda.h"

#include <algorithm>
#include <utility>

#include "core/cuda/device.h"
#include "core/error.h"
#include "models/dense_decoder_device.h"
#include "ops/activation/gated_activation_cuda.h"
#include "ops/embedding/embedding_cuda.h"
#include "ops/norm/rms_norm_cuda.h"
#include "ops/sampling/sample_cuda.h"

namespace octet {

namespace {

// Logits of prompts' rows are computed so many rows at a time: 128 rows of 262,144 are 134 MB.
constexpr int most_logit_rows_at_once = 128;
// sample_cuda's.
constexpr std::int64_t largest_drawn_vocabulary = std::int64_t{1} << 18;
// A model that runs with two caches in turn (octet eval kl) keeps both bound.
constexpr std::size_t most_bindings = 2;

// Sequences that a decode step is padded to: few enough graphs, little enough padding.
int padded_sequences(int sequences, int most) {
  int padded = 1;
  while (padded < sequences) padded += padded < 8 ? padded : padded < 64 ? 8 : 16;
  return std::min(padded, most);
}

bool is_decode_row(const SequenceRows& sequence) { return sequence.rows == 1; }

template <typename T>
DeviceArray<T> zeroed(std::int64_t elements) {
  DeviceArray<T> array(static_cast<std::size_t>(elements));
  array.fill_bytes(0);
  return array;
}

// The threads that pack weights are needed no longer than that.
DenseWeightsCuda upload(const DenseWeights& weights, const LoadOptions& options) {
  ThreadPool pool(0);
  return DenseWeightsCuda(weights, pool, options.progress);
}

}  // namespace

std::unique_ptr<Model> make_dense_decoder_cuda(ModelConfig config, DenseWeights weights,
                                               std::shared_ptr<const void> storage,
                                               const LoadOptions& options) {
  return std::make_unique<DenseDecoderCuda>(std::move(config), std::move(weights),
                                            std::move(storage), options);
}

DenseDecoderCuda::DenseDecoderCuda(ModelConfig config, DenseWeights weights,
                                   std::shared_ptr<const void> storage, const LoadOptions& options)
    : config_(std::move(config)),
      host_weights_(std::move(weights)),
      storage_(std::move(storage)),
      positions_(options.max_positions > 0 ? std::min(options.max_positions, config_.max_positions)
                                           : config_.max_positions),
      weights_(upload(host_weights_, options)) {
  const CudaDeviceInfo device = cuda_device_info();
  multiprocessors_ = device.multiprocessors;
  architecture_ = device.architecture;
  std::vector<RopeTable> tables = make_rope_tables(config_, positions_);
  for (RopeTable& table : tables) {
    table.extend(positions_);
    const auto floats = static_cast<std::size_t>(table.positions() * table.pairs());
    Rope& rope = ropes_.emplace_back();
    rope.cosines = DeviceArray<float>(floats);
    rope.sines = DeviceArray<float>(floats);
    rope.cosines.upload({table.cosines(0), floats});
    rope.sines.upload({table.sines(0), floats});
    rope.pairs = table.pairs();
  }
  allow_chains(true);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

// What still runs reads what is freed next.
DenseDecoderCuda::~DenseDecoderCuda() { cudaStreamSynchronize(stream_.get()); }

std::unique_ptr<Model> DenseDecoderCuda::make_cpu_model() const {
  if (host_weights_.embedding.data == nullptr) {
    throw_unsupported("random weights lie on the GPU alone, and the CPU was asked to read them");
  }
  return std::make_unique<DenseDecoder>(config_, host_weights_, storage_, positions_);
}

std::int64_t DenseDecoderCuda::query_width() const {
  return static_cast<std::int64_t>(config_.query_heads) * config_.head_dim;
}

std::int64_t DenseDecoderCuda::qkv_width() const {
  return static_cast<std::int64_t>(config_.query_heads + 2 * config_.kv_heads) * config_.head_dim;
}

CudaLaunch DenseDecoderCuda::launch() const {
  return {stream_.get(), multiprocessors_, observer_ == nullptr};
}

void DenseDecoderCuda::prepare(const ForwardSettings& settings) {
  if (settings.cuda_graphs != graphs_enabled_) bindings_.clear();
  graphs_enabled_ = settings.cuda_graphs;
  const auto limited = [](std::int64_t count) {
    return static_cast<int>(std::min<std::int64_t>(count, 1 << 24));
  };
  grow({limited(settings.rows), limited(settings.sequences), limited(settings.logit_rows)},
       limited(settings.logit_rows));
}

// Graphs and plans hold the addresses of what is taken anew here.
void DenseDecoderCuda::grow(const StepSizes& wanted, int drawn_rows) {
  const StepSizes most = {std::max(capacity_.rows, wanted.rows),
                          std::max(capacity_.sequences, wanted.sequences),
                          std::max(capacity_.logit_rows, wanted.logit_rows)};
  const std::int64_t logit_rows = std::max(most.logit_rows, 1);
  const std::int64_t at_once =
      std::max({std::min<std::int64_t>(logit_rows, most_logit_rows_at_once),
                static_cast<std::int64_t>(drawn_rows), logit_rows_at_once_});
  if (most == capacity_ && at_once == logit_rows_at_once_) return;
  stream_.synchronize();
  bindings_.clear();
  activations_ = {};
  const std::int64_t rows = most.rows;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t inner = config_.intermediate_size;
  Activations& a = activations_;
  a.residual = zeroed<float>(rows * hidden);
  a.normed = zeroed<__nv_bfloat16>(rows * hidden);
  a.query_key_value = zeroed<float>(rows * qkv_width());
  a.query = zeroed<__nv_bfloat16>(rows * query_width());
  a.attended = zeroed<__nv_bfloat16>(rows * query_width());
  a.branch = zeroed<__nv_bfloat16>(rows * hidden);
  a.gate_up = zeroed<__nv_bfloat16>(rows * 2 * inner);
  a.activated = zeroed<__nv_bfloat16>(rows * inner);
  a.sampled = zeroed<__nv_bfloat16>(logit_rows * hidden);
  a.logits = zeroed<float>(at_once * config_.vocabulary_size);
  a.drawn = zeroed<std::int32_t>(2 * logit_rows);
  a.host_drawn = PinnedArray<std::int32_t>(static_cast<std::size_t>(2 * logit_rows));
  inputs_ = std::make_unique<StepInputsCuda>(most);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  capacity_ = most;
  logit_rows_at_once_ = at_once;
}

// A pool belongs to one engine, whose context stays as it is.
CacheBindingCuda& DenseDecoderCuda::bind(const OpContext& context, const PagePool& pool) {
  const auto found = std::find_if(bindings_.begin(), bindings_.end(), [&](const auto& binding) {
    return binding.pool_id() == pool.id();
  });
  if (found != bindings_.end()) {
    bindings_.splice(bindings_.begin(), bindings_, found);
  } else {
    while (bindings_.size() >= most_bindings) bindings_.pop_back();
    bindings_.emplace_front(config_, pool, capacity_, positions_, architecture_,
                            context.accumulation);
  }
  return bindings_.front();
}

StepSizes DenseDecoderCuda::exact_sizes(const ForwardBatch& batch) const {
  return {static_cast<int>(batch.tokens.size()), static_cast<int>(batch.sequences.size()),
          static_cast<int>(batch.logit_rows.size())};
}

StepInputs DenseDecoderCuda::copy_inputs(CacheBindingCuda& cache, const ForwardBatch& batch,
                                         std::span<const DrawRow> draws, const StepSizes& sizes) {
  for (const SequenceRows& sequence : batch.sequences) {
    if (sequence.first_position + static_cast<std::int64_t>(sequence.rows) > positions_) {
      throw_error(ErrorKind::internal,
                  "a step reaches position {}, and the model has tables for {}",
                  sequence.first_position + static_cast<std::int64_t>(sequence.rows), positions_);
    }
  }
  StepInputs inputs = inputs_->copy(batch, draws, sizes, stream_.get());
  cache.page_tables().copy(batch, stream_.get());
  const auto first_prefill =
      std::find_if_not(batch.sequences.begin(), batch.sequences.end(), is_decode_row);
  inputs.decode_sequences = static_cast<int>(first_prefill - batch.sequences.begin());
  inputs.wants_every_row = batch.logit_rows.size() == batch.tokens.size();
  inputs.settled = batch.decoding_sequences >= inputs.decode_sequences;
  return inputs;
}

void DenseDecoderCuda::plan_prefill(CacheBindingCuda& cache, const ForwardBatch& batch,
                                    const StepInputs& inputs) {
  std::vector<PrefillSm90Sequence> prefills;
  for (std::size_t i = static_cast<std::size_t>(inputs.decode_sequences);
       i < batch.sequences.size(); ++i) {
    const SequenceRows& sequence = batch.sequences[i];
    prefills.push_back(
        {sequence.first_row, sequence.rows, sequence.first_position + sequence.rows});
  }
  for (int group = 0; group < cache.groups(); ++group) {
    cache.attention(group).plan_prefill(launch(), prefills);
  }
}

void DenseDecoderCuda::seen(const char* operation,
                            std::initializer_list<const DeviceMatrix*> weights, std::int64_t rows) {
  if (observer_ != nullptr) observer_->after(operation, weights, rows, stream_.get());
}

void DenseDecoderCuda::multiply(const DeviceMatrix& weight, const float* bias,
                                const __nv_bfloat16* x, std::int64_t rows, void* y,
                                LinearOutput y_type) {
  LinearCudaArgs args;
  args.x = x;
  args.x_stride = weight.columns;
  args.rows = rows;
  args.weight = &weight;
  args.bias = bias;
  args.y = y;
  args.y_type = y_type;
  args.y_stride = weight.rows;
  linear_cuda(launch(), linear_workspace_, args);
}

void DenseDecoderCuda::norm(const float* weight, const __nv_bfloat16* branch,
                            const float* branch_norm, std::int64_t rows) {
  RmsNormCudaArgs args;
  args.residual = activations_.residual.data();
  args.branch = branch;
  args.branch_norm = branch_norm;
  args.weight = weight;
  args.y = activations_.normed.data();
  args.rows = rows;
  args.width = config_.hidden_size;
  args.epsilon = config_.norm_epsilon;
  rms_norm_cuda(launch(), args);
  seen("norm");
}

void DenseDecoderCuda::write_cache(CacheBindingCuda& cache, const StepInputs& inputs, int layer) {
  const DenseLayerCuda& weights = weights_.layer(layer);
  const LayerAttention& attention = config_.attention[static_cast<std::size_t>(layer)];
  const Rope& rope = ropes_[static_cast<std::size_t>(attention.rope)];
  CacheWriteCudaArgs args;
  args.qkv = activations_.query_key_value.data();
  args.query = activations_.query.data();
  args.query_norm = weights.query_norm;
  args.key_norm = weights.key_norm;
  args.norm_epsilon = config_.norm_epsilon;
  args.cosines = rope.cosines.data();
  args.sines = rope.sines.data();
  args.pairs = rope.pairs;
  args.pairing = host_weights_.pairing;
  args.query_heads = config_.query_heads;
  args.rows.rows = inputs.sizes.rows;
  args.rows.sequences = inputs.sizes.sequences;
  args.rows.positions = inputs.positions;
  args.rows.sequence_of_row = inputs.sequence_of_row;
  args.rows.context_lengths = inputs.context_lengths;
  args.rows.first_written = inputs.first_written;
  args.rows.page_table = cache.page_tables().table(cache.group_of(layer));
  args.rows.page_table_stride = cache.page_tables().stride();
  args.layer = cache.layer(layer);
  args.counts = cache.counts(layer);
  cache_write_cuda(launch(), args);
  seen("cache write");
}

// From query, key and value to what the heads have attended to.
void DenseDecoderCuda::attend(CacheBindingCuda& cache, const StepInputs& inputs, int layer) {
  write_cache(cache, inputs, layer);
  const int group = cache.group_of(layer);
  cache.attention(group).attend(launch(), cache.layer(layer), cache.page_tables().table(group),
                                cache.page_tables().stride(),
                                {activations_.query.data(), activations_.attended.data()});
  seen("attention");
}

void DenseDecoderCuda::attention_block(CacheBindingCuda& cache, const StepInputs& inputs,
                                       int layer) {
  const DenseLayerCuda& weights = weights_.layer(layer);
  const std::int64_t rows = inputs.sizes.rows;
  Activations& a = activations_;
  // What the layer before adds to the residual stream is added here.
  const bool first = layer == 0;
  norm(weights.attention_norm, first ? nullptr : a.branch.data(),
       first ? nullptr : weights_.layer(layer - 1).post_feed_forward_norm, rows);
  multiply(*weights.query_key_value, weights.query_key_value_bias, a.normed.data(), rows,
           a.query_key_value.data(), LinearOutput::float32);
  seen("query, key, value", {weights.query_key_value}, rows);
  attend(cache, inputs, layer);
  multiply(*weights.attention_output, nullptr, a.attended.data(), rows, a.branch.data(),
           LinearOutput::bfloat16);
  seen("attention output", {weights.attention_output}, rows);
}

void DenseDecoderCuda::feed_forward_block(const StepInputs& inputs, int layer) {
  const DenseLayerCuda& weights = weights_.layer(layer);
  const std::int64_t rows = inputs.sizes.rows;
  Activations& a = activations_;
  norm(weights.feed_forward_norm, a.branch.data(), weights.post_attention_norm, rows);
  multiply(*weights.gate_up, nullptr, a.normed.data(), rows, a.gate_up.data(),
           LinearOutput::bfloat16);
  seen("gate, up", {weights.gate_up}, rows);
  GatedActivationCudaArgs activate;
  activate.activation = config_.activation;
  activate.gate_up = a.gate_up.data();
  activate.y = a.activated.data();
  activate.rows = rows;
  activate.width = config_.intermediate_size;
  gated_activation_cuda(launch(), activate);
  seen("activation");
  multiply(*weights.down, nullptr, a.activated.data(), rows, a.branch.data(),
           LinearOutput::bfloat16);
  seen("down", {weights.down}, rows);
}

void DenseDecoderCuda::enqueue_layers(CacheBindingCuda& cache, const StepInputs& inputs) {
  if (observer_ != nullptr) observer_->begin(stream_.get());
  for (int group = 0; group < cache.groups(); ++group) {
    cache.attention(group).plan_decode(launch(), inputs);
  }
  seen("attention plan");
  EmbeddingCudaArgs embed;
  embed.table = &weights_.embedding();
  embed.tokens = inputs.tokens;
  embed.rows = inputs.sizes.rows;
  embed.residual = activations_.residual.data();
  embed.scale = config_.embedding_scale;
  embedding_cuda(launch(), embed);
  seen("embedding");
  if (runs_chains(inputs)) return enqueue_chained_layers(cache, inputs);
  for (int layer = 0; layer < config_.layers; ++layer) {
    attention_block(cache, inputs, layer);
    feed_forward_block(inputs, layer);
  }
}

// Norm and output matrix for the wanted rows alone.
void DenseDecoderCuda::prepare_logits(const StepInputs& inputs) {
  if (inputs.sizes.logit_rows == 0 || runs_chained_logits(inputs)) return;
  RmsNormCudaArgs args;
  args.residual = activations_.residual.data();
  if (!runs_chains(inputs)) {
    args.branch = activations_.branch.data();
    args.branch_norm = weights_.layer(config_.layers - 1).post_feed_forward_norm;
  }
  args.weight = weights_.output_norm();
  args.y = activations_.sampled.data();
  args.row_ids = inputs.logit_rows;
  args.rows = inputs.sizes.logit_rows;
  args.width = config_.hidden_size;
  args.epsilon = config_.norm_epsilon;
  rms_norm_cuda(launch(), args);
  seen("norm");
}

void DenseDecoderCuda::compute_logits(const StepInputs& inputs, std::int64_t first,
                                      std::int64_t rows) {
  if (runs_chained_logits(inputs)) {
    compute_chained_logits(inputs);
  } else {
    multiply(weights_.output(), nullptr, activations_.sampled.data() + first * config_.hidden_size,
             rows, activations_.logits.data(), LinearOutput::float32);
  }
  seen("logits", {&weights_.output()}, rows);
  if (config_.logit_soft_cap > 0.0f) {
    soft_cap_cuda(launch(), config_.logit_soft_cap, activations_.logits.data(),
                  rows * config_.vocabulary_size);
    seen("soft cap");
  }
}

void DenseDecoderCuda::draw(const StepInputs& inputs, std::int64_t usable) {
  const int rows = inputs.sizes.logit_rows;
  SampleCudaArgs args;
  args.logits = activations_.logits.data();
  args.logits_stride = config_.vocabulary_size;
  args.parameters = inputs.draws;
  args.tokens = activations_.drawn.data();
  args.statuses = reinterpret_cast<SampleStatus*>(activations_.drawn.data() + rows);
  args.rows = rows;
  args.vocabulary = static_cast<int>(usable);
  sample_cuda(launch(), args);
  seen("sampling");
}

void DenseDecoderCuda::forward(const OpContext& context, const ForwardBatch& batch, float* logits) {
  const StepSizes sizes = exact_sizes(batch);
  if (sizes.rows == 0) return;
  grow(sizes, 0);
  CacheBindingCuda& cache = bind(context, *batch.pool);
  const StepInputs inputs = copy_inputs(cache, batch, {}, sizes);
  plan_prefill(cache, batch, inputs);
  enqueue_layers(cache, inputs);
  cache.copy_counts(stream_.get());
  prepare_logits(inputs);
  for (std::int64_t first = 0; first < sizes.logit_rows; first += logit_rows_at_once_) {
    const std::int64_t rows = std::min<std::int64_t>(logit_rows_at_once_, sizes.logit_rows - first);
    compute_logits(inputs, first, rows);
    const std::int64_t floats = rows * config_.vocabulary_size;
    check_cuda(cudaMemcpyAsync(logits + first * config_.vocabulary_size, activations_.logits.data(),
                               static_cast<std::size_t>(floats) * sizeof(float),
                               cudaMemcpyDeviceToHost, stream_.get()),
               "cudaMemcpyAsync");
  }
  stream_.synchronize();
  cache.add_counts(batch.counters);
}

bool DenseDecoderCuda::draws() const { return config_.vocabulary_size <= largest_drawn_vocabulary; }

// A size is captured when it is met again: a first use may prepare things that a capture may not.
void DenseDecoderCuda::run_graph(CacheBindingCuda& cache, const StepInputs& inputs,
                                 std::int64_t usable) {
  const auto enqueue = [&] {
    enqueue_layers(cache, inputs);
    prepare_logits(inputs);
    compute_logits(inputs, 0, inputs.sizes.logit_rows);
    draw(inputs, usable);
  };
  DecodeGraph& decode = cache.graphs()[{inputs.sizes.sequences, usable}];
  const bool replays = graphs_enabled_ && observer_ == nullptr;
  if (!replays || !decode.has_run) {
    enqueue();
    decode.has_run = true;
    return;
  }
  if (decode.graph.empty()) {
    const std::size_t free_before = free_device_bytes();
    decode.graph = CudaGraph::capture(stream_.get(), enqueue);
    const std::size_t free_after = free_device_bytes();
    if (free_before > free_after) graph_bytes_ += free_before - free_after;
  }
  decode.graph.launch(stream_.get());
}

void DenseDecoderCuda::forward_and_draw(const OpContext& context, const ForwardBatch& batch,
                                        std::span<const DrawRow> draws, std::int64_t usable,
                                        std::span<std::int32_t> tokens) {
  StepSizes sizes = exact_sizes(batch);
  if (sizes.rows == 0) return;
  const int wanted = sizes.logit_rows;
  // Every sequence goes on with its answer, and wants its one row's logits.
  const bool decodes = batch.decoding_sequences == sizes.sequences && wanted == sizes.sequences;
  if (decodes) {
    const int padded =
        padded_sequences(sizes.sequences, std::max(capacity_.sequences, sizes.sequences));
    sizes = {padded, padded, padded};
  }
  grow(sizes, sizes.logit_rows);
  CacheBindingCuda& cache = bind(context, *batch.pool);
  StepInputs inputs = copy_inputs(cache, batch, draws, sizes);
  plan_prefill(cache, batch, inputs);
  if (decodes) {
    inputs.decode_sequences = sizes.sequences;
    run_graph(cache, inputs, usable);
  } else {
    enqueue_layers(cache, inputs);
    if (wanted > 0) {
      prepare_logits(inputs);
      compute_logits(inputs, 0, wanted);
      draw(inputs, usable);
    }
  }
  cache.copy_counts(stream_.get());
  const auto drawn = static_cast<std::size_t>(sizes.logit_rows);
  check_cuda(
      cudaMemcpyAsync(activations_.host_drawn.data(), activations_.drawn.data(),
                      2 * drawn * sizeof(std::int32_t), cudaMemcpyDeviceToHost, stream_.get()),
      "cudaMemcpyAsync");
  stream_.synchronize();
  cache.add_counts(batch.counters);
  // A token of -1 says that the host must choose, or say why none can be.
  std::copy_n(activations_.host_drawn.data(), tokens.size(), tokens.begin());
}

void DenseDecoderCuda::read_logits(std::int64_t row, std::span<float> logits) {
  check_cuda(
      cudaMemcpyAsync(logits.data(), activations_.logits.data() + row * config_.vocabulary_size,
                      logits.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()),
      "cudaMemcpyAsync");
  stream_.synchronize();
}

const char* DenseDecoderCuda::decode_kernel() const {
  return bindings_.empty() ? "none" : bindings_.front().attention(0).decode_kernel();
}

const char* DenseDecoderCuda::prefill_kernel() const {
  return bindings_.empty() ? "none" : bindings_.front().attention(0).prefill_kernel();
}

int DenseDecoderCuda::graph_count() const {
  int count = 0;
  for (const CacheBindingCuda& binding : bindings_) {
    for (const auto& [key, decode] : binding.graphs()) count += decode.graph.empty() ? 0 : 1;
  }
  return count;
}

}  // namespace octet
