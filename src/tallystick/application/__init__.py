"""What the command line and a web page both show: plans and studies in words, results, budgets, health."""
