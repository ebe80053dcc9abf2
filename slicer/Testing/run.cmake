# One test of tests.cmake: pytest in VENV with the arguments TESTS, unless the Slicer core could not be installed there.
if(EXISTS ${VENV}/unavailable)
  file(READ ${VENV}/unavailable reason)
  message("SKIPPED: no Slicer core here, so the 3D Slicer extension was NOT tested. pip said:\n${reason}")
  return()
endif()
set(ENV{QT_QPA_PLATFORM} offscreen)
execute_process(COMMAND ${VENV}/bin/python -m pytest -q ${TESTS} WORKING_DIRECTORY ${VENV} COMMAND_ERROR_IS_FATAL ANY)
