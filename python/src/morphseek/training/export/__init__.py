"""Export of a trained network as a bundle: one ONNX file that carries its manifest.

The graph is one refinement step, everything included: it warps the *original* moving image by the
current state, encodes once, draws ``z = mu + tau * sigma * epsilon``, decodes every trajectory,
integrates, composes and scores. A caller keeps fields on its device and runs the graph T times.

=============  ===============  ============================================================
input          shape (float32)  meaning
=============  ===============  ============================================================
``fixed``      (1, 1, D, H, W)  normalised image
``moving``     (1, 1, D, H, W)  normalised original moving image, on the pair's network grid
``u_prev``     (1, 3, D, H, W)  current state, voxels; channel c along array axis c (z, y, x)
``epsilon``    (J, C, d, h, w)  standard normal noise
``tau``        (1,)             temperature; 0 gives z = mu
``step_view``  (4,) int64       this step's offset along z, y, x in voxels, and 1 if mirrored;
                                only if the network has views
=============  ===============  ============================================================

=============  ===============  ============================================================
output         shape (float32)  meaning
=============  ===============  ============================================================
``u``          (J, 3, D, H, W)  ``phi(x) + u_prev(x + phi(x))``
``warped``     (J, 1, D, H, W)  moving o (x + u); 0 outside the moving grid
``reward``     (J,)             mean local NCC (window 9) over voxels with fixed > 0, minus
                                NJD in percent
``mu``         (1, C, d, h, w)  mean of the latent policy
``log_sigma``  (1, C, d, h, w)  its log standard deviation
``njd``        (J,)             percent of the voxels where ``u`` folds
=============  ===============  ============================================================

The file holds the step inside a loop (:mod:`.onnx_loop`): another input, ``steps``, makes one run
take T steps, and the step's number decides the view.

Weights are stored as float16 and cast to float32 in the graph, so the arithmetic is float32 and the
file half the size. With ``half`` the network's layers work in float16 as well; images, the policy's
heads, and everything about fields (integration, composition, sampling, reward) stay float32: a
coordinate of 200 in float16 is off by up to 0.06 voxel.
"""

from .bundle import export_bundle
from .manifest import read_manifest
from .step_graph import StepGraph, label_free_reward, random_backbone
from .trace import TABLE
from .weights import MIN_HALF_SIZE, bundle_weights

__all__ = [
    "MIN_HALF_SIZE",
    "StepGraph",
    "TABLE",
    "bundle_weights",
    "export_bundle",
    "label_free_reward",
    "random_backbone",
    "read_manifest",
]
