"""One subproblem, four solvers (paper 7.2).

Each block of the variational parameters maximises

    f(x) = sum_j A_j x_j^2 + B_j x_j + C_j x_j log x_j     over the simplex,   A <= 0, C < 0,

which is strictly concave. The paper lists three approaches and calls an exact solution infeasible;
it is not, so there are four solvers, all behind `SimplexSolver.solve(problem, log_x)`:

    Armijo     interior first-order ascent with Armijo backtracking (the paper's choice)
    KKT        the exact solution, by Newton on the multiplier of sum x = 1
    MM         quadratic minorisation with exact resource allocation (the paper's first approach)
    Optax      an optax optimiser on log x that accepts only ascent (the paper's third approach)

A solver handles one problem and is mapped over many. The point is carried as log x: a coordinate
may then be arbitrarily small without ever being 0, where x log x has no derivative and from where
a multiplicative step could not return.
"""

from jaxprivnb.simplex.armijo import Armijo
from jaxprivnb.simplex.blackbox import Optax
from jaxprivnb.simplex.kkt import KKT
from jaxprivnb.simplex.mm import MM
from jaxprivnb.simplex.problem import SimplexProblem, SimplexSolution, SimplexSolver

SOLVERS: dict[str, SimplexSolver] = {
    "armijo": Armijo(),
    "kkt": KKT(),
    "mm": MM(),
    "optax": Optax(),
}
"""The solvers by name, each with its default options."""

__all__ = [
    "KKT",
    "MM",
    "SOLVERS",
    "Armijo",
    "Optax",
    "SimplexProblem",
    "SimplexSolution",
    "SimplexSolver",
]
