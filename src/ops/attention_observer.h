// Sees the numbers that go into the cache and that attend to it: how ranges and means are taken
// without a word in any model.
#pragma once

namespace octet {

struct AttentionArgs;
struct KvWriteArgs;

// The two operations call it, on their caller's thread, before they start.
class AttentionObserver {
 public:
  virtual ~AttentionObserver() = default;
  // Keys after rope, before means, rotation and rounding; values.
  virtual void on_write(const KvWriteArgs& args) = 0;
  // Queries after rope.
  virtual void on_attend(const AttentionArgs& args) = 0;
};

}  // namespace octet
