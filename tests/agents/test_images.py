"""Images from tools: shown to models in every wire format, recorded by content, and described in words otherwise."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

import msgspec
import pytest

from agents.provider import Call, Fail, Provider, Say, Turns
from agents.scripted_models import FORMATS, PROVIDERS, reach
from agents.test_agent_runs import KEY, declare, results
from e2e.box import Box
from wakeful.agents.contract import ModelRequest
from wakeful.agents.tools.image import MOST_BYTES, find_image, find_obstacle
from wakeful.bundles.references import References
from wakeful.core.agents.turns import Answered, Asked, Image, Returned, ToolCall
from wakeful.core.record import events as ev
from wakeful.core.record.erased_payloads import find_addresses
from wakeful.core.spec.agent import ModelSettings
from wakeful.eventlog.contract import Record
from wakeful.system.blobs import Blobs

SERVER = Path(__file__).with_name("image_mcp_server.py")


def make_png(width: int = 2, height: int = 2, extra: bytes = b"") -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"".join(b"\0" + b"\x40\x80\xc0" * width for _ in range(height)))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", rows)
        + chunk(b"tEXt", b"a\0" + extra)
        + chunk(b"IEND", b"")
    )


PNG = make_png()
ENTRIES = (
    Asked(text="What is on it?"),
    Answered(model="anthropic:m", calls=(ToolCall(id="c1", name="add", arguments="{}"),), stop="calls"),
    Returned(
        call="c1",
        name="add",
        text="a.png is an image",
        images=(Image(media_type="image/png", address="blake2b-00", size_bytes=len(PNG)),),
    ),
)


async def show(provider: Provider, ours: str, takes: bool | None = None) -> str:
    """Return the body of the request that the provider received."""
    provider.play(Turns((Say("A square."),), by="arrival"))
    request = ModelRequest(
        instructions="Be brief.", entries=ENTRIES, images={"blake2b-00": PNG}, settings=ModelSettings(images=takes)
    )
    answered = await reach(provider, ours).answer(request, lambda _: None)
    assert answered.answered.text == "A square."
    return json.dumps(provider.requests[-1].raw)


@pytest.mark.asyncio
@pytest.mark.parametrize("ours", PROVIDERS)
async def test_an_image_reaches_the_model_in_every_wire_format(provider: Provider, ours: str) -> None:
    """The model gets the image with the words about it.

    An OpenAI-compatible server gets it only if its agent says that it takes images. Otherwise it gets words.
    """
    encoded = base64.b64encode(PNG).decode()
    told = await show(provider, ours)
    is_shown = ours != "openai-compatible"
    assert (encoded in told.replace("-", "+").replace("_", "/")) == is_shown, (FORMATS[ours], told)
    assert "a.png is an image" in told and ("an image is not shown" in told) != is_shown


@pytest.mark.asyncio
@pytest.mark.parametrize(("ours", "takes"), [("openai-compatible", True), ("anthropic", False)])
async def test_an_agent_says_what_its_model_takes(provider: Provider, ours: str, takes: bool) -> None:
    assert (base64.b64encode(PNG).decode() in await show(provider, ours, takes)) == takes


def test_an_image_is_known_by_its_bytes_and_held_to_bounds() -> None:
    """The bytes decide the kind of an image, not its name. Its size is read from the bytes too."""
    gif = b"GIF89a" + struct.pack("<HH", 3, 4) + b"\0" * 20
    jpeg = (
        b"\xff\xd8\xff\xe0\x00\x10JFIF\0" + b"\0" * 9 + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 6, 5) + b"\0" * 20
    )
    webp = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + (6).to_bytes(3, "little") + (7).to_bytes(3, "little")
    found = [find_image(content) for content in (PNG, gif, jpeg, webp)]
    assert [(one.media_type, one.width, one.height) for one in found if one] == [
        ("image/png", 2, 2),
        ("image/gif", 3, 4),
        ("image/jpeg", 5, 6),
        ("image/webp", 7, 8),
    ]
    for content in (
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"\xff\xd8\xff",
        b"RIFF\0\0\0\0WEBP",
        b"<svg/>",
        b"plain",
        b"\xff\xd8\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ):
        assert find_image(content) is None
    assert find_obstacle(PNG) is None
    assert "8001 x 1 pixels" in (find_obstacle(make_png(8001, 1)) or "") and "bytes, and at most" in (
        find_obstacle(PNG + b"\0" * MOST_BYTES) or ""
    )


@pytest.mark.long
def test_images_of_files_and_servers_are_shown_kept_by_content_and_shown_again_to_a_run_that_goes_on(
    box: Box, provider: Provider
) -> None:
    """An image that is too large is described in words.

    The log has an address, and the content is stored as a blob once.

    If a provider refuses the images, it is asked again without them.
    """
    provider.play(
        [
            Call("read", {"path": "a.png"}),
            Call("read", {"path": "large.png"}),
            Call("mcp__draw__draw", {}),
            Say("A square."),
        ]
    )
    box.write("tools/draw.py", SERVER.read_text())
    declare(box, provider, agent="mcp: {draw: {command: [python, tools/draw.py], start_timeout: 60s}}\n")
    (box.folder / "a.png").write_bytes(PNG)
    (box.folder / "large.png").write_bytes(make_png(8001, 1))
    box.spec(
        "docs",
        "agent: docs\nobjective: Look.\nbindings: {shots: {file: '*.png', settle: 0ms}}\nconversation: continue\nrun: {prompt: What is on it?}\n",
    )
    box.start(env=KEY)
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    read, large, drawn = results(provider.requests[-1])
    assert (
        "a.png is an image, image/png, 2 x 2 pixels" in read.content
        and "It cannot be shown: it is 8001 x 1 pixels" in large.content
    )
    assert (
        "drawn" in drawn.content
        and "[an image, image/png, 2 x 2 pixels" in drawn.content
        and "is not an image of a known kind" in drawn.content
    )
    encoded = base64.b64encode(PNG).decode()
    assert json.dumps(provider.requests[-1].raw).count(encoded) == 2
    returned = [record["payload"] for record in box.log("docs", "--kind", "tool_returned")]
    named = [[image["address"] for image in one.get("images", ())] for one in returned]
    assert [len(one) for one in named] == [1, 0, 1] and named[0] == named[2] and encoded not in json.dumps(returned)
    # The same conversation in another process.
    provider.play(Turns((Say("Still a square."),), by="arrival"))
    box.ask("activate", "docs", "--wait")
    assert json.dumps(provider.requests[-1].raw).count(encoded) == 2
    provider.play(Turns((Fail(400, message="could not process image"), Say("I cannot see it.")), by="arrival"))
    box.ask("activate", "docs", "--wait")
    assert box.row("docs")["last_run"]["outcome"] == "succeeded" and encoded not in json.dumps(
        provider.requests[-1].raw
    )
    assert "an image is not shown" in json.dumps(provider.requests[-1].raw)


def test_an_image_belongs_to_the_record_that_names_it(tmp_path: Path) -> None:
    """It is included in the bundle of its session, and erased together with its record."""
    blobs = Blobs(tmp_path)
    address = blobs.put(PNG)
    returned = ev.ToolReturned(
        run=1,
        call="c1",
        name="read",
        text="a.png",
        images=(Image(media_type="image/png", address=address, size_bytes=len(PNG)),),
    )
    payload = msgspec.json.encode(returned)
    references = References(blobs)
    references.add(Record("s", 1, 1, "tool_returned", "run 1", 1, None, None, payload, b"", b""))
    assert list(references) == [address] and find_addresses("tool_returned", msgspec.json.decode(payload)) == [address]
