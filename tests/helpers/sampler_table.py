"""Every public sampler, the targets it is tried on, and what it means for its draws to agree with the truth.

`tests/samplers/test_samplers.py` runs small instances on chosen targets, `make campaign` every sampler on every target.
`tests/campaigns/same_draws.py` has digests of their draws; `tests/inference/test_randomness.py` looks at their keys.
"""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from exactness import FALSE_ALARM
from mutant import Mutant
from scipy import stats
from targets import all_targets

import noisewise as nw
from noisewise.inference.settings import Sampler

TARGETS = {target.name: target for target in all_targets()}
COUNTS = ("count-2", "count-5", "count-25", "count-50", "count-75")
KINDS = (*COUNTS, "beta-binomial", "statistic-of-statistic", "hierarchy", "multinomial", "clamped-total-unknown-n")
RESPONSES = ("randomised-response-bits", "randomised-response-three-counts")
EXACT = "samplers/test_samplers.py::test_posterior_and_evidence_are_exact"
WEIGHTED = "samplers/test_importance.py"
WALKS = "samplers/test_mcmc.py"
PARTICLES = "samplers/test_smc.py"


@dataclass(frozen=True)
class Row:
    """A sampler as the campaign runs it with `draws`; `small` with `few` draws (else the target's own) as tests do.

    Tests try it on the targets of `default`, and with --long on those of `more`. Digests are of `digested` draws of
    each of the problems `digests`, by their names in same_draws.py. `mutants` are mistakes in the sampler's own file.
    """

    sampler: Sampler | None
    draws: int
    small: Sampler | None
    few: int | None
    default: tuple[str, ...]
    more: tuple[str, ...] = ()
    digests: tuple[str, ...] = ("count",)
    digested: int = 1_000
    mutants: dict[str, Mutant] = field(default_factory=dict)


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
        mutants={
            "rejection accepts by the square root of the ratio": Mutant(
                "samplers/rejection.py",
                "accepted = np.flatnonzero(rng.standard_exponential(rows) >= -ratio)",
                "accepted = np.flatnonzero(rng.standard_exponential(rows) >= -0.5 * ratio)",
                "samplers/test_samplers.py::test_count_quantiles_and_acceptance",
            ),
            "the rate of acceptance is the naive one": Mutant(
                "samplers/rejection.py",
                "rate = (survivors - 1) / (proposals - 1)",
                "rate = survivors / proposals",
                "samplers/test_rejection.py::test_log_rate_of_nothing_and_of_one",
            ),
            "the error of rejection's evidence is that of the number of proposals": Mutant(
                "samplers/rejection.py",
                "variance += (1 - rate) / (survivors - 2) if survivors > 2 else math.inf",
                "variance += (1 - rate) / (proposals - 2) if survivors > 2 else math.inf",
                "inference/test_streams.py::test_evidence_error_is_honest "
                "samplers/test_rejection.py::test_log_rate_of_nothing_and_of_one",
            ),
        },
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
        mutants={
            "the evidence of weighted draws is that of the largest weight": Mutant(
                "samplers/importance.py",
                "log_evidence=weights.log_mean(log_weights),",
                "log_evidence=float(np.max(log_weights, initial=-np.inf)),",
                f"{WEIGHTED}::test_importance_from_an_adapted_proposal_is_consistent {EXACT}",
            ),
            "the largest weight there could be forgets the prior's share": Mutant(
                "samplers/importance.py",
                "return problem.log_sup_of_all - math.log(pilot.proposal.share)",
                "return problem.log_sup_of_all",
                f"{WEIGHTED}::test_no_weight_exceeds_the_largest_there_could_be",
            ),
        },
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
        mutants={
            "importance and rejection accept without the bound of the noise": Mutant(
                "samplers/importance_rejection.py",
                "return rate, rate + log_scale + weights.log_mean(log_weights), error",
                "return rate, rate + weights.log_mean(log_weights), error",
                EXACT,
            ),
            "survivors of importance and rejection lose the weights of their proposals": Mutant(
                "samplers/importance_rejection.py",
                'values["log_weights"] = log_ratio',
                'values["log_weights"] = 0.0 * log_ratio',
                f"{WEIGHTED}::test_users_proposals_are_exact_for_law_function_and_part {EXACT}",
            ),
        },
    ),
    "RejectionControl": Row(
        nw.RejectionControl(),
        20_000,
        nw.RejectionControl(),
        5_000,
        ("count-25", "hierarchy"),
        FAMILY,
        digests=("count", "hierarchy"),
        mutants={
            "rejection control keeps weights below its threshold as they were": Mutant(
                "samplers/rejection_control.py",
                "return np.maximum(log_weights, log_threshold)",
                "return log_weights",
                f"{WEIGHTED}::test_users_proposals_are_exact_for_law_function_and_part "
                f"{WEIGHTED}::test_a_threshold_by_value_keeps_that_value {EXACT}",
            ),
            "rows kept by rejection control are thought to be worth what all candidates are": Mutant(
                "samplers/rejection_control.py",
                "weights.mean() ** 2 / (share * (weights * np.maximum(weights, level)).mean())",
                "weights.mean() ** 2 / (weights**2).mean()",
                "studies/test_forecast.py::test_what_thinning_out_will_do_is_foreseen",
            ),
        },
    ),
    "MCMC": Row(
        nw.MCMC(),
        20_480,
        nw.MCMC(warmup=128),
        4096,
        ("count-2", "simulator", "bimodal"),
        (*KINDS, "latent-scale", "unary-encoding", "asymmetric"),
        digests=("count", "hierarchy"),
        mutants={
            "chains thin by the independent draws of the best scalar": Mutant(
                "samplers/mcmc.py",
                "0.5 * trace.shape[0] * trace.shape[1] / known.min()",
                "0.5 * trace.shape[0] * trace.shape[1] / known.max()",
                f"{WALKS}::test_the_slowest_scalar_decides_how_many_sweeps_lie_between_draws",
            ),
        },
    ),
    "SMC": Row(
        nw.SMC(),
        16_000,
        nw.SMC(particles=256),
        4096,
        ("count-2", "bimodal"),
        (*KINDS, "simulator", "truncated-laplace", "latent-scale", "tulap", "asymmetric"),
        digests=("count", "hierarchy"),
        mutants={
            "particles keep their weights of the stage before": Mutant(
                "samplers/smc.py",
                "log_evidence += weights.log_mean(log_weights)",
                "log_evidence += 0.9 * weights.log_mean(log_weights)",
                f"{PARTICLES}::test_one_simulation_per_walker_is_exact",
            ),
            "the evidence of islands averages their logarithms": Mutant(
                "samplers/smc.py",
                "log_evidence=weights.log_mean(logs) if len(logs) else None,",
                "log_evidence=float(np.mean(logs)) if len(logs) else None,",
                f"{PARTICLES}::test_the_evidence_of_islands_is_their_average_and_its_error_their_spread",
            ),
            "the error of the evidence of islands is that of one": Mutant(
                "samplers/smc.py",
                "log_evidence_se=weights.log_mean_se(logs) if len(logs) else None,",
                "log_evidence_se=0.25 * weights.log_mean_se(logs) if len(logs) else None,",
                f"{PARTICLES}::test_the_evidence_of_islands_is_their_average_and_its_error_their_spread",
            ),
            "copies of one particle count as many": Mutant(
                "samplers/smc.py",
                "effective = min(float(known[worst]), float(distinct if copies else len(joined)))",
                "effective = float(known[worst])",
                f"{PARTICLES}::test_copies_count_once_even_where_islands_agree",
            ),
        },
    ),
    "Augmentation": Row(
        nw.Augmentation(),
        25_600,
        nw.Augmentation(chains=64, warmup=60),
        3_200,
        ("count-2", "latent-scale"),
        ("statistic-of-statistic", "hierarchy", "multinomial", *RESPONSES[:1], "normal-suppressed", "private-quantile"),
        digests=("count", "clamped mean", "hierarchy", "survey"),
        mutants={
            "sweeps leave out the last of their steps": Mutant(
                "samplers/augmentation.py",
                "    for step in steps:\n        counts += step.step(rng, state, warm)",
                "    for step in steps[:1]:\n        counts += step.step(rng, state, warm)",
                f"{EXACT}[Augmentation-count-2]",
            ),
            "groups of chains share their random numbers": Mutant(
                "samplers/augmentation.py",
                "rng = generator(self.seed, Purpose.CHAINS, number)",
                "rng = generator(self.seed, Purpose.CHAINS, 0)",
                "inference/test_randomness.py::test_no_sampler_uses_a_key_twice",
            ),
            "chains start where most draws of the prior do": Mutant(
                "samplers/augmentation.py",
                "    if len(likely) < 2 or top == -np.inf:\n",
                "    if len(likely) < 99 or top == -np.inf:\n",
                "samplers/test_by_value.py::test_chains_start_at_every_value_that_could_be",
            ),
        },
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
        mutants={
            "draws of a warm-up are kept": Mutant(
                "samplers/nuts.py",
                "return np.stack([chain[first : first + self._kept() * thin : every] for chain in whole])",
                "return np.stack([chain[: self._kept() * thin : every] for chain in whole])",
                "samplers/test_nuts.py::test_draws_begin_after_the_warm_up",
            ),
            "chains start in the likeliest part of the prior": Mutant(
                "samplers/nuts.py",
                "key=lambda one: lowest[one])[:chains]",
                "key=lambda one: lowest[one])[:1]",
                "samplers/test_prior_parts.py::test_chains_by_gradients_start_in_every_part",
            ),
            "every hill is hopeless": Mutant(
                "samplers/nuts.py",
                "least = log_masses.max() - HOPELESS - UNSURE * size",
                "least = log_masses.max() + HOPELESS + UNSURE * size",
                "samplers/test_prior_parts.py::test_explanations_of_many_unknowns_are_weighed_apart",
            ),
        },
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
