"""Every device with OpenCL: OpenCL C as a dialect of the text that ``backends/gpu`` writes, and what runs it.

Devices are reached through pyopencl; PoCL makes one of the processor.  Open ``target`` first.
"""
