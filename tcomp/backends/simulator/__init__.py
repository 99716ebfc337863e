"""CUDA text run on the CPU, thread by thread, with every access checked and, on demand, counted.

``load`` compiles the very text that NVRTC gets with g++; ``device/`` holds the header that stands for CUDA and the
runtime that schedules threads and watches memory.
"""
