// Models and right answers that tests of several folders use.
#pragma once

#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/engine.h"
#include "files/gguf.h"
#include "kv/block_table.h"
#include "models/model.h"

namespace octet {
// A namespace of its own: a helper must never stand in for a function of the library that happens
// to have its name, which no compiler or linker would notice.
inline namespace test_support {

inline std::string data_path(const std::string& name) {
  return std::string(OCTET_TEST_DATA) + "/" + name;
}

// A real model that `make models` fetches; a test that needs one fails where it is missing.
inline std::string real_model_path(const std::string& name) {
  const std::string path = std::string(OCTET_SOURCE_ROOT) + "/models/" + name;
  if (!std::ifstream(path)) throw std::runtime_error(path + " is missing: run `make models`");
  return path;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline Json read_json(const std::string& name) {
  const std::string path = data_path(name);
  return parse_json(read_file(path), path);
}

inline std::shared_ptr<Model> open_model(const std::string& path) {
  return load_model(GgufFile::open(path));
}

struct TestOptions {
  std::string cache = "float32";
  std::string scales = "auto";
  int threads = 2;
  std::int64_t chunk = 0;  // 0: whole
  InstructionSet instruction_set = detect_instruction_set();
  Arithmetic arithmetic = Arithmetic::float32;
  std::optional<std::byte> cache_fill = std::nullopt;
};

inline EngineOptions engine_options(const TestOptions& options, std::int64_t max_model_len) {
  EngineOptions made;
  made.cache = {.dtype = options.cache, .scales = options.scales};
  made.max_model_len = max_model_len;
  made.arithmetic = options.arithmetic;
  made.instruction_set = options.instruction_set;
  made.threads = options.threads;
  made.cache_fill = options.cache_fill;
  return made;
}

// Reads `tokens` teacher-forced, chunk_at(i) of them from token i on, and gives `sink` the wanted
// logits of each chunk. Pages come and go as in the engine: taken for a chunk, given back where a
// window has passed them.
template <typename ChunkAt, typename Sink>
void run_in_chunks(EngineCore& core, std::span<const TokenId> tokens, ChunkAt&& chunk_at,
                   WantedLogits wanted, Sink&& sink) {
  BlockTable blocks(core.pool());
  const auto count = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t first = 0, chunk = 0; first < count; first += chunk) {
    chunk = std::min<std::int64_t>(chunk_at(first), count - first);
    RunnerRows rows;
    rows.blocks = &blocks;
    rows.tokens = tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(chunk));
    rows.first_position = first;
    rows.logits = wanted;
    const std::int64_t end = first + chunk;
    if (!blocks.grow_to(end)) throw std::runtime_error("no room in the cache");
    sink(core.runner().run({&rows, 1}));
    blocks.release_outside_windows(end);
  }
}

// Logits [tokens, vocabulary] after each token, teacher-forced in chunks.
inline std::vector<float> all_logits(const std::shared_ptr<Model>& model,
                                     std::span<const TokenId> tokens, const TestOptions& options) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  EngineCore core(model, engine_options(options, count));
  std::vector<float> logits;
  const std::int64_t chunk = options.chunk > 0 ? options.chunk : count;
  run_in_chunks(
      core, tokens, [chunk](std::int64_t) { return chunk; }, WantedLogits::all,
      [&](std::span<const float> part) { logits.insert(logits.end(), part.begin(), part.end()); });
  return logits;
}

}  // namespace test_support
}  // namespace octet
