#include <chrono>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/duration.h"
#include "cli/format/access_view.h"
#include "cli/model_name.h"
#include "proto/reasons.h"
#include "transport/access_file.h"
#include "transport/private_file.h"
#include "transport/trust.h"

namespace macrame::cli {
namespace {

constexpr uint64_t kAccessFileDefaultMs = 90ull * 24 * 60 * 60 * 1000;

struct KeyOptions {
  std::string name;
  std::vector<std::string> scopes;  // none: infer, of an access file infer and operate
  std::string expires;
  uint32_t requests = 0, tokens = 0, concurrent = 0;
  std::vector<std::string> models;
  std::string tenant;
  std::string access_file;
};

// The key alone on stdout, so that a script can take it; the rest for people.
void TellKey(const Invocation& run, const std::string& secret_key, const v1::ApiKey& key) {
  *run.environment.out << secret_key << "\n" << std::flush;
  if (run.options.quiet) return;
  *run.environment.err << "This key is shown once; only a digest of it is kept. Its id is "
                       << Printable(key.id()) << ", it expires " << TimeText(key.expires_unix_ms())
                       << ", its limits: " << LimitsText(key) << ".\n"
                       << "Programs send it as 'Authorization: Bearer KEY' (OPENAI_API_KEY).\n";
}

v1::ApiKey KeyOf(const KeyOptions& options) {
  v1::ApiKey key;
  key.set_name(options.name);
  for (const std::string& scope : NamesIn(options.scopes)) key.add_scopes(scope);
  if (!options.expires.empty()) {
    const auto length = ParseDuration(options.expires, kLongDurationMax).value();
    key.set_expires_unix_ms(NowUnixMs() + static_cast<uint64_t>(length.count()));
  }
  key.set_requests_per_minute(options.requests);
  key.set_tokens_per_minute(options.tokens);
  key.set_concurrent_requests(options.concurrent);
  for (const std::string& model : options.models) key.add_models(model);
  key.set_tenant(options.tenant);
  return key;
}

absl::Status CheckNewFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kAlreadyExists, reasons::kBadRequest,
                      absl::StrCat(path, " is there already; name another file"));
}

// The file is looked at before the key is made; a key whose file can't be written is ended.
int RunAccessFile(const Invocation& run, const KeyOptions& options) {
  if (absl::Status fits = CheckNewFile(options.access_file); !fits.ok()) return run.Fail(fits);
  v1::CreateAccessFileRequest request;
  *request.mutable_key() = KeyOf(options);
  if (options.scopes.empty()) {
    request.mutable_key()->add_scopes("infer");
    request.mutable_key()->add_scopes("operate");
  }
  if (options.expires.empty()) {
    request.mutable_key()->set_expires_unix_ms(NowUnixMs() + kAccessFileDefaultMs);
  }
  AgentClient client(run.options.agent);
  auto response = client.CreateAccessFile(request);
  if (!response.ok()) return run.Fail(response.status());
  std::string text = transport::FormatAccessFile(response->file());
  absl::Status written = transport::WriteNewPrivateFile(options.access_file, text);
  transport::Wipe(text);
  if (!written.ok()) {
    v1::RevokeKeyRequest revoke;
    revoke.set_key(response->key().id());
    (void)client.RevokeKey(revoke);
    return run.Fail(written);
  }
  const v1::ApiKey& key = response->key();
  if (!run.wants_table()) {
    run.PrintDocument(Document("CreatedKey", key));
    return kExitOk;
  }
  *run.environment.out << "Wrote " << Printable(options.access_file) << " for cluster "
                       << Printable(response->file().cluster_name()) << ": key " << key.id()
                       << ", scopes " << absl::StrJoin(key.scopes(), ", ") << ", expires "
                       << TimeText(key.expires_unix_ms()) << ".\n";
  if (run.options.quiet) return kExitOk;
  *run.environment.err << "Move it to the other machine, with mode 0600; there\n"
                       << "  clusterctl --access FILE status\n"
                       << "or put it at ~/.macrame/cluster.access. 'clusterctl key revoke "
                       << key.id() << "' ends it.\n";
  return kExitOk;
}

int RunKeyCreate(const Invocation& run, const KeyOptions& options) {
  if (!options.access_file.empty()) return RunAccessFile(run, options);
  v1::CreateKeyRequest request;
  *request.mutable_key() = KeyOf(options);
  if (options.scopes.empty()) request.mutable_key()->add_scopes("infer");
  AgentClient client(run.options.agent);
  for (std::string& model : *request.mutable_key()->mutable_models()) {
    model = ModelMeantBy(client, model);
  }
  const auto response = client.CreateKey(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("CreatedKey", *response));
    return kExitOk;
  }
  TellKey(run, response->secret_key(), response->key());
  return kExitOk;
}

int RunKeyList(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto response = client.ListKeys();
  if (!response.ok()) return run.Fail(response.status());
  // An agent of another version does not tell; keys are listed all the same.
  const v1::GetKeyEnergyResponse energy =
      client.GetKeyEnergy().value_or(v1::GetKeyEnergyResponse());
  if (!run.wants_table()) {
    Json document = Document("KeyList", *response);
    document["energy"] = MessageToJson(energy);
    run.PrintDocument(document);
    return kExitOk;
  }
  *run.environment.out << KeysView(*response, energy, NowUnixMs(), OutputColumns(run.environment),
                                   run.style);
  return kExitOk;
}

int RunKeyRevoke(const Invocation& run, const std::string& name) {
  v1::RevokeKeyRequest request;
  request.set_key(name);
  AgentClient client(run.options.agent);
  const auto response = client.RevokeKey(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("RevokedKey", *response));
    return kExitOk;
  }
  *run.environment.out << "Revoked: key " << Printable(response->key().id())
                       << (response->key().name().empty()
                               ? ""
                               : absl::StrCat(" (", Printable(response->key().name()), ")"))
                       << ". No gateway takes it any more; answers under way end as they do.\n";
  return kExitOk;
}

int RunKeyRotate(const Invocation& run, const std::string& name) {
  v1::RotateKeyRequest request;
  request.set_key(name);
  AgentClient client(run.options.agent);
  const auto response = client.RotateKey(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("RotatedKey", *response));
    return kExitOk;
  }
  TellKey(run, response->secret_key(), response->key());
  return kExitOk;
}

void AddKeyCreate(CommandTree& tree, CLI::App* key) {
  CLI::App* command = tree.Add(key, "create", "Create an API key; it is shown once");
  auto options = std::make_shared<KeyOptions>();
  command->add_option("--name", options->name, "Name of the key")->type_name("NAME");
  command
      ->add_option("--scope", options->scopes,
                   "Permissions: infer, read, operate, admin; comma-separated (default: infer)")
      ->type_name("SCOPES")
      ->check(NamesSomething);
  command
      ->add_option("--expires", options->expires,
                   "Lifetime of the key, such as 12h or 30d (default: no end)")
      ->check(IsLongDuration());
  command
      ->add_option("--limit", options->requests,
                   "Requests a minute at each gateway (default: no limit)")
      ->check(CLI::Range(1u, 1'000'000'000u));
  command
      ->add_option("--tokens-per-minute", options->tokens,
                   "Tokens of prompts and answers a minute at each gateway (default: no limit)")
      ->check(CLI::Range(1u, 1'000'000'000u));
  command
      ->add_option("--concurrent", options->concurrent,
                   "Concurrent requests at each gateway (default: no limit)")
      ->check(CLI::Range(1u, 1'000'000'000u));
  command
      ->add_option("--model", options->models, "Allow only this model; repeatable (default: all)")
      ->type_name("MODEL")
      ->check(NamesSomething);
  command
      ->add_option("--tenant", options->tenant,
                   "Tenant of the key; it may also use models loaded for this tenant")
      ->type_name("TENANT");
  command
      ->add_option("--access-file", options->access_file,
                   "Write an access file for clusterctl on another machine, not a key")
      ->type_name("FILE")
      ->check(NamesSomething)
      ->excludes("--model", "--tenant", "--limit", "--tokens-per-minute", "--concurrent");
  tree.OnChosen(command, [options](const Invocation& run) { return RunKeyCreate(run, *options); });
}

}  // namespace

void AddKey(CommandTree& tree) {
  CLI::App* key = tree.Add(tree.root, "key", "Manage API keys: create, list, revoke, rotate");
  key->require_subcommand(1);
  AddKeyCreate(tree, key);
  CLI::App* list = tree.Add(key, "list", "List all keys, without their secrets");
  tree.OnChosen(list, RunKeyList);
  auto revoked = std::make_shared<std::string>();
  CLI::App* revoke = tree.Add(key, "revoke", "Revoke a key for good");
  revoke->add_option("key", *revoked, "Id or name of the key")->required();
  tree.OnChosen(revoke, [revoked](const Invocation& run) { return RunKeyRevoke(run, *revoked); });
  auto rotated = std::make_shared<std::string>();
  CLI::App* rotate = tree.Add(key, "rotate", "Replace a key's secret; the old one ends at once");
  rotate->add_option("key", *rotated, "Id or name of the key")->required();
  tree.OnChosen(rotate, [rotated](const Invocation& run) { return RunKeyRotate(run, *rotated); });
}

}  // namespace macrame::cli
