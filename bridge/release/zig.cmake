# A CMake toolchain: builds for another system, or for an older glibc, by Zig's C compiler (PyPI: ziglang).
#
# -DMORPHSEEK_PLATFORM=x86_64-Linux | aarch64-Linux | x86_64-Windows | arm64-Darwin  -DMORPHSEEK_ZIG_CC=a program that calls `zig cc -target ...`
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MORPHSEEK_PLATFORM MORPHSEEK_ZIG_CC)
string(REPLACE "-" ";" platform ${MORPHSEEK_PLATFORM})
list(GET platform 0 CMAKE_SYSTEM_PROCESSOR)
list(GET platform 1 CMAKE_SYSTEM_NAME)
set(CMAKE_C_COMPILER ${MORPHSEEK_ZIG_CC})
set(CMAKE_C_COMPILER_WORKS TRUE) # no test of the compiler: Go does the linking
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
