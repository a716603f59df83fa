"""The page: `noisewise serve` opens it in a browser, on this machine only. docs/page.md.

Shiny for Python draws it; guard.py decides who may talk to it; a worker process computes. Needs `noisewise[page]`.
"""

import contextlib
import ipaddress
import os
import secrets
import socket
import warnings
import webbrowser
from pathlib import Path
from typing import Any

from noisewise.errors import InputError, NoisewiseWarning, refusal
from noisewise.page.runs import Runs

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
LARGEST_MESSAGE = 2_000_000
"""Bytes of one message from the browser: an analysis file fits."""


class Server:
    """A page that listens: `url` is its address, token included. Use `serve` unless you need to stop it yourself."""

    def __init__(
        self, folder: str | os.PathLike[str], port: int = 0, host: str = "127.0.0.1", allow_remote: bool = False
    ) -> None:
        uvicorn = _needed()
        local = _is_loopback(host)
        if not local and not allow_remote:
            advice = "Leave it out; or allow remote use, knowing that whoever sees the address can use the page."
            raise refusal("serve", "host", "must be this machine (127.0.0.1)", host, advice)
        if not local:
            warnings.warn(
                f"The page is open to other machines at {host}: whoever learns its address can use it, and the "
                "connection is not encrypted.",
                NoisewiseWarning,
                stacklevel=3,
            )
        from noisewise.page.application import application  # needs Shiny; `_needed` has checked that it is installed

        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        token = secrets.token_urlsafe(24)
        self.url = f"http://{_written(host)}:{self.port}/{token}/"
        try:
            self.runs = Runs(Path(folder))
        except InputError:
            self._socket.close()
            raise
        hosts = [f"{name}:{self.port}" for name in (*LOOPBACK, _written(host))] if local else None
        settings: dict[str, Any] = {
            "log_level": "warning",
            "access_log": False,
            "lifespan": "on",
            "ws": "websockets-sansio",
        }
        settings |= {"ws_max_size": LARGEST_MESSAGE, "timeout_graceful_shutdown": 2, "server_header": False}
        self._server = uvicorn.Server(uvicorn.Config(application(self.runs, token, hosts), **settings))

    def run(self) -> None:
        """Answer requests until Ctrl-C or `stop`; then end the processes that compute."""
        try:
            self.runs.warm()
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()
            self.runs.close()

    def stop(self) -> None:
        """Make `run` return, from another thread."""
        self._server.should_exit = True


def serve(
    folder: str | os.PathLike[str] = "noisewise-runs",
    port: int = 0,
    open_browser: bool = True,
    *,
    host: str = "127.0.0.1",
    allow_remote: bool = False,
) -> None:
    """Serve the page until Ctrl-C, its runs below `folder`; port 0 takes any that is free.

    Only this machine can reach it, unless another `host` is given together with `allow_remote`.
    """
    server = Server(folder, port, host, allow_remote)
    print(
        f"noisewise: the page is at {server.url}\nRuns are kept in {server.runs.folder}. Stop with Ctrl-C.", flush=True
    )
    if open_browser:
        webbrowser.open(server.url)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


def _needed() -> Any:
    """uvicorn; refused where it or Shiny is not installed."""
    try:
        import shiny  # noqa: F401
        import uvicorn
    except ImportError as error:
        advice = "Run pip install 'noisewise[page]', or in a checkout pip install '.[page]'."
        raise InputError(f"the page needs more packages ({error}). {advice}", who="serve", advice=advice) from None
    return uvicorn


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # a browser that connects before the server runs has to wait
    except (OSError, OverflowError) as error:
        listener.close()
        advice = "Choose another, or 0 for any that is free."
        raise refusal("serve", "port", f"must be free ({error})", port, advice) from None
    return listener


__all__ = ["Server", "application", "serve"]
