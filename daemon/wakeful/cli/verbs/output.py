"""`wakeful output`: what a run wrote, with everything a terminal would obey made visible, or raw on request."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator

import click

from wakeful.cli.client import quote_name
from wakeful.cli.command import verb
from wakeful.cli.completing import RUN, SESSION
from wakeful.cli.options import Options
from wakeful.cli.text import count, escape, escape_lines, escape_output, paint, wrap


@verb("output", "wakeful output payroll          # of the present or last run", "wakeful output payroll --run 3 --raw > run3.log")
@click.argument("name", type=SESSION)
@click.option("--run", type=RUN, metavar="N", help="Which run; the present or last one unless told.")
@click.option("--follow", "is_following", is_flag=True, help="Go on until the present run ends.")
@click.option("--raw", "is_raw", is_flag=True, help="The bytes as they are, terminal escapes included.")
def output_verb(options: Options, name: str, run: int | None, is_following: bool, is_raw: bool) -> None:
    """What a run wrote to its standard output and error.

    Terminal escapes in it are shown, not obeyed, also into a pipe or a file; --raw gives the bytes as they are.
    Of a run that failed while it was confined, standard error says what it was denied, and the line of its spec that allows it.
    """
    client = options.client()
    route = f"/sessions/{quote_name(name)}/output"
    if is_following and run is None:
        _print_pieces(client.stream(route, follow="true"), is_raw, options.is_json)
        return
    answer = client.get_answer(route, run=run)
    body = answer.read()
    head, total = int(answer.headers["wakeful-head"]), int(answer.headers["wakeful-total"])
    left_out = total - len(body)
    hint = json.loads(answer.headers["wakeful-hint"]) if answer.headers.get("wakeful-hint") else None
    if options.is_json:
        text = {"head": body[:head].decode(errors="backslashreplace"), "tail": body[head:].decode(errors="backslashreplace")}
        print(json.dumps({"name": name, "run": int(answer.headers["wakeful-run"]), "total_bytes": total, "left_out_bytes": left_out, "hint": hint, **text}))
        return
    _write(body[:head], is_raw)
    if left_out > 0:
        sys.stdout.write(paint(f"\n… not kept: {count(left_out, 'byte')} …\n", "dim"))
        sys.stdout.flush()
    _write(body[head:], is_raw)
    if hint is not None:
        # Beside the output, which may go into a file.
        print(paint("\n".join(wrap(escape(f"wakeful: run {answer.headers['wakeful-run']}: {hint}"))), "warn"), file=sys.stderr)


def _print_pieces(pieces: Iterator[bytes], is_raw: bool, is_json: bool) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for piece in pieces:
        if is_raw:
            sys.stdout.buffer.write(piece)
        elif is_json:
            print(json.dumps({"output": decoder.decode(piece)}))
        else:
            sys.stdout.write(escape_lines(decoder.decode(piece)))
        sys.stdout.flush()


def _write(output: bytes, is_raw: bool) -> None:
    if is_raw:
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(escape_output(output))
        sys.stdout.flush()
