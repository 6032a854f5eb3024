"""Recognises images by their first bytes, and checks whether every provider accepts them.

The type that a server or a file's name claims is ignored. For an image that is too large, in bytes or in pixels, the
model gets a description instead: a provider that refuses an image refuses the whole conversation. Pure.
"""

from __future__ import annotations

import struct

from msgspec import Struct

from wakeful.text.display import count

MOST_BYTES = 3_500_000
MOST_IMAGES = 4
_MOST_PIXELS = 8_000
_JPEG_SIZES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


class ImageKind(Struct, frozen=True):
    media_type: str
    width: int
    height: int


def find_image(content: bytes) -> ImageKind | None:
    """Find the type and size of an image. None if it is not an image, or its beginning is damaged."""
    try:
        if content.startswith(b"\x89PNG\r\n\x1a\n"):
            return _check("image/png", *struct.unpack(">II", content[16:24]))
        if content.startswith((b"GIF87a", b"GIF89a")):
            return _check("image/gif", *struct.unpack("<HH", content[6:10]))
        if content.startswith(b"\xff\xd8\xff"):
            return _check("image/jpeg", *_measure_jpeg(content))
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            return _check("image/webp", *_measure_webp(content))
    except (struct.error, IndexError):
        return None
    return None


def describe_image(content: bytes) -> str | None:
    """Describe an image as text. None if it is not an image."""
    found = find_image(content)
    return (
        f"an image, {found.media_type}, {found.width} x {found.height} pixels, {count(len(content), 'byte')}"
        if found is not None
        else None
    )


def find_obstacle(content: bytes) -> str | None:
    """Return the reason why a model is not shown this image, or None if it is shown."""
    found = find_image(content)
    if found is None:
        return "it is not an image of a known kind (PNG, JPEG, GIF, WebP)"
    if len(content) > MOST_BYTES:
        return f"it has {len(content):,} bytes, and at most {MOST_BYTES:,} are shown; make it smaller"
    if max(found.width, found.height) > _MOST_PIXELS:
        return (
            f"it is {found.width} x {found.height} pixels, and at most {_MOST_PIXELS:,} a side are shown; "
            "make it smaller"
        )
    return None


def _check(media_type: str, width: int, height: int) -> ImageKind | None:
    return ImageKind(media_type, width, height) if width > 0 and height > 0 else None


def _measure_jpeg(content: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(content) and content[at] == 0xFF:
        if content[at + 1] in _JPEG_SIZES:
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return width, height
        at += 2 + struct.unpack(">H", content[at + 2 : at + 4])[0]
    return 0, 0


def _measure_webp(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(content[24:27], "little"), 1 + int.from_bytes(content[27:30], "little")
        case b"VP8L":
            bits = int.from_bytes(content[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack("<HH", content[26:30])
            return width & 0x3FFF, height & 0x3FFF
    return 0, 0
