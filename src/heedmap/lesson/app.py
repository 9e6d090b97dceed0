"""The lesson as an application: its page, and the real examples that it asks for."""

from heedmap.explore.app import PageRoutes, application
from heedmap.explore.asgi import App
from heedmap.explore.desk import Desk
from heedmap.lesson.examples import Examples
from heedmap.lesson.page_files import Language, page_files


def make_app(examples: Examples, desk: Desk, *, language: Language | None = None) -> App:
    """Return an ASGI application that answers whoever asks.

    Args:
        examples: The models, sounds and films that are looked at.
        desk: Where that is computed; whoever made it closes it.
        language: The language to begin with; that of the browser without it.

    Raises:
        MissingExtraError: if Starlette is not installed.
    """
    return application([*PageRoutes(page_files(language)).routes(), *examples.routes(desk)])
