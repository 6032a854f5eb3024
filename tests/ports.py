"""A port that is this test's own for as long as it is held: refused while nothing listens on it, and never somebody else's meanwhile.

Chosen below those that the system hands out by itself, so that no test beside this one is given it.
"""

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[socket.socket]:
    """Bound and not listening. `listen` brings it up, `shutdown` down again, and both may be repeated."""
    with socket.socket() as held:
        while True:
            try:
                held.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        yield held
