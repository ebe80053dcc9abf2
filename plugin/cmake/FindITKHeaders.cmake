# Decides whether the ITK module is built. Looks for ITK 5.2 or newer; if it is missing and MORPHSEEK_INSTALL_ITK is on, installs
# the distribution's. Sets ITK_FOUND. Without ITK it prints one line and the build goes on.

option(MORPHSEEK_INSTALL_ITK "Install ITK's headers from the distribution (apt-get, as root) where they are missing" OFF)
set(package libinsighttoolkit5-dev)

macro(find_itk)
  set(log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING) # Debian's gdcm lists every tool of its own that is not installed
  find_package(ITK 5.2 QUIET COMPONENTS
    ITKCommon ITKDisplacementField ITKImageGrid ITKImageFilterBase ITKImageStatistics ITKIOGDCM ITKZLIB ITKImageIO ITKTransformIO)
  set(CMAKE_MESSAGE_LOG_LEVEL "${log_level}")
endmacro()

# Sets ${result} to the reason why ITK could not be installed, or to nothing.
function(install_itk result)
  find_program(APT_GET apt-get)
  execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT APT_GET OR NOT user STREQUAL "0")
    set(${result} "only root can install them, by apt-get" PARENT_SCOPE)
    return()
  endif()
  message(STATUS "MorphSeek: installing ${package}, which takes about a minute (-DMORPHSEEK_INSTALL_ITK=OFF builds without it)")
  set(apt ${CMAKE_COMMAND} -E env DEBIAN_FRONTEND=noninteractive ${APT_GET} -qq -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120)
  set(install ${apt} install -y --no-install-recommends --no-remove ${package})
  # Download first: the time limit is for a slow network and must never stop dpkg half-way.
  execute_process(COMMAND ${install} --download-only RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET TIMEOUT 600)
  if(failed) # the package lists are old, or there are none
    execute_process(COMMAND ${apt} update OUTPUT_QUIET ERROR_QUIET TIMEOUT 300)
    execute_process(COMMAND ${install} --download-only RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE why TIMEOUT 600)
  endif()
  if(NOT failed)
    execute_process(COMMAND ${install} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE why)
  endif()
  if(failed)
    string(REGEX MATCH "[^\n]+" why "${why}")
    set(${result} "apt-get could not: ${why}" PARENT_SCOPE)
  endif()
endfunction()

find_itk()
set(why_not "")
if(NOT ITK_FOUND AND MORPHSEEK_INSTALL_ITK)
  install_itk(why_not)
  unset(ITK_DIR CACHE)
  find_itk()
endif()
if(NOT ITK_FOUND)
  if(why_not)
    string(PREPEND why_not "; ")
  endif()
  message(STATUS "MorphSeek: plugin/ is left out because ITK's headers are missing (Debian, Ubuntu: apt-get install ${package})${why_not}")
endif()
