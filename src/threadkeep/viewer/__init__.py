"""Web pages to read conversations and to see what they used: an ASGI application over your own database.

Needs the extra ``viewer``. `app` returns the application; the commands ``threadkeep view`` and ``threadkeep serve`` run
it.
"""

from threadkeep.errors import MissingExtra

try:
    import jinja2  # noqa: F401 - whether it is there
    import markdown_it  # noqa: F401
    import nh3  # noqa: F401
    import starlette  # noqa: F401
except ImportError as error:
    raise MissingExtra("viewer", "The viewer") from error

from threadkeep.server.owners import Owner as Owner
from threadkeep.viewer.application import app as app
from threadkeep.viewer.exporting import html_of as html_of

__all__ = ["Owner", "app", "html_of"]
