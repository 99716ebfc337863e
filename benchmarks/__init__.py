"""Side-by-side measurements; each program here is run from the root of the project and writes one JSON."""
