#include "eval/plot.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <sys/wait.h>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

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
  if (file.find_first_of("\n\r") != std::string::npos) {
    throw_bad_input("--plot {}: expected a name without line breaks", printable(file));
  }
  // A name that starts with | would be a command to gnuplot.
  const std::string name = file.front() == '|' ? "./" + file : file;
  std::string kind;
  if (file.ends_with(".svg")) kind = "svg noenhanced background 'white'";
  if (file.ends_with(".png")) kind = "pngcairo noenhanced";
  if (kind.empty()) {
    throw_bad_input("--plot {}: expected a file that ends in .svg or .png, or - for the terminal",
                    printable(file));
  }
  return fmt::format("set terminal {} size {}, {}\nset output {}\n", kind, 640 * width,
                     480 * height, quoted(name));
}

}  // namespace

std::string gnuplot_script(const Plot& plot, const std::string& file) {
  if (file.empty()) throw_bad_input("--plot: expected a file that ends in .svg or .png, or -");
  std::string script = terminal_of(file, plot.panels.size());
  for (std::size_t panel = 0; panel < plot.panels.size(); ++panel) {
    for (std::size_t i = 0; i < plot.panels[panel].series.size(); ++i) {
      script += fmt::format("$d{}_{} << EOD\n", panel, i);
      const std::vector<double>& y = plot.panels[panel].series[i].y;
      for (std::size_t at = 0; at < plot.x.size(); ++at) {
        // A logarithmic axis has no place for 0.
        script += fmt::format("{} {}\n", plot.x[at], std::max(y[at], 1e-9));
      }
      script += "EOD\n";
    }
  }
  script += fmt::format("set logscale xy\nset format y '%.0e'\nset xlabel {}\nset ylabel {}\n",
                        quoted(plot.x_label), quoted(plot.y_label));
  const std::size_t columns = file == "-" || plot.panels.size() < 2 ? 1 : 2;
  script += fmt::format("set key outside below\nset multiplot layout {}, {}\n",
                        (plot.panels.size() + columns - 1) / columns, columns);
  for (std::size_t panel = 0; panel < plot.panels.size(); ++panel) {
    script += fmt::format("set title {}\nplot ", quoted(plot.panels[panel].title));
    for (std::size_t i = 0; i < plot.panels[panel].series.size(); ++i) {
      script += fmt::format("{}$d{}_{} with linespoints title {}", i == 0 ? "" : ", ", panel, i,
                            quoted(plot.panels[panel].series[i].title));
    }
    script += "\n";
  }
  return script + "unset multiplot\n";
}

void draw_plot(const Plot& plot, const std::string& file) {
  const std::string script = gnuplot_script(plot, file);
  std::fflush(stdout);
  std::FILE* gnuplot = popen("gnuplot -", "w");
  if (gnuplot == nullptr)
    throw_unsupported("--plot {}: gnuplot cannot be started", printable(file));
  const bool sent = std::fwrite(script.data(), 1, script.size(), gnuplot) == script.size();
  const int status = pclose(gnuplot);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    throw_unsupported(
        "--plot {}: the program gnuplot is not installed (Debian's package "
        "gnuplot-nox has it)",
        printable(file));
  }
  if (!sent || status != 0) throw_unsupported("--plot {}: gnuplot failed", printable(file));
}

}  // namespace octet
