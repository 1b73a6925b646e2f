"""A machine of this one's own files, booted with systemd as its first process: an overlay of "/" in namespaces
of its own (processes, mounts, host name, control groups, network). What it writes stays in memory and goes with
the test; it may be rebooted. Needs root, and systemd installed (not running) here. Standard library only.

Call own_mounts() first: it runs the program anew in a mount namespace, so that nothing is mounted outside.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from live_cluster import REPOSITORY, Failed, run, say

SYSTEMD = "/lib/systemd/systemd"
BOOTED_MAX_S, ENDED_MAX_S = 90, 40  # three at once, on a busy machine
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Runs as the first process of the machine's namespaces, and becomes systemd.
BOOT = r"""
root=$1 upper=$2 work=$3 repository=$4
mount -t overlay overlay -o "lowerdir=/,upperdir=$upper,workdir=$work" "$root"
mkdir -p "$root$repository"
mount --bind "$repository" "$root$repository"
if [ ! -e "$upper/booted" ]; then
  # Services of the machine that this is a copy of stay out of it.
  rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/systemd/system/*.requires
  tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
  rm -f "$root/var/lib/dbus/machine-id" "$root/etc/fstab"
  printf '%s\n' "$5" >"$root/etc/hostname"
  touch "$upper/booted"
fi
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do cp -a "/dev/$device" "$root/dev/"; done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
hostname "$5"
cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i container=macrame-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system \
  --log-target=journal --unit=multi-user.target
"""


checks = 0


def expect(condition, text, evidence=""):
    global checks
    checks += 1
    if not condition:
        raise Failed(f"{text}\n{evidence}")
    say(f"holds: {text}")


def until(limit_s, what, condition):
    begun = time.monotonic()
    while time.monotonic() - begun < limit_s:
        found = condition()
        if found:
            say(f"       {what}: {time.monotonic() - begun:.1f} s")
            return found
        time.sleep(0.2)
    raise Failed(f"not within {limit_s} s: {what}")


class CannotBoot(Exception):
    """Why no machine can be booted here, in a sentence."""


def own_mounts():
    if os.geteuid() != 0:
        raise CannotBoot("booting a machine needs root")
    if not os.access(SYSTEMD, os.X_OK):
        raise CannotBoot("systemd is not installed here (deploy/setup --tests installs it)")
    if os.environ.get("MACRAME_OWN_MOUNTS") != "1":
        os.environ["MACRAME_OWN_MOUNTS"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])


def cgroup2():
    with open("/proc/mounts") as mounts:
        for line in mounts:
            words = line.split()
            if words[2] == "cgroup2" and "rw" in words[3].split(","):
                return words[1]
    raise CannotBoot("no cgroup2 that can be written is mounted here, and systemd runs in nothing else")


class Desk:
    """The folder in memory, and machines: two with a cable between them, or more on a switch."""

    def __init__(self):
        self.groups = cgroup2()
        self.folder = tempfile.mkdtemp(prefix="mcb", dir="/tmp")
        run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", self.folder])
        self.prefix = f"mb{os.getpid()}"
        self.machines, self.namespaces = [], []

    def machine(self, name):
        machine = Machine(self, name, len(self.machines) + 1)
        self.machines.append(machine)
        return machine

    def cable(self):
        ends = [f"{self.prefix}{m.index}" for m in self.machines]
        run(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]])
        for machine, end in zip(self.machines, ends):
            run(["ip", "link", "set", end, "netns", machine.namespace, "name", "eth0"])
            machine.set_address()

    def switch(self):
        namespace = f"{self.prefix}-switch"
        run(["ip", "netns", "add", namespace])
        self.namespaces.append(namespace)
        inside = ["ip", "-n", namespace]
        run(inside + ["link", "add", "switch", "type", "bridge"])
        run(inside + ["link", "set", "switch", "up"])
        for machine in self.machines:
            port = f"{self.prefix}{machine.index}"
            run(["ip", "link", "add", port, "netns", namespace, "type", "veth", "peer", "name", "eth0", "netns",
                 machine.namespace])
            run(inside + ["link", "set", port, "master", "switch", "up"])
            machine.set_address()

    def close(self):
        for machine in self.machines:
            machine.end()
        for namespace in self.namespaces:
            run(["ip", "netns", "del", namespace], check=False)
        run(["umount", "-l", self.folder], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Machine:
    def __init__(self, desk, name, index):
        self.desk, self.name, self.index = desk, name, index
        self.address = f"198.18.9.{index}"
        self.namespace = f"{desk.prefix}-{name}"
        run(["ip", "netns", "add", self.namespace])
        desk.namespaces.append(self.namespace)
        self.group = os.path.join(desk.groups, f"{desk.prefix}-{name}")
        self.folder = os.path.join(desk.folder, name)
        for part in ("root", "upper", "work"):
            os.makedirs(os.path.join(self.folder, part), mode=0o755)
        self.process = None

    def boot(self):
        try:
            os.mkdir(self.group)
        except OSError as error:
            raise CannotBoot(f"no control group can be made in {self.desk.groups}: {error}")

        def enter():
            with open(os.path.join(self.group, "cgroup.procs"), "w") as file:
                file.write(str(os.getpid()))

        parts = [os.path.join(self.folder, part) for part in ("root", "upper", "work")]
        self.log = os.path.join(self.folder, "boot.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "unshare", "--mount", "--pid", "--fork", "--kill-child",
                 "--uts", "--ipc", "--cgroup", "--propagation", "private", "sh", "-euc", BOOT, "boot",
                 *parts, REPOSITORY, self.name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=enter)

    def set_address(self):
        inside = ["ip", "-n", self.namespace]
        run(inside + ["addr", "add", f"{self.address}/24", "brd", "+", "dev", "eth0"])
        run(inside + ["link", "set", "lo", "up"])
        run(inside + ["link", "set", "eth0", "up"])

    def wait_until_booted(self):
        begun = time.monotonic()
        state = ""
        while time.monotonic() - begun < BOOTED_MAX_S:
            if self.process.poll() is not None:
                with open(self.log) as log:
                    raise CannotBoot(f"systemd can't be the first process here: {log.read().strip()[-300:]}")
            self.pid = self.first_process()
            if self.pid:
                state = self.run(["systemctl", "is-system-running"], check=False).stdout.strip()
                if state in ("running", "degraded"):
                    say(f"{self.name} has booted ({state}, {time.monotonic() - begun:.1f} s)")
                    return
            time.sleep(0.1)
        raise Failed(f"{self.name} did not boot within {BOOTED_MAX_S} s: '{state}'")

    def first_process(self):
        """Its number here; 0 until it is systemd."""
        pid = self.process.pid
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                children = file.read().split()
            if children and os.path.basename(os.readlink(f"/proc/{children[0]}/exe")) == "systemd":
                return int(children[0])
        except OSError:
            pass
        return 0

    def run(self, args, check=True, timeout=90, variables=(), user=None):
        words = [f"{key}={value}" for key, value in dict(variables).items()]
        as_user = ["runuser", "-u", user, "--"] if user else []
        home = f"/home/{user}" if user else "/root"
        return run(["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w", *as_user,
                    "env", "-i", f"PATH={PATH}", f"HOME={home}", *words, *args], check=check, timeout=timeout)

    def shell(self, line, **more):
        return self.run(["/bin/sh", "-c", line], **more)

    def reboot(self):
        """Told to by its own command; back when wait_until_booted() says so."""
        self.run(["systemctl", "reboot"], check=False)

    def boot_again(self):
        try:
            self.process.wait(timeout=ENDED_MAX_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not go down within {ENDED_MAX_S} s")
        self.end()
        self.boot()

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=ENDED_MAX_S)
        if not os.path.isdir(self.group):
            return
        kill = os.path.join(self.group, "cgroup.kill")
        if os.path.exists(kill):
            with open(kill, "w") as file:
                file.write("1")
        end = time.monotonic() + ENDED_MAX_S
        while os.path.isdir(self.group) and time.monotonic() < end:
            for folder, _, _ in os.walk(self.group, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    time.sleep(0.02)


def exposure(text):
    """The figure of `systemd-analyze security`."""
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", text)
    if not found:
        raise Failed(f"systemd-analyze says no figure:\n{text[-500:]}")
    return float(found.group(1))


def main(doc, carry_out, *tools):
    """Of a program whose one argument is the build's folder: the exit code of carry_out(desk, build)."""
    if len(sys.argv) != 2:
        print(doc, file=sys.stderr)
        return 2
    desk = None
    try:
        own_mounts()
        for tool in ("ip", "nsenter", "unshare", *tools):
            if not shutil.which(tool):
                raise CannotBoot(f"the command {tool} is missing")
        begun = time.monotonic()
        desk = Desk()
        carry_out(desk, os.path.abspath(sys.argv[1]))
        say(f"all {checks} checks held, {time.monotonic() - begun:.0f} s")
        return 0
    except CannotBoot as why:
        print(f"no machine was booted: {why}")
        return 77
    except (Failed, subprocess.TimeoutExpired) as failed:
        say(f"FAILED: {failed}")
        if desk:
            for machine in desk.machines:
                text = run(["tail", "-n", "30", f"{machine.folder}/upper/var/log/macrame/agentd.log"], check=False)
                say(f"the end of {machine.name}'s log:\n{text.stdout}")
        return 1
    finally:
        if desk:
            desk.close()
