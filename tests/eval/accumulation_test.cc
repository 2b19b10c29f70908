#include "eval/accumulation.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "core/error.h"
#include "eval/plot.h"
#include "support/temporary_folder.h"
#include "support/test_models.h"

namespace octet {
namespace {

TEST(Accumulation, TheReportShowsTheDefectAndItsCures) {
  ThreadPool pool(2);
  AccumulationOptions options;
  options.longest_context = 16384;
  options.head_dim = 8;
  std::int64_t last = 0;
  const AccumulationReport report =
      evaluate_accumulation(pool, options, [&](std::int64_t done) { last = std::max(last, done); });
  EXPECT_EQ(last, 1000);
  EXPECT_EQ(report.contexts, (std::vector<std::int64_t>{1024, 2048, 4096, 8192, 16384}));
  ASSERT_EQ(report.curves.size(), 32u);
  const auto error = [&](int promote_every, bool tile_local, bool sink, double mean) {
    for (const AccumulationCurve& curve : report.curves) {
      if (curve.accumulation.promote_every == promote_every &&
          curve.accumulation.tile_local_scale == tile_local && curve.sink == sink &&
          curve.value_mean == mean) {
        return curve.errors.back();
      }
    }
    return -1.0;
  };
  // Truncation is a bias toward zero: values with a mean show it.
  EXPECT_GT(error(0, true, false, 0.5), 10 * error(1, true, false, 0.5));
  EXPECT_GT(error(64, true, false, 0.5), error(4, true, false, 0.5));
  // Weights far below the running maximum are rounded away, those of a tile of their own are not.
  EXPECT_GT(error(1, false, true, 0.0), error(1, true, true, 0.0));
  const AccumulationReport again = evaluate_accumulation(pool, options, {});
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(again.curves[i].errors, report.curves[i].errors);
}

// The longest context is the one that was asked for, whatever it is: of no whole tile, the only
// one.
TEST(Accumulation, TheLastContextIsTheLongestAskedFor) {
  ThreadPool pool(2);
  AccumulationOptions options;
  options.head_dim = 8;
  for (const auto& [longest, contexts] :
       {std::pair{std::int64_t{1024}, std::vector<std::int64_t>{1024}},
        std::pair{std::int64_t{1025}, std::vector<std::int64_t>{1024, 1025}},
        std::pair{std::int64_t{5000}, std::vector<std::int64_t>{1024, 2048, 4096, 5000}}}) {
    options.longest_context = longest;
    const AccumulationReport report = evaluate_accumulation(pool, options, {});
    EXPECT_EQ(report.contexts, contexts);
    for (const AccumulationCurve& curve : report.curves) {
      ASSERT_EQ(curve.errors.size(), contexts.size());
      EXPECT_TRUE(std::isfinite(curve.errors.back()));
      EXPECT_LT(curve.errors.back(), 0.5) << curve.name();
    }
  }
}

TEST(Plot, TheScriptQuotesWhatItIsGivenAndDrawsEverySeries) {
  const Plot plot{"keys", "error 'x'", {1, 2}, {{"a", {{"it's", {0.5, 0}}, {"b", {1, 2}}}}}};
  const std::string script = gnuplot_script(plot, "|rm 'a'.svg");
  EXPECT_EQ(script.find("|rm"), std::string::npos) << script;  // the file is written by octet
  EXPECT_NE(script.find("set ylabel 'error ''x'''"), std::string::npos);
  EXPECT_NE(script.find("title 'it''s'"), std::string::npos);
  EXPECT_NE(script.find("$d0_1 << EOD\n1 1\n2 2\nEOD"), std::string::npos);
  EXPECT_NE(gnuplot_script(plot, "-").find("set terminal dumb"), std::string::npos);
  EXPECT_NE(gnuplot_script({}, "plot.png").find("set terminal pngcairo"), std::string::npos);
  for (const char* bad : {"", "plot", "plot.pdf", "plot.svg.gz"}) {
    EXPECT_THROW(gnuplot_script(plot, bad), Error) << bad;
    EXPECT_THROW(check_plot(bad), Error) << bad;
  }
}

TEST(Plot, FilesAreWrittenWholeAndOnePointIsAPlot) {
  const TemporaryFolder folder;
  const Plot plot{"keys", "error", {1024}, {{"a", {{"one", {0.5}}, {"zero", {0}}}}}};
  const std::string file = folder / "it's a |plot.svg";
  check_plot(file);
  EXPECT_FALSE(std::filesystem::exists(file));
  draw_plot(plot, file);
  const std::string svg = read_file(file);
  EXPECT_NE(svg.find("<svg"), std::string::npos);
  EXPECT_NE(svg.find(">zero<"), std::string::npos);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
  draw_plot(plot, folder / "plot.png");
  EXPECT_EQ(read_file(folder / "plot.png").substr(1, 3), "PNG");

  for (const std::string& bad : {folder / "no/plot.svg", folder.path() + "/folder.svg"}) {
    std::filesystem::create_directories(folder / "folder.svg");
    try {
      check_plot(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("--plot " + bad), std::string::npos) << error.what();
    }
    EXPECT_THROW(draw_plot(plot, bad), Error);
  }
}

}  // namespace
}  // namespace octet
