// Takes a stream of server-sent events apart.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace octet {

class EventStream {
 public:
  // Calls `on_data` with the data of each event that is complete now; what is not waits.
  void push(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

 private:
  std::string pending_;
};

}  // namespace octet
