"""pyABC: exact acceptance at temperature one, from the prior; its draws are independent."""

import logging
import os

import numpy as np
import pyabc
from problems import LALONDE, RELEASED, SCALES, SHAPES, measure, simulated

logging.getLogger("ABC").setLevel(logging.ERROR)


def run(problem, size, seed):
    np.random.seed(seed)  # noqa: NPY002 - pyABC draws from there; its workers seed themselves
    names = LALONDE if problem == "Lalonde" else ("theta",)
    laws = {"theta": pyabc.RV("gamma", SHAPES.get(problem, 1.0))}
    if problem == "Lalonde":
        laws = {"tau": pyabc.RV("norm", 0.0, 5.0), "mu": pyabc.RV("norm", 4.0, 5.0)}
        laws |= {name: pyabc.RV("gamma", 2.0, scale=5.0) for name in ("sigma_t", "sigma_c")}

    def model(parameter):
        values = simulated(problem, np.random, [parameter[name] for name in names])
        return {f"s{number}": float(value) for number, value in enumerate(values)}

    observed = {f"s{number}": value for number, value in enumerate(RELEASED[problem])}
    abc = pyabc.ABCSMC(
        models=model,
        parameter_priors=pyabc.Distribution(**laws),
        distance_function=pyabc.IndependentLaplaceKernel(scale=SCALES[problem], keys=list(observed)),
        eps=pyabc.ListTemperature([1.0]),
        acceptor=pyabc.StochasticAcceptor(pdf_norm_method=pyabc.pdf_norm_from_kernel),
        population_size=size,
        sampler=pyabc.MulticoreEvalParallelSampler(n_procs=len(os.sched_getaffinity(0))),
    )
    abc.new("sqlite://", observed)
    history = abc.run(max_nr_populations=1)
    frame, weights = history.get_distribution(m=0)
    return [frame[name].to_numpy() for name in names], np.asarray(weights), len(frame)


if __name__ == "__main__":
    measure(run, f"pyABC {pyabc.__version__}", warm=False)
