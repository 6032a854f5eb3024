"""The time that a harness takes for one turn of an agent: from a model's answer to its next request.

All harnesses speak with a scripted model that answers at once (scripted_model.py). Each turn reads a line of a small
file. Ours is the real daemon with a session whose work is a prompt. It takes all turns in one run, streaming, and each
step is flushed before the next. The peers take the first turns, and then some after a long history that is written for
them, because LangGraph alone would take half an hour to get there. The floor is the time of the same bytes, posted by
http.client: the wire and the model.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from place import TookTooLong, daemon, end, wait_until
from scripted_model import Exchange
from table import Bar, Row, print_table

SECTION = "one turn of an agent, without the model"
HISTORY = 2_000
# The number of turns in a window, at the beginning and at the end of a history.
WINDOW = 100
PEER_WINDOW = 20
SECONDS = 300.0
PAGE = "".join(f"line {number}\n" for number in range(1, HISTORY + WINDOW + 100))
PEERS = {
    "langgraph": "LangGraph + SqliteSaver, each step on disk before the next",
    "langgraph-async": "LangGraph + SqliteSaver, as it comes",
    "agents-sdk": "OpenAI Agents SDK + SQLiteSession",
}
NEEDED = ("agents", "langchain", "langchain_openai", "langgraph.checkpoint.sqlite")


@dataclass(frozen=True)
class Window:
    """Milliseconds of a turn: the median, the best tenth, and the floor of the same bytes."""

    whole: float
    best: float
    floor: float

    @property
    def own(self) -> float:
        return self.whole - self.floor


class ScriptedModel:
    """The process of scripted_model.py. `url` is the address of a client with its own name."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.port = int(process.stdout.readline())

    def url(self, who: str, how: str = "plain") -> str:
        return f"http://127.0.0.1:{self.port}/{how}/{who}/v1"

    def exchanges(self, who: str) -> list[Exchange]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        with contextlib.closing(connection):
            connection.request("GET", f"/{who}")
            return [Exchange(**one) for one in json.loads(connection.getresponse().read())]

    def measure(self, who: str, start: int, stop: int, how: str = "plain") -> Window:
        """Return the times between the answers of a window and the requests that follow them."""
        window = self.exchanges(who)[start : stop + 1]
        floor = f"{who}-floor-{start}"
        self._post([one.size for one in window], floor, how)
        gaps = _gaps(window)
        return Window(statistics.median(gaps), gaps[len(gaps) // 10], statistics.median(_gaps(self.exchanges(floor))))

    def _post(self, sizes: Sequence[int], who: str, how: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        with contextlib.closing(connection):
            for size in sizes:
                connection.request(
                    "POST", f"/{how}/{who}/v1/chat/completions", b"x" * size, {"content-type": "application/json"}
                )
                connection.getresponse().read()


def _gaps(exchanges: Sequence[Exchange]) -> list[float]:
    """Return the milliseconds from each answer to the next request, the shortest first."""
    return sorted((after.arrived - before.answered) * 1e3 for before, after in itertools.pairwise(exchanges))


@contextlib.contextmanager
def scripted_model(calls: int) -> Iterator[ScriptedModel]:
    program = [sys.executable, Path(__file__).with_name("scripted_model.py"), str(calls)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE)
    try:
        yield ScriptedModel(process)
    finally:
        end(process)


def measure_ours(folder: Path) -> tuple[Window, Window]:
    with scripted_model(HISTORY + WINDOW) as model, daemon(folder) as place:
        declare(place.folder, model.url("ours", "stream"))
        place.start()
        # Ask so seldom that it does not affect the figures.
        wait_until(lambda: len(model.exchanges("ours")) > HISTORY + WINDOW, SECONDS, "the agent's last turn", every=1.0)
        return model.measure("ours", 0, WINDOW, "stream"), model.measure("ours", HISTORY, HISTORY + WINDOW, "stream")


def declare(folder: Path, url: str) -> None:
    (folder / "page.md").write_text(PAGE)
    (folder / "sessions.d" / "agents").mkdir()
    (folder / "sessions.d" / "agents" / "reader.yaml").write_text(
        f"prompt: You keep page.md true.\nmodel: openai-compatible:bench\nbase_url: {url}\n"
        f"limits: {{turns: {HISTORY + 2 * WINDOW}}}\ncontext: {{tokens: 10000000}}\n"
    )
    (folder / "sessions.d" / "reading.yaml").write_text(
        "agent: reader\nbindings: {page: {file: page.md}}\nrun: {prompt: Read page.md from every line.}\n"
    )


def measure_peer(kind: str, folder: Path) -> tuple[Window, Window]:
    return _measure_peer_at(kind, folder / "short", 0, WINDOW), _measure_peer_at(
        kind, folder / "long", HISTORY, PEER_WINDOW
    )


def _measure_peer_at(kind: str, folder: Path, history: int, turns: int) -> Window:
    folder.mkdir()
    (folder / "page.md").write_text(PAGE)
    with scripted_model(turns) as model:
        program = [
            sys.executable,
            Path(__file__).with_name("peer_turns.py"),
            kind,
            model.url(kind),
            folder,
            str(history),
        ]
        run: Any = subprocess.run(program, capture_output=True, timeout=SECONDS, check=False)
        if run.returncode:
            raise TookTooLong(f"{kind} ended with {run.returncode}: {run.stderr.decode(errors='replace')[-500:]}")
        return model.measure(kind, 0, turns)


def measure() -> list[Row]:
    found: dict[str, tuple[Window, Window]] = {}
    with tempfile.TemporaryDirectory() as text:
        (ours := Path(text) / "ours").mkdir()
        found["wakeful"] = measure_ours(ours)
        has_peers = all(_is_there(name) for name in NEEDED)
        for kind, name in PEERS.items() if has_peers else ():
            (peer := Path(text) / kind).mkdir()
            found[name] = measure_peer(kind, peer)
    missing = (
        []
        if has_peers
        else [Row(SECTION, "beside the peers", None, "", note="not installed: pip install 'wakeful[bench]'")]
    )
    return [*_make_rows(found), *missing]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _make_rows(found: dict[str, tuple[Window, Window]]) -> list[Row]:
    peers = [late.own for name, (_, late) in found.items() if name != "wakeful"]
    rows = []
    for name, (early, late) in found.items():
        is_ours = name == "wakeful"
        rows += [
            Row(SECTION, f"{name}: turns 1 to {WINDOW}", early.own, "ms p50", note=_say_floor(early)),
            Row(
                SECTION,
                f"{name}: after {HISTORY:,} turns",
                late.own,
                "ms p50",
                Bar("<=", 10.0) if is_ours else None,
                _say_floor(late),
            ),
            Row(SECTION, f"{name}: after {HISTORY:,} beside the first", late.own / early.own, "x", note="flat is 1"),
        ]
    if peers:
        rows.append(
            Row(
                SECTION,
                f"the better peer beside wakeful, after {HISTORY:,} turns",
                min(peers) / found["wakeful"][1].own,
                "x",
                Bar(">=", 1.0),
            )
        )
    return rows


def _say_floor(window: Window) -> str:
    return (
        f"best tenth {window.best - window.floor:.2f}; the wire and the model, left out here, take {window.floor:.2f}"
    )


if __name__ == "__main__":
    print_table(measure())
