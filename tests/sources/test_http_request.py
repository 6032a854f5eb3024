"""One HTTP request: impossible hosts are refused with a message, and the body begins after the last header."""

import asyncio

import pytest

from wakeful.system.http_request import ServiceDown, ask_http, split_address


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "xn--\u00e9"])
def test_a_host_that_no_network_can_have_is_refused(host: str) -> None:
    with pytest.raises(ServiceDown):
        split_address(f"http://{host}/")


async def hear_body(headers: int) -> tuple[int, bytes]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        lines = "".join(f"X-{number}: 1\r\n" for number in range(headers))
        writer.write(f"HTTP/1.1 200 OK\r\n{lines}\r\nbody".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with ask_http(f"http://127.0.0.1:{port}/", "GET", {}) as heard:
            return len(heard.headers), await heard.reader.read()


@pytest.mark.parametrize("headers", [3, 100, 150])
def test_no_header_is_left_in_the_body(headers: int) -> None:
    assert asyncio.run(hear_body(headers)) == (min(headers, 100), b"body")


def test_an_answer_of_endless_headers_is_refused() -> None:
    with pytest.raises(ServiceDown, match="more than 1000 headers"):
        asyncio.run(hear_body(1001))
