"""What a budget will buy, before any record is looked at.

`plan` asks it; `simulated` draws parameters, counts and integer noise from a prior, `block` has the
posterior of one table's counts given a class's, `expect` that of everything, `table` the answer.
NumPy alone: what JAX would compile for every width of noise takes longer than all the arithmetic.
"""
