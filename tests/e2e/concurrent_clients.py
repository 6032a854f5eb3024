"""Clients of a daemon as processes of their own: `python concurrent_clients.py WHAT SOCKET WHO COUNT`.

test_races.py starts many of them at once.
"""

from __future__ import annotations

import sys
import time

from wakeful.cli.client import Client
from wakeful.client.refusals import DaemonAway

PATIENCE_SECONDS = 60.0


def write_much(client: Client, who: str, count: int) -> None:
    """Send messages, notes and facts with keys. Every third call is repeated at once, every tenth much later."""
    late = []
    for number in range(count):
        text = f"{who}:{number}"
        for verb, body in (
            ("send", {"text": text}),
            ("note", {"text": text}),
            ("remember", {"key": f"fact-{who}", "value": str(number)}),
        ):
            key = f"{verb}-{text}"
            client.call(verb, key, name="talk", **body)
            if number % 3 == 0:
                client.call(verb, key, name="talk", **body)
            if number % 10 == 0:
                late.append((verb, key, body))
    for verb, key, body in late:
        client.call(verb, key, name="talk", **body)


def send_until_heard(client: Client, who: str, count: int) -> None:
    """Send one message after the other. Repeat each with its key until the daemon has answered."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for number in range(count):
        while not is_heard(client, who, number):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def is_heard(client: Client, who: str, number: int) -> bool:
    try:
        client.call("send", f"{who}-{number}", name="talk", text=f"{who}:{number}")
    except DaemonAway:
        return False
    return True


if __name__ == "__main__":
    what, socket, who, count = sys.argv[1:]
    {"write_much": write_much, "send_until_heard": send_until_heard}[what](Client(socket), who, int(count))
