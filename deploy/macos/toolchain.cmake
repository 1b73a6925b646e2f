# Programs for Macs with Apple silicon, made on Linux: by the compilers of deploy/macos/tools, against the libraries of
# deploy/macos/libraries. MACRAME_MACOS in the environment is the folder that has both.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_SYSTEM_VERSION 23.0.0)  # macOS 14
set(tools $ENV{MACRAME_MACOS}/tools)
set(CMAKE_C_COMPILER ${tools}/cc)
set(CMAKE_CXX_COMPILER ${tools}/c++)
set(CMAKE_AR ${tools}/ar)
set(CMAKE_RANLIB ${tools}/ranlib)
# Nothing that is linked here is changed afterwards: it would need to be signed again.
set(CMAKE_INSTALL_NAME_TOOL /bin/false)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
# zig's clang has its own headers of the system, and knows its target.
set(CMAKE_OSX_ARCHITECTURES "" CACHE STRING "")
set(CMAKE_OSX_DEPLOYMENT_TARGET "" CACHE STRING "")
set(CMAKE_OSX_SYSROOT "" CACHE STRING "")
set(CMAKE_FIND_ROOT_PATH $ENV{MACRAME_MACOS}/libraries $ENV{MACRAME_MACOS}/mlx ${CMAKE_CURRENT_LIST_DIR}/stubs)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# fmt checks its own format strings in a way that clang 22 finds no constant expression; GCC checks ours.
set(CMAKE_CXX_FLAGS_INIT "-DFMT_CONSTEVAL= -idirafter ${CMAKE_CURRENT_LIST_DIR}/stubs/usr/include")
set(CMAKE_C_FLAGS_INIT "-idirafter ${CMAKE_CURRENT_LIST_DIR}/stubs/usr/include")
