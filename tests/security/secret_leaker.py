"""A run's program that writes out a secret in every way it can, for tests that search for the value everywhere.

Its only argument names the file that holds the value. It ends with an error whose message has the value, too.
"""

import base64
import html
import json
import os
import socket
import subprocess
import sys
import time
from urllib.parse import quote


def call(verb: str, **body: object) -> None:
    """Make a system call of our own session by hand: HTTP over the control socket."""
    token = open(os.environ["WAKEFUL_TOKEN_FILE"]).read()
    text = json.dumps(body).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["WAKEFUL_SOCKET"])
        head = f"POST /call/{verb} HTTP/1.1\r\nHost: w\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(text)}\r\n\r\n"
        connection.sendall(head.encode() + text)
        answer = connection.makefile("rb").read()
    assert b" 200 " in answer.split(b"\r\n")[0], answer


value = open(sys.argv[1], "rb").read().strip()
text = value.decode()
me = os.environ["WAKEFUL_SESSION"]
out = sys.stdout.buffer

for shape in (
    value,
    base64.b64encode(value),
    base64.b64encode(b"user:" + value),
    base64.urlsafe_b64encode(b"x" + value + b"\n"),
    value.hex().encode(),
    quote(value, safe="").encode(),
    json.dumps({"token": text}).encode(),
    html.escape(text).encode(),
    repr(value).encode(),
):
    out.write(b"shape: " + shape + b"\n")
    out.flush()
# Each letter is a write of its own.
for letter in value:
    out.write(bytes([letter]))
    out.flush()
    time.sleep(0.001)
out.write(b"\n")
out.flush()
print("on stderr", text, file=sys.stderr, flush=True)
subprocess.run(
    ["sh", "-c", 'echo "from a child: $0"; ps -o args= -p $$ 2>/dev/null || tr "\\0" " " < /proc/$$/cmdline', text]
)

call("note", name=me, text=f"the token is {text}")
call("remember", name=me, key="token", value=text, rationale=f"read from {text}")
call("remember", name=me, key=f"key-{text}"[:60], value="as a key")
call("send", name=me, text=f"look: {base64.b64encode(value).decode()}", wake=False)
with open(os.environ["WAKEFUL_BINDING_OUT"], "w") as file:
    file.write(f"Authorization: Bearer {text}\n")
with open(os.path.join(os.environ["WAKEFUL_SCRATCH"], "notes.txt"), "w") as file:
    file.write(f"remember {text}\n")
raise RuntimeError(f"could not log in with {text}")
