# What an installed Macrame consists of, relative to one folder that may stand anywhere: the programs in bin/, MLX
# beside them where rankd looks for it. `cmake --install BUILD --prefix FOLDER --strip --component programs` makes it;
# `clusterctl service install` and deploy/package take their files from such a folder.
get_property(programs GLOBAL PROPERTY MACRAME_PROGRAMS)
set(program_names)
foreach(program IN LISTS programs)
  get_target_property(name ${program} OUTPUT_NAME)
  if(NOT name)
    set(name ${program})
  endif()
  list(APPEND program_names ${name})
endforeach()
list(SORT program_names)
list(JOIN program_names "," program_list)
set_property(SOURCE ${PROJECT_SOURCE_DIR}/cli/service/service_plan.cc DIRECTORY ${PROJECT_SOURCE_DIR}/cli
             APPEND PROPERTY COMPILE_DEFINITIONS MACRAME_PROGRAMS="${program_list}")
if(APPLE)
  set_target_properties(rankd PROPERTIES INSTALL_RPATH "@loader_path/../mlx/lib")
else()
  set_target_properties(rankd PROPERTIES INSTALL_RPATH "$ORIGIN/../mlx/lib")
endif()
install(TARGETS ${programs} RUNTIME DESTINATION bin COMPONENT programs)
# The headers of the same package stay out. An MLX of the system's own (MLX_DIR) is found there.
if(MLX_DIR STREQUAL ${PROJECT_SOURCE_DIR}/.deps/mlx/share/cmake/MLX)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/.deps/mlx/lib/ DESTINATION mlx/lib COMPONENT programs)
  if(EXISTS ${PROJECT_SOURCE_DIR}/.deps/mlx_cpu.libs)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/.deps/mlx_cpu.libs/ DESTINATION mlx_cpu.libs COMPONENT programs
            USE_SOURCE_PERMISSIONS)
  endif()
endif()
