#include "agentd/cores/sqlite_state_store.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr int kStepsPerCheck = 1'000'000;

constexpr const char* kSchema =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE entries(key TEXT PRIMARY KEY, value BLOB NOT NULL, sum BLOB NOT NULL)"
    " WITHOUT ROWID;";

// SQLite checks its own structure but not what is inside a cell.
std::string SumOf(const std::string& key, const std::string& value) {
  const std::string both = absl::StrCat(key.size(), ":", key, value);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(both.data()), both.size(), digest);
  return std::string(reinterpret_cast<const char*>(digest), 8);
}

absl::Status FolderError(const std::string& what, const std::string& remedy,
                         absl::StatusCode code = absl::StatusCode::kUnavailable) {
  v1::Reason reason = MakeReason(reasons::kStateUnreadable, what);
  reason.set_remedy(remedy);
  return ReasonStatus(code, reason);
}

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  std::filesystem::create_directories(folder, error);
  if (error || ::chmod(folder.c_str(), 0700) != 0) {
    return FolderError(absl::StrCat("the state folder ", folder, " can't be made: ",
                                    error ? error.message() : std::strerror(errno)),
                       "name a folder that this user may write, with state_folder in the config");
  }
  return absl::OkStatus();
}

// One agent a folder. The lock goes with the process; the pid inside is for people.
absl::StatusOr<int> LockFolder(const std::string& folder) {
  const std::string path = folder + "/state.lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return FolderError(absl::StrCat(path, " can't be opened: ", std::strerror(errno)),
                       "give the state folder to the user that runs agentd");
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char digits[24];
    const ssize_t length = ::pread(fd, digits, sizeof(digits), 0);
    const std::string pid = length > 0 ? std::string(digits, length) : "unknown";
    ::close(fd);
    return FolderError(
        absl::StrCat("another agent (pid ", pid, ") uses the state folder ", folder),
        absl::StrCat("stop process ", pid, ", or give this agent a state folder of its own"),
        absl::StatusCode::kFailedPrecondition);
  }
  const std::string pid = absl::StrCat(::getpid());
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    const std::string why = std::strerror(errno);
    ::close(fd);
    return FolderError(absl::StrCat(path, " can't be written: ", why), "free space on the disk");
  }
  return fd;
}

bool SyncedFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool synced = ::fsync(fd) == 0;
  return ::close(fd) == 0 && synced;
}

bool SyncFolder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool synced = ::fsync(fd) == 0;
  ::close(fd);
  return synced;
}

}  // namespace

// A prepared statement, finalized with its scope.
class SqliteStateStore::Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    status_ = sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void Bind(int index, const std::string& bytes, bool text = false) {
    if (status_ != SQLITE_OK) return;
    const int size = static_cast<int>(bytes.size());
    status_ = text ? sqlite3_bind_text(statement_, index, bytes.data(), size, SQLITE_TRANSIENT)
                   : sqlite3_bind_blob(statement_, index, bytes.data(), size, SQLITE_TRANSIENT);
  }
  int Step() { return status_ == SQLITE_OK ? status_ = sqlite3_step(statement_) : status_; }
  // True while there are rows; afterwards status() says whether all went well.
  bool Next() {
    if (status_ == SQLITE_ROW) status_ = SQLITE_OK;
    return Step() == SQLITE_ROW;
  }
  std::string Column(int index) const {
    const void* bytes = sqlite3_column_blob(statement_, index);
    const int size = sqlite3_column_bytes(statement_, index);
    return bytes == nullptr ? "" : std::string(static_cast<const char*>(bytes), size);
  }
  bool done() const { return status_ == SQLITE_DONE; }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int status_ = SQLITE_OK;
};

SqliteStateStore::SqliteStateStore(std::string folder, int lock_fd)
    : folder_(std::move(folder)), lock_fd_(lock_fd) {}

SqliteStateStore::~SqliteStateStore() {
  if (database_ != nullptr) sqlite3_close_v2(database_);
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

absl::StatusOr<std::unique_ptr<SqliteStateStore>> SqliteStateStore::Open(
    const std::string& folder, const NodeId& fresh_node_id) {
  if (const absl::Status made = MakeFolder(folder); !made.ok()) return made;
  absl::StatusOr<int> lock = LockFolder(folder);
  if (!lock.ok()) return lock.status();
  std::unique_ptr<SqliteStateStore> store(new SqliteStateStore(folder, *lock));
  if (const absl::Status ready = store->Prepare(fresh_node_id); !ready.ok()) return ready;
  return store;
}

absl::Status SqliteStateStore::Prepare(const NodeId& fresh_node_id) {
  std::error_code error;
  const bool made_before = std::filesystem::exists(MarkerPath(), error);
  const auto size = std::filesystem::file_size(DatabasePath(), error);
  const bool there = !error && size > 0;
  if (made_before && !there) return Unreadable("it is gone or empty, though it was made here");
  if (const absl::Status opened = OpenDatabase(there); !opened.ok()) return opened;
  absl::Status status = there ? CheckIntegrity() : absl::OkStatus();
  if (!status.ok()) return status;
  bool has_schema = false;
  {
    Statement tables(database_, "SELECT name FROM sqlite_master WHERE name = 'meta'");
    has_schema = tables.Next();
    if (!has_schema && !tables.done()) return Unreadable(sqlite3_errmsg(database_));
  }
  if (!has_schema) {
    // A start that was cut off before its first transaction leaves an empty database, and no
    // marker.
    if (made_before) return Unreadable("its tables are gone");
    status = CreateSchema(fresh_node_id);
    if (!status.ok()) return status;
  }
  if (!made_before && (!SyncedFile(MarkerPath()) || !SyncFolder(folder_))) {
    return DiskError("marking it as made");
  }
  if (status = LoadMeta(); !status.ok()) return status;
  if (status = LoadEntries(); !status.ok()) return status;
  return RaiseIncarnation();
}

absl::Status SqliteStateStore::OpenDatabase(bool expected) {
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(DatabasePath().c_str(), &database_, flags, nullptr) != SQLITE_OK) {
    return DiskError("opening it");
  }
  sqlite3_busy_timeout(database_, kBusyLimitMs);
  ::chmod(DatabasePath().c_str(), 0600);
  for (const char* pragma : {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL",
                             "PRAGMA synchronous=FULL", "PRAGMA cell_size_check=ON"}) {
    if (absl::Status status = Execute(pragma); !status.ok()) {
      return expected ? Unreadable(sqlite3_errmsg(database_)) : status;
    }
  }
  // macOS answers fsync before the disk has it; this asks for the real thing. Elsewhere it does
  // nothing.
  return Execute("PRAGMA fullfsync=ON");
}

absl::Status SqliteStateStore::CheckIntegrity() {
  uint64_t steps = 0;
  sqlite3_progress_handler(
      database_, kStepsPerCheck,
      [](void* count) -> int {
        return (*static_cast<uint64_t*>(count) += kStepsPerCheck) > kCheckStepsMax ? 1 : 0;
      },
      &steps);
  std::string verdict;
  bool answered = false;
  {
    Statement check(database_, "PRAGMA integrity_check(1)");
    answered = check.Next();
    if (answered) verdict = check.Column(0);
  }
  sqlite3_progress_handler(database_, 0, nullptr, nullptr);
  if (!answered) return Unreadable(sqlite3_errmsg(database_));
  if (verdict != "ok") return Unreadable(verdict);
  return absl::OkStatus();
}

absl::Status SqliteStateStore::CreateSchema(const NodeId& fresh_node_id) {
  if (!IsValidNodeId(fresh_node_id.value())) {
    return absl::InvalidArgumentError("a new state folder needs a node id of 32 hex digits");
  }
  absl::Status status = Execute("BEGIN IMMEDIATE");
  if (status.ok()) status = Execute(kSchema);
  if (status.ok()) status = WriteMeta("schema", absl::StrCat(kStateSchemaVersion));
  if (status.ok()) status = WriteMeta("node_id", fresh_node_id.value());
  if (status.ok()) status = WriteMeta("incarnation", "0");
  if (status.ok()) status = Execute("COMMIT");
  return status;
}

absl::StatusOr<std::optional<std::string>> SqliteStateStore::ReadMeta(const std::string& key) {
  Statement read(database_, "SELECT value, sum FROM meta WHERE key = ?1");
  read.Bind(1, key, /*text=*/true);
  if (!read.Next()) {
    if (!read.done()) return Unreadable(sqlite3_errmsg(database_));
    return std::optional<std::string>();
  }
  std::string value = read.Column(0);
  if (read.Column(1) != SumOf(key, value))
    return Unreadable("the value of " + key + " was altered");
  return std::optional<std::string>(std::move(value));
}

absl::Status SqliteStateStore::LoadMeta() {
  const auto schema = ReadMeta("schema");
  if (!schema.ok()) return schema.status();
  int version = 0;
  if (!schema->has_value() || !absl::SimpleAtoi(**schema, &version)) {
    return Unreadable("it does not say its schema");
  }
  if (version > kStateSchemaVersion) {
    return Unreadable(absl::StrCat("its schema ", version,
                                   " was written by a newer agentd; this one knows ",
                                   kStateSchemaVersion));
  }
  const auto id = ReadMeta("node_id");
  if (!id.ok()) return id.status();
  if (!id->has_value() || !IsValidNodeId(**id)) return Unreadable("it holds no node id");
  node_id_ = NodeId(**id);
  const auto incarnation = ReadMeta("incarnation");
  if (!incarnation.ok()) return incarnation.status();
  uint64_t count = 0;
  if (!incarnation->has_value() || !absl::SimpleAtoi(**incarnation, &count)) {
    return Unreadable("it holds no incarnation");
  }
  incarnation_ = Incarnation(count);
  const auto machine = ReadMeta("machine");
  if (!machine.ok()) return machine.status();
  last_machine_ = machine->value_or("");
  const auto revocations = ReadMeta("revocations");
  if (!revocations.ok()) return revocations.status();
  loaded_revocations_ = revocations->value_or("");
  const auto grant = ReadMeta("grant");
  if (!grant.ok()) return grant.status();
  if (!grant->has_value()) return absl::OkStatus();
  v1::LeaseRequest record;
  if (!record.ParseFromString(**grant) || record.fence().term() == 0) {
    return Unreadable("its grant can't be understood");
  }
  loaded_grant_ =
      GrantRecord{FromProto(record.fence()), std::chrono::milliseconds(record.lease_ms()),
                  record.fence().machine()};
  return absl::OkStatus();
}

absl::Status SqliteStateStore::LoadEntries() {
  Statement read(database_, "SELECT key, value, sum FROM entries");
  while (read.Next()) {
    const std::string key = read.Column(0);
    const std::string value = read.Column(1);
    v1::StateEntry entry;
    if (read.Column(2) != SumOf(key, value) || !entry.ParseFromString(value) ||
        entry.key() != key) {
      return Unreadable("the entry '" + key + "' was altered");
    }
    loaded_entries_.push_back(std::move(entry));
  }
  return read.done() ? absl::OkStatus() : Unreadable(sqlite3_errmsg(database_));
}

absl::Status SqliteStateStore::RaiseIncarnation() {
  incarnation_ = Incarnation(incarnation_.value() + 1);
  return WriteMeta("incarnation", absl::StrCat(incarnation_.value()));
}

absl::Status SqliteStateStore::SaveMachine(const std::string& machine) {
  const absl::Status written = Note(WriteMeta("machine", machine));
  if (written.ok()) last_machine_ = machine;
  return written;
}

absl::Status SqliteStateStore::SaveRevocations(const std::string& list) {
  return Note(WriteMeta("revocations", list));
}

absl::Status SqliteStateStore::BecomeNewNode(const NodeId& fresh_node_id) {
  if (!IsValidNodeId(fresh_node_id.value())) {
    return absl::InvalidArgumentError("a new node id has 32 hex digits");
  }
  absl::Status status = Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  status = WriteMeta("node_id", fresh_node_id.value());
  if (status.ok()) status = WriteMeta("incarnation", "0");
  if (status.ok()) status = Execute("DELETE FROM meta WHERE key IN ('grant', 'machine')");
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

absl::Status SqliteStateStore::SaveGrant(const GrantRecord& record) {
  v1::LeaseRequest stored;
  *stored.mutable_fence() = ToProto(record.granted);
  stored.mutable_fence()->set_machine(record.machine);
  stored.set_lease_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(record.lease).count()));
  return Note(WriteMeta("grant", stored.SerializeAsString()));
}

absl::Status SqliteStateStore::Note(absl::Status written) {
  failure_.reset();
  if (!written.ok()) failure_ = ReasonOf(written);
  return written;
}

absl::Status SqliteStateStore::SaveChange(const StateChange& change) {
  if (change.empty()) return absl::OkStatus();
  absl::Status status = Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return Note(status);
  status = WriteEntries(change);
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  return Note(status);
}

absl::Status SqliteStateStore::WriteEntries(const StateChange& change) {
  for (const v1::StateEntry& entry : change.put) {
    const std::string value = entry.SerializeAsString();
    Statement write(database_,
                    "INSERT INTO entries(key, value, sum) VALUES(?1, ?2, ?3) ON CONFLICT(key) DO "
                    "UPDATE SET value = excluded.value, sum = excluded.sum");
    write.Bind(1, entry.key(), /*text=*/true);
    write.Bind(2, value);
    write.Bind(3, SumOf(entry.key(), value));
    if (write.Step() != SQLITE_DONE) return DiskError("writing '" + entry.key() + "'");
  }
  for (const std::string& key : change.dropped) {
    Statement drop(database_, "DELETE FROM entries WHERE key = ?1");
    drop.Bind(1, key, /*text=*/true);
    if (drop.Step() != SQLITE_DONE) return DiskError("dropping '" + key + "'");
  }
  return absl::OkStatus();
}

absl::Status SqliteStateStore::WriteMeta(const std::string& key, const std::string& value) {
  Statement write(database_,
                  "INSERT INTO meta(key, value, sum) VALUES(?1, ?2, ?3) ON CONFLICT(key) DO "
                  "UPDATE SET value = excluded.value, sum = excluded.sum");
  write.Bind(1, key, /*text=*/true);
  write.Bind(2, value);
  write.Bind(3, SumOf(key, value));
  if (write.Step() != SQLITE_DONE) return DiskError("writing " + key);
  return absl::OkStatus();
}

absl::Status SqliteStateStore::Execute(const char* sql) {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return DiskError(sql);
}

absl::Status SqliteStateStore::Unreadable(const std::string& what) const {
  return FolderError(absl::StrCat("the state in ", DatabasePath(), " can't be used: ", what),
                     absl::StrCat("move ", folder_,
                                  " away and start again: the node joins as a new one and gets the "
                                  "state from its peers"),
                     absl::StatusCode::kDataLoss);
}

absl::Status SqliteStateStore::DiskError(const std::string& doing) const {
  const int code = database_ == nullptr ? SQLITE_CANTOPEN : sqlite3_errcode(database_);
  const std::string what = database_ == nullptr ? "no memory" : sqlite3_errmsg(database_);
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) return Unreadable(what);
  if (code == SQLITE_FULL) {
    v1::Reason reason =
        MakeReason(reasons::kStateDiskFull,
                   absl::StrCat("the disk of ", DatabasePath(), " is full: ", doing,
                                " failed; this node leads nothing and takes no ranks"));
    return ReasonStatus(absl::StatusCode::kResourceExhausted, reason);
  }
  return FolderError(absl::StrCat(DatabasePath(), ": ", doing, " failed: ", what),
                     "free space on the disk, and see that agentd's user may write the folder");
}

}  // namespace macrame::agentd
