// Finds stop strings in an answer that comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octet {

// push() gives the text that is certain not to belong to a stop string: a tail that could be the
// start of one is held back until the next piece decides. Once a stop string is complete, stopped()
// is true and the text from its first character on is dropped. The result does not depend on how
// the text is cut into pieces.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  std::string push(std::string_view piece);
  std::string finish();  // what was held back, when the answer ends otherwise
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace octet
