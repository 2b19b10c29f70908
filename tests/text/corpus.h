// The texts that tokenizers are compared on, made the same way here and in tools/oracle/corpus.py.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/utf8.h"
#include "text/tokenizer.h"

namespace octet {
inline namespace test_support {

class CorpusGenerator {
 public:
  explicit CorpusGenerator(std::uint64_t seed) : state_(seed) {}

  std::uint32_t below(std::uint32_t end) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::uint32_t>((state_ * 0x2545F4914F6CDD1Du) >> 33) % end;
  }

  std::string snippet() { return std::string(snippets()[below(snippet_count)]); }

  std::string text() {
    std::string result;
    const std::uint32_t parts = 1 + below(12);
    for (std::uint32_t part = 0; part < parts; ++part) {
      if (below(100) < 35) {
        result += snippet();
        continue;
      }
      const auto [first, end] = ranges()[below(range_count)];
      const std::uint32_t characters = 1 + below(8);
      for (std::uint32_t i = 0; i < characters; ++i) {
        std::uint32_t code_point = first + below(end - first);
        if (code_point >= 0xD800 && code_point < 0xE000) code_point -= 0x1000;
        append_utf8(code_point, result);
      }
    }
    return result;
  }

 private:
  struct Range {
    std::uint32_t first;
    std::uint32_t end;
  };
  static constexpr std::uint32_t range_count = 24;
  static constexpr std::uint32_t snippet_count = 53;

  static const std::array<Range, range_count>& ranges() {
    static constexpr std::array<Range, range_count> all = {
        {{0x00, 0x80},        {0x20, 0x7F},       {0x41, 0x5B},       {0x61, 0x7B},
         {0x30, 0x3A},        {0x20, 0x21},       {0x09, 0x0E},       {0x80, 0x250},
         {0x250, 0x600},      {0x300, 0x370},     {0x600, 0xE00},     {0xE00, 0x1200},
         {0x1200, 0x2000},    {0x2000, 0x2070},   {0x2000, 0x3100},   {0x3040, 0xA000},
         {0xAC00, 0xD800},    {0xE000, 0x10000},  {0x10000, 0x20000}, {0x1F300, 0x1FAFF},
         {0x20000, 0x110000}, {0x10000, 0x12000}, {0x4E00, 0x4F00},   {0x410, 0x450}}};
    return all;
  }
  static const std::array<std::string_view, snippet_count>& snippets() {
    static constexpr std::array<std::string_view, snippet_count> all = {
        "'s",
        "'LL",
        "'Re",
        "'\u017f",
        "'t",
        "\r\n",
        "\n\n",
        "  ",
        " \n",
        "\t",
        "\t\t\t",
        "\n\n\n\n",
        "       ",
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<start_of_turn>",
        "<end_of_turn>",
        "</s>",
        "<s>",
        "<|",
        "|>",
        "<tool_call>",
        "<b>",
        "</table>",
        "<0x0A>",
        "\u2581",
        "\u2581\u2581",
        "\u0301",
        "\u0323",
        "\u1100\u1161",
        " the",
        "ing",
        "://",
        "...",
        "1",
        "12",
        "123456",
        "\u00a0",
        "\u3000",
        "\u200d",
        "\ufe0f",
        " world",
        "\u4f60\u597d",
        "\u3007",
        "HelloWorld",
        "iPhone",
        "\u01c5",
        "\u02b0A",
        "/\n/",
        "return x;\n",
        "\U0001f469\u200d\U0001f467"};
    return all;
  }

  std::uint64_t state_;
};

// Lines of a megabyte and more: words of one letter, prose of the generator, one script.
inline std::vector<std::string> long_texts() {
  const auto repeated = [](std::string_view unit, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += unit;
    return text;
  };
  CorpusGenerator generator(99);
  std::string mixed;
  for (int i = 0; i < 20'000; ++i) mixed += generator.text();
  std::replace(mixed.begin(), mixed.end(), '\n', ' ');
  std::replace(mixed.begin(), mixed.end(), '\r', ' ');
  std::string han;
  for (int i = 0; i < 350'000; ++i) append_utf8(0x4E00 + generator.below(0x5000), han);
  std::string words = generator.snippet();
  for (int i = 1; i < 150'000; ++i) words.append(1, ' ').append(generator.snippet());
  std::replace(words.begin(), words.end(), '\n', ' ');
  return {repeated("a", 1'000'000),
          repeated(" ", 1'000'000),
          mixed,
          han,
          words,
          repeated("\n", 1'000'000),
          repeated("1", 1'000'000),
          repeated("ab", 500'000)};
}

// Texts in which a token occurs, bare, between words and between spaces.
inline std::string added_text(std::string_view token) {
  const std::string text(token);
  return text + "a " + text + " b" + text + "\n" + text;
}

// FNV-1a.
class Hash {
 public:
  void add_bytes(std::string_view bytes) {
    for (const char byte : bytes) {
      state_ = (state_ ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
    }
  }
  void add_number(std::uint32_t number) {
    for (const int shift : {0, 8, 16, 24}) {
      state_ = (state_ ^ (number >> shift & 0xFF)) * 0x100000001B3u;
    }
  }
  void add_ids(std::span<const TokenId> ids) {
    for (const TokenId id : ids) add_number(static_cast<std::uint32_t>(id));
  }
  std::string text() const { return fmt::format("{:016x}", state_); }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325u;
};

}  // namespace test_support
}  // namespace octet
