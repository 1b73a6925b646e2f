#pragma once

// A cluster of three nodes with one model, as an agent would tell of it: for views and commands.

#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::cli {

// Three alive nodes; "tiny" is ready as a pipeline over them.
v1::ClusterStatus HealthyCluster();
// Of a model on the first two nodes of HealthyCluster; the second has a bad file of each kind.
v1::ModelVerification DamagedModel();
// The third node is dead, the model is being launched again, an unknown node was heard; some names
// try to steer the terminal.
v1::ClusterStatus TroubledCluster();
v1::Plan SamplePlan();
v1::PlanResult FittingPlan();
v1::PlanResult MisfitPlan();
v1::ListModelsResponse SampleModels();
// A load under way: rank 0 ready, rank 1 half loaded, rank 2 not started.
v1::LoadModelProgress SampleProgress();

}  // namespace macrame::cli
