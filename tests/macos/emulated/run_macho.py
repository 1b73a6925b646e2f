#!/usr/bin/env python3
"""Runs an arm64 macOS program (Mach-O) on a machine that is no Mac: Unicorn emulates the program's own code.

    run_macho.py --runtime libcxx.dylib [--limit SECONDS] [--calls] PROGRAM [WORD...]

This file does what dyld does: it maps segments, applies fixups, binds symbols by name, runs initialisers and places
thread-local variables. build_runtime makes the runtime: LLVM's libc++, libc++abi and libunwind for arm64 macOS.
They are emulated too, so the program's own unwind tables throw and catch exceptions. libsystem.c (in the runtime) and
libsystem.py (outside the emulation) replace libSystem. There is one thread, no network, and no file but standard
input, output and error, which are the caller's.

The exit status is the program's. 70: the emulation failed; standard error says why, and names a function of
libSystem that is missing here. 124: the time limit was reached.
"""

import argparse
import bisect
import os
import struct
import sys
import time

import lief
import libsystem
import unicorn
from libsystem import EmulationError, X
from unicorn import arm64_const as arm

EXIT_FAILED, EXIT_TIME = 70, 124
PAGE = 0x4000
RUNTIME_SLIDE = 0x2_0000_0000
HEAP, HEAP_BYTES = 0x3_0000_0000, 1 << 30
STACK, STACK_BYTES = 0x4_0000_0000, 8 << 20
TRAPS, TRAP_BYTES = 0x5_0000_0000, 1 << 16
DATA, DATA_BYTES = 0x6_0000_0000, 1 << 20
END = TRAPS + TRAP_BYTES - 4  # the return address of the outermost call
RET = bytes.fromhex("c0035fd6")
WEAK_LOOKUP = -3
SYMBOL_STAB, SYMBOL_TYPE, SYMBOL_IN_SECTION = 0xE0, 0x0E, 0x0E


def rounded(size, unit=PAGE):
    return -(-size // unit) * unit


class Image:
    """One Mach-O file in the emulated memory."""

    def __init__(self, path, slide):
        universal = lief.MachO.parse(path)
        if universal is None:
            raise EmulationError(f"{path} is not a Mach-O file")
        self.path, self.slide = path, slide
        self.file = universal.at(0)
        if self.file.header.cpu_type != lief.MachO.Header.CPU_TYPE.ARM64:
            raise EmulationError(f"{path} is not for arm64")
        text = next(segment for segment in self.file.segments if segment.name == "__TEXT")
        self.base = text.virtual_address + slide
        self.end = max(segment.virtual_address + segment.virtual_size for segment in self.file.segments) + slide
        # Hidden symbols count too: the archives that zig makes hide all of libc++.
        self.symbols = {
            symbol.name: symbol.value + slide
            for symbol in self.file.symbols
            if symbol.value and not symbol.raw_type & SYMBOL_STAB and symbol.raw_type & SYMBOL_TYPE == SYMBOL_IN_SECTION
        }
        self.thread_block = 0

    def section(self, name):
        """Its address and size; zeros where there is none."""
        for section in self.file.sections:
            if section.name == name:
                return section.virtual_address + self.slide, section.size
        return 0, 0

    def map_into(self, memory):
        for segment in self.file.segments:
            if segment.name == "__PAGEZERO" or not segment.virtual_size:
                continue
            address = segment.virtual_address + self.slide
            memory.mem_map(address, rounded(segment.virtual_size), max(segment.init_protection, 1))
            memory.mem_write(address, bytes(segment.content))

    def fix(self, memory, address_of):
        """Rebases and binds; `address_of(name, weak)` finds an imported symbol."""
        for relocation in self.file.relocations:
            target = relocation.target + self.slide
            memory.mem_write(relocation.address + self.slide, struct.pack("<Q", target))
        for binding in self.file.bindings:
            weak = binding.library_ordinal == WEAK_LOOKUP
            target = address_of(binding.symbol.name, weak) + binding.sign_extended_addend
            memory.mem_write(binding.address + self.slide, struct.pack("<Q", target))

    def initialisers(self, memory):
        address, size = self.section("__init_offsets")
        offsets = struct.unpack(f"<{size // 4}I", memory.mem_read(address, size)) if size else ()
        address, size = self.section("__mod_init_func")
        pointers = struct.unpack(f"<{size // 8}Q", memory.mem_read(address, size)) if size else ()
        return [self.base + offset for offset in offsets] + list(pointers)

    def thread_local_bytes(self, memory):
        data, data_size = self.section("__thread_data")
        zero, zero_size = self.section("__thread_bss")
        begin = data or zero
        size = (zero + zero_size if zero else data + data_size) - begin
        initial = bytes(memory.mem_read(data, data_size)) if data_size else b""
        return initial.ljust(size, b"\0")

    def name_of(self, address):
        known = sorted((at, name) for name, at in self.symbols.items())
        at = bisect.bisect_right(known, (address, "\x7f")) - 1
        near = f" ({known[at][1]})" if at >= 0 and address - known[at][0] < 1 << 16 else ""
        return f"{os.path.basename(self.path)}+{address - self.base:#x}{near}"


class Machine:
    """The processor and memory of one program; libsystem.py's functions get it as `m`."""

    def __init__(self, program, words, runtime, limit):
        self.cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.cpu.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
        self.deadline = time.monotonic() + limit
        self.failure = None
        self.calls = {}
        self.trapped, self.trap_of = [], {}
        self.at_exit = []
        self.data_next = DATA
        self.program_words = [program, *words]
        self.map_own_regions()
        self.streams = {}
        self.data_symbols = self.make_data_symbols()
        self.program = Image(program, 0)
        self.runtime = Image(runtime, RUNTIME_SLIDE)
        self.images = [self.runtime, self.program]
        self.load()

    def map_own_regions(self):
        for address, size in ((HEAP, HEAP_BYTES), (STACK, STACK_BYTES), (TRAPS, TRAP_BYTES), (DATA, DATA_BYTES)):
            self.cpu.mem_map(address, size)
        self.cpu.mem_write(TRAPS, RET * (TRAP_BYTES // 4))
        self.cpu.hook_add(unicorn.UC_HOOK_CODE, self.on_trap, begin=TRAPS, end=END - 1)
        self.cpu.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # floating point is on
        self.cpu.reg_write(arm.UC_ARM64_REG_SP, STACK + STACK_BYTES - 256)

    def load(self):
        for image in self.images:
            image.map_into(self.cpu)
        for image in self.images:
            image.fix(self.cpu, self.address_of)
            image.thread_block = self.place(image.thread_local_bytes(self.cpu))

    # Symbols

    def address_of(self, name, weak=False):
        if name in self.data_symbols:
            return self.data_symbols[name]
        # libsystem.py goes first: the runtime has an exp and a log of its own, which are not this machine's.
        for image in (self.program, self.runtime) if weak else (self.runtime,):
            if name in image.symbols and name not in libsystem.FUNCTIONS:
                return image.symbols[name]
        if name not in self.trap_of:
            self.trap_of[name] = TRAPS + 4 * len(self.trapped)
            self.trapped.append(name)
        return self.trap_of[name]

    def make_data_symbols(self):
        places = [self.place(bytes(256)) for _ in range(3)]
        self.streams = {address: libsystem.Stream(fd) for fd, address in enumerate(places)}
        symbols = {
            name: self.place(struct.pack("<Q", address))
            for name, address in zip(("___stdinp", "___stdoutp", "___stderrp"), places)
        }
        symbols["___stack_chk_guard"] = self.place(bytes.fromhex("00a1b2c3d4e5f607"))
        symbols["__DefaultRuneLocale"] = self.place(libsystem.rune_locale())
        symbols["dyld_stub_binder"] = 0
        symbols["_macho_heap_begin"], symbols["_macho_heap_end"] = HEAP, HEAP + HEAP_BYTES
        self.errno_at = self.place(bytes(8))
        return symbols

    # Memory

    def place(self, content):
        """Bytes that the program can read and write, for as long as it runs."""
        address = self.data_next
        self.data_next += rounded(len(content), 16)
        self.cpu.mem_write(address, content)
        return address

    def read(self, address, size):
        return bytes(self.cpu.mem_read(address, size)) if size else b""

    def write(self, address, content):
        if content:
            self.cpu.mem_write(address, bytes(content))

    def word(self, address):
        return struct.unpack("<Q", self.cpu.mem_read(address, 8))[0]

    def text(self, address):
        """The bytes of a C string."""
        found = bytearray()
        while True:
            size = 256 - address % 256
            piece = self.cpu.mem_read(address, size)
            end = piece.find(0)
            if end >= 0:
                return bytes(found + piece[:end])
            found += piece
            address += size

    # Running

    def call(self, address, *arguments):
        for register, value in zip(X, arguments):
            self.cpu.reg_write(register, value)
        self.cpu.reg_write(arm.UC_ARM64_REG_LR, END)
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            self.cpu.emu_start(address, END, timeout=int(left * 1e6))
        except unicorn.UcError as error:
            if self.failure is None:
                self.failure = EmulationError(f"{error} at {self.where()}")
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self.cpu.reg_read(arm.UC_ARM64_REG_PC) != END:
            raise TimeoutError
        return self.cpu.reg_read(X[0])

    def run(self):
        status = self.run_main()
        while self.at_exit:
            self.call(*self.at_exit.pop())
        return status & 0xFF

    def run_main(self):
        strings = [self.place(word.encode() + b"\0") for word in self.program_words]
        environment = [self.place(f"{name}={value}".encode() + b"\0") for name, value in (("LANG", "C"), ("TZ", "UTC"))]
        argv = self.place(struct.pack(f"<{len(strings) + 1}Q", *strings, 0))
        envp = self.place(struct.pack(f"<{len(environment) + 1}Q", *environment, 0))
        arguments = (len(strings), argv, envp, self.place(struct.pack("<Q", 0)))
        for image in self.images:
            for initialiser in image.initialisers(self.cpu):
                self.call(initialiser, *arguments)
        return self.call(self.program.base + self.program.file.main_command.entrypoint, *arguments)

    def on_trap(self, _cpu, address, _size, _data):
        name = self.trapped[(address - TRAPS) // 4] if address < TRAPS + 4 * len(self.trapped) else "?"
        self.calls[name] = self.calls.get(name, 0) + 1
        try:
            if name not in libsystem.FUNCTIONS:
                raise EmulationError(f"{name} is missing in libsystem.py; it is called from {self.caller()}")
            libsystem.FUNCTIONS[name](self)
        except EmulationError as stop:
            self.stop(stop)
        except Exception as error:  # Unicorn would lose it in its callback
            self.stop(EmulationError(f"{name}: {error!r}, called from {self.caller()}"))

    def stop(self, failure):
        self.failure = failure
        self.cpu.emu_stop()

    def image_of(self, address):
        return next((image for image in self.images if image.base <= address < image.end), None)

    def place_name(self, address):
        image = self.image_of(address)
        return image.name_of(address) if image else f"{address:#x}"

    def caller(self):
        return self.place_name(self.cpu.reg_read(arm.UC_ARM64_REG_LR) - 4)

    def where(self):
        return f"{self.place_name(self.cpu.reg_read(arm.UC_ARM64_REG_PC))}, called from {self.caller()}"


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtime", required=True, help="the libcxx.dylib that build_runtime made")
    parser.add_argument("--limit", type=float, default=60, help="seconds that it may take (60)")
    parser.add_argument("--calls", action="store_true", help="say which functions of libsystem.py were called")
    parser.add_argument("program")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    try:
        machine = Machine(options.program, options.words, options.runtime, options.limit)
        status = machine.run()
    except EmulationError as error:
        print(f"run_macho: {error}", file=sys.stderr)
        return EXIT_FAILED
    except TimeoutError:
        print(f"run_macho: not done after {options.limit:g} s", file=sys.stderr)
        return EXIT_TIME
    if options.calls:
        for name, count in sorted(machine.calls.items(), key=lambda item: -item[1]):
            print(f"{count:10} {name}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
