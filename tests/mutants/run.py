"""Break each rule of the core on purpose and check that the tests of the core notice: `make test-mutants`.

Each mutant is a copy of the package with one text of one file replaced. Its folder comes first on the path. The tests
run against it until the first failure, which kills the mutant. If no test fails, the mutant survives, and this program
fails.

Usage: python tests/mutants/run.py [RULE or words of a name ...]
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import hypothesis.stateful  # noqa: F401  (loaded once for all children)
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from mutants import MUTANTS, Mutant

REPOSITORY = Path(__file__).parent.parent.parent
PACKAGE = REPOSITORY / "daemon" / "wakeful"
TESTS = REPOSITORY / "tests" / "core"
# Tests of the file source, which keeps some rules: they use real files and no simulated world.
SOURCES_TESTS = REPOSITORY / "tests" / "sources" / "test_file_versions.py"
# Tests of the files that a rewind writes.
CONTENTS_TESTS = REPOSITORY / "tests" / "run_files" / "test_restore.py"
# The directed tests of each rule (last rule, file). They run first, so that most mutants die in a second.
SECTIONS = (
    (3, "test_rules_log.py"), (9, "test_rules_versions.py"), (13, "test_rules_looks.py"), (19, "test_rules_seen_and_good.py"),
    (26, "test_rules_wakes.py"), (27, "test_rules_outputs.py"), (29, "test_rules_seen_and_good.py"), (35, "test_rules_graph.py"), (38, "test_rules_clock.py"),
    (42, "test_rules_log.py"), (45, "test_calls_history.py"),
)  # fmt: skip
# Patterns and slots have their own suites, and no mutant here concerns them.
ALL = sorted(
    path.name for path in TESTS.glob("test_*.py") if path.name not in ("test_patterns.py", "test_clock_slots.py")
)
LAST = ("test_core_state_machine.py", "test_random_histories.py", "test_calls_state_machine.py")
SECONDS_EACH = 300


def build(mutant: Mutant, folder: Path) -> Path:
    """Make a copy of the package with one text replaced. All other files are links."""
    package = folder / "wakeful"
    place = Path(mutant.file)
    # Make a real folder for each folder on the way to the file. Everything beside it is a link.
    for folder in reversed(place.parents):
        (package / folder).mkdir(parents=True)
        for entry in (PACKAGE / folder).iterdir():
            if entry.name != "__pycache__" and folder / entry.name not in place.parents:
                (package / folder / entry.name).symlink_to(entry)
    source = (PACKAGE / place).read_text()
    if source.count(mutant.old) != 1:
        raise SystemExit(
            f"{mutant.name!r}: its text is found {source.count(mutant.old)} times in {place}, expected once"
        )
    broken = package / place
    broken.unlink()
    broken.write_text(source.replace(mutant.old, mutant.new))
    return package


def order_tests(mutant: Mutant) -> list[str]:
    match Path(mutant.file).parts[0]:
        case "sources":
            return [str(SOURCES_TESTS)]
        case "run_files":
            return [str(CONTENTS_TESTS)]
    first = next(name for last, name in SECTIONS if mutant.rule <= last)
    rest = [name for name in ALL if name != first and name not in LAST]
    return [str(TESTS / name) for name in (first, *rest, *LAST)]


def judge(mutant: Mutant) -> tuple[Mutant, str]:
    """Return the name of the test that killed the mutant, or that it survived."""
    with tempfile.TemporaryDirectory(prefix="wakeful-mutant-") as folder:
        package = build(mutant, Path(folder))
        words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-rfE", *order_tests(mutant)]
        said = Path(folder) / "said"
        child = os.fork()
        if child == 0:
            run_tests(package, words, said)
        _, status = os.waitpid(child, 0)
        lines = said.read_text().splitlines() if said.exists() else []
    if os.WIFSIGNALED(status):
        return mutant, "killed: the tests no longer end"
    match os.waitstatus_to_exitcode(status):
        case 0:
            return mutant, "SURVIVED"
        case 1:
            failed = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), "")
            return mutant, "killed: " + failed.split(" - ")[0].rpartition("::")[2]
        case code:
            return mutant, f"BROKEN: pytest ended with {code}: {' '.join(lines)[-300:]}"


def run_tests(package: Path, words: list[str], said: Path) -> NoReturn:
    """Run pytest in a forked child, which has loaded the slow modules but nothing of the package.

    This is three times as fast as a new Python process.
    """
    signal.alarm(SECONDS_EACH)
    output = os.open(said, os.O_CREAT | os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.path.insert(0, str(package.parent))
    sys.dont_write_bytecode = True
    os.environ |= {"WAKEFUL_TEST_SEEDS": "50", "WAKEFUL_TEST_EXAMPLES": "10"}
    os.chdir(REPOSITORY)
    wakeful = importlib.import_module("wakeful")
    # The tests must import the mutant, and no other package of the same name.
    code = pytest.main(words) if list(wakeful.__path__) == [str(package)] else 99
    sys.stdout.flush()
    os._exit(int(code))


def choose(words: list[str]) -> list[Mutant]:
    if not words:
        return list(MUTANTS)
    return [mutant for mutant in MUTANTS if any(word == str(mutant.rule) or word in mutant.name for word in words)]


def main() -> int:
    chosen = choose(sys.argv[1:])
    alive = 0
    with multiprocessing.get_context("fork").Pool(os.cpu_count() or 2) as pool:
        for mutant, verdict in pool.imap(judge, chosen):
            alive += not verdict.startswith("killed")
            print(f"rule {mutant.rule:2}  {mutant.name:55} {verdict}", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} killed")
    return 1 if alive or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
