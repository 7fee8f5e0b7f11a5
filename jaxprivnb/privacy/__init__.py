"""From records to a release that keeps its promise.

`publish` is the way through: records are read (`columns`), held against a public domain
(`domain`), a budget is asked for (`budget`) and charged (`ledger`), and `mechanism`, the only
module that sees true counts, tabulates and adds OpenDP's integer noise. What comes out is a
`Release` (`record`), which `file` writes and reads. THREAT_MODEL.md says what is promised.
"""
