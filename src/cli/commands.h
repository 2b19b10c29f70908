// The subcommands. Each adds itself to the program and sets `run` to what it does when chosen.
#pragma once

#include <functional>

#include <CLI/App.hpp>

namespace octet {

using CommandAction = std::function<void()>;

void add_generate(CLI::App& program, CommandAction* run);
void add_chat(CLI::App& program, CommandAction* run);
void add_inspect(CLI::App& program, CommandAction* run);
void add_tokenize(CLI::App& program, CommandAction* run);
void add_eval(CLI::App& program, CommandAction* run);
void add_serve(CLI::App& program, CommandAction* run);
void add_eval_accumulation(CLI::App& eval, CommandAction* run);
void add_eval_needle(CLI::App& eval, CommandAction* run);
void add_calibrate(CLI::App& program, CommandAction* run);
void add_bench(CLI::App& program, CommandAction* run);
// Subcommands of bench.
void add_bench_cpu(CLI::App& bench, CommandAction* run);
void add_bench_linear(CLI::App& bench, CommandAction* run);
void add_bench_operations(CLI::App& bench, CommandAction* run);
void add_bench_serve(CLI::App& bench, CommandAction* run);
void add_bench_step(CLI::App& bench, CommandAction* run);

}  // namespace octet
