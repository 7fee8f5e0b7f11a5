"""Posteriors and releases for people: names, one-line descriptions, tables, notebooks, ArviZ.

Reached through the methods of posteriors and tables (`summary`, `to_arviz`, `repr`).
"""
