"""Holds of a wake before it runs: a spent budget, a question to a person, and the brake on all sessions."""

import pytest

from core.simulated_world import World
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record import events as ev
from wakeful.core.spec.budget import Amounts, Budget
from wakeful.errors import CallerError

HOUR = 3600.0


def save(world: World, text: str) -> None:
    world.write("in", text)
    world.look()


def runs(world: World, name: str = "s") -> int:
    return world.core.state.by_name(name).tally.runs


def kinds(world: World, since: int = 0) -> list[str]:
    return [entry.kind for entry in world.log[since:]]


def make(**keys: object) -> World:
    world = World(session("s", read("in"), **keys), files={"in": "1"})
    world.rest()
    return world


# -- budgets ------------------------------------------------------------------------------------


def test_a_spent_budget_holds_the_wake_until_its_period_turns_and_loses_nothing() -> None:
    world = make(budget=Budget(hour=Amounts(runs=2)))
    save(world, "2")
    world.rest()
    assert runs(world) == 2
    save(world, "3")
    assert runs(world) == 2
    assert world.hold("s") == "budget of the hour: 2 of 2 runs spent"
    world.advance(HOUR - 60)
    assert runs(world) == 2
    world.advance(120)
    world.rest()
    assert runs(world) == 3
    assert world.hold("s") is None


def test_a_spent_budget_is_still_spent_after_a_crash() -> None:
    world = make(budget=Budget(day=Amounts(runs=1)))
    world.crash()
    world.rest()
    save(world, "2")
    assert runs(world) == 1
    assert world.hold("s") == "budget of the day: 1 of 1 runs spent"
    world.crash()
    world.rest()
    assert runs(world) == 1


def test_asking_for_a_run_and_resuming_spend_no_more_than_the_budget_has() -> None:
    world = make(budget=Budget(hour=Amounts(runs=1)))
    world.call(calls.Activate(name="s"))
    assert runs(world) == 1
    assert world.hold("s") == "budget of the hour: 1 of 1 runs spent"
    world.call(calls.Activate(name="s"))
    world.call(calls.Resume(name="s"))
    world.rest()
    assert runs(world) == 1
    world.advance(HOUR)
    world.rest()
    assert runs(world) == 2


def test_a_try_anew_costs_as_much_as_the_first() -> None:
    world = World(session("s", read("in"), retries=5, budget=Budget(hour=Amounts(runs=2))), files={"in": "1"})
    world.rest(300.0, exit_code=lambda _: 1)
    assert runs(world) == 2
    assert world.hold("s") == "budget of the hour: 2 of 2 runs spent"


def test_a_larger_budget_sets_it_free_at_once() -> None:
    world = make(budget=Budget(day=Amounts(runs=1)))
    save(world, "2")
    world.declare(session("s", read("in"), budget=Budget(day=Amounts(runs=5))))
    world.rest()
    assert runs(world) == 2
    assert world.core.state.by_name("s").tally.spent["day"].runs == 2


def test_what_a_run_used_is_charged_when_it_ends() -> None:
    world = World(session("s", read("in"), budget=Budget(day=Amounts(cpu_seconds=10.0))), files={"in": "1"})
    world.look()
    world.end("s", usage=ev.Usage(cpu_seconds=11.0, wall_seconds=2.0))
    world.rest()
    save(world, "2")
    assert world.hold("s") == "budget of the day: 11 of 10 s of CPU spent"


# -- questions ----------------------------------------------------------------------------------


def ask() -> World:
    world = World(session("s", read("in"), is_approved_first=True), files={"in": "1"})
    world.look()
    return world


def test_a_session_that_asks_first_runs_only_after_a_yes_and_asks_again_for_the_next_wake() -> None:
    world = ask()
    world.rest()
    assert runs(world) == 0
    assert world.hold("s") == "may it run? woken by first: wakeful answer s yes, or no"
    assert world.call(calls.Answer(name="s", text="yes")) == "runs"
    world.rest()
    assert runs(world) == 1
    save(world, "2")
    world.rest()
    assert runs(world) == 1
    assert world.hold("s") is not None


@pytest.mark.parametrize("disturbance", ["nothing", "a crash", "a clock set back", "an activation"])
def test_a_question_that_nobody_answers_is_denied_when_its_time_is_over(disturbance: str) -> None:
    """Its causes are parked, as after a no. A newer change asks again."""
    world = World(session("s", read("in"), is_approved_first=True, ask_timeout_seconds=7200.0), files={"in": "1"})
    world.look()
    assert (
        world.hold("s") == "may it run? woken by first: wakeful answer s yes, or no; denied if nobody answers within 2h"
    )
    world.advance(3600)
    match disturbance:
        case "a crash":
            world.crash()
            world.look()
        case "a clock set back":
            world.jump(-86_400)
        case "an activation":
            world.call(calls.Activate(name="s"))
    assert world.hold("s") is not None and runs(world) == 0
    world.advance(3700)
    world.rest()
    assert world.hold("s") is None and runs(world) == 0
    withdrawn = next(entry.event for entry in reversed(world.log) if entry.kind == "wake_withdrawn")
    assert withdrawn.reason == "denied: nobody answered within 2h"
    save(world, "2")
    world.rest()
    assert world.hold("s") is not None and runs(world) == 0


def test_a_no_counts_what_was_asked_about_as_seen() -> None:
    world = ask()
    assert world.call(calls.Answer(name="s", text="No")) is not None
    world.rest()
    assert (runs(world), world.hold("s")) == (0, None)
    save(world, "2")
    assert world.hold("s") is not None


def test_a_yes_covers_the_tries_of_its_wake() -> None:
    world = World(session("s", read("in"), retries=2, is_approved_first=True), files={"in": "1"})
    world.look()
    world.call(calls.Answer(name="s", text="y"))
    world.rest(300.0, exit_code=lambda _: 1)
    assert runs(world) == 3


def test_a_question_about_what_was_undone_is_no_longer_asked() -> None:
    world = make(is_approved_first=True)
    world.call(calls.Answer(name="s", text="yes"))
    world.rest()
    save(world, "2")
    assert world.hold("s") is not None
    save(world, "1")
    assert world.hold("s") is None


@pytest.mark.parametrize("text", ["maybe", "", "yes please"])
def test_an_answer_that_is_neither_yes_nor_no_changes_nothing(text: str) -> None:
    world = ask()
    with pytest.raises(CallerError, match="answer yes or no"):
        world.call(calls.Answer(name="s", text=text))
    assert world.hold("s") is not None


def test_a_session_that_asks_nothing_takes_no_answer() -> None:
    with pytest.raises(CallerError, match="asks no question"):
        make().call(calls.Answer(name="s", text="yes"))


def test_nobody_is_asked_while_something_else_holds_the_run() -> None:
    world = World(
        session("first", read("in"), write("between")),
        session("s", read("between"), is_approved_first=True),
        files={"in": "1"},
    )
    world.look()
    assert "session_slept" not in kinds(world)
    world.rest()
    assert kinds(world).count("session_slept") == 1


# -- everything at once ---------------------------------------------------------------------------


def test_everything_sleeps_until_everything_is_resumed_and_nothing_is_lost() -> None:
    world = World(session("s", read("in")), session("t", read("in")), files={"in": "1"})
    world.rest()
    assert world.call(calls.SleepAll()) == "the brake is on for 2 sessions; `wakeful resume --all` releases it"
    assert world.call(calls.SleepAll()) == "the brake is on already"
    save(world, "2")
    world.rest()
    assert (runs(world), runs(world, "t")) == (1, 1)
    assert world.hold("s") == "brake: sleep --all by alice"
    world.crash()
    world.rest()
    assert (runs(world), runs(world, "t")) == (1, 1)
    assert world.call(calls.ResumeAll()) == "the brake is released: 2 sessions may go on"
    world.rest()
    assert (runs(world), runs(world, "t")) == (2, 2)
    assert world.call(calls.ResumeAll()) == "the brake is not on"


def test_a_run_under_way_is_stopped_and_owed_again() -> None:
    world = World(session("s", read("in")), files={"in": "1"})
    world.look()
    world.call(calls.SleepAll())
    (process,) = world.processes.values()
    assert process.stops == ["interrupt"]
    world.end("s", None, signal=2)
    world.rest()
    assert (runs(world), world.hold("s")) == (1, "brake: sleep --all by alice")
    world.call(calls.ResumeAll())
    world.rest()
    assert runs(world) == 2


def test_the_brake_holds_against_activations_and_for_sessions_that_come_later() -> None:
    world = make()
    world.call(calls.SleepAll())
    assert world.call(calls.Activate(name="s")) == "activated: it runs when `wakeful resume --all` releases the brake"
    world.declare(session("late", read("in")))
    world.rest()
    assert (runs(world), runs(world, "late")) == (1, 0)
    assert world.hold("late") == "brake: sleep --all by alice"
    world.call(calls.ResumeAll())
    world.rest()
    assert (runs(world), runs(world, "late")) == (2, 1)


def test_who_slept_before_sleeps_on_afterwards() -> None:
    world = make()
    world.call(calls.Sleep(name="s"))
    world.call(calls.SleepAll())
    world.call(calls.ResumeAll())
    save(world, "2")
    world.rest()
    assert (runs(world), world.hold("s")) == (1, "snoozed by alice")


def test_an_observer_may_not_put_everything_to_sleep() -> None:
    world = make(people={"bob": "observer"})
    with pytest.raises(CallerError, match="observer"):
        world.call(calls.SleepAll(), author="person:bob")
    assert world.hold("s") is None
