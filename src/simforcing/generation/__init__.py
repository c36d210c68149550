"""From a model, a solver and conditions to video."""
