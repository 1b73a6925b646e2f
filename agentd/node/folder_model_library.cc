#include "agentd/node/folder_model_library.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agentd/node/model_describer.h"
#include "discovery/probe/command_runner.h"
#include "proto/reasons.h"
#include "runtime/model_files/model_folders.h"
#include "runtime/supervisor/process_supervisor.h"

namespace macrame::agentd {
namespace {

// So long a model that was put into a folder may be unknown.
constexpr Duration kGlanceInterval = std::chrono::seconds(3);

DescribedModel Take(runtime::ResolvedModel resolved) {
  DescribedModel taken{std::move(resolved.description), std::move(resolved.note)};
  taken.description.set_fingerprint(resolved.model.fingerprint());
  return taken;
}

}  // namespace

FolderModelLibrary::FolderModelLibrary(transport::Dispatcher& dispatcher,
                                       std::vector<std::string> folders, const std::string& rankd)
    : dispatcher_(dispatcher),
      runner_(std::make_shared<discovery::ProcessCommandRunner>()),
      folders_(std::make_shared<runtime::ModelFolders>(
          std::move(folders),
          [describer =
               ModelDescriber(runner_, rankd.empty() ? runtime::RankdBesideThisProgram() : rankd)](
              const std::string& folder, const runtime::SecondEngine& second) {
            return describer.Describe(folder, second);
          })),
      worker_(std::make_unique<transport::WorkerThread>()) {}

FolderModelLibrary::~FolderModelLibrary() { Stop(); }

void FolderModelLibrary::Start(Duration interval,
                               std::function<void(std::vector<v1::LocalModel>)> on_models) {
  interval_ = interval;
  on_models_ = std::move(on_models);
  Scan();
}

void FolderModelLibrary::Stop() {
  alive_.reset();
  runner_->Stop();
  worker_.reset();
  if (timer_ != 0) dispatcher_.Cancel(timer_);
  timer_ = 0;
}

void FolderModelLibrary::SetSecondEngine(runtime::SecondEngine second) {
  awaits_second_engine_ = false;
  if (worker_ == nullptr) return;
  second_to_set_ = std::move(second);
  Scan();
}

// While the worker has too much to do, it is asked again later.
void FolderModelLibrary::Scan() {
  const bool added = worker_->Add(
      [this, folders = folders_, second = second_to_set_, weak = std::weak_ptr<bool>(alive_)] {
        if (second.has_value()) folders->SetSecondEngine(*second);
        std::vector<v1::LocalModel> models = folders->Scan();
        std::vector<v1::Reason> broken = folders->Broken();
        dispatcher_.Post(
            [this, weak, models = std::move(models), broken = std::move(broken)]() mutable {
              if (!weak.expired()) Took(std::move(models), std::move(broken));
            });
      });
  if (!added) return ScheduleGlance();
  second_to_set_.reset();
}

// Only the folders' own times: a full look is for what changed, and for each `interval_`.
void FolderModelLibrary::Glance() {
  if (second_to_set_.has_value()) return Scan();
  const bool added = worker_->Add([this, folders = folders_, weak = std::weak_ptr<bool>(alive_)] {
    const bool changed = folders->LooksChanged();
    dispatcher_.Post([this, weak, changed] {
      if (weak.expired()) return;
      if (changed || dispatcher_.Now() - scanned_at_ >= interval_) return Scan();
      ScheduleGlance();
    });
  });
  if (!added) ScheduleGlance();
}

void FolderModelLibrary::ScheduleGlance() {
  if (timer_ != 0) dispatcher_.Cancel(timer_);
  timer_ = dispatcher_.PostAfter(std::min(kGlanceInterval, interval_),
                                 [this, weak = std::weak_ptr<bool>(alive_)] {
                                   if (!weak.expired()) Glance();
                                 });
}

void FolderModelLibrary::Took(std::vector<v1::LocalModel> models, std::vector<v1::Reason> broken) {
  if (awaits_second_engine_) {
    std::erase_if(broken, [](const v1::Reason& reason) {
      return reason.code() == reasons::kModelArchitectureUnknown;
    });
  }
  for (const v1::Reason& reason : broken) {
    bool known = false;
    for (const v1::Reason& old : broken_) known = known || old.message() == reason.message();
    if (!known) spdlog::warn("{}: {}", reason.code(), reason.message());
  }
  broken_ = std::move(broken);
  const bool is_first_look = !std::exchange(has_looked_, true);
  std::string now;
  for (const v1::LocalModel& model : models) now += model.SerializeAsString();
  if (is_first_look || now != last_models_) {
    last_models_ = std::move(now);
    spdlog::info("{} models on this node", models.size());
    on_models_(std::move(models));
  }
  scanned_at_ = dispatcher_.Now();
  ScheduleGlance();
}

template <typename Found>
void FolderModelLibrary::Run(std::function<absl::StatusOr<Found>()> work,
                             std::function<void(absl::StatusOr<Found>)> done) {
  if (worker_ == nullptr) return done(absl::UnavailableError("this agent is stopping"));
  // The callback is kept on this side: what it holds belongs to the owner thread.
  auto kept = std::make_shared<std::function<void(absl::StatusOr<Found>)>>(std::move(done));
  const bool added = worker_->Add(
      [this, weak = std::weak_ptr<bool>(alive_), folders = folders_, work = std::move(work), kept] {
        auto result = std::make_shared<absl::StatusOr<Found>>(work());
        // It looked at all folders on the way.
        dispatcher_.Post([this, weak, kept, result, models = folders->Models(),
                          broken = folders->Broken()]() mutable {
          if (weak.expired()) return;
          if (on_models_) Took(std::move(models), std::move(broken));
          (*kept)(std::move(*result));
        });
      });
  if (!added) (*kept)(absl::ResourceExhaustedError("too many models are being looked at"));
}

void FolderModelLibrary::Locate(const std::string& name_or_path, Located done) {
  Run<LocatedModel>(
      [folders = folders_, name_or_path]() -> absl::StatusOr<LocatedModel> {
        auto located = folders->Locate(name_or_path);
        if (!located.ok()) return located.status();
        LocatedModel model{std::move(located->name), std::move(located->path), {}};
        if (!located->described.ok()) model.broken = ReasonOf(located->described);
        return model;
      },
      std::move(done));
}

void FolderModelLibrary::Resolve(const std::string& name_or_path, Described done) {
  Run<DescribedModel>(
      [folders = folders_, name_or_path]() -> absl::StatusOr<DescribedModel> {
        absl::StatusOr<runtime::ResolvedModel> resolved = folders->Resolve(name_or_path);
        if (!resolved.ok()) return resolved.status();
        return Take(std::move(*resolved));
      },
      std::move(done));
}

void FolderModelLibrary::Find(const v1::ModelDescription& model, Described done) {
  Run<DescribedModel>(
      [folders = folders_, model]() -> absl::StatusOr<DescribedModel> {
        absl::StatusOr<runtime::ResolvedModel> found =
            folders->Find(model.name(), model.fingerprint());
        if (found.ok()) return Take(std::move(*found));
        // A model that was named by its path need not be in a model folder.
        absl::StatusOr<runtime::ResolvedModel> by_path = folders->Resolve(model.path());
        if (by_path.ok() && by_path->description.fingerprint() == model.fingerprint()) {
          return Take(std::move(*by_path));
        }
        return found.status();
      },
      std::move(done));
}

}  // namespace macrame::agentd
