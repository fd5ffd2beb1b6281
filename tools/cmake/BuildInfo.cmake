# Run at every build (cmake -P): writes OUTPUT, which names the commit, only where that changed, so that a new commit
# relinks one program and compiles one file. No path, host or time: the same sources give the same bytes.
execute_process(COMMAND "${CMAKE_COMMAND}" -E env GIT_OPTIONAL_LOCKS=0 git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "${COMMIT}")  # an archive of the sources has no history: packagers pass -DKINTSUGI_COMMIT=...
endif()
set(text "#define KINTSUGI_COMMIT \"${commit}\"\n")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" before)
endif()
if(NOT before STREQUAL text)
  file(WRITE "${OUTPUT}" "${text}")
endif()
