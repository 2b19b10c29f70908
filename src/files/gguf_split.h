// Models that are split over several GGUF files, as llama.cpp's gguf-split and the gguf package
// write them: "m-00001-of-00003.gguf" and so on. The first part has the metadata, each has some of
// the tensors, and "split.no", "split.count" and "split.tensors.count" say how they belong
// together. Internal: GgufFile (files/gguf.h) is the interface.
#pragma once

#include <cstdint>
#include <string>

#include "files/gguf_directory.h"

namespace octet {

// How many parts the model of the file has: 1 where it is not split. Throws Error{bad_input} where
// the keys make no sense, and for a part that is not the first.
std::uint64_t count_of_parts(const GgufDirectory& first, const std::string& path);

// The path of part `part` (from 0), given that of the first. Throws Error{bad_input} where the
// latter does not end as the first of so many does.
std::string path_of_part(const std::string& first_path, std::uint64_t part, std::uint64_t count);

// Checks that `part` is what its path says and adds its tensors to those of the parts before it.
void add_part(GgufDirectory& model, GgufDirectory part, const std::string& part_path,
              std::uint64_t number, std::uint64_t count);

// After the last part: refuses a tensor that is in two of them, or a wrong number of tensors, and
// makes them findable.
void finish_parts(GgufDirectory& model, const std::string& path);

}  // namespace octet
