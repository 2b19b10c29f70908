// Prompts of a given length for servers whose tokenizer is not at hand.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace octet {

// `tokens` short English words, each one token with its space to nearly every byte-pair vocabulary.
// Prompts drawn one after the other share no prefix worth caching.
std::string random_prompt(std::mt19937_64& random, std::int64_t tokens);

// A length within `ratio` of `length`, at least 1.
std::int64_t random_length(std::mt19937_64& random, std::int64_t length, double ratio);

}  // namespace octet
