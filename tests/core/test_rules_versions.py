"""Rules 4 to 9: the versions of bindings, and when they cause a run."""

import pytest
from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import after, commits, every, hook, probe, read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.owed import list_new_deliveries, owed_names
from wakeful.core.looking.targets import target_of
from wakeful.core.spec.session import CommandRun, PromptRun, ScriptRun, Settings, digest_noticed
from wakeful.errors import CallerError


def at_rest(*specs, **keys) -> World:
    """Make a world in which everything was seen."""
    world = World(*specs, **keys)
    world.rest()
    return world


@pytest.mark.parametrize("text", ["older", "newer", ""])
def test_rule_4_a_level_is_owed_whenever_its_version_differs_from_seen(text: str) -> None:
    """Rule 4: a file binding is owed if its version differs from seen, in either direction."""
    world = at_rest(session("s", read("in")), files={"in": "old"})
    world.write("in", text)
    world.rest()
    assert world.starts("s") == 2
    world.write("in", "old")
    world.rest()
    assert world.starts("s") == 3


def deliver(world: World, number: int, name: str = "s", **fields: object) -> str | None:
    call = calls.Deliver(name=name, binding="hook", sender="github", delivery=f"d{number}", payload="blob", **fields)
    return world.call(call, author="webhook:github")


def test_rule_4_a_webhook_is_owed_while_its_position_is_ahead_of_seen() -> None:
    """Rule 4: a webhook has no first run. One run takes all waiting deliveries, and no delivery runs twice."""
    world = at_rest(session("s", hook()))
    assert world.starts("s") == 0
    world.call(calls.Sleep(name="s", seconds=60.0))
    for number in range(3):
        assert deliver(world, number) == f"delivery {number + 1} of hook is recorded"
    world.advance(61.0)
    world.rest()
    (cause,) = world.session("s").last_run.causes
    assert (world.starts("s"), cause.kind, cause.old, cause.new) == (1, "webhook", None, "3")
    deliver(world, 3)
    run = world.session("s").run
    assert run is not None
    assert [one.delivery for one in list_new_deliveries(world.session("s"), run, "webhook hook")] == ["d3"]
    # A delivery during the run belongs to the next run, also when this run fails (rule 16).
    deliver(world, 4)
    world.end("s", exit_code=1)
    world.rest()
    assert world.starts("s") == 3
    assert world.session("s").marks.seen["webhook hook"] == "5"


def test_rule_4_a_filtered_delivery_is_a_mark_and_wakes_nobody() -> None:
    """Rule 4: a filtered delivery is recorded without a new position. The next delivery takes that position."""
    world = at_rest(session("s", hook()))
    assert deliver(world, 1, is_filtered=True, reason="event is ping") == "filtered: event is ping"
    assert world.kinds("s")[-1] == "delivery_received" and world.session("s").wake is None
    deliver(world, 2)
    assert (world.session("s").webhooks["webhook hook"].position, world.starts("s")) == (1, 1)


def test_rule_4_a_crash_between_a_delivery_and_its_run_loses_none() -> None:
    """Rule 4: a recorded delivery is owed after the crash, and the next run gets it."""
    world = at_rest(session("s", hook()), settings=Settings(concurrency=1))
    deliver(world, 1)
    world.crash()
    world.recover()
    world.rest()
    assert world.session("s").marks.seen["webhook hook"] == "1"
    assert [event.is_final for event in world.events("s", "run_finished")] == [False, True]


def test_rule_4_very_large_payloads_are_parted_among_runs() -> None:
    """Rule 4: a run gets at most 64 MB of payloads, or one payload. The rest is still owed."""
    world = at_rest(session("s", hook()))
    world.call(calls.Sleep(name="s", seconds=60.0))
    for number, size in enumerate((30_000_000, 30_000_000, 30_000_000, 70_000_000, 1)):
        deliver(world, number, size_bytes=size)
    world.advance(61.0)
    world.rest()
    news = [event.versions["webhook hook"] for event in world.events("s", "run_started")]
    assert news == ["2", "3", "4", "5"]


def test_rule_8_a_webhook_keeps_what_waits_when_its_secret_or_filter_changes() -> None:
    """Rule 8: the identity of a webhook is its address, which contains its name."""
    world = at_rest(session("s", hook()))
    world.call(calls.Sleep(name="s"))
    deliver(world, 1)
    world.declare(session("s", hook(only={"event": ("push",)}, tolerance_seconds=1.0)))
    world.call(calls.Resume(name="s"))
    world.rest()
    assert [cause.kind for cause in world.session("s").last_run.causes] == ["webhook"]
    world.declare(session("s", read("in")))
    with pytest.raises(CallerError, match="no webhook"):
        deliver(world, 2)


def test_rule_4_probes_and_commits_are_levels() -> None:
    """Rule 4: the output of a probe and the tree of a branch are compared with seen. Equal ones cause no run."""
    world = World(session("s", probe("fx"), commits("src")))
    world.probes[("fx",)] = "1.10"
    world.hint(*world.followed)
    world.rest()
    world.probes[("fx",)] = "1.20"
    world.hint(*world.followed)
    world.rest()
    assert world.starts("s") == 2
    world.commit("src", "tree")
    world.rest()
    assert world.starts("s") == 3
    world.commit("src", "tree")
    world.hint(*world.followed)
    world.rest()
    assert world.starts("s") == 3


def test_rule_4_the_spec_and_the_program_are_levels() -> None:
    """Rule 4: an edited spec or program wakes the session, as a file does."""
    spec = session("s", read("in"), program="work.py")
    world = at_rest(spec, files={"work.py": "1"})
    world.write("work.py", "2")
    world.rest()
    assert [cause.binding for cause in world.session("s").last_run.causes] == ["program"]
    world.declare(replace(spec, objective="better"))
    world.rest()
    assert [cause.binding for cause in world.session("s").last_run.causes] == ["spec"]
    assert world.starts("s") == 3


def test_rule_4_an_ordered_kind_is_owed_only_when_its_position_is_ahead() -> None:
    """Rule 4: messages, activations, slots and sessions count forward.

    A position that was dealt with never wakes again.
    """
    world = at_rest(session("up", every(3600.0)), session("s", after("up")))
    assert world.starts("s") == 1
    world.call(calls.Activate(name="up"))
    world.rest()
    assert world.starts("s") == 2
    world.call(calls.Send(name="s", text="hello"))
    world.rest()
    assert world.starts("s") == 3
    world.crash()
    world.rest()
    assert world.starts("s") == 3


def test_rule_5_unknown_is_no_version() -> None:
    """Rule 5: an unreadable file causes no wake, and does not count as deleted."""
    world = at_rest(session("s", read("in")), files={"in": "old"})
    world.hide("in")
    world.rest()
    assert world.starts("s") == 1
    assert world.session("s").wake is None
    world.show("in")
    world.rest()
    assert world.starts("s") == 1


def test_rule_5_nothing_starts_on_what_it_cannot_see_but_by_activation() -> None:
    """Rule 5: a session does not start while a binding is unknown, and says so.

    An activation overrides this. A change of the unknown binding is still owed afterwards.
    """
    world = at_rest(session("s", read("in"), read("other")), files={"in": "old", "other": "1"})
    world.hide("in")
    world.write("other", "2")
    world.rest()
    assert world.starts("s") == 1
    assert world.queued("s") == "cannot see in: permission denied"
    world.call(calls.Activate(name="s"))
    world.rest()
    assert world.starts("s") == 2
    world.write("in", "new")
    world.show("in")
    world.rest()
    assert world.starts("s") == 3


def test_rule_5_readers_of_a_session_that_cannot_see_are_held() -> None:
    """Rule 5: while an input of an upstream is unknown, its readers wait."""
    world = at_rest(
        session("up", read("in"), write("out")),
        session("down", read("out"), read("own")),
        files={"in": "1", "own": "1"},
    )
    world.hide("in")
    world.rest()
    world.write("own", "2")
    world.rest()
    assert world.queued("down") == "upstream up cannot see in"
    world.show("in")
    world.rest()
    assert world.starts("down") == 2


def test_rule_7_a_read_binding_never_covers_what_its_own_session_writes() -> None:
    """Rule 7: the target of a read binding hides the session's own write patterns."""
    spec = session("s", read("data/**"), write("data/out.csv"))
    assert target_of(spec, spec.bindings[0]).hidden == ("data/out.csv",)
    world = at_rest(spec, files={"data/in.csv": "1"})
    assert world.starts("s") == 1
    world.write("data/out.csv", "by hand")
    world.rest()
    assert world.starts("s") == 1


def test_rule_7_a_write_binding_wakes_its_readers_and_not_its_writer() -> None:
    """Rule 7: if others change or delete an output, its readers wake and its writer does not."""
    world = at_rest(session("up", read("in"), write("out")), session("down", read("out")), files={"in": "1"})
    world.write("out", "by hand")
    world.rest()
    world.delete("out")
    world.rest()
    assert (world.starts("up"), world.starts("down")) == (1, 3)


def test_rule_7_a_write_binding_that_wakes_recomputes_what_was_edited_or_deleted() -> None:
    """Rule 7: with `wake: true` an edited or deleted output is made again, once.

    The session's own writes wake no session.
    """
    world = at_rest(session("s", read("in"), write("out", wake=True)), files={"in": "1"})
    assert world.starts("s") == 1
    made = world.files["/project/out"]
    world.write("out", "by hand")
    world.rest()
    assert (world.starts("s"), world.files["/project/out"]) == (2, made)
    world.delete("out")
    world.rest()
    assert (world.starts("s"), world.files["/project/out"]) == (3, made)


def test_rule_7_one_path_read_and_written_is_two_things() -> None:
    """Rule 7: a session that reads and writes one pattern has no input from it, and does not wake itself."""
    world = at_rest(session("s", read("data/*", name="seen"), write("data/*", name="made")), files={"data/x": "1"})
    world.write("data/x", "2")
    world.rest()
    assert world.starts("s") == 1


def test_rule_8_a_renamed_binding_keeps_what_it_has_seen() -> None:
    """Rule 8: seen belongs to the identity of a binding. So a new name is a new spec, but not new content."""
    world = at_rest(session("s", read("in", name="old")), files={"in": "1"})
    world.declare(session("s", read("in", name="new")))
    world.rest()
    assert [cause.kind for cause in world.session("s").last_run.causes] == ["spec"]
    world.declare(session("s", read("other", name="new")))
    world.rest()
    assert {cause.kind for cause in world.session("s").last_run.causes} == {"spec", "file"}


def test_rule_8_another_exclude_is_another_binding() -> None:
    """Rule 8: exclude, branch, repository, `each_commit` and period belong to the identity.

    Name, settle and wake do not.
    """
    plain, without = read("data/*"), read("data/*", exclude=("x",))
    assert plain.identity != without.identity
    assert (
        commits("src").identity
        != commits("src", branch="main").identity
        != commits("src", branch="main", repo="r").identity
    )
    assert commits("src").identity != commits("src", each_commit=True).identity
    assert every(1.0).identity != every(2.0).identity
    assert read("in").identity == read("in", name="renamed", settle_seconds=9.0, wake=False).identity


def test_rule_8_a_new_clock_starts_at_the_slot_before_the_edit() -> None:
    """Rule 8: a clock that is new, changed, or declared again after removal has no owed slots from the past."""
    world = at_rest(session("s", every(60.0)))
    assert world.starts("s") == 0
    world.advance(60.0)
    world.rest(1.0)
    assert world.starts("s") == 1
    world.declare(session("s", every(7200.0)))
    world.rest(1.0)
    starts = world.starts("s")
    world.advance(3600.0)
    world.declare(session("s", every(60.0)))
    world.rest(1.0)
    assert [cause.kind for cause in world.session("s").last_run.causes] == ["spec"]
    assert world.starts("s") == starts + 1


@pytest.mark.parametrize(
    "change",
    [
        {"priority": 90}, {"pace_seconds": 5.0}, {"tags": ("x",)}, {"pool": "gpu"}, {"when": "all"}, {"window": None},
        {"run": CommandRun(argv=("work", "s"), retries=5, timeout_seconds=1.0)},
    ],
)  # fmt: skip
def test_rule_9_timing_and_order_are_not_noticed(change: dict[str, object]) -> None:
    """Rule 9: priority, pace, retries, timeout and the like are not part of the spec's version."""
    spec = session("s", read("in"))
    world = at_rest(spec, files={"in": "1"})
    world.declare(replace(spec, **change))
    world.rest()
    assert world.starts("s") == 1
    assert world.session("s").spec == replace(spec, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"objective": "new"}, {"agent": "hr"}, {"conversation": "continue"}, {"bindings": ()},
        {"run": CommandRun(argv=("other",))}, {"run": CommandRun(argv=("work", "s"), env={"A": "1"})},
        {"run": PromptRun(prompt="work")}, {"tools": {"shell": "deny"}},
        {"run": CommandRun(argv=("work", "s"), cwd="sub")}, {"run": CommandRun(argv=("work", "s"), check=("test",))},
    ],
)  # fmt: skip
def test_rule_9_what_a_run_can_notice_wakes(change: dict[str, object]) -> None:
    """Rule 9: agent, objective, bindings and the command are part of the spec's version."""
    spec = session("s", read("in"))
    assert digest_noticed(replace(spec, **change)) != digest_noticed(spec)


def test_rule_9_a_prompt_is_another_thing_than_a_script_of_the_same_words() -> None:
    """Rule 9: a prompt and a script of the same text are different versions. So are two different prompts."""
    spec = session("s", read("in"), run=PromptRun(prompt="make all"))
    assert digest_noticed(spec) != digest_noticed(replace(spec, run=ScriptRun(text="make all")))
    assert digest_noticed(spec) != digest_noticed(replace(spec, run=PromptRun(prompt="make none")))
    assert digest_noticed(spec) == digest_noticed(replace(spec, run=PromptRun(prompt="make all", retries=2)))


def test_owed_names_what_is_new() -> None:
    """A session at rest owes nothing. A binding with `wake: false` is not named."""
    world = at_rest(session("s", read("in"), read("quiet", wake=False)), files={"in": "1", "quiet": "1"})
    assert owed_names(world.core.state, world.core.looked, world.session("s")) == []
    world.call(calls.Sleep(name="s"))
    world.write("in", "2")
    world.write("quiet", "2")
    world.rest()
    assert owed_names(world.core.state, world.core.looked, world.session("s")) == ["in"]
