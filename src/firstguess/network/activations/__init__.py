"""Activations: one record each, with its function, moments, kernel, pieces and torch names."""
