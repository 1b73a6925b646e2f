#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/verbs/verbs_library.h"

namespace macrame::transport {
namespace {

struct Loaded {
  VerbsLibrary library{};
  std::string missing;  // why it can't be used; empty: it can
};

Loaded Load() {
  Loaded loaded;
  void* handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    loaded.missing = dlerror();
    return loaded;
  }
  const auto find = [&](const char* name, auto& function) {
    void* symbol = dlsym(handle, name);
    if (symbol == nullptr && loaded.missing.empty()) {
      loaded.missing = absl::StrCat("libibverbs.so.1 has no ", name);
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  VerbsLibrary& library = loaded.library;
  find("ibv_get_device_list", library.get_device_list);
  find("ibv_free_device_list", library.free_device_list);
  find("ibv_get_device_name", library.get_device_name);
  find("ibv_get_device_guid", library.get_device_guid);
  find("ibv_open_device", library.open_device);
  find("ibv_close_device", library.close_device);
  find("ibv_query_port", library.query_port);
  find("ibv_query_gid", library.query_gid);
  find("ibv_alloc_pd", library.alloc_pd);
  find("ibv_dealloc_pd", library.dealloc_pd);
  find("ibv_reg_mr", library.reg_mr);
  find("ibv_dereg_mr", library.dereg_mr);
  find("ibv_create_comp_channel", library.create_comp_channel);
  find("ibv_destroy_comp_channel", library.destroy_comp_channel);
  find("ibv_create_cq", library.create_cq);
  find("ibv_destroy_cq", library.destroy_cq);
  find("ibv_get_cq_event", library.get_cq_event);
  find("ibv_ack_cq_events", library.ack_cq_events);
  find("ibv_create_qp", library.create_qp);
  find("ibv_modify_qp", library.modify_qp);
  find("ibv_destroy_qp", library.destroy_qp);
  find("ibv_get_async_event", library.get_async_event);
  find("ibv_ack_async_event", library.ack_async_event);
  find("ibv_wc_status_str", library.wc_status_str);
  find("ibv_event_type_str", library.event_type_str);
  return loaded;
}

}  // namespace

absl::StatusOr<const VerbsLibrary*> FindVerbsLibrary() {
  static const Loaded loaded = Load();
  if (loaded.missing.empty()) return &loaded.library;
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kVerbsLibraryMissing,
                      loaded.missing);
}

}  // namespace macrame::transport
