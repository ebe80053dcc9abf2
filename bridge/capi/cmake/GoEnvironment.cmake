# After project(), for `cmake -E env`: sets go_environment, what every Go build with C in it gets, and go_here, what a tool does that
# runs on this machine, whatever system the library is for.

# Go knows gcc only under its own name, which `cc` hides (and for -asan it wants to know).
set(go_cc ${CMAKE_C_COMPILER})
get_filename_component(name ${CMAKE_C_COMPILER} NAME)
get_filename_component(folder ${CMAKE_C_COMPILER} DIRECTORY)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND name STREQUAL "cc" AND EXISTS ${folder}/gcc)
  set(go_cc ${folder}/gcc)
endif()
set(go_environment CGO_ENABLED=1 CC=${go_cc})

# Hardened on Linux, as distributions build: what C there is guards its stack, and no table of functions can be written after the start.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  foreach(kind CFLAGS LDFLAGS)
    set(given "-O2 -g") # Go's default
    if(DEFINED ENV{CGO_${kind}})
      set(given "$ENV{CGO_${kind}}")
    endif()
    set(hardened_CFLAGS "-fstack-protector-strong")
    set(hardened_LDFLAGS "-Wl,-z,relro,-z,now")
    list(APPEND go_environment "CGO_${kind}=${given} ${hardened_${kind}}")
  endforeach()
endif()
set(go_here ${go_environment})
if(CMAKE_CROSSCOMPILING)
  set(go_here CGO_ENABLED=0)
  string(TOLOWER ${CMAKE_SYSTEM_NAME} system)
  string(TOLOWER ${CMAKE_SYSTEM_PROCESSOR} processor)
  if(processor MATCHES "^(x86_64|amd64)$")
    set(processor amd64)
  elseif(processor MATCHES "^(aarch64|arm64)$")
    set(processor arm64)
  endif()
  list(APPEND go_environment GOOS=${system} GOARCH=${processor})
endif()

# go_flags, of every such build. On arm64 Go fuses products with sums, in other people's packages too: not here, so that all
# processors give the same bits (engine/RATIONALE.md).
set(go_flags -buildvcs=false -trimpath)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND go_flags -gcflags=all=-d=fmahash=qn)
endif()
