# kintsugi_protobuf(<target> <file.proto>...): compiles messages into <target>.
#
# The generated header is included from the project's root, as every other: "runtime/net/handshake.pb.h". CMake's own
# protobuf_generate cannot do that (it takes the calling folder as the root, also for imports), hence a command of ours.
# The files must say `option optimize_for = LITE_RUNTIME;`: the full runtime keeps a process-wide registry, in which a
# guest would meet its host's messages.
function(kintsugi_protobuf target)
  set(out "${PROJECT_BINARY_DIR}/generated")
  foreach(proto ${ARGN})
    cmake_path(ABSOLUTE_PATH proto BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE name)
    cmake_path(REMOVE_EXTENSION name LAST_ONLY OUTPUT_VARIABLE stem)
    cmake_path(GET stem PARENT_PATH folder)
    file(MAKE_DIRECTORY "${out}/${folder}")
    add_custom_command(
      OUTPUT "${out}/${stem}.pb.cc" "${out}/${stem}.pb.h"
      COMMAND protobuf::protoc "--cpp_out=${out}" "-I${PROJECT_SOURCE_DIR}" "${source}"
      DEPENDS "${source}" protobuf::protoc
      COMMENT "protoc ${name}" VERBATIM)
    # Another's code: its warnings are not ours to fix.
    set_source_files_properties("${out}/${stem}.pb.cc" PROPERTIES COMPILE_OPTIONS "-w")
    target_sources(${target} PRIVATE "${out}/${stem}.pb.cc" "${out}/${stem}.pb.h")
  endforeach()
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf-lite)
endfunction()
