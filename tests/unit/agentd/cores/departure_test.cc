#include "agentd/cores/departure.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLimit = seconds(30);
MonotonicTime At(Duration since) { return MonotonicTime(seconds(1000)) + since; }

DepartureView Among() {
  DepartureView view;
  view.has_other = view.has_coordinator = true;
  return view;
}

TEST(Departure, WhoDoesNothingGoesAtOnce) {
  Departure departure(kLimit, /*led=*/false, At({}));
  EXPECT_TRUE(departure.IsOver(Among(), At({})));
  EXPECT_TRUE(Departure(kLimit, false, At({})).IsOver(DepartureView(), At({})));
}

TEST(Departure, AnswersAreWaitedForUpToTheLimit) {
  Departure departure(kLimit, false, At({}));
  DepartureView view = Among();
  view.requests = 1;
  EXPECT_FALSE(departure.IsOver(view, At(kLimit - milliseconds(1))));
  EXPECT_TRUE(departure.IsOver(view, At(kLimit)));
  Departure another(kLimit, false, At({}));
  EXPECT_FALSE(another.IsOver(view, At(seconds(5))));
  view.requests = 0;
  EXPECT_TRUE(another.IsOver(view, At(seconds(6))));
}

TEST(Departure, ACoordinatorWaitsForItsSuccessor) {
  Departure departure(kLimit, /*led=*/true, At({}));
  DepartureView view = Among();
  view.has_coordinator = false;
  EXPECT_FALSE(departure.IsOver(view, At(milliseconds(100))));
  EXPECT_TRUE(departure.IsOver(view, At(kSuccessorWait))) << "not for ever";
  Departure another(kLimit, true, At({}));
  view.has_coordinator = true;
  EXPECT_TRUE(another.IsOver(view, At(milliseconds(100))));
  Departure last(kLimit, true, At({}));
  EXPECT_TRUE(last.IsOver(DepartureView(), At({}))) << "nobody is there to follow";
}

TEST(Departure, RanksAreLeftToTheCoordinatorToMove) {
  Departure departure(kLimit, false, At({}));
  DepartureView view = Among();
  view.holds_ranks = view.ranks_busy = true;
  EXPECT_FALSE(departure.IsOver(view, At(seconds(5))));
  view.ranks_busy = false;
  EXPECT_FALSE(departure.IsOver(view, At(seconds(6)))) << "it may be about to be moved";
  EXPECT_TRUE(departure.IsOver(view, At(seconds(5) + kHandOverWait))) << "nobody moved it";
  view.holds_ranks = false;
  EXPECT_TRUE(Departure(kLimit, false, At({})).IsOver(view, At(seconds(1))));
}

TEST(Departure, WithNobodyElseThereIdleRanksAreNotWaitedFor) {
  Departure departure(kLimit, false, At({}));
  DepartureView view;
  view.holds_ranks = view.ranks_busy = true;
  EXPECT_FALSE(departure.IsOver(view, At(seconds(5))));
  view.ranks_busy = false;
  EXPECT_TRUE(departure.IsOver(view, At(seconds(5))));
}

TEST(Departure, RequestsAreHandedOnAsLongAsTheyMayEndInTime) {
  Departure departure(kLimit, false, At({}));
  EXPECT_FALSE(departure.Refuses(Among(), At(seconds(14))));
  EXPECT_TRUE(departure.Refuses(Among(), At(seconds(15))));
  EXPECT_TRUE(departure.Refuses(DepartureView(), At({}))) << "to whom";
}

}  // namespace
}  // namespace macrame::agentd
