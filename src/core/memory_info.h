// How much memory this machine can still give.
#pragma once

#include <cstddef>

namespace octet {

// MemAvailable of /proc/meminfo, lessened by a cgroup v2 memory limit; 0 where neither can be read.
std::size_t available_memory_bytes();

}  // namespace octet
