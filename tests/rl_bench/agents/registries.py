"""Small package registries on loopback, for npm and pip themselves to install from."""

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Files = dict[str, tuple[str, bytes]]
"""Content type and content, by path."""


def npm_package(name: str, version: str, *, script: str, post_install: str = "") -> Files:
    """A package of npm with one program of its own name."""
    manifest: dict[str, object] = {
        "name": name,
        "version": version,
        "bin": {name: "main.js"},
        "scripts": {"postinstall": post_install} if post_install else {},
    }
    archive = _tar({"package.json": json.dumps(manifest), "main.js": script})
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    dist = {"tarball": f"{{base}}/{name}-{version}.tgz", "integrity": f"sha512-{digest}"}
    manifest["dist"] = dist
    manifest["hasInstallScript"] = bool(post_install)
    index = {
        "name": name,
        "dist-tags": {"latest": version},
        "versions": {version: manifest},
    }
    return {
        f"/{name}": ("application/json", json.dumps(index).encode()),
        f"/{name}-{version}.tgz": ("application/octet-stream", archive),
    }


def pypi_package(name: str, version: str, *, script: str) -> Files:
    """A wheel with one program of its own name, which runs ``script``."""
    info = f"{name}-{version}.dist-info"
    members = {
        f"{name}.py": f"def main():\n    {script}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        for path, text in members.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in members))
    file = f"{name}-{version}-py3-none-any.whl"
    page = f'<a href="{{base}}/{file}">{file}</a>'
    return {
        f"/simple/{name}/": ("text/html", page.encode()),
        f"/{file}": ("application/zip", buffer.getvalue()),
    }


@contextmanager
def served(files: Files) -> Iterator[str]:
    """Serves the files; their ``{base}`` stands for the server's address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = files.get(self.path)
            kind, content = found or ("text/plain", b"not here")
            if kind in {"application/json", "text/html"}:
                content = content.replace(b"{base}", base.encode())
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        base = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield base
        finally:
            server.shutdown()
            thread.join()


def _tar(members: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in members.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()
