# The extension's tests in the repository's own build: on the real Slicer core (slicer-core on PyPI), in an environment of its
# own, build/slicer-venv, with the wheel just built. Where that core cannot be installed, the test says so and is skipped.
set(slicer_venv ${CMAKE_BINARY_DIR}/slicer-venv)
set(slicer_tests ${CMAKE_CURRENT_LIST_DIR}/Testing)

add_custom_command(OUTPUT ${slicer_venv}/installed
  COMMAND ${CMAKE_COMMAND} -DPYTHON=${PYTHON_EXECUTABLE} -DENVIRONMENT=${environment} -DVENV=${slicer_venv} -DWHEEL_DIR=${wheel_dir}
    -P ${slicer_tests}/environment.cmake
  COMMAND ${CMAKE_COMMAND} -E touch ${slicer_venv}/installed
  DEPENDS ${wheel_dir}/stamp ${environment} ${slicer_tests}/environment.cmake ${slicer_tests}/requirements.txt
  COMMENT "Installing the Slicer core for the tests"
  VERBATIM)
add_custom_target(slicer-environment DEPENDS ${slicer_venv}/installed)
add_dependencies(slicer-environment python) # one pip at a time, and the wheel is made once
add_dependencies(test-environment slicer-environment)

# The library (volumes, worker, nodes) and the panel (Qt), each in its own process.
function(add_slicer_test name qt)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -DVENV=${slicer_venv} -DNAME=${name} -DQT=${qt} "-DTESTS=${ARGN}" -P ${slicer_tests}/run.cmake)
  set_tests_properties(${name} PROPERTIES LABELS slicer SKIP_REGULAR_EXPRESSION "SKIPPED: no (Slicer core|Qt)")
endfunction()
add_slicer_test(slicer-library OFF ${slicer_tests}/test_library.py)
add_slicer_test(slicer-panel ON ${slicer_tests} --ignore=${slicer_tests}/test_library.py)
