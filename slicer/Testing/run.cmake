# One test of tests.cmake: pytest in VENV with the arguments TESTS, unless the Slicer core could not be installed there, or (with
# QT) Qt does not load.
if(EXISTS ${VENV}/unavailable)
  file(READ ${VENV}/unavailable reason)
  message("SKIPPED: no Slicer core here, so the 3D Slicer extension was NOT tested. pip said:\n${reason}")
  return()
endif()
set(ENV{QT_QPA_PLATFORM} offscreen)
set(ENV{PYTHONPYCACHEPREFIX} ${VENV}/pycache)
if(QT) # its wheel needs libraries of the system, which a server may lack: then it says which, or that its plugin does not load
  execute_process(COMMAND ${VENV}/bin/python -c "from PySide6 import QtUiTools, QtWidgets; QtWidgets.QApplication([])"
    RESULT_VARIABLE failed ERROR_VARIABLE reason)
  if(failed AND reason MATCHES "cannot open shared object file|Qt platform plugin")
    string(REGEX MATCH "[^\n]*(cannot open shared object file|Qt platform plugin)[^\n]*" reason "${reason}")
    message("SKIPPED: no Qt here, so the panel of the 3D Slicer extension was NOT tested. Debian, Ubuntu: apt-get install libegl1 libgl1 libglib2.0-0 libfontconfig1 libdbus-1-3 libxkbcommon0. It said: ${reason}")
    return()
  endif()
endif()
execute_process(COMMAND ${VENV}/bin/python -m pytest -q -p no:cacheprovider --basetemp=${VENV}/pytest-${NAME} ${TESTS} WORKING_DIRECTORY ${VENV} COMMAND_ERROR_IS_FATAL ANY)
