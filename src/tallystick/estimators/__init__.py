"""scikit-learn faces: program + plan + federation → fitted model."""
