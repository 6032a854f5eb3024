"""`make walk` traces one real save to its end. The number of modules and functions it goes through must not grow."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parent.parent
SCRIPT = REPOSITORY / "scripts" / "walk.py"
PAGE = REPOSITORY / "docs" / "walk.md"
PACKAGE = REPOSITORY / "daemon" / "wakeful"
# The most modules and functions that one save may go through. They are the measured figures (74 and 375 until the
# spawn, 101 and 598 until `suspended`), with room for the sweep, which the clock may start in any save on a busy
# machine. Lower them whenever the walk becomes shorter.
CEILINGS = {"spawn": (79, 392), "suspended": (106, 625)}


@pytest.fixture(scope="module")
def walked() -> list[str]:
    """Return the lines that the script prints about one save."""
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    found = importlib.util.spec_from_file_location("walk", SCRIPT)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["walk"] = module
    found.loader.exec_module(module)
    return module


def test_save_walks_from_hint_to_spawn_and_on_to_suspended(walked: list[str]) -> None:
    stages = [line for line in walked if re.fullmatch(r"[a-z]+|-- .*", line)]
    spawned = stages.index("-- the process is spawned")
    before, after = stages[:spawned], stages[spawned + 1 :]
    assert list(dict.fromkeys(before)) == ["hint", "look", "decide", "log", "start"]
    assert {"run", "end", "look", "decide", "log", "print"} <= set(after)
    assert after[-1] == "-- `suspended` is printed"


@pytest.mark.parametrize("end", CEILINGS)
def test_walk_does_not_grow(walked: list[str], end: str) -> None:
    line = next(line for line in walked if line.startswith(f"until {end}:"))
    modules, functions = (int(number) for number in re.findall(r"\d+", line))
    most_modules, most_functions = CEILINGS[end]
    assert modules <= most_modules, "a save goes through more modules than before: see `make walk`"
    assert functions <= most_functions, "a save goes through more functions than before: see `make walk`"


def test_the_page_of_the_walk_names_functions_that_exist() -> None:
    """`make docs` writes the page again. A function that the clock calls in some saves only may be missing on it."""
    rows = re.findall(r"^\|[^|]*\| `([\w.]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 50
    gone = [
        f"{module}: {name}"
        for module, functions in rows
        for name in re.findall(r"`([\w.]+)`", functions)
        if f"def {name.rpartition('.')[2]}(" not in find_source(module)
    ]
    assert not gone


def find_source(module: str) -> str:
    path = PACKAGE / (module.replace(".", "/") + ".py")
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("qualified", "function"),
    [
        ("decide", "decide"),
        ("Core.take", "Core.take"),
        ("Core.take.<locals>.<listcomp>", "Core.take"),
        ("Core.take.<locals>.<lambda>.<locals>.<genexpr>", "Core.take"),
        ("build.<locals>.report", "build.report"),
        ("<lambda>", ""),
    ],
)
def test_comprehension_or_lambda_is_part_of_its_function(script: ModuleType, qualified: str, function: str) -> None:
    assert script.fold_name(qualified) == function


def test_innermost_known_folder_decides_the_stage(script: ModuleType) -> None:
    assert script.find_stage("sources.hints.inotify") == "hint"
    assert script.find_stage("sources.files.look") == "look"
    assert script.find_stage("service.reactor") is None


def test_table_has_one_row_a_module_on_each_side_of_the_spawn(script: ModuleType) -> None:
    steps = (
        script.Step("look", "sources.files", "look"),
        script.Step("look", "reactor", "take"),
        script.Step("look", "sources.files", "tell"),
        script.Step("run", "runners.run", "keep"),
    )
    walk = script.Walk(steps, spawned=3)
    assert list(script.show_table(walk))[2:] == [
        "| look | `sources.files` | `look`, `tell` |",
        "|  | `reactor` | `take` |",
        "| | | *the process is spawned* |",
        "| run | `runners.run` | `keep` |",
        "| | | *`suspended` is printed* |",
    ]


def test_functions_that_the_clock_called_in_one_save_are_left_out(script: ModuleType) -> None:
    look, sweep, flush, keep = (script.Step("look", "sources", name) for name in ("look", "sweep", "flush", "keep"))
    walks = [script.Walk((look, sweep, flush, keep), spawned=3), script.Walk((look, flush, keep), spawned=1)]
    assert script.leave_common(walks) == script.Walk((look, flush, keep), spawned=1)
