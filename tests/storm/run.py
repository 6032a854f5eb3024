"""Live through storms: `python tests/storm/run.py --seeds 200`, or repeat one with `--seed 17`.

`make test-storm SEEDS=n` calls it. Each storm is a process of its own. A storm that breaks a promise is printed with
its whole history, and its folder is kept.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[0] = str(TESTS)

from storm.history import Lost, Storm  # noqa: E402

LONGEST_SECONDS = 900
# The start of a storm's last line, which says how often each kind of event happened.
COUNTS = "counts: "
_NEW_MOUNTS, _RECURSIVE, _SLAVE = 0x00020000, 1 << 14, 1 << 19


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many storms")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one alone, in this process")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1)), help="how many at once")
    parser.add_argument("--journeys", action="store_true", help="nothing but moves between two hosts")
    asked = parser.parse_args()
    if asked.seed is not None:
        return live_through(asked.seed, has_journeys_alone=asked.journeys)
    words = [sys.executable, __file__, *(["--journeys"] if asked.journeys else [])]
    return live_through_all(list(range(asked.first, asked.first + asked.seeds)), asked.jobs, words)


def live_through(seed: int, *, has_journeys_alone: bool) -> int:
    """Live through one storm in this process, with mounts of its own if it may have any."""
    can_mount = _leave_mounts()
    folder = Path(tempfile.mkdtemp(prefix=f"storm-{seed}-"))
    home = folder.with_name(f"{folder.name}.home")
    home.mkdir()
    os.environ.update(HOME=str(home), GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")
    for role in ("AUTHOR", "COMMITTER"):
        os.environ |= {f"GIT_{role}_NAME": "Storm", f"GIT_{role}_EMAIL": "storm@example.invalid"}
    began = time.monotonic()
    can_be_strict = shutil.which("bwrap") is not None
    storm = Storm(seed, folder, can_mount=can_mount, can_be_strict=can_be_strict, has_journeys_alone=has_journeys_alone)
    try:
        storm.live_through()
    except Lost as lost:
        print(f"seed {seed} BROKE A PROMISE, in {folder}\n{lost}")
        return 1
    print(f"seed {seed}: {len(storm.history)} events, {storm.kills} kill -9, {time.monotonic() - began:.0f} s")
    print(COUNTS + json.dumps(storm.counts))
    for place in (folder, storm.journey.away.folder, home):
        shutil.rmtree(place, ignore_errors=True)
    return 0


def live_through_all(seeds: list[int], jobs: int, words: list[str]) -> int:
    broken, living, waiting, counts = [], {}, iter(seeds), Counter[str]()
    while True:
        for seed in _take(waiting, jobs - len(living)):
            living[seed] = (
                subprocess.Popen(
                    [*words, "--seed", str(seed)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                ),
                time.monotonic(),
            )
        if not living:
            break
        time.sleep(0.2)
        for seed, (process, began) in list(living.items()):
            is_late = time.monotonic() - began > LONGEST_SECONDS
            if is_late:
                process.kill()
            if is_late or process.poll() is not None:
                del living[seed]
                said, _, counted = process.communicate()[0].rstrip().partition(f"\n{COUNTS}")
                print(said + (" (it took too long)" if is_late else ""), flush=True)
                counts.update(json.loads(counted or "{}"))
                broken += [seed] if process.returncode != 0 else []
    print("\n".join(f"{number:7,} {kind}" for kind, number in counts.most_common()))
    print(f"{len(seeds) - len(broken)} passed, {len(broken)} failed")
    if broken:
        print(f"again: python tests/storm/run.py --seed {broken[0]}")
    return bool(broken)


def _take(waiting: Iterator[int], count: int) -> list[int]:
    return [seed for _, seed in zip(range(count), waiting, strict=False)]


def _leave_mounts() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    return (
        libc.unshare(_NEW_MOUNTS) == 0 and libc.mount(None, b"/", None, ctypes.c_ulong(_RECURSIVE | _SLAVE), None) == 0
    )


if __name__ == "__main__":
    sys.exit(main())
