# Every library from outside, found once. deploy/setup installs them.
# macOS (Homebrew) and Debian 12 carry different versions; only what both have is used
# (transport/grpc_logging.cc is the exception).

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
# Homebrew keeps its OpenSSL off the usual paths, and may have several: gRPC's own is taken.
if(CMAKE_HOST_APPLE AND NOT OPENSSL_ROOT_DIR)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/deploy/homebrew_openssl OUTPUT_VARIABLE OPENSSL_ROOT_DIR
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_package(OpenSSL 3.0 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf REQUIRED)
endif()
find_package(gRPC CONFIG REQUIRED)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
# macOS has it among its own libraries, without a pkg-config file.
find_path(MACRAME_LIBEDIT_INCLUDE histedit.h REQUIRED)
find_library(MACRAME_LIBEDIT edit REQUIRED)
add_library(libedit::libedit INTERFACE IMPORTED)
target_link_libraries(libedit::libedit INTERFACE ${MACRAME_LIBEDIT})
target_include_directories(libedit::libedit SYSTEM INTERFACE ${MACRAME_LIBEDIT_INCLUDE})
find_program(MACRAME_PROTOC protoc REQUIRED)
find_program(MACRAME_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

# Headers of other projects are not held to our warnings.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

# MLX: a system one through MLX_DIR, else the wheel that deploy/setup unpacked.
if(DEFINED ENV{MLX_DIR})
  set(MLX_DIR $ENV{MLX_DIR} CACHE PATH "Folder of MLXConfig.cmake")
else()
  set(MLX_DIR ${PROJECT_SOURCE_DIR}/.deps/mlx/share/cmake/MLX CACHE PATH "Folder of MLXConfig.cmake")
endif()
find_package(MLX CONFIG QUIET)
# Beside bin/, as an installed service has it (runtime/process gives rankd the way there).
if(MLX_DIR STREQUAL ${PROJECT_SOURCE_DIR}/.deps/mlx/share/cmake/MLX)
  foreach(folder mlx mlx_cpu.libs)
    if(EXISTS ${PROJECT_SOURCE_DIR}/.deps/${folder})
      file(CREATE_LINK ${PROJECT_SOURCE_DIR}/.deps/${folder} ${CMAKE_BINARY_DIR}/${folder} SYMBOLIC)
    endif()
  endforeach()
endif()
if(NOT MLX_FOUND)
  message(FATAL_ERROR "MLX was not found at ${MLX_DIR}. Run deploy/setup, or set MLX_DIR to the "
                      "folder that holds MLXConfig.cmake.")
endif()

if(MACRAME_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
