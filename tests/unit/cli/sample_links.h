#pragma once

// A MacBook with Thunderbolt 5 cabled to one with Thunderbolt 4: what a probe of each says, judged.

#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// The first node is HealthyCluster()'s own.
v1::LinksView SamplePair();
v1::Diagnosis SampleDiagnosis();
// Two commands for the own node, one for another.
v1::NetPlan SampleNetPlan();

}  // namespace macrame::cli
