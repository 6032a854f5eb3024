"""Break each rule of the core on purpose and see whether the tests of the core notice: `make test-mutants`.

Each mutant is the package with one text of one file exchanged, in a folder of its own that comes first on the path. The
tests run against it until the first failure: killed. A mutant that none of them notices has survived, and fails this program.

    python tests/mutants/run.py [RULE or words of a name ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutants import MUTANTS, Mutant

REPOSITORY = Path(__file__).parent.parent.parent
PACKAGE = REPOSITORY / "daemon" / "wakeful"
TESTS = REPOSITORY / "tests" / "core"
# Where a rule's directed tests are: they run first, so that most mutants die in a second.
SECTIONS = (
    (3, "test_rules_log.py"), (9, "test_rules_versions.py"), (13, "test_rules_looking.py"), (19, "test_rules_seen.py"),
    (26, "test_rules_wakes.py"), (29, "test_rules_seen.py"), (35, "test_rules_graph.py"), (38, "test_rules_clock.py"),
    (42, "test_rules_log.py"),
)  # fmt: skip
# Patterns and slots have suites of their own, which no mutant here concerns.
ALL = sorted(path.name for path in TESTS.glob("test_*.py") if path.name not in ("test_match.py", "test_cron.py"))
LAST = ("test_machine.py", "test_histories.py")
SECONDS_EACH = 300
# The tests must see the mutant and nothing else of the same name.
RUN = "import sys, wakeful; assert wakeful.__path__[0] == sys.argv[1], wakeful.__path__; import pytest; sys.exit(pytest.main(sys.argv[2:]))"


def build(mutant: Mutant, folder: Path) -> Path:
    """The package with one text exchanged: links to all of it but the broken file."""
    package = folder / "wakeful"
    core = package / "core"
    core.mkdir(parents=True)
    for entry in PACKAGE.iterdir():
        if entry.name not in ("core", "__pycache__"):
            (package / entry.name).symlink_to(entry)
    for entry in (PACKAGE / "core").glob("*.py"):
        (core / entry.name).symlink_to(entry)
    source = (PACKAGE / "core" / mutant.file).read_text()
    if source.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name!r}: its text is found {source.count(mutant.old)} times in core/{mutant.file}, expected once")
    broken = core / mutant.file
    broken.unlink()
    broken.write_text(source.replace(mutant.old, mutant.new))
    return package


def order_tests(mutant: Mutant) -> list[str]:
    first = next(name for last, name in SECTIONS if mutant.rule <= last)
    rest = [name for name in ALL if name != first and name not in LAST]
    return [str(TESTS / name) for name in (first, *rest, *LAST)]


def judge(mutant: Mutant) -> tuple[Mutant, str]:
    """The name of the test that killed it, or the word that it survived."""
    with tempfile.TemporaryDirectory(prefix="wakeful-mutant-") as folder:
        package = build(mutant, Path(folder))
        words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-rfE", *order_tests(mutant)]
        environment = os.environ | {
            "PYTHONPATH": folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "WAKEFUL_TEST_SEEDS": "50",
            "WAKEFUL_TEST_EXAMPLES": "10",
        }
        try:
            done = subprocess.run(
                [sys.executable, "-c", RUN, str(package), *words],
                cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=SECONDS_EACH, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return mutant, "killed: the tests no longer end"
    if done.returncode == 0:
        return mutant, "SURVIVED"
    if done.returncode == 1:
        failed = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
        return mutant, "killed: " + failed.split(" - ")[0].rpartition("::")[2]
    return mutant, f"BROKEN: pytest ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"


def choose(words: list[str]) -> list[Mutant]:
    if not words:
        return list(MUTANTS)
    return [mutant for mutant in MUTANTS if any(word == str(mutant.rule) or word in mutant.name for word in words)]


def main() -> int:
    chosen = choose(sys.argv[1:])
    alive = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        for mutant, verdict in pool.map(judge, chosen):
            alive += not verdict.startswith("killed")
            print(f"rule {mutant.rule:2}  {mutant.name:55} {verdict}", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} killed")
    return 1 if alive or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
