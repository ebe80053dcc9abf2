# The test "capi-install": installs the library into a folder, moves the folder, and builds and runs ../example against it with
# find_package and, if there is one, with pkg-config.
file(REMOVE_RECURSE ${WORK})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --component capi --prefix ${WORK}/first COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${WORK}/first ${WORK}/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${EXAMPLE} -B ${WORK}/example -DCMAKE_PREFIX_PATH=${WORK}/prefix COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/example COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/example/register COMMAND_ERROR_IS_FATAL ANY)

# Here the component plugin is not installed.
file(WRITE ${WORK}/itk/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\nproject(itk LANGUAGES C)\nfind_package(MorphSeek REQUIRED COMPONENTS ITK)\n")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK}/itk -B ${WORK}/itk/build -DCMAKE_PREFIX_PATH=${WORK}/prefix OUTPUT_QUIET ERROR_VARIABLE said)
if(NOT said MATCHES "built[ \n]+with[ \n]+ITK.s[ \n]+headers")
  message(FATAL_ERROR "find_package without ITK's filters says: ${said}")
endif()

find_program(PKG_CONFIG pkg-config)
if(NOT PKG_CONFIG)
  message("no pkg-config here: morphseek.pc was not tried")
  return()
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${WORK}/prefix/${LIBDIR}/pkgconfig
    ${PKG_CONFIG} --cflags --libs morphseek OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND ${CC} ${EXAMPLE}/register.c -o ${WORK}/register ${flags} -lm COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${WORK}/prefix/${LIBDIR} ${WORK}/register COMMAND_ERROR_IS_FATAL ANY)
