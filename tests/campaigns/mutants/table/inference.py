"""Mistakes in the numerics, the diagnostics, the streams of random numbers and the conditional law."""

from mutant import Mutant

PROGRAMS = "numerics/test_numpy_programs.py"
CHAINS = "diagnostics/test_chains.py"
WEIGHTS = "diagnostics/test_weights.py"
TAILS = "diagnostics/test_tails.py"
RECORDS = "inference/test_record_steps.py"
ENTRY = "inference/test_conditional_entry.py"
CELLS = "inference/test_cells_of_total.py::test_draws_have_the_law_of_all_tables"
ROWS = "inference/test_rows.py"
NORMAL = "inference/test_conditional.py"
RATIOS = "inference/test_ratios.py"
TREES = "inference/test_trees.py"
EACH = f"{TREES}::test_sums_and_draws_are_those_of_enumeration"
BEYOND = f"{TREES}::test_what_narrow_windows_leave_out_is_bounded_and_said"
PLACES = "numerics/test_places.py"

NUMERICS = {
    "blocks of a task draw from one generator": Mutant(
        "numerics/side_by_side.py",
        "getattr(generator, method)(*cut, out=out[part])",
        "getattr(self.generators[0], method)(*cut, out=out[part])",
        "inference/test_blocks.py::test_a_task_is_its_blocks_one_by_one",
    ),
    "blocks of a task have the key of the first": Mutant(
        "inference/blocks.py",
        "keys = following(key, first, count)",
        "keys = following(key, first, 1) * count",
        "inference/test_blocks.py::test_a_task_is_its_blocks_one_by_one",
    ),
    "sums over one law for all entries forget the unit": Mutant(
        "inference/conditional/sums.py",
        'return inside, jnp.exp(law - log_mass), log_mass + tables["log_top"]',
        "return inside, jnp.exp(law - log_mass), log_mass",
        "inference/test_one_law_for_all.py::test_values_and_slopes_are_those_of_every_entry",
    ),
    "what was released often counts once": Mutant(
        "inference/conditional/sums.py",
        "return jnp.sum(times * bound)",
        "return jnp.sum((times > 0.0) * bound)",
        "inference/test_one_law_for_all.py::test_what_was_released_often_is_summed_once",
    ),
    "a released value takes the sum of another": Mutant(
        "inference/conditional/ratios.py",
        "return by_table(law, kind, table, size)[place.reshape(released.shape)]",
        "return by_table(law, kind, table, size)[np.sort(place.reshape(released.shape))]",
        "inference/test_ratios.py::test_what_was_released_often_is_summed_once",
    ),
    "what vanishes beside the law's top is not said": Mutant(
        "inference/conditional/sums.py",
        "jnp.where(sure, void, 1.0)",
        "jnp.where(sure, void, 0.0)",
        "inference/test_one_law_for_all.py::test_what_vanishes_is_void",
    ),
    "the rule of Kronrod gives weights of the nodes in the wrong order": Mutant(
        "numerics/kronrod.py",
        "inner = np.concatenate([gauss_weights, np.zeros(few + 1)])[order]",
        "inner = np.concatenate([np.zeros(few + 1), gauss_weights])[order]",
        f"{ENTRY}::test_the_rule_of_kronrod",
    ),
    "the log of a far normal tail lacks the constant of its series": Mutant(
        "numerics/namespaces.py",
        "jnp.log(-z) - HALF_LOG_TWO_PI",
        "jnp.log(-z)",
        "mechanisms/test_catalogue_extremes.py::test_log_ndtr_of_both_libraries",
    ),
    "the slope of a scaled tail is that of the tail": Mutant(
        "numerics/namespaces.py",
        "-inner / (z * whole) * tangent",
        "(-inner / (z * whole) - z) * tangent",
        "numerics/test_normal_tails.py::test_log_mills_and_its_slopes",
    ),
    "the slope of log Phi is the density": Mutant(
        "numerics/namespaces.py",
        "jnp.exp(-0.5 * z * z - value - HALF_LOG_TWO_PI)",
        "jnp.exp(-0.5 * z * z - HALF_LOG_TWO_PI)",
        "numerics/test_normal_tails.py::test_log_ndtr_near_and_its_slopes",
    ),
    "programs within programs keep their operations on many matrices": Mutant(
        "numerics/matrices.py",
        "if not isinstance(value, ClosedJaxpr) or not factors_many(value.jaxpr):",
        "if True:",
        "numerics/test_matrices.py",
    ),
    "arrays are overwritten that others still read": Mutant(
        "numerics/numpy_programs.py",
        "readers.count(id(variable)) == 1",
        "readers.count(id(variable)) >= 1",
        PROGRAMS,
    ),
    "a number counts as fixed that depends on a parameter and on others": Mutant(
        "numerics/numpy_programs.py",
        "        if not moving.isdisjoint(taken):",
        "        if moving.issuperset(taken):",
        f"{PROGRAMS} inference/test_conditional_laws.py",
    ),
    "rows that were put in once are counted again": Mutant(
        "model/on_device/held.py",
        "        self.filled = at\n",
        "        self.filled += at\n",
        "results/test_draws_that_stay.py",
    ),
    "blocks that have grown are counted as small ones": Mutant(
        "inference/stream.py",
        "self.growth * max(block - self.settled, 0)",
        "max(block - self.settled, 0)",
        "inference/test_blocks.py::test_draws_and_evidence_of_larger_blocks_are_exact",
    ),
    "a task has blocks of two sizes": Mutant(
        "inference/stream.py",
        "return min(blocks, self.settled - self.launched) if self.launched < self.settled else blocks",
        "return blocks",
        "inference/test_blocks.py::test_larger_blocks_come_by_their_number_alone",
    ),
    "a checkpoint whose blocks were all alike goes on with larger ones": Mutant(
        "inference/streams.py",
        'before.get("settled", NEVER)',
        'before.get("settled", SETTLED)',
        "inference/test_blocks.py::test_a_checkpoint_goes_on_with_blocks_of_its_own_sizes",
    ),
    "positions are dropped that a later span asks for": Mutant(
        "inference/stream.py",
        "            while high <= first and",
        "            if high <= first and",
        "inference/test_streams.py::test_pruning_leaves_what_a_look_at_every_pair_would_leave",
    ),
    "a cube is computed as a square where programs run in NumPy": Mutant(
        "numerics/numpy_programs.py", "3: lambda x: x * x * x", "3: lambda x: x * x", PROGRAMS
    ),
    "a guide to sums takes a cell's first value for its only one": Mutant(
        "numerics/inversion.py",
        "self._only = np.where(self._first == self._last, self._first, -1)",
        "self._only = self._first",
        "numerics/test_inversion.py",
    ),
    "a value whose sum is just passed is taken": Mutant(
        "numerics/inversion.py",
        "(low < high) & (self._sums[middle, law] <= uniform)",
        "(low < high) & (self._sums[middle, law] < uniform)",
        "numerics/test_inversion.py",
    ),
    "computations for the processor are made in single precision": Mutant(
        "numerics/precision.py",
        "with jax.enable_x64(True), jax.default_device",
        "with jax.enable_x64(False), jax.default_device",
        "model/test_laws.py",
    ),
    "a value that depends on a parameter through two steps counts as constant": Mutant(
        "numerics/tracing.py",
        "            moving.update(id(variable) for variable in step.outvars)",
        "            moving.update(id(variable) for variable in step.outvars if variable in program.outvars)",
        "model/test_coordinates.py::test_atoms_that_move_with_a_parameter_are_never_conditioned_on model/test_laws.py",
    ),
}

DIAGNOSTICS = {
    "the most surprising statistic speaks for the release": Mutant(
        "diagnostics/surprise.py",
        'name = "release" if "release" in tails else next(iter(tails))',
        "name = min(tails, key=lambda each: tails[each])",
        "diagnostics/test_surprise.py",
    ),
    "a chain's draws are worth as many as if they were independent": Mutant(
        "diagnostics/chains.py",
        "return np.where(total > 0.0, chains * length / time, np.nan)",
        "return np.where(total > 0.0, chains * length + 0.0 * time, np.nan)",
        f"{CHAINS}::test_effective_size_is_that_of_the_process",
    ),
    "R-hat looks at location alone, not at spread": Mutant(
        "diagnostics/chains.py", "for values in (x, folded)])", "for values in (x, x)])", CHAINS
    ),
    "an island's worth forgets how many islands there are": Mutant(
        "diagnostics/chains.py",
        "np.where(total > 0.0, islands * total / between, np.nan)",
        "np.where(total > 0.0, total / between, np.nan)",
        f"{CHAINS}::test_islands_are_judged_by_their_means",
    ),
    "tails are measured from zero, not from the median": Mutant(
        "diagnostics/tails.py", "distances = np.abs(flat - np.median(flat, axis=0))", "distances = np.abs(flat)", TAILS
    ),
    "the interval of a proportion has no width where nothing was seen": Mutant(
        "diagnostics/proportions.py",
        "middle = share + z * z / (2.0 * size)",
        "middle = share",
        "diagnostics/test_proportions.py",
    ),
    "the test of uniformity counts one tail as if it were two": Mutant(
        "diagnostics/uniformity.py",
        "np.minimum(1.0, 2.0 * np.minimum(below, above))",
        "np.minimum(1.0, np.minimum(below, above))",
        "studies/test_calibrate.py",
    ),
    "the law of the smallest tail forgets the last step of the Poisson process": Mutant(
        "diagnostics/uniformity.py",
        "for low, high in zip([*lows, size], [*highs, size], strict=True):",
        "for low, high in zip(lows, highs, strict=True):",
        "studies/test_calibrate.py",
    ),
    "the error of the evidence grows with the square root of N": Mutant(
        "diagnostics/weights.py",
        "max(size * squares / total**2 - 1.0, 0.0) / (size - 1))",
        "max(size * squares / total**2 - 1.0, 0.0))",
        f"{WEIGHTS}::test_sums_are_those_of_plain_arithmetic",
    ),
    "resampling takes its points at the ends of the intervals, without chance": Mutant(
        "diagnostics/weights.py",
        "points = (rng.random() + np.arange(size)) / size",
        "points = (0.0 + np.arange(size)) / size",
        f"{WEIGHTS}::test_systematic_resampling_is_unbiased",
    ),
    "the error of a weighted mean uses the weights, not their squares": Mutant(
        "diagnostics/weights.py",
        "return np.sqrt(np.tensordot(weights**2, (values - mean) ** 2, axes=1))",
        "return np.sqrt(np.tensordot(weights, (values - mean) ** 2, axes=1) / len(weights))",
        f"{WEIGHTS}::test_the_error_of_a_weighted_mean_is_the_spread_between_samples",
    ),
    "weighted quantiles are taken in the order of the draws": Mutant(
        "diagnostics/weights.py",
        'order = np.argsort(flat[:, column], kind="stable")\n        cumulative = np.cumsum(weights[order])',
        'order = np.argsort(flat[:, column], kind="stable")\n        cumulative = np.cumsum(weights)',
        f"{WEIGHTS} results/test_posterior.py",
    ),
}

STREAMS = {
    "a block's key is made of stream plus block": Mutant(
        "inference/stream.py",
        "key = randomness.key(seed, purpose, self.index, first)",
        "key = randomness.key(seed, purpose, self.index + first)",
        "inference/test_randomness.py::test_no_sampler_uses_a_key_twice",
    ),
    "two purposes share their random numbers": Mutant(
        "inference/randomness.py", "WARMUP = (3,)", "WARMUP = (4, 0)", "inference/test_randomness.py"
    ),
    "every index of a purpose has the same random numbers": Mutant(
        "inference/randomness.py", "spawn_key=(*prefix, *index))", "spawn_key=prefix)", "inference/test_randomness.py"
    ),
    "rows of a child stream are used twice": Mutant(
        "inference/stream.py",
        "self._ready.appendleft({name: column[missing:] for name, column in piece.items()})",
        "self._ready.appendleft({name: column[missing - 1 :] for name, column in piece.items()})",
        "inference/test_streams.py::test_each_child_row_is_used_once",
    ),
    "proposals after the last accepted draw are left out of the evidence's count by one": Mutant(
        "inference/stream.py",
        "return self.start_of(block) + int(positions[survivors - 1 - first]) + 1",
        "return self.start_of(block) + int(positions[survivors - 1 - first])",
        "inference/test_streams.py::test_proposals_are_counted_up_to_and_with_the_last_survivor",
    ),
}

RECORD_STEPS = {
    "records are accepted whatever the noise says": Mutant(
        "inference/record_steps.py",
        "accept = there & ((log_u < ratio) | (weight == -jnp.inf))",
        "accept = there",
        f"{RECORDS}::test_total_of_bits_is_exact",
    ),
    "sums that share records are accepted one by one": Mutant(
        "inference/record_steps.py",
        "return shape if apart and density.shape == shape else ()",
        "return shape if density.shape == shape else ()",
        f"{RECORDS}::test_records_that_sums_share_are_accepted_as_a_whole",
    ),
    "an operation that is not known counts as acting entry by entry": Mutant(
        "numerics/tracing.py",
        "        elif step.primitive.name in ENTRYWISE:\n",
        "        elif step.primitive.name:\n",
        f"{RECORDS}::test_records_that_sums_share_are_accepted_as_a_whole",
    ),
    "renewing one record forgets to take the old contribution away": Mutant(
        "inference/record_steps.py",
        "for x in (proposed - old, chance[0], present))",
        "for x in (proposed, chance[0], present))",
        f"{RECORDS}::test_total_of_bits_is_exact {RECORDS}::test_a_normal_total_is_exact",
    ),
    "the window of the number of records begins one too high": Mutant(
        "inference/record_steps.py",
        "numbers = size - offset + jnp.arange(self.window)",
        "numbers = size - offset + 1 + jnp.arange(self.window)",
        f"{RECORDS}::test_two_clamped_sums_over_an_unknown_number_of_records_are_exact "
        f"{RECORDS}::test_the_joint_law_of_parameters_records_and_release_is_kept",
    ),
    "no record at all is impossible": Mutant(
        "inference/record_steps.py",
        "weight = jnp.where(numbers >= 0, weigh",
        "weight = jnp.where(numbers > 0, weigh",
        "samplers/test_kernels.py::test_the_number_of_records_stays_as_it_was_also_at_none",
    ),
    "the joint density of records counts those that are absent": Mutant(
        "inference/record_steps.py",
        "return jnp.sum(jnp.where(present, jax.vmap(of_record)(records), 0.0))",
        "return jnp.sum(jax.vmap(of_record)(records))",
        f"{RECORDS}::test_the_records_log_density_counts_those_present",
    ),
    "the floor of acceptance is exp(-epsilon) whatever the neighbours": Mutant(
        "inference/record_steps.py",
        'steps = 1.0 if guarantee.neighbours == "replace-one" else 2.0',
        "steps = 1.0",
        f"{RECORDS}::test_acceptance_never_falls_below_the_bound_of_pure_privacy "
        f"{RECORDS}::test_bound_and_least_acceptance_are_among_the_diagnostics",
    ),
    "the densities of two releases are averaged, not added": Mutant(
        "inference/problem.py",
        "by_row: Array = functools.reduce(np.add, entries.T)",
        "by_row: Array = functools.reduce(np.add, entries.T) / entries.shape[1]",
        "inference/test_problem.py",
    ),
    "what is measured of rows of a statistic is measured of its first row": Mutant(
        "inference/measured.py",
        "self.matrix.times_rows(values.reshape(len(values), -1))",
        "self.matrix.times_rows(values.reshape(len(values), -1)[:1].repeat(len(values), 0))",
        "samplers/test_lattice.py::test_parameters_and_cells_against_enumeration",
    ),
    "the supremum of a vector is that of its first entry": Mutant(
        "inference/problem.py",
        "float(np.sum(item.mechanism.log_sup(item.value)))",
        "float(np.ravel(item.mechanism.log_sup(item.value))[0])",
        "inference/test_problem.py",
    ),
}

CONDITIONAL = {
    "draws of a confidential value share their random numbers between sites": Mutant(
        "inference/confidential.py",
        "keys = jax.random.split(draw, max(len(sites), 1))",
        "keys = [draw] * max(len(sites), 1)",
        "inference/test_privatised.py::test_confidential_values_of_two_sites_are_independent_given_the_parameters",
    ),
    "the density of a vector is that of its first entry": Mutant(
        "inference/privatised.py",
        "return jnp.sum(log_density, axis=tuple(range(-self.event_dim, 0))) if self.event_dim else log_density",
        "return jnp.max(log_density, axis=tuple(range(-self.event_dim, 0))) if self.event_dim else log_density",
        "inference/test_privatised.py::test_shapes_are_those_of_numpyro "
        "inference/test_privatised.py::test_in_a_model_under_a_plate",
    ),
    "without noise the marginal has a share beyond": Mutant(
        "inference/conditional/entry.py",
        "    return Marginal(log_kept, jnp.full(jnp.shape(log_kept), -jnp.inf))",
        "    return Marginal(log_kept, jnp.full(jnp.shape(log_kept), 0.0))",
        f"{ENTRY}::test_without_noise_the_marginal_is_the_law {ENTRY}::test_quadrature_is_the_closed_form_in_any_unit",
    ),
    "ratios of a law that rise beyond a window are taken for those at its end": Mutant(
        "inference/conditional/enumeration.py",
        "return jnp.maximum(near + digits * (1.0 + jnp.abs(near) + jnp.abs(others)), far)",
        "return near + digits * (1.0 + jnp.abs(near) + jnp.abs(others))",
        f"{ENTRY}::test_short_windows_of_negative_binomial_laws_say_what_they_leave_out",
    ),
    "what lies about a release beyond the window is left out of the bound": Mutant(
        "inference/conditional/enumeration.py",
        "return jnp.where(off, jnp.logaddexp(tails + at_cut, farther + sup), tails + at_cut)",
        "return tails + at_cut",
        f"{ENTRY}::test_a_hill_at_a_release_beyond_the_window_is_within_the_bound",
    ),
    "what lies far beyond a window is bounded by nothing but the law's whole mass": Mutant(
        "inference/conditional/enumeration.py",
        "bound = jnp.minimum(bound, jnp.logaddexp(*jnp.where(more, series, -jnp.inf)))",
        "bound = bound",
        f"{ENTRY}::test_a_release_is_never_more_likely_under_a_law_far_away",
    ),
    "the ratio of a beta-binomial law lacks one factor": Mutant(
        "inference/conditional/neighbours.py",
        "jnp.log(law.concentration1 + k) - jnp.log(k + 1.0),",
        "jnp.log(1.0 + k) - jnp.log(k + 1.0),",
        f"{ENTRY}::test_a_release_is_never_more_likely_under_a_law_far_away",
    ),
    "the zeros of a zero-inflated law get no noise": Mutant(
        "inference/conditional/enumeration.py",
        "    at_zero = log_zero + mechanism.log_prob(released, jnp.zeros_like(log_kept))",
        "    at_zero = log_zero + mechanism.log_sup(released)",
        f"{ENTRY}::test_zeros_apart_are_summed_apart",
    ),
    "the information of very many rows lacks the spread of their scores": Mutant(
        "inference/conditional/rows.py",
        "return RowMoments(logs, score, complete - variance, complete)",
        "return RowMoments(logs, score, complete, complete)",
        f"{ROWS}::test_derivatives_are_those_of_the_likelihood",
    ),
    "an attribute that bends in the parameters is taken for straight": Mutant(
        "inference/conditional/rows.py",
        "return score, -(folded(second) + bend), folded(spread)",
        "return score, -folded(second), folded(spread)",
        f"{ROWS}::test_derivatives_of_laws_that_bend",
    ),
    "the second derivative of a row's likelihood forgets one attribute": Mutant(
        "inference/conditional/row_programs.py",
        "second = [jax.jvp(partial(slope, a=a), (at,), (units[b],))[1] for a, b in pairs_of(len(units))]",
        "second = [jax.jvp(partial(slope, a=a), (at,), (units[a],))[1] for a, b in pairs_of(len(units))]",
        f"{ROWS}::test_derivatives_are_those_of_the_likelihood",
    ),
    "a window of very many rows ends where the integrand still counts": Mutant(
        "inference/conditional/row_panels.py",
        "is_high = logs >= top - DEEP",
        "is_high = logs >= top - 0.1 * DEEP",
        f"{ROWS}::test_the_likelihood_of_every_row_is_its_integral",
    ),
    "panels serve wherever the laws of the rows have moved to": Mutant(
        "inference/conditional/row_blocks.py",
        "return bool(shift <= STILL and",
        "return bool(shift < np.inf or",
        f"{ROWS}::test_panels_are_kept_while_the_law_hardly_moves",
    ),
    "a chart of positive numbers lacks its Jacobian": Mutant(
        "inference/conditional/charts.py",
        'return t if chart == "positive" else',
        'return 0.0 * t if chart == "positive" else',
        f"{ROWS}::test_the_likelihood_of_every_row_is_its_integral",
    ),
    "a conditional count is drawn one too high": Mutant(
        "inference/conditional/enumeration.py",
        "index = jnp.minimum(jnp.sum(passed <= uniform * passed[-1], axis=0), len(passed) - 1)",
        "index = jnp.minimum(jnp.sum(passed <= uniform * passed[-1], axis=0) + 1, len(passed) - 1)",
        "inference/test_privatised.py::test_confidential_counts_have_their_conditional_law "
        f"{ENTRY}::test_draws_by_quadrature_have_the_law",
    ),
    "the pole of a beta law at one is not looked for": Mutant(
        "inference/conditional/landmarks.py",
        "return [(0.0, DEEP, first), (first / total, spread, 1.0), (1.0, DEEP, second)]",
        "return [(0.0, DEEP, first), (first / total, spread, 1.0)]",
        f"{ENTRY}::test_a_pole_at_one_is_the_mirror_image_of_a_pole_at_zero",
    ),
    "bounds of a law of whole numbers are those of the real line": Mutant(
        "model/masses.py",
        "low, high = declared_ends(law.support)",
        "low, high = declared_ends(law.support)[0], jnp.inf",
        "samplers/test_nuts.py::test_affine_tables_give_the_law "
        "samplers/test_nuts.py::test_compositions_are_all_tables",
    ),
    "an end of a support that moves is taken for zero": Mutant(
        "inference/conditional/laws.py",
        "np.full(shape, -np.inf) if low is None else low,",
        "np.zeros(shape) if low is None else low,",
        "inference/test_conditional_laws.py::test_facts_that_hold_for_all_parameters",
    ),
    "a table's cells are drawn without regard to what is left for the others": Mutant(
        "inference/conditional/cells_of_total.py",
        "before[np.where(inside, index, 0)], 0.0) * share",
        "1.0, 0.0) * share",
        CELLS,
    ),
    "a cell's weight lacks the ways in which its people can be chosen": Mutant(
        "inference/conditional/cells_of_total.py",
        "_rising(shape, count) - log_factorial",
        "_rising(shape, count)",
        CELLS,
    ),
    "the evidence of a table keeps its tilt": Mutant(
        "inference/conditional/cells_of_total.py",
        "constant - tilt * total",
        "constant",
        CELLS,
    ),
    "shares given a table forget their prior": Mutant(
        "model/layers.py",
        '(layer["concentration"] + statistic,)',
        "(1.0 + statistic,)",
        CELLS,
    ),
    "nothing is said to be missing from a window": Mutant(
        "inference/conditional/marginal.py",
        "jnp.exp(self.log_beyond - self.log_bound), 0.0)",
        "jnp.zeros_like(self.log_bound), 0.0)",
        f"{ENTRY}::test_a_window_that_is_too_short_says_so",
    ),
    "the beta function has one too many in its denominator": Mutant(
        "numerics/gamma.py",
        "return log_gamma(less) - log_rising(xp.maximum(a, b), less)",
        "return log_gamma(less) - log_rising(xp.maximum(a, b), less + 1.0)",
        f"{ENTRY}::test_quadrature_is_the_integral",
        long=True,
    ),
    "a ratio of gamma functions lacks half a step": Mutant(
        "numerics/gamma.py",
        "return (c - 0.5) * growth",
        "return c * growth",
        "model/test_masses.py::test_negative_binomial_laws_keep_their_digits",
    ),
    "a negative binomial law is a difference of log gammas": Mutant(
        "model/masses.py",
        "log_count = log_rising(law.concentration, k) - log_gamma(k + 1.0)",
        "log_count = log_gamma(law.concentration + k) - log_gamma(law.concentration) - log_gamma(k + 1.0)",
        "model/test_masses.py::test_rates_known_to_many_digits_give_the_law_of_a_known_rate",
    ),
    "a geometric law calls zero impossible where it is certain": Mutant(
        "model/masses.py",
        "OWN = (GammaPoisson, BetaBinomial, GeometricProbs)",
        "OWN = (GammaPoisson, BetaBinomial)",
        "model/test_masses.py::test_probabilities_of_one_keep_their_mass",
    ),
    "nothing follows a term of zero, whatever the ratio": Mutant(
        "inference/conditional/enumeration.py",
        "return jnp.where(falls, last + safe - jnp.log(-jnp.expm1(safe)), jnp.inf)",
        "return jnp.where(falls | (last == -jnp.inf), last + safe - jnp.log(-jnp.expm1(safe)), jnp.inf)",
        "model/test_masses.py::test_a_law_that_is_a_point_leaves_its_mass_below_the_window",
    ),
    "a table is read off whatever law comes first": Mutant(
        "inference/conditional/sums.py",
        "if np.all(np.isfinite(log_law[inside])):",
        "if True:",
        "model/test_masses.py::test_tables_are_read_off_a_law_that_is_no_point",
    ),
    "Stirling's series has a wrong term": Mutant(
        "numerics/gamma.py",
        "1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0)",
        "1.0 / 1260.0, -1.0 / 36.0, 1.0 / 12.0)",
        f"{ENTRY}::test_windows_hold_the_sum",
    ),
    "the sides of noise drawn in JAX are of unequal chance": Mutant(
        "inference/conditional/noise.py",
        "jax.random.bernoulli(second, shape=shape)",
        "jax.random.bernoulli(second, 0.55, shape=shape)",
        "inference/test_privatised.py::test_noise_drawn_in_jax_has_the_law_of_the_mechanism",
    ),
    "the conditional of a normal under Laplace noise picks the side evenly": Mutant(
        "inference/conditional/normal.py",
        "side = np.where(rng.random(mu.shape) < 1.0 / (1.0 + np.exp(np.minimum(above - below, 700.0))), -1.0, 1.0)",
        "side = np.where(rng.random(mu.shape) < 0.5, -1.0, 1.0)",
        f"{NORMAL}::test_draws_are_of_the_conditional_law",
    ),
    "what lies above the bounds of clamping is left out": Mutant(
        "inference/conditional/normal.py",
        "return xp.logaddexp(xp.logaddexp(below, left), xp.logaddexp(right, above))",
        "return xp.logaddexp(xp.logaddexp(below, left), right)",
        "inference/test_conditional_clamped.py::test_the_marginal_density_is_the_integral",
    ),
    "the component of a mixture is drawn by its share, whatever the release": Mutant(
        "inference/conditional/normal_mixture.py",
        "passed = jnp.cumsum(jax.nn.softmax(logs, axis=-1), axis=-1)",
        "passed = jnp.cumsum(0 * logs + jnp.exp(jax.nn.log_softmax(law.mixing_distribution.logits)), axis=-1)",
        "inference/test_normal_mixture.py::test_draws_have_the_conditional_law",
    ),
    "the components of a mixture count alike": Mutant(
        "inference/conditional/normal_mixture.py",
        "log_shares + marginals, -jnp.inf)",
        "marginals, -jnp.inf)",
        "inference/test_normal_mixture.py::test_the_marginal_density_is_the_integral",
    ),
    "draws between bounds are measured from the wrong end": Mutant(
        "inference/conditional/normal.py",
        "return jnp.where(down, high, low), jnp.where(down, -spread, spread), alpha, share",
        "return jnp.where(down, low, high), jnp.where(down, spread, -spread), alpha, share",
        "inference/test_conditional_clamped.py::test_draws_are_quantiles",
    ),
    "noise that does not fall is taken to have fallen": Mutant(
        "inference/conditional/landmarks.py",
        "if isinstance(mechanism, (Clipped, Thresholded)):",
        "if False:",
        "inference/test_conditional_clamped.py::test_a_heavy_law_under_noise_that_does_not_fall",
    ),
    "a normal statistic given its measurements is drawn without fresh noise": Mutant(
        "inference/conditional/measured_normal.py",
        "off = r - self.matrix @ s - scale * fresh[1]",
        "off = r - self.matrix @ s",
        "samplers/test_lattice.py::test_a_continuous_statistic_measured_twice_has_its_closed_form",
    ),
    "the conditional of a normal under Gaussian noise has the law's own spread": Mutant(
        "inference/conditional/normal.py",
        "(value - mu) + share * scale * rng",
        "(value - mu) + sigma * rng",
        f"{NORMAL}::test_draws_are_of_the_conditional_law "
        f"{NORMAL}::test_gaussian_noise_gives_the_normal_law_everybody_knows",
    ),
    "quadrature leaves out the Jacobian of its panels": Mutant(
        "inference/conditional/quadrature.py",
        "jnp.abs(self.width) * self.power * base",
        "jnp.abs(self.width) * self.power",
        f"{ENTRY}::test_quadrature_is_the_integral",
    ),
    "panels that run leftwards are inverted as if they ran rightwards": Mutant(
        "inference/conditional/quadrature.py",
        "inside = jnp.where(panel.width < 0.0, mass - (wanted - before), wanted - before)",
        "inside = wanted - before",
        f"{ENTRY}::test_draws_by_quadrature_have_the_law",
        long=True,
    ),
    "what lies outside a window of a sum is neglected": Mutant(
        "inference/conditional/sums.py",
        'return jnp.sum(jnp.logaddexp(held, self._log_beyond(inside, tables["outside"])))',
        "return jnp.sum(held)",
        "samplers/test_nuts.py::test_bound_covers_what_a_window_leaves_out",
    ),
    "runs of a sum by powers begin where the first does": Mutant(
        "inference/conditional/powers.py",
        "log_unit = _of_the_end(tilt, powers.log_top) - start * tilt.steep",
        "log_unit = _of_the_end(tilt, powers.log_top) - 0.0 * start * tilt.steep",
        "inference/test_sums.py::test_a_sum_by_powers_is_the_sum",
    ),
    "powers are counted from the low end, whichever way the law is tilted": Mutant(
        "inference/conditional/powers.py",
        "    return jnp.where(tilt.down, pair[1], pair[0])",
        "    return pair[0]",
        "inference/test_sums.py::test_a_sum_by_powers_is_the_sum",
    ),
    "a sum whose digits are lost counts as nothing": Mutant(
        "inference/conditional/powers.py",
        "log_lost = math.log(lost) if lost else -jnp.inf",
        "log_lost = -jnp.inf",
        "inference/test_sums.py::test_a_sum_whose_digits_are_lost_is_bounded_and_said_to_be",
    ),
    "a draw from a sum by powers is the run before": Mutant(
        "inference/conditional/powers.py",
        "run = jnp.minimum(jnp.sum(passed <= uniform * whole, axis=0), len(runs) - 1)",
        "run = jnp.maximum(jnp.sum(passed <= uniform * whole, axis=0) - 1, 0)",
        "inference/test_sums.py::test_a_draw_by_powers_is_the_quantile_of_the_terms",
    ),
    "a draw from a sum by powers takes its place in the run from the whole": Mutant(
        "inference/conditional/powers.py",
        "jnp.sum(totals <= left * in_run, axis=0)",
        "jnp.sum(totals <= uniform * in_run, axis=0)",
        "inference/test_sums.py::test_a_draw_by_powers_is_the_quantile_of_the_terms",
    ),
    "a draw looked up is the term before": Mutant(
        "inference/conditional/powers.py",
        "passed[at * len(zero) + which] <= target",
        "passed[at * len(zero) + which] < target - 0.1 * target",
        "inference/test_sums.py::test_a_draw_looked_up_is_the_quantile_of_its_column",
    ),
    "a draw looked up is that of another entry's column": Mutant(
        "inference/conditional/sums.py",
        '"which": which.astype(np.int32)',
        '"which": which[::-1].astype(np.int32)',
        "inference/test_one_law_for_all.py::test_what_was_released_often_is_drawn_from_one_table",
    ),
    "a row weighed as it is drawn forgets what may lie beyond its window": Mutant(
        "inference/conditional/sums.py",
        "        bound = jnp.logaddexp(held, beyond)\n",
        "        bound = held\n",
        "inference/test_sums.py::test_one_program_weighs_as_the_terms_in_logs_do",
    ),
    "a draw from a sum's terms is the one before": Mutant(
        "inference/conditional/marginal.py",
        "return jnp.sum(sums <= uniform * sums[-1], axis=0)",
        "return jnp.sum(sums <= uniform * (sums[-1] - weights), axis=0)",
        "inference/test_sums.py::test_a_draw_from_terms_is_their_quantile",
    ),
    "the gradient of a tilted sum takes both ends alike": Mutant(
        "inference/conditional/sums.py",
        "cotangent * (1.0 - mean), cotangent * mean",
        "cotangent * mean, cotangent * mean",
        "samplers/test_nuts.py::test_the_gradient_of_a_tilted_sum_is_that_of_the_sum_itself",
    ),
    "the marginal of several entries is that of the likeliest": Mutant(
        "inference/conditional/integrals.py",
        "return jnp.sum(marginal.log_bound if self.bounded else marginal.log_kept)",
        "return jnp.max(marginal.log_bound if self.bounded else marginal.log_kept)",
        f"{ENTRY}::test_the_marginal_of_a_statistic_is_the_product_over_its_entries",
    ),
    "a statistic that is sampled loses its noise": Mutant(
        "inference/conditional/target.py",
        "                total = total + jnp.sum(log_eta(item, name, values))",
        "                total = total + 0.0 * jnp.sum(log_eta(item, name, values))",
        "samplers/test_nuts.py::test_positive_statistic_is_sampled_exactly",
    ),
    "noise beyond a window is taken for nothing": Mutant(
        "inference/conditional/windows.py",
        "outside = np.maximum(np.where(start > low, left, -np.inf), np.where(end < high, right, -np.inf)) - sup",
        "outside = np.full(shape, -np.inf) + 0.0 * (left + right + sup)",
        "samplers/test_nuts.py::test_bound_covers_what_a_window_leaves_out "
        "samplers/test_nuts.py::test_windows_far_from_what_is_likely_are_noticed",
        long=True,
    ),
    "the slope of a sum by ratios lacks the term of its own ratio": Mutant(
        "inference/conditional/ratios.py",
        "ratio * (total + by_x), by_c), None",
        "ratio * by_x, by_c), None",
        f"{RATIOS}::test_value_and_slope_are_those_of_the_sum",
    ),
    "windows that follow are those of the first entries": Mutant(
        "inference/conditional/ratios.py",
        'flat(jnp.broadcast_to(one, shape)).at[index].get(mode="clip")',
        'flat(jnp.broadcast_to(one, shape)).at[jnp.arange(len(index))].get(mode="clip")',
        f"{RATIOS}::test_entries_that_leave_the_table_are_done_again_whatever_their_number",
    ),
    "a table of the noise is trusted wherever the parameters are": Mutant(
        "inference/conditional/ratios.py",
        "jnp.isfinite(value) & (beyond - value < np.log(NEGLIGIBLE))",
        "jnp.isfinite(value) & (beyond == beyond)",
        f"{RATIOS}::test_the_table_serves_near_the_release_and_says_where_it_does_not",
    ),
    "the slope of a sum for all entries is that of the law's mass": Mutant(
        "inference/conditional/ratios.py",
        "jnp.stack([pi, *(pi * change for change in changes)])",
        "jnp.stack([pi, *(pi * jnp.mean(change) for change in changes)])",
        f"{RATIOS}::test_value_and_slope_are_those_of_the_sum",
    ),
    "digits lost by a sum for all entries are not noticed": Mutant(
        "inference/conditional/ratios.py",
        "total > kinds.tiny / kinds.eps",
        "total >= 0.0",
        f"{RATIOS}::test_few_digits_left_of_an_entry_far_from_the_others_are_noticed",
    ),
    "PyMC is told the gradient of another parameter": Mutant(
        "pymc.py",
        "[above * slope for slope in self(*inputs)[1:]]",
        "[above * slope for slope in self(*inputs)[:-1]]",
        "test_pymc.py::test_density_and_gradient_are_those_of_numpyro",
    ),
}

TREES_AND_PLACES = {
    "of a known child below its window nothing is said": Mutant(
        "inference/conditional/trees.py",
        "+ below * jnp.exp(ceilings[0])",
        "+ 0.0 * below * jnp.exp(ceilings[0])",
        BEYOND,
    ),
    "a count taken from a larger one goes no farther than the window allows": Mutant(
        "inference/conditional/trees.py",
        "_ceiling(log_eta, own + node.above, own) - own",
        "_ceiling(log_eta, own + node.outside, own) - own",
        BEYOND,
    ),
    "the ceiling of the noise is that of smaller values": Mutant(
        "inference/conditional/trees.py",
        "np.maximum.accumulate(log_eta[::-1], axis=0)[::-1]",
        "np.maximum.accumulate(log_eta, axis=0)",
        BEYOND,
    ),
    "what a child's windows leave out is not missed": Mutant(
        "inference/conditional/trees.py",
        "missing[node.parent.name] = missing[node.parent.name] + _gathered(lost, node.reads, over)",
        "missing[node.parent.name] = missing[node.parent.name] + 0.0 * _gathered(lost, node.reads, over)",
        BEYOND,
    ),
    "the second child's message replaces the first's": Mutant(
        "inference/conditional/trees.py",
        "log_up[node.parent.name] = log_up[node.parent.name] + _gathered(message, node.reads, over)",
        "log_up[node.parent.name] = _gathered(message, node.reads, over)",
        EACH,
    ),
    "a message goes to the entry of its own number": Mutant(
        "inference/conditional/trees.py",
        "jax.ops.segment_sum(columns.T, reads, num_segments=over).T",
        "jax.ops.segment_sum(columns.T, np.arange(len(reads)) % over, num_segments=over).T",
        EACH,
    ),
    "a child is drawn given the first value of its parent's window": Mutant(
        "inference/conditional/trees.py",
        "given = {**values, node.parent.name: drawn[node.parent.name]}",
        'given = {**values, node.parent.name: tables["values"][node.parent.name][0]}',
        EACH,
    ),
    "laws are asked beyond the support of what they read": Mutant(
        "inference/conditional/tree_nodes.py",
        "return np.clip(self.start + np.arange(self.size)[:, None], *self.ends).astype(int)",
        "return (self.start + np.arange(self.size)[:, None]).astype(int)",
        EACH,
    ),
    "a product too small for a number is nothing": Mutant(
        "inference/conditional/trees.py",
        "if self.whole:  # no bound",
        "if False:  # no bound",
        f"{TREES}::test_products_too_small_for_a_number_are_kept_or_said",
    ),
    "an entry reads the first of two places": Mutant(
        "numerics/places.py",
        "return both if all(np.all((one == both) | (one == NOTHING)) for one in places) else UNKNOWN",
        "return both",
        PLACES,
    ),
    "rows of a table of their own count as one": Mutant(
        "numerics/places.py",
        "all(given[1:]) and not numbers.operand_batching_dims:",
        "all(given[1:]):",
        PLACES,
    ),
    "what is beyond the end reads as what is there": Mutant(
        "numerics/places.py",
        'step.params["mode"] in (GatherScatterMode.CLIP, GatherScatterMode.PROMISE_IN_BOUNDS)',
        "True",
        PLACES,
    ),
    "any constant counts as even": Mutant(
        "numerics/places.py",
        "flags[variable] = _is_even(constant)",
        "flags[variable] = True",
        PLACES,
    ),
}
