"""Programs beside functions of PyTorch that compute the same, by subject."""
