# The test "itk-install": installs everything into a folder and moves that folder. Builds a copy of ../examples/external against it
# outside the tree, and runs it and the installed executable without Python and without environment variables.
file(REMOVE_RECURSE ${WORK})
foreach(component capi plugin)
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --component ${component} --prefix ${WORK}/first
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(RENAME ${WORK}/first ${WORK}/prefix)
set(prefix ${WORK}/prefix)
foreach(file
    ${LIBDIR}/libmorphseek.so ${LIBDIR}/libmorphseek.so.1 ${INCLUDEDIR}/morphseek.h
    ${LIBDIR}/cmake/MorphSeek/MorphSeekConfig.cmake ${LIBDIR}/cmake/MorphSeek/MorphSeekConfigVersion.cmake
    ${LIBDIR}/cmake/MorphSeek/MorphSeekITK.cmake ${LIBDIR}/pkgconfig/morphseek.pc ${BINDIR}/MorphSeekRegistration
    ${INCLUDEDIR}/MorphSeekITK/itkMorphSeekRegistrationFilter.h ${INCLUDEDIR}/MorphSeekITK/itkMorphSeekRegistrationFilter.hxx
    ${INCLUDEDIR}/MorphSeekITK/itkMorphSeekWarpFilter.h ${INCLUDEDIR}/MorphSeekITK/itkMorphSeekFolding.h
    ${INCLUDEDIR}/MorphSeekITK/itkMorphSeekException.h)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()
find_program(PKG_CONFIG pkg-config) # the test capi-install builds a program with it
if(PKG_CONFIG)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${prefix}/${LIBDIR}/pkgconfig ${PKG_CONFIG} --exact-version=${VERSION} morphseek
    COMMAND_ERROR_IS_FATAL ANY)
endif()
file(COPY ${EXAMPLE}/ DESTINATION ${WORK}/example)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK}/example -B ${WORK}/build -DCMAKE_PREFIX_PATH=${prefix} -DITK_DIR=${ITK_DIR}
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build COMMAND_ERROR_IS_FATAL ANY)

# The same program, and plugin/ itself, with the targets that ITK has from version 6 on.
set(six -DCMAKE_PREFIX_PATH=${prefix} -DITK_DIR=${ITK6} -DITK5_DIR=${ITK_DIR})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK}/example -B ${WORK}/build6 ${six} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build6 COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${EXAMPLE}/../.. -B ${WORK}/plugin6 ${six} -DBUILD_TESTING=OFF OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/plugin6 COMMAND_ERROR_IS_FATAL ANY)

set(fixed ${WORK}/fixed.nii.gz)
set(moving ${WORK}/moving.nii.gz)
# The phantom at a tenth of its size: the built-in network was trained on images of that size in mm.
execute_process(COMMAND ${PYTHON} -c "
import SimpleITK as sitk
from morphseek import phantom
pair = phantom.make_pair(size=32)
for image, path in ((pair.fixed.to_sitk(), '${fixed}'), (pair.moving.to_sitk(), '${moving}')):
    image.SetSpacing([0.1 * s for s in image.GetSpacing()])
    image.SetOrigin([0.1 * o for o in image.GetOrigin()])
    sitk.WriteImage(image, path)" COMMAND_ERROR_IS_FATAL ANY)

set(clean ${CMAKE_COMMAND} -E env --unset=MORPHSEEK_ORT_LIBRARY --unset=VIRTUAL_ENV --unset=PYTHONPATH PATH=${WORK}/nothing)
foreach(build build build6)
  execute_process(COMMAND ${clean} ${WORK}/${build}/example ${fixed} ${moving} ${WORK}/${build}.nii.gz none COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${WORK}/build.nii.gz ${WORK}/build6.nii.gz COMMAND_ERROR_IS_FATAL ANY)
file(GLOB runtime ${prefix}/${LIBDIR}/libonnxruntime.so*)
set(model none)
if(runtime) # run a network, on the installed ONNX Runtime
  set(model hippocampus)
endif()
execute_process(COMMAND ${clean} ${prefix}/${BINDIR}/MorphSeekRegistration ${fixed} ${moving} --model ${model} --search off --device cpu
    --output-transform ${WORK}/transform.h5 --report ${WORK}/report.json OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(READ ${WORK}/report.json report)
string(JSON used GET "${report}" model)
if(runtime AND used STREQUAL "none")
  message(FATAL_ERROR "the installed executable ran no network")
endif()
message("installed, built and run; model: ${used}")
