"""Sums of encrypted integers: one interface, two schemes (BFV by SEAL, packed Paillier on GMP).

Each scheme lies in a file of its own that is imported when a study asks for it.
"""
