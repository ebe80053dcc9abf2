# cmake -DFILE=native.go -DINCLUDE=dirs -P OwnFlags.cmake: our compiler and linker flags in the source that gopy generates, in place
# of those that Python's own build was given (sysconfig's LDSHARED).
file(READ ${FILE} source)
string(REGEX MATCH "#cgo CFLAGS:[^\n]*\n#cgo LDFLAGS:[^\n]*\n" flags "${source}")
if(flags STREQUAL "")
  message(FATAL_ERROR "${FILE} has no #cgo flags where gopy 0.4.10 writes them: another gopy? Mend OwnFlags.cmake")
endif()
list(TRANSFORM INCLUDE REPLACE "(.+)" "\"-I\\1\"")
list(JOIN INCLUDE " " include)
if(CMAKE_HOST_APPLE)
  set(linker "#cgo LDFLAGS: -Wl,-undefined,dynamic_lookup\n")
endif()
string(REPLACE "${flags}" "#cgo CFLAGS: ${include} -Wno-error -Wno-implicit-function-declaration -Wno-int-conversion\n${linker}" source "${source}")
file(WRITE ${FILE} "${source}")
