"""Thousands of datasets in one call: lanes, segments, devices and progress."""

from jaxprivnb.many.fit import fit_many

__all__ = ["fit_many"]
