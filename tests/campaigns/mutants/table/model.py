"""Mistakes in laws, totals, supports, coordinates and variates, on the processor and on an accelerator."""

from mutant import Mutant

DRAWS = "model/test_variates.py"
CONTINUOUS = f"{DRAWS}::test_continuous_draws_follow_the_density"
DISCRETE = f"{DRAWS}::test_discrete_draws_follow_the_probabilities"
VECTORS = f"{DRAWS}::test_vector_draws_follow_the_density"
TOTALS = "model/test_model.py::test_total_moments_with_two_fields_and_unknown_n"
CHUNKS = "model/test_model.py::test_totals_in_chunks_have_every_record_once"
LAWS = "model/test_laws.py"
THERE = "model/test_on_device.py"
OWN = f"{THERE}::test_names_and_records_have_random_numbers_of_their_own"
LAW = f"{THERE}::test_every_law_is_drawn_as_on_the_processor"

LAYERS = "model/test_layers.py"
SUMS = "model/test_known_sums.py"
SQUARES = f"{SUMS}::test_sum_and_sum_of_squares_are_normal_and_chi_square"
BOOKS = f"{SUMS}::test_sums_of_bits_counts_and_times_have_the_laws_of_the_books"
RECORDS = "model/test_records.py"
PAIRS = "numerics/test_normal_pairs.py"
ADDED = "numerics/test_record_sums.py::test_sums_are_those_of_jax"

KNOWN_TOTALS = {
    "on an accelerator, a scatter has as many degrees of freedom as records": Mutant(
        "model/on_device/sums.py",
        "left = jnp.maximum(n[:, None] - 1 - jnp.arange(size), 0)",
        "left = jnp.maximum(n[:, None] - jnp.arange(size), 0)",
        f"{THERE}::test_sums_by_their_own_law_are_drawn_as_on_the_processor",
    ),
    "rows of few records are added as the long ones are": Mutant(
        "model/total.py",
        "total[part] = self.simulated(rng, own, n[part], poll)",
        "total[part] = self.simulated(rng, own, np.full(part.sum(), n.max()), poll)",
        "model/test_model.py::test_rows_of_few_records_are_added_by_themselves",
    ),
    "a field of a record counts as known": Mutant(
        "model/sums/summand.py",
        "[1.0] * len(moving) + [0.0] * len(known)",
        "[0.0] * len(moving) + [1.0] * len(known)",
        f"{SUMS}::test_what_is_not_known_is_simulated",
    ),
    "a scatter has as many degrees of freedom as records": Mutant(
        "model/sums/scattered.py",
        "scatter_root(rng, n - 1, self.numbers)",
        "scatter_root(rng, n, self.numbers)",
        SQUARES,
    ),
    "a scatter of lower rank has columns left over": Mutant(
        "model/sums/scattered.py",
        "return root * (left > 0)[:, None, :]",
        "return root",
        f"{SUMS}::test_the_scatter_is_wishart_below_full_rank_too",
    ),
    "a sum's spread is that of a mean": Mutant(
        "model/sums/added.py",
        '"scale": n**0.5 * law["scale"]',
        '"scale": n**-0.5 * law["scale"]',
        BOOKS,
    ),
    "the constant of a contribution counts once": Mutant(
        "model/sums/added.py",
        "self.summand.at(values) + (n - 1) * self.summand.at(nothing), 0)",
        "self.summand.at(values), 0)",
        BOOKS,
    ),
    "a place that another field moves has that field's part n times": Mutant(
        "model/sums/added.py",
        "first = first + (wide - 1) * rest",
        "first = wide * first",
        f"{SUMS}::test_it_is_the_law_of_simulated_sums",
    ),
    "categories are taken for independent": Mutant(
        "model/sums/tallied.py",
        "chances = chances * _chance(law, records[field], law.checked(everything, self.work))",
        "chances = chances * _chance(law, records[field][:, ::-1], law.checked(everything, self.work))",
        f"{SUMS}::test_categories_have_the_probabilities_of_all_records_enumerated",
    ),
    "chances of a record may differ where laws add up": Mutant(
        "model/sums/added.py",
        "return all(degree <= (1.0 if name in PLACES else 0.0) for name, degree in degrees.items())",
        "return all(degree <= 1.0 for name, degree in degrees.items())",
        f"{SUMS}::test_what_is_not_known_is_simulated",
    ),
    "products of degree three pass for two": Mutant(
        "numerics/tracing.py",
        'return first * (2 if name == "square" else step.params["y"])',
        "return first * 2",
        f"{SUMS}::test_what_is_not_known_is_simulated",
    ),
    "whole numbers may be divided in a linear way": Mutant(
        "numerics/tracing.py",
        'or (name == "div" and kind == np.float64)',
        'or name == "div"',
        f"{SUMS}::test_what_is_not_known_is_simulated",
    ),
    "a law in two passes is drawn in parts": Mutant(
        "model/records.py",
        "        if not law.form.in_parts:\n",
        "        if law.form.variate is None:\n",
        f"{RECORDS}::test_parts_are_the_same_variates_wherever_the_table_says_so",
    ),
    "parts of rows have the places of the first": Mutant(
        "model/records.py",
        "checked = {name: one if name in law.constant else one[part] for name, one in settled.items()}",
        "checked = {name: one if name in law.constant else one[:rows] for name, one in settled.items()}",
        f"{RECORDS}::test_totals_are_those_of_records_drawn_whole_and_added_by_hand",
    ),
    "memory is used again while it is read": Mutant(
        "numerics/record_sums.py",
        "if when >= number and one in places}",
        "if when > number + 1 and one in places}",
        ADDED,
    ),
    "a sum is not divided by what every record is": Mutant(
        "numerics/record_sums.py", "(lambda summed: summed / number)", "(lambda summed: summed)", ADDED
    ),
    "normal numbers in pairs go round half a turn": Mutant(
        "numerics/normal_pairs.py",
        "subtract(b, 0.5, out=b)  # phi / (2 pi)",
        "multiply(b, 0.5, out=b)",
        f"{PAIRS}::test_numbers_are_normal_and_those_of_a_pair_independent",
    ),
    "the radius of a pair has a square of mean one": Mutant(
        "numerics/normal_pairs.py",
        "multiply(r, math.sqrt(2.0) * scale, out=r)",
        "multiply(r, scale, out=r)",
        f"{PAIRS}::test_numbers_are_normal_and_those_of_a_pair_independent",
    ),
    "the tangent has a digit wrong": Mutant(
        "numerics/normal_pairs.py",
        "0.023344852665793155",
        "0.023344852665893155",
        f"{PAIRS}::test_the_quotient_is_the_tangent_up_to_rounding",
    ),
    "entries that were stacked change places when added up": Mutant(
        "numerics/record_sums.py",
        "np.transpose(summed, axes_left)",
        "np.transpose(summed, axes_left[::-1])",
        ADDED,
    ),
}
LAWS_AND_TOTALS = {
    "the ends of a Gamma prior take its rate for a scale": Mutant(
        "model/prior.py",
        "gammaincinv(float(law.concentration), share) / float(law.rate)",
        "gammaincinv(float(law.concentration), share) * float(law.rate)",
        "model/test_prior.py::test_ends_are_exact_where_the_distribution_function_has_a_formula",
    ),
    "every block of prior draws is the first": Mutant(
        "model/prior.py",
        "prior_generator(seed, block)",
        "prior_generator(seed, 0)",
        "model/test_prior.py::test_blocks_of_prior_draws_differ",
    ),
    **KNOWN_TOTALS,
    "a rate given its count forgets the exposure": Mutant(
        "model/layers.py",
        "return shape + statistic, rate + slope",
        "return shape + statistic, rate + 1.0",
        f"{LAYERS}::test_bayes_rule_holds_at_any_values",
    ),
    "a mean given its statistic has the prior's variance": Mutant(
        "model/layers.py",
        'layer["scale"] / jnp.sqrt(whole)',
        'layer["scale"]',
        f"{LAYERS}::test_bayes_rule_holds_at_any_values",
    ),
    "layers are drawn from the laws of other rows": Mutant(
        "model/layers.py",
        "return self.pair.draw(rng, *(one[skipped:] for one in self.numbers(columns)))",
        "return self.pair.draw(rng, *(one[::-1][skipped:] for one in self.numbers(columns)))",
        "samplers/test_integrated.py::test_it_is_the_posterior_of_the_model_as_written",
    ),
    "a layer that is read in another order counts as one": Mutant(
        "model/entering.py",
        "moves = name in (IN_PLACE if in_place else FAITHFUL)",
        "moves = name in FAITHFUL",
        f"{LAYERS}::test_what_is_bent_or_out_of_place_stays",
    ),
    "rounding counts as linear": Mutant(
        "model/entering.py",
        'return "bent" if rounded else marked[0]',
        "return marked[0]",
        f"{LAYERS}::test_what_is_bent_or_out_of_place_stays",
    ),
    "derived quantities are those of the first draw": Mutant(
        "model/derived.py",
        "program = Compiled(lambda: jax.vmap(lambda row: jnp.asarray(function(**row))), small=True)",
        "program = Compiled(lambda: lambda rows: jnp.stack([jnp.asarray(first)] * count), small=True)",
        "results/test_derived.py::test_a_difference_and_its_probability_are_those_of_the_closed_form",
    ),
    "a weak law of counts leaves its bound out": Mutant(
        "model/weak.py", "dist.DiscreteUniform(0, most)", "dist.DiscreteUniform(0, most - 1)", "model/test_weak.py"
    ),
    "a site of a function keeps the values of its first run": Mutant(
        "model/from_numpyro.py",
        "lambda values: value_of({**before, **values})",
        "lambda values: value_of({**values, **before})",
        "model/test_from_numpyro.py::test_it_is_the_model_written_by_hand",
    ),
    "a law with an atom at zero counts as one with a density": Mutant(
        "model/atoms.py",
        'return discrete or isinstance(part, Delta) or type(part).__name__.startswith("Hurdle")',
        'return discrete or type(part).__name__.startswith("Hurdle")',
        "model/test_coordinates.py::test_priors_with_atoms_are_refused_by_all_that_compare_densities",
    ),
    "centring shifts by the wrong part of the location": Mutant(
        "model/coordinates.py",
        "AffineTransform(loc * (1.0 - centred * power), power)",
        "AffineTransform(loc * (1.0 - power), power)",
        "model/test_coordinates.py::test_centring_is_between_the_value_and_its_standardised_self",
    ),
    "centring by the scale lacks its Jacobian": Mutant(
        "model/coordinates.py",
        "return jnp.sum(inside), -jnp.sum(self.centred * jnp.log(scale))",
        "return (jnp.sum(inside),)",
        "model/test_coordinates.py::test_centring_moves_coordinates_and_not_the_law",
    ),
    "what is centred is weighed by the value, which rounding has moved onto its location": Mutant(
        "model/coordinates.py",
        "if self.centred is None:",
        "if self.centred is None or True:",
        "model/test_coordinates.py::test_a_scale_below_the_last_digit_of_the_location_leaves_the_density_right",
    ),
    "an atom that moves counts as one that stays": Mutant(
        "model/atoms.py",
        "min(reached, default=len(outer)) < len(outer)",
        "min(reached, default=len(outer)) < 0",
        "model/test_coordinates.py::test_atoms_that_move_with_a_parameter_are_never_conditioned_on",
    ),
    "coordinates of parameters lack their Jacobian": Mutant(
        "model/coordinates.py",
        "return jnp.sum(self.law.log_prob(self.value)), self.log_jacobian",
        "return (jnp.sum(self.law.log_prob(self.value)),)",
        "samplers/test_mcmc.py::test_kernel_passes_gewekes_test "
        "samplers/test_nuts.py::test_positive_statistic_is_sampled_exactly",
    ),
    "a chart of statistics lacks its Jacobian": Mutant(
        "model/coordinates.py",
        "total = total + placed.log_jacobian",
        "total = total + 0.0 * placed.log_jacobian",
        "model/test_coordinates.py::test_a_chart_leads_back_and_its_jacobian_is_that_of_the_map",
    ),
    "a negative binomial law counts as linear with its concentration unknown": Mutant(
        "model/families.py",
        '_NEGATIVE_BINOMIAL = Facts(_GAMMA, discrete=True, statistics=("s",), while_known="concentration")',
        '_NEGATIVE_BINOMIAL = Facts(_GAMMA, discrete=True, statistics=("s",))',
        "model/test_families.py::test_a_count_is_linear_in_any_case_only_where_no_parameter_must_be_known",
    ),
    "Laplace's law has no kink": Mutant(
        "model/families.py",
        '"Laplace": Facts(_LOCATED, kink="loc")',
        '"Laplace": Facts(_LOCATED, smooth=True)',
        "model/test_families.py",
    ),
    "the density of a vector is that of its last entry": Mutant(
        "model/law.py",
        "return jnp.where(inside, jnp.sum(log_prob), -jnp.inf)",
        "return jnp.where(inside, jnp.ravel(log_prob)[-1], -jnp.inf)",
        f"{LAWS}::test_densities_of_entries_multiply",
    ),
    "a value that its law cannot give has a density": Mutant(
        "model/law.py",
        "return jnp.where(inside, jnp.sum(log_prob), -jnp.inf)",
        "return jnp.sum(log_prob)",
        f"{LAWS}::test_what_a_law_cannot_give_has_no_density",
    ),
    "records get the attributes of another row": Mutant(
        "model/law.py",
        "by_row = {name: value[:, None] for name, value in by_row.items()}",
        "by_row = {name: value[::-1, None] for name, value in by_row.items()}",
        f"{DRAWS}::test_records_are_drawn_row_by_row",
    ),
    "blocks of prior draws repeat": Mutant(
        "model/model.py",
        "return np.random.default_rng([seed, block])",
        "return np.random.default_rng([seed, block // 2])",
        "model/test_model.py::test_simulated_rows_never_repeat",
    ),
    "a simulator gets the parameters of another row": Mutant(
        "model/simulator.py",
        "row_arguments = {name: value[row] for name, value in arguments.items()}",
        "row_arguments = {name: value[row - 1] for name, value in arguments.items()}",
        "model/test_model.py::test_every_row_of_a_simulator_has_its_own_parameters",
    ),
    "a number between two whole ones is possible where one of them is": Mutant(
        "model/supports.py",
        "return jnp.all(support(jnp.floor(value)) & support(jnp.ceil(value)))",
        "return jnp.all(support(jnp.floor(value)) | support(jnp.ceil(value)))",
        f"{LAWS}::test_what_a_law_cannot_give_has_no_density",
    ),
    "a table is possible if one of its cells is": Mutant(
        "model/supports.py",
        "        return jnp.all(value >= 0)",
        "        return jnp.any(value >= 0)",
        f"{LAWS}::test_what_a_law_cannot_give_has_no_density",
    ),
    "an interval that is turned round keeps its ends as they were": Mutant(
        "model/supports.py",
        "limits, ends = [jnp.minimum(*moved), jnp.maximum(*moved)], [0.0, 0.0]",
        "limits, ends = moved, [0.0, 0.0]",
        f"{LAWS}::test_ends_of_a_support_follow_a_transform_that_turns_it_round",
    ),
    "702 records are added up for 700": Mutant(
        "model/total.py",
        "v[:, : left[0]] if name in self.laws",
        "v[:, : left[0] + 2] if name in self.laws",
        CHUNKS,
    ),
    "totals in chunks lose the records of the last chunk": Mutant(
        "model/total.py",
        "for start in range(0, int(n.max()), chunk):",
        "for start in range(0, int(n.max()) - chunk + 1, chunk):",
        CHUNKS,
    ),
    "a total of an unknown number of records has one too many": Mutant(
        "model/total.py",
        "np.arange(chunk) < left[:, None]",
        "np.arange(chunk) <= left[:, None]",
        TOTALS,
    ),
    "transforms of a law are applied in the wrong order": Mutant(
        "model/wrappers.py",
        "transforms = [*law.transforms, *transforms]",
        "transforms = [*transforms, *law.transforms]",
        f"{DRAWS}::test_wrapped_laws_entry_by_entry",
    ),
}

VARIATES = {
    "a gamma law is drawn with its rate as a scale": Mutant(
        "model/variates.py",
        "drawn = rng.standard_gamma(concentration, shape, out=out)\n    drawn /= rate",
        "drawn = rng.standard_gamma(concentration, shape, out=out)\n    drawn *= rate",
        CONTINUOUS,
    ),
    "a geometric law counts the success": Mutant(
        "model/variates.py", "return rng.geometric(probs, shape) - 1", "return rng.geometric(probs, shape)", DISCRETE
    ),
    "a truncated normal law is drawn from the wrong tail": Mutant(
        "model/variates.py",
        "flip = np.where(a > 0, -1.0, 1.0)",
        "flip = np.where(a > 0, 1.0, 1.0)",
        f"{LAW}[LeftTruncatedDistribution]",
    ),
    "a Dirichlet law is drawn without the boost of small shares": Mutant(
        "model/variates.py",
        "return softmax(log_gamma - rng.standard_exponential(full) / concentration, axis=-1)",
        "return softmax(log_gamma, axis=-1)",
        VECTORS,
    ),
    "zero inflation has the chance of the other part": Mutant(
        "model/variates.py",
        "return np.where(rng.random(shape) < gate, 0, rng.poisson(rate, shape))",
        "return np.where(rng.random(shape) > gate, 0, rng.poisson(rate, shape))",
        DISCRETE,
    ),
}

POISSON = "engine/test_device.py::test_poisson_variates_follow_their_law_in_64_bits"
GAMMAS = f"{THERE}::test_gamma_variates_follow_their_law_at_every_concentration"
ACCELERATOR = {
    "every record of a total has the same random numbers on an accelerator": Mutant(
        "model/on_device/draws.py",
        "lane = random.fold_in(random.fold_in(key, i), number)",
        "lane = random.fold_in(key, number)",
        "engine/test_device.py::test_rejection_is_exact",
    ),
    "every name of a model has the same random numbers on an accelerator": Mutant(
        "model/on_device/draws.py",
        "        lane = random.fold_in(key, number)\n        if isinstance(node, Law)",
        "        lane = key\n        if isinstance(node, Law)",
        OWN,
    ),
    "records beyond their number count on an accelerator": Mutant(
        "model/on_device/draws.py",
        "keep = (i < n).reshape(",
        "keep = (i <= n).reshape(",
        "engine/test_device.py::test_rejection_is_exact",
    ),
    "small Poisson rates on an accelerator are drawn one too high": Mutant(
        "model/on_device/poisson.py",
        "drawn = drawn + (u >= reached)",
        "drawn = drawn + (u >= 0.99 * reached)",
        POISSON,
    ),
    "whole Poisson rates on an accelerator lose what is below a multiple of 32": Mutant(
        "model/on_device/poisson.py",
        "coarse + fine + rest",
        "coarse + rest",
        POISSON,
    ),
    "an alias table keeps a cell's own value where it should give the other's": Mutant(
        "model/on_device/poisson.py",
        "shares[giver] -= room - shares[cell]",
        "shares[giver] -= shares[cell]",
        f"{THERE}::test_alias_tables_hold_poisson_laws_to_the_last_of_64_bits",
    ),
    "the cell of an alias table and its choice share random bits": Mutant(
        "model/on_device/poisson.py",
        "(word & np.uint64(2**lower - 1))",
        "(word >> (64 - lower))",
        POISSON,
    ),
    "large Poisson rates on an accelerator are accepted by their envelope": Mutant(
        "model/on_device/poisson.py",
        "accepted = ~done & (inside | (~outside & fits))",
        "accepted = ~done & (inside | ~outside)",
        POISSON,
    ),
    "gamma variates on an accelerator are all accepted": Mutant(
        "model/on_device/gamma.py",
        "accepted = inside & (squeezed |",
        "accepted = inside & (True |",
        GAMMAS,
    ),
    "small concentrations of gamma variates on an accelerator are not lifted": Mutant(
        "model/on_device/gamma.py",
        "jnp.where(low, drawn * jnp.exp(-_waiting(lifting, concentration)), drawn)",
        "jnp.where(low, drawn * jnp.exp(-_waiting(lifting, concentration + 1.0)), drawn)",
        GAMMAS,
    ),
    "rows that stay on an accelerator are taken one too late": Mutant(
        "model/on_device/held.py",
        "jnp.clip(number - at + start, 0,",
        "jnp.clip(number - at + start + 1, 0,",
        f"{THERE}::test_columns_that_stay_there_are_cut_and_joined_like_arrays",
    ),
    "rows put after others on an accelerator begin with those before their piece": Mutant(
        "model/on_device/held.py",
        "jnp.where(counted, at + number - start,",
        "jnp.where(counted, at + number,",
        "results/test_draws_that_stay.py::test_a_room_holds_the_rows_of_its_pieces_and_nothing_else",
    ),
    "a Student t law on an accelerator divides by its chi-square's root twice": Mutant(
        "model/on_device/variates.py",
        "jnp.sqrt(0.5 * df / _gamma(second, shape, 0.5 * df))",
        "(0.5 * df / _gamma(second, shape, 0.5 * df))",
        f"{LAW}[StudentT]",
    ),
    "a multinomial law on an accelerator forgets what is left": Mutant(
        "model/on_device/variates.py",
        "share = jnp.where(tails[..., j] > 0, jnp.clip(probs[..., j] / tails[..., j], 0.0, 1.0), 0.0)",
        "share = jnp.where(tails[..., j] > 0, jnp.clip(probs[..., j], 0.0, 1.0), 0.0)",
        f"{LAW}[MultinomialProbs]",
    ),
    "a Weibull law on an accelerator takes its concentration for the exponent": Mutant(
        "model/on_device/variates.py",
        "scale * random.exponential(key, shape, scale.dtype) ** (1.0 / concentration)",
        "scale * random.exponential(key, shape, scale.dtype) ** concentration",
        f"{LAW}[Weibull]",
    ),
    "a negative binomial law on an accelerator takes its rate for a scale": Mutant(
        "model/on_device/variates.py",
        "return poisson(second, _gamma(first, shape, concentration) / rate, shape)",
        "return poisson(second, _gamma(first, shape, concentration) * rate, shape)",
        f"{LAW}[GammaPoisson]",
    ),
}
