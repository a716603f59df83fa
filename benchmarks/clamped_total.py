"""A clamped-normal total: records one at a time, by hand and by `Augmentation`, in effective draws per second.

100 records x ~ Normal(mu, sigma) are clamped to [-2, 4]; their sum and their sum of squares are released with
Laplace(3) noise. Effective draws: posterior variance / variance of the posterior mean over independent runs, warm-up
included.
"""

import time

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import noisewise as nw

RECORDS, LOW, HIGH, SCALE = 100, -2.0, 4.0, 3.0
RELEASED = (97.4, 284.1)
PARAMETERS = ("mu", "sigma")


def problem():
    """The model and the release."""

    def contribution(x):
        clamped = jnp.clip(x, LOW, HIGH)
        return jnp.stack([clamped, clamped**2])

    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 2.0), "sigma": dist.Gamma(2.0, 1.0)},
        statistics={"sums": nw.Total({"x": lambda mu, sigma: dist.Normal(mu, sigma)}, contribution, RECORDS)},
    )
    return model, nw.Release(sums=nw.Laplace(scale=SCALE).released(RELEASED))


def handwritten(seed, sweeps=1_000, warmup=100, step=0.15):
    """Ju et al.'s algorithm as one would write it: a single chain, a loop over records. Draws of (mu, sigma)."""
    rng = np.random.default_rng(seed)
    released = np.array(RELEASED)
    mu, sigma = 1.0, 1.5
    x = rng.normal(mu, sigma, RECORDS)
    draws = np.empty((sweeps, 2))
    for sweep in range(warmup + sweeps):
        clamped = np.clip(x, LOW, HIGH)
        total = np.array([clamped.sum(), (clamped**2).sum()])
        for i in range(RECORDS):
            proposal = rng.normal(mu, sigma)
            new, old = min(max(proposal, LOW), HIGH), min(max(x[i], LOW), HIGH)
            moved = total + np.array([new - old, new**2 - old**2])
            ratio = (np.abs(released - total).sum() - np.abs(released - moved).sum()) / SCALE
            if np.log(rng.random()) < ratio:
                x[i], total = proposal, moved
        mu, sigma = _metropolis(rng, x, mu, sigma, step)
        if sweep >= warmup:
            draws[sweep - warmup] = mu, sigma
    return draws


def handwritten_tight(seed, sweeps=5_000, warmup=100, step=0.15):
    """The same chain by someone who knows Python: proposals of a sweep drawn together, the loop in plain floats."""
    rng = np.random.default_rng(seed)
    first, second = RELEASED
    mu, sigma = 1.0, 1.5
    x = rng.normal(mu, sigma, RECORDS)
    draws = np.empty((sweeps, 2))
    for sweep in range(warmup + sweeps):
        clamped, proposals = np.clip(x, LOW, HIGH), rng.normal(mu, sigma, RECORDS)
        new = np.clip(proposals, LOW, HIGH)
        a, b = clamped.sum(), (clamped**2).sum()
        changes = zip(
            (new - clamped).tolist(),
            (new**2 - clamped**2).tolist(),
            (-SCALE * rng.standard_exponential(RECORDS)).tolist(),
            strict=True,
        )
        accept = []
        here = abs(first - a) + abs(second - b)
        for da, db, log_u in changes:
            there = abs(first - a - da) + abs(second - b - db)
            if log_u < here - there:
                a, b, here = a + da, b + db, there
                accept.append(True)
            else:
                accept.append(False)
        x = np.where(accept, proposals, x)
        mu, sigma = _metropolis(rng, x, mu, sigma, step)
        if sweep >= warmup:
            draws[sweep - warmup] = mu, sigma
    return draws


def _metropolis(rng, x, mu, sigma, step):
    """One random-walk step of (mu, log sigma) given the records."""
    mean, square = x.mean(), (x**2).mean()

    def log_density(mu, log_sigma):
        sigma = np.exp(log_sigma)
        spread = RECORDS * (square - 2.0 * mu * mean + mu**2)
        return -0.5 * spread / sigma**2 - RECORDS * log_sigma - mu**2 / 8.0 + 2.0 * log_sigma - sigma

    there = mu + 1.5 * step * rng.standard_normal(), np.log(sigma) + step * rng.standard_normal()
    if np.log(rng.random()) < log_density(*there) - log_density(mu, np.log(sigma)):
        return there[0], float(np.exp(there[1]))
    return mu, sigma


def ours(seed, draws=102_400, **settings):
    """The same by the library; draws of (mu, sigma). Pass the model and release of one `problem()` to compile once."""
    from noisewise.samplers.augmentation import Augmentation

    model, release = settings.pop("problem", None) or problem()
    sampler = Augmentation(**settings)
    posterior = nw.sample(model, release, sampler, draws=draws, seed=seed, progress=False, on_failure="return")
    return np.stack([posterior[name] for name in PARAMETERS], axis=1)


def effective_rates(competitors, runs, variance):
    """Effective draws per second of each competitor's worst parameter, from independent runs measured turn by turn."""
    means = {name: [] for name in competitors}
    seconds = dict.fromkeys(competitors, 0.0)
    for seed in range(runs):
        for name, run in competitors.items():
            start = time.perf_counter()
            means[name].append(run(seed).mean(axis=0))
            seconds[name] += time.perf_counter() - start
    found = {}
    for name in competitors:
        spread = np.var(means[name], axis=0, ddof=1)
        found[name] = float(np.min(variance / spread)) * runs / seconds[name]
    return found


def main(runs=24):
    """Print effective draws per second of the worst parameter, side by side."""
    both = problem()
    variance = ours(10_000, draws=204_800, problem=both).var(axis=0)
    ours(0, problem=both)  # compile once, as a model does
    competitors = {
        "by hand": handwritten,
        "by hand, tightened": handwritten_tight,
        "Augmentation": lambda seed: ours(seed, problem=both),
    }
    found = effective_rates(competitors, runs, variance)
    for name, rate in found.items():
        print(f"{name}: {rate:.3g} effective draws/s; Augmentation {found['Augmentation'] / rate:.1f} times that")


if __name__ == "__main__":
    main()
