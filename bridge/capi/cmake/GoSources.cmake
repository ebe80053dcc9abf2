# Sets what every target built by Go shares: the module's root, its version, and the files on which such a target depends.

get_filename_component(MORPHSEEK_ROOT ${CMAKE_CURRENT_LIST_DIR}/../../.. ABSOLUTE)

file(STRINGS ${MORPHSEEK_ROOT}/engine/engine.go version_line REGEX "^const Version = ")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${MORPHSEEK_ROOT}/engine/engine.go)
if(NOT version_line MATCHES "\"([0-9]+\\.[0-9]+\\.[0-9]+)")
  message(FATAL_ERROR "engine/engine.go: no line `const Version = \"X.Y.Z\"`")
endif()
set(MORPHSEEK_VERSION ${CMAKE_MATCH_1})

# All files of engine/, because Go embeds some, and what both bridges share; tests and their data are no sources.
file(GLOB_RECURSE MORPHSEEK_GO_SOURCES CONFIGURE_DEPENDS ${MORPHSEEK_ROOT}/engine/* ${MORPHSEEK_ROOT}/bridge/internal/*)
list(FILTER MORPHSEEK_GO_SOURCES EXCLUDE REGEX "_test\\.go$|/testdata/")
list(APPEND MORPHSEEK_GO_SOURCES ${MORPHSEEK_ROOT}/go.mod ${MORPHSEEK_ROOT}/go.sum)
