#include "tests/unit/runtime/second_engine/fake_python.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/unit/fresh_folder.h"

namespace macrame::runtime {

std::string FakePython(const std::string& mode) {
  const std::string path = FreshFolder() + "/fake-python";
  std::ofstream(path) << "#!/bin/sh\nFAKE_MODE='" << mode << "' FAKE_PID='" << path
                      << ".pid' exec python3 '" << MACRAME_SOURCE
                      << "/tests/unit/runtime/second_engine/fake_worker.py'\n";
  chmod(path.c_str(), 0700);
  return path;
}

}  // namespace macrame::runtime
