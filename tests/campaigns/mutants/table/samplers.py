"""Mistakes in what samplers are made of: kernels, weights, proposals, verdicts and choices.

Those in a sampler's own file stand in its row of `tests/helpers/sampler_table.py`.
"""

from mutant import Mutant

KERNELS = "samplers/test_kernels.py"
LEAVES = f"{KERNELS}::test_a_kernel_leaves_its_conditional_as_it_was"
RENEWED = f"{KERNELS}::test_parameters_and_records_renewed_together_stay_as_they_were"
WHOLE = f"{KERNELS}::test_steps_of_whole_numbers_go_up_as_often_as_down"
DRAWN = f"{KERNELS}::test_a_mixture_is_drawn_from_its_density"
PICKED = f"{KERNELS}::test_one_of_several_simulations_is_picked_by_its_weight"
WEIGHTED = "samplers/test_importance.py"
WALKS = "samplers/test_mcmc.py"
HAMILTON = "samplers/test_nuts.py"
TABLES = "samplers/test_reported.py"
FORESEEN = "studies/test_forecast.py"
TOGETHER = "samplers/test_recombined.py"
MANY = "samplers/test_many_rows.py"

INDEPENDENT = {
    "a parameter value is given up though its likelihood counts": Mutant(
        "samplers/proposals/many_rows.py",
        "total += own.log_likelihood_near(self._given(name, values), least - total - left)",
        "total += own.log_likelihood_near(self._given(name, values), least - total - left + 5.0)",
        f"{MANY}::test_what_is_hopeless_is_seen_by_the_noise_alone",
    ),
    "a weight of very many rows lacks the prior over the proposal": Mutant(
        "samplers/proposals/many_rows.py",
        "log_weights = np.where(np.isfinite(heights), log_ratio + heights, -np.inf)",
        "log_weights = np.where(np.isfinite(heights), heights, -np.inf)",
        f"{MANY}::test_the_posterior_is_that_of_quadrature",
    ),
    "two layers share their random numbers": Mutant(
        "samplers/integrated.py",
        "_drawn(layer, columns, posterior.seed, number, engine)",
        "_drawn(layer, columns, posterior.seed, 0, engine)",
        "samplers/test_integrated.py::test_two_layers_are_drawn_apart",
    ),
    "blocks of a layer are drawn from one stream of random numbers": Mutant(
        "samplers/integrated.py",
        "generator(seed, Purpose.LAYERS, number, *[block] * (block > 0))",
        "generator(seed, Purpose.LAYERS, number)",
        "samplers/test_integrated.py::test_a_layer_drawn_block_by_block",
    ),
    "a block of a layer is drawn given the rows before": Mutant(
        "samplers/integrated.py",
        "name: column[first:end]",
        "name: np.roll(column[first:end], 1, axis=0)",
        "samplers/test_integrated.py::test_a_layer_drawn_block_by_block",
    ),
    "a layer that a mechanism reads is integrated out": Mutant(
        "samplers/integrated.py",
        "kept = {name for item in problem.release.values() for name in item.mechanism.inputs}",
        "kept: set[str] = set()",
        "samplers/test_integrated.py::test_what_a_mechanism_reads_stays",
    ),
    "acceptance on an accelerator shares the random numbers of the draws": Mutant(
        "samplers/rejection_on_device.py",
        "accepted = log_uniform(accepting, rows) <= ratio",
        "accepted = log_uniform(accepting, rows) <= 0.5 * ratio",
        "engine/test_device.py::test_rejection_is_exact",
    ),
}

ALONG = "samplers/test_lattice.py::test_every_table_comes_as_often_as_it_should"
AUGMENTATION = {
    "a measured normal statistic stays where it is": Mutant(
        "samplers/gibbs/measured.py",
        "state.values[self.name] = self.conditional.drawn(rng, given, state.chains)",
        "self.conditional.drawn(rng, given, state.chains)",
        "samplers/test_lattice.py::test_a_continuous_statistic_measured_twice_has_its_closed_form",
    ),
    "a window along a direction always begins at the present table": Mutant(
        "inference/tables/lattice.py",
        "steps = jnp.arange(length)[:, None] - shift",
        "steps = jnp.arange(length)[:, None] - shift // length",
        f"{ALONG}[total_noisy]",
    ),
    "tables move without the noise of their sums": Mutant(
        "inference/tables/lattice.py",
        "weights += jnp.sum(_log_noise(released[other], row, at_row), axis=-1)",
        "weights += 0.0 * jnp.sum(_log_noise(released[other], row, at_row), axis=-1)",
        f"{ALONG}[structural_zero]",
    ),
    "normal noise of a sum is half as curved along a direction": Mutant(
        "inference/tables/lattice.py",
        "weights += steps * (slope - 0.5 * curvature * steps)",
        "weights += steps * (slope - 0.25 * curvature * steps)",
        f"{ALONG}[total_noisy]",
    ),
    "what is drawn without a rejection has windows that leave something out": Mutant(
        "samplers/predictive.py",
        "collapse.target.too_narrow(collapse.fixed.left, collapsed.NEGLECTED)",
        "collapse.target.too_narrow(0.0 * collapse.fixed.left, collapsed.NEGLECTED)",
        "samplers/test_predictive.py::test_windows_widen_until_nothing_is_left_out",
    ),
    "a release that cannot come about has draws all the same": Mutant(
        "samplers/predictive.py",
        "return IMPOSSIBLE if collapse.fixed.log_likelihood == -np.inf else widened",
        "return widened",
        "samplers/test_predictive.py::test_a_release_that_cannot_come_about_is_refused",
    ),
    "what is drawn without a rejection starts one value further": Mutant(
        "samplers/proposals/collapsed.py",
        "drawn |= sum_.values_at(law(rng.random((rows, sum_.entries))), tables)",
        "drawn |= sum_.values_at(1 + law(rng.random((rows, sum_.entries))), tables)",
        "samplers/test_predictive.py::test_a_count_and_its_rate_have_their_exact_laws",
    ),
    "without parameters, nothing weighs": Mutant(
        "samplers/proposals/collapsed.py",
        "return np.broadcast_to(self.fixed.log_likelihood, rows)",
        "return np.zeros(rows)",
        "samplers/test_collapsed.py::test_without_parameters_the_evidence_is_the_release_s_probability",
    ),
    "parameters drawn without a rejection are those of the row before": Mutant(
        "samplers/predictive.py",
        "columns[layer.name] = layer.draw(rng, columns)",
        "columns[layer.name] = np.roll(layer.draw(rng, columns), 1, axis=0)",
        "samplers/test_predictive.py::test_a_count_and_its_rate_have_their_exact_laws[clipped]",
    ),
    "ratios of neighbouring probabilities are those of the next counts": Mutant(
        "inference/tables/lattice.py",
        "ratio = (1.0 if more is None else lower + more) / (lower + 1.0)",
        "ratio = (1.0 if more is None else lower + more) / (lower + 2.0)",
        "samplers/test_lattice.py::test_laws_along_a_direction_are_their_densities",
    ),
    "declared bounds of sums are moved the wrong way by what is known": Mutant(
        "inference/tables/facts.py",
        "return replace(fact, low=fact.low - by, high=fact.high - by)",
        "return replace(fact, low=fact.low + by, high=fact.high + by)",
        "samplers/test_declared_bounds.py::test_whatever_is_accepted_is_connected_by_enumeration",
    ),
    "ranges inside ranges are joined by single cells alone": Mutant(
        "inference/tables/facts.py",
        "return left, none if disjoint and apart else outermost",
        "return left, none if apart else outermost",
        "samplers/test_declared_bounds.py::test_a_range_inside_a_range_needs_pairs",
    ),
    "pairs of cells do not keep an exact total": Mutant(
        "inference/tables/directions.py",
        "return (int(min(a, b)), int(max(a, b))), (1, -1)",
        "return (int(min(a, b)), int(max(a, b))), (1, 1)",
        f"{ALONG}[total_exact]",
    ),
    "directions of a batch share noisy sums": Mutant(
        "inference/tables/directions.py",
        "np.where(changes != 0, shape[1] + rows, sum(shape))",
        "np.full_like(rows, sum(shape))",
        "samplers/test_lattice.py::test_directions_of_a_batch_share_nothing",
    ),
    "a nested sum is taken for that of the cells it does not share": Mutant(
        "inference/tables/fibres.py",
        "left = value - sum(inside[o][1] for o in owners[held])",
        "left = value",
        "samplers/test_lattice.py::test_nested_sums_are_those_of_blocks",
    ),
    "the random walk of a continuous statistic is accepted without the noise term": Mutant(
        "samplers/gibbs/latent.py",
        "ratio = ratio + self._log_eta(state, proposed) - self._log_eta(state, current)",
        "ratio = ratio + 0.0",
        f"{LEAVES}[the_random_walk_of_a_continuous_statistic]",
    ),
    "statistics proposed from the noise are accepted without their law": Mutant(
        "samplers/gibbs/latent.py",
        "            proposed = np.round(proposed).astype(np.int64)\n        ratio = self._log_law(state, proposed) "
        "- self._log_law(state, current)",
        "            proposed = np.round(proposed).astype(np.int64)\n        ratio = 0.0 * self._log_law(state, "
        "proposed)",
        f"{LEAVES}[counts_proposed_from_the_noise]",
    ),
    "statistics proposed from their law are accepted without the noise": Mutant(
        "samplers/gibbs/latent.py",
        "ratio = self._log_eta(state, proposed) - self._log_eta(state, current)\n        return",
        "ratio = 0.0 * self._log_eta(state, proposed)\n        return",
        f"{LEAVES}[a_continuous_statistic_proposed_from_its_law]",
    ),
    "a window of counts always begins at the present one": Mutant(
        "samplers/gibbs/latent.py",
        "first = s - offset if start is None else jnp.full_like(s, start)",
        "first = s - length // 4 if start is None else jnp.full_like(s, start)",
        f"{LEAVES}[a_window_of_counts]",
    ),
    "lines through a table do not keep its total": Mutant(
        "samplers/gibbs/latent.py",
        "along = along.at[j].add(-1) if table else along",
        "along = along",
        f"{LEAVES}[lines_through_a_table]",
    ),
    "a value along a line is picked one too far": Mutant(
        "inference/conditional/marginal.py",
        "return jnp.sum(sums <= uniform * sums[-1], axis=0)",
        "return jnp.minimum(jnp.sum(sums <= uniform * sums[-1], axis=0) + 1, len(sums) - 1)",
        f"{LEAVES}[all_values_of_a_count]",
    ),
    "parameters and records are renewed without the Jacobian": Mutant(
        "samplers/gibbs/renewal.py",
        "self.bare.release) + far_slope - slope",
        "self.bare.release) + 0.0 * (far_slope - slope)",
        RENEWED,
    ),
    "parameters and records are renewed with their noise counted twice": Mutant(
        "samplers/gibbs/renewal.py",
        "return self.density(there, {}, release) - self.density(here, {}, release)",
        "return 2.0 * (self.density(there, {}, release) - self.density(here, {}, release))",
        RENEWED,
    ),
    "parameters and fresh statistics are accepted without the Jacobian": Mutant(
        "samplers/gibbs/parameter_steps.py",
        "ratio = new - old + jacobian",
        "ratio = new - old + 0.0 * jacobian",
        f"{LEAVES}[a_bounded_parameter_with_a_fresh_statistic]",
    ),
    "a trajectory is accepted without its kinetic energy": Mutant(
        "samplers/gibbs/parameter_steps.py",
        "ratio = after - before + 0.5 * jnp.sum(push**2) - 0.5 * jnp.sum(p**2)",
        "ratio = after - before",
        f"{LEAVES}[a_trajectory_of_two_parameters]",
    ),
    "a gamma law given the rest has one degree too few": Mutant(
        "samplers/gibbs/conjugate.py",
        "draw=lambda rng, a, b: rng.standard_gamma(a + 1.0) / b,",
        "draw=lambda rng, a, b: rng.standard_gamma(a + 0.5) / b,",
        f"{LEAVES}[a_gamma_law_given_the_rest]",
    ),
    "shares given the rest are drawn without the ones of their law": Mutant(
        "samplers/gibbs/conjugate.py",
        "    shape = a + 1.0\n",
        "    shape = a + 1.5\n",
        f"{LEAVES}[a_Dirichlet_law_given_the_rest]",
    ),
    "coefficients are compared at a chain's own values only": Mutant(
        "samplers/gibbs/conjugate.py",
        "for anchor in (beyond, *ends):",
        "for anchor in (beyond,):",
        "samplers/test_augmentation.py::test_numbers_must_bear_out_what_the_structure_says",
    ),
    "the joint density counts an entry's law outside its support": Mutant(
        "samplers/gibbs/joint.py",
        "return jnp.where(inside(law, value) & ~jnp.isnan(log_prob), log_prob, -jnp.inf)",
        "return jnp.where(~jnp.isnan(log_prob), log_prob, 0.0)",
        f"{LEAVES}[a_positive_statistic_proposed_from_the_noise]",
    ),
    "the joint density counts only the first entry's noise": Mutant(
        "samplers/gibbs/joint.py",
        "return jnp.sum(mechanism.log_prob(value, confidential, **{x: values[x] for x in mechanism.inputs}))",
        "return jnp.ravel(mechanism.log_prob(value, confidential, **{x: values[x] for x in mechanism.inputs}))[0]",
        f"{LEAVES}[lines_through_a_table]",
    ),
    "tables behind reports read the channel the wrong way round": Mutant(
        "samplers/gibbs/reported.py",
        "for column, chance in enumerate(np.array(mechanism.channel).T):",
        "for column, chance in enumerate(np.array(mechanism.channel)):",
        f"{TABLES}::test_tables_follow_their_law_given_shares_and_reports",
    ),
}

CHAINS = {
    "walkers accept without the prior": Mutant(
        "samplers/walking/moves.py",
        "ratio = ratio + (log_prior - walkers.log_prior)",
        "ratio = ratio + 0.0 * (log_prior - walkers.log_prior)",
        f"{WALKS}::test_kernel_passes_gewekes_test",
    ),
    "walkers that propose from the prior count it again": Mutant(
        "samplers/walking/moves.py",
        "if not independent:  # proposals from the prior: its density cancels",
        "if True:",
        f"{WALKS}::test_proposals_from_the_prior_pass_gewekes_test",
    ),
    "the estimate of a walker's height is the largest of its simulations": Mutant(
        "samplers/walking/moves.py",
        "return (safe + np.log(np.mean(np.exp(log_eta - safe[:, None]), axis=1))).sum(axis=1)",
        "return (safe + np.log(np.max(np.exp(log_eta - safe[:, None]), axis=1))).sum(axis=1)",
        f"{WALKS}::test_kernel_passes_gewekes_test {WALKS}::test_any_number_of_simulations_is_exact",
    ),
    "steps of whole numbers go up more often than down": Mutant(
        "samplers/walking/moves.py",
        "sign = np.where(rng.random(shape) < 0.5, -1, 1)",
        "sign = np.where(rng.random(shape) < 0.4, -1, 1)",
        WHOLE,
    ),
    "chains start at the heaviest points alone": Mutant(
        "samplers/walking/starts.py",
        "chosen.append(int(np.argmax(nearest)) if nearest.max() > 0.0 else len(chosen) % len(pool))",
        "chosen.append(int(np.argmin(nearest)))",
        "samplers/test_second_look.py::test_starts_lie_on_both_hills",
    ),
    "coordinates of hierarchies are chosen without their Jacobian": Mutant(
        "samplers/walking/centring.py",
        "+ (1.0 - part) * log_scale.mean(axis=0)",
        "+ 0.0 * log_scale.mean(axis=0)",
        "samplers/test_centring.py::test_what_the_release_tells_nothing_of_is_standardised "
        "samplers/test_centring.py::test_the_part_is_the_same_in_any_unit",
    ),
    "the scale of NUTS's coordinates is left out of its steps": Mutant(
        "samplers/walking/gradient_programs.py",
        'return lambda scaled: energy(scaled * data["scale"])',
        "return lambda scaled: energy(scaled)",
        f"{HAMILTON}::test_chains_meet_in_any_unit",
    ),
    "R-hat of vectors is that of their first entry": Mutant(
        "samplers/judging.py",
        "apart, least = int(np.argmax(agreement)), int(np.argmin(size))",
        "apart, least = 0, int(np.argmin(size))",
        "diagnostics/test_chains.py::test_the_worst_entry_speaks_for_a_vector",
    ),
    "chains are judged by the scalar that is worth most": Mutant(
        "samplers/judging.py",
        "apart, least = int(np.argmax(agreement)), int(np.argmin(size))",
        "apart, least = int(np.argmax(agreement)), int(np.argmax(size))",
        "diagnostics/test_chains.py::test_the_worst_entry_speaks_for_a_vector",
    ),
}

PROPOSALS = {
    "a climber's spread is that about where it goes, not where it was": Mutant(
        "samplers/proposals/hills.py",
        "for one in (np.swapaxes(factor, 1, 2), moves))",
        "for one in (np.swapaxes(factor, 1, 2), moves - moves.mean(axis=1, keepdims=True)))",
        "samplers/test_hills.py::test_a_climber_is_spread_as_the_hill_is",
    ),
    "climbs go up the likelihood without the prior": Mutant(
        "samplers/proposals/hills.py",
        "heights = log_prior + log_likelihood",
        "heights = log_likelihood",
        "samplers/test_hills.py::test_every_top_is_climbed_to_from_the_slopes",
    ),
    "a spike on a wide hill is taken for a part of it": Mutant(
        "samplers/proposals/hills.py",
        "return bool(np.any(near & (height <= self.heights + HIGHER)))",
        "return bool(np.any(near))",
        "samplers/test_hills.py::test_a_spike_on_a_wide_hill_is_a_hill_of_its_own",
    ),
    "shares of chains have the errors of independent draws": Mutant(
        "samplers/choosing/second_look.py",
        "if posterior.chains is not None:\n        sizes",
        "if posterior.chains is None:\n        sizes",
        "samplers/test_hills.py::test_shares_of_chains_have_the_errors_of_chains",
    ),
    "a hill's share of the draws is not looked at": Mutant(
        "samplers/choosing/second_look.py",
        "if share[worst] - own[worst] - CERTAIN * error[worst] <= UNEVEN:",
        "if share[worst] - own[worst] - CERTAIN * error[worst] <= 1.0:",
        "samplers/test_hills.py::test_draws_without_a_hill_between_others_are_not_complete",
    ),
    "a table's chances forget the prior's share of it": Mutant(
        "samplers/proposals/adapted.py",
        "log_q = np.logaddexp(math.log1p(-TABLED) + log_prior, math.log(TABLED) + table.log_chance(values))",
        "log_q = table.log_chance(values)",
        "samplers/test_second_look.py::test_a_rare_case_of_a_whole_number_is_seen",
        long=True,
    ),
    "weights of the exact likelihood forget the proposal": Mutant(
        "samplers/proposals/collapsed.py",
        "log_weights = log_ratio + log_likelihood\n",
        "log_weights = log_likelihood\n",
        "samplers/test_collapsed.py::test_noisy_rows_of_a_normal_law_by_default",
    ),
    "what windows leave out is not weighted": Mutant(
        "samplers/proposals/collapsed.py",
        "return (weights[:, None] * neglected).sum(axis=0) / weights.sum()",
        "return 0.0 * (weights[:, None] * neglected).sum(axis=0) / weights.sum()",
        "samplers/test_collapsed.py::test_windows_that_leave_too_much_out_are_widened "
        "samplers/test_collapsed.py::test_windows_far_from_what_is_likely_are_noticed",
    ),
    "Student's law has the tail of one degree less than it is drawn with": Mutant(
        "samplers/proposals/mixture.py",
        "normal *= np.sqrt(0.5 * DEGREES / rng.standard_gamma(0.5 * DEGREES, rows))[:, None]",
        "normal *= np.sqrt(0.4 * DEGREES / rng.standard_gamma(0.4 * DEGREES, rows))[:, None]",
        DRAWN,
    ),
    "Student's density forgets its factor's determinant": Mutant(
        "samplers/proposals/mixture.py",
        "constant -= 0.5 * size * math.log(math.pi * DEGREES) + float(np.log(np.diag(factor)).sum())",
        "constant -= 0.5 * size * math.log(math.pi * DEGREES)",
        DRAWN,
    ),
    "rows of a round are weighed against its own law alone": Mutant(
        "samplers/proposals/memory.py",
        "balanced = one.log_weights + own - average",
        "balanced = one.log_weights + 0.0 * (own - average)",
        f"{WEIGHTED}::test_rows_of_all_rounds_are_weighed_against_all_their_laws",
    ),
    "a pilot counts the variance within rows once more between them": Mutant(
        "samplers/proposals/pilot.py",
        "(sums**2 - squares) / (number * (number - 1))",
        "sums**2 / number**2",
        f"{WEIGHTED}::test_simulations_are_as_many_as_their_share_of_the_variance_calls_for",
    ),
    "weights forget the prior's share in a proposal": Mutant(
        "samplers/proposals/proposal.py",
        "log_ratio = -np.logaddexp(math.log(share), math.log1p(-share) + log_gain)",
        "log_ratio = -log_gain",
        f"{WEIGHTED}::test_users_proposals_are_exact_for_law_function_and_part",
    ),
    "one of several simulations is picked blindly": Mutant(
        "samplers/proposals/weighted_candidates.py",
        "return np.argmin(clock - log_each, axis=1)",
        "return np.argmin(clock - 0.0 * log_each, axis=1)",
        PICKED,
    ),
    "simulations of a part are picked by the weights of another": Mutant(
        "samplers/proposals/weighted_candidates.py",
        "picked = pick_simulation(rng, log_etas[:, :, number])",
        "picked = pick_simulation(rng, log_etas[:, :, -1 - number])",
        f"{WEIGHTED}::test_parts_are_averaged_and_picked_each_by_itself",
    ),
    "an average of weights forgets how many there are": Mutant(
        "samplers/proposals/weighted_candidates.py",
        ".sum(axis=1)) - math.log(log_each.shape[1])",
        ".sum(axis=1))",
        PICKED,
    ),
}

CHOICES = {
    "weighted draws are thought the cheaper the less they are worth": Mutant(
        "samplers/choosing/choice.py",
        "work = draws * probe.cells / efficiency\n    return Estimate(sampler, work, efficiency, note, "
        "_enough(sampler, draws, efficiency))",
        "work = draws * probe.cells * efficiency\n    return Estimate(sampler, work, efficiency, note, "
        "_enough(sampler, draws, efficiency))",
        f"{FORESEEN}::test_weighted_draws_cost_more_the_less_they_are_worth",
    ),
    "a value's chance is left out of the proposal's density": Mutant(
        "samplers/proposals/by_value.py",
        "log_q[members] = np.log(chance) + mixture",
        "log_q[members] = mixture",
        "samplers/test_by_value.py::test_ratios_integrate_to_one",
    ),
    "a value's rows are drawn from the mixture of another": Mutant(
        "samplers/proposals/by_value.py",
        "free[members] = mixture.draw(rng, int(members.sum()))",
        "free[members] = self.mixtures[own - 1].draw(rng, int(members.sum()))",
        "samplers/test_by_value.py::test_a_value_is_drawn_from_its_own_mixture",
    ),
    "the mixture of a value is fitted to the rows of all": Mutant(
        "samplers/proposals/pilot.py",
        "np.flatnonzero(numbers == own), own)",
        "np.flatnonzero(numbers >= 0), own)",
        "samplers/test_by_value.py::test_neither_of_two_explanations_is_lost",
    ),
    "records that fill no group are left out of a total": Mutant(
        "samplers/proposals/recombined.py",
        "rest + all_sums(versions[:, groups // 2 :])",
        "0 * rest + all_sums(versions[:, groups // 2 :])",
        f"{TOGETHER}::test_weighed_totals_have_their_law_times_the_noise_density",
    ),
    "one of the sums is picked whatever its noise density": Mutant(
        "samplers/proposals/recombined.py",
        "at = np.sum(heights <= rng.random((rows, 1)) * heights[:, -1:], axis=1)",
        "at = rng.integers(some * others, size=rows)",
        f"{TOGETHER}::test_weighed_totals_have_their_law_times_the_noise_density",
    ),
    "a total is weighed by the sum over its choices, not the mean": Mutant(
        "samplers/proposals/recombined.py",
        "np.log(heights[:, -1] / (some * others))",
        "np.log(heights[:, -1])",
        f"{TOGETHER}::test_weighed_totals_have_their_law_times_the_noise_density",
    ),
    "a version of a group is added twice": Mutant(
        "samplers/proposals/recombined.py",
        "added + versions[:, group, [one]] for one in (0, 1)",
        "added + versions[:, group, [0]] for one in (0, 1)",
        f"{TOGETHER}::test_every_choice_of_versions_is_a_sum_once",
    ),
    "a guided draw is weighed as if it came from its law": Mutant(
        "samplers/proposals/guided.py",
        "return {**values, self.name: shaped}, log_eta - log_drawn",
        "return {**values, self.name: shaped}, log_eta",
        "samplers/test_guided.py::test_weighed_draws_have_the_law_times_the_noise_density",
    ),
    "draws from a law with nothing in the window count as a share of the draws": Mutant(
        "samplers/proposals/guided.py",
        "np.where(possible, math.log(SHARE), 0.0)",
        "math.log(SHARE)",
        "samplers/test_guided.py::test_where_the_release_is_impossible_rows_follow_the_law",
    ),
    "a statistic with a guide is weighed by its noise once more": Mutant(
        "samplers/proposals/weighted_candidates.py",
        "if name not in terms:",
        "if name not in noise_free:",
        "samplers/test_guided.py::test_the_posterior_is_that_of_enumeration",
    ),
    "several explanations are left to chains": Mutant(
        "samplers/choosing/probe.py",
        "if not MOST_ADAPTED < probe.unknowns <= MOST_EXPLAINED or",
        "if True or",
        "samplers/test_prior_parts.py::test_explanations_of_many_unknowns_are_weighed_apart",
    ),
    "the mixture of a part of the prior is fitted to the rows of all": Mutant(
        "samplers/proposals/pilot.py",
        "own = members[part == one]",
        "own = members",
        "samplers/test_prior_parts.py::test_neither_hump_of_a_prior_is_lost",
    ),
    "the first component that could be counts as the likeliest": Mutant(
        "samplers/proposals/parts.py",
        "jnp.argmax(of_each, axis=-1)",
        "jnp.argmax(of_each > -jnp.inf, axis=-1)",
        "samplers/test_prior_parts.py::test_the_part_is_that_of_the_likeliest_components",
    ),
    "longer chains are tried where chains shun a place": Mutant(
        "samplers/choosing/reruns.py",
        'if posterior.status == "divergent" or (apart and diverged):',
        'if posterior.status == "divergent":',
        "samplers/test_reruns.py::test_chains_that_nearly_met_or_diverged_run_again",
    ),
    "a complete result is lost to a run that fell short": Mutant(
        "samplers/choosing/reruns.py",
        '    if held.status == "complete":\n        return held\n',
        "",
        "samplers/test_reruns.py::test_a_few_divergences_put_a_run_aside_unless_there_is_no_better",
    ),
    "the tail of a release's density counts larger ones": Mutant(
        "samplers/choosing/conflict.py",
        "return float(np.mean(densities <= densities[0]))",
        "return float(np.mean(densities >= densities[0]))",
        f"{FORESEEN}::test_conflict_is_seen",
    ),
    "the bound on what goes unseen forgets that three draws may miss": Mutant(
        "samplers/choosing/probe.py",
        "return min(1.0, 3.0 / (self.rows * rate)) if rate > 0.0 else 1.0",
        "return min(1.0, 0.1 / (self.rows * rate)) if rate > 0.0 else 1.0",
        "samplers/test_second_look.py::test_what_draws_may_have_missed_is_three_over_what_they_accept",
    ),
    "what the second look finds outside is not weighed": Mutant(
        "samplers/choosing/second_look.py",
        "beyond = np.where(away.any(axis=1), log_weights, -np.inf)",
        "beyond = np.where(away.any(axis=1), -np.inf, -np.inf)",
        "samplers/test_second_look.py::test_a_share_of_the_posterior_where_no_draw_is_counts_by_its_weight",
    ),
    "a right posterior is refused for what lies at its ends": Mutant(
        "samplers/choosing/second_look.py",
        "beyond = (values[:, entry] < low[entry]) | (values[:, entry] > high[entry])",
        "beyond = (values[:, entry] < high[entry]) | (values[:, entry] > high[entry])",
        "samplers/test_second_look.py::test_a_right_posterior_is_not_refused_under_conflict",
    ),
}
