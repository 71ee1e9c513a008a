"""For the operator: logs, health and metrics, memory, and what members were refused."""
