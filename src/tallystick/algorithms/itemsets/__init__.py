"""Frequent itemsets: which items occur together in at least a given share of the records.

| module        | what                                                                                      |
|---------------|-------------------------------------------------------------------------------------------|
| ``items``     | the public items of a study and which of them exclude each other                          |
| ``exact``     | the level-wise miner without noise, by popcount, and the paper's loss against it          |
| ``candidates``| Apriori's next level, the same at every party, and its fixed-size encoding                |
| ``levels``    | PEM's method with noise: every level's candidates are counted                             |
| ``profiles``  | a latent class model fitted to noisy totals (post-processing)                             |
| ``basis``     | the method that keeps working where level-wise noise cannot: singles, pairs, then classes |
| ``supports``  | sets and supports from a model; supports made monotone                                    |
| ``design``    | a user's keywords, the choice of method, what the plan says                               |
"""
