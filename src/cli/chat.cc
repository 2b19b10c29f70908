// octet chat: a conversation in a terminal, or over a pipe.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "cli/chat_session.h"
#include "cli/commands.h"
#include "cli/input_lines.h"
#include "cli/options.h"
#include "cli/rounding_report.h"
#include "cli/terminal_text.h"
#include "core/error.h"
#include "core/printable.h"

namespace octet {
namespace {

constexpr std::size_t most_turn_bytes = std::size_t{1} << 24;

// Linux hands over no more of a line that is typed or pasted, and drops the rest without a word
// (N_TTY_BUF_SIZE in drivers/tty/n_tty.c, less the newline).
constexpr std::size_t most_terminal_line_bytes = 4095;

struct ChatFlags {
  std::string model;
  std::optional<std::string> system;
  std::int64_t max_model_len = 0;
  SamplingParams sampling;
  CacheFlags cache;
  MachineFlags machine;
};

constexpr const char* help_text =
    "/help           this list\n"
    "/clear          forget the conversation\n"
    "/system TEXT    set the system turn (none without a text), and forget the "
    "conversation\n"
    "/save FILE      write the conversation to a new file, as JSON\n"
    "/exit           end (as Ctrl-D does)\n"
    "A line that ends in \\ goes on in the next; \"\"\" alone in a line begins "
    "and ends a longer text;\n"
    "// begins a text with a slash. Ctrl-C stops an answer; twice in a row at "
    "the prompt it ends.\n";

class Chat {
 public:
  explicit Chat(ChatSession& session)
      : session_(session),
        reads_terminal_(isatty(STDIN_FILENO) != 0),
        writes_terminal_(isatty(STDOUT_FILENO) != 0) {}

  void run() {
    note("cache  " + session_.engine().core().policy().summary());
    converse();
    std::fputs(rounding_note(session_.engine()).c_str(), stderr);
    // A person has seen what was refused, and a script looks at the status.
    if (reads_terminal_ || refused_ == 0) return;
    throw Error(failure_,
                refused_ == 1
                    ? "standard input: one turn or command, told above, was not done"
                    : fmt::format("standard input: {} turns or commands, told above, were not done",
                                  refused_));
  }

 private:
  void converse() {
    if (reads_terminal_) note("/help lists the commands, Ctrl-D ends");
    std::string text;
    while (read_turn(&text)) {
      if (text.empty()) continue;
      if (text[0] == '/' && text.substr(0, 2) != "//" && !quoted_) {
        if (!obey(text)) return;
      } else {
        answer(text[0] == '/' && !quoted_ ? text.substr(1) : text);
      }
      if (!std::cout) throw_error(ErrorKind::device, "standard output could not be written");
    }
  }

  void note(std::string_view text) const {
    std::fprintf(stderr, "%s\n", single_line(text).c_str());
  }

  // What is wrong with a turn or a command alone does not end the conversation.
  void refuse(std::string_view why, ErrorKind kind = ErrorKind::bad_input) {
    note(why);
    ++refused_;
    if (kind != ErrorKind::bad_input) failure_ = kind;
  }

  // Where a person sees what to type, and answers alone go into a file.
  std::ostream& prompt_stream() const { return writes_terminal_ ? std::cout : std::cerr; }

  // One turn of one or several lines; false at the end.
  bool read_turn(std::string* turn) {
    turn->clear();
    quoted_ = false;
    bool in_quotes = false;
    bool interrupted_before = false;
    for (bool first = true;;) {
      if (reads_terminal_) prompt_stream() << (first ? "> " : "... ") << std::flush;
      std::string line;
      switch (lines_.next(&line, most_turn_bytes)) {
        case InputLines::Result::end:
          if (reads_terminal_) prompt_stream() << '\n';
          return !turn->empty();
        case InputLines::Result::interrupted:
          prompt_stream() << '\n';
          if (interrupted_before) return false;
          interrupted_before = true;
          note("Ctrl-C again, or Ctrl-D, ends");
          turn->clear();
          quoted_ = in_quotes = false;
          first = true;
          continue;
        case InputLines::Result::line:
          break;
      }
      interrupted_before = false;
      if (reads_terminal_ && line.size() >= most_terminal_line_bytes) {
        note(
            fmt::format("the terminal cuts lines at {} bytes, so this text was not sent: paste it "
                        "in shorter lines between \"\"\", or give it over a pipe",
                        most_terminal_line_bytes));
        turn->clear();
        quoted_ = in_quotes = false;
        first = true;
        continue;
      }
      first = false;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line == "\"\"\"") {
        if (in_quotes) return finish(turn);
        quoted_ = in_quotes = true;
        continue;
      }
      const bool continues = !in_quotes && !line.empty() && line.back() == '\\';
      if (continues) line.pop_back();
      *turn += line;
      if (turn->size() > most_turn_bytes) {
        throw_bad_input("standard input: a turn is longer than {} bytes", most_turn_bytes);
      }
      if (!in_quotes && !continues) return finish(turn);
      *turn += '\n';
    }
  }

  bool finish(std::string* turn) const {
    if (quoted_ && !turn->empty() && turn->back() == '\n') turn->pop_back();
    return true;
  }

  // False where the command ends the conversation.
  bool obey(const std::string& line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string command = line.substr(0, space);
    const std::string argument = line.substr(std::min(space + 1, line.size()));
    if (command == "/exit" || command == "/quit") return false;
    if (command == "/help") {
      std::fputs(help_text, stderr);
    } else if (command == "/clear") {
      session_.clear();
      note("the conversation is forgotten");
    } else if (command == "/system") {
      if (!is_text(argument)) return true;
      session_.set_system(argument.empty() ? std::nullopt : std::optional(argument));
      note(argument.empty() ? "no system turn; the conversation is forgotten"
                            : "the system turn is set; the conversation is forgotten");
    } else if (command == "/save") {
      save(argument);
    } else {
      refuse(fmt::format("{} is no command; /help lists them", printable(command)));
    }
    return true;
  }

  bool is_text(const std::string& text) {
    try {
      require_utf8("the text", text);
      return true;
    } catch (const Error& error) {
      refuse(error.what());
      return false;
    }
  }

  void save(const std::string& path) {
    if (path.empty()) return refuse("/save needs the name of a file");
    // "x": a file that is there is not overwritten.
    std::FILE* file = std::fopen(path.c_str(), "wx");
    bool written = file != nullptr;
    if (file != nullptr) {
      const std::string text = session_.as_json() + "\n";
      written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
      written = std::fclose(file) == 0 && written;
    }
    if (written) return note(fmt::format("saved to {}", printable(path)));
    refuse(fmt::format("{} could not be written: {}", printable(path), std::strerror(errno)),
           ErrorKind::device);
  }

  void answer(const std::string& text) {
    if (!is_text(text)) return;
    InterruptCounter::take();
    const auto show = [this](std::string_view part) {
      std::cout << (writes_terminal_ ? terminal_text(part) : std::string(part)) << std::flush;
    };
    const auto stops = [] { return InterruptCounter::take(); };
    try {
      const ChatSession::Answer result = session_.ask(text, show, stops);
      std::cout << std::endl;
      report(result);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::bad_input) throw;
      refuse(error.what());
    }
  }

  void report(const ChatSession::Answer& answer) const {
    if (answer.finished == FinishReason::cancelled) note("stopped");
    if (answer.finished == FinishReason::length) {
      note("the answer ends here: --max-tokens or the context is used up");
    }
    if (!reads_terminal_) return;
    note(
        fmt::format("[{} tokens, {} of them read before; answer {} tokens in "
                    "{:.1f} s; context {}]",
                    answer.prompt_tokens, answer.reused_tokens, answer.tokens, answer.seconds,
                    session_.engine().core().max_model_len()));
  }

  ChatSession& session_;
  InputLines lines_;
  bool reads_terminal_;
  bool writes_terminal_;
  bool quoted_ = false;  // the turn was given between """
  int refused_ = 0;      // turns and commands
  ErrorKind failure_ = ErrorKind::bad_input;
};

void run_chat(const ChatFlags& flags) {
  flags.sampling.validate();
  if (flags.system) require_utf8("--system", *flags.system);
  check_kv_policy_options(flags.cache.policy);
  EngineOptions options;
  const Device device = flags.machine.apply_to(&options);
  flags.cache.apply_to(&options, device);
  options.max_model_len = flags.max_model_len;
  options.limits.max_sequences = 1;
  options.limits.prefill_chunk = device == Device::cuda ? gpu_prefill_chunk : cpu_prefill_chunk;
  options.limits.max_batched_tokens = options.limits.prefill_chunk;

  LoadedModel loaded = open_model(flags.model);
  ChatTemplate chat_template = read_chat_template(loaded);
  load_weights(
      &loaded,
      flags.max_model_len > 0 ? flags.max_model_len : std::numeric_limits<std::int64_t>::max(),
      device);
  ChatSession session(loaded, std::move(chat_template), options, flags.sampling);
  session.set_system(flags.system);
  const InterruptCounter interrupts;
  Chat(session).run();
}

}  // namespace

void add_chat(CLI::App& program, CommandAction* run) {
  CLI::App* command = program.add_subcommand("chat", "Talk with a model in the terminal");
  const auto flags = std::make_shared<ChatFlags>();
  flags->sampling.max_tokens = 1024;
  add_model_flag(*command, &flags->model);
  command->add_option("--system", flags->system, "System turn");
  add_number(*command, "--max-model-len", &flags->max_model_len,
             "Longest conversation (default: the model's context)")
      ->check(at_least_one);
  const std::string group = "Sampling";
  SamplingParams& sampling = flags->sampling;
  add_number(*command, "--max-tokens", &sampling.max_tokens, "Most tokens of an answer")
      ->default_str("1024")
      ->check(at_least_one)
      ->group(group);
  add_number(*command, "--temperature", &sampling.temperature, "0: always the most likely token")
      ->default_str("0")
      ->group(group);
  add_number(*command, "--top-k", &sampling.top_k, "Keep the K most likely tokens (0: all)")
      ->default_str("0")
      ->group(group);
  add_number(*command, "--top-p", &sampling.top_p,
             "Keep the most likely tokens that reach probability P")
      ->default_str("1")
      ->group(group);
  add_number(*command, "--min-p", &sampling.min_p,
             "Keep tokens at least P times as likely as the best")
      ->default_str("0")
      ->group(group);
  add_number(*command, "--seed", &sampling.seed, "Seed of the draws (default: a new one each time)")
      ->group(group);
  flags->cache.add_to(*command);
  flags->machine.add_to(*command);
  command->callback([flags, run] { *run = [flags] { run_chat(*flags); }; });
}

}  // namespace octet
