#include "text/jinja/text_operations.h"

#include <algorithm>
#include <limits>
#include <string>

#include <string.h>  // memmem: not in <cstring>

#include "core/error.h"
#include "text/jinja/unicode.h"

namespace octet::jinja {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

std::size_t limit_of(std::int64_t count) {
  return count < 0 ? no_limit : static_cast<std::size_t>(count);
}

Value split_on_space(Budget& budget, const MarkedText& text, std::size_t limit) {
  const std::string& bytes = text.bytes();
  std::vector<Value> parts;
  std::size_t at = 0;
  while (true) {
    while (at < bytes.size() && is_python_space(decode_at(bytes, at))) {
      at += character_bytes(bytes[at]);
    }
    if (at == bytes.size()) break;
    std::size_t end = at;
    if (parts.size() == limit) {
      end = bytes.size();
    } else {
      while (end < bytes.size() && !is_python_space(decode_at(bytes, end))) {
        end += character_bytes(bytes[end]);
      }
    }
    budget.push(parts, budget.string(text.slice(at, end)));
    at = end;
  }
  return budget.list(std::move(parts));
}

Value split_on_space_from_right(Budget& budget, const MarkedText& text, std::size_t limit) {
  const std::string& bytes = text.bytes();
  std::vector<Value> parts;
  const auto space_before = [&bytes](std::size_t end) {
    return is_python_space(decode_at(bytes, previous_character(bytes, end)));
  };
  std::size_t end = bytes.size();
  while (true) {
    while (end > 0 && space_before(end)) end = previous_character(bytes, end);
    if (end == 0) break;
    std::size_t begin = end;
    if (parts.size() == limit) {
      begin = 0;
    } else {
      while (begin > 0 && !space_before(begin)) begin = previous_character(bytes, begin);
    }
    budget.push(parts, budget.string(text.slice(begin, end)));
    end = begin;
  }
  std::reverse(parts.begin(), parts.end());
  return budget.list(std::move(parts));
}

}  // namespace

Value strip(Budget& budget, const MarkedText& text, const MarkedText* characters, Sides sides) {
  const std::string& bytes = text.bytes();
  const auto drops = [&](std::size_t offset) {
    if (characters == nullptr) return is_python_space(decode_at(bytes, offset));
    budget.work(characters->size());
    const std::string_view character(bytes.data() + offset, character_bytes(bytes[offset]));
    return characters->bytes().find(character) != std::string::npos;
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  if (sides != Sides::right) {
    while (begin < end && drops(begin)) begin += character_bytes(bytes[begin]);
  }
  if (sides != Sides::left) {
    while (end > begin && drops(previous_character(bytes, end)))
      end = previous_character(bytes, end);
  }
  return budget.string(text.slice(begin, end));
}

Value escape(Budget& budget, const MarkedText& text) {
  TextBuilder out(budget);
  const std::string& bytes = text.bytes();
  std::size_t copied = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* entity = nullptr;
    if (bytes[i] == '&') entity = "&amp;";
    if (bytes[i] == '<') entity = "&lt;";
    if (bytes[i] == '>') entity = "&gt;";
    if (bytes[i] == '"') entity = "&#34;";
    if (bytes[i] == '\'') entity = "&#39;";
    if (entity == nullptr) continue;
    out.append_slice(text, copied, i);
    out.append(entity, text.is_literal_at(i));
    copied = i + 1;
  }
  out.append_slice(text, copied, bytes.size());
  return out.finish(true);
}

Value pad(Budget& budget, const MarkedText& text, std::int64_t width, const MarkedText& fill,
          Sides sides) {
  if (count_characters(fill.bytes()) != 1) throw_bad_input("padding needs exactly one character");
  budget.work(text.size());
  const auto length = static_cast<std::int64_t>(count_characters(text.bytes()));
  const std::int64_t missing = std::max<std::int64_t>(width - length, 0);
  if (missing > static_cast<std::int64_t>(max_string_bytes)) {
    throw_bad_input("the template pads a string beyond {} bytes", max_string_bytes);
  }
  // As str.center(): the odd one goes to the left where the width is odd.
  std::int64_t before = sides == Sides::left ? missing : 0;
  if (sides == Sides::both) before = missing / 2 + (missing & width & 1);
  TextBuilder out(budget);
  for (std::int64_t i = 0; i < before; ++i) out.append(fill);
  out.append(text);
  for (std::int64_t i = before; i < missing; ++i) out.append(fill);
  return out.finish();
}

Value replace(Budget& budget, const MarkedText& text, const MarkedText& old,
              const MarkedText& replacement, std::int64_t count) {
  const std::string& bytes = text.bytes();
  TextBuilder out(budget);
  std::size_t copied = 0;
  std::size_t search_from = 0;
  for (std::size_t left = limit_of(count); left > 0 && search_from <= bytes.size(); --left) {
    const std::optional<std::size_t> found = find(budget, bytes, old.bytes(), search_from);
    if (!found) break;
    out.append_slice(text, copied, *found);
    out.append(replacement);
    copied = *found + old.size();
    search_from = copied;
    if (old.empty()) {
      search_from += copied < bytes.size() ? character_bytes(bytes[copied]) : 1;
    }
  }
  out.append_slice(text, copied, bytes.size());
  return out.finish();
}

Value split(Budget& budget, const MarkedText& text, const MarkedText* separator,
            std::int64_t limit) {
  if (separator == nullptr) return split_on_space(budget, text, limit_of(limit));
  if (separator->empty()) throw_bad_input("split() needs a separator that is not empty");
  std::vector<Value> parts;
  std::size_t begin = 0;
  for (std::size_t left = limit_of(limit); left > 0; --left) {
    const std::optional<std::size_t> found = find(budget, text.bytes(), separator->bytes(), begin);
    if (!found) break;
    budget.push(parts, budget.string(text.slice(begin, *found)));
    begin = *found + separator->size();
  }
  budget.push(parts, budget.string(text.slice(begin, text.size())));
  return budget.list(std::move(parts));
}

Value split_from_right(Budget& budget, const MarkedText& text, const MarkedText* separator,
                       std::int64_t limit) {
  if (separator == nullptr) return split_on_space_from_right(budget, text, limit_of(limit));
  if (separator->empty()) throw_bad_input("rsplit() needs a separator that is not empty");
  // The search runs forwards over both texts reversed, so that it stays linear.
  budget.work(text.size());
  const std::string backwards(text.bytes().rbegin(), text.bytes().rend());
  const std::string backwards_separator(separator->bytes().rbegin(), separator->bytes().rend());
  std::vector<Value> parts;
  std::size_t begin = 0;  // in the reversed text
  const std::size_t size = text.size();
  for (std::size_t left = limit_of(limit); left > 0; --left) {
    const std::optional<std::size_t> found = find(budget, backwards, backwards_separator, begin);
    if (!found) break;
    budget.push(parts, budget.string(text.slice(size - *found, size - begin)));
    begin = *found + separator->size();
  }
  budget.push(parts, budget.string(text.slice(0, size - begin)));
  std::reverse(parts.begin(), parts.end());
  return budget.list(std::move(parts));
}

Value split_lines(Budget& budget, const MarkedText& text, bool keep_ends) {
  const std::string& bytes = text.bytes();
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = character_bytes(bytes[i]);
    if (!is_python_line_end(decode_at(bytes, i))) {
      i += length;
      continue;
    }
    const std::size_t end = i;
    i += bytes.compare(i, 2, "\r\n") == 0 ? 2 : length;
    budget.push(lines, budget.string(text.slice(begin, keep_ends ? i : end)));
    begin = i;
  }
  if (begin < bytes.size()) budget.push(lines, budget.string(text.slice(begin, bytes.size())));
  return budget.list(std::move(lines));
}

std::optional<std::size_t> find(Budget& budget, std::string_view text, std::string_view part,
                                std::size_t begin) {
  if (part.empty()) return begin;
  const void* found = ::memmem(text.data() + begin, text.size() - begin, part.data(), part.size());
  if (found == nullptr) {
    budget.work(text.size() - begin);
    return std::nullopt;
  }
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  budget.work(offset - begin + part.size());
  return offset;
}

std::optional<std::size_t> find_last(Budget& budget, std::string_view text, std::string_view part) {
  budget.work(text.size());
  const std::string backwards(text.rbegin(), text.rend());
  const std::string backwards_part(part.rbegin(), part.rend());
  const std::optional<std::size_t> found = find(budget, backwards, backwards_part);
  if (!found) return std::nullopt;
  return text.size() - *found - part.size();
}

SliceRange resolve_slice(std::size_t size, std::optional<std::int64_t> begin,
                         std::optional<std::int64_t> end, std::int64_t step) {
  if (step == 0) throw_bad_input("the step of a slice cannot be 0");
  const auto length = static_cast<std::int64_t>(size);
  const std::int64_t lowest = step < 0 ? -1 : 0;
  const std::int64_t highest = step < 0 ? length - 1 : length;
  const auto resolve = [&](std::optional<std::int64_t> index, std::int64_t missing) {
    if (!index) return missing;
    // A negative index counts from the end; adding to a negative number cannot overflow.
    const std::int64_t position = *index < 0 ? *index + length : *index;
    return std::clamp(position, lowest, highest);
  };
  const std::int64_t from = resolve(begin, step < 0 ? highest : lowest);
  const std::int64_t to = resolve(end, step < 0 ? lowest : highest);
  const std::int64_t distance = step < 0 ? from - to : to - from;
  if (distance <= 0) return {from, step, 0};
  // |step| without overflow for the lowest integer.
  const std::uint64_t stride =
      step < 0 ? 0 - static_cast<std::uint64_t>(step) : static_cast<std::uint64_t>(step);
  return {from, step,
          static_cast<std::size_t>((static_cast<std::uint64_t>(distance) - 1) / stride + 1)};
}

Value slice_text(Budget& budget, const MarkedText& text, std::optional<std::int64_t> begin,
                 std::optional<std::int64_t> end, std::int64_t step) {
  const std::string& bytes = text.bytes();
  budget.work(bytes.size());
  const SliceRange range = resolve_slice(count_characters(bytes), begin, end, step);
  TextBuilder out(budget);
  if (range.count == 0) return out.finish();
  std::size_t offset = offset_of_character(bytes, static_cast<std::size_t>(range.begin));
  if (step == 1) {
    const std::string_view rest = std::string_view(bytes).substr(offset);
    out.append_slice(text, offset, offset + offset_of_character(rest, range.count));
    return out.finish();
  }
  for (std::size_t taken = 0;;) {
    out.append_slice(text, offset, offset + character_bytes(bytes[offset]));
    if (++taken == range.count) return out.finish();
    // Within the text, since another item is due: the loop runs over each character once.
    for (std::int64_t i = 0; i < step; ++i) offset += character_bytes(bytes[offset]);
    for (std::int64_t i = 0; i > step; --i) offset = previous_character(bytes, offset);
  }
}

std::vector<Value> characters_of(Budget& budget, const MarkedText& text) {
  std::vector<Value> characters;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t next = i + character_bytes(text.bytes()[i]);
    budget.push(characters, budget.string(text.slice(i, next)));
    i = next;
  }
  return characters;
}

}  // namespace octet::jinja
