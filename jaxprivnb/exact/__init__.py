"""The exact posterior: P(m) is a sum over a tree, so nothing needs approximating.

With p integrated out, the blocks (i, k) are independent given the class counts, and each block is
a convolution over counts. Write (a)_l / l! = Gamma(l + a) / (l! Gamma(a)) for the rising weight,
f for the density of the noise, * for convolution, A_ik = sum_j a_ikj:

    w_ikj(l) = (a_ikj)_l / l!  f(m_ikj - l)                 weights.py
    c_ik(n)  = [w_ik1 * ... * w_ikJ](n)                     convolve.py
    g_ik(n)  = c_ik(n) / ((A_ik)_n / n!)                    evidence.py
    h_i(n)   = (a_i)_n / n!  prod_k g_ik(n)
    P(m)     = [h_1 * ... * h_I](N) / ((sum a)_N / N!)

Everything else is a derivative of log P(m), so one reverse pass gives it (inside-outside is
backpropagation):

    P(n_ikj = l | m) = d log P / d log w_ikj(l)             moments.py
    P(n_i = n | m)   = d log P / d log h_i(n)
    E p_ikj          = sum_n P(n_i = n) (E[n_ikj | n] + a) / (n + A),   a reverse pass of c_ik with
                       cotangent P(n_i = n) / c_ik(n) / (n + A); E p_ikj^2 likewise

The posterior of a parameter is a finite mixture of Betas. Beta(a + l, A - a + n - l) is itself a
mixture of the two Betas with one more count, so a mixture over (l, n) is raised, n by n, to a
mixture over l alone with one total, whose CDF costs one incomplete beta (mixtures.py). Draws go
backward through the same messages (draws.py); the predictive sums over n_i (predict.py).

Under a flat prior and noise of the form exp(-|x| / b), two cells have c_ik, and the moments of a
cell's count given its class's, in closed form (flat.py); and with any number of cells, convolving
with the weight of one is a filter of log2 L passes over L counts (filters.py).

Only the counts that carry mass are computed: every cell and every class has a window (window.py),
and what the windows and floating point leave out is bounded, not guessed (lost.py).
"""
