"""Mistakes in models that everyday functions write."""

from mutant import Mutant

MAIN = "everyday/test_everyday.py"
LINES = "everyday/test_regression.py"
SAME = f"{MAIN}::test_same_draws_as_the_model_by_hand_and_as_the_printed_code"

WRITTEN = {
    "a law of a record has another mean than its parameter": Mutant(
        "everyday/records.py",
        "dist.LogNormal(jnp.log({mean}) - {spread}**2 / 2, {spread})",
        "dist.LogNormal(jnp.log({mean}), {spread})",
        f"{MAIN}::test_every_law_of_a_record_has_the_mean_it_is_written_with",
    ),
    "the sum of squares is that of values before clamping": Mutant(
        "everyday/means.py", 'f"({one.clamped}) ** 2"', 'f"({one.field}) ** 2"', SAME
    ),
    "a released mean is taken for a sum": Mutant(
        "everyday/means.py",
        'first = one.clamped if mean is None else f"({one.clamped}) / {number}"',
        "first = one.clamped",
        SAME,
    ),
    "a share counts people out of one more": Mutant(
        "everyday/shares.py", "dist.Binomial({number}, share)", "dist.Binomial({number} + 1, share)", SAME
    ),
    "a difference is that of the second from the first": Mutant(
        "everyday/differences.py",
        "{one.quantity} - {other.quantity}",
        "{other.quantity} - {one.quantity}",
        f"{MAIN}::test_two_arms_of_a_trial_by_enumeration",
    ),
    "shares of a table are of the largest rate": Mutant(
        "everyday/tables.py", "rate / rate.sum()", "rate / rate.max()", SAME
    ),
    "names are changed where they are read, not where they are arguments": Mutant(
        "everyday/written.py",
        "return ast.arg(self.names.get(node.arg, node.arg))",
        "return node",
        SAME,
    ),
    "a law is written without its shape": Mutant(
        "everyday/priors.py",
        'return base and f"{base}.expand({list(given.batch_shape)})"',
        "return base",
        "everyday/test_refusals.py::test_laws_are_written_so_that_they_come_back",
    ),
    "a noisy number begins at zero": Mutant(
        "everyday/entries.py", "dist.DiscreteUniform(1, {most})", "dist.DiscreteUniform(0, {most})", SAME
    ),
}

REGRESSION = {
    "an offset multiplies the rate by its logarithm": Mutant(
        "everyday/regressions.py",
        'added.insert(0, "offset")',
        'added.insert(0, "jnp.exp(offset)")',
        f"{LINES}::test_counts_with_offset_and_groups_are_the_model_by_hand",
    ),
    "priors of slopes grow with the spread of the covariate": Mutant(
        "everyday/regressions.py",
        "in_three_digits(scale.intercept if level else scale.slope / spread)",
        "in_three_digits(scale.intercept if level else scale.slope * spread)",
        f"{LINES}::test_counts_with_offset_and_groups_are_the_model_by_hand",
    ),
    "the intercept of clamped numbers is looked for about zero": Mutant(
        "everyday/regressions.py",
        "return Scale((low + high) / 2, high - low, (high - low) / 2, (high - low) / 2)",
        "return Scale(0.0, high - low, (high - low) / 2, (high - low) / 2)",
        f"{LINES}::test_clamped_numbers_by_row_are_the_model_by_hand",
    ),
    "rows are taken in the order of the table": Mutant(
        "everyday/rows.py",
        "return np.array([place[label] for label in labels])",
        "return np.arange(len(labels))",
        f"{LINES}::test_rows_are_matched_by_label",
    ),
    "a column that others give is kept": Mutant(
        "everyday/formula.py",
        "np.linalg.matrix_rank(unitless[:, :number]) < number",
        "np.linalg.matrix_rank(unitless[:, :number]) < 1",
        "everyday/test_refusals.py::test_refused_in_the_one_form",
    ),
    "products are summed without clamping": Mutant(
        "everyday/products.py",
        "{name} = jnp.clip({name}, {limits[name][0]}, {limits[name][1]})",
        "{name} = jnp.maximum({name}, {limits[name][0]})",
        f"{LINES}::test_a_line_from_labelled_sums_is_the_model_by_hand",
    ),
    "the intercept's prior forgets where covariates lie": Mutant(
        "everyday/products.py",
        "if set(term) <= set(other)",
        "if term == other",
        f"{LINES}::test_a_line_from_labelled_sums_is_the_model_by_hand",
    ),
    "what is taken away in an offset is left out": Mutant(
        "everyday/regressions.py",
        'columns(f"0 + I({expression})", frame)',
        'columns(f"0 + {expression}", frame)',
        f"{LINES}::test_an_offset_is_arithmetic",
    ),
    "numbers of trials stay in the order of the table": Mutant(
        "everyday/regressions.py",
        "_trials(n, frame)[order]",
        "_trials(n, frame)",
        f"{LINES}::test_trials_go_with_their_rows",
    ),
    "levels of a category without an intercept have the prior of a slope": Mutant(
        "everyday/formula.py",
        "np.all(part.sum(axis=1) == 1.0)",
        "np.all(part == 1.0)",
        f"{LINES}::test_levels_without_an_intercept_have_its_prior",
    ),
}
