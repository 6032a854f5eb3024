"""`/timeline` and `/graph` over the wire: runs as bars, other records as marks, and files that join sessions."""

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads, writes
from wakeful.core.calls.call_types import Activate


def live(daemon: RunningDaemon) -> None:
    """Declare a (reads a.csv, writes b.csv) and b (reads b.csv). Session a runs twice, and its second run fails."""

    async def go(small: SmallDaemon) -> None:
        await small.declare(
            declare("a", reads("in", "a.csv"), writes("out", "b.csv"), agent="hr"), declare("b", reads("in", "b.csv"))
        )
        await small.finish("a")
        await small.finish("b")
        await small.call(Activate(name="a"), author="person:ada", key=None, run=None)
        await small.finish("a", exit_code=1)

    daemon.do(go)


def test_every_run_is_a_bar_with_its_cause_and_outcome(daemon: RunningDaemon, speaker: Speaker) -> None:
    live(daemon)
    found = speaker.get("/timeline").json
    assert [(run["session"], run["run"], run["outcome"]) for run in found["runs"]] == [
        ("a", 1, "succeeded"), ("b", 1, "succeeded"), ("a", 2, "failed"),
    ]  # fmt: skip
    assert found["runs"][0]["seconds"] == 1.5 and "first" in found["runs"][0]["causes"] and not found["is_cut"]
    assert [run["session"] for run in speaker.get("/timeline?name=b").json["runs"]] == ["b"]
    assert speaker.get("/timeline?limit=1").json["is_cut"]
    assert speaker.get("/timeline?until=2020-01-01T00:00:00Z").json["runs"] == []


def test_what_was_recorded_since_is_added_to_the_timeline(daemon: RunningDaemon, speaker: Speaker) -> None:
    live(daemon)
    before = len(speaker.get("/timeline").json["runs"])

    async def again(small: SmallDaemon) -> None:
        await small.call(Activate(name="b"), author="person:ada", key=None, run=None)

    daemon.do(again)
    runs = speaker.get("/timeline").json["runs"]
    assert len(runs) == before + 1 and runs[-1]["outcome"] is None and runs[-1]["finished_at"] is None


def test_the_graph_joins_a_writer_to_its_reader_through_the_file(daemon: RunningDaemon, speaker: Speaker) -> None:
    live(daemon)
    found = speaker.get("/graph").json
    middle = next(node["id"] for node in found["nodes"] if node["label"] == "b.csv")
    edges = {(edge["from"], edge["to"]) for edge in found["edges"]}
    assert {("session:a", middle), (middle, "session:b")} <= edges
    near = speaker.get("/graph?focus=b&depth=1").json
    assert near["focus"] == "session:b" and {node["id"] for node in near["nodes"]} == {"session:b", middle}
    assert near["all_nodes"] == len(found["nodes"])
    assert speaker.get("/graph?focus=nobody").status == 400


def test_a_file_that_only_a_pattern_names_is_a_focus_too(daemon: RunningDaemon, speaker: Speaker) -> None:
    async def go(small: SmallDaemon) -> None:
        await small.declare(declare("sums", reads("in", "data/*.csv")), declare("other", reads("in", "notes.md")))

    daemon.do(go)
    pattern = next(node for node in speaker.get("/graph").json["nodes"] if node["label"] == "data/*.csv")
    for focus in (pattern["what"].replace("*", "march"), pattern["label"]):
        near = speaker.get(f"/graph?focus={focus}&depth=1").json
        assert {node["id"] for node in near["nodes"]} == {pattern["id"], "session:sums"}
