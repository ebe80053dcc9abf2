# Include it after project(). Sets two lists for `cmake -E env`: go_environment for every Go build with C code, and go_here for tools
# that run on this machine, whatever system the library is for.

# Go recognises gcc only by its name, which `cc` hides; with -asan Go must recognise it.
set(go_cc ${CMAKE_C_COMPILER})
get_filename_component(name ${CMAKE_C_COMPILER} NAME)
get_filename_component(folder ${CMAKE_C_COMPILER} DIRECTORY)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND name STREQUAL "cc" AND EXISTS ${folder}/gcc)
  set(go_cc ${folder}/gcc)
endif()
set(go_environment CGO_ENABLED=1 CC=${go_cc})

# Hardening on Linux, as in distributions: the C code has stack protectors, and after the start relocated tables are read-only.
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

# go_flags, for every such build. On arm64 Go fuses products with sums, also in packages that we import. The flag below forbids it, so
# that all processors give the same bits (engine/RATIONALE.md).
set(go_flags -buildvcs=false -trimpath)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND go_flags -gcflags=all=-d=fmahash=qn)
endif()
