"""Atheris, guided by coverage of the readers: `python -m fuzz.guided release 20000`. Ends with its first finding."""

import json
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=[
        "noisewise.release.release",
        "noisewise.release.entries",
        "noisewise.analysis.analysis",
        "noisewise.analysis.analysis.toml",
    ]
):
    import noisewise.analysis.analysis
    import noisewise.release.release  # noqa: F401

from fuzz.kinds_of_files import analyses, outcome, releases


def main(kind, runs):
    goods = [json.dumps(good) for good in releases()] if kind == "release" else analyses()
    folder = Path(tempfile.mkdtemp())
    corpus, path = folder / "corpus", folder / "input"
    corpus.mkdir()
    for number, good in enumerate(goods):
        (corpus / str(number)).write_text(good)

    def one(data):
        path.write_bytes(data)
        outcome(kind, path)

    options = [f"-runs={runs}", "-max_len=8192", "-timeout=20", "-rss_limit_mb=4096", f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], str(corpus), *options], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
