#pragma once

// A Python interpreter for tests that runs fake_worker.py whatever it is given.

#include <string>

namespace macrame::runtime {

// The path of one whose worker behaves as `mode` says (fake_worker.py has the list; "" is well).
std::string FakePython(const std::string& mode);

}  // namespace macrame::runtime
