"""Programs in Python that load exported GPU kernels: for CuPy, PyTorch and pyopencl, each in some 30 lines."""

from __future__ import annotations

from tcomp.export.interface import REPORT_WORDS, Interface

_CUDA = '''\
"""{name} on arrays of {library}: make a Kernel once, then call it with inputs and outputs in the order of the def."""
import json
{imports}


class Kernel:
    def __init__(self, number=0):
        self.facts = json.loads((HERE / "{name}.json").read_text())["variants"][number]
        device = {capability}
        file = next(f for m, n, f in self.facts["code"] if m in (0, device[0]) and (m, n) <= device)
        {load}

    def __call__(self, *arrays):
        room = {room}
        for a, w in zip(arrays, self.facts["arrays"], strict=True):
            found = [a.device, [*a.shape], str(a.dtype), {strides}{address} % w["alignment"]]
            if found != [room.device, w["shape"], {dtype}, w["strides"], 0]:
                raise ValueError(f"{{w['name']}} must be {{w}}, not {{found}}")
        places = {{w["name"]: {address} for a, w in zip(arrays, self.facts["arrays"])}} | {{"*": {base}, "": 0}}
        for t, (kernel, extents, given) in ((t, k) for n, body in self.facts["turns"] for t in range(n) for k in body):
            passed = {passed}
            {launch}
        if self.facts["checks"] and (report := {report})[2]:
            raise IndexError(f"{{self.facts['checks'][report[0]]}}, but is {{report[1]}}")
'''
"""``places`` are where what the values of a launch begin with lies; see ``tcomp/export/facts.py``."""


def cupy_loader(interface: Interface) -> str:
    """``NAME_cupy.py``."""
    return _CUDA.format(
        name=interface.name,
        library="CuPy",
        imports="from pathlib import Path\n\nimport cupy\n\nHERE = Path(__file__).parent",
        capability="divmod(int(cupy.cuda.Device().compute_capability), 10)",
        load="module = cupy.RawModule(path=str(HERE / file))\n"
        '        self.kernels = [module.get_function(name) for name, _ in self.facts["kernels"]]\n'
        '        for kernel, (_, shared) in zip(self.kernels, self.facts["kernels"]):\n'
        "            kernel.max_dynamic_shared_size_bytes = shared",
        room='cupy.zeros(self.facts["scratch_bytes"], "u1")',
        dtype='w["dtype"]',
        strides="[s // a.itemsize for s in a.squeeze().strides],\n                     ",
        address="a.data.ptr",
        base="room.data.ptr",
        passed="tuple(cupy.int64(places[p] + a + t * b) for p, a, b in given)",
        launch="self.kernels[kernel](tuple(extents[:3]), tuple(extents[3:6]), passed, shared_mem=extents[6])",
        report='room[self.facts["report"]:].view("i8").get()',
    )


def torch_loader(interface: Interface) -> str:
    """``NAME_torch.py``, which calls the driver itself."""
    return _CUDA.format(
        name=interface.name,
        library="PyTorch",
        imports="from ctypes import CDLL, POINTER, byref, c_int64, c_void_p, pointer\nfrom pathlib import Path\n\n"
        'import torch\n\nHERE, CUDA = Path(__file__).parent, CDLL("libcuda.so.1")\n\n\n'
        "def check(status):\n"
        "    if status:\n"
        '        raise RuntimeError(f"CUDA fails with {status}")',
        capability='torch.cuda.get_device_capability(torch.zeros(1, device="cuda").device)'
        "  # a tensor makes the context",
        load='module, self.kernels = c_void_p(), [c_void_p() for _ in self.facts["kernels"]]\n'
        "        check(CUDA.cuModuleLoad(byref(module), str(HERE / file).encode()))\n"
        '        for k, (name, shared) in zip(self.kernels, self.facts["kernels"]):\n'
        "            check(CUDA.cuModuleGetFunction(byref(k), module, name.encode()) "
        "or CUDA.cuFuncSetAttribute(k, 8, shared))",
        room='torch.zeros(self.facts["scratch_bytes"], dtype=torch.uint8, device="cuda")',
        dtype='"torch." + w["dtype"]',
        strides="[*a.squeeze().stride()], ",
        address="a.data_ptr()",
        base="room.data_ptr()",
        passed="(POINTER(c_int64) * len(given))(*(pointer(c_int64(places[p] + a + t * b)) for p, a, b in given))",
        launch="check(CUDA.cuLaunchKernel(self.kernels[kernel], *extents, torch.cuda.current_stream(), passed, None))",
        report='room[self.facts["report"]:].view(torch.int64).tolist()',
    )


_OPENCL = '''\
"""{name} on arrays of pyopencl: make a Kernel(context), then call it with a queue and the def's arrays."""
import json
from pathlib import Path

import numpy
import pyopencl as cl

HERE = Path(__file__).parent


class Kernel:
    def __init__(self, context, number=0):
        self.facts = json.loads((HERE / "{name}.json").read_text())["variants"][number]
        program = cl.Program(context, (HERE / (self.facts["file"] + ".cl")).read_text()).build(self.facts["flags"])
        self.kernels = [cl.Kernel(program, name) for name in self.facts["kernels"]]
        memory = self.facts["temporaries"].items()
        self.memory = {{name: cl.Buffer(context, cl.mem_flags.READ_WRITE, size) for name, size in memory}}

    def __call__(self, queue, *arrays):
        places = dict(self.memory)
        for a, w in zip(arrays, self.facts["arrays"], strict=True):
            strides = [s // a.dtype.itemsize for n, s in zip(a.shape, a.strides) if n != 1]
            if [list(a.shape), str(a.dtype), strides, a.offset] != [w["shape"], w["dtype"], w["strides"], 0]:
                raise ValueError(f"{{w['name']}} must be {{w}}, not {{a.dtype}} {{a.shape}}, {{strides}}, {{a.offset}}")
            places[w["name"]] = a.base_data
        if self.facts["checks"]:
            cl.enqueue_fill_buffer(queue, places["*report"], numpy.int64(0), 0, {report})
        turns = ((t, k) for n, body in self.facts["turns"] for t in range(n) for k in body)
        for t, (kernel, *extents, names, given) in turns:
            numbers = (numpy.int64(a + t * b) for a, b in given)
            self.kernels[kernel].set_args(*(places[name] for name in names), *numbers)
            cl.enqueue_nd_range_kernel(queue, self.kernels[kernel], *extents)
        if self.facts["checks"]:
            found = numpy.zeros({words}, numpy.int64)
            cl.enqueue_copy(queue, found, places["*report"])
            if found[2]:
                raise IndexError(f"{{self.facts['checks'][found[0]]}}, but is {{found[1]}}")
'''


def pyopencl_loader(interface: Interface) -> str:
    """``NAME_pyopencl.py``."""
    return _OPENCL.format(name=interface.name, report=8 * REPORT_WORDS, words=REPORT_WORDS)
