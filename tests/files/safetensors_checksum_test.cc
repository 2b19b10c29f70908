#include "files/safetensors_checksum.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace octet {
namespace {

const std::vector<FloatTensor> tensors = {{"first", {2, 2}, {1, 2, 3, 4}}, {"second", {1}, {5}}};

std::shared_ptr<const Safetensors> open(std::vector<std::byte> bytes) {
  return Safetensors::from_bytes(std::move(bytes), "m.safetensors");
}

std::string checksum_of(const std::vector<std::byte>& bytes) {
  return std::string(find_metadata(*open(bytes), "octet.checksum"));
}

TEST(SafetensorsChecksum, WhatWasWrittenPasses) {
  const auto file = open(encode_checked_safetensors(tensors, {{"of", "a test"}}));
  EXPECT_TRUE(check_checksum(*file));
  EXPECT_EQ(find_metadata(*file, "of"), "a test");
  EXPECT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(find_metadata(*file, "octet.checksum").size(), 32u);
  EXPECT_FALSE(check_checksum(*open(encode_safetensors(tensors))));
}

// Every byte of the data, and what the header says of it.
TEST(SafetensorsChecksum, AnyOtherNumberNameOrNoteIsRefused) {
  const std::vector<std::byte> bytes = encode_checked_safetensors(tensors, {{"of", "a test"}});
  for (std::size_t i = bytes.size() - 20; i < bytes.size(); ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[i] ^= std::byte{0x10};
    try {
      check_checksum(*open(damaged));
      ADD_FAILURE() << "byte " << i << " passes";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_NE(std::string(error.what()).find("m.safetensors: is damaged"), std::string::npos);
    }
  }
  const std::string checksum = checksum_of(bytes);
  const auto passes = [&](const std::vector<FloatTensor>& other, const std::string& of) {
    try {
      return check_checksum(
          *open(encode_safetensors(other, {{"octet.checksum", checksum}, {"of", of}})));
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(passes(tensors, "a test"));
  EXPECT_TRUE(passes({tensors[1], tensors[0]}, "a test"));  // the order says nothing
  EXPECT_FALSE(passes(tensors, "another"));
  EXPECT_FALSE(passes({tensors[0]}, "a test"));
  EXPECT_FALSE(passes({{"first", {4}, {1, 2, 3, 4}}, tensors[1]}, "a test"));
  EXPECT_FALSE(passes({{"fist", {2, 2}, {1, 2, 3, 4}}, tensors[1]}, "a test"));
}

}  // namespace
}  // namespace octet
