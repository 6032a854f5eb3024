"""`run_with_pid.py PID PROGRAM ARGUMENTS…` runs a program under a chosen process number that another process had before.

This has the effect of a PID space that has wrapped around. The kernel hands out numbers in order, so a real attacker
forks about 30,000 times. clone3 takes the number from us (set_tid), which only root may do.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys

_CLONE3 = 435


def main() -> None:
    pid, argv = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    chosen = (ctypes.c_int * 1)(pid)
    # The fields are: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
    # cgroup.
    arguments = struct.pack("11Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(chosen), 1, 0)
    made = libc.syscall(_CLONE3, arguments, len(arguments))
    if made == 0:
        os.execvp(argv[0], argv)
    if made < 0:
        sys.exit(f"cannot start a process with the number {pid}: {os.strerror(ctypes.get_errno())}")
    print(made, flush=True)
    os.waitpid(made, 0)


main()
