"""Schedules by hand: loops split, ordered, fused and placed by the words of Halide and TVM, each step proved.

A schedule ends as the text of a plan (``mapping/text``) or as mapping options; what runs is made of these as ever.
Nothing here decides what a kernel computes.  Open ``schedule.py`` first.
"""

from tcomp.schedules.errors import IllegalStepError as IllegalStepError
from tcomp.schedules.errors import Instance as Instance
from tcomp.schedules.errors import ScheduleError as ScheduleError
from tcomp.schedules.schedule import Schedule as Schedule

__all__ = ["IllegalStepError", "Instance", "Schedule", "ScheduleError"]
