"""Who may talk to the page: an ASGI layer in front of the application.

The page runs an analyst's computations on the analyst's machine, so that another web site, another user of the machine
or a stray request must not reach it. Every request needs the token as the first part of its path, a `Host` header that
names this server (no DNS rebinding) and, where the browser states it, the same origin. The token stands in the path
and not in a cookie: browsers send cookies to every port of a host, other users' servers included.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 2_000_000
"""Bytes of one request, uploads included."""
LARGEST_DRAINED = 50_000_000
POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY.format(scripts=""),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
OWN_SITE = ("same-origin", "none")
"""What `Sec-Fetch-Site` says of the page's own requests, and of an address typed or opened from outside a browser."""


class Guard:
    """Lets a request through to `app` only with the right token, host and origin; adds headers to every answer.

    `hosts` are the names (with port, as browsers send them) this server goes by; None lets any name pass, for a server
    that its owner opened to a network. `page` is the HTML whose own inline scripts may run, and no others.
    """

    def __init__(self, app: App, token: str, hosts: Iterable[str] | None, page: str = "") -> None:
        self.app, self.token = app, token
        self.headers = HEADERS | {"content-security-policy": POLICY.format(scripts=_hashes(page))}
        self.hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request or connection."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        why = self.refusal(scope)
        if why is not None:
            return await _refuse(scope, receive, send, 403, why)
        if scope["type"] == "websocket":
            return await self.app(scope, receive, send)
        return await self._answer(scope, receive, send)

    def refusal(self, scope: Scope) -> str | None:
        """Why this request is turned away, or None."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if any(len(headers.get(name, ())) > 1 for name in ("host", "origin")):
            return "A header stands twice."
        host = "".join(headers.get("host", ())).lower()
        if self.hosts is not None and host not in self.hosts:
            return "This server does not go by that name. Open the address that noisewise printed."
        origin = headers.get("origin", [None])[0]
        if origin is None and scope["type"] == "websocket":
            return "A connection must say where it comes from."
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return "Requests from other sites are refused."
        if headers.get("sec-fetch-site", ["none"])[0] not in OWN_SITE:
            return "Requests from other sites are refused."
        stated = scope["path"].split("/", 2)[1:2]
        if not stated or not hmac.compare_digest(stated[0].encode(), self.token.encode()):
            return "The address lacks its token. Open the whole address that noisewise printed."
        return None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, once its whole body is here and not too long."""
        body = await _body(receive)
        if body is None:
            return await _refuse(scope, receive, send, 413, "That file is too large.")
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _with_headers(message.get("headers", ()), self.headers)}
            await send(message)

        return await self.app(scope, replayed, guarded)


async def _body(receive: Receive) -> bytes | None:
    """A request's body; None if it is too long. Some of the excess is read, so that the sender gets the answer."""
    parts, length = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        length += len(part)
        if length <= LARGEST_BODY:
            parts.append(part)
        if not message.get("more_body", False) or length > LARGEST_DRAINED:
            return b"".join(parts) if length <= LARGEST_BODY else None


def _hashes(page: str) -> str:
    """The hashes of a page's inline scripts, as a security policy lists them."""
    scripts = re.findall(r"<script(?: type=\"text/javascript\")?>(.*?)</script>", page, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return "".join(f" 'sha256-{digest}'" for digest in digests)


def _with_headers(
    headers: Iterable[tuple[bytes, bytes]], added: Mapping[str, str] = HEADERS
) -> list[tuple[bytes, bytes]]:
    others = [(name, value) for name, value in headers if name.decode("latin-1").lower() not in added]
    return others + [(name.encode(), value.encode()) for name, value in added.items()]


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": why[:100]})
        return
    headers = _with_headers([(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"noisewise: {why}\n".encode()})
