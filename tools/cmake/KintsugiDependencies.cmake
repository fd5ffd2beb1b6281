# Libraries the project stands on. All are Debian packages; tools/setup installs what is missing.
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)               # Asio, header only
find_package(Protobuf REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Gloo REQUIRED)
find_package(Eigen3 REQUIRED NO_MODULE)

# Header-only use of xxHash: XXH_INLINE_ALL lets the compiler use the build's vector width and keeps its symbols ours.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(kintsugi_xxhash INTERFACE)
target_include_directories(kintsugi_xxhash SYSTEM INTERFACE "$<BUILD_INTERFACE:${XXHASH_INCLUDE_DIR}>")

find_path(ISAL_INCLUDE_DIR isa-l/crc.h REQUIRED)
find_library(ISAL_LIBRARY isal REQUIRED)
add_library(kintsugi_isal INTERFACE)
target_include_directories(kintsugi_isal SYSTEM INTERFACE "$<BUILD_INTERFACE:${ISAL_INCLUDE_DIR}>")
target_link_libraries(kintsugi_isal INTERFACE "${ISAL_LIBRARY}")

if(KINTSUGI_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(KINTSUGI_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
