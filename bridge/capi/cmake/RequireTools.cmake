# Looks for every tool that the build needs and names all the missing ones at once, a line each. Included before project(),
# whose own complaints about a missing compiler are long. Sets GO_EXECUTABLE and PYTHON_EXECUTABLE.

set(missing "")

find_program(GO_EXECUTABLE go HINTS /usr/local/go/bin /usr/lib/go/bin)
if(NOT GO_EXECUTABLE)
  list(APPEND missing "Go >= 1.25 (https://go.dev/dl, or your distribution's golang package), with `go` on PATH")
else()
  execute_process(COMMAND ${GO_EXECUTABLE} env GOVERSION WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    OUTPUT_VARIABLE go_version ERROR_VARIABLE go_error OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT go_version MATCHES "^go([0-9]+\\.[0-9]+)" OR CMAKE_MATCH_1 VERSION_LESS 1.25)
    string(STRIP "${go_version} ${go_error}" go_found)
    list(APPEND missing "Go >= 1.25 (${GO_EXECUTABLE} says: ${go_found})")
  endif()
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
find_program(MORPHSEEK_MAKE NAMES make gmake ninja)
if(NOT MORPHSEEK_CC)
  list(APPEND missing "a C compiler (Debian: gcc)")
endif()
if(NOT MORPHSEEK_CXX)
  list(APPEND missing "a C++ compiler (Debian: g++)")
endif()
if(NOT MORPHSEEK_MAKE)
  list(APPEND missing "make (Debian: make)")
endif()

if(missing)
  list(JOIN missing "\n  - " missing)
  message(FATAL_ERROR "MorphSeek needs, and did not find:\n  - ${missing}\n")
endif()
