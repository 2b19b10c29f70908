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

// What gnuplot is told, which draws to its standard output. `file` ends in .svg or .png, or is "-"
// for letters on a terminal. Throws Error{bad_input} that names it where it does neither.
std::string gnuplot_script(const Plot& plot, const std::string& file);

// Throws what can be known before there is a plot to draw: for a name as above, a folder that
// cannot be written to, and Error{unsupported} where the program gnuplot is not installed.
void check_plot(const std::string& file);

// Writes the file whole or not at all, or the letters to standard output. Throws as check_plot
// does, and Error{unsupported} with gnuplot's own words where it fails.
void draw_plot(const Plot& plot, const std::string& file);

}  // namespace octet
