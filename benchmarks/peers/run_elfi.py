"""ELFI: rejection with a discrepancy that is 0 with the acceptance probability, else 1, at threshold 0."""

import elfi
import numpy as np
from problems import LALONDE, RELEASED, SCALES, SHAPES, measure, simulated

BATCH = 100_000


def run(problem, size, seed):
    model = elfi.ElfiModel()
    if problem == "Lalonde":
        parents = [
            elfi.Prior("norm", 0.0, 5.0, model=model, name="tau"),
            elfi.Prior("norm", 4.0, 5.0, model=model, name="mu"),
            elfi.Prior("gamma", 2.0, 0.0, 5.0, model=model, name="sigma_t"),
            elfi.Prior("gamma", 2.0, 0.0, 5.0, model=model, name="sigma_c"),
        ]
    else:
        parents = [elfi.Prior("gamma", SHAPES[problem], model=model, name="theta")]
    released, scales = RELEASED[problem], SCALES[problem]

    def refused(*parameters, batch_size=1, random_state=None):
        values = simulated(problem, random_state, parameters)
        cost = sum(abs(y - s) / b for y, s, b in zip(released, values, scales, strict=True))
        return (random_state.uniform(size=batch_size) >= np.exp(-cost)).astype(float)

    simulator = elfi.Simulator(refused, *parents, observed=np.zeros(1), model=model, name="refused")
    distance = elfi.Discrepancy(lambda found, observed: found, simulator, model=model, name="distance")
    found = elfi.Rejection(distance, batch_size=BATCH, seed=seed).sample(size, threshold=0.0, bar=False)
    accepted = np.asarray(found.discrepancies) == 0.0
    names = LALONDE if problem == "Lalonde" else ("theta",)
    return [np.asarray(found.samples[name])[accepted] for name in names], None, int(accepted.sum())


if __name__ == "__main__":
    measure(run, f"ELFI {elfi.__version__}")
