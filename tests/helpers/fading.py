"""Page views after an earthquake, four days published and ten withheld: integrated over a grid in NumPy alone.

Views of day t are negative binomial with mean `first * t ** -decay` and size `size`. Their noisy values are published
from a threshold on. A day's probability depends on the parameters only through its mean and the size, so it is summed
over the views once on a grid of means and sizes, and read off between the means by cubic splines.
"""

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import gammaln

FIRST, DECAY, SIZE = (8.0, 1.5), (0.0, 0.7), (2.0, 1.0)
"""Mean and standard deviation of the logs of the three parameters."""


def geometric(z):
    """Two-sided geometric noise of scale 30."""
    return np.tanh(1 / 60) * np.exp(-np.abs(z) / 30)


def gaussian(z):
    """Discrete Gaussian noise, sigma^2 = 10 / (2 * 0.01505)."""
    variance = 10 / (2 * 0.01505)
    return np.exp(-0.5 * z**2 / variance) / np.exp(-0.5 * np.arange(-2_000, 2_001) ** 2 / variance).sum()


def kernels(noise, threshold, published):
    """Per published value, and last for a withheld one: views that matter, and the probability given each."""
    reach = 900 if noise is geometric else 150
    z = np.arange(-4_000, 4_001)
    below = np.cumsum(noise(z))  # P(noise <= z)
    for value in published:
        views = np.arange(max(value - reach, 0), value + reach + 1)
        yield views, noise(value - views)
    views = np.arange(threshold + reach + 1)
    yield views, below[(threshold - 1 - views) + 4_000]


class Posterior:
    """Posterior weights on a grid of log parameters: the trapezium rule, beyond whose ends next to nothing lies.

    With `withheld` false the days without a value are left out, and the threshold is not heard of: the biased analysis.
    """

    def __init__(self, noise, threshold, published, days, withheld=True):
        self.axes = [np.linspace(6.5, 11.5, 81), np.linspace(-1.5, 1.8, 67), np.linspace(-2.0, 7.0, 37)]
        first, decay, size = self.axes
        log_mean = np.linspace(-3.0, 11.0, 281)
        log_weight = sum(
            -0.5 * ((grid - mean) / spread) ** 2
            for grid, (mean, spread) in zip(np.meshgrid(*self.axes, indexing="ij"), (FIRST, DECAY, SIZE), strict=True)
        )
        means = first[:, None, None] - np.exp(decay)[:, None] * np.log(np.arange(1, days + 1))  # first x decay x day
        self.views = np.empty((days, *log_weight.shape)) if withheld else None
        days_kernels = list(kernels(noise, threshold, published))
        for j, concentration in enumerate(np.exp(size)):
            for k, (views, chance) in enumerate(days_kernels):
                if k == len(published) and not withheld:
                    break
                law = np.exp(log_negative_binomial(views, np.exp(log_mean)[:, None], concentration))
                total = law @ chance
                log_total = CubicSpline(log_mean, np.log(np.maximum(total, 1e-300)))
                expected = CubicSpline(log_mean, (law @ (chance * views)) / np.maximum(total, 1e-300))
                for t in range(len(published), days) if k == len(published) else [k]:
                    log_weight[:, :, j] += log_total(means[..., t])
                    if withheld:
                        self.views[t, :, :, j] = expected(means[..., t])
        self.weight = np.exp(log_weight - log_weight.max())
        self.weight /= self.weight.sum()

    def marginal(self, axis):
        """Weights of one log parameter."""
        return self.weight.sum(axis=tuple(other for other in range(3) if other != axis))

    def mean(self, axis, transform=np.exp):
        """Posterior mean of a function of one log parameter."""
        return self.marginal(axis) @ transform(self.axes[axis])

    def variance(self, axis, transform=np.exp):
        """Posterior variance of a function of one log parameter."""
        return self.mean(axis, lambda x: transform(x) ** 2) - self.mean(axis, transform) ** 2

    def mean_views(self, day):
        """Posterior mean of the confidential views of a day, counted from 0."""
        return float((self.weight * self.views[day]).sum())


def log_negative_binomial(views, mean, size):
    """log probability of views, by mean and size."""
    return (
        gammaln(views + size)
        - gammaln(size)
        - gammaln(views + 1)
        + size * np.log(size / (size + mean))
        + views * np.log(mean / (size + mean))
    )
