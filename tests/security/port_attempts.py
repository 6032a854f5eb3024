"""A hostile program that tries every way to a port that its list does not name. It prints the results as JSON.

Started as `port_attempts.py PORT PORT6 UDP_PORT`: servers of the test, none of them listed. If a way has no effect beyond
the call itself (a vsock, a raw socket), it counts as passed when the socket can be made. The program knows nothing of
wakeful.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
from collections.abc import Callable

IPPROTO_SCTP, IPPROTO_UDPLITE, IPPROTO_SMC, IPPROTO_MPTCP = 132, 136, 256, 262
MSG_FASTOPEN = 0x20000000
TCP_FASTOPEN_CONNECT = 30
AF_VSOCK, AF_NETLINK, AF_PACKET, NETLINK_USERSOCK = 40, 16, 17, 2
PATIENCE_SECONDS = 20.0

PORT, PORT6, UDP_PORT = (int(word) for word in sys.argv[1:])
HERE, HERE6 = ("127.0.0.1", PORT), ("::1", PORT6)


def open_socket(family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    made.settimeout(PATIENCE_SECONDS)
    return made


def connect(out: socket.socket, address: tuple[str, int]) -> None:
    out.connect(address)
    out.sendall(b"stolen")


def send_fast(out: socket.socket, address: tuple[str, int]) -> None:
    try:
        out.sendto(b"stolen", MSG_FASTOPEN, address)
    except BlockingIOError:
        # The connection has begun, which proves that it was allowed.
        return


def send_message_fast(out: socket.socket, address: tuple[str, int]) -> None:
    try:
        out.sendmsg([b"stolen"], [], MSG_FASTOPEN, address)
    except BlockingIOError:
        return


def connect_later(out: socket.socket) -> None:
    out.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
    connect(out, HERE)


def send_datagram(out: socket.socket) -> None:
    out.sendto(b"stolen", ("127.0.0.1", UDP_PORT))


def listen(server: socket.socket) -> None:
    """Listen without binding to a port. The kernel chooses one, and any client that knows it can connect."""
    server.listen()
    with open_socket(server.family) as caller:
        caller.connect(("::1" if server.family == socket.AF_INET6 else "127.0.0.1", server.getsockname()[1]))


def bind_and_listen(server: socket.socket) -> None:
    server.bind(("127.0.0.1", 0))
    server.listen()


WAYS: dict[str, Callable[[], object]] = {
    "tcp": lambda: connect(open_socket(), HERE),
    "tcp over ipv6": lambda: connect(open_socket(socket.AF_INET6), HERE6),
    "ipv4 in ipv6": lambda: connect(open_socket(socket.AF_INET6), ("::ffff:127.0.0.1", PORT)),
    "mptcp": lambda: connect(open_socket(protocol=IPPROTO_MPTCP), HERE),
    "mptcp over ipv6": lambda: connect(open_socket(socket.AF_INET6, protocol=IPPROTO_MPTCP), HERE6),
    "mptcp, without blocking": lambda: connect(
        open_socket(kind=socket.SOCK_STREAM | socket.SOCK_CLOEXEC, protocol=IPPROTO_MPTCP), HERE
    ),
    "mptcp that listens": lambda: bind_and_listen(open_socket(protocol=IPPROTO_MPTCP)),
    "fast open by sendto": lambda: send_fast(open_socket(), HERE),
    "fast open by sendto over ipv6": lambda: send_fast(open_socket(socket.AF_INET6), HERE6),
    "fast open by sendmsg": lambda: send_message_fast(open_socket(), HERE),
    "fast open by connect": lambda: connect_later(open_socket()),
    "listen without bind": lambda: listen(open_socket()),
    "listen without bind over ipv6": lambda: listen(open_socket(socket.AF_INET6)),
    "bind to any port": lambda: bind_and_listen(open_socket()),
    "udp": lambda: send_datagram(open_socket(kind=socket.SOCK_DGRAM)),
    "udp-lite": lambda: open_socket(kind=socket.SOCK_DGRAM, protocol=IPPROTO_UDPLITE),
    "sctp": lambda: open_socket(protocol=IPPROTO_SCTP),
    "smc": lambda: open_socket(protocol=IPPROTO_SMC),
    "vsock": lambda: open_socket(AF_VSOCK),
    "vsock datagrams": lambda: open_socket(AF_VSOCK, socket.SOCK_DGRAM),
    "raw": lambda: open_socket(kind=socket.SOCK_RAW, protocol=socket.IPPROTO_ICMP),
    "raw over ipv6": lambda: open_socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6),
    "packets": lambda: open_socket(AF_PACKET, socket.SOCK_RAW),
    "netlink to other programs": lambda: open_socket(AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK),
}


def attempt(way: Callable[[], object]) -> str:
    try:
        way()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "passed"


print(json.dumps({name: attempt(way) for name, way in WAYS.items()}))
