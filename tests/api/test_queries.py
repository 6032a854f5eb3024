"""Answers to questions over the socket: sessions, records, facts, output, reasons. No question changes anything."""

import json
import re
from typing import get_args, get_type_hints

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads, writes
from wait_conditions import eventually
from wakeful.api.contract import PathVerdict
from wakeful.core.calls.call_types import Note
from wakeful.core.looking.path_reports import CannotTell, Excluded, Found, NearlyMatched, NotYetLooked
from wakeful.core.record.events import SpecDeclared
from wakeful.core.record.observations import PathChange
from wakeful.core.spec.session import CommandRun
from wakeful.eventlog.codec import KINDS
from wakeful.verbs.table import VERBS
from wakeful.verbs.verb import Route, Shape, Verb
from wakeful.views.records import TIMED

PAYROLL = declare(
    "payroll", reads("salaries", "salaries.csv"), writes("result", "out.csv"), agent=None, objective="Pay.", priority=80
)
FILING = declare("hr/filing", reads("result", "out.csv"), writes("form", "form.txt"))
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def find_shape(verb: Verb, route: Route) -> Shape:
    return verb.shape if route.shape is None else route.shape


@pytest.fixture
def rested(daemon: RunningDaemon) -> RunningDaemon:
    """Declare payroll and hr/filing, and let each run once."""
    daemon.do(lambda d: d.declare(PAYROLL, FILING))
    daemon.do(lambda d: d.finish("payroll", output=b"paid\n"))
    daemon.do(lambda d: d.finish("hr/filing"))
    return daemon


def test_rows_have_the_keys_of_the_contract_in_its_order(rested: RunningDaemon, speaker: Speaker) -> None:
    """`list --json` is a stable interface. Other programs read it by these keys."""
    rows = speaker.get("/sessions").json
    assert [row["name"] for row in rows] == ["hr/filing", "payroll"]
    keys = ["name", "id", "state", "reason", "agent", "priority", "queued", "owed", "runs", "last_run"]
    assert all(list(row)[: len(keys)] == keys for row in rows)
    # Newer keys follow these, in the order of the table of verbs.
    assert all(list(row) == [field.name for field in VERBS["list"].answer if not field.is_optional] for row in rows)
    assert list(rows[1]["last_run"]) == ["run", "outcome", "started_at", "finished_at", "causes"]
    assert (
        rows[1]["state"] == "suspended"
        and rows[1]["reason"] is None
        and rows[1]["queued"] is None
        and rows[1]["owed"] == []
    )
    assert rows[1]["last_run"]["outcome"] == "succeeded"
    assert RFC3339.fullmatch(rows[1]["last_run"]["finished_at"])
    assert [cause["binding"] for cause in rows[1]["last_run"]["causes"]] == ["first"]


# The query of each request that needs more than the name of a session.
QUERIES = {
    "GET /search": ["text=EUR"],
    "GET /why": ["x=payroll"],
    "GET /diff": ["a=payroll@2&b=payroll"],
    "GET /plan": ["", "path=/project/salaries.csv"],
}
# Streams, and reads for which the small daemon has no process, no secrets, no agent, no notifier, no token or no trace.
READ_ELSEWHERE = {
    "GET /follow", "GET /live", "GET /top", "GET /metrics", "GET /secrets", "GET /sessions/{name}/context",
    "GET /sessions/{name}/trace", "GET /trust/{name}", "GET /tokens", "GET /notify",
}  # fmt: skip
# All other reads of the table of verbs, so that a new verb is included: the verb, its route and the address.
READS = [
    (verb, route, route.path.replace("{name}", "payroll") + (f"?{query}" if query else ""))
    for verb in VERBS.values()
    for route in verb.routes
    if route.method == "GET" and route.key not in READ_ELSEWHERE
    for query in QUERIES.get(route.key, [""])
]


@pytest.mark.parametrize(("verb", "route", "target"), [one for one in READS if find_shape(*one[:2]) != "bytes"])
def test_an_answer_has_the_fields_that_the_table_of_verbs_tells(
    rested: RunningDaemon, speaker: Speaker, verb: Verb, route: Route, target: str
) -> None:
    """The fields come in the order of the table. Only a field that the table calls optional may be absent."""
    speaker.call("remember", name="payroll", **{"key": "currency", "value": "EUR"})
    shape, told = find_shape(verb, route), verb.answer if route.gives is None else route.gives
    reply = speaker.get(target)
    found = reply.lines if shape == "lines" else reply.json if shape == "list" else [reply.json]
    assert found
    for document in found:
        assert list(document) == [field.name for field in told if field.name in document or not field.is_optional]


def test_brief_rows_are_what_a_table_needs(rested: RunningDaemon, speaker: Speaker) -> None:
    """The table of `list` does not need causes, so brief rows leave them out."""
    speaker.call("sleep", name="payroll", words="lunch")
    found = speaker.get("/sessions?brief=true").json
    brief = found["sessions"]
    assert found["refused"] == {}
    assert [row[:4] for row in brief] == [
        ["hr/filing", "suspended", 1, "succeeded"],
        ["payroll", "sleeping", 1, "succeeded"],
    ]
    assert [row[5] for row in brief] == ["", "lunch"]


def test_rows_that_are_kept_never_outlive_their_session(rested: RunningDaemon, speaker: Speaker) -> None:
    """Cached rows of the list are replaced after every change."""
    for words in ("lunch", "tea"):
        assert speaker.get("/sessions").json[1]["state"] == "suspended"
        speaker.call("sleep", name="payroll", words=words)
        assert speaker.get("/sessions").json[1]["reason"] == words
        speaker.call("resume", name="payroll")
    rested.do(lambda d: d.change("salaries.csv", "b" * 32))
    assert speaker.get("/sessions").json[1]["state"] == "running"
    rested.do(lambda d: d.finish("payroll"))
    assert speaker.get("/sessions").json[1]["runs"] == 2


def test_a_running_session_says_so_and_has_no_last_run_before_its_first_end(
    daemon: RunningDaemon, speaker: Speaker
) -> None:
    """`last_run` is null before the first run has ended."""
    daemon.do(lambda d: d.declare(PAYROLL, FILING))
    filing, payroll = speaker.get("/sessions").json
    assert (payroll["state"], payroll["runs"], payroll["last_run"]) == ("running", 1, None)
    assert filing["state"] == "suspended"
    assert filing["queued"] == "upstream payroll is running"


def test_the_paths_that_changed_are_in_the_causes(rested: RunningDaemon, speaker: Speaker) -> None:
    """A cause has the keys that specs.md promises: binding, kind, old, new, paths, delta, commits, at."""
    rested.do(lambda d: d.change("salaries.csv", "b" * 32, PathChange("salaries.csv", "1", "2")))
    rested.do(lambda d: d.finish("payroll"))
    (cause,) = speaker.get("/sessions").json[1]["last_run"]["causes"]
    assert cause["binding"] == "salaries" and cause["kind"] == "file"
    assert cause["paths"] == [{"path": "salaries.csv", "change": "modified"}]
    assert (cause["old"], cause["new"], cause["delta"]) == ("a" * 32, "b" * 32, "known")
    assert RFC3339.fullmatch(cause["at"])


def test_a_failed_session_sleeps_with_its_words(daemon: RunningDaemon, speaker: Speaker) -> None:
    """A hold always has words. They are the reason that `list` shows."""
    daemon.do(lambda d: d.declare(PAYROLL))
    daemon.do(lambda d: d.finish("payroll", exit_code=3))
    (row,) = speaker.get("/sessions").json
    assert row["state"] == "sleeping"
    assert "failed" in row["reason"]


def test_show_has_bindings_neighbours_runs_and_what_is_kept(rested: RunningDaemon, speaker: Speaker) -> None:
    """One answer has everything that a person asks about a session."""
    speaker.call("remember", name="payroll", key="currency", value="CNY")
    speaker.call("note", name="payroll", text="done until March")
    rested.small.wrong = {"payroll": "payroll.yaml:1:1: broken"}
    found = speaker.get("/sessions/payroll").json
    salaries = next(one for one in found["bindings"] if one["name"] == "salaries")
    assert salaries["version"] == salaries["seen"] == salaries["good"] == "a" * 32
    assert (
        salaries["owed"] is False
        and salaries["watched"] == "watched by events"
        and RFC3339.fullmatch(salaries["looked_at"])
    )
    assert found["readers"] == ["hr/filing"] and found["upstream"] == []
    assert [run["outcome"] for run in found["last_runs"]] == ["succeeded"]
    assert found["facts"][0]["key"] == "currency" and found["handoff"] == "done until March"
    assert found["problem"] == "payroll.yaml:1:1: broken"


@pytest.mark.parametrize(
    "route",
    [
        "/sessions/words",
        "/sessions/words/log",
        "/sessions/words/output",
        "/follow?name=words",
        "/why?x=words&path=/words",
    ],
)
def test_a_refused_spec_is_answered_with_its_problem(rested: RunningDaemon, speaker: Speaker, route: str) -> None:
    """The spec made no session, so the answer has its problems instead, all in one line."""
    rested.small.wrong = {"words": "sessions.d/words.yaml:5:34: unknown key 'acces'\nsessions.d/words.yaml:6:1: no run"}
    answer = speaker.get(route)
    assert answer.status == 404
    assert (
        answer.error
        == "words is refused: sessions.d/words.yaml:5:34: unknown key 'acces'; and sessions.d/words.yaml:6:1: no run"
    )


def test_a_call_to_a_refused_spec_says_why_there_is_no_session(rested: RunningDaemon, speaker: Speaker) -> None:
    """Calls give the same error as questions. A session whose newer spec is refused accepts calls as before."""
    rested.small.wrong = {"words": "words.yaml:1:1: broken", "payroll": "payroll.yaml:1:1: broken"}
    assert speaker.call("activate", name="words").error.startswith("words is refused: words.yaml:1:1: broken")
    assert speaker.call("note", name="payroll", text="hi").status == 200
    assert speaker.get("/why?x=payroll").status == 200


def test_show_at_a_seq_is_the_fold_of_the_log_up_to_it(rested: RunningDaemon, speaker: Speaker) -> None:
    """The past state is computed from the log, not from memory."""
    records = speaker.get("/sessions/payroll/log").lines
    started = next(record["seq"] for record in records if record["kind"] == "run_started")
    then = speaker.get(f"/sessions/payroll?at={started}").json
    assert (then["state"], then["seq"], then["last_run"]) == ("running", started, None)
    assert speaker.get("/sessions/payroll?at=1").json["state"] == "sleeping"
    refused = speaker.get("/sessions/payroll?at=999")
    assert refused.status == 400 and "999" in refused.error


def test_log_lines_have_exactly_the_keys_of_the_contract(rested: RunningDaemon, speaker: Speaker) -> None:
    """`log --json` is a stable interface. Its records have no gap from seq 1 on."""
    lines = speaker.get("/sessions/payroll/log").lines
    assert all(list(line) == ["seq", "at", "kind", "author", "run", "payload", "hash"] for line in lines)
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["kind"] == "session_opened" and lines[0]["payload"]["name"] == "payroll"
    assert all(re.fullmatch("[0-9a-f]{64}", line["hash"]) and RFC3339.fullmatch(line["at"]) for line in lines)


def test_log_is_sliced_by_seq_time_kind_run_author_and_from_its_end(rested: RunningDaemon, speaker: Speaker) -> None:
    """Each bound is inclusive, and bounds can be combined."""
    lines = speaker.get("/sessions/payroll/log").lines
    assert [line["seq"] for line in speaker.get("/sessions/payroll/log?from=2&to=3").lines] == [2, 3]
    assert [line["seq"] for line in speaker.get("/sessions/payroll/log?last=2").lines] == [
        line["seq"] for line in lines[-2:]
    ]
    assert {line["kind"] for line in speaker.get("/sessions/payroll/log?kind=run_started&kind=run_finished").lines} == {
        "run_started",
        "run_finished",
    }
    assert speaker.get(f"/sessions/payroll/log?since={lines[-1]['at']}").lines[-1] == lines[-1]
    assert speaker.get("/sessions/payroll/log?until=1990-01-01T00:00:00Z").lines == []
    assert all(line["run"] == 1 for line in speaker.get("/sessions/payroll/log?run=1").lines)
    assert speaker.get("/sessions/payroll/log?author=nobody").lines == []


def test_a_long_log_is_streamed_whole(daemon: RunningDaemon, speaker: Speaker) -> None:
    """The daemon reads the log in pages. The client sees one stream without gaps."""
    daemon.do(lambda d: d.declare(PAYROLL))

    async def write_many(small: SmallDaemon) -> None:
        for number in range(1200):
            await small.call(Note(name="payroll", text=f"note {number}"), author="person:test", key=None, run=None)

    daemon.do(write_many)
    seqs = [line["seq"] for line in speaker.get("/sessions/payroll/log").lines]
    assert seqs == list(range(1, len(seqs) + 1)) and len(seqs) > 1200


@pytest.mark.parametrize(
    "query", ["from=x", "from=-1", "since=yesterday", "since=2026-01-01T00:00:00", "last=1e9", "to=" + "9" * 40]
)
def test_bounds_that_are_none_are_refused_in_words(rested: RunningDaemon, speaker: Speaker, query: str) -> None:
    """A wrong number or time is answered with an error, never with an empty list."""
    reply = speaker.get(f"/sessions/payroll/log?{query}")
    assert reply.status == 400 and ("expected" in reply.error or "time zone" in reply.error)


def test_names_with_slashes_are_one_segment(rested: RunningDaemon, speaker: Speaker) -> None:
    """The name is one encoded segment, so a session called x/log cannot be mistaken for the log of x."""
    assert speaker.get("/sessions/hr%2Ffiling").json["name"] == "hr/filing"
    assert speaker.get("/sessions/hr%2Ffiling/log").lines[0]["payload"]["name"] == "hr/filing"
    assert speaker.get("/sessions/hr/filing").status == 404


def test_an_unknown_name_is_404_with_words(rested: RunningDaemon, speaker: Speaker) -> None:
    """The error names the command that lists the sessions."""
    reply = speaker.get("/sessions/payrol")
    assert reply.status == 404 and "wakeful list" in reply.error


def test_output_is_given_as_it_was_with_its_true_length(rested: RunningDaemon, speaker: Speaker) -> None:
    """The headers tell how much of the output is kept and its true length."""
    session = rested.small.core.state.by_name("payroll")
    rested.small.kept[(session.id, 1)] = (b"head\x1b[31m", b"tail\xff", 1000)
    reply = speaker.get("/sessions/payroll/output?run=1")
    assert reply.body == b"head\x1b[31mtail\xff"
    assert (reply.headers["wakeful-head"], reply.headers["wakeful-total"], reply.headers["wakeful-run"]) == (
        "9",
        "1000",
        "1",
    )
    assert speaker.get("/sessions/payroll/output?run=77").status == 400


def test_output_of_a_run_under_way_is_what_came_so_far(daemon: RunningDaemon, speaker: Speaker) -> None:
    """The answer has the output so far. It does not wait for the run's end."""
    daemon.do(lambda d: d.declare(PAYROLL))
    daemon.small.live_output = [b"one ", b"two"]
    assert speaker.get("/sessions/payroll/output").body == b"one two"


def test_output_is_searched_by_the_daemon_and_each_line_has_its_number(rested: RunningDaemon, speaker: Speaker) -> None:
    """Case and colours do not matter. The gap counts as one line, so line numbers equal those of `wakeful output`."""
    session = rested.small.core.state.by_name("payroll")
    head = "one\nTax \x1b[31mRa\x1b[0mte: 3\nüber TAX\ncut of".encode()
    rested.small.kept[(session.id, 1)] = (head, b"fice\nthe tax rate\xff\ntax", 1000)
    found = speaker.get("/sessions/payroll/output?find=tax%20rate")
    assert found.body == b"2:Tax \x1b[31mRa\x1b[0mte: 3\n7:the tax rate\xff\n"
    told = [found.headers[f"wakeful-{word}"] for word in ("run", "found", "gap", "total")]
    assert told == ["1", "2", "5", "1000"]
    assert speaker.get("/sessions/payroll/output?find=%C3%9CBER").body == "3:über TAX\n".encode()
    # A match does not span the gap. The line for the gap can itself be found.
    assert speaker.get("/sessions/payroll/output?find=office").body == b""
    assert speaker.get("/sessions/payroll/output?run=1&find=not+kept").body.startswith(b"5:[not kept: ")
    assert speaker.get("/sessions/payroll/output?find=tax").body.endswith(b"\n8:tax\n")
    for query in ("find=", "find=a%0Ab", "find=a&follow=true"):
        refused = speaker.get(f"/sessions/payroll/output?{query}")
        assert refused.status == 400 and "find" in refused.error, query


def test_a_search_that_finds_too_much_is_cut_and_counted(rested: RunningDaemon, speaker: Speaker) -> None:
    """A million lines match, and the answer has the first thousand and the count."""
    session = rested.small.core.state.by_name("payroll")
    output = b"y\n" * 1_000_000
    rested.small.kept[(session.id, 1)] = (output, b"", len(output))
    found = speaker.get("/sessions/payroll/output?find=Y")
    assert found.headers["wakeful-found"] == "1000000" and "wakeful-gap" not in found.headers
    assert found.body.split(b"\n")[-2:] == [b"1000:y", b""]


def test_the_output_of_a_run_under_way_is_searched_as_it_stands(daemon: RunningDaemon, speaker: Speaker) -> None:
    daemon.do(lambda d: d.declare(PAYROLL))
    daemon.small.live_output = [b"one\ntw", b"o\nthree"]
    assert speaker.get("/sessions/payroll/output?find=T").body == b"2:two\n3:three\n"


def test_follow_tells_records_as_they_become_durable_and_forgets_who_left(
    rested: RunningDaemon, speaker: Speaker
) -> None:
    """A closed follower is no longer a listener."""
    connection, answer = speaker.stream("/follow?name=payroll")
    speaker.call("note", name="hr/filing", text="not followed")
    speaker.call("note", name="payroll", text="hello")
    line = json.loads(answer.readline())
    assert (line["session"], line["kind"], line["payload"]) == ("payroll", "note_added", {"text": "hello"})
    answer.close()
    connection.close()
    eventually(lambda: rested.small.listeners == 0)


def numbers_that_could_be_moments(value: object) -> list[int]:
    """Return all numbers that are as large as microseconds since 1970 in our century."""
    match value:
        case dict():
            return [found for one in value.values() for found in numbers_that_could_be_moments(one)]
        case list():
            return [found for one in value for found in numbers_that_could_be_moments(one)]
        case int():
            return [value] if value > 10**14 else []
        case _:
            return []


def test_times_inside_payloads_are_rfc_3339_and_stay_numbers_in_the_log(
    daemon: RunningDaemon, speaker: Speaker
) -> None:
    """Times in causes, holds and retries are shown as text, by `log` and `follow` alike.
    The stored records keep numbers."""
    daemon.do(
        lambda d: d.declare(
            declare("payroll", reads("salaries", "salaries.csv"), run=CommandRun(argv=("true",), retries=2))
        )
    )
    connection, following = speaker.stream("/follow?name=payroll")
    daemon.do(lambda d: d.finish("payroll", exit_code=1))
    speaker.call("sleep", name="payroll", until=4_000_000_000_000_000)
    followed = [json.loads(following.readline()) for _ in range(2)]
    following.close()
    connection.close()
    daemon.do(lambda d: d.change("salaries.csv", "b" * 32, PathChange("salaries.csv", "1", "2")))
    lines = speaker.get("/sessions/payroll/log").lines
    payloads = {line["kind"]: line["payload"] for line in lines}
    assert numbers_that_could_be_moments([line["payload"] for line in [*lines, *followed]]) == []
    assert RFC3339.fullmatch(payloads["run_finished"]["retry_at"])
    assert payloads["session_slept"]["hold"]["until"] == "2096-10-02T07:06:40.000000Z"
    causes = [cause for kind in ("wake_requested", "run_started") for cause in payloads[kind]["causes"]]
    assert causes and all(RFC3339.fullmatch(cause["at"]) for cause in causes)
    assert followed[0] in [{"session": "payroll", **line} for line in lines]
    session = daemon.small.core.state.by_name("payroll")
    stored = [record.payload for record in daemon.small.log.read(session.id, kinds=("session_slept",))]
    assert json.loads(stored[0] or b"")["hold"]["until"] == 4_000_000_000_000_000


def test_every_field_of_an_event_that_is_a_moment_is_shown_as_one() -> None:
    """A new kind of record with a time must be added to TIMED, the kinds that are translated."""
    moments = {"at", "until", "retry_at", "periods"}

    def names(kind: object, above: tuple[object, ...] = ()) -> set[str]:
        # An agent spec contains agents: its sub-agents.
        fields = getattr(kind, "__struct_fields__", ()) if kind not in above else ()
        below = (
            (names(one, (*above, kind)) for hint in get_type_hints(kind).values() for one in (hint, *get_args(hint)))
            if fields
            else ()
        )
        return set(fields).union(*below)

    # SpecDeclared is left out: an `until` or `at` in a spec is the author's text, not a time of ours.
    timed = {word for kind, word in KINDS.items() if names(kind) & moments and kind is not SpecDeclared}
    assert timed == set(TIMED)


def test_the_output_of_a_run_that_never_was_is_no_empty_output(rested: RunningDaemon, speaker: Speaker) -> None:
    """A number beyond the last run, and a session that never ran, get an error each."""
    assert speaker.get("/sessions/payroll/output?run=99").error == "payroll has no run 99; it has run once"
    rested.do(lambda d: d.change("salaries.csv", "b" * 32))
    rested.do(lambda d: d.finish("payroll"))
    assert speaker.get("/sessions/payroll/output?run=99").error == "payroll has no run 99; its runs are 1 to 2"
    assert speaker.get("/sessions/payroll/output?run=2").status == 200
    rested.do(lambda d: d.declare(declare("idle", enabled=False)))
    assert speaker.get("/sessions/idle/output?run=1").error == "idle has not run yet"


def test_why_a_session_does_not_run(daemon: RunningDaemon, speaker: Speaker) -> None:
    """The words come from the same verdict by which dispatch decides."""
    daemon.do(lambda d: d.declare(PAYROLL, FILING))
    found = speaker.get("/why?x=hr/filing&path=/nowhere").json
    assert found["about"] == "session"
    assert any("upstream payroll is running" in sentence for sentence in found["words"])


def test_why_an_output_names_the_run_its_causes_and_drift(rested: RunningDaemon, speaker: Speaker) -> None:
    """For an output, the answer names the run that wrote it, the causes of that run, and any later change by others."""
    rested.do(lambda d: d.change("salaries.csv", "b" * 32, PathChange("salaries.csv", "1", "2")))
    rested.do(lambda d: d.change("out.csv", "c" * 32))
    rested.do(lambda d: d.finish("payroll"))
    words = " ".join(speaker.get("/why?x=out.csv&path=/project/out.csv").json["words"])
    assert "Run 2 left it as cccccccccccc" in words and "salaries.csv modified" in words
    rested.do(lambda d: d.change("out.csv", "d" * 32))
    found = speaker.get("/why?x=out.csv&path=/project/out.csv").json
    assert found["outputs"][0]["drift"] is True and found["outputs"][0]["run"]["run"] == 2


def test_why_an_input_names_its_readers_and_its_last_change(rested: RunningDaemon, speaker: Speaker) -> None:
    """For an input, the answer names the sessions that match it, the last look and what it found."""
    rested.do(lambda d: d.change("salaries.csv", "b" * 32, PathChange("salaries.csv", "1", "2")))
    found = speaker.get("/why?x=salaries.csv&path=/project/salaries.csv").json
    assert found["inputs"][0]["session"] == "payroll" and found["inputs"][0]["looked_at"]
    assert found["last_change"]["change"] == "modified"


def test_why_has_one_way_to_tell_a_moment_and_a_version(rested: RunningDaemon, speaker: Speaker) -> None:
    """Digests have the same text in both places. Times have the same format, to the second."""
    meanings = {
        "result": Found(is_there=True),
        "gone": Found(is_there=False),
        "other": Excluded("*.csv"),
        "closed": CannotTell("/project/out.csv: Permission denied"),
        "new": NotYetLooked(),
        "near": NearlyMatched("*.tsv", "has the extension .tsv, not .csv"),
    }
    rested.small.explain_path = lambda path: [  # type: ignore[method-assign]
        PathVerdict("payroll", name, meaning, 1_700_000_000_000_000) for name, meaning in meanings.items()
    ]
    rested.do(lambda d: d.change("out.csv", "c" * 32, PathChange("out.csv", "1", "2")))
    words = speaker.get("/why?x=out.csv&path=/project/out.csv").json["words"]
    assert "payroll, result: matches; looked at 2023-11-14T22:13:20Z: its binding is at cccccccccccc" in words
    assert "payroll, gone: matches; looked at 2023-11-14T22:13:20Z: nothing there" in words
    assert "payroll, other: excluded by *.csv" in words
    assert "payroll, closed: matches; looked at 2023-11-14T22:13:20Z: /project/out.csv: Permission denied" in words
    assert "payroll, new: matches; not yet looked at" in words
    assert "payroll, near: nearly matches *.tsv: has the extension .tsv, not .csv" in words
    told = " ".join(words)
    assert "it is cccccccccccc now" in told and "was last found modified at 20" in told
    assert len(re.findall(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told)) == len(re.findall(r"\d{4}-\d\d-\d\d", told)) == 5


def test_why_something_nobody_knows_is_refused_or_said(rested: RunningDaemon, speaker: Speaker) -> None:
    """The answer is an error or words, never silence."""
    assert speaker.get("/why?x=nothing").status == 400
    assert "No binding" in speaker.get("/why?x=nothing&path=/nothing").json["words"][0]
    state = rested.small.places.state
    assert "state folder of wakeful" in speaker.get(f"/why?x=nothing&path={state}/cache.db").json["words"][0]


def test_plan_tells_the_waves_a_change_would_start(rested: RunningDaemon, speaker: Speaker) -> None:
    """The waves follow the graph. Each session is in the wave after the last of its upstreams."""
    found = speaker.get("/plan?path=/project/salaries.csv&path=/project/unbound").json
    assert [[entry["session"] for entry in wave] for wave in found["waves"]] == [["payroll"], ["hr/filing"]]
    assert found["unmatched"] == ["/project/unbound"] and ".git" in found["default_excludes"]
    assert speaker.get("/plan?path=relative").status == 400


def test_plan_without_a_path_tells_what_is_owed_and_queued_now(daemon: RunningDaemon, speaker: Speaker) -> None:
    """Running sessions come first, then the sessions that wait for them."""
    daemon.do(lambda d: d.declare(PAYROLL, FILING))
    now = speaker.get("/plan").json["now"]
    assert [(entry["session"], entry["run"], entry["wave"]) for entry in now] == [
        ("payroll", 1, 1),
        ("hr/filing", None, 2),
    ]
    assert now[1]["queued"] == "upstream payroll is running"


def test_reading_everything_records_nothing(rested: RunningDaemon, speaker: Speaker) -> None:
    """A GET of any read leaves the log unchanged."""
    speaker.call("remember", name="payroll", key="currency", value="EUR")
    before = rested.small.log.position()
    for target in ("/version", "/openapi.json", "/me", *(target for _, _, target in READS)):
        assert speaker.get(target).status == 200, target
    assert rested.small.log.position() == before
