#pragma once

// What several nodes' readings of one model's files say together. Pure.
//
// A file that is as its download noted is right. Where no node's download noted anything, what most
// of the nodes have is taken for right, when at least two have it. Others' files are then alike,
// altered, or truncated when they are shorter and neither a text nor known to be whole by their own
// header; without anything to go by they differ. A file that one node has and another lacks is
// missing there. Nodes whose downloads noted different checksums have different revisions of the
// model: their files differ.

#include "macrame/v1/operation.pb.h"

namespace macrame::agentd {

// Judges the files of all `nodes` and says whether all passed: every file of every node that has
// the model, and one node at least has it. A node that has no such model is no fault; one that
// could not be asked, or can't load it, is.
void JudgeModelFiles(v1::ModelVerification& verification);

}  // namespace macrame::agentd
