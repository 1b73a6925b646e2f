#include "transport/tls_credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

namespace macrame::transport {

std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(const NodeCredentials& node) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = node.authority_certificate_pem;
  options.pem_key_cert_pairs.push_back({node.key_pem, node.certificate_pem});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> TlsChannelCredentials(const NodeCredentials& node) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = node.authority_certificate_pem;
  options.pem_private_key = node.key_pem;
  options.pem_cert_chain = node.certificate_pem;
  return grpc::SslCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> PlainServerCredentials() {
  return grpc::InsecureServerCredentials();
}

std::shared_ptr<grpc::ChannelCredentials> PlainChannelCredentials() {
  return grpc::InsecureChannelCredentials();
}

}  // namespace macrame::transport
