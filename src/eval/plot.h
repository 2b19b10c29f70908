// Line plots, drawn by gnuplot.
#pragma once

#include <string>
#include <vector>

namespace octet {

struct PlotSeries {
  std::string title;
  std::vector<double> y;  // one for each x
};

struct PlotPanel {
  std::string title;
  std::vector<PlotSeries> series;
};

// Panels beside each other with one x; both axes logarithmic.
struct Plot {
  std::string x_label;
  std::string y_label;
  std::vector<double> x;
  std::vector<PlotPanel> panels;
};

// What gnuplot is told. `file` ends in .svg or .png, or is "-" for letters on standard output.
// Throws Error{bad_input} that names it where it does neither.
std::string gnuplot_script(const Plot& plot, const std::string& file);

// Throws Error{unsupported} where the program gnuplot is not installed or fails.
void draw_plot(const Plot& plot, const std::string& file);

}  // namespace octet
