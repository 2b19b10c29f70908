// Lines of standard input, with Ctrl-C told apart from a line and from the end.
#pragma once

#include <cstddef>
#include <string>

namespace octet {

// While it lives, Ctrl-C (SIGINT) is counted instead of ending the program. One
// at a time.
class InterruptCounter {
 public:
  InterruptCounter();
  ~InterruptCounter();
  InterruptCounter(const InterruptCounter&) = delete;
  InterruptCounter& operator=(const InterruptCounter&) = delete;

  // Whether Ctrl-C was pressed since it was last asked.
  static bool take();
};

class InputLines {
 public:
  enum class Result { line, interrupted, end };

  // The next line, without its newline. Interrupted: Ctrl-C was pressed
  // meanwhile, and what had been typed is dropped. Throws Error{bad_input} for
  // a line longer than `limit` bytes.
  Result next(std::string* line, std::size_t limit);

 private:
  std::string pending_;
  std::size_t searched_ = 0;  // bytes of it without a newline
  bool ended_ = false;
};

}  // namespace octet
