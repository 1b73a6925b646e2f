#pragma once

// A diagnosis as people read it. Pure.

#include <string>

#include "cli/format/text.h"
#include "macrame/v1/link.pb.h"

namespace macrame::cli {

std::string DoctorText(const v1::Diagnosis& diagnosis, const Style& style);

// The worst severity among the findings.
v1::Severity WorstOf(const v1::Diagnosis& diagnosis);

// What a code, or words that people use for it, means; empty when it is not known.
std::string ExplainText(const std::string& code_or_words, const Style& style);

}  // namespace macrame::cli
