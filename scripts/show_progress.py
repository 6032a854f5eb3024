"""Run a command and show its progress: `show_progress.py WORDS COMMAND…`, where WORDS describe the work.

The Makefile uses it before anything is installed, so it needs only the standard library. A terminal gets one line that
is drawn again. A pipe or a file gets a line at most every second and a half. The command's own output is shown in full
only if the command fails. The exit code is the command's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# A line must come at least every two seconds. The difference is a margin for a busy machine.
PAUSE_SECONDS = 1.5
PAUSE_ON_TERMINAL_SECONDS = 0.25
# A long output is read only at its end.
TAIL_BYTES = 4_096


def main() -> int:
    words, command = sys.argv[1], sys.argv[2:]
    is_terminal = sys.stdout.isatty()
    started = time.monotonic()
    tell(words, is_terminal)
    with tempfile.NamedTemporaryFile() as output:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process:
            while not has_ended(process, PAUSE_ON_TERMINAL_SECONDS if is_terminal else PAUSE_SECONDS):
                tell(f"{words}: {time.monotonic() - started:.0f} s{read_last_line(output.name)}", is_terminal)
        took = f"{time.monotonic() - started:.0f} s"
        if process.returncode == 0:
            tell(f"{words}: done in {took}", is_terminal, is_last=True)
            return 0
        tell(f"{words}: failed after {took}", is_terminal, is_last=True)
        sys.stderr.write(Path(output.name).read_text(errors="replace"))
    return process.returncode if process.returncode > 0 else 1


def has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def read_last_line(path: str) -> str:
    """Return the last line of the command, to append to our line. Warnings do not count as progress."""
    with open(path, "rb") as file:
        file.seek(max(0, Path(path).stat().st_size - TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    told = [line.strip() for line in lines if line.strip() and not line.startswith("WARNING")]
    return f", {told[-1]}" if told else ""


def tell(text: str, is_terminal: bool, *, is_last: bool = False) -> None:
    width = shutil.get_terminal_size().columns - 1
    text = text if len(text) <= width else f"{text[: width - 1]}…"
    print(f"\r\x1b[K{text}" if is_terminal else text, end="\n" if is_last or not is_terminal else "", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
