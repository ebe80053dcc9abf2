# The test "wheel": a fresh environment, the wheel and nothing but its own dependencies in it, a registration there.
file(REMOVE_RECURSE ${VENV})
execute_process(COMMAND ${PYTHON} ${ENVIRONMENT} ${VENV} --wheel ${WHEEL_DIR} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=PYTHONPATH --unset=VIRTUAL_ENV --unset=MORPHSEEK_ORT_LIBRARY
    ${VENV}/bin/python ${SCRIPT} WORKING_DIRECTORY ${VENV} COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${VENV})
