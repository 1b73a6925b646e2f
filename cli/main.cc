#include "cli/app.h"

int main(int argc, char** argv) {
  return macrame::cli::RunClusterctl({argv + 1, argv + argc}, macrame::cli::ProcessEnvironment());
}
