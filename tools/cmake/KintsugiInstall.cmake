# What the folders' libraries become together, and how they are installed:
#   kintsugi::kintsugi   all static libraries, for a C++ trainer
#   kintsugi::shared     libkintsugi.so, the guest of other processes (Python beside torch)
#   programs             build target: every program that is not a benchmark
# tests/package builds an outside project against the installed tree and loads the shared library beside torch.
#
# Included last: the folders have registered their libraries in the global property KINTSUGI_LIBRARIES.
include(CMakePackageConfigHelpers)

get_property(kintsugi_libraries GLOBAL PROPERTY KINTSUGI_LIBRARIES)
get_property(kintsugi_programs GLOBAL PROPERTY KINTSUGI_PROGRAMS)
get_property(kintsugi_installed_programs GLOBAL PROPERTY KINTSUGI_INSTALLED_PROGRAMS)

add_library(kintsugi_kintsugi INTERFACE)
add_library(kintsugi::kintsugi ALIAS kintsugi_kintsugi)
set_target_properties(kintsugi_kintsugi PROPERTIES EXPORT_NAME kintsugi)
target_link_libraries(kintsugi_kintsugi INTERFACE ${kintsugi_libraries})

add_custom_target(programs)
if(kintsugi_programs)
  add_dependencies(programs ${kintsugi_programs})
endif()

# --- what the folders link ----------------------------------------------------------------------------------------
# A library that a folder links must be found again by the outside project. This is the one list of how.
set(kintsugi_find_Threads::Threads "find_dependency(Threads)")
set(kintsugi_find_Boost::headers "find_dependency(Boost 1.74)")
set(kintsugi_find_Boost::boost "find_dependency(Boost 1.74)")
set(kintsugi_find_protobuf::libprotobuf "find_dependency(Protobuf)")
set(kintsugi_find_protobuf::libprotobuf-lite "find_dependency(Protobuf)")
set(kintsugi_find_OpenSSL::Crypto "find_dependency(OpenSSL COMPONENTS Crypto)")
set(kintsugi_find_OpenSSL::SSL "find_dependency(OpenSSL COMPONENTS SSL Crypto)")
set(kintsugi_find_spdlog::spdlog "find_dependency(spdlog)")
set(kintsugi_find_spdlog::spdlog_header_only "find_dependency(spdlog)")
set(kintsugi_find_nlohmann_json::nlohmann_json "find_dependency(nlohmann_json)")
set(kintsugi_find_simdjson::simdjson "find_dependency(simdjson)")
set(kintsugi_find_CLI11::CLI11 "find_dependency(CLI11)")
set(kintsugi_find_gloo "find_dependency(Gloo)")
set(kintsugi_find_Eigen3::Eigen "find_dependency(Eigen3 NO_MODULE)")

set(kintsugi_helpers "")
set(kintsugi_foreign_libraries "")
set(KINTSUGI_FIND_DEPENDENCIES "")
foreach(library IN LISTS kintsugi_libraries)
  get_target_property(links ${library} INTERFACE_LINK_LIBRARIES)
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" link "${link}")
    if(link MATCHES "^kintsugi(::|_)")
      if(link MATCHES "^kintsugi_(xxhash|isal)$")
        list(APPEND kintsugi_helpers ${link})
        list(APPEND kintsugi_foreign_libraries ${link})
      endif()
    elseif(DEFINED kintsugi_find_${link})
      list(APPEND KINTSUGI_FIND_DEPENDENCIES "${kintsugi_find_${link}}")
      list(APPEND kintsugi_foreign_libraries ${link})
    elseif(link MATCHES "::")
      message(FATAL_ERROR "${library} links ${link}, and the installed package does not know how to find that again: "
                          "add it to the list in tools/cmake/KintsugiInstall.cmake.")
    else()
      list(APPEND kintsugi_foreign_libraries ${link})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES kintsugi_helpers)
list(REMOVE_DUPLICATES kintsugi_foreign_libraries)
list(REMOVE_DUPLICATES KINTSUGI_FIND_DEPENDENCIES)
list(JOIN KINTSUGI_FIND_DEPENDENCIES "\n" KINTSUGI_FIND_DEPENDENCIES)

# --- libkintsugi.so -----------------------------------------------------------------------------------------------
# Hidden visibility keeps our own symbols in; the version script also keeps in what headers of others instantiate.
set(kintsugi_symbols "${CMAKE_CURRENT_LIST_DIR}/kintsugi_symbols.map")
configure_file("${CMAKE_CURRENT_LIST_DIR}/kintsugi_version.cc.in" "${PROJECT_BINARY_DIR}/generated/kintsugi_version.cc" @ONLY)
add_library(kintsugi_shared SHARED "${PROJECT_BINARY_DIR}/generated/kintsugi_version.cc")
add_library(kintsugi::shared ALIAS kintsugi_shared)
set_target_properties(kintsugi_shared PROPERTIES
  EXPORT_NAME shared OUTPUT_NAME kintsugi LINKER_LANGUAGE CXX
  VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}"
  LINK_DEPENDS "${kintsugi_symbols}")
add_dependencies(kintsugi_shared ${kintsugi_libraries})
# The archives go in as files, each once and whole. (CMake's own WHOLE_ARCHIVE feature names an archive again for every
# library that links it, which gives duplicate symbols.)
target_link_libraries(kintsugi_shared PRIVATE -Wl,--whole-archive)
foreach(library IN LISTS kintsugi_libraries)
  target_link_libraries(kintsugi_shared PRIVATE "$<TARGET_FILE:${library}>")
endforeach()
target_link_libraries(kintsugi_shared PRIVATE -Wl,--no-whole-archive ${kintsugi_foreign_libraries})
target_link_options(kintsugi_shared PRIVATE "LINKER:--version-script=${kintsugi_symbols}" "LINKER:-z,defs"
                    "LINKER:--as-needed")
target_include_directories(kintsugi_shared PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
                           "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(kintsugi_shared INTERFACE cxx_std_20)
_kintsugi_common(kintsugi_shared)

# --- the wheel ----------------------------------------------------------------------------------------------------
if(SKBUILD)
  include(KintsugiWheel)
endif()

if(NOT KINTSUGI_INSTALL)
  return()
endif()

# --- the package --------------------------------------------------------------------------------------------------
# What the first install rule (CMakeLists.txt) builds where only a part was built before.
add_custom_target(kintsugi_package DEPENDS kintsugi_shared ${kintsugi_libraries} ${kintsugi_installed_programs})
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/kintsugi")
install(TARGETS kintsugi_kintsugi ${kintsugi_libraries} ${kintsugi_helpers} EXPORT kintsugi-targets
        ARCHIVE COMPONENT devel)
# Apart from the rest: it stands on nothing that would have to be found.
install(TARGETS kintsugi_shared EXPORT kintsugi-shared-targets LIBRARY COMPONENT runtime NAMELINK_COMPONENT devel)
install(EXPORT kintsugi-targets NAMESPACE kintsugi:: DESTINATION "${package_folder}" COMPONENT devel)
install(EXPORT kintsugi-shared-targets NAMESPACE kintsugi:: DESTINATION "${package_folder}" COMPONENT devel)
# Apart from the rest: only who asks for it needs the CUDA Toolkit.
if(KINTSUGI_HAVE_CUDA)
  add_dependencies(kintsugi_package kintsugi_cuda)
  install(EXPORT kintsugi-cuda-targets NAMESPACE kintsugi:: DESTINATION "${package_folder}" COMPONENT devel)
endif()
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/kintsugi-config.cmake.in"
  "${PROJECT_BINARY_DIR}/kintsugi-config.cmake" INSTALL_DESTINATION "${package_folder}"
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/kintsugi-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/kintsugi-config.cmake" "${PROJECT_BINARY_DIR}/kintsugi-config-version.cmake"
        DESTINATION "${package_folder}" COMPONENT devel)
include(KintsugiPackages)

# --- their reference ----------------------------------------------------------------------------------------------
get_property(reference_headers GLOBAL PROPERTY KINTSUGI_PUBLIC_HEADERS)
list(JOIN reference_headers " " reference_headers)
configure_file("${CMAKE_CURRENT_LIST_DIR}/Doxyfile.in" "${PROJECT_BINARY_DIR}/Doxyfile" @ONLY)
add_custom_target(kintsugi_docs COMMAND doxygen "${PROJECT_BINARY_DIR}/Doxyfile" VERBATIM)
