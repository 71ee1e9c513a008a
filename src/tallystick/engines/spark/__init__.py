"""Clients whose records lie in a Spark cluster, and servers whose shares do: mapped and summed there (extra ``spark``).

PySpark is imported in this folder only, and only when a role or a frame asks for it.
"""
