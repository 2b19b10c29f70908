// Shares pages between sequences whose texts begin alike.
#pragma once

#include <cstdint>
#include <string>

#include "engine/sequence.h"
#include "kv/page_key.h"
#include "kv/prefix_index.h"

namespace octet {

// Every full page of every sequence, prompt and answer, becomes known by its key as soon as the
// rows that fill it are part of a step; a sequence that comes to the same key takes that page in
// place of computing it. So sequences that read the same text at the same time share the work too,
// each taking what the other has just done.
//
// A page of a step can be adopted in that same step by sequences after it in the batch: a layer
// writes all rows' keys and values before it reads any. Full pages are not written again.
class PrefixCache {
 public:
  // `model` and `policy` are part of every key: what the bytes of a page depend on beside its text.
  PrefixCache(PagePool& pool, std::string model, std::string policy);

  // Takes the pages that are known from the sequence's computed tokens on, if there are any, and
  // moves these on.
  void adopt(Sequence& sequence);
  // For a sequence that computes tokens up to `end` in this step and holds their pages.
  void share(Sequence& sequence, std::int64_t end);

  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }

 private:
  void extend_keys(Sequence& sequence, std::int64_t pages);

  PrefixIndex index_;
  PageHasher hasher_;
  std::string model_;
  std::string policy_;
};

}  // namespace octet
