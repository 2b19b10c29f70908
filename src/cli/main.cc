// The edge: parses the command line, and turns an error into one sentence and an exit status.
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/version.h"
#include "core/error.h"
#include "core/printable.h"

namespace {

// 0 done, 1 failed, 2 bad usage or bad input.
constexpr int exit_failed = 1;
constexpr int exit_bad_input = 2;

int exit_status(octet::ErrorKind kind) {
  switch (kind) {
    case octet::ErrorKind::bad_input:
    case octet::ErrorKind::unsupported:
      return exit_bad_input;
    case octet::ErrorKind::out_of_memory:
    case octet::ErrorKind::device:
    case octet::ErrorKind::internal:
      return exit_failed;
  }
  return exit_failed;
}

// Where one of them is closed, the next file that is opened would take its place: a model would be
// written over, a pipe of our own be waited at for ever. What stands in for it is opened the wrong
// way round, so that using it is an error.
void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest that is free, and so this one.
    [[maybe_unused]] const int opened =
        open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int report(const std::string& message, int status) {
  // A message may quote hostile text: it stays one line, and steers no terminal.
  std::fprintf(stderr, "octet: %s\n", octet::single_line(message).c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_descriptors();
  // A reader that closes the pipe ends the write with an error, not the process.
  std::signal(SIGPIPE, SIG_IGN);
  // So is a file that reaches the limit of its size (ulimit -f).
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App program{"octet serves language models with long contexts from an 8-bit KV cache",
                   "octet"};
  program.set_version_flag("--version", octet::version_text(),
                           "Print version and build, then exit");
  octet::CommandAction run;
  octet::add_generate(program, &run);
  octet::add_chat(program, &run);
  octet::add_inspect(program, &run);
  octet::add_tokenize(program, &run);
  octet::add_eval(program, &run);
  octet::add_serve(program, &run);
  octet::add_calibrate(program, &run);
  octet::add_bench(program, &run);

  try {
    program.parse(argc, argv);
    // Checked here, because CLI11 would name this rather than an unknown word.
    if (!run) throw CLI::RequiredError("A subcommand");
  } catch (const CLI::Success& success) {
    program.exit(success);  // prints what --help or --version say
    std::cout.flush();
    return std::cout ? 0 : report("standard output could not be written", exit_failed);
  } catch (const CLI::ParseError& error) {
    return report(std::string(error.what()) + " (see octet --help)", exit_bad_input);
  }
  try {
    run();
    std::cout.flush();
    if (!std::cout) return report("standard output could not be written", exit_failed);
    return 0;
  } catch (const octet::Error& error) {
    return report(error.what(), exit_status(error.kind()));
  } catch (const std::bad_alloc&) {
    return report("out of memory", exit_failed);
  } catch (const std::exception& error) {
    return report(std::string("internal error: ") + error.what(), exit_failed);
  }
}
