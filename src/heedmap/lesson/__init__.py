"""The lesson: self-attention from five frames of four numbers to the real thing, as a page.

Everything on the page is computed live, from the numbers of `heedmap.lesson.numbers`.
"""
