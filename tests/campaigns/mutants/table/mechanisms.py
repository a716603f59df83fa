"""Mistakes in the laws of mechanisms, in their budgets, in sensitivities and on the curator's side."""

from mutants.mutant import Mutant

LAWS = "mechanisms/test_mechanisms.py"
ADDITIVE = "mechanisms/test_additive.py"
CATALOGUE = "mechanisms/test_catalogue.py"
PROCESSED = "mechanisms/test_processed.py"
RESPONSE = "mechanisms/test_response.py"
CHOICES = "mechanisms/test_selection.py"
OBJECTIVE = "mechanisms/test_objective.py"
SENSITIVITY = "test_sensitivity.py"

NOISE = {
    "how far off a count is leaves out one end": Mutant(
        "mechanisms/typical_error.py",
        "(-k, k + 1.0) if lattice",
        "(-k, k) if lattice",
        "mechanisms/test_typical_error.py::test_the_size_of_noise_is_that_of_its_law",
    ),
    "the supremum of additive noise is taken at one, not at zero": Mutant(
        "mechanisms/additive.py",
        "return self.noise_log_prob(namespace(released).zeros_like(released, dtype=float))",
        "return self.noise_log_prob(namespace(released).ones_like(released, dtype=float))",
        f"{LAWS}::test_log_sup_is_never_exceeded",
    ),
    "the probability of an interval of whole numbers leaves out its first": Mutant(
        "mechanisms/additive.py",
        "return log_difference(xp, self._log_cdf(xp, last), self._log_cdf(xp, first - 1.0))",
        "return log_difference(xp, self._log_cdf(xp, last), self._log_cdf(xp, first))",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "Laplace noise has density exp(-|z|/scale)/scale": Mutant(
        "mechanisms/laplace.py",
        "return -xp.abs(z) / self.scale - xp.log(2.0 * self.scale)",
        "return -xp.abs(z) / self.scale - xp.log(self.scale)",
        f"{LAWS}::test_density_has_mass_one",
    ),
    "Laplace noise is drawn at half its scale": Mutant(
        "mechanisms/laplace.py",
        "return self.scale * rng.laplace(size=shape)",
        "return 0.5 * self.scale * rng.laplace(size=shape)",
        f"{LAWS}::test_sampler_follows_density",
    ),
    "Gaussian noise for rho has variance sensitivity / (2 rho)": Mutant(
        "mechanisms/gaussian.py",
        'return sensitivity / math.sqrt(2.0 * budget["rho"])',
        'return math.sqrt(sensitivity / (2.0 * budget["rho"]))',
        f"{LAWS}::test_rho_is_met",
    ),
    "the delta of Gaussian noise lacks its second term": Mutant(
        "mechanisms/gaussian.py",
        "second = epsilon + log_ndtr(-0.5 / scale - epsilon * scale)",
        "second = epsilon + log_ndtr(-5.0 / scale - epsilon * scale)",
        f"{LAWS}::test_gaussian_epsilon_delta_is_met_and_nearly_attained",
    ),
    "a geometric difference is drawn with its terms dependent": Mutant(
        "mechanisms/discrete_laplace.py",
        "return rng.geometric(success, shape) - rng.geometric(success, shape)",
        "return rng.geometric(success, shape) - rng.poisson(1.0 / success, shape)",
        f"{LAWS}::test_sampler_follows_density",
    ),
    "discrete Laplace noise is normalised as if continuous": Mutant(
        "mechanisms/discrete_laplace.py",
        "return xp.log(-xp.expm1(decay)) - xp.log1p(xp.exp(decay)) - xp.abs(z) / self.scale",
        "return -xp.log(2.0 * self.scale) - xp.abs(z) / self.scale",
        f"{LAWS}::test_density_has_mass_one",
    ),
    "discrete Gaussian noise is normalised as if continuous": Mutant(
        "mechanisms/discrete_gaussian.py",
        "return xp.where(scale < 0.5, direct, xp.log(scale) + 0.5 * math.log(2.0 * math.pi) + dual)",
        "return xp.log(scale) + 0.5 * math.log(2.0 * math.pi) + 0.0 * (direct + dual)",
        f"{LAWS}::test_discrete_gaussian_normaliser",
    ),
    "discrete Gaussian noise is accepted without the shift of its envelope": Mutant(
        "mechanisms/discrete_gaussian.py",
        "excess = (np.abs(proposal) - s * s / t) / s",
        "excess = np.abs(proposal) / s",
        f"{LAWS}::test_sampler_follows_density",
    ),
    "without noise, any value could have been released": Mutant(
        "mechanisms/exact.py",
        "return xp.where(released == xp.asarray(confidential), 0.0, -xp.inf)",
        "return xp.where(released == xp.asarray(confidential), 0.0, 0.0)",
        f"{LAWS}::test_exact_elsewhere_is_minus_infinity",
    ),
    "a declared range leaves out its upper end": Mutant(
        "mechanisms/within.py",
        "held = held & (xp.asarray(confidential) <= self.high)",
        "held = held & (xp.asarray(confidential) < self.high)",
        "mechanisms/test_catalogue.py::test_supremum_is_attained_or_approached_as_claimed",
    ),
    "heavy-tailed noise has the wrong exponent in its sampler": Mutant(
        "mechanisms/generalized_cauchy.py",
        "(1.0 - rng.random(shape)) ** (-1.0 / (power - 1.0))",
        "(1.0 - rng.random(shape)) ** (-1.0 / power)",
        f"{ADDITIVE}::test_draws_follow_the_distribution_function",
    ),
    "the constant of heavy-tailed noise forgets its power": Mutant(
        "mechanisms/generalized_cauchy.py",
        "return xp.log(self.power * xp.sin(math.pi * angle) / math.pi)",
        "return xp.log(2.0 * xp.sin(math.pi * angle) / math.pi) + 0.0 * self.power",
        f"{ADDITIVE}::test_distribution_function_is_the_integral_of_the_density {CATALOGUE}::test_mass_is_one",
    ),
    "the radius of K-norm noise has one degree too few": Mutant(
        "mechanisms/knorm.py",
        "rng.standard_gamma(self.dimension + 1.0, (*shape[:-1], 1))",
        "rng.standard_gamma(self.dimension, (*shape[:-1], 1))",
        f"{ADDITIVE}::test_knorm_radius_is_gamma_and_directions_are_of_the_ball",
    ),
    "the volume of an ellipsoid forgets its matrix": Mutant(
        "mechanisms/knorm.py",
        "return log_ball if matrix is None else log_ball - float(np.linalg.slogdet(matrix)[1])",
        "return log_ball",
        f"{ADDITIVE}::test_vector_densities_have_mass_one {CATALOGUE}::test_mass_is_one",
    ),
    "noise of many normals is coloured with the transposed factor": Mutant(
        "mechanisms/multivariate_gaussian.py",
        "return rng.standard_normal(shape) @ np.linalg.cholesky(self.covariance).T",
        "return rng.standard_normal(shape) @ np.linalg.cholesky(self.covariance)",
        f"{ADDITIVE}::test_multivariate_gaussian_draws_have_the_covariance",
    ),
    "staircase noise is as likely on both parts of a step": Mutant(
        "mechanisms/staircase.py",
        "first = rng.random(shape) * self._width(np) < gamma",
        "first = rng.random(shape) < gamma",
        f"{ADDITIVE}::test_draws_follow_the_distribution_function",
    ),
    "truncated Laplace noise is not normalised anew": Mutant(
        "mechanisms/truncated_laplace.py",
        "value = -xp.abs(z) / self.scale - xp.log(2.0 * self.scale) - self._log_within(xp, self.bound)",
        "value = -xp.abs(z) / self.scale - xp.log(2.0 * self.scale)",
        f"{ADDITIVE}::test_distribution_function_is_the_integral_of_the_density",
    ),
    "the bound of truncated Laplace noise is made for 2 delta": Mutant(
        "mechanisms/truncated_laplace.py",
        "math.log(-math.expm1(-epsilon)) - math.log(2.0 * delta)",
        "math.log(-math.expm1(-epsilon)) - math.log(4.0 * delta)",
        f"{ADDITIVE}::test_truncated_laplace_attains_its_budget",
    ),
    "the height of Tulap noise forgets delta": Mutant(
        "mechanisms/tulap.py",
        "return xp.log(-xp.expm1(-xp.asarray(self.epsilon)) + 2.0 * self.delta * b) - xp.log1p(b)",
        "return xp.log(-xp.expm1(-xp.asarray(self.epsilon)) + self.delta * b) - xp.log1p(b)",
        f"{ADDITIVE}::test_tulap_distribution_function_is_the_published_one "
        f"{ADDITIVE}::test_distribution_function_is_the_integral_of_the_density",
    ),
    "a latent scale enters the density without its Jacobian": Mutant(
        "mechanisms/latent_scale.py",
        "self.base.noise_log_prob((released - confidential) / scale) - xp.log(scale), -xp.inf)",
        "self.base.noise_log_prob((released - confidential) / scale), -xp.inf)",
        "mechanisms/test_smooth.py::test_density_is_that_of_the_base_at_the_scale",
    ),
    "smooth sensitivity is calibrated for a dimension of one": Mutant(
        "mechanisms/smooth.py",
        "return epsilon, epsilon / (4.0 * (dimension + math.log(2.0 / delta)))",
        "return epsilon, epsilon / (4.0 * (1.0 + math.log(2.0 / delta)))",
        "mechanisms/test_smooth.py::test_calibration_holds_in_any_dimension "
        "mechanisms/test_smooth.py::test_published_constants",
    ),
}

AFTER = {
    "scaling a release leaves its density as it was": Mutant(
        "mechanisms/affine.py",
        "return xp.where(self.inner.atomic(inside), 0.0, xp.log(xp.abs(self.factor)))",
        "return xp.where(self.inner.atomic(inside), 0.0, 0.0 * xp.abs(self.factor))",
        f"{PROCESSED}::test_affine_scales_densities_and_leaves_probabilities",
    ),
    "the atom at the upper end of clipping leaves out the end itself": Mutant(
        "mechanisms/clipped.py",
        "between((self.high, False), (xp.inf, False))",
        "between((self.high, True), (xp.inf, False))",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "values are clamped from one side": Mutant(
        "mechanisms/clamped.py",
        "clamped = xp.clip(confidential, self.low, self.high)",
        "clamped = xp.maximum(confidential, self.low)",
        "mechanisms/test_clamped.py::test_values_beyond_a_bound_are_alike",
    ),
    "a cell of rounding is one step to one side": Mutant(
        "mechanisms/rounded.py",
        "return ((index - 0.5) * self.step, False), ((index + 0.5) * self.step, False)",
        "return (index * self.step, False), ((index + 1.0) * self.step, False)",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "a withheld value says that the noisy one was at most the threshold": Mutant(
        "mechanisms/thresholded.py",
        "log_below = self.inner.log_between((-xp.inf, False), (self.threshold, False), confidential, inputs)",
        "log_below = self.inner.log_between((-xp.inf, False), (self.threshold, True), confidential, inputs)",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "an interval of processed values is not mapped back": Mutant(
        "mechanisms/processed.py",
        "return self.inner.log_between(*self.preimage(start, stop), confidential, inputs)",
        "return self.inner.log_between(start, stop, confidential, inputs)",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "every part of a product gets the noise of the first entry": Mutant(
        "mechanisms/product.py",
        "lambda part, index, own: part.sample(rng, confidential[..., index], **own), inputs), -1",
        "lambda part, index, own: part.sample(rng, confidential[..., 0], **own), inputs), -1",
        f"{PROCESSED}::test_product_draws_entries_independently {CATALOGUE}::test_sampler_follows_the_density",
    ),
    "the budget of a product is that of its last part": Mutant(
        "mechanisms/product.py",
        "total += guarantee.epsilon",
        "total = guarantee.epsilon",
        f"{PROCESSED}::test_the_budget_of_a_product_is_the_sum_of_its_parts",
    ),
    "projected noise is as high as noise in all dimensions": Mutant(
        "mechanisms/projected.py",
        "return -self.dimension * (0.5 * math.log(2.0 * math.pi) + xp.log(self.scale))",
        "return -np.shape(self.matrix)[1] * (0.5 * math.log(2.0 * math.pi) + xp.log(self.scale))",
        f"{PROCESSED}::test_projected_is_the_projection_of_gaussian_noise",
    ),
}

SELECTIONS = {
    "the exponential mechanism weighs scores by half": Mutant(
        "mechanisms/exponential.py",
        "return xp.sum(xp.where(own, gaps, 0.0), axis=-1) - log_sum(xp, gaps, axis=-1)",
        "return 0.5 * xp.sum(xp.where(own, gaps, 0.0), axis=-1) - log_sum(xp, 0.5 * gaps, axis=-1)",
        f"{CATALOGUE}::test_sampler_follows_the_density",
    ),
    "selections of monotone scores are calibrated as the others": Mutant(
        "mechanisms/selection.py",
        "factor = 1.0 if monotone else 2.0",
        "factor = 1.0",
        f"{CHOICES}::test_budgets_hold_and_are_nearly_attained",
    ),
    "the noisy maximum forgets candidates that lie far below": Mutant(
        "mechanisms/noisy_max.py",
        "share = xp.where(is_below, 0.5 * xp.exp(-behind), 0.0)",
        "share = xp.where(is_below & (behind < 1.0), 0.5 * xp.exp(-behind), 0.0)",
        f"{CHOICES}::test_probabilities_sum_to_one {CHOICES}::test_laplace_against_quadrature",
    ),
    "permute and flip accepts every candidate that it meets": Mutant(
        "mechanisms/noisy_max.py",
        "return np.argmin(np.where(coin < np.exp(gaps), time, 2.0), axis=-1)",
        "return np.argmin(np.where(coin < np.exp(0.5 * gaps), time, 2.0), axis=-1)",
        f"{CATALOGUE}::test_sampler_follows_the_density",
    ),
    "several selections spend the budget of one": Mutant(
        "mechanisms/top_selection.py",
        "guarantee = replace(round_guarantee, epsilon=top * round_guarantee.epsilon)",
        "guarantee = round_guarantee",
        f"{CHOICES}::test_top_list_spends_the_budget_once_per_round",
    ),
    "a candidate that was selected may be selected again": Mutant(
        "mechanisms/top_selection.py",
        "scores = _without(np, scores, chosen[-1])",
        "scores = scores + 0.0",
        f"{CATALOGUE}::test_sampler_follows_the_density",
    ),
    "the private quantile counts records up to its own place": Mutant(
        "mechanisms/quantile.py",
        "rank = xp.sum(edges[..., 1:-1] < released[..., None], axis=-1)",
        "rank = xp.sum(edges[..., 1:-1] < released[..., None], axis=-1) + 1",
        f"{CHOICES}::test_quantile_density_by_hand",
    ),
    "a private quantile has half the noise it needs": Mutant(
        "mechanisms/quantile.py",
        "scale = 2.0 * change / epsilon",
        "scale = change / epsilon",
        f"{CHOICES}::test_quantile_budgets_hold",
    ),
    "randomised answers use the channel's columns for its rows": Mutant(
        "mechanisms/randomized_response.py",
        "xp.asarray(log(np, table))[row, column], -xp.inf)",
        "xp.asarray(log(np, table.T))[row, column], -xp.inf)",
        f"{CATALOGUE}::test_sampler_follows_the_density {CATALOGUE}::test_mass_is_one",
    ),
    "the budget of a channel is the smallest ratio": Mutant(
        "mechanisms/randomized_response.py",
        "epsilon = float(np.max(np.log(used.max(axis=0)) - np.log(used.min(axis=0))))",
        "epsilon = float(np.min(np.log(used.max(axis=0)) - np.log(used.min(axis=0))))",
        f"{RESPONSE}::test_budget_is_the_largest_log_ratio {RESPONSE}::test_guarantee_of_a_channel",
    ),
    "tables of reports forget the order of what was reported": Mutant(
        "mechanisms/reported_counts.py",
        "return log_sum(xp, law + log_factorial(n - total), axis=1)",
        "return log_sum(xp, law, axis=1)",
        f"{RESPONSE}::test_counts_are_the_convolution_of_multinomials {RESPONSE}::test_the_two_routes_agree",
    ),
    "bits of a unary encoding are kept and added with the same chance": Mutant(
        "mechanisms/unary_encoding.py",
        "return (rng.random(own.shape) < np.where(own, self.keep, self.add)).astype(np.int64)",
        "return (rng.random(own.shape) < np.where(own, self.keep, 1.0 - self.keep)).astype(np.int64)",
        f"{CATALOGUE}::test_sampler_follows_the_density",
    ),
    "a logarithm of a sum forgets its largest term": Mutant(
        "mechanisms/discrete.py",
        "return log(xp, xp.sum(xp.exp(terms - top), axis=axis)) + xp.squeeze(top, axis=axis)",
        "return log(xp, xp.sum(xp.exp(terms - top), axis=axis))",
        f"{CHOICES}::test_probabilities_sum_to_one {RESPONSE}::test_counts_are_the_convolution_of_multinomials",
    ),
    "a perturbed objective is released without its Jacobian": Mutant(
        "mechanisms/objective_perturbation.py",
        "return self._noise_log_prob(xp, _norm(xp, gradient), released.shape[-1]) + log_det",
        "return self._noise_log_prob(xp, _norm(xp, gradient), released.shape[-1]) + 0.0 * log_det",
        f"{OBJECTIVE}::test_one_coefficient",
    ),
    "a perturbed objective spends its budget on the noise alone": Mutant(
        "mechanisms/objective_perturbation.py",
        "remaining = epsilon - 2.0 * math.log1p(0.25 * bound**2 / ridge)",
        "remaining = epsilon",
        f"{OBJECTIVE}::test_laplace_budget_is_kept",
    ),
}

BUDGETS = {
    "budgets in mu add up": Mutant(
        "mechanisms/guarantee.py",
        'budget = {"mu": math.sqrt(sum(_stated(part.mu) ** 2 for part in parts))}',
        'budget = {"mu": sum(_stated(part.mu) for part in parts)}',
        "mechanisms/test_guarantee.py",
    ),
    "pure epsilon is epsilon squared in rho": Mutant(
        "mechanisms/guarantee.py",
        "rho = 0.5 * _stated(self.epsilon) ** 2",
        "rho = _stated(self.epsilon) ** 2",
        "mechanisms/test_guarantee.py",
    ),
    "the coefficients of a measurement are left out where its matrix is long": Mutant(
        "mechanisms/linear.py",
        "terms = vector[self.columns] * self.entries",
        "terms = vector[self.columns] * 1",
        "mechanisms/test_linear.py",
    ),
    "a description drops what a value measures": Mutant(
        "mechanisms/released.py",
        "return replace(self.mechanism.released(value, coords), of=self.of)",
        "return self.mechanism.released(value, coords)",
        "inference/test_measured.py::test_noise_densities_of_all_measurements_multiply",
    ),
    "noise on each entry is paid for once, whatever the number of entries": Mutant(
        "mechanisms/base.py",
        "return math.prod(shape[: len(shape) - self.event_dim])",
        "return 1",
        "mechanisms/test_catalogue_extremes.py::test_guarantees_of_more_entries_than_they_were_made_for",
    ),
    "a replaced record changes one cell of a table": Mutant(
        "sensitivity.py", "        cells *= 2\n", "        cells *= 1\n", f"{SENSITIVITY}::test_histogram"
    ),
    "a mean under add-remove divides by the least size": Mutant(
        "sensitivity.py",
        'divisor = size if neighbours == "replace-one" else size + 1',
        "divisor = size",
        f"{SENSITIVITY}::test_sum_and_mean_of_one_variable",
    ),
    "smooth sensitivity shrinks by the square root of its distance": Mutant(
        "sensitivity.py",
        "shrink = math.exp(-xi * k)",
        "shrink = math.exp(-xi * math.sqrt(k))",
        f"{SENSITIVITY}::test_median_by_definition {SENSITIVITY}::test_mean_by_definition",
    ),
    "the curator's noise is made for records that are added, not replaced": Mutant(
        "curator/drawing.py",
        'distance = 1 if neighbours == "add-remove" else 2',
        "distance = 1",
        "curator/test_curator.py::test_a_release_under_replace_one",
    ),
    "counts that were clamped at zero are read as if they were not": Mutant(
        "curator/summaries.py",
        "    if clamped:\n",
        "    if clamped and value != 0:\n",
        "curator/test_curator.py::test_a_count_that_may_have_been_clamped_at_zero_is_read_so",
    ),
    "unsigned counts of an OpenDP measurement are read as if they could be negative": Mutant(
        "curator/measurements.py",
        "or low == 0 or",
        "or",
        "curator/test_curator.py::test_unsigned_counts_stop_at_zero",
    ),
    "the rounding of floats is taken for small beside any scale": Mutant(
        "curator/rounding.py",
        "if np.all(0.5 * step <=",
        "if np.all(0.0 * step <=",
        "curator/test_curator.py::test_coarse_floats_carry_their_rounding",
    ),
    "a replaced record is counted as one step": Mutant(
        "curator/promise.py",
        "Guarantee(rho=4.0 *",
        "Guarantee(rho=2.0 *",
        "curator/test_safety.py::test_replaced_records_are_two_steps",
    ),
    "the ledger looks at the total before it is alone": Mutant(
        "curator/ledger.py",
        "                if spends is not None:\n                    self.check(spends)\n",
        "",
        "curator/test_safety.py::test_the_total_holds_among_several_at_once",
    ),
    "a checksum of the ledger says nothing of the lines before it": Mutant(
        "curator/ledger.py",
        "hashlib.sha256((before + json.dumps",
        "hashlib.sha256((json.dumps",
        "curator/test_safety.py::test_a_ledger_that_was_changed_stops_everything",
    ),
}
