#include "runtime/serving/cold/cold_worker.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace macrame::runtime::engine {
namespace {

int64_t UnixNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ColdWorker::ColdWorker(Options options, std::function<void(ColdEvent)> tell)
    : options_(std::move(options)), tell_(std::move(tell)), thread_([this] { Run(); }) {}

ColdWorker::~ColdWorker() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    jobs_.clear();
  }
  thread_.join();
}

void ColdWorker::Put(Job job) {
  absl::MutexLock lock(&mutex_);
  queued_bytes_ += job.content.size();
  jobs_.push_back(std::move(job));
}

void ColdWorker::Store(const ColdBlock& block, std::vector<std::byte> content) {
  bool has_place = false;
  {
    absl::MutexLock lock(&mutex_);
    has_place = queued_bytes_ == 0 || queued_bytes_ + content.size() <= kColdQueuedBytesMax;
  }
  if (has_place) return Put({Job::Kind::kStore, block, std::move(content), {}, {}});
  ++refused_;
  ColdEvent refused;
  refused.kind = ColdEvent::Kind::kRefused;
  refused.names.push_back(NameOf(block));
  Tell(std::move(refused));
}

// Somebody waits for it: before what is to be written, behind other loads.
void ColdWorker::Load(const ColdLoad& load) {
  absl::MutexLock lock(&mutex_);
  const auto at = std::find_if(jobs_.begin(), jobs_.end(),
                               [](const Job& job) { return job.kind != Job::Kind::kLoad; });
  Job job{Job::Kind::kLoad, {}, {}, load, {}};
  jobs_.insert(at, std::move(job));
}

std::optional<std::vector<std::string>> ColdWorker::TakeLoaded(uint64_t id) {
  absl::MutexLock lock(&mutex_);
  const auto found = loaded_.find(id);
  if (found == loaded_.end()) return std::nullopt;
  std::optional<std::vector<std::string>> contents = std::move(found->second);
  loaded_.erase(found);
  return contents;
}

void ColdWorker::Drop(std::vector<BlockName> names) {
  Put({Job::Kind::kDrop, {}, {}, {}, std::move(names)});
}

void ColdWorker::Touch(std::vector<BlockName> names) {
  Put({Job::Kind::kTouch, {}, {}, {}, std::move(names)});
}

ColdCounts ColdWorker::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

std::string ColdWorker::off_reason() const {
  absl::MutexLock lock(&mutex_);
  return off_reason_;
}

void ColdWorker::NoteState() {
  ColdEvent off;
  {
    absl::MutexLock lock(&mutex_);
    counts_ = shelf_->counts();
    if (off_reason_.empty()) off.text = shelf_->off_reason();
    if (!off.text.empty()) off_reason_ = off.text;
  }
  if (off.text.empty()) return;
  off.kind = ColdEvent::Kind::kOff;
  Tell(std::move(off));
}

bool ColdWorker::Open() {
  auto files = OpenColdFiles(options_.folder);
  absl::Status status = files.status();
  if (status.ok()) {
    files_ = *std::move(files);
    shelf_ = std::make_unique<ColdShelf>(*files_, options_.layout, options_.bytes_max,
                                         absl::StrCat(getpid()), options_.age_max.count());
    status = shelf_->Open(UnixNs());
  }
  ColdEvent event;
  if (!status.ok()) {
    event.kind = ColdEvent::Kind::kOff;
    event.text = std::string(status.message());
    {
      absl::MutexLock lock(&mutex_);
      off_reason_ = event.text;
    }
    Tell(std::move(event));
    return false;
  }
  shelf_->TakeRemoved();
  NoteState();
  event.kind = ColdEvent::Kind::kListed;
  event.names = shelf_->Names();
  Tell(std::move(event));
  return true;
}

std::optional<ColdWorker::Job> ColdWorker::TakeJob(bool* closed) {
  const auto is_due = +[](ColdWorker* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
    return self->closed_ || !self->jobs_.empty();
  };
  absl::MutexLock lock(&mutex_);
  if (stock_due_ == std::chrono::steady_clock::time_point::max()) {
    mutex_.Await(absl::Condition(is_due, this));
  } else {
    const auto left = stock_due_ - std::chrono::steady_clock::now();
    // Also while it is busy: then it is due already.
    if (left.count() <= 0 ||
        !mutex_.AwaitWithTimeout(absl::Condition(is_due, this), absl::FromChrono(left))) {
      *closed = closed_;
      return std::nullopt;
    }
  }
  *closed = closed_;
  if (closed_) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  queued_bytes_ -= job.content.size();
  return job;
}

// A folder that can't be read now is looked at again the next time.
void ColdWorker::TakeStock() {
  shelf_->Open(UnixNs()).IgnoreError();
  TellRemoved();
  NoteState();
  stock_due_ = std::chrono::steady_clock::now() + options_.stock_pause;
}

void ColdWorker::Run() {
  const bool is_open = Open();
  if (is_open && options_.age_max.count() > 0) {
    stock_due_ = std::chrono::steady_clock::now() + options_.stock_pause;
  }
  while (true) {
    bool closed = false;
    std::optional<Job> job = TakeJob(&closed);
    if (closed) return;
    if (!job.has_value()) {
      TakeStock();
    } else if (is_open) {
      Do(*job);
      NoteState();
    } else if (job->kind == Job::Kind::kLoad) {
      ColdEvent nothing;
      nothing.kind = ColdEvent::Kind::kLoaded;
      nothing.id = job->load.id;
      Tell(std::move(nothing));
    }
  }
}

void ColdWorker::Do(Job& job) {
  const int64_t now = UnixNs();
  switch (job.kind) {
    case Job::Kind::kStore: {
      ColdEvent event;
      const bool stored = shelf_->Store(job.block, job.content, now);
      event.kind = stored ? ColdEvent::Kind::kStored : ColdEvent::Kind::kRefused;
      event.names.push_back(NameOf(job.block));
      TellRemoved();
      return Tell(std::move(event));
    }
    case Job::Kind::kLoad:
      return DoLoad(job.load);
    case Job::Kind::kDrop:
      for (const BlockName& name : job.names) shelf_->Drop(name);
      return;
    case Job::Kind::kTouch:
      for (size_t i = 0; i < job.names.size(); ++i) {
        shelf_->Touch(job.names[i], static_cast<uint32_t>(i), now);
      }
      return;
  }
}

void ColdWorker::DoLoad(const ColdLoad& load) {
  std::vector<std::string> contents;
  ColdBlock block;
  block.parent = load.parent;
  block.depth = load.depth;
  for (size_t at = 0; at + kBlockTokens <= load.tokens.size(); at += kBlockTokens) {
    std::copy_n(load.tokens.begin() + static_cast<std::ptrdiff_t>(at), kBlockTokens,
                block.tokens.begin());
    std::string content;
    if (!shelf_->Load(block, UnixNs(), &content)) break;
    contents.push_back(std::move(content));
    block.parent = NameOf(block);
    ++block.depth;
  }
  ColdEvent event;
  event.kind = ColdEvent::Kind::kLoaded;
  event.id = load.id;
  event.blocks = static_cast<uint32_t>(contents.size());
  {
    absl::MutexLock lock(&mutex_);
    loaded_.emplace(load.id, std::move(contents));
  }
  TellRemoved();
  Tell(std::move(event));
}

void ColdWorker::TellRemoved() {
  ColdEvent event;
  event.kind = ColdEvent::Kind::kRemoved;
  event.names = shelf_->TakeRemoved();
  if (!event.names.empty()) Tell(std::move(event));
}

void ColdWorker::Tell(ColdEvent event) {
  event.rank = options_.rank;
  tell_(std::move(event));
}

}  // namespace macrame::runtime::engine
