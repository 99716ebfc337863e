"""NVIDIA's compiler and disassembler, and what their results say: PTX, cubins, SASS, registers, occupancy.

No device is needed for any of it.  Open ``images`` first.
"""
