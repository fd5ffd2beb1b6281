"""`tls_info`, MindIO's list of `key: value;`, as contexts of TLS 1.3."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from .codes import MindioError

_KEYS = ("tlsCert", "tlsCaPath", "tlsCaFile", "tlsCrlPath", "tlsCrlFile", "tlsPk", "tlsPkPwd", "packagePath")


@dataclass(frozen=True)
class TlsFiles:
    certificate: str
    key: str
    authorities: tuple[str, ...]
    revoked: tuple[str, ...]
    password_file: str


def parse(call: str, info: str) -> TlsFiles:
    values: dict[str, str] = {}
    for part in info.split(";"):
        if not part.strip():
            continue
        name, colon, value = part.partition(":")
        if not colon or name.strip() not in _KEYS:
            raise MindioError(f"{call}: tls_info: '{part.strip()}' is no 'key: value' with a key of {', '.join(_KEYS)}")
        values[name.strip()] = value.strip()
    missing = [name for name in ("tlsCert", "tlsPk", "tlsCaPath", "tlsCaFile") if not values.get(name)]
    if missing:
        raise MindioError(f"{call}: enable_tls is True, and tls_info lacks {', '.join(missing)}")
    folder = values["tlsCaPath"]
    authorities = tuple(os.path.join(folder, name.strip()) for name in values["tlsCaFile"].split(","))
    revoked = tuple(os.path.join(values.get("tlsCrlPath", ""), name.strip())
                    for name in values.get("tlsCrlFile", "").split(",") if name.strip())
    files = TlsFiles(values["tlsCert"], values["tlsPk"], authorities, revoked, values.get("tlsPkPwd", ""))
    for path in (files.certificate, files.key, *files.authorities, *files.revoked):
        if not os.path.isfile(path):
            raise MindioError(f"{call}: tls_info names {path}, which is no file")
    return files


def context(call: str, files: TlsFiles, server: bool, decrypt: Callable[[str], str] | None) -> ssl.SSLContext:
    """Both sides show a certificate and check the other's. Names are not compared: ranks are reached by address."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    password = None
    if files.password_file:
        with open(files.password_file, encoding="utf-8") as file:
            password = file.read().strip()
        if decrypt is not None:
            password = decrypt(password)
    try:
        made.load_cert_chain(files.certificate, files.key, password)
        for path in (*files.authorities, *files.revoked):
            made.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise MindioError(f"{call}: tls_info: {error}") from error
    if files.revoked:
        made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return made
