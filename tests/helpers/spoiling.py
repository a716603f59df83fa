"""Texts spoilt at random, for readers that must end in success or a refusal."""


def spoilt(rng, text, size):
    """`text` with pieces left out, doubled, swapped or replaced."""
    pieces = list(text)
    for _ in range(size):
        at, length = int(rng.integers(len(pieces))), int(rng.integers(1, 6))
        match int(rng.integers(4)):
            case 0:
                del pieces[at : at + length]
            case 1:
                pieces[at:at] = pieces[at : at + length]
            case 2:
                pieces[at : at + length] = list(rng.choice(list('",\n=[]{}0-e.\0é'), size=length))
            case _:
                other = int(rng.integers(len(pieces)))
                pieces[at], pieces[other] = pieces[other], pieces[at]
        pieces = pieces or ["x"]
    return "".join(pieces)


VALUES = [
    "-1",
    "0",
    "1e400",
    "nan",
    "inf",
    "true",
    '"x"',
    "[]",
    "{}",
    "[1, [2]]",
    "1e-320",
    "99999999999999999999",
    '""',
]


def respelt(rng, text, size):
    """A TOML text with some of its values replaced by others."""
    lines = text.split("\n")
    stated = [at for at, line in enumerate(lines) if " = " in line]
    for at in rng.choice(stated, size=size):
        before, _, after = lines[at].rpartition(" = ")
        tail = " }" if after.rstrip().endswith("}") else ""
        lines[at] = f"{before} = {rng.choice(VALUES)}{tail}"
    return "\n".join(lines)
