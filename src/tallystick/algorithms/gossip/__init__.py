"""Learning from records that their peers have perturbed: everything here sees what was published, and nothing else."""
