#include "cli/format/redaction.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace macrame::cli {
namespace {

TEST(Redaction, AnAuthorizationGoesWholeWhateverItsScheme) {
  for (const char* value : {"Basic dXNlcjpwYXNz", "GenieKey 1234-5678", "Bearer abcdefgh"}) {
    const std::string line = std::string("alert_webhook_authorization: \"") + value + "\"";
    const std::string redacted = Redacted(line);
    EXPECT_EQ(redacted.find("dXNl"), std::string::npos) << redacted;
    EXPECT_EQ(redacted.find("1234"), std::string::npos) << redacted;
    EXPECT_EQ(redacted.find("abcd"), std::string::npos) << redacted;
  }
  EXPECT_EQ(
      Redacted("alert_webhook: \"https://hooks.example/T0/B0/secretpath\"").find("secretpath"),
      std::string::npos);
}

TEST(Redaction, AUrlGoesWholeWhateverItsPathIsMadeOf) {
  // What RFC 3986 lets stand in a path and a query, and what a quoted setting may hold beside it.
  for (const std::string between : {",", ";", "/]", "}", "),(", "!$&*+=:@", "%2C,",
                                    "?a=1,b=2;c=", "'", "''", "/'/", "it's'", "'.", "\"", "`"}) {
    const std::string url = "https://hooks.example/T0" + between + "SECRETREST";
    for (const std::string& line :
         {"alert_webhook: \"" + url + "\"", "alert_webhook: '" + url + "'", "alert_webhook: " + url,
          "--alert-webhook=" + url + " --log-level info", "{\"webhook\":\"" + url + "\",\"a\":1}",
          "{\"text\":\"{\\\"alert_webhook\\\": \\\"" + url + "\\\", \\\"a\\\": 1}\"}",
          "MACRAME_ALERT_WEBHOOK=" + url, "the webhook " + url + ", which did not answer",
          "posts go to " + url + " now"}) {
      const std::string redacted = Redacted(line);
      EXPECT_EQ(redacted.find("SECRETREST"), std::string::npos) << redacted;
      EXPECT_EQ(Redacted(redacted), redacted) << line;
    }
  }
  EXPECT_EQ(Redacted("{\"webhook\":\"https://hooks.example/a,b\",\"port\":1}"),
            "{\"webhook\":\"[redacted]\",\"port\":1}");
  EXPECT_EQ(Redacted("--alert-webhook=https://hooks.example/a,b, --log-level info"),
            "--alert-webhook=[redacted], --log-level info");
}

TEST(Redaction, AQuoteThatClosesEndsAUrl) {
  const std::pair<std::string, std::string> kTexts[] = {
      {"told 'https://hooks.example/T0', and then",
       "told 'https://hooks.example/[redacted]', and then"},
      {"(see 'https://hooks.example/T0').", "(see 'https://hooks.example/[redacted]')."},
      {"['https://a.example/x','https://b.example/y']",
       "['https://a.example/[redacted]','https://b.example/[redacted]']"},
      {"{\"text\":\"told https://hooks.example/T0\",\"port\":1}",
       "{\"text\":\"told https://hooks.example/[redacted]\",\"port\":1}"},
      {"{\"text\":\"it's 'https://hooks.example/T0'S'\",\"port\":1}",
       "{\"text\":\"it's 'https://hooks.example/[redacted]'\",\"port\":1}"},
      {"{\"text\":\"{\\\"url\\\":\\\"https://a.example/x\\\",\\\"a\\\":1}\"}",
       "{\"text\":\"{\\\"url\\\":\\\"https://a.example/[redacted]\\\",\\\"a\\\":1}\"}"}};
  for (const auto& [text, redacted] : kTexts) {
    EXPECT_EQ(Redacted(text), redacted);
    EXPECT_EQ(Redacted(redacted), redacted);
  }
}

TEST(Redaction, AQuotedSecretGoesUpToItsQuote) {
  EXPECT_EQ(Redacted("{\"password\": \"longenough, and more;]} of it\", \"a\": 1}"),
            "{\"password\": \"[redacted]\", \"a\": 1}");
  EXPECT_EQ(Redacted("api_key: \"abcdefgh\\\"REST\" # mine"), "api_key: \"[redacted]\" # mine");
  EXPECT_EQ(Redacted("api_key: \"abcdefgh\\\\\" # mine"), "api_key: \"[redacted]\" # mine");
  EXPECT_EQ(Redacted("api_key: 'abcdefgh''REST' # mine"), "api_key: '[redacted]' # mine");
  EXPECT_EQ(Redacted("secret: \"abcdefgh,REST"), "secret: \"[redacted]") << "cut off";
  EXPECT_EQ(Redacted("[token=abcdefgh,REST]"), "[token=[redacted]]");
}

TEST(Redaction, AHeaderWithQuotesOfItsOwnGoesWhole) {
  for (const char* line :
       {"Authorization: Digest username=\"ada\", response=\"SECRETREST\"",
        "alert_webhook_authorization: \"Digest username=\\\"ada\\\", response=\\\"SECRETREST\\\"\"",
        "{\"head\": \"Authorization: Digest a=\\\"ada\\\", b=\\\"SECRETREST\\\"\", \"n\": 1}"}) {
    EXPECT_EQ(Redacted(line).find("SECRETREST"), std::string::npos) << Redacted(line);
  }
  EXPECT_EQ(Redacted("{\"head\": \"Authorization: Basic dXNlcjpwYXNz\", \"n\": 1}"),
            "{\"head\": \"Authorization: [redacted]\", \"n\": 1}");
}

TEST(Redaction, SecretsGoAndTheRestStays) {
  EXPECT_EQ(Redacted("api_key: abcdefgh1234\nport: 8000\n"), "api_key: [redacted]\nport: 8000\n");
  EXPECT_EQ(Redacted("{\"secret\": \"0123456789abcdef\", \"a\": 1}"),
            "{\"secret\": \"[redacted]\", \"a\": 1}");
  EXPECT_EQ(Redacted("Authorization: Bearer sk-0123456789abcdef"),
            "Authorization: Bearer [redacted]");
  EXPECT_EQ(Redacted("joined with macrame1.abcdefgh12345678 at once"),
            "joined with [redacted] at once");
  EXPECT_EQ(Redacted("made mk-0123456789ab-8ce49c1af75fd3b66c89d12119ae78eb today"),
            "made [redacted] today");
}

// Each text holds S3CR with more around it, which nothing may keep.
TEST(Redaction, NoSecretSurvives) {
  for (const std::string text : {
           // URLs.
           "https://hooks.example?token=S3CR",
           "posts go to https://hooks.example/T0/S3CR, and then",
           "https://hooks.example#S3CR",
           "alert_webhook: https://a.example/x, https://b.example/S3CR",
           "told https://a.example/S3CR,https://b.example?S3CR;https://c.example/S3CR",
           "from https://ada:S3CR@hub.example/x",
           "from https://S3CR@hub.example",
           "from https://ada:S3CR/x@hub.example/x",
           "from https://ada:12/S3CR@hub.example/x",
           // Values that look like paths, and short ones.
           "password: /S3CR",
           "password: /home/S3CR",
           "api_key: /S3CR+x/y==",
           "token=~S3CR",
           "token: ~/S3CR",
           "password: S3CR",
           "secret=S3CR",
           "{\"token\":\"S3CR\"}",
           "pwd: 'S3CR'",
           "--password S3CR --port 1",
           // Several words.
           "{\"password\": \"correct S3CR\", \"a\": 1}",
           "password: correct horse S3CR",
           "password: a,S3CR:x=1",
           "[info] passphrase: correct horse S3CR",
           // Headers.
           "x-api-key: S3CR",
           "X-Api-Key: \"S3CR\"",
           "-H 'x-api-key: S3CR'",
           "xApiKey=S3CR",
           "Authorization: Basic dXNlS3CR",
           "proxy-authorization: Basic dXNlS3CR",
           "[\"authorization\",\"Basic dXNlS3CR\"]",
           "answered to Basic dXNlS3CR=",
           "Cookie: a=b; session=S3CR",
           // Our keys.
           "bad key:mk-0123456789ab-S3CR",
           "(mk-0123456789ab-S3CR)",
           "mk-0123456789abcdef,mk-0123456789ab-S3CR",
           "/mk-0123456789ab-S3CR/",
           "hf_0123456789S3CR",
           // JSON.
           "{\"api_keys\":[\"a\",\"S3CR\"],\"a\":1}",
           "{\"secrets\":{\"a\":{\"b\":\"S3CR\"}}}",
           "{\n  \"api_keys\": [\n    \"a]\",\n    \"S3CR\"\n  ]\n}",
           "{\n  \"secrets\": {\n    \"a\": \"S3CR\"\n  }\n}",
           "{\"text\":\"api_keys:\\n  - S3CR\"}",
           "{\"password\":1234,\"token\":\"S3CR\"}",
           // YAML.
           "api_keys:\n  - a\n  - S3CR\nport: 1",
           "api_keys:\n- a\n\n- S3CR\nport: 1",
           "api_keys: [a, S3CR]",
           "api_keys: [a,\n  S3CR]",
           "password: |\n  first\n\n  S3CR\nport: 1",
           "password: >-  # folded\n  S3CR",
           "password: | S3CR",
           "- token: |2\n    S3CR\n  port: 1",
           "- token: first\n    S3CR",
           "password: \"first\n  S3CR\"",
           "secrets:\n  a: S3CR\n  b:\n    - S3CR",
           "{password: S3CR, port: 1}",
       }) {
    const std::string redacted = Redacted(text);
    EXPECT_EQ(redacted.find("S3CR"), std::string::npos) << text << "\n-> " << redacted;
    EXPECT_EQ(Redacted(redacted), redacted) << text;
  }
}

TEST(Redaction, WhatStandsAroundASecretStays) {
  const std::pair<std::string, std::string> kTexts[] = {
      {"https://ada:pw@hub.example:8443/x?y", "https://[redacted]@hub.example:8443/[redacted]"},
      {"https://hooks.example?token=a failed", "https://hooks.example/[redacted] failed"},
      {"gets http://127.0.0.1:8000/v1/models, and", "gets http://127.0.0.1:8000/v1/models, and"},
      {"{password: abc, port: 1}", "{password: [redacted], port: 1}"},
      {"{\"password\":1234,\"port\":1}", "{\"password\":\"[redacted]\",\"port\":1}"},
      {"{\"api_keys\": [\"a\", \"b\"], \"port\": 1}",
       "{\"api_keys\": \"[redacted]\", \"port\": 1}"},
      {"{\n  \"api_keys\": [\n    \"a\",\n    \"b\"\n  ],\n  \"port\": 1\n}",
       "{\n  \"api_keys\": [\n    \"[redacted]\",\n    \"[redacted]\"\n  ],\n  \"port\": 1\n}"},
      {"api_keys:\n  - a\n  - b\nport: 1", "api_keys:\n  - [redacted]\n  - [redacted]\nport: 1"},
      {"- token: |\n    a\n  port: 1", "- token: |\n    [redacted]\n  port: 1"},
      {"password: a\nport: 1", "password: [redacted]\nport: 1"}};
  for (const auto& [text, redacted] : kTexts) EXPECT_EQ(Redacted(text), redacted);
}

TEST(Redaction, PathsSwitchesAndCountsAreNoSecrets) {
  for (const char* line :
       {"gateway_tls_key: /etc/macrame/key.pem", "gateway_tls_key: \"/models/tls/own.pem\"",
        "ssh_key: ~/.ssh/id_ed25519", "cluster_secret: /root/.macrame/cluster.secret",
        "{\"tokens\":[72, 105],\"prompt_tokens\":12}", "bytes_per_token: 12", "secrets: {}",
        "api_key: null", "{\"has_token\":true}", "tasks of disk-0123456789", "basic words only",
        "cluster_secret_file: \"/root/.macrame/cluster.secret\"", "prompt_tokens: 12",
        "completion_tokens_total=123456", "secret: no", "\"node_id\": \"0123456789abcdef0123\""}) {
    EXPECT_EQ(Redacted(line), line);
  }
}

TEST(Redaction, BlocksOfKeysAndCertificatesGoAsAWhole) {
  EXPECT_EQ(Redacted("a\n-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\nb"),
            "a\n[redacted]\nb");
}

}  // namespace
}  // namespace macrame::cli
