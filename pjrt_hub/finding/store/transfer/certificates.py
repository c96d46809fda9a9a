"""The certificates of a download: the authorities to trust, and the client's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pjrt_hub.errors import StoreError
from pjrt_hub.finding.store.transfer.installers import Sources

if TYPE_CHECKING:
    import ssl


def trust(env: Mapping[str, str], sources: Sources) -> ssl.SSLContext:
    """Make the TLS context of a download.

    SSL_CERT_FILE and SSL_CERT_DIR name the authorities to trust, SSL_CLIENT_CERT the certificate
    that servers are shown; the configuration of the user's installer comes before these. A file
    that cannot be read raises StoreError.
    """
    import ssl

    import httpx

    named, folder = sources.certificates or env.get("SSL_CERT_FILE"), env.get("SSL_CERT_DIR")
    try:
        if named or folder:
            context = ssl.create_default_context(cafile=named or None, capath=folder or None)
        else:
            context = httpx.create_ssl_context(trust_env=False)
            # The machine often trusts an organization's own authority.
            context.load_default_certs()
    except OSError as exc:
        where = named or folder
        raise StoreError(
            f"cannot read the certificates {where or 'of this machine'}: {exc.strerror or exc}",
            hint="correct PIP_CERT, SSL_CERT_FILE or SSL_CERT_DIR, or unset it"
            if where
            else "install the package certifi again, or name a file in SSL_CERT_FILE",
        ) from exc
    own = sources.client_certificate or env.get("SSL_CLIENT_CERT")
    try:
        if own:
            context.load_cert_chain(own, password=lambda: "")
    except OSError as exc:
        raise StoreError(
            f"cannot read the client certificate {own}: {exc.strerror or exc}",
            hint="PIP_CLIENT_CERT or SSL_CLIENT_CERT names one PEM file with a key that has no "
            "password, and its certificate",
        ) from exc
    return context
