# The one place that decides whether the ITK module is built: looks for ITK 5.2 or newer and, where it is missing and
# MORPHSEEK_INSTALL_ITK is on, installs the distribution's. Sets ITK_FOUND.

option(MORPHSEEK_INSTALL_ITK "Install ITK's headers from the distribution (apt-get, as root) where they are missing" OFF)
set(itk_modules ITKCommon ITKDisplacementField ITKImageGrid ITKImageFilterBase ITKImageStatistics ITKIOGDCM ITKZLIB ITKImageIO ITKTransformIO)
set(package libinsighttoolkit5-dev)

find_package(ITK 5.2 QUIET COMPONENTS ${itk_modules})
if(NOT ITK_FOUND AND MORPHSEEK_INSTALL_ITK)
  find_program(APT_GET apt-get)
  execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(APT_GET AND user STREQUAL "0")
    message(STATUS "Installing ${package}, some minutes at most")
    foreach(attempt RANGE 1) # with the package lists there are; else with new ones
      execute_process(COMMAND ${CMAKE_COMMAND} -E env DEBIAN_FRONTEND=noninteractive
        ${APT_GET} -qq install -y --no-install-recommends ${package} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
      if(NOT failed)
        break()
      endif()
      execute_process(COMMAND ${APT_GET} -qq update OUTPUT_QUIET ERROR_QUIET)
    endforeach()
    unset(ITK_DIR CACHE)
    find_package(ITK 5.2 QUIET COMPONENTS ${itk_modules})
  endif()
endif()
if(NOT ITK_FOUND)
  message(STATUS "MorphSeek: plugin/ is left out, for ITK's headers are missing (Debian, Ubuntu: apt-get install ${package})")
endif()
