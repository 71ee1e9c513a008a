"""Support vector machines where institutions hold different columns of the same people, by sharing ADMM."""
