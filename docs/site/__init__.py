"""The documentation site: ``python -m docs.site`` writes it to ``build/site``, from the pages in ``docs/`` and from
what the code declares.

``pages.py`` says which file of the repository is which page; open it first.  What is generated is made by
``functions.py`` (public functions and classes), ``commandline.py``, ``operators.py`` (the library), ``lessons.py``,
``gallery.py`` and ``performance.py``; ``conf.py`` is for Sphinx.
"""
