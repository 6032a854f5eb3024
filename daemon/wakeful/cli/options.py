"""What every verb is told besides its own arguments, and how it gets a client from that."""

from __future__ import annotations

from typing import NamedTuple

from wakeful.cli.client import Client, read_token
from wakeful.cli.places import find_socket


class Options(NamedTuple):
    """`--socket` and `--json`, wherever they stood."""

    socket: str | None = None
    is_json: bool = False

    def client(self) -> Client:
        """Inside a run every verb speaks with the run's token, so that it can do no more than the run may."""
        place = find_socket(self.socket)
        return Client(place.path, read_token(), pid=place.pid, project=place.project)
