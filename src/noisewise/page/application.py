"""The page as an ASGI application: who may talk to it, what is drawn, and the files of its runs."""

import contextlib
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount, Route

from noisewise.page.app import page_app
from noisewise.page.files import file_endpoint, report_endpoint
from noisewise.page.guard import Guard
from noisewise.page.runs import Runs


def application(runs: Runs, token: str, hosts: list[str] | None) -> Guard:
    """The guarded ASGI application: the page and the files of its runs, below the token."""
    shiny_app = page_app(runs)

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> Any:
        yield
        await shiny_app.stop()

    routes = [
        Route(f"/{token}/report/{{number:int}}", report_endpoint(runs), methods=["GET"]),
        Route(f"/{token}/files/{{number:int}}/{{name}}", file_endpoint(runs), methods=["GET"]),
        Mount(f"/{token}", app=shiny_app),
    ]
    assert isinstance(shiny_app.ui, dict)  # rendered once, the same for everybody
    return Guard(Starlette(routes=routes, lifespan=lifespan), token, hosts, shiny_app.ui["html"])
