# Compiler, warnings, ccache and output folders: what every target of the tree shares.

option(MACRAME_BUILD_TESTS "Build the tests" ON)
set(MACRAME_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

find_program(MACRAME_CCACHE ccache)
if(MACRAME_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness lets ccache serve files that use a precompiled header; the base folder makes a
  # second clone hit what the first one compiled. What is only a warning left out changes no object.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_IGNOREOPTIONS=-Wno-*
      ${PROJECT_SOURCE_DIR}/cmake/ccache_launcher ${MACRAME_CCACHE})
endif()

add_compile_options(-Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)
endif()
# Compilers that are newer than those that CI runs warn of more, and sometimes wrongly.
set(werror ON)
if(CMAKE_CXX_COMPILER_ID STREQUAL "AppleClang" OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13))
  set(werror OFF)
endif()
option(MACRAME_WERROR "Treat warnings as errors" ${werror})
if(MACRAME_WERROR)
  add_compile_options(-Werror)
endif()

if(MACRAME_SANITIZE)
  add_compile_options(-fsanitize=${MACRAME_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MACRAME_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # What GCC 12 warns of in instrumented library headers: a fence that the thread sanitizer can't
    # follow (Boost), members of std::regex that it takes for uninitialised.
    add_compile_options(-Wno-tsan -Wno-maybe-uninitialized)
  endif()
endif()

# Unused functions of static libraries do not reach the binaries.
add_compile_options(-ffunction-sections -fdata-sections)
if(APPLE)
  add_link_options(-Wl,-dead_strip)
else()
  add_link_options(-Wl,--gc-sections)
  find_program(MACRAME_MOLD mold)
  if(MACRAME_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

include_directories(${PROJECT_SOURCE_DIR})
