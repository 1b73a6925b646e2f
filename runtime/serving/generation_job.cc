#include "runtime/serving/generation_job.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/model/config/python_json.h"
#include "runtime/serving/text_probe.h"
#include "transport/regular_file.h"

namespace macrame::runtime::engine {
namespace {

absl::Status BadRequest(std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest, std::move(message));
}

absl::Status CheckKeys(const v1::GenerateRequest& request) {
  if (request.fairness_key().size() <= kKeyBytesMax &&
      request.cache_salt().size() <= kKeyBytesMax) {
    return absl::OkStatus();
  }
  return BadRequest(
      absl::StrCat("fairness_key and cache_salt have at most ", kKeyBytesMax, " bytes"));
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const v1::GenerateRequest& request,
                                                  const ModelText& text, int64_t local_unix_s,
                                                  uint32_t context_length) {
  if (request.messages().empty() && !request.prompt_token_ids().empty()) {
    return std::vector<int32_t>(request.prompt_token_ids().begin(),
                                request.prompt_token_ids().end());
  }
  if (request.messages().empty()) {
    // The whole prompt is the caller's, control tokens too: there is no other voice to forge.
    return text.tokenizer.Encode(request.prompt(), /*add_special_tokens=*/true,
                                 /*special_tokens_in_text=*/true, context_length);
  }
  return EncodeMessages(request, request.messages_size(), text, local_unix_s, true, context_length);
}

SamplingTraits ReadSampling(const v1::Sampling& asked, SamplingTraits defaults, uint64_t seed) {
  SamplingTraits traits = defaults;
  if (asked.has_temperature()) traits.temperature = asked.temperature();
  if (asked.has_top_p()) traits.top_p = asked.top_p();
  if (asked.has_top_k()) traits.top_k = asked.top_k();
  if (asked.has_min_p()) traits.min_p = asked.min_p();
  if (asked.has_typical_p()) traits.typical_p = asked.typical_p();
  // The smallest set of tokens there is: the likeliest one.
  if (asked.has_top_p() && asked.top_p() == 0) {
    traits.temperature = 0;
    traits.top_p = 1;
  }
  traits.seed = asked.has_seed() ? asked.seed() : seed;
  return traits;
}

LogitRules ReadRules(const v1::Sampling& asked, double repetition_penalty) {
  LogitRules rules;
  rules.repetition_penalty =
      asked.has_repetition_penalty() ? asked.repetition_penalty() : repetition_penalty;
  rules.presence_penalty = asked.presence_penalty();
  rules.frequency_penalty = asked.frequency_penalty();
  rules.biases.assign(asked.logit_bias().begin(), asked.logit_bias().end());
  return rules;
}

// When an answer may end, and what is told beside it.
absl::Status CheckEnds(const v1::GenerateRequest& request, int vocab_size) {
  if (request.stop_token_ids_size() > kStopTokenIdsMax) {
    return BadRequest(absl::StrCat("stop_token_ids has ", request.stop_token_ids_size(),
                                   " entries, more than ", kStopTokenIdsMax));
  }
  for (const int32_t token : request.stop_token_ids()) {
    if (token < 0 || token >= vocab_size) {
      return BadRequest(
          absl::StrCat("stop_token_ids names token ", token, ", the model has ", vocab_size));
    }
  }
  if (request.max_tokens() > 0 && request.min_tokens() > request.max_tokens()) {
    return BadRequest(absl::StrCat("min_tokens is ", request.min_tokens(), ", max_tokens ",
                                   request.max_tokens()));
  }
  if (request.top_logprobs() > kTopLogprobsMax) {
    return BadRequest(
        absl::StrCat("top_logprobs is ", request.top_logprobs(), ", more than ", kTopLogprobsMax));
  }
  return absl::OkStatus();
}

std::set<int32_t> EndTokens(const v1::GenerateRequest& request, const text::Tokenizer& tokenizer) {
  std::set<int32_t> tokens;
  if (!request.ignore_eos()) tokens = tokenizer.EosIds();
  tokens.insert(request.stop_token_ids().begin(), request.stop_token_ids().end());
  return tokens;
}

// What the answer is held to, and from where on.
absl::Status AddStructure(const v1::GenerateRequest& request, const ModelText& text, bool is_chat,
                          GenerationJob& job) {
  if (request.min_tokens() > 0) {
    return BadRequest("min_tokens and a structure can't both say when an answer ends");
  }
  StructurePlan& plan = job.shape.structure;
  auto constraint = text.grammars->Compile(request.structure());
  if (!constraint.ok()) return constraint.status();
  plan.constraint = *std::move(constraint);
  if (is_chat) AddStructurePlaces(request, text.voice, text.tokenizer, plan);
  const bool can_call = is_chat && !request.tools().tools_json().empty();
  if (!can_call || !plan.call_openers.empty()) return absl::OkStatus();
  return BadRequest(
      "this model's tool calls begin as text does, so an answer can't be both free to call and "
      "held to a structure; send either tools or the structure");
}

// A call that must be made has arguments by its tool's schema, where that can be kept.
absl::Status AddForcedCall(const v1::GenerateRequest& request, const ModelText& text,
                           GenerationJob& job) {
  const std::optional<ForcedCall> call = ForcedCallOf(request, text.voice);
  if (!call.has_value()) return absl::OkStatus();
  v1::Structure structure;
  structure.set_lark(call->lark);
  auto constraint = text.grammars->Compile(structure);
  if (!constraint.ok()) {
    if (!call->is_strict) return absl::OkStatus();
    return BadRequest(absl::StrCat("a tool's 'parameters' can't be kept, which 'strict' asks for: ",
                                   constraint.status().message()));
  }
  job.shape.structure.constraint = *std::move(constraint);
  job.shape.structure.is_of_call = true;
  return absl::OkStatus();
}

// Calls that the model makes by itself have arguments by the schemas of strict tools, where the
// family's calls can be held.
absl::Status AddOwnCalls(const v1::GenerateRequest& request, const ModelText& text,
                         GenerationJob& job) {
  const std::optional<OwnCalls> calls = OwnCallsOf(request, text.voice, text.tokenizer);
  if (!calls.has_value()) return absl::OkStatus();
  v1::Structure structure;
  structure.set_lark(calls->lark);
  auto constraint = text.grammars->Compile(structure);
  if (!constraint.ok()) {
    return BadRequest(absl::StrCat("a tool's 'parameters' can't be kept, which 'strict' asks for: ",
                                   constraint.status().message()));
  }
  StructurePlan& plan = job.shape.structure;
  plan.constraint = *std::move(constraint);
  plan.is_of_call = plan.awaits_calls = true;
  plan.call_openers = {calls->opener};
  return absl::OkStatus();
}

absl::Status Refuse(std::string_view code, std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, code, std::move(message));
}

// The prompt's embedding, and no answer: of the rest of the request nothing counts.
absl::StatusOr<GenerationJob> PrepareEmbedding(const v1::GenerateRequest& request,
                                               const ModelText& text, int vocab_size,
                                               GenerationJob job) {
  const EmbeddingTraits& traits = text.embedding;
  if (traits.pooling == Pooling::kNone) {
    return Refuse(reasons::kModelHasNoEmbeddings,
                  "this model makes text and no embeddings: its folder says nothing of how its "
                  "positions would become one");
  }
  job.embedding = EmbeddingPlan{traits.pooling, request.embedding().dimensions()};
  if (job.embedding->dimensions > traits.width) {
    return Refuse(reasons::kDimensionsTooMany,
                  absl::StrCat("'dimensions' is ", job.embedding->dimensions,
                               "; this model's embeddings have ", traits.width, " numbers"));
  }
  if (!request.messages().empty()) return BadRequest("an embedding is made of text, not of a chat");
  auto prompt = EncodePrompt(request, text, /*local_unix_s=*/0, job.limits.context_length);
  if (!prompt.ok()) return prompt.status();
  job.prompt = *std::move(prompt);
  const bool is_text = request.prompt_token_ids().empty();
  const auto& end = traits.end_token;
  if (is_text && end.has_value() && (job.prompt.empty() || job.prompt.back() != *end)) {
    job.prompt.push_back(*end);
  }
  const absl::Status status =
      CheckPrompt(job.prompt, vocab_size, job.limits.context_length, /*behind=*/0);
  if (!status.ok()) return status;
  return job;
}

bool IsTemplateRefusal(const absl::Status& status) {
  return !status.ok() && ReasonOf(status).code() == reasons::kTemplateRefused;
}

// They are switches and short texts: what is longer is a mistake, or worse. Judged before they are
// parsed, because values take many times the bytes of their text.
constexpr size_t kTemplateArgumentsBytesMax = 64 * 1024;
constexpr size_t kTemplateArgumentsDepthMax = 100;

absl::Status CheckTemplateArguments(const v1::GenerateRequest& request) {
  const std::string& given = request.template_arguments_json();
  const auto refused = [](const std::string& why) {
    return BadRequest(absl::StrCat("the template's arguments (chat_template_kwargs) ", why,
                                   "; send what is long as a message"));
  };
  if (given.size() > kTemplateArgumentsBytesMax) {
    return refused(
        absl::StrCat("have ", given.size(), " bytes, more than ", kTemplateArgumentsBytesMax));
  }
  size_t depth = 0;
  bool is_text = false;
  for (size_t i = 0; i < given.size(); ++i) {
    const char c = given[i];
    if (is_text && c == '\\') ++i;
    if (c == '"') is_text = !is_text;
    if (is_text) continue;
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (depth > kTemplateArgumentsDepthMax) {
      return refused(
          absl::StrCat("are nested more than ", kTemplateArgumentsDepthMax, " levels deep"));
    }
  }
  return absl::OkStatus();
}

// Empty when there is no such file; CheckTextFiles has said what else is wrong with it.
std::string TextFileOf(const std::string& folder, const char* name) {
  return transport::ReadRegularFile(absl::StrCat(folder, "/", name), kTextConfigBytesMax)
      .value_or("");
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> EncodeMessages(const v1::GenerateRequest& request, int count,
                                                    const ModelText& text, int64_t local_unix_s,
                                                    bool opens_answer, size_t tokens_max) {
  if (!text.chat_template.has_value()) return text.no_template;
  if (absl::Status fits = CheckTemplateArguments(request); !fits.ok()) return fits;
  const std::string arguments_json = TemplateArgumentsJson(request);
  text::ChatPrompt prompt;
  prompt.tools_json = request.tools().tools_json();
  prompt.kwargs_json = arguments_json;
  prompt.add_generation_prompt = opens_answer;
  prompt.local_unix_s = local_unix_s;
  prompt.tokens_max = tokens_max;
  std::string messages_json = MessagesJson(request, count, text.voice);
  prompt.messages_json = messages_json;
  auto encoded = text.chat_template->EncodeChat(text.tokenizer, prompt);
  if (!IsTemplateRefusal(encoded.status())) return encoded;
  // What the template has against this chat the probes did not find.
  for (const TurnRules& rules : StricterRules(text.voice)) {
    ChatVoice voice = text.voice;
    static_cast<TurnRules&>(voice) = rules;
    std::string stricter = MessagesJson(request, count, voice);
    if (stricter == messages_json) continue;
    messages_json = std::move(stricter);
    prompt.messages_json = messages_json;
    auto again = text.chat_template->EncodeChat(text.tokenizer, prompt);
    if (again.ok()) return again;
  }
  return encoded;
}

SamplingTraits ParseSamplingDefaults(const std::string& generation_config_json) {
  SamplingTraits traits;
  const auto config = ParsePythonJson(generation_config_json);
  traits.temperature = 1.0;
  if (!config.is_object()) return traits;
  if (!config.value("do_sample", nlohmann::json(false)).is_boolean() ||
      !config.value("do_sample", nlohmann::json(false)).get<bool>()) {
    traits.temperature = 0.0;
    return traits;
  }
  const auto number = [&](const char* key, double fallback) {
    const auto found = config.find(key);
    return found != config.end() && found->is_number() ? found->get<double>() : fallback;
  };
  const auto read = [&](double SamplingTraits::*field, const char* key) {
    SamplingTraits tried = traits;
    tried.*field = number(key, traits.*field);
    if (CheckSampling(tried).ok()) traits = tried;
  };
  read(&SamplingTraits::temperature, "temperature");
  read(&SamplingTraits::top_p, "top_p");
  read(&SamplingTraits::min_p, "min_p");
  read(&SamplingTraits::typical_p, "typical_p");
  const double top_k = number("top_k", 0.0);
  traits.top_k = top_k > 0.0 && top_k < 1e9 ? static_cast<uint32_t>(top_k) : 0;
  return traits;
}

double ParseRepetitionPenalty(const std::string& generation_config_json) {
  const auto config = ParsePythonJson(generation_config_json);
  if (!config.is_object()) return 1.0;
  const auto found = config.find("repetition_penalty");
  if (found == config.end() || !found->is_number()) return 1.0;
  LogitRules rules;
  rules.repetition_penalty = found->get<double>();
  return CheckLogitRules(rules, 0).ok() ? rules.repetition_penalty : 1.0;
}

namespace {

// What transformers puts behind every text for some tokenizers, whose tokenizer.json need not say.
std::optional<int32_t> EndTokenOf(const std::string& folder, const text::Tokenizer& tokenizer) {
  const auto config = ParsePythonJson(TextFileOf(folder, "tokenizer_config.json"));
  if (!config.is_object() || config.value("add_eos_token", nlohmann::json()) != true) {
    return std::nullopt;
  }
  nlohmann::json end = config.value("eos_token", nlohmann::json());
  if (end.is_object()) end = end.value("content", nlohmann::json());
  return end.is_string() ? tokenizer.TokenId(end.get<std::string>()) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelText>> LoadModelText(const std::string& folder,
                                                               const EmbeddingTraits& embedding) {
  if (const absl::Status status = CheckTextFiles(folder); !status.ok()) return status;
  auto tokenizer = text::Tokenizer::Load(folder);
  if (!tokenizer.ok()) return tokenizer.status();
  auto loaded = std::make_shared<ModelText>(
      ModelText{*std::move(tokenizer), std::nullopt, absl::OkStatus(), {}, {}, 1.0, nullptr, {}});
  loaded->embedding = embedding;
  loaded->embedding.end_token = EndTokenOf(folder, loaded->tokenizer);
  loaded->grammars = std::make_shared<const ModelGrammars>(loaded->tokenizer);
  auto chat_template = text::ChatTemplate::Load(folder);
  if (chat_template.ok()) {
    loaded->chat_template = *std::move(chat_template);
    loaded->voice = VoiceOf(*loaded->chat_template, loaded->tokenizer);
  } else if (ReasonOf(chat_template.status()).code() != reasons::kModelFileMissing) {
    // Each chat would fail with it: the load does, and says which file it is.
    return chat_template.status();
  } else {
    // Such a model still completes plain prompts; a chat is refused with this.
    loaded->no_template = BadRequest(
        absl::StrCat("the model has no usable chat template: ", chat_template.status().message(),
                     ". It goes on with a plain prompt: 'clusterctl model infer NAME --raw', or ",
                     "/v1/completions"));
  }
  const std::string defaults = TextFileOf(folder, "generation_config.json");
  loaded->sampling_defaults = ParseSamplingDefaults(defaults);
  loaded->repetition_penalty = ParseRepetitionPenalty(defaults);
  return loaded;
}

std::function<std::string(int32_t)> TokenBytesOf(std::shared_ptr<const ModelText> text) {
  auto kept = std::make_shared<absl::flat_hash_map<int32_t, std::string>>();
  return [text = std::move(text), kept = std::move(kept)](int32_t token) {
    if (kept->size() >= kTokensKeptMax) kept->clear();
    const auto [at, is_new] = kept->try_emplace(token);
    if (is_new) at->second = text->tokenizer.BytesOf(token);
    return at->second;
  };
}

int64_t LocalUnixSeconds() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) return now;
  return static_cast<int64_t>(now) + local.tm_gmtoff;
}

absl::Status CheckPrompt(const std::vector<int32_t>& prompt, int vocab_size,
                         uint32_t context_length, uint32_t behind) {
  if (prompt.empty()) return BadRequest("the prompt is empty");
  for (const int32_t token : prompt) {
    if (token < 0 || token >= vocab_size) {
      return BadRequest(
          absl::StrCat("the prompt holds token ", token, ", the model has ", vocab_size));
    }
  }
  if (prompt.size() + behind > context_length) {
    return ReasonStatus(
        absl::StatusCode::kInvalidArgument, reasons::kPromptTooLong,
        absl::StrCat("the prompt has ", prompt.size(),
                     " tokens, the model was loaded with a context of ", context_length));
  }
  return absl::OkStatus();
}

namespace {

// What every request has, whatever it asks for.
GenerationJob JobFor(const v1::GenerateRequest& request, uint32_t context_length) {
  GenerationJob job;
  job.request_id = request.request_id();
  job.fairness_key = request.fairness_key();
  job.priority = request.priority();
  job.cache_salt = request.cache_salt();
  job.memory_only = request.memory_only();
  job.wants_progress = request.progress();
  job.wants_timings = request.timings();
  if (request.queue_limit_ms() > 0) {
    job.queue_limit = std::chrono::milliseconds(request.queue_limit_ms());
  }
  job.limits.context_length = context_length;
  return job;
}

absl::Status TakeSampling(const v1::GenerateRequest& request, const ModelText& text, int vocab_size,
                          uint64_t seed, GenerationJob& job) {
  job.sampling = ReadSampling(request.sampling(), text.sampling_defaults, seed);
  job.rules = ReadRules(request.sampling(), text.repetition_penalty);
  if (request.has_top_logprobs()) job.top_logprobs = request.top_logprobs();
  job.stops.assign(request.stop().begin(), request.stop().end());
  absl::Status status = CheckSampling(job.sampling);
  if (status.ok()) status = CheckLogitRules(job.rules, vocab_size);
  if (status.ok()) status = CheckEnds(request, vocab_size);
  if (status.ok()) status = CheckStopStrings(job.stops);
  if (status.ok()) status = CheckTools(request, text.voice);
  return status;
}

}  // namespace

absl::StatusOr<GenerationJob> PrepareJob(const v1::GenerateRequest& request, const ModelText& text,
                                         int vocab_size, uint32_t context_length, uint64_t seed,
                                         int64_t local_unix_s) {
  GenerationJob job = JobFor(request, context_length);
  absl::Status status = CheckKeys(request);
  if (!status.ok()) return status;
  if (request.has_embedding()) return PrepareEmbedding(request, text, vocab_size, std::move(job));
  if (!text.embedding.has_head) {
    return Refuse(reasons::kModelHasNoText, "this model makes embeddings and no text");
  }
  status = TakeSampling(request, text, vocab_size, seed, job);
  if (!status.ok()) return status;
  auto prompt = EncodePrompt(request, text, local_unix_s, context_length);
  if (!prompt.ok()) return prompt.status();
  status = CheckPrompt(*prompt, vocab_size, context_length);
  if (!status.ok()) return status;
  job.prompt = *std::move(prompt);
  job.limits.prompt_tokens = static_cast<uint32_t>(job.prompt.size());
  job.limits.max_tokens = request.max_tokens();
  job.limits.min_tokens = request.min_tokens();
  job.limits.end_tokens = EndTokens(request, text.tokenizer);
  const bool is_chat = !request.messages().empty() && !request.plain_text();
  if (is_chat) {
    auto shape = ShapeOf(request, text.voice, text.tokenizer, job.prompt, seed);
    if (!shape.ok()) return shape.status();
    job.shape = *std::move(shape);
    if (!request.ignore_eos()) {
      job.limits.end_tokens.insert(text.voice.end_tokens.begin(), text.voice.end_tokens.end());
    }
  }
  if (request.has_structure()) {
    status = AddStructure(request, text, is_chat, job);
  } else if (is_chat) {
    status = AddForcedCall(request, text, job);
    if (status.ok()) status = AddOwnCalls(request, text, job);
  }
  if (!status.ok()) return status;
  return job;
}

}  // namespace macrame::runtime::engine
