"""Search tools behind one protocol, one file a back-end; `envs.search.backends` makes them by name.

No real service was called while these were written: each speaks the wire format that its public
documentation states, and the tests hold it to that against a local server.
"""
