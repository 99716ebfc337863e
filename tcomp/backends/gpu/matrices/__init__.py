"""Products of matrices as texts of kernels: by warps that fetch fragments, or by warpgroups.  Open ``warps`` first."""
