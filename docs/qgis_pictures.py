"""Draw exported maps by QGIS, and compare all their cells with the run: ``python docs/qgis_pictures.py``.

Jobs on the built-in field are run for the globe and for Europe, cells of 2 degrees, and their maps exported.
The rest is done in a second process, by the Python that has QGIS (Debian: ``apt-get install python3-qgis``),
which is another one than that of this package: ``/usr/bin/python3``, or the one that is named as an argument.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "figures" / "qgis.png"
RESOLUTION_DEGREES = 2.0
SOURCES = {
    "GeoTIFF": "{folder}/map_t2m_mean.tif",
    "NetCDF": "NETCDF:{folder}/map.nc:t2m_mean",
    "Zarr": 'ZARR:"{folder}/map.zarr":/t2m_mean:0',
}
ROWS = (  # region, projection, width and height in pixels, formats
    ("globe", "ESRI:54030", (410, 210), ("GeoTIFF", "Zarr")),
    ("Europe", "EPSG:3035", (410, 330), ("NetCDF", "Zarr")),
)


def prepare(folder: Path) -> None:
    """Export the maps, and save what was published and the coastlines so that any Python reads them."""
    sys.path.insert(0, str(ROOT))
    from cagp_dist.cartography.frame import lines_degrees
    from pipelines.experiments.exported_maps import REGIONS, Region, export

    europe = next(region for region in REGIONS if region.name == "Europe")
    for region in (Region("globe", (90, -180, -90, 180)), europe):
        (folder / region.name).mkdir()
        map_ = export(region, folder / region.name, count=3_000, resolution=RESOLUTION_DEGREES)
        axes = {axis: map_[axis].values for axis in ("latitude", "longitude")}
        np.savez(folder / region.name / "published.npz", values=map_.values, **axes)
    points = lines_degrees("coastline")
    ends = np.isnan(points[:, 0])
    with np.errstate(invalid="ignore"):
        starts = np.flatnonzero(ends[:-1] | (np.abs(np.diff(points[:, 0])) > 180.0)) + 1
    lines = [line[~np.isnan(line[:, 0])].tolist() for line in np.split(points, starts)]
    geometry = {"type": "MultiLineString", "coordinates": [line for line in lines if len(line) > 1]}
    (folder / "coastline.geojson").write_text(json.dumps(geometry))


def layer_of(folder: Path, source: str) -> Any:
    """Open a map as QGIS does."""
    from qgis.core import QgsRasterLayer

    layer = QgsRasterLayer(SOURCES[source].format(folder=folder), source, "gdal")
    assert layer.isValid(), layer.error().message()
    return layer


def compare(folder: Path) -> None:
    """Print how far the number that QGIS shows at the centre of each cell is from what was published."""
    from qgis.core import QgsPointXY

    published = np.load(folder / "published.npz")
    for source in SOURCES:
        layer = layer_of(folder, source)
        provider, west = layer.dataProvider(), layer.extent().xMinimum()
        shown = np.array(
            [
                [
                    provider.sample(QgsPointXY((x - west) % 360.0 + west, y), 1)[0]
                    for x in published["longitude"]
                ]
                for y in published["latitude"]
            ]
        )
        expected = published["values"]
        equal = np.array_equal(shown, expected.astype(np.float32) if source == "GeoTIFF" else expected)
        as_held = "as float32" if source == "GeoTIFF" else "to the last bit"
        print(
            f"{folder.name}, {source}: {shown.size:,} cells, {'equal' if equal else 'NOT EQUAL'} {as_held}, "
            f"greatest difference {np.abs(shown - expected).max():.1g} K; {layer.crs().authid()}, "
            f"band {layer.bandName(1)!r}"
        )


def ramp_shader(low: float, high: float) -> Any:
    """Colours of a scale in kelvin."""
    from qgis.core import QgsColorRampShader, QgsStyle

    colours = QgsStyle.defaultStyle().colorRamp("Inferno")
    shader = QgsColorRampShader(low, high, colours, QgsColorRampShader.Interpolated)
    shader.classifyColorRamp(20, 1)
    return shader


def rendered(
    layer: Any, coast: Any, projection: str, size: tuple[int, int], scale: tuple[float, float]
) -> Any:
    """Let QGIS draw a map under the coastlines."""
    from qgis.core import (
        QgsCoordinateReferenceSystem,
        QgsCoordinateTransform,
        QgsMapRendererParallelJob,
        QgsMapSettings,
        QgsProject,
        QgsRasterShader,
        QgsSingleBandPseudoColorRenderer,
    )
    from qgis.PyQt.QtCore import QSize
    from qgis.PyQt.QtGui import QColor

    shader = QgsRasterShader()
    shader.setRasterShaderFunction(ramp_shader(*scale))
    layer.setRenderer(QgsSingleBandPseudoColorRenderer(layer.dataProvider(), 1, shader))
    system = QgsCoordinateReferenceSystem(projection)
    assert system.isValid(), projection
    context = QgsProject.instance().transformContext()
    extent = QgsCoordinateTransform(layer.crs(), system, context).transformBoundingBox(layer.extent())
    extent.scale(1.02)
    settings = QgsMapSettings()
    settings.setLayers([coast, layer])
    settings.setDestinationCrs(system)
    settings.setExtent(extent)
    settings.setOutputSize(QSize(*size))
    settings.setBackgroundColor(QColor("white"))
    settings.setFlag(QgsMapSettings.Antialiasing)
    job = QgsMapRendererParallelJob(settings)
    job.start()
    job.waitForFinished()
    assert not job.errors()
    return job.renderedImage()


def draw(folder: Path) -> None:
    """Draw both regions, each from two formats, and a colour bar below each."""
    from qgis.core import QgsVectorLayer
    from qgis.PyQt.QtCore import QRect, Qt
    from qgis.PyQt.QtGui import QColor, QFont, QImage, QPainter

    coast = QgsVectorLayer(str(folder / "coastline.geojson"), "coastline", "ogr")
    assert coast.isValid()
    coast.renderer().symbol().setColor(QColor("white"))
    coast.renderer().symbol().setWidth(0.25)
    bar = 300
    image = QImage(830, sum(height + 60 for _, _, (_, height), _ in ROWS), QImage.Format_RGB32)
    image.fill(QColor("white"))
    painter, top = QPainter(image), 0
    painter.setFont(QFont("DejaVu Sans", 9))
    for region, projection, size, sources in ROWS:
        values = np.load(folder / region / "published.npz")["values"]
        scale = float(np.floor(values.min())), float(np.ceil(values.max()))
        for column, source in enumerate(sources):
            layer = layer_of(folder / region, source)
            painter.drawText(
                QRect(420 * column, top + 2, size[0], 20), Qt.AlignHCenter, f"{source}, {projection}"
            )
            painter.drawImage(420 * column, top + 22, rendered(layer, coast, projection, size, scale))
        shader, left, below = ramp_shader(*scale), (image.width() - bar) // 2, top + size[1] + 30
        for pixel in range(bar):
            _, *colour = shader.shade(scale[0] + (pixel + 0.5) / bar * (scale[1] - scale[0]))
            painter.fillRect(left + pixel, below, 1, 12, QColor(*colour))
        ends = (left - 80, Qt.AlignRight, scale[0]), (left + bar + 6, Qt.AlignLeft, scale[1])
        for start, side, value in ends:
            painter.drawText(QRect(start, below - 2, 74, 20), side, f"{value:.0f} K")
        top += size[1] + 60
    painter.end()
    assert image.save(str(PICTURE))


def within_qgis(folder: Path) -> None:
    """Compare and draw."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from osgeo import gdal
    from qgis.core import Qgis, QgsApplication

    QgsApplication.setPrefixPath("/usr", True)
    application = QgsApplication([], False)
    application.initQgis()
    print(f"QGIS {Qgis.QGIS_VERSION}, GDAL {gdal.__version__}")
    for region, *_ in ROWS:
        compare(folder / region)
    draw(folder)
    application.exitQgis()


def main(python: str = "/usr/bin/python3") -> None:
    """Export here, and look at it there."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run([python, __file__, "--within-qgis", name], check=True, env=clean)
    with Image.open(PICTURE) as image:
        reduced = image.convert("RGB").quantize(160, dither=Image.Dither.NONE)
    reduced.save(PICTURE, optimize=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--within-qgis"]:
        within_qgis(Path(sys.argv[2]))
    else:
        main(*sys.argv[1:2])
