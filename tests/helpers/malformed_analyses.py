"""Malformed analysis files: each a good one with one thing wrong. `¦` marks where the caret must stand.

A case is (text with the mark, words of the cause). Most come from rules: every bad expression in every place that takes
one, every misspelt key of every table, every wrong type of every setting.
"""

GOOD = """\
[question]
title = "A test"
text = "What is mu?"

[parameters]
mu = "Normal(0, 2)"
sigma = "HalfNormal(2)"

[statistics]
count = "Poisson(exp(mu))"

[totals.sums]
n = 20
contribution = "clip(x, 0, 1)"

[totals.sums.record]
x = "Normal(mu, sigma)"

[release.count]
value = 3
mechanism = "DiscreteLaplace"
scale = 2.0

[release.sums]
value = 11.5
mechanism = "Laplace"
epsilon = 0.5
sensitivity = 1

[inference]
method = "Rejection"
draws = 1000
seed = 1
level = 0.9

[likelihood]
method = "EM"
start = { mu = 0.0, sigma = 1.0 }
"""


def change(old, new, cause, text=GOOD):
    assert text.count(old) == 1, old
    return text.replace(old, new), cause


# Expressions --------------------------------------------------------------------------------------------------------

LAWS = [
    ("¦", "empty"),
    ("   ¦", "empty"),
    ("¦Normall(mu, 1)", "Did you mean 'Normal'?"),
    ("¦normal(mu, 1)", "Did you mean 'Normal'?"),
    ("¦exp(mu)", "is a function"),
    ("¦mu", "must be a law"),
    ("¦3", "must be a law"),
    ("¦Normal(mu, 1) + 1", "must be a law"),
    ("¦[Normal(mu, 1)]", "must be a law"),
    ("¦dist.Normal(mu, 1)", "without dots"),
    ("Normal(¦nu, 1)", "'nu' is not a name"),
    ("Normal(mu, 1, ¦2)", "at most 2"),
    ("Normal(mu, ¦scal=1)", "Did you mean 'scale'?"),
    ("Normal(mu, ¦loc=1)", "given twice"),
    ("Normal(mu, ¦-1)", "must be positive"),
    ("Normal(mu, ¦0)", "must be positive"),
    ("Normal(mu, ¦2 - 3)", "must be positive"),
    ("Normal(mu, scale=¦-1)", "must be positive"),
    ("¦Gamma()", "needs 'concentration'"),
    ("¦Gamma(10)", "needs 'rate'"),
    ("¦Normal(mu)", "needs 'scale'"),
    ("¦Uniform(0)", "needs 'high'"),
    ("¦Binomial(probs=0.5)", "needs 'total_count'"),
    ("¦N(mu, 1)", "Did you mean 'Normal'?"),
    ("Normal(mu, ¦sd=1)", "Did you mean 'scale'?"),
    ("Normal(¦Mu, 1)", "Did you mean 'mu'?"),
    ("Normal(mu, ¦2 mu)", "a sign such as *"),
    ("¦Binomial(10)", "exactly one of 'probs'"),
    ("¦Binomial(10, 0.5, 0.1)", "exactly one of 'probs'"),
    ("Binomial(10, ¦1.5)", "between 0 and 1"),
    ("Binomial(¦2.5, 0.5)", "whole number"),
    ("Binomial(¦-2, 0.5)", "whole number"),
    ("Normal(mu, 1, size=¦0)", "'size' must be"),
    ("Normal(mu, 1, size=¦2.5)", "'size' must be"),
    ("Normal(mu, 1, size=¦mu)", "'size' must be"),
    ("Normal(mu, 1, size=¦10**9)", "'size' must be"),
    ("Normal(mu, 1, size=2, ¦size=2)", "given twice"),
    ("Normal(¦*mu)", "star"),
    ("Normal(¦**mu)", "write the arguments"),
    ("Normal(¦Normal(0, 1), 1)", "is a law"),
    ("Normal¦(mu, 1", "never closed"),
    ("Normal(mu,¦, 1)", "not an expression"),
    ("Normal ¦mu", "not an expression"),
    ("Normal(¦mu.real, 1)", "dots"),
    ("(¦lambda: 1)()", "plain name"),
    ("¦__import__(1)", "'__import__' is not a law"),
    ("¦eval(mu)", "'eval' is not a law"),
    ("Dirichlet(¦[1, [1, 2]])", "equally long"),
]
NUMBERS = [
    ("¦zz", "'zz' is not a name"),
    ("¦sqr(mu)", "Did you mean 'sqrt'?"),
    ("mu + ¦muu", "Did you mean 'mu'?"),
    ("¦'text'", "only plain numbers"),
    ("¦True", "only plain numbers"),
    ("¦None", "only plain numbers"),
    ("¦2j", "only plain numbers"),
    ("¦1e400", "too large"),
    ("¦99999999999999999999", "2**53"),
    ("¦10**10**10", "too large"),
    ("mu + ¦9**999", "too large"),
    ("1 / ¦0", "division by zero"),
    ("mu / (¦1 - 1)", "division by zero"),
    ("¦(0 - 8)**0.5", "not a real number"),
    ("¦sqrt(-1)", "not a real number"),
    ("¦log(0)", "not finite"),
    ("¦mu // 2", "only + - * /"),
    ("¦mu % 2", "only + - * /"),
    ("¦mu @ mu", "only + - * /"),
    ("¦mu < 1", "where()"),
    ("¦mu and 1", "where()"),
    ("¦not mu", "where()"),
    ("¦~mu", "where()"),
    ("¦1 if mu else 2", "where(condition, a, b)"),
    ("where(¦mu in 3, 1, 0)", "compare numbers"),
    ("¦where(mu > 1, 2)", "takes 3"),
    ("¦sqrt()", "takes 1"),
    ("¦sqrt(1, mu)", "takes 1"),
    ("clip(mu, 0, ¦high=1)", "no named arguments"),
    ("¦(1, mu)", "square brackets"),
    ("¦[]", "must not be empty"),
    ("sum(¦[[1, 2], [1]])", "equally long"),
    ("mu[¦0.5]", "whole number"),
    ("mu[¦1:2]", "whole number"),
    ("mu[¦mu]", "whole number"),
    ("¦mu.T", "dots"),
    ("¦lambda: 1", "cannot be defined"),
    ("sum¦(i for i in mu)", "loops"),
    ("¦[i for i in mu]", "loops"),
    ("¦{1: 2}", "braces"),
    ("¦{1}", "braces"),
    ("(¦y := 1)", "names cannot be given"),
    ("¦f'{mu}'", "text"),
    ("¦Normal(mu, 1)", "is a law"),
    ("¦exp", "needs arguments"),
    ("¦().__class__", "dots"),
    ("¦mu.__class__", "dots"),
    ("¦__builtins__", "not a name"),
    ("¦open('x')", "'open' is not a function"),
    ("mu +¦", "not an expression"),
    ("mu ¦)", "not an expression"),
    ("¦mu[0]", "outside"),
    ("¦sum([1, 2])[0]", "outside"),
    ("¦[1, 2, mu] + [1, 2]", "cannot be computed"),
]

SYNTAX = ("mu +¦", "mu ¦)")
"""Broken syntax, which reads differently inside a call."""


def expressions():
    places = ['sigma = "HalfNormal(2)"', 'count = "Poisson(exp(mu))"', 'x = "Normal(mu, sigma)"']
    for place in places:
        name = place.partition(" =")[0]
        for law, cause in LAWS:
            yield change(place, f'{name} = "{law}"', cause)
    for number, cause in NUMBERS:
        yield change('"clip(x, 0, 1)"', f'["x", "{number}"]', cause)
        if number not in SYNTAX:
            yield change('x = "Normal(mu, sigma)"', f'x = "Normal({number}, 1)"', cause)


# Keys and types -----------------------------------------------------------------------------------------------------


def keys():
    """A key too many, or misspelt, in every table; the nearest one is named."""
    for line, wrong, near in [
        ("[question]", "¦[qestion]", "'question'"),
        ("[parameters]", "¦[parameter]", "'parameters'"),
        ("[statistics]", "¦[statistic]", "'statistics'"),
        ("[inference]", "¦[inferences]", "'inference'"),
        ("[likelihood]", "¦[likelyhood]", "'likelihood'"),
        ('title = "A test"', '¦titel = "A test"', "'title'"),
        ('text = "What is mu?"', '¦texts = "What is mu?"', "'text'"),
        ("n = 20", "n = 20\n¦m = 3", "does not belong in [totals.sums]"),
        ('contribution = "clip(x, 0, 1)"', '¦contributions = "clip(x, 0, 1)"', "'contribution'"),
        ("[totals.sums.record]", "¦[totals.sums.records]", "'record'"),
        ("scale = 2.0", "¦scael = 2.0", "'scale'"),
        ("epsilon = 0.5", "¦epsilno = 0.5", "'epsilon'"),
        ("sensitivity = 1", "sensitivity = 1\n¦sensitivty = 1", "'sensitivity'"),
        ("sensitivity = 1", 'sensitivity = 1\n¦colour = "red"', "not an argument of Laplace"),
        ("draws = 1000", "¦draw = 1000", "'draws'"),
        ("seed = 1", "¦sede = 1", "'seed'"),
        ("level = 0.9", "¦levle = 0.9", "'level'"),
        ('method = "Rejection"', '¦metod = "Rejection"', "'method'"),
        ('method = "EM"', '¦mehtod = "EM"', "'method'"),
        ("start = {", "¦strat = {", "'start'"),
        ("mu = 0.0, ", "¦nu = 0.0, ", "not a parameter"),
        ('method = "Rejection"', 'method = { name = "Rejection", ¦max_proposal = 9 }', "'max_proposals'"),
        ('method = "EM"', 'method = { name = "EM", ¦tolerence = 9 }', "'tolerance'"),
    ]:
        yield change(line, wrong, near)


WRONG = {
    "draws = 1000": ["0", "-5", "1.5", '"many"', "true", "[1]", "1e4", "10_000.0", "2024-01-01"],
    "seed = 1": ["-1", "0.5", '"one"', "false", "inf"],
    "level = 0.9": ["0", "1", "95", '"0.9"', "true", "nan", "-0.5"],
    "n = 20": ["0", "-3", "2.5", '"many"', "true", "[20]", "'n'"],
    'method = "Rejection"': ['"Rejecton"', "3", '"EM"', "[]", "true", '"rejection"'],
    'method = "EM"': ['"EMM"', "3", '"Rejection"', "[]"],
    'mechanism = "Laplace"': ['"Laplac"', "3", '"laplace"', "[]", '"Normal"', '""'],
    "epsilon = 0.5": ["0", "-1", '"half"', "nan", "inf", "true"],
    "scale = 2.0": ["0", "-1.0", '"two"', "nan", "inf", "false"],
    "value = 11.5": ['"x"', "nan", "true", "[1.0, 2.0]", "2024-01-01", "[[]]"],
    "value = 3": ["3.5", '"three"', "[3, 4]", "false"],
    'mu = "Normal(0, 2)"': ["3", "true", '["Normal(0, 2)"]', "{ law = 1 }", "1.5"],
    'count = "Poisson(exp(mu))"': ["3", "false", "[]"],
    'x = "Normal(mu, sigma)"': ["1", "[1]"],
    'contribution = "clip(x, 0, 1)"': ["1", "[]", '["x", 3]', "true", "{ a = 1 }"],
    'title = "A test"': ["3", "[]", "true"],
    'text = "What is mu?"': ["1.5", "{}"],
}
"""Values of a wrong type or range, for each setting: the line is its own, and the message names or explains it."""


def types():
    for line, values in WRONG.items():
        key = line.partition(" =")[0]
        for value in values:
            yield change(line, f"{key} = {value}", "", GOOD)[0], line, key


# By hand --------------------------------------------------------------------------------------------------------------


def by_hand():
    count = '[release.count]\nvalue = 3\nmechanism = "DiscreteLaplace"\nscale = 2.0\n'
    sums = '[release.sums]\nvalue = 11.5\nmechanism = "Laplace"\nepsilon = 0.5\nsensitivity = 1\n'
    for old, new, cause in [
        # syntax
        ('mu = "Normal(0, 2)"', "mu = ¦Normal(0, 2)", "quotation marks"),
        ('mu = "Normal(0, 2)"', 'mu = "Normal(0, 2)¦', "A quotation mark is missing"),
        ('mu = "Normal(0, 2)"', "mu = ¦\u201cNormal(0, 2)\u201d", "straight quotation marks"),
        ('mu = "Normal(0, 2)"', 'mu ¦"Normal(0, 2)"', "Expected '='"),
        ('mu = "Normal(0, 2)"', "mu = ¦", "A value is missing"),
        ('mu = "Normal(0, 2)"', 'mu = "Normal(0, 2)" ¦extra', "after a statement"),
        ('mu = "Normal(0, 2)"', 'mu = "Normal(0, 2)"\nmu = "Normal(0, 1)"¦', "overwrite"),
        ("[inference]", "[inference¦", "Expected ']'"),
        ("[inference]", "[¦]", "Invalid initial character"),
        ("[inference]", "[parameters¦]", "the table [parameters] stands twice"),
        ("level = 0.9", "level = 0¦,9", "decimal"),
        ("draws = 1000", "draws = 1 ¦000", "without commas, as in 10000"),
        ("draws = 1000", "draws = 10¦,000", "without commas, as in 10000"),
        ("draws = 1000", "draws = ¦1e3", "Write 1000."),
        ("sensitivity = 1", "sensitivity = 60¦/260", "work it out"),
        ("sensitivity = 1", 'sensitivity = ¦"1"', "Leave out the quotation marks"),
        ("value = 11.5", 'value = ¦"11.5"', "Leave out the quotation marks"),
        ("value = 11.5", "value = 11.5 ¦%", "without a unit"),
        ("value = 11.5", "value = ¦$11.5", "without a unit"),
        ("value = 11.5", "value¦: 11.5", "Write name = value"),
        ("value = 11.5", "¦Value = 11.5", "small letters"),
        ("[inference]", "[release ¦count]", "joined by dots"),
        ("level = 0.9", "level = 0.9 ¦// of the intervals", "Comments start with #"),
        ("value = 11.5\n", "value = [1.0, 2.0\n¦", "Unclosed array"),
        ("start = { mu = 0.0, sigma = 1.0 }", "start = { mu = 0.0, sigma = 1.0¦", "Unclosed inline table"),
        ("seed = 1", "seed = 0¦1", "after a statement"),
        ("seed = 1", "¦= 1", "Invalid statement"),
        # names
        ('mu = "Normal(0, 2)"', 'mu = "Normal(0, 2)"\n¦"a b" = "Normal(0, 1)"', "cannot be a name"),
        ('mu = "Normal(0, 2)"', 'mu = "Normal(0, 2)"\n¦1st = "Normal(0, 1)"', "cannot be a name"),
        ('mu = "Normal(0, 2)"', 'mu = "Normal(0, 2)"\n¦lambda = "Normal(0, 1)"', "cannot be a name"),
        ('mu = "Normal(0, 2)"', 'mu = "Normal(0, 2)"\n¦chain = "Normal(0, 1)"', "cannot be a name"),
        ('mu = "Normal(0, 2)"', 'mu = "Normal(0, 2)"\n¦a-b = "Normal(0, 1)"', "cannot be a name"),
        ('count = "Poisson(exp(mu))"', 'count = "Poisson(exp(mu))"\n¦mu = "Normal(0, 1)"', "used twice"),
        ('x = "Normal(mu, sigma)"', 'x = "Normal(mu, sigma)"\n¦mu = "Normal(0, 1)"', "used twice"),
        ("[totals.sums]", "¦[totals.count]", ""),
        # circles
        ('mu = "Normal(0, 2)"', 'mu = "Normal(¦mu, 2)"', "depends on itself"),
        ('count = "Poisson(exp(mu))"', 'count = "Poisson(exp(¦count))"', "depends on itself"),
        ('x = "Normal(mu, sigma)"', 'x = "Normal(¦x, sigma)"', "depends on itself"),
        ('x = "Normal(mu, sigma)"', 'x = "Normal(¦sums, sigma)"', "depends on itself"),
        # what may use what
        ('mu = "Normal(0, 2)"', 'mu = "Normal(¦count, 2)"', "not a name"),
        ('mu = "Normal(0, 2)"', 'mu = "Normal(¦x, 2)"', "not a name"),
        ('count = "Poisson(exp(mu))"', 'count = "Poisson(exp(¦x))"', "not a name"),
        ('contribution = "clip(x, 0, 1)"', 'contribution = ¦"clip(mu, 0, 1)"', "depend on the record"),
        # the model does not run
        ('mu = "Normal(0, 2)"', 'mu = "¦Normal([0, 1], [1, 2, 3])"', "cannot be computed"),
        ('count = "Poisson(exp(mu))"', 'count = "Poisson(exp(¦mu[0]))"', "outside"),
        ('count = "Poisson(exp(mu))"', 'count = ¦"Poisson(-exp(mu))"', "cannot be drawn from"),
        ('mu = "Normal(0, 2)"', 'mu = ¦"Uniform(3, 1)"', "cannot be drawn from"),
        ("n = 20", 'n = ¦"mu"', "whole number"),
        # the release
        (count, '¦[release.cuont]\nvalue = 3\nmechanism = "DiscreteLaplace"\nscale = 2.0\n', "'count'"),
        (count, '¦[release.mu]\nvalue = 3\nmechanism = "DiscreteLaplace"\nscale = 2.0\n', "not a statistic"),
        (count, '¦[release.count]\nmechanism = "DiscreteLaplace"\nscale = 2.0\n', "'value' is missing"),
        (count, "¦[release.count]\nvalue = 3\nscale = 2.0\n", "'mechanism' is missing"),
        (count, '¦[release.count]\nvalue = 3\nmechanism = "DiscreteLaplace"\n', ""),
        (count, "[release]\n¦count = 3\n", "must be a table"),
        (count, "", "must be released"),
        (sums, "", "must be released"),
        (sums, '[release.sums]\nvalue = ¦[1.0, 2.0]\nmechanism = "Laplace"\nscale = 1.0\n', "2 entries"),
        (sums, '[release.sums]\nvalue = 11\nmechanism = "DiscreteLaplace"\nscale = 1.0\n', "whole number"),
        (
            sums,
            '[release.sums]\nvalue = 1.0\nmechanism = "Laplace"\nscale = 1.0\n[release.sums.guarantee]\nx = 1\n',
            "",
        ),
        (count + "\n" + sums, "", "must hold a release"),
        (count + "\n" + sums, '[release]\nfile = ¦"nowhere.json"\n', "cannot be read here"),
        # settings
        ('method = "Rejection"', 'method = { name = "Rejection", max_proposals = ¦0 }', "max_proposals"),
        ('method = "Rejection"', 'method = { name = ¦"Rejecton" }', "'Rejection'"),
        ('method = "Rejection"', "method = ¦{ max_proposals = 10 }", "must name a method"),
        ('method = "Rejection"', 'method = { name = "Importance", proposal = ¦{ mu = 1 } }', "must be a number"),
        ('method = "Rejection"', 'method = ¦"NUTS"', "does not apply"),
        ("start = { mu = 0.0, sigma = 1.0 }", "start = ¦{ mu = 0.0 }", "'sigma' too"),
        ("start = { mu = 0.0, sigma = 1.0 }", 'start = { mu = ¦"a", sigma = 1.0 }', "a number"),
        ("start = { mu = 0.0, sigma = 1.0 }", "start = ¦3", "every parameter"),
        ("start = { mu = 0.0, sigma = 1.0 }", "start = [¦3]", "every parameter"),
        ("start = { mu = 0.0, sigma = 1.0 }", "start = [{ mu = 0.0, sigma = ¦true }]", "a number"),
    ]:
        yield change(old, new, cause)
    yield "¦", "at least one statistic"
    yield "¦parameters = 3", "must be a table"
    yield "¦totals = []", "must be a table"
    yield "[totals]\n¦sums = 3", "must be a table"
    yield "¦[totals.sums]\nn = 3", "'contribution' is missing"
    yield '¦[totals.sums]\nn = 3\ncontribution = "x"', "'record' is missing"
    yield '[totals.sums]\nn = 3\ncontribution = "x"\n¦[totals.sums.record]', "at least one field"
    yield "¦[[parameters]]", "must be a table"
    yield '[statistics]\ncount = """\nPoisson(¦theta)"""', "'theta' is not a name"
    yield "[statistics]\ncount = 'Poisson(¦theta)'", "'theta' is not a name"
    yield '[statistics]\ncount = "\\u0050oisson(¦theta)"', "'theta' is not a name"


MARKED = [case for rule in (expressions, keys, by_hand) for case in rule()]
TYPED = list(types())
