// Text that knows which of its bytes a user wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octet::jinja {

// UTF-8 text with the byte ranges that came from outside the template ("literal": special-token
// text in them must not become special tokens). Every operation that copies text copies its marks,
// so that text is template text only if the template's own source spelt it.
class MarkedText {
 public:
  struct Range {
    std::uint32_t begin;
    std::uint32_t end;
  };

  MarkedText() = default;
  // The text must be at most 4 GiB; values are held to max_string_bytes long before.
  MarkedText(std::string_view bytes, bool literal) { append(bytes, literal); }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Sorted, not empty, and neither overlapping nor touching.
  const std::vector<Range>& literal_ranges() const { return literal_; }

  void append(std::string_view bytes, bool literal);
  void append(const MarkedText& other) { append_slice(other, 0, other.size()); }
  // Bytes [begin, end) of `other`, with their marks.
  void append_slice(const MarkedText& other, std::size_t begin, std::size_t end);
  MarkedText slice(std::size_t begin, std::size_t end) const;
  bool is_literal_at(std::size_t offset) const;

  // Heap bytes beyond the object itself.
  std::size_t heap_bytes() const { return bytes_.capacity() + literal_.capacity() * sizeof(Range); }

 private:
  std::size_t first_range_ending_after(std::size_t offset) const;
  void mark(std::size_t begin, std::size_t end);

  std::string bytes_;
  std::vector<Range> literal_;
};

}  // namespace octet::jinja
