"""Mistakes in maximum likelihood: expectations, maximisation, Monte Carlo errors, intervals."""

from mutant import Mutant

MAIN = "likelihood/test_likelihood.py"
STEPS = "likelihood/test_e_steps.py"
SCALE = "likelihood/test_likelihood_scale.py"
PIECES = "likelihood/test_likelihood_pieces.py"
ROBUST = "likelihood/test_likelihood_robust.py"
RECORDS = "likelihood/test_mcem_augmented.py"
ERRORS = "likelihood/test_mcem_errors.py"
INTERVALS = "likelihood/test_intervals.py"
UNITS = "likelihood/test_units.py"
MEASURED = "likelihood/test_measured_fits.py"
CLOUDS = f"{STEPS}::test_a_cloud_gives_the_mean_of_the_exact_one"
PAPER = f"{MAIN}::test_em_gives_the_papers_numbers"

EXPECTATION = {
    "only the last measurement of a statistic weighs its values": Mutant(
        "likelihood/e_step/measured.py",
        "total = total + np.asarray(log_eta)",
        "total = np.asarray(log_eta)",
        f"{MEASURED}::test_all_measurements_weigh_a_value",
    ),
    "a statistic measured several ways is fitted as if each measurement had one of its own": Mutant(
        "likelihood/e_step/parts.py",
        "for name in dict.fromkeys(owners.values())]",
        "for name in owners.values()]",
        f"{MEASURED}::test_a_normal_law_with_normal_noise_is_fitted_in_closed_form",
    ),
    "chains over tables begin to count at once": Mutant(
        "likelihood/e_step/table_chains.py",
        "return self.lattice.sweep(rng, state, given), RENEWED",
        "return state, RENEWED",
        f"{MEASURED}::test_tables_are_fitted_by_chains",
    ),
    "chains over records are worth as many values as they have": Mutant(
        "likelihood/e_step/augmented.py",
        "return float(min([1.0, *each]))",
        "return 1.0",
        f"{RECORDS}::test_what_a_state_is_worth",
    ),
    "sums of records stand for a single record": Mutant(
        "likelihood/e_step/augmented.py",
        "total = total + 0.5 * self.n * jnp.sum(each)",
        "total = total + 0.5 * jnp.sum(each)",
        f"{RECORDS}::test_sums_stand_for_all_records_of_a_family",
        long=True,
    ),
    "the E-step by rejection accepts by the square of the chance": Mutant(
        "likelihood/e_step/by_chance.py",
        "accepted = rng.standard_exponential(log_weights.shape) >= log_sup - log_weights",
        "accepted = rng.standard_exponential(log_weights.shape) >= 2.0 * (log_sup - log_weights)",
        CLOUDS,
    ),
    "the E-step by resampling takes its points without chance": Mutant(
        "likelihood/e_step/by_chance.py",
        "points = (rng.random(cloud.weights.shape[1]) + np.arange(len(s))[:, None]) / len(s)",
        "points = (0.0 * rng.random(cloud.weights.shape[1]) + np.arange(len(s))[:, None]) / len(s)",
        f"{STEPS}::test_resampling_is_unbiased",
    ),
    "the E-step by a Markov chain forgets the values it stays at": Mutant(
        "likelihood/e_step/by_chance.py",
        "            state = np.where(accepted, step, state)\n            spent[state, columns] += 1.0",
        "            state = np.where(accepted, step, state)\n            spent[state, columns] += accepted",
        CLOUDS,
    ),
    "batches of a chain have the variance of their number, not of one less": Mutant(
        "likelihood/e_step/by_chance.py",
        "np.add.reduceat(terms, starts, axis=0) * math.sqrt(batches / (batches - 1))",
        "np.add.reduceat(terms, starts, axis=0) * math.sqrt((batches - 1) / batches) ** 40",
        f"{ERRORS}::test_batches_of_independent_terms_have_their_variance",
    ),
    "weights of the mixture of law and noise forget that there are two": Mutant(
        "likelihood/e_step/by_weight.py",
        "log_weights = log_pi + log_eta - np.logaddexp(log_pi, log_eta) + math.log(2.0)",
        "log_weights = log_pi + log_eta - np.logaddexp(log_pi, log_eta)",
        f"{PIECES}::test_a_mixture_of_law_and_noise_gives_the_likelihood",
    ),
    "quadrature of an E-step forgets the widths of its panels": Mutant(
        "likelihood/e_step/cloud.py",
        "log_half = np.log(half)[:, None] + _upright(np.log(quadrature), part)[None]",
        "log_half = 0.0 * np.log(np.where(half > 0, half, 1.0))[:, None] + _upright(np.log(quadrature), part)[None]",
        f"{MAIN}::test_em_maximises_the_convolution "
        f"{MAIN}::test_regression_with_noise_on_the_response_has_its_closed_form",
    ),
    "a window that reaches one end of the support is taken for all of it": Mutant(
        "likelihood/e_step/cloud.py",
        "whole = ((centre - reach <= low) & (high <= centre + reach)).reshape(-1)",
        "whole = (centre - reach <= low).reshape(-1)",
        f"{STEPS}::test_a_window_widens_until_next_to_nothing_is_left_out",
    ),
    "a cloud that is moved keeps its old weights": Mutant(
        "likelihood/e_step/cloud.py",
        "log_weights = np.where(cloud.weights > 0, np.log(cloud.weights) + ratio, -np.inf)",
        "log_weights = np.where(cloud.weights > 0, np.log(cloud.weights) + 0.0 * ratio, -np.inf)",
        f"{MAIN}::test_mcem_agrees_within_its_own_error",
    ),
    "the variance of chains is that of their values one by one": Mutant(
        "likelihood/e_step/cloud.py",
        "        if not self.groups:\n            return float(np.sum(terms**2))",
        "        if True:\n            return float(np.sum(terms**2))",
        f"{RECORDS}::test_errors_of_chains_are_those_between_them {RECORDS}::test_joined_chains_keep_their_groups",
    ),
    "parts beside very many rows are left out of the likelihood": Mutant(
        "likelihood/e_step/by_rows.py",
        "return [(height, np.empty(0), worst, total), *(self._seen[index] for index in self.by.others)]",
        "return [(height, np.empty(0), worst, total)]",
        f"{PIECES}::test_rows_and_other_statistics_together",
    ),
    "every batch of a sample has the same random numbers": Mutant(
        "likelihood/e_step/contract.py",
        "return generator(self.seed, self.purpose, number, AFTER_BLOCKS)",
        "return generator(self.seed, self.purpose, 0, AFTER_BLOCKS)",
        f"inference/test_randomness.py::test_no_e_step_uses_a_key_twice "
        f"{STEPS}::test_parts_and_batches_have_random_numbers_of_their_own",
    ),
    "a piece has the entries of its neighbour": Mutant(
        "likelihood/e_step/entries_in_pieces.py",
        "own = place + self.step * jnp.arange(self.shape[0])",
        "own = place + 1 + self.step * jnp.arange(self.shape[0])",
        f"{PIECES}::test_pieces_add_up_to_the_whole",
        long=True,
    ),
    "the density of a statistic with joint entries is that of the first": Mutant(
        "likelihood/e_step/released_law.py",
        "return log_eta if self.by_entry else log_eta.sum(axis=1, keepdims=True)",
        "return log_eta if self.by_entry else log_eta[:, :1]",
        f"{ROBUST}::test_randomised_response_reference {MAIN}::test_shares_that_sum_to_one {STEPS}",
    ),
    "noise is as wide as the law where it has no scale": Mutant(
        "inference/conditional/row_blocks.py",
        "return np.maximum(np.median(np.abs(noise), axis=0), 1e-300)",
        "return np.asarray(otherwise)",
        f"{UNITS}::test_how_wide_noise_is",
    ),
    "the height of a chain's cloud sums its totals' densities": Mutant(
        "likelihood/e_step/over_records.py",
        "return weighted(log_weights, log_weights - math.log(len(log_weights)))",
        "return weighted(log_weights, log_weights)",
        f"{STEPS}::test_the_height_at_chains_over_records_is_the_likelihood",
    ),
    "two samples are joined with equal weight": Mutant(
        "likelihood/e_step/simulated.py",
        "logs = np.stack([math.log(size) + first.log_likelihoods, math.log(more) + second.log_likelihoods])",
        "logs = np.stack([math.log(more) + first.log_likelihoods, math.log(more) + second.log_likelihoods])",
        f"{STEPS}::test_joined_samples_are_one_sample",
    ),
    "the error of a log likelihood forgets that weights average": Mutant(
        "likelihood/e_step/simulated.py",
        "variances = np.maximum(np.sum(cloud.weights**2, axis=0) - 1.0 / len(cloud.values), 0.0)",
        "variances = np.maximum(np.sum(cloud.weights**2, axis=0) / len(cloud.values), 0.0)",
        f"{STEPS}::test_the_error_of_a_log_likelihood_is_its_error",
    ),
    "a total of records is weighed by its first entry": Mutant(
        "likelihood/e_step/simulated_records.py",
        "return log_eta.reshape(len(s), -1).sum(axis=1, keepdims=True)",
        "return log_eta.reshape(len(s), -1)[:, :1]",
        f"{STEPS}::test_records_are_weighed_by_every_entry_of_their_total",
    ),
    "sums over very many entries lose what earlier panels held": Mutant(
        "likelihood/e_step/streamed.py",
        "weight, fade = jnp.exp(both - new), jnp.exp(top - new)",
        "weight, fade = jnp.exp(both - new), jnp.where(top > -1e299, 1.0, 0.0)",
        f"{SCALE}::test_streamed_sums_are_those_of_the_whole_cloud",
    ),
    "the two points of a normal family lie one spread apart, not two": Mutant(
        "likelihood/e_step/sufficient.py",
        "return [centre - spread, centre + spread]",
        "return [centre - 0.5 * spread, centre + 0.5 * spread]",
        f"{MAIN}::test_sufficient_statistics_carry_the_whole_of_q",
    ),
}

MAXIMISATION = {
    "starts come from where the prior's draws are alone": Mutant(
        "likelihood/candidates.py",
        "BEYOND = (3.0, 10.0)",
        "BEYOND = (1.0, 1.0)",
        f"{UNITS}::test_a_top_far_from_the_draws_of_the_prior_is_found",
    ),
    "a fit starts at the lowest of its candidates": Mutant(
        "likelihood/candidates.py",
        "is_top = (heights >= heights[neighbours].max(axis=1)) & np.isfinite(heights)",
        "is_top = (heights <= heights[neighbours].max(axis=1)) & np.isfinite(heights)",
        f"{UNITS}::test_candidates_to_climb_from_stand_below_tops_of_their_own",
    ),
    "EM is converged once a step is small beside the number itself": Mutant(
        "likelihood/em.py",
        "done = bool(np.all(np.abs(step) <= settings.tolerance * (self.unit + np.abs(new))))",
        "done = bool(np.all(np.abs(step) <= 1e7 * settings.tolerance * (self.unit + np.abs(new))))",
        PAPER,
    ),
    "steps that lead nowhere beyond an edge go on": Mutant(
        "likelihood/em.py",
        "if looks and self._is_level() and",
        "if looks and not self._is_level() and",
        f"{ROBUST}::test_a_negative_binomial_law_without_overdispersion_has_the_likelihood_of_its_limit",
    ),
    "an E-step weighs by NumPyro's negative binomial formula": Mutant(
        "model/masses.py",
        "return log_mass(peel(_each(law))[0], inside * 1.0)",
        "return unchecked(_each(law)).log_prob(inside)",
        f"{ROBUST}::test_a_negative_binomial_law_without_overdispersion_has_the_likelihood_of_its_limit",
    ),
    "a step of Newton's that falls is taken": Mutant(
        "likelihood/em.py",
        "return clouds if rise >= -1e-12 * abs(likelihood) else None",
        "return clouds",
        f"{ROBUST}::test_a_step_of_newtons_that_falls_is_not_taken",
    ),
    "coordinates of a fit leave out the unit of the prior": Mutant(
        "likelihood/m_step/coordinates.py",
        "return np.asarray(self.chart.free(values)) - self.origin",
        "return np.asarray(self.chart.free(values))",
        f"{UNITS}::test_the_fit_in_other_units_is_the_same {UNITS}::test_the_edge_lies_in_the_prior_s_units",
    ),
    "the information leaves out what the confidential statistic varies": Mutant(
        "likelihood/m_step/maximise.py",
        "information = np.sum(outer - second, axis=0)",
        'information = -np.sum(sums["complete"], axis=0)',
        f"{MAIN}::test_louis_needs_all_its_terms {PAPER}",
    ),
    "the noise of a simulated score is that of weights that are not normalised": Mutant(
        "likelihood/m_step/maximise.py",
        "noise = square - mixed - mixed.transpose(0, 2, 1) + total * outer",
        "noise = square",
        f"{ERRORS}::test_the_noise_of_a_score_is_that_of_normalised_weights",
    ),
    "a matrix is freed of its units once, not twice": Mutant(
        "likelihood/m_step/units.py",
        "return matrix / np.outer(scale, scale), scale",
        "return matrix / scale, scale",
        f"{UNITS} {PAPER}",
    ),
    "a climb's rise is taken without its weights": Mutant(
        "likelihood/monte_carlo/climb.py",
        "variance += cloud.variance(position.e_step.independent(cloud.weights * (change - mean)))",
        "variance += cloud.variance(position.e_step.independent(change - mean)) / len(change) ** 3",
        f"{ERRORS}::test_the_error_of_a_chains_rise_is_that_of_its_batches",
    ),
    "the error of the information counts the estimate as known": Mutant(
        "likelihood/monte_carlo/measurement.py",
        "return tilt if np.all(np.isfinite(tilt)) else none",
        "return none",
        f"{ERRORS}::test_the_error_of_the_information_counts_that_of_the_estimate_at_which_it_is_taken",
        long=True,
    ),
    "batches of a sample repeat the random numbers of other parts": Mutant(
        "likelihood/monte_carlo/position.py",
        "return e_step.cloud(drawing, parts[index], values, index + len(parts) * batch, size)",
        "return e_step.cloud(drawing, parts[index], values, index + batch, size)",
        f"{ERRORS}::test_parts_and_batches_are_numbered_apart",
    ),
    "the bias of few values for many entries stays": Mutant(
        "likelihood/monte_carlo/settling.py",
        'left = {"bias": (score - bias) / 3.0, "information_bias": (information - information_bias) / 3.0}',
        'left = {"bias": 0.0 * score, "information_bias": 0.0 * information}',
        f"{ERRORS}::test_what_halves_of_a_sample_add_to_its_bias_is_a_third_of_what_is_left",
    ),
    "a sample grows by the squared error, not by the variance": Mutant(
        "likelihood/schedules.py",
        "sigma_squared = size * error**2",
        "sigma_squared = error**2",
        f"{MAIN}::test_sample_sizes_need_the_variance_not_the_squared_error",
    ),
    "the lowest of several maxima wins": Mutant(
        "likelihood/starts.py",
        'best = max(fits, key=lambda fit: (height[id(fit)], fit.status == "converged"))',
        'best = min(fits, key=lambda fit: (height[id(fit)], fit.status == "converged"))',
        f"{ROBUST}::test_the_highest_of_several_maxima_wins_and_the_others_are_told",
    ),
    "maxima are the same if within Monte Carlo errors of nothing": Mutant(
        "likelihood/starts.py",
        "5.0 * np.hypot(own, theirs) + 0.01 * scale",
        "0.01 * scale * 0.0",
        f"{ROBUST}::test_simulated_maxima_are_told_apart_by_their_errors",
        long=True,
    ),
    "the covariance of shares lacks the Jacobian of their coordinates": Mutant(
        "likelihood/result.py",
        "inverse, spread = jacobian @ inverse @ jacobian.T, jacobian @ spread @ jacobian.T",
        "inverse, spread = jacobian @ jacobian.T, jacobian @ spread @ jacobian.T",
        f"{MAIN}::test_the_covariance_of_shares_is_that_of_a_multinomial",
    ),
    "the Monte Carlo error of an estimate is the score's": Mutant(
        "likelihood/result.py",
        "spread = inverse @ louis.noise @ inverse ",
        "spread = louis.noise ",
        f"{MAIN}::test_mcem_agrees_within_its_own_error",
    ),
}

INTERVALS_AND_TAILS = {
    "the profile of a likelihood holds the other parameters where they were": Mutant(
        "likelihood/intervals/profile.py",
        "best, value = observed.restricted(trial, moving)\n        if np.isfinite(value):",
        "best, value = trial, observed.at(trial)[0]\n        if np.isfinite(value):",
        f"{INTERVALS}::test_profile_maximises_the_other_parameter_out",
    ),
    "an interval ends where the likelihood has fallen by twice as much": Mutant(
        "likelihood/intervals/profile.py",
        "return min(2.0 * (observed.top - value) - quantile, 1e6)",
        "return min(observed.top - value - quantile, 1e6)",
        f"{INTERVALS}::test_profile_of_the_count_ends_where_the_likelihood_has_fallen_enough",
    ),
    "the profile of a function falls by half as much": Mutant(
        "likelihood/intervals/function_profile.py",
        "return 2.0 * fall - most",
        "return fall - most",
        f"{INTERVALS}::test_profile_of_a_function_is_the_likelihood_where_it_has_that_value",
    ),
    "the profile of a function climbs along another gradient": Mutant(
        "likelihood/intervals/function_profile.py",
        "value, slope = self.observed.at(self.free(z))\n        if",
        "value, slope = self.observed.at(self.free(z))\n        slope = 0.9 * slope[::-1]\n        if",
        f"{INTERVALS}::test_profile_of_a_function_is_the_likelihood_where_it_has_that_value",
    ),
    "a test of several parameters has one degree of freedom": Mutant(
        "likelihood/intervals/profile.py",
        "degrees = int(np.sum(~moving))",
        "degrees = 1",
        f"{INTERVALS}::test_a_gaussian_model_has_closed_forms_and_the_right_degrees_of_freedom",
    ),
    "an exact interval leaves out the released value itself": Mutant(
        "likelihood/intervals/exact_tails.py",
        "return (s <= self.value).astype(float), (s >= self.value).astype(float)",
        "return (s < self.value).astype(float), (s > self.value).astype(float)",
        f"{INTERVALS}::test_exact_interval_without_noise_is_garwoods_and_clopper_and_pearsons",
    ),
    "an exact interval has all of its error on each side": Mutant(
        "likelihood/intervals/exact_tails.py",
        "tail = line.start, line.step, (1.0 - level) / 2",
        "tail = line.start, line.step, 1.0 - level",
        f"{INTERVALS}::test_exact_interval_without_noise_is_garwoods_and_clopper_and_pearsons",
    ),
    "bootstrap releases have no noise": Mutant(
        "likelihood/intervals/parametric_bootstrap.py",
        "value=np.asarray(item.mechanism.sample(rng, values[name]))[0])",
        "value=np.asarray(values[name])[0])",
        f"{INTERVALS}::test_releases_of_the_bootstrap_have_law_and_noise",
    ),
    "bootstrap intervals take both tails from one side": Mutant(
        "likelihood/intervals/parametric_bootstrap.py",
        "tails = [(1 - level) / 2, (1 + level) / 2]",
        "tails = [(1 - level) / 2, level]",
        f"{INTERVALS}::test_bootstrap_intervals_leave_out_the_same_share_on_both_sides",
    ),
    "the end of an interval is looked for in the coordinate, not in the parameter": Mutant(
        "likelihood/intervals/scalar_interval.py",
        'return self.value(root), "crossing"',
        'return root, "crossing"',
        f"{INTERVALS}::test_profile_of_the_count_ends_where_the_likelihood_has_fallen_enough",
    ),
    "a higher top beside the fit is passed over": Mutant(
        "likelihood/observed.py",
        "if value > self.top + 1e-6 and value > self.top + self._rounding(free, value):",
        "if value > self.top + 1e6 and value > self.top + self._rounding(free, value):",
        f"{INTERVALS}::test_a_second_top_is_not_hidden",
    ),
}
