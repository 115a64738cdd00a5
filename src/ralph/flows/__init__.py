"""Each flow turns its inputs into a Plan; the loop does the rest."""
