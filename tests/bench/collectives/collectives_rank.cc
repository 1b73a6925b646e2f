// One rank of the collectives' benchmark. Prints a line "SIZE_BYTES US_MIN US_P50" for each size;
// rank 0 is read.
//
//   collectives_rank GROUP RANK ROUNDS ADDRESS,ADDRESS,… SIZE,SIZE,… [DEVICE,DEVICE,…]
//
// GROUP: ours (TCP group, called directly), ours-private (the same on links that are held for
// private, so nothing is encrypted), ours-mlx and ours-mlx-private (the same two inside an MLX
// graph), mlx-ring (MLX's own backend, inside an MLX graph), verbs and verbs-uc (RDMA over reliable
// and unreliable connections, called directly; DEVICE is by rank the one that leads there, "-" for
// oneself).
//
// Each result is compared with the sum that it must be.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "mlx/mlx.h"
#include "transport/collectives/tcp_wire.h"
#include "transport/mlx_group/mlx_group.h"
#include "transport/verbs/verbs_wire.h"

namespace {

namespace mx = mlx::core;
using std::chrono::steady_clock;

// One all-reduce of `count` floats.
using AllReduce = std::function<void(size_t count)>;

AllReduce OverMlx(const mx::distributed::Group& group) {
  return [group](size_t count) {
    mx::array in = mx::full({static_cast<int>(count)}, 1.0f);
    in.eval();
    mx::array out = mx::distributed::all_sum(in, group);
    out.eval();
  };
}

[[noreturn]] void Give(const absl::Status& why) {
  std::fprintf(stderr, "%s\n", std::string(why.message()).c_str());
  std::exit(1);
}

std::unique_ptr<macrame::transport::Wire> ConnectTcp(int rank,
                                                     const std::vector<std::string>& addresses,
                                                     bool is_private = false) {
  macrame::transport::TcpWireOptions options;
  options.rank = rank;
  options.size = static_cast<int>(addresses.size());
  options.addresses = addresses;
  options.secret = std::string(32, 'b');
  options.private_links.assign(addresses.size(), is_private);
  auto wire = macrame::transport::ConnectTcpWire(options);
  if (!wire.ok()) Give(wire.status());
  return *std::move(wire);
}

std::shared_ptr<macrame::transport::Group> ConnectOurs(int rank,
                                                       const std::vector<std::string>& addresses,
                                                       bool is_private) {
  return macrame::transport::MakeGroup(ConnectTcp(rank, addresses, is_private),
                                       macrame::Topology::kMesh);
}

std::shared_ptr<macrame::transport::Group> ConnectVerbs(
    int rank, const std::vector<std::string>& addresses, const std::string& devices,
    macrame::transport::VerbsConnection connection) {
  macrame::transport::VerbsWireOptions options;
  for (const absl::string_view device : absl::StrSplit(devices, ',')) {
    options.devices.emplace_back(device == "-" ? "" : std::string(device));
  }
  options.connection = connection;
  auto wire = macrame::transport::ConnectVerbsWire(options, ConnectTcp(rank, addresses));
  if (!wire.ok()) Give(wire.status());
  return macrame::transport::MakeGroup(*std::move(wire), macrame::Topology::kMesh);
}

AllReduce Direct(const std::shared_ptr<macrame::transport::Group>& group, size_t size_max) {
  auto in = std::make_shared<std::vector<float>>(size_max / sizeof(float) + 1);
  auto out = std::make_shared<std::vector<float>>(in->size());
  for (size_t i = 0; i < in->size(); ++i) {
    (*in)[i] = static_cast<float>(i % 1000) + static_cast<float>(group->rank());
  }
  return [group, in, out](size_t count) {
    const absl::Status status =
        group->AllReduce(in->data(), out->data(), count, macrame::transport::Element::kFloat32,
                         macrame::transport::Reduction::kSum);
    if (!status.ok()) Give(status);
    const int ranks = group->size();
    for (const size_t i : {size_t{0}, count / 2, count - 1}) {
      const float wanted = static_cast<float>((i % 1000) * static_cast<size_t>(ranks)) +
                           static_cast<float>(ranks * (ranks - 1) / 2);
      if ((*out)[i] != wanted) Give(absl::DataLossError("a sum is wrong"));
    }
  };
}

mx::distributed::Group ConnectMlxRing(int rank, const std::vector<std::string>& addresses) {
  const std::string path = "/tmp/macrame-bench-ring-" + std::to_string(getpid());
  std::ofstream file(path);
  file << "[";
  for (size_t i = 0; i < addresses.size(); ++i) {
    file << (i == 0 ? "" : ",") << "[\"" << addresses[i] << "\"]";
  }
  file << "]";
  file.close();
  setenv("MLX_HOSTFILE", path.c_str(), 1);
  setenv("MLX_RANK", std::to_string(rank).c_str(), 1);
  auto group = mx::distributed::init(/*strict=*/true, "ring");
  std::remove(path.c_str());
  return group;
}

void Measure(const AllReduce& all_reduce, const std::vector<size_t>& sizes, int rounds) {
  for (const size_t size : sizes) {
    const size_t count = std::max<size_t>(1, size / sizeof(float));
    const int repeats = size > (1 << 20) ? std::max(3, rounds / 20) : rounds;
    for (int i = 0; i < 3; ++i) all_reduce(count);
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
      const auto begun = steady_clock::now();
      all_reduce(count);
      times.push_back(
          std::chrono::duration<double, std::micro>(steady_clock::now() - begun).count());
    }
    std::sort(times.begin(), times.end());
    std::printf("%zu %.2f %.2f\n", size, times.front(), times[times.size() / 2]);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 && argc != 7) {
    std::fprintf(stderr, "usage: %s GROUP RANK ROUNDS ADDRESSES SIZES [DEVICES]\n", argv[0]);
    return 2;
  }
  const std::string kind = argv[1];
  const int rank = std::atoi(argv[2]), rounds = std::atoi(argv[3]);
  const std::vector<std::string> addresses = absl::StrSplit(argv[4], ',');
  std::vector<size_t> sizes;
  for (const absl::string_view size : absl::StrSplit(argv[5], ',')) {
    sizes.push_back(static_cast<size_t>(std::strtoull(std::string(size).c_str(), nullptr, 10)));
  }
  mx::set_default_device(mx::Device::cpu);
  const size_t size_max = *std::max_element(sizes.begin(), sizes.end());
  const bool is_private = kind.ends_with("-private");
  if (kind == "ours" || kind == "ours-private") {
    Measure(Direct(ConnectOurs(rank, addresses, is_private), size_max), sizes, rounds);
  } else if ((kind == "verbs" || kind == "verbs-uc") && argc == 7) {
    using macrame::transport::VerbsConnection;
    const auto group =
        ConnectVerbs(rank, addresses, argv[6],
                     kind == "verbs" ? VerbsConnection::kReliable : VerbsConnection::kUnreliable);
    Measure(Direct(group, size_max), sizes, rounds);
  } else if (kind == "ours-mlx" || kind == "ours-mlx-private") {
    const macrame::transport::MlxGroup group(ConnectOurs(rank, addresses, is_private));
    Measure(OverMlx(group.handle()), sizes, rounds);
  } else if (kind == "mlx-ring") {
    Measure(OverMlx(ConnectMlxRing(rank, addresses)), sizes, rounds);
  } else {
    std::fprintf(stderr, "no group '%s'\n", kind.c_str());
    return 2;
  }
  std::fflush(stdout);
  _exit(0);
}
