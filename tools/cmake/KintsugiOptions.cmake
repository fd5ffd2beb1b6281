# Options of the build. Every one starts with KINTSUGI_ and has a default that works on a bare machine.
option(KINTSUGI_BUILD_TESTS "Build the tests" ON)
option(KINTSUGI_BUILD_BENCHMARKS "Build the benchmarks (Google Benchmark)" ON)
option(KINTSUGI_INSTALL "Generate install rules" ON)
option(KINTSUGI_UNITY "Compile the sources of a target several at a time; OFF: one by one, which a change of one file is faster with" ON)
set(KINTSUGI_SANITIZE "" CACHE STRING "Sanitizers for the whole build: empty, address (with undefined), thread, or fuzzer (Clang)")
set_property(CACHE KINTSUGI_SANITIZE PROPERTY STRINGS "" address thread fuzzer)
set(KINTSUGI_CUDA AUTO CACHE STRING "CUDA parts: AUTO where the toolkit is found, ON to require it, OFF")
set_property(CACHE KINTSUGI_CUDA PROPERTY STRINGS AUTO ON OFF)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# pip (scikit-build-core) knows no presets. The compiler cache is told what they and tools/lib/common.sh tell it.
if(SKBUILD AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(KINTSUGI_CCACHE ccache)
  if(KINTSUGI_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
                                    "${KINTSUGI_CCACHE}")
  else()
    # The cache names sources relative to the project; without it the compiler must be told to, so that a wheel holds no path.
    add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
  endif()
endif()

# GCC looks for garbage whenever its heap has doubled, which takes a seventh of the time of sources like these. With half a GiB to
# fill first it hardly looks at all, for a third more memory (1.4 GiB for the largest unit, 0.6 to 1.1 for others).
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>")
