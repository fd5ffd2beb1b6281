# What `pip install .` puts into its wheel (pyproject.toml): the package, the library, the command and, where the Python that is
# installed for has torch, the extension for that torch.
if(NOT KINTSUGI_HAVE_PYTHON)
  message(FATAL_ERROR "The wheel needs nanobind and the headers of ${Python_EXECUTABLE}: install python3-dev.")
endif()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/integrations/python/kintsugi/" DESTINATION kintsugi COMPONENT python
        PATTERN "__pycache__" EXCLUDE PATTERN "*.md" EXCLUDE)
# Out of the way of a real mindio_ttp: the path file makes it one's own where KINTSUGI_MINDIO=1 is set, and does nothing elsewhere.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/integrations/python/mindio_ttp/" DESTINATION kintsugi/compat/mindio_ttp COMPONENT python
        PATTERN "__pycache__" EXCLUDE PATTERN "*.cc" EXCLUDE)
install(TARGETS kintsugi_mindio LIBRARY DESTINATION kintsugi/compat/mindio_ttp/mindspore_api COMPONENT python)
foreach(name framework_ttp/libttp_framework.so libttp.so)
  cmake_path(GET name PARENT_PATH folder)
  cmake_path(GET name FILENAME file)
  install(PROGRAMS "$<TARGET_FILE:kintsugi_mindio>" DESTINATION kintsugi/compat/mindio_ttp/${folder} RENAME ${file} COMPONENT python)
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/integrations/python/kintsugi_mindio.pth" DESTINATION . COMPONENT python)
install(TARGETS kintsugi_python LIBRARY DESTINATION kintsugi COMPONENT python)
install(TARGETS kintsugi_watched LIBRARY DESTINATION kintsugi/watch COMPONENT python)
# Under the one name that is asked for: in a wheel a symbolic link is a second copy.
install(PROGRAMS "$<TARGET_FILE:kintsugi_shared>" DESTINATION kintsugi RENAME "$<TARGET_SONAME_FILE_NAME:kintsugi_shared>"
        COMPONENT python)
install(TARGETS kintsugi RUNTIME DESTINATION kintsugi/bin COMPONENT python)
# Beside the library, for programs in C.
install(FILES "${PROJECT_BINARY_DIR}/generated/kintsugi/kintsugi.h" DESTINATION kintsugi/include/kintsugi COMPONENT python)
# `kintsugi demo` looks for it beside the command.
option(KINTSUGI_PORTABLE_WHEEL "The wheel of ./tools/package --wheel: with the demonstration's trainer" OFF)
if(KINTSUGI_PORTABLE_WHEEL)
  install(TARGETS byte_lm RUNTIME DESTINATION kintsugi/bin COMPONENT python)
endif()
# Beside libkintsugi, which looks for it there; a toolkit whose compiler is of no use here is no reason for an installation to fail, so none is
# looked for unless KINTSUGI_CUDA=AUTO says so.
add_custom_target(kintsugi_wheel_kernels)
if(KINTSUGI_HAVE_CUDA)
  add_dependencies(kintsugi_wheel_kernels kintsugi_cuda)
  install(TARGETS kintsugi_cuda LIBRARY DESTINATION kintsugi COMPONENT python)
endif()

# pip builds in an environment of its own, from which the one that is installed into cannot be seen. -I: but by this.
execute_process(COMMAND "${Python_EXECUTABLE}" -I -W ignore -c "import torch; print(torch.__version__)"
                OUTPUT_VARIABLE torch_version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
message(STATUS "Extension for torch: ${torch_version}")
set(torch_folder "${PROJECT_BINARY_DIR}/torch")
# A failure costs the extension and not the installation: the first use tries again, and says what is missing.
if(torch_version)
  add_custom_target(kintsugi_torch
    COMMAND "${CMAKE_COMMAND}" -E env "KINTSUGI_TORCH_CACHE=${torch_folder}" "${Python_EXECUTABLE}" -I -W ignore -c
            "import sys; sys.path.insert(0, '${PROJECT_BINARY_DIR}/python'); import kintsugi.torch._build as build; build.keep_newest()"
            || "${CMAKE_COMMAND}" -E echo "The extension for torch ${torch_version} is left to its first use."
    COMMENT "Building the extension for torch ${torch_version}" USES_TERMINAL VERBATIM)
  add_dependencies(kintsugi_torch kintsugi_python kintsugi_shared)
  # The folder outlives a build: what was made for another torch, or from older sources, is gone by then.
  install(DIRECTORY "${torch_folder}/" DESTINATION kintsugi/torch/built COMPONENT python OPTIONAL
          FILES_MATCHING PATTERN "*.so")
else()
  add_custom_target(kintsugi_torch)
endif()
