"""The example specs match their programs: each program reads and writes what its spec declares.

The tests read the YAML as plain data. Whether wakeful accepts it is tested with the parser of specs.
"""

import re
from pathlib import Path, PurePosixPath

import pytest
import yaml

from examples.example_folder import Tree

SPECS = sorted((Path(__file__).parents[2] / "sessions.d").glob("*.yaml"))
# In the order of the graph: social-insurance-filing reads the output of payroll.
ORDER = ("payroll", "social-insurance-filing", "recruitment-screening", "api-docs", "heartbeat")
# This session sleeps until its agent has a key.
BY_AGENT = "api-guide"
LATER_KEYS = {
    "budget",
    "isolation",
    "secrets",
    "network",
    "people",
    "hosts",
    "for_each",
    "tools",
    "retention",
    "notify",
    "approve",
}


def load(path: Path) -> dict:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)


def patterns(spec: dict, *, written: bool) -> list[str]:
    return [
        binding["file"]
        for binding in spec["bindings"].values()
        if "file" in binding and (binding.get("access", "read") == "write") == written
    ]


def test_the_promised_examples_are_declared() -> None:
    """Payroll, filing, screening, API documentation, an agent's guide and a heartbeat exist, and so do their agents."""
    assert {path.stem for path in SPECS} == {*ORDER, BY_AGENT}
    agents = {path.stem for path in (SPECS[0].parent / "agents").glob("*.yaml")}
    assert {load(path)["agent"] for path in SPECS if "agent" in load(path)} == agents


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_newcomer_is_told_how_to_see_it_work(path: Path) -> None:
    """Each spec has an objective and opens with a comment that says how to see it work.

    Only the spec of the agent has a prompt and a budget. The others use no key of a later release.
    """
    spec = load(path)
    assert spec["objective"].endswith(".")
    assert re.match(r"(# .*\n){2,5}", path.read_text(encoding="utf-8"))
    assert "# To see it" in path.read_text(encoding="utf-8")
    if path.stem == BY_AGENT:
        assert "prompt" in spec["run"] and {"run", "day"} <= spec["budget"].keys()
        return
    assert not LATER_KEYS & spec.keys()
    assert "prompt" not in spec["run"]


def test_every_program_writes_exactly_what_its_spec_declares(tree: Tree) -> None:
    """Run all five programs in the order of the graph.

    The literal inputs exist, every changed file matches a write binding, and each program writes at least one file.
    """
    for name in ORDER:
        spec = load(tree.root / "sessions.d" / f"{name}.yaml")
        literal = [pattern for pattern in patterns(spec, written=False) if "*" not in pattern]
        assert [pattern for pattern in literal if not (tree.root / pattern).is_file()] == []
        before = tree.files()
        python, program = spec["run"]["command"]
        assert python == "python3"
        tree.succeed(program)
        after = tree.files()
        touched = {path for path in after.keys() | before.keys() if before.get(path) != after.get(path)}
        declared = patterns(spec, written=True)
        assert touched, f"{name} wrote nothing"
        assert [path for path in touched if not any(PurePosixPath(path).match(pattern) for pattern in declared)] == []


@pytest.mark.parametrize("name", ["payroll", "social-insurance-filing", "recruitment-screening"])
def test_every_imported_module_is_bound(tree: Tree, name: str) -> None:
    """A binding covers every module that a program imports, so that a fix in a shared module wakes its sessions."""
    spec = load(tree.root / "sessions.d" / f"{name}.yaml")
    bound = patterns(spec, written=False)
    pending, used = [tree.root / spec["run"]["command"][1]], set()
    while pending:
        text = pending.pop().read_text(encoding="utf-8")
        for module in re.findall(r"^from (?:ledger)?\.(\w+) import", text, flags=re.MULTILINE):
            found = tree.root / "examples/hr/ledger" / f"{module}.py"
            if found not in used:
                used.add(found)
                pending.append(found)
    relative = [str(path.relative_to(tree.root)) for path in used]
    assert relative
    assert [path for path in relative if not any(PurePosixPath(path).match(pattern) for pattern in bound)] == []
