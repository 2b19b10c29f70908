#include "server/log.h"

#include <string>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

void start_log(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    throw_bad_input("--log-level {}: expected trace, debug, info, warning, error or off",
                    printable(level));
  }
  spdlog::drop("octet");
  spdlog::set_default_logger(spdlog::stderr_logger_mt("octet"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
  spdlog::set_level(parsed);
}

void flush_log() { spdlog::default_logger()->flush(); }

void log_info(std::string_view line) { spdlog::info("{}", line); }
void log_warning(std::string_view line) { spdlog::warn("{}", line); }
void log_error(std::string_view line) { spdlog::error("{}", line); }

}  // namespace octet
