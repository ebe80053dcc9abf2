# After project(): sets go_environment, what every Go build with C in it gets, for `cmake -E env`.

# Go knows gcc only under its own name, which `cc` hides (and for -asan it wants to know).
set(go_cc ${CMAKE_C_COMPILER})
get_filename_component(name ${CMAKE_C_COMPILER} NAME)
get_filename_component(folder ${CMAKE_C_COMPILER} DIRECTORY)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND name STREQUAL "cc" AND EXISTS ${folder}/gcc)
  set(go_cc ${folder}/gcc)
endif()
set(go_environment CGO_ENABLED=1 CC=${go_cc})
