#pragma once

// How unevenly a step falls on ranks that hold whole experts. A layer waits for the rank that holds
// most of those that its tokens chose; cut by width, all have the same to do. Pure.
//
// A router is taken to choose every expert alike. Then the experts that a step reads are `draws` of
// `count`, each set of so many as likely as any other, and how many of them each rank holds is
// multivariate hypergeometric (N. L. Johnson, S. Kotz, N. Balakrishnan, Discrete Multivariate
// Distributions, Wiley 1997, chapter 39). With c[i] the most that rank i may hold,
//
//   P(X[i] <= c[i] for all i) = [z^draws] of the product over i of
//                               sum over k <= c[i] of C(n[i], k) z^k,  divided by C(count, draws)
//
// and the expected time of the slowest rank is the sum of P(time > t) over the times t that there
// are: exact up to kExactDraws. Beyond, what the slowest has above the largest mean is taken to
// grow as the standard deviation does, sqrt(draws (count - draws)), to nothing where all are read.
// Trained routers choose less evenly, so a step of one token may wait longer.

#include <cstdint>
#include <span>

namespace macrame::planner {

struct ExpertHolder {
  uint32_t experts = 0;
  double us = 1;  // that one expert takes it, in any unit
};

inline constexpr uint32_t kExactDraws = 32;

// Expected time of the slowest holder when `draws` of all their experts are read; parts of a draw
// between those of whole ones.
double SlowestHolder(std::span<const ExpertHolder> holders, double draws);

// The same as multiples of what the slowest would take if each had just its share.
struct ExpertSkew {
  double read = 1;  // bytes: of each expert that is chosen, once
  double work = 1;  // operations: of each token's every choice
};
// Each of `tokens` takes `active` experts.
ExpertSkew SkewOf(std::span<const ExpertHolder> holders, uint32_t active, double tokens);

}  // namespace macrame::planner
