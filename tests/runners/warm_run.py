"""A small program for the warm server to fork: `python warm_run.py FD`. Does what the variable DO of its run says.

With SLOW_TO_LEAD its forks need so many seconds until they lead a process group, as on a busy machine."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "daemon"))

from wakeful.runners.prepare.warm_server import serve


def run() -> int:
    match os.environ["DO"].split(" ", 1):
        case ["tell", _]:
            fds = sorted(int(name) for name in os.listdir("/proc/self/fd"))
            environ = Path("/proc/self/environ").read_text()
            print(
                {
                    "parent": os.getppid(),
                    "group": os.getpgrp() == os.getpid(),
                    "fds": fds,
                    "cwd": os.getcwd(),
                    "leak": "CANARY" in environ,
                    "own": os.environ["WAKEFUL_RUN"],
                }
            )
            return 0
        case ["read", path]:
            print(Path(path).read_text())
            return 0
        case ["write", path]:
            Path(path).write_text("here")
            return 0
        case ["wait", path]:
            if os.fork() == 0:
                os.setsid()
            else:
                # Not before the fork: python passes over whatever is raised while it forks, an interrupt too.
                Path(path).write_text(str(os.getpid()))
            time.sleep(60)
            return 0
        case _:
            return 3


def slow_down(seconds: float) -> None:
    lead = os.setsid

    def lead_late() -> None:
        time.sleep(seconds)
        lead()

    os.setsid = lead_late


if __name__ == "__main__":
    if "SLOW_TO_LEAD" in os.environ:
        slow_down(float(os.environ["SLOW_TO_LEAD"]))
    serve(int(sys.argv[1]), run)
