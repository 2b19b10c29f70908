// A large piece of memory with one owner, on the host or on a device.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace octet {

class MemoryArena {
 public:
  virtual ~MemoryArena() = default;
  MemoryArena(const MemoryArena&) = delete;
  MemoryArena& operator=(const MemoryArena&) = delete;

  // Of the device, where it is a device's: not for the host to read.
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Every byte becomes `value`.
  virtual void fill(std::byte value) = 0;

 protected:
  MemoryArena(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

 private:
  std::byte* data_;
  std::size_t bytes_;
};

// How an arena is had. Throws Error{out_of_memory} where there is no room for one.
using ArenaSource = std::function<std::unique_ptr<MemoryArena>(std::size_t bytes)>;

// Address space of the host; the system commits memory as it is first written.
std::unique_ptr<MemoryArena> allocate_host_arena(std::size_t bytes);

}  // namespace octet
