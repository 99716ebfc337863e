"""The operators of networks as program text: functions that write defs.

``elements`` and ``general`` have functions of elements, reductions and moves, ``layers`` and ``windows`` convolutions,
products, norms and pools, ``parts`` what takes some elements or repeats them.
"""
