#include "cli/input_lines.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "core/error.h"

namespace octet {
namespace {

volatile std::sig_atomic_t interrupts = 0;

void count_interrupt(int) { interrupts = 1; }

void set_action(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read that waits for a line returns
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

InterruptCounter::InterruptCounter() {
  interrupts = 0;
  set_action(count_interrupt);
}

InterruptCounter::~InterruptCounter() { set_action(SIG_DFL); }

bool InterruptCounter::take() {
  const bool pressed = interrupts != 0;
  interrupts = 0;
  return pressed;
}

InputLines::Result InputLines::next(std::string* line, std::size_t limit) {
  for (;;) {
    if (const std::size_t newline = pending_.find('\n'); newline != std::string::npos) {
      *line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return Result::line;
    }
    if (pending_.size() > limit) {
      throw_bad_input("standard input: a line is longer than {} bytes", limit);
    }
    if (ended_) {
      *line = std::exchange(pending_, {});
      return line->empty() ? Result::end : Result::line;
    }
    std::array<char, 4096> buffer;
    const ssize_t got = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got > 0) {
      pending_.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      ended_ = true;
    } else if (errno == EINTR) {
      if (InterruptCounter::take()) {
        pending_.clear();
        return Result::interrupted;
      }
    } else {
      throw_bad_input("standard input: {}", std::strerror(errno));
    }
  }
}

}  // namespace octet
