"""The explorer's local server: pages, the check of who asks, and answers as server-sent events.

It listens on loopback only. What computes or tells anything needs the token of the link; requests
whose Host or Origin is not this server's own are refused, so that no other page can ask through the
user's browser. A page sends names of heads, texts and numbers, never paths or code.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from headcount.errors import HeadcountError
from headcount.explorer.inquiries import ENDS
from headcount.explorer.session import ExplorerSession, page_id
from headcount.system.files import to_json

MOST_BYTES = 256 * 1024  # of a request
TOKEN = "x-headcount-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# The only files that are served: address → package, file, type.
PAGES = {
    "/": ("headcount.explorer", "page/index.html", "text/html"),
    "/explorer.js": ("headcount.explorer", "page/explorer.js", "text/javascript"),
    "/panels.js": ("headcount.explorer", "page/panels.js", "text/javascript"),
    "/heads.js": ("headcount.report", "heads.js", "text/javascript"),
    "/page.css": ("headcount.report", "page.css", "text/css"),
    "/explorer.css": ("headcount.explorer", "page/explorer.css", "text/css"),
}
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


def application(session: ExplorerSession, token: str, port: int) -> App:
    """The server's application; only those who know the token get answers."""

    async def page(request: Request) -> Response:
        package, name, kind = PAGES[request.url.path]
        text = (files(package) / name).read_text(encoding="utf-8")
        return Response(text, media_type=f"{kind}; charset=utf-8")

    async def ask(request: Request) -> Response:
        given = request.headers.get(TOKEN, "")
        if not secrets.compare_digest(given.encode(), token.encode()):
            return refusal("This page does not know the token: open the link that was printed.")
        asked = await _read(request)
        if asked is None:
            most = f"it has more than {MOST_BYTES // 1024} kB"
            return refusal(f"This is no request of the explorer's page, or {most}.", 400)
        return await _answer(session, asked)

    routes: list[Any] = [Route(path, page) for path in PAGES]
    routes.append(Route("/ask", ask, methods=["POST"]))
    return _guarded(Starlette(routes=routes), port)


def _guarded(app: App, port: int) -> App:
    """The application behind the checks of Host and Origin, with its headers on every answer."""
    hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
    origins = {f"http://{host}" for host in hosts}

    async def guarded(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await app(scope, receive, send)

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
        ]
        given = [value for name, value in headers if name == "host"]
        origin = [value for name, value in headers if name == "origin"]
        site = [value for name, value in headers if name == "sec-fetch-site"]
        wrong = (
            len(given) != 1
            or given[0] not in hosts
            or any(one not in origins for one in origin)
            or any(one == "cross-site" and scope["method"] != "GET" for one in site)
        )
        if wrong:
            answer = refusal(
                "This address is not the explorer's own: open the link that was printed."
            )
            return await answer(scope, receive, send_with_headers)
        return await app(scope, receive, send_with_headers)

    return guarded


def refusal(text: str, status: int = 403) -> Response:
    """A refusal in one sentence."""
    return PlainTextResponse(text, status_code=status)


async def _read(request: Request) -> dict[str, Any] | None:
    """The JSON object of a request; None if it is too long, or none."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        return None
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            return None
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return asked if isinstance(asked, dict) else None


async def _answer(session: ExplorerSession, asked: dict[str, Any]) -> Response:
    """Answer an inquiry by a stream of events; it is cancelled when its page goes away."""
    loop, events = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Any]]()

    def emit(name: str, data: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(events.put_nowait, (name, data))

    try:
        page, kind = page_id(asked.get("page")), str(asked.get("kind"))
        inquiry = session.ask(page, kind, asked, emit)
    except HeadcountError as error:
        return _stream(_only("refused", {"text": str(error)}))

    async def stream() -> AsyncIterator[str]:
        try:
            name = ""
            while name not in ENDS:
                name, data = await events.get()
                yield event(name, data)
        finally:
            inquiry.cancel()

    return _stream(stream())


async def _only(name: str, data: Any) -> AsyncIterator[str]:
    yield event(name, data)


def _stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream")


def event(name: str, data: Any) -> str:
    """One server-sent event."""
    return f"event: {name}\ndata: {to_json(data, indent=None)}\n\n"
