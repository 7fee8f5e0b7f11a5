"""The exact posterior: P(m) is a sum over a tree, so nothing needs approximating.

With p integrated out, the blocks (i, k) are independent given the class counts, and each block is
a convolution over counts. Write (a)_l / l! = Gamma(l + a) / (l! Gamma(a)) for the rising weight,
f for the density of the noise, * for convolution, A_ik = sum_j a_ikj:

    w_ikj(l) = (a_ikj)_l / l!  f(m_ikj - l)                 dataset.py, rising.py
    c_ik(n)  = [w_ik1 * ... * w_ikJ](n)                     fourier.py, closed.py
    h_i(n)   = (a_i)_n / n!  prod_k c_ik(n) / ((A_ik)_n / n!)
    P(m)     = [h_1 * ... * h_I](N) / ((sum a)_N / N!)      classes.py

`tree.py` goes up from the weights to P(m). Everything else goes back down through the same
messages, because a posterior distribution of a count is a derivative of log P(m):

    P(n_i = n | m)   = d log P / d log h_i(n)               classes.py
    P(n_ikj = l | m) = d log P / d log w_ikj(l)
    E p_ikj          = sum_n P(n_i = n) (E[n_ikj | n] + a) / (n + A), and variances: moments.py

**Paths.** How c_ik is computed, and how weights on the class counts go back to cells, is a *path*:
a frozen object behind the few methods of `path.py`. The general one is by Fourier transforms of
exponentially tilted weights (`fourier.py`, whose products of all cells but one are `products.py`).
A Fourier transform is accurate to a fraction of its largest entry, so `aim.py` finds where the
posterior is and the tilt under which the entries there are the largest. Blocks of two cells under
a flat prior and noise of the form exp(-|x| / b) have a closed form (`closed.py`). `plan.py` is the
one place that chooses a path and the lengths of its windows (`windows.py`), and, where a path has
lost too much, the next wider one.

**Groups.** Totals of groups of classes are factors of the class counts' messages, and where a group
is of some of several classes the last line above is a tree of convolutions (`groups.py`).

**Certificate.** What windows leave out, what wraps around a transform and what rounding may have
added is bounded, not guessed, and becomes `lost_mass` (`certificate.py`).

**Questions.** The posterior of a parameter is a finite mixture of Betas. Beta(a + l, A - a + n - l)
is itself a mixture of the two Betas with one more count, so a mixture over (l, n) is raised, n by
n, to a mixture over l alone with one total (`mixtures.py`). Draws go backward through the messages
(`draws.py`); the predictive sums over n_i (`predict.py`). `posterior.py` holds what a fit found and
computes these when asked, `fit.py` is `fit_exact`, `learn.py` finds the prior that one release asks
for, `prior.py` is `fit_prior` for many, and `compare.py` measures the variational posterior
against all this.
"""
