#include "tests/unit/transport/tls_caller.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <memory>

namespace macrame::transport {
namespace {

struct Free {
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

int Number(TlsVersion version) {
  return version == TlsVersion::k12 ? TLS1_2_VERSION : TLS1_3_VERSION;
}

Owned<SSL_CTX> ContextOf(TlsVersion lowest, TlsVersion highest) {
  Owned<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context.get(), Number(lowest));
  SSL_CTX_set_max_proto_version(context.get(), Number(highest));
  return context;
}

Owned<BIO> Text(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace

std::string MakeClientHello(TlsVersion lowest, TlsVersion highest) {
  const Owned<SSL_CTX> context = ContextOf(lowest, highest);
  const Owned<SSL> ssl(SSL_new(context.get()));
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), sent);  // owned by ssl
  SSL_set_tlsext_host_name(ssl.get(), "node.macrame");
  SSL_connect(ssl.get());  // wants an answer that never comes
  char* data = nullptr;
  const long size = BIO_get_mem_data(sent, &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string AgreedVersion(int port, TlsVersion highest, const std::string& certificate_pem,
                          const std::string& key_pem) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const timeval limit{10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(port));
  std::string agreed;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const Owned<SSL_CTX> context = ContextOf(TlsVersion::k12, highest);
    const Owned<X509> certificate(
        PEM_read_bio_X509(Text(certificate_pem).get(), nullptr, nullptr, nullptr));
    const Owned<EVP_PKEY> key(
        PEM_read_bio_PrivateKey(Text(key_pem).get(), nullptr, nullptr, nullptr));
    SSL_CTX_use_certificate(context.get(), certificate.get());
    SSL_CTX_use_PrivateKey(context.get(), key.get());
    const unsigned char http2[] = "\x02h2";
    SSL_CTX_set_alpn_protos(context.get(), http2, sizeof(http2) - 1);
    const Owned<SSL> ssl(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), fd);
    if (SSL_connect(ssl.get()) == 1) agreed = SSL_get_version(ssl.get());
  }
  ::close(fd);
  return agreed;
}

}  // namespace macrame::transport
