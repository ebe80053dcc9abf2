# Looks for every tool that the build needs and names all missing ones at once, one a line. Include it before project(), whose own
# messages about a missing compiler are long. Sets GO_EXECUTABLE and PYTHON_EXECUTABLE.

set(missing "")

include(${CMAKE_CURRENT_LIST_DIR}/GoTool.cmake)
if(go_missing)
  list(APPEND missing "${go_missing}")
endif()

find_program(PYTHON_EXECUTABLE NAMES python3 python)
if(NOT PYTHON_EXECUTABLE)
  list(APPEND missing "Python >= 3.10 with its headers (Debian: python3-dev python3-venv)")
else()
  execute_process(
    COMMAND ${PYTHON_EXECUTABLE} -c "
import importlib.util, os, sys, sysconfig
if sys.version_info < (3, 10): print('Python >= 3.10 (%s is %s)' % (sys.executable, sys.version.split()[0]))
if not os.path.exists(os.path.join(sysconfig.get_paths()['include'], 'Python.h')): print('the headers of %s (Debian: python3-dev)' % sys.executable)
if not any(map(importlib.util.find_spec, ('ensurepip', 'virtualenv'))): print('the venv module of %s (Debian: python3-venv)' % sys.executable)"
    OUTPUT_VARIABLE python_missing RESULT_VARIABLE python_status OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT python_status EQUAL 0)
    list(APPEND missing "a Python >= 3.10 that runs (${PYTHON_EXECUTABLE} does not)")
  elseif(python_missing)
    string(REPLACE "\n" ";" python_missing "${python_missing}")
    list(APPEND missing ${python_missing})
  endif()
endif()

find_program(MORPHSEEK_CC NAMES $ENV{CC} cc gcc clang)
find_program(MORPHSEEK_CXX NAMES $ENV{CXX} c++ g++ clang++)
if(CMAKE_GENERATOR MATCHES "Ninja")
  find_program(MORPHSEEK_MAKE NAMES ninja ninja-build samu)
  set(make_missing "ninja (Debian: ninja-build), which the generator ${CMAKE_GENERATOR} calls")
else()
  find_program(MORPHSEEK_MAKE NAMES gmake make)
  set(make_missing "make (Debian: make), which the presets call (ninja does not stand in for it)")
endif()
if(NOT MORPHSEEK_CC)
  list(APPEND missing "a C compiler (Debian: gcc)")
endif()
if(NOT MORPHSEEK_CXX)
  list(APPEND missing "a C++ compiler (Debian: g++)")
endif()
if(NOT MORPHSEEK_MAKE)
  list(APPEND missing "${make_missing}")
endif()

# Go's caches of modules and compiled packages lie below HOME, unless GOCACHE and GOMODCACHE say otherwise.
if(NOT go_missing)
  foreach(cache GOCACHE GOMODCACHE)
    execute_process(COMMAND ${GO_EXECUTABLE} env ${cache} OUTPUT_VARIABLE folder ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(folder STREQUAL "" OR folder STREQUAL "off")
      list(APPEND missing "HOME, which is not set: Go keeps its caches there (or set GOCACHE and GOPATH to folders that can be written)")
      break()
    endif()
    execute_process(COMMAND sh -c "mkdir -p \"$1\" && test -w \"$1\"" sh ${folder} RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
    if(refused)
      list(APPEND missing "a ${cache} that can be written: ${folder} cannot (set HOME to a folder of yours, or ${cache} alone)")
    endif()
  endforeach()
endif()

if(CMAKE_SOURCE_DIR MATCHES "[\"':;\\]") # Go's linker flags, PATH and CMake's lists would break at these
  string(REPLACE ";" "," folder "${CMAKE_SOURCE_DIR}")
  list(APPEND missing "a folder whose name has no quote, colon, semicolon or backslash: this is ${folder}")
endif()

if(missing)
  list(JOIN missing "\n  - " missing)
  message(FATAL_ERROR "MorphSeek needs, and did not find:\n  - ${missing}\n")
endif()

# Fetch Go's modules now, so that a failure shows in seconds and not minutes into the build.
include(${CMAKE_CURRENT_LIST_DIR}/GoModules.cmake)
