"""Random programs under random options, compared with the reference interpreter: ``tcomp fuzz``.

``generation`` makes programs, ``relations`` turns them into others that must give the same, ``execution`` runs one
case, ``reduction`` makes a failing one small, ``workers`` keeps crashes and hangs in processes of their own, and
``campaign`` goes on until the time is over.
"""
