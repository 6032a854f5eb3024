"""Random requests to every route of a real daemon.

Each is answered, or refused with a message. None causes an error of the daemon, and no GET changes anything.
"""

from __future__ import annotations

import json
import random
from urllib.parse import quote

import pytest

from api.conftest import Speaker
from e2e.box import Box
from wakeful.api.app import ROUTES

SEED = 49
REQUESTS = 2_000
WORDS = (
    "talk",
    "name",
    "text",
    "key",
    "value",
    "seq",
    "at",
    "run",
    "since",
    "kind",
    "path",
    "to",
    "session",
    "files",
    "reason",
    "all",
    "dry_run",
    "",
)
VALUES = (
    "",
    "talk",
    "0",
    "-1",
    "1e999",
    "9" * 40,
    "../../etc/passwd",
    "\x00",
    "null",
    "true",
    "2026-01-01T00:00:00Z",
    "\ud7ff\U0010ffff",
    "x" * 3_000,
    "talk@-5",
    "' OR 1=1 --",
    "%s%n",
)
VERBS = (
    "note",
    "remember",
    "send",
    "sleep",
    "resume",
    "activate",
    "fork",
    "rewind",
    "rename",
    "merge",
    "erase",
    "cancel",
    "open",
    "attach",
    "nothing",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW")
# These routes go on answering as long as the client listens.
ENDLESS = ("/follow", "/live", "/sessions/{name}/output")


class Fuzz:
    """Makes random requests.

    Every choice comes from one seed, so that a request that finds a defect can be repeated.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def make_value(self, depth: int = 0) -> object:
        kinds = ["text", "text", "number", "nothing"] + (["list", "object"] if depth < 4 else [])
        match self.rng.choice(kinds):
            case "text":
                return self.rng.choice(VALUES)
            case "number":
                return self.rng.choice((0, -1, 1, 2**63, 2**70, 0.5, -0.0, True))
            case "list":
                return [self.make_value(depth + 1) for _ in range(self.rng.randint(0, 3))]
            case "object":
                return {self.rng.choice(WORDS): self.make_value(depth + 1) for _ in range(self.rng.randint(0, 4))}
        return None

    def make_target(self, path: str) -> str:
        name = self.rng.choice(("talk", *VALUES))
        filled = path.replace("{name}", quote(name, safe="")).replace("{verb}", self.rng.choice(VERBS))
        asked = "&".join(
            f"{quote(self.rng.choice(WORDS), safe='')}={quote(self.rng.choice(VALUES), safe='')}"
            for _ in range(self.rng.randint(0, 4))
        )
        return f"{filled}?{asked}" if asked else filled

    def make_body(self) -> bytes:
        match self.rng.choice(("known", "known", "any", "garbage", "none")):
            case "known":
                return json.dumps(
                    {"name": "talk", **{self.rng.choice(WORDS): self.make_value() for _ in range(3)}}
                ).encode()
            case "any":
                return json.dumps(self.make_value()).encode()
            case "garbage":
                return self.rng.randbytes(self.rng.randint(1, 200))
        return b""

    def make_request(self) -> tuple[str, str, bytes]:
        route = self.rng.choice([route for route in ROUTES if route.path not in ENDLESS])
        fitting = sorted((route.methods or {"GET"}) - {"HEAD"})[0]
        method = self.rng.choice((fitting, fitting, fitting, self.rng.choice(METHODS)))
        return method, self.make_target(route.path), self.make_body()


def count_records(box: Box) -> int:
    return sum(len(box.log(row["name"])) for row in box.rows())


@pytest.mark.faults
def test_no_request_finds_a_defect_and_no_get_changes_anything(box: Box) -> None:
    """Every refusal is a 4xx with a message. The log is intact afterwards."""
    box.spec("talk", "objective: A place to talk.\n")
    box.spec("work", "objective: Work.\nbindings: {i: {file: in.txt}}\nrun: {command: ['true']}\n")
    box.start()
    box.wait_at_rest("work", runs=1)
    fuzz, speaker = Fuzz(SEED), Speaker(box.socket)
    statuses: dict[int, int] = {}
    for number in range(REQUESTS):
        method, target, body = fuzz.make_request()
        # There is no limit on the time of one reply, because a replay or a preview may take long. Endless routes are
        # left out.
        reply = speaker.ask(method, target, body)
        statuses[reply.status] = statuses.get(reply.status, 0) + 1
        assert reply.status < 500, (
            f"seed {SEED}, request {number}: {method} {target} {body!r}: {reply.status} {reply.body[:500]!r}"
        )
        assert reply.status < 400 or method == "HEAD" or reply.error, f"request {number}: {method} {target}: no words"
    assert statuses.get(200, 0) > REQUESTS / 50 and statuses.get(400, 0) > REQUESTS / 50
    before = count_records(box)
    for route in ROUTES:
        if "GET" in (route.methods or ()) and route.path not in ENDLESS:
            for _ in range(20):
                assert speaker.ask("GET", fuzz.make_target(route.path)).status < 500
    assert count_records(box) == before
    assert "Traceback" not in box.output.read_text()
    assert box.stop() == 0
    assert "all sound" in box.words("verify", "--state", str(box.state))
