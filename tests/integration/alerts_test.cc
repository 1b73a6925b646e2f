// A webhook is told that an agent is dead, by the coordinator alone, and that it is back.

#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/integration/cluster_test_base.h"
#include "tests/unit/agentd/services/hook_server.h"

namespace macrame::tests {
namespace {

class AlertsTest : public ClusterTest {
 protected:
  // The first alert of this code and state, once there is one.
  nlohmann::json WaitForAlert(const std::string& code, const std::string& state, int limit_s) {
    for (int i = 0; i < limit_s * 10; ++i) {
      for (const nlohmann::json& alert : Alerts()) {
        if (alert["code"] == code && alert["state"] == state) return alert;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ADD_FAILURE() << "no alert " << code << " (" << state << ") within " << limit_s << " s";
    return {};
  }
  std::vector<nlohmann::json> Alerts() {
    std::vector<nlohmann::json> alerts;
    for (const std::string& request : hook_.requests()) {
      alerts.push_back(nlohmann::json::parse(request.substr(request.find("\r\n\r\n") + 4)));
    }
    return alerts;
  }

  HookServer hook_;
};

TEST_F(AlertsTest, ADeadNodeIsToldOnceAndItsReturnOnce) {
  for (const char* name : {"ada", "bess", "cleo"}) {
    AddAgent(name, "", {"alert_webhook: " + hook_.url()}).Start();
  }
  WaitFor("three agents", Running(), 20, [](const v1::ClusterStatus& status) {
    return AliveCount(status) == 3 && HasCoordinator(status);
  });
  const std::string coordinator = NodeIdOf(Coordinator());
  AgentProcess& victim = *agents_[NodeIdOf(*agents_[0]) == coordinator ? 1 : 0];
  const std::string id = NodeIdOf(victim);
  victim.Kill(SIGKILL);
  const nlohmann::json raised = WaitForAlert("NODE_DEAD", "raised", 30);
  ASSERT_FALSE(raised.is_null());
  EXPECT_EQ(raised["node_id"], id);
  EXPECT_EQ(raised["cluster"], "trial");
  EXPECT_NE(raised["text"].get<std::string>().find("NODE_DEAD"), std::string::npos) << raised;
  victim.Start();
  const nlohmann::json over = WaitForAlert("NODE_DEAD", "over", 60);
  ASSERT_FALSE(over.is_null());
  EXPECT_EQ(over["node_id"], id);
  for (const nlohmann::json& alert : Alerts()) EXPECT_EQ(alert["code"], "NODE_DEAD") << alert;
  EXPECT_EQ(Alerts().size(), 2u) << "each once, by one agent";
}

}  // namespace
}  // namespace macrame::tests
