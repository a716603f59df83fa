"""An entry for OpenDP's registry of deployments of differential privacy, as far as a release can fill it in.

Field names and allowed words follow the registry's schema, https://github.com/opendp/deployments-registry-data
(schemas/deployments-schema.yaml); https://registry.opendp.org shows the entries. Fields that a release cannot fill are
left empty, and `missing` lists them: nothing is guessed.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from noisewise.errors import InputError
from noisewise.mechanisms import Exact, Guarantee, Within
from noisewise.release import Release
from noisewise.report import noise
from noisewise.report.described import promised
from noisewise.report.markup import listed

VARIANTS = {"pure": "Pure DP", "approximate": "Approximate DP", "rho": "Zero-concentrated DP"}
NEIGHBOURS = {
    "add-remove": "Adjacent data sets differ by one record, which one of them holds and the other does not.",
    "replace-one": "Adjacent data sets hold equally many records and differ in one of them.",
}
HINTS = {
    "data_curator_name": "who published it",
    "data_curator_type": "Government, Industry or Nonprofit",
    "publication_date": "YYYY-MM-DD",
    "data_product_region": "which region the data describe, or whose laws apply",
    "data_product_sector": "Technology, Healthcare, Education, Government, Energy or Finance",
    "model_name": "Central, Local, Shuffle or Federated",
    "release_type": "One release, or Many releases",
    "data_source_type": "Static or Dynamic",
    "registry_authors": "who writes this entry",
}
"""What to write where a release cannot tell."""


def entry(release: Release) -> dict[str, Any]:
    """The entry as plain data; what is not known is an empty text."""
    said = release.about
    title = said.get("title", "")
    guarantee = _stated(release)
    basic = {
        "name": title,
        "data_curators": [{"data_curator_name": said.get("source", ""), "data_curator_type": ""}],
        "description": said.get("description", ""),
        "intended_use": "",
        "data_product_type": "Summary statistics",
        "data_product_region": "",
        "data_product_sector": "",
        "publication_date": said.get("date", ""),
    }
    model = {"model_name": "", "release_type": "", "data_source_type": "", "access_type": "Non-interactive"}
    administrative = {"status": "Draft", "registry_authors": [""], "tier": 1 if guarantee is None else 2}
    deployment = {"basic": basic} | _privacy(release, guarantee)
    deployment |= {"deployment_model": model, "implementation": _implementation(release)}
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return {"url_slug": slug, "deployment": deployment | {"administrative": administrative}}


def _stated(release: Release) -> Guarantee | None:
    """The guarantee in the registry's parameters, mu-GDP as the rho that it implies; None where there is none."""
    try:
        guarantee = release.guarantee
    except InputError:  # guarantees that do not compose
        return None
    return guarantee.concentrated() if guarantee is not None and guarantee.kind == "mu" else guarantee


def _privacy(release: Release, guarantee: Guarantee | None) -> dict[str, Any]:
    clear = [name for name, item in release.items() if isinstance(item.mechanism, (Exact, Within))]
    clear += [f"the number of records of {name}" for name, item in release.items() if "records" in item.about]
    variant = {} if guarantee is None else {"variant_name": VARIANTS[guarantee.kind]}
    variant |= {"unprotected_quantities": f"Published without noise: {listed(clear)}."} if clear else {}
    loss: dict[str, Any] = {"privacy_unit": release.about.get("privacy_unit", "")}
    if guarantee is not None:
        if guarantee.neighbours is not None:
            loss["privacy_unit_details"] = NEIGHBOURS[guarantee.neighbours]
        stated = {name: getattr(guarantee, name) for name in ("epsilon", "delta", "rho")}
        loss["privacy_parameters"] = {name: value for name, value in stated.items() if value is not None}
    loss["privacy_parameters_details"] = " ".join(promised(release))
    return {"dp_variant": variant, "privacy_loss": loss} if variant else {"privacy_loss": loss}


def _implementation(release: Release) -> dict[str, Any]:
    mechanisms = " ".join(noise.sentence(name, item) for name, item in release.items())
    if len(release) == 1 and not release.left_out:
        return {"mechanisms": mechanisms}
    apart = "disjoint" in release.to_dict()
    how = "in parallel over groups that share no record, and otherwise one after another" if apart else "sequentially"
    return {"mechanisms": mechanisms, "composition": f"The statistics' guarantees compose {how}."}


def missing(content: Any, path: str = "") -> list[str]:
    """Fields that are left empty, by their path."""
    if isinstance(content, dict):
        return [field for key, value in content.items() for field in missing(value, f"{path}.{key}" if path else key)]
    if isinstance(content, list):
        return [field for value in content for field in missing(value, path)]
    return [path] if content == "" else []


def to_yaml(content: dict[str, Any]) -> str:
    """The entry as YAML text; an empty field has a comment that says what belongs there."""
    return "\n".join(_lines(content, "")) + "\n"


def _lines(content: dict[str, Any], indent: str) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            for item in value:
                if isinstance(item, dict):
                    inner = list(_lines(item, indent + "    "))
                    yield f"{indent}  - {inner[0].strip()}"
                    yield from inner[1:]
                else:
                    yield f"{indent}  - {_scalar(key, item)}"
        else:
            yield f"{indent}{key}: {_scalar(key, value)}"


def _scalar(key: str, value: Any) -> str:
    if value == "":
        return f"''  # to be filled in{f': {HINTS[key]}' if key in HINTS else ''}"
    if isinstance(value, float):  # YAML 1.1 takes 1e-06 for a word
        text = repr(value) if math.isfinite(value) else json.dumps(str(value))
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)
