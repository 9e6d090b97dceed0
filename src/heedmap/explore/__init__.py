"""The live map: attention in the browser, from the whole matrix down to single weights.

`docs/explore.md` says how the page and the program talk.
"""
