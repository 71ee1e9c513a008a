"""The ledger of one institution: what each data set has been charged, in files that cannot be changed unseen."""
