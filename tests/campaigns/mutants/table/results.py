"""Mistakes in what is told of a result: summaries, errors, calibration, comparison."""

from mutant import Mutant

TOLD = "results/test_posterior.py"
RANKS = "studies/test_calibrate.py"
THERE = "results/test_draws_that_stay.py::test_what_is_told_there_is_what_numpy_tells"

CRITICISM = {
    "a table's ends of intervals change places": Mutant(
        "results/tidy.py",
        "low, high = (summary.columns[at] for at in (2, 3))",
        "low, high = (summary.columns[at] for at in (3, 2))",
        "results/test_tidy.py::test_columns_are_fixed_and_numbers_are_those_of_the_summary",
    ),
    "the numbers of a summary have the digits of its Monte Carlo errors": Mutant(
        "results/summary_table.py",
        "decimals(row[spread],",
        "decimals(row[ERRORS[0]],",
        "results/test_tidy.py::test_the_style_of_a_summary_shows_what_a_paper_prints",
    ),
    "rows of a table of draws go through the chains in turn": Mutant(
        "results/draws_table.py",
        '{".chain": row // length, ".iteration": row % length',
        '{".chain": row % length, ".iteration": row // length',
        "test_in_r.py::test_rows_say_which_chain_they_are_of",
    ),
    "replicates are the statistics, without new noise": Mutant(
        "results/replicates.py",
        "draws = groups.predicted(problem, posterior.draws, generator(seed, Purpose.PREDICTIVE))",
        "draws = {name: posterior.draws[name] for name in problem.release}",
        "results/test_criticism.py::test_replicates_follow_the_posterior_predictive",
    ),
    "p-values forget the weights": Mutant(
        "results/replicates.py",
        "weight = np.where(there, 1.0 if self.posterior.weights is None else self.posterior.weights, 0.0)",
        "weight = np.where(there, 1.0, 0.0)",
        "results/test_criticism.py::test_replicates_follow_the_posterior_predictive",
    ),
    "Bayes factors are upside down": Mutant(
        "results/evidence.py",
        "ratio = float(np.exp(self.log_evidence[model] - self.log_evidence[other]))",
        "ratio = float(np.exp(self.log_evidence[other] - self.log_evidence[model]))",
        "results/test_criticism.py::test_bayes_factors_are_those_of_the_closed_form",
    ),
    "runs of one seed are taken for independent": Mutant(
        "results/evidence.py",
        "group = self.seed.get(name, name)",
        "group = name",
        "results/test_criticism.py::test_errors_hold_where_runs_share_their_random_numbers",
    ),
    "errors of models' probabilities forget that they sum to one": Mutant(
        "results/evidence.py",
        "slopes = chance[:, None] * (np.eye(len(names)) - chance)",
        "slopes = chance[:, None] * np.eye(len(names))",
        "results/test_criticism.py::test_errors_of_probabilities_are_those_of_repetition",
    ),
    "power-scaling scales twice": Mutant(
        "results/power_scaling.py",
        "moved = weights.normalised(base + (power - 1.0) * (log_density - np.max(log_density)))",
        "moved = weights.normalised(base + 2.0 * (power - 1.0) * (log_density - np.max(log_density)))",
        "results/test_criticism.py::test_sensitivity_is_that_of_the_scaled_normal_posterior",
    ),
    "power-scaling scales laws of groups with the prior": Mutant(
        "results/power_scaling.py",
        "if not model.parents(name)",
        "if name",
        "results/test_criticism.py::test_the_prior_of_groups_is_that_of_what_they_share",
    ),
    "draws are weighed by the other noise alone": Mutant(
        "studies/what_if.py",
        "ratio = after.log_eta_of_all(draws) - before.log_eta_of_all(draws)",
        "ratio = after.log_eta_of_all(draws)",
        "studies/test_what_if.py::test_weighed_draws_are_those_of_the_other_noise",
    ),
    "draws without noise are weighed": Mutant(
        "studies/what_if.py",
        "return any(bool(np.any(before.log_eta(name, rows) == -np.inf)) for name in changed)",
        "return False",
        "studies/test_what_if.py::test_noise_with_an_edge_is_never_weighed",
    ),
}

POSTERIOR = {
    "the share of the noise is of draws without their weights": Mutant(
        "results/information.py",
        "if posterior.weights is None else posterior.weights",
        "if posterior.weights is None else np.full(len(values), 1.0 / len(values))",
        "results/test_information.py::test_variance_due_to_the_noise_is_the_law_of_total_variance",
    ),
    "a derived quantity counts as a confidential statistic": Mutant(
        "results/derived.py",
        "derived=(*posterior.derived, *columns)",
        "derived=posterior.derived",
        "results/test_derived.py::test_what_it_is_and_is_not",
    ),
    "a chain's Monte Carlo error is that of independent draws": Mutant(
        "results/posterior.py",
        'return precision | {"mcse": spread / np.sqrt(precision.pop("mean"))}',
        'return precision | {"mcse": spread / np.sqrt(len(self)) + 0.0 * precision.pop("mean")}',
        "diagnostics/test_chains.py::test_errors_of_means_of_chains_are_their_errors",
    ),
    "the effective size of a vector is that of its best entry": Mutant(
        "results/posterior.py",
        'return float(defined.min()) if defined.size else float("nan")',
        'return float(defined.max()) if defined.size else float("nan")',
        "diagnostics/test_chains.py::test_the_worst_entry_speaks_for_a_vector",
    ),
    "R-hat of a vector is that of its best entry": Mutant(
        "results/posterior.py",
        '_worst(-precision["r_hat"]) * -1.0',
        '_worst(precision["r_hat"])',
        "diagnostics/test_chains.py::test_the_worst_entry_speaks_for_a_vector",
    ),
    "an interval of 95% has 2.5% on one side alone": Mutant(
        "results/intervals.py",
        "low, high = quantiles(values, weights, [(1 - level) / 2, (1 + level) / 2])",
        "low, high = quantiles(values, weights, [(1 - level) / 2, level])",
        f"{TOLD}::test_summary_of_plain_draws",
    ),
    "a band for all entries looks at one tail": Mutant(
        "results/intervals.py",
        "np.maximum(extreme, np.maximum(*_tails(column, weight)), out=extreme)",
        "np.maximum(extreme, _tails(column, weight)[0], out=extreme)",
        "results/test_posterior_intervals.py::test_a_simultaneous_band_holds_exactly_its_share_of_whole_draws",
    ),
    "a band for all entries forgets the weights": Mutant(
        "results/intervals.py",
        "weight = np.full(size, 1.0 / size) if weights is None else weights",
        "weight = np.full(size, 1.0 / size)",
        "results/test_posterior_intervals.py::test_weights_count_in_a_band",
    ),
    "in a band for all entries, ties are extreme": Mutant(
        "results/intervals.py",
        "return (upwards - mass)[place], (upwards[-1] - upwards)[place]",
        "return upwards[place], (upwards[-1] - upwards + mass)[place]",
        "results/test_posterior_intervals.py::test_an_entry_that_does_not_vary_changes_no_others",
    ),
    "chances of regions forget the weights": Mutant(
        "results/decisions.py",
        "weights.mean_and_sd(held.astype(float), posterior.weights)[0]",
        "weights.mean_and_sd(held.astype(float), None)[0]",
        "results/test_posterior_intervals.py::test_chances_are_those_of_the_closed_form",
    ),
    "intervals of all entries of a fit are those of single ones": Mutant(
        "results/estimated.py",
        "each = level ** (1.0 / max(np.size(value), 1)) if simultaneous else level",
        "each = level",
        "results/test_fit_derived.py::test_simultaneous_intervals_hold_all_entries_as_often_as_they_say",
    ),
    "the delta method forgets the signs of slopes": Mutant(
        "results/derived.py",
        "jacobian @ fit.covariance @ jacobian.T",
        "np.abs(jacobian) @ fit.covariance @ np.abs(jacobian).T",
        "results/test_fit_derived.py::test_standard_errors_are_those_of_the_closed_form",
    ),
    "means on an accelerator count what lies beyond the draws": Mutant(
        "results/on_device.py",
        "_total(jnp.where(counted, rows - rough, 0.0))",
        "_total(rows - rough)",
        f"{THERE}[skewed]",
    ),
    "a shortest interval on an accelerator is that of one draw more": Mutant(
        "results/on_device.py",
        "last = first + inside - 1",
        "last = first + inside",
        f"{THERE}[matrix]",
    ),
    "a tail on an accelerator has draws twice where both ends meet": Mutant(
        "results/on_device.py",
        "above = jnp.where(high >= len(number),",
        "above = jnp.where(high >= 0,",
        f"{THERE}[few]",
    ),
    "quantiles on an accelerator are the draws below them": Mutant(
        "results/on_device.py",
        "places = np.stack([below, np.minimum(below + 1, len(column) - 1)])",
        "places = np.stack([below, below])",
        f"{THERE}[skewed]",
    ),
    "expectations forget the weights": Mutant(
        "results/posterior.py",
        "return weights.mean_and_sd(values, self.weights)[0][()]",
        "return weights.mean_and_sd(values, None)[0][()]",
        f"{TOLD}::test_expectations_count_the_weights",
    ),
}

GROUPS = {
    "predicted releases have no noise": Mutant(
        "results/groups.py",
        "released[name] = np.asarray(item.mechanism.sample(rng, values[name], **inputs))",
        "released[name] = np.asarray(values[name])",
        "results/test_groups.py::test_simulations_have_the_law_of_the_model",
    ),
    "the density of a draw leaves its priors out": Mutant(
        "results/groups.py",
        "for part in (*densities.values(), *priors.values())]",
        "for part in densities.values()]",
        "results/test_groups.py::test_densities_are_those_of_model_and_release",
    ),
}

DESIGNED, TABLES = "studies/test_design.py", "studies/test_design_tables.py"
STUDIES = {
    "a naive analysis whose weights are poor is taken as it is": Mutant(
        "studies/compare.py",
        'weighted.status in ("low_ess", "high_k")',
        'weighted.status == "no_weight"',
        "studies/test_compare.py::test_poor_weights_give_way_to_chains",
    ),
    "a share of the budget is given to every statistic alike": Mutant(
        "studies/designs/open_plan.py",
        "make(budget * shares[name])",
        "make(budget / len(shares))",
        f"{DESIGNED}::test_two_statistics_of_unequal_sensitivities",
    ),
    "an interval of a design has all of its error on each side": Mutant(
        "results/goal.py",
        "ends = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])",
        "ends = np.array([1.0 - level, level])",
        f"{DESIGNED}::test_simulation_agrees_with_closed_forms",
    ),
    "a design's releases have no noise": Mutant(
        "studies/designs/simulation.py",
        "released[name] = np.asarray(mechanism.sample(rng, truths[name], **extra))\n        return",
        "released[name] = truths[name] + 0.0\n        return",
        f"{DESIGNED}::test_simulation_agrees_with_closed_forms",
    ),
    "a count is summed out without its noise": Mutant(
        "studies/designs/counts.py",
        "np.log(np.tensordot(chance, eta, axes=(1, 2)))",
        "np.log(np.tensordot(chance, eta > 0.5, axes=(1, 2)))",
        f"{DESIGNED}::test_the_privatised_count_by_enumeration",
    ),
    "a design takes another place's noise": Mutant(
        "studies/designs/counts.py",
        "np.asarray(mechanism.log_prob(value, stated)).reshape(len(each), -1)[:, place]",
        "np.asarray(mechanism.log_prob(value, stated)).reshape(len(each), -1)[:, 0]",
        f"{TABLES}::test_counts_with_one_rate_are_summed_out_in_every_place",
    ),
    "the other categories of a table are as many as the one": Mutant(
        "studies/designs/shares.py",
        "self._log_others(mechanism, value)[::-1]",
        "self._log_others(mechanism, value)",
        f"{TABLES}::test_all_that_a_table_says_of_one_share",
    ),
    "a share's rows have the weights of equal steps of the share": Mutant(
        "studies/designs/shares.py",
        "(a - 0.5) * np.log(share) + (self.concentration.sum() - a - 0.5) * np.log1p(-share)",
        "(a - 1.0) * np.log(share) + (self.concentration.sum() - a - 1.0) * np.log1p(-share)",
        f"{TABLES}::test_rows_of_a_share_have_its_prior",
    ),
    "closed forms take the noise's scale for its variance": Mutant(
        "studies/designs/gaussian.py",
        "np.ravel(mechanism.scale) ** 2",
        "np.ravel(mechanism.scale)",
        f"{DESIGNED}::test_the_least_budget_of_a_normal_mean",
    ),
    "power at a truth forgets the sampling variance": Mutant(
        "studies/designs/gaussian.py",
        "gain @ (self.at_truth[1] + np.diag(noise)) @ gain",
        "gain @ np.diag(noise) @ gain",
        f"{DESIGNED}::test_power_in_closed_form",
    ),
    "the error of a root is that of the curve": Mutant(
        "studies/designs/search.py",
        "error = root * noise / slope if",
        "error = noise if",
        f"{DESIGNED}::test_the_root_is_as_near_as_its_error_says",
    ),
    "a chance that all releases agree on has no error": Mutant(
        "studies/designs/search.py",
        "return max(scatter, 0.5 * (high - low))",
        "return scatter",
        f"{DESIGNED}::test_a_chance_that_all_releases_agree_on_has_an_error_and_a_band",
    ),
    "a design goes on with the numbers of another batch": Mutant(
        "studies/designs/simulation.py",
        'key = ("batch", _digest(plans), batch) if',
        'key = ("batch", _digest(plans), batch // 2) if',
        "studies/test_design_checkpoints.py::test_a_run_cut_anywhere_ends_with_the_same_result",
    ),
    "a goal out of reach is taken for one that is met": Mutant(
        "studies/design.py",
        "if excess(grid[-1]) > 0.0:",
        "if excess(grid[0]) < 0.0:",
        f"{DESIGNED}::test_a_goal_out_of_reach_is_an_error_with_the_curve",
    ),
    "the largest target is looked for where the least is best": Mutant(
        "studies/designs/split.py",
        "return sign * float(np.mean(batch_means(shares_of(free))))",
        "return -sign * float(np.mean(batch_means(shares_of(free))))",
        f"{DESIGNED}::test_two_statistics_of_unequal_sensitivities",
    ),
    "a candidate is judged on the releases that chose it": Mutant(
        "studies/designs/candidates.py",
        "return self._means(shares, first=self.batches)",
        "return self._means(shares, first=0)",
        "studies/test_candidates.py::test_the_winner_is_judged_on_releases_that_did_not_choose_it",
    ),
    "the worst candidate is taken": Mutant(
        "studies/allocate.py",
        "best = min(ways, key=lambda way: sign * way.seen)",
        "best = max(ways, key=lambda way: sign * way.seen)",
        "studies/test_candidates.py::test_how_often_to_measure_in_closed_form",
    ),
    "the sensitivities of ten people serve for any number of them": Mutant(
        "studies/sample_size.py",
        "self.plan(n) if callable(self.plan)",
        "self.plan(10) if callable(self.plan)",
        f"{DESIGNED}::test_the_number_of_people_in_closed_form",
    ),
    "a verdict over several quantities does not correct for their number": Mutant(
        "studies/calibrate.py",
        "return min(1.0, len(self.p_values) * min(self.p_values.values())) if",
        "return min(1.0, min(self.p_values.values())) if",
        f"{RANKS}::test_a_verdict_over_many_quantities_counts_their_number",
    ),
    "ranks of ties are the lowest": Mutant(
        "studies/calibrate.py",
        "by_label[label] = float((below + rng.integers(ties + 1) + rng.random()) / (len(chosen) + 1))",
        "by_label[label] = float((below + rng.random()) / (len(chosen) + 1))",
        f"{RANKS}::test_ties_are_randomised",
    ),
    "weighted draws are ranked as if each counted alike": Mutant(
        "studies/calibrate.py",
        "return weights.systematic(rng, posterior.log_weights, int(np.clip(worth, 1, MOST_RANKED)))",
        "return np.arange(int(np.clip(worth, 1, MOST_RANKED)))",
        f"{RANKS}::test_weighted_draws_are_resampled",
    ),
    "releases of a calibration have no noise": Mutant(
        "studies/calibrate.py",
        "noisy[name] = mechanism.sample(rng, values[name], **extra)",
        "noisy[name] = values[name] + 0 * mechanism.sample(rng, values[name], **extra)",
        f"{RANKS}::test_right_samplers_pass",
    ),
    "how much wider an interval is counts one side of it": Mutant(
        "results/beside.py",
        "wider = (exact.loc[labels, high] - exact.loc[labels, low]) / (naive[high] - naive[low])",
        'wider = (exact.loc[labels, high] - exact.loc[labels, "mean"]) / (naive[high] - naive[low])',
        "studies/test_compare.py::test_the_table_tells_how_much_wider_and_how_far",
    ),
    "a shift is told in units of the exact analysis": Mutant(
        "results/beside.py",
        'shift = (exact.loc[labels, "mean"] - naive["mean"]) / naive["sd"]',
        'shift = (exact.loc[labels, "mean"] - naive["mean"]) / exact.loc[labels, "sd"]',
        "studies/test_compare.py::test_the_table_tells_how_much_wider_and_how_far",
    ),
    "the forecast's time is that of all rows": Mutant(
        "studies/forecast.py",
        "return bool(self.conflict) and whole_release(self.conflict)[1] < SURPRISING",
        "return bool(self.conflict) and whole_release(self.conflict)[1] > 1.0 - SURPRISING",
        "studies/test_forecast.py::test_conflict_is_seen",
    ),
    "an interval of a fit has all of its error on each side": Mutant(
        "results/estimated.py",
        "z = -ndtri((1 - each) / 2)",
        "z = -ndtri(1 - each)",
        "likelihood/test_intervals.py::test_coverage_of_a_normal_mean "
        "likelihood/test_likelihood.py::test_displays_and_tables "
        "likelihood/test_intervals.py::test_a_gaussian_model_has_closed_forms_and_the_right_degrees_of_freedom",
    ),
    "how much a naive fit claims is told by errors, not by their squares": Mutant(
        "results/fit.py",
        '(wider**2).rename("information ratio")',
        'wider.rename("information ratio")',
        "likelihood/test_likelihood_robust.py::test_beside_the_naive_fit",
    ),
}
