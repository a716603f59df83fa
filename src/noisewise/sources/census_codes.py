"""The code book of the 2020 Census noisy measurement files: what stands behind the words in their columns.

A row gives for each attribute how its query groups it: `*` sums over it, `detailed` keeps every category, other words
name a grouping. Orders and groupings are those of the Census Bureau's published production code (the attributes of its
2020 Disclosure Avoidance System).
"""

from itertools import combinations

Grouping = dict[str, tuple[str, ...]]

LEVELS = ("US", "State", "County", "Prim", "Tract_Subset_Group", "Tract_Subset", "Tract", "Block_Group", "Block")
"""Geographic levels: those of the redistricting files, and the additional ones of the DHC files."""


def _own(attribute: str, categories: tuple[str, ...], **groupings: tuple[str, ...]) -> Grouping:
    return {"detailed": categories, attribute: categories, **groupings}


def _ages(*bounds: int) -> tuple[str, ...]:
    """Groups that start at each bound; the last ends at 115."""
    ends = [bound - 1 for bound in bounds[1:]] + [115]
    return tuple(f"{low}" if low == high else f"{low}-{high}" for low, high in zip(bounds, ends, strict=True))


_RACES = ("white", "black", "aian", "asian", "nhopi", "sor")
_CENRACE = tuple("-".join(several) for size in range(1, 7) for several in combinations(_RACES, size))
_QUARTERS = (
    "correctional",
    "juvenile",
    "nursing",
    "other institutional",
    "college",
    "military",
    "other noninstitutional",
)
_HHGQ = ("household", *_QUARTERS)
_VOTINGAGE = ("under 18", "18 and over")
_HISPANIC = ("not hispanic", "hispanic")
_RELATIONSHIPS = (
    "householder alone",
    "householder not alone",
    "opposite-sex spouse",
    "opposite-sex partner",
    "same-sex spouse",
    "same-sex partner",
    "biological child",
    "adopted child",
    "stepchild",
    "sibling",
    "parent",
    "grandchild",
    "parent-in-law",
    "child-in-law",
    "other relative",
    "roommate",
    "foster child",
    "other nonrelative",
)
_GQ_CODES = (101, 102, 103, 104, 105, 106, 201, 202, 203, 301, 401, 402, 403, 404, 405, 501, 601, 602, 701, 801, 802)
_GQ_TYPES = tuple(f"GQ {code}" for code in (*_GQ_CODES, 900, 901, 997))
_TENURE = ("owned with a mortgage", "owned", "rented", "no rent")
_VACANT = ("for rent", "rented", "for sale", "sold", "seasonal", "migrant workers", "other")
_UNITS = (*_TENURE, *(f"vacant: {kind}" for kind in _VACANT), *_GQ_TYPES)
_SIZES = ("1", "2", "3", "4", "5", "6", "7 or more")
_HOUSEHOLDER_AGES = ("15-24", "25-34", "35-44", "45-54", "55-59", "60-64", "65-74", "75-84", "85 and over")
_OLDER = (18, 20, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85, 90, 95, 100, 105, 110)
_CENRACE_AXIS = _own("cenrace", _CENRACE)
_HISPANIC_AXIS = _own("hispanic", _HISPANIC)

_HOUSEHOLDS: dict[str, Grouping] = {
    "sex": _own("sex", ("male", "female")),
    "hhage": _own("hhage", _HOUSEHOLDER_AGES),
    "hisp": _own("hisp", _HISPANIC),
    "race": _own("race", (*_RACES, "two or more")),
    "elderly": _own("elderly", ("nobody of 60", "oldest 60-64", "oldest 65-74", "oldest 75 and over")),
    "hhtenshort_3lev": _own("hhtenshort_3lev", ("owned with a mortgage", "owned", "rented")),
    "hhtype_dhch": _own(
        "hhtype_dhch",
        tuple(f"type {number}" for number in range(522)),
        multig=("fewer than three generations", "three generations or more"),
        coupled_hh_type=(
            *("married same-sex", "married opposite-sex", "unmarried same-sex", "unmarried opposite-sex"),
            "no spouse or partner",
        ),
        partner_type_own_child_status=tuple(
            f"{couple}, {children} own children"
            for couple in ("married", "cohabiting", "no spouse or partner")
            for children in ("with", "without")
        ),
        family_nonfamily_size=(
            *(f"family of {size}" for size in _SIZES[1:]),
            *(f"nonfamily of {size}" for size in _SIZES),
        ),
    ),
}
_UNIT_KINDS: dict[str, Grouping] = {"tenvacgq": _own("tenvacgq", _UNITS)}

PRODUCTS: dict[str, dict[str, Grouping]] = {
    "redistricting (PL 94-171), persons": {
        "hhgq": _own(
            "hhgq",
            _HHGQ,
            hhinstlevels=("household", "institutional", "noninstitutional"),
            gqNursingTotal=("nursing",),
        ),
        "votingage": _own("votingage", _VOTINGAGE, nonvoting=("under 18",)),
        "hispanic": _HISPANIC_AXIS,
        "cenrace": _CENRACE_AXIS,
    },
    "redistricting (PL 94-171), housing units": {"h1": _own("h1", ("vacant", "occupied"))},
    "demographic and housing characteristics (DHC), persons": {
        "relgq": _own(
            "relgq",
            (*_RELATIONSHIPS, *_GQ_TYPES),
            relgq_4_groups=("householder", "not householder", "institutional", "noninstitutional"),
            popSehsdTargetsRelship=(*_RELATIONSHIPS, "group quarters"),
            relship_and_eight_level_GQ=(*_RELATIONSHIPS, *_QUARTERS),
            gq_constr_groups=(
                "household",
                "GQ from age 3",
                "GQ from age 15",
                "GQ from age 16",
                "GQ from age 17",
                "other GQ",
            ),
            hhgq8lev=_HHGQ,
            gqlevels=("household", *_GQ_TYPES),
        ),
        "sex": _own("sex", ("male", "female")),
        "age": _own(
            "age",
            _ages(*range(116)),
            age_18_64_116=_ages(0, 18, 65),
            age_10_groups=_ages(0, 3, 15, 16, 17, 18, 20, 25, 30, 35),
            age_38_groups=_ages(*range(16), *_OLDER),
            age_40_groups=_ages(*range(18), *_OLDER),
            votingage=_VOTINGAGE,
        ),
        "hispanic": _HISPANIC_AXIS,
        "cenrace": _CENRACE_AXIS,
    },
    "demographic and housing characteristics (DHC), households": _HOUSEHOLDS,
    "demographic and housing characteristics (DHC), housing units": _UNIT_KINDS,
    "demographic and housing characteristics (DHC), households and housing units": _HOUSEHOLDS | _UNIT_KINDS,
}
"""By product, by attribute in the order of the file's axes: the categories of each grouping."""

_STATES = (
    "AL01 AK02 AZ04 AR05 CA06 CO08 CT09 DE10 DC11 FL12 GA13 HI15 ID16 IL17 IN18 IA19 KS20 KY21 LA22 ME23 "
    "MD24 MA25 MI26 MN27 MS28 MO29 MT30 NE31 NV32 NH33 NJ34 NM35 NY36 NC37 ND38 OH39 OK40 OR41 PA42 RI44 "
    "SC45 SD46 TN47 TX48 UT49 VT50 VA51 WA53 WV54 WI55 WY56 PR72"
)
STATES = {word[:2]: int(word[2:]) for word in _STATES.split()}
"""FIPS numbers of the states by their postal abbreviations."""
