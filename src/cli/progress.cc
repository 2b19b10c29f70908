#include "cli/progress.h"

#include <cstdio>
#include <utility>

#include <unistd.h>

namespace octet {

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::update(std::int64_t done) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r%s %lld/%lld tokens", what_.c_str(), static_cast<long long>(done),
               static_cast<long long>(total_));
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[2K", stderr);
  shown_ = false;
}

}  // namespace octet
