"""The alternatives that an estimator's refusal names, as data beside its advice in words."""

SAMPLE = "nw.sample"
MCEM = "nw.MCEM()"
AUGMENTED = 'nw.MCEM(e_step="augmented")'
