#pragma once

// The page's files, as dashboard/dist holds them, compiled into the agent. Pure.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace macrame::agentd::dashboard {

struct Asset {
  absl::string_view name;  // "app.js"
  absl::string_view bytes;
  absl::string_view etag;  // with its quotes; changes when the bytes do
};

// Every file. cmake/embed_files.cmake writes it.
const std::vector<Asset>& AllAssets();

// The file at "/", "/dashboard", "/dashboard/" or "/dashboard/NAME"; null when there is none.
const Asset* FindAsset(absl::string_view path);

// By the ending of its name.
absl::string_view ContentTypeOf(const Asset& asset);

// Header fields of every answer of the dashboard: the page may run its own files alone, talk to the
// agent that served it alone, and be shown in no other site's frame.
const std::vector<std::pair<std::string, std::string>>& SecurityHeaders();

}  // namespace macrame::agentd::dashboard
