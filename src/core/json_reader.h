// Reads a JSON text from front to back, value by value, without building anything: for texts of
// many megabytes whose shape is known, such as the headers of safetensors files. (A parser that
// hands out events takes 0.9 s for the 54 MB that name Kimi-K2.5's 208,550 tensors; this 0.1 s.)
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octet {

// RFC 8259, strictly; arrays and objects nest at most `max_depth` deep. Every error is an
// Error{bad_input} that starts with `what` and says where in the text it is. The caller asks for
// what its format has next:
//
//   reader.begin_object();
//   while (const auto key = reader.next_key()) { ... one value ... }
//   reader.finish();
class JsonReader {
 public:
  static constexpr std::size_t max_depth = 64;

  // Both must outlive the reader.
  JsonReader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  void begin_object();
  // The next key of the object that was begun last, its value comes next; nothing at its end. The
  // view is good until the next call of any function.
  std::optional<std::string_view> next_key();

  void begin_array();
  // Whether the array that was begun last has another element, which comes next.
  bool next_element();

  // A string, unescaped; the view is good until the next call of any function.
  std::string_view read_string();
  // An integer without sign, fraction and exponent.
  std::uint64_t read_uint();
  // Takes a null, if that is what comes.
  bool try_null();
  // Any value; all of it is checked.
  void skip_value();

  // Checks that nothing but white space is left.
  void finish();

 private:
  [[noreturn]] void fail(std::string_view expected) const;
  char peek();  // the next character after white space; NUL at the end
  void expect(char character, std::string_view expected);
  void open(char bracket, std::string_view expected);
  bool next(char bracket, std::string_view expected);
  bool take_literal(std::string_view literal);
  std::string_view unescape(std::size_t first);
  void append_escape();
  std::uint32_t read_code_unit();
  void skip_number();
  void skip_digits();

  std::string_view text_;
  std::string_view what_;
  std::size_t position_ = 0;
  std::size_t depth_ = 0;
  std::bitset<max_depth> has_elements_;  // of the open arrays and objects, outermost first
  std::string unescaped_;
};

}  // namespace octet
