"""Hierarchies: rates, shares, means and clamped scores of 10, 50 and 1,000 units with partial pooling."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import logsumexp

import noisewise as nw
from realistic import laws
from realistic.problem import Problem, problem
from realistic.quadrature import SPREAD, Curve, enumerated, integrate, pooled, stretched, summed_out


def hyper(curve, location, spread, ends, watched, transform, times=1.0, nodes=181):
    """Moments of location, spread and watched units: location ~ Normal(*location), spread ~ HalfNormal(spread)."""

    def at(mu, w):
        u, jacobian = stretched(w)
        u = u + np.log(spread)
        tau = np.exp(u)
        height, units = pooled(curve, mu, tau, watched, transform, times, nodes)
        prior = laws.normal(mu - location[0], location[1]) + laws.log_half_normal(u, spread) + jacobian
        return prior + height, {"mu": mu, "tau": tau, **units}

    return integrate(at, [ends, (SPREAD[0], 2.2)], first=41, tolerance=1e-5, at_once=2**8)


def rates(released, scale, shown=None):
    """Poisson counts with log-normal rates, geometric noise; those not `shown` were below the threshold of 5."""
    number = len(released)
    model = nw.Model(
        {
            "mu": dist.Normal(2.0, 1.0),
            "tau": dist.HalfNormal(0.7),
            "rate": lambda mu, tau: dist.LogNormal(mu, tau).expand([number]),
        },
        {"cases": lambda rate: dist.Poisson(rate)},
    )
    mechanism = nw.DiscreteLaplace(scale=scale)
    if shown is not None:
        mechanism = nw.mechanisms.Thresholded(mechanism, threshold=5)
        released = np.where(shown, released, np.nan)
    release = nw.Release(cases=mechanism.released(released))

    def truth():
        k = np.arange(400.0)
        kinds, which, times = np.unique(np.nan_to_num(released, nan=-1e3), return_inverse=True, return_counts=True)
        withheld = laws.discrete_laplace_below(5 - k, scale)
        noise = [laws.discrete_laplace(r - k, scale) if r > -1e3 else withheld for r in kinds]

        def table(u):
            law = laws.poisson_log_rate(k, u[:, None])
            return np.stack([summed_out(law, one, k)[0] for one in noise], axis=1)

        watched = {f"rate[{unit}]": which[unit] for unit in (0, number // 2, number - 1)}
        return hyper(Curve(table, -12.0, 5.7), (2.0, 1.0), 0.7, (-6.0, 9.0), watched, np.exp, times)

    return Problem(model, release, truth)


def noisy_counts(seed, number, tau, ratio):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(np.exp(2.0 + tau * rng.normal(size=number)))
    return counts + rng.geometric(1 - ratio, number) - rng.geometric(1 - ratio, number), float(-1 / np.log(ratio))


@problem
def rates_of_ten():
    return rates(*noisy_counts(41, 10, 0.5, 0.6))


@problem
def rates_of_fifty():
    return rates(*noisy_counts(42, 50, 0.6, 0.7))


@problem
def rates_of_a_thousand():
    return rates(*noisy_counts(43, 1000, 0.5, 0.6))


@problem
def rates_of_thirty_with_some_withheld():
    released, scale = noisy_counts(44, 30, 0.6, 0.6)
    return rates(released, scale, released >= 5)


def groups(released, inner, noise):
    """Normal group means with normal errors of known size and Gaussian noise: given mu and tau, a closed form."""
    number = len(released)
    model = nw.Model(
        {
            "mu": dist.Normal(0.0, 10.0),
            "tau": dist.HalfNormal(5.0),
            "group": lambda mu, tau: dist.Normal(mu, tau).expand([number]),
        },
        {"means": lambda group: dist.Normal(group, inner)},
    )
    release = nw.Release(means=nw.Gaussian(scale=noise).released(released))

    def truth():
        variance = inner**2 + noise**2

        def at(mu, w):
            u, jacobian = stretched(w)
            tau = np.exp(u)
            total = tau**2 + variance
            squares = number * (mu - released.mean()) ** 2 + ((released - released.mean()) ** 2).sum()
            height = -0.5 * squares / total - 0.5 * number * np.log(2 * np.pi * total)
            values = {"mu": mu, "tau": tau}
            for unit in (0, number - 1):
                values[f"group[{unit}]"] = (
                    (released[unit] * tau**2 + mu * variance) / total,
                    tau**2 * variance / total,
                )
            return laws.normal(mu, 10.0) + laws.log_half_normal(u, 5.0) + jacobian + height, values

        return integrate(at, [(-40.0, 45.0), SPREAD])

    return Problem(model, release, truth)


def group_means(seed, number, tau, sd):
    rng = np.random.default_rng(seed)
    return (4.0 + tau * rng.normal(size=number) + sd * rng.normal(size=number)).round(3)


@problem
def means_of_ten_groups():
    return groups(group_means(51, 10, 2.0, np.hypot(1.0, 0.8)), 1.0, 0.8)


@problem
def means_of_fifty_groups():
    return groups(group_means(52, 50, 1.0, np.hypot(1.0, 1.5)), 1.0, 1.5)


@problem
def means_of_a_thousand_groups():
    return groups(group_means(53, 1000, 1.5, np.hypot(1.0, 1.0)), 1.0, 1.0)


@problem
def means_of_eight_schools():
    """Eight means with Laplace noise."""
    released = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    model = nw.Model(
        {
            "mu": dist.Normal(5.0, 10.0),
            "tau": dist.HalfNormal(10.0),
            "school": lambda mu, tau: dist.Normal(mu, tau).expand([8]),
        },
        {"means": lambda school: dist.Normal(school, errors)},
    )
    release = nw.Release(means=nw.Laplace(scale=4.0).released(released))

    def truth():
        curve = Curve(lambda x: laws.normal_laplace(released - x[:, None], errors, 4.0), -400.0, 400.0)
        watched = {"school[0]": 0, "school[7]": 7}
        return hyper(curve, (5.0, 10.0), 10.0, (-80.0, 90.0), watched, lambda x: x)

    return Problem(model, release, truth)


@problem
def shares_of_ten_clinics():
    """Ten clinics' successes with Laplace noise, shares pooled on the logit scale."""
    n = np.array([40, 25, 60, 33, 80, 18, 52, 45, 70, 29])
    released = np.array([13.2, 10.9, 31.5, 6.1, 30.4, 9.8, 11.0, 20.7, 42.3, 7.7])
    model = nw.Model(
        {
            "mu": dist.Normal(0.0, 1.5),
            "tau": dist.HalfNormal(1.0),
            "clinic": lambda mu, tau: dist.Normal(mu, tau).expand([10]),
        },
        {"successes": lambda clinic: dist.Binomial(n, logits=clinic)},
    )
    release = nw.Release(successes=nw.Laplace(scale=2.0).released(released))

    def truth():
        def table(x):
            columns = []
            for size, r in zip(n, released, strict=True):
                k = np.arange(size + 1.0)
                law = laws.binomial_logit(k, float(size), x[:, None])
                columns.append(summed_out(law, laws.laplace(r - k, 2.0), k)[0])
            return np.stack(columns, axis=1)

        watched = {"clinic[3]": 3, "clinic[8]": 8}
        curve = Curve(table, -30.0, 30.0, 3001)
        return hyper(curve, (0.0, 1.5), 1.0, (-12.0, 12.0), watched, lambda x: x)

    return Problem(model, release, truth)


@problem
def scores_of_fifty_groups_clamped():
    """Fifty groups of twenty scores clamped to [0, 100]; noisy sums; group means partially pooled."""
    rng = np.random.default_rng(61)
    means = 62.0 + 9.0 * rng.normal(size=50)
    scores = np.clip(means + 15.0 * rng.normal(size=(20, 50)), 0.0, 100.0)
    released = (scores.sum(axis=0) + 100.0 * rng.normal(size=50)).round(1)
    total = nw.Total(
        record={"score": lambda group: dist.Normal(group, 15.0)},
        contribution=lambda score: jnp.clip(score, 0.0, 100.0),
        n=20,
    )
    model = nw.Model(
        {
            "mu": dist.Normal(60.0, 20.0),
            "tau": dist.HalfNormal(10.0),
            "group": lambda mu, tau: dist.Normal(mu, tau).expand([50]),
        },
        {"sums": total},
    )
    release = nw.Release(sums=nw.Gaussian(scale=100.0).released(released))

    def truth():
        sums = laws.ClampedSum(0.0, 100.0, lambda t: np.exp(-5e3 * t**2), 0.1, 300)

        def table(theta):
            record = laws.clamped_normal(sums, theta, np.full_like(theta, 15.0), 0.0, 100.0)
            power = record**20
            return np.stack([sums.log_density(power, 1, r) for r in released], axis=1)

        watched = {"group[0]": 0, "group[49]": 49}
        curve = Curve(table, -40.0, 140.0, 721)
        return hyper(curve, (60.0, 20.0), 10.0, (0.0, 120.0), watched, lambda x: x, nodes=91)

    return Problem(model, release, truth)


@problem
def variance_between_laboratories():
    """Six laboratories, four noisy rows each, both spreads unknown: given them all is normal."""
    rng = np.random.default_rng(62)
    rows = 3.0 + 1.2 * rng.normal(size=(6, 1)) + 0.7 * rng.normal(size=(6, 4))
    released = (rows + 0.4 * rng.normal(size=(6, 4))).round(3)
    model = nw.Model(
        {
            "between": dist.HalfNormal(2.0),
            "within": dist.HalfNormal(2.0),
            "laboratory": lambda between: dist.Normal(3.0, between).expand([6]),
        },
        {"rows": lambda laboratory, within: dist.Normal(laboratory[:, None], within).expand([6, 4])},
    )
    release = nw.Release(rows=nw.Gaussian(scale=0.4).released(released))

    def truth():
        means = released.mean(axis=1)
        residual = ((released - means[:, None]) ** 2).sum()

        def at(w, x):
            (u, one), (v, other) = stretched(w), stretched(x)
            between, within = np.exp(u), np.exp(v)
            row = within**2 + 0.16
            total = between**2 + row / 4
            height = -0.5 * residual / row - 9.0 * np.log(2 * np.pi * row) - 3.0 * np.log(4.0)
            height += -0.5 * ((means - 3.0) ** 2).sum() / total - 3.0 * np.log(2 * np.pi * total)
            share = between**2 / total
            values = {"between": between, "within": within}
            values["laboratory[0]"] = (3.0 + share * (means[0] - 3.0), between**2 * (1 - share))
            prior = laws.log_half_normal(u, 2.0) + laws.log_half_normal(v, 2.0) + one + other
            return prior + height, values

        return integrate(at, [SPREAD, SPREAD])

    return Problem(model, release, truth)


@problem
def weeks_of_a_random_walk():
    """Twenty-six weekly counts; the log rate walks at random, by steps that may well be next to none."""
    weeks, scale = 26, 4.0
    rng = np.random.default_rng(63)
    counts = rng.poisson(np.exp(3.0 + np.cumsum(0.05 * rng.normal(size=weeks))))
    released = counts + rng.geometric(1 - np.exp(-1 / scale), weeks) - rng.geometric(1 - np.exp(-1 / scale), weeks)
    model = nw.Model(
        {
            "first": dist.Normal(3.0, 1.0),
            "spread": dist.HalfNormal(0.5),
            "steps": lambda spread: dist.Normal(0.0, spread).expand([weeks - 1]),
        },
        {"cases": lambda first, steps: dist.Poisson(jnp.exp(jnp.cumsum(jnp.concatenate([first[None], steps]))))},
    )
    release = nw.Release(cases=nw.DiscreteLaplace(scale=scale).released(released))

    def truth():
        k = np.arange(200.0)
        x = np.linspace(1.0, 5.3, 861)  # the log rate of a week
        mesh = x[1] - x[0]
        law = laws.poisson_log_rate(k, x[:, None])
        likely = np.stack([summed_out(law, laws.discrete_laplace(r - k, scale), k)[0] for r in released])
        prior = laws.normal(x - 3.0, 1.0) + np.log(mesh)

        def of(spread):
            """Log marginal density of the release, mean and variance of the first and the last log rate."""
            # steps below the mesh, 2% of the prior, are as good as none
            step = np.exp(laws.normal(x[:, None] - x, spread)) * mesh if spread > mesh else np.eye(len(x))

            def passed_on(terms):
                with np.errstate(divide="ignore"):
                    return np.log(step @ np.exp(terms - terms.max())) + terms.max()

            forward = prior + likely[0]
            for week in range(1, weeks):
                forward = passed_on(forward) + likely[week]
            backward = np.zeros_like(x)
            for week in range(weeks - 1, 0, -1):
                backward = passed_on(backward + likely[week])
            ends = {}
            for name, terms in (("first", prior + likely[0] + backward), ("last", forward)):
                weight = np.exp(terms - terms.max()) / np.exp(terms - terms.max()).sum()
                ends[name] = weight @ x, weight @ (x - weight @ x) ** 2
            return logsumexp(forward), ends

        u, v = (np.linspace(-9.0, 1.3, number) for number in (64, 127))
        coarse, fine = (hidden([of(np.exp(at)) for at in nodes], nodes) for nodes in (u, v))
        apart = [abs(coarse.moments[name][0] - mean) / sd for name, (mean, sd) in fine.moments.items()]
        assert max(apart) < 1e-3, apart
        return fine

    def hidden(found, u):
        spread = np.exp(u)
        height = np.array([level for level, _ in found]) + laws.log_half_normal(u, 0.5) + np.log(u[1] - u[0])
        ends = {
            name: tuple(np.array([at[name][moment] for _, at in found]) for moment in (0, 1))
            for name in ("first", "last")
        }
        return enumerated(height, {"spread": spread, **ends})

    views = {"last": lambda posterior: posterior["first"] + posterior["steps"].sum(axis=1)}
    return Problem(model, release, truth, views)


@problem
def weeks_of_a_gaussian_process():
    """Nine noisy means along a line; the curve behind them is a Gaussian process of unknown size and length."""
    at, law_sd, noise_sd, jitter = np.linspace(0.0, 4.0, 9), 0.2, 0.3, 1e-4
    apart = np.subtract.outer(at, at) ** 2
    released = np.array([2.6, 2.9, 3.4, 2.8, 2.1, 1.7, 1.2, 2.2, 2.9])

    def curve(size, length):
        covariance = size**2 * jnp.exp(-apart / (2.0 * length**2)) + jitter * jnp.eye(len(at))
        return dist.MultivariateNormal(jnp.full(len(at), 2.3), covariance_matrix=covariance)

    model = nw.Model(
        {"size": dist.HalfNormal(1.0), "length": dist.LogNormal(0.0, 0.5), "curve": curve},
        {"mean": lambda curve: dist.Normal(curve, law_sd)},
    )
    release = nw.Release(mean=nw.Gaussian(scale=noise_sd).released(released))

    def truth():
        error = law_sd**2 + noise_sd**2

        def of(w, v):
            u, jacobian = stretched(w)
            size, length = np.exp(u), np.exp(v)
            own = size[:, None, None] ** 2 * np.exp(-apart / (2.0 * length[:, None, None] ** 2))
            own = own + jitter * np.eye(len(at))
            whole, away = own + error * np.eye(len(at)), released - 2.3
            gain = np.linalg.solve(whole, own)  # its transpose times the distance is the shift of the curve
            fit = np.linalg.solve(whole, np.broadcast_to(away[:, None], (len(w), len(at), 1)))[..., 0]
            height = -0.5 * (fit @ away) - 0.5 * np.linalg.slogdet(2.0 * np.pi * whole)[1]
            prior = laws.log_half_normal(u, 1.0) + jacobian + laws.normal(v, 0.5)
            left = own - np.einsum("pij,pjk->pik", own, gain)
            moments = {
                f"curve[{week}]": (2.3 + np.einsum("pj,pj->p", own[:, week], fit), left[:, week, week])
                for week in (0, 6)
            }
            return prior + height, {"size": size, "length": length, **moments}

        return integrate(of, [(SPREAD[0], 3.0), (-4.0, 4.0)])

    return Problem(model, release, truth)


@problem
def sites_of_unknown_numbers():
    """Twelve sites, each visited twice: of those who live there each is seen with one chance, and counts are noisy."""
    rng, sites, scale = np.random.default_rng(12), 12, 1.5
    present = rng.poisson(9.0, sites)
    noise = rng.geometric(1.0 - np.exp(-1.0 / scale), (2, 2, sites))
    released = rng.binomial(present, 0.5, (2, sites)) + noise[0] - noise[1]

    def visit(present, p):
        return dist.Binomial(present, p)

    model = nw.Model(
        prior={"rate": dist.Gamma(4.0, 0.5), "p": dist.Beta(3.0, 3.0)},
        statistics={
            "present": lambda rate: dist.Poisson(rate).expand([sites]),
            "first": visit,
            "second": visit,
        },
    )
    mechanism = nw.DiscreteLaplace(scale=scale)
    release = nw.Release(first=mechanism.released(released[0]), second=mechanism.released(released[1]))

    def truth():
        k = np.arange(161.0)
        eta = np.exp(laws.discrete_laplace(released[..., None] - k, scale))  # (visits, sites, counts)

        def one(rate, p):
            with np.errstate(divide="ignore"):
                log_seen = laws.binomial(np.minimum(k, k[:, None]), k[:, None], p)
                seen = np.where(k[None] <= k[:, None], np.exp(log_seen), 0.0)
                joint = laws.poisson(k, rate) + np.log(eta @ seen.T).sum(axis=0)  # (sites, present)
            height = logsumexp(joint, axis=1)
            weight = np.exp(joint[0] - height[0])
            return height.sum(), weight @ k, weight @ k**2 - (weight @ k) ** 2

        def at(u, v):
            rate, p = np.exp(u), laws.expit(v)
            height, mean, variance = np.array([one(*pair) for pair in zip(rate, p, strict=True)]).T
            prior = laws.log_gamma(u, 4.0, 0.5) + laws.logit_beta(v, 3.0, 3.0)
            return prior + height, {"rate": rate, "p": p, "present[0]": (mean, variance)}

        return integrate(at, [(-1.0, 5.3), (-8.0, 10.0)], first=41, tolerance=1e-3)

    return Problem(model, release, truth)


@problem
def rates_with_a_half_cauchy_spread():
    """Eight log rates under a half-Cauchy spread: prior draws have rates beyond every number."""
    released, scale = np.array([3, 9, 14, 6, 30, 11, 8, 5]), 2.0
    model = nw.Model(
        prior={
            "mu": dist.Normal(2.0, 1.0),
            "tau": dist.HalfCauchy(1.0),
            "eta": lambda mu, tau: dist.Normal(mu, tau).expand([len(released)]),
        },
        statistics={"cases": lambda eta: dist.Poisson(jnp.exp(eta))},
    )
    release = nw.Release(cases=nw.DiscreteLaplace(scale=scale).released(released))

    def truth():
        k, eta = np.arange(200.0), np.linspace(-40.0, 6.0, 4601)
        noise = np.exp(laws.discrete_laplace(released - k[:, None], scale))
        each = np.exp(laws.poisson_log_rate(k, eta[:, None])) @ noise

        def at(mu, w):
            u, jacobian = stretched(w)
            tau = np.exp(u)
            fine = np.linspace(-8.0, 8.0, 401)
            points = mu[:, None] + tau[:, None] * fine
            law = np.exp(-0.5 * fine**2) * (fine[1] - fine[0]) / np.sqrt(2.0 * np.pi)
            height = sum(np.log(np.interp(points, eta, one, left=0.0, right=0.0) @ law) for one in each.T)
            log_cauchy = np.log(2.0 / np.pi) - np.log1p(tau**2) + u + jacobian
            return laws.normal(mu - 2.0, 1.0) + log_cauchy + height, {"mu": mu, "1 / (1 + tau)": 1.0 / (1.0 + tau)}

        return integrate(at, [(-9.0, 13.0), SPREAD], first=81, tolerance=1e-3, at_once=2**9)

    return Problem(model, release, truth, {"1 / (1 + tau)": lambda posterior: 1.0 / (1.0 + posterior["tau"])})
