"""Malformed files made from good ones: of their structure (JSON, TOML) and of their bytes.

Every function draws from an `rng` with the interface of `random.Random`; Hypothesis gives one that it can shrink.
"""

import json

DEEP = (3, 40, 70, 500, 900, 990, 5_000, 100_000)
"""Levels of nesting: the array limit of NumPy, Python's recursion limit, and far beyond."""


class Literal(str):
    """Text that goes into the file as it is."""


class Pairs(list):
    """A JSON object as a list of pairs, so that a key can stand twice."""


NUMBERS = [
    *(
        "0",
        "-0",
        "-0.0",
        "1",
        "-1",
        "0.5",
        "1e-320",
        "1e-400",
        "1e308",
        "1e309",
        "-1e999",
        "1e-5",
        "3.0000000000000004",
    ),
    *("NaN", "Infinity", "-Infinity", "4294967296", "9007199254740993", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551616", "1" + "0" * 308, "1" + "0" * 400, "9" * 4_000, "9" * 4_300, "9" * 5_000, "9" * 100_000),
    *("0." + "0" * 5_000 + "1", "1" * 400 + ".5", "1e" + "9" * 30, "01", "+1", ".5", "1.", "0x10", "1_000"),
]
STRINGS = [
    *("", " ", "a", "suppressed", "name", "__class__", "__import__('os').system('true')", "Laplace", "Normal(0, 1)"),
    *("\ud800", "\udfff\ud800", "\x00", "\x1b[2J", "\u202e", "é", "e\u0301", "😀", "../../etc/passwd", "%s%n", "{0}"),
    *("x" * 10_000, "a.b", "1", "None", "nan", "inf", "true", "float64", "<f8", "|O", "lambda: 0", "\\", '"', "\n"),
]


def nested(levels):
    return Literal("[" * levels + "]" * levels)


def nested_objects(levels):
    return Literal('{"a":' * levels + "1" + "}" * levels)


def nasty(rng):
    """Any value that a hostile file might hold."""
    return rng.choice(
        [
            lambda: Literal(rng.choice(NUMBERS)),
            lambda: rng.choice(STRINGS),
            lambda: rng.choice([None, True, False, [], Pairs(), [[]], [None], [Pairs()], [1, [2]], [[1], [2, 3]]]),
            lambda: nested(rng.choice(DEEP)),
            lambda: nested_objects(rng.choice(DEEP)),
            lambda: [Literal(rng.choice(NUMBERS)) for _ in range(rng.choice([1, 2, 3, 70, 1_000]))],
            lambda: [rng.choice(STRINGS) for _ in range(rng.choice([1, 2, 5]))],
            lambda: ["x" * rng.choice([10, 100_000]), *["y"] * rng.choice([10, 10_000])],
            lambda: rng.randint(-(10**6), 10**6),
            lambda: rng.uniform(-1e3, 1e3),
            lambda: [0.0] * rng.choice([10, 10_000]),
        ]
    )()


# JSON ---------------------------------------------------------------------------------------------------------------


def tree(value):
    """Plain data with `Pairs` for objects."""
    if isinstance(value, dict):
        return Pairs([key, tree(part)] for key, part in value.items())
    return [tree(part) for part in value] if isinstance(value, list) else value


def written(value):
    """The tree as JSON text; literals as they are."""
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{written(key)}: {written(part)}" for key, part in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


def places(value, found=None):
    """(container, index) of every value in a tree."""
    found = [] if found is None else found
    for index, part in enumerate(value if isinstance(value, list) else ()):
        if isinstance(value, Pairs):
            found.append((part, 1))
            places(part[1], found)
        else:
            found.append((value, index))
            places(part, found)
    return found


def objects(value):
    inner = [part[1] for part in value] if isinstance(value, Pairs) else value if isinstance(value, list) else []
    return ([value] if isinstance(value, Pairs) else []) + [found for part in inner for found in objects(part)]


def malformed_tree(rng, data):
    """Plain data with one to three changes of structure."""
    whole = [tree(data)]
    words = sorted({key for one in objects(whole) for key, _ in one})
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        rng.choice([_replace, _replace, _replace, _rekey, _remove, _repeat, _add, _exchange, _wrap])(rng, whole, words)
    return whole[0]


def _replace(rng, whole, words):
    container, index = rng.choice([(whole, 0), *places(whole[0])] if rng.random() < 0.05 else _inner(whole))
    container[index] = nasty(rng)


def _inner(whole):
    return places(whole[0]) or [(whole, 0)]


def _rekey(rng, whole, words):
    one = rng.choice(objects(whole) or [Pairs([["a", 1]])])
    if one:
        rng.choice(one)[0] = rng.choice(STRINGS) if rng.random() < 0.5 or not words else rng.choice(words)


def _remove(rng, whole, words):
    containers = [container for container, _ in _inner(whole) if container is not whole]
    holders = [one for one in [*objects(whole), *containers] if one and not isinstance(one[0], str)]
    if holders:
        one = rng.choice(holders)
        del one[rng.randrange(len(one))]


def _repeat(rng, whole, words):
    one = rng.choice(objects(whole) or [Pairs()])
    if one:
        one.append(list(rng.choice(one)))


def _add(rng, whole, words):
    one = rng.choice(objects(whole) or [Pairs()])
    one.append([rng.choice(words) if words and rng.random() < 0.5 else rng.choice(STRINGS), nasty(rng)])


def _exchange(rng, whole, words):
    (one, i), (other, j) = rng.choice(_inner(whole)), rng.choice(_inner(whole))
    value, another = written(one[i]), written(other[j])
    one[i], other[j] = Literal(another), Literal(value)


def _wrap(rng, whole, words):
    container, index = rng.choice(_inner(whole))
    text, levels = written(container[index]), rng.choice([1, 2, 65, 900])
    container[index] = Literal("[" * levels + text + "]" * levels)


def malformed_json(rng, data):
    """JSON text of a malformed tree, and now and then broken as text too."""
    text = written(malformed_tree(rng, data)).encode("utf-8", errors="surrogatepass")
    return malformed_bytes(rng, text) if rng.random() < 0.1 else text


# TOML ---------------------------------------------------------------------------------------------------------------

WORDS = [
    *("mu", "sigma", "theta", "x", "pi", "exp(", "log(", "sqrt(", "where(", "clip(", "sum(", "Normal(", "Gamma(", ")"),
    *("Poisson(", "Binomial(", "Categorical(", "size=", "scale=", ",", "+", "-", "*", "/", "**", "<", "==", "[", "]"),
    *("0", "1", "-1", "2.5", "1e308", "1e999", "9" * 400, "10**10**10", "0.0", "1j", "0x7f", "'text'", "f'{x}'", ":"),
    *(
        "lambda",
        "if",
        "else",
        "for",
        "in",
        "and",
        "not",
        "__class__",
        ".",
        "import",
        ":=",
        "(",
        "=",
        "@",
        "%",
        "\\u0000",
    ),
]


def malformed_toml(rng, text):
    """TOML text with one to three changes of lines, values or expressions."""
    lines = text.split("\n")
    for _ in range(rng.choice([1, 1, 2, 3])):
        rng.choice([_value, _value, _expression, _expression, _drop, _double, _move, _header, _dotted])(rng, lines)
    found = "\n".join(lines).encode("utf-8", errors="surrogatepass")
    return malformed_bytes(rng, found) if rng.random() < 0.1 else found


def _assignments(lines):
    return [number for number, line in enumerate(lines) if "=" in line and not line.lstrip().startswith("#")] or [0]


def _value(rng, lines):
    number = rng.choice(_assignments(lines))
    key = lines[number].partition("=")[0]
    value = nasty(rng)
    lines[number] = f"{key}= {'nothing' if value is None else written(value).replace(': ', ' = ')}"


def _expression(rng, lines):
    number = rng.choice(_assignments(lines))
    key, _, value = lines[number].partition("=")
    pieces = list(value.strip().strip('"'))
    for _ in range(rng.choice([1, 2, 4])):
        at = rng.randint(0, len(pieces))
        pieces[at : at + rng.choice([0, 1, 3])] = [rng.choice(WORDS)] * rng.choice([1, 1, 1, 2, 200])
    lines[number] = f'{key}= "{"".join(pieces)}"'


def _drop(rng, lines):
    del lines[rng.randrange(len(lines))]
    lines.append("")


def _double(rng, lines):
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))


def _move(rng, lines):
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def _header(rng, lines):
    name = rng.choice(["release", "parameters", "totals.a", "a." * 500 + "a", "[inference]", '"\\u0000"', "x", "", "é"])
    lines.insert(rng.randrange(len(lines)), f"[{name}]")


def _dotted(rng, lines):
    key = ".".join([rng.choice(["a", '"a"', "'.'"])] * rng.choice([2, 40, 60, 5_000]))
    lines.insert(rng.randrange(len(lines)), rng.choice([f"{key} = 1", f"x = {{ {key} = 1 }}", f"[{key}]"]))


# Bytes --------------------------------------------------------------------------------------------------------------


def malformed_bytes(rng, data):
    """Bytes flipped, overwritten, cut out, put in, repeated, cut off."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        at = rng.randint(0, max(0, len(found) - 1))
        kind = rng.randrange(7)
        if kind == 0 and found:
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and found:
            found[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x5B, 0x7B, rng.randrange(256)])
        elif kind == 2:
            del found[at : at + rng.choice([1, 2, 8, 64])]
        elif kind == 3:
            found[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 4, 16])))
        elif kind == 4:
            found[at : at + 8] = rng.choice(
                [b"\xff" * 8, b"\0" * 8, (2**63).to_bytes(8, "little"), b"\x7f" + b"\xff" * 7]
            )
        elif kind == 5:
            found[at:at] = found[at : at + rng.choice([1, 16, 256])] * rng.choice([1, 2, 50])
        elif rng.random() < 0.2:
            del found[at:]
    return bytes(found)
