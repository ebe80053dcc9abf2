# Tests the adapters of the Python package, each inside the program that it is for. MONAI, nipype, dask and pydicom are tested in the
# environment of the other tests.
set(python_hosts ${CMAKE_SOURCE_DIR}/python/tests/hosts)
add_host_environment(hosts PROGRAM "napari, BrainGlobe, pydra and BrainLesion" EXTRAS network,brainglobe
  REQUIREMENTS ${python_hosts}/requirements.txt ALONE ${python_hosts}/alone.txt)

# Their pytest plugins load before any test, so the tests' own filters do not catch the plugins' warnings.
set(quiet -W ignore::DeprecationWarning)
add_host_test(hosts-napari HOST hosts SUBJECT "the napari plugin" QT PyQt6 DISPLAY FOLDER ${CMAKE_SOURCE_DIR}/python TESTS ${quiet} tests/test_napari.py)
add_host_test(hosts-back-ends HOST hosts SUBJECT "the adapters for BrainLesion, pydra, BrainGlobe and TemplateFlow" QT PyQt6
  FOLDER ${CMAKE_SOURCE_DIR}/python TESTS ${quiet} tests/test_brainles.py tests/test_pydra.py tests/test_named.py)
add_host_test(hosts-examples HOST hosts SUBJECT "the examples of the adapters' documentation" QT PyQt6
  FOLDER ${CMAKE_SOURCE_DIR}/python TESTS -W ignore --pyargs morphseek.hosts.napari morphseek.hosts.brainles morphseek.hosts.pydra --doctest-modules)
