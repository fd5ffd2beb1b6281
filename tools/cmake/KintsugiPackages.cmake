# What an installation has beside programs and libraries (completions, man pages, a unit of systemd, pkg-config), and how
# Debian packages are made of it: ./tools/package.
set(pages "${PROJECT_BINARY_DIR}/pages")
add_custom_target(kintsugi_pages
  COMMAND "${PROJECT_SOURCE_DIR}/tools/lib/make_pages" "$<TARGET_FILE:kintsugi>" "${PROJECT_VERSION}" "${pages}"
  DEPENDS kintsugi VERBATIM COMMENT "completions and man pages")
add_dependencies(kintsugi_package kintsugi_pages)

install(DIRECTORY "${pages}/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}" COMPONENT runtime)
install(FILES "${pages}/completions/kintsugi" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
        COMPONENT runtime)
# Debian's zsh looks into a folder of its own below /usr.
install(CODE "
  set(folder \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/site-functions\")
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    set(folder \"/usr/share/zsh/vendor-completions\")
  endif()
  file(INSTALL \"${pages}/completions/_kintsugi\" DESTINATION \"\${folder}\")" COMPONENT runtime)
install(FILES "${PROJECT_SOURCE_DIR}/tools/packaging/kintsugi-controller@.service" DESTINATION lib/systemd/system
        COMPONENT runtime)
# Pages for people who have no sources, under plain names; their links lead from one to the other. tests/package/installed_test.py
# follows them.
install(CODE "
  execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/tools/lib/install_pages\" \"${PROJECT_SOURCE_DIR}\" \"${pages}/doc\"
    LICENSE=LICENSE CHANGELOG.md=CHANGELOG.md SECURITY.md=SECURITY.md tools/OPERATIONS.md=OPERATIONS.md tools/CAPACITY.md=CAPACITY.md
    tools/cli/docs/commands.md=commands.md integrations/engines/README.md=engines.md runtime/docs/faults.md=faults.md
    runtime/docs/hangs.md=hangs.md
    runtime/launcher/docs/hosts.md=hosts.md runtime/launcher/docs/certificates.md=certificates.md tools/observe/README.md=metrics.md tools/observe/docs/orders.md=orders.md
    tools/observe/grafana.json=grafana.json tools/observe/alerts.yml=alerts.yml tools/packaging/copyright=copyright
    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT runtime)
install(DIRECTORY "${pages}/doc/" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)

configure_file("${CMAKE_CURRENT_LIST_DIR}/kintsugi.pc.in" "${PROJECT_BINARY_DIR}/kintsugi.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/kintsugi.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT devel)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the authors of Kintsugi <kintsugi@localhost>")
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime devel)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME kintsugi)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
    "Starts the ranks of a training job, watches them, and repairs the run in memory when a process, a device or a host fails: the command kintsugi, and the library that trainers link.")
set(CPACK_DEBIAN_DEVEL_PACKAGE_NAME libkintsugi-dev)
set(CPACK_DEBIAN_DEVEL_PACKAGE_SECTION libdevel)
# What kintsugi-config.cmake looks for; libkintsugi.so alone (C, other languages) needs none of them.
set(CPACK_DEBIAN_DEVEL_PACKAGE_DEPENDS "kintsugi (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVEL_PACKAGE_RECOMMENDS "libboost1.81-dev, libprotobuf-dev, libspdlog-dev, libgloo-dev, libxxhash-dev, libisal-dev, libssl-dev, nlohmann-json3-dev, libsimdjson-dev")
set(CPACK_COMPONENT_DEVEL_DESCRIPTION
    "Headers and static libraries: what a trainer in C++ or C is built with, by find_package(kintsugi) or pkg-config kintsugi.")
include(CPack)
