#include "engine/key_means.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "core/error.h"
#include "engine/builtin_text.h"
#include "engine/key_mean_sums.h"
#include "files/content_hash.h"
#include "files/write_file.h"
#include "kv/block_table.h"
#include "ops/attention/attention.h"
#include "ops/attention_observer.h"
#include "ops/quantize/kv_write.h"

namespace octet {

namespace {

// Raised when means are taken or kept in another way, so that what an older program kept is not
// used.
constexpr std::uint32_t method_version = 4;

class KeyObserver : public AttentionObserver {
 public:
  explicit KeyObserver(std::span<const KvLayerGeometry> geometry) : sums_(geometry) {}
  void on_write(const KvWriteArgs& args) override { sums_.add(args); }
  void on_attend(const AttentionArgs&) override {}
  const KeyMeanSums& sums() const { return sums_; }

 private:
  KeyMeanSums sums_;
};

// A model that was made for fewer positions takes as many tokens.
std::vector<TokenId> text_tokens(const Model& model, const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens = tokenizer.encode(builtin_text(), SpecialText::literal);
  if (tokenizer.adds_beginning_of_text() && tokenizer.beginning_of_text()) {
    tokens.insert(tokens.begin(), *tokenizer.beginning_of_text());
  }
  const auto positions = static_cast<std::size_t>(model.config().max_positions);
  tokens.resize(std::min({tokens.size(), key_mean_tokens, positions}));
  return tokens;
}

// What tells these means from all others, and names their file. Instruction sets add in orders of
// their own: another machine's last bits must not decide an answer here.
std::string identity_of(const Model& model, const std::vector<TokenId>& tokens,
                        InstructionSet instruction_set) {
  std::string key = fmt::format("octet key means {} {} {}", method_version,
                                name_of(instruction_set), model.content_hash());
  for (const TokenId token : tokens) key += fmt::format(" {}", token);
  return content_hash(std::as_bytes(std::span(key)));
}

// Whether the file was there and of use. What is wrong with one that is there goes into `problem`.
bool read_kept(const std::string& path, std::span<const KvLayerGeometry> geometry,
               const std::string& identity, KvKeyMeans* means, std::string* problem) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return false;
  try {
    *means = read_key_means(path, geometry, identity);
    return true;
  } catch (const Error& error) {
    *problem = error.what();
    return false;
  }
}

// What went wrong, empty where nothing did.
std::string keep(const std::string& folder, const std::string& identity, const std::string& path,
                 const KvKeyMeans& means, std::span<const KvLayerGeometry> geometry) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fmt::format("{}: {}", folder, error.message());
  try {
    write_file_atomically(path, encode_key_means(means, geometry, identity));
  } catch (const Error& failure) {
    return failure.what();
  }
  return {};
}

}  // namespace

KvKeyMeans compute_key_means(const std::shared_ptr<Model>& model, const Tokenizer& tokenizer,
                             const EngineOptions& machine) {
  const std::vector<KvLayerGeometry> geometry = model->config().kv_geometry();
  const std::vector<TokenId> tokens = text_tokens(*model, tokenizer);
  const auto count = static_cast<std::int64_t>(tokens.size());
  KeyObserver observer(geometry);
  EngineOptions options;
  options.cache.dtype = "float32";
  options.max_model_len = std::max<std::int64_t>(count, 1);
  options.limits.max_sequences = 1;
  options.instruction_set = machine.instruction_set;
  options.threads = machine.threads;
  options.observer = &observer;
  if (count > 0) {
    EngineCore core(model_on_cpu(model), options);
    BlockTable blocks(core.pool());
    // In chunks, so that windowed layers need no more pages than their windows.
    constexpr std::int64_t chunk = 64;
    for (std::int64_t first = 0; first < count; first += chunk) {
      const std::int64_t length = std::min(chunk, count - first);
      if (!blocks.grow_to(first + length)) {
        throw_error(ErrorKind::out_of_memory, "no room for the {} tokens of the key means", count);
      }
      RunnerRows rows;
      rows.blocks = &blocks;
      rows.tokens = std::span(tokens).subspan(static_cast<std::size_t>(first),
                                              static_cast<std::size_t>(length));
      rows.first_position = first;
      rows.logits = WantedLogits::none;
      core.runner().run({&rows, 1});
      blocks.release_outside_windows(first + length);
    }
  }
  KvKeyMeans means;
  means.source = fmt::format("{} built-in tokens", count);
  means.layers = observer.sums().means();
  return means;
}

std::optional<std::string> key_mean_folder() {
  constexpr const char* rest = "/octet/key_means";
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + rest;
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache" + rest;
  return std::nullopt;
}

EngineOptions with_key_means(EngineOptions options, const std::shared_ptr<Model>& model,
                             const Tokenizer& tokenizer) {
  const std::vector<KvLayerGeometry> geometry = model->config().kv_geometry();
  if (options.cache.means != nullptr ||
      !make_kv_policy(cache_options(options, *model), geometry).lacks_key_means) {
    return options;
  }
  const std::vector<TokenId> tokens = text_tokens(*model, tokenizer);
  KvKeyMeans means;
  const std::optional<std::string> folder =
      model->content_hash().empty() ? std::nullopt : key_mean_folder();
  if (!folder) {
    means = compute_key_means(model, tokenizer, options);
    means.source += " (not kept: no cache folder)";
  } else {
    const std::string identity = identity_of(*model, tokens, options.instruction_set);
    const std::string path = *folder + "/" + identity + ".safetensors";
    std::string damage;
    if (read_kept(path, geometry, identity, &means, &damage)) {
      means.source = fmt::format("{} built-in tokens", tokens.size());
    } else {
      means = compute_key_means(model, tokenizer, options);
      if (!damage.empty()) means.source += fmt::format(" (taken anew, for {})", damage);
      const std::string problem = keep(*folder, identity, path, means, geometry);
      if (!problem.empty()) means.source += fmt::format(" (not kept: {})", problem);
    }
  }
  options.cache.means = std::make_shared<const KvKeyMeans>(std::move(means));
  return options;
}

}  // namespace octet
