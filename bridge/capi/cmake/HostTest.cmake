# Runs one test of HostTests.cmake: pytest in VENV with the arguments TESTS. Skips it if its program could not be installed there, or
# if Qt (the package QT) does not load.
if(EXISTS ${VENV}/unavailable)
  file(READ ${VENV}/unavailable reason)
  message("SKIPPED: no environment here, so ${SUBJECT} was NOT tested: without ${reason}")
  return()
endif()
set(ENV{QT_QPA_PLATFORM} offscreen)
set(ENV{PYTHONPYCACHEPREFIX} ${VENV}/pycache)
if(QT) # Qt's wheel needs system libraries that a server may lack; its error names them, or says that its plugin does not load
  execute_process(COMMAND ${VENV}/bin/python -c "from ${QT} import QtWidgets; QtWidgets.QApplication([])"
    RESULT_VARIABLE failed ERROR_VARIABLE reason)
  if(failed AND reason MATCHES "cannot open shared object file|Qt platform plugin")
    string(REGEX MATCH "[^\n]*(cannot open shared object file|Qt platform plugin)[^\n]*" reason "${reason}")
    message("SKIPPED: no Qt here, so ${SUBJECT} was NOT tested. Debian, Ubuntu: apt-get install libegl1 libgl1 libglib2.0-0 libfontconfig1 libdbus-1-3 libxkbcommon0. It said: ${reason}")
    return()
  endif()
endif()
set(display "")
if(DISPLAY)
  set(display ${DISPLAY} -a)
endif()
execute_process(COMMAND ${display} ${VENV}/bin/python -m pytest -q -rs -p no:cacheprovider --basetemp=${VENV}/pytest-${NAME} ${TESTS} COMMAND_ERROR_IS_FATAL ANY)
