"""A published run as a page in the browser: on this machine, or as files for any web server.

``site_files`` says what the page consists of, ``page_server`` hands it out on the loopback interface,
``page_export`` writes it. The page itself, in ``page``, reads the Zarr store of the run: nothing is
computed here.
"""

from cagp_dist.view.page_export import export_page
from cagp_dist.view.page_server import serve

__all__ = ["export_page", "serve"]
