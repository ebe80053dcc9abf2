# Tests inside the programs that MorphSeek is an adapter for: each with the wheel just built in an environment of its own, for those
# programs bring packages of their own versions. Where they cannot be installed, the tests say so and are skipped.
set(host_scripts ${CMAKE_CURRENT_LIST_DIR})

# add_host_environment(NAME): build/NAME-venv, with the wheel's EXTRAS, the REQUIREMENTS, and the packages of ALONE without what they
# ask for. PROGRAM is what the messages call it.
function(add_host_environment name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PROGRAM;EXTRAS;REQUIREMENTS;ALONE" "")
  set(host ${CMAKE_BINARY_DIR}/${name}-venv)
  add_custom_command(OUTPUT ${host}/installed
    COMMAND ${CMAKE_COMMAND} -DPYTHON=${PYTHON_EXECUTABLE} -DENVIRONMENT=${environment} -DVENV=${host} -DWHEEL_DIR=${wheel_dir}
      "-DPROGRAM=${arg_PROGRAM}" "-DEXTRAS=${arg_EXTRAS}" "-DREQUIREMENTS=${arg_REQUIREMENTS}" "-DALONE=${arg_ALONE}"
      -P ${host_scripts}/HostEnvironment.cmake
    COMMAND ${CMAKE_COMMAND} -E touch ${host}/installed
    DEPENDS ${wheel_dir}/stamp ${environment} ${host_scripts}/HostEnvironment.cmake ${arg_REQUIREMENTS} ${arg_ALONE}
    COMMENT "Installing ${arg_PROGRAM} for the tests"
    VERBATIM)
  add_custom_target(${name}-environment DEPENDS ${host}/installed)
  add_dependencies(${name}-environment python) # one pip at a time, and the wheel is made once
  add_dependencies(test-environment ${name}-environment)
endfunction()

# add_host_test(NAME): pytest with the arguments TESTS in FOLDER, in the environment HOST. SUBJECT is what a skipped test names. QT is the
# package of Qt that has to load. DISPLAY runs the windows on a virtual display, where the system has xvfb-run.
function(add_host_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "DISPLAY" "HOST;SUBJECT;QT;FOLDER" "TESTS")
  set(display "")
  if(arg_DISPLAY)
    find_program(XVFB_RUN xvfb-run)
    if(XVFB_RUN)
      set(display ${XVFB_RUN})
    endif()
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -DVENV=${CMAKE_BINARY_DIR}/${arg_HOST}-venv -DNAME=${name} "-DSUBJECT=${arg_SUBJECT}" -DQT=${arg_QT}
    -DDISPLAY=${display} "-DTESTS=${arg_TESTS}" -P ${host_scripts}/HostTest.cmake WORKING_DIRECTORY ${arg_FOLDER})
  set_tests_properties(${name} PROPERTIES LABELS ${arg_HOST} SKIP_REGULAR_EXPRESSION "SKIPPED: no (environment|Qt) here, so " ENVIRONMENT "${MORPHSEEK_TIDY_TESTS}")
endfunction()
