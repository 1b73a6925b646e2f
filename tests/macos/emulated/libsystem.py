"""The functions of macOS's libSystem that the emulated programs call and libsystem.c does not have.

Each works on the emulated memory of `m`, a run_macho.Machine, and uses this machine's C library for numbers. They
know one thread, the C locale, and standard input, output and error.
"""

import ctypes
import inspect
import os
import struct
from dataclasses import dataclass, field

from unicorn import arm64_const as arm

X = [getattr(arm, f"UC_ARM64_REG_X{i}") for i in range(29)]
D = [getattr(arm, f"UC_ARM64_REG_D{i}") for i in range(8)]
THREAD = 0x1000
FUNCTIONS = {}
HOST_LIBC, HOST_MATH = ctypes.CDLL("libc.so.6"), ctypes.CDLL("libm.so.6")


class EmulationError(Exception):
    pass


@dataclass
class Stream:
    fd: int
    unread: bytearray = field(default_factory=bytearray)  # last byte first
    ended: bool = False


def libc(*names):
    """Registers a function under the C names that a program calls it by.

    Its parameters are the registers of the calling convention: `float` ones are in d0 and following, others in x0 and
    following. Its result goes to x0, or to d0 if it is annotated with `-> float`.
    """

    def register(function):
        signature = inspect.signature(function)
        kinds = [parameter.annotation for parameter in list(signature.parameters.values())[1:]]
        integers, floats = iter(X), iter(D)
        registers = [(next(floats) if kind is float else next(integers), kind is float) for kind in kinds]
        result_is_float = signature.return_annotation is float

        def shim(machine):
            read = machine.cpu.reg_read
            values = [as_double(read(register)) if is_float else read(register) for register, is_float in registers]
            answer = function(machine, *values)
            if result_is_float:
                machine.cpu.reg_write(D[0], struct.unpack("<Q", struct.pack("<d", answer))[0])
            elif answer is not None:
                machine.cpu.reg_write(X[0], answer & (1 << 64) - 1)

        for name in names:
            FUNCTIONS[name] = shim
        return function

    return register


def as_double(bits):
    return struct.unpack("<d", struct.pack("<Q", bits & (1 << 64) - 1))[0]


def as_int(bits):
    return struct.unpack("<i", struct.pack("<I", bits & (1 << 32) - 1))[0]


# Numbers

HOST_LIBC.strtod.restype = ctypes.c_double
HOST_MATH.ldexp.restype = HOST_MATH.pow.restype = HOST_MATH.frexp.restype = ctypes.c_double


@libc("_strtod_l")
def strtod_l(m, text, end_at) -> float:
    content = ctypes.create_string_buffer(m.text(text))
    end = ctypes.c_void_p()
    value = HOST_LIBC.strtod(content, ctypes.byref(end))
    if end_at:
        m.write(end_at, struct.pack("<Q", text + end.value - ctypes.addressof(content)))
    return value


def add_host_function(name):
    """One of a double that gives a double."""
    host = getattr(HOST_MATH, name)
    host.restype = ctypes.c_double

    @libc("_" + name)
    def call(m, x: float) -> float:
        return host(ctypes.c_double(x))


for host_name in ("exp", "lgamma", "log", "log1p"):
    add_host_function(host_name)


@libc("_pow")
def power(m, x: float, y: float) -> float:
    return HOST_MATH.pow(ctypes.c_double(x), ctypes.c_double(y))


@libc("_ldexp")
def ldexp(m, x: float, exponent) -> float:
    return HOST_MATH.ldexp(ctypes.c_double(x), as_int(exponent))


@libc("_frexp")
def frexp(m, x: float, exponent_at) -> float:
    exponent = ctypes.c_int()
    fraction = HOST_MATH.frexp(ctypes.c_double(x), ctypes.byref(exponent))
    m.write(exponent_at, struct.pack("<i", exponent.value))
    return fraction


# Text

CLASSES = ((0x100, str.isalpha), (0x400, str.isdigit), (0x1000, str.islower), (0x8000, str.isupper))


def rune_class(code):
    """The bits of Darwin's <ctype.h> for one byte in the C locale."""
    character = chr(code)
    if code >= 128:
        return 0
    bits = sum(bit for bit, holds in CLASSES if holds(character))
    bits |= 0x200 if code < 32 or code == 127 else 0x40000
    bits |= 0x800 if 32 < code < 127 else 0
    bits |= 0x2000 if 32 < code < 127 and not character.isalnum() else 0
    bits |= 0x4000 if character in " \t\n\v\f\r" else 0
    bits |= 0x20000 if character in " \t" else 0
    if character in "0123456789abcdefABCDEF":
        bits |= 0x10000 | int(character, 16)
    return bits


def upper_case(code):
    return code - 32 if 97 <= code <= 122 else code


def rune_locale():
    """Darwin's _RuneLocale: at offset 60 class, lower case and upper case of each byte."""
    lower = [code + 32 if 65 <= code <= 90 else code for code in range(256)]
    tables = [*map(rune_class, range(256)), *lower, *map(upper_case, range(256))]
    return b"RuneMagA".ljust(60, b"\0") + struct.pack("<768I", *tables) + bytes(128)


@libc("___toupper")
def toupper(m, code):
    return upper_case(code)


@libc("_wmemchr")
def wmemchr(m, begin, wide, count):
    content, wanted = m.read(begin, 4 * count), struct.pack("<I", wide & (1 << 32) - 1)
    return next((begin + at for at in range(0, 4 * count, 4) if content[at:at + 4] == wanted), 0)


@libc("_mbtowc_l")
def mbtowc_l(m):
    return 0  # no encoding has states; nothing else is asked of it


@libc("_wcrtomb_l")
def wcrtomb_l(m, to, wide):
    if not 0 <= as_int(wide) < 128:
        raise EmulationError("a wide character is not ASCII")
    m.write(to, bytes([wide]))
    return 1


# Streams


@libc("_fwrite")
def fwrite(m, address, size, count, stream):
    content = m.read(address, size * count)
    while content:
        content = content[os.write(m.streams[stream].fd, content):]
    return count


@libc("_fflush")
def fflush(m):
    return 0  # fwrite keeps nothing back


@libc("_getc")
def getc(m, at):
    stream = m.streams[at]
    if not stream.unread and not stream.ended:
        stream.unread += os.read(stream.fd, 1 << 16)[::-1]
        stream.ended = not stream.unread
    return stream.unread.pop() if stream.unread else -1


# Process and threads


@libc("___error")
def errno_place(m):
    return m.errno_at


@libc("_abort")
def abort(m):
    raise EmulationError(f"the program aborted, at {m.caller()}")


@libc("___cxa_atexit")
def at_exit(m, function, argument):
    m.at_exit.append((function, argument))
    return 0


@libc("_macho_heap_full")
def heap_full(m):
    raise EmulationError("the heap is full")


@libc("_backtrace", "_dlopen")
def nothing_found(m):
    return 0


@libc("__tlv_bootstrap")
def thread_local(m, descriptor):
    return m.image_of(descriptor).thread_block + m.word(descriptor + 16)


@libc("__dyld_find_unwind_sections")
def find_unwind_sections(m, address, to):
    image = m.image_of(address)
    if image is None:
        return 0
    m.write(to, struct.pack("<5Q", image.base, *image.section("__eh_frame"), *image.section("__unwind_info")))
    return 1


@libc("_pthread_self", "_pthread_mach_thread_np")
def this_thread(m):
    return THREAD


# With one thread a lock is always free, and no thread waits.
@libc("_pthread_mutex_lock", "_pthread_mutex_unlock", "_pthread_cond_broadcast")
def done(m):
    return 0
