"""What arguments of the command line mean; each raises ArgumentTypeError, of which argparse makes a usage error."""

from __future__ import annotations

import argparse
import math
import re


def parse_seconds(text: str) -> float:
    """A time above 0, in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def parse_count(text: str) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch("[0-9]{1,9}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1, of 9 digits at most")
    return int(text)


def parse_seed(text: str) -> int:
    """A whole number, of which random ones are made."""
    if not re.fullmatch(r"[0-9]{1,20}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0, of 20 digits at most")
    return int(text)
