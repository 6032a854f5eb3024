"""Whether a run may have written a spec: by the time of the change, and by the places that the run could write."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakeful.core.deciding.working_state import Core
from wakeful.core.record.state import Declaration, LastRun, OpenRun, Session
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import CommandRun, Confinement, SessionSpec
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.isolation.written_places import list_writable
from wakeful.service.wiring.source_edges import find_filed_text
from wakeful.trust.possible_writers import LAG_US, PossibleWriters

AT = 1_000_000_000


def spec(root: Path, *outputs: str, **limits: object) -> SessionSpec:
    bindings = tuple(FileBinding(name=f"o{number}", pattern=one, access="write") for number, one in enumerate(outputs))
    return SessionSpec(
        name="s", root=str(root), bindings=bindings, run=CommandRun(argv=("true",)), confinement=Confinement(**limits)
    )


def reached(own: SessionSpec, *, is_open: bool) -> PossibleWriters:
    return find_writers(known(own, is_open=is_open))


def could_write(own: SessionSpec, place: str, *, is_guarded: bool) -> bool:
    return reached(own, is_open=True).find(place, AT, is_guarded=is_guarded) is not None


def find_writers(core: Core) -> PossibleWriters:
    return PossibleWriters(core, list_writable, lambda: AT + 1_000_000)


def known(own: SessionSpec, *, is_open: bool) -> Core:
    run = OpenRun(
        run=3, run_id="id.3", wake=1, attempt=0, incarnation="i", started_at=AT, versions={}, causes=(), spec=own
    )
    last = LastRun(
        run=2,
        outcome="succeeded",
        reason=None,
        started_at=AT - 1_000_000,
        finished_at=AT - 500_000,
        causes=(),
        chain=(),
    )
    session = Session(id="id", name="s", opened_at=0, spec=own, run=run if is_open else None, last_run=last)
    return Core([session])


@pytest.mark.parametrize(
    ("changed_at", "words"), [(AT - LAG_US - 1, None), (AT - LAG_US, "run 3 of s"), (AT + 5, "run 3 of s")]
)
def test_what_changed_before_a_run_began_is_not_its_doing(tmp_path: Path, changed_at: int, words: str | None) -> None:
    one = reached(spec(tmp_path, level="none"), is_open=True)
    one.turn()
    assert one.find(str(tmp_path / "sessions.d/x.yaml"), changed_at, is_guarded=True) == words


def test_a_run_that_ended_since_the_last_reading_counts_and_one_before_it_does_not(tmp_path: Path) -> None:
    one, path = reached(spec(tmp_path, level="none"), is_open=True), str(tmp_path / "x.yaml")
    one.end("id")
    assert one.find(path, AT + 1_000_000, is_guarded=True) == "run 3 of s"
    other = reached(spec(tmp_path, level="none"), is_open=False)
    assert other.find(path, AT - 700_000, is_guarded=True) == "run 2 of s", "the last daemon may not have read it"
    assert other.find(path, AT - 500_000, is_guarded=True) == "run 2 of s"
    assert other.find(path, AT - 499_999, is_guarded=True) is None, "a person's edit, right after it ended"
    other.turn()
    assert other.find(path, AT - 700_000, is_guarded=True) is None


def test_a_run_that_ends_while_specs_are_read_counts_at_the_next_reading(tmp_path: Path) -> None:
    """The run may write a file after the file was read, and before the whole reading is over."""
    core, path = known(spec(tmp_path, level="none"), is_open=True), str(tmp_path / "x.yaml")
    one = find_writers(core)
    one.begin()
    one.end("id")
    one.turn()
    assert one.find(path, AT + 1_000_000, is_guarded=True) == "run 3 of s"
    core.state.running.clear()
    assert one.find(path, AT + 1_000_000, is_guarded=True) == "run 3 of s", "the core knows of its end by now"
    one.begin()
    one.turn()
    assert one.find(path, AT + 1_000_000, is_guarded=True) is None


@pytest.mark.parametrize(("is_filed", "known"), [(True, "text"), (False, None)])
def test_what_a_bundle_says_of_its_text_is_not_known(is_filed: bool, known: str | None) -> None:
    """Otherwise a run could plant the file that a loaded session names as its declaration."""
    core = Core(
        [Session(id="id", name="s", opened_at=0, declaration=Declaration(text_digest="text", is_filed=is_filed))]
    )
    assert (find_filed_text(core, "s"), find_filed_text(core, "other")) == (known, None)


def test_a_confined_run_could_write_what_its_outputs_open(tmp_path: Path) -> None:
    """The run can write beside its output unless that is shielded, and nowhere else."""
    specs = str(tmp_path / "sessions.d" / "x.yaml")
    assert not could_write(spec(tmp_path, "out/report.md"), specs, is_guarded=False)
    assert could_write(spec(tmp_path, "report.md"), specs, is_guarded=False)
    assert could_write(spec(tmp_path, "**/*.md"), specs, is_guarded=False)
    assert could_write(spec(tmp_path, allow_write=(".",)), specs, is_guarded=False)
    assert could_write(spec(tmp_path, "report.md"), specs, is_guarded=True) is not can_shield()
    assert not could_write(spec(tmp_path, "report.md", level="strict"), specs, is_guarded=True)
    assert could_write(spec(tmp_path, level="none"), "/etc/anything", is_guarded=True)


def test_a_spec_that_is_a_link_is_where_it_leads(tmp_path: Path) -> None:
    for folder in ("sessions.d", "drafts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "drafts" / "x.yaml").write_text("")
    (tmp_path / "sessions.d" / "x.yaml").symlink_to(tmp_path / "drafts" / "x.yaml")
    assert could_write(spec(tmp_path, "drafts/out.md"), str(tmp_path / "sessions.d" / "x.yaml"), is_guarded=False)
