# The few shapes that the targets of this tree have.
#
#   macrame_library(NAME SRCS a.cc … DEPS lib … [PCH header … | PCH_OF library] [TOGETHER n])
#       a static library; NAME is folder_with_underscores, e.g. discovery_inventory. PCH_OF: the
#       precompiled headers of another library, which take a hundred MB of disk each. TOGETHER: n sources
#       are compiled as one where MACRAME_COMPILE_TOGETHER is set.
#   macrame_binary(NAME SRCS a.cc … DEPS lib …)
#       an executable in build/<preset>/bin; those of the product's folders are what the target
#       `programs` builds.
#   macrame_test(NAME SRCS a_test.cc … [ALONE b_test.cc …] DEPS lib … [TIMEOUT seconds] [LABELS label …]
#       [OPTIMISED])
#       a GoogleTest binary in build/<preset>/tests; ctest runs it once, as one test, with a limit. What
#       nearly all tests include is compiled once for them (tests/test_headers.h). Eight sources are
#       compiled as one where MACRAME_COMPILE_TOGETHER is set, but for those under ALONE, which name
#       something as another one does. OPTIMISED: the test's own code computes so much that compiling it
#       quickly saves no time.
#
# `macrame_*_darwin.cc` and `*_linux.cc` files are listed with macrame_platform_sources(OUT base …),
# which appends the one file of the pair that fits the machine.

include(CMakeParseArguments)

function(macrame_platform_sources out)
  set(found ${${out}})
  foreach(base ${ARGN})
    if(APPLE)
      list(APPEND found ${base}_darwin.cc)
    else()
      list(APPEND found ${base}_linux.cc)
    endif()
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# As many sources of the target as one.
function(macrame_compile_together name sources)
  if(MACRAME_COMPILE_TOGETHER)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${sources})
  endif()
endfunction()

function(macrame_library name)
  cmake_parse_arguments(ARG "" "TOGETHER;PCH_OF" "SRCS;DEPS;PCH" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  if(ARG_TOGETHER)
    macrame_compile_together(${name} ${ARG_TOGETHER})
  endif()
  if(ARG_PCH)
    target_precompile_headers(${name} PRIVATE ${ARG_PCH})
  endif()
  if(ARG_PCH_OF)
    target_precompile_headers(${name} REUSE_FROM ${ARG_PCH_OF})
    # The compiler takes them only where this flag, which defines a macro, is set as it was for them.
    target_compile_options(${name} PRIVATE -pthread)
  endif()
endfunction()

function(macrame_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  set_property(GLOBAL APPEND PROPERTY MACRAME_PROGRAMS ${name})
endfunction()

function(macrame_test name)
  cmake_parse_arguments(ARG "OPTIMISED" "TIMEOUT" "SRCS;ALONE;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SRCS} ${ARG_ALONE})
  macrame_compile_together(${name} 8)
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(TARGET test_headers)
    # As above. GCC 12 warns wrongly of strings in some files whose headers are precompiled.
    target_compile_options(${name} PRIVATE -pthread -Wno-array-bounds -Wno-stringop-overflow
                           -Wno-stringop-overread -Wno-restrict)
    if(NOT ARG_OPTIMISED)
      target_precompile_headers(${name} REUSE_FROM test_headers)
      target_compile_options(${name} PRIVATE -O0)
    endif()
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
