# Makes one environment of HostTests.cmake: VENV with the wheel of WHEEL_DIR and its EXTRAS, then REQUIREMENTS and ALONE. If those two
# cannot be installed, VENV/unavailable says why; any other failure is an error.
file(REMOVE ${VENV}/unavailable)
execute_process(COMMAND ${PYTHON} ${ENVIRONMENT} ${VENV} --wheel ${WHEEL_DIR} --extras "${EXTRAS}" COMMAND_ERROR_IS_FATAL ANY)
set(alone "")
if(ALONE)
  set(alone --alone ${ALONE})
endif()
execute_process(COMMAND ${PYTHON} ${ENVIRONMENT} ${VENV} --requirements ${REQUIREMENTS} ${alone} RESULT_VARIABLE failed ERROR_VARIABLE reason)
if(failed)
  message(WARNING "${PROGRAM} could not be installed; the tests in it will be skipped:\n${reason}")
  file(WRITE ${VENV}/unavailable "${PROGRAM}, for pip said:\n${reason}")
endif()
