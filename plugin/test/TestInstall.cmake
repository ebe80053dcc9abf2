# The target itk-install-check: installs everything into a folder, moves that, builds a copy of ../examples/external against it outside
# the tree, and runs it and the installed executable with nothing but the prefix: no Python, no environment.
file(REMOVE_RECURSE ${WORK})
foreach(component capi plugin)
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --component ${component} --prefix ${WORK}/first
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(RENAME ${WORK}/first ${WORK}/prefix)
file(COPY ${EXAMPLE}/ DESTINATION ${WORK}/example)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK}/example -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix -DITK_DIR=${ITK_DIR}
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build COMMAND_ERROR_IS_FATAL ANY)

set(fixed ${WORK}/fixed.nii.gz)
set(moving ${WORK}/moving.nii.gz)
execute_process(COMMAND ${PYTHON} -c "
from morphseek import io, phantom
pair = phantom.make_pair(size=32)
io.write_image('${fixed}', pair.fixed)
io.write_image('${moving}', pair.moving)" COMMAND_ERROR_IS_FATAL ANY)

set(clean ${CMAKE_COMMAND} -E env --unset=MORPHSEEK_ORT_LIBRARY --unset=VIRTUAL_ENV --unset=PYTHONPATH PATH=${WORK}/nothing)
execute_process(COMMAND ${clean} ${WORK}/build/example ${fixed} ${moving} ${WORK}/warped.nii.gz none COMMAND_ERROR_IS_FATAL ANY)
file(GLOB runtime ${WORK}/prefix/${LIBDIR}/libonnxruntime.so*)
set(model none)
if(runtime) # with a network, then, on the runtime that was installed
  set(model hippocampus)
endif()
execute_process(COMMAND ${clean} ${WORK}/prefix/bin/MorphSeekRegistration ${fixed} ${moving} --model ${model} --device cpu
    --output-transform ${WORK}/transform.h5 --report ${WORK}/report.json OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(READ ${WORK}/report.json report)
string(JSON used GET "${report}" model)
if(runtime AND used STREQUAL "none")
  message(FATAL_ERROR "the installed executable ran no network")
endif()
message("installed, built and run; model: ${used}")
