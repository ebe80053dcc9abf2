# Makes the environment of the tests: VENV with the wheel of WHEEL_DIR and requirements.txt. That the Slicer core cannot be
# installed here is noted in VENV/unavailable; everything else is an error.
file(REMOVE ${VENV}/unavailable)
execute_process(COMMAND ${PYTHON} ${ENVIRONMENT} ${VENV} --wheel ${WHEEL_DIR} --extras network COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${PYTHON} ${ENVIRONMENT} ${VENV} --requirements ${CMAKE_CURRENT_LIST_DIR}/requirements.txt
  RESULT_VARIABLE failed ERROR_VARIABLE reason)
if(failed)
  message(WARNING "The Slicer core could not be installed; the extension's tests will be skipped:\n${reason}")
  file(WRITE ${VENV}/unavailable "${reason}")
endif()
