#include "core/memory_arena.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "core/error.h"

namespace octet {

namespace {

class HostArena final : public MemoryArena {
 public:
  HostArena(std::byte* data, std::size_t bytes) : MemoryArena(data, bytes) {}
  ~HostArena() override { munmap(data(), bytes()); }
  void fill(std::byte value) override { std::memset(data(), std::to_integer<int>(value), bytes()); }
};

}  // namespace

std::unique_ptr<MemoryArena> allocate_host_arena(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw_error(ErrorKind::out_of_memory, "a KV cache of {} bytes could not be had: {}", bytes,
                std::strerror(errno));
  }
  return std::make_unique<HostArena>(static_cast<std::byte*>(memory), bytes);
}

}  // namespace octet
