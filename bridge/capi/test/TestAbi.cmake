# The test "capi-abi": compares the library's exported symbols and the header's struct layouts with the committed list. After a
# deliberate addition, copy what this prints into abi.txt; a removal or a changed line needs a new SONAME.
execute_process(COMMAND ${NM} -D --defined-only --format=posix ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
list(TRANSFORM symbols REPLACE " .*" "")
list(SORT symbols)
list(JOIN symbols "\n" found)
execute_process(COMMAND ${LAYOUT} OUTPUT_VARIABLE layouts COMMAND_ERROR_IS_FATAL ANY)
string(APPEND found "\n" "${layouts}")
file(READ ${LIST} expected)
if(NOT found STREQUAL expected)
  message(FATAL_ERROR "The ABI is not that of ${LIST}. It is now:\n${found}")
endif()
