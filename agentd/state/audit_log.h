#pragma once

// The audit log of this agent, in the state folder: "audit.log", and what was rotated, the newest
// as "audit.log.1". At most kAuditFilesMax files of kAuditFileBytesMax, mode 0600; the chain goes
// on from file to file. Owner thread.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agentd/cores/audit_chain.h"
#include "macrame/v1/access.pb.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

inline constexpr size_t kAuditFileBytesMax = 2 * 1024 * 1024;
inline constexpr int kAuditFilesMax = 4;
inline constexpr uint32_t kAuditLinesDefault = 1000;
inline constexpr uint32_t kAuditLinesMax = 4000;

class AuditLog {
 public:
  // Opens what is there, or makes it. What can't be read or written is logged, and stands in
  // trouble().
  AuditLog(const transport::Clock& clock, const std::string& state_folder,
           size_t file_bytes_max = kAuditFileBytesMax);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Its time is set here. With `sync` it is on disk when the call returns. What can't be written is
  // lost; once writing works again an entry says how many were.
  void Add(AuditEntry entry, bool sync = true);
  // A refused request of the HTTP API; some of many.
  void AddRefused(AuditEntry entry);

  // Lines of all files, oldest first.
  v1::ReadAuditResponse Read(const v1::ReadAuditRequest& request) const;
  v1::VerifyAuditResponse Verify() const;
  // Why nothing can be written now; empty: it can.
  const std::string& trouble() const { return trouble_; }

 private:
  std::string PathOf(int index) const;  // 0: the present one
  void Open();
  // False: errno says why.
  bool OpenNewest();
  bool IsWritable();
  bool Append(const AuditEntry& entry, bool sync);
  void NoteTrouble();
  void RepairEnd();
  void Rotate();
  // Until `take` says false. `take` is told the file's name and the line's number.
  void ForEachLine(
      const std::function<bool(const std::string&, size_t, absl::string_view)>& take) const;

  const transport::Clock& clock_;
  const std::string folder_;
  const size_t file_bytes_max_;
  int file_ = -1;
  size_t size_ = 0;         // up to here lines are whole
  bool is_ragged_ = false;  // the file may be longer
  uint64_t lost_ = 0;       // entries, since writing failed
  AuditTail tail_;
  AuditThrottle throttle_;
  std::string trouble_;
};

}  // namespace macrame::agentd
