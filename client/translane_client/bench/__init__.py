"""`translane bench`: puts load on a server and tells how long its answers took.

`command` reads the arguments, `benchmark` goes through the rates, whose requests and times come from `arrivals`; `load`
sends them and fills a `measurement`, which `report` shows. `search` chooses the rates where the highest one is wanted.
"""
