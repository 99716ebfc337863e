"""Numbers that were fitted to a machine: another processor, or another GPU, would want others.

Each is a field of a group, declared with its unit, the machine on which it was found and how; what nobody wrote down is
"not recorded".  ``docs/fitted.md`` lists all of them.  Open the modules named after a target; ``declaring`` says how a
number is declared.  What hardware, a language or safety prescribes is no such number and stands where it is used.
"""
