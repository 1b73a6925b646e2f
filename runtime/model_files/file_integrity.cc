#include "runtime/model_files/file_integrity.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/bytes.h"
#include "proto/check.h"
#include "transport/regular_file.h"

namespace macrame::runtime {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kSha256Digits = 64;
constexpr size_t kGitBlobDigits = 40;
constexpr uint64_t kShardsMax = 4096;
constexpr size_t kNoteBytesMax = 4096;  // of a file that a download left beside another
constexpr std::array<std::string_view, 7> kEndings = {".safetensors", ".json", ".jinja",   ".model",
                                                      ".gguf",        ".txt",  ".tiktoken"};

class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    MACRAME_CHECK(EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1);
  }
  void Add(const void* bytes, size_t count) {
    MACRAME_CHECK(EVP_DigestUpdate(context_.get(), bytes, count) == 1);
  }
  std::string HexDigits() {
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned int size = 0;
    MACRAME_CHECK(EVP_DigestFinal_ex(context_.get(),
                                     reinterpret_cast<unsigned char*>(digest.data()), &size) == 1);
    digest.resize(size);
    return absl::BytesToHexString(digest);
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

absl::StatusOr<transport::RegularFile> OpenForOneReading(const fs::path& path) {
  auto file = transport::RegularFile::Open(path.string());
#ifdef __APPLE__
  if (file.ok()) fcntl(file->fd(), F_NOCACHE, 1);
#endif
  return file;
}

// What was read up to `end` need not be kept in memory.
void DropFromMemory(int fd, uint64_t begin, uint64_t end) {
#ifdef POSIX_FADV_DONTNEED
  posix_fadvise(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                POSIX_FADV_DONTNEED);
#else
  (void)fd;
  (void)begin;
  (void)end;
#endif
}

bool IsPartOfModel(const std::string& name) {
  return !absl::StartsWith(name, ".") &&
         std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view ending) {
           return absl::EndsWith(name, absl::string_view(ending.data(), ending.size()));
         });
}

bool IsChecksum(std::string_view text) {
  return (text.size() == kSha256Digits || text.size() == kGitBlobDigits) &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

// The second line of the note that a download into a plain folder leaves; empty: there is none.
std::string NotedChecksum(const fs::path& folder, const std::string& name) {
  const fs::path note = folder / ".cache" / "huggingface" / "download" / (name + ".metadata");
  const std::string text = transport::ReadBeginning(note.string(), kNoteBytesMax).value_or("");
  const size_t first = text.find('\n');
  if (first == std::string::npos) return "";
  const std::string line = text.substr(first + 1, text.find('\n', first + 1) - first - 1);
  return std::string(absl::StripAsciiWhitespace(line));
}

// What the download noted of a file; empty: nothing.
std::string ExpectedChecksum(const fs::path& folder, const std::string& name) {
  std::error_code error;
  std::string checksum = NotedChecksum(folder, name);
  if (fs::is_symlink(folder / name, error)) {
    const fs::path target = fs::read_symlink(folder / name, error);
    if (target.parent_path().filename() == "blobs") checksum = target.filename().string();
  }
  checksum = absl::AsciiStrToLower(checksum);
  return IsChecksum(checksum) ? checksum : "";
}

// "model-00002-of-00004.safetensors" → all four names.
std::vector<std::string> ShardsBeside(const std::string& name) {
  const size_t of = name.rfind("-of-");
  const size_t ending = name.rfind('.');
  const size_t dash = of == std::string::npos ? of : name.rfind('-', of - 1);
  if (of == std::string::npos || of == 0 || dash == std::string::npos || ending < of) return {};
  const std::string digits = name.substr(of + 4, ending - of - 4);
  uint64_t own = 0, count = 0;
  if (!absl::SimpleAtoi(name.substr(dash + 1, of - dash - 1), &own) ||
      !absl::SimpleAtoi(digits, &count) || count > kShardsMax || own > count) {
    return {};
  }
  std::vector<std::string> names;
  for (uint64_t i = 1; i <= count; ++i) {
    names.push_back(absl::StrFormat("%s-%0*d-of-%s%s", name.substr(0, dash),
                                    static_cast<int>(digits.size()), i, digits,
                                    name.substr(ending)));
  }
  return names;
}

struct FoundFile {
  fs::path path;
  uint64_t bytes = 0;
  bool is_there = true;
};

absl::StatusOr<std::map<std::string, FoundFile>> FindFiles(const fs::path& folder) {
  std::map<std::string, FoundFile> found;
  std::error_code error;
  size_t looked_at = 0;
  const auto add = [&](const std::string& name) {
    struct stat info {};
    FoundFile file{folder / name};
    file.is_there = stat(file.path.c_str(), &info) == 0;
    // A pipe or a device in a file's place is reported; its size counts for nothing.
    if (file.is_there && S_ISDIR(info.st_mode)) return;
    const bool has_bytes = file.is_there && S_ISREG(info.st_mode);
    file.bytes = has_bytes ? static_cast<uint64_t>(info.st_size) : 0;
    found.emplace(name, file);
  };
  for (fs::directory_iterator it(folder, error), end;
       !error && it != end && looked_at < kIntegrityFilesMax; it.increment(error), ++looked_at) {
    const std::string name = it->path().filename().string();
    if (IsPartOfModel(name)) add(name);
  }
  if (error || looked_at >= kIntegrityFilesMax) {
    return absl::UnavailableError(absl::StrCat(
        folder.string(), " can't be listed: ", error ? error.message() : "it has too many files"));
  }
  if (fs::exists(folder / "1_Pooling" / "config.json", error)) add("1_Pooling/config.json");
  std::set<std::string> shards;
  for (const auto& [name, file] : found) {
    if (shards.contains(name) || shards.size() >= kIntegrityFilesMax) continue;
    for (const std::string& other : ShardsBeside(name)) shards.insert(other);
  }
  for (const std::string& name : shards) {
    if (found.size() < kIntegrityFilesMax && !found.contains(name)) add(name);
  }
  return found;
}

// One file, read from its beginning to its end.
class FileReading {
 public:
  FileReading(const FoundFile& file, std::string expected)
      : expected_(std::move(expected)),
        source_(OpenForOneReading(file.path)),
        is_shard_(file.path.extension() == ".safetensors") {
    if (expected_.size() != kGitBlobDigits) return;
    git_blob_.emplace(EVP_sha1());
    const std::string head = absl::StrCat("blob ", file.bytes);
    git_blob_->Add(head.c_str(), head.size() + 1);  // with the zero byte at its end
  }

  // False when `on_bytes` said so.
  bool Run(std::vector<char>& buffer, const std::function<bool(uint64_t)>& on_bytes) {
    if (!source_.ok()) {
      failure_ = std::string(source_.status().message());
      return true;
    }
    while (true) {
      const ssize_t got = read(source_->fd(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        failure_ = absl::StrCat(std::strerror(errno), " after ", FormatBytes(Bytes(read_)));
      }
      if (got <= 0) return true;
      Take(buffer.data(), static_cast<size_t>(got));
      if (!on_bytes(static_cast<uint64_t>(got))) return false;
    }
  }

  void Judge(v1::ModelFile& file) {
    file.set_bytes(read_);
    if (!failure_.empty()) {
      file.set_state(v1::MODEL_FILE_STATE_UNREADABLE);
      file.set_note(failure_);
      return;
    }
    file.set_sha256(sha256_.HexDigits());
    const uint64_t whole = BytesByItself();
    const std::string own = git_blob_.has_value() ? git_blob_->HexDigits() : file.sha256();
    if (!expected_.empty() && own == expected_) {
      file.set_state(v1::MODEL_FILE_STATE_AS_DOWNLOADED);
    } else if (const std::string why = HeaderFault(); !why.empty()) {
      file.set_state(v1::MODEL_FILE_STATE_ALTERED);
      file.set_note(why);
    } else if (read_ == 0 || read_ < whole) {
      file.set_state(v1::MODEL_FILE_STATE_TRUNCATED);
      file.set_note(whole == 0 ? "it is empty"
                               : absl::StrCat("it has ", read_, " of ", whole, " bytes"));
    } else if (!expected_.empty()) {
      file.set_state(v1::MODEL_FILE_STATE_ALTERED);
      file.set_note(absl::StrCat("its checksum is ", own, ", the download noted ", expected_));
    } else if (whole > 0 && read_ > whole) {
      file.set_state(v1::MODEL_FILE_STATE_ALTERED);
      file.set_note(absl::StrCat("it has ", read_, " bytes, by its header ", whole));
    } else {
      file.set_state(v1::MODEL_FILE_STATE_READ);
    }
  }

 private:
  void Take(const char* bytes, size_t count) {
    sha256_.Add(bytes, count);
    if (git_blob_.has_value()) git_blob_->Add(bytes, count);
    if (is_shard_) KeepHeader(bytes, count);
    DropFromMemory(source_->fd(), read_, read_ + count);
    read_ += count;
  }
  void KeepHeader(const char* bytes, size_t count) {
    const size_t size_field = std::min<uint64_t>(count, 8 - std::min<uint64_t>(read_, 8));
    size_bytes_.append(bytes, size_field);
    if (size_bytes_.size() < 8) return;
    uint64_t size = 0;
    for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(size_bytes_[i]);
    header_bytes_ = size;
    if (size > kHeaderBytesMax) return;
    header_.append(bytes + size_field,
                   std::min<uint64_t>(count - size_field, size - header_.size()));
  }
  // Why what stands in the place of a shard's header is none, or not whole: then the file was
  // changed, and what the header says of its length counts for nothing. Empty: there is no fault,
  // or the file ends within the header.
  std::string HeaderFault() const {
    if (!is_shard_ || size_bytes_.size() < 8) return "";
    if (header_bytes_ > kHeaderBytesMax) {
      return absl::StrCat("its header would have ", header_bytes_, " bytes");
    }
    const bool is_whole = header_.size() == header_bytes_;
    if (is_whole ? nlohmann::json::accept(header_) : !BeginsWithObject(header_)) return "";
    return is_whole ? "its header is not JSON" : "its header ends before the place that it names";
  }
  static bool BeginsWithObject(const std::string& text) {
    nlohmann::json ignored;
    nlohmann::detail::json_sax_dom_parser<nlohmann::json> sax(ignored, /*allow_exceptions=*/false);
    return nlohmann::json::sax_parse(text, &sax, nlohmann::json::input_format_t::json,
                                     /*strict=*/false) &&
           ignored.is_object();
  }
  // 0: the file does not say.
  uint64_t BytesByItself() const {
    if (!is_shard_ || size_bytes_.size() < 8 || header_bytes_ > kHeaderBytesMax) return 0;
    if (header_.size() < header_bytes_) return 8 + header_bytes_;
    return BytesByHeader(header_);
  }

  const std::string expected_;
  const absl::StatusOr<transport::RegularFile> source_;
  const bool is_shard_;
  Digest sha256_{EVP_sha256()};
  std::optional<Digest> git_blob_;
  std::string size_bytes_;
  uint64_t header_bytes_ = 0;
  std::string header_;
  uint64_t read_ = 0;
  std::string failure_;
};

}  // namespace

uint64_t BytesByHeader(std::string_view header) {
  constexpr std::string_view kKey = "\"data_offsets\"";
  const auto skip = [&](size_t at, std::string_view which) {
    while (at < header.size() && which.find(header[at]) != std::string_view::npos) ++at;
    return at;
  };
  uint64_t most = 0;
  for (size_t at = header.find(kKey); at != std::string_view::npos; at = header.find(kKey, at)) {
    at = skip(at + kKey.size(), " :[\t\r\n");
    at = skip(at, "0123456789");
    at = skip(at, " ,\t\r\n");
    const size_t end = skip(at, "0123456789");
    uint64_t offset = 0;
    if (!absl::SimpleAtoi(absl::string_view(header.data() + at, end - at), &offset)) return 0;
    most = std::max(most, offset);
    at = end;
  }
  return most == 0 ? 0 : 8 + header.size() + most;
}

absl::StatusOr<v1::NodeModelFiles> ReadModelFiles(const std::string& model,
                                                  const std::string& folder,
                                                  const OnBytesRead& on_read) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat("there is no folder ", folder));
  }
  const absl::StatusOr<std::map<std::string, FoundFile>> found = FindFiles(folder);
  if (!found.ok()) return found.status();
  uint64_t total = 0, done = 0;
  for (const auto& [name, file] : *found) total += file.bytes;
  v1::NodeModelFiles answer;
  answer.set_model(model);
  answer.set_path(folder);
  std::vector<char> buffer(kBufferBytes);
  for (const auto& [name, file] : *found) {
    v1::ModelFile& told = *answer.add_files();
    told.set_name(name);
    if (!file.is_there) {
      told.set_state(v1::MODEL_FILE_STATE_MISSING);
      told.set_note("it is not there");
      continue;
    }
    FileReading reading(file, ExpectedChecksum(folder, name));
    const bool goes_on = reading.Run(buffer, [&](uint64_t bytes) {
      done += bytes;
      return on_read(done, std::max(done, total));
    });
    if (!goes_on) return absl::CancelledError("the reading was ended");
    reading.Judge(told);
  }
  answer.set_bytes_read(done);
  answer.set_bytes_total(done);
  return answer;
}

}  // namespace macrame::runtime
