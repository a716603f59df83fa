"""The Wikimedia Foundation's private page views by country and page. docs/sources.md has their form and their law."""

import gzip
import math
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms import DiscreteGaussian, DiscreteLaplace, Released
from noisewise.mechanisms.thresholded import Thresholded
from noisewise.release import Release

WHO = "wikimedia"
FIRST_DAYS = {"pre_2017": date(2015, 7, 1), "historical": date(2017, 2, 9), "current": date(2023, 2, 6)}
"""The three data sets, and the day from which each is published."""
RISKS = {"lowest": (0.01505, 90), "medium": (6.166e-4, 550), "higher": (1.546e-4, 1000)}
"""By the risk of a country, from 2023 on: rho, and the least value that is shown."""
RISKS_DIFFER = date(2024, 2, 15)
"""The day from which the noise depends on the risk."""
PAGES_A_PERSON = 10
"""Pages of a person and day that count, at most, from 2023 on."""
REPAIRED = {date(2023, 6, 19), date(2023, 10, 25), *(date(2023, 11, day) for day in (13, 17, 19, 23, 27))}
"""Days of the current data set that were made later in the way of the historical one."""
UNITED_STATES_REPAIRED = (date(2023, 2, 6), date(2023, 9, 19))
"""First and last of the days on which rows of the United States were made in either of the two ways."""
_AT_RISK = (
    "AE AF AZ BD BH BT BY CN CU DJ EG ER ET HK HN IQ IR KH KP KW KZ LA MM MO NI OM PK PS RU RW SA SD SY TJ TM TR UZ VE "
    "VN YE"
)
AT_RISK = set(_AT_RISK.split())
"""Countries whose risk was stated as above the lowest at some time; `risk` must then say which one applied."""
TABLE = re.compile(r"\.(?:tsv|csv)(?:\.gz)?$")
DAY = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})\.(?:tsv|csv)(?:\.gz)?")


def wikimedia(
    path: Any,
    *,
    pages: str | Iterable[str],
    country: str,
    project: str = "en.wikipedia",
    days: Iterable[Any] | None = None,
    risk: str | None = None,
    unseen: bool = False,
) -> Release:
    """Daily views of pages from one country: the statistic `views`, with the axis `day`, and `page` for a list of them.

    `path` is a folder of daily files as they are published, named like 2023-05-28.tsv, or a list of such files; `days`
    keeps some of them. `country` is its name or two-letter code. A page without a row in the file of a day was
    withheld on that day, which is evidence; so the files must be whole. Days whose noise differs become statistics of
    their own: `views_pre_2017`, `views_historical`, `views_current`. `risk` ("lowest", "medium", "higher") is needed
    from 2023 on for countries that the Foundation holds at more than the lowest risk. A title that is in no row of any
    country is taken for a mistake, unless `unseen` says that it was withheld everywhere.
    """
    titles = [_title(title) for title in _list_of_words("pages", pages)]
    if len(set(titles)) < len(titles):
        raise refusal(WHO, "pages", "must name each page once", pages, "Drop one.")
    files = _files(path, days)
    anywhere: set[str] = set()
    views = {day: _views(file, day, titles, country, project, anywhere) for day, file in files.items()}
    for title in () if unseen else titles:
        if title not in anywhere:
            advice = "Check its spelling; if the page exists and was withheld from every country, say unseen=True."
            raise refusal(WHO, "pages", f"must be the title of a page of {project} in these files", title, advice)
    laws: dict[str, list[date]] = {}
    for day, (_, code) in views.items():
        laws.setdefault(_law(day, code), []).append(day)
    current = [day for day, (_, code) in views.items() if _law(day, code) == "current"]
    risk = _risk(risk, {views[day][1] for day in current}, current)
    several = not isinstance(pages, str)
    released = {}
    for law, of_law in laws.items():
        value = np.array([[views[day][0].get(title, math.nan) for day in of_law] for title in titles])
        _check(law, risk, value, titles, of_law)
        name = "views" if len(laws) == 1 else f"views_{law}"
        released[name] = _released(law, risk, value, titles if several else None, [day.isoformat() for day in of_law])
    return Release(released).described(
        f"Views of pages of {project} from {country}",
        description="Views a day with privacy noise; small values were withheld.",
        source="Wikimedia Foundation",
        licence="https://creativecommons.org/publicdomain/zero/1.0/",
    )


def _released(law: str, risk: str, value: Any, titles: list[str] | None, days: list[str]) -> Released:
    """The views on days of one law, with their mechanism: values below the threshold were withheld."""
    if law == "current":
        noise: Any = DiscreteGaussian(scale=math.sqrt(PAGES_A_PERSON / (2.0 * RISKS[risk][0])))
    else:
        noise = DiscreteLaplace(scale=300.0 if law == "pre_2017" else 30.0)
    threshold = _threshold(law, risk)
    coords: Any = {"day": days} if titles is None else {"page": titles, "day": days}
    return (
        Thresholded(noise, threshold)
        .released(value[0] if titles is None else value, coords=coords)
        .described(f"Views a day, {law.replace('_', ' ')} data set", unit="views")
    )


def _threshold(law: str, risk: str) -> int:
    """The least value that is shown."""
    return {"pre_2017": 3500, "historical": 450, "current": RISKS[risk][1]}[law]


def _check(law: str, risk: str, value: Any, titles: list[str], days: list[date]) -> None:
    """Refuse a value that this law would have withheld."""
    least = _threshold(law, risk)
    for page, day in np.argwhere(value < least):
        rule = f"must be at least {least} on {days[day]}, where '{titles[page]}' is shown"
        raise refusal(WHO, "path", rule, int(value[page, day]), "Is the file of this data set, and the risk right?")


def _law(day: date, code: str) -> str:
    """The data set whose noise the rows of a country have on a day."""
    if day in REPAIRED:
        return "historical"
    start, end = UNITED_STATES_REPAIRED
    if code == "US" and start <= day <= end:
        rule = "must be of days on which the noise is known; on this one either of two was used for the United States"
        raise refusal(WHO, "days", rule, day.isoformat(), f"Leave out {start} to {end}.")
    return max((name for name, first in FIRST_DAYS.items() if first <= day), key=lambda name: FIRST_DAYS[name])


def _risk(risk: Any, codes: set[str], days: list[date]) -> str:
    """The risk that decides the noise of the current data set, all of whose `days` have it."""
    if risk is None:
        unsure = sorted(codes & AT_RISK)
        if unsure:
            rule = "must be given for this country, whose noise depends on it"
            advice = "See the Foundation's Country and Territory Protection List for the days in question."
            raise refusal(WHO, "risk", rule, unsure[0], advice)
        return "lowest"
    risk = str(checks.choice(WHO, "risk", risk, RISKS))
    if risk != "lowest" and days and days[0] < RISKS_DIFFER:
        rule = f"must be lowest before {RISKS_DIFFER}, when all countries had one noise; {days[0]} is asked for"
        raise refusal(WHO, "risk", rule, risk, "Read the days before and after by themselves, with days=.")
    return risk


def _title(title: str) -> str:
    """A title as one spells it, in the form of the files: underscores, a capital, composed letters."""
    spelt = (title if title.isascii() else unicodedata.normalize("NFC", title)).strip().replace(" ", "_")
    return spelt[:1].upper() + spelt[1:]


def _list_of_words(argument: str, words: Any) -> list[str]:
    listed = [words] if isinstance(words, str) else list(words) if isinstance(words, Iterable) else []
    if not listed or not all(isinstance(word, str) and word for word in listed):
        raise refusal(WHO, argument, "must be a title, or a list of titles", words, 'Give "Cyclone Alfred", say.')
    return listed


# Files -----------------------------------------------------------------------------------------------------------


def _files(path: Any, days: Any) -> dict[date, Path]:
    """The file of each day, in their order."""
    files: dict[date, Path] = {}
    for file in _listed(path):
        day = _day_of(file)
        if day in files:
            raise refusal(WHO, "path", "must have one file a day", str(file), f"There is also {files[day]}.")
        files[day] = file
    if days is not None:
        if isinstance(days, str) or not isinstance(days, Iterable):
            raise refusal(WHO, "days", "must be a list of days", days, 'Give ["2023-05-28"], say.')
        wanted = [_day(entry) for entry in days]
        if not wanted:
            raise refusal(WHO, "days", "must name at least one day", days, "Leave it out for all of them.")
        for day in wanted:
            if day not in files:
                advice = "Without the file of a day nothing is known of it: a page may be there or withheld."
                raise refusal(WHO, "days", "must be days whose files are there", day.isoformat(), advice)
        files = {day: files[day] for day in wanted}
    return dict(sorted(files.items()))


def _listed(path: Any) -> Sequence[Path]:
    advice = "Give a folder with files such as 2023-05-28.tsv, or a list of them."
    if not isinstance(path, (str, Path)):
        entries = [] if isinstance(path, bytes) or not isinstance(path, Iterable) else list(path)
        if not entries or not all(isinstance(file, (str, Path)) for file in entries):
            raise refusal(WHO, "path", "must be a folder, or a list of daily files", path, advice)
        files = [Path(file).expanduser() for file in entries]
    else:
        root = Path(path).expanduser()
        files = sorted(file for file in root.iterdir() if TABLE.search(file.name)) if root.is_dir() else [root]
    if not files:
        raise refusal(WHO, "path", "must hold daily files", str(path), advice)
    for file in files:
        if not file.is_file():
            raise refusal(WHO, "path", "must be an existing file or folder", str(file), advice)
    return files


def _day_of(file: Path) -> date:
    match = DAY.fullmatch(file.name)
    try:
        day = date(*map(int, match.groups())) if match else None
    except ValueError:
        day = None
    if day is None or day < FIRST_DAYS["pre_2017"]:
        rule = f"must be named by a day from {FIRST_DAYS['pre_2017']} on, like 2023-05-28.tsv"
        raise refusal(WHO, "path", rule, file.name, "The day decides the noise.")
    return day


def _day(entry: Any) -> date:
    try:
        if isinstance(entry, np.datetime64):
            entry = entry.astype("datetime64[D]").item()
        return (
            entry.date() if hasattr(entry, "date") else entry if isinstance(entry, date) else date.fromisoformat(entry)
        )
    except (TypeError, ValueError):
        raise refusal(WHO, "days", "must be days such as 2023-05-28", entry, "Give dates or ISO words.") from None


def _views(
    file: Path, day: date, titles: list[str], country: str, project: str, anywhere: set[str]
) -> tuple[dict[str, int], str]:
    """The views of the pages that are there, and the country's code. Titles of any country are added to `anywhere`.

    A file without any row of the country and project says nothing of what was withheld from it, and is refused.
    """
    wanted, views, code = set(titles), {}, None
    name = _word("country", country).lower()
    for number, fields in _lines(file, day):
        if fields[2] != project:
            continue
        here = name in (fields[0].lower(), fields[1].lower())
        code = fields[1].upper() if here else code
        title = _title(fields[4])
        if title in wanted:
            anywhere.add(title)
        if here and title in wanted:
            if title in views:
                rule = f"must have the page once in {file.name}; line {number} has it again"
                raise refusal(WHO, "pages", rule, title, "Two pages of one title cannot be told apart.")
            views[title] = _count(file, number, fields[-1])
    if code is None:
        rule = f"must have rows in {file.name}"
        advice = f"None is of {project} there, so that absence does not mean that a page was withheld."
        raise refusal(WHO, "country", rule, country, advice)
    return views, code


def _lines(file: Path, day: date) -> Iterator[tuple[int, list[str]]]:
    """Lines of tab-separated fields, without a header: country, code, project, page id, title, item id, views."""
    fields_a_line = 6 if day < FIRST_DAYS["historical"] else 7
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                fields = line.rstrip("\r\n").split("\t")
                if len(fields) != fields_a_line:
                    rule = f"must have {fields_a_line} fields a line, with tabs between"
                    advice = "Is it whole, and of this data set?"
                    raise refusal(WHO, f"{file.name}, line {number}", rule, len(fields), advice)
                yield number, fields
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise refusal(WHO, "path", f"must be a text file ({error})", str(file), "Check the file.") from None


def _count(file: Path, number: int, field: str) -> int:
    if not field.isdecimal():
        raise refusal(WHO, f"{file.name}, line {number}", "must end in a whole number", field, "Check the file.")
    return int(field)


def _word(argument: str, word: Any) -> str:
    if not isinstance(word, str) or not word:
        raise refusal(WHO, argument, "must be a word", word, 'Give "Australia", say.')
    return word


__all__ = ["wikimedia"]
