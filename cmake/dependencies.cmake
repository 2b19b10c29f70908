# Everything octet links with comes from Debian 12 packages (tools/install_packages.sh lists them).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
# Asio and Beast, which are headers alone.
find_package(Boost 1.74 REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# utf8proc (Unicode normalisation) has a pkg-config file but no CMake package.
find_package(PkgConfig REQUIRED)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
# The regular expressions of tokenizers that octet has no matcher of its own for.
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
# Of prometheus-cpp the core alone: its CMake package names its own HTTP server as well.
pkg_check_modules(prometheus REQUIRED IMPORTED_TARGET prometheus-cpp-core)

# xxhash tells models apart by what their files hold.
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
