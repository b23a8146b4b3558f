"""Bytes of a socket -> a call, its answer or a planned fault, and a line in the log: the loopback Hub's plumbing."""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import parse_qs


class Request(NamedTuple):
    """One line of the log; `status` 0: the connection was closed without an answer. Never a token."""

    method: str
    path: str
    status: int
    bytes: int  # of the request's body that arrived
    user: str  # "" without a token, "?" with one that nobody has


@dataclass(frozen=True)
class Answer:
    """What is sent back; as a fault, instead of what would have been (`done`: but after it was done all the same)."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | str | dict[str, Any] | list[Any] = b""
    done: bool = False

    def raw(self) -> tuple[bytes, str]:
        """The body's bytes and their type."""
        if isinstance(self.body, bytes):
            return self.body, "application/octet-stream"
        if isinstance(self.body, str):
            return self.body.encode(), "text/plain; charset=utf-8"
        return json.dumps(self.body).encode(), "application/json; charset=utf-8"


@dataclass(frozen=True)
class Drop:
    """Close the connection after so many bytes of the request's body, or, with `of="response"`, of the answer's."""

    after: int = 0
    of: Literal["request", "response"] = "request"


@dataclass(frozen=True)
class Slow:
    """Wait, then answer as usual; `Slow(0)` lets one request pass."""

    seconds: float


Fault = Answer | Drop | Slow


@dataclass
class Call:
    """A request that was read: what the routes see."""

    method: str
    path: str  # still quoted: a slash in a revision is %2F
    query: dict[str, list[str]]
    headers: Message  # names in any case
    body: bytes
    user: str | None  # None: no token or one that nobody has
    may_write: bool

    def json(self) -> Any:
        return json.loads(self.body or b"{}")

    def flag(self, name: str) -> bool:
        return self.query.get(name, ["false"])[-1].lower() in ("1", "true")


class Refusal(Exception):
    """A status with the headers and the sentence that the Hub gives with it."""

    def __init__(self, status: int, message: str, code: str | None = None, **more: str) -> None:
        super().__init__(message)
        headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **more}
        self.answer = Answer(status, headers, {"error": message})


class Service(Protocol):
    """What a server needs of the hub."""

    requests: list[Request]
    arrived: list[str]
    broken: list[str]

    def next_fault(self, method: str, path: str) -> Fault | None: ...
    def whose(self, authorization: str | None) -> tuple[str | None, bool]: ...
    def answer(self, call: Call, storage: bool) -> Answer: ...


class Server(ThreadingHTTPServer):
    """One port of the hub: the Hub itself, or the storage behind it."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, service: Service, storage: bool) -> None:
        self.service, self.storage = service, storage
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is its own affair; anything else is a fault of this server."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            self.service.broken.append(traceback.format_exc())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *given: Any) -> None:
        pass

    def any_method(self) -> None:
        service, (path, _, query) = self.server.service, self.path.partition("?")
        user, may_write = service.whose(self.headers.get("Authorization"))
        who = user or ("?" if self.headers.get("Authorization") else "")
        service.arrived.append(f"{self.command} {path}")
        fault = service.next_fault(self.command, path)
        if isinstance(fault, Slow):
            time.sleep(fault.seconds)
        if isinstance(fault, Drop) and fault.of == "request":
            arrived = self.read_body(fault.after)
            service.requests.append(Request(self.command, path, 0, len(arrived), who))
            return self.cut()
        body = self.read_body()
        call = Call(self.command, path, parse_qs(query), self.headers, body, user, may_write)
        given = fault if isinstance(fault, Answer) else None
        if given is None or given.done:
            given = service.answer(call, self.server.storage) if given is None else self.after(call, given)
        # Logged before it is sent: a test that has its answer finds the line.
        status = 0 if isinstance(fault, Drop) else given.status
        service.requests.append(Request(self.command, path, status, len(body), who))
        if not isinstance(fault, Drop):
            return self.send(given)
        if fault.after:
            self.send(given, fault.after)
        self.close_connection = True

    def after(self, call: Call, given: Answer) -> Answer:
        self.server.service.answer(call, self.server.storage)
        return given

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = any_method

    def read_body(self, most: int | None = None) -> bytes:
        """The request's body, or its first `most` bytes; of a client that was killed a part is no request."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            found = b""
            while size := int(self.rfile.readline().split(b";")[0] or self.gone(), 16):
                found += self.rfile.read(size)
                self.rfile.readline()
                if most is not None and len(found) >= most:
                    return found[:most]
            self.rfile.readline()
            return found
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length if most is None else min(most, length))
        return body if most is not None or len(body) == length else self.gone()

    def gone(self) -> bytes:
        raise ConnectionAbortedError("the client went away in the middle of a request")

    def send(self, answer: Answer, most: int | None = None) -> None:
        body, kind = answer.raw()
        self.send_response(answer.status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if most is None else body[:most])

    def cut(self) -> None:
        """End the connection so that the other side notices at once (a reset, not a polite end)."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def ranged(content: bytes, wanted: str | None, headers: Mapping[str, str]) -> Answer:
    """A file, or the part of it that a Range header asks for."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted or "")
    if not found or found[0] == "bytes=-":
        return Answer(200, {"Accept-Ranges": "bytes", **headers}, content)
    size = len(content)
    if found[1]:
        start, end = int(found[1]), min(int(found[2]) + 1 if found[2] else size, size)
    else:
        start, end = max(size - int(found[2]), 0), size
    if start >= size:
        return Answer(416, {"Content-Range": f"bytes */{size}"})
    return Answer(206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"}, content[start:end])
