// One rank of the collectives' benchmark. Prints a line "SIZE_BYTES US_MIN US_P50" for each size;
// rank 0 is read.
//
//   collectives_rank GROUP RANK ROUNDS ADDRESS,ADDRESS,… SIZE,SIZE,…
//
// GROUP: ours (TCP group, called directly), ours-mlx (the same inside an MLX graph), mlx-ring
// (MLX's own backend, inside an MLX graph).

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

std::shared_ptr<macrame::transport::Group> ConnectOurs(int rank,
                                                       const std::vector<std::string>& addresses) {
  macrame::transport::TcpWireOptions options;
  options.rank = rank;
  options.size = static_cast<int>(addresses.size());
  options.addresses = addresses;
  options.secret = std::string(32, 'b');
  auto wire = macrame::transport::ConnectTcpWire(options);
  if (!wire.ok()) {
    std::fprintf(stderr, "%s\n", std::string(wire.status().message()).c_str());
    std::exit(1);
  }
  return macrame::transport::MakeGroup(*std::move(wire), macrame::transport::Topology::kMesh);
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
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s GROUP RANK ROUNDS ADDRESSES SIZES\n", argv[0]);
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
  if (kind == "ours") {
    const auto group = ConnectOurs(rank, addresses);
    std::vector<float> in(sizes.back() / sizeof(float) + 1, 1.0f), out(in.size());
    Measure(
        [&](size_t count) {
          const absl::Status status =
              group->AllReduce(in.data(), out.data(), count, macrame::transport::Element::kFloat32,
                               macrame::transport::Reduction::kSum);
          if (!status.ok()) std::exit(1);
        },
        sizes, rounds);
  } else if (kind == "ours-mlx") {
    const macrame::transport::MlxGroup group(ConnectOurs(rank, addresses));
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
