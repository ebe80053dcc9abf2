# Sets licences to a file, made with the build, with the licences of all code that is compiled in. Needs project() and MORPHSEEK_ROOT.
set(MORPHSEEK_ALSO_LICENSED "" CACHE STRING "NAME=FILE of what a compiler adds, for THIRD-PARTY.txt")
set(licences ${CMAKE_BINARY_DIR}/THIRD-PARTY.txt)
find_program(MORPHSEEK_PYTHON NAMES python3 python)
list(TRANSFORM MORPHSEEK_ALSO_LICENSED PREPEND --also= OUTPUT_VARIABLE also)
add_custom_command(OUTPUT ${licences}
  COMMAND ${CMAKE_COMMAND} -E env CGO_ENABLED=1 ${MORPHSEEK_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/licences.py ${GO_EXECUTABLE} ${MORPHSEEK_ROOT} ${licences} ${also}
  DEPENDS ${MORPHSEEK_ROOT}/go.mod ${MORPHSEEK_ROOT}/go.sum ${CMAKE_CURRENT_LIST_DIR}/licences.py
  COMMENT "Gathering the licences of the code that is compiled in"
  VERBATIM)
add_custom_target(licences ALL DEPENDS ${licences})
