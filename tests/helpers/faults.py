"""The command line where something fails: the entry point in a folder, errors that are planted, what is left."""

import pytest

from noisewise.analysis import starter
from noisewise.cli import main

FIT = ("fit", "count.toml", "--draws", "300", "--no-naive", "--quiet")


def entry_point(folder, monkeypatch, capsys):
    """In a folder with count.toml: `noisewise("fit", "count.toml")` gives (code, output, errors)."""
    one_start = "\n[likelihood]\nstart = { theta = 30.0 }\n"  # enough where the estimate is not the point
    (folder / "count.toml").write_text(starter("count") + one_start, encoding="utf-8")
    monkeypatch.chdir(folder)

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return caught.value.code or 0, told.out, told.err

    return call


def failing(error):
    """A function that raises it, whatever it is given."""

    def fail(*given, **named):
        raise error

    return fail


def logs(folder):
    """The logs of faults in a folder."""
    return sorted(folder.glob("noisewise-fault-*.log"))


def content(folder):
    """Every file below a folder, with its bytes."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
