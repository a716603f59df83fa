"""Mistakes in what mechanisms share, in budgets, in sensitivities and on the curator's side.

Those in the laws themselves stand with the laws' cases, in `tests/helpers/families`.
"""

from mutant import Mutant

RESPONSE = "mechanisms/test_response.py"
CHOICES = "mechanisms/test_selection.py"
SENSITIVITY = "test_sensitivity.py"

SHARED = {
    "how far off a count is leaves out one end": Mutant(
        "mechanisms/typical_error.py",
        "(-k, k + 1.0) if lattice",
        "(-k, k) if lattice",
        "mechanisms/test_typical_error.py::test_the_size_of_noise_is_that_of_its_law",
    ),
    "a logarithm of a sum forgets its largest term": Mutant(
        "mechanisms/discrete.py",
        "return log(xp, xp.sum(xp.exp(terms - top), axis=axis)) + xp.squeeze(top, axis=axis)",
        "return log(xp, xp.sum(xp.exp(terms - top), axis=axis))",
        f"{CHOICES}::test_probabilities_sum_to_one {RESPONSE}::test_counts_are_the_convolution_of_multinomials",
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
