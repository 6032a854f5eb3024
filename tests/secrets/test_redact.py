"""The redactor finds values of secrets in all shapes in which programs write them, wherever a stream is cut."""

import base64
import html
import itertools
import json
import random
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.secrets.redact import RedactedStream, Redactor
from wakeful.secrets.secret_encodings import find_unfitness

TOKEN = b"sk-live_9f8E7d6C/5b4A+3z2Y=x1W&v'0u<q>"
KEY = b"-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(bytes(range(200))) + b"-----END PRIVATE KEY-----\n"
TEXT = TOKEN.decode()

SHAPES = {
    "raw": TOKEN,
    "base64": base64.b64encode(TOKEN),
    "base64 with a newline at its end": base64.b64encode(TOKEN + b"\n"),
    "base64 after one byte": base64.b64encode(b":" + TOKEN),
    "base64 of user and password": base64.b64encode(b"me:" + TOKEN + b"@"),
    "base64 after two bytes": base64.b64encode(b"ab" + TOKEN + b"cd"),
    "base64 for addresses": base64.urlsafe_b64encode(TOKEN),
    "base64 in broken lines": base64.encodebytes(b"user:" + TOKEN * 3),
    "hexadecimal": TOKEN.hex().encode(),
    "hexadecimal in capitals": TOKEN.hex().upper().encode(),
    "hexadecimal in pairs": TOKEN.hex(" ").encode(),
    "quoted for an address": quote(TOKEN, safe="").encode(),
    "quoted in small letters": quote(TOKEN, safe="").lower().encode() if TOKEN.islower() else quote(TOKEN).encode(),
    "quoted for a form": quote_plus(TEXT).encode(),
    "in JSON": json.dumps({"token": TEXT}).encode(),
    "in JSON with escaped slashes": json.dumps(TEXT).replace("/", "\\/").encode(),
    "in JSON safe for HTML": json.dumps(TEXT)
    .replace("&", "\\u0026")
    .replace("<", "\\u003c")
    .replace(">", "\\u003e")
    .encode(),
    "in HTML": html.escape(TEXT).encode(),
    "quoted for a shell": shlex.quote(TEXT).encode(),
    "as Python shows it": repr(TOKEN).encode(),
    "hexadecimal with colons": TOKEN.hex(":").encode(),
    "hexadecimal with colons in capitals": TOKEN.hex(":").upper().encode(),
    "hexadecimal with hyphens": TOKEN.hex("-").encode(),
    "hexadecimal as in C": b", ".join(b"0x%02x" % byte for byte in TOKEN),
    "numbers": ", ".join(map(str, TOKEN)).encode(),
    "every byte quoted for an address": b"".join(b"%%%02X" % byte for byte in TOKEN),
    "every byte quoted in small letters": b"".join(b"%%%02x" % byte for byte in TOKEN),
    "every byte escaped": b"".join(b"\\x%02x" % byte for byte in TOKEN),
    "every letter escaped in JSON": b"".join(b"\\u%04X" % byte for byte in TOKEN),
    "decimal entities": b"".join(b"&#%d;" % byte for byte in TOKEN),
    "hexadecimal entities": b"".join(b"&#x%x;" % byte for byte in TOKEN),
    "hexadecimal entities in capitals": b"".join(b"&#X%X;" % byte for byte in TOKEN),
    "entities for signs": "".join(letter if letter.isalnum() else f"&#{ord(letter)};" for letter in TEXT).encode(),
    "in HTML by Jinja": html.escape(TEXT, quote=False).replace("'", "&#39;").encode(),
    "in HTML by PHP": html.escape(TEXT, quote=False).replace("'", "&#039;").encode(),
    "base32": base64.b32encode(TOKEN),
    "base32 in small letters": base64.b32encode(TOKEN).lower(),
    "base32 after three bytes": base64.b32encode(b"me:" + TOKEN + b"@"),
    "in capitals": TOKEN.upper(),
    "in small letters": TOKEN.lower(),
}
# Functions that encode any value.
ENCODERS = {
    "as it is": bytes,
    "capitals": bytes.upper,
    "small letters": bytes.lower,
    "hexadecimal": lambda value: value.hex().encode(),
    "hexadecimal with colons": lambda value: value.hex(":").upper().encode(),
    "every byte %XX": lambda value: b"".join(b"%%%02X" % byte for byte in value),
    "decimal entities": lambda value: "".join(f"&#{ord(letter)};" for letter in value.decode()).encode(),
    "hexadecimal entities": lambda value: "".join(f"&#x{ord(letter):X};" for letter in value.decode()).encode(),
    "base32": base64.b32encode,
    "base32 in small letters after a byte": lambda value: base64.b32encode(b":" + value).lower(),
    "base64": base64.b64encode,
    "base64 in broken lines": lambda value: base64.encodebytes(b"user:" + value),
}
VALUES = (
    st.text(st.characters(min_codepoint=33, max_codepoint=0x17F), min_size=12, max_size=60)
    .map(str.encode)
    .filter(lambda value: find_unfitness(value) is None)
)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_value_is_replaced_by_its_name_in_every_usual_shape(shape: bytes) -> None:
    redactor = Redactor([("TOKEN", TOKEN)])
    shown = redactor.redact(b"before " + shape + b" after")
    assert b"[secret TOKEN]" in shown and redactor.find(shown) is None
    assert shown.startswith(b"before ") and shown.endswith(b" after")
    # Only the letters of base64 that belong partly to the neighbouring bytes may remain.
    left = shown.removeprefix(b"before ").removesuffix(b" after").replace(b"[secret TOKEN]", b"")
    assert len(left) <= 14


def test_what_holds_no_secret_is_the_very_same_object() -> None:
    redactor = Redactor([("TOKEN", TOKEN)])
    data, text = b"nothing of the kind \xff\x00" * 100, "nothing of the kind"
    assert redactor.redact(data) is data and redactor.redact_text(text) is text
    assert not Redactor() and Redactor().redact(TOKEN) is TOKEN


def test_a_line_of_a_key_is_as_secret_as_the_key() -> None:
    redactor = Redactor([("KEY", KEY)])
    line = KEY.splitlines()[2]
    assert (
        redactor.redact(b"-----BEGIN PRIVATE KEY-----\n    " + line + b"\n")
        == b"-----BEGIN PRIVATE KEY-----\n    [secret KEY]\n"
    )


def test_a_secret_inside_another_is_told_as_the_longer_one() -> None:
    redactor = Redactor([("SHORT", b"abcdefgh"), ("LONG", b"abcdefgh-and-more")])
    assert redactor.redact(b"abcdefgh, abcdefgh-and-more") == b"[secret SHORT], [secret LONG]"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 64])
def test_a_value_that_is_cut_into_pieces_never_shows(size: int) -> None:
    whole = b"\n".join([b"first s", *SHAPES.values(), TOKEN + TOKEN, b"sk-live_ but not ours", b"last sk-"])
    redactor = Redactor([("TOKEN", TOKEN)])
    stream, shown = RedactedStream(redactor), b""
    for at in range(0, len(whole), size):
        piece = stream.push(whole[at : at + size])
        shown += piece
        # This also holds after each piece, because printed output cannot be taken back.
        assert redactor.find(shown) is None
    shown += stream.flush()
    assert redactor.find(shown) is None
    assert shown.startswith(b"first s\n[secret TOKEN]\n") and shown.endswith(b"sk-live_ but not ours\nlast sk-")


@pytest.mark.parametrize("encode", ENCODERS.values(), ids=ENCODERS)
@given(
    value=VALUES,
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=8),
    around=st.binary(max_size=20).filter(lambda text: b"[" not in text),
)
def test_every_shape_of_any_value_is_found_in_pieces_of_any_size(
    encode: Callable[[bytes], bytes], value: bytes, sizes: list[int], around: bytes
) -> None:
    """A stream has the secret's name instead. Not even half of the shape appears."""
    redactor, shape = Redactor([("S", value)]), encode(value)
    whole = around + b"\n=" + shape + b"=\n" + around
    stream, shown, at = RedactedStream(redactor), b"", 0
    for size in itertools.cycle(sizes):
        shown += stream.push(whole[at : at + size])
        at += size
        assert redactor.find(shown) is None
        if at >= len(whole):
            break
    shown += stream.flush()
    assert b"[secret S]" in shown and redactor.find(shown) is None
    assert len(shown) <= 2 * len(around) + len(b"\n==\n[secret S]") + 14, (
        "what is left of a shape are letters that its neighbours share"
    )


@pytest.mark.parametrize("value", [b"Sunshine", b"Ab1-Cd2-E"])
def test_a_short_value_in_another_case_is_a_word_like_others(value: bytes) -> None:
    """Redacting a short value in any case would damage ordinary output."""
    redactor = Redactor([("SHORT", value)])
    for other in (value.lower(), value.upper(), value.swapcase()):
        text = b"the " + other + b" of the day" + b"." * 5000
        assert redactor.redact(text) is text and redactor.redact(text[:40]) == text[:40]
    assert redactor.redact(b"the " + value) == b"the [secret SHORT]"


def test_pieces_of_random_size_are_redacted_as_the_whole_is() -> None:
    redactor = Redactor([("A", b"abcabcabd-1"), ("B", b"cabd-1-cab"), ("TOKEN", TOKEN)])
    parts = [b"abcabcabd-1", b"cabd-1-cab", TOKEN, b"ab", b"cab", b" ", b"\n", b"x", TOKEN[:9]]
    for seed in range(300):
        draw = random.Random(seed)
        whole = b"".join(draw.choices(parts, k=12))
        stream, shown, at = RedactedStream(redactor), b"", 0
        while at < len(whole):
            size = draw.randint(1, 20)
            shown += stream.push(whole[at : at + size])
            at += size
        shown += stream.flush()
        assert redactor.find(shown) is None, seed
        assert TOKEN[:9] not in shown or b"".join(parts).count(TOKEN[:9])


def test_half_a_secret_at_a_cut_is_taken_away_with_it() -> None:
    redactor = Redactor([("TOKEN", TOKEN)])
    for at in range(1, len(TOKEN)):
        assert redactor.trim_end(b"kept " + TOKEN[:at]) == b"kept "
        assert redactor.trim_start(TOKEN[at:] + b" kept") == b" kept"
    assert redactor.trim_end(b"kept.") == b"kept." and redactor.trim_start(b"kept.") == b"kept."


def test_what_lets_nothing_stand_is_no_secret() -> None:
    assert "7 bytes" in find_unfitness(b"1234567\n")
    assert "fewer than 4" in find_unfitness(b"0000000000000000")
    assert "at most" in find_unfitness(bytes(range(256)) * 300)
    assert find_unfitness(b"12345678") is None


@pytest.mark.parametrize("before", [0, 262_100, 262_134, 262_144, 600_000])
def test_a_value_is_found_wherever_it_lies_in_a_large_content(before: int) -> None:
    """This includes values that cross the boundary of two searched pieces."""
    content = (
        b"." * before + b"\n".join(base64.b64encode(TOKEN)[at : at + 5] for at in range(0, 52, 5)) + b"." * 300_000
    )
    redactor = Redactor([("TOKEN", TOKEN)])
    assert redactor.find(content) == "TOKEN" and redactor.find(content.replace(b"\n", b"!")) is None
    assert (
        redactor.redact(content).strip(b".").startswith(b"[secret TOKEN]")
        and redactor.find(redactor.redact(content)) is None
    )


def test_a_redactor_and_its_errors_never_tell_a_value() -> None:
    assert repr(Redactor([("TOKEN", TOKEN)])) == "Redactor(['TOKEN'])"


def test_a_search_of_a_megabyte_of_output_takes_milliseconds() -> None:
    redactor = Redactor((f"S{number}", random.Random(number).randbytes(32).hex().encode()) for number in range(5))
    text = b"a line of output as programs write them, of no interest\n" * 20_000
    assert redactor.find(text) is None and redactor.redact(text) is text


@pytest.mark.parametrize("cut", range(0, 26, 5))
def test_a_part_of_a_text_holds_no_piece_of_a_value_that_reaches_into_it(cut: int) -> None:
    """This holds for both sides of any cut. The number of lines stays the same."""
    redactor = Redactor([("gh", b"first-line-of-it\nsecond-one")])
    text = "before\nfirst-line-of-it\nsecond-one\nafter\n"
    at = len("before\n") + cut
    left, right = redactor.redact_part("", text[:at], text[at:]), redactor.redact_part(text[:at], text[at:], "")
    assert left.startswith("before\n") and right.endswith("\nafter\n")
    assert not any(piece in left + right for piece in ("first-", "line-of", "of-it", "second", "-one"))
    assert left.count("\n") + right.count("\n") == text.count("\n")
    assert redactor.redact_part("a", "b", "c") == "b"
