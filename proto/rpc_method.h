#pragma once

// An RPC by its path, its messages, and who may call it: what calls it and what answers it name the
// same constant, so neither can take another message, and none is answered without a word on who
// may ask.

#include <string_view>

namespace macrame {

// Who may call a method.
enum class Access {
  kLocal,        // who may open the unix socket, alone
  kMember,       // also nodes that this one knows as members (RpcServer::SetMemberCheck)
  kCertificate,  // also every node with a certificate of this cluster; an order's fence is checked
                 // by its handler
};

// What a person at another machine needs, who shows an access file's certificate
// (transport/access_file.h): the scope of its key. Without a word nobody may.
enum class Remote { kNobody, kInfer, kRead, kOperate, kAdmin };

template <typename Request, typename Response>
struct Method {
  std::string_view path;  // "/macrame.v1.AgentService/Heartbeat"
  Access access;
  Remote remote = Remote::kNobody;
};

// Answered by any number of messages.
template <typename Request, typename Message>
struct StreamMethod {
  std::string_view path;
  Access access;
  Remote remote = Remote::kNobody;
};

}  // namespace macrame
