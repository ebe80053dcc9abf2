# The only place that looks for Go: sets GO_EXECUTABLE or, if there is no usable Go, go_missing to the reason.
#
# Searches PATH first, then the usual places. A Go that is too old is skipped: a newer one may follow.

set(go_least 1.25)
set(go_missing "")
set(go_module ${CMAKE_CURRENT_LIST_DIR}/../../..) # where Go reads go.mod, which may make Go fetch a newer Go

# The version of the Go at a path or, if it prints none, its output.
function(go_version result program)
  execute_process(COMMAND ${program} env GOVERSION WORKING_DIRECTORY ${go_module}
    OUTPUT_VARIABLE version ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  string(STRIP "${version} ${error}" version)
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

function(is_new_enough result program)
  go_version(version ${program})
  if(NOT version MATCHES "^go([0-9]+\\.[0-9]+)" OR CMAKE_MATCH_1 VERSION_LESS go_least)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

find_program(GO_EXECUTABLE go VALIDATOR is_new_enough PATHS /usr/local/go/bin /usr/lib/go/bin)
set(go_any ${GO_EXECUTABLE})
if(NOT go_any)
  unset(go_any)
  find_program(go_any go PATHS /usr/local/go/bin /usr/lib/go/bin NO_CACHE)
endif()
set(go_fits TRUE)
if(NOT go_any)
  set(go_missing "Go >= ${go_least} (https://go.dev/dl, or your distribution's golang package), with `go` on PATH")
else()
  is_new_enough(go_fits ${go_any}) # also checks one from -DGO_EXECUTABLE or from an earlier configure
endif()
if(NOT go_fits)
  go_version(go_says ${go_any})
  set(go_missing "Go >= ${go_least} (${go_any} says: ${go_says})")
endif()
if(go_missing)
  unset(GO_EXECUTABLE CACHE) # so that the next configure looks again
endif()
