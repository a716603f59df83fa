"""Gauss-Kronrod quadrature with 10 and 21 nodes, and the integral of the polynomial through the nodes."""

from functools import cache

import numpy as np
from numpy.polynomial import legendre

from noisewise.numerics.namespaces import Array

SIZE = 21
"""Nodes of Kronrod's rule; ten of them are those of Gauss."""


@cache
def rule() -> tuple[Array, Array, Array]:
    """Nodes on (-1, 1) in order, their weights, and Gauss's weights (zero where a node is Kronrod's alone).

    Kronrod's further nodes are the zeros of the polynomial E of degree eleven for which P10 E is orthogonal to every
    polynomial of degree ten or less (Stieltjes). The weights make the rule exact up to degree twenty.
    """
    few = SIZE // 2
    gauss, gauss_weights = legendre.leggauss(few)
    t, w = legendre.leggauss(SIZE + few)  # exact for the products below
    basis = legendre.legvander(t, few + 1)
    products = (basis[:, : few + 1] * (w * basis[:, few])[:, None]).T @ basis
    stieltjes = np.append(np.linalg.lstsq(products[:, : few + 1], -products[:, few + 1], rcond=None)[0], 1.0)
    further = legendre.legroots(stieltjes).real  # from version 2.5 on NumPy calls them complex
    for _ in range(3):  # polished by Newton's steps
        further = further - legendre.legval(further, stieltjes) / legendre.legval(further, legendre.legder(stieltjes))
    nodes = np.concatenate([gauss, further])
    order = np.argsort(nodes)
    nodes = 0.5 * (nodes[order] - nodes[order][::-1])
    moments = np.zeros(SIZE)
    moments[0] = 2.0
    weights = np.linalg.solve(legendre.legvander(nodes, SIZE - 1).T, moments)
    inner = np.concatenate([gauss_weights, np.zeros(few + 1)])[order]
    return nodes, 0.5 * (weights + weights[::-1]), inner


@cache
def antiderivative() -> Array:
    """Rows: Legendre coefficients of the integral from -1 of the polynomial that is 1 at one node, 0 at the others."""
    nodes = rule()[0]
    coefficients = np.linalg.inv(legendre.legvander(nodes, SIZE - 1))
    return np.stack([legendre.legint(column, lbnd=-1.0) for column in coefficients.T])
