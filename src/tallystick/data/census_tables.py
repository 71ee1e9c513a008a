"""The tables of the invented census: vocabularies of the UCI Adult data [BK96], weights written by hand and rounded.

They were written with Adult's published counts in view, and several marginals are within a point of them; no record was
copied and nothing was fitted. The census is like Adult on purpose, and is not Adult.
"""

from __future__ import annotations

from collections.abc import Mapping

WORKCLASS = (
    "Private",
    "Self-emp-not-inc",
    "Self-emp-inc",
    "Federal-gov",
    "Local-gov",
    "State-gov",
    "Without-pay",
    "Never-worked",
)
MARITAL = (
    "Married-civ-spouse",
    "Never-married",
    "Divorced",
    "Separated",
    "Widowed",
    "Married-spouse-absent",
    "Married-AF-spouse",
)

# per cent by age: under 25, 25-34, 35-54, from 55; women, then men
MARITAL_BY_AGE = (
    (13, 78, 4, 3, 0, 1.5, 0.1),
    (30, 41, 17, 7, 1, 2, 0.1),
    (34, 17, 34, 7, 5, 2, 0),
    (28, 8, 25, 4, 33, 1.5, 0),
    (14, 82, 2, 1, 0, 1, 0.1),
    (52, 36, 8, 2, 0, 1.5, 0.1),
    (73, 11, 12, 2, 0.6, 1.2, 0),
    (79, 6, 8, 1.5, 4.5, 1, 0),
)
RELATIONSHIP = ("Husband", "Wife", "Own-child", "Not-in-family", "Unmarried", "Other-relative")
RACE = ("White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other")
SEX = ("Female", "Male")
INCOME = ("<=50K", ">50K")

# occupation: weight among (women, men) without and with a college degree, and its pull on the label
OCCUPATION: Mapping[str, tuple[float, float, float, float, float]] = {
    "Adm-clerical": (28, 7, 14, 5, 0.1),
    "Armed-Forces": (0, 0.1, 0, 0.1, -0.2),
    "Craft-repair": (2, 23, 0.5, 5, 0.2),
    "Exec-managerial": (8, 9, 22, 29, 0.9),
    "Farming-fishing": (0.7, 5, 0.4, 1.5, -0.9),
    "Handlers-cleaners": (2, 7, 0.3, 0.8, -0.6),
    "Machine-op-inspct": (7, 9, 0.7, 1, -0.2),
    "Other-service": (24, 8, 5, 2, -0.8),
    "Priv-house-serv": (2, 0.1, 0.2, 0, -1.2),
    "Prof-specialty": (5, 3, 43, 33, 0.6),
    "Protective-serv": (0.7, 3, 0.5, 1.8, 0.5),
    "Sales": (14, 10, 9, 15, 0.4),
    "Tech-support": (3, 2.5, 4, 4, 0.6),
    "Transport-moving": (0.8, 8, 0.3, 1.2, -0.1),
}

# country of birth and its weight
COUNTRY: Mapping[str, float] = {
    "United-States": 9120,
    "Mexico": 200,
    "Philippines": 60,
    "Germany": 42,
    "Puerto-Rico": 38,
    "Canada": 38,
    "El-Salvador": 32,
    "India": 32,
    "Cuba": 28,
    "England": 26,
    "China": 26,
    "South": 24,
    "Jamaica": 22,
    "Italy": 22,
    "Dominican-Republic": 20,
    "Japan": 18,
    "Guatemala": 18,
    "Poland": 18,
    "Vietnam": 18,
    "Columbia": 18,
    "Haiti": 15,
    "Portugal": 14,
    "Taiwan": 14,
    "Iran": 12,
    "Greece": 10,
    "Nicaragua": 10,
    "Peru": 10,
    "Ecuador": 9,
    "France": 8,
    "Ireland": 8,
    "Thailand": 6,
    "Hong": 6,
    "Cambodia": 6,
    "Trinadad&Tobago": 6,
    "Laos": 5,
    "Yugoslavia": 5,
    "Outlying-US(Guam-USVI-etc)": 5,
    "Scotland": 4,
    "Honduras": 4,
    "Hungary": 4,
    "Holand-Netherlands": 1,
}

# years of schooling 1..16 in per cent; 9 is a high-school diploma, 13 a bachelor's degree
EDUCATION = (0.2, 0.5, 1, 2, 1.5, 3, 4, 1.3, 32, 22, 4, 3.5, 16.5, 5.5, 1.7, 1.3)
AGE_QUANTILES = ((0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1), (17, 18, 22, 28, 37, 48, 58, 70, 90.99))
