# Runs lint, format and type checks as tests with the label "gate". The Python tools come with the extra "lint", golangci-lint from
# Go's module proxy.
set(golangci_lint ${CMAKE_BINARY_DIR}/tools/golangci-lint)
set(golangci_lint_version v2.12.2) # the last one that Go 1.25 can build

add_custom_command(OUTPUT ${golangci_lint}-${golangci_lint_version}
  COMMAND ${CMAKE_COMMAND} -E env CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOBIN=${CMAKE_BINARY_DIR}/tools
    ${GO_EXECUTABLE} install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@${golangci_lint_version}
  COMMAND ${CMAKE_COMMAND} -E touch ${golangci_lint}-${golangci_lint_version}
  DEPENDS capi # one Go build at a time
  COMMENT "Building golangci-lint (two or three minutes the first time)"
  VERBATIM)
add_custom_target(golangci-lint DEPENDS ${golangci_lint}-${golangci_lint_version})
add_dependencies(golangci-lint python) # again: one Go build at a time
add_dependencies(test-environment golangci-lint)

function(add_gate name)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS gate)
endfunction()

file(GLOB_RECURSE c_sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} bridge/*.c bridge/*.cpp bridge/*.h plugin/*.h plugin/*.hxx plugin/*.cxx)
add_gate(ruff-check ${venv}/bin/ruff check --no-cache .)
add_gate(ruff-format ${venv}/bin/ruff format --no-cache --check .)
add_gate(mypy ${venv}/bin/mypy --config-file python/pyproject.toml --cache-dir ${caches}/mypy)
add_gate(import-linter ${venv}/bin/lint-imports python/pyproject.toml --no-cache)
set_tests_properties(import-linter PROPERTIES ENVIRONMENT "PYTHONPATH=${CMAKE_SOURCE_DIR}/python/src")
add_gate(clang-format ${venv}/bin/clang-format --dry-run --Werror ${c_sources})
add_gate(golangci-lint ${golangci_lint} run ./engine/... ./bridge/...)
set_tests_properties(golangci-lint PROPERTIES RESOURCE_LOCK go ENVIRONMENT "GOLANGCI_LINT_CACHE=${caches}/golangci-lint")
