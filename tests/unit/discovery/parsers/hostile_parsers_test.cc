// What no Mac should print and one may yet: nested without end, more of everything than there can
// be, numbers of all kinds, other languages, other line ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "discovery/base/interfaces.h"
#include "discovery/parsers/link_parsers.h"
#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string Repeat(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// ---- depth

TEST(HostileJson, NestingWithoutEndTakesNoStack) {
  constexpr size_t kDepth = 400'000;
  const std::string nested = Repeat(kDepth, "[") + Repeat(kDepth, "]");
  const std::string objects = Repeat(kDepth, "{\"_items\":") + "1" + Repeat(kDepth, "}");
  for (const std::string& inner : {nested, objects}) {
    EXPECT_FALSE(
        ParseHardwareOverview("{\"SPHardwareDataType\":[" + inner + "]}").cpu_cores.has_value());
    EXPECT_FALSE(ParseDisplays("{\"SPDisplaysDataType\":[" + inner + "]}").cores.has_value());
    const ThunderboltBuses buses =
        ParseThunderboltBuses("{\"SPThunderboltDataType\":[{\"_items\":[" + inner + "]}]}");
    EXPECT_TRUE(buses.read);
    ASSERT_EQ(buses.ports.size(), 1u);
    EXPECT_EQ(buses.ports[0].peers_size(), 0);
    EXPECT_THAT(*ParseSharingDevices("[" + inner + ",\"en2\"]"), ElementsAre("en2"));
  }
}

// ---- more than there can be

TEST(HostileText, MoreBusesPeersAndDevicesThanThereCanBeAreLeftOut) {
  std::string buses, json;
  for (int i = 0; i < 50; ++i) {
    absl::StrAppend(&buses, "    Thunderbolt/USB4 Bus ", i, ":\n\n      Vendor Name: Apple Inc.\n",
                    "      Domain UUID: bus-", i, "\n      Port:\n          Receptacle: ", i,
                    "\n          Speed: 40 Gb/s\n");
    absl::StrAppend(&json, i == 0 ? "" : ",", "{\"domain_uuid_key\":\"bus-", i, "\"}");
  }
  const ThunderboltBuses text = ParseThunderboltText("Thunderbolt/USB4:\n\n" + buses);
  ASSERT_EQ(text.ports.size(), static_cast<size_t>(kThunderboltPortsMax));
  EXPECT_EQ(text.ports.back().domain_uuid(), absl::StrCat("bus-", kThunderboltPortsMax - 1))
      << "what is left out changes nothing of the last that is kept";
  EXPECT_EQ(text.ports.back().socket(), static_cast<uint32_t>(kThunderboltPortsMax - 1));
  EXPECT_EQ(ParseThunderboltBuses("{\"SPThunderboltDataType\":[" + json + "]}").ports.size(),
            static_cast<size_t>(kThunderboltPortsMax));
  const std::string peers = Repeat(100, "{\"domain_uuid_key\":\"B\"},");
  const ThunderboltBuses crowded =
      ParseThunderboltBuses("{\"SPThunderboltDataType\":[{\"_items\":[" + peers + "{}]}]}");
  EXPECT_EQ(crowded.ports[0].peers_size(), kPeersPerPortMax);
}

TEST(HostileText, ListsOfTheNetworkAreBounded) {
  std::string interfaces, services, ports;
  for (int i = 0; i < 3000; ++i) {
    absl::StrAppend(&interfaces, "en", i, ": flags=8863<UP,RUNNING> mtu 1500\n");
    absl::StrAppend(&services, "(", i, ") Net ", i, "\n(Hardware Port: Ethernet, Device: en", i,
                    ")\n");
    absl::StrAppend(&ports, "Hardware Port: Ethernet\nDevice: en", i, "\n");
  }
  EXPECT_EQ(ParseIfconfig(interfaces).interfaces.size(), kInterfacesMax);
  EXPECT_LE(ParseServiceOrder(services).size(), kInterfacesMax);
  EXPECT_LE(ParseHardwarePortNames(ports).size(), kInterfacesMax);
  std::string addresses = "en0: flags=8863<UP,RUNNING> mtu 1500\n";
  for (int i = 0; i < 500; ++i) {
    absl::StrAppend(&addresses, "\tinet 10.0.", i / 250, ".", i % 250, " netmask 0xffffff00\n");
  }
  const IfconfigAnswer crowded = ParseIfconfig(addresses);
  ASSERT_EQ(crowded.interfaces.size(), 1u);
  EXPECT_LE(crowded.interfaces[0].addresses_size(), static_cast<int>(kAddressesPerInterfaceMax));
  const RoutingTable routes = ParseRoutes("Destination Gateway Flags Netif\n" +
                                          Repeat(5000, "10.0.0/24 10.0.0.1 UGS en0\n"));
  EXPECT_TRUE(routes.read);
  EXPECT_EQ(routes.routes.size(), static_cast<size_t>(kRoutesMax));
}

TEST(HostileText, DevicesAndGidsAreBounded) {
  std::string devices = "    device  node GUID\n", gids = "hca_id:\trdma_en2\n";
  for (int i = 0; i < 2000; ++i) {
    absl::StrAppend(&devices, "rdma_en", i, " e2c5797d9c8fac05\n");
    absl::StrAppend(&gids, "\t\t\tGID[", i, "]:\t::ffff:10.0.0.1\n");
  }
  EXPECT_EQ(ParseIbvDevices(devices)->size(), static_cast<size_t>(kRdmaDevicesMax));
  const auto info = ParseIbvDevinfo(gids + Repeat(200, "hca_id:\trdma_en3\n"));
  EXPECT_LE(info.size(), static_cast<size_t>(kRdmaDevicesMax));
  EXPECT_LE(info[0].gids_size(), kGidsMax);
  for (const v1::RdmaGid& gid : info[0].gids()) {
    EXPECT_LT(gid.index(), static_cast<uint32_t>(kGidsMax));
  }
  const KernelLog log = ParseKernelLog(
      "Timestamp Ty Process\n" + Repeat(5000, "2026-11-02 09:30 E kernel Failed INIT->RTR\n"));
  EXPECT_EQ(log.lines.size(), static_cast<size_t>(kKernelLinesMax));
}

// A refusal after so many other lines is found all the same.
TEST(HostileText, ManyLinesDoNotHideTheKernelsRefusal) {
  const KernelLog log = ParseKernelLog(
      "Timestamp Ty Process\n" + Repeat(1000, "2026-11-02 09:30 E kernel Failed INIT->RTR\n") +
      "2026-11-02 09:31 E kernel: hardware does not support Thunderbolt 5, not starting RDMA\n");
  EXPECT_EQ(log.refuses_rdma, v1::FACT_YES);
}

// ---- numbers

TEST(HostileNumbers, OnlyWholePlainNumbersAreRead) {
  EXPECT_EQ(ParseUnsigned("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "0x10", "1e3", "1.0", "١", "１",
                           "18446744073709551616", "99999999999999999999999"}) {
    EXPECT_FALSE(ParseUnsigned(text).has_value()) << text;
  }
  for (const char* text : {"", "nan", "inf", "-inf", "1,5", "9e999", "0x1p3x", "one"}) {
    EXPECT_FALSE(ParseReal(text).has_value()) << text;
  }
  EXPECT_EQ(Multiply(uint64_t{1} << 32, uint64_t{1} << 31), uint64_t{1} << 63);
  EXPECT_FALSE(Multiply(uint64_t{1} << 32, uint64_t{1} << 32).has_value());
  EXPECT_EQ(Multiply(0, UINT64_MAX), 0u);
}

TEST(HostileJson, AFirmwareThatIsNoShortTextIsNotKnown) {
  const auto firmware = [](const std::string& value) {
    return ParseHardwareOverview("{\"SPHardwareDataType\":[{\"boot_rom_version\":" + value + "}]}")
        .firmware;
  };
  EXPECT_EQ(firmware(R"x("2069.80.3.0.0 (iBridge: 21.16.3045.0.0,0)")x"),
            "2069.80.3.0.0 (iBridge: 21.16.3045.0.0,0)")
      << "of a Mac with a T2";
  const std::string longest(kFirmwareBytesMax, '1');
  EXPECT_EQ(firmware("\"" + longest + "\""), longest);
  // A part of it would be another version.
  EXPECT_EQ(firmware("\"" + longest + "1\""), "");
  EXPECT_EQ(firmware("\"" + Repeat(1'000'000, "13822.") + "\""), "");
  for (const char* value :
       {"13822.81", "null", "true", "{}", "[\"13822.81.10\"]", "\"\"", R"("13822\u001b[2J")",
        R"("13822\n81")", "\"\xff\xfe\"", "\"13822.81"}) {
    EXPECT_EQ(firmware(value), "") << value;
  }
}

TEST(HostileNumbers, SizesThatNoMachineHasAreNone) {
  EXPECT_FALSE(ParseHardwareOverview(R"({"SPHardwareDataType":[{"physical_memory":"9999999 TB"}]})")
                   .memory_bytes.has_value());
  for (const char* memory : {"0 GB", "-8 GB", "8", "8 GB free", "8 Go", "GB 8"}) {
    EXPECT_FALSE(
        ParseHardwareOverview(
            absl::StrCat(R"({"SPHardwareDataType":[{"physical_memory":")", memory, "\"}]}"))
            .memory_bytes.has_value())
        << memory;
  }
  for (const char* cores : {"proc 0:0:0", "proc 99999:1:1", "proc", "proc a:b:c", "32"}) {
    EXPECT_FALSE(
        ParseHardwareOverview(
            absl::StrCat(R"({"SPHardwareDataType":[{"number_processors":")", cores, "\"}]}"))
            .cpu_cores.has_value())
        << cores;
  }
  const VmStat huge{16384, uint64_t{1} << 60, 0, 0, 0};
  EXPECT_FALSE(AvailableBytes(huge, v1::MEMORY_PRESSURE_NORMAL).has_value());
  EXPECT_FALSE(ParseSwapUsage("total = 99999999999.00T  used = 0.00M").has_value());
  EXPECT_THAT(ParseDf("/dev/disk1 100 0 200 0% /\n"), IsEmpty()) << "more free than there is";
  EXPECT_THAT(ParseDf("/dev/disk1 18446744073709551615 0 1 0% /\n"), IsEmpty());
}

TEST(HostileNumbers, AMaskIsOnesInFrontOrNone) {
  const auto prefix = [](const std::string& mask) {
    const IfconfigAnswer answer = ParseIfconfig(
        absl::StrCat("en0: flags=8863<UP> mtu 1500\n\tinet 10.0.0.1 netmask ", mask, "\n"));
    const v1::LinkInterface& only = answer.interfaces.at(0);
    return only.addresses().empty() ? -1 : static_cast<int>(only.addresses(0).prefix_length());
  };
  EXPECT_EQ(prefix("0xffffffff"), 32);
  EXPECT_EQ(prefix("0xfffffffc"), 30);
  EXPECT_EQ(prefix("0x80000000"), 1);
  EXPECT_EQ(prefix("0x0"), 0);
  for (const char* mask : {"0x00ffffff", "0xff00ff00", "0x1", "0xfffffffff", "ffffff00",
                           "255.255.255.0", "0x", "0xzz"}) {
    EXPECT_EQ(prefix(mask), -1) << mask;
  }
}

// A tunnel names its other end between address and mask.
TEST(Ifconfig, TheAddressOfATunnelIsRead) {
  const IfconfigAnswer answer = ParseIfconfig(
      "utun4: flags=8051<UP,POINTOPOINT,RUNNING,MULTICAST> mtu 1280\n"
      "\tinet 100.101.102.103 --> 100.101.102.104 netmask 0xffffffff\n"
      "\tinet6 fe80::1%utun4 prefixlen 64 scopeid 0x12\n\tnd6 options=201<PERFORMNUD,DAD>\n"
      "utun5: flags=8051<UP,POINTOPOINT,RUNNING,MULTICAST> mtu 1280\n\tinet 10.0.0.1 --> \n");
  ASSERT_EQ(answer.interfaces.size(), 2u);
  ASSERT_EQ(answer.interfaces[0].addresses_size(), 2);
  EXPECT_EQ(answer.interfaces[0].addresses(0).ip(), "100.101.102.103");
  EXPECT_EQ(answer.interfaces[0].addresses(0).prefix_length(), 32u);
  EXPECT_EQ(answer.interfaces[0].addresses(1).ip(), "fe80::1");
  EXPECT_EQ(answer.interfaces[1].addresses_size(), 0);
}

// ---- other words

// Each command as a system of another language, or a newer one, might print it: what is not
// understood is unknown and never "no".
TEST(Translated, WhatIsNotUnderstoodIsUnknown) {
  EXPECT_EQ(ParsePmsetTherm("Hinweis: keine Warnung aufgezeichnet\n"),
            v1::THERMAL_STATE_UNSPECIFIED);
  EXPECT_FALSE(ParsePmsetOnBattery("Now drawing from 'Sonnenenergie'\n").has_value());
  EXPECT_FALSE(ParseMemoryFreeRatio("Freier Speicher: 40%\n").has_value());
  EXPECT_EQ(ParseRdmaCtl("aktiviert\n"), v1::FACT_UNKNOWN);
  const char* devices = "    Gerät   Knoten-GUID\nrdma_en2 e2c5797d9c8fac05\n";
  EXPECT_FALSE(ParseIbvDevices(devices).has_value());
  EXPECT_EQ(ParseKextLoaded("Index Verweise Adresse\n", "x"), v1::FACT_UNKNOWN);
  EXPECT_FALSE(ParseRoutes("Ziel Gateway Flags Netif\ndefault 10.0.0.1 UG en0\n").read);
  EXPECT_FALSE(ParseKernelLog("Zeitstempel Ty\n2026 E kernel RDMA enabled, starting\n").read);
  EXPECT_FALSE(ParseThunderboltText("Thunderbolt/USB4:\n\n  Keine Hardware gefunden\n").read);
  const SwVers versions = ParseSwVers("Produktname: macOS\n");
  EXPECT_EQ(versions.name + versions.version + versions.build, "");
  EXPECT_FALSE(ParsePowerSettings(" Ruhezustand 10\n").sleep_minutes.has_value());
}

TEST(LineEnds, CarriageReturnsBelongToNothing) {
  EXPECT_EQ(ParseSwVers("ProductName:\tmacOS\r\nProductVersion:\t26.4\r\n").version, "26.4");
  EXPECT_EQ(ParseRdmaCtl("enabled\r\n"), v1::FACT_YES);
  EXPECT_EQ(SysctlNumber(ParseSysctl("hw.memsize: 1024\r\n"), "hw.memsize"), 1024u);
  EXPECT_EQ(ParsePowerSettings(" sleep 5\r\n").sleep_minutes, 5u);
}

// Output is cut where the runner stops reading: the last line may be half a number.
TEST(LineEnds, ALineThatDoesNotEndIsNotRead) {
  EXPECT_EQ(ParseSwVers("ProductVersion: 26").version, "");
  EXPECT_FALSE(ParsePowerSettings(" sleep 1").sleep_minutes.has_value());
  EXPECT_FALSE(SysctlNumber(ParseSysctl("hw.memsize: 54975"), "hw.memsize").has_value());
  EXPECT_THAT(ParseDf("/dev/disk1 100 10 90 10% /Vol"), IsEmpty());
  EXPECT_THAT(WholeLines(std::string_view("a\n\nb\nc")), ElementsAre("a", "", "b"));
  EXPECT_EQ(WholeLines(std::string_view(Repeat(10, "\n"))).size(), 10u);
}

TEST(HostileText, MillionsOfLinesAreReadInPart) {
  const std::string many(kScannedLinesMax + 1000, '\n');
  EXPECT_EQ(WholeLines(std::string_view(many)).size(), kScannedLinesMax);
}

}  // namespace
}  // namespace macrame::discovery
