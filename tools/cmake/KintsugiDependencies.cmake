# Libraries the project stands on. All are Debian packages; tools/setup installs what is missing.
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)               # Asio, header only
find_package(Protobuf REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS SSL Crypto)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(simdjson REQUIRED)
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

# Sets KINTSUGI_HAVE_CUDA for the folders that have kernels. Only these need the toolkit: NCCL, NVML and the driver are
# loaded at run time. The sanitizers watch the host's code and do not build them.
set(KINTSUGI_HAVE_CUDA OFF)
if(KINTSUGI_CUDA AND NOT KINTSUGI_SANITIZE)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Machine code for Hopper, and what the driver of any other device from Turing on compiles when it loads it.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 75-virtual 90)
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20, which it has from 12.0 on
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit QUIET)
  endif()
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND)
    set(KINTSUGI_HAVE_CUDA ON)
  elseif(NOT KINTSUGI_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "KINTSUGI_CUDA=${KINTSUGI_CUDA}, but no CUDA Toolkit was found. Set CUDACXX to its nvcc, or use "
                        "KINTSUGI_CUDA=AUTO.")
  endif()
endif()
message(STATUS "CUDA kernels: ${KINTSUGI_HAVE_CUDA} ${CUDAToolkit_VERSION}")
