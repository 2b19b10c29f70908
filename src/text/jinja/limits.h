// What one chat template may use up.
//
// A template comes inside a model file, so it is a program by a stranger. The limits are far above
// what the templates of real models need (the longest known is 25 KB and renders a message in a few
// hundred steps) and low enough that the worst template is refused within about a second and within
// some 350 MB: max_live_bytes plus one string or list that is being built. Past any of them parse()
// or render() throws Error{bad_input}.
#pragma once

#include <cstddef>

namespace octet::jinja {

inline constexpr std::size_t max_source_bytes = 256 * 1024;

// Brackets, blocks and unary operators inside each other while parsing, and the height of an
// expression's tree: with it, of every recursion over the tree, its destructor included.
inline constexpr int max_nesting = 100;
inline constexpr int max_tree_height = 250;

// Expressions and statements being evaluated inside each other, calls of macros included. One level
// takes less than 1 KB of stack (4 KB under AddressSanitizer).
inline constexpr int max_evaluation_depth = 1000;

// Lists and dicts inside each other: bounds the recursion of printing, comparing and destroying.
inline constexpr int max_value_depth = 100;

// A step is one evaluated node, one element touched, or 64 bytes of text read or copied.
inline constexpr std::size_t max_steps = 10'000'000;
inline constexpr std::size_t bytes_per_step = 64;

inline constexpr std::size_t max_output_bytes = 16 << 20;
inline constexpr std::size_t max_string_bytes = 16 << 20;
inline constexpr std::size_t max_list_items = 1'000'000;
inline constexpr std::size_t max_keywords = 1000;        // that "**" gives
inline constexpr std::size_t max_range_items = 100'000;  // as Jinja's sandbox

// Strings, lists and dicts that are alive at one time, with what they weigh beyond their bytes.
inline constexpr std::size_t max_live_bytes = 256 << 20;

}  // namespace octet::jinja
