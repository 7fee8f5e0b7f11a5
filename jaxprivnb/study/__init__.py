"""Monte Carlo studies, from a spec file to tables and figures.

spec.py      what is computed: a grid, replicates, arms; specfile.py reads it from TOML
chunks.py    the work, cut into pieces that depend on (spec, chunk number) alone
schedule.py  the pieces of a study that grew
compute.py   one chunk's rows: simulate, fit (fits.py), compare with the truth
schema.py    the rows' columns
folder.py    a study's folder: parts, and the manifest of what is done; load.py reads it back
precision.py Monte Carlo errors, and which cells know enough
run.py       the study on this machine; cluster.py the same on Dask; array_job.sh in a batch queue
missing.py   what is missing
display.py   what the terminal shows meanwhile
summary.py   tables with Monte Carlo standard errors; figures.py the plots
"""
