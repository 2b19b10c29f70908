# Everything octet links with comes from Debian 12 packages (tools/install_packages.sh lists them).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# utf8proc (Unicode normalisation) has a pkg-config file but no CMake package.
find_package(PkgConfig REQUIRED)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
