"""The least build backend: it packs the module into a wheel, so that nothing has to be installed to build it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

ENTRY_POINTS = "[mempalace.formats]\nkiln = kiln_formats:Kiln\nloom = kiln_formats:Loom\n"
FILES = {
    "METADATA": "Metadata-Version: 2.1\nName: kiln-formats\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: backend\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "entry_points.txt": ENTRY_POINTS,
}


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Write the wheel; its name."""
    name = "kiln_formats-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory, name), "w") as wheel:
        wheel.write("kiln_formats.py")
        for file, text in FILES.items():
            wheel.writestr(f"kiln_formats-1.0.dist-info/{file}", text)
        names = ["kiln_formats.py", *(f"kiln_formats-1.0.dist-info/{file}" for file in (*FILES, "RECORD"))]
        wheel.writestr("kiln_formats-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in names))
    return name
