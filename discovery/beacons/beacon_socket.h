#pragma once

// One UDP socket that knows by which interface a datagram came and says by which it goes.
// Internal to SocketBeaconService; owner thread: the io_context's.

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace macrame::discovery {

struct Datagram {
  std::string_view bytes;  // valid during the callback
  std::string source_ip;   // without a zone
  uint16_t source_port = 0;
  uint32_t interface_index = 0;  // 0: the system did not say
  // The interface that a link-local source means; 0: the address says enough.
  uint32_t zone() const { return source_ip.starts_with("fe80:") ? interface_index : 0; }
};

class BeaconSocket : public std::enable_shared_from_this<BeaconSocket> {
 public:
  using Receiver = std::function<void(const Datagram&)>;

  // `port` 0: one of its own; else shared with the other agents of this machine. On failure null,
  // and `error` is an errno.
  static std::shared_ptr<BeaconSocket> Open(boost::asio::io_context& io, bool is_v6, uint16_t port,
                                            int& error);

  // From now on `receiver` is called for each datagram as it comes.
  void StartReceiving(Receiver receiver);
  // True: datagrams are kept by the system until ReceiveKept(), and wake nobody.
  void SetKept(bool kept);
  void ReceiveKept();
  void Close();

  // 0 or an errno. `interface_index` 0: as the system routes.
  int Send(std::string_view bytes, const std::string& ip, uint16_t port, uint32_t interface_index);
  // 0 or an errno.
  int JoinGroup(const std::string& group, uint32_t interface_index);

 private:
  BeaconSocket(boost::asio::io_context& io, bool is_v6) : socket_(io), is_v6_(is_v6) {}
  int Configure(uint16_t port);
  void Wait();
  bool ReceiveSome();
  bool ReceiveOne();
  int fd() { return kept_fd_ >= 0 ? kept_fd_ : socket_.native_handle(); }

  boost::asio::ip::udp::socket socket_;
  int kept_fd_ = -1;  // the descriptor, while Asio does not watch it
  uint64_t waits_ = 0;
  bool is_v6_;
  bool is_closed_ = false;
  Receiver receiver_;
};

}  // namespace macrame::discovery
