#pragma once

// Where our other programs are.

#include <string>

namespace macrame::transport {

// The program of that name in the folder of the running one; the bare name, for the PATH to find,
// when that folder can't be told.
std::string ProgramBesideThis(const std::string& name);

}  // namespace macrame::transport
