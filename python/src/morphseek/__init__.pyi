from . import (
    errors as errors,
    images as images,
    info as info,
    phantom as phantom,
    presets as presets,
    report as report,
    scoring as scoring,
    studies as studies,
    transforms as transforms,
)
from ._engine.core import __version__ as __version__, devices as devices
from ._engine.generated import Options as Options
from .channels import Channel as Channel
from .images import Grid as Grid, Image as Image
from .landmarks import Landmarks as Landmarks
from .progress import Progress as Progress
from .registration import register as register
from .result import Registration as Registration
from .studies import (
    Study as Study,
    Template as Template,
    build_template as build_template,
    compare as compare,
    correct_epi as correct_epi,
    correct_motion as correct_motion,
    morphometry as morphometry,
    propagate_labels as propagate_labels,
    register_pairs as register_pairs,
)
from .transforms import Affine as Affine, Field as Field, Transform as Transform
from .verdict import Verdict as Verdict
