"""How a Scop is laid on a machine: options, plans and the passes between plans."""
