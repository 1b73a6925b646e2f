#include "discovery/probe/machine_link_prober.h"

#include <openssl/sha.h>

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "discovery/probe/link_flaps.h"
#include "discovery/probe/link_watcher.h"
#include "discovery/probe/mac_probe.h"

namespace macrame::discovery {

bool SameLinkFacts(const v1::LinkFacts& a, const v1::LinkFacts& b) {
  const auto substance = [](v1::LinkFacts facts) {
    facts.clear_outputs();
    facts.set_probed_unix_ms(0);
    // Routes to single hosts come and go with every connection.
    auto* routes = facts.mutable_routes();
    for (int i = routes->size() - 1; i >= 0; --i) {
      const std::string& destination = routes->Get(i).destination();
      const bool is_net = destination == "default" || destination.find('/') != std::string::npos;
      if (!is_net) routes->DeleteSubrange(i, 1);
    }
    for (v1::Reason& reason : *facts.mutable_unknown()) reason.clear_evidence();
    return facts.SerializeAsString();
  };
  return substance(a) == substance(b);
}

std::string HardwareId(const std::string& serial) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  const std::string salted = "macrame hardware " + serial;
  SHA256(reinterpret_cast<const unsigned char*>(salted.data()), salted.size(), digest);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), 8));
}

std::string CommandsFolder() {
  const char* folder = std::getenv("MACRAME_COMMANDS_FOLDER");
  return folder == nullptr ? "" : folder;
}

std::unique_ptr<ProcessCommandRunner> MakeCommandRunner() {
  const std::string folder = CommandsFolder();
  if (folder.empty()) return std::make_unique<ProcessCommandRunner>();
  return std::make_unique<ProcessCommandRunner>(std::vector<std::string>{folder});
}

bool IsMacByCommands() {
#ifdef __APPLE__
  return true;
#else
  const std::string folder = CommandsFolder();
  std::error_code error;
  return !folder.empty() && std::filesystem::exists(folder + "/sw_vers", error);
#endif
}

namespace {

// system_profiler and the log take a Mac's cores for seconds: what they say is kept for this long
// while the quick answers stay as they are.
constexpr Duration kSlowAnswersKept = std::chrono::minutes(5);
constexpr Duration kChangeInterval = std::chrono::seconds(1);

// Worker thread. Passes questions on, but answers the slow ones from memory while nothing moved,
// and those that show whether something did with what they said at the beginning of the probe.
class ThriftyRunner : public CommandRunner {
 public:
  explicit ThriftyRunner(CommandRunner& inner) : inner_(inner) {}

  // Before each probe: forgets the slow answers when interfaces, RDMA devices or their ports differ
  // from those at the probe before, when they are old, or when asked to; and once more at the probe
  // after that: what is slow to ask is also slow to follow a change.
  void BeginProbe(MonotonicTime now, bool forget) {
    std::string quick;
    for (const Command& command : {IfconfigCommand(), IbvDevicesCommand(), IbvDevinfoCommand()}) {
      CommandResult& said = fresh_[CommandLine(command)];
      said = inner_.Run(command);
      quick += said.out;
    }
    const bool moved = quick != quick_;
    const bool settled = !std::exchange(moved_, moved && !quick_.empty()) && !moved;
    if (!forget && settled && now - asked_ < kSlowAnswersKept) return;
    quick_ = quick;
    asked_ = now;
    std::erase_if(kept_,
                  [](const auto& entry) { return !HoldsForGood(entry.first, entry.second); });
  }

  CommandResult Run(const Command& command) override {
    static const std::set<std::string> slow = {"system_profiler", "log", "kmutil", "ioreg",
                                               "plutil"};
    const std::string line = CommandLine(command);
    if (const auto said = fresh_.find(line); said != fresh_.end()) return said->second;
    if (!slow.contains(command.argv.front())) return inner_.Run(command);
    const auto [found, is_new] = kept_.try_emplace(line);
    if (is_new) found->second = inner_.Run(command);
    return found->second;
  }

 private:
  // What a Mac is made of, its firmware with it, changes with a restart alone.
  static bool HoldsForGood(const std::string& line, const CommandResult& said) {
    return said.Succeeded() && line == CommandLine(HardwareOverviewCommand());
  }

  CommandRunner& inner_;
  std::string quick_;
  bool moved_ = false;  // at the probe before
  MonotonicTime asked_{};
  std::map<std::string, CommandResult> fresh_;  // of this probe
  std::map<std::string, CommandResult> kept_;
};

}  // namespace

class MachineLinkProber::Impl : public std::enable_shared_from_this<MachineLinkProber::Impl> {
 public:
  Impl(transport::Dispatcher& dispatcher, LinkInputs inputs, Options options)
      : dispatcher_(dispatcher),
        inputs_(std::move(inputs)),
        options_(std::move(options)),
        own_runner_(MakeCommandRunner()),
        runner_(options_.runner != nullptr ? *options_.runner : *own_runner_),
        panic_reports_(options_.panic_reports) {}

  void Start(std::function<void(const v1::LinkFacts&)> on_facts) {
    on_facts_ = std::move(on_facts);
    running_ = true;
    if (options_.watch) {
      watcher_ = std::make_unique<LinkWatcher>([weak = weak_from_this(), &to = dispatcher_] {
        to.Post([weak] {
          if (const auto self = weak.lock()) self->OnChange();
        });
      });
    }
    Ask();
  }

  // At most one probe an interval, so that a port that flaps costs little.
  void OnChange() {
    if (!running_ || change_due_) return;
    change_due_ = true;
    const Duration since = dispatcher_.Now() - asked_at_;
    const Duration wait = since >= kChangeInterval ? Duration::zero() : kChangeInterval - since;
    dispatcher_.PostAfter(wait, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      self->change_due_ = false;
      self->ProbeNow({});
    });
  }

  void Stop() {
    if (!running_) return;
    running_ = false;
    watcher_.reset();
    dispatcher_.Cancel(timer_);
    own_runner_->Stop();
    worker_.stop();
    worker_.join();
  }

  void ProbeNow(std::function<void()> done) {
    if (done) waiting_.push_back(std::move(done));
    if (!running_) return;
    if (asking_) {
      again_ = true;
    } else {
      Ask();
    }
  }

  const v1::LinkFacts& facts() const { return facts_; }

 private:
  v1::LinkFacts Collect(MonotonicTime now, uint64_t unix_ms, bool forget) {
    if (!options_.is_mac) return CollectLinuxLinks(options_.root, inputs_, options_.verbs);
    runner_.BeginProbe(now, forget);
    v1::LinkFacts facts = CollectMacLinks(runner_, inputs_);
    panic_reports_.Read(unix_ms, facts);
    return facts;
  }

  // The probe's parts outlive the worker, which Stop() joins.
  void Ask() {
    dispatcher_.Cancel(timer_);
    asking_ = true;
    std::vector<std::function<void()>> done;
    done.swap(waiting_);
    const MonotonicTime now = asked_at_ = dispatcher_.Now();
    const uint64_t unix_ms = dispatcher_.UnixMs();
    boost::asio::post(
        worker_, [this, weak = weak_from_this(), now, unix_ms, done = std::move(done)]() mutable {
          v1::LinkFacts fresh = Collect(now, unix_ms, /*forget=*/!done.empty());
          transport::Dispatcher& dispatcher = dispatcher_;
          dispatcher.Post([weak, fresh = std::move(fresh), done = std::move(done)]() mutable {
            const auto self = weak.lock();
            if (!self || !self->running_) return;
            self->Take(std::move(fresh));
            for (const auto& tell : done) tell();
          });
        });
  }

  void Take(v1::LinkFacts fresh) {
    asking_ = false;
    fresh.set_probed_unix_ms(dispatcher_.UnixMs());
    flaps_.Note(fresh, asked_at_);
    const bool changed = facts_.node_id().empty() || !SameLinkFacts(fresh, facts_);
    facts_ = std::move(fresh);
    if (changed && on_facts_) on_facts_(facts_);
    if (std::exchange(again_, false) || !waiting_.empty()) return Ask();
    timer_ = dispatcher_.PostAfter(options_.interval, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && self->running_ && !self->asking_) self->Ask();
    });
  }

  transport::Dispatcher& dispatcher_;
  const LinkInputs inputs_;
  const Options options_;
  const std::unique_ptr<ProcessCommandRunner> own_runner_;
  ThriftyRunner runner_;        // worker thread
  PanicReports panic_reports_;  // worker thread
  std::function<void(const v1::LinkFacts&)> on_facts_;
  boost::asio::thread_pool worker_{1};
  bool running_ = false;
  bool asking_ = false;
  bool again_ = false;
  bool change_due_ = false;
  MonotonicTime asked_at_{};
  std::unique_ptr<LinkWatcher> watcher_;
  std::vector<std::function<void()>> waiting_;
  transport::Dispatcher::TimerId timer_ = 0;
  v1::LinkFacts facts_;
  LinkFlaps flaps_;
};

MachineLinkProber::MachineLinkProber(transport::Dispatcher& dispatcher, LinkInputs inputs,
                                     Options options)
    : impl_(std::make_shared<Impl>(dispatcher, std::move(inputs), std::move(options))) {}

MachineLinkProber::~MachineLinkProber() { Stop(); }

void MachineLinkProber::Start(std::function<void(const v1::LinkFacts&)> on_facts) {
  impl_->Start(std::move(on_facts));
}

void MachineLinkProber::Stop() { impl_->Stop(); }
void MachineLinkProber::ProbeNow(std::function<void()> done) { impl_->ProbeNow(std::move(done)); }
const v1::LinkFacts& MachineLinkProber::facts() const { return impl_->facts(); }

}  // namespace macrame::discovery
