"""What the commands of one simulated Mac print, from a description of it and of its cables.

Formats are those of the tools; every name, number and address is derived from the names in the
description, so that the same description always prints the same. Standard library only.
"""

import hashlib
import json

# Sockets: receptacle number -> interface of hardware port "Thunderbolt N". The interfaces are not
# in order on purpose: nothing may be computed from names.
MODELS = {
    "macbook-m3-max": {
        "id": "Mac15,9", "name": "MacBook Pro", "chip": "Apple M3 Max", "cores": (16, 12),
        "gpu": 40, "gib": 128, "thunderbolt": 4, "lan": ("USB 10/100/1G/2.5G LAN", "en7"), "wifi": "en0",
        "sockets": {1: "en1", 2: "en2", 3: "en3"}},
    "macbook-m4-max": {
        "id": "Mac16,5", "name": "MacBook Pro", "chip": "Apple M4 Max", "cores": (16, 12),
        "gpu": 40, "gib": 128, "thunderbolt": 5, "lan": ("USB 10/100/1G/2.5G LAN", "en7"), "wifi": "en0",
        "sockets": {1: "en1", 2: "en2", 3: "en3"}},
    "macbook-m5-max": {
        "id": "Mac17,7", "name": "MacBook Pro", "chip": "Apple M5 Max", "cores": (18, 6), "gpu": 40,
        "gib": 128, "thunderbolt": 5, "lan": ("USB 10/100/1G/2.5G LAN", "en8"), "wifi": "en0",
        "sockets": {1: "en1", 2: "en6", 3: "en2"}},
    "mini-m4": {
        "id": "Mac16,10", "name": "Mac mini", "chip": "Apple M4", "cores": (10, 4), "gpu": 10,
        "gib": 32, "thunderbolt": 4, "lan": ("Ethernet", "en0"), "wifi": "en1",
        "sockets": {1: "en2", 2: "en3", 3: "en4"}},
    "mini-m4-pro": {
        "id": "Mac16,11", "name": "Mac mini", "chip": "Apple M4 Pro", "cores": (14, 10), "gpu": 20,
        "gib": 64, "thunderbolt": 5, "lan": ("Ethernet", "en0"), "wifi": "en1",
        "sockets": {1: "en2", 2: "en3", 3: "en4"}},
    "studio-m3-ultra": {
        "id": "Mac15,14", "name": "Mac Studio", "chip": "Apple M3 Ultra", "cores": (32, 24),
        "gpu": 80, "gib": 512, "thunderbolt": 5, "lan": ("Ethernet", "en0"), "wifi": "en1",
        "sockets": {1: "en2", 2: "en3", 3: "en4", 4: "en5", 5: "en6", 6: "en7"}},
}
DEFAULTS = {"os": ["26.4.1", "25E253"], "rdma": "enabled", "kexts": True, "sleep": 0,
            "bridge": [], "sharing": None, "protection_domains": 0, "booted": 1795000000,
            "firmware": "13822.81.10", "lan": True}
# What a Mac of another language calls its hardware ports and services; numbers and BSD names stay.
LANGUAGES = {
    "de": {"Thunderbolt Bridge": "Thunderbolt-Bridge", "Wi-Fi": "WLAN"},
    "fr": {"Thunderbolt Bridge": "Pont Thunderbolt"},
    "ja": {"Thunderbolt Bridge": "Thunderbolt ブリッジ"},
    "zh": {"Thunderbolt Bridge": "雷雳网桥", "Thunderbolt ": "雷雳 ", "Ethernet": "以太网"},
}
RDMA_PROTOCOL = 64087
SYSCTL_INVENTORY = ("hw.model hw.memsize hw.physicalcpu hw.perflevel0.physicalcpu "
                    "machdep.cpu.brand_string kern.boottime kern.bootsessionuuid vm.swapusage "
                    "iogpu.wired_limit_mb")
SYSCTL_LOAD = ("hw.memsize hw.physicalcpu kern.memorystatus_vm_pressure_level vm.swapusage "
               "vm.loadavg")
SYSCTL_LINKS = ("hw.model hw.optional.arm64 machdep.cpu.brand_string kern.hv_vmm_present "
                "kern.boottime kern.memorystatus_vm_pressure_level net.inet.ip.forwarding")
LOG_QUESTION = ('log show --last boot --style compact --predicate process == "kernel" AND '
                '(eventMessage CONTAINS[c] "RDMA" OR eventMessage CONTAINS[c] "DART")')
SHARING_QUESTION = ("plutil -extract NAT.SharingDevices json -o - "
                    "/Library/Preferences/SystemConfiguration/com.apple.nat.plist")


def digits(*words, count=12):
    return hashlib.sha256(" ".join(str(w) for w in words).encode()).hexdigest()[:count]


def uuid(*words):
    d = digits("uuid", *words, count=32)
    return f"{d[:8]}-{d[8:12]}-4{d[13:16]}-a{d[17:20]}-{d[20:]}".upper()


def mac_address(*words):
    d = digits("mac", *words, count=10)
    return ":".join(["06"] + [d[i:i + 2] for i in range(0, 10, 2)])


def link_local(*words):
    d = digits("ll", *words, count=16)
    return "fe80::" + ":".join(format(int(d[i:i + 4], 16) | 0x1000, "x") for i in range(0, 16, 4))


class Cable:
    """One cable as one of its ends sees it."""

    def __init__(self, socket, peer, peer_socket, speed, dock, ip, prefix=30):
        self.socket, self.peer, self.peer_socket = socket, peer, peer_socket
        self.speed, self.dock, self.ip, self.prefix = speed, dock, ip, prefix


class Mac:
    def __init__(self, name, description, lan_ip):
        self.name = name
        self.model = MODELS[description["model"]]
        self.says = {**DEFAULTS, **description}
        self.lan_ip = lan_ip
        self.cables = {}  # socket -> Cable

    @property
    def sockets(self):
        return self.model["sockets"]

    @property
    def is_fifth(self):
        return self.model["thunderbolt"] == 5

    def runs_rdma(self):
        return self.is_fifth and self.says["rdma"] == "enabled"

    def domain(self, socket):
        return uuid(self.name, "bus", socket)

    def switch_uid(self, socket):
        return "05AC" + digits(self.name, "switch", socket).upper()

    def node_guid(self, socket):
        uid = self.switch_uid(socket).lower()
        return "".join(reversed([uid[i:i + 2] for i in range(0, 16, 2)]))

    def devices(self):
        """(device, socket) as listed: in no particular order."""
        if not self.runs_rdma():
            return []
        listed = [(f"rdma_{interface}", socket) for socket, interface in self.sockets.items()]
        wanted = self.says.get("rdma_devices")
        listed = [pair for pair in listed if wanted is None or pair[0] in wanted]
        return sorted(listed, key=lambda pair: digits(self.name, pair[0]))

    def port_is_active(self, socket):
        cable = self.cables.get(socket)
        return (cable is not None and cable.dock is None and cable.speed >= 80 and self.runs_rdma()
                and cable.peer.runs_rdma())

    # -- commands

    def outputs(self):
        """{command line: (exit code or word, stdout, stderr)}"""
        plain = {
            "sw_vers": self.sw_vers(),
            f"sysctl {SYSCTL_INVENTORY}": self.sysctl(SYSCTL_INVENTORY),
            f"sysctl {SYSCTL_LOAD}": self.sysctl(SYSCTL_LOAD),
            f"sysctl {SYSCTL_LINKS}": self.sysctl(SYSCTL_LINKS),
            "vm_stat": self.vm_stat(),
            "memory_pressure -Q": "System-wide memory free percentage: 78%\n",
            "ioreg -r -d 1 -w 0 -c IOAccelerator": self.gpu(),
            "ioreg -r -d 1 -w0 -c IOPlatformExpertDevice": self.platform(),
            "ioreg -r -c IOThunderboltPort -w0": self.thunderbolt_ports(),
            "pmset -g": self.power(),
            "pmset -g therm": "Note: No thermal warning level has been recorded\n",
            "pmset -g batt": "Now drawing from 'AC Power'\n",
            "networksetup -listallhardwareports": self.hardware_ports(),
            "networksetup -listnetworkserviceorder": self.service_order(),
            "ifconfig": self.ifconfig(),
            "netstat -rn -f inet": self.routes(),
            "system_profiler SPHardwareDataType -json": self.hardware(),
            "system_profiler SPThunderboltDataType -json": self.thunderbolt(),
            "system_profiler SPThunderboltDataType": self.thunderbolt_text(),
            "ibv_devices": self.ibv_devices(),
            "ioclasscount AppleThunderboltRDMAProtectionDomain":
                f"AppleThunderboltRDMAProtectionDomain = {self.says['protection_domains']}\n",
            "kmutil showloaded --collection boot": self.kexts(),
            LOG_QUESTION: self.kernel_log(),
        }
        answers = {command: (0, text, "") for command, text in plain.items()}
        answers.update(self.exceptions())
        return answers

    def exceptions(self):
        """Commands that fail, or whose answer depends on something being there."""
        answers = {}
        if self.says["rdma"] == "missing":
            answers["rdma_ctl status"] = ("missing", "", "")
        else:
            answers["rdma_ctl status"] = (0, self.says["rdma"] + "\n", "")
        answers["ibv_devinfo -v"] = ((0, self.ibv_devinfo(), "") if self.devices()
                                     else (1, "", "No IB devices found\n"))
        sharing = self.says["sharing"]
        answers[SHARING_QUESTION] = (
            (0, json.dumps([sharing]) + "\n", "") if sharing
            else (1, "", "No value at that key path or invalid key path: NAT.SharingDevices\n"))
        for command in self.says.get("mute", []):
            answers[command] = ("timeout", "", "")
        return answers

    def sw_vers(self):
        version, build = self.says["os"]
        return f"ProductName:\t\tmacOS\nProductVersion:\t\t{version}\nBuildVersion:\t\t{build}\n"

    def sysctl(self, names):
        cores, fast = self.model["cores"]
        values = {
            "hw.model": self.model["id"], "hw.memsize": self.model["gib"] << 30,
            "hw.physicalcpu": cores, "hw.perflevel0.physicalcpu": fast, "hw.optional.arm64": 1,
            "machdep.cpu.brand_string": self.model["chip"], "kern.hv_vmm_present": 0,
            "kern.boottime":
                f"{{ sec = {self.says['booted']}, usec = 7 }} Wed Nov 18 00:26:40 2026",
            "kern.memorystatus_vm_pressure_level": 1, "iogpu.wired_limit_mb": 0,
            "net.inet.ip.forwarding": 1 if self.says["sharing"] else 0,
            "vm.swapusage": "total = 0.00M  used = 0.00M  free = 0.00M  (encrypted)",
            "vm.loadavg": "{ 1.20 1.31 1.44 }",
        }
        # Agents of one fake cluster are machines of their own: none tells of its boot.
        return "".join(f"{name}: {values[name]}\n" for name in names.split() if name in values)

    def vm_stat(self):
        pages = (self.model["gib"] << 30) // 16384
        counts = [("Pages free", pages * 6 // 10), ("Pages active", pages // 10),
                  ("Pages inactive", pages // 10), ("Pages speculative", pages // 50),
                  ("Pages throttled", 0), ("Pages wired down", pages // 20),
                  ("Pages purgeable", pages // 100), ("File-backed pages", pages // 10),
                  ("Anonymous pages", pages // 10), ("Pages occupied by compressor", 0)]
        return "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n" + "".join(
            f"{name + ':':<28}{count:>20}.\n" for name, count in counts)

    def gpu(self):
        return ("+-o AGXAcceleratorG16X  <class AGXAcceleratorG16X, id 0x100000433, registered, "
                "matched, active, busy 0 (0 ms), retain 70>\n    {\n"
                '      "PerformanceStatistics" = {"Device Utilization %"=3,'
                '"In use system memory"=268435456}\n'
                f'      "model" = "{self.model["chip"]}"\n'
                f'      "gpu-core-count" = {self.model["gpu"]}\n    }}\n    \n')

    def serial(self):
        return "MCR" + digits(self.name, self.says.get("board", ""), "serial", count=7).upper()

    def hardware(self):
        cores, fast = self.model["cores"]
        return json.dumps({"SPHardwareDataType": [{
            "_name": "hardware_overview", "boot_rom_version": self.says["firmware"],
            "chip_type": self.model["chip"], "machine_model": self.model["id"],
            "machine_name": self.model["name"],
            "number_processors": f"proc {cores}:{fast}:{cores - fast}",
            "physical_memory": f"{self.model['gib']} GB",
            "serial_number": self.serial()}]}, indent=2) + "\n"

    def platform(self):
        serial = self.serial()
        return ("+-o Root  <class IORegistryEntry, id 0x100000100, retain 40>\n    {\n"
                f'      "IOPlatformUUID" = "{uuid(serial)}"\n'
                f'      "IOPlatformSerialNumber" = "{serial}"\n    }}\n    \n')

    def power(self):
        return ("System-wide power settings:\nCurrently in use:\n standby              0\n"
                f" disksleep            10\n sleep                {self.says['sleep']}\n"
                " displaysleep         10\n powermode            0\n womp                 1\n")

    def local(self, name):
        """The name of a port or service in the Mac's language."""
        for english, own in LANGUAGES.get(self.says.get("language"), {}).items():
            if name == english or (english.endswith(" ") and name[:-1].rstrip() + " " == english):
                return name.replace(english, own)
        return name

    def hardware_ports(self):
        lan_name, lan = self.model["lan"]
        ports = [(lan_name, lan), ("Wi-Fi", self.model["wifi"]), ("Thunderbolt Bridge", "bridge0")]
        ports += [(f"Thunderbolt {n}", interface) for n, interface in self.sockets.items()]
        ports += [(name, device) for name, device, _, _ in self.says.get("also", []) if name]
        text = "".join(f"\nHardware Port: {self.local(name)}\nDevice: {device}\n"
                       f"Ethernet Address: {mac_address(self.name, device)}\n"
                       for name, device in ports)
        return text + "\nVLAN Configurations\n===================\n"

    def service_order(self):
        lan_name, lan = self.model["lan"]
        services = [(lan_name, lan_name, lan, True), ("Wi-Fi", "Wi-Fi", self.model["wifi"], True),
                    ("Thunderbolt Bridge", "Thunderbolt Bridge", "bridge0",
                     bool(self.says["bridge"]))]
        # Services that somebody made for single ports.
        services += [(name, f"Thunderbolt {socket}", self.sockets[socket], enabled)
                     for name, socket, enabled in self.says.get("services", [])]
        text = "An asterisk (*) denotes that a network service is disabled.\n"
        for number, (name, port, device, enabled) in enumerate(services, 1):
            mark = number if enabled else "*"
            text += (f"({mark}) {self.local(name)}\n"
                     f"(Hardware Port: {self.local(port)}, Device: {device})\n\n")
        return text

    def interface(self, name, ip, prefix, up, active, promiscuous=False):
        flags = ["UP"] if up else []
        flags += ["BROADCAST", "SMART"] + (["RUNNING"] if up else [])
        flags += (["PROMISC"] if promiscuous else []) + ["SIMPLEX", "MULTICAST"]
        number = "8963" if promiscuous else "8863" if up else "8822"
        text = (f"{name}: flags={number}<{','.join(flags)}> mtu 1500\n"
                f"\toptions=460<TSO4,TSO6,CHANNEL_IO>\n\tether {mac_address(self.name, name)}\n")
        if ip:
            mask = (0xffffffff << (32 - prefix)) & 0xffffffff
            text += (f"\tinet6 {link_local(self.name, name)}%{name} prefixlen 64 secured "
                     "scopeid 0xb\n"
                     f"\tinet {ip} netmask 0x{mask:08x} broadcast {broadcast(ip, prefix)}\n")
        text += "\tnd6 options=201<PERFORMNUD,DAD>\n\tmedia: autoselect <full-duplex>\n"
        return text + f"\tstatus: {'active' if active else 'inactive'}\n"

    def ifconfig(self):
        text = ("lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> mtu 16384\n"
                "\tinet 127.0.0.1 netmask 0xff000000\n\tinet6 ::1 prefixlen 128\n")
        has_lan = self.says["lan"]
        text += self.interface(self.model["lan"][1], self.lan_ip if has_lan else None, 24, True, has_lan)
        text += self.interface(self.model["wifi"], None, 0, False, False)
        for socket, name in self.sockets.items():
            cable = self.cables.get(socket)
            text += self.interface(name, cable.ip if cable else None, cable.prefix if cable else 0,
                                   True, cable is not None, name in self.says["bridge"])
        for port, name, ip, prefix in self.says.get("also", []):
            text += (self.interface(name, ip, prefix, True, True) if port else
                     f"{name}: flags=8051<UP,POINTOPOINT,RUNNING,MULTICAST> mtu 1280\n"
                     f"\tinet {ip} --> {ip} netmask 0xffffffff\n")
        text += self.bridge("bridge0", self.says["bridge"], None)
        if self.says["sharing"]:
            text += self.bridge("bridge100", [self.says["sharing"]], "192.168.2.1")
        return text

    def bridge(self, name, members, ip):
        up = bool(members)
        flags = "8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST>" if up else (
            "8822<BROADCAST,SMART,SIMPLEX,MULTICAST>")
        text = f"{name}: flags={flags} mtu 1500\n\toptions=63<RXCSUM,TXCSUM,TSO4,TSO6>\n"
        text += f"\tether {mac_address(self.name, name)}\n"
        if ip:
            text += f"\tinet {ip} netmask 0xffffff00 broadcast {broadcast(ip, 24)}\n"
        text += "\tConfiguration:\n\t\tid 0:0:0:0:0:0 priority 0 hellotime 0 fwddelay 0\n"
        for member in members:
            text += (f"\tmember: {member} flags=3<LEARNING,DISCOVER>\n"
                     "\t        ifmaxaddr 0 port 9 priority 0 path cost 0\n")
        return text + f"\tmedia: <unknown type>\n\tstatus: {'active' if up else 'inactive'}\n"

    def routes(self):
        lan = self.model["lan"][1]
        net = ".".join(self.lan_ip.split(".")[:3])
        rows = [("127", "127.0.0.1", "UCS", "lo0", ""), ("127.0.0.1", "127.0.0.1", "UH", "lo0", "")]
        if self.says["lan"]:
            rows = [("default", f"{net}.254", "UGScg", lan, ""), *rows, (net, "link#4", "UCS", lan, "!")]
        for socket, cable in self.cables.items():
            if cable.ip:
                base = network(cable.ip, cable.prefix)
                rows.append((f"{base}/{cable.prefix}", f"link#{20 + socket}", "UCS",
                             self.sockets[socket], "!"))
        for _, name, ip, prefix in self.says.get("also", []):
            rows.append((f"{network(ip, prefix)}/{prefix}", "link#40", "UCS", name, "!"))
        if self.says["sharing"]:
            rows.append(("192.168.2", "link#30", "UC", "bridge100", "!"))
        heading = ("Routing tables\n\nInternet:\n"
                   "Destination        Gateway            Flags    Netif Expire\n")
        return heading + (
            "".join(f"{d:<18} {g:<18} {f:<8} {i:>8} {e:>6}\n" for d, g, f, i, e in rows))

    # -- Thunderbolt and RDMA

    def speed(self, socket):
        cable = self.cables.get(socket)
        if cable is None:
            return "Up to 120 Gb/s" if self.is_fifth else "Up to 40 Gb/s"
        return f"{cable.speed} Gb/s"

    def peer_item(self, cable):
        peer, far = cable.peer, cable.peer_socket
        services = [{"_name": "service_ip", "protocol_id_key": 1, "protocol_revision_key": 1,
                     "protocol_version_key": 1, "service_uuid_key": uuid(peer.name, far, "ip")}]
        if peer.runs_rdma():
            services.append({"_name": "unknown_xd_service", "protocol_id_key": RDMA_PROTOCOL,
                             "protocol_revision_key": 0, "protocol_version_key": 1,
                             "service_key_key": "rdma",
                             "service_uuid_key": uuid(peer.name, far, "rdma")})
        item = {"_name": peer.model["name"], "device_id_key": "0xA",
                "device_name_key": peer.model["id"], "domain_uuid_key": peer.domain(far),
                "services_title": services, "vendor_id_key": "0x0A27",
                "vendor_name_key": "Apple Inc."}
        if cable.dock is None:
            return item
        return {"_items": [item], "_name": cable.dock, "device_name_key": cable.dock,
                "mode_key": "usb_four",
                "receptacle_upstream_ambiguous_tag": {
                    "current_speed_key": f"{cable.speed} Gb/s", "link_status_key": "0x2",
                    "receptacle_status_key": "receptacle_connected"}}

    def thunderbolt(self):
        buses = []
        for socket in sorted(self.sockets, reverse=True):
            cable = self.cables.get(socket)
            bus = {"_items": [self.peer_item(cable)]} if cable else {}
            state = "receptacle_connected" if cable else "receptacle_no_devices_connected"
            bus.update({
                "_name": f"thunderboltusb4_bus_{socket - 1}", "device_name_key": self.model["name"],
                "domain_uuid_key": self.domain(socket),
                "receptacle_1_tag": {
                    "current_speed_key": self.speed(socket),
                    "link_status_key": "0x2" if cable else "0x100",
                    "receptacle_id_key": str(socket), "receptacle_status_key": state},
                "route_string_key": "0", "switch_uid_key": "0x" + self.switch_uid(socket),
                "vendor_name_key": "Apple Inc."})
            buses.append(bus)
        return json.dumps({"SPThunderboltDataType": buses}, indent=2) + "\n"

    def thunderbolt_text(self):
        text = "Thunderbolt/USB4:\n"
        for socket in sorted(self.sockets, reverse=True):
            cable = self.cables.get(socket)
            text += (f"\n    Thunderbolt/USB4 Bus {socket - 1}:\n\n      Vendor Name: Apple Inc.\n"
                     f"      Device Name: {self.model['name']}\n"
                     f"      UID: 0x{self.switch_uid(socket)}\n      Route String: 0\n"
                     f"      Domain UUID: {self.domain(socket)}\n      Port:\n"
                     f"          Status: {'Device' if cable else 'No device'} connected\n"
                     f"          Speed: {self.speed(socket)}\n          Receptacle: {socket}\n")
            if cable is None or cable.dock is not None:
                continue
            peer = cable.peer
            text += (f"\n        {peer.model['name']}:\n\n          Vendor Name: Apple Inc.\n"
                     f"          Device Name: {peer.model['id']}\n"
                     f"          Domain UUID: {peer.domain(cable.peer_socket)}\n"
                     "          Services:\n            Internet Protocol:\n"
                     "              Protocol ID: 1\n")
            if peer.runs_rdma():
                text += ("            Service: Unknown:\n"
                         f"              Protocol ID: {RDMA_PROTOCOL}\n")
        return text + "\n"

    def thunderbolt_ports(self):
        text = ""
        for socket in self.sockets:
            cable = self.cables.get(socket)
            speed = 0 if cable is None else 2 if cable.speed >= 80 else 4
            text += (f"+-o IOThunderboltPort@1  <class IOThunderboltPort, id 0x100000{socket}1a, "
                     "registered, matched, active, busy 0 (0 ms), retain 12>\n    {\n"
                     f'      "Adapter Type" = 1\n      "Current Link Speed" = {speed}\n'
                     f'      "Current Link Width" = {2 if cable else 0}\n'
                     f'      "Lane" = 1\n      "Port Number" = 1\n      "Socket ID" = "{socket}"\n'
                     f'      "Supported Link Speed" = {14 if self.is_fifth else 12}\n'
                     f'      "Thunderbolt Version" = {64 if self.is_fifth else 32}\n    }}\n    \n')
        return text

    def ibv_devices(self):
        text = "    device          \t   node GUID\n    ------          \t----------------\n"
        return text + "".join(f"    {name:<16}\t{self.node_guid(socket)}\n"
                              for name, socket in self.devices())

    def ibv_devinfo(self):
        text = ""
        for name, socket in self.devices():
            guid = self.node_guid(socket)
            dotted = ":".join(guid[i:i + 4] for i in range(0, 16, 4))
            state = "PORT_ACTIVE (4)" if self.port_is_active(socket) else "PORT_DOWN (1)"
            cable = self.cables.get(socket)
            width = "4X (2)" if cable and cable.speed < 80 else "8X (4)"
            text += (f"hca_id:\t{name}\n\ttransport:\t\t\tThunderbolt (100)\n"
                     f"\tnode_guid:\t\t\t{dotted}\n\tmax_qp:\t\t\t\t11\n\tmax_pd:\t\t\t\t11\n"
                     f"\t\tport:\t1\n\t\t\tstate:\t\t\t{state}\n\t\t\tmax_mtu:\t\t4096 (5)\n"
                     "\t\t\tlink_layer:\t\tThunderbolt\n\t\t\tgid_tbl_len:\t\t1024\n"
                     f"\t\t\tactive_width:\t\t{width}\n"
                     f"\t\t\tGID[  0]:\t\t{link_local(self.name, name)}\n")
            if cable and cable.ip:
                text += f"\t\t\tGID[  1]:\t\t::ffff:{cable.ip}\n"
            text += "\n"
        return text

    def kexts(self):
        text = ("Index Refs Address            Size       Wired      Name (Version) UUID "
                "<Linked Against>\n"
                "   12    8 0                  0          0          "
                f"com.apple.iokit.IOThunderboltFamily (9.3.3) {uuid('family')} <>\n")
        if self.says["kexts"]:
            for number, name in ((97, "com.apple.iokit.IORDMAFamily (1.0)"),
                                 (98, "com.apple.driver.AppleThunderboltRDMA (0.0.1)")):
                text += (f"   {number}    1 0                  0          0          {name} "
                         f"{uuid(name)} <12>\n")
        return text

    def kernel_log(self):
        text = "Timestamp                       Ty Process[PID:TID]\n"
        if self.says["rdma"] != "enabled" or not self.says["kexts"]:
            return text
        when = "2026-11-18 00:26:47.301 Df kernel[0:1c4] (AppleThunderboltRDMA)"
        text += f"{when} AppleThunderboltRDMAInterface::start - RDMA enabled, starting..\n"
        if not self.is_fifth:
            text += (f"{when} AppleThunderboltRDMA::isSupportedThunderboltSpeed(12) - Thunderbolt "
                     "controller does not support Thunderbolt 5, RDMA not supported. Exiting..\n")
        return text


def number_of(ip):
    a, b, c, d = (int(part) for part in ip.split("."))
    return a << 24 | b << 16 | c << 8 | d


def dotted(number):
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def network(ip, prefix):
    return dotted(number_of(ip) >> (32 - prefix) << (32 - prefix))


def broadcast(ip, prefix):
    return dotted(number_of(ip) | ((1 << (32 - prefix)) - 1))
