"""Views as pure functions of a core that got observations, and of plain values."""

from itertools import count

import msgspec
import pytest

from api.small_daemon import declare, reads, writes
from wakeful.core.calls.call_types import Activate, Called, Interrupt, Sleep, Terminate
from wakeful.core.decide import decide
from wakeful.core.deciding.working_state import Core
from wakeful.core.observation_handlers import Observation
from wakeful.core.record.events import Cause, ChangedPath
from wakeful.core.record.observations import (
    DaemonStarted,
    Declaration,
    LookResult,
    Moment,
    ProcessEnded,
    SettingsRead,
    SpecsRead,
    StrictnessSeen,
    TargetLooked,
    TargetsHinted,
)
from wakeful.core.spec.bindings import CronBinding, EveryBinding, ServiceBinding
from wakeful.core.spec.session import CommandRun, Confinement, SessionSpec, Settings
from wakeful.errors import CallerError
from wakeful.views.path_bindings import means_path, plan_now, plan_paths, resolve_pattern
from wakeful.views.session_page import show, show_past
from wakeful.views.session_rows import Rows, list_row
from wakeful.views.times import read_time, shorten, show_time
from wakeful.views.why import describe_cause, why_session

START_US = 1_700_000_000_000_000


class World:
    """A core in simulated time. Each observation comes one second after the last."""

    def __init__(self, *specs: SessionSpec, concurrency: int = 10) -> None:
        self.core = Core()
        self._steps = count()
        self.feed(DaemonStarted(incarnation="test", settings=Settings(concurrency=concurrency)))
        self.looks = self.feed(SpecsRead(declared=tuple(Declaration(spec, "text") for spec in specs)))

    @property
    def now(self) -> Moment:
        step = next(self._steps)
        return Moment(START_US + step * 1_000_000, float(step), float(step))

    def feed(self, observation: Observation) -> list:
        return decide(self.core, observation, self.now).looks

    def look(self, version: str | None = "v1", **found: object) -> None:
        """Answer every look that the core asked for."""
        for look in self.looks:
            self.feed(
                TargetLooked(LookResult(target=look.target, generation=look.generation, version=version, **found))
            )
        self.looks = []

    def hint(self) -> None:
        self.looks = self.feed(TargetsHinted(tuple(self.core.looked.targets)))

    def finish(self, name: str, exit_code: int = 0) -> None:
        session = self.core.state.by_name(name)
        assert session.run is not None
        self.looks = self.feed(ProcessEnded(session=session.id, run_id=session.run.run_id, exit_code=exit_code))
        self.look()

    def row(self, name: str) -> dict:
        return list_row(self.core, self.core.state.by_name(name), self.now)


ONE = declare("one", reads("a", "a.csv"))


def at_rest() -> World:
    world = World(ONE)
    world.look()
    world.finish("one")
    return world


def test_the_four_states_and_their_words() -> None:
    """The states are suspended, running, sleeping (with words) and terminated."""
    world = World(ONE)
    assert world.row("one")["state"] == "suspended"
    world.look()
    assert world.row("one")["state"] == "running"
    world.finish("one")
    assert world.row("one")["state"] == "suspended"
    world.feed(Called(call=Sleep(name="one", words="lunch"), author="person:x"))
    assert (world.row("one")["state"], world.row("one")["reason"]) == ("sleeping", "lunch")
    world.feed(Called(call=Terminate(name="one"), author="person:x"))
    assert (world.row("one")["state"], world.row("one")["reason"], world.row("one")["queued"]) == (
        "terminated",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (declare("one", reads("a", "a.csv"), enabled=False), "disabled in its spec"),
        (declare("one", reads("a", "a.csv")), None),
    ],
)
def test_a_disabled_session_sleeps(spec: SessionSpec, words: str | None) -> None:
    """A session that its spec disables is held, with words, like any other held session."""
    world = World(spec)
    world.look()
    assert world.row("one")["reason"] == words


def test_a_vanished_spec_is_sleeping_undeclared() -> None:
    """The row stays, and its words give the reason."""
    world = at_rest()
    world.feed(SpecsRead(removed=("one",)))
    assert world.row("one")["state"] == "sleeping" and world.row("one")["reason"].startswith("undeclared")


def test_a_service_that_is_down_shows_in_kept_rows_too() -> None:
    """A row can change without a change of its session. Such a row is not taken from the cache."""
    service = ServiceBinding(name="db", url="tcp://localhost:1", wake=False)
    world = World(
        SessionSpec(
            name="one", root="/project", bindings=(reads("a", "a.csv"), service), run=CommandRun(argv=("true",))
        )
    )
    world.look("up")
    world.finish("one")
    world.hint()
    world.look("up")
    rows = Rows()
    assert b'"suspended"' in rows.encode(world.core, world.now)
    world.hint()
    for look in world.looks:
        version = "down" if look.target.startswith("service") else "up"
        world.feed(TargetLooked(LookResult(target=look.target, generation=look.generation, version=version)))
    (row,) = msgspec.json.decode(rows.encode(world.core, world.now))
    assert row["state"] == "sleeping" and row["reason"].startswith("service db is down")


def test_a_look_that_must_wait_for_git_is_queued_in_its_words() -> None:
    """The row says `queued: git rebase` while git holds the look, and no longer after that."""
    world = at_rest()
    rows = Rows()
    rows.encode(world.core, world.now)
    world.hint()
    world.look(None, held="git rebase")
    (row,) = msgspec.json.decode(rows.encode(world.core, world.now))
    assert row["queued"] == "git rebase"
    world.hint()
    world.look()
    (row,) = msgspec.json.decode(rows.encode(world.core, world.now))
    assert row["queued"] is None


@pytest.mark.parametrize(
    ("level", "begin", "news"),
    [
        ("strict", StrictnessSeen(words=None), StrictnessSeen(words="no run can be isolated strictly here")),
        ("none", SettingsRead(Settings(allow_unisolated=True)), SettingsRead(Settings(allow_unisolated=False))),
    ],
)
def test_what_isolation_means_here_shows_in_kept_rows_at_once(
    level: str, begin: Observation, news: Observation
) -> None:
    """The operator's settings and the machine can change without a record in any log."""
    spec = SessionSpec(
        name="one",
        root="/project",
        bindings=(reads("a", "a.csv"),),
        run=CommandRun(argv=("true",)),
        confinement=Confinement(level=level),
    )
    world = World()
    world.feed(begin)
    world.looks = world.feed(SpecsRead(declared=(Declaration(spec, "text"),)))
    world.look()
    world.finish("one")
    rows = Rows()
    states = []
    for observation in (begin, news, begin):
        world.feed(observation)
        (row,) = msgspec.json.decode(rows.encode(world.core, world.now))
        assert row == world.row("one")
        states.append(row["state"])
    assert states == ["suspended", "sleeping", "suspended"]


def test_kept_rows_equal_computed_ones() -> None:
    """The cache changes the speed, not the content."""
    world = at_rest()
    rows = Rows()
    first = rows.encode(world.core, world.now)
    assert first == rows.encode(world.core, world.now) == Rows().encode(world.core, world.now)
    assert msgspec.json.decode(first) == [world.row("one")]


def test_what_waits_for_a_slot_says_so() -> None:
    """There is one slot for two sessions. The second is queued for it."""
    world = World(
        declare("one", reads("a", "a.csv"), priority=90),
        declare("two", reads("b", "b.csv"), priority=10),
        concurrency=1,
    )
    world.look()
    states = {name: (world.row(name)["state"], world.row(name)["queued"]) for name in ("one", "two")}
    assert sorted(states.values()) == [("running", None), ("suspended", "a slot")]
    queued = next(name for name, (state, _) in states.items() if state == "suspended")
    assert [entry["session"] for entry in plan_now(world.core, world.now)["now"]][-1] == queued


def test_a_diamond_is_planned_in_waves() -> None:
    """Each session is in the wave after the last of its upstreams, also by the longer path."""
    world = World(
        declare("top", reads("raw", "raw.csv"), writes("out", "top.csv")),
        declare("left", reads("in", "top.csv"), writes("out", "left.csv")),
        declare("right", reads("in", "left.csv"), reads("also", "top.csv"), writes("out", "right.csv")),
        declare("end", reads("in", "right.csv"), reads("first", "top.csv")),
        declare("quiet", reads("in", "top.csv", wake=False)),
    )
    plan = plan_paths(world.core, ["/project/raw.csv"], world.now)
    assert [[entry["session"] for entry in wave] for wave in plan["waves"]] == [["top"], ["left"], ["right"], ["end"]]
    assert plan["waves"][3][0]["upstream"] == ["right", "top"]


@pytest.mark.parametrize("path", ["/project/a.csv~", "/project/.git/a.csv", "/elsewhere/a.csv", "/project/b.csv"])
def test_a_plan_for_what_nobody_watches_is_empty(path: str) -> None:
    """Default excludes and files in other folders wake no session."""
    world = World(declare("one", reads("a", "**/a.csv*")))
    plan = plan_paths(world.core, [path], world.now)
    assert plan["waves"] == [] and plan["unmatched"] == [path]


@pytest.mark.parametrize(
    ("pattern", "root", "path", "is_meant"),
    [
        ("a.csv", "/p", "/p/a.csv", True),
        ("a.csv", "/p", "/p/a.csv.bak", False),
        ("data", "/p", "/p/data/x", True),
        ("data/", "/p", "/p/data/x", True),
        ("data/**", "/p", "/p/data/x/y", True),
        ("**/a.csv", "/p", "/p/a.csv", True),
        ("a*.csv", "/p", "/p/ab.csv", True),
        ("a*.csv", "/p", "/p/b.csv", False),
        ("./a.csv", "/p", "/p/a.csv", True),
        ("../q/a.csv", "/p", "/q/a.csv", True),
        ("/abs/*.csv", "/p", "/abs/x.csv", True),
        ("a.csv", "/odd[1]", "/odd[1]/a.csv", True),
        ("*.csv", "/", "/a.csv", True),
    ],
)
def test_the_quick_look_at_a_pattern_never_contradicts_the_parser(
    pattern: str, root: str, path: str, is_meant: bool
) -> None:
    """The quick check saves the parser's time and gives the same result."""
    assert means_path(pattern, root, path) is resolve_pattern(pattern, root).matches(path) is is_meant


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (Cause(binding="first", kind="first", key="first", reason="first sight"), "first sight"),
        (
            Cause(binding="activation", kind="activation", key="activation", reason="month end"),
            "an activation (month end)",
        ),
        (Cause(binding="a", kind="file", key="k", old="1", new="2"), "a (file): 1 -> 2"),
        (Cause(binding="a", kind="file", key="k", old="f" * 40, new="f" * 40), "a (file): ffffffffffff again"),
        (Cause(binding="a", kind="file", key="k", new="f" * 40), "a (file): nothing -> ffffffffffff"),
        (Cause(binding="a", kind="file", key="k", paths=(ChangedPath("x.csv", "added"),)), "a (file): x.csv added"),
        (
            Cause(binding="a", kind="file", key="k", paths=tuple(ChangedPath(f"{n}", "added") for n in range(7))),
            "a (file): 0 added, 1 added, 2 added, 3 added, 4 added and 2 more",
        ),
        (Cause(binding="a", kind="file", key="k", reason="touched during run"), "a (file), touched during run"),
        (
            Cause(binding="c", kind="commits", key="k", old="1", new="2", commits=("abc Fix",)),
            "c (commits): 1 -> 2, by abc Fix",
        ),
    ],
)
def test_causes_in_words(cause: Cause, words: str) -> None:
    """The words of a cause are short."""
    assert describe_cause(cause) == words


def why(world: World, problem: str | None = None) -> list[str]:
    return why_session(world.core, world.core.state.by_name("one"), world.now, problem)["words"]


def test_why_begins_with_a_failure_and_what_to_do_about_it() -> None:
    """After a failure, `why` gives the reason, then the command for the output and for a new try."""
    world = World(declare("one", reads("a", "a.csv"), run=CommandRun(argv=("false",), retries=0)))
    world.look()
    world.finish("one", exit_code=3)
    words = why(world)
    assert words[0].startswith("Run 1 failed (exit code 3) at 2023-11-14T22:13:2") and words[0].endswith(
        "it was woken by first sight."
    )
    assert words[1] == "`wakeful output one` shows what it printed, `wakeful activate one` runs it again."
    assert words[2] == "one is sleeping: failed: exit code 3."
    assert "Nothing newer came" in words[3] and len(words) == 4


def test_why_of_rest_begins_with_the_state() -> None:
    """`why` distinguishes a success without later changes from a run that was stopped."""
    rested = at_rest()
    assert why(rested)[:2] == ["one is suspended.", "Nothing it waits for has changed since its last run saw it."]
    rested.hint()
    rested.look("v2")
    rested.feed(Called(call=Interrupt(name="one"), author="person:x"))
    rested.finish("one", exit_code=130)
    assert any("which was stopped; `wakeful activate one`" in sentence for sentence in why(rested))


def test_why_says_which_binding_cannot_be_seen() -> None:
    """A change of that binding would go unnoticed. `why` says so once, also when nothing is owed."""
    world = at_rest()
    world.hint()
    world.look(None, problem="a.csv: Permission denied")
    sentences = [sentence for sentence in why(world) if "cannot see a: a.csv: Permission denied" in sentence]
    assert len(sentences) == 1


def test_why_says_that_a_newer_spec_is_refused() -> None:
    """The session continues with its last good spec, and `why` tells the author the problem."""
    words = why(at_rest(), "one.yaml:1:1: broken\none.yaml:2:1: too")
    assert (
        words[1]
        == "Its file is refused, and its last good version stays in force: one.yaml:1:1: broken; and one.yaml:2:1: too."
    )


def test_show_tells_drift_of_an_output_and_the_next_slot_of_a_clock() -> None:
    """An output changed by hand is shown as drift, and wakes no session."""
    clock = CronBinding(name="monthly", expression="0 6 1 * *", timezone="UTC")
    spec = SessionSpec(
        name="one",
        root="/project",
        bindings=(reads("a", "a.csv"), writes("out", "out.csv"), clock),
        run=CommandRun(argv=("true",)),
    )
    world = World(spec)
    world.look()
    world.finish("one")
    world.hint()
    for look in world.looks:
        version = "by hand" if "out.csv" in look.target.split("\x1f")[2] else "v1"
        world.feed(TargetLooked(LookResult(target=look.target, generation=look.generation, version=version)))
    session = world.core.state.by_name("one")
    bindings = {
        one["name"]: one
        for one in show(world.core, session, world.now, runs=[], problem=None, describe=lambda key: None, usage=None)[
            "bindings"
        ]
    }
    assert session.run is None
    assert bindings["out"]["drift"] is True and bindings["a"]["drift"] is False
    assert bindings["monthly"]["next_due"] == "2023-12-01T06:00:00.000000Z"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1800.0, "30m"), (90.0, "90s"), (0.5, "0.5s"), (7200.0, "2h"), (172800.0, "2d"), (5400.0, "90m")],
)
def test_a_period_is_told_as_a_spec_says_it(seconds: float, words: str) -> None:
    """A period is `every 30m`, not 1800s."""
    assert EveryBinding(name="beat", period_seconds=seconds).description == words


def test_the_past_of_a_session_needs_no_core() -> None:
    """`show --at` needs only a folded session."""
    world = at_rest()
    world.feed(Called(call=Activate(name="one"), author="person:x"))
    session = world.core.state.by_name("one")
    assert show_past(session)["state"] == "running" and show_past(session)["bindings"][1]["seen"] == "v1"


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (START_US + 1, "2023-11-14T22:13:20.000001Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
    ],
)
def test_times_are_rfc_3339_in_utc_there_and_back(microseconds: int, text: str) -> None:
    """Microseconds survive the conversion to text and back."""
    assert show_time(microseconds) == text and read_time(text) == microseconds


def test_a_time_in_another_zone_is_the_same_moment() -> None:
    """Offsets are accepted. A time without a zone is refused."""
    assert read_time("2023-11-15T06:13:20+08:00") == START_US
    for text in ("2023-11-15T06:13:20", "soon", "", "2023-13-01T00:00:00Z"):
        with pytest.raises(CallerError):
            read_time(text)


@pytest.mark.parametrize(
    ("version", "short"),
    [(None, "nothing"), ("7", "7"), ("2026-01-31T06:00:00Z", "2026-01-31T06:00:00Z"), ("f" * 40, "f" * 12)],
)
def test_versions_are_told_apart_by_their_beginning(version: str | None, short: str) -> None:
    """Slots and positions are shown whole, digests cut to 12 digits."""
    assert shorten(version) == short
