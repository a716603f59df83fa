"""Unexpected errors on the command line: a sentence, and a log to send."""

import tempfile
from pathlib import Path

import pytest
from faults import FIT, entry_point, failing, logs

import noisewise as nw


@pytest.fixture
def noisewise(tmp_path, monkeypatch, capsys):
    return entry_point(tmp_path, monkeypatch, capsys)


# The sentence and the log -------------------------------------------------------------------------------------------


def test_a_fault_is_one_sentence_and_a_log(noisewise, tmp_path, monkeypatch):
    monkeypatch.setattr("noisewise.workflow.run.sample", failing(ZeroDivisionError("by nothing\nsecond line")))
    code, out, err = noisewise(*FIT)
    assert code == 70
    assert out == ""
    assert err.count("\n") == 1
    assert "an unexpected error (ZeroDivisionError: by nothing)" in err
    assert "a fault of noisewise, not a mistake of yours" in err
    (log,) = logs(tmp_path)
    assert str(log) in err
    text = log.read_text()
    assert "Command: noisewise fit count.toml --draws 300 --no-naive --quiet" in text
    assert f"noisewise {nw.__version__}" in text
    assert "ZeroDivisionError: by nothing" in text
    assert "Traceback (most recent call last)" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["count.toml", log.name])


def test_a_second_fault_in_the_same_second_has_a_log_of_its_own(noisewise, tmp_path, monkeypatch):
    monkeypatch.setattr("noisewise.workflow.run.sample", failing(ZeroDivisionError()))
    assert {noisewise(*FIT)[0], noisewise(*FIT)[0]} == {70}
    assert len(logs(tmp_path)) == 2


def test_the_log_goes_among_temporary_files_where_the_folder_refuses(noisewise, tmp_path, monkeypatch):
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr("noisewise.workflow.run.sample", failing(ZeroDivisionError()))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(elsewhere))
    honest = Path.open

    def opened(path, *given, **named):
        if path.name.startswith("noisewise-fault") and path.resolve().parent == tmp_path:
            raise PermissionError(13, "Permission denied")
        return honest(path, *given, **named)

    monkeypatch.setattr(Path, "open", opened)
    code, _, err = noisewise(*FIT)
    assert code == 70
    (log,) = logs(elsewhere)
    assert str(log) in err
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "nowhere"))
    code, _, err = noisewise(*FIT)
    assert code == 70
    assert "The log could not be written." in err


def test_of_confidential_records_only_the_kind_of_error_is_told(noisewise, tmp_path, monkeypatch):
    inner = ValueError("income of Alice: 4711")

    def fail(*given):
        try:
            raise inner
        except ValueError as error:
            raise RuntimeError("Alice: 4711") from error

    monkeypatch.setattr("noisewise.curator.prepare", fail)
    code, out, err = noisewise("release", "people.csv", "plan.toml")
    assert code == 70
    assert "an unexpected error (RuntimeError)." in err
    (log,) = logs(tmp_path)
    text = log.read_text()
    assert "ValueError" in text
    assert "RuntimeError" in text
    assert "curate.py" in text
    assert all("4711" not in each and "Alice:" not in each for each in (out, err))
    assert "4711\n" not in text
    assert text.count("4711") == text.count('raise RuntimeError("Alice: 4711")')  # the test's own line of code


def test_mistakes_and_failures_are_no_faults(noisewise, tmp_path, monkeypatch):
    assert noisewise("fit", "nowhere.toml")[0] == 2
    monkeypatch.setattr("noisewise.workflow.run.sample", failing(nw.InferenceError("sample: it failed.")))
    assert noisewise(*FIT)[0] == 1
    monkeypatch.setattr("noisewise.workflow.run.sample", failing(KeyboardInterrupt()))
    assert noisewise(*FIT)[0] == 130
    assert not logs(tmp_path)


def test_the_exit_code_is_documented(noisewise):
    assert "70 an unexpected error" in " ".join(noisewise("--help")[1].replace("│", " ").split())
    page = Path(__file__).resolve().parents[2] / "docs/command-line.md"
    assert "\n| 70 | an unexpected error" in page.read_text(encoding="utf-8")
