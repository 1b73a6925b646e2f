# Writes C++ that holds files: cmake -DFOLDER=… -DNAMES=a.html,b.js -DOUT=out.cc -P embed_files.cmake
# An ETag is the beginning of the file's SHA-256.
string(REPLACE "," ";" names "${NAMES}")
set(arrays "")
set(rows "")
set(i 0)
foreach(name ${names})
  file(READ ${FOLDER}/${name} hex HEX)
  file(SHA256 ${FOLDER}/${name} hash)
  string(SUBSTRING ${hash} 0 16 etag)
  string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${i}[] = {\n${bytes}};\n")
  string(APPEND rows "      {\"${name}\", View(kFile${i}, sizeof(kFile${i})), \"\\\"${etag}\\\"\"},\n")
  math(EXPR i "${i} + 1")
endforeach()
file(WRITE ${OUT} "// Made by cmake/embed_files.cmake.
#include \"agentd/dashboard/assets.h\"

namespace macrame::agentd::dashboard {
namespace {

${arrays}
absl::string_view View(const unsigned char* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

const std::vector<Asset>& AllAssets() {
  static const std::vector<Asset> assets = {
${rows}  };
  return assets;
}

}  // namespace macrame::agentd::dashboard
")
