#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/duration.h"
#include "cli/format/access_view.h"

namespace macrame::cli {
namespace {

struct KeyOptions {
  std::string name;
  std::vector<std::string> scopes{"infer"};
  std::string expires;
  uint32_t requests = 0, tokens = 0, concurrent = 0;
  std::vector<std::string> models;
  std::string tenant;
};

// The key alone on stdout, so that a script can take it; the rest for people.
void TellKey(const Invocation& run, const std::string& secret_key, const v1::ApiKey& key) {
  *run.environment.out << secret_key << "\n" << std::flush;
  if (run.options.quiet) return;
  *run.environment.err << "This key is shown once; only a digest of it is kept. Its id is "
                       << key.id() << ", it expires " << TimeText(key.expires_unix_ms())
                       << ", its limits: " << LimitsText(key) << ".\n"
                       << "Programs send it as 'Authorization: Bearer KEY' (OPENAI_API_KEY).\n";
}

int RunKeyCreate(const Invocation& run, const KeyOptions& options) {
  v1::CreateKeyRequest request;
  v1::ApiKey& key = *request.mutable_key();
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
  AgentClient client(run.options.socket_path);
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
  AgentClient client(run.options.socket_path);
  const auto response = client.ListKeys();
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("KeyList", *response));
    return kExitOk;
  }
  *run.environment.out << KeysView(*response, NowUnixMs(), run.environment.terminal_size().columns,
                                   run.style);
  return kExitOk;
}

int RunKeyRevoke(const Invocation& run, const std::string& name) {
  v1::RevokeKeyRequest request;
  request.set_key(name);
  AgentClient client(run.options.socket_path);
  const auto response = client.RevokeKey(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("RevokedKey", *response));
    return kExitOk;
  }
  *run.environment.out << "Revoked: key " << response->key().id()
                       << (response->key().name().empty()
                               ? ""
                               : absl::StrCat(" (", Printable(response->key().name()), ")"))
                       << ". No gateway takes it any more; answers under way end as they do.\n";
  return kExitOk;
}

int RunKeyRotate(const Invocation& run, const std::string& name) {
  v1::RotateKeyRequest request;
  request.set_key(name);
  AgentClient client(run.options.socket_path);
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
  CLI::App* command = tree.Add(key, "create", "Make a key for the HTTP API; it is shown once");
  auto options = std::make_shared<KeyOptions>();
  command->add_option("--name", options->name, "What people call it");
  command
      ->add_option("--scope", options->scopes,
                   "What it may do: infer, read, operate, admin; commas between them (infer)")
      ->check(NamesSomething);
  command
      ->add_option("--expires", options->expires, "After how long it ends, as 12h or 30d (never)")
      ->check(IsLongDuration());
  command->add_option("--limit", options->requests, "Requests a minute at each gateway (no limit)")
      ->check(CLI::Range(1u, 1'000'000'000u));
  command
      ->add_option("--tokens-per-minute", options->tokens,
                   "Tokens of prompts and answers a minute at each gateway (no limit)")
      ->check(CLI::Range(1u, 1'000'000'000u));
  command
      ->add_option("--concurrent", options->concurrent,
                   "Requests under way at once at each gateway (no limit)")
      ->check(CLI::Range(1u, 1'000'000'000u));
  command->add_option("--model", options->models, "Only this model; may be repeated (all)")
      ->check(NamesSomething);
  command->add_option("--tenant", options->tenant,
                      "Whose it is: it also gets the models that were loaded for this tenant");
  tree.OnChosen(command, [options](const Invocation& run) { return RunKeyCreate(run, *options); });
}

}  // namespace

void AddKey(CommandTree& tree) {
  CLI::App* key = tree.Add(tree.root, "key", "Keys of the HTTP API: make, list, end, renew");
  key->require_subcommand(1);
  AddKeyCreate(tree, key);
  CLI::App* list = tree.Add(key, "list", "All keys, without their secrets");
  tree.OnChosen(list, RunKeyList);
  auto revoked = std::make_shared<std::string>();
  CLI::App* revoke = tree.Add(key, "revoke", "End a key for good");
  revoke->add_option("key", *revoked, "Its id, or its name")->required();
  tree.OnChosen(revoke, [revoked](const Invocation& run) { return RunKeyRevoke(run, *revoked); });
  auto rotated = std::make_shared<std::string>();
  CLI::App* rotate = tree.Add(key, "rotate", "Give a key a new secret; the old one ends at once");
  rotate->add_option("key", *rotated, "Its id, or its name")->required();
  tree.OnChosen(rotate, [rotated](const Invocation& run) { return RunKeyRotate(run, *rotated); });
}

}  // namespace macrame::cli
