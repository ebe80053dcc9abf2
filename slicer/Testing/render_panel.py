"""Draws Screenshots/panel.png: the panel before and after a real registration of the demonstration
pair by its own button, and beside them its other sections, opened.

    QT_QPA_PLATFORM=offscreen python slicer/Testing/render_panel.py OUT.png

Everything but Slicer's own widget classes (stand_ins.py) is real: the .ui, MorphSeek.py, the
worker, the nodes.
"""

import sys
import time

import slicer
import stand_ins
from PIL import Image
from PySide6 import QtCore, QtGui

WIDTH, SCALE = 430, 1.5


def add_volume(name, image, kind="vtkMRMLScalarVolumeNode"):
    """Put a morphseek.images.Image (LPS) into the scene (RAS)."""
    import numpy as np

    node = slicer.mrmlScene.AddNewNodeByClass(kind, name)
    node.CreateDefaultDisplayNodes()
    slicer.util.updateVolumeFromArray(node, image.array)
    node.SetIJKToRASMatrix(
        slicer.util.vtkMatrixFromArray(
            np.diag([-1.0, -1.0, 1.0, 1.0]) @ image.grid.index_to_physical
        )
    )
    return node


def picture(panel):
    """Return the panel laid out as in a narrow dock, as an image."""
    app = stand_ins.application()
    panel.show()
    for _ in range(2):  # a label that wraps gets its height only after its width
        panel.resize(WIDTH, panel.layout().totalHeightForWidth(WIDTH))
        app.processEvents()
    image = QtGui.QImage(panel.size() * SCALE, QtGui.QImage.Format_RGB32)
    image.setDevicePixelRatio(SCALE)
    panel.render(image)
    return image


def beside(images, gap=24):
    """Return images side by side."""
    sheet = QtGui.QImage(
        sum(i.width() for i in images) + gap * (len(images) - 1),
        max(i.height() for i in images),
        QtGui.QImage.Format_RGB32,
    )
    sheet.fill(QtCore.Qt.white)
    painter, x = QtGui.QPainter(sheet), 0
    for image in images:
        image.setDevicePixelRatio(1)
        painter.drawImage(x, 0, image)
        x += image.width() + gap
    painter.end()
    return sheet


def main(path):
    from morphseek import phantom

    with stand_ins.install() as said:
        import MorphSeek
        from MorphSeekLib.sample import name_labels

        widget = MorphSeek.MorphSeekWidget()
        widget.setup()
        widget.enter()
        panel, ui = widget.panel, widget.ui
        pair = phantom.make_pair(size=72)
        parameters = panel.parameters
        parameters.fixed, parameters.moving = (
            add_volume("Abdomen MR", pair.fixed),
            add_volume("Abdomen CT", pair.moving),
        )
        labels = [
            add_volume(name, image, "vtkMRMLLabelMapVolumeNode")
            for name, image in (("MR organs", pair.fixed_labels), ("CT organs", pair.moving_labels))
        ]
        name_labels(labels, list(phantom.LABELS.values()))
        parameters.fixed_labels, parameters.moving_labels = labels
        parameters.preset = "MR with CT"

        def wait(busy):
            while busy():
                stand_ins.application().processEvents()
                time.sleep(0.02)

        wait(lambda: panel.package.asking is not None)
        widget.layout.setContentsMargins(6, 6, 6, 6)
        before = picture(widget.parent)
        ui.registerButton.click()
        wait(lambda: panel.registration is not None)
        if said.errors:
            sys.exit(said.errors[0])
        after = picture(widget.parent)
        images = [before, after]
        sections = ("inputs", "result", "review", "transfer", "outputs", "details", "advanced")
        for opened in (sections[2:-1], sections[-1:]):
            for name in sections:
                getattr(ui, f"{name}CollapsibleButton").setCollapsed(name not in opened)
            images.append(picture(widget.parent))
        beside(images).save(path)
        Image.open(path).quantize(64).save(path, optimize=True)
        widget.cleanup()


if __name__ == "__main__":
    main(sys.argv[1])
