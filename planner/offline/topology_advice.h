#pragma once

// Which cable goes where (cabling.h says which ways there are), what each is worth in tokens a
// second, and, of machines that are there, which cable is missing and which is in the wrong socket.

#include <vector>

#include "macrame/v1/model.pb.h"
#include "macrame/v1/planner.pb.h"
#include "planner/offline/cabling.h"

namespace macrame::planner {

// Above four machines desks and a ring are both options: the one that gives one user of `model` the
// more tokens a second comes first; of two as fast, the one whose cables are all there, else desks;
// the first note says which and why. `model` nullptr: cables are not costed.
// `is_there`: the machines are not to be bought but stand there with the cables `present`.
v1::TopologyAdvice AdviseOnTopology(const std::vector<CabledMachine>& machines,
                                    const std::vector<v1::PresentCable>& present, bool is_there,
                                    const v1::ModelDescription* model);

}  // namespace macrame::planner
