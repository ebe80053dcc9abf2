# The one Go of a build, found here alone: sets GO_EXECUTABLE, and go_missing to what is wrong where there is none to use.
#
# The first on PATH counts, then the usual places. One that is too old is passed over: a good one may lie behind it.

set(go_least 1.25)
set(go_missing "")
set(go_module ${CMAKE_CURRENT_LIST_DIR}/../../..) # where Go reads go.mod, which may make it fetch a newer self

# Go's own version at a path; what else it says, where it says none.
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
  is_new_enough(go_fits ${go_any}) # one named by -DGO_EXECUTABLE or found earlier, too
endif()
if(NOT go_fits)
  go_version(go_says ${go_any})
  set(go_missing "Go >= ${go_least} (${go_any} says: ${go_says})")
endif()
if(go_missing)
  unset(GO_EXECUTABLE CACHE) # so that the next configure looks again
endif()
