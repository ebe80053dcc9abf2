from . import (
    cohort as cohort,
    errors as errors,
    images as images,
    phantoms as phantoms,
    report as report,
    schema as schema,
    scoring as scoring,
    transforms as transforms,
)
from ._engine.core import __version__ as __version__, devices as devices
from ._engine.generated import Options as Options
from ._engine.options import load_preset as load_preset, save_preset as save_preset
from .atlas import Template as Template, template as template
from .channels import Channel as Channel
from .cohort import evaluate as evaluate, register_cohort as register_cohort
from .diagnosis import doctor as doctor
from .epi import correct_epi as correct_epi
from .images import Grid as Grid, Image as Image
from .landmarks import Landmarks as Landmarks
from .motion import series as series
from .progress import Progress as Progress
from .registration import register as register
from .result import Registration as Registration
from .transforms import Affine as Affine, Field as Field, Transform as Transform
from .verdict import Verdict as Verdict
