#include "cli/format/redaction.h"

#include <gtest/gtest.h>

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
  for (const std::string between :
       {",", ";", "/]", "}", "),(", "!$&*+=:@", "%2C,", "?a=1,b=2;c="}) {
    const std::string url = "https://hooks.example/T0" + between + "SECRETREST";
    for (const std::string& line :
         {"alert_webhook: \"" + url + "\"", "alert_webhook: '" + url + "'", "alert_webhook: " + url,
          "--alert-webhook=" + url + " --log-level info", "{\"webhook\":\"" + url + "\",\"a\":1}",
          "{\"text\":\"{\\\"alert_webhook\\\": \\\"" + url + "\\\", \\\"a\\\": 1}\"}",
          "MACRAME_ALERT_WEBHOOK=" + url, "the webhook " + url + ", which did not answer"}) {
      EXPECT_EQ(Redacted(line).find("SECRETREST"), std::string::npos) << Redacted(line);
    }
  }
  EXPECT_EQ(Redacted("{\"webhook\":\"https://hooks.example/a,b\",\"port\":1}"),
            "{\"webhook\":\"[redacted]\",\"port\":1}");
  EXPECT_EQ(Redacted("--alert-webhook=https://hooks.example/a,b, --log-level info"),
            "--alert-webhook=[redacted], --log-level info");
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
  EXPECT_EQ(Redacted("{\"password\": \"correct horse\", \"a\": 1}"),
            "{\"password\": \"correct horse\", \"a\": 1}")
      << "words of a sentence are no secret";
  EXPECT_EQ(Redacted("{\"secret\": \"0123456789abcdef\", \"a\": 1}"),
            "{\"secret\": \"[redacted]\", \"a\": 1}");
  EXPECT_EQ(Redacted("Authorization: Bearer sk-0123456789abcdef"),
            "Authorization: Bearer [redacted]");
  EXPECT_EQ(Redacted("joined with macrame1.abcdefgh12345678 at once"),
            "joined with [redacted] at once");
  EXPECT_EQ(Redacted("made mk-0123456789ab-8ce49c1af75fd3b66c89d12119ae78eb today"),
            "made [redacted] today");
}

TEST(Redaction, PathsSwitchesAndCountsAreNoSecrets) {
  for (const char* line :
       {"cluster_secret_file: \"/root/.macrame/cluster.secret\"", "prompt_tokens: 12",
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
