// A line on standard error that says how far a long piece of work is; silent where that is no
// terminal.
#pragma once

#include <cstdint>
#include <string>

namespace octet {

class Progress {
 public:
  // "prefill 512/7600 tokens"
  Progress(std::string what, std::int64_t total);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done);
  void clear();  // wipes the line, so that other output may follow

 private:
  std::string what_;
  std::int64_t total_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace octet
