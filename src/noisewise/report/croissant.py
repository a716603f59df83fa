"""A sidecar for data portals: Croissant 1.0, JSON-LD about a release file. https://docs.mlcommons.org/croissant

It describes the dataset (schema.org), the file with its checksum, and the statistics in it. Required properties
that the release does not state are left out; `missing` lists them.
"""

import hashlib
import math
from typing import Any

from noisewise.release import Release
from noisewise.report.described import promised, sentences_about
from noisewise.report.markup import listed

_OWN = (
    *("citeAs", "column", "extract", "field", "fileObject", "fileProperty", "fileSet", "format", "includes"),
    *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{word: f"cr:{word}" for word in _OWN},
}
"""The context that Croissant asks of every file, whole."""
REQUIRED = ("name", "description", "license", "url", "creator", "datePublished")
"""What Croissant requires of a dataset, beyond what is always written."""
FROM_RELEASE = {"name": "title", "license": "licence", "datePublished": "date"}
COLUMNS = {**dict.fromkeys(("name", "description", "unit", "mechanism"), "sc:Text"), "entries": "sc:Integer"}


def sidecar(release: Release, file: str, raw: bytes, url: str | None = None) -> dict[str, Any]:
    """JSON-LD about `release`, whose file is named `file` and holds `raw`; `url` is the page where it can be found."""
    said = release.about
    stated = {key: said[field] for key, field in FROM_RELEASE.items() if field in said}
    own = said.get("description", f"Statistics published with privacy noise: {listed(list(release))}.")
    stated["description"] = f"{own} {promised(release)[0]}"
    if "source" in said:
        contact = {"email": said["contact"]} if "@" in said.get("contact", "") else {}
        stated["creator"] = {"@type": "sc:Organization", "name": said["source"], **contact}
    if url is not None:
        stated["url"] = url
    distribution = {
        "@type": "cr:FileObject",
        "@id": file,
        "name": file,
        "contentUrl": file,
        "contentSize": f"{len(raw)} B",
        "encodingFormat": "application/json",
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    head = {"@context": CONTEXT, "@type": "sc:Dataset", "conformsTo": "http://mlcommons.org/croissant/1.0"}
    return head | stated | {"distribution": [distribution], "recordSet": [_statistics(release)]}


def missing(content: dict[str, Any]) -> list[str]:
    """Required properties that the release does not state."""
    return [name for name in REQUIRED if name not in content]


def _statistics(release: Release) -> dict[str, Any]:
    """The statistics as a record set that holds its data, with one record for each statistic."""
    rows = []
    for name, item in release.items():
        row = {"name": name, "description": " ".join(sentences_about(name, item))}
        row["unit"] = item.about.get("unit", "")  # every record has every field
        sizes: dict[str, Any] = {"mechanism": type(item.mechanism).__name__, "entries": math.prod(item.shape)}
        rows.append({f"statistics/{key}": value for key, value in (row | sizes).items()})
    fields = [{"@type": "cr:Field", "@id": f"statistics/{key}", "dataType": kind} for key, kind in COLUMNS.items()]
    record: dict[str, Any] = {"@type": "cr:RecordSet", "@id": "statistics", "name": "statistics"}
    return record | {"key": {"@id": "statistics/name"}, "field": fields, "data": rows}
