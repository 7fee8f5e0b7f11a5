"""The variational posterior of the paper (sections 4.1 and 7.1).

The counts are missing data. They are given the variational distribution

    q(n) = Multinomial(n[.]; N, t) prod_ik Multinomial(n[i,k,.]; n[i], t[i,k,.])

and the parameters free ones, q(p) and q(p[i,k,.]). With e[i,k,j] = t[i] t[i,k,j] the noise enters
only through

    c[i,k,j] = E_q (m - n)^2 = N e (1 - e) + (N e - m)^2,

because the Laplace kernel -|m - n| / b is bounded below by a quadratic in m - n (`local.py`), whose
curvature is the precision w[i,k,j]. The bound on log P(m) is

    L = sum_ijk local(c)                                            noise
      + sum_ijk N e (E log p[i,k,j] - log t[i,k,j])                 features
      + sum_i N t[i] (E log p[i] - log t[i])                        classes
      - sum_ik KL(q(p[i,k,.]) || prior) - KL(q(p) || prior)         parameters

and coordinate ascent maximises it over one factor at a time (`updates.py`):

    q(p[i,k,.]) = Dirichlet(a[i,k,.] + N t[i] t[i,k,.])             (eq. 4)
    q(p)        = Dirichlet(a + N t)                                (eq. 5)
    t[i,k,.]    = argmax sum_j A_j x_j^2 + B_j x_j - x_j log x_j    (eq. 6)
        A_j = -(N-1) t[i] w / 2,    B_j = (m - 1/2) w + E log p[i,k,j]
    t           = argmax sum_i D_i x_i^2 + E_i x_i - x_i log x_i
        D_i = -(N-1)/2 sum_kj t[i,k,j]^2 w
        E_i = sum_kj t[i,k,j] ((m - 1/2) w + E log p[i,k,j] - log t[i,k,j]) + E log p[i]

Equations 4 and 5 are the paper's without its undefined terms a_i. The two simplex problems are the
paper's divided by N t[i] and by N, which leaves their maxima alone and keeps them well scaled when
a class is nearly empty; they are solved by any solver of `jaxprivnb.simplex`.

The t are carried as logarithms, so they stay strictly inside their simplices.
"""

from jaxprivnb.variational.fit import VariationalPosterior, fit_vb
from jaxprivnb.variational.trace import Trace, trace_vb

__all__ = ["Trace", "VariationalPosterior", "fit_vb", "trace_vb"]
