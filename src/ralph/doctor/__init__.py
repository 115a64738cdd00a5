"""`ralph doctor`: can a run work here?"""
