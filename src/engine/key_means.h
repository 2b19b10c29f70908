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

// Means (engine/key_mean_sums.h) over the first 500 tokens of the built-in text
// (engine/builtin_text.h), read in float32 arithmetic over a float32 cache: the same for everyone
// who runs the model with the same kernels, and up to rounding with others. Nothing that a user
// sends ever enters them.
KvKeyMeans compute_key_means(const std::shared_ptr<Model>& model, const Tokenizer& tokenizer,
                             const EngineOptions& machine);

// Where means are kept: $XDG_CACHE_HOME/octet/key_means, else $HOME/.cache/octet/key_means; nothing
// where neither names an absolute path.
std::optional<std::string> key_mean_folder();

// `options` with means in cache.means where --kv-cache-key-mean auto wants them for this model:
// from the folder, where a file of theirs holds them (of this model and recipe, by its own word and
// with its checksum), else computed and written there. A file that is damaged, and a folder that
// cannot be read or written, cost the time to compute them and are told in the means' source, no
// more.
EngineOptions with_key_means(EngineOptions options, const std::shared_ptr<Model>& model,
                             const Tokenizer& tokenizer);

}  // namespace octet
