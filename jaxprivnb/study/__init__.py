"""Monte Carlo studies, from a spec file to tables and figures.

spec.py      what is computed: a grid, replicates, methods
chunks.py    the work, cut into pieces that depend on (spec, chunk number) alone
methods.py   the fits, found by name, on batches of one fixed size
rows.py      one chunk's rows: squared error, coverage, width, bound, status
store.py     parts on disk, and the manifest of what is done
run.py       the study on this machine; cluster.py the same on Dask
display.py   what the terminal shows meanwhile
summary.py   tables with Monte Carlo standard errors; figures.py the plots
"""
