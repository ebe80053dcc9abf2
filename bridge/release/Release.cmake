# The preset "release": makes the files in build/dist and tests them. The top level includes it; only that preset switches it on.
option(MORPHSEEK_RELEASE "Targets and tests of a release" OFF)
if(NOT MORPHSEEK_RELEASE)
  return()
endif()

# Tools that PyPI does not have; all missing ones are named at once.
set(release_missing "")
foreach(tool qemu-aarch64-static:qemu-user-static wine:wine64 mvn:maven apt-get:apt dpkg-deb:dpkg git:git)
  string(REPLACE ":" ";" tool ${tool})
  list(GET tool 0 program)
  list(GET tool 1 package)
  find_program(release_${program} ${program})
  if(NOT release_${program})
    string(APPEND release_missing "  ${program} (Debian: apt-get install ${package})\n")
  endif()
endforeach()
execute_process(COMMAND ${PYTHON_EXECUTABLE} -c "import sys; print(sys.version_info >= (3, 11))" OUTPUT_VARIABLE release_python)
if(NOT release_python MATCHES "True")
  string(APPEND release_missing "  Python >= 3.11 (${PYTHON_EXECUTABLE} is older)\n")
endif()
if(release_missing)
  message(FATAL_ERROR "A release for other systems is proved by an emulator, Wine and Windows' own Python. Missing here:\n${release_missing}"
    "With -DMORPHSEEK_RELEASE=OFF everything else builds.")
endif()

set(release_folder ${CMAKE_SOURCE_DIR}/bridge/release)
set(release_venv ${CMAKE_BINARY_DIR}/release/venv)
set(release_work ${CMAKE_BINARY_DIR}/release)
set(dist ${CMAKE_BINARY_DIR}/dist)
set(zig_caches ZIG_GLOBAL_CACHE_DIR=${release_work}/zig-cache ZIG_LOCAL_CACHE_DIR=${release_work}/zig-cache)
add_custom_command(OUTPUT ${release_venv}/installed
  COMMAND ${PYTHON_EXECUTABLE} ${environment} ${release_venv} --requirements ${release_folder}/requirements.txt
  COMMAND ${CMAKE_COMMAND} -E touch ${release_venv}/installed
  DEPENDS ${release_folder}/requirements.txt ${environment}
  COMMENT "Installing the tools for a release (Zig's compiler among them)"
  VERBATIM)
add_custom_target(release
  COMMAND ${CMAKE_COMMAND} -E env ${zig_caches} ${release_venv}/bin/python ${release_folder}/release.py --go ${GO_EXECUTABLE} --cmake ${CMAKE_COMMAND}
    --work ${release_work}/build --out ${dist}
  DEPENDS ${release_venv}/installed
  COMMENT "Building for four platforms (some minutes)"
  USES_TERMINAL VERBATIM)

# in "_check", because Go's tools skip folders with an underscore: they follow links, and a Debian root has circular ones
foreach(what files sdist linux slicer bare aarch64 windows)
  add_test(NAME release-${what}
    COMMAND ${release_venv}/bin/python ${release_folder}/check.py ${what} --dist ${dist} --work ${release_work}/_check
      --go ${GO_EXECUTABLE} --cmake ${CMAKE_COMMAND}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  # one after the other, because they share downloads and reference results
  set_tests_properties(release-${what} PROPERTIES LABELS "release;slow" TIMEOUT 7200 SKIP_RETURN_CODE 77 RESOURCE_LOCK release
    ENVIRONMENT "${zig_caches}")
endforeach()
