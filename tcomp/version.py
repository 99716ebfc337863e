"""The version of tcomp, stated here and nowhere else."""

__version__ = "0.1.0"
