"""Programs one after the other in one study, on one budget: columns to components, components to a model."""
