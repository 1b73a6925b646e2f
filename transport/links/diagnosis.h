#pragma once

// The doctor's answer: findings with symptom, evidence, cause, remedy and who; what was ruled out
// and by which evidence; the lowest layer that fails. Pure. Any thread.

#include <span>
#include <string>

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// `node_ids` empty: all. `run_failures` are reasons of gangs that failed, newest first: a
// downstream symptom is reported under its root cause when the facts know one.
v1::Diagnosis Diagnose(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
                       std::span<const std::string> node_ids,
                       std::span<const v1::Reason> run_failures);

// What a failure of a gang on these nodes comes from: the reason of the lowest failing layer when
// `symptom` is a downstream one and the facts know a cause; else `symptom` itself.
v1::Reason RootCause(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
                     std::span<const std::string> node_ids, const v1::Reason& symptom);

// The diagnosis as a document, Markdown and JSON; secrets (serials, MACs, user names) cut.
std::string DiagnosisMarkdown(const v1::Diagnosis& diagnosis);
// MAC addresses, serial numbers, UUIDs and names in home folders taken out of any text.
std::string CutSecrets(std::string text);

}  // namespace macrame::transport
