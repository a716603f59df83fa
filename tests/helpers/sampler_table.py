"""Every public sampler, the targets it is tried on, and what it means for its draws to agree with the truth.

`tests/samplers/test_samplers.py` runs small instances on chosen targets, `make campaign` every sampler on every target.
`tests/campaigns/same_draws.py` has digests of their draws; `tests/inference/test_randomness.py` looks at their keys.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from exactness import FALSE_ALARM
from scipy import stats
from targets import all_targets

import noisewise as nw
from noisewise.inference.settings import Sampler

TARGETS = {target.name: target for target in all_targets()}
COUNTS = ("count-2", "count-5", "count-25", "count-50", "count-75")
KINDS = (*COUNTS, "beta-binomial", "statistic-of-statistic", "hierarchy", "multinomial", "clamped-total-unknown-n")
RESPONSES = ("randomised-response-bits", "randomised-response-three-counts")


@dataclass(frozen=True)
class Row:
    """A sampler as the campaign runs it with `draws`; `small` with `few` draws (else the target's own) as tests do.

    Tests try it on the targets of `default`, and with --long on those of `more`. Digests are of `digested` draws of
    each of the problems `digests`, by their names in same_draws.py.
    """

    sampler: Sampler | None
    draws: int
    small: Sampler | None
    few: int | None
    default: tuple[str, ...]
    more: tuple[str, ...] = ()
    digests: tuple[str, ...] = ("count",)
    digested: int = 1_000


FAMILY = (*KINDS, "simulator", *RESPONSES)
"""Targets of what weighs several simulations, or keeps some of them."""
ALIKE = (
    *COUNTS[1:],
    *(f"randomised-response-{kind}" for kind in ("binary-counts", "three-counts", "ones")),
    *("knorm-l1", "knorm-linf", "knorm-ellipsoid", "noisy-max-laplace"),
)
"""Targets of models and mechanisms that others, of less work, are of as well."""
WEIGHED = (
    *("count-2", "statistic-of-statistic", "unreleased-statistic", "clamped-total-unknown-n", "multinomial"),
    *("simulator", "generalized-cauchy-entries", "clipped-at-an-end", "randomised-response-two-bits", "latent-scale"),
)
"""One target of each kind of model and of mechanism; rejection evaluates the same densities on all of them."""
SAMPLERS = {
    "Rejection": Row(
        nw.Rejection(),
        20_000,
        nw.Rejection(),
        4_000,
        tuple(name for name in TARGETS if name not in ALIKE),
        ALIKE,
        digests=("count", "clamped mean", "hierarchy"),
        digested=3_000,
    ),
    # elsewhere both plans of rejection are one
    "Rejection joint": Row(
        nw.Rejection(plan="joint"),
        20_000,
        nw.Rejection(plan="joint"),
        4_000,
        ("statistic-of-statistic",),
        digests=("count", "hierarchy"),
        digested=500,
    ),
    "Importance": Row(
        nw.Importance(),
        50_000,
        nw.Importance(),
        None,
        WEIGHED,
        tuple(TARGETS),
        digests=("count", "clamped mean", "hierarchy"),
        digested=3_000,
    ),
    "Importance adapted": Row(
        nw.Importance(proposal="adapted"),
        50_000,
        nw.Importance(proposal="adapted"),
        20_000,
        ("count-2", "hierarchy"),
        FAMILY,
        digests=(),
    ),
    "Importance of several": Row(
        nw.Importance(proposal="adapted", simulations=3),
        30_000,
        nw.Importance(proposal="adapted", simulations=3),
        10_000,
        ("count-25",),
        FAMILY,
        digests=(),
    ),
    "Importance collapsed": Row(
        nw.Importance(proposal="adapted", collapse=True),
        50_000,
        nw.Importance(proposal="adapted", collapse=True),
        5_000,
        ("count-2", "hierarchy", "randomised-response-bits"),
        (*COUNTS, "beta-binomial", "statistic-of-statistic", "multinomial"),
        digests=(),
    ),
    "ImportanceRejection": Row(
        nw.ImportanceRejection(),
        20_000,
        nw.ImportanceRejection(),
        5_000,
        ("count-2", "randomised-response-bits"),
        FAMILY,
        digests=("count", "hierarchy"),
    ),
    "RejectionControl": Row(
        nw.RejectionControl(),
        20_000,
        nw.RejectionControl(),
        5_000,
        ("count-25", "hierarchy"),
        FAMILY,
        digests=("count", "hierarchy"),
    ),
    "MCMC": Row(
        nw.MCMC(),
        20_480,
        nw.MCMC(warmup=128),
        4096,
        ("count-2", "simulator", "bimodal"),
        (*KINDS, "latent-scale", "unary-encoding", "asymmetric"),
        digests=("count", "hierarchy"),
    ),
    "SMC": Row(
        nw.SMC(),
        16_000,
        nw.SMC(particles=256),
        4096,
        ("count-2", "bimodal"),
        (*KINDS, "simulator", "truncated-laplace", "latent-scale", "tulap", "asymmetric"),
        digests=("count", "hierarchy"),
    ),
    "Augmentation": Row(
        nw.Augmentation(),
        25_600,
        nw.Augmentation(chains=64, warmup=60),
        3_200,
        ("count-2", "latent-scale"),
        ("statistic-of-statistic", "hierarchy", "multinomial", *RESPONSES[:1], "normal-suppressed", "private-quantile"),
        digests=("count", "clamped mean", "hierarchy", "survey"),
    ),
    "NUTS": Row(
        nw.NUTS(),
        8_000,
        nw.NUTS(warmup=300),
        6_000,
        ("count-2",),
        (*COUNTS, "beta-binomial", "hierarchy", "statistic-of-statistic", "multinomial", *RESPONSES[:1]),
        digests=("count", "hierarchy"),
        digested=800,
    ),
    "chosen": Row(
        None,
        20_000,
        None,
        5_000,
        ("count-25",),
        digests=("count", "clamped mean", "hierarchy", "survey"),
        digested=800,
    ),
}


@cache
def problem(name):
    """(model, release, truth) of a target: one model for all samplers, so that it is compiled once."""
    return *TARGETS[name].make(), TARGETS[name].solve()


def compared(posterior, truth):
    """(largest |z| of means and variances, |z| of the evidence or None), each as a multiple of its limit.

    Errors are those between independent chains (superchains where chains share their starts) or islands, by
    Student's law; of a few long chains, those between batches. Else draws are independent, with or without weights.
    """
    worst = max(_moments(posterior, name, *map(np.asarray, truth[name])) for name in posterior.draws)
    if posterior.log_evidence is None or not posterior.log_evidence_se:
        return worst, None
    limit = stats.t.isf(FALSE_ALARM / 2, (posterior.islands or 10**6) - 1)
    return worst, float(abs(posterior.log_evidence - truth["log_evidence"]) / posterior.log_evidence_se / limit)


def reported_z(posterior, truth):
    """(mean - truth) / its Monte Carlo error as `summary` says it, of every scalar that varies; then the evidence's."""
    summary = posterior.summary()
    z = []
    for name in posterior.draws:
        values = np.asarray(truth[name][0], dtype=float).ravel()
        rows = summary[summary.index.str.replace(r"\[.*", "", regex=True) == name]
        varying = rows["mcse"].to_numpy() > 0.0
        z += list(((rows["mean"].to_numpy() - values) / rows["mcse"].to_numpy())[varying])
    known = posterior.log_evidence is not None and posterior.log_evidence_se
    evidence = [(posterior.log_evidence - truth["log_evidence"]) / posterior.log_evidence_se] if known else []
    return [float(one) for one in z], [float(one) for one in evidence]


def _moments(posterior, name, mean, variance):
    values = posterior[name].astype(float)
    terms = np.stack([values - mean, (values - mean) ** 2 - variance], axis=1).reshape(len(values), -1)
    groups = posterior.superchains or posterior.chains or posterior.islands
    if groups is None:
        weight = np.full(len(values), 1 / len(values)) if posterior.weights is None else posterior.weights
        z, limit = (weight @ terms) / np.sqrt((weight**2) @ terms**2), stats.norm.isf(FALSE_ALARM / 2)
    else:
        if groups < 16:  # few long chains: batches of each
            groups *= 16 // groups + 4
        means = terms[: len(terms) // groups * groups].reshape(groups, -1, terms.shape[1]).mean(axis=1)
        limit = stats.t.isf(FALSE_ALARM / 2, groups - 1)
        with np.errstate(divide="ignore", invalid="ignore"):  # an entry that cannot vary
            z = np.nan_to_num(means.mean(axis=0) / (means.std(axis=0, ddof=1) / np.sqrt(groups)), nan=0.0)
    return float(np.max(np.abs(z)) / limit)
