"""Downloads: the files of runs, by the run's number and one of a few fixed names."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response

if TYPE_CHECKING:
    from noisewise.page.runs import Runs

KINDS = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".nc": "application/x-netcdf",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
}


def file_endpoint(runs: "Runs") -> Callable[[Request], Awaitable[Response]]:
    """Answers `files/NUMBER/NAME`. Both are looked up, never joined into a path: there is nothing to traverse."""

    async def endpoint(request: Request) -> Response:
        run = runs.get(request.path_params["number"])
        name = request.path_params["name"]
        path = run.file(name) if run is not None else None
        if run is None or path is None:
            return PlainTextResponse("noisewise: no such file.\n", status_code=404)
        saved = f"noisewise-run-{run.number}-{name}"
        return FileResponse(path, media_type=KINDS[path.suffix], filename=saved)  # an attachment: never shown as a page

    return endpoint


def report_endpoint(runs: "Runs") -> Callable[[Request], Awaitable[Response]]:
    """Answers `report/NUMBER`: the report as a page of its own. It has no script, and its policy allows none."""

    async def endpoint(request: Request) -> Response:
        run = runs.get(request.path_params["number"])
        path = run.file("report.html") if run is not None else None
        if path is None:
            return PlainTextResponse("noisewise: no such report.\n", status_code=404)
        return FileResponse(path, media_type=KINDS[path.suffix])

    return endpoint
