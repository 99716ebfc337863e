"""Commands for what is kept on this machine: compiled kernels, tuned options, fitted numbers.

Each is a module named after its command.
"""
