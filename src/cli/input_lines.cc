#include "cli/input_lines.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "core/error.h"

namespace octet {
namespace {

volatile std::sig_atomic_t interrupts = 0;

// The handler writes a byte here, and whoever waits for a line waits for this too: a signal that
// comes just before the wait begins still ends it.
std::array<int, 2> wake = {-1, -1};

void count_interrupt(int) {
  const int error_before = errno;
  interrupts = 1;
  // A full pipe already wakes the reader.
  [[maybe_unused]] const ssize_t written = write(wake[1], "!", 1);
  errno = error_before;
}

void set_action(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read that waits for a line returns
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

InterruptCounter::InterruptCounter() {
  if (pipe2(wake.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw_error(ErrorKind::device, "no pipe for Ctrl-C: {}", std::strerror(errno));
  }
  interrupts = 0;
  set_action(count_interrupt);
}

InterruptCounter::~InterruptCounter() {
  set_action(SIG_DFL);
  for (int& end : wake) close(std::exchange(end, -1));
}

bool InterruptCounter::take() {
  // The pipe first: a signal after that leaves its byte there, which only wakes once too often.
  std::array<char, 64> bytes;
  while (wake[0] >= 0 && read(wake[0], bytes.data(), bytes.size()) > 0) {
  }
  const bool pressed = interrupts != 0;
  interrupts = 0;
  return pressed;
}

InputLines::Result InputLines::next(std::string* line, std::size_t limit) {
  for (;;) {
    if (const std::size_t newline = pending_.find('\n', searched_); newline != std::string::npos) {
      *line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      searched_ = 0;
      return Result::line;
    }
    searched_ = pending_.size();
    if (pending_.size() > limit) {
      throw_bad_input("standard input: a line is longer than {} bytes", limit);
    }
    if (ended_) {
      *line = std::exchange(pending_, {});
      searched_ = 0;
      return line->empty() ? Result::end : Result::line;
    }
    // poll() passes over the pipe's -1 where nobody counts interrupts.
    std::array<pollfd, 2> waits = {{{STDIN_FILENO, POLLIN, 0}, {wake[0], POLLIN, 0}}};
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) {
      throw_bad_input("standard input: {}", std::strerror(errno));
    }
    if (InterruptCounter::take()) {
      pending_.clear();
      searched_ = 0;
      return Result::interrupted;
    }
    if (waits[0].revents == 0) continue;
    std::array<char, 4096> buffer;
    const ssize_t got = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got > 0) {
      pending_.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      ended_ = true;
    } else if (errno != EINTR) {
      throw_bad_input("standard input: {}", std::strerror(errno));
    }
  }
}

}  // namespace octet
