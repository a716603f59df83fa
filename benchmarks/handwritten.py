"""What a careful analyst would write by hand: Algorithm 1 in chunked, threaded NumPy. The yardstick of `make bench`."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def algorithm_1(propose, draws, seed, workers, chunk):
    """Accepted parameters (first `draws` rows) and the number of proposals. `propose(rng, chunk)` -> (theta, ratio)."""
    lock = threading.Lock()
    kept, total = [], {"accepted": 0, "proposals": 0}

    def work(worker):
        rng = np.random.default_rng([seed, worker])
        while total["accepted"] < draws:
            theta, ratio = propose(rng, chunk)
            accepted = theta[rng.random(chunk) < ratio]
            with lock:
                kept.append(accepted)
                total["accepted"] += len(accepted)
                total["proposals"] += chunk

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    return np.concatenate(kept)[:draws], total["proposals"]


def count(rng, chunk):
    """Gamma(25, 1) prior, Poisson count, Laplace noise of scale 5, released 37.4."""
    theta = rng.standard_gamma(25.0, chunk)
    s = rng.poisson(theta)
    return theta, np.exp(-np.abs(37.4 - s) / 5.0)


def lalonde(released):
    """Four parameters, four statistics, Laplace noise of scales 3, 3, 6, 6."""
    mean_t, mean_c, var_t, var_c = released

    def propose(rng, chunk):
        tau = rng.normal(0.0, 5.0, chunk)
        mu = rng.normal(4.0, 5.0, chunk)
        sigma_t = rng.gamma(2.0, 5.0, chunk)
        sigma_c = rng.gamma(2.0, 5.0, chunk)
        log_ratio = -np.abs(mean_t - (mu + tau + sigma_t / np.sqrt(185) * rng.standard_normal(chunk))) / 3.0
        log_ratio -= np.abs(mean_c - (mu + sigma_c / np.sqrt(260) * rng.standard_normal(chunk))) / 3.0
        log_ratio -= np.abs(var_t - sigma_t**2 * rng.chisquare(184, chunk) / 184) / 6.0
        log_ratio -= np.abs(var_c - sigma_c**2 * rng.chisquare(259, chunk) / 259) / 6.0
        return np.column_stack([tau, mu, sigma_t, sigma_c]), np.exp(log_ratio)

    return propose
