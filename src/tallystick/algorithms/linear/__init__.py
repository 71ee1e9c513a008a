"""Linear models: private gradient descent, and ridge regression from moments."""
