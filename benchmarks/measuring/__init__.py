"""How a measurement is made: by a timed backend, in contests between engines, with servers under load."""
