#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "proto/reasons.h"
#include "transport/trust.h"

namespace macrame::cli {
namespace {

struct InitOptions {
  std::string name = "macrame";
  std::string out;
};

std::string NextSteps(const std::string& path) {
  return absl::StrCat(
      "Whoever has this file can let nodes in and take them out: keep it on this machine.\n"
      "Next:\n"
      "  1. Start agentd here",
      path == transport::DefaultClusterSecretPath()
          ? std::string("; one that runs already takes the file up by itself.\n")
          : absl::StrCat(" with --cluster-secret-file ", path, "\n"),
      "  2. clusterctl cluster token     here, for each other machine\n"
      "  3. clusterctl cluster join TOKEN     there, where agentd runs without a secret\n"
      "  4. clusterctl devices list\n");
}

int RunClusterInit(const Invocation& run, const InitOptions& options) {
  const std::string path =
      options.out.empty() ? transport::DefaultClusterSecretPath() : options.out;
  const auto secret = transport::CreateClusterSecret(options.name);
  if (!secret.ok()) return run.Fail(secret.status());
  const absl::Status written = transport::WriteClusterSecret(*secret, path);
  if (!written.ok()) return run.Fail(written);
  if (run.wants_table()) {
    *run.environment.out << "Cluster '" << Printable(secret->cluster_name) << "' ("
                         << secret->cluster_id.substr(0, 8) << ") is made: its secret is in "
                         << Printable(path) << "\n"
                         << NextSteps(path);
    return kExitOk;
  }
  Json document = Document("ClusterSecret");
  document["cluster_id"] = secret->cluster_id;
  document["cluster_name"] = secret->cluster_name;
  document["path"] = path;
  run.PrintDocument(document);
  return kExitOk;
}

}  // namespace

void AddClusterInit(CommandTree& tree, CLI::App* cluster) {
  CLI::App* command = tree.Add(cluster, "init", "Create a cluster: its authority and secret file");
  auto options = std::make_shared<InitOptions>();
  command->add_option("--name", options->name, "Name of the cluster (default: macrame)")
      ->type_name("NAME");
  command
      ->add_option("--out", options->out,
                   absl::StrCat("File to write the secret to; default: ",
                                transport::DefaultClusterSecretPath()))
      ->type_name("FILE");
  tree.OnChosen(command,
                [options](const Invocation& run) { return RunClusterInit(run, *options); });
}

}  // namespace macrame::cli
