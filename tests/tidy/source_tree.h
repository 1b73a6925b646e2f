#pragma once

// The files of this repository as git lists them, read as text, for the tests that keep it tidy.

#include <string>
#include <vector>

namespace macrame::tests {

struct SourceFile {
  std::string path;  // from the repository's root, with '/'
  std::vector<std::string> lines;
};

// All files that git tracks or would track, below the repository's root. Binary files and lock
// files are left out. Fails the process when git does not answer: a tidy test that reads nothing
// passes all.
std::vector<SourceFile> ReadSourceTree();

bool IsCpp(const SourceFile& file);
bool IsUnder(const SourceFile& file, const std::string& folder);
// The first folder of the path: "discovery" for "discovery/beacons/beacon_codec.h".
std::string TopFolder(const std::string& path);

}  // namespace macrame::tests
