// Counts what a rendering uses against the limits, and makes the values that weigh something.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace octet::jinja {

// Lives longer than every value that it made: each gives its bytes back when it dies.
class Budget {
 public:
  Budget() = default;
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // All throw Error{bad_input} past their limit.
  void step(std::size_t count = 1);
  void work(std::size_t bytes) { step(1 + bytes / bytes_per_step); }
  Charge charge(std::size_t bytes);

  // `markup`: see StringObject.
  Value string(MarkedText text, bool markup = false);
  Value string(std::string_view template_text) { return string(MarkedText(template_text, false)); }
  Value list(std::vector<Value> items, ListKind kind = ListKind::list);
  Value dict(std::vector<DictEntry> entries);
  Value method(Value object, const BuiltinMethod* method);

  // Appends to a list under construction.
  void push(std::vector<Value>& items, Value item);

 private:
  friend class Charge;
  void check_depth(int depth) const;

  std::size_t steps_ = 0;
  std::size_t live_bytes_ = 0;
};

// Text under construction, which never grows past its limit.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget, std::size_t limit = max_string_bytes,
                       const char* what = "a string")
      : budget_(&budget), limit_(limit), what_(what) {}

  void append(std::string_view bytes, bool literal = false) {
    reserve(bytes.size());
    text_.append(bytes, literal);
  }
  void append(const MarkedText& other) { append_slice(other, 0, other.size()); }
  void append_slice(const MarkedText& other, std::size_t begin, std::size_t end) {
    reserve(end - begin);
    text_.append_slice(other, begin, end);
  }

  Budget& budget() { return *budget_; }
  const MarkedText& text() const { return text_; }
  Value finish(bool markup = false) { return budget_->string(std::move(text_), markup); }

 private:
  void reserve(std::size_t more);

  Budget* budget_;
  std::size_t limit_;
  const char* what_;
  MarkedText text_;
};

}  // namespace octet::jinja
