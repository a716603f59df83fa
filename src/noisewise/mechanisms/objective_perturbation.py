"""Regression with a random linear term in the objective (Chaudhuri, Monteleoni and Sarwate 2011)."""

import math
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import InferenceError, refusal
from noisewise.mechanisms.base import BUDGET, Mechanism
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.numerics import namespace, special

_WHO = "ObjectivePerturbation"
_LOSSES = ("logistic", "linear")
_NOISES = ("laplace", "gaussian")

_STEEPEST = 1.2784645427610738
"""Where m / (1 + e^m) is largest: the root of (m - 1) e^m = 1."""
_CURVIEST = 2.3993572805154677
"""Where m^2 e^m / (1 + e^m)^2 is largest: the root of m tanh(m / 2) = 2."""


class ObjectivePerturbation(Mechanism):
    """Coefficients of a ridge regression whose objective carries a random linear term.

    Released: the b of d entries that minimises  sum_i loss(b; x_i, y_i) + (ridge / 2) |b|^2 + v . b  (sums, not
    averages). Confidential: the data, a row (x_i, y_i) for each of `n` records, y last. `loss` is
    "logistic", log(1 + exp(-y x.b)) with y in {-1, 1}, or "linear", (y - x.b)^2 / 2 with |y| <= `label_bound`.
    The noise v has density proportional to exp(-|v|_2 / scale) (`noise="laplace"`) or is normal with variance
    scale^2 in each entry ("gaussian").

    Law: the objective is strongly convex, so v and b determine each other: v(b) = -(gradient of the regularised
    loss at b), with Jacobian -H(b), minus its Hessian. Density: g(v(b)) det H(b), g the density of v.
    Domain: |x_i|_2 <= `feature_bound` and the labels above. Data outside it are refused: the curator cannot have
    had them.
    Supremum: a bound over that domain, from a lower bound of |v(b)| and an upper bound of det H(b) (`log_sup`).
    Calibration, replace-one neighbours, logistic loss only. Laplace: Algorithm 2 of Chaudhuri et al. in the
    present convention with B = `feature_bound`: epsilon' = epsilon - 2 log(1 + B^2 / (4 ridge)), scale =
    2 B / epsilon'; where epsilon' is not positive, the ridge is raised to B^2 / (4 (exp(epsilon / 4) - 1)) and
    epsilon' = epsilon / 2. Gaussian, `epsilon` with `delta`, after Kifer, Smith and Thakurta (2012) with constants
    derived in docs/mechanisms/objective.md: scale = 2 B / q with q^2 / 2 + q sqrt(2 log(1 / delta)) =
    epsilon - log(1 + B^2 / (4 ridge)); where that is not positive, the ridge is raised to
    B^2 / (4 (exp(epsilon / 2) - 1)).
    Sampler: v as a Gamma(d) length in a uniform direction, or normal; then damped Newton steps to b.
    """

    did = (
        "holds the coefficients of a {loss} regression of {n} records, whose fitting criterion got a random term "
        "({noise} noise of scale {scale}) and a ridge penalty of {ridge}"
    )
    fields = ("scale", "ridge", "feature_bound", "label_bound")
    static = ("loss", "noise", "n")
    arguments = {
        "loss": {"enum": list(_LOSSES)},
        "noise": {"enum": list(_NOISES)},
        "n": {"type": "integer", "minimum": 1},
    } | dict.fromkeys(("scale", "ridge", "feature_bound", "label_bound", "epsilon", "delta"), BUDGET)
    alternatives = (("scale", "loss", "ridge", "n"), ("epsilon", "loss", "ridge", "n"))
    event_dim = 1
    measure = "density"
    supremum = "bound"

    scale: Any
    ridge: Any
    feature_bound: Any
    label_bound: Any
    loss: str
    noise: str
    n: int

    def __init__(
        self,
        scale: Any = None,
        *,
        loss: Any,
        ridge: Any,
        n: Any,
        noise: Any = "laplace",
        feature_bound: Any = 1.0,
        label_bound: Any = None,
        epsilon: Any = None,
        delta: Any = None,
    ) -> None:
        loss = checks.choice(_WHO, "loss", loss, _LOSSES)
        noise = checks.choice(_WHO, "noise", noise, _NOISES)
        n = checks.integer(_WHO, "n", n, least=1, advice="Give the number of records, which is public.")
        ridge = checks.positive_number(_WHO, "ridge", ridge, "Give the weight of |b|^2 / 2 beside a sum of losses.")
        bound = checks.positive_number(
            _WHO, "feature_bound", feature_bound, "Give the largest norm of a record's features."
        )
        label_bound = _label_bound(loss, label_bound)
        scale, ridge, guarantee = _calibrated(scale, loss, noise, ridge, bound, epsilon, delta)
        self._freeze(
            guarantee,
            scale=scale,
            ridge=ridge,
            feature_bound=bound,
            label_bound=label_bound,
            loss=loss,
            noise=noise,
            n=n,
        )

    # The law ------------------------------------------------------------------------------------------

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """log density of the noise that makes `released` the minimiser, plus the log determinant of the Hessian."""
        xp = namespace(released, confidential, self)
        released, confidential = xp.asarray(released), xp.asarray(confidential)
        self._check_data(xp, confidential, released.shape[-1])
        gradient, hessian = self._derivatives(xp, released, confidential)
        log_det = xp.linalg.slogdet(hessian)[1]
        return self._noise_log_prob(xp, _norm(xp, gradient), released.shape[-1]) + log_det

    def log_sup(self, released: Any) -> Any:
        """log of g(floor) times a bound of det H, over data in the domain.

        |v| >= floor: with B the feature bound, r = B |b| and b.v = -ridge |b|^2 - sum_i b.grad_i, each -b.grad_i
        is at most the largest m / (1 + e^m) (logistic) or Y m - m^2 (linear) over 0 <= m <= r; divide by |b|.
        det H <= H_11 det(rest) in a basis that starts with b (Fischer), the rest by the arithmetic-geometric mean
        of its eigenvalues. The loss adds p = sum w_i (x_i.b)^2 / |b|^2 to H_11 and q to the trace of the rest, with
        p + q <= n c B^2 (as w_i <= c) and p <= n max w(m) m^2 / |b|^2; the product of the two is largest at
        p = min(that, n c B^2 / d).
        """
        xp = namespace(released, self)
        released = xp.asarray(released)
        size, n, bound = released.shape[-1], self.n, self.feature_bound
        length = _norm(xp, released)
        reach = bound * length
        if self.loss == "logistic":
            turn, most = _STEEPEST, 0.25
            point = xp.minimum(reach, _CURVIEST)
            along = _weight(point, reach) * (_CURVIEST / xp.maximum(reach, _CURVIEST)) ** 2
        else:
            turn, most = 0.5 * self.label_bound, 1.0
            along = xp.ones_like(reach)
        point = xp.minimum(reach, turn)
        steepness = special(reach).expit(-point) if self.loss == "logistic" else self.label_bound - point
        pull = n * bound * steepness * (turn / xp.maximum(reach, turn))
        # Rounding must not lift the floor above |v|: a tiny scale would magnify that.
        floor = xp.maximum(self.ridge * length * (1.0 - 1e-13) - pull * (1.0 + 1e-13), 0.0)
        total = n * most * bound**2
        first = xp.minimum(n * along * bound**2, total / size)
        log_det = xp.log(self.ridge + first)
        if size > 1:
            log_det = log_det + (size - 1) * xp.log(self.ridge + (total - first) / (size - 1))
        return self._noise_log_prob(xp, floor, size) + log_det

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release, one per leading row; not for publishing (see `Mechanism.sample`)."""
        data = np.asarray(confidential, dtype=float)
        size = data.shape[-1] - 1
        self._check_data(np, data, size)
        direction = rng.standard_normal((*data.shape[:-2], size))
        if self.noise == "gaussian":
            return self._minimiser(data, self.scale * direction)
        radius = self.scale * rng.gamma(size, size=data.shape[:-2])
        return self._minimiser(data, direction * (radius / _norm(np, direction))[..., None])

    def _noise_log_prob(self, xp: Any, length: Any, size: int) -> Any:
        """log density of the noise at a vector of the given length; it falls as the length grows."""
        if self.noise == "gaussian":
            ratio = length / self.scale
            return -0.5 * ratio * ratio - size * (xp.log(self.scale) + 0.5 * math.log(2.0 * math.pi))
        # The sphere's area times the Gamma integral of the length.
        log_area = math.log(2.0) + 0.5 * size * math.log(math.pi) - math.lgamma(0.5 * size)
        return -length / self.scale - size * xp.log(self.scale) - math.lgamma(size) - log_area

    def _derivatives(self, xp: Any, b: Any, data: Any) -> tuple[Any, Any]:
        """Gradient and Hessian of the regularised loss at b."""
        x, y = data[..., :-1], data[..., -1]
        fitted = xp.sum(x * b[..., None, :], axis=-1)
        if self.loss == "logistic":
            pull = -y * special(fitted).expit(-y * fitted)
            weight = _weight(fitted, fitted)
        else:
            pull, weight = fitted - y, xp.ones_like(fitted)
        gradient = xp.sum(pull[..., None] * x, axis=-2) + self.ridge * b
        hessian = xp.swapaxes(x * weight[..., None], -1, -2) @ x + self.ridge * xp.eye(b.shape[-1])
        return gradient, hessian

    def _objective(self, b: Any, data: Any, v: Any) -> Any:
        x, y = data[..., :-1], data[..., -1]
        fitted = np.sum(x * b[..., None, :], axis=-1)
        losses = np.logaddexp(0.0, -y * fitted) if self.loss == "logistic" else 0.5 * (y - fitted) ** 2
        return losses.sum(axis=-1) + 0.5 * self.ridge * np.sum(b * b, axis=-1) + np.sum(v * b, axis=-1)

    def _minimiser(self, data: Any, v: Any) -> Any:
        """Newton's method with halved steps; at the end the gradient is zero up to rounding."""
        lead = v.shape
        data, v = data.reshape(-1, *data.shape[-2:]), v.reshape(-1, v.shape[-1])
        b = np.zeros_like(v)
        active = np.arange(len(v))
        for _ in range(1_000):
            gradient, hessian = self._derivatives(np, b[active], data[active])
            slope = gradient + v[active]
            step = np.linalg.solve(hessian, slope[..., None])[..., 0]
            # A slope that the sum of its terms cannot resolve counts as zero.
            size = self.n * self.feature_bound * max(self.label_bound, 1.0)
            rounding = size + _norm(np, v[active]) + hessian.max(axis=(-1, -2)) * _norm(np, b[active])
            converged = _norm(np, slope) <= 1e-13 * rounding
            b[active[converged]] -= step[converged]
            active, step, slope = active[~converged], step[~converged], slope[~converged]
            if not len(active):
                return b.reshape(lead)
            b[active] -= self._step_length(b[active], data[active], v[active], step, slope)[:, None] * step
        raise InferenceError(
            f"Newton's method did not converge in 1000 steps for {len(active)} data sets.", who=f"{_WHO}.sample"
        )

    def _step_length(self, b: Any, data: Any, v: Any, step: Any, slope: Any) -> Any:
        length = np.ones(len(b))
        before, gain = self._objective(b, data, v), np.sum(step * slope, axis=-1)
        slack = 1e-12 * (1.0 + np.abs(before))
        for _ in range(60):
            after = self._objective(b - length[:, None] * step, data, v)
            worse = after > before - 0.1 * length * gain + slack
            if not worse.any():
                break
            length[worse] *= 0.5
        return length

    # Values and data -------------------------------------------------------------------------------------

    def check_released(self, value: Any) -> Any:
        """One finite coefficient per feature."""
        value = super().check_released(value)
        if np.ndim(value) != 1 or not len(value):
            rule = "must be one vector, a coefficient per feature"
            raise refusal(f"{_WHO}.released", "value", rule, value, "Give a list, also for a single feature.")
        return value

    def misfit(self, released: tuple[int, ...], confidential: tuple[int, ...]) -> str | None:
        """The data are `n` rows, one column more than coefficients."""
        expected = (self.n, released[-1] + 1)
        if confidential == expected:
            return None
        return f"must have the shape {expected}: a row for each record, its features and then its label"

    def _check_data(self, xp: Any, data: Any, size: int) -> None:
        if data.ndim < 2 or data.shape[-2:] != (self.n, size + 1):
            rule = f"must have rows of data of shape {(self.n, size + 1)}"
            raise refusal(_WHO, "confidential", rule, f"shape {data.shape}", "Give features and then the label.")
        if xp is not np:
            return  # traced values cannot be looked at; the law itself is the same
        norms, y = _norm(np, data[..., :-1]), data[..., -1]
        if not np.all(norms <= self.feature_bound * (1.0 + 1e-12)):
            rule = f"must have features of norm at most {self.feature_bound:g}"
            advice = "Scale the features in the model as the curator did, or give the right feature_bound."
            raise refusal(_WHO, "confidential", rule, float(np.max(norms)), advice)
        if self.loss == "logistic" and not np.all(np.abs(y) == 1.0):
            worst = float(y.flat[np.argmax(np.abs(y) != 1.0)])
            raise refusal(_WHO, "confidential", "must have labels -1 and 1", worst, "Code 0 and 1 as -1 and 1.")
        if not np.all(np.abs(y) <= self.label_bound * (1.0 + 1e-12)):
            rule = f"must have labels of size at most {self.label_bound:g}"
            advice = "Clip the labels in the model as the curator did, or give the right label_bound."
            raise refusal(_WHO, "confidential", rule, float(np.max(np.abs(y))), advice)


def _norm(xp: Any, vector: Any) -> Any:
    return xp.sqrt(xp.sum(vector * vector, axis=-1))


def _weight(margin: Any, *like: Any) -> Any:
    """Second derivative of the logistic loss, e^m / (1 + e^m)^2; at most 1/4."""
    expit = special(margin, *like).expit
    return expit(margin) * expit(-margin)


def _label_bound(loss: str, value: Any) -> float:
    if loss == "logistic":
        if value is not None and checks.positive_number(_WHO, "label_bound", value, "Leave it out.") != 1.0:
            rule = "must be 1, or left out, for the logistic loss"
            raise refusal(_WHO, "label_bound", rule, value, "Its labels are -1 and 1.")
        return 1.0
    return checks.positive_number(_WHO, "label_bound", value, "Linear regression needs the largest size of a label.")


def _calibrated(
    scale: Any, loss: str, noise: str, ridge: float, bound: float, epsilon: Any, delta: Any
) -> tuple[float, float, Guarantee | None]:
    """Scale, ridge and guarantee, from the scale or from a budget."""
    advice = "Give scale, or epsilon (with delta for Gaussian noise)."
    if scale is not None:
        if epsilon is not None or delta is not None:
            raise refusal(_WHO, "scale", "must not come together with a budget", scale, advice)
        return checks.positive_number(_WHO, "scale", scale, advice), ridge, None
    if epsilon is None:
        raise refusal(_WHO, "scale", "must be given when there is no epsilon", scale, advice)
    epsilon = checks.positive_number(_WHO, "epsilon", epsilon, advice)
    if loss != "logistic":
        rule = "must not be given for the linear loss, whose gradient has no bound over all coefficients"
        raise refusal(_WHO, "epsilon", rule, epsilon, "Give the scale that the curator used.")
    if noise == "laplace":
        if delta is not None:
            raise refusal(_WHO, "delta", "must not be given for Laplace noise", delta, 'Or choose noise="gaussian".')
        remaining = epsilon - 2.0 * math.log1p(0.25 * bound**2 / ridge)
        if remaining <= 0.0:
            ridge, remaining = 0.25 * bound**2 / math.expm1(0.25 * epsilon), 0.5 * epsilon
        return 2.0 * bound / remaining, ridge, Guarantee(epsilon=epsilon, neighbours="replace-one")
    delta = checks.positive_number(_WHO, "delta", delta, "Gaussian noise needs delta with epsilon.")
    if delta >= 1.0:
        raise refusal(_WHO, "delta", "must be below 1", delta, "Give a small probability.")
    remaining = epsilon - math.log1p(0.25 * bound**2 / ridge)
    if remaining <= 0.0:
        ridge, remaining = 0.25 * bound**2 / math.expm1(0.5 * epsilon), 0.5 * epsilon
    # The positive root q of q^2 / 2 + q t = remaining, without cancellation.
    t = math.sqrt(2.0 * math.log(1.0 / delta))
    q = 2.0 * remaining / (t + math.sqrt(t * t + 2.0 * remaining))
    return 2.0 * bound / q, ridge, Guarantee(epsilon=epsilon, delta=delta, neighbours="replace-one")
