// Writes whole files so that a reader never meets half of one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace octet {

struct FileContents {
  std::string path;
  std::vector<std::byte> bytes;
};

// Writes each file under a temporary name beside it, and renames them when all lie on the disk:
// where one cannot be written, the others are left as they were too. They can be read and written
// by whom the process's umask lets. Throws an Error that names the path and the system's reason:
// bad_input where the path is at fault, out_of_memory where a disk, a quota or a limit on a file's
// size is full, device for what else goes wrong.
void write_files_atomically(std::span<const FileContents> files);

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);

// Throws as above where `folder`, which need not be there yet, cannot be made or be written to:
// before the work whose results it is to hold. `name` says in errors what asked for it.
void require_writable_folder(const std::string& folder, const std::string& name);

}  // namespace octet
