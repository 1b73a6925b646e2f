// What links and doctor print, held against the files beside this one, as in cli_views_test.cc.

#include <gtest/gtest.h>

#include "cli/format/doctor_view.h"
#include "cli/format/links_view.h"
#include "tests/golden/golden_files.h"
#include "tests/unit/cli/sample_links.h"
#include "transport/links/diagnosis.h"

namespace macrame::cli {
namespace {

TEST(Golden, Links) {
  for (const int width : {80, 120}) {
    const std::string text = LinksText(SamplePair(), "", /*detail=*/false, width, Style());
    ExpectGolden("links-pair-" + std::to_string(width) + ".txt", text);
    ExpectWithin(width, text);
  }
  ExpectGolden("links-detail-120.txt", LinksText(SamplePair(), "mini-a", true, 120, Style()));
  ExpectGolden("links-stats-100.txt", NetworkStatsText(SamplePair(), 100, Style()));
}

TEST(Golden, Doctor) {
  ExpectGolden("doctor-pair.txt", DoctorText(SampleDiagnosis(), Style()));
  ExpectGolden("doctor-report.md", transport::DiagnosisMarkdown(SampleDiagnosis()));
  ExpectGolden("doctor-explain.txt", ExplainText("TB4_CONTROLLER", Style()));
}

}  // namespace
}  // namespace macrame::cli
