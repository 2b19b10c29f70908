#include "core/memory_info.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace octet {

namespace {

std::size_t meminfo_available() {
  std::ifstream file("/proc/meminfo");
  std::string field;
  std::size_t kibibytes = 0;
  std::string unit;
  while (file >> field >> kibibytes) {
    std::getline(file, unit);
    if (field == "MemAvailable:") return kibibytes * 1024;
  }
  return 0;
}

// What the process's cgroup may still take, or the largest number where there is no limit.
std::size_t cgroup_available() {
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  std::ifstream used_file("/sys/fs/cgroup/memory.current");
  std::size_t limit = 0;
  std::size_t used = 0;
  if (!(limit_file >> limit) || !(used_file >> used)) {
    return std::numeric_limits<std::size_t>::max();
  }
  return limit > used ? limit - used : 0;
}

}  // namespace

std::size_t available_memory_bytes() { return std::min(meminfo_available(), cgroup_available()); }

}  // namespace octet
