"""`PrivateNaiveBayes`: releasing and fitting with the habits of scikit-learn.

`classifier` is the estimator, `records` reads what scikit-learn's users pass, `lineage` remembers
which estimators have spent a budget.
"""
