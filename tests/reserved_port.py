"""A port reserved for a test: connections are refused until the test listens, and no other process gets the port.

The port is below the range from which the system assigns ports, so that a parallel test does not get it.
"""

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[socket.socket]:
    """Yield a bound socket. `listen` opens the port and `shutdown` closes it. Both may be repeated."""
    with socket.socket() as held:
        while True:
            try:
                held.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        yield held
