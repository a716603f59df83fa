"""The page: who may talk to it, what it computes, and the whole of it in a real browser."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlsplit

import numpy as np
import pytest
from browser import kept, opened, overflow, picture, serious_findings
from exactness import LIMIT
from mechanism_case import all_cases
from scipy.stats import norm

import noisewise as nw
from noisewise.analysis import Analysis, DesignFile, starter
from noisewise.analysis.analysis import STARTERS
from noisewise.analysis.expected import law_between
from noisewise.errors import InputError, NoisewiseWarning
from noisewise.inference.problem import Problem
from noisewise.report.markup import number
from noisewise.studies import design as design_module
from noisewise.studies.designs.simulation import ENOUGH, Simulation
from noisewise.workflow.designing import run_design

pytest.importorskip("shiny", reason="the page needs noisewise[page]")

from noisewise.page import Server, budget, compute, editor, explore, form, guard, job_queue, release_text
from noisewise.page import runs as page_runs
from noisewise.page.results import cards_ui, run_state
from noisewise.page.runs import AHEAD, FILES, MOST_WAITING, Run, Runs
from noisewise.page.worker import Cancelled

COUNT = starter("count").replace("draws = 10000", "draws = 2000")
LONG = starter("count").replace("draws = 10000", "draws = 6000000")
PATIENCE = 120


def until(condition, seconds=PATIENCE):
    """Wait for something another process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A page that explores nothing unasked: it would keep a processor busy after every run."""
    from shiny.reactive import _core

    patched = pytest.MonkeyPatch()
    patched.setattr(page_runs, "AHEAD", ())
    _core._reactive_environment._lock = None  # of this process, and bound to the loop of a server before this one
    found = Server(tmp_path_factory.mktemp("page"))
    thread = threading.Thread(target=found.run)
    thread.start()
    until(lambda: found._server.started)
    yield found
    found.stop()
    thread.join(timeout=30)
    patched.undo()
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def finished(server):
    """A run that is done, and its page's address."""
    run = server.runs.start(COUNT, "A privatised count")
    until(lambda: run.over)
    assert run.state == "done", run.message
    return run


def get(server, path, method="GET", body=None, **headers):
    """One request, sent as it is: nothing is normalised on the way."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # an answer before all was sent
            connection.request(method, path, body=body, headers=named)
        answer = connection.getresponse()
        content = b""
        with contextlib.suppress(ConnectionResetError):  # refused with the request's body unread: the status has come
            content = answer.read()
        return answer.status, dict(answer.getheaders()), content
    finally:
        connection.close()


def root(server):
    return urlsplit(server.url).path


# Who may talk to it -----------------------------------------------------------------------------------------


def test_the_whole_address_opens_the_page(server):
    status, headers, body = get(server, root(server))
    assert status == 200
    assert b"Analysis file" in body
    assert len(root(server).strip("/")) >= 32
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", "/wrong/", "/assets/page.css", "/websocket/", "//", "", "*"])
def test_without_the_token_nothing_is_served(server, path):
    status, headers, body = get(server, path)
    assert status in (400, 403)  # 400: not even a path
    assert b"Analysis file" not in body
    if status == 403:
        assert headers["x-content-type-options"] == "nosniff"


def test_a_token_that_is_nearly_right_is_wrong(server):
    token = root(server).strip("/")
    for near in (token[:-1], token + "x", token.swapcase(), token[::-1], "%2e/" + token):
        assert get(server, f"/{near}/")[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "127.0.0.1:1"]
)
def test_a_foreign_host_is_refused(server, host):
    assert get(server, root(server), Host=host.format(port=server.port))[0] == 403


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1", "file://"]
)
def test_a_foreign_origin_is_refused(server, origin):
    assert get(server, root(server), Origin=origin)[0] == 403
    assert get(server, root(server) + "session/x/upload/y?w=", "POST", b"{}", Origin=origin)[0] == 403


def test_requests_of_other_sites_pages_are_refused(server):
    for site in ("cross-site", "same-site"):
        assert get(server, root(server), Sec_Fetch_Site=site)[0] == 403
    own = f"http://127.0.0.1:{server.port}"
    assert get(server, root(server), Origin=own, Sec_Fetch_Site="same-origin")[0] == 200


def test_websockets_need_token_and_origin(server):
    sync = pytest.importorskip("websockets.sync.client")
    from websockets.exceptions import InvalidStatus

    own, address = f"http://127.0.0.1:{server.port}", server.url.replace("http", "ws") + "websocket/"
    with sync.connect(address, origin=own) as connection:
        connection.send(json.dumps({"method": "init", "data": {}}))
        assert "config" in json.loads(connection.recv(timeout=30))
    bare = address.replace(root(server), "/")
    refused = [(address, "https://evil.example"), (address, None), (address, "null"), (bare, own)]
    for where, origin in refused:
        with pytest.raises(InvalidStatus) as caught, sync.connect(where, origin=origin):
            pass
        assert caught.value.response.status_code == 403


def test_each_check_of_the_guard_refuses_alone(server):
    """Negative control: with one rule taken away, the very same request passes."""
    token, port = root(server).strip("/"), server.port
    hosts = [f"127.0.0.1:{port}"]

    def refused(known, path=f"/{token}/", **headers):
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "path": path, "headers": pairs}
        return guard.Guard(None, token, known).refusal(scope) is not None

    assert refused(hosts, host="evil.example")
    assert not refused(None, host="evil.example")
    assert refused(hosts, host=hosts[0], origin="http://evil.example")
    assert not refused(hosts, host=hosts[0], origin=f"http://{hosts[0]}")
    assert refused(hosts, path="/", host=hosts[0])
    assert not refused(hosts, host=hosts[0])


def test_large_bodies_are_refused_stated_or_not(server):
    path = root(server) + "session/x/upload/y?w="
    assert get(server, path, "POST", b"x" * (guard.LARGEST_BODY + 1))[0] == 413
    chunks = iter([b"x" * 500_000] * 6)
    assert get(server, path, "POST", chunks)[0] == 413  # in chunks, no length stated
    assert get(server, path, "POST", b"x" * 1000)[0] == 404  # no such session


def test_only_this_machine_unless_said_twice(tmp_path):
    with pytest.raises(InputError, match="must be this machine"):
        Server(tmp_path, host="0.0.0.0")
    with pytest.warns(NoisewiseWarning, match="open to other machines"):
        found = Server(tmp_path, host="0.0.0.0", allow_remote=True)
    found._socket.close()
    found.runs.close()


def test_a_port_in_use_and_a_bad_folder_are_refused(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="'port' must be free"):
        Server(tmp_path, port=server.port)
    with pytest.raises(InputError, match="'folder' must be writable"):
        Server(tmp_path / "file")


@contextlib.contextmanager
def served(folder):
    """The command and the address that it prints."""
    command = [sys.executable, "-m", "noisewise", "serve", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, re.search(r"http://127\.0\.0\.1:\d+/\S+/", process.stdout.readline())[0]
        finally:
            process.kill()


@contextlib.contextmanager
def left_behind(chromium, address, tmp_path):
    """A window with the page at an address; it must notice that the server ends meanwhile, and say so in words."""
    page = chromium.new_page()
    try:
        page.goto(address)
        page.wait_for_selector("#check_message .found", timeout=1000 * PATIENCE)
        assert not page.is_visible("#gone")
        assert page.is_disabled("#epsilon"), "no run to explore"
        assert page.inner_text("#epsilon_text") == ""
        yield
        page.wait_for_selector("#gone:not([hidden])", timeout=1000 * PATIENCE)
        assert "Start noisewise serve again" in page.inner_text("#gone")
        assert not page.is_visible("#run")
        picture(page, kept("page-gone.png", tmp_path))
    finally:
        page.close()


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.skipif(os.name != "posix", reason="stops by a signal")
def test_the_command_serves_until_it_is_interrupted(chromium, tmp_path):
    with served(tmp_path / "runs") as (process, address):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address, timeout=60) as answer:
            assert b"Analysis file" in answer.read()
        with left_behind(chromium, address, tmp_path):
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0, process.stderr.read()
            assert "Traceback" not in process.stderr.read()


# Files ------------------------------------------------------------------------------------------------------


TRAVERSALS = [
    "files/{n}/../../secret.txt",
    "files/{n}/..%2f..%2fsecret.txt",
    "files/{n}/%2e%2e/%2e%2e/secret.txt",
    "files/{n}/..\\..\\secret.txt",
    "files/{n}//etc/passwd",
    "files/{n}/%2fetc%2fpasswd",
    "files/{n}/page.json",
    "files/{n}/results",
    "files/{n}/draws.csv%00.html",
    "files/{n}/",
    "files/0/analysis.toml",
    "files/999999/analysis.toml",
    "files/-1/analysis.toml",
    "files/1e0/analysis.toml",
    "files/../files/{n}/page.json",
    "assets/../compute.py",
    "assets/%2e%2e/compute.py",
    "lib/../../secret.txt",
]


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_out_of_the_run(server, finished, path):
    (server.runs.folder.parent / "secret.txt").write_text("confidential")
    (server.runs.folder / "secret.txt").write_text("confidential")
    status, _, body = get(server, root(server) + path.format(n=finished.number))
    assert status in (400, 403, 404, 405)
    assert b"confidential" not in body
    assert b"root:" not in body
    assert b"def explore" not in body


def test_a_link_planted_in_a_run_leads_nowhere(tmp_path):
    secret, folder = tmp_path / "secret.txt", tmp_path / "run-0001"
    secret.write_text("confidential")
    folder.mkdir()
    (folder / "analysis.toml").symlink_to(secret)
    assert Run({}, number=1, folder=folder).file("analysis.toml") is None


def test_files_come_as_attachments(server, finished):
    for name in FILES:
        if finished.file(name) is None:
            continue
        status, headers, body = get(server, f"{root(server)}files/{finished.number}/{name}")
        assert status == 200
        assert headers["content-disposition"].startswith("attachment")
        assert headers["x-content-type-options"] == "nosniff"
        assert body == finished.file(name).read_bytes()


# What it computes -------------------------------------------------------------------------------------------


def test_the_page_gives_the_numbers_of_the_library(finished):
    analysis = Analysis.from_text(COUNT)
    found = nw.compare(analysis.model, analysis.release, draws=2000, seed=1)
    kept = nw.Posterior.load(finished.folder / "results" / "posterior.nc")
    np.testing.assert_array_equal(kept["theta"], found.exact["theta"])
    assert finished.result["rows"][0]["name"] == "cases", "what was asked for comes first"
    assert finished.result["cards"][0]["label"] == "The number of cases (cases)"
    row = next(row for row in finished.result["rows"] if row["name"] == "theta")
    assert row["exact"] == pytest.approx(found.exact.summary().loc["theta"].to_list()[:4], rel=1e-12)
    assert row["naive"] == pytest.approx(found.naive.summary().loc["theta"].to_list()[:4], rel=1e-12)


def test_a_failing_run_says_why_and_the_next_one_runs(server):
    text = COUNT.replace("[inference]", '[inference]\nmethod = { name = "Rejection", max_proposals = 1000 }')
    run = server.runs.start(text.replace("value = 37.4", "value = 120"), "hopeless")
    again = server.runs.start(COUNT, "fine")
    until(lambda: again.over)
    assert run.state == "done", run.message
    assert (run.result["rows"], run.result["verdict"]["state"]) == ([], "bad")
    assert any("max_proposals" in line for line in run.result["verdict"]["lines"])
    assert run.file("report.html") is not None
    assert run_state(run) == "finished, but fell short"
    assert not run.explorable
    assert again.state == "done"
    assert run_state(again) == "finished"
    assert again.explorable


def test_a_run_that_fell_short_keeps_what_it_has(server):
    method = '[inference]\nmethod = { name = "Rejection", max_proposals = 20000 }'
    run = server.runs.start(starter("count").replace("[inference]", method), "short")
    until(lambda: run.over)
    assert run.state == "done", run.message
    assert run.result["status"] == "max_proposals"
    assert run.result["verdict"]["state"] == "look"
    kept = nw.Posterior.load(run.file("posterior.nc"))
    theta = next(row for row in run.result["rows"] if row["name"] == "theta")
    assert theta["exact"][0] == pytest.approx(kept["theta"].mean())
    assert 0 < run.result["draws"] == len(kept) < 10_000


def test_an_earlier_sessions_runs_are_found_again(server, finished, tmp_path):
    shutil.copytree(finished.folder, tmp_path / "run-0007")
    (tmp_path / "run-0009").mkdir()
    (tmp_path / "run-0008").write_text("not a folder")
    (tmp_path / "run-0006").mkdir()
    (tmp_path / "run-0006" / "analysis.toml").write_text(COUNT)
    found = Runs(tmp_path)
    try:
        first, second, third = found
        assert (first.number, first.state, first.title) == (9, "cancelled", "earlier run")
        assert (third.state, third.title) == ("cancelled", "A privatised count")
        assert (second.number, second.state, second.title) == (7, "done", "A privatised count")
        assert second.result == finished.result
        found._queue.submit = lambda job: None  # nothing is computed
        assert found.start(COUNT, "new").number == 10
    finally:
        found.close()


def test_the_queue_is_bounded_and_what_waits_can_be_cancelled(tmp_path):
    found = Runs(tmp_path)
    try:
        runs = [found.start(LONG, "long") for _ in range(MOST_WAITING)]
        until(lambda: runs[0].state == "running")
        runs.append(found.start(LONG, "long"))
        with pytest.raises(job_queue.Full, match="Too many runs wait"):
            found.start(LONG, "one too many")
        assert len(list(tmp_path.iterdir())) == MOST_WAITING + 1
        for run in runs:
            found.cancel(run.number)
        until(lambda: all(run.over for run in runs))
        assert {run.state for run in runs} == {"cancelled"}
    finally:
        found.close()
    assert found._queue._process.poll() is not None


def test_a_process_that_died_is_replaced():
    found = job_queue.JobQueue(2)
    try:
        job = job_queue.Job({"task": "none"})
        found.warm()
        found._process.kill()
        found._process.wait()
        found.submit(job)
        until(lambda: job.over)
        assert job.state == "done"
    finally:
        found.close()


def test_moving_epsilon_gives_the_posterior_at_that_epsilon(server, finished):
    job = server.runs.explore(finished, 2.0)
    assert server.runs.explore(finished, 2.0) is job  # asked once
    until(lambda: job.over)
    assert job.state == "done", job.message
    row = job.result["rows"][0]
    analysis = Analysis.from_text(COUNT)
    release = nw.Release(count=nw.Laplace(epsilon=0.4, sensitivity=1.0).released(37.4))
    theta = nw.sample(analysis.model, release, draws=20_000, seed=1)["theta"]
    for end, level in zip(row["same"], (0.025, 0.975), strict=True):
        error = np.sqrt(level * (1 - level) * (1 / 20_000 + 1 / ENOUGH))  # of the share below, both sides simulated
        assert abs(np.mean(theta < end) - level) < LIMIT * error
    assert row["releases"] == 8
    low, high = np.quantile(theta, [0.025, 0.975])
    assert 0.5 * (high - low) < row["expected"] < 2 * (high - low)


def test_budgets_are_explored_before_anybody_asks(server, monkeypatch):
    monkeypatch.setattr(page_runs, "AHEAD", AHEAD[:2])
    runs = server.runs
    run = runs.start(COUNT, "count")
    ahead = [(run.number, 2.0**step) for step in AHEAD[:2]]
    until(lambda: all(key in runs._explored and runs._explored[key].over for key in ahead), 2 * PATIENCE)
    assert runs.explored(run) == []  # shown only when somebody asks
    job = runs.explore(run, 2.0)
    assert job is runs._explored[run.number, 2.0]
    assert job.state == "done", job.message
    assert [each["factor"] for each in runs.explored(run)] == [2.0]


def test_a_question_comes_before_what_nobody_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(page_runs, "AHEAD", AHEAD)
    found = Runs(tmp_path)
    run = Run({}, number=1, folder=tmp_path, result={"rows": [1], "verdict": {"state": "good"}})
    found._runs[1] = run
    try:
        found._beside.submit = lambda job: None  # nothing is computed
        found._look_ahead(run)
        assert list(found._explored) == [(1, 2.0 ** AHEAD[0])]
        found.explore(run, 2.0**0.5)
        assert list(found._explored) == [(1, 2.0**0.5)]
        assert [factor for _, factor in found._ahead] == [2.0**step for step in AHEAD]
        found.stop(found.explorations[0])
        assert found._ahead == []
    finally:
        found.close()


def test_a_job_that_is_put_off_leaves_its_process_to_the_next(tmp_path):
    (tmp_path / "analysis.toml").write_text(LONG)
    found = job_queue.JobQueue(1)
    try:
        first = job_queue.Job({"task": "run", "folder": str(tmp_path)})
        found.submit(first)
        until(lambda: first.stage)
        process = found._process
        found.cancel(first, gently=True)
        second = job_queue.Job({"task": "none"})
        found.submit(second)
        until(lambda: second.over)
        assert (first.state, second.state) == ("cancelled", "done")
        assert found._process is process
    finally:
        found.close()


# Designs ----------------------------------------------------------------------------------------------------

PLAN = """
[question]
title = "Two groups"
text = "By how much do the groups differ?"

[answers]
gap = "a - b"

[parameters]
a = "Normal(0, 2)"
b = "Normal(0, 2)"

[statistics]
x = "Normal(a, 0.2)"
y = "Normal(b, 0.2)"

[words]
gap = { label = "The gap", unit = "points" }

[design]
target = { sd = "gap", at_most = 0.5 }
split = { rho = 0.5 }
budgets = [0.01, 100]

[design.plan.x]
mechanism = "Gaussian"
sensitivity = 0.2
budget = "rho"

[design.plan.y]
mechanism = "Gaussian"
sensitivity = 0.8
budget = "rho"
"""
PLAN_RELEASE = "".join(f'[release.{name}]\nvalue = 1.0\nmechanism = "Gaussian"\nscale = 0.5\n' for name in "xy")
SIMULATED_PLAN = """
[parameters]
theta = "Normal(0, 2)"

[statistics]
mean = "Normal(theta, 1)"

[design]
target = { sd = "theta", at_most = 1.5 }
budgets = [0.1, 2.0]
replicates = 16
tolerance = 9.0

[design.plan.mean]
mechanism = "Laplace"
sensitivity = 1
budget = "epsilon"
"""
LONG_PLAN = SIMULATED_PLAN.replace("replicates = 16", "replicates = 1000000")


def test_a_file_may_be_fitted_designed_or_both():
    texts = {"plan": PLAN, "fit": COUNT, "both": PLAN + PLAN_RELEASE}
    outcomes = {name: editor.check_text(text) for name, text in texts.items()}
    assert {name: (each.fits, each.designs) for name, each in outcomes.items()} == {
        "plan": (False, True),
        "fit": (True, False),
        "both": (True, True),
    }
    assert outcomes["plan"].summary == (
        "In order, as a plan. Parameters: a, b. Planned: x, y. Run design answers it; to fit, add a release."
    )
    assert outcomes["plan"].form.priors["a"] == ("-3.92", "3.92")
    people = PLAN.replace("split = { rho = 0.5 }\nbudgets = [0.01, 100]", "people = { n = [50, 500], budgets = [1] }")
    assert "settle what [design] leaves open" in editor.check_text(people + PLAN_RELEASE).summary
    for wrong in (PLAN.replace("sd =", "sdd ="), PLAN + PLAN_RELEASE.replace("Gaussian", "Gauss")):
        outcome = editor.check_text(wrong)
        assert "line " in outcome.error
        assert "^" in outcome.place
        assert not outcome.designs


def test_a_design_of_the_page_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    """It ends as if it had not been stopped; a checkpoint that is not to be used is begun anew, and none is left."""
    monkeypatch.setattr(design_module, "PLACES", 3)
    computed, batches, told = Simulation._computed, [], []

    def counted(self, plans, batch):
        batches.append(batch)
        return computed(self, plans, batch)

    def cut(stage, done, total):
        told.append((stage, done, total))
        if len(batches) == 2:
            raise Cancelled

    def found():
        batches.clear()
        return compute._designed(file, checkpoint).to_dict(), len(batches)

    monkeypatch.setattr(Simulation, "_computed", counted)
    file, checkpoint = DesignFile.from_text(SIMULATED_PLAN), tmp_path / "checkpoints" / "run.nwc"
    with pytest.raises(Cancelled), compute._releases_counted(cut):
        compute._designed(file, checkpoint)
    assert told[-1] == ("looking for the budget", 24, 48)
    resumed, few = found()
    compute._forget(checkpoint)
    whole, all_batches = found()
    assert resumed == whole
    assert few == all_batches - 1, "the second batch was there; the first is computed again as a check"
    (tmp_path / "analysis.toml").write_text(SIMULATED_PLAN)
    checkpoint.write_text("of another version")
    shown = compute.answer_design(tmp_path, checkpoint, lambda *_: None)
    assert shown["sentences"] == whole["sentences"]
    assert not checkpoint.exists()


# Weighing a run's draws anew --------------------------------------------------------------------------------


def normal_analysis(scale=1.5):
    text = f"""
    [parameters]
    theta = "Normal(0, 2)"
    [statistics]
    s = "Normal(theta, 1)"
    [release.s]
    value = 1.3
    mechanism = "Gaussian"
    scale = {scale}
    """
    return Analysis.from_text(text)


def normal_posterior(scale, value=1.3):
    """The exact law of theta: prior variance 4, that of the release given theta 1 + scale^2."""
    share = 4.0 / (5.0 + scale**2)
    return norm(share * value, np.sqrt(4.0 * (1.0 - share)))


def off_by(factor, seed, draws=4_000, mistaken=False):
    """How far the ends found by weighing are from where they should be, in Monte Carlo errors of the least size."""
    analysis = normal_analysis()
    posterior = nw.sample(analysis.model, analysis.release, nw.Rejection(), draws=draws, seed=seed)
    cloud = explore.pooled_rows(Problem(analysis.model, analysis.release), posterior, seed)
    if mistaken:
        cloud = replace(cloud, log_base=np.zeros(len(cloud.log_base)))
    release = budget.release_at(analysis.release, factor)
    explorer = explore.Explorer(analysis, posterior, cloud)
    found = explorer.intervals(release)
    assert explorer.simulation.sampled == 0
    error, law = np.sqrt(0.025 * 0.975 / ENOUGH), normal_posterior(1.5 / factor)
    return max(abs(law.cdf(end) - level) for end, level in zip(found["theta"], (0.025, 0.975), strict=True)) / error


@pytest.mark.parametrize("factor", [0.25, 1.0, 4.0])
def test_rows_weighed_anew_give_the_posterior_at_another_budget(factor, seed):
    assert off_by(factor, seed) < LIMIT


def test_rows_taken_for_the_priors_give_another_one(seed, monkeypatch):
    """Negative control: most rows are the posterior's, and their density is left out of the weights."""
    monkeypatch.setattr(explore, "MOST_BLOCKS", 1)
    assert off_by(0.25, seed, 40_000) < LIMIT
    assert off_by(0.25, seed, 40_000, mistaken=True) > LIMIT


def test_expected_widths_are_those_of_the_closed_form(seed):
    """Every release of a normal model has the same width: prior variance 4, noise of half the scale."""
    analysis = normal_analysis()
    posterior = nw.sample(analysis.model, analysis.release, nw.Rejection(), draws=4_000, seed=seed)
    cloud = explore.pooled_rows(Problem(analysis.model, analysis.release), posterior, seed)
    explorer = explore.Explorer(analysis, posterior, cloud)
    widths = explorer.widths(budget.release_at(analysis.release, 2.0))
    assert widths.shape == (1, 8)
    low, high = normal_posterior(0.75).ppf([0.025, 0.975])
    assert widths[0] == pytest.approx(high - low, rel=0.2)  # ends off by 4 errors of 400 draws
    assert np.mean(widths) == pytest.approx(high - low, rel=0.1)
    assert explorer.simulation.sampled == 0


def test_where_the_rows_are_worth_too_little_the_posterior_is_sampled(seed):
    analysis = normal_analysis()
    posterior = nw.sample(analysis.model, analysis.release, nw.Rejection(), draws=500, seed=seed)
    cloud = explore.pooled_rows(Problem(analysis.model, analysis.release), posterior, seed)
    explorer = explore.Explorer(analysis, posterior, replace(cloud, worth=1e-6))
    low, high = explorer.intervals(analysis.release)["theta"]
    assert explorer.simulation.sampled == 1
    assert explorer.simulation.sampler.way[0] == explore.QUICK[0][0]
    error, law = np.sqrt(0.025 * 0.975 / ENOUGH), normal_posterior(1.5)
    assert abs(law.cdf(low) - 0.025) < LIMIT * error
    assert abs(law.cdf(high) - 0.975) < LIMIT * error
    exact = Analysis.from_text(normal_analysis().to_text().replace("Gaussian", "Exact").replace("scale = 1.5\n", ""))
    assert explore.pooled_rows(Problem(exact.model, exact.release), posterior, seed) is None


# Budgets ----------------------------------------------------------------------------------------------------


def law(mechanism):
    """A mechanism's data without what it was calibrated to."""

    def stripped(entry):
        if isinstance(entry, list):
            return [stripped(part) for part in entry]
        if not isinstance(entry, dict):
            return entry
        return {key: stripped(value) for key, value in entry.items() if key != "guarantee"}

    return stripped(mechanism.to_dict())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (nw.Laplace(epsilon=0.2, sensitivity=1.0), nw.Laplace(epsilon=0.6, sensitivity=1.0)),
        (nw.Laplace(scale=3.0), nw.Laplace(scale=1.0)),
        (
            nw.Gaussian(epsilon=0.5, delta=1e-6, sensitivity=2.0),
            nw.Gaussian(epsilon=1.5, delta=1e-6, sensitivity=2.0),
        ),
        (nw.Gaussian(rho=0.5, sensitivity=2.0), nw.Gaussian(rho=4.5, sensitivity=2.0)),
        (nw.Gaussian(mu=0.5, sensitivity=2.0), nw.Gaussian(mu=1.5, sensitivity=2.0)),
        (nw.DiscreteLaplace(epsilon=0.5, sensitivity=2), nw.DiscreteLaplace(epsilon=1.5, sensitivity=2)),
        (nw.RandomizedResponse(epsilon=0.5, categories=3), nw.RandomizedResponse(epsilon=1.5, categories=3)),
        (nw.Exact(), nw.Exact()),
    ],
    ids=repr,
)
def test_three_times_the_budget(before, after):
    moved = law(budget.mechanism_at(before, 3.0))
    wanted = law(after)
    assert moved.keys() == wanted.keys()
    for key, value in wanted.items():
        if isinstance(value, (float, list)):
            np.testing.assert_allclose(moved[key], value, rtol=1e-9)
        else:
            assert moved[key] == value


def test_every_mechanism_at_its_own_budget_is_itself_or_refused():
    moved = 0
    for case in all_cases():
        with contextlib.suppress(InputError):
            again = budget.mechanism_at(case.mechanism, 1.0)
            assert budget._same(law(again), law(case.mechanism)), case.mechanism
            moved += 1
    assert moved > len(all_cases()) / 2


# Releases in the text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STARTERS)
def test_a_release_put_into_a_starter_changes_nothing_else(name):
    text = starter(name)
    before = Analysis.from_text(text)
    made = release_text.with_release(text, before.release)
    after = Analysis.from_text(made)
    assert after.release == before.release
    assert {**after.content, "release": 0} == {**before.content, "release": 0}
    assert sum(line.startswith("#") for line in made.splitlines()) == sum(
        line.startswith("#") for line in text.splitlines()
    )


def test_a_typed_value_replaces_its_statistic_and_leaves_the_others():
    text = starter("means")
    entry = release_text.from_form("mean_treated", "7.5", "Laplace", {"scale": "0.3"})
    made = Analysis.from_text(release_text.with_statistic(text, "mean_treated", entry))
    assert made.release["mean_treated"] == nw.Laplace(scale=0.3).released(7.5)
    assert made.release["mean_control"] == Analysis.from_text(text).release["mean_control"]


def test_an_unclear_place_is_refused_rather_than_guessed():
    text = COUNT.replace('text = "How', 'text = """\n[release.count]\nHow').replace('noise?"', 'noise?"""')
    release = nw.Release(count=nw.Laplace(scale=1.0).released(3.0))
    with pytest.raises(InputError, match="put it in by hand"):
        release_text.with_release(text, release)


@pytest.mark.parametrize(
    ("value", "arguments", "cause"),
    [
        ("", {"scale": "1"}, "'value' must be given"),
        ("[1, 2", {"scale": "1"}, "must be a number or a list"),
        ("3", {"scale": "-1"}, "scale"),
        ("3", {}, "scale"),
        ("__import__('os')", {"scale": "1"}, "value"),
    ],
)
def test_what_is_typed_is_checked_like_a_file(value, arguments, cause):
    with pytest.raises(InputError, match=cause):
        release_text.from_form("count", value, "Laplace", arguments)


def test_the_form_offers_every_mechanism_with_its_arguments():
    for name in release_text.MECHANISMS:
        assert name in nw.mechanisms.CATALOGUE
        offered = {each for names in release_text.alternatives(name) for each in names}
        offered |= set(release_text.optional(name))
        assert offered == set(nw.mechanisms.CATALOGUE[name].arguments)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"format": 1}', b"[" * 100_000])
def test_an_upload_that_is_no_release_is_refused(content):
    with pytest.raises(InputError):
        release_text.from_upload(content)


# The form -----------------------------------------------------------------------------------------------------


def test_the_form_shows_what_the_file_says():
    shown = form.form_of_analysis(Analysis.from_text(starter("means")))
    assert shown.values == {"mean_treated": "29.4", "mean_control": "22.6"}
    assert shown.noise["mean_treated"] == ("epsilon", "1.0")
    assert shown.priors["treated"] == ("11.2", "53.7")


def test_a_number_of_the_form_changes_that_number_alone():
    made = form.with_value(COUNT, "count", "value", "41.5")
    assert made == COUNT.replace("value = 37.4", "value = 41.5")
    listed = form.with_value(starter("histogram"), "counts", "value", "[1, 2, 3, 4]")
    assert listed == starter("histogram").replace("[103, 188, 151, 66]", "[1, 2, 3, 4]")
    for typed in ("4 1", "", "x", "1\n[other]"):
        with pytest.raises(InputError):
            form.with_value(COUNT, "count", "value", typed)


def test_what_is_expected_becomes_the_prior():
    made = form.with_prior(COUNT, "theta", "16", "36")
    law = Analysis.from_text(made).content["parameters"]["theta"]
    assert law.startswith("Gamma(")
    assert made == COUNT.replace('"Gamma(25, 1)"', f'"{law}"')
    with pytest.raises(InputError, match="two numbers, the smaller first, without commas"):
        form.with_prior(COUNT, "theta", "1,600", "3,600")


@pytest.mark.parametrize(
    ("typed", "present"),
    [
        (("20", "45"), "Gamma(25, 1)"),
        (("0.1", "30"), "Gamma(25, 1)"),
        (("20000", "45250"), "Gamma(25, 1)"),
        (("20", "45.255"), "HalfNormal(9)"),
        (("0", "10"), "Normal(5, 1)"),
        (("-0.5", "0.25"), "Normal(5, 1)"),
        (("0.1", "0.45"), "Beta(1, 1)"),
        (("0.00002", "300.5"), "LogNormal(0, 1)"),
    ],
)
def test_what_was_typed_comes_back_as_typed(typed, present):
    file = COUNT.replace("Poisson(theta)", "Normal(theta, 1)").replace("Gamma(25, 1)", present)
    made = form.with_prior(file, "theta", *typed)
    back = form.form_of_analysis(Analysis.from_text(made)).priors["theta"]
    assert tuple(map(float, back)) == tuple(map(float, typed))
    assert all(len(shown) <= len(number) + 1 for shown, number in zip(back, typed, strict=True))


def test_ends_that_nobody_typed_are_rounded():
    assert form.form_of_analysis(Analysis.from_text(COUNT)).priors["theta"] == ("16.2", "35.7")
    far = COUNT.replace("Poisson(theta)", "Normal(theta, 1)").replace("Gamma(25, 1)", "Normal(123456, 1000.1234)")
    assert form.form_of_analysis(Analysis.from_text(far)).priors["theta"] == ("121000", "125000")


@pytest.mark.parametrize(
    ("ends", "present", "law"),
    [
        ((16.0, 36.0), "Gamma(1, 1)", "gamma"),
        ((-3.0, 5.0), "Normal(0, 1)", "norm"),
        ((0.1, 0.4), "Beta(1, 1)", "beta"),
        ((1.0, 80.0), "LogNormal(0, 1)", "lognorm"),
        ((-1.0, 4.0), "HalfNormal(1)", "norm"),
    ],
)
def test_the_law_between_two_ends_has_its_middle_there(ends, present, law):
    from scipy import stats

    first, second = map(float, re.findall(r"[-\d.e+]+(?=[,)])", law_between(*ends, present)))
    made = {
        "gamma": lambda: stats.gamma(first, scale=1 / second),
        "norm": lambda: stats.norm(first, second),
        "beta": lambda: stats.beta(first, second),
        "lognorm": lambda: stats.lognorm(second, scale=np.exp(first)),
    }[law]()
    assert made.cdf(ends) == pytest.approx([0.025, 0.975], abs=5e-4)


def test_the_legend_names_what_is_drawn_and_no_more():
    spread = [1.0, 1.0, 0.0, 2.0]
    row = {"name": "a", "label": "A", "exact": spread, "naive": None, "prior": spread}
    rows = [row, {**row, "name": "b", "label": "B", "naive": spread}]
    for label, kinds in (("A", ["exact", "prior"]), ("B", ["exact", "naive", "prior"])):
        shown = str(cards_ui({"cards": [{"label": label, "svg": ""}], "rows": rows}))
        assert re.findall(r'class="key (\w+)"', shown) == kinds


# In a browser -----------------------------------------------------------------------------------------------


@pytest.fixture
def window(chromium, server):
    """A function that opens the page in a fresh window; what went wrong there fails the test.

    Nothing moves there unless it is asked for: to draw every step takes more than all else that the browser does.
    """
    wrong, contexts = [], []

    def open_page(width=1280, height=1000, scheme="light", motion="reduce"):
        size = {"width": width, "height": height}
        context = chromium.new_context(viewport=size, accept_downloads=True, color_scheme=scheme, reduced_motion=motion)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("response", lambda found: wrong.append(found.url) if found.status >= 400 else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda sent: None if _own(sent.url, server) else wrong.append(sent.url))
        page.goto(server.url)
        page.wait_for_selector("#check_message > *")
        return page

    open_page.wrong = wrong
    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def _own(address, server):
    return address.startswith((server.url, server.url.replace("http", "ws"), "data:", "blob:"))


def wait_for_text(page, selector, text):
    """Wait until an element holds a text. (Playwright's own waiting by script is what the page's policy forbids.)"""
    until(lambda: text in page.locator(selector).inner_text())


def wait_for_value(page, text):
    until(lambda: text in page.input_value("#analysis"))


def wait_for_run(page, number, state="finished"):
    wait_for_text(page, "#state", f"Run {number}: {state}")


def newest(server):
    return max((run.number for run in server.runs), default=0)


def test_fill_the_form_run_move_epsilon_and_download(window, chromium, server, tmp_path):
    page = window()
    page.fill("#analysis", COUNT)
    page.click("summary")
    page.fill("#value", "41.5")
    page.select_option("#mechanism", "Laplace")
    page.select_option("#alternative", label="epsilon and sensitivity")
    page.fill("#argument_epsilon", "0.5")
    page.fill("#argument_sensitivity", "1")
    picture(page, kept("page-form.png", tmp_path), full_page=True)
    page.click("#use_value")
    wait_for_value(page, "value = 41.5")
    text = page.input_value("#analysis")
    assert 'theta = "Gamma(25, 1)"' in text
    before = newest(server)
    page.click("#run")
    until(lambda: newest(server) > before)
    wait_for_run(page, before + 1)
    page.wait_for_selector("#verdict")
    analysis = Analysis.from_text(text)
    assert analysis.release["count"] == nw.Laplace(epsilon=0.5, sensitivity=1.0).released(41.5)
    exact = nw.sample(analysis.model, analysis.release, draws=2000, seed=1)
    shown = page.inner_text("#result table")
    assert f"{exact.summary().loc['theta', 'mean']:.4g}" in shown
    card = page.locator("#result svg.panel").first
    assert "Exact: mean" in card.locator("desc").inner_html()
    assert card.bounding_box()["width"] > 100
    page.focus("#epsilon")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute("#epsilon", "aria-valuetext") == "epsilon 0.25"
    page.wait_for_selector("#explored table")
    assert "0.25" in page.inner_text("#explored table")
    page.keyboard.press("ArrowRight")
    until(lambda: page.locator("#explored tbody tr").count() == 2)
    picture(page, kept("page-result.png", tmp_path), full_page=True)
    labels = page.locator("#result .files a").all_inner_texts()
    assert {"analysis file", "release", "draws (CSV)", "draws (NetCDF)"} <= set(labels)
    with page.expect_download() as caught:
        page.click("#result .files a:text-is('draws (CSV)')")
    caught.value.save_as(tmp_path / "draws.csv")
    column = np.loadtxt(tmp_path / "draws.csv", delimiter=",", skiprows=1, usecols=3)
    np.testing.assert_allclose(column, exact["theta"])
    with page.expect_download() as caught:
        page.click("#result .files a:text-is('analysis file')")
    caught.value.save_as(tmp_path / "analysis.toml")
    assert (tmp_path / "analysis.toml").read_text() == text
    with page.expect_download() as caught:
        page.click("#result .files a:text-is('report')")
    caught.value.save_as(tmp_path / "report.html")
    with opened(chromium, tmp_path / "report.html") as watched:  # from disk: it needs no server
        assert watched.page.locator("h1").inner_text() == "A privatised count"
        assert number(exact.summary().loc["theta", "mean"], 4) in watched.page.locator("#answer").inner_text()
        assert watched.requests == [(tmp_path / "report.html").as_uri()]
        assert watched.errors == []


def test_a_mistake_is_shown_with_a_caret_and_is_not_run(window, server, tmp_path):
    page = window()
    before = newest(server)
    page.fill("#analysis", COUNT.replace("Poisson(theta)", "Poison(theta)"))
    page.wait_for_selector("#check_message .wrong")
    told = page.inner_text("#check_message")
    assert "line 23" in told
    assert "Poisson" in told
    assert "^" in told
    page.click("#run")
    page.wait_for_selector("#run_message .wrong")
    picture(page, kept("page-mistake.png", tmp_path), full_page=True)
    page.fill("#analysis", COUNT.replace('"Poisson(theta)"', '"__import__(1)"'))
    wait_for_text(page, "#check_message", "__import__")
    assert newest(server) == before


def test_the_page_does_not_glide(window):
    """A click while it glides falls beside what was aimed at."""
    page = window(motion="no-preference")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_text_of_the_user_is_never_markup(window, server):
    page = window()
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    page.fill("#analysis", COUNT.replace("A privatised count", hostile))
    page.wait_for_selector("#check_message .found")
    before = newest(server)
    page.click("#run")
    until(lambda: newest(server) > before)
    wait_for_run(page, before + 1)
    assert hostile in page.inner_text("#state")
    assert page.locator("img[src=x]").count() == 0
    page.fill("#analysis", COUNT.replace("[parameters]", f"[{hostile!r}]"))
    page.wait_for_selector("#check_message .wrong")
    assert page.locator("img[src=x]").count() == 0


def test_upload_of_a_release_whatever_its_name(window, server):
    page = window()
    release = nw.Release(count=nw.Gaussian(scale=2.0).released(33.0))
    before = sorted(server.runs.folder.parent.rglob("*evil*"))
    content = {
        "name": "../../evil.json",
        "mimeType": "application/json",
        "buffer": json.dumps(release.to_dict()).encode(),
    }
    page.set_input_files("#upload", content)
    wait_for_value(page, "Gaussian")
    wait_for_text(page, "#release_message", "is in the analysis file")
    assert Analysis.from_text(page.input_value("#analysis")).release == release
    assert sorted(server.runs.folder.parent.rglob("*evil*")) == before
    page.set_input_files("#upload", {**content, "buffer": b'{"format": "other"}'})
    page.wait_for_selector("#release_message .wrong")
    assert "noisewise-release" in page.inner_text("#release_message")


def test_a_long_run_shows_progress_and_is_cancelled_while_the_page_answers(window, server, tmp_path):
    page = window()
    page.fill("#analysis", LONG)
    wait_for_text(page, "#check_message", "6,000,000")
    before = newest(server)
    page.click("#run")
    page.wait_for_selector("#bar progress[value]")
    page.fill("#analysis", COUNT)  # the page answers meanwhile
    wait_for_text(page, "#check_message", "2,000 draws")
    picture(page, kept("page-running.png", tmp_path), full_page=True)
    assert server.runs.get(before + 1).state == "running"
    start = time.monotonic()
    page.click("#cancel")
    wait_for_run(page, before + 1, "cancelled")
    assert time.monotonic() - start < 20
    page.click("#run")
    wait_for_run(page, before + 2)


def test_a_design_is_run_cancelled_and_shown(window, server, tmp_path):
    page = window()
    page.fill("#analysis", COUNT)
    wait_for_text(page, "#check_message", "2,000 draws")
    assert not page.is_visible("#design"), "this file asks for no design"
    page.fill("#analysis", LONG_PLAN)
    wait_for_text(page, "#check_message", "In order, as a plan")
    page.wait_for_selector("#design:enabled")
    assert page.is_disabled("#run")
    before = newest(server)
    page.click("#design")
    page.wait_for_selector("#bar progress[value]")
    wait_for_text(page, "#bar", "looking for the budget: ")
    assert "simulated releases" in page.inner_text("#bar")
    page.click("#cancel")
    wait_for_run(page, before + 1, "cancelled")
    assert list(server.runs.folder.glob("checkpoints/*.nwc")), "asked for again, it would go on from there"
    page.fill("#analysis", PLAN + PLAN_RELEASE)
    wait_for_text(page, "#check_message", "Run design answers its plan for x, y")
    page.wait_for_selector("#run:enabled")
    page.click("#design")
    wait_for_run(page, before + 2)
    page.wait_for_selector("#answer")
    found = run_design(DesignFile.from_text(PLAN), progress=False)
    answer, shown = page.inner_text("#answer"), page.inner_text("#result")
    for sentence in found.sentences:
        assert sentence in answer
    for each in ("What to publish", "How it is split", "The best split of rho = 0.5", "got normal noise of"):
        assert each in shown
    curve = page.locator("#result svg.panel")
    assert "osterior standard deviation of the gap (points)" in curve.inner_html()
    assert curve.bounding_box()["width"] > 200
    assert f"rho = {found.study.budget:.3g}" in page.inner_text("#history")
    with page.context.expect_page() as caught:
        page.click("text=Open the report")
    caught.value.wait_for_selector("#split")
    assert caught.value.locator("h1").inner_text() == "Two groups"
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        picture(page, kept(f"page-design-{scheme}.png", tmp_path), full_page=True)
        assert window.wrong == []
        assert serious_findings(page) == []
        window.wrong.clear()  # axe itself asks for a style sheet that is not there
    page.set_viewport_size({"width": 390, "height": 844})
    picture(page, kept("page-design-phone.png", tmp_path), full_page=True)
    assert overflow(page)[0] <= 0


def test_everything_can_be_done_by_keyboard(window, server, finished, tmp_path):
    page = window()

    def tab_to(name):
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == name:
                return
        raise AssertionError(f"Tab does not lead to {name}")

    before = newest(server)
    page.fill("#analysis", COUNT)
    page.evaluate("document.activeElement.blur(); window.getSelection().removeAllRanges()")
    page.evaluate("document.body.tabIndex = -1; document.body.focus()")
    tab_to("run")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    until(lambda: newest(server) > before)
    wait_for_run(page, before + 1)
    page.wait_for_selector("#verdict")
    tab_to("epsilon")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#explored table")
    picture(page, kept("page-keyboard.png", tmp_path))
    tab_to("shown")
    page.keyboard.press("ArrowDown")
    until(lambda: f"Run {before + 1}:" not in page.inner_text("#state"))


def test_a_phone_shows_it_without_sideways_scrolling(window, server, finished, tmp_path):
    page = window(360, 740)
    page.wait_for_selector("#verdict")
    page.fill("#analysis", COUNT.replace("Poisson(theta)", "Poison(theta)" + " + 1" * 60))
    page.wait_for_selector("#check_message .wrong")
    page.click("summary")
    page.wait_for_selector("#argument_scale")
    page.focus("#epsilon")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#explored table")
    picture(page, kept("page-phone.png", tmp_path), full_page=True)
    assert overflow(page)[0] <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(window, server, finished, scheme, tmp_path):
    pytest.importorskip("axe_playwright_python")
    page = window(scheme=scheme)
    page.wait_for_selector("#verdict")
    page.click("summary")
    page.wait_for_selector("#argument_scale")
    page.focus("#epsilon")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#explored table")
    page.fill("#analysis", COUNT.replace("Poisson(theta)", "Poison(theta)"))
    page.wait_for_selector("#check_message .wrong")
    picture(page, kept(f"page-{scheme}.png", tmp_path), full_page=True)
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(each) for each in re.findall(r"\d+", back)[:3]) < 150) == (scheme == "dark")
    assert window.wrong == []
    assert serious_findings(page) == []
    window.wrong.clear()  # axe itself asks for a style sheet that is not there


def test_form_and_file_are_in_step_and_undo_brings_back(window, tmp_path):
    page = window()
    page.fill("#analysis", COUNT)
    until(lambda: page.input_value("#form_value") == "37.4")
    page.fill("#form_value", "41.5")
    wait_for_value(page, "value = 41.5")
    page.fill("#form_low", "20")
    wait_for_value(page, 'theta = "Gamma(')
    until(lambda: 'theta = "Gamma(25, 1)"' not in page.input_value("#analysis"))
    page.fill("#analysis", page.input_value("#analysis").replace("value = 41.5", "value = 44.5"))
    until(lambda: page.input_value("#form_value") == "44.5")
    before = page.input_value("#analysis")
    page.reload()
    page.wait_for_selector("#check_message .found")
    assert page.input_value("#analysis") == before, "kept across reloads"
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.select_option("#starter", "rate")
    page.click("#use_starter")
    until(lambda: page.wait_for_timeout(50) or asked)  # only a call of Playwright's lets the dialog be heard
    assert page.input_value("#analysis") == before, "never replaced without asking"


def test_numbers_typed_one_right_after_the_other_are_all_kept(window):
    """The second is typed before the file with the first is shown: neither may be lost."""
    page = window()
    page.fill("#analysis", COUNT)
    until(lambda: page.input_value("#form_value") == "37.4")
    page.fill("#form_value", "41.5")
    page.fill("#form_low", "20")
    page.fill("#form_high", "45")
    until(lambda: 'theta = "Gamma(25, 1)"' not in page.input_value("#analysis"))
    wait_for_value(page, "value = 41.5")
    page.wait_for_timeout(1_500)
    analysis = Analysis.from_text(page.input_value("#analysis"))
    low, high = form.form_of_analysis(analysis).priors["theta"]
    assert analysis.release["count"].value == 41.5
    assert (low, high) == ("20", "45")
    assert [page.input_value(f"#form_{key}") for key in ("value", "low", "high")] == ["41.5", "20", "45"]
    page.reload()
    until(lambda: page.input_value("#form_high") == "45")
    assert page.input_value("#form_low") == "20", "what was typed comes back as typed"


def test_a_check_that_comes_late_does_not_write_over_what_was_typed(monkeypatch):
    """The file with the first number is read only when that with the second is shown already."""
    shown = {"analysis": COUNT}
    filled, sent = {}, []
    monkeypatch.setattr(editor.ui, "update_text", lambda key, value, label: filled.update({key: value}))

    async def put(text):
        sent.append(text)

    own = editor._Form(SimpleNamespace(analysis=lambda: shown["analysis"]), SimpleNamespace(set=lambda said: None), put)
    own.fill(editor.check_text(COUNT), "count", "theta")
    assert (filled["form_value"], filled["form_low"], filled["form_high"]) == ("37.4", "16.2", "35.7")
    filled.clear()
    for typing in (own.take_value("count", "41.5", "0.2"), own.take_prior("theta", "20", "45")):
        with pytest.raises(StopIteration):  # it waits for nothing
            typing.send(None)
    first, second = sent
    shown["analysis"] = second
    own.fill(editor.check_text(first), "count", "theta")
    own.fill(editor.check_text(second), "count", "theta")
    assert filled == {}, "what is being typed is left as it is"
    shown["analysis"] = COUNT
    own.fill(editor.check_text(COUNT), "count", "theta")
    assert filled["form_high"] == "35.7", "undone"


def test_another_statistic_is_shown_with_its_own_numbers(window):
    """Also right after a number of the first was typed: that number must not go to the second."""
    page = window()
    page.fill("#analysis", starter("means"))
    until(lambda: page.input_value("#form_value") == "29.4")
    page.fill("#form_value", "31.5")
    wait_for_value(page, "value = 31.5")
    page.select_option("#form_statistic", "mean_control")
    until(lambda: page.input_value("#form_value") == "22.6")
    page.fill("#form_noise", "0.5")
    until(lambda: "epsilon = 0.5" in page.input_value("#analysis"))
    values = {name: item.value for name, item in Analysis.from_text(page.input_value("#analysis")).release.items()}
    assert values == {"mean_treated": 31.5, "mean_control": 22.6}


def test_names_are_offered_again_only_where_they_are_others(monkeypatch):
    """A check that comes late would undo a choice that the browser has sent meanwhile."""
    sent = []
    monkeypatch.setattr(editor.ui, "update_select", lambda key, choices, selected: sent.append((key, selected)))
    own = editor._Form({"form_statistic": lambda: "b", "form_parameter": lambda: "theta"}, None, None)

    def offer(*names):
        called = dict.fromkeys((*names, "theta"), "as it is called")
        numbers = SimpleNamespace(values=dict.fromkeys(names, "1"), priors={"theta": ("0", "1")}, called=called)
        own.fill_choices(SimpleNamespace(error="", form=numbers))

    offer("a", "b")
    offer("a", "b")
    assert sent == [("form_statistic", "b"), ("form_parameter", "theta")]
    offer("a", "c")
    assert sent[2:] == [("form_statistic", "a")]


def test_the_report_opens_in_a_tab_and_a_file_is_opened_again(window, server, finished):
    page = window()
    page.wait_for_selector("#verdict")
    page.set_input_files("#open_file", {"name": "mine.toml", "mimeType": "text/plain", "buffer": COUNT.encode()})
    wait_for_value(page, "draws = 2000")
    page.locator(".reopen").last.click()
    with page.context.expect_page() as caught:
        page.click(f"#history a[href='report/{finished.number}']")
    report = caught.value
    assert report.locator("h1").inner_text() == "A privatised count"
    assert "The number of cases is about" in report.inner_text("#question")


def test_runs_that_are_ticked_stand_side_by_side(window, server, finished, tmp_path):
    other = server.runs.start(COUNT.replace("value = 37.4", "value = 41.5"), "Another count")
    until(lambda: other.over)
    page = window()
    for run in (finished, other):
        page.check(f".compare[data-run='{run.number}']")
    page.wait_for_selector("#side_by_side table")
    shown = page.inner_text("#side_by_side")
    assert re.search(r"\[release\.count\] value\s+37\.4\s+41\.5", shown)
    assert "Trust it" in shown
    page.set_viewport_size({"width": 390, "height": 844})
    assert overflow(page)[0] <= 0
    picture(page, kept("page-side-by-side.png", tmp_path), full_page=True)
    assert serious_findings(page) == []
    window.wrong.clear()  # axe itself asks for a style sheet that is not there
    page.uncheck(f".compare[data-run='{other.number}']")
    wait_for_text(page, "#side_by_side", "Tick two")


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="stops by a signal")
def test_a_server_that_is_gone_is_said_in_words(chromium, tmp_path):
    """Killed, without a word; where it is interrupted, the test of the command looks."""
    with served(tmp_path / "runs") as (process, address), left_behind(chromium, address, tmp_path):
        process.kill()
