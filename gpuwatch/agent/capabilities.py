"""What this thread may: Linux' capabilities, by prctl(2) and capset(2), and which calls it may not make (seccomp(2)).

Threads that it starts have no more, and a program that is started has its starter's ambient capabilities. Cleared once,
before there is any thread, they are gone for every program that the agent ever starts.
"""

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # as typing has it, which is half a megabyte to the reader
    from collections.abc import Collection

# linux/capability.h: to read all files; to look into others' processes; to read the kernel's log.
DAC_READ_SEARCH, SYS_PTRACE, SYSLOG = 2, 19, 34
_STATUS = "/proc/thread-self/status"
_AMBIENT, _RAISE, _CLEAR_ALL = 47, 2, 4  # linux/prctl.h: PR_CAP_AMBIENT and what it is asked
_VERSION_3 = 0x20080522
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
# By machine: its name in linux/audit.h, and there socket, connect, bind, listen, execve, execveat; what reaches into
# others: ptrace, process_vm_readv, process_vm_writev, pidfd_getfd, process_madvise, perf_event_open, kcmp, bpf.
_CALLS = {
    "x86_64": (0xC000003E, (41, 42, 49, 50, 59, 322, 101, 310, 311, 438, 440, 298, 312, 321)),
    "aarch64": (0xC00000B7, (198, 203, 200, 201, 221, 281, 117, 270, 271, 438, 440, 241, 272, 280)),
}
# And openat; and the other calls that open a file: open and creat, which one of them does not have, and openat2.
_OPENS = {"x86_64": (257, (2, 85, 437)), "aarch64": (56, (437,))}
_WRITES = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
_NUMBER, _MACHINE, _THIRD = 0, 4, 32  # where seccomp_data has the call, the machine, and the call's third argument
_OTHER_NUMBERS = 0x40000000  # of the calls of programs that were made for x32
# linux/bpf_common.h: a word of seccomp_data; jump if it is that, if it is as much, if it has one of these bits; the end
_LOAD, _EQUAL, _AS_MUCH, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOWED, _REFUSED = 0x7FFF0000, 0x00050000 | 1  # linux/seccomp.h; with EPERM
_WORD_BITS = 32


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Words(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def capability_set(kind: str = "CapPrm") -> frozenset[int]:
    """The capabilities of a set of this thread: CapPrm, CapEff, CapInh or CapAmb; none where that cannot be read."""
    try:
        with open(_STATUS, encoding="ascii") as lines:  # noqa: PTH123  pathlib is a megabyte to the reader
            mask = int(next(line for line in lines if line.startswith(f"{kind}:")).split()[1], 16)
    except (OSError, ValueError, StopIteration):
        return frozenset()
    return frozenset(number for number in range(mask.bit_length()) if mask >> number & 1)


def clear_ambient() -> None:
    """Give nothing of this to the programs that are started from now on.

    Raises:
        OSError: the kernel refuses it.

    """
    _prctl(_AMBIENT, _CLEAR_ALL, 0)


def pass_on(wanted: "Collection[int]") -> None:
    """Give these to the next program that this thread becomes, where it has them itself.

    Raises:
        OSError: the kernel refuses it.

    """
    for number in sorted(capability_set("CapPrm") & capability_set("CapInh") & frozenset(wanted)):
        _prctl(_AMBIENT, _RAISE, number)


def keep_only(wanted: "Collection[int]") -> None:
    """Give up all others, for good: what is not permitted any more cannot come back.

    Raises:
        OSError: the kernel refuses it.

    """
    kept = capability_set("CapPrm") & frozenset(wanted)
    words = (_Words * 2)()
    for number in kept:
        word, bit = words[number // _WORD_BITS], 1 << number % _WORD_BITS
        word.effective |= bit
        word.permitted |= bit
        word.inheritable |= bit
    _check(_libc().capset(ctypes.byref(_Header(_VERSION_3, 0)), words))


class _Step(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step)))


def refuse_network(*, writing: bool = False) -> None:
    """Never open a connection again, nor start a program or look into one; `writing`: nor open a file to write.

    Raises:
        OSError: the kernel cannot filter calls, or those of this machine are not known here.

    """
    name = os.uname().machine
    machine, calls = _CALLS.get(name, (0, ()))
    if not calls:
        raise OSError("the calls of this machine are not known")
    opening, others = _OPENS[name]
    refused = (*calls, *others) if writing else calls
    last = 4 + len(refused) + (3 if writing else 0)  # the step that allows; the one after it refuses
    steps = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 0, last - 1, machine), (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AS_MUCH, last - 3, 0, _OTHER_NUMBERS)]
    steps += [(_EQUAL, last - at - 4, 0, call) for at, call in enumerate(refused)]
    if writing:
        steps += [(_EQUAL, 0, 2, opening), (_LOAD, 0, 0, _THIRD), (_HAS_BIT, 1, 0, _WRITES)]
    steps += [(_RETURN, 0, 0, _ALLOWED), (_RETURN, 0, 0, _REFUSED)]
    made = (_Step * len(steps))(*(_Step(*each) for each in steps))
    _prctl(_NO_NEW_PRIVS, 1, 0)
    program = _Program(len(steps), made)
    _prctl(_SECCOMP, _FILTER, ctypes.addressof(program))


def _prctl(option: int, second: int, third: int) -> None:
    numbers = [ctypes.c_ulong(each) for each in (second, third, 0, 0)]
    _check(_libc().prctl(ctypes.c_int(option), *numbers))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
