"""Virtual machines with real verbs devices, on a host that has none.

Each machine runs Debian's kernel on the host's own root, read-only below a throw-away layer, so that
what was built on the host runs there unchanged. Every two machines share a cable (a point-to-point link
with a software RDMA device, rdma_rxe, at both ends), and all share a LAN without RDMA:

    cable    device cableK in the machine of rank R leads to rank K; 198.19.(16·low + high).{1,2}/30
    RDMA     rdma_cableK on it
    LAN      lan0, 198.18.9.(R + 1)/24

Software emulation, no KVM needed; networks are datagrams between ports of the loopback interface.
Needs qemu-system-x86, busybox-static, kmod, cpio, and Debian's full kernel package, which is fetched with
apt and unpacked into `cache` (nothing is installed). Latency in a machine is some hundred times that of
real hardware: figures may be compared with each other, and mean nothing else.
"""

import glob
import gzip
import lzma
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = ["virtio_pci", "virtio_net", "9p", "9pnet_virtio", "overlay", "crc32_generic", "rdma_rxe",
           "ib_uverbs", "rdma_ucm"]
PROGRAMS = ["qemu-system-x86_64", "busybox", "modprobe", "depmod", "cpio", "dpkg", "apt-get", "rdma"]
LAN = 255
# One processor; a second that could be plugged makes qemu keep the memory barriers of the emulated code.
# Without them a network device, which another thread of the host runs, sometimes misses that the driver
# sleeps, and never transmits again (the kernel: "NETDEV WATCHDOG: transmit queue 0 timed out"):
# tests/rdma/run BUILD_DIR soak.
PROCESSORS = "1,maxcpus=2"


class Missing(Exception):
    """Something that the machines need can't be had here."""


def run(args, **more):
    return subprocess.run(args, capture_output=True, text=True, timeout=600, **more)


def find_program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin")


def check_programs():
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise Missing("virtual machines are made on x86_64 Linux only")
    missing = [name for name in PROGRAMS if find_program(name) is None]
    if missing:
        raise Missing(f"not installed: {', '.join(missing)}")


def fetch_kernel(cache):
    """The folder with boot/vmlinuz-* and lib/modules of Debian's full kernel."""
    kernel = os.path.join(cache, "kernel")
    if glob.glob(os.path.join(kernel, "boot/vmlinuz-*")):
        return kernel
    os.makedirs(cache, exist_ok=True)
    depends = run(["apt-cache", "depends", "linux-image-amd64"]).stdout
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if not found:
        raise Missing("apt knows no linux-image-amd64")
    download = run(["apt-get", "download", "-qq", found.group(1)], cwd=cache)
    packages = glob.glob(os.path.join(cache, "linux-image-*.deb"))
    if not packages:
        raise Missing(f"the kernel package can't be fetched: {download.stderr.strip()[-300:]}")
    shutil.rmtree(kernel, ignore_errors=True)
    unpacked = run(["dpkg", "-x", packages[0], kernel + ".part"])
    for package in packages:
        os.remove(package)
    if unpacked.returncode != 0:
        raise Missing(f"the kernel package can't be unpacked: {unpacked.stderr.strip()[-300:]}")
    # Debian 13's kernel has its modules below /usr alone, where its depmod and modprobe look.
    if not os.path.exists(os.path.join(kernel + ".part", "lib")):
        os.symlink("usr/lib", os.path.join(kernel + ".part", "lib"))
    os.rename(kernel + ".part", kernel)
    return kernel


def module_files(kernel, version):
    """The modules' files in the order in which they must be loaded."""
    files = []
    for module in MODULES:
        shown = run([find_program("modprobe"), "-d", kernel, "-S", version, "--show-depends", module])
        for line in shown.stdout.splitlines():
            words = line.split()
            if words and words[0] == "insmod" and words[1] not in files:
                files.append(words[1])
    return files


def make_memory_disk(cache, kernel):
    """The initial memory disk: busybox, the modules, our two scripts."""
    disk = os.path.join(cache, "disk.gz")
    scripts = [os.path.join(HERE, name) for name in ("guest_init", "guest_boot")]
    if os.path.exists(disk) and all(os.path.getmtime(disk) > os.path.getmtime(s) for s in scripts):
        return disk
    version = os.listdir(os.path.join(kernel, "lib/modules"))[0]
    run([find_program("depmod"), "-b", kernel, version])
    root = os.path.join(cache, "disk")
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("bin", "modules", "host", "proc", "sys", "dev"):
        os.makedirs(os.path.join(root, folder))
    shutil.copy(find_program("busybox"), os.path.join(root, "bin/busybox"))
    files = module_files(kernel, version)
    if not any("rdma_rxe" in path for path in files):
        raise Missing("the kernel package has no rdma_rxe")
    for number, path in enumerate(files):
        target = os.path.join(root, "modules", f"{100 + number}-{os.path.basename(path)}")
        if path.endswith(".xz"):  # Debian 13's
            with lzma.open(path) as packed, open(target.removesuffix(".xz"), "wb") as module:
                shutil.copyfileobj(packed, module)
        else:
            shutil.copy(path, target)
    shutil.copy(scripts[0], os.path.join(root, "init"))
    os.chmod(os.path.join(root, "init"), 0o755)
    shutil.copy(scripts[1], os.path.join(root, "guest_boot"))
    names = run(["find", "."], cwd=root).stdout
    packed = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=root,
                            capture_output=True, timeout=120, check=True).stdout
    with gzip.open(disk + ".part", "wb", compresslevel=1) as out:
        out.write(packed)
    os.rename(disk + ".part", disk)
    return disk


class Hub:
    """A LAN: what one machine sends, all others get."""

    def __init__(self, count):
        self.sockets = []
        for _ in range(count):
            port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            port.bind(("127.0.0.1", 0))
            self.sockets.append(port)
        self.machines = [None] * count
        self.stopping = False

    def port_of(self, rank):
        return self.sockets[rank].getsockname()[1]

    def start(self, machine_ports):
        self.machines = [("127.0.0.1", port) for port in machine_ports]
        for rank in range(len(self.sockets)):
            threading.Thread(target=self._pass_on, args=(rank,), daemon=True).start()

    def _pass_on(self, rank):
        self.sockets[rank].settimeout(0.5)
        while not self.stopping:
            try:
                frame = self.sockets[rank].recv(65536)
            except TimeoutError:
                continue
            except OSError:
                return
            for other, address in enumerate(self.machines):
                if other != rank:
                    self.sockets[other].sendto(frame, address)

    def stop(self):
        self.stopping = True
        for port in self.sockets:
            port.close()


def free_ports(count):
    held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Machine:
    def __init__(self, rank, args):
        self.rank = rank
        self.lines = []
        self.ended = None  # exit status of its script
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        up = False
        for raw in self.process.stdout:
            line = raw.decode(errors="replace").rstrip("\r\n")
            if "guest up" in line:  # after the boot loader's control characters
                up = True
            elif line.startswith("guest ended"):
                self.ended = int(line.split()[2])
            elif self.ended is None and (up or line.startswith("guest:")):
                print(f"vm{self.rank}| {line}", flush=True)
            self.lines.append(line)


class Mesh:
    """`count` machines, each running `script RANK COUNT BUILD STORY`; used with `with`."""

    def __init__(self, cache, count, script, build, story, memory_mib=1400):
        check_programs()
        kernel = fetch_kernel(cache)
        self.disk = make_memory_disk(cache, kernel)
        self.image = glob.glob(os.path.join(kernel, "boot/vmlinuz-*"))[0]
        self.count, self.script, self.build, self.story = count, script, build, story
        self.memory_mib = memory_mib
        self.machines = []
        self.hub = Hub(count)

    def __enter__(self):
        count = self.count
        ports = free_ports(count * count)  # [rank * count + peer]; the own place is the LAN's
        for rank in range(count):
            devices = []
            for peer in range(count):
                own = ports[rank * count + peer]
                is_lan = peer == rank
                other = self.hub.port_of(rank) if is_lan else ports[peer * count + rank]
                devices += [
                    "-netdev", f"dgram,id=n{peer},local.type=inet,local.host=127.0.0.1,"
                               f"local.port={own},remote.type=inet,remote.host=127.0.0.1,"
                               f"remote.port={other}",
                    "-device", f"virtio-net-pci,romfile=,netdev=n{peer},"
                               f"mac=52:54:00:00:{rank:02x}:{LAN if is_lan else peer:02x}"]
            self.machines.append(Machine(rank, [
                "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", PROCESSORS,
                "-m", str(self.memory_mib), "-nographic", "-no-reboot", "-kernel", self.image,
                "-initrd", self.disk, "-append",
                f"console=ttyS0 quiet panic=-1 no_timer_check guest.rank={rank} guest.count={count} "
                f"guest.script={self.script} guest.build={self.build} guest.story={self.story}",
                "-virtfs", "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,"
                           "multidevs=remap", *devices]))
        self.hub.start([ports[rank * count + rank] for rank in range(count)])
        return self

    def wait(self, seconds):
        """Until the first machine's script ended; its exit status, or None when time is up."""
        end = time.monotonic() + seconds
        first = self.machines[0]
        while time.monotonic() < end and first.ended is None and first.process.poll() is None:
            time.sleep(0.2)
        return first.ended

    def __exit__(self, *_):
        for machine in self.machines:
            machine.process.kill()
            machine.process.wait(timeout=30)
        self.hub.stop()
