// The `planner` program: one v1::PlannerQuestion on standard input, its v1::PlannerAnswer on
// standard output. clusterctl runs it for questions that need no cluster. Exit 2: the question
// can't be read.

#include <iostream>

#include "planner/offline/planner_answer.h"

int main() {
  macrame::v1::PlannerQuestion question;
  if (!question.ParseFromIstream(&std::cin)) {
    std::cerr << "planner: standard input is not a question; run 'clusterctl plan', 'capacity' or "
                 "'topology'\n";
    return 2;
  }
  const bool written = macrame::planner::AnswerOf(question).SerializeToOstream(&std::cout);
  return written && std::cout.flush() ? 0 : 1;
}
