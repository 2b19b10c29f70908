#include "text/jinja/budget.h"

#include <algorithm>

#include "core/error.h"

namespace octet::jinja {

void Budget::step(std::size_t count) {
  steps_ +=
      count;  // cannot overflow: a count is at most a size in memory, and the first excess throws
  if (steps_ > max_steps) throw_bad_input("the template takes more than {} steps", max_steps);
}

Charge Budget::charge(std::size_t bytes) {
  if (bytes > max_live_bytes - live_bytes_) {
    throw_bad_input("the template's values take more than {} bytes", max_live_bytes);
  }
  live_bytes_ += bytes;
  return Charge(*this, bytes);
}

Value Budget::string(MarkedText text, bool markup) {
  work(text.size());
  Charge held = charge(sizeof(StringObject) + text.heap_bytes());
  return Value(Value::Storage(std::make_shared<const StringObject>(
      StringObject{std::move(text), std::move(held), markup})));
}

Value Budget::list(std::vector<Value> items, ListKind kind) {
  step(1 + items.size());
  auto object = std::make_shared<ListObject>();
  object->charge = charge(sizeof(ListObject) + items.capacity() * sizeof(Value));
  for (const Value& item : items) object->depth = std::max(object->depth, item.depth() + 1);
  check_depth(object->depth);
  object->items = std::move(items);
  object->kind = kind;
  return Value(Value::Storage(ListPointer(std::move(object))));
}

Value Budget::dict(std::vector<DictEntry> entries) {
  // An entry is two values here, and a node of the index with a copy of its key.
  std::size_t bytes = sizeof(DictObject);
  for (const DictEntry& entry : entries) {
    const MarkedText* text = entry.first.text();
    bytes += sizeof(DictEntry) + 96 + (text == nullptr ? 0 : text->size());
  }
  work(bytes);
  Charge held = charge(bytes);
  auto object = std::make_shared<DictObject>(std::move(entries));
  check_depth(object->depth());
  object->set_charge(std::move(held));
  return Value(Value::Storage(DictPointer(std::move(object))));
}

Value Budget::method(Value object, const BuiltinMethod* method) {
  Charge held = charge(sizeof(MethodObject));
  const int depth = object.depth() + 1;
  check_depth(depth);
  return Value(Value::Storage(MethodPointer(std::make_shared<const MethodObject>(
      MethodObject{std::move(object), method, depth, std::move(held)}))));
}

void Budget::push(std::vector<Value>& items, Value item) {
  step();
  if (items.size() >= max_list_items) {
    throw_bad_input("a list of the template has more than {} items", max_list_items);
  }
  items.push_back(std::move(item));
}

void Budget::check_depth(int depth) const {
  if (depth > max_value_depth) {
    throw_bad_input("the template puts lists and dicts inside each other more than {} deep",
                    max_value_depth);
  }
}

void TextBuilder::reserve(std::size_t more) {
  if (more > limit_ - text_.size()) {
    throw_bad_input("{} of the template is longer than {} bytes", what_, limit_);
  }
  budget_->work(more);
}

}  // namespace octet::jinja
