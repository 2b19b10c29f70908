#include "eval/plot.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/printable.h"
#include "files/write_file.h"

namespace octet {

namespace {

// A logarithmic axis has no place for 0.
constexpr double smallest_drawn = 1e-9;

// A string of gnuplot's that nothing in it ends or is read as a command: in single quotes, doubled
// inside.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') result += '\'';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "'";
}

std::string terminal_of(const std::string& file, std::size_t panels) {
  const auto width = static_cast<int>(std::min<std::size_t>(panels, 2));
  const auto height = static_cast<int>((panels + 1) / 2);
  if (file == "-") {
    return fmt::format("set terminal dumb noenhanced size 78, {}\n", 24 * static_cast<int>(panels));
  }
  std::string kind;
  if (file.ends_with(".svg")) kind = "svg noenhanced background 'white'";
  if (file.ends_with(".png")) kind = "pngcairo noenhanced";
  if (kind.empty()) {
    throw_bad_input("--plot {}: expected a file that ends in .svg or .png, or - for the terminal",
                    printable(file));
  }
  return fmt::format("set terminal {} size {}, {}\n", kind, 640 * width, 480 * height);
}

// Of one point gnuplot would choose a range itself, and warn of it.
std::string range_of(const char* axis, double smallest, double largest) {
  if (smallest < largest) return fmt::format("set {}range [*:*]\n", axis);
  return fmt::format("set {}range [{}:{}]\n", axis, smallest / 2, largest * 2);
}

std::string data_of(const Plot& plot) {
  std::string script;
  for (std::size_t panel = 0; panel < plot.panels.size(); ++panel) {
    for (std::size_t i = 0; i < plot.panels[panel].series.size(); ++i) {
      script += fmt::format("$d{}_{} << EOD\n", panel, i);
      const std::vector<double>& y = plot.panels[panel].series[i].y;
      for (std::size_t at = 0; at < plot.x.size(); ++at) {
        script += fmt::format("{} {}\n", plot.x[at], std::max(y[at], smallest_drawn));
      }
      script += "EOD\n";
    }
  }
  return script;
}

std::string ranges_of(const Plot& plot, const PlotPanel& panel) {
  std::vector<double> drawn;
  for (const PlotSeries& series : panel.series) {
    for (const double y : series.y) drawn.push_back(std::max(y, smallest_drawn));
  }
  if (plot.x.empty() || drawn.empty()) return {};
  const auto [x_low, x_high] = std::minmax_element(plot.x.begin(), plot.x.end());
  const auto [y_low, y_high] = std::minmax_element(drawn.begin(), drawn.end());
  return range_of("x", *x_low, *x_high) + range_of("y", *y_low, *y_high);
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File temporary_file(const std::string& plot) {
  File file(std::tmpfile(), std::fclose);
  if (file == nullptr) {
    throw_error(ErrorKind::device, "--plot {}: no temporary file: {}", plot, std::strerror(errno));
  }
  return file;
}

std::string contents_of(std::FILE* file) {
  std::string text;
  char buffer[65536];
  std::rewind(file);
  while (const std::size_t got = std::fread(buffer, 1, sizeof(buffer), file)) {
    text.append(buffer, got);
  }
  return text;
}

struct GnuplotResult {
  bool started = false;
  int status = 0;  // as waitpid gives it
  std::string out;
  std::string err;
};

// The first line of `text` that says something.
std::string first_line(const std::string& text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string::npos) return "it drew nothing and said nothing";
  return printable(text.substr(start, text.find('\n', start) - start));
}

// Files stand for its three streams, so that nothing it says reaches the user's by itself, and no
// full pipe can hold it up.
GnuplotResult run_gnuplot(std::vector<std::string> arguments, const std::string& input,
                          const std::string& plot) {
  const File in = temporary_file(plot);
  const File out = temporary_file(plot);
  const File err = temporary_file(plot);
  if (std::fwrite(input.data(), 1, input.size(), in.get()) != input.size() ||
      std::fflush(in.get()) != 0 || std::fseek(in.get(), 0, SEEK_SET) != 0) {
    throw_error(ErrorKind::device, "--plot {}: a temporary file cannot be written: {}", plot,
                std::strerror(errno));
  }
  arguments.insert(arguments.begin(), "gnuplot");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(err.get()), STDERR_FILENO);
  pid_t child = 0;
  GnuplotResult result;
  result.started = posix_spawnp(&child, "gnuplot", &actions, nullptr, argv.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  if (!result.started) return result;
  while (waitpid(child, &result.status, 0) < 0 && errno == EINTR) {
  }
  result.out = contents_of(out.get());
  result.err = contents_of(err.get());
  return result;
}

void require_gnuplot(const GnuplotResult& result, const std::string& file) {
  if (result.started && !(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 127)) return;
  throw_unsupported(
      "--plot {}: the program gnuplot is not installed (Debian's package gnuplot-nox has it)",
      file);
}

}  // namespace

std::string gnuplot_script(const Plot& plot, const std::string& file) {
  if (file.empty()) throw_bad_input("--plot: expected a file that ends in .svg or .png, or -");
  std::string script = terminal_of(file, plot.panels.size()) + data_of(plot);
  script += fmt::format("set logscale xy\nset format y '%.0e'\nset xlabel {}\nset ylabel {}\n",
                        quoted(plot.x_label), quoted(plot.y_label));
  const std::size_t columns = file == "-" || plot.panels.size() < 2 ? 1 : 2;
  script += fmt::format("set key outside below\nset multiplot layout {}, {}\n",
                        (plot.panels.size() + columns - 1) / columns, columns);
  for (std::size_t panel = 0; panel < plot.panels.size(); ++panel) {
    script += ranges_of(plot, plot.panels[panel]);
    script += fmt::format("set title {}\nplot ", quoted(plot.panels[panel].title));
    for (std::size_t i = 0; i < plot.panels[panel].series.size(); ++i) {
      script += fmt::format("{}$d{}_{} with linespoints title {}", i == 0 ? "" : ", ", panel, i,
                            quoted(plot.panels[panel].series[i].title));
    }
    script += "\n";
  }
  return script + "unset multiplot\n";
}

void check_plot(const std::string& file) {
  gnuplot_script({}, file);
  if (file != "-") {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    std::error_code ignored;
    if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
      throw_bad_input("--plot {}: its folder is not there", file);
    }
    require_writable_folder(folder.empty() ? "." : folder.string(), "--plot");
    if (std::filesystem::is_directory(file, ignored)) {
      throw_bad_input("--plot {}: is a folder, expected the name of a file", file);
    }
  }
  require_gnuplot(run_gnuplot({"--version"}, "", file), file);
}

void draw_plot(const Plot& plot, const std::string& file) {
  // Without ~/.gnuplot, which may say anything.
  const GnuplotResult result =
      run_gnuplot({"--default-settings", "-"}, gnuplot_script(plot, file), file);
  require_gnuplot(result, file);
  if (result.status != 0 || result.out.empty()) {
    throw_unsupported("--plot {}: gnuplot failed: {}", file, first_line(result.err));
  }
  if (file != "-") return write_file_atomically(file, std::as_bytes(std::span(result.out)));
  std::fwrite(result.out.data(), 1, result.out.size(), stdout);
  if (std::fflush(stdout) != 0) {
    throw_error(ErrorKind::device, "standard output could not be written");
  }
}

}  // namespace octet
