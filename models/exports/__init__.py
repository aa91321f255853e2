"""Files that run elsewhere: a room for each format, and what they have in common.

Rooms bring libraries that nothing else needs: import them where they are used.
"""
