"""Writes the payloads of webhooks as files, which a run finds at $WAKEFUL_BINDING_<NAME>.

`service/run_starter.py` and `replay` call this before a run starts, in a thread. It is a module of its own, because
runs and replays share nothing else. Each webhook has a folder, even if it is empty. Each delivery that no run has dealt
with is a file in it, named by its position, so the oldest comes first.
"""

from __future__ import annotations

import os

from wakeful.core.deciding.owed import list_new_deliveries
from wakeful.core.record.state import OpenRun, Session
from wakeful.errors import OperatorError, WakefulError
from wakeful.system.blobs import Blobs


def lay_out_payloads(blobs: Blobs, session: Session, run: OpenRun, folder: str) -> dict[str, str]:
    """Write the payloads. Returns the folder of each webhook, by the name of its binding. Blocking."""
    folders = {}
    for binding in run.spec.webhooks:
        folders[binding.name] = own = f"{folder}/{binding.name}"
        os.makedirs(own, 0o700, exist_ok=True)
        for delivery in list_new_deliveries(session, run, binding.identity):
            # `payload` is None if a person has erased it.
            if delivery.payload is not None:
                _write(blobs, delivery.payload, f"{own}/{delivery.file_name}", binding.name)
    return folders


def _write(blobs: Blobs, address: str, path: str, binding: str) -> None:
    try:
        content = blobs.get(address)
    except WakefulError as error:
        raise OperatorError(f"{os.path.basename(path)} of {binding}: {error}") from None
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
