# One function per kind of target, so that a folder's CMakeLists.txt says only what it has and what it needs.
include(GNUInstallDirs)

# Rooms that gain nothing from the third level of optimisation: what they do is read arguments and files of metadata, start
# processes and wait; bytes in bulk pass through the rooms below them. Without it they compile in two thirds of the time. So do the
# tests around what is tested. A source that is the exception has -O3 among its own options.
set(KINTSUGI_OPTIMISED_LESS
    "^(tools|runtime/(launcher|process|inject|device|journal)|replica/(save|formats|resume|layout)|integrations/(cpp|engines))(/|$)")

function(_kintsugi_optimise_less target)
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:-O1>")
endfunction()

function(_kintsugi_common target)
  _kintsugi_room(room)
  if(room MATCHES "${KINTSUGI_OPTIMISED_LESS}")
    _kintsugi_optimise_less(${target})
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wno-missing-field-initializers
    # GCC 12 at -O3 takes inactive members of a std::variant for uninitialized ones, and the pieces of a std::string sum for
    # overlapping ones (GCC bug 105329); the other presets keep both warnings.
    "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-maybe-uninitialized;-Wno-restrict>")
  if(KINTSUGI_SANITIZE STREQUAL "address")
    target_compile_options(${target} PUBLIC -fsanitize=address,undefined -fno-omit-frame-pointer
                           -fno-sanitize-recover=undefined)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  elseif(KINTSUGI_SANITIZE STREQUAL "thread")
    target_compile_options(${target} PUBLIC -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
    target_link_options(${target} PUBLIC -fsanitize=thread)
  elseif(KINTSUGI_SANITIZE STREQUAL "fuzzer")
    # Coverage for libFuzzer, which only the programs of tests/fuzz are linked with.
    target_compile_options(${target} PUBLIC -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer
                           -fno-sanitize-recover=undefined)
    target_link_options(${target} PUBLIC -fsanitize=fuzzer-no-link,address,undefined)
  endif()
endfunction()

# With KINTSUGI_UNITY: the sources of a target, as few files that include up to twenty of them each; most of what a small file
# costs the compiler are the headers of others. Which are together follows from the list alone: what one machine builds, every
# machine builds. CMake's own UNITY_BUILD names sources by absolute paths, so the compiler cache would know nothing in another
# clone. Left alone: generated sources, other languages, and what has options of its own (set before this). Two sources of one
# target may not give different things one name without a namespace of their own; SEPARATE names those that cannot be with others.
function(_kintsugi_together result target)
  cmake_parse_arguments(ARG "" "" "SOURCES;SEPARATE" ${ARGN})
  if(NOT KINTSUGI_UNITY)
    set(${result} ${ARG_SOURCES} PARENT_SCOPE)
    return()
  endif()
  set(kept)
  set(small)
  foreach(source IN LISTS ARG_SOURCES)
    get_source_file_property(options "${source}" COMPILE_OPTIONS)
    get_source_file_property(definitions "${source}" COMPILE_DEFINITIONS)
    if(IS_ABSOLUTE "${source}" OR NOT source MATCHES "\\.cc$" OR options OR definitions OR source IN_LIST ARG_SEPARATE)
      list(APPEND kept "${source}")
    else()
      list(APPEND small "${source}")
    endif()
  endforeach()
  list(LENGTH small count)
  math(EXPR units "(${count} + 19) / 20")
  set(unit 0)
  while(unit LESS units)
    # As even as they come: unit i holds the sources from i/units to (i+1)/units of them.
    math(EXPR begin "${unit} * ${count} / ${units}")
    math(EXPR length "(${unit} + 1) * ${count} / ${units} - ${begin}")
    list(SUBLIST small ${begin} ${length} included)
    _kintsugi_write_together(file "${target}" ${unit} ${included})
    list(APPEND kept "${file}")
    math(EXPR unit "${unit} + 1")
  endwhile()
  set(${result} ${kept} PARENT_SCOPE)
endfunction()

function(_kintsugi_write_together result target number)
  _kintsugi_room(room)
  set(text)
  foreach(source IN LISTS ARGN)
    cmake_path(SET path NORMALIZE "${room}/${source}")
    string(APPEND text "#include \"${path}\"\n")
  endforeach()
  set(file "${CMAKE_CURRENT_BINARY_DIR}/together/${target}_${number}.cc")
  file(CONFIGURE OUTPUT "${file}" CONTENT "${text}" @ONLY)  # leaves a file alone that says so already
  set(${result} "${file}" PARENT_SCOPE)
endfunction()

# The calling folder's path from the project's root.
function(_kintsugi_room result)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE room)
  set(${result} "${room}" PARENT_SCOPE)
endfunction()

# Examples, tools and the simulator have libraries too, but what is installed is the library itself.
function(_kintsugi_is_library room result)
  if(room MATCHES "^(integrations/examples|runtime/sim|tests|tools)(/|$)")
    set(${result} OFF PARENT_SCOPE)
  else()
    set(${result} ON PARENT_SCOPE)
  endif()
endfunction()

# Installs headers below include/kintsugi/<room>. Their includes of each other begin with kintsugi/ there, so that nothing of
# the package but that one name is on an outsider's include path: his own "runtime/agent.h" and ours cannot be confused.
function(kintsugi_install_headers room)
  if(NOT KINTSUGI_INSTALL)
    return()
  endif()
  foreach(header IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH header OUTPUT_VARIABLE source)
    cmake_path(APPEND room "${header}" OUTPUT_VARIABLE place)
    cmake_path(NORMAL_PATH place)
    cmake_path(IS_ABSOLUTE header is_absolute)
    if(is_absolute)
      cmake_path(GET header FILENAME name)
      set(place "${room}${name}")
    endif()
    set_property(GLOBAL APPEND PROPERTY KINTSUGI_PUBLIC_HEADERS "${source}")
    cmake_path(GET place PARENT_PATH folder)
    install(CODE "
      file(READ \"${source}\" text)
      string(REGEX REPLACE \"(#include \\\")(callbacks|integrations|kernels|replica|runtime)/\" \"\\\\1kintsugi/\\\\2/\" text \"\${text}\")
      file(WRITE \"${PROJECT_BINARY_DIR}/installed/${place}\" \"\${text}\")
      file(INSTALL \"${PROJECT_BINARY_DIR}/installed/${place}\" TYPE FILE
           DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/kintsugi/${folder}\")" COMPONENT devel)
  endforeach()
endfunction()

# kintsugi_library(<folder name> SOURCES ... HEADERS ... DEPS ... PRIVATE_DEPS ...)
#   target kintsugi_<name>, alias kintsugi::<name>. HEADERS are installed, under their path from the project's root: those that
#   a trainer names, and what they include. tests/package compiles every one of them from the installed tree alone.
function(kintsugi_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;SEPARATE;HEADERS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target kintsugi_${name})
  _kintsugi_together(sources ${target} SOURCES ${ARG_SOURCES} SEPARATE ${ARG_SEPARATE})
  add_library(${target} STATIC ${sources})
  add_library(kintsugi::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} LINKER_LANGUAGE CXX)
  target_include_directories(${target} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  _kintsugi_common(${target})
  _kintsugi_room(room)
  _kintsugi_is_library("${room}" is_library)
  if(is_library)
    kintsugi_install_headers("${room}" ${ARG_HEADERS})
    set_property(GLOBAL APPEND PROPERTY KINTSUGI_LIBRARIES ${target})
  endif()
endfunction()

# kintsugi_program(<name> SOURCES ... DEPS ...): a program in build/<preset>/bin. Benchmarks are called bench_<name>
# (tools/bench finds them); the others, but for those of tests, are built together by the target `programs`.
function(kintsugi_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;SEPARATE;DEPS" ${ARGN})
  _kintsugi_together(sources ${name} SOURCES ${ARG_SOURCES} SEPARATE ${ARG_SEPARATE})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  _kintsugi_common(${name})
  _kintsugi_room(room)
  if(NOT name MATCHES "^bench_" AND NOT room MATCHES "^tests(/|$)")
    set_property(GLOBAL APPEND PROPERTY KINTSUGI_PROGRAMS ${name})
    if(KINTSUGI_INSTALL AND room MATCHES "^tools(/|$)")
      install(TARGETS ${name} RUNTIME COMPONENT runtime)
      set_property(GLOBAL APPEND PROPERTY KINTSUGI_INSTALLED_PROGRAMS ${name})
    endif()
  endif()
endfunction()

# kintsugi_test(<name> SOURCES ... DEPS ... [TIMEOUT seconds] [LABELS ...]): a GoogleTest program, one ctest entry.
#   LABELS matrix and soak mark entries that run only with ./tools/test --matrix and --soak. WAITS: it mostly waits for limits to pass.
#   ./tools/test has two places a core: who keeps a core busy takes both (PROCESSORS 2), who waits takes one.
function(kintsugi_test name)
  cmake_parse_arguments(ARG "WAITS" "TIMEOUT" "SOURCES;SEPARATE;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set(places 2)
  if(ARG_WAITS)
    set(places 1)
  endif()
  _kintsugi_together(sources ${name} SOURCES ${ARG_SOURCES} SEPARATE ${ARG_SEPARATE})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  _kintsugi_common(${name})
  _kintsugi_optimise_less(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}" PROCESSORS ${places})
endfunction()

# kintsugi_cuda_library(<name> SOURCES ... DEPS ...): kernels compiled by nvcc, where KINTSUGI_HAVE_CUDA. Alias kintsugi::<name>.
#   Not part of libkintsugi, which runs on machines without a toolkit or a device; in the package its component `cuda`.
function(kintsugi_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;DEPS" ${ARGN})
  set(target kintsugi_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(kintsugi::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_VISIBILITY_PRESET hidden)
  target_include_directories(${target} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  # Relaxed: std::bit_cast and its like are constexpr functions of the host's library.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall>")
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE CUDA::cudart_static)
  _kintsugi_room(room)
  _kintsugi_is_library("${room}" is_library)
  if(KINTSUGI_INSTALL AND is_library)
    kintsugi_install_headers("${room}" ${ARG_HEADERS})
    install(TARGETS ${target} EXPORT kintsugi-cuda-targets ARCHIVE COMPONENT devel)
  endif()
endfunction()
