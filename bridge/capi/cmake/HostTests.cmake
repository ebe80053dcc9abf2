# Tests inside the programs for which MorphSeek has adapters. Each has an environment of its own with the new wheel, because these
# programs require other versions of packages. If a program cannot be installed, its tests say so and are skipped.
set(host_scripts ${CMAKE_CURRENT_LIST_DIR})

# add_host_environment(NAME) makes build/NAME-venv with the wheel's EXTRAS, the REQUIREMENTS, and the packages of ALONE without their
# dependencies. PROGRAM is its name in messages.
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
  add_dependencies(thorough-environment ${name}-environment)
endfunction()

# add_host_test(NAME) runs pytest with the arguments TESTS in FOLDER, in the environment HOST. A skipped test names SUBJECT. QT is the
# package of Qt that must load. DISPLAY opens windows on a virtual display, if the system has xvfb-run.
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
