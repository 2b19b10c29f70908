#include "eval/accumulation.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "eval/plot.h"

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

TEST(Plot, TheScriptQuotesWhatItIsGivenAndDrawsEverySeries) {
  const Plot plot{"keys", "error 'x'", {1, 2}, {{"a", {{"it's", {0.5, 0}}, {"b", {1, 2}}}}}};
  const std::string script = gnuplot_script(plot, "|rm 'a'.svg");
  EXPECT_NE(script.find("set output './|rm ''a''.svg'"), std::string::npos) << script;
  EXPECT_NE(script.find("set ylabel 'error ''x'''"), std::string::npos);
  EXPECT_NE(script.find("title 'it''s'"), std::string::npos);
  EXPECT_NE(script.find("$d0_1 << EOD\n1 1\n2 2\nEOD"), std::string::npos);
  EXPECT_NE(gnuplot_script(plot, "-").find("set terminal dumb"), std::string::npos);
  EXPECT_NE(gnuplot_script({}, "plot.png").find("set terminal pngcairo"), std::string::npos);
  for (const char* bad : {"", "plot", "plot.pdf", "a\nb.svg"}) {
    EXPECT_THROW(gnuplot_script(plot, bad), Error) << bad;
  }
}

}  // namespace
}  // namespace octet
