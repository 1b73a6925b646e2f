# gRPC as deploy/macos/libraries builds it: the C++ library alone, without what gRPC's own package has beside it.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(OpenSSL)
find_dependency(absl)
find_dependency(re2)
find_dependency(c-ares)
find_dependency(Protobuf CONFIG)

if(NOT TARGET gRPC::grpc++)
  get_filename_component(grpc_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  foreach(name address_sorting upb gpr grpc grpc++)
    add_library(gRPC::${name} STATIC IMPORTED)
    set_target_properties(gRPC::${name} PROPERTIES IMPORTED_LOCATION ${grpc_prefix}/lib/lib${name}.a
                          INTERFACE_INCLUDE_DIRECTORIES ${grpc_prefix}/include)
  endforeach()
  find_library(grpc_zlib z REQUIRED)
  set_property(TARGET gRPC::gpr PROPERTY INTERFACE_LINK_LIBRARIES
               absl::base absl::core_headers absl::cord absl::memory absl::random_random absl::status absl::str_format
               absl::strings absl::synchronization absl::time absl::optional Threads::Threads)
  set_property(TARGET gRPC::grpc PROPERTY INTERFACE_LINK_LIBRARIES
               gRPC::gpr gRPC::upb gRPC::address_sorting re2::re2 c-ares::cares OpenSSL::SSL OpenSSL::Crypto ${grpc_zlib}
               absl::any_invocable absl::bind_front absl::cleanup absl::cord absl::flat_hash_map absl::flat_hash_set
               absl::function_ref absl::hash absl::inlined_vector absl::statusor absl::span absl::type_traits absl::utility
               absl::variant)
  set_property(TARGET gRPC::grpc++ PROPERTY INTERFACE_LINK_LIBRARIES gRPC::grpc protobuf::libprotobuf)
endif()
