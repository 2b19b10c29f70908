// Working memory that a kernel keeps between calls, so that a step allocates nothing once warm.
#pragma once

#include <cstddef>

namespace octet {

// Grows, never shrinks. Meant as a thread_local of the kernel that uses it.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // At least `bytes` bytes, aligned to 64; the contents of an earlier call may be lost. Throws
  // Error{out_of_memory}.
  void* reserve(std::size_t bytes);

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace octet
