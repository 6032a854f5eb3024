"""The lines of a spec that allow the denied accesses of a run.

Read back, they mean exactly these paths and addresses.
"""

from __future__ import annotations

import pytest

from wakeful.core.record.observations import Denied
from wakeful.core.spec.session import SessionSpec
from wakeful.specs.folder_reading import read_text
from wakeful.specs.spec_builder import Surroundings
from wakeful.specs.trace_suggestions import spell, suggest

SPEC = """
bindings:
  rates: {file: rates.csv}
allow: {read: [~/.config/tool.toml, /opt/data], write: [/var/lib/tool/cache]}
network: ["api.example.com:443"]
run: {command: [x]}
"""


def read_spec(text: str) -> SessionSpec:
    return read_text(text.encode(), "report", "report.yaml", Surroundings("/project"))[0]


def deny(*paths: str, access: str = "read", is_folder: bool = False) -> list[Denied]:
    return [Denied(access=access, what=path, place=path, is_folder=is_folder) for path in paths]  # type: ignore[arg-type]


def paste(denied: list[Denied], text: str = "run: {command: [x]}\n") -> tuple[list[str], SessionSpec]:
    """Return the lines, and a spec that has these lines for its keys."""
    lines = spell(suggest(read_spec(text), denied, root="/project", home="/home/me"))
    return lines, read_spec("run: {command: [x]}\n" + "\n".join(lines))


def test_what_lies_in_root_is_bound_and_what_lies_elsewhere_allowed() -> None:
    """A change of the project's own files should wake the session. A change of other files need not."""
    lines, spec = paste(
        deny("/project/lib/figures.py", "/opt/model.bin")
        + deny("/project/out/log.txt", "/var/lib/tool/state", access="write")
    )
    assert lines == [
        "bindings:",
        "  figures: {file: lib/figures.py}",
        "  log: {file: out/log.txt, access: write}",
        "allow:",
        "  read: [/opt/model.bin]",
        "  write: [/var/lib/tool]",
    ]
    assert spec.confinement.allow_write == ("/var/lib/tool",)


def test_what_the_spec_says_already_stays() -> None:
    """`allow` and `network` are written out whole, and names of bindings are not used twice."""
    denied = [
        *deny("/home/me/notes", "/project/other/rates.txt"),
        Denied(access="connect", what="x", place="[::1]:8080"),
    ]
    lines, spec = paste(denied, SPEC)
    assert lines[1] == "  rates-2: {file: other/rates.txt}"
    assert lines[-1] == 'network: ["api.example.com:443", "[::1]:8080"]'
    assert "~/notes" in lines[3] and "/opt/data" in lines[3] and "/var/lib/tool/cache" in lines[4]
    assert spec.confinement.network == ("api.example.com:443", "[::1]:8080")


@pytest.mark.parametrize(("place", "network"), [("*", True), ("10.0.0.1:5432", ("10.0.0.1:5432",))])
def test_an_address_is_named_where_it_is_known(place: str, network: object) -> None:
    """Without a known address, only the whole network can be allowed."""
    assert paste([Denied(access="connect", what="x", place=place)])[1].confinement.network == network


def test_many_files_of_a_folder_are_the_folder_but_never_all_of_root() -> None:
    """A folder outside of root is not opened as a whole either."""
    lines, _ = paste(
        deny(
            *(f"/project/lib/{n}.py" for n in range(9)),
            *(f"/project/{n}.txt" for n in "abcdef"),
            *(f"/home/me/.config/{n}" for n in range(9)),
        )
    )
    assert '  lib: {file: "lib/**"}' in lines and "  a: {file: a.txt}" in lines
    assert not any("/.config]" in line or "/.config," in line for line in lines)


def test_what_lies_in_another_is_not_told_twice() -> None:
    """A folder that the run makes includes its files, and a written file may also be read."""
    lines, _ = paste(
        deny("/project/made", access="write", is_folder=True)
        + deny("/project/made/a", "/project/made/b", access="write")
        + deny("/project/made/a")
    )
    assert lines == ["bindings:", '  made: {file: "made/**", access: write}']


@pytest.mark.parametrize(
    "name",
    ["a b", "true", "no", "null", "12", "1e3", "-x", "~", "~/x", "~root", "a: b", "a #b", "{a", "a}", "[a]", "a,b", "'a'", 'a"b', "ü", "&a", "!a", "@a", "%a", "|", ">", "- a", "0x1f", ".inf", "2026-01-01", "a\u202eb", "=", "<<"],
)  # fmt: skip
def test_a_strange_name_reads_back_as_itself(name: str) -> None:
    """The name lies inside root or elsewhere. Whatever YAML makes of it, the spec means this file only."""
    _, spec = paste(deny(f"/project/{name}", f"/opt/data/{name}"))
    patterns = [f"/project/{one.pattern}" for one in spec.files] + list(spec.confinement.allow_read)
    assert sorted(patterns) == sorted((f"/project/{name}", f"/opt/data/{name}"))


@pytest.mark.parametrize("name", ["*", "a*b", "what?", "back\\slash"])
def test_a_name_that_a_spec_takes_for_a_pattern_is_left_out(name: str) -> None:
    """As a pattern, the pasted line would open more than the run needs."""
    assert paste(deny(f"/project/{name}", f"/opt/{name}"))[0] == []


def test_a_device_is_allowed_by_itself() -> None:
    """The folder of all devices is not opened."""
    assert paste(deny("/dev/ptmx", access="write") + deny("/dev/shm", access="write", is_folder=True))[0] == [
        "allow:",
        "  write: [/dev/ptmx, /dev/shm]",
    ]


def test_what_every_binding_leaves_out_is_allowed_instead() -> None:
    """A change of a repository's own files wakes no session."""
    assert paste(deny("/project/.git/config"))[0] == ["allow:", "  read: [/project/.git/config]"]


@pytest.mark.parametrize(
    ("path", "cache"),
    [
        ("/project/.ruff_cache/0.1/x", ".ruff_cache"),
        ("/project/.pytest_cache/v/cache", ".pytest_cache"),
        ("/project/pytest-cache-files-ab12", ".pytest_cache"),
        ("/project/src/.mypy_cache/3.11", "src/.mypy_cache"),
        ("/project/src/__pycache__/a.pyc", "src/__pycache__"),
        ("/project/web/node_modules/.cache/babel/x", "web/node_modules/.cache"),
        ("/project/.gradle/8.1", ".gradle"),
        ("/project/target/debug/deps", "target"),
        ("/home/me/.cache/pip/http/a/b", '"~/.cache/pip"'),
        ("/home/me/.cargo/registry/index/x", '"~/.cargo/registry"'),
    ],
)
def test_a_cache_is_allowed_and_no_output(path: str, cache: str) -> None:
    """The cache is allowed as a whole, whichever part of it was read or written."""
    for access in ("read", "write"):
        assert paste(deny(path, access=access))[0] == ["allow:", f"  write: [{cache}]"]
    assert paste(deny(path, f"{path}/b", access="write") + deny(path))[0] == ["allow:", f"  write: [{cache}]"]


def test_a_folder_that_is_merely_called_as_a_build_is_bound() -> None:
    assert paste(deny("/project/target/report.txt", access="write"))[0] == [
        "bindings:",
        "  report: {file: target/report.txt, access: write}",
    ]


@pytest.mark.parametrize("place", ["*", "10.0.0.1:5432"])
def test_no_network_is_offered_to_a_run_that_did_without(place: str) -> None:
    denied = [Denied(access="connect", what="x", place=place)]
    assert (
        spell(suggest(read_spec("run: {command: [x]}\n"), denied, root="/project", home="/home/me", has_passed=True))
        == []
    )


def test_the_folder_around_the_project_is_not_opened_for_one_file() -> None:
    lines = spell(
        suggest(
            read_spec("run: {command: [x]}\n"),
            deny("/srv/work/site/made", access="write"),
            root="/srv/work/site/project",
            home="/home/me",
        )
    )
    assert lines == ["allow:", "  write: [/srv/work/site/made]"]


def test_nothing_is_suggested_for_what_should_not_be_opened() -> None:
    """Such a denial has no place to open, only a message."""
    assert paste([Denied(access="read", what="/home/me/.ssh/id", words="it may hold secrets")])[0] == []
