# Libraries the project stands on. All are Debian packages; tools/setup installs what is missing.
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)               # Asio, header only
find_package(Protobuf REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS SSL Crypto)
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
# The installed package names the library, not this machine's path to it.
target_link_libraries(kintsugi_isal INTERFACE "$<BUILD_INTERFACE:${ISAL_LIBRARY}>" "$<INSTALL_INTERFACE:isal>")

if(KINTSUGI_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)  # drives the tests of scripts and of the package
endif()
if(KINTSUGI_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

# Sets KINTSUGI_HAVE_CUDA and KINTSUGI_HAVE_NCCL for the folders that have GPU parts.
set(KINTSUGI_HAVE_CUDA OFF)
set(KINTSUGI_HAVE_NCCL OFF)
if(KINTSUGI_CUDA)
  find_package(CUDAToolkit QUIET)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(CUDAToolkit_FOUND)
    set(KINTSUGI_HAVE_CUDA ON)
  elseif(NOT KINTSUGI_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "KINTSUGI_CUDA=ON, but no CUDA Toolkit was found. Set CUDAToolkit_ROOT, or use KINTSUGI_CUDA=AUTO.")
  endif()
  if(KINTSUGI_HAVE_CUDA AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    set(KINTSUGI_HAVE_NCCL ON)
  endif()
endif()
message(STATUS "CUDA Toolkit: ${KINTSUGI_HAVE_CUDA} ${CUDAToolkit_VERSION}, NCCL: ${KINTSUGI_HAVE_NCCL} ${NCCL_LIBRARY}")
