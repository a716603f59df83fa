"""The three problems in plain NumPy, for every peer alike: priors, simulators, what was released and its noise."""

import json
import sys
import time

import numpy as np

RELEASED = {"count, Gamma(25, 1)": [37.4], "count, Gamma(2, 1)": [37.4], "Lalonde": [7.9, 3.1, 66.0, 27.5]}
SCALES = {"count, Gamma(25, 1)": [5.0], "count, Gamma(2, 1)": [5.0], "Lalonde": [3.0, 3.0, 6.0, 6.0]}
SHAPES = {"count, Gamma(25, 1)": 25.0, "count, Gamma(2, 1)": 2.0}
LALONDE = ("tau", "mu", "sigma_t", "sigma_c")


def simulated(problem, rng, parameters):
    """Confidential statistics given parameters; arrays of draws in, arrays of draws out, one per statistic."""
    if problem != "Lalonde":
        return [rng.poisson(parameters[0])]
    tau, mu, sigma_t, sigma_c = parameters
    return [
        rng.normal(mu + tau, sigma_t / np.sqrt(185.0)),
        rng.normal(mu, sigma_c / np.sqrt(260.0)),
        rng.gamma(92.0, 2.0 * sigma_t**2 / 184.0),
        rng.gamma(129.5, 2.0 * sigma_c**2 / 259.0),
    ]


def interest(problem, parameters):
    """What is compared: theta; or tau, mu and the two variances."""
    if problem != "Lalonde":
        return [parameters[0]]
    tau, mu, sigma_t, sigma_c = parameters
    return [tau, mu, sigma_t**2, sigma_c**2]


def measure(run, version, warm=True):
    """`script PROBLEM RUNS SIZE`: time `run(problem, size, seed)`: parameters, weights, independent draws.

    Prints JSON: each run's means and variances, seconds, and number of independent draws where the method gives such
    (else null). A first run, not timed, compiles where the peer does.
    """
    problem, runs, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if warm:
        run(problem, size, 10**6)
    told = {"version": version, "means": [], "variances": [], "seconds": [], "independent": []}
    for seed in range(1, runs + 1):
        began = time.perf_counter()
        parameters, weights, draws = run(problem, size, seed)
        told["seconds"].append(time.perf_counter() - began)
        values = interest(problem, parameters)
        means = [float(np.average(one, weights=weights)) for one in values]
        spread = [np.average((one - mean) ** 2, weights=weights) for one, mean in zip(values, means, strict=True)]
        told["means"].append(means)
        told["variances"].append(list(map(float, spread)))
        told["independent"].append(draws)
    print(json.dumps(told))
