"""How a measurement is made: engines take turns."""
