// Key means for a model: taken once from a built-in text, and kept in the user's cache folder.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "kv/kv_key_means.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace octet {

inline constexpr std::size_t key_mean_tokens = 500;

// Over the first 500 tokens of the built-in text (engine/builtin_text.h), read as one text in
// float32 arithmetic over a float32 cache: for each KV head the mean of the running means,
//   1/T sum_t 1/(t+1) sum_{p<=t} k_p,
// which is what the queries of the text see on average if each attends to all keys before it alike.
// So early keys weigh more, the first 6.8 times the mean and the last 0.002 times: they are what
// all later queries attend to, and what keys share (biases, above all) turns with the position. The
// plain mean leaves the first keys of Qwen2.5-Coder-0.5B, whose biases reach 211, so far out that
// int8 rounding turns the model's choice of a sink over (mean KL of int8:fp8 9.8e-3 in place of
// 1.4e-3, over 768 tokens); the mean of pieces of 50 tokens, all from position 0 on, suits
// Qwen2.5 but leaves later keys of gemma-3-270m further out than no mean at all (fp8 1.4e-2 in
// place of 8.0e-3; 8.2e-3 without).
// The same for everyone who runs the model with the same kernels, and up to rounding with others.
// Nothing that a user sends ever enters them.
KvKeyMeans compute_key_means(const std::shared_ptr<Model>& model, const Tokenizer& tokenizer,
                             const EngineOptions& machine);

// Where means are kept: $XDG_CACHE_HOME/octet/key_means, else $HOME/.cache/octet/key_means; nothing
// where neither names an absolute path.
std::optional<std::string> key_mean_folder();

// `options` with means in cache.means where --kv-cache-key-mean auto wants them for this model:
// from the folder, where a file of theirs holds them and fits the model, else computed and written
// there. A folder that cannot be read or written costs the time to compute them and is told in the
// means' source, no more.
EngineOptions with_key_means(EngineOptions options, const std::shared_ptr<Model>& model,
                             const Tokenizer& tokenizer);

}  // namespace octet
