#include "files/safetensors.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/json_reader.h"
#include "core/printable.h"
#include "files/mapped_file.h"
#include "files/name_index.h"

namespace octet {

namespace {

// Kimi-K2.5's index, of 208,550 tensors, has 24 MB.
constexpr std::size_t max_index_bytes = 100'000'000;
constexpr std::size_t max_files = 10'000;
constexpr std::size_t max_file_name_bytes = 255;  // what Linux allows

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What an index says.
struct WeightMap {
  std::vector<std::string> files;  // ascending, each once
  struct Entry {
    std::string tensor;
    std::size_t file;
  };
  std::vector<Entry> entries;  // in ascending order of the tensors' names, each once
};

class IndexParser {
 public:
  IndexParser(std::string_view text, const std::string& file) : file_(file), reader_(text, file_) {}

  WeightMap parse() {
    bool found = false;
    reader_.begin_object();
    while (const auto key = reader_.next_key()) {
      if (*key == "weight_map") {
        if (found) throw_bad_input("{}: has the key 'weight_map' twice, expected it once", file_);
        found = true;
        read_weight_map();
      } else {
        reader_.skip_value();
      }
    }
    reader_.finish();
    if (!found || map_.entries.empty()) {
      throw_bad_input("{}: has no 'weight_map' that names a tensor's file", file_);
    }
    sort_files();
    sort_entries();
    return std::move(map_);
  }

 private:
  void read_weight_map() {
    reader_.begin_object();
    while (const auto key = reader_.next_key()) {
      WeightMap::Entry entry = {std::string(*key), 0};
      const std::string_view name = reader_.read_string();
      entry.file = file_number(name, entry.tensor);
      map_.entries.push_back(std::move(entry));
    }
  }

  std::size_t file_number(std::string_view name, std::string_view tensor) {
    if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
    refuse_path(name, tensor);
    if (map_.files.size() == max_files) {
      throw_bad_input("{}: names more than {} files", file_, max_files);
    }
    numbers_.emplace(name, map_.files.size());
    map_.files.emplace_back(name);
    return map_.files.size() - 1;
  }

  void refuse_path(std::string_view name, std::string_view tensor) const {
    const bool has_bad_character = std::any_of(name.begin(), name.end(), [](char character) {
      return static_cast<unsigned char>(character) < 0x20 || character == 0x7F || character == '/';
    });
    if (!name.empty() && name.size() <= max_file_name_bytes && name != "." && name != ".." &&
        !has_bad_character) {
      return;
    }
    throw_bad_input("{}: puts tensor {} into {}, expected the name of a file in its own folder",
                    file_, printable(tensor), printable(name));
  }

  void sort_files() {
    std::vector<std::size_t> number_of(map_.files.size());
    std::size_t number = 0;
    for (const auto& [name, old_number] : numbers_) {
      map_.files[number] = name;
      number_of[old_number] = number++;
    }
    for (WeightMap::Entry& entry : map_.entries) entry.file = number_of[entry.file];
  }

  void sort_entries() {
    auto& entries = map_.entries;
    std::sort(entries.begin(), entries.end(),
              [](const auto& left, const auto& right) { return left.tensor < right.tensor; });
    const auto twice = std::adjacent_find(
        entries.begin(), entries.end(),
        [](const auto& left, const auto& right) { return left.tensor == right.tensor; });
    if (twice != entries.end()) {
      throw_bad_input("{}: names tensor {} twice, expected once", file_, printable(twice->tensor));
    }
  }

  const std::string& file_;
  JsonReader reader_;
  std::map<std::string, std::size_t, std::less<>> numbers_;  // of the files, as first met
  WeightMap map_;
};

// The path of `name` in the folder of the file at `path`.
std::string beside(const std::string& path, const std::string& name) {
  return path.substr(0, path.rfind('/') + 1) + name;
}

}  // namespace

struct Safetensors::Contents {
  std::string path;
  std::deque<MappedFile> mappings;
  std::vector<std::byte> owned;  // holds the bytes where they are not mapped
  struct File {
    std::string path;
    std::uint64_t bytes = 0;
    std::size_t end = 0;  // of its tensors among all
  };
  std::vector<File> files;
  std::vector<StoredTensor> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  NameIndex index;

  void add_file(const std::string& file, std::span<const std::byte> bytes) {
    SafetensorsDirectory directory = parse_safetensors(bytes, file);
    if (files.empty()) metadata = std::move(directory.metadata);
    tensors.insert(tensors.end(), std::make_move_iterator(directory.tensors.begin()),
                   std::make_move_iterator(directory.tensors.end()));
    files.push_back({file, bytes.size(), tensors.size()});
  }

  void map_file(const std::string& file) { add_file(file, mappings.emplace_back(file).bytes()); }

  std::size_t file_number(std::size_t position) const {
    const auto file = std::upper_bound(
        files.begin(), files.end(), position,
        [](std::size_t value, const File& candidate) { return value < candidate.end; });
    return static_cast<std::size_t>(file - files.begin());
  }

  void index_tensors() {
    for (std::size_t position = 0; position < tensors.size(); ++position) {
      index.add(tensors[position].view.name, position);
    }
    if (const auto twice = index.sort()) refuse_second_place(*twice);
  }

  [[noreturn]] void refuse_second_place(std::string_view name) const {
    std::vector<std::string> places;
    for (const NameIndex::Slot& slot : index.slots()) {
      if (slot.name == name) places.push_back(files[file_number(slot.position)].path);
    }
    std::sort(places.begin(), places.end());
    if (places[0] == places[1]) {
      throw_bad_input("{}: tensor {}: stands in the file twice, expected once", places[0],
                      printable(name));
    }
    throw_bad_input("{}: tensor {} is in {} too, expected it in one file", places[0],
                    printable(name), places[1]);
  }

  // Both are in ascending order of the names.
  void check_places(const WeightMap& map) const {
    auto slot = index.slots().begin();
    for (const WeightMap::Entry& entry : map.entries) {
      while (slot != index.slots().end() && slot->name < entry.tensor) ++slot;
      const bool exists = slot != index.slots().end() && slot->name == entry.tensor;
      if (exists && file_number(slot->position) == entry.file) continue;
      throw_bad_input("{}: puts tensor {} into {}, which does not hold it", path,
                      printable(entry.tensor), printable(map.files[entry.file]));
    }
  }
};

Safetensors::Safetensors() : contents_(std::make_unique<Contents>()) {}
Safetensors::~Safetensors() = default;

std::shared_ptr<const Safetensors> Safetensors::open_file(const std::string& path) {
  std::shared_ptr<Safetensors> model(new Safetensors());
  model->contents_->path = path;
  model->contents_->map_file(path);
  model->contents_->index_tensors();
  return model;
}

std::shared_ptr<const Safetensors> Safetensors::open_index(const std::string& path) {
  std::shared_ptr<Safetensors> model(new Safetensors());
  Contents& contents = *model->contents_;
  contents.path = path;
  const MappedFile mapping(path);
  if (mapping.bytes().size() > max_index_bytes) {
    throw_bad_input("{}: has {} bytes, expected at most {}", path, mapping.bytes().size(),
                    max_index_bytes);
  }
  const WeightMap map = IndexParser(text_of(mapping.bytes()), path).parse();
  contents.tensors.reserve(map.entries.size());
  for (const std::string& file : map.files) {
    const std::string file_path = beside(path, file);
    std::error_code error;
    if (!std::filesystem::exists(file_path, error)) {
      throw_bad_input("{}: names the file {}, which its folder lacks", path, printable(file));
    }
    contents.map_file(file_path);
  }
  contents.index_tensors();
  contents.check_places(map);
  return model;
}

std::shared_ptr<const Safetensors> Safetensors::from_bytes(std::vector<std::byte> bytes,
                                                           const std::string& name) {
  std::shared_ptr<Safetensors> model(new Safetensors());
  Contents& contents = *model->contents_;
  contents.path = name;
  contents.owned = std::move(bytes);
  contents.add_file(name, contents.owned);
  contents.index_tensors();
  return model;
}

const std::string& Safetensors::path() const { return contents_->path; }

std::uint64_t Safetensors::file_bytes() const {
  std::uint64_t sum = 0;
  for (const Contents::File& file : contents_->files) sum += file.bytes;
  return sum;
}

const std::vector<StoredTensor>& Safetensors::tensors() const { return contents_->tensors; }

const std::vector<std::pair<std::string, std::string>>& Safetensors::metadata() const {
  return contents_->metadata;
}

const StoredTensor* Safetensors::find_stored(std::string_view name) const {
  const std::size_t position = contents_->index.find(name);
  return position == NameIndex::npos ? nullptr : &contents_->tensors[position];
}

const TensorView* Safetensors::find(std::string_view name) const {
  const StoredTensor* tensor = find_stored(name);
  if (tensor == nullptr) return nullptr;
  if (!tensor->dtype) {
    throw_unsupported("{}: tensor {} has type {}, expected one of {}", file_of(*tensor),
                      printable(name), tensor->type, readable_safetensors_types());
  }
  return &tensor->view;
}

const TensorView& Safetensors::require(std::string_view name) const {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) throw_bad_input("{}: tensor {} is missing", path(), printable(name));
  return *tensor;
}

const std::string& Safetensors::file_of(const StoredTensor& tensor) const {
  const auto position = static_cast<std::size_t>(&tensor - contents_->tensors.data());
  return contents_->files[contents_->file_number(position)].path;
}

}  // namespace octet
