#pragma once

// c-ares has the same names, for systems without this header.
#include <ares_nameser.h>
