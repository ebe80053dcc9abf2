# The extension's tests in the repository's own build, on the real Slicer core (slicer-core on PyPI). The library (volumes, worker,
# nodes) and the panel (Qt) run in processes of their own.
set(slicer_tests ${CMAKE_CURRENT_LIST_DIR}/Testing)
add_host_environment(slicer PROGRAM "the Slicer core" EXTRAS network REQUIREMENTS ${slicer_tests}/requirements.txt)
add_host_test(slicer-library HOST slicer SUBJECT "the 3D Slicer extension" FOLDER ${CMAKE_BINARY_DIR} TESTS ${slicer_tests}/test_library.py)
add_host_test(slicer-panel HOST slicer SUBJECT "the panel of the 3D Slicer extension" QT PySide6 FOLDER ${CMAKE_BINARY_DIR}
  TESTS ${slicer_tests} --ignore=${slicer_tests}/test_library.py)
