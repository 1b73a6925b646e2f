#pragma once

// A scenario interprets commands, one a line, and answers with what it saw.

#include <memory>
#include <string>
#include <vector>

namespace macrame::scenario {

class Scenario {
 public:
  virtual ~Scenario() = default;
  // Lines of text, or an empty string. An unknown command answers "unknown command".
  virtual std::string Run(const std::vector<std::string>& words) = 0;
};

// Several nodes' Election, with instant messages: nodes, run, cut, heal, see, crash, start, pause,
// resume, order, resign.
std::unique_ptr<Scenario> MakeElectionScenario();
// One coordinator's GangReconciler: nodes, lead, deploy, remove, node, plan, refuse, written,
// launched, rank, gone, ended, run, status.
std::unique_ptr<Scenario> MakeGangScenario();

}  // namespace macrame::scenario
