// Runs the octet program and collects what it prints.
#pragma once

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace octet {
// A namespace of its own: a helper must never stand in for a function of the library that happens
// to have its name, which no compiler or linker would notice.
inline namespace test_support {

struct ProgramResult {
  int status = -1;  // exit status; 128 + signal where one ended it
  std::string out;
  std::string err;
};

// Starts OCTET_BINARY with `arguments`, feeds `input` to its standard input and waits for its end.
inline ProgramResult run_octet(const std::vector<std::string>& arguments,
                               std::string_view input = {}) {
  std::array<std::array<int, 2>, 3> pipes{};
  for (auto& pair : pipes) {
    if (pipe2(pair.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  }
  std::vector<char*> argv = {const_cast<char*>(OCTET_BINARY)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    dup2(pipes[0][0], STDIN_FILENO);
    dup2(pipes[1][1], STDOUT_FILENO);
    dup2(pipes[2][1], STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(pipes[0][0]);
  close(pipes[1][1]);
  close(pipes[2][1]);

  // Reads both outputs while it writes the input, so that no pipe fills up and blocks the program.
  ProgramResult result;
  std::array<pollfd, 3> watched = {pollfd{pipes[0][1], POLLOUT, 0}, pollfd{pipes[1][0], POLLIN, 0},
                                   pollfd{pipes[2][0], POLLIN, 0}};
  const auto finish = [](pollfd& entry) {
    close(entry.fd);
    entry.fd = -1;
  };
  if (input.empty()) finish(watched[0]);
  while (watched[0].fd >= 0 || watched[1].fd >= 0 || watched[2].fd >= 0) {
    poll(watched.data(), watched.size(), -1);
    if (watched[0].fd >= 0 && watched[0].revents != 0) {
      const ssize_t sent = write(watched[0].fd, input.data(), input.size());
      if (sent > 0) input.remove_prefix(static_cast<std::size_t>(sent));
      if (sent < 0 || input.empty()) finish(watched[0]);
    }
    for (const std::size_t i : {1u, 2u}) {
      if (watched[i].fd < 0 || watched[i].revents == 0) continue;
      std::array<char, 65536> buffer;
      const ssize_t got = read(watched[i].fd, buffer.data(), buffer.size());
      if (got <= 0) {
        finish(watched[i]);
      } else {
        (i == 1 ? result.out : result.err).append(buffer.data(), static_cast<std::size_t>(got));
      }
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace test_support
}  // namespace octet
