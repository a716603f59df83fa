"""What a refusal of an estimator names as a way out, as data beside its advice."""

SAMPLE = "nw.sample"
MCEM = "nw.MCEM()"
AUGMENTED = 'nw.MCEM(e_step="augmented")'
