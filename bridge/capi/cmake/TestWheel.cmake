# The test "wheel": makes a fresh environment with only the wheel and its dependencies, and registers there. Then does the same with
# the extra for networks.
file(REMOVE_RECURSE ${VENV})
execute_process(COMMAND ${PYTHON} ${ENVIRONMENT} ${VENV} --wheel ${WHEEL_DIR} COMMAND_ERROR_IS_FATAL ANY)
set(run ${CMAKE_COMMAND} -E env --unset=PYTHONPATH --unset=VIRTUAL_ENV --unset=MORPHSEEK_ORT_LIBRARY ${VENV}/bin/python ${SCRIPT})
execute_process(COMMAND ${run} WORKING_DIRECTORY ${VENV} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PYTHON} ${ENVIRONMENT} ${VENV} --wheel ${WHEEL_DIR} --extras network COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${run} network WORKING_DIRECTORY ${VENV} COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${VENV})
